/* light/ops/conv_transpose.c - ConvTranspose: each input spreads its window over the output. Source: ONNX op text of
 * ConvTranspose-1, -11, -22.
 *
 * What inputs spread is a product, [outputs * taps, channels] times [channels, positions], made for a block of
 * positions at a time and then added into the output. With one channel a group there is nothing to multiply, and
 * float64 has no product: these are plain loops. float16 and bfloat16 pass through float32. */
#include "kernels/gemm_f32.h"
#include "light/ops/window.h"
#include "tensor/half.h"

#include <string.h>

typedef struct transpose_state {
    td_window window;
    const td_gemm_f32_kernels *kernels;
    int64_t groups;
    td_dtype dtype;
    int64_t output_padding[TD_WINDOW_DIMS], output_shape[TD_WINDOW_DIMS];
    bool has_output_shape;
    const float *turned; /* constant weights as [groups, outputs * taps, channels]; else NULL */
} transpose_state;

/* Spatial entries of a list; output_shape may have batch and channels before them. */
static treadle_status read_list(td_prepare *p, const char *name, int64_t *out, bool *given) {
    transpose_state *s = p->state;
    size_t n;
    const int64_t *list = td_attr_ints(p, name, &n);

    *given = n > 0;
    if (n == 0) return TREADLE_OK;
    if (s->window.n && n == (size_t)s->window.n + 2 && out == s->output_shape) {
        list += 2;
        n -= 2;
    }
    if (n > TD_WINDOW_DIMS || (s->window.n && n != (size_t)s->window.n))
        return td_bad_node(p, "%s has %zu entries; expected %d", name, n, s->window.n);
    s->window.n = (int)n;
    for (size_t i = 0; i < n; i++) {
        if (list[i] < 0 || list[i] > (int64_t)1 << 31) return td_bad_node(p, "%s has %lld", name, (long long)list[i]);
        out[i] = list[i];
    }
    return TREADLE_OK;
}

/* w: [groups * k, n] to [groups, n, k] of float32. */
static void turn_weights(td_dtype dtype, const void *w, int64_t groups, int64_t k, int64_t n, float *out) {
    for (int64_t g = 0; g < groups; g++)
        for (int64_t i = 0; i < k; i++)
            for (int64_t j = 0; j < n; j++) {
                int64_t from = (g * k + i) * n + j;
                out[(g * n + j) * k + i] =
                    dtype == TD_FLOAT ? ((const float *)w)[from] : (float)td_load_f64(dtype, w, from);
            }
}

/* Whether products are worth it: not for a single channel a group. */
static bool has_products(const transpose_state *s, int64_t channels) {
    return s->dtype != TD_DOUBLE && channels / s->groups > 1;
}

static treadle_status turn_constant(td_prepare *p, transpose_state *s) {
    const td_tensor *w = td_input_const(p, 1);
    size_t bytes;
    bool ready;
    void *turned;

    if (!w || w->shape.rank < 3 || w->shape.dims[0] % s->groups || !has_products(s, w->shape.dims[0]))
        return TREADLE_OK;
    if (!td_dtype_bytes(TD_FLOAT, td_tensor_count(w), &bytes)) return td_unsupported(p, "weights of 2^63 bytes");
    TD_TRY(td_prepare_packed(p, "conv transpose 1", bytes, &turned, &ready));
    if (!ready) {
        turn_weights(w->dtype, w->data, s->groups, w->shape.dims[0] / s->groups, td_tensor_count(w) / w->shape.dims[0],
                     turned);
        td_prepare_done_with(p, 1);
    }
    s->turned = turned;
    return TREADLE_OK;
}

static treadle_status transpose_prepare(td_prepare *p) {
    transpose_state *s = p->state;
    bool given;

    s->dtype = td_input_dtype(p, 0);
    s->kernels = td_gemm_f32_pick();
    s->groups = td_attr_int(p, "group");
    if (s->groups < 1) return td_bad_node(p, "group is %lld; expected at least 1", (long long)s->groups);
    TD_TRY(td_window_prepare(p, &s->window));
    TD_TRY(read_list(p, "output_padding", s->output_padding, &given));
    TD_TRY(read_list(p, "output_shape", s->output_shape, &s->has_output_shape));
    return turn_constant(p, s);
}

/* Sizes along one dimension, with the windows' view of things: they slide over the output (w->in), one for each input
 * (w->out). false: less than nothing would be left. */
