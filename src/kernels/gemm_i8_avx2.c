/* kernels/gemm_i8_avx2.c - the 8-bit matrix product with AVX2: codes widened to 16 bits, whose products vpmaddwd adds
 * in pairs. (vpmaddubsw on the bytes would saturate.) Tiles of 2 x 16 sums. */
#include "kernels/gemm_i8_v256.h"

/* Four columns each: of B 4 codes a column, of the sums 2. */
typedef struct quarters {
    __m256i q0, q1, q2, q3;
} quarters;
typedef quarters vb, acc;
typedef __m256i va;

TD_SIMD __m256i widened(const uint8_t *p) {
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
}
TD_SIMD vb vb_load(const uint8_t *p) { return (vb){widened(p), widened(p + 16), widened(p + 32), widened(p + 48)}; }
TD_SIMD va va_set(const int8_t *p) {
    int32_t four;
    memcpy(&four, p, sizeof four);
    return _mm256_cvtepi8_epi16(_mm_set1_epi32(four));
}
TD_SIMD acc acc_zero(void) {
    const __m256i zero = _mm256_setzero_si256();
    return (acc){zero, zero, zero, zero};
}
TD_SIMD acc acc_add(acc sum, vb codes, va four) {
    return (acc){_mm256_add_epi32(sum.q0, _mm256_madd_epi16(codes.q0, four)),
                 _mm256_add_epi32(sum.q1, _mm256_madd_epi16(codes.q1, four)),
                 _mm256_add_epi32(sum.q2, _mm256_madd_epi16(codes.q2, four)),
                 _mm256_add_epi32(sum.q3, _mm256_madd_epi16(codes.q3, four))};
}
/* Neighbours added; the horizontal addition leaves columns 0 1 4 5 and 2 3 6 7. */
TD_SIMD __m256i joined(__m256i a, __m256i b) { return _mm256_permute4x64_epi64(_mm256_hadd_epi32(a, b), 0xd8); }
TD_SIMD vi acc_end(acc sum) { return (vi){joined(sum.q0, sum.q1), joined(sum.q2, sum.q3)}; }

#define ROWS 2
#define PANELS 1
#define VARIANT td_gemm_i8_avx2
#define VARIANT_NAME "avx2"
#include "kernels/gemm_i8_tmpl.h"
