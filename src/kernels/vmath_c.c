/* kernels/vmath_c.c - elementary functions in plain C, by the C library's: what the other variants are checked against.
 * Where float32 would cancel, in float64. */
#include "kernels/vmath.h"

#include <math.h>

#define EACH(name, expr)                                                                                               \
    static void name(const float *x, int64_t n, float *y) {                                                            \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const float a = x[i];                                                                                      \
            y[i] = (float)(expr);                                                                                      \
        }                                                                                                              \
    }
EACH(each_exp, expf(a))
EACH(each_tanh, tanhf(a))
EACH(each_erf, erff(a))
EACH(each_sigmoid, 1.0f / (1.0f + expf(-a)))
EACH(each_silu, a / (1.0f + expf(-a)))
EACH(each_gelu, a * 0.5 * erfc(-(double)a * 0.70710678118654752))
EACH(each_gelu_tanh, a / (1.0f + expf(-a * (2 * 0.79788456f + 2 * 0.79788456f * 0.044715f * (a * a)))))

static void each_swish(const float *x, int64_t n, float alpha, float *y) {
    for (int64_t i = 0; i < n; i++) y[i] = x[i] / (1.0f + expf(-alpha * x[i]));
}

const td_vmath_kernels td_vmath_c = {.name = "c",
                                     .exp = each_exp,
                                     .tanh = each_tanh,
                                     .erf = each_erf,
                                     .sigmoid = each_sigmoid,
                                     .silu = each_silu,
                                     .gelu = each_gelu,
                                     .gelu_tanh = each_gelu_tanh,
                                     .swish = each_swish};
