/* template/resolve.c - binds every name of a template to a slot of a scope.
 *
 * Jinja2 decides at compile time where a name lives, and that shows: a name that a scope assigns anywhere is that
 * scope's own, starting as the outer scope's value if an outer scope knows the name, as the context's if it is read or
 * assigned under a condition first, else as nothing. So each scope is declared as a whole (declare_*, which stops at
 * inner scopes), then its statements are bound, inner scopes recursively (bind_*). Loops, macros, with, block sets,
 * filter and call blocks make scopes; `if` does not.
 *
 * On the way unknown filters and tests are refused, except directly under an `if`, where Jinja2 waits until they are
 * reached, and loop controls outside loops. */
#include "text/template/ast.h"

#include <stdio.h>

typedef struct binder {
    td_arena *arena;
    treadle_error *err;
    treadle_status status;
    td_scope *scope;
    TD_VEC(td_scope *) scopes; /* all of them, for their maps */
    td_map blocks;
    bool soft; /* directly under an `if` */
    bool in_block;
    uint32_t loops; /* around, up to the next function boundary */
} binder;

/* --- walking --- */

static bool visit(td_node *n, td_node_visit_fn *fn, void *ctx) { return !n || fn(ctx, n); }

static bool visit_all(const td_nodes *nodes, td_node_visit_fn *fn, void *ctx) {
    for (uint32_t i = 0; i < nodes->n; i++) {
        if (!visit(nodes->items[i], fn, ctx)) return false;
    }
    return true;
}

static bool visit_call(const td_call *call, td_node_visit_fn *fn, void *ctx) {
    return !call || (visit_all(&call->args, fn, ctx) && visit_all(&call->keywords, fn, ctx) &&
                     visit(call->star, fn, ctx) && visit(call->star_star, fn, ctx));
}

static bool each_child(td_node *n, td_node_visit_fn *fn, void *ctx) {
    switch ((td_node_kind)n->kind) {
    case TD_N_DICT:
        for (uint32_t i = 0; i < n->items.n; i++) {
            if (!visit(n->items.items[i], fn, ctx) || !visit(n->more.items[i], fn, ctx)) return false;
        }
        return true;
    case TD_N_CONDITION: return visit(n->b, fn, ctx) && visit(n->a, fn, ctx) && visit(n->c, fn, ctx);
    case TD_N_FOR:
        return visit(n->b, fn, ctx) && visit(n->a, fn, ctx) && visit_all(&n->body, fn, ctx) &&
               visit_all(&n->orelse, fn, ctx) && visit(n->c, fn, ctx);
    case TD_N_IF:
        return visit(n->a, fn, ctx) && visit_all(&n->body, fn, ctx) && visit_all(&n->more, fn, ctx) &&
               visit_all(&n->orelse, fn, ctx);
    case TD_N_SET:
    case TD_N_SET_BLOCK: return visit(n->b, fn, ctx) && visit(n->a, fn, ctx) && visit_all(&n->body, fn, ctx);
    case TD_N_FILTER_BLOCK: return visit_all(&n->body, fn, ctx) && visit(n->a, fn, ctx);
    default:
        return visit(n->a, fn, ctx) && visit(n->b, fn, ctx) && visit(n->c, fn, ctx) && visit_all(&n->items, fn, ctx) &&
               visit_all(&n->more, fn, ctx) && visit_call(n->call, fn, ctx) && visit_all(&n->body, fn, ctx) &&
               visit_all(&n->orelse, fn, ctx);
    }
}

/* --- how deep the tree is: everything after this may recurse --- */

typedef struct depth_item {
    td_node *node;
    uint32_t depth;
} depth_item;

typedef struct depth_walk {
    TD_VEC(depth_item) stack;
    uint32_t depth;
} depth_walk;

static bool push_child(void *ctx, td_node *child) {
    depth_walk *w = ctx;
    return td_vec_push(&w->stack, (depth_item){child, w->depth});
}

enum { MAX_TREE_DEPTH = 800 };

