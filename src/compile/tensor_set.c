/* compile/tensor_set.c - see tensor_set.h. */
#include "compile/tensor_set.h"

#include <stdio.h>

treadle_status td_tensor_set_add(td_tensor_set *set, const td_source_tensor *tensor, treadle_error *err) {
    if (td_map_get(&set->index, tensor->name, NULL))
        return td_fail(err, TREADLE_FORMAT, "tensor '%.*s' is given twice", (int)TD_MIN(tensor->name.n, 200),
                       tensor->name.p);
    if (!td_map_set(&set->index, tensor->name, set->tensors.n) || !td_vec_push(&set->tensors, *tensor))
        return td_fail_memory(err, "tensors", (set->tensors.n + 1) * sizeof *tensor);
    return TREADLE_OK;
}

const td_source_tensor *td_tensor_set_find(const td_tensor_set *set, td_str name) {
    uint64_t at;
    return td_map_get(&set->index, name, &at) ? &set->tensors.items[at] : NULL;
}

uint64_t td_tensor_set_bytes(const td_tensor_set *set) {
    uint64_t sum = 0;
    for (size_t i = 0; i < set->tensors.n; i++) sum += set->tensors.items[i].bytes;
    return sum;
}

void td_tensor_set_discard(td_tensor_set *set) {
    td_vec_free(&set->tensors);
    td_map_free(&set->index);
}

int64_t td_source_tensor_rows(const td_source_tensor *tensor) {
    int64_t rows = 1;
    for (int i = 1; i < tensor->rank; i++) rows *= tensor->dims[i];
    return rows;
}

const char *td_source_shape_text(int rank, const int64_t *dims, char text[TD_SOURCE_SHAPE_TEXT]) {
    size_t at = 0;
    at += (size_t)snprintf(text, TD_SOURCE_SHAPE_TEXT, "[");
    for (int i = rank - 1; i >= 0 && at < TD_SOURCE_SHAPE_TEXT; i--)
        at += (size_t)snprintf(text + at, TD_SOURCE_SHAPE_TEXT - at, "%lld%s", (long long)dims[i], i ? ", " : "");
    if (at < TD_SOURCE_SHAPE_TEXT) snprintf(text + at, TD_SOURCE_SHAPE_TEXT - at, "]");
    return text;
}
