/* Subgraphs that are wrong, that hide names, or that light lacks something for; errors that name the
 * node around and the node inside; steady states that allocate nothing. What comes out of right ones is
 * in data/control_* (test_run). */
#include "light/cases.h"
#include "support/allocations.h"

#include "base/arena.h"

enum { MAX_NODES = 8 };

/* A graph in the making. Names are separated by blanks; "-" is the empty one. */
typedef struct made {
    td_onnx_graph graph;
    td_onnx_node nodes[MAX_NODES];
    td_onnx_attr attrs[MAX_NODES][2];
} made;

static td_arena arena;
static uint64_t max_steps;
static const td_onnx_opset opsets[] = {{{"", 0}, 17}, {{"local", 5}, 1}};
static const td_onnx_dim four[] = {{.value = 4}};
static const td_onnx_type vector = {
    .kind = TD_ONNX_TYPE_TENSOR, .dtype = TD_FLOAT, .has_shape = true, .rank = 1, .dims = four};
static const td_onnx_type flag = {.kind = TD_ONNX_TYPE_TENSOR, .dtype = TD_BOOL, .has_shape = true};
static const td_onnx_type count = {.kind = TD_ONNX_TYPE_TENSOR, .dtype = TD_INT64, .has_shape = true};

static const td_str *names(const char *text, size_t *n) {
    td_str *list = TD_ARENA_ARRAY(&arena, td_str, 8);
    REQUIRE(list);
    for (*n = 0; *text; ++*n) {
        size_t length = strcspn(text, " ");
        list[*n] = length == 1 && *text == '-' ? td_str_from("") : td_arena_str(&arena, (td_str){text, length});
        text += length + (text[length] == ' ');
    }
    return list;
}

/* Ports named by `text`; "go" is a bool, "i" and "m" are int64, all else vectors of floats. */
static const td_onnx_value_info *ports(const char *text, size_t *n) {
    const td_str *list = names(text, n);
    td_onnx_value_info *infos = TD_ARENA_ARRAY(&arena, td_onnx_value_info, 8);
    REQUIRE(infos);
    for (size_t i = 0; i < *n; i++) {
        char first = list[i].n ? list[i].p[0] : 'x';
        infos[i] = (td_onnx_value_info){.name = list[i],
                                        .type = first == 'g'                   ? flag
                                                : first == 'i' || first == 'm' ? count
                                                                               : vector};
    }
    return infos;
}

static made *graph(const char *inputs, const char *outputs) {
    made *g = TD_ARENA_NEW(&arena, made);
    REQUIRE(g);
    g->graph.name = td_str_from("g");
    g->graph.nodes = g->nodes;
    g->graph.inputs = ports(inputs, &g->graph.n_inputs);
    g->graph.outputs = ports(outputs, &g->graph.n_outputs);
    return g;
}

static td_onnx_node *add(made *g, const char *op, const char *in, const char *out) {
    td_onnx_node *node = &g->nodes[g->graph.n_nodes++];
    node->op_type = td_str_from(op);
    node->name = td_str_from(td_arena_printf(&arena, "n_%s", out));
    node->inputs = names(in, &node->n_inputs);
    node->outputs = names(out, &node->n_outputs);
    return node;
}

static void add_with(made *g, const char *op, const char *in, const char *out, const char *attr, made *first,
                     const char *attr2, made *second) {
    td_onnx_node *node = add(g, op, in, out);
    td_onnx_attr *attrs = g->attrs[g->graph.n_nodes - 1];
    attrs[0] = (td_onnx_attr){.name = td_str_from(attr), .type = TD_ONNX_ATTR_GRAPH, .g = &first->graph};
    node->attrs = attrs;
    node->n_attrs = 1;
    if (!second) return;
    attrs[1] = (td_onnx_attr){.name = td_str_from(attr2), .type = TD_ONNX_ATTR_GRAPH, .g = &second->graph};
    node->n_attrs = 2;
}

