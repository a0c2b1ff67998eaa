/* tensor/value.c - see value.h. */
#include "tensor/value.h"

#include "base/alloc.h"

td_sequence *td_sequence_new(size_t n) {
    size_t bytes;

    if (TD_MUL_OVERFLOWS(n, sizeof(td_value), &bytes) || TD_ADD_OVERFLOWS(bytes, sizeof(td_sequence), &bytes))
        return NULL;
    td_sequence *sequence = td_alloc_zero(1, bytes);
    if (!sequence) return NULL;
    sequence->refs = 1;
    sequence->n = n;
    return sequence;
}

td_sequence *td_sequence_retain(td_sequence *sequence) {
    if (sequence) __atomic_add_fetch(&sequence->refs, 1, __ATOMIC_RELAXED);
    return sequence;
}

void td_sequence_release(td_sequence *sequence) {
    if (!sequence || __atomic_sub_fetch(&sequence->refs, 1, __ATOMIC_ACQ_REL) != 0) return;
    for (size_t i = 0; i < sequence->n; i++) td_value_release(&sequence->items[i]);
    td_free(sequence);
}

td_value td_value_share(const td_value *value) {
    if (value->kind == TD_VALUE_TENSOR) td_buffer_retain(value->tensor.buffer);
    if (value->kind == TD_VALUE_SEQUENCE) td_sequence_retain(value->sequence);
    return *value;
}

bool td_value_resize(td_value *value, td_dtype dtype, const td_shape *shape) {
    td_buffer *buffer = value->kind == TD_VALUE_TENSOR ? value->tensor.buffer : NULL;
    td_tensor fresh;
    int64_t count;
    size_t bytes;

    if (!td_shape_count(shape, &count) || !td_dtype_bytes(dtype, count, &bytes)) return false;
    if (buffer && buffer->bytes >= bytes) {
        td_tensor_view(&value->tensor, dtype, shape, buffer->data);
        value->tensor.buffer = buffer;
        return true;
    }
    if (!td_tensor_new(&fresh, dtype, shape)) return false;
    td_value_release(value);
    *value = (td_value){.kind = TD_VALUE_TENSOR, .tensor = fresh};
    return true;
}

bool td_value_extend(td_value *value, int64_t n) {
    td_tensor *t = &value->tensor;
    td_shape shape = t->shape, roomy;
    td_value whole = {0};
    int64_t count;
    size_t bytes;

    if (TD_ADD_OVERFLOWS(shape.dims[0], n, &shape.dims[0])) return false;
    if (!td_shape_count(&shape, &count) || !td_dtype_bytes(t->dtype, count, &bytes)) return false;
    if (t->buffer && t->buffer->bytes >= bytes && t->data == t->buffer->data)
        return td_value_resize(value, t->dtype, &shape);
    roomy = shape;
    if (TD_MUL_OVERFLOWS(shape.dims[0], (int64_t)2, &roomy.dims[0])) roomy = shape;
    if (!td_value_resize(&whole, t->dtype, &roomy) && !td_value_resize(&whole, t->dtype, &shape)) return false;
    if (!td_value_resize(&whole, t->dtype, &shape)) return false;
    td_tensor before = whole.tensor;
    before.shape.dims[0] = t->shape.dims[0];
    td_tensor_copy(&before, t);
    td_value_release(value);
    *value = whole;
    return true;
}

void td_value_release(td_value *value) {
    if (value->kind == TD_VALUE_TENSOR) td_buffer_release(value->tensor.buffer);
    if (value->kind == TD_VALUE_SEQUENCE) td_sequence_release(value->sequence);
    *value = (td_value){0};
}

/* The bytes that the strings of a dense tensor point to move behind its elements, into a new buffer. */
static bool own_strings(td_tensor *t) {
    int64_t n = td_tensor_count(t);
    size_t bytes = (size_t)n * sizeof(td_str);
    const td_str *from = t->data;
    size_t text_bytes = 0;

    for (int64_t i = 0; i < n; i++) text_bytes += from[i].n;
    td_buffer *buffer = td_buffer_new(bytes + text_bytes);
    if (!buffer) return false;
    td_str *to = buffer->data;
    char *at = (char *)buffer->data + bytes;
    for (int64_t i = 0; i < n; i++) {
        if (from[i].n) memcpy(at, from[i].p, from[i].n);
        to[i] = (td_str){at, from[i].n};
        at += from[i].n;
    }
    td_buffer_release(t->buffer);
    t->buffer = buffer;
    t->data = buffer->data;
    return true;
}

static bool copy_tensor(td_tensor *to, const td_tensor *from) {
    td_tensor copy;

    if (!td_tensor_new(&copy, from->dtype, &from->shape)) return false;
    td_tensor_copy(&copy, from);
    if (copy.dtype == TD_STRING && !own_strings(&copy)) {
        td_buffer_release(copy.buffer);
        return false;
    }
    *to = copy;
    return true;
}

bool td_value_copy(td_value *to, const td_value *from) {
    td_value copy = {.kind = from->kind};

    if (from->kind == TD_VALUE_TENSOR && !copy_tensor(&copy.tensor, &from->tensor)) return false;
    if (from->kind == TD_VALUE_SEQUENCE) {
        copy.sequence = td_sequence_new(from->sequence->n);
        if (!copy.sequence) return false;
        for (size_t i = 0; i < from->sequence->n; i++) {
            if (td_value_copy(&copy.sequence->items[i], &from->sequence->items[i])) continue;
            td_sequence_release(copy.sequence);
            return false;
        }
    }
    *to = copy;
    return true;
}
