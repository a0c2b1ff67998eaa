/* template/parse_expr.c - expressions, by recursive descent with Jinja2's precedence.
 *
 * From loose to tight: if-else, or, and, not, comparisons and in, + -, ~, * / // %, ** (from the left, and looser than
 * a sign: -2 ** 2 is 4), signs, then subscripts, calls, filters and tests. */
#include "text/template/parser.h"

static td_node *parse_condition(td_parser *p);
static td_node *parse_unary(td_parser *p, bool with_filter);
static td_node *parse_primary(td_parser *p, bool with_namespace);

static td_node *binary(td_parser *p, td_node_kind kind, const td_tpl_token *where, td_node *a, td_node *b) {
    if (!a || !b) return NULL;
    td_node *n = td_parser_node(p, kind, where);
    if (!n) return NULL;
    n->a = a;
    n->b = b;
    return n;
}

static td_node *parse_pow(td_parser *p) {
    const td_tpl_token *where = td_parser_now(p);
    td_node *left = parse_unary(p, true);
    while (left && td_parser_is(p, TD_T_POW)) {
        where = td_parser_next(p);
        left = binary(p, TD_N_BINARY, where, left, parse_unary(p, true));
        if (left) left->op = TD_T_POW;
    }
    return left;
}

static td_node *parse_product(td_parser *p) {
    td_node *left = parse_pow(p);
    while (left) {
        td_tpl_token_kind op = td_parser_now(p)->kind;
        if (op != TD_T_MUL && op != TD_T_DIV && op != TD_T_FLOORDIV && op != TD_T_MOD) break;
        const td_tpl_token *where = td_parser_next(p);
        left = binary(p, TD_N_BINARY, where, left, parse_pow(p));
        if (left) left->op = (uint8_t)op;
    }
    return left;
}

static td_node *parse_concat(td_parser *p) {
    td_node *first = parse_product(p);
    if (!first || !td_parser_is(p, TD_T_TILDE)) return first;
    td_node *n = td_parser_node(p, TD_N_CONCAT, td_parser_now(p));
    td_node_vec items = {0};
    bool ok = n && td_parser_push(p, &items, first);
    while (ok && td_parser_skip(p, TD_T_TILDE)) ok = td_parser_push(p, &items, parse_product(p));
    return td_parser_take_nodes(p, &items, n ? &n->items : NULL) && ok ? n : NULL;
}

static td_node *parse_sum(td_parser *p) {
    td_node *left = parse_concat(p);
    while (left && (td_parser_is(p, TD_T_ADD) || td_parser_is(p, TD_T_SUB))) {
        const td_tpl_token *where = td_parser_next(p);
        left = binary(p, TD_N_BINARY, where, left, parse_concat(p));
        if (left) left->op = (uint8_t)where->kind;
    }
    return left;
}

static td_node *parse_compare(td_parser *p) {
    td_node *first = parse_sum(p);
    if (!first) return NULL;
    const td_tpl_token *where = td_parser_now(p);
    td_node_vec operands = {0};
    bool ok = true;
    while (ok) {
        const td_tpl_token *now = td_parser_now(p);
        td_tpl_token_kind op;
        if (now->kind >= TD_T_EQ && now->kind <= TD_T_LE) {
            op = now->kind;
        } else if (td_parser_is_name(p, "in")) {
            op = TD_T_IN;
        } else if (td_parser_is_name(p, "not") && td_parser_look(p)->kind == TD_T_NAME &&
                   td_str_is(td_parser_look(p)->text, "in")) {
            op = TD_T_NOT_IN;
            td_parser_next(p);
        } else {
            break;
        }
        td_parser_next(p);
        td_node *operand = td_parser_node(p, TD_N_OPERAND, now);
        if (operand) {
            operand->op = (uint8_t)op;
            operand->a = parse_sum(p);
        }
        ok = operand && operand->a && td_parser_push(p, &operands, operand);
    }
    if (ok && !operands.n) return first;
    td_node *n = ok ? td_parser_node(p, TD_N_COMPARE, where) : NULL;
    if (!td_parser_take_nodes(p, &operands, n ? &n->items : NULL) || !n) return NULL;
    n->a = first;
    return n;
}

