/* light/ops/reshape.c - ops that change only the shape: Reshape, Flatten, Squeeze, Unsqueeze. The output is a view.
 * Source: ONNX op texts. Lists that were attributes in early opsets (Reshape-1, Squeeze-1, Unsqueeze-1) and inputs
 * later are read from wherever they are. */
#include "light/known.h"
#include "light/op.h"

typedef struct reshape_state {
    bool allow_zero;
    bool has_list; /* the list is an attribute */
    int n;
    int64_t list[TD_MAX_RANK];
    int64_t axis; /* Flatten */
} reshape_state;

static treadle_status read_list(td_prepare *p, const char *name) {
    reshape_state *s = p->state;
    size_t n = 0;

    if (!td_attr_has(p, name)) return TREADLE_OK;
    const int64_t *list = td_attr_ints(p, name, &n);
    if (n > TD_MAX_RANK) return td_unsupported(p, "%zu entries in %s, at most %d are supported", n, name, TD_MAX_RANK);
    s->has_list = true;
    s->n = (int)n;
    for (size_t i = 0; i < n; i++) s->list[i] = list[i];
    return TREADLE_OK;
}

/* The list, from the attribute or input 1; *known false: its data are not there yet. Absent: n = -1. */
static treadle_status get_list(td_infer *in, int64_t list[TD_MAX_RANK], int *n, bool *known) {
    const reshape_state *s = in->state;

    *known = true;
    if (s->has_list) {
        *n = s->n;
        for (int i = 0; i < s->n; i++) list[i] = s->list[i];
        return TREADLE_OK;
    }
    if (in->n_inputs < 2 || in->inputs[1]->kind == TD_VALUE_NONE) {
        *n = -1;
        return TREADLE_OK;
    }
    return td_infer_ints(in, 1, list, n, known);
}

/* Input 0's memory with the output's shape; the input is dense. */
static treadle_status view_run(td_run *r) {
    td_tensor view = *r->in[0];

    view.shape = r->out[0]->shape;
    td_tensor_dense_strides(&view.shape, view.strides);
    return td_run_view(r, 0, 0, &view);
}

/* --- Reshape */
static treadle_status reshape_prepare(td_prepare *p) {
    reshape_state *s = p->state;

    if (p->opset >= 14) s->allow_zero = td_attr_int(p, "allowzero") != 0;
    return p->opset < 5 ? read_list(p, "shape") : TREADLE_OK;
}

/* Fills the -1 of `out` so that it has as many elements as `from`. */
static treadle_status fill_rest(td_infer *in, const td_shape *from, td_shape *out, int rest) {
    int64_t have = 1, count = 0;

    for (int i = 0; i < out->rank; i++)
        if (i != rest && TD_MUL_OVERFLOWS(have, out->dims[i], &have)) return td_infer_fail(in, "shape overflows");
    if (!td_shape_count(from, &count)) return td_infer_fail(in, "shape overflows");
    if (rest >= 0) {
        if (have == 0 || count % have != 0)
            return td_infer_fail(in, "%lld elements do not fill the shape", (long long)count);
        out->dims[rest] = count / have;
    } else if (have != count) {
        return td_infer_fail(in, "%lld elements into a shape of %lld", (long long)count, (long long)have);
    }
    return TREADLE_OK;
}

/* At open, sizes that are symbols: what is left of both sides without those that stand on either. */
static int64_t rest_by_symbols(const td_shape *from, const td_shape *out, int rest) {
    int64_t left[TD_MAX_RANK], have = 1, count = 1, symbol = 0;
    for (int i = 0; i < from->rank; i++) {
        left[i] = from->dims[i];
        if (left[i] == TD_DIM_UNKNOWN || (left[i] >= 0 && TD_MUL_OVERFLOWS(count, left[i], &count)))
            return TD_DIM_UNKNOWN;
    }
    for (int i = 0; i < out->rank; i++) {
        if (i == rest) continue;
        if (out->dims[i] >= 0) {
            if (TD_MUL_OVERFLOWS(have, out->dims[i], &have)) return TD_DIM_UNKNOWN;
            continue;
        }
        int k = 0;
        while (k < from->rank && left[k] != out->dims[i]) k++;
        if (k == from->rank) return TD_DIM_UNKNOWN;
        left[k] = 1;
    }
    for (int i = 0; i < from->rank; i++) {
        if (left[i] >= 0) continue;
        if (symbol) return TD_DIM_UNKNOWN;
        symbol = left[i];
    }
    if (have <= 0 || count % have != 0) return TD_DIM_UNKNOWN;
    if (!symbol) return count / have;
    return count == have ? symbol : TD_DIM_UNKNOWN;
}

