/* kernels/rows_f32_tmpl.h - the row operations for any SIMD instruction set, included by one .c file per set after its
 * simd_*.h. It defines VARIANT, the td_rows_f32_kernels to define, and VARIANT_NAME.
 *
 * Sums run in four vectors of 16 that are joined in a fixed order. */
#include "kernels/rows_f32.h"
#include "kernels/simd_math.h"

#include <math.h>

/* The sum of `expr` of v over x[0..n), lanes beyond n left out. */
#define SUM_OVER(sum, x, n, expr)                                                                                      \
    do {                                                                                                               \
        vf s0 = vf_zero(), s1 = vf_zero(), s2 = vf_zero(), s3 = vf_zero();                                             \
        int64_t at = 0;                                                                                                \
        for (; at + 64 <= (n); at += 64) {                                                                             \
            vf v = vf_load((x) + at);                                                                                  \
            s0 = expr(v, s0);                                                                                          \
            v = vf_load((x) + at + 16);                                                                                \
            s1 = expr(v, s1);                                                                                          \
            v = vf_load((x) + at + 32);                                                                                \
            s2 = expr(v, s2);                                                                                          \
            v = vf_load((x) + at + 48);                                                                                \
            s3 = expr(v, s3);                                                                                          \
        }                                                                                                              \
        for (; at + 16 <= (n); at += 16) {                                                                             \
            vf v = vf_load((x) + at);                                                                                  \
            s0 = expr(v, s0);                                                                                          \
        }                                                                                                              \
        if (at < (n)) s1 = vf_first(expr(vf_load_n((x) + at, (int)((n)-at)), s1), (n)-at, s1);                         \
        (sum) = vf_sum(vf_add(vf_add(s0, s1), vf_add(s2, s3)));                                                        \
    } while (0)

#define PLAIN(v, s) vf_add((s), (v))
#define SQUARE(v, s) vf_fma((v), (v), (s))

/* Loads and stores of the vector at i, which may be the last and not full. */
TD_INLINE vf load_at(const float *x, int64_t i, int64_t n) {
    return i + 16 <= n ? vf_load(x + i) : vf_load_n(x + i, (int)(n - i));
}
TD_INLINE void store_at(float *y, int64_t i, int64_t n, vf v) {
    if (i + 16 <= n) vf_store(y + i, v);
    else vf_store_n(y + i, v, (int)(n - i));
}

static void add(const float *x, const float *skip, const float *bias, int64_t n, float *y) {
    for (int64_t i = 0; i < n; i += 16) {
        vf v = vf_add(load_at(x, i, n), load_at(skip, i, n));
        store_at(y, i, n, bias ? vf_add(v, load_at(bias, i, n)) : v);
    }
}

static float rms_norm(const float *x, const float *gamma, int64_t n, float epsilon, float *y) {
    float sum;
    SUM_OVER(sum, x, n, SQUARE);
    float r = 1 / sqrtf(sum / (float)n + epsilon);
    vf scale = vf_set1(r);
    for (int64_t i = 0; i < n; i += 16) {
        vf v = vf_mul(load_at(x, i, n), scale);
        store_at(y, i, n, gamma ? vf_mul(v, load_at(gamma, i, n)) : v);
    }
    return r;
}

static float moments(const float *x, int64_t n, float *mean) {
    float sum, squares;
    SUM_OVER(sum, x, n, PLAIN);
    *mean = sum / (float)n;
    const vf centre = vf_set1(*mean);
#define CENTRED(v, s) vf_fma(vf_sub((v), centre), vf_sub((v), centre), (s))
    SUM_OVER(squares, x, n, CENTRED);
#undef CENTRED
    return squares / (float)n;
}

static void affine(const float *x, int64_t n, float mean, float scale, float shift, float *y) {
    vf m = vf_set1(mean), a = vf_set1(scale), b = vf_set1(shift);
    for (int64_t i = 0; i < n; i += 16) store_at(y, i, n, vf_add(vf_mul(vf_sub(load_at(x, i, n), m), a), b));
}

static float layer_norm(const float *x, const float *gamma, const float *beta, int64_t n, float epsilon, float *y,
                        float *mean) {
    float r = 1 / sqrtf(moments(x, n, mean) + epsilon);
    const vf centre = vf_set1(*mean);
    vf scale = vf_set1(r);
    for (int64_t i = 0; i < n; i += 16) {
        vf v = vf_mul(vf_sub(load_at(x, i, n), centre), scale);
        if (gamma) v = vf_mul(v, load_at(gamma, i, n));
        store_at(y, i, n, beta ? vf_add(v, load_at(beta, i, n)) : v);
    }
    return r;
}

/* NaN if there is one. */
static float row_max(const float *x, int64_t n) {
    vf max = vf_set1(-INFINITY);
    bool nan = false;
    for (int64_t i = 0; i < n; i += 16) {
        vf v = load_at(x, i, n);
        nan |= vf_any_nan(v);
        max = vf_max(vf_first(v, n - i, max), max);
    }
    return nan ? NAN : vf_max_lane(max);
}

static void softmax(const float *x, int64_t n, float *y) {
    vf max = vf_set1(row_max(x, n)), sum = vf_zero();
    for (int64_t i = 0; i < n; i += 16) {
        vf e = vf_exp(vf_sub(load_at(x, i, n), max));
        store_at(y, i, n, e);
        sum = vf_add(sum, vf_first(e, n - i, vf_zero()));
    }
    vf scale = vf_set1(1 / vf_sum(sum));
    for (int64_t i = 0; i < n; i += 16) store_at(y, i, n, vf_mul(load_at(y, i, n), scale));
}

static void log_softmax(const float *x, int64_t n, float *y) {
    vf max = vf_set1(row_max(x, n)), sum = vf_zero();
    for (int64_t i = 0; i < n; i += 16)
        sum = vf_add(sum, vf_first(vf_exp(vf_sub(load_at(x, i, n), max)), n - i, vf_zero()));
    vf log_sum = vf_set1(logf(vf_sum(sum)));
    for (int64_t i = 0; i < n; i += 16) store_at(y, i, n, vf_sub(vf_sub(load_at(x, i, n), max), log_sum));
}

static void rotate(const float *x, const float *cos, const float *sin, int64_t half, bool interleaved, float *y) {
    if (interleaved) { /* pairs side by side: left to the compiler */
        for (int64_t i = 0; i < half; i++) {
            float a = x[2 * i], b = x[2 * i + 1];
            y[2 * i] = a * cos[i] - b * sin[i];
            y[2 * i + 1] = a * sin[i] + b * cos[i];
        }
        return;
    }
    for (int64_t i = 0; i < half; i += 16) {
        vf a = load_at(x, i, half), b = load_at(x + half, i, half), c = load_at(cos, i, half),
           s = load_at(sin, i, half);
        store_at(y, i, half, vf_sub(vf_mul(a, c), vf_mul(b, s)));
        store_at(y + half, i, half, vf_add(vf_mul(a, s), vf_mul(b, c)));
    }
}

const td_rows_f32_kernels VARIANT = {.name = VARIANT_NAME,
                                     .add = add,
                                     .rms_norm = rms_norm,
                                     .layer_norm = layer_norm,
                                     .moments = moments,
                                     .affine = affine,
                                     .softmax = softmax,
                                     .log_softmax = log_softmax,
                                     .rotate = rotate};
