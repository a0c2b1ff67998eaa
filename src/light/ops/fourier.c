/* light/ops/fourier.c - DFT and STFT. Source: ONNX op texts of DFT-17, DFT-20, STFT-17. Computed in float64, but
 * float32 spectra are turned back in float32, with the roundings that NumPy has, whose results ONNX's cases are.
 * A real tensor ends in a dimension of 1, a complex one of 2. */
#include "kernels/fourier.h"

#include "light/op.h"
#include "tensor/half.h"

#include <string.h>

/* An integer input of one element. *known false: not known at open, or absent. */
static treadle_status read_int(td_infer *in, size_t i, const char *what, int64_t *out, bool *known) {
    int64_t count;

    *known = false;
    if (i >= in->n_inputs || in->inputs[i]->kind != TD_VALUE_TENSOR) return TREADLE_OK;
    const td_tensor *t = &in->inputs[i]->tensor;
    if (!td_shape_count(&t->shape, &count)) return TREADLE_OK;
    if (count != 1) return td_infer_fail(in, "%s has %lld elements; expected one", what, (long long)count);
    *known = t->data != NULL;
    if (*known) *out = td_load_i64(t->dtype, t->data, 0);
    return TREADLE_OK;
}

static bool is_given(const td_infer *in, size_t i) {
    return i < in->n_inputs && in->inputs[i]->kind == TD_VALUE_TENSOR;
}

static td_infer infer_view(td_run *r) {
    return (td_infer){
        .state = r->state, .n_inputs = r->n_inputs, .inputs = r->in_values, .err = r->err, .node = r->node};
}

/* A plan in scratch; NULL: the error is set. */
typedef struct workspace {
    td_fourier plan;
    int64_t scratch; /* complex numbers a thread needs for a transform */
    int64_t per_thread;
    td_complex *memory; /* of all threads: in [n], out [n], scratch */
} workspace;

static treadle_status make_workspace(td_run *r, int64_t n, workspace *w) {
    int64_t plan, all;
    td_shape shape = {.rank = 2, .dims = {td_pool_threads(r->pool)}};

    if (!td_fourier_sizes(n, &plan, &w->scratch)) return td_run_fail(r, "a transform of %lld", (long long)n);
    shape.dims[1] = w->per_thread = TD_ROUND_UP(2 * n + w->scratch, 4);
    if (!td_shape_count(&shape, &all)) return td_run_fail(r, "a transform of %lld", (long long)n);
    td_complex *memory = td_run_scratch(r, (size_t)plan * sizeof *memory);
    w->memory = td_run_scratch(r, (size_t)all * sizeof *w->memory);
    if (!memory || !w->memory) return TREADLE_OUT_OF_MEMORY;
    td_fourier_init(n, memory, w->memory + 2 * n, &w->plan);
    return TREADLE_OK;
}

/* --- DFT --- */

typedef struct dft_state {
    bool inverse, one_sided, has_axis_input;
    int64_t axis;
} dft_state;

static treadle_status dft_prepare(td_prepare *p) {
    dft_state *s = p->state;

    s->inverse = td_attr_int(p, "inverse") != 0;
    s->one_sided = td_attr_int(p, "onesided") != 0;
    s->has_axis_input = p->opset >= 20;
    s->axis = s->has_axis_input ? -2 : td_attr_int(p, "axis");
    return TREADLE_OK;
}

typedef struct dft_sizes {
    int axis;
    int64_t n;        /* of the transform */
    int64_t out;      /* along the axis */
    int64_t parts_in; /* 1: real, 2: complex */
    int64_t parts_out;
    bool known; /* all of it */
} dft_sizes;

