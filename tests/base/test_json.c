/* base/json.h, the reader: values, strictness, places of errors, limits. */
#include "support/test.h"

#include "base/json.h"

#include <math.h>
#include <stdio.h>

static td_json *parse_with(td_arena *arena, td_str text, const td_json_options *options) {
    td_json *root = NULL;
    treadle_error err = {0};
    CHECK_OK(td_json_parse(text, options, arena, &root, &err), &err);
    return root;
}

static td_json *parse(td_arena *arena, const char *text) { return parse_with(arena, td_str_from(text), NULL); }

TEST(values) {
    td_arena arena = {0};
    td_json *root = parse(&arena, " {\"a\": [1, -2.5, true, false, null, \"x\"], \"\": {}, \"b\": []}\n");
    CHECK_EQ_INT(root->kind, TD_JSON_OBJECT);
    CHECK_EQ_INT(root->n, 3);
    CHECK_EQ_INT(root->offset, 1);
    CHECK_EQ_INT(root->end, 58);
    td_json *a = td_json_get(root, "a");
    REQUIRE(a != NULL);
    CHECK_EQ_INT(a->n, 6);
    CHECK_EQ_INT(a->key_offset, 2);
    CHECK_EQ_INT(a->offset, 7);
    CHECK_EQ_PTR(a->parent, root);
    CHECK(td_json_at(a, 0)->kind == TD_JSON_INT && td_json_at(a, 0)->as_int == 1 && td_json_at(a, 0)->as_double == 1);
    CHECK(td_json_at(a, 1)->kind == TD_JSON_DOUBLE && td_json_at(a, 1)->as_double == -2.5);
    CHECK_EQ_INT(td_json_at(a, 1)->offset, 11);
    CHECK_EQ_INT(td_json_at(a, 1)->end, 15);
    CHECK(td_json_at(a, 2)->kind == TD_JSON_BOOL && td_json_at(a, 2)->as_bool);
    CHECK(td_json_at(a, 3)->kind == TD_JSON_BOOL && !td_json_at(a, 3)->as_bool);
    CHECK(td_json_at(a, 4)->kind == TD_JSON_NULL);
    CHECK(td_str_is(td_json_at(a, 5)->string, "x"));
    CHECK(td_json_at(a, 6) == NULL && td_json_at(root, 0) == NULL && td_json_at(NULL, 0) == NULL);
    CHECK(td_json_get(root, "") != NULL && td_json_get(root, "c") == NULL && td_json_get(a, "a") == NULL);
    CHECK(td_json_get(NULL, "a") == NULL);
    CHECK(td_json_at(a, 5)->next == NULL && td_json_get(root, "b")->next == NULL && root->next == NULL);
    td_arena_free(&arena);
}

TEST(scalars_at_the_top) {
    td_arena arena = {0};
    CHECK_EQ_INT(parse(&arena, "7")->as_int, 7);
    CHECK_EQ_INT(parse(&arena, " null ")->kind, TD_JSON_NULL);
    CHECK(td_str_is(parse(&arena, "\"\"")->string, ""));
    CHECK(td_str_is(parse(&arena, "\xEF\xBB\xBF\"bom\"")->string, "bom"));
    td_arena_free(&arena);
}

