/* tensor/public.h - tensors as the public headers have them (treadle/tensor.h): views of dense memory. */
#ifndef TD_TENSOR_PUBLIC_H
#define TD_TENSOR_PUBLIC_H

#include "base/error.h"
#include "tensor/tensor.h"
#include "treadle/tensor.h"

/* The tensor must be dense. The view is valid as long as the tensor's memory. */
void td_tensor_to_public(const td_tensor *tensor, treadle_tensor *out);
/* A view of the same memory; *bytes: its size. TREADLE_INVALID_ARGUMENT: a rank, dimension, size or element type that
 * cannot be. Data that is NULL is left to the caller. */
treadle_status td_tensor_from_public(const treadle_tensor *view, td_tensor *out, size_t *bytes, treadle_error *err);

#endif