static treadle_status dft_sizes_of(td_infer *in, dft_sizes *d) {
    const dft_state *s = in->state;
    const td_shape *x = &in->inputs[0]->tensor.shape;
    int64_t axis = s->axis;
    bool axis_known = true, length_known;

    if (s->has_axis_input && is_given(in, 2)) TD_TRY(read_int(in, 2, "axis", &axis, &axis_known));
    d->parts_out = s->inverse && s->one_sided ? 1 : 2;
    d->known = axis_known;
    d->out = d->n = TD_DIM_UNKNOWN;
    if (x->rank < 2) return td_infer_fail(in, "rank %d; expected at least 2", x->rank);
    d->parts_in = x->dims[x->rank - 1];
    if (d->parts_in >= 0 && d->parts_in != 1 && d->parts_in != 2)
        return td_infer_fail(in, "the last dimension is %lld; expected 1 (real) or 2 (complex)",
                             (long long)d->parts_in);
    if (!axis_known) return TREADLE_OK;
    TD_TRY(td_infer_axis(in, axis, x->rank, &d->axis));
    if (d->axis == x->rank - 1) return td_infer_fail(in, "axis %d holds the parts of complex numbers", d->axis);
    if (is_given(in, 1)) {
        TD_TRY(read_int(in, 1, "dft_length", &d->n, &length_known));
        if (length_known && d->n < 1) return td_infer_fail(in, "dft_length is %lld", (long long)d->n);
        if (!length_known) d->n = TD_DIM_UNKNOWN;
    } else if (x->dims[d->axis] >= 0) {
        d->n = s->inverse && s->one_sided ? 2 * (x->dims[d->axis] - 1) : x->dims[d->axis];
        if (d->n < 1) return td_infer_fail(in, "a dimension of %lld gives no length", (long long)x->dims[d->axis]);
    }
    if (d->n >= 0) d->out = s->one_sided && !s->inverse ? d->n / 2 + 1 : d->n;
    return TREADLE_OK;
}

static treadle_status dft_infer(td_infer *in) {
    const td_tensor *x = &in->inputs[0]->tensor;
    td_shape out = x->shape;
    dft_sizes d;

    if (out.rank < 0) return td_infer_unknown(in, 0, x->dtype, -1);
    TD_TRY(dft_sizes_of(in, &d));
    for (int i = 0; i < out.rank && !d.known; i++) out.dims[i] = TD_DIM_UNKNOWN;
    if (d.known) out.dims[d.axis] = d.out;
    out.dims[out.rank - 1] = d.parts_out;
    return td_infer_set(in, 0, x->dtype, &out);
}

typedef struct dft_run {
    const dft_state *s;
    const td_tensor *x, *y;
    dft_sizes d;
    int64_t in, inner; /* along the axis; behind it, without the parts */
    workspace w;
} dft_run;

static void load_line(const dft_run *r, int64_t line, td_complex *to) {
    int64_t first = (line / r->inner * r->in * r->inner + line % r->inner) * r->d.parts_in;
    bool half = r->s->inverse && r->s->one_sided;
    int64_t n = r->d.n, count = TD_MIN(r->in, half ? n / 2 + 1 : n);

    for (int64_t t = 0; t < n; t++) to[t] = (td_complex){0, 0};
    for (int64_t t = 0; t < count; t++) {
        int64_t at = first + t * r->inner * r->d.parts_in;
        to[t].re = td_load_f64(r->x->dtype, r->x->data, at);
        if (r->d.parts_in == 2) to[t].im = td_load_f64(r->x->dtype, r->x->data, at + 1);
    }
    if (!half) return;
    to[0].im = 0; /* the other half is the mirror image: what is its own image is real */
    if (n % 2 == 0) to[n / 2].im = 0;
    for (int64_t t = 1; t < n - t; t++) to[n - t] = (td_complex){to[t].re, -to[t].im};
}

/* The inverse in single precision; `out` lends its memory until the result is there. */
static void invert_f32(const dft_run *r, const td_complex *in, td_complex *out, td_complex *scratch) {
    td_complex32 *from = (td_complex32 *)(void *)scratch, *to = from + r->d.n, *other = (td_complex32 *)(void *)out;
    float scale = (float)(1 / (double)r->d.n);

    for (int64_t t = 0; t < r->d.n; t++) from[t] = (td_complex32){(float)in[t].re, (float)in[t].im};
    td_fourier_run_f32(&r->w.plan, true, from, to, other);
    for (int64_t k = 0; k < r->d.n; k++) out[k] = (td_complex){(double)(to[k].re * scale), (double)(to[k].im * scale)};
}

static void dft_lines(void *arg, int64_t begin, int64_t end, int thread) {
    const dft_run *r = arg;
    td_complex *in = r->w.memory + thread * r->w.per_thread, *out = in + r->d.n, *scratch = out + r->d.n;
    bool single = r->s->inverse && r->x->dtype == TD_FLOAT && r->w.plan.m == 0;
    double scale = r->s->inverse && !single ? 1 / (double)r->d.n : 1;

    for (int64_t line = begin; line < end; line++) {
        int64_t first = (line / r->inner * r->d.out * r->inner + line % r->inner) * r->d.parts_out;
        load_line(r, line, in);
        if (single) invert_f32(r, in, out, scratch);
        else td_fourier_run(&r->w.plan, r->s->inverse, in, out, scratch);
        for (int64_t k = 0; k < r->d.out; k++) {
            int64_t at = first + k * r->inner * r->d.parts_out;
            td_store_f64(r->y->dtype, r->y->data, at, out[k].re * scale);
            if (r->d.parts_out == 2) td_store_f64(r->y->dtype, r->y->data, at + 1, out[k].im * scale);
        }
    }
}

