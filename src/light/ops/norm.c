/* light/ops/norm.c - normalisation of rows: LayerNormalization, RMSNormalization, SimplifiedLayerNormalization, and the
 * com.microsoft forms that first add a skip connection. Source: ONNX op texts of LayerNormalization-17 and
 * RMSNormalization-23; onnxruntime docs/ContribOperators.md.
 *
 * A row is all dimensions from `axis` on. float32 rows run in the kernels in place; float16 and bfloat16 rows pass
 * through float32; anything with float64 is computed in float64. */
#include "kernels/rows_f32.h"
#include "light/op.h"
#include "tensor/half.h"

#include <math.h>
#include <string.h>

enum { NONE = -1 };

/* What one op of the family looks like. */
typedef struct norm_form {
    bool centred; /* subtract the mean */
    bool has_axis;
    int skip, gamma, beta, bias; /* inputs; NONE: no such */
    int mean, inverse, sum;      /* outputs */
    bool out_as_gamma;           /* Y has gamma's type */
} norm_form;

typedef struct norm_state {
    const norm_form *form;
    const td_rows_f32_kernels *kernels;
    int64_t axis;
    float epsilon;
    td_dtype out, stat;
} norm_state;

static treadle_status prepare_form(td_prepare *p, const norm_form *form) {
    norm_state *s = p->state;

    s->form = form;
    s->kernels = td_rows_f32_pick();
    s->axis = -1;
    s->stat = TD_FLOAT;
    s->epsilon = td_attr_float(p, "epsilon");
    s->out = td_input_dtype(p, form->out_as_gamma ? (size_t)form->gamma : 0);
    if (form->has_axis) {
        s->axis = td_attr_int(p, "axis");
        int64_t stash = td_attr_int(p, "stash_type");
        if (stash != TD_FLOAT && stash != TD_DOUBLE && stash != TD_BFLOAT16 && stash != TD_FLOAT16)
            return td_bad_node(p, "stash_type %lld is not a float type", (long long)stash);
        s->stat = (td_dtype)stash;
    }
    return TREADLE_OK;
}

static const td_tensor *input_of(td_infer *in, int i) {
    bool there = i != NONE && (size_t)i < in->n_inputs && in->inputs[i]->kind == TD_VALUE_TENSOR;
    return there ? &in->inputs[i]->tensor : NULL;
}

/* gamma, beta, bias: must broadcast to what they are applied to, without making it larger. */
static treadle_status check_operand(td_infer *in, int i, const td_shape *x, const char *what) {
    const td_tensor *t = input_of(in, i);
    td_shape sum;

    if (!t || !td_shape_known(&t->shape) || !td_shape_known(x)) return TREADLE_OK;
    if (!td_shape_broadcast(x, &t->shape, &sum) || !td_shape_equal(&sum, x))
        return td_infer_fail(in, "%s does not broadcast to the rows", what);
    return TREADLE_OK;
}

static treadle_status norm_infer(td_infer *in) {
    const norm_state *s = in->state;
    const norm_form *f = s->form;
    const td_tensor *x = &in->inputs[0]->tensor;
    td_shape stat = x->shape;
    int axis = 0;

    if (stat.rank >= 0) {
        if (stat.rank == 0) return td_infer_fail(in, "a scalar has no rows");
        TD_TRY(td_infer_axis(in, s->axis, stat.rank, &axis));
        for (int d = axis; d < stat.rank; d++) stat.dims[d] = 1;
    }
    TD_TRY(check_operand(in, f->skip, &x->shape, "skip"));
    TD_TRY(check_operand(in, f->gamma, &x->shape, "the scale"));
    TD_TRY(check_operand(in, f->beta, &x->shape, "the bias"));
    TD_TRY(check_operand(in, f->bias, &x->shape, "the bias"));
    if (f->mean != NONE) TD_TRY(td_infer_set(in, (size_t)f->mean, s->stat, &stat));
    if (f->inverse != NONE) TD_TRY(td_infer_set(in, (size_t)f->inverse, s->stat, &stat));
    if (f->sum != NONE) TD_TRY(td_infer_set(in, (size_t)f->sum, x->dtype, &x->shape));
    return td_infer_set(in, 0, s->out, &x->shape);
}

/* --- run */

/* gamma, beta, bias or skip, laid out so that row i of X meets data + (i % rows) * n. */
typedef struct operand {
    const void *data; /* NULL: none */
    td_dtype dtype;
    int64_t rows;
} operand;

typedef struct norm_run {
    const norm_state *s;
    td_run *r;
    int64_t n; /* of a row */
    operand skip, gamma, beta, bias;
    float *buffer; /* per thread: `per_thread` floats */
    int64_t per_thread;
} norm_run;

