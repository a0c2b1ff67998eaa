/* light/ops/gqa.c - com.microsoft GroupQueryAttention: causal attention with grouped heads and a KV cache.
 * Source: onnxruntime docs/ContribOperators.md, release 1.31.
 *
 * The cache of row b holds seqlens_k[b] + 1 - sequence_length tokens before the run (none in a first prompt, where
 * total_sequence_length is sequence_length); new keys and values go behind them. When present lies in past's memory
 * with past's strides only the new rows are written, whatever the capacity; else past's rows are copied and what
 * lies behind the new ones is zero. Beyond the op text: with a local window, a past with fewer rows than the cache
 * holds tokens is the last of them, and present those and the new ones; what the window reaches must be there.
 * float16 and bfloat16 are computed in float32; the cache keeps its own type. sliding_window_cache is that form of a
 * cache: it is never the op that drops rows. A quantised cache is widened for attention: what new tokens see of each
 * other is what the cache holds. */
#include "kernels/attention_f32.h"
#include "kernels/rows_f32.h"
#include "light/ops/heads.h"
#include "light/ops/kv_codes.h"
#include "tensor/half.h"

#include <math.h>
#include <string.h>

enum {
    IN_QUERY,
    IN_KEY,
    IN_VALUE,
    IN_PAST_KEY,
    IN_PAST_VALUE,
    IN_SEQLENS,
    IN_TOTAL,
    IN_COS,
    IN_SIN,
    IN_POSITIONS,
    IN_BIAS,
    IN_SINK,
    IN_K_SCALE,
    IN_V_SCALE,
    IN_Q_NORM,
    IN_K_NORM
};
enum { OUT_Y, OUT_KEY, OUT_VALUE, OUT_QK };

typedef struct gqa_state {
    const td_attention_f32_kernels *attention;
    const td_rows_f32_kernels *rows;
    int64_t n_heads, n_kv_heads;
    int64_t window; /* -1: none */
    float scale;    /* 0: 1 / sqrt(head size) */
    float softcap, norm_epsilon;
    bool rotary, interleaved, causal, smooth;
    td_dtype dtype, cache;
    td_kv_codes key_codes, value_codes;
} gqa_state;

/* What the op text offers and is not done. */
static treadle_status refuse(td_prepare *p) {
    if (td_attr_int(p, "qk_output") || td_has_output(p, OUT_QK)) return td_unsupported(p, "output_qk");
    return TREADLE_OK;
}

static treadle_status both_or_none(td_prepare *p, size_t a, size_t b, const char *names) {
    if (td_has_input(p, a) != td_has_input(p, b))
        return td_bad_node(p, "expected %s together, found one of them", names);
    return TREADLE_OK;
}

