/* compile/parts_speech.c - the two graphs of a speech recogniser: encoder and decoder.
 *
 *     encoder  input_features [batch, mels, 2 * steps] -> present_key_cross_N, present_value_cross_N
 *              [batch, heads, steps, head_dim] for every layer N of the decoder, and encoder_hidden_states
 *     decoder  input_ids, past_key_self_N, past_value_self_N, past_key_cross_N, past_value_cross_N -> logits,
 *              present_key_self_N, present_value_self_N, and cross_qk_N [batch, heads, tokens, steps], the weights
 *              of the cross-attention (for times of words; a runtime that does not ask for them need not make them)
 *
 * Keys and values of the cross-attention are made once, by the encoder. Positions of the decoder go on from the length
 * of its cache. Standard operators of opset 23, but for the sums before the norms. */
#include "compile/parts.h"

static const td_str none = {NULL, 0};
static const char *const kinds[2] = {"key", "value"};

typedef const td_source_tensor *const *layer_tensors;

/* Which tensors an attention is made of. */
typedef struct attention_ids {
    td_layer_tensor norm, norm_bias, q, k, v, o, q_bias, k_bias, v_bias, o_bias;
} attention_ids;

static const attention_ids self_ids = {TD_LT_ATTN_NORM, TD_LT_ATTN_NORM_BIAS, TD_LT_Q,      TD_LT_K,      TD_LT_V,
                                       TD_LT_O,         TD_LT_Q_BIAS,         TD_LT_K_BIAS, TD_LT_V_BIAS, TD_LT_O_BIAS};
static const attention_ids cross_ids = {
    TD_LT_CROSS_NORM, TD_LT_CROSS_NORM_BIAS, TD_LT_CROSS_Q,      TD_LT_CROSS_K,      TD_LT_CROSS_V,
    TD_LT_CROSS_O,    TD_LT_CROSS_Q_BIAS,    TD_LT_CROSS_K_BIAS, TD_LT_CROSS_V_BIAS, TD_LT_CROSS_O_BIAS};

static td_str named(td_builder *b, int64_t layer, const char *what) {
    return td_graph_name(&b->graph, "layers.%lld.%s", (long long)layer, what);
}

static td_gnode *attention_node(td_builder *b, td_str name, td_str q, td_str k, td_str v) {
    td_graph *g = &b->graph;
    td_gnode *n = td_graph_add(g, "", "Attention", name);
    td_gnode_input(g, n, q);
    td_gnode_input(g, n, k);
    td_gnode_input(g, n, v);
    return n;
}

static void head_counts(td_builder *b, td_gnode *n, int64_t heads) {
    td_gnode_int(&b->graph, n, "q_num_heads", heads);
    td_gnode_int(&b->graph, n, "kv_num_heads", heads);
}

/* [batch, tokens, heads * size] to [batch, heads, tokens, size]; `name` becomes the result's. */
static td_str split_heads(td_builder *b, td_str name, td_str x) {
    td_graph *g = &b->graph;
    const int64_t shape[4] = {0, 0, b->model.n_heads, b->model.head_dim}, perm[4] = {0, 2, 1, 3};
    td_str split = td_graph_op(g, "Reshape", td_graph_name(g, "%.*s.split", TD_STR_ARGS(name)), x,
                               td_graph_ints(g, "ints.split_heads", shape, 4), none);
    td_gnode *turn = td_graph_add(g, "", "Transpose", name);
    td_gnode_input(g, turn, split);
    td_gnode_ints(g, turn, "perm", perm, 4);
    return name;
}

static td_str join_heads(td_builder *b, td_str name, td_str x) {
    td_graph *g = &b->graph;
    const int64_t shape[3] = {0, 0, b->model.n_heads * b->model.head_dim}, perm[4] = {0, 2, 1, 3};
    td_gnode *turn = td_graph_add(g, "", "Transpose", td_graph_name(g, "%.*s.turned", TD_STR_ARGS(name)));
    td_gnode_input(g, turn, x);
    td_gnode_ints(g, turn, "perm", perm, 4);
    return td_graph_op(g, "Reshape", name, turn ? turn->outputs[0] : none,
                       td_graph_ints(g, "ints.join_heads", shape, 3), none);
}

