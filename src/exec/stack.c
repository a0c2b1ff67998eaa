/* exec/stack.c - values that each row holds for itself (cross caches, kept wires), as one value for a run of all rows.
 *
 * Made when rows first run together, and again when a row's value has changed; beams that change places
 * within a prompt share one value, so nothing is copied for them. Invariant: a stack whose parts are the
 * rows' memory holds what they hold. */
#include "base/alloc.h"
#include "exec/run.h"

static size_t n_stacks(const td_exec *e) { return e->plan->n_states + e->plan->n_wires; }

bool td_exec_stacks_init(td_exec *e) {
    e->stacks = td_alloc_zero(n_stacks(e), sizeof *e->stacks);
    e->stack_parts = td_alloc_zero(n_stacks(e) * e->n_rows, sizeof *e->stack_parts);
    if (!e->stacks || !e->stack_parts) return false;
    for (size_t i = 0; i < n_stacks(e); i++) e->stacks[i].parts = e->stack_parts + i * e->n_rows;
    return true;
}

void td_exec_stacks_free(td_exec *e) {
    for (size_t i = 0; e->stacks && i < n_stacks(e); i++) td_value_release(&e->stacks[i].whole);
    td_free(e->stacks);
    td_free(e->stack_parts);
}

void td_exec_stacks_forget(td_exec *e) { memset(e->stack_parts, 0, n_stacks(e) * e->n_rows * sizeof *e->stack_parts); }

/* All rows have a tensor of one type and shape, one row along the axis; or none has any. */
static bool agrees(const td_exec *e, const td_value *values, size_t stride, int axis) {
    const td_value *first = &values[0];
    for (size_t r = 0; r < e->n_rows; r++) {
        const td_value *v = &values[r * stride];
        if (v->kind != first->kind) return false;
        if (v->kind == TD_VALUE_NONE) continue;
        if (v->kind != TD_VALUE_TENSOR || v->tensor.dtype != first->tensor.dtype || axis >= v->tensor.shape.rank ||
            v->tensor.shape.dims[axis] != 1 || !td_shape_equal(&v->tensor.shape, &first->tensor.shape))
            return false;
    }
    return true;
}

static bool is_current(const td_exec *e, const td_exec_stack *s, const td_value *values, size_t stride) {
    for (size_t r = 0; r < e->n_rows; r++)
        if (s->parts[r] != values[r * stride].tensor.data || !s->parts[r]) return false;
    return s->whole.kind == TD_VALUE_TENSOR;
}

static treadle_status make_whole(const td_exec *e, td_exec_stack *s, const td_tensor *part, int axis,
                                 treadle_error *err) {
    td_shape shape = part->shape;
    shape.dims[axis] = (int64_t)e->n_rows;
    if (s->whole.kind == TD_VALUE_TENSOR && s->whole.tensor.dtype == part->dtype &&
        td_shape_equal(&s->whole.tensor.shape, &shape))
        return TREADLE_OK;
    td_value_release(&s->whole);
    return td_value_resize(&s->whole, part->dtype, &shape) ? TREADLE_OK : td_fail_memory(err, "values of all rows", 0);
}

/* values: of row r at values[r * stride]. */
static treadle_status stack(td_exec *e, td_exec_stack *s, const td_value *values, size_t stride, int axis, bool *agree,
                            treadle_error *err) {
    *agree = agrees(e, values, stride, axis);
    if (!*agree || (values[0].kind == TD_VALUE_TENSOR && is_current(e, s, values, stride))) return TREADLE_OK;
    if (values[0].kind == TD_VALUE_NONE) {
        td_value_release(&s->whole);
        return TREADLE_OK;
    }
    TD_TRY(make_whole(e, s, &values[0].tensor, axis, err));
    for (size_t r = 0; r < e->n_rows; r++) {
        const td_tensor *part = &values[r * stride].tensor;
        if (s->parts[r] == part->data && part->data) continue;
        td_tensor at = td_tensor_slice(&s->whole.tensor, axis, (int64_t)r, 1);
        td_tensor_copy(&at, part);
        s->parts[r] = part->data;
    }
    return TREADLE_OK;
}

treadle_status td_exec_stack_rows(td_exec *e, bool *out_agree, treadle_error *err) {
    const td_plan *plan = e->plan;
    *out_agree = true;
    for (size_t k = 0; *out_agree && k < plan->n_states; k++)
        if (plan->states[k].kind == TD_STATE_CROSS)
            TD_TRY(stack(e, &e->stacks[k], &e->state->cross[k * e->n_rows], 1, plan->states[k].batch_axis, out_agree,
                         err));
    for (size_t w = 0; *out_agree && w < plan->n_wires; w++)
        if ((plan->wires[w].once || plan->wires[w].hold) && td_plan_runs_in_decode(plan, plan->wires[w].to_session))
            TD_TRY(stack(e, &e->stacks[plan->n_states + w], &e->kept[w], plan->n_wires, 0, out_agree, err));
    return TREADLE_OK;
}
