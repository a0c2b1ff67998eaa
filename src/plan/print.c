/* plan/print.c - the plan as JSON and as text. State tensors of one layer and kind are one entry. */
#include "plan/build.h"

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

/* How often a step runs, in words: those of the flow, but for the walk over a transducer's frames. */
static const char *when_text(const td_plan *plan, const td_plan_step *step) {
    const td_plan_transducer *t = &plan->transducer;
    if (t->present && step->session == t->joiner) return "per joint";
    if (t->present && step->session == t->predictor) return "per emitted token";
    return td_when_words[step->when];
}

static void write_loop(const td_plan *plan, const td_plan_step *step, td_json_writer *w) {
    const td_plan_session *s = &plan->sessions[step->session];
    write_text(w, "loop", td_loop_words[step->loop]);
    if (step->loop_input >= 0) write_str(w, "loop_over", s->signature->inputs[step->loop_input].name);
    if (step->grid_request >= 0) write_str(w, "rows_by", plan->requests[step->grid_request].name);
    if (step->crop_request < 0) return;
    write_str(w, "cropped_by", plan->requests[step->crop_request].name);
    td_json_key(w, "cropped_dims");
    td_json_begin_array(w);
    for (int i = 0; i < step->n_crop_dims; i++) td_json_write_int(w, step->crop_dims[i]);
    td_json_end_array(w);
}

static void write_steps(const td_plan *plan, td_json_writer *w) {
    td_json_key(w, "steps");
    td_json_begin_array(w);
    for (size_t k = 0; k < plan->n_steps; k++) {
        const td_plan_step *step = &plan->steps[k];
        td_json_begin_object(w);
        write_str(w, "run", plan->sessions[step->session].name);
        write_text(w, "when", when_text(plan, step));
        if (step->promoted) {
            write_text(w, "declared", td_when_words[step->declared]);
            td_json_key(w, "promoted");
            td_json_write_bool(w, true);
        }
        if (step->loop != TD_LOOP_BATCHED) write_loop(plan, step, w);
        if (step->modality >= 0) write_text(w, "skipped_without", td_modality_words[step->modality]);
        td_json_end_object(w);
    }
    td_json_end_array(w);
}

static void write_wire(const td_plan *plan, td_plan_end from, td_plan_end to, const char *why, td_json_writer *w) {
    td_json_begin_object(w);
    write_end(w, "from", plan->sessions[from.session].name, td_plan_out(plan, from)->name);
    write_end(w, "to", plan->sessions[to.session].name, td_plan_in(plan, to)->name);
    write_text(w, "why", why);
}

/* The mask of the source, which a role brings from one session to another. */
static void write_source_masks(const td_plan *plan, td_json_writer *w) {
    for (size_t k = 0; k < plan->n_steps; k++) {
        const td_plan_session *s = &plan->sessions[plan->steps[k].session];
        for (size_t i = 0; i < s->signature->n_inputs; i++) {
            if (s->feeds[i].kind != TD_FEED_ROLE || s->feeds[i].index != TD_ROLE_ENCODER_ATTENTION_MASK) continue;
            td_json_begin_object(w);
            if (s->source_mask < 0) write_text(w, "from", "request attention_mask of the source");
            else write_end(w, "from", TD_STR("request"), plan->requests[s->source_mask].name);
            write_end(w, "to", s->name, s->signature->inputs[i].name);
            write_text(w, "why", "role");
            td_json_end_object(w);
        }
    }
}

