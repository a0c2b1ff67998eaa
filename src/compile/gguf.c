/* compile/gguf.c - see gguf.h. */
#include "compile/gguf.h"

#include "base/alloc.h"

enum { MAX_NAME_BYTES = 65535, MAX_NESTING = 4 };

/* A cursor that cannot leave the file. */
typedef struct cursor {
    const uint8_t *base, *p, *end;
    treadle_error *err;
} cursor;

static const uint8_t type_bytes[TD_GGUF_TYPES] = {
    [TD_GGUF_UINT8] = 1,  [TD_GGUF_INT8] = 1,  [TD_GGUF_UINT16] = 2,  [TD_GGUF_INT16] = 2,
    [TD_GGUF_UINT32] = 4, [TD_GGUF_INT32] = 4, [TD_GGUF_FLOAT32] = 4, [TD_GGUF_BOOL] = 1,
    [TD_GGUF_UINT64] = 8, [TD_GGUF_INT64] = 8, [TD_GGUF_FLOAT64] = 8,
};

static const char *type_name(td_gguf_type type) {
    static const char *const names[] = {"uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
                                        "bool",  "string", "array",  "uint64", "int64",  "float64"};
    return (unsigned)type < TD_COUNT(names) ? names[type] : "unknown type";
}

static treadle_status truncated(const cursor *c, const char *what, uint64_t need) {
    return td_fail(c->err, TREADLE_FORMAT, "%s at byte offset %zu needs %llu bytes, the file has %zu left", what,
                   (size_t)(c->p - c->base), (unsigned long long)need, (size_t)(c->end - c->p));
}

static treadle_status take_u32(cursor *c, const char *what, uint32_t *out) {
    if (c->end - c->p < 4) return truncated(c, what, 4);
    memcpy(out, c->p, 4);
    c->p += 4;
    return TREADLE_OK;
}

static treadle_status take_u64(cursor *c, const char *what, uint64_t *out) {
    if (c->end - c->p < 8) return truncated(c, what, 8);
    memcpy(out, c->p, 8);
    c->p += 8;
    return TREADLE_OK;
}

static treadle_status take_bytes(cursor *c, const char *what, uint64_t n, const uint8_t **out) {
    if (n > (uint64_t)(c->end - c->p)) return truncated(c, what, n);
    *out = c->p;
    c->p += n;
    return TREADLE_OK;
}

static treadle_status take_string(cursor *c, const char *what, td_str *out) {
    uint64_t n = 0;
    const uint8_t *bytes = NULL;
    TD_TRY(take_u64(c, what, &n));
    TD_TRY(take_bytes(c, what, n, &bytes));
    *out = (td_str){(const char *)bytes, (size_t)n};
    return TREADLE_OK;
}

static treadle_status take_type(cursor *c, td_str key, td_gguf_type *out) {
    uint32_t type = 0;
    TD_TRY(take_u32(c, "a value type", &type));
    if (type >= TD_GGUF_TYPES)
        return td_fail(c->err, TREADLE_FORMAT, "key '%.*s' has value type %u, expected 0 to %d (at byte offset %zu)",
                       (int)TD_MIN(key.n, 200), key.p, type, TD_GGUF_TYPES - 1, (size_t)(c->p - 4 - c->base));
    *out = (td_gguf_type)type;
    return TREADLE_OK;
}

/* Steps over n elements; nested arrays have no accessor and are only checked. */
static treadle_status skip_elements(cursor *c, td_str key, td_gguf_type type, uint64_t n, int depth) {
    const uint8_t *bytes = NULL;
    uint64_t size;
    if (type_bytes[type]) {
        if (TD_MUL_OVERFLOWS(n, (uint64_t)type_bytes[type], &size)) size = UINT64_MAX;
        return take_bytes(c, "an array", size, &bytes);
    }
    if (n > (uint64_t)(c->end - c->p) / 8) return truncated(c, "an array", n);
    for (uint64_t i = 0; i < n; i++) {
        td_str text;
        if (type == TD_GGUF_STRING) {
            TD_TRY(take_string(c, "a string", &text));
            continue;
        }
        td_gguf_type inner = TD_GGUF_UINT8;
        uint64_t count = 0;
        if (depth == MAX_NESTING)
            return td_fail(c->err, TREADLE_LIMIT, "key '%.*s': arrays nested more than %d deep",
                           (int)TD_MIN(key.n, 200), key.p, MAX_NESTING);
        TD_TRY(take_type(c, key, &inner));
        TD_TRY(take_u64(c, "an array length", &count));
        TD_TRY(skip_elements(c, key, inner, count, depth + 1));
    }
    return TREADLE_OK;
}

