/* light/ops/select.c - Compress and NonZero: outputs whose size depends on the values. Source: ONNX op texts. */
#include "light/ops/move.h"
#include "tensor/half.h"

#include <string.h>

/* --- Compress */
typedef struct compress_state {
    bool flat; /* no axis: the input is taken as one row */
    int64_t axis;
} compress_state;

static treadle_status compress_prepare(td_prepare *p) {
    compress_state *s = p->state;
    s->flat = !td_attr_has(p, "axis");
    s->axis = td_attr_int(p, "axis");
    return TREADLE_OK;
}

static treadle_status compress_infer(td_infer *in) {
    const compress_state *s = in->state;
    const td_tensor *x = &in->inputs[0]->tensor;
    const td_shape *condition = &in->inputs[1]->tensor.shape;
    td_shape out = x->shape;
    int axis = 0;

    if (condition->rank >= 0 && condition->rank != 1)
        return td_infer_fail(in, "expected condition to have one dimension");
    if (s->flat) return td_infer_unknown(in, 0, x->dtype, 1);
    if (out.rank < 0) return td_infer_unknown(in, 0, x->dtype, -1);
    TD_TRY(td_infer_axis(in, s->axis, out.rank, &axis));
    out.dims[axis] = TD_DIM_UNKNOWN;
    return td_infer_set(in, 0, x->dtype, &out);
}

static treadle_status compress_run(td_run *r) {
    const compress_state *s = r->state;
    const td_tensor *x = r->in[0];
    const bool *condition = r->in[1]->data;
    int axis = (int)(s->axis < 0 ? s->axis + x->shape.rank : s->axis);
    int64_t outer = 1, n = 1, inner = 1, kept = 0;

    if (!r->out[0]) return TREADLE_OK;
    for (int d = 0; d < x->shape.rank; d++)
        *(s->flat || d == axis ? &n : d < axis ? &outer : &inner) *= x->shape.dims[d];
    int64_t n_tested = TD_MIN(n, r->in[1]->shape.dims[0]);
    for (int64_t i = 0; i < n_tested; i++) kept += condition[i];
    td_shape shape = s->flat ? (td_shape){1, {kept}} : x->shape;
    if (!s->flat) shape.dims[axis] = kept;
    TD_TRY(td_run_alloc(r, 0, x->dtype, &shape));

    size_t bytes = (size_t)inner * ((size_t)td_dtype_bits(x->dtype) / 8);
    char *to = r->out[0]->data;
    const char *from = x->data;
    for (int64_t o = 0; o < outer && bytes > 0 && kept > 0; o++, from += (size_t)n * bytes) {
        for (int64_t i = 0; i < n_tested; i++) {
            if (!condition[i]) continue;
            memcpy(to, from + (size_t)i * bytes, bytes);
            to += bytes;
        }
    }
    return TREADLE_OK;
}

const td_op_impl td_op_compress = {
    .state_bytes = sizeof(compress_state), .prepare = compress_prepare, .infer = compress_infer, .run = compress_run};

/* --- NonZero: positions as columns, in row-major order */

static treadle_status nonzero_infer(td_infer *in) {
    const td_shape *x = &in->inputs[0]->tensor.shape;
    td_shape out = {2, {x->rank < 0 ? TD_DIM_UNKNOWN : x->rank, TD_DIM_UNKNOWN}};
    return td_infer_set(in, 0, TD_INT64, &out);
}

static bool is_nonzero(const td_tensor *x, int64_t i) {
    switch (x->dtype) {
    case TD_BOOL:
    case TD_INT8:
    case TD_UINT8: return ((const uint8_t *)x->data)[i] != 0;
    case TD_FLOAT: return ((const float *)x->data)[i] != 0;
    case TD_INT32: return ((const int32_t *)x->data)[i] != 0;
    case TD_INT64: return ((const int64_t *)x->data)[i] != 0;
    case TD_STRING: return ((const td_str *)x->data)[i].n != 0;
    case TD_COMPLEX64: return ((const float *)x->data)[2 * i] != 0 || ((const float *)x->data)[2 * i + 1] != 0;
    case TD_COMPLEX128: return ((const double *)x->data)[2 * i] != 0 || ((const double *)x->data)[2 * i + 1] != 0;
    default: return td_load_f64(x->dtype, x->data, i) != 0;
    }
}

static treadle_status nonzero_run(td_run *r) {
    const td_tensor *x = r->in[0];
    int rank = x->shape.rank;
    int64_t count = td_tensor_count(x), n = 0, at[TD_MAX_RANK] = {0};

    if (!r->out[0]) return TREADLE_OK;
    for (int64_t i = 0; i < count; i++) n += is_nonzero(x, i);
    td_shape shape = {2, {rank, n}};
    TD_TRY(td_run_alloc(r, 0, TD_INT64, &shape));
    int64_t *to = r->out[0]->data;
    for (int64_t i = 0, found = 0; i < count && found < n; i++) {
        if (is_nonzero(x, i)) {
            for (int d = 0; d < rank; d++) to[d * n + found] = at[d];
            found++;
        }
        for (int d = rank - 1; d >= 0 && ++at[d] == x->shape.dims[d]; d--) at[d] = 0;
    }
    return TREADLE_OK;
}

const td_op_impl td_op_nonzero = {.infer = nonzero_infer, .run = nonzero_run};
