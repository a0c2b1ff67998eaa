/* light/ops/tree.c - TreeEnsemble of ai.onnx.ml, version 5. Source: ONNX-ML op text. Sums are doubles. */
#include "light/op.h"
#include "tensor/half.h"

#include <math.h>

enum { LEQ, LESS, GEQ, GREATER, EQUAL, UNEQUAL, MEMBER, N_MODES };
enum { AVERAGE, SUM, MIN, MAX };
enum { NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO, PROBIT };

typedef struct tree_node {
    uint8_t mode;
    bool leaf[2];         /* of the false and the true branch */
    bool missing_is_true; /* where a NaN goes */
    int64_t to[2];        /* node or leaf */
    int64_t feature;
    double split;
    const double *members; /* MEMBER */
    size_t n_members;
} tree_node;

typedef struct tree_state {
    tree_node *nodes;
    size_t n_nodes, n_leaves, n_roots;
    const int64_t *roots, *targets;
    double *weights;
    int64_t n_targets, n_features; /* n_features: at least */
    int64_t aggregate, transform;
} tree_state;

/* A tensor attribute's numbers as doubles. */
static treadle_status read_numbers(td_prepare *p, const char *name, double **out, size_t *n) {
    const td_onnx_tensor *t = td_attr_tensor(p, name);
    size_t bytes;
    *n = 0;
    *out = NULL;
    if (!t) return TREADLE_OK;
    if (t->dtype == TD_STRING || !td_dtype_bytes(t->dtype, t->count, &bytes) || bytes > t->data_bytes ||
        (t->count && !t->data))
        return td_bad_node(p, "%s holds no numbers", name);
    void *aligned = td_arena_alloc(p->arena, bytes, 64);
    *out = TD_ARENA_ARRAY(p->arena, double, (size_t)t->count);
    if (!aligned || !*out) return td_fail_memory(p->err, "trees", bytes);
    if (bytes) memcpy(aligned, t->data, bytes);
    for (int64_t i = 0; i < t->count; i++) (*out)[i] = td_load_f64(t->dtype, aligned, i);
    *n = (size_t)t->count;
    return TREADLE_OK;
}

static treadle_status read_list(td_prepare *p, const char *name, size_t wanted, const int64_t **out) {
    size_t n;
    *out = td_attr_ints(p, name, &n);
    return n == wanted ? TREADLE_OK : td_bad_node(p, "%s has %zu entries; expected %zu", name, n, wanted);
}

static treadle_status check_places(td_prepare *p) {
    const tree_state *s = p->state;
    for (size_t i = 0; i < s->n_nodes; i++) {
        const tree_node *node = &s->nodes[i];
        for (int side = 0; side < 2; side++)
            if (node->to[side] < 0 || (size_t)node->to[side] >= (node->leaf[side] ? s->n_leaves : s->n_nodes))
                return td_bad_node(p, "node %zu leads to %s %lld, which is not there", i,
                                   node->leaf[side] ? "leaf" : "node", (long long)node->to[side]);
        if (node->feature < 0) return td_bad_node(p, "node %zu asks for feature %lld", i, (long long)node->feature);
    }
    for (size_t i = 0; i < s->n_roots; i++)
        if (s->roots[i] < 0 || (size_t)s->roots[i] >= s->n_nodes)
            return td_bad_node(p, "root %lld is no node", (long long)s->roots[i]);
    for (size_t i = 0; i < s->n_leaves; i++)
        if (s->targets[i] < 0 || s->targets[i] >= s->n_targets)
            return td_bad_node(p, "leaf %zu has target %lld; there are %lld", i, (long long)s->targets[i],
                               (long long)s->n_targets);
    return TREADLE_OK;
}

/* The members of each MEMBER node, one list after the other, each ended by a NaN. */
static treadle_status deal_members(td_prepare *p) {
    tree_state *s = p->state;
    double *members;
    size_t n, at = 0;
    TD_TRY(read_numbers(p, "membership_values", &members, &n));
    for (size_t i = 0; i < s->n_nodes; i++) {
        if (s->nodes[i].mode != MEMBER) continue;
        s->nodes[i].members = members + at;
        while (at < n && !isnan(members[at])) at++;
        s->nodes[i].n_members = (size_t)(members + at - s->nodes[i].members);
        if (at == n) return td_bad_node(p, "membership_values has no list for node %zu", i);
        at++;
    }
    return TREADLE_OK;
}

