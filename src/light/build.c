/* light/build.c - model to graph: names become numbers, initializers and Constant nodes become constants, calls of
 * model-local functions are replaced by their bodies, subgraphs become graphs of their own.
 *
 * A scope holds the names of one graph or of one call of a function. Names may be used before they are made:
 * what stays unmade at the end is an error. A subgraph sees the names of the scopes around it up to the
 * nearest function; those that it makes itself hide them. Source: onnx IR spec (functions, overloads,
 * ref_attr_name, opset scopes, subgraphs). */
#include "base/alloc.h"
#include "light/session.h"

enum {
    MAX_DEPTH = 64,      /* of functions and subgraphs together */
    MAX_NODES = 1 << 20, /* after inlining: functions that call functions grow exponentially */
};

typedef struct scope {
    td_graph *graph;
    const td_onnx_model *model;
    const td_onnx_graph *source; /* of the graph */
    treadle_error *err;
    size_t *n_nodes; /* of all graphs of the model */
    td_map names;    /* -> value id as int64 */
    const td_onnx_opset *opsets;
    size_t n_opsets;
    td_str prefix; /* of the names of its values and nodes; "" outside functions */
    td_str space;  /* of the names of its values: the subgraph that they are in; "" outside subgraphs */
    const td_onnx_function *function;
    const td_onnx_attr *attrs; /* of the call */
    size_t n_attrs;
    const struct scope *caller; /* function or graph around this one */
    int depth;
    /* of a subgraph's own scope: */
    struct scope *outer;      /* where names are looked up that it does not make */
    td_map own;               /* names that it makes */
    TD_VEC(int32_t) captured; /* values of `outer`, in the order of the graph inputs that they are here */
} scope;

static treadle_status no_memory(scope *s) { return td_fail_memory(s->err, "the graph", 0); }

static bool join_name(scope *s, td_str prefix, td_str name, td_str *out) {
    *out = name;
    if (!prefix.n) return true;
    char *text = td_arena_printf(s->graph->arena, "%.*s/%.*s", TD_STR_ARGS(prefix), TD_STR_ARGS(name));
    *out = td_str_from(text);
    return text != NULL;
}

/* Of a node. A value's name says the subgraph too: packed weights are told apart by it. */
static bool scoped_name(scope *s, td_str name, td_str *out) { return join_name(s, s->prefix, name, out); }

static treadle_status find_value(scope *s, td_str name, int32_t *out);

/* A name of the scopes around a subgraph: one more graph input of it. */
static treadle_status capture(scope *s, td_str name, int32_t *out) {
    int32_t outer;
    TD_TRY(find_value(s->outer, name, &outer));
    if (outer == TD_NO_VALUE) return TREADLE_OK; /* an input that a function's call leaves out */
    int32_t id = td_graph_add_value(s->graph, td_graph_value(s->outer->graph, outer)->name);
    if (id == TD_NO_VALUE || !td_map_set(&s->names, name, (uint64_t)(int64_t)id) || !td_vec_push(&s->captured, outer))
        return no_memory(s);
    td_graph_value(s->graph, id)->port = (int32_t)(s->graph->n_inputs + s->captured.n - 1);
    *out = id;
    return TREADLE_OK;
}

/* The value of a name, made on first mention. */
static treadle_status find_value(scope *s, td_str name, int32_t *out) {
    uint64_t at;
    *out = TD_NO_VALUE;
    if (!name.n) return TREADLE_OK;
    if (td_map_get(&s->names, name, &at)) {
        *out = (int32_t)(int64_t)at;
        return TREADLE_OK;
    }
    if (s->outer && !td_map_get(&s->own, name, NULL)) return capture(s, name, out);
    td_str full;
    if (!scoped_name(s, name, &full) || !join_name(s, s->space, full, &full)) return no_memory(s);
    int32_t id = td_graph_add_value(s->graph, full);
    if (id == TD_NO_VALUE || !td_map_set(&s->names, name, (uint64_t)(int64_t)id)) return no_memory(s);
    *out = id;
    return TREADLE_OK;
}

static bool is_made(const td_ir_value *v) {
    return v->producer != TD_NO_NODE || v->port != TD_NO_PORT || v->type.tensor.data;
}

