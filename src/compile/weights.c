/* compile/weights.c - see weights.h. */
#include "compile/weights.h"

#include "base/alloc.h"

#include <errno.h>
#include <unistd.h>

enum { PIECE_BYTES = 1 << 20, SMALL_ALIGN = 64, LARGE_ALIGN = 4096, LARGE_BYTES = 1 << 16 };

treadle_status td_weights_write(td_weights *w, uint64_t offset, const void *bytes, size_t n) {
    const char *p = bytes;
    while (n > 0) {
        ssize_t wrote = pwrite(w->fd, p, n, (off_t)offset);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0)
            return td_fail(w->err, TREADLE_IO, "cannot write the weights: %s", strerror(wrote < 0 ? errno : ENOSPC));
        p += wrote;
        offset += (uint64_t)wrote;
        n -= (size_t)wrote;
    }
    return TREADLE_OK;
}

treadle_status td_weights_declare(td_weights *w, td_str name, td_dtype dtype, int rank, const int64_t *dims,
                                  uint64_t *offset) {
    td_onnx_tensor t = {
        .name = name, .dtype = dtype, .rank = rank, .count = 1, .is_external = true, .location = w->location};
    int64_t *copy = TD_ARENA_ARRAY(w->graph->arena, int64_t, (size_t)rank);
    if (!copy) return td_fail_memory(w->err, "an initializer", (size_t)rank * sizeof *copy);
    for (int i = 0; i < rank; i++) {
        copy[i] = dims[i];
        if (TD_MUL_OVERFLOWS(t.count, dims[i], &t.count))
            return td_fail(w->err, TREADLE_FORMAT, "tensor '%.*s' is too large", TD_STR_ARGS(name));
    }
    if (!td_dtype_bytes(dtype, t.count, &t.data_bytes))
        return td_fail(w->err, TREADLE_FORMAT, "tensor '%.*s' is too large", TD_STR_ARGS(name));
    uint64_t align = t.data_bytes >= LARGE_BYTES ? LARGE_ALIGN : SMALL_ALIGN;
    t.dims = copy;
    t.offset = TD_ROUND_UP(w->end, align);
    t.length = t.data_bytes;
    w->end = t.offset + t.length;
    *offset = t.offset;
    td_graph_initializer(w->graph, &t);
    return w->graph->failed ? td_fail_memory(w->err, "an initializer", 0) : TREADLE_OK;
}

static treadle_status report(td_weights *w, uint64_t bytes, td_str what) {
    char text[128];
    w->done += bytes;
    if (!w->options->progress) return TREADLE_OK;
    size_t n = TD_MIN(what.n, sizeof text - 1);
    memcpy(text, what.p, n);
    text[n] = 0;
    return w->options->progress(w->options->ctx, w->done, w->total, text)
               ? TREADLE_OK
               : td_fail(w->err, TREADLE_CANCELLED, "the build was stopped");
}

/* Where row i of the wanted order lies in the source. */
static int64_t source_row(const td_rows *part, int64_t i) {
    if (part->rotary == 0) return i;
    int64_t within = i % part->head_dim, half = part->rotary / 2;
    if (within >= part->rotary) return i;
    return i - within + within % half * 2 + within / half;
}

/* --- quantised matrices */

/* Buffers for some rows, and where they go. Arrays that are not wanted are NULL. */
typedef struct piece {
    uint8_t *codes;
    float *scales, *zeros, *minima;
    uint64_t codes_at, scales_at, zeros_at, minima_at;
    int64_t rows, capacity;
    size_t code_row; /* bytes */
    int64_t groups;  /* per row */
} piece;

static void pack_codes(const uint8_t *codes, int n, int bits, int shift, uint8_t *out) {
    int per_byte = 8 / bits;
    for (int i = 0; i < n; i += per_byte) {
        unsigned byte = 0;
        for (int k = 0; k < per_byte; k++) byte |= (unsigned)(codes[i + k] + shift) << (k * bits);
        *out++ = (uint8_t)byte;
    }
}

/* A scale of 0 with a minimum: (0 - -1) * minimum says the same and keeps the minimum (compile.h). */
static void keep_minimum(uint8_t *codes, int n, float *scale, float minimum) {
    if (*scale != 0 || minimum == 0) return;
    *scale = minimum;
    memset(codes, 0, (size_t)n);
}

