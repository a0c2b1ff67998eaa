/* base/str.h and base/map.h: views, buffers, typed arrays, the hash map. */
#include "support/test.h"

#include "base/map.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>

TEST(views) {
    td_str text = TD_STR("shuttle"), none = {0};
    CHECK(td_str_starts(text, TD_STR("shut")) && !td_str_starts(text, TD_STR("hut")) && td_str_starts(text, none));
    CHECK(td_str_ends(text, TD_STR("tle")) && !td_str_ends(text, TD_STR("tl")) && td_str_ends(text, none));
    CHECK(!td_str_starts(TD_STR("sh"), text) && !td_str_ends(TD_STR("le"), text));
    CHECK_EQ_INT(td_str_find(text, TD_STR("tt")), 3);
    CHECK_EQ_INT(td_str_find(text, TD_STR("tx")), -1);
    CHECK_EQ_INT(td_str_find(text, none), 0);
    CHECK_EQ_INT(td_str_find(none, text), -1);
    CHECK(td_str_is(none, "") && td_str_is(none, NULL) && td_str_equal(none, TD_STR("")));
    CHECK_EQ_INT(td_str_find(TD_STR("a\0b\0c"), TD_STR("\0c")), 3);
}

TEST(compare) {
    CHECK(td_str_compare(TD_STR("a"), TD_STR("b")) < 0);
    CHECK(td_str_compare(TD_STR("ab"), TD_STR("a")) > 0);
    CHECK(td_str_compare(TD_STR("a"), TD_STR("ab")) < 0);
    CHECK(td_str_compare(TD_STR("\xff"), TD_STR("a")) > 0);
    CHECK_EQ_INT(td_str_compare((td_str){0}, TD_STR("")), 0);
}

TEST(glob) {
    static const struct {
        const char *pattern, *text;
        bool matches;
    } cases[] = {
        {"", "", true},
        {"", "a", false},
        {"*", "", true},
        {"a*", "abc", true},
        {"*c", "abc", true},
        {"a*c", "abcbc", true},
        {"a?c", "abc", true},
        {"a?c", "ac", false},
        {"*b*", "abc", true},
        {"*d*", "abc", false},
        {"**a**", "a", true},
        {"a", "ab", false},
        {"*.onnx", "x.on", false},
        {"a*b*c", "aXbXbXc", true},
        {"?", "", false},
        {"*?", "a", true},
    };
    for (size_t i = 0; i < TD_COUNT(cases); i++) {
        if (td_glob(cases[i].pattern, cases[i].text) != cases[i].matches)
            FAIL("glob %s on %s", cases[i].pattern, cases[i].text);
    }
    char text[4001], pattern[2001]; /* would take for ever if every '*' were retried */
    memset(text, 'a', 4000);
    for (int i = 0; i < 2000; i += 2) memcpy(pattern + i, "*a", 2);
    text[4000] = pattern[2000] = '\0';
    pattern[1999] = 'b';
    CHECK(!td_glob(pattern, text));
}

TEST(buf_appends) {
    td_buf buf = {0};
    CHECK(td_buf_view(&buf).n == 0);
    td_buf_append(&buf, NULL, 0);
    CHECK_EQ_STR(buf.p, "");
    td_buf_text(&buf, "one ");
    td_buf_char(&buf, '2');
    td_buf_str(&buf, TD_STR(" three"));
    td_buf_printf(&buf, " %d%s", 4, "!");
    CHECK_EQ_STR(buf.p, "one 2 three 4!");
    CHECK_EQ_INT(buf.n, 14);
    for (int i = 0; i < 1000; i++) td_buf_printf(&buf, "%0*d", i % 90 + 1, i % 10);
    CHECK(!buf.failed && strlen(buf.p) == buf.n);
    td_buf_clear(&buf);
    CHECK_EQ_STR(buf.p, "");
    CHECK_EQ_INT(buf.n, 0);
    td_buf_free(&buf);
    CHECK(!buf.p);
}

