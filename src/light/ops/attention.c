/* light/ops/attention.c - Attention of ai.onnx. Source: ONNX op texts of Attention-23 and -24.
 *
 * Q, K and V are [batch, heads, tokens, size] or [batch, tokens, heads * size]. New keys and values go behind the past
 * ones; a present that lies in past's memory gets only the new rows. Query i sees keys up to past + i when causal; a
 * mask shorter than the keys hides what is beyond it, as does nonpad_kv_seqlen. float32, float16 and bfloat16 run in
 * the attention kernel; float64, and the halves when qk_matmul_output is wanted, in plain float64 loops. Of float32
 * that output is made beside the kernel, by matrix products. A query that sees no key gives zeros. */
#include "kernels/attention_f32.h"
#include "kernels/rows_f32.h"
#include "light/ops/heads.h"
#include "light/ops/product.h"
#include "tensor/half.h"

#include <math.h>
#include <string.h>

enum { IN_Q, IN_K, IN_V, IN_MASK, IN_PAST_KEY, IN_PAST_VALUE, IN_NONPAD };
enum { OUT_Y, OUT_KEY, OUT_VALUE, OUT_QK };
enum { QK_PRODUCT, QK_CAPPED, QK_MASKED, QK_SOFTMAX }; /* qk_matmul_output_mode */

typedef struct attention_state {
    const td_attention_f32_kernels *kernels;
    int64_t n_heads, n_kv_heads; /* 0: inputs have 4 dimensions */
    float scale;                 /* 0: 1 / sqrt(head size) */
    float softcap;
    bool causal;
    int64_t qk_mode;
    td_dtype dtype, v_dtype;
} attention_state;

static treadle_status attention_prepare(td_prepare *p) {
    attention_state *s = p->state;

    s->kernels = td_attention_f32_pick();
    s->n_heads = td_attr_int(p, "q_num_heads");
    s->n_kv_heads = td_attr_int(p, "kv_num_heads");
    s->scale = td_attr_has(p, "scale") ? td_attr_float(p, "scale") : 0;
    s->softcap = td_attr_float(p, "softcap");
    s->causal = td_attr_int(p, "is_causal") != 0;
    s->qk_mode = td_attr_int(p, "qk_matmul_output_mode");
    s->dtype = td_input_dtype(p, IN_Q);
    s->v_dtype = td_input_dtype(p, IN_V);
    if (s->n_heads < 0 || s->n_kv_heads < 0 || (s->n_kv_heads > 0 && s->n_heads % s->n_kv_heads != 0))
        return td_bad_node(p, "expected q_num_heads (%lld) to be a multiple of kv_num_heads (%lld)",
                           (long long)s->n_heads, (long long)s->n_kv_heads);
    if (s->qk_mode < QK_PRODUCT || s->qk_mode > QK_SOFTMAX)
        return td_bad_node(p, "expected qk_matmul_output_mode to be 0 to 3, found %lld", (long long)s->qk_mode);
    if (td_has_input(p, IN_PAST_KEY) != td_has_input(p, IN_PAST_VALUE))
        return td_bad_node(p, "expected past_key and past_value together, found one of them");
    if (td_has_input(p, IN_NONPAD) && td_has_input(p, IN_PAST_KEY))
        return td_bad_node(p, "nonpad_kv_seqlen cannot be used with past_key and past_value");
    return TREADLE_OK;
}

/* --- shapes */

/* Everything in numbers; TD_DIM_UNKNOWN at open. */
typedef struct sizes {
    bool flat; /* 3 dimensions */
    int64_t n_batch, n_heads, n_kv_heads, n_q, n_new, n_past, head, v_head;
} sizes;

static int64_t quotient(int64_t a, int64_t b) { return a < 0 || b <= 0 ? TD_DIM_UNKNOWN : a / b; }

