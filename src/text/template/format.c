/* template/format.c - Python's two ways to format: 'x %s' % y, and 'x {}'.format(y) with its specification language. */
#include "text/template/unicode.h"
#include "text/template/value.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct spec {
    uint32_t fill;
    char align, sign, grouping, type; /* 0: not given */
    bool alternate, zero;
    int64_t width, precision; /* -1: not given */
} spec;

enum { MAX_WIDTH = 1 << 20 };

static void fill_with(td_buf *out, uint32_t c, int64_t n) {
    for (; n > 0; n--) td_tpl_uni_append(out, c);
}

static void pad(td_buf *out, const spec *s, char align, td_str text) {
    int64_t room = s->width - (int64_t)td_tpl_uni_count(text), left = align == '>' ? room : align == '^' ? room / 2 : 0;
    fill_with(out, s->fill, left);
    td_buf_str(out, text);
    fill_with(out, s->fill, room - TD_MAX(left, 0));
}

/* Sign, prefix, digits with their grouping, and the rest (fraction, exponent, percent) as one padded number. */
static void pad_number(td_buf *out, const spec *s, td_str sign, td_str prefix, td_str digits, td_str rest, int group) {
    char align = s->align ? s->align : s->zero ? '=' : '>';
    uint32_t fill = s->zero && !s->align ? '0' : s->fill;
    int64_t fixed = (int64_t)(sign.n + prefix.n + rest.n), n = (int64_t)digits.n;
    bool grouped = s->grouping && group;
    if (align == '=' && fill == '0') { /* zeros take part in the grouping */
        while (fixed + n + (grouped ? (n - 1) / group : 0) < s->width) n++;
    }
    int64_t room = s->width - fixed - n - (grouped && n ? (n - 1) / group : 0), left = align == '>'   ? room
                                                                                       : align == '^' ? room / 2
                                                                                                      : 0;
    if (align != '=') fill_with(out, fill, left);
    td_buf_str(out, sign);
    td_buf_str(out, prefix);
    if (align == '=') fill_with(out, fill, room);
    int64_t zeros = n - (int64_t)digits.n;
    for (int64_t i = 0; i < n; i++) {
        if (grouped && i && (n - i) % group == 0) td_buf_char(out, s->grouping);
        td_buf_char(out, i < zeros ? '0' : digits.p[i - zeros]);
    }
    td_buf_str(out, rest);
    if (align != '=') fill_with(out, fill, room - TD_MAX(left, 0));
}

static bool bad_code(td_tpl *r, char code, td_val v) {
    td_tpl_raise(r, "ValueError", "Unknown format code '%c' for object of type '%s'", code, td_v_type(v));
    return false;
}

static td_str sign_text(const spec *s, bool negative) {
    return negative ? TD_STR("-") : s->sign == '+' ? TD_STR("+") : s->sign == ' ' ? TD_STR(" ") : TD_STR("");
}

static bool format_int(td_tpl *r, td_val v, const spec *s, td_buf *out) {
    if (s->precision >= 0) {
        td_tpl_raise(r, "ValueError", "Precision not allowed in integer format specifier");
        return false;
    }
    td_buf digits = {0};
    int base = s->type == 'x' || s->type == 'X' ? 16 : s->type == 'o' ? 8 : s->type == 'b' ? 2 : 10;
    bool negative = v.kind == TD_V_BIG ? td_big_sign(v.u.big) < 0 : td_v_small(v) < 0;
    if (s->type == 'c') {
        if (v.kind == TD_V_BIG || negative || td_v_small(v) > 0x10FFFF) {
            td_tpl_raise(r, "OverflowError", "%%c arg not in range(0x110000)");
            return false;
        }
        td_tpl_uni_append(&digits, (uint32_t)td_v_small(v));
        spec left = *s;
        bool whole = td_tpl_buf_ok(r, &digits);
        if (whole) pad(out, &left, s->align ? s->align : '<', td_buf_view(&digits));
        td_buf_free(&digits);
        return whole;
    }
    bool ok = true;
    if (v.kind == TD_V_BIG) {
        ok = td_big_text(r, v.u.big, base, &digits);
    } else {
        char text[72];
        size_t at = sizeof text;
        uint64_t m = negative ? 0 - (uint64_t)td_v_small(v) : (uint64_t)td_v_small(v);
        do text[--at] = "0123456789abcdef"[m % (uint64_t)base];
        while (m /= (uint64_t)base);
        td_buf_append(&digits, text + at, sizeof text - at);
    }
    ok = ok && td_tpl_buf_ok(r, &digits);
    td_str bare = td_buf_view(&digits);
    if (ok && bare.n && bare.p[0] == '-') bare.p++, bare.n--;
    for (size_t i = 0; ok && s->type == 'X' && i < digits.n; i++) {
        if (digits.p[i] >= 'a') digits.p[i] = (char)(digits.p[i] - 32);
    }
    char prefix[3] = {'0', s->type, 0};
    td_str shown = s->alternate && base != 10 ? td_str_from(prefix) : TD_STR("");
    if (ok) pad_number(out, s, sign_text(s, negative), shown, bare, TD_STR(""), base == 10 ? 3 : 4);
    td_buf_free(&digits);
    return ok;
}

