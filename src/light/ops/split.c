/* light/ops/split.c - Split. Source: ONNX op text. Sizes come from an attribute (up to opset 12), an input, num_outputs
 * (from opset 18: equal chunks, the last one smaller), or are equal. */
#include "light/ops/move.h"

typedef struct split_state {
    int64_t axis;
    bool has_sizes;
    size_t n_sizes;
    const int64_t *sizes;
} split_state;

static treadle_status split_prepare(td_prepare *p) {
    split_state *s = p->state;

    s->axis = td_attr_int(p, "axis");
    if (p->opset < 13 && td_attr_has(p, "split")) {
        s->has_sizes = true;
        s->sizes = td_attr_ints(p, "split", &s->n_sizes);
        if (s->n_sizes != p->n_outputs) return td_bad_node(p, "%zu sizes for %zu outputs", s->n_sizes, p->n_outputs);
    }
    if (p->opset >= 18 && td_attr_has(p, "num_outputs") && td_attr_int(p, "num_outputs") != (int64_t)p->n_outputs)
        return td_bad_node(p, "num_outputs is %lld, the node has %zu", (long long)td_attr_int(p, "num_outputs"),
                           p->n_outputs);
    return TREADLE_OK;
}

/* Size of output i. false: not known yet. */
static bool split_size(const td_infer *in, const split_state *s, size_t i, int64_t whole, int64_t *out) {
    const td_value *sizes = in->n_inputs > 1 ? in->inputs[1] : NULL;

    if (s->has_sizes) {
        *out = s->sizes[i];
    } else if (sizes && sizes->kind == TD_VALUE_TENSOR) {
        if (!sizes->tensor.data) return false;
        *out = ((const int64_t *)
                    sizes->tensor.data)[(int64_t)i * (sizes->tensor.shape.rank ? sizes->tensor.strides[0] : 0)];
    } else {
        if (whole < 0) return false;
        int64_t n = (int64_t)in->n_outputs, chunk = (whole + n - 1) / n;
        *out = TD_MAX(0, TD_MIN(chunk, whole - chunk * (int64_t)i));
    }
    return true;
}

static treadle_status split_infer(td_infer *in) {
    const split_state *s = in->state;
    const td_tensor *x = &in->inputs[0]->tensor;
    const td_value *sizes = in->n_inputs > 1 ? in->inputs[1] : NULL;
    int64_t sum = 0, size = 0;
    bool known = true;
    int axis;

    if (x->shape.rank < 0) {
        for (size_t i = 0; i < in->n_outputs; i++) TD_TRY(td_infer_unknown(in, i, x->dtype, -1));
        return TREADLE_OK;
    }
    TD_TRY(td_infer_axis(in, s->axis, x->shape.rank, &axis));
    if (!s->has_sizes && sizes && sizes->kind == TD_VALUE_TENSOR && sizes->tensor.data) {
        int64_t n;
        if (!td_shape_count(&sizes->tensor.shape, &n) || n != (int64_t)in->n_outputs)
            return td_infer_fail(in, "%lld sizes for %zu outputs", (long long)n, in->n_outputs);
    }
    for (size_t i = 0; i < in->n_outputs; i++) {
        td_shape out = x->shape;
        known = split_size(in, s, i, x->shape.dims[axis], &size) && known;
        if (known && size < 0) return td_infer_fail(in, "size %lld of output %zu", (long long)size, i);
        if (known && TD_ADD_OVERFLOWS(sum, size, &sum)) return td_infer_fail(in, "sizes overflow");
        out.dims[axis] = known ? size : TD_DIM_UNKNOWN;
        TD_TRY(td_infer_set(in, i, x->dtype, &out));
    }
    if (known && x->shape.dims[axis] >= 0 && sum != x->shape.dims[axis])
        return td_infer_fail(in, "sizes add up to %lld, dimension %d is %lld", (long long)sum, axis,
                             (long long)x->shape.dims[axis]);
    return TREADLE_OK;
}

/* Sizes of unwanted outputs count for the offset, so they are worked out again from what is there. */
static treadle_status split_run(td_run *r) {
    const split_state *s = r->state;
    const td_tensor *x = r->in[0];
    int axis = (int)(s->axis < 0 ? s->axis + x->shape.rank : s->axis);
    const int64_t *sizes = s->has_sizes ? s->sizes : r->n_inputs > 1 && r->in[1] ? r->in[1]->data : NULL;
    int64_t n = (int64_t)r->n_outputs, whole = x->shape.dims[axis], chunk = (whole + n - 1) / n, offset = 0;

    for (size_t i = 0; i < r->n_outputs; i++) {
        int64_t size = sizes ? sizes[i] : TD_MAX(0, TD_MIN(chunk, whole - chunk * (int64_t)i));
        if (r->out[i] && td_tensor_count(r->out[i]) > 0) {
            if (td_move_is_packed(x->dtype)) {
                int64_t strides[TD_MAX_RANK];
                td_tensor_dense_strides(&x->shape, strides);
                td_move_packed(r->out[i], x, offset * strides[axis], strides);
            } else {
                td_tensor part = *x;
                part.shape = r->out[i]->shape;
                part.data = td_move_at(x, offset * x->strides[axis]);
                td_tensor_copy(r->out[i], &part);
            }
        }
        offset += size;
    }
    return TREADLE_OK;
}

const td_op_impl td_op_split = {.state_bytes = sizeof(split_state),
                                .prepare = split_prepare,
                                .infer = split_infer,
                                .run = split_run,
                                .strided_inputs = 1,
                                .strided_outputs = UINT32_MAX};
