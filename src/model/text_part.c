/* model/text_part.c - loading of tokenizer and templates. Rendering is in chat.c. */
#include "model/text_part.h"

#include "base/alloc.h"
#include "base/file.h"
#include "model/chat.h"

enum { TEXT_MAX_BYTES = 512 << 20 };

treadle_status td_text_part_open(const char *dir, treadle_text **out, treadle_error *err) {
    treadle_text *t = td_alloc_zero(1, sizeof *t);
    if (!t) return td_fail_memory(err, "the text part of a model", sizeof *t);
    td_arena_init(&t->arena);
    t->dir = td_arena_strdup(&t->arena, dir);
    if (!t->dir || pthread_mutex_init(&t->lock, NULL) != 0) {
        td_arena_free(&t->arena);
        td_free(t);
        return td_fail_memory(err, "the text part of a model", 0);
    }
    *out = t;
    return TREADLE_OK;
}

void td_text_part_close(treadle_text *t) {
    if (!t) return;
    td_tokenizer_free(t->tokenizer);
    td_template_free(t->parsed);
    pthread_mutex_destroy(&t->lock);
    td_arena_free(&t->arena);
    td_free(t);
}

static bool has_file(const treadle_text *t, const char *name) {
    td_arena scratch;
    td_arena_init(&scratch);
    char *path;
    bool found =
        td_path_find_inside(&scratch, t->dir, name, &path, NULL) == TREADLE_OK && path && td_path_is_file(path);
    td_arena_free(&scratch);
    return found;
}

bool td_text_part_has_tokenizer(const treadle_text *t) {
    treadle_text *own = (treadle_text *)(uintptr_t)t; /* the lock guards what changes */
    pthread_mutex_lock(&own->lock);
    bool tried = own->tokenizer_tried, loaded = own->tokenizer != NULL;
    pthread_mutex_unlock(&own->lock);
    return tried ? loaded : has_file(t, "tokenizer.json");
}

/* A file of the folder as heap text; absent: *out = NULL and OK. */
static treadle_status read_optional(const treadle_text *t, const char *name, char **out, size_t *n,
                                    treadle_error *err) {
    td_arena scratch;
    td_arena_init(&scratch);
    *out = NULL;
    *n = 0;
    char *path;
    treadle_status status = td_path_find_inside(&scratch, t->dir, name, &path, err);
    if (status == TREADLE_OK && path) status = td_file_read(path, TEXT_MAX_BYTES, out, n, err);
    if (status != TREADLE_OK) td_error_file(err, name);
    td_arena_free(&scratch);
    return status;
}

static treadle_status load_tokenizer(treadle_text *t, treadle_error *err) {
    char *tokenizer = NULL, *config = NULL;
    size_t n_tokenizer = 0, n_config = 0;
    treadle_status status = read_optional(t, "tokenizer.json", &tokenizer, &n_tokenizer, err);
    if (status == TREADLE_OK) status = read_optional(t, "tokenizer_config.json", &config, &n_config, err);
    if (status == TREADLE_OK && !tokenizer) {
        status = td_fail(err, TREADLE_NOT_FOUND, "the model folder has no tokenizer.json: only token ids can be used");
        td_error_file(err, t->dir);
    }
    if (status == TREADLE_OK)
        status = td_tokenizer_load((td_str){tokenizer, n_tokenizer}, (td_str){config, n_config}, &t->tokenizer, err);
    td_free(tokenizer);
    td_free(config);
    return status;
}

treadle_status td_text_part_tokenizer(const treadle_text *text, const td_tokenizer **out, treadle_error *err) {
    treadle_text *t = (treadle_text *)(uintptr_t)text;
    pthread_mutex_lock(&t->lock);
    if (!t->tokenizer_tried) {
        treadle_status status = load_tokenizer(t, &t->tokenizer_error);
        t->tokenizer_tried = status != TREADLE_OUT_OF_MEMORY; /* that may be better next time */
    }
    if (t->tokenizer) *out = t->tokenizer;
    else if (err) *err = t->tokenizer_error;
    treadle_status status = t->tokenizer ? TREADLE_OK : t->tokenizer_error.code;
    pthread_mutex_unlock(&t->lock);
    return status;
}

/* --- templates */

static bool add_template(treadle_text *t, td_str name, td_str text) {
    t->templates[t->n_templates].name = td_arena_str(&t->arena, name);
    t->templates[t->n_templates].text = td_arena_str(&t->arena, text);
    return t->templates[t->n_templates].name.p && t->templates[t->n_templates++].text.p;
}

