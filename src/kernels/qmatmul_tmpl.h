/* kernels/qmatmul_tmpl.h - the quantised matmul for any SIMD instruction set, included by one .c file per set.
 *
 * The including file takes vf, 16 fp32, from simd_avx2.h or simd_avx512.h, and defines the types
 *     vi 16 int32, vb the 64 bytes of a code vector, dot_acc a running integer dot product of 16 outputs
 * and always-inline functions on them:
 *     vi_zero vi_shift(p, n) = *p << n, vi_neg_shift(p, n) = -(*p << n)
 *     vb_load vb_store vb_nibbles(v, high) vb_crumbs(v, t)
 *     dot_code(v, bits)          a code vector made ready for dot_add
 *     dot_begin(start) dot_add(acc, code, four activations, bits) -> acc, dot_end(acc, start, bits) -> vf, exact
 *     code_float(v, j, bits, centre)   byte j of each dword as 16 fp32, minus centre
 *     fill_block(values, sub, codes, neg_sum) -> scale, tree_sum(values, sub): one block of activations, as qmatmul_c.c
 * and the constants
 *     DOT8_CENTRED   1 if dot_add takes 128 from each 8-bit code by itself, else 0
 *     INT8_COLUMNS, FLOAT_COLUMNS   columns of 16 outputs that one inner loop holds, times 4 and 6 rows
 *     VARIANT        the td_qmatmul_kernels to define, VARIANT_NAME its name
 *
 * Two ways through the weights. One row (decode): columns straight from the packed stream, which is prefetched AHEAD
 * bytes beyond, over the ends of columns and matrices into whatever was packed next. More rows (prefill, batches): a
 * few columns are unpacked to a panel in scratch, of bytes or of fp32 codes, and all rows run over it. Both follow the
 * order of operations stated in qmatmul.h, so they agree bit for bit.
 */
#include "kernels/qmatmul.h"
#include "kernels/simd_math.h"

#include <string.h>

enum { N = TD_QTILE_N, K = TD_QTILE_K, AHEAD = 6912, INT8_ROWS = 4, FLOAT_ROWS = 6 };

TD_SIMD vf vf_from_f16(const uint8_t *p) { return vf_load_f16((const uint16_t *)(const void *)p); }
TD_SIMD vf vf_silu(vf g) { return vf_div(g, vf_add(vf_set1(1.0f), vf_exp(vf_sub(vf_zero(), g)))); }

/* What one call works on: the current matrix of the job, and how its results leave. */
typedef struct pass {
    const td_qmatmul *job;
    const td_qweights *weights;
    const float *bias;
    bool gated; /* y already holds the gate: y = silu(y) * result */
} pass;

/* Bias, gate and residual for the outputs n..n+count of a row. */
TD_SIMD void finish(const pass *p, int64_t row, int64_t n, const float *values) {
    const td_qmatmul *job = p->job;
    int count = (int)TD_MIN(N, p->weights->layout.n - n);
    float *y = job->y + row * job->y_stride + n;
    const float *add = job->add ? job->add + row * job->add_stride + n : NULL;
    vf v = vf_load(values);
    if (count == N) {
        if (p->bias) v = vf_add(v, vf_load(p->bias + n));
        if (p->gated) v = vf_mul(vf_silu(vf_load(y)), v);
        if (add) v = vf_add(v, vf_load(add));
        vf_store(y, v);
        return;
    }
    float part[3][N] = {{0}}; /* the same operations on copies, so that nothing outside the matrix is touched */
    size_t bytes = (size_t)count * sizeof(float);
    if (p->bias) {
        memcpy(part[0], p->bias + n, bytes);
        v = vf_add(v, vf_load(part[0]));
    }
    if (p->gated) {
        memcpy(part[1], y, bytes);
        v = vf_mul(vf_silu(vf_load(part[1])), v);
    }
    if (add) {
        memcpy(part[2], add, bytes);
        v = vf_add(v, vf_load(part[2]));
    }
    vf_store(part[0], v);
    memcpy(y, part[0], bytes);
}

/* --- reading tiles --- */

TD_SIMD vb tile_code(const uint8_t *codes, int bits, int t, int z) {
    if (bits == 8) return vb_load(codes + 64 * (4 * t + z));
    if (bits == 4) return vb_nibbles(vb_load(codes + 64 * (4 * (t / 2) + z)), t & 1);
    return vb_crumbs(vb_load(codes + 64 * z), t);
}

