/* light/ops/mha.c - see mha.h. Source: onnxruntime docs/ContribOperators.md, release 1.31.
 *
 * A mask is turned into numbers to be added, filter for what it hides, as the op text has it: a query that sees no key
 * spreads over all of them. float16 and bfloat16 are computed in float32; the cache keeps its type. */
#include "light/ops/mha.h"

#include "tensor/half.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { GRAIN = 16384 };

treadle_status td_mha_prepare(td_prepare *p, td_mha_attrs *out) {
    out->kernels = td_attention_f32_pick();
    out->n_heads = td_attr_int(p, "num_heads");
    out->scale = td_attr_float(p, "scale");
    out->filter = td_attr_has(p, "mask_filter_value") ? td_attr_float(p, "mask_filter_value") : -10000.0f;
    out->causal = td_attr_int(p, "unidirectional") != 0;
    out->dtype = td_input_dtype(p, 0);
    if (out->n_heads < 1) return td_bad_node(p, "num_heads = %lld", (long long)out->n_heads);
    return TREADLE_OK;
}

static int64_t n_keys(const td_mha *w) { return w->n_past + w->n_new; }

/* --- queries, keys and values with their biases */

/* Tokens of `from` to rows [first, ...) of `to`, converted, a bias added to each head. */
typedef struct place_job {
    const td_heads *from, *to;
    const float *bias; /* [heads * size] or NULL */
    int64_t n_heads, n_tokens, size, first;
    float *buffer; /* per thread: size */
} place_job;

static void place_tokens(void *arg, int64_t begin, int64_t end, int thread) {
    const place_job *j = arg;
    float *buffer = j->buffer + thread * j->size;
    for (int64_t i = begin; i < end; i++) {
        int64_t h = i % j->n_heads, t = i / j->n_heads % j->n_tokens, b = i / j->n_heads / j->n_tokens;
        const char *from = td_heads_at(j->from, b, t, h);
        char *to = td_heads_at(j->to, b, t + j->first, h);
        if (!j->bias) {
            td_heads_convert(j->from->dtype, from, j->to->dtype, to, j->size, buffer);
            continue;
        }
        td_to_f32(j->from->dtype, from, j->size, buffer);
        for (int64_t d = 0; d < j->size; d++) buffer[d] += j->bias[h * j->size + d];
        td_from_f32(j->to->dtype, buffer, j->size, to);
    }
}

static treadle_status place(const td_mha *w, const td_heads *from, const td_heads *to, const float *bias,
                            int64_t n_tokens, int64_t size, int64_t first) {
    place_job j = {from, to, bias, w->attrs->n_heads, n_tokens, size, first, NULL};
    j.buffer = td_run_scratch(w->r, (size_t)td_pool_threads(w->r->pool) * (size_t)size * sizeof(float));
    if (!j.buffer) return TREADLE_OUT_OF_MEMORY;
    td_pool_range(w->r->pool, w->n_batch * n_tokens * j.n_heads, TD_MAX(1, GRAIN / TD_MAX(1, size)), 1, place_tokens,
                  &j);
    return TREADLE_OK;
}

/* Memory for [batch, heads, tokens, size]. */
static treadle_status new_heads(const td_mha *w, td_dtype dtype, int64_t n_tokens, int64_t size, td_heads *out) {
    td_shape shape = {4, {w->n_batch, w->attrs->n_heads, n_tokens, size}};
    return td_heads_of_output(w->r, SIZE_MAX, dtype, &shape, out);
}

static treadle_status ready_queries(td_mha *w, const float *bias) {
    td_heads wide;
    if (w->q.dtype == TD_FLOAT && !bias) return TREADLE_OK;
    TD_TRY(new_heads(w, TD_FLOAT, w->n_q, w->size, &wide));
    TD_TRY(place(w, &w->q, &wide, bias, w->n_q, w->size, 0));
    w->q = wide;
    return TREADLE_OK;
}

typedef struct extend_job {
    const td_mha *w;
    const td_heads *past, *present;
    int64_t size;
} extend_job;

static void extend_caches(void *arg, int64_t begin, int64_t end, int thread) {
    const extend_job *j = arg;
    const td_mha *w = j->w;
    (void)thread;
    size_t bytes = (size_t)j->size * (size_t)td_dtype_bits(j->present->dtype) / 8;
    for (int64_t i = begin; i < end; i++) {
        int64_t b = i / w->attrs->n_heads, h = i % w->attrs->n_heads;
        td_heads_extend(j->past, j->present, b, h, j->size, w->n_past, w->n_new, n_keys(w));
        /* A buffer of fixed capacity keeps what lies behind. */
        for (int64_t t = n_keys(w); t < w->n_room && j->past->data != j->present->data; t++)
            memcpy(td_heads_at(j->present, b, t, h), td_heads_at(j->past, b, t, h), bytes);
    }
}