static treadle_status find_unmade(scope *s, td_str name, const char *as, int32_t *out) {
    TD_TRY(find_value(s, name, out));
    if (*out != TD_NO_VALUE && is_made(td_graph_value(s->graph, *out)))
        return td_fail(s->err, TREADLE_FORMAT, "the value \"%.*s\" is made twice, the second time as %s",
                       TD_STR_ARGS(td_graph_value(s->graph, *out)->name), as);
    return TREADLE_OK;
}

/* --- attributes of functions */

static const td_onnx_attr *find_attr(const td_onnx_attr *attrs, size_t n, td_str name) {
    for (size_t i = 0; i < n; i++)
        if (td_str_equal(attrs[i].name, name)) return &attrs[i];
    return NULL;
}

/* Attributes with their references to the call's attributes replaced; those that the call leaves out vanish. */
static treadle_status substitute(scope *s, const td_onnx_node *node, const td_onnx_attr **out, size_t *n_out) {
    bool any = false;
    for (size_t i = 0; i < node->n_attrs; i++) any |= node->attrs[i].ref_attr_name.n > 0;
    *out = node->attrs;
    *n_out = node->n_attrs;
    if (!any) return TREADLE_OK;
    if (!s->function)
        return td_fail(s->err, TREADLE_FORMAT,
                       "node \"%.*s\" (%.*s) refers to a function's attribute outside a function",
                       TD_STR_ARGS(node->name), TD_STR_ARGS(node->op_type));
    td_onnx_attr *attrs = TD_ARENA_ARRAY(s->graph->arena, td_onnx_attr, node->n_attrs);
    if (!attrs) return no_memory(s);
    size_t n = 0;
    for (size_t i = 0; i < node->n_attrs; i++) {
        const td_onnx_attr *from = &node->attrs[i];
        if (from->ref_attr_name.n) {
            td_str wanted = from->ref_attr_name;
            const td_onnx_attr *value = find_attr(s->attrs, s->n_attrs, wanted);
            if (!value) value = find_attr(s->function->attr_defaults, s->function->n_attr_defaults, wanted);
            if (!value) continue;
            if (value->type == TD_ONNX_ATTR_GRAPH || value->type == TD_ONNX_ATTR_GRAPHS)
                return td_fail(s->err, TREADLE_UNSUPPORTED,
                               "function %.*s: attribute \"%.*s\" holds a graph, which only nodes may",
                               TD_STR_ARGS(s->function->name), TD_STR_ARGS(wanted));
            if (from->type != TD_ONNX_ATTR_UNDEFINED && from->type != value->type)
                return td_fail(s->err, TREADLE_FORMAT,
                               "function %.*s: attribute \"%.*s\" has type %d where its body expects %d",
                               TD_STR_ARGS(s->function->name), TD_STR_ARGS(wanted), (int)value->type, (int)from->type);
            attrs[n] = *value;
            attrs[n++].name = from->name;
        } else {
            attrs[n++] = *from;
        }
    }
    *out = attrs;
    *n_out = n;
    return TREADLE_OK;
}

/* --- nodes */

static treadle_status add_nodes(scope *s, const td_onnx_node *nodes, size_t n);

static treadle_status push_node(scope *s, td_node *node) {
    td_graph *g = s->graph;
    if (++*s->n_nodes > MAX_NODES)
        return td_fail(s->err, TREADLE_LIMIT, "the graph has more than %d nodes once functions are inlined",
                       (int)MAX_NODES);
    if (!td_vec_push(&g->nodes, node)) return no_memory(s);
    for (size_t i = 0; i < node->n_out; i++)
        if (node->out[i] != TD_NO_VALUE) td_graph_value(g, node->out[i])->producer = (int32_t)(g->nodes.n - 1);
    return TREADLE_OK;
}

/* A function may hand an input straight through, or the same value out twice: a copy keeps values single. */
static treadle_status pass_through(scope *s, int32_t from, int32_t to) {
    td_node *node = td_graph_new_node(s->graph, 1, 1);
    if (!node) return no_memory(s);
    node->name = s->prefix;
    node->op_type = TD_STR("Identity");
    node->opset = TD_MAX(1, td_onnx_opset_version(s->model->opsets, s->model->n_opsets, TD_STR("")));
    node->in[0] = from;
    node->out[0] = to;
    return push_node(s, node);
}

