/* template/parser.c - statements: tokens to a tree.
 *
 * The first fault ends parsing; its wording and line are Jinja2's. A fault that the lexer left in the token list
 * surfaces when its token becomes the current one. */
#include "text/template/parser.h"

#include "base/alloc.h"

#include <stdio.h>

void *td_parser_fail(td_parser *p, const td_tpl_token *where, const char *format, ...) {
    if (p->status != TREADLE_OK) return NULL;
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    p->status = td_fail(p->err, TREADLE_FORMAT, "TemplateSyntaxError: %s", text);
    td_error_place(p->err, where->line, where->column);
    return NULL;
}

void *td_parser_no_memory(td_parser *p) {
    if (p->status == TREADLE_OK) p->status = td_fail_memory(p->err, "a template's tree", sizeof(td_node));
    return NULL;
}

bool td_parser_enter(td_parser *p) {
    if (++p->depth > TD_TPL_MAX_NESTING) {
        p->depth--;
        td_parser_fail(p, td_parser_now(p), "nested more than %d levels deep", TD_TPL_MAX_NESTING);
        return false;
    }
    return true;
}

const td_tpl_token *td_parser_look(const td_parser *p) { return &p->tokens[TD_MIN(p->at + 1, p->n - 1)]; }

const td_tpl_token *td_parser_next(td_parser *p) {
    const td_tpl_token *t = td_parser_now(p);
    if (p->at + 1 < p->n) p->at++;
    if (td_parser_now(p)->kind == TD_T_ERROR) {
        td_parser_fail(p, td_parser_now(p), "%.*s", TD_STR_ARGS(td_parser_now(p)->text));
    }
    return t;
}

bool td_parser_is(const td_parser *p, td_tpl_token_kind kind) { return td_parser_now(p)->kind == kind; }

bool td_parser_is_name(const td_parser *p, const char *name) {
    return td_parser_is(p, TD_T_NAME) && td_str_is(td_parser_now(p)->text, name);
}

bool td_parser_skip(td_parser *p, td_tpl_token_kind kind) {
    bool found = td_parser_is(p, kind);
    if (found) td_parser_next(p);
    return found;
}

bool td_parser_skip_name(td_parser *p, const char *name) {
    bool found = td_parser_is_name(p, name);
    if (found) td_parser_next(p);
    return found;
}

td_str td_parser_describe(const td_tpl_token *t) {
    return t->kind == TD_T_NAME ? t->text : td_str_from(td_tpl_token_text(t->kind));
}

static const td_tpl_token *expected(td_parser *p, const char *what) {
    const td_tpl_token *now = td_parser_now(p);
    if (now->kind == TD_T_EOF) return td_parser_fail(p, now, "unexpected end of template, expected '%s'.", what);
    return td_parser_fail(p, now, "expected token '%s', got '%.*s'", what, TD_STR_ARGS(td_parser_describe(now)));
}

const td_tpl_token *td_parser_expect(td_parser *p, td_tpl_token_kind kind) {
    if (p->status != TREADLE_OK) return NULL;
    if (!td_parser_is(p, kind)) return expected(p, td_tpl_token_text(kind));
    const td_tpl_token *t = td_parser_next(p);
    return p->status == TREADLE_OK ? t : NULL;
}

static const td_tpl_token *expect_name(td_parser *p, const char *name) {
    if (p->status != TREADLE_OK) return NULL;
    if (!td_parser_is_name(p, name)) return expected(p, name);
    return td_parser_expect(p, TD_T_NAME);
}

td_node *td_parser_node(td_parser *p, td_node_kind kind, const td_tpl_token *where) {
    if (p->status != TREADLE_OK) return NULL;
    td_node *n = TD_ARENA_NEW(p->arena, td_node);
    if (!n) return td_parser_no_memory(p);
    n->kind = (uint8_t)kind;
    n->line = where->line;
    n->column = where->column;
    return n;
}

