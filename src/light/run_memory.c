/* light/run_memory.c - memory during a run: outputs, views, scratch, releases (op.h), and how demands are learned. */
#include "light/session.h"

#include "base/alloc.h"
#include "tensor/half.h"

#include <stdarg.h>
#include <stdio.h>

static uint64_t nothing[8] TD_ALIGNED(64); /* what empty tensors point to: their data is never touched */

/* Dense strides and bytes. false: a dimension is unknown (*bytes 0) or the size overflows (*bytes 1). */
static bool measure(td_tensor *t, size_t *bytes) {
    int64_t count = 1;
    bool zero = false;
    for (int d = t->shape.rank - 1; d >= 0; d--) {
        int64_t n = t->shape.dims[d];
        t->strides[d] = count;
        if (TD_UNLIKELY(n <= 0)) {
            *bytes = 0;
            if (n < 0) return false;
            zero = true;
            continue;
        }
        *bytes = 1;
        if (TD_MUL_OVERFLOWS(count, n, &count)) return false;
    }
    if (TD_UNLIKELY(t->shape.rank < 0)) {
        *bytes = 0;
        return false;
    }
    size_t bits = (size_t)td_dtype_bits(t->dtype);
    *bytes = 1;
    if (TD_UNLIKELY(count > TD_MAX_COUNT)) return false;
    if (zero) count = 0;
    *bytes = ((size_t)count * bits + 7) / 8;
    return true;
}

static void learn(td_light_ctx *ctx, size_t *demand, size_t bytes) {
    if (*demand && bytes > *demand)
        bytes = TD_MAX(bytes, *demand + *demand / 2); /* it grows: with slack it will not be met at every step */
    *demand = TD_MAX(*demand, TD_ROUND_UP(TD_MAX(bytes, (size_t)1024), (size_t)64));
    ctx->demand_version++;
}

/* --- outputs of the graph in the caller's memory */

static bool strides_equal(const td_tensor *a, const td_tensor *b) {
    if (a->shape.rank != b->shape.rank) return false;
    for (int d = 0; d < a->shape.rank; d++)
        if (a->strides[d] != b->strides[d]) return false;
    return true;
}

static bool is_dense_as(const td_shape *shape, const int64_t *strides) {
    int64_t expected = 1;
    for (int d = shape->rank - 1; d >= 0; d--) {
        if (shape->dims[d] != 1 && strides[d] != expected) return false;
        expected *= shape->dims[d];
    }
    return true;
}

static bool is_over(const td_tensor *in, const td_binding *b) {
    return in && in->data == b->to.data && strides_equal(in, &b->to);
}

/* The op may make output k over the input whose memory the output is bound to. */
static bool may_alias(const td_light_ctx *ctx, const td_step *step, size_t k, const td_binding *b) {
    const td_op_impl *impl = step->impl;
    td_extent span = ctx->input_extents[b->aliases];

    if (impl->flags & TD_OP_EXTENDS)
        for (size_t i = 0; i < step->n_in; i++)
            if (is_over(step->in_tensors[i], b)) return true;
    if (!(impl->flags & TD_OP_OVERWRITES) || k != impl->overwriting_output || impl->overwritten_input >= step->n_in ||
        !is_over(step->in_tensors[impl->overwritten_input], b) ||
        ctx->program->last[ctx->light->graph.inputs[b->aliases]] > (int32_t)step->index)
        return false;
    for (size_t i = 0; i < step->n_in; i++) {
        const td_tensor *in = step->in_tensors[i];
        bool inside = in && (uintptr_t)in->data >= span.begin && (uintptr_t)in->data < span.end;
        if (inside && i != impl->overwritten_input) return false;
    }
    return true;
}

/* Lets the producer write straight into the bound memory, if that is safe: see td_light_run. */
static bool bind_direct(const td_light_ctx *ctx, const td_step *step, size_t k, td_binding *b, td_tensor *t) {
    const td_shape *capacity = &b->to.shape;
    if (capacity->rank != t->shape.rank || b->to.dtype != t->dtype || b->aliases == TD_ALIAS_OVERLAPS) return false;
    for (int d = 0; d < capacity->rank; d++)
        if (t->shape.dims[d] > capacity->dims[d]) return false;
    bool dense = is_dense_as(&t->shape, b->to.strides);
    if (!dense && !(step->impl->flags & TD_OP_ANY_STRIDE) && !(k < 32 && step->impl->strided_outputs >> k & 1))
        return false;
    if (b->aliases >= 0 && !may_alias(ctx, step, k, b)) return false;
    t->data = b->to.data;
    if (!dense || b->aliases >= 0) memcpy(t->strides, b->to.strides, sizeof t->strides);
    b->direct = true;
    return true;
}

/* --- in place */

