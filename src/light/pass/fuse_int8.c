/* pass/fuse_int8.c - an 8-bit product that is brought to float32 at once becomes one node:
 *
 *     Add(Mul(Cast(MatMulInteger(a, b, za, zb)), Mul(scale_a, scale_b)), bias)
 *  -> com.microsoft MatMulIntegerToFloat(a, b, scale_a, scale_b, za, zb, bias)
 *
 * as quantising exporters write dynamically quantised layers, with the same bits; and
 *
 *     Add(MatMul(DequantizeLinear(a, scale_a, za), DequantizeLinear(b, scale_b, zb)), bias)
 *
 * with constant b, the statically quantised ones: the same node, whose sums are exact where those of MatMul are
 * rounded. scale_a is one number, scale_b and bias, if any, constants of one number or of one for each column. */
#include "light/pass.h"

#include <string.h>

typedef struct chain {
    int32_t a, b, scale_a, scale_b, zero_a, zero_b, bias; /* what the new node reads; TD_NO_VALUE: none */
    td_node *product, *cast, *scale, *add;                /* what it replaces: NULL: none */
    td_node *last;
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

/* scales = scale_a * scale_b, in either order. The node stays: others may read it. */
static bool find_scales(const td_graph *g, int32_t id, int64_t n, chain *c) {
    td_node *scales = producer_of(g, id, "Mul");
    for (int side = 0; scales && side < 2; side++) {
        c->scale_a = scales->in[side];
        c->scale_b = scales->in[1 - side];
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

/* A bias that is added to what c->last gives becomes part of the chain. */
static void find_bias(const td_graph *g, size_t at, int64_t n, chain *c) {
    td_node *add = only_reader(g, c->last, at, "Add");
    int32_t bias = add ? add->in[add->in[0] == c->last->out[0]] : TD_NO_VALUE;
    if (!add || !is_per_column(g, bias, n, false)) return;
    c->bias = bias;
    c->add = c->last = add;
}

static int32_t input_of(const td_node *node, size_t i) { return i < node->n_in ? node->in[i] : TD_NO_VALUE; }

static bool find_dynamic(const td_graph *g, size_t at, chain *c) {
    td_node *product = g->nodes.items[at];
    *c = (chain){.product = product, .bias = TD_NO_VALUE};
    int64_t n = columns_of(g, product);
    if (n < 1 || !has_plain_zero(g, product)) return false;
    c->cast = only_reader(g, product, at, "Cast");
    if (!c->cast || td_graph_value(g, c->cast->out[0])->type.tensor.dtype != TD_FLOAT) return false;
    c->scale = only_reader(g, c->cast, at, "Mul");
    if (!c->scale || !find_scales(g, c->scale->in[c->scale->in[0] == c->cast->out[0]], n, c)) return false;
    c->a = product->in[0];
    c->b = product->in[1];
    c->zero_a = input_of(product, 2);
    c->zero_b = input_of(product, 3);
    c->last = c->scale;
    find_bias(g, at, n, c);
    return true;
}

/* 8-bit codes that the node brings to float32. */
static bool is_bytes(const td_graph *g, const td_node *node) {
    td_dtype from = td_graph_value(g, node->in[0])->type.tensor.dtype,
             to = td_graph_value(g, node->out[0])->type.tensor.dtype;
    return (from == TD_UINT8 || from == TD_INT8) && to == TD_FLOAT;
}

static bool has_no_attr(const td_node *node, const char *name) {
    for (size_t i = 0; i < node->n_attrs; i++)
        if (td_str_is(node->attrs[i].name, name)) return false;
    return true;
}

/* Along its columns, which are dimension 1. */
static bool is_by_column(const td_node *node) {
    for (size_t i = 0; i < node->n_attrs; i++)
        if (td_str_is(node->attrs[i].name, "axis")) return node->attrs[i].i == 1 || node->attrs[i].i == -1;
    return true;
}

static bool find_static(const td_graph *g, size_t at, chain *c) {
    enum { MOST = 32768 }; /* terms whose sum is surely an int32 */
    td_node *product = g->nodes.items[at];
    const td_node *a = producer_of(g, product->in[0], "DequantizeLinear"),
                  *b = producer_of(g, product->in[1], "DequantizeLinear");
    if (!a || !b || !is_bytes(g, a) || !is_bytes(g, b) || !has_no_attr(a, "block_size") ||
        !has_no_attr(b, "block_size"))
        return false;
    const td_shape *weights = &td_graph_value(g, b->in[0])->type.tensor.shape;
    if (!td_graph_is_constant(g, b->in[0]) || weights->rank != 2 || weights->dims[0] > MOST ||
        td_graph_value(g, product->in[0])->type.tensor.shape.rank < 1)
        return false;
    int64_t n = weights->dims[1];
    bool one = is_one_number(g, b->in[1]);
    if (n < 1 || !is_one_number(g, a->in[1]) || !is_per_column(g, b->in[1], n, true) || (!one && !is_by_column(b)))
        return false;
    *c = (chain){.a = a->in[0],
                 .b = b->in[0],
                 .scale_a = a->in[1],
                 .scale_b = b->in[1],
                 .zero_a = input_of(a, 2),
                 .zero_b = input_of(b, 2),
                 .bias = TD_NO_VALUE,
                 .product = product,
                 .last = product};
    find_bias(g, at, n, c);
    return true;
}

static bool find_chain(const td_graph *g, size_t at, chain *c) {
    const td_node *node = g->nodes.items[at];
    if (node->removed || !node->op) return false;
    if (td_node_is(node, "", "MatMulInteger")) return find_dynamic(g, at, c);
    return td_node_is(node, "", "MatMul") && find_static(g, at, c);
}

static void remove_node(td_node *node) {
    if (!node) return;
    td_resolve_release_node(node);
    node->removed = true;
}

/* The new node stands where the chain ends: there all that it reads is ready. */
static treadle_status fuse(td_pass_ctx *p, const chain *c) {
    td_graph *g = p->graph;
    td_node *node = td_graph_new_node(g, 7, 1);
    size_t at = 0;

    if (!node) return td_fail_memory(p->err, "fusing a product", 0);
    while (g->nodes.items[at] != c->last) at++;
    node->name = c->product->name;
    node->domain = TD_STR("com.microsoft");
    node->op_type = TD_STR("MatMulIntegerToFloat");
    node->opset = 1;
    node->op = td_op_find(node->domain, node->op_type, 1);
    node->schema = td_schema_find(node->domain, node->op_type, 1);
    const int32_t inputs[] = {c->a, c->b, c->scale_a, c->scale_b, c->zero_a, c->zero_b, c->bias};
    memcpy(node->in, inputs, sizeof inputs);
    node->out[0] = c->last->out[0];
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