static treadle_status check_depth(const scope *s) {
    if (s->depth < MAX_DEPTH) return TREADLE_OK;
    return td_fail(s->err, TREADLE_LIMIT, "functions and subgraphs are nested more than %d deep", (int)MAX_DEPTH);
}

static treadle_status inline_call(scope *s, const td_onnx_node *call, const td_onnx_function *f) {
    for (const scope *at = s; at; at = at->caller)
        if (at->function == f)
            return td_fail(s->err, TREADLE_FORMAT, "function %.*s.%.*s calls itself", TD_STR_ARGS(f->domain),
                           TD_STR_ARGS(f->name));
    TD_TRY(check_depth(s));
    if (call->n_inputs > f->n_inputs || call->n_outputs > f->n_outputs)
        return td_fail(s->err, TREADLE_FORMAT,
                       "node \"%.*s\" calls function %.*s with %zu inputs and %zu outputs; it has %zu and %zu",
                       TD_STR_ARGS(call->name), TD_STR_ARGS(f->name), call->n_inputs, call->n_outputs, f->n_inputs,
                       f->n_outputs);
    scope body = {.graph = s->graph,
                  .model = s->model,
                  .err = s->err,
                  .n_nodes = s->n_nodes,
                  .space = s->space,
                  .function = f,
                  .caller = s,
                  .depth = s->depth + 1};
    body.opsets = f->n_opsets ? f->opsets : s->model->opsets;
    body.n_opsets = f->n_opsets ? f->n_opsets : s->model->n_opsets;
    treadle_status status = substitute(s, call, &body.attrs, &body.n_attrs);
    if (status != TREADLE_OK) return status;
    td_str label = call->name.n ? call->name : call->n_outputs ? call->outputs[0] : f->name;
    if (!scoped_name(s, label, &body.prefix)) return no_memory(s);

    for (size_t i = 0; i < f->n_inputs; i++) {
        int32_t id = TD_NO_VALUE;
        if (i < call->n_inputs) TD_TRY_GOTO(find_value(s, call->inputs[i], &id), cleanup);
        if (!td_map_set(&body.names, f->inputs[i], (uint64_t)(int64_t)id)) {
            status = no_memory(s);
            goto cleanup;
        }
    }
    for (size_t i = 0; i < call->n_outputs; i++) {
        int32_t id, from;
        uint64_t taken;
        if (!call->outputs[i].n) continue;
        TD_TRY_GOTO(find_unmade(s, call->outputs[i], "a function's output", &id), cleanup);
        if (td_map_get(&body.names, f->outputs[i], &taken)) {
            from = (int32_t)(int64_t)taken;
            TD_TRY_GOTO(pass_through(s, from, id), cleanup);
        } else if (!td_map_set(&body.names, f->outputs[i], (uint64_t)(int64_t)id)) {
            status = no_memory(s);
            goto cleanup;
        }
    }
    status = add_nodes(&body, f->nodes, f->n_nodes);
cleanup:
    td_map_free(&body.names);
    return status;
}

static treadle_status add_constant_node(scope *s, const td_onnx_node *from, const td_onnx_attr *attrs, size_t n_attrs) {
    td_onnx_node node = *from;
    node.attrs = attrs;
    node.n_attrs = n_attrs;
    if (node.n_outputs != 1 || !node.outputs[0].n)
        return td_fail(s->err, TREADLE_FORMAT, "node \"%.*s\" (Constant) has %zu outputs; expected 1",
                       TD_STR_ARGS(node.name), node.n_outputs);
    int32_t id;
    td_tensor tensor;
    TD_TRY(find_unmade(s, node.outputs[0], "a Constant", &id));
    TD_TRY(td_constant_from_node(s->graph->arena, &node, &tensor, s->err));
    td_value *type = &td_graph_value(s->graph, id)->type;
    type->kind = TD_VALUE_TENSOR;
    type->tensor = tensor;
    return TREADLE_OK;
}

