/* light/ops/conv.c - Conv: Y = W * X + B over any number of spatial dimensions. Source:
 * ONNX op text of Conv-1, -11, -22.
 *
 * float32 runs in conv_run.c; float16 and bfloat16 pass through float32 and are rounded once; float64 is a plain
 * loop. */
#include "light/ops/conv.h"

#include "tensor/half.h"

#include <string.h>

typedef struct conv_state {
    td_window window;
    td_conv_kernels kernels;
    int64_t groups;
    td_dtype dtype;
    const float *w; /* half types: constant weights as float32; else NULL */
} conv_state;

static treadle_status widen_weights(td_prepare *p, conv_state *s) {
    const td_tensor *w = td_input_const(p, 1);
    size_t bytes;
    void *wide;
    bool ready;

    if (!w || (s->dtype != TD_FLOAT16 && s->dtype != TD_BFLOAT16)) return TREADLE_OK;
    if (!td_dtype_bytes(TD_FLOAT, td_tensor_count(w), &bytes)) return td_unsupported(p, "weights of 2^63 bytes");
    TD_TRY(td_prepare_packed(p, "widened 1", bytes, &wide, &ready));
    if (!ready) {
        td_to_f32(w->dtype, w->data, td_tensor_count(w), wide);
        td_prepare_done_with(p, 1);
    }
    s->w = wide;
    return TREADLE_OK;
}

static treadle_status conv_prepare(td_prepare *p) {
    conv_state *s = p->state;

    s->dtype = td_input_dtype(p, 0);
    s->groups = td_attr_int(p, "group");
    s->kernels = td_conv_pick();
    if (s->groups < 1) return td_bad_node(p, "group is %lld; expected at least 1", (long long)s->groups);
    TD_TRY(td_window_prepare(p, &s->window));
    return widen_weights(p, s);
}

treadle_status td_conv_infer(td_infer *in, const td_window *window, int64_t groups, size_t x_input, size_t w_input,
                             int bias, td_shape *out) {
    const td_shape *x = &in->inputs[x_input]->tensor.shape, *w = &in->inputs[w_input]->tensor.shape;

    if (w->rank >= 0 && x->rank >= 0 && w->rank != x->rank)
        return td_infer_fail(in, "weights of rank %d for an input of rank %d", w->rank, x->rank);
    if (w->rank >= 0 && w->rank < 3) return td_infer_fail(in, "weights of rank %d; expected at least 3", w->rank);
    if (w->rank >= 0 && window->n && w->rank != window->n + 2)
        return td_infer_fail(in, "the attributes are for %d spatial dimensions, the weights have %d", window->n,
                             w->rank - 2);
    TD_TRY(td_window_infer(in, window, x, w->rank >= 0 ? w->dims + 2 : NULL, out));
    if (out->rank < 0) return TREADLE_OK;
    out->dims[0] = x->rank >= 0 ? x->dims[0] : TD_DIM_UNKNOWN;
    out->dims[1] = w->rank >= 0 ? w->dims[0] : TD_DIM_UNKNOWN;
    if (w->rank < 0) return TREADLE_OK;
    for (int d = 2; d < w->rank; d++) {
        if (window->has_kernel && w->dims[d] >= 0 && w->dims[d] != window->kernel[d - 2])
            return td_infer_fail(in, "kernel_shape has %lld where the weights have %lld",
                                 (long long)window->kernel[d - 2], (long long)w->dims[d]);
        if (w->dims[d] == 0) return td_infer_fail(in, "weights without elements");
    }
    if (w->dims[0] >= 0 && w->dims[0] % groups)
        return td_infer_fail(in, "%lld outputs in %lld groups", (long long)w->dims[0], (long long)groups);
    if (x->rank >= 0 && x->dims[1] >= 0 && w->dims[1] >= 0 &&
        (x->dims[1] % groups || x->dims[1] / groups != w->dims[1]))
        return td_infer_fail(in, "%lld channels in %lld groups, the weights are for %lld a group",
                             (long long)x->dims[1], (long long)groups, (long long)w->dims[1]);
    if (bias >= 0 && (size_t)bias < in->n_inputs && in->inputs[bias]->kind == TD_VALUE_TENSOR) {
        const td_shape *b = &in->inputs[bias]->tensor.shape;
        if (b->rank >= 0 && (b->rank != 1 || (b->dims[0] >= 0 && w->dims[0] >= 0 && b->dims[0] != w->dims[0])))
            return td_infer_fail(in, "the bias does not have one entry an output");
    }
    return TREADLE_OK;
}

