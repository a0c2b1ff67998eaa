/* light/run_body.c - see body.h: bodies at run.
 *
 * Where a result lies decides who keeps it: a block of the body's ctx moves from the value to the formal that it feeds
 * (td_demand.moves sees to it that there is one); buffers and sequences are counted; what is a formal's stays with its
 * holder; captured values and constants outlive the node. All else is copied. */
#include "light/body.h"

#include "base/alloc.h"
#include "light/session.h"
#include "tensor/half.h"

/* --- run states */

/* Loop-carried results are kept in blocks that can be moved. */
static void mark_moving(const td_body *body, td_light_ctx *ctx) {
    const td_graph *g = &body->light.graph;
    for (size_t k = 0; body->feeds && k < g->n_outputs; k++) {
        int32_t root = body->feeds[k] == TD_NO_PORT ? TD_NO_VALUE : td_graph_root(g, g->outputs[k]);
        if (root == TD_NO_VALUE) continue;
        ctx->demands[root].moves = true;
        ctx->demands[root].never_over = true;
    }
}

/* Of a ctx and of those in it, which were made before it was known. */
static void set_outermost(td_light_ctx *ctx, td_light_ctx *outermost) {
    const td_graph *g = &ctx->light->graph;
    ctx->outermost = outermost;
    for (size_t i = 0; i < g->nodes.n; i++)
        for (size_t k = 0; k < g->nodes.items[i]->n_bodies; k++) set_outermost(ctx->bodies[i][k].ctx, outermost);
}

static treadle_status new_run(td_body_run *b, const td_body *body, td_light_ctx *outermost, treadle_error *err) {
    td_arena *arena = &outermost->arena;
    size_t n = body->n_formals;
    b->body = body;
    b->holds = TD_ARENA_ARRAY(arena, td_hold, n);
    b->next_holds = TD_ARENA_ARRAY(arena, td_hold, n);
    b->next = TD_ARENA_ARRAY(arena, td_value, n);
    b->scalars = TD_ARENA_ARRAY(arena, int64_t, n);
    b->through = TD_ARENA_ARRAY(arena, bool, body->light.graph.n_outputs);
    if (!b->holds || !b->next_holds || !b->next || !b->scalars || !b->through)
        return td_fail_memory(err, "a subgraph's context", n * sizeof *b->next);
    TD_TRY(td_light_ctx_new(&body->light, &b->ctx, err));
    set_outermost(b->ctx, outermost);
    mark_moving(body, b->ctx);
    return TREADLE_OK;
}

treadle_status td_body_runs_new(td_light_ctx *ctx, treadle_error *err) {
    const td_graph *g = &ctx->light->graph;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const td_node *node = g->nodes.items[i];
        if (!node->n_bodies) continue;
        ctx->bodies[i] = TD_ARENA_ARRAY(&ctx->arena, td_body_run, node->n_bodies);
        if (!ctx->bodies[i]) return td_fail_memory(err, "a subgraph's context", sizeof(td_body_run));
        for (size_t k = 0; k < node->n_bodies; k++) TD_TRY(new_run(&ctx->bodies[i][k], node->bodies[k], ctx, err));
    }
    return TREADLE_OK;
}

/* The formal is set no more. */
static void let_go(td_body_run *b, size_t formal) {
    td_hold *hold = &b->holds[formal];
    td_value *v = &b->ctx->values[b->body->light.graph.inputs[formal]];
    td_blocks_give(&b->ctx->blocks, hold->block);
    if (hold->owns) td_value_release(v);
    *hold = (td_hold){0};
}

void td_body_runs_free(td_light_ctx *ctx) {
    const td_graph *g = &ctx->light->graph;
    for (size_t i = 0; ctx->bodies && i < g->nodes.n; i++) {
        for (size_t k = 0; ctx->bodies[i] && k < g->nodes.items[i]->n_bodies; k++) {
            td_body_run *b = &ctx->bodies[i][k];
            if (!b->ctx) continue;
            for (size_t f = 0; f < b->body->n_formals; f++) let_go(b, f);
            td_light_ctx_free(b->ctx);
        }
    }
}

/* --- before a step */

