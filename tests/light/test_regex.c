/* Regular expressions of RegexFullMatch against RE2's answers (data/regex.txt, make_regex_data.py). */
#include "support/test.h"

#include "base/alloc.h"
#include "base/file.h"
#include "light/ops/regex.h"

#include <stdio.h>
#include <string.h>

/* One field up to the tab or the line's end, without its escapes; *at moves behind it. */
static td_str field(td_arena *arena, const char **at) {
    const char *end = *at + strcspn(*at, "\t\n");
    char *text = td_arena_strndup(arena, *at, (size_t)(end - *at));
    size_t n = 0;
    REQUIRE(text);
    for (const char *p = *at; p < end; p++) {
        if (*p == '\\') p++, text[n++] = *p == 'n' ? '\n' : *p == 't' ? '\t' : *p;
        else text[n++] = *p;
    }
    *at = *end ? end + 1 : end;
    return (td_str){text, n};
}

TEST(as_re2) {
    treadle_error err = {0};
    char *file = NULL;
    size_t bytes, n = 0;
    td_arena arena = {0};
    CHECK_OK(td_file_read(td_test_source("tests/light/data/regex.txt"), 0, &file, &bytes, &err), &err);
    for (const char *at = file; *at; n++) {
        td_str pattern = field(&arena, &at), text = field(&arena, &at), answer = field(&arena, &at);
        td_pattern *compiled = NULL;
        const char *problem = NULL;
        size_t place = 0;
        bool ok = td_pattern_compile(&arena, pattern, &compiled, &problem, &place);
        if (ok != (answer.p[0] != '!')) {
            FAIL("%.*s: %s at byte %zu", (int)pattern.n, pattern.p, problem ? problem : "taken", place);
            continue;
        }
        if (!ok) {
            CHECK(problem && place <= pattern.n);
            continue;
        }
        void *scratch = td_arena_alloc(&arena, td_pattern_scratch(compiled), 8);
        REQUIRE(scratch);
        if (td_pattern_matches(compiled, text, scratch) != (answer.p[0] == '1'))
            FAIL("%.*s on \"%.*s\": RE2 says %c", (int)pattern.n, pattern.p, (int)text.n, text.p, answer.p[0]);
    }
    CHECK(n > 1000);
    td_arena_free(&arena);
    td_free(file);
}

/* Repetitions of repetitions, long alternatives, deep groups: limits, not time or memory. */
TEST(hostile_patterns) {
    static const char *const ends[] = {"((((a{1000}){1000}){1000}){1000}){1000}", "((a*)*)*b"};
    td_arena arena = {0};
    td_pattern *compiled;
    const char *problem;
    size_t at;
    CHECK(!td_pattern_compile(&arena, td_str_from(ends[0]), &compiled, &problem, &at));
    CHECK_HAS_STR(problem, "too large");
    REQUIRE(td_pattern_compile(&arena, td_str_from(ends[1]), &compiled, &problem, &at));
    char *text = td_arena_alloc(&arena, 100000, 1);
    memset(text, 'a', 100000);
    CHECK(
        !td_pattern_matches(compiled, (td_str){text, 100000}, td_arena_alloc(&arena, td_pattern_scratch(compiled), 8)));
    memset(text, '(', 100000);
    CHECK(!td_pattern_compile(&arena, (td_str){text, 100000}, &compiled, &problem, &at));
    CHECK_HAS_STR(problem, "nested too deep");
    memset(text, '|', 5000);
    REQUIRE(td_pattern_compile(&arena, (td_str){text, 5000}, &compiled, &problem, &at));
    CHECK(td_pattern_matches(compiled, td_str_from(""), td_arena_alloc(&arena, td_pattern_scratch(compiled), 8)));
    td_arena_free(&arena);
}