/* No type: like repr, or with a precision like 'g' but with a digit after the point. */
static void general_text(double f, int64_t precision, td_buf *out) {
    if (precision < 0) {
        td_num_repr(f, out);
        return;
    }
    char text[64];
    int p = (int)TD_MAX(precision, 1);
    snprintf(text, sizeof text, "%.*e", TD_MIN(p - 1, 40), f);
    int exponent = atoi(strchr(text, 'e') + 1);
    size_t begin = out->n;
    if (exponent >= -4 && exponent + 1 <= p - 1) {
        td_buf_printf(out, "%.*g", p, f);
        if (!memchr(out->p + begin, '.', out->n - begin)) td_buf_text(out, ".0");
    } else if (exponent >= -4 && exponent < p) { /* C would write it without exponent; Python does not */
        char *e = strchr(text, 'e'), *last = e;
        if (memchr(text, '.', (size_t)(e - text))) {
            while (last[-1] == '0') last--;
            if (last[-1] == '.') last--;
        }
        td_buf_append(out, text, (size_t)(last - text));
        td_buf_text(out, e);
    } else {
        td_buf_printf(out, "%.*g", p, f);
    }
}

static bool format_float(td_tpl *r, td_val v, const spec *s, td_buf *out) {
    double f;
    if (!td_num_double(r, v, &f)) return false;
    if (s->precision > 4000) {
        td_tpl_raise(r, "ValueError", "precision too big");
        return false;
    }
    bool negative = signbit(f) && !isnan(f), percent = s->type == '%', upper = s->type >= 'A' && s->type <= 'Z';
    f = fabs(f) * (percent ? 100 : 1);
    td_buf text = {0};
    char type = percent || s->type == 'F' ? 'f' : s->type;
    if (!isfinite(f)) {
        td_buf_text(&text, isnan(f) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf"));
    } else if (!type) {
        general_text(f, s->precision, &text);
    } else {
        char c_format[] = {
            '%', s->alternate ? '#' : '.', s->alternate ? '.' : '*', s->alternate ? '*' : type, s->alternate ? type : 0,
            0};
        int precision = s->precision < 0 ? 6 : (int)s->precision;
        int n = snprintf(NULL, 0, c_format, precision, f);
        if (n > 0 && td_buf_reserve(&text, (size_t)n)) {
            snprintf(text.p, (size_t)n + 1, c_format, precision, f);
            text.n = (size_t)n;
        }
    }
    if (percent) td_buf_char(&text, '%');
    size_t whole = 0;
    while (whole < text.n && text.p[whole] >= '0' && text.p[whole] <= '9') whole++;
    if (!isfinite(f)) whole = 0;
    if (!text.failed) {
        td_str digits = {text.p, whole}, rest = {text.p + whole, text.n - whole};
        pad_number(out, s, sign_text(s, negative), TD_STR(""), digits, rest, 3);
    }
    bool ok = !text.failed || td_tpl_buf_ok(r, &text);
    td_buf_free(&text);
    return ok;
}

static bool format_string(td_tpl *r, td_val v, const spec *s, td_buf *out) {
    td_str text = td_v_str(v);
    if (s->type && s->type != 's') return bad_code(r, s->type, v);
    if (s->sign || s->alternate || s->align == '=' || s->grouping) {
        td_tpl_raise(r, "ValueError", "this format specifier is not allowed with strings");
        return false;
    }
    if (s->precision >= 0) text.n = td_tpl_uni_offset(text, (size_t)s->precision);
    spec filled = *s;
    if (s->zero && !s->align) filled.fill = '0';
    pad(out, &filled, s->align ? s->align : '<', text);
    return true;
}

static bool parse_spec(td_tpl *r, td_str text, spec *s, td_val v) {
    *s = (spec){.fill = ' ', .width = -1, .precision = -1};
    size_t at = 0;
    if (text.n) {
        size_t after = 0;
        uint32_t first = td_tpl_uni_next(text, &after);
        if (after < text.n && strchr("<>=^", text.p[after]) && text.p[after]) {
            s->fill = first;
            s->align = text.p[after];
            at = after + 1;
        } else if (first < 0x80 && first && strchr("<>=^", (int)first)) {
            s->align = text.p[0];
            at = 1;
        }
    }
    if (at < text.n && text.p[at] && strchr("+- ", text.p[at])) s->sign = text.p[at++];
    if (at < text.n && text.p[at] == '#') s->alternate = true, at++;
    if (at < text.n && text.p[at] == '0') s->zero = true, at++;
    for (; at < text.n && text.p[at] >= '0' && text.p[at] <= '9'; at++) {
        s->width = TD_MIN(TD_MAX(s->width, 0) * 10 + (text.p[at] - '0'), INT32_MAX);
    }
    if (at < text.n && (text.p[at] == ',' || text.p[at] == '_')) s->grouping = text.p[at++];
    if (at < text.n && text.p[at] == '.') {
        at++;
        if (at >= text.n || text.p[at] < '0' || text.p[at] > '9') {
            td_tpl_raise(r, "ValueError", "Format specifier missing precision");
            return false;
        }
        for (; at < text.n && text.p[at] >= '0' && text.p[at] <= '9'; at++) {
            s->precision = TD_MIN(TD_MAX(s->precision, 0) * 10 + (text.p[at] - '0'), INT32_MAX);
        }
    }
    if (at < text.n) s->type = text.p[at++];
    if (at < text.n || (s->type & 0x80)) {
        td_tpl_raise(r, "ValueError", "Invalid format specifier '%.*s' for object of type '%s'", TD_STR_ARGS(text),
                     td_v_type(v));
        return false;
    }
    if (s->width > MAX_WIDTH) {
        td_tpl_raise(r, "LimitError", "a width of %lld", (long long)s->width);
        return false;
    }
    return true;
}

static bool format_value(td_tpl *r, td_val v, td_str text, td_buf *out) {
    spec s;
    if (!text.n) return td_v_str_to(r, v, out);
    if (!parse_spec(r, text, &s, v) || !td_tpl_steps(r, s.width > 0 ? (uint64_t)s.width / 16 : 0)) return false;
    bool ok;
    if (v.kind == TD_V_STRING) {
        ok = format_string(r, v, &s, out);
    } else if (td_v_is_int(v) && (!s.type || strchr("bcdoxXn", s.type))) {
        ok = format_int(r, v, &s, out);
    } else if (td_v_is_number(v) && (!s.type || strchr("eEfFgGn%", s.type))) {
        if (s.type == 'n') s.type = 'g';
        ok = format_float(r, v, &s, out);
    } else if (td_v_is_number(v)) {
        ok = bad_code(r, s.type, v);
    } else {
        td_tpl_raise(r, "TypeError", "unsupported format string passed to %s.__format__", td_v_type(v));
        ok = false;
    }
    return ok && td_tpl_buf_ok(r, out);
}

td_val td_v_format_spec(td_tpl *r, td_val v, td_str text) {
    td_buf out = {0};
    if (format_value(r, v, text, &out)) return td_v_take_buf(r, &out);
    td_buf_free(&out);
    return td_v_error();
}

/* --- str.format --- */

typedef struct formatter {
    td_tpl *r;
    const td_tpl_args *args;
    int64_t next; /* the next automatic number; -1: numbers are given */
    bool automatic;
} formatter;

static bool all_digits(td_str s) {
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9') return false;
    }
    return s.n > 0 && s.n < 10;
}

