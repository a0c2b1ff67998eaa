/* kernels/qmatmul_avx512.c - the quantised matmul with AVX-512 and VNNI: vpdpbusd on 16 outputs at once. */
#include "kernels/qmatmul.h"
#include "kernels/simd_avx512.h"

#include <math.h>
#include <string.h>

typedef __m512i vi, vb, dot_acc;

TD_SIMD vi vi_zero(void) { return _mm512_setzero_si512(); }
TD_SIMD vi vi_shift(const int32_t *p, const int n) { return _mm512_slli_epi32(_mm512_set1_epi32(*p), (unsigned)n); }
TD_SIMD vi vi_neg_shift(const int32_t *p, const int n) { return _mm512_sub_epi32(vi_zero(), vi_shift(p, n)); }

TD_SIMD vb vb_load(const uint8_t *p) { return _mm512_loadu_si512(p); }
TD_SIMD void vb_store(uint8_t *p, vb v) { _mm512_storeu_si512(p, v); }
TD_SIMD vb vb_nibbles(vb v, const int high) {
    return _mm512_and_si512(high ? _mm512_srli_epi16(v, 4) : v, _mm512_set1_epi8(15));
}
TD_SIMD vb vb_crumbs(vb v, const int t) {
    return _mm512_and_si512(t ? _mm512_srli_epi16(v, (unsigned)(2 * t)) : v, _mm512_set1_epi8(3));
}

#define DOT8_CENTRED 0
TD_SIMD vb dot_code(vb code, int bits) {
    (void)bits;
    return code;
}
TD_SIMD dot_acc dot_begin(vi start) { return start; }
TD_SIMD dot_acc dot_add(dot_acc acc, vb code, int32_t four, int bits) {
    (void)bits;
    return _mm512_dpbusd_epi32(acc, code, _mm512_set1_epi32(four));
}
TD_SIMD vf dot_end(dot_acc acc, vi start, int bits) {
    (void)start, (void)bits;
    return _mm512_cvtepi32_ps(acc);
}

/* Codes of up to 4 bits index a table of their centred values; the permutation ignores all but the low 4 index bits. */
TD_SIMD vf code_float(vb code, const int j, const int bits, const int centre) {
    __m512i byte = j ? _mm512_srli_epi32(code, (unsigned)(8 * j)) : code;
    if (bits < 8) {
        const float c = (float)centre;
        const __m512 table = _mm512_setr_ps(0 - c, 1 - c, 2 - c, 3 - c, 4 - c, 5 - c, 6 - c, 7 - c, 8 - c, 9 - c,
                                            10 - c, 11 - c, 12 - c, 13 - c, 14 - c, 15 - c);
        return _mm512_permutexvar_ps(byte, table);
    }
    if (j < 3) byte = _mm512_and_si512(byte, _mm512_set1_epi32(255));
    return _mm512_cvtepi32_ps(centre ? _mm512_sub_epi32(byte, _mm512_set1_epi32(centre)) : byte);
}

TD_SIMD float tree_sum(const float *values, int sub) {
    __m512 v = _mm512_loadu_ps(values);
    if (sub == 32) v = _mm512_add_ps(v, _mm512_loadu_ps(values + 16));
    __m256 w = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(w), _mm256_extractf128_ps(w, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}

TD_SIMD float fill_block(const float *values, int sub, int8_t *codes, int32_t *neg_sum) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512 v0 = _mm512_loadu_ps(values), v1 = sub == 32 ? _mm512_loadu_ps(values + 16) : _mm512_setzero_ps();
    __m512i m = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(v0), magnitude),
                                 _mm512_and_si512(_mm512_castps_si512(v1), magnitude));
    uint32_t max_bits = _mm512_reduce_max_epu32(m);
    float max, scale = 0, inverse = 0;
    memcpy(&max, &max_bits, sizeof max);
    if (max_bits >= 0x7f800000) {
        scale = NAN;
        v0 = v1 = _mm512_setzero_ps();
    } else if (max >= TD_QACT_LEAST) {
        scale = max / 127;
        inverse = 127 / max;
    }
    __m512i i0 = _mm512_cvtps_epi32(_mm512_mul_ps(v0, _mm512_set1_ps(inverse)));
    __m512i i1 = _mm512_cvtps_epi32(_mm512_mul_ps(v1, _mm512_set1_ps(inverse)));
    _mm_storeu_si128((__m128i *)(void *)codes, _mm512_cvtepi32_epi8(i0));
    if (sub == 32) _mm_storeu_si128((__m128i *)(void *)(codes + 16), _mm512_cvtepi32_epi8(i1));
    *neg_sum = -_mm512_reduce_add_epi32(_mm512_add_epi32(i0, i1));
    return scale;
}

enum { INT8_COLUMNS = 3, FLOAT_COLUMNS = 2 };
#define VARIANT td_qmatmul_avx512
#define VARIANT_NAME "avx512"
#include "kernels/qmatmul_tmpl.h"
