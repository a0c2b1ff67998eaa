/* exec/given.c - what becomes of a cache on the engines that use it: given, kept to its last columns, or neither.
 *
 * Given: where an engine makes a new tensor each run instead of writing into the state's memory, a state of one row
 * takes that tensor over, without a copy in or out; on a device it stays there as long as only sessions of that device
 * read it. */
#include "exec/run.h"

/* The input of a session that state tensor k feeds; -1: none. */
static ptrdiff_t input_of(const td_plan_session *s, size_t k) {
    for (size_t i = 0; i < s->signature->n_inputs; i++)
        if (s->feeds[i].kind == TD_FEED_STATE && s->feeds[i].index == (int32_t)k) return (ptrdiff_t)i;
    return -1;
}

static bool writes(const td_plan_session *s, size_t k, size_t o) { return s->out_state[o] == (int32_t)k; }

/* Every session that writes this cache gives tensors that can be kept, and none could write it in place. */
static bool is_given(const td_exec *e, size_t k) {
    const td_runtime *rt = e->runtime;
    bool any = false;
    for (size_t i = 0; i < e->plan->n_sessions; i++) {
        const td_plan_session *s = &e->plan->sessions[i];
        ptrdiff_t input = input_of(s, k);
        for (size_t o = 0; o < s->signature->n_outputs; o++) {
            if (!writes(s, k, o)) continue;
            if (s->fixed_rows > 1 || s->gives_new[o]) return false;
            if (!(rt->engines[i]->capabilities & TD_ENGINE_GIVES)) return false;
            if (input >= 0 && rt->engines[i]->aliases(rt->sessions[i], (size_t)input, o)) return false;
            any = true;
        }
    }
    return any;
}

/* All that write or read it run on one engine and provider. */
static bool stays_on_device(const td_exec *e, size_t k) {
    const td_plan_session *first = NULL;
    const td_engine *engine = NULL;
    for (size_t i = 0; i < e->plan->n_sessions; i++) {
        const td_plan_session *s = &e->plan->sessions[i];
        bool uses = input_of(s, k) >= 0;
        for (size_t o = 0; o < s->signature->n_outputs; o++) uses |= writes(s, k, o);
        if (!uses) continue;
        if (!first) first = s, engine = e->runtime->engines[i];
        if (engine != e->runtime->engines[i] || !td_str_equal(first->config->provider, s->config->provider))
            return false;
    }
    return engine && (engine->capabilities & TD_ENGINE_DEVICE);
}

void td_exec_choose_given(td_exec *e) {
    bool gives = false;
    for (size_t i = 0; i < e->plan->n_sessions; i++)
        gives |= (e->runtime->engines[i]->capabilities & TD_ENGINE_GIVES) != 0;
    if (!gives || e->n_rows != 1 || e->plan->window.size) return; /* rows share a tensor; a window moves columns */
    for (size_t k = 0; k < e->plan->n_states; k++) {
        td_state_kind kind = e->plan->states[k].kind;
        if ((kind != TD_STATE_SEPARATE && kind != TD_STATE_COMBINED) || !is_given(e, k)) continue;
        td_state_expect(e->state, k);
        if (!stays_on_device(e, k)) continue;
        for (size_t i = 0; i < e->plan->n_sessions; i++)
            for (size_t o = 0; o < e->plan->sessions[i].signature->n_outputs; o++)
                if (writes(&e->plan->sessions[i], k, o)) e->runtime->engines[i]->keep(e->ctx[i], o, true);
    }
}

/* The engines of all sessions that use it take the last columns of a windowed cache for the whole. */
static bool may_slide(const td_exec *e, size_t k) {
    for (size_t i = 0; i < e->plan->n_sessions; i++) {
        const td_plan_session *s = &e->plan->sessions[i];
        bool uses = input_of(s, k) >= 0;
        for (size_t o = 0; o < s->signature->n_outputs; o++) uses |= writes(s, k, o);
        if (uses && !(e->runtime->engines[i]->capabilities & TD_ENGINE_WINDOWS)) return false;
    }
    return true;
}

void td_exec_choose_sliding(td_exec *e) {
    for (size_t k = 0; k < e->plan->n_states; k++)
        if (e->plan->states[k].slides && !e->state->given[k] && may_slide(e, k)) td_state_slide(e->state, k, e->chunk);
}
