/* light/ops/shape.c - Shape, Size, ConstantOfShape, Range, Expand, Tile, Trilu. Source: ONNX op texts. */
#include "light/known.h"
#include "light/ops/move.h"
#include "tensor/half.h"

#include <math.h>
#include <string.h>

/* --- Shape, Size */
typedef struct shape_state {
    int64_t start, end;
    bool has_end;
} shape_state;

static treadle_status shape_prepare(td_prepare *p) {
    shape_state *s = p->state;

    if (p->opset < 15) return TREADLE_OK;
    s->start = td_attr_int(p, "start");
    s->has_end = td_attr_has(p, "end");
    s->end = td_attr_int(p, "end");
    return TREADLE_OK;
}

static void shape_range(const shape_state *s, int rank, int *from, int *to) {
    int64_t start = s->start < 0 ? s->start + rank : s->start;
    int64_t end = !s->has_end ? rank : s->end < 0 ? s->end + rank : s->end;

    *from = (int)TD_MAX(0, TD_MIN(start, (int64_t)rank));
    *to = (int)TD_MAX((int64_t)*from, TD_MIN(end, (int64_t)rank));
}

static treadle_status shape_infer(td_infer *in) {
    int rank = in->inputs[0]->tensor.shape.rank, from, to;

    if (rank < 0) return td_infer_unknown(in, 0, TD_INT64, 1);
    shape_range(in->state, rank, &from, &to);
    td_shape out = {.rank = 1, .dims = {to - from}};
    return td_infer_set(in, 0, TD_INT64, &out);
}

static treadle_status shape_run(td_run *r) {
    int from, to;
    int64_t *out = r->out[0]->data;

    shape_range(r->state, r->in[0]->shape.rank, &from, &to);
    for (int d = from; d < to; d++) out[d - from] = r->in[0]->shape.dims[d];
    return TREADLE_OK;
}

const td_op_impl td_op_shape = {.state_bytes = sizeof(shape_state),
                                .prepare = shape_prepare,
                                .infer = shape_infer,
                                .run = shape_run,
                                .strided_inputs = 1};

static treadle_status size_infer(td_infer *in) { return td_infer_set(in, 0, TD_INT64, &(td_shape){0}); }

static treadle_status size_run(td_run *r) {
    *(int64_t *)r->out[0]->data = td_tensor_count(r->in[0]);
    return TREADLE_OK;
}

const td_op_impl td_op_size = {.infer = size_infer, .run = size_run, .strided_inputs = 1};

/* --- ConstantOfShape */
typedef struct fill_state {
    td_dtype dtype;
    const void *value; /* one element; NULL: zero */
} fill_state;

static treadle_status fill_prepare(td_prepare *p) {
    fill_state *s = p->state;
    const td_onnx_tensor *value = td_attr_tensor(p, "value");

    s->dtype = value ? value->dtype : TD_FLOAT;
    if (!value) return TREADLE_OK;
    if (value->count != 1 || !value->data) return td_bad_node(p, "expected value to have one element");
    s->value = value->data;
    return TREADLE_OK;
}

/* Sizes of td_infer_sizes as dimensions. */
static void forget_unknown(td_shape *shape) {
    for (int i = 0; i < shape->rank; i++)
        if (shape->dims[i] == TD_KNOWN_NOT) shape->dims[i] = TD_DIM_UNKNOWN;
}

static treadle_status fill_infer(td_infer *in) {
    const fill_state *s = in->state;
    const td_shape *of_list = &in->inputs[0]->tensor.shape;
    int64_t list[TD_MAX_RANK];
    td_shape out = {0};
    bool known;

    TD_TRY(td_infer_ints(in, 0, list, &out.rank, &known));
    if (!known && td_infer_sizes(in, 0, out.dims, &out.rank)) {
        forget_unknown(&out);
        return td_infer_set(in, 0, s->dtype, &out);
    }
    if (!known) {
        bool has_rank = of_list->rank == 1 && of_list->dims[0] >= 0 && of_list->dims[0] <= TD_MAX_RANK;
        return td_infer_unknown(in, 0, s->dtype, has_rank ? (int)of_list->dims[0] : -1);
    }
    for (int i = 0; i < out.rank; i++) {
        if (list[i] < 0) return td_infer_fail(in, "dimension %lld", (long long)list[i]);
        out.dims[i] = list[i];
    }
    return td_infer_set(in, 0, s->dtype, &out);
}

