/* light/ops/conv.h - convolution of fp32: what Conv, ConvInteger and QLinearConv are made of. */
#ifndef TD_LIGHT_OPS_CONV_H
#define TD_LIGHT_OPS_CONV_H

#include "kernels/conv_f32.h"
#include "kernels/gemm_f32.h"
#include "light/ops/window.h"

typedef struct td_conv_kernels {
    const td_gemm_f32_kernels *gemm;
    const td_conv_f32_kernels *conv;
} td_conv_kernels;

static inline td_conv_kernels td_conv_pick(void) { return (td_conv_kernels){td_gemm_f32_pick(), td_conv_f32_pick()}; }

/* Everything dense. channels and outputs are multiples of groups. */
typedef struct td_conv_job {
    td_windows windows;
    int64_t batch, channels, outputs, groups;
    const float *x;    /* [batch, channels, in...] */
    const float *w;    /* [outputs, channels / groups, kernel...] */
    const float *bias; /* [outputs] or NULL */
    float *y;          /* [batch, outputs, out...] */
} td_conv_job;

/* One sum of products per output: exact while all partial sums are integers below 2^24. */
treadle_status td_conv_run(td_run *r, const td_conv_kernels *kernels, const td_conv_job *job);

/* The checks and the output shape that the ops share; weights and bias by their input numbers (bias -1: none). */
treadle_status td_conv_infer(td_infer *in, const td_window *w, int64_t groups, size_t x, size_t weights, int bias,
                             td_shape *out);

/* Sizes from the shapes of X and W, for what td_conv_infer has accepted. */
td_conv_job td_conv_sizes(const td_window *w, int64_t groups, const td_shape *x, const td_shape *weights);

#endif
