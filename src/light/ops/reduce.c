/* light/ops/reduce.c - reductions over axes: ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd, ReduceL1,
 * ReduceL2, ReduceLogSum, ReduceLogSumExp, ReduceSumSquare. Source: ONNX op texts, opsets 1 to 20.
 *
 * Axes are an attribute in early opsets and an input later. Floats accumulate in float64, integers in 64 bits
 * (wrapping); float16 and bfloat16 are widened first and rounded once. An empty set gives the neutral element. */
#include "light/op.h"
#include "tensor/half.h"

#include <math.h>

typedef enum reduce_kind { SUM, MEAN, MAX, MIN, PROD, L1, L2, LOG_SUM, LOG_SUM_EXP, SUM_SQUARE } reduce_kind;

/* What is accumulated: kinds that differ only in what follows share a step. */
typedef enum reduce_step {
    STEP_ADD,
    STEP_ADD_ABS,
    STEP_ADD_SQUARE,
    STEP_ADD_EXP,
    STEP_MULTIPLY,
    STEP_MAX,
    STEP_MIN
} reduce_step;

typedef struct reduce_state {
    reduce_kind kind;
    bool keep_dims, noop_if_empty, has_axes; /* has_axes: they are an attribute */
    int n_axes;
    int64_t axes[TD_MAX_RANK];
    td_dtype dtype;
} reduce_state;

static treadle_status prepare_kind(td_prepare *p, reduce_kind kind) {
    reduce_state *s = p->state;
    bool narrow = kind == MAX || kind == MIN;

    s->kind = kind;
    s->keep_dims = td_attr_int(p, "keepdims") != 0;
    s->noop_if_empty = td_attr_has(p, "noop_with_empty_axes") && td_attr_int(p, "noop_with_empty_axes");
    if (td_attr_has(p, "axes")) {
        size_t n;
        const int64_t *axes = td_attr_ints(p, "axes", &n);
        if (n > TD_MAX_RANK) return td_unsupported(p, "%zu axes, at most %d are supported", n, TD_MAX_RANK);
        s->has_axes = true;
        s->n_axes = (int)n;
        for (size_t i = 0; i < n; i++) s->axes[i] = axes[i];
    }
    s->dtype = td_input_dtype(p, 0);
    switch (s->dtype) {
    case TD_FLOAT:
    case TD_DOUBLE:
    case TD_FLOAT16:
    case TD_BFLOAT16:
    case TD_INT32:
    case TD_INT64:
    case TD_UINT32:
    case TD_UINT64: return TREADLE_OK;
    case TD_INT8:
    case TD_UINT8:
    case TD_BOOL:
        if (narrow) return TREADLE_OK;
        break;
    default: break;
    }
    return td_unsupported(p, "element type %s", td_dtype_name(s->dtype));
}

/* Marks the axes that are reduced; *known false: the list is not there yet. */
static treadle_status reduced_axes(td_infer *in, int rank, bool reduced[TD_MAX_RANK], bool *known) {
    const reduce_state *s = in->state;
    int64_t list[TD_MAX_RANK];
    int n = s->n_axes, axis;

    *known = true;
    for (int i = 0; i < n; i++) list[i] = s->axes[i];
    if (!s->has_axes && in->n_inputs > 1 && in->inputs[1]->kind == TD_VALUE_TENSOR) {
        TD_TRY(td_infer_ints(in, 1, list, &n, known));
        if (!*known) return TREADLE_OK;
    }
    for (int i = 0; i < rank; i++) reduced[i] = n == 0 && !s->noop_if_empty;
    for (int i = 0; i < n; i++) {
        TD_TRY(td_infer_axis(in, list[i], rank, &axis));
        reduced[axis] = true;
    }
    return TREADLE_OK;
}

static treadle_status reduce_infer(td_infer *in) {
    const reduce_state *s = in->state;
    const td_shape *x = &in->inputs[0]->tensor.shape;
    bool reduced[TD_MAX_RANK] = {0}, known;
    td_shape out = {0};

    if (x->rank < 0) return td_infer_unknown(in, 0, s->dtype, -1);
    TD_TRY(reduced_axes(in, x->rank, reduced, &known));
    if (!known) return td_infer_unknown(in, 0, s->dtype, s->keep_dims ? x->rank : -1);
    for (int d = 0; d < x->rank; d++) {
        if (!reduced[d]) out.dims[out.rank++] = x->dims[d];
        else if (s->keep_dims) out.dims[out.rank++] = 1;
    }
    return td_infer_set(in, 0, s->dtype, &out);
}