static void check_depth(binder *b, td_node *root) {
    depth_walk w = {.depth = 1};
    if (!push_child(&w, root)) b->status = td_fail_memory(b->err, "a template's tree", sizeof(depth_item));
    while (b->status == TREADLE_OK && w.stack.n) {
        depth_item item = w.stack.items[--w.stack.n];
        w.depth = item.depth + 1;
        if (item.depth > MAX_TREE_DEPTH) {
            b->status = td_fail(b->err, TREADLE_FORMAT, "TemplateSyntaxError: an expression of more than %d levels",
                                MAX_TREE_DEPTH);
            td_error_place(b->err, item.node->line, item.node->column);
        } else if (!each_child(item.node, push_child, &w)) {
            b->status = td_fail_memory(b->err, "a template's tree", w.stack.n * sizeof(depth_item));
        }
    }
    td_vec_free(&w.stack);
}

/* --- symbols --- */

static bool fail(binder *b, const td_node *where, const char *format, td_str name) {
    if (b->status != TREADLE_OK) return false;
    char text[512];
    name.n = TD_MIN(name.n, 200);
    snprintf(text, sizeof text, format, TD_STR_ARGS(name));
    b->status = td_fail(b->err, TREADLE_FORMAT, "%s", text);
    td_error_place(b->err, where->line, where->column);
    return false;
}

static bool no_memory(binder *b) {
    if (b->status == TREADLE_OK) b->status = td_fail_memory(b->err, "a template's names", sizeof(td_symbol));
    return false;
}

static bool find(td_scope *scope, td_str name, uint32_t *up, uint32_t *slot) {
    uint64_t at;
    for (*up = 0; scope; scope = scope->parent, ++*up) {
        if (!td_map_get(&scope->index, name, &at)) continue;
        *slot = (uint32_t)at;
        return true;
    }
    return false;
}

static td_symbol *find_own(td_scope *scope, td_str name) {
    uint64_t at;
    return td_map_get(&scope->index, name, &at) ? &scope->symbols[at] : NULL;
}

static td_symbol *define(binder *b, td_str name, td_load_kind load) {
    td_scope *s = b->scope;
    if (s->n == s->capacity) {
        uint32_t capacity = s->capacity ? s->capacity * 2 : 8;
        td_symbol *grown = TD_ARENA_ARRAY(b->arena, td_symbol, capacity);
        if (!grown) {
            no_memory(b);
            return NULL;
        }
        if (s->n) memcpy(grown, s->symbols, s->n * sizeof *grown);
        s->symbols = grown;
        s->capacity = capacity;
    }
    if (!td_map_set(&s->index, name, s->n)) {
        no_memory(b);
        return NULL;
    }
    s->symbols[s->n] = (td_symbol){.name = name, .load = load};
    return &s->symbols[s->n++];
}

static td_symbol *declare_param(binder *b, td_str name) {
    td_symbol *s = find_own(b->scope, name);
    if (!s) s = define(b, name, TD_LOAD_PARAM);
    if (s) {
        s->load = TD_LOAD_PARAM;
        s->stored = true;
    }
    return s;
}

static void set_alias_or(binder *b, td_symbol *s, td_load_kind otherwise) {
    uint32_t up, slot;
    s->load = otherwise;
    if (b->scope->parent && find(b->scope->parent, s->name, &up, &slot)) {
        s->load = TD_LOAD_ALIAS;
        s->up = up;
        s->slot = slot;
    }
}

static bool declare_store(binder *b, td_str name, bool conditional) {
    td_symbol *s = find_own(b->scope, name);
    bool before = s && s->stored;
    if (!s) {
        s = define(b, name, TD_LOAD_UNDEFINED);
        if (!s) return false;
        set_alias_or(b, s, TD_LOAD_UNDEFINED);
    }
    s->stored = true;
    /* Stored in a branch only: the value may be the one from before. */
    if (!before && conditional) set_alias_or(b, s, TD_LOAD_RESOLVE);
    return true;
}

static bool declare_load(binder *b, td_str name) {
    uint32_t up, slot;
    return find(b->scope, name, &up, &slot) || define(b, name, TD_LOAD_RESOLVE) != NULL;
}

/* --- declaring what a scope's own statements read and store --- */

