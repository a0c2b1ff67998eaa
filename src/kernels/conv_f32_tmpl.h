/* kernels/conv_f32_tmpl.h - the inner loops of convolutions for any SIMD instruction set, included by one .c file per set
 * after its simd_*.h. It defines VARIANT, the td_conv_f32_kernels to define, and VARIANT_NAME. */
#include "kernels/conv_f32.h"

#include <math.h>

enum { COLUMNS = TD_CONV_COLUMNS };

static void copy_exact(const td_conv_span *spans, int n_spans, const float *x, int64_t stride, float *out) {
    for (int i = 0; i < n_spans; i++)
        for (int j = 0; j < spans[i].count; j++) out[spans[i].first + j] = x[spans[i].at + j * stride];
}

/* A span is copied as a whole vector: what it writes too much is overwritten by the next span, or by the next row, so the
 * last row of a panel is copied exactly. */
TD_INLINE void fill_rows(const td_conv_source *s, const td_conv_span *spans, int n_spans, int64_t k0, int64_t kc,
                         const int64_t stride, float *out) {
    int64_t channel = k0 / s->n_taps, tap = k0 % s->n_taps;
    const float *x = s->x + channel * s->plane;

    for (int64_t k = 1; k < kc; k++, out += COLUMNS) {
        const float *from = x + s->taps[tap];
        for (int i = 0; i < n_spans; i++) {
            if (stride == 1) vf_store(out + spans[i].first, vf_load(from + spans[i].at));
            else if (stride == 2) vf_store(out + spans[i].first, vf_load_even(from + spans[i].at));
            else
                for (int j = 0; j < spans[i].count; j++) out[spans[i].first + j] = from[spans[i].at + j * s->stride];
        }
        if (++tap < s->n_taps) continue;
        tap = 0;
        x += s->plane;
    }
    if (kc > 0) copy_exact(spans, n_spans, x + s->taps[tap], s->stride, out);
}

static void fill(const td_conv_source *s, const td_conv_span *spans, int n_spans, int64_t k0, int64_t kc, float *out) {
    if (s->stride == 1 && n_spans == 1) fill_rows(s, spans, 1, k0, kc, 1, out);
    else if (s->stride == 1) fill_rows(s, spans, n_spans, k0, kc, 1, out);
    else if (s->stride == 2) fill_rows(s, spans, n_spans, k0, kc, 2, out);
    else fill_rows(s, spans, n_spans, k0, kc, 0, out);
}

TD_INLINE vf load_step(const float *x, const int64_t stride) { return stride == 1 ? vf_load(x) : vf_load_even(x); }

/* `vectors` of 16 outputs at once. */
TD_INLINE void taps_block(const int vectors, const int64_t stride, const float *x, const int64_t *at, const float *w,
                          int64_t n_taps, float bias, float *y) {
    vf sum[4];
    TD_UNROLL
    for (int j = 0; j < vectors; j++) sum[j] = vf_zero();
    for (int64_t t = 0; t < n_taps; t++) {
        vf weight = vf_set1(w[t]);
        TD_UNROLL
        for (int j = 0; j < vectors; j++)
            sum[j] = vf_fma(weight, load_step(x + at[t] + j * COLUMNS * stride, stride), sum[j]);
    }
    TD_UNROLL
    for (int j = 0; j < vectors; j++) vf_store(y + j * COLUMNS, vf_add(sum[j], vf_set1(bias)));
}

TD_INLINE int64_t taps_blocks(const int64_t stride, const float *x, const int64_t *at, const float *w, int64_t n_taps,
                              float bias, int64_t n, float *y) {
    int64_t i = 0;
    for (; i + 4 * COLUMNS <= n; i += 4 * COLUMNS) taps_block(4, stride, x + i * stride, at, w, n_taps, bias, y + i);
    for (; i + COLUMNS <= n; i += COLUMNS) taps_block(1, stride, x + i * stride, at, w, n_taps, bias, y + i);
    return i;
}

static void taps(const float *x, const int64_t *at, const float *w, int64_t n_taps, float bias, int64_t n,
                 int64_t stride, float *y) {
    int64_t i = 0;
    if (stride == 1) {
        i = taps_blocks(1, x, at, w, n_taps, bias, n, y);
        if (i < n) {
            vf sum = vf_zero();
            int rest = (int)(n - i);
            for (int64_t t = 0; t < n_taps; t++) sum = vf_fma(vf_set1(w[t]), vf_load_n(x + at[t] + i, rest), sum);
            vf_store_n(y + i, vf_add(sum, vf_set1(bias)), rest);
        }
        return;
    }
    if (stride == 2) i = taps_blocks(2, x, at, w, n_taps, bias, n, y);
    for (; i < n; i++) {
        float sum = 0;
        for (int64_t t = 0; t < n_taps; t++) sum = fmaf(w[t], x[at[t] + i * stride], sum);
        y[i] = sum + bias;
    }
}

const td_conv_f32_kernels VARIANT = {.name = VARIANT_NAME, .fill = fill, .taps = taps};
