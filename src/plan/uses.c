/* plan/uses.c - which nodes take a graph's inputs. One walk over the graph serves every question about use: roles, the
 * axis that a cache grows along, windows, what may be written in place. */
#include "plan/build.h"

enum { MAX_DEPTH = 8 }; /* of subgraphs */

typedef struct walk {
    td_map inputs;
    TD_VEC(td_use) uses;
    int32_t *first;
    bool failed;
} walk;

static void walk_nodes(walk *w, const td_onnx_node *nodes, size_t n, int depth) {
    for (size_t i = 0; i < n && !w->failed; i++) {
        const td_onnx_node *node = &nodes[i];
        for (size_t slot = 0; slot < node->n_inputs; slot++) {
            uint64_t input;
            if (!node->inputs[slot].n || !td_map_get(&w->inputs, node->inputs[slot], &input)) continue;
            td_use use = {node, (uint32_t)slot, w->first[input]};
            if (!td_vec_push(&w->uses, use)) w->failed = true;
            else w->first[input] = (int32_t)w->uses.n - 1;
        }
        for (size_t a = 0; a < node->n_attrs && depth < MAX_DEPTH; a++) {
            const td_onnx_attr *attr = &node->attrs[a];
            if (attr->g) walk_nodes(w, attr->g->nodes, attr->g->n_nodes, depth + 1);
            for (size_t g = 0; attr->type == TD_ONNX_ATTR_GRAPHS && g < attr->n; g++)
                walk_nodes(w, attr->graphs[g].nodes, attr->graphs[g].n_nodes, depth + 1);
        }
    }
}

bool td_uses_find(const td_signature *signature, td_arena *arena, td_uses *out) {
    walk w = {.first = TD_ARENA_ARRAY(arena, int32_t, signature->n_inputs)};
    w.failed = !w.first || !td_map_reserve(&w.inputs, signature->n_inputs);
    for (size_t i = 0; i < signature->n_inputs && !w.failed; i++) {
        w.first[i] = -1;
        w.failed = !td_map_set(&w.inputs, signature->inputs[i].name, i);
    }
    if (!w.failed) walk_nodes(&w, signature->model->graph.nodes, signature->model->graph.n_nodes, 0);
    td_use *items = w.failed ? NULL : TD_ARENA_ARRAY(arena, td_use, w.uses.n);
    if (items && w.uses.n) memcpy(items, w.uses.items, w.uses.n * sizeof *items);
    td_vec_free(&w.uses);
    td_map_free(&w.inputs);
    *out = (td_uses){items, w.first};
    return items != NULL;
}

bool td_use_is(const td_use *use, const char *domain, const char *op_type) {
    return td_str_is(use->node->op_type, op_type) && td_str_is(use->node->domain, domain);
}
