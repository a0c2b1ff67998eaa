/* tensor/tensor.c - buffers, views and strided copies. */
#include "tensor/tensor.h"

#include "base/alloc.h"

static void destroy_host(td_buffer *self) {
    td_free_aligned(self->data);
    td_free(self);
}

td_buffer *td_buffer_new(size_t bytes) {
    td_buffer *buffer = td_alloc_zero(1, sizeof *buffer);
    if (!buffer) return NULL;
    buffer->data = td_alloc_aligned(bytes);
    if (!buffer->data) {
        td_free(buffer);
        return NULL;
    }
    buffer->refs = 1;
    buffer->bytes = bytes;
    buffer->destroy = destroy_host;
    return buffer;
}

td_buffer *td_buffer_retain(td_buffer *buffer) {
    if (buffer) __atomic_add_fetch(&buffer->refs, 1, __ATOMIC_RELAXED);
    return buffer;
}

void td_buffer_release(td_buffer *buffer) {
    if (buffer && __atomic_sub_fetch(&buffer->refs, 1, __ATOMIC_ACQ_REL) == 0) buffer->destroy(buffer);
}

void td_tensor_dense_strides(const td_shape *shape, int64_t strides[TD_MAX_RANK]) {
    int64_t step = 1;
    for (int i = shape->rank - 1; i >= 0; i--) {
        strides[i] = step;
        step *= TD_MAX(shape->dims[i], 1); /* an empty tensor's strides do not matter, but must not overflow or be 0 */
    }
}

void td_tensor_view(td_tensor *t, td_dtype dtype, const td_shape *shape, void *data) {
    *t = (td_tensor){.dtype = dtype, .shape = *shape, .data = data};
    td_tensor_dense_strides(shape, t->strides);
}

bool td_tensor_new(td_tensor *out, td_dtype dtype, const td_shape *shape) {
    int64_t count;
    size_t bytes;
    if (!td_shape_count(shape, &count) || !td_dtype_bytes(dtype, count, &bytes)) return false;
    td_buffer *buffer = td_buffer_new(bytes);
    if (!buffer) return false;
    td_tensor_view(out, dtype, shape, buffer->data);
    out->buffer = buffer;
    return true;
}

td_tensor td_tensor_slice(const td_tensor *t, int axis, int64_t first, int64_t n) {
    td_tensor out = *t;
    out.shape.dims[axis] = n;
    out.data = (char *)t->data + (size_t)(first * t->strides[axis]) * (size_t)td_dtype_bits(t->dtype) / 8;
    return out;
}

int64_t td_tensor_count(const td_tensor *t) {
    int64_t count = 1;
    for (int i = 0; i < t->shape.rank; i++) count *= t->shape.dims[i];
    return count;
}

bool td_tensor_is_dense(const td_tensor *t) {
    int64_t step = 1;
    for (int i = t->shape.rank - 1; i >= 0; i--) {
        if (t->shape.dims[i] == 0) return true;
        if (t->shape.dims[i] != 1 && t->strides[i] != step) return false;
        step *= t->shape.dims[i];
    }
    return true;
}

bool td_tensor_bytes(const td_tensor *t, size_t *out) {
    int64_t count;
    return td_shape_count(&t->shape, &count) && td_dtype_bytes(t->dtype, count, out);
}

/* Number of innermost dimensions that are dense in both tensors, and their element count. */
static int dense_tail(const td_tensor *a, const td_tensor *b, int64_t *n) {
    int i = a->shape.rank;
    *n = 1;
    while (i > 0) {
        int64_t dim = a->shape.dims[i - 1];
        if (dim != 1 && (a->strides[i - 1] != *n || b->strides[i - 1] != *n)) break;
        *n *= dim;
        i--;
    }
    return i;
}

void td_tensor_copy(const td_tensor *to, const td_tensor *from) {
    int bits = td_dtype_bits(to->dtype);
    int64_t count = td_tensor_count(to), run;
    size_t bytes;
    if (count == 0) return;
    if (bits < 8) { /* sub-byte types are dense */
        if (td_tensor_bytes(to, &bytes)) memcpy(to->data, from->data, bytes);
        return;
    }
    size_t width = (size_t)bits / 8;
    int outer = dense_tail(to, from, &run);
    int64_t index[TD_MAX_RANK] = {0};
    char *dst = to->data;
    const char *src = from->data;
    for (;;) {
        memcpy(dst, src, (size_t)run * width);
        int d = outer - 1;
        for (; d >= 0; d--) {
            dst += to->strides[d] * (int64_t)width;
            src += from->strides[d] * (int64_t)width;
            if (++index[d] < to->shape.dims[d]) break;
            dst -= to->strides[d] * (int64_t)width * to->shape.dims[d];
            src -= from->strides[d] * (int64_t)width * to->shape.dims[d];
            index[d] = 0;
        }
        if (d < 0) return;
    }
}