bool td_parser_push(td_parser *p, td_node_vec *vec, td_node *node) {
    if (!node || p->status != TREADLE_OK) return false;
    if (td_vec_push(vec, node)) return true;
    td_parser_no_memory(p);
    return false;
}

bool td_parser_take_nodes(td_parser *p, td_node_vec *vec, td_nodes *out) {
    bool ok = out && p->status == TREADLE_OK;
    if (ok && vec->n) {
        out->items = TD_ARENA_ARRAY(p->arena, td_node *, vec->n);
        out->n = (uint32_t)vec->n;
        if (out->items) memcpy(out->items, vec->items, vec->n * sizeof *vec->items);
        else ok = td_parser_no_memory(p) != NULL;
    }
    td_vec_free(vec);
    return ok;
}

/* --- bodies --- */

static td_node *parse_statement(td_parser *p);

static bool at_end_tag(const td_parser *p, const char *const *ends) {
    for (; ends && *ends; ends++) {
        if (td_parser_is_name(p, *ends)) return true;
    }
    return false;
}

/* "Jinja was looking for ..." for a tag that does not fit, or for the end of the text (name.p NULL). */
static void *fail_tag(td_parser *p, const td_tpl_token *where, td_str name, const char *ends) {
    size_t n = p->open.n;
    for (size_t i = n; !ends && i > 0; i--) ends = p->open.items[i - 1].ends;
    char text[800];
    int at = name.p ? snprintf(text, sizeof text, "Encountered unknown tag '%.*s'.",
                               TD_STR_ARGS(((td_str){name.p, TD_MIN(name.n, 100)})))
                    : snprintf(text, sizeof text, "Unexpected end of template.");
    if (ends) {
        at += snprintf(text + at, sizeof text - (size_t)at, " Jinja was looking for the following tags: %s.", ends);
    }
    if (n) {
        td_str inner = p->open.items[n - 1].name;
        snprintf(text + at, sizeof text - (size_t)at, " The innermost block that needs to be closed is '%.*s'.",
                 TD_STR_ARGS(inner));
    }
    return td_parser_fail(p, where, "%s", text);
}

static bool flush_output(td_parser *p, td_node_vec *output, td_node_vec *body) {
    if (!output->n) return true;
    td_node *n = TD_ARENA_NEW(p->arena, td_node);
    if (!n) {
        td_vec_free(output);
        return td_parser_no_memory(p) != NULL;
    }
    n->kind = TD_N_OUTPUT;
    n->line = output->items[0]->line;
    n->column = output->items[0]->column;
    return td_parser_take_nodes(p, output, &n->items) && td_parser_push(p, body, n);
}

static td_node *parse_data(td_parser *p) {
    const td_tpl_token *t = td_parser_next(p);
    td_node *n = td_parser_node(p, TD_N_DATA, t);
    if (n) n->name = t->text;
    return n;
}

static td_node *parse_print(td_parser *p) {
    td_parser_next(p);
    td_node *n = td_parse_tuple(p, 0, NULL);
    return n && td_parser_expect(p, TD_T_VARIABLE_END) ? n : NULL;
}

/* Template text up to one of the tags of `ends`, which is the current token afterwards; ends NULL: to the end. */
static bool parse_body(td_parser *p, const char *const *ends, td_nodes *out) {
    td_node_vec body = {0}, output = {0};
    bool ok = td_parser_enter(p), done = false;
    while (ok && !done && !td_parser_is(p, TD_T_EOF)) {
        if (td_parser_is(p, TD_T_DATA)) {
            ok = td_parser_push(p, &output, parse_data(p));
        } else if (td_parser_is(p, TD_T_VARIABLE_BEGIN)) {
            ok = td_parser_push(p, &output, parse_print(p));
        } else if (td_parser_is(p, TD_T_BLOCK_BEGIN)) {
            ok = flush_output(p, &output, &body);
            td_parser_next(p);
            done = ok && at_end_tag(p, ends);
            if (ok && !done) ok = td_parser_push(p, &body, parse_statement(p)) && td_parser_expect(p, TD_T_BLOCK_END);
        } else {
            ok = td_parser_fail(p, td_parser_now(p), "unexpected '%.*s'",
                                TD_STR_ARGS(td_parser_describe(td_parser_now(p)))) != NULL;
        }
    }
    if (ok) ok = flush_output(p, &output, &body);
    td_parser_leave(p);
    td_vec_free(&output);
    ok = td_parser_take_nodes(p, &body, out) && ok && p->status == TREADLE_OK;
    return ok;
}

