/* The engine table, and the same cases on every engine: a signature equals what the opened session says, runs give what
 * ONNX Runtime gave when the data were made, bound, skipped and strided values work alike. */
#include "support/test.h"

#include "base/file.h"
#include "engine/engine.h"
#include "tensor/half.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>

static const char *data_path(const char *format, const char *name, int set, int index) {
    char path[256];
    snprintf(path, sizeof path, format, name, set, index);
    return td_test_source(path);
}

static const char *model_path(const char *name) { return data_path("tests/light/data/%s/model.onnx", name, 0, 0); }

/* Options with which an engine opens here; skips the test if it cannot. */
static td_engine_options options_for(const td_engine *engine) {
    return (td_engine_options){.n_threads = 1, .library = engine == &td_engine_ort ? td_test_ort() : NULL};
}

TEST(found_by_name) {
    const td_engine *engine = td_engine_find(TD_STR("light"));
    REQUIRE(engine == &td_engine_light);
    CHECK_EQ_STR(engine->name, "light");
    CHECK(td_engine_find(TD_STR("ort")) == &td_engine_ort);
    CHECK(td_engine_find(TD_STR("no such engine")) == NULL);
}

TEST(engine_of_a_session) {
    static const struct {
        const char *host, *config, *provider, *engine;
        bool keeps_provider;
    } cases[] = {
        {NULL, "", "", "light", false},          {NULL, "ort", "", "ort", false},
        {NULL, "light", "CPU", "light", false},  {NULL, "light", "CUDAExecutionProvider", "ort", true},
        {"ort", "light", "", "ort", false},      {"light", "ort", "cuda", "light", false},
        {"ort", "light", "webgpu", "ort", true}, {"", "ort", "CPUExecutionProvider", "ort", false},
    };
    for (size_t i = 0; i < TD_COUNT(cases); i++) {
        treadle_error err = {0};
        td_engine_options base = {.engine = cases[i].host, .n_threads = 3}, out;
        td_engine_wish wish = {.engine = td_str_from(cases[i].config), .provider = td_str_from(cases[i].provider)};
        const td_engine *engine;
        CHECK_OK(td_engine_for_session(&base, &wish, &engine, &out, &err), &err);
        CHECK_EQ_STR(engine->name, cases[i].engine);
        CHECK_EQ_INT(out.provider.n > 0, cases[i].keeps_provider);
        CHECK_EQ_INT(out.n_threads, 3);
    }
    treadle_error err = {0};
    td_engine_options base = {.engine = "orrt"}, out;
    const td_engine *engine;
    CHECK_STATUS(td_engine_for_session(&base, &(td_engine_wish){0}, &engine, &out, &err), TREADLE_CONFIG, &err);
    CHECK_HAS_STR(err.message, "Unknown engine \"orrt\". Valid options: light, ort");
    CHECK_HAS_STR(err.hint, "ort");
}

static void check_signature(const td_engine *engine, const char *name) {
    treadle_error err = {0};
    td_signature *signature = NULL;
    td_session *session = NULL;
    td_engine_options options = options_for(engine);
    CHECK_OK(td_signature_open(model_path(name), &signature, &err), &err);
    CHECK_OK(engine->open(model_path(name), &options, &session, &err), &err);
    REQUIRE(engine->n_inputs(session) == signature->n_inputs);
    REQUIRE(engine->n_outputs(session) == signature->n_outputs);
    for (size_t i = 0; i < signature->n_inputs; i++)
        CHECK_EQ_INT(td_signature_find_input(signature, signature->inputs[i].name), i);
    for (size_t i = 0; i < signature->n_outputs; i++)
        CHECK_EQ_INT(td_signature_find_output(signature, signature->outputs[i].name), i);
    CHECK_EQ_INT(td_signature_find_input(signature, TD_STR("no such input")), -1);
    td_signature_close(signature);
    engine->close(session);
}

static void check_signatures(const td_engine *engine) {
    static const char *const names[] = {"concat_cache", "row_wise", "defaults", "old_initializers"};
    for (size_t i = 0; i < TD_COUNT(names); i++) check_signature(engine, names[i]);
}

TEST(signature_light) { check_signatures(&td_engine_light); }
TEST(signature_ort) { check_signatures(&td_engine_ort); }

