/* light/ops/cast.c - Cast and CastLike between all element types. Source: ONNX op text, its tables of special values.
 *
 * Floats go to integers by truncation and then wrap to the width, as NumPy does; floats round to nearest even on the
 * way to narrower floats. The 8- and 4-bit floats saturate unless told otherwise. Common pairs have loops of their own,
 * all others pass element by element through double, or through int64 where both sides are integers. */
#include "light/ops/loops.h"

#include "base/number.h"
#include "light/ops/move.h"
#include "light/ops/small_float.h"
#include "tensor/half.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum cast_round { ROUND_UP, ROUND_DOWN, ROUND_NEAREST } cast_round; /* to float8e8m0 */

typedef struct cast_state {
    td_dtype from, to;
    bool saturate;
    cast_round round;
    td_map_inner *loop; /* NULL: element by element */
} cast_state;

/* --- common pairs */
#define CAST_LOOP(name, R, T) TD_LOOP1(name, R, T, a)
CAST_LOOP(i64_f32, float, int64_t)
CAST_LOOP(i32_f32, float, int32_t)
CAST_LOOP(f64_f32, float, double)
CAST_LOOP(f32_f64, double, float)
CAST_LOOP(i64_i32, int32_t, int64_t)
CAST_LOOP(i32_i64, int64_t, int32_t)
CAST_LOOP(i8_f32, float, int8_t)
CAST_LOOP(u8_f32, float, uint8_t)
CAST_LOOP(i8_i32, int32_t, int8_t)
CAST_LOOP(u8_i32, int32_t, uint8_t)
CAST_LOOP(u8_i64, int64_t, uint8_t)
CAST_LOOP(u16_f32, float, uint16_t)
CAST_LOOP(i16_f32, float, int16_t)
TD_LOOP1(bool_f32, float, uint8_t, a != 0)
TD_LOOP1(bool_i64, int64_t, uint8_t, a != 0)
TD_LOOP1(bool_i32, int32_t, uint8_t, a != 0)
TD_LOOP1(i64_bool, bool, int64_t, a != 0)
TD_LOOP1(i32_bool, bool, int32_t, a != 0)
TD_LOOP1(f32_bool, bool, float, a != 0)

static const struct {
    td_dtype from, to;
    td_map_inner *fn;
} common[] = {
    {TD_INT64, TD_FLOAT, i64_f32},  {TD_INT32, TD_FLOAT, i32_f32}, {TD_DOUBLE, TD_FLOAT, f64_f32},
    {TD_FLOAT, TD_DOUBLE, f32_f64}, {TD_INT64, TD_INT32, i64_i32}, {TD_INT32, TD_INT64, i32_i64},
    {TD_INT8, TD_FLOAT, i8_f32},    {TD_UINT8, TD_FLOAT, u8_f32},  {TD_INT8, TD_INT32, i8_i32},
    {TD_UINT8, TD_INT32, u8_i32},   {TD_UINT8, TD_INT64, u8_i64},  {TD_UINT16, TD_FLOAT, u16_f32},
    {TD_INT16, TD_FLOAT, i16_f32},  {TD_BOOL, TD_FLOAT, bool_f32}, {TD_BOOL, TD_INT64, bool_i64},
    {TD_BOOL, TD_INT32, bool_i32},  {TD_INT64, TD_BOOL, i64_bool}, {TD_INT32, TD_BOOL, i32_bool},
    {TD_FLOAT, TD_BOOL, f32_bool},
};

/* The power of two at or around |value|, as an exponent with bias 127; 0xff is NaN. */
static uint8_t to_e8m0(double value, const cast_state *s) {
    int exponent;

    if (isnan(value)) return 0xff;
    value = fabs(value);
    if (value < 0x1p-127) return 0;
    if (isinf(value)) return s->saturate ? 0xfe : 0xff;
    double mantissa = frexp(value, &exponent); /* [0.5, 1) */
    int code = exponent - 1 + 127;
    if (s->round == ROUND_UP && mantissa > 0.5) code++;
    if (s->round == ROUND_NEAREST && mantissa >= 0.75) code++;
    return (uint8_t)(code <= 0xfe ? code : s->saturate ? 0xfe : 0xff);
}

