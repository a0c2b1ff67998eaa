/* light/ops/product.h - matrix products of any element type: what MatMul and Gemm share.
 *
 * float32 runs on kernels/gemm_f32.h; float16 and bfloat16 pass through float32 (weights stay as they are and are
 * widened in the kernel); float64 and the integers are plain loops, integers wrap. */
#ifndef TD_LIGHT_OPS_PRODUCT_H
#define TD_LIGHT_OPS_PRODUCT_H

#include "kernels/gemm_f32.h"
#include "light/op.h"

/* A strided matrix in memory; strides in elements. */
typedef struct td_matrix {
    int64_t rows, cols, row_stride, col_stride;
    void *data;
} td_matrix;

typedef struct td_product_job {
    td_matrix a, b, y; /* [m, k], [k, n], [m, n]; y's columns are dense */
} td_product_job;

/* What prepare finds out; part of an op's state. */
typedef struct td_product {
    const td_gemm_f32_kernels *kernels;
    td_dtype dtype;
    const void *packed; /* B, if it is a constant matrix of a float type that the kernel reads; else NULL */
    td_dtype b_dtype;   /* of packed: another than dtype only in products that a pass has made */
    bool wide_y;        /* float16 and bfloat16: Y is float32, the caller goes on computing and rounds */
} td_product;

/* Looks at the dtype of input 0 and packs input 1, [k, n] (or [n, k] if transposed), if it is a constant. */
treadle_status td_product_prepare(td_prepare *p, bool transposed_b, td_product *out);

/* MatMul's shapes and run over any operands: tb as MatMul has it, whatever input it comes from. bias as below. */
treadle_status td_matmul_infer(td_infer *in, const td_tensor *ta, const td_tensor *tb);
treadle_status td_matmul_run(td_run *r, const td_product *p, const td_tensor *ta, const td_tensor *tb,
                             const float *bias);

/* Runs n jobs of one shape. bias: [n] of float32 added to every row, only where td_product_takes_bias. */
treadle_status td_product_run(td_run *r, const td_product *p, const td_product_job *jobs, int64_t n_jobs,
                              const float *bias);

/* Runs float32 products as they are: side by side if there are many, else each split over the pool. */
treadle_status td_product_run_gemms(td_run *r, const td_gemm_f32_kernels *kernels, const td_gemm_f32 *gemms,
                                    int64_t n_gemms);
static inline bool td_product_is_half(const td_product *p) { return p->dtype == TD_FLOAT16 || p->dtype == TD_BFLOAT16; }
static inline bool td_product_takes_bias(const td_product *p) { return p->dtype == TD_FLOAT; }

#endif
