/* template/template.c - the public face: parse, render, free.
 *
 * A render runs in the "C" locale of its own thread, so that numbers and dates read the same whatever the host has
 * set. */
#include "text/template.h"

#include "base/alloc.h"
#include "text/template/ast.h"

#include <locale.h>

enum {
    MAX_SOURCE_BYTES = 1 << 20,
    DEFAULT_DEPTH = 1500,
    MAX_DEPTH = 4000,
};

static const uint64_t default_steps = 10u * 1000 * 1000;
static const size_t default_output = (size_t)16 << 20, default_memory = (size_t)256 << 20;

typedef struct locale_guard {
    locale_t c, before;
} locale_guard;

static locale_guard enter_c_locale(void) {
    locale_guard g = {.c = newlocale(LC_ALL_MASK, "C", (locale_t)0)};
    if (g.c) g.before = uselocale(g.c);
    return g;
}

static void leave_c_locale(locale_guard g) {
    if (!g.c) return;
    uselocale(g.before);
    freelocale(g.c);
}

treadle_status td_template_parse(td_str source, td_template **out, treadle_error *err) {
    if (source.n > MAX_SOURCE_BYTES) {
        return td_fail(err, TREADLE_LIMIT, "a template of %zu bytes; at most %d are read", source.n, MAX_SOURCE_BYTES);
    }
    if (!td_utf8_valid(source))
        return td_fail(err, TREADLE_FORMAT, "TemplateSyntaxError: the template is not valid UTF-8");
    td_template *t = td_alloc_zero(1, sizeof *t);
    if (!t) return td_fail_memory(err, "a template", sizeof *t);
    t->source = td_arena_str(&t->arena, source.n ? source : TD_STR(""));
    treadle_status status = t->source.p ? TREADLE_OK : td_fail_memory(err, "a template's text", source.n);
    locale_guard g = enter_c_locale();
    if (status == TREADLE_OK) status = td_tpl_parse_source(t, err);
    if (status == TREADLE_OK) status = td_tpl_bind_names(t, err);
    leave_c_locale(g);
    if (status != TREADLE_OK) {
        td_template_free(t);
        return status;
    }
    *out = t;
    return TREADLE_OK;
}

void td_template_free(td_template *t) {
    if (!t) return;
    td_arena_free(&t->arena);
    td_free(t);
}

/* The text leaves as UTF-8: a lone surrogate becomes U+FFFD, which is three bytes as well. */
static void replace_surrogates(char *p, size_t n) {
    for (size_t i = 0; i + 2 < n; i++) {
        if ((uint8_t)p[i] == 0xED && (uint8_t)p[i + 1] >= 0xA0) memcpy(p + i, "\xEF\xBF\xBD", 3);
    }
}

static treadle_status run(td_tpl *r, const td_json *context) {
    if (context && context->kind != TD_JSON_OBJECT) {
        return td_fail(r->err, TREADLE_INVALID_ARGUMENT, "a template's context: expected an object, found %s",
                       td_json_kind_name(context->kind));
    }
    td_val vars = context ? td_v_from_json(r, context) : td_v_dict(td_dict_new(r, 0));
    if (TD_V_FAILED(vars)) return r->status;
    r->context = vars.u.dict;
    td_frame *root = td_frame_enter(r, NULL, r->tpl->root->scope);
    if (!root) return r->status;
    r->root = root;
    bool done = td_tpl_exec(r, root, r->tpl->root);
    if (!done && r->status == TREADLE_OK)
        return td_fail(r->err, TREADLE_INTERNAL, "a template failed without a reason");
    return r->status;
}

treadle_status td_template_render_spans(const td_template *t, const td_template_limits *limits, const td_json *context,
                                        td_buf *out, td_template_spans *spans, treadle_error *err) {
    static const td_template_limits none = {0};
    if (!limits) limits = &none;
    treadle_error unwanted;
    td_tpl r = {
        .tpl = t,
        .max_steps = limits->max_steps ? limits->max_steps : default_steps,
        .max_depth = limits->max_depth ? TD_MIN(limits->max_depth, (uint32_t)MAX_DEPTH) : DEFAULT_DEPTH,
        .max_output = limits->max_output_bytes ? limits->max_output_bytes : default_output,
        .max_memory = limits->max_memory_bytes ? limits->max_memory_bytes : default_memory,
        .has_now = limits->now != NULL,
        .now = limits->now ? *limits->now : (td_template_time){0},
        .err = err ? err : &unwanted,
        .out = out,
        .out_start = out->n,
        .spans = spans,
    };
    size_t n_spans = spans ? spans->n : 0;
    locale_guard g = enter_c_locale();
    treadle_status status = run(&r, context);
    leave_c_locale(g);
    if (status == TREADLE_OK && out->failed) status = td_fail_memory(r.err, "a template's text", out->n);
    if (status == TREADLE_OK) {
        replace_surrogates(out->p ? out->p + r.out_start : NULL, out->n - r.out_start);
    } else {
        out->n = r.out_start;
        if (out->p) out->p[out->n] = 0;
        if (spans) spans->n = n_spans;
    }
    td_buf_free(&r.capture);
    td_arena_free(&r.arena);
    return status;
}

treadle_status td_template_render(const td_template *t, const td_template_limits *limits, const td_json *context,
                                  td_buf *out, treadle_error *err) {
    return td_template_render_spans(t, limits, context, out, NULL, err);
}
