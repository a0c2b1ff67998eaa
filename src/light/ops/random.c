/* light/ops/random.c - RandomNormal, RandomUniform, their Like forms, Bernoulli, Multinomial,
 * Dropout. Sources: ONNX op texts.
 *
 * With a seed every run gives the same numbers, those of the standard's reference (base/mersenne.h);
 * without one each run gives others. */
#include "base/mersenne.h"
#include "base/time.h"
#include "light/ops/move.h"
#include "tensor/half.h"

#include <math.h>
#include <string.h>

typedef struct random_state {
    bool has_seed;
    uint32_t seed;
    td_dtype dtype; /* TD_UNDEFINED: that of the input */
    td_shape shape; /* RandomNormal and RandomUniform */
    float scale, offset;
    bool normal;
    int64_t n_samples;
} random_state;

static void seed_prepare(td_prepare *p, random_state *s) {
    s->has_seed = td_attr_has(p, "seed");
    s->seed = (uint32_t)(int64_t)td_attr_float(p, "seed");
}

static treadle_status begin(td_run *r, td_mersenne **out) {
    const random_state *s = r->state;
    td_mersenne *m = td_run_scratch(r, sizeof *m);
    if (!m) return TREADLE_OUT_OF_MEMORY;
    uint64_t now = td_time_ns() * 0x9e3779b97f4a7c15u ^ (uintptr_t)s ^ (uintptr_t)r->ctx;
    td_mersenne_seed(m, s->has_seed ? s->seed : (uint32_t)(now >> 32 ^ now));
    *out = m;
    return TREADLE_OK;
}

/* --- normal and uniform numbers */

static treadle_status values_prepare(td_prepare *p, bool normal) {
    random_state *s = p->state;
    size_t n;
    const int64_t *dims = td_attr_ints(p, "shape", &n);

    seed_prepare(p, s);
    s->normal = normal;
    s->dtype = (td_dtype)td_attr_int(p, "dtype");
    if (n > TD_MAX_RANK) return td_unsupported(p, "%zu dimensions", n);
    s->shape.rank = (int)n;
    for (size_t i = 0; i < n; i++) {
        if (dims[i] < 0) return td_bad_node(p, "dimension %zu of shape is %lld", i, (long long)dims[i]);
        s->shape.dims[i] = dims[i];
    }
    if (normal) {
        s->scale = td_attr_float(p, "scale");
        s->offset = td_attr_float(p, "mean");
    } else {
        s->offset = td_attr_float(p, "low");
        s->scale = td_attr_float(p, "high") - s->offset;
    }
    return TREADLE_OK;
}

static treadle_status check_dtype(td_prepare *p, td_dtype dtype) {
    if (dtype == TD_FLOAT || dtype == TD_DOUBLE || dtype == TD_FLOAT16 || dtype == TD_BFLOAT16) return TREADLE_OK;
    return td_bad_node(p, "random numbers of %s", td_dtype_name(dtype));
}

static treadle_status normal_prepare(td_prepare *p) {
    random_state *s = p->state;
    TD_TRY(values_prepare(p, true));
    return check_dtype(p, s->dtype);
}

static treadle_status uniform_prepare(td_prepare *p) {
    random_state *s = p->state;
    TD_TRY(values_prepare(p, false));
    return check_dtype(p, s->dtype);
}

static treadle_status like_prepare(td_prepare *p, bool normal) {
    random_state *s = p->state;
    TD_TRY(values_prepare(p, normal));
    if (!td_attr_has(p, "dtype")) s->dtype = td_input_dtype(p, 0);
    return check_dtype(p, s->dtype);
}

static treadle_status normal_like_prepare(td_prepare *p) { return like_prepare(p, true); }
static treadle_status uniform_like_prepare(td_prepare *p) { return like_prepare(p, false); }

static treadle_status values_infer(td_infer *in) {
    const random_state *s = in->state;
    return td_infer_set(in, 0, s->dtype, &s->shape);
}

static treadle_status like_infer(td_infer *in) {
    const random_state *s = in->state;
    return td_infer_set(in, 0, s->dtype, &in->inputs[0]->tensor.shape);
}

static float rounded(td_dtype dtype, float x) {
    uint16_t half;
    if (dtype == TD_FLOAT) return x;
    td_from_f32(dtype, &x, 1, &half);
    td_to_f32(dtype, &half, 1, &x);
    return x;
}

