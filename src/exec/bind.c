/* exec/bind.c - what goes into a session and what becomes of what comes out: role buffers, views of the state, wires,
 * request tensors, zero rows; after a run, the values that outlive it. */
#include "base/alloc.h"
#include "exec/run.h"

/* --- zero rows */

/* Elements of an input when every free dimension counts none; the largest over all inputs is what `nothing` holds. */
static bool zero_shape(const td_light_port *port, td_shape *shape, size_t *bytes) {
    int64_t count;
    *shape = port->shape;
    if (shape->rank < 0) *shape = (td_shape){.rank = 1};
    for (int i = 0; i < shape->rank; i++) shape->dims[i] = TD_MAX(shape->dims[i], (int64_t)0);
    return td_shape_count(shape, &count) && td_dtype_bytes(port->dtype, count, bytes);
}

bool td_exec_alloc_nothing(td_exec *e) {
    size_t most = 64, bytes;
    td_shape shape;
    for (size_t i = 0; i < e->plan->n_sessions; i++) {
        const td_plan_session *s = &e->plan->sessions[i];
        for (size_t k = 0; k < s->signature->n_inputs; k++) {
            if (s->feeds[k].kind == TD_FEED_ROLE || s->feeds[k].kind == TD_FEED_STATE) continue;
            if (!zero_shape(&s->signature->inputs[k], &shape, &bytes)) return false;
            most = TD_MAX(most, bytes);
        }
    }
    e->nothing = td_alloc_zero(1, most);
    return e->nothing != NULL;
}

static void zero_rows(const td_exec *e, const td_light_port *port, td_value *value) {
    td_shape shape;
    size_t bytes;
    zero_shape(port, &shape, &bytes);
    value->kind = TD_VALUE_TENSOR;
    td_tensor_view(&value->tensor, port->dtype, &shape, e->nothing);
}

/* --- wires */

const td_value *td_exec_output(const td_exec *e, int32_t session, int32_t output) {
    const td_value *value = e->is_joined[session] ? &e->joined[session][output] : &e->outputs[session][output];
    return e->ran[session] == e->run_number && value->kind != TD_VALUE_NONE ? value : NULL;
}

static td_value *kept_slot(const td_exec *e, size_t row, int32_t wire) {
    return &e->kept[row * e->plan->n_wires + (size_t)wire];
}

const td_value *td_exec_wire_value(const td_exec *e, const td_exec_run *run, int32_t wire) {
    const td_value *fallback = NULL;
    for (int32_t w = wire; w >= 0; w = e->plan->wires[w].next) {
        const td_plan_wire *p = &e->plan->wires[w];
        const td_value *kept = p->once || p->hold ? kept_slot(e, run->first_row, w) : NULL;
        if (kept && run->n_rows > 1) kept = &e->stacks[e->plan->n_states + (size_t)w].whole;
        if (kept && kept->kind == TD_VALUE_NONE) kept = NULL;
        const td_value *now = td_exec_output(e, p->from_session, p->from_output);
        if (now && (!p->hold || run->prompt || !kept)) return now;
        if (kept) fallback = kept;
    }
    return fallback;
}

/* --- before a run */

/* What the caller gave for an input that the runtime would make; NULL: nothing. It belongs to the prompt as a whole. */
static const td_value *given_value(const td_exec *e, const td_exec_run *run, int32_t session, size_t i) {
    const td_exec_row *row = &run->rows[run->first_row];
    int32_t request = e->plan->sessions[session].given[i];
    if (request < 0 || !run->prompt || !row->requests || !row->fresh_requests) return NULL;
    return row->requests[request].kind == TD_VALUE_TENSOR ? &row->requests[request] : NULL;
}

