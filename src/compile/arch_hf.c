/* compile/arch_hf.c - hyperparameters from config.json, with the defaults of the transformers library. */
#include "compile/arch.h"

#include <math.h>
#include <stdio.h>

/* Members of one object; null counts as absent, as Python's configs have it. */
typedef struct config {
    const td_json *json;
    const char *path; /* pointer to the object, "" for the root */
    treadle_error *err;
} config;

static const td_json *find(const config *c, const char *key) {
    const td_json *v = td_json_get(c->json, key);
    return v && v->kind != TD_JSON_NULL ? v : NULL;
}

static treadle_status wrong(const config *c, const char *key, const td_json *v, const char *expected) {
    if (!v) return td_fail(c->err, TREADLE_FORMAT, "config.json: '%s' is missing, expected %s", key, expected);
    if (v->kind == TD_JSON_INT || v->kind == TD_JSON_DOUBLE)
        td_fail(c->err, TREADLE_FORMAT, "config.json: '%s' is %g, expected %s", key, v->as_double, expected);
    else
        td_fail(c->err, TREADLE_FORMAT, "config.json: '%s' is %s, expected %s", key, td_json_kind_name(v->kind),
                expected);
    td_error_pointer(c->err, "%s/%s", c->path, key);
    return TREADLE_FORMAT;
}

/* fallback < 0: the member must be there. */
static treadle_status get_int(const config *c, const char *key, int64_t low, int64_t high, int64_t fallback,
                              int64_t *out) {
    const td_json *v = find(c, key);
    char expected[80];
    *out = fallback;
    if (!v && fallback >= 0) return TREADLE_OK;
    if (v && v->kind == TD_JSON_INT && v->as_int >= low && v->as_int <= high) return *out = v->as_int, TREADLE_OK;
    snprintf(expected, sizeof expected, "an integer from %lld to %lld", (long long)low, (long long)high);
    return wrong(c, key, v, expected);
}

/* Finite numbers. fallback NaN: the member must be there. */
static treadle_status get_double(const config *c, const char *key, double fallback, double *out) {
    const td_json *v = find(c, key);
    *out = fallback;
    if (!v && !isnan(fallback)) return TREADLE_OK;
    if (!v || (v->kind != TD_JSON_INT && v->kind != TD_JSON_DOUBLE) || !isfinite(v->as_double))
        return wrong(c, key, v, "a number");
    *out = v->as_double;
    return TREADLE_OK;
}

static treadle_status get_bool(const config *c, const char *key, bool fallback, bool *out) {
    const td_json *v = find(c, key);
    *out = v ? v->as_bool : fallback;
    return !v || v->kind == TD_JSON_BOOL ? TREADLE_OK : wrong(c, key, v, "true or false");
}

static treadle_status unsupported(const config *c, const td_model *m, const char *key, const char *known) {
    const td_json *v = td_json_get(c->json, key);
    td_buf text = {0};
    td_json_writer w;
    td_json_writer_init(&w, &text, 0);
    td_json_write_value(&w, v);
    td_fail(c->err, TREADLE_UNSUPPORTED, "config.json: '%s' is %.*s, which is not supported for %s (known: %s)", key,
            (int)TD_MIN(text.n, (size_t)100), text.p ? text.p : "", m->arch->name, known);
    td_error_pointer(c->err, "%s/%s", c->path, key);
    td_buf_free(&text);
    return TREADLE_UNSUPPORTED;
}

static treadle_status get_activation(const config *c, const td_model *m, const char *key, const char *fallback,
                                     td_activation *out) {
    static const struct {
        const char *name;
        td_activation activation;
    } rows[] = {
        {"silu", TD_ACT_SILU},
        {"swish", TD_ACT_SILU},
        {"gelu", TD_ACT_GELU},
        {"gelu_python", TD_ACT_GELU},
        {"gelu_new", TD_ACT_GELU_TANH},
        {"gelu_fast", TD_ACT_GELU_TANH},
        {"gelu_pytorch_tanh", TD_ACT_GELU_TANH},
        {"quick_gelu", TD_ACT_QUICK_GELU},
        {"relu", TD_ACT_RELU},
    };
    const td_json *v = find(c, key);
    td_str name = v ? v->string : td_str_from(fallback);
    if (v && v->kind != TD_JSON_STRING) return wrong(c, key, v, "a string");
    for (size_t i = 0; i < TD_COUNT(rows); i++)
        if (td_str_is(name, rows[i].name)) return *out = rows[i].activation, TREADLE_OK;
    return unsupported(c, m, key, "silu, gelu, gelu_new, gelu_pytorch_tanh, quick_gelu, relu");
}

