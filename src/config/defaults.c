/* config/defaults.c - defaults that files of Hugging Face beside the config supply: generation_config.json, the
 * tokenizer's files, config.json (tokens only), and sentence-transformers' modules.json. Each goes under what the
 * config says. */
#include "config/defaults.h"
#include "base/file.h"
#include "config/fields.h"

enum { SIDE_FILE_MAX_BYTES = 256 << 20 };

bool td_config_read_side_file(td_config *c, const char *name, td_messages *messages, td_json **out,
                              const td_source **source) {
    const char *path = NULL;
    td_str text = {0};
    treadle_error problem = {0};
    *out = NULL;
    treadle_status status = td_model_files_read(c->files, name, SIDE_FILE_MAX_BYTES, &c->arena, &text, &path, &problem);
    if (status == TREADLE_OK && !text.p) return true;
    td_json *parsed = NULL;
    if (status == TREADLE_OK) {
        *source = td_config_source(c, name, path, text);
        if (!*source) return false;
        td_json_options lax = {.allow_duplicate_keys = true, .allow_nonfinite = true};
        status = td_json_parse((*source)->text, &lax, &c->arena, &parsed, &problem);
    }
    if (status == TREADLE_OUT_OF_MEMORY) return false;
    if (status != TREADLE_OK) {
        if (!path) path = td_path_join(&c->arena, c->dir, name);
        td_place place = {.file = path, .line = problem.line, .column = problem.column, .pointer = problem.pointer};
        td_messages_add(messages, TREADLE_MESSAGE_WARNING, place, "%s; the file is left out", problem.message);
        return true;
    }
    *out = parsed;
    return true;
}

typedef struct key_row {
    const char *theirs, *group, *subgroup, *ours;
} key_row;

/* Where config.json's keys go: ids that no other file told. Of two rows for one of ours the first counts. */
static const key_row model_keys[] = {
    {"eos_token_id", "tokens", NULL, "eos"},
    {"bos_token_id", "tokens", NULL, "bos"},
    {"decoder_start_token_id", "tokens", NULL, "decoder_start"},
    {"image_token_id", "tokens", NULL, "image_token"},
    {"image_token_index", "tokens", NULL, "image_token"},
    {"video_token_id", "tokens", NULL, "video_token"},
    {"video_token_index", "tokens", NULL, "video_token"},
    {"audio_token_id", "tokens", NULL, "audio_token"},
    {"audio_token_index", "tokens", NULL, "audio_token"},
    {"vision_start_token_id", "tokens", NULL, "vision_start"},
};

/* Where generation_config.json's keys go. */
static const key_row generation_keys[] = {
    {"eos_token_id", "tokens", NULL, "eos"},
    {"pad_token_id", "tokens", NULL, "pad"},
    {"bos_token_id", "tokens", NULL, "bos"},
    {"decoder_start_token_id", "tokens", NULL, "decoder_start"},
    {"max_length", "generation", NULL, "max_length"},
    {"max_new_tokens", "generation", NULL, "max_new_tokens"},
    {"min_length", "generation", NULL, "min_length"},
    {"min_new_tokens", "generation", NULL, "min_new_tokens"},
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
    {"suppress_tokens", "generation", NULL, "suppress"},
    {"begin_suppress_tokens", "generation", NULL, "begin_suppress"},
    {"bad_words_ids", "generation", NULL, "bad_words"},
    {"encoder_no_repeat_ngram_size", "generation", NULL, "source_no_repeat_ngram_size"},
    {"forced_bos_token_id", "generation", NULL, "forced_first"},
    {"forced_eos_token_id", "generation", NULL, "forced_last"},
    {"lang_to_id", "generation", "transcription", "languages"},
    {"task_to_id", "generation", "transcription", "tasks"},
    {"is_multilingual", "generation", "transcription", "multilingual"},
    {"no_timestamps_token_id", "generation", "transcription", "no_timestamps"},
    {"prev_sot_token_id", "generation", "transcription", "previous_text"},
    {"no_speech_token_id", "generation", "transcription", "no_speech"},
    {"max_initial_timestamp_index", "generation", "transcription", "max_initial_timestamp"},
    {"return_timestamps", "generation", "transcription", "timestamps"},
    {"alignment_heads", "generation", "transcription", "alignment_heads"},
};

