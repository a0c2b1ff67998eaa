/* template/lexer.c - template source to tokens, with Jinja2's whitespace rules (trim_blocks, lstrip_blocks).
 *
 * Line breaks of every kind become LF first and one at the very end is dropped, as Jinja2 does; lines and columns are
 * those of the source given, because breaks only change their spelling. */
#include "text/template/lexer.h"

#include "text/template/unicode.h"

#include <stdio.h>

typedef struct lexer {
    td_str src;
    size_t at;
    size_t counted; /* line and column are those of this offset */
    uint32_t line, column;
    td_arena *arena;
    td_tpl_tokens *out;
    bool failed;           /* out of memory */
    TD_VEC(char) brackets; /* the closing ones that are due */
} lexer;

const char *td_tpl_token_text(td_tpl_token_kind kind) {
    static const char *const texts[] = {
#define TD_TPL_TOKEN_TEXT(name, text) text,
        TD_TPL_TOKENS(TD_TPL_TOKEN_TEXT)
#undef TD_TPL_TOKEN_TEXT
    };
    return texts[kind];
}

static void count_to(lexer *x, size_t offset) {
    for (; x->counted < offset; x->counted++) {
        if (x->src.p[x->counted] == '\n') {
            x->line++;
            x->column = 1;
        } else {
            x->column++;
        }
    }
}

/* Tokens come in source order, so that counting lines is linear in all. */
static void push(lexer *x, td_tpl_token_kind kind, size_t offset, td_str text) {
    count_to(x, offset);
    if (!td_vec_push(x->out, (td_tpl_token){kind, x->line, x->column, text})) x->failed = true;
}

static bool fault(lexer *x, size_t offset, const char *message) {
    char *copy = td_arena_strdup(x->arena, message);
    if (!copy) x->failed = true;
    else push(x, TD_T_ERROR, offset, td_str_from(copy));
    return false;
}

static td_str rest(const lexer *x) { return (td_str){x->src.p + x->at, x->src.n - x->at}; }
static td_str between(const lexer *x, size_t from, size_t to) { return (td_str){x->src.p + from, to - from}; }
static char peek(const lexer *x, size_t ahead) { return x->at + ahead < x->src.n ? x->src.p[x->at + ahead] : 0; }

static size_t skip_space(td_str src, size_t at) {
    td_str all = {src.p + at, src.n - at};
    return src.n - td_tpl_uni_strip_space(all, true, false).n;
}

/* A closing tag at `at`: its end, with what the sign makes it swallow; 0: none is here. */
static size_t closing(td_str src, size_t at, char first, bool plus_allowed, bool trim) {
    char sign = at < src.n ? src.p[at] : 0;
    size_t p = at + (sign == '-' || (sign == '+' && plus_allowed));
    if (p + 1 >= src.n || src.p[p] != first || src.p[p + 1] != '}') return 0;
    p += 2;
    if (p - at == 3) return sign == '-' ? skip_space(src, p) : p;
    return trim && p < src.n && src.p[p] == '\n' ? p + 1 : p;
}

/* "{%- raw %}" at `at`: its end; 0: it is not that. */
static size_t raw_open(td_str src, size_t at, const char *word, size_t *after_sign) {
    size_t p = at + 2;
    if (p < src.n && (src.p[p] == '-' || src.p[p] == '+')) p++;
    *after_sign = p;
    p = skip_space(src, p);
    size_t n = strlen(word);
    if (p + n > src.n || memcmp(src.p + p, word, n) != 0) return 0;
    return skip_space(src, p + n);
}

/* Template data from x->at to `end`, where a tag with this sign begins, cut as the tag's side wants it. */
static void push_data(lexer *x, size_t end, char sign, bool is_variable) {
    size_t start = x->at;
    td_str text = between(x, start, end);
    if (sign == '-') {
        text = td_tpl_uni_strip_space(text, false, true);
    } else if (sign != '+' && !is_variable) {
        size_t line = text.n; /* where the last line of the text starts */
        while (line > 0 && text.p[line - 1] != '\n') line--;
        bool starts_line = line > 0 || start == 0 || x->src.p[start - 1] == '\n';
        td_str tail = {text.p + line, text.n - line};
        if (starts_line && td_tpl_uni_strip_space(tail, true, false).n == 0) text.n = line;
    }
    if (text.n) push(x, TD_T_DATA, start, text);
}

