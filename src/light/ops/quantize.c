/* light/ops/quantize.c - QuantizeLinear and DequantizeLinear in all element types and granularities, of ai.onnx and
 * com.microsoft, and DynamicQuantizeLinear. Sources: ONNX op texts; onnxruntime docs/ContribOperators.md, release 1.31.
 *
 * Quantising divides in float32, or where both operands or `precision` are a half type rounds the quotient to that;
 * codes round half to even. What is not a number gets the lowest code. */
#include "kernels/gemm_i8.h"
#include "light/ops/grain.h"
#include "light/ops/move.h"
#include "light/ops/small_float.h"
#include "tensor/half.h"

#include <math.h>

enum { IN_X, IN_SCALE, IN_ZERO, CHUNK = 256 };

/* n elements from `first` on as float32. */
static void load(const td_tensor *t, int64_t first, int64_t n, float *out) {
    if (td_move_is_packed(t->dtype))
        for (int64_t i = 0; i < n; i++) out[i] = (float)td_load_f64(t->dtype, t->data, first + i);
    else td_to_f32(t->dtype, td_move_at(t, first), n, out);
}

static const td_tensor *zero_of(const td_run *r) { return r->n_inputs > IN_ZERO ? r->in[IN_ZERO] : NULL; }

/* Elements that share a byte must not be written by two threads. */
static td_pool *pool_for(const td_run *r) { return td_move_is_packed(r->out[0]->dtype) ? NULL : r->pool; }

/* --- QuantizeLinear */

typedef struct quantize_state {
    td_grain_attrs grain;
    const td_gemm_i8_kernels *kernels;
    td_dtype to, precision; /* precision: TD_FLOAT, or the half type that quotients are rounded to */
    bool is_integer, saturate;
    float low, high;
} quantize_state;

static treadle_status quantize_prepare(td_prepare *p) {
    quantize_state *s = p->state;
    td_dtype x = td_input_dtype(p, IN_X), scale = td_input_dtype(p, IN_SCALE), zero = td_input_dtype(p, IN_ZERO);
    td_dtype asked = (td_dtype)td_attr_int(p, "output_dtype"), precision = (td_dtype)td_attr_int(p, "precision");

    TD_TRY(td_grain_prepare(p, &s->grain));
    s->kernels = td_gemm_i8_pick();
    s->saturate = !td_attr_has(p, "saturate") || td_attr_int(p, "saturate") != 0;
    s->to = td_has_input(p, IN_ZERO) ? zero : asked ? asked : TD_UINT8;
    if (asked && asked != s->to)
        return td_bad_node(p, "output_dtype %s beside a zero point of %s", td_dtype_name(asked), td_dtype_name(zero));
    s->precision = precision ? precision : x == scale ? x : TD_FLOAT;
    if (precision && precision != TD_FLOAT && precision != TD_FLOAT16 && precision != TD_BFLOAT16)
        return td_bad_node(p, "precision %s", td_dtype_name(precision));
    if (s->precision != TD_FLOAT16 && s->precision != TD_BFLOAT16) s->precision = TD_FLOAT;
    td_kind kind = td_dtype_kind(s->to);
    int bits = td_dtype_bits(s->to);
    s->is_integer = kind == TD_KIND_INT || kind == TD_KIND_UINT;
    if (s->is_integer ? bits > 16 : kind != TD_KIND_FLOAT || bits > 8 || s->to == TD_FLOAT8E8M0)
        return td_bad_node(p, "output_dtype %s", td_dtype_name(s->to));
    s->low = kind == TD_KIND_INT ? (float)-(1 << (bits - 1)) : 0;
    s->high = (float)((1 << (kind == TD_KIND_INT ? bits - 1 : bits)) - 1);
    return TREADLE_OK;
}

static treadle_status quantize_infer(td_infer *in) {
    const quantize_state *s = in->state;
    TD_TRY(td_grain_infer(in, &s->grain));
    return td_infer_set(in, 0, s->to, &in->inputs[IN_X]->tensor.shape);
}

typedef struct linear_job {
    const void *state;
    const td_tensor *x, *scale, *zero, *y;
    td_grain grain;
} linear_job;

