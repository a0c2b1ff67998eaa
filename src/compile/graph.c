/* compile/graph.c - see graph.h. */
#include "compile/graph.h"

#include <stdio.h>

void td_graph_init(td_graph *g, td_arena *arena) { *g = (td_graph){.arena = arena}; }

void td_graph_discard(td_graph *g) {
    td_vec_free(&g->nodes);
    td_vec_free(&g->initializers);
    td_vec_free(&g->inputs);
    td_vec_free(&g->outputs);
    td_vec_free(&g->functions);
    td_map_free(&g->names);
}

td_str td_graph_name(td_graph *g, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    td_str copy = td_arena_str(g->arena, (td_str){text, (size_t)TD_MIN(TD_MAX(n, 0), (int)sizeof text - 1)});
    g->failed |= !copy.p;
    return copy;
}

td_gnode *td_graph_add(td_graph *g, const char *domain, const char *op, td_str name) {
    td_gnode *n = TD_ARENA_NEW(g->arena, td_gnode);
    if (!n || !td_vec_push(&g->nodes, n)) {
        g->failed = true;
        return NULL;
    }
    n->node = (td_onnx_node){.name = name,
                             .op_type = td_str_from(op),
                             .domain = td_str_from(domain),
                             .inputs = n->inputs,
                             .outputs = n->outputs,
                             .attrs = n->attrs};
    n->outputs[n->node.n_outputs++] = name;
    return n;
}

void td_gnode_input(td_graph *g, td_gnode *n, td_str value) {
    if (!n || n->node.n_inputs == TD_GNODE_INPUTS) g->failed = true;
    else n->inputs[n->node.n_inputs++] = value;
}

void td_gnode_output(td_graph *g, td_gnode *n, td_str value) {
    if (!n || n->node.n_outputs == TD_GNODE_OUTPUTS) g->failed = true;
    else n->outputs[n->node.n_outputs++] = value;
}

static td_onnx_attr *add_attr(td_graph *g, td_gnode *n, const char *name, td_onnx_attr_type type) {
    if (!n || n->node.n_attrs == TD_GNODE_ATTRS) {
        g->failed = true;
        return &g->spare;
    }
    td_onnx_attr *attr = &n->attrs[n->node.n_attrs++];
    *attr = (td_onnx_attr){.name = td_str_from(name), .type = type};
    return attr;
}

void td_gnode_int(td_graph *g, td_gnode *n, const char *name, int64_t value) {
    add_attr(g, n, name, TD_ONNX_ATTR_INT)->i = value;
}
void td_gnode_float(td_graph *g, td_gnode *n, const char *name, float value) {
    add_attr(g, n, name, TD_ONNX_ATTR_FLOAT)->f = value;
}

void td_gnode_text(td_graph *g, td_gnode *n, const char *name, const char *value) {
    add_attr(g, n, name, TD_ONNX_ATTR_STRING)->s = td_str_from(value);
}

void td_gnode_ref(td_graph *g, td_gnode *n, const char *name, td_onnx_attr_type type, const char *function_attr) {
    add_attr(g, n, name, type)->ref_attr_name = td_str_from(function_attr);
}

static const int64_t *copy_ints(td_graph *g, const int64_t *values, size_t count) {
    int64_t *copy = TD_ARENA_ARRAY(g->arena, int64_t, count);
    g->failed |= !copy;
    if (copy && count) memcpy(copy, values, count * sizeof *copy);
    return copy;
}

void td_gnode_ints(td_graph *g, td_gnode *n, const char *name, const int64_t *values, size_t count) {
    const int64_t *copy = copy_ints(g, values, count);
    td_onnx_attr *attr = add_attr(g, n, name, TD_ONNX_ATTR_INTS);
    attr->ints = copy;
    attr->n = copy ? count : 0;
}

