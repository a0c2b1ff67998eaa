/* template/percent.c - 'text %s' % values, as Python's strings do it. */
#include "text/template/unicode.h"
#include "text/template/value.h"

#include <stdio.h>

typedef struct percent {
    td_tpl *r;
    td_val args;
    bool is_tuple, is_mapping; /* a mapping may leave arguments unused */
    uint32_t next;
    td_buf *out;
} percent;

typedef struct directive {
    bool left, plus, space, alternate, zero;
    int64_t width, precision; /* -1: not given */
    td_val value;             /* of %(key)s; TD_V_MISSING: the next argument */
} directive;

enum { MAX_WIDTH = 1 << 20 };

static td_val next_argument(percent *p) {
    if (p->is_tuple) {
        td_val v = td_v_at(p->args, p->next);
        p->next++;
        if (td_v_given(v)) return v;
    } else if (p->next++ == 0) {
        return p->args;
    }
    return td_tpl_raise(p->r, "TypeError", "not enough arguments for format string");
}

static bool pad(percent *p, const directive *d, td_str text) {
    int64_t room = d->width - (int64_t)td_tpl_uni_count(text);
    if (!d->left) {
        for (; room > 0; room--) td_buf_char(p->out, ' ');
    }
    td_buf_str(p->out, text);
    for (; room > 0; room--) td_buf_char(p->out, ' ');
    return true;
}

