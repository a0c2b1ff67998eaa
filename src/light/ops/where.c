/* light/ops/where.c - Where, Clip, Pow. Source: ONNX op texts. */
#include "light/ops/loops.h"

#include "light/ops/move.h"
#include "tensor/half.h"

#include <math.h>
#include <string.h>

/* --- Where: elements are moved by size, whatever their type. */
TD_INLINE void choose(int64_t n, char *const p[TD_MAP_OPERANDS], const int64_t s[TD_MAP_OPERANDS], size_t width) {
    for (int64_t i = 0; i < n; i++) memcpy(p[0] + i * s[0], p[1][i * s[1]] ? p[2] + i * s[2] : p[3] + i * s[3], width);
}
#define CHOOSE(width)                                                                                                  \
    static void choose_##width(int64_t n, char *const p[TD_MAP_OPERANDS], const int64_t s[TD_MAP_OPERANDS],            \
                               const void *ctx) {                                                                      \
        (void)ctx;                                                                                                     \
        choose(n, p, s, width);                                                                                        \
    }
CHOOSE(1)
CHOOSE(2)
CHOOSE(4)
CHOOSE(8)
CHOOSE(16)

typedef struct where_state {
    td_map_inner *fn;
} where_state;

static treadle_status where_prepare(td_prepare *p) {
    where_state *s = p->state;

    switch (td_dtype_bits(td_input_dtype(p, 1))) {
    case 8: s->fn = choose_1; break;
    case 16: s->fn = choose_2; break;
    case 32: s->fn = choose_4; break;
    case 64: s->fn = choose_8; break;
    case 128: s->fn = choose_16; break;
    default: return td_unsupported(p, "element type %s", td_dtype_name(td_input_dtype(p, 1)));
    }
    return TREADLE_OK;
}

static treadle_status where_infer(td_infer *in) { return td_infer_broadcast(in, 0, in->inputs[1]->tensor.dtype, 3); }

static treadle_status where_run(td_run *r) {
    const where_state *s = r->state;
    td_map_run(r->pool, r->out[0], r->in, 3, s->fn, NULL);
    return TREADLE_OK;
}

const td_op_impl td_op_where = {.state_bytes = sizeof(where_state),
                                .prepare = where_prepare,
                                .infer = where_infer,
                                .run = where_run,
                                .flags = TD_OP_ANY_STRIDE};

/* --- Clip: bounds are attributes up to opset 10, scalar inputs later. A lower bound above
 * the upper one: the upper one. */
typedef struct clip_bounds {
    double low, high;
    int64_t low_int, high_int;
    uint64_t low_unsigned, high_unsigned;
} clip_bounds;

#define BOUNDS ((const clip_bounds *)ctx)
#define CLIP_LOOP(sfx, T, low, high)                                                                                   \
    TD_LOOP1(clip_##sfx, T, T,                                                                                         \
             (a < (T)BOUNDS->low ? (T)BOUNDS->low : a) > (T)BOUNDS->high ? (T)BOUNDS->high                             \
                                                                         : (a < (T)BOUNDS->low ? (T)BOUNDS->low : a))
CLIP_LOOP(f32, float, low, high)
CLIP_LOOP(f64, double, low, high)
CLIP_LOOP(i8, int8_t, low_int, high_int)
CLIP_LOOP(i16, int16_t, low_int, high_int)
CLIP_LOOP(i32, int32_t, low_int, high_int)
CLIP_LOOP(i64, int64_t, low_int, high_int)
CLIP_LOOP(u8, uint8_t, low_unsigned, high_unsigned)
CLIP_LOOP(u16, uint16_t, low_unsigned, high_unsigned)
CLIP_LOOP(u32, uint32_t, low_unsigned, high_unsigned)
CLIP_LOOP(u64, uint64_t, low_unsigned, high_unsigned)
static const td_map_row clip_rows[] = {
    {TD_FLOAT, clip_f32}, {TD_DOUBLE, clip_f64}, {TD_INT8, clip_i8},    {TD_INT16, clip_i16},  {TD_INT32, clip_i32},
    {TD_INT64, clip_i64}, {TD_UINT8, clip_u8},   {TD_UINT16, clip_u16}, {TD_UINT32, clip_u32}, {TD_UINT64, clip_u64}};

typedef struct clip_state {
    td_map_inner *fn;
    td_map_half half;
    clip_bounds bounds; /* of the attributes, or none */
} clip_state;

