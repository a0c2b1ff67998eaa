/* template/methods_split.c - the methods of Python's str that split and join. */
#include "text/template/methods.h"
#include "text/template/unicode.h"

static td_str part(td_str text, size_t from, size_t to) { return (td_str){text.p + from, to - from}; }

static bool is_space(uint32_t c) { return td_tpl_uni_flags(c) & TD_U_SPACE; }

/* At white space, from the left: runs count as one, ends as none. */
static bool split_space(td_tpl *r, td_str text, int64_t max, td_tpl_list *out) {
    text = td_tpl_uni_strip_space(text, true, false);
    while (text.n && max-- != 0) {
        size_t end = 0, next = 0;
        while (end < text.n && !is_space(td_tpl_uni_next(text, &next))) end = next;
        if (!td_tpl_steps(r, 1 + end / 16) || !td_list_push(r, out, td_v_view(part(text, 0, end)))) return false;
        text = td_tpl_uni_strip_space(part(text, end, text.n), true, false);
    }
    if (!text.n) return true;
    text = td_tpl_uni_strip_space(text, false, true);
    return td_list_push(r, out, td_v_view(text));
}

static bool split_space_right(td_tpl *r, td_str text, int64_t max, td_tpl_list *out) {
    text = td_tpl_uni_strip_space(text, false, true);
    while (text.n && max-- != 0) {
        size_t begin = text.n, previous = text.n;
        while (begin > 0 && !is_space(td_tpl_uni_previous(text, &previous))) begin = previous;
        if (!td_tpl_steps(r, 1 + (text.n - begin) / 16) || !td_list_push(r, out, td_v_view(part(text, begin, text.n))))
            return false;
        text = td_tpl_uni_strip_space(part(text, 0, begin), false, true);
    }
    if (!text.n) return true;
    text = td_tpl_uni_strip_space(text, true, false);
    return td_list_push(r, out, td_v_view(text));
}

static bool split_at(td_tpl *r, td_str text, td_str sep, int64_t max, td_tpl_list *out) {
    while (max-- != 0) {
        ptrdiff_t at = td_str_find(text, sep);
        if (at < 0) break;
        if (!td_tpl_steps(r, 1 + (size_t)at / 64) || !td_list_push(r, out, td_v_view(part(text, 0, (size_t)at))))
            return false;
        text = part(text, (size_t)at + sep.n, text.n);
    }
    return td_list_push(r, out, td_v_view(text));
}

/* The last place of part, at cost of the bytes compared: a search from the right has no linear method here. -1: none or
 * (r->status) raised. */
ptrdiff_t td_str_find_last(td_tpl *r, td_str text, td_str sep) {
    if (!sep.n) return (ptrdiff_t)text.n;
    for (size_t at = text.n >= sep.n ? text.n - sep.n + 1 : 0; at-- > 0;) {
        if (text.p[at] != sep.p[0] || text.p[at + sep.n - 1] != sep.p[sep.n - 1]) continue;
        if (!td_tpl_steps(r, sep.n / 64)) return -1;
        if (memcmp(text.p + at, sep.p, sep.n) == 0) return (ptrdiff_t)at;
    }
    return -1;
}

static bool split_at_right(td_tpl *r, td_str text, td_str sep, int64_t max, td_tpl_list *out) {
    while (max-- != 0) {
        ptrdiff_t at = td_str_find_last(r, text, sep);
        if (r->status != TREADLE_OK) return false;
        if (at < 0) break;
        size_t after = (size_t)at + sep.n;
        if (!td_tpl_steps(r, 1 + (text.n - after) / 64) || !td_list_push(r, out, td_v_view(part(text, after, text.n))))
            return false;
        text = part(text, 0, (size_t)at);
    }
    return td_list_push(r, out, td_v_view(text));
}

static td_val split(td_tpl *r, td_val self, const td_val *a, bool right) {
    int64_t max = -1;
    if (td_v_given(a[1]) && !td_num_index(r, a[1], "maxsplit", &max)) return td_v_error();
    bool space = !td_v_given(a[0]) || a[0].kind == TD_V_NONE;
    if (!space && a[0].kind != TD_V_STRING)
        return td_tpl_raise(r, "TypeError", "must be str or None, not %s", td_v_type(a[0]));
    if (!space && !a[0].n) return td_tpl_raise(r, "ValueError", "empty separator");
    td_tpl_list *out = td_list_new(r, 0);
    if (!out || !td_tpl_steps(r, self.n / 64)) return td_v_error();
    td_str text = td_v_str(self), sep = td_v_str(a[0]);
    bool ok = space ? (right ? split_space_right : split_space)(r, text, max, out)
                    : (right ? split_at_right : split_at)(r, text, sep, max, out);
    if (!ok) return td_v_error();
    for (uint32_t i = 0; right && i < out->n / 2; i++) { /* found from the end */
        td_val swap = out->items[i];
        out->items[i] = out->items[out->n - 1 - i];
        out->items[out->n - 1 - i] = swap;
    }
    return td_v_list(out);
}

