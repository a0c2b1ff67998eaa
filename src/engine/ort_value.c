/* engine/ort_value.c - td_value <-> OrtValue.
 *
 * In: a tensor that lies whole in a buffer of ONNX Runtime goes back as the OrtValue it is; other memory is wrapped
 * without a copy; strided views are made dense first; strings are copied, since theirs are objects of C++. Out: the
 * OrtValue becomes the owner of a td_buffer. Sequences are taken apart and put together tensor by tensor. */
#include "base/alloc.h"
#include "engine/ort.h"

/* --- element types: those of ONNX, with another order at the end */

static const struct {
    td_dtype dtype;
    ONNXTensorElementDataType type;
} other_numbers[] = {
    {TD_UINT2, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT2},
    {TD_INT2, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT2},
    {TD_FLOAT8E8M0, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E8M0},
};

/* TREADLE_UNSUPPORTED for types that ONNX Runtime does not know. */
static treadle_status ort_dtype(td_dtype dtype, ONNXTensorElementDataType *out, treadle_error *err) {
    if (dtype > TD_UNDEFINED && dtype <= TD_FLOAT4E2M1) return *out = (ONNXTensorElementDataType)dtype, TREADLE_OK;
    for (size_t i = 0; i < TD_COUNT(other_numbers); i++)
        if (other_numbers[i].dtype == dtype) return *out = other_numbers[i].type, TREADLE_OK;
    return td_fail(err, TREADLE_UNSUPPORTED, "ONNX Runtime has no element type %s", td_dtype_name(dtype));
}

static td_dtype dtype_of(ONNXTensorElementDataType type) {
    for (size_t i = 0; i < TD_COUNT(other_numbers); i++)
        if (other_numbers[i].type == type) return other_numbers[i].dtype;
    return type <= ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT4E2M1 ? (td_dtype)type : TD_UNDEFINED;
}

/* --- buffers */

static void destroy_buffer(td_buffer *self) {
    td_ort_buffer *buffer = (td_ort_buffer *)(void *)self;
    td_ort *ort = buffer->ort;
    ort->api.ReleaseValue(buffer->value);
    td_free(buffer);
    td_ort_release(ort);
}

const td_ort_buffer *td_ort_buffer_of(const td_ort *ort, const td_tensor *tensor) {
    if (!tensor->buffer || tensor->buffer->destroy != destroy_buffer) return NULL;
    const td_ort_buffer *buffer = (const td_ort_buffer *)(const void *)tensor->buffer;
    return buffer->ort->table == ort->table ? buffer : NULL;
}

static bool is_whole(const td_ort_buffer *buffer, const td_tensor *t) {
    return t->data == buffer->whole.data && t->dtype == buffer->whole.dtype &&
           td_shape_equal(&t->shape, &buffer->whole.shape) && td_tensor_is_dense(t);
}

/* --- in */

/* What a tensor without elements points to. */
static char no_elements[64];

treadle_status td_ort_wrap(const td_ort *ort, const td_tensor *dense, const OrtMemoryInfo *memory, OrtValue **out,
                           treadle_error *err) {
    ONNXTensorElementDataType type = 0;
    size_t bytes;
    TD_TRY(ort_dtype(dense->dtype, &type, err));
    if (!td_tensor_bytes(dense, &bytes)) return td_fail(err, TREADLE_LIMIT, "a tensor is larger than memory can be");
    TD_ORT_TRY(ort->api.CreateTensorWithDataAsOrtValue(memory, bytes ? dense->data : no_elements, bytes,
                                                       dense->shape.dims, (size_t)dense->shape.rank, type, out),
               TREADLE_INVALID_ARGUMENT);
    return TREADLE_OK;
}

static treadle_status fill_strings(const td_ort *ort, const td_str *from, int64_t n, OrtValue *to, treadle_error *err) {
    for (int64_t i = 0; i < n; i++) {
        char *at = NULL;
        TD_ORT_TRY(ort->api.GetResizedStringTensorElementBuffer(to, (size_t)i, from[i].n, &at), TREADLE_RUN);
        if (from[i].n) memcpy(at, from[i].p, from[i].n);
    }
    return TREADLE_OK;
}

static treadle_status make_strings(const td_ort *ort, const td_tensor *dense, OrtValue **out, treadle_error *err) {
    OrtValue *made = NULL;
    TD_ORT_TRY(
        ort->api.CreateTensorAsOrtValue(ort->allocator, dense->shape.dims, (size_t)dense->shape.rank, TD_STRING, &made),
        TREADLE_RUN);
    treadle_status status = fill_strings(ort, dense->data, td_tensor_count(dense), made, err);
    if (status != TREADLE_OK) {
        ort->api.ReleaseValue(made);
        return status;
    }
    *out = made;
    return TREADLE_OK;
}

