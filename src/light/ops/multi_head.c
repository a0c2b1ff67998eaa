/* light/ops/multi_head.c - com.microsoft MultiHeadAttention and DecoderMaskedMultiHeadAttention: self and cross
 * attention over projected queries, keys and values. Source: onnxruntime docs/ContribOperators.md, release 1.31.
 *
 * Forms of query, key, value: [batch, tokens, heads * size] each; the same with the three in one query (packed, of 5
 * dimensions, or of 3 in the decoder's op), or key and value in one key; or query as above with key and value of a
 * finished cache [batch, heads, tokens, size]. With past_sequence_length past is a buffer of fixed capacity, of
 * which that many rows are in use. */
#include "light/ops/mha.h"

enum role {
    QUERY,
    KEY,
    VALUE,
    BIAS,
    MASK,
    SCORE_BIAS,
    PAST_KEY,
    PAST_VALUE,
    PAST_LENGTH,
    BEAMS,
    N_ROLES,
};
enum { OUT_Y, OUT_KEY, OUT_VALUE, OUT_SCORES };

/* The input that has each role. */
static const uint8_t places_of[2][N_ROLES] = {{[QUERY] = 0,
                                               [KEY] = 1,
                                               [VALUE] = 2,
                                               [BIAS] = 3,
                                               [MASK] = 4,
                                               [SCORE_BIAS] = 5,
                                               [PAST_KEY] = 6,
                                               [PAST_VALUE] = 7,
                                               [PAST_LENGTH] = 8,
                                               [BEAMS] = 9},
                                              {[QUERY] = 0,
                                               [KEY] = 1,
                                               [VALUE] = 2,
                                               [BIAS] = 10,
                                               [MASK] = 3,
                                               [SCORE_BIAS] = 4,
                                               [PAST_KEY] = 5,
                                               [PAST_VALUE] = 6,
                                               [PAST_LENGTH] = 7,
                                               [BEAMS] = 9}};

typedef struct multi_state {
    td_mha_attrs attrs;
    bool decoder; /* DecoderMaskedMultiHeadAttention */
    bool shared;  /* past is a buffer */
} multi_state;

static size_t place_of(const multi_state *s, enum role role) { return places_of[s->decoder][role]; }

static treadle_status prepare(td_prepare *p, bool decoder) {
    multi_state *s = p->state;

    TD_TRY(td_mha_prepare(p, &s->attrs));
    s->decoder = decoder;
    bool has_past = td_has_input(p, place_of(s, PAST_KEY)), has_length = td_has_input(p, place_of(s, PAST_LENGTH));
    s->shared = has_past && (decoder ? td_attr_int(p, "past_present_share_buffer") != 0 : has_length);
    if (has_past != td_has_input(p, place_of(s, PAST_VALUE)))
        return td_bad_node(p, "expected past_key and past_value together, found one of them");
    if (s->shared && !has_length) return td_bad_node(p, "past_present_share_buffer needs past_sequence_length");
    if (td_has_input(p, VALUE) && !td_has_input(p, KEY)) return td_bad_node(p, "value without key");
    return TREADLE_OK;
}

static treadle_status multi_prepare(td_prepare *p) { return prepare(p, false); }
static treadle_status decoder_prepare(td_prepare *p) { return prepare(p, true); }

/* Everything in numbers; TD_DIM_UNKNOWN at open. */
typedef struct sizes {
    int64_t n_batch, n_q, n_new, size, v_size;
} sizes;

static const td_tensor *given(const multi_state *s, const td_infer *in, enum role role) {
    size_t i = place_of(s, role);
    return i < in->n_inputs && in->inputs[i]->kind == TD_VALUE_TENSOR ? &in->inputs[i]->tensor : NULL;
}

static int64_t per_head(int64_t n, int64_t heads) { return n < 0 ? TD_DIM_UNKNOWN : n / heads; }

