/* light/body.c - see body.h: bodies at open. Types flow in from the node's inputs; those of loop-carried formals are
 * widened until the body gives back what it was given. */
#include "light/body.h"

#include "base/alloc.h"
#include "light/resolve.h"
#include "light/session.h"

#include <stdio.h>

enum { MAX_ROUNDS = 8 }; /* of widening; then nothing is said of the shapes of what still changes */

td_body *td_body_new(td_graph *graph, td_str attr, const td_onnx_graph *source) {
    td_body *body = td_alloc_zero(1, sizeof *body);
    if (!body || !td_vec_push(&graph->bodies, body)) {
        td_free(body);
        return NULL;
    }
    td_arena_init(&body->light.arena);
    body->light.graph.arena = &body->light.arena;
    body->attr = attr;
    body->source = source;
    return body;
}

void td_body_free(td_body *body) {
    td_graph_free(&body->light.graph);
    td_arena_free(&body->light.arena);
    td_free(body);
}

void td_bodies_inherit(const td_light *light) {
    for (size_t i = 0; i < light->graph.bodies.n; i++) {
        td_light *body = &light->graph.bodies.items[i]->light;
        body->options = light->options;
        body->pool = light->pool;
        td_bodies_inherit(body);
    }
}

bool td_node_may_pass(const td_node *node) {
    for (size_t i = 0; i < node->n_bodies; i++)
        if (node->bodies[i]->may_pass) return true;
    return false;
}

/* --- prepare */

bool td_body_find(const td_prepare *p, const char *attr, size_t *index, size_t *n_formals, size_t *n_outputs) {
    for (size_t i = 0; i < p->node->n_bodies; i++) {
        const td_body *body = p->node->bodies[i];
        if (!td_str_is(body->attr, attr)) continue;
        *index = i;
        *n_formals = body->n_formals;
        *n_outputs = body->light.graph.n_outputs;
        return true;
    }
    return false;
}

int td_body_declared_rank(const td_prepare *p, size_t index, size_t formal) {
    const td_body *body = p->node->bodies[index];
    const td_onnx_type *type = td_graph_value(&body->light.graph, body->light.graph.inputs[formal])->declared;
    return type && type->kind == TD_ONNX_TYPE_TENSOR && type->has_shape ? type->rank : -1;
}

/* --- infer */

bool td_type_join(td_value *to, const td_value *with) {
    if (to->kind != with->kind || to->tensor.dtype != with->tensor.dtype) return false;
    td_shape *a = &to->tensor.shape;
    const td_shape *b = &with->tensor.shape;
    if (a->rank != b->rank) a->rank = -1;
    for (int d = 0; d < a->rank; d++)
        if (a->dims[d] != b->dims[d]) a->dims[d] = TD_DIM_UNKNOWN;
    return true;
}

/* Captured values as the graph around knows them now. */
static void set_captured(const td_resolver *r, const td_node *node, td_body *body) {
    td_graph *g = &body->light.graph;
    for (size_t i = body->n_formals; i < g->n_inputs; i++) {
        int32_t id = node->in[body->first_captured + i - body->n_formals];
        if (id == TD_NO_VALUE) continue; /* nobody in the body reads it any more */
        const td_ir_value *from = td_graph_value(r->graph, id);
        td_ir_value *to = td_graph_value(g, g->inputs[i]);
        bool constant = td_graph_is_constant(r->graph, id);
        to->type = from->type;
        to->type.sequence = NULL;
        if (!constant) to->type.tensor.data = NULL;
        to->port = constant ? TD_NO_PORT : (int32_t)i;
        to->may_be_absent = from->may_be_absent;
        to->failed = from->failed;
        to->known = from->known;
    }
}

/* With the states of an earlier round gone. */
static treadle_status resolve_nodes(td_resolver *r, const td_node *node, td_body *body, treadle_error *err) {
    td_resolver in = {.graph = &body->light.graph,
                      .arena = r->arena,
                      .mode = r->mode,
                      .activations = r->activations,
                      .packs = r->packs,
                      .model = r->model,
                      .outer = r,
                      .outer_node = node};
    treadle_status status = TREADLE_OK;
    for (size_t i = 0; i < in.graph->nodes.n && status == TREADLE_OK; i++) {
        td_resolve_release_node(in.graph->nodes.items[i]);
        status = td_resolve_node(&in, in.graph->nodes.items[i], err);
    }
    td_resolver_free(&in);
    return status;
}

/* Outputs into the formals that they feed. *changed: some formal's type is wider than before. */
static treadle_status feed_back(td_infer *in, td_body *body, bool forget_shapes, bool *changed) {
    td_graph *g = &body->light.graph;
    *changed = false;
    for (size_t k = 0; k < g->n_outputs; k++) {
        if (body->feeds[k] == TD_NO_PORT) continue;
        td_ir_value *formal = td_graph_value(g, g->inputs[body->feeds[k]]);
        const td_ir_value *output = td_graph_value(g, g->outputs[k]);
        td_shape before = formal->type.tensor.shape;
        if (!td_type_join(&formal->type, &output->type)) {
            char a[192], b[192];
            td_value_describe(&formal->type, a, sizeof a);
            td_value_describe(&output->type, b, sizeof b);
            return td_infer_fail(in, "\"%.*s\" of its subgraph is %s at first, then %s", TD_STR_ARGS(formal->name), a,
                                 b);
        }
        bool same = td_shape_equal(&before, &formal->type.tensor.shape);
        if (!same && forget_shapes) formal->type.tensor.shape.rank = -1;
        bool absent = output->may_be_absent && !formal->may_be_absent;
        if (absent) formal->may_be_absent = true;
        *changed = *changed || !same || absent;
    }
    return TREADLE_OK;
}

