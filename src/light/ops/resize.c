/* light/ops/resize.c - Resize and Upsample. Source: ONNX op texts of Resize-10 to -19, Upsample-1 to -9.
 * Before opset 11 there is one way: positions are divided by the scale, and nearest rounds down,
 * or up where the size shrinks. */
#include "light/ops/resize.h"

#include "light/ops/move.h"
#include "tensor/half.h"

#include <math.h>
#include <string.h>

typedef enum keep_policy { STRETCH, NOT_LARGER, NOT_SMALLER } keep_policy;

typedef struct resize_state {
    td_resize_way way;
    keep_policy policy;
    int roi, scales, sizes; /* inputs; -1: none such */
    float fixed[TD_MAX_RANK];
    size_t n_fixed; /* scales that are attributes */
    size_t n_axes;
    const int64_t *axes;
} resize_state;

static treadle_status read_word(td_prepare *p, const char *name, const char *const *words, size_t n, int *out) {
    td_str text = td_attr_string(p, name);
    *out = 0;
    if (text.n == 0) return TREADLE_OK;
    for (size_t i = 0; i < n; i++)
        if (td_str_is(text, words[i])) {
            *out = (int)i;
            return TREADLE_OK;
        }
    return td_unsupported(p, "%s \"%.*s\"", name, TD_STR_ARGS(text));
}

static treadle_status read_mode(td_prepare *p, td_resize_mode *out) {
    static const char *const words[] = {"nearest", "linear", "cubic", "bilinear"};
    int word;
    TD_TRY(read_word(p, "mode", words, TD_COUNT(words), &word));
    *out = word == 3 ? TD_RESIZE_LINEAR : (td_resize_mode)word;
    return TREADLE_OK;
}

static treadle_status resize_prepare(td_prepare *p) {
    static const char *const coordinates[] = {"half_pixel",          "half_pixel_symmetric", "pytorch_half_pixel",
                                              "align_corners",       "asymmetric",           "tf_crop_and_resize",
                                              "tf_half_pixel_for_nn"};
    static const char *const roundings[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};
    static const char *const policies[] = {"stretch", "not_larger", "not_smaller"};
    resize_state *s = p->state;
    int word;

    TD_TRY(read_mode(p, &s->way.mode));
    if (p->opset < 11) {
        s->way.coordinates = TD_RESIZE_ASYMMETRIC;
        s->way.rounding = TD_RESIZE_SIMPLE;
        s->roi = s->sizes = -1;
        s->scales = 1;
    } else {
        TD_TRY(read_word(p, "coordinate_transformation_mode", coordinates, TD_COUNT(coordinates), &word));
        s->way.coordinates = (td_resize_coordinates)word;
        TD_TRY(read_word(p, "nearest_mode", roundings, TD_COUNT(roundings), &word));
        s->way.rounding = (td_resize_rounding)word;
        s->roi = 1;
        s->scales = 2;
        s->sizes = 3;
    }
    TD_TRY(read_word(p, "keep_aspect_ratio_policy", policies, TD_COUNT(policies), &word));
    s->policy = (keep_policy)word;
    s->way.antialias = td_attr_int(p, "antialias") != 0 && s->way.mode != TD_RESIZE_NEAREST;
    s->way.exclude_outside = td_attr_int(p, "exclude_outside") != 0;
    s->way.cubic_a = td_attr_float(p, "cubic_coeff_a");
    s->way.extrapolation = td_attr_float(p, "extrapolation_value");
    s->axes = td_attr_ints(p, "axes", &s->n_axes);
    if (s->n_axes > TD_MAX_RANK) return td_bad_node(p, "%zu axes", s->n_axes);
    if (s->way.mode != TD_RESIZE_NEAREST &&
        (td_dtype_kind(td_input_dtype(p, 0)) == TD_KIND_STRING || td_dtype_kind(td_input_dtype(p, 0)) == TD_KIND_BOOL ||
         td_dtype_kind(td_input_dtype(p, 0)) == TD_KIND_COMPLEX))
        return td_unsupported(p, "element type %s with other modes than nearest", td_dtype_name(td_input_dtype(p, 0)));
    return td_move_is_packed(td_input_dtype(p, 0))
               ? td_unsupported(p, "element type %s", td_dtype_name(td_input_dtype(p, 0)))
               : TREADLE_OK;
}