static treadle_status gqa_prepare(td_prepare *p) {
    gqa_state *s = p->state;

    TD_TRY(refuse(p));
    TD_TRY(both_or_none(p, IN_KEY, IN_VALUE, "key and value"));
    TD_TRY(both_or_none(p, IN_PAST_KEY, IN_PAST_VALUE, "past_key and past_value"));
    TD_TRY(both_or_none(p, IN_COS, IN_SIN, "cos_cache and sin_cache"));
    TD_TRY(both_or_none(p, IN_Q_NORM, IN_K_NORM, "q_norm_weight and k_norm_weight"));
    s->n_heads = td_attr_int(p, "num_heads");
    s->n_kv_heads = td_attr_int(p, "kv_num_heads");
    if (s->n_kv_heads < 1 || s->n_heads < 1 || s->n_heads % s->n_kv_heads != 0)
        return td_bad_node(p, "expected num_heads (%lld) to be a multiple of kv_num_heads (%lld)",
                           (long long)s->n_heads, (long long)s->n_kv_heads);
    s->window = td_attr_int(p, "local_window_size");
    s->scale = td_attr_float(p, "scale");
    s->softcap = td_attr_float(p, "softcap");
    s->norm_epsilon = td_attr_float(p, "qk_norm_epsilon");
    s->rotary = td_attr_int(p, "do_rotary") == 1;
    s->interleaved = td_attr_int(p, "rotary_interleaved") == 1;
    s->causal = td_attr_int(p, "causal") != 0;
    s->smooth = td_attr_int(p, "smooth_softmax") == 1;
    if (s->rotary && !td_has_input(p, IN_COS)) return td_bad_node(p, "do_rotary needs cos_cache and sin_cache");
    if (!s->causal && s->window != -1) return td_bad_node(p, "expected local_window_size to be -1 when causal is 0");
    s->dtype = td_input_dtype(p, IN_QUERY);
    s->cache = td_input_dtype(p, IN_PAST_KEY);
    if (td_has_input(p, IN_PAST_KEY) && td_input_dtype(p, IN_PAST_VALUE) != s->cache)
        return td_unsupported(p, "past_key and past_value of different types");
    TD_TRY(td_kv_codes_prepare(p, "k_quant_type", IN_K_SCALE, s->cache, &s->key_codes));
    TD_TRY(td_kv_codes_prepare(p, "v_quant_type", IN_V_SCALE, s->cache, &s->value_codes));
    if (s->key_codes.on != s->value_codes.on)
        return td_unsupported(p, "a quantised cache of keys and one of values that is not, or the other way round");
    if (s->cache == TD_UNDEFINED) s->cache = s->key_codes.on ? s->key_codes.dtype : s->dtype;
    if (td_attr_int(p, "sliding_window_cache") && s->window <= 0)
        return td_bad_node(p, "sliding_window_cache needs local_window_size");
    s->attention = td_attention_f32_pick();
    s->rows = td_rows_f32_pick();
    return TREADLE_OK;
}

static bool has(const td_infer *in, size_t i) { return i < in->n_inputs && in->inputs[i]->kind == TD_VALUE_TENSOR; }

/* The number in total_sequence_length; false: not known yet. */
static bool total_of(const td_infer *in, int64_t *total) {
    const td_tensor *t = &in->inputs[IN_TOTAL]->tensor;
    if (!t->data || !td_shape_known(&t->shape) || td_tensor_count(t) != 1) return false;
    *total = td_load_i64(t->dtype, t->data, 0);
    return true;
}

/* Rows of present: all, or the last ones of a cache that a window looks at. */
static int64_t n_kept(const gqa_state *s, int64_t past, int64_t n_new, int64_t total) {
    bool cut = s->window > 0 && past > 0 && n_new >= 0 && total - n_new > past;
    return cut ? past + n_new : TD_MAX(past, total);
}