/* --- subgraphs */

typedef struct node_bodies {
    td_body **items;
    size_t n;
    TD_VEC(int32_t) captured; /* of all, one after the other */
} node_bodies;

static treadle_status build_graph(scope *s);

static bool add_own(scope *s, td_str name) { return !name.n || td_map_set(&s->own, name, 1); }

static treadle_status collect_own(scope *s) {
    const td_onnx_graph *og = s->source;
    bool ok = true;
    for (size_t i = 0; i < og->n_inputs; i++) ok = ok && add_own(s, og->inputs[i].name);
    for (size_t i = 0; i < og->n_initializers; i++) ok = ok && add_own(s, og->initializers[i].name);
    for (size_t i = 0; i < og->n_sparse_initializers; i++)
        ok = ok && add_own(s, og->sparse_initializers[i].values.name);
    for (size_t i = 0; i < og->n_nodes; i++)
        for (size_t k = 0; k < og->nodes[i].n_outputs; k++) ok = ok && add_own(s, og->nodes[i].outputs[k]);
    return ok ? TREADLE_OK : no_memory(s);
}

/* What the body captures becomes graph inputs behind its own. */
static treadle_status append_captured(scope *s, td_body *body, node_bodies *all, size_t n_inputs) {
    td_graph *g = s->graph;
    size_t n = s->captured.n;
    int32_t *inputs = TD_ARENA_ARRAY(g->arena, int32_t, g->n_inputs + n);
    if (!inputs || !td_vec_reserve(&all->captured, all->captured.n + n)) return no_memory(s);
    memcpy(inputs, g->inputs, g->n_inputs * sizeof *inputs);
    body->n_formals = g->n_inputs;
    body->first_captured = n_inputs + all->captured.n;
    for (size_t i = 0; i < g->values.n; i++) {
        const td_ir_value *v = td_graph_value(g, (int32_t)i);
        if (v->port >= (int32_t)g->n_inputs) inputs[v->port] = (int32_t)i;
    }
    for (size_t i = 0; i < n; i++) all->captured.items[all->captured.n++] = s->captured.items[i];
    g->inputs = inputs;
    g->n_inputs += n;
    return TREADLE_OK;
}

static treadle_status add_body(scope *s, const td_onnx_node *from, const td_onnx_attr *attr, const td_onnx_graph *og,
                               node_bodies *all) {
    TD_TRY(check_depth(s));
    td_body *body = td_body_new(s->graph, attr->name, og);
    if (!body) return no_memory(s);
    all->items[all->n++] = body;
    scope in = {.graph = &body->light.graph,
                .model = s->model,
                .source = og,
                .err = s->err,
                .n_nodes = s->n_nodes,
                .opsets = s->opsets,
                .n_opsets = s->n_opsets,
                .prefix = s->prefix,
                .function = s->function,
                .attrs = s->attrs,
                .n_attrs = s->n_attrs,
                .caller = s,
                .depth = s->depth + 1,
                .outer = s};
    treadle_status status = TREADLE_OK;
    td_str label = from->n_outputs && from->outputs[0].n ? from->outputs[0] : from->name;
    char *space = td_arena_printf(s->graph->arena, "%.*s%s%.*s.%.*s", TD_STR_ARGS(s->space), s->space.n ? "/" : "",
                                  TD_STR_ARGS(label), TD_STR_ARGS(attr->name));
    in.space = td_str_from(space);
    if (!space) status = no_memory(s);
    if (status == TREADLE_OK) status = collect_own(&in);
    if (status == TREADLE_OK) status = build_graph(&in);
    if (status == TREADLE_OK) status = append_captured(&in, body, all, from->n_inputs);
    td_map_free(&in.names);
    td_map_free(&in.own);
    td_vec_free(&in.captured);
    return status;
}

