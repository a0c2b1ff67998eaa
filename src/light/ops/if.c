/* light/ops/if.c - If. Source: ONNX op text. The branch that is taken leaves its results where they are. */
#include "base/alloc.h"
#include "light/body.h"

typedef struct if_state {
    size_t branches[2]; /* else, then */
} if_state;

static treadle_status if_prepare(td_prepare *p) {
    static const char *const names[] = {"else_branch", "then_branch"};
    if_state *s = p->state;

    for (size_t i = 0; i < 2; i++) {
        size_t n_formals, n_outputs;
        if (!td_body_find(p, names[i], &s->branches[i], &n_formals, &n_outputs))
            return td_bad_node(p, "attribute \"%s\" holds no graph", names[i]);
        if (n_formals || n_outputs != p->n_outputs)
            return td_bad_node(p, "%s has %zu inputs and %zu outputs; expected 0 and %zu", names[i], n_formals,
                               n_outputs, p->n_outputs);
    }
    return TREADLE_OK;
}

static treadle_status join_branches(td_infer *in, td_value *then, td_value *otherwise) {
    const if_state *s = in->state;

    TD_TRY(td_infer_body(in, s->branches[0], NULL, NULL, otherwise));
    TD_TRY(td_infer_body(in, s->branches[1], NULL, NULL, then));
    for (size_t k = 0; k < in->n_outputs; k++) {
        td_value joined = then[k];
        if (!td_type_join(&joined, &otherwise[k])) {
            char a[192], b[192];
            td_value_describe(&then[k], a, sizeof a);
            td_value_describe(&otherwise[k], b, sizeof b);
            return td_infer_fail(in, "output %zu is %s in one branch and %s in the other", k, a, b);
        }
        if (in->outputs[k]) *in->outputs[k] = joined;
    }
    return TREADLE_OK;
}

static treadle_status if_infer(td_infer *in) {
    if (!in->at_open) return TREADLE_OK;
    td_value *types = td_alloc_zero(in->n_outputs * 2, sizeof *types);
    if (!types) return td_fail_memory(in->err, "the types of two branches", in->n_outputs * sizeof *types);
    treadle_status status = join_branches(in, types, types + in->n_outputs);
    td_free(types);
    return status;
}

static treadle_status if_run(td_run *r) {
    const if_state *s = r->state;
    const td_tensor *condition = r->in[0];
    bool *skip = td_run_scratch(r, r->n_outputs);
    td_body_run *b;

    if (!skip) return TREADLE_OUT_OF_MEMORY;
    if (td_tensor_count(condition) != 1)
        return td_run_fail(r, "the condition has %lld elements; expected 1", (long long)td_tensor_count(condition));
    for (size_t k = 0; k < r->n_outputs; k++) skip[k] = !r->out_values[k];
    TD_TRY(td_body_begin(r, s->branches[*(const bool *)condition->data], skip, &b));
    for (size_t k = 0; k < r->n_outputs; k++)
        if (r->out_values[k]) td_body_bind_through(b, k, k);
    TD_TRY(td_body_step(b));
    for (size_t k = 0; k < r->n_outputs; k++)
        if (r->out_values[k]) TD_TRY(td_body_give_output(b, k, k));
    return TREADLE_OK;
}

const td_op_impl td_op_if = {
    .state_bytes = sizeof(if_state), .prepare = if_prepare, .infer = if_infer, .run = if_run, .flags = TD_OP_VALUES};
