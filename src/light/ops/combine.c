/* light/ops/combine.c - see combine.h. The halves are combined in float32 and rounded. */
#include "light/ops/combine.h"

#include "tensor/half.h"

#include <math.h>

bool td_combine_find(td_str name, td_combine *out) {
    static const char *const names[] = {"add", "mul", "max", "min"};
    for (size_t i = 0; i < TD_COUNT(names); i++) {
        if (!td_str_is(name, names[i])) continue;
        *out = (td_combine)i;
        return true;
    }
    return false;
}

#define LOOP(name, T, expr)                                                                                            \
    static void name(void *to, const void *from, int64_t n) {                                                          \
        T *y = to;                                                                                                     \
        const T *x = from;                                                                                             \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const T a = y[i], b = x[i];                                                                                \
            y[i] = (T)(expr);                                                                                          \
        }                                                                                                              \
    }
#define HALF_LOOP(name, read, write, expr)                                                                             \
    static void name(void *to, const void *from, int64_t n) {                                                          \
        uint16_t *y = to;                                                                                              \
        const uint16_t *x = from;                                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const float a = read(y[i]), b = read(x[i]);                                                                \
            y[i] = write(expr);                                                                                        \
        }                                                                                                              \
    }
#define MAX_OF_FLOATS (a > b || isnan(a) ? a : b)
#define MIN_OF_FLOATS (a < b || isnan(a) ? a : b)

/* U: unsigned of at least 32 bits, in which sums and products wrap. */
#define INTS(sfx, T, U)                                                                                                \
    LOOP(add_##sfx, T, (U)a + (U)b)                                                                                    \
    LOOP(mul_##sfx, T, (U)a *(U)b)                                                                                     \
    LOOP(max_##sfx, T, a > b ? a : b)                                                                                  \
    LOOP(min_##sfx, T, a < b ? a : b)
#define FLOATS(sfx, T)                                                                                                 \
    LOOP(add_##sfx, T, a + b)                                                                                          \
    LOOP(mul_##sfx, T, a *b)                                                                                           \
    LOOP(max_##sfx, T, MAX_OF_FLOATS)                                                                                  \
    LOOP(min_##sfx, T, MIN_OF_FLOATS)
#define HALVES(sfx, read, write)                                                                                       \
    HALF_LOOP(add_##sfx, read, write, a + b)                                                                           \
    HALF_LOOP(mul_##sfx, read, write, a *b)                                                                            \
    HALF_LOOP(max_##sfx, read, write, MAX_OF_FLOATS)                                                                   \
    HALF_LOOP(min_##sfx, read, write, MIN_OF_FLOATS)

INTS(i8, int8_t, uint32_t)
INTS(i16, int16_t, uint32_t)
INTS(i32, int32_t, uint32_t)
INTS(i64, int64_t, uint64_t)
INTS(u8, uint8_t, uint32_t)
INTS(u16, uint16_t, uint32_t)
INTS(u32, uint32_t, uint32_t)
INTS(u64, uint64_t, uint64_t)
FLOATS(f32, float)
FLOATS(f64, double)
HALVES(f16, td_f16_to_f32, td_f32_to_f16)
HALVES(bf16, td_bf16_to_f32, td_f32_to_bf16)
LOOP(or_bool, uint8_t, a || b)
LOOP(and_bool, uint8_t, a &&b)

#define COMPLEX(sfx, T)                                                                                                \
    static void add_##sfx(void *to, const void *from, int64_t n) { add_##T(to, from, 2 * n); }                         \
    static void mul_##sfx(void *to, const void *from, int64_t n) {                                                     \
        sfx##_part *y = to;                                                                                            \
        const sfx##_part *x = from;                                                                                    \
        for (int64_t i = 0; i < 2 * n; i += 2) {                                                                       \
            const sfx##_part re = y[i] * x[i] - y[i + 1] * x[i + 1];                                                   \
            y[i + 1] = y[i] * x[i + 1] + y[i + 1] * x[i];                                                              \
            y[i] = re;                                                                                                 \
        }                                                                                                              \
    }
typedef float c64_part;
typedef double c128_part;
COMPLEX(c64, f32)
COMPLEX(c128, f64)

#define ROW(dtype, sfx)                                                                                                \
    {                                                                                                                  \
        dtype, { add_##sfx, mul_##sfx, max_##sfx, min_##sfx }                                                          \
    }
static const struct {
    td_dtype dtype;
    td_combine_fn *fn[4];
} rows[] = {
    ROW(TD_FLOAT, f32),
    ROW(TD_DOUBLE, f64),
    ROW(TD_FLOAT16, f16),
    ROW(TD_BFLOAT16, bf16),
    ROW(TD_INT8, i8),
    ROW(TD_INT16, i16),
    ROW(TD_INT32, i32),
    ROW(TD_INT64, i64),
    ROW(TD_UINT8, u8),
    ROW(TD_UINT16, u16),
    ROW(TD_UINT32, u32),
    ROW(TD_UINT64, u64),
    {TD_BOOL, {or_bool, and_bool, or_bool, and_bool}},
    {TD_COMPLEX64, {add_c64, mul_c64, NULL, NULL}},
    {TD_COMPLEX128, {add_c128, mul_c128, NULL, NULL}},
};

td_combine_fn *td_combine_pick(td_combine f, td_dtype dtype) {
    for (size_t i = 0; i < TD_COUNT(rows); i++)
        if (rows[i].dtype == dtype) return rows[i].fn[f];
    return NULL;
}
