/* template/filters_walk.c - filters that are generators: each item is made when asked for, and only once, so that a
 * fault in an item nobody asks for stays silent, as in Jinja2. */
#include "text/template/filters.h"
#include "text/template/unicode.h"

static td_val generator(td_tpl *r, td_tpl_next_fn *next, const char *name, td_val source) {
    td_tpl_iter *it = td_iter_new(r, next, name);
    if (it) it->source = source;
    return td_v_iter(it);
}

/* At the first item: makes an iterator of the source. *empty: there is nothing to walk. */
static bool start(td_tpl *r, td_tpl_iter *it, bool *empty) {
    *empty = false;
    if (it->at) return true;
    it->at = 1;
    td_tpl_iter *inner = td_iter_over(r, it->source);
    it->source = td_v_iter(inner);
    return inner != NULL;
}

/* The same for filters that first ask whether the value is true. */
static bool start_if_true(td_tpl *r, td_tpl_iter *it, bool *empty) {
    *empty = false;
    if (it->at) return true;
    int truth = td_v_truth(r, it->source);
    if (truth < 0) return false;
    *empty = !truth;
    return *empty || start(r, it, empty);
}

/* --- map --- */

static td_val next_mapped(td_tpl *r, td_tpl_iter *it) {
    bool empty;
    if (!start_if_true(r, it, &empty)) return td_v_error();
    if (empty) return td_v_missing();
    const td_tpl_args *args = &it->args;
    bool by_attribute = false;
    td_val attribute = td_v_missing(), fallback = td_v_missing();
    for (uint32_t i = 0; !args->n && i < args->n_keywords; i++)
        by_attribute |= td_str_is(args->keywords[i].name, "attribute");
    for (uint32_t i = 0; by_attribute && i < args->n_keywords; i++) {
        const td_tpl_keyword *k = &args->keywords[i];
        if (td_str_is(k->name, "attribute")) attribute = k->value;
        else if (td_str_is(k->name, "default")) fallback = k->value;
        else return td_tpl_raise(r, "FilterArgumentError", "Unexpected keyword argument '%.*s'", TD_STR_ARGS(k->name));
    }
    if (!by_attribute && !args->n) return td_tpl_raise(r, "FilterArgumentError", "map requires a filter argument");
    td_val item = td_iter_next(r, it->source.u.iter);
    if (TD_V_FAILED(item) || !td_v_given(item)) return item;
    if (by_attribute) return td_v_path(r, item, attribute, fallback);
    if (args->items[0].kind != TD_V_STRING) {
        return td_tpl_raise(r, "TemplateRuntimeError", "map: expected a filter's name, found %s",
                            td_v_type(args->items[0]));
    }
    td_tpl_args rest = {args->items + 1, args->keywords, args->n - 1, args->n_keywords};
    return td_tpl_call_filter(r, td_v_str(args->items[0]), item, &rest);
}

/* The arguments outlive the call: they lie in the render's arena. */
FILTER(map) {
    (void)a;
    td_val g = generator(r, next_mapped, "do_map", v);
    if (!TD_V_FAILED(g)) g.u.iter->args = *args;
    return g;
}

/* --- select, reject, selectattr, rejectattr --- */

enum { REJECT = 1, BY_ATTRIBUTE = 2 };

static td_val next_selected(td_tpl *r, td_tpl_iter *it) {
    bool empty;
    unsigned mode = (unsigned)it->a.u.i;
    uint32_t skip = mode & BY_ATTRIBUTE ? 1 : 0;
    const td_tpl_args *args = &it->args;
    if (!start_if_true(r, it, &empty)) return td_v_error();
    if (empty) return td_v_missing();
    if (args->n < skip) return td_tpl_raise(r, "FilterArgumentError", "Missing parameter for attribute name");
    bool has_test = args->n > skip;
    if (has_test && args->items[skip].kind != TD_V_STRING) {
        return td_tpl_raise(r, "TemplateRuntimeError", "expected a test's name, found %s",
                            td_v_type(args->items[skip]));
    }
    for (;;) {
        td_val item = td_iter_next(r, it->source.u.iter);
        if (TD_V_FAILED(item) || !td_v_given(item)) return item;
        td_val v = skip ? td_v_path(r, item, args->items[0], td_v_missing()) : item;
        TD_V_CHECK(v);
        if (has_test) {
            td_tpl_args rest = {args->items + skip + 1, args->keywords, args->n - skip - 1, args->n_keywords};
            v = td_tpl_call_test(r, td_v_str(args->items[skip]), v, &rest);
            TD_V_CHECK(v);
        }
        int truth = td_v_truth(r, v);
        if (truth < 0) return td_v_error();
        if (truth != (int)(mode & REJECT)) return item;
    }
}

static td_val selector(td_tpl *r, td_val v, const td_tpl_args *args, const char *name, unsigned mode) {
    td_val g = generator(r, next_selected, name, v);
    if (TD_V_FAILED(g)) return g;
    g.u.iter->args = *args;
    g.u.iter->a = td_v_int(mode);
    return g;
}

FILTER(select) { return (void)a, selector(r, v, args, "select_or_reject", 0); }
FILTER(reject) { return (void)a, selector(r, v, args, "select_or_reject", REJECT); }
FILTER(selectattr) { return (void)a, selector(r, v, args, "select_or_reject", BY_ATTRIBUTE); }
FILTER(rejectattr) { return (void)a, selector(r, v, args, "select_or_reject", BY_ATTRIBUTE | REJECT); }