/* One row of blocks into row p->rows of the piece. */
static void split_row(const td_matrix *m, const uint8_t *source, piece *p) {
    const td_quant_format *f = m->format;
    uint8_t codes[TD_QUANT_MAX_BLOCK];
    float scales[TD_QUANT_MAX_GROUPS] = {0}, minima[TD_QUANT_MAX_GROUPS] = {0};
    int groups = f->block / f->group, half = 1 << (m->bits - 1);
    int shift = f->has_minima ? 0 : half - f->zero;
    uint8_t *out = p->codes + (size_t)p->rows * p->code_row;
    int64_t at = p->rows * p->groups;
    for (int64_t b = 0; b < m->k / f->block; b++, source += f->block_bytes, at += groups) {
        f->split(source, codes, scales, minima);
        for (int g = 0; g < groups; g++) {
            if (f->has_minima) keep_minimum(codes + g * f->group, f->group, &scales[g], minima[g]);
            p->scales[at + g] = scales[g];
            if (p->zeros) p->zeros[at + g] = scales[g] == 0 ? 0.0f : -minima[g] / scales[g];
            if (p->minima) p->minima[at + g] = f->has_minima ? minima[g] : -(float)half * scales[g];
        }
        pack_codes(codes, f->block, m->bits, shift, out);
        out += f->block * m->bits / 8;
    }
    p->rows++;
}

static treadle_status flush_floats(td_weights *w, const float *values, uint64_t *at, int64_t n) {
    if (!values) return TREADLE_OK;
    TD_TRY(td_weights_write(w, *at, values, (size_t)n * sizeof *values));
    *at += (uint64_t)n * sizeof *values;
    return TREADLE_OK;
}

static treadle_status flush_piece(td_weights *w, piece *p) {
    size_t bytes = (size_t)p->rows * p->code_row;
    TD_TRY(td_weights_write(w, p->codes_at, p->codes, bytes));
    p->codes_at += bytes;
    TD_TRY(flush_floats(w, p->scales, &p->scales_at, p->rows * p->groups));
    TD_TRY(flush_floats(w, p->zeros, &p->zeros_at, p->rows * p->groups));
    TD_TRY(flush_floats(w, p->minima, &p->minima_at, p->rows * p->groups));
    p->rows = 0;
    return TREADLE_OK;
}

static treadle_status write_blocks(td_weights *w, const td_matrix *m, const td_rows *parts, int n_parts, piece *p) {
    for (int i = 0; i < n_parts; i++) {
        const td_source_tensor *t = parts[i].tensor;
        for (int64_t row = 0, n = td_source_tensor_rows(t); row < n; row++) {
            split_row(m, t->data + (size_t)source_row(&parts[i], row) * t->row_bytes, p);
            if (p->rows < p->capacity && row + 1 < n) continue;
            uint64_t source_bytes = (uint64_t)p->rows * t->row_bytes;
            TD_TRY(flush_piece(w, p));
            TD_TRY(report(w, source_bytes, m->name));
        }
        td_mmap_drop(t->data, t->bytes);
    }
    return TREADLE_OK;
}

static td_str suffixed(td_weights *w, td_str name, const char *suffix) {
    return td_graph_name(w->graph, "%.*s.%s", TD_STR_ARGS(name), suffix);
}

/* Declares the arrays that the uses need and fills in where they go. */
static treadle_status declare_blocks(td_weights *w, td_matrix *m, unsigned uses, piece *p) {
    const td_quant_format *f = m->format;
    const int64_t code_dims[3] = {m->n, m->k / m->group, m->group * m->bits / 8}, dims[2] = {m->n, m->k / m->group};
    bool zeros = f->has_minima && f->bits <= 4 && uses & TD_USE_LINEAR;
    bool minima = (f->has_minima && (f->bits > 4 || uses & TD_USE_GATHER)) || (m->bits == 2 && uses & TD_USE_GATHER);
    m->codes = suffixed(w, m->name, "codes");
    m->scales = suffixed(w, m->name, "scales");
    TD_TRY(td_weights_declare(w, m->codes, TD_UINT8, 3, code_dims, &p->codes_at));
    TD_TRY(td_weights_declare(w, m->scales, TD_FLOAT, 2, dims, &p->scales_at));
    m->codes_offset = p->codes_at;
    if (zeros) {
        m->zeros = suffixed(w, m->name, "zeros");
        TD_TRY(td_weights_declare(w, m->zeros, TD_FLOAT, 2, dims, &p->zeros_at));
    }
    if (minima) {
        m->minima = suffixed(w, m->name, "minima");
        TD_TRY(td_weights_declare(w, m->minima, TD_FLOAT, 2, dims, &p->minima_at));
    }
    return TREADLE_OK;
}

