/* config/load.c - the stages from a folder to a td_config. */
#include "config/config.h"

#include "base/alloc.h"
#include "base/file.h"
#include "config/fields.h"
#include "config/v1.h"

enum { CONFIG_MAX_BYTES = 64 << 20 };

const td_source *td_config_source(td_config *c, const char *label, const char *path, td_str text) {
    td_source *source = TD_ARENA_NEW(&c->arena, td_source);
    if (!source) return NULL;
    source->label = td_arena_strdup(&c->arena, label);
    source->path = path ? td_arena_strdup(&c->arena, path) : NULL;
    source->text = text;
    return source->label && (!path || source->path) ? source : NULL;
}

void td_config_free(td_config *config) {
    if (!config) return;
    td_arena_free(&config->arena);
    td_free(config);
}

/* The version decides what the rest means, so it is looked at before anything else. false: stop here. */
static bool check_version(const td_json *root, td_messages *messages) {
    const td_json *version = td_json_get(root, "version");
    if (!version && !td_json_get(root, "model")) {
        td_messages_add(messages, TREADLE_MESSAGE_ERROR, td_tree_place(messages->arena, root, false),
                        "expected \"version\": 2, or a \"model\" as in files without a version, found neither");
        return false;
    }
    if (!version || (version->kind == TD_JSON_INT && (version->as_int == 1 || version->as_int == 2))) return true;
    td_place place = td_tree_place(messages->arena, version, false);
    if (version->kind == TD_JSON_INT || version->kind == TD_JSON_DOUBLE)
        td_messages_add(messages, TREADLE_MESSAGE_ERROR, place,
                        "expected version 2 (known versions: 1, 2), found %.15g", version->as_double);
    else
        td_messages_add(messages, TREADLE_MESSAGE_ERROR, place, "expected version 2 (known versions: 1, 2), found %s",
                        td_json_kind_name(version->kind));
    return false;
}

static treadle_status no_memory(treadle_error *err) { return td_fail_memory(err, "a config", 0); }

/* A key that stands twice is an error, but files of version 1 were always read with the last one winning. */
static treadle_status parse_any(td_config *c, td_str text, const char *path, td_messages *messages, td_json **out) {
    treadle_error problem = {0};
    treadle_status status = td_json_parse(text, NULL, &c->arena, out, &problem);
    if (status == TREADLE_OK || status == TREADLE_OUT_OF_MEMORY) return status;
    td_place place = {.file = path, .pointer = problem.pointer, .line = problem.line, .column = problem.column};
    td_json_options twice = {.allow_duplicate_keys = true};
    td_json *lax = NULL;
    bool v1 = td_json_parse(text, &twice, &c->arena, &lax, NULL) == TREADLE_OK && td_config_is_v1(lax);
    if (!v1) {
        td_messages_add_error(messages, place, &problem);
        return status;
    }
    td_messages_add(messages, TREADLE_MESSAGE_WARNING, place, "%s", problem.message);
    *out = lax;
    return TREADLE_OK;
}

/* Parses text into c->root. A text that is no config leaves an empty root and a message; *usable says which. */
static treadle_status parse_text(td_config *c, td_str text, const char *path, const td_config_options *options,
                                 td_messages *messages, bool *usable, treadle_error *err) {
    *usable = false;
    td_json *parsed = NULL;
    treadle_status status = parse_any(c, text, path, messages, &parsed);
    if (status == TREADLE_OUT_OF_MEMORY) return no_memory(err);
    if (status != TREADLE_OK) return TREADLE_OK;
    const td_source *source = td_config_source(c, path ? td_path_base(path) : "genai_config.json", path, text);
    td_json *root = source ? td_tree_copy(&c->arena, parsed, source) : NULL;
    if (!root) return no_memory(err);
    if (root->kind != TD_JSON_OBJECT) {
        td_messages_add(messages, TREADLE_MESSAGE_ERROR, td_tree_place(messages->arena, root, false),
                        "expected an object, found %s", td_json_kind_name(root->kind));
        return TREADLE_OK;
    }
    if (!check_version(root, messages)) return TREADLE_OK;
    c->root = root;
    c->version = 2;
    *usable = true;
    if (!td_config_is_v1(root)) return TREADLE_OK;
    bool strict = options && options->strict;
    bool ok = td_config_apply_settings(c, options, true, messages) && td_config_translate_v1(c, strict, messages);
    const td_json *model = td_json_get(root, "model");
    *usable = ok && model && model->kind == TD_JSON_OBJECT;
    if (ok && !*usable && !messages->n_errors)
        td_messages_add(messages, TREADLE_MESSAGE_ERROR, td_tree_place(messages->arena, model ? model : root, false),
                        "expected \"model\", an object, as in files of version 1, found %s",
                        model ? td_json_kind_name(model->kind) : "none");
    return ok ? TREADLE_OK : no_memory(err);
}

