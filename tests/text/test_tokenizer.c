/* Tokenizers against goldens of Hugging Face tokenizers (make_tokenizer_goldens.py), messages, lookups, streams. */
#include "support/test.h"

#include "base/alloc.h"
#include "base/json.h"
#include "text/sink.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

/* --- goldens */

typedef struct goldens {
    char *text;
    size_t n_bytes;
    td_arena arena;
    td_json *root;
} goldens;

static void open_goldens(goldens *g) {
    treadle_error err = {0};
    g->text = td_test_read(td_test_source("tests/text/tokenizer_goldens.json"), &g->n_bytes);
    td_arena_init(&g->arena);
    CHECK_OK(td_json_parse((td_str){g->text, g->n_bytes}, NULL, &g->arena, &g->root, &err), &err);
}

static void close_goldens(goldens *g) {
    td_arena_free(&g->arena);
    free(g->text);
}

/* The row's tokenizer as JSON text, "@NAME" replaced by the value of that name. */
static void expand(const goldens *g, const td_json *row, td_buf *out) {
    const td_json *config = td_json_get(row, "tokenizer"), *values = td_json_get(g->root, "values");
    td_str rest = {g->text + config->offset, config->end - config->offset};
    for (ptrdiff_t at; (at = td_str_find(rest, TD_STR("\"@"))) >= 0;) {
        td_buf_append(out, rest.p, (size_t)at);
        rest = (td_str){rest.p + at + 2, rest.n - (size_t)at - 2};
        td_str name = {rest.p, (size_t)td_str_find(rest, TD_STR("\""))};
        const td_json *value = td_json_get_str(values, name);
        REQUIRE(value != NULL);
        td_buf_append(out, g->text + value->offset, value->end - value->offset);
        rest = (td_str){rest.p + name.n + 1, rest.n - name.n - 1};
    }
    td_buf_str(out, rest);
}

static void print_ids(const td_ids *ids, td_buf *out) {
    for (size_t i = 0; i < ids->n; i++) td_buf_printf(out, i ? " %d" : "%d", (int)ids->items[i]);
    td_buf_char(out, '\n');
}

static void take_ids(const td_json *list, td_ids *ids) {
    ids->n = 0;
    for (const td_json *item = list->first; item; item = item->next) REQUIRE(td_vec_push(ids, (int32_t)item->as_int));
}

static bool same_ids(const td_ids *a, const td_ids *b) {
    return a->n == b->n && (a->n == 0 || memcmp(a->items, b->items, a->n * sizeof *a->items) == 0);
}

static void check_encode(const td_tokenizer *tokenizer, const char *name, td_str text, const td_json *want, bool add,
                         bool parse) {
    treadle_error err = {0};
    td_ids ids = {0}, wanted = {0};
    take_ids(want, &wanted);
    CHECK_OK(td_tokenizer_encode(tokenizer, text, add, parse, &ids, &err), &err);
    if (!same_ids(&ids, &wanted)) {
        td_buf shown = {0};
        print_ids(&ids, &shown);
        print_ids(&wanted, &shown);
        FAIL("%s: \"%.*s\" (add %d, parse %d) gives, instead of what follows it:\n%s", name, TD_STR_ARGS(text), add,
             parse, shown.p);
        td_buf_free(&shown);
    }
    td_vec_free(&ids);
    td_vec_free(&wanted);
}

static void check_text(const char *name, const char *what, td_str got, td_str want) {
    if (!td_str_equal(got, want))
        FAIL("%s: %s gives \"%.*s\", wanted \"%.*s\"", name, what, TD_STR_ARGS(got), TD_STR_ARGS(want));
}

static void check_stream(const td_tokenizer *tokenizer, const char *name, const td_ids *ids, bool skip,
                         const td_json *chunks) {
    treadle_error err = {0};
    td_detok *detok = NULL;
    td_buf out = {0};
    CHECK_OK(td_detok_open(tokenizer, skip, &detok, &err), &err);
    for (int round = 0; round < 2; round++) { /* twice: reset must forget everything */
        const td_json *chunk = chunks->first;
        for (size_t i = 0; i <= ids->n; i++, chunk = chunk->next) {
            td_buf_clear(&out);
            if (i < ids->n) CHECK_OK(td_detok_push(detok, ids->items[i], &out, &err), &err);
            else CHECK_OK(td_detok_flush(detok, &out, &err), &err);
            check_text(name, "the stream", td_buf_view(&out), chunk->string);
        }
        td_detok_reset(detok);
    }
    td_detok_free(detok);
    td_buf_free(&out);
}