static treadle_status write_quantised(td_weights *w, td_matrix *m, const td_rows *parts, int n_parts, unsigned uses) {
    piece p = {.code_row = (size_t)(m->k * m->bits / 8), .groups = m->k / m->group};
    TD_TRY(declare_blocks(w, m, uses, &p));
    p.capacity = TD_MIN(TD_MAX((int64_t)(PIECE_BYTES / TD_MAX(p.code_row, 1)), 1), m->n);
    size_t n_floats = (size_t)(p.capacity * p.groups);
    p.codes = td_alloc_array((size_t)p.capacity, p.code_row);
    p.scales = td_alloc_array(n_floats, sizeof(float));
    p.zeros = m->zeros.n ? td_alloc_array(n_floats, sizeof(float)) : NULL;
    p.minima = m->minima.n ? td_alloc_array(n_floats, sizeof(float)) : NULL;
    treadle_status status = TREADLE_OK;
    if (!p.codes || !p.scales || (m->zeros.n && !p.zeros) || (m->minima.n && !p.minima))
        status = td_fail_memory(w->err, "rows of weights", n_floats * sizeof(float));
    else status = write_blocks(w, m, parts, n_parts, &p);
    td_free(p.codes);
    td_free(p.scales);
    td_free(p.zeros);
    td_free(p.minima);
    return status;
}

/* --- plain matrices: bytes are copied; float64, and blocks that are to be decoded, become float32 */

static treadle_status write_plain(td_weights *w, td_matrix *m, const td_rows *parts, int n_parts) {
    const int64_t dims[2] = {m->n, m->k};
    uint64_t at = 0;
    bool narrow = m->format->plain == TD_DOUBLE || m->format->plain == TD_UNDEFINED ||
                  (w->options->quantize && m->format->plain != TD_FLOAT);
    m->plain = narrow ? TD_FLOAT : m->format->plain;
    m->codes = m->name;
    TD_TRY(td_weights_declare(w, m->codes, m->plain, 2, dims, &at));
    m->codes_offset = at;
    float *row_values = narrow ? td_alloc_array((size_t)m->k, sizeof(float)) : NULL;
    if (narrow && !row_values) return td_fail_memory(w->err, "a row of weights", (size_t)m->k * sizeof(float));
    treadle_status status = TREADLE_OK;
    for (int i = 0; i < n_parts && status == TREADLE_OK; i++) {
        const td_source_tensor *t = parts[i].tensor;
        int64_t n = td_source_tensor_rows(t),
                step = parts[i].rotary || narrow ? 1 : TD_MAX((int64_t)(PIECE_BYTES / t->row_bytes), 1);
        for (int64_t row = 0; row < n && status == TREADLE_OK; row += step) {
            const uint8_t *source = t->data + (size_t)source_row(&parts[i], row) * t->row_bytes;
            size_t bytes = (size_t)TD_MIN(step, n - row) * t->row_bytes;
            if (narrow) td_quant_decode(t->format, source, m->k, row_values);
            size_t out_bytes = narrow ? (size_t)m->k * sizeof(float) : bytes;
            status = td_weights_write(w, at, narrow ? (const void *)row_values : source, out_bytes);
            at += out_bytes;
            if (status == TREADLE_OK) status = report(w, bytes, m->name);
        }
        td_mmap_drop(t->data, t->bytes);
    }
    td_free(row_values);
    return status;
}

