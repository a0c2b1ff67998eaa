/* config/read.c - the expanded tree to the typed struct. What has a wrong type was reported by the table check and reads as
 * absent here; what only this stage can know (files, providers, relations between fields) is reported here. */
#include "config/config.h"

#include "base/file.h"

enum { MAX_SESSIONS = 256 };

static td_place at(td_messages *m, const td_json *value) { return td_tree_place(m->arena, value, false); }

/* --- lists: one alone is a list of one */

static size_t list_count(const td_json *value) { return !value ? 0 : value->kind == TD_JSON_ARRAY ? value->n : 1; }

static const td_json *list_first(const td_json *value) {
    return value && value->kind == TD_JSON_ARRAY ? value->first : value;
}

static const td_json *list_next(const td_json *list, const td_json *item) {
    return list->kind == TD_JSON_ARRAY ? item->next : NULL;
}

static bool read_ids(td_config *c, const td_json *value, td_token_list *out) {
    int32_t *ids = TD_ARENA_ARRAY(&c->arena, int32_t, list_count(value));
    if (!ids) return false;
    out->ids = ids;
    out->n = 0;
    for (const td_json *v = list_first(value); v; v = list_next(value, v))
        if (v->kind == TD_JSON_INT && v->as_int >= 0 && v->as_int <= INT32_MAX) ids[out->n++] = (int32_t)v->as_int;
    return true;
}

static bool read_strings(td_config *c, const td_json *value, const td_str **out, size_t *n) {
    td_str *texts = TD_ARENA_ARRAY(&c->arena, td_str, list_count(value));
    if (!texts) return false;
    *n = 0;
    for (const td_json *v = list_first(value); v; v = list_next(value, v))
        if (v->kind == TD_JSON_STRING) texts[(*n)++] = v->string;
    *out = texts;
    return true;
}

static bool read_renames(td_config *c, const td_json *map, const td_rename **out, size_t *n) {
    td_rename *rows = TD_ARENA_ARRAY(&c->arena, td_rename, map && map->kind == TD_JSON_OBJECT ? map->n : 0);
    if (!rows) return false;
    *n = 0;
    for (const td_json *v = map && map->kind == TD_JSON_OBJECT ? map->first : NULL; v; v = v->next)
        if (v->kind == TD_JSON_STRING) rows[(*n)++] = (td_rename){v->key, v->string, v};
    *out = rows;
    return true;
}

/* --- sessions */

/* Names of the folder's .onnx files, for "did you mean". */
static const char *near_file(td_config *c, td_str file) {
    char **names = NULL;
    size_t n = 0, n_onnx = 0;
    if (td_list_dir(&c->arena, c->dir, &names, &n, NULL) != TREADLE_OK) return "";
    for (size_t i = 0; i < n; i++)
        if (td_str_ends(td_str_from(names[i]), TD_STR(".onnx")) && !td_str_is(file, names[i]))
            names[n_onnx++] = names[i];
    return td_did_you_mean(&c->arena, file, (const char *const *)names, n_onnx);
}

static bool resolve_file(td_config *c, td_config_session *s, td_messages *m) {
    char *path = NULL;
    treadle_error problem = {0};
    td_str file = s->file->string;
    treadle_status status = td_path_resolve_inside(&c->arena, c->dir, file, &path, &problem);
    if (status == TREADLE_OUT_OF_MEMORY) return false;
    td_str shown = {file.p, TD_MIN(file.n, (size_t)200)};
    if (status == TREADLE_OK && td_path_is_file(path)) {
        s->path = path;
    } else if (status == TREADLE_OK) {
        td_messages_add(m, TREADLE_MESSAGE_ERROR, at(m, s->file),
                        "expected a file of the model folder, found \"%.*s\", which is a folder, device or pipe",
                        TD_STR_ARGS(shown));
    } else if (status == TREADLE_NOT_FOUND) {
        td_messages_add(m, TREADLE_MESSAGE_ERROR, at(m, s->file),
                        "expected a file of the model folder, found no \"%.*s\"%s", TD_STR_ARGS(shown),
                        near_file(c, file));
    } else {
        td_messages_add(m, TREADLE_MESSAGE_ERROR, at(m, s->file),
                        "expected a file inside the model folder, found \"%.*s\": %s", TD_STR_ARGS(shown),
                        problem.message);
    }
    return true;
}

