/* tensor/shape.h - shapes. A dimension is >= 0, or TD_DIM_UNKNOWN, or (only in load-time inference) a symbol. */
#ifndef TD_TENSOR_SHAPE_H
#define TD_TENSOR_SHAPE_H

#include "base/error.h"
#include "base/str.h"

enum { TD_MAX_RANK = 8 };

/* Negative dimensions occur only before a run: -1 is unknown, -2 - id is symbol `id` of the session's symbol table. */
#define TD_DIM_UNKNOWN (-1)
#define TD_DIM_SYMBOL(id) (-2 - (int64_t)(id))
#define TD_DIM_IS_SYMBOL(d) ((d) <= -2)
#define TD_DIM_SYMBOL_ID(d) ((uint32_t)(-2 - (d)))

typedef struct td_shape {
    int rank; /* -1: even the rank is unknown (load-time inference only) */
    int64_t dims[TD_MAX_RANK];
} td_shape;

static inline bool td_shape_known(const td_shape *s) {
    if (s->rank < 0) return false;
    for (int i = 0; i < s->rank; i++)
        if (s->dims[i] < 0) return false;
    return true;
}
bool td_shape_equal(const td_shape *a, const td_shape *b);
/* Number of elements; a scalar has 1. false: a dimension is unknown, or the dimensions other than 0
 * multiply to more than TD_MAX_COUNT. So no product of a tensor's dimensions, strides and element sizes
 * overflows, not even an empty one's. */
#define TD_MAX_COUNT (INT64_MAX / 128)
bool td_shape_count(const td_shape *s, int64_t *out);
/* NumPy broadcasting; unknown dimensions give unknown, a symbol against 1 gives the symbol. false: shapes do not
 * fit. */
bool td_shape_broadcast(const td_shape *a, const td_shape *b, td_shape *out);
/* "[2, ?, 64]" into out, for messages. Returns out. */
const char *td_shape_text(const td_shape *s, char out[128]);

#endif
