/* kernels/conv_f32_avx2.c - the inner loops of convolutions with AVX2. */
#include "kernels/simd_avx2.h"

#define VARIANT td_conv_f32_avx2
#define VARIANT_NAME "avx2"
#include "kernels/conv_f32_tmpl.h"