static void set_formals(const td_infer *in, td_body *body, const td_value *formals, bool afresh) {
    const td_resolver *r = in->build;
    td_graph *g = &body->light.graph;
    bool may_be_absent = false;
    for (size_t i = 0; i < td_node_n_op_inputs(in->node); i++)
        may_be_absent |= in->node->in[i] != TD_NO_VALUE && td_graph_value(r->graph, in->node->in[i])->may_be_absent;
    for (size_t i = 0; i < body->n_formals; i++) {
        td_ir_value *v = td_graph_value(g, g->inputs[i]);
        td_value type = formals[i];
        if (!afresh && !v->failed && td_type_join(&type, &v->type)) type.kind = v->type.kind;
        v->type = type;
        v->type.tensor.data = NULL;
        v->type.tensor.buffer = NULL;
        v->type.sequence = NULL;
        v->may_be_absent = v->may_be_absent || may_be_absent;
        v->failed = false;
    }
}

static treadle_status keep_feeds(td_infer *in, td_body *body, const int32_t *feeds) {
    size_t n = body->light.graph.n_outputs;
    if (!feeds || body->feeds) return TREADLE_OK;
    body->feeds = TD_ARENA_ARRAY(body->light.graph.arena, int32_t, n);
    if (!body->feeds) return td_fail_memory(in->err, "a subgraph", n * sizeof *feeds);
    memcpy(body->feeds, feeds, n * sizeof *feeds);
    return TREADLE_OK;
}

/* Whether an output is what a graph input is, at most through views and other bodies. */
static treadle_status find_passing(td_body *body, treadle_error *err) {
    td_graph *g = &body->light.graph;
    bool *reached = td_alloc_zero(g->values.n + 1, sizeof *reached);
    if (!reached) return td_fail_memory(err, "a subgraph", g->values.n);
    body->may_pass = false;
    for (size_t i = 0; i < g->n_outputs; i++) reached[g->outputs[i]] = true;
    for (size_t i = g->nodes.n; i-- > 0;) {
        const td_node *node = g->nodes.items[i];
        bool any = false;
        for (size_t k = 0; k < node->n_out; k++) any |= node->out[k] != TD_NO_VALUE && reached[node->out[k]];
        size_t n = !any || !node->op                    ? 0
                   : td_node_may_pass(node)             ? node->n_in
                   : node->op->impl->flags & TD_OP_VIEW ? TD_MIN(node->n_in, (size_t)1)
                                                        : 0;
        for (size_t k = 0; k < n; k++)
            if (node->in[k] != TD_NO_VALUE) reached[node->in[k]] = true;
    }
    for (size_t i = 0; i < g->n_inputs; i++)
        body->may_pass |= reached[g->inputs[i]] && td_graph_value(g, g->inputs[i])->port != TD_NO_PORT;
    td_free(reached);
    return TREADLE_OK;
}

treadle_status td_infer_body(td_infer *in, size_t index, const td_value *formals, const int32_t *feeds,
                             td_value *outputs) {
    td_resolver *r = in->build, *root = td_resolve_outermost(r);
    td_body *body = in->node->bodies[index];
    td_graph *g = &body->light.graph;
    bool changed = r->mode == TD_RESOLVE_ANALYSE;
    size_t before = root->n_complaints;
    TD_TRY(keep_feeds(in, body, feeds));
    set_captured(r, in->node, body);
    if (r->mode == TD_RESOLVE_FINAL) { /* the formals are as the analysis left them */
        TD_TRY(resolve_nodes(r, in->node, body, in->err));
    } else {
        /* Inside of another loop's rounds types only widen: rounds in rounds come to an end soon. */
        set_formals(in, body, formals, body->round != root->round + 1);
        body->round = root->round + 1;
    }
    for (int round = 0; changed; round++) {
        TD_TRY(resolve_nodes(r, in->node, body, in->err));
        changed = false;
        if (body->feeds && root->n_complaints == before) TD_TRY(feed_back(in, body, round >= MAX_ROUNDS, &changed));
    }
    if (root->n_complaints != before) {
        r->complained = true;
        return td_fail(in->err, TREADLE_UNSUPPORTED, "its subgraph cannot be run");
    }
    for (size_t k = 0; outputs && k < g->n_outputs; k++) {
        outputs[k] = td_graph_value(g, g->outputs[k])->type;
        outputs[k].tensor.data = NULL;
        outputs[k].sequence = NULL;
    }
    return find_passing(body, in->err);
}

treadle_status td_bodies_survey(td_resolver *r, const td_node *node, treadle_error *err) {
    for (size_t i = 0; i < node->n_bodies; i++) {
        td_body *body = node->bodies[i];
        td_graph *g = &body->light.graph;
        set_captured(r, node, body);
        for (size_t k = 0; k < body->n_formals; k++) {
            td_ir_value *v = td_graph_value(g, g->inputs[k]);
            v->type.kind = TD_VALUE_NONE;
            v->failed = true;
        }
        TD_TRY(resolve_nodes(r, node, body, err));
    }
    return TREADLE_OK;
}
