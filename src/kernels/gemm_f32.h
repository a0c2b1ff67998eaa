/* kernels/gemm_f32.h - C[m, n] = A[m, k] . B[k, n] (+ bias) in fp32; B may hold fp16 or bf16 weights.
 *
 * Numerics are one definition for all variants: every output is one chain c = c + a_k * b_k over k in order from 0, the
 * bias last. (The SIMD variants fuse multiply and add, the plain C reference cannot afford to.) So a row of the result
 * depends neither on m, its place among the rows, the column range, the form of B nor the number of threads: a prefill
 * gives the same bits as token-by-token decoding.
 *
 * B as weights is packed into panels of 16 columns, [n / 16][k][16], zero-padded, in its own element type: one layout
 * for all instruction sets, and one sequential stream for a single row. Nothing here allocates; nothing can fail. */
#ifndef TD_KERNELS_GEMM_F32_H
#define TD_KERNELS_GEMM_F32_H

#include "base/pool.h"
#include "kernels/kernel.h"
#include "tensor/dtype.h"

enum { TD_GEMM_PANEL = 16 };

typedef enum td_gemm_form {
    TD_GEMM_NORMAL,     /* B[k, n] at data[k * ld + n] */
    TD_GEMM_TRANSPOSED, /* B[k, n] at data[n * ld + k] */
    TD_GEMM_PANELS,     /* as td_gemm_f32_pack leaves it; ld unused */
    TD_GEMM_FILLED,     /* made on demand by `fill` (a convolution's windows); data and ld unused, dtype is TD_FLOAT */
} td_gemm_form;

/* Rows k0..k0+kc of columns n0..n0+count to out[kc][16]; n0 is a multiple of 16, count at most 16. What is left in the
 * columns from count on is not used. Called by several threads at once. */
typedef void td_gemm_fill(const void *ctx, int64_t k0, int64_t kc, int64_t n0, int64_t count, float *out);

typedef struct td_gemm_b {
    td_gemm_form form;
    td_dtype dtype; /* TD_FLOAT, TD_FLOAT16 or TD_BFLOAT16 */
    const void *data;
    int64_t ld; /* elements */
    td_gemm_fill *fill;
    const void *ctx; /* fill's own */
} td_gemm_b;

/* One product; all memory borrowed. */
typedef struct td_gemm_f32 {
    int64_t m, n, k;
    const float *a; /* A[i, k] at a[i * a_row + k * a_col] */
    int64_t a_row, a_col;
    td_gemm_b b;
    const float *bias;     /* [n] or NULL */
    const float *row_bias; /* [m] or NULL */
    float *c;              /* [m, c_row] */
    int64_t c_row;
} td_gemm_f32;

/* What a variant provides. */
typedef struct td_gemm_f32_kernels {
    const char *name;
    /* C[m0..m1, n0..n1). n0 is a multiple of 16, n1 too or n. scratch: td_gemm_f32_scratch_bytes, 64-byte aligned. */
    void (*run)(const td_gemm_f32 *job, int64_t m0, int64_t m1, int64_t n0, int64_t n1, void *scratch);
    size_t scratch_bytes; /* of one thread, for any job */
} td_gemm_f32_kernels;

#define TD_KERNEL(isa, needs) extern const td_gemm_f32_kernels td_gemm_f32_##isa;
#include "kernels/gemm_f32.inc"
#undef TD_KERNEL

extern const td_kernel_variant td_gemm_f32_variants[];
extern const size_t td_gemm_f32_n_variants;
const td_gemm_f32_kernels *td_gemm_f32_pick(void);

/* Bytes of [k, n] packed into panels; false on overflow. */
bool td_gemm_f32_pack_bytes(td_dtype dtype, int64_t k, int64_t n, size_t *out);
/* Packs columns n0..n1 (multiples of 16, n1 may be n) of b (NORMAL or TRANSPOSED) into out, the whole packed matrix. */
void td_gemm_f32_pack(const td_gemm_b *b, int64_t k, int64_t n, int64_t n0, int64_t n1, void *out);

/* One panel as fp32: rows k0..k0+kc of columns n0..n0+16 to out[kc][16]; beyond n zeros, or whatever fill
 * leaves there. Any form and type. */
void td_gemm_f32_panel(const td_gemm_b *b, int64_t k, int64_t n, int64_t k0, int64_t kc, int64_t n0, float *out);

/* Scratch for td_gemm_f32_parallel on this pool (NULL: one thread); 64-byte aligned memory. */
size_t td_gemm_f32_scratch(const td_gemm_f32_kernels *kernels, const td_pool *pool);
/* The whole product, split over the pool. The result does not depend on the number of threads. */
void td_gemm_f32_parallel(const td_gemm_f32_kernels *kernels, const td_gemm_f32 *job, td_pool *pool, void *scratch);

#endif
