/* light/ops/onehot.c - OneHot, EyeLike, ReverseSequence, BitCast. Sources: ONNX op texts. */
#include "light/ops/move.h"
#include "tensor/half.h"

#include <math.h>
#include <string.h>

/* --- OneHot: indices, depth, values (off, on). Negative indices count from the end (11); others out of range are
 * off. */

typedef struct onehot_state {
    int64_t axis;
    bool wraps;
} onehot_state;

static treadle_status onehot_prepare(td_prepare *p) {
    onehot_state *s = p->state;
    s->axis = td_attr_int(p, "axis");
    s->wraps = p->opset >= 11;
    return TREADLE_OK;
}

static treadle_status onehot_infer(td_infer *in) {
    const onehot_state *s = in->state;
    const td_shape *x = &in->inputs[0]->tensor.shape;
    const td_tensor *depth = &in->inputs[1]->tensor, *values = &in->inputs[2]->tensor;
    int64_t n = TD_DIM_UNKNOWN;
    td_shape out = {0};
    int axis;

    if (values->shape.rank >= 0 &&
        (values->shape.rank != 1 || (values->shape.dims[0] >= 0 && values->shape.dims[0] != 2)))
        return td_infer_fail(in, "expected values to be [2]");
    if (depth->data && td_shape_known(&depth->shape)) {
        if (td_tensor_count(depth) != 1) return td_infer_fail(in, "expected depth to be one number");
        n = td_load_i64(depth->dtype, depth->data, 0);
        if (n < 0) return td_infer_fail(in, "depth is %lld", (long long)n);
    }
    if (x->rank < 0) return td_infer_unknown(in, 0, values->dtype, -1);
    if (x->rank == TD_MAX_RANK) return td_infer_fail(in, "indices of too many dimensions");
    out.rank = x->rank + 1;
    TD_TRY(td_infer_axis(in, s->axis, out.rank, &axis));
    for (int d = 0; d < out.rank; d++) out.dims[d] = d < axis ? x->dims[d] : d == axis ? n : x->dims[d - 1];
    return td_infer_set(in, 0, values->dtype, &out);
}

static treadle_status onehot_run(td_run *r) {
    const onehot_state *s = r->state;
    const td_tensor *x = r->in[0];
    td_tensor *y = r->out[0];
    const char *off = r->in[2]->data;
    size_t width = (size_t)td_dtype_bits(y->dtype) / 8;
    int axis = (int)(s->axis < 0 ? s->axis + y->shape.rank : s->axis);
    int64_t n = y->shape.dims[axis], inner = 1, count = td_tensor_count(x), all = td_tensor_count(y);

    for (int d = axis + 1; d < y->shape.rank; d++) inner *= y->shape.dims[d];
    for (int64_t i = 0; i < all; i++) memcpy((char *)y->data + (size_t)i * width, off, width);
    for (int64_t i = 0; i < count && n > 0; i++) {
        double value = td_load_f64(x->dtype, x->data, i);
        if (value != floor(value)) continue;
        int64_t at = td_load_i64(x->dtype, x->data, i);
        if (at < 0 && s->wraps) at += n;
        if (at < 0 || at >= n) continue;
        int64_t to = (i / inner * n + at) * inner + i % inner;
        memcpy((char *)y->data + (size_t)to * width, off + width, width);
    }
    return TREADLE_OK;
}

const td_op_impl td_op_one_hot = {
    .state_bytes = sizeof(onehot_state), .prepare = onehot_prepare, .infer = onehot_infer, .run = onehot_run};

/* --- EyeLike */

typedef struct eye_state {
    td_dtype dtype;
    int64_t k;
} eye_state;

static treadle_status eye_prepare(td_prepare *p) {
    eye_state *s = p->state;
    s->dtype = td_attr_has(p, "dtype") ? (td_dtype)td_attr_int(p, "dtype") : td_input_dtype(p, 0);
    s->k = td_attr_int(p, "k");
    td_kind kind = td_dtype_kind(s->dtype);
    if (kind == TD_KIND_NONE || kind == TD_KIND_STRING || kind == TD_KIND_COMPLEX)
        return td_bad_node(p, "an output of %s", td_dtype_name(s->dtype));
    return TREADLE_OK;
}

static treadle_status eye_infer(td_infer *in) {
    const eye_state *s = in->state;
    const td_shape *x = &in->inputs[0]->tensor.shape;
    if (x->rank >= 0 && x->rank != 2) return td_infer_fail(in, "expected input to be a matrix");
    return td_infer_set(in, 0, s->dtype, x);
}

