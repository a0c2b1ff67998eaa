/* kernels/gemm_f32_tmpl.h - the fp32 matrix product for any SIMD instruction set, included by one .c file per set.
 *
 * The including file includes its simd_*.h and defines
 *     ROWS          rows of the largest tile, which has COLS(ROWS) columns of 16: as many sums as stay in registers
 *     COLS(rows)    columns of 16 in a tile of that many rows (1, 2 or 4)
 *     VARIANT, VARIANT_NAME, BLOCK   the td_gemm_f32_kernels and td_gemm_block_* to define
 *
 * Few rows (decode): tiles over A in place, B streamed once. Many rows: blocks of A are copied side by side, so that
 * they stay in the second cache while panels of B pass through the first. Sums are stored and loaded between blocks of
 * k, which changes nothing in their value, so both ways give the same bits. */
#include "kernels/gemm_f32.h"
#include "kernels/gemm_f32_block.h"

#include <string.h>

enum {
    P = TD_GEMM_PANEL,
    K_BLOCK = 256,
    A_STEP = K_BLOCK + P, /* between copied rows of A: no power of two, so that rows lie in different sets of a cache */
    M_BLOCK = 528,        /* rows of A that are copied at once; a multiple of ROWS */
    FEW = 36,             /* up to so many rows A is not copied */
    WIDEST = 4,           /* columns of 16 in any tile */
    AHEAD = 64,           /* steps of k that B is fetched ahead */
};

/* What one tile works on. */
typedef struct tile_args {
    int64_t k;
    const float *a;
    int64_t a_row;
    const void *b;
    int64_t b_k, b_panel;
    float *c;
    int64_t c_row;
    bool add;
    const float *bias, *row_bias;
    int last;      /* columns of the last vector, 1 to 16 */
    int64_t ahead; /* how far B is fetched ahead of its use, in elements */
} tile_args;

TD_INLINE vf load_b(const td_dtype type, const void *b, int64_t at, const bool part, int n) {
    if (type == TD_FLOAT16)
        return part ? vf_load_f16_n((const uint16_t *)b + at, n) : vf_load_f16((const uint16_t *)b + at);
    if (type == TD_BFLOAT16)
        return part ? vf_load_bf16_n((const uint16_t *)b + at, n) : vf_load_bf16((const uint16_t *)b + at);
    return part ? vf_load_n((const float *)b + at, n) : vf_load((const float *)b + at);
}

/* rows x cols * 16 sums in registers. part: the last vector is not full. */
TD_INLINE void tile(const int rows, const int cols, const td_dtype type, const bool part, const tile_args *t) {
    vf sum[ROWS][WIDEST];
    const float *a = t->a;
    int64_t at = 0;

    TD_UNROLL
    for (int i = 0; i < rows; i++) {
        TD_UNROLL
        for (int j = 0; j < cols; j++) {
            const float *c = t->c + i * t->c_row + j * P;
            sum[i][j] = !t->add ? vf_zero() : part && j == cols - 1 ? vf_load_n(c, t->last) : vf_load(c);
        }
    }
    for (int64_t k = 0; k < t->k; k++, a++, at += t->b_k) {
        vf b[WIDEST];
        TD_UNROLL
        for (int j = 0; j < cols; j++) {
            int64_t from = at + j * t->b_panel;
            TD_PREFETCH((const char *)t->b + (from + t->ahead) * (type == TD_FLOAT ? 4 : 2));
            b[j] = load_b(type, t->b, from, part && j == cols - 1, t->last);
        }
        TD_UNROLL
        for (int i = 0; i < rows; i++) {
            vf x = vf_set1(a[i * t->a_row]);
            TD_UNROLL
            for (int j = 0; j < cols; j++) sum[i][j] = vf_fma(x, b[j], sum[i][j]);
        }
    }
    if (t->row_bias) {
        TD_UNROLL
        for (int i = 0; i < rows; i++) {
            vf bias = vf_set1(t->row_bias[i]);
            TD_UNROLL
            for (int j = 0; j < cols; j++) sum[i][j] = vf_add(sum[i][j], bias);
        }
    }
    TD_UNROLL
    for (int j = 0; j < cols; j++) {
        bool whole = !(part && j == cols - 1);
        if (t->bias) {
            vf bias = whole ? vf_load(t->bias + j * P) : vf_load_n(t->bias + j * P, t->last);
            TD_UNROLL
            for (int i = 0; i < rows; i++) sum[i][j] = vf_add(sum[i][j], bias);
        }
        TD_UNROLL
        for (int i = 0; i < rows; i++) {
            float *c = t->c + i * t->c_row + j * P;
            if (whole) vf_store(c, sum[i][j]);
            else vf_store_n(c, sum[i][j], t->last);
        }
    }
}

