/* config/expand.c - the preset that is put under a file's own values. */
#include "config/config.h"

#include "config/presets_gen.h"

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
