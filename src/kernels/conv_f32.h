/* kernels/conv_f32.h - the inner loops of convolutions over fp32: panels of windows for the matrix product, and
 * depthwise rows. Source: ONNX op text of Conv.
 *
 * A window reads input channel c at tap t: x[c * plane + taps[t] + at], where `at` is where the window
 * starts. Windows of neighbouring outputs start `stride` apart. There is no padding here: the caller sees to
 * it that windows lie inside. */
#ifndef TD_KERNELS_CONV_F32_H
#define TD_KERNELS_CONV_F32_H

#include "kernels/kernel.h"

enum { TD_CONV_COLUMNS = 16 };

/* Consecutive outputs of one output row, in one panel of 16. */
typedef struct td_conv_span {
    int64_t at; /* start of the first window */
    int first, count;
} td_conv_span;

/* What a convolution reads. */
typedef struct td_conv_source {
    const float *x;
    int64_t plane;       /* elements between channels */
    const int64_t *taps; /* [n_taps] */
    int64_t n_taps;
    int64_t stride; /* along an output row */
} td_conv_source;

/* How far behind the start of a span's first window kernels may read, whatever its count. */
#define TD_CONV_REACH(stride) ((stride) == 2 ? 2 * TD_CONV_COLUMNS : TD_CONV_COLUMNS)

/* Rows of a depthwise convolution: output i of row j is bias + the sum over t of w[t] * x[j * x_step + i * stride +
 * taps[t]]. Nothing else is read. */
typedef struct td_conv_rows {
    const int64_t *taps; /* [n_taps] */
    int64_t n_taps;
    int64_t n, stride;      /* of a row */
    int64_t n_rows, x_step; /* outputs of rows lie n apart */
} td_conv_rows;

typedef struct td_conv_f32_kernels {
    const char *name;
    /* Rows k0..k0+kc of a panel, row c * n_taps + t being tap t of channel c: out[k - k0][first + i] of each span. They
     * are in order and fill columns from 0. Reads up to TD_CONV_REACH from each span's first window. */
    void (*fill)(const td_conv_source *s, const td_conv_span *spans, int n_spans, int64_t k0, int64_t kc, float *out);
    void (*taps)(const td_conv_rows *rows, const float *x, const float *w, float bias, float *y);
} td_conv_f32_kernels;

#define TD_KERNEL(isa, needs) extern const td_conv_f32_kernels td_conv_f32_##isa;
#include "kernels/conv_f32.inc"
#undef TD_KERNEL

extern const td_kernel_variant td_conv_f32_variants[];
extern const size_t td_conv_f32_n_variants;
const td_conv_f32_kernels *td_conv_f32_pick(void);

#endif