/* Quotients as `precision` has them. */
static void divide(const quantize_state *s, float *x, int64_t n, const float *scale, int64_t step) {
    uint16_t half[CHUNK], half_scale[CHUNK];
    float rounded[CHUNK];
    if (s->precision != TD_FLOAT) {
        int64_t n_scales = step ? n : 1;
        td_from_f32(s->precision, x, n, half);
        td_to_f32(s->precision, half, n, x);
        td_from_f32(s->precision, scale, n_scales, half_scale);
        td_to_f32(s->precision, half_scale, n_scales, rounded);
        scale = rounded;
    }
    for (int64_t i = 0; i < n; i++) x[i] /= scale[i * step];
    if (s->precision == TD_FLOAT) return;
    td_from_f32(s->precision, x, n, half);
    td_to_f32(s->precision, half, n, x);
}

static void quantize_chunk(const linear_job *j, int64_t first, int64_t n, int64_t scale_at, int64_t step) {
    const quantize_state *s = j->state;
    float x[CHUNK], scale[CHUNK], zero[CHUNK] = {0};
    int64_t n_scales = step ? n : 1;
    bool bytes = s->is_integer && td_dtype_bits(s->to) == 8;

    load(j->scale, scale_at, n_scales, scale);
    if (j->zero) load(j->zero, scale_at, n_scales, zero);
    if (bytes && step == 0 && s->precision == TD_FLOAT && j->x->dtype == TD_FLOAT) {
        s->kernels->quantize((const float *)j->x->data + first, n, *scale, *zero, s->low, s->high,
                             (uint8_t *)j->y->data + first);
        return;
    }
    load(j->x, first, n, x);
    divide(s, x, n, scale, step);
    for (int64_t i = 0; i < n; i++) {
        float z = zero[i * step];
        if (!s->is_integer) {
            td_small_float_store(s->to, j->y->data, first + i, (double)(x[i] + z), s->saturate);
            continue;
        }
        float v = nearbyintf(x[i]) + z;
        v = v > s->low ? v : s->low; /* NaN too */
        td_store_i64(s->to, j->y->data, first + i, (int64_t)(v < s->high ? v : s->high));
    }
}

static void quantize_runs(void *arg, int64_t begin, int64_t end, int thread) {
    const linear_job *j = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        td_grain_run run = td_grain_at(&j->grain, i);
        for (int64_t at = 0; at < run.n; at += CHUNK)
            quantize_chunk(j, run.first + at, TD_MIN((int64_t)CHUNK, run.n - at), run.scale + at * run.step, run.step);
    }
}

static treadle_status linear_run(td_run *r, const td_grain_attrs *grain, td_range_fn *fn) {
    linear_job job = {.state = r->state,
                      .x = r->in[IN_X],
                      .scale = r->in[IN_SCALE],
                      .zero = zero_of(r),
                      .y = r->out[0],
                      .grain = td_grain_of(grain, &r->in[IN_X]->shape, &r->in[IN_SCALE]->shape)};
    int64_t count = td_tensor_count(job.x);
    if (count == 0) return TREADLE_OK;
    td_pool_range(pool_for(r), job.grain.n_runs, TD_MAX(1, 16384 * job.grain.n_runs / count), 1, fn, &job);
    return TREADLE_OK;
}

static treadle_status quantize_run(td_run *r) {
    return linear_run(r, &((const quantize_state *)r->state)->grain, quantize_runs);
}

const td_op_impl td_op_quantize_linear = {
    .state_bytes = sizeof(quantize_state), .prepare = quantize_prepare, .infer = quantize_infer, .run = quantize_run};

/* --- DequantizeLinear */

typedef struct dequantize_state {
    td_grain_attrs grain;
    td_dtype to;
} dequantize_state;

static treadle_status dequantize_prepare(td_prepare *p) {
    dequantize_state *s = p->state;
    td_dtype asked = (td_dtype)td_attr_int(p, "output_dtype");

    TD_TRY(td_grain_prepare(p, &s->grain));
    s->to = asked ? asked : td_input_dtype(p, IN_SCALE);
    if (s->to != TD_FLOAT && s->to != TD_FLOAT16 && s->to != TD_BFLOAT16)
        return td_bad_node(p, "an output of %s", td_dtype_name(s->to));
    return TREADLE_OK;
}

