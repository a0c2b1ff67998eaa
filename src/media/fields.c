/* media/fields.c - reading the values of a step: from the step, or from the config's fields that it names as
 * "$field". */
#include "media/steps.h"

#include <math.h>
#include <stdio.h>

void td_doc_place(const td_doc *doc, const td_json *value, treadle_error *err) {
    uint32_t line, column;
    td_buf pointer = {0};
    if (!err || !doc || !doc->label || !value) return;
    td_error_file(err, doc->label);
    td_text_place(doc->text, value->offset, &line, &column);
    td_error_place(err, line, column);
    td_json_pointer(value, &pointer);
    if (pointer.p) td_error_pointer(err, "%s", pointer.p);
    td_buf_free(&pointer);
}

/* The member named like the field, the last of them; NULL: there is none. A null is an answer. */
const td_json *td_step_field(const td_step_reader *r, const char *name, const td_doc **doc) {
    const td_json *sources[] = {r->overrides, r->config, r->defaults};
    const td_doc *docs[] = {r->overrides_doc, r->config_doc, NULL};
    for (size_t i = 0; i < TD_COUNT(sources); i++) {
        const td_json *value = td_json_get(sources[i], name);
        if (!value) continue;
        *doc = docs[i];
        return value;
    }
    return NULL;
}

const td_json *td_step_value(td_step_reader *r, const char *key, const td_doc **doc) {
    const td_json *value = td_json_get(r->step, key);
    *doc = r->step_doc;
    if (value && value->kind == TD_JSON_STRING && value->string.n > 1 && value->string.p[0] == '$') {
        char name[64];
        if (value->string.n > sizeof name) {
            td_step_fail(r, key, TREADLE_CONFIG, "expected a field's name of at most %zu bytes", sizeof name - 1);
            return NULL;
        }
        memcpy(name, value->string.p + 1, value->string.n - 1);
        name[value->string.n - 1] = 0;
        value = td_step_field(r, name, doc);
    }
    return value && value->kind != TD_JSON_NULL ? value : NULL;
}

void td_step_fail(td_step_reader *r, const char *key, treadle_status status, const char *format, ...) {
    char text[512];
    const td_doc *doc = r->step_doc;
    const td_json *place = NULL;
    va_list args;
    if (r->status != TREADLE_OK) return;
    r->status = status; /* first: td_step_value below must not fail again */
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (key) place = td_step_value(r, key, &doc);
    if (!place) {
        place = r->step;
        doc = r->step_doc;
    }
    td_fail(r->err, status, "%s", text);
    /* A step of the library's own: the config as a whole is what does not fit. */
    if (!doc || !doc->label) {
        td_str name = td_json_string_or(r->step, "step", "");
        if (name.n) td_error_context(r->err, "step %.*s", TD_STR_ARGS(name));
        place = r->config;
        doc = r->config_doc;
    }
    td_doc_place(doc, place, r->err);
}

static bool wrong_kind(td_step_reader *r, const char *key, const td_json *value, const char *expected) {
    td_step_fail(r, key, TREADLE_CONFIG, "expected %s, found %s", expected, td_json_kind_name(value->kind));
    return false;
}

double td_step_number(td_step_reader *r, const char *key, double fallback, double low, double high) {
    const td_doc *doc;
    const td_json *value = r->status == TREADLE_OK ? td_step_value(r, key, &doc) : NULL;
    if (!value) return fallback;
    if (value->kind != TD_JSON_INT && value->kind != TD_JSON_DOUBLE)
        return wrong_kind(r, key, value, "a number"), fallback;
    if (value->as_double >= low && value->as_double <= high) return value->as_double;
    td_step_fail(r, key, TREADLE_CONFIG, "expected a number from %g to %g, found %g", low, high, value->as_double);
    return fallback;
}