static treadle_status read_array(td_gguf *g, cursor *c, td_gguf_value *v) {
    TD_TRY(take_type(c, v->key, &v->element));
    TD_TRY(take_u64(c, "an array length", &v->n));
    v->at = c->p;
    if (v->element != TD_GGUF_STRING) return skip_elements(c, v->key, v->element, v->n, 0);
    if (v->n > (uint64_t)(c->end - c->p) / 8) return truncated(c, "an array of strings", v->n);
    td_str *texts = TD_ARENA_ARRAY(&g->arena, td_str, (size_t)v->n);
    if (!texts) return td_fail_memory(c->err, "an array of strings", (size_t)v->n * sizeof *texts);
    for (uint64_t i = 0; i < v->n; i++) TD_TRY(take_string(c, "a string", &texts[i]));
    v->texts = texts;
    return TREADLE_OK;
}

static treadle_status read_value(td_gguf *g, cursor *c, td_gguf_value *v) {
    TD_TRY(take_string(c, "a key", &v->key));
    if (v->key.n == 0 || v->key.n > MAX_NAME_BYTES)
        return td_fail(c->err, TREADLE_FORMAT, "a key has %zu bytes, expected 1 to %d (at byte offset %zu)", v->key.n,
                       MAX_NAME_BYTES, (size_t)((const uint8_t *)v->key.p - c->base));
    TD_TRY(take_type(c, v->key, &v->type));
    v->at = c->p;
    if (v->type == TD_GGUF_ARRAY) return read_array(g, c, v);
    if (v->type == TD_GGUF_STRING) return take_string(c, "a string", &v->text);
    return take_bytes(c, "a value", type_bytes[v->type], &v->at);
}

static treadle_status read_values(td_gguf *g, cursor *c, uint64_t n) {
    /* A key-value pair takes 13 bytes at least: 8 of the key's length, 4 of the type, 1 of the value. */
    if (n > (uint64_t)(c->end - c->p) / 13)
        return td_fail(c->err, TREADLE_FORMAT, "the header says %llu key-value pairs, more than the file can hold",
                       (unsigned long long)n);
    td_gguf_value *values = TD_ARENA_ARRAY(&g->arena, td_gguf_value, (size_t)n);
    if (!values || !td_map_reserve(&g->value_index, (size_t)n))
        return td_fail_memory(c->err, "key-value pairs", (size_t)n * sizeof *values);
    g->values = values;
    for (uint64_t i = 0; i < n; i++) {
        TD_TRY(read_value(g, c, &values[i]));
        if (td_map_get(&g->value_index, values[i].key, NULL))
            return td_fail(c->err, TREADLE_FORMAT, "key '%.*s' is given twice", (int)TD_MIN(values[i].key.n, 200),
                           values[i].key.p);
        if (!td_map_set(&g->value_index, values[i].key, i)) return td_fail_memory(c->err, "key-value pairs", (size_t)n);
        g->n_values = (size_t)i + 1;
    }
    return TREADLE_OK;
}

static treadle_status find_format(const td_source_tensor *t, uint32_t type, const td_quant_format **out,
                                  treadle_error *err) {
    *out = td_quant_format_by_id(type);
    if (*out) return TREADLE_OK;
    const char *known = td_quant_unsupported_name(type);
    return td_fail(err, TREADLE_UNSUPPORTED, "tensor '%.*s' has weight type %u%s%s%s, which is not supported",
                   (int)TD_MIN(t->name.n, 200), t->name.p, type, known ? " (" : "", known ? known : "",
                   known ? ")" : "");
}

