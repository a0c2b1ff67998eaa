/* kernels/conv_f32_avx512.c - the inner loops of convolutions with AVX-512. */
#include "kernels/simd_avx512.h"

#define VARIANT td_conv_f32_avx512
#define VARIANT_NAME "avx512"
#include "kernels/conv_f32_tmpl.h"
