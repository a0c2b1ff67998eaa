/* light/ops/conv_run.c - convolution of fp32, see conv.h.
 *
 * A convolution is the product of the weights, [outputs, channels * taps], with the matrix of all windows, [channels *
 * taps, positions]. That matrix is never made: the product asks for panels of 16 columns when it needs them
 * (TD_GEMM_FILLED). With one tap and stride 1 the input is that matrix. With one input channel a group (depthwise)
 * there is nothing to share between outputs, and rows are summed directly.
 *
 * Padding: inputs are copied into planes with zeros around them, so that every window lies inside; a long input with
 * one spatial dimension is read where it is, since few of its windows touch the padding. */
#include "light/ops/conv.h"

#include "light/ops/product.h"

#include <string.h>

enum { LONG = 2048 }; /* one spatial dimension: from this size on the input is not copied */

/* The input as windows see it: as it is, or with its padding. */
typedef struct source {
    td_conv_source s;              /* x is set per job */
    int64_t dims[TD_WINDOW_DIMS];  /* of a plane */
    int64_t steps[TD_WINDOW_DIMS]; /* from one window to the next along each dimension */
    int64_t start;                 /* of the first window: below 0 where padding is not there */
    int64_t furthest;              /* the last tap */
    bool checked;                  /* windows may leave the plane: one spatial dimension */
} source;

static bool has_padding(const td_windows *w, int64_t padded[TD_WINDOW_DIMS]) {
    bool any = false;
    for (int d = 0; d < w->n; d++) {
        int64_t reach = (w->out[d] - 1) * w->strides[d] + (w->kernel[d] - 1) * w->dilations[d] + 1;
        padded[d] = TD_MAX(w->in[d] + w->begin[d], reach);
        any |= padded[d] != w->in[d];
    }
    return any;
}

/* Steps and taps in planes of `dims`. taps: [product of the kernel's sizes] */
static void lay_out(const td_windows *w, source *s, int64_t *taps) {
    int64_t plane = 1, at[TD_WINDOW_DIMS] = {0}, tap_steps[TD_WINDOW_DIMS], offset = 0;

    for (int d = w->n - 1; d >= 0; d--) {
        s->steps[d] = plane * w->strides[d];
        tap_steps[d] = plane * w->dilations[d];
        plane *= s->dims[d];
    }
    s->s.plane = plane;
    s->s.taps = taps;
    s->s.n_taps = td_window_count(w->kernel, w->n);
    s->s.stride = w->strides[w->n - 1];
    for (int64_t t = 0; t < s->s.n_taps; t++) {
        taps[t] = s->furthest = offset;
        for (int d = w->n - 1; d >= 0; d--) {
            offset += tap_steps[d];
            if (++at[d] < w->kernel[d]) break;
            offset -= w->kernel[d] * tap_steps[d];
            at[d] = 0;
        }
    }
}

/* One plane into the middle of a zeroed one of `dims`. */
static void pad_plane(const td_windows *w, const int64_t dims[TD_WINDOW_DIMS], const float *from, float *to) {
    int64_t at[TD_WINDOW_DIMS] = {0}, steps[TD_WINDOW_DIMS], offset = 0, row = w->in[w->n - 1], step = 1, rows = 1;

    for (int d = w->n - 1; d >= 0; d--) {
        steps[d] = step;
        offset += w->begin[d] * step;
        step *= dims[d];
        if (d < w->n - 1) rows *= w->in[d];
    }
    memset(to, 0, (size_t)step * sizeof(float));
    if (row == 0) return;
    for (int64_t i = 0; i < rows; i++, from += row) {
        memcpy(to + offset, from, (size_t)row * sizeof(float));
        for (int d = w->n - 2; d >= 0; d--) {
            offset += steps[d];
            if (++at[d] < w->in[d]) break;
            offset -= w->in[d] * steps[d];
            at[d] = 0;
        }
    }
}

/* --- by matrix products --- */

typedef struct padding {
    const td_conv_job *job;
    const source *source;
    float *to;
} padding;

