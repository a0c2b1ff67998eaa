/* template/exec.c - statements, frames, output. */
#include "text/template/ast.h"

/* --- frames --- */

static td_val resolve(td_tpl *r, td_frame *f, td_str name) {
    if (f->scope->is_block && r->root) { /* a block sees what the template's top level has set so far */
        const td_scope *root = r->root->scope;
        for (uint32_t i = 0; i < root->n; i++) {
            if (root->symbols[i].stored && td_str_equal(root->symbols[i].name, name)) {
                if (td_v_given(r->root->slots[i])) return r->root->slots[i];
                break;
            }
        }
    }
    td_val v = td_dict_get_str(r->context, name);
    if (td_v_given(v)) return v;
    const td_tpl_builtin *global = td_tpl_find_global(name);
    return global ? (td_val){.kind = TD_V_FUNCTION, .u.function = global} : td_v_missing();
}

/* runs the scope's load instructions again */
static bool load_scope(td_tpl *r, td_frame *f) {
    const td_scope *s = f->scope;
    if (!td_tpl_steps(r, s->n)) return false;
    for (uint32_t i = 0; i < s->n; i++) {
        const td_symbol *symbol = &s->symbols[i];
        switch (symbol->load) {
        case TD_LOAD_PARAM: break;
        case TD_LOAD_RESOLVE: f->slots[i] = resolve(r, f, symbol->name); break;
        case TD_LOAD_ALIAS: {
            const td_frame *outer = f->parent;
            for (uint32_t up = symbol->up; up; up--) outer = outer->parent;
            f->slots[i] = outer->slots[symbol->slot];
            break;
        }
        case TD_LOAD_UNDEFINED: f->slots[i] = td_v_missing(); break;
        }
    }
    return true;
}

static void clear(td_frame *f) {
    for (uint32_t i = 0; i < f->scope->n; i++) f->slots[i] = td_v_missing();
}

td_frame *td_frame_enter(td_tpl *r, td_frame *parent, const td_scope *scope) {
    td_frame *f = td_tpl_alloc(r, sizeof *f + scope->n * sizeof f->slots[0]);
    if (!f) return NULL;
    f->parent = parent;
    f->scope = scope;
    clear(f);
    return load_scope(r, f) ? f : NULL;
}

/* --- output --- */

static bool emit(td_tpl *r, const char *p, size_t n) {
    if (!td_tpl_steps(r, n / 64)) return false;
    td_buf *to = r->n_captures ? &r->capture : r->out;
    if (!r->n_captures && n > r->max_output - (r->out->n - r->out_start)) {
        td_tpl_raise(r, "LimitError", "the template writes more than %zu bytes", r->max_output);
        return false;
    }
    td_buf_append(to, p, n);
    return td_tpl_buf_ok(r, to);
}

size_t td_tpl_capture_begin(td_tpl *r) {
    r->n_captures++;
    return r->capture.n;
}

td_val td_tpl_capture_end(td_tpl *r, size_t mark) {
    r->n_captures--;
    td_str written = {r->capture.n > mark ? r->capture.p + mark : "", r->capture.n - mark};
    td_val text = r->status == TREADLE_OK ? td_v_copy(r, written) : td_v_error();
    r->capture.n = mark;
    return text;
}

static bool emit_value(td_tpl *r, td_val v) {
    if (v.kind == TD_V_STRING) return emit(r, v.u.p, v.n);
    if (v.kind == TD_V_UNDEFINED) return true;
    td_buf text = {0};
    bool ok = td_v_repr_to(r, v, &text) && emit(r, text.p, text.n);
    td_buf_free(&text);
    return ok;
}

static bool exec_output(td_tpl *r, td_frame *f, const td_node *n) {
    for (uint32_t i = 0; i < n->items.n; i++) {
        const td_node *item = n->items.items[i];
        if (item->kind == TD_N_DATA) {
            if (!emit(r, item->name.p, item->name.n)) return false;
            continue;
        }
        td_val v = td_tpl_eval(r, f, item);
        if (TD_V_FAILED(v)) return false;
        if (!emit_value(r, v)) {
            td_error_place(r->err, item->line, item->column);
            return false;
        }
    }
    return true;
}

/* --- assignment --- */

static td_frame *frame_of(td_frame *f, const td_node *n) {
    for (uint32_t up = n->up; up; up--) f = f->parent;
    return f;
}

static bool assign_to(td_tpl *r, td_frame *f, const td_node *target, td_val v);