static td_node *parse_not(td_parser *p) {
    if (!td_parser_is_name(p, "not")) return parse_compare(p);
    if (!td_parser_enter(p)) return NULL;
    td_node *n = td_parser_node(p, TD_N_NOT, td_parser_next(p));
    if (n) n->a = parse_not(p);
    td_parser_leave(p);
    return n && n->a ? n : NULL;
}

static td_node *parse_and(td_parser *p) {
    td_node *left = parse_not(p);
    while (left && td_parser_is_name(p, "and")) {
        const td_tpl_token *where = td_parser_next(p);
        left = binary(p, TD_N_AND, where, left, parse_not(p));
    }
    return left;
}

static td_node *parse_or(td_parser *p) {
    td_node *left = parse_and(p);
    while (left && td_parser_is_name(p, "or")) {
        const td_tpl_token *where = td_parser_next(p);
        left = binary(p, TD_N_OR, where, left, parse_and(p));
    }
    return left;
}

static td_node *parse_condition(td_parser *p) {
    if (!td_parser_enter(p)) return NULL;
    td_node *left = parse_or(p);
    while (left && td_parser_is_name(p, "if")) {
        td_node *n = td_parser_node(p, TD_N_CONDITION, td_parser_next(p));
        if (n) {
            n->a = left;
            n->b = parse_or(p);
            if (n->b && td_parser_skip_name(p, "else")) {
                n->c = parse_condition(p);
                if (!n->c) n->b = NULL;
            }
        }
        left = n && n->b ? n : NULL;
    }
    td_parser_leave(p);
    return left;
}

td_node *td_parse_expression(td_parser *p, bool with_condition) {
    if (with_condition) return parse_condition(p);
    if (!td_parser_enter(p)) return NULL;
    td_node *n = parse_or(p);
    td_parser_leave(p);
    return n;
}

/* --- literals --- */

static td_node *parse_number(td_parser *p) {
    const td_tpl_token *t = td_parser_next(p);
    td_node *n = td_parser_node(p, TD_N_CONST, t);
    if (!n) return NULL;
    td_tpl render = {.arena = *p->arena, .err = p->err, .max_memory = SIZE_MAX, .max_steps = UINT64_MAX};
    if (t->kind == TD_T_FLOAT) n->value = td_num_parse_float(t->text);
    else n->value = td_num_parse_int(&render, t->text, 0);
    *p->arena = render.arena;
    if (render.status == TREADLE_OUT_OF_MEMORY) return td_parser_no_memory(p);
    if (n->value.kind == TD_V_ERROR || n->value.kind == TD_V_MISSING) {
        return td_parser_fail(p, t, "the number %.*s is too long",
                              TD_STR_ARGS(((td_str){t->text.p, TD_MIN(t->text.n, 40)})));
    }
    return n;
}

static td_node *parse_string(td_parser *p) {
    td_node *n = td_parser_node(p, TD_N_CONST, td_parser_now(p));
    if (!n) return NULL;
    td_str text = td_parser_next(p)->text;
    if (td_parser_is(p, TD_T_STRING)) { /* neighbours are one string */
        td_buf buf = {0};
        td_buf_str(&buf, text);
        while (td_parser_is(p, TD_T_STRING)) td_buf_str(&buf, td_parser_next(p)->text);
        text = td_arena_str(p->arena, buf.n ? td_buf_view(&buf) : TD_STR(""));
        bool failed = buf.failed || !text.p;
        td_buf_free(&buf);
        if (failed) return td_parser_no_memory(p);
    }
    n->value = td_v_view(text);
    return n;
}

