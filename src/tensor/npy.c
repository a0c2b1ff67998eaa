/* tensor/npy.c - .npy files (numpy.lib.format, versions 1.0 to 3.0).
 *
 * The header is a Python dict literal; only the three keys that the format defines are accepted. */
#include "base/alloc.h"
#include "base/file.h"
#include "tensor/tensor.h"

#include <stdio.h>

/* Type texts of the dtypes that NumPy itself has. bfloat16 is the ml_dtypes spelling; it reads '<V2' as that. */
static const struct {
    const char *descr;
    td_dtype dtype;
} types[] = {
    {"<f4", TD_FLOAT},     {"<f8", TD_DOUBLE},      {"<f2", TD_FLOAT16},       {"|i1", TD_INT8},
    {"|u1", TD_UINT8},     {"<i2", TD_INT16},       {"<u2", TD_UINT16},        {"<i4", TD_INT32},
    {"<u4", TD_UINT32},    {"<i8", TD_INT64},       {"<u8", TD_UINT64},        {"|b1", TD_BOOL},
    {"<c8", TD_COMPLEX64}, {"<c16", TD_COMPLEX128}, {"bfloat16", TD_BFLOAT16}, {"<V2", TD_BFLOAT16},
    {"|V2", TD_BFLOAT16},
};

typedef struct header {
    td_dtype dtype;
    td_shape shape;
    bool fortran;
} header;

/* --- a cursor over the dict literal */
typedef struct cursor {
    const char *p, *end;
} cursor;

static void skip_space(cursor *c) {
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\n' || *c->p == '\t')) c->p++;
}

static bool take(cursor *c, char wanted) {
    skip_space(c);
    if (c->p == c->end || *c->p != wanted) return false;
    c->p++;
    return true;
}

static bool take_word(cursor *c, const char *word) {
    size_t n = strlen(word);
    skip_space(c);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, word, n) != 0) return false;
    c->p += n;
    return true;
}

static bool take_string(cursor *c, td_str *out) {
    skip_space(c);
    if (c->p == c->end || (*c->p != '\'' && *c->p != '"')) return false;
    char quote = *c->p++;
    const char *close = memchr(c->p, quote, (size_t)(c->end - c->p));
    if (!close) return false;
    *out = (td_str){c->p, (size_t)(close - c->p)};
    c->p = close + 1;
    return true;
}

static bool take_shape(cursor *c, td_shape *shape) {
    if (!take(c, '(')) return false;
    shape->rank = 0;
    while (!take(c, ')')) {
        int64_t value = 0;
        bool any = false;
        for (skip_space(c); c->p < c->end && *c->p >= '0' && *c->p <= '9'; c->p++, any = true)
            if (TD_MUL_OVERFLOWS(value, (int64_t)10, &value) || TD_ADD_OVERFLOWS(value, (int64_t)(*c->p - '0'), &value))
                return false;
        if (!any || shape->rank == TD_MAX_RANK) return false;
        shape->dims[shape->rank++] = value;
        if (!take(c, ',')) return take(c, ')');
    }
    return true;
}

static treadle_status parse_header(td_str text, header *out, treadle_error *err) {
    cursor c = {text.p, text.p + text.n};
    td_str key, descr = {NULL, 0};
    unsigned seen = 0;
    bool ok = take(&c, '{');
    while (ok && !take(&c, '}')) {
        ok = take_string(&c, &key) && take(&c, ':');
        if (ok && td_str_is(key, "descr")) ok = take_string(&c, &descr), seen |= 1;
        else if (ok && td_str_is(key, "shape")) ok = take_shape(&c, &out->shape), seen |= 2;
        else if (ok && td_str_is(key, "fortran_order")) {
            out->fortran = take_word(&c, "True");
            ok = out->fortran || take_word(&c, "False");
            seen |= 4;
        } else ok = false;
        if (ok && !take(&c, ',')) {
            ok = take(&c, '}');
            break;
        }
    }
    if (!ok || seen != 7)
        return td_fail(err, TREADLE_FORMAT,
                       "the .npy header is not a dict of 'descr', 'fortran_order' and 'shape' (at most %d dimensions)",
                       TD_MAX_RANK);
    for (size_t i = 0; i < TD_COUNT(types); i++)
        if (td_str_is(descr, types[i].descr)) out->dtype = types[i].dtype;
    if (out->dtype == TD_UNDEFINED)
        return td_fail(err, TREADLE_UNSUPPORTED, ".npy element type '%.*s' is not supported", TD_STR_ARGS(descr));
    return TREADLE_OK;
}