static treadle_status read_nodes(td_prepare *p) {
    tree_state *s = p->state;
    double *modes, *splits;
    size_t n_splits;
    const int64_t *features, *to[2], *leaf[2], *missing = NULL;
    TD_TRY(read_numbers(p, "nodes_modes", &modes, &s->n_nodes));
    TD_TRY(read_numbers(p, "nodes_splits", &splits, &n_splits));
    if (n_splits != s->n_nodes) return td_bad_node(p, "%zu splits for %zu nodes", n_splits, s->n_nodes);
    TD_TRY(read_list(p, "nodes_featureids", s->n_nodes, &features));
    TD_TRY(read_list(p, "nodes_falsenodeids", s->n_nodes, &to[0]));
    TD_TRY(read_list(p, "nodes_truenodeids", s->n_nodes, &to[1]));
    TD_TRY(read_list(p, "nodes_falseleafs", s->n_nodes, &leaf[0]));
    TD_TRY(read_list(p, "nodes_trueleafs", s->n_nodes, &leaf[1]));
    if (td_attr_has(p, "nodes_missing_value_tracks_true"))
        TD_TRY(read_list(p, "nodes_missing_value_tracks_true", s->n_nodes, &missing));
    s->nodes = TD_ARENA_ARRAY(p->arena, tree_node, s->n_nodes);
    if (!s->nodes) return td_fail_memory(p->err, "trees", s->n_nodes * sizeof *s->nodes);
    for (size_t i = 0; i < s->n_nodes; i++) {
        if (modes[i] < 0 || modes[i] >= N_MODES) return td_bad_node(p, "node %zu has mode %g", i, modes[i]);
        s->nodes[i] = (tree_node){.mode = (uint8_t)modes[i],
                                  .leaf = {leaf[0][i] != 0, leaf[1][i] != 0},
                                  .missing_is_true = missing && missing[i],
                                  .to = {to[0][i], to[1][i]},
                                  .feature = features[i],
                                  .split = splits[i]};
        s->n_features = TD_MAX(s->n_features, features[i] + 1);
    }
    return deal_members(p);
}

static treadle_status tree_prepare(td_prepare *p) {
    tree_state *s = p->state;
    TD_TRY(read_nodes(p));
    TD_TRY(read_numbers(p, "leaf_weights", &s->weights, &s->n_leaves));
    TD_TRY(read_list(p, "leaf_targetids", s->n_leaves, &s->targets));
    s->roots = td_attr_ints(p, "tree_roots", &s->n_roots);
    s->n_targets = td_attr_has(p, "n_targets") ? td_attr_int(p, "n_targets") : 1;
    s->aggregate = td_attr_int(p, "aggregate_function");
    s->transform = td_attr_int(p, "post_transform");
    if (s->n_targets < 1 || s->n_targets > INT32_MAX)
        return td_bad_node(p, "n_targets is %lld", (long long)s->n_targets);
    if (s->aggregate < AVERAGE || s->aggregate > MAX || s->transform < NONE || s->transform > PROBIT)
        return td_bad_node(p, "aggregate_function %lld, post_transform %lld", (long long)s->aggregate,
                           (long long)s->transform);
    return check_places(p);
}

static treadle_status tree_infer(td_infer *in) {
    const tree_state *s = in->state;
    td_shape shape = in->inputs[0]->tensor.shape;
    if (shape.rank < 0) return td_infer_unknown(in, 0, in->inputs[0]->tensor.dtype, 2);
    if (shape.rank != 2) return td_infer_fail(in, "expected an input of rank 2");
    if (shape.dims[1] >= 0 && shape.dims[1] < s->n_features)
        return td_infer_fail(in, "%lld features; the trees ask for %lld", (long long)shape.dims[1],
                             (long long)s->n_features);
    shape.dims[1] = s->n_targets;
    return td_infer_set(in, 0, in->inputs[0]->tensor.dtype, &shape);
}

