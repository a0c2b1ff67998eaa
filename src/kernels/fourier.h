/* kernels/fourier.h - discrete Fourier transforms of any length, complex.
 *
 * Lengths whose prime factors are small go by mixed radix; others by Bluestein's algorithm, which makes
 * them a convolution of the length of a power of 2. A plan lives in memory of the caller's and is
 * immutable: threads may share it. */
#ifndef TD_KERNELS_FOURIER_H
#define TD_KERNELS_FOURIER_H

#include "base/compiler.h"

typedef struct td_complex {
    double re, im;
} td_complex;

typedef struct td_complex32 {
    float re, im;
} td_complex32;

enum { TD_FOURIER_FACTORS = 32 };

typedef struct td_fourier {
    int64_t n;
    td_complex *turns; /* [n]: exp(-2 pi i k / n) */
    int n_factors;     /* of mixed radix */
    int64_t factors[TD_FOURIER_FACTORS];
    int64_t m;          /* Bluestein: length of the convolution, a power of 2; else 0 */
    td_complex *inner;  /* [m]: exp(-2 pi i k / m) */
    td_complex *chirp;  /* [n]: exp(-pi i k^2 / n) */
    td_complex *filter; /* [m]: transform of the chirp's conjugate, both ways, divided by m */
} td_fourier;

/* Numbers that a plan needs, and that a transform needs as scratch; n at least 1. false: n is too large. */
bool td_fourier_sizes(int64_t n, int64_t *plan, int64_t *scratch);
/* Makes a plan in memory[plan]; scratch as above. */
void td_fourier_init(int64_t n, td_complex *memory, td_complex *scratch, td_fourier *out);
/* out[k] = sum over t of in[t] exp(-2 pi i k t / n), k < n; inverse: exp(+...), not divided by n. in, out and
 * scratch are different memory. */
void td_fourier_run(const td_fourier *plan, bool inverse, const td_complex *in, td_complex *out, td_complex *scratch);
/* The same in single precision, for plans without Bluestein's algorithm (m is 0). */
void td_fourier_run_f32(const td_fourier *plan, bool inverse, const td_complex32 *in, td_complex32 *out,
                        td_complex32 *scratch);

#endif
