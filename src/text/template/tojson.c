/* template/tojson.c - the tojson filter: Python's json.dumps with ensure_ascii off, as Hugging Face registers it. */
#include "text/template/unicode.h"
#include "text/template/value.h"

typedef struct writer {
    td_tpl *r;
    td_buf *out;
    td_str indent, between, colon;
    bool has_indent, ascii, sort;
    uint32_t level;
} writer;

static void write_string(writer *w, td_str text) {
    td_buf_char(w->out, '"');
    size_t done = 0;
    for (size_t at = 0; at < text.n;) {
        size_t begin = at;
        uint32_t c = td_tpl_uni_next(text, &at);
        const char *names = "\"\\\n\r\t\f\b", *letters = "\"\\nrtfb";
        const char *simple = c && c < 0x80 ? strchr(names, (int)c) : NULL;
        if (!simple && c >= 0x20 && (c < 0x7F || !w->ascii || c == 0x7F)) continue;
        td_buf_append(w->out, text.p + done, begin - done);
        done = at;
        if (simple) td_buf_printf(w->out, "\\%c", letters[simple - names]);
        else if (c < 0x10000) td_buf_printf(w->out, "\\u%04x", c);
        else td_buf_printf(w->out, "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + (c & 0x3FF));
    }
    td_buf_append(w->out, text.p + done, text.n - done);
    td_buf_char(w->out, '"');
}

static void write_double(writer *w, double f) {
    if (isfinite(f)) td_num_repr(f, w->out);
    else td_buf_text(w->out, isnan(f) ? "NaN" : f < 0 ? "-Infinity" : "Infinity");
}

static void new_line(writer *w) {
    if (!w->has_indent) return;
    td_buf_char(w->out, '\n');
    for (uint32_t i = 0; i < w->level; i++) td_buf_str(w->out, w->indent);
}

static bool write_value(writer *w, td_val v);

static bool write_key(writer *w, td_val key) {
    switch (key.kind) {
    case TD_V_STRING: write_string(w, td_v_str(key)); return td_tpl_steps(w->r, key.n / 16);
    case TD_V_NONE:
    case TD_V_BOOL:
    case TD_V_INT:
    case TD_V_BIG:
    case TD_V_FLOAT: {
        td_buf_char(w->out, '"');
        bool ok = write_value(w, key);
        td_buf_char(w->out, '"');
        return ok;
    }
    default:
        td_tpl_raise(w->r, "TypeError", "keys must be str, int, float, bool or None, not %s", td_v_type(key));
        return false;
    }
}

static bool write_list(writer *w, const td_tpl_list *l) {
    td_buf_char(w->out, '[');
    w->level++;
    for (uint32_t i = 0; i < l->n; i++) {
        if (i) td_buf_str(w->out, w->between);
        new_line(w);
        if (!write_value(w, l->items[i])) return false;
    }
    w->level--;
    if (l->n) new_line(w);
    td_buf_char(w->out, ']');
    return true;
}

/* The pairs in order of their keys. */
static const td_tpl_dict *sorted(td_tpl *r, const td_tpl_dict *d) {
    td_val pairs = td_v_to_list(r, (td_val){.kind = TD_V_VIEW, .view = 'i', .u.dict = (td_tpl_dict *)d});
    if (TD_V_FAILED(pairs) || !td_v_sort(r, pairs.u.list, NULL, NULL, false)) return NULL;
    td_tpl_dict *out = td_dict_new(r, d->n);
    for (uint32_t i = 0; out && i < d->n; i++) {
        const td_tpl_list *pair = pairs.u.list->items[i].u.list;
        if (!td_dict_set(r, out, pair->items[0], pair->items[1])) return NULL;
    }
    return out;
}

static bool write_dict(writer *w, const td_tpl_dict *d) {
    if (w->sort && !(d = sorted(w->r, d))) return false;
    td_buf_char(w->out, '{');
    w->level++;
    for (uint32_t i = 0; i < d->n; i++) {
        if (i) td_buf_str(w->out, w->between);
        new_line(w);
        if (!write_key(w, d->items[i].key)) return false;
        td_buf_str(w->out, w->colon);
        if (!write_value(w, d->items[i].value)) return false;
    }
    w->level--;
    if (d->n) new_line(w);
    td_buf_char(w->out, '}');
    return true;
}

static bool write_inner(writer *w, td_val v) {
    switch (v.kind) {
    case TD_V_NONE: td_buf_text(w->out, "null"); return true;
    case TD_V_BOOL: td_buf_text(w->out, v.u.b ? "true" : "false"); return true;
    case TD_V_INT: td_buf_printf(w->out, "%lld", (long long)v.u.i); return true;
    case TD_V_BIG: return td_big_text(w->r, v.u.big, 10, w->out);
    case TD_V_FLOAT: write_double(w, v.u.f); return true;
    case TD_V_STRING: write_string(w, td_v_str(v)); return td_tpl_steps(w->r, v.n / 16);
    case TD_V_LIST:
    case TD_V_TUPLE: return write_list(w, v.u.list);
    case TD_V_DICT: return write_dict(w, v.u.dict);
    default: td_tpl_raise(w->r, "TypeError", "Object of type %s is not JSON serializable", td_v_type(v)); return false;
    }
}

static bool write_value(writer *w, td_val v) {
    if (!td_tpl_steps(w->r, 1 + (w->has_indent ? w->level * w->indent.n / 64 : 0)) || !td_tpl_enter(w->r)) return false;
    bool ok = write_inner(w, v) && td_tpl_buf_ok(w->r, w->out);
    td_tpl_leave(w->r);
    return ok;
}

static bool set_indent(writer *w, td_val indent) {
    if (!td_v_given(indent) || indent.kind == TD_V_NONE) return true;
    w->has_indent = true;
    w->between = TD_STR(",");
    if (indent.kind == TD_V_STRING) {
        w->indent = td_v_str(indent);
        return true;
    }
    int64_t n;
    if (!td_num_index(w->r, indent, "indent", &n)) return false;
    n = TD_MAX(n, 0);
    if (n > 1 << 20) {
        td_tpl_raise(w->r, "LimitError", "an indent of %lld", (long long)n);
        return false;
    }
    char *spaces = td_tpl_alloc(w->r, (size_t)n);
    if (!spaces) return false;
    memset(spaces, ' ', (size_t)n);
    w->indent = (td_str){spaces, (size_t)n};
    return true;
}

static bool set_separators(writer *w, td_val separators) {
    if (!td_v_given(separators) || separators.kind == TD_V_NONE) return true;
    if (!td_v_is_list(separators) || separators.u.list->n != 2 || separators.u.list->items[0].kind != TD_V_STRING ||
        separators.u.list->items[1].kind != TD_V_STRING) {
        td_tpl_raise(w->r, "ValueError", "separators: expected two strings, found %s", td_v_type(separators));
        return false;
    }
    w->between = td_v_str(separators.u.list->items[0]);
    w->colon = td_v_str(separators.u.list->items[1]);
    return true;
}

td_val td_v_json(td_tpl *r, td_val v, const td_val *a) {
    td_buf out = {0};
    writer w = {.r = r, .out = &out, .between = TD_STR(", "), .colon = TD_STR(": ")};
    int ascii = td_v_given(a[0]) ? td_v_truth(r, a[0]) : 0, sort = td_v_given(a[3]) ? td_v_truth(r, a[3]) : 0;
    w.ascii = ascii == 1;
    w.sort = sort == 1;
    if (ascii < 0 || sort < 0 || !set_indent(&w, a[1]) || !set_separators(&w, a[2]) || !write_value(&w, v)) {
        td_buf_free(&out);
        return td_v_error();
    }
    return td_v_take_buf(r, &out);
}
