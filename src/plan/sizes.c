/* plan/sizes.c - sizes of a cache that its declaration leaves free: heads and head size,
 * from what the graph joins to it.
 *
 * Every intermediate shape that is declared is believed; else shapes are followed backwards through reshapes to
 * constant shapes, transpositions, elementwise ops, and products with constant weights. Last comes what the
 * config declares. Unknown stays unknown: nothing is guessed. Source: the ONNX op texts of the attention ops,
 * of ONNX and of com.microsoft. */
#include "plan/build.h"

enum { MAX_DEPTH = 16, MAX_VISITS = 256 };

typedef struct search {
    const td_onnx_graph *graph;
    int visits;
} search;

static bool declared_shape(const td_onnx_value_info *infos, size_t n, td_str name, td_shape *out) {
    for (size_t i = 0; i < n; i++) {
        if (!td_str_equal(infos[i].name, name)) continue;
        const td_onnx_type *type = &infos[i].type;
        if (!type->has_shape || type->rank > TD_MAX_RANK) return false;
        out->rank = type->rank;
        for (int d = 0; d < type->rank; d++)
            out->dims[d] = type->dims[d].value >= 0 ? type->dims[d].value : TD_DIM_UNKNOWN;
        return true;
    }
    return false;
}

static const td_onnx_node *find_producer(const td_onnx_graph *graph, td_str name) {
    for (size_t i = 0; i < graph->n_nodes; i++)
        for (size_t o = 0; o < graph->nodes[i].n_outputs; o++)
            if (td_str_equal(graph->nodes[i].outputs[o], name)) return &graph->nodes[i];
    return NULL;
}

/* The integers of a constant: an initializer or a Constant node. */
static const td_onnx_tensor *find_integers(const td_onnx_graph *graph, td_str name) {
    const td_onnx_tensor *t = td_plan_initializer(graph, name);
    const td_onnx_node *node = t ? NULL : find_producer(graph, name);
    const td_onnx_attr *value = node && td_str_is(node->op_type, "Constant") ? td_onnx_find_attr(node, "value") : NULL;
    if (value) t = value->t;
    return t && t->dtype == TD_INT64 && t->data && t->rank == 1 && t->count <= TD_MAX_RANK ? t : NULL;
}

static bool find_shape(search *f, td_str name, int depth, td_shape *out);

static bool shape_of_reshape(search *f, const td_onnx_node *node, td_shape *out) {
    const td_onnx_tensor *to = node->n_inputs > 1 ? find_integers(f->graph, node->inputs[1]) : NULL;
    if (!to) return false;
    out->rank = (int)to->count;
    for (int i = 0; i < out->rank; i++) {
        int64_t d;
        memcpy(&d, (const char *)to->data + (size_t)i * sizeof d, sizeof d);
        out->dims[i] = d > 0 ? d : TD_DIM_UNKNOWN;
    }
    return true;
}

static bool shape_of_transpose(search *f, const td_onnx_node *node, int depth, td_shape *out) {
    td_shape in;
    const td_onnx_attr *perm = td_onnx_find_attr(node, "perm");
    if (!find_shape(f, node->inputs[0], depth + 1, &in)) return false;
    if (perm && (perm->type != TD_ONNX_ATTR_INTS || perm->n != (size_t)in.rank)) return false;
    out->rank = in.rank;
    for (int i = 0; i < in.rank; i++) {
        int64_t from = perm ? perm->ints[i] : in.rank - 1 - i;
        if (from < 0 || from >= in.rank) return false;
        out->dims[i] = in.dims[from];
    }
    return true;
}

/* All inputs broadcast to the output: a size above 1 of any of them is the output's. */
static bool shape_of_elementwise(search *f, const td_onnx_node *node, int depth, td_shape *out) {
    out->rank = -1;
    for (size_t i = 0; i < node->n_inputs; i++) {
        td_shape in;
        if (!find_shape(f, node->inputs[i], depth + 1, &in)) continue;
        if (out->rank < 0) *out = in;
        if (in.rank != out->rank) { /* of two ranks the longer one's sizes are believed */
            if (in.rank > out->rank) *out = in;
            continue;
        }
        for (int d = 0; d < in.rank; d++)
            if (in.dims[d] > 1) out->dims[d] = in.dims[d];
    }
    for (int d = 0; d < out->rank; d++)
        if (out->dims[d] == 1) out->dims[d] = TD_DIM_UNKNOWN; /* another input may be longer */
    return out->rank >= 0;
}

static int64_t attr_int(const td_onnx_node *node, const char *name) {
    const td_onnx_attr *attr = td_onnx_find_attr(node, name);
    return attr && attr->type == TD_ONNX_ATTR_INT ? attr->i : 0;
}

