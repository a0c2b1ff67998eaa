/* base/json.c - the JSON reader (RFC 8259), one pass, no recursion.
 *
 * The tree itself is the stack: every value knows its parent, and while a container is open its `next`, which it does
 * not need before a sibling follows, points at its last child so far. Strings without escapes are not copied. Lines and
 * columns are counted only when an error needs them. */
#include "base/json.h"

#include "base/map.h"
#include "base/number.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>

typedef struct reader {
    td_str text;
    const char *p, *end; /* the next byte; after the last */
    td_arena *arena;
    td_json *open; /* innermost open container */
    uint32_t depth, max_depth;
    bool duplicates, nonfinite;
    treadle_error *err;
} reader;

static uint32_t offset_of(const reader *r, const char *p) { return (uint32_t)(p - r->text.p); }

/* --- errors */

/* Adds the place of byte `at` and the pointer of `value` to the error, if it has been filled. Returns code. */
static treadle_status place_error(const reader *r, const char *at, const td_json *value, treadle_status code) {
    if (!r->err) return code;
    uint32_t line, column;
    td_text_place(r->text, offset_of(r, at), &line, &column);
    td_error_place(r->err, line, column);
    td_buf pointer = {0};
    if (value) td_json_pointer(value, &pointer);
    if (pointer.p) td_error_pointer(r->err, "%s", pointer.p);
    td_buf_free(&pointer);
    return code;
}

enum { FOUND_BYTES = 64 };

static bool is_word(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '+' ||
           c == '-' || c == '.';
}

/* What stands at byte `at`, for "expected ..., found ...": a word, a character, or a name for it. */
static const char *found(const reader *r, const char *at, char out[FOUND_BYTES]) {
    if (at >= r->end) return "the end of the text";
    if (*at == '"') return "a string";
    size_t n = 0, left = (size_t)(r->end - at);
    while (n < left && n < 32 && is_word(at[n])) n++;
    if (n == 0) {
        uint32_t code_point;
        n = (size_t)td_utf8_decode(at, left, &code_point, NULL, NULL);
        if (n == 0 || code_point < 0x20) {
            snprintf(out, FOUND_BYTES, "byte 0x%02x", (unsigned)(uint8_t)*at);
            return out;
        }
    }
    snprintf(out, FOUND_BYTES, "'%.*s'", (int)n, at);
    return out;
}

/* "expected WHAT, found TOKEN" at the token; `value` is the innermost open value. */
static treadle_status unexpected(const reader *r, const char *at, const td_json *value, const char *what) {
    char text[FOUND_BYTES];
    td_fail(r->err, TREADLE_FORMAT, "expected %s, found %s", what, found(r, at, text));
    if (at < r->end && (*at == '/' || *at == '#')) td_error_hint(r->err, "JSON has no comments");
    if (at < r->end && *at == '\'') td_error_hint(r->err, "JSON strings are in double quotes");
    return place_error(r, at, value, TREADLE_FORMAT);
}

static treadle_status no_memory(const reader *r, size_t bytes) { return td_fail_memory(r->err, "a JSON value", bytes); }

/* --- strings */

/* Bytes that end the fast path inside a string: quote, backslash, control characters, non-ASCII. A byte's high bit is
 * set for each; what stands above the lowest set one may be wrong (borrows), so only that one is used. */
