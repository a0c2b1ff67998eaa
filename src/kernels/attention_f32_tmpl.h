/* kernels/attention_f32_tmpl.h - attention for any SIMD instruction set, included by one .c file per set after its
 * simd_*.h. It defines VARIANT, the td_attention_f32_kernels to define, VARIANT_NAME, and BLOCK, its td_gemm_block_*.
 *
 * Rows (position times head of the group) are gathered into dense memory, and keys are taken in chunks. For each chunk
 * a few rows at a time: scores, running maximum, exponentials, sums of values. Many rows share a transposed copy of the
 * chunk's keys, so that scores are matrix products; few rows (decode) read each key once and reduce 16 dot products at
 * a time. Values are read in place. */
#include "kernels/attention_f32.h"
#include "kernels/gemm_f32_block.h"
#include "kernels/simd_math.h"

#include <math.h>
#include <string.h>

enum {
    P = 16,
    CHUNK = 128, /* keys at a time; TD_ATTENTION_KEYS is a multiple */
    TILE = 12,   /* rows at a time: those of the matrix product's tile */
    FEW = 8,     /* up to so many rows scores are dot products */
};

/* A part of the work, with its memory. */
typedef struct part {
    const td_attention_f32 *job;
    int64_t p0, n_rows; /* row r is position p0 + r / group, head r % group */
    int64_t q_step;     /* floats between rows of q: head_size rounded up */
    int64_t k_low, k_high;
    float *q;        /* [n_rows][q_step], zeros behind head_size */
    float *keys;     /* [CHUNK / 16][head_size][16]: transposed */
    float *row_f32;  /* a key of a half type */
    float *scores;   /* [TILE][CHUNK] */
    float *products; /* [FEW][16][16]: sums of 16 keys before they are reduced */
    float *sums;     /* = partial: [n_rows][v_head_size + 2] */
} part;

static int64_t q_step_of(const td_attention_f32 *job) { return TD_ROUND_UP(job->head_size, P); }

static int64_t most_rows(const td_attention_f32 *job) { return TD_MIN(job->n_q, td_attention_block(job)) * job->group; }

static size_t scratch_bytes(const td_attention_f32 *job) {
    int64_t step = q_step_of(job);
    return (size_t)(most_rows(job) * step + CHUNK * step + TILE * CHUNK + FEW * P * P + CHUNK * step) * sizeof(float);
}

static void set_memory(part *t, void *scratch) {
    float *at = scratch;
    t->q_step = q_step_of(t->job);
    t->q = at;
    at += t->n_rows * t->q_step;
    t->keys = at;
    at += CHUNK * t->q_step;
    t->scores = at;
    at += TILE * CHUNK;
    t->products = at;
    at += FEW * P * P;
    t->row_f32 = at;
}

static void gather_q(const part *t) {
    const td_attention_f32 *job = t->job;
    for (int64_t r = 0; r < t->n_rows; r++) {
        float *to = t->q + r * t->q_step;
        const float *from = job->q + (t->p0 + r / job->group) * job->q_row + r % job->group * job->q_head;
        memcpy(to, from, (size_t)job->head_size * sizeof(float));
        for (int64_t d = job->head_size; d < t->q_step; d++) to[d] = 0;
    }
}

TD_INLINE vf load_kv(const td_dtype type, const void *p, int64_t at, int64_t left) {
    if (type == TD_FLOAT)
        return left >= P ? vf_load((const float *)p + at) : vf_load_n((const float *)p + at, (int)left);
    const uint16_t *half = (const uint16_t *)p + at;
    if (type == TD_FLOAT16) return left >= P ? vf_load_f16(half) : vf_load_f16_n(half, (int)left);
    return left >= P ? vf_load_bf16(half) : vf_load_bf16_n(half, (int)left);
}

/* --- scores of few rows --- */

/* Scores of up to 16 keys from `key` on against `rows` rows (at most FEW) from row r0 on. */
TD_INLINE void dots_16(const part *t, const td_dtype type, const int rows, int64_t r0, int64_t key, int64_t count,
                       float *scores) {
    const td_attention_f32 *job = t->job;
    for (int64_t j = 0; j < count; j++) {
        int64_t at = (key + j - job->base) * job->k_row;
        vf sum[FEW];
        TD_UNROLL
        for (int r = 0; r < rows; r++) sum[r] = vf_zero();
        for (int64_t d = 0; d < job->head_size; d += P) {
            vf k = load_kv(type, job->k, at + d, job->head_size - d);
            TD_UNROLL
            for (int r = 0; r < rows; r++) sum[r] = vf_fma(k, vf_load(t->q + (r0 + r) * t->q_step + d), sum[r]);
        }
        TD_UNROLL
        for (int r = 0; r < rows; r++) vf_store(t->products + (r * P + j) * P, sum[r]);
    }
    for (int r = 0; r < rows; r++) {
        vf v[P];
        TD_UNROLL
        for (int j = 0; j < P; j++) v[j] = vf_load(t->products + (r * P + j) * P);
        vf_store(scores + r * CHUNK, vf_sums16(v));
    }
}

