/* Tokenizers against the shared data: rows, single parts, streams and checkpoint probes by Hugging Face tokenizers
 * 0.23.3. Files with a part of a kind that treadle does not know are passed over.
 * timeout: 600
 * labels: slow */
#include "support/test.h"

#include "base/alloc.h"
#include "base/json.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

/* --- the data */

typedef struct document {
    char *text;
    size_t n_bytes;
    td_arena arena;
    td_json *root;
} document;

static bool open_document(document *d, const char *path) {
    treadle_error err = {0};
    d->text = td_test_read(path, &d->n_bytes);
    td_arena_init(&d->arena);
    if (td_json_parse((td_str){d->text, d->n_bytes}, NULL, &d->arena, &d->root, &err) == TREADLE_OK) return true;
    FAIL("%s: %s", path, err.message);
    return false;
}

static void close_document(document *d) {
    td_arena_free(&d->arena);
    free(d->text);
}

enum { MAX_TEXTS = 1024 };

static void load_corpus(const char *folder, document *d, td_str texts[MAX_TEXTS]) {
    char path[1200];
    snprintf(path, sizeof path, "%s/corpus.json", folder);
    REQUIRE(open_document(d, path));
    for (const td_json *s = td_json_get(d->root, "strings")->first; s; s = s->next) {
        int64_t id = td_json_int_or(s, "id", -1);
        REQUIRE(id >= 0 && id < MAX_TEXTS);
        texts[id] = td_json_get(s, "text")->string;
    }
}

/* The tokenizer of a JSON text; NULL where a part of it is of a kind that treadle does not know (others are
 * failures). */
static td_tokenizer *load(const char *name, td_str json, td_str config) {
    treadle_error err = {0};
    td_tokenizer *tokenizer = NULL;
    treadle_status status = td_tokenizer_load(json, config, &tokenizer, &err);
    if (status != TREADLE_OK && status != TREADLE_UNSUPPORTED) FAIL("%s: %s", name, err.message);
    return tokenizer;
}

static td_tokenizer *load_file(const char *folder, const char *file) {
    char path[1400];
    size_t n_bytes;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    char *text = td_test_read(path, &n_bytes);
    td_tokenizer *tokenizer = load(path, (td_str){text, n_bytes}, (td_str){0});
    free(text);
    return tokenizer;
}

/* --- comparing */

static void take_ids(const td_json *list, td_ids *ids) {
    for (const td_json *item = list->first; item; item = item->next) REQUIRE(td_vec_push(ids, (int32_t)item->as_int));
}

static void check_ids(const char *name, const td_tokenizer *tokenizer, td_str text, bool add, bool parse,
                      const td_ids *want) {
    treadle_error err = {0};
    td_ids ids = {0};
    CHECK_OK(td_tokenizer_encode(tokenizer, text, add, parse, &ids, &err), &err);
    if (ids.n != want->n || (ids.n && memcmp(ids.items, want->items, ids.n * sizeof *ids.items) != 0))
        FAIL("%s: \"%.*s\" (add %d, parse %d): wrong ids", name, (int)TD_MIN(text.n, (size_t)200), text.p, add, parse);
    td_vec_free(&ids);
}

static void check_decode(const char *name, const td_tokenizer *tokenizer, const td_ids *ids, bool skip, td_str want) {
    treadle_error err = {0};
    td_buf out = {0};
    CHECK_OK(td_tokenizer_decode(tokenizer, ids->items, ids->n, skip, &out, &err), &err);
    if (!td_str_equal(td_buf_view(&out), want))
        FAIL("%s: decodes (skip %d) to \"%.*s\", wanted \"%.*s\"", name, skip, TD_STR_ARGS(td_buf_view(&out)),
             TD_STR_ARGS(want));
    td_buf_free(&out);
}

static td_str string_or(const td_json *value, td_str fallback) {
    return value->kind == TD_JSON_STRING ? value->string : fallback;
}

