/* media/fft.h - power spectrum of real frames, in double precision.
 *
 * Double, because the logarithm of a quiet bin beside a loud one shows the rounding of a float transform: 1e-4
 * in log-mel features, where 1e-5 is asked for (docs/decisions/0006-spectra-in-double.md). Immutable once
 * made; any number of threads. */
#ifndef TD_MEDIA_FFT_H
#define TD_MEDIA_FFT_H

#include "base/arena.h"
#include "base/error.h"

enum { TD_FFT_MAX_N = 1 << 15 };

typedef struct td_fft td_fft;

/* A plan for frames of n samples, in the arena. TREADLE_INVALID_ARGUMENT: n is not in 2..TD_FFT_MAX_N. */
treadle_status td_fft_new(td_arena *arena, int64_t n, const td_fft **out, treadle_error *err);

/* Doubles that td_fft_power needs as scratch. */
size_t td_fft_room(const td_fft *fft);

/* power[k] = |sum over t of x[t] exp(-2 pi i k t / n)|^2 for k = 0..n/2. x and power may be the same memory. */
void td_fft_power(const td_fft *fft, const double *x, double *power, double *scratch);

#endif
