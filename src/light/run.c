/* light/run.c - one run: bind inputs and outputs, walk the steps, hand out the results.
 *
 * A bound output is written by its producer at once where that is safe (run_memory.c, bind_direct); else it is
 * computed in the ctx's memory and copied when all nodes have run, so that nothing that still reads an input in
 * the same memory is disturbed. */
#include "light/session.h"

#include "base/alloc.h"
#include "base/time.h"

#include <stdio.h>

/* --- the caller's values */

static treadle_status bad_port(const td_light_port *port, const char *what, const td_value *v, const char *text,
                               treadle_error *err) {
    char found[192], shape[128];
    td_value_describe(v, found, sizeof found);
    return td_fail(err, TREADLE_INVALID_ARGUMENT, "%s \"%.*s\" is %s; %s %s%s", what, TD_STR_ARGS(port->name), found,
                   text, td_dtype_name(port->dtype), td_shape_text(&port->shape, shape));
}

static treadle_status check_items(const td_light_port *port, const td_value *v, treadle_error *err) {
    for (size_t i = 0; i < v->sequence->n; i++) {
        const td_value *item = &v->sequence->items[i];
        if (item->kind == TD_VALUE_TENSOR && item->tensor.data && td_shape_known(&item->tensor.shape) &&
            (item->tensor.dtype == port->dtype || port->dtype == TD_UNDEFINED))
            continue;
        char found[192];
        td_value_describe(item, found, sizeof found);
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "item %zu of input \"%.*s\" is %s; expected %s", i,
                       TD_STR_ARGS(port->name), found, td_dtype_name(port->dtype));
    }
    return TREADLE_OK;
}

static treadle_status check_input(const td_light_port *port, const td_value *v, treadle_error *err) {
    if (v->kind == TD_VALUE_NONE) {
        if (port->optional) return TREADLE_OK;
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "input \"%.*s\" is not given", TD_STR_ARGS(port->name));
    }
    bool sequence = port->kind == TD_ONNX_TYPE_SEQUENCE;
    if (sequence != (v->kind == TD_VALUE_SEQUENCE)) return bad_port(port, "input", v, "expected", err);
    if (sequence) return check_items(port, v, err);
    const td_tensor *t = &v->tensor;
    if (t->dtype != port->dtype && port->dtype != TD_UNDEFINED) return bad_port(port, "input", v, "expected", err);
    if (!t->data || !td_shape_known(&t->shape)) return bad_port(port, "input", v, "it has no data; expected", err);
    if (port->shape.rank < 0) return TREADLE_OK;
    if (t->shape.rank != port->shape.rank) return bad_port(port, "input", v, "expected", err);
    for (int d = 0; d < t->shape.rank; d++)
        if (port->shape.dims[d] >= 0 && port->shape.dims[d] != t->shape.dims[d])
            return bad_port(port, "input", v, "expected", err);
    return TREADLE_OK;
}

/* Bytes that a strided tensor spans, from its first to past its last element. */
static td_extent extent(const td_tensor *t) {
    td_extent e = {(uintptr_t)t->data, (uintptr_t)t->data};
    int64_t last = 0;
    for (int d = 0; d < t->shape.rank; d++) {
        if (t->shape.dims[d] == 0) return e;
        last += (t->shape.dims[d] - 1) * t->strides[d];
    }
    e.end += ((size_t)(last + 1) * (size_t)td_dtype_bits(t->dtype) + 7) / 8;
    return e;
}

static treadle_status bind_inputs(td_light_ctx *ctx, const td_value *inputs, treadle_error *err) {
    const td_graph *g = &ctx->light->graph;
    for (size_t i = 0; i < g->n_inputs; i++) {
        int32_t id = g->inputs[i];
        td_value *v = &ctx->values[id];
        TD_TRY(check_input(&ctx->light->inputs[i], &inputs[i], err));
        const td_tensor *fallback = td_graph_value(g, id)->fallback;
        if (inputs[i].kind == TD_VALUE_NONE && fallback) *v = (td_value){.kind = TD_VALUE_TENSOR, .tensor = *fallback};
        else *v = inputs[i];
        ctx->input_extents[i] = inputs[i].kind == TD_VALUE_TENSOR ? extent(&inputs[i].tensor) : (td_extent){0, 0};
    }
    return TREADLE_OK;
}