static bool place_one(const transpose_state *s, int d, int64_t x, int64_t kernel, td_windows *w) {
    int64_t extent = (kernel - 1) * s->window.dilations[d] + 1;
    int64_t whole = (x - 1) * s->window.strides[d] + s->output_padding[d] + extent;

    w->out[d] = x;
    w->kernel[d] = kernel;
    w->strides[d] = s->window.strides[d];
    w->dilations[d] = s->window.dilations[d];
    w->begin[d] = s->window.begin[d];
    w->end[d] = s->window.end[d];
    bool same = s->window.auto_pad == TD_AUTO_PAD_UPPER || s->window.auto_pad == TD_AUTO_PAD_LOWER;
    if (!same && !s->has_output_shape) {
        w->in[d] = whole - w->begin[d] - w->end[d];
        return w->in[d] >= 0;
    }
    w->in[d] = s->has_output_shape ? s->output_shape[d] : x * s->window.strides[d];
    td_auto_pad way = s->window.auto_pad == TD_AUTO_PAD_UPPER ? TD_AUTO_PAD_UPPER : TD_AUTO_PAD_LOWER;
    td_window_split_pad(way, TD_MAX(0, whole - w->in[d]), &w->begin[d], &w->end[d]);
    return true;
}

static treadle_status check_channels(td_infer *in, const transpose_state *s, const td_shape *x, const td_shape *w) {
    if (x->rank >= 0 && x->dims[1] >= 0 && x->dims[1] % s->groups)
        return td_infer_fail(in, "%lld channels in %lld groups", (long long)x->dims[1], (long long)s->groups);
    if (x->rank >= 0 && w->rank >= 0 && x->dims[1] >= 0 && w->dims[0] >= 0 && x->dims[1] != w->dims[0])
        return td_infer_fail(in, "%lld channels, the weights are for %lld", (long long)x->dims[1],
                             (long long)w->dims[0]);
    if (in->n_inputs > 2 && in->inputs[2]->kind == TD_VALUE_TENSOR && w->rank >= 0) {
        const td_shape *b = &in->inputs[2]->tensor.shape;
        if (b->rank >= 0 && (b->rank != 1 || (b->dims[0] >= 0 && w->dims[1] >= 0 &&
                                              (b->dims[0] % s->groups || b->dims[0] / s->groups != w->dims[1]))))
            return td_infer_fail(in, "the bias does not have one entry an output");
    }
    return TREADLE_OK;
}

static treadle_status transpose_infer(td_infer *in) {
    const transpose_state *s = in->state;
    const td_shape *x = &in->inputs[0]->tensor.shape, *w = &in->inputs[1]->tensor.shape;
    td_shape out = {.rank = x->rank >= 0 ? x->rank : w->rank};
    td_windows sizes;

    if (out.rank < 0) return td_infer_unknown(in, 0, in->inputs[0]->tensor.dtype, -1);
    if (out.rank < 3) return td_infer_fail(in, "rank %d; expected at least 3", out.rank);
    if (x->rank >= 0 && w->rank >= 0 && x->rank != w->rank)
        return td_infer_fail(in, "weights of rank %d for an input of rank %d", w->rank, x->rank);
    if (s->window.n && s->window.n != out.rank - 2)
        return td_infer_fail(in, "the attributes are for %d spatial dimensions, there are %d", s->window.n,
                             out.rank - 2);
    TD_TRY(check_channels(in, s, x, w));
    out.dims[0] = x->rank >= 0 ? x->dims[0] : TD_DIM_UNKNOWN;
    out.dims[1] = TD_DIM_UNKNOWN;
    if (w->rank >= 0 && w->dims[1] >= 0 && TD_MUL_OVERFLOWS(w->dims[1], s->groups, &out.dims[1]))
        return td_infer_fail(in, "%lld groups", (long long)s->groups);
    for (int d = 0; d < out.rank - 2; d++) {
        int64_t size = x->rank >= 0 ? x->dims[d + 2] : TD_DIM_UNKNOWN;
        int64_t given = w->rank >= 0 ? w->dims[d + 2] : TD_DIM_UNKNOWN;
        int64_t kernel = s->window.has_kernel ? s->window.kernel[d] : given;
        out.dims[d + 2] = TD_DIM_UNKNOWN;
        if (given >= 0 && kernel != given)
            return td_infer_fail(in, "kernel_shape has %lld where the weights have %lld", (long long)kernel,
                                 (long long)given);
        if (kernel == 0) return td_infer_fail(in, "weights without elements");
        if (size < 0 || kernel < 0) continue;
        if (!place_one(s, d, size, kernel, &sizes))
            return td_infer_fail(in, "the pads leave nothing of the output along dimension %d", d + 2);
        out.dims[d + 2] = sizes.in[d];
    }
    return td_infer_set(in, 0, in->inputs[0]->tensor.dtype, &out);
}

/* --- run --- */

typedef struct transpose_run {
    const transpose_state *s;
    td_windows w;
    int64_t batch, channels, outputs; /* channels and outputs of one group */
    int64_t x_plane, y_plane, taps;
    const void *x, *weights, *bias; /* in the working type */
    void *y;
    /* one block of positions */
    const float *spread; /* [outputs, taps, block] */
    int64_t first, count, block;
    float *y_group;
} transpose_run;

