/* light/ops/grain.h - which scale belongs to which element: what QuantizeLinear and DequantizeLinear share.
 *
 * A tensor has one scale, one for each position along an axis, or one for each block along an axis. In all cases it
 * falls into runs of neighbours whose scales are one, or neighbours too. */
#ifndef TD_LIGHT_OPS_GRAIN_H
#define TD_LIGHT_OPS_GRAIN_H

#include "light/op.h"

typedef struct td_grain {
    int64_t n_runs;
    /* private */
    int64_t total, length, dim, inner, n_blocks, block;
    enum { TD_GRAIN_TENSOR, TD_GRAIN_AXIS, TD_GRAIN_BLOCK } kind;
} td_grain;

typedef struct td_grain_run {
    int64_t first, n;    /* elements */
    int64_t scale, step; /* of the first element, and from one to the next: 0 or 1 */
} td_grain_run;

/* The axis and block_size attributes. */
typedef struct td_grain_attrs {
    int64_t axis, block;
} td_grain_attrs;

treadle_status td_grain_prepare(td_prepare *p, td_grain_attrs *out);
/* Checks shapes as far as they are known: x (input 0), its scales (1) and zero points (2, may be absent). */
treadle_status td_grain_infer(td_infer *in, const td_grain_attrs *attrs);
/* For shapes that have passed td_grain_infer. */
td_grain td_grain_of(const td_grain_attrs *attrs, const td_shape *x, const td_shape *scale);
td_grain_run td_grain_at(const td_grain *g, int64_t run);

#endif