static treadle_status check_given(const td_exec_run *run, const td_light_port *port, const td_tensor *t,
                                  treadle_error *err) {
    if (t->shape.rank > 0 && t->shape.dims[t->shape.rank - 1] == run->n) return TREADLE_OK;
    return td_fail(err, TREADLE_INVALID_ARGUMENT,
                   "tensor \"%.*s\": expected a number for each of %lld tokens, found %lld", TD_STR_ARGS(port->name),
                   (long long)run->n, (long long)(t->shape.rank > 0 ? t->shape.dims[t->shape.rank - 1] : 1));
}

static treadle_status bind_input(td_exec *e, const td_exec_run *run, int32_t session, size_t i, treadle_error *err) {
    const td_plan_session *s = &e->plan->sessions[session];
    const td_light_port *port = &s->signature->inputs[i];
    td_value *value = &e->inputs[session][i];
    td_feed feed = s->feeds[i];
    const td_value *found = NULL;
    *value = (td_value){0};
    switch (feed.kind) {
    case TD_FEED_ROLE:
        found = given_value(e, run, session, i);
        if (!found) td_exec_fill_role(e, run, session, i, value);
        else TD_TRY(check_given(run, port, &found->tensor, err));
        if (!found) return TREADLE_OK;
        break;
    case TD_FEED_STATE:
        value->kind = TD_VALUE_TENSOR;
        if (run->n_rows > 1 && e->stacks[feed.index].whole.kind != TD_VALUE_NONE) *value = e->stacks[feed.index].whole;
        else
            td_state_past(e->state, (size_t)feed.index, run->first_row, run->n_rows, run->start, run->past,
                          &value->tensor);
        return TREADLE_OK;
    case TD_FEED_WIRE:
        found = td_exec_wire_value(e, run, feed.index);
        if (run->prompt) TD_TRY(td_exec_splice(e, run, session, i, &found, err));
        break;
    case TD_FEED_REQUEST:
        if (run->rows[run->first_row].requests) found = &run->rows[run->first_row].requests[feed.index];
        if (found && found->kind == TD_VALUE_NONE) found = NULL;
        if (!found && !port->optional && !e->plan->requests[feed.index].optional)
            return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected a tensor \"%.*s\" with this request, found none",
                           TD_STR_ARGS(port->name));
        break;
    case TD_FEED_NONE: break;
    }
    if (found) *value = *found;
    else if (!port->optional) zero_rows(e, port, value);
    return TREADLE_OK;
}

treadle_status td_exec_bind(td_exec *e, const td_exec_run *run, int32_t session, treadle_error *err) {
    const td_plan_session *s = &e->plan->sessions[session];
    e->row = run->first_row;
    TD_TRY(td_exec_roles_prepare(e, run, session, err));
    for (size_t i = 0; i < s->signature->n_inputs; i++) TD_TRY(bind_input(e, run, session, i, err));
    for (size_t o = 0; o < s->signature->n_outputs; o++) {
        td_value *value = &e->outputs[session][o];
        int32_t k = s->out_state[o];
        *value = (td_value){0};
        if (k < 0 || e->plan->states[k].kind == TD_STATE_CROSS || e->state->given[k]) continue;
        value->kind = TD_VALUE_TENSOR;
        td_state_present(e->state, (size_t)k, run->first_row, run->n_rows,
                         run->start + (s->gives_new[o] ? run->past : 0), &value->tensor);
    }
    if (s->logits >= 0) e->skip[session][s->logits] = !run->wants_logits && !e->keep_all && !e->keep_outputs;
    return TREADLE_OK;
}

/* --- after a run */

/* A value with a buffer of its own is held; one in the context's memory is copied. */
static treadle_status copy_into(td_value *slot, const td_value *value, treadle_error *err) {
    td_value copy;
    if (value->kind == TD_VALUE_TENSOR && value->tensor.buffer) copy = td_value_share(value);
    else if (!td_value_copy(&copy, value)) return td_fail_memory(err, "a value that is kept", 0);
    td_value_release(slot);
    *slot = copy;
    return TREADLE_OK;
}

