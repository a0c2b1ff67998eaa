/* compile/arch.c - the table of architectures, and matching a checkpoint against a row of it. */
#include "compile/arch.h"

#include "compile/parts.h"

#include <stdio.h>

/* --- llama: RMSNorm, rotary embedding, grouped queries, gated SiLU; biases where the file has them */
static const td_slot llama_model[] = {
    {TD_MT_EMBED, "token_embd.weight", "model.embed_tokens.weight", true, {TD_SIZE_HIDDEN, TD_SIZE_VOCAB}},
    {TD_MT_NORM, "output_norm.weight", "model.norm.weight", true, {TD_SIZE_HIDDEN}},
    {TD_MT_HEAD, "output.weight", "lm_head.weight", false, {TD_SIZE_HIDDEN, TD_SIZE_VOCAB}}, /* absent: tied */
    {TD_MT_ROPE_FREQS, "rope_freqs.weight", NULL, false, {TD_SIZE_ROTARY_HALF}},
};
static const td_slot llama_layer[] = {
    {TD_LT_ATTN_NORM, "attn_norm.weight", "input_layernorm.weight", true, {TD_SIZE_HIDDEN}},
    {TD_LT_Q, "attn_q.weight", "self_attn.q_proj.weight", true, {TD_SIZE_HIDDEN, TD_SIZE_QUERY}},
    {TD_LT_K, "attn_k.weight", "self_attn.k_proj.weight", true, {TD_SIZE_HIDDEN, TD_SIZE_KV}},
    {TD_LT_V, "attn_v.weight", "self_attn.v_proj.weight", true, {TD_SIZE_HIDDEN, TD_SIZE_KV}},
    {TD_LT_O, "attn_output.weight", "self_attn.o_proj.weight", true, {TD_SIZE_QUERY, TD_SIZE_HIDDEN}},
    {TD_LT_Q_BIAS, "attn_q.bias", "self_attn.q_proj.bias", false, {TD_SIZE_QUERY}},
    {TD_LT_K_BIAS, "attn_k.bias", "self_attn.k_proj.bias", false, {TD_SIZE_KV}},
    {TD_LT_V_BIAS, "attn_v.bias", "self_attn.v_proj.bias", false, {TD_SIZE_KV}},
    {TD_LT_O_BIAS, "attn_output.bias", "self_attn.o_proj.bias", false, {TD_SIZE_HIDDEN}},
    {TD_LT_FFN_NORM, "ffn_norm.weight", "post_attention_layernorm.weight", true, {TD_SIZE_HIDDEN}},
    {TD_LT_GATE, "ffn_gate.weight", "mlp.gate_proj.weight", true, {TD_SIZE_HIDDEN, TD_SIZE_FFN}},
    {TD_LT_UP, "ffn_up.weight", "mlp.up_proj.weight", true, {TD_SIZE_HIDDEN, TD_SIZE_FFN}},
    {TD_LT_DOWN, "ffn_down.weight", "mlp.down_proj.weight", true, {TD_SIZE_FFN, TD_SIZE_HIDDEN}},
    {TD_LT_GATE_BIAS, "ffn_gate.bias", "mlp.gate_proj.bias", false, {TD_SIZE_FFN}},
    {TD_LT_UP_BIAS, "ffn_up.bias", "mlp.up_proj.bias", false, {TD_SIZE_FFN}},
    {TD_LT_DOWN_BIAS, "ffn_down.bias", "mlp.down_proj.bias", false, {TD_SIZE_HIDDEN}},
};
static const char *const llama_ignored[] = {"blk.*.attn_rot_embd", "blk.*.attn_rot_embd.weight",
                                            "model.layers.*.self_attn.rotary_emb.inv_freq", NULL};

/* --- whisper: two convolutions over log-mel frames and an encoder; a decoder with attention to it; LayerNorm, learned
 * positions on both sides, a plain feed-forward with biases; the head is the embedding table */
