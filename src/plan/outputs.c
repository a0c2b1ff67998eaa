/* plan/outputs.c - what comes out: logits, and which of several; else vectors, and how they are
 * pooled; else plain tensors. */
#include "plan/build.h"

enum {
    MOST_SCORES = 16
}; /* a row of at most this many "logits", without any state, is a score or a class, no vocabulary */

static bool is_float_tensor(const td_light_port *port) {
    return port->kind == TD_ONNX_TYPE_TENSOR && td_dtype_kind(port->dtype) == TD_KIND_FLOAT;
}

static bool has_state(const td_plan *plan, int32_t session) {
    for (size_t k = 0; k < plan->n_states; k++)
        if (plan->states[k].session == session) return true;
    return false;
}

/* --- logits */

/* "logits", or the one output whose name holds the word. */
static int32_t logits_by_name(const td_plan_session *s) {
    int32_t found = td_plan_output_index(s, TD_STR("logits"));
    size_t n = 0;
    for (size_t o = 0; found < 0 && o < s->signature->n_outputs; o++)
        n += s->out_state[o] < 0 && td_name_has_word(td_plan_wire_name(s, false, o), "logits");
    for (size_t o = 0; n == 1 && o < s->signature->n_outputs; o++)
        if (s->out_state[o] < 0 && td_name_has_word(td_plan_wire_name(s, false, o), "logits")) found = (int32_t)o;
    return found >= 0 && is_float_tensor(&s->signature->outputs[found]) ? found : -1;
}

/* The only output that is no state, is made of numbers and of two or three dimensions; of several the only one with as
 * many numbers as there are embeddings. */
static int32_t logits_by_elimination(const td_plan_build_ctx *b, int32_t session) {
    const td_plan_session *s = &b->plan->sessions[session];
    int64_t vocab = td_plan_embedding_rows(s);
    int32_t found = -1, wide = -1;
    size_t n = 0, n_wide = 0;
    for (size_t o = 0; o < s->signature->n_outputs; o++) {
        const td_light_port *port = &s->signature->outputs[o];
        int rank = port->shape.rank;
        if (s->out_state[o] >= 0 || !is_float_tensor(port) || (rank != 2 && rank != 3)) continue;
        if (b->outs[session][o].says_state || td_plan_output_is_used(b->plan, session, (int32_t)o, -1)) continue;
        n++;
        found = (int32_t)o;
        if (vocab > 0 && port->shape.dims[rank - 1] == vocab) wide = (int32_t)o, n_wide++;
    }
    return n == 1 ? found : n_wide == 1 ? wide : -1;
}

static bool extends(const td_plan_build_ctx *b, const char *preset) {
    const td_json *pipeline = td_json_get(b->config->root, "pipeline");
    return td_str_is(td_json_string_or(pipeline, "extends", ""), preset);
}

/* Scores of whole rows: no state, one row of few numbers each. */
static bool gives_scores(const td_plan_build_ctx *b, int32_t session) {
    const td_plan *plan = b->plan;
    const td_plan_session *s = &plan->sessions[session];
    if (plan->n_sessions > 1 || plan->n_states || s->logits < 0) return false;
    const td_shape *shape = &s->signature->outputs[s->logits].shape;
    int64_t n = shape->rank == 2 || shape->rank == 3 ? shape->dims[shape->rank - 1] : 0;
    int64_t rows = s->takes_tokens ? td_plan_embedding_rows(s) : 0;
    bool few = n > 0 && (rows > 0 ? 2 * n <= rows : shape->rank == 2 && n <= MOST_SCORES);
    return few || !s->takes_tokens || extends(b, "feature-extraction") || b->config->pooling.declared;
}

static bool is_vector_name(td_str name) {
    static const char *const names[] = {"last_hidden_state", "sentence_embedding", "sentence_embeddings",
                                        "embeddings",        "embedding",          "pooler_output",
                                        "token_embeddings",  "hidden_states",      "text_embeds",
                                        "image_embeds",      "last_hidden_states", NULL};
    return td_words_find(names, name) >= 0;
}

/* The output that holds vectors: by name, one that is pooled already first unless a mode is
 * declared; else the only fitting one. */
