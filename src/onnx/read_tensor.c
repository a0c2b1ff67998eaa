/* onnx/read_tensor.c - TensorProto: every storage form becomes dense little-endian bytes.
 *
 * raw_data and external data stay where they are when their address fits the element's alignment; otherwise, and for
 * the varint forms, they are copied into the arena, whose size is thus bounded by that of the file. Little-endian hosts
 * only, which are all that treadle is built for. */
#include "onnx/proto.h"
#include "tensor/shape.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensor bytes are used in place: little-endian hosts only"
#endif

struct td_onnx_file {
    td_str location;
    td_mmap map;
    td_onnx_file *next;
};

/* Field numbers of TensorProto. */
enum {
    DIMS = 1,
    DATA_TYPE = 2,
    SEGMENT = 3,
    FLOAT_DATA = 4,
    INT32_DATA = 5,
    STRING_DATA = 6,
    INT64_DATA = 7,
    NAME = 8,
    RAW_DATA = 9,
    DOUBLE_DATA = 10,
    UINT64_DATA = 11,
    EXTERNAL_DATA = 13,
    DATA_LOCATION = 14,
};

/* What one walk over the message finds. Typed data may come in several pieces; n_values counts all of them. */
typedef struct tensor_parts {
    size_t n_dims, n_strings, n_external;
    size_t n_values;
    uint32_t values_field; /* the one typed field present, 0: none */
    td_wire_field piece;   /* its last piece */
    size_t n_pieces;
    bool has_raw, external;
    td_wire_field raw;
} tensor_parts;

static const char *field_name(uint32_t number) {
    switch (number) {
    case FLOAT_DATA: return "float_data";
    case INT32_DATA: return "int32_data";
    case INT64_DATA: return "int64_data";
    case DOUBLE_DATA: return "double_data";
    case UINT64_DATA: return "uint64_data";
    default: return "string_data";
    }
}

/* Bytes of one entry of a fixed-width field; 0: varints. */
static size_t fixed_width(uint32_t number) { return number == FLOAT_DATA ? 4 : number == DOUBLE_DATA ? 8 : 0; }

static treadle_status count_values(td_proto_reader *r, const td_wire_field *f, tensor_parts *found) {
    const char *name = field_name(f->number);
    size_t width = fixed_width(f->number);
    if (found->values_field && found->values_field != f->number)
        return td_proto_fail(r, TREADLE_FORMAT, f->at, "a tensor holds both %s and %s", field_name(found->values_field),
                             name);
    found->values_field = f->number;
    found->piece = *f;
    found->n_pieces++;
    if (width == 0) return td_proto_count_ints(r, f, name, &found->n_values);
    if (f->type == (width == 4 ? TD_WIRE_I32 : TD_WIRE_I64)) {
        found->n_values++;
        return TREADLE_OK;
    }
    TD_TRY(td_proto_expect(r, f, TD_WIRE_LEN, name));
    if (f->n % width)
        return td_proto_fail(r, TREADLE_FORMAT, f->at, "'%s' has %zu bytes, not a multiple of %zu", name, f->n, width);
    found->n_values += f->n / width;
    return TREADLE_OK;
}

static treadle_status walk_tensor(td_proto_reader *r, td_wire w, tensor_parts *found, td_onnx_tensor *t) {
    td_wire_field f;
    for (bool more;;) {
        TD_TRY(td_proto_next(r, &w, &f, &more));
        if (!more) return TREADLE_OK;
        switch (f.number) {
        case DIMS: TD_TRY(td_proto_count_ints(r, &f, "dims", &found->n_dims)); break;
        case DATA_TYPE:
            TD_TRY(td_proto_expect(r, &f, TD_WIRE_VARINT, "data_type"));
            if (f.u == 0 || f.u >= TD_DTYPE_END)
                return td_proto_fail(r, f.u ? TREADLE_UNSUPPORTED : TREADLE_FORMAT, f.at,
                                     "a tensor has element type %lld, expected 1 to %d", (long long)(int64_t)f.u,
                                     TD_DTYPE_END - 1);
            t->dtype = (td_dtype)f.u;
            break;
        case SEGMENT:
            return td_proto_fail(r, TREADLE_UNSUPPORTED, f.at,
                                 "a tensor is stored in segments, which ONNX no longer uses");
        case NAME:
            TD_TRY(td_proto_expect(r, &f, TD_WIRE_LEN, "name"));
            t->name = td_proto_text(&f);
            break;
        case RAW_DATA:
            TD_TRY(td_proto_expect(r, &f, TD_WIRE_LEN, "raw_data"));
            found->has_raw = true;
            found->raw = f;
            break;
        case STRING_DATA:
            TD_TRY(td_proto_expect(r, &f, TD_WIRE_LEN, "string_data"));
            found->n_strings++;
            break;
        case EXTERNAL_DATA:
            TD_TRY(td_proto_expect(r, &f, TD_WIRE_LEN, "external_data"));
            found->n_external++;
            break;
        case DATA_LOCATION:
            TD_TRY(td_proto_expect(r, &f, TD_WIRE_VARINT, "data_location"));
            if (f.u > 1)
                return td_proto_fail(r, TREADLE_FORMAT, f.at, "data_location is %llu, expected 0 or 1",
                                     (unsigned long long)f.u);
            found->external = f.u == 1;
            break;
        case FLOAT_DATA:
        case INT32_DATA:
        case INT64_DATA:
        case DOUBLE_DATA:
        case UINT64_DATA: TD_TRY(count_values(r, &f, found)); break;
        default: break;
        }
    }
}

