/* media/fft.c - the Stockham form of the Cooley-Tukey transform: each pass takes one factor p out of n, reads from one buffer
 * and writes to the other, and leaves its results in order, so that no bit reversal is needed. A real frame of even length is
 * transformed as a complex one of half that length and separated afterwards; an odd one as complex numbers without
 * imaginary parts. Source: Cooley and Tukey 1965; Stockham 1966 as in Van Loan, Computational Frameworks for the FFT. */
#include "media/fft.h"

#include <math.h>

enum { MAX_FACTORS = 16 };

typedef struct complex_double {
    double re, im;
} complex_double;

struct td_fft {
    int n;    /* real samples */
    int size; /* complex points: n / 2, or n where n is odd */
    int n_factors, factors[MAX_FACTORS];
    complex_double *roots; /* exp(-2 pi i k / size), [size] */
    complex_double *split; /* exp(-2 pi i k / n), [size / 2 + 1]; NULL where n is odd */
};

static complex_double root_of_unity(int64_t k, int64_t n) {
    double angle = -2.0 * M_PI * (double)k / (double)n;
    return (complex_double){cos(angle), sin(angle)};
}

static inline complex_double multiply(complex_double a, complex_double b) {
    return (complex_double){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
static inline complex_double add(complex_double a, complex_double b) {
    return (complex_double){a.re + b.re, a.im + b.im};
}
static inline complex_double subtract(complex_double a, complex_double b) {
    return (complex_double){a.re - b.re, a.im - b.im};
}
static inline complex_double times_minus_i(complex_double a) { return (complex_double){a.im, -a.re}; }

/* Fours first, then twos and odd primes. False: a factor is too large. */
static bool factorise(int n, td_fft *fft) {
    static const int primes[] = {4, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31};
    for (size_t i = 0; i < TD_COUNT(primes); i++)
        while (n % primes[i] == 0) {
            fft->factors[fft->n_factors++] = primes[i];
            n /= primes[i];
        }
    return n == 1;
}

treadle_status td_fft_new(td_arena *arena, int64_t n, const td_fft **out, treadle_error *err) {
    if (n < 2 || n > TD_FFT_MAX_N)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected a transform of 2 to %d points, found %lld",
                       TD_FFT_MAX_N, (long long)n);
    td_fft *fft = TD_ARENA_NEW(arena, td_fft);
    if (!fft) return td_fail_memory(err, "a Fourier transform", sizeof *fft);
    fft->n = (int)n;
    fft->size = n % 2 ? (int)n : (int)n / 2;
    if (!factorise(fft->size, fft))
        return td_fail(err, TREADLE_INVALID_ARGUMENT,
                       "expected a transform whose length has no prime factor above %d, found %lld points",
                       TD_FFT_MAX_PRIME, (long long)n);
    size_t n_split = n % 2 ? 0 : (size_t)fft->size / 2 + 1;
    fft->roots = TD_ARENA_ARRAY(arena, complex_double, (size_t)fft->size);
    fft->split = n_split ? TD_ARENA_ARRAY(arena, complex_double, n_split) : NULL;
    if (!fft->roots || (n_split && !fft->split)) return td_fail_memory(err, "a Fourier transform", (size_t)n * 16);
    for (int k = 0; k < fft->size; k++) fft->roots[k] = root_of_unity(k, fft->size);
    for (size_t k = 0; k < n_split; k++) fft->split[k] = root_of_unity((int64_t)k, n);
    *out = fft;
    return TREADLE_OK;
}

size_t td_fft_room(const td_fft *fft) { return (size_t)fft->size * 4; }

/* --- butterflies: y[j] = sum over k of a[k] exp(-2 pi i j k / p) */

static inline void butterfly_3(const complex_double a[3], complex_double y[3]) {
    const double s = 0.86602540378443864676; /* sin(2 pi / 3) */
    complex_double sum = add(a[1], a[2]), rest = subtract(a[1], a[2]);
    complex_double middle = {a[0].re - 0.5 * sum.re, a[0].im - 0.5 * sum.im};
    complex_double turned = {s * rest.im, -s * rest.re};
    y[0] = add(a[0], sum);
    y[1] = add(middle, turned);
    y[2] = subtract(middle, turned);
}

static inline void butterfly_4(const complex_double a[4], complex_double y[4]) {
    complex_double s02 = add(a[0], a[2]), d02 = subtract(a[0], a[2]);
    complex_double s13 = add(a[1], a[3]), d13 = times_minus_i(subtract(a[1], a[3]));
    y[0] = add(s02, s13);
    y[1] = add(d02, d13);
    y[2] = subtract(s02, s13);
    y[3] = subtract(d02, d13);
}

static inline void butterfly_5(const complex_double a[5], complex_double y[5]) {
    const double c1 = 0.30901699437494742410, c2 = -0.80901699437494742410; /* cos(2 pi / 5), cos(4 pi / 5) */
    const double s1 = 0.95105651629515357212, s2 = 0.58778525229247312917;
    complex_double p14 = add(a[1], a[4]), m14 = subtract(a[1], a[4]);
    complex_double p23 = add(a[2], a[3]), m23 = subtract(a[2], a[3]);
    complex_double u = {a[0].re + c1 * p14.re + c2 * p23.re, a[0].im + c1 * p14.im + c2 * p23.im};
    complex_double v = {a[0].re + c2 * p14.re + c1 * p23.re, a[0].im + c2 * p14.im + c1 * p23.im};
    complex_double s = times_minus_i((complex_double){s1 * m14.re + s2 * m23.re, s1 * m14.im + s2 * m23.im});
    complex_double t = times_minus_i((complex_double){s2 * m14.re - s1 * m23.re, s2 * m14.im - s1 * m23.im});
    y[0] = add(a[0], add(p14, p23));
    y[1] = add(u, s);
    y[2] = add(v, t);
    y[3] = subtract(v, t);
    y[4] = subtract(u, s);
}

/* Any p; step: how far apart p-th roots of unity lie in roots. */
static inline void butterfly_any(int p, int step, const complex_double *roots, const complex_double *a,
                                 complex_double *y) {
    for (int j = 0; j < p; j++) {
        complex_double sum = a[0];
        for (int k = 1; k < p; k++) sum = add(sum, multiply(a[k], roots[j * k % p * step]));
        y[j] = sum;
    }
}

/* One pass: x is [p][m][stride], y is [m][p][stride]. Inlined with constant p. */
TD_INLINE void pass(const td_fft *fft, int p, int m, int stride, const complex_double *TD_RESTRICT x,
                    complex_double *TD_RESTRICT y) {
    complex_double a[TD_FFT_MAX_PRIME], b[TD_FFT_MAX_PRIME];
    for (int q = 0; q < m; q++) {
        complex_double turn[TD_FFT_MAX_PRIME];
        for (int j = 1; j < p; j++) turn[j] = fft->roots[q * j * stride];
        for (int r = 0; r < stride; r++) {
            for (int k = 0; k < p; k++) a[k] = x[(k * m + q) * stride + r];
            if (p == 2) {
                b[0] = add(a[0], a[1]);
                b[1] = subtract(a[0], a[1]);
            } else if (p == 3) butterfly_3(a, b);
            else if (p == 4) butterfly_4(a, b);
            else if (p == 5) butterfly_5(a, b);
            else butterfly_any(p, fft->size / p, fft->roots, a, b);
            y[q * p * stride + r] = b[0];
            for (int j = 1; j < p; j++) y[(q * p + j) * stride + r] = multiply(b[j], turn[j]);
        }
    }
}

/* From a to b and back; returns where the result is. */
static complex_double *transform(const td_fft *fft, complex_double *a, complex_double *b) {
    for (int i = 0, m = fft->size, stride = 1; i < fft->n_factors; i++) {
        int p = fft->factors[i];
        m /= p;
        switch (p) {
        case 2: pass(fft, 2, m, stride, a, b); break;
        case 3: pass(fft, 3, m, stride, a, b); break;
        case 4: pass(fft, 4, m, stride, a, b); break;
        case 5: pass(fft, 5, m, stride, a, b); break;
        default: pass(fft, p, m, stride, a, b); break;
        }
        stride *= p;
        complex_double *swap = a;
        a = b;
        b = swap;
    }
    return a;
}

static double square(complex_double a) { return a.re * a.re + a.im * a.im; }

void td_fft_power(const td_fft *fft, const double *x, double *power, double *scratch) {
    complex_double *a = (complex_double *)scratch, *b = a + fft->size;
    int size = fft->size;
    if (!fft->split) {
        for (int t = 0; t < size; t++) a[t] = (complex_double){x[t], 0};
        const complex_double *y = transform(fft, a, b);
        for (int k = 0; k <= size / 2; k++) power[k] = square(y[k]);
        return;
    }
    for (int t = 0; t < size; t++) a[t] = (complex_double){x[2 * t], x[2 * t + 1]};
    const complex_double *z = transform(fft, a, b);
    power[0] = (z[0].re + z[0].im) * (z[0].re + z[0].im);
    power[size] = (z[0].re - z[0].im) * (z[0].re - z[0].im);
    /* Z = E + i O of the even and odd samples: X[k] = E[k] + w^k O[k], and X[size - k] from the same two. */
    for (int k = 1; k <= size / 2; k++) {
        complex_double p = z[k], q = {z[size - k].re, -z[size - k].im};
        complex_double even = {0.5 * (p.re + q.re), 0.5 * (p.im + q.im)};
        complex_double odd = times_minus_i((complex_double){0.5 * (p.re - q.re), 0.5 * (p.im - q.im)});
        odd = multiply(odd, fft->split[k]);
        power[k] = square(add(even, odd));
        power[size - k] = square(subtract(even, odd));
    }
}