/* The end of the opening tag, the body, and (if `close`) the end tag's name. `wanted` words the end tags. */
static bool parse_statements(td_parser *p, const char *const *ends, const char *wanted, bool close, td_nodes *out) {
    td_parser_skip(p, TD_T_COLON);
    if (!td_parser_expect(p, TD_T_BLOCK_END)) return false;
    p->open.items[p->open.n - 1].ends = wanted;
    if (!parse_body(p, ends, out)) return false;
    if (td_parser_is(p, TD_T_EOF)) return fail_tag(p, td_parser_now(p), (td_str){NULL, 0}, wanted) != NULL;
    p->open.items[p->open.n - 1].ends = NULL;
    if (close) td_parser_next(p);
    return p->status == TREADLE_OK;
}

#define ENDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* --- targets and signatures --- */

static bool mark_target(td_parser *p, td_node *n, td_name_ctx ctx) {
    static const char *const names[] = {[TD_N_CONST] = "const", [TD_N_LIST] = "list", [TD_N_DICT] = "dict"};
    if (n->kind == TD_N_NSREF) return true;
    if (n->kind == TD_N_TUPLE) {
        for (uint32_t i = 0; i < n->items.n; i++) {
            if (!mark_target(p, n->items.items[i], ctx)) return false;
        }
        return true;
    }
    if (n->kind == TD_N_NAME) {
        n->ctx = (uint8_t)ctx;
        return true;
    }
    td_tpl_token where = {.line = n->line, .column = n->column};
    td_parser_fail(p, &where, "can't assign to '%s'",
                   n->kind <= TD_N_DICT && names[n->kind] ? names[n->kind] : "expression");
    return false;
}

static td_node *parse_target(td_parser *p, unsigned flags, const char *end_name, td_name_ctx ctx) {
    td_node *n = td_parse_tuple(p, TD_TUPLE_TARGET | flags, end_name);
    return n && mark_target(p, n, ctx) ? n : NULL;
}

/* A bare name; Jinja2 refuses the names of constants. */
static td_node *parse_target_name(td_parser *p, td_name_ctx ctx) {
    const td_tpl_token *t = td_parser_expect(p, TD_T_NAME);
    if (!t) return NULL;
    static const char *const reserved[] = {"true", "false", "none", "True", "False", "None"};
    for (size_t i = 0; i < TD_COUNT(reserved); i++) {
        if (td_str_is(t->text, reserved[i])) return td_parser_fail(p, t, "can't assign to 'name'");
    }
    td_node *n = td_parser_node(p, TD_N_NAME, t);
    if (!n) return NULL;
    n->name = t->text;
    n->ctx = (uint8_t)ctx;
    return n;
}

static bool parse_signature(td_parser *p, td_node *n) {
    td_node_vec params = {0}, defaults = {0};
    bool ok = td_parser_expect(p, TD_T_LPAREN) != NULL;
    while (ok && !td_parser_is(p, TD_T_RPAREN)) {
        if (params.n && !td_parser_expect(p, TD_T_COMMA)) ok = false;
        td_node *param = ok ? parse_target_name(p, TD_CTX_PARAM) : NULL;
        for (size_t i = 0; param && i < params.n; i++) {
            if (td_str_equal(params.items[i]->name, param->name)) {
                td_parser_fail(p, td_parser_now(p), "duplicate argument '%.*s' in function definition",
                               TD_STR_ARGS(param->name));
            }
        }
        if (params.n > 255) td_parser_fail(p, td_parser_now(p), "more than 255 parameters");
        ok = td_parser_push(p, &params, param);
        if (!ok) break;
        if (td_parser_skip(p, TD_T_ASSIGN)) ok = td_parser_push(p, &defaults, td_parse_expression(p, true));
        else if (defaults.n)
            ok = td_parser_fail(p, td_parser_now(p), "non-default argument follows default argument") != NULL;
    }
    ok = td_parser_take_nodes(p, &params, &n->items) && ok;
    ok = td_parser_take_nodes(p, &defaults, &n->more) && ok;
    return ok && td_parser_expect(p, TD_T_RPAREN);
}