TEST(signature_equals_light) {
    static const char *const names[] = {"concat_cache", "row_wise", "defaults", "old_initializers", "functions"};
    for (size_t c = 0; c < TD_COUNT(names); c++) {
        treadle_error err = {0};
        td_signature *signature = NULL;
        td_light *light = NULL;
        CHECK_OK(td_signature_open(model_path(names[c]), &signature, &err), &err);
        CHECK_OK(td_light_open(model_path(names[c]), NULL, &light, &err), &err);
        for (size_t i = 0; i < signature->n_inputs; i++) {
            const td_light_port *a = &signature->inputs[i], *b = td_light_input(light, i);
            CHECK(td_str_equal(a->name, b->name));
            CHECK_EQ_INT(a->dtype, b->dtype);
            CHECK_EQ_INT(a->optional, b->optional);
            REQUIRE(a->shape.rank == b->shape.rank);
            for (int d = 0; d < a->shape.rank; d++) {
                CHECK(td_str_equal(a->dim_names[d], b->dim_names[d]));
                CHECK_EQ_INT(TD_MAX(a->shape.dims[d], TD_DIM_UNKNOWN), TD_MAX(b->shape.dims[d], TD_DIM_UNKNOWN));
            }
        }
        td_signature_close(signature);
        td_light_close(light);
    }
}

/* --- runs against recorded outputs */

enum { MOST = 8 };

static void check_near(const td_tensor *got, const td_tensor *want) {
    REQUIRE(got->dtype == want->dtype);
    REQUIRE(td_shape_equal(&got->shape, &want->shape));
    td_buffer *dense = td_buffer_new((size_t)td_tensor_count(want) * 16 + 16);
    td_tensor copy;
    td_tensor_view(&copy, got->dtype, &got->shape, dense->data);
    td_tensor_copy(&copy, got);
    for (int64_t i = 0; i < td_tensor_count(want); i++) {
        double w = td_load_f64(want->dtype, want->data, i);
        if (!CHECK_NEAR(td_load_f64(got->dtype, copy.data, i), w, 1e-5 + 1e-5 * (w < 0 ? -w : w))) break;
    }
    td_buffer_release(dense);
}

/* Half of a larger tensor: what a slice of somebody's memory looks like. */
static td_tensor strided(const td_tensor *from, td_buffer **out) {
    td_tensor t = *from;
    td_shape wide = from->shape;
    int last = wide.rank - 1;
    wide.dims[last] = wide.dims[last] * 2 + 1;
    int64_t n;
    REQUIRE(td_shape_count(&wide, &n));
    *out = td_buffer_new((size_t)n * 16 + 16);
    td_tensor_dense_strides(&wide, t.strides);
    t.strides[last] = 2;
    t.data = (*out)->data;
    td_tensor_copy(&t, from);
    return t;
}

static void run_set(const td_engine *engine, td_session *session, td_session_ctx *ctx, const char *name, int set) {
    treadle_error err = {0};
    td_value in[MOST] = {0}, out[MOST] = {0}, views[MOST] = {0};
    td_buffer *wide[MOST] = {0};
    size_t n_in = engine->n_inputs(session), n_out = engine->n_outputs(session);
    REQUIRE(n_in <= MOST && n_out <= MOST);
    for (size_t i = 0; i < n_in; i++) {
        const char *path = data_path("tests/light/data/%s/in_%d_%d.npy", name, set, (int)i);
        if (!td_path_is_file(path)) continue;
        CHECK_OK(td_npy_read(path, &in[i].tensor, &err), &err);
        views[i].kind = in[i].kind = TD_VALUE_TENSOR;
        views[i].tensor = in[i].tensor.shape.rank > 0 ? strided(&in[i].tensor, &wide[i]) : in[i].tensor;
    }
    for (int variant = 0; variant < 2; variant++) { /* dense, then strided inputs */
        memset(out, 0, sizeof out);
        CHECK_OK(engine->run(ctx, variant ? views : in, out, NULL, &err), &err);
        for (size_t o = 0; o < n_out; o++) {
            td_tensor want;
            CHECK_OK(td_npy_read(data_path("tests/light/data/%s/out_%d_%d.npy", name, set, (int)o), &want, &err), &err);
            REQUIRE(out[o].kind == TD_VALUE_TENSOR);
            check_near(&out[o].tensor, &want);
            td_buffer_release(want.buffer);
        }
    }
    for (size_t i = 0; i < n_in; i++) {
        td_value_release(&in[i]);
        td_buffer_release(wide[i]);
    }
}

static void run_recorded(const td_engine *engine) {
    static const char *const names[] = {"concat_cache",     "data_dependent", "defaults", "elementwise",
                                        "old_initializers", "outputs",        "row_wise", "shape_chain"};
    td_engine_options options = options_for(engine);
    for (size_t c = 0; c < TD_COUNT(names); c++) {
        treadle_error err = {0};
        td_session *session = NULL;
        td_session_ctx *ctx = NULL;
        CHECK_OK(engine->open(model_path(names[c]), &options, &session, &err), &err);
        CHECK_OK(engine->ctx_new(session, &ctx, &err), &err);
        for (int set = 0; td_path_is_file(data_path("tests/light/data/%s/out_%d_%d.npy", names[c], set, 0)); set++)
            run_set(engine, session, ctx, names[c], set);
        engine->ctx_free(ctx);
        engine->close(session);
    }
}

