/* kernels/attention_f32_avx512.c - attention with AVX-512. */
#include "kernels/simd_avx512.h"

#define VARIANT td_attention_f32_avx512
#define VARIANT_NAME "avx512"
#define BLOCK td_gemm_block_avx512
#include "kernels/attention_f32_tmpl.h"
