/* plan/pair.c - state found in a signature: which input takes next time what which output gives.
 *
 * A name is cut into words (letters and digits apart). Words that only say in or out are dropped; what is left is the stem. Equal
 * stems, type and rank pair. A cache name holds one layer number and one of key, value, k, v, kv. Two tensors without
 * a common stem pair only if they alone are left of their type and shape.
 * Source: the contract of the config, section 4 "Names". */
#include "plan/plan.h"

#include <ctype.h>

enum { MAX_WORDS = 16, STEM_BYTES = 160 };

const char *const td_state_kind_words[] = {
#define ROW(name, text) text,
    TD_STATE_KIND_LIST(ROW)
#undef ROW
        NULL,
};

typedef struct name_parts {
    char stem[STEM_BYTES]; /* words joined by '.', in or out dropped; self and cross normalised */
    bool says_state;       /* some word was dropped, or it is a cache name */
    bool cross;
    td_state_part part;
    int32_t layer;
} name_parts;

static bool is_word(td_str w, const char *const *list) {
    for (; *list; list++)
        if (td_str_is(w, *list)) return true;
    return false;
}

/* Cuts a name into lower-case words; true if they all fit. */
static bool cut(td_str name, char *lower, size_t room, td_str words[MAX_WORDS], size_t *n) {
    *n = 0;
    if (name.n >= room) return false;
    size_t begin = 0;
    for (size_t i = 0; i <= name.n; i++) {
        unsigned char c = i < name.n ? (unsigned char)name.p[i] : 0;
        bool part = i < name.n && isalnum(c);
        bool edge = part && i > begin &&
                    ((isdigit(c) != 0) != (isdigit((unsigned char)name.p[i - 1]) != 0) ||
                     (isupper(c) && islower((unsigned char)name.p[i - 1])));
        if ((!part || edge) && i > begin) {
            if (*n == MAX_WORDS) return false;
            words[(*n)++] = (td_str){lower + begin, i - begin};
        }
        if (i < name.n) lower[i] = (char)tolower(c);
        if (!part) begin = i + 1;
        else if (edge) begin = i;
    }
    return true;
}

static void take_apart(td_str name, name_parts *out) {
    static const char *const dropped[] = {"past", "present", "cache",   "new",   "old",    "in",
                                          "out",  "next",    "updated", "input", "output", NULL};
    static const char *const keys[] = {"key", "keys", "k", NULL}, *const values[] = {"value", "values", "v", NULL};
    static const char *const crosses[] = {"cross", "encoder", NULL}, *const selves[] = {"self", "decoder", NULL};
    char lower[256];
    td_str words[MAX_WORDS];
    size_t n, at = 0;
    int parts = 0, numbers = 0;
    *out = (name_parts){.layer = -1};
    if (!cut(name, lower, sizeof lower, words, &n)) return;
    for (size_t i = 0; i < n; i++) {
        td_str w = words[i];
        if (td_str_is(w, "key") && i + 1 < n && td_str_is(words[i + 1], "values")) {
            out->says_state = true;
            i++;
            continue;
        }
        if (is_word(w, dropped)) {
            out->says_state = true;
            continue;
        }
        if (is_word(w, keys)) out->part = TD_PART_KEY, parts++, w = TD_STR("key");
        else if (is_word(w, values)) out->part = TD_PART_VALUE, parts++, w = TD_STR("value");
        else if (td_str_is(w, "kv")) out->part = TD_PART_BOTH, parts++;
        else if (is_word(w, crosses)) out->cross = true, w = TD_STR("cross");
        else if (is_word(w, selves)) continue;
        else if (isdigit((unsigned char)w.p[0])) {
            if (w.n > 5) return;
            out->layer = 0;
            for (size_t k = 0; k < w.n; k++) out->layer = out->layer * 10 + (w.p[k] - '0');
            numbers++;
        }
        if (at + w.n + 2 > sizeof out->stem) return;
        if (at) out->stem[at++] = '.';
        memcpy(out->stem + at, w.p, w.n);
        at += w.n;
        out->stem[at] = 0;
    }
    if (parts != 1) out->part = TD_PART_OTHER;
    if (numbers != 1) out->layer = -1;
    if (out->part != TD_PART_OTHER && out->layer >= 0) out->says_state = true;
}