static treadle_status gqa_infer(td_infer *in) {
    const gqa_state *s = in->state;
    const td_shape *q = &in->inputs[IN_QUERY]->tensor.shape;
    int64_t heads = s->n_heads + (has(in, IN_KEY) ? 0 : 2 * s->n_kv_heads), size = TD_DIM_UNKNOWN, total;

    if (q->rank >= 0 && q->rank != 3) return td_infer_fail(in, "expected query to have 3 dimensions");
    td_shape out = q->rank < 0 ? (td_shape){3, {TD_DIM_UNKNOWN, TD_DIM_UNKNOWN, TD_DIM_UNKNOWN}} : *q;
    if (out.dims[2] >= 0) {
        if (out.dims[2] == 0 || out.dims[2] % heads != 0)
            return td_infer_fail(in, "%lld hidden values are not a multiple of %lld heads", (long long)out.dims[2],
                                 (long long)heads);
        size = out.dims[2] / heads;
        out.dims[2] = size * s->n_heads;
    }
    TD_TRY(td_infer_set(in, OUT_Y, s->dtype, &out));

    int64_t row = size >= 0 ? td_kv_codes_row(&s->key_codes, size) : size;
    td_shape present = {4, {out.dims[0], s->n_kv_heads, TD_DIM_UNKNOWN, row}};
    int64_t past = 0;
    if (has(in, IN_PAST_KEY)) {
        const td_shape *k = &in->inputs[IN_PAST_KEY]->tensor.shape, *v = &in->inputs[IN_PAST_VALUE]->tensor.shape;
        if ((k->rank >= 0 && k->rank != 4) || (v->rank >= 0 && v->rank != 4))
            return td_infer_fail(in, "expected past_key and past_value to have 4 dimensions");
        past = k->rank == 4 ? k->dims[2] : TD_DIM_UNKNOWN;
        td_shape expected = {4, {out.dims[0], s->n_kv_heads, past, row}};
        if (td_shape_known(k) && td_shape_known(v) && td_shape_known(&expected) &&
            !(td_shape_equal(k, &expected) && td_shape_equal(v, &expected)))
            return td_infer_fail(in, "expected past_key and past_value to be [batch, %lld, past, %lld]",
                                 (long long)s->n_kv_heads, (long long)row);
    }
    if (total_of(in, &total) && past >= 0) {
        if (total < 0) return td_infer_fail(in, "total_sequence_length is %lld", (long long)total);
        present.dims[2] = n_kept(s, past, out.dims[1], total);
    }
    TD_TRY(td_infer_set(in, OUT_KEY, s->cache, &present));
    return td_infer_set(in, OUT_VALUE, s->cache, &present);
}

/* --- run */

typedef struct gqa_run {
    const gqa_state *s;
    td_run *r;
    int64_t n_batch, n_new, size, half; /* half: rotated pairs of a head */
    int64_t n_present;                  /* rows of present */
    int64_t n_rows_past;                /* rows of past: a longer cache is cut to its last ones */
    bool first;                         /* a first prompt: no past */
    const int32_t *seqlens;
    td_heads query, key, value; /* inputs */
    td_heads past_key, past_value, present_key, present_value;
    td_heads q; /* what attention reads: float32 */
    const float *q_norm, *k_norm;
    const int64_t *positions;         /* [batch, new] or NULL */
    const float *k_scales, *v_scales; /* of a quantised cache */
    int64_t row;                      /* elements of the cache that a head takes */
    float *buffer;                    /* per thread: [2 * size + 2 * half] */
    int64_t per_thread;
} gqa_run;

static int64_t n_total(const gqa_run *w, int64_t b) { return (int64_t)w->seqlens[b] + 1; }
static int64_t n_past(const gqa_run *w, int64_t b) { return w->first ? 0 : n_total(w, b) - w->n_new; }
/* Tokens of a cache that lie before its first row. */
static int64_t n_gone(const gqa_run *w, int64_t b) {
    return w->s->window > 0 ? TD_MAX(0, n_past(w, b) - w->n_rows_past) : 0;
}

/* One head of q or k: normalised, rotated, stored at `to`. cos NULL: not rotated. */
static void place_head(const gqa_run *w, const td_heads *from, const char *source, const float *norm, const float *cos,
                       const float *sin, td_dtype to_dtype, char *to, float *buffer) {
    if (!norm && !cos) {
        td_heads_convert(from->dtype, source, to_dtype, to, w->size, buffer);
        return;
    }
    const float *x = (const float *)(const void *)source;
    float *y = to_dtype == TD_FLOAT ? (float *)(void *)to : buffer;
    if (from->dtype != TD_FLOAT) {
        td_to_f32(from->dtype, source, w->size, y);
        x = y;
    }
    if (norm) {
        w->s->rows->rms_norm(x, norm, w->size, w->s->norm_epsilon, y);
        x = y;
    }
    if (cos) {
        w->s->rows->rotate(x, cos, sin, w->half, w->s->interleaved, y);
        if (x != y) memcpy(y + 2 * w->half, x + 2 * w->half, (size_t)(w->size - 2 * w->half) * sizeof(float));
    }
    if (to_dtype != TD_FLOAT) td_from_f32(to_dtype, y, w->size, to);
}

