/* plan/lengths.c - how long a row may become, and how long one run may be. */
#include "plan/build.h"

enum { DEFAULT_MAX_LENGTH = 2048 };

static void add_limit(int64_t *limit, int64_t n) {
    if (n > 0 && (!*limit || n < *limit)) *limit = n;
}

static void find_static_capacity(td_plan *plan) {
    for (size_t k = 0; k < plan->n_states; k++) {
        const td_state_tensor *s = &plan->states[k];
        if (s->kind == TD_STATE_STATIC && s->seq_axis >= 0)
            add_limit(&plan->static_capacity, s->shape.dims[s->seq_axis]);
    }
}

/* Fixed caches and tables of positions bound every row. */
static int64_t graph_limit(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    int64_t limit = plan->static_capacity;
    for (size_t k = 0; k < plan->n_steps; k++) {
        const td_plan_session *s = &plan->sessions[plan->steps[k].session];
        if (s->takes_tokens && !s->takes_source) add_limit(&limit, td_plan_position_table(b, plan->steps[k].session));
    }
    return limit;
}

static void find_context(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    const td_config_generation *c = &b->config->generation;
    int64_t limit = graph_limit(b), context = c->context_length;
    if (limit > 0 && (context <= 0 || context > limit)) {
        if (context > limit)
            td_messages_add(b->messages, TREADLE_MESSAGE_NOTE,
                            td_tree_place(b->messages->arena, c->context_length_json, false),
                            "context_length %lld is lowered to %lld, which the graph's tables allow",
                            (long long)context, (long long)limit);
        context = limit;
    }
    plan->max_length = c->max_length > 0 ? c->max_length : context > 0 ? context : DEFAULT_MAX_LENGTH;
    plan->context_length = context > 0 ? TD_MIN(context, (int64_t)INT32_MAX) : INT32_MAX;
    context = plan->context_length; /* lengths are int32 in some graphs */
    if (plan->max_length > context) {
        if (c->max_length > context && c->context_length != context)
            td_messages_add(
                b->messages, TREADLE_MESSAGE_NOTE, td_tree_place(b->messages->arena, c->max_length_json, false),
                "max_length %lld is lowered to the context length %lld", (long long)c->max_length, (long long)context);
        plan->max_length = context;
    }
}

/* --- windows of ids */

static void find_window(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    const td_config_window *c = &b->config->state.window;
    td_arena *arena = b->messages->arena;
    int64_t fixed = 0;
    bool masked = false, has_mask = false;
    for (size_t k = 0; k < plan->n_steps; k++) {
        const td_plan_session *s = &plan->sessions[plan->steps[k].session];
        if (plan->steps[k].when == TD_WHEN_DECODE || plan->steps[k].when == TD_WHEN_ONCE || s->takes_source) continue;
        if (s->fixed_tokens > 1) fixed = s->fixed_tokens;
        has_mask |= td_plan_input_of_role(s, TD_ROLE_ATTENTION_MASK) >= 0;
        masked |= has_mask || td_plan_input_of_role(s, TD_ROLE_SEQLENS_K) >= 0 ||
                  td_plan_input_of_role(s, TD_ROLE_NONPAD_KV_SEQLEN) >= 0;
    }
    int64_t declared = c->slide_inputs ? c->size : 0;
    if (declared > 0 && fixed > 0 && declared != fixed)
        td_messages_add(b->messages, TREADLE_MESSAGE_ERROR, td_tree_place(arena, c->json, false),
                        "expected a window of %lld ids, which the graph of the prompt takes, found %lld",
                        (long long)fixed, (long long)declared);
    int64_t size = fixed > 0 ? fixed : declared;
    if (size <= 0 || plan->pooling.present || b->generic) return;
    if (size > plan->context_length) {
        td_messages_add(b->messages, TREADLE_MESSAGE_ERROR,
                        td_tree_place(arena, c->json ? c->json : td_json_get(b->config->root, "pipeline"), false),
                        "expected a window of at most the context length %lld, found %lld",
                        (long long)plan->context_length, (long long)size);
        return;
    }
    plan->window.size = size;
    plan->window.masked = masked;
    plan->window.pad_value = c->json ? c->pad_value : TD_MAX(b->config->tokens.pad, 0);
    plan->window.has_mask = has_mask;
    plan->window.pad_first = has_mask && c->alignment == TD_ALIGNMENT_RIGHT;
    if (!c->json)
        td_messages_add(b->messages, TREADLE_MESSAGE_NOTE, (td_place){0},
                        "the prompt goes in as windows of %lld ids, which its graph takes", (long long)size);
}

/* --- one token at a time */

/* Where symbols tell nothing, a free dimension may be one of tokens. */
static bool mentions_length(const td_plan_session *s, td_str dim) {
    int32_t token = td_plan_token_input(s);
    if (token < 0 || s->signature->inputs[token].shape.rank < 2) return false;
    td_str symbol = s->signature->inputs[token].dim_names[1];
    bool told = symbol.n && dim.n && !td_name_is_numbered(symbol);
    return told ? td_str_find(dim, symbol) >= 0 : s->fixed_tokens == 0;
}

/* A recurrence whose new value is longer for more tokens, although the old one is not: the graph
 * was written for single tokens. */
static bool wants_single_tokens(const td_plan *plan) {
    for (size_t k = 0; k < plan->n_states; k++) {
        const td_state_tensor *s = &plan->states[k];
        const td_plan_session *session = &plan->sessions[s->session];
        if (s->kind != TD_STATE_RECURRENT || s->output < 0) continue;
        const td_light_port *in = &session->signature->inputs[s->input], *out = &session->signature->outputs[s->output];
        for (int i = 0; i < in->shape.rank && in->shape.rank == out->shape.rank; i++)
            if (i != s->batch_axis && in->shape.dims[i] >= 0 && out->shape.dims[i] < 0 &&
                mentions_length(session, out->dim_names[i]))
                return true;
    }
    return false;
}

static bool takes_single_tokens(const td_plan *plan) {
    for (size_t k = 0; k < plan->n_steps; k++) {
        const td_plan_session *s = &plan->sessions[plan->steps[k].session];
        td_when when = plan->steps[k].when;
        if (when != TD_WHEN_PROMPT && when != TD_WHEN_ALWAYS) continue;
        if ((s->fixed_tokens == 1 || s->last_token_only) && !s->takes_source) return true;
    }
    return false;
}

void td_plan_find_lengths(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    find_static_capacity(plan);
    find_context(b);
    find_window(b);
    plan->prefill_chunk = TD_MAX(b->config->generation.prefill_chunk, (int64_t)0);
    plan->reprefill_at = TD_MAX(b->config->generation.reprefill_at, (int64_t)0);
    if (!plan->transducer.present && (wants_single_tokens(plan) || takes_single_tokens(plan))) {
        if (plan->prefill_chunk > 1)
            td_messages_add(b->messages, TREADLE_MESSAGE_NOTE, (td_place){0},
                            "prefill_chunk %lld is lowered to 1: the graph takes one token at a time",
                            (long long)plan->prefill_chunk);
        plan->prefill_chunk = 1;
    }
}
