/* kernels/rows_f32_avx2.c - the row operations with AVX2. */
#include "kernels/simd_avx2.h"

#define VARIANT td_rows_f32_avx2
#define VARIANT_NAME "avx2"
#include "kernels/rows_f32_tmpl.h"