static treadle_status eye_run(td_run *r) {
    const eye_state *s = r->state;
    td_tensor *y = r->out[0];
    int64_t rows = y->shape.dims[0], columns = y->shape.dims[1];
    size_t bytes;

    if (td_tensor_count(y) == 0) return TREADLE_OK;
    if (td_tensor_bytes(y, &bytes)) memset(y->data, 0, bytes);
    if (s->k > columns || s->k < -rows) return TREADLE_OK;
    for (int64_t i = TD_MAX(0, -s->k); i < rows && i + s->k < columns; i++)
        td_store_f64(y->dtype, y->data, i * columns + i + s->k, 1);
    return TREADLE_OK;
}

const td_op_impl td_op_eye_like = {
    .state_bytes = sizeof(eye_state), .prepare = eye_prepare, .infer = eye_infer, .run = eye_run};

/* --- ReverseSequence: the first lengths[b] steps of each sequence turned round */

typedef struct reverse_state {
    int64_t time, batch;
} reverse_state;

static treadle_status reverse_prepare(td_prepare *p) {
    reverse_state *s = p->state;
    s->time = td_attr_int(p, "time_axis");
    s->batch = td_attr_int(p, "batch_axis");
    if (s->time == s->batch || s->time < 0 || s->time > 1 || s->batch < 0 || s->batch > 1)
        return td_bad_node(p, "expected time_axis and batch_axis to be 0 and 1");
    return TREADLE_OK;
}

static treadle_status reverse_infer(td_infer *in) {
    const reverse_state *s = in->state;
    const td_shape *x = &in->inputs[0]->tensor.shape, *lengths = &in->inputs[1]->tensor.shape;
    if (x->rank >= 0 && x->rank < 2) return td_infer_fail(in, "expected input to have two dimensions or more");
    if (td_shape_known(x) && td_shape_known(lengths) && (lengths->rank != 1 || lengths->dims[0] != x->dims[s->batch]))
        return td_infer_fail(in, "expected sequence_lens to be [%lld]", (long long)x->dims[s->batch]);
    return td_infer_same(in, 0, 0);
}

static treadle_status reverse_run(td_run *r) {
    const reverse_state *s = r->state;
    const td_tensor *x = r->in[0];
    const int64_t *lengths = r->in[1]->data;
    int64_t n_time = x->shape.dims[s->time], n_batch = x->shape.dims[s->batch], inner = 1;
    int64_t time_step = s->time == 0 ? n_batch : 1, batch_step = s->time == 0 ? 1 : n_time;

    for (int64_t b = 0; b < n_batch; b++)
        if (lengths[b] < 0 || lengths[b] > n_time)
            return td_run_fail(r, "sequence_lens[%lld] is %lld of %lld steps", (long long)b, (long long)lengths[b],
                               (long long)n_time);
    for (int d = 2; d < x->shape.rank; d++) inner *= x->shape.dims[d];
    size_t bytes = (size_t)inner * ((size_t)td_dtype_bits(x->dtype) / 8);
    for (int64_t b = 0; b < n_batch && bytes > 0; b++)
        for (int64_t t = 0; t < n_time; t++) {
            int64_t from = t < lengths[b] ? lengths[b] - 1 - t : t;
            memcpy((char *)r->out[0]->data + (size_t)(b * batch_step + t * time_step) * bytes,
                   (const char *)x->data + (size_t)(b * batch_step + from * time_step) * bytes, bytes);
        }
    return TREADLE_OK;
}

const td_op_impl td_op_reverse_sequence = {
    .state_bytes = sizeof(reverse_state), .prepare = reverse_prepare, .infer = reverse_infer, .run = reverse_run};

/* --- BitCast: the same bytes under another type of the same width */

typedef struct bit_state {
    td_dtype to;
} bit_state;

static treadle_status bit_prepare(td_prepare *p) {
    bit_state *s = p->state;
    td_dtype from = td_input_dtype(p, 0);
    s->to = (td_dtype)td_attr_int(p, "to");
    if (s->to == TD_STRING || td_dtype_bits(s->to) == 0 || td_dtype_bits(s->to) != td_dtype_bits(from))
        return td_bad_node(p, "%s cannot be read as %s", td_dtype_name(from), td_dtype_name(s->to));
    return TREADLE_OK;
}

static treadle_status bit_infer(td_infer *in) {
    const bit_state *s = in->state;
    return td_infer_set(in, 0, s->to, &in->inputs[0]->tensor.shape);
}

static treadle_status bit_run(td_run *r) {
    const bit_state *s = r->state;
    td_tensor view = *r->in[0];
    view.dtype = s->to;
    return td_run_view(r, 0, 0, &view);
}

const td_op_impl td_op_bit_cast = {.state_bytes = sizeof(bit_state),
                                   .prepare = bit_prepare,
                                   .infer = bit_infer,
                                   .run = bit_run,
                                   .flags = TD_OP_VIEW,
                                   .strided_inputs = 1};
