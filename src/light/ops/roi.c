/* light/ops/roi.c - RoiAlign and MaxRoiPool: regions of planes, cut into bins of one size. Source: ONNX op
 * texts of RoiAlign-10 to -22, MaxRoiPool-1 and -22; for what the texts leave open, ONNX's reference
 * implementation and ONNX Runtime. */
#include "light/op.h"
#include "tensor/half.h"

#include <math.h>

enum { MOST_SAMPLES = 1 << 20 }; /* of a bin: a region so large is an error */

typedef struct roi_state {
    bool average, half_pixel;
    int64_t height, width, sampling; /* of the output; samples a bin and side, 0: by the region's size */
    double scale;
} roi_state;

static treadle_status check_size(td_prepare *p, const roi_state *s) {
    if (s->height < 1 || s->width < 1 || s->height > 1 << 20 || s->width > 1 << 20)
        return td_bad_node(p, "an output of %lld by %lld", (long long)s->height, (long long)s->width);
    return TREADLE_OK;
}

static bool is_word(td_str text, const char *a, const char *b) { return td_str_is(text, a) || td_str_is(text, b); }

static treadle_status align_prepare(td_prepare *p) {
    roi_state *s = p->state;
    td_str mode = td_attr_string(p, "mode"), way = td_attr_string(p, "coordinate_transformation_mode");

    s->average = is_word(mode, "avg", "AVG");
    if (!s->average && !is_word(mode, "max", "MAX"))
        return td_bad_node(p, "mode is \"%.*s\"; expected avg or max", TD_STR_ARGS(mode));
    s->half_pixel = p->opset >= 16 && is_word(way, "half_pixel", "HALF_PIXEL");
    if (p->opset >= 16 && !s->half_pixel && !is_word(way, "output_half_pixel", "OUTPUT_HALF_PIXEL"))
        return td_bad_node(p, "coordinate_transformation_mode is \"%.*s\"", TD_STR_ARGS(way));
    s->height = td_attr_int(p, "output_height");
    s->width = td_attr_int(p, "output_width");
    s->sampling = td_attr_int(p, "sampling_ratio");
    s->scale = (double)td_attr_float(p, "spatial_scale");
    if (s->sampling < 0 || s->sampling > 1 << 10)
        return td_bad_node(p, "sampling_ratio is %lld; expected 0 to 1024", (long long)s->sampling);
    return check_size(p, s);
}

static treadle_status pool_prepare(td_prepare *p) {
    roi_state *s = p->state;
    size_t n;
    const int64_t *shape = td_attr_ints(p, "pooled_shape", &n);

    if (n != 2) return td_bad_node(p, "pooled_shape has %zu entries; expected 2", n);
    s->height = shape[0];
    s->width = shape[1];
    s->scale = (double)td_attr_float(p, "spatial_scale");
    return check_size(p, s);
}

static treadle_status infer_rois(td_infer *in, int64_t columns) {
    const roi_state *s = in->state;
    const td_tensor *x = &in->inputs[0]->tensor;
    const td_shape *rois = &in->inputs[1]->tensor.shape;
    td_shape out = {4, {TD_DIM_UNKNOWN, TD_DIM_UNKNOWN, s->height, s->width}};

    if (x->shape.rank >= 0 && x->shape.rank != 4)
        return td_infer_fail(in, "rank %d; expected [batch, channels, height, width]", x->shape.rank);
    if (rois->rank >= 0 && (rois->rank != 2 || (rois->dims[1] >= 0 && rois->dims[1] != columns)))
        return td_infer_fail(in, "expected regions to be [n, %lld]", (long long)columns);
    if (rois->rank == 2) out.dims[0] = rois->dims[0];
    if (x->shape.rank == 4) out.dims[1] = x->shape.dims[1];
    return td_infer_set(in, 0, x->dtype, &out);
}

static treadle_status pool_infer(td_infer *in) { return infer_rois(in, 5); }

static treadle_status align_infer(td_infer *in) {
    const td_shape *rois = &in->inputs[1]->tensor.shape, *batch = &in->inputs[2]->tensor.shape;
    if (batch->rank >= 0 && (batch->rank != 1 || (rois->rank == 2 && rois->dims[0] >= 0 && batch->dims[0] >= 0 &&
                                                  rois->dims[0] != batch->dims[0])))
        return td_infer_fail(in, "expected batch_indices to have one entry a region");
    return infer_rois(in, 4);
}

