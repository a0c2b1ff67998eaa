/* kernels/attention_f32_c.c - attention in plain C: the definition the other variants are checked against. Each row by
 * itself: scores, their largest, exponentials, weighted sum of values. */
#include "kernels/attention_f32.h"

#include "tensor/half.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 64 };

static size_t scratch_bytes(const td_attention_f32 *job) {
    return sizeof(float) * (size_t)(CHUNK + TD_MAX(job->head_size, job->v_head_size));
}

static const float *row_f32(const td_attention_f32 *job, const void *data, int64_t offset, int64_t n, float *copy) {
    if (job->kv == TD_FLOAT) return (const float *)data + offset;
    td_to_f32(job->kv, (const uint16_t *)data + offset, n, copy);
    return copy;
}

static float score(const td_attention_f32 *job, int64_t i, int64_t g, int64_t key, float *copy) {
    const float *q = job->q + i * job->q_row + g * job->q_head;
    const float *k = row_f32(job, job->k, (key - job->base) * job->k_row, job->head_size, copy);
    float bias = job->bias ? job->bias[i * job->bias_row + g * job->bias_head + key] : 0;
    float dot = 0;
    for (int64_t d = 0; d < job->head_size; d++) dot += q[d] * k[d];
    dot *= job->scale;
    if (job->softcap > 0) dot = job->softcap * tanhf(dot / job->softcap);
    return dot + bias;
}

static void run_row(const td_attention_f32 *job, int64_t i, int64_t g, int64_t k0, int64_t k1, float *sums,
                    float *scratch) {
    float *scores = scratch, *copy = scratch + CHUNK;
    int64_t n = job->v_head_size, lo, hi;
    float max = -INFINITY, sum = 0;

    memset(sums, 0, (size_t)n * sizeof(float));
    td_attention_range(job, i, &lo, &hi);
    k0 = TD_MAX(k0, lo);
    k1 = TD_MIN(k1, hi);
    for (int64_t c0 = k0; c0 < k1; c0 += CHUNK) {
        int64_t count = TD_MIN(CHUNK, k1 - c0);
        float before = max;
        for (int64_t j = 0; j < count; j++) {
            scores[j] = score(job, i, g, c0 + j, copy);
            max = scores[j] <= max ? max : scores[j];
        }
        if (max == -INFINITY) continue;
        float keep = expf(before - max);
        sum *= keep;
        for (int64_t d = 0; d < n; d++) sums[d] *= keep;
        for (int64_t j = 0; j < count; j++) {
            const float *v = row_f32(job, job->v, (c0 + j - job->base) * job->v_row, n, copy);
            float p = expf(scores[j] - max);
            sum += p;
            for (int64_t d = 0; d < n; d++) sums[d] += p * v[d];
        }
    }
    sums[n] = max;
    sums[n + 1] = sum;
}

static void run(const td_attention_f32 *job, int64_t p0, int64_t p1, int64_t k0, int64_t k1, float *partial,
                void *scratch) {
    for (int64_t i = p0; i < p1; i++)
        for (int64_t g = 0; g < job->group; g++, partial += job->v_head_size + 2)
            run_row(job, i, g, k0, k1, partial, scratch);
}

const td_attention_f32_kernels td_attention_f32_c = {.name = "c", .run = run, .scratch_bytes = scratch_bytes};