/* Where attention reads keys (or values): *all. Present, if it is wanted; else the new ones themselves, if they are all
 * and lie there as they are needed; else scratch. Keys and values get one type. */
static treadle_status ready_keys(const td_mha *w, const td_heads *new, const td_heads *past, const td_heads *present,
                                 const float *bias, int64_t size, td_heads *all) {
    bool cached = w->has_past || w->present_k.data || w->present_v.data;
    td_dtype dtype = cached ? w->attrs->dtype : bias ? TD_FLOAT : new->dtype;

    *all = *present;
    if (!all->data) {
        if (!w->has_past && !bias && dtype == new->dtype) {
            *all = *new;
            return TREADLE_OK;
        }
        TD_TRY(new_heads(w, dtype, w->n_room, size, all));
    }
    extend_job job = {w, past, all, size};
    td_pool_range(w->r->pool, w->n_batch * w->attrs->n_heads, TD_MAX(1, GRAIN / TD_MAX(1, w->n_room * size)), 1,
                  extend_caches, &job);
    return place(w, new, all, bias, w->n_new, size, w->n_past);
}

/* --- beams: the past of a row lies in the rows of its group, key by key */

static treadle_status gather_beams(const td_mha *w, const td_heads *all, int64_t size, td_heads *out) {
    const td_shape *shape = &w->beams->shape;
    const int32_t *whose = w->beams->data;
    size_t bytes = (size_t)size * (size_t)td_dtype_bits(all->dtype) / 8;

    if (shape->rank != 3 || shape->dims[0] * shape->dims[1] != w->n_batch || shape->dims[2] < n_keys(w))
        return td_run_fail(w->r, "expected cache_indirection to be [batch, beams, at least %lld]",
                           (long long)n_keys(w));
    TD_TRY(new_heads(w, all->dtype, n_keys(w), size, out));
    for (int64_t b = 0; b < w->n_batch; b++) {
        int64_t n_beams = shape->dims[1], first = b / n_beams * n_beams;
        for (int64_t t = 0; t < n_keys(w); t++) {
            int64_t beam = t < w->n_past ? whose[b * shape->dims[2] + t] : b - first;
            if (beam < 0 || beam >= n_beams)
                return td_run_fail(w->r, "cache_indirection names beam %lld of %lld", (long long)beam,
                                   (long long)n_beams);
            for (int64_t h = 0; h < w->attrs->n_heads; h++)
                memcpy(td_heads_at(out, b, t, h), td_heads_at(all, first + beam, t, h), bytes);
        }
    }
    return TREADLE_OK;
}

/* --- masks */

/* Numbers added to the scores: of query i, head h at values[b * batch + h * head + i * row]; values NULL: none. */
typedef struct added {
    const float *values;
    int64_t batch, head, row;
} added;

/* Ends (and starts) of what each sequence shows: [batch], [2 batch] (ends, starts), or [3 batch + 2]
 * that starts with the lengths. */
static void fill_from_lengths(const td_mha *w, float *to) {
    const int32_t *ends = w->mask->data;
    bool has_starts = td_tensor_count(w->mask) == 2 * w->n_batch;
    for (int64_t b = 0; b < w->n_batch; b++)
        for (int64_t t = 0; t < n_keys(w); t++) {
            bool seen = t < ends[b] && (!has_starts || t >= ends[b + w->n_batch]);
            to[b * n_keys(w) + t] = seen ? 0 : w->attrs->filter;
        }
}

/* [batch, keys] or [batch, queries, keys] of 0 (hidden) and 1; of [batch, 1, longest, longest] the rows and columns in
 * use. Fewer columns than keys: they are those of the last keys. */
static void fill_from_flags(const td_mha *w, float *to, int64_t n_rows) {
    const td_shape *shape = &w->mask->shape;
    const int32_t *flags = w->mask->data;
    bool square = shape->rank == 4;
    int64_t columns = shape->dims[shape->rank - 1], rows = square ? shape->dims[2] : n_rows;
    int64_t first_row = square ? n_keys(w) - w->n_q : 0, skipped = square ? 0 : n_keys(w) - columns;

    for (int64_t b = 0; b < w->n_batch; b++)
        for (int64_t i = 0; i < n_rows; i++) {
            const int32_t *row = flags + (b * rows + first_row + i) * columns;
            float *out = to + (b * n_rows + i) * n_keys(w);
            for (int64_t t = 0; t < n_keys(w); t++) out[t] = t < skipped || row[t - skipped] > 0 ? 0 : w->attrs->filter;
        }
}

static treadle_status bad_mask(const td_mha *w) {
    return td_run_fail(w->r, "the mask does not fit %lld sequences of %lld queries and %lld keys",
                       (long long)w->n_batch, (long long)w->n_q, (long long)n_keys(w));
}