td_str td_graph_op(td_graph *g, const char *op, td_str name, td_str a, td_str b, td_str c) {
    td_gnode *n = td_graph_add(g, "", op, name);
    td_gnode_input(g, n, a);
    if (b.n || c.n) td_gnode_input(g, n, b);
    if (c.n) td_gnode_input(g, n, c);
    return name;
}

td_str td_graph_cast(td_graph *g, td_str name, td_str value, td_dtype to) {
    td_gnode *n = td_graph_add(g, "", "Cast", name);
    td_gnode_input(g, n, value);
    td_gnode_int(g, n, "to", to);
    return name;
}

void td_graph_initializer(td_graph *g, const td_onnx_tensor *tensor) {
    if (!td_vec_push(&g->initializers, *tensor) || !td_map_set(&g->names, tensor->name, 1)) g->failed = true;
}

/* A constant of `bytes` bytes kept in the arena, unless one of that name exists. */
static td_str add_constant(td_graph *g, td_str name, td_dtype dtype, int rank, int64_t count, const void *data,
                           size_t bytes) {
    if (g->failed || td_map_get(&g->names, name, NULL)) return name;
    void *copy = td_arena_alloc(g->arena, bytes, 8);
    const int64_t *dims = copy_ints(g, &count, 1);
    if (!copy || !dims) {
        g->failed = true;
        return name;
    }
    memcpy(copy, data, bytes);
    td_graph_initializer(g, &(td_onnx_tensor){.name = name,
                                              .dtype = dtype,
                                              .rank = rank,
                                              .dims = rank ? dims : NULL,
                                              .count = count,
                                              .data = copy,
                                              .data_bytes = bytes});
    return name;
}

td_str td_graph_ints(td_graph *g, const char *name, const int64_t *values, int64_t n) {
    return add_constant(g, td_graph_name(g, "%s", name), TD_INT64, 1, n, values, (size_t)n * sizeof *values);
}

td_str td_graph_int(td_graph *g, int64_t value) {
    return add_constant(g, td_graph_name(g, "int.%lld", (long long)value), TD_INT64, 0, 1, &value, sizeof value);
}

td_str td_graph_float(td_graph *g, const char *name, float value) {
    return add_constant(g, td_graph_name(g, "%s", name), TD_FLOAT, 0, 1, &value, sizeof value);
}

static td_onnx_value_info value_info(td_graph *g, td_str name, td_dtype dtype, int rank, const int64_t *dims,
                                     const char *const *names) {
    td_onnx_value_info info = {.name = name, .type = {.kind = TD_ONNX_TYPE_TENSOR, .dtype = dtype, .has_shape = true}};
    td_onnx_dim *out = TD_ARENA_ARRAY(g->arena, td_onnx_dim, (size_t)rank);
    if (!out) {
        g->failed = true;
        return info;
    }
    for (int i = 0; i < rank; i++)
        out[i] = (td_onnx_dim){dims[i] < 0 ? -1 : dims[i], dims[i] < 0 ? td_str_from(names[i]) : (td_str){NULL, 0}};
    info.type.rank = rank;
    info.type.dims = out;
    return info;
}

void td_graph_input(td_graph *g, td_str name, td_dtype dtype, int rank, const int64_t *dims, const char *const *names) {
    td_onnx_value_info info = value_info(g, name, dtype, rank, dims, names);
    if (!td_vec_push(&g->inputs, info)) g->failed = true;
}

void td_graph_output(td_graph *g, td_str name, td_dtype dtype, int rank, const int64_t *dims,
                     const char *const *names) {
    td_onnx_value_info info = value_info(g, name, dtype, rank, dims, names);
    if (!td_vec_push(&g->outputs, info)) g->failed = true;
}

const td_onnx_node *td_graph_nodes(td_graph *g) {
    td_onnx_node *nodes = TD_ARENA_ARRAY(g->arena, td_onnx_node, g->nodes.n);
    g->failed |= !nodes;
    for (size_t i = 0; nodes && i < g->nodes.n; i++) nodes[i] = g->nodes.items[i]->node;
    return nodes;
}
