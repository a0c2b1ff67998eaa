/* light/ops/global_pool.c - GlobalAveragePool, GlobalMaxPool, GlobalLpPool: one value a plane. Source: ONNX op texts.
 * Sums are kept in float64. */
#include "light/op.h"
#include "tensor/half.h"

#include <math.h>

typedef enum global_kind { GLOBAL_AVERAGE, GLOBAL_MAX, GLOBAL_LP } global_kind;

typedef struct global_state {
    global_kind kind;
    double p;
} global_state;

static treadle_status prepare_global(td_prepare *p, global_kind kind) {
    global_state *s = p->state;

    s->kind = kind;
    if (kind != GLOBAL_LP) return TREADLE_OK;
    s->p = (double)td_attr_int(p, "p");
    if (s->p == 0) s->p = (double)td_attr_float(p, "p"); /* GlobalLpPool-1 */
    return s->p > 0 ? TREADLE_OK : td_bad_node(p, "p is %g; expected more than 0", s->p);
}

static treadle_status global_infer(td_infer *in) {
    const td_tensor *x = &in->inputs[0]->tensor;
    td_shape out = x->shape;

    if (out.rank >= 0 && out.rank < 2) return td_infer_fail(in, "rank %d; expected batch and channels", out.rank);
    for (int d = 2; d < out.rank; d++) out.dims[d] = 1;
    return td_infer_set(in, 0, x->dtype, &out);
}

typedef struct global_run {
    const global_state *s;
    const td_tensor *x;
    void *y;
    int64_t n; /* of a plane */
} global_run;

static double sum_f32(const float *x, int64_t n) {
    double a = 0, b = 0, c = 0, d = 0;
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        a += (double)x[i];
        b += (double)x[i + 1];
        c += (double)x[i + 2];
        d += (double)x[i + 3];
    }
    for (; i < n; i++) a += (double)x[i];
    return (a + b) + (c + d);
}

static void global_planes(void *arg, int64_t begin, int64_t end, int thread) {
    const global_run *r = arg;
    td_dtype dtype = r->x->dtype;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        double v = r->s->kind == GLOBAL_MAX ? -INFINITY : 0;
        if (r->s->kind == GLOBAL_AVERAGE && dtype == TD_FLOAT) v = sum_f32((const float *)r->x->data + i * r->n, r->n);
        else
            for (int64_t j = 0; j < r->n; j++) {
                double a = td_load_f64(dtype, r->x->data, i * r->n + j);
                if (r->s->kind == GLOBAL_MAX) v = v >= a || isnan(v) ? v : a;
                else v += r->s->kind == GLOBAL_AVERAGE ? a : r->s->p == 2 ? a * a : pow(fabs(a), r->s->p);
            }
        if (r->s->kind == GLOBAL_AVERAGE) v /= (double)r->n;
        else if (r->s->kind == GLOBAL_LP) v = r->s->p == 2 ? sqrt(v) : pow(v, 1 / r->s->p);
        td_store_f64(dtype, r->y, i, v);
    }
}

static treadle_status global_run_op(td_run *r) {
    const td_tensor *x = r->in[0], *y = r->out[0];
    global_run w = {.s = r->state, .x = x, .n = 1};

    if (!y) return TREADLE_OK;
    w.y = y->data;
    for (int d = 2; d < x->shape.rank; d++) w.n *= x->shape.dims[d];
    if (w.n == 0 && td_tensor_count(y) > 0) return td_run_fail(r, "planes without elements");
    td_pool_range(r->pool, td_tensor_count(y), TD_MAX(1, 32768 / TD_MAX(1, w.n)), 1, global_planes, &w);
    return TREADLE_OK;
}

#define GLOBAL_OP(name, kind)                                                                                          \
    static treadle_status name##_prepare(td_prepare *p) { return prepare_global(p, kind); }                            \
    const td_op_impl td_op_##name = {                                                                                  \
        .state_bytes = sizeof(global_state), .prepare = name##_prepare, .infer = global_infer, .run = global_run_op};
GLOBAL_OP(global_average_pool, GLOBAL_AVERAGE)
GLOBAL_OP(global_max_pool, GLOBAL_MAX)
GLOBAL_OP(global_lp_pool, GLOBAL_LP)
