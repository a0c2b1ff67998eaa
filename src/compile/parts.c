/* compile/parts.c - linear maps, embedding, norm, activation, feed-forward, and the decoder that joins all parts. */
#include "compile/parts.h"

static const td_str none = {NULL, 0};

/* --- linear */

static td_str plain_linear(td_builder *b, td_str name, td_str x, const td_matrix *w) {
    td_graph *g = &b->graph;
    td_str weight = w->codes;
    if (w->plain != TD_FLOAT)
        weight = td_graph_cast(g, td_graph_name(g, "%.*s.cast", TD_STR_ARGS(name)), weight, TD_FLOAT);
    td_gnode *turn = td_graph_add(g, "", "Transpose", td_graph_name(g, "%.*s.transposed", TD_STR_ARGS(name)));
    td_gnode_input(g, turn, weight);
    td_gnode_ints(g, turn, "perm", (const int64_t[]){1, 0}, 2);
    return td_graph_op(g, "MatMul", name, x, turn ? turn->outputs[0] : none, none);
}

static td_str function_linear(td_builder *b, td_str name, td_str x, const td_matrix *w) {
    td_graph *g = &b->graph;
    td_gnode *n = td_graph_add(g, "treadle", "BlockAffineMatMul", name);
    td_gnode_input(g, n, x);
    td_gnode_input(g, n, w->codes);
    td_gnode_input(g, n, w->scales);
    td_gnode_input(g, n, w->minima);
    td_gnode_int(g, n, "bits", w->bits);
    b->uses_matmul = true;
    return name;
}

static td_str nbits_linear(td_builder *b, td_str name, td_str x, const td_matrix *w) {
    td_graph *g = &b->graph;
    td_gnode *n = td_graph_add(g, "com.microsoft", "MatMulNBits", name);
    td_gnode_input(g, n, x);
    td_gnode_input(g, n, w->codes);
    td_gnode_input(g, n, w->scales);
    if (w->zeros.n) td_gnode_input(g, n, w->zeros);
    td_gnode_int(g, n, "K", w->k);
    td_gnode_int(g, n, "N", w->n);
    td_gnode_int(g, n, "accuracy_level", b->options->accuracy_level);
    td_gnode_int(g, n, "bits", w->bits);
    td_gnode_int(g, n, "block_size", w->group);
    return name;
}

td_str td_part_linear(td_builder *b, td_str name, td_str x, const td_matrix *w, td_str bias) {
    td_graph *g = &b->graph;
    td_str y = bias.n ? td_graph_name(g, "%.*s.product", TD_STR_ARGS(name)) : name;
    if (w->plain != TD_UNDEFINED) plain_linear(b, y, x, w);
    else if (w->format->has_minima && !w->zeros.n) function_linear(b, y, x, w);
    else nbits_linear(b, y, x, w);
    return bias.n ? td_graph_op(g, "Add", name, y, bias, none) : y;
}

/* --- embedding */

td_str td_part_embedding(td_builder *b, td_str name, td_str ids, const td_matrix *w) {
    td_graph *g = &b->graph;
    if (w->plain != TD_UNDEFINED) {
        bool cast = w->plain != TD_FLOAT;
        td_str rows = td_graph_op(g, "Gather", cast ? td_graph_name(g, "%.*s.rows", TD_STR_ARGS(name)) : name, w->codes,
                                  ids, none);
        return cast ? td_graph_cast(g, name, rows, TD_FLOAT) : rows;
    }
    if (w->minima.n) {
        td_gnode *n = td_graph_add(g, "treadle", "BlockAffineGather", name);
        td_gnode_input(g, n, w->codes);
        td_gnode_input(g, n, ids);
        td_gnode_input(g, n, w->scales);
        td_gnode_input(g, n, w->minima);
        td_gnode_int(g, n, "bits", w->bits);
        b->uses_gather = true;
        return name;
    }
    /* The same bytes as MatMulNBits has them, without the block dimension. */
    const int64_t dims[2] = {w->n, w->k * w->bits / 8};
    td_gnode *n = td_graph_add(g, "com.microsoft", "GatherBlockQuantized", name);
    td_gnode_input(
        g, n,
        td_weights_alias(&b->weights, td_graph_name(g, "%.*s.rows", TD_STR_ARGS(w->codes)), w, TD_UINT8, 2, dims));
    td_gnode_input(g, n, ids);
    td_gnode_input(g, n, w->scales);
    td_gnode_int(g, n, "bits", w->bits);
    td_gnode_int(g, n, "block_size", w->group);
    td_gnode_int(g, n, "gather_axis", 0);
    td_gnode_int(g, n, "quantize_axis", 1);
    return name;
}

