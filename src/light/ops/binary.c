/* light/ops/binary.c - two-operand elementwise ops with NumPy broadcasting: arithmetic, comparison, logic, bits.
 * Source: ONNX op texts of Add, Sub, Mul, Div, And, Or, Xor, Equal, Less, Greater, LessOrEqual, GreaterOrEqual,
 * BitwiseAnd, BitwiseOr, BitwiseXor, BitShift, PRelu, Max, Min, Mod. Integers wrap; an integer division by zero gives
 * 0. Before opset 7 the second operand was aligned at `axis` when `broadcast` was set. */
#include "light/ops/loops.h"
#include "tensor/half.h"

#include <math.h>
#include <string.h>

typedef struct binary_state {
    td_map_inner *fn;
    td_map_half half;
    bool through_half;
    bool legacy;  /* opset < 7: align the second operand at `axis` */
    int64_t axis; /* -1: at the end */
    td_dtype out;
} binary_state;

/* --- loops */
#define WRAP_LOOP(sfx, T, U, dtype, name, op) TD_LOOP2(name##_##sfx, T, T, T, (U)((U)a op(U) b))
#define FLOAT_LOOP(sfx, T, U, dtype, name, op) TD_LOOP2(name##_##sfx, T, T, T, a op b)
#define ARITHMETIC(name, op)                                                                                           \
    TD_FOR_SIGNED(WRAP_LOOP, name, op)                                                                                 \
    TD_FOR_UNSIGNED(WRAP_LOOP, name, op)                                                                               \
    TD_FOR_FLOATS(FLOAT_LOOP, name, op)                                                                                \
    static const td_map_row name##_rows[] = {TD_FOR_SIGNED(TD_ROW, name) TD_FOR_UNSIGNED(TD_ROW, name)                 \
                                                 TD_FOR_FLOATS(TD_ROW, name)};
ARITHMETIC(add, +)
ARITHMETIC(sub, -)
ARITHMETIC(mul, *)

