/* kernels/qmatmul.h - Y[m, n] = A[m, k] . W[n, k]^T with quantised weights (quant/pack.h), plus bias, SwiGLU, residual.
 *
 * Two steps: the activations are prepared once (td_qact), shared by all matmuls that read them (q, k, v; gate, up);
 * then each matmul runs over ranges of output columns and rows, on as many threads as the caller likes. Nothing
 * allocates; the caller asks for sizes before. Nothing can fail.
 *
 * Modes
 *   TD_QMODE_INT8   activations become int8 with one fp32 scale per `sub` (16 or 32) inputs, round to nearest even,
 *                   |code| <= 127; dot products are exact integers. What accuracy_level 4 allows.
 *   TD_QMODE_FLOAT  activations stay fp32; results are within fp32 rounding of the exact product.
 *
 * Numerics are one definition for all variants. With sub-blocks b in order of k, all steps in fp32:
 *   INT8    f = fma((float)dot_b, scale_a_b * scale_w_b, f);  with minima: f = fma(min_b, scale_a_b * sum_a_b, f)
 *           dot_b is over codes, minus 2^(bits-1) each where there are no minima; sum_a_b is the sum of int8 codes.
 *           A refined block has second codes, of what the first leave over, with scale scale_a_b / 254; they follow at
 *           once: f = fma((float)dot2_b, scale2_a_b * scale_w_b, f), and with minima
 *           scale_a_b * sum_a_b + scale2_a_b * sum2_a_b.
 *   FLOAT   p = fma(a_j, code_j, p) in order of j from 0;  f = fma(p, scale_w_b, f);
 *           with minima: f = fma(min_b, sum_b, f)
 * then y = f + bias, SwiGLU of the pair, + add. So
 *   - a row's result depends neither on m, its place among the rows, the column range, nor the number of threads:
 *     a prefill gives the same bits as token-by-token decoding, in either mode;
 *   - INT8 without SwiGLU gives the same bits on every instruction set, the C reference included; in FLOAT mode the
 *     SIMD variants agree bit for bit, the reference (which cannot afford fma in software) within rounding.
 * A block of activations that holds a NaN or an infinity makes its row NaN in INT8 mode.
 */
#ifndef TD_KERNELS_QMATMUL_H
#define TD_KERNELS_QMATMUL_H

#include "kernels/kernel.h"
#include "quant/pack.h"

/* Blocks whose largest magnitude is below this count as zero in INT8 mode: 127 / max must stay finite. */
#define TD_QACT_LEAST 0x1p-120f

/* A block is refined if its squared scale is more than this many times the mean of its row's. An outlier costs its
 * neighbours their precision, and few blocks hold the outliers: this takes most of the rounding noise for a few per
 * cent of the work (docs/speed.md). */
#define TD_QACT_REFINE 1.0

typedef enum td_qmode { TD_QMODE_INT8, TD_QMODE_FLOAT } td_qmode;

/* Prepared activations of m rows. Made by td_qact_init over the caller's memory, filled by td_qact_fill. */
typedef struct td_qact {
    td_qmode mode;
    int sub; /* 16 or 32: must equal layout.sub of the weights it meets */
    int64_t m, k;
    int64_t k_padded; /* k rounded up to 64; what lies between is 0 */
    int64_t n_sub;    /* k_padded / sub */
    int8_t *codes;    /* INT8: [m, k_padded] */
    uint8_t *refined; /* INT8: [m, n_sub], 1 where a block has second codes */
    int8_t *codes2;   /* INT8: [m, k_padded]; scales2, neg_sums2 [m, n_sub]: 0 where not refined */
    float *scales2;
    int32_t *neg_sums2;
    float *scales;       /* INT8: [m, n_sub] */
    int32_t *neg_sums;   /* INT8: [m, n_sub], minus the sum of the codes */
    float *sums;         /* [m, n_sub] INT8: scale * sum of codes; FLOAT: sum of the values */
    const float *values; /* FLOAT: [m, value_stride]: the source itself if k is a multiple of 64, else a padded copy */
    int64_t value_stride;
    float *value_copy;   /* FLOAT: where the padded copy goes, or NULL */
    const float *source; /* [m, source_stride], borrowed */
    int64_t source_stride;
} td_qact;

/* Bytes that td_qact_init needs for these numbers (64-byte aligned memory); false on overflow. */
bool td_qact_bytes(td_qmode mode, int sub, int64_t m, int64_t k, size_t *out);

/* Points act into memory of td_qact_bytes bytes. source: [m, source_stride] fp32, source_stride >= k; borrowed until
 * the last run in FLOAT mode, until td_qact_fill in INT8 mode. */
void td_qact_init(td_qact *act, td_qmode mode, int sub, const float *source, int64_t source_stride, int64_t m,
                  int64_t k, void *memory);

typedef enum td_qepilogue {
    TD_QEPILOGUE_NONE,
    TD_QEPILOGUE_SWIGLU, /* y = silu(g) * u, g from `weights`, u from `weights_up`; silu(g) = g / (1 + exp(-g)) */
} td_qepilogue;

/* One product. All memory borrowed. weights and weights_up agree in n, k and sub with each other and with act. */
typedef struct td_qmatmul {
    const td_qweights *weights;
    const td_qweights *weights_up; /* SWIGLU only, else NULL */
    const td_qact *act;
    const float *bias;    /* [n] or NULL */
    const float *bias_up; /* [n] or NULL */
    td_qepilogue epilogue;
    const float *add; /* residual [m, add_stride], added last, or NULL; may be y itself, but not with SWIGLU */
    int64_t add_stride;
    float *y; /* [m, y_stride] */
    int64_t y_stride;
} td_qmatmul;

/* What a variant provides. Ranges as in the functions below. */
typedef struct td_qmatmul_kernels {
    const char *name;
    void (*fill)(const td_qact *act, int64_t m0, int64_t m1);
    void (*run)(const td_qmatmul *job, int64_t m0, int64_t m1, int64_t n0, int64_t n1, void *scratch);
    size_t (*scratch_bytes)(int64_t k); /* for any m and any weights with that k; not 0 */
} td_qmatmul_kernels;

#define TD_KERNEL(isa, needs) extern const td_qmatmul_kernels td_qmatmul_##isa;
#include "kernels/qmatmul.inc"
#undef TD_KERNEL

/* All variants, worst first, those included that this CPU lacks. */
extern const td_kernel_variant td_qmatmul_variants[];
extern const size_t td_qmatmul_n_variants;

/* The best variant that td_cpu_flags() allows; sessions ask once and keep it. */
const td_qmatmul_kernels *td_qmatmul_pick(void);

/* Prepares rows [m0, m1) of the source. Rows are independent: ranges may run on several threads. */
void td_qact_fill(const td_qmatmul_kernels *kernels, const td_qact *act, int64_t m0, int64_t m1);

/* Computes Y[m0..m1, n0..n1). n0 is a multiple of 16, n1 too or n; a grain of 48 or more columns is kindest. Disjoint
 * ranges may run at once, each thread with a scratch of its own (td_qmatmul_scratch_bytes, 64-byte aligned). */
static inline void td_qmatmul_run(const td_qmatmul_kernels *kernels, const td_qmatmul *job, int64_t m0, int64_t m1,
                                  int64_t n0, int64_t n1, void *scratch) {
    kernels->run(job, m0, m1, n0, n1, scratch);
}
static inline size_t td_qmatmul_scratch_bytes(const td_qmatmul_kernels *kernels, int64_t k) {
    return kernels->scratch_bytes(k);
}

#endif
