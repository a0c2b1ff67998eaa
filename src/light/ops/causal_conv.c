/* light/ops/causal_conv.c - CausalConvWithState: a depthwise convolution along time that carries its last
 * inputs from run to run. Sources: ONNX op text (27); onnxruntime docs/ContribOperators.md, release 1.31
 * (dilation, channels_last, state_window).
 *
 * A channel's past and input are one line; out[t] = bias + sum_j w[j] * line[t + j * dilation]; its last
 * values are the new state. Everything is computed in float32. The new state may lie over the old one: a
 * channel's old values are read first. */
#include "kernels/vmath.h"
#include "light/op.h"
#include "tensor/half.h"

#include <string.h>

enum { IN_X, IN_WEIGHT, IN_BIAS, IN_PAST };
enum { OUT_Y, OUT_PRESENT };

typedef struct conv_state {
    td_dtype dtype;
    bool silu, channels_last;
    int64_t dilation, window; /* window 0: the state has no axis for it */
} conv_state;

static treadle_status conv_prepare(td_prepare *p) {
    conv_state *s = p->state;
    td_str activation = td_attr_string(p, "activation");

    s->dtype = td_input_dtype(p, IN_X);
    s->silu = td_str_is(activation, "silu") || td_str_is(activation, "swish");
    if (!s->silu && !td_str_is(activation, "none"))
        return td_bad_node(p, "activation \"%.*s\", expected none, silu or swish", TD_STR_ARGS(activation));
    s->dilation = td_attr_has(p, "dilation") ? td_attr_int(p, "dilation") : 1; /* the standard has none */
    s->channels_last = td_attr_int(p, "channels_last") != 0;
    s->window = td_attr_int(p, "state_window");
    if (td_attr_has(p, "ndim") && td_attr_int(p, "ndim") != 1)
        return td_unsupported(p, "ndim = %lld (1 is supported)", (long long)td_attr_int(p, "ndim"));
    if (s->dilation < 1) return td_bad_node(p, "dilation = %lld", (long long)s->dilation);
    if (s->window < 0 || s->window > 8)
        return td_bad_node(p, "state_window = %lld, expected 0..8", (long long)s->window);
    return TREADLE_OK;
}

/* Positions that the state holds, or TD_DIM_UNKNOWN. */
static int64_t state_length(const conv_state *s, const td_shape *weight) {
    return weight->rank == 3 && weight->dims[2] >= 0 ? (weight->dims[2] - 1) * s->dilation : TD_DIM_UNKNOWN;
}

static bool differ(int64_t a, int64_t b) { return a >= 0 && b >= 0 && a != b; }

/* Product of the channel dimensions; TD_DIM_UNKNOWN if one is not known. */
static int64_t n_channels(const conv_state *s, const td_shape *x) {
    if (!s->channels_last) return x->dims[1];
    int64_t n = 1;
    for (int d = 2; d < x->rank; d++) n = n < 0 || x->dims[d] < 0 ? TD_DIM_UNKNOWN : n * x->dims[d];
    return n;
}

static td_shape present_shape(const conv_state *s, const td_shape *x, int64_t length) {
    td_shape out = *x;
    out.dims[s->channels_last ? 1 : 2] = length;
    if (s->window == 0) return out;
    memmove(out.dims + 1, out.dims, (size_t)out.rank * sizeof *out.dims);
    out.dims[0] = s->window;
    out.rank++;
    return out;
}

static const td_shape *shape_of(const td_infer *in, size_t i) {
    return i < in->n_inputs && in->inputs[i]->kind == TD_VALUE_TENSOR ? &in->inputs[i]->tensor.shape : NULL;
}

static treadle_status conv_infer(td_infer *in) {
    const conv_state *s = in->state;
    const td_shape *x = shape_of(in, IN_X), *w = shape_of(in, IN_WEIGHT), *bias = shape_of(in, IN_BIAS),
                   *past = shape_of(in, IN_PAST);

    TD_TRY(td_infer_same(in, OUT_Y, IN_X));
    if (x->rank < 0) return td_infer_unknown(in, OUT_PRESENT, s->dtype, -1);
    if (s->channels_last ? x->rank < 3 || x->rank + (s->window > 0) > TD_MAX_RANK : x->rank != 3)
        return td_infer_fail(in, "expected input to be [batch, %s]",
                             s->channels_last ? "length, channels" : "channels, length");
    int64_t channels = n_channels(s, x), length = state_length(s, w);
    if ((w->rank >= 0 && w->rank != 3) || (w->rank == 3 && (differ(w->dims[0], channels) || differ(w->dims[1], 1))))
        return td_infer_fail(in, "expected weight to be [%lld, 1, kernel]", (long long)channels);
    if (bias && bias->rank >= 0 && (bias->rank != 1 || differ(bias->dims[0], channels)))
        return td_infer_fail(in, "expected bias to be [%lld]", (long long)channels);
    td_shape present = present_shape(s, x, length);
    if (past && past->rank >= 0) {
        bool fits = past->rank == present.rank;
        char text[128];
        for (int d = 0; fits && d < past->rank; d++) fits = !differ(past->dims[d], present.dims[d]);
        if (!fits) return td_infer_fail(in, "expected past_state to be %s", td_shape_text(&present, text));
    }
    return td_infer_set(in, OUT_PRESENT, s->dtype, &present);
}

