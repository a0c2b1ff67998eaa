/* light/count.c - the ops of a model by count, with those that light lacks; weights are not looked at. */
#include "light/ir.h"

#include <stdlib.h>

/* Ops that the builder itself takes care of. */
static bool built_in(td_str domain, td_str name) { return !domain.n && td_str_is(name, "Constant"); }

static int by_name(const void *a, const void *b) {
    const td_light_op_count *x = a, *y = b;
    int c = td_str_compare(x->domain, y->domain);
    if (!c) c = td_str_compare(x->op_type, y->op_type);
    return c ? c : (x->since_version > y->since_version) - (x->since_version < y->since_version);
}

typedef struct counting {
    const td_onnx_model *model;
    td_map places; /* "domain\0name\0version" -> index */
    td_arena *arena;
    TD_VEC(td_light_op_count) counts;
    TD_VEC(const td_onnx_graph *) graphs; /* still to be visited */
    bool *called;                         /* per function: visited or to be visited */
} counting;

static bool count_node(counting *c, const td_onnx_node *node, int64_t opset) {
    const td_schema *schema = td_schema_find(node->domain, node->op_type, opset);
    int64_t since = schema ? schema->since_version : 0;
    char *key = td_arena_printf(c->arena, "%.*s %.*s %lld", TD_STR_ARGS(node->domain), TD_STR_ARGS(node->op_type),
                                (long long)since);
    uint64_t at;
    if (!key) return false;
    if (td_map_get(&c->places, td_str_from(key), &at)) {
        c->counts.items[at].n++;
        return true;
    }
    td_light_op_count row = {.domain = node->domain, .op_type = node->op_type, .since_version = since, .n = 1};
    row.supported = built_in(node->domain, node->op_type) || td_op_find(node->domain, node->op_type, opset) != NULL;
    return td_map_set(&c->places, td_str_from(key), c->counts.n) && td_vec_push(&c->counts, row);
}

/* Nodes that call a function of the model count as what its body holds, once per function. */
static bool count_list(counting *c, const td_onnx_node *nodes, size_t n, const td_onnx_opset *opsets, size_t n_opsets) {
    for (size_t i = 0; i < n; i++) {
        const td_onnx_node *node = &nodes[i];
        const td_onnx_function *f = NULL;
        if (c->model->n_functions && !td_graph_has_native(node->domain, node->op_type))
            f = td_onnx_find_function(c->model, node->domain, node->op_type, node->overload);
        if (f) {
            c->called[f - c->model->functions] = true;
            continue;
        }
        int64_t opset = td_onnx_opset_version(opsets, n_opsets, node->domain);
        if (!count_node(c, node, opset < 0 ? 1 : opset)) return false;
        for (size_t k = 0; k < node->n_attrs; k++) {
            const td_onnx_attr *a = &node->attrs[k];
            if (a->type == TD_ONNX_ATTR_GRAPH && a->g && !td_vec_push(&c->graphs, a->g)) return false;
            for (size_t j = 0; a->type == TD_ONNX_ATTR_GRAPHS && j < a->n; j++)
                if (!td_vec_push(&c->graphs, &a->graphs[j])) return false;
        }
    }
    return true;
}

/* With all graphs inside of them. */
static bool count_nodes(counting *c, const td_onnx_node *nodes, size_t n, const td_onnx_opset *opsets,
                        size_t n_opsets) {
    if (!count_list(c, nodes, n, opsets, n_opsets)) return false;
    while (c->graphs.n) {
        const td_onnx_graph *g = c->graphs.items[--c->graphs.n];
        if (!count_list(c, g->nodes, g->n_nodes, opsets, n_opsets)) return false;
    }
    return true;
}

static bool count_all(counting *c) {
    const td_onnx_model *m = c->model;
    bool *done = TD_ARENA_ARRAY(c->arena, bool, m->n_functions);
    c->called = TD_ARENA_ARRAY(c->arena, bool, m->n_functions);
    if (!done || !c->called) return false;
    if (!count_nodes(c, m->graph.nodes, m->graph.n_nodes, m->opsets, m->n_opsets)) return false;
    for (bool again = true; again;) {
        again = false;
        for (size_t i = 0; i < m->n_functions; i++) {
            const td_onnx_function *f = &m->functions[i];
            if (!c->called[i] || done[i]) continue;
            done[i] = again = true;
            if (!count_nodes(c, f->nodes, f->n_nodes, f->n_opsets ? f->opsets : m->opsets,
                             f->n_opsets ? f->n_opsets : m->n_opsets))
                return false;
        }
    }
    return true;
}

treadle_status td_light_count_ops(const td_onnx_model *model, td_arena *arena, td_light_op_count **out, size_t *n,
                                  treadle_error *err) {
    counting c = {.model = model, .arena = arena};
    bool ok = count_all(&c);
    if (ok) {
        *out = TD_ARENA_ARRAY(arena, td_light_op_count, c.counts.n);
        *n = c.counts.n;
        ok = *out != NULL;
        if (ok && c.counts.n) memcpy(*out, c.counts.items, c.counts.n * sizeof **out);
        if (ok) qsort(*out, c.counts.n, sizeof **out, by_name);
    }
    td_map_free(&c.places);
    td_vec_free(&c.counts);
    td_vec_free(&c.graphs);
    return ok ? TREADLE_OK : td_fail_memory(err, "counting ops", 0);
}
