/* light/profile.c - node times of the last run as text; of nodes in subgraphs, the sum over all iterations. */
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

/* A node's time without that of its bodies' nodes, which have lines of their own. */
static uint64_t own_ns(const td_light_ctx *ctx, size_t node) {
    uint64_t ns = ctx->node_ns[node];
    for (size_t k = 0; k < ctx->light->graph.nodes.items[node]->n_bodies; k++) {
        const td_light_ctx *body = ctx->bodies[node][k].ctx;
        for (size_t i = 0; i < body->light->graph.nodes.n; i++) ns -= TD_MIN(ns, body->node_ns[i]);
    }
    return ns;
}

typedef struct timed_node {
    const td_node *node;
    uint64_t ns;
    int depth;
} timed_node;

typedef struct listing {
    TD_VEC(timed_node) nodes; /* each followed by those of its bodies */
    uint64_t total;
    bool failed;
} listing;

static void collect(listing *l, const td_light_ctx *ctx, int depth) {
    const td_graph *g = &ctx->light->graph;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const td_node *node = g->nodes.items[i];
        if (!ctx->node_ns[i]) continue;
        timed_node t = {node, own_ns(ctx, i), depth};
        l->total += t.ns;
        if (!td_vec_push(&l->nodes, t)) l->failed = true;
        for (size_t k = 0; k < node->n_bodies; k++) collect(l, ctx->bodies[i][k].ctx, depth + 1);
    }
}

static void by_op_type(const listing *l, td_buf *out) {
    size_t n = 0;
    op_time *ops = td_alloc_array(l->nodes.n, sizeof *ops);
    if (!ops) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < l->nodes.n; i++) {
        const td_node *node = l->nodes.items[i].node;
        size_t k = 0;
        while (k < n && !(td_str_equal(ops[k].op_type, node->op_type) && td_str_equal(ops[k].domain, node->domain)))
            k++;
        if (k == n) ops[n++] = (op_time){node->domain, node->op_type, 0, 0};
        ops[k].ns += l->nodes.items[i].ns;
        ops[k].n++;
    }
    qsort(ops, n, sizeof *ops, slowest_first);
    for (size_t k = 0; k < n; k++) {
        line(out, ops[k].ns, l->total, ops[k].domain, ops[k].op_type);
        td_buf_printf(out, " x %zu\n", ops[k].n);
    }
    td_free(ops);
}

void td_light_profile(const td_light_ctx *ctx, bool by_op, td_buf *out) {
    listing l = {0};
    if (!ctx->node_ns) return;
    collect(&l, ctx, 0);
    if (l.failed) out->failed = true;
    if (by_op) by_op_type(&l, out);
    for (size_t i = 0; !by_op && i < l.nodes.n; i++) {
        const timed_node *t = &l.nodes.items[i];
        line(out, t->ns, l.total, t->node->domain, t->node->op_type);
        td_buf_printf(out, " \"%.*s\"%s\n", TD_STR_ARGS(t->node->name), t->depth ? " (in a subgraph)" : "");
    }
    td_vec_free(&l.nodes);
}
