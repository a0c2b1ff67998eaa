/* light/ops/move.c - see move.h. */
#include "light/ops/move.h"

#include "tensor/half.h"

void td_move_packed_one(const td_tensor *to, int64_t i, const td_tensor *from, int64_t j) {
    td_dtype as = td_dtype_bits(to->dtype) == 2 ? TD_UINT2 : TD_UINT4;
    td_store_i64(as, to->data, i, td_load_i64(as, from->data, j));
}

void td_move_packed(const td_tensor *to, const td_tensor *from, int64_t start, const int64_t strides[TD_MAX_RANK]) {
    int64_t at[TD_MAX_RANK] = {0};
    int64_t count = td_tensor_count(to), source = start;

    for (int64_t i = 0; i < count; i++) {
        td_move_packed_one(to, i, from, source);
        for (int d = to->shape.rank - 1; d >= 0; d--) {
            source += strides[d];
            if (++at[d] < to->shape.dims[d]) break;
            source -= to->shape.dims[d] * strides[d];
            at[d] = 0;
        }
    }
}

void td_move_into(const td_tensor *to, const td_tensor *from, int axis, int64_t offset) {
    td_tensor part = *to;

    if (td_move_is_packed(to->dtype)) {
        int64_t inner = 1, outer = 1;
        for (int d = axis + 1; d < to->shape.rank; d++) inner *= to->shape.dims[d];
        for (int d = 0; d < axis; d++) outer *= to->shape.dims[d];
        int64_t run = from->shape.dims[axis] * inner, step = to->shape.dims[axis] * inner;
        for (int64_t o = 0; o < outer; o++)
            for (int64_t i = 0; i < run; i++) td_move_packed_one(to, o * step + offset * inner + i, from, o * run + i);
        return;
    }
    part.shape = from->shape;
    part.data = td_move_at(to, offset * to->strides[axis]);
    if (part.data == from->data) {
        bool same = true;
        for (int d = 0; d < from->shape.rank; d++)
            same = same && (from->shape.dims[d] <= 1 || part.strides[d] == from->strides[d]);
        if (same) return; /* a cache that grows in place */
    }
    td_tensor_copy(&part, from);
}

void td_move_add_axis(td_tensor *t, int axis) {
    t->shape.rank++;
    for (int d = t->shape.rank - 1; d > axis; d--) {
        t->shape.dims[d] = t->shape.dims[d - 1];
        t->strides[d] = t->strides[d - 1];
    }
    t->shape.dims[axis] = 1;
    t->strides[axis] = axis + 1 < t->shape.rank ? t->shape.dims[axis + 1] * t->strides[axis + 1] : 1;
}