typedef struct declare_ctx {
    binder *b;
    bool as_param;    /* targets become parameters */
    bool conditional; /* under an `if` of this scope */
} declare_ctx;

static bool declare(void *ctx, td_node *n) {
    declare_ctx *d = ctx;
    switch ((td_node_kind)n->kind) {
    case TD_N_NAME:
        if (d->as_param || n->ctx == TD_CTX_PARAM) return declare_param(d->b, n->name) != NULL;
        return n->ctx == TD_CTX_STORE ? declare_store(d->b, n->name, d->conditional) : declare_load(d->b, n->name);
    case TD_N_NSREF: return declare_load(d->b, n->name);
    case TD_N_IF: {
        declare_ctx inner = {d->b, false, true};
        return declare(d, n->a) && visit_all(&n->body, declare, &inner) && visit_all(&n->more, declare, &inner) &&
               visit_all(&n->orelse, declare, &inner);
    }
    case TD_N_SET: return declare(d, n->a) && declare(d, n->b);
    case TD_N_SET_BLOCK: return declare(d, n->b);
    case TD_N_MACRO: return declare_store(d->b, n->name, d->conditional);
    case TD_N_FOR:
    case TD_N_CALL_BLOCK:
    case TD_N_FILTER_BLOCK: return declare(d, n->a);
    case TD_N_WITH: return visit_all(&n->more, declare, d);
    case TD_N_BLOCK:
    case TD_N_SCOPE:
    case TD_N_GENERATION: return true;
    case TD_N_IMPORT:
        if (!declare(d, n->a)) return false;
        for (uint32_t i = 0; i < n->items.n; i++) {
            if (!declare_store(d->b, n->items.items[i]->name, d->conditional)) return false;
        }
        return true;
    default: return each_child(n, declare, d);
    }
}

static bool declare_list(binder *b, const td_nodes *nodes, bool as_param) {
    declare_ctx d = {b, as_param, false};
    return visit_all(nodes, declare, &d);
}

static bool declare_one(binder *b, td_node *n, bool as_param) {
    declare_ctx d = {b, as_param, false};
    return !n || declare(&d, n);
}

/* --- is a special name read in a body without being assigned there before? --- */

typedef struct special {
    td_str name;
    bool found, closed; /* closed: an assignment came first */
} special;

static bool look_for(void *ctx, td_node *n) {
    special *s = ctx;
    if (s->found || s->closed || n->kind == TD_N_BLOCK) return !s->found && !s->closed;
    if (n->kind == TD_N_NAME && td_str_equal(n->name, s->name)) {
        if (n->ctx == TD_CTX_LOAD) s->found = true;
        else s->closed = true;
        return false;
    }
    return each_child(n, look_for, s);
}

static bool reads(const td_nodes *body, const char *name) {
    special s = {.name = td_str_from(name)};
    visit_all(body, look_for, &s);
    return s.found;
}

static bool stores_loop(void *ctx, td_node *n) {
    if (n->kind == TD_N_NAME && n->ctx == TD_CTX_STORE && td_str_is(n->name, "loop")) {
        *(td_node **)ctx = n;
        return false;
    }
    return each_child(n, stores_loop, ctx);
}

/* --- binding --- */

static bool bind(void *ctx, td_node *n);
static bool bind_list(binder *b, const td_nodes *nodes) { return visit_all(nodes, bind, b); }

static td_scope *push_scope(binder *b) {
    td_scope *s = TD_ARENA_NEW(b->arena, td_scope);
    if (!s || !td_vec_push(&b->scopes, s)) {
        no_memory(b);
        return NULL;
    }
    s->parent = b->scope;
    s->is_block = b->in_block;
    b->scope = s;
    b->soft = false;
    return s;
}

static uint32_t slot_of(td_scope *s, const char *name) {
    td_symbol *symbol = find_own(s, td_str_from(name));
    return symbol ? (uint32_t)(symbol - s->symbols) : 0;
}

