/* plan/feed.c - what feeds the inputs that no declared wire does: roles, equal names of earlier steps, the caller's
 * tensors, equal stems, the only one that fits; zero rows for a modality that the folder lacks; anything else is an
 * error that names the candidates. Source: the contract of the config, section 3. */
#include "plan/build.h"

static bool is_open(const td_plan_session *s, size_t i) {
    return s->feeds[i].kind == TD_FEED_NONE && s->feeds[i].index != TD_FEED_SAID;
}

static void add_wire(td_plan_build_ctx *b, td_plan_end from, td_plan_end to, const char *why) {
    if (b->plan->n_wires < b->max_wires) td_plan_add_wire(b, from, to, false, why);
}

/* --- roles */

/* A mask over the source: it has as many columns as what the attention over the source takes. */
static bool is_source_mask(const td_plan_session *s, size_t input) {
    const td_light_port *mask = &s->signature->inputs[input];
    if (mask->shape.rank != 2 || !mask->dim_names[1].n) return false;
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        const td_light_port *port = &s->signature->inputs[i];
        if (port->shape.rank == 3 && td_str_equal(port->dim_names[1], mask->dim_names[1]) &&
            td_name_has_word(port->name, "encoder"))
            return true;
    }
    return false;
}

/* Whether an earlier step has an output of the input's name, but for in and out; then that is the mask of what it
 * made, whichever way round it means its values. */
static bool is_made(const td_plan_build_ctx *b, int32_t session, size_t input) {
    const td_plan_session *s = &b->plan->sessions[session];
    td_str name = td_plan_wire_name(s, true, input);
    const char *stem = b->ins[session][input].stem;
    for (int32_t k = 0; k < td_plan_first_step(b->plan, session); k++) {
        int32_t from = b->plan->steps[k].session;
        const td_plan_session *f = &b->plan->sessions[from];
        for (size_t o = 0; o < f->signature->n_outputs; o++) {
            bool named = td_str_equal(td_plan_wire_name(f, false, o), name) ||
                         (stem[0] && strcmp(stem, b->outs[from][o].stem) == 0);
            if (named && td_plan_ports_fit(&f->signature->outputs[o], &s->signature->inputs[input])) return true;
        }
    }
    return false;
}

/* The request tensor of an input's name; -1: out of memory. */
static int32_t request_for(td_plan_build_ctx *b, int32_t session, size_t input, bool optional) {
    const td_plan_session *s = &b->plan->sessions[session];
    int32_t known = td_plan_find_request(b->plan, td_plan_wire_name(s, true, input));
    td_str name = known >= 0 ? b->plan->requests[known].name : s->signature->inputs[input].name;
    int32_t request = td_plan_request_of(b, name, optional);
    if (request >= 0 && b->plan->requests[request].session < 0) {
        b->plan->requests[request].session = session;
        b->plan->requests[request].input = (int32_t)input;
    }
    return request;
}

/* last: what steps made and no wire brought is not waited for. */
static void feed_roles(td_plan_build_ctx *b, int32_t session, bool last) {
    td_plan_session *s = &b->plan->sessions[session];
    if (b->generic || (!s->takes_tokens && !b->follows[session])) return;
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        td_role role = td_plan_role(s, i);
        if (!is_open(s, i) || role == TD_ROLE_NONE || role == TD_ROLE_INPUTS_EMBEDS) continue;
        if (role == TD_ROLE_ATTENTION_MASK && is_source_mask(s, i)) role = s->roles[i] = TD_ROLE_ENCODER_ATTENTION_MASK;
        if (role == TD_ROLE_ENCODER_ATTENTION_MASK && !last && is_made(b, session, i)) continue;
        s->feeds[i] = (td_feed){TD_FEED_ROLE, (int32_t)role};
        if (role == TD_ROLE_TOKEN_TYPE_IDS) s->given[i] = request_for(b, session, i, true);
    }
}

/* --- equal names */

static bool has_state(const td_plan_session *s) {
    for (size_t o = 0; o < s->signature->n_outputs; o++)
        if (s->out_state[o] >= 0) return true;
    return false;
}