static int32_t find_vectors(const td_plan_build_ctx *b, int32_t session) {
    const td_plan_session *s = &b->plan->sessions[session];
    int32_t best = -1, fits = -1;
    int best_rank = -1;
    size_t n = 0;
    for (size_t o = 0; o < s->signature->n_outputs; o++) {
        const td_light_port *port = &s->signature->outputs[o];
        td_str name = td_plan_wire_name(s, false, o);
        int rank = port->shape.rank;
        if (!is_float_tensor(port) || (rank != 2 && rank != 3) || s->out_state[o] >= 0) continue;
        n++;
        fits = (int32_t)o;
        if (!is_vector_name(name)) continue;
        bool sentence = td_name_has_word(name, "sentence");
        int score = sentence ? 3 : rank == 3 ? 2 : 1; /* a pooler's output is no embedding of the sentence */
        if (score > best_rank) best = (int32_t)o, best_rank = score;
    }
    return best >= 0 ? best : n == 1 ? fits : -1;
}

static bool gives_vectors(const td_plan_build_ctx *b, int32_t session) {
    const td_plan_session *s = &b->plan->sessions[session];
    bool declared = b->config->pooling.declared || extends(b, "feature-extraction");
    return (s->takes_tokens || declared) && find_vectors(b, session) >= 0;
}

bool td_plan_has_flat_ids(const td_plan_session *s) {
    int32_t token = td_plan_token_input(s), output = s->logits >= 0 ? s->logits : logits_by_name(s);
    if (token < 0 || s->signature->inputs[token].shape.rank != 1) return false;
    td_str symbol = s->signature->inputs[token].dim_names[0];
    if (output < 0 || s->signature->outputs[output].shape.rank < 2 || !symbol.n) return false;
    td_str rows = s->signature->outputs[output].dim_names[0];
    return s->signature->outputs[output].shape.dims[0] == 1 || (rows.n && !td_str_equal(symbol, rows));
}

/* Ids [rows], logits [rows, vocab]: one token each. */
static bool takes_one_token(const td_plan_session *s) {
    int32_t token = td_plan_token_input(s);
    if (token < 0 || s->logits < 0 || td_plan_has_flat_ids(s)) return false;
    return s->signature->inputs[token].shape.rank == 1 && s->signature->outputs[s->logits].shape.rank == 2;
}

void td_plan_find_logits(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    bool any = plan->transducer.present;
    for (size_t i = 0; i < plan->n_sessions; i++) {
        td_plan_session *s = &plan->sessions[i];
        if (!s->signature || (plan->transducer.present && (int32_t)i == plan->transducer.joiner)) continue;
        s->logits = logits_by_name(s);
        if (s->logits < 0 && plan->n_sessions == 1 && s->takes_tokens && has_state(plan, 0)) {
            s->logits = logits_by_elimination(b, 0);
            if (s->logits >= 0)
                td_plan_note(b, 0, "output \"%.*s\" is taken as the logits",
                             TD_STR_ARGS(s->signature->outputs[s->logits].name));
        }
        if (gives_scores(b, (int32_t)i)) {
            plan->pooling =
                (td_plan_pooling){.present = true, .session = (int32_t)i, .output = s->logits, .mode = TD_POOLING_NONE};
            plan->pooling.pooled = s->signature->outputs[s->logits].shape.rank == 2;
            s->logits = -1;
        }
        any |= s->logits >= 0 || (s->takes_tokens && has_state(plan, (int32_t)i)) || gives_vectors(b, (int32_t)i);
        if (s->fixed_tokens == 0 && takes_one_token(s)) s->fixed_tokens = 1;
    }
    b->generic = !any && !plan->pooling.present;
}

/* Sessions with logits that no session takes: two may not run in one step. */
static void check_alone(td_plan_build_ctx *b) {
    const td_plan *plan = b->plan;
    for (size_t k = 0; k < plan->n_steps; k++) {
        int32_t y = plan->steps[k].session;
        for (size_t i = 0; i < k; i++) {
            int32_t x = plan->steps[i].session;
            if (x == y || plan->sessions[x].logits < 0 || plan->sessions[y].logits < 0 ||
                !td_plan_run_together(plan, x, y) || td_plan_runs_only(plan, x, TD_WHEN_ONCE))
                continue;
            td_messages_add(
                b->messages, TREADLE_MESSAGE_ERROR, td_plan_session_place(b, &plan->sessions[y]),
                "expected logits of one session at a time, found them in \"%.*s\" and \"%.*s\", which run in "
                "the same step",
                TD_STR_ARGS(plan->sessions[x].name), TD_STR_ARGS(plan->sessions[y].name));
        }
    }
}

