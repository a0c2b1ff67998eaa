/* base/error.h and treadle/status.h: filling, cutting, formatting, did-you-mean. */
#include "support/test.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

TEST(fail_fills_and_clears) {
    treadle_error err;
    memset(&err, 'x', sizeof err);
    CHECK_EQ_INT(td_fail(&err, TREADLE_CONFIG, "expected %s, found %d", "a list", 5), TREADLE_CONFIG);
    CHECK_EQ_INT(err.code, TREADLE_CONFIG);
    CHECK_EQ_STR(err.message, "expected a list, found 5");
    CHECK(!err.file[0] && !err.pointer[0] && !err.hint[0] && !err.line && !err.column);
    CHECK_EQ_INT(td_fail(NULL, TREADLE_IO, "unseen"), TREADLE_IO);
    td_error_file(NULL, "x");
    td_error_place(NULL, 1, 1);
    td_error_pointer(NULL, "x");
    td_error_hint(NULL, "x");
    td_error_context(NULL, "x");
}

TEST(parts_are_set_once) {
    treadle_error err;
    td_fail(&err, TREADLE_FORMAT, "bad");
    td_error_file(&err, "inner.json");
    td_error_file(&err, "outer.json");
    td_error_place(&err, 3, 7);
    td_error_place(&err, 9, 9);
    td_error_pointer(&err, "/a/%d", 1);
    td_error_pointer(&err, "/b");
    td_error_hint(&err, "Did you mean \"%s\"?", "x");
    td_error_hint(&err, "no");
    char text[256];
    int n = treadle_error_format(&err, text, sizeof text);
    CHECK_EQ_STR(text, "inner.json:3:7 /a/1: bad. Did you mean \"x\"?");
    CHECK_EQ_INT(n, strlen(text));
}

TEST(context_goes_in_front) {
    treadle_error err;
    td_fail(&err, TREADLE_RUN, "index 9 is out of range");
    td_error_context(&err, "node %s", "gather_1");
    td_error_context(&err, "session decoder");
    CHECK_EQ_STR(err.message, "session decoder: node gather_1: index 9 is out of range");
    td_fail(&err, TREADLE_INTERNAL, "again: %s", err.message); /* from the record into itself */
    CHECK_EQ_STR(err.message, "again: session decoder: node gather_1: index 9 is out of range");
}

TEST(long_texts_are_cut_at_a_character) {
    treadle_error err;
    char text[4096];
    for (size_t i = 0; i + 3 < sizeof text; i += 3) memcpy(text + i, "\xE2\x82\xAC", 4); /* euro signs */
    td_fail(&err, TREADLE_IO, "%s", text);
    CHECK_EQ_INT(strlen(err.message), 2046); /* 682 * 3: the 2047 that fit would end inside a sign */
    td_error_file(&err, text);
    CHECK_EQ_INT(strlen(err.file), 510);
    td_error_pointer(&err, "%s", text);
    CHECK_EQ_INT(strlen(err.pointer), 510);
    td_error_hint(&err, "a%s", text);
    CHECK_EQ_INT(strlen(err.hint), 511);
    td_error_context(&err, "%s", text);
    CHECK_EQ_INT(strlen(err.message), 2045); /* 510 + ": " + 511 whole signs */
}

TEST(format_with_parts_missing) {
    char text[64];
    treadle_error err = {.code = TREADLE_NOT_FOUND};
    treadle_error_format(&err, text, sizeof text);
    CHECK_EQ_STR(text, "not found");
    td_fail(&err, TREADLE_IO, "no.");
    td_error_hint(&err, "Try again.");
    treadle_error_format(&err, text, sizeof text);
    CHECK_EQ_STR(text, "no. Try again.");
    td_fail(&err, TREADLE_IO, "m");
    td_error_place(&err, 4, 0);
    treadle_error_format(&err, text, sizeof text);
    CHECK_EQ_STR(text, "4: m");
    td_error_file(&err, "f");
    treadle_error_format(&err, text, sizeof text);
    CHECK_EQ_STR(text, "f:4: m");
    td_fail(&err, TREADLE_IO, "m");
    td_error_pointer(&err, "/p");
    treadle_error_format(&err, text, sizeof text);
    CHECK_EQ_STR(text, "/p: m");
    CHECK_EQ_INT(treadle_error_format(&err, NULL, 0), 5);
    CHECK_EQ_INT(treadle_error_format(&err, text, 4), 5);
    CHECK_EQ_STR(text, "/p:");
}

TEST(status_text) {
    CHECK_EQ_STR(treadle_status_text(TREADLE_OK), "ok");
    CHECK_EQ_STR(treadle_status_text(TREADLE_OUT_OF_MEMORY), "out of memory");
    CHECK_EQ_STR(treadle_status_text((treadle_status)999), "unknown status");
    CHECK_EQ_STR(treadle_status_text((treadle_status)-1), "unknown status");
}

TEST(memory) {
    treadle_error err;
    CHECK_EQ_INT(td_fail_memory(&err, "weights", 42), TREADLE_OUT_OF_MEMORY);
    CHECK_HAS_STR(err.message, "42 bytes for weights");
}

TEST(nearest) {
    static const char *const words[] = {"once", "prompt", "always", "decode", "autoregressive-decoder", "tokens", NULL};
    static const struct {
        const char *word, *nearest;
    } cases[] = {
        {"alway", "always"},   {"promt", "prompt"},
        {"pormpt", "prompt"},  {"autoregresive-decoder", "autoregressive-decoder"},
        {"tokenss", "tokens"}, {"ONCE", "once"},
        {"xyz", NULL},         {"", NULL},
        {"decoder", "decode"}, {"Always", "always"},
        {"o", NULL},           {"completely different", NULL},
    };
    for (size_t i = 0; i < TD_COUNT(cases); i++) {
        const char *found = td_nearest(cases[i].word, words, TD_COUNT(words));
        if (found != cases[i].nearest && !(found && cases[i].nearest && strcmp(found, cases[i].nearest) == 0))
            FAIL("%s: %s", cases[i].word, found ? found : "nothing");
    }
    char long_word[500];
    memset(long_word, 'a', sizeof long_word - 1);
    long_word[sizeof long_word - 1] = '\0';
    CHECK(td_nearest(long_word, words, 6) == NULL);
    const char *long_candidate = long_word;
    CHECK(td_nearest("aaaa", &long_candidate, 1) == NULL);
    CHECK(td_nearest("x", NULL, 0) == NULL);
}