static treadle_status make_dense(const td_tensor *from, td_ort_scratch *scratch, td_tensor *out, treadle_error *err) {
    size_t bytes;
    if (!td_tensor_bytes(from, &bytes)) return td_fail(err, TREADLE_LIMIT, "a tensor is larger than memory can be");
    if (bytes > scratch->bytes) {
        size_t room = bytes + bytes / 2; /* caches grow by a little each step */
        void *data = td_alloc_aligned(room);
        if (!data) return td_fail_memory(err, "a dense copy of an input", room);
        td_free_aligned(scratch->data);
        *scratch = (td_ort_scratch){data, room};
    }
    td_tensor_view(out, from->dtype, &from->shape, scratch->data);
    td_tensor_copy(out, from);
    return TREADLE_OK;
}

/* A value of a device in host memory. */
static treadle_status copy_to_host(const td_ort *ort, const td_ort_buffer *buffer, td_tensor *out,
                                   td_buffer **out_memory, treadle_error *err) {
    OrtValue *wrapped = NULL;
    if (!ort->api.CopyTensors)
        return td_fail(err, TREADLE_UNSUPPORTED, "ONNX Runtime %s cannot copy values from a device; 1.23 and newer can",
                       ort->version);
    td_buffer *memory = td_buffer_new(buffer->base.bytes);
    if (!memory) return td_fail_memory(err, "a value of a device", buffer->base.bytes);
    td_tensor_view(out, buffer->whole.dtype, &buffer->whole.shape, memory->data);
    treadle_status status = td_ort_wrap(ort, out, ort->cpu, &wrapped, err);
    if (status == TREADLE_OK) {
        const OrtValue *source = buffer->value;
        OrtStatus *failed = ort->api.CopyTensors(ort->env, &source, &wrapped, NULL, 1);
        ort->api.ReleaseValue(wrapped);
        if (failed) status = td_ort_fail(ort, failed, TREADLE_RUN, err);
    }
    if (status != TREADLE_OK) td_buffer_release(memory);
    else *out_memory = memory;
    return status;
}

static treadle_status tensor_of(const td_ort *ort, const td_tensor *t, td_ort_scratch *scratch, OrtValue **out,
                                bool *out_owned, treadle_error *err) {
    const td_ort_buffer *buffer = td_ort_buffer_of(ort, t);
    if (buffer && is_whole(buffer, t)) {
        *out = buffer->value;
        *out_owned = false;
        return TREADLE_OK;
    }
    td_tensor dense = *t, whole;
    bool on_device = buffer && buffer->device;
    if (td_tensor_count(t) == 0) {
        td_tensor_view(&dense, t->dtype, &t->shape, no_elements);
        on_device = false;
    } else if (!td_tensor_is_dense(t)) {
        td_buffer *copy = NULL;
        if (on_device) { /* part of a cache that was cut back: through host memory, once */
            TD_TRY(copy_to_host(ort, buffer, &whole, &copy, err));
            size_t offset = (size_t)((const char *)t->data - (const char *)buffer->whole.data);
            whole.shape = t->shape;
            memcpy(whole.strides, t->strides, sizeof whole.strides);
            whole.data = (char *)whole.data + offset;
        }
        treadle_status status = make_dense(on_device ? &whole : t, scratch, &dense, err);
        td_buffer_release(copy);
        TD_TRY(status);
        on_device = false;
    }
    *out_owned = true;
    if (t->dtype == TD_STRING) return make_strings(ort, &dense, out, err);
    const OrtMemoryInfo *memory = ort->cpu;
    if (on_device) TD_ORT_TRY(ort->api.GetTensorMemoryInfo(buffer->value, &memory), TREADLE_INTERNAL);
    return td_ort_wrap(ort, &dense, memory, out, err);
}

/* ONNX Runtime's sequences refer to the tensors they are made of, so each item keeps a scratch of
 * its own alive by being copied. */
