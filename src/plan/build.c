/* plan/build.c - from config and signatures to a plan, stage by stage. */
#include "plan/build.h"

#include "base/alloc.h"

td_place td_plan_session_place(const td_plan_build_ctx *b, const td_plan_session *session) {
    return td_tree_place(b->messages->arena, session->config->json, false);
}

void td_plan_note(td_plan_build_ctx *b, int32_t session, const char *format, ...) {
    td_buf text = {0};
    va_list args;
    va_start(args, format);
    td_buf_vprintf(&text, format, args);
    va_end(args);
    if (text.failed) b->out_of_memory = true;
    else
        td_messages_add(b->messages, TREADLE_MESSAGE_NOTE, td_plan_session_place(b, &b->plan->sessions[session]), "%s",
                        text.p ? text.p : "");
    td_buf_free(&text);
}

static void open_signature(td_plan_build_ctx *b, td_plan_session *s) {
    treadle_error problem = {0};
    treadle_status status = td_signature_open(s->config->path, &s->signature, &problem);
    if (status == TREADLE_OK) return;
    if (status == TREADLE_OUT_OF_MEMORY) {
        b->out_of_memory = true;
        return;
    }
    const td_json *at = s->config->file ? s->config->file : s->config->json;
    td_messages_add(b->messages, TREADLE_MESSAGE_ERROR, td_tree_place(b->messages->arena, at, false), "%s: %s%s%s%s%s",
                    s->config->path, problem.message, problem.pointer[0] ? " at " : "", problem.pointer,
                    problem.hint[0] ? ". " : "", problem.hint);
}

/* io may name only what the graph has. */
static void check_renames(td_plan_build_ctx *b, const td_plan_session *s, const td_rename *rows, size_t n,
                          bool inputs) {
    const td_light_port *ports = inputs ? s->signature->inputs : s->signature->outputs;
    size_t n_ports = inputs ? s->signature->n_inputs : s->signature->n_outputs;
    for (size_t i = 0; i < n; i++) {
        bool found = false;
        for (size_t k = 0; k < n_ports; k++) found |= td_str_equal(ports[k].name, rows[i].to);
        if (found) continue;
        td_messages_add(b->messages, td_plan_misfit(b), td_tree_place(b->messages->arena, rows[i].json, false),
                        "expected an %s of the graph, found no \"%.*s\" (%ss: %s)", inputs ? "input" : "output",
                        (int)TD_MIN(rows[i].to.n, (size_t)200), rows[i].to.p, inputs ? "input" : "output",
                        td_plan_port_names(b->messages->arena, ports, n_ports));
    }
}

static bool take_names_apart(td_plan_build_ctx *b, int32_t index) {
    const td_plan_session *s = &b->plan->sessions[index];
    size_t n_in = s->signature->n_inputs, n_out = s->signature->n_outputs;
    b->ins[index] = TD_ARENA_ARRAY(b->scratch, td_name_parts, n_in);
    b->outs[index] = TD_ARENA_ARRAY(b->scratch, td_name_parts, n_out);
    if (!b->ins[index] || !b->outs[index]) return false;
    for (size_t i = 0; i < n_in; i++) td_name_take_apart(td_plan_wire_name(s, true, i), &b->ins[index][i]);
    for (size_t o = 0; o < n_out; o++) td_name_take_apart(td_plan_wire_name(s, false, o), &b->outs[index][o]);
    return td_uses_find(s->signature, b->scratch, &b->uses[index]);
}

