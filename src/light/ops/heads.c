/* light/ops/heads.c - see heads.h. */
#include "light/ops/heads.h"

#include "tensor/half.h"

#include <string.h>

/* *out = t, copied if its last dimension is strided. */
static treadle_status with_dense_rows(td_run *r, const td_tensor *t, td_tensor *out) {
    int last = t->shape.rank - 1;
    size_t bytes;

    *out = *t;
    if (t->strides[last] == 1 || t->shape.dims[last] == 1) return TREADLE_OK;
    if (!td_tensor_bytes(t, &bytes)) return td_run_fail(r, "an input is too large");
    td_tensor_view(out, t->dtype, &t->shape, td_run_scratch(r, bytes));
    if (!out->data) return TREADLE_OUT_OF_MEMORY;
    td_tensor_copy(out, t);
    return TREADLE_OK;
}

treadle_status td_heads_of_tokens(td_run *r, const td_tensor *t, int64_t first, int64_t size, td_heads *out) {
    td_tensor dense;
    TD_TRY(with_dense_rows(r, t, &dense));
    *out = (td_heads){.dtype = t->dtype, .batch = dense.strides[0], .token = dense.strides[1], .head = size};
    out->data = (char *)dense.data + first * size * (td_dtype_bits(t->dtype) / 8);
    return TREADLE_OK;
}

static td_heads cache_view(const td_tensor *t) {
    return (td_heads){
        .data = t->data, .dtype = t->dtype, .batch = t->strides[0], .token = t->strides[2], .head = t->strides[1]};
}

treadle_status td_heads_of_cache(td_run *r, const td_tensor *t, td_heads *out) {
    td_tensor dense;
    TD_TRY(with_dense_rows(r, t, &dense));
    *out = cache_view(&dense);
    return TREADLE_OK;
}

treadle_status td_heads_of_output(td_run *r, size_t i, td_dtype dtype, const td_shape *shape, td_heads *out) {
    td_tensor scratch;
    size_t bytes;

    if (i < r->n_outputs && r->out[i]) {
        *out = cache_view(r->out[i]);
        return TREADLE_OK;
    }
    td_tensor_view(&scratch, dtype, shape, NULL);
    if (!td_tensor_bytes(&scratch, &bytes)) return td_run_fail(r, "the cache is too large");
    scratch.data = td_run_scratch(r, bytes);
    *out = cache_view(&scratch);
    return scratch.data ? TREADLE_OK : TREADLE_OUT_OF_MEMORY;
}

void td_heads_convert(td_dtype from, const void *source, td_dtype to, void *target, int64_t n, float *buffer) {
    if (from == to) {
        if (source != target) memmove(target, source, (size_t)n * (size_t)td_dtype_bits(from) / 8);
    } else if (to == TD_FLOAT) {
        td_to_f32(from, source, n, target);
    } else if (from == TD_FLOAT) {
        td_from_f32(to, source, n, target);
    } else {
        td_to_f32(from, source, n, buffer);
        td_from_f32(to, buffer, n, target);
    }
}

treadle_status td_heads_f32(td_run *r, const td_tensor *t, const float **out) {
    *out = t->data;
    if (t->dtype == TD_FLOAT) return TREADLE_OK;
    float *copy = td_run_scratch(r, (size_t)td_tensor_count(t) * sizeof(float));
    if (!copy) return TREADLE_OUT_OF_MEMORY;
    td_to_f32(t->dtype, t->data, td_tensor_count(t), copy);
    *out = copy;
    return TREADLE_OK;
}

void td_heads_extend(const td_heads *past, const td_heads *present, int64_t b, int64_t h, int64_t size, int64_t before,
                     int64_t n_new, int64_t n_present) {
    size_t bytes = (size_t)size * (size_t)td_dtype_bits(present->dtype) / 8;
    if (past->data && past->data == present->data) return;
    for (int64_t t = 0; t < before; t++) memcpy(td_heads_at(present, b, t, h), td_heads_at(past, b, t, h), bytes);
    for (int64_t t = before + n_new; t < n_present; t++) memset(td_heads_at(present, b, t, h), 0, bytes);
}
