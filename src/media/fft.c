/* media/fft.c - a real frame of even length goes through a complex transform of half that length and is separated
 * afterwards; an odd one as complex numbers without imaginary parts. */
#include "media/fft.h"

#include "kernels/fourier.h"

#include <math.h>

struct td_fft {
    int n;    /* real samples */
    int size; /* complex points: n / 2, or n where n is odd */
    td_fourier fourier;
    int64_t n_scratch;
    td_complex *split; /* exp(-2 pi i k / n), [size / 2 + 1]; NULL where n is odd */
};

treadle_status td_fft_new(td_arena *arena, int64_t n, const td_fft **out, treadle_error *err) {
    int64_t n_plan, n_scratch;
    if (n < 2 || n > TD_FFT_MAX_N)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected a transform of 2 to %d points, found %lld",
                       TD_FFT_MAX_N, (long long)n);
    int64_t size = n % 2 ? n : n / 2, n_split = n % 2 ? 0 : size / 2 + 1;
    if (!td_fourier_sizes(size, &n_plan, &n_scratch))
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "no transform of %lld points", (long long)n);
    td_fft *fft = TD_ARENA_NEW(arena, td_fft);
    td_complex *memory = TD_ARENA_ARRAY(arena, td_complex, (size_t)(n_plan + n_split + n_scratch));
    if (!fft || !memory) return td_fail_memory(err, "a Fourier transform", (size_t)(n_plan + n_split + n_scratch) * 16);
    *fft = (td_fft){.n = (int)n, .size = (int)size, .n_scratch = n_scratch, .split = n_split ? memory + n_plan : NULL};
    td_fourier_init(size, memory, memory + n_plan + n_split, &fft->fourier);
    for (int64_t k = 0; k < n_split; k++) {
        double angle = -2.0 * M_PI * (double)k / (double)n;
        fft->split[k] = (td_complex){cos(angle), sin(angle)};
    }
    *out = fft;
    return TREADLE_OK;
}

size_t td_fft_room(const td_fft *fft) { return 2 * (2 * (size_t)fft->size + (size_t)fft->n_scratch); }

static double square(double re, double im) { return re * re + im * im; }

void td_fft_power(const td_fft *fft, const double *x, double *power, double *scratch) {
    int size = fft->size;
    td_complex *in = (td_complex *)scratch, *z = in + size, *rest = z + size;
    for (int t = 0; t < size; t++) in[t] = fft->split ? (td_complex){x[2 * t], x[2 * t + 1]} : (td_complex){x[t], 0};
    td_fourier_run(&fft->fourier, false, in, z, rest);
    if (!fft->split) {
        for (int k = 0; k <= size / 2; k++) power[k] = square(z[k].re, z[k].im);
        return;
    }
    power[0] = square(z[0].re + z[0].im, 0);
    power[size] = square(z[0].re - z[0].im, 0);
    /* Z = E + i O of the even and odd samples: X[k] = E[k] + w^k O[k], and X[size - k] from the same two. */
    for (int k = 1; k <= size / 2; k++) {
        td_complex p = z[k], q = {z[size - k].re, -z[size - k].im}, w = fft->split[k];
        td_complex even = {0.5 * (p.re + q.re), 0.5 * (p.im + q.im)},
                   half = {0.5 * (p.im - q.im), -0.5 * (p.re - q.re)};
        td_complex odd = {half.re * w.re - half.im * w.im, half.re * w.im + half.im * w.re};
        power[k] = square(even.re + odd.re, even.im + odd.im);
        power[size - k] = square(even.re - odd.re, even.im - odd.im);
    }
}
