/* onnx/read_value.c - tensors, sequences, optionals and maps as the backend test data hold them (onnx-data.proto).
 *
 * SequenceProto and OptionalProto have the same fields, repeated in one and single in the
 * other, so one reader serves both. */
#include "onnx/proto.h"

/* elem_type of both messages, which is also the field number of the values minus 2. */
enum { ELEM_TENSOR = 1, ELEM_SPARSE = 2, ELEM_SEQUENCE = 3, ELEM_MAP = 4, ELEM_OPTIONAL = 5, VALUES = 2 };

static treadle_status read_container(td_proto_reader *r, td_wire w, td_onnx_value_kind kind, td_onnx_value *out);

static treadle_status read_sparse_value(td_proto_reader *r, td_wire w, td_onnx_value *out) {
    td_onnx_sparse_tensor *sparse = TD_ARENA_NEW(r->arena, td_onnx_sparse_tensor);
    if (!sparse) return td_proto_no_memory(r, "a sparse tensor", sizeof *sparse);
    out->kind = TD_ONNX_VALUE_SPARSE;
    out->sparse = sparse;
    return td_proto_read(r, &td_proto_sparse, w, sparse);
}

/* MapProto: key_type, integer keys or string keys, values as a sequence. */
static treadle_status read_map(td_proto_reader *r, td_wire w, td_onnx_value *out) {
    td_wire_field f;
    td_wire walk = w;
    size_t n_ints = 0, n_strings = 0;
    td_onnx_value *values = TD_ARENA_NEW(r->arena, td_onnx_value);
    if (!values) return td_proto_no_memory(r, "a map", sizeof *values);
    out->kind = TD_ONNX_VALUE_MAP;
    for (bool more = true; more;) {
        TD_TRY(td_proto_next(r, &walk, &f, &more));
        if (!more) break;
        if (f.number == 2) {
            TD_TRY(td_proto_expect(r, &f, TD_WIRE_VARINT, "key_type"));
            if (f.u >= TD_DTYPE_END) return td_proto_fail(r, TREADLE_FORMAT, f.at, "a map has an unknown key type");
            out->dtype = (td_dtype)f.u;
        } else if (f.number == 3) {
            TD_TRY(td_proto_count_ints(r, &f, "keys", &n_ints));
        } else if (f.number == 4) {
            TD_TRY(td_proto_expect(r, &f, TD_WIRE_LEN, "string_keys"));
            n_strings++;
        } else if (f.number == 5) {
            TD_TRY(td_proto_expect(r, &f, TD_WIRE_LEN, "values"));
            *values = (td_onnx_value){0};
            TD_TRY(read_container(r, td_proto_inner(&f), TD_ONNX_VALUE_SEQUENCE, values));
        }
    }
    bool text = out->dtype == TD_STRING;
    size_t n_keys = text ? n_strings : n_ints, n = 0;
    if (n_keys != values->n)
        return td_proto_fail(r, TREADLE_FORMAT, w.p, "a map has %zu keys and %zu values", n_keys, values->n);
    int64_t *ints = TD_ARENA_ARRAY(r->arena, int64_t, text ? 0 : n_keys);
    td_str *strings = TD_ARENA_ARRAY(r->arena, td_str, text ? n_keys : 0);
    if (!ints || !strings) return td_proto_no_memory(r, "map keys", n_keys * sizeof *strings);
    for (bool more = true; more;) {
        TD_TRY(td_proto_next(r, &w, &f, &more));
        if (more && !text && f.number == 3) td_proto_append_ints(&f, ints, &n);
        else if (more && text && f.number == 4) strings[n++] = td_proto_text(&f);
    }
    out->items = values->items;
    out->n = values->n;
    out->int_keys = text ? NULL : ints;
    out->string_keys = text ? strings : NULL;
    return TREADLE_OK;
}

