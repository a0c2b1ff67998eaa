/* base/utf8.h, base/number.h, base/rng.h, base/time.h, base/log.h. */
#include "support/test.h"

#include "base/log.h"
#include "base/number.h"
#include "base/rng.h"
#include "base/time.h"
#include "base/utf8.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>

static char *replaced(td_str text, td_buf *buf) {
    td_buf_clear(buf);
    td_utf8_replace_invalid(text, buf);
    return buf->p;
}

TEST(utf8_replaces_like_python) {
    /* bytes.decode("utf-8", "replace") of Python 3.11 */
    static const struct {
        td_str text;
        const char *replaced;
    } cases[] = {
        {{"plain", 5}, "plain"},
        {{"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", 9}, "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"},
        {{"a\x80z", 3}, "a\xEF\xBF\xBDz"},
        {{"\xC0\xAF", 2}, "\xEF\xBF\xBD\xEF\xBF\xBD"},                                 /* overlong */
        {{"\xE0\x80\xAF", 3}, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},                 /* overlong */
        {{"\xED\xA0\x80", 3}, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},                 /* surrogate */
        {{"\xF4\x90\x80\x80", 4}, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"}, /* past U+10FFFF */
        {{"\xE2\x82z", 3}, "\xEF\xBF\xBDz"},                                           /* maximal subpart */
        {{"\xF0\x9F\x98z", 4}, "\xEF\xBF\xBDz"},
        {{"\xF0\x9F\x98", 3}, "\xEF\xBF\xBD"},
        {{"\xE2\x82\xE2\x82\xAC", 5}, "\xEF\xBF\xBD\xE2\x82\xAC"},
        {{"\xFF\xFE", 2}, "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {{"\xF5\x80", 2}, "\xEF\xBF\xBD\xEF\xBF\xBD"},
    };
    td_buf buf = {0};
    for (size_t i = 0; i < TD_COUNT(cases); i++) {
        CHECK_EQ_STR(replaced(cases[i].text, &buf), cases[i].replaced);
        CHECK_EQ_INT(td_utf8_valid(cases[i].text), td_str_is(cases[i].text, cases[i].replaced));
    }
    CHECK_EQ_STR(replaced((td_str){0}, &buf), "");
    td_buf_free(&buf);
}

TEST(utf8_every_code_point_round_trips) {
    char bytes[4];
    uint32_t back;
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        int n = td_utf8_encode(c, bytes);
        bool surrogate = c >= 0xD800 && c <= 0xDFFF;
        if (surrogate ? n != 0 : td_utf8_decode(bytes, (size_t)n, &back, NULL, NULL) != n || back != c)
            FAIL("U+%04X", c);
    }
    CHECK_EQ_INT(td_utf8_encode(0x110000, bytes), 0);
}

TEST(utf8_incomplete) {
    uint32_t c;
    int bad;
    bool incomplete;
    CHECK_EQ_INT(td_utf8_decode("\xF0\x9F\x98", 3, &c, &bad, &incomplete), 0);
    CHECK(bad == 3 && incomplete);
    CHECK_EQ_INT(td_utf8_decode("\xF0\x41", 2, &c, &bad, &incomplete), 0);
    CHECK(bad == 1 && !incomplete);
    CHECK_EQ_INT(td_utf8_decode("\xE0\x80", 2, &c, &bad, &incomplete), 0);
    CHECK(bad == 1 && !incomplete);
    static const struct {
        const char *text;
        size_t prefix;
    } cases[] = {{"abc", 3},
                 {"ab\xC3", 2},
                 {"ab\xC3\xA9", 4},
                 {"a\xE2\x82", 1},
                 {"a\xF0\x9F\x98", 1},
                 {"a\x80", 2},
                 {"a\x80\x80\x80\x80", 5},
                 {"a\xED\xA0", 3},
                 {"", 0},
                 {"\xF0", 0},
                 {"a\xC0", 2},
                 {"a\xF0\x9F\x98\x80", 5},
                 {"\xF4\x90", 2},
                 {"\xE2\x82\xE2", 2}};
    for (size_t i = 0; i < TD_COUNT(cases); i++)
        CHECK_EQ_INT(td_utf8_complete_prefix(td_str_from(cases[i].text)), cases[i].prefix);
}

static double read_double(const char *text) {
    double value = NAN;
    td_parse_double(td_str_from(text), &value);
    return value;
}

TEST(doubles_are_read_exactly) {
    /* What the compiler makes of the same text. */
    CHECK_EQ_MEM(&(double){read_double("0.1")}, &(double){0.1}, 8);
    CHECK_EQ_MEM(&(double){read_double("-0.0")}, &(double){-0.0}, 8);
    CHECK_EQ_MEM(&(double){read_double("1e22")}, &(double){1e22}, 8);
    CHECK_EQ_MEM(&(double){read_double("1e23")}, &(double){1e23}, 8);
    CHECK_EQ_MEM(&(double){read_double("8.41e21")}, &(double){8.41e21}, 8);
    CHECK_EQ_MEM(&(double){read_double("5e-324")}, &(double){5e-324}, 8);
    CHECK_EQ_MEM(&(double){read_double("2.2250738585072011e-308")}, &(double){2.2250738585072011e-308}, 8);
    CHECK_EQ_MEM(&(double){read_double("9007199254740993")}, &(double){9007199254740993.0}, 8);
    CHECK_EQ_MEM(&(double){read_double("1.7976931348623157e308")}, &(double){1.7976931348623157e308}, 8);
    CHECK_EQ_MEM(&(double){read_double("123456789012345678901234567890")}, &(double){123456789012345678901234567890.0},
                 8);
    CHECK_EQ_MEM(&(double){read_double("0.000000000000000000000000000001e30")}, &(double){1.0}, 8);
    CHECK_EQ_INT(read_double("1e-400") == 0, 1);
    CHECK_EQ_INT(read_double("0e999999999999999999999") == 0, 1);
    CHECK(isnan(read_double("1e400")));
    CHECK(isnan(read_double("1e99999999999999999999")));
    const char *const not_numbers[] = {"",   "-",  ".",    "e5",  "1e",  "1e+",   "1x",
                                       " 1", "1 ", "0x10", "inf", "nan", "1.2.3", "--1"};
    for (size_t i = 0; i < TD_COUNT(not_numbers); i++) CHECK(isnan(read_double(not_numbers[i])));
    CHECK(!td_parse_double((td_str){0}, &(double){0}) && !td_parse_int((td_str){0}, &(int64_t){0}));
    CHECK_NEAR(read_double("+5."), 5, 0);
    CHECK_NEAR(read_double(".5"), 0.5, 0);
}

TEST(doubles_with_very_many_digits) {
    /* 1 + 2^-53 lies half way between 1 and the next double: exactly there it goes to 1, one digit more and it goes up,
     * however far behind that digit is. */
    td_buf text = {0};
    td_buf_text(&text, "1.00000000000000011102230246251565404236316680908203125");
    CHECK_EQ_MEM(&(double){read_double(text.p)}, &(double){1.0}, 8);
    for (int i = 0; i < 3000; i++) td_buf_char(&text, '0');
    CHECK_EQ_MEM(&(double){read_double(text.p)}, &(double){1.0}, 8);
    td_buf_char(&text, '1');
    CHECK_EQ_MEM(&(double){read_double(text.p)}, &(double){1.0 + 0x1p-52}, 8);
    td_buf_clear(&text);
    td_buf_char(&text, '3');
    for (int i = 0; i < 3000; i++) td_buf_char(&text, '0');
    td_buf_text(&text, "e-3000");
    CHECK_NEAR(read_double(text.p), 3, 0);
    td_buf_free(&text);
}

TEST(doubles_round_trip) {
    uint64_t seed = 9;
    for (int i = 0; i < 100000; i++) {
        uint64_t bits = td_test_random(&seed);
        double value, back = 0;
        memcpy(&value, &bits, 8);
        if (!isfinite(value)) continue;
        char text[TD_DOUBLE_TEXT_BYTES];
        int n = td_format_double(value, text);
        if (n != (int)strlen(text) || !td_parse_double(td_str_from(text), &back) || memcmp(&back, &value, 8) != 0)
            FAIL("%a -> %s -> %a", value, text, back);
    }
}

TEST(doubles_are_short) {
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0.1, "0.1"},
                 {1, "1"},
                 {-2.5, "-2.5"},
                 {1e22, "1e+22"},
                 {1.0 / 3, "0.3333333333333333"},
                 {0.1 + 0.2, "0.30000000000000004"},
                 {5e-324, "4.94065645841247e-324"},
                 {INFINITY, "inf"},
                 {-INFINITY, "-inf"},
                 {NAN, "nan"},
                 {0, "0"},
                 {-0.0, "-0"}};
    for (size_t i = 0; i < TD_COUNT(cases); i++) {
        char text[TD_DOUBLE_TEXT_BYTES];
        CHECK_EQ_INT(td_format_double(cases[i].value, text), strlen(cases[i].text));
        CHECK_EQ_STR(text, cases[i].text);
    }
}