static bool unpack(td_tpl *r, td_frame *f, const td_node *target, td_val v) {
    if (!td_v_iterable(v)) {
        td_tpl_raise(r, "TypeError", "cannot unpack non-iterable %s object", td_v_type(v));
        return false;
    }
    td_tpl_iter *it = td_iter_over(r, v);
    td_tpl_list *items = it ? td_list_new(r, target->items.n) : NULL;
    if (!items) return false;
    for (;;) {
        td_val item = td_iter_next(r, it);
        if (TD_V_FAILED(item)) return false;
        if (!td_v_given(item)) break;
        if (items->n == target->items.n) {
            td_tpl_raise(r, "ValueError", "too many values to unpack (expected %u)", target->items.n);
            return false;
        }
        if (!td_list_push(r, items, item)) return false;
    }
    if (items->n < target->items.n) {
        td_tpl_raise(r, "ValueError", "not enough values to unpack (expected %u, got %u)", target->items.n, items->n);
        return false;
    }
    for (uint32_t i = 0; i < items->n; i++) {
        if (!assign_to(r, f, target->items.items[i], items->items[i])) return false;
    }
    return true;
}

static bool check_namespaces(td_tpl *r, td_frame *f, const td_node *target) {
    if (target->kind == TD_N_NSREF && frame_of(f, target)->slots[target->slot].kind != TD_V_NAMESPACE) {
        td_tpl_raise(r, "TemplateRuntimeError", "cannot assign attribute on non-namespace object");
        return false;
    }
    for (uint32_t i = 0; target->kind == TD_N_TUPLE && i < target->items.n; i++) {
        if (!check_namespaces(r, f, target->items.items[i])) return false;
    }
    return true;
}

static bool assign_to(td_tpl *r, td_frame *f, const td_node *target, td_val v) {
    switch (target->kind) {
    case TD_N_TUPLE: return unpack(r, f, target, v);
    case TD_N_NSREF: {
        if (!check_namespaces(r, f, target)) return false;
        if (target->attr.p[0] == '_') {
            td_tpl_raise(r, "SecurityError",
                         "Chat templates cannot store underscore-prefixed attributes on a namespace, but got "
                         "'%.*s'. Please rename the attribute.",
                         TD_STR_ARGS(target->attr));
            return false;
        }
        return td_dict_set(r, frame_of(f, target)->slots[target->slot].u.dict, td_v_view(target->attr), v);
    }
    default: frame_of(f, target)->slots[target->slot] = v; return true;
    }
}

/* --- bodies --- */

static bool stopping(const td_tpl *r) { return r->flow_break || r->flow_continue; }

static bool exec_body(td_tpl *r, td_frame *f, const td_nodes *body) {
    for (uint32_t i = 0; i < body->n && !stopping(r); i++) {
        if (!td_tpl_exec(r, f, body->items[i])) return false;
    }
    return true;
}

static bool exec_if(td_tpl *r, td_frame *f, const td_node *n) {
    const td_node *part = n;
    for (uint32_t i = 0;; i++) {
        td_val v = td_tpl_eval(r, f, part->a);
        int truth = TD_V_FAILED(v) ? -1 : td_v_truth(r, v);
        if (truth < 0) return false;
        if (truth) return exec_body(r, f, &part->body);
        if (i == n->more.n) return exec_body(r, f, &n->orelse);
        part = n->more.items[i];
    }
}

/* --- loops --- */

static uint32_t slot_named(const td_scope *s, td_str name) {
    for (uint32_t i = 0; i < s->n; i++) {
        if (td_str_equal(s->symbols[i].name, name)) return i;
    }
    return 0;
}

/* The loop's target in the scope of its filter, where the same names have other slots. */
static bool assign_for_test(td_tpl *r, td_frame *f, const td_node *target, td_val v) {
    if (target->kind != TD_N_TUPLE) {
        f->slots[slot_named(f->scope, target->name)] = v;
        return true;
    }
    td_node copy = *target; /* unpack checks the count; the parts are assigned by name */
    td_tpl_list *items = td_v_iterable(v) ? td_v_to_list(r, v).u.list : NULL;
    if (!items || r->status != TREADLE_OK || items->n != target->items.n)
        return r->status == TREADLE_OK && unpack(r, f, &copy, v);
    for (uint32_t i = 0; i < items->n; i++) {
        if (!assign_for_test(r, f, target->items.items[i], items->items[i])) return false;
    }
    return true;
}

static td_val target_value(td_tpl *r, td_frame *f, const td_node *target) {
    if (target->kind != TD_N_TUPLE) return f->slots[slot_named(f->scope, target->name)];
    td_tpl_list *l = td_list_new(r, target->items.n);
    for (uint32_t i = 0; l && i < target->items.n; i++) {
        if (!td_list_push(r, l, target_value(r, f, target->items.items[i]))) return td_v_error();
    }
    return td_v_tuple(l);
}

