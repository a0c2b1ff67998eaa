/* pass/pick_rows.c - logits of few positions (td_light_pick_rows): an output [batch, seq, ...] that is made by row-wise
 * ops needs of their operands only the rows that are asked for.
 *
 * From the output backwards the pass grows a region of row-wise nodes whose results nobody else reads, and cuts the
 * values that enter it: a PickRows node passes them on as they are, or, when the ctx has positions, only these. An
 * output that an If makes is picked in its branches, if all of them can. */
#include "light/pass.h"

#include <string.h>

/* --- the op: input [batch, seq, ...] -> the same, or [batch, n, ...] */

typedef struct pick_state {
    size_t output; /* whose positions it follows */
} pick_state;

static treadle_status pick_infer(td_infer *in) {
    td_shape shape = in->inputs[0]->tensor.shape;
    if (shape.rank > 1) shape.dims[1] = TD_DIM_UNKNOWN; /* the ctx knows */
    return td_infer_set(in, 0, in->inputs[0]->tensor.dtype, &shape);
}

static treadle_status pick_run(td_run *r) {
    const pick_state *state = r->state;
    const td_pick *pick = r->ctx->picked[state->output];
    const td_tensor *in = r->in[0];
    td_shape shape = in->shape;
    if (!pick->on || shape.dims[0] != (int64_t)pick->batch || shape.dims[1] != pick->seq)
        return td_run_view(r, 0, 0, in);
    shape.dims[1] = (int64_t)pick->n;
    TD_TRY(td_run_alloc(r, 0, in->dtype, &shape));
    td_tensor row = *in, to = *r->out[0];
    size_t item = (size_t)td_dtype_bits(in->dtype) / 8;
    row.shape.dims[0] = row.shape.dims[1] = to.shape.dims[0] = to.shape.dims[1] = 1;
    for (int64_t b = 0; b < shape.dims[0]; b++) {
        for (int64_t i = 0; i < shape.dims[1]; i++) {
            int64_t at = pick->positions[b * shape.dims[1] + i];
            row.data = (char *)in->data + (size_t)(b * in->strides[0] + at * in->strides[1]) * item;
            to.data = (char *)r->out[0]->data + (size_t)(b * r->out[0]->strides[0] + i * r->out[0]->strides[1]) * item;
            td_tensor_copy(&to, &row);
        }
    }
    return TREADLE_OK;
}

static const td_onnx_attr *attr_of(const td_node *node, const char *name) {
    for (size_t i = 0; i < node->n_attrs; i++)
        if (td_str_is(node->attrs[i].name, name)) return &node->attrs[i];
    return NULL;
}

static treadle_status pick_prepare(td_prepare *p) {
    pick_state *state = p->state;
    state->output = (size_t)td_attr_int(p, "output");
    return TREADLE_OK;
}

static const td_op_impl pick_impl = {.state_bytes = sizeof(pick_state),
                                     .prepare = pick_prepare,
                                     .infer = pick_infer,
                                     .run = pick_run,
                                     .flags = TD_OP_VIEW | TD_OP_ANY_STRIDE};
static const td_op pick_op = {"treadle.internal", "PickRows", 1, &pick_impl};

/* --- which nodes are row-wise */

typedef enum row_kind {
    ROWS_ELEMENTWISE, /* every input is rows, or the same for all rows */
    ROWS_FIRST,       /* input 0 is rows, the others constants or one number */
    ROWS_FIRST_TWO,   /* inputs 0 and 1 are rows, the others constants or one number */
    ROWS_NORM,        /* like FIRST, over the last axis only */
} row_kind;

