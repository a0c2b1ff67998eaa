/* Fourier transforms against their definition, summed in long double. */
#include "base/alloc.h"
#include "kernels/fourier.h"
#include "support/test.h"

#include <math.h>

static void check(int64_t n, bool inverse) {
    int64_t plan_size, scratch_size;
    td_fourier plan;
    uint64_t seed = (uint64_t)n;
    REQUIRE(td_fourier_sizes(n, &plan_size, &scratch_size));
    td_complex *memory = td_alloc_array((size_t)plan_size, sizeof *memory),
               *scratch = td_alloc_array((size_t)scratch_size + 1, sizeof *scratch),
               *in = td_alloc_array((size_t)n, sizeof *in), *out = td_alloc_array((size_t)n, sizeof *out);
    REQUIRE(memory && scratch && in && out);
    for (int64_t t = 0; t < n; t++)
        in[t] = (td_complex){(double)td_test_random_f32(&seed, -1, 1), (double)td_test_random_f32(&seed, -1, 1)};
    td_fourier_init(n, memory, scratch, &plan);
    td_fourier_run(&plan, inverse, in, out, scratch);
    for (int64_t k = 0; k < n; k++) {
        long double re = 0, im = 0;
        for (int64_t t = 0; t < n; t++) {
            long double angle = (inverse ? 2 : -2) * acosl(-1) * (long double)(k * t % n) / (long double)n;
            re += (long double)in[t].re * cosl(angle) - (long double)in[t].im * sinl(angle);
            im += (long double)in[t].re * sinl(angle) + (long double)in[t].im * cosl(angle);
        }
        if (fabs(out[k].re - (double)re) < 1e-12 * (double)n && fabs(out[k].im - (double)im) < 1e-12 * (double)n)
            continue;
        FAIL("n %d, inverse %d: [%d] is %.15g + %.15gi, expected %.15g + %.15gi", (int)n, inverse, (int)k, out[k].re,
             out[k].im, (double)re, (double)im);
        break;
    }
    td_free(memory);
    td_free(scratch);
    td_free(in);
    td_free(out);
}

TEST(every_short_length) {
    for (int64_t n = 1; n <= 130; n++) {
        check(n, false);
        check(n, true);
    }
}

TEST(long_lengths) {
    static const int64_t lengths[] = {256, 400, 512, 601, 625, 720, 1009, 1024, 2 * 67};
    for (size_t i = 0; i < TD_COUNT(lengths); i++) {
        check(lengths[i], false);
        check(lengths[i], true);
    }
}

TEST(single_precision) {
    for (int64_t n = 1; n <= 60; n++)
        for (int inverse = 0; inverse < 2; inverse++) {
            int64_t plan_size, scratch_size;
            td_fourier plan;
            uint64_t seed = (uint64_t)n;
            td_complex memory[60], scratch[60], in[60], out[60];
            td_complex32 in32[60], out32[60], scratch32[60];
            REQUIRE(td_fourier_sizes(n, &plan_size, &scratch_size) && plan_size == n && scratch_size == n);
            td_fourier_init(n, memory, scratch, &plan);
            for (int64_t t = 0; t < n; t++) {
                in32[t] = (td_complex32){td_test_random_f32(&seed, -1, 1), td_test_random_f32(&seed, -1, 1)};
                in[t] = (td_complex){(double)in32[t].re, (double)in32[t].im};
            }
            td_fourier_run(&plan, inverse, in, out, scratch);
            td_fourier_run_f32(&plan, inverse, in32, out32, scratch32);
            for (int64_t k = 0; k < n; k++) {
                CHECK_NEAR(out32[k].re, out[k].re, 1e-6 * (double)n);
                CHECK_NEAR(out32[k].im, out[k].im, 1e-6 * (double)n);
            }
        }
}

TEST(sizes) {
    int64_t plan, scratch;
    CHECK(!td_fourier_sizes(0, &plan, &scratch));
    CHECK(!td_fourier_sizes(-5, &plan, &scratch));
    CHECK(!td_fourier_sizes(INT64_MAX, &plan, &scratch));
}