/* Name, dims and type; *offset counts from the start of the data section. */
static treadle_status read_tensor_info(cursor *c, td_source_tensor *t, uint64_t *offset) {
    uint32_t rank = 0, type = 0;
    TD_TRY(take_string(c, "a tensor name", &t->name));
    if (t->name.n == 0 || t->name.n > MAX_NAME_BYTES || memchr(t->name.p, 0, t->name.n))
        return td_fail(c->err, TREADLE_FORMAT, "a tensor name of %zu bytes is empty, too long or holds a NUL",
                       t->name.n);
    td_str name = {t->name.p, TD_MIN(t->name.n, 200)};
    TD_TRY(take_u32(c, "a tensor's rank", &rank));
    if (rank > 4)
        return td_fail(c->err, TREADLE_FORMAT, "tensor '%.*s' has %u dimensions, expected at most 4", TD_STR_ARGS(name),
                       rank);
    t->rank = (int)rank;
    int64_t rows = 1, count = 1;
    for (int i = 0; i < TD_SOURCE_RANK; i++) {
        uint64_t dim = 1;
        if (i < t->rank) TD_TRY(take_u64(c, "a tensor's dimension", &dim));
        if (dim == 0 || dim > INT64_MAX || TD_MUL_OVERFLOWS(count, (int64_t)dim, &count))
            return td_fail(c->err, TREADLE_FORMAT, "tensor '%.*s': dimension %d is %llu, which is zero or overflows",
                           TD_STR_ARGS(name), i, (unsigned long long)dim);
        t->dims[i] = (int64_t)dim;
        if (i > 0) rows *= (int64_t)dim;
    }
    TD_TRY(take_u32(c, "a tensor's type", &type));
    TD_TRY(take_u64(c, "a tensor's offset", offset));
    TD_TRY(find_format(t, type, &t->format, c->err));
    t->type = t->format->name;
    if (!td_quant_row_bytes(t->format, t->dims[0], &t->row_bytes) ||
        TD_MUL_OVERFLOWS(t->row_bytes, (size_t)rows, &t->bytes))
        return td_fail(c->err, TREADLE_FORMAT, "tensor '%.*s' of type %s has rows of %lld, expected a multiple of %d",
                       TD_STR_ARGS(name), t->format->name, (long long)t->dims[0], t->format->block);
    return TREADLE_OK;
}

static treadle_status place_tensors(td_gguf *g, cursor *c, const uint64_t *offsets) {
    size_t start = (size_t)(c->p - c->base), total = (size_t)(c->end - c->base);
    start = TD_ROUND_UP(start, g->alignment);
    for (size_t i = 0; i < g->source.tensors.n; i++) {
        td_source_tensor *t = &g->source.tensors.items[i];
        td_str name = {t->name.p, TD_MIN(t->name.n, 200)};
        if (offsets[i] % g->alignment)
            return td_fail(c->err, TREADLE_FORMAT, "tensor '%.*s' starts at %llu, no multiple of the alignment %zu",
                           TD_STR_ARGS(name), (unsigned long long)offsets[i], g->alignment);
        if (start > total || offsets[i] > total - start || t->bytes > total - start - offsets[i])
            return td_fail(c->err, TREADLE_FORMAT,
                           "tensor '%.*s' needs %zu bytes at offset %llu of the data, the file has %zu of data",
                           TD_STR_ARGS(name), t->bytes, (unsigned long long)offsets[i],
                           start > total ? 0 : total - start);
        t->data = c->base + start + offsets[i];
    }
    return TREADLE_OK;
}