static treadle_status check_mask(const td_mha *w) {
    const td_shape *s = &w->mask->shape;
    int64_t b = w->n_batch, columns = s->rank > 0 ? s->dims[s->rank - 1] : 0;
    bool fits = s->rank > 0 && s->dims[0] == b && (columns == n_keys(w) || columns == w->n_new);
    switch (s->rank) {
    case 1: return columns == b || columns == 2 * b || columns == 3 * b + 2 ? TREADLE_OK : bad_mask(w);
    case 2: return fits ? TREADLE_OK : bad_mask(w);
    case 3: return fits && s->dims[1] == w->n_q ? TREADLE_OK : bad_mask(w);
    case 4:
        return s->dims[0] == b && s->dims[1] == 1 && s->dims[2] >= n_keys(w) && columns >= n_keys(w) &&
                       n_keys(w) >= w->n_q
                   ? TREADLE_OK
                   : bad_mask(w);
    default: return bad_mask(w);
    }
}

static treadle_status mask_numbers(const td_mha *w, added *out) {
    if (!w->mask) return TREADLE_OK;
    TD_TRY(check_mask(w));
    int64_t rows = w->mask->shape.rank > 2 ? w->n_q : 1, count = w->n_batch * rows * n_keys(w);
    float *values = td_run_scratch(w->r, (size_t)count * sizeof *values);
    if (!values) return TREADLE_OUT_OF_MEMORY;
    if (w->mask->shape.rank == 1) fill_from_lengths(w, values);
    else fill_from_flags(w, values, rows);
    for (int64_t i = 0; i < count; i++)
        if (values[i] != 0) {
            *out = (added){values, rows * n_keys(w), 0, rows == 1 ? 0 : n_keys(w)};
            break;
        }
    return TREADLE_OK;
}

static treadle_status bias_numbers(const td_mha *w, added *out) {
    if (!w->bias) return TREADLE_OK;
    const int64_t *d = w->bias->shape.dims;
    if (w->bias->shape.rank != 4 || (d[0] != 1 && d[0] != w->n_batch) || (d[1] != 1 && d[1] != w->attrs->n_heads) ||
        d[2] != w->n_q || d[3] != n_keys(w))
        return td_run_fail(w->r, "expected attention_bias to be [1 or %lld, 1 or %lld, %lld, %lld]",
                           (long long)w->n_batch, (long long)w->attrs->n_heads, (long long)w->n_q,
                           (long long)n_keys(w));
    TD_TRY(td_heads_f32(w->r, w->bias, &out->values));
    out->row = n_keys(w);
    out->head = d[1] == 1 ? 0 : w->n_q * out->row;
    out->batch = d[0] == 1 ? 0 : d[1] * w->n_q * out->row;
    return TREADLE_OK;
}

/* Mask and bias as one. */
static treadle_status all_numbers(const td_mha *w, added *out) {
    added mask = {0}, bias = {0};
    TD_TRY(mask_numbers(w, &mask));
    TD_TRY(bias_numbers(w, &bias));
    *out = mask.values ? mask : bias;
    if (!mask.values || !bias.values) return TREADLE_OK;
    int64_t n_heads = bias.head ? w->attrs->n_heads : 1;
    float *sum = td_run_scratch(w->r, (size_t)(w->n_batch * n_heads * w->n_q * n_keys(w)) * sizeof *sum), *to = sum;
    if (!sum) return TREADLE_OUT_OF_MEMORY;
    for (int64_t b = 0; b < w->n_batch; b++)
        for (int64_t h = 0; h < n_heads; h++)
            for (int64_t i = 0; i < w->n_q; i++)
                for (int64_t t = 0; t < n_keys(w); t++)
                    *to++ = mask.values[b * mask.batch + i * mask.row + t] +
                            bias.values[b * bias.batch + h * bias.head + i * bias.row + t];
    *out = (added){sum, n_heads * w->n_q * n_keys(w), bias.head ? w->n_q * n_keys(w) : 0, n_keys(w)};
    return TREADLE_OK;
}

/* --- attention */

typedef struct score_job {
    const td_mha *w;
    const td_heads *k;
    added added;
    float scale;
} score_job;

/* The scores that an output asks for; keys that come after a causal query get the lowest number. */
static void score_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const score_job *j = arg;
    const td_mha *w = j->w;
    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        int64_t i = row % w->n_q, h = row / w->n_q % w->attrs->n_heads, b = row / w->n_q / w->attrs->n_heads;
        const float *q = (const float *)(const void *)td_heads_at(&w->q, b, i, h);
        const added *a = &j->added;
        for (int64_t t = 0; t < n_keys(w); t++) {
            const char *k = td_heads_at(j->k, b, t, h);
            double sum = 0;
            for (int64_t d = 0; d < w->size; d++) sum += (double)q[d] * td_load_f64(j->k->dtype, k, d);
            sum *= (double)j->scale;
            if (a->values) sum += (double)a->values[b * a->batch + h * a->head + i * a->row + t];
            if (w->attrs->causal && t > w->n_past + i) sum = -FLT_MAX;
            td_store_f64(w->scores->dtype, w->scores->data, row * n_keys(w) + t, sum);
        }
    }
}

