/* light/ops/grid_sample.c - GridSample and AffineGrid. Source: ONNX op texts of GridSample-16 to -22, AffineGrid-20;
 * the order of rounding and padding is that of ONNX's reference implementation, but for cubic at borders, which is as
 * in PyTorch and ONNX Runtime: the inputs named are kept inside, not the position.
 *
 * A position names, along each dimension, one input (nearest), two (linear) or four (cubic) with their weights; what it
 * names is found once and serves all channels. */
#include "light/op.h"
#include "tensor/half.h"

#include <math.h>

enum { DIMS = TD_MAX_RANK - 2, TAPS = 4 };

typedef enum grid_mode { GRID_LINEAR, GRID_NEAREST, GRID_CUBIC } grid_mode;
typedef enum grid_padding { GRID_ZEROS, GRID_BORDER, GRID_REFLECTION } grid_padding;

typedef struct grid_state {
    grid_mode mode;
    grid_padding padding;
    bool align_corners;
} grid_state;

static treadle_status grid_prepare(td_prepare *p) {
    static const struct {
        const char *word;
        grid_mode mode;
    } modes[] = {{"linear", GRID_LINEAR},
                 {"bilinear", GRID_LINEAR},
                 {"nearest", GRID_NEAREST},
                 {"cubic", GRID_CUBIC},
                 {"bicubic", GRID_CUBIC}};
    static const char *const paddings[] = {"zeros", "border", "reflection"};
    grid_state *s = p->state;
    td_str mode = td_attr_string(p, "mode"), padding = td_attr_string(p, "padding_mode");
    td_kind kind = td_dtype_kind(td_input_dtype(p, 0));
    size_t m = 0, d = 0;

    while (m < TD_COUNT(modes) && !td_str_is(mode, modes[m].word)) m++;
    if (m == TD_COUNT(modes)) return td_bad_node(p, "mode is \"%.*s\"", TD_STR_ARGS(mode));
    while (d < TD_COUNT(paddings) && !td_str_is(padding, paddings[d])) d++;
    if (d == TD_COUNT(paddings)) return td_bad_node(p, "padding_mode is \"%.*s\"", TD_STR_ARGS(padding));
    if (kind == TD_KIND_STRING || kind == TD_KIND_COMPLEX)
        return td_unsupported(p, "element type %s", td_dtype_name(td_input_dtype(p, 0)));
    s->mode = modes[m].mode;
    s->padding = (grid_padding)d;
    s->align_corners = td_attr_int(p, "align_corners") != 0;
    return TREADLE_OK;
}

static treadle_status grid_infer(td_infer *in) {
    const td_tensor *x = &in->inputs[0]->tensor;
    const td_shape *grid = &in->inputs[1]->tensor.shape;
    td_shape out = {.rank = x->shape.rank >= 0 ? x->shape.rank : grid->rank};

    if (out.rank < 0) return td_infer_unknown(in, 0, x->dtype, -1);
    if (out.rank < 3 || (grid->rank >= 0 && grid->rank != out.rank))
        return td_infer_fail(in, "an input of rank %d and a grid of rank %d", x->shape.rank, grid->rank);
    for (int d = 0; d < out.rank; d++) out.dims[d] = d > 1 && grid->rank >= 0 ? grid->dims[d - 1] : TD_DIM_UNKNOWN;
    if (x->shape.rank >= 0) {
        out.dims[0] = x->shape.dims[0];
        out.dims[1] = x->shape.dims[1];
        for (int d = 2; d < out.rank; d++)
            if (x->shape.dims[d] == 0) return td_infer_fail(in, "an input without elements");
    }
    if (grid->rank >= 0 && grid->dims[out.rank - 1] >= 0 && grid->dims[out.rank - 1] != out.rank - 2)
        return td_infer_fail(in, "the grid's positions have %lld coordinates; expected %d",
                             (long long)grid->dims[out.rank - 1], out.rank - 2);
    if (grid->rank >= 0 && x->shape.rank >= 0 && grid->dims[0] >= 0 && x->shape.dims[0] >= 0 &&
        grid->dims[0] != x->shape.dims[0])
        return td_infer_fail(in, "batches of %lld and %lld", (long long)x->shape.dims[0], (long long)grid->dims[0]);
    return td_infer_set(in, 0, x->dtype, &out);
}