/* Scaled and moved in the output's own type. */
static treadle_status values_run(td_run *r) {
    const random_state *s = r->state;
    td_tensor *y = r->out[0];
    int64_t count = td_tensor_count(y);
    float scale = rounded(s->dtype == TD_DOUBLE ? TD_FLOAT : s->dtype, s->scale),
          offset = rounded(s->dtype == TD_DOUBLE ? TD_FLOAT : s->dtype, s->offset);
    td_mersenne *m;

    TD_TRY(begin(r, &m));
    for (int64_t i = 0; i < count; i++) {
        double x = s->normal ? td_mersenne_normal(m) : td_mersenne_double(m);
        if (s->dtype == TD_DOUBLE) {
            ((double *)y->data)[i] = x * (double)scale + (double)offset;
            continue;
        }
        float v = rounded(s->dtype, (float)x);
        v = rounded(s->dtype, v * scale) + offset;
        td_from_f32(s->dtype, &v, 1, td_move_at(y, i));
    }
    return TREADLE_OK;
}

#define RANDOM_OP(name, prepare_fn, infer_fn, run_fn)                                                                  \
    const td_op_impl td_op_##name = {.state_bytes = sizeof(random_state),                                              \
                                     .prepare = prepare_fn,                                                            \
                                     .infer = infer_fn,                                                                \
                                     .run = run_fn,                                                                    \
                                     .flags = TD_OP_IMPURE};
RANDOM_OP(random_normal, normal_prepare, values_infer, values_run)
RANDOM_OP(random_uniform, uniform_prepare, values_infer, values_run)
RANDOM_OP(random_normal_like, normal_like_prepare, like_infer, values_run)
RANDOM_OP(random_uniform_like, uniform_like_prepare, like_infer, values_run)

/* --- Bernoulli: 1 with the probability that each input has */

static treadle_status bernoulli_prepare(td_prepare *p) {
    random_state *s = p->state;
    seed_prepare(p, s);
    s->dtype = td_attr_has(p, "dtype") ? (td_dtype)td_attr_int(p, "dtype") : td_input_dtype(p, 0);
    td_kind kind = td_dtype_kind(s->dtype);
    bool fits = kind == TD_KIND_FLOAT || kind == TD_KIND_INT || kind == TD_KIND_UINT || kind == TD_KIND_BOOL;
    return fits && td_dtype_bits(s->dtype) >= 8 ? TREADLE_OK
                                                : td_bad_node(p, "an output of %s", td_dtype_name(s->dtype));
}

static treadle_status bernoulli_run(td_run *r) {
    const td_tensor *x = r->in[0];
    td_tensor *y = r->out[0];
    int64_t count = td_tensor_count(x);
    td_mersenne *m;

    TD_TRY(begin(r, &m));
    for (int64_t i = 0; i < count; i++) {
        double p = td_load_f64(x->dtype, x->data, i), u = td_mersenne_double(m);
        bool one = p <= 0.5 ? u > 1.0 - p : u <= p;
        td_store_f64(y->dtype, y->data, i, one ? 1 : 0);
    }
    return TREADLE_OK;
}
RANDOM_OP(bernoulli, bernoulli_prepare, like_infer, bernoulli_run)

/* --- Multinomial: classes by their unnormalised logarithms of probabilities */

static treadle_status multinomial_prepare(td_prepare *p) {
    random_state *s = p->state;
    seed_prepare(p, s);
    s->dtype = (td_dtype)td_attr_int(p, "dtype");
    s->n_samples = td_attr_int(p, "sample_size");
    if (s->n_samples < 0) return td_bad_node(p, "sample_size = %lld", (long long)s->n_samples);
    if (s->dtype != TD_INT32 && s->dtype != TD_INT64) return td_bad_node(p, "samples of %s", td_dtype_name(s->dtype));
    return TREADLE_OK;
}

static treadle_status multinomial_infer(td_infer *in) {
    const random_state *s = in->state;
    const td_shape *x = &in->inputs[0]->tensor.shape;
    if (x->rank >= 0 && x->rank != 2) return td_infer_fail(in, "expected input to be [batch, classes]");
    td_shape out = {2, {x->rank == 2 ? x->dims[0] : TD_DIM_UNKNOWN, s->n_samples}};
    return td_infer_set(in, 0, s->dtype, &out);
}

