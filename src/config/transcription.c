/* config/transcription.c - what generation.transcription leaves open, from the tokenizer's added tokens: speech
 * recognisers write the languages, the tasks and the other parts of their decoder's prompt as tokens of fixed form
 * ("<|en|>", "<|transcribe|>"). */
#include "config/defaults.h"

typedef struct named_rows {
    td_config *c;
    td_json *section, *tokens;
    const td_source *source;
} named_rows;

static bool put_id(const named_rows *r, td_json *object, td_str key, int64_t id) {
    if (td_json_get_str(object, key)) return true;
    td_json *value = td_tree_int(&r->c->arena, id, r->source);
    return value && td_tree_put(&r->c->arena, object, key, value);
}

static td_json *map_of(const named_rows *r, const char *key) {
    td_json *map = td_json_get(r->section, key);
    if (map) return map;
    map = td_tree_new(&r->c->arena, TD_JSON_OBJECT, r->source);
    return map && td_tree_put(&r->c->arena, r->section, td_str_from(key), map) ? map : NULL;
}

static bool is_language(td_str name) {
    if (name.n < 2 || name.n > 3) return false;
    for (size_t i = 0; i < name.n; i++)
        if (name.p[i] < 'a' || name.p[i] > 'z') return false;
    return true;
}

/* One added token, by the text between its brackets. */
static bool take_token(const named_rows *r, td_str name, int64_t id, bool languages, bool tasks) {
    static const struct {
        const char *text, *key;
    } rows[] = {
        {"notimestamps", "no_timestamps"}, {"startofprev", "previous_text"}, {"nospeech", "no_speech"},
        {"nocaptions", "no_speech"},       {"0.00", "timestamp_begin"},
    };
    for (size_t i = 0; i < TD_COUNT(rows); i++)
        if (td_str_is(name, rows[i].text)) return put_id(r, r->section, td_str_from(rows[i].key), id);
    if (td_str_is(name, "startoftranscript")) return put_id(r, r->tokens, TD_STR("decoder_start"), id);
    bool task = td_str_is(name, "transcribe") || td_str_is(name, "translate");
    if (task ? !tasks : !languages || !is_language(name)) return true;
    td_json *map = map_of(r, task ? "tasks" : "languages");
    return map && put_id(r, map, name, id);
}

bool td_config_apply_transcription(td_config *c, td_messages *messages) {
    static const char *const wanted[] = {"languages", "tasks", "no_timestamps", "previous_text", "no_speech"};
    named_rows r = {.c = c, .section = td_json_get(td_json_get(c->root, "generation"), "transcription")};
    td_json *tokenizer = NULL;
    bool complete = true, ok;
    if (!r.section || r.section->kind != TD_JSON_OBJECT) return true;
    for (size_t i = 0; i < TD_COUNT(wanted); i++) complete &= td_json_get(r.section, wanted[i]) != NULL;
    if (complete) return true;
    bool languages = !td_json_get(r.section, "languages") && td_json_bool_or(r.section, "multilingual", true);
    bool tasks = !td_json_get(r.section, "tasks") && td_json_bool_or(r.section, "multilingual", true);
    if (!td_config_read_side_file(c, "tokenizer.json", messages, &tokenizer, &r.source)) return false;
    if (!tokenizer) return true;
    r.tokens = td_config_group(c, "tokens", NULL, r.source, &ok);
    if (!ok || !r.tokens) return ok;
    const td_json *added = td_json_get(tokenizer, "added_tokens");
    for (const td_json *t = added && added->kind == TD_JSON_ARRAY ? added->first : NULL; t; t = t->next) {
        td_str text = td_json_string_or(t, "content", "");
        int64_t id = td_json_int_or(t, "id", -1);
        if (id < 0 || id > INT32_MAX || text.n < 6 || !td_str_starts(text, TD_STR("<|")) ||
            !td_str_ends(text, TD_STR("|>")))
            continue;
        if (!take_token(&r, (td_str){text.p + 2, text.n - 4}, id, languages, tasks)) return false;
    }
    return true;
}
