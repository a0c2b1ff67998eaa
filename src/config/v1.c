/* config/v1.c - the translation as a whole, and what its parts share. */
#include "config/v1.h"

#include "base/file.h"

/* --- values */

static td_json *keep(td_v1 *v, td_json *value) {
    if (!value) v->failed = true;
    return value;
}

static void put(td_v1 *v, td_json *parent, const char *key, td_json *value) {
    if (!v->failed && parent && !td_tree_put(&v->c->arena, parent, td_str_from(key), value)) v->failed = true;
}

td_json *td_v1_new_object(td_v1 *v, const td_json *origin) {
    return v->failed ? NULL : keep(v, td_tree_derive(&v->c->arena, TD_JSON_OBJECT, origin));
}

td_json *td_v1_object(td_v1 *v, td_json *parent, const char *key, const td_json *origin) {
    if (v->failed || !parent) return NULL;
    td_json *found = td_json_get(parent, key);
    if (found) return found;
    td_json *made = td_v1_new_object(v, origin);
    put(v, parent, key, made);
    return v->failed ? NULL : made;
}

void td_v1_copy(td_v1 *v, td_json *parent, const char *key, const td_json *from) {
    if (v->failed || !from || !parent || from->kind == TD_JSON_NULL) return;
    put(v, parent, key, keep(v, td_tree_derive_copy(&v->c->arena, from)));
}

void td_v1_string(td_v1 *v, td_json *parent, const char *key, td_str value, const td_json *origin) {
    if (v->failed || !parent) return;
    td_json *made = keep(v, td_tree_derive(&v->c->arena, TD_JSON_STRING, origin));
    if (!made) return;
    made->string = td_arena_str(&v->c->arena, value);
    if (!made->string.p) v->failed = true;
    put(v, parent, key, made);
}

void td_v1_int(td_v1 *v, td_json *parent, const char *key, int64_t value, const td_json *origin) {
    if (v->failed || !parent) return;
    td_json *made = keep(v, td_tree_derive(&v->c->arena, TD_JSON_INT, origin));
    if (!made) return;
    made->as_int = value;
    made->as_double = (double)value;
    put(v, parent, key, made);
}

void td_v1_bool(td_v1 *v, td_json *parent, const char *key, bool value, const td_json *origin) {
    if (v->failed || !parent) return;
    td_json *made = keep(v, td_tree_derive(&v->c->arena, TD_JSON_BOOL, origin));
    if (!made) return;
    made->as_bool = value;
    put(v, parent, key, made);
}

void td_v1_push(td_v1 *v, td_json *parent, const char *key, td_json *value, const td_json *origin) {
    if (v->failed || !parent || !value) return;
    td_json *list = td_json_get(parent, key);
    if (!list) {
        list = keep(v, td_tree_derive(&v->c->arena, TD_JSON_ARRAY, origin));
        put(v, parent, key, list);
    }
    if (!v->failed) td_tree_push(list, value);
}

void td_v1_note(td_v1 *v, const td_json *at, const char *text) {
    td_messages_add(v->messages, TREADLE_MESSAGE_NOTE, td_tree_place(v->messages->arena, at, false), "%s", text);
}

bool td_v1_file_exists(td_v1 *v, td_str name) {
    char *copy = td_arena_strndup(&v->c->arena, name.p ? name.p : "", name.n), *path = NULL;
    if (!copy) v->failed = true;
    if (!copy || name.n == 0) return false;
    treadle_status status = td_path_resolve_inside(&v->c->arena, v->c->dir, name, &path, NULL);
    if (status == TREADLE_OUT_OF_MEMORY) v->failed = true;
    return status == TREADLE_OK && td_path_is_file(path);
}

/* --- the whole */

bool td_config_is_v1(const td_json *root) {
    const td_json *version = td_json_get(root, "version");
    if (!version) return td_json_get(root, "model") != NULL;
    return (version->kind == TD_JSON_INT && version->as_int == 1);
}

static void note_what_is_left_out(td_v1 *v) {
    static const struct {
        const char *key, *text;
    } rows[] = {
        {"draft", "the draft model is not used: results are the same without it"},
        {"mtp", "the head for several tokens is not used: results are the same without it"},
        {"dflash2", "the drafter of blocks is not used: results are the same without it"},
        {"dspark", "the drafter of blocks is not used: results are the same without it"},
        {"vad", "finding speech in a stream is the caller's part: the section is not used"},
    };
    for (size_t i = 0; i < TD_COUNT(rows); i++) {
        const td_json *section = td_json_get(v->model, rows[i].key);
        if (td_json_string_or(section, "filename", "").n) td_v1_note(v, section, rows[i].text);
    }
}

bool td_config_translate_v1(td_config *c, bool strict, td_messages *messages) {
    td_v1 v = {.c = c, .messages = messages, .root = c->root, .model = td_json_get(c->root, "model")};
    td_v1_check_keys(c->root, strict, messages);
    c->version = 1;
    if (!v.model || v.model->kind != TD_JSON_OBJECT) return true; /* reported by who asked */
    v.type = td_v1_find_type(td_json_string_or(v.model, "type", ""));
    v.out = td_v1_new_object(&v, c->root);
    td_v1_int(&v, v.out, "version", 2, v.model);
    td_v1_sessions(&v);
    td_v1_stages(&v);
    td_v1_flow(&v);
    td_v1_preprocessing(&v);
    td_v1_generation(&v);
    const td_json *type = td_json_get(v.model, "type");
    if (type) td_v1_copy(&v, td_v1_object(&v, v.out, "metadata", v.model), "model_type", type);
    note_what_is_left_out(&v);
    if (v.failed) return false;
    c->root = v.out;
    return true;
}
