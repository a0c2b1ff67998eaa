/* template/filters_list.c - filters on lists and dicts that answer at once; those that answer item by item are in
 * filters_walk.c. */
#include "text/template/filters.h"
#include "text/template/lexer.h"
#include "text/template/unicode.h"

static td_val lowered(td_tpl *r, td_val v) {
    return v.kind == TD_V_STRING ? td_str_convert(r, v, td_tpl_uni_lower) : v;
}

/* How sort, unique, min, max and groupby look at an item. */
typedef struct getter {
    td_val attribute, fallback;
    bool fold; /* strings of any case are equal */
} getter;

static td_val get_key(td_tpl *r, td_val item, void *ctx) {
    const getter *g = ctx;
    td_val v = td_v_path(r, item, g->attribute, g->fallback);
    return g->fold && !TD_V_FAILED(v) ? lowered(r, v) : v;
}

/* "a,b.c": several attributes, compared in turn; always a list, so that undefined ones compare as Python compares them
 * inside lists. */
static td_val get_keys(td_tpl *r, td_val item, void *ctx) {
    getter g = *(const getter *)ctx;
    td_tpl_list *l = td_list_new(r, 1);
    if (!l) return td_v_error();
    if (g.attribute.kind != TD_V_STRING) return td_list_push(r, l, get_key(r, item, &g)) ? td_v_list(l) : td_v_error();
    td_str rest = td_v_str(g.attribute);
    for (bool more = true; more;) {
        ptrdiff_t comma = td_str_find(rest, TD_STR(","));
        more = comma >= 0;
        g.attribute = td_v_view((td_str){rest.p, more ? (size_t)comma : rest.n});
        if (!td_list_push(r, l, get_key(r, item, &g))) return td_v_error();
        if (more) rest = (td_str){rest.p + comma + 1, rest.n - (size_t)comma - 1};
    }
    return td_v_list(l);
}

static bool make_getter(td_tpl *r, td_val attribute, td_val case_sensitive, getter *out) {
    int sensitive = td_tpl_flag(r, case_sensitive);
    *out = (getter){attribute, td_v_missing(), sensitive == 0};
    return sensitive >= 0;
}

FILTER(sort) {
    (void)args;
    getter g;
    int reverse = td_tpl_flag(r, a[0]);
    if (reverse < 0 || !make_getter(r, a[2], a[1], &g)) return td_v_error();
    td_val l = td_v_to_list(r, v);
    if (TD_V_FAILED(l) || !td_v_sort(r, l.u.list, get_keys, &g, reverse)) return td_v_error();
    return l;
}

static td_val best(td_tpl *r, td_val v, const td_val *a, const char *op) {
    getter g;
    if (!make_getter(r, a[1], a[0], &g)) return td_v_error();
    td_tpl_iter *it = td_iter_over(r, v);
    if (!it) return td_v_error();
    td_val found = td_v_missing(), found_key = found;
    for (td_val item = td_iter_next(r, it); td_v_given(item); item = td_iter_next(r, it)) {
        td_val key = TD_V_FAILED(item) ? item : get_key(r, item, &g);
        TD_V_CHECK(key);
        int order = -1;
        if (td_v_given(found) && td_v_compare(r, key, found_key, op, &order) < 0) return td_v_error();
        bool better = !td_v_given(found) || (order != 2 && (op[0] == '<' ? order < 0 : order > 0));
        if (better) found = item, found_key = key;
    }
    return td_v_given(found) ? found : td_v_undefined_hint(r, TD_STR("No aggregated item, sequence was empty."));
}

FILTER(min) { return (void)args, best(r, v, a, "<"); }
FILTER(max) { return (void)args, best(r, v, a, ">"); }

FILTER(sum) {
    (void)args;
    td_val total = td_v_given(a[1]) ? a[1] : td_v_int(0);
    if (total.kind == TD_V_STRING)
        return td_tpl_raise(r, "TypeError", "sum() can't sum strings [use ''.join(seq) instead]");
    td_tpl_iter *it = td_iter_over(r, v);
    if (!it) return td_v_error();
    for (td_val item = td_iter_next(r, it); td_v_given(item); item = td_iter_next(r, it)) {
        if (!TD_V_FAILED(item)) item = td_v_path(r, item, a[0], td_v_missing());
        TD_V_CHECK(item);
        total = td_tpl_binary(r, TD_T_ADD, total, item);
        TD_V_CHECK(total);
    }
    return total;
}

FILTER(groupby) {
    (void)args;
    getter g;
    if (!make_getter(r, a[0], a[2], &g)) return td_v_error();
    g.fallback = a[1];
    td_val l = td_v_to_list(r, v);
    if (TD_V_FAILED(l) || !td_v_sort(r, l.u.list, get_key, &g, false)) return td_v_error();
    td_tpl_list *out = td_list_new(r, 0), *group = NULL;
    td_val key = td_v_missing();
    for (uint32_t i = 0; out && i < l.u.list->n; i++) {
        td_val item = l.u.list->items[i], here = get_key(r, item, &g);
        TD_V_CHECK(here);
        int same = group ? td_v_equal(r, key, here) : 0;
        if (same < 0) return td_v_error();
        if (!same) { /* the group is named as its first item has it */
            getter plain = {g.attribute, g.fallback, false};
            td_val name = get_key(r, item, &plain);
            TD_V_CHECK(name);
            group = td_list_new(r, 0);
            td_val pair = group ? td_v_pair(r, name, td_v_list(group)) : td_v_error();
            pair.flags |= TD_F_GROUP;
            if (!td_list_push(r, out, pair)) return td_v_error();
            key = here;
        }
        if (!td_list_push(r, group, item)) return td_v_error();
    }
    return td_v_list(out);
}