static void write_wires(const td_plan *plan, td_json_writer *w) {
    td_json_key(w, "wires");
    td_json_begin_array(w);
    for (size_t i = 0; i < plan->n_wires; i++) {
        const td_plan_wire *wire = &plan->wires[i];
        bool frames = plan->transducer.present && wire->to_session == plan->transducer.joiner &&
                      wire->to_input == plan->transducer.joiner_frame;
        write_wire(plan, (td_plan_end){wire->from_session, wire->from_output},
                   (td_plan_end){wire->to_session, wire->to_input}, wire->why, w);
        const char *const marks[] = {wire->hold ? "hold" : NULL, wire->once ? "once" : NULL,
                                     frames ? "one_frame_at_a_time" : NULL};
        for (size_t k = 0; k < TD_COUNT(marks); k++) {
            if (!marks[k]) continue;
            td_json_key(w, marks[k]);
            td_json_write_bool(w, true);
        }
        td_json_end_object(w);
    }
    for (size_t k = 0; k < plan->n_states; k++) {
        const td_state_tensor *s = &plan->states[k];
        if (s->from_session < 0 || s->from_session == s->session) continue;
        write_wire(plan, (td_plan_end){s->from_session, s->from_output}, (td_plan_end){s->session, s->input},
                   s->kind == TD_STATE_CROSS ? "cross cache" : "start of the state", w);
        td_json_end_object(w);
    }
    for (size_t k = 0; k < plan->n_splices; k++) {
        const td_plan_splice *s = &plan->splices[k];
        write_wire(plan, (td_plan_end){s->from_session, s->from_output}, (td_plan_end){s->session, s->input},
                   "in the places of placeholders", w);
        td_json_end_object(w);
    }
    write_source_masks(plan, w);
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
    return a->session == b->session && a->kind == b->kind && a->layer == b->layer &&
           (b->layer >= 0 || b->kind == TD_STATE_RECURRENT);
}

static bool starts_entry(const td_plan *plan, size_t k) {
    for (size_t i = 0; i < k; i++)
        if (same_entry(&plan->states[k], &plan->states[i])) return false;
    return true;
}

typedef enum side { SIDE_INPUT, SIDE_OUTPUT, SIDE_FROM } side;

static td_str state_name(const td_plan *plan, const td_state_tensor *s, side which) {
    const td_signature *sig = plan->sessions[s->session].signature;
    switch (which) {
    case SIDE_INPUT: return sig->inputs[s->input].name;
    case SIDE_OUTPUT: return s->output < 0 ? (td_str){0} : sig->outputs[s->output].name;
    case SIDE_FROM:
        return s->from_session < 0 ? (td_str){0}
                                   : plan->sessions[s->from_session].signature->outputs[s->from_output].name;
    }
    return (td_str){0};
}

static void write_names(const td_plan *plan, size_t first, side which, const char *key, td_json_writer *w) {
    const td_state_tensor *head = &plan->states[first];
    if (!state_name(plan, head, which).n) return;
    td_json_key(w, key);
    td_json_begin_array(w);
    /* values last, whatever the order of the graph's inputs */
    for (int round = 0; round < 2; round++)
        for (size_t k = first; k < plan->n_states; k++) {
            const td_state_tensor *s = &plan->states[k];
            if ((k != first && !same_entry(s, head)) || (s->part == TD_PART_VALUE) != (round == 1)) continue;
            td_json_write_string(w, state_name(plan, s, which));
        }
    td_json_end_array(w);
}

static void write_number(td_json_writer *w, const char *key, int64_t value) {
    if (value <= 0) return;
    td_json_key(w, key);
    td_json_write_int(w, value);
}

static void write_state(const td_plan *plan, size_t k, td_json_writer *w) {
    const td_state_tensor *s = &plan->states[k];
    bool cross = s->kind == TD_STATE_CROSS;
    td_json_begin_object(w);
    if (s->layer >= 0) {
        td_json_key(w, "layer");
        td_json_write_int(w, s->layer);
    }
    write_text(w, "kind", td_state_kind_words[s->kind]);
    if (plan->n_sessions > 1) write_str(w, "session", plan->sessions[s->session].name);
    write_names(plan, k, SIDE_INPUT, "inputs", w);
    if (!cross) write_names(plan, k, SIDE_OUTPUT, "outputs", w);
    if (cross) {
        td_json_key(w, "frozen");
        td_json_write_bool(w, true);
    }
    if (s->output >= 0 && plan->sessions[s->session].gives_new[s->output]) write_text(w, "present", "new");
    write_names(plan, k, SIDE_FROM, cross ? "from" : "starts_as", w);
    if (cross && s->from_session >= 0) write_str(w, "filled_by", plan->sessions[s->from_session].name);
    write_number(w, "heads", s->heads);
    write_number(w, "head_dim", s->head_dim);
    if (s->kind == TD_STATE_STATIC && s->seq_axis >= 0) write_number(w, "max_length", s->shape.dims[s->seq_axis]);
    write_number(w, "window", s->window);
    if (s->slides) {
        td_json_key(w, "slides");
        td_json_write_bool(w, true);
    }
    td_json_end_object(w);
}