/* Whether the runtime makes this input although an earlier step has an output of its name. */
static bool is_owned(const td_plan_build_ctx *b, int32_t session, size_t input) {
    td_role role = td_plan_role(&b->plan->sessions[session], input);
    return role != TD_ROLE_NONE && role != TD_ROLE_INPUTS_EMBEDS && role != TD_ROLE_ENCODER_ATTENTION_MASK;
}

/* A decode step may want what only a prompt step makes of tokens, without any state: that step is promoted later. */
static void feed_decode_by_name(td_plan_build_ctx *b, int32_t session, size_t input) {
    td_plan *plan = b->plan;
    const td_plan_session *s = &plan->sessions[session];
    for (int32_t k = td_plan_first_step(plan, session); k-- > 0;) {
        int32_t from = plan->steps[k].session;
        const td_plan_session *f = &plan->sessions[from];
        int32_t output = td_plan_output_index(f, td_plan_wire_name(s, true, input));
        if (output < 0 || !f->takes_tokens || has_state(f) || !td_plan_runs_only(plan, from, TD_WHEN_PROMPT) ||
            !td_plan_ports_fit(&f->signature->outputs[output], &s->signature->inputs[input]))
            continue;
        add_wire(b, (td_plan_end){from, output}, (td_plan_end){session, (int32_t)input}, "same name");
        b->follows[session] |= !f->takes_source;
        return;
    }
}

/* Of earlier steps that give it the nearest one; and those before that never run together with the nearer ones. */
static void feed_by_name(td_plan_build_ctx *b, int32_t session, bool owned_too) {
    td_plan *plan = b->plan;
    td_plan_session *s = &plan->sessions[session];
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        if (!is_open(s, i) || (!owned_too && is_owned(b, session, i))) continue;
        td_str name = td_plan_wire_name(s, true, i);
        for (int32_t k = td_plan_first_step(plan, session); k-- > 0;) {
            int32_t from = plan->steps[k].session;
            const td_plan_session *f = &plan->sessions[from];
            int32_t output = td_plan_output_index(f, name);
            if (output < 0) output = td_plan_output_index(f, s->signature->inputs[i].name);
            bool fits = output >= 0 && from != session && td_plan_run_together(plan, from, session) &&
                        f->out_state[output] < 0 && td_plan_first_step(plan, from) == k &&
                        td_plan_ports_fit(&f->signature->outputs[output], &s->signature->inputs[i]);
            for (int32_t w = s->feeds[i].kind == TD_FEED_WIRE ? s->feeds[i].index : -1; fits && w >= 0;
                 w = plan->wires[w].next)
                fits = !td_plan_run_together(plan, from, plan->wires[w].from_session);
            if (!fits) continue;
            add_wire(b, (td_plan_end){from, output}, (td_plan_end){session, (int32_t)i}, "same name");
            b->follows[session] |=
                (plan->sessions[from].takes_tokens || b->follows[from]) && !plan->sessions[from].takes_source;
        }
        if (is_open(s, i) && td_plan_runs_only(plan, session, TD_WHEN_DECODE)) feed_decode_by_name(b, session, i);
    }
}

/* --- by type, rank and dimensions */

typedef struct candidate_list {
    td_plan_end ends[16]; /* the first ones */
    size_t n;
} candidate_list;

bool td_plan_output_is_used(const td_plan *plan, int32_t session, int32_t output, int32_t beside) {
    for (size_t i = 0; i < plan->n_wires; i++)
        if (plan->wires[i].from_session == session && plan->wires[i].from_output == output &&
            (beside < 0 || td_plan_run_together(plan, plan->wires[i].to_session, beside)))
            return true;
    for (size_t k = 0; k < plan->n_states; k++)
        if (plan->states[k].from_session == session && plan->states[k].from_output == output) return true;
    return false;
}

/* Unused outputs of earlier steps that fit; with equal stems only, if asked. */
static void find_candidates(const td_plan_build_ctx *b, int32_t session, size_t input, bool by_stem,
                            candidate_list *out) {
    const td_plan *plan = b->plan;
    const char *stem = b->ins[session][input].stem;
    out->n = 0;
    for (int32_t k = 0; k < td_plan_first_step(plan, session); k++) {
        int32_t from = plan->steps[k].session;
        const td_plan_session *f = &plan->sessions[from];
        if (td_plan_first_step(plan, from) != k || !td_plan_run_together(plan, from, session)) continue;
        for (size_t o = 0; o < f->signature->n_outputs; o++) {
            if (by_stem && (!stem[0] || strcmp(stem, b->outs[from][o].stem) != 0)) continue;
            if (f->out_state[o] >= 0 || f->logits == (int32_t)o) continue;
            if (!td_plan_ports_fit(&f->signature->outputs[o], &plan->sessions[session].signature->inputs[input]))
                continue;
            if (td_plan_output_is_used(plan, from, (int32_t)o, session)) continue;
            if (out->n < TD_COUNT(out->ends)) out->ends[out->n] = (td_plan_end){from, (int32_t)o};
            out->n++;
        }
    }
}

