/* kernels/simd_avx512.h - 16 fp32 lanes on AVX-512, under the names that the float kernels' templates use.
 * simd_avx2.h has the same on AVX2. Memory may be unaligned; `_n` forms touch only the first n lanes (1 to 16; others
 * load as 0). */
#ifndef TD_KERNELS_SIMD_AVX512_H
#define TD_KERNELS_SIMD_AVX512_H

#include "base/compiler.h"

#include <immintrin.h>

typedef __m512 vf;

TD_INLINE __mmask16 first_lanes(int n) { return (__mmask16)(0xffffu >> (16 - n)); }

TD_INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
TD_INLINE vf vf_set1(float x) { return _mm512_set1_ps(x); }
TD_INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
TD_INLINE vf vf_load_n(const float *p, int n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
TD_INLINE void vf_store(float *p, vf v) { _mm512_storeu_ps(p, v); }
TD_INLINE void vf_store_n(float *p, vf v, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), v); }
/* p[0], p[2], ... p[30]; reads no further */
TD_INLINE vf vf_load_even(const float *p) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_permutex2var_ps(_mm512_loadu_ps(p), even, _mm512_loadu_ps(p + 15));
}
TD_INLINE vf vf_load_even_n(const float *p, int n) /* the first n of these; reads no further */
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31);
    int reach = 2 * n - 1;
    vf low = _mm512_maskz_loadu_ps(first_lanes(reach > 16 ? 16 : reach), p);
    return _mm512_permutex2var_ps(low, even, reach > 16 ? vf_load_n(p + 15, reach - 15) : low);
}
TD_INLINE vf vf_load_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
TD_INLINE vf vf_load_f16_n(const uint16_t *p, int n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
TD_INLINE vf vf_from_bf16(__m256i bits) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
TD_INLINE vf vf_load_bf16(const uint16_t *p) {
    return vf_from_bf16(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
TD_INLINE vf vf_load_bf16_n(const uint16_t *p, int n) {
    return vf_from_bf16(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}

TD_INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
TD_INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
TD_INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
TD_INLINE vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
TD_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); } /* a * b + c */
/* NaN in either operand: b */
TD_INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
TD_INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
TD_INLINE vf vf_abs(vf a) { return _mm512_abs_ps(a); }
TD_INLINE vf vf_copysign(vf magnitude, vf sign) /* magnitude has no sign of its own */
{
    return _mm512_or_ps(magnitude, _mm512_and_ps(sign, _mm512_set1_ps(-0.0f)));
}
TD_INLINE vf vf_round(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/* a * 2^n for whole n */
TD_INLINE vf vf_scale(vf a, vf n) { return _mm512_scalef_ps(a, n); }
/* a < b ? x : y in each lane */
TD_INLINE vf vf_if_less(vf a, vf b, vf x, vf y) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
/* The first n lanes of a, `other` in the rest; n may be below 0 or above 16. */
TD_INLINE vf vf_first(vf a, int64_t n, vf other) {
    return _mm512_mask_blend_ps(n >= 16 ? (__mmask16)0xffff : n <= 0 ? (__mmask16)0 : first_lanes((int)n), other, a);
}

/* In a fixed order: halves, quarters, ... */
TD_INLINE float vf_sum(vf v) { return _mm512_reduce_add_ps(v); }
TD_INLINE float vf_max_lane(vf v) { return _mm512_reduce_max_ps(v); }
TD_INLINE bool vf_any_nan(vf v) { return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q) != 0; }

/* Lane i of the result: the sum of the lanes of v[i], for 16 vectors. */
TD_INLINE vf vf_sums16(const vf v[16]) {
    vf a[8], b[4], c[2];
    TD_UNROLL
    for (int i = 0; i < 8; i++) /* pairs of lanes of 2 vectors */
        a[i] = _mm512_add_ps(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]), _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));
    TD_UNROLL
    for (int i = 0; i < 4; i++) { /* one sum a quarter, of 4 vectors */
        __m512d x = _mm512_castps_pd(a[2 * i]), y = _mm512_castps_pd(a[2 * i + 1]);
        b[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
    }
    TD_UNROLL
    for (int i = 0; i < 2; i++)
        c[i] = _mm512_add_ps(_mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0x88),
                             _mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0xdd));
    return _mm512_add_ps(_mm512_shuffle_f32x4(c[0], c[1], 0x88), _mm512_shuffle_f32x4(c[0], c[1], 0xdd));
}

/* Transposes 16 rows of 16, rows `stride` apart, to out[16][16]. */
TD_INLINE void vf_transpose16(const float *in, int64_t stride, float *out) {
    __m512 r[16], t[16];
    TD_UNROLL
    for (int i = 0; i < 16; i++) r[i] = _mm512_loadu_ps(in + i * stride);
    TD_UNROLL
    for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    TD_UNROLL
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++) {
            __m512d x = _mm512_castps_pd(t[4 * i + j]), y = _mm512_castps_pd(t[4 * i + 2 + j]);
            r[4 * i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
            r[4 * i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
        }
    /* r[4 * g + c]: column c of each quarter, of rows 4 g .. 4 g + 3 */
    TD_UNROLL
    for (int c = 0; c < 4; c++) {
        __m512 lo = _mm512_shuffle_f32x4(r[c], r[4 + c], 0x88), hi = _mm512_shuffle_f32x4(r[c], r[4 + c], 0xdd);
        __m512 lo2 = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0x88),
               hi2 = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0xdd);
        _mm512_storeu_ps(out + c * 16, _mm512_shuffle_f32x4(lo, lo2, 0x88));
        _mm512_storeu_ps(out + (4 + c) * 16, _mm512_shuffle_f32x4(hi, hi2, 0x88));
        _mm512_storeu_ps(out + (8 + c) * 16, _mm512_shuffle_f32x4(lo, lo2, 0xdd));
        _mm512_storeu_ps(out + (12 + c) * 16, _mm512_shuffle_f32x4(hi, hi2, 0xdd));
    }
}

#endif
