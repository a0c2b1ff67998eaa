/* tensor/tensor.h - the one value type: a typed, strided view of memory that somebody owns.
 *
 * A td_tensor is a plain struct, copied freely; it never frees. Memory belongs to a td_buffer (reference counted), an
 * arena, a file map, or the caller; `buffer` is set when holding the view should keep the memory alive.
 * Strides are in elements. Dense means row-major without gaps. A KV cache of capacity C is a view [B, H, S, D] with
 * strides of [B, H, C, D]: growing S moves nothing. Sub-byte types are always dense. */
#ifndef TD_TENSOR_TENSOR_H
#define TD_TENSOR_TENSOR_H

#include "tensor/dtype.h"
#include "tensor/shape.h"

typedef struct td_buffer td_buffer;
struct td_buffer {
    int refs;   /* atomic */
    void *data; /* 64-byte aligned */
    size_t bytes;
    void (*destroy)(td_buffer *self); /* the owner's: host memory, a map, a device */
    void *ctx;
};

td_buffer *td_buffer_new(size_t bytes);         /* host memory, not zeroed; NULL: out of memory */
td_buffer *td_buffer_retain(td_buffer *buffer); /* NULL is fine */
void td_buffer_release(td_buffer *buffer);

typedef struct td_tensor {
    td_dtype dtype;
    td_shape shape;
    int64_t strides[TD_MAX_RANK]; /* elements */
    void *data;                   /* first element; NULL: no tensor (an absent optional) */
    td_buffer *buffer;            /* kept alive by whoever retains it; may be NULL */
} td_tensor;

/* Sets shape and dense strides over memory; checks nothing. */
void td_tensor_view(td_tensor *t, td_dtype dtype, const td_shape *shape, void *data);
/* A dense tensor in memory of its own, not zeroed; the caller releases out->buffer. false: out of memory, or too
 * large. */
bool td_tensor_new(td_tensor *out, td_dtype dtype, const td_shape *shape);
/* A view of n places along an axis, from `first` on. */
td_tensor td_tensor_slice(const td_tensor *t, int axis, int64_t first, int64_t n);
void td_tensor_dense_strides(const td_shape *shape, int64_t strides[TD_MAX_RANK]);
bool td_tensor_is_dense(const td_tensor *t);
bool td_tensor_bytes(const td_tensor *t, size_t *out); /* of a dense tensor of that shape; false: overflow */
int64_t td_tensor_count(const td_tensor *t);           /* elements; shapes in tensors are always known and checked */

/* Copies element by element between equally shaped tensors of one dtype, whatever their strides. */
void td_tensor_copy(const td_tensor *to, const td_tensor *from);

/* .npy files, format 1.0 to 3.0, C or Fortran order in, C order out. Reading allocates *out->buffer (caller
 * releases). */
treadle_status td_npy_read(const char *path, td_tensor *out, treadle_error *err);
treadle_status td_npy_write(const char *path, const td_tensor *tensor, treadle_error *err);

#endif