static uint64_t special_bytes(uint64_t x) {
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    uint64_t quote = x ^ (ones * '"'), backslash = x ^ (ones * '\\');
    return (((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) | ((x - ones * 0x20) & ~x) | x) & high;
}

/* Reads the escape at p (a backslash) into *code_point; returns its length, or 0 with the fault in *why. */
static int read_escape(const char *p, const char *end, uint32_t *code_point, const char **why) {
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char *letter = p + 1 < end && p[1] ? strchr(letters, p[1]) : NULL;
    if (letter) {
        *code_point = (uint32_t)meanings[letter - letters];
        return 2;
    }
    *why = "unknown escape in a string (JSON has \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX)";
    if (p + 1 >= end || p[1] != 'u') return 0;
    int32_t unit = td_parse_hex4(p + 2, end);
    *why = "\\u in a string needs four hex digits";
    if (unit < 0) return 0;
    *code_point = (uint32_t)unit;
    if (unit < 0xD800 || unit > 0xDFFF) return 6;
    int32_t low = unit < 0xDC00 && end - p >= 8 && p[6] == '\\' && p[7] == 'u' ? td_parse_hex4(p + 8, end) : -1;
    *why = "lone surrogate in a string: \\uD800 to \\uDBFF and \\uDC00 to \\uDFFF come in pairs";
    if (low < 0xDC00 || low > 0xDFFF) return 0;
    *code_point = 0x10000 + ((uint32_t)(unit - 0xD800) << 10) + (uint32_t)(low - 0xDC00);
    return 12;
}

/* Unescapes n valid bytes into the arena. */
static treadle_status unescape(reader *r, const char *p, size_t n, td_str *out) {
    const char *end = p + n;
    char *text = td_arena_alloc(r->arena, n, 1); /* no escape is shorter than what it stands for */
    if (!text) return no_memory(r, n);
    char *to = text;
    while (p < end) {
        const char *escape = memchr(p, '\\', (size_t)(end - p));
        size_t plain = (size_t)((escape ? escape : end) - p);
        memcpy(to, p, plain);
        to += plain;
        p += plain;
        if (!escape) break;
        uint32_t code_point;
        const char *why;
        p += read_escape(p, end, &code_point, &why);
        to += td_utf8_encode(code_point, to);
    }
    *out = (td_str){text, (size_t)(to - text)};
    return TREADLE_OK;
}

static treadle_status bad_string(const reader *r, const char *at, const td_json *value, const char *why) {
    td_fail(r->err, TREADLE_FORMAT, "%s", why);
    return place_error(r, at, value, TREADLE_FORMAT);
}

/* Reads the string whose opening quote is at r->p. `value`: what an error points at. */
static treadle_status read_string(reader *r, const td_json *value, td_str *out) {
    const char *start = r->p + 1, *p = start, *end = r->end;
    bool escaped = false;
    for (;;) {
        uint64_t word, special = 0;
        for (; end - p >= 8; p += 8) {
            memcpy(&word, p, 8);
            special = special_bytes(word);
            if (special) break;
        }
        if (special) p += TD_CTZ64(special) >> 3;
        if (p == end) return bad_string(r, r->p, value, "this string has no closing quote");

        uint32_t code_point;
        const char *why = NULL;
        uint8_t c = (uint8_t)*p;
        if (c == '"') break;
        if (c >= 0x80) {
            int length = td_utf8_decode(p, (size_t)(end - p), &code_point, NULL, NULL);
            if (length == 0) return bad_string(r, p, value, "bytes in a string are not valid UTF-8");
            p += length;
        } else if (c == '\\') {
            int length = read_escape(p, end, &code_point, &why);
            if (length == 0) return bad_string(r, p, value, why);
            p += length;
            escaped = true;
        } else if (c < 0x20) {
            return bad_string(r, p, value, "control characters in a string must be escaped (as \\n, \\t, \\u001f)");
        } else {
            p++; /* only in the last seven bytes of the text */
        }
    }
    r->p = p + 1;
    if (escaped) return unescape(r, start, (size_t)(p - start), out);
    *out = (td_str){start, (size_t)(p - start)};
    return TREADLE_OK;
}

/* --- scalars */

static size_t count_digits(const char *p, const char *end) {
    size_t n = 0;
    while (p + n < end && p[n] >= '0' && p[n] <= '9') n++;
    return n;
}

static treadle_status read_number(reader *r, td_json *v) {
    const char *start = r->p, *p = start, *end = r->end;
    bool negative = *p == '-', integer = true;
    p += negative;
    size_t whole = count_digits(p, end);
    if (whole == 0) return unexpected(r, start, v, "digits after '-'");
    if (whole > 1 && *p == '0') return unexpected(r, start, v, "a number without leading zeros");
    uint64_t small = 0;
    for (size_t i = 0; i < whole && whole <= 18; i++) small = small * 10 + (uint64_t)(p[i] - '0');
    p += whole;
    if (p < end && *p == '.') {
        size_t fraction = count_digits(++p, end);
        if (fraction == 0) return unexpected(r, start, v, "a number with digits after its point");
        p += fraction;
        integer = false;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < end && (*p == '+' || *p == '-')) p++;
        size_t exponent = count_digits(p, end);
        if (exponent == 0) return unexpected(r, start, v, "a number with digits in its exponent");
        p += exponent;
        integer = false;
    }
    r->p = p;

    td_str text = {start, (size_t)(p - start)};
    v->kind = TD_JSON_INT;
    if (integer && whole <= 18) {
        v->as_int = negative ? -(int64_t)small : (int64_t)small;
        v->as_double = (double)v->as_int;
        return TREADLE_OK;
    }
    if (integer && td_parse_int(text, &v->as_int)) {
        v->as_double = (double)v->as_int;
        return TREADLE_OK;
    }
    v->kind = TD_JSON_DOUBLE;
    if (td_parse_double(text, &v->as_double)) return TREADLE_OK;
    v->as_double = negative ? -HUGE_VAL : HUGE_VAL;
    return r->nonfinite ? TREADLE_OK : unexpected(r, start, v, "a number that a double can hold");
}

