/* light/ops/quant_linear.h - products with block-quantised weights: what MatMulNBits, BlockAffineMatMul and the ops
 * that fuse several of them share. */
#ifndef TD_LIGHT_OPS_QUANT_LINEAR_H
#define TD_LIGHT_OPS_QUANT_LINEAR_H

#include "kernels/qmatmul.h"
#include "light/op.h"

/* One weight matrix with its bias, ready to run. Immutable after prepare. */
typedef struct td_qlinear {
    const td_qmatmul_kernels *kernels;
    td_qmode mode;
    td_qweights weights;
    const float *bias; /* [n] or NULL */
} td_qlinear;

/* Packs a source through td_prepare_packed; what: its part of the packed-weights key. */
treadle_status td_qlinear_prepare(td_prepare *p, const td_qsource *source, td_qmode mode, const char *what,
                                  td_qlinear *out);

/* Scales and zero points come as float32, float16 or bfloat16; the packer knows the first two.
 * *data lives as long as the node. */
treadle_status td_qlinear_widen(td_prepare *p, const td_tensor *t, const void **data, td_dtype *dtype);

/* What accuracy_level and the session's options make of the activations. */
td_qmode td_qlinear_mode(const td_prepare *p, int64_t accuracy_level);

/* A constant 1-D input as float32 [n] for the node's life; NULL if absent. Names the input when it is not constant. */
treadle_status td_qlinear_bias(td_prepare *p, size_t input, int64_t n, const float **out);

/* What one call of td_qlinear_run computes: y[i] = a . weights[i] (+ bias), all from the same rows a; with swiglu n is
 * 2 and y[0] = silu(a . weights[0]) * (a . weights[1]). One parallel region, the activations prepared once.
 * y[i] are [..., n_i] of float32, float16 or bfloat16, as is a. */
treadle_status td_qlinear_run(td_run *r, const td_qlinear *linears, size_t n, bool swiglu, const td_tensor *a,
                              td_tensor *const *y);

/* The output's shape: a's with the last dimension replaced. */
treadle_status td_qlinear_infer(td_infer *in, size_t output, int64_t k, int64_t n);

#endif