/* --- run --- */

typedef struct roi_run {
    const roi_state *s;
    const td_tensor *x, *y, *rois;
    const int64_t *batch; /* NULL: the first column of the regions */
    int64_t channels, height, width;
} roi_run;

static int64_t batch_of(const roi_run *r, int64_t roi) {
    return r->batch ? r->batch[roi] : (int64_t)td_load_f64(r->rois->dtype, r->rois->data, roi * 5);
}

/* Where bins begin and how many samples they have hangs on roundings: positions are of the tensors' precision, at least
 * float32. */
static double rounded(const roi_run *r, double v) { return r->x->dtype == TD_DOUBLE ? v : (double)(float)v; }

static double edge(const roi_run *r, int64_t roi, int i) {
    int64_t columns = r->batch ? 4 : 5;
    return rounded(r, td_load_f64(r->rois->dtype, r->rois->data, roi * columns + columns - 4 + i) * r->s->scale);
}

/* A region as bins with samples. */
typedef struct bins {
    double top, left, height, width; /* start; size of a bin */
    int64_t rows, columns;           /* samples of a bin */
} bins;

static bins bins_of(const roi_run *r, int64_t roi) {
    double shift = r->s->half_pixel ? 0.5 : 0, least = r->s->half_pixel ? -INFINITY : 1;
    bins b = {.top = rounded(r, edge(r, roi, 1) - shift), .left = rounded(r, edge(r, roi, 0) - shift)};
    double height = fmax(rounded(r, rounded(r, edge(r, roi, 3) - shift) - b.top), least);
    double width = fmax(rounded(r, rounded(r, edge(r, roi, 2) - shift) - b.left), least);

    b.height = rounded(r, height / (double)r->s->height);
    b.width = rounded(r, width / (double)r->s->width);
    double rows = r->s->sampling ? (double)r->s->sampling : ceil(b.height);
    double columns = r->s->sampling ? (double)r->s->sampling : ceil(b.width);
    /* negative sizes have no samples; what is no number or too large is found by check_rois */
    b.rows = rows > 0 && rows <= MOST_SAMPLES ? (int64_t)rows : rows <= 0 ? 0 : -1;
    b.columns = columns > 0 && columns <= MOST_SAMPLES ? (int64_t)columns : columns <= 0 ? 0 : -1;
    return b;
}

static treadle_status check_rois(td_run *r, const roi_run *w, bool aligned) {
    int64_t n = w->rois->shape.dims[0], batch = w->x->shape.dims[0];
    for (int64_t i = 0; i < n; i++) {
        double at = w->batch ? (double)w->batch[i] : td_load_f64(w->rois->dtype, w->rois->data, i * 5);
        if (!(at >= 0 && at < (double)batch))
            return td_run_fail(r, "region %lld is in batch item %g of %lld", (long long)i, at, (long long)batch);
        for (int k = 0; k < 4; k++)
            if (!(fabs(edge(w, i, k)) < 1e9))
                return td_run_fail(r, "region %lld has an edge at %g", (long long)i, edge(w, i, k));
        if (!aligned) continue;
        bins b = bins_of(w, i);
        if (b.rows < 0 || b.columns < 0 || b.rows * b.columns > MOST_SAMPLES)
            return td_run_fail(r, "region %lld is too large: more than 2^20 samples a bin", (long long)i);
    }
    return TREADLE_OK;
}

/* The sample at (y, x): its average, or the largest of its four weighted neighbours. */
static double sample(const roi_run *r, int64_t plane, double y, double x) {
    if (!(y >= -1 && y <= (double)r->height && x >= -1 && x <= (double)r->width)) return 0;
    y = fmin(fmax(y, 0), (double)(r->height - 1));
    x = fmin(fmax(x, 0), (double)(r->width - 1));
    int64_t y0 = (int64_t)y, x0 = (int64_t)x, y1 = TD_MIN(y0 + 1, r->height - 1), x1 = TD_MIN(x0 + 1, r->width - 1);
    double fy = y - (double)y0, fx = x - (double)x0;
    const int64_t rows[] = {y0, y0, y1, y1}, columns[] = {x0, x1, x0, x1};
    const double weights[] = {(1 - fy) * (1 - fx), (1 - fy) * fx, fy * (1 - fx), fy * fx};
    double sum = 0, max = -INFINITY;

    for (int i = 0; i < 4; i++) {
        int64_t at = (plane * r->height + rows[i]) * r->width + columns[i];
        double v = weights[i] * td_load_f64(r->x->dtype, r->x->data, at);
        sum += v;
        max = fmax(max, v);
    }
    return r->s->average ? sum : max;
}

