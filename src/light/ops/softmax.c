/* light/ops/softmax.c - Softmax and LogSoftmax. Source: ONNX op texts of Softmax-1, -11, -13 and LogSoftmax-1, -11,
 * -13. Until opset 12 the input is seen as a matrix split at `axis` and a row is all that follows; since opset 13 a row
 * runs along `axis` alone. float16 and bfloat16 pass through float32; float64 is computed in float64. */
#include "kernels/rows_f32.h"
#include "light/op.h"
#include "tensor/half.h"

#include <math.h>

typedef struct softmax_state {
    const td_rows_f32_kernels *kernels;
    td_dtype dtype;
    int64_t axis;
    bool flatten, log;
} softmax_state;

static treadle_status prepare_softmax(td_prepare *p, bool log) {
    softmax_state *s = p->state;

    s->kernels = td_rows_f32_pick();
    s->dtype = td_input_dtype(p, 0);
    s->axis = td_attr_int(p, "axis");
    s->flatten = p->opset < 13;
    s->log = log;
    if (s->dtype != TD_FLOAT && s->dtype != TD_FLOAT16 && s->dtype != TD_BFLOAT16 && s->dtype != TD_DOUBLE)
        return td_unsupported(p, "element type %s", td_dtype_name(s->dtype));
    return TREADLE_OK;
}

static treadle_status softmax_infer(td_infer *in) {
    const softmax_state *s = in->state;
    int rank = in->inputs[0]->tensor.shape.rank, axis;

    if (rank > 0) TD_TRY(td_infer_axis(in, s->axis, rank, &axis));
    return td_infer_same(in, 0, 0);
}

typedef struct softmax_run {
    const softmax_state *s;
    const char *x;
    char *y;
    int64_t n, inner; /* a row has n elements, `inner` apart */
    float *buffer;    /* per thread: n, for rows that are not float32 side by side */
} softmax_run;

static void rows_f32(void *arg, int64_t begin, int64_t end, int thread) {
    const softmax_run *w = arg;
    int64_t n = w->n, inner = w->inner, bytes = td_dtype_bits(w->s->dtype) / 8;
    void (*kernel)(const float *, int64_t, float *) = w->s->log ? w->s->kernels->log_softmax : w->s->kernels->softmax;
    bool direct = inner == 1 && w->s->dtype == TD_FLOAT;
    float *buffer = direct ? NULL : w->buffer + thread * TD_ROUND_UP(n, 16);

    for (int64_t i = begin; i < end; i++) {
        int64_t first = (i / inner * n * inner + i % inner) * bytes;
        if (direct) {
            kernel((const float *)(const void *)(w->x + first), n, (float *)(void *)(w->y + first));
            continue;
        }
        if (inner == 1) td_to_f32(w->s->dtype, w->x + first, n, buffer);
        for (int64_t j = 0; inner != 1 && j < n; j++)
            td_to_f32(w->s->dtype, w->x + first + j * inner * bytes, 1, buffer + j);
        kernel(buffer, n, buffer);
        if (inner == 1) td_from_f32(w->s->dtype, buffer, n, w->y + first);
        for (int64_t j = 0; inner != 1 && j < n; j++)
            td_from_f32(w->s->dtype, buffer + j, 1, w->y + first + j * inner * bytes);
    }
}

static void rows_f64(void *arg, int64_t begin, int64_t end, int thread) {
    const softmax_run *w = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i / w->inner * w->n * w->inner + i % w->inner;
        const double *x = (const double *)(const void *)w->x + first;
        double *y = (double *)(void *)w->y + first, max = -INFINITY, sum = 0;
        for (int64_t j = 0; j < w->n; j++) max = x[j * w->inner] <= max ? max : x[j * w->inner];
        for (int64_t j = 0; j < w->n; j++) sum += exp(x[j * w->inner] - max);
        for (int64_t j = 0; j < w->n; j++) {
            double v = x[j * w->inner] - max;
            y[j * w->inner] = w->s->log ? v - log(sum) : exp(v) / sum;
        }
    }
}

static treadle_status softmax_run_op(td_run *r) {
    enum { GRAIN = 4096 };
    const softmax_state *s = r->state;
    const td_shape *x = &r->in[0]->shape;
    softmax_run w = {.s = s, .x = r->in[0]->data, .y = r->out[0]->data, .n = 1, .inner = 1};
    int64_t count = td_tensor_count(r->in[0]), axis = s->axis < 0 ? s->axis + x->rank : s->axis;

    if (count == 0) return TREADLE_OK;
    for (int64_t d = axis; d < x->rank; d++) *(d == axis || s->flatten ? &w.n : &w.inner) *= x->dims[d];
    if (s->dtype != TD_DOUBLE && (s->dtype != TD_FLOAT || w.inner != 1)) {
        size_t bytes;
        if (TD_MUL_OVERFLOWS((size_t)TD_ROUND_UP(w.n, 16) * sizeof(float), (size_t)td_pool_threads(r->pool), &bytes))
            return td_run_fail(r, "rows of %lld are too long", (long long)w.n);
        w.buffer = td_run_scratch(r, bytes);
        if (!w.buffer) return TREADLE_OUT_OF_MEMORY;
    }
    td_pool_range(r->pool, count / w.n, TD_MAX(1, GRAIN / w.n), 1, s->dtype == TD_DOUBLE ? rows_f64 : rows_f32, &w);
    return TREADLE_OK;
}

#define SOFTMAX_OP(name, log)                                                                                          \
    static treadle_status name##_prepare(td_prepare *p) { return prepare_softmax(p, log); }                            \
    const td_op_impl td_op_##name = {.state_bytes = sizeof(softmax_state),                                             \
                                     .prepare = name##_prepare,                                                        \
                                     .infer = softmax_infer,                                                           \
                                     .run = softmax_run_op,                                                            \
                                     .flags = TD_OP_INPLACE};
SOFTMAX_OP(softmax, false)
SOFTMAX_OP(log_softmax, true)