static const struct {
    const char *domain, *name;
    row_kind kind;
} row_ops[] = {
    {"", "Abs", ROWS_ELEMENTWISE},
    {"", "Add", ROWS_ELEMENTWISE},
    {"", "Cast", ROWS_ELEMENTWISE},
    {"", "Clip", ROWS_ELEMENTWISE},
    {"", "Div", ROWS_ELEMENTWISE},
    {"", "Elu", ROWS_ELEMENTWISE},
    {"", "Erf", ROWS_ELEMENTWISE},
    {"", "Exp", ROWS_ELEMENTWISE},
    {"", "Gelu", ROWS_ELEMENTWISE},
    {"", "Identity", ROWS_FIRST},
    {"", "LayerNormalization", ROWS_NORM},
    {"", "LogSoftmax", ROWS_NORM},
    {"", "MatMul", ROWS_FIRST},
    {"", "MatMulInteger", ROWS_FIRST},
    {"", "Mul", ROWS_ELEMENTWISE},
    {"", "Neg", ROWS_ELEMENTWISE},
    {"", "Pow", ROWS_ELEMENTWISE},
    {"", "RMSNormalization", ROWS_NORM},
    {"", "Reciprocal", ROWS_ELEMENTWISE},
    {"", "Relu", ROWS_ELEMENTWISE},
    {"", "Sigmoid", ROWS_ELEMENTWISE},
    {"", "SimplifiedLayerNormalization", ROWS_NORM},
    {"", "Softmax", ROWS_NORM},
    {"", "Sqrt", ROWS_ELEMENTWISE},
    {"", "Sub", ROWS_ELEMENTWISE},
    {"", "Swish", ROWS_ELEMENTWISE},
    {"", "Tanh", ROWS_ELEMENTWISE},
    {"com.microsoft", "BiasGelu", ROWS_ELEMENTWISE},
    {"com.microsoft", "FastGelu", ROWS_ELEMENTWISE},
    {"com.microsoft", "Gelu", ROWS_ELEMENTWISE},
    {"com.microsoft", "MatMulNBits", ROWS_FIRST},
    {"com.microsoft", "QuickGelu", ROWS_ELEMENTWISE},
    {"com.microsoft", "SkipLayerNormalization", ROWS_FIRST_TWO},
    {"com.microsoft", "SkipSimplifiedLayerNormalization", ROWS_FIRST_TWO},
    {"treadle", "BlockAffineMatMul", ROWS_FIRST},
    {"treadle.internal", "Linear", ROWS_FIRST},
};

/* batch and seq of the output, as symbols or numbers. */
typedef struct rows {
    int64_t batch, seq;
} rows;

static bool has_rows(const td_graph *g, int32_t id, rows want) {
    const td_value *type = &td_graph_value(g, id)->type;
    const td_shape *s = &type->tensor.shape;
    return type->kind == TD_VALUE_TENSOR && td_dtype_bits(type->tensor.dtype) >= 8 && s->rank >= 3 &&
           s->dims[0] == want.batch && s->dims[1] == want.seq;
}

/* The same for all rows of a tensor of this rank: it has no rows, or one that broadcasts. */
static bool same_for_rows(const td_graph *g, int32_t id, int rank) {
    const td_value *type = &td_graph_value(g, id)->type;
    const td_shape *s = &type->tensor.shape;
    if (type->kind != TD_VALUE_TENSOR || s->rank < 0) return false;
    for (int d = 0; d < s->rank; d++)
        if (d - s->rank + rank < 2 && s->dims[d] != 1) return false;
    return s->rank <= rank;
}

static bool is_one_number(const td_graph *g, int32_t id) {
    const td_shape *s = &td_graph_value(g, id)->type.tensor.shape;
    return s->rank == 0 || (s->rank == 1 && s->dims[0] == 1);
}

static bool is_rows(const td_graph *g, int32_t id, rows want, int rank) {
    return !td_graph_is_constant(g, id) && has_rows(g, id, want) &&
           td_graph_value(g, id)->type.tensor.shape.rank == rank;
}

static bool over_last_axis(const td_graph *g, const td_node *node) {
    int rank = td_graph_value(g, node->in[0])->type.tensor.shape.rank;
    const td_onnx_attr *axis = attr_of(node, "axis");
    if (axis) return axis->type == TD_ONNX_ATTR_INT && (axis->i == -1 || axis->i == rank - 1);
    bool softmax = td_str_is(node->op_type, "Softmax") || td_str_is(node->op_type, "LogSoftmax");
    return !softmax || node->opset >= 13; /* before, axis 1 was the default, and all from it one row */
}

