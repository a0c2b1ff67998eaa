/* light/ops/stack.c - see stack.h. */
#include "light/ops/stack.h"

#include "light/ops/move.h"

bool td_stack_shape(const td_shape *slice, int64_t axis, int64_t n, td_shape *out) {
    if (slice->rank < 0) {
        out->rank = -1;
        return true;
    }
    int rank = slice->rank + 1;
    if (rank > TD_MAX_RANK || axis < -rank || axis >= rank) return false;
    int at = (int)(axis < 0 ? axis + rank : axis);
    out->rank = rank;
    for (int d = 0, from = 0; d < rank; d++) out->dims[d] = d == at ? n : slice->dims[from++];
    return true;
}

/* A slice as a tensor of its own, without the axis. */
static td_tensor slice_at(const td_stack *s, int64_t at) {
    td_tensor slice = s->all;
    slice.data = td_move_at(&s->all, at * s->all.strides[s->axis]);
    slice.shape.rank--;
    for (int d = s->axis; d < slice.shape.rank; d++) {
        slice.shape.dims[d] = s->all.shape.dims[d + 1];
        slice.strides[d] = s->all.strides[d + 1];
    }
    return slice;
}

/* Strings point to bytes that the next iteration frees; parts of bytes have no address. */
static bool can_bind(const td_stack *s) {
    return s->all.data && s->all.dtype != TD_STRING && !td_move_is_packed(s->all.dtype);
}

void td_stack_bind(const td_stack *s, td_body_run *b, int64_t at) {
    if (!can_bind(s) || at >= s->room) return;
    td_tensor slice = slice_at(s, at);
    td_body_bind(b, s->k, &slice);
}

/* A dense copy of strings that lasts as long as the node's output. */
static treadle_status keep_strings(td_run *r, td_tensor *t) {
    size_t n = (size_t)td_tensor_count(t), bytes = 0;
    td_str *items = td_run_keep(r, n * sizeof *items);
    if (!items) return TREADLE_OUT_OF_MEMORY;
    td_tensor copy;
    td_tensor_view(&copy, TD_STRING, &t->shape, items);
    td_tensor_copy(&copy, t);
    for (size_t i = 0; i < n; i++) bytes += items[i].n;
    char *text = td_run_keep(r, bytes);
    if (!text) return TREADLE_OUT_OF_MEMORY;
    for (size_t i = 0; i < n; i++) {
        if (items[i].n) memcpy(text, items[i].p, items[i].n);
        items[i].p = text;
        text += items[i].n;
    }
    *t = copy;
    return TREADLE_OK;
}

static treadle_status begin(td_stack *s, td_run *r, const td_tensor *slice, int64_t room) {
    td_shape shape;
    if (!td_stack_shape(&slice->shape, s->axis, room, &shape))
        return td_run_fail(r, "output %zu has no axis %d", s->i, s->axis);
    if (s->axis < 0) s->axis += shape.rank;
    TD_TRY(td_run_alloc(r, s->i, slice->dtype, &shape));
    s->all = *r->out[s->i];
    s->room = room;
    return TREADLE_OK;
}

static treadle_status grow(td_stack *s, td_run *r) {
    td_tensor more = s->all;
    size_t bytes;
    if (TD_MUL_OVERFLOWS(s->room, 2, &more.shape.dims[0]) || !td_tensor_bytes(&more, &bytes))
        return td_run_fail(r, "output %zu is too large", s->i);
    more.data = td_run_scratch(r, bytes);
    if (!more.data) return TREADLE_OUT_OF_MEMORY;
    td_tensor_dense_strides(&more.shape, more.strides);
    s->all.shape.dims[0] = s->n;
    td_move_into(&more, &s->all, 0, 0);
    s->all = more;
    s->room = more.shape.dims[0];
    s->in_scratch = true;
    return TREADLE_OK;
}

treadle_status td_stack_put(td_stack *s, td_run *r, td_body_run *b, int64_t at, int64_t room) {
    const td_value *v = td_body_result(b, s->k);
    if (v->kind != TD_VALUE_TENSOR) return td_run_fail(r, "output %zu of its subgraph is no tensor", s->k);
    if (s->all.data && can_bind(s) && at < s->room) { /* it lies there */
        s->n++;
        return TREADLE_OK;
    }
    if (!s->all.data) TD_TRY(begin(s, r, &v->tensor, room));
    while (at >= s->room) TD_TRY(grow(s, r));
    td_tensor from = v->tensor;
    td_shape expected = s->all.shape, found;
    expected.dims[s->axis] = 1;
    if (!td_stack_shape(&from.shape, s->axis, 1, &found) || !td_shape_equal(&found, &expected) ||
        from.dtype != s->all.dtype)
        return td_run_fail(r, "output %zu of its subgraph changes its shape between iterations", s->k);
    if (from.dtype == TD_STRING) TD_TRY(keep_strings(r, &from));
    td_move_add_axis(&from, s->axis);
    td_move_into(&s->all, &from, s->axis, at);
    s->n++;
    return TREADLE_OK;
}

treadle_status td_stack_end(td_stack *s, td_run *r, const td_value *type) {
    if (!s->all.data) {
        td_shape shape = type->tensor.shape;
        if (shape.rank < 0) shape.rank = 1;
        int axis = s->axis < 0 ? s->axis + shape.rank : s->axis;
        for (int d = 0; d < shape.rank; d++)
            if (d == axis || shape.dims[d] < 0) shape.dims[d] = 0;
        return td_run_alloc(r, s->i, type->tensor.dtype, &shape);
    }
    if (!s->in_scratch) {
        if (s->n < s->room) r->out[s->i]->shape.dims[s->axis] = s->n;
        return TREADLE_OK;
    }
    s->all.shape.dims[0] = s->n;
    TD_TRY(td_run_alloc(r, s->i, s->all.dtype, &s->all.shape));
    td_move_into(r->out[s->i], &s->all, 0, 0);
    return TREADLE_OK;
}