/* --- norm */

/* Nodes of one kind of norm: alone, and behind the sum of two values. */
static const struct {
    const char *op, *skip_op;
} norms[] = {
    [TD_NORM_RMS] = {"SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization"},
    [TD_NORM_LAYER] = {"LayerNormalization", "SkipLayerNormalization"},
};

static treadle_status optional_vector(td_builder *b, const td_source_tensor *t, td_str *out) {
    *out = none;
    return t ? td_weights_vector(&b->weights, t->name, &(td_rows){.tensor = t}, 1, out) : TREADLE_OK;
}

treadle_status td_part_norm(td_builder *b, td_str name, td_stream *stream, td_norm_kind kind,
                            const td_source_tensor *weight, const td_source_tensor *bias, bool keep, td_str *out) {
    td_graph *g = &b->graph;
    td_str weight_name, bias_name;
    bool skip = stream->branch.n > 0;
    TD_TRY(optional_vector(b, weight, &weight_name));
    TD_TRY(optional_vector(b, bias, &bias_name));
    td_gnode *n =
        skip ? td_graph_add(g, "com.microsoft", norms[kind].skip_op, name) : td_graph_add(g, "", norms[kind].op, name);
    *out = name;
    td_gnode_input(g, n, stream->sum);
    if (skip) td_gnode_input(g, n, stream->branch);
    td_gnode_input(g, n, weight_name);
    if (bias_name.n) td_gnode_input(g, n, bias_name);
    td_gnode_float(g, n, "epsilon", b->model.norm_epsilon);
    if (!skip) {
        td_gnode_int(g, n, "axis", -1);
        td_gnode_int(g, n, "stash_type", 1);
    } else if (keep) {
        td_str sum = td_graph_name(g, "%.*s.sum", TD_STR_ARGS(name));
        td_gnode_output(g, n, none);
        td_gnode_output(g, n, none);
        td_gnode_output(g, n, sum);
        *stream = (td_stream){sum, none};
    }
    return TREADLE_OK;
}

/* --- activation */

td_str td_part_activation(td_builder *b, td_str name, td_activation activation, td_str x) {
    td_graph *g = &b->graph;
    td_str gate, scaled = x;
    td_gnode *n;
    switch (activation) {
    case TD_ACT_RELU: return td_graph_op(g, "Relu", name, x, none, none);
    case TD_ACT_GELU:
    case TD_ACT_GELU_TANH:
        n = td_graph_add(g, "", "Gelu", name);
        td_gnode_input(g, n, x);
        td_gnode_text(g, n, "approximate", activation == TD_ACT_GELU ? "none" : "tanh");
        return name;
    case TD_ACT_QUICK_GELU: /* x * sigmoid(1.702 x) */
        scaled = td_graph_op(g, "Mul", td_graph_name(g, "%.*s.scaled", TD_STR_ARGS(name)), x,
                             td_graph_float(g, "float.quick_gelu", 1.702f), none);
        break;
    case TD_ACT_SILU: break;
    }
    gate = td_graph_op(g, "Sigmoid", td_graph_name(g, "%.*s.sigmoid", TD_STR_ARGS(name)), scaled, none, none);
    return td_graph_op(g, "Mul", name, x, gate, none);
}

/* --- feed-forward: down(silu(gate(x)) * up(x)) */

treadle_status td_part_projection(td_builder *b, td_str name, const td_source_tensor *weight,
                                  const td_source_tensor *bias, td_str x, td_str *out) {
    td_matrix m;
    td_str bias_name;
    TD_TRY(td_weights_matrix(&b->weights, weight->name, &(td_rows){.tensor = weight}, 1, TD_USE_LINEAR, &m));
    TD_TRY(optional_vector(b, bias, &bias_name));
    *out = td_part_linear(b, name, x, &m, bias_name);
    return TREADLE_OK;
}