/* Finds the header and the data behind it. */
static treadle_status split_file(const td_mmap *map, td_str *text, size_t *data_at, treadle_error *err) {
    const uint8_t *p = map->data;
    if (map->n < 10 || memcmp(p, "\x93NUMPY", 6) != 0)
        return td_fail(err, TREADLE_FORMAT, "not a .npy file: its first six bytes are not \\x93NUMPY");
    if (p[6] < 1 || p[6] > 3)
        return td_fail(err, TREADLE_UNSUPPORTED, ".npy format version %u, expected 1 to 3", (unsigned)p[6]);
    size_t prefix = p[6] == 1 ? 10 : 12;
    if (map->n < prefix) return td_fail(err, TREADLE_FORMAT, "the .npy header is truncated");
    size_t n = (size_t)p[8] | (size_t)p[9] << 8;
    if (p[6] > 1) n |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
    if (n > map->n - prefix)
        return td_fail(err, TREADLE_FORMAT, "the .npy header says %zu bytes, the file has %zu left", n,
                       map->n - prefix);
    *text = (td_str){(const char *)p + prefix, n};
    *data_at = prefix + n;
    return TREADLE_OK;
}

static treadle_status read_map(const td_mmap *map, td_tensor *out, treadle_error *err) {
    td_str text = {NULL, 0};
    size_t data_at = 0, bytes;
    header h = {0};
    int64_t count;
    TD_TRY(split_file(map, &text, &data_at, err));
    TD_TRY(parse_header(text, &h, err));
    if (!td_shape_count(&h.shape, &count) || !td_dtype_bytes(h.dtype, count, &bytes))
        return td_fail(err, TREADLE_FORMAT, "the .npy shape overflows");
    if (map->n - data_at < bytes)
        return td_fail(err, TREADLE_FORMAT, "the .npy data has %zu bytes, its shape needs %zu", map->n - data_at,
                       bytes);
    td_buffer *buffer = td_buffer_new(bytes);
    if (!buffer) return td_fail_memory(err, "an array", bytes);
    td_tensor_view(out, h.dtype, &h.shape, buffer->data);
    out->buffer = buffer;
    if (!h.fortran) {
        if (bytes) memcpy(buffer->data, map->data + data_at, bytes);
        return TREADLE_OK;
    }
    td_tensor from = *out;
    from.data = (void *)(uintptr_t)(map->data + data_at);
    int64_t step = 1;
    for (int i = 0; i < h.shape.rank; i++) {
        from.strides[i] = step;
        step *= TD_MAX(h.shape.dims[i], 1);
    }
    td_tensor_copy(out, &from);
    return TREADLE_OK;
}

treadle_status td_npy_read(const char *path, td_tensor *out, treadle_error *err) {
    td_mmap map = {0};
    TD_TRY(td_mmap_open(path, &map, err));
    treadle_status status = read_map(&map, out, err);
    td_mmap_close(&map);
    if (status != TREADLE_OK) td_error_file(err, path);
    return status;
}

static treadle_status write_header(const td_tensor *t, td_buf *out, treadle_error *err) {
    const char *descr = NULL;
    for (size_t i = TD_COUNT(types); i-- > 0;)
        if (types[i].dtype == t->dtype) descr = types[i].descr;
    if (!descr)
        return td_fail(err, TREADLE_UNSUPPORTED, "element type %s cannot be written to .npy", td_dtype_name(t->dtype));
    if (t->dtype == TD_BFLOAT16) descr = "<V2"; /* what NumPy writes for ml_dtypes.bfloat16 */
    td_buf dict = {0};
    td_buf_printf(&dict, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (int i = 0; i < t->shape.rank; i++)
        td_buf_printf(&dict, "%s%lld%s", i ? " " : "", (long long)t->shape.dims[i],
                      i + 1 < t->shape.rank || t->shape.rank == 1 ? "," : "");
    td_buf_text(&dict, "), }");
    while ((10 + dict.n + 1) % 64 != 0 && !dict.failed) td_buf_char(&dict, ' ');
    td_buf_char(&dict, '\n');
    const char length[2] = {(char)(dict.n & 0xff), (char)(dict.n >> 8)};
    td_buf_append(out, "\x93NUMPY\1\0", 8);
    td_buf_append(out, length, 2);
    td_buf_append(out, dict.p, dict.n);
    out->failed |= dict.failed;
    td_buf_free(&dict);
    return TREADLE_OK;
}

treadle_status td_npy_write(const char *path, const td_tensor *tensor, treadle_error *err) {
    size_t bytes;
    td_buf out = {0};
    if (!td_tensor_bytes(tensor, &bytes))
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "the array's shape is not known or overflows");
    treadle_status status = write_header(tensor, &out, err);
    if (status == TREADLE_OK && !out.failed && td_buf_reserve(&out, bytes)) {
        td_tensor to;
        td_tensor_view(&to, tensor->dtype, &tensor->shape, out.p + out.n);
        td_tensor_copy(&to, tensor);
        out.n += bytes;
    }
    if (status == TREADLE_OK && out.failed) status = td_fail_memory(err, "an array", bytes);
    if (status == TREADLE_OK) status = td_file_write(path, out.p, out.n, err);
    td_buf_free(&out);
    return status;
}