/* Columns as the data's README names them. */
static void check_row(const char *name, const td_tokenizer *tokenizer, const td_json *row, const td_str texts[]) {
    const td_json *c[9];
    for (size_t i = 0; i < 9; i++) c[i] = td_json_at(row, i);
    td_str text = texts[c[0]->as_int];
    td_ids ids = {0}, whole = {0}, plain = {0};
    take_ids(c[1], &ids);
    if (c[3]->n == 2 && c[3]->first->kind == TD_JSON_ARRAY) {
        take_ids(c[3]->first, &whole);
        take_ids(c[1], &whole);
        take_ids(td_json_at(c[3], 1), &whole);
    } else {
        take_ids(c[3], &whole);
    }
    take_ids(c[8]->kind == TD_JSON_ARRAY ? c[8] : c[1], &plain);
    check_ids(name, tokenizer, text, false, true, &ids);
    check_ids(name, tokenizer, text, true, true, &whole);
    check_ids(name, tokenizer, text, false, false, &plain);
    td_str kept = string_or(c[4], text), skipped = string_or(c[5], kept);
    check_decode(name, tokenizer, &ids, false, kept);
    check_decode(name, tokenizer, &ids, true, skipped);
    if (c[6]->kind == TD_JSON_STRING) {
        check_decode(name, tokenizer, &whole, false, c[6]->string);
        check_decode(name, tokenizer, &whole, true, string_or(c[7], skipped));
    }
    td_vec_free(&ids);
    td_vec_free(&whole);
    td_vec_free(&plain);
}

static void check_stream(const char *name, const td_tokenizer *tokenizer, const td_json *row) {
    treadle_error err = {0};
    td_detok *detok = NULL;
    td_buf out = {0};
    bool exact = td_json_at(row, 4)->kind == TD_JSON_NULL; /* else only that it ends well is binding */
    const td_json *chunk = td_json_at(row, 3)->first;
    CHECK_OK(td_detok_open(tokenizer, td_json_at(row, 1)->as_bool, &detok, &err), &err);
    for (const td_json *id = td_json_at(row, 2)->first; chunk; id = id ? id->next : NULL, chunk = chunk->next) {
        td_buf_clear(&out);
        if (id) CHECK_OK(td_detok_push(detok, (int32_t)id->as_int, &out, &err), &err);
        else CHECK_OK(td_detok_flush(detok, &out, &err), &err);
        if (exact && !td_str_equal(td_buf_view(&out), chunk->string))
            FAIL("%s: the stream gives \"%.*s\", wanted \"%.*s\"", name, TD_STR_ARGS(td_buf_view(&out)),
                 TD_STR_ARGS(chunk->string));
    }
    td_detok_free(detok);
    td_buf_free(&out);
}

static void check_streams(const char *folder, const char *name, const td_tokenizer *tokenizer) {
    document d;
    char path[1200];
    snprintf(path, sizeof path, "%s/stream.json", folder);
    if (!open_document(&d, path)) return;
    for (const td_json *one = d.root->first; one; one = one->next) {
        if (!td_str_is(td_json_get(one, "tokenizer")->string, name)) continue;
        for (const td_json *row = td_json_get(one, "rows")->first; row; row = row->next)
            check_stream(name, tokenizer, row);
    }
    close_document(&d);
}

TEST(rows_and_streams) {
    static td_str texts[MAX_TEXTS];
    document corpus;
    char folder[1024], path[1400];
    int n_checked = 0;
    snprintf(folder, sizeof folder, "%s", td_test_unpacked("text-and-media"));
    load_corpus(folder, &corpus, texts);
    snprintf(path, sizeof path, "%s/tok", folder);
    DIR *dir = opendir(path);
    REQUIRE(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir));) {
        char name[256];
        document d;
        if (sscanf(entry->d_name, "%250[^.].json", name) != 1) continue;
        snprintf(path, sizeof path, "%s/tok/%s.json", folder, name);
        if (!open_document(&d, path)) continue;
        const td_json *file = td_json_get(d.root, "file");
        if (file && td_str_is(td_json_get(d.root, "kind")->string, "hf-json")) {
            char *file_name = td_strndup(file->string.p, file->string.n);
            REQUIRE(file_name != NULL);
            td_tokenizer *tokenizer = load_file(folder, file_name);
            td_free(file_name);
            if (tokenizer) {
                n_checked++;
                for (const td_json *row = td_json_get(d.root, "rows")->first; row; row = row->next)
                    check_row(name, tokenizer, row, texts);
                check_streams(folder, name, tokenizer);
            }
            td_tokenizer_free(tokenizer);
        }
        close_document(&d);
    }
    closedir(dir);
    close_document(&corpus);
    CHECK(n_checked >= 10);
}

/* --- single parts: what comes out of one shows in the ids of a vocabulary that has every character as a token */

typedef struct chars {
    td_buf json;   /* of the vocabulary, without its braces */
    td_buf tokens; /* spelled out by id: token i is at offsets[i] */
    TD_VEC(size_t) offsets;
    bool *seen; /* [0x110000] */
} chars;

static const td_str end_mark = {"\xEE\x80\x80", 3}; /* U+E000 closes each piece: the end_of_word_suffix */

