/* tensor/half_isa.h - F16C runs for half.c. Each converts as many whole groups as it can and returns how many elements
 * that were. The results are those of the plain C functions, bit for bit. */
#ifndef TD_TENSOR_HALF_ISA_H
#define TD_TENSOR_HALF_ISA_H

#include "base/compiler.h"

#if TD_X86_64
int64_t td_f16_to_f32_avx2(const uint16_t *in, int64_t n, float *out);
int64_t td_f32_to_f16_avx2(const float *in, int64_t n, uint16_t *out);
#else
static inline int64_t td_f16_to_f32_avx2(const uint16_t *in, int64_t n, float *out) {
    return (void)in, (void)n, (void)out, 0;
}
static inline int64_t td_f32_to_f16_avx2(const float *in, int64_t n, uint16_t *out) {
    return (void)in, (void)n, (void)out, 0;
}
#endif

#endif