static bool lex_comment(lexer *x, size_t begin) {
    for (size_t p = x->at; p < x->src.n; p++) {
        char c = x->src.p[p];
        if (c != '#' && c != '-' && c != '+') continue;
        size_t end = closing(x->src, p, '#', true, true);
        if (end) {
            x->at = end;
            return true;
        }
    }
    return x->at == x->src.n || fault(x, begin, "Missing end of comment tag"); /* Jinja2 lets an empty rest pass */
}

static bool lex_raw(lexer *x) {
    for (size_t p = x->at; p + 1 < x->src.n; p++) {
        if (x->src.p[p] != '{' || x->src.p[p + 1] != '%') continue;
        size_t after_sign;
        size_t end = raw_open(x->src, p, "endraw", &after_sign);
        if (end) end = closing(x->src, end, '%', true, true);
        if (!end) continue;
        push_data(x, p, after_sign > p + 2 ? x->src.p[p + 2] : 0, false);
        x->at = end;
        return true;
    }
    return x->at == x->src.n || fault(x, x->at, "Missing end of raw directive");
}

/* --- inside tags --- */

static bool is_digit(char c, int base) {
    if (base == 16 && ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))) return true;
    return c >= '0' && c < '0' + TD_MIN(base, 10);
}

/* Digits with single underscores between them from x->at + n on; how far they reach. */
static size_t digits(const lexer *x, size_t n, int base, bool leading_underscore) {
    for (;;) {
        size_t p = n + (leading_underscore && peek(x, n) == '_');
        if (!is_digit(peek(x, p), base)) return n;
        while (is_digit(peek(x, p), base)) p++;
        n = p;
        leading_underscore = true;
    }
}

static size_t float_length(const lexer *x) {
    if (x->at > 0 && x->src.p[x->at - 1] == '.') return 0;
    size_t n = digits(x, 0, 10, false), end = 0;
    if (!n) return 0;
    if (peek(x, n) == '.') {
        size_t fraction = digits(x, n + 1, 10, false);
        if (fraction > n + 1) end = n = fraction;
    }
    if (peek(x, n) == 'e' || peek(x, n) == 'E') {
        size_t p = n + 1 + (peek(x, n + 1) == '+' || peek(x, n + 1) == '-');
        size_t exponent = digits(x, p, 10, false);
        if (exponent > p) end = exponent;
    }
    return end;
}

static size_t integer_length(const lexer *x) {
    if (peek(x, 0) != '0') return digits(x, 0, 10, false);
    char kind = (char)(peek(x, 1) | 0x20);
    int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (base) {
        size_t end = digits(x, 2, base, true);
        if (end > 2) return end;
    }
    size_t n = 1;
    for (;;) {
        size_t p = n + (peek(x, n) == '_');
        if (peek(x, p) != '0') return n;
        n = p + 1;
    }
}

static bool lex_number(lexer *x) {
    size_t n = float_length(x);
    td_tpl_token_kind kind = n ? TD_T_FLOAT : TD_T_INTEGER;
    if (!n) n = integer_length(x);
    char *text = td_arena_strndup(x->arena, x->src.p + x->at, n);
    if (!text) {
        x->failed = true;
        return false;
    }
    size_t length = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] != '_') text[length++] = text[i];
    }
    text[length] = 0;
    push(x, kind, x->at, (td_str){text, length});
    x->at += n;
    return true;
}