TEST(numbers) {
    static const struct {
        const char *text;
        td_json_kind kind;
        int64_t as_int;
        double as_double;
    } cases[] = {
        {"0", TD_JSON_INT, 0, 0},
        {"-0", TD_JSON_INT, 0, 0},
        {"9223372036854775807", TD_JSON_INT, INT64_MAX, 9223372036854775807.0},
        {"-9223372036854775808", TD_JSON_INT, INT64_MIN, -9223372036854775808.0},
        {"9223372036854775808", TD_JSON_DOUBLE, 0, 9223372036854775808.0},
        {"123456789012345678", TD_JSON_INT, 123456789012345678, 123456789012345678.0},
        {"1.0", TD_JSON_DOUBLE, 0, 1},
        {"1e2", TD_JSON_DOUBLE, 0, 100},
        {"1E+2", TD_JSON_DOUBLE, 0, 100},
        {"-1.5e-3", TD_JSON_DOUBLE, 0, -1.5e-3},
        {"0.1", TD_JSON_DOUBLE, 0, 0.1},
        {"1e-999", TD_JSON_DOUBLE, 0, 0},
        {"0e5", TD_JSON_DOUBLE, 0, 0},
    };
    td_arena arena = {0};
    for (size_t i = 0; i < TD_COUNT(cases); i++) {
        td_json *v = parse(&arena, cases[i].text);
        if (v->kind != cases[i].kind || v->as_int != cases[i].as_int || v->as_double != cases[i].as_double)
            FAIL("%s: kind %d, %lld, %.17g", cases[i].text, v->kind, (long long)v->as_int, v->as_double);
    }
    td_arena_free(&arena);
}

TEST(strings_without_escapes_are_not_copied) {
    td_arena arena = {0};
    const char *text = "[\"plain text, longer than a word\", \"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"]";
    td_json *root = parse(&arena, text);
    CHECK_EQ_PTR(td_json_at(root, 0)->string.p, text + 2);
    CHECK(td_str_is(td_json_at(root, 1)->string, "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"));
    td_arena_free(&arena);
}

TEST(escapes) {
    td_arena arena = {0};
    td_json *root = parse(
        &arena, "{\"k\\u0065y\\/\": \"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\u20AC\\ud83d\\uDE00 and more \\u0000!\"}");
    CHECK(td_str_is(root->first->key, "key/"));
    CHECK(
        td_str_equal(root->first->string, TD_STR("\"\\/\b\f\n\r\t\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80 and more \0!")));
    td_arena_free(&arena);
}

TEST(specials_at_every_offset) {
    /* The scan takes eight bytes at a time: each kind of special byte at each place of a word, and near the end. */
    td_arena arena = {0};
    for (size_t before = 0; before < 20; before++) {
        for (size_t after = 0; after < 12; after++) {
            char text[128], expected[128];
            char pad_a[32] = "", pad_b[32] = "";
            memset(pad_a, '~', before);
            memset(pad_b, '\x7f', after);
            pad_a[before] = pad_b[after] = '\0';
            snprintf(text, sizeof text, "\"%s\\n%s\"", pad_a, pad_b);
            snprintf(expected, sizeof expected, "%s\n%s", pad_a, pad_b);
            CHECK(td_str_is(parse(&arena, text)->string, expected));
            snprintf(text, sizeof text, "\"%s\xE2\x82\xAC%s\"", pad_a, pad_b);
            snprintf(expected, sizeof expected, "%s\xE2\x82\xAC%s", pad_a, pad_b);
            CHECK(td_str_is(parse(&arena, text)->string, expected));
            treadle_error err;
            td_json *root;
            snprintf(text, sizeof text, "\"%s\x1f%s\"", pad_a, pad_b);
            CHECK_STATUS(td_json_parse(td_str_from(text), NULL, &arena, &root, &err), TREADLE_FORMAT, NULL);
            CHECK_EQ_INT(err.column, before + 2);
        }
    }
    td_arena_free(&arena);
}

typedef struct bad_case {
    const char *text;
    unsigned line, column;
    const char *pointer, *part; /* of the message */
} bad_case;

static void check_bad(const bad_case *c, size_t n, const td_json_options *options) {
    /* On the heap without a byte to spare, so that a sanitizer sees any read behind the text. */
    td_buf text = {0};
    td_buf_append(&text, c->text, n);
    td_arena arena = {0};
    treadle_error err = {0};
    td_json *root = NULL;
    treadle_status status = td_json_parse(td_buf_view(&text), options, &arena, &root, &err);
    if (status != TREADLE_FORMAT && status != TREADLE_LIMIT) FAIL("%s: status %d", c->text, status);
    if (err.line != c->line || err.column != c->column || strcmp(err.pointer, c->pointer) != 0 ||
        !strstr(err.message, c->part)) {
        FAIL("%s\n    %u:%u %s: %s", c->text, err.line, err.column, err.pointer, err.message);
    }
    CHECK(root == NULL);
    CHECK_EQ_INT(td_json_parse(td_buf_view(&text), options, &arena, &root, NULL), status); /* no record wanted */
    td_arena_free(&arena);
    td_buf_free(&text);
}

