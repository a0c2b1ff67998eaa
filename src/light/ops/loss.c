/* light/ops/loss.c - NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss. Sources: ONNX op
 * texts. Computed in float64. */
#include "light/op.h"
#include "tensor/half.h"

#include <math.h>

typedef enum reduction { MEAN, SUM, NONE } reduction;

typedef struct loss_state {
    reduction reduction;
    bool ignores, softmax;
    int64_t ignored; /* label of positions that do not count */
} loss_state;

static treadle_status prepare(td_prepare *p, bool softmax) {
    loss_state *s = p->state;
    td_str how = td_attr_string(p, "reduction");
    s->softmax = softmax;
    s->ignores = td_attr_has(p, "ignore_index");
    s->ignored = td_attr_int(p, "ignore_index");
    if (td_str_is(how, "mean")) s->reduction = MEAN;
    else if (td_str_is(how, "sum")) s->reduction = SUM;
    else if (td_str_is(how, "none")) s->reduction = NONE;
    else return td_bad_node(p, "reduction \"%.*s\", expected mean, sum or none", TD_STR_ARGS(how));
    return TREADLE_OK;
}
static treadle_status likelihood_prepare(td_prepare *p) { return prepare(p, false); }
static treadle_status entropy_prepare(td_prepare *p) { return prepare(p, true); }

static treadle_status loss_infer(td_infer *in) {
    const loss_state *s = in->state;
    const td_tensor *x = &in->inputs[0]->tensor;
    const td_shape *labels = &in->inputs[1]->tensor.shape;
    td_shape out = *labels;

    if (x->shape.rank >= 0 && labels->rank >= 0) {
        bool fits = x->shape.rank == labels->rank + 1 && labels->rank >= 1;
        for (int d = 0; fits && d < labels->rank; d++) {
            int64_t dim = x->shape.dims[d == 0 ? 0 : d + 1];
            fits = dim < 0 || labels->dims[d] < 0 || dim == labels->dims[d];
        }
        if (!fits)
            return td_infer_fail(in, "expected labels of the shape of the scores without their second dimension");
    }
    if (in->n_inputs > 2 && in->inputs[2]->kind == TD_VALUE_TENSOR) {
        const td_shape *w = &in->inputs[2]->tensor.shape;
        if (w->rank >= 0 && x->shape.rank > 1 &&
            (w->rank != 1 || (w->dims[0] >= 0 && x->shape.dims[1] >= 0 && w->dims[0] != x->shape.dims[1])))
            return td_infer_fail(in, "expected a weight for each class");
    }
    if (s->reduction != NONE) out.rank = 0;
    TD_TRY(td_infer_set(in, 0, x->dtype, &out));
    return td_infer_same(in, 1, 0);
}

/* log of the sum of exp of n scores, `step` apart from element `first` on. */
static double log_sum(const td_tensor *x, int64_t first, int64_t step, int64_t n) {
    double largest = (double)-INFINITY, sum = 0;
    for (int64_t c = 0; c < n; c++) largest = fmax(largest, td_load_f64(x->dtype, x->data, first + c * step));
    if (isinf(largest)) return largest;
    for (int64_t c = 0; c < n; c++) sum += exp(td_load_f64(x->dtype, x->data, first + c * step) - largest);
    return largest + log(sum);
}

static treadle_status loss_run(td_run *r) {
    const loss_state *s = r->state;
    const td_tensor *x = r->in[0], *labels = r->in[1], *weights = r->n_inputs > 2 ? r->in[2] : NULL;
    td_tensor *y = r->out[0], *logs = r->n_outputs > 1 ? r->out[1] : NULL;
    int64_t n_classes = x->shape.dims[1], inner = 1, count = td_tensor_count(labels);
    double sum = 0, weight_sum = 0;

    for (int d = 2; d < x->shape.rank; d++) inner *= x->shape.dims[d];
    for (int64_t i = 0; i < count; i++) {
        int64_t first = i / inner * n_classes * inner + i % inner, label = td_load_i64(labels->dtype, labels->data, i);
        double norm = s->softmax ? log_sum(x, first, inner, n_classes) : 0, loss = 0, weight = 0;
        for (int64_t c = 0; logs && c < n_classes; c++) {
            int64_t at = first + c * inner;
            td_store_f64(logs->dtype, logs->data, at, td_load_f64(x->dtype, x->data, at) - norm);
        }
        if (!s->ignores || label != s->ignored) {
            if (label < 0 || label >= n_classes)
                return td_run_fail(r, "label %lld of %lld classes", (long long)label, (long long)n_classes);
            weight = weights ? td_load_f64(weights->dtype, weights->data, label) : 1;
            loss = (norm - td_load_f64(x->dtype, x->data, first + label * inner)) * weight;
        }
        sum += loss;
        weight_sum += weight;
        if (y && s->reduction == NONE) td_store_f64(y->dtype, y->data, i, loss);
    }
    if (y && s->reduction != NONE) td_store_f64(y->dtype, y->data, 0, s->reduction == SUM ? sum : sum / weight_sum);
    return TREADLE_OK;
}

const td_op_impl td_op_negative_log_likelihood_loss = {
    .state_bytes = sizeof(loss_state), .prepare = likelihood_prepare, .infer = loss_infer, .run = loss_run};
const td_op_impl td_op_softmax_cross_entropy_loss = {
    .state_bytes = sizeof(loss_state), .prepare = entropy_prepare, .infer = loss_infer, .run = loss_run};
