/* Each allocation of ours fails in turn while a session on ONNX Runtime is opened, run with strided, sequence
 * and string values, and closed: the answer is TREADLE_OUT_OF_MEMORY, never another failure, and nothing
 * leaks (the sanitizers look). */
#include "support/allocations.h"
#include "support/test.h"

#include "engine/engine.h"

#include <stdio.h>

static const char options_text[] =
    "{\"graph_optimization_level\": \"ORT_ENABLE_BASIC\", \"log_id\": \"x\", \"session.disable_prepacking\": \"1\"}";

typedef struct scenario {
    const char *file;
    td_value in[16];
} scenario;

static treadle_status run(const scenario *s, const td_json *options_json, treadle_error *err) {
    td_session *session = NULL;
    td_session_ctx *ctx = NULL;
    td_value out[16] = {0};
    td_engine_options options = {.n_threads = 1,
                                 .library = td_test_ort(),
                                 .session_options = options_json,
                                 .run_options = td_json_get(options_json, "none")};
    const char *path = td_test_source(s->file);
    treadle_status status = td_engine_ort.open(path, &options, &session, err);
    if (status == TREADLE_OK) status = td_engine_ort.ctx_new(session, &ctx, err);
    for (int i = 0; i < 2 && status == TREADLE_OK; i++) {
        memset(out, 0, sizeof out);
        status = td_engine_ort.run(ctx, s->in, out, NULL, err);
    }
    if (ctx) td_engine_ort.ctx_free(ctx);
    if (session) td_engine_ort.close(session);
    return status;
}

static void sweep(const scenario *s) {
    td_arena arena = {0};
    td_json *options = NULL;
    treadle_error err = {0};
    td_test_fail_at = INT_MAX;
    CHECK_OK(td_json_parse(TD_STR(options_text), NULL, &arena, &options, &err), &err);
    td_test_allocations = 0;
    CHECK_OK(run(s, options, &err), &err);
    int n = td_test_allocations;
    CHECK(n > 15);
    for (int i = 1; i <= n; i++) {
        td_test_allocations = 0;
        td_test_fail_at = i;
        treadle_status status = run(s, options, &err);
        if (status != TREADLE_OK && status != TREADLE_OUT_OF_MEMORY) FAIL("failure at %d of %d: %s", i, n, err.message);
    }
    td_test_fail_at = INT_MAX;
    td_arena_free(&arena);
}

static td_value view(td_dtype dtype, td_shape shape, void *data) {
    td_value v = {.kind = TD_VALUE_TENSOR};
    td_tensor_view(&v.tensor, dtype, &shape, data);
    return v;
}

TEST(strided_and_strings) {
    static const td_dtype dtypes[] = {TD_FLOAT,  TD_UINT8, TD_INT8,    TD_UINT16, TD_INT16,  TD_INT32,  TD_INT64,
                                      TD_STRING, TD_BOOL,  TD_FLOAT16, TD_DOUBLE, TD_UINT32, TD_UINT64, TD_BFLOAT16};
    scenario s = {.file = "tests/engine/data/identity.onnx"};
    static uint64_t bytes[16];
    td_str words[16] = {TD_STR("one"), TD_STR("two"), TD_STR("three"), TD_STR("four"), TD_STR("five"), TD_STR("six")};
    for (size_t i = 0; i < TD_COUNT(dtypes); i++) {
        s.in[i] = view(dtypes[i], (td_shape){2, {2, 3}}, dtypes[i] == TD_STRING ? (void *)words : bytes);
        if (dtypes[i] != TD_STRING) s.in[i].tensor.strides[0] = 4;
    }
    sweep(&s);
}

TEST(sequences) {
    float x[2] = {1, 2};
    int64_t index = 0;
    td_sequence *sequence = td_sequence_new(2);
    REQUIRE(sequence);
    sequence->items[0] = sequence->items[1] = view(TD_FLOAT, (td_shape){1, {2}}, x);
    scenario s = {.file = "tests/engine/data/sequence.onnx",
                  .in = {{.kind = TD_VALUE_SEQUENCE, .sequence = sequence}, view(TD_INT64, (td_shape){0}, &index)}};
    sweep(&s);
    td_sequence_release(sequence);
}