int64_t td_step_int(td_step_reader *r, const char *key, int64_t fallback, int64_t low, int64_t high) {
    const td_doc *doc;
    const td_json *value = r->status == TREADLE_OK ? td_step_value(r, key, &doc) : NULL;
    if (!value) return fallback;
    bool whole = value->kind == TD_JSON_INT || (value->kind == TD_JSON_DOUBLE && fabs(value->as_double) < 9e15 &&
                                                floor(value->as_double) == value->as_double);
    if (!whole) {
        td_step_fail(r, key, TREADLE_CONFIG, "expected an integer, found %s", td_json_kind_name(value->kind));
        return fallback;
    }
    int64_t number = value->kind == TD_JSON_INT ? value->as_int : (int64_t)value->as_double;
    if (number >= low && number <= high) return number;
    if (high == INT64_MAX)
        td_step_fail(r, key, TREADLE_CONFIG, "expected an integer of at least %lld, found %lld", (long long)low,
                     (long long)number);
    else
        td_step_fail(r, key, TREADLE_CONFIG, "expected an integer from %lld to %lld, found %lld", (long long)low,
                     (long long)high, (long long)number);
    return fallback;
}

bool td_step_bool(td_step_reader *r, const char *key, bool fallback) {
    const td_doc *doc;
    const td_json *value = r->status == TREADLE_OK ? td_step_value(r, key, &doc) : NULL;
    if (!value) return fallback;
    if (value->kind == TD_JSON_BOOL) return value->as_bool;
    if (value->kind == TD_JSON_INT && (value->as_int == 0 || value->as_int == 1)) return value->as_int == 1;
    return wrong_kind(r, key, value, "true or false"), fallback;
}

int td_step_word(td_step_reader *r, const char *key, const char *const *words, int fallback) {
    const td_doc *doc;
    const td_json *value = r->status == TREADLE_OK ? td_step_value(r, key, &doc) : NULL;
    td_buf list = {0};
    if (!value) return fallback;
    if (value->kind != TD_JSON_STRING) return wrong_kind(r, key, value, "a word"), fallback;
    for (int i = 0; words[i]; i++)
        if (td_str_is(value->string, words[i])) return i;
    for (int i = 0; words[i]; i++) td_buf_printf(&list, "%s%s", i ? ", " : "", words[i]);
    td_step_fail(r, key, TREADLE_CONFIG, "expected one of %s, found \"%.*s\"", list.p ? list.p : "",
                 (int)TD_MIN(value->string.n, (size_t)60), value->string.p);
    td_buf_free(&list);
    return fallback;
}

const double *td_step_numbers(td_step_reader *r, const char *key, int64_t n) {
    const td_doc *doc;
    const td_json *value = r->status == TREADLE_OK ? td_step_value(r, key, &doc) : NULL;
    if (!value) return NULL;
    while (value->kind == TD_JSON_ARRAY && value->n == 1 && value->first->kind == TD_JSON_ARRAY) value = value->first;
    if (value->kind != TD_JSON_ARRAY || value->n != n) {
        td_step_fail(r, key, TREADLE_CONFIG, "expected an array of %lld numbers, found %s of %u", (long long)n,
                     td_json_kind_name(value->kind), value->n);
        return NULL;
    }
    double *numbers = td_step_alloc(r, (size_t)TD_MAX(n, 1), sizeof *numbers), *next = numbers;
    for (const td_json *item = value->first; numbers && item; item = item->next) {
        if ((item->kind != TD_JSON_INT && item->kind != TD_JSON_DOUBLE) || !isfinite(item->as_double)) {
            td_step_fail(r, key, TREADLE_CONFIG, "expected an array of numbers, found %s in it",
                         td_json_kind_name(item->kind));
            return NULL;
        }
        *next++ = item->as_double;
    }
    return numbers;
}

int64_t td_step_samples(td_step_reader *r, const char *key, const char *seconds_key) {
    int64_t samples = key ? td_step_int(r, key, -1, 0, TD_STEP_MAX_SAMPLES) : -1;
    if (samples >= 0 || !seconds_key) return samples;
    double unit = td_str_ends(td_str_from(seconds_key), TD_STR("_ms")) ? 1e-3 : 1;
    double seconds = td_step_number(r, seconds_key, -1, 0, TD_STEP_MAX_SAMPLES / (double)r->rate_hz / unit);
    return seconds < 0 ? -1 : (int64_t)llround(seconds * unit * r->rate_hz);
}

void *td_step_alloc(td_step_reader *r, size_t count, size_t item_bytes) {
    if (r->status != TREADLE_OK) return NULL;
    void *memory = td_arena_array(r->arena, count, item_bytes, 16);
    if (!memory) r->status = td_fail_memory(r->err, "an audio recipe", count * item_bytes);
    return memory;
}
