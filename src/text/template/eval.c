/* template/eval.c - expressions. */
#include "text/template/ast.h"

static const char *op_text(int op) { return td_tpl_token_text((td_tpl_token_kind)op); }

/* --- operators --- */

static td_val repeat(td_tpl *r, td_val v, td_val times) {
    int64_t n;
    if (!td_num_index(r, times, "repeat", &n)) return td_v_error();
    n = TD_MAX(n, 0);
    int64_t items = v.kind == TD_V_STRING || v.kind == TD_V_BYTES ? v.n : v.u.list->n;
    int64_t total;
    if (TD_MUL_OVERFLOWS(items, n, &total) || total > INT32_MAX / 2) {
        return td_tpl_raise(r, "LimitError", "a value of %lld times %lld items", (long long)items, (long long)n);
    }
    if (items == 0) n = 0;
    if (v.kind == TD_V_STRING || v.kind == TD_V_BYTES) {
        if (!td_tpl_steps(r, (uint64_t)(total / 64 + n / 8))) return td_v_error();
        char *p = td_tpl_alloc(r, (size_t)total);
        if (!p) return td_v_error();
        for (int64_t i = 0; i < n; i++) memcpy(p + i * items, v.u.p, (size_t)items);
        td_val out = v;
        out.n = (uint32_t)total;
        out.u.p = p;
        return out;
    }
    if (!td_tpl_steps(r, (uint64_t)total)) return td_v_error();
    td_tpl_list *l = td_list_new(r, (uint32_t)total);
    for (int64_t i = 0; l && i < n; i++) {
        memcpy(l->items + l->n, v.u.list->items, (size_t)items * sizeof *l->items);
        l->n += (uint32_t)items;
    }
    return v.kind == TD_V_LIST ? td_v_list(l) : td_v_tuple(l);
}

static td_val add_lists(td_tpl *r, td_val a, td_val b) {
    uint64_t n = (uint64_t)a.u.list->n + b.u.list->n;
    if (n > INT32_MAX) return td_tpl_raise(r, "LimitError", "a list of %llu items", (unsigned long long)n);
    if (!td_tpl_steps(r, n)) return td_v_error();
    td_tpl_list *l = td_list_new(r, (uint32_t)n);
    if (!l) return td_v_error();
    if (a.u.list->n) memcpy(l->items, a.u.list->items, a.u.list->n * sizeof *l->items);
    if (b.u.list->n) memcpy(l->items + a.u.list->n, b.u.list->items, b.u.list->n * sizeof *l->items);
    l->n = (uint32_t)n;
    return a.kind == TD_V_LIST ? td_v_list(l) : td_v_tuple(l);
}

static td_val add_strings(td_tpl *r, td_val a, td_val b) {
    if ((a.flags | b.flags) & TD_F_MARKUP) {
        a = td_v_escape(r, a);
        b = td_v_escape(r, b);
        if (TD_V_FAILED(a) || TD_V_FAILED(b)) return td_v_error();
    }
    return td_v_concat(r, a, b);
}

static bool repeatable(td_val v) { return td_v_is_list(v) || v.kind == TD_V_STRING || v.kind == TD_V_BYTES; }

td_val td_tpl_binary(td_tpl *r, int op, td_val a, td_val b) {
    td_val v = td_num_binary(r, op, a, b);
    if (td_v_given(v)) return v;
    if (op == TD_T_MOD && a.kind == TD_V_STRING) return td_v_percent(r, a, b);
    if (a.kind == TD_V_UNDEFINED) return td_tpl_raise_undefined(r, a);
    if (op == TD_T_ADD && a.kind == TD_V_STRING && b.kind == TD_V_STRING) return add_strings(r, a, b);
    if (op == TD_T_ADD && td_v_is_list(a) && a.kind == b.kind) return add_lists(r, a, b);
    if (b.kind == TD_V_UNDEFINED) return td_tpl_raise_undefined(r, b);
    if (op == TD_T_MUL && repeatable(a) && td_v_is_int(b)) return repeat(r, a, b);
    if (op == TD_T_MUL && repeatable(b) && td_v_is_int(a)) return repeat(r, b, a);
    if (op == TD_T_ADD && repeatable(a)) {
        return td_tpl_raise(r, "TypeError", "can only concatenate %s (not \"%s\") to %s", td_v_type(a), td_v_type(b),
                            td_v_type(a));
    }
    if (op == TD_T_MUL && (repeatable(a) || repeatable(b))) {
        return td_tpl_raise(r, "TypeError", "can't multiply sequence by non-int of type '%s'",
                            td_v_type(repeatable(a) ? b : a));
    }
    return td_tpl_raise(r, "TypeError", "unsupported operand type(s) for %s: '%s' and '%s'",
                        op == TD_T_POW ? "** or pow()" : op_text(op), td_v_type(a), td_v_type(b));
}