static td_node *parse_list(td_parser *p) {
    td_node *n = td_parser_node(p, TD_N_LIST, td_parser_next(p));
    td_node_vec items = {0};
    bool ok = n != NULL;
    while (ok && !td_parser_is(p, TD_T_RBRACKET)) {
        if (items.n && !td_parser_expect(p, TD_T_COMMA)) ok = false;
        if (!ok || td_parser_is(p, TD_T_RBRACKET)) break;
        ok = td_parser_push(p, &items, td_parse_expression(p, true));
    }
    ok = td_parser_take_nodes(p, &items, n ? &n->items : NULL) && ok;
    return ok && td_parser_expect(p, TD_T_RBRACKET) ? n : NULL;
}

static td_node *parse_dict(td_parser *p) {
    td_node *n = td_parser_node(p, TD_N_DICT, td_parser_next(p));
    td_node_vec keys = {0}, values = {0};
    bool ok = n != NULL;
    while (ok && !td_parser_is(p, TD_T_RBRACE)) {
        if (keys.n && !td_parser_expect(p, TD_T_COMMA)) ok = false;
        if (!ok || td_parser_is(p, TD_T_RBRACE)) break;
        ok = td_parser_push(p, &keys, td_parse_expression(p, true)) && td_parser_expect(p, TD_T_COLON) &&
             td_parser_push(p, &values, td_parse_expression(p, true));
    }
    ok = td_parser_take_nodes(p, &keys, n ? &n->items : NULL) && ok;
    ok = td_parser_take_nodes(p, &values, n ? &n->more : NULL) && ok;
    return ok && td_parser_expect(p, TD_T_RBRACE) ? n : NULL;
}

static bool ends_tuple(td_parser *p, const char *end_name) {
    td_tpl_token_kind kind = td_parser_now(p)->kind;
    return kind == TD_T_VARIABLE_END || kind == TD_T_BLOCK_END || kind == TD_T_RPAREN ||
           (end_name && td_parser_is_name(p, end_name));
}

td_node *td_parse_tuple(td_parser *p, unsigned flags, const char *end_name) {
    const td_tpl_token *where = td_parser_now(p);
    td_node_vec items = {0};
    bool ok = true, is_tuple = false;
    while (ok) {
        if (items.n) ok = td_parser_expect(p, TD_T_COMMA) != NULL;
        if (!ok || ends_tuple(p, end_name)) break;
        td_node *item = flags & TD_TUPLE_TARGET ? parse_primary(p, flags & TD_TUPLE_NAMESPACE)
                                                : td_parse_expression(p, !(flags & TD_TUPLE_NO_CONDITION));
        ok = td_parser_push(p, &items, item);
        if (!td_parser_is(p, TD_T_COMMA)) break;
        is_tuple = true;
    }
    td_node *only = ok && !is_tuple && items.n ? items.items[0] : NULL;
    if (!ok || only) {
        td_vec_free(&items);
        return only;
    }
    if (!is_tuple && !(flags & TD_TUPLE_PARENTHESES)) {
        return td_parser_fail(p, td_parser_now(p), "Expected an expression, got '%.*s'",
                              TD_STR_ARGS(td_parser_describe(td_parser_now(p))));
    }
    td_node *n = td_parser_node(p, TD_N_TUPLE, where);
    return td_parser_take_nodes(p, &items, n ? &n->items : NULL) ? n : NULL;
}

static td_node *parse_name(td_parser *p, bool with_namespace) {
    const td_tpl_token *t = td_parser_next(p);
    td_node *n = td_parser_node(p, TD_N_CONST, t);
    if (!n) return NULL;
    if (td_str_is(t->text, "true") || td_str_is(t->text, "True")) {
        n->value = td_v_bool(true);
    } else if (td_str_is(t->text, "false") || td_str_is(t->text, "False")) {
        n->value = td_v_bool(false);
    } else if (td_str_is(t->text, "none") || td_str_is(t->text, "None")) {
        n->value = td_v_none();
    } else {
        n->kind = TD_N_NAME;
        n->name = t->text;
        if (with_namespace && td_parser_skip(p, TD_T_DOT)) {
            const td_tpl_token *attr = td_parser_expect(p, TD_T_NAME);
            if (!attr) return NULL;
            n->kind = TD_N_NSREF;
            n->attr = attr->text;
        }
    }
    return n;
}

