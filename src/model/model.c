/* model/model.c - opening a folder. */
#include "model/model.h"

#include "base/alloc.h"
#include "base/log.h"
#include "model/audio_part.h"

#include <stdio.h>

static td_engine_options engine_options(const treadle_model_options *options) {
    return (td_engine_options){
        .engine = options->engine,
        .n_threads = options->n_threads,
        .no_passes = options->no_passes,
        .profile = options->profile,
        .activations = (td_activations)options->activations,
        .pack_dir = options->pack_dir,
        .library = options->ort_library,
        .provider_libraries = options->provider_libraries,
        .n_provider_libraries = options->n_provider_libraries,
    };
}

/* What an engine offers, asked once. */
typedef struct provider_lists {
    td_engine_options options;
    td_arena *arena;
    bool asked[TD_ENGINE_ORT + 1];
    const char *const *names[TD_ENGINE_ORT + 1];
    const char *why[TD_ENGINE_ORT + 1];
} provider_lists;

static const char *const *list_providers(td_engine_kind kind, void *context, const char **why) {
    provider_lists *lists = context;
    const td_engine *engine = td_engine_find(td_str_from(td_engine_words[kind]));
    treadle_error problem = {0};
    if (!lists->asked[kind] && engine &&
        engine->providers(&lists->options, lists->arena, &lists->names[kind], &problem) != TREADLE_OK)
        lists->why[kind] = td_arena_strdup(lists->arena, problem.message);
    lists->asked[kind] = true;
    *why = lists->why[kind];
    return lists->names[kind];
}

/* Nothing in a config may name a thing that the machine lacks without its being said before weights are read. */
treadle_status td_model_examine(const char *path, const treadle_model_options *options, treadle_model **out,
                                treadle_error *err) {
    treadle_model *m = td_alloc_zero(1, sizeof *m);
    if (!m) return td_fail_memory(err, "a model", sizeof *m);
    td_arena_init(&m->arena);
    td_messages_init(&m->messages, &m->arena);
    provider_lists lists = {.options = engine_options(options), .arena = &m->arena};
    td_config_options config = {
        .strict = options->strict,
        .settings = options->settings,
        .n_settings = options->n_settings,
        .engine = options->engine,
        .plugin_dirs = options->plugin_dirs,
        .n_plugin_dirs = options->n_plugin_dirs,
        .list_providers = list_providers,
        .context = &lists,
    };
    treadle_status status = td_model_files_open(path, &m->arena, &m->files, err);
    if (status == TREADLE_OK) status = td_config_load(&m->files, &config, &m->messages, &m->config, err);
    if (status == TREADLE_OK) status = td_plan_build(m->config, &m->messages, &m->plan, err);
    if (status == TREADLE_OK && !td_audio_part_check(m->config, m->plan, &m->messages))
        status = td_fail_memory(err, "the audio preprocessing", 0);
    if (status == TREADLE_OK) status = td_text_part_open(&m->files, &m->text, err);
    if (status != TREADLE_OK) {
        td_model_close(m);
        return status;
    }
    *out = m;
    return TREADLE_OK;
}

/* What a check would only warn of, such as a misspelt key, must not go unsaid because the model runs. */
static void log_warnings(const td_messages *messages) {
    for (size_t i = 0; i < messages->list.n; i++) {
        const td_message *m = &messages->list.items[i];
        if (m->level != TREADLE_MESSAGE_WARNING) continue;
        treadle_error said = {.line = m->place.line, .column = m->place.column};
        char text[sizeof said];
        snprintf(said.file, sizeof said.file, "%s", m->place.file ? m->place.file : "");
        snprintf(said.pointer, sizeof said.pointer, "%s", m->place.pointer ? m->place.pointer : "");
        snprintf(said.message, sizeof said.message, "%s", m->text);
        treadle_error_format(&said, text, sizeof text);
        td_log(TD_LOG_WARNING, "%s", text);
    }
}

/* A plugin sees the config as it is in effect. */
static treadle_status open_plugin(treadle_model *m, treadle_error *err) {
    td_buf text = {0};
    td_json_writer w;
    if (!m->config->plugin.path) return TREADLE_OK;
    td_json_writer_init(&w, &text, 0);
    td_json_write_value(&w, m->config->root);
    char *copy = text.failed ? NULL : td_arena_strndup(&m->arena, text.p, text.n);
    td_buf_free(&text);
    if (!copy) return td_fail_memory(err, "a config", 0);
    TD_TRY(td_plugin_open(m->config->plugin.path, m->config->plugin.entry_point, m->runtime, copy, &m->plugin, err));
    m->runtime->hook = td_plugin_hook(m->plugin);
    return TREADLE_OK;
}

treadle_status td_model_open(const char *path, const treadle_model_options *options, treadle_model **out,
                             treadle_error *err) {
    treadle_model *m = NULL;
    TD_TRY(td_model_examine(path, options, &m, err));
    td_engine_options engine = engine_options(options);
    treadle_status status = td_messages_status(&m->messages, err);
    if (status == TREADLE_OK) status = td_runtime_open(m->plan, &engine, &m->runtime, err);
    if (status == TREADLE_OK) status = open_plugin(m, err);
    if (status != TREADLE_OK) {
        td_model_close(m);
        return status;
    }
    log_warnings(&m->messages);
    *out = m;
    return TREADLE_OK;
}

void td_model_close(treadle_model *m) {
    if (!m) return;
    td_text_part_close(m->text);
    td_plugin_close(m->plugin);
    td_runtime_close(m->runtime);
    td_plan_free(m->plan);
    td_config_free(m->config);
    td_messages_free(&m->messages);
    td_arena_free(&m->arena);
    td_free(m);
}