TD_SIMD vf tile_param(const uint8_t *data, int form, int block) {
    if (form == TD_QPARAM_F16) return vf_from_f16(data + 2 * N * block);
    return vf_load((const float *)(const void *)(data + 4 * N * block));
}

TD_SIMD void prefetch_tile(const uint8_t *tile, int tile_bytes) {
    TD_UNROLL
    for (int i = 0; i < tile_bytes; i += 64) TD_PREFETCH(tile + AHEAD + i);
}

TD_SIMD int32_t load_four(const int8_t *a) {
    int32_t four;
    memcpy(&four, a, sizeof four);
    return four;
}

/* What an integer dot product starts from so that it ends as the header says. neg_sum: minus the sum of activations. */
TD_SIMD vi dot_start(const int32_t *neg_sum, int bits, bool minima) {
    bool centred = bits == 8 && DOT8_CENTRED;
    if (minima) return centred ? vi_neg_shift(neg_sum, 7) : vi_zero();
    return centred ? vi_zero() : vi_shift(neg_sum, bits - 1);
}

/* --- one row --- */

typedef struct row_view {
    const int8_t *codes, *codes2;
    const float *scales, *scales2, *sums, *values;
    const int32_t *neg_sums, *neg_sums2;
    const uint8_t *refined;
} row_view;

TD_SIMD row_view view_row(const td_qact *act, int64_t row) {
    row_view v = {.sums = act->sums + row * act->n_sub};
    if (act->mode == TD_QMODE_INT8) {
        v.codes = act->codes + row * act->k_padded;
        v.scales = act->scales + row * act->n_sub;
        v.neg_sums = act->neg_sums + row * act->n_sub;
        v.refined = act->refined + row * act->n_sub;
        v.codes2 = act->codes2 + row * act->k_padded;
        v.scales2 = act->scales2 + row * act->n_sub;
        v.neg_sums2 = act->neg_sums2 + row * act->n_sub;
    } else {
        v.values = act->values + row * act->value_stride;
    }
    return v;
}

TD_SIMD void column_int8(const td_qlayout *l, const uint8_t *tile, row_view a, float *out, const int bits,
                         const int sub, const int scale, const int minimum) {
    /* The commonest forms are constants; for the others `scale` and `minimum` are what the layout says. */
    const int blocks = K / sub, minima_at = blocks * N * (scale == TD_QPARAM_F16 ? 2 : 4);
    const int minimum_bytes = minimum == TD_QPARAM_NONE ? 0 : minimum == TD_QPARAM_F16 ? 2 : 4;
    const int codes_at = minima_at + blocks * N * minimum_bytes, tile_bytes = codes_at + N * K / 8 * bits;
    vf f = vf_zero();
    for (int64_t i = 0, n_tiles = td_qlayout_tiles_k(l); i < n_tiles; i++, tile += tile_bytes) {
        prefetch_tile(tile, tile_bytes);
        TD_UNROLL
        for (int b = 0; b < blocks; b++) {
            const int64_t at = i * blocks + b;
            const int8_t *codes = a.codes + i * K;
            const int32_t *neg_sum = a.neg_sums + at;
            const float *act_scale = a.scales + at;
            for (int left = a.refined[at];; left--) {
                vi start = dot_start(neg_sum, bits, minimum != TD_QPARAM_NONE);
                dot_acc acc = dot_begin(start);
                TD_UNROLL
                for (int v = b * sub / 4; v < (b + 1) * sub / 4; v++) {
                    vb code = dot_code(tile_code(tile + codes_at, bits, v / 4, v % 4), bits);
                    acc = dot_add(acc, code, load_four(codes + 4 * v), bits);
                }
                f = vf_fma(dot_end(acc, start, bits), vf_mul(vf_set1(*act_scale), tile_param(tile, scale, b)), f);
                if (TD_LIKELY(left == 0)) break;
                codes = a.codes2 + i * K;
                neg_sum = a.neg_sums2 + at;
                act_scale = a.scales2 + at;
            }
            if (minimum != TD_QPARAM_NONE) f = vf_fma(tile_param(tile + minima_at, minimum, b), vf_set1(a.sums[at]), f);
        }
    }
    vf_store(out, f);
}

