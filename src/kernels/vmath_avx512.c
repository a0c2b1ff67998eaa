/* kernels/vmath_avx512.c - the elementary functions with AVX-512. */
#include "kernels/simd_avx512.h"

#define VARIANT td_vmath_avx512
#define VARIANT_NAME "avx512"
#include "kernels/vmath_tmpl.h"