static treadle_status read_dims(td_proto_reader *r, td_wire w, const tensor_parts *found, td_onnx_tensor *t) {
    const uint8_t *at = w.p;
    int64_t *dims = found->n_dims ? TD_ARENA_ARRAY(r->arena, int64_t, found->n_dims) : NULL;
    if (found->n_dims && !dims) return td_proto_no_memory(r, "dims", found->n_dims * sizeof *dims);
    if (found->n_dims > INT32_MAX) return td_proto_fail(r, TREADLE_FORMAT, at, "a tensor has too many dimensions");
    size_t n = 0;
    td_wire_field f;
    for (bool more = true; more;) {
        TD_TRY(td_proto_next(r, &w, &f, &more));
        if (more && f.number == DIMS) td_proto_append_ints(&f, dims, &n);
    }
    t->rank = (int)n;
    t->dims = dims;
    t->count = 1;
    bool empty = false;
    for (size_t i = 0; i < n; i++) {
        if (dims[i] < 0)
            return td_proto_fail(r, TREADLE_FORMAT, at, "tensor '%.*s': dims[%zu] is %lld, expected 0 or more",
                                 TD_STR_ARGS(t->name), i, (long long)dims[i]);
        empty |= dims[i] == 0;
        /* An empty tensor's other dimensions too: see td_shape_count. */
        if (TD_MUL_OVERFLOWS(t->count, TD_MAX(dims[i], (int64_t)1), &t->count) || t->count > TD_MAX_COUNT)
            return td_proto_fail(r, TREADLE_FORMAT, at, "tensor '%.*s': its number of elements overflows",
                                 TD_STR_ARGS(t->name));
    }
    if (empty) t->count = 0;
    if (!td_dtype_bytes(t->dtype, t->count, &t->data_bytes))
        return td_proto_fail(r, TREADLE_FORMAT, at, "tensor '%.*s': its size overflows", TD_STR_ARGS(t->name));
    return TREADLE_OK;
}

/* Bytes that an element's address must be a multiple of. */
static size_t element_align(td_dtype dtype) {
    int bits = td_dtype_bits(dtype);
    if (td_dtype_kind(dtype) == TD_KIND_COMPLEX) bits /= 2;
    return bits <= 8 ? 1 : (size_t)bits / 8;
}

static bool is_left_out(const td_proto_reader *r, const td_onnx_tensor *t) {
    return r->data == TD_ONNX_DATA_SMALL && t->data_bytes > TD_ONNX_SMALL_BYTES;
}

/* Uses the bytes in place if they are aligned, else copies them. n may be 0. */
static treadle_status take_bytes(td_proto_reader *r, const uint8_t *p, size_t n, td_onnx_tensor *t) {
    if (is_left_out(r, t)) return TREADLE_OK;
    size_t align = element_align(t->dtype);
    if (n && (uintptr_t)p % align == 0) {
        t->data = p;
        return TREADLE_OK;
    }
    void *copy = td_arena_alloc(r->arena, n, 64);
    if (!copy) return td_proto_no_memory(r, "tensor data", n);
    if (n) memcpy(copy, p, n);
    if (r->model && td_onnx_in_file(r->model, p, n)) td_mmap_drop(p, n); /* the whole of a model would stand twice */
    t->data = copy;
    return TREADLE_OK;
}