enum { BUFFERS = 5 }; /* rows of float32 that one thread needs when types differ: x, skip, gamma, beta, bias */

/* Repeats t, which broadcasts to x, until it covers whole rows; as it is where it does already. */
static treadle_status operand_of(td_run *r, int i, const td_shape *x, int axis, operand *out) {
    const td_tensor *t = i == NONE || (size_t)i >= r->n_inputs ? NULL : r->in[i];
    td_shape to = *x;
    td_tensor full, spread;
    int d = 0;

    *out = (operand){0};
    if (!t) return TREADLE_OK;
    out->dtype = t->dtype;
    /* Leading dimensions along which t stays the same are not part of what is repeated. */
    int lead = x->rank - t->shape.rank;
    while (d < axis && (d < lead || t->shape.dims[d - lead] == 1)) d++;
    to.rank = x->rank - d;
    memmove(to.dims, to.dims + d, (size_t)to.rank * sizeof *to.dims);
    out->rows = 1;
    for (int j = d; j < axis; j++) out->rows *= x->dims[j];
    td_tensor_view(&full, t->dtype, &to, NULL);
    if (td_tensor_count(&full) == td_tensor_count(t)) {
        out->data = t->data;
        return TREADLE_OK;
    }
    size_t bytes;
    if (!td_tensor_bytes(&full, &bytes)) return td_run_fail(r, "input %d is too large to broadcast", i);
    full.data = td_run_scratch(r, bytes);
    if (!full.data) return TREADLE_OUT_OF_MEMORY;
    spread = full;
    spread.data = t->data;
    for (int j = 0; j < to.rank; j++) {
        int at = j + d - lead;
        spread.strides[j] = at < 0 || t->shape.dims[at] == 1 ? 0 : t->strides[at];
    }
    td_tensor_copy(&full, &spread);
    out->data = full.data;
    return TREADLE_OK;
}

static const float *row_f32(const operand *o, int64_t row, int64_t n, float *buffer) {
    if (!o->data) return NULL;
    const char *at = (const char *)o->data + row % o->rows * n * (td_dtype_bits(o->dtype) / 8);
    if (o->dtype == TD_FLOAT) return (const float *)(const void *)at;
    td_to_f32(o->dtype, at, n, buffer);
    return buffer;
}

static void store_row(const td_tensor *t, int64_t row, int64_t n, const float *values) {
    char *at = (char *)t->data + row * n * (td_dtype_bits(t->dtype) / 8);
    if ((const char *)values != at) td_from_f32(t->dtype, values, n, at);
}

static td_tensor *output_of(const td_run *r, int i) {
    return i == NONE || (size_t)i >= r->n_outputs ? NULL : r->out[i];
}

static void rows_f32(void *arg, int64_t begin, int64_t end, int thread) {
    const norm_run *w = arg;
    const norm_form *f = w->s->form;
    int64_t n = w->n, step = TD_ROUND_UP(n, 16);
    float *buffer = w->buffer + thread * w->per_thread, *x_buffer = buffer;
    td_tensor *y = w->r->out[0], *sum = output_of(w->r, f->sum);
    td_tensor *mean_out = output_of(w->r, f->mean), *inverse_out = output_of(w->r, f->inverse);
    operand in = {w->r->in[0]->data, w->r->in[0]->dtype, INT64_MAX};

    for (int64_t row = begin; row < end; row++) {
        const float *x = row_f32(&in, row, n, x_buffer);
        const float *gamma = row_f32(&w->gamma, row, n, buffer + 2 * step),
                    *beta = row_f32(&w->beta, row, n, buffer + 3 * step);
        if (w->skip.data) {
            const float *bias = row_f32(&w->bias, row, n, buffer + 4 * step);
            float *to = sum && sum->dtype == TD_FLOAT ? (float *)sum->data + row * n : x_buffer;
            w->s->kernels->add(x, row_f32(&w->skip, row, n, buffer + step), bias, n, to);
            if (sum) store_row(sum, row, n, to);
            x = to;
        }
        float *to = y && y->dtype == TD_FLOAT ? (float *)y->data + row * n : x_buffer, mean = 0, inverse;
        if (f->centred) inverse = w->s->kernels->layer_norm(x, gamma, beta, n, w->s->epsilon, to, &mean);
        else inverse = w->s->kernels->rms_norm(x, gamma, n, w->s->epsilon, to);
        if (y) store_row(y, row, n, to);
        if (mean_out) store_row(mean_out, row, 1, &mean);
        if (inverse_out) store_row(inverse_out, row, 1, &inverse);
    }
}

static double at_f64(const operand *o, int64_t row, int64_t n, int64_t i, double absent) {
    return o->data ? td_load_f64(o->dtype, o->data, row % o->rows * n + i) : absent;
}

