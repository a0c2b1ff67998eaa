/* kernels/gemm_f32.c - the table of variants, packing of B, and the split of a product over threads. */
#include "kernels/gemm_f32.h"

#include "tensor/half.h"

#include <string.h>

#define TD_KERNEL(isa, needs) {#isa, (needs), &td_gemm_f32_##isa},
const td_kernel_variant td_gemm_f32_variants[] = {
#include "kernels/gemm_f32.inc"
};
#undef TD_KERNEL
const size_t td_gemm_f32_n_variants = TD_COUNT(td_gemm_f32_variants);

const td_gemm_f32_kernels *td_gemm_f32_pick(void) {
    return td_kernel_pick(td_gemm_f32_variants, td_gemm_f32_n_variants);
}

enum { P = TD_GEMM_PANEL };

/* --- packing --- */

static size_t type_bytes(td_dtype dtype) { return (size_t)td_dtype_bits(dtype) / 8; }

bool td_gemm_f32_pack_bytes(td_dtype dtype, int64_t k, int64_t n, size_t *out) {
    size_t columns;
    if (k < 0 || n < 0 || n > INT64_MAX - P) return false;
    columns = TD_ROUND_UP((size_t)n, P);
    return !TD_MUL_OVERFLOWS(columns, (size_t)k, out) && !TD_MUL_OVERFLOWS(*out, type_bytes(dtype), out);
}

/* Copies B[k0..k0+kc, n0..n0+count) as [kc][16] elements of T. The transposed form goes by blocks of k, so that what is
 * read and what is written both stay in the first cache. */
#define COPY_PANEL(T, name)                                                                                            \
    static void name(const td_gemm_b *b, int64_t k0, int64_t kc, int64_t n0, int64_t count, T *out) {                  \
        const T *data = b->data;                                                                                       \
        if (b->form == TD_GEMM_NORMAL) {                                                                               \
            for (int64_t i = 0; i < kc; i++) {                                                                         \
                const T *row = data + (k0 + i) * b->ld + n0;                                                           \
                TD_PREFETCH(row + 2 * P);                                                                              \
                if (count == P) memcpy(out + i * P, row, P * sizeof(T));                                               \
                else memcpy(out + i * P, row, (size_t)count * sizeof(T));                                              \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        for (int64_t block = 0; block < kc; block += 64) {                                                             \
            int64_t end = TD_MIN(block + 64, kc);                                                                      \
            for (int64_t j = 0; j < count; j++) {                                                                      \
                const T *from = data + (n0 + j) * b->ld + k0;                                                          \
                for (int64_t i = block; i < end; i++) out[i * P + j] = from[i];                                        \
            }                                                                                                          \
        }                                                                                                              \
    }
COPY_PANEL(float, copy_panel_32)
COPY_PANEL(uint16_t, copy_panel_16)

static void copy_panel(const td_gemm_b *b, int64_t n, int64_t k0, int64_t kc, int64_t n0, void *out) {
    int64_t count = TD_MIN(P, n - n0);
    if (count < P) memset(out, 0, (size_t)(kc * P) * type_bytes(b->dtype));
    if (b->dtype == TD_FLOAT) copy_panel_32(b, k0, kc, n0, count, out);
    else copy_panel_16(b, k0, kc, n0, count, out);
}

void td_gemm_f32_pack(const td_gemm_b *b, int64_t k, int64_t n, int64_t n0, int64_t n1, void *out) {
    size_t panel_bytes = (size_t)k * P * type_bytes(b->dtype);
    for (int64_t at = n0; at < n1; at += P) copy_panel(b, n, 0, k, at, (uint8_t *)out + (size_t)(at / P) * panel_bytes);
}

void td_gemm_f32_panel(const td_gemm_b *b, int64_t k, int64_t n, int64_t k0, int64_t kc, int64_t n0, float *out) {
    enum { CHUNK = 64 };
    uint16_t half[CHUNK * P];
    if (b->form == TD_GEMM_PANELS) {
        const uint8_t *panel = (const uint8_t *)b->data + (size_t)(n0 / P * k + k0) * P * type_bytes(b->dtype);
        td_to_f32(b->dtype, panel, kc * P, out);
        return;
    }
    if (b->form == TD_GEMM_FILLED) {
        b->fill(b->ctx, k0, kc, n0, TD_MIN(P, n - n0), out);
        return;
    }
    if (b->dtype == TD_FLOAT) {
        copy_panel(b, n, k0, kc, n0, out);
        return;
    }
    for (int64_t i = 0; i < kc; i += CHUNK) {
        int64_t rows = TD_MIN((int64_t)CHUNK, kc - i);
        copy_panel(b, n, k0 + i, rows, n0, half);
        td_to_f32(b->dtype, half, rows * P, out + i * P);
    }
}

/* --- threads --- */

size_t td_gemm_f32_scratch(const td_gemm_f32_kernels *kernels, const td_pool *pool) {
    return TD_ROUND_UP(kernels->scratch_bytes, 64) * (size_t)td_pool_threads(pool);
}

typedef struct split {
    const td_gemm_f32_kernels *kernels;
    const td_gemm_f32 *job;
    uint8_t *scratch;
} split;

static void columns(void *arg, int64_t begin, int64_t end, int thread) {
    const split *s = arg;
    s->kernels->run(s->job, 0, s->job->m, begin, end, s->scratch + TD_ROUND_UP(s->kernels->scratch_bytes, 64) * thread);
}

static void rows(void *arg, int64_t begin, int64_t end, int thread) {
    const split *s = arg;
    s->kernels->run(s->job, begin, end, 0, s->job->n, s->scratch + TD_ROUND_UP(s->kernels->scratch_bytes, 64) * thread);
}

void td_gemm_f32_parallel(const td_gemm_f32_kernels *kernels, const td_gemm_f32 *job, td_pool *pool, void *scratch) {
    enum { GRAIN = 65536, ROWS = 48 }; /* multiply-adds worth waking a thread: some 10 us on one core at first touch */
    split s = {kernels, job, scratch};
    int64_t column = TD_MAX(1, job->m) * TD_MAX(1, job->k), row = TD_MAX(1, job->n) * TD_MAX(1, job->k);

    if (job->n >= (int64_t)64 * td_pool_threads(pool) || job->m < ROWS * 2)
        td_pool_range(pool, job->n, TD_MAX(GRAIN / column, 64), 64, columns, &s);
    else td_pool_range(pool, job->m, TD_MAX(GRAIN / row, ROWS), ROWS, rows, &s);
}
