/* light/program.c - the flat list of steps of one set of wanted outputs: operands as pointers into the ctx, liveness,
 * and which inputs' memory may be taken over.
 *
 * Liveness: a value's memory is needed until the last step that reads it or a view of it.
 * Graph outputs stay to the end. */
#include "light/session.h"

#include "base/alloc.h"

enum { MAX_PROGRAMS = 4 };

void td_program_free(td_program *program) {
    if (!program) return;
    td_arena_free(&program->plan_arena);
    td_arena_free(&program->arena);
    td_free(program);
}

/* Nodes that serve a wanted output, in order. */
static void mark_needed(const td_graph *g, const bool *skip, bool *needed_value, bool *needed_node) {
    for (size_t i = 0; i < g->n_outputs; i++)
        if (!skip[i]) needed_value[g->outputs[i]] = true;
    for (size_t i = g->nodes.n; i-- > 0;) {
        const td_node *node = g->nodes.items[i];
        for (size_t k = 0; k < node->n_out; k++)
            if (node->out[k] != TD_NO_VALUE && needed_value[node->out[k]]) needed_node[i] = true;
        if (!needed_node[i]) continue;
        for (size_t k = 0; k < node->n_in; k++)
            if (node->in[k] != TD_NO_VALUE) needed_value[node->in[k]] = true;
    }
}

static void live_ranges(td_light_ctx *ctx, td_program *p) {
    const td_graph *g = &ctx->light->graph;
    for (size_t i = 0; i < g->values.n; i++) p->defined[i] = p->last[i] = -1;
    for (size_t s = 0; s < p->n_steps; s++) {
        const td_node *node = g->nodes.items[p->steps[s].node];
        for (size_t k = 0; k < node->n_out; k++)
            if (p->steps[s].out[k] != TD_NO_VALUE) p->defined[node->out[k]] = p->last[node->out[k]] = (int32_t)s;
        for (size_t k = 0; k < node->n_in; k++)
            if (node->in[k] != TD_NO_VALUE) p->last[node->in[k]] = (int32_t)s;
    }
    for (size_t i = 0; i < g->n_outputs; i++)
        if (!p->skip[i]) p->last[g->outputs[i]] = (int32_t)p->n_steps;
    for (size_t s = p->n_steps; s-- > 0;) { /* a view keeps what it looks at */
        const td_node *node = g->nodes.items[p->steps[s].node];
        size_t n_seen = td_node_may_pass(node) ? node->n_in : (node->op->impl->flags & TD_OP_VIEW) && node->n_in;
        for (size_t i = 0; i < n_seen; i++) {
            if (node->in[i] == TD_NO_VALUE) continue;
            for (size_t k = 0; k < node->n_out; k++)
                if (p->steps[s].out[k] != TD_NO_VALUE)
                    p->last[node->in[i]] = TD_MAX(p->last[node->in[i]], p->last[node->out[k]]);
        }
    }
}

/* Values whose memory a body may hand out under another name. */
static void mark_lent(const td_graph *g, td_program *p) {
    for (size_t s = 0; s < p->n_steps; s++) {
        const td_node *node = g->nodes.items[p->steps[s].node];
        if (!td_node_may_pass(node)) continue;
        for (size_t i = 0; i < node->n_in; i++) {
            int32_t root = node->in[i] == TD_NO_VALUE ? TD_NO_VALUE : td_graph_root(g, node->in[i]);
            if (root != TD_NO_VALUE) p->lent[root] = true;
        }
    }
}

static uint8_t input_flags(const td_graph *g, const td_program *p, const td_node *node, size_t k, size_t step) {
    int32_t id = node->in[k];
    if (id == TD_NO_VALUE) return 0;
    const td_op_impl *impl = node->op->impl;
    const td_ir_value *v = td_graph_value(g, id);
    const td_node *from = td_graph_producer(g, id);
    uint8_t flags = 0;
    bool takes_strides =
        (impl->flags & (TD_OP_ANY_STRIDE | TD_OP_VALUES)) || (k < 32 && (impl->strided_inputs >> k & 1));
    bool may_be_strided =
        v->port != TD_NO_PORT || v->is_output || (from && (from->op->impl->flags & (TD_OP_VIEW | TD_OP_VALUES)));
    if (!takes_strides && may_be_strided) flags |= TD_INPUT_DENSE;
    if (!(impl->flags & TD_OP_INPLACE)) return flags;
    int32_t root = td_graph_root(g, id);
    if (root == TD_NO_VALUE || p->last[root] != (int32_t)step || p->last[id] != (int32_t)step) return flags;
    if (p->lent[root]) return flags;
    for (size_t i = 0; i < node->n_in; i++)
        if (node->in[i] != TD_NO_VALUE && node->in[i] != id && td_graph_root(g, node->in[i]) == root) return flags;
    return flags | TD_INPUT_DIES;
}