static treadle_status sizes_of(td_infer *in, sizes *n) {
    const attention_state *s = in->state;
    const td_shape *q = &in->inputs[IN_Q]->tensor.shape, *k = &in->inputs[IN_K]->tensor.shape,
                   *v = &in->inputs[IN_V]->tensor.shape;
    bool has_past = in->n_inputs > IN_PAST_KEY && in->inputs[IN_PAST_KEY]->kind == TD_VALUE_TENSOR;
    const td_shape *past = has_past ? &in->inputs[IN_PAST_KEY]->tensor.shape : NULL;

    if ((q->rank != 3 && q->rank != 4) || k->rank != q->rank || v->rank != q->rank)
        return td_infer_fail(in, "expected Q, K and V to have 3 dimensions each, or 4 each");
    n->flat = q->rank == 3;
    n->n_batch = q->dims[0];
    if (n->flat) {
        if (s->n_heads < 1 || s->n_kv_heads < 1)
            return td_infer_fail(in, "inputs of 3 dimensions need q_num_heads and kv_num_heads");
        n->n_heads = s->n_heads;
        n->n_kv_heads = s->n_kv_heads;
    } else {
        n->n_heads = q->dims[1];
        n->n_kv_heads = k->dims[1];
    }
    n->n_q = q->dims[q->rank - 2];
    n->n_new = k->dims[k->rank - 2];
    n->head = n->flat ? quotient(q->dims[2], n->n_heads) : q->dims[3];
    n->v_head = n->flat ? quotient(v->dims[2], n->n_kv_heads) : v->dims[3];
    if (past && past->rank >= 0 && past->rank != 4) return td_infer_fail(in, "expected past_key to have 4 dimensions");
    n->n_past = !past ? 0 : past->rank < 0 ? TD_DIM_UNKNOWN : past->dims[2];
    return TREADLE_OK;
}

static treadle_status check_shape(td_infer *in, size_t i, const td_shape *expected) {
    char text[128];
    if (i >= in->n_inputs || in->inputs[i]->kind != TD_VALUE_TENSOR) return TREADLE_OK;
    const td_shape *got = &in->inputs[i]->tensor.shape;
    if (!td_shape_known(got) || !td_shape_known(expected) || td_shape_equal(got, expected)) return TREADLE_OK;
    return td_infer_fail(in, "expected input %zu to be %s", i, td_shape_text(expected, text));
}

static treadle_status check_shapes(td_infer *in, const sizes *n) {
    td_shape past_key = {4, {n->n_batch, n->n_kv_heads, n->n_past, n->head}}, past_value = past_key;
    td_shape nonpad = {1, {n->n_batch}};

    past_value.dims[3] = n->v_head;
    if (n->n_heads >= 0 && n->n_kv_heads >= 0 && (n->n_kv_heads == 0 || n->n_heads % n->n_kv_heads != 0))
        return td_infer_fail(in, "%lld query heads on %lld key heads", (long long)n->n_heads, (long long)n->n_kv_heads);
    td_shape q = {4, {n->n_batch, n->n_heads, n->n_q, n->head}},
             k = {4, {n->n_batch, n->n_kv_heads, n->n_new, n->head}};
    td_shape v = {4, {n->n_batch, n->n_kv_heads, n->n_new, n->v_head}};
    if (n->flat) {
        if (n->head < 0 || n->v_head < 0) return TREADLE_OK;
        q = (td_shape){3, {n->n_batch, n->n_q, n->n_heads * n->head}};
        k = (td_shape){3, {n->n_batch, n->n_new, n->n_kv_heads * n->head}};
        v = (td_shape){3, {n->n_batch, n->n_new, n->n_kv_heads * n->v_head}};
    }
    TD_TRY(check_shape(in, IN_Q, &q));
    TD_TRY(check_shape(in, IN_K, &k));
    TD_TRY(check_shape(in, IN_V, &v));
    TD_TRY(check_shape(in, IN_PAST_KEY, &past_key));
    TD_TRY(check_shape(in, IN_PAST_VALUE, &past_value));
    return check_shape(in, IN_NONPAD, &nonpad);
}

