/* light/infer.c - the usual answers of an op's infer (op.h). All tolerate unknown ranks and dimensions at open. */
#include "light/resolve.h"
#include "tensor/half.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

treadle_status td_infer_set(td_infer *in, size_t output, td_dtype dtype, const td_shape *shape) {
    td_value *out = output < in->n_outputs ? in->outputs[output] : NULL;
    if (!out) return TREADLE_OK;
    out->kind = TD_VALUE_TENSOR;
    out->tensor.dtype = dtype;
    if (&out->tensor.shape != shape) out->tensor.shape = *shape;
    return TREADLE_OK;
}

treadle_status td_infer_same(td_infer *in, size_t output, size_t input) {
    if (input >= in->n_inputs || in->inputs[input]->kind != TD_VALUE_TENSOR)
        return td_infer_fail(in, "input %zu is absent; expected a tensor", input);
    const td_tensor *from = &in->inputs[input]->tensor;
    return td_infer_set(in, output, from->dtype, &from->shape);
}

treadle_status td_infer_unknown(td_infer *in, size_t output, td_dtype dtype, int rank) {
    td_shape shape = {.rank = rank};
    for (int i = 0; i < rank; i++) shape.dims[i] = TD_DIM_UNKNOWN;
    return td_infer_set(in, output, dtype, &shape);
}

treadle_status td_infer_broadcast(td_infer *in, size_t output, td_dtype dtype, size_t n_inputs_from_0) {
    td_shape all = {.rank = 0};
    for (size_t i = 0; i < n_inputs_from_0 && i < in->n_inputs; i++) {
        if (in->inputs[i]->kind != TD_VALUE_TENSOR) continue;
        const td_shape *shape = &in->inputs[i]->tensor.shape;
        if (i == 0) {
            all = *shape;
        } else if (all.rank < 0 || shape->rank < 0) {
            all.rank = -1;
        } else {
            td_shape sum;
            if (!td_shape_broadcast(&all, shape, &sum)) return td_infer_fail(in, "the shapes do not broadcast");
            all = sum;
        }
    }
    return td_infer_set(in, output, dtype, &all);
}

treadle_status td_infer_axis(td_infer *in, int64_t axis, int rank, int *out) {
    if (axis < -rank || axis >= rank)
        return td_infer_fail(in, "axis %lld is out of range; expected -%d..%d", (long long)axis, rank, rank - 1);
    *out = (int)(axis < 0 ? axis + rank : axis);
    return TREADLE_OK;
}

treadle_status td_infer_ints(td_infer *in, size_t input, int64_t out[TD_MAX_RANK], int *n, bool *known) {
    return td_infer_list(in, input, out, TD_MAX_RANK, n, known);
}

treadle_status td_infer_list(td_infer *in, size_t input, int64_t *out, int most, int *n, bool *known) {
    *n = 0;
    *known = false;
    if (input >= in->n_inputs || in->inputs[input]->kind != TD_VALUE_TENSOR)
        return td_infer_fail(in, "input %zu is absent; expected a list of integers", input);
    const td_tensor *t = &in->inputs[input]->tensor;
    if (t->dtype != TD_INT64 && t->dtype != TD_INT32)
        return td_infer_fail(in, "input %zu is %s; expected int32 or int64", input, td_dtype_name(t->dtype));
    if (t->shape.rank > 1) return td_infer_fail(in, "input %zu has rank %d; expected a list", input, t->shape.rank);
    if (!t->data || !td_shape_known(&t->shape)) return TREADLE_OK;
    int64_t count = t->shape.rank == 0 ? 1 : t->shape.dims[0];
    int64_t stride = t->shape.rank == 0 ? 0 : t->strides[0];
    if (count > most)
        return td_infer_fail(in, "input %zu has %lld entries; at most %d are supported", input, (long long)count, most);
    for (int64_t i = 0; i < count; i++) out[i] = td_load_i64(t->dtype, t->data, i * stride);
    *n = (int)count;
    *known = true;
    return TREADLE_OK;
}

bool td_infer_sizes(const td_infer *in, size_t input, int64_t out[TD_MAX_RANK], int *n) {
    const td_resolver *r = in->build;
    td_known known;
    if (!in->at_open || input >= in->n_inputs || !td_known_of(r->graph, in->node->in[input], &known)) return false;
    *n = known.n;
    memcpy(out, known.v, (size_t)known.n * sizeof *out);
    return true;
}

/* "; inputs float32[2, 3], int64[2]" */
static void describe_inputs(const td_value *const *inputs, size_t n, char *out, size_t out_bytes) {
    size_t used = 0;
    out[0] = 0;
    for (size_t i = 0; i < n && i < 6 && used < out_bytes; i++) {
        char one[192];
        td_value_describe(inputs[i], one, sizeof one);
        int more = snprintf(out + used, out_bytes - used, "%s%s", i ? ", " : "; inputs ", one);
        used += more > 0 ? (size_t)more : 0;
    }
    if (n > 6 && used < out_bytes) snprintf(out + used, out_bytes - used, ", ...");
}

treadle_status td_infer_fail(td_infer *in, const char *format, ...) {
    char node[320], text[512], inputs[700];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    td_node_describe(in->node, node, sizeof node);
    describe_inputs(in->inputs, in->n_inputs, inputs, sizeof inputs);
    return td_fail(in->err, in->at_open ? TREADLE_FORMAT : TREADLE_RUN, "%s: %s%s", node, text, inputs);
}