static const float *rotation(const gqa_run *w, size_t input, int64_t position, float *copy) {
    const td_tensor *t = w->r->in[input];
    const char *row = (const char *)t->data + position * w->half * (td_dtype_bits(t->dtype) / 8);
    if (t->dtype == TD_FLOAT) return (const float *)(const void *)row;
    td_to_f32(t->dtype, row, w->half, copy);
    return copy;
}

/* The rotary position of new token t. Of position_ids a first prompt reads the first entry only, as the op text has it.
 * Padding behind a ragged prompt gets a position that is surely there. */
static int64_t position_of(const gqa_run *w, int64_t b, int64_t t) {
    if (w->positions) return w->first ? w->positions[0] + t : w->positions[b * w->n_new + t];
    int64_t at = n_past(w, b) + t;
    return w->first && at >= n_total(w, b) ? 0 : at;
}

static const float *scales_of(const gqa_run *w, const td_kv_codes *codes, const float *scales, int64_t head) {
    return scales + (codes->per_channel ? head * w->size : 0);
}

static void place_tokens(void *arg, int64_t begin, int64_t end, int thread) {
    const gqa_run *w = arg;
    const gqa_state *s = w->s;
    float *buffer = w->buffer + thread * w->per_thread;
    bool own_q = w->q.data != w->query.data;

    for (int64_t i = begin; i < end; i++) {
        int64_t b = i / w->n_new, t = i % w->n_new, to = n_past(w, b) - n_gone(w, b) + t;
        const float *cos = NULL, *sin = NULL;
        if (s->rotary) {
            int64_t position = position_of(w, b, t);
            cos = rotation(w, IN_COS, position, buffer + w->size);
            sin = rotation(w, IN_SIN, position, buffer + w->size + w->half);
        }
        for (int64_t h = 0; own_q && h < s->n_heads; h++)
            place_head(w, &w->query, td_heads_at(&w->query, b, t, h), w->q_norm, cos, sin, TD_FLOAT,
                       td_heads_at(&w->q, b, t, h), buffer);
        for (int64_t h = 0; h < s->n_kv_heads; h++) {
            char *key = td_heads_at(&w->present_key, b, to, h), *value = td_heads_at(&w->present_value, b, to, h);
            float *wide = buffer + w->size + 2 * w->half;
            bool codes = s->key_codes.on;
            td_dtype cache = codes ? TD_FLOAT : s->cache;
            place_head(w, &w->key, td_heads_at(&w->key, b, t, h), w->k_norm, cos, sin, cache,
                       codes ? (char *)(void *)wide : key, buffer);
            if (codes)
                td_kv_codes_store(&s->key_codes, wide, scales_of(w, &s->key_codes, w->k_scales, h), w->size, key);
            place_head(w, &w->value, td_heads_at(&w->value, b, t, h), NULL, NULL, NULL, cache,
                       codes ? (char *)(void *)wide : value, buffer);
            if (codes)
                td_kv_codes_store(&s->value_codes, wide, scales_of(w, &s->value_codes, w->v_scales, h), w->size, value);
        }
    }
}

static void fill_caches(void *arg, int64_t begin, int64_t end, int thread) {
    const gqa_run *w = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t b = i / w->s->n_kv_heads, h = i % w->s->n_kv_heads;
        int64_t before = n_past(w, b) - n_gone(w, b);
        td_heads_extend(&w->past_key, &w->present_key, b, h, w->row, before, w->n_new, w->n_present);
        td_heads_extend(&w->past_value, &w->present_value, b, h, w->row, before, w->n_new, w->n_present);
    }
}

static const td_tensor *input(const td_run *r, size_t i) { return i < r->n_inputs ? r->in[i] : NULL; }