#define DIV_LOOP_SIGNED(sfx, T, U, dtype, name)                                                                        \
    TD_LOOP2(name##_##sfx, T, T, T, b == 0 ? 0 : b == (T)-1 ? (T)(U)(0 - (U)a) : (T)(a / b))
#define DIV_LOOP_UNSIGNED(sfx, T, U, dtype, name) TD_LOOP2(name##_##sfx, T, T, T, b == 0 ? 0 : (T)(a / b))
TD_FOR_SIGNED(DIV_LOOP_SIGNED, div)
TD_FOR_UNSIGNED(DIV_LOOP_UNSIGNED, div)
TD_FOR_FLOATS(FLOAT_LOOP, div, /)
static const td_map_row div_rows[] = {TD_FOR_SIGNED(TD_ROW, div) TD_FOR_UNSIGNED(TD_ROW, div)
                                          TD_FOR_FLOATS(TD_ROW, div)};

/* Mod with the sign of the divisor (fmod = 0), and of the dividend (fmod = 1). */
#define MOD_LOOP_SIGNED(sfx, T, U, dtype, name)                                                                        \
    TD_LOOP2(name##_##sfx, T, T, T,                                                                                    \
             b == 0 || b == (T)-1                       ? 0                                                            \
             : (a % b != 0 && ((a % b < 0) != (b < 0))) ? (T)(a % b + b)                                               \
                                                        : (T)(a % b))
#define FMOD_LOOP_SIGNED(sfx, T, U, dtype, name) TD_LOOP2(name##_##sfx, T, T, T, b == 0 || b == (T)-1 ? 0 : (T)(a % b))
#define MOD_LOOP_UNSIGNED(sfx, T, U, dtype, name) TD_LOOP2(name##_##sfx, T, T, T, b == 0 ? 0 : (T)(a % b))
TD_FOR_SIGNED(MOD_LOOP_SIGNED, mod)
TD_FOR_UNSIGNED(MOD_LOOP_UNSIGNED, mod)
TD_FOR_SIGNED(FMOD_LOOP_SIGNED, fmod)
TD_LOOP2(fmod_f32, float, float, float, fmodf(a, b))
TD_LOOP2(fmod_f64, double, double, double, fmod(a, b))
static const td_map_row mod_rows[] = {TD_FOR_SIGNED(TD_ROW, mod) TD_FOR_UNSIGNED(TD_ROW, mod)};
static const td_map_row fmod_rows[] = {TD_FOR_SIGNED(TD_ROW, fmod) TD_FOR_UNSIGNED(TD_ROW, mod)
                                           TD_FOR_FLOATS(TD_ROW, fmod)};

/* As NumPy's maximum and minimum: a NaN on either side wins. */
#define MAX_LOOP(sfx, T, U, dtype, name) TD_LOOP2(name##_##sfx, T, T, T, a > b || a != a ? a : b)
#define MIN_LOOP(sfx, T, U, dtype, name) TD_LOOP2(name##_##sfx, T, T, T, a < b || a != a ? a : b)
TD_FOR_SIGNED(MAX_LOOP, max)
TD_FOR_UNSIGNED(MAX_LOOP, max)
TD_FOR_FLOATS(MAX_LOOP, max)
TD_FOR_SIGNED(MIN_LOOP, min)
TD_FOR_UNSIGNED(MIN_LOOP, min)
TD_FOR_FLOATS(MIN_LOOP, min)
static const td_map_row max_rows[] = {TD_FOR_SIGNED(TD_ROW, max) TD_FOR_UNSIGNED(TD_ROW, max)
                                          TD_FOR_FLOATS(TD_ROW, max)};
static const td_map_row min_rows[] = {TD_FOR_SIGNED(TD_ROW, min) TD_FOR_UNSIGNED(TD_ROW, min)
                                          TD_FOR_FLOATS(TD_ROW, min)};

#define COMPARE_LOOP(sfx, T, U, dtype, name, op) TD_LOOP2(name##_##sfx, bool, T, T, a op b)
#define COMPARISON(name, op)                                                                                           \
    TD_FOR_SIGNED(COMPARE_LOOP, name, op)                                                                              \
    TD_FOR_UNSIGNED(COMPARE_LOOP, name, op)                                                                            \
    TD_FOR_FLOATS(COMPARE_LOOP, name, op)                                                                              \
    static const td_map_row name##_rows[] = {TD_FOR_SIGNED(TD_ROW, name) TD_FOR_UNSIGNED(TD_ROW, name)                 \
                                                 TD_FOR_FLOATS(TD_ROW, name)};
COMPARISON(less, <)
COMPARISON(greater, >)
COMPARISON(less_or_equal, <=)
COMPARISON(greater_or_equal, >=)

TD_FOR_SIGNED(COMPARE_LOOP, equal, ==)
TD_FOR_UNSIGNED(COMPARE_LOOP, equal, ==)
TD_FOR_FLOATS(COMPARE_LOOP, equal, ==)
TD_LOOP2(equal_bool, bool, bool, bool, a == b)
TD_LOOP2(equal_string, bool, td_str, td_str, td_str_equal(a, b))
static const td_map_row equal_rows[] = {TD_FOR_SIGNED(TD_ROW, equal) TD_FOR_UNSIGNED(TD_ROW, equal)
                                            TD_FOR_FLOATS(TD_ROW, equal){TD_BOOL, equal_bool},
                                        {TD_STRING, equal_string}};

TD_LOOP2(and_bool, bool, bool, bool, a &&b)
TD_LOOP2(or_bool, bool, bool, bool, a || b)
TD_LOOP2(xor_bool, bool, bool, bool, a != b)
static const td_map_row and_rows[] = {{TD_BOOL, and_bool}};
static const td_map_row or_rows[] = {{TD_BOOL, or_bool}};
static const td_map_row xor_rows[] = {{TD_BOOL, xor_bool}};

