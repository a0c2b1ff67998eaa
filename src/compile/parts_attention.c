/* compile/parts_attention.c - grouped-query attention with rotary embedding and a KV cache.
 *
 * Fused: com.microsoft GroupQueryAttention, q, k and v from one matrix where they are of one format. Its lengths come
 * from attention_mask the way ORT GenAI's builder does it. Unfused, where ORT's kernel refuses the head size: the same
 * in standard operators, positions from the input position_ids. */
#include "compile/parts.h"

#include <math.h>

static const td_str none = {NULL, 0};

/* --- what all layers share */

/* seqlens_k = sum(mask) - 1 and total_sequence_length = width of the mask, both int32. */
static void fused_lengths(td_builder *b, td_str mask) {
    td_graph *g = &b->graph;
    td_gnode *sum = td_graph_add(g, "", "ReduceSum", TD_STR("mask.sum"));
    td_gnode_input(g, sum, mask);
    td_gnode_input(g, sum, td_graph_ints(g, "ints.1", (const int64_t[]){1}, 1));
    td_gnode_int(g, sum, "keepdims", 0);
    td_str last = td_graph_op(g, "Sub", TD_STR("mask.last"), TD_STR("mask.sum"), td_graph_int(g, 1), none);
    b->seqlens = td_graph_cast(g, TD_STR("seqlens_k"), last, TD_INT32);
    td_str shape = td_graph_op(g, "Shape", TD_STR("mask.shape"), mask, none, none);
    td_gnode *width = td_graph_add(g, "", "Gather", TD_STR("mask.width"));
    td_gnode_input(g, width, shape);
    td_gnode_input(g, width, td_graph_int(g, 1));
    td_gnode_int(g, width, "axis", 0);
    b->total = td_graph_cast(g, TD_STR("total_sequence_length"), TD_STR("mask.width"), TD_INT32);
}

static td_str dimension(td_builder *b, const char *name, td_str value, int64_t axis) {
    td_graph *g = &b->graph;
    td_str shape = td_graph_op(g, "Shape", td_graph_name(g, "%s.shape", name), value, none, none);
    return td_graph_op(g, "Gather", td_graph_name(g, "%s", name), shape, td_graph_int(g, axis), none);
}

/* 0 where the mask is true, else the lowest float. */
static td_str bias_of(td_builder *b, const char *name, td_str visible) {
    td_graph *g = &b->graph;
    return td_graph_op(g, "Where", td_graph_name(g, "%s", name), visible, td_graph_float(g, "float.zero", 0),
                       td_graph_float(g, "float.lowest", -3.4028235e38f));
}

/* Visible are keys that are real, not after the query, and in windowed layers less than a window before it;
 * [batch, 1, 1, seq, total]. */
static void unfused_bias(td_builder *b, td_str mask) {
    td_graph *g = &b->graph;
    td_str zero = td_graph_int(g, 0), one = td_graph_int(g, 1);
    td_str total = dimension(b, "mask.width", mask, 1), seq = dimension(b, "seq", TD_STR("input_ids"), 1);
    td_str past = td_graph_op(g, "Sub", TD_STR("past"), total, seq, none);
    td_str keys = td_graph_op(g, "Range", TD_STR("mask.keys"), zero, total, one);
    td_str queries = td_graph_op(g, "Range", TD_STR("mask.queries"), past, total, one);
    td_str column = td_graph_op(g, "Unsqueeze", TD_STR("mask.column"), queries,
                                td_graph_ints(g, "ints.1", (const int64_t[]){1}, 1), none);
    td_str causal = td_graph_op(g, "LessOrEqual", TD_STR("mask.causal"), keys, column, none);
    td_str real = td_graph_cast(g, TD_STR("mask.real"), mask, TD_BOOL);
    td_str wide = td_graph_op(g, "Unsqueeze", TD_STR("mask.wide"), real,
                              td_graph_ints(g, "ints.1_2_3", (const int64_t[]){1, 2, 3}, 3), none);
    td_str both = td_graph_op(g, "And", TD_STR("mask.both"), causal, wide, none);
    b->bias = bias_of(b, "mask.bias", both);
    if (!b->model.window) return;
    td_str low = td_graph_op(g, "Sub", TD_STR("mask.low"), column, td_graph_int(g, b->model.window), none);
    td_str near = td_graph_op(g, "Greater", TD_STR("mask.near"), keys, low, none);
    b->window_bias = bias_of(b, "mask.window_bias", td_graph_op(g, "And", TD_STR("mask.window"), both, near, none));
}