static bool bind_for(binder *b, td_node *n) {
    td_scope *outer = b->scope;
    bool soft = b->soft;
    td_node *bad = NULL;
    stores_loop(&bad, n);
    if (bad)
        return fail(b, bad, "TemplateAssertionError: Can't assign to special loop variable in for-loop target",
                    bad->name);
    if (!bind(b, n->a)) return false;

    n->scope = push_scope(b);
    if (!n->scope) return false;
    n->uses_loop = n->flag || reads(&n->body, "loop");
    if (n->uses_loop && !declare_param(b, TD_STR("loop"))) return false;
    if (!declare_one(b, n->b, true) || !declare_list(b, &n->body, false)) return false;
    n->loop_slot = slot_of(n->scope, "loop");
    b->loops++;
    if (!bind(b, n->b) || !bind_list(b, &n->body)) return false;
    b->loops--;

    b->scope = outer;
    if (n->c) {
        n->test_scope = push_scope(b);
        if (!n->test_scope || !declare_one(b, n->b, true) || !declare_one(b, n->c, false) || !bind(b, n->c))
            return false;
        b->scope = outer;
    }
    if (n->orelse.n) {
        uint32_t loops = b->loops;
        if (n->flag) b->loops = 0; /* a recursive loop is a function */
        n->else_scope = push_scope(b);
        if (!n->else_scope || !declare_list(b, &n->orelse, false) || !bind_list(b, &n->orelse)) return false;
        b->loops = loops;
        b->scope = outer;
    }
    b->soft = soft;
    return true;
}

/* Macros and the bodies of call blocks. */
static bool bind_macro(binder *b, td_node *n) {
    td_scope *outer = b->scope;
    bool soft = b->soft;
    uint32_t loops = b->loops;
    n->scope = push_scope(b);
    if (!n->scope || !declare_list(b, &n->items, true) || !declare_list(b, &n->more, false)) return false;
    static const char *const names[] = {"caller", "kwargs", "varargs"};
    bool *flags[] = {&n->uses_caller, &n->uses_kwargs, &n->uses_varargs};
    uint32_t *slots[] = {&n->caller_slot, &n->kwargs_slot, &n->varargs_slot};
    for (int i = 0; i < 3; i++) {
        bool param = false;
        for (uint32_t k = 0; k < n->items.n; k++) {
            if (!td_str_is(n->items.items[k]->name, names[i])) continue;
            param = true;
            if (i == 0 && k + n->more.n < n->items.n && reads(&n->body, "caller")) {
                return fail(b, n,
                            "TemplateAssertionError: When defining macros or call blocks the special \"%.*s\" argument "
                            "must be omitted or be given a default.",
                            TD_STR("caller"));
            }
        }
        *flags[i] = !param && reads(&n->body, names[i]);
        if (*flags[i] && !declare_param(b, td_str_from(names[i]))) return false;
        *slots[i] = slot_of(n->scope, names[i]);
    }
    if (!declare_list(b, &n->body, false)) return false;
    b->loops = 0;
    if (!bind_list(b, &n->items) || !bind_list(b, &n->more) || !bind_list(b, &n->body)) return false;
    b->loops = loops;
    b->scope = outer;
    b->soft = soft;
    return true;
}

/* A scope whose body is run in place. filters (may be NULL) see the scope, as the block's own text does. */
static bool bind_simple_scope(binder *b, td_node *n, td_node *filters) {
    td_scope *outer = b->scope;
    bool soft = b->soft;
    n->scope = push_scope(b);
    if (!n->scope || !declare_list(b, &n->body, false) || !declare_one(b, filters, false)) return false;
    if (!bind_list(b, &n->body) || (filters && !bind(b, filters))) return false;
    b->scope = outer;
    b->soft = soft;
    return true;
}

static bool bind_with(binder *b, td_node *n) {
    td_scope *outer = b->scope;
    bool soft = b->soft;
    if (!bind_list(b, &n->more)) return false;
    n->scope = push_scope(b);
    if (!n->scope || !declare_list(b, &n->items, true) || !declare_list(b, &n->body, false)) return false;
    if (!bind_list(b, &n->items) || !bind_list(b, &n->body)) return false;
    b->scope = outer;
    b->soft = soft;
    return true;
}

