/* plan/pair.c - state found in one signature: which input takes next time what which output gives.
 *
 * Declared patterns and pairs first, then equal stems, then the one free input and the one free output of a type and
 * shape. Every input pairs once, every output once. Cross caches are recorded here even without an output: cross.c says
 * what fills them. Source: the contract of the config, section 4. */
#include "plan/build.h"

#include <ctype.h>

const char *const td_state_kind_words[] = {
#define ROW(name, text) text,
    TD_STATE_KIND_LIST(ROW)
#undef ROW
        NULL,
};

typedef struct pairing {
    td_plan_build_ctx *b;
    int32_t session;
    const td_signature *sig;
    td_name_parts *ins, *outs;
    bool *in_done, *out_done;
    td_str rows; /* symbol of the dimension that counts rows; may be empty */
} pairing;

static bool same_type(const td_light_port *a, const td_light_port *b) {
    return a->kind == TD_ONNX_TYPE_TENSOR && b->kind == TD_ONNX_TYPE_TENSOR && a->dtype == b->dtype &&
           (a->shape.rank == b->shape.rank || b->shape.rank < 0);
}

/* Fixed dimensions agree; a free one fits anything. */
static bool fits(const td_light_port *in, const td_light_port *out) {
    if (!same_type(in, out)) return false;
    for (int i = 0; i < in->shape.rank && out->shape.rank >= 0; i++)
        if (in->shape.dims[i] >= 0 && out->shape.dims[i] >= 0 && in->shape.dims[i] != out->shape.dims[i]) return false;
    return true;
}

/* Each has a size where the other has a free dimension: sound in and features out, say. */
static bool sizes_cross(const td_light_port *in, const td_light_port *out) {
    bool in_alone = false, out_alone = false;
    for (int i = 0; i < in->shape.rank && out->shape.rank >= 0; i++) {
        in_alone |= in->shape.dims[i] >= 0 && out->shape.dims[i] < 0;
        out_alone |= in->shape.dims[i] < 0 && out->shape.dims[i] >= 0;
    }
    return in_alone && out_alone;
}

/* A tensor that has the positions of this run, and no others, is no state: hidden states in and out of a stage. */
static bool passes_through(const pairing *p, const td_light_port *in, const td_light_port *out) {
    const td_plan_session *s = &p->b->plan->sessions[p->session];
    bool flat =
        td_plan_has_flat_ids(s); /* nothing says what counts rows, but their symbol says what counts positions */
    const td_light_port *ids = flat ? &p->sig->inputs[td_plan_token_input(s)] : NULL;
    for (int i = flat ? 0 : 1; i < in->shape.rank && in->shape.rank == out->shape.rank; i++)
        if (in->shape.dims[i] < 0 && in->dim_names[i].n && td_str_equal(in->dim_names[i], out->dim_names[i]) &&
            (flat ? td_str_equal(in->dim_names[i], ids->dim_names[0]) : !td_str_equal(in->dim_names[i], p->rows)))
            return true;
    return false;
}

static td_state_tensor *add_state(pairing *p, size_t in, ptrdiff_t out) {
    td_plan *plan = p->b->plan;
    td_state_tensor *s = &plan->states[plan->n_states];
    td_plan_describe_state(p->b, p->session, in, out < 0 ? NULL : &p->sig->outputs[out], &p->ins[in], s);
    s->output = (int32_t)out;
    p->in_done[in] = true;
    plan->sessions[p->session].feeds[in] = (td_feed){TD_FEED_STATE, (int32_t)plan->n_states};
    if (out >= 0) {
        p->out_done[out] = true;
        plan->sessions[p->session].out_state[out] = (int32_t)plan->n_states;
    }
    plan->n_states++;
    return s;
}

static void add_cross(pairing *p, size_t in, ptrdiff_t out) {
    td_state_tensor *s = add_state(p, in, out);
    s->kind = TD_STATE_CROSS;
    if (out < 0) return;
    s->from_session = p->session;
    s->from_output = (int32_t)out;
}

/* --- declared */

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
            if (!fits(&p->sig->inputs[i], &p->sig->outputs[o])) continue;
            p->ins[i].part = part;
            p->ins[i].layer = layer;
            if (p->ins[i].cross) add_cross(p, i, (ptrdiff_t)o);
            else add_state(p, i, (ptrdiff_t)o);
            break;
        }
    }
}

