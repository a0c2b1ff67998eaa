/* template/methods_string.c - the methods of Python's str that look, cut and convert; splitting is in
 * methods_split.c. */
#include "text/template/methods.h"
#include "text/template/unicode.h"

#define METHOD(name) static td_val str_##name(td_tpl *r, td_val self, const td_val *a, const td_tpl_args *args)

/* --- helpers that the methods and filters share --- */

td_val td_str_convert(td_tpl *r, td_val v, void (*convert)(td_str text, td_buf *out)) {
    if (!td_tpl_steps(r, v.n / 8)) return td_v_error();
    td_buf out = {0};
    convert(td_v_str(v), &out);
    return td_v_take_buf(r, &out);
}

static bool in_set(td_str set, uint32_t c) {
    for (size_t at = 0; at < set.n;) {
        if (td_tpl_uni_next(set, &at) == c) return true;
    }
    return false;
}

/* chars missing or none: white space. */
td_val td_str_strip(td_tpl *r, td_val v, td_val chars, bool left, bool right) {
    td_str text = td_v_str(v);
    if (!td_v_given(chars) || chars.kind == TD_V_NONE) {
        if (!td_tpl_steps(r, text.n / 16)) return td_v_error();
        return td_v_view(td_tpl_uni_strip_space(text, left, right));
    }
    if (chars.kind != TD_V_STRING) return td_tpl_raise(r, "TypeError", "strip arg must be None or str");
    td_str set = td_v_str(chars);
    while (left && text.n) {
        size_t at = 0;
        if (!td_tpl_steps(r, set.n / 16)) return td_v_error();
        if (!in_set(set, td_tpl_uni_next(text, &at))) break;
        text.p += at;
        text.n -= at;
    }
    while (right && text.n) {
        size_t at = text.n;
        if (!td_tpl_steps(r, set.n / 16)) return td_v_error();
        if (!in_set(set, td_tpl_uni_previous(text, &at))) break;
        text.n = at;
    }
    return td_v_view(text);
}

td_val td_str_replace(td_tpl *r, td_val v, td_val from, td_val to, int64_t count) {
    td_str text = td_v_str(v), old = td_v_str(from), new = td_v_str(to);
    if (!td_tpl_steps(r, text.n / 16)) return td_v_error();
    td_buf out = {0};
    size_t done = 0;
    for (size_t at = 0; count != 0;) {
        if (old.n) {
            ptrdiff_t found = td_str_find((td_str){text.p + at, text.n - at}, old);
            if (found < 0) break;
            at += (size_t)found;
        }
        if (!td_tpl_steps(r, 1 + new.n / 64)) {
            td_buf_free(&out);
            return td_v_error();
        }
        td_buf_append(&out, text.p + done, at - done);
        td_buf_str(&out, new);
        if (!td_tpl_buf_ok(r, &out)) break;
        done = at + old.n;
        if (count > 0) count--;
        if (old.n) {
            at = done;
        } else { /* between all characters and at both ends */
            if (at >= text.n) break;
            td_tpl_uni_next(text, &at);
        }
    }
    if (done == 0 && !out.n && r->status == TREADLE_OK) {
        td_buf_free(&out);
        return v;
    }
    td_buf_append(&out, text.p + done, text.n - done);
    return td_v_take_buf(r, &out);
}

td_val td_str_center(td_tpl *r, td_val v, int64_t width, uint32_t fill, char align) {
    int64_t n = td_v_len(v), room = width - n;
    if (room <= 0) return v;
    if (room > 1 << 24) return td_tpl_raise(r, "LimitError", "a width of %lld", (long long)width);
    int64_t left = align == '<' ? 0 : align == '>' ? room : room / 2 + (room & width & 1);
    if (!td_tpl_steps(r, (uint64_t)room / 16)) return td_v_error();
    td_buf out = {0};
    for (int64_t i = 0; i < left; i++) td_tpl_uni_append(&out, fill);
    td_buf_str(&out, td_v_str(v));
    for (int64_t i = left; i < room; i++) td_tpl_uni_append(&out, fill);
    return td_v_take_buf(r, &out);
}

static bool want_string(td_tpl *r, td_val v, const char *what) {
    if (v.kind == TD_V_STRING) return true;
    td_tpl_raise(r, "TypeError", "%s must be str, not %s", what, td_v_type(v));
    return false;
}

/* --- case --- */

