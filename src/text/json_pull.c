/* text/json_pull.c - see json_pull.h. Source: RFC 8259. */
#include "text/json_pull.h"

#include "base/json.h"
#include "base/number.h"
#include "base/utf8.h"

#include <stdio.h>

void td_pull_init(td_pull *pull, td_str text, size_t begin, size_t end, treadle_error *err) {
    *pull = (td_pull){.text = text, .at = begin, .end = end, .err = err};
}

void td_pull_free(td_pull *pull) { td_buf_free(&pull->scratch); }

char td_pull_peek(td_pull *pull) {
    while (pull->at < pull->end) {
        char c = pull->text.p[pull->at];
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return c;
        pull->at++;
    }
    return 0;
}

size_t td_pull_offset(td_pull *pull) {
    td_pull_peek(pull);
    return pull->at;
}

/* "expected X, found c" */
static treadle_status fail(td_pull *pull, size_t offset, const char *expected) {
    char found[32] = "the end of the text";
    if (offset < pull->end) {
        unsigned c = (uint8_t)pull->text.p[offset];
        snprintf(found, sizeof found, c > 0x20 && c < 0x7F ? "'%c'" : "byte 0x%02x", c);
    }
    td_fail(pull->err, TREADLE_FORMAT, "expected %s, found %s", expected, found);
    uint32_t line, column;
    td_text_place(pull->text, offset, &line, &column);
    td_error_place(pull->err, line, column);
    return TREADLE_FORMAT;
}

/* takes it if it is c */
static bool take(td_pull *pull, char c) {
    if (td_pull_peek(pull) != c || pull->at >= pull->end) return false;
    pull->at++;
    return true;
}

treadle_status td_pull_expect(td_pull *pull, char c) {
    char text[4] = {'\'', c, '\'', 0};
    return take(pull, c) ? TREADLE_OK : fail(pull, pull->at, text);
}

treadle_status td_pull_more(td_pull *pull, char close, bool first, bool *more) {
    *more = false;
    if (take(pull, close)) return TREADLE_OK;
    if (!first) TD_TRY(td_pull_expect(pull, ','));
    *more = true;
    return TREADLE_OK;
}

/* Appends what the escape at pull->at (the byte after the backslash) stands for, and moves past it. */
static treadle_status unescape(td_pull *pull) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *p = pull->text.p;
    if (pull->at >= pull->end) return fail(pull, pull->at, "an escape");
    char c = p[pull->at++];
    if (c != 'u') {
        const char *place = c ? strchr(from, c) : NULL;
        if (!place) return fail(pull, pull->at - 1, "one of the escapes \" \\ / b f n r t u");
        td_buf_char(&pull->scratch, to[place - from]);
        return TREADLE_OK;
    }
    size_t start = pull->at;
    int32_t unit = td_parse_hex4(p + start, p + pull->end);
    if (unit < 0) return fail(pull, start, "four hex digits");
    pull->at += 4;
    uint32_t code_point = (uint32_t)unit;
    if (unit >= 0xD800 && unit < 0xDC00 && pull->end - pull->at >= 6 && p[pull->at] == '\\' && p[pull->at + 1] == 'u') {
        int32_t low = td_parse_hex4(p + pull->at + 2, p + pull->end);
        if (low >= 0xDC00 && low < 0xE000) {
            code_point = 0x10000u + ((uint32_t)(unit - 0xD800) << 10) + (uint32_t)(low - 0xDC00);
            pull->at += 6;
        }
    }
    char utf8[4];
    int n = td_utf8_encode(code_point, utf8);
    if (n == 0) return fail(pull, start, "a pair of surrogates");
    td_buf_append(&pull->scratch, utf8, (size_t)n);
    return TREADLE_OK;
}

treadle_status td_pull_string(td_pull *pull, td_str *out) {
    if (!take(pull, '"')) return fail(pull, pull->at, "a string");
    const char *p = pull->text.p;
    size_t start = pull->at, run = start;
    bool escaped = false, ascii = true;
    td_buf_clear(&pull->scratch);
    for (;;) {
        if (pull->at >= pull->end) return fail(pull, pull->at, "the end of a string");
        uint8_t c = (uint8_t)p[pull->at];
        if (c == '"') break;
        if (c < 0x20) return fail(pull, pull->at, "no control character in a string");
        ascii &= c < 0x80;
        pull->at++;
        if (c != '\\') continue;
        escaped = true;
        td_buf_append(&pull->scratch, p + run, pull->at - 1 - run);
        TD_TRY(unescape(pull));
        run = pull->at;
    }
    *out = (td_str){p + start, pull->at - start};
    if (escaped) {
        td_buf_append(&pull->scratch, p + run, pull->at - run);
        if (pull->scratch.failed) return td_fail_memory(pull->err, "a JSON string", pull->at - start);
        *out = td_buf_view(&pull->scratch);
    }
    pull->at++;
    if (!ascii && !td_utf8_valid(*out)) return fail(pull, start, "UTF-8");
    return TREADLE_OK;
}

treadle_status td_pull_int(td_pull *pull, int64_t *out) {
    size_t start = td_pull_offset(pull);
    while (pull->at < pull->end && pull->text.p[pull->at] && strchr("+-0123456789.eE", pull->text.p[pull->at]))
        pull->at++;
    td_str digits = {pull->text.p + start, pull->at - start};
    return td_parse_int(digits, out) ? TREADLE_OK : fail(pull, start, "a whole number of 64 bits");
}

/* Moves behind the string at the reader. */
static treadle_status skip_string(td_pull *pull) {
    for (pull->at++; pull->at < pull->end; pull->at++) {
        char c = pull->text.p[pull->at];
        if (c == '\\') {
            pull->at++;
        } else if (c == '"') {
            pull->at++;
            return TREADLE_OK;
        }
    }
    pull->at = pull->end;
    return fail(pull, pull->at, "the end of a string");
}

/* Moves behind the number or word at the reader. */
static treadle_status skip_word(td_pull *pull) {
    size_t start = pull->at;
    while (pull->at < pull->end && (uint8_t)pull->text.p[pull->at] > ' ' && !strchr(",:{}[]\"", pull->text.p[pull->at]))
        pull->at++;
    return pull->at > start ? TREADLE_OK : fail(pull, pull->at, "a value");
}

treadle_status td_pull_skip(td_pull *pull, size_t *n_items) {
    size_t depth = 0, n_commas = 0, n_values = 0;
    do {
        char c = td_pull_peek(pull);
        if (pull->at >= pull->end) return fail(pull, pull->at, "a value");
        n_values++;
        switch (c) {
        case '"': TD_TRY(skip_string(pull)); break;
        case '{':
        case '[':
            depth++;
            pull->at++;
            break;
        case '}':
        case ']':
        case ',':
        case ':':
            if (depth == 0) return fail(pull, pull->at, "a value");
            depth -= c == '}' || c == ']';
            n_commas += c == ',' && depth == 1;
            pull->at++;
            break;
        default: TD_TRY(skip_word(pull)); break;
        }
    } while (depth > 0);
    if (n_items) *n_items = n_values > 2 ? n_commas + 1 : 0;
    return TREADLE_OK;
}