td_val td_str_split(td_tpl *r, td_val self, const td_val *a, const td_tpl_args *args) {
    (void)args;
    return split(r, self, a, false);
}

td_val td_str_rsplit(td_tpl *r, td_val self, const td_val *a, const td_tpl_args *args) {
    (void)args;
    return split(r, self, a, true);
}

static bool ends_line(uint32_t c) {
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

td_val td_str_lines(td_tpl *r, td_val v, bool keep_ends) {
    td_str text = td_v_str(v);
    td_tpl_list *out = td_list_new(r, 0);
    if (!out || !td_tpl_steps(r, text.n / 16)) return td_v_error();
    for (size_t at = 0; at < text.n;) {
        size_t begin = at, end = at;
        bool ended = false;
        while (at < text.n && !ended) {
            end = at;
            uint32_t c = td_tpl_uni_next(text, &at);
            ended = ends_line(c);
            if (!ended) end = at;
            if (c == '\r' && at < text.n && text.p[at] == '\n') at++;
        }
        if (!td_tpl_steps(r, 1) || !td_list_push(r, out, td_v_view(part(text, begin, keep_ends ? at : end))))
            return td_v_error();
    }
    return td_v_list(out);
}

td_val td_str_splitlines(td_tpl *r, td_val self, const td_val *a, const td_tpl_args *args) {
    (void)args;
    int keep = td_v_given(a[0]) ? td_v_truth(r, a[0]) : 0;
    return keep < 0 ? td_v_error() : td_str_lines(r, self, keep);
}

static td_val partition(td_tpl *r, td_val self, td_val sep, bool right) {
    if (sep.kind != TD_V_STRING) return td_tpl_raise(r, "TypeError", "must be str, not %s", td_v_type(sep));
    if (!sep.n) return td_tpl_raise(r, "ValueError", "empty separator");
    if (!td_tpl_steps(r, self.n / 16)) return td_v_error();
    td_str text = td_v_str(self);
    ptrdiff_t at = right ? td_str_find_last(r, text, td_v_str(sep)) : td_str_find(text, td_v_str(sep));
    td_val empty = td_v_text("");
    td_val parts[3] = {right ? empty : self, empty, right ? self : empty};
    if (r->status != TREADLE_OK) return td_v_error();
    if (at >= 0) {
        parts[0] = td_v_view(part(text, 0, (size_t)at));
        parts[1] = sep;
        parts[2] = td_v_view(part(text, (size_t)at + sep.n, text.n));
    }
    td_tpl_list *l = td_list_new(r, 3);
    for (int i = 0; l && i < 3; i++) l->items[l->n++] = parts[i];
    return td_v_tuple(l);
}

td_val td_str_partition(td_tpl *r, td_val self, const td_val *a, const td_tpl_args *args) {
    (void)args;
    return partition(r, self, a[0], false);
}

td_val td_str_rpartition(td_tpl *r, td_val self, const td_val *a, const td_tpl_args *args) {
    (void)args;
    return partition(r, self, a[0], true);
}

td_val td_str_join(td_tpl *r, td_val self, const td_val *a, const td_tpl_args *args) {
    (void)args;
    if (!td_v_iterable(a[0])) return td_tpl_raise(r, "TypeError", "can only join an iterable");
    td_tpl_iter *it = td_iter_over(r, a[0]);
    if (!it) return td_v_error();
    td_buf out = {0};
    for (int64_t i = 0;; i++) {
        td_val v = td_iter_next(r, it);
        if (!td_v_given(v)) break;
        if (!TD_V_FAILED(v) && v.kind != TD_V_STRING) {
            td_tpl_raise(r, "TypeError", "sequence item %lld: expected str instance, %s found", (long long)i,
                         td_v_type(v));
        }
        if (i) td_buf_str(&out, td_v_str(self));
        if (r->status == TREADLE_OK) td_buf_str(&out, td_v_str(v));
        if (r->status != TREADLE_OK || !td_tpl_steps(r, (v.n + self.n) / 64) || !td_tpl_buf_ok(r, &out)) {
            td_buf_free(&out);
            return td_v_error();
        }
    }
    return td_v_take_buf(r, &out);
}