static treadle_status dft_run_op(td_run *r) {
    td_infer in = infer_view(r);
    dft_run w = {.s = r->state, .x = r->in[0], .y = r->out[0], .inner = 1};
    const td_shape *x = &r->in[0]->shape;
    int64_t outer = 1;

    if (!w.y || td_tensor_count(w.y) == 0) return TREADLE_OK;
    TD_TRY(dft_sizes_of(&in, &w.d));
    w.in = x->dims[w.d.axis];
    for (int d = 0; d < w.d.axis; d++) outer *= x->dims[d];
    for (int d = w.d.axis + 1; d < x->rank - 1; d++) w.inner *= x->dims[d];
    TD_TRY(make_workspace(r, w.d.n, &w.w));
    td_pool_range(r->pool, outer * w.inner, TD_MAX(1, 4096 / w.d.n), 1, dft_lines, &w);
    return TREADLE_OK;
}

const td_op_impl td_op_dft = {
    .state_bytes = sizeof(dft_state), .prepare = dft_prepare, .infer = dft_infer, .run = dft_run_op};

/* --- STFT: signal, frame_step, window, frame_length --- */

typedef struct stft_state {
    bool one_sided;
} stft_state;

static treadle_status stft_prepare(td_prepare *p) {
    stft_state *s = p->state;
    s->one_sided = td_attr_int(p, "onesided") != 0;
    return TREADLE_OK;
}

typedef struct stft_sizes {
    int64_t step, frame, n_frames, bins; /* TD_DIM_UNKNOWN: not known at open */
} stft_sizes;

static treadle_status stft_sizes_of(td_infer *in, stft_sizes *z) {
    const stft_state *s = in->state;
    const td_shape *x = &in->inputs[0]->tensor.shape;
    bool step_known, frame_known = false;
    int64_t window = TD_DIM_UNKNOWN;

    *z = (stft_sizes){TD_DIM_UNKNOWN, TD_DIM_UNKNOWN, TD_DIM_UNKNOWN, TD_DIM_UNKNOWN};
    if (x->rank != 3 && x->rank != 2)
        return td_infer_fail(in, "a signal of rank %d; expected [batch, length, 1 or 2]", x->rank);
    if (x->rank == 3 && x->dims[2] >= 0 && x->dims[2] != 1 && x->dims[2] != 2)
        return td_infer_fail(in, "the last dimension is %lld; expected 1 (real) or 2 (complex)", (long long)x->dims[2]);
    TD_TRY(read_int(in, 1, "frame_step", &z->step, &step_known));
    if (step_known && z->step < 1) return td_infer_fail(in, "frame_step is %lld", (long long)z->step);
    TD_TRY(read_int(in, 3, "frame_length", &z->frame, &frame_known));
    if (is_given(in, 2)) {
        const td_shape *w = &in->inputs[2]->tensor.shape;
        if (w->rank >= 0 && w->rank != 1) return td_infer_fail(in, "a window of rank %d", w->rank);
        if (w->rank == 1) window = w->dims[0];
    } else if (!is_given(in, 3)) {
        window = x->dims[1];
    }
    if (!is_given(in, 3)) z->frame = window;
    if (z->frame < 0 && (frame_known || !in->at_open))
        return td_infer_fail(in, "frame_length is %lld", (long long)z->frame);
    if (z->frame == 0) return td_infer_fail(in, "frames without length");
    if (frame_known && window >= 0 && window != z->frame)
        return td_infer_fail(in, "a window of %lld for frames of %lld", (long long)window, (long long)z->frame);
    if (z->frame > 0) z->bins = s->one_sided ? z->frame / 2 + 1 : z->frame;
    if (z->frame < 0 || !step_known || x->dims[1] < 0) return TREADLE_OK;
    if (x->dims[1] < z->frame)
        return td_infer_fail(in, "a frame of %lld is longer than the signal", (long long)z->frame);
    z->n_frames = (x->dims[1] - z->frame) / z->step + 1;
    return TREADLE_OK;
}

static treadle_status stft_infer(td_infer *in) {
    const td_tensor *x = &in->inputs[0]->tensor;
    stft_sizes z;

    if (x->shape.rank < 0) return td_infer_unknown(in, 0, x->dtype, 4);
    TD_TRY(stft_sizes_of(in, &z));
    td_shape out = {4, {x->shape.dims[0], z.n_frames, z.bins, 2}};
    return td_infer_set(in, 0, x->dtype, &out);
}