static treadle_status read_word(reader *r, td_json *v) {
    static const struct {
        td_str text;
        td_json_kind kind;
        bool truth, nonfinite;
        double number;
    } words[] = {
        {{"true", 4}, TD_JSON_BOOL, true, false, 0},
        {{"false", 5}, TD_JSON_BOOL, false, false, 0},
        {{"null", 4}, TD_JSON_NULL, false, false, 0},
        {{"NaN", 3}, TD_JSON_DOUBLE, false, true, (double)NAN},
        {{"Infinity", 8}, TD_JSON_DOUBLE, false, true, HUGE_VAL},
        {{"-Infinity", 9}, TD_JSON_DOUBLE, false, true, -HUGE_VAL},
    };
    size_t n = 0;
    while (r->p + n < r->end && is_word(r->p[n])) n++;
    for (size_t i = 0; i < TD_COUNT(words); i++) {
        if (!td_str_equal(words[i].text, (td_str){r->p, n}) || (words[i].nonfinite && !r->nonfinite)) continue;
        v->kind = words[i].kind;
        v->as_bool = words[i].truth;
        v->as_double = words[i].number;
        r->p += n;
        return TREADLE_OK;
    }
    return unexpected(r, r->p, v, "a value");
}

/* --- structure */

static void skip_space(reader *r) {
    const char *p = r->p, *end = r->end;
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    r->p = p;
}

static bool next_is(const reader *r, char c) { return r->p < r->end && *r->p == c; }

/* A new value at r->p, linked as the last child of the open container. */
static td_json *add_value(reader *r) {
    td_json *v = TD_ARENA_NEW(r->arena, td_json), *open = r->open;
    if (!v) return NULL;
    v->offset = offset_of(r, r->p);
    v->parent = open;
    if (!open) return v;
    if (open->n++ == 0) {
        open->first = v;
    } else {
        open->next->next = v;
    }
    open->next = v;
    return v;
}

/* Reads the rest of a value that begins at r->p: all of a scalar, the bracket of a container. */
static treadle_status read_value(reader *r, td_json *v) {
    char c = r->p < r->end ? *r->p : '\0';
    if (c == '{' || c == '[') {
        if (r->depth == r->max_depth) {
            td_fail(r->err, TREADLE_LIMIT, "JSON nested deeper than %u levels", r->max_depth);
            return place_error(r, r->p, v, TREADLE_LIMIT);
        }
        v->kind = c == '{' ? TD_JSON_OBJECT : TD_JSON_ARRAY;
        r->depth++;
        r->open = v;
        r->p++;
        return TREADLE_OK;
    }
    treadle_status status;
    if (c == '"') {
        v->kind = TD_JSON_STRING;
        status = read_string(r, v, &v->string);
    } else if ((c >= '0' && c <= '9') || (c == '-' && !(r->nonfinite && r->end - r->p > 1 && r->p[1] == 'I'))) {
        status = read_number(r, v);
    } else {
        status = read_word(r, v);
    }
    v->end = offset_of(r, r->p);
    return status;
}