static void add_if(made *g, const char *in, const char *out, made *then, made *otherwise) {
    add_with(g, "If", in, out, "then_branch", then, "else_branch", otherwise);
}

static void add_loop(made *g, const char *in, const char *out, made *body) {
    add_with(g, "Loop", in, out, "body", body, NULL, NULL);
}

static treadle_status open_made(const made *g, td_light **light, treadle_error *err) {
    td_onnx_model model = {.ir_version = 9, .opsets = opsets, .n_opsets = 2, .graph = g->graph}, *read = NULL;
    td_buf bytes = {0};
    *light = NULL;
    CHECK_OK(td_onnx_write(&model, &bytes, err), err);
    CHECK_OK(td_onnx_parse(bytes.p, bytes.n, NULL, NULL, &read, err), err);
    treadle_status status =
        td_light_open_take(read, &(td_light_options){.n_threads = 1, .max_steps = max_steps}, light, err);
    td_buf_free(&bytes);
    td_arena_free(&arena);
    return status;
}

/* Opens, and runs with x = 1, 2, 3, 4 and the flags and counts given; *y is the first output. */
static treadle_status run_made(const made *g, bool go, int64_t m, float y[4], treadle_error *err) {
    static float x[4] = {1, 2, 3, 4};
    td_light *light;
    td_light_ctx *ctx = NULL;
    td_value in[4] = {0}, out[4] = {0};
    CHECK_OK(open_made(g, &light, err), err);
    CHECK_OK(td_light_ctx_new(light, &ctx, err), err);
    for (size_t i = 0; i < td_light_n_inputs(light); i++) {
        td_dtype dtype = td_light_input(light, i)->dtype;
        in[i].kind = TD_VALUE_TENSOR;
        td_tensor_view(&in[i].tensor, dtype, &(td_shape){.rank = dtype == TD_FLOAT, .dims = {4}},
                       dtype == TD_FLOAT  ? (void *)x
                       : dtype == TD_BOOL ? (void *)&go
                                          : (void *)&m);
    }
    treadle_status status = td_light_run(ctx, in, out, NULL, err);
    if (status == TREADLE_OK) {
        REQUIRE(out[0].tensor.dtype == TD_FLOAT && out[0].tensor.shape.rank == 1 && out[0].tensor.shape.dims[0] == 4);
        for (int i = 0; i < 4; i++) y[i] = ((float *)out[0].tensor.data)[i * out[0].tensor.strides[0]];
    }
    td_light_ctx_free(ctx);
    td_light_close(light);
    return status;
}

static void expect(const made *g, treadle_status wanted, const char *part) {
    treadle_error err = {0};
    td_light *light;
    CHECK_STATUS(open_made(g, &light, &err), wanted, &err);
    if (part) CHECK_HAS_STR(err.message, part);
    td_light_close(light);
}

/* A branch of one node. */
static made *branch(const char *op, const char *in, const char *out) {
    made *g = graph("", out);
    add(g, op, in, out);
    return g;
}

TEST(captured_value_that_nothing_makes) {
    made *g = graph("go x", "y");
    add_if(g, "go", "y", branch("Neg", "missing", "t"), branch("Neg", "x", "e"));
    expect(g, TREADLE_FORMAT, "\"missing\", which its subgraph reads");
}

/* What a branch makes itself hides what is of the same name outside, before and after the node that makes it. */
TEST(inner_names_hide_outer_ones) {
    treadle_error err = {0};
    float y[4];
    made *g = graph("go x", "y"), *then = graph("", "t");
    add(g, "Neg", "x", "t");
    add(then, "Add", "t2 t2", "t");
    add(then, "Abs", "t3", "t2");
    add(then, "Neg", "x", "t3");
    add_if(g, "go", "z", then, branch("Identity", "t", "x2"));
    add(g, "Add", "z t", "y");
    CHECK_OK(run_made(g, true, 0, y, &err), &err);
    CHECK_EQ_INT(y[3], 4); /* 2 * |-4| - 4 */
}

