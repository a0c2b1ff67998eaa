/* config/tree.c - see tree.h. */
#include "config/tree.h"

static td_json *new_value(td_arena *arena, const td_json *from, const td_source *source) {
    td_config_value *v = TD_ARENA_NEW(arena, td_config_value);
    if (!v) return NULL;
    v->json = *from;
    v->json.first = v->json.next = v->json.parent = NULL;
    v->json.n = 0;
    v->source = source;
    v->origin = NULL;
    return &v->json;
}

static const td_json *origin_of(const td_json *value) {
    const td_json *origin = ((const td_config_value *)(const void *)value)->origin;
    return origin ? origin : value;
}

void td_tree_push(td_json *parent, td_json *child) {
    td_json **at = &parent->first;
    while (*at) at = &(*at)->next;
    *at = child;
    child->next = NULL;
    child->parent = parent;
    parent->n++;
}

/* Recursion is as deep as the parsed text, which the reader has limited. */
td_json *td_tree_copy(td_arena *arena, const td_json *value, const td_source *source) {
    td_json *out = new_value(arena, value, source);
    if (!out) return NULL;
    td_json **at = &out->first;
    for (const td_json *child = value->first; child; child = child->next) {
        if (value->kind == TD_JSON_OBJECT && child->kind == TD_JSON_NULL) continue;
        td_json *copy = td_tree_copy(arena, child, source);
        if (!copy) return NULL;
        copy->parent = out;
        *at = copy;
        at = &copy->next;
        out->n++;
    }
    return out;
}

td_json *td_tree_new(td_arena *arena, td_json_kind kind, const td_source *source) {
    return new_value(arena, &(td_json){.kind = kind}, source);
}

td_json *td_tree_int(td_arena *arena, int64_t value, const td_source *source) {
    return new_value(arena, &(td_json){.kind = TD_JSON_INT, .as_int = value, .as_double = (double)value}, source);
}

td_json *td_tree_string(td_arena *arena, td_str value, const td_source *source) {
    td_str copy = td_arena_str(arena, value);
    return copy.p ? new_value(arena, &(td_json){.kind = TD_JSON_STRING, .string = copy}, source) : NULL;
}

td_json *td_tree_derive(td_arena *arena, td_json_kind kind, const td_json *origin) {
    td_json place = {.kind = kind, .offset = origin->offset, .end = origin->end, .key_offset = origin->key_offset};
    td_json *out = new_value(arena, &place, td_tree_source(origin));
    if (out) ((td_config_value *)(void *)out)->origin = origin;
    return out;
}

td_json *td_tree_derive_copy(td_arena *arena, const td_json *origin) {
    td_json *out = new_value(arena, origin, td_tree_source(origin));
    if (!out) return NULL;
    ((td_config_value *)(void *)out)->origin = origin;
    td_json **at = &out->first;
    for (const td_json *child = origin->first; child; child = child->next) {
        if (origin->kind == TD_JSON_OBJECT && child->kind == TD_JSON_NULL) continue;
        td_json *copy = td_tree_derive_copy(arena, child);
        if (!copy) return NULL;
        copy->parent = out;
        *at = copy;
        at = &copy->next;
        out->n++;
    }
    return out;
}

bool td_tree_put(td_arena *arena, td_json *object, td_str key, td_json *child) {
    td_json *old = td_json_get_str(object, key);
    child->key = old ? old->key : td_arena_str(arena, key);
    if (!child->key.p) return false;
    if (!old) {
        td_tree_push(object, child);
        return true;
    }
    td_json **at = &object->first;
    while (*at != old) at = &(*at)->next;
    *at = child;
    child->next = old->next;
    child->parent = object;
    return true;
}

void td_tree_remove(td_json *object, td_str key) {
    td_json **at = &object->first;
    while (*at && !td_str_equal((*at)->key, key)) at = &(*at)->next;
    if (!*at) return;
    *at = (*at)->next;
    object->n--;
}

bool td_tree_underlay(td_arena *arena, td_json *base, const td_json *under) {
    for (const td_json *m = under->first; m; m = m->next) {
        td_json *mine = td_json_get_str(base, m->key);
        if (!mine) {
            td_json *copy = td_tree_copy(arena, m, td_tree_source(m));
            if (!copy || !td_tree_put(arena, base, m->key, copy)) return false;
        } else if (mine->kind == TD_JSON_OBJECT && m->kind == TD_JSON_OBJECT) {
            if (!td_tree_underlay(arena, mine, m)) return false;
        }
    }
    return true;
}

const td_source *td_tree_source(const td_json *value) { return ((const td_config_value *)(const void *)value)->source; }

td_place td_tree_place(td_arena *arena, const td_json *value, bool key) {
    td_place place = {0};
    if (!value) return place;
    value = origin_of(value);
    td_buf pointer = {0};
    td_json_pointer(value, &pointer);
    enum { POINTER_MAX = 4000 }; /* a key may be as long as the file */
    if (pointer.n > POINTER_MAX) {
        pointer.n = POINTER_MAX;
        td_buf_text(&pointer, "...");
    }
    place.pointer = pointer.failed ? NULL : td_arena_strndup(arena, pointer.p ? pointer.p : "", pointer.n);
    td_buf_free(&pointer);
    /* a value without a text stands where the nearest value around it does */
    while (value && td_tree_source(value)->text.p == NULL && value->parent) value = value->parent;
    const td_source *source = td_tree_source(value);
    place.file = source->path;
    if (source->path && source->text.p)
        td_text_place(source->text, key ? value->key_offset : value->offset, &place.line, &place.column);
    return place;
}

void td_tree_write_origins(const td_json *value, td_json_writer *w) {
    if ((value->kind == TD_JSON_OBJECT || value->kind == TD_JSON_ARRAY) && value->first) {
        for (const td_json *child = value->first; child; child = child->next) td_tree_write_origins(child, w);
        return;
    }
    td_buf pointer = {0}, label = {0};
    td_json_pointer(value, &pointer);
    td_buf_text(&label, td_tree_source(value)->label);
    if (origin_of(value) != value) {
        td_buf_char(&label, ' ');
        td_json_pointer(origin_of(value), &label);
    }
    if (pointer.failed || label.failed) w->out->failed = true;
    else td_json_key_str(w, td_buf_view(&pointer));
    if (!w->out->failed) td_json_write_string(w, td_buf_view(&label));
    td_buf_free(&pointer);
    td_buf_free(&label);
}