/* --- loops: n elements, `stride` apart, into an accumulator */

typedef union accumulator {
    double f;
    int64_t i;
    uint64_t u;
} accumulator;

/* Four chains hide the latency of an addition where elements lie close. */
#define SUM_LOOP(T, A, expr)                                                                                           \
    do {                                                                                                               \
        A sum[4] = {acc, 0, 0, 0};                                                                                     \
        int64_t j = 0;                                                                                                 \
        for (; j + 4 <= n; j += 4)                                                                                     \
            for (int c = 0; c < 4; c++) {                                                                              \
                const A v = (A)x[(j + c) * stride];                                                                    \
                sum[c] += (A)(expr);                                                                                   \
            }                                                                                                          \
        for (; j < n; j++) {                                                                                           \
            const A v = (A)x[j * stride];                                                                              \
            sum[0] += (A)(expr);                                                                                       \
        }                                                                                                              \
        return (sum[0] + sum[1]) + (sum[2] + sum[3]);                                                                  \
    } while (0)

/* A: the accumulator; absolute, exponential: expressions of v. A NaN wins in MAX and MIN. */
#define REDUCE_LOOP(T, A, name, absolute, exponential)                                                                 \
    static A name(reduce_step step, const T *x, int64_t n, int64_t stride, A acc, double shift) {                      \
        (void)shift;                                                                                                   \
        switch (step) {                                                                                                \
        case STEP_ADD: SUM_LOOP(T, A, v);                                                                              \
        case STEP_ADD_ABS: SUM_LOOP(T, A, absolute);                                                                   \
        case STEP_ADD_SQUARE: SUM_LOOP(T, A, v *v);                                                                    \
        case STEP_ADD_EXP: SUM_LOOP(T, A, exponential);                                                                \
        case STEP_MULTIPLY:                                                                                            \
            for (int64_t j = 0; j < n; j++) acc *= (A)x[j * stride];                                                   \
            return acc;                                                                                                \
        case STEP_MAX:                                                                                                 \
            for (int64_t j = 0; j < n; j++) {                                                                          \
                const A v = (A)x[j * stride];                                                                          \
                acc = v > acc || v != v ? v : acc;                                                                     \
            }                                                                                                          \
            return acc;                                                                                                \
        default:                                                                                                       \
            for (int64_t j = 0; j < n; j++) {                                                                          \
                const A v = (A)x[j * stride];                                                                          \
                acc = v < acc || v != v ? v : acc;                                                                     \
            }                                                                                                          \
            return acc;                                                                                                \
        }                                                                                                              \
    }
REDUCE_LOOP(float, double, loop_f32, fabs(v), exp(v - shift))
REDUCE_LOOP(double, double, loop_f64, fabs(v), exp(v - shift))
/* Integers accumulate without a sign, so that they wrap; MAX and MIN of signed ones go by an offset order. */
REDUCE_LOOP(uint8_t, uint64_t, loop_u8, v, v)
REDUCE_LOOP(uint32_t, uint64_t, loop_u32, v, v)
REDUCE_LOOP(uint64_t, uint64_t, loop_u64, v, v)
#define SIGNED_LOOP(T, name)                                                                                           \
    static int64_t name(reduce_step step, const T *x, int64_t n, int64_t stride, int64_t acc, double shift) {          \
        (void)shift;                                                                                                   \
        uint64_t sum = (uint64_t)acc;                                                                                  \
        for (int64_t j = 0; j < n; j++) {                                                                              \
            const int64_t v = x[j * stride];                                                                           \
            const uint64_t u = (uint64_t)v;                                                                            \
            switch (step) {                                                                                            \
            case STEP_MULTIPLY: sum *= u; break;                                                                       \
            case STEP_ADD_ABS: sum += v < 0 ? 0 - u : u; break;                                                        \
            case STEP_ADD_SQUARE: sum += u * u; break;                                                                 \
            case STEP_MAX: sum = v > (int64_t)sum ? u : sum; break;                                                    \
            case STEP_MIN: sum = v < (int64_t)sum ? u : sum; break;                                                    \
            default: sum += u; break;                                                                                  \
            }                                                                                                          \
        }                                                                                                              \
        return (int64_t)sum;                                                                                           \
    }
