/* compile/arch.c - the table of architectures, and matching a file against a row of it. */
#include "compile/arch.h"

#include <stdio.h>

/* More positions than this get no place in the cos and sin tables: two tables of this length with 64 columns are 512 MB. */
enum { MAX_CONTEXT = 1 << 20 };

/* --- llama: RMSNorm, rotary embedding in pairs, grouped queries, gated SiLU; biases where the file has them */
static const td_slot llama_model[] = {
    {TD_MT_EMBED, "token_embd.weight", true, TD_SIZE_HIDDEN, TD_SIZE_VOCAB},
    {TD_MT_NORM, "output_norm.weight", true, TD_SIZE_HIDDEN, TD_SIZE_NONE},
    {TD_MT_HEAD, "output.weight", false, TD_SIZE_HIDDEN, TD_SIZE_VOCAB}, /* absent: tied */
    {TD_MT_ROPE_FREQS, "rope_freqs.weight", false, TD_SIZE_ROTARY_HALF, TD_SIZE_NONE},
};
static const td_slot llama_layer[] = {
    {TD_LT_ATTN_NORM, "attn_norm.weight", true, TD_SIZE_HIDDEN, TD_SIZE_NONE},
    {TD_LT_Q, "attn_q.weight", true, TD_SIZE_HIDDEN, TD_SIZE_QUERY},
    {TD_LT_K, "attn_k.weight", true, TD_SIZE_HIDDEN, TD_SIZE_KV},
    {TD_LT_V, "attn_v.weight", true, TD_SIZE_HIDDEN, TD_SIZE_KV},
    {TD_LT_O, "attn_output.weight", true, TD_SIZE_QUERY, TD_SIZE_HIDDEN},
    {TD_LT_Q_BIAS, "attn_q.bias", false, TD_SIZE_QUERY, TD_SIZE_NONE},
    {TD_LT_K_BIAS, "attn_k.bias", false, TD_SIZE_KV, TD_SIZE_NONE},
    {TD_LT_V_BIAS, "attn_v.bias", false, TD_SIZE_KV, TD_SIZE_NONE},
    {TD_LT_O_BIAS, "attn_output.bias", false, TD_SIZE_HIDDEN, TD_SIZE_NONE},
    {TD_LT_FFN_NORM, "ffn_norm.weight", true, TD_SIZE_HIDDEN, TD_SIZE_NONE},
    {TD_LT_GATE, "ffn_gate.weight", true, TD_SIZE_HIDDEN, TD_SIZE_FFN},
    {TD_LT_UP, "ffn_up.weight", true, TD_SIZE_HIDDEN, TD_SIZE_FFN},
    {TD_LT_DOWN, "ffn_down.weight", true, TD_SIZE_FFN, TD_SIZE_HIDDEN},
    {TD_LT_GATE_BIAS, "ffn_gate.bias", false, TD_SIZE_FFN, TD_SIZE_NONE},
    {TD_LT_UP_BIAS, "ffn_up.bias", false, TD_SIZE_FFN, TD_SIZE_NONE},
    {TD_LT_DOWN_BIAS, "ffn_down.bias", false, TD_SIZE_HIDDEN, TD_SIZE_NONE},
};
static const char *const llama_ignored[] = {"blk.*.attn_rot_embd", "blk.*.attn_rot_embd.weight", NULL};

static const td_arch archs[] = {
    {"llama", TD_ROPE_PAIRS, llama_model, llama_layer, TD_COUNT(llama_model), TD_COUNT(llama_layer), llama_ignored},
};

const td_arch *td_arch_at(size_t index) { return index < TD_COUNT(archs) ? &archs[index] : NULL; }

/* --- choosing the row */