static void check_decode(const td_tokenizer *tokenizer, const char *name, const td_json *row) {
    treadle_error err = {0};
    td_ids ids = {0};
    td_buf out = {0};
    bool skip = td_json_at(row, 1)->as_bool;
    take_ids(td_json_at(row, 0), &ids);
    CHECK_OK(td_tokenizer_decode(tokenizer, ids.items, ids.n, skip, &out, &err), &err);
    check_text(name, "decode", td_buf_view(&out), td_json_at(row, 2)->string);
    const td_json *chunks = td_json_at(row, 3);
    if (chunks->kind == TD_JSON_ARRAY) check_stream(tokenizer, name, &ids, skip, chunks);
    td_vec_free(&ids);
    td_buf_free(&out);
}

TEST(goldens) {
    goldens g;
    open_goldens(&g);
    for (const td_json *row = td_json_get(g.root, "rows")->first; row; row = row->next) {
        treadle_error err = {0};
        td_buf config = {0};
        td_tokenizer *tokenizer = NULL;
        char name[100];
        snprintf(name, sizeof name, "%.*s", TD_STR_ARGS(td_json_get(row, "name")->string));
        expand(&g, row, &config);
        treadle_status status = td_tokenizer_load(td_buf_view(&config), (td_str){0}, &tokenizer, &err);
        td_buf_free(&config);
        if (status != TREADLE_OK) {
            FAIL("%s: %s", name, err.message);
            continue;
        }
        for (const td_json *one = td_json_get(row, "encode")->first; one; one = one->next) {
            td_str text = td_json_at(one, 0)->string;
            const td_json *ids = td_json_at(one, 1), *whole = td_json_at(one, 2), *plain = td_json_at(one, 3);
            check_encode(tokenizer, name, text, ids, false, true);
            check_encode(tokenizer, name, text, whole->kind == TD_JSON_ARRAY ? whole : ids, true, true);
            check_encode(tokenizer, name, text, plain->kind == TD_JSON_ARRAY ? plain : ids, false, false);
        }
        for (const td_json *one = td_json_get(row, "decode")->first; one; one = one->next)
            check_decode(tokenizer, name, one);
        td_tokenizer_free(tokenizer);
    }
    close_goldens(&g);
}

/* --- small tokenizers in the text of the test */

#define MODEL                                                                                                          \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<s>\":3,\"\\u00e9\":4},\"merges\":[\"a b\"]}"

static td_tokenizer *load(const char *json, const char *config) {
    treadle_error err = {0};
    td_tokenizer *tokenizer = NULL;
    CHECK_OK(td_tokenizer_load(td_str_from(json), td_str_from(config), &tokenizer, &err), &err);
    return tokenizer;
}

TEST(messages) {
    static const struct {
        const char *json, *config, *message, *pointer;
        treadle_status status;
        uint32_t line, column;
    } rows[] = {
        {"{" MODEL ",\n \"normalizer\": {\"type\": \"Precompiled\"}}", "",
         "normalizer type \"Precompiled\" is not supported; known: NFC,", "/normalizer/type", TREADLE_UNSUPPORTED, 2,
         25},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[\n{\"type\":\"Runes\"}]}}", "",
         "pre_tokenizer type \"Runes\" is not supported; known: ByteLevel, Split,",
         "/pre_tokenizer/pretokenizers/0/type", TREADLE_UNSUPPORTED, 2, 9},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", "", "model type \"Unigram\" is not supported; known: BPE",
         "/model/type", TREADLE_UNSUPPORTED, 1, 18},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", "",
         "merge of a token that is not in the vocabulary: \"b\"", "/model/merges", TREADLE_FORMAT, 1, 50},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\n\"b\":x},\"merges\":[]}}", "",
         "expected a whole number of 64 bits, found 'x'", "", TREADLE_FORMAT, 2, 5},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":99999999},\"merges\":[]}}", "",
         "expected a token id from 0 to 1048575", "", TREADLE_LIMIT, 0, 0},
        {"{\"model\":{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{},\"merges\":[]}}", "",
         "dropout makes tokenizing random", "/model/dropout", TREADLE_UNSUPPORTED, 1, 34},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a(\"},\"behavior\":\"Isolated\"}}",
         "", "the regular expression \"a(\" has a ( without its ) at byte 2", "/pre_tokenizer/pattern/Regex",
         TREADLE_UNSUPPORTED, 1, 141},
        {"{" MODEL ",\"decoder\":{\"type\":\"Strip\",\"content\":\"ab\"}}", "",
         "expected \"content\" to be one character", "/decoder/content", TREADLE_FORMAT, 1, 126},
        {"[]", "", "expected '{', found '['", "", TREADLE_FORMAT, 1, 1},
        {"{}", "", "expected a member \"model\" (an object), found none", "", TREADLE_FORMAT, 1, 1},
    };
    for (size_t i = 0; i < TD_COUNT(rows); i++) {
        treadle_error err = {0};
        td_tokenizer *tokenizer = NULL;
        CHECK_STATUS(td_tokenizer_load(td_str_from(rows[i].json), td_str_from(rows[i].config), &tokenizer, &err),
                     rows[i].status, &err);
        CHECK_HAS_STR(err.message, rows[i].message);
        CHECK_EQ_STR(err.pointer, rows[i].pointer);
        CHECK_EQ_STR(err.file, rows[i].config[0] ? "tokenizer_config.json" : "tokenizer.json");
        if (rows[i].line) {
            CHECK_EQ_UINT(err.line, rows[i].line);
            CHECK_EQ_UINT(err.column, rows[i].column);
        }
    }
}