/* One candidate, or several of which no two run in one step. */
static bool is_unambiguous(const td_plan *plan, const candidate_list *list) {
    if (!list->n || list->n > TD_COUNT(list->ends)) return false;
    for (size_t i = 0; i < list->n; i++)
        for (size_t k = 0; k < i; k++)
            if (td_plan_run_together(plan, list->ends[i].session, list->ends[k].session)) return false;
    return true;
}

static void take_candidates(td_plan_build_ctx *b, int32_t session, size_t input, const candidate_list *list,
                            const char *why) {
    const td_plan_session *s = &b->plan->sessions[session];
    for (size_t i = 0; i < list->n; i++) {
        td_plan_end from = list->ends[i];
        add_wire(b, from, (td_plan_end){session, (int32_t)input}, why);
        td_plan_note(b, session, "%.*s.%.*s feeds %.*s.%.*s: %s", TD_STR_ARGS(b->plan->sessions[from.session].name),
                     TD_STR_ARGS(td_plan_out(b->plan, from)->name), TD_STR_ARGS(s->name),
                     TD_STR_ARGS(s->signature->inputs[input].name), why);
        b->follows[session] |= (b->plan->sessions[from.session].takes_tokens || b->follows[from.session]) &&
                               !b->plan->sessions[from.session].takes_source;
    }
}

static void feed_by_fit(td_plan_build_ctx *b, int32_t session) {
    td_plan_session *s = &b->plan->sessions[session];
    size_t n_unfed = 0, input = 0;
    candidate_list list;
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        if (!td_plan_is_unfed(s, i)) continue;
        find_candidates(b, session, i, true, &list);
        if (is_unambiguous(b->plan, &list)) take_candidates(b, session, i, &list, "same name but for in and out");
    }
    for (size_t i = 0; i < s->signature->n_inputs; i++)
        if (td_plan_is_unfed(s, i)) n_unfed++, input = i;
    if (n_unfed != 1) return;
    find_candidates(b, session, input, false, &list);
    if (is_unambiguous(b->plan, &list))
        take_candidates(b, session, input, &list, "only unused output, only unfed input");
}

/* --- the caller's tensors */

static bool is_expected_output(const td_config *c, td_str name) {
    for (int k = 0; k < TD_PREPROCESS_KINDS; k++)
        if (td_json_get_str(c->preprocess[k].expected_outputs, name)) return true;
    return false;
}

/* The names under which modalities come: from preprocessing in any session, and by what they speak of. */
static void feed_requests(td_plan_build_ctx *b, int32_t session, bool all) {
    td_plan_session *s = &b->plan->sessions[session];
    bool tokens = s->takes_tokens || b->follows[session];
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        if (!is_open(s, i)) continue;
        td_str name = td_plan_wire_name(s, true, i);
        bool modality = td_name_modality(name) != TD_MODALITY_NONE && (!tokens || !td_name_is_features(name));
        bool expected =
            is_expected_output(b->config, name) || is_expected_output(b->config, s->signature->inputs[i].name);
        /* beside a decoder's ids in one graph: the mask of what its encoder takes */
        bool mask = td_name_has_word(name, "mask") && td_plan_input_of_role(s, TD_ROLE_DECODER_INPUT_IDS) >= 0;
        if (!all && !modality && !expected && !mask) continue;
        if (all && tokens && s->feeds[i].index == TD_FEED_FREE) continue; /* left out */
        int32_t request = request_for(b, session, i, s->feeds[i].index == TD_FEED_FREE);
        if (request < 0) return;
        s->feeds[i] = (td_feed){TD_FEED_REQUEST, request};
    }
}

/* --- a modality that the folder lacks */