/* --- run */

static bool goes_true(const tree_node *node, double x) {
    if (isnan(x) && node->missing_is_true) return true;
    switch (node->mode) {
    case LEQ: return x <= node->split;
    case LESS: return x < node->split;
    case GEQ: return x >= node->split;
    case GREATER: return x > node->split;
    case EQUAL: return x == node->split;
    case UNEQUAL: return x != node->split;
    default: break;
    }
    for (size_t i = 0; i < node->n_members; i++)
        if (node->members[i] == x) return true;
    return false;
}

/* The leaf of a tree; -1: its nodes lead in a circle. */
static int64_t find_leaf(const tree_state *s, int64_t at, td_dtype dtype, const void *x, int64_t first) {
    for (size_t steps = 0; steps <= s->n_nodes; steps++) {
        const tree_node *node = &s->nodes[at];
        bool side = goes_true(node, td_load_f64(dtype, x, first + node->feature));
        at = node->to[side];
        if (node->leaf[side]) return at;
    }
    return -1;
}

/* Inverse of erf by Newton's method from Winitzki's approximation. */
static double inverse_erf(double y) {
    if (y <= -1 || y >= 1) return y < 0 ? -INFINITY : INFINITY;
    double a = 0.147, l = log(1 - y * y), b = 2 / (3.14159265358979323846 * a) + l / 2;
    double x = copysign(sqrt(sqrt(b * b - l / a) - b), y);
    for (int i = 0; i < 3; i++) x -= (erf(x) - y) / (1.12837916709551257390 * exp(-x * x));
    return x;
}

static void transform(int64_t how, double *y, int64_t n) {
    double most = -INFINITY, sum = 0;
    bool soft = how == SOFTMAX || how == SOFTMAX_ZERO;
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, y[i]);
        if (how == LOGISTIC) y[i] = 1 / (1 + exp(-y[i]));
        if (how == PROBIT) y[i] = 1.41421356237309504880 * inverse_erf(2 * y[i] - 1);
    }
    for (int64_t i = 0; soft && i < n; i++) {
        if (how == SOFTMAX_ZERO && y[i] == 0) continue; /* zeros stay */
        y[i] = exp(y[i] - most);
        sum += y[i];
    }
    for (int64_t i = 0; soft && sum > 0 && i < n; i++) y[i] /= sum;
}

static treadle_status tree_run(td_run *r) {
    const tree_state *s = r->state;
    const td_tensor *x = r->in[0];
    int64_t n_rows = x->shape.dims[0], width = x->shape.dims[1];
    double *y = td_run_scratch(r, (size_t)s->n_targets * sizeof *y);
    bool *met = td_run_scratch(r, (size_t)s->n_targets);

    if (!y || !met) return TREADLE_OUT_OF_MEMORY;
    for (int64_t row = 0; row < n_rows; row++) {
        for (int64_t k = 0; k < s->n_targets; k++) y[k] = met[k] = 0;
        for (size_t t = 0; t < s->n_roots; t++) {
            int64_t leaf = find_leaf(s, s->roots[t], x->dtype, x->data, row * width);
            if (leaf < 0) return td_run_fail(r, "tree %zu leads in a circle", t);
            double *to = &y[s->targets[leaf]], weight = s->weights[leaf];
            bool first = !met[s->targets[leaf]];
            met[s->targets[leaf]] = true;
            if (s->aggregate == MIN || s->aggregate == MAX)
                *to = first ? weight : s->aggregate == MIN ? fmin(*to, weight) : fmax(*to, weight);
            else *to += weight;
        }
        for (int64_t k = 0; s->aggregate == AVERAGE && s->n_roots && k < s->n_targets; k++) y[k] /= (double)s->n_roots;
        transform(s->transform, y, s->n_targets);
        for (int64_t k = 0; k < s->n_targets; k++)
            td_store_f64(r->out[0]->dtype, r->out[0]->data, row * s->n_targets + k, y[k]);
    }
    return TREADLE_OK;
}

const td_op_impl td_op_tree_ensemble = {
    .state_bytes = sizeof(tree_state), .prepare = tree_prepare, .infer = tree_infer, .run = tree_run};
