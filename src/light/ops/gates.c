/* light/ops/gates.c - com.microsoft GatedRMSNorm, LinearAttentionGate and GatedAdd: what stands around a gated
 * recurrence, each as one op. Source: onnxruntime docs/ContribOperators.md, release 1.31.
 *
 * All is computed in float32, row by row, and rounded once; only the product of GatedAdd is rounded before the sum. */
#include "kernels/rows_f32.h"
#include "kernels/vmath.h"
#include "light/op.h"
#include "tensor/half.h"

#include <math.h>

enum { GRAIN = 16384 };

static int64_t last_dim(const td_tensor *t) { return t->shape.rank > 0 ? t->shape.dims[t->shape.rank - 1] : 1; }

static const char *at_row(const td_tensor *t, int64_t row, int64_t n) {
    return (const char *)t->data + row * n * (td_dtype_bits(t->dtype) / 8);
}

/* Rows of n values: what every op here hands to its threads. */
typedef struct gate_rows {
    const void *state;
    const td_tensor *in[4];
    const td_tensor *out[2];
    int64_t n, per_thread;
    float *buffer; /* per thread: [per_thread] */
    const float *weights;
} gate_rows;

static treadle_status run_rows(td_run *r, gate_rows *w, int64_t n_rows, int buffers, td_range_fn *fn) {
    w->state = r->state;
    for (size_t i = 0; i < TD_COUNT(w->in) && i < r->n_inputs; i++) w->in[i] = r->in[i];
    for (size_t i = 0; i < TD_COUNT(w->out) && i < r->n_outputs; i++) w->out[i] = r->out[i];
    w->per_thread = TD_ROUND_UP(w->n * buffers, 16);
    w->buffer = td_run_scratch(r, (size_t)w->per_thread * (size_t)td_pool_threads(r->pool) * sizeof(float));
    if (!w->buffer) return TREADLE_OUT_OF_MEMORY;
    td_pool_range(r->pool, n_rows, TD_MAX(1, GRAIN / TD_MAX(w->n, (int64_t)1)), 1, fn, w);
    return TREADLE_OK;
}

/* --- GatedRMSNorm: a norm over groups of the last dimension, times an activated gate */

typedef struct norm_state {
    const td_rows_f32_kernels *rows;
    td_vmath_fn *activation;
    float epsilon;
} norm_state;

static treadle_status norm_prepare(td_prepare *p) {
    norm_state *s = p->state;
    td_str name = td_attr_string(p, "activation");

    bool silu = td_str_is(name, "silu") || td_str_is(name, "swish");
    if (!silu && !td_str_is(name, "sigmoid"))
        return td_bad_node(p, "activation is \"%.*s\"; expected silu, swish or sigmoid", TD_STR_ARGS(name));
    s->rows = td_rows_f32_pick();
    s->activation = silu ? td_vmath_pick()->silu : td_vmath_pick()->sigmoid;
    s->epsilon = td_attr_float(p, "epsilon");
    return TREADLE_OK;
}

static treadle_status norm_infer(td_infer *in) {
    const td_shape *x = &in->inputs[0]->tensor.shape, *scale = &in->inputs[1]->tensor.shape;
    const td_shape *gate = &in->inputs[2]->tensor.shape;
    if (scale->rank >= 0 && scale->rank != 1) return td_infer_fail(in, "expected scale to have 1 dimension");
    if (x->rank == 0) return td_infer_fail(in, "expected X to have a dimension");
    if (td_shape_known(x) && td_shape_known(gate) && !td_shape_equal(x, gate))
        return td_infer_fail(in, "expected gate to have the shape of X");
    int64_t n = scale->rank == 1 ? scale->dims[0] : TD_DIM_UNKNOWN, hidden = x->rank > 0 ? x->dims[x->rank - 1] : -1;
    if (n == 0 || (n > 0 && hidden >= 0 && hidden % n != 0))
        return td_infer_fail(in, "%lld values are not a multiple of the %lld of scale", (long long)hidden,
                             (long long)n);
    return td_infer_same(in, 0, 0);
}

static void norm_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const gate_rows *w = arg;
    const norm_state *s = w->state;
    float *x = w->buffer + thread * w->per_thread, *gate = x + w->n;
    td_dtype dtype = w->in[0]->dtype;
    for (int64_t row = begin; row < end; row++) {
        td_to_f32(dtype, at_row(w->in[0], row, w->n), w->n, x);
        td_to_f32(dtype, at_row(w->in[2], row, w->n), w->n, gate);
        s->rows->rms_norm(x, w->weights, w->n, s->epsilon, x);
        s->activation(gate, w->n, gate);
        for (int64_t i = 0; i < w->n; i++) x[i] *= gate[i];
        td_from_f32(dtype, x, w->n, (char *)(uintptr_t)at_row(w->out[0], row, w->n));
    }
}

static treadle_status norm_run(td_run *r) {
    const td_tensor *scale = r->in[1];
    gate_rows w = {.n = td_tensor_count(scale)};

    if (!r->out[0] || td_tensor_count(r->in[0]) == 0) return TREADLE_OK;
    float *weights = td_run_scratch(r, (size_t)w.n * sizeof *weights);
    if (!weights) return TREADLE_OUT_OF_MEMORY;
    td_to_f32(scale->dtype, scale->data, w.n, weights);
    w.weights = weights;
    return run_rows(r, &w, td_tensor_count(r->in[0]) / w.n, 2, norm_rows);
}

const td_op_impl td_op_gated_rms_norm = {
    .state_bytes = sizeof(norm_state), .prepare = norm_prepare, .infer = norm_infer, .run = norm_run};

/* --- LinearAttentionGate: decay = decay_scale * softplus(a + dt_bias), beta = sigmoid(b) */