static void rows_f64(void *arg, int64_t begin, int64_t end, int thread) {
    const norm_run *w = arg;
    const norm_form *f = w->s->form;
    int64_t n = w->n;
    td_tensor *y = w->r->out[0], *mean_out = output_of(w->r, f->mean), *inverse_out = output_of(w->r, f->inverse);
    operand x = {w->r->in[0]->data, w->r->in[0]->dtype, INT64_MAX};

    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        double mean = 0, squares = 0;
        for (int64_t i = 0; f->centred && i < n; i++) mean += at_f64(&x, row, n, i, 0) / (double)n;
        for (int64_t i = 0; i < n; i++) {
            double v = at_f64(&x, row, n, i, 0) - mean;
            squares += v * v;
        }
        double inverse = 1 / sqrt(squares / (double)n + (double)w->s->epsilon);
        for (int64_t i = 0; y && i < n; i++) {
            double v = (at_f64(&x, row, n, i, 0) - mean) * inverse * at_f64(&w->gamma, row, n, i, 1);
            td_store_f64(y->dtype, y->data, row * n + i, v + at_f64(&w->beta, row, n, i, 0));
        }
        if (mean_out) td_store_f64(mean_out->dtype, mean_out->data, row, mean);
        if (inverse_out) td_store_f64(inverse_out->dtype, inverse_out->data, row, inverse);
    }
}

static treadle_status norm_run_op(td_run *r) {
    enum { GRAIN = 8192 };
    const norm_state *s = r->state;
    const norm_form *f = s->form;
    const td_shape *x = &r->in[0]->shape;
    norm_run w = {.s = s, .r = r, .n = 1};
    int64_t rows = 1;
    int axis = (int)(s->axis < 0 ? s->axis + x->rank : s->axis);

    for (int d = 0; d < x->rank; d++) *(d < axis ? &rows : &w.n) *= x->dims[d];
    if (rows == 0 || w.n == 0) return TREADLE_OK;
    TD_TRY(operand_of(r, f->skip, x, axis, &w.skip));
    TD_TRY(operand_of(r, f->gamma, x, axis, &w.gamma));
    TD_TRY(operand_of(r, f->beta, x, axis, &w.beta));
    TD_TRY(operand_of(r, f->bias, x, axis, &w.bias));
    bool wide = r->in[0]->dtype == TD_DOUBLE || s->out == TD_DOUBLE;
    if (!wide) {
        size_t bytes;
        w.per_thread = BUFFERS * TD_ROUND_UP(w.n, 16);
        if (TD_MUL_OVERFLOWS((size_t)w.per_thread * sizeof(float), (size_t)td_pool_threads(r->pool), &bytes))
            return td_run_fail(r, "rows of %lld are too long", (long long)w.n);
        w.buffer = td_run_scratch(r, bytes);
        if (!w.buffer) return TREADLE_OUT_OF_MEMORY;
    }
    td_pool_range(r->pool, rows, TD_MAX(1, GRAIN / w.n), 1, wide ? rows_f64 : rows_f32, &w);
    return TREADLE_OK;
}

#define NORM_OP(name, ...)                                                                                             \
    static treadle_status name##_prepare(td_prepare *p) {                                                              \
        static const norm_form form = {__VA_ARGS__};                                                                   \
        return prepare_form(p, &form);                                                                                 \
    }                                                                                                                  \
    const td_op_impl td_op_##name = {                                                                                  \
        .state_bytes = sizeof(norm_state), .prepare = name##_prepare, .infer = norm_infer, .run = norm_run_op};
NORM_OP(layer_normalization, .centred = true, .has_axis = true, .skip = NONE, .gamma = 1, .beta = 2, .bias = NONE,
        .mean = 1, .inverse = 2, .sum = NONE)
NORM_OP(rms_normalization, .has_axis = true, .skip = NONE, .gamma = 1, .beta = NONE, .bias = NONE, .mean = NONE,
        .inverse = NONE, .sum = NONE, .out_as_gamma = true)
NORM_OP(simplified_layer_normalization, .has_axis = true, .skip = NONE, .gamma = 1, .beta = NONE, .bias = NONE,
        .mean = NONE, .inverse = 1, .sum = NONE, .out_as_gamma = true)
NORM_OP(skip_simplified_layer_normalization, .skip = 1, .gamma = 2, .beta = NONE, .bias = 3, .mean = 1, .inverse = 2,
        .sum = 3)
NORM_OP(skip_layer_normalization, .centred = true, .skip = 1, .gamma = 2, .beta = 3, .bias = 4, .mean = 1, .inverse = 2,
        .sum = 3)