static treadle_status bind_outputs(td_light_ctx *ctx, const td_value *inputs, const td_value *outputs,
                                   treadle_error *err) {
    const td_graph *g = &ctx->light->graph;
    bool sorted = false;
    for (size_t i = 0; i < g->n_outputs; i++) {
        td_binding *b = &ctx->bindings[i];
        int32_t id = g->outputs[i];
        const td_value *to = &outputs[i];
        b->to.data = NULL;
        b->direct = false;
        ctx->binding_of[id] = -1;
        if (ctx->program->skip[i] || to->kind == TD_VALUE_NONE) continue;
        const td_light_port *port = &ctx->light->outputs[i];
        if (to->kind != TD_VALUE_TENSOR || port->kind == TD_ONNX_TYPE_SEQUENCE || !to->tensor.data)
            return bad_port(port, "the memory bound to output", to, "only tensors can be bound; this one is", err);
        if (!td_shape_known(&to->tensor.shape) || (port->dtype != TD_UNDEFINED && to->tensor.dtype != port->dtype))
            return bad_port(port, "the memory bound to output", to, "expected", err);
        b->to = to->tensor;
        if (!sorted) td_alias_begin(ctx);
        sorted = true;
        b->aliases = td_alias_find(ctx, inputs, &b->to, extent(&b->to));
    }
    for (size_t i = g->n_outputs; i-- > 0;) /* a value that is several outputs: the first is written directly */
        if (ctx->bindings[i].to.data) ctx->binding_of[g->outputs[i]] = (int32_t)i;
    return TREADLE_OK;
}

/* --- steps */

static void refresh_presence(td_step *step) {
    for (uint32_t i = 0; i < step->n_in; i++) {
        const td_value *v = step->run.in_values[i];
        step->in_tensors[i] = v->kind == TD_VALUE_TENSOR ? &v->tensor : NULL;
    }
}

static treadle_status make_dense(td_light_ctx *ctx, td_step *step, treadle_error *err) {
    for (uint32_t i = 0; i < step->n_in; i++) {
        if (!(step->in_flags[i] & TD_INPUT_DENSE)) continue;
        const td_value *v = step->run.in_values[i];
        if (!(step->flags & TD_STEP_ABSENT)) step->in_tensors[i] = step->own_tensors[i];
        if (v->kind != TD_VALUE_TENSOR || td_tensor_is_dense(&v->tensor)) continue;
        size_t bytes;
        if (!td_tensor_bytes(&v->tensor, &bytes)) return td_fail_memory(err, "a dense copy", SIZE_MAX);
        void *memory = td_run_scratch_in(ctx, step, bytes);
        if (!memory) return td_fail_memory(err, "a dense copy", bytes);
        td_tensor_view(&step->dense[i], v->tensor.dtype, &v->tensor.shape, memory);
        td_tensor_copy(&step->dense[i], &v->tensor);
        step->in_tensors[i] = &step->dense[i];
    }
    return TREADLE_OK;
}

/* What a TD_OP_VALUES op left: references that the ctx now holds, and outputs it forgot. */
static treadle_status take_values(td_light_ctx *ctx, td_step *step, treadle_status status) {
    for (uint32_t k = 0; k < step->n_out; k++) {
        if (step->out[k] == TD_NO_VALUE) continue;
        td_value *v = &ctx->values[step->out[k]];
        if (v->kind != TD_VALUE_SEQUENCE) v->sequence = NULL;
        if (v->kind != TD_VALUE_TENSOR) v->tensor.buffer = NULL;
        if (v->sequence || v->tensor.buffer) {
            ctx->n_held++;
            ctx->places[step->out[k]].owner = TD_NO_VALUE;
        }
        if (status != TREADLE_OK) continue;
        const td_ir_value *known = td_graph_value(&ctx->light->graph, step->out[k]);
        if (v->kind == TD_VALUE_TENSOR ? !v->tensor.data : v->kind == TD_VALUE_NONE && !known->may_be_absent)
            status = td_run_fail(&step->run, "output %u was not made", k);
        else if (v->kind != TD_VALUE_NONE && v->kind != known->type.kind)
            status = td_run_fail(&step->run, "output %u is of another kind than known at open", k);
        else if (v->kind == TD_VALUE_TENSOR && v->tensor.dtype != known->type.tensor.dtype)
            status = td_run_fail(&step->run, "output %u is %s where %s was known at open", k,
                                 td_dtype_name(v->tensor.dtype), td_dtype_name(known->type.tensor.dtype));
    }
    return status;
}