static bool fill_step(td_light_ctx *ctx, td_program *p, size_t s, const bool *needed_value) {
    const td_graph *g = &ctx->light->graph;
    td_step *step = &p->steps[s];
    const td_node *node = g->nodes.items[step->node];
    td_arena *a = &p->arena;
    size_t n_in = node->n_in, n_out = node->n_out;
    const td_value **in_values = TD_ARENA_ARRAY(a, const td_value *, n_in);
    td_value **out_values = TD_ARENA_ARRAY(a, td_value *, n_out);
    td_tensor **out_tensors = TD_ARENA_ARRAY(a, td_tensor *, n_out);
    int32_t *out = TD_ARENA_ARRAY(a, int32_t, n_out);
    step->in_tensors = TD_ARENA_ARRAY(a, const td_tensor *, n_in);
    step->own_tensors = TD_ARENA_ARRAY(a, const td_tensor *, n_in);
    if (!in_values || !out_values || !out_tensors || !out || !step->in_tensors || !step->own_tensors) return false;
    step->impl = node->op->impl;
    step->index = (uint32_t)s;
    step->n_in = (uint32_t)n_in;
    step->n_out = (uint32_t)n_out;
    step->in = node->in;
    step->out = out;
    if (step->impl->flags & TD_OP_VIEW) step->flags |= TD_STEP_VIEW;
    if (step->impl->flags & TD_OP_VALUES) step->flags |= TD_STEP_VALUES | TD_STEP_ABSENT;
    for (size_t k = 0; k < n_in; k++) {
        int32_t id = node->in[k];
        in_values[k] = id == TD_NO_VALUE ? &td_value_none : &ctx->values[id];
        step->own_tensors[k] = step->in_tensors[k] = id == TD_NO_VALUE ? NULL : &ctx->values[id].tensor;
        if (id != TD_NO_VALUE && td_graph_value(g, id)->may_be_absent) step->flags |= TD_STEP_ABSENT;
    }
    for (size_t k = 0; k < n_out; k++) {
        int32_t id = node->out[k];
        bool wanted = id != TD_NO_VALUE && needed_value[id];
        out[k] = wanted ? id : TD_NO_VALUE;
        out_values[k] = wanted ? &ctx->values[id] : NULL;
        out_tensors[k] = wanted ? &ctx->values[id].tensor : NULL;
    }
    step->infer = (td_infer){.state = node->state,
                             .n_inputs = td_node_n_op_inputs(node),
                             .n_outputs = n_out,
                             .inputs = in_values,
                             .outputs = out_values,
                             .node = node};
    step->run = (td_run){.state = node->state,
                         .n_inputs = td_node_n_op_inputs(node),
                         .n_outputs = n_out,
                         .in = step->in_tensors,
                         .out = out_tensors,
                         .in_values = in_values,
                         .out_values = out_values,
                         .pool = ctx->light->pool,
                         .node = node,
                         .ctx = ctx};
    return true;
}

static bool fill_flags(td_light_ctx *ctx, td_program *p, size_t s) {
    const td_graph *g = &ctx->light->graph;
    td_step *step = &p->steps[s];
    const td_node *node = g->nodes.items[step->node];
    uint8_t *in_flags = TD_ARENA_ARRAY(&p->arena, uint8_t, node->n_in);
    if (!in_flags) return false;
    step->in_flags = in_flags;
    for (size_t k = 0; k < node->n_in; k++) {
        in_flags[k] = input_flags(g, p, node, k, s);
        if (in_flags[k] & TD_INPUT_DENSE) step->flags |= TD_STEP_DENSE;
        if (in_flags[k] & TD_INPUT_DIES) step->flags |= TD_STEP_INPLACE;
    }
    if (!(step->flags & TD_STEP_DENSE)) return true;
    step->dense = TD_ARENA_ARRAY(&p->arena, td_tensor, node->n_in);
    return step->dense != NULL;
}