TEST(recorded_light) { run_recorded(&td_engine_light); }
TEST(recorded_ort) { run_recorded(&td_engine_ort); }

/* --- picked rows, skipped outputs */

TEST(runs_and_picks) {
    const td_engine *engine = td_engine_find(TD_STR("light"));
    treadle_error err = {0};
    td_session *session = NULL;
    td_session_ctx *ctx = NULL;
    float x[12];
    for (int i = 0; i < 12; i++) x[i] = (float)i / 6 - 1;
    CHECK_OK(
        engine->open(model_path("row_wise"), &(td_engine_options){.n_threads = 1, .profile = true}, &session, &err),
        &err);
    CHECK_OK(engine->ctx_new(session, &ctx, &err), &err);
    td_value in = {.kind = TD_VALUE_TENSOR}, all[2] = {0}, one[2] = {0};
    float kept[11];
    td_tensor_view(&in.tensor, TD_FLOAT, &(td_shape){3, {1, 2, 6}}, x);
    CHECK_OK(engine->run(ctx, &in, all, NULL, &err), &err);
    REQUIRE(td_shape_equal(&all[0].tensor.shape, &(td_shape){3, {1, 2, 11}}));
    memcpy(kept, (float *)all[0].tensor.data + 11, sizeof kept);
    REQUIRE(engine->can_pick_rows(session, 0));
    CHECK_OK(engine->pick_rows(ctx, 0, (int64_t[]){1}, 1, 1, 2, &err), &err);
    CHECK_OK(engine->run(ctx, &in, one, (bool[]){false, true}, &err), &err);
    REQUIRE(td_shape_equal(&one[0].tensor.shape, &(td_shape){3, {1, 1, 11}}));
    for (int i = 0; i < 11; i++) CHECK_NEAR(((float *)one[0].tensor.data)[i], kept[i], 1e-6);
    td_buf text = {0};
    engine->profile(ctx, true, &text);
    CHECK_HAS_STR(text.p, "Linear");
    td_buf_free(&text);
    engine->ctx_free(ctx);
    engine->close(session);
}

/* --- interrupted runs */

static void *interrupt_soon(void *arg) {
    const struct timespec a_while = {.tv_nsec =
                                         50 * 1000 * 1000}; /* the loop has begun, most likely; right either way */
    nanosleep(&a_while, NULL);
    const td_engine *engine = ((void **)arg)[0];
    engine->interrupt(((void **)arg)[1], true);
    return NULL;
}

/* endless.onnx: y = x + x as long as forever is true. */
static void check_interrupt(const td_engine *engine) {
    treadle_error err = {0};
    td_engine_options options = options_for(engine);
    td_session *session = NULL;
    td_session_ctx *ctx = NULL;
    pthread_t thread;
    float x = 1;
    bool forever = true;
    CHECK_OK(engine->open(td_test_source("tests/engine/data/endless.onnx"), &options, &session, &err), &err);
    CHECK_OK(engine->ctx_new(session, &ctx, &err), &err);
    td_value in[2] = {{.kind = TD_VALUE_TENSOR}, {.kind = TD_VALUE_TENSOR}}, out = {0};
    td_tensor_view(&in[0].tensor, TD_FLOAT, &(td_shape){1, {1}}, &x);
    td_tensor_view(&in[1].tensor, TD_BOOL, &(td_shape){0}, &forever);
    void *arg[] = {(void *)(uintptr_t)engine, ctx};
    REQUIRE(pthread_create(&thread, NULL, interrupt_soon, arg) == 0);
    CHECK_STATUS(engine->run(ctx, in, &out, NULL, &err), TREADLE_CANCELLED, &err);
    pthread_join(thread, NULL);
    CHECK_STATUS(engine->run(ctx, in, &out, NULL, &err), TREADLE_CANCELLED, &err); /* still on */
    engine->interrupt(ctx, false);
    forever = false;
    CHECK_OK(engine->run(ctx, in, &out, NULL, &err), &err);
    CHECK_NEAR(((float *)out.tensor.data)[0], 1, 0);
    engine->ctx_free(ctx);
    engine->close(session);
}

TEST(interrupt_light) { check_interrupt(&td_engine_light); }
TEST(interrupt_ort) { check_interrupt(&td_engine_ort); }

static void check_missing(const td_engine *engine) {
    treadle_error err = {0};
    td_signature *signature = NULL;
    td_session *session = NULL;
    CHECK_STATUS(td_signature_open("/no/such/model.onnx", &signature, &err), TREADLE_NOT_FOUND, &err);
    CHECK_STATUS(engine->open("/no/such/model.onnx", NULL, &session, &err), TREADLE_NOT_FOUND, &err);
    CHECK_HAS_STR(err.file, "/no/such/model.onnx");
}

TEST(missing_file_light) { check_missing(&td_engine_light); }
TEST(missing_file_ort) { check_missing(&td_engine_ort); }