SIGNED_LOOP(int8_t, loop_i8)
SIGNED_LOOP(int32_t, loop_i32)
SIGNED_LOOP(int64_t, loop_i64)

/* Exponentials of integers are of float kind. */
#define EXP_LOOP(T, name)                                                                                              \
    static double name(const T *x, int64_t n, int64_t stride, double acc, double shift) {                              \
        for (int64_t j = 0; j < n; j++) acc += exp((double)x[j * stride] - shift);                                     \
        return acc;                                                                                                    \
    }
EXP_LOOP(int32_t, exp_i32)
EXP_LOOP(int64_t, exp_i64)
EXP_LOOP(uint32_t, exp_u32)
EXP_LOOP(uint64_t, exp_u64)

static accumulator run_loop(td_dtype dtype, reduce_step step, const void *x, int64_t n, int64_t stride, accumulator acc,
                            double shift) {
    bool exponential = step == STEP_ADD_EXP;
    switch (dtype) {
    case TD_FLOAT: acc.f = loop_f32(step, x, n, stride, acc.f, shift); break;
    case TD_DOUBLE: acc.f = loop_f64(step, x, n, stride, acc.f, shift); break;
    case TD_INT8: acc.i = loop_i8(step, x, n, stride, acc.i, shift); break;
    case TD_UINT8:
    case TD_BOOL: acc.u = loop_u8(step, x, n, stride, acc.u, shift); break;
    case TD_INT32:
        if (exponential) acc.f = exp_i32(x, n, stride, acc.f, shift);
        else acc.i = loop_i32(step, x, n, stride, acc.i, shift);
        break;
    case TD_INT64:
        if (exponential) acc.f = exp_i64(x, n, stride, acc.f, shift);
        else acc.i = loop_i64(step, x, n, stride, acc.i, shift);
        break;
    case TD_UINT32:
        if (exponential) acc.f = exp_u32(x, n, stride, acc.f, shift);
        else acc.u = loop_u32(step, x, n, stride, acc.u, shift);
        break;
    default:
        if (exponential) acc.f = exp_u64(x, n, stride, acc.f, shift);
        else acc.u = loop_u64(step, x, n, stride, acc.u, shift);
        break;
    }
    return acc;
}

/* --- run */

typedef struct reduce_run {
    reduce_kind kind;
    td_dtype dtype; /* of x and y */
    const char *x;
    void *y;
    int64_t bytes; /* of an element of x */
    int n_kept, n_reduced;
    int64_t kept[TD_MAX_RANK], kept_steps[TD_MAX_RANK];
    int64_t reduced[TD_MAX_RANK], reduced_steps[TD_MAX_RANK]; /* elements; the last one is the inner loop */
    int64_t count;                                            /* elements behind one output */
} reduce_run;

static accumulator neutral(td_dtype dtype, reduce_step step) {
    accumulator acc = {.u = 0};
    td_kind kind = td_dtype_kind(dtype);
    int bits = td_dtype_bits(dtype);
    bool is_float = kind == TD_KIND_FLOAT || step == STEP_ADD_EXP;

    if (is_float) acc.f = step == STEP_MULTIPLY ? 1 : step == STEP_MAX ? -INFINITY : step == STEP_MIN ? INFINITY : 0;
    else if (step == STEP_MULTIPLY) acc.u = 1;
    else if (kind == TD_KIND_INT && step == STEP_MAX) acc.i = INT64_MIN >> (64 - bits);
    else if (kind == TD_KIND_INT && step == STEP_MIN) acc.i = INT64_MAX >> (64 - bits);
    else if (kind == TD_KIND_BOOL && step == STEP_MIN) acc.u = 1;
    else if (step == STEP_MIN) acc.u = UINT64_MAX >> (64 - bits);
    return acc;
}

