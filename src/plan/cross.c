/* plan/cross.c - what fills the cross caches, and what starts recurrent state: outputs of steps that run before.
 *
 * A declared source wins, then a once (or prompt) session with an output of equal stem, then the session's own
 * output. */
#include "plan/build.h"

static td_plan_end find_source(td_plan_build_ctx *b, const td_state_tensor *s, int32_t session) {
    const td_plan *plan = b->plan;
    const td_plan_session *from = &plan->sessions[session], *to = &plan->sessions[s->session];
    const char *stem = b->ins[s->session][s->input].stem;
    for (size_t o = 0; from->signature && o < from->signature->n_outputs; o++) {
        const td_light_port *port = &from->signature->outputs[o];
        if (strcmp(stem, b->outs[session][o].stem) == 0 && td_plan_ports_fit(port, &to->signature->inputs[s->input]))
            return (td_plan_end){session, (int32_t)o};
    }
    return (td_plan_end){-1, -1};
}

/* The session that the config names as the source for caches of this one. -1: none. */
static int32_t declared_source(const td_plan_build_ctx *b, int32_t session) {
    td_str name = b->config->state.cross_source;
    for (size_t k = 0; k < b->config->n_steps; k++) {
        const td_config_step *step = &b->config->steps[k];
        if (step->cross_attention_from.n && td_str_equal(step->run, b->plan->sessions[session].name))
            name = step->cross_attention_from;
    }
    return name.n ? td_plan_find_session(b->plan, name) : -1;
}

static td_plan_end find_filler(td_plan_build_ctx *b, const td_state_tensor *s, int32_t declared) {
    const td_plan *plan = b->plan;
    td_plan_end found = {-1, -1};
    if (declared >= 0 && declared != s->session) found = find_source(b, s, declared);
    for (size_t k = 0; k < plan->n_steps && found.session < 0; k++) {
        int32_t from = plan->steps[k].session;
        bool before = plan->steps[k].when == TD_WHEN_ONCE || plan->steps[k].when == TD_WHEN_PROMPT;
        if (before && from != s->session) found = find_source(b, s, from);
    }
    return found;
}

static void note_empty(td_plan_build_ctx *b, int32_t session) {
    td_plan_note(
        b, session,
        "the cross caches of \"%.*s\" stay empty: no output of an earlier step, and none of its own, has their "
        "type and rank",
        TD_STR_ARGS(b->plan->sessions[session].name));
}

/* A cross cache that nothing fills and whose session has no output of that name either was meant to be fed. */
static bool has_own_output(const td_plan_build_ctx *b, const td_state_tensor *s) {
    const td_signature *sig = b->plan->sessions[s->session].signature;
    for (size_t o = 0; o < sig->n_outputs; o++)
        if (strcmp(b->ins[s->session][s->input].stem, b->outs[s->session][o].stem) == 0) return true;
    return false;
}

static void report_empty(td_plan_build_ctx *b, const td_state_tensor *s) {
    const td_plan_session *session = &b->plan->sessions[s->session];
    td_str name = session->signature->inputs[s->input].name;
    td_messages_add(
        b->messages, TREADLE_MESSAGE_ERROR, td_plan_session_place(b, session),
        "cross cache \"%.*s\" of session \"%.*s\" has no source: expected an output of an earlier step, or of "
        "the session itself, with that name",
        TD_STR_ARGS(name), TD_STR_ARGS(session->name));
}

static void fill_cross(td_plan_build_ctx *b, size_t k, int32_t declared, int32_t *noted) {
    td_state_tensor *s = &b->plan->states[k];
    td_plan_end from = find_filler(b, s, declared);
    if (from.session >= 0) {
        if (s->output >= 0) b->plan->sessions[s->session].out_state[s->output] = -1;
        s->from_session = from.session;
        s->from_output = from.port;
        b->plan->sessions[from.session].out_state[from.port] = (int32_t)k;
    } else if (s->from_session < 0 && !has_own_output(b, s)) {
        report_empty(b, s);
    } else if (s->from_session < 0 && *noted != s->session) {
        note_empty(b, s->session);
        *noted = s->session;
    }
}

/* An input of an earlier step's output and of its own: that output starts it. */
static void find_start(td_plan_build_ctx *b, size_t k) {
    td_state_tensor *s = &b->plan->states[k];
    for (size_t i = 0; i < b->plan->n_steps && s->from_session < 0; i++) {
        int32_t from = b->plan->steps[i].session;
        if (from == s->session || b->plan->steps[i].when != TD_WHEN_ONCE) continue;
        td_plan_end found = find_source(b, s, from);
        if (found.session < 0 || b->plan->sessions[from].out_state[found.port] >= 0) continue;
        s->from_session = found.session;
        s->from_output = found.port;
        td_plan_note(b, s->session, "%.*s.%.*s starts as %.*s.%.*s, which has its name",
                     TD_STR_ARGS(b->plan->sessions[s->session].name),
                     TD_STR_ARGS(b->plan->sessions[s->session].signature->inputs[s->input].name),
                     TD_STR_ARGS(b->plan->sessions[from].name), TD_STR_ARGS(td_plan_out(b->plan, found)->name));
    }
}

/* recurrent[].init may name an output. */
static void declared_start(td_plan_build_ctx *b, const td_config_recurrent *row) {
    if (!row->init_from.n) return;
    td_plan_end from = td_plan_resolve_end(b, row->init_from, row->json, true);
    if (from.session < 0 || from.port < 0) return;
    for (size_t k = 0; k < b->plan->n_states; k++) {
        td_state_tensor *s = &b->plan->states[k];
        const td_plan_session *session = &b->plan->sessions[s->session];
        td_str name = session->signature->inputs[s->input].name, text = row->input;
        if (!td_str_ends(text, name)) continue;
        bool bare = text.n == name.n;
        bool full = text.n == name.n + 1 + session->name.n && td_str_starts(text, session->name);
        if (!bare && !full) continue;
        s->from_session = from.session;
        s->from_output = from.port;
    }
}

void td_plan_fill_cross(td_plan_build_ctx *b) {
    int32_t noted = -1;
    for (size_t i = 0; i < b->config->state.n_recurrent; i++) declared_start(b, &b->config->state.recurrent[i]);
    for (size_t k = 0; k < b->plan->n_states; k++) {
        const td_state_tensor *s = &b->plan->states[k];
        if (td_plan_first_step(b->plan, s->session) < 0) continue;
        if (s->kind == TD_STATE_CROSS) fill_cross(b, k, declared_source(b, s->session), &noted);
        else if (s->kind == TD_STATE_RECURRENT) find_start(b, k);
    }
}
