/* plan/classify.c - a flow found from the sessions' signatures, where the config declares none.
 *
 * What feeds what follows from equal names; what a session is follows from what it takes (ids, embeddings, a
 * modality, caches) and what it gives (logits, embeddings, features). Then: encoders run once, modalities at the
 * prompt, the rest at every step; of two graphs that hold one cache, the one with the single token runs after the
 * prompt. Order: what feeds comes first. */
#include "plan/build.h"

typedef enum kind {
    KIND_STAGE,     /* anything between tokens and logits */
    KIND_DECODER,   /* takes tokens and gives logits, or holds caches */
    KIND_EMBEDDING, /* ids to embeddings */
    KIND_ENCODER,   /* runs once, for a decoder that takes ids of its own */
    KIND_MODALITY,  /* makes features of an image or audio */
    KIND_LEFT_OUT,  /* nothing connects it */
} kind;

typedef struct edge {
    td_plan_end from, to;
    bool cross;
} edge;

typedef struct finding {
    td_plan_build_ctx *b;
    kind *kinds;      /* [n_sessions] */
    int *alternative; /* [n_sessions]: 1 prompt, 2 decode, 0 neither */
    td_when *whens;   /* [n_sessions] */
    TD_VEC(edge) edges;
    bool any_decoder;
} finding;

/* --- what feeds what */

/* Inputs that a session before it may feed. */
static bool is_open(const td_plan_session *s, size_t i) {
    if (s->feeds[i].kind == TD_FEED_STATE) return false;
    td_role role = td_plan_role(s, i);
    return !s->takes_tokens || role == TD_ROLE_NONE || role == TD_ROLE_INPUTS_EMBEDS ||
           role == TD_ROLE_ENCODER_ATTENTION_MASK;
}

static void add_edge(finding *f, td_plan_end from, td_plan_end to, bool cross) {
    edge e = {from, to, cross};
    if (f->b->source_encoder >= 0) { /* one session embeds for the encoder, the other for the rest */
        bool for_source = to.session == f->b->source_encoder;
        td_role role = td_plan_role(&f->b->plan->sessions[to.session], (size_t)to.port);
        if (role == TD_ROLE_INPUTS_EMBEDS && for_source != (from.session == f->b->source_embedding)) return;
    }
    if (from.session != to.session && !td_vec_push(&f->edges, e)) f->b->out_of_memory = true;
}

typedef struct named { /* outputs by name: the first, and the next of the same name */
    td_map map;
    TD_VEC(td_plan_end) ends;
    TD_VEC(int32_t) next;
} named;

static void add_name(finding *f, named *n, td_str name, td_plan_end end) {
    uint64_t first;
    int32_t next = td_map_get(&n->map, name, &first) ? (int32_t)first : -1;
    if (!td_vec_push(&n->ends, end) || !td_vec_push(&n->next, next) || !td_map_set(&n->map, name, n->ends.n - 1))
        f->b->out_of_memory = true;
}

static void find_edges(finding *f) {
    const td_plan *plan = f->b->plan;
    named names = {0}, stems = {0};
    for (size_t s = 0; s < plan->n_sessions; s++)
        for (size_t o = 0; o < plan->sessions[s].signature->n_outputs; o++) {
            const td_plan_session *ps = &plan->sessions[s];
            td_plan_end end = {(int32_t)s, (int32_t)o};
            const td_name_parts *parts = &f->b->outs[s][o];
            if (ps->out_state[o] < 0) add_name(f, &names, td_plan_wire_name(ps, false, o), end);
            if (ps->out_state[o] < 0 && td_name_is_cross_cache(parts))
                add_name(f, &stems, td_str_from(parts->stem), end);
        }
    for (size_t s = 0; s < plan->n_sessions; s++)
        for (size_t i = 0; i < plan->sessions[s].signature->n_inputs; i++) {
            const td_plan_session *ps = &plan->sessions[s];
            bool cross = td_name_is_cross_cache(&f->b->ins[s][i]);
            if (!cross && !is_open(ps, i)) continue;
            const named *n = cross ? &stems : &names;
            td_str name = cross ? td_str_from(f->b->ins[s][i].stem) : td_plan_wire_name(ps, true, i);
            uint64_t first;
            if (!td_map_get(&n->map, name, &first)) continue;
            for (int32_t k = (int32_t)first; k >= 0; k = n->next.items[k])
                add_edge(f, n->ends.items[k], (td_plan_end){(int32_t)s, (int32_t)i}, cross);
        }
    for (size_t i = 0; i < plan->n_wires; i++) {
        const td_plan_wire *w = &plan->wires[i];
        add_edge(f, (td_plan_end){w->from_session, w->from_output}, (td_plan_end){w->to_session, w->to_input}, false);
    }
    td_map_free(&names.map);
    td_map_free(&stems.map);
    td_vec_free(&names.ends);
    td_vec_free(&names.next);
    td_vec_free(&stems.ends);
    td_vec_free(&stems.next);
}

