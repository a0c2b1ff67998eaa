/* light/ops/channel_norm.c - BatchNormalization, InstanceNormalization, GroupNormalization: (x - mean) / sqrt(variance
 * + epsilon) * scale + shift per channel. They differ in what mean and variance are taken over. Source: ONNX op texts
 * of BatchNormalization-1 to -15, InstanceNormalization-1 to -22, GroupNormalization-18 and -21.
 *
 * X is [batch, channels, inner]. float32 runs in the row kernels, float16 and bfloat16 pass through
 * it, float64 is a plain loop. */
#include "kernels/rows_f32.h"
#include "light/op.h"
#include "tensor/half.h"

#include <math.h>

typedef enum channel_kind { PER_BATCH, PER_INSTANCE, PER_GROUP } channel_kind;

typedef struct channel_state {
    channel_kind kind;
    const td_rows_f32_kernels *kernels;
    double epsilon, momentum;
    int64_t groups;
    bool training;
    bool per_element;     /* BatchNormalization before 9 with spatial = 0: every element has its own statistics */
    bool scale_per_group; /* GroupNormalization-18 */
} channel_state;

static treadle_status batch_prepare(td_prepare *p) {
    channel_state *s = p->state;

    s->kind = PER_BATCH;
    s->kernels = td_rows_f32_pick();
    s->epsilon = (double)td_attr_float(p, "epsilon");
    s->momentum = (double)td_attr_float(p, "momentum");
    if (p->opset >= 14) s->training = td_attr_int(p, "training_mode") != 0;
    else s->training = p->n_outputs > 1 && (p->opset >= 7 || td_attr_int(p, "is_test") == 0);
    s->per_element = p->opset < 9 && td_attr_int(p, "spatial") == 0;
    if (p->opset >= 14 && !s->training && p->n_outputs > 1)
        return td_bad_node(p, "%zu outputs; without training_mode there is one", p->n_outputs);
    return TREADLE_OK;
}

static treadle_status instance_prepare(td_prepare *p) {
    channel_state *s = p->state;

    s->kind = PER_INSTANCE;
    s->kernels = td_rows_f32_pick();
    s->epsilon = (double)td_attr_float(p, "epsilon");
    return TREADLE_OK;
}

static treadle_status group_prepare(td_prepare *p) {
    channel_state *s = p->state;

    s->kind = PER_GROUP;
    s->kernels = td_rows_f32_pick();
    s->epsilon = (double)td_attr_float(p, "epsilon");
    s->groups = td_attr_int(p, "num_groups");
    s->scale_per_group = p->opset < 21;
    if (s->groups < 1) return td_bad_node(p, "num_groups is %lld; expected at least 1", (long long)s->groups);
    return TREADLE_OK;
}

/* [batch, channels, inner] of X. */
typedef struct planes {
    int64_t batch, channels, inner;
} planes;

static planes planes_of(const channel_state *s, const td_shape *x) {
    planes p = {.batch = x->rank > 0 ? x->dims[0] : 1, .channels = 1, .inner = 1};
    for (int d = 1; d < x->rank; d++) *(d == 1 || s->per_element ? &p.channels : &p.inner) *= x->dims[d];
    return p;
}

static treadle_status channel_infer(td_infer *in) {
    const channel_state *s = in->state;
    const td_shape *x = &in->inputs[0]->tensor.shape;
    size_t n_operands = s->kind == PER_BATCH ? 4 : 2;

    for (size_t i = 1; i < in->n_outputs; i++) TD_TRY(td_infer_same(in, i, s->kind == PER_BATCH ? 3 : 1));
    if (s->kind == PER_BATCH && x->rank == 0) return td_infer_fail(in, "a scalar has no channels");
    if (s->kind != PER_BATCH && x->rank >= 0 && x->rank < 2)
        return td_infer_fail(in, "rank %d has no channels", x->rank);
    if (td_shape_known(x)) {
        int64_t wanted = planes_of(s, x).channels, count;
        if (s->kind == PER_GROUP && wanted % s->groups)
            return td_infer_fail(in, "%lld channels in %lld groups", (long long)wanted, (long long)s->groups);
        if (s->scale_per_group) wanted = s->groups;
        for (size_t i = 1; i <= n_operands; i++)
            if (td_shape_count(&in->inputs[i]->tensor.shape, &count) && count != wanted)
                return td_infer_fail(in, "input %zu has %lld elements; expected %lld", i, (long long)count,
                                     (long long)wanted);
    }
    return td_infer_same(in, 0, 0);
}

/* --- run --- */

typedef struct channel_run {
    const channel_state *s;
    td_run *r;
    planes p;
    bool wide; /* x and y are float64, else float32 */
    const void *x;
    void *y;
    double *mean, *variance; /* PER_BATCH: [channels] */
} channel_run;

static double operand(const channel_run *c, size_t i, int64_t channel) {
    const td_tensor *t = c->r->in[i];
    if (c->s->scale_per_group) channel /= c->p.channels / c->s->groups;
    return td_load_f64(t->dtype, t->data, channel);
}

static double variance_of(const channel_run *c, int64_t at, int64_t n, double *mean) {
    if (!c->wide) {
        float m, v = c->s->kernels->moments((const float *)c->x + at, n, &m);
        *mean = (double)m;
        return (double)v;
    }
    const double *x = (const double *)c->x + at;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    *mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (x[i] - *mean) * (x[i] - *mean);
    return squares / (double)n;
}