/* --- items --- */

static td_val next_pair(td_tpl *r, td_tpl_iter *it) {
    bool empty;
    if (!it->at && it->source.kind == TD_V_UNDEFINED) return td_v_missing();
    if (!it->at) {
        if (it->source.kind != TD_V_DICT)
            return td_tpl_raise(r, "TypeError", "Can only get item pairs from a mapping.");
        it->source = (td_val){.kind = TD_V_VIEW, .view = 'i', .u.dict = it->source.u.dict};
    }
    return start(r, it, &empty) ? td_iter_next(r, it->source.u.iter) : td_v_error();
}

FILTER(items) { return (void)a, (void)args, generator(r, next_pair, "do_items", v); }

/* --- unique --- */

static td_val next_unique(td_tpl *r, td_tpl_iter *it) {
    bool empty;
    if (!start(r, it, &empty)) return td_v_error();
    for (;;) {
        td_val item = td_iter_next(r, it->source.u.iter);
        if (TD_V_FAILED(item) || !td_v_given(item)) return item;
        td_val key = td_v_path(r, item, it->a, td_v_missing());
        TD_V_CHECK(key);
        if (key.kind == TD_V_STRING && !it->b.u.b) key = td_str_convert(r, key, td_tpl_uni_lower);
        TD_V_CHECK(key);
        uint32_t before = it->seen->n;
        if (!td_dict_set(r, it->seen, key, td_v_none())) return td_v_error();
        if (it->seen->n > before) return item;
    }
}

FILTER(unique) {
    (void)args;
    int sensitive = td_tpl_flag(r, a[0]);
    td_val g = sensitive < 0 ? td_v_error() : generator(r, next_unique, "do_unique", v);
    TD_V_CHECK(g);
    g.u.iter->a = a[1];
    g.u.iter->b = td_v_bool(sensitive);
    g.u.iter->seen = td_dict_new(r, 0);
    return g.u.iter->seen ? g : td_v_error();
}

/* --- batch, slice --- */

static td_val next_batch(td_tpl *r, td_tpl_iter *it) {
    bool empty;
    if (!start(r, it, &empty)) return td_v_error();
    int64_t size = it->a.u.i;
    td_tpl_list *l = td_list_new(r, 0);
    while (l && (size <= 0 || l->n < size)) {
        td_val item = td_iter_next(r, it->source.u.iter);
        if (!td_v_given(item)) break;
        if (!td_list_push(r, l, item)) return td_v_error();
    }
    if (!l) return td_v_error();
    if (!l->n) return td_v_missing();
    while (td_tpl_has(it->b) && l->n < size) {
        if (!td_tpl_steps(r, 1) || !td_list_push(r, l, it->b)) return td_v_error();
    }
    return td_v_list(l);
}

FILTER(batch) {
    (void)args;
    int64_t size;
    if (!td_num_index(r, a[0], "batch", &size)) return td_v_error();
    td_val g = generator(r, next_batch, "do_batch", v);
    TD_V_CHECK(g);
    g.u.iter->a = td_v_int(size);
    g.u.iter->b = a[1];
    return g;
}

static td_val next_slice(td_tpl *r, td_tpl_iter *it) {
    int64_t n_slices = it->a.u.i, i = (int64_t)it->at;
    if (it->at == 0) {
        it->source = td_v_to_list(r, it->source);
        TD_V_CHECK(it->source);
        if (n_slices == 0) return td_tpl_raise(r, "ZeroDivisionError", "integer division or modulo by zero");
    }
    if (i >= n_slices) return td_v_missing();
    it->at++;
    int64_t n = it->source.u.list->n, each = n / n_slices, extra = n % n_slices;
    int64_t begin = i * each + TD_MIN(i, extra), end = (i + 1) * each + TD_MIN(i + 1, extra);
    td_tpl_list *l = td_list_new(r, (uint32_t)(end - begin) + 1);
    for (int64_t k = begin; l && k < end; k++) l->items[l->n++] = it->source.u.list->items[k];
    if (l && td_tpl_has(it->b) && i >= extra) l->items[l->n++] = it->b;
    return td_v_list(l);
}

FILTER(slice) {
    (void)args;
    int64_t n;
    if (!td_num_index(r, a[0], "slice", &n)) return td_v_error();
    td_val g = generator(r, next_slice, "sync_do_slice", v);
    TD_V_CHECK(g);
    g.u.iter->a = td_v_int(n);
    g.u.iter->b = a[1];
    return g;
}

/* clang-format off */
const td_tpl_builtin td_tpl_walk_filters[] = {
    {.name = "map", .fn = filter_map, .variadic = true},
    {.name = "select", .fn = filter_select, .variadic = true},
    {.name = "reject", .fn = filter_reject, .variadic = true},
    {.name = "selectattr", .fn = filter_selectattr, .variadic = true},
    {.name = "rejectattr", .fn = filter_rejectattr, .variadic = true},
    {.name = "items", .fn = filter_items, .params = ""},
    {.name = "unique", .fn = filter_unique, .params = "?case_sensitive ?attribute"},
    {.name = "batch", .fn = filter_batch, .params = "linecount ?fill_with"},
    {.name = "slice", .fn = filter_slice, .params = "slices ?fill_with"},
};
/* clang-format on */
const size_t td_tpl_n_walk_filters = TD_COUNT(td_tpl_walk_filters);