#define DOTS_CASE(rows)                                                                                                \
    case rows:                                                                                                         \
        if (type == TD_FLOAT) dots_16(t, TD_FLOAT, rows, r0, key, count, scores);                                      \
        else if (type == TD_FLOAT16) dots_16(t, TD_FLOAT16, rows, r0, key, count, scores);                             \
        else dots_16(t, TD_BFLOAT16, rows, r0, key, count, scores);                                                    \
        break;
static void dots(const part *t, int64_t r0, int rows, int64_t c0, int64_t n_keys) {
    const td_dtype type = t->job->kv;
    /* a last group of fewer than 16 keys leaves old products in the other lanes: those must be numbers */
    for (int64_t j = 0; j < n_keys; j += P) {
        int64_t key = c0 + j, count = TD_MIN((int64_t)P, n_keys - j);
        float *scores = t->scores + j;
        switch (rows) {
            DOTS_CASE(1)
            DOTS_CASE(2)
            DOTS_CASE(3)
            DOTS_CASE(4)
            DOTS_CASE(5)
            DOTS_CASE(6)
            DOTS_CASE(7)
            DOTS_CASE(8)
        }
    }
}

/* --- scores of many rows --- */

/* Transposes keys c0..c0+n_keys into panels; lanes beyond n_keys are zero. */
static void transpose_keys(const part *t, int64_t c0, int64_t n_keys) {
    const td_attention_f32 *job = t->job;
    int64_t size = job->head_size;
    const float *from = (const float *)job->k + (c0 - job->base) * job->k_row;
    int64_t step = job->k_row;

    if (job->kv != TD_FLOAT) {
        for (int64_t j = 0; j < n_keys; j++)
            for (int64_t d = 0; d < size; d += P)
                vf_store(t->row_f32 + j * t->q_step + d,
                         load_kv(job->kv, job->k, (c0 - job->base + j) * job->k_row + d, size - d));
        from = t->row_f32;
        step = t->q_step;
    }
    for (int64_t j = 0; j < n_keys; j += P) {
        float *panel = t->keys + j * size;
        int64_t count = TD_MIN((int64_t)P, n_keys - j), d = 0;
        if (count == P)
            for (; d + P <= size; d += P) vf_transpose16(from + j * step + d, step, panel + d * P);
        for (; d < size; d++)
            for (int64_t i = 0; i < P; i++) panel[d * P + i] = i < count ? from[(j + i) * step + d] : 0;
    }
}

static void products(const part *t, int64_t r0, int64_t rows, int64_t n_keys) {
    td_gemm_block block = {.m = rows,
                           .n = TD_ROUND_UP(n_keys, P),
                           .k = t->job->head_size,
                           .a = t->q + r0 * t->q_step,
                           .a_row = t->q_step,
                           .b_type = TD_FLOAT,
                           .b = t->keys,
                           .b_k = P,
                           .b_panel = t->job->head_size * P,
                           .c = t->scores,
                           .c_row = CHUNK};
    BLOCK(&block);
}

/* --- softmax --- */

/* From dot products to scores: scale, bias, softcap, and -infinity for keys that row r does not see. n_keys rounded up
 * to 16 are written. Returns the largest. */
static float finish_scores(const part *t, int64_t r, float *scores, int64_t c0, int64_t n_keys) {
    const td_attention_f32 *job = t->job;
    int64_t i = t->p0 + r / job->group, lo, hi;
    const float *bias = job->bias ? job->bias + i * job->bias_row + r % job->group * job->bias_head + c0 : NULL;
    vf scale = vf_set1(job->scale), max = vf_set1(-INFINITY);

    td_attention_range(job, i, &lo, &hi);
    lo -= c0;
    hi = TD_MIN(hi, c0 + n_keys) - c0;
    for (int64_t j = 0; j < n_keys; j += P) {
        vf s = vf_mul(vf_load(scores + j), scale);
        if (job->softcap > 0) s = vf_mul(vf_tanh(vf_mul(s, vf_set1(1 / job->softcap))), vf_set1(job->softcap));
        if (bias) s = vf_add(s, n_keys - j >= P ? vf_load(bias + j) : vf_load_n(bias + j, (int)(n_keys - j)));
        if (hi - j < P) s = vf_first(s, hi - j, vf_set1(-INFINITY));
        if (lo > j) s = vf_first(vf_set1(-INFINITY), lo - j, s);
        vf_store(scores + j, s);
        max = vf_max(max, s); /* NaN in s: NaN */
        if (vf_any_nan(s)) return NAN;
    }
    return vf_max_lane(max);
}