static td_node *parse_primary(td_parser *p, bool with_namespace) {
    const td_tpl_token *t = td_parser_now(p);
    td_node *n = NULL;
    if (!td_parser_enter(p)) return NULL;
    switch (t->kind) {
    case TD_T_NAME: n = parse_name(p, with_namespace); break;
    case TD_T_STRING: n = parse_string(p); break;
    case TD_T_INTEGER:
    case TD_T_FLOAT: n = parse_number(p); break;
    case TD_T_LBRACKET: n = parse_list(p); break;
    case TD_T_LBRACE: n = parse_dict(p); break;
    case TD_T_LPAREN:
        td_parser_next(p);
        n = td_parse_tuple(p, TD_TUPLE_PARENTHESES, NULL);
        if (n && !td_parser_expect(p, TD_T_RPAREN)) n = NULL;
        break;
    default: td_parser_fail(p, t, "unexpected '%.*s'", TD_STR_ARGS(td_parser_describe(t)));
    }
    td_parser_leave(p);
    return n;
}

/* --- what follows a primary --- */

static td_node *parse_subscript_part(td_parser *p) {
    const td_tpl_token *where = td_parser_now(p);
    td_node *first = NULL;
    if (!td_parser_is(p, TD_T_COLON)) {
        first = td_parse_expression(p, true);
        if (!first || !td_parser_is(p, TD_T_COLON)) return first;
    }
    td_parser_next(p);
    td_node *n = td_parser_node(p, TD_N_SLICE, where);
    if (!n) return NULL;
    n->a = first;
    td_node **part = &n->b;
    for (int i = 0; i < 2; i++, part = &n->c) {
        if (i == 1 && !td_parser_skip(p, TD_T_COLON)) break;
        if (td_parser_is(p, TD_T_RBRACKET) || td_parser_is(p, TD_T_COMMA) || (i == 0 && td_parser_is(p, TD_T_COLON)))
            continue;
        *part = td_parse_expression(p, true);
        if (!*part) return NULL;
    }
    return n;
}

static td_node *parse_subscript(td_parser *p, td_node *owner) {
    const td_tpl_token *where = td_parser_next(p);
    if (where->kind == TD_T_DOT) {
        const td_tpl_token *attr = td_parser_next(p);
        if (p->status != TREADLE_OK) return NULL;
        td_node *n = td_parser_node(p, attr->kind == TD_T_NAME ? TD_N_ATTRIBUTE : TD_N_ITEM, where);
        if (!n) return NULL;
        n->a = owner;
        n->name = attr->text;
        if (attr->kind == TD_T_NAME) return n;
        if (attr->kind != TD_T_INTEGER) return td_parser_fail(p, attr, "expected name or number");
        p->at--; /* parse_number takes it again */
        n->b = parse_number(p);
        return n->b ? n : NULL;
    }
    td_node *n = td_parser_node(p, TD_N_ITEM, where);
    td_node_vec parts = {0};
    bool ok = n != NULL;
    while (ok && !td_parser_is(p, TD_T_RBRACKET)) {
        if (parts.n && !td_parser_expect(p, TD_T_COMMA)) ok = false;
        else ok = td_parser_push(p, &parts, parse_subscript_part(p));
    }
    if (ok && parts.n == 1) {
        n->b = parts.items[0];
        td_vec_free(&parts);
    } else {
        td_node *key = ok ? td_parser_node(p, TD_N_TUPLE, where) : NULL;
        ok = td_parser_take_nodes(p, &parts, key ? &key->items : NULL) && key;
        if (ok) n->b = key;
    }
    if (!ok) return NULL;
    n->a = owner;
    return td_parser_expect(p, TD_T_RBRACKET) ? n : NULL;
}