#define BITS(name, op)                                                                                                 \
    TD_FOR_SIGNED(WRAP_LOOP, name, op)                                                                                 \
    TD_FOR_UNSIGNED(WRAP_LOOP, name, op)                                                                               \
    static const td_map_row name##_rows[] = {TD_FOR_SIGNED(TD_ROW, name) TD_FOR_UNSIGNED(TD_ROW, name)};
BITS(bit_and, &)
BITS(bit_or, |)
BITS(bit_xor, ^)

#define SHIFT_LOOP(sfx, T, U, dtype, name, op) TD_LOOP2(name##_##sfx, T, T, T, b >= sizeof(T) * 8 ? 0 : (T)(a op b))
TD_FOR_UNSIGNED(SHIFT_LOOP, shift_left, <<)
TD_FOR_UNSIGNED(SHIFT_LOOP, shift_right, >>)
static const td_map_row shift_left_rows[] = {TD_FOR_UNSIGNED(TD_ROW, shift_left)};
static const td_map_row shift_right_rows[] = {TD_FOR_UNSIGNED(TD_ROW, shift_right)};

#define PRELU_LOOP(sfx, T, U, dtype, name) TD_LOOP2(name##_##sfx, T, T, T, a < 0 ? (T)(a * b) : a)
TD_FOR_FLOATS(PRELU_LOOP, prelu)
PRELU_LOOP(i32, int32_t, uint32_t, TD_INT32, prelu)
PRELU_LOOP(i64, int64_t, uint64_t, TD_INT64, prelu)
/* nothing is below zero */
TD_LOOP2(prelu_u32, uint32_t, uint32_t, uint32_t, a + 0 * b)
TD_LOOP2(prelu_u64, uint64_t, uint64_t, uint64_t, a + 0 * b)
static const td_map_row prelu_rows[] = {TD_FOR_FLOATS(TD_ROW, prelu){TD_INT32, prelu_i32},
                                        {TD_INT64, prelu_i64},
                                        {TD_UINT32, prelu_u32},
                                        {TD_UINT64, prelu_u64}};

/* --- the op */
static treadle_status prepare_rows(td_prepare *p, const td_map_row *rows, size_t n_rows, td_dtype out) {
    binary_state *s = p->state;
    td_dtype dtype = td_input_dtype(p, 0);

    s->out = out == TD_UNDEFINED ? dtype : out;
    s->axis = -1;
    if (td_attr_has(p, "broadcast") && td_attr_int(p, "broadcast")) {
        s->legacy = true;
        if (td_attr_has(p, "axis")) s->axis = td_attr_int(p, "axis");
    }
    s->fn = td_map_choose(rows, n_rows, dtype, s->out, 2, &s->half);
    if (!s->fn) return td_unsupported(p, "element type %s", td_dtype_name(dtype));
    s->through_half = s->fn == td_map_through_f32;
    return TREADLE_OK;
}

/* The second operand's shape as broadcasting needs it: trailing ones after an operand aligned at an inner axis. */
static treadle_status aligned_shape(td_infer *in, const binary_state *s, td_shape *b) {
    const td_shape *a = &in->inputs[0]->tensor.shape;

    *b = in->inputs[1]->tensor.shape;
    if (!s->legacy || a->rank < 0 || b->rank < 0 || s->axis == -1) return TREADLE_OK;
    int64_t axis = s->axis < 0 ? s->axis + a->rank : s->axis;
    if (axis < 0 || axis + b->rank > a->rank) return td_infer_fail(in, "axis %lld does not fit", (long long)s->axis);
    while (axis + b->rank < a->rank) b->dims[b->rank++] = 1;
    return TREADLE_OK;
}