static bool same_type(const td_light_port *a, const td_light_port *b) {
    return a->kind == TD_ONNX_TYPE_TENSOR && b->kind == TD_ONNX_TYPE_TENSOR && a->dtype == b->dtype &&
           (a->shape.rank == b->shape.rank || b->shape.rank < 0);
}

/* Fixed dimensions agree; a free one fits anything. */
static bool fits(const td_light_port *a, const td_light_port *b) {
    if (!same_type(a, b)) return false;
    for (int i = 0; i < a->shape.rank && b->shape.rank >= 0; i++)
        if (a->shape.dims[i] >= 0 && b->shape.dims[i] >= 0 && a->shape.dims[i] != b->shape.dims[i]) return false;
    return true;
}

/* The dimension that grows: free in the input, not the batch. Where several are free, the one whose symbol changes. */
static int growing_axis(const td_light_port *in, const td_light_port *out, int batch_axis) {
    int usual = in->shape.rank == 3 ? 1 : in->shape.rank - 2, found = -1, n = 0;
    for (int i = 0; i < in->shape.rank; i++) {
        if (i == batch_axis || in->shape.dims[i] >= 0) continue;
        bool changes = out->shape.rank != in->shape.rank || !td_str_equal(in->dim_names[i], out->dim_names[i]) ||
                       !in->dim_names[i].n;
        if (found < 0 || changes) found = i;
        n++;
    }
    if (n > 1 && usual != batch_axis && usual >= 0 && in->shape.dims[usual] < 0) {
        bool changes = out->shape.rank == in->shape.rank && !td_str_equal(in->dim_names[usual], out->dim_names[usual]);
        if (changes || in->shape.dims[found] >= 0) return usual;
    }
    return found;
}

static void describe(td_state_tensor *s, const td_light_port *in, const td_light_port *out, const name_parts *parts) {
    s->from_session = s->from_output = -1;
    s->dtype = in->dtype;
    s->shape = in->shape;
    s->part = parts->part;
    s->layer = parts->layer;
    bool combined = in->shape.rank == 5 && in->shape.dims[0] == 2;
    s->batch_axis = combined ? 1 : 0;
    s->seq_axis = growing_axis(in, out, s->batch_axis);
    bool cache = parts->part != TD_PART_OTHER || combined;
    if (combined) s->kind = TD_STATE_COMBINED;
    else if (s->seq_axis >= 0) s->kind = parts->cross ? TD_STATE_CROSS : TD_STATE_SEPARATE;
    else s->kind = cache ? TD_STATE_STATIC : TD_STATE_RECURRENT;
    int rank = in->shape.rank;
    if (rank >= 4 && s->seq_axis == rank - 2) {
        s->heads = TD_MAX(in->shape.dims[rank - 3], 0);
        s->head_dim = TD_MAX(in->shape.dims[rank - 1], 0);
    }
}

typedef struct pairing {
    td_plan_build_ctx *b;
    int32_t session;
    const td_signature *sig;
    name_parts *ins, *outs;
    bool *in_done, *out_done;
    const td_state_tensor *first; /* of this session */
} pairing;

static void pair(pairing *p, size_t in, size_t out) {
    td_plan *plan = p->b->plan;
    td_state_tensor *s = &plan->states[plan->n_states];
    describe(s, &p->sig->inputs[in], &p->sig->outputs[out], &p->ins[in]);
    s->session = p->session;
    s->input = (int32_t)in;
    s->output = (int32_t)out;
    p->in_done[in] = p->out_done[out] = true;
    plan->sessions[p->session].feeds[in] = (td_feed){TD_FEED_STATE, (int32_t)plan->n_states};
    plan->sessions[p->session].out_state[out] = (int32_t)plan->n_states++;
}