static int compare(td_tpl *r, int op, td_val a, td_val b) {
    int order = 0, same;
    switch (op) {
    case TD_T_EQ: return td_v_equal(r, a, b);
    case TD_T_NE: same = td_v_equal(r, a, b); return same < 0 ? same : !same;
    case TD_T_IN: return td_v_contains(r, b, a);
    case TD_T_NOT_IN: same = td_v_contains(r, b, a); return same < 0 ? same : !same;
    default: break;
    }
    if (td_v_compare(r, a, b, op_text(op), &order) < 0) return -1;
    if (order == 2) return 0;
    return op == TD_T_LT ? order < 0 : op == TD_T_LE ? order <= 0 : op == TD_T_GT ? order > 0 : order >= 0;
}

static td_val eval_compare(td_tpl *r, td_frame *f, const td_node *n) {
    td_val left = td_tpl_eval(r, f, n->a);
    for (uint32_t i = 0; i < n->items.n; i++) {
        TD_V_CHECK(left);
        td_val right = td_tpl_eval(r, f, n->items.items[i]->a);
        TD_V_CHECK(right);
        int holds = compare(r, n->items.items[i]->op, left, right);
        if (holds < 0) return td_v_error();
        if (!holds) return td_v_bool(false);
        left = right;
    }
    return td_v_bool(true);
}

/* Constants are folded here rather than in the tree: a number's sign is the only case that matters. */
static td_val eval_sign(td_tpl *r, td_frame *f, const td_node *n) {
    td_val v = td_tpl_eval(r, f, n->a);
    TD_V_CHECK(v);
    if (v.kind == TD_V_UNDEFINED) return td_tpl_raise_undefined(r, v);
    if (!td_v_is_number(v)) {
        return td_tpl_raise(r, "TypeError", "bad operand type for unary %c: '%s'", n->kind == TD_N_NEGATE ? '-' : '+',
                            td_v_type(v));
    }
    if (n->kind == TD_N_NEGATE) return td_num_negate(r, v);
    return v.kind == TD_V_BOOL ? td_v_int(v.u.b) : v;
}

static td_val eval_concat(td_tpl *r, td_frame *f, const td_node *n) {
    td_val whole = td_v_text("");
    for (uint32_t i = 0; i < n->items.n; i++) {
        td_val v = td_tpl_eval(r, f, n->items.items[i]);
        TD_V_CHECK(v);
        v = td_v_to_str(r, v);
        TD_V_CHECK(v);
        whole = td_v_concat(r, whole, v);
        TD_V_CHECK(whole);
    }
    whole.flags &= (uint8_t)~TD_F_MARKUP;
    return whole;
}

/* --- literals --- */

static td_val eval_items(td_tpl *r, td_frame *f, const td_node *n) {
    td_tpl_list *l = td_list_new(r, n->items.n);
    for (uint32_t i = 0; l && i < n->items.n; i++) {
        if (!td_list_push(r, l, td_tpl_eval(r, f, n->items.items[i]))) return td_v_error();
    }
    return n->kind == TD_N_LIST ? td_v_list(l) : td_v_tuple(l);
}

static td_val eval_dict(td_tpl *r, td_frame *f, const td_node *n) {
    td_tpl_dict *d = td_dict_new(r, n->items.n);
    for (uint32_t i = 0; d && i < n->items.n; i++) {
        td_val key = td_tpl_eval(r, f, n->items.items[i]);
        TD_V_CHECK(key);
        td_val value = td_tpl_eval(r, f, n->more.items[i]);
        if (!td_dict_set(r, d, key, value)) return td_v_error();
    }
    return td_v_dict(d);
}

/* --- names, items, calls --- */

static td_val eval_name(td_tpl *r, td_frame *f, const td_node *n) {
    for (uint32_t up = n->up; up; up--) f = f->parent;
    td_val v = f->slots[n->slot];
    return td_v_given(v) ? v : td_v_undefined_name(r, n->name);
}

static td_val eval_optional(td_tpl *r, td_frame *f, const td_node *n) { return n ? td_tpl_eval(r, f, n) : td_v_none(); }

