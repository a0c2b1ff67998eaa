/* light/ops/pool.c - MaxPool, AveragePool, LpPool over any number of spatial dimensions. Source: ONNX op texts of
 * MaxPool-1 to -22, AveragePool-1 to -22, LpPool-1 to -22.
 *
 * Work goes by output rows: for each tap the inputs that it meets are joined to the whole row. Sums are kept in
 * float64; float16 and bfloat16 pass through float32. */
#include "light/ops/window.h"
#include "tensor/half.h"

#include <math.h>
#include <string.h>

typedef enum pool_kind { POOL_MAX, POOL_AVERAGE, POOL_LP } pool_kind;

typedef struct pool_state {
    td_window window;
    pool_kind kind;
    td_dtype dtype;
    bool include_pad, column_major;
    double p;
} pool_state;

static treadle_status prepare_pool(td_prepare *p, pool_kind kind) {
    pool_state *s = p->state;

    s->kind = kind;
    s->dtype = td_input_dtype(p, 0);
    s->include_pad = td_attr_int(p, "count_include_pad") != 0;
    s->column_major = td_attr_int(p, "storage_order") != 0;
    s->p = (double)td_attr_int(p, "p");
    if (s->p == 0) s->p = (double)td_attr_float(p, "p"); /* LpPool-1 */
    if (kind == POOL_LP && !(s->p > 0)) return td_bad_node(p, "p is %g; expected more than 0", s->p);
    TD_TRY(td_window_prepare(p, &s->window));
    return s->window.has_kernel ? TREADLE_OK : td_bad_node(p, "kernel_shape is empty");
}

static treadle_status pool_infer(td_infer *in) {
    const pool_state *s = in->state;
    const td_tensor *x = &in->inputs[0]->tensor;
    td_shape out;

    TD_TRY(td_window_infer(in, &s->window, &x->shape, NULL, &out));
    for (int d = 0; d < 2; d++) out.dims[d] = x->shape.rank >= 0 ? x->shape.dims[d] : TD_DIM_UNKNOWN;
    TD_TRY(td_infer_set(in, 1, TD_INT64, &out));
    return td_infer_set(in, 0, x->dtype, &out);
}

/* --- run --- */

typedef struct span {
    int64_t lo, hi; /* outputs of a row that have a tap inside the input */
} span;

typedef struct pool_run {
    const pool_state *s;
    td_windows w;
    td_dtype dtype; /* of x and y here */
    const void *x;
    void *y;
    int64_t *indices;
    int64_t in, out;   /* elements of a plane */
    const span *spans; /* of each tap along the last dimension */
    double *sums;      /* a row per thread */
} pool_run;

/* acc[o] becomes the larger of itself and x[o * stride], NaN being largest. */
#define MAX_STEP(T, suffix)                                                                                            \
    static void max_##suffix(T *acc, const T *x, span at, int64_t stride) {                                            \
        if (stride == 1)                                                                                               \
            for (int64_t o = at.lo; o < at.hi; o++) acc[o] = acc[o] >= x[o] || acc[o] != acc[o] ? acc[o] : x[o];       \
        else                                                                                                           \
            for (int64_t o = at.lo; o < at.hi; o++)                                                                    \
                acc[o] = acc[o] >= x[o * stride] || acc[o] != acc[o] ? acc[o] : x[o * stride];                         \
    }
MAX_STEP(float, f32)
MAX_STEP(double, f64)
MAX_STEP(int8_t, i8)
MAX_STEP(uint8_t, u8)

/* acc[o] += |x[o * stride]|^p, or x itself (p 0). */
#define SUM_STEP(T, suffix)                                                                                            \
    static void sum_##suffix(double *acc, const T *x, span at, int64_t stride, double p) {                             \
        x += at.lo * stride;                                                                                           \
        for (int64_t o = at.lo; o < at.hi; o++, x += stride) {                                                         \
            double v = (double)*x;                                                                                     \
            acc[o] += p == 0 ? v : p == 1 ? fabs(v) : p == 2 ? v * v : pow(fabs(v), p);                                \
        }                                                                                                              \
    }
SUM_STEP(float, f32)
SUM_STEP(double, f64)

