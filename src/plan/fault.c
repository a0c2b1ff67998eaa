/* plan/fault.c - what no executor here can run, though it plans: paged caches, state whose shape nothing decides,
 * logits and state that do not come out as they must. */
#include "plan/build.h"

static const char *input_fault(td_plan *plan, const td_plan_session *s, size_t i) {
    if (s->feeds[i].kind != TD_FEED_ROLE || s->feeds[i].index != TD_ROLE_BLOCK_TABLE) return NULL;
    const char *text = td_arena_printf(
        &plan->arena, "input \"%.*s\" of session \"%.*s\" is a table of cache blocks: paged caches are not run",
        TD_STR_ARGS(s->signature->inputs[i].name), TD_STR_ARGS(s->name));
    return text ? text : "out of memory";
}

/* State whose shape nothing decides cannot even be empty. */
static void report_open_state(td_plan_build_ctx *b, const td_state_tensor *s) {
    for (int i = 0; i < s->shape.rank; i++) {
        if (s->kind == TD_STATE_CROSS || s->shape.dims[i] >= 0 || i == s->batch_axis || i == s->seq_axis) continue;
        const td_plan_session *session = &b->plan->sessions[s->session];
        td_messages_add(
            b->messages, TREADLE_MESSAGE_ERROR, td_plan_session_place(b, session),
            "state \"%.*s\" of session \"%.*s\": nothing says how long its dimension %d is (expected a number "
            "in the graph, of the input or of what comes back)",
            TD_STR_ARGS(session->signature->inputs[s->input].name), TD_STR_ARGS(session->name), i);
        return;
    }
}

const char *td_plan_find_fault(td_plan *plan) {
    for (size_t k = 0; k < plan->n_steps; k++) {
        const td_plan_session *s = &plan->sessions[plan->steps[k].session];
        for (size_t i = 0; i < s->signature->n_inputs; i++) {
            const char *fault = input_fault(plan, s, i);
            if (fault) return fault;
        }
    }
    return NULL;
}

/* --- what comes out */

static treadle_status check_logits(const td_plan *plan, const td_plan_session *s, const td_light_port *port,
                                   treadle_error *err) {
    const char *name = s->signature->outputs[s->logits].name.p;
    int n = (int)s->signature->outputs[s->logits].name.n, rank = port->shape.rank;
    char text[128];
    if (port->kind != TD_ONNX_TYPE_TENSOR ||
        (port->dtype != TD_UNDEFINED && td_dtype_kind(port->dtype) != TD_KIND_FLOAT))
        return td_fail(err, TREADLE_CONFIG,
                       "expected the logits \"%.*s\" as floating-point numbers, the graph gives %s", n, name,
                       port->kind == TD_ONNX_TYPE_TENSOR ? td_dtype_name(port->dtype) : "no tensor");
    if (rank >= 0 && rank != 2 && rank != 3)
        return td_fail(err, TREADLE_CONFIG,
                       "expected the logits \"%.*s\" with two or three dimensions, [rows, vocab] or [rows, positions, "
                       "vocab]; the graph gives %d (%s)",
                       n, name, rank, td_shape_text(&port->shape, text));
    const td_plan_session *first = &plan->sessions[plan->decoder];
    if (rank > 0 && s != first && plan->vocab > 0 && port->shape.dims[rank - 1] > 0 &&
        port->shape.dims[rank - 1] != plan->vocab)
        return td_fail(err, TREADLE_CONFIG,
                       "expected one vocabulary in all logits: session \"%.*s\" gives %lld, session \"%.*s\" %lld",
                       TD_STR_ARGS(first->name), (long long)plan->vocab, TD_STR_ARGS(s->name),
                       (long long)port->shape.dims[rank - 1]);
    return TREADLE_OK;
}

/* What comes back has the type of what goes in, and its shape but for rows, and for positions where these grow. */
static treadle_status check_state(const td_state_tensor *state, td_str name, const td_light_port *port,
                                  treadle_error *err) {
    bool fits = port->dtype == TD_UNDEFINED || port->dtype == state->dtype;
    int rank = port->shape.rank;
    fits &= rank < 0 || rank == state->shape.rank;
    for (int i = 0; fits && i < rank; i++) {
        bool grows = i == state->seq_axis && state->kind != TD_STATE_STATIC;
        int64_t is = port->shape.dims[i], was = state->shape.dims[i];
        if (i != state->batch_axis && !grows) fits &= is < 0 || was < 0 || is == was;
    }
    if (fits) return TREADLE_OK;
    char was[128], is[128];
    return td_fail(err, TREADLE_CONFIG, "expected state \"%.*s\" to come back as %s %s, the graph gives %s %s",
                   TD_STR_ARGS(name), td_dtype_name(state->dtype), td_shape_text(&state->shape, was),
                   td_dtype_name(port->dtype), td_shape_text(&port->shape, is));
}

treadle_status td_plan_check_output(const td_plan *plan, int32_t session, size_t output, const td_light_port *port,
                                    treadle_error *err) {
    const td_plan_session *s = &plan->sessions[session];
    int32_t k = s->out_state[output];
    if (k >= 0) return check_state(&plan->states[k], s->signature->outputs[output].name, port, err);
    if ((int32_t)output != s->logits || plan->transducer.present || plan->decoder < 0) return TREADLE_OK;
    if (plan->n_states == 0 && plan->logits_rank >= 0) return TREADLE_OK; /* may be classes: cannot_run says it */
    return check_logits(plan, s, port, err);
}

void td_plan_check_outputs(td_plan_build_ctx *b) {
    const td_plan *plan = b->plan;
    for (size_t k = 0; k < plan->n_states; k++) report_open_state(b, &plan->states[k]);
    for (size_t i = 0; i < plan->n_sessions; i++) {
        const td_plan_session *s = &plan->sessions[i];
        for (size_t o = 0; s->signature && o < s->signature->n_outputs; o++) {
            treadle_error problem = {0};
            if (td_plan_check_output(plan, (int32_t)i, o, &s->signature->outputs[o], &problem) != TREADLE_OK)
                td_messages_add(b->messages, TREADLE_MESSAGE_ERROR, td_plan_session_place(b, s), "%s", problem.message);
        }
    }
}
