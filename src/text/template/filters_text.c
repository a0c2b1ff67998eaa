/* template/filters_text.c - filters on text. Most take anything and make a string of it first, as Jinja2 does. */
#include "text/template/filters.h"
#include "text/template/unicode.h"

static bool to_text(td_tpl *r, td_val *v) {
    *v = td_v_to_str(r, *v);
    return !TD_V_FAILED(*v);
}

FILTER(upper) { return (void)a, (void)args, to_text(r, &v) ? td_str_convert(r, v, td_tpl_uni_upper) : v; }
FILTER(lower) { return (void)a, (void)args, to_text(r, &v) ? td_str_convert(r, v, td_tpl_uni_lower) : v; }
FILTER(capitalize) { return (void)a, (void)args, to_text(r, &v) ? td_str_convert(r, v, td_tpl_uni_capitalize) : v; }
FILTER(string) { return (void)a, (void)args, to_text(r, &v), v; }
FILTER(trim) { return (void)args, to_text(r, &v) ? td_str_strip(r, v, a[0], true, true) : v; }

static bool divides_words(uint32_t c) {
    return (c < 0x80 && c && strchr("-({[<", (int)c)) || td_tpl_uni_flags(c) & TD_U_SPACE;
}

/* Words end at white space, hyphens and opening brackets, unlike those of str.title(). */
static void title_words(td_str text, td_buf *out) {
    for (size_t at = 0; at < text.n;) {
        size_t begin = at, end = at;
        uint32_t c = td_tpl_uni_next(text, &at);
        if (divides_words(c)) {
            td_buf_append(out, text.p + begin, at - begin);
            continue;
        }
        td_tpl_uni_upper((td_str){text.p + begin, at - begin}, out);
        end = begin = at;
        while (at < text.n && !divides_words(td_tpl_uni_next(text, &at))) end = at;
        td_tpl_uni_lower((td_str){text.p + begin, end - begin}, out);
        at = end;
    }
}

FILTER(title) { return (void)a, (void)args, to_text(r, &v) ? td_str_convert(r, v, title_words) : v; }

FILTER(replace) {
    (void)args;
    td_val from = a[0], to = a[1];
    int64_t count = -1;
    if (!to_text(r, &v) || !to_text(r, &from) || !to_text(r, &to)) return td_v_error();
    if (td_tpl_has(a[2]) && !td_num_index(r, a[2], "count", &count)) return td_v_error();
    return td_str_replace(r, v, from, to, count);
}

FILTER(center) {
    (void)args;
    int64_t width = 80;
    if (!to_text(r, &v) || (td_v_given(a[0]) && !td_num_index(r, a[0], "width", &width))) return td_v_error();
    return td_str_center(r, v, width, ' ', '^');
}

FILTER(wordcount) {
    (void)a, (void)args;
    if (!to_text(r, &v) || !td_tpl_steps(r, v.n / 8)) return td_v_error();
    int64_t n = 0;
    bool inside = false;
    for (size_t at = 0; at < v.n;) {
        uint32_t c = td_tpl_uni_next(td_v_str(v), &at);
        bool word = c == '_' || td_tpl_uni_flags(c) & TD_U_ALNUM;
        n += word && !inside;
        inside = word;
    }
    return td_v_int(n);
}

FILTER(indent) {
    (void)args;
    if (v.kind == TD_V_UNDEFINED) return td_tpl_raise_undefined(r, v);
    if (v.kind != TD_V_STRING) return td_tpl_raise(r, "TypeError", "indent: expected a string, found %s", td_v_type(v));
    int64_t width = 4;
    td_str indention = {NULL, 0};
    if (a[0].kind == TD_V_STRING) indention = td_v_str(a[0]);
    else if (td_v_given(a[0]) && !td_num_index(r, a[0], "width", &width)) return td_v_error();
    int first = td_tpl_flag(r, a[1]), blank = td_tpl_flag(r, a[2]);
    if (first < 0 || blank < 0) return td_v_error();
    if (width > 1 << 16) return td_tpl_raise(r, "LimitError", "an indent of %lld", (long long)width);
    td_buf spaces = {0}, out = {0};
    for (int64_t i = 0; !indention.p && i < width; i++) td_buf_char(&spaces, ' ');
    if (a[0].kind != TD_V_STRING) indention = td_buf_view(&spaces);
    td_val whole = td_v_concat(r, v, td_v_text("\n"));
    td_val lines = TD_V_FAILED(whole) ? whole : td_str_lines(r, whole, false);
    bool ok = !TD_V_FAILED(lines) && td_tpl_buf_ok(r, &spaces);
    for (uint32_t i = 0; ok && i < lines.u.list->n; i++) {
        td_str line = td_v_str(lines.u.list->items[i]);
        if (i) td_buf_char(&out, '\n');
        if (i ? blank || line.n : first) td_buf_str(&out, indention);
        td_buf_str(&out, line);
        ok = td_tpl_steps(r, 1 + indention.n / 64) && td_tpl_buf_ok(r, &out);
    }
    td_buf_free(&spaces);
    if (ok) return td_v_take_buf(r, &out);
    td_buf_free(&out);
    return td_v_error();
}