static treadle_status run_step(td_light_ctx *ctx, td_step *step, treadle_error *err) {
    ctx->step = step;
    step->infer.err = step->run.err = err;
    if (TD_UNLIKELY(step->flags & TD_STEP_ABSENT)) refresh_presence(step);
    TD_TRY(step->impl->infer(&step->infer));
    if (TD_UNLIKELY(step->flags & TD_STEP_DENSE)) TD_TRY(make_dense(ctx, step, err));
    if (TD_UNLIKELY(step->flags & (TD_STEP_VIEW | TD_STEP_VALUES))) {
        for (uint32_t k = 0; k < step->n_out; k++)
            if (step->out[k] != TD_NO_VALUE) step->run.out[k]->data = NULL;
    } else {
        for (uint32_t k = 0; k < step->n_out; k++)
            if (step->out[k] != TD_NO_VALUE) TD_TRY(td_run_place(ctx, step, k, err));
    }
    treadle_status status = step->impl->run(&step->run);
    if (TD_UNLIKELY(step->flags & TD_STEP_VALUES)) status = take_values(ctx, step, status);
    return status;
}

static void end_step(td_light_ctx *ctx, td_step *step) {
    if (TD_UNLIKELY(ctx->scratch_used)) td_run_scratch_end(ctx, step);
    if (TD_UNLIKELY(ctx->n_held))
        for (uint32_t i = 0; i < step->n_deaths; i++) td_run_release_value(ctx, step->deaths[i]);
}

/* Says where, if the op has not. */
static void name_step(const td_step *step, treadle_error *err) {
    char where[320];
    if (!err) return;
    td_node_describe(step->infer.node, where, sizeof where);
    if (!strstr(err->message, where)) td_error_context(err, "%s", where);
}

bool td_ctx_interrupted(const td_light_ctx *ctx) {
    return atomic_load_explicit(&ctx->outermost->interrupted, memory_order_relaxed);
}

static treadle_status run_unless_interrupted(td_light_ctx *ctx, td_step *step, treadle_error *err) {
    if (TD_UNLIKELY(td_ctx_interrupted(ctx))) return td_fail(err, TREADLE_CANCELLED, "cancelled");
    return run_step(ctx, step, err);
}

treadle_status td_ctx_steps(td_light_ctx *ctx, treadle_error *err) {
    td_program *p = ctx->program;
    bool timed = ctx->node_ns != NULL;
    for (size_t s = 0; s < p->n_steps; s++) {
        td_step *step = &p->steps[s];
        uint64_t begin = timed ? td_time_ns() : 0;
        treadle_status status = run_unless_interrupted(ctx, step, err);
        if (timed) ctx->node_ns[step->node] += td_time_ns() - begin;
        end_step(ctx, step);
        if (TD_UNLIKELY(status != TREADLE_OK)) {
            if (status != TREADLE_CANCELLED) name_step(step, err);
            ctx->broken = true;
            return status;
        }
    }
    return TREADLE_OK;
}

/* --- results */

/* A deferred output that is (a view of) an input: saved before any other output is copied over it. */
static treadle_status save_foreign(td_light_ctx *ctx, td_tensor *t, treadle_error *err) {
    size_t bytes;
    td_tensor copy;
    if (!td_tensor_bytes(t, &bytes)) return td_fail_memory(err, "an output", SIZE_MAX);
    void *block = td_blocks_take(&ctx->blocks, bytes);
    if (!block || !td_vec_push(&ctx->kept, block)) {
        td_blocks_give(&ctx->blocks, block);
        return td_fail_memory(err, "an output", bytes);
    }
    td_tensor_view(&copy, t->dtype, &t->shape, block);
    td_tensor_copy(&copy, t);
    *t = copy;
    return TREADLE_OK;
}

/* It lies already where it is wanted. */
static bool is_bound_to(const td_tensor *t, const td_binding *b) {
    return t->data == b->to.data && td_same_strides(t, &b->to);
}

static treadle_status check_fits(const td_light_port *port, const td_value *v, const td_tensor *to,
                                 treadle_error *err) {
    char found[192], shape[128];
    bool fits = v->kind == TD_VALUE_TENSOR && v->tensor.dtype == to->dtype && v->tensor.shape.rank == to->shape.rank;
    for (int d = 0; fits && d < to->shape.rank; d++) fits = v->tensor.shape.dims[d] <= to->shape.dims[d];
    if (fits) return TREADLE_OK;
    td_value_describe(v, found, sizeof found);
    return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected output \"%.*s\" to fit into %s%s, found %s",
                   TD_STR_ARGS(port->name), td_dtype_name(to->dtype), td_shape_text(&to->shape, shape), found);
}

