/* generate/segments.c - see segments.h. */
#include "generate/segments.h"

#include "base/compiler.h"

static bool is_time(const td_time_tokens *t, int32_t id) { return id >= t->begin; }

static double seconds(const td_time_tokens *t, int32_t id) { return (double)(id - t->begin) * t->step_s; }

/* No pair of times: the window is one piece, up to the last time in it, or to its end. */
static size_t one_segment(const td_time_tokens *t, const int32_t *ids, size_t n, td_segment *out) {
    double start = 0, end = t->clip_s;
    for (size_t i = 0; i < n; i++)
        if (is_time(t, ids[i])) end = ids[i] > t->begin ? seconds(t, ids[i]) : t->clip_s;
    *out = (td_segment){start, end, 0, n};
    return n > 0;
}

size_t td_segments_cut(const td_time_tokens *t, const int32_t *ids, size_t n, td_segment *segments,
                       double *out_next_s) {
    size_t n_segments = 0, last = 0;
    bool closed = n >= 2 && !is_time(t, ids[n - 2]) && is_time(t, ids[n - 1]);
    *out_next_s = t->clip_s;
    for (size_t i = 1; i < n; i++) {
        if (!is_time(t, ids[i]) || !is_time(t, ids[i - 1])) continue;
        segments[n_segments++] =
            (td_segment){is_time(t, ids[last]) ? seconds(t, ids[last]) : 0, seconds(t, ids[i - 1]), last, i - last};
        last = i;
    }
    if (!n_segments) return one_segment(t, ids, n, segments);
    if (closed) { /* no speech after the last time */
        segments[n_segments++] = (td_segment){seconds(t, ids[last]), seconds(t, ids[n - 1]), last, n - last};
        return n_segments;
    }
    double next = segments[n_segments - 1].end_s; /* what was begun after it belongs to the next window again */
    if (next > 0) *out_next_s = next;
    return n_segments;
}
