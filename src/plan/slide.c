/* plan/slide.c - caches of which only the last columns need be kept.
 *
 * So it is where each op that takes the cache looks back a known number of positions and no further, takes the
 * positions of its tokens from lengths or from an input, never from the cache's own length, and nothing else reads
 * the cache: then what it gives does not depend on what lies before its window. GroupQueryAttention with
 * local_window_size is such an op. A window that is only declared says what a graph should look back at, not what its
 * ops read: those caches are kept whole. */
#include "plan/build.h"

enum { MAX_DEPTH = 8, GQA_PAST_KEY = 3, GQA_PAST_VALUE = 4 };

static int64_t window_of(const td_onnx_node *node) {
    const td_onnx_attr *window = td_onnx_find_attr(node, "local_window_size");
    return window && window->type == TD_ONNX_ATTR_INT && window->i > 0 ? window->i : 0;
}

/* Names that nodes take, of those in the map: their value becomes 1. */
static void mark_taken(td_map *names, const td_onnx_node *nodes, size_t n, int depth) {
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < nodes[i].n_inputs; k++)
            if (td_map_get(names, nodes[i].inputs[k], NULL)) td_map_set(names, nodes[i].inputs[k], 1);
        for (size_t a = 0; a < nodes[i].n_attrs && depth < MAX_DEPTH; a++)
            if (nodes[i].attrs[a].g)
                mark_taken(names, nodes[i].attrs[a].g->nodes, nodes[i].attrs[a].g->n_nodes, depth + 1);
    }
}

/* All that session does with state k is to look at it through windows; *window becomes the longest. */
static bool looks_through_window(const td_plan_build_ctx *b, int32_t session, int32_t k, const td_map *outputs,
                                 int64_t *window) {
    const td_plan_session *s = &b->plan->sessions[session];
    const td_uses *uses = &b->uses[session];
    const td_onnx_node *node = NULL;
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        if (s->feeds[i].kind != TD_FEED_STATE || s->feeds[i].index != k) continue;
        for (int32_t u = uses->first[i]; u >= 0; u = uses->items[u].next) {
            const td_use *use = &uses->items[u];
            bool past = use->slot == GQA_PAST_KEY || use->slot == GQA_PAST_VALUE;
            if (node || !past || !td_use_is(use, "com.microsoft", "GroupQueryAttention") || !window_of(use->node))
                return false;
            node = use->node;
        }
        if (!node) return false;
        *window = TD_MAX(*window, window_of(node));
    }
    for (size_t o = 0; o < s->signature->n_outputs; o++) {
        uint64_t taken = 0;
        bool makes = false;
        if (s->out_state[o] != k) continue;
        td_str name = s->signature->outputs[o].name;
        for (size_t i = 1; node && i < TD_MIN(node->n_outputs, (size_t)3); i++)
            makes |= td_str_equal(node->outputs[i], name);
        if (!makes || s->fixed_rows > 1 || s->gives_new[o] || (td_map_get(outputs, name, &taken) && taken))
            return false;
    }
    return true;
}

/* An op takes keys and values alike: neither slides without the other. */
static void keep_pairs(const td_plan_build_ctx *b, int32_t session) {
    const td_plan_session *s = &b->plan->sessions[session];
    const td_uses *uses = &b->uses[session];
    for (size_t i = 0; i < s->signature->n_inputs; i++) {
        if (s->feeds[i].kind != TD_FEED_STATE || b->plan->states[s->feeds[i].index].slides) continue;
        for (int32_t u = uses->first[i]; u >= 0; u = uses->items[u].next) {
            const td_onnx_node *node = uses->items[u].node;
            for (size_t slot = GQA_PAST_KEY; slot <= GQA_PAST_VALUE && slot < node->n_inputs; slot++) {
                ptrdiff_t other = td_signature_find_input(s->signature, node->inputs[slot]);
                if (other >= 0 && s->feeds[other].kind == TD_FEED_STATE)
                    b->plan->states[s->feeds[other].index].slides = false;
            }
        }
    }
}

static bool index_outputs(const td_plan_session *s, td_map *outputs) {
    if (!td_map_reserve(outputs, s->signature->n_outputs)) return false;
    for (size_t o = 0; o < s->signature->n_outputs; o++)
        if (s->out_state[o] >= 0 && !td_map_set(outputs, s->signature->outputs[o].name, 0)) return false;
    mark_taken(outputs, s->signature->model->graph.nodes, s->signature->model->graph.n_nodes, 0);
    return true;
}

void td_plan_find_sliding(td_plan_build_ctx *b) {
    td_plan *plan = b->plan;
    bool any = false;
    for (size_t k = 0; k < plan->n_states; k++) {
        td_state_tensor *s = &plan->states[k];
        s->slides = s->kind == TD_STATE_SEPARATE && s->window > 0 && s->shape.rank == 4 && s->seq_axis == 2;
        any |= s->slides;
    }
    if (!any || plan->window.size > 0 || plan->batching == TD_BATCH_MASK || plan->decoder < 0) any = false;
    for (size_t i = 0; i < plan->n_sessions && any && !b->out_of_memory; i++) {
        td_map outputs = {0};
        if (td_plan_first_step(plan, (int32_t)i) < 0) continue;
        if (!index_outputs(&plan->sessions[i], &outputs)) b->out_of_memory = true;
        for (size_t k = 0; k < plan->n_states && !b->out_of_memory; k++)
            plan->states[k].slides = plan->states[k].slides &&
                                     looks_through_window(b, (int32_t)i, (int32_t)k, &outputs, &plan->states[k].window);
        td_map_free(&outputs);
    }
    for (int round = 0; round < 2; round++) /* sessions may share states */
        for (size_t i = 0; i < plan->n_sessions && any && !b->out_of_memory; i++)
            if (td_plan_first_step(plan, (int32_t)i) >= 0) keep_pairs(b, (int32_t)i);
    for (size_t k = 0; k < plan->n_states; k++) {
        plan->states[k].slides &= any;
        if (plan->states[k].slides) plan->slide_window = TD_MAX(plan->slide_window, plan->states[k].window);
    }
}