/* The port that a declared pair means, in this session. -1: it means another one. */
static ptrdiff_t declared_port(const pairing *p, td_str name, bool input) {
    const td_plan_session *s = &p->b->plan->sessions[p->session];
    int32_t port = input ? td_plan_input_index(s, name) : td_plan_output_index(s, name);
    if (port >= 0) return port;
    if (!td_str_starts(name, s->name) || name.n <= s->name.n + 1 || name.p[s->name.n] != '.') return -1;
    name = (td_str){name.p + s->name.n + 1, name.n - s->name.n - 1};
    return input ? td_plan_input_index(s, name) : td_plan_output_index(s, name);
}

static void pair_declared(pairing *p) {
    const td_config_state *c = &p->b->config->state;
    for (size_t k = 0; k < c->n_recurrent; k++) {
        const td_config_recurrent *row = &c->recurrent[k];
        ptrdiff_t in = declared_port(p, row->input, true), out = declared_port(p, row->output, false);
        if (in < 0 || out < 0) continue;
        if (p->in_done[in] || p->out_done[out]) {
            bool input = p->in_done[in];
            td_str name = input ? row->input : row->output;
            td_messages_add(p->b->messages, td_plan_misfit(p->b),
                            td_tree_place(p->b->messages->arena, input ? row->input_json : row->output_json, false),
                            "expected an %s that is nothing else yet, found \"%.*s\", which is %s",
                            input ? "input" : "output", (int)TD_MIN(name.n, (size_t)200), name.p,
                            input ? "fed by a role, or declared twice" : "the logits, or declared twice");
            continue;
        }
        if (!fits(&p->sig->inputs[in], &p->sig->outputs[out])) {
            td_messages_add(
                p->b->messages, td_plan_misfit(p->b), td_tree_place(p->b->messages->arena, row->json, false),
                "expected a state pair of one type and shape, found %.*s (%s, rank %d) and %.*s (%s, rank %d)",
                TD_STR_ARGS(row->input), td_dtype_name(p->sig->inputs[in].dtype), p->sig->inputs[in].shape.rank,
                TD_STR_ARGS(row->output), td_dtype_name(p->sig->outputs[out].dtype), p->sig->outputs[out].shape.rank);
            p->in_done[in] = p->out_done[out] =
                p->b->config->version != 1; /* said once; a hint leaves them to their names */
            continue;
        }
        td_state_tensor *s = add_state(p, (size_t)in, out);
        if (s->kind == TD_STATE_STATIC) s->kind = TD_STATE_RECURRENT, s->seq_axis = -1;
        s->init = row->init;
    }
}

static bool any_matches(const td_plan *plan, td_str pattern) {
    for (size_t k = 0; k < plan->n_sessions; k++) {
        const td_signature *sig = plan->sessions[k].signature;
        for (size_t i = 0; sig && i < sig->n_inputs + sig->n_outputs; i++) {
            td_str name = i < sig->n_inputs ? sig->inputs[i].name : sig->outputs[i - sig->n_inputs].name;
            if (match_pattern(pattern, name) >= 0) return true;
        }
    }
    return false;
}

/* Patterns of a file that means them (version 1 files carry defaults that need not) and that no name has. */
static void check_patterns(td_plan_build_ctx *b) {
    static const char *const keys[] = {"past_key_pattern",      "past_value_pattern", "present_key_pattern",
                                       "present_value_pattern", "past_pattern",       "present_pattern"};
    const td_json *kv = td_json_get(b->config->state.json, "kv_cache");
    for (size_t i = 0; i < TD_COUNT(keys) && b->config->version != 1; i++) {
        const td_json *v = td_json_get(kv, keys[i]);
        if (!v || v->kind != TD_JSON_STRING || any_matches(b->plan, v->string)) continue;
        td_messages_add(
            b->messages, TREADLE_MESSAGE_WARNING, td_tree_place(b->messages->arena, v, false),
            "expected a name of the graphs with {layer} or %%d for the layer, found \"%.*s\", which matches none: "
            "the caches are found by their names",
            (int)TD_MIN(v->string.n, (size_t)200), v->string.p);
    }
}

/* Declared pairs that no session has. */
static void check_declared(td_plan_build_ctx *b) {
    const td_config_state *c = &b->config->state;
    check_patterns(b);
    for (size_t k = 0; k < c->n_recurrent; k++) {
        const td_config_recurrent *row = &c->recurrent[k];
        bool in = false, out = false;
        for (size_t i = 0; i < b->plan->n_sessions; i++) {
            pairing p = {.b = b, .session = (int32_t)i};
            if (!b->plan->sessions[i].signature) return;
            in |= declared_port(&p, row->input, true) >= 0;
            out |= declared_port(&p, row->output, false) >= 0;
        }
        td_str name = in ? row->output : row->input;
        if (!in || !out)
            td_messages_add(b->messages, td_plan_misfit(b),
                            td_tree_place(b->messages->arena, in ? row->output_json : row->input_json, false),
                            "expected an %s of a session, found no \"%.*s\"", in ? "output" : "input",
                            (int)TD_MIN(name.n, (size_t)200), name.p);
    }
}