/* Scale and minimum forms are looked at per block here: FLOAT mode is bound by its arithmetic, not by these. */
TD_SIMD void column_float(const td_qlayout *l, const uint8_t *tile, row_view a, float *out, const int bits,
                          const int sub, const bool minima) {
    const int centre = minima ? 0 : 1 << (bits - 1);
    vf f = vf_zero();
    for (int64_t tiles = td_qlayout_tiles_k(l); tiles > 0; tiles--, tile += l->tile_bytes, a.values += K) {
        for (uint32_t at = 0; at < l->tile_bytes; at += 64) TD_PREFETCH(tile + AHEAD + at);
        vf p[K / 16]; /* the blocks of a tile advance together: one chain of fma alone is all latency */
        TD_UNROLL
        for (int b = 0; b < K / sub; b++) p[b] = vf_zero();
        TD_UNROLL
        for (int i = 0; i < K / 4; i++) {
            const int b = i % (K / sub), v = b * sub / 4 + i / (K / sub);
            vb code = tile_code(tile + l->codes_offset, bits, v / 4, v % 4);
            TD_UNROLL
            for (int j = 0; j < 4; j++)
                p[b] = vf_fma(vf_set1(a.values[4 * v + j]), code_float(code, j, bits, centre), p[b]);
        }
        TD_UNROLL
        for (int b = 0; b < K / sub; b++, a.sums++) {
            f = vf_fma(p[b], tile_param(tile, l->scale, b), f);
            if (minima) f = vf_fma(tile_param(tile + l->minima_offset, l->minimum, b), vf_set1(*a.sums), f);
        }
    }
    vf_store(out, f);
}

/* --- several rows: panels of a few columns, unpacked --- */

/* Per block of sub inputs and column: 16 scales, 16 minima, then the codes; bytes in INT8 mode, fp32 in FLOAT mode. */
TD_SIMD size_t panel_block_bytes(int sub, bool is_float) {
    return 2 * N * sizeof(float) + (size_t)(N * sub) * (is_float ? 4 : 1);
}

TD_SIMD void unpack_block(const td_qlayout *l, const uint8_t *tile, int b, uint8_t *to, const int bits, const int sub,
                          const bool is_float) {
    const uint8_t *codes = tile + l->codes_offset;
    const bool minima = l->minimum != TD_QPARAM_NONE;
    float *params = (float *)(void *)to, *floats = params + 2 * N;
    vf_store(params, tile_param(tile, l->scale, b));
    vf_store(params + N, minima ? tile_param(tile + l->minima_offset, l->minimum, b) : vf_zero());
    TD_UNROLL
    for (int i = 0; i < sub / 4; i++) {
        int v = b * sub / 4 + i;
        vb code = tile_code(codes, bits, v / 4, v % 4);
        if (!is_float) vb_store(to + 2 * N * sizeof(float) + 64 * i, dot_code(code, bits));
        TD_UNROLL
        for (int j = 0; j < 4 && is_float; j++)
            vf_store(floats + N * (4 * i + j), code_float(code, j, bits, minima ? 0 : 1 << (bits - 1)));
    }
}

/* Of `columns` columns `valid` exist; the last one stands in for the others, whose results nobody takes. */
TD_SIMD void unpack_columns(const td_qlayout *l, const uint8_t *first, int valid, uint8_t *panel, const int columns,
                            const int bits, const int sub, const bool is_float) {
    const size_t block_bytes = panel_block_bytes(sub, is_float);
    const int64_t n_tiles = td_qlayout_tiles_k(l);
    for (int u = 0; u < columns; u++) {
        uint8_t *to = panel + (size_t)u * block_bytes;
        const uint8_t *column = first + (size_t)TD_MIN(u, valid - 1) * td_qlayout_column_bytes(l);
        for (int64_t i = 0; i < n_tiles; i++, column += l->tile_bytes) {
            for (uint32_t at = 0; at < l->tile_bytes; at += 64) TD_PREFETCH(column + AHEAD + at);
            TD_UNROLL
            for (int b = 0; b < K / sub; b++, to += (size_t)columns * block_bytes)
                unpack_block(l, column, b, to, bits, sub, is_float);
        }
    }
}

/* `rows` rows from a times `columns` columns of the panel; out [rows][columns * 16]. Strides between rows: codes
 * k_padded, the others n_sub, values value_stride. */
