/* light/ops/unpool.c - MaxUnpool and Col2Im: what windows took apart is put back. Source: ONNX op texts of
 * MaxUnpool-9 to -22, Col2Im-18. */
#include "light/ops/move.h"
#include "light/ops/window.h"
#include "tensor/half.h"

#include <string.h>

/* --- MaxUnpool: values, indices, output shape --- */

typedef struct unpool_state {
    td_window window;
} unpool_state;

static treadle_status unpool_prepare(td_prepare *p) {
    unpool_state *s = p->state;
    TD_TRY(td_window_prepare(p, &s->window));
    return s->window.has_kernel ? TREADLE_OK : td_bad_node(p, "kernel_shape is empty");
}

/* The shape that the pooling had: what the indices count in. Unknown dimensions stay so. */
static treadle_status pooled_shape(td_infer *in, const td_window *w, const td_shape *x, td_shape *out) {
    *out = *x;
    if (x->rank != w->n + 2) return td_infer_fail(in, "rank %d; kernel_shape has %d entries", x->rank, w->n);
    for (int d = 0; d < w->n; d++) {
        if (x->dims[d + 2] < 0) {
            out->dims[d + 2] = TD_DIM_UNKNOWN;
            continue;
        }
        int64_t size = (x->dims[d + 2] - 1) * w->strides[d] - w->begin[d] - w->end[d] + w->kernel[d];
        if (size < 0) return td_infer_fail(in, "the pads leave nothing of dimension %d", d + 2);
        out->dims[d + 2] = size;
    }
    return TREADLE_OK;
}

static treadle_status unpool_infer(td_infer *in) {
    const unpool_state *s = in->state;
    const td_tensor *x = &in->inputs[0]->tensor;
    const td_shape *indices = &in->inputs[1]->tensor.shape;
    td_shape pooled, out;
    int64_t given[TD_MAX_RANK];
    bool known = false;
    int n;

    if (x->shape.rank < 0) return td_infer_unknown(in, 0, x->dtype, s->window.n + 2);
    TD_TRY(pooled_shape(in, &s->window, &x->shape, &pooled));
    if (td_shape_known(&x->shape) && td_shape_known(indices) && !td_shape_equal(&x->shape, indices))
        return td_infer_fail(in, "values and indices differ in shape");
    out = pooled;
    if (in->n_inputs <= 2 || in->inputs[2]->kind != TD_VALUE_TENSOR) return td_infer_set(in, 0, x->dtype, &out);
    TD_TRY(td_infer_ints(in, 2, given, &n, &known));
    if (known && n != out.rank) return td_infer_fail(in, "output_shape has %d entries; expected %d", n, out.rank);
    for (int d = 0; d < out.rank; d++) {
        if (known && pooled.dims[d] >= 0 && given[d] < pooled.dims[d])
            return td_infer_fail(in, "output_shape has %lld where at least %lld are needed", (long long)given[d],
                                 (long long)pooled.dims[d]);
        out.dims[d] = known ? given[d] : TD_DIM_UNKNOWN;
    }
    return td_infer_set(in, 0, x->dtype, &out);
}

static treadle_status unpool_run(td_run *r) {
    const unpool_state *s = r->state;
    td_infer in = {.state = s, .n_inputs = r->n_inputs, .inputs = r->in_values, .err = r->err, .node = r->node};
    const td_tensor *x = r->in[0];
    const int64_t *indices = r->in[1]->data;
    td_tensor *y = r->out[0];
    size_t bytes, element = (size_t)td_dtype_bits(x->dtype) / 8;
    td_shape pooled;
    int64_t size;

    if (!y || !td_tensor_bytes(y, &bytes)) return TREADLE_OK;
    memset(y->data, 0, bytes);
    TD_TRY(pooled_shape(&in, &s->window, &x->shape, &pooled));
    if (!td_shape_count(&pooled, &size)) return td_run_fail(r, "the pooled shape is too large");
    for (int64_t i = 0; i < td_tensor_count(x); i++) {
        int64_t rest = indices[i], at = 0;
        if (rest < 0 || rest >= size)
            return td_run_fail(r, "index %lld is outside of %lld elements", (long long)rest, (long long)size);
        for (int d = pooled.rank - 1; d >= 0; d--) {
            at += rest % pooled.dims[d] * y->strides[d];
            rest /= pooled.dims[d];
        }
        memcpy((uint8_t *)y->data + (size_t)at * element, (const uint8_t *)x->data + (size_t)i * element, element);
    }
    return TREADLE_OK;
}

const td_op_impl td_op_max_unpool = {
    .state_bytes = sizeof(unpool_state), .prepare = unpool_prepare, .infer = unpool_infer, .run = unpool_run};

/* --- Col2Im: columns [batch, channels * taps, windows], image shape, block shape --- */

static treadle_status col2im_prepare(td_prepare *p) {
    unpool_state *s = p->state;
    td_kind kind = td_dtype_kind(td_input_dtype(p, 0));
    if (kind != TD_KIND_FLOAT && kind != TD_KIND_INT && kind != TD_KIND_UINT)
        return td_unsupported(p, "element type %s", td_dtype_name(td_input_dtype(p, 0)));
    return td_window_prepare(p, &s->window);
}

typedef struct image {
    td_windows w;
    int64_t taps, n_windows;
    bool known;
} image;

