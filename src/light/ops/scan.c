/* light/ops/scan.c - Scan. Source: ONNX op texts. Body: states, slices of the scan inputs -> states, scan outputs.
 *
 * Version 8 has a batch in front of everything (states [batch, ...], scan inputs and outputs [batch, sequence, ...])
 * and lengths per batch row: it is run as one scan a row. A scan of one step copies nothing. */
#include "base/alloc.h"
#include "light/body.h"
#include "light/ops/move.h"
#include "light/ops/stack.h"

typedef struct scan_side { /* of one scan input or output */
    int64_t axis;
    bool reverse;
} scan_side;

typedef struct scan_state {
    bool batched;                                      /* version 8 */
    size_t body, first, n_states, n_inputs, n_outputs; /* first: the node's input that state 0 is */
    scan_side *inputs, *outputs;
    int32_t *feeds;
    td_value *types; /* of the node's outputs, as known at open */
} scan_state;

/* --- prepare */

static treadle_status read_list(td_prepare *p, const char *name, size_t wanted, const int64_t **out) {
    size_t n;
    *out = td_attr_ints(p, name, &n);
    if (!td_attr_has(p, name)) *out = NULL;
    else if (n != wanted) return td_bad_node(p, "%s has %zu entries; expected %zu", name, n, wanted);
    return TREADLE_OK;
}

static treadle_status read_sides(td_prepare *p, const char *directions, const char *axes, size_t n, scan_side **out) {
    const int64_t *reverse, *axis = NULL;
    *out = TD_ARENA_ARRAY(p->arena, scan_side, n);
    if (!*out) return td_fail_memory(p->err, "a scan", n * sizeof **out);
    TD_TRY(read_list(p, directions, n, &reverse));
    if (axes) TD_TRY(read_list(p, axes, n, &axis));
    for (size_t i = 0; i < n; i++) {
        if (reverse && reverse[i] != 0 && reverse[i] != 1)
            return td_bad_node(p, "%s: %lld is no direction; expected 0 or 1", directions, (long long)reverse[i]);
        (*out)[i] = (scan_side){.axis = axis ? axis[i] : 0, .reverse = reverse && reverse[i] == 1};
    }
    return TREADLE_OK;
}

static treadle_status scan_prepare(td_prepare *p) {
    scan_state *s = p->state;
    size_t n_formals, n_results;
    int64_t n_inputs = td_attr_int(p, "num_scan_inputs");

    s->batched = p->opset < 9;
    s->first = s->batched;
    if (!td_body_find(p, "body", &s->body, &n_formals, &n_results))
        return td_bad_node(p, "attribute \"body\" holds no graph");
    if (n_inputs < 1 || (uint64_t)n_inputs > p->n_inputs - s->first)
        return td_bad_node(p, "num_scan_inputs is %lld; the node has %zu inputs", (long long)n_inputs, p->n_inputs);
    s->n_inputs = (size_t)n_inputs;
    s->n_states = p->n_inputs - s->first - s->n_inputs;
    if (n_formals != s->n_states + s->n_inputs || n_results != p->n_outputs || n_results < s->n_states)
        return td_bad_node(p, "its body has %zu inputs and %zu outputs; expected %zu and %zu, for %zu states",
                           n_formals, n_results, s->n_states + s->n_inputs, p->n_outputs, s->n_states);
    s->n_outputs = n_results - s->n_states;
    if (s->batched) {
        TD_TRY(read_sides(p, "directions", NULL, s->n_inputs, &s->inputs));
        s->outputs = TD_ARENA_ARRAY(p->arena, scan_side, s->n_outputs);
    } else {
        TD_TRY(read_sides(p, "scan_input_directions", "scan_input_axes", s->n_inputs, &s->inputs));
        TD_TRY(read_sides(p, "scan_output_directions", "scan_output_axes", s->n_outputs, &s->outputs));
    }
    s->feeds = TD_ARENA_ARRAY(p->arena, int32_t, n_results);
    s->types = TD_ARENA_ARRAY(p->arena, td_value, n_results);
    if (!s->outputs || !s->feeds || !s->types) return td_fail_memory(p->err, "a scan", n_results * sizeof *s->types);
    for (size_t k = 0; k < n_results; k++) s->feeds[k] = k < s->n_states ? (int32_t)k : -1;
    return TREADLE_OK;
}