static int64_t small_number(td_str s) {
    int64_t n = 0;
    for (size_t i = 0; i < s.n; i++) n = n * 10 + (s.p[i] - '0');
    return n;
}

static td_val format_argument(formatter *f, td_str name) {
    td_tpl *r = f->r;
    int64_t index = -1;
    if (!name.n) {
        if (f->next < 0)
            return td_tpl_raise(r, "ValueError",
                                "cannot switch from manual field specification to automatic field numbering");
        f->automatic = true;
        index = f->next++;
    } else if (all_digits(name)) {
        if (f->automatic)
            return td_tpl_raise(r, "ValueError",
                                "cannot switch from manual field specification to automatic field numbering");
        f->next = -1;
        index = small_number(name);
    }
    if (index >= 0) {
        if (index < f->args->n) return f->args->items[index];
        return td_tpl_raise(r, "IndexError", "Replacement index %lld out of range for positional args tuple",
                            (long long)index);
    }
    for (uint32_t i = 0; i < f->args->n_keywords; i++) {
        if (td_str_equal(f->args->keywords[i].name, name)) return f->args->keywords[i].value;
    }
    return td_tpl_raise(r, "KeyError", "'%.*s'", TD_STR_ARGS(name));
}

/* name.attr[item]...: every step as the sandbox allows it. */
static td_val format_field(formatter *f, td_str field) {
    size_t at = 0;
    while (at < field.n && field.p[at] != '.' && field.p[at] != '[') at++;
    td_val v = format_argument(f, (td_str){field.p, at});
    while (!TD_V_FAILED(v) && at < field.n) {
        bool attribute = field.p[at++] == '.';
        size_t begin = at;
        while (at < field.n && (attribute ? field.p[at] != '.' && field.p[at] != '[' : field.p[at] != ']')) at++;
        td_str part = {field.p + begin, at - begin};
        if (!attribute && at++ >= field.n) return td_tpl_raise(f->r, "ValueError", "Missing ']' in format string");
        if (!part.n) return td_tpl_raise(f->r, "ValueError", "Empty attribute in format string");
        if (attribute) v = td_v_getattr(f->r, v, part);
        else v = td_v_getitem(f->r, v, all_digits(part) ? td_v_int(small_number(part)) : td_v_view(part));
        if (!attribute && at < field.n && field.p[at] != '.' && field.p[at] != '[') {
            return td_tpl_raise(f->r, "ValueError", "Only '.' or '[' may follow ']' in format field specifier");
        }
    }
    return v;
}