td_json *td_config_group(td_config *c, const char *group, const char *subgroup, const td_source *source, bool *ok) {
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

/* Names of tokens as a config has them: without the brackets of "<|en|>". */
static void strip_brackets(td_json *map) {
    for (td_json *v = map->kind == TD_JSON_OBJECT ? map->first : NULL; v; v = v->next)
        if (td_str_starts(v->key, TD_STR("<|")) && td_str_ends(v->key, TD_STR("|>")) && v->key.n > 4)
            v->key = (td_str){v->key.p + 2, v->key.n - 4};
}

/* Puts a row's value where the config has none. */
static bool take_default(td_config *c, const key_row *row, const td_json *theirs, const td_source *source,
                         td_messages *messages) {
    bool ok;
    td_json *group = td_config_group(c, row->group, row->subgroup, source, &ok);
    if (!ok) return false;
    if (!group || td_json_get(group, row->ours)) return true;
    td_json *copy = td_tree_copy(&c->arena, theirs, source);
    if (!copy) return false;
    strip_brackets(copy);
    if (td_fields_fit(copy, row->group, row->subgroup, row->ours))
        return td_tree_put(&c->arena, group, td_str_from(row->ours), copy);
    td_messages_add(messages, TREADLE_MESSAGE_WARNING, td_tree_place(messages->arena, copy, false),
                    "the value of %s cannot be used and is left out", row->theirs);
    return true;
}

static bool take_defaults(td_config *c, const key_row *rows, size_t n, const td_json *file, const td_source *source,
                          td_messages *messages) {
    for (size_t i = 0; i < n && file && file->kind == TD_JSON_OBJECT; i++) {
        const td_json *theirs = td_json_get(file, rows[i].theirs);
        if (theirs && theirs->kind != TD_JSON_NULL && !take_default(c, &rows[i], theirs, source, messages))
            return false;
    }
    return true;
}

bool td_config_apply_generation_file(td_config *c, td_messages *messages) {
    td_json *file = NULL;
    const td_source *source = NULL;
    return td_config_read_side_file(c, "generation_config.json", messages, &file, &source) &&
           take_defaults(c, generation_keys, TD_COUNT(generation_keys), file, source, messages);
}

bool td_config_apply_model_file(td_config *c, td_messages *messages) {
    td_json *file = NULL;
    const td_source *source = NULL;
    if (!td_config_read_side_file(c, "config.json", messages, &file, &source)) return false;
    return take_defaults(c, model_keys, TD_COUNT(model_keys), file, source, messages) &&
           take_defaults(c, model_keys, TD_COUNT(model_keys), td_json_get(file, "text_config"), source, messages);
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
    if (!td_config_read_side_file(c, "tokenizer_config.json", messages, &config, &source)) return false;
    if (!config) return true;
    if (!td_config_read_side_file(c, "tokenizer.json", messages, &tokenizer, &tokenizer_source)) return false;
    bool ok;
    td_json *tokens = td_config_group(c, "tokens", NULL, source, &ok);
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

/* --- pooling */

/* The word for the one pooling_mode_* flag that is set; NULL: another one, or several. */
static const char *pooling_word(const td_json *file) {
    static const struct {
        const char *flag, *word;
        bool usual;
    } rows[] = {{"pooling_mode_mean_tokens", "mean", true},         {"pooling_mode_cls_token", "cls", false},
                {"pooling_mode_lasttoken", "last", false},          {"pooling_mode_max_tokens", NULL, false},
                {"pooling_mode_mean_sqrt_len_tokens", NULL, false}, {"pooling_mode_weightedmean_tokens", NULL, false}};
    const char *word = NULL;
    int n = 0;
    for (size_t i = 0; i < TD_COUNT(rows); i++) {
        if (!td_json_bool_or(file, rows[i].flag, rows[i].usual)) continue;
        word = rows[i].word;
        n++;
    }
    return n == 1 ? word : NULL;
}

static bool put_default(td_config *c, td_json *group, const char *key, td_json *value) {
    return value && (td_json_get(group, key) || td_tree_put(&c->arena, group, td_str_from(key), value));
}

static bool apply_pooling_module(td_config *c, td_json *pooling, const td_json *module, td_messages *messages) {
    td_str path = td_json_string_or(module, "path", "");
    char *name = td_arena_printf(&c->arena, "%.*s%sconfig.json", TD_STR_ARGS(path), path.n ? "/" : "");
    td_json *file = NULL;
    const td_source *source = NULL;
    if (!name || !td_config_read_side_file(c, name, messages, &file, &source)) return false;
    if (!file) return true;
    td_json *copy = td_tree_copy(&c->arena, file, source);
    if (!copy) return false;
    const char *word = pooling_word(copy);
    if (word) return put_default(c, pooling, "mode", td_tree_string(&c->arena, td_str_from(word), source));
    if (!td_json_get(pooling, "mode"))
        td_messages_add(messages, TREADLE_MESSAGE_WARNING, td_tree_place(messages->arena, copy, false),
                        "the pooling is none of mean, cls and last; state it as pooling.mode");
    return true;
}

bool td_config_apply_pooling_files(td_config *c, td_messages *messages) {
    td_json *modules = NULL;
    const td_source *source = NULL;
    if (td_json_get(td_json_get(c->root, "pipeline"), "pooling")) return true;
    if (!td_config_read_side_file(c, "modules.json", messages, &modules, &source)) return false;
    if (!modules || modules->kind != TD_JSON_ARRAY) return true;
    bool ok, normalize = false, pools = false;
    td_json *pooling = td_config_group(c, "pooling", NULL, source, &ok);
    if (!ok || !pooling) return ok;
    for (const td_json *v = modules->first; v; v = v->next) {
        td_str type = td_json_string_or(v, "type", "");
        normalize |= td_str_ends(type, TD_STR(".Normalize"));
        if (!td_str_ends(type, TD_STR(".Pooling"))) continue;
        pools = true;
        if (!apply_pooling_module(c, pooling, v, messages)) return false;
    }
    td_json *flag = td_tree_new(&c->arena, TD_JSON_BOOL, source);
    if (flag) flag->as_bool = normalize;
    return !pools || put_default(c, pooling, "normalize", flag);
}
