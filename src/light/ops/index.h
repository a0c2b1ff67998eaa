/* light/ops/index.h - index tensors of int32 or int64, as the gathers and scatters read them. */
#ifndef TD_LIGHT_OPS_INDEX_H
#define TD_LIGHT_OPS_INDEX_H

#include "light/op.h"

/* Entry i of a dense index tensor. */
static inline int64_t td_index_at(const td_tensor *t, int64_t i) {
    return t->dtype == TD_INT64 ? ((const int64_t *)t->data)[i] : ((const int32_t *)t->data)[i];
}

/* A position along a dimension of `dim`, negative ones counted from its end. false: there is no such position. */
static inline bool td_index_wrap(int64_t given, int64_t dim, int64_t *out) {
    *out = given < 0 ? given + dim : given;
    return given >= -dim && given < dim;
}

static inline treadle_status td_index_fail(td_run *r, int64_t given, int axis, int64_t dim) {
    return td_run_fail(r, "index %lld is out of range for dimension %d of %lld", (long long)given, axis,
                       (long long)dim);
}

#endif