static treadle_status read_tensors(td_gguf *g, cursor *c, uint64_t n) {
    /* Name length, rank, type and offset take 24 bytes. */
    if (n > (uint64_t)(c->end - c->p) / 24)
        return td_fail(c->err, TREADLE_FORMAT, "the header says %llu tensors, more than the file can hold",
                       (unsigned long long)n);
    uint64_t *offsets = TD_ARENA_ARRAY(&g->arena, uint64_t, (size_t)n);
    if (!offsets || !td_vec_reserve(&g->source.tensors, (size_t)n) || !td_map_reserve(&g->source.index, (size_t)n))
        return td_fail_memory(c->err, "tensors", (size_t)n * sizeof(td_source_tensor));
    for (uint64_t i = 0; i < n; i++) {
        td_source_tensor t = {0};
        TD_TRY(read_tensor_info(c, &t, &offsets[i]));
        TD_TRY(td_tensor_set_add(&g->source, &t, c->err));
    }
    return place_tensors(g, c, offsets);
}

static treadle_status read_file(td_gguf *g, cursor *c) {
    uint64_t n_tensors = 0, n_values = 0;
    int64_t alignment = 32;
    if (c->end - c->p < 4 || memcmp(c->p, "GGUF", 4) != 0)
        return td_fail(c->err, TREADLE_FORMAT, "not a GGUF file: its first four bytes are not 'GGUF'");
    c->p += 4;
    TD_TRY(take_u32(c, "the version", &g->version));
    if (g->version == 0x02000000 || g->version == 0x03000000)
        return td_fail(c->err, TREADLE_UNSUPPORTED, "this GGUF file is big-endian; only little-endian ones are read");
    if (g->version < 2 || g->version > 3)
        return td_fail(c->err, TREADLE_UNSUPPORTED, "GGUF version %u, expected 2 or 3", g->version);
    TD_TRY(take_u64(c, "the number of tensors", &n_tensors));
    TD_TRY(take_u64(c, "the number of key-value pairs", &n_values));
    TD_TRY(read_values(g, c, n_values));
    TD_TRY(td_gguf_get_int(g, "general.alignment", 1, 1 << 30, 32, &alignment, c->err));
    if (alignment & (alignment - 1))
        return td_fail(c->err, TREADLE_FORMAT, "general.alignment is %lld, expected a power of two",
                       (long long)alignment);
    g->alignment = (size_t)alignment;
    return read_tensors(g, c, n_tensors);
}

treadle_status td_gguf_parse(const void *bytes, size_t n, td_gguf **out, treadle_error *err) {
    td_gguf *g = td_alloc_zero(1, sizeof *g);
    if (!g) return td_fail_memory(err, "a GGUF file", sizeof *g);
    td_arena_init(&g->arena);
    cursor c = {bytes, bytes, (const uint8_t *)bytes + n, err};
    treadle_status status = read_file(g, &c);
    if (status == TREADLE_OK) *out = g;
    else td_gguf_close(g);
    return status;
}

treadle_status td_gguf_open(const char *path, td_gguf **out, treadle_error *err) {
    td_mmap map = {0};
    TD_TRY(td_mmap_open(path, &map, err));
    treadle_status status = td_gguf_parse(map.data, map.n, out, err);
    if (status == TREADLE_OK) {
        (*out)->map = map;
        return status;
    }
    td_mmap_close(&map);
    td_error_file(err, path);
    return status;
}

void td_gguf_close(td_gguf *gguf) {
    if (!gguf) return;
    td_map_free(&gguf->value_index);
    td_tensor_set_discard(&gguf->source);
    td_mmap_close(&gguf->map);
    td_arena_free(&gguf->arena);
    td_free(gguf);
}

/* --- access */

const td_gguf_value *td_gguf_find(const td_gguf *gguf, const char *key) {
    uint64_t index;
    return td_map_get(&gguf->value_index, td_str_from(key), &index) ? &gguf->values[index] : NULL;
}

/* Bytes of element `index`, or NULL if there is no such number. */
static const uint8_t *element_at(const td_gguf_value *v, uint64_t index, td_gguf_type *type) {
    bool array = v->type == TD_GGUF_ARRAY;
    *type = array ? v->element : v->type;
    if (type_bytes[*type] == 0 || index >= (array ? v->n : 1)) return NULL;
    return v->at + index * type_bytes[*type];
}

#define LOADER(type)                                                                                                   \
    static type load_##type(const uint8_t *p) {                                                                        \
        type value;                                                                                                    \
        memcpy(&value, p, sizeof value);                                                                               \
        return value;                                                                                                  \
    }
