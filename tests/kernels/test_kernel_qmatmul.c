/* Every variant of the quantised matmul against the plain C reference, and the reference against doubles.
 * timeout: 300
 *
 * The double oracle works on the source's own codes, scales and zero points, so it also checks the packing.
 */
#include "kernels/checker.h"
#include "kernels/qmatmul.h"
#include "kernels/time_qmatmul.h"

/* --- a random quantised matrix in ONNX form --- */

typedef struct matrix {
    td_qsource source;
    uint8_t *codes, *zeros;
    void *scales;
    td_qlayout layout;
    td_qweights weights;
    uint8_t *packed;
} matrix;

typedef enum zero_kind {
    ZERO_DEFAULT,
    ZERO_PACKED,
    ZERO_BYTES,
    ZERO_FLOAT,
    ZERO_FLOAT_F16,
    ZERO_MINIMA_F16,
    N_ZERO_KINDS
} zero_kind;

/* x rounded to fp16 precision, for magnitudes in fp16's normal range. */
static float f16_value(float x) {
    int exponent;
    float fraction = frexpf(x, &exponent);
    return ldexpf(rintf(fraction * 2048), exponent - 11);
}

static matrix make_matrix(int bits, int64_t block, int64_t n, int64_t k, bool f16_scales, zero_kind zeros, bool extreme,
                          uint64_t *seed) {
    matrix m = {
        .source = {.bits = bits, .block = block, .n = n, .k = k, .scale_type = TD_FLOAT, .zero_type = TD_FLOAT}};
    int64_t blocks = (k + block - 1) / block, per_byte = 8 / bits, zero_row = (blocks + per_byte - 1) / per_byte;
    size_t row = (size_t)(blocks * block * bits / 8), codes_bytes = (size_t)n * row;
    m.codes = td_alloc(codes_bytes);
    m.scales = td_alloc_array((size_t)(n * blocks), sizeof(float));
    m.zeros = td_alloc_array((size_t)(n * blocks), sizeof(float));
    REQUIRE(m.codes && m.scales && m.zeros);
    for (size_t i = 0; i < codes_bytes; i++)
        m.codes[i] = (uint8_t)(extreme ? -(td_test_random(seed) & 1) : td_test_random(seed));
    float *scales = m.scales, *floats = (float *)(void *)m.zeros;
    for (int64_t i = 0; i < n * blocks; i++) {
        float s = td_test_random_f32(seed, 0.001f, 0.02f) * (td_test_random(seed) & 1 ? 1.0f : -1.0f);
        scales[i] = f16_scales ? f16_value(s) : s;
        float zero = td_test_random_f32(seed, 0, (float)(1 << bits)), minimum = f16_value(-zero * scales[i]);
        if (zeros == ZERO_FLOAT) floats[i] = zero;
        if (zeros == ZERO_FLOAT_F16) floats[i] = -minimum / scales[i]; /* as the compiler of GGUF files writes them */
        if (zeros == ZERO_MINIMA_F16) floats[i] = minimum;
        if (zeros == ZERO_BYTES) m.zeros[i] = (uint8_t)(td_test_random(seed) & ((1u << bits) - 1));
    }
    if (zeros == ZERO_PACKED)
        for (int64_t i = 0; i < n * zero_row; i++) m.zeros[i] = (uint8_t)td_test_random(seed);
    const td_qzero forms[N_ZERO_KINDS] = {TD_QZERO_DEFAULT, TD_QZERO_PACKED, TD_QZERO_BYTES,
                                          TD_QZERO_FLOAT,   TD_QZERO_FLOAT,  TD_QZERO_MINIMA};
    m.source.zero_form = forms[zeros];
    m.source.codes = m.codes;
    m.source.scales = m.scales;
    m.source.zeros = m.zeros;
    treadle_error err = {0};
    CHECK_OK(td_qlayout_choose(&m.source, &m.layout, &err), &err);
    m.packed = td_alloc_aligned(td_qlayout_bytes(&m.layout));
    REQUIRE(m.packed);
    td_qweights_pack(&m.source, &m.layout, 0, td_qlayout_tiles_n(&m.layout), m.packed);
    m.weights = (td_qweights){m.layout, m.packed};
    return m;
}

