/* kernels/fourier_tmpl.h - mixed-radix passes for one type, included by fourier.c with
 *     REAL, COMPLEX   float or double, and a pair of them
 *     NAME(x)         x with a suffix of the type
 * Turns (the plan's table, in double) are rounded to the type. */

TD_INLINE COMPLEX NAME(plus)(COMPLEX a, COMPLEX b) { return (COMPLEX){a.re + b.re, a.im + b.im}; }
TD_INLINE COMPLEX NAME(minus)(COMPLEX a, COMPLEX b) { return (COMPLEX){a.re - b.re, a.im - b.im}; }

/* a times exp(-2 pi i k / n), or its conjugate. */
TD_INLINE COMPLEX NAME(turn)(COMPLEX a, const td_complex *turns, int64_t k, const bool inverse) {
    if (k == 0) return a;
    REAL re = (REAL)turns[k].re, im = (REAL)turns[k].im;
    if (inverse) return (COMPLEX){a.re * re + a.im * im, a.im * re - a.re * im};
    return (COMPLEX){a.re * re - a.im * im, a.re * im + a.im * re};
}

/* a times -i, or i */
TD_INLINE COMPLEX NAME(quarter)(COMPLEX a, const bool inverse) {
    return inverse ? (COMPLEX){-a.im, a.re} : (COMPLEX){a.im, -a.re};
}

/* The small transform of p values. */
TD_INLINE void NAME(small_2)(const COMPLEX *a, COMPLEX *y) {
    y[0] = NAME(plus)(a[0], a[1]);
    y[1] = NAME(minus)(a[0], a[1]);
}

TD_INLINE void NAME(small_3)(const COMPLEX *a, const bool inverse, COMPLEX *y) {
    const REAL s = (REAL)(inverse ? 0.86602540378443864676 : -0.86602540378443864676);
    COMPLEX sum = NAME(plus)(a[1], a[2]), difference = NAME(minus)(a[1], a[2]);
    COMPLEX middle = {a[0].re - (REAL)0.5 * sum.re, a[0].im - (REAL)0.5 * sum.im};
    COMPLEX side = {-s * difference.im, s * difference.re};
    y[0] = NAME(plus)(a[0], sum);
    y[1] = NAME(plus)(middle, side);
    y[2] = NAME(minus)(middle, side);
}

TD_INLINE void NAME(small_4)(const COMPLEX *a, const bool inverse, COMPLEX *y) {
    COMPLEX even = NAME(plus)(a[0], a[2]), odd = NAME(minus)(a[0], a[2]), sum = NAME(plus)(a[1], a[3]),
            side = NAME(quarter)(NAME(minus)(a[1], a[3]), inverse);
    y[0] = NAME(plus)(even, sum);
    y[1] = NAME(plus)(odd, side);
    y[2] = NAME(minus)(even, sum);
    y[3] = NAME(minus)(odd, side);
}

/* One pair of outputs of five: cosines ca, cb and sines sa, sb of its two angles. */
TD_INLINE void NAME(pair_5)(const COMPLEX *t, REAL ca, REAL cb, REAL sa, REAL sb, COMPLEX *one, COMPLEX *other) {
    COMPLEX middle = {t[0].re + ca * t[1].re + cb * t[2].re, t[0].im + ca * t[1].im + cb * t[2].im};
    COMPLEX side = {-(sa * t[4].im + sb * t[3].im), sa * t[4].re + sb * t[3].re};
    *one = NAME(plus)(middle, side);
    *other = NAME(minus)(middle, side);
}

TD_INLINE void NAME(small_5)(const COMPLEX *a, const bool inverse, COMPLEX *y) {
    const REAL c1 = (REAL)0.3090169943749474241, c2 = (REAL)-0.8090169943749474241;
    const REAL s1 = (REAL)(inverse ? 0.95105651629515357212 : -0.95105651629515357212),
               s2 = (REAL)(inverse ? 0.58778525229247312917 : -0.58778525229247312917);
    COMPLEX t[5] = {a[0], NAME(plus)(a[1], a[4]), NAME(plus)(a[2], a[3]), NAME(minus)(a[2], a[3]),
                    NAME(minus)(a[1], a[4])};
    y[0] = (COMPLEX){t[0].re + t[1].re + t[2].re, t[0].im + t[1].im + t[2].im};
    NAME(pair_5)(t, c1, c2, s1, s2, &y[1], &y[4]);
    NAME(pair_5)(t, c2, c1, s2, -s1, &y[2], &y[3]);
}

TD_INLINE void NAME(small_any)(const COMPLEX *a, int64_t p, const td_complex *turns, int64_t step, const bool inverse,
                               COMPLEX *y) {
    for (int64_t r = 0; r < p; r++) {
        y[r] = a[0];
        for (int64_t q = 1; q < p; q++) y[r] = NAME(plus)(y[r], NAME(turn)(a[q], turns, q * r % p * step, inverse));
    }
}

/* One pass: groups of p values, `apart` between them, `before` groups made by earlier passes; n = p * apart *
 * before. */
static void NAME(pass)(const td_fourier *f, int64_t p, int64_t apart, int64_t before, const bool inverse,
                       const COMPLEX *in, COMPLEX *out) {
    COMPLEX a[LARGEST_RADIX], y[LARGEST_RADIX];
    for (int64_t k = 0; k < before; k++)
        for (int64_t i = 0; i < apart; i++) {
            for (int64_t q = 0; q < p; q++) a[q] = in[i + apart * (q + p * k)];
            switch (p) {
            case 2: NAME(small_2)(a, y); break;
            case 3: NAME(small_3)(a, inverse, y); break;
            case 4: NAME(small_4)(a, inverse, y); break;
            case 5: NAME(small_5)(a, inverse, y); break;
            default: NAME(small_any)(a, p, f->turns, f->n / p, inverse, y); break;
            }
            for (int64_t q = 0; q < p; q++)
                out[i + apart * (k + before * q)] = NAME(turn)(y[q], f->turns, q * before * i, inverse);
        }
}

/* All passes, from `in` to `out` through `other`, each [n]. */
static void NAME(passes)(const td_fourier *f, const bool inverse, const COMPLEX *in, COMPLEX *out, COMPLEX *other) {
    int64_t before = 1;
    COMPLEX *to = f->n_factors % 2 ? out : other;

    for (int j = 0; j < f->n_factors; j++) {
        int64_t p = f->factors[j];
        NAME(pass)(f, p, f->n / (before * p), before, inverse, in, to);
        before *= p;
        in = to;
        to = to == out ? other : out;
    }
    if (f->n_factors == 0) out[0] = in[0];
}

#undef REAL
#undef COMPLEX
#undef NAME