/* The mask must broadcast to [batch, heads, queries, keys], its last dimension counting as it is. */
static treadle_status check_mask(td_infer *in, const sizes *n, int64_t total) {
    if (in->n_inputs <= IN_MASK || in->inputs[IN_MASK]->kind != TD_VALUE_TENSOR) return TREADLE_OK;
    const td_shape *mask = &in->inputs[IN_MASK]->tensor.shape;
    td_shape all = {4, {n->n_batch, n->n_heads, n->n_q, total}}, given = *mask, sum;
    if (!td_shape_known(mask) || !td_shape_known(&all)) return TREADLE_OK;
    if (given.rank < 1 || given.rank > 4 || given.dims[given.rank - 1] > total)
        return td_infer_fail(in, "attn_mask does not fit %lld keys", (long long)total);
    given.dims[given.rank - 1] = total;
    if (!td_shape_broadcast(&all, &given, &sum) || !td_shape_equal(&sum, &all))
        return td_infer_fail(in, "attn_mask does not broadcast to the scores");
    return TREADLE_OK;
}

static treadle_status attention_infer(td_infer *in) {
    const attention_state *s = in->state;
    sizes n = {0};

    if (in->inputs[IN_Q]->tensor.shape.rank < 0 || in->inputs[IN_K]->tensor.shape.rank < 0 ||
        in->inputs[IN_V]->tensor.shape.rank < 0) {
        TD_TRY(td_infer_unknown(in, OUT_Y, s->dtype, -1));
        TD_TRY(td_infer_unknown(in, OUT_KEY, s->dtype, 4));
        TD_TRY(td_infer_unknown(in, OUT_VALUE, s->v_dtype, 4));
        return td_infer_unknown(in, OUT_QK, s->dtype, 4);
    }
    TD_TRY(sizes_of(in, &n));
    TD_TRY(check_shapes(in, &n));
    int64_t total = n.n_past < 0 || n.n_new < 0 ? TD_DIM_UNKNOWN : n.n_past + n.n_new;
    TD_TRY(check_mask(in, &n, total));
    td_shape y = {4, {n.n_batch, n.n_heads, n.n_q, n.v_head}}, key = {4, {n.n_batch, n.n_kv_heads, total, n.head}};
    td_shape value = key, qk = {4, {n.n_batch, n.n_heads, n.n_q, total}};
    if (n.flat) y = (td_shape){3, {n.n_batch, n.n_q, n.v_head < 0 ? TD_DIM_UNKNOWN : n.n_heads * n.v_head}};
    value.dims[3] = n.v_head;
    TD_TRY(td_infer_set(in, OUT_Y, s->dtype, &y));
    TD_TRY(td_infer_set(in, OUT_KEY, s->dtype, &key));
    TD_TRY(td_infer_set(in, OUT_VALUE, s->v_dtype, &value));
    return td_infer_set(in, OUT_QK, s->dtype, &qk);
}

/* --- run */

typedef struct attention_run {
    const attention_state *s;
    td_run *r;
    sizes n;
    int64_t n_keys; /* past and new */
    float scale;
    td_heads q, k, v, new_k, new_v, past_k, past_v; /* k, v: all keys and values */
    const float *mask;                              /* float32, or NULL */
    int64_t n_mask;                                 /* keys that the mask speaks of */
    int64_t mask_batch, mask_head, mask_query;      /* strides of the mask */
    td_heads y;
    double *scores; /* per thread, for the plain loops: [n_keys] */
} attention_run;

static const td_tensor *input(const td_run *r, size_t i) { return i < r->n_inputs ? r->in[i] : NULL; }
static const td_tensor *output(const td_run *r, size_t i) { return i < r->n_outputs ? r->out[i] : NULL; }