static treadle_status multinomial_run(td_run *r) {
    const random_state *s = r->state;
    const td_tensor *x = r->in[0];
    td_tensor *y = r->out[0];
    int64_t batch = x->shape.dims[0], n = x->shape.dims[1];
    double *sums = td_run_scratch(r, (size_t)n * sizeof *sums);
    td_mersenne *m;

    if (!sums) return TREADLE_OUT_OF_MEMORY;
    if (n == 0 && td_tensor_count(y) > 0) return td_run_fail(r, "there are no classes");
    TD_TRY(begin(r, &m));
    for (int64_t b = 0; b < batch; b++) {
        double largest = (double)-INFINITY, sum = 0;
        for (int64_t i = 0; i < n; i++) largest = fmax(largest, td_load_f64(x->dtype, x->data, b * n + i));
        for (int64_t i = 0; i < n; i++) sums[i] = sum += exp(td_load_f64(x->dtype, x->data, b * n + i) - largest);
        for (int64_t k = 0; k < s->n_samples; k++) {
            double at = td_mersenne_double(m) * sum;
            int64_t class = 0;
            while (class + 1 < n && !(at < sums[class])) class ++;
            td_store_i64(s->dtype, y->data, b * s->n_samples + k, class);
        }
    }
    return TREADLE_OK;
}
RANDOM_OP(multinomial, multinomial_prepare, multinomial_infer, multinomial_run)

/* --- Dropout: the input itself, but for training_mode (12) */

enum { IN_X, IN_RATIO, IN_TRAINING };
enum { OUT_Y, OUT_MASK };

static treadle_status dropout_prepare(td_prepare *p) {
    random_state *s = p->state;
    s->has_seed = td_attr_has(p, "seed");
    s->seed = (uint32_t)td_attr_int(p, "seed");
    s->dtype = p->opset < 10 ? td_input_dtype(p, IN_X) : TD_BOOL; /* of the mask */
    return TREADLE_OK;
}

static treadle_status dropout_infer(td_infer *in) {
    const random_state *s = in->state;
    TD_TRY(td_infer_same(in, OUT_Y, IN_X));
    return td_infer_set(in, OUT_MASK, s->dtype, &in->inputs[IN_X]->tensor.shape);
}

static const td_tensor *input(const td_run *r, size_t i) { return i < r->n_inputs ? r->in[i] : NULL; }

static treadle_status drop(td_run *r, float ratio, bool *kept) {
    td_tensor dense = *r->in[IN_X];
    const td_tensor *x = &dense;
    int64_t count = td_tensor_count(x);
    float scale = 1.0f / (1.0f - ratio);
    td_mersenne *m;

    TD_TRY(begin(r, &m));
    if (r->out[OUT_Y]) TD_TRY(td_run_alloc(r, OUT_Y, x->dtype, &x->shape));
    for (int64_t i = 0; i < count; i++) {
        bool keep = td_mersenne_double(m) >= (double)ratio;
        if (kept) kept[i] = keep;
        if (!r->out[OUT_Y]) continue;
        double v = td_load_f64(x->dtype, x->data, i);
        if (x->dtype == TD_FLOAT) v = (double)((float)v * scale);
        else v *= (double)scale;
        td_store_f64(x->dtype, r->out[OUT_Y]->data, i, keep ? v : 0);
    }
    return TREADLE_OK;
}

static treadle_status dropout_run(td_run *r) {
    const random_state *s = r->state;
    const td_tensor *x = r->in[IN_X], *training = input(r, IN_TRAINING), *given = input(r, IN_RATIO);
    td_tensor *mask = r->n_outputs > OUT_MASK ? r->out[OUT_MASK] : NULL;
    float ratio = given && td_tensor_count(given) == 1 ? (float)td_load_f64(given->dtype, given->data, 0) : 0.5f;

    if (mask) {
        TD_TRY(td_run_alloc(r, OUT_MASK, s->dtype, &x->shape));
        for (int64_t i = 0, n = td_tensor_count(x); i < n; i++) td_store_f64(s->dtype, mask->data, i, 1);
    }
    if (training && td_tensor_count(training) == 1 && *(const bool *)training->data && ratio != 0) {
        if (!(ratio > 0 && ratio < 1)) return td_run_fail(r, "ratio is %g, expected 0..1", (double)ratio);
        return drop(r, ratio, mask ? mask->data : NULL);
    }
    return r->out[OUT_Y] ? td_run_view(r, OUT_Y, IN_X, x) : TREADLE_OK;
}

const td_op_impl td_op_dropout = {.state_bytes = sizeof(random_state),
                                  .prepare = dropout_prepare,
                                  .infer = dropout_infer,
                                  .run = dropout_run,
                                  .flags = TD_OP_VIEW | TD_OP_IMPURE};
