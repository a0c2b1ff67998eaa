/* template/filters.h - the tables that make up the list of filters. */
#ifndef TD_TEMPLATE_FILTERS_H
#define TD_TEMPLATE_FILTERS_H

#include "text/template/methods.h"

extern const td_tpl_builtin td_tpl_text_filters[], td_tpl_list_filters[], td_tpl_walk_filters[], td_tpl_value_filters[];
extern const size_t td_tpl_n_text_filters, td_tpl_n_list_filters, td_tpl_n_walk_filters, td_tpl_n_value_filters;

#define FILTER(name) static td_val filter_##name(td_tpl *r, td_val v, const td_val *a, const td_tpl_args *args)

/* An optional argument that is a flag: 0, 1 or -1 (raised). */
static inline int td_tpl_flag(td_tpl *r, td_val v) { return td_v_given(v) ? td_v_truth(r, v) : 0; }
static inline bool td_tpl_has(td_val v) { return td_v_given(v) && v.kind != TD_V_NONE; }

#endif
