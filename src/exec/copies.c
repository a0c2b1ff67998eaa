/* exec/copies.c - graphs that take exactly F rows, run for one row: its inputs F times over,
 * and of the outputs the row's own.
 *
 * Row r stands at place r mod F, where a run of F rows together has it too. An input is repeated along the dimension
 * where the graph wants F and the row's value has 1; outputs that become state are copied into the row's state. */
#include "base/alloc.h"
#include "exec/run.h"

bool td_exec_copies_init(td_exec *e) {
    e->copies = td_alloc_zero(e->plan->n_sessions, sizeof *e->copies);
    size_t most = 0;
    for (size_t i = 0; e->copies && i < e->plan->n_sessions; i++) {
        const td_plan_session *s = &e->plan->sessions[i];
        if (s->fixed_rows < 2) continue;
        most = TD_MAX(most, s->signature->n_outputs);
        e->copies[i] = td_alloc_zero(s->signature->n_inputs, sizeof **e->copies);
        if (!e->copies[i]) return false;
    }
    e->bound = td_alloc_zero(most, sizeof *e->bound);
    return e->copies && e->bound;
}

void td_exec_copies_free(td_exec *e) {
    for (size_t i = 0; e->copies && i < e->plan->n_sessions; i++) {
        for (size_t k = 0; e->copies[i] && k < e->plan->sessions[i].signature->n_inputs; k++)
            td_value_release(&e->copies[i][k]);
        td_free(e->copies[i]);
    }
    td_free(e->copies);
    td_free(e->bound);
}

/* Where the graph wants rows and the value has one; -1: the value is the same for all rows, or has them all. */
static int rows_axis(const td_light_port *port, const td_tensor *value, int64_t rows) {
    if (port->shape.rank != value->shape.rank) return -1;
    for (int i = 0; i < TD_MIN(value->shape.rank, 2); i++)
        if (port->shape.dims[i] == rows && value->shape.dims[i] == 1) return i;
    return -1;
}

static treadle_status repeat(td_value *memory, td_value *value, int axis, int64_t rows, treadle_error *err) {
    td_shape shape = value->tensor.shape;
    shape.dims[axis] = rows;
    if (!td_value_resize(memory, value->tensor.dtype, &shape)) return td_fail_memory(err, "copies of a row", 0);
    for (int64_t r = 0; r < rows; r++) {
        td_tensor at = td_tensor_slice(&memory->tensor, axis, r, 1);
        td_tensor_copy(&at, &value->tensor);
    }
    *value = *memory;
    return TREADLE_OK;
}

/* The row's part of an output, which becomes the state that was bound to it, if any. */
static treadle_status take(td_exec *e, int32_t session, size_t o, td_tensor *bound, treadle_error *err) {
    const td_plan_session *s = &e->plan->sessions[session];
    td_value *value = &e->outputs[session][o];
    int32_t k = s->out_state[o];
    int axis = k >= 0 ? TD_MAX(e->plan->states[k].batch_axis, 0) : 0;
    if (value->kind != TD_VALUE_TENSOR) return TREADLE_OK;
    if (axis < value->tensor.shape.rank && value->tensor.shape.dims[axis] == s->fixed_rows)
        value->tensor = td_tensor_slice(&value->tensor, axis, (int64_t)e->row % s->fixed_rows, 1);
    if (!bound->data) return TREADLE_OK;
    int seq = e->plan->states[k].seq_axis;
    if (seq >= 0 && seq < value->tensor.shape.rank && value->tensor.shape.dims[seq] <= bound->shape.dims[seq])
        bound->shape.dims[seq] = value->tensor.shape.dims[seq];
    if (!td_shape_equal(&bound->shape, &value->tensor.shape) || bound->dtype != value->tensor.dtype) {
        char want[128], got[128];
        return td_fail(err, TREADLE_RUN, "expected \"%.*s\" of shape %s for a row, the graph gave %s",
                       TD_STR_ARGS(s->signature->outputs[o].name), td_shape_text(&bound->shape, want),
                       td_shape_text(&value->tensor.shape, got));
    }
    td_tensor_copy(bound, &value->tensor);
    value->tensor = *bound;
    return TREADLE_OK;
}

treadle_status td_exec_call_copies(td_exec *e, int32_t session, treadle_error *err) {
    const td_plan_session *s = &e->plan->sessions[session];
    const td_signature *sig = s->signature;
    const td_engine *engine = e->runtime->engines[session];
    bool alone = false;
    for (size_t i = 0; i < sig->n_inputs; i++) {
        td_value *value = &e->inputs[session][i];
        int axis = value->kind == TD_VALUE_TENSOR ? rows_axis(&sig->inputs[i], &value->tensor, s->fixed_rows) : -1;
        if (axis < 0) continue;
        TD_TRY(repeat(&e->copies[session][i], value, axis, s->fixed_rows, err));
        alone = true;
    }
    if (!alone) return engine->run(e->ctx[session], e->inputs[session], e->outputs[session], e->skip[session], err);
    for (size_t o = 0; o < sig->n_outputs; o++) {
        e->bound[o] = (td_tensor){0};
        if (e->outputs[session][o].kind == TD_VALUE_TENSOR) e->bound[o] = e->outputs[session][o].tensor;
        e->outputs[session][o] = (td_value){0};
    }
    treadle_status status =
        engine->run(e->ctx[session], e->inputs[session], e->outputs[session], e->skip[session], err);
    for (size_t o = 0; status == TREADLE_OK && o < sig->n_outputs; o++) status = take(e, session, o, &e->bound[o], err);
    return status;
}
