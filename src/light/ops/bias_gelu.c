/* light/ops/bias_gelu.c - com.microsoft BiasGelu and FastGelu: a bias along the last dimension, then Gelu, by erf or by
 * tanh. Source: onnxruntime docs/ContribOperators.md, release 1.31. float16 and bfloat16 are computed in float32. */
#include "kernels/vmath.h"
#include "light/op.h"
#include "tensor/half.h"

#include <math.h>

typedef struct gelu_state {
    const td_vmath_kernels *kernels;
    bool tanh;
} gelu_state;

static treadle_status prepare(td_prepare *p, bool tanh) {
    gelu_state *s = p->state;
    s->kernels = td_vmath_pick();
    s->tanh = tanh;
    return TREADLE_OK;
}
static treadle_status bias_prepare(td_prepare *p) { return prepare(p, false); }
static treadle_status fast_prepare(td_prepare *p) { return prepare(p, true); }

static treadle_status gelu_infer(td_infer *in) {
    const td_shape *x = &in->inputs[0]->tensor.shape;
    if (in->n_inputs > 1 && in->inputs[1]->kind == TD_VALUE_TENSOR) {
        const td_shape *bias = &in->inputs[1]->tensor.shape;
        bool known = td_shape_known(bias) && x->rank > 0 && x->dims[x->rank - 1] >= 0;
        if (x->rank == 0 || (known && (bias->rank != 1 || bias->dims[0] != x->dims[x->rank - 1])))
            return td_infer_fail(in, "expected the bias to have as many values as the last dimension");
    }
    return td_infer_same(in, 0, 0);
}

typedef struct gelu_job {
    const gelu_state *s;
    td_dtype dtype;
    const char *x, *bias; /* bias NULL: none */
    char *y;
    int64_t n, count; /* of a row, of all; without a bias the last row may be shorter */
} gelu_job;

static double gelu_of(double x, bool by_tanh) {
    if (!by_tanh) return 0.5 * x * erfc(-x * 0.70710678118654752440);
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

static void rows(void *arg, int64_t begin, int64_t end, int thread) {
    enum { CHUNK = 256 };
    const gelu_job *j = arg;
    int64_t width = td_dtype_bits(j->dtype) / 8;
    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        int64_t length = TD_MIN(j->n, j->count - row * j->n);
        for (int64_t at = 0; at < length; at += CHUNK) {
            int64_t n = TD_MIN((int64_t)CHUNK, length - at), first = row * j->n + at;
            float x[CHUNK], bias[CHUNK];
            if (j->dtype == TD_DOUBLE) {
                const double *from = (const double *)(const void *)j->x + first,
                             *more = (const double *)(const void *)j->bias + at;
                for (int64_t i = 0; i < n; i++)
                    ((double *)(void *)j->y)[first + i] = gelu_of(from[i] + (j->bias ? more[i] : 0), j->s->tanh);
                continue;
            }
            td_to_f32(j->dtype, j->x + first * width, n, x);
            if (j->bias) td_to_f32(j->dtype, j->bias + at * width, n, bias);
            for (int64_t i = 0; j->bias && i < n; i++) x[i] += bias[i];
            (j->s->tanh ? j->s->kernels->gelu_tanh : j->s->kernels->gelu)(x, n, x);
            td_from_f32(j->dtype, x, n, j->y + first * width);
        }
    }
}

static treadle_status gelu_run(td_run *r) {
    enum { GRAIN = 16384 };
    const td_tensor *x = r->in[0], *bias = r->n_inputs > 1 ? r->in[1] : NULL;
    int64_t count = td_tensor_count(x), n = bias ? td_tensor_count(bias) : 4096;
    gelu_job job = {r->state, x->dtype, x->data, bias ? bias->data : NULL, r->out[0]->data, n, count};

    if (count == 0) return TREADLE_OK;
    td_pool_range(r->pool, (count + n - 1) / n, TD_MAX(1, GRAIN / n), 1, rows, &job);
    return TREADLE_OK;
}

const td_op_impl td_op_bias_gelu = {
    .state_bytes = sizeof(gelu_state), .prepare = bias_prepare, .infer = gelu_infer, .run = gelu_run};
const td_op_impl td_op_fast_gelu = {
    .state_bytes = sizeof(gelu_state), .prepare = fast_prepare, .infer = gelu_infer, .run = gelu_run};