static void add_token(chars *v, const char *text, size_t n) {
    td_json_writer w;
    if (v->json.n) td_buf_char(&v->json, ',');
    td_json_writer_init(&w, &v->json, 0);
    td_json_write_string(&w, (td_str){text, n});
    td_buf_printf(&v->json, ":%zu", v->offsets.n);
    REQUIRE(td_vec_push(&v->offsets, v->tokens.n));
    td_buf_append(&v->tokens, text, n);
}

static void add_chars(chars *v, td_str text) {
    for (size_t i = 0, n; i < text.n; i += n) {
        char token[8];
        uint32_t code_point = td_unicode_next(text.p + i, &n);
        if (v->seen[code_point]) continue;
        v->seen[code_point] = true;
        memcpy(token, text.p + i, n);
        memcpy(token + n, end_mark.p, end_mark.n);
        add_token(v, token, n);
        add_token(v, token, n + end_mark.n);
    }
}

static td_tokenizer *open_part(const char *name, const char *slot, td_str part, chars *v) {
    td_buf json = {0};
    td_buf_printf(&json, "{\"%s\":%.*s,\"model\":{\"type\":\"BPE\",%s\"merges\":[],\"vocab\":{", slot,
                  TD_STR_ARGS(part),
                  strcmp(slot, "pre_tokenizer") == 0 ? "\"end_of_word_suffix\":\"\xEE\x80\x80\"," : "");
    td_buf_str(&json, td_buf_view(&v->json));
    td_buf_text(&json, "}}}");
    td_tokenizer *tokenizer = load(name, td_buf_view(&json), (td_str){0});
    td_buf_free(&json);
    return tokenizer;
}

static void spell(const td_tokenizer *tokenizer, td_str text, td_buf *out) {
    treadle_error err = {0};
    td_ids ids = {0};
    CHECK_OK(td_tokenizer_encode(tokenizer, text, false, true, &ids, &err), &err);
    for (size_t i = 0; i < ids.n; i++) td_buf_str(out, td_tokenizer_token(tokenizer, ids.items[i]));
    td_vec_free(&ids);
}

/* The bytes of the characters [begin, end) of text. */
static td_str slice(td_str text, int64_t begin, int64_t end) {
    size_t at = 0, from = 0;
    for (int64_t n = 0; n < end; n++) {
        if (n == begin) from = at;
        for (at++; at < text.n && ((uint8_t)text.p[at] & 0xC0) == 0x80;) at++;
    }
    return (td_str){text.p + from, begin < end ? at - from : 0};
}

/* What the pieces of a pre-tokenizer's row spell, each with the mark behind it. */
static void wanted_pieces(const td_json *row, const td_str texts[], td_buf *out) {
    td_str text = texts[td_json_at(row, 0)->as_int];
    for (const td_json *piece = td_json_at(row, 1)->first; piece; piece = piece->next) {
        const td_json *own = td_json_at(piece, 2);
        td_buf_str(out, own ? own->string : slice(text, td_json_at(piece, 0)->as_int, td_json_at(piece, 1)->as_int));
        td_buf_str(out, end_mark);
    }
}

static void check_part(const document *d, const char *slot, const td_json *rows, const td_str texts[]) {
    char key[64];
    bool pieces = strcmp(slot, "pre_tokenizer") == 0;
    snprintf(key, sizeof key, "%s_json", slot);
    const td_json *part = td_json_get_str(td_json_get(d->root, key), rows->key);
    chars v = {.seen = calloc(0x110000, 1)};
    td_buf want = {0}, got = {0};
    REQUIRE(v.seen != NULL);
    for (const td_json *row = rows->first; row; row = row->next) {
        td_buf_clear(&want);
        if (pieces) wanted_pieces(row, texts, &want);
        else td_buf_str(&want, td_json_at(row, 1)->string);
        add_chars(&v, td_buf_view(&want));
    }
    td_tokenizer *tokenizer = open_part(slot, slot, (td_str){d->text + part->offset, part->end - part->offset}, &v);
    for (const td_json *row = rows->first; tokenizer && row; row = row->next) {
        td_buf_clear(&want);
        td_buf_clear(&got);
        if (pieces) wanted_pieces(row, texts, &want);
        else td_buf_str(&want, td_json_at(row, 1)->string);
        spell(tokenizer, texts[td_json_at(row, 0)->as_int], &got);
        if (!td_str_equal(td_buf_view(&got), td_buf_view(&want)))
            FAIL("%s %.*s: string %d gives \"%s\", wanted \"%s\"", slot, TD_STR_ARGS(rows->key),
                 (int)td_json_at(row, 0)->as_int, got.p, want.p);
    }
    td_tokenizer_free(tokenizer);
    td_buf_free(&want);
    td_buf_free(&got);
    td_buf_free(&v.json);
    td_buf_free(&v.tokens);
    td_vec_free(&v.offsets);
    free(v.seen);
}