/* One tap row: x is the input row that the outer taps meet, out the output row. */
static void join_row(const pool_run *r, int64_t x_at, int64_t y_at, double *sums) {
    int last = r->w.n - 1;
    int64_t stride = r->w.strides[last];

    for (int64_t k = 0; k < r->w.kernel[last]; k++) {
        int64_t from = x_at + k * r->w.dilations[last] - r->w.begin[last];
        span at = r->spans[k];
        if (at.lo == at.hi) continue;
        if (r->s->kind == POOL_MAX) switch (r->dtype) {
            case TD_FLOAT: max_f32((float *)r->y + y_at, (const float *)r->x + from, at, stride); break;
            case TD_DOUBLE: max_f64((double *)r->y + y_at, (const double *)r->x + from, at, stride); break;
            case TD_INT8: max_i8((int8_t *)r->y + y_at, (const int8_t *)r->x + from, at, stride); break;
            default: max_u8((uint8_t *)r->y + y_at, (const uint8_t *)r->x + from, at, stride); break;
            }
        else {
            double p = r->s->kind == POOL_LP ? r->s->p : 0;
            if (r->dtype == TD_FLOAT) sum_f32(sums, (const float *)r->x + from, at, stride, p);
            else sum_f64(sums, (const double *)r->x + from, at, stride, p);
        }
    }
}

/* Taps of output o along dimension d that count in an average. */
static int64_t taps_counted(const pool_run *r, int d, int64_t o) {
    int64_t start = o * r->w.strides[d] - r->w.begin[d], step = r->w.dilations[d];
    int64_t low = r->s->include_pad ? -r->w.begin[d] : 0, high = r->w.in[d] + (r->s->include_pad ? r->w.end[d] : 0);
    int64_t first = start >= low ? 0 : (low - start + step - 1) / step;
    int64_t after = high <= start ? 0 : TD_MIN(r->w.kernel[d], (high - start - 1) / step + 1);
    return TD_MAX(0, after - first);
}

static void finish_sums(const pool_run *r, const int64_t *outer, int64_t y_at, const double *sums) {
    int last = r->w.n - 1;
    int64_t counted = 1;

    for (int d = 0; d < last; d++) counted *= taps_counted(r, d, outer[d]);
    for (int64_t o = 0; o < r->w.out[last]; o++) {
        double v = sums[o];
        if (r->s->kind == POOL_AVERAGE) {
            int64_t count = counted * taps_counted(r, last, o);
            v = count ? v / (double)count : 0;
        } else {
            v = r->s->p == 1 ? v : r->s->p == 2 ? sqrt(v) : pow(v, 1 / r->s->p);
        }
        td_store_f64(r->dtype, r->y, y_at + o, v);
    }
}

/* Maxima of a row start with the least value of the type. */
static void start_row(const pool_run *r, int64_t at, int64_t n) {
    switch (r->dtype) {
    case TD_FLOAT:
        for (int64_t i = 0; i < n; i++) ((float *)r->y)[at + i] = -INFINITY;
        break;
    case TD_DOUBLE:
        for (int64_t i = 0; i < n; i++) ((double *)r->y)[at + i] = -INFINITY;
        break;
    default: memset((uint8_t *)r->y + at, r->dtype == TD_INT8 ? INT8_MIN : 0, (size_t)n); break;
    }
}

static void pool_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const pool_run *r = arg;
    int last = r->w.n - 1;
    int64_t row = r->w.out[last], rows = td_window_count(r->w.out, last), taps = td_window_count(r->w.kernel, last);
    double *sums = r->sums ? r->sums + thread * row : NULL;

    for (int64_t i = begin; i < end; i++) {
        int64_t outer[TD_WINDOW_DIMS], tap[TD_WINDOW_DIMS] = {0}, rest = i % rows;
        for (int d = last - 1; d >= 0; d--) {
            outer[d] = rest % r->w.out[d];
            rest /= r->w.out[d];
        }
        for (int64_t o = 0; o < row && sums; o++) sums[o] = 0;
        if (!sums) start_row(r, i * row, row);
        for (int64_t t = 0; t < taps; t++) {
            int64_t from = 0;
            bool inside = true;
            for (int d = 0; d < last; d++) {
                int64_t at = outer[d] * r->w.strides[d] + tap[d] * r->w.dilations[d] - r->w.begin[d];
                inside = inside && at >= 0 && at < r->w.in[d];
                from = from * r->w.in[d] + at;
            }
            if (inside) join_row(r, i / rows * r->in + from * r->w.in[last], i * row, sums);
            td_window_next(r->w.kernel, last, tap);
        }
        if (sums) finish_sums(r, outer, i * row, sums);
    }
}

/* Place of an input in its plane as `indices` counts it. */
static int64_t place_of(const pool_run *r, const int64_t *at) {
    int64_t place = 0;
    if (r->s->column_major)
        for (int d = r->w.n - 1; d >= 0; d--) place = place * r->w.in[d] + at[d];
    else
        for (int d = 0; d < r->w.n; d++) place = place * r->w.in[d] + at[d];
    return place;
}