/* --- infer */

static void drop_axis(td_shape *shape, int axis) {
    for (int d = axis; d + 1 < shape->rank; d++) shape->dims[d] = shape->dims[d + 1];
    shape->rank--;
}

/* *length: the sequence's, as far as it is known. */
static treadle_status formal_types(td_infer *in, td_value *formals, int64_t *batch, int64_t *length) {
    const scan_state *s = in->state;
    *batch = *length = TD_DIM_UNKNOWN;
    for (size_t i = 0; i < s->n_states + s->n_inputs; i++) {
        td_value *f = &formals[i];
        td_shape *shape = &f->tensor.shape;
        *f = *in->inputs[s->first + i];
        if (i < s->n_states && !s->batched) continue;
        if (f->kind != TD_VALUE_TENSOR) return td_infer_fail(in, "input %zu is no tensor", s->first + i);
        if (shape->rank < 0) continue;
        if (s->batched) {
            if (shape->rank < (i < s->n_states ? 1 : 2))
                return td_infer_fail(in, "input %zu has no batch and sequence", s->first + i);
            if (*batch < 0) *batch = shape->dims[0];
            drop_axis(shape, 0);
            if (i < s->n_states) continue;
        }
        int axis;
        TD_TRY(td_infer_axis(in, s->inputs[i - s->n_states].axis, shape->rank, &axis));
        if (*length < 0) *length = shape->dims[axis];
        drop_axis(shape, axis);
    }
    return TREADLE_OK;
}

static treadle_status infer_types(td_infer *in, td_value *all) {
    const scan_state *s = in->state;
    size_t n_formals = s->n_states + s->n_inputs;
    td_value *results = all + n_formals;
    int64_t batch, length;
    TD_TRY(formal_types(in, all, &batch, &length));
    TD_TRY(td_infer_body(in, s->body, all, s->feeds, results));
    for (size_t k = 0; k < in->n_outputs; k++) {
        td_value *type = &s->types[k];
        td_shape with_time = results[k].tensor.shape;
        *type = results[k];
        type->tensor.buffer = NULL;
        bool ok = true;
        if (k < s->n_states) {
            td_type_join(type, &all[k]); /* with no step it is the input */
            with_time = type->tensor.shape;
        } else {
            if (type->kind != TD_VALUE_TENSOR) return td_infer_fail(in, "output %zu of its body is no tensor", k);
            ok = td_stack_shape(&results[k].tensor.shape, s->outputs[k - s->n_states].axis, length, &with_time);
        }
        type->tensor.shape = with_time;
        if (s->batched) ok = ok && td_stack_shape(&with_time, 0, batch, &type->tensor.shape);
        if (!ok)
            return td_infer_fail(in, "output %zu: an axis that is not there, or more than %d dimensions", k,
                                 (int)TD_MAX_RANK);
        if (in->outputs[k]) *in->outputs[k] = *type;
    }
    return TREADLE_OK;
}

static treadle_status scan_infer(td_infer *in) {
    const scan_state *s = in->state;

    if (!in->at_open) return TREADLE_OK;
    td_value *all = td_alloc_zero(s->n_states + s->n_inputs + in->n_outputs, sizeof *all);
    if (!all) return td_fail_memory(in->err, "a scan's types", in->n_outputs * sizeof *all);
    treadle_status status = infer_types(in, all);
    td_free(all);
    return status;
}

/* --- run */

typedef struct scanning {
    td_run *r;
    td_body_run *b;
    td_stack *stacks;
    td_value *slices; /* per scan input: the whole, then one step of it */
    int64_t *steps;   /* per scan input: elements from one step to the next */
    void **starts;
    int64_t length;
} scanning;

