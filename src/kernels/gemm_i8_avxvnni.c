/* kernels/gemm_i8_avxvnni.c - the 8-bit matrix product with 256-bit VNNI: tiles of 6 x 16 sums in 12 registers. */
#include "kernels/gemm_i8_v256.h"

typedef vi vb, acc;
typedef __m256i va;

TD_SIMD vb vb_load(const uint8_t *p) { return (vb){load_256(p), load_256(p + 32)}; }
TD_SIMD va va_set(const int8_t *p) {
    int32_t four;
    memcpy(&four, p, sizeof four);
    return _mm256_set1_epi32(four);
}
TD_SIMD acc acc_zero(void) { return (acc){_mm256_setzero_si256(), _mm256_setzero_si256()}; }
TD_SIMD acc acc_add(acc sum, vb codes, va four) {
    return (acc){_mm256_dpbusd_avx_epi32(sum.lo, codes.lo, four), _mm256_dpbusd_avx_epi32(sum.hi, codes.hi, four)};
}
TD_SIMD vi acc_end(acc sum) { return sum; }

#define ROWS 6
#define PANELS 1
#define VARIANT td_gemm_i8_avxvnni
#define VARIANT_NAME "avxvnni"
#include "kernels/gemm_i8_tmpl.h"
