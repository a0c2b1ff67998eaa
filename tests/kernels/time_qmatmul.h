/* kernels/time_qmatmul.h - timing of the quantised matmul on the shapes of a 135M-parameter decoder (SmolLM2), real
 * weight streaming: every layer's matrices one after the other in one block of memory, 75 MB at 4 bits, so that caches
 * flatter nobody. Figures stand beside a plain read of the same bytes in the same run. */
#ifndef TD_TESTS_KERNELS_TIME_QMATMUL_H
#define TD_TESTS_KERNELS_TIME_QMATMUL_H

#include "base/pool.h"
#include "kernels/checker.h"
#include "kernels/qmatmul.h"

enum {
    TIME_LAYERS = 30,
    TIME_MATRICES = TIME_LAYERS * 4 + 1,
    TIME_ROUNDS = 15,
    TIME_MAX_ROWS = 512,
    TIME_MAX_N = 49152,
    TIME_MAX_K = 1536
};

typedef struct time_stream {
    td_qweights weights[TIME_MATRICES]; /* the last one is the head */
    uint8_t *memory;
    size_t bytes;
    td_pool *pool;
    const td_qmatmul_kernels *kernels;
    td_qmode mode;
    int64_t rows;
    float *a, *y;
    void *act_memory, *scratch[16];
    /* the product at hand */
    td_qact act;
    td_qmatmul job;
    uint64_t sink[16];
} time_stream;

static inline void time_part(void *arg, int64_t n0, int64_t n1, int thread) {
    time_stream *s = arg;
    td_qmatmul_run(s->kernels, &s->job, 0, s->rows, n0, n1, s->scratch[thread]);
}

static inline void time_fill(void *arg, int64_t m0, int64_t m1, int thread) {
    time_stream *s = arg;
    (void)thread;
    td_qact_fill(s->kernels, &s->act, m0, m1);
}

static inline void time_products(void *arg) {
    time_stream *s = arg;
    int n = s->rows > 1 ? TIME_MATRICES - 1 : TIME_MATRICES; /* a prefill computes the head for one row only */
    for (int i = 0; i < n; i++) {
        const td_qlayout *l = &s->weights[i].layout;
        td_qact_init(&s->act, s->mode, l->sub, s->a, l->k, s->rows, l->k, s->act_memory);
        td_pool_range(s->pool, s->rows, 8, 1, time_fill, s);
        s->job = (td_qmatmul){.weights = &s->weights[i], .act = &s->act, .y = s->y, .y_stride = l->n};
        td_pool_range(s->pool, l->n, 48, s->rows > 2 ? 48 : 16, time_part, s);
    }
}

static inline void time_read_part(void *arg, int64_t from, int64_t to, int thread) {
    time_stream *s = arg;
    uint64_t sum[8] = {0};
    for (int64_t at = from; at < to; at += 64) {
        uint64_t line[8];
        TD_PREFETCH(s->memory + at + 6912);
        memcpy(line, s->memory + at, sizeof line);
        for (int i = 0; i < 8; i++) sum[i] ^= line[i];
    }
    for (int i = 0; i < 8; i++) s->sink[thread] ^= sum[i];
}

static inline void time_read(void *arg) {
    time_stream *s = arg;
    td_pool_range(s->pool, (int64_t)s->bytes, 65536, 4096, time_read_part, s);
}

static inline time_stream *time_stream_new(int bits, int sub, td_qparam minimum, uint64_t *seed) {
    static const int64_t shapes[4][2] = {{960, 576}, {576, 576}, {3072, 576}, {576, 1536}};
    time_stream *s = td_alloc_zero(1, sizeof *s);
    REQUIRE(s);
    for (int i = 0; i < TIME_MATRICES; i++) {
        int64_t n = i == TIME_MATRICES - 1 ? TIME_MAX_N : shapes[i % 4][0],
                k = i == TIME_MATRICES - 1 ? 576 : shapes[i % 4][1];
        CHECK_OK(td_qlayout_make(bits, sub, TD_QPARAM_F16, minimum, n, k, &s->weights[i].layout, NULL), NULL);
        s->bytes += td_qlayout_bytes(&s->weights[i].layout);
    }
    size_t act_bytes, more;
    REQUIRE(td_qact_bytes(TD_QMODE_INT8, sub, TIME_MAX_ROWS, TIME_MAX_K, &act_bytes));
    REQUIRE(td_qact_bytes(TD_QMODE_FLOAT, sub, TIME_MAX_ROWS, TIME_MAX_K, &more));
    s->memory = td_alloc_aligned(s->bytes);
    s->a = td_alloc_array((size_t)TIME_MAX_ROWS * TIME_MAX_K, sizeof(float));
    s->y = td_alloc_array((size_t)TIME_MAX_ROWS * 3072, sizeof(float));
    s->act_memory = td_alloc_aligned(TD_MAX(act_bytes, more));
    REQUIRE(s->memory && s->a && s->y && s->act_memory);
    for (size_t i = 0; i < s->bytes; i += 8) {
        uint64_t word = td_test_random(seed) & 0x0fff0fff0fff0fffu; /* as fp16: small, finite */
        memcpy(s->memory + i, &word, 8);
    }
    td_fill_f32(s->a, (int64_t)TIME_MAX_ROWS * TIME_MAX_K, TD_FILL_NORMAL, seed);
    uint8_t *at = s->memory;
    for (int i = 0; i < TIME_MATRICES; i++) {
        s->weights[i].data = at;
        at += td_qlayout_bytes(&s->weights[i].layout);
    }
    return s;
}

