/* text/loader.c - what every part's parser needs: errors with their place, patterns, members; and the reading of
 * slots. */
#include "text/parts.h"

#include "text/unicode.h"

#include <stdarg.h>

/* An offset in tree_text as one in text: behind a value that was cut out it is larger. The cuts are in file order
 * here. */
static size_t text_offset(const td_loader *loader, size_t offset) {
    td_span cuts[2] = {loader->vocab, loader->merges};
    if (cuts[0].begin > cuts[1].begin) cuts[0] = loader->merges, cuts[1] = loader->vocab;
    for (int i = 0; i < 2; i++)
        if (cuts[i].begin < cuts[i].end && offset > cuts[i].begin) offset += cuts[i].end - cuts[i].begin - 4;
    return offset;
}

treadle_status td_loader_fail(td_loader *loader, const td_json *at, treadle_status code, const char *format, ...) {
    td_buf text = {0};
    va_list args;
    va_start(args, format);
    td_buf_vprintf(&text, format, args);
    va_end(args);
    td_fail(loader->err, code, "%s", text.p ? text.p : "");
    td_error_file(loader->err, loader->file);
    if (at) {
        uint32_t line, column;
        td_text_place(loader->text, text_offset(loader, at->offset), &line, &column);
        td_error_place(loader->err, line, column);
        td_buf_clear(&text);
        td_json_pointer(at, &text);
        td_error_pointer(loader->err, "%s", text.p ? text.p : "");
    }
    td_buf_free(&text);
    return code;
}

treadle_status td_loader_memory(td_loader *loader, const char *what) { return td_fail_memory(loader->err, what, 0); }

/* Keeps a pattern for the tokenizer's life and gives an error its place. */
static treadle_status keep(td_loader *loader, const td_json *at, treadle_status status, td_regex *regex,
                           const td_regex **out) {
    if (status == TREADLE_OUT_OF_MEMORY) return status;
    if (status != TREADLE_OK) {
        char message[sizeof loader->err->message] = "";
        if (loader->err) memcpy(message, loader->err->message, sizeof message);
        return td_loader_fail(loader, at, status, "%s", message);
    }
    if (!td_vec_push(&loader->tokenizer->regexes, regex)) {
        td_regex_free(regex);
        return td_loader_memory(loader, "a pattern");
    }
    *out = regex;
    return TREADLE_OK;
}

treadle_status td_loader_literal(td_loader *loader, const td_json *at, td_str text, const td_regex **out) {
    td_regex *regex = NULL;
    treadle_status status = td_regex_literal(text, &regex, loader->err);
    return keep(loader, at, status, regex, out);
}

treadle_status td_loader_pattern(td_loader *loader, const td_json *pattern, const td_regex **out) {
    const td_json *literal = td_json_get(pattern, "String"), *regex = td_json_get(pattern, "Regex");
    if (literal && literal->kind == TD_JSON_STRING) return td_loader_literal(loader, literal, literal->string, out);
    if (!regex || regex->kind != TD_JSON_STRING)
        return td_loader_fail(loader, pattern, TREADLE_FORMAT,
                              "expected a pattern to be {\"String\": text} or {\"Regex\": expression}");
    td_regex *compiled = NULL;
    treadle_status status = td_regex_compile(regex->string, &compiled, loader->err);
    return keep(loader, regex, status, compiled, out);
}

treadle_status td_loader_need(td_loader *loader, const td_json *object, const char *key, td_json_kind kind,
                              const td_json **out) {
    *out = td_json_get(object, key);
    if (!*out)
        return td_loader_fail(loader, object, TREADLE_FORMAT, "expected a member \"%s\" (%s), found none", key,
                              td_json_kind_name(kind));
    if ((*out)->kind != kind)
        return td_loader_fail(loader, *out, TREADLE_FORMAT, "expected \"%s\" to be %s, found %s", key,
                              td_json_kind_name(kind), td_json_kind_name((*out)->kind));
    return TREADLE_OK;
}

treadle_status td_loader_char(td_loader *loader, const td_json *object, const char *key, uint32_t *out) {
    const td_json *text;
    TD_TRY(td_loader_need(loader, object, key, TD_JSON_STRING, &text));
    size_t length = 0;
    if (text->string.n > 0) *out = td_unicode_next(text->string.p, &length);
    if (length == 0 || length != text->string.n)
        return td_loader_fail(loader, text, TREADLE_FORMAT, "expected \"%s\" to be one character", key);
    return TREADLE_OK;
}

static treadle_status unknown_kind(td_loader *loader, const td_slot *slot, const td_json *type) {
    td_buf known = {0};
    for (size_t i = 0; i < slot->n_kinds; i++) td_buf_printf(&known, "%s, ", slot->kinds[i].type);
    td_loader_fail(loader, type, TREADLE_UNSUPPORTED, "%s type \"%.*s\" is not supported; known: %sSequence",
                   slot->name, TD_STR_ARGS(type->string), known.p ? known.p : "");
    td_buf_free(&known);
    return TREADLE_UNSUPPORTED;
}

treadle_status td_steps_load(td_loader *loader, const td_slot *slot, const td_json *json, td_steps *steps) {
    if (!json || json->kind == TD_JSON_NULL) return TREADLE_OK;
    const td_json *type;
    if (json->kind != TD_JSON_OBJECT)
        return td_loader_fail(loader, json, TREADLE_FORMAT, "expected a %s to be an object, found %s", slot->name,
                              td_json_kind_name(json->kind));
    TD_TRY(td_loader_need(loader, json, "type", TD_JSON_STRING, &type));
    if (td_str_is(type->string, "Sequence")) {
        const td_json *list;
        TD_TRY(td_loader_need(loader, json, slot->sequence, TD_JSON_ARRAY, &list));
        for (const td_json *item = list->first; item; item = item->next)
            TD_TRY(td_steps_load(loader, slot, item, steps));
        return TREADLE_OK;
    }
    for (size_t i = 0; i < slot->n_kinds; i++) {
        const td_part_kind *kind = &slot->kinds[i];
        if (!td_str_is(type->string, kind->type)) continue;
        void *data = NULL;
        if (kind->parse) TD_TRY(kind->parse(loader, json, &data));
        if (!td_vec_push(steps, (td_step){kind, data})) return td_loader_memory(loader, "a tokenizer");
        return TREADLE_OK;
    }
    return unknown_kind(loader, slot, type);
}

treadle_status td_loader_replace(td_loader *loader, const td_json *object, void **out) {
    td_replace *replace = TD_ARENA_NEW(loader->arena, td_replace);
    const td_json *pattern, *content;
    if (!replace) return td_loader_memory(loader, "a replacement");
    TD_TRY(td_loader_need(loader, object, "pattern", TD_JSON_OBJECT, &pattern));
    TD_TRY(td_loader_need(loader, object, "content", TD_JSON_STRING, &content));
    TD_TRY(td_loader_pattern(loader, pattern, &replace->pattern));
    replace->content = td_arena_str(loader->arena, content->string);
    if (!replace->content.p) return td_loader_memory(loader, "a replacement");
    *out = replace;
    return TREADLE_OK;
}
