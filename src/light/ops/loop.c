/* light/ops/loop.c - Loop. Source: ONNX op text; a body's condition counts even where the node has none, as
 * in ONNX's reference implementation. Body: iteration number, condition, carried values -> condition,
 * carried values, scan outputs. */
#include "base/alloc.h"
#include "light/body.h"
#include "light/ops/stack.h"

enum { FIRST_ROOM_BYTES = 1 << 20 }; /* of a scan output before anything is known of the number of iterations */

typedef struct loop_state {
    size_t body, n_carried, n_scan;
    int iteration_rank, condition_rank; /* scalars, or lists of one */
    int32_t *feeds;
    td_value *types; /* of the outputs, as known at open */
} loop_state;

static treadle_status loop_prepare(td_prepare *p) {
    loop_state *s = p->state;
    size_t n_formals, n_outputs;

    if (!td_body_find(p, "body", &s->body, &n_formals, &n_outputs))
        return td_bad_node(p, "attribute \"body\" holds no graph");
    s->n_carried = p->n_inputs - 2;
    if (n_formals != s->n_carried + 2)
        return td_bad_node(p, "its body has %zu inputs; expected %zu: iteration, condition and the carried values",
                           n_formals, s->n_carried + 2);
    if (n_outputs < s->n_carried + 1 || n_outputs - 1 != p->n_outputs)
        return td_bad_node(p,
                           "its body has %zu outputs; expected a condition, %zu carried values and the scan outputs, "
                           "%zu in all",
                           n_outputs, s->n_carried, p->n_outputs + 1);
    s->n_scan = p->n_outputs - s->n_carried;
    s->iteration_rank = td_body_declared_rank(p, s->body, 0) == 1;
    s->condition_rank = td_body_declared_rank(p, s->body, 1) == 1;
    s->feeds = TD_ARENA_ARRAY(p->arena, int32_t, n_outputs);
    s->types = TD_ARENA_ARRAY(p->arena, td_value, p->n_outputs);
    if (!s->feeds || !s->types) return td_fail_memory(p->err, "a loop", n_outputs * sizeof *s->types);
    for (size_t k = 0; k < n_outputs; k++) s->feeds[k] = k >= 1 && k <= s->n_carried ? (int32_t)k + 1 : -1;
    return TREADLE_OK;
}

static td_value scalar_type(td_dtype dtype, int rank) {
    return (td_value){.kind = TD_VALUE_TENSOR, .tensor = {.dtype = dtype, .shape = {.rank = rank, .dims = {1}}}};
}

/* `all`: room for the types of formals and outputs. */
static treadle_status infer_types(td_infer *in, td_value *all) {
    const loop_state *s = in->state;
    size_t n_formals = s->n_carried + 2;
    td_value *outputs = all + n_formals;

    all[0] = scalar_type(TD_INT64, s->iteration_rank);
    all[1] = scalar_type(TD_BOOL, s->condition_rank);
    for (size_t i = 0; i < s->n_carried; i++) all[2 + i] = *in->inputs[2 + i];
    TD_TRY(td_infer_body(in, s->body, all, s->feeds, outputs));
    if (outputs[0].kind != TD_VALUE_TENSOR || outputs[0].tensor.dtype != TD_BOOL)
        return td_infer_fail(in, "its body's condition is no bool tensor");
    for (size_t k = 0; k < in->n_outputs; k++) {
        td_value *type = &s->types[k];
        *type = outputs[1 + k];
        if (k < s->n_carried) {
            td_type_join(type, in->inputs[2 + k]); /* with no iteration it is the input */
        } else {
            if (type->kind != TD_VALUE_TENSOR)
                return td_infer_fail(in, "scan output %zu of its body is no tensor", k - s->n_carried);
            if (!td_stack_shape(&outputs[1 + k].tensor.shape, 0, TD_DIM_UNKNOWN, &type->tensor.shape))
                return td_infer_fail(in, "scan output %zu has more than %d dimensions", k - s->n_carried,
                                     (int)TD_MAX_RANK);
        }
        if (!in->outputs[k]) continue;
        *in->outputs[k] = *type;
        in->outputs[k]->tensor.buffer = NULL;
    }
    return TREADLE_OK;
}

static treadle_status loop_infer(td_infer *in) {
    const loop_state *s = in->state;

    if (!in->at_open) return TREADLE_OK;
    td_value *all = td_alloc_zero(s->n_carried + 3 + in->n_outputs, sizeof *all);
    if (!all) return td_fail_memory(in->err, "a loop's types", in->n_outputs * sizeof *all);
    treadle_status status = infer_types(in, all);
    td_free(all);
    return status;
}

