/* The elementary functions: every variant against float64, in units of the last place; special values; tails. */
#include "kernels/checker.h"
#include "kernels/vmath.h"

static double exact_sigmoid(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }
static double exact_silu(double x) { return x * exact_sigmoid(x); }
static double exact_gelu(double x) { return x * 0.5 * erfc(-x * 0.70710678118654752440); }
static double exact_gelu_tanh(double x) {
    return x * exact_sigmoid(2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x));
}

/* The distance between neighbours of float32 at x; below the normal ones as if they went on. */
static double unit_at(double x) {
    int e;
    frexp(x, &e);
    return ldexp(1, TD_MAX(e, -125) - 24);
}

/* Largest error in units over [low, high], sampled evenly and by bit patterns. */
static double worst(td_vmath_fn *fn, double (*exact)(double), float low, float high, double *at) {
    enum { N = 40000 };
    static float x[N], y[N];
    uint64_t seed = 9;
    double most = 0;
    for (int i = 0; i < N; i++) {
        float u = td_test_random_f32(&seed, 0, 1);
        x[i] = i % 2 ? low + (high - low) * u : (i % 4 ? high : low) * powf(2, -30 * u);
        if (x[i] < low || x[i] > high) x[i] = low;
    }
    fn(x, N, y);
    for (int i = 0; i < N; i++) {
        double want = exact((double)x[i]), error = fabs((double)y[i] - want) / unit_at(want);
        if (error > most) {
            most = error;
            *at = (double)x[i];
        }
    }
    return most;
}

TEST(error_is_a_few_units) {
    for (td_variant v = td_variant_first(td_vmath_variants, td_vmath_n_variants); v.name; v = td_variant_next(v)) {
        const td_vmath_kernels *k = v.table;
        const struct {
            const char *name;
            td_vmath_fn *fn;
            double (*exact)(double);
            float low, high;
            double units;
        } rows[] = {{"exp", k->exp, exp, -87, 88.7f, 2},
                    {"tanh", k->tanh, tanh, -12, 12, 4},
                    {"erf", k->erf, erf, -5, 5, 4},
                    {"sigmoid", k->sigmoid, exact_sigmoid, -86, 20, 4},
                    {"silu", k->silu, exact_silu, -80, 50, 4},
                    {"gelu", k->gelu, exact_gelu, -12.5f, 20, 8},
                    /* its argument is rounded before the exponential: relative to |x|^3 there is nothing to gain */
                    {"gelu_tanh", k->gelu_tanh, exact_gelu_tanh, -4, 20, 64}};
        for (size_t i = 0; i < TD_COUNT(rows); i++) {
            double at = 0, error = worst(rows[i].fn, rows[i].exact, rows[i].low, rows[i].high, &at);
            if (td_time_wanted()) printf("%s %s: %.2f units at %g\n", v.name, rows[i].name, error, at);
            if (error > rows[i].units) FAIL("%s %s: %.2f units at %.9g", v.name, rows[i].name, error, at);
        }
    }
}

TEST(special_values) {
    const float x[8] = {INFINITY, -INFINITY, NAN, 0, -200, 200, 1e-42f, -0.0f};
    for (td_variant v = td_variant_first(td_vmath_variants, td_vmath_n_variants); v.name; v = td_variant_next(v)) {
        const td_vmath_kernels *k = v.table;
        float y[8];
        k->exp(x, 8, y);
        CHECK(isinf(y[0]) && y[1] == 0 && isnan(y[2]) && y[3] == 1 && y[4] == 0 && isinf(y[5]) && y[6] == 1 &&
              y[7] == 1);
        k->tanh(x, 8, y);
        CHECK(y[0] == 1 && y[1] == -1 && isnan(y[2]) && y[3] == 0 && y[4] == -1 && y[5] == 1);
        k->erf(x, 8, y);
        CHECK(y[0] == 1 && y[1] == -1 && isnan(y[2]) && y[3] == 0 && y[4] == -1 && y[5] == 1);
        k->sigmoid(x, 8, y);
        CHECK(y[0] == 1 && y[1] == 0 && isnan(y[2]) && y[3] == 0.5f && y[4] == 0 && y[5] == 1);
        k->silu(x, 8, y);
        CHECK(isinf(y[0]) && isnan(y[2]) && y[3] == 0 && y[4] == 0 && y[5] == 200);
        k->gelu(x, 8, y);
        CHECK(isinf(y[0]) && isnan(y[2]) && y[3] == 0 && y[4] == 0 && y[5] == 200);
        k->gelu_tanh(x, 8, y);
        CHECK(isinf(y[0]) && isnan(y[2]) && y[3] == 0 && y[4] == 0 && y[5] == 200);
    }
}

TEST(place_and_length_do_not_matter) {
    uint64_t seed = 4;
    for (td_variant v = td_variant_first(td_vmath_variants, td_vmath_n_variants); v.name; v = td_variant_next(v)) {
        const td_vmath_kernels *k = v.table;
        td_vmath_fn *const fns[] = {k->exp, k->tanh, k->erf, k->sigmoid, k->silu, k->gelu, k->gelu_tanh};
        for (size_t f = 0; f < TD_COUNT(fns); f++)
            for (int64_t n = 0; n < 70; n += 1 + n / 7) {
                td_guarded x = td_guarded_new((size_t)n * 4, 4), y = td_guarded_new((size_t)n * 4, 12);
                float one;
                td_fill_f32(x.data, n, TD_FILL_NORMAL, &seed);
                fns[f](x.data, n, y.data);
                for (int64_t i = 0; i < n; i++) {
                    fns[f]((float *)x.data + i, 1, &one);
                    td_same_bits_f32(v.name, &one, (float *)y.data + i, 1);
                }
                CHECK(td_guarded_intact(&y));
                td_guarded_free(&x);
                td_guarded_free(&y);
            }
    }
}