static void align_planes(void *arg, int64_t begin, int64_t end, int thread) {
    const roi_run *r = arg;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t roi = i / r->channels, plane = batch_of(r, roi) * r->channels + i % r->channels;
        bins b = bins_of(r, roi);
        int64_t n = b.rows * b.columns;
        for (int64_t bin = 0; bin < r->s->height * r->s->width; bin++) {
            double top = b.top + (double)(bin / r->s->width) * b.height,
                   left = b.left + (double)(bin % r->s->width) * b.width, result = 0;
            for (int64_t k = 0; k < n; k++) {
                double y = top + ((double)(k / b.columns) + 0.5) * b.height / (double)b.rows;
                double x = left + ((double)(k % b.columns) + 0.5) * b.width / (double)b.columns;
                double v = sample(r, plane, y, x);
                result = r->s->average ? result + v / (double)n : k == 0 ? v : fmax(result, v);
            }
            td_store_f64(r->y->dtype, r->y->data, i * r->s->height * r->s->width + bin, result);
        }
    }
}

static treadle_status align_run(td_run *r) {
    const td_shape *x = &r->in[0]->shape;
    roi_run w = {r->state, r->in[0], r->out[0], r->in[1], r->in[2]->data, x->dims[1], x->dims[2], x->dims[3]};

    if (!w.y || td_tensor_count(w.y) == 0) return TREADLE_OK;
    TD_TRY(check_rois(r, &w, true));
    if (w.height == 0 || w.width == 0) return td_run_fail(r, "planes without elements");
    td_pool_range(r->pool, w.rois->shape.dims[0] * w.channels, 1, 1, align_planes, &w);
    return TREADLE_OK;
}

const td_op_impl td_op_roi_align = {
    .state_bytes = sizeof(roi_state), .prepare = align_prepare, .infer = align_infer, .run = align_run};

static int64_t within(double v, int64_t n) { return (int64_t)fmin(fmax(v, 0), (double)n); }

/* Bins of whole elements, which may overlap; one without elements gives 0. */
static void pool_planes(void *arg, int64_t begin, int64_t end, int thread) {
    const roi_run *r = arg;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t roi = i / r->channels, plane = batch_of(r, roi) * r->channels + i % r->channels;
        double left = round(edge(r, roi, 0)), top = round(edge(r, roi, 1));
        double width = rounded(r, fmax(round(edge(r, roi, 2)) - left + 1, 1) / (double)r->s->width);
        double height = rounded(r, fmax(round(edge(r, roi, 3)) - top + 1, 1) / (double)r->s->height);
        for (int64_t bin = 0; bin < r->s->height * r->s->width; bin++) {
            double row = (double)(bin / r->s->width), column = (double)(bin % r->s->width);
            int64_t y0 = within(floor(rounded(r, row * height)) + top, r->height),
                    y1 = within(ceil(rounded(r, (row + 1) * height)) + top, r->height),
                    x0 = within(floor(rounded(r, column * width)) + left, r->width),
                    x1 = within(ceil(rounded(r, (column + 1) * width)) + left, r->width);
            double max = y1 > y0 && x1 > x0 ? -INFINITY : 0;
            for (int64_t y = y0; y < y1; y++)
                for (int64_t x = x0; x < x1; x++)
                    max = fmax(max, td_load_f64(r->x->dtype, r->x->data, (plane * r->height + y) * r->width + x));
            td_store_f64(r->y->dtype, r->y->data, i * r->s->height * r->s->width + bin, max);
        }
    }
}

static treadle_status pool_run(td_run *r) {
    const td_shape *x = &r->in[0]->shape;
    roi_run w = {r->state, r->in[0], r->out[0], r->in[1], NULL, x->dims[1], x->dims[2], x->dims[3]};

    if (!w.y || td_tensor_count(w.y) == 0) return TREADLE_OK;
    TD_TRY(check_rois(r, &w, false));
    td_pool_range(r->pool, w.rois->shape.dims[0] * w.channels, 1, 1, pool_planes, &w);
    return TREADLE_OK;
}

const td_op_impl td_op_max_roi_pool = {
    .state_bytes = sizeof(roi_state), .prepare = pool_prepare, .infer = pool_infer, .run = pool_run};
