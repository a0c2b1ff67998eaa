/* Graphs that are wrong or that light lacks something for: a message, never a crash; and the report lists
 * everything. */
#include "support/test.h"

#include "base/arena.h"
#include "light/op.h"

#include <stdio.h>

typedef struct maker {
    td_arena arena;
    td_onnx_model model;
    td_onnx_node nodes[16];
    td_onnx_value_info inputs[4], outputs[4];
} maker;

static const td_onnx_dim two[] = {{.value = 2}};
static const td_onnx_type vector = {
    .kind = TD_ONNX_TYPE_TENSOR, .dtype = TD_FLOAT, .has_shape = true, .rank = 1, .dims = two};
static const td_onnx_opset opsets[] = {{{"", 0}, 17}, {{"local", 5}, 1}};

static td_str str(const char *text) { return td_str_from(text); }

/* "a b c" -> names; "-" is the empty name. */
static const td_str *names(maker *m, const char *text, size_t *n) {
    td_str *list = TD_ARENA_ARRAY(&m->arena, td_str, 8);
    REQUIRE(list);
    *n = 0;
    while (*text) {
        size_t length = strcspn(text, " ");
        list[*n] = td_arena_str(&m->arena, (td_str){text, length});
        if (length == 1 && *text == '-') list[*n] = str("");
        ++*n;
        text += length + (text[length] == ' ');
    }
    return list;
}

static td_onnx_node node(maker *m, const char *domain, const char *op, const char *in, const char *out) {
    td_onnx_node n = {.domain = str(domain), .op_type = str(op)};
    n.name = str(td_arena_printf(&m->arena, "n_%s", out));
    n.inputs = names(m, in, &n.n_inputs);
    n.outputs = names(m, out, &n.n_outputs);
    return n;
}

static void start(maker *m) {
    *m = (maker){0};
    td_onnx_graph *g = &m->model.graph;
    m->model.ir_version = 9;
    m->model.opsets = opsets;
    m->model.n_opsets = 2;
    m->inputs[0] = (td_onnx_value_info){.name = str("x"), .type = vector};
    m->outputs[0] = (td_onnx_value_info){.name = str("y"), .type = vector};
    g->name = str("g");
    g->inputs = m->inputs;
    g->outputs = m->outputs;
    g->n_inputs = g->n_outputs = 1;
    g->nodes = m->nodes;
}

static void add(maker *m, const char *domain, const char *op, const char *in, const char *out) {
    m->nodes[m->model.graph.n_nodes++] = node(m, domain, op, in, out);
}

/* Written, read back, opened. */
static treadle_status open_made(maker *m, td_light **light, treadle_error *err) {
    td_buf bytes = {0};
    td_onnx_model *model = NULL;
    *light = NULL;
    CHECK_OK(td_onnx_write(&m->model, &bytes, err), err);
    CHECK_OK(td_onnx_parse(bytes.p, bytes.n, NULL, NULL, &model, err), err);
    treadle_status status = td_light_open_take(model, &(td_light_options){.n_threads = 1}, light, err);
    td_light_close(*light);
    *light = NULL;
    td_buf_free(&bytes);
    td_arena_free(&m->arena);
    return status;
}

static void expect(maker *m, treadle_status wanted, const char *part) {
    treadle_error err = {0};
    td_light *light;
    CHECK_STATUS(open_made(m, &light, &err), wanted, &err);
    if (part) CHECK_HAS_STR(err.message, part);
}

TEST(plain) {
    maker m;
    start(&m);
    add(&m, "", "Neg", "x", "y");
    expect(&m, TREADLE_OK, NULL);
}

TEST(any_order) {
    maker m;
    start(&m);
    add(&m, "", "Add", "a b", "y");
    add(&m, "", "Neg", "a", "b");
    add(&m, "", "Neg", "x", "a");
    expect(&m, TREADLE_OK, NULL);
}

TEST(unmade_input) {
    maker m;
    start(&m);
    add(&m, "", "Add", "x nothing", "y");
    expect(&m, TREADLE_FORMAT, "\"nothing\"");
}

TEST(unmade_output) {
    maker m;
    start(&m);
    add(&m, "", "Neg", "x", "z");
    expect(&m, TREADLE_FORMAT, "nothing makes the graph output \"y\"");
}

