/* pass/fuse_linear.c - products with quantised weights that read the same activations become one node: these are
 * quantised once, and one parallel region covers all (q, k, v); silu(gate) * up needs no pass of its own over memory.
 *
 *   SwiGLU   Mul(act, up), act = Mul(gate, Sigmoid(gate)), Swish(gate) or QuickGelu(gate) with alpha 1; gate and up are
 *            products of one input and equal shape
 *   group    up to four products of one input
 *
 * Fused products are the original ones: same packed weights, same kernel, so a group gives the same bits;
 * SwiGLU differs by float rounding. */
#include "light/ops/quant_linear.h"
#include "light/pass.h"

enum { MAX_GROUP = 4 };

/* --- the ops */

typedef struct group_state {
    size_t n;
    td_qlinear linears[MAX_GROUP];
} group_state;

/* Each part is prepared as the node that it was. */
static treadle_status group_prepare(td_prepare *p) {
    group_state *s = p->state;
    s->n = p->node->n_parts;
    for (size_t i = 0; i < s->n; i++) {
        const td_node *part = p->node->parts[i];
        td_prepare sub = *p;
        sub.state = &s->linears[i];
        sub.node = part;
        sub.since = part->op->since;
        sub.opset = (int)part->opset;
        sub.n_inputs = part->n_in;
        sub.n_outputs = part->n_out;
        TD_TRY(part->op->impl->prepare(&sub));
        if (p->analysis) continue;
        const td_qlinear *a = &s->linears[0], *b = &s->linears[i];
        if (a->mode != b->mode || a->weights.layout.sub != b->weights.layout.sub ||
            a->weights.layout.k != b->weights.layout.k)
            return td_fail(p->err, TREADLE_INTERNAL, "products with different activations were fused");
    }
    return TREADLE_OK;
}

static treadle_status group_infer(td_infer *in) {
    const group_state *s = in->state;
    for (size_t i = 0; i < s->n; i++)
        TD_TRY(td_qlinear_infer(in, i, s->linears[i].weights.layout.k, s->linears[i].weights.layout.n));
    return TREADLE_OK;
}

static treadle_status group_run(td_run *r) {
    const group_state *s = r->state;
    td_qlinear wanted[MAX_GROUP];
    td_tensor *outputs[MAX_GROUP];
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (!r->out[i]) continue;
        wanted[n] = s->linears[i];
        outputs[n++] = r->out[i];
    }
    return td_qlinear_run(r, wanted, n, false, r->in[0], outputs);
}

static treadle_status swiglu_infer(td_infer *in) {
    const group_state *s = in->state;
    return td_qlinear_infer(in, 0, s->linears[0].weights.layout.k, s->linears[0].weights.layout.n);
}

static treadle_status swiglu_run(td_run *r) {
    const group_state *s = r->state;
    return td_qlinear_run(r, s->linears, 2, true, r->in[0], r->out);
}

static const td_op_impl group_impl = {
    .state_bytes = sizeof(group_state), .prepare = group_prepare, .infer = group_infer, .run = group_run};
static const td_op_impl swiglu_impl = {
    .state_bytes = sizeof(group_state), .prepare = group_prepare, .infer = swiglu_infer, .run = swiglu_run};
static const td_op group_op = {"treadle.internal", "QuantProducts", 1, &group_impl};
static const td_op swiglu_op = {"treadle.internal", "QuantSwiGLU", 1, &swiglu_impl};

/* --- what can be fused */

static const td_onnx_attr *attr_of(const td_node *node, const char *name) {
    for (size_t i = 0; i < node->n_attrs; i++)
        if (td_str_is(node->attrs[i].name, name)) return &node->attrs[i];
    return NULL;
}

static int64_t attr_int(const td_node *node, const char *name) {
    const td_onnx_attr *a = attr_of(node, name);
    return a && a->type == TD_ONNX_ATTR_INT ? a->i : 0;
}

/* A product of quantised weights, by what must agree between those that share their activations. */
typedef struct product {
    int32_t input;
    int64_t k, n, accuracy;
    bool small_blocks; /* of 16: the kernels' other shape */
    td_dtype dtype;
} product;

static bool as_product(const td_graph *g, const td_node *node, product *out) {
    if (!node || node->removed || !node->op || node->op->impl->state_bytes != sizeof(td_qlinear)) return false;
    if (node->n_out != 1 || node->in[0] == TD_NO_VALUE || node->out[0] == TD_NO_VALUE) return false;
    bool nbits = td_node_is(node, "com.microsoft", "MatMulNBits");
    if (!nbits && !td_node_is(node, "treadle", "BlockAffineMatMul")) return false;
    out->input = node->in[0];
    out->dtype = td_graph_value(g, node->out[0])->type.tensor.dtype;
    out->accuracy = nbits ? attr_int(node, "accuracy_level") : 0;
    if (nbits) {
        out->k = attr_int(node, "K");
        out->n = attr_int(node, "N");
        out->small_blocks = attr_int(node, "block_size") == 16;
        return true;
    }
    if (!td_graph_is_constant(g, node->in[1])) return false;
    const td_shape *codes = &td_graph_value(g, node->in[1])->type.tensor.shape; /* [n, blocks, bytes a block] */
    int64_t bits = attr_int(node, "bits");
    if (codes->rank != 3 || bits <= 0) return false;
    int64_t block = codes->dims[2] * 8 / bits;
    out->n = codes->dims[0];
    out->k = codes->dims[1] * block;
    out->small_blocks = block == 16;
    return true;
}

