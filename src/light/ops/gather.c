/* light/ops/gather.c - Gather: slices of `data` along one axis, chosen by an index tensor. Source: ONNX op text. */
#include "light/ops/move.h"

#include <string.h>

typedef struct gather_state {
    int64_t axis;
} gather_state;

static treadle_status gather_prepare(td_prepare *p) {
    gather_state *s = p->state;
    s->axis = td_attr_int(p, "axis");
    return TREADLE_OK;
}

static treadle_status gather_infer(td_infer *in) {
    const gather_state *s = in->state;
    const td_tensor *data = &in->inputs[0]->tensor;
    const td_shape *index = &in->inputs[1]->tensor.shape;
    td_shape out = {0};
    int axis;

    if (data->shape.rank < 0 || index->rank < 0) return td_infer_unknown(in, 0, data->dtype, -1);
    TD_TRY(td_infer_axis(in, s->axis, data->shape.rank, &axis));
    out.rank = data->shape.rank - 1 + index->rank;
    if (out.rank > TD_MAX_RANK) return td_infer_fail(in, "rank %d, at most %d is supported", out.rank, TD_MAX_RANK);
    int at = 0;
    for (int d = 0; d < axis; d++) out.dims[at++] = data->shape.dims[d];
    for (int d = 0; d < index->rank; d++) out.dims[at++] = index->dims[d];
    for (int d = axis + 1; d < data->shape.rank; d++) out.dims[at++] = data->shape.dims[d];
    return td_infer_set(in, 0, data->dtype, &out);
}

typedef struct gather_job {
    char *out;
    const char *data;
    const void *index;
    bool wide; /* int64 indices */
    int64_t n_index, dim, inner_bytes;
} gather_job;

static int64_t index_at(const gather_job *j, int64_t i) {
    int64_t at = j->wide ? ((const int64_t *)j->index)[i] : ((const int32_t *)j->index)[i];
    return at < 0 ? at + j->dim : at;
}

static void gather_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const gather_job *j = arg;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t outer = i / j->n_index, at = index_at(j, i % j->n_index);
        memcpy(j->out + i * j->inner_bytes, j->data + (outer * j->dim + at) * j->inner_bytes, (size_t)j->inner_bytes);
    }
}

/* Elements of less than a byte: one by one. */
static void gather_packed(const gather_job *j, const td_tensor *out, const td_tensor *data, int64_t outer,
                          int64_t inner) {
    for (int64_t i = 0, to = 0; i < outer * j->n_index; i++) {
        int64_t start = (i / j->n_index * j->dim + index_at(j, i % j->n_index)) * inner;
        for (int64_t e = 0; e < inner; e++, to++) td_move_packed_one(out, to, data, start + e);
    }
}

static treadle_status gather_run(td_run *r) {
    const gather_state *s = r->state;
    const td_tensor *data = r->in[0];
    int axis = (int)(s->axis < 0 ? s->axis + data->shape.rank : s->axis);
    gather_job job = {.out = r->out[0]->data,
                      .data = data->data,
                      .index = r->in[1]->data,
                      .wide = r->in[1]->dtype == TD_INT64,
                      .n_index = td_tensor_count(r->in[1]),
                      .dim = data->shape.dims[axis]};
    int64_t outer = 1, inner = 1;

    for (int d = 0; d < axis; d++) outer *= data->shape.dims[d];
    for (int d = axis + 1; d < data->shape.rank; d++) inner *= data->shape.dims[d];
    for (int64_t i = 0; i < job.n_index; i++) {
        int64_t at = index_at(&job, i);
        if (at < 0 || at >= job.dim)
            return td_run_fail(r, "index %lld is out of range for dimension %d of %lld",
                               (long long)(at < 0 ? at - job.dim : at), axis, (long long)job.dim);
    }
    if (outer * job.n_index * inner == 0) return TREADLE_OK;
    if (td_move_is_packed(data->dtype)) {
        gather_packed(&job, r->out[0], data, outer, inner);
        return TREADLE_OK;
    }
    job.inner_bytes = inner * (td_dtype_bits(data->dtype) / 8);
    td_pool_range(r->pool, outer * job.n_index, TD_MAX(1, 65536 / job.inner_bytes), 1, gather_rows, &job);
    return TREADLE_OK;
}

const td_op_impl td_op_gather = {
    .state_bytes = sizeof(gather_state), .prepare = gather_prepare, .infer = gather_infer, .run = gather_run};
