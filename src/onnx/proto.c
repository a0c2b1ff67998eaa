/* onnx/proto.c - the tables of proto.h and the generic reader over them.
 *
 * A message is walked twice: once to count its repeated fields, once to fill exactly sized arrays, so the arena never
 * holds more than a fixed multiple of the file. Unknown fields are skipped. */
#include "onnx/proto.h"

#include <stdio.h>

#define FIELD(number, kind, type, member)                                                                              \
    { number, TD_PROTO_##kind, #member, offsetof(type, member), 0, NULL }
#define FIELD_AS(number, kind, type, member, name)                                                                     \
    { number, TD_PROTO_##kind, name, offsetof(type, member), 0, NULL }
#define MESSAGE(number, kind, type, member, name, message)                                                             \
    { number, TD_PROTO_##kind, name, offsetof(type, member), 0, &td_proto_##message }
#define LIST(number, kind, type, member, name)                                                                         \
    { number, TD_PROTO_##kind, name, offsetof(type, member), offsetof(type, n_##member), NULL }
#define MESSAGES(number, type, member, name, message)                                                                  \
    { number, TD_PROTO_MSGS, name, offsetof(type, member), offsetof(type, n_##member), &td_proto_##message }
#define TABLE(type, fields) sizeof(type), _Alignof(type), fields, TD_COUNT(fields), 0
#define NO_TABLE(type) sizeof(type), _Alignof(type), NULL, 0, 0

static treadle_status finish_node(td_proto_reader *r, td_wire w, void *out);
static treadle_status finish_opset(td_proto_reader *r, td_wire w, void *out);
static treadle_status finish_function(td_proto_reader *r, td_wire w, void *out);
static treadle_status read_sparse(td_proto_reader *r, td_wire w, void *out);

static const td_proto_field prop_fields[] = {FIELD(1, STR, td_onnx_prop, key), FIELD(2, STR, td_onnx_prop, value)};

/* Both strings are always written: an empty value is a value. */
static void write_prop(td_wire_sink *s, const void *in) {
    const td_onnx_prop *prop = in;
    td_wire_put_str(s, 1, prop->key);
    td_wire_put_str(s, 2, prop->value);
}
const td_proto_message td_proto_prop = {"StringStringEntryProto", TABLE(td_onnx_prop, prop_fields), NULL, NULL,
                                        write_prop};

static const td_proto_field opset_fields[] = {
    FIELD(1, STR, td_onnx_opset, domain),
    FIELD(2, INT, td_onnx_opset, version),
};
const td_proto_message td_proto_opset = {"OperatorSetIdProto", TABLE(td_onnx_opset, opset_fields), NULL, finish_opset,
                                         NULL};

static const td_proto_field value_info_fields[] = {
    FIELD(1, STR, td_onnx_value_info, name),
    MESSAGE(2, MSG, td_onnx_value_info, type, "type", type),
    MESSAGES(4, td_onnx_value_info, props, "metadata_props", prop),
};
const td_proto_message td_proto_value_info = {"ValueInfoProto", TABLE(td_onnx_value_info, value_info_fields), NULL,
                                              NULL, NULL};

static const td_proto_field node_fields[] = {
    LIST(1, STRS, td_onnx_node, inputs, "input"),
    LIST(2, STRS, td_onnx_node, outputs, "output"),
    FIELD(3, STR, td_onnx_node, name),
    FIELD(4, STR, td_onnx_node, op_type),
    MESSAGES(5, td_onnx_node, attrs, "attribute", attr),
    FIELD(7, STR, td_onnx_node, domain),
    FIELD(8, STR, td_onnx_node, overload),
    MESSAGES(9, td_onnx_node, props, "metadata_props", prop),
};
const td_proto_message td_proto_node = {"NodeProto", TABLE(td_onnx_node, node_fields), NULL, finish_node, NULL};

static const td_proto_field graph_fields[] = {
    MESSAGES(1, td_onnx_graph, nodes, "node", node),
    FIELD(2, STR, td_onnx_graph, name),
    MESSAGES(5, td_onnx_graph, initializers, "initializer", tensor),
    MESSAGES(11, td_onnx_graph, inputs, "input", value_info),
    MESSAGES(12, td_onnx_graph, outputs, "output", value_info),
    MESSAGES(13, td_onnx_graph, value_infos, "value_info", value_info),
    MESSAGES(15, td_onnx_graph, sparse_initializers, "sparse_initializer", sparse),
    MESSAGES(16, td_onnx_graph, props, "metadata_props", prop),
};
const td_proto_message td_proto_graph = {"GraphProto", TABLE(td_onnx_graph, graph_fields), NULL, NULL, NULL};

static const td_proto_field function_fields[] = {
    FIELD(1, STR, td_onnx_function, name),
    LIST(4, STRS, td_onnx_function, inputs, "input"),
    LIST(5, STRS, td_onnx_function, outputs, "output"),
    LIST(6, STRS, td_onnx_function, attr_names, "attribute"),
    MESSAGES(7, td_onnx_function, nodes, "node", node),
    MESSAGES(9, td_onnx_function, opsets, "opset_import", opset),
    FIELD(10, STR, td_onnx_function, domain),
    MESSAGES(11, td_onnx_function, attr_defaults, "attribute_proto", attr),
    MESSAGES(12, td_onnx_function, value_infos, "value_info", value_info),
    FIELD(13, STR, td_onnx_function, overload),
};
const td_proto_message td_proto_function = {"FunctionProto", TABLE(td_onnx_function, function_fields), NULL,
                                            finish_function, NULL};

static const td_proto_field model_fields[] = {
    FIELD(1, INT, td_onnx_model, ir_version),
    FIELD(2, STR, td_onnx_model, producer_name),
    FIELD(3, STR, td_onnx_model, producer_version),
    FIELD(4, STR, td_onnx_model, domain),
    FIELD(5, INT, td_onnx_model, model_version),
    FIELD(6, STR, td_onnx_model, doc_string),
    MESSAGE(7, MSG, td_onnx_model, graph, "graph", graph),
    MESSAGES(8, td_onnx_model, opsets, "opset_import", opset),
    MESSAGES(14, td_onnx_model, props, "metadata_props", prop),
    MESSAGES(25, td_onnx_model, functions, "functions", function),
};
const td_proto_message td_proto_model = {"ModelProto", TABLE(td_onnx_model, model_fields), NULL, NULL, NULL};

const td_proto_message td_proto_type = {"TypeProto", NO_TABLE(td_onnx_type), td_proto_read_type, NULL,
                                        td_proto_write_type};
const td_proto_message td_proto_tensor = {"TensorProto", NO_TABLE(td_onnx_tensor), td_proto_read_tensor, NULL,
                                          td_proto_write_tensor};
const td_proto_message td_proto_attr = {"AttributeProto", NO_TABLE(td_onnx_attr), td_proto_read_attr, NULL,
                                        td_proto_write_attr};

/* SparseTensorProto as its table sees it: dims have a size_t count, td_onnx_sparse_tensor an int rank. */
typedef struct sparse_raw {
    td_onnx_tensor values, indices;
    const int64_t *dims;
    size_t n_dims;
} sparse_raw;
static const td_proto_field sparse_fields[] = {
    MESSAGE(1, MSG, sparse_raw, values, "values", tensor),
    MESSAGE(2, MSG, sparse_raw, indices, "indices", tensor),
    LIST(3, INTS, sparse_raw, dims, "dims"),
};
static const td_proto_message sparse_table = {"SparseTensorProto", TABLE(sparse_raw, sparse_fields), NULL, NULL, NULL};

static void write_sparse(td_wire_sink *s, const void *in) {
    const td_onnx_sparse_tensor *t = in;
    sparse_raw raw = {t->values, t->indices, t->dims, (size_t)t->rank};
    td_proto_write(s, &sparse_table, &raw);
}
const td_proto_message td_proto_sparse = {"SparseTensorProto", NO_TABLE(td_onnx_sparse_tensor), read_sparse, NULL,
                                          write_sparse};

static treadle_status read_sparse(td_proto_reader *r, td_wire w, void *out) {
    td_onnx_sparse_tensor *t = out;
    sparse_raw raw = {0};
    TD_TRY(td_proto_read(r, &sparse_table, w, &raw));
    if (raw.values.dtype == TD_UNDEFINED || raw.indices.dtype == TD_UNDEFINED)
        return td_proto_fail(r, TREADLE_FORMAT, w.p, "a sparse tensor lacks its values or indices");
    if (raw.n_dims > INT32_MAX) return td_proto_fail(r, TREADLE_FORMAT, w.p, "a sparse tensor has too many dimensions");
    for (size_t i = 0; i < raw.n_dims; i++)
        if (raw.dims[i] < 0)
            return td_proto_fail(r, TREADLE_FORMAT, w.p, "dims[%zu] of a sparse tensor is negative", i);
    *t = (td_onnx_sparse_tensor){raw.values, raw.indices, (int)raw.n_dims, raw.dims};
    return TREADLE_OK;
}

td_str td_proto_domain(td_str domain) { return td_str_is(domain, "ai.onnx") ? (td_str){NULL, 0} : domain; }

static treadle_status finish_node(td_proto_reader *r, td_wire w, void *out) {
    td_onnx_node *node = out;
    node->domain = td_proto_domain(node->domain);
    if (node->op_type.n == 0) return td_proto_fail(r, TREADLE_FORMAT, w.p, "a node has no op_type");
    return TREADLE_OK;
}

static treadle_status finish_opset(td_proto_reader *r, td_wire w, void *out) {
    (void)r, (void)w;
    td_onnx_opset *opset = out;
    opset->domain = td_proto_domain(opset->domain);
    return TREADLE_OK;
}

static treadle_status finish_function(td_proto_reader *r, td_wire w, void *out) {
    td_onnx_function *function = out;
    function->domain = td_proto_domain(function->domain);
    if (function->name.n == 0) return td_proto_fail(r, TREADLE_FORMAT, w.p, "a function has no name");
    return TREADLE_OK;
}

/* --- errors */

/* "graph.node[3].attribute[1]", innermost part kept when the room is short. */
static void path_text(const td_proto_frame *top, char *out, size_t n) {
    const td_proto_frame *chain[TD_PROTO_MAX_DEPTH + 4];
    int count = 0;
    for (const td_proto_frame *f = top; f && count < (int)TD_COUNT(chain); f = f->parent) chain[count++] = f;
    size_t at = 0;
    out[0] = 0;
    for (int i = count - 1; i >= 0 && at < n; i--) {
        int wrote = chain[i]->index < 0 ? snprintf(out + at, n - at, "%s%s", at ? "." : "", chain[i]->name)
                                        : snprintf(out + at, n - at, "%s%s[%lld]", at ? "." : "", chain[i]->name,
                                                   (long long)chain[i]->index);
        if (wrote < 0) return;
        at += (size_t)wrote;
    }
}

treadle_status td_proto_fail(td_proto_reader *r, treadle_status code, const uint8_t *at, const char *format, ...) {
    char text[1024], path[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    td_fail(r->err, code, "%s (at byte offset %zu)", text, (size_t)(at - r->base));
    path_text(r->top, path, sizeof path);
    td_error_pointer(r->err, "%s", path);
    return code;
}

treadle_status td_proto_no_memory(td_proto_reader *r, const char *what, size_t bytes) {
    return td_fail_memory(r->err, what, bytes);
}

/* --- the generic reader */

treadle_status td_proto_next(td_proto_reader *r, td_wire *w, td_wire_field *out, bool *more) {
    const char *problem = NULL;
    int got = td_wire_next(w, out, &problem);
    *more = got > 0;
    return got < 0 ? td_proto_fail(r, TREADLE_FORMAT, w->p, "not a valid protobuf message: %s", problem) : TREADLE_OK;
}

treadle_status td_proto_expect(td_proto_reader *r, const td_wire_field *f, td_wire_type type, const char *name) {
    if (f->type == type) return TREADLE_OK;
    return td_proto_fail(r, TREADLE_FORMAT, f->at, "expected field '%s' (number %u) to be %s, found %s", name,
                         f->number, td_wire_type_name(type), td_wire_type_name(f->type));
}

treadle_status td_proto_count_ints(td_proto_reader *r, const td_wire_field *f, const char *name, size_t *n) {
    if (f->type == TD_WIRE_VARINT) {
        ++*n;
        return TREADLE_OK;
    }
    TD_TRY(td_proto_expect(r, f, TD_WIRE_LEN, name));
    td_wire w = td_proto_inner(f);
    while (w.p != w.end) {
        uint64_t value;
        if (!td_wire_varint(&w, &value))
            return td_proto_fail(r, TREADLE_FORMAT, w.p, "a number in '%s' is truncated or too long", name);
        ++*n;
    }
    return TREADLE_OK;
}

void td_proto_append_ints(const td_wire_field *f, int64_t *out, size_t *n) {
    if (f->type == TD_WIRE_VARINT) {
        out[(*n)++] = (int64_t)f->u;
        return;
    }
    td_wire w = td_proto_inner(f);
    uint64_t value;
    while (w.p != w.end && td_wire_varint(&w, &value)) out[(*n)++] = (int64_t)value;
}

static treadle_status count_floats(td_proto_reader *r, const td_wire_field *f, const char *name, size_t *n) {
    if (f->type == TD_WIRE_I32) {
        ++*n;
        return TREADLE_OK;
    }
    TD_TRY(td_proto_expect(r, f, TD_WIRE_LEN, name));
    if (f->n % 4) return td_proto_fail(r, TREADLE_FORMAT, f->at, "'%s' has %zu bytes, not a multiple of 4", name, f->n);
    *n += f->n / 4;
    return TREADLE_OK;
}

static float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void append_floats(const td_wire_field *f, float *out, size_t *n) {
    if (f->type == TD_WIRE_I32) {
        out[(*n)++] = float_of_bits((uint32_t)f->u);
        return;
    }
    for (size_t i = 0; i + 4 <= f->n; i += 4) out[(*n)++] = float_of_bits(td_wire_load32(f->data + i));
}

/* Bytes per item of a list field. */
static size_t item_bytes(const td_proto_field *field) {
    switch (field->kind) {
    case TD_PROTO_INTS: return sizeof(int64_t);
    case TD_PROTO_FLOATS: return sizeof(float);
    case TD_PROTO_STRS: return sizeof(td_str);
    default: return field->message->bytes;
    }
}

static int find_field(const td_proto_message *m, uint32_t number) {
    for (size_t i = 0; i < m->n_fields; i++)
        if (m->fields[i].number == number) return (int)i;
    return -1;
}

/* First walk: sizes of the lists, wire types checked, singular messages only once (protobuf would merge them; no writer
 * of ONNX does that and a merge would hide a damaged file). */
static treadle_status count_fields(td_proto_reader *r, const td_proto_message *m, td_wire w, size_t *counts) {
    td_wire_field f;
    for (bool more;;) {
        TD_TRY(td_proto_next(r, &w, &f, &more));
        if (!more) return TREADLE_OK;
        int i = find_field(m, f.number);
        if (i < 0) continue;
        const td_proto_field *field = &m->fields[i];
        switch (field->kind) {
        case TD_PROTO_INT:
        case TD_PROTO_INT32: TD_TRY(td_proto_expect(r, &f, TD_WIRE_VARINT, field->name)); break;
        case TD_PROTO_FLOAT: TD_TRY(td_proto_expect(r, &f, TD_WIRE_I32, field->name)); break;
        case TD_PROTO_INTS: TD_TRY(td_proto_count_ints(r, &f, field->name, &counts[i])); continue;
        case TD_PROTO_FLOATS: TD_TRY(count_floats(r, &f, field->name, &counts[i])); continue;
        default: TD_TRY(td_proto_expect(r, &f, TD_WIRE_LEN, field->name)); break;
        }
        if (counts[i]++ && (field->kind == TD_PROTO_MSG || field->kind == TD_PROTO_MSG_PTR))
            return td_proto_fail(r, TREADLE_FORMAT, f.at, "field '%s' of %s is given twice", field->name, m->name);
    }
}

static treadle_status make_lists(td_proto_reader *r, const td_proto_message *m, const size_t *counts, void **lists,
                                 char *out) {
    for (size_t i = 0; i < m->n_fields; i++) {
        const td_proto_field *field = &m->fields[i];
        if (counts[i] && m->seen_offset) *(uint64_t *)(void *)(out + m->seen_offset) |= (uint64_t)1 << i;
        if (field->kind < TD_PROTO_INTS || counts[i] == 0) continue;
        lists[i] = td_arena_array(r->arena, counts[i], item_bytes(field), _Alignof(max_align_t));
        if (!lists[i]) return td_proto_no_memory(r, field->name, counts[i]);
        *(void **)(void *)(out + field->offset) = lists[i];
        *(size_t *)(void *)(out + field->count_offset) = counts[i];
    }
    return TREADLE_OK;
}

static treadle_status read_nested(td_proto_reader *r, const td_proto_field *field, const td_wire_field *f,
                                  int64_t index, void *out) {
    td_proto_frame frame = {r->top, field->name, index};
    r->top = &frame;
    treadle_status status = td_proto_read(r, field->message, td_proto_inner(f), out);
    r->top = frame.parent;
    return status;
}

static treadle_status fill_field(td_proto_reader *r, const td_proto_field *field, const td_wire_field *f, void *list,
                                 size_t *filled, char *out) {
    void *place = out + field->offset;
    switch (field->kind) {
    case TD_PROTO_INT: *(int64_t *)place = (int64_t)f->u; return TREADLE_OK;
    case TD_PROTO_INT32: *(int *)place = (int)(int64_t)f->u; return TREADLE_OK;
    case TD_PROTO_FLOAT: *(float *)place = float_of_bits((uint32_t)f->u); return TREADLE_OK;
    case TD_PROTO_STR: *(td_str *)place = td_proto_text(f); return TREADLE_OK;
    case TD_PROTO_INTS: td_proto_append_ints(f, list, filled); return TREADLE_OK;
    case TD_PROTO_FLOATS: append_floats(f, list, filled); return TREADLE_OK;
    case TD_PROTO_STRS: ((td_str *)list)[(*filled)++] = td_proto_text(f); return TREADLE_OK;
    case TD_PROTO_MSG: return read_nested(r, field, f, -1, place);
    case TD_PROTO_MSGS: {
        size_t index = (*filled)++;
        return read_nested(r, field, f, (int64_t)index, (char *)list + index * field->message->bytes);
    }
    case TD_PROTO_MSG_PTR: {
        void *made = td_arena_alloc(r->arena, field->message->bytes, field->message->align);
        if (!made) return td_proto_no_memory(r, field->name, field->message->bytes);
        *(void **)place = made;
        return read_nested(r, field, f, -1, made);
    }
    }
    return TREADLE_OK;
}

static treadle_status read_table(td_proto_reader *r, const td_proto_message *m, td_wire w, void *out) {
    size_t counts[TD_PROTO_MAX_FIELDS] = {0}, filled[TD_PROTO_MAX_FIELDS] = {0};
    void *lists[TD_PROTO_MAX_FIELDS] = {0};
    td_wire walk = w;
    TD_TRY(count_fields(r, m, w, counts));
    TD_TRY(make_lists(r, m, counts, lists, out));
    td_wire_field f;
    for (bool more;;) {
        TD_TRY(td_proto_next(r, &walk, &f, &more));
        if (!more) break;
        int i = find_field(m, f.number);
        if (i >= 0) TD_TRY(fill_field(r, &m->fields[i], &f, lists[i], &filled[i], out));
    }
    return m->finish ? m->finish(r, w, out) : TREADLE_OK;
}

treadle_status td_proto_read(td_proto_reader *r, const td_proto_message *m, td_wire w, void *out) {
    if (r->depth >= TD_PROTO_MAX_DEPTH)
        return td_proto_fail(r, TREADLE_LIMIT, w.p, "messages are nested more than %d deep", TD_PROTO_MAX_DEPTH);
    r->depth++;
    treadle_status status = m->read ? m->read(r, w, out) : read_table(r, m, w, out);
    r->depth--;
    return status;
}