TD_SIMD void panel_int8(const uint8_t *panel, const td_qact *act, row_view a, float *out, const int rows,
                        const int columns, const int bits, const int sub, const bool minima) {
    const size_t block_bytes = panel_block_bytes(sub, false);
    const int64_t n_sub = act->n_sub, code_stride = act->k_padded;
    vf f[INT8_ROWS * INT8_COLUMNS];
    TD_UNROLL
    for (int i = 0; i < rows * columns; i++) f[i] = vf_zero();
    for (int64_t b = 0; b < n_sub; b++, panel += (size_t)columns * block_bytes) {
        const int8_t *codes = a.codes + b * sub;
        const int32_t *neg_sums = a.neg_sums + b;
        const float *scales = a.scales + b;
        int left = 0; /* a row that is not refined takes part in the others' second round with scale 0 */
        TD_UNROLL
        for (int r = 0; r < rows; r++) left |= a.refined[r * n_sub + b];
        for (;; left--) {
            vi start[INT8_ROWS];
            dot_acc acc[INT8_ROWS * INT8_COLUMNS];
            TD_UNROLL
            for (int r = 0; r < rows; r++) start[r] = dot_start(neg_sums + r * n_sub, bits, minima);
            TD_UNROLL
            for (int i = 0; i < rows * columns; i++) acc[i] = dot_begin(start[i / columns]);
            TD_UNROLL
            for (int v = 0; v < sub / 4; v++) {
                vb code[INT8_COLUMNS];
                TD_UNROLL
                for (int u = 0; u < columns; u++)
                    code[u] = vb_load(panel + (size_t)u * block_bytes + 2 * N * sizeof(float) + 64 * v);
                TD_UNROLL
                for (int i = 0; i < rows * columns; i++) {
                    int32_t four = load_four(codes + i / columns * code_stride + 4 * v);
                    acc[i] = dot_add(acc[i], code[i % columns], four, bits);
                }
            }
            TD_UNROLL
            for (int u = 0; u < columns; u++) {
                vf scale = vf_load((const float *)(const void *)(panel + (size_t)u * block_bytes));
                TD_UNROLL
                for (int r = 0; r < rows; r++) {
                    const int i = r * columns + u;
                    f[i] = vf_fma(dot_end(acc[i], start[r], bits), vf_mul(vf_set1(scales[r * n_sub]), scale), f[i]);
                }
            }
            if (TD_LIKELY(left == 0)) break;
            codes = a.codes2 + b * sub;
            neg_sums = a.neg_sums2 + b;
            scales = a.scales2 + b;
        }
        if (minima) {
            TD_UNROLL
            for (int i = 0; i < rows * columns; i++) {
                const float *params = (const float *)(const void *)(panel + (size_t)(i % columns) * block_bytes);
                f[i] = vf_fma(vf_load(params + N), vf_set1(a.sums[i / columns * n_sub + b]), f[i]);
            }
        }
    }
    TD_UNROLL
    for (int i = 0; i < rows * columns; i++) vf_store(out + i * N, f[i]);
}

/* f lives in out: it is touched once for 16 or 32 inputs, and the registers are better spent on p. */
TD_SIMD void panel_float(const uint8_t *panel, const td_qact *act, row_view a, float *out, const int rows,
                         const int columns, const int sub, const bool minima) {
    const size_t block_bytes = panel_block_bytes(sub, true);
    const int64_t n_sub = act->n_sub, value_stride = act->value_stride;
    memset(out, 0, (size_t)(rows * columns * N) * sizeof(float));
    for (int64_t b = 0; b < n_sub; b++, panel += (size_t)columns * block_bytes, a.values += sub) {
        vf p[FLOAT_ROWS * FLOAT_COLUMNS];
        TD_UNROLL
        for (int i = 0; i < rows * columns; i++) p[i] = vf_zero();
        for (int k = 0; k < sub; k++) {
            vf code[FLOAT_COLUMNS];
            TD_UNROLL
            for (int u = 0; u < columns; u++)
                code[u] = vf_load((const float *)(const void *)(panel + (size_t)u * block_bytes) + N * (2 + k));
            TD_UNROLL
            for (int i = 0; i < rows * columns; i++)
                p[i] = vf_fma(vf_set1(a.values[i / columns * value_stride + k]), code[i % columns], p[i]);
        }
        TD_UNROLL
        for (int i = 0; i < rows * columns; i++) {
            const float *params = (const float *)(const void *)(panel + (size_t)(i % columns) * block_bytes);
            vf f = vf_fma(p[i], vf_load(params), vf_load(out + i * N));
            if (minima) f = vf_fma(vf_load(params + N), vf_set1(a.sums[i / columns * n_sub + b]), f);
            vf_store(out + i * N, f);
        }
    }
}

