/* light/ops/small_norm.c - LRN, LpNormalization, MeanVarianceNormalization. Source: ONNX op texts of LRN-1 to -13,
 * LpNormalization-1 to -22, MeanVarianceNormalization-9 and -13 (and its function body: the 1e-9 is there).
 *
 * All in float64, element by element: they are rare and small. */
#include "light/op.h"
#include "tensor/half.h"

#include <math.h>

/* --- LRN: over neighbouring channels --- */

typedef struct lrn_state {
    int64_t size;
    double alpha, beta, bias;
} lrn_state;

static treadle_status lrn_prepare(td_prepare *p) {
    lrn_state *s = p->state;

    s->size = td_attr_int(p, "size");
    s->alpha = (double)td_attr_float(p, "alpha");
    s->beta = (double)td_attr_float(p, "beta");
    s->bias = (double)td_attr_float(p, "bias");
    return s->size > 0 ? TREADLE_OK : td_bad_node(p, "size is %lld; expected at least 1", (long long)s->size);
}

static treadle_status lrn_infer(td_infer *in) {
    int rank = in->inputs[0]->tensor.shape.rank;
    if (rank >= 0 && rank < 2) return td_infer_fail(in, "rank %d has no channels", rank);
    return td_infer_same(in, 0, 0);
}

typedef struct lrn_run {
    const lrn_state *s;
    const td_tensor *x, *y;
    int64_t channels, inner;
} lrn_run;

static void lrn_planes(void *arg, int64_t begin, int64_t end, int thread) {
    const lrn_run *r = arg;
    int64_t before = (r->s->size - 1) / 2, after = r->s->size - 1 - before;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t channel = i % r->channels, first = i - TD_MIN(channel, before),
                last = i + TD_MIN(r->channels - 1 - channel, after);
        for (int64_t k = 0; k < r->inner; k++) {
            double sum = 0;
            for (int64_t c = first; c <= last; c++) {
                double v = td_load_f64(r->x->dtype, r->x->data, c * r->inner + k);
                sum += v * v;
            }
            double v = td_load_f64(r->x->dtype, r->x->data, i * r->inner + k);
            v /= pow(r->s->bias + r->s->alpha / (double)r->s->size * sum, r->s->beta);
            td_store_f64(r->y->dtype, r->y->data, i * r->inner + k, v);
        }
    }
}

static treadle_status lrn_run_op(td_run *r) {
    lrn_run w = {.s = r->state, .x = r->in[0], .y = r->out[0], .channels = r->in[0]->shape.dims[1], .inner = 1};

    if (!w.y) return TREADLE_OK;
    for (int d = 2; d < w.x->shape.rank; d++) w.inner *= w.x->shape.dims[d];
    td_pool_range(r->pool, w.x->shape.dims[0] * w.channels, 1, 1, lrn_planes, &w);
    return TREADLE_OK;
}

const td_op_impl td_op_lrn = {
    .state_bytes = sizeof(lrn_state), .prepare = lrn_prepare, .infer = lrn_infer, .run = lrn_run_op};

/* --- LpNormalization: along one axis --- */

typedef struct lp_state {
    int64_t axis, p;
} lp_state;

static treadle_status lp_prepare(td_prepare *p) {
    lp_state *s = p->state;

    s->axis = td_attr_int(p, "axis");
    s->p = td_attr_int(p, "p");
    return s->p == 1 || s->p == 2 ? TREADLE_OK : td_bad_node(p, "p is %lld; expected 1 or 2", (long long)s->p);
}

static treadle_status lp_infer(td_infer *in) {
    const lp_state *s = in->state;
    int axis, rank = in->inputs[0]->tensor.shape.rank;
    if (rank >= 0) TD_TRY(td_infer_axis(in, s->axis, rank, &axis));
    return td_infer_same(in, 0, 0);
}

