/* light/ops/optional.c - Optional, OptionalGetElement, OptionalHasElement. Source: ONNX op texts. A value that is an
 * optional with something in it is that something (tensor/value.h). */
#include "light/op.h"

typedef struct optional_state {
    td_value type; /* without an input */
} optional_state;

static treadle_status optional_prepare(td_prepare *p) {
    optional_state *s = p->state;
    const td_onnx_type *type = td_attr_type(p, "type");

    if (td_has_input(p, 0)) return TREADLE_OK;
    if (type && type->kind == TD_ONNX_TYPE_OPTIONAL) type = type->elem;
    if (!type) return td_bad_node(p, "neither an input nor a type");
    bool sequence = type->kind == TD_ONNX_TYPE_SEQUENCE;
    if (sequence) type = type->elem;
    if (!type || type->kind != TD_ONNX_TYPE_TENSOR)
        return td_unsupported(p, "an optional of this type; supported are tensors and sequences of tensors");
    s->type.kind = sequence ? TD_VALUE_SEQUENCE : TD_VALUE_TENSOR;
    s->type.tensor.dtype = type->dtype;
    s->type.tensor.shape.rank = -1;
    return TREADLE_OK;
}

static treadle_status pass_type(td_infer *in, const td_value *from) {
    td_value *out = in->outputs[0];

    if (!out) return TREADLE_OK;
    out->kind = from->kind;
    out->tensor.dtype = from->tensor.dtype;
    out->tensor.shape = from->tensor.shape;
    return TREADLE_OK;
}

static treadle_status optional_infer(td_infer *in) {
    const optional_state *s = in->state;

    if (in->n_inputs == 0 || (in->at_open && s->type.kind != TD_VALUE_NONE))
        return in->at_open ? pass_type(in, &s->type) : TREADLE_OK;
    return pass_type(in, in->inputs[0]);
}

static treadle_status pass_value(td_run *r, const td_value *x) {
    td_value *out = r->out_values[0];

    if (x->kind == TD_VALUE_TENSOR) return td_run_view(r, 0, 0, &x->tensor);
    out->kind = x->kind;
    if (x->kind == TD_VALUE_SEQUENCE) out->sequence = td_sequence_retain(x->sequence);
    return TREADLE_OK;
}

static treadle_status optional_run(td_run *r) {
    if (r->n_inputs > 0) return pass_value(r, r->in_values[0]);
    r->out_values[0]->kind = TD_VALUE_NONE;
    return TREADLE_OK;
}

const td_op_impl td_op_optional = {.state_bytes = sizeof(optional_state),
                                   .prepare = optional_prepare,
                                   .infer = optional_infer,
                                   .run = optional_run,
                                   .flags = TD_OP_VALUES | TD_OP_VIEW | TD_OP_ABSENT,
                                   .strided_inputs = 1};

static treadle_status get_infer(td_infer *in) { return pass_type(in, in->inputs[0]); }

static treadle_status get_run(td_run *r) {
    if (r->in_values[0]->kind == TD_VALUE_NONE) return td_run_fail(r, "the optional is empty");
    return pass_value(r, r->in_values[0]);
}

const td_op_impl td_op_optional_get_element = {
    .infer = get_infer, .run = get_run, .flags = TD_OP_VALUES | TD_OP_VIEW, .strided_inputs = 1};

static treadle_status has_infer(td_infer *in) { return td_infer_set(in, 0, TD_BOOL, &(td_shape){.rank = 0}); }

static treadle_status has_run(td_run *r) {
    TD_TRY(td_run_alloc(r, 0, TD_BOOL, &(td_shape){.rank = 0}));
    *(bool *)r->out[0]->data = r->n_inputs > 0 && r->in_values[0]->kind != TD_VALUE_NONE;
    return TREADLE_OK;
}

const td_op_impl td_op_optional_has_element = {.infer = has_infer, .run = has_run, .flags = TD_OP_VALUES};
