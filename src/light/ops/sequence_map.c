/* light/ops/sequence_map.c - SequenceMap. Source: ONNX op text. The body runs once an item; sequences give their items,
 * tensors stay as they are. */
#include "base/alloc.h"
#include "light/body.h"
#include "light/ops/sequence.h"

typedef struct map_state {
    size_t body;
} map_state;

static treadle_status map_prepare(td_prepare *p) {
    map_state *s = p->state;
    size_t n_formals, n_outputs;

    if (!td_body_find(p, "body", &s->body, &n_formals, &n_outputs))
        return td_bad_node(p, "attribute \"body\" holds no graph");
    if (n_formals != p->n_inputs || n_outputs != p->n_outputs)
        return td_bad_node(p, "its body has %zu inputs and %zu outputs; expected %zu and %zu", n_formals, n_outputs,
                           p->n_inputs, p->n_outputs);
    return TREADLE_OK;
}

static treadle_status infer_types(td_infer *in, td_value *all) {
    const map_state *s = in->state;
    td_value *results = all + in->n_inputs;

    if (in->inputs[0]->kind != TD_VALUE_SEQUENCE) return td_infer_fail(in, "input 0 is no sequence");
    for (size_t i = 0; i < in->n_inputs; i++) {
        all[i] = *in->inputs[i];
        if (all[i].kind == TD_VALUE_SEQUENCE) all[i].tensor.shape.rank = -1;
        all[i].kind = TD_VALUE_TENSOR;
    }
    TD_TRY(td_infer_body(in, s->body, all, NULL, results));
    for (size_t k = 0; k < in->n_outputs; k++) {
        if (results[k].kind != TD_VALUE_TENSOR) return td_infer_fail(in, "output %zu of its body is no tensor", k);
        TD_TRY(td_sequence_type(in, k, results[k].tensor.dtype));
    }
    return TREADLE_OK;
}

static treadle_status map_infer(td_infer *in) {
    if (!in->at_open) return TREADLE_OK;
    td_value *all = td_alloc_zero(in->n_inputs + in->n_outputs, sizeof *all);
    if (!all) return td_fail_memory(in->err, "the types of a subgraph", in->n_inputs * sizeof *all);
    treadle_status status = infer_types(in, all);
    td_free(all);
    return status;
}

static treadle_status map_item(td_run *r, td_body_run *b, size_t at) {
    for (size_t i = 0; i < r->n_inputs; i++) {
        const td_value *v = r->in_values[i];
        td_body_set(b, i, v->kind == TD_VALUE_SEQUENCE ? &v->sequence->items[at] : v);
    }
    TD_TRY(td_body_step(b));
    for (size_t k = 0; k < r->n_outputs; k++)
        if (r->out_values[k] && !td_value_copy(&r->out_values[k]->sequence->items[at], td_body_result(b, k)))
            return td_fail_memory(r->err, "an item", 0);
    return TREADLE_OK;
}

static treadle_status map_run(td_run *r) {
    const map_state *s = r->state;
    td_body_run *b;
    bool *skip = td_run_scratch(r, r->n_outputs);
    if (!skip) return TREADLE_OUT_OF_MEMORY;
    if (r->in_values[0]->kind != TD_VALUE_SEQUENCE) return td_run_fail(r, "input 0 is no sequence");
    size_t n = r->in_values[0]->sequence->n;
    for (size_t i = 1; i < r->n_inputs; i++)
        if (r->in_values[i]->kind == TD_VALUE_SEQUENCE && r->in_values[i]->sequence->n != n)
            return td_run_fail(r, "input %zu has %zu items where input 0 has %zu", i, r->in_values[i]->sequence->n, n);
    for (size_t k = 0; k < r->n_outputs; k++) {
        skip[k] = !r->out_values[k];
        if (skip[k]) continue;
        *r->out_values[k] = (td_value){.kind = TD_VALUE_SEQUENCE, .sequence = td_sequence_new(n)};
        if (r->out_values[k]->sequence) continue;
        r->out_values[k]->kind = TD_VALUE_NONE;
        return td_fail_memory(r->err, "a sequence", n * sizeof(td_value));
    }
    TD_TRY(td_body_begin(r, s->body, skip, &b));
    for (size_t at = 0; at < n; at++) TD_TRY(map_item(r, b, at));
    return TREADLE_OK;
}

const td_op_impl td_op_sequence_map = {.state_bytes = sizeof(map_state),
                                       .prepare = map_prepare,
                                       .infer = map_infer,
                                       .run = map_run,
                                       .flags = TD_OP_VALUES};
