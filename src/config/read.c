/* config/read.c - the expanded tree to the typed struct: helpers, and the order of the parts. */
#include "config/read.h"

td_place td_read_at(td_messages *m, const td_json *value) { return td_tree_place(m->arena, value, false); }

static bool is_too_long(const td_json *value) {
    return value->kind == TD_JSON_ARRAY && value->n > TD_LIST_MAX && value->first->kind == TD_JSON_OBJECT;
}

size_t td_list_count(const td_json *value) {
    if (!value || is_too_long(value)) return 0;
    return value->kind == TD_JSON_ARRAY ? value->n : 1;
}

const td_json *td_list_first(const td_json *value) {
    if (!value || is_too_long(value)) return NULL;
    return value->kind == TD_JSON_ARRAY ? value->first : value;
}

const td_json *td_list_next(const td_json *list, const td_json *item) {
    return list->kind == TD_JSON_ARRAY ? item->next : NULL;
}

bool td_read_numbers(td_config *c, const td_json *value, const int32_t **out, size_t *n) {
    int32_t *numbers = TD_ARENA_ARRAY(&c->arena, int32_t, td_list_count(value));
    if (!numbers) return false;
    *out = numbers;
    *n = 0;
    for (const td_json *v = td_list_first(value); v; v = td_list_next(value, v))
        if (v->kind == TD_JSON_INT && v->as_int >= 0 && v->as_int <= INT32_MAX) numbers[(*n)++] = (int32_t)v->as_int;
    return true;
}

bool td_read_ids(td_config *c, const td_json *value, td_token_list *out) {
    return td_read_numbers(c, value, &out->ids, &out->n);
}

bool td_read_strings(td_config *c, const td_json *value, const td_str **out, size_t *n) {
    td_str *texts = TD_ARENA_ARRAY(&c->arena, td_str, td_list_count(value));
    if (!texts) return false;
    *n = 0;
    for (const td_json *v = td_list_first(value); v; v = td_list_next(value, v))
        if (v->kind == TD_JSON_STRING) texts[(*n)++] = v->string;
    *out = texts;
    return true;
}

int32_t td_read_id(const td_json *object, const char *key) {
    int64_t id = td_json_int_or(object, key, -1);
    return id < 0 || id > INT32_MAX ? -1 : (int32_t)id;
}

int td_read_word(const td_json *object, const char *key, const char *const *words, int fallback) {
    int found = td_words_find(words, td_json_string_or(object, key, ""));
    return found < 0 ? fallback : found;
}

bool td_config_read(td_config *c, const td_config_options *options, td_messages *m) {
    const td_json *pipeline = td_json_get(c->root, "pipeline");
    td_read_pooling(c, pipeline);
    return td_read_sessions(c, pipeline, options, m) && td_read_flow(c, pipeline, m) &&
           td_read_tokens(c, td_json_get(c->root, "tokens")) &&
           td_read_generation(c, td_json_get(c->root, "generation"), m) &&
           td_read_state(c, td_json_get(pipeline, "state"), m) &&
           td_read_preprocessing(c, td_json_get(pipeline, "preprocessing"), m) &&
           td_read_plugin(c, td_json_get(pipeline, "plugin"), options, m);
}