static void store_double(const cast_state *s, td_tensor *out, int64_t i, double value) {
    td_kind kind = td_dtype_kind(s->to);

    if (kind == TD_KIND_INT || (kind == TD_KIND_UINT && s->to != TD_UINT64)) {
        int64_t whole = isnan(value) ? 0 : value >= 0x1p63 ? INT64_MAX : value < -0x1p63 ? INT64_MIN : (int64_t)value;
        td_store_i64(s->to, out->data, i, whole);
    } else if (s->to == TD_UINT64) {
        ((uint64_t *)out->data)[i] = value >= 0x1p63                   ? (value < 0x1p64 ? (uint64_t)value : UINT64_MAX)
                                     : isnan(value) || value < -0x1p63 ? 0
                                                                       : (uint64_t)(int64_t)value;
    } else if (s->to == TD_FLOAT8E8M0) {
        ((uint8_t *)out->data)[i] = to_e8m0(value, s);
    } else if (s->to == TD_FLOAT4E2M1 && isnan(value)) {
        td_store_f64(s->to, out->data, i, -0.0); /* it has no NaN */
    } else {
        td_small_float_store(s->to, out->data, i, value, s->saturate);
    }
}

/* --- strings */
enum { NUMBER_BYTES = 40 };

static td_str format_number(const cast_state *s, const td_tensor *x, int64_t i, char *room) {
    td_kind kind = td_dtype_kind(s->from);
    int n;

    if (kind == TD_KIND_FLOAT) {
        double value = td_load_f64(s->from, x->data, i);
        if (isnan(value)) n = snprintf(room, NUMBER_BYTES, "NaN");
        else if (isinf(value)) n = snprintf(room, NUMBER_BYTES, value > 0 ? "INF" : "-INF");
        else n = snprintf(room, NUMBER_BYTES, "%.*g", s->from == TD_DOUBLE ? 17 : 8, value);
    } else if (s->from == TD_UINT64) {
        n = snprintf(room, NUMBER_BYTES, "%llu", (unsigned long long)((const uint64_t *)x->data)[i]);
    } else {
        n = snprintf(room, NUMBER_BYTES, "%lld", (long long)td_load_i64(s->from, x->data, i));
    }
    return (td_str){room, (size_t)n};
}

static treadle_status to_strings(td_run *r, const cast_state *s) {
    int64_t count = td_tensor_count(r->in[0]);
    size_t bytes;

    if (TD_MUL_OVERFLOWS((size_t)count, (size_t)NUMBER_BYTES, &bytes))
        return td_run_fail(r, "%lld strings", (long long)count);
    char *room = td_run_keep(r, bytes);
    if (!room) return TREADLE_OUT_OF_MEMORY;
    for (int64_t i = 0; i < count; i++)
        ((td_str *)r->out[0]->data)[i] = format_number(s, r->in[0], i, room + i * NUMBER_BYTES);
    return TREADLE_OK;
}