/* The list as the run will have it, or what is known of it at open. *partial: entries may be symbols or unknown. */
static treadle_status get_sizes(td_infer *in, int64_t list[TD_MAX_RANK], int *n, bool *known, bool *partial) {
    TD_TRY(get_list(in, list, n, known));
    *partial = !*known && td_infer_sizes(in, 1, list, n);
    *known = *known || *partial;
    return TREADLE_OK;
}

static treadle_status reshape_infer(td_infer *in) {
    const reshape_state *s = in->state;
    const td_value *x = in->inputs[0];
    const td_shape *from = &x->tensor.shape;
    td_shape out = {0};
    int64_t list[TD_MAX_RANK];
    bool known, partial, all_known = true;
    int rest = -1;

    TD_TRY(get_sizes(in, list, &out.rank, &known, &partial));
    if (!known) {
        const td_shape *of_list = &in->inputs[1]->tensor.shape;
        bool has_rank = of_list->rank == 1 && of_list->dims[0] >= 0 && of_list->dims[0] <= TD_MAX_RANK;
        return td_infer_unknown(in, 0, x->tensor.dtype, has_rank ? (int)of_list->dims[0] : -1);
    }
    if (out.rank < 0) return td_infer_fail(in, "no shape given");
    for (int i = 0; i < out.rank; i++) {
        out.dims[i] = list[i];
        if (list[i] == 0 && !s->allow_zero) {
            if (from->rank >= 0 && i >= from->rank)
                return td_infer_fail(in, "0 at %d copies a dimension that is not there", i);
            out.dims[i] = from->rank < 0 ? TD_DIM_UNKNOWN : from->dims[i];
            all_known = all_known && out.dims[i] >= 0;
        } else if (list[i] == -1) {
            if (rest >= 0) return td_infer_fail(in, "more than one -1 in the shape");
            rest = i;
        } else if (partial && list[i] < 0) {
            out.dims[i] = list[i] == TD_KNOWN_NOT ? TD_DIM_UNKNOWN : list[i];
            all_known = false;
        } else if (list[i] < 0) {
            return td_infer_fail(in, "%lld in the shape", (long long)list[i]);
        }
    }
    if (all_known && td_shape_known(from)) TD_TRY(fill_rest(in, from, &out, rest));
    else if (rest >= 0) out.dims[rest] = rest_by_symbols(from, &out, rest);
    return td_infer_set(in, 0, x->tensor.dtype, &out);
}

const td_op_impl td_op_reshape = {.state_bytes = sizeof(reshape_state),
                                  .prepare = reshape_prepare,
                                  .infer = reshape_infer,
                                  .run = view_run,
                                  .flags = TD_OP_VIEW};

/* --- Flatten */
static treadle_status flatten_prepare(td_prepare *p) {
    reshape_state *s = p->state;
    s->axis = td_attr_int(p, "axis");
    return TREADLE_OK;
}

static treadle_status flatten_infer(td_infer *in) {
    const reshape_state *s = in->state;
    const td_tensor *x = &in->inputs[0]->tensor;
    td_shape out = {.rank = 2, .dims = {1, 1}};

    if (x->shape.rank < 0) return td_infer_unknown(in, 0, x->dtype, 2);
    int64_t axis = s->axis < 0 ? s->axis + x->shape.rank : s->axis;
    if (axis < 0 || axis > x->shape.rank) return td_infer_fail(in, "axis %lld", (long long)s->axis);
    for (int i = 0; i < x->shape.rank; i++) {
        int64_t *to = &out.dims[i < axis ? 0 : 1];
        if (*to < 0 || x->shape.dims[i] < 0) *to = *to == 1 ? x->shape.dims[i] : TD_DIM_UNKNOWN;
        else if (TD_MUL_OVERFLOWS(*to, x->shape.dims[i], to)) return td_infer_fail(in, "shape overflows");
    }
    return td_infer_set(in, 0, x->dtype, &out);
}