/* Every token is chosen from the logits of a step that ran for the one before. */
static void check_always_there(td_plan_build_ctx *b) {
    const td_plan *plan = b->plan;
    bool prompt = false, decode = false;
    if (plan->decoder < 0 || plan->transducer.present || b->messages->n_errors) return;
    for (size_t k = 0; k < plan->n_steps; k++) {
        if (plan->sessions[plan->steps[k].session].logits < 0) continue;
        prompt |= plan->steps[k].when != TD_WHEN_DECODE;
        decode |= plan->steps[k].when == TD_WHEN_ALWAYS || plan->steps[k].when == TD_WHEN_DECODE;
    }
    if (prompt && decode) return;
    td_messages_add(
        b->messages, TREADLE_MESSAGE_WARNING, td_plan_session_place(b, &plan->sessions[plan->decoder]),
        "no step that runs %s gives logits: %s can be generated (expected a step that is run \"always\", or "
        "one \"prompt\" and one \"decode\")",
        prompt ? "after the first token" : "with a prompt", prompt ? "one token" : "nothing");
}

static void describe_logits(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    for (size_t k = 0; k < plan->n_steps && plan->decoder < 0; k++)
        if (plan->sessions[plan->steps[k].session].logits >= 0) plan->decoder = plan->steps[k].session;
    if (plan->decoder < 0) return;
    const td_plan_session *s = &plan->sessions[plan->decoder];
    const td_light_port *port = &s->signature->outputs[s->logits];
    int rank = port->shape.rank;
    plan->logits_dtype = port->dtype;
    plan->logits_rank = rank;
    plan->logits_last_only = rank == 3 && port->shape.dims[1] == 1;
    plan->vocab = rank > 0 && port->shape.dims[rank - 1] > 0 ? port->shape.dims[rank - 1] : 0;
    plan->vocab = TD_MAX(plan->vocab - (int64_t)plan->transducer.n_durations, (int64_t)0);
}

/* No output is called logits: the last step that follows tokens and has one output left over gives them, and so does
 * one that runs in its place. */
static void logits_of_last_step(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    int32_t found = -1;
    for (size_t k = plan->n_steps; k-- > 0;) {
        int32_t session = plan->steps[k].session;
        td_plan_session *s = &plan->sessions[session];
        if (plan->steps[k].when == TD_WHEN_ONCE || (!s->takes_tokens && !(b->follows && b->follows[session]))) continue;
        if (found >= 0 && (found == session || td_plan_run_together(plan, found, session))) continue;
        s->logits = logits_by_elimination(b, session);
        if (s->logits < 0) continue;
        found = session;
        td_plan_note(b, session, "output \"%.*s\" of \"%.*s\" is taken as the logits",
                     TD_STR_ARGS(s->signature->outputs[s->logits].name), TD_STR_ARGS(s->name));
    }
}

static void find_pooling(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    const td_config_pooling *c = &b->config->pooling;
    for (size_t k = plan->n_steps; k-- > 0 && !plan->pooling.present;) {
        int32_t session = plan->steps[k].session;
        if (!gives_vectors(b, session)) continue;
        int32_t output = find_vectors(b, session);
        plan->pooling =
            (td_plan_pooling){.present = true, .session = session, .output = output, .mode = (int32_t)c->mode};
        plan->pooling.pooled = plan->sessions[session].signature->outputs[output].shape.rank == 2;
        if (!c->declared) plan->pooling.mode = plan->pooling.pooled ? TD_POOLING_NONE : TD_POOLING_MEAN;
        plan->pooling.normalize = c->normalize;
    }
}

void td_plan_find_outputs(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    for (size_t i = 0; i < plan->n_wires; i++) { /* logits that another session takes are only a step on the way */
        td_plan_session *from = &plan->sessions[plan->wires[i].from_session];
        if (from->logits == plan->wires[i].from_output && !plan->transducer.present) from->logits = -1;
    }
    describe_logits(b);
    if (plan->decoder < 0 && !b->generic && !plan->pooling.present && !plan->transducer.present) {
        bool vectors = plan->n_states == 0;
        for (size_t k = 0; k < plan->n_steps && vectors; k++) vectors = plan->steps[k].when == TD_WHEN_ONCE;
        if (!vectors) logits_of_last_step(b);
        describe_logits(b);
        if (plan->decoder < 0) find_pooling(b);
    }
    check_alone(b);
    check_always_there(b);
}
