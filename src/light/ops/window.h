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

/* Reads the attributes that the op has. Values are checked to be at most 2^31, so sums and products of two do not overflow. */
treadle_status td_window_prepare(td_prepare *p, td_window *out);

/* The output's spatial sizes for x: out->dims[2 ...] and rank; unknown ones where x's are. `kernel` [n] if not by attribute
 * (entries may be unknown), else NULL. */
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

#endif
