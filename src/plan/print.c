/* plan/print.c - the plan as JSON and as text. State tensors of one layer and kind are one entry. */
#include "plan/plan.h"

static void write_str(td_json_writer *w, const char *key, td_str value) {
    td_json_key(w, key);
    td_json_write_string(w, value);
}

static void write_text(td_json_writer *w, const char *key, const char *value) {
    td_json_key(w, key);
    td_json_write_text(w, value);
}

static void write_end(td_json_writer *w, const char *key, td_str session, td_str port) {
    td_buf text = {0};
    td_buf_printf(&text, "%.*s.%.*s", TD_STR_ARGS(session), TD_STR_ARGS(port));
    if (text.failed) w->out->failed = true;
    else write_str(w, key, td_buf_view(&text));
    td_buf_free(&text);
}

static void write_steps(const td_plan *plan, td_json_writer *w) {
    td_json_key(w, "steps");
    td_json_begin_array(w);
    for (size_t k = 0; k < plan->n_steps; k++) {
        const td_plan_step *step = &plan->steps[k];
        td_json_begin_object(w);
        write_str(w, "run", plan->sessions[step->session].name);
        write_text(w, "when", td_when_words[step->when]);
        if (step->promoted) {
            write_text(w, "declared", td_when_words[step->declared]);
            td_json_key(w, "promoted");
            td_json_write_bool(w, true);
        }
        if (step->loop != TD_LOOP_BATCHED) write_text(w, "loop", td_loop_words[step->loop]);
        td_json_end_object(w);
    }
    td_json_end_array(w);
}

static void write_wires(const td_plan *plan, td_json_writer *w) {
    td_json_key(w, "wires");
    td_json_begin_array(w);
    for (size_t i = 0; i < plan->n_wires; i++) {
        const td_plan_wire *wire = &plan->wires[i];
        const td_plan_session *from = &plan->sessions[wire->from_session], *to = &plan->sessions[wire->to_session];
        td_json_begin_object(w);
        write_end(w, "from", from->name, from->signature->outputs[wire->from_output].name);
        write_end(w, "to", to->name, to->signature->inputs[wire->to_input].name);
        write_text(w, "why", wire->why);
        td_json_end_object(w);
    }
    td_json_end_array(w);
}

/* Graph input to role, in order of the sessions; equal names of two sessions have equal roles. */
static void write_roles(const td_plan *plan, td_json_writer *w) {
    td_json_key(w, "roles");
    td_json_begin_object(w);
    for (size_t i = 0; i < plan->n_sessions; i++) {
        const td_plan_session *s = &plan->sessions[i];
        for (size_t k = 0; s->signature && k < s->signature->n_inputs; k++) {
            if (s->feeds[k].kind != TD_FEED_ROLE) continue;
            bool again = false;
            for (size_t j = 0; j < i; j++) {
                ptrdiff_t at = plan->sessions[j].signature
                                   ? td_signature_find_input(plan->sessions[j].signature, s->signature->inputs[k].name)
                                   : -1;
                again |= at >= 0 && plan->sessions[j].feeds[at].kind == TD_FEED_ROLE;
            }
            if (again) continue;
            td_json_key_str(w, s->signature->inputs[k].name);
            td_json_write_text(w, td_role_words[s->feeds[k].index]);
        }
    }
    td_json_end_object(w);
}

/* True if state a belongs to the entry that starts with state b. */
static bool same_entry(const td_state_tensor *a, const td_state_tensor *b) {
    return a->session == b->session && a->kind == b->kind && a->layer == b->layer && b->layer >= 0;
}

static bool starts_entry(const td_plan *plan, size_t k) {
    for (size_t i = 0; i < k; i++)
        if (same_entry(&plan->states[k], &plan->states[i])) return false;
    return true;
}

static void write_names(const td_plan *plan, size_t first, bool inputs, td_json_writer *w) {
    const td_state_tensor *head = &plan->states[first];
    const td_signature *sig = plan->sessions[head->session].signature;
    td_json_key(w, inputs ? "inputs" : "outputs");
    td_json_begin_array(w);
    /* values last, whatever the order of the graph's inputs */
    for (int round = 0; round < 2; round++)
        for (size_t k = first; k < plan->n_states; k++) {
            const td_state_tensor *s = &plan->states[k];
            if ((k != first && !same_entry(s, head)) || (s->part == TD_PART_VALUE) != (round == 1)) continue;
            td_json_write_string(w, inputs ? sig->inputs[s->input].name : sig->outputs[s->output].name);
        }
    td_json_end_array(w);
}