/* Some step makes features of this modality, whether they are wired or not. */
static bool is_made_by_some(const td_plan *plan, td_modality modality) {
    for (size_t k = 0; k < plan->n_steps; k++) {
        const td_plan_session *s = &plan->sessions[plan->steps[k].session];
        for (size_t i = 0; i < s->signature->n_inputs; i++)
            if (s->feeds[i].kind == TD_FEED_REQUEST && td_plan_input_modality(s, i) == modality) return true;
    }
    return false;
}

/* Features of one modality get no rows where the session has those of another one and nothing
 * in the flow takes the modality. */
static void feed_zero_rows(td_plan_build_ctx *b, int32_t session) {
    td_plan_session *s = &b->plan->sessions[session];
    bool other = false;
    for (size_t i = 0; i < s->signature->n_inputs; i++)
        other |= s->feeds[i].kind == TD_FEED_WIRE && td_plan_input_modality(s, i) != TD_MODALITY_NONE;
    for (size_t i = 0; i < s->signature->n_inputs && other; i++) {
        const td_light_port *port = &s->signature->inputs[i];
        td_modality modality = td_plan_input_modality(s, i);
        if (!td_plan_is_unfed(s, i) || modality == TD_MODALITY_NONE || port->shape.rank < 1 || port->shape.dims[0] >= 0)
            continue;
        if (is_made_by_some(b->plan, modality)) continue;
        s->feeds[i].index = TD_FEED_FREE;
        td_plan_note(b, session, "%.*s.%.*s always has zero rows: no session of this pipeline takes %s",
                     TD_STR_ARGS(s->name), TD_STR_ARGS(port->name), td_modality_words[modality]);
    }
}

/* --- what is left */

/* An output of that name which does not fit, for the message. */
static void add_misfit(const td_plan_build_ctx *b, int32_t session, size_t input, td_buf *text) {
    const td_plan *plan = b->plan;
    const td_light_port *in = &plan->sessions[session].signature->inputs[input];
    for (int32_t k = 0; k < td_plan_first_step(plan, session); k++) {
        const td_plan_session *f = &plan->sessions[plan->steps[k].session];
        int32_t o = td_plan_output_index(f, in->name);
        if (o < 0 || td_plan_ports_fit(&f->signature->outputs[o], in)) continue;
        const td_light_port *out = &f->signature->outputs[o];
        td_buf_printf(text, "; %.*s.%.*s has that name but does not fit: %s of rank %d, where %s of rank %d is wanted",
                      TD_STR_ARGS(f->name), TD_STR_ARGS(out->name), td_dtype_name(out->dtype), out->shape.rank,
                      td_dtype_name(in->dtype), in->shape.rank);
        return;
    }
}

static void report_unfed(td_plan_build_ctx *b, int32_t session) {
    td_plan_session *s = &b->plan->sessions[session];
    td_buf names = {0};
    const char *first = NULL;
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        if (!td_plan_is_unfed(s, i) || td_plan_report_lonely(b, session, i)) continue;
        td_str name = s->signature->inputs[i].name;
        candidate_list list;
        td_buf_printf(&names, "%s%.*s.%.*s (candidates: ", names.n ? ", " : "", TD_STR_ARGS(s->name),
                      TD_STR_ARGS(name));
        find_candidates(b, session, i, false, &list);
        for (size_t k = 0; k < TD_MIN(list.n, TD_COUNT(list.ends)); k++)
            td_buf_printf(&names, "%s%.*s.%.*s", k ? ", " : "",
                          TD_STR_ARGS(b->plan->sessions[list.ends[k].session].name),
                          TD_STR_ARGS(td_plan_out(b->plan, list.ends[k])->name));
        if (!list.n) td_buf_text(&names, "none");
        add_misfit(b, session, i, &names);
        td_buf_char(&names, ')');
        if (!first) first = td_arena_printf(b->messages->arena, "%.*s.%.*s", TD_STR_ARGS(s->name), TD_STR_ARGS(name));
    }
    if (names.n)
        td_messages_add(
            b->messages, TREADLE_MESSAGE_ERROR, td_plan_session_place(b, s),
            "expected something to feed every input, found nothing for %s. Add {\"from\": \"SESSION.OUTPUT\", \"to\": \"%s\"} "
            "to pipeline.dataflow",
            names.p, first ? first : "");
    if (names.failed) b->out_of_memory = true;
    td_buf_free(&names);
}