/* The values that die after each step, as slices of one array ordered by step; those that live longer. */
static bool fill_deaths(td_light_ctx *ctx, td_program *p) {
    size_t n_values = ctx->light->graph.values.n, n = 0;
    for (size_t i = 0; i < n_values; i++) {
        if (p->defined[i] < 0) continue;
        if (p->last[i] < (int32_t)p->n_steps) p->steps[p->last[i]].n_deaths++, n++;
        else p->n_survivors++;
    }
    int32_t *all = TD_ARENA_ARRAY(&p->arena, int32_t, n);
    p->survivors = TD_ARENA_ARRAY(&p->arena, int32_t, p->n_survivors);
    if (!all || !p->survivors) return false;
    for (size_t i = 0, at = 0; i < n_values; i++)
        if (p->defined[i] >= 0 && p->last[i] >= (int32_t)p->n_steps) p->survivors[at++] = (int32_t)i;
    for (size_t s = 0, at = 0; s < p->n_steps; s++) {
        p->steps[s].deaths = all + at;
        at += p->steps[s].n_deaths;
        p->steps[s].n_deaths = 0;
    }
    for (size_t i = 0; i < n_values; i++) {
        if (p->defined[i] < 0 || p->last[i] >= (int32_t)p->n_steps) continue;
        td_step *step = &p->steps[p->last[i]];
        ((int32_t *)(uintptr_t)step->deaths)[step->n_deaths++] = (int32_t)i;
    }
    return true;
}

static bool build(td_light_ctx *ctx, td_program *p, const bool *skip) {
    const td_graph *g = &ctx->light->graph;
    td_arena *a = &p->arena;
    bool *needed_value = TD_ARENA_ARRAY(a, bool, g->values.n), *needed_node = TD_ARENA_ARRAY(a, bool, g->nodes.n);
    p->skip = TD_ARENA_ARRAY(a, bool, g->n_outputs);
    p->defined = TD_ARENA_ARRAY(a, int32_t, g->values.n);
    p->last = TD_ARENA_ARRAY(a, int32_t, g->values.n);
    p->lent = TD_ARENA_ARRAY(a, bool, g->values.n);
    if (!needed_value || !needed_node || !p->skip || !p->defined || !p->last || !p->lent) return false;
    for (size_t i = 0; i < g->n_outputs; i++) p->skip[i] = skip && skip[i];
    mark_needed(g, p->skip, needed_value, needed_node);
    for (size_t i = 0; i < g->nodes.n; i++) p->n_steps += needed_node[i];
    p->steps = TD_ARENA_ARRAY(a, td_step, p->n_steps);
    p->scratch_demand = TD_ARENA_ARRAY(a, size_t, p->n_steps);
    if (!p->steps || !p->scratch_demand) return false;
    for (size_t i = 0, s = 0; i < g->nodes.n; i++) {
        if (!needed_node[i]) continue;
        p->steps[s].node = (uint32_t)i;
        if (!fill_step(ctx, p, s++, needed_value)) return false;
    }
    live_ranges(ctx, p);
    mark_lent(g, p);
    for (size_t s = 0; s < p->n_steps; s++)
        if (!fill_flags(ctx, p, s)) return false;
    return fill_deaths(ctx, p);
}

static bool same_skips(const td_light_ctx *ctx, const td_program *p, const bool *skip) {
    for (size_t i = 0; i < ctx->light->graph.n_outputs; i++)
        if (p->skip[i] != (skip && skip[i])) return false;
    return true;
}

/* The list is in order of use: the current one is found at once, the one longest unused is dropped. */
td_program *td_program_find(td_light_ctx *ctx, const bool *skip, treadle_error *err) {
    size_t n = 0;
    for (td_program **at = &ctx->programs; *at; at = &(*at)->next, n++) {
        td_program *p = *at;
        if (same_skips(ctx, p, skip)) {
            *at = p->next;
            p->next = ctx->programs;
            return ctx->programs = p;
        }
        if (n + 1 >= MAX_PROGRAMS && !p->next) {
            *at = NULL;
            td_program_free(p);
            break;
        }
    }
    td_program *p = td_alloc_zero(1, sizeof *p);
    if (!p || !build(ctx, p, skip)) {
        td_program_free(p);
        td_fail_memory(err, "the list of steps to run", 0);
        return NULL;
    }
    p->next = ctx->programs;
    return ctx->programs = p;
}
