/* light/ops/dynamic_quantize.h - uint8 codes whose scale and zero point come from the values themselves. */
#ifndef TD_LIGHT_OPS_DYNAMIC_QUANTIZE_H
#define TD_LIGHT_OPS_DYNAMIC_QUANTIZE_H

#include "kernels/gemm_i8.h"
#include "light/op.h"

/* Scale and zero point for values from `least` to `largest`, 0 being among them. */
void td_dynamic_scale(float least, float largest, float *scale, uint8_t *zero);
/* Scale and zero point of n values, as DynamicQuantizeLinear has them. */
treadle_status td_dynamic_range(td_run *r, const td_gemm_i8_kernels *kernels, const float *x, int64_t n, float *scale,
                                uint8_t *zero);
/* The codes, on the pool. */
void td_dynamic_codes(td_run *r, const td_gemm_i8_kernels *kernels, const float *x, int64_t n, float scale,
                      uint8_t zero, uint8_t *out);

#endif
