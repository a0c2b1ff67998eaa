/* light/ops/scatter.c - Scatter, ScatterElements, ScatterND, TensorScatter: a copy of the data with some elements
 * replaced by updates, or combined with them. Source: ONNX op texts.
 *
 * Where the output lies in the data's memory (a cache of fixed capacity that is both input and output) nothing is
 * copied. Indices are all checked before anything is written, so that a failure leaves such a cache as it was. */
#include "light/ops/combine.h"
#include "light/ops/index.h"
#include "light/ops/move.h"

#include <string.h>

enum { IN_DATA, IN_INDICES, IN_UPDATES };

typedef struct scatter_state {
    int64_t axis;
    td_combine_fn *combine; /* NULL: replace */
} scatter_state;

static treadle_status scatter_prepare(td_prepare *p) {
    scatter_state *s = p->state;
    td_str how = td_attr_string(p, "reduction");
    td_dtype dtype = td_input_dtype(p, IN_DATA);

    s->axis = td_attr_int(p, "axis");
    if (how.n == 0 || td_str_is(how, "none")) return TREADLE_OK;
    td_combine kind;
    if (!td_combine_find(how, &kind))
        return td_bad_node(p, "reduction \"%.*s\", expected none, add, mul, max or min", TD_STR_ARGS(how));
    if ((kind == TD_COMBINE_MAX || kind == TD_COMBINE_MIN) && p->opset < 18)
        return td_bad_node(p, "reduction \"%.*s\" needs opset 18", TD_STR_ARGS(how));
    s->combine = td_combine_pick(kind, dtype);
    if (!s->combine) return td_unsupported(p, "reduction \"%.*s\" of %s", TD_STR_ARGS(how), td_dtype_name(dtype));
    return TREADLE_OK;
}

/* The data where the output is to be, unless they are there already. */
static void start_from_data(td_run *r) {
    if (r->out[0]->data != r->in[IN_DATA]->data) td_tensor_copy(r->out[0], r->in[IN_DATA]);
}

/* n elements that lie densely. */
static void put(const scatter_state *s, char *to, const char *from, int64_t n, size_t width) {
    if (s->combine) s->combine(to, from, n);
    else memcpy(to, from, (size_t)n * width);
}

/* --- ScatterElements, and its older name Scatter */

static treadle_status elements_infer(td_infer *in) {
    const scatter_state *s = in->state;
    const td_shape *data = &in->inputs[IN_DATA]->tensor.shape, *index = &in->inputs[IN_INDICES]->tensor.shape,
                   *updates = &in->inputs[IN_UPDATES]->tensor.shape;
    int axis;

    if (data->rank >= 0) TD_TRY(td_infer_axis(in, s->axis, data->rank, &axis));
    if (td_shape_known(index) && td_shape_known(updates) && !td_shape_equal(index, updates))
        return td_infer_fail(in, "expected indices and updates to have one shape");
    if (data->rank >= 0 && index->rank >= 0) {
        if (data->rank != index->rank) return td_infer_fail(in, "data and indices of different ranks");
        for (int d = 0; d < data->rank; d++)
            if (d != axis && data->dims[d] >= 0 && index->dims[d] > data->dims[d])
                return td_infer_fail(in, "dimension %d of indices is larger than that of data", d);
    }
    return td_infer_same(in, 0, IN_DATA);
}

typedef struct elements_job {
    const scatter_state *s;
    const td_tensor *out, *indices, *updates;
    int axis;
    int64_t each; /* indices of one position of the dimensions before the axis */
    size_t width;
} elements_job;