/* false: ranks are not known. */
static bool sizes_of(const multi_state *s, const td_shape *q, const td_shape *k, const td_shape *v, sizes *n) {
    int64_t heads = s->attrs.n_heads;
    if (q->rank < 0 || (k && k->rank < 0) || (v && v->rank < 0)) return false;
    *n = (sizes){q->dims[0], q->dims[1], q->dims[1], TD_DIM_UNKNOWN, TD_DIM_UNKNOWN};
    if (q->rank == 5) n->size = q->dims[4];
    else n->size = per_head(q->dims[2], heads * (k || !s->decoder ? 1 : 3));
    n->v_size = n->size;
    if (k) n->n_new = k->dims[k->rank == 4 ? 2 : 1];
    if (v) n->v_size = v->rank == 4 ? v->dims[3] : per_head(v->dims[2], heads);
    return true;
}

/* The ranks and head counts of every form. */
static treadle_status check_forms(td_infer *in, const multi_state *s, const td_shape *q, const td_shape *k,
                                  const td_shape *v, const sizes *n) {
    int64_t heads = s->attrs.n_heads;
    td_shape want_k = {3, {n->n_batch, n->n_new, n->size * heads}},
             want_v = {3, {n->n_batch, n->n_new, n->v_size * heads}};

    if (!k && q->rank != 5 && !s->decoder)
        return td_infer_fail(in, "expected query to have 5 dimensions, as there is no key");
    if (q->rank != (k || s->decoder ? 3 : 5)) return td_infer_fail(in, "query has %d dimensions", q->rank);
    if (q->rank == 5 && (q->dims[2] != heads || q->dims[3] != 3))
        return td_infer_fail(in, "expected query to be [batch, tokens, %lld, 3, size]", (long long)heads);
    if (q->rank == 3 && q->dims[2] % (heads * (k ? 1 : 3)) != 0)
        return td_infer_fail(in, "query is not a multiple of %lld heads", (long long)heads);
    if (k && k->rank == 5) want_k = (td_shape){5, {n->n_batch, n->n_new, heads, 2, n->size}};
    if (k && k->rank == 4) {
        want_k = (td_shape){4, {n->n_batch, heads, n->n_new, n->size}};
        want_v = (td_shape){4, {n->n_batch, heads, n->n_new, n->v_size}};
    }
    if (k && (k->rank == 5) != !v) return td_infer_fail(in, "value goes with a key of 3 or 4 dimensions");
    char text[128];
    if (k && !td_shape_equal(k, &want_k))
        return td_infer_fail(in, "expected key to be %s", td_shape_text(&want_k, text));
    if (v && !td_shape_equal(v, &want_v))
        return td_infer_fail(in, "expected value to be %s", td_shape_text(&want_v, text));
    if (k && k->rank == 4 && given(s, in, PAST_KEY)) return td_infer_fail(in, "a past beside a finished cache");
    return TREADLE_OK;
}

static treadle_status check_past(td_infer *in, const multi_state *s, enum role role, const sizes *n, int64_t size) {
    const td_tensor *past = given(s, in, role), *key = given(s, in, PAST_KEY);
    char text[128];
    if (!past || !td_shape_known(&past->shape) || key->shape.rank != 4) return TREADLE_OK;
    td_shape want = {4, {n->n_batch, s->attrs.n_heads, key->shape.dims[2], size}};
    if (td_shape_known(&want) && !td_shape_equal(&past->shape, &want))
        return td_infer_fail(in, "expected past to be %s", td_shape_text(&want, text));
    return TREADLE_OK;
}