TEST(looks_up) {
    td_tokenizer *tokenizer =
        load("{" MODEL ",\"added_tokens\":[{\"id\":9,\"content\":\"<s>\",\"special\":true},"
             "{\"id\":9,\"content\":\"new\"}]}",
             "{\"model_max_length\":1e30,\"added_tokens_decoder\":{\"6\":{\"content\":\"</s>\",\"special\":true}}}");
    CHECK_EQ_INT(td_tokenizer_vocab_size(tokenizer), 7);
    CHECK(td_str_is(td_tokenizer_token(tokenizer, 5), "new") && td_str_is(td_tokenizer_token(tokenizer, 2), "ab"));
    CHECK(td_tokenizer_token(tokenizer, 7).p == NULL && td_tokenizer_token(tokenizer, -1).p == NULL);
    CHECK_EQ_INT(td_tokenizer_id(tokenizer, TD_STR("new")), 5);
    CHECK_EQ_INT(td_tokenizer_id(tokenizer, TD_STR("other")), -1);
    CHECK(td_tokenizer_is_special(tokenizer, 3) && td_tokenizer_is_special(tokenizer, 6) &&
          !td_tokenizer_is_special(tokenizer, 5));
    td_tokenizer_free(tokenizer);
}

/* Merges given as one string whose tokens hold spaces: cut where both halves and the whole are tokens. */
TEST(merges_with_spaces) {
    td_tokenizer *tokenizer = load("{\"model\":{\"vocab\":{\"a\":0,\" \":1,\" a\":2,\"a a\":3,\"  \":4},"
                                   "\"merges\":[\"#version: 0.2\",\"  a\",\"a  a\",\"   \"]}}",
                                   "");
    treadle_error err = {0};
    td_ids ids = {0};
    CHECK_OK(td_tokenizer_encode(tokenizer, TD_STR("a a  "), false, true, &ids, &err), &err);
    REQUIRE(ids.n == 2);
    CHECK(ids.items[0] == 3 && ids.items[1] == 4);
    td_vec_free(&ids);
    td_tokenizer_free(tokenizer);
}

TEST(invalid_utf8_is_replaced) {
    td_tokenizer *tokenizer = load("{\"model\":{\"vocab\":{\"a\":0,\"\xEF\xBF\xBD\":1},\"merges\":[]}}", "");
    treadle_error err = {0};
    td_ids ids = {0};
    CHECK_OK(td_tokenizer_encode(tokenizer,
                                 TD_STR("a\xFF\xE2\x82"
                                        "a\xF0"),
                                 false, true, &ids, &err),
             &err);
    static const int32_t want[] = {0, 1, 1, 0, 1};
    REQUIRE(ids.n == TD_COUNT(want));
    CHECK_EQ_MEM(ids.items, want, sizeof want);
    td_vec_free(&ids);
    td_tokenizer_free(tokenizer);
}

/* A piece of a million characters takes n log n, and a pattern that cannot end is stopped. */
TEST(long_and_hostile) {
    enum { N = 1000000 };
    treadle_error err = {0};
    td_ids ids = {0};
    char *text = malloc(N);
    REQUIRE(text != NULL);
    memset(text, 'a', N);
    td_tokenizer *tokenizer =
        load("{\"model\":{\"vocab\":{\"a\":0,\"aa\":1,\"aaaa\":2},\"merges\":[\"a a\",\"aa aa\"]}}", "");
    CHECK_OK(td_tokenizer_encode(tokenizer, (td_str){text, N}, false, true, &ids, &err), &err);
    CHECK_EQ_UINT(ids.n, N / 4);
    td_tokenizer_free(tokenizer);
    static const char *const patterns[] = {"(a*)*b", "(?:.*b)|a", "(a|aa)+$b"};
    for (size_t i = 0; i < TD_COUNT(patterns); i++) {
        char json[300];
        snprintf(json, sizeof json,
                 "{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},"
                 "\"behavior\":\"Isolated\"}}",
                 patterns[i]);
        tokenizer = load(json, "");
        treadle_status status = td_tokenizer_encode(tokenizer, (td_str){text, N / 10}, false, true, &ids, &err);
        CHECK(status == TREADLE_LIMIT || status == TREADLE_OK);
        td_tokenizer_free(tokenizer);
    }
    td_vec_free(&ids);
    free(text);
}

