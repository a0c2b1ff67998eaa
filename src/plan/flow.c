/* plan/flow.c - the steps: declared or found, and promotion of prompt steps that later steps need afresh. */
#include "plan/plan.h"

static void add_step(td_plan *plan, int32_t session, td_when when, td_loop loop) {
    plan->steps[plan->n_steps++] = (td_plan_step){.session = session, .when = when, .declared = when, .loop = loop};
}

static void check_loop_over(td_plan_build_ctx *b, const td_config_step *step, const td_plan_session *session) {
    if (!step->loop_over.n || td_plan_input_index(session, step->loop_over) >= 0) return;
    td_messages_add(b->messages, TREADLE_MESSAGE_ERROR, td_tree_place(b->messages->arena, step->loop_over_json, false),
                    "loop_over \"%.*s\" is no input of session \"%.*s\" (inputs: %s)",
                    (int)TD_MIN(step->loop_over.n, (size_t)200), step->loop_over.p, TD_STR_ARGS(session->name),
                    td_plan_port_names(b->messages->arena, session->signature->inputs, session->signature->n_inputs));
}

/* A single session without a flow: a decoder runs at every step, anything else once. */
static void find_flow(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    if (plan->n_sessions == 1 && plan->sessions[0].signature) {
        bool decodes = plan->sessions[0].logits >= 0;
        for (size_t k = 0; k < plan->n_states; k++) decodes = true;
        add_step(plan, 0, decodes ? TD_WHEN_ALWAYS : TD_WHEN_ONCE, TD_LOOP_BATCHED);
        return;
    }
    if (plan->n_sessions < 2 || b->messages->n_errors) return;
    const td_json *pipeline = td_json_get(b->config->root, "pipeline");
    td_messages_add(
        b->messages, TREADLE_MESSAGE_ERROR, td_tree_place(b->messages->arena, pipeline, false),
        "expected a \"flow\" for %zu sessions, found none: this build finds the flow of a single session only",
        plan->n_sessions);
}

void td_plan_find_steps(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    plan->steps = TD_ARENA_ARRAY(&plan->arena, td_plan_step, TD_MAX(b->config->n_steps, (size_t)1));
    if (!plan->steps) {
        b->out_of_memory = true;
        return;
    }
    for (size_t i = 0; i < b->config->n_steps; i++) {
        const td_config_step *step = &b->config->steps[i];
        int32_t session = td_plan_find_session(plan, step->run);
        if (session < 0 || !plan->sessions[session].signature) continue; /* reported by the config, or by its file */
        check_loop_over(b, step, &plan->sessions[session]);
        add_step(plan, session, step->when, step->loop);
    }
    if (!b->config->n_steps) find_flow(b);
}

static bool feeds_every_step(const td_plan *plan, int32_t session) {
    for (size_t i = 0; i < plan->n_wires; i++) {
        if (plan->wires[i].from_session != session || plan->wires[i].hold) continue;
        for (size_t k = 0; k < plan->n_steps; k++)
            if (plan->steps[k].session == plan->wires[i].to_session && plan->steps[k].when == TD_WHEN_ALWAYS)
                return true;
    }
    return false;
}

/* A step that takes tokens and feeds an always step has to follow every new token. Features of a modality do not: they have
 * no rows after the prompt. Backwards, so that a promoted step promotes those before it. */
void td_plan_promote(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    for (size_t k = plan->n_steps; k-- > 0;) {
        td_plan_step *step = &plan->steps[k];
        if (step->when != TD_WHEN_PROMPT || !plan->sessions[step->session].takes_tokens) continue;
        if (!feeds_every_step(plan, step->session)) continue;
        bool made_later = false;
        for (size_t i = 0; i < plan->n_steps; i++) made_later |= plan->steps[i].when == TD_WHEN_DECODE;
        if (made_later) continue;
        step->when = TD_WHEN_ALWAYS;
        step->promoted = true;
        td_messages_add(b->messages, TREADLE_MESSAGE_NOTE, td_plan_session_place(b, &plan->sessions[step->session]),
                        "%.*s is promoted from prompt to always: a later step needs it at every token",
                        TD_STR_ARGS(plan->sessions[step->session].name));
    }
}
