/* api/tensor.c - views and values. */
#include "api/api.h"

#include "base/alloc.h"
#include "base/file.h"
#include "tensor/half.h"

_Static_assert(sizeof(treadle_string) == sizeof(td_str), "string elements are shared");

const char *treadle_dtype_name(treadle_dtype dtype) { return td_dtype_name((td_dtype)dtype); }

int32_t treadle_dtype_bits(treadle_dtype dtype) { return td_dtype_bits((td_dtype)dtype); }

treadle_status treadle_tensor_size(const treadle_tensor *tensor, int64_t *out_count, size_t *out_bytes,
                                   treadle_error *error) {
    td_tensor own;
    size_t bytes;
    TD_NEED(tensor);
    TD_TRY(td_tensor_from_public(tensor, &own, &bytes, error));
    if (out_count) *out_count = td_tensor_count(&own);
    if (out_bytes) *out_bytes = bytes;
    return TREADLE_OK;
}

treadle_status td_api_tensor(const treadle_tensor *tensor, td_tensor *out, treadle_error *error) {
    size_t bytes;
    TD_NEED(tensor);
    TD_TRY(td_tensor_from_public(tensor, out, &bytes, error));
    if (bytes) TD_NEED(tensor->data);
    const td_str *strings = out->dtype == TD_STRING ? out->data : NULL;
    for (int64_t i = 0; strings && i < td_tensor_count(out); i++)
        if (strings[i].n && !strings[i].p)
            return td_fail(error, TREADLE_INVALID_ARGUMENT, "string %lld of the tensor is NULL, but %zu bytes long",
                           (long long)i, strings[i].n);
    return TREADLE_OK;
}

double treadle_tensor_get(const treadle_tensor *tensor, int64_t index) {
    return td_load_f64((td_dtype)tensor->dtype, tensor->data, index);
}

treadle_status td_api_value_take(td_value *value, treadle_value **out, treadle_error *error) {
    treadle_value *v = td_alloc_zero(1, sizeof *v);
    if (!v) {
        td_value_release(value);
        return td_fail_memory(error, "a value", sizeof *v);
    }
    v->refs = 1;
    v->value = *value;
    *out = v;
    return TREADLE_OK;
}

treadle_status treadle_value_new(const treadle_tensor *tensor, treadle_value **out, treadle_error *error) {
    td_value borrowed = {.kind = TD_VALUE_TENSOR}, own;
    TD_NEED(out);
    TD_TRY(td_api_tensor(tensor, &borrowed.tensor, error));
    if (!td_value_copy(&own, &borrowed)) return td_fail_memory(error, "a value", 0);
    return td_api_value_take(&own, out, error);
}

treadle_value *treadle_value_retain(treadle_value *value) {
    if (value) __atomic_add_fetch(&value->refs, 1, __ATOMIC_RELAXED);
    return value;
}

void treadle_value_release(treadle_value *value) {
    if (!value || __atomic_sub_fetch(&value->refs, 1, __ATOMIC_ACQ_REL) > 0) return;
    td_value_release(&value->value);
    td_free(value);
}

treadle_value_kind treadle_value_get_kind(const treadle_value *value) {
    switch (value ? value->value.kind : TD_VALUE_NONE) {
    case TD_VALUE_TENSOR: return TREADLE_VALUE_TENSOR;
    case TD_VALUE_SEQUENCE: return TREADLE_VALUE_SEQUENCE;
    case TD_VALUE_NONE: break;
    }
    return TREADLE_VALUE_NONE;
}

treadle_status treadle_value_tensor(const treadle_value *value, treadle_tensor *out, treadle_error *error) {
    TD_NEED(value);
    TD_NEED(out);
    if (value->value.kind != TD_VALUE_TENSOR) return td_fail(error, TREADLE_INVALID_ARGUMENT, "the value is no tensor");
    td_tensor_to_public(&value->value.tensor, out);
    return TREADLE_OK;
}

size_t treadle_value_count(const treadle_value *value) {
    return value && value->value.kind == TD_VALUE_SEQUENCE ? value->value.sequence->n : 0;
}

treadle_status treadle_value_item(const treadle_value *value, size_t index, treadle_value **out, treadle_error *error) {
    td_value own;
    TD_NEED(out);
    if (index >= treadle_value_count(value))
        return td_fail(error, TREADLE_INVALID_ARGUMENT, "expected an item below %zu, found %zu",
                       treadle_value_count(value), index);
    if (!td_value_copy(&own, &value->value.sequence->items[index])) return td_fail_memory(error, "a value", 0);
    return td_api_value_take(&own, out, error);
}

treadle_status treadle_value_read_npy(const char *path, treadle_value **out, treadle_error *error) {
    td_value value = {.kind = TD_VALUE_TENSOR};
    TD_NEED(path);
    TD_NEED(out);
    TD_TRY(td_npy_read(path, &value.tensor, error));
    return td_api_value_take(&value, out, error);
}

treadle_status treadle_tensor_write_npy(const char *path, const treadle_tensor *tensor, treadle_error *error) {
    td_tensor own;
    TD_NEED(path);
    TD_TRY(td_api_tensor(tensor, &own, error));
    return td_npy_write(path, &own, error);
}
