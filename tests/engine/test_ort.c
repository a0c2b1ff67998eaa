/* What only the engine on ONNX Runtime does: values that it owns, kept from run to run and beyond their session;
 * memory of the caller's; caches that GroupQueryAttention extends in place; every element type; sequences; options.
 * Data: tests/engine/make_data.py. */
#include "support/test.h"

#include "base/alloc.h"
#include "engine/ort.h"

#include <pthread.h>
#include <stdio.h>

static const td_engine *const engine = &td_engine_ort;

static const char *path_of(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "tests/engine/data/%s", name);
    return td_test_source(path);
}

typedef struct fixture {
    td_session *session;
    td_session_ctx *ctx;
} fixture;

static fixture open_path(const char *path) {
    fixture f = {0};
    treadle_error err = {0};
    td_engine_options options = {.n_threads = 1, .library = td_test_ort()};
    CHECK_OK(engine->open(path, &options, &f.session, &err), &err);
    CHECK_OK(engine->ctx_new(f.session, &f.ctx, &err), &err);
    return f;
}

static fixture open_named(const char *name) { return open_path(path_of(name)); }

static void close_fixture(fixture *f) {
    engine->ctx_free(f->ctx);
    engine->close(f->session);
}

static td_value view(td_dtype dtype, td_shape shape, void *data) {
    td_value v = {.kind = TD_VALUE_TENSOR};
    td_tensor_view(&v.tensor, dtype, &shape, data);
    return v;
}

#define F32(data, ...) view(TD_FLOAT, (td_shape)__VA_ARGS__, data)

/* --- values that ONNX Runtime owns */

/* inputs x, past.0, past.1; outputs y, present.0 = Concat(past.0, x) on axis 2, present.1; all [1, 2, t, 4] */
TEST(kept_output_is_next_input) {
    fixture f = open_path(td_test_source("tests/light/data/concat_cache/model.onnx"));
    treadle_error err = {0};
    float x[3][8];
    for (int i = 0; i < 24; i++) x[i / 8][i % 8] = (float)i;
    td_value kept[2] = {F32(x, {4, {1, 2, 0, 4}}), F32(x, {4, {1, 2, 0, 4}})};
    CHECK_EQ_INT(engine->aliases(f.session, 1, 1), false); /* a Concat copies */
    for (int step = 0; step < 3; step++) {
        td_value in[3] = {F32(x[step], {4, {1, 2, 1, 4}}), kept[0], kept[1]}, out[3] = {0};
        CHECK_OK(engine->run(f.ctx, in, out, NULL, &err), &err);
        REQUIRE(td_shape_equal(&out[1].tensor.shape, &(td_shape){4, {1, 2, step + 1, 4}}));
        for (int l = 0; l < 2; l++) {
            REQUIRE(out[l + 1].tensor.buffer != NULL);
            td_buffer_release(kept[l].tensor.buffer);
            td_buffer_retain(out[l + 1].tensor.buffer);
            kept[l] = out[l + 1];
        }
    }
    const float *present = kept[0].tensor.data; /* [1, 2, 3, 4] */
    for (int h = 0; h < 2; h++)
        for (int t = 0; t < 3; t++) CHECK_EQ_MEM(present + (h * 3 + t) * 4, x[t] + h * 4, 16);
    close_fixture(&f);
    CHECK_EQ_MEM(present + 4, x[1], 16); /* it outlives its session */
    for (int l = 0; l < 2; l++) td_buffer_release(kept[l].tensor.buffer);
}