/* The field that typed data of a dtype lies in, and how many entries `count` elements take there. */
static uint32_t typed_field(td_dtype dtype, int64_t count, uint64_t *entries) {
    *entries = (uint64_t)count;
    switch (dtype) {
    case TD_FLOAT: return FLOAT_DATA;
    case TD_COMPLEX64: *entries *= 2; return FLOAT_DATA;
    case TD_DOUBLE: return DOUBLE_DATA;
    case TD_COMPLEX128: *entries *= 2; return DOUBLE_DATA;
    case TD_INT64: return INT64_DATA;
    case TD_UINT32:
    case TD_UINT64: return UINT64_DATA;
    default: break;
    }
    int bits = td_dtype_bits(dtype);
    if (bits < 8) *entries = ((uint64_t)count * (uint64_t)bits + 7) / 8; /* an entry is one packed byte */
    return INT32_DATA;
}

static void store_int(td_dtype dtype, uint8_t *out, size_t index, uint64_t value) {
    int bits = td_dtype_bits(dtype);
    size_t width = bits < 8 ? 1 : (size_t)bits / 8;
    memcpy(out + index * width, &value, width); /* little endian: the low bytes */
}

static treadle_status take_typed(td_proto_reader *r, td_wire w, const tensor_parts *found, td_onnx_tensor *t) {
    uint64_t entries;
    uint32_t field = typed_field(t->dtype, t->count, &entries);
    if (found->values_field && found->values_field != field)
        return td_proto_fail(r, TREADLE_FORMAT, found->piece.at, "tensor '%.*s' of type %s holds %s, expected %s",
                             TD_STR_ARGS(t->name), td_dtype_name(t->dtype), field_name(found->values_field),
                             field_name(field));
    if (found->n_values != entries)
        return td_proto_fail(r, TREADLE_FORMAT, w.p,
                             "tensor '%.*s' of type %s holds %zu entries of %s, its dims need %llu",
                             TD_STR_ARGS(t->name), td_dtype_name(t->dtype), found->n_values, field_name(field),
                             (unsigned long long)entries);
    if (is_left_out(r, t)) return TREADLE_OK;
    size_t width = fixed_width(field);
    if (found->n_pieces == 1 && width && found->piece.type == TD_WIRE_LEN)
        return take_bytes(r, found->piece.data, found->piece.n, t);
    uint8_t *out = td_arena_alloc(r->arena, t->data_bytes, 64);
    if (!out) return td_proto_no_memory(r, "tensor data", t->data_bytes);
    t->data = out;
    size_t n = 0;
    td_wire_field f;
    for (bool more = true; more;) {
        TD_TRY(td_proto_next(r, &w, &f, &more));
        if (!more || f.number != field) continue;
        td_wire values = td_proto_inner(&f);
        if (width && f.type == TD_WIRE_LEN) {
            if (f.n) memcpy(out + n * width, f.data, f.n);
            n += f.n / width;
        } else if (width) {
            memcpy(out + n++ * width, &f.u, width);
        } else if (f.type == TD_WIRE_VARINT) {
            store_int(t->dtype, out, n++, f.u);
        } else {
            for (uint64_t value; values.p != values.end && td_wire_varint(&values, &value);)
                store_int(t->dtype, out, n++, value);
        }
    }
    return TREADLE_OK;
}

static treadle_status take_strings(td_proto_reader *r, td_wire w, const tensor_parts *found, td_onnx_tensor *t) {
    if ((uint64_t)t->count != found->n_strings)
        return td_proto_fail(r, TREADLE_FORMAT, w.p, "tensor '%.*s' holds %zu strings, its dims need %lld",
                             TD_STR_ARGS(t->name), found->n_strings, (long long)t->count);
    td_str *strings = TD_ARENA_ARRAY(r->arena, td_str, found->n_strings);
    if (!strings) return td_proto_no_memory(r, "strings", found->n_strings * sizeof *strings);
    td_wire_field f;
    size_t n = 0;
    for (bool more = true; more;) {
        TD_TRY(td_proto_next(r, &w, &f, &more));
        if (more && f.number == STRING_DATA) strings[n++] = td_proto_text(&f);
    }
    t->data = strings;
    return TREADLE_OK;
}

