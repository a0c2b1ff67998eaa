/* light/ops/deform_conv.c - DeformConv: a convolution whose taps are moved by offsets and weighted by a
 * mask. Source: ONNX op text of DeformConv-19 and -22; J. Dai et al., "Deformable Convolutional Networks"
 * (2017). Two spatial dimensions.
 *
 * Sampled inputs, [channels * taps, positions], are made for one batch item and multiplied by the weights. Everything
 * passes through float32, but float64, which stays and is multiplied in plain loops. */
#include "kernels/gemm_f32.h"
#include "light/ops/conv.h"
#include "tensor/half.h"

#include <math.h>
#include <string.h>

typedef struct deform_state {
    td_window window;
    int64_t groups, offset_groups;
    const td_gemm_f32_kernels *kernels;
} deform_state;

enum { X, W, OFFSET, BIAS, MASK };

static treadle_status deform_prepare(td_prepare *p) {
    deform_state *s = p->state;

    s->groups = td_attr_int(p, "group");
    s->offset_groups = td_attr_int(p, "offset_group");
    s->kernels = td_gemm_f32_pick();
    if (s->groups < 1 || s->offset_groups < 1)
        return td_bad_node(p, "group is %lld, offset_group %lld; expected at least 1", (long long)s->groups,
                           (long long)s->offset_groups);
    return td_window_prepare(p, &s->window);
}

/* Offsets or mask: [batch, per tap * offset groups * taps, out...]. */
static treadle_status check_maps(td_infer *in, size_t i, int64_t per_tap, const char *what, const td_shape *out) {
    const deform_state *s = in->state;
    const td_shape *w = &in->inputs[W]->tensor.shape;

    if (i >= in->n_inputs || in->inputs[i]->kind != TD_VALUE_TENSOR) return TREADLE_OK;
    const td_shape *m = &in->inputs[i]->tensor.shape;
    if (!td_shape_known(m) || !td_shape_known(w) || !td_shape_known(out)) return TREADLE_OK;
    td_shape wanted = *out;
    wanted.dims[1] = per_tap * s->offset_groups * w->dims[2] * w->dims[3];
    if (td_shape_equal(m, &wanted)) return TREADLE_OK;
    char text[128];
    return td_infer_fail(in, "expected %s to be %s", what, td_shape_text(&wanted, text));
}

static treadle_status deform_infer(td_infer *in) {
    const deform_state *s = in->state;
    const td_shape *x = &in->inputs[X]->tensor.shape;
    td_shape out;

    TD_TRY(td_conv_infer(in, &s->window, s->groups, X, W, BIAS, &out));
    if (out.rank >= 0 && out.rank != 4)
        return td_infer_fail(in, "%d spatial dimensions; 2 are supported", out.rank - 2);
    if (x->rank == 4 && x->dims[1] >= 0 && x->dims[1] % s->offset_groups)
        return td_infer_fail(in, "%lld channels in %lld offset groups", (long long)x->dims[1],
                             (long long)s->offset_groups);
    TD_TRY(check_maps(in, OFFSET, 2, "offset", &out));
    TD_TRY(check_maps(in, MASK, 1, "mask", &out));
    return td_infer_set(in, 0, in->inputs[X]->tensor.dtype, &out);
}

/* --- run --- */

typedef struct deform_run {
    const deform_state *s;
    td_conv_job job; /* sizes */
    const td_tensor *x, *offset, *mask;
    int64_t item, taps, positions;
    void *columns; /* [channels * taps, positions] of float32 or float64 */
    bool wide;
} deform_run;

/* Between the four inputs around (y, x); those outside are 0. */
static double between(const deform_run *r, int64_t plane, double y, double x) {
    int64_t height = r->job.windows.in[0], width = r->job.windows.in[1];
    double sum = 0;

    if (!(y > -1 && y < (double)height && x > -1 && x < (double)width)) return 0;
    double y0 = floor(y), x0 = floor(x);
    for (int i = 0; i < 4; i++) {
        double row = y0 + i / 2, column = x0 + i % 2;
        if (row < 0 || row >= (double)height || column < 0 || column >= (double)width) continue;
        double weight = (1 - fabs(y - row)) * (1 - fabs(x - column));
        int64_t at = (plane * height + (int64_t)row) * width + (int64_t)column;
        sum += weight * td_load_f64(r->x->dtype, r->x->data, at);
    }
    return sum;
}