TEST(values_go_in_without_a_copy) {
    fixture f = open_named("fixed.onnx");
    treadle_error err = {0};
    float x[6] = {1, 2, 3, 4, 5, 6};
    td_value in = F32(x, {2, {2, 3}}), out = {0};
    td_ort *ort = NULL;
    CHECK_OK(td_ort_open(&(td_engine_options){.library = td_test_ort()}, &ort, &err), &err);
    CHECK_OK(engine->run(f.ctx, &in, &out, NULL, &err), &err);
    const td_ort_buffer *buffer = td_ort_buffer_of(ort, &out.tensor);
    td_ort_scratch scratch = {0};
    OrtValue *value = NULL;
    bool owned = true;
    REQUIRE(buffer != NULL);
    CHECK_OK(td_ort_value_of(ort, &out, &scratch, &value, &owned, &err), &err);
    CHECK(value == buffer->value && !owned);
    td_value half = out; /* its first row: the same memory under another shape */
    half.tensor.shape.dims[0] = 1;
    CHECK_OK(td_ort_value_of(ort, &half, &scratch, &value, &owned, &err), &err);
    void *data = NULL;
    CHECK(value != buffer->value && owned && !ort->api.GetTensorMutableData(value, &data));
    CHECK(data == out.tensor.data && scratch.data == NULL);
    ort->api.ReleaseValue(value);
    td_value narrow = out; /* two columns of three: copied */
    narrow.tensor.shape.dims[1] = 2;
    CHECK_OK(td_ort_value_of(ort, &narrow, &scratch, &value, &owned, &err), &err);
    CHECK(owned && !ort->api.GetTensorMutableData(value, &data) && data == scratch.data);
    CHECK_EQ_MEM(data, ((float[]){2, 4, 8, 10}), 16);
    ort->api.ReleaseValue(value);
    td_free_aligned(scratch.data);
    td_ort_release(ort);
    close_fixture(&f);
}

/* --- memory of the caller's */

