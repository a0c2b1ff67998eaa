/* kernels/rows_f32_c.c - the row operations in plain C: the definition the other variants are checked against. Sums are
 * in double, which the SIMD variants approach by many partial sums. */
#include "kernels/rows_f32.h"

#include <math.h>

static void add(const float *x, const float *skip, const float *bias, int64_t n, float *y) {
    for (int64_t i = 0; i < n; i++) y[i] = bias ? x[i] + skip[i] + bias[i] : x[i] + skip[i];
}

static float rms_norm(const float *x, const float *gamma, int64_t n, float epsilon, float *y) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    float r = (float)(1 / sqrt(sum / (double)n + epsilon));
    for (int64_t i = 0; i < n; i++) y[i] = gamma ? x[i] * r * gamma[i] : x[i] * r;
    return r;
}

static float layer_norm(const float *x, const float *gamma, const float *beta, int64_t n, float epsilon, float *y,
                        float *mean) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    double m = sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (x[i] - m) * (x[i] - m);
    float r = (float)(1 / sqrt(squares / (double)n + epsilon));
    *mean = (float)m;
    for (int64_t i = 0; i < n; i++) {
        float v = (x[i] - *mean) * r;
        if (gamma) v *= gamma[i];
        y[i] = beta ? v + beta[i] : v;
    }
    return r;
}

static float moments(const float *x, int64_t n, float *mean) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    double m = sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (x[i] - m) * (x[i] - m);
    *mean = (float)m;
    return (float)(squares / (double)n);
}

static void affine(const float *x, int64_t n, float mean, float scale, float shift, float *y) {
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * scale + shift;
}

static float row_max(const float *x, int64_t n) {
    float max = -INFINITY;
    for (int64_t i = 0; i < n; i++) max = x[i] > max || isnan(x[i]) ? x[i] : max;
    return max;
}

static void softmax(const float *x, int64_t n, float *y) {
    float max = row_max(x, n);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        y[i] = expf(x[i] - max);
        sum += y[i];
    }
    float scale = (float)(1 / sum);
    for (int64_t i = 0; i < n; i++) y[i] *= scale;
}

static void log_softmax(const float *x, int64_t n, float *y) {
    float max = row_max(x, n);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += expf(x[i] - max);
    float log_sum = (float)log(sum);
    for (int64_t i = 0; i < n; i++) y[i] = x[i] - max - log_sum;
}

static void rotate(const float *x, const float *cos, const float *sin, int64_t half, bool interleaved, float *y) {
    int64_t step = interleaved ? 2 : 1, apart = interleaved ? 1 : half;
    for (int64_t i = 0; i < half; i++) {
        float a = x[i * step], b = x[i * step + apart];
        y[i * step] = a * cos[i] - b * sin[i];
        y[i * step + apart] = a * sin[i] + b * cos[i];
    }
}

const td_rows_f32_kernels td_rows_f32_c = {.name = "c",
                                           .add = add,
                                           .rms_norm = rms_norm,
                                           .layer_norm = layer_norm,
                                           .moments = moments,
                                           .affine = affine,
                                           .softmax = softmax,
                                           .log_softmax = log_softmax,
                                           .rotate = rotate};
