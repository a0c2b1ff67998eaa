/* config/expand.c - what is put over and under the file's own values: the caller's settings, presets, generation_config.json
 * and the tokenizer's files. Order of precedence: settings, config, preset, generation_config.json, tokenizer files. */
#include "config/config.h"

#include "base/alloc.h"
#include "base/file.h"
#include "config/fields.h"
#include "config/presets_gen.h"

enum { SIDE_FILE_MAX_BYTES = 256 << 20 };

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

/* --- files of Hugging Face */

/* A JSON file of others beside the config: NULL in *out if it is not there or not readable (a warning). */
static bool read_side_file(td_config *c, const char *name, td_messages *messages, td_json **out,
                           const td_source **source) {
    *out = NULL;
    char *path = td_path_join(&c->arena, c->dir, name), *bytes = NULL, *inside;
    size_t n = 0;
    if (!path) return false;
    treadle_error problem = {0};
    treadle_status status = td_path_find_inside(&c->arena, c->dir, name, &inside, &problem);
    if (status == TREADLE_OK && !inside) return true;
    if (status == TREADLE_OK) status = td_file_read(inside, SIDE_FILE_MAX_BYTES, &bytes, &n, &problem);
    td_json *parsed = NULL;
    if (status == TREADLE_OK) {
        char *text = td_arena_strndup(&c->arena, bytes, n);
        td_free(bytes);
        *source = text ? td_config_source(c, name, path, (td_str){text, n}) : NULL;
        if (!*source) return false;
        td_json_options lax = {.allow_duplicate_keys = true, .allow_nonfinite = true};
        status = td_json_parse((*source)->text, &lax, &c->arena, &parsed, &problem);
    }
    if (status == TREADLE_OUT_OF_MEMORY) return false;
    if (status != TREADLE_OK) {
        problem.code = status;
        td_place place = {.file = path, .line = problem.line, .column = problem.column, .pointer = problem.pointer};
        td_messages_add(messages, TREADLE_MESSAGE_WARNING, place, "%s; the file is left out", problem.message);
        return true;
    }
    *out = parsed;
    return true;
}

/* Where generation_config.json's keys go. */
static const struct {
    const char *theirs, *group, *subgroup, *ours;
} generation_keys[] = {
    {"eos_token_id", "tokens", NULL, "eos"},
    {"pad_token_id", "tokens", NULL, "pad"},
    {"bos_token_id", "tokens", NULL, "bos"},
    {"decoder_start_token_id", "tokens", NULL, "decoder_start"},
    {"max_length", "generation", NULL, "max_length"},
    {"max_new_tokens", "generation", NULL, "max_new_tokens"},
    {"min_length", "generation", NULL, "min_length"},
    {"do_sample", "generation", "sampling", "do_sample"},
    {"temperature", "generation", "sampling", "temperature"},
    {"top_k", "generation", "sampling", "top_k"},
    {"top_p", "generation", "sampling", "top_p"},
    {"min_p", "generation", "sampling", "min_p"},
    {"repetition_penalty", "generation", "sampling", "repetition_penalty"},
    {"no_repeat_ngram_size", "generation", "sampling", "no_repeat_ngram_size"},
    {"num_beams", "generation", "beam", "num_beams"},
    {"length_penalty", "generation", "beam", "length_penalty"},
    {"early_stopping", "generation", "beam", "early_stopping"},
    {"num_return_sequences", "generation", "beam", "num_return_sequences"},
};

/* The object ours.group[.subgroup]; NULL with *out_ok true where the config has something else there. */
static td_json *group_of(td_config *c, const char *group, const char *subgroup, const td_source *source, bool *ok) {
    const char *path[] = {group, subgroup, NULL};
    td_json *at = c->root;
    *ok = true;
    for (int i = 0; i < 2 && path[i]; i++) {
        td_json *next = td_json_get(at, path[i]);
        if (next && next->kind != TD_JSON_OBJECT) return NULL;
        if (!next) {
            next = td_tree_new(&c->arena, TD_JSON_OBJECT, source);
            *ok = next && td_tree_put(&c->arena, at, td_str_from(path[i]), next);
            if (!*ok) return NULL;
        }
        at = next;
    }
    return at;
}