static inline void time_stream_free(time_stream *s) {
    td_free_aligned(s->memory);
    td_free(s->a);
    td_free(s->y);
    td_free_aligned(s->act_memory);
    td_free(s);
}

/* All variants in turn, TIME_ROUNDS times, medians. */
static inline void time_case(time_stream *s, td_qmode mode, int64_t rows, int rounds, const char *what) {
    double ns[8][TIME_ROUNDS + 1], read_ns[TIME_ROUNDS + 1];
    s->mode = mode;
    s->rows = rows;
    for (int round = 0; round < rounds; round++) {
        int i = 0;
        read_ns[round] = td_time_median(time_read, s, 1);
        for (td_variant v = td_variant_first(td_qmatmul_variants, td_qmatmul_n_variants); v.name;
             v = td_variant_next(v)) {
            s->kernels = v.table;
            if (v.table == &td_qmatmul_c) continue;
            for (int t = 0; t < td_pool_threads(s->pool) && t < 16; t++) {
                s->scratch[t] = td_alloc_aligned(td_qmatmul_scratch_bytes(s->kernels, TIME_MAX_K));
                REQUIRE(s->scratch[t]);
            }
            uint64_t start = td_time_ns();
            time_products(s);
            ns[i++][round] = (double)(td_time_ns() - start);
            for (int t = 0; t < td_pool_threads(s->pool) && t < 16; t++) td_free_aligned(s->scratch[t]);
        }
    }
    double read = td_median(read_ns, rounds), macs = (double)rows * 106168320.0;
    int i = 0;
    printf("%-16s %d thr %3d rows: plain read %5.1f GB/s;", what, td_pool_threads(s->pool), (int)rows,
           (double)s->bytes / read);
    for (td_variant v = td_variant_first(td_qmatmul_variants, td_qmatmul_n_variants); v.name; v = td_variant_next(v)) {
        if (v.table == &td_qmatmul_c) continue;
        double median = td_median(ns[i++], rounds);
        if (rows == 1)
            printf("  %s %.2f ms %.1f GB/s (%.0f %%)", v.name, median * 1e-6, (double)s->bytes / median,
                   100 * read / median);
        else
            printf("  %s %.1f ms %.0f Gop/s %.0f rows/s", v.name, median * 1e-6, 2 * macs / median,
                   (double)rows / median * 1e9);
    }
    printf("\n");
}

static inline void time_all(void) {
    uint64_t seed = 7;
    for (int threads = 1; threads <= 2; threads++) {
        static const struct {
            int bits, sub;
            td_qparam minimum;
            const char *what;
        } forms[] = {{4, 32, TD_QPARAM_NONE, "4 bits"},
                     {4, 32, TD_QPARAM_F16, "4 bits, minima"},
                     {8, 32, TD_QPARAM_NONE, "8 bits"},
                     {4, 16, TD_QPARAM_NONE, "4 bits, sub 16"},
                     {2, 16, TD_QPARAM_F16, "2 bits, minima"}};
        for (size_t f = 0; f < TD_COUNT(forms); f++) {
            time_stream *s = time_stream_new(forms[f].bits, forms[f].sub, forms[f].minimum, &seed);
            s->pool = td_pool_acquire(threads);
            time_case(s, TD_QMODE_INT8, 1, TIME_ROUNDS, forms[f].what);
            time_case(s, TD_QMODE_FLOAT, 1, 5, "  float");
            if (f < 3 && threads == 1) {
                time_case(s, TD_QMODE_INT8, 2, 5, "  int8");
                time_case(s, TD_QMODE_INT8, 4, 5, "  int8");
                time_case(s, TD_QMODE_INT8, 16, 5, "  int8");
                time_case(s, TD_QMODE_INT8, 512, 3, "  int8");
                time_case(s, TD_QMODE_FLOAT, 128, 3, "  float");
            } else if (f == 0) {
                time_case(s, TD_QMODE_INT8, 512, 3, "  int8");
            }
            td_pool_release(s->pool);
            time_stream_free(s);
        }
    }
}

#endif
