/* light/known.c - see known.h. Source: the ONNX op texts of the ops in the table. */
#include "light/known.h"

#include "light/ir.h"
#include "tensor/half.h"

static bool is_list(const td_value *type) {
    td_dtype dtype = type->tensor.dtype;
    return type->kind == TD_VALUE_TENSOR && (dtype == TD_INT64 || dtype == TD_INT32 || dtype == TD_BOOL) &&
           type->tensor.shape.rank >= 0 && type->tensor.shape.rank <= 1;
}

/* Entry i of a constant, any number. */
static bool constant_at(const td_graph *g, int32_t id, int64_t i, int64_t *out) {
    if (id == TD_NO_VALUE || !td_graph_is_constant(g, id)) return false;
    const td_tensor *t = &td_graph_value(g, id)->type.tensor;
    if (!is_list(&td_graph_value(g, id)->type) || i >= td_tensor_count(t)) return false;
    *out = td_load_i64(t->dtype, t->data, t->shape.rank ? i * t->strides[0] : 0);
    return true;
}

static int64_t number(int64_t v) { return v >= -1 ? v : TD_KNOWN_NOT; }
static bool is_number(int64_t v) { return v >= -1; }

bool td_known_of(const td_graph *g, int32_t id, td_known *out) {
    if (id == TD_NO_VALUE) return false;
    const td_ir_value *v = td_graph_value(g, id);
    if (!td_graph_is_constant(g, id)) {
        if (v->known) *out = *v->known;
        return v->known != NULL;
    }
    if (!is_list(&v->type) || td_tensor_count(&v->type.tensor) > TD_MAX_RANK) return false;
    out->n = (int)td_tensor_count(&v->type.tensor);
    for (int i = 0; i < out->n; i++) {
        int64_t entry = 0;
        constant_at(g, id, i, &entry);
        out->v[i] = number(entry);
    }
    return true;
}

/* --- by op: false: nothing is known of the result */

static int64_t attr_or(const td_node *node, const char *name, int64_t otherwise) {
    for (size_t i = 0; i < node->n_attrs; i++)
        if (td_str_is(node->attrs[i].name, name)) return node->attrs[i].i;
    return otherwise;
}

static bool of_shape(const td_graph *g, const td_node *node, td_known *out) {
    const td_value *x = &td_graph_value(g, node->in[0])->type;
    int64_t rank = x->tensor.shape.rank, from = attr_or(node, "start", 0), to = attr_or(node, "end", rank);
    if (x->kind != TD_VALUE_TENSOR || rank < 0) return false;
    from = TD_MIN(TD_MAX(from < 0 ? from + rank : from, (int64_t)0), rank);
    to = TD_MIN(TD_MAX(to < 0 ? to + rank : to, from), rank);
    out->n = (int)(to - from);
    for (int i = 0; i < out->n; i++) {
        int64_t d = x->tensor.shape.dims[from + i];
        out->v[i] = d == TD_DIM_UNKNOWN ? TD_KNOWN_NOT : d;
    }
    return true;
}

static bool of_copy(const td_graph *g, const td_node *node, td_known *out) {
    bool truths = td_graph_value(g, node->out[0])->type.tensor.dtype == TD_BOOL;
    if (truths != (td_graph_value(g, node->in[0])->type.tensor.dtype == TD_BOOL)) return false; /* Cast */
    return td_known_of(g, node->in[0], out);
}

static bool of_gather(const td_graph *g, const td_node *node, td_known *out) {
    td_known from;
    int64_t at;
    if (!td_known_of(g, node->in[0], &from) || td_graph_value(g, node->in[0])->type.tensor.shape.rank != 1)
        return false;
    for (out->n = 0; out->n < TD_MAX_RANK && constant_at(g, node->in[1], out->n, &at); out->n++) {
        if (at < -from.n || at >= from.n) return false;
        out->v[out->n] = from.v[at < 0 ? at + from.n : at];
    }
    return out->n > 0;
}

static bool of_concat(const td_graph *g, const td_node *node, td_known *out) {
    out->n = 0;
    for (size_t k = 0; k < node->n_in; k++) {
        const td_value *type = &td_graph_value(g, node->in[k])->type;
        td_known one;
        if (!td_known_of(g, node->in[k], &one)) { /* of a known length */
            if (!is_list(type) || type->tensor.shape.rank != 1) return false;
            int64_t n = type->tensor.shape.dims[0];
            if (n < 0 || n > TD_MAX_RANK) return false;
            one.n = (int)n;
            for (int i = 0; i < one.n; i++) one.v[i] = TD_KNOWN_NOT;
        }
        if (out->n + one.n > TD_MAX_RANK) return false;
        for (int i = 0; i < one.n; i++) out->v[out->n++] = one.v[i];
    }
    return true;
}

static bool of_slice(const td_graph *g, const td_node *node, td_known *out) {
    td_known from;
    int64_t start, end, step = 1;
    if (node->n_in < 3 || !td_known_of(g, node->in[0], &from)) return false;
    if (!constant_at(g, node->in[1], 0, &start) || !constant_at(g, node->in[2], 0, &end)) return false;
    if (node->n_in > 4 && node->in[4] != TD_NO_VALUE && !constant_at(g, node->in[4], 0, &step)) return false;
    if (step != 1) return false;
    start = TD_MAX(start < 0 ? start + from.n : start, (int64_t)0);
    end = TD_MIN(end < 0 ? end + from.n : end, (int64_t)from.n);
    for (out->n = 0; start + out->n < end; out->n++) out->v[out->n] = from.v[start + out->n];
    return true;
}

