/* light/ops/keys.c - see keys.h. An IEEE float with its sign bit turned over, or all bits if it is negative,
 * rises as an unsigned number. */
#include "light/ops/keys.h"

#include "tensor/half.h"

#include <math.h>
#include <string.h>

static uint64_t of_double(double value) {
    uint64_t bits;
    value += 0.0; /* -0 becomes 0 */
    memcpy(&bits, &value, sizeof bits);
    return bits >> 63 ? ~bits : bits | (uint64_t)1 << 63;
}

static uint64_t of_float(float value) {
    uint32_t bits;
    value += 0.0f;
    memcpy(&bits, &value, sizeof bits);
    return bits >> 31 ? (uint32_t)~bits : bits | (uint32_t)1 << 31;
}

static uint64_t of_int(int64_t value) { return (uint64_t)value ^ (uint64_t)1 << 63; }
static uint64_t of_uint(uint64_t value) { return value; }

#define LOAD(name, T, C, read, key, is_nan)                                                                            \
    static void name(const void *data, int64_t step, int64_t n, uint64_t turn, uint64_t *keys) {                       \
        const T *x = data;                                                                                             \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const C value = read(x[i * step]);                                                                         \
            keys[i] = is_nan ? UINT64_MAX : key(value) ^ turn;                                                         \
        }                                                                                                              \
    }
LOAD(load_f32, float, float, , of_float, isnan(value))
LOAD(load_f64, double, double, , of_double, isnan(value))
LOAD(load_f16, uint16_t, float, td_f16_to_f32, of_float, isnan(value))
LOAD(load_bf16, uint16_t, float, td_bf16_to_f32, of_float, isnan(value))
LOAD(load_i8, int8_t, int8_t, , of_int, false)
LOAD(load_i16, int16_t, int16_t, , of_int, false)
LOAD(load_i32, int32_t, int32_t, , of_int, false)
LOAD(load_i64, int64_t, int64_t, , of_int, false)
LOAD(load_u8, uint8_t, uint8_t, , of_uint, false)
LOAD(load_u16, uint16_t, uint16_t, , of_uint, false)
LOAD(load_u32, uint32_t, uint32_t, , of_uint, false)
LOAD(load_u64, uint64_t, uint64_t, , of_uint, false)

static const struct {
    td_dtype dtype;
    void (*load)(const void *data, int64_t step, int64_t n, uint64_t turn, uint64_t *keys);
} rows[] = {
    {TD_FLOAT, load_f32}, {TD_DOUBLE, load_f64}, {TD_FLOAT16, load_f16}, {TD_BFLOAT16, load_bf16},
    {TD_INT8, load_i8},   {TD_INT16, load_i16},  {TD_INT32, load_i32},   {TD_INT64, load_i64},
    {TD_UINT8, load_u8},  {TD_UINT16, load_u16}, {TD_UINT32, load_u32},  {TD_UINT64, load_u64},
    {TD_BOOL, load_u8},
};

bool td_keys_can(td_dtype dtype) {
    for (size_t i = 0; i < TD_COUNT(rows); i++)
        if (rows[i].dtype == dtype) return true;
    return false;
}

void td_keys_load(td_dtype dtype, const void *data, int64_t first, int64_t step, int64_t n, bool falling,
                  uint64_t *keys) {
    const char *start = (const char *)data + first * (td_dtype_bits(dtype) / 8);
    for (size_t i = 0; i < TD_COUNT(rows); i++)
        if (rows[i].dtype == dtype) rows[i].load(start, step, n, falling ? UINT64_MAX : 0, keys);
}
