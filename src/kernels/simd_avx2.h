/* kernels/simd_avx2.h - 16 fp32 lanes as two AVX2 registers, under the names that the float kernels' templates use; see
 * simd_avx512.h, whose results these repeat but for the order of vf_sum. */
#ifndef TD_KERNELS_SIMD_AVX2_H
#define TD_KERNELS_SIMD_AVX2_H

#include "base/compiler.h"

#include <immintrin.h>
#include <string.h>

typedef struct vf {
    __m256 lo, hi;
} vf;

#define VF2(expr_lo, expr_hi) ((vf){(expr_lo), (expr_hi)})

/* All ones in the first n of 8 lanes; n may be below 0 or above 8. */
TD_INLINE __m256i first_of_8(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(n < 0   ? 0
                                                      : n > 8 ? 8
                                                              : n)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

TD_INLINE vf vf_zero(void) { return VF2(_mm256_setzero_ps(), _mm256_setzero_ps()); }
TD_INLINE vf vf_set1(float x) { return VF2(_mm256_set1_ps(x), _mm256_set1_ps(x)); }
TD_INLINE vf vf_load(const float *p) { return VF2(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)); }
TD_INLINE vf vf_load_n(const float *p, int n) {
    return VF2(_mm256_maskload_ps(p, first_of_8(n)), _mm256_maskload_ps(p + 8, first_of_8(n - 8)));
}
TD_INLINE void vf_store(float *p, vf v) {
    _mm256_storeu_ps(p, v.lo);
    _mm256_storeu_ps(p + 8, v.hi);
}
TD_INLINE void vf_store_n(float *p, vf v, int n) {
    _mm256_maskstore_ps(p, first_of_8(n), v.lo);
    _mm256_maskstore_ps(p + 8, first_of_8(n - 8), v.hi);
}
TD_INLINE __m256 load_even_8(const float *p) /* p[0], p[2], ... p[14]; reads no further */
{
    __m256 mixed = _mm256_shuffle_ps(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 7), 0xd8); /* 0 2 8 10, 4 6 12 14 */
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(mixed), 0xd8));
}
TD_INLINE vf vf_load_even(const float *p) { return VF2(load_even_8(p), load_even_8(p + 16)); }
TD_INLINE __m256 load_even_8_n(const float *p, int n) /* n: -8 to 8 */
{
    if (n >= 8) return load_even_8(p);
    if (n <= 0) return _mm256_setzero_ps();
    __m256 low = _mm256_maskload_ps(p, first_of_8(2 * n - 1)), high = _mm256_maskload_ps(p + 7, first_of_8(2 * n - 8));
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(low, high, 0xd8)), 0xd8));
}
TD_INLINE vf vf_load_even_n(const float *p, int n) { return VF2(load_even_8_n(p, n), load_even_8_n(p + 16, n - 8)); }
TD_INLINE __m128i half_bits(const uint16_t *p) { return _mm_loadu_si128((const __m128i *)(const void *)p); }
TD_INLINE vf vf_load_f16(const uint16_t *p) {
    return VF2(_mm256_cvtph_ps(half_bits(p)), _mm256_cvtph_ps(half_bits(p + 8)));
}
TD_INLINE __m256 bf16_bits(const uint16_t *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half_bits(p)), 16));
}
TD_INLINE vf vf_load_bf16(const uint16_t *p) { return VF2(bf16_bits(p), bf16_bits(p + 8)); }
TD_INLINE vf vf_load_f16_n(const uint16_t *p, int n) {
    uint16_t part[16] = {0};
    memcpy(part, p, (size_t)n * sizeof *p);
    return vf_load_f16(part);
}
TD_INLINE vf vf_load_bf16_n(const uint16_t *p, int n) {
    uint16_t part[16] = {0};
    memcpy(part, p, (size_t)n * sizeof *p);
    return vf_load_bf16(part);
}

