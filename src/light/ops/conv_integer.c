/* light/ops/conv_integer.c - ConvInteger and QLinearConv: convolution of 8-bit codes, exact in int32. Source: ONNX op
 * texts of ConvInteger-10, QLinearConv-10.
 *
 * The input is turned to [positions, channels] with the zero point as its padding, so that a window is a few runs of
 * bytes. Rows of windows times the weights, packed as [taps * channels, outputs], is an 8-bit product
 * (kernels/gemm_i8.h), which runs block of positions by block. With one channel a group there is nothing to
 * multiply: rows are summed directly. */
#include "base/alloc.h"
#include "kernels/gemm_i8.h"
#include "light/ops/conv.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 48 }; /* positions */

typedef struct integer_state {
    td_window window;
    const td_gemm_i8_kernels *kernels;
    int64_t groups;
    bool linear;           /* QLinearConv */
    const uint8_t *packed; /* constant weights: a pack a group; else NULL */
} integer_state;

/* Inputs by their meaning; -1: there is none. */
enum { X, X_ZERO, W, W_ZERO, X_SCALE, W_SCALE, Y_SCALE, Y_ZERO, BIAS, N_MEANINGS };
static const int integer_inputs[N_MEANINGS] = {0, 2, 1, 3, -1, -1, -1, -1, -1};
static const int linear_inputs[N_MEANINGS] = {0, 2, 3, 5, 1, 4, 6, 7, 8};

static const td_tensor *meaning(const td_run *r, int what) {
    const integer_state *s = r->state;
    int i = (s->linear ? linear_inputs : integer_inputs)[what];
    return i >= 0 && (size_t)i < r->n_inputs ? r->in[i] : NULL;
}

/* --- weights --- */

static bool pack_bytes(const td_shape *w, int64_t groups, size_t *each) {
    int64_t k = w->dims[1];
    for (int d = 2; d < w->rank; d++) k *= w->dims[d];
    if (!td_gemm_i8_pack_bytes(k, w->dims[0] / groups, each) || *each > SIZE_MAX / 2 / (size_t)groups) return false;
    *each = TD_ROUND_UP(*each, (size_t)64);
    return true;
}

/* Weights [outputs, channels, taps] to a pack of [taps * channels, outputs / groups] for each
 * group; turned: one group's bytes. */
static void pack_weights(const td_tensor *w, int64_t groups, size_t each, uint8_t *turned, uint8_t *out) {
    int64_t outputs = w->shape.dims[0] / groups, channels = w->shape.dims[1],
            k = w->shape.dims[0] ? td_tensor_count(w) / w->shape.dims[0] : 0, taps = channels ? k / channels : 0;
    const uint8_t *from = w->data;

    for (int64_t g = 0; g < groups; g++, from += outputs * k, out += each) {
        for (int64_t m = 0; m < outputs; m++)
            for (int64_t c = 0; c < channels; c++)
                for (int64_t t = 0; t < taps; t++) turned[m * k + t * channels + c] = from[m * k + c * taps + t];
        td_gemm_i8_pack(turned, 1, k, w->dtype == TD_INT8, k, outputs, out);
    }
}

static treadle_status pack_constant(td_prepare *p, integer_state *s, size_t input) {
    const td_tensor *w = td_input_const(p, input);
    size_t each;
    void *packed;
    bool ready;

    if (!w || w->shape.rank < 3 || w->shape.dims[0] % s->groups || w->shape.dims[1] < 2) return TREADLE_OK;
    if (!pack_bytes(&w->shape, s->groups, &each)) return td_unsupported(p, "weights of 2^63 bytes");
    TD_TRY(td_prepare_packed(p, "conv integer 1", each * (size_t)s->groups, &packed, &ready));
    s->packed = packed;
    if (ready) return TREADLE_OK;
    size_t bytes = (size_t)(td_tensor_count(w) / s->groups);
    uint8_t *turned = td_alloc(bytes);
    if (!turned) return td_fail_memory(p->err, "weights", bytes);
    pack_weights(w, s->groups, each, turned, packed);
    td_free(turned);
    td_prepare_done_with(p, input);
    return TREADLE_OK;
}

