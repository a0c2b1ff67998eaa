/* light/ops/sequence.c - SequenceEmpty, SequenceConstruct, SequenceAt, SequenceInsert, SequenceErase, SequenceLength,
 * SplitToSequence, ConcatFromSequence. Source: ONNX op texts.
 *
 * Tensors are copied when they enter a sequence; from then on items are shared and never written. */
#include "light/ops/sequence.h"

#include "light/ops/move.h"
#include "tensor/half.h"

/* --- what they share */

treadle_status td_sequence_type(td_infer *in, size_t output, td_dtype dtype) {
    td_value *out = output < in->n_outputs ? in->outputs[output] : NULL;
    if (!out) return TREADLE_OK;
    out->kind = TD_VALUE_SEQUENCE;
    out->tensor.dtype = dtype;
    out->tensor.shape.rank = -1;
    return TREADLE_OK;
}

/* An item of one sequence as an item of another, or as an output: memory is shared. false: out of memory. */
static bool share_item(td_value *to, const td_value *from) {
    if (from->kind == TD_VALUE_TENSOR && !from->tensor.buffer) return td_value_copy(to, from);
    *to = td_value_share(from);
    return true;
}

/* A sequence as output 0. */
static treadle_status give(td_run *r, td_sequence *sequence, bool whole) {
    if (!whole) {
        td_sequence_release(sequence);
        return td_fail_memory(r->err, "a sequence", 0);
    }
    r->out_values[0]->kind = TD_VALUE_SEQUENCE;
    r->out_values[0]->sequence = sequence;
    return TREADLE_OK;
}

/* Input 0; NULL: it is none, and err says so. */
static const td_sequence *want_sequence(td_run *r) {
    const td_value *v = r->in_values[0];
    if (v->kind == TD_VALUE_SEQUENCE && v->sequence) return v->sequence;
    td_run_fail(r, "input 0 is no sequence");
    return NULL;
}

/* Input 1 or 2 as a place among n items, counted from behind if negative. */
static treadle_status read_position(td_run *r, size_t input, size_t n, size_t *out) {
    const td_tensor *t = r->in[input];
    if (td_tensor_count(t) != 1)
        return td_run_fail(r, "the position has %lld elements; expected 1", (long long)td_tensor_count(t));
    int64_t at = td_load_i64(t->dtype, t->data, 0), count = (int64_t)n;
    if (at < -count || at >= count)
        return td_run_fail(r, "position %lld is out of range; expected -%lld..%lld", (long long)at, (long long)count,
                           (long long)count - 1);
    *out = (size_t)(at < 0 ? at + count : at);
    return TREADLE_OK;
}

static td_dtype items_dtype(const td_infer *in, size_t i) { return in->inputs[i]->tensor.dtype; }

/* --- SequenceEmpty */

typedef struct empty_state {
    td_dtype dtype;
} empty_state;

static treadle_status empty_prepare(td_prepare *p) {
    empty_state *s = p->state;
    int64_t dtype = td_attr_has(p, "dtype") ? td_attr_int(p, "dtype") : (int64_t)TD_FLOAT;
    if (dtype <= TD_UNDEFINED || dtype >= TD_DTYPE_END)
        return td_bad_node(p, "dtype %lld is no element type", (long long)dtype);
    s->dtype = (td_dtype)dtype;
    return TREADLE_OK;
}

static treadle_status empty_infer(td_infer *in) {
    const empty_state *s = in->state;
    return td_sequence_type(in, 0, s->dtype);
}

static treadle_status empty_run(td_run *r) {
    td_sequence *sequence = td_sequence_new(0);
    return give(r, sequence, sequence != NULL);
}

const td_op_impl td_op_sequence_empty = {.state_bytes = sizeof(empty_state),
                                         .prepare = empty_prepare,
                                         .infer = empty_infer,
                                         .run = empty_run,
                                         .flags = TD_OP_VALUES};

/* --- SequenceConstruct */

