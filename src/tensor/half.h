/* tensor/half.h - conversions between float32 and the small float types; round to nearest even unless said.
 * Bit patterns in, values out. NaN stays NaN, infinities as each type has them. */
#ifndef TD_TENSOR_HALF_H
#define TD_TENSOR_HALF_H

#include "tensor/dtype.h"

float td_f16_to_f32(uint16_t bits);
uint16_t td_f32_to_f16(float value);
float td_bf16_to_f32(uint16_t bits);
uint16_t td_f32_to_bf16(float value);

/* One element of any numeric type at `index` of `data` (sub-byte types packed), as double, and back.
 * Integers are converted as C does for values in range and saturate otherwise; for exact 64-bit
 * integers use the _i64 forms. */
double td_load_f64(td_dtype dtype, const void *data, int64_t index);
void td_store_f64(td_dtype dtype, void *data, int64_t index, double value);
int64_t td_load_i64(td_dtype dtype, const void *data, int64_t index);
void td_store_i64(td_dtype dtype, void *data, int64_t index, int64_t value);

/* Whole runs, dense: any numeric type to float32 and back (the fast paths use F16C where the CPU has it). */
void td_to_f32(td_dtype from, const void *data, int64_t n, float *out);
void td_from_f32(td_dtype to, const float *data, int64_t n, void *out);

#endif
