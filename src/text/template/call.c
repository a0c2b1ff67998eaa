/* template/call.c - calling things: macros, functions and methods of the library, loops; and binding arguments. */
#include "text/template/ast.h"

/* --- the library's functions --- */

typedef struct param {
    td_str name;
    bool optional, positional_only;
} param;

/* Takes the next parameter off a row's list. */
static bool next_param(const char **list, param *out) {
    const char *p = *list;
    while (*p == ' ') p++;
    if (!*p) return false;
    *out = (param){0};
    for (; *p == '?' || *p == '-'; p++) {
        out->optional |= *p == '?';
        out->positional_only |= *p == '-';
    }
    out->name.p = p;
    while (*p && *p != ' ') p++;
    out->name.n = (size_t)(p - out->name.p);
    *list = p;
    return true;
}

static td_val call_bound(td_tpl *r, const td_tpl_builtin *row, td_val self, const td_tpl_args *args) {
    td_val bound[TD_TPL_MAX_PARAMS];
    uint32_t n = 0, used = 0;
    param p;
    for (const char *list = row->params; next_param(&list, &p) && n < TD_TPL_MAX_PARAMS; n++) {
        bound[n] = n < args->n ? args->items[n] : td_v_missing();
        for (uint32_t k = 0; k < args->n_keywords && !p.positional_only; k++) {
            if (!td_str_equal(args->keywords[k].name, p.name)) continue;
            if (td_v_given(bound[n])) {
                return td_tpl_raise(r, "TypeError", "%s() got multiple values for argument '%.*s'", row->name,
                                    TD_STR_ARGS(p.name));
            }
            bound[n] = args->keywords[k].value;
            used++;
        }
        if (!td_v_given(bound[n]) && !p.optional) {
            return td_tpl_raise(r, "TypeError", "%s() missing 1 required positional argument: '%.*s'", row->name,
                                TD_STR_ARGS(p.name));
        }
    }
    if (args->n > n) {
        return td_tpl_raise(r, "TypeError", "%s() takes at most %u arguments (%u given)", row->name, n, args->n);
    }
    if (used < args->n_keywords) {
        for (uint32_t k = 0; k < args->n_keywords; k++) {
            bool known = false;
            for (const char *list = row->params; next_param(&list, &p);) {
                known |= !p.positional_only && td_str_equal(args->keywords[k].name, p.name);
            }
            if (known) continue;
            return td_tpl_raise(r, "TypeError", "%s() got an unexpected keyword argument '%.*s'", row->name,
                                TD_STR_ARGS(args->keywords[k].name));
        }
    }
    for (; n < TD_TPL_MAX_PARAMS; n++) bound[n] = td_v_missing();
    return row->fn(r, self, bound, args);
}

td_val td_tpl_call_builtin(td_tpl *r, const td_tpl_builtin *row, td_val self, const td_tpl_args *args) {
    if (!td_tpl_enter(r)) return td_v_error();
    td_val v = row->variadic ? row->fn(r, self, NULL, args) : call_bound(r, row, self, args);
    td_tpl_leave(r);
    return v;
}

td_val td_tpl_call_filter(td_tpl *r, td_str name, td_val self, const td_tpl_args *args) {
    const td_tpl_builtin *row = td_tpl_find_filter(name);
    if (!row) return td_tpl_raise(r, "TemplateRuntimeError", "No filter named '%.*s'.", TD_STR_ARGS(name));
    return td_tpl_call_builtin(r, row, self, args);
}

td_val td_tpl_call_test(td_tpl *r, td_str name, td_val self, const td_tpl_args *args) {
    const td_tpl_builtin *row = td_tpl_find_test(name);
    if (!row) return td_tpl_raise(r, "TemplateRuntimeError", "No test named '%.*s'.", TD_STR_ARGS(name));
    return td_tpl_call_builtin(r, row, self, args);
}

const td_tpl_builtin *td_tpl_find_row(const td_tpl_builtin *rows, size_t n, td_str name) {
    for (size_t i = 0; i < n; i++) {
        if (rows[i].name[0] == (name.n ? name.p[0] : 0) && td_str_is(name, rows[i].name)) return &rows[i];
    }
    return NULL;
}

/* --- macros --- */

/* Keywords that parameters have not taken. */
typedef struct leftovers {
    const td_tpl_args *args;
    bool *taken;
} leftovers;

static td_val take_keyword(leftovers *l, td_str name) {
    for (uint32_t i = 0; i < l->args->n_keywords; i++) {
        if (l->taken[i] || !td_str_equal(l->args->keywords[i].name, name)) continue;
        l->taken[i] = true;
        return l->args->keywords[i].value;
    }
    return td_v_missing();
}

static bool finish_keywords(td_tpl *r, td_frame *f, const td_node *n, leftovers *l) {
    td_tpl_dict *d = n->uses_kwargs ? td_dict_new(r, 0) : NULL;
    if (n->uses_kwargs && !d) return false;
    for (uint32_t i = 0; i < l->args->n_keywords; i++) {
        if (l->taken[i]) continue;
        td_str name = l->args->keywords[i].name;
        if (d) {
            if (!td_dict_set(r, d, td_v_view(name), l->args->keywords[i].value)) return false;
        } else if (td_str_is(name, "caller")) {
            td_tpl_raise(r, "TypeError",
                         "macro '%.*s' was invoked with two values for the special caller argument. This is "
                         "most likely a bug.",
                         TD_STR_ARGS(n->name));
            return false;
        } else {
            td_tpl_raise(r, "TypeError", "macro '%.*s' takes no keyword argument '%.*s'", TD_STR_ARGS(n->name),
                         TD_STR_ARGS(name));
            return false;
        }
    }
    if (d) f->slots[n->kwargs_slot] = td_v_dict(d);
    return true;
}

