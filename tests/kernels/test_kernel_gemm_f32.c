/* The fp32 matrix product: every variant against a reference in double, bit-equality between shapes, forms and
 * splits. */
#include "kernels/checker.h"
#include "kernels/gemm_f32.h"
#include "tensor/half.h"

typedef struct shape {
    int64_t m, n, k;
} shape;

static const shape shapes[] = {{1, 1, 1},      {1, 16, 16},   {1, 64, 33},  {1, 100, 300},  {2, 17, 5},
                               {3, 70, 257},   {5, 64, 256},  {6, 33, 100}, {7, 48, 64},    {11, 31, 40},
                               {12, 32, 512},  {13, 65, 300}, {25, 40, 17}, {37, 130, 260}, {241, 33, 70},
                               {300, 16, 513}, {4, 8, 0},     {20, 20, 0}};

typedef struct problem {
    int64_t m, n, k;
    float *a, *b, *bt, *bias, *c; /* b [k, n + 3], bt [n, k + 5] */
    uint16_t *half, *half_t;      /* b and bt in a half type, widened back into b */
    double *exact, *size;
} problem;

static void *get(size_t n, size_t bytes) {
    void *p = td_alloc_aligned((n + 64) * bytes);
    REQUIRE(p != NULL);
    return p;
}

static problem make(shape s, td_dtype b_type, uint64_t *seed) {
    problem p = {.m = s.m, .n = s.n, .k = s.k};
    size_t m = (size_t)s.m, n = (size_t)s.n, k = (size_t)s.k;
    p.a = get(m * k, 4);
    p.b = get(k * (n + 3), 4);
    p.bt = get(n * (k + 5), 4);
    p.half = get(k * (n + 3), 2);
    p.half_t = get(n * (k + 5), 2);
    p.bias = get(n, 4);
    p.c = get(m * n, 4);
    p.exact = get(m * n, 8);
    p.size = get(m * n, 8);
    td_fill_f32(p.a, s.m * s.k, TD_FILL_NORMAL, seed);
    td_fill_f32(p.b, s.k * (s.n + 3), TD_FILL_NORMAL, seed);
    td_fill_f32(p.bias, s.n, TD_FILL_NORMAL, seed);
    if (b_type != TD_FLOAT) {
        td_from_f32(b_type, p.b, s.k * (s.n + 3), p.half);
        td_to_f32(b_type, p.half, s.k * (s.n + 3), p.b);
    }
    for (int64_t j = 0; j < s.n; j++)
        for (int64_t x = 0; x < s.k; x++) {
            p.bt[j * (s.k + 5) + x] = p.b[x * (s.n + 3) + j];
            p.half_t[j * (s.k + 5) + x] = p.half[x * (s.n + 3) + j];
        }
    for (int64_t i = 0; i < s.m; i++)
        for (int64_t j = 0; j < s.n; j++) {
            double sum = 0, size = 0;
            for (int64_t x = 0; x < s.k; x++) {
                double v = (double)p.a[i * s.k + x] * (double)p.b[x * (s.n + 3) + j];
                sum += v;
                size += fabs(v);
            }
            p.exact[i * s.n + j] = sum + (double)p.bias[j];
            p.size[i * s.n + j] = size + fabs((double)p.bias[j]);
        }
    return p;
}

static void drop(problem *p) {
    void *all[] = {p->a, p->b, p->bt, p->half, p->half_t, p->bias, p->c, p->exact, p->size};
    for (size_t i = 0; i < TD_COUNT(all); i++) td_free_aligned(all[i]);
}

/* As a convolution fills panels: what is beyond the matrix is left as it was. */
static void fill(const void *ctx, int64_t k0, int64_t kc, int64_t n0, int64_t count, float *out) {
    const problem *p = ctx;
    for (int64_t x = 0; x < kc; x++)
        for (int64_t j = 0; j < count; j++) out[x * TD_GEMM_PANEL + j] = p->b[(k0 + x) * (p->n + 3) + n0 + j];
}

static td_gemm_b form_of(const problem *p, td_gemm_form form, td_dtype type, void *packed) {
    bool half = type != TD_FLOAT;
    td_gemm_b b = {.form = form, .dtype = type, .data = half ? (void *)p->half : p->b, .ld = p->n + 3};
    if (form == TD_GEMM_TRANSPOSED) {
        b.data = half ? (void *)p->half_t : p->bt;
        b.ld = p->k + 5;
    } else if (form == TD_GEMM_FILLED) {
        b = (td_gemm_b){.form = form, .dtype = TD_FLOAT, .fill = fill, .ctx = p};
    } else if (form == TD_GEMM_PANELS) {
        td_gemm_b from = form_of(p, p->n % 2 ? TD_GEMM_NORMAL : TD_GEMM_TRANSPOSED, type, NULL);
        td_gemm_f32_pack(&from, p->k, p->n, 0, p->n, packed);
        b.data = packed;
    }
    return b;
}