/* Row-wise over rows like `want`? *n_rows: inputs 0..n_rows-1, with ELEMENTWISE all that are no constants, are rows. */
static bool is_row_wise(const td_graph *g, const td_node *node, rows want, row_kind *kind) {
    size_t row = 0;
    while (row < TD_COUNT(row_ops) && !td_node_is(node, row_ops[row].domain, row_ops[row].name)) row++;
    if (row == TD_COUNT(row_ops) || node->n_in == 0 || node->in[0] == TD_NO_VALUE) return false;
    *kind = row_ops[row].kind;
    size_t n_rows = *kind == ROWS_FIRST_TWO ? 2 : 1;
    int rank = 0;
    for (size_t k = 0; k < node->n_out; k++) {
        if (node->out[k] == TD_NO_VALUE || !td_graph_value(g, node->out[k])->n_uses) continue;
        if (!has_rows(g, node->out[k], want)) return false;
        rank = td_graph_value(g, node->out[k])->type.tensor.shape.rank;
    }
    for (size_t k = 0; k < node->n_in; k++) {
        int32_t id = node->in[k];
        if (id == TD_NO_VALUE) continue;
        if (*kind == ROWS_ELEMENTWISE ? !is_rows(g, id, want, rank) && !same_for_rows(g, id, rank)
            : k < n_rows              ? !is_rows(g, id, want, rank)
                                      : !td_graph_is_constant(g, id) && !is_one_number(g, id))
            return false;
    }
    bool has_row_zeros = td_node_is(node, "", "MatMulInteger") && node->n_in > 2 && node->in[2] != TD_NO_VALUE &&
                         !is_one_number(g, node->in[2]);
    if (has_row_zeros) return false; /* one for each row, which are not picked with them */
    bool product = td_node_is(node, "", "MatMul") || td_node_is(node, "", "MatMulInteger");
    if (product && td_graph_value(g, node->in[1])->type.tensor.shape.rank != 2) return false;
    return *kind != ROWS_NORM || over_last_axis(g, node);
}

static bool is_row_input(const td_graph *g, const td_node *node, row_kind kind, size_t k, rows want) {
    int32_t id = node->in[k];
    if (id == TD_NO_VALUE) return false;
    if (kind != ROWS_ELEMENTWISE) return k < (kind == ROWS_FIRST_TWO ? 2u : 1u);
    return is_rows(g, id, want, td_graph_value(g, node->out[0])->type.tensor.shape.rank);
}

/* --- the region of one output */

typedef struct region {
    bool *inside;    /* per node */
    int32_t *uses;   /* per value: by nodes inside, or as the output */
    int32_t *picked; /* per value: its picked form, or TD_NO_VALUE */
} region;

/* All that is read of the node's results is read inside. */
static bool closed(const td_graph *g, const region *r, const td_node *node) {
    bool any = false;
    for (size_t k = 0; k < node->n_out; k++) {
        if (node->out[k] == TD_NO_VALUE) continue;
        if (r->uses[node->out[k]] != td_graph_value(g, node->out[k])->n_uses) return false;
        any |= r->uses[node->out[k]] > 0;
    }
    return any;
}

/* Counts a use; true: it is the first of a value that a node makes. */
static bool add_use(const td_graph *g, region *r, int32_t value) {
    return r->uses[value]++ == 0 && td_graph_value(g, value)->producer != TD_NO_NODE;
}

/* From the output's producer back, as long as some value that is used comes from a node not looked at yet. */
static size_t grow(const td_graph *g, region *r, int32_t output, rows want) {
    size_t n = 0, pending = add_use(g, r, output);
    for (size_t i = (size_t)td_graph_value(g, output)->producer + 1; pending && i-- > 0;) {
        const td_node *node = g->nodes.items[i];
        row_kind kind;
        for (size_t k = 0; k < node->n_out; k++) pending -= node->out[k] != TD_NO_VALUE && r->uses[node->out[k]] > 0;
        if (!closed(g, r, node) || !is_row_wise(g, node, want, &kind)) continue;
        r->inside[i] = true;
        n++;
        for (size_t k = 0; k < node->n_in; k++)
            if (is_row_input(g, node, kind, k, want)) pending += add_use(g, r, node->in[k]);
    }
    return n;
}

/* Most outputs are made by nodes that are not row-wise: caches. */
static bool may_grow(const td_graph *g, int32_t output, rows want) {
    int32_t from = td_graph_value(g, output)->producer;
    row_kind kind;
    return from != TD_NO_NODE && is_row_wise(g, g->nodes.items[from], want, &kind);
}

/* A PickRows node after the value's producer; nodes inside then read its output. */
static treadle_status cut(td_pass_ctx *p, int32_t value, size_t output, td_node **out) {
    td_graph *g = p->graph;
    td_node *pick = td_graph_new_node(g, 1, 1);
    td_onnx_attr *attr = TD_ARENA_NEW(g->arena, td_onnx_attr);
    int32_t picked = td_graph_add_value(g, td_graph_value(g, value)->name);
    if (!pick || !attr || picked == TD_NO_VALUE) return td_fail_memory(p->err, "picking rows", 0);
    *attr = (td_onnx_attr){.name = TD_STR("output"), .type = TD_ONNX_ATTR_INT, .i = (int64_t)output};
    pick->name = td_graph_value(g, value)->name;
    pick->domain = td_str_from(pick_op.domain);
    pick->op_type = td_str_from(pick_op.name);
    pick->opset = 1;
    pick->op = &pick_op;
    pick->attrs = attr;
    pick->n_attrs = 1;
    pick->in[0] = value;
    pick->out[0] = picked;
    *out = pick;
    return td_pass_resolve(p, pick);
}