static void pad_planes(void *arg, int64_t begin, int64_t end, int thread) {
    const padding *p = arg;
    int64_t in = td_window_count(p->job->windows.in, p->job->windows.n), out = p->source->s.plane;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        pad_plane(&p->job->windows, p->source->dims, p->job->x + i * in, p->to + i * out);
}

/* Planes that windows do not leave, or s->checked; *x is where they are, *count their elements. */
static treadle_status prepare_source(td_run *r, const td_conv_job *job, source *s, const float **x, int64_t *count) {
    const td_windows *w = &job->windows;
    int64_t padded[TD_WINDOW_DIMS], planes = job->batch * job->channels;
    int64_t *taps = td_run_scratch(r, (size_t)td_window_count(w->kernel, w->n) * sizeof *taps);
    bool pads = has_padding(w, padded);

    if (!taps) return TREADLE_OUT_OF_MEMORY;
    *x = job->x;
    s->checked = pads && w->n == 1 && w->in[0] >= LONG;
    memcpy(s->dims, pads && !s->checked ? padded : w->in, sizeof s->dims);
    s->start = s->checked ? -w->begin[0] : 0;
    lay_out(w, s, taps);
    *count = planes * s->s.plane;
    if (!pads || s->checked) return TREADLE_OK;

    td_shape shape = {.rank = w->n + 1, .dims = {planes}};
    memcpy(shape.dims + 1, padded, (size_t)w->n * sizeof *padded);
    if (!td_shape_count(&shape, count)) return td_run_fail(r, "the padded input is too large");
    padding p = {job, s, td_run_scratch(r, ((size_t)*count + TD_CONV_REACH(2)) * sizeof(float))};
    if (!p.to) return TREADLE_OUT_OF_MEMORY;
    td_pool_range(r->pool, planes, TD_MAX(1, 16384 / TD_MAX(1, s->s.plane)), 1, pad_planes, &p);
    *x = p.to;
    *count += TD_CONV_REACH(2);
    return TREADLE_OK;
}

/* One product's windows: a group of one batch item. */
typedef struct group {
    const td_conv_f32_kernels *kernels;
    const td_windows *windows;
    const source *source;
    td_conv_source from;
    int64_t furthest; /* last tap of the group's last channel */
    int64_t limit;    /* elements of memory behind from.x */
} group;

/* The windows of columns n0..n0+count as spans along output rows. */
static int find_spans(const group *g, int64_t n0, int64_t count, td_conv_span *spans) {
    const td_windows *w = g->windows;
    int64_t at[TD_WINDOW_DIMS], rest = n0, offset = g->source->start;
    int last = w->n - 1, n = 0;

    for (int d = last; d >= 0; d--) {
        at[d] = rest % w->out[d];
        rest /= w->out[d];
        offset += at[d] * g->source->steps[d];
    }
    for (int64_t done = 0; done < count;) {
        int64_t length = TD_MIN(count - done, w->out[last] - at[last]);
        spans[n++] = (td_conv_span){offset, (int)done, (int)length};
        done += length;
        offset += length * g->source->steps[last];
        at[last] += length;
        for (int d = last; d > 0 && at[d] == w->out[d]; d--) {
            offset += g->source->steps[d - 1] - w->out[d] * g->source->steps[d];
            at[d] = 0;
            at[d - 1]++;
        }
    }
    return n;
}

/* One spatial dimension, some windows partly outside. */
static void fill_checked(const group *g, const td_conv_span *span, int64_t k0, int64_t kc, float *out) {
    const td_conv_source *s = &g->from;
    int64_t channel = k0 / s->n_taps, tap = k0 % s->n_taps;

    for (int64_t k = 0; k < kc; k++, out += TD_GEMM_PANEL) {
        const float *x = s->x + channel * s->plane;
        for (int j = 0; j < span->count; j++) {
            int64_t at = span->at + s->taps[tap] + j * s->stride;
            out[j] = at >= 0 && at < s->plane ? x[at] : 0;
        }
        if (++tap < s->n_taps) continue;
        tap = 0;
        channel++;
    }
}