/* Function boundaries: a block sees only the context, a generation block is a call block without a call. */
static bool bind_function(binder *b, td_node *n) {
    td_scope *outer = b->scope;
    uint32_t loops = b->loops;
    bool in_block = b->in_block;
    b->loops = 0;
    if (n->kind == TD_N_BLOCK) {
        if (td_map_get(&b->blocks, n->name, NULL)) {
            return fail(b, n, "TemplateAssertionError: block '%.*s' defined twice", n->name);
        }
        if (!td_map_set(&b->blocks, n->name, 1)) return no_memory(b);
        b->scope = NULL;
        b->in_block = true;
    }
    bool ok = bind_simple_scope(b, n, NULL);
    b->in_block = in_block;
    b->loops = loops;
    b->scope = outer;
    return ok;
}

static bool bind_if(binder *b, td_node *n) {
    bool soft = b->soft;
    b->soft = true;
    bool ok = bind(b, n->a) && bind_list(b, &n->body) && bind_list(b, &n->more) && bind_list(b, &n->orelse);
    b->soft = soft;
    return ok;
}

static bool bind_condition(binder *b, td_node *n) {
    bool soft = b->soft;
    b->soft = true;
    bool ok = each_child(n, bind, b);
    b->soft = soft;
    return ok;
}

static bool bind(void *ctx, td_node *n) {
    binder *b = ctx;
    if (b->status != TREADLE_OK) return false;
    switch ((td_node_kind)n->kind) {
    case TD_N_NAME:
    case TD_N_NSREF:
        if (!find(b->scope, n->name, &n->up,
                  &n->slot)) { /* only filters of a block set: Jinja2 forgets to declare them */
            if (!define(b, n->name, TD_LOAD_RESOLVE)) return false;
            n->up = 0;
            n->slot = b->scope->n - 1;
        }
        return true;
    case TD_N_FILTER:
    case TD_N_TEST:
        if (!n->row && !b->soft) {
            return fail(b, n,
                        n->kind == TD_N_FILTER ? "TemplateAssertionError: No filter named '%.*s'."
                                               : "TemplateAssertionError: No test named '%.*s'.",
                        n->name);
        }
        return each_child(n, bind, b);
    case TD_N_CONDITION: return bind_condition(b, n);
    case TD_N_IF: return bind_if(b, n);
    case TD_N_FOR: return bind_for(b, n);
    case TD_N_MACRO:
        if (!bind_macro(b, n)) return false;
        return find(b->scope, n->name, &n->up, &n->slot);
    case TD_N_CALL_BLOCK: return bind_macro(b, n) && bind(b, n->a);
    case TD_N_SET_BLOCK: return bind_simple_scope(b, n, n->a) && bind(b, n->b);
    case TD_N_FILTER_BLOCK: return bind_simple_scope(b, n, n->a);
    case TD_N_SCOPE: return bind(b, n->a) && bind_simple_scope(b, n, NULL);
    case TD_N_WITH: return bind_with(b, n);
    case TD_N_BLOCK:
    case TD_N_GENERATION: return bind_function(b, n);
    case TD_N_BREAK:
    case TD_N_CONTINUE:
        if (b->loops) return true;
        return fail(b, n,
                    n->kind == TD_N_BREAK ? "SyntaxError: 'break' outside loop%.*s"
                                          : "SyntaxError: 'continue' not properly in loop%.*s",
                    TD_STR(""));
    case TD_N_IMPORT: return bind(b, n->a);
    default: return each_child(n, bind, b);
    }
}

treadle_status td_tpl_bind_names(td_template *t, treadle_error *err) {
    binder b = {.arena = &t->arena, .err = err, .status = TREADLE_OK};
    check_depth(&b, t->root);
    if (b.status == TREADLE_OK) {
        t->root->scope = push_scope(&b);
        if (t->root->scope && declare_list(&b, &t->root->body, false)) bind_list(&b, &t->root->body);
    }
    for (size_t i = 0; i < b.scopes.n; i++) td_map_free(&b.scopes.items[i]->index);
    td_vec_free(&b.scopes);
    td_map_free(&b.blocks);
    return b.status;
}
