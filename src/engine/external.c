/* engine/external.c - external data of a graph lies inside its folder: checked for engines that read it by themselves. */
#include "base/file.h"
#include "engine/engine.h"

typedef struct checker {
    const char *dir;
    td_str last; /* the location that was checked latest: most tensors share one */
    td_arena *arena;
    treadle_error *err;
} checker;

static treadle_status check_graph(checker *c, const td_onnx_graph *graph);

static treadle_status check_tensors(checker *c, const td_onnx_tensor *tensors, size_t n) {
    char *path;
    for (size_t i = 0; i < n; i++) {
        if (!tensors[i].is_external || td_str_equal(tensors[i].location, c->last)) continue;
        treadle_status status = td_path_resolve_inside(c->arena, c->dir, tensors[i].location, &path, c->err);
        if (status != TREADLE_OK) {
            td_error_context(c->err, "external data of tensor \"%.*s\"", TD_STR_ARGS(tensors[i].name));
            return status;
        }
        c->last = tensors[i].location;
    }
    return TREADLE_OK;
}

static treadle_status check_nodes(checker *c, const td_onnx_node *nodes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < nodes[i].n_attrs; k++) {
            const td_onnx_attr *a = &nodes[i].attrs[k];
            if (a->t) TD_TRY(check_tensors(c, a->t, 1));
            if (a->sparse) TD_TRY(check_tensors(c, &a->sparse->values, 1));
            if (a->sparse) TD_TRY(check_tensors(c, &a->sparse->indices, 1));
            if (a->g) TD_TRY(check_graph(c, a->g));
            if (a->tensors) TD_TRY(check_tensors(c, a->tensors, a->n));
            for (size_t g = 0; a->graphs && g < a->n; g++) TD_TRY(check_graph(c, &a->graphs[g]));
        }
    }
    return TREADLE_OK;
}

static treadle_status check_graph(checker *c, const td_onnx_graph *graph) {
    TD_TRY(check_tensors(c, graph->initializers, graph->n_initializers));
    for (size_t i = 0; i < graph->n_sparse_initializers; i++) {
        TD_TRY(check_tensors(c, &graph->sparse_initializers[i].values, 1));
        TD_TRY(check_tensors(c, &graph->sparse_initializers[i].indices, 1));
    }
    return check_nodes(c, graph->nodes, graph->n_nodes);
}

treadle_status td_signature_check_external(const td_signature *signature, treadle_error *err) {
    const td_onnx_model *m = signature->model;
    td_arena arena = {0};
    checker c = {.dir = td_path_dir(&arena, m->path), .arena = &arena, .err = err};
    treadle_status status = c.dir ? check_graph(&c, &m->graph) : td_fail_memory(err, "a path", strlen(m->path));
    for (size_t i = 0; status == TREADLE_OK && i < m->n_functions; i++)
        status = check_nodes(&c, m->functions[i].nodes, m->functions[i].n_nodes);
    td_arena_free(&arena);
    return status;
}