static treadle_status fill_run(td_run *r) {
    const fill_state *s = r->state;
    td_tensor *out = r->out[0];
    int64_t count = td_tensor_count(out);
    td_tensor one = {.dtype = s->dtype, .data = (void *)(uintptr_t)s->value};

    if (td_move_is_packed(s->dtype)) {
        for (int64_t i = 0; i < count; i++) {
            if (s->value) td_move_packed_one(out, i, &one, 0);
            else td_store_i64(s->dtype, out->data, i, 0);
        }
        return TREADLE_OK;
    }
    size_t width = (size_t)td_dtype_bits(s->dtype) / 8;
    if (!s->value) memset(out->data, 0, (size_t)count * width);
    else
        for (int64_t i = 0; i < count; i++) memcpy((char *)out->data + (size_t)i * width, s->value, width);
    return TREADLE_OK;
}

const td_op_impl td_op_constant_of_shape = {
    .state_bytes = sizeof(fill_state), .prepare = fill_prepare, .infer = fill_infer, .run = fill_run};

/* --- Range: number of elements = max(0, ceil((limit - start) / delta)). */
/* At open: from 0 by 1 it is as long as its limit, which is a size. */
static treadle_status range_by_symbol(td_infer *in, td_dtype dtype) {
    int64_t start[TD_MAX_RANK], limit[TD_MAX_RANK], delta[TD_MAX_RANK];
    int n;

    bool known = td_infer_sizes(in, 0, start, &n) && td_infer_sizes(in, 2, delta, &n) &&
                 td_infer_sizes(in, 1, limit, &n) && start[0] == 0 && delta[0] == 1 && TD_DIM_IS_SYMBOL(limit[0]);
    td_shape out = {.rank = 1, .dims = {known ? limit[0] : TD_DIM_UNKNOWN}};
    forget_unknown(&out);
    return td_infer_set(in, 0, dtype, &out);
}

static treadle_status range_infer(td_infer *in) {
    td_dtype dtype = in->inputs[0]->tensor.dtype;
    td_shape out = {.rank = 1};

    for (int i = 0; i < 3; i++)
        if (!in->inputs[i]->tensor.data) return range_by_symbol(in, dtype);
    if (td_dtype_kind(dtype) == TD_KIND_FLOAT) {
        double start = td_load_f64(dtype, in->inputs[0]->tensor.data, 0);
        double limit = td_load_f64(dtype, in->inputs[1]->tensor.data, 0);
        double delta = td_load_f64(dtype, in->inputs[2]->tensor.data, 0);
        double count = ceil((limit - start) / delta);
        if (delta == 0 || !(fabs(count) < 0x1p48))
            return td_infer_fail(in, "start %g, limit %g, delta %g", start, limit, delta);
        out.dims[0] = count > 0 ? (int64_t)count : 0;
    } else {
        int64_t start = td_load_i64(dtype, in->inputs[0]->tensor.data, 0);
        int64_t limit = td_load_i64(dtype, in->inputs[1]->tensor.data, 0);
        int64_t delta = td_load_i64(dtype, in->inputs[2]->tensor.data, 0);
        if (delta == 0) return td_infer_fail(in, "delta 0");
        uint64_t span = delta > 0 ? (uint64_t)limit - (uint64_t)start : (uint64_t)start - (uint64_t)limit;
        uint64_t step = delta > 0 ? (uint64_t)delta : 0 - (uint64_t)delta;
        bool empty = delta > 0 ? limit <= start : limit >= start;
        uint64_t count = empty ? 0 : (span - 1) / step + 1;
        if (count > (uint64_t)1 << 48) return td_infer_fail(in, "%llu elements", (unsigned long long)count);
        out.dims[0] = (int64_t)count;
    }
    return td_infer_set(in, 0, dtype, &out);
}

