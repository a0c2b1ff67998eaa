/* pass/tidy.c - nodes that do nothing are bypassed, nodes that nobody listens to are removed. */
#include "light/pass.h"

#include "tensor/half.h"

static const td_onnx_attr *attr_of(const td_node *node, const char *name) {
    for (size_t i = 0; i < node->n_attrs; i++)
        if (td_str_is(node->attrs[i].name, name)) return &node->attrs[i];
    return NULL;
}

/* One shape at open and in every run: all dimensions are numbers or symbols, pairwise the same. */
static bool same_shape(const td_shape *a, const td_shape *b) {
    if (a->rank < 0 || a->rank != b->rank) return false;
    for (int d = 0; d < a->rank; d++)
        if (a->dims[d] == TD_DIM_UNKNOWN || a->dims[d] != b->dims[d]) return false;
    return true;
}

static bool is_identity_transpose(const td_node *node) {
    const td_onnx_attr *perm = attr_of(node, "perm");
    if (!perm || perm->type != TD_ONNX_ATTR_INTS) return false;
    for (size_t i = 0; i < perm->n; i++)
        if (perm->ints[i] != (int64_t)i) return false;
    return true;
}

/* Dropout outside training: the mask unused and training_mode absent or constantly false. */
static bool is_idle_dropout(const td_graph *g, const td_node *node) {
    if (node->n_out > 1 && node->out[1] != TD_NO_VALUE && td_graph_value(g, node->out[1])->n_uses) return false;
    if (node->opset < 7) return attr_of(node, "is_test") && attr_of(node, "is_test")->i;
    if (node->n_in < 3 || node->in[2] == TD_NO_VALUE) return true;
    if (!td_graph_is_constant(g, node->in[2])) return false;
    const td_tensor *training = &td_graph_value(g, node->in[2])->type.tensor;
    return td_tensor_count(training) == 1 && td_load_i64(training->dtype, training->data, 0) == 0;
}

static bool does_nothing(const td_graph *g, const td_node *node) {
    if (node->domain.n || node->n_in == 0 || node->in[0] == TD_NO_VALUE || node->out[0] == TD_NO_VALUE) return false;
    const td_ir_value *from = td_graph_value(g, node->in[0]), *to = td_graph_value(g, node->out[0]);
    const td_tensor *a = &from->type.tensor, *b = &to->type.tensor;
    if (from->type.kind != TD_VALUE_TENSOR || to->type.kind != TD_VALUE_TENSOR || from->may_be_absent) return false;
    if (a->dtype == TD_UNDEFINED || a->dtype != b->dtype) return false;
    if (td_node_is(node, "", "Identity") || td_node_is(node, "", "OptionalGetElement") ||
        td_node_is(node, "", "Cast") || td_node_is(node, "", "CastLike"))
        return true;
    if (td_node_is(node, "", "Dropout")) return is_idle_dropout(g, node);
    if (td_node_is(node, "", "Transpose")) return is_identity_transpose(node);
    if (td_node_is(node, "", "Concat")) return node->n_in == 1;
    if (td_node_is(node, "", "Reshape") || td_node_is(node, "", "Expand") || td_node_is(node, "", "Flatten") ||
        td_node_is(node, "", "Squeeze") || td_node_is(node, "", "Unsqueeze"))
        return same_shape(&a->shape, &b->shape);
    return false;
}

treadle_status td_pass_tidy(td_pass_ctx *p) {
    td_graph *g = p->graph;
    for (size_t i = 0; i < g->nodes.n; i++) {
        td_node *node = g->nodes.items[i];
        if (!node->op || !does_nothing(g, node)) continue;
        td_graph_replace_uses(g, node->out[0], node->in[0]);
        td_resolve_release_node(node);
        node->removed = true;
    }
    td_graph_compact(g);
    td_pass_drop_dead(p);
    return TREADLE_OK;
}

void td_pass_drop_dead(td_pass_ctx *p) {
    td_graph *g = p->graph;
    for (size_t i = g->nodes.n; i-- > 0;) { /* backwards: what fed only dead nodes is dead too */
        td_node *node = g->nodes.items[i];
        bool used = node->n_out == 0;
        for (size_t k = 0; k < node->n_out && !used; k++)
            used = node->out[k] != TD_NO_VALUE && td_graph_value(g, node->out[k])->n_uses > 0;
        if (used) continue;
        for (size_t k = 0; k < node->n_in; k++)
            if (node->in[k] != TD_NO_VALUE) td_graph_value(g, node->in[k])->n_uses--;
        td_resolve_release_node(node);
        node->removed = true;
    }
}