static treadle_status construct_infer(td_infer *in) {
    for (size_t i = 1; i < in->n_inputs; i++)
        if (items_dtype(in, i) != items_dtype(in, 0))
            return td_infer_fail(in, "input %zu is %s where input 0 is %s", i, td_dtype_name(items_dtype(in, i)),
                                 td_dtype_name(items_dtype(in, 0)));
    return td_sequence_type(in, 0, items_dtype(in, 0));
}

static treadle_status construct_run(td_run *r) {
    td_sequence *sequence = td_sequence_new(r->n_inputs);
    bool ok = sequence != NULL;
    for (size_t i = 0; ok && i < r->n_inputs; i++) ok = td_value_copy(&sequence->items[i], r->in_values[i]);
    return give(r, sequence, ok);
}

const td_op_impl td_op_sequence_construct = {.infer = construct_infer, .run = construct_run, .flags = TD_OP_VALUES};

/* --- SequenceAt */

static treadle_status at_infer(td_infer *in) {
    if (in->inputs[0]->kind != TD_VALUE_SEQUENCE) return td_infer_fail(in, "input 0 is no sequence");
    return td_infer_unknown(in, 0, items_dtype(in, 0), -1);
}

static treadle_status at_run(td_run *r) {
    const td_sequence *from = want_sequence(r);
    size_t at;
    if (!from) return TREADLE_RUN;
    TD_TRY(read_position(r, 1, from->n, &at));
    td_value *out = r->out_values[0];
    return share_item(out, &from->items[at]) ? TREADLE_OK : td_fail_memory(r->err, "an item", 0);
}

const td_op_impl td_op_sequence_at = {.infer = at_infer, .run = at_run, .flags = TD_OP_VALUES};

/* --- SequenceInsert, SequenceErase */

static treadle_status edit_infer(td_infer *in) {
    if (in->inputs[0]->kind != TD_VALUE_SEQUENCE) return td_infer_fail(in, "input 0 is no sequence");
    return td_sequence_type(in, 0, items_dtype(in, 0));
}

static treadle_status insert_infer(td_infer *in) {
    if (in->at_open && (in->inputs[1]->kind != TD_VALUE_TENSOR || items_dtype(in, 0) != items_dtype(in, 1)))
        return td_infer_fail(in, "an item of %s into a sequence of %s", td_dtype_name(items_dtype(in, 1)),
                             td_dtype_name(items_dtype(in, 0)));
    return edit_infer(in);
}

static treadle_status insert_run(td_run *r) {
    const td_sequence *from = want_sequence(r);
    if (!from) return TREADLE_RUN;
    size_t at = from->n;
    if (r->n_inputs > 2 && r->in[2]) TD_TRY(read_position(r, 2, from->n + 1, &at));
    if (at == from->n && r->n_inputs > 2 && r->in[2] && td_load_i64(r->in[2]->dtype, r->in[2]->data, 0) < 0) at = 0;
    td_sequence *to = td_sequence_new(from->n + 1);
    bool ok = to && td_value_copy(&to->items[at], r->in_values[1]);
    for (size_t i = 0; ok && i < from->n; i++) ok = share_item(&to->items[i + (i >= at)], &from->items[i]);
    return give(r, to, ok);
}

static treadle_status erase_run(td_run *r) {
    const td_sequence *from = want_sequence(r);
    if (!from) return TREADLE_RUN;
    if (from->n == 0) return td_run_fail(r, "nothing can be erased from an empty sequence");
    size_t at = from->n - 1;
    if (r->n_inputs > 1 && r->in[1]) TD_TRY(read_position(r, 1, from->n, &at));
    td_sequence *to = td_sequence_new(from->n - 1);
    bool ok = to != NULL;
    for (size_t i = 0; ok && i < to->n; i++) ok = share_item(&to->items[i], &from->items[i + (i >= at)]);
    return give(r, to, ok);
}

const td_op_impl td_op_sequence_insert = {.infer = insert_infer, .run = insert_run, .flags = TD_OP_VALUES};
const td_op_impl td_op_sequence_erase = {.infer = edit_infer, .run = erase_run, .flags = TD_OP_VALUES};

/* --- SequenceLength */