static treadle_status upsample_prepare(td_prepare *p) {
    resize_state *s = p->state;
    size_t n;

    TD_TRY(read_mode(p, &s->way.mode));
    s->way.coordinates = TD_RESIZE_ASYMMETRIC;
    s->way.rounding = TD_RESIZE_SIMPLE;
    s->roi = s->sizes = -1;
    s->scales = p->opset >= 9 ? 1 : -1;
    if (p->opset >= 9) return TREADLE_OK;
    if (p->opset >= 7) {
        const float *scales = td_attr_floats(p, "scales", &n);
        if (n > TD_MAX_RANK) return td_bad_node(p, "%zu scales", n);
        memcpy(s->fixed, scales, n * sizeof *scales);
        s->n_fixed = n;
        return TREADLE_OK;
    }
    s->fixed[0] = s->fixed[1] = 1;
    s->fixed[2] = td_attr_float(p, "height_scale");
    s->fixed[3] = td_attr_float(p, "width_scale");
    s->n_fixed = 4;
    return TREADLE_OK;
}

/* --- sizes --- */

/* Input i if it is there and has elements; at open its data may be unknown. */
static const td_tensor *list_input(const td_value *const *inputs, size_t n_inputs, int i) {
    if (i < 0 || (size_t)i >= n_inputs || inputs[i]->kind != TD_VALUE_TENSOR) return NULL;
    const td_tensor *t = &inputs[i]->tensor;
    return t->shape.rank == 1 && t->shape.dims[0] == 0 ? NULL : t;
}

static treadle_status check_list(td_infer *in, const td_tensor *t, int64_t wanted, const char *what) {
    int64_t count;
    if (td_shape_count(&t->shape, &count) && count != wanted)
        return td_infer_fail(in, "%s has %lld entries; expected %lld", what, (long long)count, (long long)wanted);
    return TREADLE_OK;
}

static double entry(const td_tensor *t, int64_t i) {
    return td_load_f64(t->dtype, t->data, t->shape.rank ? i * t->strides[0] : 0);
}

/* Which axes, in the order of the lists. */
static treadle_status axes_of(td_infer *in, const resize_state *s, int rank, int axes[TD_MAX_RANK], int *n) {
    uint32_t seen = 0;
    *n = s->n_axes ? (int)s->n_axes : rank;
    if (*n > rank) return td_infer_fail(in, "%d axes of %d", *n, rank);
    for (int i = 0; i < *n; i++) {
        axes[i] = i;
        if (s->n_axes) TD_TRY(td_infer_axis(in, s->axes[i], rank, &axes[i]));
        if (seen >> axes[i] & 1) return td_infer_fail(in, "axis %d twice", axes[i]);
        seen |= 1u << axes[i];
    }
    return TREADLE_OK;
}

static treadle_status from_scales(td_infer *in, const resize_state *s, const int *axes, int n, td_resize_axis *out,
                                  bool *known) {
    const td_tensor *scales = list_input(in->inputs, in->n_inputs, s->scales);

    *known = s->n_fixed || (scales && scales->data);
    if (scales) TD_TRY(check_list(in, scales, n, "scales"));
    else if (s->n_fixed != (size_t)n) return td_infer_fail(in, "%zu scales for %d axes", s->n_fixed, n);
    for (int i = 0; *known && i < n; i++) {
        td_resize_axis *a = &out[axes[i]];
        a->scale = scales ? (float)entry(scales, i) : s->fixed[i];
        if (!(a->scale > 0) || !isfinite(a->scale)) return td_infer_fail(in, "a scale of %g", (double)a->scale);
        if (a->in < 0) continue;
        float size = a->scale * (float)a->in;
        if (size >= 0x1p40f) return td_infer_fail(in, "a scale of %g is too large", (double)a->scale);
        a->out = (int64_t)size;
    }
    return TREADLE_OK;
}

