/* onnx/read_attr.c - AttributeProto and TypeProto, the two messages with alternatives inside.
 *
 * An attribute is read into a struct with one count per list and then cut down to the one value that its type names;
 * files of IR version 1 have no type and get it from the field that is present. */
#include "onnx/proto.h"

typedef struct attr_raw {
    td_onnx_attr a;
    int type;
    const float *floats;
    const int64_t *ints;
    const td_str *strings;
    const td_onnx_tensor *tensors;
    const td_onnx_graph *graphs;
    const td_onnx_type *type_protos;
    const td_onnx_sparse_tensor *sparse_tensors;
    size_t n_floats, n_ints, n_strings, n_tensors, n_graphs, n_type_protos, n_sparse_tensors;
    uint64_t seen;
} attr_raw;

#define ONE(number, kind, member, name, message)                                                                       \
    { number, TD_PROTO_##kind, name, offsetof(attr_raw, member), 0, message }
#define MANY(number, kind, member, message)                                                                            \
    { number, TD_PROTO_##kind, #member, offsetof(attr_raw, member), offsetof(attr_raw, n_##member), message }

static const td_proto_field attr_fields[] = {
    ONE(1, STR, a.name, "name", NULL),
    ONE(2, FLOAT, a.f, "f", NULL),
    ONE(3, INT, a.i, "i", NULL),
    ONE(4, STR, a.s, "s", NULL),
    ONE(5, MSG_PTR, a.t, "t", &td_proto_tensor),
    ONE(6, MSG_PTR, a.g, "g", &td_proto_graph),
    MANY(7, FLOATS, floats, NULL),
    MANY(8, INTS, ints, NULL),
    MANY(9, STRS, strings, NULL),
    MANY(10, MSGS, tensors, &td_proto_tensor),
    MANY(11, MSGS, graphs, &td_proto_graph),
    ONE(14, MSG_PTR, a.tp, "tp", &td_proto_type),
    MANY(15, MSGS, type_protos, &td_proto_type),
    ONE(20, INT32, type, "type", NULL),
    ONE(21, STR, a.ref_attr_name, "ref_attr_name", NULL),
    ONE(22, MSG_PTR, a.sparse, "sparse_tensor", &td_proto_sparse),
    MANY(23, MSGS, sparse_tensors, &td_proto_sparse),
};
static const td_proto_message attr_table = {
    "AttributeProto",
    sizeof(attr_raw),
    _Alignof(attr_raw),
    attr_fields,
    TD_COUNT(attr_fields),
    offsetof(attr_raw, seen),
    NULL,
    NULL,
    NULL,
};

/* The type of each value field, for files that do not say. */
static const struct {
    uint32_t number;
    td_onnx_attr_type type;
} type_of_field[] = {
    {2, TD_ONNX_ATTR_FLOAT},          {3, TD_ONNX_ATTR_INT},
    {4, TD_ONNX_ATTR_STRING},         {5, TD_ONNX_ATTR_TENSOR},
    {6, TD_ONNX_ATTR_GRAPH},          {7, TD_ONNX_ATTR_FLOATS},
    {8, TD_ONNX_ATTR_INTS},           {9, TD_ONNX_ATTR_STRINGS},
    {10, TD_ONNX_ATTR_TENSORS},       {11, TD_ONNX_ATTR_GRAPHS},
    {14, TD_ONNX_ATTR_TYPE_PROTO},    {15, TD_ONNX_ATTR_TYPE_PROTOS},
    {22, TD_ONNX_ATTR_SPARSE_TENSOR}, {23, TD_ONNX_ATTR_SPARSE_TENSORS},
};

static int infer_type(uint64_t seen) {
    for (size_t i = 0; i < TD_COUNT(attr_fields); i++)
        for (size_t k = 0; k < TD_COUNT(type_of_field); k++)
            if (seen >> i & 1 && attr_fields[i].number == type_of_field[k].number) return (int)type_of_field[k].type;
    return TD_ONNX_ATTR_UNDEFINED;
}

treadle_status td_proto_read_attr(td_proto_reader *r, td_wire w, void *out) {
    attr_raw raw = {0};
    TD_TRY(td_proto_read(r, &attr_table, w, &raw));
    td_onnx_attr *a = out;
    *a = raw.a;
    if (a->name.n == 0) return td_proto_fail(r, TREADLE_FORMAT, w.p, "an attribute has no name");
    int type = raw.type ? raw.type : infer_type(raw.seen);
    if (type < 0 || type > TD_ONNX_ATTR_TYPE_PROTOS)
        return td_proto_fail(r, TREADLE_FORMAT, w.p, "attribute '%.*s' has type %d, expected 1 to %d",
                             TD_STR_ARGS(a->name), type, TD_ONNX_ATTR_TYPE_PROTOS);
    a->type = (td_onnx_attr_type)type;
    bool empty = false; /* a message is named but not there */
    switch (a->type) {
    case TD_ONNX_ATTR_TENSOR: empty = !a->t; break;
    case TD_ONNX_ATTR_GRAPH: empty = !a->g; break;
    case TD_ONNX_ATTR_SPARSE_TENSOR: empty = !a->sparse; break;
    case TD_ONNX_ATTR_TYPE_PROTO: empty = !a->tp; break;
    case TD_ONNX_ATTR_FLOATS: a->floats = raw.floats, a->n = raw.n_floats; break;
    case TD_ONNX_ATTR_INTS: a->ints = raw.ints, a->n = raw.n_ints; break;
    case TD_ONNX_ATTR_STRINGS: a->strings = raw.strings, a->n = raw.n_strings; break;
    case TD_ONNX_ATTR_TENSORS: a->tensors = raw.tensors, a->n = raw.n_tensors; break;
    case TD_ONNX_ATTR_GRAPHS: a->graphs = raw.graphs, a->n = raw.n_graphs; break;
    case TD_ONNX_ATTR_SPARSE_TENSORS: a->sparse = raw.sparse_tensors, a->n = raw.n_sparse_tensors; break;
    case TD_ONNX_ATTR_TYPE_PROTOS: a->type_protos = raw.type_protos, a->n = raw.n_type_protos; break;
    default: break;
    }
    if (empty && a->ref_attr_name.n == 0)
        return td_proto_fail(r, TREADLE_FORMAT, w.p, "attribute '%.*s' says type %d but holds no such value",
                             TD_STR_ARGS(a->name), type);
    return TREADLE_OK;
}

void td_proto_write_attr(td_wire_sink *s, const void *in) {
    attr_raw raw = {0};
    const td_onnx_attr *a = in;
    td_wire_put_str(s, 1, a->name);
    if (a->ref_attr_name.n == 0) {
        switch (a->type) {
        case TD_ONNX_ATTR_FLOAT: td_wire_put_float(s, 2, a->f); break;
        case TD_ONNX_ATTR_INT: td_wire_put_int(s, 3, a->i); break;
        case TD_ONNX_ATTR_STRING: td_wire_put_str(s, 4, a->s); break;
        case TD_ONNX_ATTR_TENSOR: raw.a.t = a->t; break;
        case TD_ONNX_ATTR_GRAPH: raw.a.g = a->g; break;
        case TD_ONNX_ATTR_FLOATS: raw.floats = a->floats, raw.n_floats = a->n; break;
        case TD_ONNX_ATTR_INTS: raw.ints = a->ints, raw.n_ints = a->n; break;
        case TD_ONNX_ATTR_STRINGS: raw.strings = a->strings, raw.n_strings = a->n; break;
        case TD_ONNX_ATTR_TENSORS: raw.tensors = a->tensors, raw.n_tensors = a->n; break;
        case TD_ONNX_ATTR_GRAPHS: raw.graphs = a->graphs, raw.n_graphs = a->n; break;
        case TD_ONNX_ATTR_TYPE_PROTO: raw.a.tp = a->tp; break;
        case TD_ONNX_ATTR_TYPE_PROTOS: raw.type_protos = a->type_protos, raw.n_type_protos = a->n; break;
        case TD_ONNX_ATTR_SPARSE_TENSOR: raw.a.sparse = a->sparse; break;
        case TD_ONNX_ATTR_SPARSE_TENSORS: raw.sparse_tensors = a->sparse, raw.n_sparse_tensors = a->n; break;
        case TD_ONNX_ATTR_UNDEFINED: break;
        }
    }
    raw.type = (int)a->type;
    raw.a.ref_attr_name = a->ref_attr_name;
    td_proto_write(s, &attr_table, &raw);
}

/* --- types */

static treadle_status read_dim(td_proto_reader *r, td_wire w, td_onnx_dim *dim) {
    td_wire_field f;
    dim->value = -1;
    for (bool more;;) {
        TD_TRY(td_proto_next(r, &w, &f, &more));
        if (!more) return TREADLE_OK;
        if (f.number == 1) {
            TD_TRY(td_proto_expect(r, &f, TD_WIRE_VARINT, "dim_value"));
            dim->value = (int64_t)f.u < 0 ? -1 : (int64_t)f.u; /* some exporters write -1 for unknown */
            dim->param = (td_str){NULL, 0};
        } else if (f.number == 2) {
            TD_TRY(td_proto_expect(r, &f, TD_WIRE_LEN, "dim_param"));
            dim->param = td_proto_text(&f);
            dim->value = -1;
        }
    }
}

static treadle_status read_shape(td_proto_reader *r, td_wire w, td_onnx_type *type) {
    td_wire_field f;
    td_wire walk = w;
    size_t n = 0;
    for (bool more;;) {
        TD_TRY(td_proto_next(r, &walk, &f, &more));
        if (!more) break;
        if (f.number == 1) {
            TD_TRY(td_proto_expect(r, &f, TD_WIRE_LEN, "dim"));
            n++;
        }
    }
    if (n > INT32_MAX) return td_proto_fail(r, TREADLE_FORMAT, w.p, "a shape has too many dimensions");
    td_onnx_dim *dims = n ? TD_ARENA_ARRAY(r->arena, td_onnx_dim, n) : NULL;
    if (n && !dims) return td_proto_no_memory(r, "a shape", n * sizeof *dims);
    for (size_t i = 0; i < n;) {
        bool more;
        TD_TRY(td_proto_next(r, &w, &f, &more));
        if (!more) break;
        if (f.number == 1) TD_TRY(read_dim(r, td_proto_inner(&f), &dims[i++]));
    }
    type->has_shape = true;
    type->rank = (int)n;
    type->dims = dims;
    return TREADLE_OK;
}

static treadle_status set_dtype(td_proto_reader *r, const td_wire_field *f, const char *name, td_dtype *out) {
    TD_TRY(td_proto_expect(r, f, TD_WIRE_VARINT, name));
    if (f->u != 0 && (f->u >= TD_DTYPE_END || td_dtype_bits((td_dtype)f->u) == 0))
        return td_proto_fail(r, TREADLE_UNSUPPORTED, f->at, "'%s' is element type %lld, expected 1 to %d", name,
                             (long long)(int64_t)f->u, TD_DTYPE_END - 1);
    *out = (td_dtype)f->u;
    return TREADLE_OK;
}

static treadle_status read_elem(td_proto_reader *r, const td_wire_field *f, const char *name, td_onnx_type *type) {
    TD_TRY(td_proto_expect(r, f, TD_WIRE_LEN, name));
    td_onnx_type *elem = TD_ARENA_NEW(r->arena, td_onnx_type);
    if (!elem) return td_proto_no_memory(r, "a type", sizeof *elem);
    type->elem = elem;
    td_proto_frame frame = {r->top, name, -1};
    r->top = &frame;
    TD_TRY(td_proto_read(r, &td_proto_type, td_proto_inner(f), elem));
    r->top = frame.parent;
    return TREADLE_OK;
}

/* The inside of one alternative: elem_type and shape, or elem_type as a type, or key and value types. */
static treadle_status read_alternative(td_proto_reader *r, td_wire w, td_onnx_type *type) {
    bool tensor = type->kind == TD_ONNX_TYPE_TENSOR || type->kind == TD_ONNX_TYPE_SPARSE;
    bool map = type->kind == TD_ONNX_TYPE_MAP;
    td_wire_field f;
    for (bool more;;) {
        TD_TRY(td_proto_next(r, &w, &f, &more));
        if (!more) return TREADLE_OK;
        if (f.number == 1 && (tensor || map)) TD_TRY(set_dtype(r, &f, map ? "key_type" : "elem_type", &type->dtype));
        else if (f.number == 1) TD_TRY(read_elem(r, &f, "elem_type", type));
        else if (f.number == 2 && map) TD_TRY(read_elem(r, &f, "value_type", type));
        else if (f.number == 2 && tensor) {
            TD_TRY(td_proto_expect(r, &f, TD_WIRE_LEN, "shape"));
            TD_TRY(read_shape(r, td_proto_inner(&f), type));
        }
    }
}

static const struct {
    uint32_t number;
    td_onnx_type_kind kind;
    const char *name;
} alternatives[] = {
    {1, TD_ONNX_TYPE_TENSOR, "tensor_type"},     {4, TD_ONNX_TYPE_SEQUENCE, "sequence_type"},
    {5, TD_ONNX_TYPE_MAP, "map_type"},           {8, TD_ONNX_TYPE_SPARSE, "sparse_tensor_type"},
    {9, TD_ONNX_TYPE_OPTIONAL, "optional_type"},
};

treadle_status td_proto_read_type(td_proto_reader *r, td_wire w, void *out) {
    td_onnx_type *type = out;
    td_wire_field f;
    for (bool more;;) {
        TD_TRY(td_proto_next(r, &w, &f, &more));
        if (!more) return TREADLE_OK;
        for (size_t i = 0; i < TD_COUNT(alternatives); i++) {
            if (alternatives[i].number != f.number) continue;
            TD_TRY(td_proto_expect(r, &f, TD_WIRE_LEN, alternatives[i].name));
            *type = (td_onnx_type){.kind = alternatives[i].kind};
            td_proto_frame frame = {r->top, alternatives[i].name, -1};
            r->top = &frame;
            TD_TRY(read_alternative(r, td_proto_inner(&f), type));
            r->top = frame.parent;
        }
    }
}

static void write_shape(td_wire_sink *s, const td_onnx_type *type) {
    for (int i = 0; i < type->rank; i++) {
        const td_onnx_dim *dim = &type->dims[i];
        td_wire_sink count = {0};
        if (dim->param.n) td_wire_put_str(&count, 2, dim->param);
        else if (dim->value >= 0) td_wire_put_int(&count, 1, dim->value);
        td_wire_put_tag(s, 1, TD_WIRE_LEN);
        td_wire_put_varint(s, count.n);
        if (dim->param.n) td_wire_put_str(s, 2, dim->param);
        else if (dim->value >= 0) td_wire_put_int(s, 1, dim->value);
    }
}

static void write_alternative(td_wire_sink *s, const td_onnx_type *type) {
    bool typed =
        type->kind == TD_ONNX_TYPE_TENSOR || type->kind == TD_ONNX_TYPE_SPARSE || type->kind == TD_ONNX_TYPE_MAP;
    if (typed && type->dtype) td_wire_put_int(s, 1, type->dtype);
    if (type->elem) td_proto_write_nested(s, type->kind == TD_ONNX_TYPE_MAP ? 2 : 1, &td_proto_type, type->elem);
    if (type->has_shape) {
        td_wire_sink count = {0};
        write_shape(&count, type);
        td_wire_put_tag(s, 2, TD_WIRE_LEN);
        td_wire_put_varint(s, count.n);
        write_shape(s, type);
    }
}

void td_proto_write_type(td_wire_sink *s, const void *in) {
    const td_onnx_type *type = in;
    for (size_t i = 0; i < TD_COUNT(alternatives); i++) {
        if (alternatives[i].kind != type->kind) continue;
        td_wire_sink count = {0};
        write_alternative(&count, type);
        td_wire_put_tag(s, alternatives[i].number, TD_WIRE_LEN);
        td_wire_put_varint(s, count.n);
        write_alternative(s, type);
    }
}