/* Takes over the memory of a dying input of the same size. false: there is none that may be taken. */
static bool take_over(td_light_ctx *ctx, td_step *step, int32_t id, td_tensor *t) {
    td_demand *demand = &ctx->demands[id];
    if (demand->never_over) return false;
    const td_slot *slots = ctx->program->slots;
    for (size_t i = 0; i < step->n_in; i++) {
        if (!(step->in_flags[i] & TD_INPUT_DIES)) continue;
        td_tensor *in = &ctx->values[step->in[i]].tensor;
        int32_t owner = ctx->places[step->in[i]].owner;
        if (owner < 0 || !in->data || !td_tensor_is_dense(in)) continue;
        /* One element for one: equal bytes alone could be a broadcast input of wider elements. */
        if (td_tensor_count(in) != td_tensor_count(t)) continue;
        if (in->dtype != t->dtype && td_dtype_bits(in->dtype) != td_dtype_bits(t->dtype)) continue;
        if (ctx->places[owner].block) {
            ctx->places[id].block = ctx->places[owner].block;
            ctx->places[owner].block = NULL;
            if (demand->over != owner) {
                demand->over = owner;
                ctx->demand_version++;
            }
        } else if (!slots || slots[id].group == TD_NO_VALUE || !slots[id].in_place ||
                   slots[owner].group != slots[id].group) {
            continue;
        }
        ctx->places[id].owner = id;
        t->data = in->data;
        return true;
    }
    if (demand->over != TD_NO_VALUE) { /* it was so once: now the two need memory of their own */
        demand->never_over = true;
        ctx->demand_version++;
    }
    return false;
}

static treadle_status too_large(td_step *step, td_tensor *t, treadle_error *err) {
    char shape[128], node[320];
    td_node_describe(step->infer.node, node, sizeof node);
    return td_fail(err, TREADLE_OUT_OF_MEMORY, "%s: an output of %s%s is too large", node, td_dtype_name(t->dtype),
                   td_shape_text(&t->shape, shape));
}

/* Memory from the plan, else a block. */
static treadle_status place_own(td_light_ctx *ctx, td_step *step, int32_t id, td_tensor *t, size_t bytes,
                                treadle_error *err) {
    const td_slot *slot = ctx->program->slots ? &ctx->program->slots[id] : NULL;
    ctx->places[id].owner = id;
    if (TD_LIKELY(slot && bytes <= slot->capacity && !slot->in_place)) {
        t->data = ctx->slab + slot->offset;
        return TREADLE_OK;
    }
    if (bytes == 0) {
        t->data = nothing;
        return TREADLE_OK;
    }
    void *block = td_blocks_take(&ctx->blocks, bytes);
    if (!block) {
        treadle_status status = too_large(step, t, err);
        return bytes > ((size_t)1 << 46) ? status : td_fail_memory(err, "an output", bytes);
    }
    ctx->places[id].block = block;
    ctx->n_held++;
    if (bytes > ctx->demands[id].bytes && !ctx->demands[id].moves) learn(ctx, &ctx->demands[id].bytes, bytes);
    t->data = block;
    return TREADLE_OK;
}

treadle_status td_run_place(td_light_ctx *ctx, td_step *step, size_t k, treadle_error *err) {
    int32_t id = step->out[k];
    td_tensor *t = &ctx->values[id].tensor;
    size_t bytes;
    t->buffer = NULL;
    if (TD_UNLIKELY(!measure(t, &bytes))) {
        t->data = NULL;
        return bytes ? too_large(step, t, err) : TREADLE_OK; /* unknown: the op will say in its run */
    }
    int32_t bound = ctx->binding_of[id];
    if (TD_UNLIKELY(bound >= 0)) {
        ctx->bindings[bound].direct = false; /* an op may ask twice */
        if (bind_direct(ctx, step, k, &ctx->bindings[bound], t)) {
            ctx->places[id].owner = TD_BOUND;
            return TREADLE_OK;
        }
    }
    if ((step->flags & TD_STEP_INPLACE) && k == 0 && bytes && take_over(ctx, step, id, t)) return TREADLE_OK;
    return place_own(ctx, step, id, t, bytes, err);
}

void td_run_release_value(td_light_ctx *ctx, int32_t id) {
    td_place *place = &ctx->places[id];
    if (place->block) {
        td_blocks_give(&ctx->blocks, place->block);
        place->block = NULL;
        ctx->n_held--;
    }
    td_value *v = &ctx->values[id];
    if (v->sequence || v->tensor.buffer) {
        td_value_release(v);
        ctx->n_held--;
    }
}

/* --- what ops call */