/* --- one function per combination of forms, listed once and found in tables --- */

#define BITS(bits) ((bits) / 4) /* 2, 4, 8: index 0, 1, 2 */
#define SUB(sub) ((sub) / 32)   /* 16, 32: index 0, 1 */

/* X(arguments..., bits, sub, flag) for all of them */
#define EACH_FLAG(X, a, bits, sub) X(a, bits, sub, 0) X(a, bits, sub, 1)
#define EACH_SUB(X, a, bits) EACH_FLAG(X, a, bits, 16) EACH_FLAG(X, a, bits, 32)
#define EACH_BITS(X, a) EACH_SUB(X, a, 2) EACH_SUB(X, a, 4) EACH_SUB(X, a, 8)

/* INT8, one row: X(bits, sub, name, scale, minimum); index 0 is fp16 scales alone, 1 fp16 scales and minima, 2 any */
#define EACH_FORM(X, bits, sub)                                                                                        \
    X(bits, sub, plain, TD_QPARAM_F16, TD_QPARAM_NONE)                                                                 \
    X(bits, sub, minima, TD_QPARAM_F16, TD_QPARAM_F16)                                                                 \
    X(bits, sub, any, l->scale, l->minimum)
#define EACH_COLUMN(X)                                                                                                 \
    EACH_FORM(X, 2, 16)                                                                                                \
    EACH_FORM(X, 2, 32) EACH_FORM(X, 4, 16) EACH_FORM(X, 4, 32) EACH_FORM(X, 8, 16) EACH_FORM(X, 8, 32)
#define DEFINE(bits, sub, form, scale, minimum)                                                                        \
    static TD_NO_UBSAN void column_##bits##_##sub##_##form(const td_qlayout *l, const uint8_t *tile, row_view row,     \
                                                           float *out) {                                               \
        column_int8(l, tile, row, out, bits, sub, scale, minimum);                                                     \
    }
EACH_COLUMN(DEFINE)
#undef DEFINE
typedef void column_fn(const td_qlayout *l, const uint8_t *tile, row_view row, float *out);
#define FORMS(bits, sub)                                                                                               \
    [BITS(bits)][SUB(sub)] = {column_##bits##_##sub##_plain, column_##bits##_##sub##_minima,                           \
                              column_##bits##_##sub##_any}
static column_fn *const columns_int8[3][2][3] = {FORMS(2, 16), FORMS(2, 32), FORMS(4, 16),
                                                 FORMS(4, 32), FORMS(8, 16), FORMS(8, 32)};
#undef FORMS

/* FLOAT, one row: flag says whether there are minima */
#define DEFINE(a, bits, sub, minima)                                                                                   \
    static TD_NO_UBSAN void column_float_##bits##_##sub##_##minima(const td_qlayout *l, const uint8_t *tile,           \
                                                                   row_view row, float *out) {                         \
        column_float(l, tile, row, out, bits, sub, minima);                                                            \
    }
EACH_BITS(DEFINE, 0)
#undef DEFINE
#define ROW(a, bits, sub, minima) [BITS(bits)][SUB(sub)][minima] = column_float_##bits##_##sub##_##minima,
static column_fn *const columns_float[3][2][2] = {EACH_BITS(ROW, 0)};
#undef ROW

/* Unpacking: flag is 0 for bytes, 1 for fp32 */
#define DEFINE(a, bits, sub, is_float)                                                                                 \
    static TD_NO_UBSAN void unpack_##bits##_##sub##_##is_float(const td_qlayout *l, const uint8_t *column, int valid,  \
                                                               uint8_t *panel) {                                       \
        unpack_columns(l, column, valid, panel, is_float ? FLOAT_COLUMNS : INT8_COLUMNS, bits, sub, is_float);         \
    }
EACH_BITS(DEFINE, 0)
#undef DEFINE
#define ROW(a, bits, sub, is_float) [BITS(bits)][SUB(sub)][is_float] = unpack_##bits##_##sub##_##is_float,
static void (*const unpacks[3][2][2])(const td_qlayout *, const uint8_t *, int, uint8_t *) = {EACH_BITS(ROW, 0)};
#undef ROW

