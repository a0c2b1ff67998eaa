/* onnx/visit.c - all tensors of a model. The reader bounds how deep graphs lie in one another. */
#include "onnx/model.h"

typedef struct visitor {
    bool (*visit)(void *ctx, const td_onnx_tensor *tensor);
    void *ctx;
} visitor;

static bool visit_graph(const visitor *v, const td_onnx_graph *graph);

static bool visit_sparse(const visitor *v, const td_onnx_sparse_tensor *sparse, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!v->visit(v->ctx, &sparse[i].values) || !v->visit(v->ctx, &sparse[i].indices)) return false;
    return true;
}

static bool visit_attr(const visitor *v, const td_onnx_attr *a) {
    if (a->t && !v->visit(v->ctx, a->t)) return false;
    if (a->sparse && !visit_sparse(v, a->sparse, 1)) return false;
    if (a->g && !visit_graph(v, a->g)) return false;
    for (size_t i = 0; a->tensors && i < a->n; i++)
        if (!v->visit(v->ctx, &a->tensors[i])) return false;
    for (size_t i = 0; a->graphs && i < a->n; i++)
        if (!visit_graph(v, &a->graphs[i])) return false;
    return true;
}

static bool visit_nodes(const visitor *v, const td_onnx_node *nodes, size_t n) {
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < nodes[i].n_attrs; k++)
            if (!visit_attr(v, &nodes[i].attrs[k])) return false;
    return true;
}

static bool visit_graph(const visitor *v, const td_onnx_graph *graph) {
    for (size_t i = 0; i < graph->n_initializers; i++)
        if (!v->visit(v->ctx, &graph->initializers[i])) return false;
    return visit_sparse(v, graph->sparse_initializers, graph->n_sparse_initializers) &&
           visit_nodes(v, graph->nodes, graph->n_nodes);
}

bool td_onnx_each_tensor(const td_onnx_model *model, bool (*visit)(void *ctx, const td_onnx_tensor *tensor),
                         void *ctx) {
    visitor v = {visit, ctx};
    if (!visit_graph(&v, &model->graph)) return false;
    for (size_t i = 0; i < model->n_functions; i++)
        if (!visit_nodes(&v, model->functions[i].nodes, model->functions[i].n_nodes)) return false;
    return true;
}
