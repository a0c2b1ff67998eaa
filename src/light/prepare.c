/* light/prepare.c - what an op's prepare may ask (op.h): inputs as known at open, attributes, refusals, packed
 * memory. */
#include "light/packs.h"
#include "light/resolve.h"

#include <stdarg.h>
#include <stdio.h>

static const td_ir_value *input_value(const td_prepare *p, size_t i) {
    const td_resolver *r = p->build;
    if (i >= p->node->n_in || p->node->in[i] == TD_NO_VALUE) return NULL;
    return td_graph_value(r->graph, p->node->in[i]);
}

bool td_has_input(const td_prepare *p, size_t i) { return input_value(p, i) != NULL; }

bool td_has_output(const td_prepare *p, size_t i) { return i < p->node->n_out && p->node->out[i] != TD_NO_VALUE; }

td_dtype td_input_dtype(const td_prepare *p, size_t i) {
    const td_ir_value *v = input_value(p, i);
    return v ? v->type.tensor.dtype : TD_UNDEFINED;
}

const td_tensor *td_input_const(const td_prepare *p, size_t i) {
    const td_resolver *r = p->build;
    const td_ir_value *v = input_value(p, i);
    return v && td_graph_is_constant(r->graph, p->node->in[i]) ? &v->type.tensor : NULL;
}

const td_shape *td_input_shape(const td_prepare *p, size_t i) {
    const td_ir_value *v = input_value(p, i);
    return v ? &v->type.tensor.shape : NULL;
}

/* --- attributes: the node's own, else the schema's default */

static const td_onnx_attr *given(const td_prepare *p, const char *name) {
    for (size_t i = 0; i < p->node->n_attrs; i++)
        if (td_str_is(p->node->attrs[i].name, name)) return &p->node->attrs[i];
    return NULL;
}

static bool attr(const td_prepare *p, const char *name, td_onnx_attr_type type, td_onnx_attr *out) {
    const td_onnx_attr *a = given(p, name);
    if (a) *out = *a;
    return (a || td_resolve_default(p->build, p->node, name, out)) && out->type == type;
}

bool td_attr_has(const td_prepare *p, const char *name) { return given(p, name) != NULL; }

int64_t td_attr_int(const td_prepare *p, const char *name) {
    td_onnx_attr a;
    return attr(p, name, TD_ONNX_ATTR_INT, &a) ? a.i : 0;
}

float td_attr_float(const td_prepare *p, const char *name) {
    td_onnx_attr a;
    return attr(p, name, TD_ONNX_ATTR_FLOAT, &a) ? a.f : 0;
}

td_str td_attr_string(const td_prepare *p, const char *name) {
    td_onnx_attr a;
    return attr(p, name, TD_ONNX_ATTR_STRING, &a) ? a.s : (td_str){NULL, 0};
}

const int64_t *td_attr_ints(const td_prepare *p, const char *name, size_t *n) {
    td_onnx_attr a;
    bool found = attr(p, name, TD_ONNX_ATTR_INTS, &a);
    *n = found ? a.n : 0;
    return found ? a.ints : NULL;
}

const float *td_attr_floats(const td_prepare *p, const char *name, size_t *n) {
    td_onnx_attr a;
    bool found = attr(p, name, TD_ONNX_ATTR_FLOATS, &a);
    *n = found ? a.n : 0;
    return found ? a.floats : NULL;
}

const td_str *td_attr_strings(const td_prepare *p, const char *name, size_t *n) {
    td_onnx_attr a;
    bool found = attr(p, name, TD_ONNX_ATTR_STRINGS, &a);
    *n = found ? a.n : 0;
    return found ? a.strings : NULL;
}

const td_onnx_tensor *td_attr_tensor(const td_prepare *p, const char *name) {
    td_onnx_attr a;
    return attr(p, name, TD_ONNX_ATTR_TENSOR, &a) ? a.t : NULL;
}

const td_onnx_type *td_attr_type(const td_prepare *p, const char *name) {
    td_onnx_attr a;
    return attr(p, name, TD_ONNX_ATTR_TYPE_PROTO, &a) ? a.tp : NULL;
}

/* --- refusals */

treadle_status td_unsupported(const td_prepare *p, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return td_resolve_complain(p->build, p->node, text, p->err);
}

treadle_status td_bad_node(const td_prepare *p, const char *format, ...) {
    char node[320], text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    td_node_describe(p->node, node, sizeof node);
    return td_fail(p->err, TREADLE_FORMAT, "%s: %s", node, text);
}

bool td_prepare_find_packed(td_prepare *p, const char *what, void *meta, size_t meta_bytes, const void **out,
                            size_t *bytes) {
    td_resolver *r = p->build;
    bool no_memory = false;
    *out = r->packs ? td_packs_find(r->packs, r->graph, p->node, what, meta, meta_bytes, bytes, &no_memory) : NULL;
    r->no_memory |= no_memory;
    return *out != NULL;
}

treadle_status td_prepare_add_packed(td_prepare *p, const char *what, const void *meta, size_t meta_bytes, size_t bytes,
                                     void **out) {
    td_resolver *r = p->build;
    if (!r->packs) return td_fail(p->err, TREADLE_INTERNAL, "weights are packed while nodes are analysed");
    return td_packs_add(r->packs, r->graph, p->node, what, meta, meta_bytes, bytes, out, p->err);
}

treadle_status td_prepare_packed(td_prepare *p, const char *what, size_t bytes, void **out, bool *out_ready) {
    static const uint64_t nothing[8] TD_ALIGNED(64) = {0};
    const void *found;
    size_t found_bytes;
    *out_ready = true;
    if (p->analysis) { /* nobody runs this state: weights are packed once, for the final nodes */
        *out = (void *)(uintptr_t)nothing;
        return TREADLE_OK;
    }
    if (td_prepare_find_packed(p, what, NULL, 0, &found, &found_bytes) && found_bytes == bytes) {
        *out = (void *)(uintptr_t)found; /* read-only memory; a pack that is ready is not written */
        return TREADLE_OK;
    }
    *out_ready = false;
    return td_prepare_add_packed(p, what, NULL, 0, bytes, out);
}

void td_prepare_done_with(const td_prepare *p, size_t i) {
    const td_resolver *r = p->build;
    const td_tensor *t = td_input_const(p, i);
    size_t bytes;
    if (!t || !r->model || t->dtype == TD_STRING || !td_tensor_bytes(t, &bytes)) return;
    if (td_onnx_in_file(r->model, t->data, bytes)) td_mmap_drop(t->data, bytes);
}