/* Rows of the past in use, and those of present; TD_DIM_UNKNOWN. */
static treadle_status past_rows(td_infer *in, const multi_state *s, int64_t n_new, int64_t *n_past, int64_t *n_room) {
    const td_tensor *past = given(s, in, PAST_KEY), *length = given(s, in, PAST_LENGTH);

    *n_past = past ? past->shape.rank == 4 ? past->shape.dims[2] : TD_DIM_UNKNOWN : 0;
    *n_room = *n_past < 0 || n_new < 0 ? TD_DIM_UNKNOWN : *n_past + n_new;
    if (past && past->shape.rank >= 0 && past->shape.rank != 4)
        return td_infer_fail(in, "expected past to have 4 dimensions");
    if (!s->shared) return TREADLE_OK;
    *n_room = *n_past;
    *n_past = TD_DIM_UNKNOWN;
    if (!length->data || !td_shape_known(&length->shape)) return TREADLE_OK;
    if (td_tensor_count(length) != 1) return td_infer_fail(in, "expected past_sequence_length to be one number");
    *n_past = ((const int32_t *)length->data)[0];
    if (*n_past < 0 || (*n_room >= 0 && n_new >= 0 && *n_past > *n_room - n_new))
        return td_infer_fail(in, "past_sequence_length is %lld, with %lld new tokens and room for %lld",
                             (long long)*n_past, (long long)n_new, (long long)*n_room);
    return TREADLE_OK;
}

static treadle_status multi_infer(td_infer *in) {
    const multi_state *s = in->state;
    const td_shape *q = &in->inputs[QUERY]->tensor.shape;
    const td_tensor *key = given(s, in, KEY), *value = given(s, in, VALUE);
    const td_shape *k = key ? &key->shape : NULL, *v = value ? &value->shape : NULL;
    int64_t heads = s->attrs.n_heads, n_past, n_room;
    td_dtype dtype = s->attrs.dtype;
    sizes n;

    if (!sizes_of(s, q, k, v, &n)) {
        TD_TRY(td_infer_unknown(in, OUT_Y, dtype, 3));
        TD_TRY(td_infer_unknown(in, OUT_KEY, dtype, 4));
        TD_TRY(td_infer_unknown(in, OUT_VALUE, dtype, 4));
        return td_infer_unknown(in, OUT_SCORES, dtype, 4);
    }
    if (td_shape_known(q) && (!k || td_shape_known(k)) && (!v || td_shape_known(v)))
        TD_TRY(check_forms(in, s, q, k, v, &n));
    TD_TRY(check_past(in, s, PAST_KEY, &n, n.size));
    TD_TRY(check_past(in, s, PAST_VALUE, &n, n.v_size));
    TD_TRY(past_rows(in, s, n.n_new, &n_past, &n_room));
    td_shape y = {3, {n.n_batch, n.n_q, n.v_size < 0 ? TD_DIM_UNKNOWN : n.v_size * heads}};
    td_shape present = {4, {n.n_batch, heads, n_room, n.size}};
    td_shape scores = {4, {n.n_batch, heads, n.n_q, n_past < 0 || n.n_new < 0 ? TD_DIM_UNKNOWN : n_past + n.n_new}};
    TD_TRY(td_infer_set(in, OUT_Y, dtype, &y));
    TD_TRY(td_infer_set(in, OUT_KEY, dtype, &present));
    present.dims[3] = n.v_size;
    TD_TRY(td_infer_set(in, OUT_VALUE, dtype, &present));
    return td_infer_set(in, OUT_SCORES, dtype, &scores);
}

/* --- run */

static const td_tensor *input(const td_run *r, const multi_state *s, enum role role) {
    size_t i = place_of(s, role);
    return i < r->n_inputs ? r->in[i] : NULL;
}

static td_tensor *output(const td_run *r, size_t i) { return i < r->n_outputs ? r->out[i] : NULL; }

/* Part `part` of [batch, tokens, heads, parts, size]. */
static treadle_status part_of(td_run *r, const td_tensor *t, int64_t part, td_heads *out) {
    const int64_t *d = t->shape.dims, *s = t->strides;
    td_tensor view = {.dtype = t->dtype, .shape = {4, {d[0], d[2], d[1], d[4]}}, .strides = {s[0], s[2], s[1], s[4]}};
    view.data = (char *)t->data + part * s[3] * (td_dtype_bits(t->dtype) / 8);
    return td_heads_of_cache(r, &view, out);
}

