/* light/ops/resize_run.c - resampling axis by axis, see resize.h.
 *
 * Along each axis an output is a weighted sum of a few inputs; indices outside are those of the edge. Nearest has one
 * input, and moves elements of any type. Others go axis by axis, those that shrink first, in float32, or float64 for
 * types that float32 does not hold. Coordinates are computed in float32, as ONNX Runtime does: at halves it matters. */
#include "light/ops/move.h"
#include "light/ops/resize.h"
#include "tensor/half.h"

#include <math.h>
#include <string.h>

/* Position in the input of output `at`. The length after resizing is scale * in, which need not be whole. */
static float original(const td_resize_way *way, const td_resize_axis *a, float at) {
    float in = (float)a->in, length = a->scale * in;
    switch (way->coordinates) {
    case TD_RESIZE_HALF_PIXEL: return (at + 0.5f) / a->scale - 0.5f;
    case TD_RESIZE_HALF_PIXEL_SYMMETRIC: return in / 2 * (1 - (float)a->out / length) + (at + 0.5f) / a->scale - 0.5f;
    case TD_RESIZE_PYTORCH_HALF_PIXEL: return a->out > 1 ? (at + 0.5f) / a->scale - 0.5f : 0;
    case TD_RESIZE_ALIGN_CORNERS: return a->out == 1 ? 0 : at * (in - 1) / (length - 1);
    case TD_RESIZE_ASYMMETRIC: return at / a->scale;
    case TD_RESIZE_TF_CROP_AND_RESIZE:
        if (a->out == 1) return 0.5f * (a->start + a->end) * (in - 1);
        return a->start * (in - 1) + at * (a->end - a->start) * (in - 1) / (length - 1);
    case TD_RESIZE_TF_HALF_PIXEL_FOR_NN: return (at + 0.5f) / a->scale;
    }
    return at;
}

static bool is_outside(const td_resize_way *way, const td_resize_axis *a, float x) {
    return way->coordinates == TD_RESIZE_TF_CROP_AND_RESIZE && !(x >= 0 && x <= (float)(a->in - 1));
}

static int64_t clamped(float x, int64_t n) { return x >= (float)(n - 1) ? n - 1 : x > 0 ? (int64_t)x : 0; }

/* Nothing to do along this axis. */
static bool is_identity(const td_resize_way *way, const td_resize_axis *a) {
    bool whole = way->coordinates != TD_RESIZE_TF_CROP_AND_RESIZE || (a->start == 0 && a->end == 1);
    return a->in == a->out && a->scale == 1 && whole;
}

/* --- nearest --- */

static float rounded(td_resize_rounding rounding, float x, bool shrinks) {
    switch (rounding) {
    case TD_RESIZE_PREFER_FLOOR: return ceilf(x - 0.5f);
    case TD_RESIZE_PREFER_CEIL: return roundf(x);
    case TD_RESIZE_FLOOR: return floorf(x);
    case TD_RESIZE_CEIL: return ceilf(x);
    case TD_RESIZE_SIMPLE: return shrinks ? ceilf(x) : truncf(x);
    }
    return x;
}

typedef struct nearest {
    const td_tensor *x, *y;
    const int64_t *maps[TD_MAX_RANK]; /* input index of each output, -1: outside */
    bool runs;                        /* rows are copied whole: the last axis does not change */
    bool has_outside;                 /* a map of the last axis may have -1 */
    size_t bytes;
    const uint8_t *outside;
} nearest;

static void nearest_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const nearest *n = arg;
    const td_shape *shape = &n->y->shape;
    int last = shape->rank - 1;
    int64_t width = shape->dims[last], bytes = (int64_t)n->bytes;

    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        int64_t rest = row, from = 0, step = n->x->shape.dims[last];
        bool outside = false;
        uint8_t *to = (uint8_t *)n->y->data + row * width * bytes;
        for (int d = last - 1; d >= 0; d--) {
            int64_t at = n->maps[d][rest % shape->dims[d]];
            rest /= shape->dims[d];
            outside |= at < 0;
            from += at * step;
            step *= n->x->shape.dims[d];
        }
        const uint8_t *x = (const uint8_t *)n->x->data + from * bytes;
        if (n->runs && !outside) {
            memcpy(to, x, (size_t)(width * bytes));
            continue;
        }
        if (bytes == 4 && !outside && !n->has_outside) {
            const uint32_t *words = (const uint32_t *)(const void *)x;
            for (int64_t i = 0; i < width; i++) ((uint32_t *)(void *)to)[i] = words[n->maps[last][i]];
            continue;
        }
        for (int64_t i = 0; i < width; i++) {
            int64_t at = n->maps[last][i];
            const uint8_t *source = outside || at < 0 ? n->outside : x + at * bytes;
            memcpy(to + i * bytes, source, n->bytes);
        }
    }
}