static treadle_status binary_infer(td_infer *in) {
    const binary_state *s = in->state;

    if (!s->legacy) return td_infer_broadcast(in, 0, s->out, 2);
    td_shape b, out;
    TD_TRY(aligned_shape(in, s, &b));
    if (!td_shape_broadcast(&in->inputs[0]->tensor.shape, &b, &out))
        return td_infer_fail(in, "shapes do not broadcast");
    return td_infer_set(in, 0, s->out, &out);
}

static treadle_status binary_run(td_run *r) {
    const binary_state *s = r->state;
    td_tensor aligned;
    const td_tensor *in[2] = {r->in[0], r->in[1]};

    if (s->legacy && s->axis != -1) {
        aligned = *r->in[1];
        int64_t axis = s->axis < 0 ? s->axis + r->in[0]->shape.rank : s->axis;
        while (axis + aligned.shape.rank < r->in[0]->shape.rank) {
            aligned.strides[aligned.shape.rank] = 0;
            aligned.shape.dims[aligned.shape.rank++] = 1;
        }
        in[1] = &aligned;
    }
    td_map_run(r->pool, r->out[0], in, 2, s->fn, s->through_half ? &s->half : NULL);
    return TREADLE_OK;
}

#define BINARY_OP(name, rows, out)                                                                                     \
    static treadle_status name##_prepare(td_prepare *p) { return prepare_rows(p, rows, TD_COUNT(rows), out); }         \
    const td_op_impl td_op_##name = {.state_bytes = sizeof(binary_state),                                              \
                                     .prepare = name##_prepare,                                                        \
                                     .infer = binary_infer,                                                            \
                                     .run = binary_run,                                                                \
                                     .flags = TD_OP_INPLACE | TD_OP_ANY_STRIDE};
BINARY_OP(add, add_rows, TD_UNDEFINED)
BINARY_OP(sub, sub_rows, TD_UNDEFINED)
BINARY_OP(mul, mul_rows, TD_UNDEFINED)
BINARY_OP(div, div_rows, TD_UNDEFINED)
BINARY_OP(and, and_rows, TD_BOOL)
BINARY_OP(or, or_rows, TD_BOOL)
BINARY_OP(xor, xor_rows, TD_BOOL)
BINARY_OP(equal, equal_rows, TD_BOOL)
BINARY_OP(less, less_rows, TD_BOOL)
BINARY_OP(greater, greater_rows, TD_BOOL)
BINARY_OP(less_or_equal, less_or_equal_rows, TD_BOOL)
BINARY_OP(greater_or_equal, greater_or_equal_rows, TD_BOOL)
BINARY_OP(bitwise_and, bit_and_rows, TD_UNDEFINED)
BINARY_OP(bitwise_or, bit_or_rows, TD_UNDEFINED)
BINARY_OP(bitwise_xor, bit_xor_rows, TD_UNDEFINED)

/* Before opset 7 a slope of one value per channel belongs to dimension 1. */
static treadle_status prelu_prepare(td_prepare *p) {
    binary_state *s = p->state;
    const td_shape *x = td_input_shape(p, 0);

    TD_TRY(prepare_rows(p, prelu_rows, TD_COUNT(prelu_rows), TD_UNDEFINED));
    if (p->opset < 7 && x && x->rank != 1) {
        s->legacy = true;
        s->axis = 1;
    }
    return TREADLE_OK;
}
const td_op_impl td_op_prelu = {.state_bytes = sizeof(binary_state),
                                .prepare = prelu_prepare,
                                .infer = binary_infer,
                                .run = binary_run,
                                .flags = TD_OP_INPLACE | TD_OP_ANY_STRIDE};