/* A name written as a pattern with {layer} or %d in it, against a name. -1: no match. */
static int32_t match_pattern(td_str pattern, td_str name) {
    ptrdiff_t at = td_str_find(pattern, TD_STR("{layer}"));
    size_t hole = 7;
    if (at < 0) {
        at = td_str_find(pattern, TD_STR("%d"));
        hole = 2;
    }
    if (at < 0) return td_str_equal(pattern, name) ? 0 : -1;
    td_str head = {pattern.p, (size_t)at}, tail = {pattern.p + at + hole, pattern.n - (size_t)at - hole};
    if (name.n < head.n + tail.n + 1 || name.n > head.n + tail.n + 5 || !td_str_starts(name, head) ||
        !td_str_ends(name, tail))
        return -1;
    int32_t layer = 0;
    for (size_t i = head.n; i < name.n - tail.n; i++) {
        if (!isdigit((unsigned char)name.p[i])) return -1;
        layer = layer * 10 + (name.p[i] - '0');
    }
    return layer;
}

static void pair_by_patterns(pairing *p, td_str past, td_str present, td_state_part part) {
    for (size_t i = 0; past.n && present.n && i < p->sig->n_inputs; i++) {
        int32_t layer = match_pattern(past, p->sig->inputs[i].name);
        if (layer < 0 || p->in_done[i]) continue;
        for (size_t o = 0; o < p->sig->n_outputs; o++) {
            if (p->out_done[o] || match_pattern(present, p->sig->outputs[o].name) != layer) continue;
            p->ins[i].part = part;
            p->ins[i].layer = layer;
            pair(p, i, o);
            break;
        }
    }
}

static void pair_by_stem(pairing *p) {
    for (size_t i = 0; i < p->sig->n_inputs; i++) {
        if (p->in_done[i] || p->sig->inputs[i].kind != TD_ONNX_TYPE_TENSOR || !p->ins[i].stem[0]) continue;
        for (size_t o = 0; o < p->sig->n_outputs; o++) {
            if (p->out_done[o] || strcmp(p->ins[i].stem, p->outs[o].stem) != 0) continue;
            if (!p->ins[i].says_state && !p->outs[o].says_state) continue;
            if (!fits(&p->sig->inputs[i], &p->sig->outputs[o])) continue;
            pair(p, i, o);
            break;
        }
    }
}

/* The one free input and the one free output of a type and shape, where the input's name says that it is state. */
static void pair_leftovers(pairing *p) {
    for (size_t i = 0; i < p->sig->n_inputs; i++) {
        if (p->in_done[i] || !p->ins[i].says_state) continue;
        size_t n_in = 0, n_out = 0, found = 0;
        for (size_t k = 0; k < p->sig->n_inputs; k++)
            n_in += !p->in_done[k] && p->ins[k].says_state && fits(&p->sig->inputs[i], &p->sig->inputs[k]);
        for (size_t o = 0; o < p->sig->n_outputs; o++) {
            bool free_one = !p->out_done[o] && !td_str_is(p->sig->outputs[o].name, "logits") && p->outs[o].says_state &&
                            fits(&p->sig->inputs[i], &p->sig->outputs[o]);
            n_out += free_one;
            if (free_one) found = o;
        }
        if (n_in == 1 && n_out == 1) pair(p, i, found);
    }
}

/* What the missing partner would be called: the name of the partner of a sibling, with this one's word for key or value. */
static const char *partner_name(const pairing *p, size_t in) {
    td_arena *arena = p->b->messages->arena;
    const td_plan *plan = p->b->plan;
    td_str mine = p->sig->inputs[in].name;
    for (size_t k = 0; k < plan->n_states; k++) {
        const td_state_tensor *s = &plan->states[k];
        if (s->session != p->session || s->layer != p->ins[in].layer) continue;
        td_str in_name = p->sig->inputs[s->input].name, out_name = p->sig->outputs[s->output].name;
        size_t same = 0; /* common end of nothing but the differing word: find where the two inputs differ */
        while (same < in_name.n && same < mine.n && in_name.p[same] == mine.p[same]) same++;
        td_str theirs = {in_name.p + same, in_name.n - same}, ours = {mine.p + same, mine.n - same};
        while (theirs.n && ours.n && theirs.p[theirs.n - 1] == ours.p[ours.n - 1]) theirs.n--, ours.n--;
        ptrdiff_t at = theirs.n ? td_str_find(out_name, theirs) : -1;
        for (ptrdiff_t next = at; next >= 0;) { /* the last place: "key" also stands in "key_values" */
            td_str rest = {out_name.p + next + 1, out_name.n - (size_t)next - 1};
            ptrdiff_t more = td_str_find(rest, theirs);
            next = more < 0 ? -1 : next + 1 + more;
            if (next >= 0) at = next;
        }
        if (at < 0) continue;
        const char *name =
            td_arena_printf(arena, "%.*s%.*s%.*s", (int)at, out_name.p, TD_STR_ARGS(ours),
                            (int)(out_name.n - (size_t)at - theirs.n), out_name.p + (size_t)at + theirs.n);
        return name ? name : "";
    }
    return "";
}