/* --- by name */

typedef struct stem_index {
    td_map map;    /* stem: its first output */
    int32_t *next; /* [n_outputs] */
} stem_index;

static bool index_stems(const pairing *p, stem_index *index) {
    index->map = (td_map){0};
    index->next = TD_ARENA_ARRAY(p->b->scratch, int32_t, p->sig->n_outputs);
    bool ok = index->next && td_map_reserve(&index->map, p->sig->n_outputs);
    for (size_t o = p->sig->n_outputs; ok && o-- > 0;) {
        td_str stem = td_str_from(p->outs[o].stem);
        uint64_t first;
        index->next[o] = td_map_get(&index->map, stem, &first) ? (int32_t)first : -1;
        ok = td_map_set(&index->map, stem, o);
    }
    return ok;
}

static bool names_say_state(const td_name_parts *in, const td_name_parts *out) {
    return in->says_side || in->says_state || out->says_side || out->says_state || strcmp(in->stem, out->stem) != 0;
}

/* Takes output o for input i if all but their stems agrees. */
static bool try_pair(pairing *p, size_t i, size_t o) {
    const td_light_port *in = &p->sig->inputs[i], *out = &p->sig->outputs[o];
    const td_name_parts *parts = &p->ins[i];
    if (p->out_done[o] || !names_say_state(parts, &p->outs[o]) || !fits(in, out)) return false;
    bool cross = td_name_is_cross_cache(parts);
    if (parts->part == TD_PART_OTHER && passes_through(p, in, out)) return false;
    if (!parts->says_state && !p->outs[o].says_state && sizes_cross(in, out)) return false;
    if (cross) add_cross(p, i, (ptrdiff_t)o);
    else add_state(p, i, (ptrdiff_t)o);
    return true;
}

static void pair_by_stem(pairing *p) {
    stem_index index;
    if (!index_stems(p, &index)) p->b->out_of_memory = true;
    for (size_t i = 0; i < p->sig->n_inputs && !p->b->out_of_memory; i++) {
        if (p->in_done[i] || p->sig->inputs[i].kind != TD_ONNX_TYPE_TENSOR || !p->ins[i].stem[0]) continue;
        uint64_t first;
        int32_t o = td_map_get(&index.map, td_str_from(p->ins[i].stem), &first) ? (int32_t)first : -1;
        while (o >= 0 && !try_pair(p, i, (size_t)o)) o = index.next[o];
        /* a weight that is listed as an input may be called encoder.layers.0.k_proj */
        if (o < 0 && td_name_is_cross_cache(&p->ins[i]) && !p->sig->inputs[i].optional) add_cross(p, i, -1);
    }
    td_map_free(&index.map);
    /* names that differ by a step's mark; short names, few of them */
    for (size_t i = 0; i < p->sig->n_inputs; i++) {
        if (p->in_done[i] || p->sig->inputs[i].kind != TD_ONNX_TYPE_TENSOR || p->ins[i].layer > 0) continue;
        for (size_t o = 0; o < p->sig->n_outputs; o++)
            if (td_name_same_stem(&p->ins[i], &p->outs[o]) && try_pair(p, i, o)) break;
    }
}

/* Ops that put new positions into a cache: where they take it, and where they give it. */
static const struct {
    const char *domain, *op_type;
    uint32_t slot, output;
} joins[] = {
    {"", "Concat", 0, 0},
    {"", "TensorScatter", 0, 0},
    {"", "Attention", 4, 1},
    {"", "Attention", 5, 2},
    {"com.microsoft", "GroupQueryAttention", 3, 1},
    {"com.microsoft", "GroupQueryAttention", 4, 2},
    {"com.microsoft", "MultiHeadAttention", 6, 1},
    {"com.microsoft", "MultiHeadAttention", 7, 2},
};

/* The graph's output that such an op makes of an input; -1: none. */
static ptrdiff_t joined_output(const pairing *p, size_t input) {
    const td_uses *uses = &p->b->uses[p->session];
    for (int32_t u = uses->first[input]; u >= 0; u = uses->items[u].next)
        for (size_t k = 0; k < TD_COUNT(joins); k++) {
            const td_use *use = &uses->items[u];
            if (use->slot != joins[k].slot || use->node->n_outputs <= joins[k].output) continue;
            if (!td_use_is(use, joins[k].domain, joins[k].op_type)) continue;
            ptrdiff_t found = td_signature_find_output(p->sig, use->node->outputs[joins[k].output]);
            if (found >= 0 && !p->out_done[found] && fits(&p->sig->inputs[input], &p->sig->outputs[found]))
                return found;
        }
    return -1;
}