/* Where in the output plane tap `tap` of the window at `at` lies in all dimensions but the last; false: outside. */
static bool outer_offset(const td_windows *w, const int64_t *at, const int64_t *tap, int64_t *out) {
    bool inside = true;
    *out = 0;
    for (int d = 0; d < w->n - 1; d++) {
        int64_t o = at[d] * w->strides[d] + tap[d] * w->dilations[d] - w->begin[d];
        inside = inside && o >= 0 && o < w->in[d];
        *out = *out * w->in[d] + o;
    }
    *out *= w->in[w->n - 1];
    return inside;
}

/* Adds what positions o0..o1 of one row, at[last] being o0, spread through all taps: from[tap * block + o - o0]. */
static void add_row(const transpose_run *r, const int64_t at[TD_WINDOW_DIMS], int64_t length, const float *from,
                    float *to) {
    const td_windows *w = &r->w;
    int last = w->n - 1;
    int64_t tap[TD_WINDOW_DIMS] = {0}, offset, s = w->strides[last];

    for (int64_t k = 0; k < r->taps; k++, from += r->block) {
        if (outer_offset(w, at, tap, &offset)) {
            int64_t lo, hi, start = tap[last] * w->dilations[last] - w->begin[last];
            float *y = to + offset + start + at[last] * s;
            td_window_inside(w, last, tap[last], &lo, &hi);
            lo = TD_MAX(0, lo - at[last]);
            hi = TD_MIN(length, hi - at[last]);
            for (int64_t o = lo; o < hi; o++) y[o * s] += from[o];
        }
        td_window_next(w->kernel, w->n, tap);
    }
}

/* Outputs begin..end of a group get what the block's positions spread. */
static void add_block(void *arg, int64_t begin, int64_t end, int thread) {
    const transpose_run *r = arg;
    int last = r->w.n - 1;
    (void)thread;
    for (int64_t output = begin; output < end; output++) {
        int64_t at[TD_WINDOW_DIMS], rest = r->first;
        const float *from = r->spread + output * r->taps * r->block;
        for (int d = last; d >= 0; d--) {
            at[d] = rest % r->w.out[d];
            rest /= r->w.out[d];
        }
        for (int64_t i = 0; i < r->count;) {
            int64_t length = TD_MIN(r->count - i, r->w.out[last] - at[last]);
            add_row(r, at, length, from + i, r->y_group + output * r->y_plane);
            i += length;
            at[last] = 0;
            td_window_next(r->w.out, last, at);
        }
    }
}

