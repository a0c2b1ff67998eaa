/* light/resolve.c - see resolve.h. */
#include "light/resolve.h"

#include "base/alloc.h"
#include "light/session.h"

#include <stdio.h>

enum { MAX_COMPLAINTS = 256 };

/* "node "a" (Loop): node "b" (Add)" */
static void write_where(const td_resolver *r, const td_node *node, td_buf *out) {
    char text[320];
    if (r->outer) {
        write_where(r->outer, r->outer_node, out);
        td_buf_text(out, ": ");
    }
    td_node_describe(node, text, sizeof text);
    td_buf_text(out, text);
}

/* The outermost resolver keeps the complaints about all graphs. */
static treadle_status keep_complaint(td_resolver *r, td_str op_type, td_str where, td_str text, treadle_error *err) {
    r->n_complaints++;
    for (size_t i = 0; i < r->complaints.n; i++) {
        td_complaint *c = &r->complaints.items[i];
        if (td_str_equal(c->op_type, op_type) && td_str_equal(c->text, text)) {
            c->n++;
            return TREADLE_OK;
        }
    }
    if (r->complaints.n >= MAX_COMPLAINTS) {
        r->n_more++;
        return TREADLE_OK;
    }
    td_complaint c = {.op_type = op_type, .n = 1};
    c.text = td_arena_str(r->graph->arena, text);
    c.first_node = td_arena_str(r->graph->arena, where);
    if (!c.text.p || !c.first_node.p || !td_vec_push(&r->complaints, c))
        return td_fail_memory(err, "the report of what is missing", 0);
    return TREADLE_OK;
}

treadle_status td_resolve_complain(td_resolver *r, const td_node *node, const char *text, treadle_error *err) {
    td_buf where = {0};
    r->complained = true;
    write_where(r, node, &where);
    treadle_status status = where.failed ? td_fail_memory(err, "the report of what is missing", 0)
                                         : keep_complaint(td_resolve_outermost(r), node->op_type, td_buf_view(&where),
                                                          td_str_from(text), err);
    if (status == TREADLE_OK) status = td_fail(err, TREADLE_UNSUPPORTED, "%s: %s", where.p, text);
    td_buf_free(&where);
    return status;
}

treadle_status td_resolve_report(const td_resolver *r, treadle_error *err) {
    if (r->complaints.n == 0) return TREADLE_OK;
    td_buf text = {0};
    for (size_t i = 0; i < r->complaints.n; i++) {
        const td_complaint *c = &r->complaints.items[i];
        td_buf_printf(&text, "%s%.*s: %.*s", i ? "; " : "", TD_STR_ARGS(c->first_node), TD_STR_ARGS(c->text));
        if (c->n > 1) td_buf_printf(&text, " (and %zu more such nodes)", c->n - 1);
    }
    if (r->n_more) td_buf_printf(&text, "; and %zu more", r->n_more);
    treadle_status status = text.failed ? td_fail_memory(err, "the report of what is missing", 0)
                                        : td_fail(err, TREADLE_UNSUPPORTED, "%s", text.p);
    td_buf_free(&text);
    return status;
}

void td_resolver_free(td_resolver *r) {
    td_vec_free(&r->complaints);
    td_vec_free(&r->inputs);
    td_vec_free(&r->outputs);
    td_vec_free(&r->relaxed);
    td_vec_free(&r->output_pointers);
}

void td_resolve_release_node(td_node *node) {
    for (size_t i = 0; i < node->n_bodies; i++) td_resolve_release(&node->bodies[i]->light.graph);
    if (node->prepared && node->op && node->op->impl->release) node->op->impl->release(node->state);
    node->prepared = false;
    node->state = NULL;
}

void td_resolve_release(td_graph *graph) {
    for (size_t i = 0; i < graph->nodes.n; i++) td_resolve_release_node(graph->nodes.items[i]);
}

