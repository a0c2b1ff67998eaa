/* engine/ort_options.c - session and run options of ONNX Runtime from a config's objects.
 *
 * The keys that version 1 configs know become the calls they stand for; every other key is a config entry of ONNX
 * Runtime under its own name. What would write a file, load native code or read weights from elsewhere is refused: a
 * model folder is not trusted. */
#include "base/pool.h"
#include "engine/ort.h"

#include <stdio.h>

/* --- plain values as text */

static const char *text_of(const td_json *value, td_arena *arena) {
    td_buf json = {0};
    td_json_writer w;
    switch (value->kind) {
    case TD_JSON_STRING: return td_arena_strndup(arena, value->string.p ? value->string.p : "", value->string.n);
    case TD_JSON_BOOL: return value->as_bool ? "1" : "0";
    case TD_JSON_INT: return td_arena_printf(arena, "%lld", (long long)value->as_int);
    default: break;
    }
    td_json_writer_init(&w, &json, 0);
    td_json_write_value(&w, value);
    const char *text = json.failed ? NULL : td_arena_strndup(arena, json.p, json.n);
    td_buf_free(&json);
    return text;
}

static treadle_status no_object(const td_json *given, const char *what, treadle_error *err) {
    return td_fail(err, TREADLE_CONFIG, "%s: expected an object of names and values, found %s", what,
                   td_json_kind_name(given->kind));
}

treadle_status td_ort_pairs_read(const td_json *object, const char *what, td_arena *arena, td_ort_pairs *out,
                                 treadle_error *err) {
    *out = (td_ort_pairs){0};
    if (!object || object->kind == TD_JSON_NULL) return TREADLE_OK;
    if (object->kind != TD_JSON_OBJECT) return no_object(object, what, err);
    out->keys = TD_ARENA_ARRAY(arena, const char *, object->n + 1);
    out->values = TD_ARENA_ARRAY(arena, const char *, object->n + 1);
    bool ok = out->keys && out->values;
    for (const td_json *v = object->first; ok && v; v = v->next) {
        if (v->kind == TD_JSON_NULL) continue;
        out->keys[out->n] = td_arena_strndup(arena, v->key.p, v->key.n);
        out->values[out->n] = text_of(v, arena);
        ok = out->keys[out->n] && out->values[out->n];
        out->n++;
    }
    return ok ? TREADLE_OK : td_fail_memory(err, what, object->n * sizeof(char *));
}

/* --- session options */

typedef OrtStatus *int_setter(OrtSessionOptions *options, int value);
typedef OrtStatus *switch_setter(OrtSessionOptions *options);

/* A function of the table by its offset. */
#define FUNCTION(type, offset) (*(type *const *)(const void *)((const char *)&ort->api + (offset)))

static const struct {
    const char *key;
    size_t function;
} int_keys[] = {
    {"intra_op_num_threads", offsetof(td_ort_api, SetIntraOpNumThreads)},
    {"inter_op_num_threads", offsetof(td_ort_api, SetInterOpNumThreads)},
    {"log_severity_level", offsetof(td_ort_api, SetSessionLogSeverityLevel)},
    {"log_verbosity_level", offsetof(td_ort_api, SetSessionLogVerbosityLevel)},
};

static const struct {
    const char *key;
    size_t on, off;
} switch_keys[] = {
    {"enable_cpu_mem_arena", offsetof(td_ort_api, EnableCpuMemArena), offsetof(td_ort_api, DisableCpuMemArena)},
    {"enable_mem_pattern", offsetof(td_ort_api, EnableMemPattern), offsetof(td_ort_api, DisableMemPattern)},
};

static const struct {
    const char *key, *why;
} refused_keys[] = {
    {"enable_profiling", "it writes a file"},
    {"optimized_model_filepath", "it writes a file"},
    {"session.optimized_model_external_initializers_file_name", "it writes a file"},
    {"ep.context_enable", "it writes a file"},
    {"ep.context_file_path", "it writes a file"},
    {"custom_ops_library", "it loads native code"},
    {"session.model_external_initializers_file_folder_path", "it reads weights from another folder"},
};

typedef struct word {
    const char *text;
    int value;
} word;
static const word optimization_levels[] = {
    {"ORT_DISABLE_ALL", ORT_DISABLE_ALL},         {"ORT_ENABLE_BASIC", ORT_ENABLE_BASIC},
    {"ORT_ENABLE_EXTENDED", ORT_ENABLE_EXTENDED}, {"ORT_ENABLE_LAYOUT", ORT_ENABLE_LAYOUT},
    {"ORT_ENABLE_ALL", ORT_ENABLE_ALL},
};
static const word execution_modes[] = {{"ORT_SEQUENTIAL", ORT_SEQUENTIAL}, {"ORT_PARALLEL", ORT_PARALLEL}};