static td_val next_filtered(td_tpl *r, td_tpl_iter *it) {
    for (;;) {
        td_val item = td_iter_next(r, it->source.u.iter);
        if (TD_V_FAILED(item) || !td_v_given(item)) return item;
        if (!assign_for_test(r, it->frame, it->node->b, item)) return td_v_error();
        td_val v = td_tpl_eval(r, it->frame, it->node->c);
        int truth = TD_V_FAILED(v) ? -1 : td_v_truth(r, v);
        if (truth < 0) return td_v_error();
        if (truth) return target_value(r, it->frame, it->node->b);
    }
}

static td_tpl_iter *loop_iterator(td_tpl *r, td_frame *f, const td_node *n, td_val iterable) {
    td_tpl_iter *it = td_iter_over(r, iterable);
    if (!it || !n->c) return it;
    td_tpl_iter *filtered = td_iter_new(r, next_filtered, "loop filter");
    if (!filtered) return NULL;
    filtered->source = td_v_iter(it);
    filtered->node = n;
    filtered->frame = td_frame_enter(r, f, n->test_scope);
    return filtered->frame ? filtered : NULL;
}

/* Runs the body for each item. *ran: the body was finished at least once, which is what `else` asks. */
static bool iterate(td_tpl *r, td_frame *f, const td_node *n, td_tpl_loop *loop, bool *ran) {
    td_frame *inner = td_frame_enter(r, f, n->scope);
    if (!inner) return false;
    for (;;) {
        td_val item = n->uses_loop ? td_loop_next(r, loop) : td_iter_next(r, loop->iter);
        if (TD_V_FAILED(item)) return false;
        if (!td_v_given(item)) break;
        if (!assign_to(r, inner, n->b, item)) return false;
        if (n->uses_loop) inner->slots[n->loop_slot] = (td_val){.kind = TD_V_LOOP, .u.loop = loop};
        if (!load_scope(r, inner) || !exec_body(r, inner, &n->body)) return false;
        bool stop = r->flow_break;
        if (!stopping(r)) *ran = true;
        r->flow_break = r->flow_continue = false;
        if (stop) break;
    }
    if (!n->flag) clear(inner);
    return true;
}

static bool run_loop(td_tpl *r, td_frame *f, const td_node *n, td_val iterable, uint32_t depth0) {
    td_tpl_loop *loop = td_tpl_alloc(r, sizeof *loop);
    if (!loop) return false;
    loop->iter = loop_iterator(r, f, n, iterable);
    if (!loop->iter) return false;
    loop->iterable = n->c ? td_v_iter(loop->iter) : iterable;
    loop->index0 = loop->length = -1;
    loop->before = loop->current = loop->after = loop->changed = td_v_missing();
    loop->depth0 = depth0;
    loop->node = n;
    loop->frame = f;
    bool ran = false;
    if (!iterate(r, f, n, loop, &ran)) return false;
    if (ran || !n->orelse.n) return true;
    td_frame *inner = td_frame_enter(r, f, n->else_scope);
    return inner && exec_body(r, inner, &n->orelse);
}

td_val td_tpl_run_loop(td_tpl *r, td_frame *f, const td_node *n, td_val iterable, uint32_t depth0) {
    if (!td_tpl_enter(r)) return td_v_error();
    size_t mark = td_tpl_capture_begin(r);
    bool ok = run_loop(r, f, n, iterable, depth0);
    td_val text = td_tpl_capture_end(r, mark);
    td_tpl_leave(r);
    return ok ? text : td_v_error();
}

static bool exec_for(td_tpl *r, td_frame *f, const td_node *n) {
    td_val iterable = td_tpl_eval(r, f, n->a);
    if (TD_V_FAILED(iterable)) return false;
    if (!n->flag) return run_loop(r, f, n, iterable, 0);
    td_val text = td_tpl_run_loop(r, f, n, iterable, 0);
    return !TD_V_FAILED(text) && emit(r, text.u.p, text.n);
}

/* --- statements that make a scope --- */

/* The text of a body run in a scope of its own, through the filters of n->a if it has some. TD_V_MISSING: a loop
 * control left the body, and the text with it. */
static td_val captured_scope(td_tpl *r, td_frame *f, const td_node *n) {
    td_frame *inner = td_frame_enter(r, f, n->scope);
    if (!inner) return td_v_error();
    size_t mark = td_tpl_capture_begin(r);
    bool ok = exec_body(r, inner, &n->body);
    td_val text = td_tpl_capture_end(r, mark);
    if (!ok || TD_V_FAILED(text)) return td_v_error();
    if (stopping(r)) return td_v_missing();
    if (n->a) {
        r->block_text = text;
        text = td_tpl_eval(r, inner, n->a);
    }
    clear(inner);
    return text;
}

static bool exec_with(td_tpl *r, td_frame *f, const td_node *n) {
    td_frame *inner = td_frame_enter(r, f, n->scope);
    if (!inner) return false;
    for (uint32_t i = 0; i < n->items.n; i++) {
        td_val v = td_tpl_eval(r, f, n->more.items[i]);
        if (TD_V_FAILED(v) || !assign_to(r, inner, n->items.items[i], v)) return false;
    }
    bool ok = exec_body(r, inner, &n->body);
    clear(inner);
    return ok;
}

