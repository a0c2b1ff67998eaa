/* template/iter.c - walking values, one item at a time as Python's generators do. */
#include "text/template/value.h"

#include "text/template/unicode.h"

td_tpl_iter *td_iter_new(td_tpl *r, td_tpl_next_fn *next, const char *name) {
    td_tpl_iter *it = td_tpl_alloc(r, sizeof *it);
    if (!it) return NULL;
    it->next = next;
    it->name = name;
    it->a = it->b = td_v_missing();
    return it;
}

td_val td_v_iter(td_tpl_iter *it) { return it ? (td_val){.kind = TD_V_ITER, .u.iter = it} : td_v_error(); }

static td_val next_nothing(td_tpl *r, td_tpl_iter *it) {
    (void)r, (void)it;
    return td_v_missing();
}

static td_val next_in_list(td_tpl *r, td_tpl_iter *it) {
    (void)r;
    const td_tpl_list *l = it->source.u.list;
    return it->at < l->n ? l->items[it->at++] : td_v_missing();
}

static td_val next_in_string(td_tpl *r, td_tpl_iter *it) {
    (void)r;
    td_str text = td_v_str(it->source);
    if (it->at >= text.n) return td_v_missing();
    size_t begin = it->at;
    td_tpl_uni_next(text, &it->at);
    return td_v_view((td_str){text.p + begin, it->at - begin});
}

static td_val next_in_bytes(td_tpl *r, td_tpl_iter *it) {
    (void)r;
    return it->at < it->source.n ? td_v_int((uint8_t)it->source.u.p[it->at++]) : td_v_missing();
}

static td_val view_item(td_tpl *r, const td_tpl_dict *d, uint8_t view, size_t at) {
    if (view == 'i') return td_v_pair(r, d->items[at].key, d->items[at].value);
    return view == 'v' ? d->items[at].value : d->items[at].key;
}

static td_val next_in_dict(td_tpl *r, td_tpl_iter *it) {
    const td_tpl_dict *d = it->source.u.dict;
    return it->at < d->n ? view_item(r, d, it->source.view, it->at++) : td_v_missing();
}

static td_val next_in_range(td_tpl *r, td_tpl_iter *it) {
    (void)r;
    const td_tpl_range *g = it->source.u.range;
    return (int64_t)it->at < g->n ? td_range_at(g, (int64_t)it->at++) : td_v_missing();
}

static td_tpl_next_fn *walker(td_val v) {
    switch (v.kind) {
    case TD_V_UNDEFINED: return next_nothing;
    case TD_V_STRING: return next_in_string;
    case TD_V_BYTES: return next_in_bytes;
    case TD_V_LIST:
    case TD_V_TUPLE: return next_in_list;
    case TD_V_DICT:
    case TD_V_VIEW: return next_in_dict;
    case TD_V_RANGE: return next_in_range;
    default: return NULL;
    }
}

bool td_v_iterable(td_val v) { return v.kind == TD_V_ITER || walker(v) != NULL; }

td_tpl_iter *td_iter_over(td_tpl *r, td_val v) {
    if (v.kind == TD_V_ITER) return v.u.iter;
    td_tpl_next_fn *next = walker(v);
    if (!next) {
        td_tpl_raise(r, "TypeError", "'%s' object is not iterable", td_v_type(v));
        return NULL;
    }
    td_tpl_iter *it = td_iter_new(r, next, "iterator");
    if (it) it->source = v;
    return it;
}

td_val td_iter_next(td_tpl *r, td_tpl_iter *it) {
    if (it->done) return td_v_missing();
    if (!td_tpl_steps(r, 1) || !td_tpl_enter(r)) return td_v_error();
    it->done = true; /* a generator that asks for its own next item finds nothing, where Python raises ValueError */
    td_val v = it->next(r, it);
    it->done = v.kind == TD_V_MISSING || v.kind == TD_V_ERROR;
    td_tpl_leave(r);
    return v;
}

td_val td_v_to_list(td_tpl *r, td_val v) {
    td_tpl_iter *it = td_iter_over(r, v);
    int64_t n = td_v_len(v);
    td_tpl_list *l = it ? td_list_new(r, n > 0 && n < 1000000 ? (uint32_t)n : 0) : NULL;
    while (l) {
        td_val item = td_iter_next(r, it);
        if (!td_v_given(item)) break;
        if (!td_list_push(r, l, item)) return td_v_error();
    }
    return td_v_list(l);
}

/* --- reversed() --- */

static td_val next_backwards(td_tpl *r, td_tpl_iter *it) {
    td_val s = it->source;
    if (s.kind == TD_V_STRING) {
        if (it->at == 0) return td_v_missing();
        size_t end = it->at;
        td_tpl_uni_previous(td_v_str(s), &it->at);
        return td_v_view((td_str){s.u.p + it->at, end - it->at});
    }
    if (it->at == 0) return td_v_missing();
    it->at--;
    switch (s.kind) {
    case TD_V_LIST:
    case TD_V_TUPLE: return s.u.list->items[it->at];
    case TD_V_RANGE: return td_range_at(s.u.range, (int64_t)it->at);
    case TD_V_BYTES: return td_v_int((uint8_t)s.u.p[it->at]);
    default: return view_item(r, s.u.dict, s.view, it->at);
    }
}

td_val td_v_reversed(td_tpl *r, td_val v) {
    if (!walker(v)) return td_tpl_raise(r, "TypeError", "'%s' object is not reversible", td_v_type(v));
    const char *name = v.kind == TD_V_LIST ? "list_reverseiterator" : "reversed";
    td_tpl_iter *it = td_iter_new(r, next_backwards, name);
    if (!it) return td_v_error();
    it->source = v;
    it->at = v.kind == TD_V_STRING ? v.n : (size_t)td_v_len(v);
    return td_v_iter(it);
}
