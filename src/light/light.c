/* light/light.c - opening and closing: model -> graph -> resolved -> rewritten -> prepared; ports. */
#include "light/light.h"

#include "base/alloc.h"
#include "light/pass.h"

static td_onnx_type_kind port_kind(const td_ir_value *v) {
    return v->type.kind == TD_VALUE_SEQUENCE ? TD_ONNX_TYPE_SEQUENCE : TD_ONNX_TYPE_TENSOR;
}

static void port_shape(const td_graph *g, td_light_port *port, const td_shape *shape) {
    port->shape = *shape;
    for (int d = 0; d < shape->rank; d++) {
        port->dim_names[d] = td_graph_symbol_name(g, shape->dims[d]);
        if (shape->dims[d] < 0 && !port->dim_names[d].n) port->shape.dims[d] = TD_DIM_UNKNOWN;
    }
}

/* Ports keep the names of the file: passes may have put another value in an output's place. */
static treadle_status make_ports(td_light *l, treadle_error *err) {
    const td_graph *g = &l->graph;
    const td_onnx_graph *og = &l->model->graph;
    l->inputs = TD_ARENA_ARRAY(&l->arena, td_light_port, g->n_inputs);
    l->outputs = TD_ARENA_ARRAY(&l->arena, td_light_port, g->n_outputs);
    if (!l->inputs || !l->outputs) return td_fail_memory(err, "the ports", 0);
    for (size_t i = 0, k = 0; i < og->n_inputs && k < g->n_inputs; i++) {
        const td_ir_value *v = td_graph_value(g, g->inputs[k]);
        if (!td_str_equal(v->name, og->inputs[i].name)) continue; /* an initializer listed as input, before IR 4 */
        td_light_port *port = &l->inputs[k++];
        port->name = v->name;
        port->kind = port_kind(v);
        port->dtype = v->type.tensor.dtype;
        port->optional = v->fallback || v->may_be_absent;
        port->props = og->inputs[i].props;
        port->n_props = og->inputs[i].n_props;
        port_shape(g, port, &v->type.tensor.shape);
    }
    for (size_t i = 0; i < g->n_outputs; i++) {
        const td_ir_value *v = td_graph_value(g, g->outputs[i]);
        td_light_port *port = &l->outputs[i];
        port->name = og->outputs[i].name;
        port->kind = port_kind(v);
        port->dtype = v->type.tensor.dtype;
        port->optional = v->may_be_absent;
        port->props = og->outputs[i].props;
        port->n_props = og->outputs[i].n_props;
        port_shape(g, port, &v->type.tensor.shape);
    }
    return TREADLE_OK;
}

/* Where inference knows less than the author wrote down, the ports say what the author wrote. */
static treadle_status declare_outputs(td_light *l, treadle_error *err) {
    for (size_t i = 0; i < l->graph.n_outputs; i++) {
        const td_onnx_type *declared = &l->model->graph.outputs[i].type;
        td_light_port *port = &l->outputs[i];
        if (declared->kind == TD_ONNX_TYPE_OPTIONAL && declared->elem) {
            port->optional = true;
            declared = declared->elem;
        }
        if (declared->kind != TD_ONNX_TYPE_TENSOR || port->kind != TD_ONNX_TYPE_TENSOR) continue;
        if (port->dtype == TD_UNDEFINED) port->dtype = declared->dtype;
        if (port->dtype != declared->dtype && declared->dtype != TD_UNDEFINED)
            return td_fail(err, TREADLE_FORMAT, "graph output \"%.*s\" is declared %s but its node makes %s",
                           TD_STR_ARGS(port->name), td_dtype_name(declared->dtype), td_dtype_name(port->dtype));
        if (!declared->has_shape || (port->shape.rank >= 0 && port->shape.rank != declared->rank) ||
            declared->rank > TD_MAX_RANK)
            continue;
        bool unknown_rank = port->shape.rank < 0;
        port->shape.rank = declared->rank;
        for (int d = 0; d < declared->rank; d++) {
            if (!unknown_rank && port->shape.dims[d] != TD_DIM_UNKNOWN) continue;
            const td_onnx_dim *dim = &declared->dims[d];
            port->shape.dims[d] = dim->value >= 0 ? dim->value : TD_DIM_UNKNOWN;
            if (dim->value < 0 && dim->param.n) {
                port->shape.dims[d] = td_graph_symbol(&l->graph, dim->param);
                port->dim_names[d] = dim->param;
                if (port->shape.dims[d] == 0) return td_fail_memory(err, "a dimension's name", 0);
            }
        }
    }
    return TREADLE_OK;
}

/* Types are inferred on states that are thrown away, so that passes see them before any weight is packed. */
static treadle_status analyse(td_light *l, treadle_error *err) {
    td_arena scratch;
    td_arena_init(&scratch);
    td_resolver r = {
        .graph = &l->graph, .arena = &scratch, .mode = TD_RESOLVE_ANALYSE, .activations = l->options.activations};
    treadle_status status;
    TD_TRY_GOTO(td_resolve_graph(&r, err), cleanup);
    TD_TRY_GOTO(td_resolve_report(&r, err), cleanup);
    if (!l->options.no_passes) {
        td_pass_ctx p = {.light = l, .graph = &l->graph, .resolver = &r, .err = err};
        TD_TRY_GOTO(td_passes_run(&p), cleanup);
    }
cleanup:
    td_resolve_release(&l->graph);
    td_resolver_free(&r);
    td_arena_free(&scratch);
    return status;
}

