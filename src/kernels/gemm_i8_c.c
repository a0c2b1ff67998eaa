/* kernels/gemm_i8_c.c - the 8-bit matrix product in plain C: the reference of the other variants. */
#include "kernels/gemm_i8.h"

#include <math.h>
#include <string.h>

enum { P = TD_GEMM_I8_PANEL, STEP = TD_GEMM_I8_STEP };

static void sums(const int8_t *a, int64_t a_row, int64_t m, const uint8_t *panels, int64_t panel_bytes,
                 int64_t n_panels, int64_t steps, int32_t *raw, int64_t raw_row) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t p = 0; p < n_panels; p++) {
            uint32_t sum[P] = {0};
            const uint8_t *b = panels + p * panel_bytes;
            for (int64_t s = 0; s < steps; s++)
                for (int64_t j = 0; j < P; j++)
                    for (int64_t x = 0; x < STEP; x++)
                        sum[j] += (uint32_t)(a[i * a_row + s * STEP + x] * b[(s * P + j) * STEP + x]);
            memcpy(raw + i * raw_row + p * P, sum, sizeof sum);
        }
}

static void finish(const td_gemm_i8 *job, int64_t m0, int64_t m, int64_t n0, int64_t n, const int32_t *raw,
                   int64_t raw_row) {
    const int32_t *b_sums = job->b;
    for (int64_t i = m0; i < m0 + m; i++) {
        uint32_t za = (uint32_t)job->a_zero[i * job->a_zero_step], sum = (uint32_t)job->a_sums[i];
        for (int64_t j = n0; j < n0 + n; j++) {
            uint32_t zb = (uint32_t)job->b_zero[j * job->b_zero_step];
            uint32_t c = (uint32_t)raw[(i - m0) * raw_row + j - n0] +
                         za * ((uint32_t)job->k * zb - (uint32_t)b_sums[j]) - zb * sum;
            if (job->c) {
                job->c[i * job->c_row + j] = (int32_t)c;
                continue;
            }
            float scale = job->a_scale[i * job->a_scale_step] * job->b_scale[j * job->b_scale_step];
            float y = (float)(int32_t)c * scale;
            job->y[i * job->y_row + j] = job->bias ? y + job->bias[j] : y;
        }
    }
}

static int32_t row(const uint8_t *codes, int64_t n, bool flip, int8_t *out) {
    uint32_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        out[i] = (int8_t)(flip ? codes[i] ^ 0x80 : codes[i]);
        sum += (uint32_t)out[i];
    }
    return (int32_t)sum;
}

static void range(const float *x, int64_t n, float *least, float *largest) {
    *least = *largest = 0;
    for (int64_t i = 0; i < n; i++) {
        if (x[i] < *least) *least = x[i];
        if (x[i] > *largest) *largest = x[i];
    }
}

static void quantize(const float *x, int64_t n, float scale, float zero, float low, float high, uint8_t *out) {
    for (int64_t i = 0; i < n; i++) {
        float v = nearbyintf(x[i] / scale) + zero;
        v = v > low ? v : low; /* NaN too */
        v = v < high ? v : high;
        out[i] = (uint8_t)(int)v;
    }
}

const td_gemm_i8_kernels td_gemm_i8_c = {
    .name = "c", .sums = sums, .finish = finish, .row = row, .range = range, .quantize = quantize};