METHOD(upper) { return (void)a, (void)args, td_str_convert(r, self, td_tpl_uni_upper); }
METHOD(lower) { return (void)a, (void)args, td_str_convert(r, self, td_tpl_uni_lower); }
METHOD(title) { return (void)a, (void)args, td_str_convert(r, self, td_tpl_uni_title); }
METHOD(capitalize) { return (void)a, (void)args, td_str_convert(r, self, td_tpl_uni_capitalize); }
METHOD(swapcase) { return (void)a, (void)args, td_str_convert(r, self, td_tpl_uni_swapcase); }
METHOD(casefold) { return (void)a, (void)args, td_str_convert(r, self, td_tpl_uni_fold); }

/* --- ends --- */

METHOD(strip) { return (void)args, td_str_strip(r, self, a[0], true, true); }
METHOD(lstrip) { return (void)args, td_str_strip(r, self, a[0], true, false); }
METHOD(rstrip) { return (void)args, td_str_strip(r, self, a[0], false, true); }

/* The part of a string that start and end, as slices have them, leave; begins: how many bytes come before. False when
 * start lies past the end, where nothing is ever found. */
static bool narrow(td_tpl *r, td_val self, td_val start, td_val end, td_str *out, bool *ok) {
    *ok = true;
    *out = td_v_str(self);
    bool has_start = td_v_given(start) && start.kind != TD_V_NONE, has_end = td_v_given(end) && end.kind != TD_V_NONE;
    if (!has_start && !has_end) return true;
    if (!td_tpl_steps(r, self.n / 16)) return *ok = false;
    int64_t n = td_v_len(self), from = 0, to = n;
    if ((has_start && !td_num_index(r, start, "start", &from)) || (has_end && !td_num_index(r, end, "end", &to)))
        return *ok = false;
    if (from < 0) from = TD_MAX(from + n, 0);
    if (to < 0) to = TD_MAX(to + n, 0);
    if (from > n) return false;
    to = TD_MAX(TD_MIN(to, n), from - 1);
    if (to < from) return false;
    size_t begin = td_tpl_uni_offset(*out, (size_t)from);
    size_t finish = td_tpl_uni_offset(*out, (size_t)to);
    *out = (td_str){out->p + begin, finish - begin};
    return true;
}

static td_val has_end(td_tpl *r, td_val self, const td_val *a, bool start) {
    bool ok;
    td_str text;
    const char *what = start ? "startswith first arg must be str or a tuple of str"
                             : "endswith first arg must be str or a tuple of str";
    if (a[0].kind != TD_V_STRING && a[0].kind != TD_V_TUPLE) {
        return td_tpl_raise(r, "TypeError", "%s, not %s", what, td_v_type(a[0]));
    }
    bool possible = narrow(r, self, a[1], a[2], &text, &ok);
    if (!ok) return td_v_error();
    uint32_t n = a[0].kind == TD_V_TUPLE ? a[0].u.list->n : 1;
    for (uint32_t i = 0; i < n; i++) {
        td_val part = a[0].kind == TD_V_TUPLE ? a[0].u.list->items[i] : a[0];
        if (!td_tpl_steps(r, 1) || !want_string(r, part, what)) return td_v_error();
        if (possible && (start ? td_str_starts(text, td_v_str(part)) : td_str_ends(text, td_v_str(part))))
            return td_v_bool(true);
    }
    return td_v_bool(false);
}

METHOD(startswith) { return (void)args, has_end(r, self, a, true); }
METHOD(endswith) { return (void)args, has_end(r, self, a, false); }

METHOD(removeprefix) {
    (void)args;
    if (!want_string(r, a[0], "removeprefix() argument")) return td_v_error();
    td_str text = td_v_str(self);
    if (!td_str_starts(text, td_v_str(a[0]))) return self;
    return td_v_view((td_str){text.p + a[0].n, text.n - a[0].n});
}

METHOD(removesuffix) {
    (void)args;
    if (!want_string(r, a[0], "removesuffix() argument")) return td_v_error();
    td_str text = td_v_str(self);
    if (!td_str_ends(text, td_v_str(a[0]))) return self;
    return td_v_view((td_str){text.p, text.n - a[0].n});
}

/* --- searching --- */

