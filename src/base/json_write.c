/* base/json_write.c - the JSON writer. One line: `{"a": 1, "b": [2, 3]}`; with an indent: one item a line. */
#include "base/json.h"

#include "base/number.h"
#include "base/utf8.h"

#include <math.h>

void td_json_writer_init(td_json_writer *w, td_buf *out, int indent) {
    *w = (td_json_writer){.out = out, .indent = indent, .first = true};
}

static void new_line(td_json_writer *w) {
    if (w->indent <= 0) return;
    td_buf_char(w->out, '\n');
    for (int i = 0; i < w->indent * w->depth; i++) td_buf_char(w->out, ' ');
}

/* What stands between the previous value or key and the next. */
static void separate(td_json_writer *w) {
    if (!w->after_key) {
        if (!w->first) td_buf_text(w->out, w->indent > 0 ? "," : ", ");
        if (w->depth > 0) new_line(w);
    }
    w->first = w->after_key = false;
}

static void begin(td_json_writer *w, char bracket) {
    separate(w);
    td_buf_char(w->out, bracket);
    w->depth++;
    w->first = true;
}

static void end(td_json_writer *w, char bracket) {
    w->depth--;
    if (!w->first) new_line(w);
    td_buf_char(w->out, bracket);
    w->first = w->after_key = false;
}

void td_json_begin_object(td_json_writer *w) { begin(w, '{'); }

void td_json_end_object(td_json_writer *w) { end(w, '}'); }

void td_json_begin_array(td_json_writer *w) { begin(w, '['); }

void td_json_end_array(td_json_writer *w) { end(w, ']'); }

static void append_quoted(td_buf *out, td_str text) {
    td_buf_char(out, '"');
    size_t start = 0; /* of the run not yet copied */
    for (size_t i = 0; i < text.n;) {
        uint32_t c;
        int bad = 0, length = td_utf8_decode(text.p + i, text.n - i, &c, &bad, NULL);
        if (length && c >= 0x20 && c != '"' && c != '\\') {
            i += (size_t)length;
            continue;
        }
        td_buf_append(out, text.p + start, i - start);
        const char *letter = length && c ? strchr("\"\"\\\\\bb\ff\nn\rr\tt", (int)c) : NULL;
        if (letter) {
            td_buf_printf(out, "\\%c", letter[1]);
        } else if (length) {
            td_buf_printf(out, "\\u%04x", c);
        } else {
            td_buf_text(out, "\xEF\xBF\xBD");
        }
        i += (size_t)(length ? length : bad);
        start = i;
    }
    td_buf_append(out, text.n ? text.p + start : NULL, text.n - start);
    td_buf_char(out, '"');
}

void td_json_key_str(td_json_writer *w, td_str key) {
    separate(w);
    append_quoted(w->out, key);
    td_buf_text(w->out, ": ");
    w->after_key = true;
}

void td_json_key(td_json_writer *w, const char *key) { td_json_key_str(w, td_str_from(key)); }

void td_json_write_string(td_json_writer *w, td_str text) {
    separate(w);
    append_quoted(w->out, text);
}

void td_json_write_text(td_json_writer *w, const char *text) { td_json_write_string(w, td_str_from(text)); }

void td_json_write_int(td_json_writer *w, int64_t value) {
    separate(w);
    td_buf_printf(w->out, "%lld", (long long)value);
}

void td_json_write_double(td_json_writer *w, double value) {
    if (!isfinite(value)) {
        td_json_write_null(w);
        return;
    }
    char text[TD_DOUBLE_TEXT_BYTES];
    td_format_double(value, text);
    separate(w);
    td_buf_text(w->out, text);
    if (!strpbrk(text, ".e")) td_buf_text(w->out, ".0"); /* so that it reads back as a double */
}

void td_json_write_bool(td_json_writer *w, bool value) {
    separate(w);
    td_buf_text(w->out, value ? "true" : "false");
}

void td_json_write_null(td_json_writer *w) {
    separate(w);
    td_buf_text(w->out, "null");
}

static void write_scalar(td_json_writer *w, const td_json *v) {
    switch (v->kind) {
    case TD_JSON_BOOL: td_json_write_bool(w, v->as_bool); break;
    case TD_JSON_INT: td_json_write_int(w, v->as_int); break;
    case TD_JSON_DOUBLE: td_json_write_double(w, v->as_double); break;
    case TD_JSON_STRING: td_json_write_string(w, v->string); break;
    default: td_json_write_null(w); break;
    }
}

void td_json_write_value(td_json_writer *w, const td_json *value) {
    const td_json *v = value;
    for (;;) { /* down, then along, then up: no recursion, however deep the tree */
        if (v != value && v->parent->kind == TD_JSON_OBJECT) td_json_key_str(w, v->key);
        if (v->kind == TD_JSON_OBJECT || v->kind == TD_JSON_ARRAY) {
            begin(w, v->kind == TD_JSON_OBJECT ? '{' : '[');
            if (v->first) {
                v = v->first;
                continue;
            }
            end(w, v->kind == TD_JSON_OBJECT ? '}' : ']');
        } else {
            write_scalar(w, v);
        }
        while (v != value && !v->next) {
            v = v->parent;
            end(w, v->kind == TD_JSON_OBJECT ? '}' : ']');
        }
        if (v == value) return;
        v = v->next;
    }
}