/* One dimension of a position: inputs, -1 being zero, and their weights. */
typedef struct taps {
    int64_t index[TAPS];
    double weight[TAPS];
} taps;

/* Reflected at the borders low and high until it lies between them. */
static double reflected(double x, double low, double high) {
    double range = high - low;
    if (!(range > 0)) return low;
    if (x >= low && x <= high) return x;
    double beyond = x < low ? low - x : x - high, rest = fmod(beyond, range);
    bool turned = fmod(floor(beyond / range), 2) != 0;
    return (x < low) != turned ? low + rest : high - rest;
}

static int64_t pixel(const grid_state *s, double at, int64_t n) {
    double low = s->align_corners ? 0 : -0.5, high = (double)n - (s->align_corners ? 1 : 0.5);
    if (s->padding == GRID_REFLECTION) at = trunc(reflected(at, low, high));
    else if (s->padding == GRID_ZEROS && !(at >= 0 && at <= (double)(n - 1))) return -1;
    return at >= (double)(n - 1) ? n - 1 : at > 0 ? (int64_t)at : 0; /* what is no number is 0 */
}

static int find_taps(const grid_state *s, double coordinate, int64_t n, taps *t) {
    const double a = -0.75;
    double low = s->align_corners ? 0 : -0.5, high = (double)n - (s->align_corners ? 1 : 0.5);
    float at =
        (float)(s->align_corners ? (coordinate + 1) / 2 * (double)(n - 1) : ((coordinate + 1) * (double)n - 1) / 2);
    double x = (double)at;

    if (s->mode == GRID_NEAREST) x = rint(x);
    if (!(x >= low && x <= high)) {
        if (s->padding == GRID_BORDER && s->mode != GRID_CUBIC) x = x > 0 ? (double)(n - 1) : 0;
        else if (s->padding == GRID_REFLECTION) x = reflected(x, low, high);
    }
    double base = floor(x), f = x - base;
    if (s->mode == GRID_NEAREST) {
        t->index[0] = pixel(s, trunc(x), n);
        t->weight[0] = 1;
        return 1;
    }
    if (s->mode == GRID_LINEAR) {
        for (int i = 0; i < 2; i++) t->index[i] = pixel(s, base + i, n);
        t->weight[0] = 1 - f;
        t->weight[1] = f;
        return 2;
    }
    for (int i = 0; i < 4; i++) {
        double d = fabs(f + 1 - i);
        t->index[i] = pixel(s, base - 1 + i, n);
        t->weight[i] = d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1 : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
    }
    return 4;
}

typedef struct grid_run {
    const grid_state *s;
    const td_tensor *x, *grid, *y;
    int n_dims;
    int64_t positions, plane;
} grid_run;

/* The weighted sum of one channel's inputs. */
static double sample(const grid_run *r, const taps *t, int n_taps, int64_t first) {
    int at[DIMS] = {0};
    double sum = 0;

    for (;;) {
        int64_t place = 0;
        double weight = 1;
        for (int d = 0; d < r->n_dims && place >= 0; d++) {
            int64_t i = t[d].index[at[d]];
            place = i < 0 ? -1 : place * r->x->shape.dims[d + 2] + i;
            weight *= t[d].weight[at[d]];
        }
        if (place >= 0) sum += weight * td_load_f64(r->x->dtype, r->x->data, first + place);
        int d = r->n_dims - 1;
        while (d >= 0 && ++at[d] == n_taps) at[d--] = 0;
        if (d < 0) return sum;
    }
}

static void grid_positions(void *arg, int64_t begin, int64_t end, int thread) {
    const grid_run *r = arg;
    int64_t channels = r->x->shape.dims[1];

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        taps t[DIMS];
        int n_taps = 1;
        int64_t batch = i / r->positions;
        for (int d = 0; d < r->n_dims; d++) { /* coordinates come last dimension first */
            double c = td_load_f64(r->grid->dtype, r->grid->data, i * r->n_dims + r->n_dims - 1 - d);
            n_taps = find_taps(r->s, c, r->x->shape.dims[d + 2], &t[d]);
        }
        for (int64_t c = 0; c < channels; c++) {
            int64_t plane = batch * channels + c;
            td_store_f64(r->y->dtype, r->y->data, plane * r->positions + i % r->positions,
                         sample(r, t, n_taps, plane * r->plane));
        }
    }
}

