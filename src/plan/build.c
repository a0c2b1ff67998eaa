/* plan/build.c - from config and signatures to a plan, stage by stage. */
#include "plan/plan.h"

#include "base/alloc.h"

enum { DEFAULT_MAX_LENGTH = 2048 };

td_place td_plan_session_place(const td_plan_build_ctx *b, const td_plan_session *session) {
    return td_tree_place(b->messages->arena, session->config->json, false);
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
        td_messages_add(b->messages, TREADLE_MESSAGE_ERROR, td_tree_place(b->messages->arena, rows[i].json, false),
                        "expected an %s of the graph, found no \"%.*s\" (%ss: %s)", inputs ? "input" : "output",
                        (int)TD_MIN(rows[i].to.n, (size_t)200), rows[i].to.p, inputs ? "input" : "output",
                        td_plan_port_names(b->messages->arena, ports, n_ports));
    }
}

static bool optional_by_config(const td_config_session *c, td_str name) {
    for (size_t i = 0; i < c->n_optional; i++)
        if (td_str_equal(c->optional[i], name)) return true;
    return false;
}

static void open_session(td_plan_build_ctx *b, const td_config_session *config, td_plan_session *s) {
    *s = (td_plan_session){.name = config->name, .config = config, .logits = -1};
    s->c_name = td_arena_strndup(&b->plan->arena, config->name.p, config->name.n);
    if (!s->c_name) b->out_of_memory = true;
    if (!config->path || b->out_of_memory) return;
    open_signature(b, s);
    if (!s->signature) return;
    td_arena *arena = &b->plan->arena;
    size_t n_in = s->signature->n_inputs, n_out = s->signature->n_outputs;
    s->roles = TD_ARENA_ARRAY(arena, td_role, n_in);
    s->feeds = TD_ARENA_ARRAY(arena, td_feed, n_in);
    s->out_state = TD_ARENA_ARRAY(arena, int32_t, n_out);
    if (!s->roles || !s->feeds || !s->out_state) {
        b->out_of_memory = true;
        return;
    }
    for (size_t i = 0; i < n_in; i++)
        s->feeds[i] = (td_feed){TD_FEED_NONE, optional_by_config(config, s->signature->inputs[i].name) ? -2 : -1};
    for (size_t o = 0; o < n_out; o++) s->out_state[o] = -1;
    check_renames(b, s, config->inputs, config->n_inputs, true);
    check_renames(b, s, config->outputs, config->n_outputs, false);
    td_plan_find_roles(s);
    s->takes_tokens = td_plan_input_of_role(s, TD_ROLE_INPUT_IDS) >= 0 ||
                      td_plan_input_of_role(s, TD_ROLE_INPUTS_EMBEDS) >= 0 ||
                      td_plan_input_of_role(s, TD_ROLE_DECODER_INPUT_IDS) >= 0;
}

/* --- logits */

static void find_logits(td_plan_build_ctx *b, td_plan_session *s) {
    s->logits = td_plan_output_index(s, TD_STR("logits"));
    bool has_state = false;
    for (size_t o = 0; o < s->signature->n_outputs; o++) has_state |= s->out_state[o] >= 0;
    if (s->logits >= 0 || !has_state || b->plan->n_sessions > 1) return;
    size_t n = 0, found = 0;
    for (size_t o = 0; o < s->signature->n_outputs; o++) {
        const td_light_port *port = &s->signature->outputs[o];
        bool fits = s->out_state[o] < 0 && td_dtype_kind(port->dtype) == TD_KIND_FLOAT &&
                    (port->shape.rank == 2 || port->shape.rank == 3);
        n += fits;
        if (fits) found = o;
    }
    if (n != 1) return;
    s->logits = (int32_t)found;
    td_messages_add(b->messages, TREADLE_MESSAGE_NOTE, td_plan_session_place(b, s),
                    "output \"%.*s\" is taken as the logits", TD_STR_ARGS(s->signature->outputs[found].name));
}

