/* pass/merge.c - common subexpressions: equal nodes over equal inputs are computed once. Small constants are made one
 * first, since exporters write the same shape or axis again and again. */
#include "base/map.h"
#include "light/pass.h"

enum { SMALL_CONSTANT = 256 };

static bool node_key(const td_node *node, td_buf *key) {
    td_buf_clear(key);
    td_buf_append(key, &node->n_in, sizeof node->n_in);
    td_buf_append(key, node->in, node->n_in * sizeof *node->in);
    return td_node_append_key(node, key);
}

static bool constant_key(const td_graph *g, int32_t id, td_buf *key) {
    size_t bytes;
    if (!td_graph_is_constant(g, id)) return false;
    const td_tensor *t = &td_graph_value(g, id)->type.tensor;
    if (t->dtype == TD_STRING || !td_tensor_bytes(t, &bytes) || bytes > SMALL_CONSTANT) return false;
    int64_t head[2] = {t->dtype, t->shape.rank};
    td_buf_clear(key);
    td_buf_append(key, head, sizeof head);
    td_buf_append(key, t->shape.dims, (size_t)t->shape.rank * sizeof t->shape.dims[0]);
    td_buf_append(key, t->data, bytes);
    return true;
}

/* Keys live in the graph's arena: the map borrows them. */
static bool remember(td_graph *g, td_map *map, const td_buf *key, uint64_t value) {
    td_str kept = td_arena_str(g->arena, td_buf_view(key));
    return kept.p && td_map_set(map, kept, value);
}

/* Which value stands for each: itself, or an equal one. */
typedef struct merging {
    td_map constants, nodes;
    td_buf key;
    int32_t *stand_in;
} merging;

static bool merge_inputs(td_graph *g, merging *m, td_node *node) {
    for (size_t k = 0; k < node->n_in; k++) {
        uint64_t first;
        if (node->in[k] == TD_NO_VALUE) continue;
        int32_t id = m->stand_in[node->in[k]];
        if (constant_key(g, id, &m->key)) {
            if (m->key.failed) return false;
            if (td_map_get(&m->constants, td_buf_view(&m->key), &first)) id = (int32_t)first;
            else if (!remember(g, &m->constants, &m->key, (uint64_t)id)) return false;
        }
        node->in[k] = id;
    }
    return !m->key.failed;
}

static bool can_replace(const td_node *first, const td_node *node) {
    if (first->n_out < node->n_out) return false;
    for (size_t k = 0; k < node->n_out; k++)
        if (node->out[k] != TD_NO_VALUE && first->out[k] == TD_NO_VALUE) return false;
    return true;
}

static bool merge_node(td_graph *g, merging *m, size_t index) {
    td_node *node = g->nodes.items[index];
    uint64_t at;
    if (!node->op || (node->op->impl->flags & (TD_OP_IMPURE | TD_OP_VALUES)) || !node_key(node, &m->key))
        return !m->key.failed;
    if (m->key.failed) return false;
    if (!td_map_get(&m->nodes, td_buf_view(&m->key), &at)) return remember(g, &m->nodes, &m->key, index);
    td_node *first = g->nodes.items[at];
    if (!can_replace(first, node)) return true;
    for (size_t k = 0; k < node->n_out; k++)
        if (node->out[k] != TD_NO_VALUE) m->stand_in[node->out[k]] = first->out[k];
    td_resolve_release_node(node);
    node->removed = true;
    return true;
}

treadle_status td_pass_merge(td_pass_ctx *p) {
    td_graph *g = p->graph;
    merging m = {.stand_in = TD_ARENA_ARRAY(g->arena, int32_t, g->values.n)};
    bool ok = m.stand_in != NULL;
    for (size_t i = 0; ok && i < g->values.n; i++) m.stand_in[i] = (int32_t)i;
    for (size_t i = 0; ok && i < g->nodes.n; i++) ok = merge_inputs(g, &m, g->nodes.items[i]) && merge_node(g, &m, i);
    for (size_t i = 0; ok && i < g->n_outputs; i++) g->outputs[i] = m.stand_in[g->outputs[i]];
    td_map_free(&m.constants);
    td_map_free(&m.nodes);
    td_buf_free(&m.key);
    return ok ? TREADLE_OK : td_fail_memory(p->err, "merging equal nodes", 0);
}