typedef struct stft_run {
    const td_tensor *x, *y, *window;
    stft_sizes z;
    int64_t length, parts;
    const double *weights; /* of the window; NULL: 1 */
    workspace w;
} stft_run;

static double sample(const stft_run *r, int64_t batch, int64_t at, int64_t part) {
    return td_load_f64(r->x->dtype, r->x->data, (batch * r->length + at) * r->parts + part);
}

/* The first and the middle bin of a real signal are real. Exported vocoders tell pi from -pi, the angles of what is
 * negative there, by the sign of the imaginary part, and were tried with transforms in single precision, whose
 * roundings turn the first bin backwards and the middle one forwards; an exact 0 would be another angle in every other
 * frame. So they are turned by 1e-30. */
static double turned_by_a_hair(const stft_run *r, int64_t bin, double re, double im) {
    if (r->parts != 1 || (bin != 0 && 2 * bin != r->z.frame)) return im;
    return bin == 0 ? -1e-30 * re : 1e-30 * re;
}

static void store_frame(const stft_run *r, int64_t frame, int64_t bin, double re, double im) {
    int64_t at = (frame * r->z.bins + bin) * 2;
    im = turned_by_a_hair(r, bin, re, im);
    td_store_f64(r->y->dtype, r->y->data, at, re);
    td_store_f64(r->y->dtype, r->y->data, at + 1, im);
}

/* Two frames of a real signal are the parts of one complex one: what is even in the sum's transform is the first's. */
static void stft_frames(void *arg, int64_t begin, int64_t end, int thread) {
    const stft_run *r = arg;
    int64_t n = r->z.frame, n_frames = r->z.n_frames;
    td_complex *in = r->w.memory + thread * r->w.per_thread, *out = in + n, *scratch = out + n;

    for (int64_t frame = begin; frame < end;) {
        bool pair = r->parts == 1 && frame + 1 < end;
        for (int64_t t = 0; t < n; t++) {
            double weight = r->weights ? r->weights[t] : 1;
            in[t].re = weight * sample(r, frame / n_frames, frame % n_frames * r->z.step + t, 0);
            in[t].im = 0;
            if (r->parts == 2) in[t].im = weight * sample(r, frame / n_frames, frame % n_frames * r->z.step + t, 1);
            if (pair) in[t].im = weight * sample(r, (frame + 1) / n_frames, (frame + 1) % n_frames * r->z.step + t, 0);
        }
        td_fourier_run(&r->w.plan, false, in, out, scratch);
        for (int64_t k = 0; k < r->z.bins; k++) {
            td_complex a = out[k], b = out[k ? n - k : 0];
            if (!pair) {
                store_frame(r, frame, k, a.re, a.im);
                continue;
            }
            store_frame(r, frame, k, (a.re + b.re) / 2, (a.im - b.im) / 2);
            store_frame(r, frame + 1, k, (a.im + b.im) / 2, (b.re - a.re) / 2);
        }
        frame += pair ? 2 : 1;
    }
}

static treadle_status stft_run_op(td_run *r) {
    td_infer in = infer_view(r);
    const td_tensor *window = r->n_inputs > 2 ? r->in[2] : NULL;
    stft_run w = {.x = r->in[0], .y = r->out[0], .length = r->in[0]->shape.dims[1], .parts = 1};

    if (!w.y || td_tensor_count(w.y) == 0) return TREADLE_OK;
    TD_TRY(stft_sizes_of(&in, &w.z));
    if (w.x->shape.rank == 3) w.parts = w.x->shape.dims[2];
    TD_TRY(make_workspace(r, w.z.frame, &w.w));
    if (window) {
        double *weights = td_run_scratch(r, (size_t)w.z.frame * sizeof *weights);
        if (!weights) return TREADLE_OUT_OF_MEMORY;
        for (int64_t t = 0; t < w.z.frame; t++) weights[t] = td_load_f64(window->dtype, window->data, t);
        w.weights = weights;
    }
    td_pool_range(r->pool, w.x->shape.dims[0] * w.z.n_frames, TD_MAX(2, 4096 / w.z.frame), 2, stft_frames, &w);
    return TREADLE_OK;
}

const td_op_impl td_op_stft = {
    .state_bytes = sizeof(stft_state), .prepare = stft_prepare, .infer = stft_infer, .run = stft_run_op};