static treadle_status attend(const td_mha *w, const td_heads *k, const td_heads *v, const added *a, float scale) {
    td_run *r = w->r;
    int64_t n_heads = w->attrs->n_heads, n_jobs = w->n_batch * n_heads, row = n_heads * w->v_size,
            count = td_tensor_count(w->y);
    td_attention_f32 *jobs = td_run_scratch(r, (size_t)n_jobs * sizeof *jobs);
    float *out = w->y->data;
    size_t bytes;

    if (w->y->dtype != TD_FLOAT) out = td_run_scratch(r, (size_t)count * sizeof(float));
    if (!jobs || !out) return TREADLE_OUT_OF_MEMORY;
    for (int64_t i = 0; i < n_jobs; i++) {
        int64_t b = i / n_heads, h = i % n_heads;
        jobs[i] = (td_attention_f32){.n_q = w->n_q,
                                     .n_keys = n_keys(w),
                                     .group = 1,
                                     .head_size = w->size,
                                     .v_head_size = w->v_size,
                                     .q = (const float *)(const void *)td_heads_at(&w->q, b, 0, h),
                                     .q_row = w->q.token,
                                     .kv = k->dtype,
                                     .k = td_heads_at(k, b, 0, h),
                                     .v = td_heads_at(v, b, 0, h),
                                     .k_row = k->token,
                                     .v_row = v->token,
                                     .out = out + b * w->n_q * row + h * w->v_size,
                                     .out_row = row,
                                     .causal = w->attrs->causal,
                                     .first = w->n_past,
                                     .scale = scale,
                                     .bias = a->values ? a->values + b * a->batch + h * a->head : NULL,
                                     .bias_row = a->row};
    }
    if (!td_attention_f32_scratch(w->attrs->kernels, jobs, n_jobs, r->pool, &bytes))
        return td_run_fail(r, "sizes overflow");
    void *scratch = td_run_scratch(r, bytes);
    if (!scratch) return TREADLE_OUT_OF_MEMORY;
    td_attention_f32_parallel(w->attrs->kernels, jobs, n_jobs, r->pool, scratch);
    if (w->y->dtype != TD_FLOAT) td_from_f32(w->y->dtype, out, count, w->y->data);
    return TREADLE_OK;
}

static treadle_status projection_biases(const td_mha *w, const float *out[3]) {
    int64_t n = w->attrs->n_heads;
    const float *all;
    if (!w->projection_bias) return TREADLE_OK;
    if (td_tensor_count(w->projection_bias) != n * (2 * w->size + w->v_size))
        return td_run_fail(w->r, "expected bias to have %lld values", (long long)(n * (2 * w->size + w->v_size)));
    TD_TRY(td_heads_f32(w->r, w->projection_bias, &all));
    out[0] = all;
    out[1] = all + n * w->size;
    out[2] = all + 2 * n * w->size;
    return TREADLE_OK;
}

treadle_status td_mha_run(td_mha *w) {
    float scale = w->attrs->scale != 0 ? w->attrs->scale : 1 / sqrtf((float)w->size);
    const float *biases[3] = {NULL, NULL, NULL};
    td_heads k, v, beam_k, beam_v;
    added numbers = {0};

    TD_TRY(projection_biases(w, biases));
    TD_TRY(ready_keys(w, &w->new_k, &w->past_k, &w->present_k, biases[1], w->size, &k));
    TD_TRY(ready_keys(w, &w->new_v, &w->past_v, &w->present_v, biases[2], w->v_size, &v));
    if (!w->scores && (!w->y || td_tensor_count(w->y) == 0)) return TREADLE_OK;
    TD_TRY(ready_queries(w, biases[0]));
    TD_TRY(all_numbers(w, &numbers));
    if (w->beams) {
        TD_TRY(gather_beams(w, &k, w->size, &beam_k));
        TD_TRY(gather_beams(w, &v, w->v_size, &beam_v));
        k = beam_k;
        v = beam_v;
    }
    if (w->scores) {
        score_job job = {w, &k, numbers, scale};
        int64_t each = TD_MAX(1, n_keys(w) * w->size);
        td_pool_range(w->r->pool, w->n_batch * w->attrs->n_heads * w->n_q, TD_MAX(1, GRAIN / each), 1, score_rows,
                      &job);
    }
    return w->y && td_tensor_count(w->y) > 0 ? attend(w, &k, &v, &numbers, scale) : TREADLE_OK;
}
