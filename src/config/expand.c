/* config/expand.c - what is put over and under the file's own values: the caller's settings and presets. */
#include "config/config.h"

#include "config/presets_gen.h"

/* --- settings */

/* The number that an array's key is; -1: none. */
static int64_t index_of(td_str key) {
    int64_t index = 0;
    if (key.n == 0 || key.n > 9 || (key.n > 1 && key.p[0] == '0')) return -1;
    for (size_t i = 0; i < key.n; i++) {
        if (key.p[i] < '0' || key.p[i] > '9') return -1;
        index = index * 10 + (key.p[i] - '0');
    }
    return index;
}

/* Replaces or appends an array's item. false: out of memory, or reported. */
static bool put_item(td_json *array, td_str key, td_json *value, const treadle_setting *setting,
                     td_messages *messages) {
    int64_t index = index_of(key);
    bool append = td_str_is(key, "-") || index == array->n;
    if (!append && (index < 0 || index > array->n)) {
        td_messages_add(messages, TREADLE_MESSAGE_ERROR, (td_place){.pointer = setting->pointer},
                        "expected an index from 0 to %u, or -, in a setting, found \"%.*s\"", array->n,
                        TD_STR_ARGS(key));
        return true;
    }
    if (append) {
        if (value->kind != TD_JSON_NULL) td_tree_push(array, value);
        return true;
    }
    td_json **at = &array->first;
    for (; index > 0; index--) at = &(*at)->next;
    value->next = (*at)->next;
    value->parent = array;
    if (value->kind == TD_JSON_NULL) array->n--;
    *at = value->kind == TD_JSON_NULL ? (*at)->next : value;
    return true;
}

/* One key of a pointer without its escapes: ~1 is a slash, ~0 a tilde. */
static td_str unescape(td_config *c, td_str key) {
    char *out = td_arena_strndup(&c->arena, key.p, key.n);
    size_t n = 0;
    for (size_t i = 0; out && i < key.n; i++) {
        bool escape = key.p[i] == '~' && i + 1 < key.n && (key.p[i + 1] == '0' || key.p[i + 1] == '1');
        out[n++] = escape ? (key.p[i + 1] == '0' ? '~' : '/') : key.p[i];
        i += escape;
    }
    return (td_str){out, n};
}

static td_json *step_into(td_config *c, td_json *at, td_str key, const td_source *source) {
    if (at->kind == TD_JSON_OBJECT) {
        td_json *next = td_json_get_str(at, key);
        if (next) return next;
        next = td_tree_new(&c->arena, TD_JSON_OBJECT, source);
        return next && td_tree_put(&c->arena, at, key, next) ? next : NULL;
    }
    int64_t index = index_of(key);
    td_json *item = index < 0 ? NULL : td_json_at(at, (size_t)index);
    return item ? item : at; /* no such item: said by the caller */
}

static bool put_at_pointer(td_config *c, const treadle_setting *setting, const td_source *source, td_json *value,
                           td_messages *messages) {
    td_json *at = c->root;
    td_str rest = td_str_from(setting->pointer);
    td_place place = {.pointer = setting->pointer};
    if (rest.n < 2 || rest.p[0] != '/') {
        td_messages_add(messages, TREADLE_MESSAGE_ERROR, place,
                        "expected a JSON pointer like /generation/max_length in a setting, found \"%s\"",
                        setting->pointer);
        return true;
    }
    for (;;) {
        rest = (td_str){rest.p + 1, rest.n - 1};
        const char *slash = memchr(rest.p, '/', rest.n);
        size_t n = slash ? (size_t)(slash - rest.p) : rest.n;
        td_str key = unescape(c, (td_str){rest.p, n});
        if (!key.p) return false;
        if (at->kind != TD_JSON_OBJECT && at->kind != TD_JSON_ARRAY) {
            td_messages_add(messages, TREADLE_MESSAGE_ERROR, place,
                            "expected an object or array above \"%.*s\" in a setting, found %s", TD_STR_ARGS(key),
                            td_json_kind_name(at->kind));
            return true;
        }
        if (!slash && at->kind == TD_JSON_ARRAY) return put_item(at, key, value, setting, messages);
        if (!slash && value->kind == TD_JSON_NULL) td_tree_remove(at, key);
        if (!slash) return value->kind == TD_JSON_NULL || td_tree_put(&c->arena, at, key, value);
        td_json *next = step_into(c, at, key, source);
        if (!next) return false;
        if (next == at) {
            td_messages_add(messages, TREADLE_MESSAGE_ERROR, place,
                            "expected an index below %u above the last key of a setting, found \"%.*s\"", at->n,
                            TD_STR_ARGS(key));
            return true;
        }
        at = next;
        rest = (td_str){slash, rest.n - n};
    }
}

static bool points_into_v1(const char *pointer) {
    static const char *const tops[] = {"/model/", "/search/", "/engine/", "/speculative/"};
    for (size_t i = 0; i < TD_COUNT(tops); i++)
        if (strncmp(pointer, tops[i], strlen(tops[i])) == 0) return true;
    return false;
}

bool td_config_apply_settings(td_config *c, const td_config_options *options, bool v1, td_messages *messages) {
    for (size_t i = 0; options && i < options->n_settings; i++) {
        const treadle_setting *setting = &options->settings[i];
        if (c->version == 1 || v1 ? points_into_v1(setting->pointer) != v1 : false) continue;
        char *text = td_arena_strdup(&c->arena, setting->value);
        const td_source *source = text ? td_config_source(c, "setting", NULL, td_str_from(text)) : NULL;
        if (!source) return false;
        td_json *parsed = NULL;
        treadle_error problem = {0};
        treadle_status status = td_json_parse(source->text, NULL, &c->arena, &parsed, &problem);
        if (status == TREADLE_OUT_OF_MEMORY) return false;
        if (status != TREADLE_OK) {
            td_messages_add(messages, TREADLE_MESSAGE_ERROR, (td_place){.pointer = setting->pointer},
                            "setting is no JSON value: %s", problem.message);
            continue;
        }
        td_json *value = td_tree_copy(&c->arena, parsed, source);
        if (!value || !put_at_pointer(c, setting, source, value, messages)) return false;
    }
    return true;
}

/* --- presets */

bool td_config_apply_preset(td_config *c, td_messages *messages) {
    (void)messages; /* an unknown preset was reported with the other unknown words */
    td_json *pipeline = td_json_get(c->root, "pipeline");
    td_str name = td_json_string_or(pipeline, "extends", "");
    for (size_t i = 0; i < td_n_preset_files; i++) {
        if (!td_str_is(name, td_preset_files[i].name)) continue;
        td_str text = {(const char *)td_preset_files[i].bytes, td_preset_files[i].size};
        char *label = td_arena_printf(&c->arena, "preset %s", td_preset_files[i].name);
        const td_source *source = label ? td_config_source(c, label, NULL, text) : NULL;
        td_json *parsed = NULL;
        if (!source || td_json_parse(text, NULL, &c->arena, &parsed, NULL) != TREADLE_OK) return false;
        td_json *preset = td_tree_copy(&c->arena, parsed, source);
        return preset && td_tree_underlay(&c->arena, c->root, preset);
    }
    return true;
}