static treadle_status check_lengths(const gqa_run *w) {
    td_run *r = w->r;

    if (td_tensor_count(r->in[IN_SEQLENS]) != w->n_batch)
        return td_run_fail(r, "seqlens_k has %lld entries; expected one for each of %lld sequences",
                           (long long)td_tensor_count(r->in[IN_SEQLENS]), (long long)w->n_batch);
    for (int64_t b = 0; b < w->n_batch; b++) {
        int64_t total = n_total(w, b), before = n_past(w, b), gone = n_gone(w, b);
        if (total < 1 || before < 0 || before - gone > w->n_rows_past || before - gone + w->n_new > w->n_present ||
            (gone > 0 && gone > before + 1 - w->s->window))
            return td_run_fail(r, "seqlens_k[%lld] is %lld, with %lld new tokens, %lld in the past and room for %lld",
                               (long long)b, (long long)w->seqlens[b], (long long)w->n_new, (long long)w->n_rows_past,
                               (long long)w->n_present);
    }
    return TREADLE_OK;
}

static treadle_status check_rotation(gqa_run *w) {
    const td_tensor *cos = input(w->r, IN_COS), *sin = input(w->r, IN_SIN), *positions = input(w->r, IN_POSITIONS);

    if (!w->s->rotary) return TREADLE_OK;
    if (cos->shape.rank != 2 || !td_shape_equal(&cos->shape, &sin->shape) || cos->shape.dims[1] * 2 > w->size)
        return td_run_fail(w->r, "expected cos_cache and sin_cache to be [positions, at most %lld]",
                           (long long)(w->size / 2));
    w->half = cos->shape.dims[1];
    if (positions && td_tensor_count(positions) == w->n_batch * w->n_new) w->positions = positions->data;
    else if (positions) return td_run_fail(w->r, "expected position_ids to be [batch, sequence_length]");
    for (int64_t b = 0; b < w->n_batch; b++)
        for (int64_t t = 0; t < w->n_new; t++) {
            int64_t at = position_of(w, b, t);
            if (at < 0 || at >= cos->shape.dims[0])
                return td_run_fail(w->r, "position %lld; cos_cache and sin_cache have %lld", (long long)at,
                                   (long long)cos->shape.dims[0]);
        }
    return TREADLE_OK;
}

/* Views of all inputs, past and present. */
static treadle_status set_up(gqa_run *w) {
    td_run *r = w->r;
    const gqa_state *s = w->s;
    const td_tensor *q = r->in[IN_QUERY], *key = input(r, IN_KEY), *value = input(r, IN_VALUE),
                    *past = input(r, IN_PAST_KEY);
    int64_t heads_in = s->n_heads + (key ? 0 : 2 * s->n_kv_heads);

    w->n_batch = q->shape.dims[0];
    w->n_new = q->shape.dims[1];
    w->size = q->shape.dims[2] / heads_in;
    int64_t total = td_load_i64(TD_INT32, r->in[IN_TOTAL]->data, 0);
    w->first = w->n_new == total;
    w->n_rows_past = past ? past->shape.dims[2] : 0;
    w->n_present = n_kept(s, w->n_rows_past, w->n_new, total);
    w->seqlens = r->in[IN_SEQLENS]->data;
    if (key) {
        td_shape expected = {3, {w->n_batch, w->n_new, s->n_kv_heads * w->size}};
        if (!td_shape_equal(&key->shape, &expected) || !td_shape_equal(&value->shape, &expected))
            return td_run_fail(r, "expected key and value to be [batch, sequence, %lld]", (long long)expected.dims[2]);
    }
    TD_TRY(td_heads_of_tokens(r, q, 0, w->size, &w->query));
    TD_TRY(td_heads_of_tokens(r, key ? key : q, key ? 0 : s->n_heads, w->size, &w->key));
    TD_TRY(td_heads_of_tokens(r, value ? value : q, value ? 0 : s->n_heads + s->n_kv_heads, w->size, &w->value));
    if (past) {
        TD_TRY(td_heads_of_cache(r, past, &w->past_key));
        TD_TRY(td_heads_of_cache(r, r->in[IN_PAST_VALUE], &w->past_value));
    }
    w->row = td_kv_codes_row(&s->key_codes, w->size);
    td_shape present = {4, {w->n_batch, s->n_kv_heads, w->n_present, w->row}};
    TD_TRY(td_heads_of_output(r, OUT_KEY, s->cache, &present, &w->present_key));
    TD_TRY(td_heads_of_output(r, OUT_VALUE, s->cache, &present, &w->present_value));
    return TREADLE_OK;
}