static bool parse_argument(td_parser *p, td_call *call, td_node_vec *args, td_node_vec *keywords,
                           const td_tpl_token *where) {
    bool fits = true;
    td_tpl_token_kind kind = td_parser_now(p)->kind;
    if (kind == TD_T_MUL || kind == TD_T_POW) {
        td_node **to = kind == TD_T_MUL ? &call->star : &call->star_star;
        fits = !*to && !call->star_star;
        if (fits) {
            td_parser_next(p);
            *to = td_parse_expression(p, true);
            return *to != NULL;
        }
    } else if (kind == TD_T_NAME && td_parser_look(p)->kind == TD_T_ASSIGN) {
        fits = !call->star_star;
        td_node *keyword = fits ? td_parser_node(p, TD_N_KEYWORD, td_parser_now(p)) : NULL;
        if (fits && keyword) {
            keyword->name = td_parser_next(p)->text;
            td_parser_next(p);
            keyword->a = td_parse_expression(p, true);
        }
        if (fits) return keyword && keyword->a && td_parser_push(p, keywords, keyword);
    } else {
        fits = !call->star && !call->star_star && !keywords->n;
        if (fits) return td_parser_push(p, args, td_parse_expression(p, true));
    }
    td_parser_fail(p, where, "invalid syntax for function call expression");
    return false;
}

static td_call *parse_call_args(td_parser *p) {
    const td_tpl_token *where = td_parser_expect(p, TD_T_LPAREN);
    td_call *call = where ? TD_ARENA_NEW(p->arena, td_call) : NULL;
    if (where && !call) td_parser_no_memory(p);
    td_node_vec args = {0}, keywords = {0};
    bool ok = call != NULL;
    for (bool comma = false; ok && !td_parser_is(p, TD_T_RPAREN); comma = true) {
        if (comma) {
            ok = td_parser_expect(p, TD_T_COMMA) != NULL;
            if (!ok || td_parser_is(p, TD_T_RPAREN)) break;
        }
        ok = parse_argument(p, call, &args, &keywords, where);
    }
    if (ok && keywords.n > 255) {
        td_parser_fail(p, where, "more than 255 keyword arguments");
        ok = false;
    }
    for (size_t i = 0; ok && i < keywords.n; i++) { /* Python refuses the call when it compiles it */
        for (size_t j = 0; ok && j < i; j++) {
            ok = !td_str_equal(keywords.items[i]->name, keywords.items[j]->name);
        }
        if (!ok) {
            td_parser_fail(p, where, "keyword argument repeated: %.*s", TD_STR_ARGS(keywords.items[i]->name));
        }
    }
    ok = td_parser_take_nodes(p, &args, call ? &call->args : NULL) && ok;
    ok = td_parser_take_nodes(p, &keywords, call ? &call->keywords : NULL) && ok;
    return ok && td_parser_expect(p, TD_T_RPAREN) ? call : NULL;
}

static td_node *parse_call(td_parser *p, td_node *callee) {
    td_node *n = td_parser_node(p, TD_N_CALL, td_parser_now(p));
    if (!n) return NULL;
    n->a = callee;
    n->call = parse_call_args(p);
    return n->call ? n : NULL;
}

static td_node *parse_postfix(td_parser *p, td_node *n) {
    while (n) {
        td_tpl_token_kind kind = td_parser_now(p)->kind;
        if (kind == TD_T_DOT || kind == TD_T_LBRACKET) n = parse_subscript(p, n);
        else if (kind == TD_T_LPAREN) n = parse_call(p, n);
        else break;
    }
    return n;
}