static treadle_status heads_of(td_run *r, const td_tensor *t, bool flat, int64_t size, td_heads *out) {
    return flat ? td_heads_of_tokens(r, t, 0, size, out) : td_heads_of_cache(r, t, out);
}

/* Keys of sequence b that may be seen at all. */
static int64_t visible(const attention_run *w, int64_t b) {
    const td_tensor *nonpad = input(w->r, IN_NONPAD);
    int64_t n = w->mask ? TD_MIN(w->n_keys, w->n_mask) : w->n_keys;
    return nonpad ? TD_MAX(0, TD_MIN(n, ((const int64_t *)nonpad->data)[b])) : n;
}

/* Keys before the first query's own. In a cache that others fill, the queries are the last of the keys in use (ONNX
 * Runtime's reading; the text speaks of the upper left corner, where no token but the first could see itself). */
static int64_t first_key(const attention_run *w, int64_t b) {
    return input(w->r, IN_NONPAD) ? TD_MAX(visible(w, b) - w->n.n_q, (int64_t)0) : w->n.n_past;
}

/* Query i sees the keys before this one. */
static int64_t end_of_keys(const attention_run *w, int64_t b, int64_t i) {
    int64_t seen = visible(w, b);
    return w->s->causal ? TD_MIN(seen, first_key(w, b) + i + 1) : seen;
}

/* The mask as float32 to be added, with strides of 0 where it broadcasts. */
static treadle_status set_mask(attention_run *w) {
    const td_tensor *t = input(w->r, IN_MASK);
    if (!t) return TREADLE_OK;
    int64_t count = td_tensor_count(t), step = 1, strides[4] = {0};
    float *values = (float *)t->data;

    if (t->dtype != TD_FLOAT) {
        values = td_run_scratch(w->r, (size_t)count * sizeof(float));
        if (!values) return TREADLE_OUT_OF_MEMORY;
        if (t->dtype == TD_BOOL)
            for (int64_t i = 0; i < count; i++) values[i] = ((const bool *)t->data)[i] ? 0 : -INFINITY;
        else td_to_f32(t->dtype, t->data, count, values);
    }
    for (int d = t->shape.rank - 1; d >= 0; d--) {
        strides[d + 4 - t->shape.rank] = t->shape.dims[d] == 1 ? 0 : step;
        step *= t->shape.dims[d];
    }
    w->mask = values;
    w->n_mask = t->shape.dims[t->shape.rank - 1];
    w->mask_batch = strides[0];
    w->mask_head = strides[1];
    w->mask_query = strides[2];
    return TREADLE_OK;
}

static void extend_caches(void *arg, int64_t begin, int64_t end, int thread) {
    const attention_run *w = arg;
    const sizes *n = &w->n;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t b = i / n->n_kv_heads, h = i % n->n_kv_heads;
        td_heads_extend(&w->past_k, &w->k, b, h, n->head, n->n_past, n->n_new, w->n_keys);
        td_heads_extend(&w->past_v, &w->v, b, h, n->v_head, n->n_past, n->n_new, w->n_keys);
        for (int64_t t = 0; t < n->n_new; t++) {
            td_heads_convert(w->new_k.dtype, td_heads_at(&w->new_k, b, t, h), w->k.dtype,
                             td_heads_at(&w->k, b, n->n_past + t, h), n->head, NULL);
            td_heads_convert(w->new_v.dtype, td_heads_at(&w->new_v, b, t, h), w->v.dtype,
                             td_heads_at(&w->v, b, n->n_past + t, h), n->v_head, NULL);
        }
    }
}