static treadle_status read_item(td_proto_reader *r, const td_wire_field *f, td_onnx_value *out) {
    td_wire w = td_proto_inner(f);
    switch (f->number - VALUES) {
    case ELEM_TENSOR: out->kind = TD_ONNX_VALUE_TENSOR; return td_proto_read(r, &td_proto_tensor, w, &out->tensor);
    case ELEM_SPARSE: return read_sparse_value(r, w, out);
    case ELEM_SEQUENCE: return read_container(r, w, TD_ONNX_VALUE_SEQUENCE, out);
    case ELEM_MAP: return read_map(r, w, out);
    default: return read_container(r, w, TD_ONNX_VALUE_OPTIONAL, out);
    }
}

static bool is_value_field(uint32_t number) {
    return number >= VALUES + ELEM_TENSOR && number <= VALUES + ELEM_OPTIONAL;
}

static treadle_status read_container_items(td_proto_reader *r, td_wire w, td_onnx_value_kind kind, td_onnx_value *out) {
    td_wire walk = w;
    td_wire_field f;
    uint32_t values_field = 0;
    out->kind = kind;
    for (bool more = true; more;) {
        TD_TRY(td_proto_next(r, &walk, &f, &more));
        if (!more) break;
        if (f.number == 1) {
            TD_TRY(td_proto_expect(r, &f, TD_WIRE_LEN, "name"));
            out->name = td_proto_text(&f);
        }
        if (!is_value_field(f.number)) continue;
        TD_TRY(td_proto_expect(r, &f, TD_WIRE_LEN, "values"));
        if (values_field && values_field != f.number)
            return td_proto_fail(r, TREADLE_FORMAT, f.at, "a sequence or optional mixes kinds of values");
        values_field = f.number;
        out->n++;
    }
    if (kind == TD_ONNX_VALUE_OPTIONAL && out->n > 1)
        return td_proto_fail(r, TREADLE_FORMAT, w.p, "an optional holds %zu values", out->n);
    td_onnx_value *items = TD_ARENA_ARRAY(r->arena, td_onnx_value, out->n);
    if (!items) return td_proto_no_memory(r, "a sequence", out->n * sizeof *items);
    out->items = items;
    size_t n = 0;
    for (bool more = true; more;) {
        TD_TRY(td_proto_next(r, &w, &f, &more));
        if (!more || !is_value_field(f.number)) continue;
        td_proto_frame frame = {r->top, "values", (int64_t)n};
        r->top = &frame;
        TD_TRY(read_item(r, &f, &items[n++]));
        r->top = frame.parent;
    }
    return TREADLE_OK;
}

static treadle_status read_container(td_proto_reader *r, td_wire w, td_onnx_value_kind kind, td_onnx_value *out) {
    if (r->depth >= TD_PROTO_MAX_DEPTH)
        return td_proto_fail(r, TREADLE_LIMIT, w.p, "values are nested more than %d deep", TD_PROTO_MAX_DEPTH);
    r->depth++;
    treadle_status status = read_container_items(r, w, kind, out);
    r->depth--;
    return status;
}

treadle_status td_onnx_parse_value(const void *bytes, size_t n, td_onnx_value_kind kind, td_arena *arena,
                                   td_onnx_value *out, treadle_error *err) {
    td_proto_reader r = {.arena = arena, .base = bytes, .err = err};
    td_wire w = {bytes, (const uint8_t *)bytes + n};
    *out = (td_onnx_value){.kind = kind};
    switch (kind) {
    case TD_ONNX_VALUE_TENSOR:
        TD_TRY(td_proto_read(&r, &td_proto_tensor, w, &out->tensor));
        out->name = out->tensor.name;
        return TREADLE_OK;
    case TD_ONNX_VALUE_SPARSE: return read_sparse_value(&r, w, out);
    case TD_ONNX_VALUE_MAP: return read_map(&r, w, out);
    default: return read_container(&r, w, kind, out);
    }
}
