/* kernels/qmatmul_v256.h - what qmatmul_tmpl.h asks for, on 256-bit registers: a vector of 16 is two of 8.
 *
 * V256_VNNI 1: vpdpbusd (AVX-VNNI). 0: vpmaddubsw, whose 16-bit sums must not saturate. Codes of up to 4 bits are safe:
 * 8 products of at most 2 * 15 * 127 stay below 2^15. 8-bit codes are centred (they are then int8), their magnitudes
 * multiplied with sign-adjusted activations, 2 * 128 * 127 < 2^15, and widened at once. */
#include "kernels/qmatmul.h"
#include "kernels/simd_avx2.h"

#include <math.h>

typedef struct vi {
    __m256i lo, hi;
} vi;
typedef vi vb;
typedef vi dot_acc;

TD_SIMD vi vi_both(__m256i v) { return (vi){v, v}; }
TD_SIMD vi vi_zero(void) { return vi_both(_mm256_setzero_si256()); }
TD_SIMD vi vi_shift(const int32_t *p, const int n) { return vi_both(_mm256_slli_epi32(_mm256_set1_epi32(*p), n)); }
TD_SIMD vi vi_neg_shift(const int32_t *p, const int n) {
    return vi_both(_mm256_sub_epi32(_mm256_setzero_si256(), vi_shift(p, n).lo));
}

TD_SIMD vb vb_load(const uint8_t *p) {
    return (vb){_mm256_loadu_si256((const __m256i *)(const void *)p),
                _mm256_loadu_si256((const __m256i *)(const void *)(p + 32))};
}
TD_SIMD void vb_store(uint8_t *p, vb v) {
    _mm256_storeu_si256((__m256i *)(void *)p, v.lo);
    _mm256_storeu_si256((__m256i *)(void *)(p + 32), v.hi);
}
TD_SIMD vb vb_shift_mask(vb v, const int shift, const int mask) {
    const __m256i m = _mm256_set1_epi8((char)mask);
    if (shift == 0) return (vb){_mm256_and_si256(v.lo, m), _mm256_and_si256(v.hi, m)};
    return (vb){_mm256_and_si256(_mm256_srli_epi16(v.lo, shift), m),
                _mm256_and_si256(_mm256_srli_epi16(v.hi, shift), m)};
}
TD_SIMD vb vb_nibbles(vb v, const int high) { return vb_shift_mask(v, 4 * high, 15); }
TD_SIMD vb vb_crumbs(vb v, const int t) { return vb_shift_mask(v, 2 * t, 3); }

#if V256_VNNI
#define DOT8_CENTRED 0
TD_SIMD vb dot_code(vb code, int bits) {
    (void)bits;
    return code;
}
TD_SIMD dot_acc dot_begin(vi start) { return start; }
TD_SIMD dot_acc dot_add(dot_acc acc, vb code, int32_t four, int bits) {
    const __m256i a = _mm256_set1_epi32(four);
    (void)bits;
    return (dot_acc){_mm256_dpbusd_avx_epi32(acc.lo, code.lo, a), _mm256_dpbusd_avx_epi32(acc.hi, code.hi, a)};
}
TD_SIMD vf dot_end(dot_acc acc, vi start, int bits) {
    (void)start, (void)bits;
    return (vf){_mm256_cvtepi32_ps(acc.lo), _mm256_cvtepi32_ps(acc.hi)};
}
#else
#define DOT8_CENTRED 1
TD_SIMD vb dot_code(vb code, const int bits) {
    const __m256i flip = _mm256_set1_epi8((char)0x80);
    if (bits < 8) return code;
    return (vb){_mm256_xor_si256(code.lo, flip), _mm256_xor_si256(code.hi, flip)};
}
TD_SIMD dot_acc dot_begin(vi start) {
    (void)start;
    return vi_zero();
}
TD_SIMD __m256i dot_add_8(__m256i acc, __m256i code, __m256i a, const int bits) {
    if (bits < 8) {
        acc = _mm256_add_epi16(acc, _mm256_maddubs_epi16(code, a));
        TD_PIN_SIMD(acc); /* else gcc makes a tree of the sums and spills all their terms */
        return acc;
    }
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(code), _mm256_sign_epi8(a, code));
    acc = _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    TD_PIN_SIMD(acc);
    return acc;
}
TD_SIMD dot_acc dot_add(dot_acc acc, vb code, int32_t four, const int bits) {
    const __m256i a = _mm256_set1_epi32(four);
    return (dot_acc){dot_add_8(acc.lo, code.lo, a, bits), dot_add_8(acc.hi, code.hi, a, bits)};
}
TD_SIMD __m256 dot_end_8(__m256i acc, __m256i start, const int bits) {
    if (bits < 8) acc = _mm256_madd_epi16(acc, _mm256_set1_epi16(1));
    return _mm256_cvtepi32_ps(_mm256_add_epi32(acc, start));
}
TD_SIMD vf dot_end(dot_acc acc, vi start, const int bits) {
    return (vf){dot_end_8(acc.lo, start.lo, bits), dot_end_8(acc.hi, start.hi, bits)};
}
#endif

TD_SIMD __m256 code_float_8(__m256i code, const int j, const int centre) {
    __m256i byte = j ? _mm256_srli_epi32(code, 8 * j) : code;
    if (j < 3) byte = _mm256_and_si256(byte, _mm256_set1_epi32(255));
    return _mm256_cvtepi32_ps(centre ? _mm256_sub_epi32(byte, _mm256_set1_epi32(centre)) : byte);
}
TD_SIMD vf code_float(vb code, const int j, const int bits, const int centre) {
    (void)bits;
    return (vf){code_float_8(code.lo, j, centre), code_float_8(code.hi, j, centre)};
}

TD_SIMD float tree_sum(const float *values, int sub) {
    vf v = vf_load(values);
    if (sub == 32) v = vf_add(v, vf_load(values + 16));
    __m256 w = _mm256_add_ps(v.lo, v.hi);
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(w), _mm256_extractf128_ps(w, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}

TD_SIMD float fill_block(const float *values, int sub, int8_t *codes, int32_t *neg_sum) {
    const int n = sub / 8;
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i m = _mm256_setzero_si256(), sum = _mm256_setzero_si256();
    for (int i = 0; i < n; i++)
        m = _mm256_max_epu32(m, _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(values + 8 * i)), magnitude));
    __m128i x = _mm_max_epu32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    x = _mm_max_epu32(x, _mm_shuffle_epi32(x, 0x4e));
    x = _mm_max_epu32(x, _mm_shuffle_epi32(x, 0xb1));
    uint32_t max_bits = (uint32_t)_mm_cvtsi128_si32(x);
    float max, scale = 0, inverse = 0;
    memcpy(&max, &max_bits, sizeof max);
    if (max_bits >= 0x7f800000) {
        memset(codes, 0, (size_t)sub);
        *neg_sum = 0;
        return NAN;
    }
    if (max >= TD_QACT_LEAST) {
        scale = max / 127;
        inverse = 127 / max;
    }
    for (int i = 0; i < n; i++) {
        __m256i v = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(values + 8 * i), _mm256_set1_ps(inverse)));
        sum = _mm256_add_epi32(sum, v);
        __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
        _mm_storel_epi64((__m128i *)(void *)(codes + 8 * i), _mm_packs_epi16(words, words));
    }
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    *neg_sum = -_mm_cvtsi128_si32(s);
    return scale;
}

enum { INT8_COLUMNS = 1, FLOAT_COLUMNS = 1 };
#include "kernels/qmatmul_tmpl.h"
