/* template/methods.h - text work that methods and filters share. All take strings where they say td_val v. */
#ifndef TD_TEMPLATE_METHODS_H
#define TD_TEMPLATE_METHODS_H

#include "text/template/value.h"

td_val td_str_convert(td_tpl *r, td_val v, void (*convert)(td_str text, td_buf *out));
td_val td_str_strip(td_tpl *r, td_val v, td_val chars, bool left, bool right);
td_val td_str_replace(td_tpl *r, td_val v, td_val from, td_val to, int64_t count);   /* count < 0: all */
td_val td_str_center(td_tpl *r, td_val v, int64_t width, uint32_t fill, char align); /* '<', '>' or '^' */
td_val td_str_lines(td_tpl *r, td_val v, bool keep_ends);                            /* a list */

ptrdiff_t td_str_find_last(td_tpl *r, td_str text, td_str part); /* byte offset; -1: none, or raised */

/* Methods by the rules of td_tpl_fn. */
td_val td_str_split(td_tpl *r, td_val self, const td_val *a, const td_tpl_args *args);
td_val td_str_rsplit(td_tpl *r, td_val self, const td_val *a, const td_tpl_args *args);
td_val td_str_splitlines(td_tpl *r, td_val self, const td_val *a, const td_tpl_args *args);
td_val td_str_partition(td_tpl *r, td_val self, const td_val *a, const td_tpl_args *args);
td_val td_str_rpartition(td_tpl *r, td_val self, const td_val *a, const td_tpl_args *args);
td_val td_str_join(td_tpl *r, td_val self, const td_val *a, const td_tpl_args *args);

#endif