static void apply(const channel_run *c, int64_t plane, int64_t channel, double mean, double variance) {
    double scale = operand(c, 1, channel) / sqrt(variance + c->s->epsilon), shift = operand(c, 2, channel);
    int64_t at = plane * c->p.inner;

    if (!c->wide) {
        c->s->kernels->affine((const float *)c->x + at, c->p.inner, (float)mean, (float)scale, (float)shift,
                              (float *)c->y + at);
        return;
    }
    const double *x = (const double *)c->x + at;
    double *y = (double *)c->y + at;
    for (int64_t i = 0; i < c->p.inner; i++) y[i] = (x[i] - mean) * scale + shift;
}

static void run_planes(void *arg, int64_t begin, int64_t end, int thread) {
    const channel_run *c = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t channel = i % c->p.channels;
        apply(c, i, channel, c->mean[channel], c->variance[channel]);
    }
}

/* Groups of neighbouring planes, which lie side by side. */
static void run_groups(void *arg, int64_t begin, int64_t end, int thread) {
    const channel_run *c = arg;
    int64_t each = c->s->kind == PER_GROUP ? c->p.channels / c->s->groups : 1;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        double mean, variance = variance_of(c, i * each * c->p.inner, each * c->p.inner, &mean);
        for (int64_t j = i * each; j < (i + 1) * each; j++) apply(c, j, j % c->p.channels, mean, variance);
    }
}

/* Mean and variance of each channel over the whole batch. */
static void batch_statistics(void *arg, int64_t begin, int64_t end, int thread) {
    const channel_run *c = arg;
    double n = (double)(c->p.batch * c->p.inner);

    (void)thread;
    for (int64_t channel = begin; channel < end; channel++) {
        double sum = 0, squares = 0;
        for (int pass = 0; pass < 2; pass++)
            for (int64_t b = 0; b < c->p.batch; b++)
                for (int64_t i = 0; i < c->p.inner; i++) {
                    int64_t at = (b * c->p.channels + channel) * c->p.inner + i;
                    double v = c->wide ? ((const double *)c->x)[at] : (double)((const float *)c->x)[at];
                    if (pass == 0) sum += v;
                    else squares += (v - sum / n) * (v - sum / n);
                }
        c->mean[channel] = sum / n;
        c->variance[channel] = squares / n;
    }
}

/* Running statistics: outputs 1 and 2; before opset 14 the batch's own are outputs 3 and 4. */
static void store_statistics(const channel_run *c) {
    for (size_t i = 1; i < c->r->n_outputs; i++) {
        const td_tensor *t = c->r->out[i];
        const double *now = i % 2 ? c->mean : c->variance;
        for (int64_t k = 0; t && k < c->p.channels; k++) {
            double kept = i <= 2 ? c->s->momentum * operand(c, i + 2, k) : 0;
            td_store_f64(t->dtype, t->data, k, i <= 2 ? kept + (1 - c->s->momentum) * now[k] : now[k]);
        }
    }
}

static treadle_status run_batch(td_run *r, channel_run *c, int64_t grain) {
    c->mean = td_run_scratch(r, (size_t)c->p.channels * sizeof *c->mean);
    c->variance = td_run_scratch(r, (size_t)c->p.channels * sizeof *c->variance);
    if (!c->mean || !c->variance) return TREADLE_OUT_OF_MEMORY;
    if (c->s->training) {
        td_pool_range(r->pool, c->p.channels, 1, 1, batch_statistics, c);
        store_statistics(c);
    } else {
        for (int64_t k = 0; k < c->p.channels; k++) {
            c->mean[k] = operand(c, 3, k);
            c->variance[k] = operand(c, 4, k);
        }
    }
    if (c->y) td_pool_range(r->pool, c->p.batch * c->p.channels, grain, 1, run_planes, c);
    return TREADLE_OK;
}

static treadle_status channel_run_op(td_run *r) {
    const channel_state *s = r->state;
    const td_tensor *x = r->in[0], *y = r->out[0];
    int64_t count = td_tensor_count(x);
    channel_run c = {.s = s, .r = r, .p = planes_of(s, &x->shape), .wide = x->dtype == TD_DOUBLE, .x = x->data};
    bool half = x->dtype == TD_FLOAT16 || x->dtype == TD_BFLOAT16;

    if (count == 0) return TREADLE_OK;
    c.y = y ? y->data : NULL;
    if (half) {
        float *wide = td_run_scratch(r, (size_t)count * sizeof *wide);
        if (!wide) return TREADLE_OUT_OF_MEMORY;
        td_to_f32(x->dtype, x->data, count, wide);
        c.x = c.y = wide;
    }
    int64_t grain = TD_MAX(1, 32768 / c.p.inner);
    if (s->kind == PER_BATCH) TD_TRY(run_batch(r, &c, grain));
    else if (c.y)
        td_pool_range(r->pool, c.p.batch * (s->kind == PER_GROUP ? s->groups : c.p.channels), grain, 1, run_groups, &c);
    if (half && y) td_from_f32(y->dtype, c.y, count, y->data);
    return TREADLE_OK;
}

#define CHANNEL_OP(name)                                                                                               \
    const td_op_impl td_op_##name##_normalization = {.state_bytes = sizeof(channel_state),                             \
                                                     .prepare = name##_prepare,                                        \
                                                     .infer = channel_infer,                                           \
                                                     .run = channel_run_op};
CHANNEL_OP(batch)
CHANNEL_OP(instance)
CHANNEL_OP(group)