/* files NULL: those of dir. */
static treadle_status new_config(const td_model_files *files, const char *dir, td_config **out, treadle_error *err) {
    td_config *c = td_alloc_zero(1, sizeof *c);
    if (!c) return no_memory(err);
    td_arena_init(&c->arena);
    c->dir = td_arena_strdup(&c->arena, dir);
    td_model_files *own = files ? NULL : TD_ARENA_NEW(&c->arena, td_model_files);
    if (own) *own = (td_model_files){.dir = c->dir};
    c->files = files ? files : own;
    const td_source *none = td_config_source(c, "no config", NULL, (td_str){0});
    c->root = none ? td_tree_new(&c->arena, TD_JSON_OBJECT, none) : NULL;
    if (!c->dir || !c->files || !c->root) {
        td_config_free(c);
        return no_memory(err);
    }
    *out = c;
    return TREADLE_OK;
}

/* Everything after the text is in the tree. */
static treadle_status finish(td_config *c, const td_config_options *options, td_messages *messages,
                             treadle_error *err) {
    bool ok = td_config_apply_settings(c, options, false, messages);
    if (ok) td_fields_check(c->root, td_config_fields, options && options->strict, messages);
    ok = ok && td_config_apply_preset(c, messages) && td_config_apply_generation_file(c, messages) &&
         td_config_apply_tokenizer_files(c, messages) && td_config_apply_model_file(c, messages) &&
         td_config_apply_transcription(c, messages) && td_config_apply_pooling_files(c, messages) &&
         td_config_find_sessions(c, messages) && td_config_read(c, options, messages);
    return ok && !messages->failed ? TREADLE_OK : no_memory(err);
}

treadle_status td_config_parse(td_str text, const char *path, const char *dir, const td_config_options *options,
                               td_messages *messages, td_config **out, treadle_error *err) {
    td_config *c = NULL;
    TD_TRY(new_config(NULL, dir, &c, err));
    char *copy = td_arena_strndup(&c->arena, text.p ? text.p : "", text.n);
    c->file = path ? td_arena_strdup(&c->arena, path) : NULL;
    bool usable = false;
    treadle_status status = copy && (!path || c->file) ? TREADLE_OK : no_memory(err);
    if (status == TREADLE_OK) status = parse_text(c, (td_str){copy, text.n}, c->file, options, messages, &usable, err);
    if (status == TREADLE_OK && usable) status = finish(c, options, messages, err);
    if (status != TREADLE_OK) {
        td_config_free(c);
        return status;
    }
    *out = c;
    return TREADLE_OK;
}

/* The config's text: of the folder, or carried by the model file. */
static treadle_status load_text(td_config *c, const td_config_options *options, td_messages *messages,
                                treadle_error *err) {
    td_str text = {0};
    const char *path = NULL;
    treadle_error problem = {0};
    treadle_status status = TREADLE_OK;
    if (!c->files->only || c->files->n_carried > 0) /* else the config beside it speaks of other files */
        status =
            td_model_files_read(c->files, "genai_config.json", CONFIG_MAX_BYTES, &c->arena, &text, &path, &problem);
    if (status == TREADLE_OUT_OF_MEMORY) return no_memory(err);
    if (status != TREADLE_OK) {
        if (!path) path = td_path_join(&c->arena, c->dir, "genai_config.json");
        c->file = path;
        td_messages_add_error(messages, (td_place){.file = path}, &problem);
        return TREADLE_OK;
    }
    if (!text.p) return finish(c, options, messages, err);
    c->file = path;
    bool usable = false;
    TD_TRY(parse_text(c, text, c->file, options, messages, &usable, err));
    return usable ? finish(c, options, messages, err) : TREADLE_OK;
}

treadle_status td_config_load(const td_model_files *files, const td_config_options *options, td_messages *messages,
                              td_config **out, treadle_error *err) {
    td_config *c = NULL;
    TD_TRY(new_config(files, files->dir, &c, err));
    treadle_status status = load_text(c, options, messages, err);
    if (status != TREADLE_OK) {
        td_config_free(c);
        return status;
    }
    *out = c;
    return TREADLE_OK;
}
