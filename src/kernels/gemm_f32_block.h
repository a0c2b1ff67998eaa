/* kernels/gemm_f32_block.h - the inner product of gemm_f32, for kernels of the same
 * instruction set that are made of it.
 *
 * C[m, n] = A[m, k] . B[k, n], or C += with `add`; every output is one chain of fused multiply-adds over k in order.
 * A's rows are dense. B comes as columns in groups of 16: element (k, j) at b[j / 16 * b_panel + k * b_k + j % 16],
 * which is a packed panel (b_k 16, b_panel k * 16) or a row-major matrix (b_k its row stride, b_panel 16). Nothing
 * beyond column n is touched. */
#ifndef TD_KERNELS_GEMM_F32_BLOCK_H
#define TD_KERNELS_GEMM_F32_BLOCK_H

#include "tensor/dtype.h"

typedef struct td_gemm_block {
    int64_t m, n, k;
    const float *a;
    int64_t a_row;
    td_dtype b_type; /* TD_FLOAT, TD_FLOAT16 or TD_BFLOAT16 */
    const void *b;
    int64_t b_k, b_panel; /* elements */
    float *c;
    int64_t c_row;
    bool add;
    const float *bias;     /* [n] or NULL */
    const float *row_bias; /* [m] or NULL */
    bool prefetch;         /* B comes from memory: fetch it ahead of its use */
} td_gemm_block;

#if TD_X86_64
void td_gemm_block_avx2(const td_gemm_block *block);
void td_gemm_block_avx512(const td_gemm_block *block);
#endif

#endif