static void check_decoder(const document *d, const td_json *row) {
    td_str name = td_json_at(row, 0)->string;
    const td_json *part = td_json_get_str(td_json_get(d->root, "decoder_json"), name), *want = td_json_at(row, 2);
    chars v = {0};
    td_ids ids = {0};
    for (const td_json *token = td_json_at(row, 1)->first; token; token = token->next) {
        REQUIRE(td_vec_push(&ids, (int32_t)v.offsets.n));
        for (const td_json *before = td_json_at(row, 1)->first; before != token; before = before->next)
            if (td_str_equal(before->string, token->string)) {
                int32_t k = 0;
                for (const td_json *b = td_json_at(row, 1)->first; b != before; b = b->next) k++;
                ids.items[ids.n - 1] = ids.items[k];
                break;
            }
        if (ids.items[ids.n - 1] == (int32_t)v.offsets.n) add_token(&v, token->string.p, token->string.n);
    }
    td_tokenizer *tokenizer =
        open_part("decoder", "decoder", (td_str){d->text + part->offset, part->end - part->offset}, &v);
    if (tokenizer && want->kind == TD_JSON_STRING) check_decode("decoder", tokenizer, &ids, false, want->string);
    td_tokenizer_free(tokenizer);
    td_buf_free(&v.json);
    td_buf_free(&v.tokens);
    td_vec_free(&v.offsets);
    td_vec_free(&ids);
}

TEST(components) {
    static td_str texts[MAX_TEXTS];
    document corpus, d;
    char folder[1024], path[1400];
    snprintf(folder, sizeof folder, "%s", td_test_unpacked("text-and-media"));
    load_corpus(folder, &corpus, texts);
    snprintf(path, sizeof path, "%s/components.json", folder);
    REQUIRE(open_document(&d, path));
    for (const td_json *rows = td_json_get(d.root, "normalizers")->first; rows; rows = rows->next)
        check_part(&d, "normalizer", rows, texts);
    for (const td_json *rows = td_json_get(d.root, "pre_tokenizers")->first; rows; rows = rows->next)
        check_part(&d, "pre_tokenizer", rows, texts);
    for (const td_json *row = td_json_get(d.root, "decoders")->first; row; row = row->next) check_decoder(&d, row);
    close_document(&d);
    close_document(&corpus);
}

/* --- the probes of the checkpoint folders */

static void check_probe(const char *name, const td_tokenizer *tokenizer, const td_json *probe) {
    const td_json *ids = td_json_get(probe, "ids"), *bare = td_json_get(probe, "ids_without_special");
    const td_json *decoded = td_json_get(probe, "decoded");
    td_str text = td_json_get(probe, "text")->string;
    td_ids whole = {0}, own = {0};
    take_ids(ids, &whole);
    take_ids(bare ? bare : ids, &own);
    check_ids(name, tokenizer, text, true, true, &whole);
    check_ids(name, tokenizer, text, false, true, &own);
    if (decoded) check_decode(name, tokenizer, &whole, true, decoded->string);
    td_vec_free(&whole);
    td_vec_free(&own);
}

TEST(checkpoint_probes) {
    char folder[1024], path[1400];
    int n_checked = 0;
    snprintf(folder, sizeof folder, "%s", td_test_unpacked("tiny-checkpoints"));
    DIR *dir = opendir(folder);
    REQUIRE(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir));) {
        document d;
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%.250s/tokenizer.json", folder, entry->d_name);
        FILE *file = fopen(path, "rb");
        if (!file) continue;
        fclose(file);
        snprintf(path, sizeof path, "%s/%.250s/golden.json", folder, entry->d_name);
        if (!open_document(&d, path)) continue;
        snprintf(path, sizeof path, "%s/%.250s", folder, entry->d_name);
        td_tokenizer *tokenizer = load_file(path, "tokenizer.json");
        const td_json *probes = td_json_get(d.root, "tokenizer");
        for (const td_json *probe = probes ? probes->first : NULL; tokenizer && probe; probe = probe->next, n_checked++)
            check_probe(entry->d_name, tokenizer, probe);
        td_tokenizer_free(tokenizer);
        close_document(&d);
    }
    closedir(dir);
    CHECK(n_checked > 500);
}