TEST(captured_values_may_be_made_later) {
    treadle_error err = {0};
    float y[4];
    made *g = graph("go x", "y");
    add_if(g, "go", "y", branch("Neg", "later", "t"), branch("Abs", "later", "e"));
    add(g, "Add", "x x", "later");
    CHECK_OK(run_made(g, true, 0, y, &err), &err);
    CHECK_EQ_INT(y[3], -8);
}

TEST(cycle_through_a_branch) {
    made *g = graph("go x", "y");
    add_if(g, "go", "a", branch("Neg", "y", "t"), branch("Abs", "x", "e"));
    add(g, "Neg", "a", "y");
    expect(g, TREADLE_FORMAT, "cycle");
}

/* All that is missing, in whatever branch, in one report that says where. */
TEST(refusals_in_subgraphs) {
    made *g = graph("go m x", "y"), *body = graph("i go2 v", "go3 w"), *then = branch("ThirdOp", "v", "t");
    add(body, "Identity", "go2", "go3");
    add_if(body, "go2", "u", then, branch("Neg", "v", "e"));
    add(body, "Add", "u v", "w");
    add_loop(g, "m - x", "l", body);
    add(g, "FirstOp", "l", "f");
    add_if(g, "go", "y", branch("SecondOp", "f", "t"), branch("Neg", "x", "e"));
    expect(g, TREADLE_UNSUPPORTED, "node \"n_l\" (Loop): node \"n_u\" (If): node \"n_t\" (ThirdOp): the op is not");
    g = graph("go m x", "y");
    add(g, "FirstOp", "x", "f");
    add_if(g, "go", "y", branch("SecondOp", "f", "t"), branch("OtherOp", "x", "e"));
    td_light *light;
    treadle_error err = {0};
    CHECK_STATUS(open_made(g, &light, &err), TREADLE_UNSUPPORTED, &err);
    CHECK_HAS_STR(err.message, "(FirstOp)");
    CHECK_HAS_STR(err.message, "node \"n_y\" (If): node \"n_t\" (SecondOp)");
    CHECK_HAS_STR(err.message, "(OtherOp)");
}

/* The unknown op's own subgraphs are looked into too. */
TEST(refusals_in_subgraphs_of_unknown_ops) {
    made *g = graph("go x", "y");
    add_with(g, "Unknown", "x", "y", "body", branch("AlsoUnknown", "x", "t"), NULL, NULL);
    expect(g, TREADLE_UNSUPPORTED, "node \"n_y\" (Unknown): node \"n_t\" (AlsoUnknown)");
}

TEST(malformed_bodies) {
    made *g = graph("go x", "y");
    add_if(g, "go", "y", graph("", "t t2"), branch("Neg", "x", "e"));
    expect(g, TREADLE_FORMAT, "t");
    g = graph("go x", "y");
    made *two = graph("", "t t2");
    add(two, "Neg", "x", "t");
    add(two, "Abs", "x", "t2");
    add_if(g, "go", "y", two, branch("Neg", "x", "e"));
    expect(g, TREADLE_FORMAT, "then_branch has 0 inputs and 2 outputs");
    g = graph("go x", "y");
    add_if(g, "go", "y", branch("Neg", "x", "t"), branch("Shape", "x", "e"));
    expect(g, TREADLE_FORMAT, "output 0 is float32[4] in one branch and int64[1] in the other");
    g = graph("m x", "y");
    made *body = graph("i go v", "go2 w");
    add(body, "Identity", "go", "go2");
    add(body, "Shape", "v", "w");
    add_loop(g, "m - x", "y", body);
    expect(g, TREADLE_FORMAT, "\"n_y\" (Loop): \"");
    g = graph("m x", "y");
    body = graph("i go", "go2");
    add(body, "Identity", "go", "go2");
    add_loop(g, "m - x", "y", body);
    expect(g, TREADLE_FORMAT, "its body has 2 inputs; expected 3");
}