static treadle_status dequantize_infer(td_infer *in) {
    const dequantize_state *s = in->state;
    TD_TRY(td_grain_infer(in, &s->grain));
    return td_infer_set(in, 0, s->to, &in->inputs[IN_X]->tensor.shape);
}

/* The common case: 8-bit codes with one scale to float32. */
#define SCALED(name, T)                                                                                                \
    static void name(const T *x, int32_t zero, float scale, int64_t n, float *out) {                                   \
        for (int64_t i = 0; i < n; i++) out[i] = (float)(x[i] - zero) * scale;                                         \
    }
SCALED(scaled_u8, uint8_t)
SCALED(scaled_i8, int8_t)

static bool dequantize_plain(const linear_job *j, const td_grain_run *run) {
    td_dtype dtype = j->x->dtype;
    if (run->step || j->y->dtype != TD_FLOAT || (dtype != TD_UINT8 && dtype != TD_INT8)) return false;
    int32_t zero = j->zero ? (int32_t)td_load_i64(j->zero->dtype, j->zero->data, run->scale) : 0;
    float scale, *out = (float *)j->y->data + run->first;
    load(j->scale, run->scale, 1, &scale);
    if (dtype == TD_UINT8) scaled_u8((const uint8_t *)j->x->data + run->first, zero, scale, run->n, out);
    else scaled_i8((const int8_t *)j->x->data + run->first, zero, scale, run->n, out);
    return true;
}

/* Differences of integers are exact, as float32 of 32-bit ones could not be. */
static void subtract_zero(const linear_job *j, int64_t first, int64_t n, int64_t scale_at, int64_t step, float *out) {
    const td_tensor *x = j->x, *zero = j->zero;
    td_kind kind = td_dtype_kind(x->dtype);

    if (kind == TD_KIND_INT || kind == TD_KIND_UINT) {
        if (!zero && x->dtype == TD_INT8)
            for (int64_t i = 0; i < n; i++) out[i] = (float)((const int8_t *)x->data)[first + i];
        else if (!zero && x->dtype == TD_UINT8)
            for (int64_t i = 0; i < n; i++) out[i] = (float)((const uint8_t *)x->data)[first + i];
        else
            for (int64_t i = 0; i < n; i++) {
                int64_t z = zero ? td_load_i64(zero->dtype, zero->data, scale_at + i * step) : 0;
                out[i] = (float)(td_load_i64(x->dtype, x->data, first + i) - z);
            }
    } else {
        load(x, first, n, out);
        for (int64_t i = 0; zero && i < n; i++)
            out[i] -= (float)td_load_f64(zero->dtype, zero->data, scale_at + i * step);
    }
}

static void dequantize_runs(void *arg, int64_t begin, int64_t end, int thread) {
    const linear_job *j = arg;
    float x[CHUNK], scale[CHUNK];
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        td_grain_run run = td_grain_at(&j->grain, r);
        if (dequantize_plain(j, &run)) continue;
        for (int64_t at = 0; at < run.n; at += CHUNK) {
            int64_t n = TD_MIN((int64_t)CHUNK, run.n - at), scale_at = run.scale + at * run.step;
            float *to = j->y->dtype == TD_FLOAT ? (float *)j->y->data + run.first + at : x;
            subtract_zero(j, run.first + at, n, scale_at, run.step, to);
            load(j->scale, scale_at, run.step ? n : 1, scale);
            if (run.step)
                for (int64_t i = 0; i < n; i++) to[i] *= scale[i];
            else
                for (int64_t i = 0; i < n; i++) to[i] *= *scale;
            if (to == x) td_from_f32(j->y->dtype, x, n, td_move_at(j->y, run.first + at));
        }
    }
}

static treadle_status dequantize_run(td_run *r) {
    return linear_run(r, &((const dequantize_state *)r->state)->grain, dequantize_runs);
}

const td_op_impl td_op_dequantize_linear = {.state_bytes = sizeof(dequantize_state),
                                            .prepare = dequantize_prepare,
                                            .infer = dequantize_infer,
                                            .run = dequantize_run};
