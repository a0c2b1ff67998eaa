/* kernels/rows_f32_avx512.c - the row operations with AVX-512. */
#include "kernels/simd_avx512.h"

#define VARIANT td_rows_f32_avx512
#define VARIANT_NAME "avx512"
#include "kernels/rows_f32_tmpl.h"