/* A word of a list, or its number. */
static treadle_status read_word(const td_json *value, const word *words, size_t n, int *out, treadle_error *err) {
    td_buf list = {0};
    for (size_t i = 0; i < n; i++) {
        bool same = value->kind == TD_JSON_INT
                        ? value->as_int == words[i].value
                        : value->kind == TD_JSON_STRING && td_str_is(value->string, words[i].text);
        td_buf_printf(&list, "%s%s", i ? ", " : "", words[i].text);
        if (!same) continue;
        td_buf_free(&list);
        *out = words[i].value;
        return TREADLE_OK;
    }
    td_str found = value->kind == TD_JSON_STRING ? value->string : td_str_from(td_json_kind_name(value->kind));
    (void)td_fail(err, TREADLE_CONFIG, "session_options: %.*s: expected one of %s, found %.*s",
                  (int)TD_MIN(value->key.n, (size_t)64), value->key.p, list.p ? list.p : "",
                  (int)TD_MIN(found.n, (size_t)200), found.p ? found.p : "");
    td_buf_free(&list);
    return TREADLE_CONFIG;
}

/* An integer, also as text: that is how the peer's tools write them. */
static treadle_status read_int(const td_json *value, int *out, treadle_error *err) {
    long long number = value->as_int;
    char text[24] = "";
    bool ok = value->kind == TD_JSON_INT;
    if (value->kind == TD_JSON_STRING && value->string.n < sizeof text) {
        int used = 0;
        memcpy(text, value->string.p ? value->string.p : "", value->string.n);
        ok = sscanf(text, "%lld%n", &number, &used) == 1 && (size_t)used == value->string.n;
    }
    if (!ok || number < 0 || number > 1 << 20)
        return td_fail(err, TREADLE_CONFIG, "session_options: %.*s: expected a number from 0 to %d, found %s",
                       (int)TD_MIN(value->key.n, (size_t)64), value->key.p, 1 << 20,
                       value->kind == TD_JSON_INT ? "another number" : td_json_kind_name(value->kind));
    *out = (int)number;
    return TREADLE_OK;
}

static bool is_on(const td_json *value) {
    if (value->kind == TD_JSON_BOOL) return value->as_bool;
    if (value->kind == TD_JSON_INT) return value->as_int != 0;
    return value->kind == TD_JSON_STRING && (td_str_is(value->string, "1") || td_str_is(value->string, "true"));
}

static treadle_status set_entries(const td_ort *ort, OrtSessionOptions *so, const td_json *object, td_arena *arena,
                                  treadle_error *err);

static treadle_status set_option(const td_ort *ort, OrtSessionOptions *so, const td_json *v, td_arena *arena,
                                 treadle_error *err) {
    int number = 0;
    for (size_t i = 0; i < TD_COUNT(refused_keys); i++)
        if (td_str_is(v->key, refused_keys[i].key))
            return td_fail(err, TREADLE_CONFIG, "session_options: \"%s\" is not taken from a config: %s",
                           refused_keys[i].key, refused_keys[i].why);
    for (size_t i = 0; i < TD_COUNT(int_keys); i++) {
        if (!td_str_is(v->key, int_keys[i].key)) continue;
        TD_TRY(read_int(v, &number, err));
        TD_ORT_TRY(FUNCTION(int_setter, int_keys[i].function)(so, number), TREADLE_CONFIG);
        return TREADLE_OK;
    }
    for (size_t i = 0; i < TD_COUNT(switch_keys); i++) {
        if (!td_str_is(v->key, switch_keys[i].key)) continue;
        TD_ORT_TRY(FUNCTION(switch_setter, is_on(v) ? switch_keys[i].on : switch_keys[i].off)(so), TREADLE_CONFIG);
        return TREADLE_OK;
    }
    if (td_str_is(v->key, "graph_optimization_level")) {
        TD_TRY(read_word(v, optimization_levels, TD_COUNT(optimization_levels), &number, err));
        TD_ORT_TRY(ort->api.SetSessionGraphOptimizationLevel(so, (GraphOptimizationLevel)number), TREADLE_CONFIG);
    } else if (td_str_is(v->key, "execution_mode")) {
        TD_TRY(read_word(v, execution_modes, TD_COUNT(execution_modes), &number, err));
        TD_ORT_TRY(ort->api.SetSessionExecutionMode(so, (ExecutionMode)number), TREADLE_CONFIG);
    } else if (td_str_is(v->key, "use_deterministic_compute")) {
        TD_ORT_TRY(ort->api.SetDeterministicCompute(so, is_on(v)), TREADLE_CONFIG);
    } else if (td_str_is(v->key, "log_id")) {
        const char *text = text_of(v, arena);
        if (!text) return td_fail_memory(err, "session_options", v->string.n);
        TD_ORT_TRY(ort->api.SetSessionLogId(so, text), TREADLE_CONFIG);
    } else if (td_str_is(v->key, "config_entries")) {
        return set_entries(ort, so, v, arena, err);
    } else if (!td_str_is(v->key, "provider_options")) { /* that one is the session's own, translated before */
        char *key = td_arena_strndup(arena, v->key.p, v->key.n);
        const char *text = text_of(v, arena);
        if (!key || !text) return td_fail_memory(err, "session_options", v->key.n);
        TD_ORT_TRY(ort->api.AddSessionConfigEntry(so, key, text), TREADLE_CONFIG);
    }
    return TREADLE_OK;
}