/* Past and new keys and values in one place: the present outputs, scratch, or the inputs themselves. */
static treadle_status set_caches(attention_run *w) {
    enum { GRAIN = 16384 };
    td_run *r = w->r;
    const sizes *n = &w->n;
    const td_tensor *past = input(r, IN_PAST_KEY);

    TD_TRY(heads_of(r, r->in[IN_K], n->flat, n->head, &w->new_k));
    TD_TRY(heads_of(r, r->in[IN_V], n->flat, n->v_head, &w->new_v));
    if (!past && !output(r, OUT_KEY) && !output(r, OUT_VALUE)) {
        w->k = w->new_k;
        w->v = w->new_v;
        return TREADLE_OK;
    }
    if (past) {
        TD_TRY(td_heads_of_cache(r, past, &w->past_k));
        TD_TRY(td_heads_of_cache(r, r->in[IN_PAST_VALUE], &w->past_v));
    }
    td_shape key = {4, {n->n_batch, n->n_kv_heads, w->n_keys, n->head}}, value = key;
    value.dims[3] = n->v_head;
    TD_TRY(td_heads_of_output(r, OUT_KEY, w->s->dtype, &key, &w->k));
    TD_TRY(td_heads_of_output(r, OUT_VALUE, w->s->v_dtype, &value, &w->v));
    int64_t each = TD_MAX(1, w->n_keys * (n->head + n->v_head));
    td_pool_range(r->pool, n->n_batch * n->n_kv_heads, TD_MAX(1, GRAIN / each), 1, extend_caches, w);
    return TREADLE_OK;
}

static treadle_status set_up(attention_run *w) {
    td_run *r = w->r;
    const td_tensor *q = r->in[IN_Q], *k = r->in[IN_K], *v = r->in[IN_V], *past = input(r, IN_PAST_KEY);
    sizes *n = &w->n;

    n->flat = q->shape.rank == 3;
    n->n_batch = q->shape.dims[0];
    n->n_heads = n->flat ? w->s->n_heads : q->shape.dims[1];
    n->n_kv_heads = n->flat ? w->s->n_kv_heads : k->shape.dims[1];
    n->n_q = q->shape.dims[q->shape.rank - 2];
    n->n_new = k->shape.dims[k->shape.rank - 2];
    n->n_past = past ? past->shape.dims[2] : 0;
    n->head = n->flat ? q->shape.dims[2] / n->n_heads : q->shape.dims[3];
    n->v_head = n->flat ? v->shape.dims[2] / n->n_kv_heads : v->shape.dims[3];
    w->n_keys = n->n_past + n->n_new;
    w->scale = w->s->scale != 0 ? w->s->scale : 1 / sqrtf((float)n->head);
    TD_TRY(heads_of(r, q, n->flat, n->head, &w->q));
    TD_TRY(set_mask(w));
    int64_t row = n->n_heads * n->v_head;
    w->y = (td_heads){.data = r->out[OUT_Y] ? r->out[OUT_Y]->data : NULL, .dtype = w->s->dtype, .batch = n->n_q * row};
    w->y.token = n->flat ? row : n->v_head;
    w->y.head = n->flat ? n->v_head : n->n_q * n->v_head;
    return set_caches(w);
}

/* --- by the kernel */

/* float32 of all tokens as [batch, head, token, size], unless they are that already. */
static treadle_status widen(td_run *r, td_heads *x, int64_t n_batch, int64_t n_heads, int64_t n_tokens, int64_t size) {
    td_heads wide = {.dtype = TD_FLOAT, .batch = n_heads * n_tokens * size, .head = n_tokens * size, .token = size};

    if (x->dtype == TD_FLOAT) return TREADLE_OK;
    wide.data = td_run_scratch(r, (size_t)(n_batch * wide.batch) * sizeof(float));
    if (!wide.data) return TREADLE_OUT_OF_MEMORY;
    for (int64_t b = 0; b < n_batch; b++)
        for (int64_t h = 0; h < n_heads; h++)
            for (int64_t t = 0; t < n_tokens; t++)
                td_to_f32(x->dtype, td_heads_at(x, b, t, h), size, (float *)(void *)td_heads_at(&wide, b, t, h));
    *x = wide;
    return TREADLE_OK;
}