const td_op_impl td_op_flatten = {.state_bytes = sizeof(reshape_state),
                                  .prepare = flatten_prepare,
                                  .infer = flatten_infer,
                                  .run = view_run,
                                  .flags = TD_OP_VIEW};

/* --- Squeeze, Unsqueeze: strides go along, so that any view stays one. */
static treadle_status axes_prepare(td_prepare *p) { return p->opset < 13 ? read_list(p, "axes") : TREADLE_OK; }

/* Axes as a bit set over `rank` dimensions. */
static treadle_status axes_bits(td_infer *in, const int64_t *list, int n, int rank, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < n; i++) {
        int axis;
        TD_TRY(td_infer_axis(in, list[i], rank, &axis));
        if (*out & 1u << axis) return td_infer_fail(in, "axis %d twice", axis);
        *out |= 1u << axis;
    }
    return TREADLE_OK;
}

static treadle_status squeeze_infer(td_infer *in) {
    const td_tensor *x = &in->inputs[0]->tensor;
    td_shape out = {0};
    int64_t list[TD_MAX_RANK];
    uint32_t drop = 0;
    bool known;
    int n;

    TD_TRY(get_list(in, list, &n, &known));
    if (!known || x->shape.rank < 0) return td_infer_unknown(in, 0, x->dtype, -1);
    if (n >= 0) TD_TRY(axes_bits(in, list, n, x->shape.rank, &drop));
    for (int i = 0; i < x->shape.rank; i++) {
        int64_t d = x->shape.dims[i];
        if (n < 0 && d < 0) return td_infer_unknown(in, 0, x->dtype, -1); /* may or may not be 1 */
        if (n < 0 ? d == 1 : (drop >> i & 1) != 0) {
            if (d != 1 && d >= 0) return td_infer_fail(in, "dimension %d is %lld, not 1", i, (long long)d);
            continue;
        }
        out.dims[out.rank++] = d;
    }
    return td_infer_set(in, 0, x->dtype, &out);
}

static treadle_status unsqueeze_infer(td_infer *in) {
    const td_tensor *x = &in->inputs[0]->tensor;
    td_shape out = {0};
    int64_t list[TD_MAX_RANK];
    uint32_t add;
    bool known;
    int n;

    TD_TRY(get_list(in, list, &n, &known));
    if (!known || x->shape.rank < 0) return td_infer_unknown(in, 0, x->dtype, -1);
    if (n < 0) return td_infer_fail(in, "no axes given");
    out.rank = x->shape.rank + n;
    if (out.rank > TD_MAX_RANK) return td_infer_fail(in, "rank %d, at most %d is supported", out.rank, TD_MAX_RANK);
    TD_TRY(axes_bits(in, list, n, out.rank, &add));
    for (int i = 0, from = 0; i < out.rank; i++) out.dims[i] = add >> i & 1 ? 1 : x->shape.dims[from++];
    return td_infer_set(in, 0, x->dtype, &out);
}

/* Dimensions of 1 come and go; the others keep their order and strides. */
static treadle_status ones_run(td_run *r) {
    const td_tensor *x = r->in[0];
    td_tensor view = *x;
    int from = 0;

    view.shape = r->out[0]->shape;
    for (int i = 0; i < view.shape.rank; i++) {
        view.strides[i] = 0;
        if (view.shape.dims[i] == 1) continue;
        while (from < x->shape.rank && x->shape.dims[from] == 1) from++;
        view.strides[i] = x->strides[from++];
    }
    for (int i = view.shape.rank - 1; i >= 0; i--) /* what a dense view has there */
        if (view.shape.dims[i] == 1)
            view.strides[i] = i + 1 < view.shape.rank ? view.strides[i + 1] * view.shape.dims[i + 1] : 1;
    return td_run_view(r, 0, 0, &view);
}

const td_op_impl td_op_squeeze = {.state_bytes = sizeof(reshape_state),
                                  .prepare = axes_prepare,
                                  .infer = squeeze_infer,
                                  .run = ones_run,
                                  .flags = TD_OP_VIEW,
                                  .strided_inputs = 1};
const td_op_impl td_op_unsqueeze = {.state_bytes = sizeof(reshape_state),
                                    .prepare = axes_prepare,
                                    .infer = unsqueeze_infer,
                                    .run = ones_run,
                                    .flags = TD_OP_VIEW,
                                    .strided_inputs = 1};