static treadle_status run_nearest(td_run *r, const td_resize_way *way, const td_resize_axis *axes, const td_tensor *x,
                                  const td_tensor *y) {
    uint64_t outside[2] = {0};
    nearest n = {.x = x, .y = y, .bytes = (size_t)td_dtype_bits(x->dtype) / 8, .outside = (const uint8_t *)outside};
    int last = y->shape.rank - 1;

    if (x->dtype == TD_STRING) *(td_str *)(void *)outside = (td_str){"", 0};
    else if (way->extrapolation != 0 && td_dtype_kind(x->dtype) != TD_KIND_COMPLEX)
        td_store_f64(x->dtype, outside, 0, (double)way->extrapolation);
    for (int d = 0; d <= last; d++) {
        const td_resize_axis *a = &axes[d];
        int64_t *map = td_run_scratch(r, (size_t)a->out * sizeof *map);
        if (!map) return TREADLE_OUT_OF_MEMORY;
        for (int64_t i = 0; i < a->out; i++) {
            float at = original(way, a, (float)i);
            if (is_identity(way, a)) map[i] = i;
            else map[i] = is_outside(way, a, at) ? -1 : clamped(rounded(way->rounding, at, a->scale < 1), a->in);
        }
        n.maps[d] = map;
    }
    n.runs = is_identity(way, &axes[last]);
    n.has_outside = way->coordinates == TD_RESIZE_TF_CROP_AND_RESIZE;
    int64_t width = y->shape.dims[last];
    td_pool_range(r->pool, td_tensor_count(y) / width, TD_MAX(1, 16384 / width), 1, nearest_rows, &n);
    return TREADLE_OK;
}

/* --- weighted --- */

typedef struct taps {
    int64_t n;      /* per output */
    int64_t *index; /* [out, n] */
    double *weight; /* [out, n] */
    bool *outside;  /* [out] */
} taps;