/* --- one function per tag; the tag's name is the current token --- */

static td_node *parse_if(td_parser *p) {
    const char *wanted = "'elif' or 'else' or 'endif'";
    td_node *n = td_parser_node(p, TD_N_IF, td_parser_next(p));
    td_node_vec elifs = {0};
    td_node *part = n;
    bool ok = n != NULL;
    while (ok) {
        part->a = td_parse_tuple(p, TD_TUPLE_NO_CONDITION, NULL);
        ok = part->a && parse_statements(p, ENDS("elif", "else", "endif"), wanted, false, &part->body);
        if (!ok) break;
        const td_tpl_token *end = td_parser_next(p);
        if (td_str_is(end->text, "elif")) {
            part = td_parser_node(p, TD_N_IF, end);
            ok = td_parser_push(p, &elifs, part);
            continue;
        }
        if (td_str_is(end->text, "else")) ok = parse_statements(p, ENDS("endif"), "'endif'", true, &n->orelse);
        break;
    }
    return td_parser_take_nodes(p, &elifs, n ? &n->more : NULL) && ok ? n : NULL;
}

static td_node *parse_for(td_parser *p) {
    td_node *n = td_parser_node(p, TD_N_FOR, td_parser_next(p));
    if (!n) return NULL;
    n->b = parse_target(p, 0, "in", TD_CTX_STORE);
    if (!n->b || !expect_name(p, "in")) return NULL;
    n->a = td_parse_tuple(p, TD_TUPLE_NO_CONDITION, "recursive");
    if (!n->a) return NULL;
    if (td_parser_skip_name(p, "if")) {
        n->c = td_parse_expression(p, true);
        if (!n->c) return NULL;
    }
    n->flag = td_parser_skip_name(p, "recursive");
    if (!parse_statements(p, ENDS("endfor", "else"), "'endfor' or 'else'", false, &n->body)) return NULL;
    bool has_else = td_str_is(td_parser_next(p)->text, "else");
    if (has_else && !parse_statements(p, ENDS("endfor"), "'endfor'", true, &n->orelse)) return NULL;
    return n;
}

static td_node *parse_set(td_parser *p) {
    td_node *n = td_parser_node(p, TD_N_SET, td_parser_next(p));
    if (!n) return NULL;
    n->b = parse_target(p, TD_TUPLE_NAMESPACE, NULL, TD_CTX_STORE);
    if (!n->b) return NULL;
    if (td_parser_skip(p, TD_T_ASSIGN)) {
        n->a = td_parse_tuple(p, 0, NULL);
        return n->a ? n : NULL;
    }
    n->kind = TD_N_SET_BLOCK;
    n->a = td_parse_filters(p, NULL, false);
    return parse_statements(p, ENDS("endset"), "'endset'", true, &n->body) ? n : NULL;
}

static td_node *parse_macro(td_parser *p) {
    td_node *n = td_parser_node(p, TD_N_MACRO, td_parser_next(p));
    td_node *name = n ? parse_target_name(p, TD_CTX_STORE) : NULL;
    if (!name || !parse_signature(p, n)) return NULL;
    n->name = name->name;
    return parse_statements(p, ENDS("endmacro"), "'endmacro'", true, &n->body) ? n : NULL;
}

