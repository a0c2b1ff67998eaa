/* bench_orchestration - what light's run loop costs a node: a chain of 300 tiny nodes, run many times.
 *
 * Usage: bench_orchestration [nodes [repeats]]. Prints the median and the fastest run as nanoseconds a node; the nodes'
 * own work (four floats each) is part of it. Goal: at most 100 ns (docs/speed.md). */
#include "base/time.h"
#include "light/light.h"
#include "median.h"

#include <stdio.h>
#include <stdlib.h>

static td_onnx_model *make_chain(size_t n_nodes, const char *const *ops, size_t n_ops, td_buf *bytes,
                                 treadle_error *err) {
    static const td_onnx_dim dims[] = {{.value = -1, .param = {"n", 1}}, {.value = 4}};
    td_onnx_type type = {.kind = TD_ONNX_TYPE_TENSOR, .dtype = TD_FLOAT, .has_shape = true, .rank = 2, .dims = dims};
    td_arena arena = {0};
    td_onnx_node *nodes = TD_ARENA_ARRAY(&arena, td_onnx_node, n_nodes);
    td_str *names = TD_ARENA_ARRAY(&arena, td_str, n_nodes + 2);
    td_onnx_model *model = NULL;
    if (!nodes || !names) goto cleanup;
    for (size_t i = 0; i <= n_nodes; i++) names[i] = td_str_from(td_arena_printf(&arena, "v%zu", i));
    for (size_t i = 0; i < n_nodes; i++) {
        td_str *in = TD_ARENA_ARRAY(&arena, td_str, 2);
        if (!in) goto cleanup;
        in[0] = names[i];
        in[1] = names[0];
        nodes[i] = (td_onnx_node){
            .op_type = td_str_from(ops[i % n_ops]), .inputs = in, .outputs = &names[i + 1], .n_outputs = 1};
        nodes[i].n_inputs = td_str_is(nodes[i].op_type, "Add") ? 2 : 1;
    }
    td_onnx_opset opset = {.version = 17};
    td_onnx_value_info input = {.name = names[0], .type = type}, output = {.name = names[n_nodes], .type = type};
    td_onnx_model image = {.ir_version = 9, .opsets = &opset, .n_opsets = 1};
    image.graph = (td_onnx_graph){.name = TD_STR("chain"),
                                  .nodes = nodes,
                                  .n_nodes = n_nodes,
                                  .inputs = &input,
                                  .n_inputs = 1,
                                  .outputs = &output,
                                  .n_outputs = 1};
    if (td_onnx_write(&image, bytes, err) == TREADLE_OK)
        (void)td_onnx_parse(bytes->p, bytes->n, NULL, NULL, &model, err);
cleanup:
    td_arena_free(&arena);
    return model;
}

static int bench(const char *title, const char *const *ops, size_t n_ops, size_t n_nodes, size_t repeats) {
    treadle_error err = {0};
    td_buf bytes = {0};
    td_light *light = NULL;
    td_light_ctx *ctx = NULL;
    float x[4] = {1, 2, 3, 4};
    td_value in = {.kind = TD_VALUE_TENSOR}, out = {0};
    double *times = malloc(repeats * sizeof *times);
    td_onnx_model *model = make_chain(n_nodes, ops, n_ops, &bytes, &err);
    treadle_status status =
        model ? td_light_open_take(model, &(td_light_options){.n_threads = 1}, &light, &err) : TREADLE_RUN;
    if (status == TREADLE_OK) status = td_light_ctx_new(light, &ctx, &err);
    td_tensor_view(&in.tensor, TD_FLOAT, &(td_shape){2, {1, 4}}, x);
    for (size_t r = 0; times && status == TREADLE_OK && r < repeats; r++) {
        uint64_t begin = td_time_ns();
        out = (td_value){0};
        status = td_light_run(ctx, &in, &out, NULL, &err);
        times[r] = (double)(td_time_ns() - begin) / (double)n_nodes;
    }
    if (status == TREADLE_OK && times) {
        double middle = median(times, repeats);
        printf("%-28s %4zu nodes  median %6.1f ns/node  fastest %6.1f ns/node\n", title, n_nodes, middle, times[0]);
    } else {
        fprintf(stderr, "%s: %s\n", title, err.message);
    }
    td_light_ctx_free(ctx);
    td_light_close(light);
    td_buf_free(&bytes);
    free(times);
    return status != TREADLE_OK;
}

int main(int argc, char **argv) {
    size_t n_nodes = argc > 1 ? strtoul(argv[1], NULL, 10) : 300,
           repeats = argc > 2 ? strtoul(argv[2], NULL, 10) : 2001;
    static const char *const unary[] = {"Neg", "Abs"}, *const binary[] = {"Add"};
    if (n_nodes == 0 || repeats == 0) return 2;
    return bench("Neg, Abs", unary, 2, n_nodes, repeats) | bench("Add", binary, 1, n_nodes, repeats);
}