TEST(syntax_errors) {
    static const bad_case cases[] = {
        {"", 1, 1, "", "expected a value, found the end of the text"},
        {"  \n ", 2, 2, "", "the end of the text"},
        {"{", 1, 2, "", "expected a key in double quotes or '}', found the end"},
        {"[", 1, 2, "", "expected an item or ']', found the end"},
        {"[1", 1, 3, "", "expected ',' or ']' after an item, found the end"},
        {"{\"a\"", 1, 5, "", "':'"},
        {"{\"a\": {\"b\":", 1, 12, "/a/b", "the end"},
        {"{\"a\": [1, 2,", 1, 13, "/a", "expected an item after ',', found the end"},
        {"[1,]", 1, 4, "", "']'"},
        {"{\"a\": [1, 2,]}", 1, 13, "/a", "expected an item after ',', found ']'"},
        {"{\"a\": 1,}", 1, 9, "", "'}'"},
        {"[1,,2]", 1, 4, "", "','"},
        {"[,1]", 1, 2, "", "','"},
        {"{,}", 1, 2, "", "','"},
        {"[1 2]", 1, 4, "", "expected ',' or ']' after an item, found '2'"},
        {"{\"a\": 1 \"b\": 2}", 1, 9, "", "found a string"},
        {"{\"a\" 1}", 1, 6, "", "expected ':' after a key, found '1'"},
        {"{\"a\"; 1}", 1, 5, "", "found ';'"},
        {"{a: 1}", 1, 2, "", "found 'a'"},
        {"{1: 1}", 1, 2, "", "found '1'"},
        {"{'a': 1}", 1, 2, "", "found '''"},
        {"{\"x\": {\"a\": tru}}", 1, 13, "/x/a", "found 'tru'"},
        {"[0, truee]", 1, 5, "/1", "found 'truee'"},
        {"[0, True]", 1, 5, "/1", "found 'True'"},
        {"[nulL]", 1, 2, "/0", "found 'nulL'"},
        {"[NaN]", 1, 2, "/0", "found 'NaN'"},
        {"[Infinity]", 1, 2, "/0", "found 'Infinity'"},
        {"[-Infinity]", 1, 2, "/0", "found '-Infinity'"},
        {"[undefined]", 1, 2, "/0", "found 'undefined'"},
        {"1 2", 1, 3, "", "nothing after the value, found '2'"},
        {"{}\n}", 2, 1, "", "nothing after the value, found '}'"},
        {"[]]", 1, 3, "", "found ']'"},
        {"[1}", 1, 3, "", "found '}'"},
        {"{\"a\": 1]", 1, 8, "", "found ']'"},
        {"// x\n1", 1, 1, "", "found '/'"},
        {"[1, /* x */ 2]", 1, 5, "/1", "found '/'"},
        {"# x", 1, 1, "", "found '#'"},
        {"\xC3\xA9", 1, 1, "", "found '\xC3\xA9'"},
        {"[\xC3", 1, 2, "/0", "byte 0xc3"},
        {"\x01", 1, 1, "", "byte 0x01"},
        {"\v1", 1, 1, "", "byte 0x0b"},
        {"\xC2\xA0"
         "1",
         1, 1, "", "found"}, /* a no-break space is no space */
    };
    for (size_t i = 0; i < TD_COUNT(cases); i++) check_bad(&cases[i], strlen(cases[i].text), NULL);
    check_bad(&(bad_case){"[1,\0]", 1, 4, "/1", "byte 0x00"}, 5, NULL);
}

