/* light/ops/combine.h - what happens where an update meets the element that is there: add, mul, max, min. */
#ifndef TD_LIGHT_OPS_COMBINE_H
#define TD_LIGHT_OPS_COMBINE_H

#include "light/op.h"

typedef enum td_combine { TD_COMBINE_ADD, TD_COMBINE_MUL, TD_COMBINE_MAX, TD_COMBINE_MIN } td_combine;

/* to[i] = f(to[i], from[i]) for n elements that lie densely. */
typedef void td_combine_fn(void *to, const void *from, int64_t n);

bool td_combine_find(td_str name, td_combine *out); /* "add", "mul", "max", "min" */

/* NULL: f has no meaning for that type. Integers wrap; max and min of a NaN are NaN; of bool, add and max are `or`. */
td_combine_fn *td_combine_pick(td_combine f, td_dtype dtype);

#endif