static void fill(const void *ctx, int64_t k0, int64_t kc, int64_t n0, int64_t count, float *out) {
    const group *g = ctx;
    td_conv_span spans[TD_CONV_COLUMNS];
    int n = find_spans(g, n0, count, spans);
    const td_conv_span *last = &spans[n - 1];

    if (g->source->checked &&
        (last->at < 0 || last->at + (last->count - 1) * g->from.stride + g->source->furthest >= g->from.plane))
        fill_checked(g, last, k0, kc, out);
    else if (last->at + g->furthest + TD_CONV_REACH(g->from.stride) > g->limit)
        td_conv_f32_c.fill(&g->from, spans, n, k0, kc, out); /* which reads no more than it needs */
    else g->kernels->fill(&g->from, spans, n, k0, kc, out);
}

static treadle_status run_products(td_run *r, const td_conv_kernels *kernels, const td_conv_job *job) {
    const td_windows *w = &job->windows;
    int64_t positions = td_window_count(w->out, w->n), n_jobs = job->batch * job->groups, count;
    int64_t channels = job->channels / job->groups, outputs = job->outputs / job->groups;
    td_gemm_f32 *gemms = td_run_scratch(r, (size_t)n_jobs * sizeof *gemms);
    group *groups = td_run_scratch(r, (size_t)n_jobs * sizeof *groups);
    source s = {0};
    const float *x;

    if (!gemms || !groups) return TREADLE_OUT_OF_MEMORY;
    TD_TRY(prepare_source(r, job, &s, &x, &count));
    int64_t k = channels * s.s.n_taps;
    bool in_place = s.s.n_taps == 1 && s.s.plane == positions && !s.checked;
    for (int64_t i = 0; i < n_jobs; i++) {
        int64_t at = i * channels * s.s.plane, first = i % job->groups * outputs;
        groups[i] = (group){.kernels = kernels->conv,
                            .windows = w,
                            .source = &s,
                            .from = s.s,
                            .furthest = (channels - 1) * s.s.plane + s.furthest,
                            .limit = count - at};
        groups[i].from.x = x + at;
        gemms[i] = (td_gemm_f32){.m = outputs,
                                 .n = positions,
                                 .k = k,
                                 .a = job->w + first * k,
                                 .a_row = k,
                                 .a_col = 1,
                                 .row_bias = job->bias ? job->bias + first : NULL,
                                 .c = job->y + i * outputs * positions,
                                 .c_row = positions};
        if (in_place) gemms[i].b = (td_gemm_b){.dtype = TD_FLOAT, .data = x + at, .ld = positions};
        else gemms[i].b = (td_gemm_b){.form = TD_GEMM_FILLED, .dtype = TD_FLOAT, .fill = fill, .ctx = &groups[i]};
    }
    return td_product_run_gemms(r, kernels->gemm, gemms, n_jobs);
}

/* --- few positions: windows are rows, and weights are read once for all of them --- */

enum { FEW = 8 }; /* with more rows, panels of windows are faster */

/* One window of a group, [channels * taps]; at: its start in each dimension, without padding. */
static void copy_window(const td_conv_job *job, const float *x, const int64_t start[TD_WINDOW_DIMS], float *to) {
    const td_windows *w = &job->windows;
    int64_t plane = td_window_count(w->in, w->n), taps = td_window_count(w->kernel, w->n), tap[TD_WINDOW_DIMS] = {0};
    int64_t channels = job->channels / job->groups;

    for (int64_t t = 0; t < taps; t++, td_window_next(w->kernel, w->n, tap)) {
        int64_t place = 0;
        bool inside = true;
        for (int d = 0; d < w->n; d++) {
            int64_t at = start[d] + tap[d] * w->dilations[d];
            inside = inside && at >= 0 && at < w->in[d];
            place = place * w->in[d] + at;
        }
        for (int64_t c = 0; c < channels; c++) to[c * taps + t] = inside ? x[c * plane + place] : 0;
    }
}