FILTER(truncate) {
    (void)args;
    int64_t length = 255, leeway = 5;
    td_val end = td_v_given(a[2]) ? a[2] : td_v_text("...");
    int kill = td_tpl_flag(r, a[1]);
    if (kill < 0 || (td_v_given(a[0]) && !td_num_index(r, a[0], "length", &length)) ||
        (td_tpl_has(a[3]) && !td_num_index(r, a[3], "leeway", &leeway))) {
        return td_v_error();
    }
    if (end.kind != TD_V_STRING)
        return td_tpl_raise(r, "TypeError", "truncate: end must be a string, not %s", td_v_type(end));
    int64_t end_length = td_v_len(end);
    if (length < end_length) {
        return td_tpl_raise(r, "AssertionError", "expected length >= %lld, got %lld", (long long)end_length,
                            (long long)length);
    }
    if (leeway < 0) return td_tpl_raise(r, "AssertionError", "expected leeway >= 0, got %lld", (long long)leeway);
    td_val n = td_v_length(r, v); /* what is short enough may be anything that has a length */
    TD_V_CHECK(n);
    if (n.u.i <= length + leeway) return v;
    if (v.kind != TD_V_STRING)
        return td_tpl_raise(r, "TypeError", "truncate: expected a string, found %s", td_v_type(v));
    td_str kept = {v.u.p, td_tpl_uni_offset(td_v_str(v), (size_t)(length - end_length))};
    for (size_t i = kept.n; !kill && i-- > 0;) {
        if (kept.p[i] != ' ') continue;
        kept.n = i;
        break;
    }
    return td_v_concat(r, td_v_view(kept), end);
}

FILTER(format) {
    (void)a;
    if (!to_text(r, &v)) return v;
    if (args->n && args->n_keywords) {
        return td_tpl_raise(r, "FilterArgumentError", "can't handle positional and keyword arguments at the same time");
    }
    if (args->n_keywords) {
        td_tpl_dict *d = td_dict_new(r, args->n_keywords);
        for (uint32_t i = 0; d && i < args->n_keywords; i++) {
            if (!td_dict_set(r, d, td_v_view(args->keywords[i].name), args->keywords[i].value)) return td_v_error();
        }
        return d ? td_v_percent(r, v, td_v_dict(d)) : td_v_error();
    }
    td_tpl_list *l = td_list_new(r, args->n);
    for (uint32_t i = 0; l && i < args->n; i++) l->items[l->n++] = args->items[i];
    return l ? td_v_percent(r, v, td_v_tuple(l)) : td_v_error();
}

/* --- HTML and URLs --- */

FILTER(escape) { return (void)a, (void)args, td_v_escape(r, v); }

FILTER(forceescape) {
    (void)a, (void)args;
    if (v.kind == TD_V_STRING) v.flags &= (uint8_t)~TD_F_MARKUP;
    return td_v_escape(r, v);
}

FILTER(safe) {
    (void)a, (void)args;
    if (to_text(r, &v)) v.flags |= TD_F_MARKUP;
    return v;
}