static td_node *parse_call_block(td_parser *p) {
    const td_tpl_token *where = td_parser_next(p);
    td_node *n = td_parser_node(p, TD_N_CALL_BLOCK, where);
    if (!n || (td_parser_is(p, TD_T_LPAREN) && !parse_signature(p, n))) return NULL;
    n->a = td_parse_expression(p, true);
    if (!n->a) return NULL;
    if (n->a->kind != TD_N_CALL) return td_parser_fail(p, where, "expected call");
    return parse_statements(p, ENDS("endcall"), "'endcall'", true, &n->body) ? n : NULL;
}

static td_node *parse_filter_block(td_parser *p) {
    td_node *n = td_parser_node(p, TD_N_FILTER_BLOCK, td_parser_next(p));
    if (!n) return NULL;
    n->a = td_parse_filters(p, NULL, true);
    return n->a && parse_statements(p, ENDS("endfilter"), "'endfilter'", true, &n->body) ? n : NULL;
}

static td_node *parse_with(td_parser *p) {
    td_node *n = td_parser_node(p, TD_N_WITH, td_parser_next(p));
    td_node_vec targets = {0}, values = {0};
    bool ok = n != NULL;
    while (ok && !td_parser_is(p, TD_T_BLOCK_END)) {
        if (targets.n && !td_parser_expect(p, TD_T_COMMA)) ok = false;
        ok = ok && td_parser_push(p, &targets, parse_target(p, 0, NULL, TD_CTX_PARAM)) &&
             td_parser_expect(p, TD_T_ASSIGN) && td_parser_push(p, &values, td_parse_expression(p, true));
    }
    ok = td_parser_take_nodes(p, &targets, n ? &n->items : NULL) && ok;
    ok = td_parser_take_nodes(p, &values, n ? &n->more : NULL) && ok;
    return ok && parse_statements(p, ENDS("endwith"), "'endwith'", true, &n->body) ? n : NULL;
}

static td_node *parse_autoescape(td_parser *p) {
    td_node *n = td_parser_node(p, TD_N_SCOPE, td_parser_next(p));
    if (!n) return NULL;
    n->a = td_parse_expression(p, true);
    return n->a && parse_statements(p, ENDS("endautoescape"), "'endautoescape'", true, &n->body) ? n : NULL;
}

static td_node *parse_block(td_parser *p) {
    td_node *n = td_parser_node(p, TD_N_BLOCK, td_parser_next(p));
    const td_tpl_token *name = n ? td_parser_expect(p, TD_T_NAME) : NULL;
    if (!name) return NULL;
    n->name = name->text;
    td_parser_skip_name(p, "scoped");
    td_parser_skip_name(p, "required");
    if (!parse_statements(p, ENDS("endblock"), "'endblock'", true, &n->body)) return NULL;
    if (td_parser_is(p, TD_T_NAME) && td_str_equal(td_parser_now(p)->text, n->name)) td_parser_next(p);
    return n;
}

static td_node *parse_print_tag(td_parser *p) {
    td_node *n = td_parser_node(p, TD_N_OUTPUT, td_parser_next(p));
    td_node_vec items = {0};
    bool ok = n != NULL;
    while (ok && !td_parser_is(p, TD_T_BLOCK_END)) {
        if (items.n && !td_parser_expect(p, TD_T_COMMA)) ok = false;
        ok = ok && td_parser_push(p, &items, td_parse_expression(p, true));
    }
    return td_parser_take_nodes(p, &items, n ? &n->items : NULL) && ok ? n : NULL;
}

static bool next_is_context(const td_parser *p) {
    return (td_parser_is_name(p, "with") || td_parser_is_name(p, "without")) && td_parser_look(p)->kind == TD_T_NAME &&
           td_str_is(td_parser_look(p)->text, "context");
}

static void skip_context(td_parser *p) {
    if (!next_is_context(p)) return;
    td_parser_next(p);
    td_parser_next(p);
}