static treadle_status norm(td_builder *b, td_str name, td_stream *stream, const td_source_tensor *weight,
                           const td_source_tensor *bias, td_str *out) {
    return td_part_norm(b, name, stream, TD_NORM_LAYER, weight, bias, true, out);
}

/* Query, key and value of one input. */
static treadle_status project_qkv(td_builder *b, int64_t layer, const char *what, layer_tensors t,
                                  const attention_ids *ids, td_str x, td_str out[3]) {
    const td_layer_tensor weights[3] = {ids->q, ids->k, ids->v}, biases[3] = {ids->q_bias, ids->k_bias, ids->v_bias};
    for (int i = 0; i < 3; i++) {
        td_str name = td_graph_name(&b->graph, "layers.%lld.%s.%c", (long long)layer, what, "qkv"[i]);
        TD_TRY(td_part_projection(b, name, t[weights[i]], t[biases[i]], x, &out[i]));
    }
    return TREADLE_OK;
}

static treadle_status feed_forward(td_builder *b, int64_t layer, layer_tensors t, td_stream *stream) {
    td_str x, y;
    TD_TRY(norm(b, named(b, layer, "mlp.norm"), stream, t[TD_LT_FFN_NORM], t[TD_LT_FFN_NORM_BIAS], &x));
    TD_TRY(td_part_projection(b, named(b, layer, "mlp.up"), t[TD_LT_UP], t[TD_LT_UP_BIAS], x, &y));
    y = td_part_activation(b, named(b, layer, "mlp.act"), b->model.activation, y);
    return td_part_projection(b, named(b, layer, "mlp.down"), t[TD_LT_DOWN], t[TD_LT_DOWN_BIAS], y, &stream->branch);
}

/* --- the encoder */

static treadle_status convolution(td_builder *b, const char *name, const td_source_tensor *weight,
                                  const td_source_tensor *bias, int64_t stride, td_str *x) {
    td_graph *g = &b->graph;
    td_str weight_name, bias_name;
    TD_TRY(td_weights_floats(&b->weights, weight, &weight_name));
    TD_TRY(td_weights_floats(&b->weights, bias, &bias_name));
    td_gnode *n = td_graph_add(g, "", "Conv", td_graph_name(g, "%s", name));
    td_gnode_input(g, n, *x);
    td_gnode_input(g, n, weight_name);
    td_gnode_input(g, n, bias_name);
    td_gnode_ints(g, n, "kernel_shape", &b->model.sizes[TD_SIZE_CONV_KERNEL], 1);
    td_gnode_ints(g, n, "pads", (const int64_t[]){1, 1}, 2);
    td_gnode_ints(g, n, "strides", &stride, 1);
    *x = td_part_activation(b, td_graph_name(g, "%s.act", name), TD_ACT_GELU, n ? n->outputs[0] : none);
    return TREADLE_OK;
}

/* The two convolutions and the positions: [batch, steps, hidden]. */
static treadle_status encoder_front(td_builder *b, td_str *out) {
    td_graph *g = &b->graph;
    const td_source_tensor *const *t = b->model.tensors;
    td_str x = TD_STR("input_features"), positions;
    td_graph_input(g, x, TD_FLOAT, 3,
                   (const int64_t[]){-1, b->model.sizes[TD_SIZE_MELS], 2 * b->model.sizes[TD_SIZE_ENCODER_CONTEXT]},
                   (const char *const[]){"batch_size", NULL, NULL});
    TD_TRY(convolution(b, "conv1", t[TD_MT_CONV1], t[TD_MT_CONV1_BIAS], 1, &x));
    TD_TRY(convolution(b, "conv2", t[TD_MT_CONV2], t[TD_MT_CONV2_BIAS], 2, &x));
    td_gnode *turn = td_graph_add(g, "", "Transpose", TD_STR("frames"));
    td_gnode_input(g, turn, x);
    td_gnode_ints(g, turn, "perm", (const int64_t[]){0, 2, 1}, 3);
    TD_TRY(td_weights_floats(&b->weights, t[TD_MT_ENCODER_POSITIONS], &positions));
    *out = td_graph_op(g, "Add", TD_STR("embed"), TD_STR("frames"), positions, none);
    return TREADLE_OK;
}