static bool exec_scope(td_tpl *r, td_frame *f, const td_node *n) {
    if (n->kind == TD_N_SCOPE) {
        td_val escape = td_tpl_eval(r, f, n->a);
        int truth = TD_V_FAILED(escape) ? -1 : td_v_truth(r, escape);
        if (truth > 0) {
            td_tpl_raise_status(r, TREADLE_UNSUPPORTED, "TemplateRuntimeError",
                                TD_STR("autoescape cannot be switched on"));
        }
        if (truth != 0) return false;
    }
    size_t begin = r->out->n;
    td_frame *inner = td_frame_enter(r, n->kind == TD_N_BLOCK ? NULL : f, n->scope);
    if (!inner || !exec_body(r, inner, &n->body)) return false;
    if (n->kind != TD_N_GENERATION || !r->spans || r->n_captures) return true;
    if (td_vec_push(r->spans, (td_template_span){begin - r->out_start, r->out->n - r->out_start})) return true;
    r->status = td_fail_memory(r->err, "a template's generation spans", sizeof(td_template_span));
    return false;
}

static bool exec_call_block(td_tpl *r, td_frame *f, const td_node *n) {
    td_tpl_macro *macro = td_tpl_alloc(r, sizeof *macro);
    if (!macro) return false;
    *macro = (td_tpl_macro){n, f};
    td_val v = td_tpl_eval_call(r, f, n->a, (td_val){.kind = TD_V_MACRO, .u.macro = macro});
    return !TD_V_FAILED(v) && emit_value(r, v);
}

static bool exec_macro(td_tpl *r, td_frame *f, const td_node *n) {
    td_tpl_macro *macro = td_tpl_alloc(r, sizeof *macro);
    if (!macro) return false;
    *macro = (td_tpl_macro){n, f};
    frame_of(f, n)->slots[n->slot] = (td_val){.kind = TD_V_MACRO, .u.macro = macro};
    return true;
}

static bool exec_set(td_tpl *r, td_frame *f, const td_node *n) {
    if (!check_namespaces(r, f, n->b)) return false;
    td_val v = td_tpl_eval(r, f, n->a);
    return !TD_V_FAILED(v) && assign_to(r, f, n->b, v);
}

static bool exec_set_block(td_tpl *r, td_frame *f, const td_node *n) {
    td_val v = captured_scope(r, f, n);
    if (TD_V_FAILED(v)) return false;
    return !td_v_given(v) || assign_to(r, f, n->b, v);
}

static bool exec_filter_block(td_tpl *r, td_frame *f, const td_node *n) {
    td_val v = captured_scope(r, f, n);
    if (TD_V_FAILED(v)) return false;
    return !td_v_given(v) || emit_value(r, v);
}

static bool exec_import(td_tpl *r, td_frame *f, const td_node *n) {
    if (TD_V_FAILED(td_tpl_eval(r, f, n->a))) return false;
    td_tpl_raise_status(r, TREADLE_UNSUPPORTED, "TypeError", TD_STR("no loader for this environment specified"));
    td_error_hint(r->err, "a chat template is one file: %.*s cannot be used", TD_STR_ARGS(n->name));
    return false;
}

static bool exec_node(td_tpl *r, td_frame *f, const td_node *n) {
    switch ((td_node_kind)n->kind) {
    case TD_N_OUTPUT: return exec_output(r, f, n);
    case TD_N_IF: return exec_if(r, f, n);
    case TD_N_FOR: return exec_for(r, f, n);
    case TD_N_SET: return exec_set(r, f, n);
    case TD_N_SET_BLOCK: return exec_set_block(r, f, n);
    case TD_N_MACRO: return exec_macro(r, f, n);
    case TD_N_CALL_BLOCK: return exec_call_block(r, f, n);
    case TD_N_FILTER_BLOCK: return exec_filter_block(r, f, n);
    case TD_N_WITH: return exec_with(r, f, n);
    case TD_N_BLOCK:
    case TD_N_SCOPE:
    case TD_N_GENERATION: return exec_scope(r, f, n);
    case TD_N_BREAK: return r->flow_break = true;
    case TD_N_CONTINUE: return r->flow_continue = true;
    case TD_N_IMPORT: return exec_import(r, f, n);
    default: return exec_body(r, f, &n->body); /* the root */
    }
}

bool td_tpl_exec(td_tpl *r, td_frame *f, const td_node *n) {
    bool ok = td_tpl_steps(r, 1) && td_tpl_enter(r);
    if (ok) {
        ok = exec_node(r, f, n);
        td_tpl_leave(r);
    }
    if (!ok) td_error_place(r->err, n->line, n->column);
    return ok;
}