/* include, import, from, extends: read as Jinja2 does, so that their syntax is checked; reaching one is an error. */
static td_node *parse_import(td_parser *p) {
    const td_tpl_token *tag = td_parser_next(p);
    td_node *n = td_parser_node(p, TD_N_IMPORT, tag);
    if (!n) return NULL;
    n->name = tag->text;
    n->a = td_parse_expression(p, true);
    if (!n->a) return NULL;
    td_node_vec names = {0};
    bool ok = true;
    if (td_str_is(tag->text, "import")) {
        ok = expect_name(p, "as") && td_parser_push(p, &names, parse_target_name(p, TD_CTX_STORE));
    } else if (td_str_is(tag->text, "from")) {
        ok = expect_name(p, "import") != NULL;
        do {
            if (next_is_context(p)) break;
            td_node *name = ok ? parse_target_name(p, TD_CTX_STORE) : NULL;
            if (name && td_parser_skip_name(p, "as")) name = parse_target_name(p, TD_CTX_STORE);
            ok = td_parser_push(p, &names, name);
        } while (ok && !next_is_context(p) && td_parser_skip(p, TD_T_COMMA));
    } else if (td_parser_is_name(p, "ignore") && td_parser_look(p)->kind == TD_T_NAME &&
               td_str_is(td_parser_look(p)->text, "missing")) {
        td_parser_next(p);
        td_parser_next(p);
    }
    skip_context(p);
    return td_parser_take_nodes(p, &names, &n->items) && ok ? n : NULL;
}

static td_node *parse_generation(td_parser *p) {
    td_node *n = td_parser_node(p, TD_N_GENERATION, td_parser_next(p));
    return n && parse_statements(p, ENDS("endgeneration"), "'endgeneration'", true, &n->body) ? n : NULL;
}

static td_node *parse_loop_control(td_parser *p) {
    const td_tpl_token *t = td_parser_next(p);
    return td_parser_node(p, td_str_is(t->text, "break") ? TD_N_BREAK : TD_N_CONTINUE, t);
}

static td_node *parse_statement(td_parser *p) {
    static const struct {
        const char *name;
        td_node *(*parse)(td_parser *p);
    } tags[] = {
        {"if", parse_if},
        {"for", parse_for},
        {"set", parse_set},
        {"macro", parse_macro},
        {"call", parse_call_block},
        {"filter", parse_filter_block},
        {"with", parse_with},
        {"print", parse_print_tag},
        {"block", parse_block},
        {"break", parse_loop_control},
        {"continue", parse_loop_control},
        {"generation", parse_generation},
        {"include", parse_import},
        {"import", parse_import},
        {"from", parse_import},
        {"extends", parse_import},
        {"autoescape", parse_autoescape},
    };
    const td_tpl_token *t = td_parser_now(p);
    if (t->kind != TD_T_NAME) return td_parser_fail(p, t, "tag name expected");
    for (size_t i = 0; i < TD_COUNT(tags); i++) {
        if (!td_str_is(t->text, tags[i].name)) continue;
        if (!td_vec_push(&p->open, (td_tpl_open_tag){t->text, NULL})) return td_parser_no_memory(p);
        td_node *n = tags[i].parse(p);
        p->open.n--;
        return n;
    }
    return fail_tag(p, t, t->text, NULL);
}

treadle_status td_tpl_parse_source(td_template *t, treadle_error *err) {
    td_tpl_tokens tokens = {0};
    treadle_status status = td_tpl_lex(t->source, &t->arena, &tokens, err);
    td_parser p = {.tokens = tokens.items, .n = tokens.n, .arena = &t->arena, .err = err, .status = status};
    if (status == TREADLE_OK && tokens.items[0].kind == TD_T_ERROR) {
        td_parser_fail(&p, &tokens.items[0], "%.*s", TD_STR_ARGS(tokens.items[0].text));
    }
    if (p.status == TREADLE_OK) {
        td_tpl_token start = {.line = 1, .column = 1};
        t->root = td_parser_node(&p, TD_N_ROOT, &start);
        if (t->root) parse_body(&p, NULL, &t->root->body);
    }
    td_vec_free(&p.open);
    td_vec_free(&tokens);
    return p.status;
}
