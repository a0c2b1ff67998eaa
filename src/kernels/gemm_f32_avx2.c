/* kernels/gemm_f32_avx2.c - the fp32 matrix product with AVX2 and FMA: tiles of 6 x 16 sums in 12 registers, or 1 x
 * 64. */
#include "kernels/simd_avx2.h"

#define ROWS 6
#define COLS(rows) ((rows) == 1 ? 4 : (rows) == 2 ? 2 : 1)
#define VARIANT td_gemm_f32_avx2
#define VARIANT_NAME "avx2"
#define BLOCK td_gemm_block_avx2
#include "kernels/gemm_f32_tmpl.h"