/* Panels: 4 rows of INT8; 6, 2 and 1 of FLOAT, whose panels hold fp32 whatever the bits were. */
typedef void panel_fn(const uint8_t *panel, const td_qact *act, row_view row, float *out);
#define DEFINE(a, bits, sub, minima)                                                                                   \
    static TD_NO_UBSAN void panel_##bits##_##sub##_##minima(const uint8_t *panel, const td_qact *act, row_view row,    \
                                                            float *out) {                                              \
        panel_int8(panel, act, row, out, INT8_ROWS, INT8_COLUMNS, bits, sub, minima);                                  \
    }
EACH_BITS(DEFINE, 0)
#undef DEFINE
#define ROW(a, bits, sub, minima) [BITS(bits)][SUB(sub)][minima] = panel_##bits##_##sub##_##minima,
static panel_fn *const panels_int8[3][2][2] = {EACH_BITS(ROW, 0)};
#undef ROW
#define DEFINE(rows, a, sub, minima)                                                                                   \
    static TD_NO_UBSAN void panel_float_##rows##_##sub##_##minima(const uint8_t *panel, const td_qact *act,            \
                                                                  row_view row, float *out) {                          \
        panel_float(panel, act, row, out, rows, FLOAT_COLUMNS, sub, minima);                                           \
    }