/* One entity from text[at] on, which is '&': appends its character and returns its length, or 0. */
static size_t unescape(td_str text, size_t at, td_buf *out) {
    static const struct {
        const char *name;
        uint32_t code;
    } names[] = {{"amp;", '&'},   {"lt;", '<'},    {"gt;", '>'},   {"quot;", '"'},
                 {"apos;", '\''}, {"nbsp;", 0xA0}, {"copy;", 0xA9}};
    td_str rest = {text.p + at + 1, text.n - at - 1};
    for (size_t i = 0; i < TD_COUNT(names); i++) {
        if (!td_str_starts(rest, td_str_from(names[i].name))) continue;
        td_tpl_uni_append(out, names[i].code);
        return strlen(names[i].name) + 1;
    }
    if (rest.n < 2 || rest.p[0] != '#') return 0;
    bool hex = (rest.p[1] | 0x20) == 'x';
    size_t i = 1 + hex;
    uint32_t code = 0;
    for (; i < rest.n; i++) {
        char c = (char)(rest.p[i] | 0x20);
        uint32_t digit = rest.p[i] >= '0' && rest.p[i] <= '9' ? (uint32_t)(rest.p[i] - '0')
                         : hex && c >= 'a' && c <= 'f'        ? (uint32_t)(c - 'a' + 10)
                                                              : 99;
        if (digit == 99) break;
        code = TD_MIN(code * (hex ? 16 : 10) + digit, 0x110000u);
    }
    if (i == 1u + hex || i >= rest.n || rest.p[i] != ';' || code == 0 || code > 0x10FFFF) return 0;
    td_tpl_uni_append(out, code);
    return i + 2;
}

/* Comments and tags go, white space becomes single spaces, entities become characters. */
FILTER(striptags) {
    (void)a, (void)args;
    if (!to_text(r, &v) || !td_tpl_steps(r, v.n / 4)) return td_v_error();
    td_str text = td_v_str(v);
    td_buf bare = {0}, out = {0};
    for (size_t at = 0; at < text.n;) {
        td_str rest = {text.p + at, text.n - at};
        bool comment = td_str_starts(rest, TD_STR("<!--"));
        ptrdiff_t end = rest.p[0] != '<' ? -1 : td_str_find(rest, comment ? TD_STR("-->") : TD_STR(">"));
        if (end >= 0) {
            at += (size_t)end + (comment ? 3 : 1);
        } else if (rest.p[0] == '<') { /* nothing is closed any more */
            td_buf_str(&bare, rest);
            break;
        } else {
            td_buf_char(&bare, text.p[at++]);
        }
    }
    bool space = !td_tpl_buf_ok(r, &bare);
    text = td_tpl_uni_strip_space(td_buf_view(&bare), true, true);
    for (size_t at = 0; at < text.n;) {
        size_t begin = at;
        uint32_t c = td_tpl_uni_next(text, &at);
        bool is_space = td_tpl_uni_flags(c) & TD_U_SPACE;
        if (is_space && space) continue;
        space = is_space;
        size_t entity = c == '&' ? unescape(text, begin, &out) : 0;
        if (entity) at = begin + entity;
        else if (is_space) td_buf_char(&out, ' ');
        else td_buf_append(&out, text.p + begin, at - begin);
    }
    td_buf_free(&bare);
    td_val v_out = td_v_take_buf(r, &out);
    return r->status == TREADLE_OK ? v_out : td_v_error();
}

