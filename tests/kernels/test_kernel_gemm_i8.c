/* The 8-bit matrix product: every variant against 64-bit sums, all signs, zero points for all and for each row and
 * column, ranges on several threads; the row operations against the plain C reference. */
#include "kernels/checker.h"
#include "kernels/gemm_i8.h"

typedef struct shape {
    int64_t m, n, k;
} shape;

static const shape shapes[] = {{1, 1, 1},     {1, 16, 4},    {1, 100, 301}, {2, 17, 5},    {3, 48, 64},
                               {5, 7, 3},     {8, 96, 33},   {9, 97, 70},   {13, 33, 128}, {49, 130, 257},
                               {100, 20, 90}, {17, 200, 16}, {4, 5, 0},     {1, 300, 8}};

static void *get(size_t bytes) {
    void *p = td_alloc_aligned(bytes + 64);
    REQUIRE(p != NULL);
    return p;
}

/* Random codes, or all at the ends of their range. */
static void fill_codes(uint8_t *out, int64_t n, bool extreme, bool is_signed, uint64_t *seed) {
    for (int64_t i = 0; i < n; i++) {
        uint64_t r = td_test_random(seed);
        out[i] = (uint8_t)(!extreme ? r : is_signed ? (r & 1 ? 0x80 : 0x7f) : (r & 3 ? 0xff : 0));
    }
}

static int64_t value(const uint8_t *codes, int64_t i, bool is_signed) {
    return is_signed ? (int64_t)(int8_t)codes[i] : (int64_t)codes[i];
}

typedef struct problem {
    shape s;
    bool a_signed, b_signed, each;
    uint8_t *a, *b; /* [m, k], [k, n] */
    int32_t *a_zero, *b_zero;
    float *a_scale, *b_scale, *bias;
    int32_t *want;
    void *packed;
    size_t packed_bytes;
} problem;

static problem make(shape s, bool a_signed, bool b_signed, bool each, bool extreme, uint64_t *seed) {
    problem p = {.s = s, .a_signed = a_signed, .b_signed = b_signed, .each = each};
    size_t m = (size_t)s.m, n = (size_t)s.n, k = (size_t)s.k;
    p.a = get(m * k);
    p.b = get(k * n);
    p.a_zero = get(m * 4);
    p.b_zero = get(n * 4);
    p.a_scale = get(m * 4);
    p.b_scale = get(n * 4);
    p.bias = get(n * 4);
    p.want = get(m * n * 4);
    fill_codes(p.a, s.m * s.k, extreme, a_signed, seed);
    fill_codes(p.b, s.k * s.n, extreme, b_signed, seed);
    for (int64_t i = 0; i < s.m; i++) {
        p.a_zero[i] = (int32_t)(td_test_random(seed) % 256) - 128; /* of prepared codes, which are int8 */
        p.a_scale[i] = td_test_random_f32(seed, 0.001f, 0.1f);
    }
    for (int64_t j = 0; j < s.n; j++) {
        p.b_zero[j] = (int32_t)(td_test_random(seed) % 256);
        p.b_scale[j] = td_test_random_f32(seed, 0.001f, 0.1f);
        p.bias[j] = td_test_random_f32(seed, -1, 1);
    }
    for (int64_t i = 0; i < s.m; i++)
        for (int64_t j = 0; j < s.n; j++) {
            int64_t sum = 0, za = p.a_zero[each ? i : 0] + (a_signed ? 0 : 128),
                    zb = p.b_zero[each ? j : 0] - (b_signed ? 128 : 0);
            for (int64_t x = 0; x < s.k; x++)
                sum += (value(p.a, i * s.k + x, a_signed) - za) * (value(p.b, x * s.n + j, b_signed) - zb);
            p.want[i * s.n + j] = (int32_t)sum;
        }
    REQUIRE(td_gemm_i8_pack_bytes(s.k, s.n, &p.packed_bytes));
    p.packed = get(p.packed_bytes);
    if (each) { /* from columns */
        uint8_t *bt = get(k * n);
        for (int64_t x = 0; x < s.k; x++)
            for (int64_t j = 0; j < s.n; j++) bt[j * s.k + x] = p.b[x * s.n + j];
        td_gemm_i8_pack(bt, 1, s.k, b_signed, s.k, s.n, p.packed);
        td_free_aligned(bt);
    } else {
        td_gemm_i8_pack(p.b, s.n, 1, b_signed, s.k, s.n, p.packed);
    }
    return p;
}