static treadle_status layer_linear(td_builder *b, int64_t layer, const char *what, td_layer_tensor weight,
                                   td_layer_tensor bias, td_str x, td_str *out) {
    const td_source_tensor *const *t = b->model.layers[layer];
    return td_part_projection(b, td_graph_name(&b->graph, "layers.%lld.%s", (long long)layer, what), t[weight], t[bias],
                              x, out);
}

static treadle_status feed_forward(td_builder *b, int64_t layer, td_str x, td_str *out) {
    td_graph *g = &b->graph;
    td_str gate, up;
    TD_TRY(layer_linear(b, layer, "mlp.gate", TD_LT_GATE, TD_LT_GATE_BIAS, x, &gate));
    TD_TRY(layer_linear(b, layer, "mlp.up", TD_LT_UP, TD_LT_UP_BIAS, x, &up));
    td_str act =
        td_part_activation(b, td_graph_name(g, "layers.%lld.mlp.act", (long long)layer), b->model.activation, gate);
    td_str mul = td_graph_op(g, "Mul", td_graph_name(g, "layers.%lld.mlp.mul", (long long)layer), act, up, none);
    return layer_linear(b, layer, "mlp.down", TD_LT_DOWN, TD_LT_DOWN_BIAS, mul, out);
}

/* --- the decoder */

static treadle_status build_layer(td_builder *b, int64_t layer, td_stream *stream) {
    td_graph *g = &b->graph;
    const td_source_tensor *const *t = b->model.layers[layer];
    td_str x;
    TD_TRY(td_part_norm(b, td_graph_name(g, "layers.%lld.attn.norm", (long long)layer), stream, TD_NORM_RMS,
                        t[TD_LT_ATTN_NORM], NULL, true, &x));
    TD_TRY(td_part_attention(b, layer, x, &stream->branch));
    TD_TRY(td_part_norm(b, td_graph_name(g, "layers.%lld.mlp.norm", (long long)layer), stream, TD_NORM_RMS,
                        t[TD_LT_FFN_NORM], NULL, true, &x));
    return feed_forward(b, layer, x, &stream->branch);
}

treadle_status td_part_decoder(td_builder *b) {
    td_graph *g = &b->graph;
    const td_source_tensor *const *t = b->model.tensors;
    const td_source_tensor *head = t[TD_MT_HEAD];
    td_matrix embed, head_matrix;
    td_str ids = TD_STR("input_ids"), logits = TD_STR("logits"), x;
    td_graph_input(g, ids, TD_INT64, 2, (const int64_t[]){-1, -1},
                   (const char *const[]){"batch_size", "sequence_length"});
    TD_TRY(td_part_attention_setup(b));
    TD_TRY(td_weights_matrix(&b->weights, t[TD_MT_EMBED]->name, &(td_rows){.tensor = t[TD_MT_EMBED]}, 1,
                             TD_USE_GATHER | (head ? 0 : TD_USE_LINEAR), &embed));
    td_stream stream = {td_part_embedding(b, TD_STR("embed"), ids, &embed), none};
    for (int64_t layer = 0; layer < b->model.n_layers; layer++) TD_TRY(build_layer(b, layer, &stream));
    TD_TRY(td_part_norm(b, TD_STR("norm"), &stream, TD_NORM_RMS, t[TD_MT_NORM], NULL, false, &x));
    if (head)
        TD_TRY(td_weights_matrix(&b->weights, head->name, &(td_rows){.tensor = head}, 1, TD_USE_LINEAR, &head_matrix));
    td_part_linear(b, logits, x, head ? &head_matrix : &embed, none);
    td_graph_output(g, logits, TD_FLOAT, 3, (const int64_t[]){-1, -1, b->model.sizes[TD_SIZE_VOCAB]},
                    (const char *const[]){"batch_size", "sequence_length", NULL});
    for (int64_t layer = 0; layer < b->model.n_layers; layer++)
        for (int value = 0; value < 2; value++) {
            td_str name = td_graph_name(g, "present.%lld.%s", (long long)layer, value ? "value" : "key");
            td_graph_output(g, name, TD_FLOAT, 4, (const int64_t[]){-1, b->model.n_kv_heads, -1, b->model.head_dim},
                            (const char *const[]){"batch_size", NULL, "total_sequence_length", NULL});
        }
    td_part_functions(b);
    return g->failed ? td_fail_memory(b->err, "the graph", 0) : TREADLE_OK;
}
