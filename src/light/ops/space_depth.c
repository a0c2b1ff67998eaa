/* light/ops/space_depth.c - DepthToSpace, SpaceToDepth, CenterCropPad: moving blocks of elements of any type. Source:
 * ONNX op texts of DepthToSpace-1 to -13, SpaceToDepth-1 to -13, CenterCropPad-18. */
#include "light/ops/move.h"

#include <string.h>

typedef struct space_state {
    int64_t block;
    bool to_depth, channels_first; /* CRD */
} space_state;

static treadle_status prepare_space(td_prepare *p, bool to_depth) {
    space_state *s = p->state;
    td_str mode = td_attr_string(p, "mode");

    s->to_depth = to_depth;
    s->block = td_attr_int(p, "blocksize");
    s->channels_first = td_str_is(mode, "CRD");
    if (mode.n && !s->channels_first && !td_str_is(mode, "DCR"))
        return td_bad_node(p, "mode is \"%.*s\"; expected DCR or CRD", TD_STR_ARGS(mode));
    if (s->block < 1 || s->block > 1 << 15) return td_bad_node(p, "blocksize is %lld", (long long)s->block);
    return TREADLE_OK;
}

static treadle_status space_infer(td_infer *in) {
    const space_state *s = in->state;
    const td_tensor *x = &in->inputs[0]->tensor;
    td_shape out = x->shape;
    int64_t square = s->block * s->block;

    if (out.rank < 0) return td_infer_unknown(in, 0, x->dtype, 4);
    if (out.rank != 4) return td_infer_fail(in, "rank %d; expected [batch, channels, height, width]", out.rank);
    for (int d = 1; d < 4; d++) {
        int64_t *dim = &out.dims[d];
        bool divides = s->to_depth ? d > 1 : d == 1;
        int64_t by = d == 1 ? square : s->block;
        if (*dim < 0) {
            *dim = s->block == 1 ? *dim : TD_DIM_UNKNOWN;
            continue;
        }
        if (divides && *dim % by)
            return td_infer_fail(in, "dimension %d of %lld is no multiple of %lld", d, (long long)*dim, (long long)by);
        if (!divides && *dim > INT64_MAX / by) return td_infer_fail(in, "dimension %d overflows", d);
        *dim = divides ? *dim / by : *dim * by;
    }
    return td_infer_set(in, 0, x->dtype, &out);
}

/* y, in the order of its dimensions, from x seen with six dimensions, of which order[i] is the i-th of y. */
static void move_blocks(const td_tensor *y, const td_tensor *x, const td_shape *split, const int order[6]) {
    td_tensor from, to;
    td_tensor view;

    td_tensor_view(&view, x->dtype, split, x->data);
    from = view;
    for (int d = 0; d < 6; d++) {
        from.shape.dims[d] = view.shape.dims[order[d]];
        from.strides[d] = view.strides[order[d]];
    }
    td_tensor_view(&to, y->dtype, &from.shape, y->data);
    td_tensor_copy(&to, &from);
}

static treadle_status space_run(td_run *r) {
    static const int orders[3][6] = {{0, 3, 4, 1, 5, 2}, {0, 1, 4, 2, 5, 3}, {0, 3, 5, 1, 2, 4}};
    const space_state *s = r->state;
    const td_tensor *x = r->in[0], *y = r->out[0];
    const int64_t *d = x->shape.dims, b = s->block;

    if (!y || td_tensor_count(y) == 0) return TREADLE_OK;
    td_shape split = {6, {d[0], b, b, d[1] / (b * b), d[2], d[3]}};
    if (s->to_depth) split = (td_shape){6, {d[0], d[1], d[2] / b, b, d[3] / b, b}};
    else if (s->channels_first) split = (td_shape){6, {d[0], d[1] / (b * b), b, b, d[2], d[3]}};
    move_blocks(y, x, &split, orders[s->to_depth ? 2 : s->channels_first]);
    return TREADLE_OK;
}

static treadle_status depth_to_space_prepare(td_prepare *p) { return prepare_space(p, false); }
static treadle_status space_to_depth_prepare(td_prepare *p) { return prepare_space(p, true); }

const td_op_impl td_op_depth_to_space = {
    .state_bytes = sizeof(space_state), .prepare = depth_to_space_prepare, .infer = space_infer, .run = space_run};
const td_op_impl td_op_space_to_depth = {
    .state_bytes = sizeof(space_state), .prepare = space_to_depth_prepare, .infer = space_infer, .run = space_run};

/* --- CenterCropPad --- */

typedef struct crop_state {
    size_t n;
    const int64_t *axes;
} crop_state;

static treadle_status crop_prepare(td_prepare *p) {
    crop_state *s = p->state;
    s->axes = td_attr_ints(p, "axes", &s->n);
    if (s->n > TD_MAX_RANK) return td_bad_node(p, "%zu axes", s->n);
    if (td_move_is_packed(td_input_dtype(p, 0)))
        return td_unsupported(p, "element type %s", td_dtype_name(td_input_dtype(p, 0)));
    return TREADLE_OK;
}

static treadle_status crop_infer(td_infer *in) {
    const crop_state *s = in->state;
    const td_tensor *x = &in->inputs[0]->tensor;
    td_shape out = x->shape;
    int64_t sizes[TD_MAX_RANK];
    bool known;
    int n, axis;

    TD_TRY(td_infer_ints(in, 1, sizes, &n, &known));
    if (out.rank < 0) return td_infer_unknown(in, 0, x->dtype, -1);
    int wanted = s->n ? (int)s->n : out.rank;
    if (known && n != wanted) return td_infer_fail(in, "%d sizes for %d axes", n, wanted);
    for (int i = 0; i < wanted; i++) {
        TD_TRY(td_infer_axis(in, s->n ? s->axes[i] : i, out.rank, &axis));
        if (known && sizes[i] < 0) return td_infer_fail(in, "a size of %lld", (long long)sizes[i]);
        out.dims[axis] = known ? sizes[i] : TD_DIM_UNKNOWN;
    }
    return td_infer_set(in, 0, x->dtype, &out);
}

static treadle_status crop_run(td_run *r) {
    const td_tensor *x = r->in[0];
    td_tensor *y = r->out[0], from = *x, to;
    size_t bytes;

    if (!y || !td_tensor_bytes(y, &bytes)) return TREADLE_OK;
    to = *y;
    if (x->dtype == TD_STRING)
        for (int64_t i = 0; i < td_tensor_count(y); i++) ((td_str *)y->data)[i] = (td_str){"", 0};
    else memset(y->data, 0, bytes);
    for (int d = 0; d < x->shape.rank; d++) {
        int64_t in = x->shape.dims[d], out = y->shape.dims[d];
        from.data = td_move_at(&from, in > out ? (in - out) / 2 * x->strides[d] : 0);
        to.data = td_move_at(&to, out > in ? (out - in) / 2 * y->strides[d] : 0);
        from.shape.dims[d] = to.shape.dims[d] = TD_MIN(in, out);
    }
    td_tensor_copy(&to, &from);
    return TREADLE_OK;
}

const td_op_impl td_op_center_crop_pad = {.state_bytes = sizeof(crop_state),
                                          .prepare = crop_prepare,
                                          .infer = crop_infer,
                                          .run = crop_run,
                                          .strided_inputs = 1};
