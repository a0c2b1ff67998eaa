/* generate/align.c - when each token was spoken: dynamic time warping over cross attention (segments.h). */
#include "base/alloc.h"
#include "generate/segments.h"

#include <math.h>
#include <stdlib.h>

enum { FILTER = 7 };

/* Mean 0 and deviation 1 over the tokens, for every frame of a head. */
static void normalise(float *w, size_t n, size_t n_frames) {
    for (size_t f = 0; f < n_frames; f++) {
        double sum = 0, square = 0;
        for (size_t i = 0; i < n; i++) sum += w[i * n_frames + f];
        double mean = sum / (double)n;
        for (size_t i = 0; i < n; i++) square += pow(w[i * n_frames + f] - mean, 2);
        double deviation = sqrt(square / (double)n);
        for (size_t i = 0; i < n; i++)
            w[i * n_frames + f] = (float)(deviation > 0 ? (w[i * n_frames + f] - mean) / deviation : 0);
    }
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The median of seven frames around each, mirrored at the ends without repeating the edge. */
static void smooth(float *row, size_t n_frames, float *scratch) {
    int64_t n = (int64_t)n_frames, half = FILTER / 2;
    if (n <= half) return;
    for (int64_t f = 0; f < n; f++) scratch[f] = row[f];
    for (int64_t f = 0; f < n; f++) {
        float window[FILTER];
        for (int64_t k = -half; k <= half; k++) {
            int64_t at = f + k;
            if (at < 0) at = -at;
            if (at >= n) at = 2 * (n - 1) - at;
            window[k + half] = scratch[at];
        }
        qsort(window, FILTER, sizeof *window, by_value);
        row[f] = window[half];
    }
}

/* The cheapest way through cost [n, n_frames] from the first corner to the last; trace holds where each cell came
 * from. */
static void walk(const double *cost, size_t n, size_t n_frames, double *sums, unsigned char *trace,
                 int64_t *out_frames) {
    size_t width = n_frames + 1;
    for (size_t j = 0; j <= n_frames; j++) sums[j] = j ? INFINITY : 0; /* row 0 of the sums */
    for (size_t i = 1; i <= n; i++) {
        double corner = sums[0]; /* [i - 1][0] */
        sums[0] = INFINITY;
        for (size_t j = 1; j <= n_frames; j++) {
            double diagonal = corner, up = sums[j], left = sums[j - 1], best;
            unsigned char from;
            if (diagonal < up && diagonal < left) best = diagonal, from = 0;
            else if (up < diagonal && up < left) best = up, from = 1;
            else best = left, from = 2;
            corner = sums[j];
            sums[j] = cost[(i - 1) * n_frames + j - 1] + best;
            trace[i * width + j] = from;
        }
    }
    size_t i = n, j = n_frames;
    while (i > 0 && j > 0) {
        out_frames[i - 1] = (int64_t)j - 1; /* the last written is the first frame of the token */
        unsigned char from = trace[i * width + j];
        if (from != 2) i--;
        if (from != 1) j--;
    }
    for (; i > 0; i--) out_frames[i - 1] = 0;
}

treadle_status td_align_tokens(float *weights, size_t n_heads, size_t n, size_t n_frames, int64_t *out_frames,
                               treadle_error *err) {
    size_t cells, all;
    if (!n_heads || !n || !n_frames)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected heads, tokens and frames to align");
    if (TD_MUL_OVERFLOWS(n + 1, n_frames + 1, &cells) || TD_MUL_OVERFLOWS(cells, sizeof(double), &all))
        return td_fail_memory(err, "an alignment", 0);
    double *cost = td_alloc_zero(cells, sizeof *cost), *sums = td_alloc_array(n_frames + 1, sizeof *sums);
    float *scratch = td_alloc_array(n_frames, sizeof *scratch);
    unsigned char *trace = td_alloc_zero(cells, 1);
    treadle_status status = cost && sums && scratch && trace ? TREADLE_OK : td_fail_memory(err, "an alignment", all);
    for (size_t h = 0; status == TREADLE_OK && h < n_heads; h++) {
        float *w = weights + h * n * n_frames;
        normalise(w, n, n_frames);
        for (size_t i = 0; i < n; i++) {
            smooth(w + i * n_frames, n_frames, scratch);
            for (size_t f = 0; f < n_frames; f++)
                cost[i * n_frames + f] -= (double)w[i * n_frames + f] / (double)n_heads;
        }
    }
    if (status == TREADLE_OK) walk(cost, n, n_frames, sums, trace, out_frames);
    td_free(cost);
    td_free(sums);
    td_free(scratch);
    td_free(trace);
    return status;
}