/* Positions of the dimensions before the axis are independent of one another. */
static void scatter_outer(void *arg, int64_t begin, int64_t end, int thread) {
    const elements_job *j = arg;
    const td_shape *shape = &j->indices->shape;
    const int64_t *strides = j->out->strides;
    int64_t at[TD_MAX_RANK] = {0}, base = 0, dim = j->out->shape.dims[j->axis];

    (void)thread;
    for (int64_t d = j->axis - 1, rest = begin; d >= 0; d--) {
        at[d] = rest % shape->dims[d];
        rest /= shape->dims[d];
        base += at[d] * strides[d];
    }
    for (int64_t i = begin * j->each; i < end * j->each; i++) {
        int64_t to;
        td_index_wrap(td_index_at(j->indices, i), dim, &to);
        put(j->s, td_move_at(j->out, base + to * strides[j->axis]), td_move_at(j->updates, i), 1, j->width);
        for (int d = shape->rank - 1; d >= 0; d--) {
            int64_t step = d == j->axis ? 0 : strides[d];
            base += step;
            if (++at[d] < shape->dims[d]) break;
            base -= at[d] * step;
            at[d] = 0;
        }
    }
}

static treadle_status elements_run(td_run *r) {
    enum { GRAIN = 4096 };
    const scatter_state *s = r->state;
    const td_tensor *out = r->out[0], *indices = r->in[IN_INDICES];
    int axis = (int)(s->axis < 0 ? s->axis + out->shape.rank : s->axis);
    elements_job job = {.s = s,
                        .out = out,
                        .indices = indices,
                        .updates = r->in[IN_UPDATES],
                        .axis = axis,
                        .each = 1,
                        .width = (size_t)td_dtype_bits(out->dtype) / 8};
    int64_t n = td_tensor_count(indices), dim = out->shape.dims[axis], to;

    for (int64_t i = 0; i < n; i++)
        if (!td_index_wrap(td_index_at(indices, i), dim, &to))
            return td_index_fail(r, td_index_at(indices, i), axis, dim);
    start_from_data(r);
    if (n == 0) return TREADLE_OK;
    for (int d = axis; d < indices->shape.rank; d++) job.each *= indices->shape.dims[d];
    td_pool_range(r->pool, n / job.each, TD_MAX(1, GRAIN / job.each), 1, scatter_outer, &job);
    return TREADLE_OK;
}

const td_op_impl td_op_scatter_elements = {.state_bytes = sizeof(scatter_state),
                                           .prepare = scatter_prepare,
                                           .infer = elements_infer,
                                           .run = elements_run,
                                           .flags = TD_OP_OVERWRITES,
                                           .strided_inputs = 1u << IN_DATA,
                                           .strided_outputs = 1};

/* --- ScatterND: each row of indices names a slice of the data */

static treadle_status nd_infer(td_infer *in) {
    const td_shape *data = &in->inputs[IN_DATA]->tensor.shape, *index = &in->inputs[IN_INDICES]->tensor.shape,
                   *updates = &in->inputs[IN_UPDATES]->tensor.shape;

    if (td_shape_known(data) && td_shape_known(index) && td_shape_known(updates)) {
        int64_t k = index->rank > 0 ? index->dims[index->rank - 1] : -1;
        if (k < 0 || k > data->rank || data->rank == 0)
            return td_infer_fail(in, "expected the last dimension of indices to be 0..rank of data");
        td_shape want = *index;
        want.rank--;
        if (want.rank + data->rank - k > TD_MAX_RANK) return td_infer_fail(in, "updates of too many dimensions");
        for (int d = (int)k; d < data->rank; d++) want.dims[want.rank++] = data->dims[d];
        char text[128];
        if (!td_shape_equal(&want, updates))
            return td_infer_fail(in, "expected updates to have shape %s", td_shape_text(&want, text));
    }
    return td_infer_same(in, 0, IN_DATA);
}

/* Writes one slice, whose first element is at `to`; its dimensions are those of out from k on. */
static void put_slice(const scatter_state *s, const td_tensor *out, int k, int64_t to, const char *from, int64_t n,
                      size_t width) {
    int64_t at[TD_MAX_RANK] = {0};

    for (int64_t i = 0; i < n; i++) {
        put(s, td_move_at(out, to), from + i * (int64_t)width, 1, width);
        for (int d = out->shape.rank - 1; d >= k; d--) {
            to += out->strides[d];
            if (++at[d] < out->shape.dims[d]) break;
            to -= at[d] * out->strides[d];
            at[d] = 0;
        }
    }
}

