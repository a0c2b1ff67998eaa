/* kernels/rows_f32.h - operations along one row of fp32: norms, softmax, rotary positions.
 *
 * Every row is computed by itself in a fixed order, so results depend neither on other rows nor on threads. Outputs may
 * be the inputs themselves (same pointer), but not overlap them otherwise. */
#ifndef TD_KERNELS_ROWS_F32_H
#define TD_KERNELS_ROWS_F32_H

#include "kernels/kernel.h"

typedef struct td_rows_f32_kernels {
    const char *name;
    /* y = x + skip (+ bias, NULL: none) */
    void (*add)(const float *x, const float *skip, const float *bias, int64_t n, float *y);
    /* y = x * r * gamma, r = 1 / sqrt(mean(x^2) + epsilon); gamma NULL: 1. Returns r. */
    float (*rms_norm)(const float *x, const float *gamma, int64_t n, float epsilon, float *y);
    /* y = (x - mean) * r * gamma + beta, r = 1 / sqrt(mean((x - mean)^2) + epsilon); gamma NULL: 1, beta NULL: 0.
     * Returns r; *mean is set. */
    float (*layer_norm)(const float *x, const float *gamma, const float *beta, int64_t n, float epsilon, float *y,
                        float *mean);
    /* The variance mean((x - mean)^2); *mean is set. n at least 1. */
    float (*moments)(const float *x, int64_t n, float *mean);
    /* y = (x - mean) * scale + shift */
    void (*affine)(const float *x, int64_t n, float mean, float scale, float shift, float *y);
    /* y = exp(x - max) / sum of these */
    void (*softmax)(const float *x, int64_t n, float *y);
    /* y = x - max - log(sum of exp(x - max)) */
    void (*log_softmax)(const float *x, int64_t n, float *y);
    /* Rotates `half` pairs: (a, b) becomes (a cos - b sin, a sin + b cos). Pairs are (x[i], x[i + half]), or
     * (x[2i], x[2i + 1]) when interleaved. cos, sin: [half] */
    void (*rotate)(const float *x, const float *cos, const float *sin, int64_t half, bool interleaved, float *y);
} td_rows_f32_kernels;

#define TD_KERNEL(isa, needs) extern const td_rows_f32_kernels td_rows_f32_##isa;
#include "kernels/rows_f32.inc"
#undef TD_KERNEL

extern const td_kernel_variant td_rows_f32_variants[];
extern const size_t td_rows_f32_n_variants;
const td_rows_f32_kernels *td_rows_f32_pick(void);

#endif
