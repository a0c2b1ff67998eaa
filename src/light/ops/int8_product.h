/* light/ops/int8_product.h - stacks of products of 8-bit matrices: what MatMulInteger, QLinearMatMul, and the
 * com.microsoft ops that quantise or scale around them share. */
#ifndef TD_LIGHT_OPS_INT8_PRODUCT_H
#define TD_LIGHT_OPS_INT8_PRODUCT_H

#include "kernels/gemm_i8.h"
#include "light/op.h"

/* What prepare finds out; part of an op's state. */
typedef struct td_int8_product {
    const td_gemm_i8_kernels *kernels;
    const void *packed; /* B, if it is a constant matrix; else NULL */
} td_int8_product;

/* Packs input b, [k, n], if it is a constant. */
treadle_status td_int8_prepare(td_prepare *p, size_t b, td_int8_product *out);

/* One run: A and B are uint8 or int8, B may be strided. Zero points: NULL, one number, one for each row of A [m] or
 * [.., m, 1], or column of B [n] or [.., 1, n]. */
typedef struct td_int8_run {
    td_tensor a, b;
    const td_tensor *a_zero, *b_zero;
    td_tensor y; /* int32: the sums; float32: sums * (a_scale * b_scale) + bias */
    const float *a_scale, *b_scale;
    int64_t a_scale_step, b_scale_step; /* 1: one for each row of all A, column of B; 0: one number */
    const float *bias;                  /* [n] or NULL */
} td_int8_run;

treadle_status td_int8_run_all(td_run *r, const td_int8_product *p, const td_int8_run *run);

/* Checks at infer time that a zero point (or scale) input fits: one number, `n` numbers, or as the matrix with n for
 * one dimension and 1 for the other. */
treadle_status td_int8_check_side(td_infer *in, size_t input, const td_shape *matrix, bool rows);

#endif