#define DIRECT(T, suffix)                                                                                              \
    /* y += weight * x, moved to where one tap lies */                                                                 \
    static void direct_tap_##suffix(const td_windows *w, const int64_t *tap, T weight, const T *x, T *y) {             \
        int last = w->n - 1;                                                                                           \
        int64_t at[TD_WINDOW_DIMS] = {0}, rows = td_window_count(w->out, last), lo, hi, offset;                        \
        int64_t s = w->strides[last], start = tap[last] * w->dilations[last] - w->begin[last];                         \
        td_window_inside(w, last, tap[last], &lo, &hi);                                                                \
        for (int64_t row = 0; row < rows; row++, x += w->out[last]) {                                                  \
            if (outer_offset(w, at, tap, &offset))                                                                     \
                for (int64_t o = lo; o < hi; o++) y[offset + start + o * s] += weight * x[o];                          \
            td_window_next(w->out, last, at);                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void direct_planes_##suffix(void *arg, int64_t begin, int64_t end, int thread) {                            \
        const transpose_run *r = arg;                                                                                  \
        int64_t all = r->outputs * r->s->groups;                                                                       \
        (void)thread;                                                                                                  \
        for (int64_t i = begin; i < end; i++) {                                                                        \
            int64_t output = i % all, group = output / r->outputs, first = group * r->channels;                        \
            T *y = (T *)r->y + i * r->y_plane;                                                                         \
            for (int64_t c = first; c < first + r->channels; c++) {                                                    \
                int64_t tap[TD_WINDOW_DIMS] = {0};                                                                     \
                const T *x = (const T *)r->x + (i / all * r->channels * r->s->groups + c) * r->x_plane;                \
                const T *w = (const T *)r->weights + (c * r->outputs + output % r->outputs) * r->taps;                 \
                for (int64_t k = 0; k < r->taps; k++) {                                                                \
                    direct_tap_##suffix(&r->w, tap, w[k], x, y);                                                       \
                    td_window_next(r->w.kernel, r->w.n, tap);                                                          \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }
DIRECT(float, f32)
DIRECT(double, f64)

static void start_with_bias(const transpose_run *r) {
    int64_t planes = r->batch * r->outputs * r->s->groups;
    for (int64_t i = 0; i < planes; i++) {
        int64_t output = i % (r->outputs * r->s->groups), n = r->y_plane;
        if (r->s->dtype == TD_DOUBLE) {
            double v = r->bias ? ((const double *)r->bias)[output] : 0, *y = (double *)r->y + i * n;
            for (int64_t k = 0; k < n; k++) y[k] = v;
        } else {
            float v = r->bias ? ((const float *)r->bias)[output] : 0, *y = (float *)r->y + i * n;
            for (int64_t k = 0; k < n; k++) y[k] = v;
        }
    }
}

static treadle_status run_products(td_run *r, transpose_run *t) {
    enum { BLOCK_FLOATS = 1 << 18, LEAST = 64 }; /* a block stays in the second cache */
    const transpose_state *s = t->s;
    int64_t rows = t->outputs * t->taps, k = t->channels;
    t->block = TD_MIN(TD_ROUND_UP(t->x_plane, 16), TD_MAX(LEAST, BLOCK_FLOATS / rows / 16 * 16));
    float *spread = td_run_scratch(r, (size_t)(t->block * rows) * sizeof *spread), *turned = NULL;
    void *scratch = td_run_scratch(r, td_gemm_f32_scratch(s->kernels, r->pool));

    if (!s->turned) turned = td_run_scratch(r, (size_t)(s->groups * rows * k) * sizeof *turned);
    if (!spread || !scratch || (!s->turned && !turned)) return TREADLE_OUT_OF_MEMORY;
    if (turned) turn_weights(s->dtype, r->in[1]->data, s->groups, k, rows, turned);
    t->spread = spread;
    for (int64_t i = 0; i < t->batch * s->groups; i++) {
        t->y_group = (float *)t->y + i * t->outputs * t->y_plane;
        for (t->first = 0; t->first < t->x_plane; t->first += t->count) {
            t->count = TD_MIN(t->block, t->x_plane - t->first);
            td_gemm_f32 job = {.m = rows,
                               .n = t->count,
                               .k = k,
                               .a = (s->turned ? s->turned : turned) + i % s->groups * rows * k,
                               .a_row = k,
                               .a_col = 1,
                               .b = {.form = TD_GEMM_NORMAL,
                                     .dtype = TD_FLOAT,
                                     .data = (const float *)t->x + i * k * t->x_plane + t->first,
                                     .ld = t->x_plane},
                               .c = spread,
                               .c_row = t->block};
            td_gemm_f32_parallel(s->kernels, &job, r->pool, scratch);
            td_pool_range(r->pool, t->outputs, TD_MAX(1, 16384 / (t->count * t->taps)), 1, add_block, t);
        }
    }
    return TREADLE_OK;
}

static treadle_status transpose_run_op(td_run *r) {
    const transpose_state *s = r->state;
    const td_shape *x = &r->in[0]->shape, *w = &r->in[1]->shape;
    const td_tensor *y = r->out[0];
    transpose_run t = {.s = s,
                       .w = {.n = x->rank - 2},
                       .batch = x->dims[0],
                       .channels = x->dims[1] / s->groups,
                       .outputs = w->dims[1]};
    bool half = s->dtype == TD_FLOAT16 || s->dtype == TD_BFLOAT16;

    if (!y || td_tensor_count(y) == 0) return TREADLE_OK;
    for (int d = 0; d < t.w.n; d++) place_one(s, d, x->dims[d + 2], w->dims[d + 2], &t.w);
    t.x_plane = td_window_count(t.w.out, t.w.n);
    t.y_plane = td_window_count(t.w.in, t.w.n);
    t.taps = td_window_count(t.w.kernel, t.w.n);
    TD_TRY(td_run_widen(r, r->in[0], &t.x));
    TD_TRY(td_run_widen(r, r->n_inputs > 2 ? r->in[2] : NULL, &t.bias));
    t.y = half ? td_run_scratch(r, (size_t)td_tensor_count(y) * sizeof(float)) : y->data;
    if (!t.y) return TREADLE_OUT_OF_MEMORY;
    start_with_bias(&t);
    if (has_products(s, x->dims[1])) {
        TD_TRY(run_products(r, &t));
    } else {
        TD_TRY(td_run_widen(r, r->in[1], &t.weights));
        td_pool_range(r->pool, td_tensor_count(y) / t.y_plane, TD_MAX(1, 16384 / TD_MAX(1, t.x_plane * t.taps)), 1,
                      s->dtype == TD_DOUBLE ? direct_planes_f64 : direct_planes_f32, &t);
    }
    if (half) td_from_f32(y->dtype, t.y, td_tensor_count(y), y->data);
    return TREADLE_OK;
}

const td_op_impl td_op_conv_transpose = {.state_bytes = sizeof(transpose_state),
                                         .prepare = transpose_prepare,
                                         .infer = transpose_infer,
                                         .run = transpose_run_op};
