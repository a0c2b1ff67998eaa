/* plan/fault.c - what no executor here can run, though it plans: paged caches, and state whose shape nothing decides. */
#include "plan/build.h"

static const char *input_fault(td_plan *plan, const td_plan_session *s, size_t i) {
    if (s->feeds[i].kind != TD_FEED_ROLE || s->feeds[i].index != TD_ROLE_BLOCK_TABLE) return NULL;
    const char *text = td_arena_printf(
        &plan->arena, "input \"%.*s\" of session \"%.*s\" is a table of cache blocks: paged caches are not run",
        TD_STR_ARGS(s->signature->inputs[i].name), TD_STR_ARGS(s->name));
    return text ? text : "out of memory";
}

const char *td_plan_find_fault(td_plan *plan) {
    for (size_t k = 0; k < plan->n_states; k++)
        for (int i = 0; i < plan->states[k].shape.rank; i++)
            if (plan->states[k].kind != TD_STATE_CROSS && plan->states[k].shape.dims[i] < 0 &&
                i != plan->states[k].batch_axis && i != plan->states[k].seq_axis)
                return "a state tensor has more than one free dimension beside the batch";
    for (size_t k = 0; k < plan->n_steps; k++) {
        const td_plan_session *s = &plan->sessions[plan->steps[k].session];
        for (size_t i = 0; i < s->signature->n_inputs; i++) {
            const char *fault = input_fault(plan, s, i);
            if (fault) return fault;
        }
    }
    return NULL;
}
