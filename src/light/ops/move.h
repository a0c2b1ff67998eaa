/* light/ops/move.h - moving elements of any type: what Concat, Split, Slice, Transpose, Gather ... share. */
#ifndef TD_LIGHT_OPS_MOVE_H
#define TD_LIGHT_OPS_MOVE_H

#include "light/op.h"

/* Byte address `elements` after the start of a tensor of whole-byte elements. */
static inline void *td_move_at(const td_tensor *t, int64_t elements) {
    return (char *)t->data + elements * (td_dtype_bits(t->dtype) / 8);
}

/* True for types of less than a byte, which have no strides: they are moved one by one. */
static inline bool td_move_is_packed(td_dtype dtype) { return td_dtype_bits(dtype) < 8; }

/* to[i] = from[start + sum of at[d] * strides[d]] for all positions of to's shape, for packed types (dense `to`). */
void td_move_packed(const td_tensor *to, const td_tensor *from, int64_t start, const int64_t strides[TD_MAX_RANK]);

/* One element of a packed type: to[i] = from[j]. The bits are copied whatever they mean. */
void td_move_packed_one(const td_tensor *to, int64_t i, const td_tensor *from, int64_t j);

/* Copies `from` into the part of `to` that starts at `offset` along `axis`. Nothing is done if it is there already. */
void td_move_into(const td_tensor *to, const td_tensor *from, int axis, int64_t offset);

/* One more dimension, of 1, at `axis` of a tensor of rank < TD_MAX_RANK. */
void td_move_add_axis(td_tensor *t, int axis);

#endif