static bool quote(td_tpl *r, td_val v, bool query, td_buf *out) {
    if (!to_text(r, &v) || !td_tpl_steps(r, v.n / 16)) return false;
    for (uint32_t i = 0; i < v.n; i++) {
        char c = v.u.p[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     (c && strchr("_.-~", c)) || (c == '/' && !query);
        if (plain) td_buf_char(out, c);
        else if (c == ' ' && query) td_buf_char(out, '+');
        else td_buf_printf(out, "%%%02X", (uint8_t)c);
    }
    return td_tpl_buf_ok(r, out);
}

static bool quote_pairs(td_tpl *r, td_val v, td_buf *out) {
    if (v.kind == TD_V_DICT) v = (td_val){.kind = TD_V_VIEW, .view = 'i', .u.dict = v.u.dict};
    td_tpl_iter *it = td_iter_over(r, v);
    if (!it) return false;
    for (bool first = true;; first = false) {
        td_val pair = td_iter_next(r, it);
        if (TD_V_FAILED(pair)) return false;
        if (!td_v_given(pair)) return true;
        td_val items = td_v_to_list(r, pair);
        if (TD_V_FAILED(items)) return false;
        if (items.u.list->n != 2) {
            td_tpl_raise(r, "ValueError", "urlencode: expected pairs, found %u items", items.u.list->n);
            return false;
        }
        if (!first) td_buf_char(out, '&');
        if (!quote(r, items.u.list->items[0], true, out)) return false;
        td_buf_char(out, '=');
        if (!quote(r, items.u.list->items[1], true, out)) return false;
    }
}

FILTER(urlencode) {
    (void)a, (void)args;
    td_buf out = {0};
    bool ok = v.kind == TD_V_STRING || !td_v_iterable(v) ? quote(r, v, false, &out) : quote_pairs(r, v, &out);
    if (ok) return td_v_take_buf(r, &out);
    td_buf_free(&out);
    return td_v_error();
}

FILTER(xmlattr) {
    (void)args;
    if (v.kind == TD_V_UNDEFINED) return td_tpl_raise_undefined(r, v);
    if (v.kind != TD_V_DICT)
        return td_tpl_raise(r, "AttributeError", "'%s' object has no attribute 'items'", td_v_type(v));
    int space = td_v_given(a[0]) ? td_v_truth(r, a[0]) : 1;
    if (space < 0) return td_v_error();
    td_buf out = {0};
    for (uint32_t i = 0; i < v.u.dict->n && r->status == TREADLE_OK; i++) {
        td_val key = v.u.dict->items[i].key, value = v.u.dict->items[i].value;
        if (value.kind == TD_V_NONE || value.kind == TD_V_UNDEFINED) continue;
        if (key.kind != TD_V_STRING)
            td_tpl_raise(r, "TypeError", "expected string or bytes-like object, got '%s'", td_v_type(key));
        for (uint32_t k = 0; key.kind == TD_V_STRING && k < key.n && r->status == TREADLE_OK; k++) {
            if (strchr(" \t\n\r\f\v/>=", key.u.p[k]) && key.u.p[k])
                td_tpl_raise(r, "ValueError", "Invalid character in attribute name");
        }
        if (r->status != TREADLE_OK) break;
        key = td_v_escape(r, key);
        value = td_v_escape(r, value);
        if (r->status != TREADLE_OK) break;
        if (out.n || space) td_buf_char(&out, ' ');
        td_buf_str(&out, td_v_str(key));
        td_buf_text(&out, "=\"");
        td_buf_str(&out, td_v_str(value));
        td_buf_char(&out, '"');
        td_tpl_buf_ok(r, &out);
    }
    if (r->status == TREADLE_OK) return td_v_take_buf(r, &out);
    td_buf_free(&out);
    return td_v_error();
}

/* clang-format off */
const td_tpl_builtin td_tpl_text_filters[] = {
    {.name = "upper", .fn = filter_upper, .params = ""},
    {.name = "lower", .fn = filter_lower, .params = ""},
    {.name = "capitalize", .fn = filter_capitalize, .params = ""},
    {.name = "title", .fn = filter_title, .params = ""},
    {.name = "string", .fn = filter_string, .params = ""},
    {.name = "trim", .fn = filter_trim, .params = "?chars"},
    {.name = "replace", .fn = filter_replace, .params = "old new ?count"},
    {.name = "center", .fn = filter_center, .params = "?width"},
    {.name = "wordcount", .fn = filter_wordcount, .params = ""},
    {.name = "indent", .fn = filter_indent, .params = "?width ?first ?blank"},
    {.name = "truncate", .fn = filter_truncate, .params = "?length ?killwords ?end ?leeway"},
    {.name = "format", .fn = filter_format, .variadic = true},
    {.name = "escape", .fn = filter_escape, .params = ""},
    {.name = "e", .fn = filter_escape, .params = ""},
    {.name = "forceescape", .fn = filter_forceescape, .params = ""},
    {.name = "safe", .fn = filter_safe, .params = ""},
    {.name = "striptags", .fn = filter_striptags, .params = ""},
    {.name = "urlencode", .fn = filter_urlencode, .params = ""},
    {.name = "xmlattr", .fn = filter_xmlattr, .params = "?autospace"},
};
/* clang-format on */
const size_t td_tpl_n_text_filters = TD_COUNT(td_tpl_text_filters);