static treadle_status range_run(td_run *r) {
    td_tensor *out = r->out[0];
    int64_t n = out->shape.dims[0];

    if (td_dtype_kind(out->dtype) == TD_KIND_FLOAT) {
        double start = td_load_f64(out->dtype, r->in[0]->data, 0), delta = td_load_f64(out->dtype, r->in[2]->data, 0);
        for (int64_t i = 0; i < n; i++) td_store_f64(out->dtype, out->data, i, start + (double)i * delta);
    } else {
        uint64_t start = (uint64_t)td_load_i64(out->dtype, r->in[0]->data, 0);
        uint64_t delta = (uint64_t)td_load_i64(out->dtype, r->in[2]->data, 0);
        for (int64_t i = 0; i < n; i++) td_store_i64(out->dtype, out->data, i, (int64_t)(start + (uint64_t)i * delta));
    }
    return TREADLE_OK;
}

const td_op_impl td_op_range = {.infer = range_infer, .run = range_run};

/* --- Expand: a view that walks broadcast dimensions with stride 0. */
static treadle_status expand_infer(td_infer *in) {
    const td_tensor *x = &in->inputs[0]->tensor;
    const td_shape *of_list = &in->inputs[1]->tensor.shape;
    td_shape to = {0}, out;
    bool known;

    TD_TRY(td_infer_ints(in, 1, to.dims, &to.rank, &known));
    bool partial = !known && td_infer_sizes(in, 1, to.dims, &to.rank);
    if (partial) forget_unknown(&to);
    if ((!known && !partial) || x->shape.rank < 0) {
        bool has_rank =
            x->shape.rank >= 0 && of_list->rank == 1 && of_list->dims[0] >= 0 && of_list->dims[0] <= TD_MAX_RANK;
        return td_infer_unknown(in, 0, x->dtype, has_rank ? TD_MAX(x->shape.rank, (int)of_list->dims[0]) : -1);
    }
    for (int i = 0; i < to.rank; i++)
        if (!partial && to.dims[i] < 0) return td_infer_fail(in, "dimension %lld", (long long)to.dims[i]);
    if (!td_shape_broadcast(&x->shape, &to, &out)) return td_infer_fail(in, "the shapes do not broadcast");
    return td_infer_set(in, 0, x->dtype, &out);
}

static treadle_status expand_run(td_run *r) {
    const td_tensor *x = r->in[0];
    td_shape out = r->out[0]->shape;
    td_tensor view = *x;
    int lead = out.rank - x->shape.rank;

    for (int d = 0; d < out.rank; d++)
        view.strides[d] = d < lead || x->shape.dims[d - lead] == 1 ? 0 : x->strides[d - lead];
    if (td_move_is_packed(x->dtype)) {
        TD_TRY(td_run_alloc(r, 0, x->dtype, &out));
        td_move_packed(r->out[0], x, 0, view.strides);
        return TREADLE_OK;
    }
    view.shape = out;
    return td_run_view(r, 0, 0, &view);
}

const td_op_impl td_op_expand = {.infer = expand_infer, .run = expand_run, .flags = TD_OP_VIEW, .strided_inputs = 1};

