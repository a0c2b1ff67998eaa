/* kernels/gemm_i8_avx512.c - the 8-bit matrix product with AVX-512 and VNNI: tiles of 8 x 48 sums in 24 registers. */
#include "kernels/simd_avx512.h"

#include <string.h>

typedef __m512i vi, vb, va, acc;

TD_SIMD vi vi_load(const int32_t *p) { return _mm512_loadu_si512(p); }
TD_SIMD void vi_store(int32_t *p, vi v) { _mm512_storeu_si512(p, v); }
TD_SIMD vi vi_set1(int32_t x) { return _mm512_set1_epi32(x); }
TD_SIMD vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
TD_SIMD vi vi_sub(vi a, vi b) { return _mm512_sub_epi32(a, b); }
TD_SIMD vi vi_mul(vi a, vi b) { return _mm512_mullo_epi32(a, b); }
TD_SIMD vf vi_to_f(vi a) { return _mm512_cvtepi32_ps(a); }

TD_SIMD vb vb_load(const uint8_t *p) { return _mm512_loadu_si512(p); }
TD_SIMD va va_set(const int8_t *p) {
    int32_t four;
    memcpy(&four, p, sizeof four);
    return _mm512_set1_epi32(four);
}
TD_SIMD acc acc_zero(void) { return _mm512_setzero_si512(); }
TD_SIMD acc acc_add(acc sum, vb codes, va four) { return _mm512_dpbusd_epi32(sum, codes, four); }
TD_SIMD vi acc_end(acc sum) { return sum; }

TD_SIMD __m128i bytes_of(vf v) { return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)); }

/* Codes of whole vectors to int8, and their sum: vpdpbusd by ones. *at: how many were done. */
TD_SIMD uint32_t row_codes(const uint8_t *codes, int64_t n, bool flip, int8_t *out, int64_t *at) {
    const __m512i turn = _mm512_set1_epi8(flip ? (char)0x80 : 0), ones = _mm512_set1_epi8(1);
    __m512i sum = _mm512_setzero_si512();
    for (; *at + 64 <= n; *at += 64) {
        __m512i v = _mm512_xor_si512(_mm512_loadu_si512(codes + *at), turn);
        _mm512_storeu_si512(out + *at, v);
        sum = _mm512_dpbusd_epi32(sum, ones, v);
    }
    return (uint32_t)_mm512_reduce_add_epi32(sum);
}

#define ROWS 8
#define PANELS 3
#define VARIANT td_gemm_i8_avx512
#define VARIANT_NAME "avx512"
#include "kernels/gemm_i8_tmpl.h"