/* --- external data */

static treadle_status read_number(td_proto_reader *r, const td_wire_field *f, td_onnx_prop entry, uint64_t *out) {
    *out = 0;
    if (entry.value.n == 0)
        return td_proto_fail(r, TREADLE_FORMAT, f->at, "external_data '%.*s' is empty", TD_STR_ARGS(entry.key));
    for (size_t i = 0; i < entry.value.n; i++) {
        char c = entry.value.p[i];
        if (c < '0' || c > '9' || TD_MUL_OVERFLOWS(*out, (uint64_t)10, out) ||
            TD_ADD_OVERFLOWS(*out, (uint64_t)(c - '0'), out))
            return td_proto_fail(r, TREADLE_FORMAT, f->at, "external_data '%.*s' is '%.*s', expected a number",
                                 TD_STR_ARGS(entry.key), TD_STR_ARGS(entry.value));
    }
    return TREADLE_OK;
}

static treadle_status read_entries(td_proto_reader *r, td_wire w, td_onnx_tensor *t, bool *has_length) {
    td_wire_field f;
    for (bool more;;) {
        TD_TRY(td_proto_next(r, &w, &f, &more));
        if (!more) return TREADLE_OK;
        if (f.number != EXTERNAL_DATA) continue;
        td_onnx_prop entry = {0};
        TD_TRY(td_proto_read(r, &td_proto_prop, td_proto_inner(&f), &entry));
        if (td_str_is(entry.key, "location")) t->location = entry.value;
        else if (td_str_is(entry.key, "offset")) TD_TRY(read_number(r, &f, entry, &t->offset));
        else if (td_str_is(entry.key, "length")) {
            TD_TRY(read_number(r, &f, entry, &t->length));
            *has_length = true;
        }
    }
}

static treadle_status open_external(td_proto_reader *r, const uint8_t *at, td_str location, td_onnx_file **out) {
    for (td_onnx_file *file = r->model->files; file; file = file->next)
        if (td_str_equal(file->location, location)) return *out = file, TREADLE_OK;
    char *path = NULL;
    treadle_status status = td_path_resolve_inside(r->arena, r->base_dir, location, &path, r->err);
    td_onnx_file *file = status ? NULL : TD_ARENA_NEW(r->arena, td_onnx_file);
    if (status == TREADLE_OK && !file) return td_proto_no_memory(r, "external data", sizeof *file);
    if (status == TREADLE_OK) status = td_mmap_open(path, &file->map, r->err);
    if (status != TREADLE_OK) {
        treadle_error cause = {0};
        if (r->err) cause = *r->err;
        return td_proto_fail(r, status, at, "external data '%.*s': %s", TD_STR_ARGS(location), cause.message);
    }
    file->location = location;
    file->next = r->model->files;
    r->model->files = file;
    return *out = file, TREADLE_OK;
}

static treadle_status take_external(td_proto_reader *r, td_wire w, td_onnx_tensor *t) {
    bool has_length = false;
    t->is_external = true;
    TD_TRY(read_entries(r, w, t, &has_length));
    if (t->location.n == 0)
        return td_proto_fail(r, TREADLE_FORMAT, w.p, "tensor '%.*s': external_data has no location",
                             TD_STR_ARGS(t->name));
    if (t->dtype == TD_STRING)
        return td_proto_fail(r, TREADLE_FORMAT, w.p, "tensor '%.*s': strings cannot be external data",
                             TD_STR_ARGS(t->name));
    if (has_length && t->length != t->data_bytes)
        return td_proto_fail(r, TREADLE_FORMAT, w.p,
                             "tensor '%.*s' has %llu bytes of external data, its type and dims need %zu",
                             TD_STR_ARGS(t->name), (unsigned long long)t->length, t->data_bytes);
    t->length = t->data_bytes;
    if (r->data != TD_ONNX_DATA_ALL) return TREADLE_OK;
    if (!r->model || !r->base_dir)
        return td_proto_fail(r, TREADLE_INVALID_ARGUMENT, w.p,
                             "tensor '%.*s' lies in file '%.*s', but there is no folder to look in",
                             TD_STR_ARGS(t->name), TD_STR_ARGS(t->location));
    td_onnx_file *file;
    TD_TRY(open_external(r, w.p, t->location, &file));
    if (t->offset > file->map.n || t->length > file->map.n - t->offset)
        return td_proto_fail(r, TREADLE_FORMAT, w.p,
                             "tensor '%.*s' needs bytes %llu to %llu of '%.*s', which has only %zu",
                             TD_STR_ARGS(t->name), (unsigned long long)t->offset,
                             (unsigned long long)(t->offset + t->length), TD_STR_ARGS(t->location), file->map.n);
    return take_bytes(r, file->map.data + t->offset, t->data_bytes, t);
}