static treadle_status prepare_form(td_prepare *p, bool linear) {
    integer_state *s = p->state;

    s->linear = linear;
    s->kernels = td_gemm_i8_pick();
    s->groups = td_attr_int(p, "group");
    if (s->groups < 1) return td_bad_node(p, "group is %lld; expected at least 1", (long long)s->groups);
    TD_TRY(td_window_prepare(p, &s->window));
    return pack_constant(p, s, linear ? 3 : 1);
}

/* --- shapes --- */

/* Input i must have one element, or one for each output if `each`. */
static treadle_status check_parameter(td_infer *in, int i, bool each, const char *what, const td_shape *w) {
    int64_t count;
    if (i < 0 || (size_t)i >= in->n_inputs || in->inputs[i]->kind != TD_VALUE_TENSOR) return TREADLE_OK;
    if (!td_shape_count(&in->inputs[i]->tensor.shape, &count) || count == 1) return TREADLE_OK;
    if (each && (w->rank < 1 || w->dims[0] < 0 || w->dims[0] == count)) return TREADLE_OK;
    return td_infer_fail(in, "%s has %lld entries", what, (long long)count);
}

static treadle_status integer_infer(td_infer *in) {
    static const char *const names[N_MEANINGS] = {"x",
                                                  "the zero point of x",
                                                  "w",
                                                  "the zero point of w",
                                                  "the scale of x",
                                                  "the scale of w",
                                                  "the scale of y",
                                                  "the zero point of y",
                                                  "the bias"};
    const integer_state *s = in->state;
    const int *inputs = s->linear ? linear_inputs : integer_inputs;
    const td_shape *w = &in->inputs[inputs[W]]->tensor.shape;
    td_shape out;

    TD_TRY(td_conv_infer(in, &s->window, s->groups, 0, (size_t)inputs[W], inputs[BIAS], &out));
    for (int i = X_ZERO; i < BIAS; i++)
        if (i != W) TD_TRY(check_parameter(in, inputs[i], i == W_ZERO || i == W_SCALE, names[i], w));
    td_dtype dtype = s->linear ? in->inputs[inputs[Y_ZERO]]->tensor.dtype : TD_INT32;
    return td_infer_set(in, 0, dtype, &out);
}

/* --- run --- */

typedef struct integer_run {
    const integer_state *s;
    td_conv_job job;                            /* sizes only */
    int64_t dims[TD_WINDOW_DIMS];               /* padded */
    int64_t positions, taps, channels, outputs; /* channels and outputs of a group */
    bool x_signed;
    const uint8_t *x;
    const td_tensor *w;
    const uint8_t *turned; /* [dims..., all channels]: one batch item with its padding */
    int64_t item;
    const uint8_t *packed;
    size_t pack_bytes;
    int32_t x_zero;
    const int32_t *w_zeros; /* as the product or the direct form wants them */
    int64_t w_zero_step;
    const int32_t *bias;
    const float *scales; /* QLinearConv: of each output */
    int32_t y_zero;
    bool y_signed;
    void *y;
    /* runs of bytes that make a window */
    const int64_t *runs; /* offsets in positions of `turned` */
    int64_t n_runs, run_bytes;
    uint8_t *scratch; /* of each thread */
    size_t per_thread;
} integer_run;

static int32_t code_of(const td_tensor *t, int64_t i) {
    if (!t) return 0;
    return t->dtype == TD_INT8 ? ((const int8_t *)t->data)[i] : ((const uint8_t *)t->data)[i];
}

/* Sums of `count` neighbouring outputs of one channel into y. */
static void store(const integer_run *r, int64_t output, int64_t at, const int32_t *sums, int64_t step, int64_t count) {
    at += (r->item * r->job.outputs + output) * r->positions;
    if (!r->s->linear) {
        for (int64_t i = 0; i < count; i++) ((int32_t *)r->y)[at + i] = sums[i * step];
        return;
    }
    uint32_t bias = r->bias ? (uint32_t)r->bias[output] : 0;
    int32_t low = r->y_signed ? -128 : 0, high = low + 255;
    for (int64_t i = 0; i < count; i++) {
        float v = rintf((float)(int32_t)((uint32_t)sums[i * step] + bias) * r->scales[output]);
        float code = fminf(fmaxf(v + (float)r->y_zero, (float)low), (float)high);
        ((uint8_t *)r->y)[at + i] = (uint8_t)(int32_t)code;
    }
}