TEST(numbers_do_not_follow_the_locale) {
    const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "ru_RU.UTF-8", "ps_AF.UTF-8"};
    bool set = false;
    for (size_t i = 0; i < TD_COUNT(names) && !set; i++) set = setlocale(LC_NUMERIC, names[i]) != NULL;
    if (!set) SKIP("no locale with another decimal point is installed");
    char text[TD_DOUBLE_TEXT_BYTES];
    CHECK_EQ_INT(td_format_double(0.1 + 0.2, text), 19);
    CHECK_EQ_STR(text, "0.30000000000000004");
    CHECK_NEAR(read_double("0.30000000000000004"), 0.1 + 0.2, 0);
    CHECK_NEAR(read_double("1.5"), 1.5, 0);
    setlocale(LC_NUMERIC, "C");
}

TEST(integers) {
    int64_t value = 7;
    CHECK(td_parse_int(TD_STR("9223372036854775807"), &value) && value == INT64_MAX);
    CHECK(td_parse_int(TD_STR("-9223372036854775808"), &value) && value == INT64_MIN);
    CHECK(td_parse_int(TD_STR("+12"), &value) && value == 12);
    CHECK(td_parse_int(TD_STR("-0"), &value) && value == 0);
    value = 7;
    const char *const bad[] = {"",   "-",  "+",   "9223372036854775808", "-9223372036854775809", "1.0",
                               " 1", "1 ", "0x1", "99999999999999999999"};
    for (size_t i = 0; i < TD_COUNT(bad); i++) CHECK(!td_parse_int(td_str_from(bad[i]), &value));
    CHECK_EQ_INT(value, 7);
}

