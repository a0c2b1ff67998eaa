/* light/constant.c - TensorProto to constant tensor: a view of the file where alignment allows, else a copy. */
#include "light/ir.h"
#include "tensor/half.h"

#include <string.h>

static size_t element_align(td_dtype dtype) {
    if (dtype == TD_STRING) return _Alignof(td_str);
    int bits = td_dtype_bits(dtype);
    if (bits <= 8) return 1;
    return dtype == TD_COMPLEX64 || dtype == TD_COMPLEX128 ? (size_t)bits / 16 : (size_t)bits / 8;
}

/* Dense bytes of a known size as a tensor in the arena's care. */
static treadle_status as_tensor(td_arena *arena, td_dtype dtype, int rank, const int64_t *dims, const void *data,
                                size_t bytes, td_tensor *out, treadle_error *err) {
    td_shape shape = {.rank = rank};
    for (int i = 0; i < rank; i++) shape.dims[i] = dims[i];
    size_t align = element_align(dtype);
    if (bytes == 0 || ((uintptr_t)data & (align - 1))) {
        void *copy = td_arena_alloc(arena, bytes, 64); /* of no bytes: only so that the pointer is not NULL */
        if (!copy) return td_fail_memory(err, "an aligned copy of a constant", bytes);
        if (bytes) memcpy(copy, data, bytes);
        data = copy;
    }
    td_tensor_view(out, dtype, &shape, (void *)(uintptr_t)data); /* constants are never written through */
    out->buffer = NULL;
    return TREADLE_OK;
}

treadle_status td_constant_from_onnx(td_arena *arena, const td_onnx_tensor *from, td_tensor *out, treadle_error *err) {
    if (from->rank > TD_MAX_RANK)
        return td_fail(err, TREADLE_UNSUPPORTED, "tensor \"%.*s\" has rank %d; at most %d are supported",
                       TD_STR_ARGS(from->name), from->rank, (int)TD_MAX_RANK);
    if (!from->data && from->count > 0)
        return td_fail(err, TREADLE_FORMAT, "tensor \"%.*s\" has no data", TD_STR_ARGS(from->name));
    size_t bytes;
    if (!td_dtype_bytes(from->dtype, from->count, &bytes) || (from->dtype != TD_STRING && bytes > from->data_bytes))
        return td_fail(err, TREADLE_FORMAT, "tensor \"%.*s\" (%s): %zu bytes of data do not hold its shape",
                       TD_STR_ARGS(from->name), td_dtype_name(from->dtype), from->data_bytes);
    return as_tensor(arena, from->dtype, from->rank, from->dims, from->data, bytes, out, err);
}

/* Sparse: values at linear or coordinate indices over zeros. */
treadle_status td_constant_from_sparse(td_arena *arena, const td_onnx_sparse_tensor *s, td_tensor *out,
                                       treadle_error *err) {
    td_shape shape = {.rank = s->rank};
    int64_t count;
    size_t bytes;
    if (s->rank > TD_MAX_RANK) return td_fail(err, TREADLE_UNSUPPORTED, "a sparse tensor has rank %d", s->rank);
    for (int i = 0; i < s->rank; i++) shape.dims[i] = s->dims[i];
    td_dtype dtype = s->values.dtype;
    int bits = td_dtype_bits(dtype);
    if (dtype == TD_STRING || bits < 8)
        return td_fail(err, TREADLE_UNSUPPORTED, "a sparse tensor of %s", td_dtype_name(dtype));
    if (!td_shape_count(&shape, &count) || !td_dtype_bytes(dtype, count, &bytes))
        return td_fail(err, TREADLE_FORMAT, "a sparse tensor has a malformed shape");
    int64_t nnz = s->values.count;
    bool coordinates = s->indices.rank == 2;
    if (s->indices.dtype != TD_INT64 || s->indices.count != (coordinates ? nnz * s->rank : nnz) ||
        (nnz && (!s->values.data || !s->indices.data)))
        return td_fail(err, TREADLE_FORMAT, "a sparse tensor's indices do not fit its values");
    size_t item = (size_t)bits / 8;
    char *data = td_arena_alloc(arena, bytes, 64);
    if (!data) return td_fail_memory(err, "a sparse constant", bytes);
    for (int64_t i = 0; i < nnz; i++) {
        int64_t at = 0;
        if (coordinates) {
            for (int d = 0; d < s->rank; d++) {
                int64_t x = td_load_i64(TD_INT64, s->indices.data, i * s->rank + d);
                if (x < 0 || x >= s->dims[d])
                    return td_fail(err, TREADLE_FORMAT, "a sparse tensor's index %lld is out of range", (long long)x);
                at = at * s->dims[d] + x;
            }
        } else {
            at = td_load_i64(TD_INT64, s->indices.data, i);
        }
        if (at < 0 || at >= count)
            return td_fail(err, TREADLE_FORMAT, "a sparse tensor's index %lld is out of range", (long long)at);
        memcpy(data + (size_t)at * item, (const char *)s->values.data + (size_t)i * item, item);
    }
    td_tensor_view(out, dtype, &shape, data);
    return TREADLE_OK;
}

treadle_status td_constant_from_node(td_arena *arena, const td_onnx_node *node, td_tensor *out, treadle_error *err) {
    for (size_t i = 0; i < node->n_attrs; i++) {
        const td_onnx_attr *a = &node->attrs[i];
        int64_t n = (int64_t)a->n;
        size_t count = a->n;
        if (td_str_is(a->name, "value") && a->type == TD_ONNX_ATTR_TENSOR && a->t)
            return td_constant_from_onnx(arena, a->t, out, err);
        if (td_str_is(a->name, "sparse_value") && a->type == TD_ONNX_ATTR_SPARSE_TENSOR && a->sparse)
            return td_constant_from_sparse(arena, a->sparse, out, err);
        if (td_str_is(a->name, "value_float") && a->type == TD_ONNX_ATTR_FLOAT)
            return as_tensor(arena, TD_FLOAT, 0, NULL, &a->f, sizeof a->f, out, err);
        if (td_str_is(a->name, "value_int") && a->type == TD_ONNX_ATTR_INT)
            return as_tensor(arena, TD_INT64, 0, NULL, &a->i, sizeof a->i, out, err);
        if (td_str_is(a->name, "value_string") && a->type == TD_ONNX_ATTR_STRING)
            return as_tensor(arena, TD_STRING, 0, NULL, &a->s, sizeof a->s, out, err);
        if (td_str_is(a->name, "value_floats") && a->type == TD_ONNX_ATTR_FLOATS)
            return as_tensor(arena, TD_FLOAT, 1, &n, a->floats, count * sizeof *a->floats, out, err);
        if (td_str_is(a->name, "value_ints") && a->type == TD_ONNX_ATTR_INTS)
            return as_tensor(arena, TD_INT64, 1, &n, a->ints, count * sizeof *a->ints, out, err);
        if (td_str_is(a->name, "value_strings") && a->type == TD_ONNX_ATTR_STRINGS)
            return as_tensor(arena, TD_STRING, 1, &n, a->strings, count * sizeof *a->strings, out, err);
    }
    return td_fail(err, TREADLE_FORMAT,
                   "node \"%.*s\" (Constant): expected one of value, sparse_value, value_float(s), value_int(s), "
                   "value_string(s)",
                   TD_STR_ARGS(node->name));
}