/* --- what a session is */

static bool takes_ids(const td_plan_session *s) {
    return td_plan_input_of_role(s, TD_ROLE_INPUT_IDS) >= 0 || td_plan_input_of_role(s, TD_ROLE_DECODER_INPUT_IDS) >= 0;
}

static bool has_caches(const td_plan *plan, int32_t session, bool recurrent_too) {
    for (size_t k = 0; k < plan->n_states; k++)
        if (plan->states[k].session == session && plan->states[k].kind != TD_STATE_CROSS &&
            (recurrent_too || plan->states[k].kind != TD_STATE_RECURRENT))
            return true;
    return false;
}

static bool takes_modality(const td_plan_session *s) {
    if (!s->takes_tokens && td_plan_metadata_modality(s->signature) >= 0) return true;
    for (size_t i = 0; i < s->signature->n_inputs; i++)
        if (td_plan_input_modality(s, i) != TD_MODALITY_NONE) return true;
    return false;
}

static bool is_decoder(const td_plan *plan, int32_t session) {
    const td_plan_session *s = &plan->sessions[session];
    bool tokens = takes_ids(s) || td_plan_input_of_role(s, TD_ROLE_INPUTS_EMBEDS) >= 0;
    return (tokens && (s->logits >= 0 || has_caches(plan, session, true))) ||
           (s->takes_tokens && has_caches(plan, session, false));
}

/* Makes the embeddings of a decoder that takes no ids, or that asks for embeddings by name. */
static bool is_embedding(const finding *f, int32_t session) {
    const td_plan *plan = f->b->plan;
    if (!takes_ids(&plan->sessions[session])) return false;
    for (size_t i = 0; i < f->edges.n; i++) {
        const edge *e = &f->edges.items[i];
        if (e->from.session == session && plan->sessions[e->to.session].roles[e->to.port] == TD_ROLE_INPUTS_EMBEDS)
            return true;
    }
    bool any_ids = false;
    for (size_t s = 0; s < plan->n_sessions; s++)
        any_ids |= f->kinds[s] == KIND_DECODER && takes_ids(&plan->sessions[s]);
    return !any_ids && f->any_decoder;
}

/* Feeds the attention over the source of a decoder that has ids of its own. */
static bool is_encoder(const finding *f, int32_t session) {
    const td_plan *plan = f->b->plan;
    bool modality = takes_modality(&plan->sessions[session]), feeds = false, decoder_ids = false, has_embedding = false;
    if (takes_ids(&plan->sessions[session])) return true;
    if (!modality) return false;
    for (size_t i = 0; i < f->edges.n; i++) {
        const edge *e = &f->edges.items[i];
        if (e->from.session != session) continue;
        feeds = true;
        td_str name = plan->sessions[e->to.session].signature->inputs[e->to.port].name;
        bool own_ids = f->kinds[e->to.session] == KIND_DECODER && takes_ids(&plan->sessions[e->to.session]);
        if (e->cross || (own_ids && (td_name_has_word(name, "encoder") || td_name_modality(name) == TD_MODALITY_NONE) &&
                         !td_name_has_word(name, "cross")))
            return true;
    }
    for (size_t s = 0; s < plan->n_sessions; s++) {
        decoder_ids |= f->kinds[s] == KIND_DECODER && takes_ids(&plan->sessions[s]);
        has_embedding |= f->kinds[s] == KIND_EMBEDDING;
    }
    return !feeds && decoder_ids && !has_embedding;
}

