/* pass/fold.c - constant folding: a node whose inputs are all constants is run at open, and Shape of a fully known
 * shape needs no running. Results larger than their inputs are kept only if small: weights are not to be unpacked. */
#include "base/alloc.h"
#include "light/pass.h"

enum { SMALL_BYTES = 1 << 16 };

static bool foldable(const td_graph *g, const td_node *node, size_t *in_bytes) {
    if (!node->op || node->op->impl->flags & (TD_OP_IMPURE | TD_OP_VALUES)) return false;
    *in_bytes = 0;
    for (size_t i = 0; i < node->n_in; i++) {
        size_t bytes;
        if (node->in[i] == TD_NO_VALUE) continue;
        if (!td_graph_is_constant(g, node->in[i])) return false;
        if (!td_tensor_bytes(&td_graph_value(g, node->in[i])->type.tensor, &bytes)) return false;
        *in_bytes += bytes;
    }
    return node->n_in > 0;
}

static bool fits(const td_tensor *t, size_t in_bytes) {
    size_t bytes;
    return td_tensor_bytes(t, &bytes) && bytes <= TD_MAX(in_bytes, (size_t)SMALL_BYTES);
}

/* What is known of the sizes before the run. */
static bool may_fit(const td_graph *g, const td_node *node, size_t in_bytes) {
    for (size_t k = 0; k < node->n_out; k++) {
        if (node->out[k] == TD_NO_VALUE) continue;
        const td_value *type = &td_graph_value(g, node->out[k])->type;
        if (type->kind != TD_VALUE_TENSOR || type->tensor.dtype == TD_STRING) return false;
        if (td_shape_known(&type->tensor.shape) && !fits(&type->tensor, in_bytes)) return false;
    }
    return true;
}

/* A graph of this node alone: its inputs as constants, its outputs as the graph's. */
static td_node *isolate(td_pass_ctx *p, const td_node *node, td_light *alone) {
    td_graph *g = &alone->graph;
    g->arena = &alone->arena;
    td_node *copy = td_graph_new_node(g, node->n_in, node->n_out);
    g->outputs = TD_ARENA_ARRAY(g->arena, int32_t, node->n_out);
    if (!copy || !g->outputs) return NULL;
    copy->name = node->name;
    copy->domain = node->domain;
    copy->op_type = node->op_type;
    copy->opset = node->opset;
    copy->op = node->op;
    copy->attrs = node->attrs;
    copy->n_attrs = node->n_attrs;
    for (size_t i = 0; i < node->n_in; i++) {
        if (node->in[i] == TD_NO_VALUE) continue;
        const td_ir_value *v = td_graph_value(p->graph, node->in[i]);
        copy->in[i] = td_graph_add_constant(g, v->name, &v->type.tensor);
        if (copy->in[i] == TD_NO_VALUE) return NULL;
    }
    for (size_t k = 0; k < node->n_out; k++) {
        if (node->out[k] == TD_NO_VALUE || !td_graph_value(p->graph, node->out[k])->n_uses) continue;
        copy->out[k] = td_graph_add_value(g, td_graph_value(p->graph, node->out[k])->name);
        if (copy->out[k] == TD_NO_VALUE) return NULL;
        g->outputs[g->n_outputs++] = copy->out[k];
    }
    if (!td_vec_push(&g->nodes, copy)) return NULL;
    td_graph_recount(g);
    alone->outputs = TD_ARENA_ARRAY(&alone->arena, td_light_port, node->n_out);
    return alone->outputs ? copy : NULL;
}

/* The outputs become constants; *folded false: one of them is too large after all. */
static treadle_status adopt(td_pass_ctx *p, td_node *node, const td_value *results, size_t in_bytes, bool *folded) {
    *folded = false;
    for (size_t k = 0, i = 0; k < node->n_out; k++) {
        if (node->out[k] == TD_NO_VALUE || !td_graph_value(p->graph, node->out[k])->n_uses) continue;
        const td_value *v = &results[i++];
        if (v->kind != TD_VALUE_TENSOR || v->tensor.dtype == TD_STRING || !fits(&v->tensor, in_bytes))
            return TREADLE_OK;
    }
    for (size_t k = 0, i = 0; k < node->n_out; k++) {
        if (node->out[k] == TD_NO_VALUE || !td_graph_value(p->graph, node->out[k])->n_uses) continue;
        const td_tensor *from = &results[i++].tensor;
        size_t bytes;
        if (!td_tensor_bytes(from, &bytes)) return td_fail_memory(p->err, "a folded constant", SIZE_MAX);
        void *memory = td_arena_alloc(&p->light->arena, bytes, 64);
        if (!memory) return td_fail_memory(p->err, "a folded constant", bytes);
        td_ir_value *v = td_graph_value(p->graph, node->out[k]);
        v->type.kind = TD_VALUE_TENSOR;
        td_tensor_view(&v->type.tensor, from->dtype, &from->shape, memory);
        td_tensor_copy(&v->type.tensor, from);
    }
    *folded = true;
    return TREADLE_OK;
}