static treadle_status add_bodies(scope *s, const td_onnx_node *from, const td_onnx_attr *attrs, size_t n_attrs,
                                 node_bodies *all) {
    size_t n = 0;
    for (size_t i = 0; i < n_attrs; i++)
        n += attrs[i].type == TD_ONNX_ATTR_GRAPH    ? attrs[i].g != NULL
             : attrs[i].type == TD_ONNX_ATTR_GRAPHS ? attrs[i].n
                                                    : 0;
    if (n == 0) return TREADLE_OK;
    all->items = TD_ARENA_ARRAY(s->graph->arena, td_body *, n);
    if (!all->items) return no_memory(s);
    for (size_t i = 0; i < n_attrs; i++) {
        const td_onnx_attr *a = &attrs[i];
        treadle_status status = TREADLE_OK;
        if (a->type == TD_ONNX_ATTR_GRAPH && a->g) status = add_body(s, from, a, a->g, all);
        for (size_t k = 0; a->type == TD_ONNX_ATTR_GRAPHS && k < a->n && status == TREADLE_OK; k++)
            status = add_body(s, from, a, &a->graphs[k], all);
        if (status == TREADLE_OK) continue;
        char where[320];
        td_node at = {.name = from->name, .domain = from->domain, .op_type = from->op_type};
        td_node_describe(&at, where, sizeof where);
        td_error_context(s->err, "%s, %.*s", where, TD_STR_ARGS(a->name));
        return status;
    }
    return TREADLE_OK;
}

static treadle_status add_node(scope *s, const td_onnx_node *from) {
    const td_onnx_attr *attrs;
    size_t n_attrs;
    if (s->model->n_functions && !td_graph_has_native(from->domain, from->op_type)) {
        const td_onnx_function *f = td_onnx_find_function(s->model, from->domain, from->op_type, from->overload);
        if (f) return inline_call(s, from, f);
    }
    TD_TRY(substitute(s, from, &attrs, &n_attrs));
    if (!from->domain.n && td_str_is(from->op_type, "Constant")) return add_constant_node(s, from, attrs, n_attrs);

    node_bodies bodies = {0};
    treadle_status status = add_bodies(s, from, attrs, n_attrs, &bodies);
    td_node *node = NULL;
    if (status == TREADLE_OK) {
        node = td_graph_new_node(s->graph, from->n_inputs + bodies.captured.n, from->n_outputs);
        if (!node || !scoped_name(s, from->name, &node->name)) status = no_memory(s);
    }
    for (size_t i = 0; status == TREADLE_OK && i < bodies.captured.n; i++)
        node->in[from->n_inputs + i] = bodies.captured.items[i];
    if (status == TREADLE_OK) node->n_captured = bodies.captured.n;
    td_vec_free(&bodies.captured);
    if (status != TREADLE_OK) return status;
    node->bodies = bodies.items;
    node->n_bodies = bodies.n;
    node->domain = from->domain;
    node->op_type = from->op_type;
    node->attrs = attrs;
    node->n_attrs = n_attrs;
    node->opset = td_onnx_opset_version(s->opsets, s->n_opsets, from->domain);
    /* Later models often forget to import what their fused ops come from; ONNX Runtime then takes version 1. */
    if (node->opset < 0 && from->domain.n) node->opset = 1;
    if (node->opset < 0)
        return td_fail(s->err, TREADLE_FORMAT, "node \"%.*s\" (%.*s): %s imports no version of the ai.onnx domain",
                       TD_STR_ARGS(from->name), TD_STR_ARGS(from->op_type), s->function ? "its function" : "the model");
    for (size_t i = 0; i < from->n_inputs; i++) TD_TRY(find_value(s, from->inputs[i], &node->in[i]));
    for (size_t i = 0; i < from->n_outputs; i++)
        TD_TRY(find_unmade(s, from->outputs[i], "a node's output", &node->out[i]));
    return push_node(s, node);
}

static treadle_status add_nodes(scope *s, const td_onnx_node *nodes, size_t n) {
    for (size_t i = 0; i < n; i++) TD_TRY(add_node(s, &nodes[i]));
    return TREADLE_OK;
}

/* --- graphs */