/* The product the other way round: rows of windows times the weights' transpose, then the result is turned. */
static treadle_status run_few(td_run *r, const td_conv_kernels *kernels, const td_conv_job *job) {
    const td_windows *w = &job->windows;
    int64_t positions = td_window_count(w->out, w->n), rows = job->batch * positions, n = job->outputs / job->groups;
    int64_t in = td_window_count(w->in, w->n), channels = job->channels / job->groups,
            k = channels * td_window_count(w->kernel, w->n);
    float *windows = td_run_scratch(r, (size_t)(rows * k) * sizeof *windows);
    float *turned = td_run_scratch(r, (size_t)(rows * n) * sizeof *turned);
    void *scratch = td_run_scratch(r, td_gemm_f32_scratch(kernels->gemm, r->pool));

    if (!windows || !turned || !scratch) return TREADLE_OUT_OF_MEMORY;
    for (int64_t g = 0; g < job->groups; g++) {
        for (int64_t i = 0; i < rows; i++) {
            int64_t start[TD_WINDOW_DIMS], rest = i % positions;
            for (int d = w->n - 1; d >= 0; d--) {
                start[d] = rest % w->out[d] * w->strides[d] - w->begin[d];
                rest /= w->out[d];
            }
            const float *x = job->x + (i / positions * job->channels + g * channels) * in;
            copy_window(job, x, start, windows + i * k);
        }
        td_gemm_f32 gemm = {.m = rows,
                            .n = n,
                            .k = k,
                            .a = windows,
                            .a_row = k,
                            .a_col = 1,
                            .b = {.form = TD_GEMM_TRANSPOSED, .dtype = TD_FLOAT, .data = job->w + g * n * k, .ld = k},
                            .bias = job->bias ? job->bias + g * n : NULL,
                            .c = turned,
                            .c_row = n};
        td_gemm_f32_parallel(kernels->gemm, &gemm, r->pool, scratch);
        for (int64_t i = 0; i < rows; i++) {
            float *y = job->y + (i / positions * job->outputs + g * n) * positions + i % positions;
            for (int64_t m = 0; m < n; m++) y[m * positions] = turned[i * n + m];
        }
    }
    return TREADLE_OK;
}

/* --- depthwise --- */

typedef struct depthwise {
    const td_conv_f32_kernels *kernels;
    const td_conv_job *job;
    source s;
    float *planes; /* one padded plane a thread; NULL: not needed */
} depthwise;

/* Outputs begin..end of a row, of which windows may lie partly outside. */
static void row_edge(const source *s, const float *x, const float *w, float bias, int64_t begin, int64_t end,
                     float *y) {
    for (int64_t o = begin; o < end; o++) {
        float sum = 0;
        for (int64_t t = 0; t < s->s.n_taps; t++) {
            int64_t at = s->start + o * s->s.stride + s->s.taps[t];
            if (at >= 0 && at < s->s.plane) sum += w[t] * x[at];
        }
        y[o] = sum + bias;
    }
}

static void row_checked(const depthwise *d, const float *x, const float *w, float bias, float *y) {
    const source *s = &d->s;
    td_conv_rows inner = {s->s.taps, s->s.n_taps, 0, s->s.stride, 1, 0};
    int64_t out = d->job->windows.out[0], stride = s->s.stride, room = s->s.plane - s->furthest - s->start;
    int64_t lo = TD_MIN((-s->start + stride - 1) / stride, out);
    int64_t hi = TD_MAX(lo, TD_MIN(room > 0 ? (room - 1) / stride + 1 : 0, out));

    row_edge(s, x, w, bias, 0, lo, y);
    inner.n = hi - lo;
    if (hi > lo) d->kernels->taps(&inner, x + s->start + lo * stride, w, bias, y + lo);
    row_edge(s, x, w, bias, hi, out, y);
}