static td_val search(td_tpl *r, td_val self, const td_val *a, bool last, bool must) {
    bool ok;
    td_str text;
    if (!want_string(r, a[0], "the searched text") || !td_tpl_steps(r, self.n / 16)) return td_v_error();
    bool possible = narrow(r, self, a[1], a[2], &text, &ok);
    if (!ok) return td_v_error();
    if (last && !td_tpl_steps(r, text.n / 16)) return td_v_error();
    ptrdiff_t at = !possible ? -1
                   : last    ? td_str_find_last(r, text, td_v_str(a[0]))
                             : td_str_find(text, td_v_str(a[0]));
    if (r->status != TREADLE_OK) return td_v_error();
    if (at < 0) return must ? td_tpl_raise(r, "ValueError", "substring not found") : td_v_int(-1);
    return td_v_int((int64_t)td_tpl_uni_count((td_str){self.u.p, (size_t)(text.p + at - self.u.p)}));
}

METHOD(find) { return (void)args, search(r, self, a, false, false); }
METHOD(rfind) { return (void)args, search(r, self, a, true, false); }
METHOD(index) { return (void)args, search(r, self, a, false, true); }
METHOD(rindex) { return (void)args, search(r, self, a, true, true); }

METHOD(count) {
    (void)args;
    bool ok;
    td_str text, part = td_v_str(a[0]);
    if (!want_string(r, a[0], "count() argument") || !td_tpl_steps(r, self.n / 16)) return td_v_error();
    bool possible = narrow(r, self, a[1], a[2], &text, &ok);
    if (!ok) return td_v_error();
    if (!possible) return td_v_int(0);
    if (!part.n) return td_v_int((int64_t)td_tpl_uni_count(text) + 1);
    int64_t n = 0;
    for (ptrdiff_t at; (at = td_str_find(text, part)) >= 0; n++) {
        text.p += (size_t)at + part.n;
        text.n -= (size_t)at + part.n;
    }
    return td_v_int(n);
}

METHOD(replace) {
    (void)args;
    int64_t count = -1;
    if (!want_string(r, a[0], "replace() argument 1") || !want_string(r, a[1], "replace() argument 2"))
        return td_v_error();
    if (td_v_given(a[2]) && !td_num_index(r, a[2], "count", &count)) return td_v_error();
    return td_str_replace(r, self, a[0], a[1], count);
}

/* --- kinds of characters --- */

static td_val all_have(td_tpl *r, td_val self, unsigned wanted, bool empty) {
    if (!td_tpl_steps(r, self.n / 8)) return td_v_error();
    for (size_t at = 0; at < self.n;) {
        if (!(td_tpl_uni_flags(td_tpl_uni_next(td_v_str(self), &at)) & wanted)) return td_v_bool(false);
    }
    return td_v_bool(self.n || empty);
}

METHOD(isalpha) { return (void)a, (void)args, all_have(r, self, TD_U_ALPHA, false); }
METHOD(isalnum) { return (void)a, (void)args, all_have(r, self, TD_U_ALNUM, false); }
METHOD(isdecimal) { return (void)a, (void)args, all_have(r, self, TD_U_DECIMAL, false); }
METHOD(isdigit) { return (void)a, (void)args, all_have(r, self, TD_U_DIGIT | TD_U_DECIMAL, false); }
METHOD(isnumeric) { return (void)a, (void)args, all_have(r, self, TD_U_NUMERIC | TD_U_DIGIT | TD_U_DECIMAL, false); }
METHOD(isspace) { return (void)a, (void)args, all_have(r, self, TD_U_SPACE, false); }
METHOD(isprintable) { return (void)a, (void)args, all_have(r, self, TD_U_PRINTABLE, true); }
METHOD(isascii) { return (void)r, (void)a, (void)args, td_v_bool(self.flags & TD_F_ASCII); }

METHOD(isidentifier) {
    (void)a, (void)args;
    if (!td_tpl_steps(r, self.n / 8)) return td_v_error();
    for (size_t at = 0; at < self.n;) {
        bool first = at == 0;
        uint32_t c = td_tpl_uni_next(td_v_str(self), &at);
        if (c != '_' && !(td_tpl_uni_flags(c) & (first ? TD_U_ALPHA : TD_U_ALPHA | TD_U_DECIMAL)))
            return td_v_bool(false);
    }
    return td_v_bool(self.n > 0);
}

static td_val is_case(td_tpl *r, td_val self, unsigned wanted) {
    if (!td_tpl_steps(r, self.n / 8)) return td_v_error();
    bool found = false;
    for (size_t at = 0; at < self.n;) {
        unsigned flags = td_tpl_uni_flags(td_tpl_uni_next(td_v_str(self), &at));
        if (flags & TD_U_CASED & ~wanted) return td_v_bool(false);
        found |= (flags & wanted) != 0;
    }
    return td_v_bool(found);
}