/* chat_template.jinja wins over tokenizer_config.json; there it is a text, or a list of named ones. */
static treadle_status load_templates(treadle_text *t, treadle_error *err) {
    char *file = NULL, *config = NULL;
    size_t n_file = 0, n_config = 0;
    treadle_status status = read_optional(t, "chat_template.jinja", &file, &n_file, err);
    if (status == TREADLE_OK) status = read_optional(t, "tokenizer_config.json", &config, &n_config, err);
    if (status == TREADLE_OK && config) {
        char *text = td_arena_strndup(&t->arena, config, n_config);
        td_json_options lax = {.allow_duplicate_keys = true, .allow_nonfinite = true};
        status = text ? td_json_parse((td_str){text, n_config}, &lax, &t->arena, &t->special, err)
                      : td_fail_memory(err, "tokenizer_config.json", n_config);
        if (status != TREADLE_OK) td_error_file(err, "tokenizer_config.json");
    }
    const td_json *declared = td_json_get(t->special, "chat_template");
    if (status == TREADLE_OK) {
        t->templates = TD_ARENA_ARRAY(&t->arena, td_named_template, 2 + (declared ? declared->n : 0));
        bool ok = t->templates != NULL;
        if (ok && file) ok = add_template(t, TD_STR("default"), (td_str){file, n_file});
        if (ok && declared && declared->kind == TD_JSON_STRING)
            ok = add_template(t, TD_STR("default"), declared->string);
        for (const td_json *v = declared && declared->kind == TD_JSON_ARRAY ? declared->first : NULL; ok && v;
             v = v->next)
            ok = add_template(t, td_json_string_or(v, "name", "default"), td_json_string_or(v, "template", ""));
        if (!ok) status = td_fail_memory(err, "chat templates", 0);
    }
    td_free(file);
    td_free(config);
    return status;
}

static treadle_status templates(treadle_text *t, treadle_error *err) {
    if (!t->templates_tried) {
        treadle_status status = load_templates(t, &t->templates_error);
        t->templates_tried = status != TREADLE_OUT_OF_MEMORY;
    }
    if (t->templates_error.code == TREADLE_OK) return TREADLE_OK;
    if (err) *err = t->templates_error;
    return t->templates_error.code;
}

bool td_text_part_has_template(const treadle_text *text) {
    treadle_text *t = (treadle_text *)(uintptr_t)text;
    pthread_mutex_lock(&t->lock);
    bool found = templates(t, NULL) != TREADLE_OK || t->n_templates > 0; /* a broken one: rendering says why */
    pthread_mutex_unlock(&t->lock);
    return found;
}

static treadle_status find_template(const treadle_text *t, const char *name, td_str *out, treadle_error *err) {
    for (size_t i = 0; i < t->n_templates; i++) {
        if (!td_str_is(t->templates[i].name, name ? name : "default")) continue;
        *out = t->templates[i].text;
        return TREADLE_OK;
    }
    if (!t->n_templates)
        return td_fail(
            err, TREADLE_NOT_FOUND,
            "the model folder has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json)");
    return td_fail(err, TREADLE_NOT_FOUND, "the model folder has no chat template named \"%.200s\"",
                   name ? name : "default");
}

/* The default template is parsed once and kept; others each time. *own: the caller frees it. */
static treadle_status parsed_template(treadle_text *t, const treadle_chat_options *options, const td_template **out,
                                      td_template **own, treadle_error *err) {
    bool usual = !options->template_text && !options->template_name;
    *own = NULL;
    if (usual && t->parsed) {
        *out = t->parsed;
        return TREADLE_OK;
    }
    td_str source = td_str_from(options->template_text);
    if (!options->template_text) TD_TRY(find_template(t, options->template_name, &source, err));
    td_template *parsed = NULL;
    treadle_status status = td_template_parse(source, &parsed, err);
    if (status != TREADLE_OK) {
        td_error_file(err, options->template_text ? "template" : "chat template");
        return status;
    }
    if (usual) t->parsed = parsed;
    else *own = parsed;
    *out = parsed;
    return TREADLE_OK;
}

treadle_status td_text_part_render(const treadle_text *text, const char *messages_json,
                                   const treadle_chat_options *options, td_buf *out, treadle_error *err) {
    treadle_text *t = (treadle_text *)(uintptr_t)text;
    const td_template *parsed = NULL;
    td_template *own = NULL;
    pthread_mutex_lock(&t->lock);
    treadle_status status = templates(t, err);
    if (status == TREADLE_OK) status = parsed_template(t, options, &parsed, &own, err);
    pthread_mutex_unlock(&t->lock);
    if (status == TREADLE_OK) status = td_chat_render(parsed, t->special, messages_json, options, out, err);
    td_template_free(own);
    return status;
}
