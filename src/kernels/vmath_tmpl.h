/* kernels/vmath_tmpl.h - elementary functions over arrays for any SIMD instruction set, included by one .c file per set
 * after its simd_*.h. It defines VARIANT, the td_vmath_kernels to define, and VARIANT_NAME. */
#include "kernels/simd_math.h"
#include "kernels/vmath.h"

#define EACH(name, expr)                                                                                               \
    static void name(const float *x, int64_t n, float *y) {                                                            \
        int64_t i = 0;                                                                                                 \
        for (; i + 16 <= n; i += 16) {                                                                                 \
            const vf a = vf_load(x + i);                                                                               \
            vf_store(y + i, expr);                                                                                     \
        }                                                                                                              \
        if (i < n) {                                                                                                   \
            const vf a = vf_load_n(x + i, (int)(n - i));                                                               \
            vf_store_n(y + i, expr, (int)(n - i));                                                                     \
        }                                                                                                              \
    }
EACH(each_exp, vf_exp(a))
EACH(each_tanh, vf_tanh(a))
EACH(each_erf, vf_erf(a))
EACH(each_sigmoid, vf_sigmoid(a))
EACH(each_silu, vf_swish(a, vf_set1(1.0f)))
EACH(each_gelu, vf_gelu(a))
EACH(each_gelu_tanh, vf_gelu_tanh(a))

static void each_swish(const float *x, int64_t n, float alpha, float *y) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) vf_store(y + i, vf_swish(vf_load(x + i), vf_set1(alpha)));
    if (i < n) vf_store_n(y + i, vf_swish(vf_load_n(x + i, (int)(n - i)), vf_set1(alpha)), (int)(n - i));
}

const td_vmath_kernels VARIANT = {.name = VARIANT_NAME,
                                  .exp = each_exp,
                                  .tanh = each_tanh,
                                  .erf = each_erf,
                                  .sigmoid = each_sigmoid,
                                  .silu = each_silu,
                                  .gelu = each_gelu,
                                  .gelu_tanh = each_gelu_tanh,
                                  .swish = each_swish};