/* Where the maximum of each window was found, the first one of equals. y is known. */
static void find_indices(void *arg, int64_t begin, int64_t end, int thread) {
    const pool_run *r = arg;
    int64_t taps = td_window_count(r->w.kernel, r->w.n);

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t o[TD_WINDOW_DIMS], tap[TD_WINDOW_DIMS] = {0}, rest = i % r->out, plane = i / r->out;
        double max = td_load_f64(r->dtype, r->y, i);
        for (int d = r->w.n - 1; d >= 0; d--) {
            o[d] = rest % r->w.out[d];
            rest /= r->w.out[d];
        }
        r->indices[i] = plane * r->in; /* of a window without an input */
        for (int64_t t = 0; t < taps; t++) {
            int64_t at[TD_WINDOW_DIMS], from = 0;
            bool inside = true;
            for (int d = 0; d < r->w.n; d++) {
                at[d] = o[d] * r->w.strides[d] + tap[d] * r->w.dilations[d] - r->w.begin[d];
                inside = inside && at[d] >= 0 && at[d] < r->w.in[d];
                from = from * r->w.in[d] + at[d];
            }
            double v = inside ? td_load_f64(r->dtype, r->x, plane * r->in + from) : 0;
            if (inside && (v == max || (isnan(v) && isnan(max)))) {
                r->indices[i] = plane * r->in + place_of(r, at);
                break;
            }
            td_window_next(r->w.kernel, r->w.n, tap);
        }
    }
}

static treadle_status prepare_spans(td_run *r, pool_run *p) {
    int last = p->w.n - 1;
    span *spans = td_run_scratch(r, (size_t)p->w.kernel[last] * sizeof *spans);

    if (!spans) return TREADLE_OUT_OF_MEMORY;
    for (int64_t k = 0; k < p->w.kernel[last]; k++) td_window_inside(&p->w, last, k, &spans[k].lo, &spans[k].hi);
    p->spans = spans;
    if (p->s->kind == POOL_MAX) return TREADLE_OK;
    p->sums = td_run_scratch(r, (size_t)(p->w.out[last] * td_pool_threads(r->pool)) * sizeof *p->sums);
    return p->sums ? TREADLE_OK : TREADLE_OUT_OF_MEMORY;
}

static treadle_status pool_run_op(td_run *r) {
    const td_tensor *x = r->in[0];
    td_tensor *y = r->out[0], *indices = r->n_outputs > 1 ? r->out[1] : NULL, *any = y ? y : indices;
    pool_run p = {.s = r->state, .dtype = x->dtype, .x = x->data};
    bool half = x->dtype == TD_FLOAT16 || x->dtype == TD_BFLOAT16;

    if (!any || td_tensor_count(any) == 0) return TREADLE_OK;
    int64_t count = td_tensor_count(any);
    td_window_place(&p.s->window, &x->shape, NULL, &p.w);
    p.in = td_window_count(p.w.in, p.w.n);
    p.out = td_window_count(p.w.out, p.w.n);
    p.y = y ? y->data : NULL;
    TD_TRY(td_run_widen(r, x, &p.x));
    if (half) p.dtype = TD_FLOAT;
    if (half || !y) p.y = td_run_scratch(r, (size_t)count * (size_t)td_dtype_bits(p.dtype) / 8);
    if (!p.y) return TREADLE_OUT_OF_MEMORY;
    TD_TRY(prepare_spans(r, &p));
    int64_t each = TD_MAX(1, p.w.out[p.w.n - 1] * td_window_count(p.w.kernel, p.w.n));
    td_pool_range(r->pool, count / p.w.out[p.w.n - 1], TD_MAX(1, 32768 / each), 1, pool_rows, &p);
    if (half && y) td_from_f32(y->dtype, p.y, count, y->data);
    if (!indices) return TREADLE_OK;
    p.indices = indices->data;
    td_pool_range(r->pool, count, 1024, 1, find_indices, &p);
    return TREADLE_OK;
}

#define POOL_OP(name, kind)                                                                                            \
    static treadle_status name##_prepare(td_prepare *p) { return prepare_pool(p, kind); }                              \
    const td_op_impl td_op_##name = {                                                                                  \
        .state_bytes = sizeof(pool_state), .prepare = name##_prepare, .infer = pool_infer, .run = pool_run_op};
POOL_OP(max_pool, POOL_MAX)
POOL_OP(average_pool, POOL_AVERAGE)
POOL_OP(lp_pool, POOL_LP)