TEST(buf_refuses_overflow) {
    td_buf buf = {0};
    td_buf_text(&buf, "kept");
    CHECK(!td_buf_reserve(&buf, SIZE_MAX));
    CHECK(!td_buf_reserve(&buf, SIZE_MAX - 4));
    CHECK(buf.failed);
    td_buf_text(&buf, "!");
    CHECK(buf.failed); /* stays set */
    CHECK_EQ_STR(buf.p, "kept!");
    td_buf_free(&buf);
}

TEST(vec_grows) {
    TD_VEC(uint32_t) v = {0};
    for (uint32_t i = 0; i < 1000; i++) REQUIRE(td_vec_push(&v, i * 3));
    CHECK_EQ_INT(v.n, 1000);
    for (uint32_t i = 0; i < 1000; i++) CHECK_EQ_INT(v.items[i], i * 3);
    CHECK(!td_vec_reserve(&v, SIZE_MAX / 2));
    CHECK(td_vec_reserve(&v, 5000) && v.capacity >= 5000 && v.items[999] == 2997);
    td_vec_free(&v);
    CHECK(!v.items && v.n == 0);
}

TEST(map_sets_and_gets) {
    enum { N = 20000 };
    char(*keys)[16] = malloc(sizeof(*keys) * N);
    REQUIRE(keys != NULL);
    td_map map = {0};
    CHECK(!td_map_get(&map, TD_STR("x"), NULL));
    for (int i = 0; i < N; i++) {
        snprintf(keys[i], sizeof keys[i], "key %d", i * 7);
        REQUIRE(td_map_set(&map, td_str_from(keys[i]), (uint64_t)i));
    }
    CHECK_EQ_INT(map.n, N);
    for (int i = 0; i < N; i++) {
        uint64_t value = 0;
        char again[16];
        strcpy(again, keys[i]);
        if (!td_map_get(&map, td_str_from(again), &value) || value != (uint64_t)i) FAIL("key %d", i);
    }
    uint64_t untouched = 5;
    CHECK(!td_map_get(&map, TD_STR("key 1"), &untouched));
    CHECK_EQ_INT(untouched, 5);
    REQUIRE(td_map_set(&map, TD_STR("key 7"), 99));
    CHECK_EQ_INT(map.n, N);
    CHECK(td_map_get(&map, TD_STR("key 7"), &untouched) && untouched == 99);
    td_map_free(&map);
    free(keys);
}

TEST(map_empty_key_and_bytes) {
    td_map map = {0};
    REQUIRE(td_map_set(&map, (td_str){0}, 1));
    REQUIRE(td_map_set(&map, TD_STR("a\0b"), 2));
    REQUIRE(td_map_set(&map, TD_STR("a\0c"), 3));
    uint64_t value = 0;
    CHECK(td_map_get(&map, TD_STR(""), &value) && value == 1);
    CHECK(td_map_get(&map, TD_STR("a\0c"), &value) && value == 3);
    CHECK_EQ_INT(map.n, 3);
    td_map_free(&map);
}

TEST(map_reserve_is_enough) {
    td_map map = {0};
    REQUIRE(td_map_reserve(&map, 1000));
    size_t capacity = map.capacity;
    char keys[1000][12];
    for (int i = 0; i < 1000; i++) {
        snprintf(keys[i], sizeof keys[i], "%d", i);
        REQUIRE(td_map_set(&map, td_str_from(keys[i]), 0));
    }
    CHECK_EQ_INT(map.capacity, capacity);
    CHECK(!td_map_reserve(&map, SIZE_MAX));
    td_map_free(&map);
}

TEST(hash_is_xxh3) {
    /* From the xxhash package for Python: xxh3_64_intdigest(b"", seed=0) and so on. */
    CHECK_EQ_UINT(td_hash(NULL, 0, 0), 0x2d06800538d394c2u);
    CHECK_EQ_UINT(td_hash("treadle", 7, 0), 0xb7b026abb9d115bbu);
    CHECK_EQ_UINT(td_hash("treadle", 7, 1), 0x69820377accf423eu);
}