METHOD(isupper) { return (void)a, (void)args, is_case(r, self, TD_U_UPPER); }
METHOD(islower) { return (void)a, (void)args, is_case(r, self, TD_U_LOWER); }

METHOD(istitle) {
    (void)a, (void)args;
    if (!td_tpl_steps(r, self.n / 8)) return td_v_error();
    bool found = false, inside = false;
    for (size_t at = 0; at < self.n;) {
        unsigned flags = td_tpl_uni_flags(td_tpl_uni_next(td_v_str(self), &at));
        if ((flags & (TD_U_UPPER | TD_U_TITLE) && inside) || (flags & TD_U_LOWER && !inside)) return td_v_bool(false);
        inside = flags & TD_U_CASED;
        found |= inside;
    }
    return td_v_bool(found);
}

/* --- padding --- */

static td_val justify(td_tpl *r, td_val self, const td_val *a, char align) {
    int64_t width;
    if (!td_num_index(r, a[0], "width", &width)) return td_v_error();
    uint32_t fill = ' ';
    if (td_v_given(a[1])) {
        if (a[1].kind != TD_V_STRING || td_v_len(a[1]) != 1) {
            return td_tpl_raise(r, "TypeError", "The fill character must be exactly one character long");
        }
        size_t at = 0;
        fill = td_tpl_uni_next(td_v_str(a[1]), &at);
    }
    return td_str_center(r, self, width, fill, align);
}

METHOD(center) { return (void)args, justify(r, self, a, '^'); }
METHOD(ljust) { return (void)args, justify(r, self, a, '<'); }
METHOD(rjust) { return (void)args, justify(r, self, a, '>'); }

METHOD(zfill) {
    (void)args;
    int64_t width, n = td_v_len(self);
    if (!td_num_index(r, a[0], "width", &width)) return td_v_error();
    if (width <= n) return self;
    if (width > 1 << 24) return td_tpl_raise(r, "LimitError", "a width of %lld", (long long)width);
    if (!td_tpl_steps(r, (uint64_t)width / 16)) return td_v_error();
    td_buf out = {0};
    size_t sign = self.n && (self.u.p[0] == '-' || self.u.p[0] == '+');
    td_buf_append(&out, self.u.p, sign);
    for (; width > n; width--) td_buf_char(&out, '0');
    td_buf_append(&out, self.u.p + sign, self.n - sign);
    return td_v_take_buf(r, &out);
}

METHOD(expandtabs) {
    (void)args;
    int64_t size = 8, column = 0;
    if (td_v_given(a[0]) && !td_num_index(r, a[0], "tabsize", &size)) return td_v_error();
    if (size > 1 << 16) return td_tpl_raise(r, "LimitError", "a tab size of %lld", (long long)size);
    td_buf out = {0};
    for (size_t at = 0; at < self.n;) {
        uint32_t c = td_tpl_uni_next(td_v_str(self), &at);
        if (c != '\t') {
            td_tpl_uni_append(&out, c);
            column = c == '\n' || c == '\r' ? 0 : column + 1;
            continue;
        }
        int64_t n = size > 0 ? size - column % size : 0;
        if (!td_tpl_steps(r, 1 + (uint64_t)n / 16) || !td_tpl_buf_ok(r, &out)) {
            td_buf_free(&out);
            return td_v_error();
        }
        for (int64_t i = 0; i < n; i++) td_buf_char(&out, ' ');
        column += n;
    }
    return td_v_take_buf(r, &out);
}

/* --- formatting, bytes --- */

METHOD(format) { return (void)a, td_v_format(r, self, args); }

METHOD(format_map) {
    (void)args;
    if (a[0].kind != TD_V_DICT)
        return td_tpl_raise(r, "TypeError", "format_map() argument must be a mapping, not %s", td_v_type(a[0]));
    const td_tpl_dict *d = a[0].u.dict;
    td_tpl_keyword *keywords = td_tpl_alloc_array(r, d->n, sizeof *keywords);
    if (!keywords) return td_v_error();
    td_tpl_args named = {.keywords = keywords};
    for (uint32_t i = 0; i < d->n; i++) {
        if (d->items[i].key.kind != TD_V_STRING) continue;
        keywords[named.n_keywords++] = (td_tpl_keyword){td_v_str(d->items[i].key), d->items[i].value};
    }
    return td_v_format(r, self, &named);
}