TEST(made_twice) {
    maker m;
    start(&m);
    add(&m, "", "Neg", "x", "y");
    add(&m, "", "Abs", "x", "y");
    expect(&m, TREADLE_FORMAT, "made twice");
}

TEST(input_made_again) {
    maker m;
    start(&m);
    add(&m, "", "Neg", "y", "x");
    expect(&m, TREADLE_FORMAT, NULL);
}

TEST(cycle) {
    maker m;
    start(&m);
    add(&m, "", "Add", "x b", "a");
    add(&m, "", "Neg", "a", "b");
    add(&m, "", "Neg", "b", "y");
    expect(&m, TREADLE_FORMAT, "cycle");
}

TEST(wrong_attribute_type) {
    maker m;
    start(&m);
    td_onnx_attr axis = {.name = str("axis"), .type = TD_ONNX_ATTR_FLOAT, .f = 1};
    add(&m, "", "Concat", "x", "y");
    m.nodes[0].attrs = &axis;
    m.nodes[0].n_attrs = 1;
    expect(&m, TREADLE_FORMAT, "\"axis\"");
}

TEST(missing_attribute) {
    maker m;
    start(&m);
    add(&m, "", "Concat", "x", "y");
    expect(&m, TREADLE_FORMAT, "attribute \"axis\" is missing");
}

TEST(too_few_inputs) {
    maker m;
    start(&m);
    add(&m, "", "Add", "x", "y");
    expect(&m, TREADLE_FORMAT, "inputs");
}

TEST(missing_variadic_input) {
    maker m;
    start(&m);
    add(&m, "", "Max", "x -", "y");
    expect(&m, TREADLE_FORMAT, "input 1 (data_0) is missing");
}

TEST(mixed_types) {
    maker m;
    start(&m);
    m.inputs[1] = (td_onnx_value_info){.name = str("k"), .type = vector};
    m.inputs[1].type.dtype = TD_DOUBLE;
    m.model.graph.n_inputs = 2;
    add(&m, "", "Add", "x k", "y");
    expect(&m, TREADLE_FORMAT, "float64");
}

TEST(declared_type_differs) {
    maker m;
    start(&m);
    m.outputs[0].type.dtype = TD_INT32;
    add(&m, "", "Neg", "x", "y");
    expect(&m, TREADLE_FORMAT, "declared int32");
}

/* One message for all that is missing: ops, versions, attributes, types; each once, counted. */
TEST(report_lists_everything) {
    maker m;
    treadle_error err = {0};
    td_light *light;
    td_onnx_attr odd = {.name = str("colour"), .type = TD_ONNX_ATTR_INT, .i = 3};
    start(&m);
    add(&m, "", "Neg", "x", "a");
    m.nodes[0].attrs = &odd;
    m.nodes[0].n_attrs = 1;
    add(&m, "com.example", "Weave", "x", "b");
    add(&m, "com.example", "Weave", "b", "c");
    add(&m, "com.example", "Spin", "a c", "d");
    add(&m, "", "Not", "x", "e");
    add(&m, "", "Add", "d x", "y");
    CHECK_STATUS(open_made(&m, &light, &err), TREADLE_UNSUPPORTED, &err);
    CHECK_HAS_STR(err.message, "\"colour\"");
    CHECK_HAS_STR(err.message, "com.example.Weave");
    CHECK_HAS_STR(err.message, "and 1 more such node");
    CHECK_HAS_STR(err.message, "com.example.Spin");
    CHECK_HAS_STR(err.message, "input 0 (X) is float32");
    CHECK(strstr(err.message, "n_y") == NULL); /* Add itself is fine: only what feeds it is missing */
}

/* --- functions */

static void call_function(maker *m, td_onnx_function *f, const td_onnx_node *body, size_t n_body) {
    *f = (td_onnx_function){
        .domain = str("local"), .name = str("F"), .nodes = body, .n_nodes = n_body, .opsets = opsets, .n_opsets = 2};
    f->inputs = names(m, "p q", &f->n_inputs);
    f->outputs = names(m, "r", &f->n_outputs);
    m->model.functions = f;
    m->model.n_functions = 1;
    add(m, "local", "F", "x", "y");
}

TEST(function_that_calls_itself) {
    maker m;
    td_onnx_function f;
    start(&m);
    td_onnx_node body[] = {node(&m, "local", "F", "p", "r")};
    call_function(&m, &f, body, 1);
    expect(&m, TREADLE_FORMAT, "calls itself");
}