/* Letters of the special values count whatever their case, with or without a sign. */
static bool parse_special(td_str text, double *out) {
    bool negative = text.n > 0 && text.p[0] == '-';
    char word[16];
    size_t n = 0;

    for (size_t i = text.n > 0 && (text.p[0] == '-' || text.p[0] == '+'); i < text.n; i++) {
        if (n + 1 >= sizeof word) return false;
        char c = text.p[i];
        word[n++] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    word[n] = 0;
    if (strcmp(word, "nan") == 0) *out = (double)NAN;
    else if (strcmp(word, "inf") == 0 || strcmp(word, "infinity") == 0)
        *out = negative ? (double)-INFINITY : (double)INFINITY;
    else return false;
    return true;
}

static bool parse_integer(td_str text, int64_t *out) {
    bool negative = text.n > 0 && text.p[0] == '-';
    size_t i = text.n > 0 && (text.p[0] == '-' || text.p[0] == '+');
    uint64_t value = 0;

    if (i == text.n) return false;
    for (; i < text.n; i++) {
        if (text.p[i] < '0' || text.p[i] > '9') return false;
        if (TD_MUL_OVERFLOWS(value, (uint64_t)10, &value)) return false;
        if (TD_ADD_OVERFLOWS(value, (uint64_t)(text.p[i] - '0'), &value)) return false;
    }
    *out = (int64_t)(negative ? 0 - value : value);
    return true;
}

static treadle_status from_strings(td_run *r, const cast_state *s) {
    const td_str *texts = r->in[0]->data;
    int64_t count = td_tensor_count(r->in[0]), whole;
    double value;

    for (int64_t i = 0; i < count; i++) {
        if (td_dtype_kind(s->to) != TD_KIND_FLOAT && parse_integer(texts[i], &whole))
            td_store_i64(s->to, r->out[0]->data, i, whole);
        else if (parse_special(texts[i], &value) || td_parse_double(texts[i], &value))
            store_double(s, r->out[0], i, value);
        else return td_run_fail(r, "\"%.*s\" is no number", TD_STR_ARGS(texts[i]));
    }
    return TREADLE_OK;
}

/* --- the ops */
static treadle_status cast_prepare_to(td_prepare *p, td_dtype to) {
    cast_state *s = p->state;

    s->from = td_input_dtype(p, 0);
    s->to = to;
    if (td_dtype_kind(s->to) == TD_KIND_NONE) return td_bad_node(p, "unknown element type %d", (int)to);
    if (td_dtype_kind(s->to) == TD_KIND_COMPLEX || td_dtype_kind(s->from) == TD_KIND_COMPLEX)
        return td_unsupported(p, "%s to %s", td_dtype_name(s->from), td_dtype_name(s->to));
    s->saturate = p->opset < 19 || td_attr_int(p, "saturate") != 0;
    td_str round = p->opset < 24 ? TD_STR("up") : td_attr_string(p, "round_mode");
    if (td_str_is(round, "up")) s->round = ROUND_UP;
    else if (td_str_is(round, "down")) s->round = ROUND_DOWN;
    else if (td_str_is(round, "nearest")) s->round = ROUND_NEAREST;
    else return td_bad_node(p, "expected round_mode to be up, down or nearest, found \"%.*s\"", TD_STR_ARGS(round));
    for (size_t i = 0; i < TD_COUNT(common); i++)
        if (common[i].from == s->from && common[i].to == s->to) s->loop = common[i].fn;
    return TREADLE_OK;
}

static treadle_status cast_prepare(td_prepare *p) {
    static const struct {
        const char *text;
        td_dtype dtype;
    } words[] = {{"FLOAT", TD_FLOAT}, {"DOUBLE", TD_DOUBLE}, {"FLOAT16", TD_FLOAT16}, {"BOOL", TD_BOOL},
                 {"INT8", TD_INT8},   {"INT16", TD_INT16},   {"INT32", TD_INT32},     {"INT64", TD_INT64},
                 {"UINT8", TD_UINT8}, {"UINT16", TD_UINT16}, {"UINT32", TD_UINT32},   {"UINT64", TD_UINT64}};

    if (p->opset >= 6) return cast_prepare_to(p, (td_dtype)td_attr_int(p, "to"));
    td_str to = td_attr_string(p, "to"); /* Cast-1 names the type */
    for (size_t i = 0; i < TD_COUNT(words); i++)
        if (td_str_is(to, words[i].text)) return cast_prepare_to(p, words[i].dtype);
    return td_bad_node(p, "unknown element type \"%.*s\"", TD_STR_ARGS(to));
}

static treadle_status cast_like_prepare(td_prepare *p) { return cast_prepare_to(p, td_input_dtype(p, 1)); }

static treadle_status cast_infer(td_infer *in) {
    const cast_state *s = in->state;
    return td_infer_set(in, 0, s->to, &in->inputs[0]->tensor.shape);
}

/* Runs of float32, float16, bfloat16 by the conversions of tensor/half.h. */
static bool cast_dense_floats(const cast_state *s, const td_tensor *x, td_tensor *out) {
    bool half_in = s->from == TD_FLOAT16 || s->from == TD_BFLOAT16,
         half_out = s->to == TD_FLOAT16 || s->to == TD_BFLOAT16;

    if (half_in && s->to == TD_FLOAT) td_to_f32(s->from, x->data, td_tensor_count(x), out->data);
    else if (s->from == TD_FLOAT && half_out) td_from_f32(s->to, x->data, td_tensor_count(x), out->data);
    else return false;
    return true;
}

static treadle_status cast_run(td_run *r) {
    const cast_state *s = r->state;
    const td_tensor *x = r->in[0];
    int64_t count = td_tensor_count(x);
    bool integers = td_dtype_kind(s->from) != TD_KIND_FLOAT && td_dtype_kind(s->to) != TD_KIND_FLOAT;

    if (s->from == s->to) {
        td_tensor_copy(r->out[0], x);
    } else if (s->to == TD_STRING) {
        return to_strings(r, s);
    } else if (s->from == TD_STRING) {
        return from_strings(r, s);
    } else if (s->loop) {
        td_map_run(r->pool, r->out[0], r->in, 1, s->loop, NULL);
    } else if (!cast_dense_floats(s, x, r->out[0])) {
        for (int64_t i = 0; i < count; i++) {
            if (integers) td_store_i64(s->to, r->out[0]->data, i, td_load_i64(s->from, x->data, i));
            else store_double(s, r->out[0], i, td_load_f64(s->from, x->data, i));
        }
    }
    return TREADLE_OK;
}

const td_op_impl td_op_cast = {
    .state_bytes = sizeof(cast_state), .prepare = cast_prepare, .infer = cast_infer, .run = cast_run};
const td_op_impl td_op_cast_like = {
    .state_bytes = sizeof(cast_state), .prepare = cast_like_prepare, .infer = cast_infer, .run = cast_run};