static bool share_activations(const product *a, const product *b) {
    return a->input == b->input && a->k == b->k && a->accuracy == b->accuracy && a->small_blocks == b->small_blocks &&
           a->dtype == b->dtype;
}

/* One node instead of `parts`, at the place of nodes.items[at]. */
static treadle_status fuse(td_pass_ctx *p, const td_op *op, td_node *const *parts, size_t n_parts,
                           const int32_t *outputs, size_t n_outputs, size_t at) {
    td_graph *g = p->graph;
    td_node *node = td_graph_new_node(g, 1, n_outputs);
    td_node **kept = TD_ARENA_ARRAY(g->arena, td_node *, n_parts);
    if (!node || !kept) return td_fail_memory(p->err, "fusing products", 0);
    for (size_t i = 0; i < n_parts; i++) {
        kept[i] = parts[i];
        td_resolve_release_node(parts[i]);
        parts[i]->removed = true;
    }
    node->name = parts[0]->name;
    node->domain = td_str_from(op->domain);
    node->op_type = td_str_from(op->name);
    node->opset = 1;
    node->op = op;
    node->parts = kept;
    node->n_parts = n_parts;
    node->in[0] = parts[0]->in[0];
    for (size_t i = 0; i < n_outputs; i++) node->out[i] = outputs[i];
    g->nodes.items[at] = node; /* in the place of a node that is removed */
    return td_pass_resolve(p, node);
}

/* The gate of act(gate) = silu; *middle: nodes between it and `value`. */
static bool find_silu(const td_graph *g, int32_t value, int32_t *gate, td_node *middle[2]) {
    td_node *act = td_graph_producer(g, value);
    if (!act || act->removed || !td_pass_single_use(g, value)) return false;
    middle[0] = act;
    middle[1] = NULL;
    bool one = td_node_is(act, "", "Swish") || td_node_is(act, "com.microsoft", "QuickGelu");
    if (one) {
        const td_onnx_attr *alpha = attr_of(act, "alpha");
        *gate = act->in[0];
        bool is_one = alpha ? alpha->type == TD_ONNX_ATTR_FLOAT && alpha->f == 1.0f : td_node_is(act, "", "Swish");
        return is_one && td_pass_single_use(g, *gate);
    }
    if (!td_node_is(act, "", "Mul")) return false;
    for (int side = 0; side < 2; side++) {
        td_node *sigmoid = td_graph_producer(g, act->in[side]);
        if (!sigmoid || sigmoid->removed || !td_node_is(sigmoid, "", "Sigmoid") || sigmoid->in[0] != act->in[1 - side])
            continue;
        *gate = act->in[1 - side];
        const td_ir_value *v = td_graph_value(g, *gate);
        middle[1] = sigmoid;
        return td_pass_single_use(g, act->in[side]) && v->n_uses == 2 && !v->is_output;
    }
    return false;
}

static treadle_status try_swiglu(td_pass_ctx *p, size_t at) {
    td_graph *g = p->graph;
    td_node *mul = g->nodes.items[at];
    if (mul->removed || !td_node_is(mul, "", "Mul")) return TREADLE_OK;
    for (int side = 0; side < 2; side++) {
        int32_t gate_value, up_value = mul->in[1 - side];
        td_node *middle[2];
        product gate_product, up_product;
        if (!find_silu(g, mul->in[side], &gate_value, middle)) continue;
        td_node *gate = td_graph_producer(g, gate_value), *up = td_graph_producer(g, up_value);
        if (gate == up || !as_product(g, gate, &gate_product) || !as_product(g, up, &up_product)) continue;
        if (!share_activations(&gate_product, &up_product) || gate_product.n != up_product.n) continue;
        if (!td_pass_single_use(g, up_value)) continue;
        for (int i = 0; i < 2; i++) {
            if (!middle[i]) continue;
            td_resolve_release_node(middle[i]);
            middle[i]->removed = true;
        }
        td_resolve_release_node(mul);
        mul->removed = true;
        return fuse(p, &swiglu_op, (td_node *[]){gate, up}, 2, mul->out, 1, at);
    }
    return TREADLE_OK;
}

/* The products that read what nodes.items[at] reads, with it, in its place. All are ready
 * there: they need nothing else. */
static treadle_status try_group(td_pass_ctx *p, size_t at) {
    td_graph *g = p->graph;
    td_node *parts[MAX_GROUP] = {g->nodes.items[at]};
    int32_t outputs[MAX_GROUP];
    product first, other;
    size_t n = 1;
    if (!as_product(g, parts[0], &first) || td_graph_value(g, first.input)->n_uses < 2) return TREADLE_OK;
    for (size_t i = at + 1; i < g->nodes.n && n < MAX_GROUP; i++)
        if (as_product(g, g->nodes.items[i], &other) && share_activations(&first, &other))
            parts[n++] = g->nodes.items[i];
    if (n < 2) return TREADLE_OK;
    for (size_t i = 0; i < n; i++) outputs[i] = parts[i]->out[0];
    return fuse(p, &group_op, parts, n, outputs, n, at);
}

treadle_status td_pass_fuse_linear(td_pass_ctx *p) {
    for (size_t i = 0; i < p->graph->nodes.n; i++) TD_TRY(try_swiglu(p, i));
    td_graph_compact(p->graph);
    for (size_t i = 0; i < p->graph->nodes.n; i++) TD_TRY(try_group(p, i));
    return TREADLE_OK;
}
