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

/* --- the check */

static td_place place_of(td_messages *m, const td_json *value) { return td_tree_place(m->arena, value, false); }

/* Whether a made shape fits a declared one; -1 is anything. */
static bool shapes_fit(const td_shape *made, const td_shape *taken) {
    if (taken->rank < 0) return true;
    if (made->rank != taken->rank) return false;
    for (int d = 0; d < made->rank; d++)
        if (made->dims[d] >= 0 && taken->dims[d] >= 0 && made->dims[d] != taken->dims[d]) return false;
    return true;
}

static const char *shape_text(td_messages *m, const td_shape *shape) {
    td_buf text = {0};
    for (int d = 0; d < shape->rank; d++) {
        td_buf_text(&text, d ? ", " : "[");
        if (shape->dims[d] < 0) td_buf_text(&text, "any");
        else td_buf_printf(&text, "%lld", (long long)shape->dims[d]);
    }
    const char *copy = text.p ? td_arena_strdup(m->arena, text.p) : "[";
    td_buf_free(&text);
    return copy ? copy : "[";
}

static void check_graphs(const td_plan *plan, const td_feature_spec *spec, const td_json *at,
                         treadle_message_level level, td_messages *m) {
    for (size_t i = 0; i < plan->n_requests; i++) {
        const td_plan_request *r = &plan->requests[i];
        if (!td_str_is(r->name, spec->name) || r->session < 0 || r->input < 0) continue;
        const td_light_port *port = &plan->sessions[r->session].signature->inputs[r->input];
        if (shapes_fit(&spec->shape, &port->shape)) continue;
        td_messages_add(m, level, place_of(m, at), "preprocessing makes \"%s\" %s], but session \"%.*s\" takes %s]",
                        spec->name, shape_text(m, &spec->shape), TD_STR_ARGS(plan->sessions[r->session].name),
                        shape_text(m, &port->shape));
    }
}

static void check_expected(const td_feature_spec *specs, size_t n, const td_json *expected, treadle_message_level level,
                           td_messages *m) {
    for (const td_json *want = expected ? expected->first : NULL; want; want = want->next) {
        const td_json *rank = td_json_get(want, "rank"), *dtype = td_json_get(want, "dtype");
        const td_feature_spec *spec = NULL;
        for (size_t i = 0; i < n && !spec; i++)
            if (td_str_is(want->key, specs[i].name)) spec = &specs[i];
        td_str shown = {want->key.p, TD_MIN(want->key.n, (size_t)100)};
        if (!spec)
            td_messages_add(m, level, td_tree_place(m->arena, want, true), "the audio preprocessing makes no \"%.*s\"",
                            TD_STR_ARGS(shown));
        else if (rank && rank->kind == TD_JSON_INT && rank->as_int != spec->shape.rank)
            td_messages_add(m, level, place_of(m, rank),
                            "expected \"%s\" of rank %lld, but preprocessing makes rank %d", spec->name,
                            (long long)rank->as_int, spec->shape.rank);
        else if (dtype && dtype->kind == TD_JSON_STRING && td_dtype_from_name(dtype->string) != spec->dtype)
            td_messages_add(m, level, place_of(m, dtype), "expected \"%s\" of type %.*s, but preprocessing makes %s",
                            spec->name, (int)TD_MIN(dtype->string.n, (size_t)40), dtype->string.p,
                            td_dtype_name(spec->dtype));
    }
}

bool td_audio_part_check(const td_config *config, const td_plan *plan, td_messages *m) {
    const td_config_preprocess *audio = &config->preprocess[TD_PREPROCESS_AUDIO];
    treadle_message_level level = config->version == 1 ? TREADLE_MESSAGE_WARNING : TREADLE_MESSAGE_ERROR;
    td_recipe *recipe = NULL;
    treadle_error problem = {0};
    size_t n;
    if (!audio->json || !audio->config || (audio->config->kind == TD_JSON_STRING && !audio->path)) return true;
    treadle_status status = td_audio_part_recipe(config, (td_str){0}, &recipe, &problem);
    if (status == TREADLE_OUT_OF_MEMORY) return false;
    if (status != TREADLE_OK) {
        bool known = status != TREADLE_UNSUPPORTED;
        td_place place = place_of(m, audio->config);
        const char *where = problem.file[0] ? td_arena_printf(m->arena, "%s:%u:%u %s: ", problem.file, problem.line,
                                                              problem.column, problem.pointer)
                                            : "";
        bool here = place.file && strcmp(place.file, problem.file) == 0;
        td_messages_add(m, known ? level : TREADLE_MESSAGE_WARNING, place, "audio preprocessing: %s%s%s%s",
                        here || !where ? "" : where, problem.message, problem.hint[0] ? ". " : "", problem.hint);
        return true;
    }
    const td_feature_spec *specs = td_recipe_outputs(recipe, &n);
    check_expected(specs, n, audio->expected_outputs, level, m);
    for (size_t i = 0; i < n; i++) check_graphs(plan, &specs[i], audio->config, level, m);
    td_recipe_free(recipe);
    return true;
}