static treadle_status run_kernel(attention_run *w) {
    td_run *r = w->r;
    const sizes *n = &w->n;
    int64_t group = n->n_heads / n->n_kv_heads, n_jobs = n->n_batch * n->n_kv_heads,
            count = td_tensor_count(r->out[OUT_Y]);
    td_attention_f32 *jobs = td_run_scratch(r, (size_t)n_jobs * sizeof *jobs), widest;
    td_heads y = w->y;
    size_t bytes;

    if (y.dtype != TD_FLOAT) y.data = td_run_scratch(r, (size_t)count * sizeof(float));
    if (!jobs || !y.data) return TREADLE_OUT_OF_MEMORY;
    y.dtype = TD_FLOAT;
    TD_TRY(widen(r, &w->q, n->n_batch, n->n_heads, n->n_q, n->head));
    if (w->k.dtype != w->v.dtype) {
        TD_TRY(widen(r, &w->k, n->n_batch, n->n_kv_heads, w->n_keys, n->head));
        TD_TRY(widen(r, &w->v, n->n_batch, n->n_kv_heads, w->n_keys, n->v_head));
    }
    for (int64_t i = 0; i < n_jobs; i++) {
        int64_t b = i / n->n_kv_heads, h = i % n->n_kv_heads;
        jobs[i] = (td_attention_f32){.n_q = n->n_q,
                                     .n_keys = visible(w, b),
                                     .group = group,
                                     .head_size = n->head,
                                     .v_head_size = n->v_head,
                                     .q = (const float *)(const void *)td_heads_at(&w->q, b, 0, h * group),
                                     .q_row = w->q.token,
                                     .q_head = w->q.head,
                                     .kv = w->k.dtype,
                                     .k = td_heads_at(&w->k, b, 0, h),
                                     .v = td_heads_at(&w->v, b, 0, h),
                                     .k_row = w->k.token,
                                     .v_row = w->v.token,
                                     .out = (float *)(void *)td_heads_at(&y, b, 0, h * group),
                                     .out_row = y.token,
                                     .out_head = y.head,
                                     .causal = w->s->causal,
                                     .first = first_key(w, b),
                                     .scale = w->scale,
                                     .softcap = w->s->softcap,
                                     .bias = w->mask ? w->mask + b * w->mask_batch + h * group * w->mask_head : NULL,
                                     .bias_row = w->mask_query,
                                     .bias_head = w->mask_head};
    }
    widest = jobs[0];
    widest.n_keys = w->n_keys;
    if (!td_attention_f32_scratch(w->s->kernels, &widest, n_jobs, r->pool, &bytes))
        return td_run_fail(r, "sizes overflow");
    void *scratch = td_run_scratch(r, bytes);
    if (!scratch) return TREADLE_OUT_OF_MEMORY;
    td_attention_f32_parallel(w->s->kernels, jobs, n_jobs, r->pool, scratch);
    if (w->s->dtype != TD_FLOAT) td_from_f32(w->s->dtype, (float *)(void *)y.data, count, r->out[OUT_Y]->data);
    return TREADLE_OK;
}

/* --- qk_matmul_output of float32 */

/* From products to what is asked for, in place: the stages that score_row has. */
static void finish_qk_row(const attention_run *w, int64_t row, float *scores, const td_rows_f32_kernels *kernels) {
    const attention_state *s = w->s;
    int64_t i = row % w->n.n_q, h = row / w->n.n_q % w->n.n_heads, b = row / w->n.n_q / w->n.n_heads;
    int64_t end = end_of_keys(w, b, i);
    const float *mask = w->mask ? w->mask + b * w->mask_batch + h * w->mask_head + i * w->mask_query : NULL;
    float max = -INFINITY;

    for (int64_t j = 0; j < w->n_keys; j++) scores[j] *= w->scale;
    if (s->softcap > 0 && s->qk_mode >= QK_CAPPED)
        for (int64_t j = 0; j < w->n_keys; j++) scores[j] = s->softcap * tanhf(scores[j] / s->softcap);
    if (s->qk_mode < QK_MASKED) return;
    for (int64_t j = 0; mask && j < end; j++) scores[j] += mask[j];
    for (int64_t j = end; j < w->n_keys; j++) scores[j] = -INFINITY;
    if (s->qk_mode < QK_SOFTMAX) return;
    for (int64_t j = 0; j < end; j++) max = scores[j] <= max ? max : scores[j];
    if (max == -INFINITY) memset(scores, 0, (size_t)w->n_keys * sizeof *scores);
    else kernels->softmax(scores, w->n_keys, scores);
}

