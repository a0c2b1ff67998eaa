/* kernels/recurrence_f32_avx512.c - the recurrence of linear attention with AVX-512. */
#include "kernels/simd_avx512.h"

#define VARIANT td_recurrence_f32_avx512
#define VARIANT_NAME "avx512"
#include "kernels/recurrence_f32_tmpl.h"