static td_val eval_item(td_tpl *r, td_frame *f, const td_node *n) {
    td_val owner = td_tpl_eval(r, f, n->a);
    TD_V_CHECK(owner);
    const td_node *key = n->b;
    if (key->kind != TD_N_SLICE) {
        td_val k = td_tpl_eval(r, f, key);
        TD_V_CHECK(k);
        return td_v_getitem(r, owner, k);
    }
    td_val start = eval_optional(r, f, key->a);
    TD_V_CHECK(start);
    td_val stop = eval_optional(r, f, key->b);
    TD_V_CHECK(stop);
    td_val step = eval_optional(r, f, key->c);
    TD_V_CHECK(step);
    return td_v_slice(r, owner, start, stop, step);
}

/* **mapping: its keys become names. */
static bool spread_keywords(td_tpl *r, td_val v, td_tpl_keyword *out, uint32_t *n) {
    for (uint32_t i = 0; i < v.u.dict->n; i++) {
        td_val key = v.u.dict->items[i].key;
        if (key.kind != TD_V_STRING) {
            td_tpl_raise(r, "TypeError", "keywords must be strings");
            return false;
        }
        for (uint32_t k = 0; k < *n; k++) {
            if (td_str_equal(out[k].name, td_v_str(key))) {
                td_tpl_raise(r, "TypeError", "got multiple values for keyword argument '%.*s'",
                             TD_STR_ARGS(td_v_str(key)));
                return false;
            }
        }
        if (!td_tpl_steps(r, 1 + *n / 8)) return false;
        out[(*n)++] = (td_tpl_keyword){td_v_str(key), v.u.dict->items[i].value};
    }
    return true;
}

/* Evaluates the arguments of a call; `spare` places for keywords stay free behind them. */
static bool eval_args(td_tpl *r, td_frame *f, const td_call *call, uint32_t spare, td_tpl_args *out) {
    *out = (td_tpl_args){0};
    if (!call) return true;
    td_tpl_list *items = td_list_new(r, call->args.n);
    for (uint32_t i = 0; items && i < call->args.n; i++) {
        if (!td_list_push(r, items, td_tpl_eval(r, f, call->args.items[i]))) return false;
    }
    if (!items) return false;
    if (call->star) {
        td_val star = td_tpl_eval(r, f, call->star);
        if (TD_V_FAILED(star)) return false;
        td_tpl_iter *it = td_iter_over(r, star);
        if (!it) return false;
        for (td_val v = td_iter_next(r, it); td_v_given(v); v = td_iter_next(r, it)) {
            if (!td_list_push(r, items, v)) return false;
        }
    }
    uint32_t n = call->keywords.n;
    td_tpl_keyword *keywords = n + spare ? td_tpl_alloc_array(r, (size_t)n + spare, sizeof *keywords) : NULL;
    if (n + spare && !keywords) return false;
    for (uint32_t i = 0; i < n; i++) {
        keywords[i] = (td_tpl_keyword){call->keywords.items[i]->name, td_tpl_eval(r, f, call->keywords.items[i]->a)};
        if (TD_V_FAILED(keywords[i].value)) return false;
    }
    if (call->star_star) {
        td_val mapping = td_tpl_eval(r, f, call->star_star);
        if (TD_V_FAILED(mapping)) return false;
        if (mapping.kind != TD_V_DICT) {
            td_tpl_raise(r, "TypeError", "argument after ** must be a mapping, not %s", td_v_type(mapping));
            return false;
        }
        td_tpl_keyword *more = td_tpl_alloc_array(r, (size_t)n + mapping.u.dict->n + spare, sizeof *more);
        if (!more) return false;
        if (n) memcpy(more, keywords, n * sizeof *more);
        keywords = more;
        if (!spread_keywords(r, mapping, keywords, &n)) return false;
    }
    *out = (td_tpl_args){items->items, keywords, items->n, n};
    return true;
}

static td_val eval_call(td_tpl *r, td_frame *f, const td_node *n, td_val caller) {
    td_val callee = td_tpl_eval(r, f, n->a);
    TD_V_CHECK(callee);
    td_tpl_args args;
    bool has_caller = td_v_given(caller);
    if (!eval_args(r, f, n->call, has_caller, &args)) return td_v_error();
    if (has_caller) { /* the place was kept free */
        ((td_tpl_keyword *)args.keywords)[args.n_keywords++] = (td_tpl_keyword){TD_STR("caller"), caller};
    }
    return td_tpl_call(r, callee, &args);
}

td_val td_tpl_eval_call(td_tpl *r, td_frame *f, const td_node *n, td_val caller) { return eval_call(r, f, n, caller); }