/* Static type of a value_info; false: a kind that no value of light can hold. */
static bool set_type(td_graph *g, const td_onnx_type *from, td_ir_value *v, bool *no_memory_out) {
    if (from->kind == TD_ONNX_TYPE_OPTIONAL) {
        v->may_be_absent = true;
        if (!from->elem) return false;
        from = from->elem;
    }
    bool sequence = from->kind == TD_ONNX_TYPE_SEQUENCE;
    if (sequence) from = from->elem;
    if (!from || from->kind != TD_ONNX_TYPE_TENSOR) return false;
    v->type.kind = sequence ? TD_VALUE_SEQUENCE : TD_VALUE_TENSOR;
    v->type.tensor.dtype = from->dtype;
    td_shape *shape = &v->type.tensor.shape;
    shape->rank = -1;
    if (sequence || !from->has_shape || from->rank > TD_MAX_RANK) return true;
    shape->rank = from->rank;
    for (int i = 0; i < from->rank; i++) {
        const td_onnx_dim *d = &from->dims[i];
        shape->dims[i] = d->value >= 0 ? d->value : TD_DIM_UNKNOWN;
        if (d->value < 0 && d->param.n) {
            shape->dims[i] = td_graph_symbol(g, d->param);
            if (shape->dims[i] == 0) *no_memory_out = true;
        }
    }
    return true;
}

static treadle_status add_initializers(scope *s) {
    const td_onnx_graph *og = s->source;
    for (size_t i = 0; i < og->n_initializers + og->n_sparse_initializers; i++) {
        bool sparse = i >= og->n_initializers;
        const td_onnx_sparse_tensor *sp = sparse ? &og->sparse_initializers[i - og->n_initializers] : NULL;
        td_str name = sparse ? sp->values.name : og->initializers[i].name;
        int32_t id;
        td_tensor tensor;
        TD_TRY(find_value(s, name, &id));
        if (id == TD_NO_VALUE) return td_fail(s->err, TREADLE_FORMAT, "initializer %zu has no name", i);
        TD_TRY(sparse ? td_constant_from_sparse(s->graph->arena, sp, &tensor, s->err)
                      : td_constant_from_onnx(s->graph->arena, &og->initializers[i], &tensor, s->err));
        td_ir_value *v = td_graph_value(s->graph, id);
        if (v->fallback || v->type.tensor.data)
            return td_fail(s->err, TREADLE_FORMAT, "there are two initializers \"%.*s\"", TD_STR_ARGS(name));
        if (v->port != TD_NO_PORT) {
            td_tensor *fallback = TD_ARENA_NEW(s->graph->arena, td_tensor);
            if (!fallback) return no_memory(s);
            *fallback = tensor;
            v->fallback = fallback;
        } else {
            v->type.kind = TD_VALUE_TENSOR;
            v->type.tensor = tensor;
        }
    }
    return TREADLE_OK;
}

/* Before IR 4 every initializer is listed as an input too and is not meant to be fed: there it is a constant. From then
 * on listing it makes it a default. */
static treadle_status add_inputs(scope *s) {
    const td_onnx_graph *og = s->source;
    td_graph *g = s->graph;
    td_map initializers = {0};
    treadle_status status = TREADLE_OK;
    g->inputs = TD_ARENA_ARRAY(g->arena, int32_t, og->n_inputs);
    if (!g->inputs) return no_memory(s);
    if (s->model->ir_version < 4)
        for (size_t i = 0; i < og->n_initializers; i++)
            if (og->initializers[i].name.n && !td_map_set(&initializers, og->initializers[i].name, i)) {
                status = no_memory(s);
                goto cleanup;
            }
    for (size_t i = 0; i < og->n_inputs; i++) {
        const td_onnx_value_info *info = &og->inputs[i];
        int32_t id;
        bool no_room = false;
        if (td_map_get(&initializers, info->name, NULL)) continue;
        TD_TRY_GOTO(find_unmade(s, info->name, "a graph input", &id), cleanup);
        if (id == TD_NO_VALUE) {
            status = td_fail(s->err, TREADLE_FORMAT, "graph input %zu has no name", i);
            goto cleanup;
        }
        td_ir_value *v = td_graph_value(g, id);
        v->declared = &info->type;
        v->port = (int32_t)g->n_inputs;
        g->inputs[g->n_inputs++] = id;
        if (s->outer) { /* what feeds a body decides its types */
            v->may_be_absent = info->type.kind == TD_ONNX_TYPE_OPTIONAL;
            continue;
        }
        if (!set_type(g, &info->type, v, &no_room)) {
            status =
                td_fail(s->err, TREADLE_UNSUPPORTED,
                        "graph input \"%.*s\" is of a type that is not supported: expected a tensor, a sequence of "
                        "tensors, or an optional of these",
                        TD_STR_ARGS(info->name));
            goto cleanup;
        }
        if (v->type.kind == TD_VALUE_TENSOR && v->type.tensor.dtype == TD_UNDEFINED) {
            status =
                td_fail(s->err, TREADLE_FORMAT, "graph input \"%.*s\" has no element type", TD_STR_ARGS(info->name));
            goto cleanup;
        }
        if (no_room) {
            status = no_memory(s);
            goto cleanup;
        }
    }
cleanup:
    td_map_free(&initializers);
    return status;
}

