/* light/ops/gather_elements.c - GatherElements and GatherND. Source: ONNX op texts. */
#include "light/ops/index.h"
#include "light/ops/move.h"

#include <string.h>

enum { IN_DATA, IN_INDICES };

typedef struct gather_state {
    int64_t axis, batch_dims;
} gather_state;

static treadle_status gather_prepare(td_prepare *p) {
    gather_state *s = p->state;
    s->axis = td_attr_int(p, "axis");
    s->batch_dims = td_attr_int(p, "batch_dims");
    return TREADLE_OK;
}

/* --- GatherElements */

static treadle_status elements_infer(td_infer *in) {
    const gather_state *s = in->state;
    const td_tensor *data = &in->inputs[IN_DATA]->tensor;
    const td_shape *index = &in->inputs[IN_INDICES]->tensor.shape;
    int axis;

    if (data->shape.rank >= 0) {
        TD_TRY(td_infer_axis(in, s->axis, data->shape.rank, &axis));
        if (index->rank >= 0 && index->rank != data->shape.rank)
            return td_infer_fail(in, "data and indices of different ranks");
        for (int d = 0; d < index->rank; d++)
            if (d != axis && data->shape.dims[d] >= 0 && index->dims[d] > data->shape.dims[d])
                return td_infer_fail(in, "dimension %d of indices is larger than that of data", d);
    }
    return td_infer_set(in, 0, data->dtype, index);
}

typedef struct elements_job {
    const td_tensor *data, *indices;
    char *out;
    int axis;
    size_t width;
} elements_job;

static void gather_range(void *arg, int64_t begin, int64_t end, int thread) {
    const elements_job *j = arg;
    const td_shape *shape = &j->indices->shape;
    int64_t at[TD_MAX_RANK] = {0}, base = 0, dim = j->data->shape.dims[j->axis];

    (void)thread;
    for (int64_t d = shape->rank - 1, rest = begin; d >= 0; d--) {
        at[d] = rest % shape->dims[d];
        rest /= shape->dims[d];
        if (d != j->axis) base += at[d] * j->data->strides[d];
    }
    for (int64_t i = begin; i < end; i++) {
        int64_t from;
        td_index_wrap(td_index_at(j->indices, i), dim, &from);
        memcpy(j->out + i * (int64_t)j->width, td_move_at(j->data, base + from * j->data->strides[j->axis]), j->width);
        for (int d = shape->rank - 1; d >= 0; d--) {
            int64_t step = d == j->axis ? 0 : j->data->strides[d];
            base += step;
            if (++at[d] < shape->dims[d]) break;
            base -= at[d] * step;
            at[d] = 0;
        }
    }
}

static treadle_status elements_run(td_run *r) {
    enum { GRAIN = 4096 };
    const gather_state *s = r->state;
    const td_tensor *data = r->in[IN_DATA], *indices = r->in[IN_INDICES];
    int axis = (int)(s->axis < 0 ? s->axis + data->shape.rank : s->axis);
    int64_t n = td_tensor_count(indices), dim = data->shape.dims[axis], at;
    elements_job job = {data, indices, r->out[0]->data, axis, (size_t)td_dtype_bits(data->dtype) / 8};

    for (int64_t i = 0; i < n; i++)
        if (!td_index_wrap(td_index_at(indices, i), dim, &at))
            return td_index_fail(r, td_index_at(indices, i), axis, dim);
    td_pool_range(r->pool, n, GRAIN, 1, gather_range, &job);
    return TREADLE_OK;
}

const td_op_impl td_op_gather_elements = {.state_bytes = sizeof(gather_state),
                                          .prepare = gather_prepare,
                                          .infer = elements_infer,
                                          .run = elements_run,
                                          .strided_inputs = 1u << IN_DATA};

/* --- GatherND: each row of indices names a slice of the data, or of data[b] in the presence of batch dimensions */

static treadle_status nd_infer(td_infer *in) {
    const gather_state *s = in->state;
    const td_tensor *data = &in->inputs[IN_DATA]->tensor;
    const td_shape *index = &in->inputs[IN_INDICES]->tensor.shape;

    if (data->shape.rank < 0 || index->rank < 0) return td_infer_unknown(in, 0, data->dtype, -1);
    if (index->rank == 0 || s->batch_dims < 0 || s->batch_dims >= index->rank || s->batch_dims > data->shape.rank)
        return td_infer_fail(in, "batch_dims %lld is too large or negative", (long long)s->batch_dims);
    int64_t k = index->dims[index->rank - 1];
    if (k < 0) return td_infer_unknown(in, 0, data->dtype, -1);
    if (s->batch_dims + k > data->shape.rank)
        return td_infer_fail(in, "indices of %lld entries for rank %d and %lld batch dimensions", (long long)k,
                             data->shape.rank, (long long)s->batch_dims);
    td_shape out = *index;
    out.rank--;
    for (int d = 0; d < s->batch_dims; d++)
        if (data->shape.dims[d] >= 0 && index->dims[d] >= 0 && data->shape.dims[d] != index->dims[d])
            return td_infer_fail(in, "batch dimension %d differs", d);
    for (int d = (int)(s->batch_dims + k); d < data->shape.rank; d++) {
        if (out.rank == TD_MAX_RANK) return td_infer_fail(in, "an output of more than %d dimensions", TD_MAX_RANK);
        out.dims[out.rank++] = data->shape.dims[d];
    }
    return td_infer_set(in, 0, data->dtype, &out);
}

static treadle_status nd_run(td_run *r) {
    const gather_state *s = r->state;
    const td_tensor *data = r->in[IN_DATA], *indices = r->in[IN_INDICES];
    const int64_t *row = indices->data, *dims = data->shape.dims + s->batch_dims,
                  *strides = data->strides + s->batch_dims;
    int k = (int)indices->shape.dims[indices->shape.rank - 1];
    int64_t n_batch = 1, n_rows = 1, inner = 1, step = 1;
    char *to = r->out[0]->data;

    for (int d = 0; d < s->batch_dims; d++) n_batch *= indices->shape.dims[d];
    for (int d = (int)s->batch_dims; d < indices->shape.rank - 1; d++) n_rows *= indices->shape.dims[d];
    for (int d = (int)s->batch_dims; d < data->shape.rank; d++) {
        step *= data->shape.dims[d];
        if (d >= s->batch_dims + k) inner *= data->shape.dims[d];
    }
    size_t bytes = (size_t)inner * ((size_t)td_dtype_bits(data->dtype) / 8);
    for (int64_t i = 0; i < n_batch * n_rows; i++, row += k, to += bytes) {
        int64_t from = i / n_rows * step, at;
        for (int d = 0; d < k; d++) {
            if (!td_index_wrap(row[d], dims[d], &at)) return td_index_fail(r, row[d], d + (int)s->batch_dims, dims[d]);
            from += at * strides[d];
        }
        if (bytes) memcpy(to, td_move_at(data, from), bytes);
    }
    return TREADLE_OK;
}

const td_op_impl td_op_gather_nd = {
    .state_bytes = sizeof(gather_state), .prepare = gather_prepare, .infer = nd_infer, .run = nd_run};