static void write_states(const td_plan *plan, td_json_writer *w) {
    td_json_key(w, "state");
    td_json_begin_array(w);
    for (size_t k = 0; k < plan->n_states; k++)
        if (starts_entry(plan, k)) write_state(plan, k, w);
    td_json_end_array(w);
}

static void end_text(const td_plan *plan, int32_t session, int32_t output, td_buf *out) {
    const td_plan_session *s = &plan->sessions[session];
    td_buf_printf(out, "%.*s.%.*s", TD_STR_ARGS(s->name), TD_STR_ARGS(s->signature->outputs[output].name));
}

static void state_text(const td_plan *plan, const td_state_tensor *s, td_buf *out) {
    bool from_other = s->from_session >= 0 && s->from_session != s->session;
    if (s->kind == TD_STATE_CROSS) {
        td_buf_text(out, s->from_session >= 0 ? "cross cache from " : "cross cache that stays empty");
        if (s->from_session >= 0) end_text(plan, s->from_session, s->from_output, out);
        return;
    }
    td_buf_printf(out, "state from %.*s", TD_STR_ARGS(plan->sessions[s->session].signature->outputs[s->output].name));
    if (!from_other) return;
    td_buf_text(out, ", at first ");
    end_text(plan, s->from_session, s->from_output, out);
}

static void feed_text(const td_plan *plan, const td_feed *feed, bool optional, td_buf *out) {
    switch (feed->kind) {
    case TD_FEED_NONE: td_buf_text(out, optional ? "nothing (optional)" : "zero rows"); return;
    case TD_FEED_ROLE: td_buf_printf(out, "role %s", td_role_words[feed->index]); return;
    case TD_FEED_REQUEST: td_buf_text(out, "the request"); return;
    case TD_FEED_STATE: state_text(plan, &plan->states[feed->index], out); return;
    case TD_FEED_WIRE:
        for (int32_t i = feed->index; i >= 0; i = plan->wires[i].next) {
            const td_plan_wire *wire = &plan->wires[i];
            if (i != feed->index) td_buf_text(out, ", or ");
            end_text(plan, wire->from_session, wire->from_output, out);
            td_buf_printf(out, " (%s)", wire->why);
        }
        return;
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
            if (td_plan_first_step(plan, (int32_t)i) < 0) td_buf_text(&text, "nothing: the session does not run");
            else feed_text(plan, &s->feeds[k], s->signature->inputs[k].optional, &text);
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
    case TD_BATCH_EQUAL: return "rows of equal length share a run";
    }
    return "";
}

static void write_requests(const td_plan *plan, td_json_writer *w) {
    td_json_key(w, "requests");
    td_json_begin_array(w);
    for (size_t i = 0; i < plan->n_requests; i++) {
        td_json_begin_object(w);
        write_str(w, "name", plan->requests[i].name);
        if (plan->requests[i].optional) {
            td_json_key(w, "optional");
            td_json_write_bool(w, true);
        }
        td_json_end_object(w);
    }
    td_json_end_array(w);
}

static void write_pooling(const td_plan *plan, td_json_writer *w) {
    const td_plan_pooling *p = &plan->pooling;
    td_json_key(w, "pooling");
    td_json_begin_object(w);
    write_text(w, "mode", td_pooling_words[p->mode]);
    td_json_key(w, "normalize");
    td_json_write_bool(w, p->normalize);
    write_end(w, "of", plan->sessions[p->session].name, plan->sessions[p->session].signature->outputs[p->output].name);
    td_json_end_object(w);
}

static void write_window(const td_plan *plan, td_json_writer *w) {
    td_json_key(w, "window");
    td_json_begin_object(w);
    write_number(w, "size", plan->window.size);
    td_json_key(w, "pad_value");
    td_json_write_int(w, plan->window.pad_value);
    write_text(w, "padding", plan->window.pad_first ? "before the first token" : "after the last token");
    td_json_end_object(w);
}