static void finish_qk_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const attention_run *w = arg;
    const td_rows_f32_kernels *kernels = td_rows_f32_pick();
    float *qk = output(w->r, OUT_QK)->data;
    (void)thread;
    for (int64_t row = begin; row < end; row++) finish_qk_row(w, row, qk + row * w->n_keys, kernels);
}

static treadle_status run_qk(attention_run *w) {
    enum { GRAIN = 4096 };
    const sizes *n = &w->n;
    int64_t n_jobs = n->n_batch * n->n_heads, group = n->n_heads / n->n_kv_heads;
    td_gemm_f32 *gemms = td_run_scratch(w->r, (size_t)n_jobs * sizeof *gemms);
    float *qk = output(w->r, OUT_QK)->data;

    if (!gemms) return TREADLE_OUT_OF_MEMORY;
    if (td_tensor_count(output(w->r, OUT_QK)) == 0) return TREADLE_OK;
    for (int64_t i = 0; i < n_jobs; i++) {
        int64_t b = i / n->n_heads, h = i % n->n_heads;
        gemms[i] = (td_gemm_f32){.m = n->n_q,
                                 .n = w->n_keys,
                                 .k = n->head,
                                 .a = (const float *)(const void *)td_heads_at(&w->q, b, 0, h),
                                 .a_row = w->q.token,
                                 .a_col = 1,
                                 .b = {.form = TD_GEMM_TRANSPOSED,
                                       .dtype = TD_FLOAT,
                                       .data = td_heads_at(&w->k, b, 0, h / group),
                                       .ld = w->k.token},
                                 .c = qk + i * n->n_q * w->n_keys,
                                 .c_row = w->n_keys};
    }
    TD_TRY(td_product_run_gemms(w->r, td_gemm_f32_pick(), gemms, n_jobs));
    td_pool_range(w->r->pool, n_jobs * n->n_q, TD_MAX(1, GRAIN / w->n_keys), 1, finish_qk_rows, w);
    return TREADLE_OK;
}

/* --- plain loops */

static void store_qk(const attention_run *w, int64_t row, int mode, const double *scores) {
    const td_tensor *qk = output(w->r, OUT_QK);
    if (!qk || w->s->qk_mode != mode) return;
    for (int64_t j = 0; j < w->n_keys; j++) td_store_f64(qk->dtype, qk->data, row * w->n_keys + j, scores[j]);
}

/* Scores of query i of head h before the softmax, stored at each stage that qk_matmul_output may ask for. */
static void score_row(const attention_run *w, int64_t b, int64_t h, int64_t i, double *scores) {
    const attention_state *s = w->s;
    int64_t group = w->n.n_heads / w->n.n_kv_heads, row = (b * w->n.n_heads + h) * w->n.n_q + i;
    int64_t end = end_of_keys(w, b, i);
    const char *q = td_heads_at(&w->q, b, i, h);
    const float *mask = w->mask ? w->mask + b * w->mask_batch + h * w->mask_head + i * w->mask_query : NULL;

    for (int64_t j = 0; j < w->n_keys; j++) {
        const char *k = td_heads_at(&w->k, b, j, h / group);
        double sum = 0;
        for (int64_t d = 0; d < w->n.head; d++) sum += td_load_f64(w->q.dtype, q, d) * td_load_f64(w->k.dtype, k, d);
        scores[j] = sum * (double)w->scale;
    }
    store_qk(w, row, QK_PRODUCT, scores);
    for (int64_t j = 0; s->softcap > 0 && j < w->n_keys; j++)
        scores[j] = (double)s->softcap * tanh(scores[j] / (double)s->softcap);
    store_qk(w, row, QK_CAPPED, scores);
    for (int64_t j = 0; j < w->n_keys; j++)
        scores[j] = j >= end ? -INFINITY : mask ? scores[j] + (double)mask[j] : scores[j];
    store_qk(w, row, QK_MASKED, scores);
}

