/* light/ctx.c - making and freeing run states; picked positions. */
#include "base/alloc.h"
#include "light/session.h"

treadle_status td_light_ctx_new(const td_light *light, td_light_ctx **out, treadle_error *err) {
    const td_graph *g = &light->graph;
    td_light_ctx *ctx = td_alloc_zero(1, sizeof *ctx);
    if (!ctx) return td_fail_memory(err, "a context", sizeof *ctx);
    td_arena *a = &ctx->arena;
    td_arena_init(a);
    ctx->light = light;
    ctx->outermost = ctx;
    atomic_init(&ctx->interrupted, false);
    ctx->values = TD_ARENA_ARRAY(a, td_value, g->values.n);
    ctx->places = TD_ARENA_ARRAY(a, td_place, g->values.n);
    ctx->demands = TD_ARENA_ARRAY(a, td_demand, g->values.n);
    ctx->binding_of = TD_ARENA_ARRAY(a, int32_t, g->values.n);
    ctx->bindings = TD_ARENA_ARRAY(a, td_binding, g->n_outputs);
    ctx->input_extents = TD_ARENA_ARRAY(a, td_extent, g->n_inputs);
    ctx->spans = TD_ARENA_ARRAY(a, td_span, g->n_inputs);
    ctx->picks = TD_ARENA_ARRAY(a, td_pick, g->n_outputs);
    ctx->picked = TD_ARENA_ARRAY(a, const td_pick *, g->n_outputs);
    ctx->bodies = TD_ARENA_ARRAY(a, td_body_run *, g->nodes.n);
    if (light->options.profile) ctx->node_ns = TD_ARENA_ARRAY(a, uint64_t, g->nodes.n);
    if (!ctx->values || !ctx->places || !ctx->demands || !ctx->binding_of || !ctx->bindings || !ctx->input_extents ||
        !ctx->spans || !ctx->picks || !ctx->picked || !ctx->bodies || (light->options.profile && !ctx->node_ns)) {
        td_light_ctx_free(ctx);
        return td_fail_memory(err, "a context", g->values.n * sizeof *ctx->values);
    }
    for (size_t i = 0; i < g->n_inputs; i++) ctx->spans[i].input = (int32_t)i;
    for (size_t i = 0; i < g->n_outputs; i++) ctx->picked[i] = &ctx->picks[i];
    for (size_t i = 0; i < g->values.n; i++) {
        const td_ir_value *v = td_graph_value(g, (int32_t)i);
        if (td_graph_is_constant(g, (int32_t)i)) ctx->values[i] = v->type;
        ctx->places[i].owner = v->producer == TD_NO_NODE ? (int32_t)i : TD_NO_VALUE;
        ctx->demands[i].over = TD_NO_VALUE;
        ctx->binding_of[i] = -1;
    }
    treadle_status status = td_body_runs_new(ctx, err);
    if (status == TREADLE_OK) *out = ctx;
    else td_light_ctx_free(ctx);
    return status;
}

void td_light_interrupt(td_light_ctx *ctx, bool on) {
    atomic_store_explicit(&ctx->interrupted, on, memory_order_relaxed);
}

void td_light_ctx_free(td_light_ctx *ctx) {
    if (!ctx) return;
    const td_graph *g = &ctx->light->graph;
    ctx->broken = true;
    td_ctx_release(ctx);
    td_body_runs_free(ctx);
    td_blocks_trim(&ctx->blocks);
    td_vec_free(&ctx->kept);
    td_vec_free(&ctx->scratch_blocks);
    while (ctx->programs) {
        td_program *next = ctx->programs->next;
        td_program_free(ctx->programs);
        ctx->programs = next;
    }
    for (size_t i = 0; ctx->picks && i < g->n_outputs; i++) td_free(ctx->picks[i].positions);
    td_free_aligned(ctx->slab);
    td_arena_free(&ctx->arena);
    td_free(ctx);
}

treadle_status td_light_pick_rows(td_light_ctx *ctx, size_t output, const int64_t *positions, size_t batch, size_t n,
                                  int64_t seq, treadle_error *err) {
    if (!td_light_can_pick_rows(ctx->light, output))
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "positions of output %zu cannot be picked: it is not row-wise",
                       output);
    td_pick *pick = &ctx->picks[output];
    if (!positions) {
        pick->on = false;
        return TREADLE_OK;
    }
    size_t count;
    if (TD_MUL_OVERFLOWS(batch, n, &count) || count == 0)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "%zu rows of %zu positions to pick", batch, n);
    for (size_t i = 0; i < count; i++)
        if (positions[i] < 0 || positions[i] >= seq)
            return td_fail(err, TREADLE_INVALID_ARGUMENT, "position %lld was picked of a sequence of %lld",
                           (long long)positions[i], (long long)seq);
    if (count > pick->batch * pick->n || !pick->positions) {
        int64_t *grown = td_alloc_array(count, sizeof *grown);
        if (!grown) return td_fail_memory(err, "picked positions", count * sizeof *grown);
        td_free(pick->positions);
        pick->positions = grown;
    }
    memcpy(pick->positions, positions, count * sizeof *positions);
    pick->batch = batch;
    pick->n = n;
    pick->seq = seq;
    pick->on = true;
    return TREADLE_OK;
}
