/* config/expand.c - what is put over and under the file's own values: the caller's settings and presets. */
#include "config/config.h"

#include "config/presets_gen.h"

/* --- settings */

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
        td_str key = {rest.p, slash ? (size_t)(slash - rest.p) : rest.n};
        td_json *next = at->kind == TD_JSON_OBJECT ? td_json_get_str(at, key) : NULL;
        if (at->kind != TD_JSON_OBJECT) {
            td_messages_add(messages, TREADLE_MESSAGE_ERROR, place,
                            "expected an object above \"%.*s\" in a setting, found %s", TD_STR_ARGS(key),
                            td_json_kind_name(at->kind));
            return true;
        }
        if (!slash && value->kind == TD_JSON_NULL) td_tree_remove(at, key);
        if (!slash) return value->kind == TD_JSON_NULL || td_tree_put(&c->arena, at, key, value);
        if (!next) {
            next = td_tree_new(&c->arena, TD_JSON_OBJECT, source);
            if (!next || !td_tree_put(&c->arena, at, key, next)) return false;
        }
        at = next;
        rest = (td_str){slash, rest.n - key.n};
    }
}

bool td_config_apply_settings(td_config *c, const td_config_options *options, td_messages *messages) {
    for (size_t i = 0; options && i < options->n_settings; i++) {
        const treadle_setting *setting = &options->settings[i];
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