/* Both operands, with as many entries; one entry stands for all. */
static bool operands(const td_graph *g, int32_t x, int32_t y, td_known *a, td_known *b) {
    if (!td_known_of(g, x, a) || !td_known_of(g, y, b)) return false;
    if (a->n != b->n && a->n != 1 && b->n != 1) return false;
    int n = a->n == 1 ? b->n : a->n; /* none, beside one, is none */
    for (int i = 1; i < n && a->n == 1; i++) a->v[i] = a->v[0];
    for (int i = 1; i < n && b->n == 1; i++) b->v[i] = b->v[0];
    a->n = b->n = n;
    return true;
}

static int64_t compute(char op, int64_t a, int64_t b) {
    int64_t result;
    bool keeps_a = (op == '+' && b == 0) || (op == '-' && b == 0) || (op == '*' && b == 1) || (op == '/' && b == 1);
    if (keeps_a) return a;
    if ((op == '+' && a == 0) || (op == '*' && a == 1)) return b;
    if (!is_number(a) || !is_number(b)) return TD_KNOWN_NOT;
    if (op == '/') return a >= 0 && b > 0 ? a / b : TD_KNOWN_NOT;
    bool overflows = op == '+'   ? TD_ADD_OVERFLOWS(a, b, &result)
                     : op == '-' ? TD_ADD_OVERFLOWS(a, -b, &result)
                                 : TD_MUL_OVERFLOWS(a, b, &result);
    return overflows ? TD_KNOWN_NOT : number(result);
}

static bool of_arithmetic(const td_graph *g, const td_node *node, td_known *out) {
    td_known b;
    char op = td_str_is(node->op_type, "Add") ? '+' : td_str_is(node->op_type, "Sub") ? '-' : 0;
    if (!op) op = td_str_is(node->op_type, "Mul") ? '*' : '/';
    if (!operands(g, node->in[0], node->in[1], out, &b)) return false;
    for (int i = 0; i < out->n; i++)
        out->v[i] = out->v[i] == TD_KNOWN_NOT || b.v[i] == TD_KNOWN_NOT ? TD_KNOWN_NOT : compute(op, out->v[i], b.v[i]);
    return true;
}

static bool of_equal(const td_graph *g, const td_node *node, td_known *out) {
    td_known b;
    if (!operands(g, node->in[0], node->in[1], out, &b)) return false;
    for (int i = 0; i < out->n; i++) {
        int64_t x = out->v[i], y = b.v[i];
        bool never = (x == -1 && y < -1) || (y == -1 && x < -1); /* no dimension is negative */
        if (x == TD_KNOWN_NOT || y == TD_KNOWN_NOT) out->v[i] = TD_KNOWN_NOT;
        else out->v[i] = x == y ? 1 : never || (is_number(x) && is_number(y)) ? 0 : TD_KNOWN_NOT;
    }
    return true;
}

static bool of_where(const td_graph *g, const td_node *node, td_known *out) {
    td_known b, which;
    if (!operands(g, node->in[1], node->in[2], out, &b) || !td_known_of(g, node->in[0], &which)) return false;
    if (which.n != out->n && which.n != 1) return false;
    for (int i = 0; i < out->n; i++) {
        int64_t choice = which.v[which.n == 1 ? 0 : i];
        if (choice == 0 || (choice == TD_KNOWN_NOT && out->v[i] != b.v[i])) out->v[i] = choice == 0 ? b.v[i] : choice;
    }
    return true;
}

static const struct {
    const char *op;
    bool (*follow)(const td_graph *g, const td_node *node, td_known *out);
} rows[] = {
    {"Add", of_arithmetic}, {"Cast", of_copy},      {"Concat", of_concat},  {"Div", of_arithmetic},
    {"Equal", of_equal},    {"Flatten", of_copy},   {"Gather", of_gather},  {"Identity", of_copy},
    {"Mul", of_arithmetic}, {"Reshape", of_copy},   {"Shape", of_shape},    {"Slice", of_slice},
    {"Squeeze", of_copy},   {"Sub", of_arithmetic}, {"Unsqueeze", of_copy}, {"Where", of_where},
};

treadle_status td_known_follow(td_graph *g, const td_node *node, treadle_error *err) {
    if (node->domain.n || node->n_out != 1 || node->out[0] == TD_NO_VALUE || !node->n_in) return TREADLE_OK;
    td_ir_value *v = td_graph_value(g, node->out[0]);
    v->known = NULL;
    if (!is_list(&v->type)) return TREADLE_OK;
    for (size_t k = 0; k < node->n_in; k++) /* of these ops only Slice has optional inputs, which it looks for */
        if (node->in[k] == TD_NO_VALUE && k < 3) return TREADLE_OK;
    td_known found = {0};
    size_t row = 0;
    while (row < TD_COUNT(rows) && !td_str_is(node->op_type, rows[row].op)) row++;
    if (row == TD_COUNT(rows) || !rows[row].follow(g, node, &found)) return TREADLE_OK;
    int64_t count = v->type.tensor.shape.rank ? v->type.tensor.shape.dims[0] : 1;
    if (count != found.n) return TREADLE_OK;
    td_known *kept = TD_ARENA_NEW(g->arena, td_known);
    if (!kept) return td_fail_memory(err, "type inference", sizeof *kept);
    *kept = found;
    v->known = kept;
    return TREADLE_OK;
}
