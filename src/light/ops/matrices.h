/* light/ops/matrices.h - stacks of matrices as NumPy's matmul sees them: what MatMul and its
 * quantised and fused forms share. */
#ifndef TD_LIGHT_OPS_MATRICES_H
#define TD_LIGHT_OPS_MATRICES_H

#include "light/ops/product.h"

/* Output 0 from the shapes of A and B: [.., m, n], stacks broadcast, a vector on the left is a
 * row, on the right a column. */
treadle_status td_matrices_infer(td_infer *in, const td_shape *a, const td_shape *b, td_dtype dtype);

/* The single products of A and B, of any strides, to dense Y, in scratch; none if Y is empty. join:
 * dimensions of the stack that A and Y walk like further rows, against one B, become rows; else there is a
 * job for each matrix of Y, in order. */
treadle_status td_matrices_jobs(td_run *r, const td_tensor *a, const td_tensor *b, const td_tensor *y, bool join,
                                td_product_job **jobs, int64_t *n_jobs);

#endif
