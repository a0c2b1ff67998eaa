/* base/json_access.c - looking things up in a parsed JSON tree. */
#include "base/json.h"

td_json *td_json_get_str(const td_json *object, td_str key) {
    td_json *last = NULL; /* where duplicates were allowed the last one counts */
    if (!object || object->kind != TD_JSON_OBJECT) return NULL;
    for (td_json *m = object->first; m; m = m->next) {
        if (td_str_equal(m->key, key)) last = m;
    }
    return last;
}

td_json *td_json_get(const td_json *object, const char *key) { return td_json_get_str(object, td_str_from(key)); }

td_json *td_json_at(const td_json *array, size_t index) {
    if (!array || array->kind != TD_JSON_ARRAY || index >= array->n) return NULL;
    td_json *item = array->first;
    while (index-- > 0) item = item->next;
    return item;
}

const char *td_json_kind_name(td_json_kind kind) {
    switch (kind) {
    case TD_JSON_NULL: return "null";
    case TD_JSON_BOOL: return "a boolean";
    case TD_JSON_INT: return "a number";
    case TD_JSON_DOUBLE: return "a floating-point number";
    case TD_JSON_STRING: return "a string";
    case TD_JSON_ARRAY: return "an array";
    case TD_JSON_OBJECT: return "an object";
    }
    return "an unknown kind";
}

bool td_json_bool_or(const td_json *object, const char *key, bool fallback) {
    const td_json *v = td_json_get(object, key);
    return v && v->kind == TD_JSON_BOOL ? v->as_bool : fallback;
}

int64_t td_json_int_or(const td_json *object, const char *key, int64_t fallback) {
    const td_json *v = td_json_get(object, key);
    return v && v->kind == TD_JSON_INT ? v->as_int : fallback;
}

double td_json_double_or(const td_json *object, const char *key, double fallback) {
    const td_json *v = td_json_get(object, key);
    return v && (v->kind == TD_JSON_INT || v->kind == TD_JSON_DOUBLE) ? v->as_double : fallback;
}

td_str td_json_string_or(const td_json *object, const char *key, const char *fallback) {
    const td_json *v = td_json_get(object, key);
    return v && v->kind == TD_JSON_STRING ? v->string : td_str_from(fallback);
}

void td_text_place(td_str text, size_t offset, uint32_t *line, uint32_t *column) {
    const char *start = text.p ? text.p : "", *at = start + TD_MIN(offset, text.n), *newline;
    *line = 1;
    while (start < at && (newline = memchr(start, '\n', (size_t)(at - start))) != NULL) {
        start = newline + 1;
        ++*line;
    }
    *column = (uint32_t)(at - start) + 1;
}

static void append_token(td_str key, td_buf *buf) {
    td_buf_char(buf, '/');
    for (size_t i = 0; i < key.n; i++) {
        if (key.p[i] == '~' || key.p[i] == '/') {
            td_buf_text(buf, key.p[i] == '~' ? "~0" : "~1");
        } else {
            td_buf_char(buf, key.p[i]);
        }
    }
}

void td_json_pointer(const td_json *value, td_buf *buf) {
    uint32_t depth = 0;
    for (const td_json *v = value; v->parent; v = v->parent) depth++;
    for (; depth > 0; depth--) { /* from the outside in: the ancestor `depth - 1` levels above the value */
        const td_json *v = value;
        for (uint32_t i = 1; i < depth; i++) v = v->parent;
        if (v->parent->kind == TD_JSON_OBJECT) {
            append_token(v->key, buf);
        } else {
            uint32_t index = 0;
            for (const td_json *item = v->parent->first; item != v; item = item->next) index++;
            td_buf_printf(buf, "/%u", index);
        }
    }
}