/* The lines of all channels of a tensor: element t of channel c of sequence b. */
typedef struct lines {
    char *data; /* NULL: no such tensor */
    int64_t batch, time, slot;
    int64_t channel[TD_MAX_RANK]; /* strides of the channel dimensions */
    int64_t dims[TD_MAX_RANK];
    int n_dims;
} lines;

static lines lines_of(const conv_state *s, const td_tensor *t, bool has_window) {
    if (!t) return (lines){0};
    int at = has_window ? 1 : 0;
    lines l = {.data = t->data, .batch = t->strides[at], .slot = t->strides[0]};
    l.time = t->strides[at + (s->channels_last ? 1 : 2)];
    l.n_dims = s->channels_last ? t->shape.rank - at - 2 : 1;
    for (int d = 0; d < l.n_dims; d++) {
        l.channel[d] = t->strides[at + (s->channels_last ? 2 : 1) + d];
        l.dims[d] = t->shape.dims[at + (s->channels_last ? 2 : 1) + d];
    }
    return l;
}

static int64_t line_at(const lines *l, int64_t b, int64_t c) {
    int64_t at = b * l->batch;
    if (l->n_dims == 1) return at + c * l->channel[0];
    for (int d = l->n_dims - 1; d >= 0; d--) {
        at += c % l->dims[d] * l->channel[d];
        c /= l->dims[d];
    }
    return at;
}

/* n elements, `step` elements apart, from or to a dense run of float32. */
TD_INLINE void load(td_dtype dtype, const char *data, int64_t at, int64_t step, int64_t n, float *out) {
    int64_t width = td_dtype_bits(dtype) / 8;
    if (dtype == TD_FLOAT) /* often a few values: no call */
        for (int64_t i = 0; i < n; i++) out[i] = ((const float *)(const void *)data)[at + i * step];
    else if (step == 1) td_to_f32(dtype, data + at * width, n, out);
    else
        for (int64_t i = 0; i < n; i++) td_to_f32(dtype, data + (at + i * step) * width, 1, out + i);
}

TD_INLINE void store(td_dtype dtype, const float *in, int64_t n, char *data, int64_t at, int64_t step) {
    int64_t width = td_dtype_bits(dtype) / 8;
    if (dtype == TD_FLOAT)
        for (int64_t i = 0; i < n; i++) ((float *)(void *)data)[at + i * step] = in[i];
    else if (step == 1) td_from_f32(dtype, in, n, data + at * width);
    else
        for (int64_t i = 0; i < n; i++) td_from_f32(dtype, in + i, 1, data + (at + i * step) * width);
}

typedef struct conv_job {
    const conv_state *s;
    int64_t n_channels, length, n_state, kernel, window;
    lines x, y, past, present;
    const char *weight, *bias;
    const td_vmath_kernels *vmath;
    bool side_by_side; /* y is float32, line after line */
    float *room;       /* per thread: line, out, weights */
    int64_t per_thread;
} conv_job;

/* The state after each of the last `window` positions; slots before the first position are zeros. */
static void store_states(const conv_job *j, const float *line, float *zeros, int64_t b, int64_t c) {
    int64_t slots = TD_MAX(1, j->window);
    for (int64_t slot = 0; slot < slots; slot++) {
        int64_t after = j->length - slots + slot + 1; /* positions of this input that it has seen */
        int64_t at = line_at(&j->present, b, c) + (j->window ? slot * j->present.slot : 0);
        const float *from = line + after;
        if (j->window && after < 1) {
            memset(zeros, 0, (size_t)j->n_state * sizeof *zeros);
            from = zeros;
        }
        store(j->s->dtype, from, j->n_state, j->present.data, at, j->present.time);
    }
}

