/* light/ops/concat.c - Concat. Source: ONNX op text (Concat-1 had axis 1 as default).
 * With past and present of a KV cache bound to one memory, only the new rows are written. */
#include "light/ops/move.h"

typedef struct concat_state {
    int64_t axis;
} concat_state;

static treadle_status concat_prepare(td_prepare *p) {
    concat_state *s = p->state;
    s->axis = td_attr_int(p, "axis");
    return TREADLE_OK;
}

static treadle_status concat_infer(td_infer *in) {
    const concat_state *s = in->state;
    td_shape out = {.rank = -1};
    td_dtype dtype = in->inputs[0]->tensor.dtype;
    int axis = 0;

    for (size_t i = 0; i < in->n_inputs; i++) {
        const td_shape *x = &in->inputs[i]->tensor.shape;
        if (x->rank < 0) continue;
        if (out.rank < 0) {
            out = *x;
            TD_TRY(td_infer_axis(in, s->axis, out.rank, &axis));
            out.dims[axis] = 0;
        }
        if (x->rank != out.rank) return td_infer_fail(in, "inputs of different ranks");
        for (int d = 0; d < out.rank; d++) {
            int64_t *to = &out.dims[d];
            if (d == axis) {
                if (*to < 0 || x->dims[d] < 0) *to = *to == 0 && in->n_inputs == 1 ? x->dims[d] : TD_DIM_UNKNOWN;
                else if (TD_ADD_OVERFLOWS(*to, x->dims[d], to)) return td_infer_fail(in, "shape overflows");
            } else if (*to < 0) {
                *to = x->dims[d] >= 0 ? x->dims[d] : *to;
            } else if (x->dims[d] >= 0 && x->dims[d] != *to) {
                return td_infer_fail(in, "dimension %d of input %zu is %lld, not %lld", d, i, (long long)x->dims[d],
                                     (long long)*to);
            }
        }
    }
    if (out.rank < 0) return td_infer_unknown(in, 0, dtype, -1);
    for (size_t i = 0; i < in->n_inputs; i++)
        if (in->inputs[i]->tensor.shape.rank < 0) out.dims[axis] = TD_DIM_UNKNOWN;
    return td_infer_set(in, 0, dtype, &out);
}

static treadle_status concat_run(td_run *r) {
    const concat_state *s = r->state;
    const td_tensor *out = r->out[0];
    int axis = (int)(s->axis < 0 ? s->axis + out->shape.rank : s->axis);
    int64_t offset = 0;

    for (size_t i = 0; i < r->n_inputs; i++) {
        if (td_tensor_count(r->in[i]) > 0) td_move_into(out, r->in[i], axis, offset);
        offset += r->in[i]->shape.dims[axis];
    }
    return TREADLE_OK;
}

const td_op_impl td_op_concat = {.state_bytes = sizeof(concat_state),
                                 .prepare = concat_prepare,
                                 .infer = concat_infer,
                                 .run = concat_run,
                                 .flags = TD_OP_ANY_STRIDE | TD_OP_EXTENDS};