enum { FEW_MEMBERS = 12 }; /* up to here comparing each with each is faster than hashing */

static treadle_status check_duplicates(reader *r, const td_json *object) {
    td_map seen = {0};
    bool few = object->n <= FEW_MEMBERS;
    if (!few && !td_map_reserve(&seen, object->n)) return no_memory(r, object->n * sizeof(td_map_entry));
    const td_json *twice = NULL;
    for (td_json *m = object->first; m && !twice; m = m->next) {
        if (few) {
            for (td_json *other = object->first; other != m && !twice; other = other->next) {
                if (td_str_equal(m->key, other->key)) twice = m;
            }
        } else {
            size_t before = seen.n;
            td_map_set(&seen, m->key, 0); /* there is room: cannot fail */
            if (seen.n == before) twice = m;
        }
    }
    td_map_free(&seen);
    if (!twice) return TREADLE_OK;
    td_fail(r->err, TREADLE_FORMAT, "duplicate key \"%.*s\"", (int)TD_MIN(twice->key.n, 256), twice->key.p);
    return place_error(r, r->text.p + twice->key_offset, twice, TREADLE_FORMAT);
}

static treadle_status close_container(reader *r) {
    td_json *v = r->open;
    r->p++;
    v->end = offset_of(r, r->p);
    v->next = NULL;
    r->open = v->parent;
    r->depth--;
    return v->kind == TD_JSON_OBJECT && !r->duplicates ? check_duplicates(r, v) : TREADLE_OK;
}

/* One step inside the open container: its next member or item, or its end. */
static treadle_status read_next(reader *r) {
    td_json *open = r->open;
    bool object = open->kind == TD_JSON_OBJECT;
    char closer = object ? '}' : ']';
    skip_space(r);
    if (next_is(r, closer)) return close_container(r);
    if (open->n > 0) {
        if (!next_is(r, ','))
            return unexpected(r, r->p, open, object ? "',' or '}' after a member" : "',' or ']' after an item");
        r->p++;
        skip_space(r);
        if (next_is(r, closer)) return unexpected(r, r->p, open, object ? "a member after ','" : "an item after ','");
    }
    td_str key = {0};
    uint32_t key_offset = offset_of(r, r->p);
    if (object) {
        if (!next_is(r, '"')) {
            return unexpected(r, r->p, open, open->n ? "a key in double quotes" : "a key in double quotes or '}'");
        }
        TD_TRY(read_string(r, open, &key));
        skip_space(r);
        if (!next_is(r, ':')) return unexpected(r, r->p, open, "':' after a key");
        r->p++;
        skip_space(r);
    }
    if (!object && (r->p == r->end || strchr(",:}", *r->p ? *r->p : ' '))) {
        return unexpected(r, r->p, open, open->n ? "an item after ','" : "an item or ']'");
    }
    td_json *v = add_value(r);
    if (!v) return no_memory(r, sizeof *v);
    if (object) {
        v->key = key;
        v->key_offset = key_offset;
    }
    return read_value(r, v);
}

treadle_status td_json_parse(td_str text, const td_json_options *options, td_arena *arena, td_json **out,
                             treadle_error *err) {
    static const td_json_options strict = {0};
    if (!options) options = &strict;
    if (text.n >= UINT32_MAX) return td_fail(err, TREADLE_LIMIT, "JSON text of %zu bytes; the limit is 4 GiB", text.n);
    if (!text.p) text.p = "";
    reader r = {
        .text = text,
        .p = text.p,
        .end = text.p + text.n,
        .arena = arena,
        .max_depth = options->max_depth ? options->max_depth : 256,
        .duplicates = options->allow_duplicate_keys,
        .nonfinite = options->allow_nonfinite,
        .err = err,
    };
    if (td_str_starts(text, TD_STR("\xEF\xBB\xBF"))) r.p += 3;
    skip_space(&r);
    td_json *root = add_value(&r);
    if (!root) return no_memory(&r, sizeof *root);
    TD_TRY(read_value(&r, root));
    while (r.open) TD_TRY(read_next(&r));
    skip_space(&r);
    if (r.p < r.end) return unexpected(&r, r.p, root, "nothing after the value");
    *out = root;
    return TREADLE_OK;
}
