/* light/ops/slice.c - Slice and Transpose: both only change where one starts and how one walks, so their outputs are
 * strided views. Source: ONNX op texts. Slice-1 has its lists as attributes; later ones as inputs, with steps. */
#include "light/ops/move.h"

typedef struct slice_state {
    bool has_lists; /* opset 1 */
    size_t n, n_axes;
    const int64_t *starts, *ends, *axes;
} slice_state;

static treadle_status slice_prepare(td_prepare *p) {
    slice_state *s = p->state;
    size_t n_ends;

    if (p->opset >= 10) return TREADLE_OK;
    s->has_lists = true;
    s->starts = td_attr_ints(p, "starts", &s->n);
    s->ends = td_attr_ints(p, "ends", &n_ends);
    s->axes = td_attr_ints(p, "axes", &s->n_axes);
    if (s->n != n_ends || (s->n_axes && s->n_axes != s->n) || s->n > TD_MAX_RANK)
        return td_bad_node(p, "%zu starts, %zu ends, %zu axes", s->n, n_ends, s->n_axes);
    return TREADLE_OK;
}

typedef struct slice_lists {
    int n;
    int64_t starts[TD_MAX_RANK], ends[TD_MAX_RANK], axes[TD_MAX_RANK], steps[TD_MAX_RANK];
    bool known, axes_known;
} slice_lists;

static treadle_status optional_list(td_infer *in, size_t input, int n, int64_t list[TD_MAX_RANK], bool *known) {
    int n_list;

    *known = true;
    if (in->n_inputs <= input || in->inputs[input]->kind == TD_VALUE_NONE) return TREADLE_OK;
    TD_TRY(td_infer_ints(in, input, list, &n_list, known));
    if (*known && n_list != n) return td_infer_fail(in, "input %zu has %d entries, starts has %d", input, n_list, n);
    return TREADLE_OK;
}

static treadle_status read_lists(td_infer *in, slice_lists *l) {
    const slice_state *s = in->state;
    bool starts_known = true, ends_known = true, steps_known = true;
    int n_ends;

    l->axes_known = true;
    for (int i = 0; i < TD_MAX_RANK; i++) {
        l->axes[i] = i;
        l->steps[i] = 1;
    }
    if (s->has_lists) {
        l->n = (int)s->n;
        for (int i = 0; i < l->n; i++) {
            l->starts[i] = s->starts[i];
            l->ends[i] = s->ends[i];
            if (s->n_axes) l->axes[i] = s->axes[i];
        }
        l->known = true;
        return TREADLE_OK;
    }
    TD_TRY(td_infer_ints(in, 1, l->starts, &l->n, &starts_known));
    TD_TRY(td_infer_ints(in, 2, l->ends, &n_ends, &ends_known));
    if (starts_known && ends_known && l->n != n_ends) return td_infer_fail(in, "%d starts and %d ends", l->n, n_ends);
    if (!starts_known) l->n = n_ends;
    l->known = starts_known && ends_known;
    if (!starts_known && !ends_known) {
        l->axes_known = false;
        return TREADLE_OK;
    }
    TD_TRY(optional_list(in, 3, l->n, l->axes, &l->axes_known));
    TD_TRY(optional_list(in, 4, l->n, l->steps, &steps_known));
    l->known = l->known && steps_known && l->axes_known;
    return TREADLE_OK;
}

/* First position and count along a dimension, as NumPy clamps them. */
static void clamp_range(int64_t start, int64_t end, int64_t step, int64_t dim, int64_t *first, int64_t *count) {
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? dim : dim - 1;

    if (start < 0) start = start < -dim ? low : start + dim;
    if (end < 0) end = end < -dim ? low : end + dim;
    start = TD_MAX(low, TD_MIN(start, high));
    end = TD_MAX(low, TD_MIN(end, high));
    *first = start;
    if (step > 0) *count = end > start ? (int64_t)(((uint64_t)(end - start) - 1) / (uint64_t)step + 1) : 0;
    else *count = start > end ? (int64_t)(((uint64_t)(start - end) - 1) / (0 - (uint64_t)step) + 1) : 0;
}

/* The view's shape; and, if wanted, strides and the first element's place in a tensor with `from` strides. */
static treadle_status slice_shape(td_infer *in, const slice_lists *l, const td_shape *x, td_shape *out, int64_t first[],
                                  int64_t step[]) {
    uint32_t seen = 0;

    *out = *x;
    for (int d = 0; d < x->rank; d++) {
        first[d] = 0;
        step[d] = 1;
    }
    for (int i = 0; i < l->n; i++) {
        int axis;
        TD_TRY(td_infer_axis(in, l->axes[i], x->rank, &axis));
        if (seen >> axis & 1) return td_infer_fail(in, "axis %d twice", axis);
        seen |= 1u << axis;
        if (!l->known || x->dims[axis] < 0) {
            out->dims[axis] = TD_DIM_UNKNOWN;
            continue;
        }
        if (l->steps[i] == 0) return td_infer_fail(in, "step 0");
        step[axis] = l->steps[i];
        clamp_range(l->starts[i], l->ends[i], step[axis], x->dims[axis], &first[axis], &out->dims[axis]);
    }
    return TREADLE_OK;
}

