/* onnx/write.c - the writer over the tables of proto.h: fields in ascending order, shortest varints, so the same model
 * always gives the same bytes. Empty strings, zero numbers and empty lists are left out. */
#include "onnx/proto.h"

#include <errno.h>
#include <stdio.h>

static void write_field(td_wire_sink *s, const td_proto_field *field, const char *in) {
    const void *place = in + field->offset;
    const void *list = field->kind >= TD_PROTO_INTS ? *(const void *const *)place : NULL;
    size_t n = field->kind >= TD_PROTO_INTS ? *(const size_t *)(const void *)(in + field->count_offset) : 0;
    switch (field->kind) {
    case TD_PROTO_INT:
        if (*(const int64_t *)place) td_wire_put_int(s, field->number, *(const int64_t *)place);
        break;
    case TD_PROTO_INT32:
        if (*(const int *)place) td_wire_put_int(s, field->number, *(const int *)place);
        break;
    case TD_PROTO_FLOAT:
        if (*(const float *)place != 0) td_wire_put_float(s, field->number, *(const float *)place);
        break;
    case TD_PROTO_STR:
        if (((const td_str *)place)->n) td_wire_put_str(s, field->number, *(const td_str *)place);
        break;
    case TD_PROTO_MSG: td_proto_write_nested(s, field->number, field->message, place); break;
    case TD_PROTO_MSG_PTR:
        if (*(const void *const *)place)
            td_proto_write_nested(s, field->number, field->message, *(const void *const *)place);
        break;
    case TD_PROTO_INTS:
        for (size_t i = 0; i < n; i++) td_wire_put_int(s, field->number, ((const int64_t *)list)[i]);
        break;
    case TD_PROTO_FLOATS:
        for (size_t i = 0; i < n; i++) td_wire_put_float(s, field->number, ((const float *)list)[i]);
        break;
    case TD_PROTO_STRS:
        for (size_t i = 0; i < n; i++) td_wire_put_str(s, field->number, ((const td_str *)list)[i]);
        break;
    case TD_PROTO_MSGS:
        for (size_t i = 0; i < n; i++)
            td_proto_write_nested(s, field->number, field->message, (const char *)list + i * field->message->bytes);
        break;
    }
}

void td_proto_write(td_wire_sink *s, const td_proto_message *m, const void *in) {
    if (m->write) {
        m->write(s, in);
        return;
    }
    for (size_t i = 0; i < m->n_fields; i++) write_field(s, &m->fields[i], in);
}

/* The length must stand before the bytes: a counting walk finds it. Counting costs one walk per level of nesting. */
void td_proto_write_nested(td_wire_sink *s, uint32_t number, const td_proto_message *m, const void *in) {
    td_wire_sink count = {0};
    td_proto_write(&count, m, in);
    td_wire_put_tag(s, number, TD_WIRE_LEN);
    td_wire_put_varint(s, count.n);
    if (s->out) td_proto_write(s, m, in);
    else s->n += count.n;
}

static treadle_status write_message(const td_proto_message *m, const void *in, td_buf *out, treadle_error *err) {
    td_wire_sink count = {0}, sink = {.out = out};
    td_proto_write(&count, m, in);
    if (td_buf_reserve(out, count.n)) td_proto_write(&sink, m, in);
    return out->failed ? td_fail_memory(err, m->name, count.n) : TREADLE_OK;
}

/* A numeric tensor must bring its bytes unless it is external. */
static const td_onnx_tensor *find_unloaded(const td_onnx_graph *g) {
    for (size_t i = 0; i < g->n_initializers; i++) {
        const td_onnx_tensor *t = &g->initializers[i];
        if (!t->is_external && !t->data && t->count > 0) return t;
    }
    return NULL;
}

treadle_status td_onnx_write(const td_onnx_model *model, td_buf *out, treadle_error *err) {
    const td_onnx_tensor *bad = find_unloaded(&model->graph);
    if (bad) return td_fail(err, TREADLE_INVALID_ARGUMENT, "initializer '%.*s' has no data", TD_STR_ARGS(bad->name));
    return write_message(&td_proto_model, model, out, err);
}

static bool drain_to_file(void *ctx, const void *bytes, size_t n) { return fwrite(bytes, 1, n, ctx) == n; }

treadle_status td_onnx_write_file(const td_onnx_model *model, const char *path, treadle_error *err) {
    const td_onnx_tensor *bad = find_unloaded(&model->graph);
    if (bad) return td_fail(err, TREADLE_INVALID_ARGUMENT, "initializer '%.*s' has no data", TD_STR_ARGS(bad->name));
    td_wire_sink count = {0};
    td_buf piece = {0};
    td_proto_write(&count, &td_proto_model, model);
    if (count.n > INT32_MAX)
        return td_fail(err, TREADLE_LIMIT, "the model takes %zu bytes, one file of ONNX holds at most %d", count.n,
                       INT32_MAX);
    FILE *file = fopen(path, "wxe");
    if (!file) return td_fail(err, TREADLE_IO, "cannot make '%s': %s", path, strerror(errno));
    td_wire_sink sink = {.out = &piece, .drain = drain_to_file, .ctx = file};
    td_proto_write(&sink, &td_proto_model, model);
    bool written = td_wire_flush(&sink);
    int code = errno;
    if (fclose(file) != 0 && written) {
        written = false;
        code = errno;
    }
    bool memory = !piece.failed;
    td_buf_free(&piece);
    if (!memory) return td_fail_memory(err, "a piece of a model", 0);
    return written ? TREADLE_OK : td_fail(err, TREADLE_IO, "cannot write '%s': %s", path, strerror(code));
}