TEST(number_errors) {
    static const bad_case cases[] = {
        {"[01]", 1, 2, "/0", "without leading zeros, found '01'"},
        {"[-01]", 1, 2, "/0", "leading zeros"},
        {"[-]", 1, 2, "/0", "digits after '-'"},
        {"[-a]", 1, 2, "/0", "digits after '-', found '-a'"},
        {"[1.]", 1, 2, "/0", "digits after its point, found '1.'"},
        {"[1.e5]", 1, 2, "/0", "digits after its point"},
        {"[1e]", 1, 2, "/0", "digits in its exponent"},
        {"[1e+]", 1, 2, "/0", "digits in its exponent"},
        {"[.5]", 1, 2, "/0", "found '.5'"},
        {"[+1]", 1, 2, "/0", "found '+1'"},
        {"[1e999]", 1, 2, "/0", "a number that a double can hold, found '1e999'"},
        {"[0x10]", 1, 3, "", "found 'x10'"},
        {"[1_000]", 1, 3, "", "found '_000'"},
        {"[1a]", 1, 3, "", "found 'a'"},
        {"-", 1, 1, "", "digits after '-'"},
        {"1.", 1, 1, "", "digits after its point"},
        {"1e", 1, 1, "", "exponent"},
    };
    for (size_t i = 0; i < TD_COUNT(cases); i++) check_bad(&cases[i], strlen(cases[i].text), NULL);
}

TEST(string_errors) {
    static const bad_case cases[] = {
        {"[\"abc", 1, 2, "/0", "no closing quote"},
        {"{\"abc", 1, 2, "", "no closing quote"},
        {"\"abc\\\"", 1, 1, "", "no closing quote"},
        {"[\"a\nb\"]", 1, 4, "/0", "control characters"},
        {"[\"a\tb\"]", 1, 4, "/0", "control characters"},
        {"[\"a\\qb\"]", 1, 4, "/0", "unknown escape"},
        {"[\"a\\", 1, 4, "/0", "unknown escape"},
        {"[\"a\\'\"]", 1, 4, "/0", "unknown escape"},
        {"[\"a\\x41\"]", 1, 4, "/0", "unknown escape"},
        {"[\"\\u12\"]", 1, 3, "/0", "four hex digits"},
        {"[\"\\u12G4\"]", 1, 3, "/0", "four hex digits"},
        {"[\"\\u", 1, 3, "/0", "four hex digits"},
        {"[\"\\ud800\"]", 1, 3, "/0", "lone surrogate"},
        {"[\"\\udc00\"]", 1, 3, "/0", "lone surrogate"},
        {"[\"\\ud800x\"]", 1, 3, "/0", "lone surrogate"},
        {"[\"\\ud800\\n\"]", 1, 3, "/0", "lone surrogate"},
        {"[\"\\ud800\\ud800\"]", 1, 3, "/0", "lone surrogate"},
        {"[\"\\ud800\\u00", 1, 3, "/0", "lone surrogate"},
        {"[\"ab\x80\"]", 1, 5, "/0", "not valid UTF-8"},
        {"[\"ab\xC3\"]", 1, 5, "/0", "not valid UTF-8"},
        {"[\"ab\xED\xA0\x80\"]", 1, 5, "/0", "not valid UTF-8"},
        {"[\"ab\xC0\xAF\"]", 1, 5, "/0", "not valid UTF-8"},
        {"[\"ab\xF5\x80\x80\x80\"]", 1, 5, "/0", "not valid UTF-8"},
        {"{\"k\": {\"\\q\": 1}}", 1, 9, "/k", "unknown escape"}, /* a bad key: the object is the open value */
    };
    for (size_t i = 0; i < TD_COUNT(cases); i++) check_bad(&cases[i], strlen(cases[i].text), NULL);
    check_bad(&(bad_case){"\"a\\\0b\"", 1, 3, "", "unknown escape"}, 6, NULL);
}