/* Step 0 of each scan input, and the length that they must share. */
static treadle_status start_inputs(scanning *c, const td_value *const *inputs) {
    const scan_state *s = c->r->state;
    for (size_t i = 0; i < s->n_inputs; i++) {
        td_value *v = &c->slices[i];
        td_tensor *t = &v->tensor;
        *v = *inputs[i];
        int64_t axis = s->inputs[i].axis < 0 ? s->inputs[i].axis + t->shape.rank : s->inputs[i].axis;
        if (v->kind != TD_VALUE_TENSOR || axis < 0 || axis >= t->shape.rank)
            return td_run_fail(c->r, "scan input %zu has no axis %lld", i, (long long)s->inputs[i].axis);
        if (i == 0) c->length = t->shape.dims[axis];
        if (t->shape.dims[axis] != c->length)
            return td_run_fail(c->r, "scan input %zu has %lld steps where input 0 has %lld", i,
                               (long long)t->shape.dims[axis], (long long)c->length);
        c->starts[i] = t->data;
        c->steps[i] = t->strides[axis];
        for (int d = (int)axis; d + 1 < t->shape.rank; d++) {
            t->shape.dims[d] = t->shape.dims[d + 1];
            t->strides[d] = t->strides[d + 1];
        }
        t->shape.rank--;
    }
    return TREADLE_OK;
}

static treadle_status set_slices(scanning *c, int64_t length, int64_t at) {
    const scan_state *s = c->r->state;
    for (size_t i = 0; i < s->n_inputs; i++) {
        td_tensor *t = &c->slices[i].tensor;
        int64_t step = s->inputs[i].reverse ? length - 1 - at : at;
        t->data = c->starts[i];
        if (td_move_is_packed(t->dtype)) { /* they have no address of their own: copied */
            td_tensor copy = *t;
            size_t bytes;
            if (!td_tensor_bytes(t, &bytes)) return td_run_fail(c->r, "scan input %zu is too large", i);
            copy.data = td_run_scratch(c->r, bytes);
            if (!copy.data) return TREADLE_OUT_OF_MEMORY;
            td_move_packed(&copy, t, step * c->steps[i], t->strides);
            td_tensor_dense_strides(&copy.shape, copy.strides);
            td_body_set(c->b, s->n_states + i, &(td_value){.kind = TD_VALUE_TENSOR, .tensor = copy});
            continue;
        }
        t->data = td_move_at(t, step * c->steps[i]);
        td_body_set(c->b, s->n_states + i, &c->slices[i]);
    }
    return TREADLE_OK;
}

static treadle_status begin(scanning *c) {
    td_run *r = c->r;
    const scan_state *s = r->state;
    bool *skip = td_run_scratch(r, r->n_outputs);
    c->stacks = td_run_scratch(r, s->n_outputs * sizeof *c->stacks);
    c->slices = td_run_scratch(r, s->n_inputs * sizeof *c->slices);
    c->steps = td_run_scratch(r, s->n_inputs * sizeof *c->steps);
    c->starts = td_run_scratch(r, s->n_inputs * sizeof *c->starts);
    if (!skip || !c->stacks || !c->slices || !c->steps || !c->starts) return TREADLE_OUT_OF_MEMORY;
    for (size_t k = 0; k < r->n_outputs; k++) skip[k] = k >= s->n_states && !r->out_values[k];
    for (size_t k = 0; k < s->n_outputs; k++)
        c->stacks[k] = (td_stack){.k = s->n_states + k, .i = s->n_states + k, .axis = (int)s->outputs[k].axis};
    return td_body_begin(r, s->body, skip, &c->b);
}

/* One step's result is the whole output, with one more axis. */
static treadle_status give_whole(scanning *c, const td_stack *stack) {
    td_tensor *out = c->r->out[stack->i];
    td_shape shape;
    TD_TRY(td_body_give_output(c->b, stack->k, stack->i));
    if (c->r->out_values[stack->i]->kind != TD_VALUE_TENSOR || !td_stack_shape(&out->shape, stack->axis, 1, &shape))
        return td_run_fail(c->r, "output %zu has no axis %d", stack->i, stack->axis);
    td_move_add_axis(out, stack->axis < 0 ? stack->axis + shape.rank : stack->axis);
    return TREADLE_OK;
}