static treadle_status length_infer(td_infer *in) { return td_infer_set(in, 0, TD_INT64, &(td_shape){.rank = 0}); }

static treadle_status length_run(td_run *r) {
    const td_sequence *from = want_sequence(r);
    if (!from) return TREADLE_RUN;
    TD_TRY(td_run_alloc(r, 0, TD_INT64, &(td_shape){.rank = 0}));
    *(int64_t *)r->out[0]->data = (int64_t)from->n;
    return TREADLE_OK;
}

const td_op_impl td_op_sequence_length = {.infer = length_infer, .run = length_run, .flags = TD_OP_VALUES};

/* --- SplitToSequence */

typedef struct split_state {
    int64_t axis;
    bool keep;
} split_state;

static treadle_status split_prepare(td_prepare *p) {
    split_state *s = p->state;
    s->axis = td_attr_int(p, "axis");
    s->keep = td_attr_int(p, "keepdims") != 0;
    return TREADLE_OK;
}

static treadle_status split_infer(td_infer *in) { return td_sequence_type(in, 0, items_dtype(in, 0)); }

/* A part along the axis as an item of its own; without the axis if `drop`. */
static bool copy_part(td_value *to, const td_tensor *from, int axis, int64_t begin, int64_t size, bool drop) {
    td_tensor part = *from, dense;
    size_t bytes;
    td_value shape_only = {.kind = TD_VALUE_TENSOR};
    part.shape.dims[axis] = size;
    part.buffer = NULL;
    if (!td_move_is_packed(part.dtype)) {
        part.data = td_move_at(from, begin * from->strides[axis]);
        if (!td_value_copy(to, &(td_value){.kind = TD_VALUE_TENSOR, .tensor = part})) return false;
    } else {
        if (!td_tensor_bytes(&part, &bytes)) return false;
        shape_only.tensor.buffer = td_buffer_new(bytes);
        if (!shape_only.tensor.buffer) return false;
        td_tensor_view(&dense, part.dtype, &part.shape, shape_only.tensor.buffer->data);
        td_move_packed(&dense, from, begin * from->strides[axis], from->strides);
        dense.buffer = shape_only.tensor.buffer;
        *to = (td_value){.kind = TD_VALUE_TENSOR, .tensor = dense};
    }
    if (!drop) return true;
    td_shape *shape = &to->tensor.shape;
    for (int d = axis; d + 1 < shape->rank; d++) shape->dims[d] = shape->dims[d + 1];
    shape->rank--;
    td_tensor_dense_strides(shape, to->tensor.strides);
    return true;
}

/* Size of part i. */
static int64_t part_size(const td_tensor *sizes, int64_t i, int64_t whole) {
    if (sizes && sizes->shape.rank > 0) return td_load_i64(sizes->dtype, sizes->data, i * sizes->strides[0]);
    int64_t chunk = sizes ? td_load_i64(sizes->dtype, sizes->data, 0) : 1;
    return TD_MIN(chunk, whole - i * chunk);
}

static treadle_status count_parts(td_run *r, const td_tensor *sizes, int64_t whole, int64_t *n) {
    *n = whole;
    if (!sizes) return TREADLE_OK;
    if (sizes->shape.rank == 0) {
        int64_t chunk = td_load_i64(sizes->dtype, sizes->data, 0);
        if (chunk <= 0) return td_run_fail(r, "parts of %lld", (long long)chunk);
        *n = whole / chunk + (whole % chunk != 0);
        return TREADLE_OK;
    }
    int64_t sum = 0;
    *n = sizes->shape.dims[0];
    for (int64_t i = 0; i < *n; i++) {
        int64_t size = part_size(sizes, i, whole);
        if (size < 0 || size > whole - sum)
            return td_run_fail(r, "part %lld has size %lld; %lld are left", (long long)i, (long long)size,
                               (long long)(whole - sum));
        sum += size;
    }
    if (sum != whole)
        return td_run_fail(r, "the parts have %lld in all; expected %lld", (long long)sum, (long long)whole);
    return TREADLE_OK;
}

