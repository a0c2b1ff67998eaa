/* plan/present.c - which caches come out as the columns of a run alone, not joined to the past.
 *
 * A graph that joins past and new by itself, but gives the new columns, leaves the joining to the runtime. Evidence in
 * order: what the config says; a number of columns that the graph fixes while the past's is free; then what the output
 * is made from: a cache that is whole comes from its past through ops that move or mix elements, or from an op that
 * takes the past. Where no node makes the output, the names decide: new columns are called as the ids' length is. */
#include "plan/build.h"

enum { MAX_DEPTH = 8, MAX_VISITS = 512 }; /* of subgraphs; nodes on the way from an output to its past */

typedef struct search {
    const td_onnx_graph *graph;
    const td_map *makers; /* name: the node that makes it */
    td_str past;
    const td_onnx_node *open[MAX_VISITS];
    size_t n_open, n_seen; /* open[0 .. n_open) were found, of which n_seen were looked at */
    bool too_long;
} search;

static bool index_makers(const td_onnx_graph *g, td_map *makers) {
    size_t n = 0;
    for (size_t i = 0; i < g->n_nodes; i++) n += g->nodes[i].n_outputs;
    if (!td_map_reserve(makers, n)) return false;
    for (size_t i = 0; i < g->n_nodes; i++)
        for (size_t k = 0; k < g->nodes[i].n_outputs; k++)
            if (g->nodes[i].outputs[k].n && !td_map_set(makers, g->nodes[i].outputs[k], i)) return false;
    return true;
}

static bool names_past(const search *f, const td_onnx_node *node, int depth) {
    for (size_t i = 0; i < node->n_inputs; i++)
        if (td_str_equal(node->inputs[i], f->past)) return true;
    for (size_t a = 0; a < node->n_attrs && depth < MAX_DEPTH; a++) {
        const td_onnx_graph *g = node->attrs[a].g;
        for (size_t i = 0; g && i < g->n_nodes; i++)
            if (names_past(f, &g->nodes[i], depth + 1)) return true;
    }
    return false;
}

static void open_maker(search *f, td_str name) {
    uint64_t at;
    if (!name.n || !td_map_get(f->makers, name, &at)) return;
    const td_onnx_node *node = &f->graph->nodes[at];
    for (size_t i = 0; i < f->n_open; i++)
        if (f->open[i] == node) return;
    if (f->n_open < MAX_VISITS) f->open[f->n_open++] = node;
    else f->too_long = true;
}

/* Ops whose output holds elements of their inputs, as they are or one by one. */
static bool hands_on(const td_onnx_node *node) {
    static const char *const ops[] = {"Identity",
                                      "Cast",
                                      "CastLike",
                                      "Transpose",
                                      "Reshape",
                                      "Squeeze",
                                      "Unsqueeze",
                                      "Flatten",
                                      "Concat",
                                      "Slice",
                                      "Split",
                                      "Gather",
                                      "Pad",
                                      "Expand",
                                      "Where",
                                      "Scatter",
                                      "ScatterND",
                                      "ScatterElements",
                                      "TensorScatter",
                                      "Add",
                                      "Mul",
                                      "QuantizeLinear",
                                      "DequantizeLinear",
                                      NULL};
    return !node->domain.n && td_words_find(ops, node->op_type) >= 0;
}

/* Whether the output holds what the past does. *known: some node makes it, and the way was short enough. */
static bool comes_from_past(const td_onnx_graph *graph, const td_map *makers, td_str output, td_str past, bool *known) {
    search f = {.graph = graph, .makers = makers, .past = past};
    open_maker(&f, output);
    *known = f.n_open > 0;
    while (f.n_seen < f.n_open) {
        const td_onnx_node *node = f.open[f.n_seen++];
        if (td_str_is(node->op_type, "Shape") || td_str_is(node->op_type, "Size")) continue;
        if (names_past(&f, node, 0)) return true;
        for (size_t i = 0; i < node->n_inputs && hands_on(node); i++) open_maker(&f, node->inputs[i]);
    }
    *known &= !f.too_long;
    return false;
}

/* The symbol or number of the dimension that counts the ids of a run. */
static void ids_length(const td_plan_session *s, td_str *symbol, int64_t *number) {
    int32_t token = td_plan_token_input(s);
    *symbol = (td_str){0};
    *number = 0;
    if (token < 0) return;
    const td_light_port *port = &s->signature->inputs[token];
    int d = port->shape.rank > 1 ? 1 : 0;
    if (port->shape.rank < 1) return;
    *symbol = port->dim_names[d];
    *number = TD_MAX(port->shape.dims[d], (int64_t)0);
}

static bool gives_new(const td_plan_build_ctx *b, const td_plan_session *s, const td_state_tensor *state,
                      const td_map *makers) {
    const td_light_port *in = &s->signature->inputs[state->input], *out = &s->signature->outputs[state->output];
    td_present said = b->config->state.kv_present;
    td_str symbol, mine = out->dim_names[state->seq_axis];
    int64_t number;
    bool known;
    if (said != TD_PRESENT_AUTO) return said == TD_PRESENT_NEW;
    if (out->shape.rank != in->shape.rank) return false;
    ids_length(s, &symbol, &number);
    int64_t columns = out->shape.dims[state->seq_axis];
    if (columns > 0) return columns == number;
    if (comes_from_past(&s->signature->model->graph, makers, out->name, in->name, &known)) return false;
    return known || (symbol.n && td_str_equal(symbol, mine));
}

void td_plan_find_presents(td_plan_build_ctx *b, int32_t session, size_t first) {
    td_plan *plan = b->plan;
    td_plan_session *s = &plan->sessions[session];
    td_map makers = {0};
    for (size_t k = first; k < plan->n_states && !b->out_of_memory; k++) {
        const td_state_tensor *state = &plan->states[k];
        if ((state->kind != TD_STATE_SEPARATE && state->kind != TD_STATE_COMBINED) || state->output < 0) continue;
        if (!makers.capacity && !index_makers(&s->signature->model->graph, &makers)) b->out_of_memory = true;
        else s->gives_new[state->output] = gives_new(b, s, state, &makers);
    }
    td_map_free(&makers);
}