static treadle_status find_arch(const td_gguf *g, const td_arch **out, treadle_error *err) {
    td_str name;
    char known[512];
    size_t at = 0;
    TD_TRY(td_gguf_get_text(g, "general.architecture", (td_str){NULL, 0}, &name, err));
    if (name.n == 0) return td_fail(err, TREADLE_FORMAT, "key 'general.architecture' is missing");
    for (size_t i = 0; i < TD_COUNT(archs); i++) {
        if (td_str_is(name, archs[i].name)) return *out = &archs[i], TREADLE_OK;
        at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", archs[i].name);
        at = TD_MIN(at, sizeof known - 1);
    }
    return td_fail(err, TREADLE_UNSUPPORTED, "architecture '%.*s' is not supported (known: %s)",
                   (int)TD_MIN(name.n, 100), name.p, known);
}

/* --- hyperparameters */

typedef struct keys {
    const td_model *m;
    treadle_error *err;
    char text[160];
} keys;

static const char *key_of(keys *k, const char *suffix) {
    snprintf(k->text, sizeof k->text, "%s.%s", k->m->arch->name, suffix);
    return k->text;
}

/* fallback < 0: the key must be there. An array (one number per layer) must hold the same number throughout. */
static treadle_status read_int(keys *k, const char *suffix, int64_t high, int64_t fallback, int64_t *out) {
    const char *key = key_of(k, suffix);
    const td_gguf_value *v = td_gguf_find(k->m->gguf, key);
    if (!v && fallback < 0) return td_fail(k->err, TREADLE_FORMAT, "key '%s' is missing", key);
    if (v && v->type == TD_GGUF_ARRAY) {
        int64_t first = 0, other;
        for (uint64_t i = 0; i < v->n; i++) {
            if (!td_gguf_int_at(v, i, &other))
                return td_fail(k->err, TREADLE_FORMAT, "key '%s' is no array of integers", key);
            if (i > 0 && other != first)
                return td_fail(k->err, TREADLE_UNSUPPORTED,
                               "key '%s' differs between layers, which is not supported for %s", key, k->m->arch->name);
            first = other;
        }
        if (v->n == 0 || first < 1 || first > high)
            return td_fail(k->err, TREADLE_FORMAT, "key '%s' holds %lld, expected 1 to %lld", key, (long long)first,
                           (long long)high);
        *out = first;
        return TREADLE_OK;
    }
    return td_gguf_get_int(k->m->gguf, key, 1, high, fallback, out, k->err);
}

static treadle_status read_double(keys *k, const char *suffix, double fallback, double *out) {
    return td_gguf_get_double(k->m->gguf, key_of(k, suffix), fallback, out, k->err);
}

/* Keys that change the result and that no part computes. */
static treadle_status refuse_unsupported(keys *k) {
    static const char *const must_be_zero[] = {"expert_count", "attention.max_alibi_bias", "attention.clamp_kqv",
                                               "attn_logit_softcapping", "final_logit_softcapping"};
    for (size_t i = 0; i < TD_COUNT(must_be_zero); i++) {
        double value;
        TD_TRY(read_double(k, must_be_zero[i], 0, &value));
        if (value != 0)
            return td_fail(k->err, TREADLE_UNSUPPORTED, "key '%s' is %g; for %s only 0 is supported",
                           key_of(k, must_be_zero[i]), value, k->m->arch->name);
    }
    return TREADLE_OK;
}

static treadle_status read_rope(keys *k, td_model *m) {
    td_str type;
    double linear;
    TD_TRY(read_double(k, "rope.freq_base", 10000.0, &m->rope_base));
    TD_TRY(td_gguf_get_text(m->gguf, key_of(k, "rope.scaling.type"), TD_STR("none"), &type, k->err));
    TD_TRY(read_double(k, "rope.scale_linear", 1.0, &linear)); /* the older way to say it */
    TD_TRY(read_double(k, "rope.scaling.factor", linear, &m->rope_factor));
    TD_TRY(read_double(k, "rope.scaling.original_context_length", (double)m->context, &m->original_context));
    TD_TRY(read_double(k, "rope.scaling.attn_factor", 1.0, &m->attn_factor));
    TD_TRY(read_double(k, "rope.scaling.yarn_beta_fast", 32.0, &m->beta_fast));
    TD_TRY(read_double(k, "rope.scaling.yarn_beta_slow", 1.0, &m->beta_slow));
    if (m->rope_factor == 0) m->rope_factor = 1;
    if (td_str_is(type, "yarn")) m->scaling = TD_SCALING_YARN;
    else if (td_str_is(type, "linear") || (td_str_is(type, "none") && linear != 1)) m->scaling = TD_SCALING_LINEAR;
    else if (!td_str_is(type, "none"))
        return td_fail(k->err, TREADLE_UNSUPPORTED, "key '%s' is '%.*s' (known: none, linear, yarn)",
                       key_of(k, "rope.scaling.type"), (int)TD_MIN(type.n, 100), type.p);
    if (!(m->rope_base > 0) || !(m->rope_factor > 0) || !(m->original_context > 0))
        return td_fail(k->err, TREADLE_FORMAT, "the rotary embedding's base, factor and context must be above 0");
    return TREADLE_OK;
}