static treadle_status step(scanning *c, int64_t at) {
    td_run *r = c->r;
    const scan_state *s = r->state;
    bool last = at == c->length - 1;
    TD_TRY(set_slices(c, c->length, at));
    for (size_t k = 0; last && k < s->n_states; k++)
        if (r->out_values[k]) td_body_bind_through(c->b, k, k);
    for (size_t k = 0; k < s->n_outputs; k++)
        if (r->out_values[s->n_states + k])
            td_stack_bind(&c->stacks[k], c->b, s->outputs[k].reverse ? c->length - 1 - at : at);
    TD_TRY(td_body_step(c->b));
    for (size_t k = 0; k < s->n_outputs; k++) {
        td_stack *stack = &c->stacks[k];
        if (!r->out_values[stack->i]) continue;
        if (c->length == 1) TD_TRY(give_whole(c, stack));
        else TD_TRY(td_stack_put(stack, r, c->b, s->outputs[k].reverse ? c->length - 1 - at : at, c->length));
    }
    if (!last) return td_body_carry(c->b, 0, 0, s->n_states);
    for (size_t k = 0; k < s->n_states; k++)
        if (r->out_values[k]) TD_TRY(td_body_give_output(c->b, k, k));
    return TREADLE_OK;
}

static treadle_status run_plain(td_run *r) {
    const scan_state *s = r->state;
    scanning c = {.r = r};
    TD_TRY(begin(&c));
    TD_TRY(start_inputs(&c, r->in_values + s->n_states));
    for (size_t k = 0; k < s->n_states; k++) td_body_set(c.b, k, r->in_values[k]);
    for (int64_t at = 0; at < c.length; at++) TD_TRY(step(&c, at));
    if (c.length > 0) return TREADLE_OK;
    for (size_t k = 0; k < s->n_states; k++)
        if (r->out_values[k]) TD_TRY(td_body_give_formal(c.b, k, k));
    for (size_t k = 0; k < s->n_outputs; k++)
        if (r->out_values[s->n_states + k]) TD_TRY(td_stack_end(&c.stacks[k], r, &s->types[s->n_states + k]));
    return TREADLE_OK;
}

/* --- version 8 */

static td_value row_of(const td_value *v, int64_t row) {
    td_value out = *v;
    td_tensor *t = &out.tensor;
    t->data = td_move_at(t, row * t->strides[0]);
    drop_axis(&t->shape, 0);
    memmove(t->strides, t->strides + 1, (size_t)t->shape.rank * sizeof t->strides[0]);
    return out;
}

/* A result into its place in output k, which gets its memory, all zero, with the first result. */
static treadle_status put_row(scanning *c, size_t k, const td_value *from, int64_t batch, int64_t row, int64_t length,
                              int64_t at, bool has_time) {
    td_run *r = c->r;
    td_tensor *out = r->out[k];
    td_shape shape = from->tensor.shape, row_shape = shape;
    if (from->kind != TD_VALUE_TENSOR || from->tensor.dtype == TD_STRING || td_move_is_packed(from->tensor.dtype))
        return td_run_fail(r, "output %zu of its body is no tensor of numbers", k);
    bool ok = !has_time || td_stack_shape(&from->tensor.shape, 0, length, &row_shape);
    if (!ok || !td_stack_shape(&row_shape, 0, batch, &shape))
        return td_run_fail(r, "output %zu has more than %d dimensions", k, (int)TD_MAX_RANK);
    if (!out->data) {
        size_t bytes;
        TD_TRY(td_run_alloc(r, k, from->tensor.dtype, &shape));
        if (td_tensor_is_dense(out) && td_tensor_bytes(out, &bytes)) memset(out->data, 0, bytes);
    }
    if (!td_shape_equal(&out->shape, &shape))
        return td_run_fail(r, "output %zu of its body changes its shape between iterations", k);
    td_value place = row_of(r->out_values[k], row);
    if (has_time) place = row_of(&place, at);
    td_tensor_copy(&place.tensor, &from->tensor);
    return TREADLE_OK;
}

