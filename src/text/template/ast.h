/* template/ast.h - the tree of a template, made by the parser, bound to scopes by the resolver, read by the evaluator.
 *
 * One struct serves all kinds; the list says what each kind keeps where. Everything lives in the template's arena. */
#ifndef TD_TEMPLATE_AST_H
#define TD_TEMPLATE_AST_H

#include "base/map.h"
#include "text/template/lexer.h"
#include "text/template/value.h"

typedef enum td_node_kind {
    /* expressions */
    TD_N_CONST,     /* value */
    TD_N_NAME,      /* name; ctx */
    TD_N_NSREF,     /* name, attr: a target `ns.attr` */
    TD_N_TUPLE,     /* items */
    TD_N_LIST,      /* items */
    TD_N_DICT,      /* items: keys, more: values */
    TD_N_BINARY,    /* op, a, b: + - * / // % ** */
    TD_N_AND,       /* a, b */
    TD_N_OR,        /* a, b */
    TD_N_NOT,       /* a */
    TD_N_NEGATE,    /* a */
    TD_N_PLUS,      /* a */
    TD_N_CONCAT,    /* items */
    TD_N_COMPARE,   /* a, items: TD_N_OPERAND */
    TD_N_OPERAND,   /* op, a */
    TD_N_CONDITION, /* a if b else c (c may be NULL) */
    TD_N_ATTRIBUTE, /* a, name */
    TD_N_ITEM,      /* a, b */
    TD_N_SLICE,     /* a, b, c: start, stop, step, each may be NULL */
    TD_N_CALL,      /* a, call */
    TD_N_FILTER,    /* a (NULL: the text of the block), name, call, row */
    TD_N_TEST,      /* a, name, call, row */
    TD_N_KEYWORD,   /* name, a: an argument name=a */
    /* statements */
    TD_N_OUTPUT,       /* items: expressions and TD_N_DATA */
    TD_N_DATA,         /* name: the text */
    TD_N_IF,           /* a, body, more: the elif nodes (kind IF, without more and orelse), orelse */
    TD_N_FOR,          /* b: target, a: iterable, c: filter or NULL, body, orelse, flag: recursive; scopes */
    TD_N_SET,          /* b: target, a: value */
    TD_N_SET_BLOCK,    /* b: target, a: filters or NULL, body; scope */
    TD_N_MACRO,        /* name, items: parameters, more: defaults of the last ones, body; scope */
    TD_N_CALL_BLOCK,   /* a: the call, items, more, body as in a macro; scope */
    TD_N_FILTER_BLOCK, /* a: filters, body; scope */
    TD_N_WITH,         /* items: targets, more: values, body; scope */
    TD_N_BLOCK,        /* name, body; scope */
    TD_N_SCOPE,        /* a: autoescape, body; scope */
    TD_N_GENERATION,   /* body; scope */
    TD_N_BREAK,
    TD_N_CONTINUE,
    TD_N_IMPORT, /* include, import, from, extends: name is the tag, a the template, items the targets' names */
    TD_N_ROOT,   /* body; scope */
} td_node_kind;

typedef enum td_name_ctx { TD_CTX_LOAD, TD_CTX_STORE, TD_CTX_PARAM } td_name_ctx;

typedef struct td_nodes {
    td_node **items;
    uint32_t n;
} td_nodes;

typedef struct td_call {
    td_nodes args, keywords;
    td_node *star, *star_star; /* *args, **kwargs; NULL: none */
} td_call;

/* How a name gets its value when its scope is entered. */
typedef enum td_load_kind {
    TD_LOAD_PARAM,     /* whoever enters the scope sets it */
    TD_LOAD_RESOLVE,   /* from the context */
    TD_LOAD_ALIAS,     /* the outer scope's value */
    TD_LOAD_UNDEFINED, /* nothing yet */
} td_load_kind;

typedef struct td_symbol {
    td_str name;
    td_load_kind load;
    bool stored;
    uint32_t up, slot; /* of an alias */
} td_symbol;

struct td_scope {
    td_scope *parent; /* NULL: the root, or a block */
    td_symbol *symbols;
    uint32_t n, capacity;
    td_map index;  /* name -> place in symbols; empty once names are bound */
    bool is_block; /* under a block: what it resolves may be the top level's */
};

struct td_node {
    uint8_t kind, op, ctx;
    bool flag;
    bool uses_loop;                              /* for: the body reads `loop` */
    bool uses_caller, uses_varargs, uses_kwargs; /* macro */
    uint32_t line, column;
    uint32_t up, slot; /* names: where the value is, scopes upwards and index */
    uint32_t loop_slot, caller_slot, varargs_slot, kwargs_slot; /* in the own scope */
    td_str name, attr;
    td_val value;
    td_node *a, *b, *c;
    td_nodes items, more, body, orelse;
    td_call *call;
    td_scope *scope, *test_scope, *else_scope;
    const td_tpl_builtin *row; /* filter, test: NULL if there is none of this name */
};

struct td_template {
    td_arena arena;
    td_str source;
    td_node *root;
};

/* Makes `t->root` from `t->source`. */
treadle_status td_tpl_parse_source(td_template *t, treadle_error *err);

/* Binds names to slots, checks filter and test names and the places of break and continue. */
treadle_status td_tpl_bind_names(td_template *t, treadle_error *err);

/* Calls fn for each child in the order in which Jinja2 walks; stops and returns false once fn does. */
typedef bool td_node_visit_fn(void *ctx, td_node *child);

enum { TD_TPL_MAX_NESTING = 200 }; /* brackets and blocks in the source */

#endif