/* A full-width tile, or one vector of up to 16 columns. */
#define TILE(rows, type, name)                                                                                         \
    static void name##_##rows(const tile_args *t, bool wide) {                                                         \
        if (wide) tile(rows, COLS(rows), type, false, t);                                                              \
        else tile(rows, 1, type, true, t);                                                                             \
    }
/* clang-format off */
#define UP_TO_6(M, ...) M(1, __VA_ARGS__) M(2, __VA_ARGS__) M(3, __VA_ARGS__) M(4, __VA_ARGS__) M(5, __VA_ARGS__) M(6, __VA_ARGS__)
#if ROWS == 12
#define UP_TO_ROWS(M, ...)                                                                                             \
    UP_TO_6(M, __VA_ARGS__)                                                                                            \
    M(7, __VA_ARGS__) M(8, __VA_ARGS__) M(9, __VA_ARGS__) M(10, __VA_ARGS__) M(11, __VA_ARGS__) M(12, __VA_ARGS__)
#else
#define UP_TO_ROWS UP_TO_6
#endif
/* clang-format on */
UP_TO_ROWS(TILE, TD_FLOAT, tile_f32)
UP_TO_6(TILE, TD_FLOAT16, tile_f16)
UP_TO_6(TILE, TD_BFLOAT16, tile_bf16)

typedef void tile_fn(const tile_args *t, bool wide);
#define TILE_ROW(rows, name) name##_##rows,
static tile_fn *const tiles_f32[] = {UP_TO_ROWS(TILE_ROW, tile_f32)};
static tile_fn *const tiles_f16[] = {UP_TO_6(TILE_ROW, tile_f16)};
static tile_fn *const tiles_bf16[] = {UP_TO_6(TILE_ROW, tile_bf16)};

static const int8_t tile_cols[ROWS] = {
#define TILE_COLS(rows, unused) COLS(rows),
    UP_TO_ROWS(TILE_COLS, 0)};

/* Row blocks of equal height, so that none is much slower than the others, inside column groups as wide as their tiles:
 * a group of B is read once from where it is and then from a cache. */
void BLOCK(const td_gemm_block *block) {
    bool half = block->b_type != TD_FLOAT;
    tile_fn *const *tiles = !half ? tiles_f32 : block->b_type == TD_FLOAT16 ? tiles_f16 : tiles_bf16;
    int64_t bytes = half ? 2 : 4, most = half ? 6 : ROWS, n_blocks = (block->m + most - 1) / most;
    if (n_blocks == 0) return;
    int64_t height = (block->m + n_blocks - 1) / n_blocks, group = tile_cols[height - 1] * P;
    tile_args t = {.k = block->k,
                   .a_row = block->a_row,
                   .b_k = block->b_k,
                   .b_panel = block->b_panel,
                   .c_row = block->c_row,
                   .add = block->add};

    for (int64_t j0 = 0; j0 < block->n; j0 += group) {
        int64_t j1 = TD_MIN(j0 + group, block->n);
        for (int64_t i = 0; i < block->m; i += height) {
            int64_t rows = TD_MIN(height, block->m - i), width = tile_cols[rows - 1] * P;
            t.a = block->a + i * block->a_row;
            t.row_bias = block->row_bias ? block->row_bias + i : NULL;
            t.ahead = block->prefetch && i == 0 ? AHEAD * block->b_k : 0;
            for (int64_t j = j0; j < j1;) {
                bool wide = j + width <= j1;
                int64_t count = wide ? width : TD_MIN((int64_t)P, j1 - j);
                t.b = (const char *)block->b + j / P * block->b_panel * bytes;
                t.c = block->c + i * block->c_row + j;
                t.bias = block->bias ? block->bias + j : NULL;
                t.last = wide ? P : (int)count;
                tiles[rows - 1](&t, wide);
                j += count;
            }
        }
    }
}

/* --- B --- */

/* fp32 panels of columns n0..n0+count and rows k0..k0+kc, made in `panels`. */
static void fill_panels(const td_gemm_f32 *job, int64_t k0, int64_t kc, int64_t n0, int64_t count, float *panels) {
    for (int64_t j = 0; j < count; j += P, panels += K_BLOCK * P) {
        int64_t k = 0;
        if (job->b.form == TD_GEMM_TRANSPOSED && job->b.dtype == TD_FLOAT && count - j >= P && n0 + j + P <= job->n)
            for (; k + P <= kc; k += P)
                vf_transpose16((const float *)job->b.data + (n0 + j) * job->b.ld + k0 + k, job->b.ld, panels + k * P);
        if (k < kc) td_gemm_f32_panel(&job->b, job->k, job->n, k0 + k, kc - k, n0 + j, panels + k * P);
    }
}

/* --- few rows --- */