static treadle_status clip_prepare(td_prepare *p) {
    clip_state *s = p->state;
    td_dtype dtype = td_input_dtype(p, 0);
    int bits = td_dtype_bits(dtype);

    s->fn = td_map_choose(clip_rows, TD_COUNT(clip_rows), dtype, dtype, 1, &s->half);
    if (!s->fn) return td_unsupported(p, "element type %s", td_dtype_name(dtype));
    s->bounds = (clip_bounds){.low = (double)-INFINITY,
                              .high = (double)INFINITY,
                              .low_int = INT64_MIN >> (64 - bits),
                              .high_int = INT64_MAX >> (64 - bits),
                              .high_unsigned = UINT64_MAX >> (64 - bits)};
    if (p->opset < 11) {
        if (td_attr_has(p, "min")) s->bounds.low = (double)td_attr_float(p, "min");
        if (td_attr_has(p, "max")) s->bounds.high = (double)td_attr_float(p, "max");
    }
    return TREADLE_OK;
}

static treadle_status clip_run(td_run *r) {
    const clip_state *s = r->state;
    clip_bounds bounds = s->bounds;
    td_map_half half = s->half;
    td_dtype dtype = r->in[0]->dtype;

    for (size_t i = 1; i < 3 && i < r->n_inputs; i++) {
        const td_tensor *b = r->in[i];
        if (!b) continue;
        if (td_tensor_count(b) != 1) return td_run_fail(r, "expected a bound to be a scalar");
        double value = td_load_f64(dtype, b->data, 0);
        int64_t whole = td_load_i64(dtype, b->data, 0);
        *(i == 1 ? &bounds.low : &bounds.high) = value;
        *(i == 1 ? &bounds.low_int : &bounds.high_int) = whole;
        *(i == 1 ? &bounds.low_unsigned : &bounds.high_unsigned) = (uint64_t)whole;
    }
    half.ctx = &bounds;
    td_map_run(r->pool, r->out[0], r->in, 1, s->fn,
               s->fn == td_map_through_f32 ? (const void *)&half : (const void *)&bounds);
    return TREADLE_OK;
}

static treadle_status same_infer(td_infer *in) { return td_infer_same(in, 0, 0); }

const td_op_impl td_op_clip = {.state_bytes = sizeof(clip_state),
                               .prepare = clip_prepare,
                               .infer = same_infer,
                               .run = clip_run,
                               .flags = TD_OP_INPLACE,
                               .strided_inputs = 1};

/* --- Pow: the exponent may have another type than the base, whose type the result has. Integers to integer powers are
 * exact and wrap; all else goes through double, float32 to float32 through its own function. */
typedef struct pow_state {
    td_dtype base, exponent;
} pow_state;

static treadle_status pow_prepare(td_prepare *p) {
    pow_state *s = p->state;

    s->base = td_input_dtype(p, 0);
    s->exponent = td_input_dtype(p, 1);
    if (p->opset < 7 && td_attr_has(p, "axis")) return td_unsupported(p, "attribute axis");
    return TREADLE_OK;
}

static treadle_status pow_infer(td_infer *in) {
    const pow_state *s = in->state;
    return td_infer_broadcast(in, 0, s->base, 2);
}

static int64_t pow_integer(int64_t base, int64_t exponent) {
    uint64_t result = 1, factor = (uint64_t)base;

    if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
    for (; exponent; exponent >>= 1, factor *= factor)
        if (exponent & 1) result *= factor;
    return (int64_t)result;
}

static void pow_any(int64_t n, char *const p[TD_MAP_OPERANDS], const int64_t s[TD_MAP_OPERANDS], const void *ctx) {
    const pow_state *of = ctx;
    bool integers = td_dtype_kind(of->base) != TD_KIND_FLOAT && td_dtype_kind(of->exponent) != TD_KIND_FLOAT;

    for (int64_t i = 0; i < n; i++) {
        const char *a = p[1] + i * s[1], *b = p[2] + i * s[2];
        char *out = p[0] + i * s[0];
        if (integers)
            td_store_i64(of->base, out, 0, pow_integer(td_load_i64(of->base, a, 0), td_load_i64(of->exponent, b, 0)));
        else td_store_f64(of->base, out, 0, pow(td_load_f64(of->base, a, 0), td_load_f64(of->exponent, b, 0)));
    }
}
TD_LOOP2(pow_f32, float, float, float, b == 2.0f ? a * a : powf(a, b))

static treadle_status pow_run(td_run *r) {
    const pow_state *s = r->state;
    bool f32 = s->base == TD_FLOAT && s->exponent == TD_FLOAT;

    td_map_run(r->pool, r->out[0], r->in, 2, f32 ? pow_f32 : pow_any, s);
    return TREADLE_OK;
}

const td_op_impl td_op_pow = {.state_bytes = sizeof(pow_state),
                              .prepare = pow_prepare,
                              .infer = pow_infer,
                              .run = pow_run,
                              .flags = TD_OP_ANY_STRIDE};
