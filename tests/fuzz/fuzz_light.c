/* Any bytes as a model, opened by light and run on zeros: every op's prepare, infer and run sees graphs
 * that nobody wrote. Sizes are kept small by what is fed: unknown dimensions are 2, and graphs that ask
 * for large inputs are not run. */
#include "base/alloc.h"
#include "light/light.h"

enum { MAX_INPUT_ELEMENTS = 1 << 14 };
static const size_t MAX_ALLOCATION = (size_t)1 << 26;

bool td_alloc_test_fails(size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Huge sizes are to be answered by "out of memory", not by this machine's memory. */
bool td_alloc_test_fails(size_t bytes) { return bytes > MAX_ALLOCATION; }

static bool make_input(const td_light_port *port, td_arena *arena, td_value *out) {
    td_shape shape = port->shape;
    int64_t count;
    size_t bytes;
    if (port->optional) return true;
    if (port->kind != TD_ONNX_TYPE_TENSOR || shape.rank < 0) return false;
    for (int d = 0; d < shape.rank; d++)
        if (shape.dims[d] < 0) shape.dims[d] = 2;
    if (!td_shape_count(&shape, &count) || count > MAX_INPUT_ELEMENTS || !td_dtype_bytes(port->dtype, count, &bytes))
        return false;
    void *memory = td_arena_alloc(arena, bytes, 64);
    out->kind = TD_VALUE_TENSOR;
    td_tensor_view(&out->tensor, port->dtype, &shape, memory);
    return memory != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    td_onnx_model *model = NULL;
    td_light *light = NULL;
    td_light_ctx *ctx = NULL;
    td_arena arena = {0};
    treadle_error err;
    if (td_onnx_parse(data, size, NULL, NULL, &model, &err) != TREADLE_OK) return 0;
    td_light_options options = {.n_threads = 1, .no_passes = size & 1, .max_steps = 256};
    if (td_light_open_take(model, &options, &light, &err) != TREADLE_OK) return 0;
    size_t n_in = td_light_n_inputs(light), n_out = td_light_n_outputs(light);
    td_value *inputs = TD_ARENA_ARRAY(&arena, td_value, n_in), *outputs = TD_ARENA_ARRAY(&arena, td_value, n_out);
    bool ok = inputs && outputs && td_light_ctx_new(light, &ctx, &err) == TREADLE_OK;
    for (size_t i = 0; ok && i < n_in; i++) ok = make_input(td_light_input(light, i), &arena, &inputs[i]);
    for (int round = 0; ok && round < 2; round++) {
        for (size_t i = 0; i < n_out; i++) outputs[i] = (td_value){0};
        ok = td_light_run(ctx, inputs, outputs, NULL, &err) == TREADLE_OK;
    }
    td_light_ctx_free(ctx);
    td_light_close(light);
    td_arena_free(&arena);
    return 0;
}
