/* pass/fuse_int8.c - an 8-bit product that is brought to float32 at once becomes one node:
 *
 *     Add(Mul(Cast(MatMulInteger(a, b, za, zb)), Mul(scale_a, scale_b)), bias)
 *  -> com.microsoft MatMulIntegerToFloat(a, b, scale_a, scale_b, za, zb, bias)
 *
 * as quantising exporters write dynamically quantised layers. scale_a is one number, scale_b and bias, if any, constants of
 * one number or of one for each column. Sums are scaled and biased as they leave the kernel, with the same bits. */
#include "light/pass.h"

typedef struct chain {
    td_node *product, *cast, *scale, *scales, *add; /* add may be NULL; scales stays, others may read it */
    int32_t scale_a, scale_b, bias;
} chain;

static td_node *producer_of(const td_graph *g, int32_t id, const char *op) {
    td_node *node = id == TD_NO_VALUE ? NULL : td_graph_producer(g, id);
    return node && !node->removed && node->op && td_node_is(node, "", op) ? node : NULL;
}

static bool is_one_number(const td_graph *g, int32_t id) {
    const td_tensor *t = &td_graph_value(g, id)->type.tensor;
    return t->dtype == TD_FLOAT && (t->shape.rank == 0 || (t->shape.rank == 1 && t->shape.dims[0] == 1));
}

/* A constant of one number, or n of them. */
static bool is_per_column(const td_graph *g, int32_t id, int64_t n, bool one_will_do) {
    const td_tensor *t = &td_graph_value(g, id)->type.tensor;
    if (id == TD_NO_VALUE || !td_graph_is_constant(g, id) || t->dtype != TD_FLOAT) return false;
    return (one_will_do && is_one_number(g, id)) || (t->shape.rank == 1 && t->shape.dims[0] == n);
}

/* Columns of the product; -1: not known, or it has none. */
static int64_t columns_of(const td_graph *g, const td_node *product) {
    const td_shape *a = &td_graph_value(g, product->in[0])->type.tensor.shape,
                   *b = &td_graph_value(g, product->in[1])->type.tensor.shape;
    return a->rank >= 1 && b->rank >= 2 ? b->dims[b->rank - 1] : -1;
}

/* The zero point of A is one number, or there is none. */
static bool has_plain_zero(const td_graph *g, const td_node *product) {
    if (product->n_in < 3 || product->in[2] == TD_NO_VALUE) return true;
    const td_shape *s = &td_graph_value(g, product->in[2])->type.tensor.shape;
    return s->rank == 0 || (s->rank == 1 && s->dims[0] == 1);
}

/* scales = scale_a * scale_b, in either order. */
static bool find_scales(const td_graph *g, int32_t id, int64_t n, chain *c) {
    c->scales = producer_of(g, id, "Mul");
    for (int side = 0; c->scales && side < 2; side++) {
        c->scale_a = c->scales->in[side];
        c->scale_b = c->scales->in[1 - side];
        if (is_one_number(g, c->scale_a) && is_per_column(g, c->scale_b, n, true)) return true;
    }
    return false;
}

/* The only node that reads the only output of `from`, if it is that op. */
static td_node *only_reader(const td_graph *g, const td_node *from, size_t at, const char *op) {
    if (!td_pass_single_use(g, from->out[0])) return NULL;
    for (size_t i = at + 1; i < g->nodes.n; i++) {
        td_node *node = g->nodes.items[i];
        for (size_t k = 0; k < node->n_in; k++)
            if (node->in[k] == from->out[0])
                return !node->removed && node->op && td_node_is(node, "", op) ? node : NULL;
    }
    return NULL;
}

static bool find_chain(const td_graph *g, size_t at, chain *c) {
    *c = (chain){.product = g->nodes.items[at], .bias = TD_NO_VALUE};
    if (c->product->removed || !c->product->op || !td_node_is(c->product, "", "MatMulInteger")) return false;
    int64_t n = columns_of(g, c->product);
    if (n < 1 || !has_plain_zero(g, c->product)) return false;
    c->cast = only_reader(g, c->product, at, "Cast");
    if (!c->cast || td_graph_value(g, c->cast->out[0])->type.tensor.dtype != TD_FLOAT) return false;
    c->scale = only_reader(g, c->cast, at, "Mul");
    if (!c->scale) return false;
    int32_t scales = c->scale->in[c->scale->in[0] == c->cast->out[0]];
    if (!find_scales(g, scales, n, c)) return false;
    c->add = only_reader(g, c->scale, at, "Add");
    if (!c->add) return true;
    c->bias = c->add->in[c->add->in[0] == c->scale->out[0]];
    if (!is_per_column(g, c->bias, n, false)) {
        c->add = NULL;
        c->bias = TD_NO_VALUE;
    }
    return true;
}

static void remove_node(td_node *node) {
    if (!node) return;
    td_resolve_release_node(node);
    node->removed = true;
}

/* The new node stands where the chain ends: there all that it reads is ready. */
static treadle_status fuse(td_pass_ctx *p, const chain *c) {
    td_graph *g = p->graph;
    const td_node *last = c->add ? c->add : c->scale, *product = c->product;
    td_node *node = td_graph_new_node(g, 7, 1);
    size_t at = 0;

    if (!node) return td_fail_memory(p->err, "fusing a product", 0);
    while (g->nodes.items[at] != last) at++;
    node->name = product->name;
    node->domain = TD_STR("com.microsoft");
    node->op_type = TD_STR("MatMulIntegerToFloat");
    node->opset = 1;
    node->op = td_op_find(node->domain, node->op_type, 1);
    node->schema = td_schema_find(node->domain, node->op_type, 1);
    node->in[0] = product->in[0];
    node->in[1] = product->in[1];
    node->in[2] = c->scale_a;
    node->in[3] = c->scale_b;
    for (size_t i = 2; i < product->n_in && i < 4; i++) node->in[i + 2] = product->in[i];
    node->in[6] = c->bias;
    node->out[0] = last->out[0];
    td_node *gone[] = {c->product, c->cast, c->scale, c->add};
    for (size_t i = 0; i < TD_COUNT(gone); i++) remove_node(gone[i]);
    g->nodes.items[at] = node;
    return td_pass_resolve(p, node);
}

treadle_status td_pass_fuse_int8(td_pass_ctx *p) {
    td_graph *g = p->graph;
    chain c;
    for (size_t i = 0; i < g->nodes.n; i++)
        if (find_chain(g, i, &c)) TD_TRY(fuse(p, &c));
    td_pass_drop_dead(p);
    return TREADLE_OK;
}