static bool bind_macro_args(td_tpl *r, td_frame *f, const td_node *n, const td_tpl_args *args) {
    leftovers l = {args, NULL};
    if (args->n_keywords && !(l.taken = td_tpl_alloc_array(r, args->n_keywords, sizeof *l.taken))) return false;
    uint32_t n_params = n->items.n;
    bool found_caller = false;
    for (uint32_t i = 0; i < n_params; i++) {
        const td_node *p = n->items.items[i];
        found_caller |= td_str_is(p->name, "caller");
        f->slots[p->slot] = i < args->n ? args->items[i] : take_keyword(&l, p->name);
    }
    if (n->uses_caller && !found_caller) {
        td_val caller = take_keyword(&l, TD_STR("caller"));
        if (!td_v_given(caller) || caller.kind == TD_V_NONE)
            caller = td_v_undefined_hint(r, TD_STR("No caller defined"));
        if (TD_V_FAILED(caller)) return false;
        f->slots[n->caller_slot] = caller;
    }
    if (!finish_keywords(r, f, n, &l)) return false;
    if (n->uses_varargs) {
        td_tpl_list *rest = td_list_new(r, args->n > n_params ? args->n - n_params : 0);
        if (!rest) return false;
        for (uint32_t i = n_params; i < args->n; i++) rest->items[rest->n++] = args->items[i];
        f->slots[n->varargs_slot] = td_v_tuple(rest);
    } else if (args->n > n_params) {
        td_tpl_raise(r, "TypeError", "macro '%.*s' takes not more than %u argument(s)", TD_STR_ARGS(n->name), n_params);
        return false;
    }
    return true;
}

static bool set_defaults(td_tpl *r, td_frame *f, const td_node *n) {
    uint32_t first = n->items.n - n->more.n;
    for (uint32_t i = 0; i < n->items.n; i++) {
        const td_node *p = n->items.items[i];
        if (td_v_given(f->slots[p->slot])) continue;
        td_val v;
        if (i >= first) {
            v = td_tpl_eval(r, f, n->more.items[i - first]);
        } else {
            char *hint = td_tpl_alloc(r, p->name.n + 40);
            if (!hint) return false;
            size_t at = 0;
            for (const char *c = "parameter '"; *c; c++) hint[at++] = *c;
            memcpy(hint + at, p->name.p, p->name.n);
            strcpy(hint + at + p->name.n, "' was not provided");
            v = td_v_undefined_hint(r, td_str_from(hint));
        }
        if (TD_V_FAILED(v)) return false;
        f->slots[p->slot] = v;
    }
    return true;
}

static td_val call_macro(td_tpl *r, const td_tpl_macro *macro, const td_tpl_args *args) {
    const td_node *n = macro->node;
    if (!td_tpl_steps(r, 1) || !td_tpl_enter(r)) return td_v_error();
    td_val text = td_v_error();
    td_frame *f = td_frame_enter(r, macro->frame, n->scope);
    if (f && bind_macro_args(r, f, n, args) && set_defaults(r, f, n)) {
        size_t mark = td_tpl_capture_begin(r);
        bool ok = true;
        for (uint32_t i = 0; ok && i < n->body.n; i++) ok = td_tpl_exec(r, f, n->body.items[i]);
        text = td_tpl_capture_end(r, mark);
        if (!ok) text = td_v_error();
    }
    td_tpl_leave(r);
    return text;
}

static td_val call_loop(td_tpl *r, const td_tpl_loop *loop, const td_tpl_args *args) {
    if (args->n != 1 || args->n_keywords) return td_tpl_raise(r, "TypeError", "loop() takes exactly one argument");
    if (!loop->node->flag) {
        return td_tpl_raise(r, "TypeError", "The loop must have the 'recursive' marker to be called recursively.");
    }
    return td_tpl_run_loop(r, loop->frame, loop->node, args->items[0], loop->depth0 + 1);
}

td_val td_tpl_call(td_tpl *r, td_val callee, const td_tpl_args *args) {
    switch (callee.kind) {
    case TD_V_UNDEFINED: return td_tpl_raise_undefined(r, callee);
    case TD_V_MACRO: return call_macro(r, callee.u.macro, args);
    case TD_V_FUNCTION: return td_tpl_call_builtin(r, callee.u.function, td_v_none(), args);
    case TD_V_METHOD: return td_tpl_call_builtin(r, callee.u.method->row, callee.u.method->self, args);
    case TD_V_LOOP: return call_loop(r, callee.u.loop, args);
    case TD_V_JOINER: {
        td_tpl_joiner *j = callee.u.joiner;
        if (args->n || args->n_keywords) return td_tpl_raise(r, "TypeError", "a joiner takes no arguments");
        bool first = !j->used;
        j->used = true;
        return first ? td_v_text("") : j->separator;
    }
    default: return td_tpl_raise(r, "TypeError", "'%s' object is not callable", td_v_type(callee));
    }
}
