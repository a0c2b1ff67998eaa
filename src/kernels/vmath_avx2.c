/* kernels/vmath_avx2.c - the elementary functions with AVX2. */
#include "kernels/simd_avx2.h"

#define VARIANT td_vmath_avx2
#define VARIANT_NAME "avx2"
#include "kernels/vmath_tmpl.h"