static td_str table_rows(td_builder *b, const char *name, td_str table, td_str positions) {
    td_graph *g = &b->graph;
    td_str rows = td_graph_op(g, "Gather", td_graph_name(g, "%s.gathered", name), table, positions, none);
    return td_graph_op(g, "Unsqueeze", td_graph_name(g, "%s", name), rows,
                       td_graph_ints(g, "ints.1", (const int64_t[]){1}, 1), none);
}

treadle_status td_part_attention_setup(td_builder *b) {
    td_graph *g = &b->graph;
    const td_model *m = &b->model;
    td_str mask = TD_STR("attention_mask"), positions = TD_STR("position_ids");
    b->fused = m->head_dim % 16 == 0 && m->rotary_dim == m->head_dim;
    td_graph_input(g, mask, TD_INT64, 2, (const int64_t[]){-1, -1},
                   (const char *const[]){"batch_size", "total_sequence_length"});
    if (!b->fused)
        td_graph_input(g, positions, TD_INT64, 2, (const int64_t[]){-1, -1},
                       (const char *const[]){"batch_size", "sequence_length"});
    for (int64_t layer = 0; layer < m->n_layers; layer++)
        for (int value = 0; value < 2; value++)
            td_graph_input(g, td_graph_name(g, "past_key_values.%lld.%s", (long long)layer, value ? "value" : "key"),
                           TD_FLOAT, 4, (const int64_t[]){-1, m->n_kv_heads, -1, m->head_dim},
                           (const char *const[]){"batch_size", NULL, "past_sequence_length", NULL});
    TD_TRY(td_part_rope_tables(b));
    if (b->fused) {
        fused_lengths(b, mask);
        return TREADLE_OK;
    }
    unfused_bias(b, mask);
    b->cos_rows = table_rows(b, "rope.cos_rows", b->cos, positions);
    b->sin_rows = table_rows(b, "rope.sin_rows", b->sin, positions);
    return TREADLE_OK;
}

/* --- projections */

typedef struct qkv {
    td_str q, k, v; /* packed: all in q, the others empty */
} qkv;

static td_rows rows_of(const td_builder *b, int64_t layer, td_layer_tensor id, bool rotary) {
    const td_model *m = &b->model;
    bool reorder = rotary && m->rope == TD_ROPE_PAIRS;
    return (td_rows){m->layers[layer][id], m->head_dim, reorder ? m->rotary_dim : 0};
}

static treadle_status project(td_builder *b, int64_t layer, const char *what, td_str x, const td_rows *weights,
                              const td_rows *biases, int n, td_str *out) {
    td_graph *g = &b->graph;
    td_matrix m;
    td_str bias = none, name = td_graph_name(g, "layers.%lld.attn.%s", (long long)layer, what);
    TD_TRY(td_weights_matrix(&b->weights,
                             n > 1 ? td_graph_name(g, "%.*s.weight", TD_STR_ARGS(name)) : weights[0].tensor->name,
                             weights, n, TD_USE_LINEAR, &m));
    if (biases[0].tensor)
        TD_TRY(td_weights_vector(&b->weights, td_graph_name(g, "%.*s.bias", TD_STR_ARGS(name)), biases, n, &bias));
    *out = td_part_linear(b, name, x, &m, bias);
    return TREADLE_OK;
}

static treadle_status project_qkv(td_builder *b, int64_t layer, td_str x, qkv *out) {
    const td_rows w[3] = {rows_of(b, layer, TD_LT_Q, true), rows_of(b, layer, TD_LT_K, true),
                          rows_of(b, layer, TD_LT_V, false)};
    const td_rows bias[3] = {rows_of(b, layer, TD_LT_Q_BIAS, true), rows_of(b, layer, TD_LT_K_BIAS, true),
                             rows_of(b, layer, TD_LT_V_BIAS, false)};
    bool same = w[0].tensor->format == w[1].tensor->format && w[1].tensor->format == w[2].tensor->format;
    bool biases = !bias[0].tensor == !bias[1].tensor && !bias[1].tensor == !bias[2].tensor;
    if (b->fused && same && biases) return project(b, layer, "qkv", x, w, bias, 3, &out->q);
    TD_TRY(project(b, layer, "q", x, &w[0], &bias[0], 1, &out->q));
    TD_TRY(project(b, layer, "k", x, &w[1], &bias[1], 1, &out->k));
    return project(b, layer, "v", x, &w[2], &bias[2], 1, &out->v);
}