bool td_config_apply_generation_file(td_config *c, td_messages *messages) {
    td_json *file = NULL;
    const td_source *source = NULL;
    if (!read_side_file(c, "generation_config.json", messages, &file, &source)) return false;
    if (!file || file->kind != TD_JSON_OBJECT) return true;
    for (size_t i = 0; i < TD_COUNT(generation_keys); i++) {
        td_json *theirs = td_json_get(file, generation_keys[i].theirs);
        if (!theirs || theirs->kind == TD_JSON_NULL) continue;
        bool ok;
        td_json *group = group_of(c, generation_keys[i].group, generation_keys[i].subgroup, source, &ok);
        if (!ok) return false;
        if (!group || td_json_get(group, generation_keys[i].ours)) continue;
        td_json *copy = td_tree_copy(&c->arena, theirs, source);
        if (!copy) return false;
        bool fits = td_fields_fit(copy, generation_keys[i].group, generation_keys[i].subgroup, generation_keys[i].ours);
        if (fits && !td_tree_put(&c->arena, group, td_str_from(generation_keys[i].ours), copy)) return false;
        if (!fits)
            td_messages_add(messages, TREADLE_MESSAGE_WARNING, td_tree_place(messages->arena, copy, false),
                            "the value of %s cannot be used and is left out", generation_keys[i].theirs);
    }
    return true;
}

/* The id of a token's text: an added token, else an entry of the vocabulary. -1: none. */
static int64_t find_token(const td_json *tokenizer, td_str content) {
    const td_json *added = td_json_get(tokenizer, "added_tokens");
    for (const td_json *t = added ? added->first : NULL; t; t = t->next)
        if (td_str_equal(td_json_string_or(t, "content", ""), content)) return td_json_int_or(t, "id", -1);
    const td_json *vocab = td_json_get(td_json_get(tokenizer, "model"), "vocab");
    const td_json *entry = td_json_get_str(vocab, content);
    return entry && entry->kind == TD_JSON_INT ? entry->as_int : -1;
}

bool td_config_apply_tokenizer_files(td_config *c, td_messages *messages) {
    static const struct {
        const char *theirs, *ours;
    } rows[] = {{"eos_token", "eos"}, {"bos_token", "bos"}, {"pad_token", "pad"}};
    /* The tokenizer may be large: it is read for its end token only if nothing else says one. */
    if (td_json_get(td_json_get(c->root, "tokens"), "eos")) return true;
    td_json *config = NULL, *tokenizer = NULL;
    const td_source *source = NULL, *tokenizer_source = NULL;
    if (!read_side_file(c, "tokenizer_config.json", messages, &config, &source)) return false;
    if (!config) return true;
    if (!read_side_file(c, "tokenizer.json", messages, &tokenizer, &tokenizer_source)) return false;
    bool ok;
    td_json *tokens = group_of(c, "tokens", NULL, source, &ok);
    if (!ok || !tokenizer || !tokens) return ok;
    for (size_t i = 0; i < TD_COUNT(rows); i++) {
        const td_json *token = td_json_get(config, rows[i].theirs);
        if (token && token->kind == TD_JSON_OBJECT) token = td_json_get(token, "content");
        if (!token || token->kind != TD_JSON_STRING || td_json_get(tokens, rows[i].ours)) continue;
        int64_t id = find_token(tokenizer, token->string);
        if (id < 0 || id > INT32_MAX) continue;
        td_json *value = td_tree_int(&c->arena, id, source);
        if (!value || !td_tree_put(&c->arena, tokens, td_str_from(rows[i].ours), value)) return false;
    }
    return true;
}