/* Nothing is known of the outputs but what the model's author declared. */
static void outputs_failed(td_resolver *r, const td_node *node) {
    for (size_t i = 0; i < node->n_out; i++) {
        if (node->out[i] == TD_NO_VALUE) continue;
        td_ir_value *v = td_graph_value(r->graph, node->out[i]);
        v->failed = true;
        if (!v->declared || v->declared->kind != TD_ONNX_TYPE_TENSOR) continue;
        v->type.kind = TD_VALUE_TENSOR;
        v->type.tensor.dtype = v->declared->dtype;
        v->type.tensor.shape.rank = -1;
    }
}

static bool inputs_known(const td_resolver *r, const td_node *node) {
    for (size_t i = 0; i < node->n_in; i++) {
        if (node->in[i] == TD_NO_VALUE) continue;
        const td_ir_value *v = td_graph_value(r->graph, node->in[i]);
        if (v->failed && v->type.kind == TD_VALUE_NONE) return false;
    }
    return true;
}

static treadle_status prepare(td_resolver *r, td_node *node, treadle_error *err) {
    const td_op_impl *impl = node->op->impl;
    node->state = td_arena_alloc(r->arena, impl->state_bytes, 64);
    if (!node->state) return td_fail_memory(err, "a node's state", impl->state_bytes);
    node->prepared = true; /* also if prepare fails: release then sees what it has done so far */
    if (!impl->prepare) return TREADLE_OK;
    td_prepare p = {.state = node->state,
                    .since = node->op->since,
                    .opset = (int)TD_MIN(node->opset, (int64_t)INT32_MAX),
                    .n_inputs = td_node_n_op_inputs(node),
                    .n_outputs = node->n_out,
                    .activations = r->activations,
                    .arena = r->arena,
                    .err = err,
                    .node = node,
                    .build = r,
                    .analysis = r->mode == TD_RESOLVE_ANALYSE};
    treadle_status status = impl->prepare(&p);
    return status == TREADLE_OK && r->no_memory ? td_fail_memory(err, "an attribute", 0) : status;
}

/* Only ops on values can leave an output empty: if they say so, or hand on an input or a body's output that is. */
static bool outputs_may_be_absent(const td_resolver *r, const td_node *node) {
    if (!(node->op->impl->flags & TD_OP_VALUES)) return false;
    if (node->op->impl->flags & TD_OP_ABSENT) return true;
    for (size_t i = 0; i < td_node_n_op_inputs(node); i++)
        if (node->in[i] != TD_NO_VALUE && td_graph_value(r->graph, node->in[i])->may_be_absent) return true;
    for (size_t i = 0; i < node->n_bodies; i++) {
        const td_graph *g = &node->bodies[i]->light.graph;
        for (size_t k = 0; k < g->n_outputs; k++)
            if (td_graph_value(g, g->outputs[k])->may_be_absent) return true;
    }
    return false;
}

/* Shapes that do not fit are no error in a body yet: it may be a branch for other shapes, which is
 * never taken. Its run would tell. */
static treadle_status infer_types_only(td_resolver *r, td_infer *in) {
    treadle_error shapes_do_not_fit = {0};
    if (in->err) shapes_do_not_fit = *in->err;
    r->relaxed.n = 0;
    if (!td_vec_reserve(&r->relaxed, in->n_inputs + 1)) return td_fail_memory(in->err, "type inference", 0);
    for (size_t i = 0; i < in->n_inputs; i++) {
        td_value *v = &r->relaxed.items[i];
        *v = *in->inputs[i];
        v->tensor.data = NULL;
        v->tensor.shape.rank = -1;
        r->inputs.items[i] = v;
    }
    for (size_t i = 0; i < in->n_outputs; i++) r->outputs.items[i] = (td_value){.kind = TD_VALUE_NONE};
    treadle_status status = in->node->op->impl->infer(in);
    if (status != TREADLE_OK && in->err) *in->err = shapes_do_not_fit;
    return status;
}

/* Sizes that the op cannot tell get symbols of their own. */
static void name_dims(td_resolver *r, td_value *type) {
    td_shape *shape = &type->tensor.shape;
    for (int d = 0; type->kind == TD_VALUE_TENSOR && d < shape->rank; d++)
        if (shape->dims[d] == TD_DIM_UNKNOWN) shape->dims[d] = td_graph_unnamed_symbol(td_resolve_outermost(r)->graph);
}