static void describe_logits(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    for (size_t i = 0; i < plan->n_sessions && plan->decoder < 0; i++)
        if (plan->sessions[i].logits >= 0) plan->decoder = (int32_t)i;
    if (plan->decoder < 0) return;
    const td_plan_session *s = &plan->sessions[plan->decoder];
    const td_light_port *port = &s->signature->outputs[s->logits];
    int rank = port->shape.rank;
    plan->logits_dtype = port->dtype;
    plan->logits_rank = rank;
    plan->logits_last_only = rank == 3 && port->shape.dims[1] == 1;
    plan->vocab = rank > 0 && port->shape.dims[rank - 1] > 0 ? port->shape.dims[rank - 1] : 0;
}

/* --- tokens against the vocabulary */

static void check_ids(td_plan_build_ctx *b, const td_json *value, int64_t vocab) {
    for (const td_json *item = value->first; item; item = item->next) check_ids(b, item, vocab);
    if (value->kind != TD_JSON_INT || value->as_int < vocab) return;
    bool ours =
        td_tree_source(value)->path && b->config->file && strcmp(td_tree_source(value)->path, b->config->file) == 0;
    bool set = !td_tree_source(value)->path; /* by the caller */
    td_messages_add(b->messages, ours || set ? TREADLE_MESSAGE_ERROR : TREADLE_MESSAGE_WARNING,
                    td_tree_place(b->messages->arena, value, false),
                    "expected a token id below %lld, the size of the vocabulary (vocab), found %lld", (long long)vocab,
                    (long long)value->as_int);
}

void td_plan_check_tokens(td_plan_build_ctx *b) {
    const td_json *tokens = td_json_get(b->config->root, "tokens");
    if (tokens && tokens->kind == TD_JSON_OBJECT && b->plan->vocab > 0) check_ids(b, tokens, b->plan->vocab);
}

/* --- lengths, batching, what cannot run */

static void find_lengths(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    const td_config *c = b->config;
    int64_t table = plan->decoder < 0 ? 0 : td_plan_position_table(&plan->sessions[plan->decoder]);
    for (size_t k = 0; k < plan->n_states; k++) {
        const td_state_tensor *s = &plan->states[k];
        if (s->kind != TD_STATE_STATIC) continue;
        int64_t capacity = s->shape.dims[s->shape.rank >= 4 ? s->shape.rank - 2 : 1];
        if (capacity > 0 && (!table || capacity < table)) table = capacity;
    }
    int64_t context = c->generation.context_length;
    if (table > 0 && (context <= 0 || context > table)) {
        if (context > table)
            td_messages_add(b->messages, TREADLE_MESSAGE_NOTE,
                            td_tree_place(b->messages->arena, c->generation.context_length_json, false),
                            "context_length %lld is lowered to %lld, which the graph's tables allow",
                            (long long)context, (long long)table);
        context = table;
    }
    plan->max_length = c->generation.max_length > 0 ? c->generation.max_length
                       : context > 0                ? context
                                                    : DEFAULT_MAX_LENGTH;
    plan->context_length = context > 0 ? TD_MIN(context, (int64_t)INT32_MAX) : INT32_MAX;
    context = plan->context_length; /* lengths are int32 in some graphs */
    if (plan->max_length > context) {
        if (c->generation.max_length > context && c->generation.context_length != context)
            td_messages_add(b->messages, TREADLE_MESSAGE_NOTE,
                            td_tree_place(b->messages->arena, c->generation.max_length_json, false),
                            "max_length %lld is lowered to the context length %lld",
                            (long long)c->generation.max_length, (long long)context);
        plan->max_length = context;
    }
    plan->prefill_chunk = TD_MAX(c->generation.prefill_chunk, (int64_t)0);
}