/* Outputs of bodies that no node makes: an outer value, a formal. */
TEST(bodies_that_hand_through) {
    treadle_error err = {0};
    float y[4];
    made *g = graph("go x", "y");
    add(g, "Neg", "x", "n");
    add_if(g, "go", "z", graph("", "n"), graph("", "x"));
    add(g, "Add", "z n", "y");
    CHECK_OK(run_made(g, true, 0, y, &err), &err);
    CHECK_EQ_INT(y[3], -8);
    g = graph("m x", "y");
    add(g, "Neg", "x", "n");
    add_loop(g, "m - n", "l s", graph("i go v", "go v v"));
    add(g, "Add", "l n", "y");
    CHECK_OK(run_made(g, true, 3, y, &err), &err);
    CHECK_EQ_INT(y[3], -8);
    g = graph("m x", "y");
    add(g, "Neg", "x", "n");
    made *swap = graph("i go v w", "go w v");
    add_loop(g, "m - n x", "l k", swap);
    add(g, "Sub", "l k", "y");
    CHECK_OK(run_made(g, true, 3, y, &err), &err);
    CHECK_EQ_INT(y[3], 8);
}

/* What nobody reads of a loop is not computed, or at least not kept. */
TEST(outputs_that_nobody_wants) {
    treadle_error err = {0};
    float y[4];
    made *g = graph("m x", "y"), *body = graph("i go v w", "go v2 w2 s t");
    add(body, "Add", "v x", "v2");
    add(body, "Neg", "w", "w2");
    add(body, "Abs", "v2", "s");
    add(body, "Exp", "s", "t");
    add_loop(g, "m - x x", "y - - -", body);
    CHECK_OK(run_made(g, true, 2, y, &err), &err);
    CHECK_EQ_INT(y[3], 12);
}

/* The outer node's name, then the inner one's. */
TEST(run_errors_name_both_nodes) {
    treadle_error err = {0};
    float y[4];
    made *g = graph("m x", "y"), *body = graph("i go v", "go2 w");
    add(body, "Identity", "go", "go2");
    add(body, "Concat", "v x", "v2");
    td_onnx_attr *axis = &body->attrs[1][0];
    *axis = (td_onnx_attr){.name = td_str_from("axis"), .type = TD_ONNX_ATTR_INT};
    body->nodes[1].attrs = axis;
    body->nodes[1].n_attrs = 1;
    add(body, "Add", "v2 far", "w");
    add(g, "Concat", "x x x", "far");
    g->attrs[0][0] = *axis;
    g->nodes[0].attrs = g->attrs[0];
    g->nodes[0].n_attrs = 1;
    add_loop(g, "m - x", "l", body);
    add(g, "Identity", "x", "y");
    g->graph.outputs = ports("y l", &g->graph.n_outputs);
    CHECK_STATUS(run_made(g, true, 1, y, &err), TREADLE_RUN, &err);
    CHECK_HAS_STR(err.message, "node \"n_l\" (Loop): node \"n_w\" (Add): ");
}

/* Nested deeper than any model is: refused, not a stack that overflows. */
TEST(nested_too_deep) {
    made *inner = branch("Neg", "x", "t");
    for (int depth = 0; depth < 80; depth++) {
        made *g = graph(depth == 79 ? "go x" : "", depth == 79 ? "y" : "t");
        add_if(g, "go", depth == 79 ? "y" : "t", inner, branch("Abs", "x", "e"));
        inner = g;
    }
    treadle_error err = {0};
    td_onnx_model model = {.ir_version = 9, .opsets = opsets, .n_opsets = 2, .graph = inner->graph}, *read = NULL;
    td_buf bytes = {0};
    td_light *light = NULL;
    CHECK_OK(td_onnx_write(&model, &bytes, &err), &err);
    treadle_status status = td_onnx_parse(bytes.p, bytes.n, NULL, NULL, &read, &err);
    if (status == TREADLE_OK) status = td_light_open_take(read, NULL, &light, &err);
    CHECK_EQ_INT(status, TREADLE_LIMIT);
    CHECK_HAS_STR(err.message, "nested more than");
    td_buf_free(&bytes);
    td_arena_free(&arena);
}

