/* plan/flow.c - the steps: declared, or found (transducer.c, classify.c); and promotion of prompt steps
 * that later steps need afresh. */
#include "plan/build.h"

void td_plan_add_step(td_plan_build_ctx *b, int32_t session, td_when when) {
    b->plan->steps[b->plan->n_steps++] = (td_plan_step){.session = session,
                                                        .when = when,
                                                        .declared = when,
                                                        .loop_input = -1,
                                                        .grid_request = -1,
                                                        .crop_request = -1,
                                                        .modality = -1};
}

int32_t td_plan_first_step(const td_plan *plan, int32_t session) {
    for (size_t i = 0; i < plan->n_steps; i++)
        if (plan->steps[i].session == session) return (int32_t)i;
    return -1;
}

bool td_plan_runs_only(const td_plan *plan, int32_t session, td_when when) {
    bool any = false;
    for (size_t i = 0; i < plan->n_steps; i++) {
        if (plan->steps[i].session != session) continue;
        if (plan->steps[i].when != when) return false;
        any = true;
    }
    return any;
}

bool td_plan_run_together(const td_plan *plan, int32_t a, int32_t b) {
    return !(td_plan_runs_only(plan, a, TD_WHEN_PROMPT) && td_plan_runs_only(plan, b, TD_WHEN_DECODE)) &&
           !(td_plan_runs_only(plan, a, TD_WHEN_DECODE) && td_plan_runs_only(plan, b, TD_WHEN_PROMPT));
}

/* A single session: a decoder runs at every step, and so does a graph that carries state; anything else once. */
static void find_flow(td_plan_build_ctx *b) {
    enum { MAX_FOUND = 24 };
    td_plan *plan = b->plan;
    if (b->messages->n_errors) return;
    for (size_t i = 0; i < plan->n_sessions; i++)
        if (!plan->sessions[i].signature) return;
    if (plan->transducer.present) {
        td_plan_add_step(b, plan->transducer.encoder, TD_WHEN_ONCE);
        td_plan_add_step(b, plan->transducer.predictor, TD_WHEN_ALWAYS);
        if (plan->transducer.joiner != plan->transducer.predictor)
            td_plan_add_step(b, plan->transducer.joiner, TD_WHEN_ALWAYS);
    } else if (plan->n_sessions == 1) {
        td_plan_add_step(b, 0, plan->sessions[0].logits >= 0 || plan->n_states ? TD_WHEN_ALWAYS : TD_WHEN_ONCE);
    } else if (plan->n_sessions > MAX_FOUND) {
        td_messages_add(b->messages, TREADLE_MESSAGE_ERROR,
                        td_tree_place(b->messages->arena, td_json_get(b->config->root, "pipeline"), false),
                        "expected a \"flow\" for %zu sessions, found none: it is found for up to %d", plan->n_sessions,
                        (int)MAX_FOUND);
    } else if (plan->n_sessions > 1) {
        td_plan_classify(b);
    }
}

static void check_loop_over(td_plan_build_ctx *b, const td_config_step *step, const td_plan_session *session) {
    if (!step->loop_over.n || td_plan_input_index(session, step->loop_over) >= 0) return;
    td_messages_add(b->messages, td_plan_misfit(b), td_tree_place(b->messages->arena, step->loop_over_json, false),
                    "loop_over \"%.*s\" is no input of session \"%.*s\" (inputs: %s)",
                    (int)TD_MIN(step->loop_over.n, (size_t)200), step->loop_over.p, TD_STR_ARGS(session->name),
                    td_plan_port_names(b->messages->arena, session->signature->inputs, session->signature->n_inputs));
}

/* Names that are no sessions were reported with the config. */
static void find_release(td_plan_build_ctx *b, const td_config_step *config, td_plan_step *step) {
    int32_t *sessions = TD_ARENA_ARRAY(&b->plan->arena, int32_t, config->n_release);
    if (!sessions) {
        b->out_of_memory = true;
        return;
    }
    for (size_t i = 0; i < config->n_release; i++) {
        int32_t session = td_plan_find_session(b->plan, config->release[i]);
        if (session >= 0) sessions[step->n_release++] = session;
    }
    step->release = sessions;
}

/* A step of the prompt and one of later tokens never run together; "always" is both. */
static bool run_together(td_when a, td_when b) {
    return a == b || a == TD_WHEN_ALWAYS || b == TD_WHEN_ALWAYS || (a != TD_WHEN_DECODE && b != TD_WHEN_DECODE);
}

/* A second run of a session would take the same tokens again and make what the first one made. */
static void check_runs_alone(td_plan_build_ctx *b, int32_t session) {
    const td_plan_step *steps = b->plan->steps;
    for (size_t k = 1; k < b->plan->n_steps; k++) {
        for (size_t i = 0; i < k; i++) {
            if (steps[i].session != session || steps[k].session != session) continue;
            if (!run_together(steps[i].when, steps[k].when)) continue;
            td_messages_add(
                b->messages, td_plan_misfit(b), td_tree_place(b->messages->arena, steps[k].config->run_json, false),
                "expected one step of session \"%.*s\" at a time, found two that run together, \"%s\" and \"%s\"",
                TD_STR_ARGS(b->plan->sessions[session].name), td_when_words[steps[i].when],
                td_when_words[steps[k].when]);
            return;
        }
    }
}