static treadle_status cut_region(td_pass_ctx *p, region *r, size_t output, rows want) {
    td_graph *g = p->graph;
    size_t n = g->nodes.n;
    for (size_t i = 0; i < n; i++) {
        td_node *node = g->nodes.items[i];
        row_kind kind;
        if (!r->inside[i] || !is_row_wise(g, node, want, &kind)) continue;
        for (size_t k = 0; k < node->n_in; k++) {
            if (!is_row_input(g, node, kind, k, want)) continue;
            int32_t id = node->in[k], from = td_graph_value(g, id)->producer;
            if (from != TD_NO_NODE && r->inside[from]) continue;
            if (r->picked[id] == TD_NO_VALUE) {
                td_node *pick = NULL;
                TD_TRY(cut(p, id, output, &pick));
                r->picked[id] = pick->out[0];
                if (!td_vec_push(&g->nodes, pick)) return td_fail_memory(p->err, "picking rows", 0);
            }
            node->in[k] = r->picked[id];
        }
    }
    return td_graph_sort(g, p->err); /* the new nodes stand at the end */
}

/* --- outputs that an If makes */

const td_node *td_pick_branches(const td_graph *graph, size_t output, size_t *k) {
    const td_ir_value *v = td_graph_value(graph, graph->outputs[output]);
    const td_node *node = v->producer == TD_NO_NODE ? NULL : graph->nodes.items[v->producer];
    if (!node || v->n_uses != 1 || !td_node_is(node, "", "If")) return NULL;
    for (*k = 0; node->out[*k] != graph->outputs[output];) ++*k;
    return node;
}

static treadle_status ask_branches(td_pass_ctx *p, size_t output) {
    size_t k;
    const td_node *node = td_pick_branches(p->graph, output, &k);
    for (size_t i = 0; node && i < node->n_bodies; i++) {
        td_light *branch = &node->bodies[i]->light;
        if (!branch->pick_marks)
            branch->pick_marks = TD_ARENA_ARRAY(p->graph->arena, td_pick_mark, branch->graph.n_outputs);
        if (!branch->pick_marks) return td_fail_memory(p->err, "picking rows", branch->graph.n_outputs);
        branch->pick_marks[k] = TD_PICK_ASKED;
    }
    return TREADLE_OK;
}

treadle_status td_pass_pick_rows(td_pass_ctx *p) {
    td_graph *g = p->graph;
    td_pick_mark *marks = p->light->pick_marks;
    for (size_t i = 0; marks && i < g->n_outputs; i++) {
        int32_t output = g->outputs[i];
        if (marks[i] == TD_PICK_NEVER) continue;
        TD_TRY(ask_branches(p, i));
        const td_value *type = &td_graph_value(g, output)->type;
        const td_shape *shape = &type->tensor.shape;
        if (type->kind != TD_VALUE_TENSOR || shape->rank < 3 || shape->dims[0] == TD_DIM_UNKNOWN ||
            shape->dims[1] == TD_DIM_UNKNOWN || td_graph_value(g, output)->n_uses != 1)
            continue;
        rows want = {shape->dims[0], shape->dims[1]};
        if (!may_grow(g, output, want)) continue;
        size_t n_values = g->values.n;
        td_arena *a = p->resolver->arena;
        region r = {.inside = TD_ARENA_ARRAY(a, bool, g->nodes.n),
                    .uses = TD_ARENA_ARRAY(a, int32_t, n_values),
                    .picked = TD_ARENA_ARRAY(a, int32_t, n_values)};
        if (!r.inside || !r.uses || !r.picked) return td_fail_memory(p->err, "picking rows", n_values);
        for (size_t k = 0; k < n_values; k++) r.picked[k] = TD_NO_VALUE;
        if (grow(g, &r, output, want) == 0) continue;
        TD_TRY(cut_region(p, &r, i, want));
        marks[i] = TD_PICK_HERE;
    }
    return TREADLE_OK;
}