/* A cache input that nothing feeds and no output continues: an error. Cross caches are fed by wires. */
static void report_lonely(pairing *p) {
    const td_plan_session *session = &p->b->plan->sessions[p->session];
    for (size_t i = 0; i < p->sig->n_inputs; i++) {
        const name_parts *parts = &p->ins[i];
        bool cache = parts->part != TD_PART_OTHER && parts->layer >= 0 && p->sig->inputs[i].shape.rank >= 3;
        if (p->in_done[i] || !cache || parts->cross || p->b->plan->n_sessions > 1) continue;
        const char *wanted = partner_name(p, i);
        td_str name = p->sig->inputs[i].name;
        td_messages_add(
            p->b->messages, TREADLE_MESSAGE_ERROR, td_plan_session_place(p->b, session),
            "state input \"%.*s\" of session \"%.*s\" has no partner: expected an output%s%s%s that continues it (outputs: %s)",
            TD_STR_ARGS(name), TD_STR_ARGS(session->name), wanted[0] ? " \"" : "", wanted, wanted[0] ? "\"" : "",
            td_plan_port_names(p->b->messages->arena, p->sig->outputs, p->sig->n_outputs));
        session->feeds[i] = (td_feed){TD_FEED_NONE, -2}; /* reported: not unfed as well */
    }
}

static void pair_session(td_plan_build_ctx *b, int32_t index) {
    td_plan_session *session = &b->plan->sessions[index];
    const td_signature *sig = session->signature;
    td_arena *arena = &b->plan->arena;
    pairing p = {.b = b, .session = index, .sig = sig};
    p.ins = TD_ARENA_ARRAY(arena, name_parts, sig->n_inputs);
    p.outs = TD_ARENA_ARRAY(arena, name_parts, sig->n_outputs);
    p.in_done = TD_ARENA_ARRAY(arena, bool, sig->n_inputs);
    p.out_done = TD_ARENA_ARRAY(arena, bool, sig->n_outputs);
    if (!p.ins || !p.outs || !p.in_done || !p.out_done) {
        b->out_of_memory = true;
        return;
    }
    for (size_t i = 0; i < sig->n_inputs; i++) {
        take_apart(sig->inputs[i].name, &p.ins[i]);
        p.in_done[i] = td_plan_role(session, i) != TD_ROLE_NONE;
    }
    for (size_t o = 0; o < sig->n_outputs; o++) take_apart(sig->outputs[o].name, &p.outs[o]);
    const td_config *c = b->config;
    pair_by_patterns(&p, c->state.past_key, c->state.present_key, TD_PART_KEY);
    pair_by_patterns(&p, c->state.past_value, c->state.present_value, TD_PART_VALUE);
    pair_by_patterns(&p, c->state.past, c->state.present, TD_PART_BOTH);
    pair_by_stem(&p);
    pair_leftovers(&p);
    report_lonely(&p);
}

void td_plan_find_states(td_plan_build_ctx *b) {
    size_t most = 0;
    for (size_t i = 0; i < b->plan->n_sessions; i++)
        if (b->plan->sessions[i].signature) most += b->plan->sessions[i].signature->n_inputs;
    b->plan->states = TD_ARENA_ARRAY(&b->plan->arena, td_state_tensor, most);
    if (!b->plan->states) {
        b->out_of_memory = true;
        return;
    }
    for (size_t i = 0; i < b->plan->n_sessions && !b->out_of_memory; i++)
        if (b->plan->sessions[i].signature) pair_session(b, (int32_t)i);
}