static bool read_session(td_config *c, const td_json *v, td_config_session *s, td_messages *m) {
    const td_json *io = td_json_get(v, "io"), *provider = td_json_get(v, "execution_provider");
    const td_json *engine = td_json_get(v, "engine");
    s->name = v->key;
    s->json = v;
    s->file = td_json_get(v, "file");
    int kind = td_words_find(td_engine_words, td_json_string_or(v, "engine", "light"));
    s->engine = kind < 0 ? TD_ENGINE_LIGHT : (td_engine_kind)kind;
    s->provider = td_json_string_or(v, "execution_provider", "");
    if (td_str_is(s->provider, "CPUExecutionProvider") || td_str_is(s->provider, "cpu")) s->provider.n = 0;
    if (s->provider.n)
        td_messages_add(m, TREADLE_MESSAGE_ERROR, at(m, provider),
                        "execution provider \"%.*s\" is not available (available: CPUExecutionProvider)",
                        (int)TD_MIN(s->provider.n, (size_t)200), s->provider.p);
    else if (s->engine != TD_ENGINE_LIGHT)
        td_messages_add(m, TREADLE_MESSAGE_ERROR, at(m, engine), "engine \"%s\" is not available (available: light)",
                        td_engine_words[s->engine]);
    if (!read_renames(c, td_json_get(io, "inputs"), &s->inputs, &s->n_inputs) ||
        !read_renames(c, td_json_get(io, "outputs"), &s->outputs, &s->n_outputs) ||
        !read_strings(c, td_json_get(io, "optional"), &s->optional, &s->n_optional))
        return false;
    return !s->file || s->file->kind != TD_JSON_STRING || resolve_file(c, s, m);
}

static bool read_sessions(td_config *c, const td_json *pipeline, td_messages *m) {
    const td_json *sessions = td_json_get(pipeline, "sessions");
    if (!sessions || sessions->kind != TD_JSON_OBJECT) return true;
    if (sessions->n > MAX_SESSIONS) {
        td_messages_add(m, TREADLE_MESSAGE_ERROR, at(m, sessions), "expected at most %d sessions, found %u",
                        MAX_SESSIONS, sessions->n);
        return true;
    }
    c->sessions = TD_ARENA_ARRAY(&c->arena, td_config_session, sessions->n);
    if (!c->sessions) return false;
    for (const td_json *v = sessions->first; v; v = v->next)
        if (v->kind == TD_JSON_OBJECT && !read_session(c, v, &c->sessions[c->n_sessions++], m)) return false;
    return true;
}

/* --- flow and dataflow */

static bool declared(const td_config *c, td_str name) {
    for (size_t i = 0; i < c->n_sessions; i++)
        if (td_str_equal(c->sessions[i].name, name)) return true;
    return false;
}

/* A preset's flow whose sessions are not all there is none: the plan finds the flow from the signatures. */
static bool flow_is_usable(const td_config *c, const td_json *flow) {
    if (strncmp(td_tree_source(flow)->label, "preset ", 7) != 0) return true;
    for (const td_json *v = list_first(flow); v; v = list_next(flow, v))
        if (!declared(c, td_json_string_or(v, "run", ""))) return false;
    return true;
}