typedef struct looping {
    td_run *r;
    td_body_run *b;
    td_stack *stacks;
    int64_t most; /* iterations */
} looping;

static treadle_status begin(looping *l) {
    td_run *r = l->r;
    const loop_state *s = r->state;
    bool *skip = td_run_scratch(r, r->n_outputs + 1);
    l->stacks = td_run_scratch(r, s->n_scan * sizeof *l->stacks);

    if (!skip || !l->stacks) return TREADLE_OUT_OF_MEMORY;
    for (size_t k = 0; k <= r->n_outputs; k++) skip[k] = k > s->n_carried && !r->out_values[k - 1];
    for (size_t k = 0; k < s->n_scan; k++) l->stacks[k] = (td_stack){.k = 1 + s->n_carried + k, .i = s->n_carried + k};
    TD_TRY(td_body_begin(r, s->body, skip, &l->b));
    for (size_t i = 0; i < s->n_carried; i++) td_body_set(l->b, 2 + i, r->in_values[2 + i]);
    return TREADLE_OK;
}

/* Memory for all iterations if these are few, else for what fits into a moderate size. */
static int64_t first_room(const looping *l, size_t k) {
    const td_value *v = td_body_result(l->b, k);
    size_t bytes;
    if (v->kind != TD_VALUE_TENSOR || !td_tensor_bytes(&v->tensor, &bytes)) return 1;
    return TD_MIN(l->most, (int64_t)TD_MAX(FIRST_ROOM_BYTES / TD_MAX(bytes, (size_t)1), (size_t)16));
}

static treadle_status iterate(looping *l, int64_t at, bool *condition) {
    td_run *r = l->r;
    const loop_state *s = r->state;

    td_body_set_scalar(l->b, 0, TD_INT64, s->iteration_rank, at);
    td_body_set_scalar(l->b, 1, TD_BOOL, s->condition_rank, *condition);
    for (size_t k = 0; k < s->n_scan; k++)
        if (r->out_values[s->n_carried + k]) td_stack_bind(&l->stacks[k], l->b, at);
    TD_TRY(td_body_step(l->b));
    const td_value *next = td_body_result(l->b, 0);
    if (next->kind != TD_VALUE_TENSOR || td_tensor_count(&next->tensor) != 1)
        return td_run_fail(r, "its body's condition is no single value");
    *condition = *(const bool *)next->tensor.data;
    for (size_t k = 0; k < s->n_scan; k++)
        if (r->out_values[s->n_carried + k])
            TD_TRY(td_stack_put(&l->stacks[k], r, l->b, at, at ? 0 : first_room(l, l->stacks[k].k)));
    return td_body_carry(l->b, 1, 2, s->n_carried);
}

static treadle_status read_scalar(td_run *r, size_t i, const char *what, const void **out) {
    const td_tensor *t = i < r->n_inputs ? r->in[i] : NULL;
    *out = t ? t->data : NULL;
    if (!t || td_tensor_count(t) == 1) return TREADLE_OK;
    return td_run_fail(r, "%s has %lld elements; expected 1", what, (long long)td_tensor_count(t));
}

static treadle_status loop_run(td_run *r) {
    const loop_state *s = r->state;
    looping l = {.r = r};
    const void *trips, *given;
    TD_TRY(read_scalar(r, 0, "the trip count", &trips));
    TD_TRY(read_scalar(r, 1, "the condition", &given));
    l.most = trips ? *(const int64_t *)trips : INT64_MAX;
    bool condition = given ? *(const bool *)given : true;
    TD_TRY(begin(&l));
    for (int64_t at = 0; at < l.most && condition; at++) TD_TRY(iterate(&l, at, &condition));
    for (size_t i = 0; i < s->n_carried; i++)
        if (r->out_values[i]) TD_TRY(td_body_give_formal(l.b, 2 + i, i));
    for (size_t k = 0; k < s->n_scan; k++)
        if (r->out_values[s->n_carried + k]) TD_TRY(td_stack_end(&l.stacks[k], r, &s->types[s->n_carried + k]));
    return TREADLE_OK;
}

const td_op_impl td_op_loop = {.state_bytes = sizeof(loop_state),
                               .prepare = loop_prepare,
                               .infer = loop_infer,
                               .run = loop_run,
                               .flags = TD_OP_VALUES};
