/* template/unicode.h - character classes and case as Python's str methods see them. */
#ifndef TD_TEMPLATE_UNICODE_H
#define TD_TEMPLATE_UNICODE_H

#include "base/str.h"

enum {
    TD_U_ALPHA = 1,
    TD_U_DECIMAL = 2,
    TD_U_DIGIT = 4,
    TD_U_NUMERIC = 8,
    TD_U_SPACE = 16,
    TD_U_PRINTABLE = 32,
    TD_U_UPPER = 64,
    TD_U_LOWER = 128,
    TD_U_TITLE = 256,
    TD_U_CASE_IGNORABLE = 512,
    TD_U_CASED = TD_U_UPPER | TD_U_LOWER | TD_U_TITLE,
    TD_U_ALNUM = TD_U_ALPHA | TD_U_DECIMAL | TD_U_DIGIT | TD_U_NUMERIC,
};

typedef enum td_case { TD_CASE_LOWER, TD_CASE_UPPER, TD_CASE_TITLE, TD_CASE_FOLD, TD_N_CASES } td_case;

unsigned td_tpl_uni_flags(uint32_t code_point);

/* The decoder and encoder of template strings: UTF-8 that may hold surrogates in three bytes. The text must be of that
 * form, so that the decoder need not fail. */
uint32_t td_tpl_uni_next(td_str text, size_t *at);     /* reads at *at < text.n and moves on */
uint32_t td_tpl_uni_previous(td_str text, size_t *at); /* reads before *at > 0 and moves back */
void td_tpl_uni_append(td_buf *out, uint32_t code_point);
size_t td_tpl_uni_count(td_str text);
size_t td_tpl_uni_offset(td_str text, size_t n_chars); /* byte offset of the n-th character, at most text.n */

td_str td_tpl_uni_strip_space(td_str text, bool left, bool right);

/* Whole-text conversions of str.lower() (with the final sigma), upper(), title(), capitalize(), swapcase(),
 * casefold(). */
void td_tpl_uni_lower(td_str text, td_buf *out);
void td_tpl_uni_upper(td_str text, td_buf *out);
void td_tpl_uni_title(td_str text, td_buf *out);
void td_tpl_uni_capitalize(td_str text, td_buf *out);
void td_tpl_uni_swapcase(td_str text, td_buf *out);
void td_tpl_uni_fold(td_str text, td_buf *out);

#endif