static bool read_flow(td_config *c, const td_json *flow, td_messages *m) {
    if (!flow || !flow_is_usable(c, flow)) return true;
    if (flow->kind != TD_JSON_ARRAY && flow->kind != TD_JSON_OBJECT) return true;
    c->steps = TD_ARENA_ARRAY(&c->arena, td_config_step, list_count(flow));
    const char **names = TD_ARENA_ARRAY(&c->arena, const char *, c->n_sessions + 1);
    if (!c->steps || !names) return false;
    for (size_t i = 0; i < c->n_sessions; i++) {
        names[i] = td_arena_strndup(&c->arena, c->sessions[i].name.p, c->sessions[i].name.n);
        if (!names[i]) return false;
    }
    for (const td_json *v = list_first(flow); v; v = list_next(flow, v)) {
        const td_json *run = td_json_get(v, "run");
        if (!run || run->kind != TD_JSON_STRING) continue;
        int when = td_words_find(td_when_words, td_json_string_or(v, "when", "always"));
        int loop = td_words_find(td_loop_words, td_json_string_or(v, "loop", "batched"));
        td_config_step *s = &c->steps[c->n_steps++];
        *s = (td_config_step){
            .run = run->string, .json = v, .run_json = run, .loop_over_json = td_json_get(v, "loop_over")};
        s->when = when < 0 ? TD_WHEN_ALWAYS : (td_when)when;
        s->loop = loop < 0 ? TD_LOOP_BATCHED : (td_loop)loop;
        s->loop_over = td_json_string_or(v, "loop_over", "");
        s->from_preset = strncmp(td_tree_source(flow)->label, "preset ", 7) == 0;
        if (declared(c, run->string)) continue;
        td_str shown = {run->string.p, TD_MIN(run->string.n, (size_t)200)};
        td_messages_add(m, TREADLE_MESSAGE_ERROR, at(m, run),
                        "Flow step references session \"%.*s\" but no such session is declared in pipeline.sessions "
                        "(declared: %s)%s",
                        TD_STR_ARGS(shown), td_words_join(m->arena, names),
                        td_did_you_mean(m->arena, shown, names, c->n_sessions));
    }
    return true;
}

static bool read_wires(td_config *c, const td_json *wires) {
    if (!wires || (wires->kind != TD_JSON_ARRAY && wires->kind != TD_JSON_OBJECT)) return true;
    c->wires = TD_ARENA_ARRAY(&c->arena, td_config_wire, list_count(wires));
    if (!c->wires) return false;
    for (const td_json *v = list_first(wires); v; v = list_next(wires, v)) {
        const td_json *from = td_json_get(v, "from"), *to = td_json_get(v, "to");
        if (!from || from->kind != TD_JSON_STRING || !to || to->kind != TD_JSON_STRING) continue;
        c->wires[c->n_wires++] = (td_config_wire){.from = from->string,
                                                  .to = to->string,
                                                  .hold = td_json_bool_or(v, "hold", false),
                                                  .json = v,
                                                  .from_json = from,
                                                  .to_json = to};
    }
    return true;
}

/* --- state, tokens, generation */

static void read_state(td_config *c, const td_json *state, td_messages *m) {
    const td_json *kv = td_json_get(state, "kv_cache"), *positions = td_json_get(state, "position_ids");
    const td_json *window = td_json_get(kv, "sliding_window"), *size = td_json_get(window, "window_size");
    int format = td_words_find(td_kv_format_words, td_json_string_or(kv, "format", "auto"));
    int strategy = td_words_find(td_position_words, td_json_string_or(positions, "strategy", "auto"));
    c->kv_format = format < 0 ? TD_KV_FORMAT_AUTO : (td_kv_format)format;
    c->position = strategy < 0 ? TD_POSITION_AUTO : (td_position)strategy;
    c->position_input = td_json_string_or(positions, "input_name", "");
    c->past_key = td_json_string_or(kv, "past_key_pattern", "");
    c->past_value = td_json_string_or(kv, "past_value_pattern", "");
    c->present_key = td_json_string_or(kv, "present_key_pattern", "");
    c->present_value = td_json_string_or(kv, "present_value_pattern", "");
    c->past = td_json_string_or(kv, "past_pattern", "");
    c->present = td_json_string_or(kv, "present_pattern", "");
    c->window_size = td_json_int_or(window, "window_size", 0);
    c->slide_inputs = td_json_bool_or(window, "slide_inputs", false);
    c->state_json = state;
    if (c->window_size > 0 && c->context_length > 0 && c->window_size > c->context_length)
        td_messages_add(m, TREADLE_MESSAGE_ERROR, at(m, size),
                        "expected a window of at most the context length %lld, found %lld",
                        (long long)c->context_length, (long long)c->window_size);
}