/* Sizes from the two lists; rank -1 of `out`: not even their length is known. */
static treadle_status image_of(td_infer *in, const td_window *window, image *m) {
    int64_t sizes[TD_MAX_RANK], blocks[TD_MAX_RANK];
    bool sizes_known, blocks_known;
    int n_sizes, n_blocks;
    td_shape x = {0};

    TD_TRY(td_infer_ints(in, 1, sizes, &n_sizes, &sizes_known));
    TD_TRY(td_infer_ints(in, 2, blocks, &n_blocks, &blocks_known));
    m->known = sizes_known && blocks_known;
    m->w.n = sizes_known ? n_sizes : n_blocks;
    if (!m->known) return TREADLE_OK;
    if (n_sizes != n_blocks || n_sizes < 1 || n_sizes > TD_WINDOW_DIMS || (window->n && window->n != n_sizes))
        return td_infer_fail(in, "image_shape has %d entries, block_shape %d", n_sizes, n_blocks);
    x.rank = n_sizes + 2;
    x.dims[0] = x.dims[1] = 1;
    td_shape out;
    for (int d = 0; d < n_sizes; d++) {
        if (sizes[d] < 0 || sizes[d] > (int64_t)1 << 31 || blocks[d] < 1 || blocks[d] > (int64_t)1 << 31)
            return td_infer_fail(in, "a block of %lld in an image of %lld", (long long)blocks[d], (long long)sizes[d]);
        x.dims[d + 2] = sizes[d];
    }
    TD_TRY(td_window_infer(in, window, &x, blocks, &out));
    td_window_place(window, &x, blocks, &m->w);
    td_shape taps = {.rank = n_sizes}, windows = {.rank = n_sizes};
    memcpy(taps.dims, blocks, sizeof blocks);
    memcpy(windows.dims, m->w.out, sizeof m->w.out);
    if (!td_shape_count(&taps, &m->taps) || !td_shape_count(&windows, &m->n_windows) || m->taps == 0)
        return td_infer_fail(in, "the blocks are too large");
    return TREADLE_OK;
}

static treadle_status col2im_infer(td_infer *in) {
    const unpool_state *s = in->state;
    const td_tensor *x = &in->inputs[0]->tensor;
    td_shape out = {0};
    image m;

    TD_TRY(image_of(in, &s->window, &m));
    if (x->shape.rank >= 0 && x->shape.rank != 3)
        return td_infer_fail(in, "rank %d; expected [batch, channels * taps, windows]", x->shape.rank);
    if (!m.known) return td_infer_unknown(in, 0, x->dtype, m.w.n ? m.w.n + 2 : -1);
    out.rank = m.w.n + 2;
    out.dims[0] = x->shape.rank < 0 ? TD_DIM_UNKNOWN : x->shape.dims[0];
    out.dims[1] = TD_DIM_UNKNOWN;
    memcpy(out.dims + 2, m.w.in, (size_t)m.w.n * sizeof *m.w.in);
    if (x->shape.rank == 3 && x->shape.dims[1] >= 0) {
        if (x->shape.dims[1] % m.taps)
            return td_infer_fail(in, "%lld rows are not of blocks of %lld", (long long)x->shape.dims[1],
                                 (long long)m.taps);
        out.dims[1] = x->shape.dims[1] / m.taps;
    }
    if (x->shape.rank == 3 && x->shape.dims[2] >= 0 && x->shape.dims[2] != m.n_windows)
        return td_infer_fail(in, "%lld columns for %lld windows", (long long)x->shape.dims[2], (long long)m.n_windows);
    return td_infer_set(in, 0, x->dtype, &out);
}

typedef struct col2im_run {
    const image *m;
    const td_tensor *x, *y;
    double *planes; /* one a thread */
    int64_t plane;
} col2im_run;

static void col2im_planes(void *arg, int64_t begin, int64_t end, int thread) {
    const col2im_run *r = arg;
    const td_windows *w = &r->m->w;
    double *sum = r->planes + thread * r->plane;

    for (int64_t i = begin; i < end; i++) {
        int64_t tap[TD_WINDOW_DIMS] = {0}, from = i * r->m->taps * r->m->n_windows;
        for (int64_t k = 0; k < r->plane; k++) sum[k] = 0;
        for (int64_t t = 0; t < r->m->taps; t++, td_window_next(w->kernel, w->n, tap)) {
            int64_t at[TD_WINDOW_DIMS] = {0};
            for (int64_t o = 0; o < r->m->n_windows; o++, from++, td_window_next(w->out, w->n, at)) {
                int64_t place = 0;
                bool inside = true;
                for (int d = 0; d < w->n; d++) {
                    int64_t p = at[d] * w->strides[d] + tap[d] * w->dilations[d] - w->begin[d];
                    inside = inside && p >= 0 && p < w->in[d];
                    place = place * w->in[d] + p;
                }
                if (inside) sum[place] += td_load_f64(r->x->dtype, r->x->data, from);
            }
        }
        for (int64_t k = 0; k < r->plane; k++) td_store_f64(r->y->dtype, r->y->data, i * r->plane + k, sum[k]);
    }
}

static treadle_status col2im_run_op(td_run *r) {
    const unpool_state *s = r->state;
    td_infer in = {.state = s, .n_inputs = r->n_inputs, .inputs = r->in_values, .err = r->err, .node = r->node};
    image m;
    col2im_run w = {.m = &m, .x = r->in[0], .y = r->out[0]};

    if (!w.y || td_tensor_count(w.y) == 0) return TREADLE_OK;
    TD_TRY(image_of(&in, &s->window, &m));
    w.plane = td_window_count(m.w.in, m.w.n);
    w.planes = td_run_scratch(r, (size_t)w.plane * (size_t)td_pool_threads(r->pool) * sizeof *w.planes);
    if (!w.planes) return TREADLE_OUT_OF_MEMORY;
    td_pool_range(r->pool, td_tensor_count(w.y) / w.plane, 1, 1, col2im_planes, &w);
    return TREADLE_OK;
}

const td_op_impl td_op_col2im = {
    .state_bytes = sizeof(unpool_state), .prepare = col2im_prepare, .infer = col2im_infer, .run = col2im_run_op};
