/* plan/roles.c - which inputs the runtime makes: by name, by io's rename, by the slot of the op that takes them. */
#include "plan/build.h"

/* Other names in use for a role; only integers and masks are looked at. */
static const struct {
    const char *name;
    td_role role;
} aliases[] = {
    {"tokens", TD_ROLE_INPUT_IDS},
    {"token_ids", TD_ROLE_INPUT_IDS},
    {"ids", TD_ROLE_INPUT_IDS},
    {"input_tokens", TD_ROLE_INPUT_IDS},
    {"mask", TD_ROLE_ATTENTION_MASK},
    {"input_mask", TD_ROLE_ATTENTION_MASK},
    {"key_padding_mask", TD_ROLE_PADDING_MASK},
    {"src_key_padding_mask", TD_ROLE_PADDING_MASK},
    {"encoder_mask", TD_ROLE_ENCODER_ATTENTION_MASK},
    {"encoder_attn_mask", TD_ROLE_ENCODER_ATTENTION_MASK},
    {"encoder_padding_mask", TD_ROLE_ENCODER_ATTENTION_MASK},
    {"memory_mask", TD_ROLE_ENCODER_ATTENTION_MASK},
    {"source_mask", TD_ROLE_ENCODER_ATTENTION_MASK},
    {"src_mask", TD_ROLE_ENCODER_ATTENTION_MASK},
    {"positions", TD_ROLE_POSITION_IDS},
    {"pos_ids", TD_ROLE_POSITION_IDS},
    {"position", TD_ROLE_POSITION_IDS},
    {"segment_ids", TD_ROLE_TOKEN_TYPE_IDS},
    {"past_seq_len", TD_ROLE_PAST_SEQUENCE_LENGTH},
    {"past_sequence_lengths", TD_ROLE_PAST_SEQUENCE_LENGTH},
    {"past_key_values_length", TD_ROLE_PAST_SEQUENCE_LENGTH},
    {"past_length", TD_ROLE_PAST_SEQUENCE_LENGTH},
    {"past_len", TD_ROLE_PAST_SEQUENCE_LENGTH},
    {"total_seq_len", TD_ROLE_TOTAL_SEQUENCE_LENGTH},
    {"total_length", TD_ROLE_TOTAL_SEQUENCE_LENGTH},
    {"current_seq_len", TD_ROLE_CURRENT_SEQUENCE_LENGTH},
    {"current_length", TD_ROLE_CURRENT_SEQUENCE_LENGTH},
    {"cumulative_sequence_lengths", TD_ROLE_CUMULATIVE_SEQUENCE_LENGTH},
    {"cumulative_seqlens", TD_ROLE_CUMULATIVE_SEQUENCE_LENGTH},
    {"input_pos", TD_ROLE_CACHE_POSITION},
    {"write_index", TD_ROLE_WRITE_INDICES},
    {"cache_write_indices", TD_ROLE_WRITE_INDICES},
    {"kv_seqlen", TD_ROLE_NONPAD_KV_SEQLEN},
};

/* What an op's slot wants, for inputs whose names say nothing. */
static const struct {
    const char *domain, *op_type;
    uint32_t slot;
    td_role role;
} slots[] = {
    {"com.microsoft", "GroupQueryAttention", 5, TD_ROLE_SEQLENS_K},
    {"com.microsoft", "GroupQueryAttention", 6, TD_ROLE_TOTAL_SEQUENCE_LENGTH},
    {"com.microsoft", "DecoderMaskedMultiHeadAttention", 7, TD_ROLE_PAST_SEQUENCE_LENGTH},
    {"com.microsoft", "DecoderMaskedMultiHeadAttention", 9, TD_ROLE_CACHE_INDIRECTION},
    {"", "TensorScatter", 2, TD_ROLE_WRITE_INDICES},
    {"", "Attention", 6, TD_ROLE_NONPAD_KV_SEQLEN},
};

static bool is_integer(const td_light_port *port) {
    td_kind kind = td_dtype_kind(port->dtype);
    return port->kind == TD_ONNX_TYPE_TENSOR && (kind == TD_KIND_INT || kind == TD_KIND_UINT || kind == TD_KIND_BOOL);
}

/* Numbers to add, or zeros and ones: [batch, columns] or one for each pair of positions. */
static bool is_float_mask(const td_light_port *port) {
    bool tensor = port->kind == TD_ONNX_TYPE_TENSOR && td_dtype_kind(port->dtype) == TD_KIND_FLOAT;
    return tensor && (port->shape.rank == 2 || port->shape.rank == 4);
}

static td_role role_by_use(const td_plan_build_ctx *b, int32_t session, size_t input) {
    const td_uses *uses = &b->uses[session];
    for (int32_t u = uses->first[input]; u >= 0; u = uses->items[u].next)
        for (size_t k = 0; k < TD_COUNT(slots); k++)
            if (uses->items[u].slot == slots[k].slot && td_use_is(&uses->items[u], slots[k].domain, slots[k].op_type))
                return slots[k].role;
    return TD_ROLE_NONE;
}