static treadle_status finish(td_light *l, treadle_error *err) {
    if (l->options.pack_dir) td_packs_begin(&l->packs, l->model);
    td_resolver r = {.graph = &l->graph,
                     .arena = &l->arena,
                     .mode = TD_RESOLVE_FINAL,
                     .activations = l->options.activations,
                     .packs = &l->packs,
                     .model = l->model};
    treadle_status status;
    TD_TRY_GOTO(td_resolve_graph(&r, err), cleanup);
    TD_TRY_GOTO(td_resolve_report(&r, err), cleanup);
    td_packs_commit(&l->packs);
cleanup:
    td_resolver_free(&r);
    return status;
}

/* A session of zeros becomes one whose graph is built, resolved and rewritten, and whose ports are
 * known; no weight is packed. */
static treadle_status begin(td_light *l, td_onnx_model *model, treadle_error *err) {
    l->model = model;
    td_arena_init(&l->arena);
    l->graph.arena = &l->arena;
    l->pool = td_pool_acquire(l->options.n_threads);
    if (!l->pool) return td_fail_memory(err, "the thread pool", 0);
    TD_TRY(td_graph_build(&l->graph, model, err));
    td_bodies_inherit(l);
    l->pick_marks = TD_ARENA_ARRAY(&l->arena, td_pick_mark, l->graph.n_outputs);
    if (!l->pick_marks) return td_fail_memory(err, "the outputs", l->graph.n_outputs);
    for (size_t i = 0; i < l->graph.n_outputs; i++) l->pick_marks[i] = TD_PICK_ASKED;
    TD_TRY(analyse(l, err));
    TD_TRY(make_ports(l, err));
    return declare_outputs(l, err);
}

treadle_status td_light_open_take(td_onnx_model *model, const td_light_options *options, td_light **out,
                                  treadle_error *err) {
    td_light *l = td_alloc_zero(1, sizeof *l);
    if (!l) {
        td_onnx_close(model);
        return td_fail_memory(err, "a session", sizeof *l);
    }
    if (options) l->options = *options;
    treadle_status status = begin(l, model, err);
    if (status == TREADLE_OK) status = finish(l, err);
    if (status != TREADLE_OK) {
        if (model->path) td_error_file(err, model->path);
        td_light_close(l);
        return status;
    }
    l->options.skip_passes = l->options.pack_dir = NULL; /* the caller's; not needed any more */
    *out = l;
    return TREADLE_OK;
}

treadle_status td_light_check(const char *path, td_arena *arena, td_light_port **out, treadle_error *err) {
    td_onnx_model *model;
    TD_TRY(td_onnx_open(path, NULL, &model, err));
    td_light l = {.options = {.n_threads = 1, .no_passes = true}};
    treadle_status status = begin(&l, model, err);
    size_t n = l.graph.n_outputs;
    td_light_port *ports = status == TREADLE_OK ? TD_ARENA_ARRAY(arena, td_light_port, n) : NULL;
    if (status == TREADLE_OK && !ports) status = td_fail_memory(err, "the ports", n);
    for (size_t i = 0; status == TREADLE_OK && i < n; i++)
        ports[i] = (td_light_port){.kind = l.outputs[i].kind, .dtype = l.outputs[i].dtype, .shape = l.outputs[i].shape};
    td_resolve_release(&l.graph);
    td_graph_free(&l.graph);
    if (l.pool) td_pool_release(l.pool);
    td_arena_free(&l.arena);
    td_onnx_close(model);
    *out = ports;
    return status;
}

treadle_status td_light_open(const char *path, const td_light_options *options, td_light **out, treadle_error *err) {
    td_onnx_model *model;
    TD_TRY(td_onnx_open(path, NULL, &model, err));
    return td_light_open_take(model, options, out, err);
}

void td_light_drop(const td_light *l) {
    td_onnx_drop(l->model);
    td_packs_drop(&l->packs);
}

void td_light_close(td_light *l) {
    if (!l) return;
    td_resolve_release(&l->graph);
    td_graph_free(&l->graph);
    td_packs_free(&l->packs);
    if (l->pool) td_pool_release(l->pool);
    td_arena_free(&l->arena);
    td_onnx_close(l->model);
    td_free(l);
}

size_t td_light_n_inputs(const td_light *l) { return l->graph.n_inputs; }
size_t td_light_n_outputs(const td_light *l) { return l->graph.n_outputs; }
const td_light_port *td_light_input(const td_light *l, size_t i) {
    return i < l->graph.n_inputs ? &l->inputs[i] : NULL;
}
const td_light_port *td_light_output(const td_light *l, size_t i) {
    return i < l->graph.n_outputs ? &l->outputs[i] : NULL;
}

bool td_light_can_pick_rows(const td_light *l, size_t output) {
    if (output >= l->graph.n_outputs || !l->pick_marks) return false;
    if (l->pick_marks[output] != TD_PICK_ASKED) return l->pick_marks[output] == TD_PICK_HERE;
    size_t k;
    const td_node *node = td_pick_branches(&l->graph, output, &k);
    for (size_t i = 0; node && i < node->n_bodies; i++)
        if (!td_light_can_pick_rows(&node->bodies[i]->light, k)) return false;
    return node != NULL;
}
