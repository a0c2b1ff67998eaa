/* tensor/public.c - see public.h. */
#include "tensor/public.h"

_Static_assert(TREADLE_MAX_RANK == TD_MAX_RANK, "one rank limit");
_Static_assert((int)TREADLE_DTYPE_INT2 == (int)TD_INT2, "one list of element types");

void td_tensor_to_public(const td_tensor *tensor, treadle_tensor *out) {
    *out = (treadle_tensor){.dtype = (treadle_dtype)tensor->dtype, .rank = tensor->shape.rank, .data = tensor->data};
    for (int i = 0; i < tensor->shape.rank; i++) out->dims[i] = tensor->shape.dims[i];
}

treadle_status td_tensor_from_public(const treadle_tensor *view, td_tensor *out, size_t *bytes, treadle_error *err) {
    td_shape shape = {.rank = view->rank};
    int64_t count = 1;
    if (view->rank < 0 || view->rank > TD_MAX_RANK)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected a rank from 0 to %d, found %d", TD_MAX_RANK,
                       view->rank);
    for (int i = 0; i < view->rank; i++) {
        if (view->dims[i] < 0)
            return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected dimensions of at least 0, found %lld",
                           (long long)view->dims[i]);
        shape.dims[i] = view->dims[i];
    }
    if (!td_shape_count(&shape, &count) || !td_dtype_bytes((td_dtype)view->dtype, count, bytes))
        return td_fail(err, TREADLE_INVALID_ARGUMENT,
                       "expected a known element type and a size that memory can have, found type %d",
                       (int)view->dtype);
    td_tensor_view(out, (td_dtype)view->dtype, &shape, (void *)(uintptr_t)view->data);
    return TREADLE_OK;
}
