/* tensor/half_avx2.c - see half_isa.h. */
#include "tensor/half_isa.h"

#if TD_X86_64
#include <immintrin.h>

int64_t td_f16_to_f32_avx2(const uint16_t *in, int64_t n, float *out) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(in + i))));
    return i;
}

int64_t td_f32_to_f16_avx2(const float *in, int64_t n, uint16_t *out) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(out + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
    return i;
}
#else
typedef int td_translation_unit_is_not_empty;
#endif