static void open_session(td_plan_build_ctx *b, const td_config_session *config, int32_t index) {
    td_plan_session *s = &b->plan->sessions[index];
    *s = (td_plan_session){.name = config->name, .config = config, .logits = -1, .source_mask = -1};
    s->c_name = td_arena_strndup(&b->plan->arena, config->name.p, config->name.n);
    if (!s->c_name) b->out_of_memory = true;
    if (!config->path || b->out_of_memory) return;
    open_signature(b, s);
    if (!s->signature) return;
    td_arena *arena = &b->plan->arena;
    size_t n_in = s->signature->n_inputs, n_out = s->signature->n_outputs;
    s->roles = TD_ARENA_ARRAY(arena, td_role, n_in);
    s->feeds = TD_ARENA_ARRAY(arena, td_feed, n_in);
    s->given = TD_ARENA_ARRAY(arena, int32_t, n_in);
    s->out_state = TD_ARENA_ARRAY(arena, int32_t, n_out);
    s->gives_new = TD_ARENA_ARRAY(arena, bool, n_out);
    if (!s->roles || !s->feeds || !s->given || !s->out_state || !s->gives_new || !take_names_apart(b, index)) {
        b->out_of_memory = true;
        return;
    }
    for (size_t i = 0; i < n_in; i++)
        s->feeds[i] = (td_feed){TD_FEED_NONE, td_plan_is_optional(s, i) ? TD_FEED_FREE : TD_FEED_UNFED};
    for (size_t i = 0; i < n_in; i++) s->given[i] = -1;
    for (size_t o = 0; o < n_out; o++) s->out_state[o] = -1;
    check_renames(b, s, config->inputs, config->n_inputs, true);
    check_renames(b, s, config->outputs, config->n_outputs, false);
    td_plan_find_roles(b, index);
}

/* --- the stages */

static const char *find_why_not(const td_plan *plan) {
    if (plan->pooling.present && plan->pooling.mode == TD_POOLING_NONE && plan->pooling.pooled)
        return "the model gives scores or vectors, not tokens";
    if (plan->pooling.present) return "the model gives vectors, not tokens";
    if (plan->decoder < 0) return "no session has logits: there are no tokens to generate";
    if (plan->logits_rank >= 0 && plan->logits_rank != 2 && plan->logits_rank != 3 && !plan->transducer.present)
        return "the logits have neither two nor three dimensions";
    if (td_dtype_kind(plan->logits_dtype) != TD_KIND_FLOAT) return "the logits are no floating-point numbers";
    return NULL;
}

static void run_stages(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    const td_config_tokens *tokens = &b->config->tokens;
    plan->placeholders[TD_MODALITY_IMAGE] = tokens->image;
    plan->placeholders[TD_MODALITY_AUDIO] = tokens->audio;
    plan->placeholders[TD_MODALITY_VIDEO] = tokens->video;
    if (b->config->plugin.path) {
        td_plan_for_plugin(b);
        return;
    }
    if (!plan->n_sessions) { /* said where they were looked for */
        plan->cannot_run = "the config has errors";
        return;
    }
    static void (*const before[])(td_plan_build_ctx *) = {td_plan_find_handed,    td_plan_find_states,
                                                          td_plan_declared_wires, td_plan_find_transducer,
                                                          td_plan_find_logits,    td_plan_find_steps};
    static void (*const after[])(td_plan_build_ctx *) = {
        td_plan_check_wires,     td_plan_find_source, td_plan_fill_cross, td_plan_share_states,
        td_plan_wire_transducer, td_plan_find_wires,  td_plan_promote};
    static void (*const last[])(td_plan_build_ctx *) = {td_plan_find_outputs, td_plan_check_values};
    static void (*const rest[])(td_plan_build_ctx *) = {
        td_plan_find_loops,     td_plan_hold_features, td_plan_find_splices, td_plan_find_lengths,
        td_plan_find_positions, td_plan_find_batching, td_plan_find_sliding, td_plan_check_outputs};
    for (size_t i = 0; i < TD_COUNT(before) && !b->out_of_memory; i++) before[i](b);
    /* Guesses over a config with faults would only add messages that are not true. */
    for (size_t i = 0; i < TD_COUNT(after) && !b->out_of_memory && !b->messages->n_errors; i++) after[i](b);
    for (size_t i = 0; i < TD_COUNT(last) && !b->out_of_memory; i++) last[i](b);
    for (size_t i = 0; i < TD_COUNT(rest) && !b->out_of_memory && !b->messages->n_errors; i++) rest[i](b);
    if (b->out_of_memory) return;
    td_plan_find_only_logits(plan);
    plan->cannot_run = b->messages->n_errors ? "the config has errors" : find_why_not(plan);
    if (!plan->cannot_run) plan->cannot_run = td_plan_find_fault(plan);
    if (b->messages->n_errors || !plan->cannot_run || plan->pooling.present || plan->transducer.present) return;
    td_messages_add(b->messages, b->generic ? TREADLE_MESSAGE_NOTE : TREADLE_MESSAGE_WARNING,
                    td_plan_session_place(b, &plan->sessions[TD_MAX(plan->decoder, 0)]),
                    "the model cannot generate, only run on tensors: %s", plan->cannot_run);
}