static bool slices_are_dense(const td_tensor *t, int k) {
    int64_t step = 1;
    for (int d = t->shape.rank - 1; d >= k; d--) {
        if (t->shape.dims[d] != 1 && t->strides[d] != step) return false;
        step *= t->shape.dims[d];
    }
    return true;
}

static treadle_status check_rows(td_run *r, int64_t n_rows, int64_t k) {
    const td_shape *shape = &r->out[0]->shape;
    const int64_t *rows = r->in[IN_INDICES]->data;
    int64_t at;

    for (int64_t i = 0; i < n_rows; i++)
        for (int64_t d = 0; d < k; d++)
            if (!td_index_wrap(rows[i * k + d], shape->dims[d], &at))
                return td_index_fail(r, rows[i * k + d], (int)d, shape->dims[d]);
    return TREADLE_OK;
}

static treadle_status nd_run(td_run *r) {
    const scatter_state *s = r->state;
    const td_tensor *out = r->out[0], *indices = r->in[IN_INDICES];
    const int64_t *row = indices->data;
    const char *from = r->in[IN_UPDATES]->data;
    int k = (int)indices->shape.dims[indices->shape.rank - 1];
    int64_t n_rows = 1, n = 1;
    size_t width = (size_t)td_dtype_bits(out->dtype) / 8;
    bool dense = slices_are_dense(out, k);

    for (int d = 0; d < indices->shape.rank - 1; d++) n_rows *= indices->shape.dims[d];
    for (int d = k; d < out->shape.rank; d++) n *= out->shape.dims[d];
    TD_TRY(check_rows(r, n_rows, k));
    start_from_data(r);
    for (int64_t i = 0; i < n_rows && n > 0; i++, row += k, from += n * (int64_t)width) {
        int64_t to = 0, at;
        for (int d = 0; d < k; d++) {
            td_index_wrap(row[d], out->shape.dims[d], &at);
            to += at * out->strides[d];
        }
        if (dense) put(s, td_move_at(out, to), from, n, width);
        else put_slice(s, out, k, to, from, n, width);
    }
    return TREADLE_OK;
}

const td_op_impl td_op_scatter_nd = {.state_bytes = sizeof(scatter_state),
                                     .prepare = scatter_prepare,
                                     .infer = nd_infer,
                                     .run = nd_run,
                                     .flags = TD_OP_OVERWRITES,
                                     .strided_inputs = 1u << IN_DATA,
                                     .strided_outputs = 1};

/* --- TensorScatter: rows of a cache from a position of each sequence on */

enum { IN_CACHE, IN_UPDATE, IN_POSITIONS };

typedef struct cache_state {
    int64_t axis;
    bool circular;
} cache_state;

static treadle_status cache_prepare(td_prepare *p) {
    cache_state *s = p->state;
    td_str mode = td_attr_string(p, "mode");

    s->axis = td_attr_int(p, "axis");
    s->circular = td_str_is(mode, "circular");
    if (!s->circular && !td_str_is(mode, "linear"))
        return td_bad_node(p, "mode \"%.*s\", expected linear or circular", TD_STR_ARGS(mode));
    return TREADLE_OK;
}