/* Caches whose outputs are called anything: exporters that trace give them the names of nodes. */
static void pair_by_joins(pairing *p) {
    for (size_t i = 0; i < p->sig->n_inputs; i++) {
        if (p->in_done[i] || p->sig->inputs[i].kind != TD_ONNX_TYPE_TENSOR || !p->ins[i].says_state) continue;
        ptrdiff_t found = joined_output(p, i);
        if (found < 0) continue;
        if (td_name_is_cross_cache(&p->ins[i])) add_cross(p, i, found);
        else add_state(p, i, found);
    }
}

/* The one free input and the one free output of a type and shape, where the names say that they are state, both of
 * cross attention or neither: an encoder's hidden states do not become the decoder's. */
static void pair_leftovers(pairing *p) {
    for (size_t i = 0; i < p->sig->n_inputs; i++) {
        if (p->in_done[i] || !p->ins[i].says_state) continue;
        size_t n_in = 0, n_out = 0, found = 0;
        for (size_t k = 0; k < p->sig->n_inputs; k++)
            n_in += !p->in_done[k] && p->ins[k].says_state && p->ins[k].cross == p->ins[i].cross &&
                    fits(&p->sig->inputs[i], &p->sig->inputs[k]);
        for (size_t o = 0; o < p->sig->n_outputs; o++) {
            const td_light_port *out = &p->sig->outputs[o];
            bool free_one = !p->out_done[o] && p->outs[o].says_state && p->outs[o].cross == p->ins[i].cross &&
                            fits(&p->sig->inputs[i], out) && !passes_through(p, &p->sig->inputs[i], out);
            n_out += free_one;
            if (free_one) found = o;
        }
        if (n_in == 1 && n_out == 1) add_state(p, i, (ptrdiff_t)found);
    }
}

/* Keys and values that never grow among some that do are of an attention to something else: the first run makes
 * them, later ones hand them on. */
static void find_frozen(pairing *p, size_t first) {
    td_plan *plan = p->b->plan;
    bool some_grow = false;
    for (int round = 0; round < 2; round++)
        for (size_t k = first; k < plan->n_states; k++) {
            td_state_tensor *s = &plan->states[k];
            if (s->kind != TD_STATE_SEPARATE || s->part == TD_PART_OTHER || s->output < 0) continue;
            const td_light_port *in = &p->sig->inputs[s->input], *out = &p->sig->outputs[s->output];
            bool same = out->shape.rank == in->shape.rank && in->dim_names[s->seq_axis].n &&
                        td_str_equal(in->dim_names[s->seq_axis], out->dim_names[s->seq_axis]);
            if (round == 0) some_grow |= !same;
            else if (same && some_grow) {
                s->kind = TD_STATE_CROSS;
                s->from_session = s->session;
                s->from_output = s->output;
            }
        }
}

/* --- what has no partner */

/* What the missing partner would be called: the name of the partner of a sibling, with this
 * one's word for key or value. */