static treadle_status scale_values(const gqa_run *w, const td_kv_codes *codes, size_t index, const float **out) {
    const td_tensor *t = input(w->r, index);
    int64_t expected = codes->per_channel ? w->s->n_kv_heads * w->size : 1;
    if (!codes->on) return TREADLE_OK;
    if (td_tensor_count(t) != expected)
        return td_run_fail(w->r, "expected %s to have %lld values", index == IN_K_SCALE ? "k_scale" : "v_scale",
                           (long long)expected);
    *out = t->data;
    return TREADLE_OK;
}

/* Norm weights, memory for rotated queries, buffers of the threads. */
static treadle_status set_up_tokens(gqa_run *w) {
    td_run *r = w->r;
    const td_tensor *q_norm = input(r, IN_Q_NORM), *k_norm = input(r, IN_K_NORM);
    size_t threads = (size_t)td_pool_threads(r->pool);

    TD_TRY(scale_values(w, &w->s->key_codes, IN_K_SCALE, &w->k_scales));
    TD_TRY(scale_values(w, &w->s->value_codes, IN_V_SCALE, &w->v_scales));
    if (q_norm) {
        if (td_tensor_count(q_norm) != w->size || td_tensor_count(k_norm) != w->size)
            return td_run_fail(r, "expected q_norm_weight and k_norm_weight to have %lld values", (long long)w->size);
        TD_TRY(td_heads_f32(r, q_norm, &w->q_norm));
        TD_TRY(td_heads_f32(r, k_norm, &w->k_norm));
    }
    w->per_thread = TD_ROUND_UP(2 * w->size + 2 * w->half, 16);
    w->buffer = td_run_scratch(r, threads * (size_t)w->per_thread * sizeof(float));
    if (!w->buffer) return TREADLE_OUT_OF_MEMORY;
    w->q = w->query;
    if (!w->s->rotary && !q_norm && w->s->dtype == TD_FLOAT) return TREADLE_OK;
    int64_t row = w->s->n_heads * w->size;
    w->q = (td_heads){.dtype = TD_FLOAT, .batch = w->n_new * row, .token = row, .head = w->size};
    w->q.data = td_run_scratch(r, (size_t)(w->n_batch * w->n_new * row) * sizeof(float));
    return w->q.data ? TREADLE_OK : TREADLE_OUT_OF_MEMORY;
}