/* Nothing was put: no row, or none with a step. */
static treadle_status fill_missing(scanning *c, int64_t batch, int64_t length) {
    td_run *r = c->r;
    const scan_state *s = r->state;
    for (size_t k = 0; k < r->n_outputs; k++) {
        size_t bytes;
        if (!r->out[k] || r->out[k]->data) continue;
        td_shape shape = s->types[k].tensor.shape;
        if (shape.rank < 0) shape.rank = k < s->n_states ? 1 : 2;
        for (int d = 0; d < shape.rank; d++)
            if (shape.dims[d] < 0) shape.dims[d] = 0;
        shape.dims[0] = batch;
        if (k >= s->n_states) shape.dims[1] = length;
        TD_TRY(td_run_alloc(r, k, s->types[k].tensor.dtype, &shape));
        if (td_tensor_bytes(r->out[k], &bytes)) memset(r->out[k]->data, 0, bytes);
    }
    return TREADLE_OK;
}

static treadle_status run_row(scanning *c, td_value *inputs, const td_value **pointers, int64_t batch, int64_t row,
                              int64_t most, int64_t length) {
    td_run *r = c->r;
    const scan_state *s = r->state;
    for (size_t k = 0; k < s->n_states; k++) {
        td_value state = row_of(r->in_values[1 + k], row);
        td_body_set(c->b, k, &state);
    }
    for (size_t i = 0; i < s->n_inputs; i++) {
        inputs[i] = row_of(r->in_values[1 + s->n_states + i], row);
        pointers[i] = &inputs[i];
    }
    TD_TRY(start_inputs(c, pointers));
    for (int64_t at = 0; at < length; at++) {
        TD_TRY(set_slices(c, length, at));
        TD_TRY(td_body_step(c->b));
        for (size_t k = 0; k < r->n_outputs; k++)
            if (r->out_values[k] && (k >= s->n_states || at == length - 1))
                TD_TRY(put_row(c, k, td_body_result(c->b, k), batch, row, most, at, k >= s->n_states));
        if (at < length - 1) TD_TRY(td_body_carry(c->b, 0, 0, s->n_states));
    }
    for (size_t k = 0; k < s->n_states && length == 0; k++) {
        td_value state = row_of(r->in_values[1 + k], row);
        if (r->out_values[k]) TD_TRY(put_row(c, k, &state, batch, row, most, 0, false));
    }
    return TREADLE_OK;
}

static treadle_status run_batched(td_run *r) {
    const scan_state *s = r->state;
    scanning c = {.r = r};
    const td_tensor *lengths = r->in[0], *x = r->in[1 + s->n_states];
    for (size_t i = 1; i < r->n_inputs; i++) {
        int rank = i <= s->n_states ? 1 : 2;
        if (!r->in[i] || r->in[i]->shape.rank < rank || td_move_is_packed(r->in[i]->dtype) || !x ||
            r->in[i]->shape.dims[0] != x->shape.dims[0])
            return td_run_fail(r, "input %zu has no batch and sequence like the others", i);
    }
    int64_t batch = x->shape.dims[0], most = x->shape.dims[1];
    if (lengths && td_tensor_count(lengths) != batch)
        return td_run_fail(r, "%lld sequence lengths for a batch of %lld", (long long)td_tensor_count(lengths),
                           (long long)batch);
    TD_TRY(begin(&c));
    td_value *inputs = td_run_scratch(r, s->n_inputs * sizeof *inputs);
    const td_value **pointers = td_run_scratch(r, s->n_inputs * sizeof *pointers);
    if (!inputs || !pointers) return TREADLE_OUT_OF_MEMORY;
    for (int64_t row = 0; row < batch; row++) {
        int64_t length = lengths ? ((const int64_t *)lengths->data)[row * lengths->strides[0]] : most;
        if (length < 0 || length > most)
            return td_run_fail(r, "row %lld has %lld steps; the sequence has %lld", (long long)row, (long long)length,
                               (long long)most);
        TD_TRY(run_row(&c, inputs, pointers, batch, row, most, length));
    }
    return fill_missing(&c, batch, most);
}

static treadle_status scan_run(td_run *r) {
    const scan_state *s = r->state;
    return s->batched ? run_batched(r) : run_plain(r);
}

const td_op_impl td_op_scan = {.state_bytes = sizeof(scan_state),
                               .prepare = scan_prepare,
                               .infer = scan_infer,
                               .run = scan_run,
                               .flags = TD_OP_VALUES};