static void free_matrix(matrix *m) {
    td_free(m->codes);
    td_free(m->scales);
    td_free(m->zeros);
    td_free_aligned(m->packed);
}

/* W[row, j] by definition, from the source. */
static double weight(const matrix *m, int64_t row, int64_t j) {
    const td_qsource *s = &m->source;
    int64_t blocks = (s->k + s->block - 1) / s->block, b = j / s->block, at = row * blocks + b, per_byte = 8 / s->bits;
    int64_t bit = j * s->bits;
    const uint8_t *codes = m->codes + row * (blocks * s->block * s->bits / 8);
    int code = codes[bit / 8] >> (bit % 8) & ((1 << s->bits) - 1);
    double scale = ((float *)m->scales)[at], f = ((float *)(void *)m->zeros)[at];
    if (s->zero_form == TD_QZERO_MINIMA) return code * scale + f;
    double zero = 1 << (s->bits - 1);
    if (s->zero_form == TD_QZERO_FLOAT) zero = f;
    if (s->zero_form == TD_QZERO_BYTES) zero = m->zeros[at];
    if (s->zero_form == TD_QZERO_PACKED) {
        int64_t row_bytes = (blocks + per_byte - 1) / per_byte;
        zero = m->zeros[row * row_bytes + b / per_byte] >> (s->bits * (b % per_byte)) & ((1 << s->bits) - 1);
    }
    return (code - zero) * scale;
}

/* --- one product by one variant, in guarded memory --- */

typedef struct product {
    td_qmode mode;
    int64_t rows, stride;
    const float *a; /* [rows, k] */
    const matrix *gate, *up;
    const float *bias, *add;
    int parts; /* the columns are computed in this many ranges */
} product;

static td_guarded multiply(const td_qmatmul_kernels *kernels, const product *p) {
    const td_qlayout *l = &p->gate->layout;
    size_t act_bytes = 0;
    REQUIRE(td_qact_bytes(p->mode, l->sub, p->rows, l->k, &act_bytes));
    td_guarded memory = td_guarded_new(act_bytes, 0),
               y = td_guarded_new((size_t)(p->rows * p->stride) * sizeof(float), 4);
    td_guarded scratch = td_guarded_new(td_qmatmul_scratch_bytes(kernels, l->k), 0);
    td_qact act;
    td_qact_init(&act, p->mode, l->sub, p->a, l->k, p->rows, l->k, memory.data);
    td_qact_fill(kernels, &act, 0, p->rows);
    td_qmatmul job = {.weights = &p->gate->weights,
                      .act = &act,
                      .bias = p->bias,
                      .add = p->add,
                      .add_stride = l->n,
                      .y = y.data,
                      .y_stride = p->stride};
    if (p->up) {
        job.weights_up = &p->up->weights;
        job.bias_up = p->bias;
        job.epilogue = TD_QEPILOGUE_SWIGLU;
    }
    int64_t columns = td_qlayout_tiles_n(l);
    for (int i = 0; i < p->parts; i++) {
        int64_t n0 = columns * i / p->parts * TD_QTILE_N, n1 = TD_MIN(columns * (i + 1) / p->parts * TD_QTILE_N, l->n);
        if (n0 < n1) td_qmatmul_run(kernels, &job, 0, p->rows, n0, n1, scratch.data);
    }
    CHECK(td_guarded_intact(&memory));
    CHECK(td_guarded_intact(&scratch));
    CHECK(td_guarded_intact(&y));
    td_guarded_free(&memory);
    td_guarded_free(&scratch);
    return y;
}

/* --- activations as INT8 mode sees them --- */

static float block_scale(const float *x, int64_t n) {
    float max = 0;
    for (int64_t j = 0; j < n; j++) max = fmaxf(max, fabsf(x[j]));
    return max < TD_QACT_LEAST ? 0 : max / 127;
}