static treadle_status deliver(td_light_ctx *ctx, td_value *outputs, treadle_error *err) {
    const td_graph *g = &ctx->light->graph;
    size_t n_deferred = 0;
    for (size_t i = 0; i < g->n_outputs; i++) {
        if (ctx->program->skip[i]) continue;
        const td_binding *b = &ctx->bindings[i];
        if (!b->to.data) continue;
        TD_TRY(check_fits(&ctx->light->outputs[i], &ctx->values[g->outputs[i]], &b->to, err));
        n_deferred += !b->direct;
    }
    if (!n_deferred) goto shapes;
    for (size_t i = 0; i < g->n_outputs; i++) {
        td_binding *b = &ctx->bindings[i];
        if (ctx->program->skip[i] || !b->to.data || b->direct) continue;
        b->from = ctx->values[g->outputs[i]].tensor;
        int32_t owner = ctx->places[g->outputs[i]].owner;
        bool foreign = owner < 0 || ctx->program->defined[owner] < 0;
        if (n_deferred > 1 && foreign && !is_bound_to(&b->from, b)) TD_TRY(save_foreign(ctx, &b->from, err));
    }
    for (size_t i = 0; i < g->n_outputs; i++) {
        const td_binding *b = &ctx->bindings[i];
        if (ctx->program->skip[i] || !b->to.data || b->direct || is_bound_to(&b->from, b)) continue;
        td_tensor to = b->to;
        to.shape = b->from.shape;
        td_tensor_copy(&to, &b->from);
    }
shapes:
    for (size_t i = 0; i < g->n_outputs; i++) { /* only now: after a failure the caller's array is as it was */
        if (ctx->program->skip[i]) continue;
        if (ctx->bindings[i].to.data) outputs[i].tensor.shape = ctx->values[g->outputs[i]].tensor.shape;
        else outputs[i] = ctx->values[g->outputs[i]];
    }
    return TREADLE_OK;
}

/* What the last run left: its outputs end here. */
void td_ctx_release(td_light_ctx *ctx) {
    for (size_t i = 0; i < ctx->kept.n; i++) td_blocks_give(&ctx->blocks, ctx->kept.items[i]);
    ctx->kept.n = 0;
    if (ctx->n_held && !ctx->broken) {
        const td_program *p = ctx->program;
        for (size_t i = 0; i < p->n_survivors; i++) td_run_release_value(ctx, p->survivors[i]);
    } else if (ctx->n_held) {
        const td_graph *g = &ctx->light->graph;
        for (size_t i = 0; i < g->values.n; i++)
            if (td_graph_value(g, (int32_t)i)->producer != TD_NO_NODE) td_run_release_value(ctx, (int32_t)i);
    }
    ctx->broken = false;
}

treadle_status td_ctx_plan(td_light_ctx *ctx, treadle_error *err) {
    td_program *p = ctx->program;
    if (p->slots ? p->planned_for == ctx->demand_version : ctx->demand_version == 0) return TREADLE_OK;
    td_blocks_trim(&ctx->blocks);
    TD_TRY(td_program_plan(ctx, p, err));
    if (p->slab_bytes <= ctx->slab_bytes) return TREADLE_OK;
    td_free_aligned(ctx->slab);
    ctx->slab_bytes = 0;
    ctx->slab = td_alloc_aligned(p->slab_bytes);
    if (!ctx->slab) {
        for (td_program *q = ctx->programs; q; q = q->next) q->slots = q->scratch = NULL;
        return td_fail_memory(err, "the memory of a run", p->slab_bytes);
    }
    ctx->slab_bytes = p->slab_bytes;
    return TREADLE_OK;
}

/* Times of the last run, with those of the bodies. */
static void clear_times(td_light_ctx *ctx) {
    const td_graph *g = &ctx->light->graph;
    memset(ctx->node_ns, 0, g->nodes.n * sizeof *ctx->node_ns);
    for (size_t i = 0; i < g->nodes.n; i++)
        for (size_t k = 0; k < g->nodes.items[i]->n_bodies; k++) clear_times(ctx->bodies[i][k].ctx);
}

treadle_status td_light_run(td_light_ctx *ctx, const td_value *inputs, td_value *outputs, const bool *skip,
                            treadle_error *err) {
    td_ctx_release(ctx);
    ctx->program = td_program_find(ctx, skip, err);
    if (!ctx->program) return TREADLE_OUT_OF_MEMORY;
    TD_TRY(td_ctx_plan(ctx, err));
    TD_TRY(bind_inputs(ctx, inputs, err));
    TD_TRY(bind_outputs(ctx, inputs, outputs, err));
    if (ctx->node_ns) clear_times(ctx);
    ctx->n_steps = 0;
    TD_TRY(td_ctx_steps(ctx, err));
    return deliver(ctx, outputs, err);
}