/* Bias and sinks of the jobs; strides of 0 where the bias is shared. */
static treadle_status add_bias(const gqa_run *w, td_attention_f32 *jobs, int64_t group) {
    td_run *r = w->r;
    const gqa_state *s = w->s;
    const td_tensor *bias = input(r, IN_BIAS), *sink = input(r, IN_SINK);
    const float *values = NULL, *sinks = NULL;

    if (bias) {
        const int64_t *d = bias->shape.dims;
        if (bias->shape.rank != 4 || (d[0] != 1 && d[0] != w->n_batch) || (d[1] != 1 && d[1] != s->n_heads) ||
            d[2] != w->n_new)
            return td_run_fail(
                r, "expected attention_bias to be [1 or batch, 1 or heads, sequence_length, total_sequence_length]");
        for (int64_t b = 0; b < w->n_batch; b++)
            if (d[3] < n_total(w, b)) return td_run_fail(r, "attention_bias is shorter than the sequence");
        TD_TRY(td_heads_f32(r, bias, &values));
    }
    if (sink) {
        if (td_tensor_count(sink) != s->n_heads)
            return td_run_fail(r, "expected head_sink to have %lld values", (long long)s->n_heads);
        TD_TRY(td_heads_f32(r, sink, &sinks));
    } else if (s->smooth) {
        float *zeros = td_run_scratch(r, (size_t)s->n_heads * sizeof(float));
        if (!zeros) return TREADLE_OUT_OF_MEMORY;
        memset(zeros, 0, (size_t)s->n_heads * sizeof(float));
        sinks = zeros;
    }
    for (int64_t i = 0; i < w->n_batch * s->n_kv_heads; i++) {
        int64_t b = i / s->n_kv_heads, h = i % s->n_kv_heads * group;
        if (sinks) jobs[i].sink = sinks + h;
        if (!values) continue;
        int64_t row = bias->shape.dims[3], head = bias->shape.dims[1] == 1 ? 0 : w->n_new * row;
        int64_t batch = bias->shape.dims[0] == 1 ? 0 : bias->shape.dims[1] * w->n_new * row;
        jobs[i].bias = values + b * batch + h * head;
        jobs[i].bias_row = row;
        jobs[i].bias_head = head;
    }
    return TREADLE_OK;
}

/* What attention reads of a quantised cache: [batch, head, n_present, size] of keys, then of values. */
typedef struct widening {
    const gqa_run *w;
    float *keys, *values;
} widening;

static void widen_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const widening *x = arg;
    const gqa_run *w = x->w;
    const gqa_state *s = w->s;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t b = i / s->n_kv_heads, h = i % s->n_kv_heads, n = n_total(w, b) - n_gone(w, b);
        const float *k_scales = scales_of(w, &s->key_codes, w->k_scales, h);
        const float *v_scales = scales_of(w, &s->value_codes, w->v_scales, h);
        for (int64_t t = 0; t < n; t++) {
            int64_t at = (i * w->n_present + t) * w->size;
            td_kv_codes_load(&s->key_codes, td_heads_at(&w->present_key, b, t, h), k_scales, w->size, x->keys + at);
            td_kv_codes_load(&s->value_codes, td_heads_at(&w->present_value, b, t, h), v_scales, w->size,
                             x->values + at);
        }
    }
}

static treadle_status widen_cache(const gqa_run *w, td_attention_f32 *jobs, int64_t n_jobs) {
    size_t head = (size_t)w->n_present * (size_t)w->size, bytes;
    widening x = {.w = w};
    if (TD_MUL_OVERFLOWS((size_t)n_jobs * sizeof(float), head, &bytes)) return td_run_fail(w->r, "sizes overflow");
    x.keys = td_run_scratch(w->r, bytes);
    x.values = td_run_scratch(w->r, bytes);
    if (!x.keys || !x.values) return TREADLE_OUT_OF_MEMORY;
    td_pool_range(w->r->pool, n_jobs, 1, 1, widen_rows, &x);
    for (int64_t i = 0; i < n_jobs; i++) {
        jobs[i].kv = TD_FLOAT;
        jobs[i].k = x.keys + (size_t)i * head;
        jobs[i].v = x.values + (size_t)i * head;
        jobs[i].k_row = jobs[i].v_row = w->size;
    }
    return TREADLE_OK;
}