/* --- fused */

static td_str fused_attention(td_builder *b, int64_t layer, const qkv *in) {
    td_graph *g = &b->graph;
    const td_model *m = &b->model;
    td_str name = td_graph_name(g, "layers.%lld.attn", (long long)layer);
    td_gnode *n = td_graph_add(g, "com.microsoft", "GroupQueryAttention", name);
    td_gnode_input(g, n, in->q);
    td_gnode_input(g, n, in->k);
    td_gnode_input(g, n, in->v);
    td_gnode_input(g, n, td_graph_name(g, "past_key_values.%lld.key", (long long)layer));
    td_gnode_input(g, n, td_graph_name(g, "past_key_values.%lld.value", (long long)layer));
    td_gnode_input(g, n, b->seqlens);
    td_gnode_input(g, n, b->total);
    td_gnode_input(g, n, b->cos);
    td_gnode_input(g, n, b->sin);
    td_gnode_output(g, n, td_graph_name(g, "present.%lld.key", (long long)layer));
    td_gnode_output(g, n, td_graph_name(g, "present.%lld.value", (long long)layer));
    td_gnode_int(g, n, "do_rotary", 1);
    td_gnode_int(g, n, "kv_num_heads", m->n_kv_heads);
    td_gnode_int(g, n, "num_heads", m->n_heads);
    td_gnode_int(g, n, "rotary_interleaved", 0);
    if (m->attention_scale != 0) td_gnode_float(g, n, "scale", m->attention_scale);
    if (td_model_window(m, layer)) td_gnode_int(g, n, "local_window_size", td_model_window(m, layer));
    return name;
}

/* --- unfused */

typedef struct namer {
    td_builder *b;
    int64_t layer;
} namer;

static td_str named(const namer *n, const char *what) {
    return td_graph_name(&n->b->graph, "layers.%lld.attn.%s", (long long)n->layer, what);
}

static td_str reshaped(const namer *n, const char *what, td_str value, const char *shape_name, const int64_t *shape,
                       int rank) {
    td_graph *g = &n->b->graph;
    return td_graph_op(g, "Reshape", named(n, what), value, td_graph_ints(g, shape_name, shape, rank), none);
}

static td_str transposed(const namer *n, const char *what, td_str value, const int64_t *perm, size_t rank) {
    td_graph *g = &n->b->graph;
    td_gnode *node = td_graph_add(g, "", "Transpose", named(n, what));
    td_gnode_input(g, node, value);
    td_gnode_ints(g, node, "perm", perm, rank);
    return node ? node->outputs[0] : none;
}

/* x [batch, heads, seq, head_dim] turned by its positions: (x1 cos - x2 sin, x2 cos + x1 sin), the rest as it is. */
static td_str rotated(const namer *n, const char *what, td_str x) {
    td_graph *g = &n->b->graph;
    const td_model *m = &n->b->model;
    int64_t half = m->rotary_dim / 2, rest = m->head_dim - m->rotary_dim;
    td_str part[9];
    static const char *const names[9] = {"x1", "x2", "rest", "x1c", "x2s", "x2c", "x1s", "left", "right"};
    for (int i = 0; i < 9; i++)
        part[i] = td_graph_name(g, "layers.%lld.attn.%s.%s", (long long)n->layer, what, names[i]);
    td_gnode *split = td_graph_add(g, "", "Split", part[0]);
    td_gnode_input(g, split, x);
    td_gnode_input(g, split, td_graph_ints(g, "ints.rotary_split", (const int64_t[]){half, half, rest}, rest ? 3 : 2));
    td_gnode_output(g, split, part[1]);
    if (rest) td_gnode_output(g, split, part[2]);
    td_gnode_int(g, split, "axis", -1);
    td_graph_op(g, "Mul", part[3], part[0], n->b->cos_rows, none);
    td_graph_op(g, "Mul", part[4], part[1], n->b->sin_rows, none);
    td_graph_op(g, "Mul", part[5], part[1], n->b->cos_rows, none);
    td_graph_op(g, "Mul", part[6], part[0], n->b->sin_rows, none);
    td_graph_op(g, "Sub", part[7], part[3], part[4], none);
    td_graph_op(g, "Add", part[8], part[5], part[6], none);
    td_gnode *join = td_graph_add(g, "", "Concat", named(n, what));
    td_gnode_input(g, join, part[7]);
    td_gnode_input(g, join, part[8]);
    if (rest) td_gnode_input(g, join, part[2]);
    td_gnode_int(g, join, "axis", -1);
    return join ? join->outputs[0] : none;
}