/* The columns that a growing cache was given are those that the row has afterwards. */
static treadle_status check_present(const td_exec *e, const td_exec_run *run, int32_t session, size_t o, size_t k,
                                    treadle_error *err) {
    const td_plan_session *s = &e->plan->sessions[session];
    const td_state_tensor *state = &e->plan->states[k];
    const td_value *value = &e->outputs[session][o];
    if ((state->kind != TD_STATE_SEPARATE && state->kind != TD_STATE_COMBINED) || value->kind != TD_VALUE_TENSOR ||
        e->state->slides[k])
        return TREADLE_OK;
    int64_t wanted = s->gives_new[o] ? run->n : run->past + run->n;
    int64_t found = state->seq_axis < value->tensor.shape.rank ? value->tensor.shape.dims[state->seq_axis] : 0;
    if (s->gives_new[o] ? found == wanted : found >= wanted) return TREADLE_OK;
    return td_fail(err, TREADLE_RUN,
                   "expected \"%.*s\" of %lld columns, %lld in the past and %lld new ones, found %lld%s",
                   TD_STR_ARGS(s->signature->outputs[o].name), (long long)wanted, (long long)run->past,
                   (long long)run->n, (long long)found,
                   found == run->n ? ": kv_cache.present \"new\" says that a graph gives new columns alone" : "");
}

/* A cross cache that its own session gives is filled by the first run and frozen. */
static treadle_status fill_cross(td_exec *e, const td_exec_run *run, size_t k, int32_t session, treadle_error *err) {
    const td_state_tensor *s = &e->plan->states[k];
    if (s->session == session && td_state_has_cross(e->state, k, run->first_row)) return TREADLE_OK;
    const td_value *value = td_exec_output(e, session, s->from_output);
    td_value copy = {0};
    if (!value) return TREADLE_OK;
    TD_TRY(copy_into(&copy, value, err));
    td_exec_stacks_forget(e);
    td_state_set_cross(e->state, k, run->first_row, &copy);
    return TREADLE_OK;
}

/* Recurrent state that begins a request as what a once step gave. */
static treadle_status start_recurrent(td_exec *e, const td_exec_run *run, size_t k, int32_t session,
                                      treadle_error *err) {
    const td_value *value = td_exec_output(e, session, e->plan->states[k].from_output);
    if (!value || value->kind != TD_VALUE_TENSOR) return TREADLE_OK;
    return td_state_set_recurrent(e->state, k, run->first_row, &value->tensor, err);
}

treadle_status td_exec_keep(td_exec *e, const td_exec_run *run, int32_t session, treadle_error *err) {
    const td_plan *plan = e->plan;
    const td_plan_session *s = &plan->sessions[session];
    for (size_t o = 0; o < s->signature->n_outputs; o++) {
        int32_t k = s->out_state[o];
        if (k < 0) continue;
        e->written[k] = true;
        TD_TRY(check_present(e, run, session, o, (size_t)k, err));
        if (e->state->given[k]) TD_TRY(td_state_give(e->state, (size_t)k, &e->outputs[session][o].tensor, err));
    }
    for (size_t w = 0; w < plan->n_wires; w++) {
        const td_plan_wire *wire = &plan->wires[w];
        if (wire->from_session != session || !(wire->once || (wire->hold && run->prompt))) continue;
        const td_value *value = td_exec_output(e, session, wire->from_output);
        if (!value) continue;
        td_exec_stacks_forget(e);
        TD_TRY(copy_into(kept_slot(e, run->first_row, (int32_t)w), value, err));
    }
    for (size_t k = 0; k < plan->n_states; k++) {
        if (plan->states[k].from_session != session) continue;
        if (plan->states[k].kind == TD_STATE_CROSS) TD_TRY(fill_cross(e, run, k, session, err));
        else TD_TRY(start_recurrent(e, run, k, session, err));
    }
    return TREADLE_OK;
}