static td_val eval_filter(td_tpl *r, td_frame *f, const td_node *n) {
    bool filter = n->kind == TD_N_FILTER;
    /* Without an operand it is the filter of a block, and the block's text stands ready. */
    td_val v = n->a ? td_tpl_eval(r, f, n->a) : r->block_text;
    TD_V_CHECK(v);
    td_tpl_args args;
    if (!eval_args(r, f, n->call, 0, &args)) return td_v_error();
    if (!n->row) {
        return td_tpl_raise(r, "TemplateRuntimeError", "No %s named '%.*s' found.", filter ? "filter" : "test",
                            TD_STR_ARGS(n->name));
    }
    td_val out = td_tpl_call_builtin(r, n->row, v, &args);
    return out;
}

static td_val eval_logic(td_tpl *r, td_frame *f, const td_node *n) {
    td_val v = td_tpl_eval(r, f, n->a);
    TD_V_CHECK(v);
    int truth = td_v_truth(r, v);
    if (truth < 0) return td_v_error();
    return truth == (n->kind == TD_N_OR) ? v : td_tpl_eval(r, f, n->b);
}

static td_val eval_not(td_tpl *r, td_frame *f, const td_node *n) {
    td_val v = td_tpl_eval(r, f, n->a);
    TD_V_CHECK(v);
    int truth = td_v_truth(r, v);
    return truth < 0 ? td_v_error() : td_v_bool(!truth);
}

static td_val eval_condition(td_tpl *r, td_frame *f, const td_node *n) {
    td_val v = td_tpl_eval(r, f, n->b);
    TD_V_CHECK(v);
    int truth = td_v_truth(r, v);
    if (truth < 0) return td_v_error();
    if (truth) return td_tpl_eval(r, f, n->a);
    if (n->c) return td_tpl_eval(r, f, n->c);
    return td_v_undefined_hint(r,
                               TD_STR("the inline if-expression evaluated to false and no else section was defined."));
}

static td_val eval_binary(td_tpl *r, td_frame *f, const td_node *n) {
    td_val a = td_tpl_eval(r, f, n->a);
    TD_V_CHECK(a);
    td_val b = td_tpl_eval(r, f, n->b);
    TD_V_CHECK(b);
    return td_tpl_binary(r, n->op, a, b);
}

static td_val eval_attribute(td_tpl *r, td_frame *f, const td_node *n) {
    td_val owner = td_tpl_eval(r, f, n->a);
    TD_V_CHECK(owner);
    return td_v_getattr(r, owner, n->name);
}

static td_val eval_node(td_tpl *r, td_frame *f, const td_node *n) {
    switch ((td_node_kind)n->kind) {
    case TD_N_CONST: return n->value;
    case TD_N_NAME: return eval_name(r, f, n);
    case TD_N_TUPLE:
    case TD_N_LIST: return eval_items(r, f, n);
    case TD_N_DICT: return eval_dict(r, f, n);
    case TD_N_BINARY: return eval_binary(r, f, n);
    case TD_N_AND:
    case TD_N_OR: return eval_logic(r, f, n);
    case TD_N_NOT: return eval_not(r, f, n);
    case TD_N_NEGATE:
    case TD_N_PLUS: return eval_sign(r, f, n);
    case TD_N_CONCAT: return eval_concat(r, f, n);
    case TD_N_COMPARE: return eval_compare(r, f, n);
    case TD_N_CONDITION: return eval_condition(r, f, n);
    case TD_N_ATTRIBUTE: return eval_attribute(r, f, n);
    case TD_N_ITEM: return eval_item(r, f, n);
    case TD_N_SLICE: return td_tpl_raise(r, "TypeError", "a slice stands alone between brackets");
    case TD_N_CALL: return eval_call(r, f, n, td_v_missing());
    case TD_N_FILTER:
    case TD_N_TEST: return eval_filter(r, f, n);
    default: return td_tpl_raise(r, "TemplateRuntimeError", "not an expression");
    }
}

td_val td_tpl_eval(td_tpl *r, td_frame *f, const td_node *n) {
    if (n->kind == TD_N_CONST) return n->value;
    if (!td_tpl_steps(r, 1) || !td_tpl_enter(r)) {
        td_error_place(r->err, n->line, n->column);
        return td_v_error();
    }
    td_val v = eval_node(r, f, n);
    if (TD_V_FAILED(v)) td_error_place(r->err, n->line, n->column); /* the innermost node's place stays */
    td_tpl_leave(r);
    return v;
}