TEST(lines_and_columns_count_bytes) {
    static const bad_case cases[] = {
        {"{\n  \"\xC3\xA9\xE2\x82\xAC\": x}", 2, 12, "/\xC3\xA9\xE2\x82\xAC", "found 'x'"},
        {"[\r\n1,\r\n\tx]", 3, 2, "/1", "found 'x'"},
        {"[\n\n\n", 4, 1, "", "the end"},
    };
    for (size_t i = 0; i < TD_COUNT(cases); i++) check_bad(&cases[i], strlen(cases[i].text), NULL);
    uint32_t line, column;
    td_text_place(TD_STR("ab\nc"), 100, &line, &column);
    CHECK(line == 2 && column == 2);
    td_text_place((td_str){0}, 0, &line, &column);
    CHECK(line == 1 && column == 1);
}

TEST(duplicate_keys) {
    static const bad_case cases[] = {
        {"{\"a\": 1, \"b\": 2, \"a\": 3}", 1, 18, "/a", "duplicate key \"a\""},
        {"[{\"x\": {\"\": 1, \"\": 2}}]", 1, 16, "/0/x/", "duplicate key \"\""},
        {"{\"a\": 1, \"\\u0061\": 2}", 1, 10, "/a", "duplicate key \"a\""},
        {"{\"a/b~\": 1, \"a/b~\": 2}", 1, 13, "/a~1b~0", "duplicate"},
    };
    for (size_t i = 0; i < TD_COUNT(cases); i++) check_bad(&cases[i], strlen(cases[i].text), NULL);

    for (int n = 2; n < 60; n++) { /* both ways of looking for them */
        td_buf text = {0};
        for (int i = 0; i < n; i++) td_buf_printf(&text, "%s\n\"k%d\": %d", i ? "," : "{", i, i);
        td_buf_printf(&text, ",\n\"k%d\": 0}", n / 2);
        char pointer[16];
        snprintf(pointer, sizeof pointer, "/k%d", n / 2);
        check_bad(&(bad_case){text.p, (unsigned)n + 2, 1, pointer, "duplicate"}, text.n, NULL);
        td_arena arena = {0};
        td_json *root = parse_with(&arena, td_buf_view(&text), &(td_json_options){.allow_duplicate_keys = true});
        CHECK_EQ_INT(root->n, n + 1);
        CHECK_EQ_INT(td_json_int_or(root, pointer + 1, -1), 0); /* the last one */
        td_arena_free(&arena);
        td_buf_free(&text);
    }
}

TEST(huge_object_is_not_quadratic) {
    td_buf text = {0};
    for (int i = 0; i < 200000; i++) td_buf_printf(&text, "%s\"%d\":0", i ? "," : "{", i);
    td_buf_char(&text, '}');
    td_arena arena = {0};
    CHECK_EQ_INT(parse_with(&arena, td_buf_view(&text), NULL)->n, 200000);
    td_arena_free(&arena);
    td_buf_free(&text);
}

TEST(depth) {
    td_arena arena = {0};
    td_json *root;
    treadle_error err;
    for (int way = 0; way < 2; way++) {
        const char *open = way ? "{\"a\":" : "[", *close = way ? "}" : "]";
        td_buf text = {0};
        for (int i = 0; i < 256; i++) td_buf_text(&text, open);
        if (way) td_buf_text(&text, "1");
        for (int i = 0; i < 256; i++) td_buf_text(&text, close);
        CHECK_OK(td_json_parse(td_buf_view(&text), NULL, &arena, &root, &err), &err);
        td_buf deeper = {0};
        td_buf_printf(&deeper, "%s%s%s", way ? "{\"b\":" : "[", text.p, close);
        CHECK_STATUS(td_json_parse(td_buf_view(&deeper), NULL, &arena, &root, &err), TREADLE_LIMIT, &err);
        CHECK_HAS_STR(err.message, "256 levels");
        CHECK_EQ_INT(err.column, 256 * strlen(open) + 1);
        CHECK_OK(td_json_parse(td_buf_view(&deeper), &(td_json_options){.max_depth = 257}, &arena, &root, &err), &err);
        td_buf_free(&deeper);
        td_buf_free(&text);
    }
    CHECK_OK(td_json_parse(TD_STR("7"), &(td_json_options){.max_depth = 1}, &arena, &root, &err), &err);
    CHECK_STATUS(td_json_parse(TD_STR("[[]]"), &(td_json_options){.max_depth = 1}, &arena, &root, &err), TREADLE_LIMIT,
                 NULL);
    CHECK_EQ_STR(err.pointer, "/0");
    td_buf text = {0}; /* far more than any stack holds, if somebody allows it */
    for (int i = 0; i < 300000; i++) td_buf_char(&text, '[');
    for (int i = 0; i < 300000; i++) td_buf_char(&text, ']');
    CHECK_OK(td_json_parse(td_buf_view(&text), &(td_json_options){.max_depth = UINT32_MAX}, &arena, &root, &err), &err);
    td_buf out = {0};
    td_json_writer w;
    td_json_writer_init(&w, &out, 0);
    td_json_write_value(&w, root);
    CHECK(td_str_equal(td_buf_view(&out), td_buf_view(&text)));
    td_buf_free(&out);
    td_buf_free(&text);
    td_arena_free(&arena);
}

