/* light/pass.c - the table of passes and the loop over it. */
#include "light/pass.h"

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

treadle_status td_passes_run(td_pass_ctx *p) {
    for (size_t i = 0; i < td_pass_count(); i++) {
        if (listed(p->light->options.skip_passes, passes[i].name)) continue;
        td_graph_compact(p->graph);
        TD_TRY(passes[i].run(p));
    }
    td_graph_compact(p->graph);
    return td_graph_sort(p->graph, p->err);
}

treadle_status td_pass_resolve(td_pass_ctx *p, td_node *node) {
    td_resolve_release_node(node);
    return td_resolve_node(p->resolver, node, p->err);
}