treadle_status td_run_alloc(td_run *r, size_t i, td_dtype dtype, const td_shape *shape) {
    td_light_ctx *ctx = r->ctx;
    td_step *step = ctx->step;
    if (i >= step->n_out || step->out[i] == TD_NO_VALUE)
        return td_run_fail(r, "memory asked for output %zu, which nobody wants", i);
    td_value *v = &ctx->values[step->out[i]];
    if (ctx->places[step->out[i]].block) td_run_release_value(ctx, step->out[i]); /* asked for twice */
    v->kind = TD_VALUE_TENSOR;
    v->tensor.dtype = dtype;
    v->tensor.shape = *shape;
    TD_TRY(td_run_place(ctx, step, i, r->err));
    return v->tensor.data ? TREADLE_OK : td_run_fail(r, "output %zu still has unknown dimensions in its run", i);
}

treadle_status td_run_view(td_run *r, size_t i, size_t j, const td_tensor *view) {
    td_light_ctx *ctx = r->ctx;
    td_step *step = ctx->step;
    if (i >= step->n_out || step->out[i] == TD_NO_VALUE) return TREADLE_OK;
    td_value *v = &ctx->values[step->out[i]];
    if (!(step->flags & TD_STEP_VIEW) || j != 0 || step->in_tensors[0] != step->own_tensors[0]) {
        td_tensor from = *view; /* liveness does not know of such a view */
        TD_TRY(td_run_alloc(r, i, view->dtype, &view->shape));
        td_tensor_copy(&v->tensor, &from);
        return TREADLE_OK;
    }
    td_tensor copy = *view;
    int64_t count;
    if (TD_UNLIKELY(!td_shape_count(&view->shape, &count))) return too_large(step, &copy, r->err);
    v->kind = TD_VALUE_TENSOR;
    v->tensor = copy;
    v->tensor.buffer = NULL;
    ctx->places[step->out[i]].owner = ctx->places[step->in[0]].owner;
    return TREADLE_OK;
}

void *td_run_scratch_in(td_light_ctx *ctx, td_step *step, size_t bytes) {
    const td_slot *slot = ctx->program->scratch ? &ctx->program->scratch[step->index] : NULL;
    if (bytes > SIZE_MAX / 4) return NULL;
    size_t begin = ctx->scratch_used;
    ctx->scratch_used += TD_ROUND_UP(bytes, (size_t)64);
    if (slot && ctx->scratch_used <= slot->capacity) return ctx->slab + slot->offset + begin;
    if (bytes == 0) return nothing;
    void *block = td_blocks_take(&ctx->blocks, bytes);
    if (!block || !td_vec_push(&ctx->scratch_blocks, block)) {
        td_blocks_give(&ctx->blocks, block);
        return NULL;
    }
    return block;
}

void td_run_scratch_end(td_light_ctx *ctx, td_step *step) {
    for (size_t i = 0; i < ctx->scratch_blocks.n; i++) td_blocks_give(&ctx->blocks, ctx->scratch_blocks.items[i]);
    if (ctx->scratch_blocks.n && ctx->scratch_used > ctx->program->scratch_demand[step->index])
        learn(ctx, &ctx->program->scratch_demand[step->index], ctx->scratch_used);
    ctx->scratch_blocks.n = 0;
    ctx->scratch_used = 0;
}

void *td_run_scratch(td_run *r, size_t bytes) {
    void *memory = td_run_scratch_in(r->ctx, r->ctx->step, bytes);
    if (!memory) td_fail_memory(r->err, "scratch", bytes);
    return memory;
}

treadle_status td_run_widen(td_run *r, const td_tensor *t, const void **out) {
    *out = t ? t->data : NULL;
    if (!t || (t->dtype != TD_FLOAT16 && t->dtype != TD_BFLOAT16)) return TREADLE_OK;
    float *wide = td_run_scratch(r, (size_t)td_tensor_count(t) * sizeof *wide);
    if (!wide) return TREADLE_OUT_OF_MEMORY;
    td_to_f32(t->dtype, t->data, td_tensor_count(t), wide);
    *out = wide;
    return TREADLE_OK;
}

void *td_run_keep(td_run *r, size_t bytes) {
    td_light_ctx *ctx = r->ctx;
    void *block = td_blocks_take(&ctx->blocks, bytes);
    if (block && td_vec_push(&ctx->kept, block)) return block;
    td_blocks_give(&ctx->blocks, block);
    td_fail_memory(r->err, "strings", bytes);
    return NULL;
}

treadle_status td_run_fail(td_run *r, const char *format, ...) {
    char node[320], text[512], inputs[700] = "";
    size_t used = 0;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    td_node_describe(r->node, node, sizeof node);
    for (size_t i = 0; i < r->n_inputs && i < 6 && used < sizeof inputs; i++) {
        char one[192];
        td_value_describe(r->in_values[i], one, sizeof one);
        int more = snprintf(inputs + used, sizeof inputs - used, "%s%s", i ? ", " : "; inputs ", one);
        used += more > 0 ? (size_t)more : 0;
    }
    return td_fail(r->err, TREADLE_RUN, "%s: %s%s", node, text, inputs);
}
