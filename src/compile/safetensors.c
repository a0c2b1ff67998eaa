/* compile/safetensors.c - see safetensors.h. */
#include "compile/safetensors.h"

#include "base/alloc.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>

enum { LENGTH_BYTES = 8, MAX_HEADER_BYTES = 100000000, NAME_SHOWN = 200 };

/* Types that exist; those without a row in quant/formats.inc of that name are of use to no part. */
static const struct {
    const char *name;
    int bits;
} types[] = {
    {"F64", 64}, {"F32", 32},    {"F16", 16},    {"BF16", 16},       {"I64", 64}, {"U64", 64},
    {"I32", 32}, {"U32", 32},    {"I16", 16},    {"U16", 16},        {"I8", 8},   {"U8", 8},
    {"BOOL", 8}, {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8},     {"C64", 64}, {"F8_E4M3FNUZ", 8},
    {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F8_E5M2FNUZ", 8},
};

typedef struct reader {
    td_str text;         /* the header */
    const uint8_t *data; /* the tensors' bytes */
    uint64_t data_bytes;
    treadle_error *err;
} reader;

/* A failure in the description of a tensor, at the place of `at` in the header. */
static treadle_status wrong(const reader *r, const td_json *entry, const td_json *at, treadle_status code,
                            const char *expected, const char *found) {
    td_buf pointer = {0};
    uint32_t line, column;
    td_json_pointer(at, &pointer);
    td_text_place(r->text, at->offset, &line, &column);
    td_fail(r->err, code, "tensor '%.*s': expected %s, found %s", (int)TD_MIN(entry->key.n, (size_t)NAME_SHOWN),
            entry->key.p, expected, found);
    if (pointer.p && !pointer.failed) td_error_pointer(r->err, "%s", pointer.p);
    td_error_place(r->err, line, column);
    td_buf_free(&pointer);
    return code;
}

static treadle_status member(const reader *r, const td_json *entry, const char *key, td_json_kind kind,
                             const char *expected, const td_json **out) {
    *out = td_json_get(entry, key);
    if (!*out) return wrong(r, entry, entry, TREADLE_FORMAT, expected, "none");
    if ((*out)->kind != kind) return wrong(r, entry, *out, TREADLE_FORMAT, expected, td_json_kind_name((*out)->kind));
    return TREADLE_OK;
}

/* The items of an array of no more than TD_SOURCE_RANK integers from 0 to 2^63 - 1. */
static treadle_status read_sizes(const reader *r, const td_json *entry, const td_json *array, int64_t *out) {
    for (const td_json *v = array->first; v; v = v->next, out++) {
        if (v->kind != TD_JSON_INT || v->as_int < 0)
            return wrong(r, entry, v, TREADLE_FORMAT, "an integer from 0 to 2^63 - 1",
                         v->kind == TD_JSON_INT ? "a negative one" : td_json_kind_name(v->kind));
        *out = v->as_int;
    }
    return TREADLE_OK;
}

static treadle_status read_type(const reader *r, const td_json *entry, td_source_tensor *t, int *bits) {
    const td_json *dtype;
    char found[64];
    TD_TRY(member(r, entry, "dtype", TD_JSON_STRING, "a 'dtype', a string", &dtype));
    for (size_t i = 0; i < TD_COUNT(types); i++) {
        if (!td_str_is(dtype->string, types[i].name)) continue;
        t->type = types[i].name;
        *bits = types[i].bits;
        for (size_t k = 0; td_quant_format_at(k); k++) {
            const td_quant_format *f = td_quant_format_at(k);
            if (f->plain != TD_UNDEFINED && td_str_is(dtype->string, f->name)) t->format = f;
        }
        return TREADLE_OK;
    }
    snprintf(found, sizeof found, "'%.*s'", (int)TD_MIN(dtype->string.n, (size_t)40), dtype->string.p);
    return wrong(r, entry, dtype, TREADLE_UNSUPPORTED, "a known dtype (F32, F16, BF16, F64, I64, ...)", found);
}

static treadle_status read_shape(const reader *r, const td_json *entry, td_source_tensor *t, int64_t *count) {
    const td_json *shape;
    int64_t dims[TD_SOURCE_RANK];
    char found[32];
    TD_TRY(member(r, entry, "shape", TD_JSON_ARRAY, "a 'shape', an array", &shape));
    snprintf(found, sizeof found, "%u", shape->n);
    if (shape->n > TD_SOURCE_RANK) return wrong(r, entry, shape, TREADLE_LIMIT, "at most 8 dimensions", found);
    TD_TRY(read_sizes(r, entry, shape, dims));
    t->rank = (int)shape->n;
    *count = 1;
    for (int i = 0; i < TD_SOURCE_RANK; i++) t->dims[i] = i < t->rank ? dims[t->rank - 1 - i] : 1;
    for (int i = 0; i < t->rank; i++)
        if (TD_MUL_OVERFLOWS(*count, t->dims[i], count))
            return wrong(r, entry, shape, TREADLE_FORMAT, "fewer than 2^63 elements", "more");
    return TREADLE_OK;
}

static treadle_status read_tensor(const reader *r, const td_json *entry, td_source_tensor *t) {
    const td_json *places;
    int64_t count = 0, at[TD_SOURCE_RANK], total_bits;
    int bits = 0;
    char found[160];

    t->name = entry->key;
    if (t->name.n == 0 || memchr(t->name.p, 0, t->name.n))
        return wrong(r, entry, entry, TREADLE_FORMAT, "a name without NUL", "none or one with it");
    if (entry->kind != TD_JSON_OBJECT)
        return wrong(r, entry, entry, TREADLE_FORMAT, "an object", td_json_kind_name(entry->kind));
    TD_TRY(read_type(r, entry, t, &bits));
    TD_TRY(read_shape(r, entry, t, &count));
    TD_TRY(member(r, entry, "data_offsets", TD_JSON_ARRAY, "'data_offsets', an array", &places));
    snprintf(found, sizeof found, "%u", places->n);
    if (places->n != 2) return wrong(r, entry, places, TREADLE_FORMAT, "two data_offsets", found);
    TD_TRY(read_sizes(r, entry, places, at));
    if (TD_MUL_OVERFLOWS(count, (int64_t)bits, &total_bits) || total_bits % 8 ||
        (t->format && !td_quant_row_bytes(t->format, t->dims[0], &t->row_bytes)))
        return wrong(r, entry, entry, TREADLE_FORMAT, "a size of whole bytes below 2^63", "another");
    if (at[1] < at[0] || at[1] - at[0] != total_bits / 8 || (uint64_t)at[1] > r->data_bytes) {
        char expected[128];
        snprintf(expected, sizeof expected, "%lld bytes inside %llu bytes of data", (long long)(total_bits / 8),
                 (unsigned long long)r->data_bytes);
        snprintf(found, sizeof found, "%lld to %lld", (long long)at[0], (long long)at[1]);
        return wrong(r, entry, places, TREADLE_FORMAT, expected, found);
    }
    t->data = r->data + at[0];
    t->bytes = (size_t)(total_bits / 8);
    return TREADLE_OK;
}

static int compare_places(const void *a, const void *b) {
    const td_source_tensor *const *x = a, *const *y = b;
    if ((*x)->data != (*y)->data) return (*x)->data < (*y)->data ? -1 : 1;
    return ((*x)->bytes > (*y)->bytes) - ((*x)->bytes < (*y)->bytes);
}

/* One tensor behind the other, up to the end of the file: else it was cut, or two tensors share bytes. */
static treadle_status check_cover(const reader *r, const td_tensor_set *source, size_t first) {
    size_t n = source->tensors.n - first;
    const uint8_t *at = r->data;
    const td_source_tensor **order = td_alloc_array(n, sizeof *order);
    if (!order) return td_fail_memory(r->err, "tensors", n * sizeof *order);
    for (size_t i = 0; i < n; i++) order[i] = &source->tensors.items[first + i];
    qsort(order, n, sizeof *order, compare_places);
    treadle_status status = TREADLE_OK;
    for (size_t i = 0; i < n && status == TREADLE_OK; i++) {
        if (order[i]->data != at)
            status = td_fail(r->err, TREADLE_FORMAT, "tensor '%.*s' starts at %llu of the data, expected %llu",
                             (int)TD_MIN(order[i]->name.n, (size_t)NAME_SHOWN), order[i]->name.p,
                             (unsigned long long)(order[i]->data - r->data), (unsigned long long)(at - r->data));
        at = order[i]->data + order[i]->bytes;
    }
    td_free(order);
    if (status == TREADLE_OK && at != r->data + r->data_bytes)
        status = td_fail(r->err, TREADLE_FORMAT, "the tensors take %llu bytes, the file has %llu of data",
                         (unsigned long long)(at - r->data), (unsigned long long)r->data_bytes);
    return status;
}

static treadle_status read_header(const void *bytes, size_t n, reader *r) {
    const uint8_t *p = bytes;
    uint64_t length = 0;
    if (n < LENGTH_BYTES)
        return td_fail(r->err, TREADLE_FORMAT, "not a safetensors file: %zu bytes, expected at least %d", n,
                       LENGTH_BYTES);
    for (int i = 0; i < LENGTH_BYTES; i++) length |= (uint64_t)p[i] << (8 * i);
    if (length > n - LENGTH_BYTES)
        return td_fail(r->err, TREADLE_FORMAT,
                       "the header takes %llu bytes, the file has %zu left: cut off, or not a safetensors file",
                       (unsigned long long)length, n - LENGTH_BYTES);
    if (length > MAX_HEADER_BYTES)
        return td_fail(r->err, TREADLE_LIMIT, "the header takes %llu bytes, at most %d are read",
                       (unsigned long long)length, MAX_HEADER_BYTES);
    if (length == 0 || p[LENGTH_BYTES] != '{')
        return td_fail(r->err, TREADLE_FORMAT, "not a safetensors file: its header does not start with '{'");
    r->text = (td_str){(const char *)p + LENGTH_BYTES, (size_t)length};
    r->data = p + LENGTH_BYTES + length;
    r->data_bytes = n - LENGTH_BYTES - length;
    return TREADLE_OK;
}

treadle_status td_safetensors_read(const void *bytes, size_t n, td_arena *arena, td_tensor_set *out,
                                   treadle_error *err) {
    static const td_json_options options = {.max_depth = 4};
    reader r = {.err = err};
    td_json *root;
    size_t first = out->tensors.n;
    TD_TRY(read_header(bytes, n, &r));
    TD_TRY(td_json_parse(r.text, &options, arena, &root, err));
    for (const td_json *entry = root->first; entry; entry = entry->next) {
        td_source_tensor t = {0};
        if (td_str_is(entry->key, "__metadata__")) continue;
        TD_TRY(read_tensor(&r, entry, &t));
        TD_TRY(td_tensor_set_add(out, &t, err));
    }
    return check_cover(&r, out, first);
}