/* Whether what this session takes goes back to a session that takes ids. reached [n_sessions]:
 * those that it goes back to. */
static bool comes_from_ids(const finding *f, int32_t session, bool *reached) {
    bool found = false, more = true;
    reached[session] = true;
    while (more) {
        more = false;
        for (size_t i = 0; i < f->edges.n; i++) {
            const edge *e = &f->edges.items[i];
            if (!reached[e->to.session] || reached[e->from.session]) continue;
            reached[e->from.session] = more = true;
            found |= takes_ids(&f->b->plan->sessions[e->from.session]);
        }
    }
    return found;
}

/* Ids that become logits over several sessions, none of which is a decoder by itself: the last of them makes it one. */
static void find_staged_decoder(finding *f) {
    const td_plan *plan = f->b->plan;
    bool *reached = TD_ARENA_ARRAY(f->b->scratch, bool, plan->n_sessions);
    if (!reached) f->b->out_of_memory = true;
    for (int32_t s = 0; s < (int32_t)plan->n_sessions && reached && !f->any_decoder; s++) {
        memset(reached, 0, plan->n_sessions * sizeof *reached);
        if (plan->sessions[s].logits < 0 || !comes_from_ids(f, s, reached)) continue;
        f->kinds[s] = KIND_DECODER;
        f->any_decoder = true;
    }
}

static void classify(finding *f) {
    const td_plan *plan = f->b->plan;
    int32_t n = (int32_t)plan->n_sessions;
    if (f->b->source_encoder >= 0) f->kinds[f->b->source_encoder] = f->kinds[f->b->source_embedding] = KIND_ENCODER;
    for (int32_t s = 0; s < n; s++)
        if (f->kinds[s] == KIND_STAGE && is_decoder(plan, s)) f->kinds[s] = KIND_DECODER, f->any_decoder = true;
    if (!f->any_decoder && !plan->transducer.present) find_staged_decoder(f);
    for (int32_t s = 0; s < n; s++)
        if (f->kinds[s] == KIND_STAGE && is_embedding(f, s)) f->kinds[s] = KIND_EMBEDDING;
    bool any_logits = false;
    for (int32_t s = 0; s < n; s++) any_logits |= plan->sessions[s].logits >= 0;
    for (int32_t s = 0; s < n && f->any_decoder; s++) {
        if (f->kinds[s] != KIND_STAGE) continue;
        bool connected = !any_logits || plan->sessions[s].logits >= 0; /* some session must give them */
        for (size_t i = 0; i < f->edges.n; i++)
            connected |= f->edges.items[i].from.session == s || f->edges.items[i].to.session == s;
        if (is_encoder(f, s)) f->kinds[s] = KIND_ENCODER;
        else if (takes_modality(&plan->sessions[s])) f->kinds[s] = KIND_MODALITY;
        else if (!connected) f->kinds[s] = KIND_LEFT_OUT;
    }
}

/* --- graphs of the prompt and graphs of later tokens */

static bool hold_one_cache(const td_plan_build_ctx *b, int32_t x, int32_t y) {
    const td_plan *plan = b->plan;
    for (size_t k = 0; k < plan->n_states; k++) {
        const td_state_tensor *s = &plan->states[k];
        if (s->session != x) continue;
        td_str name = plan->sessions[x].signature->inputs[s->input].name;
        ptrdiff_t same = td_signature_find_input(plan->sessions[y].signature, name);
        if (same >= 0 && plan->sessions[y].feeds[same].kind == TD_FEED_STATE) return true;
        const td_signature *sig = plan->sessions[y].signature;
        bool cache = s->part != TD_PART_OTHER || s->kind == TD_STATE_COMBINED;
        for (size_t o = 0; o < sig->n_outputs && cache; o++)
            if (plan->sessions[y].out_state[o] < 0 && strcmp(b->outs[y][o].stem, b->ins[x][s->input].stem) == 0)
                return true;
    }
    return false;
}

static bool same_inputs(const td_plan *plan, int32_t x, int32_t y) {
    const td_signature *a = plan->sessions[x].signature, *c = plan->sessions[y].signature;
    if (a->n_inputs != c->n_inputs) return false;
    for (size_t i = 0; i < a->n_inputs; i++)
        if (td_signature_find_input(c, a->inputs[i].name) < 0) return false;
    return true;
}