static treadle_status sequence_of(const td_ort *ort, const td_sequence *s, OrtValue **out, treadle_error *err) {
    if (s->n == 0) return td_fail(err, TREADLE_UNSUPPORTED, "ONNX Runtime takes no empty sequence as an input");
    OrtValue **items = td_alloc_zero(s->n, sizeof *items);
    if (!items) return td_fail_memory(err, "a sequence", s->n * sizeof *items);
    treadle_status status = TREADLE_OK;
    size_t n = 0;
    for (; status == TREADLE_OK && n < s->n; n++) {
        const td_value *item = &s->items[n];
        if (item->kind != TD_VALUE_TENSOR || !td_tensor_is_dense(&item->tensor))
            status = td_fail(err, TREADLE_UNSUPPORTED, "ONNX Runtime takes sequences of dense tensors only");
        else if (item->tensor.dtype == TD_STRING) status = make_strings(ort, &item->tensor, &items[n], err);
        else status = td_ort_wrap(ort, &item->tensor, ort->cpu, &items[n], err);
    }
    if (status == TREADLE_OK) {
        OrtStatus *failed = ort->api.CreateValue((const OrtValue *const *)items, s->n, ONNX_TYPE_SEQUENCE, out);
        if (failed) status = td_ort_fail(ort, failed, TREADLE_UNSUPPORTED, err);
    }
    for (size_t i = 0; i < s->n; i++)
        if (items[i]) ort->api.ReleaseValue(items[i]);
    td_free(items);
    return status;
}

treadle_status td_ort_value_of(const td_ort *ort, const td_value *from, td_ort_scratch *scratch, OrtValue **out,
                               bool *out_owned, treadle_error *err) {
    if (from->kind == TD_VALUE_TENSOR) return tensor_of(ort, &from->tensor, scratch, out, out_owned, err);
    *out_owned = true;
    return sequence_of(ort, from->sequence, out, err);
}

/* --- out */

static treadle_status read_info(const td_ort *ort, const OrtTensorTypeAndShapeInfo *info, td_tensor *out,
                                treadle_error *err) {
    ONNXTensorElementDataType type = 0;
    td_shape shape = {0};
    size_t rank = 0;
    int64_t count;
    TD_ORT_TRY(ort->api.GetTensorElementType(info, &type), TREADLE_RUN);
    TD_ORT_TRY(ort->api.GetDimensionsCount(info, &rank), TREADLE_RUN);
    td_dtype dtype = dtype_of(type);
    if (dtype == TD_UNDEFINED)
        return td_fail(err, TREADLE_UNSUPPORTED, "an output has ONNX Runtime's element type %u, unknown here", type);
    if (rank > TD_MAX_RANK)
        return td_fail(err, TREADLE_UNSUPPORTED, "an output has %zu dimensions, at most %d are supported", rank,
                       TD_MAX_RANK);
    shape.rank = (int)rank;
    TD_ORT_TRY(ort->api.GetDimensions(info, shape.dims, rank), TREADLE_RUN);
    if (!td_shape_count(&shape, &count)) return td_fail(err, TREADLE_RUN, "an output has an impossible shape");
    td_tensor_view(out, dtype, &shape, NULL);
    return TREADLE_OK;
}

static treadle_status read_type(const td_ort *ort, const OrtValue *value, td_tensor *out, treadle_error *err) {
    OrtTensorTypeAndShapeInfo *info = NULL;
    TD_ORT_TRY(ort->api.GetTensorTypeAndShape(value, &info), TREADLE_RUN);
    treadle_status status = read_info(ort, info, out, err);
    ort->api.ReleaseTensorTypeAndShapeInfo(info);
    return status;
}

/* Strings as td_str, then the offsets' place, then all their bytes, in one buffer. */
static treadle_status read_strings(const td_ort *ort, const OrtValue *value, td_tensor *t, treadle_error *err) {
    size_t n = (size_t)td_tensor_count(t), n_bytes = 0, bytes;
    TD_ORT_TRY(ort->api.GetStringTensorDataLength(value, &n_bytes), TREADLE_RUN);
    if (TD_MUL_OVERFLOWS(n, sizeof(td_str) + sizeof(size_t), &bytes) || TD_ADD_OVERFLOWS(bytes, n_bytes, &bytes))
        return td_fail_memory(err, "strings", n_bytes);
    td_buffer *buffer = td_buffer_new(bytes);
    if (!buffer) return td_fail_memory(err, "strings", bytes);
    td_str *items = buffer->data;
    size_t *offsets = (size_t *)(void *)(items + n);
    char *text = (char *)(offsets + n);
    OrtStatus *failed = n ? ort->api.GetStringTensorContent(value, text, n_bytes, offsets, n) : NULL;
    if (failed) {
        td_buffer_release(buffer);
        return td_ort_fail(ort, failed, TREADLE_RUN, err);
    }
    for (size_t i = 0; i < n; i++)
        items[i] = (td_str){text + offsets[i], (i + 1 < n ? offsets[i + 1] : n_bytes) - offsets[i]};
    t->data = items;
    t->buffer = buffer;
    return TREADLE_OK;
}

