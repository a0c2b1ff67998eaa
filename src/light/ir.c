/* light/ir.c - see ir.h: making and changing the graph. */
#include "light/ir.h"

#include "base/alloc.h"
#include "light/body.h"

#include <stdio.h>

const td_value td_value_none = {.kind = TD_VALUE_NONE};

void td_graph_free(td_graph *graph) {
    for (size_t i = 0; i < graph->bodies.n; i++) td_body_free(graph->bodies.items[i]);
    td_vec_free(&graph->bodies);
    td_vec_free(&graph->values);
    td_vec_free(&graph->nodes);
    td_vec_free(&graph->symbol_names);
    td_map_free(&graph->symbols);
    td_arena_free(&graph->own);
}

int32_t td_graph_add_value(td_graph *graph, td_str name) {
    td_ir_value value = {.name = name, .producer = TD_NO_NODE, .port = TD_NO_PORT};
    value.type.tensor.shape.rank = -1;
    if (graph->values.n >= INT32_MAX || !td_vec_push(&graph->values, value)) return TD_NO_VALUE;
    return (int32_t)(graph->values.n - 1);
}

int32_t td_graph_add_constant(td_graph *graph, td_str name, const td_tensor *tensor) {
    int32_t id = td_graph_add_value(graph, name);
    if (id == TD_NO_VALUE) return id;
    td_value *type = &td_graph_value(graph, id)->type;
    type->kind = TD_VALUE_TENSOR;
    type->tensor = *tensor;
    return id;
}

td_node *td_graph_new_node(td_graph *graph, size_t n_in, size_t n_out) {
    td_node *node = TD_ARENA_NEW(graph->arena, td_node);
    if (!node) return NULL;
    node->in = TD_ARENA_ARRAY(graph->arena, int32_t, n_in);
    node->out = TD_ARENA_ARRAY(graph->arena, int32_t, n_out);
    if (!node->in || !node->out) return NULL;
    node->n_in = n_in;
    node->n_out = n_out;
    for (size_t i = 0; i < n_in; i++) node->in[i] = TD_NO_VALUE;
    for (size_t i = 0; i < n_out; i++) node->out[i] = TD_NO_VALUE;
    return node;
}

int64_t td_graph_symbol(td_graph *graph, td_str name) {
    uint64_t id;
    if (td_map_get(&graph->symbols, name, &id)) return TD_DIM_SYMBOL(id);
    id = graph->symbol_names.n;
    if (!td_vec_push(&graph->symbol_names, name) || !td_map_set(&graph->symbols, name, id)) return 0;
    return TD_DIM_SYMBOL(id);
}

enum { FIRST_UNNAMED = 1 << 30 };

int64_t td_graph_unnamed_symbol(td_graph *graph) {
    if (graph->n_unnamed >= FIRST_UNNAMED) return TD_DIM_UNKNOWN;
    return TD_DIM_SYMBOL(FIRST_UNNAMED + graph->n_unnamed++);
}

td_str td_graph_symbol_name(const td_graph *graph, int64_t dim) {
    bool named = TD_DIM_IS_SYMBOL(dim) && TD_DIM_SYMBOL_ID(dim) < graph->symbol_names.n;
    return named ? graph->symbol_names.items[TD_DIM_SYMBOL_ID(dim)] : (td_str){0};
}

int32_t td_graph_root(const td_graph *graph, int32_t id) {
    for (;;) {
        const td_node *node = td_graph_producer(graph, id);
        if (!node) return TD_NO_VALUE;
        if (!(node->op->impl->flags & TD_OP_VIEW) || !node->n_in || node->in[0] == TD_NO_VALUE) return id;
        id = node->in[0];
    }
}

void td_graph_recount(td_graph *graph) {
    for (size_t i = 0; i < graph->values.n; i++) {
        td_ir_value *v = &graph->values.items[i];
        v->producer = TD_NO_NODE;
        v->n_uses = v->is_output = 0;
    }
    for (size_t i = 0; i < graph->nodes.n; i++) {
        td_node *node = graph->nodes.items[i];
        if (node->removed) continue;
        for (size_t k = 0; k < node->n_in; k++)
            if (node->in[k] != TD_NO_VALUE) td_graph_value(graph, node->in[k])->n_uses++;
        for (size_t k = 0; k < node->n_out; k++)
            if (node->out[k] != TD_NO_VALUE) td_graph_value(graph, node->out[k])->producer = (int32_t)i;
    }
    for (size_t i = 0; i < graph->n_outputs; i++) {
        td_ir_value *v = td_graph_value(graph, graph->outputs[i]);
        v->n_uses++;
        v->is_output = true;
    }
}

void td_graph_replace_uses(td_graph *graph, int32_t old, int32_t new_value) {
    for (size_t i = 0; i < graph->nodes.n; i++) {
        td_node *node = graph->nodes.items[i];
        if (node->removed) continue;
        for (size_t k = 0; k < node->n_in; k++)
            if (node->in[k] == old) node->in[k] = new_value;
    }
    for (size_t i = 0; i < graph->n_outputs; i++)
        if (graph->outputs[i] == old) graph->outputs[i] = new_value;
}

void td_graph_compact(td_graph *graph) {
    size_t n = 0;
    for (size_t i = 0; i < graph->nodes.n; i++)
        if (!graph->nodes.items[i]->removed) graph->nodes.items[n++] = graph->nodes.items[i];
    graph->nodes.n = n;
    td_graph_recount(graph);
}

static bool is_sorted(const td_graph *graph) {
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const td_node *node = graph->nodes.items[i];
        for (size_t k = 0; k < node->n_in; k++)
            if (node->in[k] != TD_NO_VALUE && td_graph_value(graph, node->in[k])->producer >= (int32_t)i) return false;
    }
    return true;
}