static const td_slot whisper_model[] = {
    {TD_MT_CONV1, NULL, "model.encoder.conv1.weight", true, {TD_SIZE_CONV_KERNEL, TD_SIZE_MELS, TD_SIZE_HIDDEN}},
    {TD_MT_CONV1_BIAS, NULL, "model.encoder.conv1.bias", true, {TD_SIZE_HIDDEN}},
    {TD_MT_CONV2, NULL, "model.encoder.conv2.weight", true, {TD_SIZE_CONV_KERNEL, TD_SIZE_HIDDEN, TD_SIZE_HIDDEN}},
    {TD_MT_CONV2_BIAS, NULL, "model.encoder.conv2.bias", true, {TD_SIZE_HIDDEN}},
    {TD_MT_ENCODER_POSITIONS,
     NULL,
     "model.encoder.embed_positions.weight",
     true,
     {TD_SIZE_HIDDEN, TD_SIZE_ENCODER_CONTEXT}},
    {TD_MT_ENCODER_NORM, NULL, "model.encoder.layer_norm.weight", true, {TD_SIZE_HIDDEN}},
    {TD_MT_ENCODER_NORM_BIAS, NULL, "model.encoder.layer_norm.bias", true, {TD_SIZE_HIDDEN}},
    {TD_MT_EMBED, NULL, "model.decoder.embed_tokens.weight", true, {TD_SIZE_HIDDEN, TD_SIZE_VOCAB}},
    {TD_MT_POSITIONS, NULL, "model.decoder.embed_positions.weight", true, {TD_SIZE_HIDDEN, TD_SIZE_CONTEXT}},
    {TD_MT_NORM, NULL, "model.decoder.layer_norm.weight", true, {TD_SIZE_HIDDEN}},
    {TD_MT_NORM_BIAS, NULL, "model.decoder.layer_norm.bias", true, {TD_SIZE_HIDDEN}},
    {TD_MT_HEAD, NULL, "proj_out.weight", false, {TD_SIZE_HIDDEN, TD_SIZE_VOCAB}},
};
#define WHISPER_ATTENTION(id, name)                                                                                    \
    {TD_LT_##id##NORM, NULL, name "_layer_norm.weight", true, {TD_SIZE_HIDDEN}}, {                                     \
        TD_LT_##id##NORM_BIAS, NULL, name "_layer_norm.bias", true, { TD_SIZE_HIDDEN }                                 \
    }