static treadle_status encoder_layer(td_builder *b, int64_t layer, td_stream *stream) {
    layer_tensors t = b->model.encoder_layers[layer];
    td_str x, qkv[3];
    TD_TRY(norm(b, named(b, layer, "attn.norm"), stream, t[self_ids.norm], t[self_ids.norm_bias], &x));
    TD_TRY(project_qkv(b, layer, "attn", t, &self_ids, x, qkv));
    td_gnode *n = attention_node(b, named(b, layer, "attn"), qkv[0], qkv[1], qkv[2]);
    head_counts(b, n, b->model.n_encoder_heads);
    TD_TRY(td_part_projection(b, named(b, layer, "attn.o"), t[self_ids.o], t[self_ids.o_bias], n ? n->outputs[0] : none,
                              &stream->branch));
    return feed_forward(b, layer, t, stream);
}

/* The cross-attention's keys and values of a decoder's layer. */
static treadle_status cross_cache(td_builder *b, int64_t layer, td_str hidden) {
    td_graph *g = &b->graph;
    const td_model *m = &b->model;
    layer_tensors t = m->layers[layer];
    const td_layer_tensor weights[2] = {cross_ids.k, cross_ids.v}, biases[2] = {cross_ids.k_bias, cross_ids.v_bias};
    for (int i = 0; i < 2; i++) {
        td_str y, name = td_graph_name(g, "present_%s_cross_%lld", kinds[i], (long long)layer);
        TD_TRY(td_part_projection(b, td_graph_name(g, "cross.%lld.%s", (long long)layer, kinds[i]), t[weights[i]],
                                  t[biases[i]], hidden, &y));
        split_heads(b, name, y);
        td_graph_output(g, name, TD_FLOAT, 4,
                        (const int64_t[]){-1, m->n_heads, m->sizes[TD_SIZE_ENCODER_CONTEXT], m->head_dim},
                        (const char *const[]){"batch_size", NULL, NULL, NULL});
    }
    return TREADLE_OK;
}

treadle_status td_part_speech_encoder(td_builder *b) {
    td_graph *g = &b->graph;
    const td_model *m = &b->model;
    td_stream stream = {none, none};
    td_str hidden;
    TD_TRY(encoder_front(b, &stream.sum));
    for (int64_t layer = 0; layer < m->n_encoder_layers; layer++) TD_TRY(encoder_layer(b, layer, &stream));
    TD_TRY(td_part_norm(b, TD_STR("encoder_hidden_states"), &stream, TD_NORM_LAYER, m->tensors[TD_MT_ENCODER_NORM],
                        m->tensors[TD_MT_ENCODER_NORM_BIAS], false, &hidden));
    for (int64_t layer = 0; layer < m->n_layers; layer++) TD_TRY(cross_cache(b, layer, hidden));
    td_graph_output(g, hidden, TD_FLOAT, 3,
                    (const int64_t[]){-1, m->sizes[TD_SIZE_ENCODER_CONTEXT], m->sizes[TD_SIZE_HIDDEN]},
                    (const char *const[]){"batch_size", NULL, NULL});
    td_part_functions(b);
    return g->failed ? td_fail_memory(b->err, "the graph", 0) : TREADLE_OK;
}

/* --- the decoder */

static td_str cache_name(td_builder *b, const char *when, int kind, const char *which, int64_t layer) {
    return td_graph_name(&b->graph, "%s_%s_%s_%lld", when, kinds[kind], which, (long long)layer);
}