/* By the graph's name, else by the name that io gives it. */
static td_role role_by_name(const td_plan_session *s, const td_light_port *port) {
    int role = td_words_find(td_role_words, port->name);
    for (size_t i = 0; role < 0 && i < s->config->n_inputs; i++)
        if (td_str_equal(s->config->inputs[i].to, port->name))
            role = td_words_find(td_role_words, s->config->inputs[i].from);
    return role < 0 ? TD_ROLE_NONE : (td_role)role;
}

static td_role alias_of(td_str name) {
    for (size_t k = 0; k < TD_COUNT(aliases); k++)
        if (td_str_is(name, aliases[k].name)) return aliases[k].role;
    /* what a tracing exporter calls the number of logits to keep when it takes the negative of it */
    return td_str_starts(name, TD_STR("onnx::Neg_")) ? TD_ROLE_NUM_LOGITS_TO_KEEP : TD_ROLE_NONE;
}

/* The table of embeddings that ids choose rows of, followed through casts and cuts; selects: some
 * ids are cut off on the way. */
static const td_onnx_tensor *find_table(const td_onnx_graph *graph, td_str ids, int depth, bool *selects) {
    static const char *const passes[] = {"Cast",    "Identity", "Squeeze", "Unsqueeze",
                                         "Reshape", "Gather",   "Slice",   NULL};
    enum { MAX_DEPTH = 5 };
    for (size_t i = 0; i < graph->n_nodes && depth < MAX_DEPTH; i++) {
        const td_onnx_node *node = &graph->nodes[i];
        bool gather = td_str_is(node->op_type, "Gather") && !node->domain.n;
        if (gather && node->n_inputs > 1 && td_str_equal(node->inputs[1], ids)) {
            const td_onnx_tensor *table = td_plan_initializer(graph, node->inputs[0]);
            if (table && table->rank == 2) return table;
        }
        if (!node->n_inputs || !node->n_outputs || node->domain.n || !td_str_equal(node->inputs[0], ids)) continue;
        if (td_words_find(passes, node->op_type) < 0) continue;
        const td_onnx_tensor *table = find_table(graph, node->outputs[0], depth + 1, selects);
        if (!table) continue;
        *selects |= gather || td_str_is(node->op_type, "Slice");
        return table;
    }
    return NULL;
}

/* Ids by use: the only integer input of two dimensions that chooses rows of a constant table. */
static void find_ids_by_use(td_plan_session *s) {
    ptrdiff_t found = -1;
    bool selects = false;
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        const td_light_port *port = &s->signature->inputs[i];
        bool cut = false;
        if (td_name_modality(port->name) != TD_MODALITY_NONE) return; /* rows of patches or frames, maybe */
        if (s->roles[i] != TD_ROLE_NONE || !is_integer(port) || port->shape.rank != 2) continue;
        if (!find_table(&s->signature->model->graph, port->name, 0, &cut)) continue;
        if (found >= 0) return;
        found = (ptrdiff_t)i;
        selects = cut;
    }
    if (found < 0) return;
    s->roles[found] = TD_ROLE_INPUT_IDS;
    s->last_token_only = selects;
}

/* A mask by its shape: integers or truth values, as many as there are ids. */
static void find_mask_by_shape(td_plan_session *s, int32_t token) {
    const td_light_port *ids = &s->signature->inputs[token];
    if (ids->shape.rank != 2 || !ids->dim_names[1].n || td_plan_input_of_role(s, TD_ROLE_ATTENTION_MASK) >= 0) return;
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        const td_light_port *port = &s->signature->inputs[i];
        bool same = port->shape.rank == 2 && td_str_equal(port->dim_names[1], ids->dim_names[1]);
        if (s->roles[i] == TD_ROLE_NONE && same && is_integer(port) && td_name_has_word(port->name, "mask") &&
            td_name_modality(port->name) == TD_MODALITY_NONE) {
            s->roles[i] = TD_ROLE_ATTENTION_MASK;
            return;
        }
    }
}

int64_t td_plan_embedding_rows(const td_plan_session *s) {
    int32_t token = td_plan_token_input(s);
    bool selects = false;
    const td_onnx_tensor *table =
        token < 0 ? NULL : find_table(&s->signature->model->graph, s->signature->inputs[token].name, 0, &selects);
    return table ? table->dims[0] : 0;
}

int32_t td_plan_input_of_role(const td_plan_session *session, td_role role) {
    for (size_t i = 0; i < session->signature->n_inputs; i++)
        if (session->roles[i] == role) return (int32_t)i;
    return -1;
}

int32_t td_plan_token_input(const td_plan_session *s) {
    static const td_role wanted[] = {TD_ROLE_INPUT_IDS, TD_ROLE_DECODER_INPUT_IDS, TD_ROLE_INPUTS_EMBEDS};
    for (size_t k = 0; k < TD_COUNT(wanted); k++) {
        int32_t input = td_plan_input_of_role(s, wanted[k]);
        if (input >= 0) return input;
    }
    return -1;
}

/* Encoder and decoder in one graph: the decoder's ids are the timeline's; other ids, an image or a sound and the mask
 * that goes with them are the source's. */