treadle_status td_weights_matrix(td_weights *w, td_str name, const td_rows *parts, int n_parts, unsigned uses,
                                 td_matrix *out) {
    const td_source_tensor *first = parts[0].tensor;
    *out = (td_matrix){.name = name, .k = first->dims[0], .format = first->format};
    for (int i = 0; i < n_parts; i++) out->n += td_source_tensor_rows(parts[i].tensor);
    if (first->format->plain != TD_UNDEFINED || w->options->quantize) return write_plain(w, out, parts, n_parts);
    out->bits = td_quant_onnx_bits(first->format);
    out->group = first->format->group;
    return write_quantised(w, out, parts, n_parts, uses);
}

treadle_status td_weights_vector(td_weights *w, td_str name, const td_rows *parts, int n_parts, td_str *out) {
    int64_t n = 0, at = 0;
    for (int i = 0; i < n_parts; i++) n += parts[i].tensor->dims[0];
    float *values = td_alloc_array((size_t)n, 2 * sizeof *values); /* joined, and the part before reordering */
    if (!values) return td_fail_memory(w->err, "a vector of weights", (size_t)n * 2 * sizeof *values);
    uint64_t bytes = 0;
    for (int i = 0; i < n_parts; i++) {
        const td_source_tensor *t = parts[i].tensor;
        float *plain = values + n;
        td_quant_decode(t->format, t->data, t->dims[0], plain);
        for (int64_t k = 0; k < t->dims[0]; k++) values[at + k] = plain[source_row(&parts[i], k)];
        at += t->dims[0];
        bytes += t->bytes;
    }
    uint64_t offset = 0;
    treadle_status status = td_weights_declare(w, name, TD_FLOAT, 1, &n, &offset);
    if (status == TREADLE_OK) status = td_weights_write(w, offset, values, (size_t)n * sizeof *values);
    *out = name;
    td_free(values);
    return status == TREADLE_OK ? report(w, bytes, name) : status;
}

treadle_status td_weights_floats(td_weights *w, const td_source_tensor *tensor, td_str *out) {
    int64_t dims[TD_SOURCE_RANK], rows = td_source_tensor_rows(tensor), k = tensor->dims[0];
    uint64_t at = 0;
    for (int i = 0; i < tensor->rank; i++) dims[i] = tensor->dims[tensor->rank - 1 - i];
    TD_TRY(td_weights_declare(w, tensor->name, TD_FLOAT, tensor->rank, dims, &at));
    int64_t step = TD_MIN(TD_MAX((int64_t)(PIECE_BYTES / sizeof(float)) / k, 1), rows);
    float *values = td_alloc_array((size_t)(step * k), sizeof *values);
    if (!values) return td_fail_memory(w->err, "rows of weights", (size_t)(step * k) * sizeof *values);
    treadle_status status = TREADLE_OK;
    for (int64_t row = 0; row < rows && status == TREADLE_OK; row += step) {
        int64_t n = TD_MIN(step, rows - row);
        td_quant_decode(tensor->format, tensor->data + (size_t)row * tensor->row_bytes, n * k, values);
        status = td_weights_write(w, at, values, (size_t)(n * k) * sizeof *values);
        at += (uint64_t)(n * k) * sizeof *values;
        if (status == TREADLE_OK) status = report(w, (uint64_t)n * tensor->row_bytes, tensor->name);
    }
    td_free(values);
    *out = tensor->name;
    return status;
}

td_str td_weights_alias(td_weights *w, td_str name, const td_matrix *m, td_dtype dtype, int rank, const int64_t *dims) {
    td_onnx_tensor t = {.name = name,
                        .dtype = dtype,
                        .rank = rank,
                        .count = 1,
                        .is_external = true,
                        .location = w->location,
                        .offset = m->codes_offset};
    int64_t *copy = TD_ARENA_ARRAY(w->graph->arena, int64_t, (size_t)rank);
    if (!copy) {
        w->graph->failed = true;
        return name;
    }
    for (int i = 0; i < rank; i++) t.count *= copy[i] = dims[i];
    t.dims = copy;
    if (!td_dtype_bytes(dtype, t.count, &t.data_bytes)) w->graph->failed = true;
    t.length = t.data_bytes;
    td_graph_initializer(w->graph, &t);
    return name;
}