static bool read_tokens(td_config *c, const td_json *tokens) {
    const td_json *eos = td_json_get(tokens, "eos");
    c->has_eos = eos != NULL;
    c->bos = (int32_t)TD_MIN(td_json_int_or(tokens, "bos", -1), (int64_t)INT32_MAX);
    c->pad = (int32_t)TD_MIN(td_json_int_or(tokens, "pad", -1), (int64_t)INT32_MAX);
    return read_ids(c, eos, &c->eos) && read_ids(c, td_json_get(tokens, "decoder_start"), &c->decoder_start);
}

static bool read_generation(td_config *c, const td_json *g, td_messages *m) {
    const td_json *s = td_json_get(g, "sampling");
    c->max_length_json = td_json_get(g, "max_length");
    c->context_length_json = td_json_get(g, "context_length");
    c->max_length = td_json_int_or(g, "max_length", -1);
    c->max_new_tokens = td_json_int_or(g, "max_new_tokens", -1);
    c->min_length = td_json_int_or(g, "min_length", 0);
    c->context_length = td_json_int_or(g, "context_length", -1);
    c->prefill_chunk = td_json_int_or(g, "prefill_chunk", -1);
    c->sampling = (td_sampling){
        .do_sample = td_json_bool_or(s, "do_sample", false),
        .temperature = td_json_double_or(s, "temperature", 1.0),
        .top_p = td_json_double_or(s, "top_p", 1.0),
        .min_p = td_json_double_or(s, "min_p", 0.0),
        .repetition_penalty = td_json_double_or(s, "repetition_penalty", 1.0),
        .top_k = td_json_int_or(s, "top_k", 0),
        .no_repeat_ngram_size = td_json_int_or(s, "no_repeat_ngram_size", 0),
        .seed = td_json_int_or(s, "seed", -1),
    };
    if (c->max_length > 0 && c->context_length > 0 && c->max_length > c->context_length)
        td_messages_add(m, TREADLE_MESSAGE_NOTE, at(m, c->max_length_json),
                        "max_length %lld is lowered to the context length %lld", (long long)c->max_length,
                        (long long)c->context_length);
    return read_strings(c, td_json_get(g, "stop"), &c->stop, &c->n_stop);
}

static void read_plugin(const td_json *plugin, td_messages *m) {
    if (!plugin || plugin->kind != TD_JSON_OBJECT) return;
    td_str library = td_json_string_or(plugin, "library", "");
    td_messages_add(
        m, TREADLE_MESSAGE_ERROR, at(m, plugin),
        "plugin \"%.*s\" is not allowed: native code is loaded only from folders that the host allows (--allow-plugins DIR)",
        (int)TD_MIN(library.n, (size_t)200), library.p ? library.p : "");
}

bool td_config_read(td_config *c, td_messages *messages) {
    const td_json *pipeline = td_json_get(c->root, "pipeline");
    if (!read_sessions(c, pipeline, messages) || !read_flow(c, td_json_get(pipeline, "flow"), messages) ||
        !read_wires(c, td_json_get(pipeline, "dataflow")) || !read_tokens(c, td_json_get(c->root, "tokens")) ||
        !read_generation(c, td_json_get(c->root, "generation"), messages))
        return false;
    read_state(c, td_json_get(pipeline, "state"), messages);
    read_plugin(td_json_get(pipeline, "plugin"), messages);
    return true;
}