/* A session whose every input the caller may give: it follows no tokens, and what it takes need not be made anew. */
static bool takes_anything(const td_plan_build_ctx *b, int32_t session, bool generates) {
    const td_plan *plan = b->plan;
    if (!generates) return true;
    if (plan->sessions[session].takes_tokens || b->follows[session]) return false;
    return td_plan_runs_only(plan, session, TD_WHEN_ONCE) || td_plan_runs_only(plan, session, TD_WHEN_PROMPT) ||
           (plan->transducer.present && session == plan->transducer.encoder);
}

static bool generates(const td_plan *plan) {
    bool any = plan->transducer.present;
    for (size_t k = 0; k < plan->n_steps; k++) {
        const td_plan_session *s = &plan->sessions[plan->steps[k].session];
        any |= s->logits >= 0;
        for (size_t i = 0; i < plan->n_states; i++)
            any |= plan->states[i].session == plan->steps[k].session && s->takes_tokens;
    }
    return any;
}

/* An encoder of a modality that takes a mask: the attention over what it made takes that same mask, as
 * transformers hands it on, where the mask's columns are the encoder's own, by their symbol, be there as
 * many of what it made or fewer. */
static void find_source_mask(td_plan_build_ctx *b, int32_t session) {
    td_plan *plan = b->plan;
    td_plan_session *s = &plan->sessions[session];
    int32_t input = td_plan_input_of_role(s, TD_ROLE_ENCODER_ATTENTION_MASK);
    if (input < 0 || s->feeds[input].kind != TD_FEED_ROLE || plan->source_prompt) return;
    const td_light_port *mask = &s->signature->inputs[input];
    for (size_t k = 0; k < plan->n_steps; k++) {
        const td_plan_session *from = &plan->sessions[plan->steps[k].session];
        for (size_t i = 0; i < from->signature->n_inputs && plan->steps[k].when == TD_WHEN_ONCE; i++) {
            const td_light_port *port = &from->signature->inputs[i];
            if (from->feeds[i].kind == TD_FEED_REQUEST && port->shape.rank == 2 && mask->shape.rank == 2 &&
                plan->requests[from->feeds[i].index].mask && port->dim_names[1].n &&
                td_str_equal(port->dim_names[1], mask->dim_names[1]))
                s->source_mask = from->feeds[i].index;
        }
    }
}

static void settle(td_plan_session *s) {
    for (size_t i = 0; i < s->signature->n_inputs; i++)
        if (s->feeds[i].kind == TD_FEED_NONE) s->feeds[i].index = -1;
}

void td_plan_find_wires(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    bool tokens = generates(plan);
    b->follows = TD_ARENA_ARRAY(b->scratch, bool, plan->n_sessions);
    int32_t *order = TD_ARENA_ARRAY(b->scratch, int32_t, plan->n_steps);
    if (!b->follows || !order) {
        b->out_of_memory = true;
        return;
    }
    size_t n = 0;
    for (size_t k = 0; k < plan->n_steps; k++)
        if (td_plan_first_step(plan, plan->steps[k].session) == (int32_t)k) order[n++] = plan->steps[k].session;
    td_plan_wire_source(b);
    for (size_t k = 0; k < n; k++) {
        feed_by_name(b, order[k], false);
        feed_roles(b, order[k], false);
        feed_by_name(b, order[k], true);
    }
    for (size_t k = 0; k < n; k++) feed_requests(b, order[k], false);
    for (size_t k = 0; k < n; k++) {
        feed_by_fit(b, order[k]);
        feed_roles(b, order[k], true);
    }
    for (size_t k = 0; k < n; k++) {
        feed_zero_rows(b, order[k]);
        if (takes_anything(b, order[k], tokens)) feed_requests(b, order[k], true);
        else report_unfed(b, order[k]);
    }
    for (size_t k = 0; k < n; k++) find_source_mask(b, order[k]);
    for (size_t i = 0; i < plan->n_sessions; i++)
        if (plan->sessions[i].signature) settle(&plan->sessions[i]);
    for (size_t i = 0; i < plan->n_wires; i++)
        plan->wires[i].once = td_plan_runs_only(plan, plan->wires[i].from_session, TD_WHEN_ONCE);
}
