/* kernels/recurrence_f32_avx2.c - the recurrence of linear attention with AVX2. */
#include "kernels/simd_avx2.h"

#define VARIANT td_recurrence_f32_avx2
#define VARIANT_NAME "avx2"
#include "kernels/recurrence_f32_tmpl.h"
