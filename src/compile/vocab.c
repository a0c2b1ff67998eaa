/* compile/vocab.c - see vocab.h. */
#include "compile/vocab.h"

#include <stdlib.h>

#define SET(name, ...) static const char *const name##_patterns[] = {__VA_ARGS__, NULL};
#define PRE(name, set, whole, bos, nfc)
#include "compile/pretokenizers.inc"
#undef SET
#undef PRE
static const td_pretokenizer pretokenizers[] = {
#define SET(name, ...)
#define PRE(name, set, whole, bos, nfc) {name, set##_patterns, whole, bos, nfc},
#include "compile/pretokenizers.inc"
#undef SET
#undef PRE
};

/* Texts that end a generation wherever they are in a vocabulary. */
static const char *const end_texts[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
};
/* Fill-in-the-middle padding, repository and file separators end it too: by key, else the first of these texts. */
typedef struct end_key {
    const char *key;
    const char *const *texts; /* NULL-terminated */
} end_key;
static const char *const pad_texts[] = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", NULL};
static const char *const repo_texts[] = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", NULL};
static const char *const file_texts[] = {"<|file_sep|>", NULL};
static const char *const no_texts[] = {NULL};
static const end_key end_keys[] = {
    {"tokenizer.ggml.fim_pad_token_id", pad_texts},  {"tokenizer.ggml.fim_rep_token_id", repo_texts},
    {"tokenizer.ggml.fim_sep_token_id", file_texts}, {"tokenizer.ggml.eos_token_id", no_texts},
    {"tokenizer.ggml.eot_token_id", no_texts},       {"tokenizer.ggml.eom_token_id", no_texts},
};
/* Channel markers that are shown although the file calls them control. */
static const char *const shown_texts[] = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};

td_str td_vocab_text(const td_vocab *v, int64_t id) {
    return id >= 0 && (uint64_t)id < v->n ? v->tokens[id] : (td_str){NULL, 0};
}

static int64_t id_of(const td_vocab *v, const char *text) {
    uint64_t id;
    return td_map_get(&v->ids, td_str_from(text), &id) ? (int64_t)id : -1;
}

static treadle_status read_tokens(const td_gguf *g, td_arena *arena, td_vocab *v, treadle_error *err) {
    const td_gguf_value *tokens = td_gguf_find(g, "tokenizer.ggml.tokens"),
                        *types = td_gguf_find(g, "tokenizer.ggml.token_type");
    if (!tokens) return TREADLE_OK;
    if (tokens->type != TD_GGUF_ARRAY || tokens->element != TD_GGUF_STRING || tokens->n == 0 || tokens->n > INT32_MAX)
        return td_fail(err, TREADLE_FORMAT,
                       "expected key 'tokenizer.ggml.tokens' to be an array of strings, not empty");
    if (types && (types->type != TD_GGUF_ARRAY || types->n < tokens->n))
        return td_fail(err, TREADLE_FORMAT, "expected key 'tokenizer.ggml.token_type' to be an array of %llu integers",
                       (unsigned long long)tokens->n);
    td_str *texts = TD_ARENA_ARRAY(arena, td_str, (size_t)tokens->n);
    v->types = TD_ARENA_ARRAY(arena, uint8_t, (size_t)tokens->n);
    if (!texts || !v->types || !td_map_reserve(&v->ids, (size_t)tokens->n))
        return td_fail_memory(err, "a vocabulary", (size_t)tokens->n * sizeof *texts);
    v->tokens = texts;
    v->n = (size_t)tokens->n;
    for (size_t i = 0; i < v->n; i++) {
        int64_t type = TD_TOKEN_NORMAL;
        if (types && !td_gguf_int_at(types, i, &type))
            return td_fail(err, TREADLE_FORMAT, "expected key 'tokenizer.ggml.token_type' to hold integers");
        v->types[i] = type >= TD_TOKEN_NORMAL && type <= TD_TOKEN_BYTE ? (uint8_t)type : TD_TOKEN_NORMAL;
        texts[i] = tokens->texts[i];
        if (texts[i].n == 0) {
            char *name = td_arena_printf(arena, "[EMPTY_%zu]", i);
            if (!name) return td_fail_memory(err, "a token", 16);
            texts[i] = td_str_from(name);
        }
        if (!td_map_set(&v->ids, texts[i], i)) return td_fail_memory(err, "a vocabulary", v->n);
    }
    return TREADLE_OK;
}