static double filter(const td_resize_way *way, double x) {
    double a = (double)way->cubic_a;
    x = fabs(x);
    if (way->mode == TD_RESIZE_LINEAR) return x < 1 ? 1 - x : 0;
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

static treadle_status make_taps(td_run *r, const td_resize_way *way, const td_resize_axis *a, taps *t) {
    double scale = way->antialias ? TD_MIN(1, (double)a->scale) : 1;
    double support = (way->mode == TD_RESIZE_LINEAR ? 1 : 2) / scale;
    int64_t first = (int64_t)floor(-support) + 1;

    t->n = 2 - 2 * first;
    t->index = td_run_scratch(r, (size_t)(a->out * t->n) * sizeof *t->index);
    t->weight = td_run_scratch(r, (size_t)(a->out * t->n) * sizeof *t->weight);
    t->outside = td_run_scratch(r, (size_t)a->out * sizeof *t->outside);
    if (!t->index || !t->weight || !t->outside) return TREADLE_OUT_OF_MEMORY;
    for (int64_t i = 0; i < a->out; i++) {
        float x = original(way, a, (float)i);
        double base = floor((double)x), sum = 0;
        double *weight = t->weight + i * t->n;
        t->outside[i] = is_outside(way, a, x);
        for (int64_t k = 0; k < t->n; k++) {
            double at = base + (double)(first + k);
            bool inside = at >= 0 && at <= (double)(a->in - 1);
            t->index[i * t->n + k] = at <= 0 ? 0 : inside ? (int64_t)at : a->in - 1;
            weight[k] = inside || !way->exclude_outside ? filter(way, (at - (double)x) * scale) : 0;
            sum += weight[k];
        }
        bool normalised = (way->antialias || way->exclude_outside) && sum != 0;
        for (int64_t k = 0; normalised && k < t->n; k++) weight[k] /= sum;
    }
    return TREADLE_OK;
}

/* One axis: from [outer, in, inner] to [outer, out, inner]. */
typedef struct pass {
    const taps *t;
    int64_t in, out, inner;
    const void *from;
    void *to;
    double outside;
} pass;

#define PASS(T, name)                                                                                                  \
    static void name(void *arg, int64_t begin, int64_t end, int thread) {                                              \
        const pass *p = arg;                                                                                           \
        (void)thread;                                                                                                  \
        for (int64_t row = begin; row < end; row++) {                                                                  \
            int64_t o = row % p->out;                                                                                  \
            const T *from = (const T *)p->from + row / p->out * p->in * p->inner;                                      \
            const int64_t *index = p->t->index + o * p->t->n;                                                          \
            const double *weight = p->t->weight + o * p->t->n;                                                         \
            T *to = (T *)p->to + row * p->inner;                                                                       \
            for (int64_t i = 0; i < p->inner; i++) to[i] = p->t->outside[o] ? (T)p->outside : 0;                       \
            for (int64_t k = 0; k < p->t->n && !p->t->outside[o]; k++) {                                               \
                const T *x = from + index[k] * p->inner, w = (T)weight[k];                                             \
                if (w == 0) continue;                                                                                  \
                for (int64_t i = 0; i < p->inner; i++) to[i] += w * x[i];                                              \
            }                                                                                                          \
        }                                                                                                              \
    }
PASS(float, pass_f32)
PASS(double, pass_f64)

static void widen(const td_tensor *x, bool wide, void *to) {
    int64_t n = td_tensor_count(x);
    if (!wide) td_to_f32(x->dtype, x->data, n, to);
    else
        for (int64_t i = 0; i < n; i++) ((double *)to)[i] = td_load_f64(x->dtype, x->data, i);
}

static void narrow(const void *from, bool wide, const td_tensor *y) {
    int64_t n = td_tensor_count(y);
    bool whole = td_dtype_kind(y->dtype) != TD_KIND_FLOAT;
    if (!wide && !whole) {
        td_from_f32(y->dtype, from, n, y->data);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        double v = wide ? ((const double *)from)[i] : (double)((const float *)from)[i];
        td_store_f64(y->dtype, y->data, i, whole ? rint(v) : v);
    }
}

static treadle_status run_weighted(td_run *r, const td_resize_way *way, const td_resize_axis *axes, const td_tensor *x,
                                   const td_tensor *y) {
    bool wide = x->dtype != TD_FLOAT && td_dtype_bits(x->dtype) >= 32, done[TD_MAX_RANK];
    td_shape now = x->shape;
    const void *from = x->data;
    bool as_is = x->dtype == TD_FLOAT || x->dtype == TD_DOUBLE;
    size_t element = wide ? 8 : 4;
    int left = 0;

    for (int d = 0; d < now.rank; d++) {
        done[d] = is_identity(way, &axes[d]);
        left += !done[d];
    }
    if (!as_is) {
        void *values = td_run_scratch(r, (size_t)td_tensor_count(x) * element);
        if (!values) return TREADLE_OUT_OF_MEMORY;
        widen(x, wide, values);
        from = values;
    }
    for (; left > 0; left--) {
        int next = -1;
        for (int d = 0; d < now.rank; d++)
            if (!done[d] && (next < 0 || axes[d].scale < axes[next].scale)) next = d;
        pass p = {.in = now.dims[next], .out = axes[next].out, .inner = 1, .outside = (double)way->extrapolation};
        int64_t outer = 1, count;
        taps t;
        now.dims[next] = p.out;
        done[next] = true;
        for (int d = 0; d < now.rank; d++)
            if (d != next) *(d < next ? &outer : &p.inner) *= now.dims[d];
        if (!td_shape_count(&now, &count)) return td_run_fail(r, "a tensor on the way is too large");
        TD_TRY(make_taps(r, way, &axes[next], &t));
        bool last = left == 1 && as_is;
        p.to = last ? y->data : td_run_scratch(r, (size_t)count * element);
        if (!p.to) return TREADLE_OUT_OF_MEMORY;
        p.t = &t;
        p.from = from;
        td_pool_range(r->pool, outer * p.out, TD_MAX(1, 16384 / TD_MAX(1, p.inner * t.n)), 1,
                      wide ? pass_f64 : pass_f32, &p);
        from = p.to;
    }
    if (from != y->data && as_is) memcpy(y->data, from, (size_t)td_tensor_count(y) * element);
    else if (!as_is) narrow(from, wide, y);
    return TREADLE_OK;
}

treadle_status td_resize_run(td_run *r, const td_resize_way *way, const td_resize_axis axes[TD_MAX_RANK],
                             const td_tensor *x, const td_tensor *y) {
    if (td_tensor_count(y) == 0) return TREADLE_OK;
    if (y->shape.rank == 0) {
        td_tensor_copy(y, x);
        return TREADLE_OK;
    }
    return way->mode == TD_RESIZE_NEAREST ? run_nearest(r, way, axes, x, y) : run_weighted(r, way, axes, x, y);
}