/* The bias of a row is added last: to what a run without any bias gives. */
static void check_row_bias(const td_gemm_f32_kernels *kernels, const problem *p, const float *first, td_gemm_b b,
                           void *scratch) {
    size_t count = (size_t)(p->m * p->n);
    float *plain = get(count, 4), *got = get(count, 4), *bias = get((size_t)p->m, 4);
    td_gemm_f32 job = {
        .m = p->m, .n = p->n, .k = p->k, .a = p->a, .a_row = p->k, .a_col = 1, .b = b, .c = plain, .c_row = p->n};
    kernels->run(&job, 0, p->m, 0, p->n, scratch);
    for (int64_t i = 0; i < p->m; i++) bias[i] = (float)i * 0.37f - 1;
    job.row_bias = bias;
    job.c = got;
    kernels->run(&job, 0, p->m, 0, p->n, scratch);
    for (size_t i = 0; i < count; i++) plain[i] += bias[i / (size_t)p->n];
    td_same_bits_f32("row bias", got, plain, (int64_t)count);
    job.bias = p->bias;
    job.row_bias = NULL;
    kernels->run(&job, 0, p->m, 0, p->n, scratch);
    td_same_bits_f32("column bias", got, first, (int64_t)count);
    td_free_aligned(plain);
    td_free_aligned(got);
    td_free_aligned(bias);
}

/* The first form's result of the same variant is what the other forms must give, bit for bit. */
static void check_forms(const td_gemm_f32_kernels *kernels, const problem *p, td_dtype type) {
    static const char *const names[] = {"normal", "transposed", "panels", "filled"};
    size_t packed_bytes, count = (size_t)(p->m * p->n);
    REQUIRE(td_gemm_f32_pack_bytes(type, p->k, p->n, &packed_bytes));
    void *packed = get(packed_bytes, 1), *scratch = get(kernels->scratch_bytes, 1);
    float *first = get(count, 4);
    char what[128];

    for (int form = TD_GEMM_NORMAL; form <= (type == TD_FLOAT ? TD_GEMM_FILLED : TD_GEMM_PANELS); form++)
        for (int a_way = 0; a_way < 2; a_way++) { /* A dense, A transposed */
            float *at = get((size_t)(p->m * p->k), 4);
            for (int64_t i = 0; i < p->m; i++)
                for (int64_t x = 0; x < p->k; x++) at[x * p->m + i] = p->a[i * p->k + x];
            td_guarded c = td_guarded_new(count * 4, 4);
            td_gemm_f32 job = {.m = p->m,
                               .n = p->n,
                               .k = p->k,
                               .a = a_way ? at : p->a,
                               .a_row = a_way ? 1 : p->k,
                               .a_col = a_way ? p->m : 1,
                               .b = form_of(p, (td_gemm_form)form, type, packed),
                               .bias = p->bias,
                               .c = c.data,
                               .c_row = p->n};
            kernels->run(&job, 0, p->m, 0, p->n, scratch);
            snprintf(what, sizeof what, "%s %s %s a%d %lldx%lldx%lld", kernels->name, td_dtype_name(type), names[form],
                     a_way, (long long)p->m, (long long)p->n, (long long)p->k);
            if (form == 0 && a_way == 0) {
                memcpy(first, c.data, count * 4);
                for (size_t i = 0; i < count; i++)
                    if (!(fabs((double)first[i] - p->exact[i]) <= 1e-6 * p->size[i] + 1e-30)) {
                        FAIL("%s: [%zu] is %.9g, expected %.9g", what, i, (double)first[i], p->exact[i]);
                        break;
                    }
            }
            td_same_bits_f32(what, c.data, first, (int64_t)count);
            CHECK(td_guarded_intact(&c));
            td_guarded_free(&c);
            td_free_aligned(at);
        }
    check_row_bias(kernels, p, first, form_of(p, TD_GEMM_PANELS, type, packed), scratch);
    /* each row alone, and a part of the columns */
    float *row = get((size_t)p->n, 4);
    for (int64_t i = 0; i < p->m; i += TD_MAX(1, p->m / 5)) {
        td_gemm_f32 job = {.m = 1,
                           .n = p->n,
                           .k = p->k,
                           .a = p->a + i * p->k,
                           .a_row = p->k,
                           .a_col = 1,
                           .b = form_of(p, TD_GEMM_PANELS, type, packed),
                           .bias = p->bias,
                           .c = row,
                           .c_row = p->n};
        kernels->run(&job, 0, 1, 0, TD_MIN(16, p->n), scratch);
        if (p->n > 16) kernels->run(&job, 0, 1, 16, p->n, scratch);
        snprintf(what, sizeof what, "%s row alone of %lldx%lldx%lld", kernels->name, (long long)p->m, (long long)p->n,
                 (long long)p->k);
        td_same_bits_f32(what, row, first + i * p->n, p->n);
    }
    td_free_aligned(row);
    td_free_aligned(first);
    td_free_aligned(scratch);
    td_free_aligned(packed);
}

TEST(every_variant_is_exact_in_every_form) {
    static const td_dtype types[] = {TD_FLOAT, TD_FLOAT16, TD_BFLOAT16};
    uint64_t seed = 1;
    for (size_t t = 0; t < TD_COUNT(types); t++)
        for (size_t i = 0; i < TD_COUNT(shapes); i++) {
            problem p = make(shapes[i], types[t], &seed);
            for (td_variant v = td_variant_first(td_gemm_f32_variants, td_gemm_f32_n_variants); v.name;
                 v = td_variant_next(v))
                check_forms(v.table, &p, types[t]);
            drop(&p);
        }
}