static void conv_lines(void *arg, int64_t begin, int64_t end, int thread) {
    const conv_job *j = arg;
    const conv_state *s = j->s;
    float *line = j->room + thread * j->per_thread, *out = line + j->n_state + j->length,
          *w = out + TD_MAX(j->length, j->n_state), bias = 0;

    for (int64_t i = begin; i < end; i++) {
        int64_t b = i / j->n_channels, c = i % j->n_channels, last = j->window ? (j->window - 1) * j->past.slot : 0;
        if (j->past.data) load(s->dtype, j->past.data, line_at(&j->past, b, c) + last, j->past.time, j->n_state, line);
        else memset(line, 0, (size_t)j->n_state * sizeof *line);
        load(s->dtype, j->x.data, line_at(&j->x, b, c), j->x.time, j->length, line + j->n_state);
        if (j->present.data) store_states(j, line, out, b, c);
        if (!j->y.data) continue;
        load(s->dtype, j->weight, c * j->kernel, 1, j->kernel, w);
        if (j->bias) load(s->dtype, j->bias, c, 1, 1, &bias);
        for (int64_t t = 0; t < j->length; t++) out[t] = bias;
        for (int64_t k = 0; k < j->kernel; k++) {
            const float *from = line + k * s->dilation;
            for (int64_t t = 0; t < j->length; t++) out[t] += w[k] * from[t];
        }
        if (s->silu && !j->side_by_side) j->vmath->silu(out, j->length, out);
        store(s->dtype, out, j->length, j->y.data, line_at(&j->y, b, c), j->y.time);
    }
    if (s->silu && j->side_by_side) { /* all lines at once: they may be of one value each */
        float *y = (float *)(void *)j->y.data + begin * j->length;
        j->vmath->silu(y, (end - begin) * j->length, y);
    }
}

static const td_tensor *input(const td_run *r, size_t i) { return i < r->n_inputs ? r->in[i] : NULL; }
static const td_tensor *output(const td_run *r, size_t i) { return i < r->n_outputs ? r->out[i] : NULL; }

static treadle_status conv_run(td_run *r) {
    enum { GRAIN = 4096 };
    const conv_state *s = r->state;
    const td_tensor *x = r->in[IN_X], *bias = input(r, IN_BIAS);
    const td_shape *shape = &x->shape;
    conv_job j = {.s = s,
                  .n_channels = n_channels(s, shape),
                  .length = shape->dims[s->channels_last ? 1 : 2],
                  .kernel = r->in[IN_WEIGHT]->shape.dims[2],
                  .window = s->window,
                  .x = lines_of(s, x, false),
                  .y = lines_of(s, output(r, OUT_Y), false),
                  .past = lines_of(s, input(r, IN_PAST), s->window > 0),
                  .present = lines_of(s, output(r, OUT_PRESENT), s->window > 0),
                  .weight = r->in[IN_WEIGHT]->data,
                  .bias = bias ? bias->data : NULL,
                  .vmath = td_vmath_pick()};
    int64_t n_lines = shape->dims[0] * j.n_channels;
    size_t bytes;

    if (j.kernel < 1) return td_run_fail(r, "the kernel is empty");
    if (n_lines == 0) return TREADLE_OK;
    j.side_by_side = j.y.data && s->dtype == TD_FLOAT && !s->channels_last && td_tensor_is_dense(output(r, OUT_Y));
    j.n_state = (j.kernel - 1) * s->dilation;
    j.per_thread = TD_ROUND_UP(j.n_state + j.length + TD_MAX(j.length, j.n_state) + j.kernel, 16);
    if (TD_MUL_OVERFLOWS((size_t)j.per_thread * sizeof(float), (size_t)td_pool_threads(r->pool), &bytes))
        return td_run_fail(r, "sizes overflow");
    j.room = td_run_scratch(r, bytes);
    if (!j.room) return TREADLE_OUT_OF_MEMORY;
    td_pool_range(r->pool, n_lines, TD_MAX(1, GRAIN / TD_MAX(1, j.length * j.kernel)), 1, conv_lines, &j);
    return TREADLE_OK;
}

const td_op_impl td_op_causal_conv_with_state = {.state_bytes = sizeof(conv_state),
                                                 .prepare = conv_prepare,
                                                 .infer = conv_infer,
                                                 .run = conv_run,
                                                 .flags = TD_OP_OVERWRITES,
                                                 .strided_inputs = 1u << IN_X | 1u << IN_PAST,
                                                 .strided_outputs = 1u << OUT_Y | 1u << OUT_PRESENT,
                                                 .overwritten_input = IN_PAST,
                                                 .overwriting_output = OUT_PRESENT};