/* A product with constant weights says its last dimension, and no other. */
static bool shape_of_product(search *f, const td_onnx_node *node, td_shape *out) {
    int64_t columns = 0;
    if (td_str_is(node->op_type, "MatMulNBits")) columns = attr_int(node, "N");
    else if (td_str_is(node->op_type, "MatMul") || td_str_is(node->op_type, "Gemm")) {
        const td_onnx_tensor *weights = node->n_inputs > 1 ? td_plan_initializer(f->graph, node->inputs[1]) : NULL;
        if (weights && weights->rank == 2)
            columns = weights->dims[td_str_is(node->op_type, "Gemm") && attr_int(node, "transB") ? 0 : 1];
    }
    if (columns <= 0) return false;
    *out = (td_shape){.rank = 3, .dims = {TD_DIM_UNKNOWN, TD_DIM_UNKNOWN, columns}};
    return true;
}

static bool find_shape(search *f, td_str name, int depth, td_shape *out) {
    static const char *const same[] = {"Cast",
                                       "Identity",
                                       "RotaryEmbedding",
                                       "MRotaryEmbedding",
                                       "Neg",
                                       "RMSNormalization",
                                       "LayerNormalization",
                                       "SimplifiedLayerNormalization",
                                       "SkipLayerNormalization",
                                       "SkipSimplifiedLayerNormalization",
                                       "QuantizeLinear",
                                       "DequantizeLinear",
                                       NULL};
    static const char *const elementwise[] = {"Add", "Sub", "Mul", "Div", "Where", NULL};
    if (!name.n || depth > MAX_DEPTH || f->visits++ > MAX_VISITS) return false;
    if (declared_shape(f->graph->value_infos, f->graph->n_value_infos, name, out)) {
        for (int d = 0; d < out->rank; d++)
            if (out->dims[d] > 1) return true; /* it says something */
    }
    const td_onnx_node *node = find_producer(f->graph, name);
    if (!node || !node->n_inputs) return false;
    if (td_str_is(node->op_type, "Reshape")) return shape_of_reshape(f, node, out);
    if (td_str_is(node->op_type, "Transpose")) return shape_of_transpose(f, node, depth, out);
    if (td_words_find(same, node->op_type) >= 0) return find_shape(f, node->inputs[0], depth + 1, out);
    if (td_words_find(elementwise, node->op_type) >= 0) return shape_of_elementwise(f, node, depth, out);
    return shape_of_product(f, node, out);
}

static bool is_open(const td_state_tensor *s, int d) {
    return s->shape.dims[d] < 0 && d != s->batch_axis && d != s->seq_axis;
}

static bool has_open(const td_state_tensor *s) {
    for (int d = 0; d < s->shape.rank; d++)
        if (is_open(s, d)) return true;
    return false;
}

static void take(td_state_tensor *s, const td_shape *from) {
    for (int d = 0; d < s->shape.rank && from->rank == s->shape.rank; d++)
        if (is_open(s, d) && from->dims[d] > 0) s->shape.dims[d] = from->dims[d];
}

/* Whether a node joins its input i to the cache, or writes it there: that has all of the cache's sizes but one. */
static bool is_joined(const td_use *use, size_t i) {
    enum { TENSOR_SCATTER_UPDATE = 1, SCATTER_UPDATES = 2, PAST_KEY = 4, PAST_VALUE = 5, KEY = 1, VALUE = 2 };
    if (td_use_is(use, "", "Concat")) return i != use->slot;
    if (td_use_is(use, "", "TensorScatter")) return i == TENSOR_SCATTER_UPDATE;
    if (td_use_is(use, "", "ScatterElements") || td_use_is(use, "", "Scatter")) return i == SCATTER_UPDATES;
    if (td_use_is(use, "", "Attention"))
        return (use->slot == PAST_KEY && i == KEY) || (use->slot == PAST_VALUE && i == VALUE);
    return false;
}

static void size_by_join(const td_plan_build_ctx *b, td_state_tensor *s) {
    const td_uses *uses = &b->uses[s->session];
    const td_signature *sig = b->plan->sessions[s->session].signature;
    for (int32_t u = uses->first[s->input]; u >= 0; u = uses->items[u].next) {
        const td_onnx_node *node = uses->items[u].node;
        for (size_t i = 0; i < node->n_inputs; i++) {
            search f = {.graph = &sig->model->graph};
            td_shape shape;
            if (is_joined(&uses->items[u], i) && find_shape(&f, node->inputs[i], 0, &shape)) take(s, &shape);
        }
    }
}

/* --- attention ops that hold the cache */

