/* light/ops/window.c - see window.h. */
#include "light/ops/window.h"

#define MOST ((int64_t)1 << 31)

static treadle_status read_list(td_prepare *p, const char *name, int64_t least, size_t each, td_window *w, int64_t *out,
                                bool *given) {
    size_t n;
    const int64_t *list = td_attr_ints(p, name, &n);

    *given = n > 0;
    if (n == 0) return TREADLE_OK;
    if (n % each || n / each > TD_WINDOW_DIMS || (w->n && n / each != (size_t)w->n))
        return td_bad_node(p, "%s has %zu entries; expected %d for %d spatial dimensions", name, n,
                           (int)each * (w->n ? w->n : 1), w->n ? w->n : 1);
    w->n = (int)(n / each);
    for (size_t i = 0; i < n; i++) {
        if (list[i] < least || list[i] > MOST)
            return td_bad_node(p, "%s has %lld; expected %lld to 2^31", name, (long long)list[i], (long long)least);
        out[i] = list[i];
    }
    return TREADLE_OK;
}

static treadle_status read_auto_pad(td_prepare *p, td_auto_pad *out) {
    static const char *const words[] = {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"};
    td_str text = td_attr_string(p, "auto_pad");

    *out = TD_AUTO_PAD_NOTSET;
    if (text.n == 0) return TREADLE_OK;
    for (size_t i = 0; i < TD_COUNT(words); i++)
        if (td_str_is(text, words[i])) {
            *out = (td_auto_pad)i;
            return TREADLE_OK;
        }
    return td_bad_node(p, "auto_pad is \"%.*s\"; expected NOTSET, VALID, SAME_UPPER or SAME_LOWER", TD_STR_ARGS(text));
}

treadle_status td_window_prepare(td_prepare *p, td_window *w) {
    int64_t pads[2 * TD_WINDOW_DIMS] = {0};
    bool given;

    for (int d = 0; d < TD_WINDOW_DIMS; d++) w->strides[d] = w->dilations[d] = 1;
    TD_TRY(read_list(p, "kernel_shape", 1, 1, w, w->kernel, &w->has_kernel));
    TD_TRY(read_list(p, "strides", 1, 1, w, w->strides, &given));
    TD_TRY(read_list(p, "dilations", 1, 1, w, w->dilations, &given));
    TD_TRY(read_list(p, "pads", 0, 2, w, pads, &given));
    TD_TRY(read_auto_pad(p, &w->auto_pad));
    w->ceil = td_attr_int(p, "ceil_mode") != 0;
    for (int d = 0; d < w->n && w->auto_pad == TD_AUTO_PAD_NOTSET; d++) {
        w->begin[d] = pads[d];
        w->end[d] = pads[w->n + d];
    }
    return TREADLE_OK;
}

void td_window_split_pad(td_auto_pad way, int64_t total, int64_t *begin, int64_t *end) {
    *begin = way == TD_AUTO_PAD_LOWER ? total - total / 2 : total / 2;
    *end = total - *begin;
}

/* Sizes along one dimension; false: the window is larger than the padded input. */
static bool place_one(const td_window *w, int d, td_windows *out) {
    int64_t in = out->in[d], s = w->strides[d], extent = (out->kernel[d] - 1) * w->dilations[d] + 1;

    out->strides[d] = s;
    out->dilations[d] = w->dilations[d];
    out->begin[d] = w->begin[d];
    out->end[d] = w->end[d];
    if (w->auto_pad == TD_AUTO_PAD_UPPER || w->auto_pad == TD_AUTO_PAD_LOWER) {
        out->out[d] = (in + s - 1) / s;
        td_window_split_pad(w->auto_pad, TD_MAX(0, (out->out[d] - 1) * s + extent - in), &out->begin[d], &out->end[d]);
        return true;
    }
    int64_t room = in + out->begin[d] + out->end[d] - extent;
    if (room < 0) return false;
    out->out[d] = (room + (w->ceil ? s - 1 : 0)) / s + 1;
    /* A last window that would start behind the input, in the padding, is left out. */
    if (w->ceil && (out->out[d] - 1) * s >= in + out->begin[d]) out->out[d]--;
    return true;
}

treadle_status td_window_infer(td_infer *in, const td_window *w, const td_shape *x, const int64_t *kernel,
                               td_shape *out) {
    td_windows sizes;

    out->rank = x->rank < 0 && w->n ? w->n + 2 : x->rank;
    for (int d = 2; d < out->rank; d++) out->dims[d] = TD_DIM_UNKNOWN;
    if (x->rank < 0) return TREADLE_OK;
    if (x->rank < 3) return td_infer_fail(in, "rank %d; expected at least 3: batch, channels, one more", x->rank);
    if (w->n && w->n != x->rank - 2)
        return td_infer_fail(in, "the attributes are for %d spatial dimensions, the input has %d", w->n, x->rank - 2);
    for (int d = 0; d < x->rank - 2; d++) {
        sizes.in[d] = x->dims[d + 2];
        sizes.kernel[d] = w->has_kernel ? w->kernel[d] : kernel ? kernel[d] : TD_DIM_UNKNOWN;
        if (sizes.in[d] < 0 || sizes.kernel[d] < 0) continue;
        if (!place_one(w, d, &sizes))
            return td_infer_fail(in, "a window of %lld (dilation %lld) is larger than the padded input of %lld",
                                 (long long)sizes.kernel[d], (long long)w->dilations[d],
                                 (long long)(sizes.in[d] + w->begin[d] + w->end[d]));
        out->dims[d + 2] = sizes.out[d];
    }
    return TREADLE_OK;
}

void td_window_place(const td_window *w, const td_shape *x, const int64_t *kernel, td_windows *out) {
    out->n = x->rank - 2;
    for (int d = 0; d < out->n; d++) {
        out->in[d] = x->dims[d + 2];
        out->kernel[d] = w->has_kernel ? w->kernel[d] : kernel[d];
        place_one(w, d, out);
    }
}