static void tell_source(td_plan_session *s) {
    int32_t ids = td_plan_input_of_role(s, TD_ROLE_INPUT_IDS), mask = td_plan_input_of_role(s, TD_ROLE_ATTENTION_MASK);
    bool modality = false;
    if (td_plan_input_of_role(s, TD_ROLE_DECODER_INPUT_IDS) < 0) return;
    for (size_t i = 0; i < s->signature->n_inputs; i++)
        modality |= td_name_modality(s->signature->inputs[i].name) != TD_MODALITY_NONE;
    if (ids >= 0) s->roles[ids] = TD_ROLE_SOURCE_IDS;
    if (mask >= 0 && (ids >= 0 || modality)) s->roles[mask] = ids >= 0 ? TD_ROLE_ENCODER_ATTENTION_MASK : TD_ROLE_NONE;
}

void td_plan_find_roles(td_plan_build_ctx *b, int32_t session) {
    td_plan_session *s = &b->plan->sessions[session];
    const td_config *c = b->config;
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        const td_light_port *port = &s->signature->inputs[i];
        s->roles[i] = role_by_name(s, port);
        if (c->state.position_input.n && td_str_equal(c->state.position_input, port->name))
            s->roles[i] = TD_ROLE_POSITION_IDS;
        if (s->roles[i] == TD_ROLE_NONE && is_integer(port)) s->roles[i] = role_by_use(b, session, i);
    }
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        const td_light_port *port = &s->signature->inputs[i];
        if (s->roles[i] != TD_ROLE_NONE) continue;
        td_role role = alias_of(port->name);
        if (!is_integer(port) && !(role == TD_ROLE_ATTENTION_MASK && is_float_mask(port))) continue;
        if (role != TD_ROLE_NONE && td_plan_input_of_role(s, role) < 0) s->roles[i] = role;
    }
    if (td_plan_token_input(s) < 0) find_ids_by_use(s);
    tell_source(s);
    int32_t token = td_plan_token_input(s);
    s->takes_tokens = token >= 0;
    if (token < 0) return;
    find_mask_by_shape(s, token);
    const td_shape *shape = &s->signature->inputs[token].shape;
    if (shape->rank >= 2 && shape->dims[1] > 0) s->fixed_tokens = shape->dims[1];
    if (shape->rank >= 1 && shape->dims[0] > 0) s->fixed_rows = shape->dims[0];
}

const td_onnx_tensor *td_plan_initializer(const td_onnx_graph *graph, td_str name) {
    for (size_t i = 0; i < graph->n_initializers; i++)
        if (td_str_equal(graph->initializers[i].name, name)) return &graph->initializers[i];
    return NULL;
}

bool td_plan_all_gqa(const td_plan_build_ctx *b, int32_t session) {
    enum { PAST_KEY = 3, PAST_VALUE = 4 };
    const td_plan_session *s = &b->plan->sessions[session];
    bool any = false;
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        if (s->feeds[i].kind != TD_FEED_STATE || b->plan->states[s->feeds[i].index].kind == TD_STATE_CROSS) continue;
        const td_uses *uses = &b->uses[session];
        for (int32_t u = uses->first[i]; u >= 0; u = uses->items[u].next) {
            const td_use *use = &uses->items[u];
            if (!td_use_is(use, "com.microsoft", "GroupQueryAttention")) return false;
            if (use->slot != PAST_KEY && use->slot != PAST_VALUE) return false;
            any = true;
        }
    }
    return any;
}

int64_t td_plan_position_table(const td_plan_build_ctx *b, int32_t session) {
    enum { GATHER_INDICES = 1, GQA_COS = 7 };
    const td_plan_session *s = &b->plan->sessions[session];
    const td_onnx_graph *graph = &s->signature->model->graph;
    int32_t input = td_plan_input_of_role(s, TD_ROLE_POSITION_IDS);
    int64_t shortest = 0;
    const td_uses *uses = &b->uses[session];
    for (int32_t u = input < 0 ? -1 : uses->first[input]; u >= 0; u = uses->items[u].next) {
        const td_use *use = &uses->items[u];
        if (!td_use_is(use, "", "Gather") || use->slot != GATHER_INDICES) continue;
        const td_onnx_tensor *t = td_plan_initializer(graph, use->node->inputs[0]);
        if (t && t->rank > 0 && t->dims[0] > 0 && (!shortest || t->dims[0] < shortest)) shortest = t->dims[0];
    }
    td_str last = {0}; /* layers share their tables */
    for (size_t i = 0; i < graph->n_nodes; i++) {
        const td_onnx_node *node = &graph->nodes[i];
        if (!td_str_is(node->op_type, "GroupQueryAttention") || node->n_inputs <= GQA_COS) continue;
        if (!node->inputs[GQA_COS].n || td_str_equal(node->inputs[GQA_COS], last)) continue;
        last = node->inputs[GQA_COS];
        const td_onnx_tensor *t = td_plan_initializer(graph, last);
        if (t && t->rank > 0 && t->dims[0] > 0 && (!shortest || t->dims[0] < shortest)) shortest = t->dims[0];
    }
    return shortest;
}