/* Turns scores into exp(score - max) and brings the row's sums to that max. Returns false if there is nothing to
 * add. */
static bool exponentials(const part *t, int64_t r, float *scores, int64_t c0, int64_t n_keys) {
    int64_t size = t->job->v_head_size;
    float *sums = t->sums + r * (size + 2), before = sums[size], max = finish_scores(t, r, scores, c0, n_keys);
    vf sum = vf_zero();

    max = before >= max ? before : max;
    if (max == -INFINITY) {
        memset(scores, 0, CHUNK * sizeof *scores);
        return false;
    }
    vf shift = vf_set1(max);
    for (int64_t j = 0; j < n_keys; j += P) {
        vf e = vf_exp(vf_sub(vf_load(scores + j), shift));
        vf_store(scores + j, e);
        sum = vf_add(sum, e);
    }
    if (before != max && before != -INFINITY) {
        vf keep = vf_exp(vf_set1(before - max));
        float factor[P];
        vf_store(factor, keep);
        sums[size + 1] *= factor[0];
        for (int64_t d = 0; d + P <= size; d += P) vf_store(sums + d, vf_mul(vf_load(sums + d), keep));
        for (int64_t d = size & ~(int64_t)(P - 1); d < size; d++) sums[d] *= factor[0];
    }
    sums[size] = max;
    sums[size + 1] += vf_sum(sum);
    return true;
}

/* Rows r0..r0+rows over keys c0..c0+n_keys, whose transpose is ready unless there are few rows. */
static void run_tile(const part *t, int64_t r0, int64_t rows, int64_t c0, int64_t n_keys, bool few) {
    const td_attention_f32 *job = t->job;
    int64_t lo, hi, bytes = job->kv == TD_FLOAT ? 4 : 2;
    bool any = false;

    td_attention_range(job, t->p0 + r0 / job->group, &lo, &hi); /* the first row sees the earliest keys */
    if (lo >= c0 + n_keys) return;
    td_attention_range(job, t->p0 + (r0 + rows - 1) / job->group, &lo, &hi); /* and the last one the latest */
    n_keys = TD_MIN(n_keys, hi - c0);
    if (n_keys <= 0) return;
    if (few) dots(t, r0, (int)rows, c0, n_keys);
    else products(t, r0, rows, n_keys);
    for (int64_t r = 0; r < rows; r++) any |= exponentials(t, r0 + r, t->scores + r * CHUNK, c0, n_keys);
    if (!any) return;
    td_gemm_block block = {.m = rows,
                           .n = job->v_head_size,
                           .k = n_keys,
                           .a = t->scores,
                           .a_row = CHUNK,
                           .b_type = job->kv,
                           .b = (const char *)job->v + (c0 - job->base) * job->v_row * bytes,
                           .b_k = job->v_row,
                           .b_panel = P,
                           .c = t->sums + r0 * (job->v_head_size + 2),
                           .c_row = job->v_head_size + 2,
                           .add = true};
    BLOCK(&block);
}

static void run(const td_attention_f32 *job, int64_t p0, int64_t p1, int64_t k0, int64_t k1, float *partial,
                void *scratch) {
    part t = {.job = job, .p0 = p0, .n_rows = (p1 - p0) * job->group, .sums = partial};
    int64_t size = job->v_head_size, lo, hi, last_lo, last_hi;

    for (int64_t r = 0; r < t.n_rows; r++) {
        memset(partial + r * (size + 2), 0, (size_t)(size + 2) * sizeof(float));
        partial[r * (size + 2) + size] = -INFINITY;
    }
    if (p1 <= p0) return;
    td_attention_range(job, p0, &lo, &hi);
    td_attention_range(job, p1 - 1, &last_lo, &last_hi);
    int64_t first = TD_MAX(TD_MAX(k0, job->base), lo / CHUNK * CHUNK), end = TD_MIN(k1, TD_MAX(hi, last_hi));
    bool few = t.n_rows <= FEW;
    set_memory(&t, scratch);
    gather_q(&t);
    if (few) memset(t.products, 0, sizeof(float) * FEW * P * P);
    for (int64_t c0 = first; c0 < end; c0 += CHUNK) {
        int64_t n_keys = TD_MIN((int64_t)CHUNK, end - c0);
        if (!few) transpose_keys(&t, c0, n_keys);
        for (int64_t r = 0; r < t.n_rows; r += few ? FEW : TILE)
            run_tile(&t, r, TD_MIN(t.n_rows - r, few ? (int64_t)FEW : (int64_t)TILE), c0, n_keys, few);
    }
}

const td_attention_f32_kernels VARIANT = {.name = VARIANT_NAME, .run = run, .scratch_bytes = scratch_bytes};
