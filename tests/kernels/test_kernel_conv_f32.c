/* The inner loops of convolutions: every variant against the plain C one. */
#include "kernels/checker.h"
#include "kernels/conv_f32.h"

enum { CHANNELS = 3, PLANE = 700, TAPS = 6, ROWS = CHANNELS * TAPS };

static const int64_t taps[TAPS] = {0, 1, 2, 90, 91, 95};

/* A panel of 16 columns or less in spans of `length`, rows k0..k0+kc. */
static void check_fill(const td_conv_f32_kernels *kernels, const float *x, int64_t stride, int length, int columns,
                       int64_t k0, int64_t kc) {
    td_conv_source s = {x, PLANE, taps, TAPS, stride};
    td_conv_span spans[TD_CONV_COLUMNS];
    int n = 0;
    char what[96];
    for (int at = 0; at < columns; at += length, n++)
        spans[n] = (td_conv_span){13 + 50 * n, at, TD_MIN(length, columns - at)};
    size_t count = (size_t)kc * TD_CONV_COLUMNS;
    td_guarded got = td_guarded_new(count * 4, 0), want = td_guarded_new(count * 4, 0);
    kernels->fill(&s, spans, n, k0, kc, got.data);
    td_conv_f32_c.fill(&s, spans, n, k0, kc, want.data);
    CHECK(td_guarded_intact(&got));
    snprintf(what, sizeof what, "%s fill, stride %d, %d columns in spans of %d", kernels->name, (int)stride, columns,
             length);
    for (int64_t k = 0; k < kc; k++)
        td_same_bits_f32(what, (float *)got.data + k * TD_CONV_COLUMNS, (float *)want.data + k * TD_CONV_COLUMNS,
                         columns);
    td_guarded_free(&got);
    td_guarded_free(&want);
}

TEST(panels) {
    static const int lengths[] = {16, 9, 7, 3, 1}, columns[] = {16, 15, 4, 1};
    static const int64_t rows[][2] = {{0, ROWS}, {0, 1}, {5, 7}, {7, 11}, {17, 1}};
    float *x = td_alloc_array(CHANNELS * PLANE + 1200, sizeof *x);
    uint64_t seed = 1;
    REQUIRE(x != NULL);
    td_fill_f32(x, CHANNELS * PLANE + 1200, TD_FILL_NORMAL, &seed);
    for (td_variant v = td_variant_first(td_conv_f32_variants, td_conv_f32_n_variants); v.name; v = td_variant_next(v))
        for (int64_t stride = 1; stride <= 4; stride++)
            for (size_t l = 0; l < TD_COUNT(lengths); l++)
                for (size_t c = 0; c < TD_COUNT(columns); c++)
                    for (size_t r = 0; r < TD_COUNT(rows); r++)
                        check_fill(v.table, x, stride, lengths[l], columns[c], rows[r][0], rows[r][1]);
    td_free(x);
}

/* Inputs are of the exact size, so that a sanitizer sees what is read beyond. */
static void check_taps(const td_conv_f32_kernels *kernels, const td_conv_rows *r, uint64_t *seed) {
    int64_t size = taps[r->n_taps - 1] + (r->n - 1) * r->stride + 1 + (r->n_rows - 1) * r->x_step, n = r->n * r->n_rows;
    float *x = td_alloc_array((size_t)size, sizeof *x), w[TAPS];
    td_guarded got = td_guarded_new((size_t)n * 4, 4), want = td_guarded_new((size_t)n * 4, 4);
    char what[128];
    REQUIRE(x != NULL);
    td_fill_f32(x, size, TD_FILL_NORMAL, seed);
    td_fill_f32(w, TAPS, TD_FILL_NORMAL, seed);
    kernels->taps(r, x, w, 0.5f, got.data);
    td_conv_f32_c.taps(r, x, w, 0.5f, want.data);
    CHECK(td_guarded_intact(&got));
    snprintf(what, sizeof what, "%s taps, %d rows of %d, stride %d, %d taps", kernels->name, (int)r->n_rows, (int)r->n,
             (int)r->stride, (int)r->n_taps);
    td_near_f32(what, got.data, want.data, n, &(float){2e-5f}, 0);
    td_guarded_free(&got);
    td_guarded_free(&want);
    td_free(x);
}

TEST(depthwise_rows) {
    static const int64_t lengths[] = {1, 2, 7, 8, 9, 14, 15, 16, 17, 31, 63, 64, 65, 200};
    uint64_t seed = 2;
    for (td_variant v = td_variant_first(td_conv_f32_variants, td_conv_f32_n_variants); v.name; v = td_variant_next(v))
        for (int64_t stride = 1; stride <= 3; stride++)
            for (size_t l = 0; l < TD_COUNT(lengths); l++)
                for (int64_t n_taps = 1; n_taps <= TAPS; n_taps++)
                    for (int64_t rows = 1; rows <= 6; rows += rows == 1 ? 3 : 2)
                        check_taps(v.table, &(td_conv_rows){taps, n_taps, lengths[l], stride, rows, 37}, &seed);
}

/* --- timing */

typedef struct timed {
    const td_conv_f32_kernels *kernels;
    const td_conv_rows *rows;
    const float *x, *w;
    float *y;
} timed;

static void run_timed(void *arg) {
    const timed *t = arg;
    for (int i = 0; i < 100; i++) t->kernels->taps(t->rows, t->x, t->w, 0, t->y);
}

TEST(time) {
    static const int64_t widths[] = {7, 14, 28, 56, 512};
    if (!td_time_wanted()) SKIP("TREADLE_TIME is not set");
    float *x = td_alloc_zero(1 << 20, sizeof *x), *y = td_alloc_zero(1 << 20, sizeof *x), w[TAPS] = {1, 2, 3, 4, 5, 6};
    for (td_variant v = td_variant_first(td_conv_f32_variants, td_conv_f32_n_variants); v.name; v = td_variant_next(v))
        for (int64_t stride = 1; stride <= 2; stride++)
            for (size_t i = 0; i < TD_COUNT(widths); i++) {
                td_conv_rows rows = {taps, TAPS, widths[i], stride, widths[i], 2 * widths[i] + 4};
                timed t = {v.table, &rows, x, w, y};
                double ns = td_time_median(run_timed, &t, 15) / 100;
                printf("%-7s depthwise, 6 taps, stride %d, %3d x %3d: %8.1f us, %5.1f GF/s\n", v.name, (int)stride,
                       (int)rows.n_rows, (int)rows.n, ns / 1e3, 2.0 * TAPS * (double)(rows.n * rows.n_rows) / ns);
            }
    td_free(x);
    td_free(y);
}