/* Weights that are packed in a way of their own have other names and shapes. */
static treadle_status refuse_quantised(const config *c, const td_model *m) {
    return find(c, "quantization_config") ? unsupported(c, m, "quantization_config", "none") : TREADLE_OK;
}

/* --- decoders */

/* --- rotary embeddings; `c` is the object that describes the scaling */

static treadle_status read_factor(const config *c, td_model *m) {
    TD_TRY(get_double(c, "factor", NAN, &m->rope_factor));
    return m->rope_factor > 0 ? TREADLE_OK : wrong(c, "factor", find(c, "factor"), "a number above 0");
}

static treadle_status read_original_context(const config *c, td_model *m) {
    const char *key = "original_max_position_embeddings";
    TD_TRY(get_double(c, key, m->original_context, &m->original_context));
    return m->original_context > 0 ? TREADLE_OK : wrong(c, key, find(c, key), "a number above 0");
}

static treadle_status read_llama3(const config *c, td_model *m) {
    TD_TRY(read_factor(c, m));
    TD_TRY(read_original_context(c, m));
    TD_TRY(get_double(c, "low_freq_factor", NAN, &m->low_frequency));
    TD_TRY(get_double(c, "high_freq_factor", NAN, &m->high_frequency));
    if (!(m->low_frequency > 0) || !(m->high_frequency > m->low_frequency))
        return wrong(c, "high_freq_factor", find(c, "high_freq_factor"),
                     "a number above low_freq_factor, which is above 0");
    return TREADLE_OK;
}

/* The factor on cos and sin: as it is given, or from the mscale numbers, or 1 + 0.1
 * ln(factor), which the tables multiply. */
static treadle_status read_yarn(const config *c, td_model *m) {
    double given, mscale, mscale_all;
    TD_TRY(read_factor(c, m));
    if (m->rope_factor < 1) return wrong(c, "factor", find(c, "factor"), "a number of 1 or more");
    TD_TRY(read_original_context(c, m));
    TD_TRY(get_double(c, "beta_fast", 32, &m->beta_fast));
    TD_TRY(get_double(c, "beta_slow", 1, &m->beta_slow));
    TD_TRY(get_double(c, "attention_factor", 0, &given));
    TD_TRY(get_double(c, "mscale", 0, &mscale));
    TD_TRY(get_double(c, "mscale_all_dim", 0, &mscale_all));
    if (find(c, "truncate") && !td_json_bool_or(c->json, "truncate", true))
        return unsupported(c, m, "truncate", "true");
    double step = 0.1 * log(m->rope_factor);
    if (given == 0 && mscale != 0 && mscale_all != 0) given = (1 + mscale * step) / (1 + mscale_all * step);
    if (given != 0) m->attn_factor = given / (1 + step);
    return TREADLE_OK;
}

static const struct {
    const char *name;
    td_rope_scaling scaling;
    treadle_status (*read)(const config *c, td_model *m);
} rope_types[] = {
    {"default", TD_SCALING_NONE, NULL},
    {"linear", TD_SCALING_LINEAR, read_factor},
    {"yarn", TD_SCALING_YARN, read_yarn},
    {"llama3", TD_SCALING_LLAMA3, read_llama3},
};