static bool put_text(percent *p, const directive *d, char type, td_val v) {
    td_buf text = {0};
    bool ok = type == 's' ? td_v_str_to(p->r, v, &text) : td_v_repr_to(p->r, v, &text);
    if (ok && type == 'a') { /* what is not ASCII as escapes */
        td_buf plain = {0};
        for (size_t at = 0; at < text.n;) {
            uint32_t c = td_tpl_uni_next(td_buf_view(&text), &at);
            if (c < 0x80) td_buf_char(&plain, (char)c);
            else td_buf_printf(&plain, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
        }
        ok = td_tpl_buf_ok(p->r, &plain);
        td_buf_free(&text);
        text = plain;
    }
    td_str shown = td_buf_view(&text);
    if (d->precision >= 0) shown.n = td_tpl_uni_offset(shown, (size_t)d->precision);
    ok = ok && pad(p, d, shown);
    td_buf_free(&text);
    return ok;
}

static bool put_char(percent *p, const directive *d, td_val v) {
    if (v.kind == TD_V_STRING && td_v_len(v) == 1) return pad(p, d, td_v_str(v));
    if (!td_v_is_int(v) || v.kind == TD_V_BIG) {
        td_tpl_raise(p->r, "TypeError", "%%c requires int or char");
        return false;
    }
    if (td_v_small(v) < 0 || td_v_small(v) > 0x10FFFF) {
        td_tpl_raise(p->r, "OverflowError", "%%c arg not in range(0x110000)");
        return false;
    }
    td_buf text = {0};
    td_tpl_uni_append(&text, (uint32_t)td_v_small(v));
    bool ok = td_tpl_buf_ok(p->r, &text) && pad(p, d, td_buf_view(&text));
    td_buf_free(&text);
    return ok;
}

/* Numbers through the format specification of format(), which knows them all. */
static bool put_number(percent *p, const directive *d, char type, td_val v) {
    bool is_float = strchr("eEfFgG", type) != NULL;
    if (type == 'i' || type == 'u') type = 'd';
    if (!td_v_is_number(v) || (v.kind == TD_V_FLOAT && !is_float && type != 'd')) {
        if (is_float) td_tpl_raise(p->r, "TypeError", "must be real number, not %s", td_v_type(v));
        else
            td_tpl_raise(p->r, "TypeError", "%%%c format: %s is required, not %s", type,
                         type == 'd' ? "a real number" : "an integer", td_v_type(v));
        return false;
    }
    if (v.kind == TD_V_FLOAT && !is_float) v = td_num_from_double(p->r, v.u.f);
    if (TD_V_FAILED(v)) return false;
    char text[96], digits[24] = "";
    if (is_float && d->precision >= 0) snprintf(digits, sizeof digits, ".%lld", (long long)d->precision);
    int64_t width = !d->left && d->zero && (is_float || d->precision < 0) ? d->width : 0;
    snprintf(text, sizeof text, "%s%s%s%lld%s%c",
             d->plus    ? "+"
             : d->space ? " "
                        : "",
             d->alternate ? "#" : "", width > 0 ? "0" : "", (long long)TD_MAX(width, 0), digits, type);
    if (width <= 0) { /* no width in the text at all */
        snprintf(text, sizeof text, "%s%s%s%c",
                 d->plus    ? "+"
                 : d->space ? " "
                            : "",
                 d->alternate ? "#" : "", digits, type);
    }
    td_val shown = td_v_format_spec(p->r, v, td_str_from(text));
    if (TD_V_FAILED(shown)) return false;
    td_str number = td_v_str(shown);
    if (is_float || d->precision < 0) return pad(p, d, number);
    td_buf whole = {0}; /* an integer's precision is its least number of digits */
    size_t sign = number.n && strchr("+- ", number.p[0]) ? 1 : 0, prefix = d->alternate && type != 'd' ? 2 : 0;
    td_buf_append(&whole, number.p, sign + prefix);
    for (int64_t i = (int64_t)(number.n - sign - prefix); i < d->precision; i++) td_buf_char(&whole, '0');
    td_buf_append(&whole, number.p + sign + prefix, number.n - sign - prefix);
    bool ok = td_tpl_buf_ok(p->r, &whole) && pad(p, d, td_buf_view(&whole));
    td_buf_free(&whole);
    return ok;
}

static bool read_number(percent *p, td_str text, size_t *at, int64_t *out) {
    if (*at < text.n && text.p[*at] == '*') {
        ++*at;
        td_val v = next_argument(p);
        if (TD_V_FAILED(v)) return false;
        if (!td_v_is_int(v)) {
            td_tpl_raise(p->r, "TypeError", "* wants int");
            return false;
        }
        *out = v.kind == TD_V_BIG ? INT32_MAX : TD_MAX(TD_MIN(td_v_small(v), INT32_MAX), -INT32_MAX);
    } else {
        for (; *at < text.n && text.p[*at] >= '0' && text.p[*at] <= '9'; ++*at) {
            *out = TD_MIN(TD_MAX(*out, 0) * 10 + (text.p[*at] - '0'), INT32_MAX);
        }
    }
    if (*out <= MAX_WIDTH) return td_tpl_steps(p->r, (uint64_t)TD_MAX(*out, 0) / 16);
    td_tpl_raise(p->r, "LimitError", "a width of %lld", (long long)*out);
    return false;
}

static bool read_key(percent *p, td_str text, size_t *at, directive *d) {
    size_t begin = ++*at, open = 1;
    for (; *at < text.n && open; ++*at) open += text.p[*at] == '(' ? 1 : text.p[*at] == ')' ? (size_t)-1 : 0;
    if (open) {
        td_tpl_raise(p->r, "ValueError", "incomplete format key");
        return false;
    }
    td_val key = td_v_view((td_str){text.p + begin, *at - begin - 1});
    if (p->args.kind != TD_V_DICT) {
        td_tpl_raise(p->r, "TypeError", "format requires a mapping");
        return false;
    }
    d->value = td_dict_get(p->r, p->args.u.dict, key);
    if (!td_v_given(d->value)) td_tpl_raise(p->r, "KeyError", "'%.*s'", TD_STR_ARGS(td_v_str(key)));
    return td_v_given(d->value) && !TD_V_FAILED(d->value);
}

static bool run_directive(percent *p, td_str text, size_t *at) {
    size_t begin = *at;
    directive d = {.width = -1, .precision = -1, .value = td_v_missing()};
    if (*at < text.n && text.p[*at] == '(' && !read_key(p, text, at, &d)) return false;
    for (; *at < text.n && text.p[*at] && strchr("-+ #0", text.p[*at]); ++*at) {
        char flag = text.p[*at];
        d.left |= flag == '-';
        d.plus |= flag == '+';
        d.space |= flag == ' ';
        d.alternate |= flag == '#';
        d.zero |= flag == '0';
    }
    if (!read_number(p, text, at, &d.width)) return false;
    if (d.width < -1) {
        d.left = true;
        d.width = -d.width;
    }
    if (*at < text.n && text.p[*at] == '.') {
        ++*at;
        d.precision = 0;
        if (!read_number(p, text, at, &d.precision)) return false;
        d.precision = TD_MAX(d.precision, 0);
    }
    if (*at < text.n && text.p[*at] && strchr("hlL", text.p[*at])) ++*at;
    if (*at >= text.n) {
        td_tpl_raise(p->r, "ValueError", "incomplete format");
        return false;
    }
    char type = text.p[(*at)++];
    if (type == '%' && *at == begin + 1) {
        td_buf_char(p->out, '%');
        return true;
    }
    td_val v = td_v_given(d.value) ? d.value : next_argument(p);
    if (TD_V_FAILED(v)) return false;
    if (!type || !strchr("diuoxXeEfFgGcrsa", type)) {
        td_tpl_raise(p->r, "ValueError", "unsupported format character '%c' (0x%x) at index %zu",
                     type & 0x80 ? '?' : type, (unsigned)(uint8_t)type, *at - 1);
        return false;
    }
    if (strchr("rsa", type)) return put_text(p, &d, type, v);
    return type == 'c' ? put_char(p, &d, v) : put_number(p, &d, type, v);
}

td_val td_v_percent(td_tpl *r, td_val format, td_val args) {
    td_buf out = {0};
    percent p = {.r = r, .args = args, .out = &out, .is_tuple = args.kind == TD_V_TUPLE};
    p.is_mapping = args.kind == TD_V_DICT || args.kind == TD_V_LIST || args.kind == TD_V_UNDEFINED ||
                   args.kind == TD_V_BYTES || args.kind == TD_V_RANGE;
    td_str text = td_v_str(format);
    bool ok = td_tpl_steps(r, text.n / 16);
    for (size_t at = 0; ok && at < text.n;) {
        size_t begin = at;
        while (at < text.n && text.p[at] != '%') at++;
        td_buf_append(&out, text.p + begin, at - begin);
        if (at++ < text.n) ok = td_tpl_steps(r, 1) && run_directive(&p, text, &at) && td_tpl_buf_ok(r, &out);
    }
    uint32_t given = p.is_tuple ? args.u.list->n : 1;
    if (ok && !p.is_mapping && p.next < given) {
        td_tpl_raise(r, "TypeError", "not all arguments converted during string formatting");
        ok = false;
    }
    if (ok) return td_v_take_buf(r, &out);
    td_buf_free(&out);
    return td_v_error();
}