static treadle_status slice_infer(td_infer *in) {
    const td_tensor *x = &in->inputs[0]->tensor;
    int64_t first[TD_MAX_RANK], step[TD_MAX_RANK];
    slice_lists lists;
    td_shape out;

    TD_TRY(read_lists(in, &lists));
    if (x->shape.rank < 0 || !lists.axes_known) return td_infer_unknown(in, 0, x->dtype, x->shape.rank);
    if (lists.n > x->shape.rank) return td_infer_fail(in, "%d ranges for rank %d", lists.n, x->shape.rank);
    TD_TRY(slice_shape(in, &lists, &x->shape, &out, first, step));
    return td_infer_set(in, 0, x->dtype, &out);
}

/* Views are for whole-byte elements; others are copied. */
static treadle_status walk_run(td_run *r, const td_shape *shape, int64_t start, const int64_t strides[TD_MAX_RANK]) {
    const td_tensor *x = r->in[0];
    td_tensor view = *x;

    if (td_move_is_packed(x->dtype)) {
        TD_TRY(td_run_alloc(r, 0, x->dtype, shape));
        td_move_packed(r->out[0], x, start, strides);
        return TREADLE_OK;
    }
    view.shape = *shape;
    for (int d = 0; d < shape->rank; d++) view.strides[d] = strides[d];
    view.data = td_move_at(x, start);
    return td_run_view(r, 0, 0, &view);
}

static treadle_status slice_run(td_run *r) {
    td_infer in = {.state = r->state,
                   .n_inputs = r->n_inputs,
                   .n_outputs = r->n_outputs,
                   .inputs = r->in_values,
                   .err = r->err,
                   .node = r->node};
    const td_tensor *x = r->in[0];
    int64_t first[TD_MAX_RANK], step[TD_MAX_RANK], strides[TD_MAX_RANK], start = 0;
    slice_lists lists;
    td_shape out;

    TD_TRY(read_lists(&in, &lists));
    TD_TRY(slice_shape(&in, &lists, &x->shape, &out, first, step));
    for (int d = 0; d < out.rank; d++) {
        strides[d] = out.dims[d] > 1 ? x->strides[d] * step[d] : x->strides[d];
        if (td_tensor_count(x) > 0 && out.dims[d] > 0) start += first[d] * x->strides[d];
    }
    return walk_run(r, &out, start, strides);
}

const td_op_impl td_op_slice = {.state_bytes = sizeof(slice_state),
                                .prepare = slice_prepare,
                                .infer = slice_infer,
                                .run = slice_run,
                                .flags = TD_OP_VIEW,
                                .strided_inputs = 1};

/* --- Transpose */
typedef struct transpose_state {
    size_t n;
    const int64_t *perm; /* n == 0: reversed */
} transpose_state;

static treadle_status transpose_prepare(td_prepare *p) {
    transpose_state *s = p->state;
    uint32_t seen = 0;

    s->perm = td_attr_ints(p, "perm", &s->n);
    for (size_t i = 0; i < s->n; i++) {
        int64_t d = s->perm[i];
        if (d < 0 || d >= (int64_t)s->n || d >= TD_MAX_RANK || seen >> d & 1)
            return td_bad_node(p, "perm is no permutation");
        seen |= 1u << d;
    }
    return TREADLE_OK;
}

static int permuted(const transpose_state *s, int rank, int d) { return s->n ? (int)s->perm[d] : rank - 1 - d; }

static treadle_status transpose_infer(td_infer *in) {
    const transpose_state *s = in->state;
    const td_tensor *x = &in->inputs[0]->tensor;
    td_shape out = {.rank = x->shape.rank};

    if (x->shape.rank < 0) return td_infer_unknown(in, 0, x->dtype, s->n ? (int)s->n : -1);
    if (s->n && (int)s->n != out.rank) return td_infer_fail(in, "perm has %zu entries", s->n);
    for (int d = 0; d < out.rank; d++) out.dims[d] = x->shape.dims[permuted(s, out.rank, d)];
    return td_infer_set(in, 0, x->dtype, &out);
}

static treadle_status transpose_run(td_run *r) {
    const transpose_state *s = r->state;
    const td_tensor *x = r->in[0];
    int64_t strides[TD_MAX_RANK];
    td_shape out = {.rank = x->shape.rank};

    for (int d = 0; d < out.rank; d++) {
        int from = permuted(s, out.rank, d);
        out.dims[d] = x->shape.dims[from];
        strides[d] = x->strides[from];
    }
    return walk_run(r, &out, 0, strides);
}

const td_op_impl td_op_transpose = {.state_bytes = sizeof(transpose_state),
                                    .prepare = transpose_prepare,
                                    .infer = transpose_infer,
                                    .run = transpose_run,
                                    .flags = TD_OP_VIEW,
                                    .strided_inputs = 1};