static treadle_status conv_infer(td_infer *in) {
    const conv_state *s = in->state;
    td_shape out;

    TD_TRY(td_conv_infer(in, &s->window, s->groups, 0, 1, 2, &out));
    return td_infer_set(in, 0, in->inputs[0]->tensor.dtype, &out);
}

td_conv_job td_conv_sizes(const td_window *w, int64_t groups, const td_shape *x, const td_shape *weights) {
    td_conv_job job = {.batch = x->dims[0], .channels = x->dims[1], .outputs = weights->dims[0], .groups = groups};
    td_window_place(w, x, weights->dims + 2, &job.windows);
    return job;
}

/* --- float64 --- */

typedef struct conv_f64 {
    const td_conv_job *job; /* sizes */
    const double *x, *w, *bias;
    double *y;
} conv_f64;

TD_WINDOW_ADD_TAP(double, double, add_tap)

static void planes_f64(void *arg, int64_t begin, int64_t end, int thread) {
    const conv_f64 *c = arg;
    const td_conv_job *job = c->job;
    const td_windows *w = &job->windows;
    int64_t in = td_window_count(w->in, w->n), out = td_window_count(w->out, w->n),
            taps = td_window_count(w->kernel, w->n);
    int64_t channels = job->channels / job->groups, each = job->outputs / job->groups;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t output = i % job->outputs, tap[TD_WINDOW_DIMS] = {0};
        const double *x = c->x + (i / job->outputs * job->channels + output / each * channels) * in;
        const double *weights = c->w + output * channels * taps;
        double *y = c->y + i * out;
        for (int64_t o = 0; o < out; o++) y[o] = c->bias ? c->bias[output] : 0;
        for (int64_t k = 0; k < channels * taps; k++) {
            add_tap(w, tap, weights[k], 0, x + k / taps * in, y);
            td_window_next(w->kernel, w->n, tap);
        }
    }
}

/* --- float16 and bfloat16 --- */

static treadle_status run_half(td_run *r, const conv_state *s, td_conv_job *job) {
    const td_tensor *y = r->out[0];

    const void *x, *w = s->w, *bias = NULL;
    TD_TRY(td_run_widen(r, r->in[0], &x));
    if (!w) TD_TRY(td_run_widen(r, r->in[1], &w));
    if (r->n_inputs > 2) TD_TRY(td_run_widen(r, r->in[2], &bias));
    job->x = x;
    job->w = w;
    job->bias = bias;
    job->y = td_run_scratch(r, (size_t)td_tensor_count(y) * sizeof(float));
    if (!job->y) return TREADLE_OUT_OF_MEMORY;
    TD_TRY(td_conv_run(r, &s->kernels, job));
    td_from_f32(y->dtype, job->y, td_tensor_count(y), y->data);
    return TREADLE_OK;
}

static treadle_status conv_run(td_run *r) {
    const conv_state *s = r->state;
    const void *bias = r->n_inputs > 2 && r->in[2] ? r->in[2]->data : NULL;
    td_conv_job job = td_conv_sizes(&s->window, s->groups, &r->in[0]->shape, &r->in[1]->shape);

    if (!r->out[0] || td_tensor_count(r->out[0]) == 0) return TREADLE_OK;
    if (s->dtype == TD_DOUBLE) {
        conv_f64 c = {&job, r->in[0]->data, r->in[1]->data, bias, r->out[0]->data};
        td_pool_range(r->pool, job.batch * job.outputs, 1, 1, planes_f64, &c);
        return TREADLE_OK;
    }
    if (s->dtype != TD_FLOAT) return run_half(r, s, &job);
    job.x = r->in[0]->data;
    job.w = r->in[1]->data;
    job.bias = bias;
    job.y = r->out[0]->data;
    return td_conv_run(r, &s->kernels, &job);
}

const td_op_impl td_op_conv = {
    .state_bytes = sizeof(conv_state), .prepare = conv_prepare, .infer = conv_infer, .run = conv_run};
