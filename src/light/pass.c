/* light/pass.c - the table of passes and the loop over it. */
#include "light/pass.h"

#include "light/body.h"

static const td_pass passes[] = {
#define TD_PASS(name, function) {#name, function},
#include "light/pass.inc"
#undef TD_PASS
};

size_t td_pass_count(void) { return TD_COUNT(passes); }
const td_pass *td_pass_at(size_t index) { return index < td_pass_count() ? &passes[index] : NULL; }

/* Whether `name` is in a comma-separated list. */
static bool listed(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *at = list; at && *at;) {
        const char *comma = strchr(at, ',');
        size_t length = comma ? (size_t)(comma - at) : strlen(at);
        if (length == n && memcmp(at, name, n) == 0) return true;
        at = comma ? comma + 1 : NULL;
    }
    return false;
}

/* What a body does not read any more, the node does not need. */
static bool drop_captured(td_node *node, const td_body *body) {
    const td_graph *g = &body->light.graph;
    bool any = false;
    for (size_t i = body->n_formals; i < g->n_inputs; i++) {
        int32_t *in = &node->in[body->first_captured + i - body->n_formals];
        if (*in == TD_NO_VALUE || td_graph_value(g, g->inputs[i])->n_uses) continue;
        *in = TD_NO_VALUE;
        any = true;
    }
    return any;
}

static treadle_status rewrite_bodies(td_pass_ctx *p) {
    bool dropped = false;
    for (size_t i = 0; i < p->graph->nodes.n; i++) {
        td_node *node = p->graph->nodes.items[i];
        for (size_t k = 0; k < node->n_bodies; k++) {
            td_body *body = node->bodies[k];
            td_resolver r = {.graph = &body->light.graph,
                             .arena = p->resolver->arena,
                             .mode = p->resolver->mode,
                             .activations = p->resolver->activations,
                             .outer = p->resolver,
                             .outer_node = node};
            td_pass_ctx in = {.light = &body->light, .graph = r.graph, .resolver = &r, .err = p->err};
            treadle_status status = td_passes_run(&in);
            td_resolver_free(&r);
            if (status != TREADLE_OK) return status;
            dropped |= drop_captured(node, body);
        }
    }
    if (!dropped) return TREADLE_OK;
    td_graph_recount(p->graph);
    td_pass_drop_dead(p);
    td_graph_compact(p->graph);
    return TREADLE_OK;
}

treadle_status td_passes_run(td_pass_ctx *p) {
    for (size_t i = 0; i < td_pass_count(); i++) {
        if (listed(p->light->options.skip_passes, passes[i].name)) continue;
        td_graph_compact(p->graph);
        TD_TRY(passes[i].run(p));
    }
    td_graph_compact(p->graph);
    TD_TRY(td_graph_sort(p->graph, p->err));
    return rewrite_bodies(p);
}

treadle_status td_pass_resolve(td_pass_ctx *p, td_node *node) {
    td_resolve_release_node(node);
    td_resolve_outermost(p->resolver)->round++;
    return td_resolve_node(p->resolver, node, p->err);
}