/* Loops in loops, each widening what it carries: the number of inferences must not multiply. */
TEST(widening_in_nested_loops_ends) {
    made *inner = NULL;
    for (int depth = 0; depth < 12; depth++) {
        made *body = graph("i go v", "go2 w");
        add(body, "Identity", "go", "go2");
        td_onnx_node *grow = add(body, "Concat", "v v", "v2");
        body->attrs[1][0] = (td_onnx_attr){.name = td_str_from("axis"), .type = TD_ONNX_ATTR_INT};
        grow->attrs = body->attrs[1];
        grow->n_attrs = 1;
        if (inner) add_loop(body, "m - v2", "w", inner);
        else add(body, "Neg", "v2", "w");
        inner = body;
    }
    made *g = graph("m x", "y");
    add_loop(g, "m - x", "y", inner);
    expect(g, TREADLE_OK, NULL);
}

/* A value that only a subgraph reads stays, one that only a branch never taken reads goes. */
TEST(uses_in_bodies_count) {
    treadle_error err = {0};
    float y[4];
    made *g = graph("m x", "y"), *body = graph("i go v", "go2 w");
    add(g, "Neg", "x", "only_inside");
    add(body, "Identity", "go", "go2");
    add(body, "Add", "v only_inside", "w");
    add_loop(g, "m - x", "y", body);
    CHECK_OK(run_made(g, true, 3, y, &err), &err);
    CHECK_EQ_INT(y[3], -8);
}

/* A loop that would not end soon, bounded by whoever does not trust the model. */
TEST(steps_are_bounded) {
    treadle_error err = {0};
    made *g = graph("m x", "y"), *body = graph("i go v", "go2 w");
    add(body, "Identity", "go", "go2");
    add(body, "Neg", "v", "w");
    add_loop(g, "m - x", "y", body);
    float y[4];
    max_steps = 100;
    CHECK_OK(run_made(g, true, 100, y, &err), &err);
    CHECK_EQ_INT(y[3], 4);
    g = graph("m x", "y");
    body = graph("i go v", "go2 w");
    add(body, "Identity", "go", "go2");
    add(body, "Neg", "v", "w");
    add_loop(g, "m - x", "y", body);
    CHECK_STATUS(run_made(g, true, INT64_MAX, y, &err), TREADLE_LIMIT, &err);
    max_steps = 0;
}

TEST(steady_states_allocate_nothing) {
    static const char *const cases[] = {"control_if",    "control_loop",  "control_scan",
                                        "control_fixed", "control_cache", "control_scan8"};
    for (size_t c = 0; c < TD_COUNT(cases); c++) {
        treadle_error err = {0};
        td_light *light = open_case(cases[c], &(td_light_options){.n_threads = 1});
        td_light_ctx *ctx = NULL;
        data_set data;
        CHECK_OK(td_light_ctx_new(light, &ctx, &err), &err);
        for (int set = 0; set < 6; set++) {
            if (!read_set(cases[c], set, light, &data)) continue;
            for (int round = 0; round < 6; round++) {
                td_value outputs[MAX_PORTS] = {0};
                td_test_allocations = 0;
                CHECK_OK(td_light_run(ctx, data.inputs, outputs, NULL, &err), &err);
                int n = td_test_allocations;
                if (round >= 4 && n) FAIL("%s, set %d, run %d: %d allocations", cases[c], set, round, n);
            }
            free_set(&data);
        }
        td_light_ctx_free(ctx);
        td_light_close(light);
    }
}
