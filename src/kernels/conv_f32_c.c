/* kernels/conv_f32_c.c - the inner loops of convolutions in plain C: the definition of the others. */
#include "kernels/conv_f32.h"

static void fill(const td_conv_source *s, const td_conv_span *spans, int n_spans, int64_t k0, int64_t kc, float *out) {
    int64_t channel = k0 / s->n_taps, tap = k0 % s->n_taps;
    for (int64_t k = 0; k < kc; k++, out += TD_CONV_COLUMNS) {
        const float *x = s->x + channel * s->plane + s->taps[tap];
        for (int i = 0; i < n_spans; i++)
            for (int j = 0; j < spans[i].count; j++) out[spans[i].first + j] = x[spans[i].at + j * s->stride];
        if (++tap < s->n_taps) continue;
        tap = 0;
        channel++;
    }
}

static void taps(const td_conv_rows *r, const float *x, const float *w, float bias, float *y) {
    for (int64_t j = 0; j < r->n_rows; j++, x += r->x_step, y += r->n)
        for (int64_t i = 0; i < r->n; i++) {
            float sum = 0;
            for (int64_t t = 0; t < r->n_taps; t++) sum += w[t] * x[r->taps[t] + i * r->stride];
            y[i] = sum + bias;
        }
}

const td_conv_f32_kernels td_conv_f32_c = {.name = "c", .fill = fill, .taps = taps};