static bool run_format(formatter *f, td_str text, int depth, td_buf *out);

static bool replace_field(formatter *f, td_str field, int depth, td_buf *out) {
    td_tpl *r = f->r;
    size_t at = 0, brackets = 0;
    for (; at < field.n && (brackets || (field.p[at] != '!' && field.p[at] != ':')); at++) {
        if (field.p[at] == '[') brackets = 1;
        else if (field.p[at] == ']') brackets = 0;
    }
    td_val v = format_field(f, (td_str){field.p, at});
    if (TD_V_FAILED(v)) return false;
    td_buf scratch = {0};
    bool ok = true;
    if (at < field.n && field.p[at] == '!') {
        char conversion = at + 1 < field.n ? field.p[at + 1] : 0;
        at += 2;
        if (!conversion || !strchr("rsa", conversion) || (at < field.n && field.p[at] != ':')) {
            td_tpl_raise(r, "ValueError", "Unknown conversion specifier '%c'", conversion ? conversion : '}');
            return false;
        }
        if (conversion == 's') v = td_v_to_str(r, v);
        else if ((ok = td_v_repr_to(r, v, &scratch))) v = td_v_copy(r, td_buf_view(&scratch));
        td_buf_clear(&scratch);
        ok = ok && !TD_V_FAILED(v);
    }
    if (ok && at < field.n) {
        td_str raw = {field.p + at + 1, field.n - at - 1};
        ok = run_format(f, raw, depth + 1, &scratch);
    }
    ok = ok && format_value(r, v, td_buf_view(&scratch), out);
    td_buf_free(&scratch);
    return ok;
}

static bool run_format(formatter *f, td_str text, int depth, td_buf *out) {
    if (depth > 2) {
        td_tpl_raise(f->r, "ValueError", "Max string recursion exceeded");
        return false;
    }
    if (!td_tpl_steps(f->r, 1 + text.n / 16)) return false;
    for (size_t at = 0; at < text.n;) {
        char c = text.p[at++];
        if (c != '{' && c != '}') {
            td_buf_char(out, c);
            continue;
        }
        if (at < text.n && text.p[at] == c) {
            td_buf_char(out, c);
            at++;
            continue;
        }
        if (c == '}') {
            td_tpl_raise(f->r, "ValueError", "Single '}' encountered in format string");
            return false;
        }
        size_t begin = at, open = 1;
        while (at < text.n && open) {
            if (text.p[at] == '{') open++;
            else if (text.p[at] == '}') open--;
            at++;
        }
        if (open) {
            td_tpl_raise(f->r, "ValueError",
                         at == begin ? "Single '{' encountered in format string" : "expected '}' before end of string");
            return false;
        }
        if (!td_tpl_steps(f->r, 1) || !replace_field(f, (td_str){text.p + begin, at - begin - 1}, depth, out))
            return false;
    }
    return td_tpl_buf_ok(f->r, out);
}

td_val td_v_format(td_tpl *r, td_val format, const td_tpl_args *args) {
    formatter f = {.r = r, .args = args};
    td_buf out = {0};
    if (run_format(&f, td_v_str(format), 1, &out)) return td_v_take_buf(r, &out);
    td_buf_free(&out);
    return td_v_error();
}