/* name, dotted.name: filters and tests. */
static bool parse_dotted(td_parser *p, td_str *out) {
    const td_tpl_token *t = td_parser_expect(p, TD_T_NAME);
    if (!t) return false;
    *out = t->text;
    while (td_parser_skip(p, TD_T_DOT)) {
        const td_tpl_token *part = td_parser_expect(p, TD_T_NAME);
        if (!part) return false;
        char *joined = td_arena_printf(p->arena, "%.*s.%.*s", TD_STR_ARGS(*out), TD_STR_ARGS(part->text));
        if (!joined) return td_parser_no_memory(p) != NULL;
        *out = td_str_from(joined);
    }
    return true;
}

td_node *td_parse_filters(td_parser *p, td_node *node, bool start_inline) {
    while (p->status == TREADLE_OK && (start_inline || td_parser_is(p, TD_T_PIPE))) {
        if (!start_inline) td_parser_next(p);
        start_inline = false;
        td_node *n = td_parser_node(p, TD_N_FILTER, td_parser_now(p));
        if (!n || !parse_dotted(p, &n->name)) return NULL;
        n->row = td_tpl_find_filter(n->name);
        n->a = node;
        if (td_parser_is(p, TD_T_LPAREN)) {
            n->call = parse_call_args(p);
            if (!n->call) return NULL;
        }
        node = n;
    }
    return p->status == TREADLE_OK ? node : NULL;
}

static td_node *parse_test(td_parser *p, td_node *tested) {
    const td_tpl_token *where = td_parser_next(p);
    bool negated = td_parser_skip_name(p, "not");
    td_node *n = td_parser_node(p, TD_N_TEST, where);
    if (!n || !parse_dotted(p, &n->name)) return NULL;
    n->row = td_tpl_find_test(n->name);
    n->a = tested;
    td_tpl_token_kind kind = td_parser_now(p)->kind;
    if (kind == TD_T_LPAREN) {
        n->call = parse_call_args(p);
        if (!n->call) return NULL;
    } else if ((kind == TD_T_NAME && !td_parser_is_name(p, "else") && !td_parser_is_name(p, "or") &&
                !td_parser_is_name(p, "and")) ||
               kind == TD_T_STRING || kind == TD_T_INTEGER || kind == TD_T_FLOAT || kind == TD_T_LBRACKET ||
               kind == TD_T_LBRACE) {
        if (td_parser_is_name(p, "is"))
            return td_parser_fail(p, td_parser_now(p), "You cannot chain multiple tests with is");
        td_node *arg = parse_postfix(p, parse_primary(p, false));
        n->call = TD_ARENA_NEW(p->arena, td_call);
        td_node_vec args = {0};
        if (!n->call) return td_parser_no_memory(p);
        bool ok = td_parser_push(p, &args, arg);
        if (!td_parser_take_nodes(p, &args, &n->call->args) || !ok) return NULL;
    }
    if (!negated) return n;
    td_node *not = td_parser_node(p, TD_N_NOT, where);
    if (not ) not ->a = n;
    return not ;
}

static td_node *parse_filtered(td_parser *p, td_node *n) {
    while (n) {
        if (td_parser_is(p, TD_T_PIPE)) n = td_parse_filters(p, n, false);
        else if (td_parser_is_name(p, "is")) n = parse_test(p, n);
        else if (td_parser_is(p, TD_T_LPAREN)) n = parse_call(p, n);
        else break;
    }
    return n;
}

static td_node *parse_unary(td_parser *p, bool with_filter) {
    td_node *n;
    if (td_parser_is(p, TD_T_SUB) || td_parser_is(p, TD_T_ADD)) {
        if (!td_parser_enter(p)) return NULL;
        const td_tpl_token *where = td_parser_next(p);
        n = td_parser_node(p, where->kind == TD_T_SUB ? TD_N_NEGATE : TD_N_PLUS, where);
        if (n) {
            n->a = parse_unary(p, false);
            if (!n->a) n = NULL;
        }
        td_parser_leave(p);
    } else {
        n = parse_primary(p, false);
    }
    n = parse_postfix(p, n);
    return with_filter ? parse_filtered(p, n) : n;
}
