/* config/fields_check.c - a config tree against the table: types, ranges, words, unknown and missing keys. */
#include "config/fields.h"

#include <math.h>

#define COUNT_MAX 9007199254740992.0

enum { MAX_ITEMS = 4096, MAX_KEYS = 64, MAX_LISTED = 24 };

static const char *kind_text(td_json_kind kind) {
    return kind == TD_JSON_DOUBLE ? "a number" : td_json_kind_name(kind);
}

/* "an integer", "a string", ... as the table wants it. */
static const char *wanted_text(const td_field *field) {
    switch (field->kind) {
    case TD_FIELD_INT: return "an integer";
    case TD_FIELD_NUMBER: return "a number";
    case TD_FIELD_BOOL: return "true or false";
    case TD_FIELD_STRING:
    case TD_FIELD_WORD: return "a string";
    case TD_FIELD_OBJECT:
    case TD_FIELD_MAP: return "an object";
    case TD_FIELD_ANY: break;
    }
    return "a value";
}

static void wrong_kind(const td_json *value, const td_field *field, td_messages *m) {
    td_place place = td_tree_place(m->arena, value, false);
    if (field->flags & TD_FIELD_LIST && value->parent && value->parent->kind != TD_JSON_ARRAY) {
        td_messages_add(m, TREADLE_MESSAGE_ERROR, place, "expected an array%s%s or %s, found %s",
                        field->what ? " of " : "", field->what ? field->what : "", wanted_text(field),
                        kind_text(value->kind));
        return;
    }
    const char *also = field->flags & TD_FIELD_OR_STRING ? " or a string" : "";
    if (field->flags & TD_FIELD_OR_OBJECT) also = " or an object";
    td_messages_add(m, TREADLE_MESSAGE_ERROR, place, "expected %s%s, found %s", wanted_text(field), also,
                    kind_text(value->kind));
}

static void check_range(const td_json *value, const td_field *field, td_messages *m) {
    double v = value->as_double;
    bool integer = field->kind == TD_FIELD_INT;
    bool beyond = fabs(v) >= COUNT_MAX; /* of any integer that a double holds */
    if (integer && value->kind == TD_JSON_DOUBLE && !beyond) {
        td_messages_add(m, TREADLE_MESSAGE_ERROR, td_tree_place(m->arena, value, false),
                        "expected an integer, found %.15g", v);
        return;
    }
    bool low = field->flags & TD_FIELD_OPEN ? v <= field->min : v < field->min;
    if (!low && v <= field->max && isfinite(v) && !beyond) return;
    td_place place = td_tree_place(m->arena, value, false);
    const char *what = integer ? "an integer" : "a number";
    if (field->flags & TD_FIELD_OPEN && !low && field->max < COUNT_MAX)
        td_messages_add(m, TREADLE_MESSAGE_ERROR, place, "expected %s above %.15g and at most %.15g, found %.15g", what,
                        field->min, field->max, v);
    else if (field->flags & TD_FIELD_OPEN && !low)
        td_messages_add(m, TREADLE_MESSAGE_ERROR, place, "expected %s above %.15g and below %.0f, found %.15g", what,
                        field->min, COUNT_MAX, v);
    else if (field->flags & TD_FIELD_OPEN)
        td_messages_add(m, TREADLE_MESSAGE_ERROR, place, "expected %s above %.15g, found %.15g", what, field->min, v);
    else if (integer && field->max >= COUNT_MAX && low)
        td_messages_add(m, TREADLE_MESSAGE_ERROR, place, "expected an integer of at least %.0f, found %.15g",
                        field->min, v);
    else if (field->min >= field->max)
        td_messages_add(m, TREADLE_MESSAGE_ERROR, place, "expected %.15g, found %.15g", field->min, v);
    else
        td_messages_add(m, TREADLE_MESSAGE_ERROR, place, "expected %s from %.16g to %.16g, found %.15g", what,
                        field->min, field->max, v);
}

static void check_word(const td_json *value, const td_field *field, td_messages *m) {
    if (td_words_find(field->words, value->string) >= 0) return;
    td_buf text = {0};
    td_str word = {value->string.p, TD_MIN(value->string.n, (size_t)200)};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    td_buf_printf(&text, field->unknown, TD_STR_ARGS(word));
#pragma GCC diagnostic pop
    const char *list = td_words_join(m->arena, field->words);
    if (text.failed || !list) m->failed = true;
    else
        td_messages_add(m, TREADLE_MESSAGE_ERROR, td_tree_place(m->arena, value, false), "%s%s%s", text.p, list,
                        td_did_you_mean(m->arena, word, field->words, td_words_count(field->words)));
    td_buf_free(&text);
}

static bool too_many(const td_json *value, const td_field *field, const char *what, td_messages *m) {
    size_t most = field->max_items ? field->max_items : MAX_ITEMS;
    if (value->n <= most) return false;
    td_messages_add(m, TREADLE_MESSAGE_ERROR, td_tree_place(m->arena, value, false),
                    "expected at most %zu %s, found %u", most, field->what ? field->what : what, value->n);
    return true;
}