static const char *partner_name(const td_plan_build_ctx *b, int32_t session, size_t in, int32_t layer) {
    td_arena *arena = b->messages->arena;
    const td_plan *plan = b->plan;
    const td_signature *sig = plan->sessions[session].signature;
    td_str mine = sig->inputs[in].name;
    for (size_t k = 0; k < plan->n_states; k++) {
        const td_state_tensor *s = &plan->states[k];
        if (s->session != session || s->layer != layer || s->output < 0) continue;
        td_str in_name = sig->inputs[s->input].name, out_name = sig->outputs[s->output].name;
        size_t same = 0; /* find where the two inputs differ: there stands the word for key or value */
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

bool td_plan_report_lonely(td_plan_build_ctx *b, int32_t session, size_t input) {
    const td_plan_session *s = &b->plan->sessions[session];
    const td_name_parts *parts = &b->ins[session][input];
    const td_light_port *port = &s->signature->inputs[input];
    if (parts->part == TD_PART_OTHER || parts->layer < 0 || port->shape.rank < 3 || port->optional) return false;
    const char *wanted = partner_name(b, session, input, parts->layer);
    td_messages_add(
        b->messages, TREADLE_MESSAGE_ERROR, td_plan_session_place(b, s),
        "state input \"%.*s\" of session \"%.*s\" has no partner: expected an output%s%s%s that continues it (outputs: %s)",
        TD_STR_ARGS(s->signature->inputs[input].name), TD_STR_ARGS(s->name), wanted[0] ? " \"" : "", wanted,
        wanted[0] ? "\"" : "", td_plan_port_names(b->messages->arena, s->signature->outputs, s->signature->n_outputs));
    s->feeds[input] = (td_feed){TD_FEED_NONE, TD_FEED_SAID};
    return true;
}

static void pair_session(td_plan_build_ctx *b, int32_t index) {
    td_plan_session *session = &b->plan->sessions[index];
    const td_signature *sig = session->signature;
    pairing p = {.b = b, .session = index, .sig = sig, .ins = b->ins[index], .outs = b->outs[index]};
    int64_t fixed_rows;
    td_plan_find_rows(b, index, &p.rows, &fixed_rows);
    p.in_done = TD_ARENA_ARRAY(b->scratch, bool, sig->n_inputs);
    p.out_done = TD_ARENA_ARRAY(b->scratch, bool, sig->n_outputs);
    if (!p.in_done || !p.out_done) {
        b->out_of_memory = true;
        return;
    }
    for (size_t i = 0; i < sig->n_inputs; i++) p.in_done[i] = td_plan_role(session, i) != TD_ROLE_NONE;
    for (size_t o = 0; o < sig->n_outputs; o++)
        p.out_done[o] = td_str_is(td_plan_wire_name(session, false, o), "logits");
    size_t first = b->plan->n_states;
    const td_config_state *c = &b->config->state;
    pair_declared(&p);
    pair_by_patterns(&p, c->past_key, c->present_key, TD_PART_KEY);
    pair_by_patterns(&p, c->past_value, c->present_value, TD_PART_VALUE);
    pair_by_patterns(&p, c->past, c->present, TD_PART_BOTH);
    for (size_t i = 0; i < sig->n_inputs; i++) p.in_done[i] |= b->handed[index][i];
    pair_by_stem(&p);
    pair_by_joins(&p);
    pair_leftovers(&p);
    find_frozen(&p, first);
    td_plan_find_presents(b, index, first);
    td_plan_find_sizes(b, first);
    for (size_t i = 0; i < sig->n_inputs && b->plan->n_sessions == 1; i++)
        if (!p.in_done[i]) td_plan_report_lonely(b, index, i);
    for (size_t k = first; k < b->plan->n_states; k++) /* caches grow by tokens, whatever the input is called */
        session->takes_tokens |=
            b->plan->states[k].kind == TD_STATE_COMBINED ||
            (b->plan->states[k].kind != TD_STATE_RECURRENT && b->plan->states[k].part != TD_PART_OTHER);
}

/* What is said of the caches, and no cache is like it: worth a word, for the graph decides. */
static void check_said(td_plan_build_ctx *b) {
    static const td_state_kind kinds[] = {[TD_KV_FORMAT_SEPARATE] = TD_STATE_SEPARATE,
                                          [TD_KV_FORMAT_COMBINED] = TD_STATE_COMBINED,
                                          [TD_KV_FORMAT_STATIC] = TD_STATE_STATIC};
    const td_plan *plan = b->plan;
    const td_config_state *c = &b->config->state;
    td_arena *arena = b->messages->arena;
    bool found = c->kv_format == TD_KV_FORMAT_AUTO;
    for (size_t k = 0; k < plan->n_states && !found; k++) found = plan->states[k].kind == kinds[c->kv_format];
    if (!found && plan->n_states && c->json)
        td_messages_add(b->messages, b->config->version == 1 ? TREADLE_MESSAGE_NOTE : TREADLE_MESSAGE_WARNING,
                        td_tree_place(arena, c->json, false),
                        "kv_cache format \"%s\" is declared, but the graph has no such cache",
                        td_kv_format_words[c->kv_format]);
    for (size_t i = 0; i < c->window.n_layers; i++) {
        bool layer = false;
        for (size_t k = 0; k < plan->n_states && !layer; k++) layer = plan->states[k].layer == c->window.layers[i];
        if (layer || !plan->n_states) continue;
        td_messages_add(b->messages, b->config->version == 1 ? TREADLE_MESSAGE_NOTE : TREADLE_MESSAGE_WARNING,
                        td_tree_place(arena, c->window.json, false),
                        "sliding_window names layer %d, which has no cache", c->window.layers[i]);
        return;
    }
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
    check_declared(b);
    check_said(b);
}