static treadle_status add_outputs(scope *s) {
    const td_onnx_graph *og = s->source;
    td_graph *g = s->graph;
    g->outputs = TD_ARENA_ARRAY(g->arena, int32_t, og->n_outputs);
    if (!g->outputs) return no_memory(s);
    for (size_t i = 0; i < og->n_outputs; i++) {
        TD_TRY(find_value(s, og->outputs[i].name, &g->outputs[i]));
        if (g->outputs[i] == TD_NO_VALUE) return td_fail(s->err, TREADLE_FORMAT, "graph output %zu has no name", i);
        td_graph_value(g, g->outputs[i])->declared = &og->outputs[i].type;
    }
    g->n_outputs = og->n_outputs;
    for (size_t i = 0; i < og->n_value_infos; i++) {
        uint64_t id;
        if (!td_map_get(&s->names, og->value_infos[i].name, &id)) continue;
        td_ir_value *v = td_graph_value(g, (int32_t)(int64_t)id);
        if (!v->declared) v->declared = &og->value_infos[i].type;
    }
    return TREADLE_OK;
}

static treadle_status check_made(scope *s) {
    td_graph *g = s->graph;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const td_node *node = g->nodes.items[i];
        for (size_t k = 0; k < node->n_in; k++) {
            if (node->in[k] == TD_NO_VALUE || is_made(td_graph_value(g, node->in[k]))) continue;
            char text[320];
            td_node_describe(node, text, sizeof text);
            td_str name = td_graph_value(g, node->in[k])->name;
            if (k >= td_node_n_op_inputs(node))
                return td_fail(s->err, TREADLE_FORMAT, "%s: nothing makes \"%.*s\", which its subgraph reads", text,
                               TD_STR_ARGS(name));
            return td_fail(s->err, TREADLE_FORMAT, "%s: nothing makes its input %zu, \"%.*s\"", text, k,
                           TD_STR_ARGS(name));
        }
    }
    for (size_t i = 0; i < g->n_outputs; i++)
        if (!is_made(td_graph_value(g, g->outputs[i])))
            return td_fail(s->err, TREADLE_FORMAT, "nothing makes the graph output \"%.*s\"",
                           TD_STR_ARGS(td_graph_value(g, g->outputs[i])->name));
    return TREADLE_OK;
}

static treadle_status build_graph(scope *s) {
    TD_TRY(add_inputs(s));
    TD_TRY(add_initializers(s));
    TD_TRY(add_nodes(s, s->source->nodes, s->source->n_nodes));
    TD_TRY(add_outputs(s));
    TD_TRY(check_made(s));
    return td_graph_sort(s->graph, s->err);
}

treadle_status td_graph_build(td_graph *graph, const td_onnx_model *model, treadle_error *err) {
    if (!graph->arena) graph->arena = &graph->own;
    size_t n_nodes = 0;
    scope s = {.graph = graph,
               .model = model,
               .source = &model->graph,
               .err = err,
               .n_nodes = &n_nodes,
               .opsets = model->opsets,
               .n_opsets = model->n_opsets};
    treadle_status status = build_graph(&s);
    td_map_free(&s.names);
    if (status != TREADLE_OK && model->path) td_error_file(err, model->path);
    return status;
}