TEST(threads_do_not_change_a_bit) {
    uint64_t seed = 2;
    problem p = make((shape){100, 1000, 300}, TD_FLOAT, &seed);
    const td_gemm_f32_kernels *kernels = td_gemm_f32_pick();
    float *other = get((size_t)(p.m * p.n), 4);
    for (int threads = 1; threads <= 3; threads++) {
        td_pool *pool = td_pool_acquire(threads);
        void *scratch = get(td_gemm_f32_scratch(kernels, pool), 1);
        td_gemm_f32 job = {.m = p.m,
                           .n = p.n,
                           .k = p.k,
                           .a = p.a,
                           .a_row = p.k,
                           .a_col = 1,
                           .c = threads == 1 ? p.c : other,
                           .c_row = p.n,
                           .b = form_of(&p, TD_GEMM_NORMAL, TD_FLOAT, NULL)};
        td_gemm_f32_parallel(kernels, &job, pool, scratch);
        if (threads > 1) td_same_bits_f32("threads", other, p.c, p.m * p.n);
        td_free_aligned(scratch);
        td_pool_release(pool);
    }
    td_free_aligned(other);
    drop(&p);
}

/* --- timing */

typedef struct timed {
    const td_gemm_f32_kernels *kernels;
    td_gemm_f32 job;
    void *scratch;
} timed;

static void run_timed(void *arg) {
    timed *t = arg;
    t->kernels->run(&t->job, 0, t->job.m, 0, t->job.n, t->scratch);
}

TEST(time) {
    static const shape timed_shapes[] = {{1, 1536, 576},  {1, 4096, 4096},  {4, 4096, 4096}, {8, 4096, 4096},
                                         {16, 1536, 576}, {128, 1536, 576}, {512, 512, 512}, {512, 1536, 576}};
    if (!td_time_wanted()) SKIP("TREADLE_TIME is not set");
    uint64_t seed = 3;
    for (size_t i = 0; i < TD_COUNT(timed_shapes); i++) {
        shape s = timed_shapes[i];
        size_t bytes;
        REQUIRE(td_gemm_f32_pack_bytes(TD_FLOAT, s.k, s.n, &bytes));
        float *a = get((size_t)(s.m * s.k), 4), *b = get((size_t)(s.k * s.n), 4), *c = get((size_t)(s.m * s.n), 4);
        void *packed = get(bytes, 1), *half = get(bytes, 1);
        td_fill_f32(a, s.m * s.k, TD_FILL_NORMAL, &seed);
        td_fill_f32(b, s.k * s.n, TD_FILL_NORMAL, &seed);
        for (td_variant v = td_variant_first(td_gemm_f32_variants, td_gemm_f32_n_variants); v.name;
             v = td_variant_next(v)) {
            timed t = {.kernels = v.table,
                       .job = {.m = s.m, .n = s.n, .k = s.k, .a = a, .a_row = s.k, .a_col = 1, .c = c, .c_row = s.n}};
            if (strcmp(v.name, "c") == 0 && s.m > 16) continue;
            t.scratch = get(t.kernels->scratch_bytes, 1);
            double ns[4];
            for (int form = 0; form < 4; form++) {
                t.job.b = (td_gemm_b){.form = form == 3 ? TD_GEMM_PANELS : (td_gemm_form)form,
                                      .dtype = form == 3 ? TD_FLOAT16 : TD_FLOAT,
                                      .data = b,
                                      .ld = form == TD_GEMM_TRANSPOSED ? s.k : s.n};
                if (form == TD_GEMM_PANELS) {
                    td_gemm_b from = {.form = TD_GEMM_NORMAL, .dtype = TD_FLOAT, .data = b, .ld = s.n};
                    td_gemm_f32_pack(&from, s.k, s.n, 0, s.n, packed);
                    t.job.b.data = packed;
                } else if (form == 3) {
                    td_from_f32(TD_FLOAT16, packed, (int64_t)(bytes / 4), half);
                    t.job.b.data = half;
                }
                ns[form] = td_time_median(run_timed, &t, 15);
            }
            double flop = 2.0 * (double)s.m * (double)s.n * (double)s.k;
            printf(
                "gemm %4lldx%5lldx%4lld %-7s normal %8.1f us %6.1f GF/s  transposed %6.1f  panels %6.1f (%5.1f GB/s)  f16 panels %6.1f\n",
                (long long)s.m, (long long)s.n, (long long)s.k, v.name, ns[0] / 1e3, flop / ns[0], flop / ns[1],
                flop / ns[2], 4.0 * (double)(s.n * s.k) / ns[2], flop / ns[3]);
            td_free_aligned(t.scratch);
        }
        void *all[] = {a, b, c, packed, half};
        for (size_t j = 0; j < TD_COUNT(all); j++) td_free_aligned(all[j]);
    }
}