/* Whether y takes single tokens where x takes more: some dimension is 1 in y and not in x. */
static bool is_single(const td_plan *plan, int32_t x, int32_t y) {
    const td_signature *a = plan->sessions[x].signature, *c = plan->sessions[y].signature;
    for (size_t i = 0; i < a->n_inputs; i++) {
        ptrdiff_t k = td_signature_find_input(c, a->inputs[i].name);
        if (k < 0 || a->inputs[i].shape.rank != c->inputs[k].shape.rank) continue;
        for (int d = 1; d < a->inputs[i].shape.rank; d++)
            if (a->inputs[i].shape.dims[d] != 1 && c->inputs[k].shape.dims[d] == 1) return true;
    }
    return false;
}

bool td_plan_says_decode(td_str name) {
    return td_name_has_word(name, "decode") || td_name_has_word(name, "token") || td_name_has_word(name, "gen") ||
           td_name_has_word(name, "past");
}

/* x and y are two graphs of one part of the model. false: which is which cannot be told. */
static bool tell_apart(finding *f, int32_t x, int32_t y) {
    const td_plan *plan = f->b->plan;
    bool x_takes = has_caches(plan, x, true), y_takes = has_caches(plan, y, true);
    int32_t decode = -1;
    if (x_takes != y_takes) decode = x_takes ? x : y;
    else if (is_single(plan, x, y) != is_single(plan, y, x)) decode = is_single(plan, x, y) ? y : x;
    else if (td_plan_says_decode(plan->sessions[x].name) != td_plan_says_decode(plan->sessions[y].name))
        decode = td_plan_says_decode(plan->sessions[x].name) ? x : y;
    if (decode < 0) return false;
    f->alternative[decode] = 2;
    f->alternative[decode == x ? y : x] = 1;
    return true;
}

static bool find_alternatives(finding *f) {
    td_plan_build_ctx *b = f->b;
    const td_plan *plan = b->plan;
    for (int32_t x = 0; x < (int32_t)plan->n_sessions; x++)
        for (int32_t y = x + 1; y < (int32_t)plan->n_sessions; y++) {
            kind kx = f->kinds[x], ky = f->kinds[y];
            if (kx != ky || kx == KIND_ENCODER || kx == KIND_MODALITY || kx == KIND_LEFT_OUT) continue;
            bool one = kx == KIND_DECODER && (hold_one_cache(b, x, y) || hold_one_cache(b, y, x));
            if (!one && !(same_inputs(plan, x, y) && is_single(plan, x, y) != is_single(plan, y, x))) continue;
            if (tell_apart(f, x, y)) continue;
            td_messages_add(
                b->messages, TREADLE_MESSAGE_ERROR,
                td_tree_place(b->messages->arena, td_json_get(b->config->root, "pipeline"), false),
                "expected a \"flow\" for %zu sessions, found none: \"%.*s\" and \"%.*s\" hold state of equal "
                "names, and nothing tells which of them runs when. If they are one graph in two editions, name one of them "
                "in \"sessions\"",
                plan->n_sessions, TD_STR_ARGS(plan->sessions[x].name), TD_STR_ARGS(plan->sessions[y].name));
            return false;
        }
    return true;
}

/* --- when, and in which order */

