/* compile/arch_gguf.c - hyperparameters from the keys of a GGUF file. */
#include "compile/arch.h"

#include <stdio.h>

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
    const td_gguf_value *v = td_gguf_find(k->m->checkpoint->gguf, key);
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
    return td_gguf_get_int(k->m->checkpoint->gguf, key, 1, high, fallback, out, k->err);
}

static treadle_status read_double(keys *k, const char *suffix, double fallback, double *out) {
    return td_gguf_get_double(k->m->checkpoint->gguf, key_of(k, suffix), fallback, out, k->err);
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
    TD_TRY(td_gguf_get_text(m->checkpoint->gguf, key_of(k, "rope.scaling.type"), TD_STR("none"), &type, k->err));
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
        return td_fail(k->err, TREADLE_FORMAT,
                       "expected the rotary embedding's base, factor and context to be above 0");
    return TREADLE_OK;
}

treadle_status td_arch_read_gguf(td_model *m, treadle_error *err) {
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
        return td_fail(err, TREADLE_UNSUPPORTED,
                       "expected keys and values of one head size, as %s has them, found %lld and %lld", m->arch->name,
                       (long long)m->head_dim, (long long)value_dim);
    if (m->rotary_dim > m->head_dim || m->rotary_dim % 2)
        return td_fail(err, TREADLE_FORMAT,
                       "%lld rotary dimensions of a head of %lld: expected an even number up to that",
                       (long long)m->rotary_dim, (long long)m->head_dim);
    m->context = TD_MIN(m->context, (int64_t)TD_MAX_CONTEXT);
    m->rope = m->arch->gguf_rope;
    m->activation = TD_ACT_SILU;
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
