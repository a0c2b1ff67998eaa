/* light/profile.c - node times of the last run as text. */
#include "base/alloc.h"
#include "light/session.h"

#include <stdlib.h>

typedef struct op_time {
    td_str domain, op_type;
    uint64_t ns;
    size_t n;
} op_time;

static int slowest_first(const void *a, const void *b) {
    const op_time *x = a, *y = b;
    return (x->ns < y->ns) - (x->ns > y->ns);
}

static void line(td_buf *out, uint64_t ns, uint64_t total, td_str domain, td_str op_type) {
    double share = total ? 100.0 * (double)ns / (double)total : 0;
    td_buf_printf(out, "%10.1f us %5.1f %%  %.*s%s%.*s", (double)ns / 1e3, share, TD_STR_ARGS(domain),
                  domain.n ? "." : "", TD_STR_ARGS(op_type));
}

static void by_op_type(const td_graph *g, const uint64_t *node_ns, uint64_t total, td_buf *out) {
    size_t n = 0;
    op_time *ops = td_alloc_array(g->nodes.n, sizeof *ops);
    if (!ops) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < g->nodes.n; i++) {
        const td_node *node = g->nodes.items[i];
        size_t k = 0;
        if (!node_ns[i]) continue;
        while (k < n && !(td_str_equal(ops[k].op_type, node->op_type) && td_str_equal(ops[k].domain, node->domain)))
            k++;
        if (k == n) ops[n++] = (op_time){node->domain, node->op_type, 0, 0};
        ops[k].ns += node_ns[i];
        ops[k].n++;
    }
    qsort(ops, n, sizeof *ops, slowest_first);
    for (size_t k = 0; k < n; k++) {
        line(out, ops[k].ns, total, ops[k].domain, ops[k].op_type);
        td_buf_printf(out, " x %zu\n", ops[k].n);
    }
    td_free(ops);
}

void td_light_profile(const td_light_ctx *ctx, bool by_op, td_buf *out) {
    const td_graph *g = &ctx->light->graph;
    uint64_t total = 0;
    if (!ctx->node_ns) return;
    for (size_t i = 0; i < g->nodes.n; i++) total += ctx->node_ns[i];
    if (by_op) {
        by_op_type(g, ctx->node_ns, total, out);
        return;
    }
    for (size_t i = 0; i < g->nodes.n; i++) {
        const td_node *node = g->nodes.items[i];
        if (!ctx->node_ns[i]) continue;
        line(out, ctx->node_ns[i], total, node->domain, node->op_type);
        td_buf_printf(out, " \"%.*s\"\n", TD_STR_ARGS(node->name));
    }
}