static void cache_inputs(td_builder *b) {
    const td_model *m = &b->model;
    const int64_t self[4] = {-1, m->n_heads, -1, m->head_dim},
                  cross[4] = {-1, m->n_heads, m->sizes[TD_SIZE_ENCODER_CONTEXT], m->head_dim};
    static const char *const names[4] = {"batch_size", NULL, "past_sequence_length", NULL};
    for (int64_t layer = 0; layer < m->n_layers; layer++) {
        for (int kind = 0; kind < 2; kind++)
            td_graph_input(&b->graph, cache_name(b, "past", kind, "self", layer), TD_FLOAT, 4, self, names);
        for (int kind = 0; kind < 2; kind++)
            td_graph_input(&b->graph, cache_name(b, "past", kind, "cross", layer), TD_FLOAT, 4, cross, names);
    }
}

static td_str length_of(td_builder *b, const char *name, td_str value, int64_t axis) {
    td_graph *g = &b->graph;
    td_gnode *n = td_graph_add(g, "", "Shape", td_graph_name(g, "%s", name));
    td_gnode_input(g, n, value);
    td_gnode_int(g, n, "start", axis);
    td_gnode_int(g, n, "end", axis + 1);
    return n ? n->outputs[0] : none;
}

/* Token embeddings plus the positions from the cache's length on. */
static treadle_status embed(td_builder *b, td_str ids, td_matrix *table, td_str *out) {
    td_graph *g = &b->graph;
    const td_source_tensor *const *t = b->model.tensors;
    unsigned uses = TD_USE_GATHER | (t[TD_MT_HEAD] ? 0 : TD_USE_LINEAR);
    td_str positions;
    TD_TRY(td_weights_matrix(&b->weights, t[TD_MT_EMBED]->name, &(td_rows){.tensor = t[TD_MT_EMBED]}, 1, uses, table));
    TD_TRY(td_weights_floats(&b->weights, t[TD_MT_POSITIONS], &positions));
    td_str past = length_of(b, "past_length", TD_STR("past_key_self_0"), 2);
    td_str total = td_graph_op(g, "Add", TD_STR("total_length"), past, length_of(b, "length", ids, 1), none);
    td_gnode *slice = td_graph_add(g, "", "Slice", TD_STR("positions"));
    td_gnode_input(g, slice, positions);
    td_gnode_input(g, slice, past);
    td_gnode_input(g, slice, total);
    td_gnode_input(g, slice, td_graph_ints(g, "ints.0", (const int64_t[]){0}, 1));
    *out = td_graph_op(g, "Add", TD_STR("embed"), td_part_embedding(b, TD_STR("embed.tokens"), ids, table),
                       TD_STR("positions"), none);
    return TREADLE_OK;
}

static treadle_status self_attention(td_builder *b, int64_t layer, layer_tensors t, td_stream *stream) {
    td_graph *g = &b->graph;
    td_str x, qkv[3];
    TD_TRY(norm(b, named(b, layer, "attn.norm"), stream, t[self_ids.norm], t[self_ids.norm_bias], &x));
    TD_TRY(project_qkv(b, layer, "attn", t, &self_ids, x, qkv));
    td_gnode *n = attention_node(b, named(b, layer, "attn"), qkv[0], qkv[1], qkv[2]);
    td_gnode_input(g, n, none); /* attn_mask */
    for (int kind = 0; kind < 2; kind++) td_gnode_input(g, n, cache_name(b, "past", kind, "self", layer));
    for (int kind = 0; kind < 2; kind++) td_gnode_output(g, n, cache_name(b, "present", kind, "self", layer));
    head_counts(b, n, b->model.n_heads);
    td_gnode_int(g, n, "is_causal", 1);
    return td_part_projection(b, named(b, layer, "attn.o"), t[self_ids.o], t[self_ids.o_bias], n ? n->outputs[0] : none,
                              &stream->branch);
}