static treadle_status from_sizes(td_infer *in, const resize_state *s, const td_tensor *sizes, const int *axes, int n,
                                 td_resize_axis *out, bool *known) {
    float shared = 0;

    *known = sizes->data != NULL;
    TD_TRY(check_list(in, sizes, n, "sizes"));
    for (int i = 0; *known && i < n; i++) {
        td_resize_axis *a = &out[axes[i]];
        double size = entry(sizes, i);
        if (size < 0 || size > 0x1p40) return td_infer_fail(in, "a size of %g", size);
        a->out = (int64_t)size;
        if (a->in < 0 && s->policy != STRETCH) a->out = TD_DIM_UNKNOWN;
        if (a->in < 0) continue;
        if (a->in == 0 && a->out > 0) return td_infer_fail(in, "a size of %g from nothing", size);
        a->scale = a->in ? (float)a->out / (float)a->in : 1;
        bool better = s->policy == NOT_LARGER ? a->scale < shared : a->scale > shared;
        if (i == 0 || better) shared = a->scale;
    }
    for (int i = 0; *known && i < n && s->policy != STRETCH; i++) {
        td_resize_axis *a = &out[axes[i]];
        if (a->in < 0) continue;
        a->scale = shared;
        a->out = (int64_t)floor((double)shared * (double)a->in + 0.5);
    }
    return TREADLE_OK;
}

static treadle_status read_roi(td_infer *in, const resize_state *s, const int *axes, int n, td_resize_axis *out) {
    const td_tensor *roi = list_input(in->inputs, in->n_inputs, s->roi);

    if (s->way.coordinates != TD_RESIZE_TF_CROP_AND_RESIZE) return TREADLE_OK;
    if (!roi) return td_infer_fail(in, "tf_crop_and_resize needs roi");
    TD_TRY(check_list(in, roi, 2 * n, "roi"));
    for (int i = 0; roi->data && i < n; i++) {
        out[axes[i]].start = (float)entry(roi, i);
        out[axes[i]].end = (float)entry(roi, n + i);
    }
    return TREADLE_OK;
}

static treadle_status resize_axes(td_infer *in, const td_shape *x, td_resize_axis out[TD_MAX_RANK], bool *known) {
    const resize_state *s = in->state;
    const td_tensor *sizes = list_input(in->inputs, in->n_inputs, s->sizes);
    const td_tensor *scales = list_input(in->inputs, in->n_inputs, s->scales);
    bool has_scales = s->n_fixed || scales;
    int axes[TD_MAX_RANK], n;

    for (int d = 0; d < x->rank; d++)
        out[d] = (td_resize_axis){.in = x->dims[d], .out = x->dims[d], .scale = 1, .end = 1};
    TD_TRY(axes_of(in, s, x->rank, axes, &n));
    if (sizes && scales && (!td_shape_known(&sizes->shape) || !td_shape_known(&scales->shape))) {
        *known = false; /* one of them may turn out to be empty */
        for (int i = 0; i < n; i++) out[axes[i]].out = TD_DIM_UNKNOWN;
        return TREADLE_OK;
    }
    if (sizes && has_scales) return td_infer_fail(in, "both scales and sizes are given");
    if (!sizes && !has_scales) return td_infer_fail(in, "neither scales nor sizes are given");
    if (sizes) TD_TRY(from_sizes(in, s, sizes, axes, n, out, known));
    else TD_TRY(from_scales(in, s, axes, n, out, known));
    for (int i = 0; i < n; i++)
        if (!*known || out[axes[i]].in < 0) out[axes[i]].out = sizes && *known ? out[axes[i]].out : TD_DIM_UNKNOWN;
    return read_roi(in, s, axes, n, out);
}

static treadle_status resize_infer(td_infer *in) {
    const td_tensor *x = &in->inputs[0]->tensor;
    td_resize_axis axes[TD_MAX_RANK];
    td_shape out = x->shape;
    bool known;

    if (out.rank < 0) return td_infer_unknown(in, 0, x->dtype, -1);
    TD_TRY(resize_axes(in, &x->shape, axes, &known));
    for (int d = 0; d < out.rank; d++) out.dims[d] = axes[d].out;
    return td_infer_set(in, 0, x->dtype, &out);
}

static treadle_status resize_run(td_run *r) {
    const resize_state *s = r->state;
    td_infer in = {.state = s, .n_inputs = r->n_inputs, .inputs = r->in_values, .err = r->err, .node = r->node};
    td_resize_axis axes[TD_MAX_RANK];
    bool known;

    if (!r->out[0]) return TREADLE_OK;
    TD_TRY(resize_axes(&in, &r->in[0]->shape, axes, &known));
    return td_resize_run(r, &s->way, axes, r->in[0], r->out[0]);
}

#define RESIZE_OP(name)                                                                                                \
    const td_op_impl td_op_##name = {                                                                                  \
        .state_bytes = sizeof(resize_state), .prepare = name##_prepare, .infer = resize_infer, .run = resize_run};
RESIZE_OP(resize)
RESIZE_OP(upsample)