#define WHISPER_PROJECTIONS(id, name)                                                                                  \
    {TD_LT_##id##Q, NULL, name ".q_proj.weight", true, {TD_SIZE_HIDDEN, TD_SIZE_HIDDEN}},                              \
        {TD_LT_##id##K, NULL, name ".k_proj.weight", true, {TD_SIZE_HIDDEN, TD_SIZE_HIDDEN}},                          \
        {TD_LT_##id##V, NULL, name ".v_proj.weight", true, {TD_SIZE_HIDDEN, TD_SIZE_HIDDEN}},                          \
        {TD_LT_##id##O, NULL, name ".out_proj.weight", true, {TD_SIZE_HIDDEN, TD_SIZE_HIDDEN}},                        \
        {TD_LT_##id##Q_BIAS, NULL, name ".q_proj.bias", false, {TD_SIZE_HIDDEN}},                                      \
        {TD_LT_##id##K_BIAS, NULL, name ".k_proj.bias", false, {TD_SIZE_HIDDEN}},                                      \
        {TD_LT_##id##V_BIAS, NULL, name ".v_proj.bias", false, {TD_SIZE_HIDDEN}}, {                                    \
        TD_LT_##id##O_BIAS, NULL, name ".out_proj.bias", false, { TD_SIZE_HIDDEN }                                     \
    }
#define WHISPER_FFN(ffn)                                                                                               \
    {TD_LT_FFN_NORM, NULL, "final_layer_norm.weight", true, {TD_SIZE_HIDDEN}},                                         \
        {TD_LT_FFN_NORM_BIAS, NULL, "final_layer_norm.bias", true, {TD_SIZE_HIDDEN}},                                  \
        {TD_LT_UP, NULL, "fc1.weight", true, {TD_SIZE_HIDDEN, ffn}}, {TD_LT_UP_BIAS, NULL, "fc1.bias", true, {ffn}},   \
        {TD_LT_DOWN, NULL, "fc2.weight", true, {ffn, TD_SIZE_HIDDEN}}, {                                               \
        TD_LT_DOWN_BIAS, NULL, "fc2.bias", true, { TD_SIZE_HIDDEN }                                                    \
    }
static const td_slot whisper_encoder_layer[] = {
    WHISPER_ATTENTION(ATTN_, "self_attn"),
    WHISPER_PROJECTIONS(, "self_attn"),
    WHISPER_FFN(TD_SIZE_ENCODER_FFN),
};
static const td_slot whisper_layer[] = {
    WHISPER_ATTENTION(ATTN_, "self_attn"),
    WHISPER_PROJECTIONS(, "self_attn"),
    WHISPER_ATTENTION(CROSS_, "encoder_attn"),
    WHISPER_PROJECTIONS(CROSS_, "encoder_attn"),
    WHISPER_FFN(TD_SIZE_FFN),
};
static const char *const nothing_ignored[] = {NULL};

/* --- the table */

static const char *const llama_types[] = {"llama", "mistral", NULL};
static const char *const qwen2_types[] = {"qwen2", NULL};
static const char *const whisper_types[] = {"whisper", NULL};
static const td_arch_graph decoder_graphs[] = {{"model", td_part_decoder, 21, 10}};
static const td_arch_graph speech_graphs[] = {{"encoder", td_part_speech_encoder, 23, 11},
                                              {"decoder", td_part_speech_decoder, 23, 11}};

#define LIST(array, gguf, hf)                                                                                          \
    { array, TD_COUNT(array), gguf, hf }

static const td_arch archs[] = {
    {.name = "llama",
     .in_gguf = true,
     .gguf_rope = TD_ROPE_PAIRS,
     .hf_types = llama_types,
     .read_hf = td_arch_read_hf_decoder,
     .model = LIST(llama_model, "", ""),
     .layer = LIST(llama_layer, "blk.", "model.layers."),
     .ignored = llama_ignored,
     .graphs = decoder_graphs,
     .n_graphs = TD_COUNT(decoder_graphs)},
    {.name = "qwen2", /* biases of q, k and v; rotary halves in both kinds of file */
     .in_gguf = true,
     .gguf_rope = TD_ROPE_HALVES,
     .hf_types = qwen2_types,
     .read_hf = td_arch_read_hf_decoder,
     .model = LIST(llama_model, "", ""),
     .layer = LIST(llama_layer, "blk.", "model.layers."),
     .ignored = llama_ignored,
     .graphs = decoder_graphs,
     .n_graphs = TD_COUNT(decoder_graphs)},
    {.name = "whisper",
     .hf_types = whisper_types,
     .read_hf = td_arch_read_hf_speech,
     .model = LIST(whisper_model, "", ""),
     .layer = LIST(whisper_layer, "", "model.decoder.layers."),
     .encoder_layer = LIST(whisper_encoder_layer, "", "model.encoder.layers."),
     .ignored = nothing_ignored,
     .graphs = speech_graphs,
     .n_graphs = TD_COUNT(speech_graphs)},
};

/* --- choosing the row */

static bool listed(td_str name, const char *const *names) {
    for (; names && *names; names++)
        if (td_str_is(name, *names)) return true;
    return false;
}

static treadle_status find_gguf_arch(const td_gguf *g, const td_arch **out, treadle_error *err) {
    td_str name;
    td_buf known = {0};
    TD_TRY(td_gguf_get_text(g, "general.architecture", (td_str){NULL, 0}, &name, err));
    if (name.n == 0) return td_fail(err, TREADLE_FORMAT, "key 'general.architecture' is missing");
    for (size_t i = 0; i < TD_COUNT(archs); i++) {
        if (!archs[i].in_gguf) continue;
        if (td_str_is(name, archs[i].name)) {
            td_buf_free(&known);
            return *out = &archs[i], TREADLE_OK;
        }
        td_buf_printf(&known, "%s%s", known.n ? ", " : "", archs[i].name);
    }
    td_fail(err, TREADLE_UNSUPPORTED, "architecture '%.*s' is not supported in GGUF files (known: %s)",
            (int)TD_MIN(name.n, 100), name.p, known.p ? known.p : "");
    td_buf_free(&known);
    return TREADLE_UNSUPPORTED;
}

static treadle_status find_hf_arch(const td_hf *hf, const td_arch **out, treadle_error *err) {
    td_str type = td_json_string_or(hf->config, "model_type", "");
    td_buf known = {0};
    for (size_t i = 0; i < TD_COUNT(archs); i++) {
        if (listed(type, archs[i].hf_types)) {
            td_buf_free(&known);
            return *out = &archs[i], TREADLE_OK;
        }
        for (const char *const *name = archs[i].hf_types; name && *name; name++)
            td_buf_printf(&known, "%s%s", known.n ? ", " : "", *name);
    }
    if (type.n == 0)
        td_fail(err, TREADLE_FORMAT, "'model_type' is missing in config.json (known: %s)", known.p ? known.p : "");
    else
        td_fail(err, TREADLE_UNSUPPORTED, "model_type '%.*s' is not supported (known: %s)", (int)TD_MIN(type.n, 100),
                type.p, known.p ? known.p : "");
    td_buf_free(&known);
    return type.n ? TREADLE_UNSUPPORTED : TREADLE_FORMAT;
}

/* --- tensors */

/* Finding tensors by the names of the source that the model comes from. */
typedef struct finder {
    td_model *m;
    bool bare; /* a Hugging Face file without the leading "model." */
    bool *used;
    treadle_error *err;
} finder;

static const td_source_tensor *find_named(const finder *f, const char *name) {
    td_str text = td_str_from(name), lead = TD_STR("model.");
    if (f->bare && td_str_starts(text, lead)) text = (td_str){text.p + lead.n, text.n - lead.n};
    return td_tensor_set_find(f->m->checkpoint->source, text);
}

static bool has_prefix(const td_tensor_set *source, td_str prefix) {
    for (size_t i = 0; i < source->tensors.n; i++)
        if (td_str_starts(source->tensors.items[i].name, prefix)) return true;
    return false;
}

static treadle_status check_tensor(const finder *f, const td_slot *slot, const td_source_tensor *t) {
    int64_t want[3];
    int rank = 1;
    bool same = true;
    for (int i = 0; i < 3; i++) {
        want[i] = slot->dims[i] == TD_SIZE_NONE ? 1 : f->m->sizes[slot->dims[i]];
        if (slot->dims[i] != TD_SIZE_NONE) rank = i + 1;
    }
    for (int i = 0; i < TD_SOURCE_RANK; i++) same &= t->dims[i] == (i < 3 ? want[i] : 1);
    if (!same) {
        char found_text[TD_SOURCE_SHAPE_TEXT], want_text[TD_SOURCE_SHAPE_TEXT];
        return td_fail(f->err, TREADLE_FORMAT, "tensor '%.*s' has shape %s, expected %s", (int)TD_MIN(t->name.n, 200),
                       t->name.p, td_source_shape_text(t->rank, t->dims, found_text),
                       td_source_shape_text(rank, want, want_text));
    }
    if (!t->format)
        return td_fail(f->err, TREADLE_UNSUPPORTED, "tensor '%.*s' has type %s, expected F32, F16, BF16 or F64",
                       (int)TD_MIN(t->name.n, 200), t->name.p, t->type);
    return TREADLE_OK;
}

static treadle_status fill_slot(finder *f, const td_slot *slot, const char *name, const td_source_tensor **out) {
    const td_source_tensor *t = name ? find_named(f, name) : NULL;
    *out = t;
    if (!t && slot->required) return td_fail(f->err, TREADLE_FORMAT, "tensor '%s' is missing", name);
    if (!t) return TREADLE_OK;
    f->used[t - f->m->checkpoint->source->tensors.items] = true;
    return check_tensor(f, slot, t);
}

static const char *name_of(const finder *f, const td_slot *slot) {
    return f->m->checkpoint->hf ? slot->hf : slot->gguf;
}

static treadle_status fill_layers(finder *f, const td_slot_list *list, int64_t n_layers, td_arena *arena,
                                  const td_source_tensor *(**out)[TD_LT_COUNT]) {
    const char *prefix = f->m->checkpoint->hf ? list->hf_prefix : list->gguf_prefix;
    size_t n_tensors = f->m->checkpoint->source->tensors.n;
    /* Every layer has tensors of its own: more layers than tensors cannot be. */
    if ((uint64_t)n_layers > n_tensors)
        return td_fail(f->err, TREADLE_FORMAT, "%lld layers, but only %zu tensors", (long long)n_layers, n_tensors);
    *out = td_arena_array(arena, (size_t)n_layers, sizeof **out, sizeof(void *));
    if (!*out) return td_fail_memory(f->err, "layers", (size_t)n_layers * sizeof **out);
    for (int64_t layer = 0; layer < n_layers; layer++) {
        for (size_t i = 0; i < list->n; i++) {
            char name[128];
            const char *tail = name_of(f, &list->items[i]);
            if (tail) snprintf(name, sizeof name, "%s%lld.%s", prefix, (long long)layer, tail);
            TD_TRY(fill_slot(f, &list->items[i], tail ? name : NULL, &(*out)[layer][list->items[i].tensor]));
        }
    }
    return TREADLE_OK;
}

static treadle_status refuse_unknown(const finder *f) {
    const td_tensor_set *source = f->m->checkpoint->source;
    for (size_t i = 0; i < source->tensors.n; i++) {
        char name[128];
        td_str text = source->tensors.items[i].name;
        bool ignored = false;
        snprintf(name, sizeof name, "%s%.*s", f->bare ? "model." : "", (int)TD_MIN(text.n, sizeof name - 8), text.p);
        for (size_t k = 0; f->m->arch->ignored[k]; k++) ignored |= td_glob(f->m->arch->ignored[k], name);
        if (!f->used[i] && !ignored)
            return td_fail(f->err, TREADLE_UNSUPPORTED,
                           "tensor '%.*s' is not part of architecture %s as it is supported", (int)TD_MIN(text.n, 200),
                           text.p, f->m->arch->name);
    }
    return TREADLE_OK;
}

static treadle_status find_tensors(td_model *m, td_arena *arena, treadle_error *err) {
    const td_arch *arch = m->arch;
    const td_tensor_set *source = m->checkpoint->source;
    finder f = {.m = m, .err = err, .used = TD_ARENA_ARRAY(arena, bool, source->tensors.n)};
    if (!f.used) return td_fail_memory(err, "tensors", source->tensors.n);
    f.bare = m->checkpoint->hf && !has_prefix(source, TD_STR("model."));
    for (size_t i = 0; i < arch->model.n; i++) {
        const td_slot *slot = &arch->model.items[i];
        const td_source_tensor *embed = slot->tensor == TD_MT_EMBED ? find_named(&f, name_of(&f, slot)) : NULL;
        if (embed) m->sizes[TD_SIZE_VOCAB] = embed->dims[1];
        if (embed && embed->dims[1] < 1)
            return td_fail(err, TREADLE_FORMAT, "tensor '%.*s' has no rows", (int)TD_MIN(embed->name.n, 200),
                           embed->name.p);
    }
    for (size_t i = 0; i < arch->model.n; i++)
        TD_TRY(fill_slot(&f, &arch->model.items[i], name_of(&f, &arch->model.items[i]),
                         &m->tensors[arch->model.items[i].tensor]));
    TD_TRY(fill_layers(&f, &arch->layer, m->n_layers, arena, &m->layers));
    if (m->n_encoder_layers)
        TD_TRY(fill_layers(&f, &arch->encoder_layer, m->n_encoder_layers, arena, &m->encoder_layers));
    if (m->tied) m->tensors[TD_MT_HEAD] = NULL;
    return refuse_unknown(&f);
}

treadle_status td_model_resolve(const td_checkpoint *checkpoint, td_arena *arena, td_model *out, treadle_error *err) {
    *out = (td_model){.checkpoint = checkpoint};
    if (checkpoint->gguf) {
        TD_TRY(find_gguf_arch(checkpoint->gguf, &out->arch, err));
        TD_TRY(td_arch_read_gguf(out, err));
    } else {
        TD_TRY(find_hf_arch(checkpoint->hf, &out->arch, err));
        TD_TRY(out->arch->read_hf(out, arena, err));
    }
    return find_tensors(out, arena, err);
}
