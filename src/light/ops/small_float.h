/* light/ops/small_float.h - storing numbers as floats of 8 bits that saturate or not, as Cast and QuantizeLinear do. */
#ifndef TD_LIGHT_OPS_SMALL_FLOAT_H
#define TD_LIGHT_OPS_SMALL_FLOAT_H

#include "tensor/dtype.h"

/* out[i] = value. Of the types whose range is small: beyond it the largest value if saturate, else infinity or NaN. */
void td_small_float_store(td_dtype to, void *out, int64_t i, double value, bool saturate);

#endif
