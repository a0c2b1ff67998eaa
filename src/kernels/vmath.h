/* kernels/vmath.h - elementary functions over arrays of fp32. y may be x. Each value is computed by itself;
 * the SIMD variants are within 4 units in the last place. NaN stays NaN; exp, tanh, erf and sigmoid of
 * infinities are their limits. */
#ifndef TD_KERNELS_VMATH_H
#define TD_KERNELS_VMATH_H

#include "kernels/kernel.h"

typedef void td_vmath_fn(const float *x, int64_t n, float *y);

typedef struct td_vmath_kernels {
    const char *name;
    td_vmath_fn *exp;
    td_vmath_fn *tanh;
    td_vmath_fn *erf;
    td_vmath_fn *sigmoid;   /* 1 / (1 + exp(-x)) */
    td_vmath_fn *silu;      /* x * sigmoid(x) */
    td_vmath_fn *gelu;      /* x * (1 + erf(x / sqrt 2)) / 2 */
    td_vmath_fn *gelu_tanh; /* x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2 */
    void (*swish)(const float *x, int64_t n, float alpha, float *y); /* x * sigmoid(alpha * x) */
} td_vmath_kernels;

#define TD_KERNEL(isa, needs) extern const td_vmath_kernels td_vmath_##isa;
#include "kernels/vmath.inc"
#undef TD_KERNEL

extern const td_kernel_variant td_vmath_variants[];
extern const size_t td_vmath_n_variants;
const td_vmath_kernels *td_vmath_pick(void);

#endif
