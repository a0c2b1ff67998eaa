/* template/lexer.h - template source to tokens. */
#ifndef TD_TEMPLATE_LEXER_H
#define TD_TEMPLATE_LEXER_H

#include "base/arena.h"
#include "base/error.h"

/* X(NAME, text as messages show it) */
#define TD_TPL_TOKENS(X)                                                                                               \
    X(EOF, "end of template")                                                                                          \
    X(ERROR, "error")                                                                                                  \
    X(DATA, "template data")                                                                                           \
    X(VARIABLE_BEGIN, "begin of print statement")                                                                      \
    X(VARIABLE_END, "end of print statement")                                                                          \
    X(BLOCK_BEGIN, "begin of statement block")                                                                         \
    X(BLOCK_END, "end of statement block")                                                                             \
    X(NAME, "name")                                                                                                    \
    X(STRING, "string")                                                                                                \
    X(INTEGER, "integer")                                                                                              \
    X(FLOAT, "float")                                                                                                  \
    X(ADD, "+")                                                                                                        \
    X(SUB, "-")                                                                                                        \
    X(DIV, "/")                                                                                                        \
    X(FLOORDIV, "//")                                                                                                  \
    X(MUL, "*")                                                                                                        \
    X(MOD, "%")                                                                                                        \
    X(POW, "**")                                                                                                       \
    X(TILDE, "~")                                                                                                      \
    X(LBRACKET, "[")                                                                                                   \
    X(RBRACKET, "]")                                                                                                   \
    X(LPAREN, "(")                                                                                                     \
    X(RPAREN, ")")                                                                                                     \
    X(LBRACE, "{")                                                                                                     \
    X(RBRACE, "}")                                                                                                     \
    X(EQ, "==")                                                                                                        \
    X(NE, "!=")                                                                                                        \
    X(GT, ">")                                                                                                         \
    X(GE, ">=")                                                                                                        \
    X(LT, "<")                                                                                                         \
    X(LE, "<=")                                                                                                        \
    X(ASSIGN, "=")                                                                                                     \
    X(DOT, ".")                                                                                                        \
    X(COLON, ":")                                                                                                      \
    X(PIPE, "|")                                                                                                       \
    X(COMMA, ",")                                                                                                      \
    X(SEMICOLON, ";")                                                                                                  \
    X(IN, "in") /* the last two are no tokens, but operators made of names */                                          \
    X(NOT_IN, "not in")

typedef enum td_tpl_token_kind {
#define TD_TPL_TOKEN_ENUM(name, text) TD_T_##name,
    TD_TPL_TOKENS(TD_TPL_TOKEN_ENUM)
#undef TD_TPL_TOKEN_ENUM
} td_tpl_token_kind;

typedef struct td_tpl_token {
    td_tpl_token_kind kind;
    uint32_t line, column;
    td_str text; /* names, data, unescaped strings, numbers without underscores; the message of an error */
} td_tpl_token;

typedef TD_VEC(td_tpl_token) td_tpl_tokens;

const char *td_tpl_token_text(td_tpl_token_kind kind);

/* Splits source, which must be valid UTF-8 and outlive the tokens, as new text does in the arena. The list always ends
 * in an EOF or ERROR token: a fault in the text is reported when the parser gets there, since what it finds before that
 * comes first. Fails only for lack of memory. */
treadle_status td_tpl_lex(td_str source, td_arena *arena, td_tpl_tokens *out, treadle_error *err);

#endif