static treadle_status infer(td_resolver *r, td_node *node, treadle_error *err) {
    r->inputs.n = r->outputs.n = r->output_pointers.n = 0;
    if (!td_vec_reserve(&r->inputs, node->n_in + 1) || !td_vec_reserve(&r->outputs, node->n_out + 1) ||
        !td_vec_reserve(&r->output_pointers, node->n_out + 1))
        return td_fail_memory(err, "type inference", 0);
    for (size_t i = 0; i < node->n_in; i++)
        r->inputs.items[i] = node->in[i] == TD_NO_VALUE ? &td_value_none : &td_graph_value(r->graph, node->in[i])->type;
    for (size_t i = 0; i < node->n_out; i++) {
        r->outputs.items[i] = (td_value){.kind = TD_VALUE_NONE};
        r->output_pointers.items[i] = node->out[i] == TD_NO_VALUE ? NULL : &r->outputs.items[i];
    }
    td_infer in = {.state = node->state,
                   .n_inputs = td_node_n_op_inputs(node),
                   .n_outputs = node->n_out,
                   .inputs = r->inputs.items,
                   .outputs = r->output_pointers.items,
                   .at_open = true,
                   .err = err,
                   .node = node,
                   .build = r};
    treadle_status status = node->op->impl->infer(&in);
    if (status == TREADLE_FORMAT && r->outer && !node->n_bodies) status = infer_types_only(r, &in);
    if (status != TREADLE_OK) return status;
    bool may_be_absent = outputs_may_be_absent(r, node);
    for (size_t i = 0; i < node->n_out; i++) {
        if (node->out[i] == TD_NO_VALUE) continue;
        td_ir_value *v = td_graph_value(r->graph, node->out[i]);
        v->type = r->outputs.items[i];
        v->type.tensor.data = NULL;
        v->type.sequence = NULL;
        v->failed = false;
        v->may_be_absent = may_be_absent;
        name_dims(r, &v->type);
    }
    return td_known_follow(r->graph, node, err);
}

treadle_status td_resolve_node(td_resolver *r, td_node *node, treadle_error *err) {
    if (!node->op) node->op = td_op_find(node->domain, node->op_type, node->opset);
    if (!node->op) {
        char text[96];
        TD_TRY(td_resolve_check(r, node, err));
        snprintf(text, sizeof text,
                 td_graph_has_native(node->domain, node->op_type) ? "version %lld of the op is not implemented"
                                                                  : "the op is not implemented (opset %lld)",
                 (long long)node->opset);
        outputs_failed(r, node);
        treadle_status status = td_resolve_complain(r, node, text, err);
        return status == TREADLE_UNSUPPORTED ? td_bodies_survey(r, node, err) : status;
    }
    r->complained = false;
    treadle_status status = td_resolve_check(r, node, err);
    if (status != TREADLE_OK) return status;
    if (r->complained || !inputs_known(r, node)) {
        outputs_failed(r, node);
        return td_bodies_survey(r, node, err);
    }
    status = prepare(r, node, err);
    bool prepared = status == TREADLE_OK;
    if (prepared) status = infer(r, node, err);
    if (status == TREADLE_UNSUPPORTED) {
        outputs_failed(r, node);
        if (!r->complained) status = td_resolve_complain(r, node, err ? err->message : "not supported", err);
        if (status != TREADLE_UNSUPPORTED) return status;
        return prepared ? TREADLE_OK : td_bodies_survey(r, node, err);
    }
    if (status != TREADLE_OK) {
        char where[320];
        td_node_describe(node, where, sizeof where);
        if (err && !strstr(err->message, where)) td_error_context(err, "%s", where);
    }
    return status;
}

treadle_status td_resolve_graph(td_resolver *r, treadle_error *err) {
    treadle_error local;
    for (size_t i = 0; i < r->graph->nodes.n; i++)
        TD_TRY(td_resolve_node(r, r->graph->nodes.items[i], err ? err : &local));
    return TREADLE_OK;
}