static td_str appended(const namer *n, const char *kind, td_str value) {
    td_graph *g = &n->b->graph;
    td_gnode *join = td_graph_add(g, "", "Concat", td_graph_name(g, "present.%lld.%s", (long long)n->layer, kind));
    td_gnode_input(g, join, td_graph_name(g, "past_key_values.%lld.%s", (long long)n->layer, kind));
    td_gnode_input(g, join, value);
    td_gnode_int(g, join, "axis", 2);
    return join ? join->outputs[0] : none;
}

/* Queries of one KV head are a dimension of their own, [batch, kv_heads, group, seq, dim], so that keys and values are
 * broadcast and never repeated. */
static td_str unfused_attention(td_builder *b, int64_t layer, const qkv *in) {
    td_graph *g = &b->graph;
    const td_model *m = &b->model;
    const namer n = {b, layer};
    const int64_t heads = m->n_heads, kv = m->n_kv_heads, d = m->head_dim, swap[4] = {0, 2, 1, 3};
    td_str q = transposed(
        &n, "q_heads", reshaped(&n, "q_split", in->q, "ints.q_split", (const int64_t[]){0, 0, heads, d}, 4), swap, 4);
    td_str k = transposed(&n, "k_heads",
                          reshaped(&n, "k_split", in->k, "ints.kv_split", (const int64_t[]){0, 0, kv, d}, 4), swap, 4);
    td_str v = transposed(&n, "v_heads",
                          reshaped(&n, "v_split", in->v, "ints.kv_split", (const int64_t[]){0, 0, kv, d}, 4), swap, 4);
    float scale = m->attention_scale != 0 ? m->attention_scale : 1.0f / sqrtf((float)d);
    q = td_graph_op(g, "Mul", named(&n, "q_scaled"), rotated(&n, "q_rope", q),
                    td_graph_float(g, "float.attention_scale", scale), none);
    k = appended(&n, "key", rotated(&n, "k_rope", k));
    v = appended(&n, "value", v);
    td_str two = td_graph_ints(g, "ints.2", (const int64_t[]){2}, 1);
    td_str queries =
        td_graph_op(g, "Reshape", named(&n, "q_groups"), q,
                    td_graph_ints(g, "ints.q_groups", (const int64_t[]){0, kv, heads / kv, -1, d}, 5), none);
    td_str keys = transposed(&n, "k_t", k, (const int64_t[]){0, 1, 3, 2}, 4);
    keys = td_graph_op(g, "Unsqueeze", named(&n, "k_wide"), keys, two, none);
    td_str values = td_graph_op(g, "Unsqueeze", named(&n, "v_wide"), v, two, none);
    td_str scores = td_graph_op(g, "MatMul", named(&n, "scores"), queries, keys, none);
    scores =
        td_graph_op(g, "Add", named(&n, "masked"), scores, td_model_window(m, layer) ? b->window_bias : b->bias, none);
    td_gnode *soft = td_graph_add(g, "", "Softmax", named(&n, "weights"));
    td_gnode_input(g, soft, scores);
    td_gnode_int(g, soft, "axis", -1);
    td_str mixed = td_graph_op(g, "MatMul", named(&n, "mixed"), soft ? soft->outputs[0] : none, values, none);
    td_str rows = transposed(&n, "rows", mixed, (const int64_t[]){0, 3, 1, 2, 4}, 5);
    return td_graph_op(g, "Reshape", td_graph_name(g, "layers.%lld.attn", (long long)layer), rows,
                       td_graph_ints(g, "ints.join", (const int64_t[]){0, 0, heads * d}, 3), none);
}

treadle_status td_part_attention(td_builder *b, int64_t layer, td_str x, td_str *out) {
    qkv in = {none, none, none};
    TD_TRY(project_qkv(b, layer, x, &in));
    td_str mixed = b->fused ? fused_attention(b, layer, &in) : unfused_attention(b, layer, &in);
    const td_rows w = rows_of(b, layer, TD_LT_O, false), bias = rows_of(b, layer, TD_LT_O_BIAS, false);
    return project(b, layer, "o", mixed, &w, &bias, 1, out);
}