enum { IN_A, IN_DT_BIAS, IN_DECAY_SCALE, IN_B };
enum { OUT_DECAY, OUT_BETA };

static treadle_status decay_prepare(td_prepare *p) {
    if (td_has_output(p, OUT_BETA) && !td_has_input(p, IN_B))
        return td_bad_node(p, "the output beta needs the input b");
    return TREADLE_OK;
}

static treadle_status decay_infer(td_infer *in) {
    const td_shape *a = &in->inputs[IN_A]->tensor.shape;
    if (a->rank >= 0 && a->rank != 3) return td_infer_fail(in, "expected a to have 3 dimensions");
    for (size_t i = IN_DT_BIAS; i <= IN_DECAY_SCALE; i++) {
        const td_shape *v = &in->inputs[i]->tensor.shape;
        if ((v->rank >= 0 && v->rank != 1) ||
            (v->rank == 1 && v->dims[0] >= 0 && a->rank == 3 && a->dims[2] >= 0 && v->dims[0] != a->dims[2]))
            return td_infer_fail(
                in, "expected dt_bias and decay_scale to have a value for each of the last dimension of a");
    }
    if (in->n_inputs > IN_B && in->inputs[IN_B]->kind == TD_VALUE_TENSOR) {
        const td_shape *b = &in->inputs[IN_B]->tensor.shape;
        if (td_shape_known(a) && td_shape_known(b) && !td_shape_equal(a, b))
            return td_infer_fail(in, "expected b to have the shape of a");
    }
    TD_TRY(td_infer_same(in, OUT_DECAY, IN_A));
    return in->n_outputs > OUT_BETA && in->outputs[OUT_BETA] ? td_infer_same(in, OUT_BETA, IN_A) : TREADLE_OK;
}

static void decay_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const gate_rows *w = arg;
    float *x = w->buffer + thread * w->per_thread;
    const float *bias = w->in[IN_DT_BIAS]->data, *scale = w->in[IN_DECAY_SCALE]->data;
    td_dtype dtype = w->in[IN_A]->dtype;
    for (int64_t row = begin; row < end; row++) {
        if (w->out[OUT_DECAY]) {
            td_to_f32(dtype, at_row(w->in[IN_A], row, w->n), w->n, x);
            for (int64_t i = 0; i < w->n; i++) {
                float v = x[i] + bias[i];
                x[i] = scale[i] * (fmaxf(v, 0) + log1pf(expf(-fabsf(v))));
            }
            td_from_f32(dtype, x, w->n, (char *)(uintptr_t)at_row(w->out[OUT_DECAY], row, w->n));
        }
        if (w->out[OUT_BETA]) {
            td_to_f32(dtype, at_row(w->in[IN_B], row, w->n), w->n, x);
            for (int64_t i = 0; i < w->n; i++) x[i] = 1 / (1 + expf(-x[i]));
            td_from_f32(dtype, x, w->n, (char *)(uintptr_t)at_row(w->out[OUT_BETA], row, w->n));
        }
    }
}

static treadle_status decay_run(td_run *r) {
    gate_rows w = {.n = last_dim(r->in[IN_A])};
    if (td_tensor_count(r->in[IN_A]) == 0) return TREADLE_OK;
    return run_rows(r, &w, td_tensor_count(r->in[IN_A]) / w.n, 1, decay_rows);
}

const td_op_impl td_op_linear_attention_gate = {.prepare = decay_prepare, .infer = decay_infer, .run = decay_run};

/* --- GatedAdd: X + Y * gate, one gate for a row */

static treadle_status add_infer(td_infer *in) {
    const td_shape *x = &in->inputs[0]->tensor.shape, *y = &in->inputs[1]->tensor.shape;
    td_shape gate = *x;
    if (x->rank == 0) return td_infer_fail(in, "expected X to have a dimension");
    if (x->rank > 0) gate.dims[x->rank - 1] = 1;
    if (td_shape_known(x) && td_shape_known(y) && !td_shape_equal(x, y))
        return td_infer_fail(in, "expected Y to have the shape of X");
    if (td_shape_known(&gate) && td_shape_known(&in->inputs[2]->tensor.shape) &&
        !td_shape_equal(&gate, &in->inputs[2]->tensor.shape))
        return td_infer_fail(in, "expected gate to have the shape of X, with 1 as the last dimension");
    return td_infer_same(in, 0, 0);
}

static void add_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const gate_rows *w = arg;
    float *x = w->buffer + thread * w->per_thread, *y = x + w->n;
    td_dtype dtype = w->in[0]->dtype;
    for (int64_t row = begin; row < end; row++) {
        float gate;
        char *out = (char *)(uintptr_t)at_row(w->out[0], row, w->n);
        td_to_f32(dtype, at_row(w->in[0], row, w->n), w->n, x);
        td_to_f32(dtype, at_row(w->in[1], row, w->n), w->n, y);
        td_to_f32(dtype, at_row(w->in[2], row, 1), 1, &gate);
        for (int64_t i = 0; i < w->n; i++) y[i] *= gate;
        if (dtype != TD_FLOAT) { /* the product is rounded by itself */
            td_from_f32(dtype, y, w->n, out);
            td_to_f32(dtype, out, w->n, y);
        }
        for (int64_t i = 0; i < w->n; i++) x[i] += y[i];
        td_from_f32(dtype, x, w->n, out);
    }
}

static treadle_status add_run(td_run *r) {
    gate_rows w = {.n = last_dim(r->in[0])};
    if (!r->out[0] || td_tensor_count(r->in[0]) == 0) return TREADLE_OK;
    return run_rows(r, &w, td_tensor_count(r->in[0]) / w.n, 2, add_rows);
}

const td_op_impl td_op_gated_add = {.infer = add_infer, .run = add_run};