/* Planes of one batch item, channels c0..c1, from [channels, in] to [padded, channels]. */
static void turn_planes(void *arg, int64_t begin, int64_t end, int thread) {
    enum { TILE = 32 };
    const integer_run *r = arg;
    const td_windows *w = &r->job.windows;
    int last = w->n - 1;
    int64_t all = r->job.channels, row = w->in[last], rows = td_window_count(w->in, last), in = rows * row;
    const uint8_t *x = r->x + r->item * all * in;
    uint8_t *to = (uint8_t *)(uintptr_t)r->turned;
    int64_t at[TD_WINDOW_DIMS] = {0};

    (void)thread;
    for (int64_t i = 0; i < rows; i++, td_window_next(w->in, last, at)) {
        int64_t place = 0;
        for (int d = 0; d < last; d++) place = (place + at[d] + w->begin[d]) * r->dims[d + 1]; /* rows before it */
        place += w->begin[last];
        for (int64_t k0 = 0; k0 < row; k0 += TILE)
            for (int64_t c = begin; c < end; c++)
                for (int64_t k = k0; k < TD_MIN(row, k0 + TILE); k++)
                    to[(place + k) * all + c] = x[c * in + i * row + k];
    }
}

/* Rows of windows for positions p0..p0+n of a group. */
static void fill_rows(const integer_run *r, int64_t group, int64_t p0, int64_t n, int8_t *rows, int32_t *sums) {
    const td_windows *w = &r->job.windows;
    int64_t at[TD_WINDOW_DIMS], rest = p0, k = r->taps * r->channels, row = td_gemm_i8_row(k);

    for (int d = w->n - 1; d >= 0; d--) {
        at[d] = rest % w->out[d];
        rest /= w->out[d];
    }
    for (int64_t i = 0; i < n; i++, rows += row, td_window_next(w->out, w->n, at)) {
        int64_t place = 0;
        for (int d = 0; d < w->n; d++) place = place * r->dims[d] + at[d] * w->strides[d];
        const uint8_t *x = r->turned + group * r->channels;
        sums[i] = 0;
        for (int64_t j = 0; j < r->n_runs; j++)
            sums[i] += r->s->kernels->row(x + (place + r->runs[j]) * r->job.channels, r->run_bytes, !r->x_signed,
                                          rows + j * r->run_bytes);
        memset(rows + k, 0, (size_t)(row - k));
    }
}

static void run_positions(void *arg, int64_t begin, int64_t end, int thread) {
    const integer_run *r = arg;
    int64_t k = r->taps * r->channels;
    uint8_t *scratch = r->scratch + (size_t)thread * r->per_thread;
    int32_t *sums = (int32_t *)(void *)scratch, *c = sums + BLOCK;
    void *raw = c + BLOCK * TD_ROUND_UP(r->outputs, 16);
    int8_t *rows = (int8_t *)raw + TD_ROUND_UP(td_gemm_i8_scratch(NULL), (size_t)64);
    int32_t x_zero = r->x_zero - (r->x_signed ? 0 : 128);

    for (int64_t g = 0; g < r->s->groups; g++)
        for (int64_t p = begin; p < end; p += BLOCK) {
            int64_t n = TD_MIN((int64_t)BLOCK, end - p), first = g * r->outputs;
            fill_rows(r, g, p, n, rows, sums);
            td_gemm_i8 gemm = {.m = n,
                               .n = r->outputs,
                               .k = k,
                               .a = rows,
                               .a_sums = sums,
                               .b = r->packed + (size_t)g * r->pack_bytes,
                               .a_zero = &x_zero,
                               .b_zero = r->w_zeros + first * r->w_zero_step,
                               .b_zero_step = r->w_zero_step,
                               .c = c,
                               .c_row = r->outputs};
            td_gemm_i8_parallel(r->s->kernels, &gemm, NULL, raw);
            for (int64_t m = 0; m < r->outputs; m++) store(r, first + m, p, c + m, r->outputs, n);
        }
}

TD_WINDOW_ADD_TAP(uint32_t, uint8_t, add_tap_u8) /* unsigned: sums wrap */
TD_WINDOW_ADD_TAP(uint32_t, int8_t, add_tap_i8)