/* Ids outside the vocabulary count as absent, as llama.cpp has it. */
static treadle_status read_id(const td_gguf *g, const td_vocab *v, const char *key, int64_t fallback, int64_t *out,
                              treadle_error *err) {
    int64_t id;
    TD_TRY(td_gguf_get_int(g, key, INT64_MIN, INT64_MAX, fallback, &id, err));
    if (id < 0 || (uint64_t)id >= v->n) id = fallback;
    *out = id >= 0 && (uint64_t)id < v->n ? id : -1;
    return TREADLE_OK;
}

static treadle_status read_ids(const td_gguf *g, td_vocab *v, treadle_error *err) {
    bool spm = v->kind == TD_VOCAB_SPM;
    TD_TRY(read_id(g, v, "tokenizer.ggml.bos_token_id", spm ? 1 : -1, &v->bos, err));
    TD_TRY(read_id(g, v, "tokenizer.ggml.eos_token_id", spm ? 2 : -1, &v->eos, err));
    TD_TRY(read_id(g, v, "tokenizer.ggml.eot_token_id", -1, &v->eot, err));
    TD_TRY(read_id(g, v, "tokenizer.ggml.eom_token_id", -1, &v->eom, err));
    TD_TRY(read_id(g, v, "tokenizer.ggml.unknown_token_id", spm ? 0 : -1, &v->unk, err));
    TD_TRY(read_id(g, v, "tokenizer.ggml.padding_token_id", -1, &v->pad, err));
    bool bos = spm || (v->pretokenizer && v->pretokenizer->add_bos);
    TD_TRY(td_gguf_get_bool(g, "tokenizer.ggml.add_bos_token", bos, &v->add_bos, err));
    TD_TRY(td_gguf_get_bool(g, "tokenizer.ggml.add_eos_token", false, &v->add_eos, err));
    TD_TRY(td_gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", spm, &v->add_space_prefix, err));
    v->add_bos &= v->bos >= 0;
    v->add_eos &= v->eos >= 0;
    return TREADLE_OK;
}

static treadle_status read_bpe(const td_gguf *g, td_vocab *v, treadle_error *err) {
    const td_gguf_value *merges = td_gguf_find(g, "tokenizer.ggml.merges");
    if (!merges || merges->type != TD_GGUF_ARRAY || (merges->element != TD_GGUF_STRING && merges->n > 0))
        return td_fail(err, TREADLE_FORMAT, "expected key 'tokenizer.ggml.merges' to be an array of strings");
    v->kind = TD_VOCAB_BPE;
    v->merges = merges->texts;
    v->n_merges = (size_t)merges->n;
    for (size_t i = 0; i < TD_COUNT(pretokenizers); i++) {
        if (td_str_is(TD_STR("default"), pretokenizers[i].name) && !v->pretokenizer)
            v->pretokenizer = &pretokenizers[i];
        if (!td_str_is(v->pre, pretokenizers[i].name)) continue;
        v->pretokenizer = &pretokenizers[i];
        v->pre_known = true;
        break;
    }
    return TREADLE_OK;
}

static treadle_status read_spm(const td_gguf *g, td_vocab *v, treadle_error *err) {
    const td_gguf_value *scores = td_gguf_find(g, "tokenizer.ggml.scores");
    double score;
    if (!scores || scores->type != TD_GGUF_ARRAY || scores->n < v->n || !td_gguf_double_at(scores, 0, &score))
        return td_fail(err, TREADLE_FORMAT, "expected key 'tokenizer.ggml.scores' to be an array of %zu numbers", v->n);
    v->kind = TD_VOCAB_SPM;
    v->scores = scores;
    return TREADLE_OK;
}

/* --- end of generation */

typedef TD_VEC(int64_t) id_list;

static bool add_id(id_list *list, int64_t id) {
    if (id < 0) return true;
    for (size_t i = 0; i < list->n; i++)
        if (list->items[i] == id) return true;
    return td_vec_push(list, id);
}

static void drop_id(id_list *list, int64_t id) {
    for (size_t i = 0; i < list->n; i++)
        if (list->items[i] == id) list->items[i--] = list->items[--list->n];
}

static bool has_text(const td_vocab *v, const id_list *list, const char *text) {
    for (size_t i = 0; i < list->n; i++)
        if (td_str_is(td_vocab_text(v, list->items[i]), text)) return true;
    return false;
}

/* Where a vocabulary has channels, <|end|> only ends one of them; some have </s> as an ordinary token. */
static void apply_exceptions(td_vocab *v, id_list *list) {
    bool call = has_text(v, list, "<|call|>") || has_text(v, list, "<|calls|>");
    int64_t end = id_of(v, "<|end|>"), s = id_of(v, "</s>");
    if (end >= 0 && call && (has_text(v, list, "<|return|>") || has_text(v, list, "<|flush|>"))) {
        drop_id(list, end);
        v->types[end] = TD_TOKEN_USER;
    }
    if (s >= 0 && (has_text(v, list, "<|tool_response>") || has_text(v, list, "<|plamo:eos|>"))) {
        drop_id(list, s);
        v->types[s] = TD_TOKEN_NORMAL;
    }
}

static int compare_ids(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static treadle_status collect_ends(const td_gguf *g, td_arena *arena, td_vocab *v, id_list *list, treadle_error *err) {
    bool ok = true;
    for (size_t i = 0; i < TD_COUNT(end_texts); i++) {
        int64_t id = id_of(v, end_texts[i]);
        ok &= add_id(list, id);
        if (id >= 0) v->types[id] = TD_TOKEN_CONTROL;
    }
    for (size_t i = 0; i < TD_COUNT(end_keys); i++) {
        int64_t id;
        TD_TRY(read_id(g, v, end_keys[i].key, -1, &id, err));
        for (const char *const *text = end_keys[i].texts; id < 0 && *text; text++) {
            id = id_of(v, *text);
            if (id >= 0) v->types[id] = TD_TOKEN_CONTROL;
        }
        ok &= add_id(list, id);
    }
    ok &= add_id(list, v->eos);
    for (size_t i = 0; i < TD_COUNT(shown_texts); i++) {
        int64_t id = id_of(v, shown_texts[i]);
        if (id >= 0) v->types[id] = TD_TOKEN_USER;
    }
    apply_exceptions(v, list);
    int64_t *ids = TD_ARENA_ARRAY(arena, int64_t, list->n);
    if (!ok || !ids) return td_fail_memory(err, "end tokens", list->n * sizeof *ids);
    if (list->n) memcpy(ids, list->items, list->n * sizeof *ids);
    if (list->n) qsort(ids, list->n, sizeof *ids, compare_ids);
    v->eog = ids;
    v->n_eog = list->n;
    return TREADLE_OK;
}

static treadle_status read_vocab(const td_gguf *g, td_arena *arena, td_vocab *v, treadle_error *err) {
    v->bos = v->eos = v->eot = v->eom = v->unk = v->pad = -1;
    TD_TRY(td_gguf_get_text(g, "tokenizer.ggml.model", (td_str){NULL, 0}, &v->model, err));
    TD_TRY(td_gguf_get_text(g, "tokenizer.ggml.pre", (td_str){NULL, 0}, &v->pre, err));
    TD_TRY(read_tokens(g, arena, v, err));
    if (v->n == 0) return TREADLE_OK;
    v->kind = TD_VOCAB_OTHER;
    if (td_str_is(v->model, "gpt2")) TD_TRY(read_bpe(g, v, err));
    else if (td_str_is(v->model, "llama")) TD_TRY(read_spm(g, v, err));
    TD_TRY(read_ids(g, v, err));
    id_list ends = {0};
    treadle_status status = collect_ends(g, arena, v, &ends, err);
    td_vec_free(&ends);
    return status;
}

treadle_status td_vocab_read(const td_gguf *gguf, td_arena *arena, td_vocab *out, treadle_error *err) {
    *out = (td_vocab){0};
    treadle_status status = read_vocab(gguf, arena, out, err);
    if (status != TREADLE_OK) td_vocab_discard(out);
    return status;
}

void td_vocab_discard(td_vocab *v) { td_map_free(&v->ids); }