static treadle_status cache_infer(td_infer *in) {
    const cache_state *s = in->state;
    const td_shape *cache = &in->inputs[IN_CACHE]->tensor.shape, *update = &in->inputs[IN_UPDATE]->tensor.shape;
    int axis;

    if (cache->rank < 0) return td_infer_same(in, 0, IN_CACHE);
    TD_TRY(td_infer_axis(in, s->axis, cache->rank, &axis));
    if (axis == 0) return td_infer_fail(in, "axis 0 is the batch dimension, which cannot be the sequence's");
    if (update->rank >= 0 && update->rank != cache->rank) return td_infer_fail(in, "cache and update differ in rank");
    for (int d = 0; d < update->rank; d++) {
        int64_t have = cache->dims[d], want = update->dims[d];
        if (have >= 0 && want >= 0 && (d == axis ? want > have : want != have))
            return td_infer_fail(in, "dimension %d of update is %lld, that of the cache %lld", d, (long long)want,
                                 (long long)have);
    }
    if (in->n_inputs > IN_POSITIONS && in->inputs[IN_POSITIONS]->kind == TD_VALUE_TENSOR) {
        const td_shape *at = &in->inputs[IN_POSITIONS]->tensor.shape;
        if (at->rank >= 0 &&
            (at->rank != 1 || (at->dims[0] >= 0 && cache->dims[0] >= 0 && at->dims[0] != cache->dims[0])))
            return td_infer_fail(in, "expected write_indices to be [batch]");
    }
    return td_infer_same(in, 0, IN_CACHE);
}

/* Rows [first, first + n) of the update to rows [to, to + n) of the cache, for sequence b. */
static void write_rows(const td_tensor *cache, const td_tensor *update, int axis, int64_t b, int64_t first, int64_t n,
                       int64_t to) {
    if (td_move_is_packed(cache->dtype)) {
        int64_t inner = 1, outer = 1;
        for (int d = axis + 1; d < cache->shape.rank; d++) inner *= cache->shape.dims[d];
        for (int d = 1; d < axis; d++) outer *= cache->shape.dims[d];
        int64_t cache_rows = cache->shape.dims[axis], rows = update->shape.dims[axis];
        for (int64_t o = b * outer; o < (b + 1) * outer; o++)
            for (int64_t i = 0; i < n * inner; i++)
                td_move_packed_one(cache, (o * cache_rows + to) * inner + i, update, (o * rows + first) * inner + i);
        return;
    }
    td_tensor part = *cache, from = *update;
    part.shape.dims[0] = from.shape.dims[0] = 1;
    from.shape.dims[axis] = n;
    part.data = td_move_at(cache, b * cache->strides[0]);
    from.data = td_move_at(update, b * update->strides[0] + first * update->strides[axis]);
    td_move_into(&part, &from, axis, to);
}

static treadle_status cache_run(td_run *r) {
    const cache_state *s = r->state;
    const td_tensor *cache = r->out[0], *update = r->in[IN_UPDATE],
                    *at = r->n_inputs > IN_POSITIONS ? r->in[IN_POSITIONS] : NULL;
    const int64_t *positions = at ? at->data : NULL;
    int axis = (int)(s->axis < 0 ? s->axis + cache->shape.rank : s->axis);
    int64_t batch = cache->shape.dims[0], room = cache->shape.dims[axis], n = update->shape.dims[axis];

    for (int64_t b = 0; positions && !s->circular && b < batch; b++)
        if (positions[b] < 0 || positions[b] > room - n)
            return td_run_fail(r, "write_indices[%lld] is %lld; %lld rows from there on do not fit into %lld",
                               (long long)b, (long long)positions[b], (long long)n, (long long)room);
    if (td_tensor_count(cache) == 0) return TREADLE_OK;
    start_from_data(r);
    if (td_tensor_count(update) == 0) return TREADLE_OK;
    for (int64_t b = 0; b < batch; b++) {
        int64_t to = positions ? positions[b] % room : 0; /* linear: 0..room, and room only without rows */
        if (to < 0) to += room;
        int64_t before = TD_MIN(n, room - to);
        write_rows(cache, update, axis, b, 0, before, to);
        if (before < n) write_rows(cache, update, axis, b, before, n - before, 0);
    }
    return TREADLE_OK;
}

const td_op_impl td_op_tensor_scatter = {.state_bytes = sizeof(cache_state),
                                         .prepare = cache_prepare,
                                         .infer = cache_infer,
                                         .run = cache_run,
                                         .flags = TD_OP_OVERWRITES,
                                         .strided_inputs = 1u << IN_CACHE | 1u << IN_UPDATE,
                                         .strided_outputs = 1};