static treadle_status read_hyperparameters(td_model *m, treadle_error *err) {
    keys k = {.m = m, .err = err};
    int64_t hidden, ffn, value_dim;
    double epsilon, scale;
    TD_TRY(read_int(&k, "embedding_length", 1 << 20, -1, &hidden));
    TD_TRY(read_int(&k, "block_count", 4096, -1, &m->n_layers));
    TD_TRY(read_int(&k, "feed_forward_length", 1 << 24, -1, &ffn));
    TD_TRY(read_int(&k, "attention.head_count", 1 << 16, -1, &m->n_heads));
    TD_TRY(read_int(&k, "attention.head_count_kv", 1 << 16, m->n_heads, &m->n_kv_heads));
    TD_TRY(read_int(&k, "attention.key_length", 1 << 16, TD_MAX(hidden / m->n_heads, 1), &m->head_dim));
    TD_TRY(read_int(&k, "attention.value_length", 1 << 16, m->head_dim, &value_dim));
    TD_TRY(read_int(&k, "rope.dimension_count", 1 << 16, m->head_dim, &m->rotary_dim));
    TD_TRY(read_int(&k, "context_length", (int64_t)1 << 40, -1, &m->context));
    TD_TRY(read_double(&k, "attention.layer_norm_rms_epsilon", -1, &epsilon));
    TD_TRY(read_double(&k, "attention.scale", 0, &scale));
    if (epsilon < 0)
        return td_fail(err, TREADLE_FORMAT, "key '%s' is missing", key_of(&k, "attention.layer_norm_rms_epsilon"));
    if (m->n_heads % m->n_kv_heads)
        return td_fail(err, TREADLE_FORMAT, "%lld heads are no multiple of %lld KV heads", (long long)m->n_heads,
                       (long long)m->n_kv_heads);
    if (value_dim != m->head_dim)
        return td_fail(err, TREADLE_UNSUPPORTED, "heads of %lld keys and %lld values: both must be equal for %s",
                       (long long)m->head_dim, (long long)value_dim, m->arch->name);
    if (m->rotary_dim > m->head_dim || m->rotary_dim % 2)
        return td_fail(err, TREADLE_FORMAT,
                       "%lld rotary dimensions of a head of %lld: expected an even number up to that",
                       (long long)m->rotary_dim, (long long)m->head_dim);
    m->context = TD_MIN(m->context, (int64_t)MAX_CONTEXT);
    m->norm_epsilon = (float)epsilon;
    m->attention_scale = (float)scale;
    m->sizes[TD_SIZE_HIDDEN] = hidden;
    m->sizes[TD_SIZE_FFN] = ffn;
    m->sizes[TD_SIZE_QUERY] = m->n_heads * m->head_dim;
    m->sizes[TD_SIZE_KV] = m->n_kv_heads * m->head_dim;
    m->sizes[TD_SIZE_ROTARY_HALF] = m->rotary_dim / 2;
    TD_TRY(refuse_unsupported(&k));
    return read_rope(&k, m);
}

/* --- tensors */