/* Squared scales above this are refined. */
static double refine_limit(const float *row, const td_qlayout *l) {
    double sum = 0;
    int64_t n = 0;
    for (int64_t b = 0; b < l->k; b += l->sub, n++) {
        double scale = (double)block_scale(row + b, TD_MIN(l->sub, l->k - b));
        sum += scale * scale;
    }
    return TD_QACT_REFINE * sum / (double)n;
}

/* x in a block of this scale, as one code or two. */
static double seen(float x, float max, double limit) {
    float scale = max / 127, code = nearbyintf(x * (127 / max));
    double value = (double)scale * (double)code;
    if ((double)scale * (double)scale <= limit * (1 + 1e-14)) return value;
    float rest = x - scale * code;
    double second = nearbyint((double)(rest * (254 / scale)));
    return value + (double)(scale / 254) * fmax(-127, fmin(127, second));
}

/* Reference against doubles: exact products of the activations as the mode sees them. */
static void check_oracle(const product *p, const float *y) {
    const td_qlayout *l = &p->gate->layout;
    for (int64_t row = 0; row < p->rows; row++) {
        double limit = refine_limit(p->a + row * l->k, l);
        for (int64_t n = 0; n < l->n; n++) {
            double sum = p->bias ? p->bias[n] : 0, magnitude = fabs(sum);
            for (int64_t b = 0; b < l->k; b += l->sub) {
                int64_t end = TD_MIN(b + l->sub, l->k);
                float max = 0;
                for (int64_t j = b; j < end; j++) max = fmaxf(max, fabsf(p->a[row * l->k + j]));
                bool zero = p->mode == TD_QMODE_INT8 && max < TD_QACT_LEAST;
                for (int64_t j = b; j < end; j++) {
                    double a = p->a[row * l->k + j], w = weight(p->gate, n, j);
                    if (p->mode == TD_QMODE_INT8) a = zero ? 0 : seen(p->a[row * l->k + j], max, limit);
                    sum += a * w;
                    magnitude += fabs(a) * (fabs(w) + fabs(weight(p->gate, n, j) * 0 + 1) * 0.02 * (1 << l->bits));
                }
            }
            double add = p->add ? p->add[row * l->n + n] : 0;
            if (fabs(sum + add - (double)y[row * p->stride + n]) <= 1e-6 * (magnitude + fabs(add)) + 1e-37) continue;
            FAIL("row %lld, output %lld is %.9g, expected %.9g", (long long)row, (long long)n,
                 (double)y[row * p->stride + n], sum + add);
            return;
        }
    }
}

/* All variants on one product; in FLOAT mode and with SwiGLU the SIMD ones agree with each
 * other, the reference roughly. */
static void check_product(const product *p, const char *what) {
    const td_qlayout *l = &p->gate->layout;
    td_guarded want = multiply(&td_qmatmul_c, p), simd = {0};
    int64_t n = p->rows * p->stride;
    if (!p->up) check_oracle(p, want.data);
    for (td_variant v = td_variant_first(td_qmatmul_variants, td_qmatmul_n_variants); v.name; v = td_variant_next(v)) {
        if (v.table == &td_qmatmul_c) continue;
        td_guarded got = multiply(v.table, p);
        char label[256];
        snprintf(label, sizeof label, "%s %s: %d bits, sub %d, scale %d, minimum %d, [%lld, %lld] x %lld rows, mode %d",
                 v.name, what, l->bits, l->sub, l->scale, l->minimum, (long long)l->n, (long long)l->k,
                 (long long)p->rows, p->mode);
        if (p->mode == TD_QMODE_INT8 && !p->up) {
            td_same_bits_f32(label, got.data, want.data, n);
        } else if (p->up || p->mode == TD_QMODE_FLOAT) {
            const float *w = want.data;
            float largest = 0;
            for (int64_t i = 0; i < n; i++) largest = fmaxf(largest, isfinite(w[i]) ? fabsf(w[i]) : 0);
            float tolerance = largest * (p->mode == TD_QMODE_FLOAT ? 2e-5f : 2e-6f);
            td_near_f32(label, got.data, want.data, n, &tolerance, 0);
        }
        if (simd.data) td_same_bits_f32(label, got.data, simd.data, n);
        td_guarded_free(&simd);
        simd = got;
    }
    td_guarded_free(&simd);
    td_guarded_free(&want);
}

