/* config/read_sessions.c - pipeline.sessions: files inside the folder, engines and providers, io. */
#include <strings.h>

#include "base/file.h"
#include "config/fields.h"
#include "config/read.h"

static bool read_renames(td_config *c, const td_json *map, const td_rename **out, size_t *n) {
    bool object = map && map->kind == TD_JSON_OBJECT && map->n <= TD_LIST_MAX;
    td_rename *rows = TD_ARENA_ARRAY(&c->arena, td_rename, object ? map->n : 0);
    if (!rows) return false;
    *n = 0;
    for (const td_json *v = object ? map->first : NULL; v; v = v->next)
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
        td_messages_add(m, TREADLE_MESSAGE_ERROR, td_read_at(m, s->file),
                        "expected a file of the model folder, found \"%.*s\", which is a folder, device or pipe",
                        TD_STR_ARGS(shown));
    } else if (status == TREADLE_NOT_FOUND) {
        td_messages_add(m, TREADLE_MESSAGE_ERROR, td_read_at(m, s->file),
                        "expected a file of the model folder, found no \"%.*s\"%s", TD_STR_ARGS(shown),
                        near_file(c, file));
    } else {
        td_messages_add(m, TREADLE_MESSAGE_ERROR, td_read_at(m, s->file),
                        "expected a file inside the model folder, found \"%.*s\": %s", TD_STR_ARGS(shown),
                        problem.message);
    }
    return true;
}

/* Names of providers are compared without case and without the usual ending: "cuda" is CUDAExecutionProvider. */
static td_str provider_stem(td_str name) {
    static const char ending[] = "executionprovider";
    size_t n = sizeof ending - 1;
    if (name.n > n && strncasecmp(name.p + name.n - n, ending, n) == 0) name.n -= n;
    return name;
}

static bool same_provider(td_str a, td_str b) {
    a = provider_stem(a);
    b = provider_stem(b);
    return a.n == b.n && strncasecmp(a.p, b.p, a.n) == 0;
}

/* The engine's own spelling of a provider; NULL: it has none of that name. */
static const char *find_provider(const char *const *list, td_str wanted) {
    for (size_t i = 0; list && list[i]; i++)
        if (same_provider(wanted, td_str_from(list[i]))) return list[i];
    return NULL;
}

/* A provider other than the CPU's implies the engine that has providers; the host's word wins over both. Version 1
 * files name the machine that they were made for: on another one they run on the CPU, which is said. */
static void find_engine(const td_config *c, td_config_session *s, const td_config_options *options, td_messages *m) {
    static const char *const cpu_only[] = {"CPUExecutionProvider", NULL};
    const td_json *engine = td_json_get(s->json, "engine"), *provider = td_json_get(s->json, "execution_provider");
    td_str wanted = td_json_string_or(s->json, "execution_provider", "CPUExecutionProvider");
    bool cpu = same_provider(wanted, TD_STR("cpu"));
    td_engine_kind implied = cpu ? TD_ENGINE_LIGHT : TD_ENGINE_ORT;
    int forced = options && options->engine ? td_words_find(td_engine_words, td_str_from(options->engine)) : -1;
    s->engine = forced >= 0 ? (td_engine_kind)forced
                            : (td_engine_kind)td_read_word(s->json, "engine", td_engine_words, (int)implied);
    if (s->engine == TD_ENGINE_LIGHT && (cpu || forced >= 0)) return;
    if (cpu && forced >= 0) return; /* what is wrong with it is said where it is opened */
    const char *const *list = cpu_only;
    const char *why = NULL;
    if (s->engine != TD_ENGINE_LIGHT)
        list = options && options->list_providers ? options->list_providers(s->engine, options->context, &why) : NULL;
    const char *found = find_provider(list, wanted);
    if (found) {
        if (!cpu) s->provider = td_str_from(found);
        return;
    }
    bool hint = c->version == 1;
    if (cpu) {
        td_messages_add(m, TREADLE_MESSAGE_ERROR, td_read_at(m, engine),
                        "engine \"%s\" is not available (available: light)%s%s", td_engine_words[s->engine],
                        why ? ": " : "", why ? why : "");
        return;
    }
    const char *names = td_words_join(m->arena, list ? list : cpu_only);
    if (!names) m->failed = true;
    else
        td_messages_add(m, hint ? TREADLE_MESSAGE_WARNING : TREADLE_MESSAGE_ERROR, td_read_at(m, provider),
                        "execution provider \"%.*s\" is not available (available: %s)%s%s%s",
                        (int)TD_MIN(wanted.n, (size_t)200), wanted.p, names, why ? ": " : "", why ? why : "",
                        hint ? "; the session runs on the CPU" : "");
    if (hint && forced < 0) s->engine = TD_ENGINE_LIGHT;
}

static bool read_session(td_config *c, const td_json *v, td_config_session *s, const td_config_options *options,
                         td_messages *m) {
    const td_json *io = td_json_get(v, "io");
    s->name = v->key;
    s->json = v;
    s->file = td_json_get(v, "file");
    s->provider_options = td_json_get(v, "provider_options");
    s->session_options = td_json_get(v, "session_options");
    s->run_options = td_json_get(v, "run_options");
    find_engine(c, s, options, m);
    if (!read_renames(c, td_json_get(io, "inputs"), &s->inputs, &s->n_inputs) ||
        !read_renames(c, td_json_get(io, "outputs"), &s->outputs, &s->n_outputs) ||
        !td_read_strings(c, td_json_get(io, "optional"), &s->optional, &s->n_optional))
        return false;
    return !s->file || s->file->kind != TD_JSON_STRING || resolve_file(c, s, m);
}

bool td_read_sessions(td_config *c, const td_json *pipeline, const td_config_options *options, td_messages *m) {
    const td_json *sessions = td_json_get(pipeline, "sessions");
    if (!sessions || sessions->kind != TD_JSON_OBJECT) return true;
    if (sessions->n > TD_SESSIONS_MAX) return true; /* reported */
    c->sessions = TD_ARENA_ARRAY(&c->arena, td_config_session, sessions->n);
    if (!c->sessions) return false;
    for (const td_json *v = sessions->first; v; v = v->next)
        if (v->kind == TD_JSON_OBJECT && !read_session(c, v, &c->sessions[c->n_sessions++], options, m)) return false;
    return true;
}
