/* light/ops/identity.c - Identity, on tensors, sequences and optionals. Source: ONNX op text. */
#include "light/op.h"

static treadle_status identity_infer(td_infer *in) {
    td_value *out = in->outputs[0];

    if (!out) return TREADLE_OK;
    out->kind = in->inputs[0]->kind;
    out->tensor.dtype = in->inputs[0]->tensor.dtype;
    out->tensor.shape = in->inputs[0]->tensor.shape;
    return TREADLE_OK;
}

static treadle_status identity_run(td_run *r) {
    const td_value *x = r->in_values[0];
    td_value *out = r->out_values[0];

    if (x->kind == TD_VALUE_TENSOR) return td_run_view(r, 0, 0, &x->tensor);
    out->kind = x->kind;
    if (x->kind == TD_VALUE_SEQUENCE) out->sequence = td_sequence_retain(x->sequence);
    return TREADLE_OK;
}

const td_op_impl td_op_identity = {
    .infer = identity_infer, .run = identity_run, .flags = TD_OP_VALUES | TD_OP_VIEW, .strided_inputs = 1};