/* Older files: rope_theta and rope_scaling; newer ones: all in rope_parameters. */
static treadle_status read_rope(const config *root, td_model *m) {
    const char *key = find(root, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    const td_json *object = find(root, key), *type;
    char path[32];
    TD_TRY(get_double(root, "rope_theta", 10000.0, &m->rope_base));
    m->rope_factor = m->attn_factor = 1;
    m->original_context = (double)m->context;
    m->beta_fast = 32;
    m->beta_slow = 1;
    if (!object) return TREADLE_OK;
    if (object->kind != TD_JSON_OBJECT) return wrong(root, key, object, "an object");
    snprintf(path, sizeof path, "/%s", key);
    const config c = {object, path, root->err};
    const char *type_key = find(&c, "rope_type") ? "rope_type" : "type";
    type = find(&c, type_key);
    td_str name = type ? type->string : TD_STR("default");
    TD_TRY(get_double(&c, "rope_theta", m->rope_base, &m->rope_base));
    if (!(m->rope_base > 0)) return wrong(&c, "rope_theta", find(&c, "rope_theta"), "a number above 0");
    for (size_t i = 0; i < TD_COUNT(rope_types); i++) {
        if (!td_str_is(name, rope_types[i].name)) continue;
        m->scaling = rope_types[i].scaling;
        return rope_types[i].read ? rope_types[i].read(&c, m) : TREADLE_OK;
    }
    return unsupported(&c, m, type_key, "default, linear, yarn, llama3");
}

/* Windows of attention: on all layers, on those from max_window_layers on, or as layer_types lists them. */
static treadle_status read_windows(const config *c, td_model *m, td_arena *arena) {
    static const char *const layer_words[] = {"full_attention", "sliding_attention"};
    const td_json *window = find(c, "sliding_window"), *types = find(c, "layer_types");
    bool use, by_number = find(c, "use_sliding_window") != NULL;
    int64_t first = 0, i = 0;
    TD_TRY(get_bool(c, "use_sliding_window", true, &use));
    if (!window || !use) return TREADLE_OK;
    TD_TRY(get_int(c, "sliding_window", 1, INT32_MAX, -1, &m->window));
    if (by_number) TD_TRY(get_int(c, "max_window_layers", 0, INT32_MAX, 28, &first));
    bool *windowed = TD_ARENA_ARRAY(arena, bool, (size_t)m->n_layers);
    if (!windowed) return td_fail_memory(c->err, "layers", (size_t)m->n_layers);
    for (i = 0; i < m->n_layers; i++) windowed[i] = i >= first;
    m->windowed = windowed;
    if (!types) return TREADLE_OK;
    if (types->kind != TD_JSON_ARRAY || types->n != m->n_layers)
        return wrong(c, "layer_types", types, "an array of one word for each layer");
    i = 0;
    for (const td_json *v = types->first; v; v = v->next, i++) {
        windowed[i] = td_str_is(v->string, layer_words[1]);
        if (!windowed[i] && !td_str_is(v->string, layer_words[0]))
            return unsupported(c, m, "layer_types", "full_attention, sliding_attention");
    }
    return TREADLE_OK;
}

treadle_status td_arch_read_hf_decoder(td_model *m, td_arena *arena, treadle_error *err) {
    const config c = {m->checkpoint->hf->config, "", err};
    int64_t hidden, ffn;
    double epsilon;
    TD_TRY(refuse_quantised(&c, m));
    TD_TRY(get_int(&c, "hidden_size", 1, 1 << 20, -1, &hidden));
    TD_TRY(get_int(&c, "num_hidden_layers", 1, 4096, -1, &m->n_layers));
    TD_TRY(get_int(&c, "intermediate_size", 1, 1 << 24, -1, &ffn));
    TD_TRY(get_int(&c, "num_attention_heads", 1, 1 << 16, -1, &m->n_heads));
    TD_TRY(get_int(&c, "num_key_value_heads", 1, 1 << 16, m->n_heads, &m->n_kv_heads));
    TD_TRY(get_int(&c, "head_dim", 1, 1 << 16, TD_MAX(hidden / m->n_heads, 1), &m->head_dim));
    TD_TRY(get_int(&c, "max_position_embeddings", 1, (int64_t)1 << 40, 2048, &m->context));
    TD_TRY(get_double(&c, "rms_norm_eps", 1e-6, &epsilon));
    TD_TRY(get_bool(&c, "tie_word_embeddings", false, &m->tied));
    TD_TRY(get_activation(&c, m, "hidden_act", "silu", &m->activation));
    if (m->activation != TD_ACT_SILU) return unsupported(&c, m, "hidden_act", "silu");
    if (m->n_heads % m->n_kv_heads)
        return td_fail(err, TREADLE_FORMAT, "config.json: %lld heads are no multiple of %lld KV heads",
                       (long long)m->n_heads, (long long)m->n_kv_heads);
    if (m->head_dim % 2)
        return td_fail(err, TREADLE_FORMAT, "config.json: heads of %lld dimensions: expected an even number",
                       (long long)m->head_dim);
    m->rope = TD_ROPE_HALVES;
    m->rotary_dim = m->head_dim;
    m->context = TD_MIN(m->context, (int64_t)TD_MAX_CONTEXT);
    m->norm_epsilon = (float)epsilon;
    m->sizes[TD_SIZE_HIDDEN] = hidden;
    m->sizes[TD_SIZE_FFN] = ffn;
    m->sizes[TD_SIZE_QUERY] = m->n_heads * m->head_dim;
    m->sizes[TD_SIZE_KV] = m->n_kv_heads * m->head_dim;
    TD_TRY(read_windows(&c, m, arena));
    return read_rope(&c, m);
}

/* --- speech: a convolutional front, an encoder, a decoder */

treadle_status td_arch_read_hf_speech(td_model *m, td_arena *arena, treadle_error *err) {
    (void)arena;
    const config c = {m->checkpoint->hf->config, "", err};
    int64_t *sizes = m->sizes;
    TD_TRY(refuse_quantised(&c, m));
    TD_TRY(get_int(&c, "d_model", 1, 1 << 20, -1, &sizes[TD_SIZE_HIDDEN]));
    TD_TRY(get_int(&c, "num_mel_bins", 1, 4096, 80, &sizes[TD_SIZE_MELS]));
    TD_TRY(get_int(&c, "encoder_layers", 1, 4096, -1, &m->n_encoder_layers));
    TD_TRY(get_int(&c, "decoder_layers", 1, 4096, -1, &m->n_layers));
    TD_TRY(get_int(&c, "encoder_attention_heads", 1, 1 << 16, -1, &m->n_encoder_heads));
    TD_TRY(get_int(&c, "decoder_attention_heads", 1, 1 << 16, -1, &m->n_heads));
    TD_TRY(get_int(&c, "encoder_ffn_dim", 1, 1 << 24, -1, &sizes[TD_SIZE_ENCODER_FFN]));
    TD_TRY(get_int(&c, "decoder_ffn_dim", 1, 1 << 24, -1, &sizes[TD_SIZE_FFN]));
    TD_TRY(get_int(&c, "max_source_positions", 1, 1 << 20, 1500, &sizes[TD_SIZE_ENCODER_CONTEXT]));
    TD_TRY(get_int(&c, "max_target_positions", 1, 1 << 20, 448, &sizes[TD_SIZE_CONTEXT]));
    TD_TRY(get_bool(&c, "tie_word_embeddings", true, &m->tied));
    TD_TRY(get_activation(&c, m, "activation_function", "gelu", &m->activation));
    if (sizes[TD_SIZE_HIDDEN] % m->n_heads || sizes[TD_SIZE_HIDDEN] % m->n_encoder_heads)
        return td_fail(err, TREADLE_FORMAT,
                       "config.json: 'd_model' %lld is no multiple of the %lld encoder and %lld decoder heads",
                       (long long)sizes[TD_SIZE_HIDDEN], (long long)m->n_encoder_heads, (long long)m->n_heads);
    sizes[TD_SIZE_CONV_KERNEL] = 3;
    m->n_kv_heads = m->n_heads;
    m->head_dim = sizes[TD_SIZE_HIDDEN] / m->n_heads;
    m->context = sizes[TD_SIZE_CONTEXT];
    m->norm_epsilon = 1e-5f; /* not in the config: the library's default for LayerNorm */
    return TREADLE_OK;
}