TEST(nonfinite_on_request) {
    td_arena arena = {0};
    td_json *root = parse_with(&arena, TD_STR("[NaN, Infinity, -Infinity, 1e999, -1e999, -1]"),
                               &(td_json_options){.allow_nonfinite = true});
    CHECK(isnan(td_json_at(root, 0)->as_double));
    CHECK(td_json_at(root, 1)->as_double == INFINITY && td_json_at(root, 3)->as_double == INFINITY);
    CHECK(td_json_at(root, 2)->as_double == -INFINITY && td_json_at(root, 4)->as_double == -INFINITY);
    CHECK_EQ_INT(td_json_at(root, 5)->as_int, -1);
    check_bad(&(bad_case){"[-Infinit]", 1, 2, "/0", "found '-Infinit'"}, 10,
              &(td_json_options){.allow_nonfinite = true});
    td_arena_free(&arena);
}

TEST(fallbacks) {
    td_arena arena = {0};
    td_json *root = parse(&arena, "{\"b\": true, \"i\": 4, \"d\": 0.5, \"s\": \"x\", \"n\": null}");
    CHECK_EQ_INT(td_json_bool_or(root, "b", false), 1);
    CHECK_EQ_INT(td_json_bool_or(root, "i", false), 0);
    CHECK_EQ_INT(td_json_int_or(root, "i", 9), 4);
    CHECK_EQ_INT(td_json_int_or(root, "d", 9), 9);
    CHECK_EQ_INT(td_json_int_or(root, "n", 9), 9);
    CHECK_NEAR(td_json_double_or(root, "d", 9), 0.5, 0);
    CHECK_NEAR(td_json_double_or(root, "i", 9), 4, 0);
    CHECK_NEAR(td_json_double_or(NULL, "i", 9), 9, 0);
    CHECK(td_str_is(td_json_string_or(root, "s", "y"), "x"));
    CHECK(td_str_is(td_json_string_or(root, "i", "y"), "y"));
    CHECK(td_json_string_or(root, "missing", NULL).p == NULL);
    CHECK_EQ_STR(td_json_kind_name(TD_JSON_OBJECT), "an object");
    td_arena_free(&arena);
}

TEST(pointers) {
    td_arena arena = {0};
    td_json *root = parse(&arena, "{\"a\": [0, {\"b/c\": [1, 2]}], \"m~n\": 3}");
    td_buf text = {0};
    td_json_pointer(td_json_at(td_json_get(td_json_at(td_json_get(root, "a"), 1), "b/c"), 1), &text);
    CHECK_EQ_STR(text.p, "/a/1/b~1c/1");
    td_buf_clear(&text);
    td_json_pointer(td_json_get(root, "m~n"), &text);
    CHECK_EQ_STR(text.p, "/m~0n");
    td_buf_free(&text);
    td_arena_free(&arena);
}