TD_INLINE vf vf_add(vf a, vf b) { return VF2(_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)); }
TD_INLINE vf vf_sub(vf a, vf b) { return VF2(_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)); }
TD_INLINE vf vf_mul(vf a, vf b) { return VF2(_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)); }
TD_INLINE vf vf_div(vf a, vf b) { return VF2(_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)); }
TD_INLINE vf vf_fma(vf a, vf b, vf c) {
    return VF2(_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi));
}
TD_INLINE vf vf_min(vf a, vf b) { return VF2(_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)); }
TD_INLINE vf vf_max(vf a, vf b) { return VF2(_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)); }
TD_INLINE vf vf_abs(vf a) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return VF2(_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi));
}
TD_INLINE vf vf_copysign(vf magnitude, vf sign) {
    const __m256 bit = _mm256_set1_ps(-0.0f);
    return VF2(_mm256_or_ps(magnitude.lo, _mm256_and_ps(sign.lo, bit)),
               _mm256_or_ps(magnitude.hi, _mm256_and_ps(sign.hi, bit)));
}
TD_INLINE vf vf_round(vf a) {
    return VF2(_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
               _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
TD_INLINE __m256 power_of_2(__m256 n) /* whole n, -126 to 127 */
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
TD_INLINE __m256 scale_8(__m256 a, __m256 n) /* in two steps, so that it goes to 0 and infinity as it should */
{
    __m256 half =
        _mm256_round_ps(_mm256_mul_ps(n, _mm256_set1_ps(0.5f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm256_mul_ps(_mm256_mul_ps(a, power_of_2(half)), power_of_2(_mm256_sub_ps(n, half)));
}
TD_INLINE vf vf_scale(vf a, vf n) { return VF2(scale_8(a.lo, n.lo), scale_8(a.hi, n.hi)); } /* |n| < 252 here */
TD_INLINE vf vf_if_less(vf a, vf b, vf x, vf y) {
    return VF2(_mm256_blendv_ps(y.lo, x.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
               _mm256_blendv_ps(y.hi, x.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)));
}
TD_INLINE vf vf_first(vf a, int64_t n, vf other) {
    return VF2(_mm256_blendv_ps(other.lo, a.lo, _mm256_castsi256_ps(first_of_8(n))),
               _mm256_blendv_ps(other.hi, a.hi, _mm256_castsi256_ps(first_of_8(n - 8))));
}

TD_INLINE float vf_sum(vf v) {
    __m256 a = _mm256_add_ps(v.lo, v.hi);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
TD_INLINE float vf_max_lane(vf v) {
    __m256 a = _mm256_max_ps(v.lo, v.hi);
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}
TD_INLINE bool vf_any_nan(vf v) {
    return _mm256_movemask_ps(
               _mm256_or_ps(_mm256_cmp_ps(v.lo, v.lo, _CMP_UNORD_Q), _mm256_cmp_ps(v.hi, v.hi, _CMP_UNORD_Q))) != 0;
}

TD_INLINE __m256 sums_8(const __m256 v[8]) {
    __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(v[4], v[5]), _mm256_hadd_ps(v[6], v[7]));
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}
TD_INLINE vf vf_sums16(const vf v[16]) {
    __m256 s[16];
    TD_UNROLL
    for (int i = 0; i < 16; i++) s[i] = _mm256_add_ps(v[i].lo, v[i].hi);
    return VF2(sums_8(s), sums_8(s + 8));
}

TD_INLINE void transpose_8(const float *in, int64_t stride, float *out, int64_t out_stride) {
    __m256 r[8], t[8];
    TD_UNROLL
    for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_ps(in + i * stride);
    TD_UNROLL
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    TD_UNROLL
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            r[4 * i + 2 * j] = _mm256_shuffle_ps(t[4 * i + j], t[4 * i + 2 + j], 0x44);
            r[4 * i + 2 * j + 1] = _mm256_shuffle_ps(t[4 * i + j], t[4 * i + 2 + j], 0xee);
        }
    TD_UNROLL
    for (int c = 0; c < 4; c++) {
        _mm256_storeu_ps(out + c * out_stride, _mm256_permute2f128_ps(r[c], r[4 + c], 0x20));
        _mm256_storeu_ps(out + (4 + c) * out_stride, _mm256_permute2f128_ps(r[c], r[4 + c], 0x31));
    }
}
TD_INLINE void vf_transpose16(const float *in, int64_t stride, float *out) {
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) transpose_8(in + i * 8 * stride + j * 8, stride, out + j * 8 * 16 + i * 8, 16);
}

#endif
