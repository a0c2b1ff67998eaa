/* light/ops/window.h - windows that slide over the spatial dimensions d1, d2 ... of [batch, channels, d1, d2 ...]: the
 * attributes and sizes that convolutions and pooling share. Source: ONNX op texts of Conv, MaxPool, AveragePool. */
#ifndef TD_LIGHT_OPS_WINDOW_H
#define TD_LIGHT_OPS_WINDOW_H

#include "light/op.h"

enum { TD_WINDOW_DIMS = TD_MAX_RANK - 2 };

typedef enum td_auto_pad { TD_AUTO_PAD_NOTSET, TD_AUTO_PAD_VALID, TD_AUTO_PAD_UPPER, TD_AUTO_PAD_LOWER } td_auto_pad;

/* The attributes kernel_shape, strides, pads, dilations, auto_pad. */
typedef struct td_window {
    int n; /* spatial dimensions, if an attribute says so; else 0 */
    bool has_kernel, ceil;
    td_auto_pad auto_pad;
    int64_t kernel[TD_WINDOW_DIMS], strides[TD_WINDOW_DIMS], dilations[TD_WINDOW_DIMS];
    int64_t begin[TD_WINDOW_DIMS], end[TD_WINDOW_DIMS]; /* pads */
} td_window;

/* Windows over an input of known size. */
typedef struct td_windows {
    int n;
    int64_t in[TD_WINDOW_DIMS], out[TD_WINDOW_DIMS], kernel[TD_WINDOW_DIMS], strides[TD_WINDOW_DIMS],
        dilations[TD_WINDOW_DIMS];
    int64_t begin[TD_WINDOW_DIMS], end[TD_WINDOW_DIMS];
} td_windows;

/* Reads the attributes that the op has. Values are checked to be at most 2^31, so sums and
 * products of two do not overflow. */
treadle_status td_window_prepare(td_prepare *p, td_window *out);

/* The output's spatial sizes for x: out->dims[2 ...] and rank; unknown ones where x's are. `kernel` [n] if not by
 * attribute (entries may be unknown), else NULL. */
treadle_status td_window_infer(td_infer *in, const td_window *w, const td_shape *x, const int64_t *kernel,
                               td_shape *out);

/* All sizes, for a shape that td_window_infer has accepted. */
void td_window_place(const td_window *w, const td_shape *x, const int64_t *kernel, td_windows *out);

/* Pads for auto_pad: `total` of one dimension as begin and end. */
void td_window_split_pad(td_auto_pad way, int64_t total, int64_t *begin, int64_t *end);

/* The range of outputs lo..hi (may be empty) along dimension d for which tap k of the window lies in the input. */
static inline void td_window_inside(const td_windows *w, int d, int64_t k, int64_t *lo, int64_t *hi) {
    int64_t at = k * w->dilations[d] - w->begin[d], s = w->strides[d]; /* input of output o: o * s + at */
    *lo = at >= 0 ? 0 : (-at + s - 1) / s;
    *hi = at >= w->in[d] ? 0 : (w->in[d] - at - 1) / s + 1;
    if (*hi > w->out[d]) *hi = w->out[d];
    if (*lo > *hi) *lo = *hi;
}

/* Elements of all spatial dimensions. */
static inline int64_t td_window_count(const int64_t *dims, int n) {
    int64_t count = 1;
    for (int d = 0; d < n; d++) count *= dims[d];
    return count;
}

/* Moves to the next of n positions, the last dimension first; from the last one back to the first. */
static inline void td_window_next(const int64_t *sizes, int n, int64_t at[TD_WINDOW_DIMS]) {
    for (int d = n - 1; d >= 0; d--) {
        if (++at[d] < sizes[d]) return;
        at[d] = 0;
    }
}

/* name: y += weight * (x - zero) for all outputs of a plane and the inputs that one tap (given per dimension) meets. */
#define TD_WINDOW_ADD_TAP(Y, X, name)                                                                                  \
    static void name(const td_windows *w, const int64_t *tap, Y weight, Y zero, const X *x, Y *y) {                    \
        int last = w->n - 1;                                                                                           \
        int64_t rows = td_window_count(w->out, last), at[TD_WINDOW_DIMS] = {0}, lo, hi, s = w->strides[last];          \
        td_window_inside(w, last, tap[last], &lo, &hi);                                                                \
        for (int64_t row = 0; row < rows; row++, y += w->out[last], td_window_next(w->out, last, at)) {                \
            int64_t from = 0;                                                                                          \
            bool inside = true;                                                                                        \
            for (int d = 0; d < last; d++) {                                                                           \
                int64_t i = at[d] * w->strides[d] + tap[d] * w->dilations[d] - w->begin[d];                            \
                inside = inside && i >= 0 && i < w->in[d];                                                             \
                from = from * w->in[d] + i;                                                                            \
            }                                                                                                          \
            if (!inside) continue;                                                                                     \
            from = from * w->in[last] + tap[last] * w->dilations[last] - w->begin[last];                               \
            for (int64_t o = lo; o < hi; o++) y[o] += weight * ((Y)x[from + o * s] - zero);                            \
        }                                                                                                              \
    }

#endif