static treadle_status grid_run_op(td_run *r) {
    grid_run w = {.s = r->state, .x = r->in[0], .grid = r->in[1], .y = r->out[0], .positions = 1, .plane = 1};

    if (!w.y || td_tensor_count(w.y) == 0) return TREADLE_OK;
    w.n_dims = w.x->shape.rank - 2;
    for (int d = 2; d < w.x->shape.rank; d++) {
        w.positions *= w.y->shape.dims[d];
        w.plane *= w.x->shape.dims[d];
    }
    td_pool_range(r->pool, w.x->shape.dims[0] * w.positions, TD_MAX(1, 2048 / w.x->shape.dims[1]), 1, grid_positions,
                  &w);
    return TREADLE_OK;
}

const td_op_impl td_op_grid_sample = {
    .state_bytes = sizeof(grid_state), .prepare = grid_prepare, .infer = grid_infer, .run = grid_run_op};

/* --- AffineGrid: theta [batch, n, n + 1], size [batch, channels, d1 .. dn] --- */

typedef struct affine_state {
    bool align_corners;
} affine_state;

static treadle_status affine_prepare(td_prepare *p) {
    affine_state *s = p->state;
    s->align_corners = td_attr_int(p, "align_corners") != 0;
    return TREADLE_OK;
}

static treadle_status affine_infer(td_infer *in) {
    const td_tensor *theta = &in->inputs[0]->tensor;
    const td_shape *t = &theta->shape;
    int64_t size[TD_MAX_RANK];
    td_shape out = {0};
    bool known;
    int n;

    if (t->rank >= 0 && t->rank != 3) return td_infer_fail(in, "theta of rank %d; expected 3", t->rank);
    TD_TRY(td_infer_ints(in, 1, size, &n, &known));
    if (!known) {
        bool planar = t->rank == 3 && t->dims[1] >= 0;
        return td_infer_unknown(in, 0, theta->dtype, planar ? (int)t->dims[1] + 2 : -1);
    }
    if (n != 4 && n != 5) return td_infer_fail(in, "size has %d entries; expected 4 or 5", n);
    if (t->rank == 3 && ((t->dims[1] >= 0 && t->dims[1] != n - 2) || (t->dims[2] >= 0 && t->dims[2] != n - 1) ||
                         (t->dims[0] >= 0 && t->dims[0] != size[0])))
        return td_infer_fail(in, "expected theta to be [%lld, %d, %d]", (long long)size[0], n - 2, n - 1);
    out.rank = n;
    out.dims[0] = size[0];
    for (int d = 0; d < n; d++)
        if (size[d] < 0) return td_infer_fail(in, "a size of %lld", (long long)size[d]);
    for (int d = 1; d < n - 1; d++) out.dims[d] = size[d + 1];
    out.dims[n - 1] = n - 2;
    return td_infer_set(in, 0, theta->dtype, &out);
}

static treadle_status affine_run(td_run *r) {
    const affine_state *s = r->state;
    const td_tensor *theta = r->in[0], *y = r->out[0];
    int64_t count = y ? td_tensor_count(y) : 0;
    int n = count ? y->shape.rank - 2 : 0;

    for (int64_t i = 0; i * n < count; i++) {
        double at[4] = {0, 0, 0, 1}; /* x, y, z, 1: last dimension first */
        int64_t rest = i;
        for (int d = 0; d < n; d++) {
            int64_t size = y->shape.dims[n - d], k = rest % size;
            rest /= size;
            if (s->align_corners) at[d] = size > 1 ? 2 * (double)k / (double)(size - 1) - 1 : 0;
            else at[d] = (2 * (double)k + 1) / (double)size - 1;
        }
        at[n] = 1;
        for (int row = 0; row < n; row++) {
            double sum = 0;
            for (int k = 0; k <= n; k++)
                sum += td_load_f64(theta->dtype, theta->data, (rest * n + row) * (n + 1) + k) * at[k];
            td_store_f64(y->dtype, y->data, i * n + row, sum);
        }
    }
    return TREADLE_OK;
}

const td_op_impl td_op_affine_grid = {
    .state_bytes = sizeof(affine_state), .prepare = affine_prepare, .infer = affine_infer, .run = affine_run};