static void write_plugin(const td_plan *plan, td_json_writer *w) {
    td_json_key(w, "plugin");
    td_json_begin_object(w);
    write_text(w, "library", plan->plugin->library);
    if (plan->plugin->entry_point) write_text(w, "entry_point", plan->plugin->entry_point);
    td_json_end_object(w);
}

/* Which sessions it runs, and what they take: in which order, and from where, only the native code knows. */
static void plugin_text(const td_plan *plan, td_buf *out) {
    td_buf_printf(out, "plugin: %s runs", plan->plugin->library);
    for (size_t i = 0; i < plan->n_sessions; i++)
        td_buf_printf(out, "%s %.*s", i ? "," : "", TD_STR_ARGS(plan->sessions[i].name));
    td_buf_char(out, '\n');
    for (size_t i = 0; i < plan->n_sessions; i++) {
        const td_plan_session *s = &plan->sessions[i];
        td_buf_printf(out, "\ninputs of %.*s\n", TD_STR_ARGS(s->name));
        for (size_t k = 0; s->signature && k < s->signature->n_inputs; k++)
            td_buf_printf(out, "  %.*s\n", TD_STR_ARGS(s->signature->inputs[k].name));
    }
}

void td_plan_write_json(const td_plan *plan, td_json_writer *w) {
    td_json_begin_object(w);
    if (plan->plugin) write_plugin(plan, w);
    write_steps(plan, w);
    write_wires(plan, w);
    write_roles(plan, w);
    write_states(plan, w);
    write_text(w, "positions", position_text(plan));
    write_feeds(plan, w);
    if (plan->n_requests) write_requests(plan, w);
    if (plan->pooling.present) write_pooling(plan, w);
    if (plan->window.size > 0) write_window(plan, w);
    if (plan->prefill_chunk == 1) write_text(w, "prefill", "one token at a time");
    if (plan->source_prompt) {
        td_json_key(w, "source_prompt");
        td_json_write_bool(w, true);
    }
    write_text(w, "batching", batching_text(plan->batching));
    if (plan->cannot_run) write_text(w, "cannot_run", plan->cannot_run);
    td_json_end_object(w);
}

void td_plan_write_text(const td_plan *plan, td_buf *out) {
    if (plan->plugin) {
        plugin_text(plan, out);
        return;
    }
    for (size_t k = 0; k < plan->n_steps; k++) {
        const td_plan_step *step = &plan->steps[k];
        td_buf_printf(out, "step %zu: %.*s, %s%s%s", k + 1, TD_STR_ARGS(plan->sessions[step->session].name),
                      when_text(plan, step), step->promoted ? " (promoted from prompt)" : "",
                      step->loop == TD_LOOP_PER_IMAGE ? ", once per image" : "");
        td_buf_printf(out, "%s%s\n", step->modality >= 0 ? ", skipped without " : "",
                      step->modality >= 0 ? td_modality_words[step->modality] : "");
    }
    for (size_t i = 0; i < plan->n_sessions; i++) {
        const td_plan_session *s = &plan->sessions[i];
        if (td_plan_first_step(plan, (int32_t)i) < 0) continue;
        td_buf_printf(out, "\ninputs of %.*s\n", TD_STR_ARGS(s->name));
        for (size_t k = 0; s->signature && k < s->signature->n_inputs; k++) {
            td_buf_printf(out, "  %-32.*s ", TD_STR_ARGS(s->signature->inputs[k].name));
            feed_text(plan, &s->feeds[k], s->signature->inputs[k].optional, out);
            td_buf_char(out, '\n');
        }
    }
    size_t n = 0;
    for (size_t k = 0; k < plan->n_states; k++) n += starts_entry(plan, k);
    td_buf_printf(out, "\nstate: %zu entries, %zu tensors\npositions: %s\nbatches: %s\n", n, plan->n_states,
                  position_text(plan), batching_text(plan->batching));
    if (plan->cannot_run) td_buf_printf(out, "cannot generate: %s\n", plan->cannot_run);
}