/* A's rows are dense: tiles read A in place. */
static void run_few(const td_gemm_f32 *job, int64_t m0, int64_t m1, int64_t n0, int64_t n1, float *panels) {
    const td_gemm_b *b = &job->b;
    bool halves = b->dtype != TD_FLOAT, in_place = b->form == TD_GEMM_PANELS || (b->form == TD_GEMM_NORMAL && !halves);
    td_gemm_block block = {.m = m1 - m0,
                           .k = job->k,
                           .a = job->a + m0 * job->a_row,
                           .a_row = job->a_row,
                           .b_type = b->dtype,
                           .c = job->c + m0 * job->c_row,
                           .c_row = job->c_row,
                           .b_k = P,
                           .prefetch = true};

    if (in_place) {
        block.n = n1 - n0;
        block.c += n0;
        block.bias = job->bias ? job->bias + n0 : NULL;
        block.row_bias = job->row_bias ? job->row_bias + m0 : NULL;
        block.b_panel = b->form == TD_GEMM_PANELS ? job->k * P : P;
        if (b->form == TD_GEMM_NORMAL) block.b_k = b->ld;
        int64_t at = b->form == TD_GEMM_PANELS ? n0 / P * block.b_panel : n0;
        block.b = (const char *)b->data + at * (halves ? 2 : 4);
        BLOCK(&block);
        return;
    }
    block.b_type = TD_FLOAT;
    block.b = panels;
    block.b_panel = K_BLOCK * P;
    block.prefetch = false;
    for (int64_t n = n0; n < n1; n += WIDEST * P) {
        block.n = TD_MIN((int64_t)WIDEST * P, n1 - n);
        block.c = job->c + m0 * job->c_row + n;
        int64_t k0 = 0;
        do { /* once for k = 0 too: the result is then the bias */
            block.k = TD_MIN((int64_t)K_BLOCK, job->k - k0);
            block.a = job->a + m0 * job->a_row + k0;
            block.add = k0 > 0;
            bool last = k0 + block.k == job->k;
            block.bias = job->bias && last ? job->bias + n : NULL;
            block.row_bias = job->row_bias && last ? job->row_bias + m0 : NULL;
            fill_panels(job, k0, block.k, n, block.n, panels);
            BLOCK(&block);
            k0 += block.k;
        } while (k0 < job->k);
    }
}

/* --- many rows --- */

static void copy_a(const td_gemm_f32 *job, int64_t m0, int64_t count, int64_t k0, int64_t kc, float *out) {
    for (int64_t i = 0; i < count; i++, out += A_STEP) {
        const float *a = job->a + (m0 + i) * job->a_row + k0 * job->a_col;
        if (job->a_col == 1) memcpy(out, a, (size_t)kc * sizeof(float));
        else
            for (int64_t k = 0; k < kc; k++) out[k] = a[k * job->a_col];
    }
}

static void run_many(const td_gemm_f32 *job, int64_t m0, int64_t m1, int64_t n0, int64_t n1, float *panels) {
    enum { GROUP = COLS(ROWS) * P };
    float *copy = panels + WIDEST * P * K_BLOCK;
    bool in_place = job->b.form == TD_GEMM_PANELS && job->b.dtype == TD_FLOAT;
    td_gemm_block block = {.a = copy, .a_row = A_STEP, .b_type = TD_FLOAT, .b_k = P, .c_row = job->c_row};

    for (int64_t m = m0; m < m1; m += M_BLOCK) {
        int64_t k0 = 0;
        block.m = TD_MIN((int64_t)M_BLOCK, m1 - m);
        do { /* once for k = 0 too */
            block.k = TD_MIN((int64_t)K_BLOCK, job->k - k0);
            block.add = k0 > 0;
            block.row_bias = job->row_bias && k0 + block.k == job->k ? job->row_bias + m : NULL;
            copy_a(job, m, block.m, k0, block.k, copy);
            for (int64_t n = n0; n < n1; n += GROUP) {
                block.n = TD_MIN((int64_t)GROUP, n1 - n);
                block.b = in_place ? (const float *)job->b.data + (n / P * job->k + k0) * P : panels;
                block.b_panel = in_place ? job->k * P : K_BLOCK * P;
                if (!in_place) fill_panels(job, k0, block.k, n, block.n, panels);
                block.c = job->c + m * job->c_row + n;
                block.bias = job->bias && k0 + block.k == job->k ? job->bias + n : NULL;
                BLOCK(&block);
            }
            k0 += block.k;
        } while (k0 < job->k);
    }
}

static void run(const td_gemm_f32 *job, int64_t m0, int64_t m1, int64_t n0, int64_t n1, void *scratch) {
    if (m1 - m0 <= FEW && (job->a_col == 1 || job->k <= 1)) run_few(job, m0, m1, n0, n1, scratch);
    else run_many(job, m0, m1, n0, n1, scratch);
}

const td_gemm_f32_kernels VARIANT = {
    .name = VARIANT_NAME,
    .run = run,
    .scratch_bytes = (size_t)(WIDEST * P * K_BLOCK + M_BLOCK * A_STEP) * sizeof(float),
};
