/* light/ops/optimizer.c - one step of Adagrad, Adam and Momentum (ai.onnx.preview.training) for any number
 * of tensors. Sources: ONNX op texts. Inputs: rate, count, then all tensors, all gradients, and for each
 * running average all of these. */
#include "light/op.h"
#include "tensor/half.h"

#include <math.h>

typedef struct optimizer_state optimizer_state;

/* One element: x, gradient and running averages in; x and averages out. */
typedef void step_fn(const optimizer_state *s, double rate, int64_t count, double *x, double g, double average[2]);

struct optimizer_state {
    step_fn *step;
    size_t n_averages;
    double norm, norm_post, decay, epsilon, alpha, beta;
    bool nesterov;
};

static double attr(const td_prepare *p, const char *name) { return (double)td_attr_float(p, name); }

static void adagrad_step(const optimizer_state *s, double rate, int64_t count, double *x, double g, double average[2]) {
    g += s->norm * *x;
    average[0] += g * g;
    *x -= rate / (1 + (double)count * s->decay) * g / (sqrt(average[0]) + s->epsilon);
}

static void adam_step(const optimizer_state *s, double rate, int64_t count, double *x, double g, double average[2]) {
    double t = (double)count;
    g += s->norm * *x;
    average[0] = s->alpha * average[0] + (1 - s->alpha) * g;
    average[1] = s->beta * average[1] + (1 - s->beta) * g * g;
    if (count > 0) rate *= sqrt(1 - pow(s->beta, t)) / (1 - pow(s->alpha, t));
    *x = (1 - s->norm_post) * (*x - rate * average[0] / (sqrt(average[1]) + s->epsilon));
}

static void momentum_step(const optimizer_state *s, double rate, int64_t count, double *x, double g,
                          double average[2]) {
    g += s->norm * *x;
    average[0] = s->alpha * average[0] + (count > 0 ? s->beta : 1) * g;
    *x -= rate * (s->nesterov ? g + s->alpha * average[0] : average[0]);
}

static treadle_status prepare(td_prepare *p, step_fn *step, size_t n_averages) {
    optimizer_state *s = p->state;
    s->step = step;
    s->n_averages = n_averages;
    s->norm = attr(p, "norm_coefficient");
    s->norm_post = attr(p, "norm_coefficient_post");
    s->decay = attr(p, "decay_factor");
    s->epsilon = attr(p, "epsilon");
    s->alpha = attr(p, "alpha");
    s->beta = attr(p, "beta");
    if ((p->n_inputs - 2) % (2 + n_averages) != 0 ||
        p->n_outputs > (p->n_inputs - 2) / (2 + n_averages) * (1 + n_averages))
        return td_bad_node(p, "%zu inputs and %zu outputs do not go together", p->n_inputs, p->n_outputs);
    return TREADLE_OK;
}
static treadle_status adagrad_prepare(td_prepare *p) { return prepare(p, adagrad_step, 1); }
static treadle_status adam_prepare(td_prepare *p) { return prepare(p, adam_step, 2); }
static treadle_status momentum_prepare(td_prepare *p) {
    optimizer_state *s = p->state;
    td_str mode = td_attr_string(p, "mode");
    s->nesterov = td_str_is(mode, "nesterov");
    if (!s->nesterov && !td_str_is(mode, "standard"))
        return td_bad_node(p, "mode \"%.*s\", expected standard or nesterov", TD_STR_ARGS(mode));
    return prepare(p, momentum_step, 1);
}

/* Tensors; input of part `part` (0: values, 1: gradients, 2 and 3: averages) of tensor i. */
static size_t n_tensors(const optimizer_state *s, size_t n_inputs) { return (n_inputs - 2) / (2 + s->n_averages); }
static size_t input_at(size_t n, size_t part, size_t i) { return 2 + part * n + i; }

static treadle_status optimizer_infer(td_infer *in) {
    const optimizer_state *s = in->state;
    size_t n = n_tensors(s, in->n_inputs);
    for (size_t i = 0; i < n; i++) {
        const td_shape *x = &in->inputs[input_at(n, 0, i)]->tensor.shape;
        for (size_t part = 1; part < 2 + s->n_averages; part++) {
            const td_shape *other = &in->inputs[input_at(n, part, i)]->tensor.shape;
            if (td_shape_known(x) && td_shape_known(other) && !td_shape_equal(x, other))
                return td_infer_fail(in, "input %zu has not the shape of its tensor", input_at(n, part, i));
        }
        for (size_t k = 0; k <= s->n_averages; k++) TD_TRY(td_infer_same(in, k * n + i, input_at(n, 0, i)));
    }
    return TREADLE_OK;
}

static treadle_status optimizer_run(td_run *r) {
    const optimizer_state *s = r->state;
    size_t n = n_tensors(s, r->n_inputs);

    if (td_tensor_count(r->in[0]) != 1 || td_tensor_count(r->in[1]) != 1)
        return td_run_fail(r, "expected rate and count to be one number each");
    double rate = td_load_f64(r->in[0]->dtype, r->in[0]->data, 0);
    int64_t count = td_load_i64(r->in[1]->dtype, r->in[1]->data, 0);
    for (size_t i = 0; i < n; i++) {
        const td_tensor *x = r->in[input_at(n, 0, i)], *g = r->in[input_at(n, 1, i)];
        for (int64_t e = 0, all = td_tensor_count(x); e < all; e++) {
            double value = td_load_f64(x->dtype, x->data, e), average[2] = {0};
            for (size_t k = 0; k < s->n_averages; k++)
                average[k] = td_load_f64(x->dtype, r->in[input_at(n, 2 + k, i)]->data, e);
            s->step(s, rate, count, &value, td_load_f64(g->dtype, g->data, e), average);
            for (size_t k = 0; k <= s->n_averages; k++) {
                td_tensor *y = k * n + i < r->n_outputs ? r->out[k * n + i] : NULL;
                if (y) td_store_f64(y->dtype, y->data, e, k == 0 ? value : average[k - 1]);
            }
        }
    }
    return TREADLE_OK;
}

#define OPTIMIZER_OP(name)                                                                                             \
    const td_op_impl td_op_##name = {.state_bytes = sizeof(optimizer_state),                                           \
                                     .prepare = name##_prepare,                                                        \
                                     .infer = optimizer_infer,                                                         \
                                     .run = optimizer_run};
OPTIMIZER_OP(adagrad)
OPTIMIZER_OP(adam)
OPTIMIZER_OP(momentum)
