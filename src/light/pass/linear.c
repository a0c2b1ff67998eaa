/* pass/linear.c - linear maps by constant weights: MatMul (or a plain Gemm) whose B is a constant behind Transpose or
 * Cast, and the Add of a constant bias behind it, become one node.
 *
 * The weights are packed from the constant itself: float16 and bfloat16 stay as they are and are widened in
 * the kernel, a transposed matrix is never made. Bits are those of the nodes apart: widening is exact, and
 * the kernel adds the bias last. */
#include "light/ops/product.h"
#include "light/pass.h"

/* --- the op: A float32 [..., k], W a matrix, bias float32 [n] or absent; attribute
 * transposed: W is [n, k], else [k, n] */

enum { IN_A, IN_W, IN_BIAS, N_INPUTS };

typedef struct linear_state {
    td_product product;
    bool transposed;
    const float *bias;
} linear_state;

static treadle_status linear_prepare(td_prepare *p) {
    linear_state *s = p->state;
    const td_tensor *bias = td_input_const(p, IN_BIAS);
    s->transposed = td_attr_int(p, "transposed") != 0;
    s->bias = bias ? bias->data : NULL;
    return td_product_prepare(p, s->transposed, &s->product);
}

/* W as MatMul's B. */
static td_tensor as_b(const linear_state *s, const td_tensor *w) {
    td_tensor b = *w;
    if (!s->transposed) return b;
    b.shape.dims[0] = w->shape.dims[1];
    b.shape.dims[1] = w->shape.dims[0];
    b.strides[0] = w->strides[1];
    b.strides[1] = w->strides[0];
    return b;
}

static treadle_status linear_infer(td_infer *in) {
    td_tensor b = as_b(in->state, &in->inputs[IN_W]->tensor);
    return td_matmul_infer(in, &in->inputs[IN_A]->tensor, &b);
}

static treadle_status linear_run(td_run *r) {
    const linear_state *s = r->state;
    td_tensor b = as_b(s, r->in[IN_W]);
    return td_matmul_run(r, &s->product, r->in[IN_A], &b, s->bias);
}

static const td_op_impl linear_impl = {.state_bytes = sizeof(linear_state),
                                       .prepare = linear_prepare,
                                       .infer = linear_infer,
                                       .run = linear_run,
                                       .strided_inputs = 1u << IN_A};
static const td_op linear_op = {"treadle.internal", "Linear", 1, &linear_impl};

/* --- what becomes one */

typedef struct linear {
    int32_t a, w, bias;
    bool transposed;
    int64_t n;
} linear;

static const td_onnx_attr *attr_of(const td_node *node, const char *name) {
    for (size_t i = 0; i < node->n_attrs; i++)
        if (td_str_is(node->attrs[i].name, name)) return &node->attrs[i];
    return NULL;
}

static bool is_float(const td_graph *g, int32_t id) {
    const td_value *type = &td_graph_value(g, id)->type;
    return type->kind == TD_VALUE_TENSOR && type->tensor.dtype == TD_FLOAT;
}

static bool swaps_two(const td_node *node) {
    const td_onnx_attr *perm = attr_of(node, "perm");
    return !perm || (perm->type == TD_ONNX_ATTR_INTS && perm->n == 2 && perm->ints[0] == 1 && perm->ints[1] == 0);
}

/* A Cast that loses nothing of float32 and narrower: to float32 from float64 only behind one that widened. */
static bool keeps_values(const td_graph *g, const td_node *cast) {
    td_dtype from = td_graph_value(g, cast->in[0])->type.tensor.dtype,
             to = td_graph_value(g, cast->out[0])->type.tensor.dtype;
    bool narrow = from == TD_FLOAT16 || from == TD_BFLOAT16, wide = from == TD_FLOAT || from == TD_DOUBLE;
    return from == to ? narrow || wide : (narrow || wide) && (to == TD_FLOAT || to == TD_DOUBLE);
}

/* The constant matrix behind `id`, through Transpose and Casts that lose nothing. */
static bool find_weights(const td_graph *g, int32_t id, linear *out) {
    for (int steps = 0; steps < 4 && !td_graph_is_constant(g, id); steps++) {
        const td_node *node = td_graph_producer(g, id);
        if (!node || node->removed || node->n_in != 1 || node->in[0] == TD_NO_VALUE) return false;
        bool turns = td_node_is(node, "", "Transpose") && swaps_two(node);
        if (!turns && !(td_node_is(node, "", "Cast") && keeps_values(g, node))) return false;
        out->transposed ^= turns;
        id = node->in[0];
    }
    const td_tensor *w = &td_graph_value(g, id)->type.tensor;
    if (!td_graph_is_constant(g, id) || w->shape.rank != 2 || w->shape.dims[0] < 1 || w->shape.dims[1] < 1)
        return false;
    out->w = id;
    out->n = w->shape.dims[out->transposed ? 0 : 1];
    return w->dtype == TD_FLOAT || w->dtype == TD_FLOAT16 || w->dtype == TD_BFLOAT16;
}

