/* light/ops/unary.c - one-operand elementwise ops. Source: the ONNX op texts of each.
 * float16 and bfloat16 are computed in float32 and rounded once. */
#include "kernels/vmath.h"
#include "light/ops/loops.h"

#include <math.h>

typedef struct unary_state {
    td_map_inner *fn;
    td_map_half half;
    bool through_half;
    td_dtype out;
    struct {
        float alpha, beta;
    } with; /* what the loops get as context */
} unary_state;

#define FLOAT1(name, f32_expr, f64_expr)                                                                               \
    TD_LOOP1(name##_f32, float, float, f32_expr)                                                                       \
    TD_LOOP1(name##_f64, double, double, f64_expr)                                                                     \
    static const td_map_row name##_rows[] = {{TD_FLOAT, name##_f32}, {TD_DOUBLE, name##_f64}};
#define FLOAT1_FN(name, fn) FLOAT1(name, fn##f(a), fn(a))
#define ALPHA (*(const float *)ctx)
#define BETA (((const float *)ctx)[1])

FLOAT1_FN(sqrt, sqrt)
FLOAT1_FN(log, log)
FLOAT1_FN(sin, sin)
FLOAT1_FN(cos, cos)
FLOAT1_FN(tan, tan)
FLOAT1_FN(asin, asin)
FLOAT1_FN(acos, acos)
FLOAT1_FN(atan, atan)
FLOAT1_FN(sinh, sinh)
FLOAT1_FN(cosh, cosh)
FLOAT1_FN(asinh, asinh)
FLOAT1_FN(acosh, acosh)
FLOAT1_FN(atanh, atanh)
FLOAT1_FN(ceil, ceil)
FLOAT1_FN(floor, floor)
FLOAT1_FN(round, rint) /* halves to even */
FLOAT1(reciprocal, 1.0f / a, 1.0 / a)
FLOAT1(softplus, a > 0 ? a + log1pf(expf(-a)) : log1pf(expf(a)), a > 0 ? a + log1p(exp(-a)) : log1p(exp(a)))
FLOAT1(softsign, a / (1.0f + fabsf(a)), a / (1.0 + fabs(a)))
FLOAT1(mish, a *tanhf(a > 0 ? a + log1pf(expf(-a)) : log1pf(expf(a))),
       a *tanh(a > 0 ? a + log1p(exp(-a)) : log1p(exp(a))))
FLOAT1(hard_swish, a *fmaxf(0.0f, fminf(1.0f, a / 6.0f + 0.5f)), a *fmax(0.0, fmin(1.0, a / 6.0 + 0.5)))
FLOAT1(elu, a < 0 ? ALPHA * expm1f(a) : a, a < 0 ? (double)ALPHA * expm1(a) : a)
FLOAT1(celu, fmaxf(0.0f, a) + fminf(0.0f, ALPHA *expm1f(a / ALPHA)),
       fmax(0.0, a) + fmin(0.0, (double)ALPHA *expm1(a / (double)ALPHA)))
FLOAT1(selu, BETA *(a > 0 ? a : ALPHA * expm1f(a)), (double)BETA *(a > 0 ? a : (double)ALPHA * expm1(a)))
FLOAT1(leaky_relu, a < 0 ? ALPHA * a : a, a < 0 ? (double)ALPHA * a : a)
FLOAT1(thresholded_relu, a > ALPHA ? a : 0.0f, a > (double)ALPHA ? a : 0.0)
FLOAT1(hard_sigmoid, fmaxf(0.0f, fminf(1.0f, ALPHA *a + BETA)), fmax(0.0, fmin(1.0, (double)ALPHA *a + (double)BETA)))
FLOAT1(shrink, a<-BETA ? a + ALPHA : a> BETA ? a - ALPHA : 0.0f,
       a<-(double)BETA ? a + (double)ALPHA : a>(double) BETA ? a - (double)ALPHA : 0.0)

/* float32 by the kernels, which want their operands side by side: others go through a buffer, with the same results. */
typedef void vmath_call(const td_vmath_kernels *kernels, const float *x, int64_t n, float alpha, float *y);

static void run_vmath(vmath_call *call, int64_t n, char *const p[TD_MAP_OPERANDS], const int64_t s[TD_MAP_OPERANDS],
                      const void *ctx) {
    enum { CHUNK = 256 };
    const td_vmath_kernels *kernels = td_vmath_pick();
    float buffer[CHUNK];

    if (s[0] == sizeof(float) && s[1] == sizeof(float)) {
        call(kernels, (const float *)(const void *)p[1], n, ALPHA, (float *)(void *)p[0]);
        return;
    }
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t m = TD_MIN(n - at, (int64_t)CHUNK);
        for (int64_t i = 0; i < m; i++) buffer[i] = *(const float *)(const void *)(p[1] + (at + i) * s[1]);
        call(kernels, buffer, m, ALPHA, buffer);
        for (int64_t i = 0; i < m; i++) *(float *)(void *)(p[0] + (at + i) * s[0]) = buffer[i];
    }
}

#define VMATH1(name, f32_call, f64_expr)                                                                               \
    static void name##_call(const td_vmath_kernels *k, const float *x, int64_t n, float alpha, float *y) {             \
        (void)alpha;                                                                                                   \
        f32_call;                                                                                                      \
    }                                                                                                                  \
    static void name##_f32(int64_t n, char *const p[TD_MAP_OPERANDS], const int64_t s[TD_MAP_OPERANDS],                \
                           const void *ctx) {                                                                          \
        run_vmath(name##_call, n, p, s, ctx);                                                                          \
    }                                                                                                                  \
    TD_LOOP1(name##_f64, double, double, f64_expr)                                                                     \
    static const td_map_row name##_rows[] = {{TD_FLOAT, name##_f32}, {TD_DOUBLE, name##_f64}};
VMATH1(exp, k->exp(x, n, y), exp(a))
VMATH1(tanh, k->tanh(x, n, y), tanh(a))
VMATH1(erf, k->erf(x, n, y), erf(a))
VMATH1(sigmoid, k->sigmoid(x, n, y), a >= 0 ? 1.0 / (1.0 + exp(-a)) : exp(a) / (1.0 + exp(a)))
VMATH1(swish, k->swish(x, n, alpha, y), a / (1.0 + exp(-(double)ALPHA * a)))
VMATH1(gelu, k->gelu(x, n, y), 0.5 * a * (1.0 + erf(a * 0.70710678118654752)))
VMATH1(gelu_tanh, k->gelu_tanh(x, n, y), 0.5 * a * (1.0 + tanh(0.79788456080286536 * (a + 0.044715 * a * a * a))))

/* Ops on integers too. */
#define ABS_LOOP(sfx, T, U, dtype, name) TD_LOOP1(name##_##sfx, T, T, a < 0 ? (U)(0 - (U)a) : (U)a)
#define NEG_LOOP(sfx, T, U, dtype, name) TD_LOOP1(name##_##sfx, T, T, (U)(0 - (U)a))
#define SIGN_LOOP(sfx, T, U, dtype, name) TD_LOOP1(name##_##sfx, T, T, (a > 0) - (a < 0))
#define RELU_LOOP(sfx, T, U, dtype, name) TD_LOOP1(name##_##sfx, T, T, a > 0 ? a : 0)
#define SAME_LOOP(sfx, T, U, dtype, name) TD_LOOP1(name##_##sfx, T, T, a)
#define SIGN_UNSIGNED(sfx, T, U, dtype, name) TD_LOOP1(name##_##sfx, T, T, a > 0)
#define NOT_LOOP(sfx, T, U, dtype, name) TD_LOOP1(name##_##sfx, T, T, (U) ~(U)a)
TD_FOR_SIGNED(ABS_LOOP, abs)
TD_FOR_UNSIGNED(SAME_LOOP, abs)
TD_LOOP1(abs_f32, float, float, fabsf(a))
TD_LOOP1(abs_f64, double, double, fabs(a))
static const td_map_row abs_rows[] = {TD_FOR_SIGNED(TD_ROW, abs) TD_FOR_UNSIGNED(TD_ROW, abs)
                                          TD_FOR_FLOATS(TD_ROW, abs)};
TD_FOR_SIGNED(NEG_LOOP, neg)
TD_LOOP1(neg_f32, float, float, -a)
TD_LOOP1(neg_f64, double, double, -a)
static const td_map_row neg_rows[] = {TD_FOR_SIGNED(TD_ROW, neg) TD_FOR_FLOATS(TD_ROW, neg)};
TD_FOR_SIGNED(SIGN_LOOP, sign)
TD_FOR_UNSIGNED(SIGN_UNSIGNED, sign)
TD_LOOP1(sign_f32, float, float, a != a ? a : (float)((a > 0) - (a < 0)))
TD_LOOP1(sign_f64, double, double, a != a ? a : (double)((a > 0) - (a < 0)))
static const td_map_row sign_rows[] = {TD_FOR_SIGNED(TD_ROW, sign) TD_FOR_UNSIGNED(TD_ROW, sign)
                                           TD_FOR_FLOATS(TD_ROW, sign)};
TD_FOR_SIGNED(RELU_LOOP, relu)
TD_LOOP1(relu_f32, float, float, a > 0 || a != a ? a : 0)
TD_LOOP1(relu_f64, double, double, a > 0 || a != a ? a : 0)
static const td_map_row relu_rows[] = {TD_FOR_SIGNED(TD_ROW, relu) TD_FOR_FLOATS(TD_ROW, relu)};
TD_FOR_SIGNED(NOT_LOOP, bit_not)
TD_FOR_UNSIGNED(NOT_LOOP, bit_not)
static const td_map_row bit_not_rows[] = {TD_FOR_SIGNED(TD_ROW, bit_not) TD_FOR_UNSIGNED(TD_ROW, bit_not)};

TD_LOOP1(not_bool, bool, bool, !a)
static const td_map_row not_rows[] = {{TD_BOOL, not_bool}};

TD_LOOP1(is_nan_f32, bool, float, isnan(a))
TD_LOOP1(is_nan_f64, bool, double, isnan(a))
static const td_map_row is_nan_rows[] = {{TD_FLOAT, is_nan_f32}, {TD_DOUBLE, is_nan_f64}};
TD_LOOP1(is_inf_f32, bool, float, isinf(a) && (a > 0 ? BETA : ALPHA) != 0)
TD_LOOP1(is_inf_f64, bool, double, isinf(a) && (a > 0 ? BETA : ALPHA) != 0)
static const td_map_row is_inf_rows[] = {{TD_FLOAT, is_inf_f32}, {TD_DOUBLE, is_inf_f64}};

/* --- the op */
static treadle_status prepare_rows(td_prepare *p, const td_map_row *rows, size_t n_rows, td_dtype out) {
    unary_state *s = p->state;
    td_dtype dtype = td_input_dtype(p, 0);

    s->out = out == TD_UNDEFINED ? dtype : out;
    s->fn = td_map_choose(rows, n_rows, dtype, s->out, 1, &s->half);
    if (!s->fn) return td_unsupported(p, "element type %s", td_dtype_name(dtype));
    s->half.ctx = &s->with;
    s->through_half = s->fn == td_map_through_f32;
    return TREADLE_OK;
}

static treadle_status unary_infer(td_infer *in) {
    const unary_state *s = in->state;
    return td_infer_set(in, 0, s->out, &in->inputs[0]->tensor.shape);
}

static treadle_status unary_run(td_run *r) {
    const unary_state *s = r->state;
    td_map_run(r->pool, r->out[0], r->in, 1, s->fn, s->through_half ? (const void *)&s->half : (const void *)&s->with);
    return TREADLE_OK;
}

#define UNARY_IMPL(name)                                                                                               \
    const td_op_impl td_op_##name = {.state_bytes = sizeof(unary_state),                                               \
                                     .prepare = name##_prepare,                                                        \
                                     .infer = unary_infer,                                                             \
                                     .run = unary_run,                                                                 \
                                     .flags = TD_OP_INPLACE | TD_OP_ANY_STRIDE};
#define UNARY_OP(name, rows, out)                                                                                      \
    static treadle_status name##_prepare(td_prepare *p) { return prepare_rows(p, rows, TD_COUNT(rows), out); }         \
    UNARY_IMPL(name)
/* With attributes as loop context; NULL: no second one. */
#define UNARY_ALPHA_OP(name, alpha_name, beta_name)                                                                    \
    static treadle_status name##_prepare(td_prepare *p) {                                                              \
        unary_state *s = p->state;                                                                                     \
        const char *second = beta_name;                                                                                \
        s->with.alpha = td_attr_float(p, alpha_name);                                                                  \
        if (second) s->with.beta = td_attr_float(p, second);                                                           \
        return prepare_rows(p, name##_rows, TD_COUNT(name##_rows), TD_UNDEFINED);                                      \
    }                                                                                                                  \
    UNARY_IMPL(name)

UNARY_OP(sqrt, sqrt_rows, TD_UNDEFINED)
UNARY_OP(exp, exp_rows, TD_UNDEFINED)
UNARY_OP(log, log_rows, TD_UNDEFINED)
UNARY_OP(sin, sin_rows, TD_UNDEFINED)
UNARY_OP(cos, cos_rows, TD_UNDEFINED)
UNARY_OP(tan, tan_rows, TD_UNDEFINED)
UNARY_OP(asin, asin_rows, TD_UNDEFINED)
UNARY_OP(acos, acos_rows, TD_UNDEFINED)
UNARY_OP(atan, atan_rows, TD_UNDEFINED)
UNARY_OP(sinh, sinh_rows, TD_UNDEFINED)
UNARY_OP(cosh, cosh_rows, TD_UNDEFINED)
UNARY_OP(asinh, asinh_rows, TD_UNDEFINED)
UNARY_OP(acosh, acosh_rows, TD_UNDEFINED)
UNARY_OP(atanh, atanh_rows, TD_UNDEFINED)
UNARY_OP(tanh, tanh_rows, TD_UNDEFINED)
UNARY_OP(erf, erf_rows, TD_UNDEFINED)
UNARY_OP(ceil, ceil_rows, TD_UNDEFINED)
UNARY_OP(floor, floor_rows, TD_UNDEFINED)
UNARY_OP(round, round_rows, TD_UNDEFINED)
UNARY_OP(reciprocal, reciprocal_rows, TD_UNDEFINED)
UNARY_OP(sigmoid, sigmoid_rows, TD_UNDEFINED)
UNARY_OP(softplus, softplus_rows, TD_UNDEFINED)
UNARY_OP(softsign, softsign_rows, TD_UNDEFINED)
UNARY_OP(mish, mish_rows, TD_UNDEFINED)
UNARY_OP(hard_swish, hard_swish_rows, TD_UNDEFINED)
UNARY_OP(abs, abs_rows, TD_UNDEFINED)
UNARY_OP(neg, neg_rows, TD_UNDEFINED)
UNARY_OP(sign, sign_rows, TD_UNDEFINED)
UNARY_OP(relu, relu_rows, TD_UNDEFINED)
UNARY_OP(bitwise_not, bit_not_rows, TD_UNDEFINED)
UNARY_OP(not, not_rows, TD_BOOL)
UNARY_OP(is_nan, is_nan_rows, TD_BOOL)
UNARY_ALPHA_OP(elu, "alpha", NULL)
UNARY_ALPHA_OP(celu, "alpha", NULL)
UNARY_ALPHA_OP(selu, "alpha", "gamma")
UNARY_ALPHA_OP(leaky_relu, "alpha", NULL)
UNARY_ALPHA_OP(thresholded_relu, "alpha", NULL)
UNARY_ALPHA_OP(hard_sigmoid, "alpha", "beta")
UNARY_ALPHA_OP(shrink, "bias", "lambd")
UNARY_ALPHA_OP(swish, "alpha", NULL)

static treadle_status is_inf_prepare(td_prepare *p) {
    unary_state *s = p->state;

    s->with.alpha = td_attr_int(p, "detect_negative") ? 1.0f : 0.0f;
    s->with.beta = td_attr_int(p, "detect_positive") ? 1.0f : 0.0f;
    return prepare_rows(p, is_inf_rows, TD_COUNT(is_inf_rows), TD_BOOL);
}
UNARY_IMPL(is_inf)

static treadle_status gelu_prepare(td_prepare *p) {
    td_str how = td_attr_string(p, "approximate");

    if (td_str_is(how, "tanh")) return prepare_rows(p, gelu_tanh_rows, TD_COUNT(gelu_tanh_rows), TD_UNDEFINED);
    if (td_str_is(how, "none")) return prepare_rows(p, gelu_rows, TD_COUNT(gelu_rows), TD_UNDEFINED);
    return td_bad_node(p, "expected approximate to be none or tanh, found \"%.*s\"", TD_STR_ARGS(how));
}
UNARY_IMPL(gelu)

/* com.microsoft: Gelu has no attribute, QuickGelu is x * sigmoid(alpha * x). */
UNARY_OP(gelu_microsoft, gelu_rows, TD_UNDEFINED)
