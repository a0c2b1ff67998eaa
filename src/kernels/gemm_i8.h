/* kernels/gemm_i8.h - C[m, n] = (A - za) . (B - zb) with 8-bit codes, exact in int32 (sums wrap), and the fp32 to 8-bit
 * step before it. What MatMulInteger, the QLinear ops and dynamically quantised products run on.
 *
 * One form for all signs: A becomes int8 (uint8 codes minus 128), B uint8 (int8 codes plus
 * 128), zero points move along, and
 *     C = A B - za sum(B) - zb sum(A) + k za zb
 * with sums per column and row made when the operands are prepared. All variants give the same bits.
 *
 * B is packed into panels of 16 columns, [n / 16][k / 4][16][4], k padded with zeros to a multiple of 4, behind the
 * sums of the columns. Nothing here allocates; nothing can fail. */
#ifndef TD_KERNELS_GEMM_I8_H
#define TD_KERNELS_GEMM_I8_H

#include "base/pool.h"
#include "kernels/kernel.h"

enum { TD_GEMM_I8_PANEL = 16, TD_GEMM_I8_STEP = 4 };

/* One product; all memory borrowed. Zero points and scales: one for all (step 0) or one a row or column (step 1). */
typedef struct td_gemm_i8 {
    int64_t m, n, k;
    const int8_t *a;                /* [m, td_gemm_i8_row(k)], see td_gemm_i8_fill */
    const int32_t *a_sums;          /* [m] */
    const void *b;                  /* see td_gemm_i8_pack */
    const int32_t *a_zero, *b_zero; /* in prepared codes: minus 128 for uint8 A, plus 128 for int8 B */
    int64_t a_zero_step, b_zero_step;
    int32_t *c; /* [m, c_row], or NULL: y */
    int64_t c_row;
    float *y; /* [m, y_row]: (float)C * (a_scale * b_scale) + bias */
    int64_t y_row;
    const float *a_scale, *b_scale;
    int64_t a_scale_step, b_scale_step;
    const float *bias; /* [n] or NULL */
} td_gemm_i8;

/* What a variant provides. */
typedef struct td_gemm_i8_kernels {
    const char *name;
    /* raw[i][j] = sum of a[i][.] * panel codes, for m rows and 16 columns of each of n_panels panels. */
    void (*sums)(const int8_t *a, int64_t a_row, int64_t m, const uint8_t *panels, int64_t panel_bytes,
                 int64_t n_panels, int64_t steps, int32_t *raw, int64_t raw_row);
    /* Rows m0..m0+m of columns n0..n0+n from their raw sums [m, raw_row]; n0 is a multiple of 16. */
    void (*finish)(const td_gemm_i8 *job, int64_t m0, int64_t m, int64_t n0, int64_t n, const int32_t *raw,
                   int64_t raw_row);
    /* out[i] = codes[i], minus 128 if flip (uint8 becomes int8), and their sum. */
    int32_t (*row)(const uint8_t *codes, int64_t n, bool flip, int8_t *out);
    /* The least and largest of x[0..n) and 0; NaNs are passed over. */
    void (*range)(const float *x, int64_t n, float *least, float *largest);
    /* out[i] = the low byte of min(max(round(x[i] / scale) + zero, low), high), rounding half to even; NaN gives
     * low. */
    void (*quantize)(const float *x, int64_t n, float scale, float zero, float low, float high, uint8_t *out);
} td_gemm_i8_kernels;

#define TD_KERNEL(isa, needs) extern const td_gemm_i8_kernels td_gemm_i8_##isa;
#include "kernels/gemm_i8.inc"
#undef TD_KERNEL

extern const td_kernel_variant td_gemm_i8_variants[];
extern const size_t td_gemm_i8_n_variants;
const td_gemm_i8_kernels *td_gemm_i8_pick(void);

/* Bytes of a prepared row of A: k rounded up. */
static inline int64_t td_gemm_i8_row(int64_t k) { return TD_ROUND_UP(k, TD_GEMM_I8_STEP); }
/* Prepares rows m0..m1 of A[i, k] at data[i * stride + k], signed or not: codes to out, sums to sums. */
void td_gemm_i8_fill(const td_gemm_i8_kernels *kernels, const void *data, int64_t stride, bool is_signed, int64_t k,
                     int64_t m0, int64_t m1, int8_t *out, int32_t *sums);

/* Bytes of B[k, n] packed; false on overflow. */
bool td_gemm_i8_pack_bytes(int64_t k, int64_t n, size_t *out);
/* Packs B[k, n] at data[k * row + n * col]. */
void td_gemm_i8_pack(const void *data, int64_t row, int64_t col, bool is_signed, int64_t k, int64_t n, void *out);

/* The whole product, split over the pool. scratch: td_gemm_i8_scratch bytes, 64-byte aligned. */
size_t td_gemm_i8_scratch(const td_pool *pool);
void td_gemm_i8_parallel(const td_gemm_i8_kernels *kernels, const td_gemm_i8 *job, td_pool *pool, void *scratch);

#endif
