/* pass/inline_if.c - an If whose condition is a constant is replaced by the nodes of the branch that it takes. */
#include "base/alloc.h"
#include "light/pass.h"
#include "tensor/half.h"

enum { MAX_ROUNDS = 16 }; /* of folding that makes another condition constant; the rest stay as they are */

typedef struct inlining {
    td_pass_ctx *p;
    TD_VEC(td_node *) nodes;   /* the new order */
    TD_VEC(int32_t) stand_ins; /* per value: what is read in its place */
    bool any;
} inlining;

/* The branch that is always taken, or NULL. */
static td_body *only_branch(const td_graph *g, const td_node *node) {
    if (!node->op || !td_node_is(node, "", "If") || node->in[0] == TD_NO_VALUE) return NULL;
    if (!td_graph_is_constant(g, node->in[0])) return NULL;
    const td_tensor *condition = &td_graph_value(g, node->in[0])->type.tensor;
    if (td_tensor_count(condition) != 1) return NULL;
    const char *wanted = td_load_i64(condition->dtype, condition->data, 0) ? "then_branch" : "else_branch";
    for (size_t i = 0; i < node->n_bodies; i++)
        if (td_str_is(node->bodies[i]->attr, wanted)) return node->bodies[i];
    return NULL;
}

/* A value of the graph for each of the body: its own copies, or what it captured. NULL: out of memory. */
static int32_t *adopt_values(inlining *in, const td_node *node, const td_body *body) {
    td_graph *g = in->p->graph;
    const td_graph *from = &body->light.graph;
    int32_t *ids = TD_ARENA_ARRAY(in->p->resolver->arena, int32_t, from->values.n);
    for (size_t i = 0; ids && i < from->values.n; i++) ids[i] = TD_NO_VALUE;
    for (size_t i = 0; ids && i < from->n_inputs; i++) { /* an If's branch has no inputs but the captured ones */
        int32_t outer = node->in[body->first_captured + i];
        ids[from->inputs[i]] = outer == TD_NO_VALUE ? TD_NO_VALUE : in->stand_ins.items[outer];
    }
    for (size_t i = 0; ids && i < from->values.n; i++) {
        if (ids[i] != TD_NO_VALUE) continue;
        td_ir_value copy = *td_graph_value(from, (int32_t)i);
        copy.producer = TD_NO_NODE;
        copy.port = TD_NO_PORT;
        copy.is_output = false;
        ids[i] = (int32_t)g->values.n;
        if (g->values.n >= INT32_MAX || !td_vec_push(&g->values, copy) || !td_vec_push(&in->stand_ins, ids[i]))
            return NULL;
    }
    return ids;
}

static treadle_status inline_branch(inlining *in, td_node *node, td_body *body) {
    td_graph *from = &body->light.graph;
    int32_t *ids = adopt_values(in, node, body);
    if (!ids || !td_vec_reserve(&in->nodes, in->nodes.n + from->nodes.n))
        return td_fail_memory(in->p->err, "inlining a branch", 0);
    for (size_t i = 0; i < from->nodes.n; i++) {
        td_node *moved = from->nodes.items[i];
        for (size_t k = 0; k < moved->n_in; k++)
            if (moved->in[k] != TD_NO_VALUE) moved->in[k] = ids[moved->in[k]];
        for (size_t k = 0; k < moved->n_out; k++)
            if (moved->out[k] != TD_NO_VALUE) moved->out[k] = ids[moved->out[k]];
        in->nodes.items[in->nodes.n++] = moved;
    }
    from->nodes.n = 0;
    for (size_t k = 0; k < node->n_out; k++)
        if (node->out[k] != TD_NO_VALUE) in->stand_ins.items[node->out[k]] = ids[from->outputs[k]];
    td_resolve_release_node(node);
    node->removed = true;
    in->any = true;
    return TREADLE_OK;
}

/* One walk over the graph. *refined: the values that stand in for an If's outputs. */
static treadle_status walk(inlining *in, bool **refined) {
    td_graph *g = in->p->graph;
    if (!td_vec_reserve(&in->stand_ins, g->values.n)) return td_fail_memory(in->p->err, "inlining branches", 0);
    for (size_t i = 0; i < g->values.n; i++) in->stand_ins.items[in->stand_ins.n++] = (int32_t)i;
    for (size_t i = 0; i < g->nodes.n; i++) {
        td_node *node = g->nodes.items[i];
        for (size_t k = 0; k < node->n_in; k++)
            if (node->in[k] != TD_NO_VALUE) node->in[k] = in->stand_ins.items[node->in[k]];
        td_body *body = only_branch(g, node);
        if (body) TD_TRY(inline_branch(in, node, body));
        else if (!td_vec_push(&in->nodes, node)) return td_fail_memory(in->p->err, "inlining branches", 0);
    }
    if (!in->any) return TREADLE_OK;
    *refined = TD_ARENA_ARRAY(in->p->resolver->arena, bool, g->values.n);
    if (!*refined || !td_vec_reserve(&g->nodes, in->nodes.n)) return td_fail_memory(in->p->err, "inlining branches", 0);
    for (size_t i = 0; i < g->n_outputs; i++) g->outputs[i] = in->stand_ins.items[g->outputs[i]];
    for (size_t i = 0; i < in->stand_ins.n; i++)
        if (in->stand_ins.items[i] != (int32_t)i) (*refined)[in->stand_ins.items[i]] = true;
    g->nodes.n = 0;
    for (size_t i = 0; i < in->nodes.n; i++) g->nodes.items[g->nodes.n++] = in->nodes.items[i];
    td_graph_recount(g);
    return TREADLE_OK;
}

treadle_status td_pass_inline_if(td_pass_ctx *p) {
    treadle_status status = TREADLE_OK;
    bool again = true;
    for (int round = 0; again && round < MAX_ROUNDS && status == TREADLE_OK; round++) {
        inlining in = {.p = p};
        bool *refined = NULL;
        status = walk(&in, &refined);
        again = in.any;
        for (size_t i = 0; status != TREADLE_OK && i < in.nodes.n; i++) td_resolve_release_node(in.nodes.items[i]);
        td_vec_free(&in.nodes);
        td_vec_free(&in.stand_ins);
        if (status == TREADLE_OK && again) status = td_pass_fold_more(p, refined);
        if (status == TREADLE_OK && again) td_graph_compact(p->graph);
    }
    return status;
}
