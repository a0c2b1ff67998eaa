/* template/parser.h - what the two halves of the parser share. */
#ifndef TD_TEMPLATE_PARSER_H
#define TD_TEMPLATE_PARSER_H

#include "text/template/ast.h"

typedef struct td_tpl_open_tag {
    td_str name;
    const char *ends; /* "'endfor' or 'else'" while its body is read, or NULL */
} td_tpl_open_tag;

typedef struct td_parser {
    const td_tpl_token *tokens;
    size_t at, n;
    td_arena *arena;
    treadle_error *err;
    treadle_status status; /* not TREADLE_OK: every function returns NULL from now on */
    uint32_t depth;
    TD_VEC(td_tpl_open_tag) open;
} td_parser;

typedef TD_VEC(td_node *) td_node_vec;

/* All return NULL (or false) after a failure, which is in p->status and p->err. */
void *td_parser_fail(td_parser *p, const td_tpl_token *where, const char *format, ...) TD_PRINTF(3, 4);
void *td_parser_no_memory(td_parser *p);
bool td_parser_enter(td_parser *p);
static inline void td_parser_leave(td_parser *p) { p->depth--; }

static inline const td_tpl_token *td_parser_now(const td_parser *p) { return &p->tokens[p->at]; }
const td_tpl_token *td_parser_look(const td_parser *p); /* the token after this one */
const td_tpl_token *td_parser_next(td_parser *p);       /* takes the current token */
bool td_parser_is(const td_parser *p, td_tpl_token_kind kind);
bool td_parser_is_name(const td_parser *p, const char *name);
bool td_parser_skip(td_parser *p, td_tpl_token_kind kind); /* takes it if it is that */
bool td_parser_skip_name(td_parser *p, const char *name);
const td_tpl_token *td_parser_expect(td_parser *p, td_tpl_token_kind kind); /* takes it or fails */
td_str td_parser_describe(const td_tpl_token *token);

td_node *td_parser_node(td_parser *p, td_node_kind kind, const td_tpl_token *where);
bool td_parser_push(td_parser *p, td_node_vec *vec, td_node *node);
bool td_parser_take_nodes(td_parser *p, td_node_vec *vec, td_nodes *out); /* frees vec in every case */

td_node *td_parse_expression(td_parser *p, bool with_condition);
td_node *td_parse_filters(td_parser *p, td_node *node, bool start_inline); /* node may come back */

enum { TD_TUPLE_TARGET = 1, TD_TUPLE_NO_CONDITION = 2, TD_TUPLE_PARENTHESES = 4, TD_TUPLE_NAMESPACE = 8 };
td_node *td_parse_tuple(td_parser *p, unsigned flags, const char *end_name);

#endif
