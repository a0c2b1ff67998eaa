/* base/json.h, the writer. Expected texts of one line are what json.dumps of Python 3.11 gives with
 * ensure_ascii=False. */
#include "support/test.h"

#include "base/json.h"

#include <math.h>

static td_json_writer start(td_buf *out, int indent) {
    td_json_writer w;
    td_json_writer_init(&w, out, indent);
    return w;
}

static void write_sample(td_json_writer *w) {
    td_json_begin_object(w);
    td_json_key(w, "list");
    td_json_begin_array(w);
    td_json_write_int(w, INT64_MIN);
    td_json_write_double(w, 0.5);
    td_json_write_bool(w, true);
    td_json_write_bool(w, false);
    td_json_write_null(w);
    td_json_begin_array(w);
    td_json_end_array(w);
    td_json_begin_object(w);
    td_json_end_object(w);
    td_json_end_array(w);
    td_json_key_str(w, TD_STR("te\"xt"));
    td_json_write_text(w, "x");
    td_json_end_object(w);
}

TEST(one_line) {
    td_buf out = {0};
    td_json_writer w = start(&out, 0);
    write_sample(&w);
    CHECK_EQ_STR(out.p, "{\"list\": [-9223372036854775808, 0.5, true, false, null, [], {}], \"te\\\"xt\": \"x\"}");
    td_buf_free(&out);
}

TEST(indented) {
    td_buf out = {0};
    td_json_writer w = start(&out, 2);
    write_sample(&w);
    CHECK_EQ_STR(
        out.p,
        "{\n  \"list\": [\n    -9223372036854775808,\n    0.5,\n    true,\n    false,\n    null,\n    [],\n    {}\n"
        "  ],\n  \"te\\\"xt\": \"x\"\n}");
    td_buf_free(&out);
}

static void check_string(td_str text, const char *expected) {
    td_buf out = {0};
    td_json_writer w = start(&out, 0);
    td_json_write_string(&w, text);
    CHECK_EQ_STR(out.p, expected);
    td_buf_free(&out);
}

TEST(strings) {
    check_string(TD_STR(""), "\"\"");
    check_string((td_str){0}, "\"\"");
    check_string(TD_STR("a\"\\/\b\f\n\r\t\x01\x1f\x7f\0z"), "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\\u0000z\"");
    check_string(TD_STR("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"), "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"");
    check_string(TD_STR("a\xFFz\xE2\x82"), "\"a\xEF\xBF\xBDz\xEF\xBF\xBD\"");
}

static void check_double(double value, const char *expected) {
    td_buf out = {0};
    td_json_writer w = start(&out, 0);
    td_json_write_double(&w, value);
    CHECK_EQ_STR(out.p, expected);
    td_buf_free(&out);
}

TEST(doubles) {
    check_double(1, "1.0");
    check_double(-3, "-3.0");
    check_double(0.1, "0.1");
    check_double(1e22, "1e+22");
    check_double(0.1 + 0.2, "0.30000000000000004");
    check_double(NAN, "null");
    check_double(-INFINITY, "null");
}

TEST(tree_round_trip) {
    const char *text =
        "{\"a\": [1, 2.0, 1.5e+300, {\"b\": {}, \"c\": [[], [null, true]]}, \"\\u0000\\n\"], \"\": false, \"d\": {\"e\": 1}}";
    td_arena arena = {0};
    td_json *root;
    treadle_error err;
    CHECK_OK(td_json_parse(td_str_from(text), NULL, &arena, &root, &err), &err);
    td_buf out = {0};
    td_json_writer w = start(&out, 0);
    td_json_write_value(&w, root);
    CHECK_EQ_STR(out.p, text);
    td_buf_clear(&out);
    w = start(&out, 0);
    td_json_begin_array(&w); /* a part of a tree inside something else */
    td_json_write_value(&w, td_json_get(root, "d"));
    td_json_write_value(&w, td_json_at(td_json_get(root, "a"), 3));
    td_json_end_array(&w);
    CHECK_EQ_STR(out.p, "[{\"e\": 1}, {\"b\": {}, \"c\": [[], [null, true]]}]");
    td_buf_free(&out);
    td_arena_free(&arena);
}