/* The embeddings of a source are made by a session of their own, of the file that makes those of the decoder's ids. */
static void add_source_embedding(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    int32_t embedding;
    if (!td_plan_find_source_encoder(b, &embedding)) return;
    const td_plan_session *other = &plan->sessions[embedding];
    const char *name = td_arena_printf(&plan->arena, "%.*s_source", TD_STR_ARGS(other->name));
    open_session(b, other->config, (int32_t)plan->n_sessions++);
    if (!name) b->out_of_memory = true;
    if (b->out_of_memory) return;
    td_plan_session *s = &plan->sessions[plan->n_sessions - 1];
    s->name = td_str_from(name);
    s->c_name = name;
    td_plan_note(b, b->source_encoder, "%s is a second session of the file of %.*s: \"%.*s\" takes embeddings as well",
                 name, TD_STR_ARGS(other->name), TD_STR_ARGS(plan->sessions[b->source_encoder].name));
}

static void build(td_plan_build_ctx *b) {
    size_t n = b->config->n_sessions, room = n + 1; /* one may be opened twice */
    b->plan->sessions = TD_ARENA_ARRAY(&b->plan->arena, td_plan_session, room);
    b->uses = TD_ARENA_ARRAY(b->scratch, td_uses, room);
    b->ins = TD_ARENA_ARRAY(b->scratch, td_name_parts *, room);
    b->outs = TD_ARENA_ARRAY(b->scratch, td_name_parts *, room);
    b->out_of_memory = !b->plan->sessions || !b->uses || !b->ins || !b->outs;
    for (size_t i = 0; i < n && !b->out_of_memory; i++) {
        b->plan->n_sessions++;
        open_session(b, &b->config->sessions[i], (int32_t)i);
    }
    if (!b->out_of_memory) td_plan_drop_editions(b);
    if (!b->out_of_memory) add_source_embedding(b);
    if (!b->out_of_memory) run_stages(b);
}

treadle_status td_plan_build(const td_config *config, td_messages *messages, td_plan **out, treadle_error *err) {
    td_plan *plan = td_alloc_zero(1, sizeof *plan);
    if (!plan) return td_fail_memory(err, "a plan", sizeof *plan);
    td_arena_init(&plan->arena);
    td_arena scratch;
    td_arena_init(&scratch);
    plan->decoder = -1;
    td_plan_build_ctx b = {.config = config, .plan = plan, .messages = messages, .scratch = &scratch};
    build(&b);
    td_arena_free(&scratch);
    if (b.out_of_memory || messages->failed) {
        td_plan_free(plan);
        return td_fail_memory(err, "a plan", 0);
    }
    *out = plan;
    return TREADLE_OK;
}

void td_plan_free(td_plan *plan) {
    if (!plan) return;
    for (size_t i = 0; i < plan->n_sessions; i++) td_signature_close(plan->sessions[i].signature);
    td_arena_free(&plan->arena);
    td_free(plan);
}

int64_t td_plan_state_bytes(const td_plan *plan, int64_t tokens) {
    const int64_t chunk = TD_PREFILL_CHUNK;
    int64_t total = 0;
    for (size_t k = 0; k < plan->n_states; k++) {
        const td_state_tensor *s = &plan->states[k];
        int64_t bits = td_dtype_bits(s->dtype), columns = tokens;
        if (s->slides && plan->sessions[s->session].config->engine == TD_ENGINE_LIGHT)
            columns = TD_MIN(tokens, td_plan_slide_limit(plan, plan->prefill_chunk > 0 ? plan->prefill_chunk : chunk));
        for (int i = 0; i < s->shape.rank; i++) {
            bool grows = i == s->seq_axis && s->shape.dims[i] < 0;
            int64_t d = i == s->batch_axis ? 1 : grows ? columns : TD_MAX(s->shape.dims[i], 1);
            if (TD_MUL_OVERFLOWS(bits, d, &bits)) return INT64_MAX;
        }
        if (TD_ADD_OVERFLOWS(total, bits / 8, &total)) return INT64_MAX;
    }
    return total;
}
