/* api/session_pb.c - files of ONNX backend test data as values of a session's inputs and outputs. */
#include "api/session.h"

#include "base/alloc.h"
#include "base/file.h"

enum { PB_MAX_BYTES = INT32_MAX };

static treadle_status copy_tensor(const td_onnx_tensor *from, td_value *out, treadle_error *error) {
    td_value borrowed = {.kind = TD_VALUE_TENSOR};
    td_shape shape = {.rank = from->rank};
    static const uint64_t empty[2];
    if (from->rank > TD_MAX_RANK)
        return td_fail(error, TREADLE_UNSUPPORTED, "expected at most %d dimensions, found %d", TD_MAX_RANK, from->rank);
    for (int i = 0; i < from->rank; i++) shape.dims[i] = from->dims[i];
    const void *data = from->data ? from->data : empty; /* no elements, no bytes */
    td_tensor_view(&borrowed.tensor, from->dtype, &shape, (void *)(uintptr_t)data);
    return td_value_copy(out, &borrowed) ? TREADLE_OK : td_fail_memory(error, "a tensor", from->data_bytes);
}

/* *out is owned, also in parts when this fails. Depth is bounded by the reader. */
static treadle_status copy_value(const td_onnx_value *from, td_value *out, treadle_error *error) {
    switch (from->kind) {
    case TD_ONNX_VALUE_TENSOR: return copy_tensor(&from->tensor, out, error);
    case TD_ONNX_VALUE_OPTIONAL: return from->n ? copy_value(&from->items[0], out, error) : TREADLE_OK;
    case TD_ONNX_VALUE_SEQUENCE: break;
    default: return td_fail(error, TREADLE_UNSUPPORTED, "maps and sparse tensors are not supported");
    }
    out->sequence = td_sequence_new(from->n);
    if (!out->sequence) return td_fail_memory(error, "a sequence", from->n * sizeof(td_value));
    out->kind = TD_VALUE_SEQUENCE;
    for (size_t i = 0; i < from->n; i++) TD_TRY(copy_value(&from->items[i], &out->sequence->items[i], error));
    return TREADLE_OK;
}

static td_onnx_value_kind file_kind(td_onnx_type_kind kind) {
    switch (kind) {
    case TD_ONNX_TYPE_SPARSE: return TD_ONNX_VALUE_SPARSE;
    case TD_ONNX_TYPE_SEQUENCE: return TD_ONNX_VALUE_SEQUENCE;
    case TD_ONNX_TYPE_OPTIONAL: return TD_ONNX_VALUE_OPTIONAL;
    case TD_ONNX_TYPE_MAP: return TD_ONNX_VALUE_MAP;
    default: return TD_ONNX_VALUE_TENSOR;
    }
}

/* What the graph declares under the port's name. */
static td_onnx_value_kind declared_kind(const td_signature *signature, bool is_input, td_str name) {
    const td_onnx_graph *graph = &signature->model->graph;
    const td_onnx_value_info *infos = is_input ? graph->inputs : graph->outputs;
    size_t n = is_input ? graph->n_inputs : graph->n_outputs;
    for (size_t i = 0; i < n; i++)
        if (td_str_equal(infos[i].name, name)) return file_kind(infos[i].type.kind);
    return TD_ONNX_VALUE_TENSOR;
}

treadle_status treadle_session_read_pb(const treadle_session *session, bool is_input, size_t index, const char *path,
                                       treadle_value **out, treadle_error *error) {
    TD_NEED(session);
    TD_NEED(path);
    TD_NEED(out);
    const td_signature *signature = session->signature;
    size_t n_ports = is_input ? signature->n_inputs : signature->n_outputs, n = 0;
    if (index >= n_ports)
        return td_fail(error, TREADLE_INVALID_ARGUMENT, "index %zu, expected less than %zu", index, n_ports);
    const td_light_port *port = is_input ? &signature->inputs[index] : &signature->outputs[index];
    char *bytes = NULL;
    td_arena arena;
    td_onnx_value file;
    td_value value = {0};
    TD_TRY(td_file_read(path, PB_MAX_BYTES, &bytes, &n, error));
    td_arena_init(&arena);
    treadle_status status =
        td_onnx_parse_value(bytes, n, declared_kind(signature, is_input, port->name), &arena, &file, error);
    if (status == TREADLE_OK) status = copy_value(&file, &value, error);
    td_arena_free(&arena);
    td_free(bytes);
    if (status == TREADLE_OK) return td_api_value_take(&value, out, error);
    td_value_release(&value);
    td_error_file(error, path);
    return status;
}