/* Rows channel * taps + tap of the columns. */
static void sample_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const deform_run *r = arg;
    const td_windows *w = &r->job.windows;
    int64_t per_group = r->job.channels / r->s->offset_groups;

    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        int64_t channel = row / r->taps, tap = row % r->taps;
        int64_t map = (r->item * r->s->offset_groups + channel / per_group) * r->taps + tap;
        int64_t plane = r->item * r->job.channels + channel;
        double dy = (double)(tap / w->kernel[1] * w->dilations[0] - w->begin[0]),
               dx = (double)(tap % w->kernel[1] * w->dilations[1] - w->begin[1]);
        for (int64_t p = 0; p < r->positions; p++) {
            double y = (double)(p / w->out[1] * w->strides[0]) + dy, x = (double)(p % w->out[1] * w->strides[1]) + dx;
            y += td_load_f64(r->offset->dtype, r->offset->data, 2 * map * r->positions + p);
            x += td_load_f64(r->offset->dtype, r->offset->data, (2 * map + 1) * r->positions + p);
            double v = between(r, plane, y, x);
            if (r->mask) v *= td_load_f64(r->mask->dtype, r->mask->data, map * r->positions + p);
            if (r->wide) ((double *)r->columns)[row * r->positions + p] = v;
            else ((float *)r->columns)[row * r->positions + p] = (float)v;
        }
    }
}

static void multiply_f64(const deform_run *r, const double *w, const double *bias, double *y) {
    int64_t channels = r->job.channels / r->s->groups, outputs = r->job.outputs / r->s->groups, k = channels * r->taps;
    for (int64_t m = 0; m < r->job.outputs; m++, w += k, y += r->positions) {
        const double *from = (const double *)r->columns + m / outputs * k * r->positions;
        for (int64_t p = 0; p < r->positions; p++) y[p] = bias ? bias[m] : 0;
        for (int64_t i = 0; i < k; i++, from += r->positions)
            for (int64_t p = 0; p < r->positions; p++) y[p] += w[i] * from[p];
    }
}

static void multiply_f32(td_run *run, const deform_run *r, const float *w, const float *bias, float *y, void *scratch) {
    int64_t channels = r->job.channels / r->s->groups, outputs = r->job.outputs / r->s->groups, k = channels * r->taps;
    for (int64_t g = 0; g < r->s->groups; g++) {
        td_gemm_f32 gemm = {.m = outputs,
                            .n = r->positions,
                            .k = k,
                            .a = w + g * outputs * k,
                            .a_row = k,
                            .a_col = 1,
                            .b = {.form = TD_GEMM_NORMAL,
                                  .dtype = TD_FLOAT,
                                  .data = (const float *)r->columns + g * k * r->positions,
                                  .ld = r->positions},
                            .row_bias = bias ? bias + g * outputs : NULL,
                            .c = y + g * outputs * r->positions,
                            .c_row = r->positions};
        td_gemm_f32_parallel(r->s->kernels, &gemm, run->pool, scratch);
    }
}

static treadle_status deform_run_op(td_run *r) {
    const deform_state *s = r->state;
    const td_tensor *y = r->out[0];
    deform_run w = {.s = s, .x = r->in[X], .offset = r->in[OFFSET], .mask = r->n_inputs > MASK ? r->in[MASK] : NULL};
    const void *weights, *bias;
    void *result;

    if (!y || td_tensor_count(y) == 0) return TREADLE_OK;
    w.job = td_conv_sizes(&s->window, s->groups, &r->in[X]->shape, &r->in[W]->shape);
    w.taps = td_window_count(w.job.windows.kernel, 2);
    w.positions = td_window_count(w.job.windows.out, 2);
    w.wide = y->dtype == TD_DOUBLE;
    td_shape columns = {3, {w.job.channels, w.taps, w.positions}};
    int64_t count, each = w.job.outputs * w.positions;
    if (!td_shape_count(&columns, &count)) return td_run_fail(r, "the sampled inputs are too large");
    w.columns = td_run_scratch(r, (size_t)count * (w.wide ? 8 : 4));
    void *scratch = td_run_scratch(r, td_gemm_f32_scratch(s->kernels, r->pool));
    bool half = y->dtype != TD_FLOAT && !w.wide;
    result = half ? td_run_scratch(r, (size_t)td_tensor_count(y) * sizeof(float)) : y->data;
    if (!w.columns || !scratch || !result) return TREADLE_OUT_OF_MEMORY;
    TD_TRY(td_run_widen(r, r->in[W], &weights));
    TD_TRY(td_run_widen(r, r->n_inputs > BIAS ? r->in[BIAS] : NULL, &bias));
    for (w.item = 0; w.item < w.job.batch; w.item++) {
        td_pool_range(r->pool, w.job.channels * w.taps, TD_MAX(1, 1024 / w.positions), 1, sample_rows, &w);
        if (w.wide) multiply_f64(&w, weights, bias, (double *)result + w.item * each);
        else multiply_f32(r, &w, weights, bias, (float *)result + w.item * each, scratch);
    }
    if (half) td_from_f32(y->dtype, result, td_tensor_count(y), y->data);
    return TREADLE_OK;
}

const td_op_impl td_op_deform_conv = {
    .state_bytes = sizeof(deform_state), .prepare = deform_prepare, .infer = deform_infer, .run = deform_run_op};
