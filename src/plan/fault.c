/* plan/fault.c - what the executor does not run yet. */
#include "plan/build.h"

static bool role_is_made(td_role role) {
    switch (role) {
    case TD_ROLE_INPUT_IDS:
    case TD_ROLE_ATTENTION_MASK:
    case TD_ROLE_POSITION_IDS:
    case TD_ROLE_TOKEN_TYPE_IDS:
    case TD_ROLE_CACHE_POSITION:
    case TD_ROLE_PAST_SEQUENCE_LENGTH:
    case TD_ROLE_TOTAL_SEQUENCE_LENGTH:
    case TD_ROLE_SEQLENS_K:
    case TD_ROLE_NUM_LOGITS_TO_KEEP:
    case TD_ROLE_LOGITS_TO_KEEP:
    case TD_ROLE_USE_CACHE_BRANCH: return true;
    default: return false;
    }
}

static const char *input_fault(td_plan *plan, const td_plan_session *s, size_t i) {
    const td_light_port *port = &s->signature->inputs[i];
    td_role role = (td_role)s->feeds[i].index;
    const char *why = NULL;
    if (s->feeds[i].kind == TD_FEED_REQUEST) why = "needs a tensor of the request";
    else if (s->feeds[i].kind == TD_FEED_NONE && !port->optional) why = "needs zero rows";
    else if (s->feeds[i].kind == TD_FEED_ROLE && !role_is_made(role)) why = "is of a kind";
    else if (s->feeds[i].kind == TD_FEED_ROLE && role == TD_ROLE_ATTENTION_MASK && port->shape.rank > 2)
        why = "is a mask of more than two dimensions,";
    else if (s->feeds[i].kind == TD_FEED_ROLE && role == TD_ROLE_POSITION_IDS && port->shape.rank > 2)
        why = "takes positions in three dimensions,";
    if (!why) return NULL;
    const char *text =
        td_arena_printf(&plan->arena, "input \"%.*s\" of session \"%.*s\" %s which this build does not make yet",
                        TD_STR_ARGS(port->name), TD_STR_ARGS(s->name), why);
    return text ? text : "out of memory";
}

const char *td_plan_find_fault(td_plan *plan) {
    if (plan->window.size > 0) return "sliding windows are not run by this build yet";
    for (size_t k = 0; k < plan->n_steps; k++)
        if (plan->steps[k].when != TD_WHEN_ALWAYS || plan->steps[k].loop != TD_LOOP_BATCHED)
            return "flow steps other than always and batched are not run by this build yet";
    for (size_t k = 0; k < plan->n_states; k++) {
        td_state_kind kind = plan->states[k].kind;
        if (kind == TD_STATE_STATIC) return "static caches are not run by this build yet";
        if (kind == TD_STATE_CROSS) return "cross caches are not run by this build yet";
        if (plan->states[k].window > 0) return "sliding windows are not run by this build yet";
        for (int i = 0; i < plan->states[k].shape.rank; i++)
            if (plan->states[k].shape.dims[i] < 0 && i != plan->states[k].batch_axis && i != plan->states[k].seq_axis)
                return "a state tensor has more than one free dimension beside the batch";
    }
    for (size_t k = 0; k < plan->n_steps; k++) {
        const td_plan_session *s = &plan->sessions[plan->steps[k].session];
        if (s->fixed_rows > 1) return "a fixed number of rows is not run by this build yet";
        for (size_t i = 0; i < s->signature->n_inputs; i++) {
            const char *fault = input_fault(plan, s, i);
            if (fault) return fault;
        }
    }
    return NULL;
}