treadle_status td_body_begin(td_run *r, size_t index, const bool *skip, td_body_run **out) {
    td_body_run *b = &r->ctx->bodies[r->ctx->step->node][index];
    const td_graph *g = &b->body->light.graph;
    td_light_ctx *ctx = b->ctx;
    b->caller = r;
    td_ctx_release(ctx);
    for (size_t f = 0; f < b->body->n_formals; f++) let_go(b, f);
    for (size_t i = b->body->n_formals; i < g->n_inputs; i++)
        if (td_graph_value(g, g->inputs[i])->port != TD_NO_PORT)
            ctx->values[g->inputs[i]] = *r->in_values[b->body->first_captured + i - b->body->n_formals];
    ctx->program = td_program_find(ctx, skip, r->err);
    *out = b;
    return ctx->program ? TREADLE_OK : TREADLE_OUT_OF_MEMORY;
}

void td_body_set(td_body_run *b, size_t formal, const td_value *value) {
    let_go(b, formal);
    b->ctx->values[b->body->light.graph.inputs[formal]] = *value;
}

void td_body_set_scalar(td_body_run *b, size_t formal, td_dtype dtype, int rank, int64_t value) {
    td_value *v = &b->ctx->values[b->body->light.graph.inputs[formal]];
    let_go(b, formal);
    b->holds[formal].scalar = true;
    v->kind = TD_VALUE_TENSOR;
    td_tensor_view(&v->tensor, dtype, &(td_shape){.rank = rank, .dims = {1}}, &b->scalars[formal]);
    td_store_i64(dtype, v->tensor.data, 0, value);
}

void td_body_bind(td_body_run *b, size_t k, const td_tensor *to) {
    b->ctx->bindings[k].to = *to;
    b->ctx->bindings[k].aliases = TD_ALIAS_NONE;
    b->through[k] = false;
}

/* The bound memory is also an input of the session: which of the body's inputs lies there. It must be alone and the
 * last to be read, so that the body may do with both as if it were the session. */
static int32_t find_alias(td_body_run *b, const td_binding *outer_binding) {
    const td_light_ctx *outer = b->caller->ctx;
    const td_graph *g = &b->body->light.graph;
    int32_t found = TD_ALIAS_OVERLAPS;
    if (outer_binding->aliases == TD_ALIAS_OVERLAPS) return TD_ALIAS_OVERLAPS;
    td_extent span = outer->input_extents[outer_binding->aliases];
    if (outer->program->last[outer->light->graph.inputs[outer_binding->aliases]] > (int32_t)outer->step->index)
        return TD_ALIAS_OVERLAPS;
    for (size_t i = 0; i < g->n_inputs; i++) {
        const td_value *v = &b->ctx->values[g->inputs[i]];
        uintptr_t data = v->kind == TD_VALUE_TENSOR ? (uintptr_t)v->tensor.data : 0;
        if (td_graph_value(g, g->inputs[i])->port == TD_NO_PORT || data < span.begin || data >= span.end) continue;
        if (found != TD_ALIAS_OVERLAPS) return TD_ALIAS_OVERLAPS;
        found = (int32_t)i;
        b->ctx->input_extents[i] = span;
    }
    return found;
}

/* Positions that are asked of what will be output i of the node are asked of output k. */
static void hand_on_pick(td_body_run *b, size_t k, size_t i) {
    const td_pick_mark *marks = b->body->light.pick_marks;
    const td_light_ctx *outer = b->caller->ctx;
    const td_graph *g = &outer->light->graph;
    if (!marks || marks[k] == TD_PICK_NEVER) return;
    for (size_t o = 0; o < g->n_outputs; o++)
        if (g->outputs[o] == outer->step->out[i]) b->ctx->picked[k] = outer->picked[o];
}

void td_body_bind_through(td_body_run *b, size_t k, size_t i) {
    const td_light_ctx *outer = b->caller->ctx;
    int32_t id = outer->step->out[i];
    hand_on_pick(b, k, i);
    int32_t bound = id == TD_NO_VALUE ? -1 : outer->binding_of[id];
    if (bound < 0) return;
    const td_binding *binding = &outer->bindings[bound];
    td_body_bind(b, k, &binding->to);
    b->ctx->bindings[k].aliases = binding->aliases == TD_ALIAS_NONE ? TD_ALIAS_NONE : find_alias(b, binding);
    b->through[k] = true;
}

/* --- a step */