/* One channel a group: output planes of all batch items. */
static void run_planes(void *arg, int64_t begin, int64_t end, int thread) {
    integer_run r = *(const integer_run *)arg;
    const td_windows *w = &r.job.windows;
    int64_t in = td_window_count(w->in, w->n);
    uint32_t *sums = (uint32_t *)(void *)(r.scratch + (size_t)thread * r.per_thread);

    for (int64_t i = begin; i < end; i++) {
        int64_t output = i % r.job.outputs, tap[TD_WINDOW_DIMS] = {0};
        r.item = i / r.job.outputs;
        const uint8_t *x = r.x + (r.item * r.job.channels + output / r.outputs) * in;
        int32_t zero = r.w_zeros[output * r.w_zero_step] - (r.w->dtype == TD_INT8 ? 128 : 0);
        memset(sums, 0, (size_t)r.positions * sizeof *sums);
        for (int64_t t = 0; t < r.taps; t++, td_window_next(w->kernel, w->n, tap)) {
            uint32_t weight = (uint32_t)(code_of(r.w, output * r.taps + t) - zero);
            if (r.x_signed) add_tap_i8(w, tap, weight, (uint32_t)r.x_zero, (const int8_t *)x, sums);
            else add_tap_u8(w, tap, weight, (uint32_t)r.x_zero, x, sums);
        }
        store(&r, output, 0, (const int32_t *)sums, 1, r.positions);
    }
}

/* What a window is made of: whole rows of the kernel where these lie side by side, else single taps. */
static treadle_status make_runs(td_run *r, integer_run *g) {
    const td_windows *w = &g->job.windows;
    int last = w->n - 1;
    bool joined = w->dilations[last] == 1 && g->s->groups == 1;
    int64_t *runs = td_run_scratch(r, (size_t)g->taps * sizeof *runs), tap[TD_WINDOW_DIMS] = {0};

    if (!runs) return TREADLE_OUT_OF_MEMORY;
    g->run_bytes = g->channels * (joined ? w->kernel[last] : 1);
    for (int64_t t = 0; t < g->taps; t++, td_window_next(w->kernel, w->n, tap)) {
        int64_t place = 0;
        if (joined && tap[last]) continue;
        for (int d = 0; d < w->n; d++) place = place * g->dims[d] + tap[d] * w->dilations[d];
        runs[g->n_runs++] = place;
    }
    g->runs = runs;
    return TREADLE_OK;
}

static treadle_status padded_input(td_run *r, integer_run *g) {
    const td_windows *w = &g->job.windows;
    td_shape shape = {.rank = w->n + 1, .dims = {g->job.channels}};
    int64_t count;

    for (int d = 0; d < w->n; d++) {
        int64_t reach = (w->out[d] - 1) * w->strides[d] + (w->kernel[d] - 1) * w->dilations[d] + 1;
        shape.dims[d + 1] = g->dims[d] = TD_MAX(w->in[d] + w->begin[d], reach);
    }
    if (!td_shape_count(&shape, &count)) return td_run_fail(r, "the padded input is too large");
    uint8_t *turned = td_run_scratch(r, (size_t)count);
    if (!turned) return TREADLE_OUT_OF_MEMORY;
    memset(turned, g->x_zero, (size_t)count);
    g->turned = turned;
    return TREADLE_OK;
}

static treadle_status weights_of(td_run *r, integer_run *g) {
    const td_tensor *w = g->w;
    if (!pack_bytes(&w->shape, g->s->groups, &g->pack_bytes)) return td_run_fail(r, "the weights are too large");
    g->packed = g->s->packed;
    if (g->packed) return TREADLE_OK;
    uint8_t *packed = td_run_scratch(r, g->pack_bytes * (size_t)g->s->groups);
    uint8_t *turned = td_run_scratch(r, (size_t)(td_tensor_count(w) / g->s->groups));
    if (!packed || !turned) return TREADLE_OUT_OF_MEMORY;
    pack_weights(w, g->s->groups, g->pack_bytes, turned, packed);
    g->packed = packed;
    return TREADLE_OK;
}

static treadle_status zeros_of(td_run *r, integer_run *g) {
    const td_tensor *zero = meaning(r, W_ZERO);
    int64_t n = zero ? td_tensor_count(zero) : 1;
    int32_t *zeros = td_run_scratch(r, (size_t)n * sizeof *zeros);

    if (!zeros) return TREADLE_OUT_OF_MEMORY;
    for (int64_t i = 0; i < n; i++) zeros[i] = code_of(zero, i) + (g->w->dtype == TD_INT8 ? 128 : 0);
    g->w_zeros = zeros;
    g->w_zero_step = n > 1;
    return TREADLE_OK;
}