/* Everything behind the output whose first element is `x`. */
static accumulator reduce_one(const reduce_run *w, const char *x, reduce_step step, double shift) {
    accumulator acc = neutral(w->dtype, step);
    int outer = w->n_reduced - 1;
    int64_t at[TD_MAX_RANK] = {0};

    if (w->count == 0) return acc;
    if (outer < 0) return run_loop(w->dtype, step, x, 1, 1, acc, shift);
    for (;;) {
        acc = run_loop(w->dtype, step, x, w->reduced[outer], w->reduced_steps[outer], acc, shift);
        int d = outer - 1;
        for (; d >= 0; d--) {
            x += w->reduced_steps[d] * w->bytes;
            if (++at[d] < w->reduced[d]) break;
            x -= w->reduced[d] * w->reduced_steps[d] * w->bytes;
            at[d] = 0;
        }
        if (d < 0) return acc;
    }
}

static double as_f64(td_dtype dtype, accumulator acc) {
    switch (td_dtype_kind(dtype)) {
    case TD_KIND_FLOAT: return acc.f;
    case TD_KIND_INT: return (double)acc.i;
    default: return (double)acc.u;
    }
}

static void store(const reduce_run *w, int64_t index, accumulator acc) {
    if (td_dtype_kind(w->dtype) == TD_KIND_FLOAT) td_store_f64(w->dtype, w->y, index, acc.f);
    else switch (td_dtype_bits(w->dtype)) { /* integers wrap */
        case 8: ((uint8_t *)w->y)[index] = (uint8_t)acc.u; break;
        case 32: ((uint32_t *)w->y)[index] = (uint32_t)acc.u; break;
        default: ((uint64_t *)w->y)[index] = acc.u; break;
        }
}

static void store_f64(const reduce_run *w, int64_t index, double value) { td_store_f64(w->dtype, w->y, index, value); }

static void finish_one(const reduce_run *w, const char *x, int64_t index) {
    switch (w->kind) {
    case SUM: store(w, index, reduce_one(w, x, STEP_ADD, 0)); break;
    case L1: store(w, index, reduce_one(w, x, STEP_ADD_ABS, 0)); break;
    case SUM_SQUARE: store(w, index, reduce_one(w, x, STEP_ADD_SQUARE, 0)); break;
    case MAX: store(w, index, reduce_one(w, x, STEP_MAX, 0)); break;
    case MIN: store(w, index, reduce_one(w, x, STEP_MIN, 0)); break;
    case PROD: store(w, index, reduce_one(w, x, STEP_MULTIPLY, 0)); break;
    case MEAN: {
        accumulator sum = reduce_one(w, x, STEP_ADD, 0);
        bool is_int = td_dtype_kind(w->dtype) == TD_KIND_INT;
        if (td_dtype_kind(w->dtype) == TD_KIND_FLOAT) sum.f /= (double)w->count;
        else if (w->count && is_int) sum.i /= w->count;
        else if (w->count) sum.u /= (uint64_t)w->count;
        store(w, index, sum);
        break;
    }
    case L2: store_f64(w, index, sqrt(as_f64(w->dtype, reduce_one(w, x, STEP_ADD_SQUARE, 0)))); break;
    case LOG_SUM: store_f64(w, index, log(as_f64(w->dtype, reduce_one(w, x, STEP_ADD, 0)))); break;
    case LOG_SUM_EXP: {
        double max = w->count ? as_f64(w->dtype, reduce_one(w, x, STEP_MAX, 0)) : 0;
        if (isinf(max)) max = 0; /* the exponentials say it all */
        store_f64(w, index, log(reduce_one(w, x, STEP_ADD_EXP, max).f) + max);
        break;
    }
    }
}

static void run_outputs(void *arg, int64_t begin, int64_t end, int thread) {
    const reduce_run *w = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t rest = i, offset = 0;
        for (int d = w->n_kept - 1; d >= 0; d--) {
            offset += rest % w->kept[d] * w->kept_steps[d];
            rest /= w->kept[d];
        }
        finish_one(w, w->x + offset * w->bytes, i);
    }
}