static void find_positions(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    for (size_t i = 0; i < plan->n_sessions; i++) {
        const td_plan_session *s = &plan->sessions[i];
        int32_t input = s->signature ? td_plan_input_of_role(s, TD_ROLE_POSITION_IDS) : -1;
        if (input < 0) continue;
        plan->has_positions = true;
        plan->position = s->signature->inputs[input].shape.rank == 3 ? TD_POSITION_MROPE_3D : TD_POSITION_DEFAULT;
        if (b->config->state.position == TD_POSITION_WINDOWED) plan->position = TD_POSITION_WINDOWED;
    }
}

static td_batching find_batching(const td_plan *plan) {
    const td_plan_session *s = &plan->sessions[plan->decoder];
    for (size_t k = 0; k < plan->n_states; k++)
        if (plan->states[k].kind != TD_STATE_SEPARATE && plan->states[k].kind != TD_STATE_COMBINED)
            return TD_BATCH_APART;
    if (plan->n_sessions > 1 || !plan->n_states) return TD_BATCH_APART;
    int32_t ids = td_plan_input_of_role(s, TD_ROLE_INPUT_IDS);
    if (ids < 0 || s->signature->inputs[ids].shape.rank != 2 || s->signature->inputs[ids].shape.dims[0] >= 0)
        return TD_BATCH_APART;
    if (td_plan_input_of_role(s, TD_ROLE_CACHE_POSITION) >= 0 ||
        td_plan_input_of_role(s, TD_ROLE_PAST_SEQUENCE_LENGTH) >= 0)
        return TD_BATCH_APART;
    bool mask = td_plan_input_of_role(s, TD_ROLE_ATTENTION_MASK) >= 0;
    if (td_plan_all_gqa(plan, plan->decoder))
        return mask || td_plan_input_of_role(s, TD_ROLE_SEQLENS_K) >= 0 ? TD_BATCH_LENGTHS : TD_BATCH_APART;
    return mask && plan->has_positions ? TD_BATCH_MASK : TD_BATCH_APART;
}

static bool role_is_made(td_role role) {
    switch (role) {
    case TD_ROLE_INPUT_IDS:
    case TD_ROLE_ATTENTION_MASK:
    case TD_ROLE_POSITION_IDS:
    case TD_ROLE_TOKEN_TYPE_IDS:
    case TD_ROLE_CACHE_POSITION:
    case TD_ROLE_PAST_SEQUENCE_LENGTH:
    case TD_ROLE_TOTAL_SEQUENCE_LENGTH:
    case TD_ROLE_SEQLENS_K:
    case TD_ROLE_NUM_LOGITS_TO_KEEP:
    case TD_ROLE_LOGITS_TO_KEEP:
    case TD_ROLE_USE_CACHE_BRANCH: return true;
    default: return false;
    }
}

/* Why an input cannot be made, or NULL. */
static const char *input_fault(td_plan *plan, const td_plan_session *s, size_t i) {
    const td_light_port *port = &s->signature->inputs[i];
    td_role role = (td_role)s->feeds[i].index;
    const char *why = NULL;
    if (s->feeds[i].kind == TD_FEED_REQUEST) why = "needs a tensor of the request";
    else if (s->feeds[i].kind == TD_FEED_NONE && !port->optional) why = "needs zero rows";
    else if (s->feeds[i].kind == TD_FEED_ROLE && !role_is_made(role)) why = "is of a kind";
    else if (s->feeds[i].kind == TD_FEED_ROLE && role == TD_ROLE_ATTENTION_MASK && port->shape.rank > 2)
        why = "is a mask of more than two dimensions,";
    else if (s->feeds[i].kind == TD_FEED_ROLE && role == TD_ROLE_POSITION_IDS && port->shape.rank > 2)
        why = "takes positions in three dimensions,";
    else if (s->feeds[i].kind == TD_FEED_ROLE && role == TD_ROLE_INPUT_IDS && port->shape.rank == 2 &&
             port->shape.dims[1] > 1)
        why = "takes windows of fixed length,";
    if (!why) return NULL;
    const char *text =
        td_arena_printf(&plan->arena, "input \"%.*s\" of session \"%.*s\" %s which this build does not make yet",
                        TD_STR_ARGS(port->name), TD_STR_ARGS(s->name), why);
    return text ? text : "out of memory";
}