static void depthwise_planes(void *arg, int64_t begin, int64_t end, int thread) {
    const depthwise *d = arg;
    const td_conv_job *job = d->job;
    const td_windows *w = &job->windows;
    int64_t in = td_window_count(w->in, w->n), out = td_window_count(w->out, w->n), each = job->outputs / job->channels;
    int last = w->n - 1;
    td_conv_rows rows = {d->s.s.taps, d->s.s.n_taps, w->out[last], d->s.s.stride, 1, 0};

    if (last > 0) {
        rows.n_rows = w->out[last - 1];
        rows.x_step = d->s.steps[last - 1];
    }
    for (int64_t i = begin; i < end; i++) {
        int64_t output = i % job->outputs, at[TD_WINDOW_DIMS] = {0}, offset = 0;
        const float *x = job->x + (i / job->outputs * job->channels + output / each) * in;
        const float *weights = job->w + output * d->s.s.n_taps;
        float bias = job->bias ? job->bias[output] : 0, *y = job->y + i * out;
        if (d->s.checked) {
            row_checked(d, x, weights, bias, y);
            continue;
        }
        if (d->planes) {
            float *plane = d->planes + thread * d->s.s.plane;
            if (i == begin || output % each == 0) pad_plane(w, d->s.dims, x, plane);
            x = plane;
        }
        for (int64_t o = 0; o < out; o += rows.n * rows.n_rows) {
            d->kernels->taps(&rows, x + offset, weights, bias, y + o);
            for (int k = last - 2; k >= 0; k--) {
                offset += d->s.steps[k];
                if (++at[k] < w->out[k]) break;
                offset -= w->out[k] * d->s.steps[k];
                at[k] = 0;
            }
        }
    }
}

static treadle_status run_depthwise(td_run *r, const td_conv_kernels *kernels, const td_conv_job *job) {
    const td_windows *w = &job->windows;
    int64_t padded[TD_WINDOW_DIMS], n_taps = td_window_count(w->kernel, w->n);
    depthwise d = {.kernels = kernels->conv, .job = job};
    int64_t *taps = td_run_scratch(r, (size_t)n_taps * sizeof *taps);
    bool pads = has_padding(w, padded);

    if (!taps) return TREADLE_OUT_OF_MEMORY;
    d.s.checked = w->n == 1;
    memcpy(d.s.dims, pads && !d.s.checked ? padded : w->in, sizeof d.s.dims);
    d.s.start = d.s.checked ? -w->begin[0] : 0;
    if (pads && !d.s.checked) {
        td_shape shape = {.rank = w->n + 1, .dims = {td_pool_threads(r->pool)}};
        int64_t count;
        memcpy(shape.dims + 1, padded, (size_t)w->n * sizeof *padded);
        if (!td_shape_count(&shape, &count)) return td_run_fail(r, "the padded input is too large");
        d.planes = td_run_scratch(r, (size_t)count * sizeof(float));
        if (!d.planes) return TREADLE_OUT_OF_MEMORY;
    }
    lay_out(w, &d.s, taps);
    int64_t each = TD_MAX(1, td_window_count(w->out, w->n) * n_taps);
    td_pool_range(r->pool, job->batch * job->outputs, TD_MAX(1, 65536 / each), 1, depthwise_planes, &d);
    return TREADLE_OK;
}

treadle_status td_conv_run(td_run *r, const td_conv_kernels *kernels, const td_conv_job *job) {
    if (job->batch * job->outputs * td_window_count(job->windows.out, job->windows.n) == 0) return TREADLE_OK;
    /* many outputs of one channel share its windows, though: that is a product again */
    bool is_depthwise = job->channels == job->groups && job->channels > 0 && job->outputs / job->groups <= 4;
    if (is_depthwise) return run_depthwise(r, kernels, job);
    int64_t rows = job->batch * td_window_count(job->windows.out, job->windows.n);
    return rows <= FEW && job->outputs / job->groups > FEW ? run_few(r, kernels, job) : run_products(r, kernels, job);
}