/* Sorts the dimensions of x into those that stay and those that go. */
static void split_axes(const td_run *r, const td_tensor *x, reduce_run *w) {
    const reduce_state *s = r->state;
    const td_tensor *list = !s->has_axes && r->n_inputs > 1 ? r->in[1] : NULL;
    int64_t n = list ? td_tensor_count(list) : s->n_axes;
    bool reduced[TD_MAX_RANK] = {0};

    for (int d = 0; d < x->shape.rank; d++) reduced[d] = n == 0 && !s->noop_if_empty;
    for (int64_t i = 0; i < n; i++) {
        int64_t axis = list ? td_load_i64(list->dtype, list->data, i) : s->axes[i];
        reduced[axis < 0 ? axis + x->shape.rank : axis] = true; /* infer has checked the range */
    }
    w->count = 1;
    for (int d = 0; d < x->shape.rank; d++) {
        if (reduced[d]) {
            w->count *= x->shape.dims[d];
            w->reduced[w->n_reduced] = x->shape.dims[d];
            w->reduced_steps[w->n_reduced++] = x->strides[d];
        } else {
            w->kept[w->n_kept] = x->shape.dims[d];
            w->kept_steps[w->n_kept++] = x->strides[d];
        }
    }
    /* neighbours that are walked as one become one */
    int kept = 0;
    for (int d = 1; d < w->n_reduced; d++) {
        if (w->reduced_steps[kept] == w->reduced_steps[d] * w->reduced[d]) w->reduced[kept] *= w->reduced[d];
        else w->reduced[++kept] = w->reduced[d];
        w->reduced_steps[kept] = w->reduced_steps[d];
    }
    if (w->n_reduced) w->n_reduced = kept + 1;
}

static treadle_status reduce_run_op(td_run *r) {
    enum { GRAIN = 8192 };
    const reduce_state *s = r->state;
    td_tensor x = *r->in[0];
    int64_t n = td_tensor_count(r->out[0]), n_in = td_tensor_count(&x);
    bool half = s->dtype == TD_FLOAT16 || s->dtype == TD_BFLOAT16;
    reduce_run w = {.kind = s->kind, .dtype = half ? TD_FLOAT : s->dtype};

    if (n == 0) return TREADLE_OK;
    w.y = r->out[0]->data;
    if (half) {
        float *wide = td_run_scratch(r, (size_t)n_in * sizeof(float));
        uint16_t *dense = td_run_scratch(r, (size_t)n_in * sizeof(uint16_t));
        w.y = td_run_scratch(r, (size_t)n * sizeof(float));
        if (!wide || !dense || !w.y) return TREADLE_OUT_OF_MEMORY;
        td_tensor copy;
        td_tensor_view(&copy, s->dtype, &x.shape, dense);
        td_tensor_copy(&copy, &x);
        td_to_f32(s->dtype, dense, n_in, wide);
        td_tensor_view(&x, TD_FLOAT, &copy.shape, wide);
    }
    w.x = x.data;
    w.bytes = td_dtype_bits(x.dtype) / 8;
    split_axes(r, &x, &w);
    td_pool_range(r->pool, n, TD_MAX(1, GRAIN / TD_MAX(1, w.count)), 1, run_outputs, &w);
    if (half) td_from_f32(s->dtype, w.y, n, r->out[0]->data);
    return TREADLE_OK;
}

#define REDUCE_OP(name, kind)                                                                                          \
    static treadle_status name##_prepare(td_prepare *p) { return prepare_kind(p, kind); }                              \
    const td_op_impl td_op_##name = {.state_bytes = sizeof(reduce_state),                                              \
                                     .prepare = name##_prepare,                                                        \
                                     .infer = reduce_infer,                                                            \
                                     .run = reduce_run_op,                                                             \
                                     .strided_inputs = 1};
REDUCE_OP(reduce_sum, SUM)
REDUCE_OP(reduce_mean, MEAN)
REDUCE_OP(reduce_max, MAX)
REDUCE_OP(reduce_min, MIN)
REDUCE_OP(reduce_prod, PROD)
REDUCE_OP(reduce_l1, L1)
REDUCE_OP(reduce_l2, L2)
REDUCE_OP(reduce_log_sum, LOG_SUM)
REDUCE_OP(reduce_log_sum_exp, LOG_SUM_EXP)
REDUCE_OP(reduce_sum_square, SUM_SQUARE)