static const char *find_fault(td_plan *plan, const td_config *c) {
    if (plan->decoder < 0) return "no session has logits: there are no tokens to generate";
    if (plan->logits_rank != 2 && plan->logits_rank != 3) return "the logits have neither two nor three dimensions";
    if (td_dtype_kind(plan->logits_dtype) != TD_KIND_FLOAT) return "the logits are no floating-point numbers";
    if (c->state.window.size > 0) return "sliding windows are not run by this build yet";
    for (size_t k = 0; k < plan->n_steps; k++)
        if (plan->steps[k].when != TD_WHEN_ALWAYS || plan->steps[k].loop != TD_LOOP_BATCHED)
            return "flow steps other than always and batched are not run by this build yet";
    for (size_t k = 0; k < plan->n_states; k++) {
        td_state_kind kind = plan->states[k].kind;
        if (kind == TD_STATE_STATIC) return "static caches are not run by this build yet";
        if (kind == TD_STATE_CROSS) return "cross caches are not run by this build yet";
        for (int i = 0; i < plan->states[k].shape.rank; i++)
            if (plan->states[k].shape.dims[i] < 0 && i != plan->states[k].batch_axis && i != plan->states[k].seq_axis)
                return "a state tensor has more than one free dimension beside the batch";
    }
    for (size_t k = 0; k < plan->n_steps; k++) {
        const td_plan_session *s = &plan->sessions[plan->steps[k].session];
        for (size_t i = 0; i < s->signature->n_inputs; i++) {
            const char *fault = input_fault(plan, s, i);
            if (fault) return fault;
        }
    }
    return NULL;
}

static void run_stages(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    td_plan_find_states(b);
    if (b->out_of_memory) return;
    for (size_t i = 0; i < plan->n_sessions; i++)
        if (plan->sessions[i].signature) find_logits(b, &plan->sessions[i]);
    describe_logits(b);
    td_plan_find_steps(b);
    if (!b->out_of_memory) td_plan_find_wires(b);
    if (b->out_of_memory) return;
    td_plan_promote(b);
    td_plan_check_tokens(b);
    find_lengths(b);
    find_positions(b);
    if (b->messages->n_errors) plan->cannot_run = "the config has errors";
    else plan->cannot_run = find_fault(plan, b->config);
    if (!plan->cannot_run) plan->batching = find_batching(plan);
}

treadle_status td_plan_build(const td_config *config, td_messages *messages, td_plan **out, treadle_error *err) {
    td_plan *plan = td_alloc_zero(1, sizeof *plan);
    if (!plan) return td_fail_memory(err, "a plan", sizeof *plan);
    td_arena_init(&plan->arena);
    plan->decoder = -1;
    td_plan_build_ctx b = {config, plan, messages, false};
    plan->sessions = TD_ARENA_ARRAY(&plan->arena, td_plan_session, config->n_sessions);
    b.out_of_memory = !plan->sessions;
    for (size_t i = 0; i < config->n_sessions && !b.out_of_memory; i++)
        open_session(&b, &config->sessions[i], &plan->sessions[plan->n_sessions++]);
    if (!b.out_of_memory) run_stages(&b);
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
    int64_t total = 0;
    for (size_t k = 0; k < plan->n_states; k++) {
        const td_state_tensor *s = &plan->states[k];
        int64_t bits = td_dtype_bits(s->dtype);
        for (int i = 0; i < s->shape.rank; i++) {
            int64_t d = i == s->batch_axis ? 1 : i == s->seq_axis ? tokens : TD_MAX(s->shape.dims[i], 1);
            if (TD_MUL_OVERFLOWS(bits, d, &bits)) return INT64_MAX;
        }
        if (TD_ADD_OVERFLOWS(total, bits / 8, &total)) return INT64_MAX;
    }
    return total;
}
