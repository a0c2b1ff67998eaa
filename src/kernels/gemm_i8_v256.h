/* kernels/gemm_i8_v256.h - what gemm_i8_tmpl.h asks for on 256-bit registers, but for the dot products. */
#include "kernels/simd_avx2.h"

#include <string.h>

typedef struct vi {
    __m256i lo, hi;
} vi;

TD_SIMD __m256i load_256(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
TD_SIMD void store_256(void *p, __m256i v) { _mm256_storeu_si256((__m256i *)p, v); }

TD_SIMD vi vi_load(const int32_t *p) { return (vi){load_256(p), load_256(p + 8)}; }
TD_SIMD void vi_store(int32_t *p, vi v) {
    store_256(p, v.lo);
    store_256(p + 8, v.hi);
}
TD_SIMD vi vi_set1(int32_t x) { return (vi){_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
TD_SIMD vi vi_add(vi a, vi b) { return (vi){_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
TD_SIMD vi vi_sub(vi a, vi b) { return (vi){_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)}; }
TD_SIMD vi vi_mul(vi a, vi b) { return (vi){_mm256_mullo_epi32(a.lo, b.lo), _mm256_mullo_epi32(a.hi, b.hi)}; }
TD_SIMD vf vi_to_f(vi a) { return (vf){_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }

/* Truncated to the low byte: the shuffle takes bytes 0, 4, 8, 12 of each lane. */
TD_SIMD __m128i bytes_of(vf v) {
    const __m256i low =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1));
    __m256i a = _mm256_shuffle_epi8(_mm256_cvtps_epi32(v.lo), low);
    __m256i b = _mm256_shuffle_epi8(_mm256_cvtps_epi32(v.hi), low);
    __m128i first = _mm_unpacklo_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    __m128i second = _mm_unpacklo_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
    return _mm_unpacklo_epi64(first, second);
}

TD_SIMD uint32_t sum_of_8(__m256i v) {
    __m128i x = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}

/* Codes of whole vectors to int8, and their sum. *at: how many were done. */
TD_SIMD uint32_t row_codes(const uint8_t *codes, int64_t n, bool flip, int8_t *out, int64_t *at) {
    const __m256i turn = _mm256_set1_epi8(flip ? (char)0x80 : 0), ones = _mm256_set1_epi8(1),
                  pairs = _mm256_set1_epi16(1);
    __m256i sum = _mm256_setzero_si256();
    for (; *at + 32 <= n; *at += 32) {
        __m256i v = _mm256_xor_si256(load_256(codes + *at), turn);
        store_256(out + *at, v);
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(ones, v), pairs));
    }
    return sum_of_8(sum);
}
