/* light/ops/keys.h - elements as unsigned integers in the same order, for what sorts and compares elements of any
 * type. */
#ifndef TD_LIGHT_OPS_KEYS_H
#define TD_LIGHT_OPS_KEYS_H

#include "light/op.h"

/* Whether the elements have an order that keys can hold: all numbers and bool, whole bytes. */
bool td_keys_can(td_dtype dtype);

/* Keys of n elements of `data`, from element `first` on, `step` elements apart. -0 and 0 are equal; NaNs are equal to
 * one another and greater than all. If falling the order is reversed, but NaNs are still the greatest. */
void td_keys_load(td_dtype dtype, const void *data, int64_t first, int64_t step, int64_t n, bool falling,
                  uint64_t *keys);

#endif