FILTER(dictsort) {
    (void)args;
    if (v.kind == TD_V_UNDEFINED) return td_tpl_raise_undefined(r, v);
    bool by_value = td_v_given(a[1]) && a[1].kind == TD_V_STRING && td_str_is(td_v_str(a[1]), "value");
    if (td_v_given(a[1]) && !by_value && !(a[1].kind == TD_V_STRING && td_str_is(td_v_str(a[1]), "key"))) {
        return td_tpl_raise(r, "FilterArgumentError", "You can only sort by either \"key\" or \"value\"");
    }
    getter g;
    int reverse = td_tpl_flag(r, a[2]);
    if (reverse < 0 || !make_getter(r, td_v_int(by_value), a[0], &g)) return td_v_error();
    if (v.kind != TD_V_DICT)
        return td_tpl_raise(r, "AttributeError", "'%s' object has no attribute 'items'", td_v_type(v));
    td_val l = td_v_to_list(r, (td_val){.kind = TD_V_VIEW, .view = 'i', .u.dict = v.u.dict});
    if (TD_V_FAILED(l) || !td_v_sort(r, l.u.list, get_key, &g, reverse)) return td_v_error();
    return l;
}

FILTER(join) {
    (void)args;
    td_val between = td_v_given(a[0]) ? td_v_to_str(r, a[0]) : td_v_text("");
    TD_V_CHECK(between);
    td_tpl_iter *it = td_iter_over(r, v);
    if (!it) return td_v_error();
    td_buf out = {0};
    for (bool first = true;; first = false) {
        td_val item = td_iter_next(r, it);
        if (!td_v_given(item)) return td_v_take_buf(r, &out);
        if (!TD_V_FAILED(item)) item = td_v_path(r, item, a[1], td_v_missing());
        if (!first) td_buf_str(&out, td_v_str(between));
        if (TD_V_FAILED(item) || !td_v_str_to(r, item, &out) || !td_tpl_steps(r, between.n / 64) ||
            !td_tpl_buf_ok(r, &out))
            break;
    }
    td_buf_free(&out);
    return td_v_error();
}

FILTER(first) {
    (void)a, (void)args;
    td_tpl_iter *it = td_iter_over(r, v);
    if (!it) return td_v_error();
    td_val item = td_iter_next(r, it);
    return td_v_given(item) ? item : td_v_undefined_hint(r, TD_STR("No first item, sequence was empty."));
}

FILTER(last) {
    (void)a, (void)args;
    td_val backwards = td_v_reversed(r, v);
    TD_V_CHECK(backwards);
    td_val item = td_iter_next(r, backwards.u.iter);
    return td_v_given(item) ? item : td_v_undefined_hint(r, TD_STR("No last item, sequence was empty."));
}

FILTER(reverse) {
    (void)a, (void)args;
    if (v.kind == TD_V_STRING) return td_v_slice(r, v, td_v_none(), td_v_none(), td_v_int(-1));
    if (!td_v_iterable(v)) return td_tpl_raise(r, "FilterArgumentError", "argument must be iterable");
    if (v.kind != TD_V_ITER) return td_v_reversed(r, v);
    td_val l = td_v_to_list(r, v);
    TD_V_CHECK(l);
    return td_v_slice(r, l, td_v_none(), td_v_none(), td_v_int(-1));
}

FILTER(length) { return (void)a, (void)args, td_v_length(r, v); }
FILTER(list) { return (void)a, (void)args, td_v_to_list(r, v); }

/* clang-format off */
const td_tpl_builtin td_tpl_list_filters[] = {
    {.name = "length", .fn = filter_length, .params = ""},
    {.name = "count", .fn = filter_length, .params = ""},
    {.name = "list", .fn = filter_list, .params = ""},
    {.name = "first", .fn = filter_first, .params = ""},
    {.name = "last", .fn = filter_last, .params = ""},
    {.name = "reverse", .fn = filter_reverse, .params = ""},
    {.name = "join", .fn = filter_join, .params = "?d ?attribute"},
    {.name = "sort", .fn = filter_sort, .params = "?reverse ?case_sensitive ?attribute"},
    {.name = "min", .fn = filter_min, .params = "?case_sensitive ?attribute"},
    {.name = "max", .fn = filter_max, .params = "?case_sensitive ?attribute"},
    {.name = "sum", .fn = filter_sum, .params = "?attribute ?start"},
    {.name = "groupby", .fn = filter_groupby, .params = "attribute ?default ?case_sensitive"},
    {.name = "dictsort", .fn = filter_dictsort, .params = "?case_sensitive ?by ?reverse"},
};
/* clang-format on */
const size_t td_tpl_n_list_filters = TD_COUNT(td_tpl_list_filters);