/* Depth-first from each node in the given order, so that what is sorted stays as it is. The stack is explicit: depth is
 * the input's to choose. */
treadle_status td_graph_sort(td_graph *graph, treadle_error *err) {
    td_graph_recount(graph);
    if (is_sorted(graph)) return TREADLE_OK;
    typedef struct frame {
        uint32_t node, next_input;
    } frame;
    size_t n = graph->nodes.n;
    uint8_t *seen = td_alloc_zero(n, 1); /* 0 new, 1 on the stack, 2 done */
    frame *stack = td_alloc_array(n, sizeof *stack);
    td_node **order = td_alloc_array(n, sizeof *order);
    treadle_status status = TREADLE_OK;
    size_t n_order = 0;
    if (!seen || !stack || !order) {
        status = td_fail_memory(err, "sorting the graph", n * sizeof *order);
        goto cleanup;
    }
    for (size_t root = 0; root < n; root++) {
        if (seen[root]) continue;
        size_t depth = 1;
        stack[0] = (frame){(uint32_t)root, 0};
        seen[root] = 1;
        while (depth) {
            frame *top = &stack[depth - 1];
            td_node *node = graph->nodes.items[top->node];
            if (top->next_input == node->n_in) {
                seen[top->node] = 2;
                order[n_order++] = node;
                depth--;
                continue;
            }
            int32_t in = node->in[top->next_input++];
            int32_t from = in == TD_NO_VALUE ? TD_NO_NODE : td_graph_value(graph, in)->producer;
            if (from == TD_NO_NODE || seen[from] == 2) continue;
            if (seen[from] == 1) {
                char text[256];
                td_node_describe(node, text, sizeof text);
                status = td_fail(err, TREADLE_FORMAT, "%s: its input \"%.*s\" depends on its own output (a cycle)",
                                 text, TD_STR_ARGS(td_graph_value(graph, in)->name));
                goto cleanup;
            }
            seen[from] = 1;
            stack[depth++] = (frame){(uint32_t)from, 0};
        }
    }
    memcpy(graph->nodes.items, order, n * sizeof *order);
    td_graph_recount(graph);
cleanup:
    td_free(seen);
    td_free(stack);
    td_free(order);
    return status;
}

/* Names come from files: only so much of them goes into messages. */
static int shown(td_str s) { return (int)TD_MIN(s.n, (size_t)120); }

void td_node_describe(const td_node *node, char *out, size_t out_bytes) {
    const char *dot = node->domain.n ? "." : "";
    snprintf(out, out_bytes, "node \"%.*s\" (%.*s%s%.*s)", shown(node->name), node->name.p ? node->name.p : "",
             shown(node->domain), node->domain.p ? node->domain.p : "", dot, shown(node->op_type),
             node->op_type.p ? node->op_type.p : "");
}

void td_value_describe(const td_value *value, char *out, size_t out_bytes) {
    char shape[128];
    if (value->kind == TD_VALUE_NONE) snprintf(out, out_bytes, "nothing");
    else if (value->kind == TD_VALUE_SEQUENCE)
        snprintf(out, out_bytes, "sequence of %zu", value->sequence ? value->sequence->n : (size_t)0);
    else
        snprintf(out, out_bytes, "%s%s", td_dtype_name(value->tensor.dtype),
                 td_shape_text(&value->tensor.shape, shape));
}

bool td_graph_has_native(td_str domain, td_str name) { return td_op_find(domain, name, INT64_MAX) != NULL; }

/* --- what a node does, as bytes */

static void append_str(td_buf *key, td_str s) {
    td_buf_append(key, &s.n, sizeof s.n);
    td_buf_str(key, s);
}

static void append_tensor(td_buf *key, const td_onnx_tensor *t) {
    int64_t head[3] = {t->dtype, t->rank, (int64_t)t->data_bytes};
    td_buf_append(key, head, sizeof head);
    td_buf_append(key, t->dims, (size_t)t->rank * sizeof *t->dims);
    td_buf_append(key, &t->data, sizeof t->data); /* by place: contents would have to be read */
}

/* false: an attribute that is not compared (graphs, types, sparse tensors). */
static bool append_attr(td_buf *key, const td_onnx_attr *a) {
    int32_t type = (int32_t)a->type;
    append_str(key, a->name);
    td_buf_append(key, &type, sizeof type);
    switch (a->type) {
    case TD_ONNX_ATTR_FLOAT: td_buf_append(key, &a->f, sizeof a->f); return true;
    case TD_ONNX_ATTR_INT: td_buf_append(key, &a->i, sizeof a->i); return true;
    case TD_ONNX_ATTR_STRING: append_str(key, a->s); return true;
    case TD_ONNX_ATTR_TENSOR: append_tensor(key, a->t); return true;
    case TD_ONNX_ATTR_FLOATS:
        td_buf_append(key, &a->n, sizeof a->n);
        td_buf_append(key, a->floats, a->n * sizeof *a->floats);
        return true;
    case TD_ONNX_ATTR_INTS:
        td_buf_append(key, &a->n, sizeof a->n);
        td_buf_append(key, a->ints, a->n * sizeof *a->ints);
        return true;
    case TD_ONNX_ATTR_STRINGS:
        td_buf_append(key, &a->n, sizeof a->n);
        for (size_t i = 0; i < a->n; i++) append_str(key, a->strings[i]);
        return true;
    default: return false;
    }
}

bool td_node_append_key(const td_node *node, td_buf *key) {
    append_str(key, node->domain);
    append_str(key, node->op_type);
    td_buf_append(key, &node->opset, sizeof node->opset);
    for (size_t i = 0; i < node->n_attrs; i++)
        if (!append_attr(key, &node->attrs[i])) return false;
    return true;
}