static treadle_status bit_shift_prepare(td_prepare *p) {
    td_str direction = td_attr_string(p, "direction");

    if (td_str_is(direction, "LEFT")) return prepare_rows(p, shift_left_rows, TD_COUNT(shift_left_rows), TD_UNDEFINED);
    if (td_str_is(direction, "RIGHT"))
        return prepare_rows(p, shift_right_rows, TD_COUNT(shift_right_rows), TD_UNDEFINED);
    return td_bad_node(p, "expected direction to be LEFT or RIGHT, found \"%.*s\"", TD_STR_ARGS(direction));
}
const td_op_impl td_op_bit_shift = {.state_bytes = sizeof(binary_state),
                                    .prepare = bit_shift_prepare,
                                    .infer = binary_infer,
                                    .run = binary_run,
                                    .flags = TD_OP_INPLACE | TD_OP_ANY_STRIDE};

static treadle_status mod_prepare(td_prepare *p) {
    if (td_attr_int(p, "fmod")) return prepare_rows(p, fmod_rows, TD_COUNT(fmod_rows), TD_UNDEFINED);
    if (td_dtype_kind(td_input_dtype(p, 0)) == TD_KIND_FLOAT) return td_bad_node(p, "float inputs need fmod = 1");
    return prepare_rows(p, mod_rows, TD_COUNT(mod_rows), TD_UNDEFINED);
}
const td_op_impl td_op_mod = {.state_bytes = sizeof(binary_state),
                              .prepare = mod_prepare,
                              .infer = binary_infer,
                              .run = binary_run,
                              .flags = TD_OP_INPLACE | TD_OP_ANY_STRIDE};

/* --- Max and Min: any number of operands. */
static treadle_status fold_infer(td_infer *in) {
    const binary_state *s = in->state;
    return td_infer_broadcast(in, 0, s->out, in->n_inputs);
}

/* No in-place: the output is written before later operands are read. */
static treadle_status fold_run(td_run *r) {
    const binary_state *s = r->state;
    const void *ctx = s->through_half ? &s->half : NULL;

    if (r->n_inputs == 1) {
        td_tensor_copy(r->out[0], r->in[0]);
        return TREADLE_OK;
    }
    td_map_run(r->pool, r->out[0], r->in, 2, s->fn, ctx);
    for (size_t i = 2; i < r->n_inputs; i++) {
        const td_tensor *in[2] = {r->out[0], r->in[i]};
        td_map_run(r->pool, r->out[0], in, 2, s->fn, ctx);
    }
    return TREADLE_OK;
}

#define FOLD_OP(name)                                                                                                  \
    static treadle_status name##_prepare(td_prepare *p) {                                                              \
        return prepare_rows(p, name##_rows, TD_COUNT(name##_rows), TD_UNDEFINED);                                      \
    }                                                                                                                  \
    const td_op_impl td_op_##name = {.state_bytes = sizeof(binary_state),                                              \
                                     .prepare = name##_prepare,                                                        \
                                     .infer = fold_infer,                                                              \
                                     .run = fold_run,                                                                  \
                                     .flags = TD_OP_ANY_STRIDE};
FOLD_OP(max)
FOLD_OP(min)

/* Sum and Mean: the same over additions. */
static treadle_status sum_prepare(td_prepare *p) { return prepare_rows(p, add_rows, TD_COUNT(add_rows), TD_UNDEFINED); }
const td_op_impl td_op_sum = {.state_bytes = sizeof(binary_state),
                              .prepare = sum_prepare,
                              .infer = fold_infer,
                              .run = fold_run,
                              .flags = TD_OP_ANY_STRIDE};

static treadle_status mean_run(td_run *r) {
    td_tensor *y = r->out[0];
    int64_t count = td_tensor_count(y);
    TD_TRY(fold_run(r));
    for (int64_t i = 0; i < count; i++)
        td_store_f64(y->dtype, y->data, i, td_load_f64(y->dtype, y->data, i) / (double)r->n_inputs);
    return TREADLE_OK;
}
const td_op_impl td_op_mean = {.state_bytes = sizeof(binary_state),
                               .prepare = sum_prepare,
                               .infer = fold_infer,
                               .run = mean_run,
                               .strided_inputs = UINT32_MAX};