static void plain_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const attention_run *w = arg;
    double *scores = w->scores + thread * w->n_keys;
    int64_t group = w->n.n_heads / w->n.n_kv_heads;

    for (int64_t row = begin; row < end; row++) {
        int64_t i = row % w->n.n_q, h = row / w->n.n_q % w->n.n_heads, b = row / w->n.n_q / w->n.n_heads;
        double max = -INFINITY, sum = 0;
        score_row(w, b, h, i, scores);
        for (int64_t j = 0; j < w->n_keys; j++) max = scores[j] <= max ? max : scores[j];
        for (int64_t j = 0; j < w->n_keys; j++) {
            scores[j] = max == -INFINITY ? 0 : exp(scores[j] - max);
            sum += scores[j];
        }
        for (int64_t j = 0; j < w->n_keys && sum != 0; j++) scores[j] /= sum;
        store_qk(w, row, QK_SOFTMAX, scores);
        if (!w->y.data) continue;
        char *y = td_heads_at(&w->y, b, i, h);
        for (int64_t d = 0; d < w->n.v_head; d++) {
            double out = 0;
            for (int64_t j = 0; j < w->n_keys; j++)
                if (scores[j] != 0) out += scores[j] * td_load_f64(w->v.dtype, td_heads_at(&w->v, b, j, h / group), d);
            td_store_f64(w->y.dtype, y, d, out);
        }
    }
}

static treadle_status attention_run_op(td_run *r) {
    const attention_state *s = r->state;
    attention_run w = {.s = s, .r = r};

    TD_TRY(set_up(&w));
    if ((!r->out[OUT_Y] || td_tensor_count(r->out[OUT_Y]) == 0) && !output(r, OUT_QK)) return TREADLE_OK;
    bool qk = output(r, OUT_QK) != NULL, all_f32 = s->dtype == TD_FLOAT && s->v_dtype == TD_FLOAT;
    if (s->dtype != TD_DOUBLE && s->v_dtype != TD_DOUBLE && (!qk || all_f32)) {
        if (qk) TD_TRY(run_qk(&w));
        return r->out[OUT_Y] && td_tensor_count(r->out[OUT_Y]) ? run_kernel(&w) : TREADLE_OK;
    }
    size_t bytes;
    if (TD_MUL_OVERFLOWS((size_t)w.n_keys * sizeof(double), (size_t)td_pool_threads(r->pool), &bytes))
        return td_run_fail(r, "sizes overflow");
    w.scores = td_run_scratch(r, bytes);
    if (!w.scores) return TREADLE_OUT_OF_MEMORY;
    td_pool_range(r->pool, w.n.n_batch * w.n.n_heads * w.n.n_q, 1, 1, plain_rows, &w);
    return TREADLE_OK;
}

const td_op_impl td_op_attention = {.state_bytes = sizeof(attention_state),
                                    .prepare = attention_prepare,
                                    .infer = attention_infer,
                                    .run = attention_run_op,
                                    .flags = TD_OP_EXTENDS,
                                    .strided_inputs =
                                        1u << IN_Q | 1u << IN_K | 1u << IN_V | 1u << IN_PAST_KEY | 1u << IN_PAST_VALUE,
                                    .strided_outputs = 1u << OUT_KEY | 1u << OUT_VALUE};