/* QLinearConv: from sums to codes of y. */
static treadle_status scales_of(td_run *r, integer_run *g) {
    const td_tensor *w_scale = meaning(r, W_SCALE), *bias = meaning(r, BIAS);
    float *scales = td_run_scratch(r, (size_t)g->job.outputs * sizeof *scales);
    int64_t each = td_tensor_count(w_scale) > 1;

    if (!scales) return TREADLE_OUT_OF_MEMORY;
    float x_scale = *(const float *)meaning(r, X_SCALE)->data, y_scale = *(const float *)meaning(r, Y_SCALE)->data;
    for (int64_t i = 0; i < g->job.outputs; i++)
        scales[i] = x_scale * ((const float *)w_scale->data)[i * each] / y_scale;
    g->scales = scales;
    g->bias = bias ? bias->data : NULL;
    g->y_zero = code_of(meaning(r, Y_ZERO), 0);
    g->y_signed = meaning(r, Y_ZERO)->dtype == TD_INT8;
    return TREADLE_OK;
}

static treadle_status run_blocks(td_run *r, integer_run *g) {
    size_t rows = (size_t)BLOCK * (size_t)td_gemm_i8_row(g->taps * g->channels);
    size_t sums = (size_t)BLOCK * (size_t)(1 + TD_ROUND_UP(g->outputs, 16)) * sizeof(int32_t);

    TD_TRY(padded_input(r, g));
    TD_TRY(make_runs(r, g));
    TD_TRY(weights_of(r, g));
    g->per_thread = TD_ROUND_UP(sums + rows + td_gemm_i8_scratch(NULL) + 64, (size_t)64);
    g->scratch = td_run_scratch(r, g->per_thread * (size_t)td_pool_threads(r->pool));
    if (!g->scratch) return TREADLE_OUT_OF_MEMORY;
    for (g->item = 0; g->item < g->job.batch; g->item++) {
        int64_t plane = TD_MAX(1, td_window_count(g->job.windows.in, g->job.windows.n));
        td_pool_range(r->pool, g->job.channels, TD_MAX(32, 65536 / plane), 32, turn_planes, g);
        td_pool_range(r->pool, g->positions, BLOCK, BLOCK, run_positions, g);
    }
    return TREADLE_OK;
}

static treadle_status integer_run_op(td_run *r) {
    const integer_state *s = r->state;
    const td_tensor *x = r->in[0], *y = r->out[0];
    integer_run g = {.s = s, .w = meaning(r, W), .x = x->data, .x_signed = x->dtype == TD_INT8};

    if (!y || td_tensor_count(y) == 0) return TREADLE_OK;
    g.job = td_conv_sizes(&s->window, s->groups, &x->shape, &g.w->shape);
    g.positions = td_window_count(g.job.windows.out, g.job.windows.n);
    g.taps = td_window_count(g.job.windows.kernel, g.job.windows.n);
    g.channels = g.job.channels / s->groups;
    g.outputs = g.job.outputs / s->groups;
    g.x_zero = code_of(meaning(r, X_ZERO), 0);
    g.y = y->data;
    TD_TRY(zeros_of(r, &g));
    if (s->linear) TD_TRY(scales_of(r, &g));
    if (g.channels != 1) return run_blocks(r, &g);
    g.per_thread = TD_ROUND_UP((size_t)g.positions * sizeof(int32_t), (size_t)64);
    g.scratch = td_run_scratch(r, g.per_thread * (size_t)td_pool_threads(r->pool));
    if (!g.scratch) return TREADLE_OUT_OF_MEMORY;
    td_pool_range(r->pool, g.job.batch * g.job.outputs, TD_MAX(1, 32768 / TD_MAX(1, g.positions * g.taps)), 1,
                  run_planes, &g);
    return TREADLE_OK;
}

static treadle_status conv_integer_prepare(td_prepare *p) { return prepare_form(p, false); }
static treadle_status qlinear_conv_prepare(td_prepare *p) { return prepare_form(p, true); }

#define INTEGER_OP(name)                                                                                               \
    const td_op_impl td_op_##name = {.state_bytes = sizeof(integer_state),                                             \
                                     .prepare = name##_prepare,                                                        \
                                     .infer = integer_infer,                                                           \
                                     .run = integer_run_op};
INTEGER_OP(conv_integer)
INTEGER_OP(qlinear_conv)