TEST(rng_is_pcg32) {
    /* The demo output of the reference implementation, seed 42, stream 54. */
    static const uint32_t expected[] = {0xa15c02b7, 0x7b47f409, 0xba1d3330, 0x83d2f293, 0xbfa4784b, 0xcbed606e};
    td_rng rng;
    td_rng_seed(&rng, 42, 54);
    for (size_t i = 0; i < TD_COUNT(expected); i++) CHECK_EQ_UINT(td_rng_u32(&rng), expected[i]);
    double sum = 0;
    for (int i = 0; i < 100000; i++) {
        double x = td_rng_double(&rng);
        if (!(x >= 0 && x < 1)) FAIL("%g", x);
        sum += x;
    }
    CHECK_NEAR(sum / 100000, 0.5, 0.005);
}

TEST(clock_and_memory) {
    uint64_t a = td_time_ns(), b = td_time_ns();
    CHECK(b >= a);
    CHECK(td_peak_rss_bytes() > 100000);
}

static void keep(void *ctx, td_log_level level, const char *text) {
    td_buf *buf = ctx;
    td_buf_printf(buf, "%d:%s;", level, text);
    td_log(TD_LOG_ERROR, "from inside"); /* dropped, not a deadlock */
}

TEST(log_levels_and_sink) {
    td_buf seen = {0};
    td_log_set(TD_LOG_INFO, keep, &seen);
    td_log(TD_LOG_ERROR, "a %d", 1);
    td_log(TD_LOG_INFO, "b");
    td_log(TD_LOG_DEBUG, "c");
    td_log_set(TD_LOG_WARNING, NULL, NULL);
    td_log(TD_LOG_INFO, "d");
    CHECK_EQ_STR(seen.p, "0:a 1;2:b;");
    td_buf_free(&seen);
}