static void drop(problem *p) {
    void *all[] = {p->a, p->b, p->a_zero, p->b_zero, p->a_scale, p->b_scale, p->bias, p->want, p->packed};
    for (size_t i = 0; i < TD_COUNT(all); i++) td_free_aligned(all[i]);
}

static void check(const td_gemm_i8_kernels *kernels, const problem *p, td_pool *pool) {
    shape s = p->s;
    size_t count = (size_t)(s.m * s.n);
    int8_t *rows = get((size_t)(s.m * td_gemm_i8_row(s.k)));
    int32_t *sums = get((size_t)s.m * 4);
    void *scratch = get(td_gemm_i8_scratch(pool));
    td_guarded c = td_guarded_new(count * 4, 4), y = td_guarded_new(count * 4, 8);
    int64_t step = p->each;
    td_gemm_i8 job = {.m = s.m,
                      .n = s.n,
                      .k = s.k,
                      .a = rows,
                      .a_sums = sums,
                      .b = p->packed,
                      .a_zero = p->a_zero,
                      .b_zero = p->b_zero,
                      .a_zero_step = step,
                      .b_zero_step = step,
                      .c = c.data,
                      .c_row = s.n,
                      .y_row = s.n,
                      .a_scale = p->a_scale,
                      .b_scale = p->b_scale,
                      .a_scale_step = step,
                      .b_scale_step = step,
                      .bias = p->each ? p->bias : NULL};
    char what[128];

    td_gemm_i8_fill(kernels, p->a, s.k, p->a_signed, s.k, 0, s.m, rows, sums);
    td_gemm_i8_parallel(kernels, &job, pool, scratch);
    job.c = NULL;
    job.y = y.data;
    td_gemm_i8_parallel(kernels, &job, pool, scratch);
    snprintf(what, sizeof what, "%s %lldx%lldx%lld %s%s each %d", kernels->name, (long long)s.m, (long long)s.n,
             (long long)s.k, p->a_signed ? "s8" : "u8", p->b_signed ? "s8" : "u8", p->each);
    for (size_t i = 0; i < count; i++) {
        int64_t row = (int64_t)i / s.n, column = (int64_t)i % s.n;
        float scale = p->a_scale[row * step] * p->b_scale[column * step], want = (float)p->want[i] * scale;
        if (p->each) want += p->bias[column];
        int32_t got = ((int32_t *)c.data)[i];
        float got_y = ((float *)y.data)[i];
        if (got == p->want[i] && got_y == want) continue;
        FAIL("%s: [%zu] is %d and %.9g, expected %d and %.9g", what, i, got, (double)got_y, p->want[i], (double)want);
        break;
    }
    CHECK(td_guarded_intact(&c));
    CHECK(td_guarded_intact(&y));
    td_guarded_free(&c);
    td_guarded_free(&y);
    td_free_aligned(rows);
    td_free_aligned(sums);
    td_free_aligned(scratch);
}

TEST(products) {
    td_pool *pool = td_pool_acquire(2);
    uint64_t seed = 3;
    for (size_t i = 0; i < TD_COUNT(shapes); i++)
        for (int form = 0; form < 16; form++) {
            problem p = make(shapes[i], form & 1, form & 2, form & 4, form & 8, &seed);
            for (td_variant v = td_variant_first(td_gemm_i8_variants, td_gemm_i8_n_variants); v.name;
                 v = td_variant_next(v))
                check(v.table, &p, i % 2 ? pool : NULL);
            drop(&p);
        }
    td_pool_release(pool);
}