/* --- stop strings */

static void check_stops(const char *const *stops, size_t n_stops, const char *const *pieces, const char *const *want,
                        int match) {
    treadle_error err = {0};
    td_str list[4] = {{0}};
    td_stopper *stopper = NULL;
    td_buf out = {0};
    bool stopped = false;
    for (size_t i = 0; i < n_stops; i++) list[i] = td_str_from(stops[i]);
    CHECK_OK(td_stopper_open(list, n_stops, &stopper, &err), &err);
    for (; *pieces && !stopped; pieces++, want++) {
        td_buf_clear(&out);
        CHECK_OK(td_stopper_push(stopper, td_str_from(*pieces), &out, &stopped, &err), &err);
        CHECK_EQ_STR(out.p ? out.p : "", *want);
    }
    CHECK_EQ_INT(td_stopper_match(stopper), match);
    td_buf_clear(&out);
    if (!stopped) CHECK_OK(td_stopper_flush(stopper, &out, &err), &err);
    CHECK_EQ_STR(out.p ? out.p : "", *want);
    td_stopper_free(stopper);
    td_buf_free(&out);
}

#define STOPS(...) (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)
#define LIST(...)                                                                                                      \
    (const char *const[]) { __VA_ARGS__, NULL }

TEST(stop_strings) {
    check_stops(STOPS("pH"), LIST(" ~", " p", "H", "en"), LIST(" ~", " ", "", ""), 0);
    check_stops(STOPS("pH", "p"), LIST("j", " p", "H"), LIST("j", " ", ""), 1); /* complete before the longer one is */
    check_stops(STOPS("p", "pH"), LIST("jpH"), LIST("j", ""), 1);               /* both at once: the longer one */
    check_stops(STOPS("never", "zz"), LIST("ne", "ve", "z", "z"), LIST("", "", "neve", "", ""), 1);
    check_stops(STOPS("aab"), LIST("aa", "a", "ab", "x"), LIST("", "a", "a", ""), 0);
    check_stops(STOPS("abcd", "bc"), LIST("xab", "c"), LIST("x", "a", ""),
                1); /* the match that is complete, not the one that may be */
    check_stops(STOPS("end"), LIST("the en"), LIST("the ", "en"), -1);
    check_stops(STOPS("\xE2\x82\xAC"), LIST("5 \xE2\x82\xAC"), LIST("5 ", ""), 0);
    treadle_error err = {0};
    td_stopper *stopper = NULL;
    td_str empty = {0}, bad = TD_STR("\xFF");
    CHECK_STATUS(td_stopper_open(&empty, 1, &stopper, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_STATUS(td_stopper_open(&bad, 1, &stopper, &err), TREADLE_INVALID_ARGUMENT, &err);
}

TEST(text_sink) {
    td_tokenizer *tokenizer =
        load("{\"model\":{\"vocab\":{\"\xC3\xA2\":0,\"\xC4\xA4\":1,\"\xC2\xAC\":2,\"x\":3},\"merges\":[]},"
             "\"decoder\":{\"type\":\"ByteLevel\"}}",
             "");
    treadle_error err = {0};
    td_text_sink sink;
    td_buf out = {0};
    bool stopped = false;
    td_str stop = TD_STR("\xE2\x82\xACx");
    CHECK_OK(td_text_sink_open(&sink, tokenizer, true, &stop, 1, &err), &err);
    static const int32_t ids[] = {3, 0, 1, 2, 3};
    for (size_t i = 0; i < TD_COUNT(ids); i++) {
        CHECK(!stopped);
        CHECK_OK(td_text_sink_push(&sink, ids[i], &out, &stopped, &err), &err);
    }
    CHECK(stopped);
    CHECK_EQ_STR(out.p, "x");
    td_text_sink_reset(&sink);
    td_buf_clear(&out);
    for (size_t i = 0; i < 3; i++) CHECK_OK(td_text_sink_push(&sink, ids[i], &out, &stopped, &err), &err);
    CHECK_OK(td_text_sink_flush(&sink, &out, &stopped, &err), &err);
    CHECK(!stopped);
    CHECK_EQ_STR(out.p, "x\xEF\xBF\xBD");
    td_text_sink_close(&sink);
    td_buf_free(&out);
    td_tokenizer_free(tokenizer);
}