static treadle_status split_run(td_run *r) {
    const split_state *s = r->state;
    const td_tensor *x = r->in[0], *sizes = r->n_inputs > 1 ? r->in[1] : NULL;
    int64_t axis = s->axis < 0 ? s->axis + x->shape.rank : s->axis, n, begin = 0;
    if (axis < 0 || axis >= x->shape.rank)
        return td_run_fail(r, "axis %lld is out of range; expected -%d..%d", (long long)s->axis, x->shape.rank,
                           x->shape.rank - 1);
    if (sizes && sizes->shape.rank > 1) return td_run_fail(r, "split has rank %d; expected 0 or 1", sizes->shape.rank);
    TD_TRY(count_parts(r, sizes, x->shape.dims[axis], &n));
    td_sequence *to = td_sequence_new((size_t)n);
    bool ok = to != NULL;
    for (int64_t i = 0; ok && i < n; i++) {
        int64_t size = part_size(sizes, i, x->shape.dims[axis]);
        ok = copy_part(&to->items[i], x, (int)axis, begin, size, !sizes && !s->keep);
        begin += size;
    }
    return give(r, to, ok);
}

const td_op_impl td_op_split_to_sequence = {.state_bytes = sizeof(split_state),
                                            .prepare = split_prepare,
                                            .infer = split_infer,
                                            .run = split_run,
                                            .flags = TD_OP_VALUES};

/* --- ConcatFromSequence */

typedef struct concat_state {
    int64_t axis;
    bool new_axis;
} concat_state;

static treadle_status concat_prepare(td_prepare *p) {
    concat_state *s = p->state;
    s->axis = td_attr_int(p, "axis");
    s->new_axis = td_attr_int(p, "new_axis") != 0;
    return TREADLE_OK;
}

static treadle_status concat_run(td_run *r) {
    const concat_state *s = r->state;
    const td_sequence *from = want_sequence(r);
    if (!from) return TREADLE_RUN;
    if (from->n == 0) return td_run_fail(r, "an empty sequence has no shape");
    td_shape shape = from->items[0].tensor.shape;
    int rank = shape.rank + s->new_axis;
    int64_t axis = s->axis < 0 ? s->axis + rank : s->axis, offset = 0;
    if (axis < 0 || axis >= rank || rank > TD_MAX_RANK)
        return td_run_fail(r, "axis %lld of items of rank %d", (long long)s->axis, shape.rank);
    if (s->new_axis) {
        for (int d = rank - 1; d > axis; d--) shape.dims[d] = shape.dims[d - 1];
        shape.rank = rank;
    }
    shape.dims[axis] = 0;
    for (size_t i = 0; i < from->n; i++) {
        td_shape item = from->items[i].tensor.shape;
        bool same = from->items[i].kind == TD_VALUE_TENSOR && item.rank + s->new_axis == rank &&
                    from->items[i].tensor.dtype == from->items[0].tensor.dtype;
        for (int d = 0, k = 0; same && d < rank; d++) {
            if (d == axis && s->new_axis) continue;
            same = d == axis || item.dims[k] == shape.dims[d];
            k++;
        }
        if (!same) return td_run_fail(r, "item %zu does not fit the first one", i);
        if (TD_ADD_OVERFLOWS(shape.dims[axis], s->new_axis ? 1 : item.dims[axis], &shape.dims[axis]))
            return td_run_fail(r, "the result is too large");
    }
    TD_TRY(td_run_alloc(r, 0, from->items[0].tensor.dtype, &shape));
    for (size_t i = 0; i < from->n; i++) {
        td_tensor item = from->items[i].tensor;
        if (s->new_axis) td_move_add_axis(&item, (int)axis);
        if (td_tensor_count(&item) > 0) td_move_into(r->out[0], &item, (int)axis, offset);
        offset += item.shape.dims[axis];
    }
    return TREADLE_OK;
}

const td_op_impl td_op_concat_from_sequence = {.state_bytes = sizeof(concat_state),
                                               .prepare = concat_prepare,
                                               .infer = at_infer,
                                               .run = concat_run,
                                               .flags = TD_OP_VALUES};