/* Bound outputs that their producers could not write in place. */
static treadle_status deliver(td_body_run *b) {
    const td_graph *g = &b->body->light.graph;
    for (size_t k = 0; k < g->n_outputs; k++) {
        const td_binding *binding = &b->ctx->bindings[k];
        if (!binding->to.data || b->through[k]) continue;
        const td_value *v = &b->ctx->values[g->outputs[k]];
        if (v->kind != TD_VALUE_TENSOR || v->tensor.dtype != binding->to.dtype ||
            !td_shape_equal(&v->tensor.shape, &binding->to.shape)) {
            char found[192], wanted[192];
            td_value_describe(v, found, sizeof found);
            td_value_describe(&(td_value){.kind = TD_VALUE_TENSOR, .tensor = binding->to}, wanted, sizeof wanted);
            return td_run_fail(b->caller, "\"%.*s\" of its subgraph is %s; in the first iteration it was %s",
                               TD_STR_ARGS(td_graph_value(g, g->outputs[k])->name), found, wanted);
        }
        if (!binding->direct) td_tensor_copy(&binding->to, &v->tensor);
    }
    return TREADLE_OK;
}

static treadle_status may_step(td_light_ctx *ctx, treadle_error *err) {
    uint64_t most = ctx->light->options.max_steps;
    if (TD_UNLIKELY(++ctx->outermost->n_steps > most && most))
        return td_fail(err, TREADLE_LIMIT, "subgraphs ran more than %llu times", (unsigned long long)most);
    return TD_UNLIKELY(td_ctx_interrupted(ctx)) ? td_fail(err, TREADLE_CANCELLED, "cancelled") : TREADLE_OK;
}

/* However it ends, no binding outlives it: the memory belongs to the caller's run (a cancel that left
 * one: tests/api/test_parity.py). */
treadle_status td_body_step(td_body_run *b) {
    const td_graph *g = &b->body->light.graph;
    td_light_ctx *ctx = b->ctx;
    td_ctx_release(ctx);
    for (size_t k = 0; k < g->n_outputs; k++) ctx->bindings[k].direct = false;
    for (size_t k = g->n_outputs; k-- > 0;) /* a value that is several outputs: the first is written directly */
        if (ctx->bindings[k].to.data) ctx->binding_of[g->outputs[k]] = (int32_t)k;
    treadle_status status = may_step(ctx, b->caller->err);
    if (status == TREADLE_OK) status = td_ctx_plan(ctx, b->caller->err);
    if (status == TREADLE_OK) status = td_ctx_steps(ctx, b->caller->err);
    if (status == TREADLE_OK) status = deliver(b);
    for (size_t k = 0; k < g->n_outputs; k++) {
        ctx->binding_of[g->outputs[k]] = -1;
        ctx->bindings[k].to.data = NULL;
    }
    return status;
}

const td_value *td_body_result(const td_body_run *b, size_t k) {
    return &b->ctx->values[b->body->light.graph.outputs[k]];
}

/* --- from one iteration to the next */

static treadle_status copy_value(td_body_run *b, const td_value *from, td_value *to, td_hold *hold) {
    size_t bytes;
    *to = (td_value){.kind = TD_VALUE_NONE};
    if (from->tensor.dtype == TD_STRING) { /* with the bytes that they point to */
        hold->owns = td_value_copy(to, from);
        return hold->owns ? TREADLE_OK : td_fail_memory(b->caller->err, "a loop's value", 0);
    }
    hold->block = td_tensor_bytes(&from->tensor, &bytes) ? td_blocks_take(&b->ctx->blocks, bytes) : NULL;
    if (!hold->block) return td_fail_memory(b->caller->err, "a loop's value", bytes);
    to->kind = TD_VALUE_TENSOR;
    td_tensor_view(&to->tensor, from->tensor.dtype, &from->tensor.shape, hold->block);
    to->tensor.buffer = NULL;
    td_tensor_copy(&to->tensor, &from->tensor);
    return TREADLE_OK;
}

