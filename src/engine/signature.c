/* engine/signature.c - inputs and outputs of an ONNX file, read without its weights. */
#include "base/alloc.h"
#include "base/map.h"
#include "engine/engine.h"

static bool make_port(const td_onnx_value_info *info, bool optional, td_light_port *port) {
    const td_onnx_type *type = &info->type;
    port->name = info->name;
    port->kind = type->kind;
    port->optional = optional || type->kind == TD_ONNX_TYPE_OPTIONAL;
    port->props = info->props;
    port->n_props = info->n_props;
    while ((type->kind == TD_ONNX_TYPE_OPTIONAL || type->kind == TD_ONNX_TYPE_SEQUENCE) && type->elem)
        type = type->elem;
    port->dtype = type->dtype;
    port->shape.rank = -1;
    if (!type->has_shape) return true;
    if (type->rank > TD_MAX_RANK) return false;
    port->shape.rank = type->rank;
    for (int i = 0; i < type->rank; i++) {
        port->shape.dims[i] = type->dims[i].value >= 0 ? type->dims[i].value : TD_DIM_UNKNOWN;
        port->dim_names[i] = type->dims[i].value >= 0 ? (td_str){0} : type->dims[i].param;
    }
    return true;
}

/* What no run could do without: a name that is an input's alone, and a type. */
static treadle_status check_inputs(const td_onnx_graph *graph, treadle_error *err) {
    td_map names = {0};
    treadle_status status = TREADLE_OK;
    for (size_t i = 0; status == TREADLE_OK && i < graph->n_inputs; i++) {
        const td_onnx_value_info *info = &graph->inputs[i];
        const td_onnx_type *type = &info->type;
        while ((type->kind == TD_ONNX_TYPE_OPTIONAL || type->kind == TD_ONNX_TYPE_SEQUENCE) && type->elem)
            type = type->elem;
        if (td_map_get(&names, info->name, NULL))
            status = td_fail(err, TREADLE_FORMAT, "the graph has two inputs \"%.*s\"", TD_STR_ARGS(info->name));
        else if (type->kind == TD_ONNX_TYPE_TENSOR && type->dtype == TD_UNDEFINED)
            status = td_fail(err, TREADLE_FORMAT, "input \"%.*s\" has no element type", TD_STR_ARGS(info->name));
        else if (!td_map_set(&names, info->name, i)) status = td_fail_memory(err, "a graph's signature", 0);
    }
    td_map_free(&names);
    return status;
}

static treadle_status make_ports(td_signature *s, treadle_error *err) {
    const td_onnx_graph *graph = &s->model->graph;
    td_light_port *inputs = TD_ARENA_ARRAY(&s->arena, td_light_port, graph->n_inputs);
    td_light_port *outputs = TD_ARENA_ARRAY(&s->arena, td_light_port, graph->n_outputs);
    td_map constants = {0};
    treadle_status status = TREADLE_OK;
    bool ok = inputs && outputs;
    for (size_t i = 0; ok && i < graph->n_initializers; i++)
        ok = td_map_set(&constants, graph->initializers[i].name, i);
    if (!ok) status = td_fail_memory(err, "a graph's signature", 0);
    if (status == TREADLE_OK) status = check_inputs(graph, err);
    for (size_t i = 0; status == TREADLE_OK && i < graph->n_inputs; i++) {
        bool has_default = td_map_get(&constants, graph->inputs[i].name, NULL);
        if (has_default && s->model->ir_version < 4) continue; /* there every initializer is listed as an input */
        if (!make_port(&graph->inputs[i], has_default, &inputs[s->n_inputs++]))
            status = td_fail(err, TREADLE_UNSUPPORTED, "input \"%.*s\" has more than %d dimensions",
                             TD_STR_ARGS(graph->inputs[i].name), TD_MAX_RANK);
    }
    for (size_t i = 0; status == TREADLE_OK && i < graph->n_outputs; i++)
        if (!make_port(&graph->outputs[i], false, &outputs[s->n_outputs++]))
            status = td_fail(err, TREADLE_UNSUPPORTED, "output \"%.*s\" has more than %d dimensions",
                             TD_STR_ARGS(graph->outputs[i].name), TD_MAX_RANK);
    s->inputs = inputs;
    s->outputs = outputs;
    td_map_free(&constants);
    return status;
}

treadle_status td_signature_open(const char *path, td_signature **out, treadle_error *err) {
    td_signature *s = td_alloc_zero(1, sizeof *s);
    if (!s) return td_fail_memory(err, "a graph's signature", sizeof *s);
    td_arena_init(&s->arena);
    treadle_status status = td_onnx_open(path, &(td_onnx_read_options){.data = TD_ONNX_DATA_SMALL}, &s->model, err);
    if (status == TREADLE_OK) status = make_ports(s, err);
    if (status != TREADLE_OK) {
        td_signature_close(s);
        return status;
    }
    *out = s;
    return TREADLE_OK;
}

void td_signature_close(td_signature *signature) {
    if (!signature) return;
    if (signature->model) td_onnx_close(signature->model);
    td_arena_free(&signature->arena);
    td_free(signature);
}

static ptrdiff_t find(const td_light_port *ports, size_t n, td_str name) {
    for (size_t i = 0; i < n; i++)
        if (td_str_equal(ports[i].name, name)) return (ptrdiff_t)i;
    return -1;
}

ptrdiff_t td_signature_find_input(const td_signature *signature, td_str name) {
    return find(signature->inputs, signature->n_inputs, name);
}

ptrdiff_t td_signature_find_output(const td_signature *signature, td_str name) {
    return find(signature->outputs, signature->n_outputs, name);
}
