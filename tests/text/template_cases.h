/* text/template_cases.h - runs files of template goldens: contexts, templates, and what jinja2 made of each pair.
 *
 * Format: {"contexts": [{"messages", "tools", "documents", "add_generation_prompt", "vars"}], "templates": [{"name",
 * "template", "compile_error": [class, message, line] or "renders": [{"c": context, "r": ["ok", text] or ["error",
 * class, message], "assistant_spans": [[begin, end]] in characters}]}]}. */
#ifndef TD_TESTS_TEXT_TEMPLATE_CASES_H
#define TD_TESTS_TEXT_TEMPLATE_CASES_H

#include "base/json.h"
#include "base/str.h"
#include "text/template.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct template_counts {
    int right, wrong;
} template_counts;

typedef void template_wrong(const char *text);

static const td_template_time golden_time = {2026, 3, 7, 8, 9, 5, 123456};

static void wrong(template_counts *counts, template_wrong *report, const td_json *t, long context, const char *what,
                  td_str got, td_str wanted) {
    char text[6000];
    td_str name = td_json_string_or(t, "name", "?");
    snprintf(text, sizeof text, "%.*s, context %ld: %s\n  got    |%.*s|\n  wanted |%.*s|", TD_STR_ARGS(name), context,
             what, (int)TD_MIN(got.n, 2500u), got.p ? got.p : "", (int)TD_MIN(wanted.n, 2500u),
             wanted.p ? wanted.p : "");
    counts->wrong++;
    report(text);
}

/* One object of the members of a case's context and of its "vars", as the renderer wants it. */
static void write_context(const td_json *context, td_buf *out) {
    td_json_writer w;
    td_json_writer_init(&w, out, 0);
    td_json_begin_object(&w);
    for (const td_json *m = context->first; m; m = m->next) {
        if (td_str_is(m->key, "vars") || td_str_is(m->key, "name")) continue;
        td_json_key_str(&w, m->key);
        td_json_write_value(&w, m);
    }
    const td_json *vars = td_json_get(context, "vars");
    for (const td_json *m = vars ? vars->first : NULL; m; m = m->next) {
        td_json_key_str(&w, m->key);
        td_json_write_value(&w, m);
    }
    td_json_end_object(&w);
}

static size_t characters(const char *p, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)p[i] & 0xC0) != 0x80;
    return count;
}

static bool same_spans(const td_json *wanted, const td_template_spans *got, const td_buf *text) {
    if (!wanted) return true;
    size_t i = 0;
    for (const td_json *s = wanted->first; s; s = s->next, i++) {
        if (i >= got->n) return false;
        if (td_json_at(s, 0)->as_int != (int64_t)characters(text->p, got->items[i].begin)) return false;
        if (td_json_at(s, 1)->as_int != (int64_t)characters(text->p, got->items[i].end)) return false;
    }
    return i == got->n;
}

static void check_render(template_counts *counts, template_wrong *report, const td_json *t, const td_template *tpl,
                         const td_json *render, const td_json *context) {
    long index = (long)td_json_int_or(render, "c", -1);
    const td_json *r = td_json_get(render, "r");
    td_template_limits limits = {.now = &golden_time};
    treadle_error err = {0};
    td_buf out = {0};
    td_template_spans spans = {0};
    treadle_status status = td_template_render_spans(tpl, &limits, context, &out, &spans, &err);
    bool wants_ok = td_str_is(td_json_at(r, 0)->string, "ok");
    td_str text = td_json_at(r, 1)->string, got = status == TREADLE_OK ? td_buf_view(&out) : td_str_from(err.message);
    if (wants_ok) {
        if (status != TREADLE_OK || !td_str_equal(got, text)) wrong(counts, report, t, index, "text", got, text);
        else if (!same_spans(td_json_get(render, "assistant_spans"), &spans, &out))
            wrong(counts, report, t, index, "spans", got, text);
        else counts->right++;
    } else {
        td_str message = td_json_at(r, 2)->string;
        bool raised = td_str_is(text, "TemplateError");
        td_buf whole = {0};
        td_buf_printf(&whole, "TemplateError: %.*s", TD_STR_ARGS(message));
        if (status == TREADLE_OK) wrong(counts, report, t, index, "no error", got, message);
        else if (raised && (status != TREADLE_INVALID_ARGUMENT || !td_str_equal(got, td_buf_view(&whole))))
            wrong(counts, report, t, index, "message", got, message);
        else if (!err.line || !err.column) wrong(counts, report, t, index, "an error without a place", got, message);
        else counts->right++;
        td_buf_free(&whole);
    }
    td_buf_free(&out);
    td_vec_free(&spans);
}

static void check_template(template_counts *counts, template_wrong *report, const td_json *t, td_json **contexts) {
    td_template *tpl = NULL;
    treadle_error err = {0};
    treadle_status status = td_template_parse(td_json_get(t, "template")->string, &tpl, &err);
    const td_json *compile_error = td_json_get(t, "compile_error");
    if (compile_error && compile_error->kind == TD_JSON_ARRAY) {
        td_str message = td_json_at(compile_error, 1)->string;
        char place[64];
        snprintf(place, sizeof place, "line %u instead of %lld", err.line,
                 (long long)td_json_at(compile_error, 2)->as_int);
        if (status == TREADLE_OK) wrong(counts, report, t, -1, "no error", TD_STR(""), message);
        else if (status != TREADLE_FORMAT || err.line != td_json_at(compile_error, 2)->as_int)
            wrong(counts, report, t, -1, place, td_str_from(err.message), message);
        else counts->right++;
    } else if (status != TREADLE_OK) {
        wrong(counts, report, t, -1, "does not parse", td_str_from(err.message), TD_STR(""));
    } else {
        const td_json *renders = td_json_get(t, "renders");
        for (const td_json *r = renders ? renders->first : NULL; r; r = r->next) {
            check_render(counts, report, t, tpl, r, contexts[td_json_int_or(r, "c", 0)]);
        }
    }
    td_template_free(tpl);
}

/* Counts what is right and reports what is wrong; false: the file itself is of no use. */
static bool run_template_cases(td_str json, template_counts *counts, template_wrong *report, treadle_error *err) {
    td_arena arena = {0};
    td_json *root;
    td_json_options options = {.allow_duplicate_keys = true, .allow_nonfinite = true};
    bool ok = td_json_parse(json, &options, &arena, &root, err) == TREADLE_OK;
    const td_json *list = ok ? td_json_get(root, "contexts") : NULL;
    td_json **contexts = list ? TD_ARENA_ARRAY(&arena, td_json *, list->n + 1) : NULL;
    size_t n = 0;
    for (const td_json *c = list && contexts ? list->first : NULL; c && ok; c = c->next) {
        td_buf text = {0};
        write_context(c, &text);
        td_str copy = td_arena_str(&arena, td_buf_view(&text));
        td_buf_free(&text);
        ok = copy.p && td_json_parse(copy, &options, &arena, &contexts[n++], err) == TREADLE_OK;
    }
    const td_json *templates = ok ? td_json_get(root, "templates") : NULL;
    for (const td_json *t = templates ? templates->first : NULL; t && ok; t = t->next)
        check_template(counts, report, t, contexts);
    td_arena_free(&arena);
    return ok && contexts;
}

#endif
