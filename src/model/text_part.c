/* model/text_part.c - loading of tokenizer and templates. Rendering is in chat.c. */
#include "model/text_part.h"

#include "base/alloc.h"
#include "model/chat.h"

enum { TEXT_MAX_BYTES = 512 << 20 };

treadle_status td_text_part_open(const td_model_files *files, treadle_text **out, treadle_error *err) {
    treadle_text *t = td_alloc_zero(1, sizeof *t);
    if (!t) return td_fail_memory(err, "the text part of a model", sizeof *t);
    td_arena_init(&t->arena);
    t->files = files;
    if (pthread_mutex_init(&t->lock, NULL) != 0) {
        td_free(t);
        return td_fail_memory(err, "the text part of a model", 0);
    }
    *out = t;
    return TREADLE_OK;
}

treadle_status td_text_part_open_path(const char *path, treadle_text **out, treadle_error *err) {
    treadle_text *t = NULL;
    TD_TRY(td_text_part_open(NULL, &t, err));
    t->files = &t->own;
    treadle_status status = td_model_files_open(path, &t->arena, &t->own, err);
    if (status == TREADLE_OK) *out = t;
    else td_text_part_close(t);
    return status;
}

void td_text_part_close(treadle_text *t) {
    if (!t) return;
    td_tokenizer_free(t->tokenizer);
    td_template_free(t->parsed);
    pthread_mutex_destroy(&t->lock);
    td_arena_free(&t->arena);
    td_free(t);
}

bool td_text_part_has_tokenizer(const treadle_text *t) {
    treadle_text *own = (treadle_text *)(uintptr_t)t; /* the lock guards what changes */
    pthread_mutex_lock(&own->lock);
    bool tried = own->tokenizer_tried, loaded = own->tokenizer != NULL;
    pthread_mutex_unlock(&own->lock);
    return tried ? loaded : td_model_files_has(t->files, "tokenizer.json");
}

/* A file of the model; absent: out->p = NULL and OK. */
static treadle_status read_optional(const treadle_text *t, const char *name, td_arena *arena, td_str *out,
                                    treadle_error *err) {
    treadle_status status = td_model_files_read(t->files, name, TEXT_MAX_BYTES, arena, out, NULL, err);
    if (status != TREADLE_OK) td_error_file(err, name);
    return status;
}

static treadle_status load_tokenizer(treadle_text *t, treadle_error *err) {
    td_str tokenizer = {0}, config = {0};
    td_arena scratch;
    td_arena_init(&scratch);
    treadle_status status = read_optional(t, "tokenizer.json", &scratch, &tokenizer, err);
    if (status == TREADLE_OK) status = read_optional(t, "tokenizer_config.json", &scratch, &config, err);
    if (status == TREADLE_OK && !tokenizer.p) {
        status = td_fail(err, TREADLE_NOT_FOUND, "the model folder has no tokenizer.json: only token ids can be used");
        td_error_file(err, t->files->dir);
    }
    if (status == TREADLE_OK) status = td_tokenizer_load(tokenizer, config, &t->tokenizer, err);
    td_arena_free(&scratch);
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
    td_str file = {0}, config = {0};
    treadle_status status = read_optional(t, "chat_template.jinja", &t->arena, &file, err);
    if (status == TREADLE_OK) status = read_optional(t, "tokenizer_config.json", &t->arena, &config, err);
    if (status == TREADLE_OK && config.p) {
        td_json_options lax = {.allow_duplicate_keys = true, .allow_nonfinite = true};
        status = td_json_parse(config, &lax, &t->arena, &t->special, err);
        if (status != TREADLE_OK) td_error_file(err, "tokenizer_config.json");
    }
    const td_json *declared = td_json_get(t->special, "chat_template");
    if (status == TREADLE_OK && declared && declared->kind != TD_JSON_STRING && declared->kind != TD_JSON_ARRAY &&
        declared->kind != TD_JSON_NULL) {
        status = td_fail(err, TREADLE_FORMAT, "chat_template: expected a string or a list of templates, found %s",
                         td_json_kind_name(declared->kind));
        td_error_file(err, "tokenizer_config.json");
    }
    if (status == TREADLE_OK) {
        t->templates = TD_ARENA_ARRAY(&t->arena, td_named_template, 2 + (declared ? declared->n : 0));
        bool ok = t->templates != NULL;
        if (ok && file.p) ok = add_template(t, TD_STR("default"), file);
        if (ok && declared && declared->kind == TD_JSON_STRING)
            ok = add_template(t, TD_STR("default"), declared->string);
        for (const td_json *v = declared && declared->kind == TD_JSON_ARRAY ? declared->first : NULL; ok && v;
             v = v->next)
            ok = add_template(t, td_json_string_or(v, "name", "default"), td_json_string_or(v, "template", ""));
        if (!ok) status = td_fail_memory(err, "chat templates", 0);
    }
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