static treadle_status set_entries(const td_ort *ort, OrtSessionOptions *so, const td_json *object, td_arena *arena,
                                  treadle_error *err) {
    if (!object || object->kind == TD_JSON_NULL) return TREADLE_OK;
    if (object->kind != TD_JSON_OBJECT) return no_object(object, "session_options", err);
    for (const td_json *v = object->first; v; v = v->next)
        if (v->kind != TD_JSON_NULL) TD_TRY(set_option(ort, so, v, arena, err));
    return TREADLE_OK;
}

/* The host's threads and passes win over the config's. */
static treadle_status set_all(const td_ort *ort, const td_engine_options *options, OrtSessionOptions *so,
                              treadle_error *err) {
    td_arena arena = {0};
    TD_ORT_TRY(ort->api.SetIntraOpNumThreads(so, td_cpu_count()), TREADLE_CONFIG);
    treadle_status status = set_entries(ort, so, options->session_options, &arena, err);
    td_arena_free(&arena);
    TD_TRY(status);
    if (options->n_threads > 0) TD_ORT_TRY(ort->api.SetIntraOpNumThreads(so, options->n_threads), TREADLE_CONFIG);
    if (options->no_passes) TD_ORT_TRY(ort->api.SetSessionGraphOptimizationLevel(so, ORT_DISABLE_ALL), TREADLE_CONFIG);
    return TREADLE_OK;
}

treadle_status td_ort_session_options(const td_ort *ort, const td_engine_options *options, OrtSessionOptions **out,
                                      treadle_error *err) {
    OrtSessionOptions *so = NULL;
    TD_ORT_TRY(ort->api.CreateSessionOptions(&so), TREADLE_INTERNAL);
    treadle_status status = set_all(ort, options, so, err);
    if (status != TREADLE_OK) {
        ort->api.ReleaseSessionOptions(so);
        return status;
    }
    *out = so;
    return TREADLE_OK;
}

/* --- run options */

static treadle_status set_run_option(const td_ort *ort, OrtRunOptions *ro, const char *key, const char *value,
                                     treadle_error *err) {
    int number = 0;
    bool is_number = sscanf(value, "%d", &number) == 1;
    if (strcmp(key, "enable_profiling") == 0)
        return td_fail(err, TREADLE_CONFIG, "run_options: \"%s\" is not taken from a config: it writes a file", key);
    if (strcmp(key, "log_severity_level") == 0 && is_number)
        TD_ORT_TRY(ort->api.RunOptionsSetRunLogSeverityLevel(ro, number), TREADLE_CONFIG);
    else if (strcmp(key, "log_verbosity_level") == 0 && is_number)
        TD_ORT_TRY(ort->api.RunOptionsSetRunLogVerbosityLevel(ro, number), TREADLE_CONFIG);
    else if (strcmp(key, "run_tag") == 0) TD_ORT_TRY(ort->api.RunOptionsSetRunTag(ro, value), TREADLE_CONFIG);
    else TD_ORT_TRY(ort->api.AddRunConfigEntry(ro, key, value), TREADLE_CONFIG);
    return TREADLE_OK;
}

treadle_status td_ort_run_options(const td_ort *ort, const td_json *given, OrtRunOptions **out, treadle_error *err) {
    td_arena arena = {0};
    td_ort_pairs pairs;
    OrtRunOptions *ro = NULL;
    treadle_status status = td_ort_pairs_read(given, "run_options", &arena, &pairs, err);
    if (status == TREADLE_OK) {
        OrtStatus *failed = ort->api.CreateRunOptions(&ro);
        if (failed) status = td_ort_fail(ort, failed, TREADLE_INTERNAL, err);
    }
    for (size_t i = 0; status == TREADLE_OK && i < pairs.n; i++)
        status = set_run_option(ort, ro, pairs.keys[i], pairs.values[i], err);
    td_arena_free(&arena);
    if (status != TREADLE_OK) {
        if (ro) ort->api.ReleaseRunOptions(ro);
        return status;
    }
    *out = ro;
    return TREADLE_OK;
}