TEST(function_without_body) {
    maker m;
    td_onnx_function f;
    start(&m);
    call_function(&m, &f, NULL, 0);
    expect(&m, TREADLE_FORMAT, "nothing makes");
}

TEST(function_called_with_too_much) {
    maker m;
    td_onnx_function f;
    start(&m);
    td_onnx_node body[] = {node(&m, "", "Neg", "p", "r")};
    call_function(&m, &f, body, 1);
    m.nodes[0] = node(&m, "local", "F", "x x x", "y");
    expect(&m, TREADLE_FORMAT, "3 inputs");
}

TEST(function_uses_absent_input) {
    maker m;
    td_onnx_function f;
    start(&m);
    td_onnx_node body[] = {node(&m, "", "Add", "p q", "r")};
    call_function(&m, &f, body, 1);
    expect(&m, TREADLE_FORMAT, "input 1 (B) is missing");
}

/* 2^20 and more nodes out of a few functions: refused, not built. */
TEST(functions_that_explode) {
    maker m;
    td_onnx_function f[24];
    td_onnx_node bodies[24][3];
    char called[24][16];
    start(&m);
    for (int i = 0; i < 24; i++) {
        snprintf(called[i], sizeof called[i], "F%d", i);
        f[i] = (td_onnx_function){.domain = str("local"), .name = str(called[i]), .opsets = opsets, .n_opsets = 2};
        f[i].inputs = names(&m, "p", &f[i].n_inputs);
        f[i].outputs = names(&m, "r", &f[i].n_outputs);
        for (int k = 0; k < 3; k++) {
            const char *in = k == 0 ? "p" : k == 1 ? "s" : "t", *out = k == 0 ? "s" : k == 1 ? "t" : "r";
            bodies[i][k] = i ? node(&m, "local", called[i - 1], in, out) : node(&m, "", "Neg", in, out);
        }
        f[i].nodes = bodies[i];
        f[i].n_nodes = 3;
    }
    m.model.functions = f;
    m.model.n_functions = 24;
    add(&m, "local", "F23", "x", "y");
    expect(&m, TREADLE_LIMIT, "functions are inlined");
}

TEST(op_table_is_sorted) {
    for (size_t i = 1; i < td_op_count(); i++) {
        const td_op *a = td_op_at(i - 1), *b = td_op_at(i);
        int order = strcmp(a->domain, b->domain);
        if (!order) order = strcmp(a->name, b->name);
        if (!order) order = a->since - b->since;
        if (order >= 0)
            FAIL("ops.inc: %s.%s %d comes after %s.%s %d", b->domain, b->name, b->since, a->domain, a->name, a->since);
    }
    for (size_t i = 0; i < td_op_count(); i++) {
        const td_op *op = td_op_at(i);
        CHECK_EQ_PTR(td_op_find(str(op->domain), str(op->name), op->since), op);
    }
    CHECK(td_op_find(str(""), str("NoSuchOp"), 99) == NULL);
    CHECK(td_op_at(td_op_count()) == NULL);
}

TEST(counted_ops) {
    maker m;
    treadle_error err = {0};
    td_buf bytes = {0};
    td_onnx_model *model = NULL;
    td_arena arena = {0};
    td_light_op_count *counts;
    size_t n;
    start(&m);
    add(&m, "", "Neg", "x", "a");
    add(&m, "com.example", "Weave", "a", "b");
    add(&m, "", "Neg", "b", "y");
    CHECK_OK(td_onnx_write(&m.model, &bytes, &err), &err);
    CHECK_OK(td_onnx_parse(bytes.p, bytes.n, NULL, NULL, &model, &err), &err);
    CHECK_OK(td_light_count_ops(model, &arena, &counts, &n, &err), &err);
    REQUIRE(n == 2);
    CHECK(td_str_is(counts[0].op_type, "Neg") && counts[0].n == 2 && counts[0].supported &&
          counts[0].since_version == 13);
    CHECK(td_str_is(counts[1].op_type, "Weave") && counts[1].n == 1 && !counts[1].supported);
    CHECK_EQ_INT(counts[1].since_version, 0);
    td_onnx_close(model);
    td_arena_free(&arena);
    td_arena_free(&m.arena);
    td_buf_free(&bytes);
}
