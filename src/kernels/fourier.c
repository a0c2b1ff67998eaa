/* kernels/fourier.c - see fourier.h. Sources: J. W. Cooley and J. W. Tukey, "An algorithm for the machine calculation
 * of complex Fourier series" (1965), in the self-sorting order of T. G. Stockham; L. I. Bluestein, "A linear filtering
 * approach to the computation of discrete Fourier transform" (1970). */
#include "kernels/fourier.h"

#include <math.h>
#include <string.h>

enum { LARGEST_RADIX = 61 }; /* a prime factor p costs n * p */
#define PI 3.14159265358979323846

#define REAL double
#define COMPLEX td_complex
#define NAME(x) x##_f64
#include "kernels/fourier_tmpl.h"

#define REAL float
#define COMPLEX td_complex32
#define NAME(x) x##_f32
#include "kernels/fourier_tmpl.h"

static td_complex times(td_complex a, td_complex b) {
    return (td_complex){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
static td_complex conjugate(td_complex a) { return (td_complex){a.re, -a.im}; }

/* Fours, at most one two before them, then the odd primes. false: one is too large. */
static bool factorise(int64_t n, int64_t factors[TD_FOURIER_FACTORS], int *n_factors) {
    *n_factors = 0;
    for (; n % 4 == 0; n /= 4) factors[(*n_factors)++] = 4;
    if (n % 2 == 0) {
        memmove(factors + 1, factors, (size_t)*n_factors * sizeof *factors);
        factors[0] = 2;
        (*n_factors)++;
        n /= 2;
    }
    for (int64_t p = 3; p <= LARGEST_RADIX && n > 1; p += 2)
        for (; n % p == 0; n /= p) factors[(*n_factors)++] = p;
    return n == 1;
}

static int64_t convolution_length(int64_t n) {
    int64_t m = 1;
    while (m < 2 * n - 1) m *= 2;
    return m;
}

bool td_fourier_sizes(int64_t n, int64_t *plan, int64_t *scratch) {
    int64_t factors[TD_FOURIER_FACTORS], m;
    int n_factors;
    if (n < 1 || n > (int64_t)1 << 30) return false;
    *plan = *scratch = n;
    if (factorise(n, factors, &n_factors)) return true;
    m = convolution_length(n);
    *plan = 2 * n + 2 * m;
    *scratch = 3 * m;
    return true;
}

static void make_turns(int64_t n, td_complex *out) {
    for (int64_t k = 0; k < n; k++) {
        double angle = -2 * PI * (double)k / (double)n;
        out[k] = (td_complex){cos(angle), sin(angle)};
    }
}

/* The plan of the convolution's transforms. */
static td_fourier inner_plan(const td_fourier *f) {
    td_fourier inner = {.n = f->m, .turns = f->inner};
    factorise(f->m, inner.factors, &inner.n_factors);
    return inner;
}

/* k t = (k^2 + t^2 - (k - t)^2) / 2 makes the transform a convolution with a chirp. */
static void bluestein(const td_fourier *f, const td_complex *in, td_complex *out, td_complex *scratch) {
    td_complex *a = scratch, *b = scratch + f->m, *other = b + f->m;
    td_fourier inner = inner_plan(f);

    for (int64_t t = 0; t < f->m; t++) a[t] = t < f->n ? times(in[t], f->chirp[t]) : (td_complex){0, 0};
    passes_f64(&inner, false, a, b, other);
    for (int64_t k = 0; k < f->m; k++) a[k] = times(b[k], f->filter[k]);
    passes_f64(&inner, true, a, b, other);
    for (int64_t k = 0; k < f->n; k++) out[k] = times(b[k], f->chirp[k]);
}

void td_fourier_init(int64_t n, td_complex *memory, td_complex *scratch, td_fourier *out) {
    *out = (td_fourier){.n = n, .turns = memory};
    make_turns(n, out->turns);
    if (factorise(n, out->factors, &out->n_factors)) return;
    out->m = convolution_length(n);
    out->chirp = out->turns + n;
    out->inner = out->chirp + n;
    out->filter = out->inner + out->m;
    make_turns(out->m, out->inner);
    for (int64_t k = 0; k < n; k++) { /* k^2 modulo 2 n, so that the angle stays exact */
        double angle = -PI * (double)(k * k % (2 * n)) / (double)n;
        out->chirp[k] = (td_complex){cos(angle), sin(angle)};
    }
    for (int64_t k = 0; k < out->m; k++) scratch[k] = (td_complex){0, 0};
    for (int64_t k = 0; k < n; k++) {
        td_complex v = conjugate(out->chirp[k]);
        v = (td_complex){v.re / (double)out->m, v.im / (double)out->m};
        scratch[k] = v;
        if (k > 0) scratch[out->m - k] = v;
    }
    td_fourier inner = inner_plan(out);
    passes_f64(&inner, false, scratch, out->filter, scratch + out->m);
}

void td_fourier_run(const td_fourier *f, bool inverse, const td_complex *in, td_complex *out, td_complex *scratch) {
    if (!f->m) {
        if (inverse) passes_f64(f, true, in, out, scratch);
        else passes_f64(f, false, in, out, scratch);
        return;
    }
    bluestein(f, in, out, scratch);
    if (!inverse) return;
    for (int64_t a = 1, b = f->n - 1; a < b; a++, b--) { /* exp(+...) at k is exp(-...) at n - k */
        td_complex swap = out[a];
        out[a] = out[b];
        out[b] = swap;
    }
}

void td_fourier_run_f32(const td_fourier *f, bool inverse, const td_complex32 *in, td_complex32 *out,
                        td_complex32 *scratch) {
    if (inverse) passes_f32(f, true, in, out, scratch);
    else passes_f32(f, false, in, out, scratch);
}