static void write_states(const td_plan *plan, td_json_writer *w) {
    td_json_key(w, "state");
    td_json_begin_array(w);
    for (size_t k = 0; k < plan->n_states; k++) {
        const td_state_tensor *s = &plan->states[k];
        if (!starts_entry(plan, k)) continue;
        td_json_begin_object(w);
        if (s->layer >= 0) {
            td_json_key(w, "layer");
            td_json_write_int(w, s->layer);
        }
        write_text(w, "kind", td_state_kind_words[s->kind]);
        if (plan->n_sessions > 1) write_str(w, "session", plan->sessions[s->session].name);
        write_names(plan, k, true, w);
        write_names(plan, k, false, w);
        if (s->heads > 0) {
            td_json_key(w, "heads");
            td_json_write_int(w, s->heads);
            td_json_key(w, "head_dim");
            td_json_write_int(w, s->head_dim);
        }
        td_json_end_object(w);
    }
    td_json_end_array(w);
}

static void feed_text(const td_plan *plan, const td_feed *feed, td_buf *out) {
    switch (feed->kind) {
    case TD_FEED_NONE: td_buf_text(out, "nothing (optional)"); return;
    case TD_FEED_ROLE: td_buf_printf(out, "role %s", td_role_words[feed->index]); return;
    case TD_FEED_REQUEST: td_buf_text(out, "the request"); return;
    case TD_FEED_STATE: {
        const td_state_tensor *s = &plan->states[feed->index];
        td_buf_printf(out, "state from %.*s",
                      TD_STR_ARGS(plan->sessions[s->session].signature->outputs[s->output].name));
        return;
    }
    case TD_FEED_WIRE: {
        const td_plan_wire *wire = &plan->wires[feed->index];
        const td_plan_session *from = &plan->sessions[wire->from_session];
        td_buf_printf(out, "%.*s.%.*s (%s)", TD_STR_ARGS(from->name),
                      TD_STR_ARGS(from->signature->outputs[wire->from_output].name), wire->why);
        return;
    }
    }
}

static void write_feeds(const td_plan *plan, td_json_writer *w) {
    td_buf text = {0};
    td_json_key(w, "feeds");
    td_json_begin_object(w);
    for (size_t i = 0; i < plan->n_sessions; i++) {
        const td_plan_session *s = &plan->sessions[i];
        td_json_key_str(w, s->name);
        td_json_begin_object(w);
        for (size_t k = 0; s->signature && k < s->signature->n_inputs; k++) {
            td_buf_clear(&text);
            feed_text(plan, &s->feeds[k], &text);
            td_json_key_str(w, s->signature->inputs[k].name);
            td_json_write_string(w, td_buf_view(&text));
        }
        td_json_end_object(w);
    }
    td_json_end_object(w);
    if (text.failed) w->out->failed = true;
    td_buf_free(&text);
}

static const char *position_text(const td_plan *plan) {
    return plan->has_positions ? td_position_words[plan->position] : "none";
}

static const char *batching_text(td_batching batching) {
    switch (batching) {
    case TD_BATCH_APART: return "rows run apart";
    case TD_BATCH_LENGTHS: return "rows share a run, each with its length";
    case TD_BATCH_MASK: return "rows share a run, told apart by the mask";
    }
    return "";
}

void td_plan_write_json(const td_plan *plan, td_json_writer *w) {
    td_json_begin_object(w);
    write_steps(plan, w);
    write_wires(plan, w);
    write_roles(plan, w);
    write_states(plan, w);
    write_text(w, "positions", position_text(plan));
    write_feeds(plan, w);
    write_text(w, "batching", batching_text(plan->batching));
    if (plan->cannot_run) write_text(w, "cannot_run", plan->cannot_run);
    td_json_end_object(w);
}

void td_plan_write_text(const td_plan *plan, td_buf *out) {
    for (size_t k = 0; k < plan->n_steps; k++) {
        const td_plan_step *step = &plan->steps[k];
        td_buf_printf(out, "step %zu: %.*s, %s%s\n", k + 1, TD_STR_ARGS(plan->sessions[step->session].name),
                      td_when_words[step->when], step->promoted ? " (promoted from prompt)" : "");
    }
    for (size_t i = 0; i < plan->n_sessions; i++) {
        const td_plan_session *s = &plan->sessions[i];
        td_buf_printf(out, "\ninputs of %.*s\n", TD_STR_ARGS(s->name));
        for (size_t k = 0; s->signature && k < s->signature->n_inputs; k++) {
            td_buf_printf(out, "  %-32.*s ", TD_STR_ARGS(s->signature->inputs[k].name));
            feed_text(plan, &s->feeds[k], out);
            td_buf_char(out, '\n');
        }
    }
    size_t n = 0;
    for (size_t k = 0; k < plan->n_states; k++) n += starts_entry(plan, k);
    td_buf_printf(out, "\nstate: %zu entries, %zu tensors\npositions: %s\nbatches: %s\n", n, plan->n_states,
                  position_text(plan), batching_text(plan->batching));
    if (plan->cannot_run) td_buf_printf(out, "cannot generate: %s\n", plan->cannot_run);
}