static float *random_values(int64_t n, td_fill kind, uint64_t *seed) {
    float *values = td_alloc_array((size_t)n, sizeof(float));
    REQUIRE(values);
    td_fill_f32(values, n, kind, seed);
    return values;
}

/* --- tests --- */

TEST(every_form_and_mode) {
    static const int all_bits[] = {2, 4, 8};
    static const int64_t blocks[] = {16, 32, 64, 256};
    uint64_t seed = 1;
    for (int i = 0; i < 3 * 4 * 2 * N_ZERO_KINDS; i++) {
        int bits = all_bits[i % 3];
        int64_t block = blocks[i / 3 % 4], n = 1 + (int64_t)(td_test_random(&seed) % 70),
                k = 1 + (int64_t)(td_test_random(&seed) % 400);
        matrix m = make_matrix(bits, block, n, k, i / 12 % 2, (zero_kind)(i / 24), false, &seed);
        for (td_qmode mode = TD_QMODE_INT8; mode <= TD_QMODE_FLOAT; mode++) {
            int64_t rows = 1 + (int64_t)(td_test_random(&seed) % 9);
            float *a = random_values(rows * k, TD_FILL_NORMAL, &seed);
            product p = {.mode = mode, .rows = rows, .stride = n + 3, .a = a, .gate = &m, .parts = 1};
            check_product(&p, "form");
            td_free(a);
        }
        free_matrix(&m);
    }
}

TEST(sizes_around_every_edge) {
    static const int64_t ks[] = {1, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 160, 192, 576};
    static const int64_t ns[] = {1, 15, 16, 17, 31, 32, 33, 47, 48, 49, 96, 100};
    uint64_t seed = 2;
    for (size_t i = 0; i < TD_COUNT(ks) * TD_COUNT(ns); i++) {
        int64_t k = ks[i % TD_COUNT(ks)], n = ns[i / TD_COUNT(ks)], rows = 1 + (int64_t)(td_test_random(&seed) % 14);
        matrix m = make_matrix(i & 1 ? 4 : 8, 32, n, k, true, i & 2 ? ZERO_FLOAT_F16 : ZERO_DEFAULT, false, &seed);
        float *a = random_values(rows * k, TD_FILL_NORMAL, &seed),
              *add = random_values(rows * n, TD_FILL_NORMAL, &seed);
        product p = {.mode = (td_qmode)(i / 3 % 2),
                     .rows = rows,
                     .stride = n,
                     .a = a,
                     .gate = &m,
                     .bias = i & 4 ? add : NULL,
                     .add = i & 8 ? add : NULL,
                     .parts = 1 + (int)(i % 3)};
        check_product(&p, "size");
        td_free(a);
        td_free(add);
        free_matrix(&m);
    }
}

TEST(worst_case_values) {
    uint64_t seed = 3;
    for (int i = 0; i < 3 * TD_N_FILLS * 4; i++) {
        int bits = 2 << (i % 3);
        int64_t k = 512, n = 32, rows = i & 1 ? 1 : 5;
        matrix m = make_matrix(bits, i & 2 ? 16 : 32, n, k, true, i / 3 % 2 ? ZERO_BYTES : ZERO_DEFAULT, true, &seed);
        for (td_qmode mode = TD_QMODE_INT8; mode <= TD_QMODE_FLOAT; mode++) {
            float *a = random_values(rows * k, (td_fill)(i / 12 % TD_N_FILLS), &seed);
            product p = {.mode = mode, .rows = rows, .stride = n, .a = a, .gate = &m, .parts = 1};
            check_product(&p, "worst case");
            td_free(a);
        }
        free_matrix(&m);
    }
}