static bool lex_name(lexer *x) {
    size_t begin = x->at, at = x->at;
    bool valid = true;
    while (at < x->src.n) {
        size_t next = at;
        uint32_t c = td_tpl_uni_next(x->src, &next);
        unsigned flags = td_tpl_uni_flags(c);
        if (c != '_' && !(flags & TD_U_ALNUM)) break;
        if (c != '_' && !(flags & (TD_U_ALPHA | TD_U_DECIMAL))) valid = false;
        at = next;
    }
    x->at = at;
    if (!valid) return fault(x, begin, "Invalid character in identifier");
    push(x, TD_T_NAME, begin, between(x, begin, at));
    return true;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* One escape at text.p[*at], which is the character after the backslash. NULL: appended; else what is wrong. */
static const char *unescape_one(td_str text, size_t *at, td_buf *out) {
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = text.p[*at];
    const char *simple = c ? strchr(from, c) : NULL;
    if (simple) {
        td_buf_char(out, to[simple - from]);
    } else if (c == '\n') {
        ; /* the line goes on */
    } else if (c >= '0' && c <= '7') {
        uint32_t value = 0;
        size_t end = TD_MIN(*at + 3, text.n);
        while (*at < end && text.p[*at] >= '0' && text.p[*at] <= '7')
            value = value * 8 + (uint32_t)(text.p[(*at)++] - '0');
        td_tpl_uni_append(out, value);
        return NULL;
    } else if (c == 'x' || c == 'u' || c == 'U') {
        size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        uint32_t value = 0;
        for (size_t i = 1; i <= n; i++) {
            int digit = *at + i < text.n ? hex_digit(text.p[*at + i]) : -1;
            if (digit < 0) {
                return c == 'x'   ? "truncated \\xXX escape"
                       : c == 'u' ? "truncated \\uXXXX escape"
                                  : "truncated \\UXXXXXXXX escape";
            }
            value = value << 4 | (uint32_t)digit;
        }
        if (value > 0x10FFFF) return "illegal Unicode character";
        td_tpl_uni_append(out, value);
        *at += n;
    } else if (c == 'N') {
        return "\\N{...} escapes are not supported; write the character or \\uXXXX";
    } else if ((uint8_t)c >=
               0x80) { /* Jinja2 spells the character as an escape first, so that its backslash is doubled */
        uint32_t code = td_tpl_uni_next(text, at);
        td_buf_printf(out, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
        return NULL;
    } else {
        td_buf_char(out, '\\');
        td_buf_char(out, c);
    }
    *at += 1;
    return NULL;
}

static bool lex_string(lexer *x) {
    size_t begin = x->at, end = begin + 1;
    char quote = x->src.p[begin];
    bool escapes = false;
    while (end < x->src.n && x->src.p[end] != quote) {
        bool escape = x->src.p[end] == '\\';
        escapes |= escape;
        end += escape ? 2 : 1;
    }
    if (end >= x->src.n) return fault(x, begin, quote == '"' ? "unexpected char '\"'" : "unexpected char \"'\"");
    x->at = end + 1;
    td_str text = between(x, begin + 1, end);
    if (!escapes) {
        push(x, TD_T_STRING, begin, text);
        return true;
    }
    td_buf buf = {0};
    const char *wrong = NULL;
    for (size_t at = 0; at < text.n && !wrong;) {
        if (text.p[at] == '\\') {
            at++;
            wrong = unescape_one(text, &at, &buf);
        } else {
            td_buf_char(&buf, text.p[at++]);
        }
    }
    td_str copy = td_arena_str(x->arena, buf.n ? td_buf_view(&buf) : TD_STR(""));
    if (buf.failed || !copy.p) x->failed = true;
    td_buf_free(&buf);
    if (x->failed) return false;
    if (wrong) return fault(x, begin, wrong);
    push(x, TD_T_STRING, begin, copy);
    return true;
}

static bool balance(lexer *x, td_tpl_token_kind kind) {
    char due = kind == TD_T_LBRACE ? '}' : kind == TD_T_LPAREN ? ')' : kind == TD_T_LBRACKET ? ']' : 0;
    if (due) {
        if (!td_vec_push(&x->brackets, due)) x->failed = true;
        return !x->failed;
    }
    char found = kind == TD_T_RBRACE ? '}' : kind == TD_T_RPAREN ? ')' : kind == TD_T_RBRACKET ? ']' : 0;
    if (!found) return true;
    char message[64];
    if (!x->brackets.n) {
        snprintf(message, sizeof message, "unexpected '%c'", found);
        return fault(x, x->at, message);
    }
    due = x->brackets.items[--x->brackets.n];
    if (due == found) return true;
    snprintf(message, sizeof message, "unexpected '%c', expected '%c'", found, due);
    return fault(x, x->at, message);
}

static bool lex_operator(lexer *x) {
    char c = peek(x, 0), d = peek(x, 1);
    td_tpl_token_kind best = TD_T_EOF;
    size_t length = 0;
    for (td_tpl_token_kind k = TD_T_ADD; k <= TD_T_SEMICOLON; k++) {
        const char *text = td_tpl_token_text(k);
        size_t n = strlen(text);
        if (n > length && text[0] == c && (n == 1 || text[1] == d)) {
            best = k;
            length = n;
        }
    }
    if (!length) {
        size_t end = x->at;
        td_tpl_uni_next(x->src, &end);
        char *message = td_arena_printf(x->arena, "unexpected char '%.*s'", TD_STR_ARGS(between(x, x->at, end)));
        if (message) return fault(x, x->at, message);
        x->failed = true;
        return false;
    }
    if (!balance(x, best)) return false;
    push(x, best, x->at, between(x, x->at, x->at + length));
    x->at += length;
    return true;
}

/* The inside of a tag, its end included. False: a fault was pushed. */
static bool lex_tag(lexer *x, bool variable) {
    x->brackets.n = 0;
    while (x->at < x->src.n) {
        if (!x->brackets.n) {
            size_t end = closing(x->src, x->at, variable ? '}' : '%', !variable, !variable);
            if (end) {
                push(x, variable ? TD_T_VARIABLE_END : TD_T_BLOCK_END, x->at, between(x, x->at, end));
                x->at = end;
                return !x->failed;
            }
        }
        size_t next = skip_space(x->src, x->at);
        if (next > x->at) {
            x->at = next;
            continue;
        }
        next = x->at;
        uint32_t c = td_tpl_uni_next(x->src, &next);
        bool ok;
        if (is_digit((char)TD_MIN(c, 127u), 10)) ok = lex_number(x);
        else if (c == '_' || td_tpl_uni_flags(c) & TD_U_ALNUM) ok = lex_name(x);
        else if (c == '\'' || c == '"') ok = lex_string(x);
        else ok = lex_operator(x);
        if (!ok || x->failed) return false;
    }
    return true; /* the parser says what is missing */
}

static bool lex_root(lexer *x) {
    td_str text = rest(x);
    size_t p = 0;
    while (p < text.n && !(text.p[p] == '{' && p + 1 < text.n && strchr("%{#", text.p[p + 1]) && text.p[p + 1])) p++;
    size_t begin = x->at + p;
    if (p == text.n) {
        push(x, TD_T_DATA, x->at, text);
        x->at = x->src.n;
        return true;
    }
    char type = x->src.p[begin + 1];
    char sign = begin + 2 < x->src.n ? x->src.p[begin + 2] : 0;
    bool has_sign = sign == '-' || sign == '+';
    push_data(x, begin, has_sign ? sign : 0, type == '{');
    x->at = begin + 2 + has_sign;
    if (type == '#') return lex_comment(x, begin);
    if (type == '%') {
        size_t after_sign, end = raw_open(x->src, begin, "raw", &after_sign);
        if (end) end = closing(x->src, end, '%', false, false);
        if (end) {
            x->at = end;
            return lex_raw(x);
        }
    }
    push(x, type == '{' ? TD_T_VARIABLE_BEGIN : TD_T_BLOCK_BEGIN, begin, between(x, begin, x->at));
    return lex_tag(x, type == '{');
}

static bool normalize(td_str source, td_arena *arena, td_str *out) {
    char *copy = td_arena_alloc(arena, source.n, 1);
    if (!copy) return false;
    size_t n = 0;
    for (size_t i = 0; i < source.n; i++) {
        bool cr = source.p[i] == '\r';
        copy[n++] = cr ? '\n' : source.p[i];
        if (cr && i + 1 < source.n && source.p[i + 1] == '\n') i++;
    }
    if (n && copy[n - 1] == '\n') n--;
    *out = (td_str){copy, n};
    return true;
}

treadle_status td_tpl_lex(td_str source, td_arena *arena, td_tpl_tokens *out, treadle_error *err) {
    lexer x = {.arena = arena, .out = out, .line = 1, .column = 1};
    if (!normalize(source, arena, &x.src)) return td_fail_memory(err, "a template's text", source.n);
    bool ok = true;
    while (ok && !x.failed && x.at < x.src.n) ok = lex_root(&x);
    if (ok && !x.failed) {
        /* The end stands where the last token stood, as in Jinja2's messages. */
        const td_tpl_token *last = out->n ? &out->items[out->n - 1] : NULL;
        td_tpl_token end = {TD_T_EOF, last ? last->line : 1, last ? last->column : 1, {NULL, 0}};
        if (!td_vec_push(out, end)) x.failed = true;
    }
    td_vec_free(&x.brackets);
    return x.failed ? td_fail_memory(err, "a template's tokens", out->n * sizeof *out->items) : TREADLE_OK;
}