void td_plan_find_steps(td_plan_build_ctx *b) {
    enum { MIN_ROOM = 16 };
    td_plan *plan = b->plan;
    plan->steps = TD_ARENA_ARRAY(&plan->arena, td_plan_step, TD_MAX(b->config->n_steps, (size_t)MIN_ROOM));
    if (!plan->steps) {
        b->out_of_memory = true;
        return;
    }
    for (size_t i = 0; i < b->config->n_steps; i++) {
        int32_t session = td_plan_find_session(plan, b->config->steps[i].run);
        if (session < 0 || !plan->sessions[session].signature) continue; /* reported by the config, or by its file */
        check_loop_over(b, &b->config->steps[i], &plan->sessions[session]);
        td_plan_add_step(b, session, b->config->steps[i].when);
        plan->steps[plan->n_steps - 1].loop = b->config->steps[i].loop;
        plan->steps[plan->n_steps - 1].config = &b->config->steps[i];
        find_release(b, &b->config->steps[i], &plan->steps[plan->n_steps - 1]);
    }
    for (size_t i = 0; b->config->n_steps && i < plan->n_sessions; i++) check_runs_alone(b, (int32_t)i);
    if (!b->config->n_steps) find_flow(b);
}

static bool has_step(const td_plan *plan, int32_t session, td_when when) {
    for (size_t k = 0; k < plan->n_steps; k++)
        if (plan->steps[k].session == session && plan->steps[k].when == when) return true;
    return false;
}

/* A step that takes tokens and whose output an always step wants: wanted afresh, unless the wire holds or a
 * decode step makes the same. */
static bool is_wanted_later(const td_plan *plan, int32_t session) {
    for (size_t i = 0; i < plan->n_wires; i++) {
        const td_plan_wire *wire = &plan->wires[i];
        if (wire->from_session != session || wire->hold) continue;
        bool made = false, later = has_step(plan, wire->to_session, TD_WHEN_ALWAYS) ||
                                   has_step(plan, wire->to_session, TD_WHEN_DECODE);
        for (size_t k = 0; k < plan->n_wires; k++)
            made |= plan->wires[k].to_session == wire->to_session && plan->wires[k].to_input == wire->to_input &&
                    has_step(plan, plan->wires[k].from_session, TD_WHEN_DECODE);
        if (later && !made) return true;
    }
    return false;
}

/* Features of a modality have no rows after the prompt, so what makes them is not promoted. Backwards: a promoted
 * step promotes those before it. */
void td_plan_promote(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    for (size_t k = plan->n_steps; k-- > 0;) {
        td_plan_step *step = &plan->steps[k];
        if (step->when != TD_WHEN_PROMPT || !plan->sessions[step->session].takes_tokens) continue;
        if (!is_wanted_later(plan, step->session)) continue;
        step->when = TD_WHEN_ALWAYS;
        step->promoted = true;
        td_plan_note(b, step->session, "%.*s is promoted from prompt to always: a later step needs it at every token",
                     TD_STR_ARGS(plan->sessions[step->session].name));
    }
}

/* In an encoder-decoder what runs once takes the prompt's ids; the decoder has a timeline of its own. */
void td_plan_find_source(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    const td_config_tokens *tokens = &b->config->tokens;
    int32_t decoder = -1;
    for (size_t k = 0; k < plan->n_steps; k++)
        if (plan->steps[k].when != TD_WHEN_ONCE && plan->sessions[plan->steps[k].session].takes_tokens)
            decoder = plan->steps[k].session;
    for (size_t k = 0; k < plan->n_steps && decoder >= 0 && !plan->transducer.present; k++) {
        td_plan_session *s = &plan->sessions[plan->steps[k].session];
        s->takes_source = s->takes_tokens && td_plan_runs_only(plan, plan->steps[k].session, TD_WHEN_ONCE);
        plan->source_prompt |= s->takes_source || td_plan_input_of_role(s, TD_ROLE_SOURCE_IDS) >= 0;
    }
    if (plan->source_prompt && !tokens->decoder_start.n && tokens->bos < 0)
        td_plan_note(b, decoder,
                     "tokens.decoder_start is not said, nor tokens.bos: a request must say what it starts from");
}

/* --- graphs without a past */

/* Some run of later tokens needs the whole timeline: its graph carries no past over. */
static bool runs_again(const td_plan *plan) {
    bool tokens = false, past = false;
    for (size_t k = 0; k < plan->n_states; k++) past |= plan->states[k].kind != TD_STATE_CROSS;
    for (size_t k = 0; k < plan->n_steps; k++) {
        const td_plan_session *s = &plan->sessions[plan->steps[k].session];
        bool decode = plan->steps[k].when == TD_WHEN_ALWAYS || plan->steps[k].when == TD_WHEN_DECODE;
        if (decode && s->starts_afresh) return true;
        tokens |= decode && s->takes_tokens && !s->takes_source;
    }
    return tokens && !past;
}

void td_plan_hold_features(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    if (plan->transducer.present || !runs_again(plan)) return;
    for (size_t k = 0; k < plan->n_steps; k++) {
        td_plan_step *step = &plan->steps[k];
        if (step->when != TD_WHEN_PROMPT || plan->sessions[step->session].takes_tokens || b->follows[step->session])
            continue;
        step->held = true;
        for (size_t w = 0; w < plan->n_wires; w++) plan->wires[w].hold |= plan->wires[w].from_session == step->session;
    }
}