/* A session that takes only what is made once, or at the prompt, is needed no more often. */
static td_when when_of(const finding *f, int32_t session) {
    bool fed = false, once = true, prompt = true;
    switch (f->kinds[session]) {
    case KIND_ENCODER: return TD_WHEN_ONCE;
    case KIND_MODALITY:
        for (size_t i = 0; i < f->edges.n; i++)
            if (f->edges.items[i].to.session == session && f->whens[f->edges.items[i].from.session] == TD_WHEN_ONCE)
                return TD_WHEN_ONCE;
        return TD_WHEN_PROMPT;
    case KIND_DECODER: break;
    case KIND_EMBEDDING:
        for (size_t i = 0; i < f->edges.n; i++)
            if (f->edges.items[i].to.session == session && f->kinds[f->edges.items[i].from.session] == KIND_MODALITY)
                fed = true;
        if (fed && !f->alternative[session]) return TD_WHEN_PROMPT; /* and promoted if the decoder follows it */
        break;
    case KIND_STAGE:
        if (!f->any_decoder) return TD_WHEN_ONCE;
        for (size_t i = 0; i < f->edges.n; i++) {
            if (f->edges.items[i].to.session != session) continue;
            td_when when = f->whens[f->edges.items[i].from.session];
            fed = true;
            once &= when == TD_WHEN_ONCE;
            int32_t from = f->edges.items[i].from.session;
            prompt &= when == TD_WHEN_ONCE ||
                      (when == TD_WHEN_PROMPT && !f->alternative[from] && f->kinds[from] != KIND_EMBEDDING);
        }
        if (fed && once) return TD_WHEN_ONCE;
        if (fed && prompt && f->b->plan->sessions[session].logits < 0) return TD_WHEN_PROMPT;
        break;
    case KIND_LEFT_OUT: break;
    }
    return f->alternative[session] == 1   ? TD_WHEN_PROMPT
           : f->alternative[session] == 2 ? TD_WHEN_DECODE
                                          : TD_WHEN_ALWAYS;
}

static int rank_of(const finding *f, int32_t session) {
    switch (f->kinds[session]) {
    case KIND_ENCODER:
    case KIND_MODALITY: return 0;
    case KIND_EMBEDDING: return 1;
    case KIND_DECODER: return 2 + (f->alternative[session] == 2);
    default: return f->b->plan->sessions[session].logits >= 0 ? 5 : 4;
    }
}

/* Of the sessions that all that feeds them stands before, the one that comes first by kind, then by
 * name. -1: a circle is left. */
static int32_t next_ready(const finding *f, const bool *placed) {
    int32_t best = -1;
    for (int32_t s = 0; s < (int32_t)f->b->plan->n_sessions; s++) {
        bool ready = !placed[s] && f->kinds[s] != KIND_LEFT_OUT;
        for (size_t i = 0; i < f->edges.n && ready; i++)
            ready = f->edges.items[i].to.session != s || placed[f->edges.items[i].from.session];
        if (ready && (best < 0 || rank_of(f, s) < rank_of(f, best))) best = s;
    }
    return best;
}

static void emit(finding *f) {
    enum { MAX_STEPS = 10 };
    td_plan_build_ctx *b = f->b;
    td_plan *plan = b->plan;
    bool *placed = TD_ARENA_ARRAY(b->scratch, bool, plan->n_sessions);
    size_t n = 0;
    if (!placed) {
        b->out_of_memory = true;
        return;
    }
    for (size_t s = 0; s < plan->n_sessions; s++) {
        placed[s] = f->kinds[s] == KIND_LEFT_OUT;
        if (placed[s])
            td_plan_note(b, (int32_t)s, "\"%.*s\" is in no step: nothing connects it with the other sessions",
                         TD_STR_ARGS(plan->sessions[s].name));
        n += !placed[s];
    }
    if (n > MAX_STEPS) {
        td_messages_add(b->messages, TREADLE_MESSAGE_ERROR,
                        td_tree_place(b->messages->arena, td_json_get(b->config->root, "pipeline"), false),
                        "expected a \"flow\" of at most %d steps, found none: the folder has %zu sessions", MAX_STEPS,
                        n);
        return;
    }
    for (size_t k = 0; k < n; k++) {
        int32_t s = next_ready(f, placed);
        for (int32_t i = 0; s < 0 && i < (int32_t)plan->n_sessions; i++)
            if (!placed[i]) s = i;
        placed[s] = true;
        f->whens[s] = when_of(f, s);
        td_plan_add_step(b, s, f->whens[s]);
    }
}

void td_plan_classify(td_plan_build_ctx *b) {
    finding f = {.b = b};
    size_t n = b->plan->n_sessions;
    f.kinds = TD_ARENA_ARRAY(b->scratch, kind, n);
    f.alternative = TD_ARENA_ARRAY(b->scratch, int, n);
    f.whens = TD_ARENA_ARRAY(b->scratch, td_when, n);
    if (!f.kinds || !f.alternative || !f.whens) {
        b->out_of_memory = true;
        return;
    }
    find_edges(&f);
    classify(&f);
    if (!b->out_of_memory && find_alternatives(&f)) emit(&f);
    td_vec_free(&f.edges);
}