static void check_one(const td_json *value, const td_field *field, bool strict, td_messages *m) {
    bool number = value->kind == TD_JSON_INT || value->kind == TD_JSON_DOUBLE;
    if (field->flags & TD_FIELD_OR_STRING && value->kind == TD_JSON_STRING) return;
    if (field->flags & TD_FIELD_OR_OBJECT && value->kind == TD_JSON_OBJECT) return;
    switch (field->kind) {
    case TD_FIELD_ANY: return;
    case TD_FIELD_INT:
    case TD_FIELD_NUMBER:
        if (number) check_range(value, field, m);
        else wrong_kind(value, field, m);
        return;
    case TD_FIELD_BOOL:
        if (value->kind != TD_JSON_BOOL) wrong_kind(value, field, m);
        return;
    case TD_FIELD_STRING:
        if (value->kind != TD_JSON_STRING) wrong_kind(value, field, m);
        return;
    case TD_FIELD_WORD:
        if (value->kind == TD_JSON_STRING) check_word(value, field, m);
        else wrong_kind(value, field, m);
        return;
    case TD_FIELD_OBJECT:
        if (value->kind == TD_JSON_OBJECT) td_fields_check(value, field->members, strict, m);
        else wrong_kind(value, field, m);
        return;
    case TD_FIELD_MAP:
        if (value->kind != TD_JSON_OBJECT) {
            wrong_kind(value, field, m);
            return;
        }
        if (too_many(value, field, "members", m)) return;
        for (const td_json *item = value->first; item && !td_messages_full(m); item = item->next)
            check_one(item, &field->members[0], strict, m);
        return;
    }
}

static void check_field(const td_json *value, const td_field *field, bool strict, td_messages *m) {
    if (!(field->flags & TD_FIELD_LIST) || value->kind != TD_JSON_ARRAY) {
        check_one(value, field, strict, m);
        return;
    }
    if (too_many(value, field, "items", m)) return;
    for (const td_json *item = value->first; item && !td_messages_full(m); item = item->next)
        check_one(item, field, strict, m);
}

static void unknown_key(const td_json *member, const td_field *members, bool strict, td_messages *m) {
    const char *keys[MAX_KEYS + 1] = {0};
    size_t n = 0;
    for (; members[n].key && n < MAX_KEYS; n++) keys[n] = members[n].key;
    td_str key = {member->key.p, TD_MIN(member->key.n, (size_t)200)};
    const char *list = n <= MAX_LISTED ? td_words_join(m->arena, keys) : "";
    const char *before = n <= MAX_LISTED ? " (known: " : "", *after = n <= MAX_LISTED ? ")" : "";
    td_messages_add(m, strict ? TREADLE_MESSAGE_ERROR : TREADLE_MESSAGE_WARNING, td_tree_place(m->arena, member, true),
                    "unknown key \"%.*s\"%s%s%s%s", TD_STR_ARGS(key), before, list ? list : "", after,
                    td_did_you_mean(m->arena, key, keys, n));
}

void td_fields_check(const td_json *value, const td_field *members, bool strict, td_messages *m) {
    if (value->kind != TD_JSON_OBJECT) {
        td_messages_add(m, TREADLE_MESSAGE_ERROR, td_tree_place(m->arena, value, false), "expected an object, found %s",
                        kind_text(value->kind));
        return;
    }
    for (const td_json *member = value->first; member && !td_messages_full(m); member = member->next) {
        const td_field *field = members;
        while (field->key && !td_str_is(member->key, field->key)) field++;
        if (field->key) check_field(member, field, strict, m);
        else unknown_key(member, members, strict, m);
    }
    for (const td_field *field = members; field->key; field++) {
        if (!(field->flags & TD_FIELD_REQUIRED) || td_json_get(value, field->key)) continue;
        td_messages_add(m, TREADLE_MESSAGE_ERROR, td_tree_place(m->arena, value, false),
                        "expected a member \"%s\" (%s), found none", field->key, wanted_text(field));
    }
}

const td_field *td_field_child(const td_field *object, td_str key) {
    if (object->kind == TD_FIELD_MAP) return &object->members[0];
    const td_field *member = object->kind == TD_FIELD_OBJECT ? object->members : NULL;
    while (member && member->key && !td_str_is(key, member->key)) member++;
    return member && member->key ? member : NULL;
}

bool td_fields_fit(const td_json *value, const char *group, const char *subgroup, const char *key) {
    const td_field *field = td_field_child(&td_config_root, td_str_from(group));
    if (field && subgroup) field = td_field_child(field, td_str_from(subgroup));
    if (field) field = td_field_child(field, td_str_from(key));
    if (!field) return false;
    td_arena arena;
    td_messages messages;
    td_arena_init(&arena);
    td_messages_init(&messages, &arena);
    check_field(value, field, true, &messages);
    bool fits = messages.n_errors == 0 && !messages.failed;
    td_messages_free(&messages);
    td_arena_free(&arena);
    return fits;
}
