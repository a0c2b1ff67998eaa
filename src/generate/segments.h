/* generate/segments.h - what a transcript's tokens say about time: pieces between two times,
 * and when each token was spoken.
 *
 * Pure functions over ids and attention weights; they know no text and no sound.
 * Source: transformers, _retrieve_segment, _median_filter and _dynamic_time_warping of its speech generation. */
#ifndef TD_GENERATE_SEGMENTS_H
#define TD_GENERATE_SEGMENTS_H

#include "base/error.h"

typedef struct td_time_tokens {
    int32_t begin; /* the id of 0.00; ids from there on are times */
    double step_s; /* of one id */
    double clip_s; /* real sound in this window, at most the window's length */
} td_time_tokens;

typedef struct td_segment {
    double start_s, end_s; /* from the window's begin */
    size_t first, n;       /* ids of the window, times among them */
} td_segment;

/* Cuts the ids of one window (without prompt and end token) at pairs of times. segments: room for n + 1.
 * *out_next_s: where the next window begins: behind the last time that closed a text, or at the end of this one;
 * above 0. Returns how many segments. */
size_t td_segments_cut(const td_time_tokens *times, const int32_t *ids, size_t n, td_segment *segments,
                       double *out_next_s);

/* When each of n tokens was spoken, from cross attention weights [n_heads, n, n_frames] of heads that follow the sound:
 * normalised over the tokens, smoothed over seven frames, averaged, and walked by dynamic time warping. weights are
 * changed. out_frames[n]: the frame at which each token begins, never running back. */
treadle_status td_align_tokens(float *weights, size_t n_heads, size_t n, size_t n_frames, int64_t *out_frames,
                               treadle_error *err);

#endif