METHOD(encode) {
    (void)args;
    if (td_v_given(a[0]) && a[0].kind != TD_V_STRING)
        return td_tpl_raise(r, "TypeError", "encode() argument 'encoding' must be str");
    td_str name = td_v_given(a[0]) ? td_v_str(a[0]) : TD_STR("utf-8");
    bool ascii = td_str_is(name, "ascii") && self.flags & TD_F_ASCII;
    if (!ascii && !td_str_is(name, "utf-8") && !td_str_is(name, "utf8") && !td_str_is(name, "UTF-8")) {
        return td_tpl_raise(r, "LookupError", "the encoding %.*s is not supported here; use utf-8", TD_STR_ARGS(name));
    }
    if (!td_utf8_valid(td_v_str(self))) return td_tpl_raise(r, "UnicodeEncodeError", "surrogates not allowed");
    return (td_val){.kind = TD_V_BYTES, .n = self.n, .u.p = self.u.p};
}

/* clang-format off */
static const td_tpl_builtin methods[] = {
    {.name = "upper", .fn = str_upper, .params = ""},
    {.name = "lower", .fn = str_lower, .params = ""},
    {.name = "title", .fn = str_title, .params = ""},
    {.name = "capitalize", .fn = str_capitalize, .params = ""},
    {.name = "swapcase", .fn = str_swapcase, .params = ""},
    {.name = "casefold", .fn = str_casefold, .params = ""},
    {.name = "strip", .fn = str_strip, .params = "?-chars"},
    {.name = "lstrip", .fn = str_lstrip, .params = "?-chars"},
    {.name = "rstrip", .fn = str_rstrip, .params = "?-chars"},
    {.name = "startswith", .fn = str_startswith, .params = "-prefix ?-start ?-end"},
    {.name = "endswith", .fn = str_endswith, .params = "-suffix ?-start ?-end"},
    {.name = "removeprefix", .fn = str_removeprefix, .params = "-prefix"},
    {.name = "removesuffix", .fn = str_removesuffix, .params = "-suffix"},
    {.name = "find", .fn = str_find, .params = "-sub ?-start ?-end"},
    {.name = "rfind", .fn = str_rfind, .params = "-sub ?-start ?-end"},
    {.name = "index", .fn = str_index, .params = "-sub ?-start ?-end"},
    {.name = "rindex", .fn = str_rindex, .params = "-sub ?-start ?-end"},
    {.name = "count", .fn = str_count, .params = "-sub ?-start ?-end"},
    {.name = "replace", .fn = str_replace, .params = "-old -new ?-count"},
    {.name = "split", .fn = td_str_split, .params = "?sep ?maxsplit"},
    {.name = "rsplit", .fn = td_str_rsplit, .params = "?sep ?maxsplit"},
    {.name = "splitlines", .fn = td_str_splitlines, .params = "?keepends"},
    {.name = "partition", .fn = td_str_partition, .params = "-sep"},
    {.name = "rpartition", .fn = td_str_rpartition, .params = "-sep"},
    {.name = "join", .fn = td_str_join, .params = "-iterable"},
    {.name = "isalpha", .fn = str_isalpha, .params = ""},
    {.name = "isalnum", .fn = str_isalnum, .params = ""},
    {.name = "isdecimal", .fn = str_isdecimal, .params = ""},
    {.name = "isdigit", .fn = str_isdigit, .params = ""},
    {.name = "isnumeric", .fn = str_isnumeric, .params = ""},
    {.name = "isspace", .fn = str_isspace, .params = ""},
    {.name = "isprintable", .fn = str_isprintable, .params = ""},
    {.name = "isascii", .fn = str_isascii, .params = ""},
    {.name = "isidentifier", .fn = str_isidentifier, .params = ""},
    {.name = "isupper", .fn = str_isupper, .params = ""},
    {.name = "islower", .fn = str_islower, .params = ""},
    {.name = "istitle", .fn = str_istitle, .params = ""},
    {.name = "center", .fn = str_center, .params = "-width ?-fillchar"},
    {.name = "ljust", .fn = str_ljust, .params = "-width ?-fillchar"},
    {.name = "rjust", .fn = str_rjust, .params = "-width ?-fillchar"},
    {.name = "zfill", .fn = str_zfill, .params = "-width"},
    {.name = "expandtabs", .fn = str_expandtabs, .params = "?tabsize"},
    {.name = "format", .fn = str_format, .variadic = true},
    {.name = "format_map", .fn = str_format_map, .params = "-mapping"},
    {.name = "encode", .fn = str_encode, .params = "?encoding ?errors"},
};
/* clang-format on */

const td_tpl_builtin *td_tpl_string_method(td_str name) { return td_tpl_find_row(methods, TD_COUNT(methods), name); }