static treadle_status find_data(const td_ort *ort, OrtValue *value, td_ort_buffer *buffer, treadle_error *err) {
    const OrtMemoryInfo *memory = NULL;
    OrtMemoryInfoDeviceType type = OrtMemoryInfoDeviceType_CPU;
    void *data = NULL;
    TD_ORT_TRY(ort->api.GetTensorMutableData(value, &data), TREADLE_RUN);
    TD_ORT_TRY(ort->api.GetTensorMemoryInfo(value, &memory), TREADLE_RUN);
    ort->api.MemoryInfoGetDeviceType(memory, &type);
    buffer->device = type != OrtMemoryInfoDeviceType_CPU;
    buffer->base.data = data ? data : no_elements;
    return TREADLE_OK;
}

/* The value owns the memory that t will be a view of. */
static treadle_status own_tensor(td_ort *ort, OrtValue *value, td_tensor *t, treadle_error *err) {
    td_ort_buffer *buffer = td_alloc_zero(1, sizeof *buffer);
    if (!buffer) return td_fail_memory(err, "an output", sizeof *buffer);
    treadle_status status = find_data(ort, value, buffer, err);
    if (status != TREADLE_OK) {
        td_free(buffer);
        return status;
    }
    (void)td_tensor_bytes(t, &buffer->base.bytes);
    t->data = buffer->base.data;
    t->buffer = &buffer->base;
    buffer->base.refs = 1;
    buffer->base.destroy = destroy_buffer;
    buffer->ort = td_ort_retain(ort);
    buffer->value = value;
    buffer->whole = *t;
    return TREADLE_OK;
}

static treadle_status take_tensor(td_ort *ort, OrtValue *value, td_value *out, treadle_error *err) {
    td_value made = {.kind = TD_VALUE_TENSOR};
    treadle_status status = read_type(ort, value, &made.tensor, err);
    bool text = status == TREADLE_OK && made.tensor.dtype == TD_STRING;
    if (status == TREADLE_OK)
        status = text ? read_strings(ort, value, &made.tensor, err) : own_tensor(ort, value, &made.tensor, err);
    if (status != TREADLE_OK || text) ort->api.ReleaseValue(value);
    if (status == TREADLE_OK) *out = made;
    return status;
}

static treadle_status take_items(td_ort *ort, const OrtValue *value, td_value *out, treadle_error *err) {
    size_t n = 0;
    TD_ORT_TRY(ort->api.GetValueCount(value, &n), TREADLE_RUN);
    td_sequence *sequence = td_sequence_new(n);
    if (!sequence) return td_fail_memory(err, "a sequence", n * sizeof(td_value));
    treadle_status status = n <= INT32_MAX ? TREADLE_OK : td_fail(err, TREADLE_LIMIT, "a sequence of %zu values", n);
    for (size_t i = 0; status == TREADLE_OK && i < n; i++) {
        OrtValue *item = NULL;
        OrtStatus *failed = ort->api.GetValue(value, (int)i, ort->allocator, &item);
        status = failed ? td_ort_fail(ort, failed, TREADLE_RUN, err)
                        : td_ort_value_take(ort, item, &sequence->items[i], err);
    }
    if (status != TREADLE_OK) {
        td_sequence_release(sequence);
        return status;
    }
    *out = (td_value){.kind = TD_VALUE_SEQUENCE, .sequence = sequence};
    return TREADLE_OK;
}

treadle_status td_ort_value_take(td_ort *ort, OrtValue *from, td_value *out, treadle_error *err) {
    int there = 0;
    ONNXType type = 0;
    OrtStatus *failed = ort->api.HasValue(from, &there);
    if (!failed && there) failed = ort->api.GetValueType(from, &type);
    if (!failed && there && type == ONNX_TYPE_TENSOR) return take_tensor(ort, from, out, err);
    treadle_status status = TREADLE_OK;
    if (failed) status = td_ort_fail(ort, failed, TREADLE_RUN, err);
    else if (!there) *out = (td_value){0};
    else if (type == ONNX_TYPE_SEQUENCE) status = take_items(ort, from, out, err);
    else
        status = td_fail(err, TREADLE_UNSUPPORTED,
                         "an output is neither a tensor nor a sequence of tensors (ONNX Runtime's type %u)", type);
    ort->api.ReleaseValue(from);
    return status;
}