typedef struct attention {
    const char *domain, *op_type;
    uint8_t past[2];      /* slots of key and value */
    const char *heads[2]; /* attributes: of the query, of key and value */
} attention;

static const attention attentions[] = {
    {"com.microsoft", "GroupQueryAttention", {3, 4}, {"num_heads", "kv_num_heads"}},
    {"com.microsoft", "MultiHeadAttention", {6, 7}, {"num_heads", "num_heads"}},
    {"com.microsoft", "DecoderMaskedMultiHeadAttention", {5, 6}, {"num_heads", "num_heads"}},
    {"", "Attention", {4, 5}, {"q_num_heads", "kv_num_heads"}},
};

static const attention *find_attention(const td_use *use) {
    for (size_t i = 0; i < TD_COUNT(attentions); i++)
        if (td_use_is(use, attentions[i].domain, attentions[i].op_type) &&
            (use->slot == attentions[i].past[0] || use->slot == attentions[i].past[1]))
            return &attentions[i];
    return NULL;
}

/* Heads and head size of what the op joins to the cache, 0 where nothing says: key or value of its own, [batch, seq,
 * heads * size] or [batch, heads, seq, size], or all three in the query's place, [batch, seq, all heads * size]. */
static void find_new_heads(search *f, const attention *op, const td_use *use, int64_t *heads, int64_t *size) {
    const td_onnx_node *node = use->node;
    size_t own = use->slot == op->past[0] ? 1 : 2;
    bool packed = node->n_inputs <= own || !node->inputs[own].n;
    td_shape shape;
    *heads = attr_int(node, op->heads[1]);
    *size = 0;
    if (!find_shape(f, node->inputs[packed ? 0 : own], 0, &shape)) return;
    int64_t last = shape.rank > 0 ? shape.dims[shape.rank - 1] : 0;
    int64_t n = packed ? attr_int(node, op->heads[0]) + 2 * *heads : *heads;
    if (shape.rank == 4 && !packed) {
        *size = TD_MAX(last, (int64_t)0);
        if (*heads <= 0) *heads = TD_MAX(shape.dims[1], (int64_t)0);
    } else if (shape.rank == 3 && last > 0 && n > 0 && last % n == 0) *size = last / n;
}

static void size_by_attention(const td_plan_build_ctx *b, td_state_tensor *s) {
    const td_uses *uses = &b->uses[s->session];
    for (int32_t u = s->shape.rank == 4 ? uses->first[s->input] : -1; u >= 0; u = uses->items[u].next) {
        const td_use *use = &uses->items[u];
        const attention *op = find_attention(use);
        if (!op) continue;
        search f = {.graph = &b->plan->sessions[s->session].signature->model->graph};
        int64_t heads, size;
        find_new_heads(&f, op, use, &heads, &size);
        if (attr_int(use->node, "kv_cache_bit_width") == 4) size = (size + 1) / 2; /* two in a byte */
        take(s, &(td_shape){.rank = 4, .dims = {TD_DIM_UNKNOWN, heads, TD_DIM_UNKNOWN, size}});
    }
}

/* --- the config's word */

static void size_by_config(const td_plan_build_ctx *b, td_state_tensor *s) {
    const td_config_state *c = &b->config->state;
    int rank = s->shape.rank;
    if (rank < 4 || s->seq_axis != rank - 2 || s->part == TD_PART_OTHER) return;
    td_shape said = {.rank = rank};
    said.dims[rank - 3] = c->heads;
    said.dims[rank - 1] = c->head_dim;
    take(s, &said);
}

void td_plan_find_sizes(td_plan_build_ctx *b, size_t first) {
    td_plan *plan = b->plan;
    bool open = false;
    for (size_t k = first; k < plan->n_states; k++) {
        if (has_open(&plan->states[k])) size_by_join(b, &plan->states[k]);
        if (has_open(&plan->states[k])) size_by_attention(b, &plan->states[k]);
        open |= has_open(&plan->states[k]);
    }
    for (size_t k = first; k < plan->n_states && open; k++) /* keys and values of a layer have one size */
        for (size_t i = first; i < plan->n_states && has_open(&plan->states[k]); i++) {
            const td_state_tensor *other = &plan->states[i];
            bool sibling = i != k && other->layer == plan->states[k].layer && other->layer >= 0 &&
                           other->kind == plan->states[k].kind && other->part != TD_PART_OTHER &&
                           plan->states[k].part != TD_PART_OTHER;
            if (sibling) take(&plan->states[k], &other->shape);
        }
    for (size_t k = first; k < plan->n_states && open; k++)
        if (has_open(&plan->states[k])) size_by_config(b, &plan->states[k]);
    for (size_t k = first; k < plan->n_states; k++) td_plan_find_heads(&plan->states[k]);
}