static treadle_status lp_run(td_run *r) {
    const lp_state *s = r->state;
    const td_tensor *x = r->in[0], *y = r->out[0];
    int axis = (int)(s->axis < 0 ? s->axis + x->shape.rank : s->axis);
    int64_t inner = 1, n = x->shape.dims[axis], outer = 1;

    if (!y || td_tensor_count(y) == 0) return TREADLE_OK;
    for (int d = 0; d < axis; d++) outer *= x->shape.dims[d];
    for (int d = axis + 1; d < x->shape.rank; d++) inner *= x->shape.dims[d];
    for (int64_t i = 0; i < outer * inner; i++) {
        int64_t first = i / inner * n * inner + i % inner;
        double sum = 0;
        for (int64_t k = 0; k < n; k++) {
            double v = td_load_f64(x->dtype, x->data, first + k * inner);
            sum += s->p == 1 ? fabs(v) : v * v;
        }
        if (s->p == 2) sum = sqrt(sum);
        for (int64_t k = 0; k < n; k++) {
            double v = td_load_f64(x->dtype, x->data, first + k * inner);
            td_store_f64(y->dtype, y->data, first + k * inner, sum == 0 ? 0 : v / sum);
        }
    }
    return TREADLE_OK;
}

const td_op_impl td_op_lp_normalization = {
    .state_bytes = sizeof(lp_state), .prepare = lp_prepare, .infer = lp_infer, .run = lp_run};

/* --- MeanVarianceNormalization: over any axes --- */

typedef struct mvn_state {
    size_t n;
    const int64_t *axes;
} mvn_state;

static treadle_status mvn_prepare(td_prepare *p) {
    mvn_state *s = p->state;
    s->axes = td_attr_ints(p, "axes", &s->n);
    return TREADLE_OK;
}

static treadle_status mvn_infer(td_infer *in) {
    const mvn_state *s = in->state;
    int axis, rank = in->inputs[0]->tensor.shape.rank;
    for (size_t i = 0; rank >= 0 && i < s->n; i++) TD_TRY(td_infer_axis(in, s->axes[i], rank, &axis));
    return td_infer_same(in, 0, 0);
}

static treadle_status mvn_run(td_run *r) {
    const mvn_state *s = r->state;
    const td_tensor *x = r->in[0], *y = r->out[0];
    const td_shape *shape = &x->shape;
    int64_t steps[TD_MAX_RANK] = {0}, groups = 1, count = td_tensor_count(x);
    uint32_t reduced = 0;

    if (!y || count == 0) return TREADLE_OK;
    for (size_t i = 0; i < s->n; i++) reduced |= 1u << (s->axes[i] < 0 ? s->axes[i] + shape->rank : s->axes[i]);
    for (int d = shape->rank - 1; d >= 0; d--) {
        if (reduced >> d & 1) continue;
        steps[d] = groups;
        groups *= shape->dims[d];
    }
    double *mean = td_run_scratch(r, (size_t)groups * sizeof *mean), *squares = td_run_scratch(r, (size_t)groups * 8);
    if (!mean || !squares) return TREADLE_OUT_OF_MEMORY;
    for (int64_t g = 0; g < groups; g++) mean[g] = squares[g] = 0;
    double n = (double)(count / groups);
    for (int pass = 0; pass < 3; pass++)
        for (int64_t i = 0; i < count; i++) {
            double v = td_load_f64(x->dtype, x->data, i);
            int64_t rest = i, g = 0;
            for (int d = shape->rank - 1; d >= 0; rest /= shape->dims[d], d--) g += rest % shape->dims[d] * steps[d];
            if (pass == 0) mean[g] += v / n;
            else if (pass == 1) squares[g] += (v - mean[g]) * (v - mean[g]) / n;
            else td_store_f64(y->dtype, y->data, i, (v - mean[g]) / (sqrt(squares[g]) + 1e-9));
        }
    return TREADLE_OK;
}

const td_op_impl td_op_mean_variance_normalization = {
    .state_bytes = sizeof(mvn_state), .prepare = mvn_prepare, .infer = mvn_infer, .run = mvn_run};