static treadle_status cross_attention(td_builder *b, int64_t layer, layer_tensors t, td_stream *stream) {
    td_graph *g = &b->graph;
    enum { AFTER_SOFTMAX = 3 };
    td_str x, q;
    TD_TRY(norm(b, named(b, layer, "cross.norm"), stream, t[cross_ids.norm], t[cross_ids.norm_bias], &x));
    TD_TRY(td_part_projection(b, named(b, layer, "cross.q"), t[cross_ids.q], t[cross_ids.q_bias], x, &q));
    q = split_heads(b, named(b, layer, "cross.q_heads"), q);
    td_gnode *n = attention_node(b, named(b, layer, "cross"), q, cache_name(b, "past", 0, "cross", layer),
                                 cache_name(b, "past", 1, "cross", layer));
    td_gnode_output(g, n, none); /* present_key */
    td_gnode_output(g, n, none);
    td_gnode_output(g, n, td_graph_name(g, "cross_qk_%lld", (long long)layer));
    td_gnode_int(g, n, "qk_matmul_output_mode", AFTER_SOFTMAX);
    td_str mixed = join_heads(b, named(b, layer, "cross.rows"), n ? n->outputs[0] : none);
    return td_part_projection(b, named(b, layer, "cross.o"), t[cross_ids.o], t[cross_ids.o_bias], mixed,
                              &stream->branch);
}

static void decoder_outputs(td_builder *b) {
    const td_model *m = &b->model;
    td_graph_output(&b->graph, TD_STR("logits"), TD_FLOAT, 3, (const int64_t[]){-1, -1, m->sizes[TD_SIZE_VOCAB]},
                    (const char *const[]){"batch_size", "sequence_length", NULL});
    for (int64_t layer = 0; layer < m->n_layers; layer++)
        for (int kind = 0; kind < 2; kind++)
            td_graph_output(&b->graph, cache_name(b, "present", kind, "self", layer), TD_FLOAT, 4,
                            (const int64_t[]){-1, m->n_heads, -1, m->head_dim},
                            (const char *const[]){"batch_size", NULL, "total_sequence_length", NULL});
    for (int64_t layer = 0; layer < m->n_layers; layer++)
        td_graph_output(&b->graph, td_graph_name(&b->graph, "cross_qk_%lld", (long long)layer), TD_FLOAT, 4,
                        (const int64_t[]){-1, m->n_heads, -1, m->sizes[TD_SIZE_ENCODER_CONTEXT]},
                        (const char *const[]){"batch_size", NULL, "sequence_length", NULL});
}

treadle_status td_part_speech_decoder(td_builder *b) {
    td_graph *g = &b->graph;
    const td_model *m = &b->model;
    const td_source_tensor *head = m->tensors[TD_MT_HEAD];
    td_matrix table, head_matrix;
    td_stream stream = {none, none};
    td_str ids = TD_STR("input_ids"), x;
    td_graph_input(g, ids, TD_INT64, 2, (const int64_t[]){-1, -1},
                   (const char *const[]){"batch_size", "sequence_length"});
    cache_inputs(b);
    TD_TRY(embed(b, ids, &table, &stream.sum));
    for (int64_t layer = 0; layer < m->n_layers; layer++) {
        layer_tensors t = m->layers[layer];
        TD_TRY(self_attention(b, layer, t, &stream));
        TD_TRY(cross_attention(b, layer, t, &stream));
        TD_TRY(feed_forward(b, layer, t, &stream));
    }
    TD_TRY(td_part_norm(b, TD_STR("norm"), &stream, TD_NORM_LAYER, m->tensors[TD_MT_NORM], m->tensors[TD_MT_NORM_BIAS],
                        false, &x));
    if (head)
        TD_TRY(td_weights_matrix(&b->weights, head->name, &(td_rows){.tensor = head}, 1, TD_USE_LINEAR, &head_matrix));
    td_part_linear(b, TD_STR("logits"), x, head ? &head_matrix : &table, none);
    decoder_outputs(b);
    td_part_functions(b);
    return g->failed ? td_fail_memory(b->err, "the graph", 0) : TREADLE_OK;
}
