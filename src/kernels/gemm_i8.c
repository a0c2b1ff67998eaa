/* kernels/gemm_i8.c - the table of variants, preparing operands, and the split of a product over threads. */
#include "kernels/gemm_i8.h"

#include <string.h>

#define TD_KERNEL(isa, needs) {#isa, (needs), &td_gemm_i8_##isa},
const td_kernel_variant td_gemm_i8_variants[] = {
#include "kernels/gemm_i8.inc"
};
#undef TD_KERNEL
const size_t td_gemm_i8_n_variants = TD_COUNT(td_gemm_i8_variants);

const td_gemm_i8_kernels *td_gemm_i8_pick(void) { return td_kernel_pick(td_gemm_i8_variants, td_gemm_i8_n_variants); }

enum {
    P = TD_GEMM_I8_PANEL,
    STEP = TD_GEMM_I8_STEP,
    GROUP = 6 * P, /* columns whose raw sums are made at once */
    ROWS = 48,     /* and rows */
};

/* --- operands --- */

void td_gemm_i8_fill(const td_gemm_i8_kernels *kernels, const void *data, int64_t stride, bool is_signed, int64_t k,
                     int64_t m0, int64_t m1, int8_t *out, int32_t *sums) {
    int64_t row = td_gemm_i8_row(k);
    for (int64_t i = m0; i < m1; i++) {
        sums[i] = kernels->row((const uint8_t *)data + i * stride, k, !is_signed, out + i * row);
        memset(out + i * row + k, 0, (size_t)(row - k));
    }
}

static size_t sums_bytes(int64_t n) { return TD_ROUND_UP((size_t)n, P) * sizeof(int32_t); }

bool td_gemm_i8_pack_bytes(int64_t k, int64_t n, size_t *out) {
    if (k < 0 || n < 0 || k > INT64_MAX / 64 || n > INT64_MAX / 64) return false;
    return !TD_MUL_OVERFLOWS(TD_ROUND_UP((size_t)n, P), (size_t)td_gemm_i8_row(k), out) &&
           !TD_ADD_OVERFLOWS(*out, sums_bytes(n), out);
}

void td_gemm_i8_pack(const void *data, int64_t row, int64_t col, bool is_signed, int64_t k, int64_t n, void *out) {
    const uint8_t *from = data, flip = is_signed ? 0x80 : 0;
    int32_t *sums = out;
    uint8_t *panel = (uint8_t *)out + sums_bytes(n);
    int64_t panel_bytes = td_gemm_i8_row(k) * P;

    memset(sums, 0, sums_bytes(n));
    for (int64_t n0 = 0; n0 < n; n0 += P, panel += panel_bytes) {
        int64_t count = TD_MIN((int64_t)P, n - n0);
        if (count < P || k % STEP) memset(panel, 0, (size_t)panel_bytes);
        for (int64_t x = 0; x < k; x++) {
            uint8_t *to = panel + x / STEP * P * STEP + x % STEP;
            for (int64_t j = 0; j < count; j++) {
                uint8_t code = from[x * row + (n0 + j) * col] ^ flip;
                to[j * STEP] = code;
                sums[n0 + j] += code;
            }
        }
    }
}

/* --- the product --- */

size_t td_gemm_i8_scratch(const td_pool *pool) {
    return (size_t)(ROWS * GROUP) * sizeof(int32_t) * (size_t)td_pool_threads(pool);
}

static void run(const td_gemm_i8_kernels *kernels, const td_gemm_i8 *job, int64_t m0, int64_t m1, int64_t n0,
                int64_t n1, int32_t *raw) {
    int64_t row = td_gemm_i8_row(job->k), panel_bytes = row * P;
    const uint8_t *panels = (const uint8_t *)job->b + sums_bytes(job->n);

    for (int64_t n = n0; n < n1; n += GROUP) {
        int64_t columns = TD_MIN((int64_t)GROUP, n1 - n), n_panels = (columns + P - 1) / P;
        for (int64_t m = m0; m < m1; m += ROWS) {
            int64_t rows = TD_MIN((int64_t)ROWS, m1 - m);
            kernels->sums(job->a + m * row, row, rows, panels + n / P * panel_bytes, panel_bytes, n_panels, row / STEP,
                          raw, GROUP);
            kernels->finish(job, m, rows, n, columns, raw, GROUP);
        }
    }
}

typedef struct split {
    const td_gemm_i8_kernels *kernels;
    const td_gemm_i8 *job;
    int32_t *scratch;
} split;

static void columns(void *arg, int64_t begin, int64_t end, int thread) {
    const split *s = arg;
    run(s->kernels, s->job, 0, s->job->m, begin, end, s->scratch + (int64_t)thread * ROWS * GROUP);
}

static void rows(void *arg, int64_t begin, int64_t end, int thread) {
    const split *s = arg;
    run(s->kernels, s->job, begin, end, 0, s->job->n, s->scratch + (int64_t)thread * ROWS * GROUP);
}

void td_gemm_i8_parallel(const td_gemm_i8_kernels *kernels, const td_gemm_i8 *job, td_pool *pool, void *scratch) {
    enum { GRAIN = 262144 }; /* multiply-adds worth waking a thread */
    split s = {kernels, job, scratch};
    int64_t column = TD_MAX(1, job->m) * TD_MAX(1, job->k), line = TD_MAX(1, job->n) * TD_MAX(1, job->k);

    if (job->m == 0 || job->n == 0) return;
    if (job->n >= (int64_t)GROUP * td_pool_threads(pool) || job->m < 2 * ROWS)
        td_pool_range(pool, job->n, TD_MAX(GRAIN / column, P), P, columns, &s);
    else td_pool_range(pool, job->m, TD_MAX(GRAIN / line, 8), 8, rows, &s);
}