/* --- Tile (from opset 6: repeats as an input) */
static treadle_status tile_infer(td_infer *in) {
    const td_tensor *x = &in->inputs[0]->tensor;
    int64_t repeats[TD_MAX_RANK];
    td_shape out = x->shape;
    bool known;
    int n;

    TD_TRY(td_infer_ints(in, 1, repeats, &n, &known));
    if (!known || out.rank < 0) return td_infer_unknown(in, 0, x->dtype, out.rank);
    if (n != out.rank) return td_infer_fail(in, "%d repeats for rank %d", n, out.rank);
    for (int d = 0; d < n; d++) {
        if (repeats[d] < 0) return td_infer_fail(in, "repeat %lld", (long long)repeats[d]);
        if (out.dims[d] < 0) out.dims[d] = repeats[d] == 1 ? out.dims[d] : TD_DIM_UNKNOWN;
        else if (TD_MUL_OVERFLOWS(out.dims[d], repeats[d], &out.dims[d])) return td_infer_fail(in, "shape overflows");
    }
    return td_infer_set(in, 0, x->dtype, &out);
}

static treadle_status tile_run(td_run *r) {
    const td_tensor *x = r->in[0];
    td_tensor *out = r->out[0];
    int64_t at[TD_MAX_RANK] = {0}, strides[TD_MAX_RANK], from = 0;
    int64_t count = td_tensor_count(out);

    td_tensor_dense_strides(&x->shape, strides);
    size_t width = (size_t)td_dtype_bits(x->dtype) / 8;
    for (int64_t i = 0; i < count; i++) {
        if (width) memcpy((char *)out->data + (size_t)i * width, (const char *)x->data + (size_t)from * width, width);
        else td_move_packed_one(out, i, x, from);
        for (int d = out->shape.rank - 1; d >= 0; d--) {
            int64_t dim = x->shape.dims[d];
            from += ++at[d] % dim ? strides[d] : -(dim - 1) * strides[d];
            if (at[d] < out->shape.dims[d]) break;
            at[d] = 0;
        }
    }
    return TREADLE_OK;
}

const td_op_impl td_op_tile = {.infer = tile_infer, .run = tile_run};

/* --- Trilu */
typedef struct trilu_state {
    bool upper;
} trilu_state;

static treadle_status trilu_prepare(td_prepare *p) {
    trilu_state *s = p->state;
    s->upper = td_attr_int(p, "upper") != 0;
    return TREADLE_OK;
}

static treadle_status trilu_infer(td_infer *in) {
    int rank = in->inputs[0]->tensor.shape.rank;

    if (rank == 0 || rank == 1) return td_infer_fail(in, "rank %d, expected matrices", rank);
    return td_infer_same(in, 0, 0);
}

static treadle_status trilu_run(td_run *r) {
    const trilu_state *s = r->state;
    const td_tensor *x = r->in[0];
    const int64_t *k_data = r->n_inputs > 1 && r->in[1] ? r->in[1]->data : NULL;
    int64_t rows = x->shape.dims[x->shape.rank - 2], columns = x->shape.dims[x->shape.rank - 1];
    int64_t k = k_data ? TD_MAX(-rows, TD_MIN(*k_data, columns)) : 0;
    int64_t n_rows = columns ? td_tensor_count(x) / columns : 0;
    size_t width = (size_t)td_dtype_bits(x->dtype) / 8;

    for (int64_t i = 0; i < n_rows; i++) {
        int64_t edge = TD_MAX(0, TD_MIN(i % rows + k + (s->upper ? 0 : 1), columns)); /* first kept, or first dropped */
        const char *from = (const char *)x->data + (size_t)(i * columns) * width;
        char *to = (char *)r->out[0]->data + (size_t)(i * columns) * width;
        size_t left = (size_t)edge * width, right = (size_t)(columns - edge) * width;
        if (s->upper) {
            memset(to, 0, left);
            memmove(to + left, from + left, right);
        } else {
            memmove(to, from, left);
            memset(to + left, 0, right);
        }
    }
    return TREADLE_OK;
}

const td_op_impl td_op_trilu = {.state_bytes = sizeof(trilu_state),
                                .prepare = trilu_prepare,
                                .infer = trilu_infer,
                                .run = trilu_run,
                                .flags = TD_OP_INPLACE};
