/* plan/share.c - state of equal names in sessions that never run in the same step is one state: the graph of the prompt
 * and the graph of the later tokens hold one cache. A prompt graph may also make a cache that it does not take. */
#include "plan/build.h"

static bool same_state(const td_plan *plan, const td_state_tensor *a, const td_state_tensor *b) {
    const td_light_port *x = &plan->sessions[a->session].signature->inputs[a->input];
    const td_light_port *y = &plan->sessions[b->session].signature->inputs[b->input];
    if (!td_str_equal(x->name, y->name) || a->dtype != b->dtype || a->shape.rank != b->shape.rank) return false;
    for (int i = 0; i < a->shape.rank; i++)
        if (a->shape.dims[i] >= 0 && b->shape.dims[i] >= 0 && a->shape.dims[i] != b->shape.dims[i]) return false;
    return true;
}

/* All that holds state `from` holds `to` instead. */
static void replace(td_plan *plan, int32_t session, int32_t from, int32_t to) {
    td_plan_session *s = &plan->sessions[session];
    for (size_t i = 0; i < s->signature->n_inputs; i++)
        if (s->feeds[i].kind == TD_FEED_STATE && s->feeds[i].index == from) s->feeds[i].index = to;
    for (size_t o = 0; o < s->signature->n_outputs; o++)
        if (s->out_state[o] == from) s->out_state[o] = to;
}

/* Drops the states that are marked, and numbers the others anew. */
void td_plan_compact_states(td_plan_build_ctx *b, const bool *dropped) {
    td_plan *plan = b->plan;
    int32_t *number = TD_ARENA_ARRAY(b->scratch, int32_t, plan->n_states);
    size_t n = 0;
    if (!number) {
        b->out_of_memory = true;
        return;
    }
    for (size_t k = 0; k < plan->n_states; k++) {
        number[k] = dropped[k] ? -1 : (int32_t)n;
        if (!dropped[k]) plan->states[n++] = plan->states[k];
    }
    plan->n_states = n;
    for (size_t i = 0; i < plan->n_sessions; i++) {
        td_plan_session *s = &plan->sessions[i];
        for (size_t k = 0; s->signature && k < s->signature->n_inputs; k++) {
            td_feed *feed = &s->feeds[k];
            if (feed->kind != TD_FEED_STATE) continue;
            feed->index = number[feed->index];
            if (feed->index < 0) *feed = (td_feed){TD_FEED_NONE, TD_FEED_FREE};
        }
        for (size_t o = 0; s->signature && o < s->signature->n_outputs; o++)
            if (s->out_state[o] >= 0) s->out_state[o] = number[s->out_state[o]];
    }
}

/* Outputs of a prompt session that are the caches of a session which takes them, but has not made them by itself. */
static void find_makers(td_plan_build_ctx *b, int32_t session) {
    td_plan *plan = b->plan;
    td_plan_session *s = &plan->sessions[session];
    bool takes = false, makes = false;
    for (size_t o = 0; o < s->signature->n_outputs; o++) {
        const td_name_parts *out = &b->outs[session][o];
        if (s->out_state[o] >= 0 || out->layer < 0) continue;
        for (size_t k = 0; k < plan->n_states; k++) {
            const td_state_tensor *t = &plan->states[k];
            const td_plan_session *owner = &plan->sessions[t->session];
            if (t->session == session || td_plan_run_together(plan, session, t->session) ||
                td_plan_first_step(plan, t->session) < 0 || t->part != out->part || t->layer != out->layer ||
                (t->part == TD_PART_OTHER && t->kind != TD_STATE_COMBINED))
                continue;
            if (strcmp(b->ins[t->session][t->input].stem, out->stem) != 0 ||
                !td_plan_ports_fit(&s->signature->outputs[o], &owner->signature->inputs[t->input]))
                continue;
            s->out_state[o] = (int32_t)k;
            makes |= t->kind != TD_STATE_CROSS;
            break;
        }
    }
    for (size_t i = 0; i < s->signature->n_inputs; i++) takes |= s->feeds[i].kind == TD_FEED_STATE;
    s->starts_afresh = makes && !takes;
}

void td_plan_share_states(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    bool *dropped = TD_ARENA_ARRAY(b->scratch, bool, plan->n_states), any = false, apart = false;
    if (!dropped) {
        b->out_of_memory = true;
        return;
    }
    for (size_t k = 0; k < plan->n_states; k++) /* of sessions that do not run */
        any |= dropped[k] = td_plan_first_step(plan, plan->states[k].session) < 0;
    for (size_t i = 0; i < plan->n_steps; i++)
        for (size_t k = 0; k < i; k++)
            apart |= !td_plan_run_together(plan, plan->steps[i].session, plan->steps[k].session);
    for (size_t k = 0; k < plan->n_states && apart; k++) {
        const td_state_tensor *s = &plan->states[k];
        if (dropped[k]) continue;
        for (size_t i = k + 1; i < plan->n_states; i++) {
            const td_state_tensor *t = &plan->states[i];
            if (dropped[i] || s->session == t->session || td_plan_run_together(plan, s->session, t->session) ||
                !same_state(plan, s, t))
                continue;
            replace(plan, t->session, (int32_t)i, (int32_t)k);
            dropped[i] = any = true;
        }
    }
    if (any) td_plan_compact_states(b, dropped);
    for (size_t i = 0; i < plan->n_steps && apart && !b->out_of_memory; i++)
        if (td_plan_runs_only(plan, plan->steps[i].session, TD_WHEN_PROMPT)) find_makers(b, plan->steps[i].session);
}