/* Output k as it is to be in the next iteration: *to and what holds it. */
static treadle_status take(td_body_run *b, size_t k, td_value *to, td_hold *hold) {
    const td_graph *g = &b->body->light.graph;
    td_light_ctx *ctx = b->ctx;
    const td_value *v = &ctx->values[g->outputs[k]];
    int32_t owner = ctx->places[g->outputs[k]].owner;
    *hold = (td_hold){0};
    *to = *v;
    if (v->kind == TD_VALUE_NONE) return TREADLE_OK;
    if (v->kind == TD_VALUE_SEQUENCE) {
        td_sequence_retain(v->sequence);
        hold->owns = true;
        return TREADLE_OK;
    }
    if (owner < 0 && !v->tensor.buffer) return copy_value(b, v, to, hold);
    td_buffer *buffer = v->tensor.buffer ? v->tensor.buffer : ctx->values[owner].tensor.buffer;
    to->tensor.buffer = td_buffer_retain(buffer);
    hold->owns = buffer != NULL;
    if (buffer) return TREADLE_OK;
    int32_t port = td_graph_value(g, owner)->port;
    if (ctx->program->defined[owner] < 0) { /* a formal, a captured value, a constant */
        if (port == TD_NO_PORT || (size_t)port >= b->body->n_formals) return TREADLE_OK;
        td_hold *from = &b->holds[port];
        if (from->moved || from->scalar) return copy_value(b, v, to, hold);
        hold->block = from->block;
        from->moved = from->block != NULL;
        from->block = NULL;
        return TREADLE_OK;
    }
    if (!ctx->places[owner].block || v->tensor.dtype == TD_STRING) return copy_value(b, v, to, hold);
    hold->block = ctx->places[owner].block;
    ctx->places[owner].block = NULL;
    ctx->n_held--;
    return TREADLE_OK;
}

treadle_status td_body_carry(td_body_run *b, size_t first_output, size_t first_formal, size_t n) {
    const td_graph *g = &b->body->light.graph;
    treadle_status status = TREADLE_OK;
    size_t n_taken = 0;
    while (n_taken < n && status == TREADLE_OK) {
        status = take(b, first_output + n_taken, &b->next[n_taken], &b->next_holds[n_taken]);
        n_taken++;
    }
    for (size_t i = 0; i < n; i++) let_go(b, first_formal + i);
    for (size_t i = 0; i < n_taken; i++) { /* after a failure too: they are let go with the next run */
        b->ctx->values[g->inputs[first_formal + i]] = b->next[i];
        b->holds[first_formal + i] = b->next_holds[i];
    }
    return status;
}

/* --- to the node's outputs */

/* `from` lies in memory that lasts until the node runs again. */
static void lend(td_run *r, size_t i, const td_value *from) {
    int32_t id = r->ctx->step->out[i];
    *r->out_values[i] = td_value_share(from);
    r->ctx->places[id].owner = TD_NO_VALUE;
}

/* Memory of the node's own inputs lasts as long as liveness says, which knows of it only if it may be passed. */
static bool is_lasting(const td_body_run *b, const td_tensor *t, int32_t owner) {
    const td_graph *g = &b->body->light.graph;
    if (owner == TD_BOUND) return false; /* to a slice of another output */
    if (owner == TD_NO_VALUE || b->ctx->program->defined[owner] >= 0) return true;
    int32_t port = td_graph_value(g, owner)->port;
    if (td_dtype_bits(t->dtype) < 8) return false; /* slices of parts of bytes are copies of Scan's */
    if (port == TD_NO_PORT || td_node_may_pass(b->caller->node)) return true;
    return (size_t)port < b->body->n_formals && (b->holds[port].block || b->holds[port].owns || b->holds[port].scalar);
}

static treadle_status give(td_body_run *b, const td_value *from, int32_t owner, size_t i) {
    td_run *r = b->caller;
    if (r->ctx->step->out[i] == TD_NO_VALUE) return TREADLE_OK;
    if (from->kind == TD_VALUE_TENSOR && !from->tensor.buffer && !is_lasting(b, &from->tensor, owner)) {
        TD_TRY(td_run_alloc(r, i, from->tensor.dtype, &from->tensor.shape));
        td_tensor_copy(r->out[i], &from->tensor);
        return TREADLE_OK;
    }
    lend(r, i, from);
    return TREADLE_OK;
}

treadle_status td_body_give_output(td_body_run *b, size_t k, size_t i) {
    td_light_ctx *outer = b->caller->ctx;
    int32_t inner = b->body->light.graph.outputs[k], id = outer->step->out[i];
    bool there = b->through[k] && b->ctx->bindings[k].direct;
    b->through[k] = false;
    if (!there) return give(b, &b->ctx->values[inner], b->ctx->places[inner].owner, i);
    lend(b->caller, i, &b->ctx->values[inner]);
    outer->places[id].owner = TD_BOUND;
    outer->bindings[outer->binding_of[id]].direct = true;
    return TREADLE_OK;
}

treadle_status td_body_give_formal(td_body_run *b, size_t k, size_t i) {
    int32_t id = b->body->light.graph.inputs[k];
    return give(b, &b->ctx->values[id], id, i);
}
