/* kernels/conv_f32_tmpl.h - the inner loops of convolutions for any SIMD instruction set, included by one .c file per
 * set after its simd_*.h. It defines VARIANT, the td_conv_f32_kernels to define, and VARIANT_NAME. */
#include "kernels/conv_f32.h"

enum { COLUMNS = TD_CONV_COLUMNS };

static void copy_exact(const td_conv_span *spans, int n_spans, const float *x, int64_t stride, float *out) {
    for (int i = 0; i < n_spans; i++)
        for (int j = 0; j < spans[i].count; j++) out[spans[i].first + j] = x[spans[i].at + j * stride];
}

/* A span is copied as a whole vector: what it writes too much is overwritten by the next span, or by the next row, so
 * the last row of a panel is copied exactly. */
TD_INLINE void fill_rows(const td_conv_source *s, const td_conv_span *spans, int n_spans, int64_t k0, int64_t kc,
                         const int64_t stride, float *out) {
    int64_t channel = k0 / s->n_taps, tap = k0 % s->n_taps;
    const float *x = s->x + channel * s->plane;

    for (int64_t k = 1; k < kc; k++, out += COLUMNS) {
        const float *from = x + s->taps[tap];
        TD_PREFETCH(from + spans[0].at + 2 * COLUMNS * (stride ? stride : s->stride));
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

TD_INLINE vf load_step(const float *x, const int64_t stride, const bool part, int n) {
    if (stride == 1) return part ? vf_load_n(x, n) : vf_load(x);
    return part ? vf_load_even_n(x, n) : vf_load_even(x);
}

/* Four vectors of 16 outputs at once, or fewer: from output i on side by side in one row, or below each other in as
 * many rows. part: one column of n < 16 outputs. */
TD_INLINE void taps_block(const int vectors, const bool below, const int64_t stride, const bool part,
                          const td_conv_rows *r, const float *x, const float *w, float bias, int64_t i, float *y) {
    int64_t x_step = below ? r->x_step : COLUMNS * stride, y_step = below ? r->n : COLUMNS;
    vf sum[4];
    x += i * stride;
    y += i;
    TD_UNROLL
    for (int j = 0; j < vectors; j++) sum[j] = vf_zero();
    for (int64_t t = 0; t < r->n_taps; t++) {
        vf weight = vf_set1(w[t]);
        TD_UNROLL
        for (int j = 0; j < vectors; j++)
            sum[j] = vf_fma(weight, load_step(x + r->taps[t] + j * x_step, stride, part, (int)r->n), sum[j]);
    }
    TD_UNROLL
    for (int j = 0; j < vectors; j++) {
        vf v = vf_add(sum[j], vf_set1(bias));
        if (part) vf_store_n(y + j * y_step, v, (int)r->n);
        else vf_store(y + j * y_step, v);
    }
}

/* `vectors` rows, column by column; the last column overlaps the one before it. */
TD_INLINE void taps_below(const int vectors, const int64_t stride, const td_conv_rows *r, const float *x,
                          const float *w, float bias, float *y) {
    if (r->n < COLUMNS) {
        taps_block(vectors, true, stride, true, r, x, w, bias, 0, y);
        return;
    }
    for (int64_t i = 0; i < r->n; i += COLUMNS)
        taps_block(vectors, true, stride, false, r, x, w, bias, TD_MIN(i, r->n - COLUMNS), y);
}

TD_INLINE void taps_rows(const int64_t stride, const td_conv_rows *r, const float *x, const float *w, float bias,
                         float *y) {
    int64_t j = 0;
    for (; j + 4 <= r->n_rows; j += 4, x += 4 * r->x_step, y += 4 * r->n) taps_below(4, stride, r, x, w, bias, y);
    for (; j < r->n_rows; j++, x += r->x_step, y += r->n) {
        int64_t i = 0;
        for (; i + 4 * COLUMNS <= r->n; i += 4 * COLUMNS) taps_block(4, false, stride, false, r, x, w, bias, i, y);
        if (r->n < COLUMNS) taps_block(1, false, stride, true, r, x, w, bias, 0, y);
        else
            for (; i < r->n; i += COLUMNS)
                taps_block(1, false, stride, false, r, x, w, bias, TD_MIN(i, r->n - COLUMNS), y);
    }
}

static void taps(const td_conv_rows *r, const float *x, const float *w, float bias, float *y) {
    if (r->stride == 1) taps_rows(1, r, x, w, bias, y);
    else if (r->stride == 2) taps_rows(2, r, x, w, bias, y);
    else td_conv_f32_c.taps(r, x, w, bias, y);
}

const td_conv_f32_kernels VARIANT = {.name = VARIANT_NAME, .fill = fill, .taps = taps};
