/* The row operations: every variant against the plain C one, which sums in float64. */
#include "kernels/checker.h"
#include "kernels/rows_f32.h"

static const int64_t lengths[] = {1, 2, 7, 15, 16, 17, 63, 64, 65, 576, 1000};

typedef struct rows {
    int64_t n;
    td_guarded x, skip, gamma, beta, y, z;
} rows;

static rows make(int64_t n, td_fill fill, uint64_t *seed) {
    size_t bytes = (size_t)n * 4;
    rows r = {n,
              td_guarded_new(bytes, 4),
              td_guarded_new(bytes, 8),
              td_guarded_new(bytes, 12),
              td_guarded_new(bytes, 0),
              td_guarded_new(bytes, 4),
              td_guarded_new(bytes, 20)};
    td_fill_f32(r.x.data, n, fill, seed);
    td_fill_f32(r.skip.data, n, fill, seed);
    td_fill_f32(r.gamma.data, n, TD_FILL_NORMAL, seed);
    td_fill_f32(r.beta.data, n, TD_FILL_NORMAL, seed);
    return r;
}

static void drop(rows *r) {
    td_guarded *all[] = {&r->x, &r->skip, &r->gamma, &r->beta, &r->y, &r->z};
    for (size_t i = 0; i < TD_COUNT(all); i++) {
        CHECK(td_guarded_intact(all[i]));
        td_guarded_free(all[i]);
    }
}

/* Within `units` of float32's precision of the values, plus the same of `scale`. */
static void near(const char *what, const rows *r, float units, float scale) {
    const float *got = r->y.data, *want = r->z.data;
    for (int64_t i = 0; i < r->n; i++) {
        float tolerance = units * 6e-8f * (fabsf(want[i]) + scale);
        if (!td_near_f32(what, got + i, want + i, 1, &tolerance, 0)) return;
    }
}

TEST(norms) {
    uint64_t seed = 1;
    for (td_variant v = td_variant_first(td_rows_f32_variants, td_rows_f32_n_variants); v.name;
         v = td_variant_next(v)) {
        const td_rows_f32_kernels *k = v.table, *c = &td_rows_f32_c;
        for (size_t l = 0; l < TD_COUNT(lengths); l++)
            for (td_fill fill = TD_FILL_NORMAL; fill < TD_N_FILLS; fill++)
                for (int with = 0; with < 3; with++) {
                    rows r = make(lengths[l], fill, &seed);
                    float *gamma = with > 0 ? r.gamma.data : NULL, *beta = with > 1 ? r.beta.data : NULL, a, b;
                    float ra = k->rms_norm(r.x.data, gamma, r.n, 1e-5f, r.y.data),
                          rb = c->rms_norm(r.x.data, gamma, r.n, 1e-5f, r.z.data);
                    CHECK_NEAR(ra / rb, 1, 1e-6);
                    near("rms_norm", &r, 20, 0);
                    ra = k->layer_norm(r.x.data, gamma, beta, r.n, 1e-5f, r.y.data, &a);
                    rb = c->layer_norm(r.x.data, gamma, beta, r.n, 1e-5f, r.z.data, &b);
                    if (r.n > 1) CHECK_NEAR(ra / rb, 1, 1e-5);
                    if (fill == TD_FILL_NORMAL && r.n > 2) near("layer_norm", &r, 40, 10);
                    ra = k->moments(r.x.data, r.n, &a);
                    rb = c->moments(r.x.data, r.n, &b);
                    CHECK_NEAR(ra, rb, 1e-5 * (double)rb);
                    CHECK_NEAR(a, b, 1e-4 * (1 + sqrt((double)rb)));
                    k->affine(r.x.data, r.n, 0.3f, 1.7f, -0.2f, r.y.data);
                    c->affine(r.x.data, r.n, 0.3f, 1.7f, -0.2f, r.z.data);
                    td_same_bits_f32("affine", r.y.data, r.z.data, r.n);
                    k->add(r.x.data, r.skip.data, gamma, r.n, r.y.data);
                    c->add(r.x.data, r.skip.data, gamma, r.n, r.z.data);
                    td_same_bits_f32("add", r.y.data, r.z.data, r.n);
                    drop(&r);
                }
    }
}

TEST(softmax) {
    uint64_t seed = 2;
    for (td_variant v = td_variant_first(td_rows_f32_variants, td_rows_f32_n_variants); v.name;
         v = td_variant_next(v)) {
        const td_rows_f32_kernels *k = v.table, *c = &td_rows_f32_c;
        for (size_t l = 0; l < TD_COUNT(lengths); l++)
            for (int way = 0; way < 4; way++) {
                rows r = make(lengths[l], way == 1 ? TD_FILL_WIDE : TD_FILL_NORMAL, &seed);
                float *x = r.x.data;
                if (way == 2 && r.n > 1) x[r.n - 1] = -INFINITY;
                if (way == 3) x[r.n / 2] = NAN;
                k->softmax(x, r.n, r.y.data);
                c->softmax(x, r.n, r.z.data);
                near("softmax", &r, 20, 0);
                k->log_softmax(x, r.n, r.y.data);
                c->log_softmax(x, r.n, r.z.data);
                near("log_softmax", &r, 8, 1);
                memcpy(r.y.data, x, (size_t)r.n * 4); /* in place */
                k->softmax(r.y.data, r.n, r.y.data);
                c->softmax(x, r.n, r.z.data);
                near("softmax in place", &r, 20, 0);
                drop(&r);
            }
    }
}

TEST(rotation) {
    uint64_t seed = 3;
    for (td_variant v = td_variant_first(td_rows_f32_variants, td_rows_f32_n_variants); v.name;
         v = td_variant_next(v)) {
        const td_rows_f32_kernels *k = v.table, *c = &td_rows_f32_c;
        for (int64_t half = 1; half < 70; half += 1 + half / 5)
            for (int interleaved = 0; interleaved < 2; interleaved++) {
                rows r = make(2 * half, TD_FILL_NORMAL, &seed);
                k->rotate(r.x.data, r.gamma.data, r.beta.data, half, interleaved, r.y.data);
                c->rotate(r.x.data, r.gamma.data, r.beta.data, half, interleaved, r.z.data);
                td_same_bits_f32("rotate", r.y.data, r.z.data, r.n);
                memcpy(r.y.data, r.x.data, (size_t)r.n * 4);
                k->rotate(r.y.data, r.gamma.data, r.beta.data, half, interleaved, r.y.data);
                td_same_bits_f32("rotate in place", r.y.data, r.z.data, r.n);
                drop(&r);
            }
    }
}