TEST(rows_and_ranges) {
    enum { N = 300 };
    float x[N];
    uint8_t codes[N];
    uint64_t seed = 5;
    for (int64_t n = 0; n <= N; n += n < 70 ? 1 : 23)
        for (int kind = 0; kind < TD_N_FILLS; kind++) {
            td_fill_f32(x, n, (td_fill)kind, &seed);
            fill_codes(codes, n, false, false, &seed);
            if (n > 3 && kind == TD_FILL_WIDE) {
                x[n / 2] = NAN;
                x[n - 1] = -INFINITY;
            }
            float least, largest, want_least, want_largest;
            td_gemm_i8_c.range(x, n, &want_least, &want_largest);
            for (td_variant v = td_variant_first(td_gemm_i8_variants, td_gemm_i8_n_variants); v.name;
                 v = td_variant_next(v)) {
                const td_gemm_i8_kernels *k = v.table;
                td_guarded got = td_guarded_new((size_t)n, 1), want = td_guarded_new((size_t)n, 0);
                k->range(x, n, &least, &largest);
                CHECK(least == want_least && largest == want_largest);
                for (int flip = 0; flip < 2; flip++) {
                    CHECK_EQ_INT(k->row(codes, n, flip, got.data), td_gemm_i8_c.row(codes, n, flip, want.data));
                    CHECK(memcmp(got.data, want.data, (size_t)n) == 0);
                    k->quantize(x, n, 0.03f, flip ? 100 : -3, flip ? 0 : -128, flip ? 255 : 127, got.data);
                    td_gemm_i8_c.quantize(x, n, 0.03f, flip ? 100 : -3, flip ? 0 : -128, flip ? 255 : 127, want.data);
                    CHECK(memcmp(got.data, want.data, (size_t)n) == 0);
                }
                CHECK(td_guarded_intact(&got));
                td_guarded_free(&got);
                td_guarded_free(&want);
            }
        }
}

typedef struct timed {
    const td_gemm_i8_kernels *kernels;
    const td_gemm_i8 *job;
    void *scratch;
} timed;

static void run_timed(void *arg) {
    const timed *t = arg;
    td_gemm_i8_parallel(t->kernels, t->job, NULL, t->scratch);
}

TEST(time) {
    static const shape timed_shapes[] = {
        {1, 1024, 1024}, {16, 384, 384}, {128, 384, 384}, {128, 1536, 384}, {128, 384, 1536}};
    uint64_t seed = 1;
    if (!td_time_wanted()) return;
    for (size_t i = 0; i < TD_COUNT(timed_shapes); i++) {
        problem p = make(timed_shapes[i], false, true, false, false, &seed);
        for (td_variant v = td_variant_first(td_gemm_i8_variants, td_gemm_i8_n_variants); v.name;
             v = td_variant_next(v)) {
            shape s = p.s;
            int8_t *rows = get((size_t)(s.m * td_gemm_i8_row(s.k)));
            int32_t *sums = get((size_t)s.m * 4), *c = get((size_t)(s.m * s.n) * 4);
            void *scratch = get(td_gemm_i8_scratch(NULL));
            td_gemm_i8_fill(v.table, p.a, s.k, false, s.k, 0, s.m, rows, sums);
            td_gemm_i8 job = {.m = s.m,
                              .n = s.n,
                              .k = s.k,
                              .a = rows,
                              .a_sums = sums,
                              .b = p.packed,
                              .a_zero = p.a_zero,
                              .b_zero = p.b_zero,
                              .c = c,
                              .c_row = s.n};
            timed t = {v.table, &job, scratch};
            double ns = td_time_median(run_timed, &t, strcmp(v.name, "c") ? 40 : 3);
            printf("%-8s %4lld x %4lld x %4lld: %9.1f us, %6.1f G multiply-adds/s\n", v.name, (long long)s.m,
                   (long long)s.n, (long long)s.k, ns / 1000, (double)(s.m * s.n * s.k) / ns);
            td_free_aligned(rows);
            td_free_aligned(sums);
            td_free_aligned(c);
            td_free_aligned(scratch);
        }
        drop(&p);
    }
}