static treadle_status check_shape(const td_model *m, const td_slot *slot, const td_gguf_tensor *t, treadle_error *err) {
    int64_t in = m->sizes[slot->in], out = slot->out == TD_SIZE_NONE ? 1 : m->sizes[slot->out];
    if (t->dims[0] == in && t->dims[1] == out && t->dims[2] == 1 && t->dims[3] == 1) return TREADLE_OK;
    return td_fail(err, TREADLE_FORMAT, "tensor '%.*s' has shape [%lld, %lld, %lld, %lld], expected [%lld, %lld]",
                   TD_STR_ARGS(t->name), (long long)t->dims[0], (long long)t->dims[1], (long long)t->dims[2],
                   (long long)t->dims[3], (long long)in, (long long)out);
}

static treadle_status fill_slot(const td_model *m, const td_slot *slot, const char *name, bool *used,
                                const td_gguf_tensor **out, treadle_error *err) {
    const td_gguf_tensor *t = td_gguf_find_tensor(m->gguf, name);
    *out = t;
    if (!t && slot->required) return td_fail(err, TREADLE_FORMAT, "tensor '%s' is missing", name);
    if (!t) return TREADLE_OK;
    used[t - m->gguf->tensors] = true;
    return check_shape(m, slot, t, err);
}

static treadle_status refuse_unknown(const td_model *m, const bool *used, treadle_error *err) {
    for (size_t i = 0; i < m->gguf->n_tensors; i++) {
        char name[128];
        td_str text = m->gguf->tensors[i].name;
        bool ignored = false;
        snprintf(name, sizeof name, "%.*s", (int)TD_MIN(text.n, sizeof name - 1), text.p);
        for (size_t k = 0; m->arch->ignored[k]; k++) ignored |= td_glob(m->arch->ignored[k], name);
        if (!used[i] && !ignored)
            return td_fail(err, TREADLE_UNSUPPORTED, "tensor '%s' is not part of architecture %s as it is supported",
                           name, m->arch->name);
    }
    return TREADLE_OK;
}

static treadle_status find_tensors(td_model *m, td_arena *arena, treadle_error *err) {
    const td_arch *arch = m->arch;
    bool *used = TD_ARENA_ARRAY(arena, bool, m->gguf->n_tensors);
    /* Every layer has tensors of its own: more layers than tensors cannot be. */
    if ((uint64_t)m->n_layers > m->gguf->n_tensors)
        return td_fail(err, TREADLE_FORMAT, "%lld layers, but only %zu tensors", (long long)m->n_layers,
                       m->gguf->n_tensors);
    m->layers = td_arena_array(arena, (size_t)m->n_layers, sizeof *m->layers, sizeof(void *));
    if (!used || !m->layers) return td_fail_memory(err, "layers", (size_t)m->n_layers * sizeof *m->layers);
    const td_gguf_tensor *embed = td_gguf_find_tensor(m->gguf, "token_embd.weight");
    m->sizes[TD_SIZE_VOCAB] = embed ? embed->dims[1] : 0;
    for (size_t i = 0; i < arch->n_model_slots; i++)
        TD_TRY(fill_slot(m, &arch->model_slots[i], arch->model_slots[i].name, used,
                         &m->tensors[arch->model_slots[i].tensor], err));
    for (int64_t layer = 0; layer < m->n_layers; layer++) {
        for (size_t i = 0; i < arch->n_layer_slots; i++) {
            char name[128];
            snprintf(name, sizeof name, "blk.%lld.%s", (long long)layer, arch->layer_slots[i].name);
            TD_TRY(
                fill_slot(m, &arch->layer_slots[i], name, used, &m->layers[layer][arch->layer_slots[i].tensor], err));
        }
    }
    return refuse_unknown(m, used, err);
}

treadle_status td_model_resolve(const td_gguf *gguf, td_arena *arena, td_model *out, treadle_error *err) {
    *out = (td_model){.gguf = gguf};
    TD_TRY(find_arch(gguf, &out->arch, err));
    TD_TRY(read_hyperparameters(out, err));
    return find_tensors(out, arena, err);
}
