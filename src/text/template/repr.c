/* template/repr.c - str() and repr() as Python writes them, and HTML escaping. */
#include "text/template/ast.h"
#include "text/template/unicode.h"

void td_repr_string(td_str text, td_buf *out) {
    bool single = text.n && memchr(text.p, '\'', text.n), twice = text.n && memchr(text.p, '"', text.n);
    char quote = single && !twice ? '"' : '\'';
    td_buf_char(out, quote);
    for (size_t at = 0; at < text.n;) {
        size_t begin = at;
        uint32_t c = td_tpl_uni_next(text, &at);
        if (c == (uint32_t)quote || c == '\\') td_buf_printf(out, "\\%c", (char)c);
        else if (c == '\n') td_buf_text(out, "\\n");
        else if (c == '\r') td_buf_text(out, "\\r");
        else if (c == '\t') td_buf_text(out, "\\t");
        else if (td_tpl_uni_flags(c) & TD_U_PRINTABLE) td_buf_append(out, text.p + begin, at - begin);
        else td_buf_printf(out, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    }
    td_buf_char(out, quote);
}

static void repr_bytes(td_str bytes, td_buf *out) {
    bool single = bytes.n && memchr(bytes.p, '\'', bytes.n), twice = bytes.n && memchr(bytes.p, '"', bytes.n);
    char quote = single && !twice ? '"' : '\'';
    td_buf_char(out, 'b');
    td_buf_char(out, quote);
    for (size_t i = 0; i < bytes.n; i++) {
        uint8_t c = (uint8_t)bytes.p[i];
        if (c == quote || c == '\\') td_buf_printf(out, "\\%c", c);
        else if (c == '\n') td_buf_text(out, "\\n");
        else if (c == '\r') td_buf_text(out, "\\r");
        else if (c == '\t') td_buf_text(out, "\\t");
        else if (c < 0x20 || c >= 0x7F) td_buf_printf(out, "\\x%02x", c);
        else td_buf_char(out, (char)c);
    }
    td_buf_char(out, quote);
}

static bool repr_items(td_tpl *r, const td_tpl_list *l, td_buf *out) {
    for (uint32_t i = 0; i < l->n; i++) {
        if (i) td_buf_text(out, ", ");
        if (!td_v_repr_to(r, l->items[i], out)) return false;
    }
    return true;
}

static bool repr_dict(td_tpl *r, const td_tpl_dict *d, td_buf *out) {
    td_buf_char(out, '{');
    for (uint32_t i = 0; i < d->n; i++) {
        if (i) td_buf_text(out, ", ");
        if (!td_v_repr_to(r, d->items[i].key, out)) return false;
        td_buf_text(out, ": ");
        if (!td_v_repr_to(r, d->items[i].value, out)) return false;
    }
    td_buf_char(out, '}');
    return true;
}

static bool repr_view(td_tpl *r, td_val v, td_buf *out) {
    const td_tpl_dict *d = v.u.dict;
    td_buf_printf(out, "%s([", td_v_type(v));
    for (uint32_t i = 0; i < d->n; i++) {
        if (i) td_buf_text(out, ", ");
        if (v.view == 'i') td_buf_char(out, '(');
        if (v.view != 'v' && !td_v_repr_to(r, d->items[i].key, out)) return false;
        if (v.view == 'i') td_buf_text(out, ", ");
        if (v.view != 'k' && !td_v_repr_to(r, d->items[i].value, out)) return false;
        if (v.view == 'i') td_buf_char(out, ')');
    }
    td_buf_text(out, "])");
    return true;
}

static bool repr_loop(td_tpl *r, td_tpl_loop *loop, td_buf *out) {
    td_val n = td_loop_attribute(r, loop, TD_STR("length"));
    if (TD_V_FAILED(n)) return false;
    td_buf_printf(out, "<LoopContext %lld/%lld>", (long long)loop->index0 + 1, (long long)n.u.i);
    return true;
}

static void repr_range(const td_tpl_range *g, td_buf *out) {
    td_buf_printf(out, "range(%lld, %lld", (long long)g->start, (long long)g->stop);
    if (g->step != 1) td_buf_printf(out, ", %lld", (long long)g->step);
    td_buf_char(out, ')');
}

/* What has no text of its own in Python shows its address there, which no template can rely on; here it is 0. */
static void repr_object(td_val v, td_buf *out) {
    switch (v.kind) {
    case TD_V_MACRO: {
        const td_node *n = v.u.macro->node;
        if (n->kind != TD_N_MACRO) {
            td_buf_text(out, "<Macro anonymous>");
            break;
        }
        td_buf_text(out, "<Macro ");
        td_repr_string(n->name, out);
        td_buf_char(out, '>');
        break;
    }
    case TD_V_ITER: td_buf_printf(out, "<generator object %s at 0x0>", v.u.iter->name); break;
    case TD_V_CYCLER:
    case TD_V_JOINER: td_buf_printf(out, "<jinja2.utils.%s object at 0x0>", td_v_type(v)); break;
    case TD_V_FUNCTION:
        if (v.u.function->is_type) td_buf_printf(out, "<class '%s'>", v.u.function->name);
        else td_buf_printf(out, "<function %s at 0x0>", v.u.function->name);
        break;
    default:
        td_buf_printf(out, "<built-in method %s of %s object at 0x0>", v.u.method->row->name,
                      td_v_type(v.u.method->self));
        break;
    }
}

static bool repr_inner(td_tpl *r, td_val v, td_buf *out) {
    bool ok = true;
    switch (v.kind) {
    case TD_V_UNDEFINED: td_buf_text(out, "Undefined"); break;
    case TD_V_NONE: td_buf_text(out, "None"); break;
    case TD_V_BOOL: td_buf_text(out, v.u.b ? "True" : "False"); break;
    case TD_V_INT: td_buf_printf(out, "%lld", (long long)v.u.i); break;
    case TD_V_BIG: ok = td_big_text(r, v.u.big, 10, out); break;
    case TD_V_FLOAT: td_num_repr(v.u.f, out); break;
    case TD_V_STRING:
        ok = td_tpl_steps(r, v.n / 16);
        if (v.flags & TD_F_MARKUP) td_buf_text(out, "Markup(");
        if (ok) td_repr_string(td_v_str(v), out);
        if (v.flags & TD_F_MARKUP) td_buf_char(out, ')');
        break;
    case TD_V_BYTES:
        ok = td_tpl_steps(r, v.n / 16);
        if (ok) repr_bytes(td_v_str(v), out);
        break;
    case TD_V_LIST:
        td_buf_char(out, '[');
        ok = repr_items(r, v.u.list, out);
        td_buf_char(out, ']');
        break;
    case TD_V_TUPLE:
        td_buf_char(out, '(');
        ok = repr_items(r, v.u.list, out);
        td_buf_text(out, v.u.list->n == 1 ? ",)" : ")");
        break;
    case TD_V_DICT: ok = repr_dict(r, v.u.dict, out); break;
    case TD_V_VIEW: ok = repr_view(r, v, out); break;
    case TD_V_RANGE: repr_range(v.u.range, out); break;
    case TD_V_NAMESPACE:
        td_buf_text(out, "<Namespace ");
        ok = repr_dict(r, v.u.dict, out);
        td_buf_char(out, '>');
        break;
    case TD_V_LOOP: ok = repr_loop(r, v.u.loop, out); break;
    default: repr_object(v, out); break;
    }
    return ok;
}

bool td_v_repr_to(td_tpl *r, td_val v, td_buf *out) {
    if (!td_tpl_steps(r, 1) || !td_tpl_enter(r)) return false;
    bool ok = repr_inner(r, v, out) && td_tpl_buf_ok(r, out);
    td_tpl_leave(r);
    return ok;
}

bool td_v_str_to(td_tpl *r, td_val v, td_buf *out) {
    if (v.kind == TD_V_UNDEFINED) return true;
    if (v.kind != TD_V_STRING) return td_v_repr_to(r, v, out);
    if (!td_tpl_steps(r, v.n / 64)) return false;
    td_buf_str(out, td_v_str(v));
    return td_tpl_buf_ok(r, out);
}

td_val td_v_to_str(td_tpl *r, td_val v) {
    if (v.kind == TD_V_STRING) return v;
    if (v.kind == TD_V_UNDEFINED) return td_v_text("");
    td_buf buf = {0};
    if (!td_v_repr_to(r, v, &buf)) {
        td_buf_free(&buf);
        return td_v_error();
    }
    return td_v_take_buf(r, &buf);
}

td_val td_v_escape(td_tpl *r, td_val v) {
    if (v.kind == TD_V_STRING && v.flags & TD_F_MARKUP) return v;
    v = td_v_to_str(r, v);
    if (TD_V_FAILED(v) || !td_tpl_steps(r, v.n / 16)) return td_v_error();
    td_buf buf = {0};
    for (uint32_t i = 0; i < v.n; i++) {
        switch (v.u.p[i]) {
        case '&': td_buf_text(&buf, "&amp;"); break;
        case '<': td_buf_text(&buf, "&lt;"); break;
        case '>': td_buf_text(&buf, "&gt;"); break;
        case '"': td_buf_text(&buf, "&#34;"); break;
        case '\'': td_buf_text(&buf, "&#39;"); break;
        default: td_buf_char(&buf, v.u.p[i]);
        }
    }
    v = td_v_take_buf(r, &buf);
    if (!TD_V_FAILED(v)) v.flags |= TD_F_MARKUP;
    return v;
}