static treadle_status fold_by_running(td_pass_ctx *p, td_node *node, size_t in_bytes, bool *folded) {
    td_light alone = {.pool = p->light->pool};
    td_light_ctx *ctx = NULL;
    td_resolver r = {.graph = &alone.graph,
                     .arena = &alone.arena,
                     .mode = TD_RESOLVE_FINAL,
                     .packs = &alone.packs,
                     .activations = p->light->options.activations};
    td_value *results = td_alloc_zero(node->n_out + 1, sizeof *results);
    treadle_status status = TREADLE_OK;
    treadle_error run_error = {0};
    *folded = false;
    if (!results || !isolate(p, node, &alone)) {
        status = td_fail_memory(p->err, "constant folding", 0);
        goto cleanup;
    }
    TD_TRY_GOTO(td_resolve_node(&r, alone.graph.nodes.items[0], p->err), cleanup);
    if (r.complaints.n) goto cleanup;
    TD_TRY_GOTO(td_light_ctx_new(&alone, &ctx, p->err), cleanup);
    /* A node that fails on its constants fails when it is run, if ever it is: not here. */
    status = td_light_run(ctx, NULL, results, NULL, &run_error);
    if (status == TREADLE_OK) status = adopt(p, node, results, in_bytes, folded);
    else if (status != TREADLE_OUT_OF_MEMORY) status = TREADLE_OK;
    else if (p->err) *p->err = run_error;
cleanup:
    td_light_ctx_free(ctx);
    td_resolve_release(&alone.graph);
    td_resolver_free(&r);
    td_graph_free(&alone.graph);
    td_packs_free(&alone.packs);
    td_arena_free(&alone.arena);
    td_free(results);
    return status;
}

/* Shape of a value whose dimensions are all numbers. */
static treadle_status fold_shape(td_pass_ctx *p, td_node *node, bool *folded) {
    *folded = false;
    const td_shape *shape = &td_graph_value(p->graph, node->in[0])->type.tensor.shape;
    if (!td_shape_known(shape) || td_graph_value(p->graph, node->in[0])->type.kind != TD_VALUE_TENSOR)
        return TREADLE_OK;
    int64_t begin = 0, end = shape->rank;
    for (size_t i = 0; i < node->n_attrs; i++) {
        int64_t at = TD_MIN(TD_MAX(node->attrs[i].i, -(int64_t)shape->rank), (int64_t)shape->rank);
        if (at < 0) at += shape->rank;
        if (td_str_is(node->attrs[i].name, "start")) begin = at;
        if (td_str_is(node->attrs[i].name, "end")) end = at;
    }
    int64_t n = TD_MAX(end - begin, 0);
    int64_t *data = TD_ARENA_ARRAY(&p->light->arena, int64_t, (size_t)n);
    if (!data) return td_fail_memory(p->err, "a folded constant", (size_t)n * sizeof *data);
    for (int64_t i = 0; i < n; i++) data[i] = shape->dims[begin + i];
    td_ir_value *v = td_graph_value(p->graph, node->out[0]);
    v->type.kind = TD_VALUE_TENSOR;
    td_tensor_view(&v->type.tensor, TD_INT64, &(td_shape){.rank = 1, .dims = {n}}, data);
    *folded = true;
    return TREADLE_OK;
}

/* OptionalHasElement of what is there in every run, or in none. */
static treadle_status fold_presence(td_pass_ctx *p, td_node *node, bool *folded) {
    bool there = node->n_in > 0 && node->in[0] != TD_NO_VALUE;
    *folded = false;
    if (there && td_graph_value(p->graph, node->in[0])->may_be_absent) return TREADLE_OK;
    bool *data = TD_ARENA_NEW(&p->light->arena, bool);
    if (!data) return td_fail_memory(p->err, "a folded constant", sizeof *data);
    *data = there;
    td_ir_value *v = td_graph_value(p->graph, node->out[0]);
    v->type.kind = TD_VALUE_TENSOR;
    td_tensor_view(&v->type.tensor, TD_BOOL, &(td_shape){.rank = 0}, data);
    *folded = true;
    return TREADLE_OK;
}

treadle_status td_pass_fold(td_pass_ctx *p) {
    size_t n = p->graph->values.n;
    bool *refined = TD_ARENA_ARRAY(p->resolver->arena, bool, n);
    return refined ? td_pass_fold_more(p, refined) : td_fail_memory(p->err, "constant folding", n);
}

treadle_status td_pass_fold_more(td_pass_ctx *p, bool *refined) {
    td_graph *g = p->graph;
    for (size_t i = 0; i < g->nodes.n; i++) {
        td_node *node = g->nodes.items[i];
        bool folded = false, tells_more = false;
        size_t in_bytes;
        if (node->removed || !node->op || node->n_out == 0 || node->out[0] == TD_NO_VALUE) continue;
        for (size_t k = 0; k < node->n_in; k++) tells_more |= node->in[k] != TD_NO_VALUE && refined[node->in[k]];
        if (tells_more) TD_TRY(td_pass_resolve(p, node));
        if (td_node_is(node, "", "Shape") && node->n_in == 1 && node->in[0] != TD_NO_VALUE)
            TD_TRY(fold_shape(p, node, &folded));
        else if (td_node_is(node, "", "OptionalHasElement")) TD_TRY(fold_presence(p, node, &folded));
        else if (foldable(g, node, &in_bytes) && may_fit(g, node, in_bytes))
            TD_TRY(fold_by_running(p, node, in_bytes, &folded));
        for (size_t k = 0; k < node->n_out && (folded || tells_more); k++) {
            if (node->out[k] == TD_NO_VALUE) continue;
            refined[node->out[k]] = true;
            if (folded) td_graph_value(g, node->out[k])->producer = TD_NO_NODE;
        }
        if (!folded) continue;
        td_resolve_release_node(node);
        node->removed = true;
    }
    return TREADLE_OK;
}
