/* template/globals.c - functions that every template has. */
#include "text/template/value.h"

static td_val global_range(td_tpl *r, td_val self, const td_val *a, const td_tpl_args *args) {
    (void)self, (void)a;
    enum { MAX_RANGE = 100000 }; /* the sandbox's */
    if (args->n_keywords) return td_tpl_raise(r, "TypeError", "range() takes no keyword arguments");
    if (args->n < 1 || args->n > 3) {
        return td_tpl_raise(r, "TypeError", "range expected 1 to 3 arguments, got %u", args->n);
    }
    int64_t v[3] = {0, 0, 1};
    for (uint32_t i = 0; i < args->n; i++) {
        if (!td_num_index(r, args->items[i], "range", &v[args->n == 1 ? 1 : i])) return td_v_error();
    }
    if (v[2] == 0) return td_tpl_raise(r, "ValueError", "range() arg 3 must not be zero");
    uint64_t span =
        v[2] > 0 ? (v[1] > v[0] ? (uint64_t)(v[1] - v[0]) : 0) : (v[0] > v[1] ? (uint64_t)(v[0] - v[1]) : 0);
    uint64_t n = span ? (span - 1) / (v[2] > 0 ? (uint64_t)v[2] : (uint64_t)-v[2]) + 1 : 0;
    if (n > MAX_RANGE) {
        return td_tpl_raise(r, "OverflowError", "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                            MAX_RANGE);
    }
    td_tpl_range *g = td_tpl_alloc(r, sizeof *g);
    if (!g) return td_v_error();
    *g = (td_tpl_range){v[0], v[1], v[2], (int64_t)n};
    return (td_val){.kind = TD_V_RANGE, .u.range = g};
}

/* dict(mapping or pairs, **names), which namespace() takes too. */
static td_tpl_dict *make_dict(td_tpl *r, const char *name, const td_tpl_args *args) {
    if (args->n > 1) {
        td_tpl_raise(r, "TypeError", "%s expected at most 1 argument, got %u", name, args->n);
        return NULL;
    }
    td_tpl_dict *d = td_dict_new(r, args->n_keywords);
    if (!d) return NULL;
    if (args->n && args->items[0].kind == TD_V_DICT) {
        const td_tpl_dict *from = args->items[0].u.dict;
        if (!td_tpl_steps(r, from->n)) return NULL;
        for (uint32_t i = 0; i < from->n; i++) {
            if (!td_dict_set(r, d, from->items[i].key, from->items[i].value)) return NULL;
        }
    } else if (args->n) {
        if (args->items[0].kind == TD_V_UNDEFINED) {
            td_tpl_raise_undefined(r, args->items[0]);
            return NULL;
        }
        td_tpl_iter *it = td_iter_over(r, args->items[0]);
        if (!it) return NULL;
        for (td_val pair = td_iter_next(r, it); td_v_given(pair); pair = td_iter_next(r, it)) {
            if (TD_V_FAILED(pair)) return NULL;
            td_val items = td_v_to_list(r, pair);
            if (TD_V_FAILED(items)) return NULL;
            if (items.u.list->n != 2) {
                td_tpl_raise(r, "ValueError", "dictionary update sequence element has length %u; 2 is required",
                             items.u.list->n);
                return NULL;
            }
            if (!td_dict_set(r, d, items.u.list->items[0], items.u.list->items[1])) return NULL;
        }
    }
    for (uint32_t i = 0; i < args->n_keywords; i++) {
        if (!td_dict_set(r, d, td_v_view(args->keywords[i].name), args->keywords[i].value)) return NULL;
    }
    return d;
}

static td_val global_dict(td_tpl *r, td_val self, const td_val *a, const td_tpl_args *args) {
    (void)self, (void)a;
    return td_v_dict(make_dict(r, "dict", args));
}

static td_val global_namespace(td_tpl *r, td_val self, const td_val *a, const td_tpl_args *args) {
    (void)self, (void)a;
    td_tpl_dict *d = make_dict(r, "dict", args);
    return d ? (td_val){.kind = TD_V_NAMESPACE, .u.dict = d} : td_v_error();
}

static td_val global_cycler(td_tpl *r, td_val self, const td_val *a, const td_tpl_args *args) {
    (void)self, (void)a;
    if (args->n_keywords) return td_tpl_raise(r, "TypeError", "cycler() takes no keyword arguments");
    if (!args->n) return td_tpl_raise(r, "RuntimeError", "at least one item has to be provided");
    td_tpl_cycler *c = td_tpl_alloc(r, sizeof *c);
    if (!c) return td_v_error();
    c->items = td_tpl_alloc_array(r, args->n, sizeof *c->items);
    if (!c->items) return td_v_error();
    memcpy(c->items, args->items, args->n * sizeof *c->items);
    c->n = args->n;
    return (td_val){.kind = TD_V_CYCLER, .u.cycler = c};
}

static td_val global_joiner(td_tpl *r, td_val self, const td_val *a, const td_tpl_args *args) {
    (void)self, (void)args;
    td_tpl_joiner *j = td_tpl_alloc(r, sizeof *j);
    if (!j) return td_v_error();
    j->separator = td_v_given(a[0]) ? a[0] : td_v_text(", ");
    return (td_val){.kind = TD_V_JOINER, .u.joiner = j};
}

static td_val global_lipsum(td_tpl *r, td_val self, const td_val *a, const td_tpl_args *args) {
    (void)self, (void)a, (void)args;
    return td_tpl_raise_status(r, TREADLE_UNSUPPORTED, "TemplateRuntimeError",
                               TD_STR("lipsum makes random text and is not supported"));
}

/* The template refuses its input: the caller's fault, in the template's own words. */
static td_val global_raise(td_tpl *r, td_val self, const td_val *a, const td_tpl_args *args) {
    (void)self, (void)args;
    td_val text = td_v_to_str(r, a[0]);
    TD_V_CHECK(text);
    return td_tpl_raise_status(r, TREADLE_INVALID_ARGUMENT, "TemplateError", td_v_str(text));
}

static td_val global_strftime(td_tpl *r, td_val self, const td_val *a, const td_tpl_args *args) {
    (void)self, (void)args;
    if (a[0].kind != TD_V_STRING) {
        return td_tpl_raise(r, "TypeError", "strftime() argument 1 must be str, not %s", td_v_type(a[0]));
    }
    return td_tpl_strftime(r, td_v_str(a[0]));
}

static const td_tpl_builtin globals[] = {
    {.name = "range", .fn = global_range, .variadic = true},
    {.name = "dict", .fn = global_dict, .variadic = true, .is_type = true},
    {.name = "namespace", .fn = global_namespace, .variadic = true, .is_type = true},
    {.name = "cycler", .fn = global_cycler, .variadic = true, .is_type = true},
    {.name = "joiner", .fn = global_joiner, .params = "?sep", .is_type = true},
    {.name = "lipsum", .fn = global_lipsum, .variadic = true},
    {.name = "raise_exception", .fn = global_raise, .params = "message"},
    {.name = "strftime_now", .fn = global_strftime, .params = "format"},
};

const td_tpl_builtin *td_tpl_find_global(td_str name) { return td_tpl_find_row(globals, TD_COUNT(globals), name); }