/* float32 [n] or [1, ..., n]. */
static bool is_bias(const td_graph *g, int32_t id, const linear *l) {
    if (id == TD_NO_VALUE || !td_graph_is_constant(g, id) || !is_float(g, id)) return false;
    const td_shape *s = &td_graph_value(g, id)->type.tensor.shape;
    return s->rank > 0 && s->dims[s->rank - 1] == l->n && td_tensor_count(&td_graph_value(g, id)->type.tensor) == l->n;
}

static int64_t int_of(const td_node *node, const char *name) {
    const td_onnx_attr *a = attr_of(node, name);
    return a && a->type == TD_ONNX_ATTR_INT ? a->i : 0;
}

static bool is_one(const td_node *node, const char *name) {
    const td_onnx_attr *a = attr_of(node, name);
    return !a || (a->type == TD_ONNX_ATTR_FLOAT && a->f == 1.0f);
}

static bool as_product(const td_graph *g, const td_node *node, linear *out) {
    bool gemm = td_node_is(node, "", "Gemm");
    *out = (linear){.bias = TD_NO_VALUE};
    if (node->removed || !node->op || (!gemm && !td_node_is(node, "", "MatMul")) || node->n_in < 2) return false;
    if (node->in[0] == TD_NO_VALUE || node->in[1] == TD_NO_VALUE || !is_float(g, node->in[0])) return false;
    out->a = node->in[0];
    if (gemm) {
        bool has_c = node->n_in > 2 && node->in[2] != TD_NO_VALUE;
        if (int_of(node, "transA") || !is_one(node, "alpha") || (has_c && !is_one(node, "beta"))) return false;
        out->transposed = int_of(node, "transB") != 0;
        if (!find_weights(g, node->in[1], out)) return false;
        if (has_c && !is_bias(g, node->in[2], out)) return false;
        if (has_c) out->bias = node->in[2];
        return true;
    }
    return find_weights(g, node->in[1], out);
}

/* The Add of a bias that alone reads the product; NULL: none. */
static td_node *find_bias(const td_graph *g, const td_node *product, linear *l, const int32_t *reader) {
    int32_t y = product->out[0];
    if (l->bias != TD_NO_VALUE || !td_pass_single_use(g, y) || reader[y] < 0) return NULL;
    td_node *add = g->nodes.items[reader[y]];
    if (add->removed || !add->op || !td_node_is(add, "", "Add")) return NULL;
    int32_t other = add->in[add->in[0] == y];
    const td_shape *from = &td_graph_value(g, y)->type.tensor.shape,
                   *to = &td_graph_value(g, add->out[0])->type.tensor.shape;
    if (!is_bias(g, other, l) || from->rank < 0 || from->rank != to->rank)
        return NULL; /* a longer bias adds dimensions */
    l->bias = other;
    return add;
}

static treadle_status replace(td_pass_ctx *p, td_node *product, td_node *add, const linear *l, size_t at) {
    td_graph *g = p->graph;
    td_node *node = td_graph_new_node(g, N_INPUTS, 1);
    td_onnx_attr *attr = TD_ARENA_NEW(g->arena, td_onnx_attr);
    if (!node || !attr) return td_fail_memory(p->err, "joining linear maps", 0);
    *attr = (td_onnx_attr){.name = TD_STR("transposed"), .type = TD_ONNX_ATTR_INT, .i = l->transposed};
    node->name = product->name;
    node->domain = td_str_from(linear_op.domain);
    node->op_type = td_str_from(linear_op.name);
    node->opset = 1;
    node->op = &linear_op;
    node->attrs = attr;
    node->n_attrs = 1;
    node->in[IN_A] = l->a;
    node->in[IN_W] = l->w;
    node->in[IN_BIAS] = l->bias;
    node->out[0] = (add ? add : product)->out[0];
    td_node *gone[2] = {product, add};
    for (int i = 0; i < 2; i++) {
        if (!gone[i]) continue;
        td_resolve_release_node(gone[i]);
        gone[i]->removed = true;
    }
    g->nodes.items[at] = node; /* in the product's place: what reads the Add's result comes later */
    return td_pass_resolve(p, node);
}

treadle_status td_pass_linear(td_pass_ctx *p) {
    td_graph *g = p->graph;
    int32_t *reader = TD_ARENA_ARRAY(p->resolver->arena, int32_t, g->values.n); /* a node that reads the value, or -1 */
    if (!reader) return td_fail_memory(p->err, "joining linear maps", g->values.n * sizeof *reader);
    for (size_t i = 0; i < g->values.n; i++) reader[i] = -1;
    for (size_t i = 0; i < g->nodes.n; i++)
        for (size_t k = 0; k < g->nodes.items[i]->n_in; k++)
            if (g->nodes.items[i]->in[k] != TD_NO_VALUE) reader[g->nodes.items[i]->in[k]] = (int32_t)i;
    for (size_t i = 0; i < g->nodes.n; i++) {
        td_node *node = g->nodes.items[i];
        linear l;
        if (!as_product(g, node, &l)) continue;
        td_node *add = find_bias(g, node, &l, reader);
        bool plain = !add && l.w == node->in[1]; /* its own op packs such weights as well */
        if (!plain) TD_TRY(replace(p, node, add, &l, i));
    }
    return TREADLE_OK;
}