EACH_SUB(DEFINE, 6, )
EACH_SUB(DEFINE, 2, )
EACH_SUB(DEFINE, 1, )
#undef DEFINE
#define ROW(a, b, sub, minima)                                                                                         \
    [SUB(sub)][minima] = {panel_float_6_##sub##_##minima, panel_float_2_##sub##_##minima,                              \
                          panel_float_1_##sub##_##minima},
static panel_fn *const panels_float[2][2][3] = {EACH_SUB(ROW, , )};
#undef ROW

/* --- driving them --- */

static column_fn *pick_column(const td_qlayout *l, bool is_float) {
    const bool minima = l->minimum != TD_QPARAM_NONE;
    if (is_float) return columns_float[BITS(l->bits)][SUB(l->sub)][minima];
    const bool f16 = l->scale == TD_QPARAM_F16 && l->minimum != TD_QPARAM_F32;
    return columns_int8[BITS(l->bits)][SUB(l->sub)][f16 ? minima : 2];
}

static void run_columns(const pass *p, int64_t m0, int64_t m1, int64_t n0, int64_t n1) {
    const td_qlayout *l = &p->weights->layout;
    column_fn *fn = pick_column(l, p->job->act->mode == TD_QMODE_FLOAT);
    for (int64_t n = n0; n < n1; n += N) {
        const uint8_t *column = p->weights->data + (size_t)(n / N) * td_qlayout_column_bytes(l);
        for (int64_t row = m0; row < m1; row++) {
            float out[N];
            fn(l, column, view_row(p->job->act, row), out);
            finish(p, row, n, out);
        }
    }
}

/* `rows` rows of a panel: prefetch the lines of the results, to which stores would wait for memory; compute; finish. */
static void run_panel(const pass *p, panel_fn *fn, const uint8_t *panel, int64_t row, int rows, int64_t n, int valid,
                      int columns) {
    float out[FLOAT_ROWS * TD_MAX(FLOAT_COLUMNS, INT8_COLUMNS) * N];
    for (int r = 0; r < rows; r++)
        for (int u = 0; u < valid; u++) TD_PREFETCH(p->job->y + (row + r) * p->job->y_stride + n + u * N);
    fn(panel, p->job->act, view_row(p->job->act, row), out);
    for (int r = 0; r < rows; r++)
        for (int u = 0; u < valid; u++) finish(p, row + r, n + u * N, out + (r * columns + u) * N);
}

static void run_panels_int8(const pass *p, int64_t m0, int64_t m1, int64_t n0, int64_t n1, uint8_t *panel) {
    const td_qlayout *l = &p->weights->layout;
    panel_fn *fn = panels_int8[BITS(l->bits)][SUB(l->sub)][l->minimum != TD_QPARAM_NONE];
    const int64_t whole = m1 - (m1 - m0) % INT8_ROWS;
    for (int64_t n = n0; n < n1; n += INT8_COLUMNS * N) {
        int valid = (int)TD_MIN((n1 - n + N - 1) / N, INT8_COLUMNS);
        const uint8_t *column = p->weights->data + (size_t)(n / N) * td_qlayout_column_bytes(l);
        unpacks[BITS(l->bits)][SUB(l->sub)][0](l, column, valid, panel);
        for (int64_t row = m0; row < whole; row += INT8_ROWS)
            run_panel(p, fn, panel, row, INT8_ROWS, n, valid, INT8_COLUMNS);
        run_columns(p, whole, m1, n, TD_MIN(n + INT8_COLUMNS * N, n1)); /* their tiles are in cache by now */
    }
}

static void run_panels_float(const pass *p, int64_t m0, int64_t m1, int64_t n0, int64_t n1, uint8_t *panel) {
    const td_qlayout *l = &p->weights->layout;
    panel_fn *const *fns = panels_float[SUB(l->sub)][l->minimum != TD_QPARAM_NONE];
    for (int64_t n = n0; n < n1; n += FLOAT_COLUMNS * N) {
        int valid = (int)TD_MIN((n1 - n + N - 1) / N, FLOAT_COLUMNS);
        const uint8_t *column = p->weights->data + (size_t)(n / N) * td_qlayout_column_bytes(l);
        unpacks[BITS(l->bits)][SUB(l->sub)][1](l, column, valid, panel);
        for (int64_t row = m0, left; (left = m1 - row) > 0;) {
            int rows = left >= FLOAT_ROWS ? FLOAT_ROWS : left >= 2 ? 2 : 1;
            run_panel(p, fns[rows == FLOAT_ROWS ? 0 : rows == 2 ? 1 : 2], panel, row, rows, n, valid, FLOAT_COLUMNS);
            row += rows;
        }
    }
}

static void run(const td_qmatmul *job, int64_t m0, int64_t m1, int64_t n0, int64_t n1, void *scratch) {
    /* Unpacking a panel costs about as much as two rows read directly. */
    const bool is_float = job->act->mode == TD_QMODE_FLOAT, gated = job->epilogue == TD_QEPILOGUE_SWIGLU;
    const bool direct = m1 - m0 < (is_float ? 3 : INT8_ROWS);
    const pass passes[2] = {{job, job->weights, job->bias, false}, {job, job->weights_up, job->bias_up, true}};
    /* Gate and up alternate in steps of a few columns: the gate's results wait in y, in cache. */
    const int64_t few = N * (direct ? 1 : is_float ? FLOAT_COLUMNS : INT8_COLUMNS), step = gated ? few : n1 - n0;
    for (int64_t n = n0; n < n1; n += step)
        for (int i = 0; i <= gated; i++) {
            if (direct) run_columns(&passes[i], m0, m1, n, TD_MIN(n + step, n1));
            else (is_float ? run_panels_float : run_panels_int8)(&passes[i], m0, m1, n, TD_MIN(n + step, n1), scratch);
        }
}

static size_t scratch_bytes(int64_t k) {
    size_t blocks = (size_t)TD_ROUND_UP(k, K) / 16;
    size_t int8 = INT8_COLUMNS * panel_block_bytes(16, false), fp32 = FLOAT_COLUMNS * panel_block_bytes(16, true);
    return TD_MAX(blocks * TD_MAX(int8, fp32), 64);
}

static void fill(const td_qact *act, int64_t m0, int64_t m1) {
    for (int64_t row = m0; row < m1; row++) {
        const float *source = act->source + row * act->source_stride;
        for (int64_t block = 0; block < act->n_sub; block++) {
            float part[32] = {0};
            int64_t k0 = block * act->sub, n = TD_MIN(act->sub, act->k - k0), at = row * act->n_sub + block;
            const float *values = source + k0;
            if (n < act->sub) {
                if (n > 0) memcpy(part, values, (size_t)n * sizeof(float));
                values = part;
            }
            if (act->mode == TD_QMODE_INT8) {
                act->scales[at] =
                    fill_block(values, act->sub, act->codes + row * act->k_padded + k0, &act->neg_sums[at]);
                act->sums[at] = act->scales[at] * (float)-act->neg_sums[at];
            } else {
                act->sums[at] = tree_sum(values, act->sub);
                if (act->value_copy)
                    memcpy(act->value_copy + row * act->k_padded + k0, values, (size_t)act->sub * sizeof(float));
            }
        }
    }
}

const td_qmatmul_kernels VARIANT = {VARIANT_NAME, fill, run, scratch_bytes};
