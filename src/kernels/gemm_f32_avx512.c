/* kernels/gemm_f32_avx512.c - the fp32 matrix product with AVX-512: tiles of 12 x 32 or 6 x 64 sums in 24 registers. */
#include "kernels/simd_avx512.h"

#define ROWS 12
#define COLS(rows) ((rows) <= 6 ? 4 : 2)
#define VARIANT td_gemm_f32_avx512
#define VARIANT_NAME "avx512"
#define BLOCK td_gemm_block_avx512
#include "kernels/gemm_f32_tmpl.h"
