/* kernels/attention_f32_avx2.c - attention with AVX2. */
#include "kernels/simd_avx2.h"

#define VARIANT td_attention_f32_avx2
#define VARIANT_NAME "avx2"
#define BLOCK td_gemm_block_avx2
#include "kernels/attention_f32_tmpl.h"