LOADER(uint16_t)
LOADER(int16_t)
LOADER(uint32_t)
LOADER(int32_t)
LOADER(uint64_t)
LOADER(int64_t)
LOADER(float)
LOADER(double)
#undef LOADER

bool td_gguf_int_at(const td_gguf_value *value, uint64_t index, int64_t *out) {
    td_gguf_type type;
    const uint8_t *p = element_at(value, index, &type);
    if (!p) return false;
    switch (type) {
    case TD_GGUF_UINT8: *out = *p; return true;
    case TD_GGUF_INT8: *out = (int8_t)*p; return true;
    case TD_GGUF_BOOL: *out = *p != 0; return true;
    case TD_GGUF_UINT16: *out = load_uint16_t(p); return true;
    case TD_GGUF_INT16: *out = load_int16_t(p); return true;
    case TD_GGUF_UINT32: *out = load_uint32_t(p); return true;
    case TD_GGUF_INT32: *out = load_int32_t(p); return true;
    case TD_GGUF_INT64: *out = load_int64_t(p); return true;
    case TD_GGUF_UINT64: {
        uint64_t u = load_uint64_t(p);
        *out = (int64_t)u;
        return u <= INT64_MAX;
    }
    default: return false;
    }
}

bool td_gguf_double_at(const td_gguf_value *value, uint64_t index, double *out) {
    td_gguf_type type;
    int64_t whole;
    const uint8_t *p = element_at(value, index, &type);
    if (!p) return false;
    if (type == TD_GGUF_FLOAT32) *out = (double)load_float(p);
    else if (type == TD_GGUF_FLOAT64) *out = load_double(p);
    else if (td_gguf_int_at(value, index, &whole)) *out = (double)whole;
    else return false;
    return true;
}

static treadle_status wrong_type(const td_gguf_value *v, const char *key, const char *wanted, treadle_error *err) {
    return td_fail(err, TREADLE_FORMAT, "key '%s' is %s, expected %s", key, type_name(v->type), wanted);
}

treadle_status td_gguf_get_int(const td_gguf *gguf, const char *key, int64_t low, int64_t high, int64_t fallback,
                               int64_t *out, treadle_error *err) {
    const td_gguf_value *v = td_gguf_find(gguf, key);
    *out = fallback;
    if (!v) return TREADLE_OK;
    if (v->type == TD_GGUF_ARRAY || !td_gguf_int_at(v, 0, out)) return wrong_type(v, key, "an integer", err);
    if (*out < low || *out > high)
        return td_fail(err, TREADLE_FORMAT, "key '%s' is %lld, expected %lld to %lld", key, (long long)*out,
                       (long long)low, (long long)high);
    return TREADLE_OK;
}

treadle_status td_gguf_get_double(const td_gguf *gguf, const char *key, double fallback, double *out,
                                  treadle_error *err) {
    const td_gguf_value *v = td_gguf_find(gguf, key);
    *out = fallback;
    if (!v) return TREADLE_OK;
    if (v->type == TD_GGUF_ARRAY || !td_gguf_double_at(v, 0, out)) return wrong_type(v, key, "a number", err);
    return TREADLE_OK;
}

treadle_status td_gguf_get_bool(const td_gguf *gguf, const char *key, bool fallback, bool *out, treadle_error *err) {
    const td_gguf_value *v = td_gguf_find(gguf, key);
    *out = fallback;
    if (!v) return TREADLE_OK;
    if (v->type != TD_GGUF_BOOL) return wrong_type(v, key, "bool", err);
    *out = *v->at != 0;
    return TREADLE_OK;
}

treadle_status td_gguf_get_text(const td_gguf *gguf, const char *key, td_str fallback, td_str *out,
                                treadle_error *err) {
    const td_gguf_value *v = td_gguf_find(gguf, key);
    *out = fallback;
    if (!v) return TREADLE_OK;
    if (v->type != TD_GGUF_STRING) return wrong_type(v, key, "a string", err);
    *out = v->text;
    return TREADLE_OK;
}