static treadle_status inputs_as_heads(td_mha *w, const multi_state *s) {
    td_run *r = w->r;
    const td_tensor *q = r->in[QUERY], *k = input(r, s, KEY), *v = input(r, s, VALUE);

    if (q->shape.rank == 5) {
        TD_TRY(part_of(r, q, 0, &w->q));
        TD_TRY(part_of(r, q, 1, &w->new_k));
        return part_of(r, q, 2, &w->new_v);
    }
    TD_TRY(td_heads_of_tokens(r, q, 0, w->size, &w->q));
    if (!k) {
        TD_TRY(td_heads_of_tokens(r, q, s->attrs.n_heads, w->size, &w->new_k));
        return td_heads_of_tokens(r, q, 2 * s->attrs.n_heads, w->size, &w->new_v);
    }
    if (k->shape.rank == 5) {
        TD_TRY(part_of(r, k, 0, &w->new_k));
        return part_of(r, k, 1, &w->new_v);
    }
    if (k->shape.rank == 4) {
        TD_TRY(td_heads_of_cache(r, k, &w->new_k));
        return td_heads_of_cache(r, v, &w->new_v);
    }
    TD_TRY(td_heads_of_tokens(r, k, 0, w->size, &w->new_k));
    return td_heads_of_tokens(r, v, 0, w->v_size, &w->new_v);
}

static treadle_status multi_run(td_run *r) {
    const multi_state *s = r->state;
    const td_tensor *q = r->in[QUERY], *k = input(r, s, KEY), *v = input(r, s, VALUE), *past = input(r, s, PAST_KEY);
    td_tensor *keys = output(r, OUT_KEY), *values = output(r, OUT_VALUE);
    sizes n = {0};

    sizes_of(s, &q->shape, k ? &k->shape : NULL, v ? &v->shape : NULL, &n);
    td_mha w = {.attrs = &s->attrs,
                .r = r,
                .n_batch = n.n_batch,
                .n_q = n.n_q,
                .n_new = n.n_new,
                .size = n.size,
                .v_size = n.v_size,
                .has_past = past != NULL,
                .projection_bias = input(r, s, BIAS),
                .mask = input(r, s, MASK),
                .bias = input(r, s, SCORE_BIAS),
                .beams = input(r, s, BEAMS),
                .y = output(r, OUT_Y),
                .scores = output(r, OUT_SCORES)};
    if (n.size < 1 || n.v_size < 1) return td_run_fail(r, "heads without values");
    TD_TRY(inputs_as_heads(&w, s));
    if (k && k->shape.rank == 4 && w.projection_bias) return td_run_fail(r, "bias beside a finished cache");
    if (past) {
        w.n_past = s->shared ? ((const int32_t *)input(r, s, PAST_LENGTH)->data)[0] : past->shape.dims[2];
        TD_TRY(td_heads_of_cache(r, past, &w.past_k));
        TD_TRY(td_heads_of_cache(r, input(r, s, PAST_VALUE), &w.past_v));
    }
    w.n_room = s->shared ? past->shape.dims[2] : w.n_past + w.n_new;
    if (keys) TD_TRY(td_heads_of_cache(r, keys, &w.present_k));
    if (values) TD_TRY(td_heads_of_cache(r, values, &w.present_v));
    return td_mha_run(&w);
}

#define STRIDED(key, value) (1u << QUERY | 1u << KEY | 1u << VALUE | 1u << (key) | 1u << (value))

const td_op_impl td_op_multi_head_attention = {.state_bytes = sizeof(multi_state),
                                               .prepare = multi_prepare,
                                               .infer = multi_infer,
                                               .run = multi_run,
                                               .flags = TD_OP_EXTENDS,
                                               .strided_inputs = STRIDED(6, 7),
                                               .strided_outputs = 1u << OUT_KEY | 1u << OUT_VALUE};
const td_op_impl td_op_decoder_masked_multi_head_attention = {.state_bytes = sizeof(multi_state),
                                                              .prepare = decoder_prepare,
                                                              .infer = multi_infer,
                                                              .run = multi_run,
                                                              .flags = TD_OP_EXTENDS,
                                                              .strided_inputs = STRIDED(5, 6),
                                                              .strided_outputs = 1u << OUT_KEY | 1u << OUT_VALUE};