TEST(nan_and_infinity_reach_the_row) {
    uint64_t seed = 4;
    int64_t k = 100, n = 40, rows = 5;
    matrix m = make_matrix(4, 32, n, k, true, ZERO_FLOAT_F16, false, &seed);
    for (td_variant v = td_variant_first(td_qmatmul_variants, td_qmatmul_n_variants); v.name; v = td_variant_next(v))
        for (int mode = 0; mode < 2; mode++) {
            float *a = random_values(rows * k, TD_FILL_NORMAL, &seed);
            a[1 * k + 70] = NAN;
            a[3 * k + 99] = INFINITY;
            product p = {.mode = (td_qmode)mode, .rows = rows, .stride = n, .a = a, .gate = &m, .parts = 1};
            td_guarded y = multiply(v.table, &p);
            for (int64_t i = 0; i < rows * n; i++)
                CHECK_EQ_INT(!isfinite(((float *)y.data)[i]), i / n == 1 || i / n == 3);
            td_guarded_free(&y);
            td_free(a);
        }
    free_matrix(&m);
}

TEST(swiglu) {
    uint64_t seed = 5;
    for (int i = 0; i < 24; i++) {
        int64_t k = 64 + 32 * i, n = 20 + 9 * i, rows = 1 + i % 7;
        matrix gate = make_matrix(4, 32, n, k, true, ZERO_DEFAULT, false, &seed);
        matrix up = make_matrix(i & 1 ? 4 : 8, 32, n, k, true, i & 2 ? ZERO_FLOAT_F16 : ZERO_DEFAULT, false, &seed);
        float *a = random_values(rows * k, TD_FILL_NORMAL, &seed), *bias = random_values(n, TD_FILL_NORMAL, &seed);
        if (i % 4 == 3)
            for (int64_t j = 0; j < n; j++) bias[j] *= 40; /* where exp overflows and vanishes */
        product p = {.mode = (td_qmode)(i / 2 % 2),
                     .rows = rows,
                     .stride = n + 1,
                     .a = a,
                     .gate = &gate,
                     .up = &up,
                     .bias = i & 4 ? bias : NULL,
                     .parts = 1 + i % 2};
        check_product(&p, "swiglu");
        td_free(a);
        td_free(bias);
        free_matrix(&gate);
        free_matrix(&up);
    }
}

/* A row alone, and inside any number of rows, in any ranges: the same bits. */
TEST(rows_and_ranges_do_not_matter) {
    uint64_t seed = 6;
    for (int i = 0; i < 48; i++) {
        int64_t k = 16 + (int64_t)(td_test_random(&seed) % 300), n = 1 + (int64_t)(td_test_random(&seed) % 130),
                rows = 3 + i % 12;
        matrix m =
            make_matrix(2 << (i % 3), i & 1 ? 32 : 16, n, k, i & 2, i & 4 ? ZERO_FLOAT : ZERO_DEFAULT, false, &seed);
        float *a = random_values(rows * k, TD_FILL_WIDE, &seed);
        for (td_variant v = td_variant_first(td_qmatmul_variants, td_qmatmul_n_variants); v.name;
             v = td_variant_next(v)) {
            product p = {.mode = (td_qmode)(i / 3 % 2), .rows = rows, .stride = n, .a = a, .gate = &m, .parts = 1};
            td_guarded all = multiply(v.table, &p);
            for (int64_t row = 0; row < rows; row++) {
                product one = p;
                one.rows = 1;
                one.a = a + row * k;
                one.parts = 1 + (int)(row % 3);
                td_guarded alone = multiply(v.table, &one);
                td_same_bits_f32(v.name, alone.data, (float *)all.data + row * n, n);
                td_guarded_free(&alone);
            }
            td_guarded_free(&all);
        }
        td_free(a);
        free_matrix(&m);
    }
}

TEST(timing) {
    if (!td_time_wanted()) SKIP("set TREADLE_TIME=1 to time the variants");
    time_all();
}