TEST(bound_outputs) {
    fixture f = open_named("fixed.onnx");
    treadle_error err = {0};
    float x[6] = {1, 2, 3, 4, 5, 6}, y[24];
    td_value in = F32(x, {2, {2, 3}}), out = F32(y, {2, {2, 3}});
    CHECK_OK(engine->run(f.ctx, &in, &out, NULL, &err), &err); /* the graph fixes the shape: written in place */
    CHECK(out.tensor.data == y);
    CHECK_EQ_MEM(y, ((float[]){2, 4, 6, 8, 10, 12}), 24);
    memset(y, 0, sizeof y);
    out = F32(y, {2, {4, 5}}); /* more room than is needed, rows 6 apart: copied there */
    out.tensor.strides[0] = 6;
    CHECK_OK(engine->run(f.ctx, &in, &out, NULL, &err), &err);
    REQUIRE(td_shape_equal(&out.tensor.shape, &(td_shape){2, {2, 3}}));
    CHECK_EQ_MEM(y, ((float[]){2, 4, 6, 0, 0, 0, 8, 10, 12, 0}), 40);
    out = F32(y, {2, {2, 2}});
    CHECK_STATUS(engine->run(f.ctx, &in, &out, NULL, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_HAS_STR(err.message, "output \"y\" is [2, 3], bound to memory for [2, 2] at most");
    out = view(TD_INT32, (td_shape){2, {4, 4}}, y);
    CHECK_STATUS(engine->run(f.ctx, &in, &out, NULL, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_HAS_STR(err.message, "is float32, bound to memory of int32");
    out = (td_value){0};
    CHECK_OK(engine->run(f.ctx, &in, &out, (bool[]){true}, &err), &err); /* nothing wanted */
    CHECK_EQ_INT(out.kind, TD_VALUE_NONE);
    in = F32(x, {2, {3, 2}});
    CHECK_STATUS(engine->run(f.ctx, &in, &out, NULL, &err), TREADLE_RUN, &err);
    CHECK_HAS_STR(err.message, "ONNX Runtime: ");
    in = (td_value){0};
    CHECK_STATUS(engine->run(f.ctx, &in, &out, NULL, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_HAS_STR(err.message, "input \"x\" is not given");
    close_fixture(&f);
}

/* y = -x, z = x * y * y: x is read after y has been written, so y must not be written over it before the run has
 * ended. */
TEST(bound_to_an_input) {
    fixture f = open_named("late.onnx");
    treadle_error err = {0};
    float x[6] = {1, 2, 3, 4, 5, 6};
    td_value in = F32(x, {2, {2, 3}}), out[2] = {in, {0}};
    CHECK_OK(engine->run(f.ctx, &in, out, NULL, &err), &err);
    CHECK_EQ_MEM(x, ((float[]){-1, -2, -3, -4, -5, -6}), 24);
    CHECK_EQ_MEM(out[1].tensor.data, ((float[]){1, 8, 27, 64, 125, 216}), 24);
    close_fixture(&f);
}

/* --- caches in place: five tokens one by one over a cache with room for eight equal the five at once */

static td_tensor recorded(const char *name) {
    char path[64];
    td_tensor t;
    treadle_error err = {0};
    snprintf(path, sizeof path, "gqa_%s.npy", name);
    CHECK_OK(td_npy_read(path_of(path), &t, &err), &err);
    return t;
}

TEST(attention_extends_its_cache) {
    fixture f = open_named("gqa.onnx");
    treadle_error err = {0};
    td_tensor q = recorded("q"), k = recorded("k"), v = recorded("v"), want = recorded("out");
    td_tensor keys = recorded("present_key"), values = recorded("present_value");
    enum { ROOM = 8, DIM = 8 };
    float cache[2][ROOM * DIM];
    for (int c = 0; c < 2; c++)
        for (int i = 0; i < ROOM * DIM; i++) cache[c][i] = __builtin_nanf("");
    CHECK(engine->aliases(f.session, 3, 1) && engine->aliases(f.session, 4, 2));
    CHECK(!engine->aliases(f.session, 3, 2) && !engine->aliases(f.session, 0, 0));
    for (int64_t t = 0; t < 5; t++) {
        int32_t last = (int32_t)t, total = (int32_t)t + 1;
        td_value in[7] = {F32((float *)q.data + t * 16, {3, {1, 1, 16}}), F32((float *)k.data + t * 8, {3, {1, 1, 8}}),
                          F32((float *)v.data + t * 8, {3, {1, 1, 8}}),   F32(cache[0], {4, {1, 1, ROOM, DIM}}),
                          F32(cache[1], {4, {1, 1, ROOM, DIM}}),          view(TD_INT32, (td_shape){1, {1}}, &last),
                          view(TD_INT32, (td_shape){0, {0}}, &total)};
        td_value out[3] = {{0}, in[3], in[4]};
        in[3].tensor.shape.dims[2] = in[4].tensor.shape.dims[2] = t; /* what is there; strides say that there is room */
        CHECK_OK(engine->run(f.ctx, in, out, NULL, &err), &err);
        CHECK(out[1].tensor.data == cache[0] && out[2].tensor.data == cache[1]);
        for (int i = 0; i < 16; i++)
            CHECK_NEAR(((float *)out[0].tensor.data)[i], ((float *)want.data)[t * 16 + i], 1e-5);
    }
    for (int i = 0; i < 5 * DIM; i++) {
        CHECK_NEAR(cache[0][i], ((float *)keys.data)[i], 1e-6);
        CHECK_NEAR(cache[1][i], ((float *)values.data)[i], 1e-6);
    }
    td_tensor *const read[] = {&q, &k, &v, &want, &keys, &values};
    for (size_t i = 0; i < TD_COUNT(read); i++) td_buffer_release(read[i]->buffer);
    close_fixture(&f);
}

/* --- element types, strings, sequences */

TEST(every_element_type) {
    static const td_dtype dtypes[] = {TD_FLOAT,  TD_UINT8, TD_INT8,    TD_UINT16, TD_INT16,  TD_INT32,  TD_INT64,
                                      TD_STRING, TD_BOOL,  TD_FLOAT16, TD_DOUBLE, TD_UINT32, TD_UINT64, TD_BFLOAT16};
    enum { N = TD_COUNT(dtypes) };
    fixture f = open_named("identity.onnx");
    REQUIRE(engine->n_inputs(f.session) == N);
    for (int64_t rows = 0; rows < 3; rows++) {
        treadle_error err = {0};
        td_value in[N], out[N] = {0};
        uint8_t bytes[N][64];
        uint64_t seed = 1;
        td_str words[6] = {TD_STR("one"), TD_STR(""),   TD_STR("with\0nul"), TD_STR("\xc3\xa9t\xc3\xa9"),
                           {NULL, 0},     TD_STR("end")};
        for (int i = 0; i < N; i++) {
            for (size_t b = 0; b < 64; b++)
                bytes[i][b] = (uint8_t)(dtypes[i] == TD_BOOL ? b & 1 : td_test_random(&seed));
            in[i] = view(dtypes[i], (td_shape){2, {rows, 3}}, dtypes[i] == TD_STRING ? (void *)words : bytes[i]);
        }
        CHECK_OK(engine->run(f.ctx, in, out, NULL, &err), &err);
        for (int i = 0; i < N; i++) {
            REQUIRE(out[i].kind == TD_VALUE_TENSOR && out[i].tensor.data && out[i].tensor.dtype == dtypes[i]);
            REQUIRE(td_shape_equal(&out[i].tensor.shape, &in[i].tensor.shape));
            size_t n_bytes = 0;
            REQUIRE(td_tensor_bytes(&out[i].tensor, &n_bytes));
            if (dtypes[i] != TD_STRING) CHECK_EQ_MEM(out[i].tensor.data, in[i].tensor.data, n_bytes);
            for (int64_t w = 0; dtypes[i] == TD_STRING && w < rows * 3; w++)
                CHECK(td_str_equal(((td_str *)out[i].tensor.data)[w], words[w]));
        }
    }
    close_fixture(&f);
}

TEST(sequences) {
    fixture f = open_named("sequence.onnx");
    treadle_error err = {0};
    float x[3] = {1, 2, 3}, y[2] = {4, 5};
    int64_t index = -1;
    td_sequence *s = td_sequence_new(2);
    s->items[0] = F32(x, {1, {3}});
    s->items[1] = F32(y, {2, {2, 1}});
    td_value in[2] = {{.kind = TD_VALUE_SEQUENCE, .sequence = s}, view(TD_INT64, (td_shape){0, {0}}, &index)},
             out[2] = {0};
    CHECK_OK(engine->run(f.ctx, in, out, NULL, &err), &err);
    REQUIRE(out[0].kind == TD_VALUE_SEQUENCE && out[0].sequence->n == 2 && out[1].kind == TD_VALUE_TENSOR);
    CHECK_EQ_MEM(out[0].sequence->items[0].tensor.data, x, sizeof x);
    CHECK_EQ_MEM(out[1].tensor.data, y, sizeof y);
    td_value again = {.kind = TD_VALUE_SEQUENCE, .sequence = td_sequence_retain(out[0].sequence)};
    in[0] = again; /* made by the engine, given back */
    CHECK_OK(engine->run(f.ctx, in, out, NULL, &err), &err);
    CHECK_EQ_MEM(out[1].tensor.data, y, sizeof y);
    td_value_release(&again);
    in[0].sequence = td_sequence_new(0);
    CHECK_STATUS(engine->run(f.ctx, in, out, NULL, &err), TREADLE_UNSUPPORTED, &err);
    CHECK_HAS_STR(err.message, "input \"seq\": ONNX Runtime takes no empty sequence");
    td_sequence_release(in[0].sequence);
    td_sequence_release(s); /* its items' memory is borrowed */
    close_fixture(&f);
}

/* --- options */

static treadle_status open_with(const char *session_options, const char *run_options, treadle_error *err) {
    td_arena arena = {0};
    td_json *session = NULL, *run = NULL;
    td_session *opened = NULL;
    td_session_ctx *ctx = NULL;
    CHECK_OK(td_json_parse(td_str_from(session_options), NULL, &arena, &session, err), err);
    CHECK_OK(td_json_parse(td_str_from(run_options), NULL, &arena, &run, err), err);
    td_engine_options options = {
        .n_threads = 1, .library = td_test_ort(), .session_options = session, .run_options = run};
    treadle_status status = engine->open(path_of("fixed.onnx"), &options, &opened, err);
    if (status == TREADLE_OK) status = engine->ctx_new(opened, &ctx, err);
    if (ctx) engine->ctx_free(ctx);
    if (opened) engine->close(opened);
    td_arena_free(&arena);
    return status;
}

TEST(options) {
    treadle_error err = {0};
    CHECK_OK(
        open_with(
            "{\"intra_op_num_threads\": 2, \"inter_op_num_threads\": \"1\", \"enable_cpu_mem_arena\": false, "
            "\"enable_mem_pattern\": \"0\", \"graph_optimization_level\": 99, \"execution_mode\": \"ORT_PARALLEL\", "
            "\"use_deterministic_compute\": true, \"log_id\": \"me\", \"log_severity_level\": 3, "
            "\"session.disable_prepacking\": \"1\", \"config_entries\": {\"session.set_denormal_as_zero\": true}, \"x\": null}",
            "{\"run_tag\": \"t\", \"log_severity_level\": 2, \"memory.enable_memory_arena_shrinkage\": \"cpu:0\"}",
            &err),
        &err);
    static const char *const wrong[][2] = {
        {"{\"graph_optimization_level\": \"ORT_ENABLE_MOST\"}", "found ORT_ENABLE_MOST"},
        {"{\"execution_mode\": true}", "expected one of ORT_SEQUENTIAL, ORT_PARALLEL, found a boolean"},
        {"{\"intra_op_num_threads\": -1}", "intra_op_num_threads: expected a number from 0"},
        {"{\"log_severity_level\": \"3x\"}", "log_severity_level: expected a number"},
        {"{\"config_entries\": [1]}", "expected an object of names and values, found an array"},
        {"{\"config_entries\": {\"ep.context_enable\": \"1\"}}",
         "\"ep.context_enable\" is not taken from a config: it writes a file"},
        {"[]", "expected an object"},
    };
    for (size_t i = 0; i < TD_COUNT(wrong); i++) {
        CHECK_STATUS(open_with(wrong[i][0], "{}", &err), TREADLE_CONFIG, &err);
        CHECK_HAS_STR(err.message, wrong[i][1]);
    }
    CHECK_STATUS(open_with("{}", "{\"enable_profiling\": \"p\"}", &err), TREADLE_CONFIG, &err);
    CHECK_HAS_STR(err.message, "run_options: \"enable_profiling\"");
    CHECK_STATUS(open_with("{}", "3", &err), TREADLE_CONFIG, &err);
}

TEST(providers) {
    treadle_error err = {0};
    td_session *session = NULL;
    td_arena arena = {0};
    const char *const *names;
    td_engine_options options = {.n_threads = 1, .library = td_test_ort(), .provider = TD_STR("CUDDA")};
    CHECK_OK(engine->providers(&options, &arena, &names, &err), &err);
    bool has_cpu = false;
    for (size_t i = 0; names[i]; i++) has_cpu |= strcmp(names[i], "CPUExecutionProvider") == 0;
    CHECK(has_cpu);
    CHECK_STATUS(engine->open(path_of("fixed.onnx"), &options, &session, &err), TREADLE_CONFIG, &err);
    CHECK_HAS_STR(err.message, "execution provider \"CUDDA\" is not available (available: ");
    CHECK_HAS_STR(err.message, "CPUExecutionProvider");
    options.provider = TD_STR("cpu");
    CHECK_OK(engine->open(path_of("fixed.onnx"), &options, &session, &err), &err);
    engine->close(session);
    td_arena_free(&arena);
}

/* --- threads: contexts of one session at once */

typedef struct worker {
    const td_session *session;
    int n_wrong;
} worker;

static void *work(void *given) {
    worker *w = given;
    td_session_ctx *ctx = NULL;
    if (engine->ctx_new(w->session, &ctx, NULL) != TREADLE_OK) return w->n_wrong = 1, NULL;
    for (int i = 0; i < 200; i++) {
        float x[6] = {(float)i};
        td_value in = F32(x, {2, {2, 3}}), out = {0};
        treadle_status status = engine->run(ctx, &in, &out, NULL, NULL);
        w->n_wrong += status != TREADLE_OK || *(float *)out.tensor.data != 2 * (float)i;
    }
    engine->ctx_free(ctx);
    return NULL;
}

TEST(contexts_at_once) {
    fixture f = open_named("fixed.onnx");
    pthread_t threads[4];
    worker workers[4];
    for (int i = 0; i < 4; i++) {
        workers[i] = (worker){.session = f.session};
        REQUIRE(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ_INT(workers[i].n_wrong, 0);
    }
    close_fixture(&f);
}