void td_onnx_drop(const td_onnx_model *model) {
    td_mmap_drop(model->map.data, model->map.n);
    for (const td_onnx_file *file = model->files; file; file = file->next) td_mmap_drop(file->map.data, file->map.n);
}

void td_onnx_files_close(td_onnx_file *files) {
    for (; files; files = files->next) td_mmap_close(&files->map);
}

static bool inside(const td_mmap *map, const void *bytes, size_t n) {
    uintptr_t at = (uintptr_t)bytes, begin = (uintptr_t)map->data;
    return map->n > 0 && at >= begin && n <= map->n && at - begin <= map->n - n;
}

bool td_onnx_in_file(const td_onnx_model *model, const void *bytes, size_t n) {
    bool found = inside(&model->map, bytes, n);
    for (const td_onnx_file *file = model->files; file && !found; file = file->next)
        found = inside(&file->map, bytes, n);
    return found;
}

treadle_status td_proto_read_tensor(td_proto_reader *r, td_wire w, void *out) {
    td_onnx_tensor *t = out;
    tensor_parts found = {0};
    TD_TRY(walk_tensor(r, w, &found, t));
    if (t->dtype == TD_UNDEFINED)
        return td_proto_fail(r, TREADLE_FORMAT, w.p, "tensor '%.*s' has no data_type", TD_STR_ARGS(t->name));
    TD_TRY(read_dims(r, w, &found, t));
    if (found.external) return take_external(r, w, t);
    if (found.n_external)
        return td_proto_fail(r, TREADLE_FORMAT, w.p,
                             "tensor '%.*s' names external data but its data_location is not EXTERNAL",
                             TD_STR_ARGS(t->name));
    if (t->dtype == TD_STRING) {
        if (found.has_raw && found.raw.n)
            return td_proto_fail(r, TREADLE_FORMAT, found.raw.at,
                                 "a string tensor holds raw_data, expected string_data");
        return take_strings(r, w, &found, t);
    }
    if (!found.has_raw || (found.raw.n == 0 && found.values_field)) return take_typed(r, w, &found, t);
    if (found.raw.n != t->data_bytes)
        return td_proto_fail(r, TREADLE_FORMAT, found.raw.at,
                             "tensor '%.*s' of type %s has %zu bytes of raw_data, its dims need %zu",
                             TD_STR_ARGS(t->name), td_dtype_name(t->dtype), found.raw.n, t->data_bytes);
    return take_bytes(r, found.raw.data, found.raw.n, t);
}

static void write_entry(td_wire_sink *s, const char *key, td_str value) {
    td_onnx_prop entry = {td_str_from(key), value};
    td_proto_write_nested(s, EXTERNAL_DATA, &td_proto_prop, &entry);
}

static td_str number_text(uint64_t value, char out[24]) {
    size_t at = 24;
    do out[--at] = (char)('0' + value % 10);
    while (value /= 10);
    return (td_str){out + at, 24 - at};
}

/* Numeric data is always written as raw_data. */
void td_proto_write_tensor(td_wire_sink *s, const void *in) {
    const td_onnx_tensor *t = in;
    char number[24];
    for (int i = 0; i < t->rank; i++) td_wire_put_int(s, DIMS, t->dims[i]);
    td_wire_put_int(s, DATA_TYPE, t->dtype);
    if (t->dtype == TD_STRING)
        for (int64_t i = 0; i < t->count; i++) td_wire_put_str(s, STRING_DATA, ((const td_str *)t->data)[i]);
    if (t->name.n) td_wire_put_str(s, NAME, t->name);
    if (t->is_external) {
        write_entry(s, "location", t->location);
        write_entry(s, "offset", number_text(t->offset, number));
        write_entry(s, "length", number_text(t->length, number));
        td_wire_put_int(s, DATA_LOCATION, 1);
    } else if (t->dtype != TD_STRING) {
        td_wire_put_str(s, RAW_DATA, (td_str){t->data, t->data_bytes});
    }
}
