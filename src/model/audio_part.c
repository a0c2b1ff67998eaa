/* model/audio_part.c - from a model folder's config to its audio recipe. */
#include "model/audio_part.h"

#include "base/file.h"
#include "model/files.h"

static void add_place(const td_json *value, treadle_error *err) {
    td_arena scratch = {0};
    td_place place = td_tree_place(&scratch, value, false);
    if (place.file) td_error_file(err, place.file);
    td_error_place(err, place.line, place.column);
    if (place.pointer) td_error_pointer(err, "%s", place.pointer);
    td_arena_free(&scratch);
}

/* Without a word in the config: a file of a usual name. */
static treadle_status find(const td_model_files *files, td_str overrides, td_recipe **out, treadle_error *err) {
    static const char *const names[] = {"audio_processor_config.json", "audio_processor.json",
                                        "preprocessor_config.json", "processor_config.json"};
    td_arena arena = {0};
    treadle_status status = TREADLE_OK;
    td_str text = {0};
    for (size_t i = 0; i < TD_COUNT(names) && status == TREADLE_OK && !text.p; i++) {
        const char *path = NULL;
        status = td_model_files_read(files, names[i], TD_AUDIO_MAX_CONFIG_BYTES, &arena, &text, &path, err);
        if (status == TREADLE_OK && text.p) status = td_recipe_parse(text, path, overrides, out, err);
    }
    if (status == TREADLE_OK && !text.p) {
        status =
            td_fail(err, TREADLE_NOT_FOUND,
                    "no audio config: expected preprocessing.audio in genai_config.json, or a file %s, %s, %s or %s",
                    names[0], names[1], names[2], names[3]);
        td_error_file(err, files->dir);
    }
    td_arena_free(&arena);
    return status;
}

treadle_status td_audio_part_recipe(const td_config *config, td_str overrides, td_recipe **out, treadle_error *err) {
    const td_config_preprocess *audio = &config->preprocess[TD_PREPROCESS_AUDIO];
    treadle_status status;
    if (!audio->json) return find(config->files, overrides, out, err);
    if (audio->format == TD_PREPROCESS_FORMAT_ONNX) {
        status = td_fail(err, TREADLE_UNSUPPORTED, "audio preprocessing by an ONNX graph is not there yet");
        add_place(audio->json, err);
        return status;
    }
    if (audio->path) return td_recipe_open(audio->path, overrides, out, err);
    if (audio->config && audio->config->kind == TD_JSON_OBJECT) {
        /* Its values may come from several texts: messages point at the object as a whole. */
        status = td_recipe_from_json(audio->config, (td_str){0}, NULL, overrides, out, err);
        if (status != TREADLE_OK) add_place(audio->config, err);
        return status;
    }
    status = td_fail(err, TREADLE_CONFIG, "expected \"config\": the name of a file in the folder, or an object");
    add_place(audio->config ? audio->config : audio->json, err);
    return status;
}

treadle_status td_audio_part_open(const char *path, td_str overrides, td_recipe **out, treadle_error *err) {
    td_arena arena = {0};
    td_messages messages;
    td_model_files files;
    td_config *config = NULL;
    bool is_model = td_path_is_dir(path) || td_str_ends(td_str_from(path), TD_STR(".onnx"));
    if (!is_model) return td_recipe_open(path, overrides, out, err);
    td_messages_init(&messages, &arena);
    treadle_status status = td_model_files_open(path, &arena, &files, err);
    if (status == TREADLE_OK) status = td_config_load(&files, NULL, &messages, &config, err);
    if (status == TREADLE_OK) status = td_audio_part_recipe(config, overrides, out, err);
    td_config_free(config);
    td_messages_free(&messages);
    td_arena_free(&arena);
    return status;
}
