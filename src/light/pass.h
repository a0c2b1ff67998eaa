/* light/pass.h - rewrites of the graph at open: one file in pass/ each, one row in pass.inc.
 *
 * A pass must not change results beyond float rounding. It sees an analysed graph: every node has its op and a state
 * good for infer, every value has dtype and (symbolic) shape, counts are true. New nodes are resolved with
 * td_pass_resolve before the pass ends; removed ones are marked and swept by the caller. Private to light. */
#ifndef TD_LIGHT_PASS_H
#define TD_LIGHT_PASS_H

#include "light/resolve.h"
#include "light/session.h"

typedef struct td_pass_ctx {
    td_light *light; /* the session, or one of its bodies */
    td_graph *graph; /* &light->graph */
    td_resolver *resolver;
    treadle_error *err;
} td_pass_ctx;

typedef treadle_status td_pass_fn(td_pass_ctx *p);

typedef struct td_pass {
    const char *name; /* what options.skip_passes calls it */
    td_pass_fn *run;
} td_pass;

#define TD_PASS(name, function) td_pass_fn function;
#include "light/pass.inc"
#undef TD_PASS

size_t td_pass_count(void);
const td_pass *td_pass_at(size_t index); /* in the order in which they run */

/* Runs all passes that the options leave on, over the graph and then over the bodies of its nodes. */
treadle_status td_passes_run(td_pass_ctx *p);

/* --- for passes */
/* Nodes whose results nobody reads are marked as removed (pass/tidy.c). */
void td_pass_drop_dead(td_pass_ctx *p);
/* Folding on: more than when analysed is known of the values that refined[] names (pass/fold.c). */
treadle_status td_pass_fold_more(td_pass_ctx *p, bool *refined);
/* Prepares and infers a node that a pass has made or changed. */
treadle_status td_pass_resolve(td_pass_ctx *p, td_node *node);
static inline bool td_node_is(const td_node *node, const char *domain, const char *op_type) {
    return td_str_is(node->op_type, op_type) && td_str_is(node->domain, domain);
}
/* The value is read by one node input only and is no graph output. */
static inline bool td_pass_single_use(const td_graph *g, int32_t value) {
    const td_ir_value *v = td_graph_value(g, value);
    return v->n_uses == 1 && !v->is_output;
}

#endif