static treadle_status attend(const gqa_run *w) {
    td_run *r = w->r;
    const gqa_state *s = w->s;
    const td_tensor *y = r->out[OUT_Y];
    int64_t group = s->n_heads / s->n_kv_heads, n_jobs = w->n_batch * s->n_kv_heads, row = s->n_heads * w->size;
    td_attention_f32 *jobs = td_run_scratch(r, (size_t)n_jobs * sizeof *jobs), widest;
    float *out = y->data;
    size_t bytes;

    if (s->dtype != TD_FLOAT) out = td_run_scratch(r, (size_t)td_tensor_count(y) * sizeof(float));
    if (!jobs || !out) return TREADLE_OUT_OF_MEMORY;
    for (int64_t i = 0; i < n_jobs; i++) {
        int64_t b = i / s->n_kv_heads, h = i % s->n_kv_heads;
        jobs[i] = (td_attention_f32){.n_q = w->n_new,
                                     .n_keys = n_total(w, b),
                                     .group = group,
                                     .head_size = w->size,
                                     .v_head_size = w->size,
                                     .q = (const float *)(const void *)td_heads_at(&w->q, b, 0, h * group),
                                     .q_row = w->q.token,
                                     .q_head = w->q.head,
                                     .kv = s->cache,
                                     .k = td_heads_at(&w->present_key, b, 0, h),
                                     .v = td_heads_at(&w->present_value, b, 0, h),
                                     .k_row = w->present_key.token,
                                     .v_row = w->present_value.token,
                                     .out = out + b * w->n_new * row + h * group * w->size,
                                     .out_row = row,
                                     .out_head = w->size,
                                     .causal = s->causal,
                                     .base = n_gone(w, b),
                                     .first = n_past(w, b),
                                     .window = s->window > 0 ? s->window : 0,
                                     .scale = s->scale != 0 ? s->scale : 1 / sqrtf((float)w->size),
                                     .softcap = s->softcap};
    }
    if (s->key_codes.on) TD_TRY(widen_cache(w, jobs, n_jobs));
    TD_TRY(add_bias(w, jobs, group));
    widest = jobs[0];
    for (int64_t i = 1; i < n_jobs; i++) widest.n_keys = TD_MAX(widest.n_keys, jobs[i].n_keys);
    if (!td_attention_f32_scratch(s->attention, &widest, n_jobs, r->pool, &bytes))
        return td_run_fail(r, "sizes overflow");
    void *scratch = td_run_scratch(r, bytes);
    if (!scratch) return TREADLE_OUT_OF_MEMORY;
    td_attention_f32_parallel(s->attention, jobs, n_jobs, r->pool, scratch);
    if (s->dtype != TD_FLOAT) td_from_f32(s->dtype, out, td_tensor_count(y), y->data);
    return TREADLE_OK;
}

static treadle_status gqa_run_op(td_run *r) {
    enum { GRAIN = 16384 };
    gqa_run w = {.s = r->state, .r = r};

    if (td_tensor_count(r->in[IN_QUERY]) == 0) return TREADLE_OK;
    TD_TRY(set_up(&w));
    TD_TRY(check_lengths(&w));
    TD_TRY(check_rotation(&w));
    TD_TRY(set_up_tokens(&w));
    int64_t per_token = (w.s->n_heads + 2 * w.s->n_kv_heads) * w.size, per_cache = 2 * w.n_present * w.size;
    td_pool_range(r->pool, w.n_batch * w.s->n_kv_heads, TD_MAX(1, GRAIN / TD_MAX(1, per_cache)), 1, fill_caches, &w);
    td_pool_range(r->pool, w.n_batch * w.n_new, TD_MAX(1, GRAIN / TD_MAX(1, per_token)), 1, place_tokens, &w);
    /* A chunk of a prompt whose logits nobody reads wants the last layer's caches alone. */
    return r->out[OUT_Y] ? attend(&w) : TREADLE_OK;
}

const td_op_impl td_op_group_query_attention = {.state_bytes = sizeof(gqa_state),
                                                .prepare = gqa_prepare,
                                                .infer = gqa_infer,
                                                .run = gqa_run_op,
                                                .flags = TD_OP_EXTENDS,
                                                .strided_inputs = 1u << IN_QUERY | 1u << IN_KEY | 1u << IN_VALUE |
                                                                  1u << IN_PAST_KEY | 1u << IN_PAST_VALUE,
                                                .strided_outputs = 1u << OUT_KEY | 1u << OUT_VALUE};
