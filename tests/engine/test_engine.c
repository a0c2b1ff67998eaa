/* The engine table: found by name, a signature equals what the opened session says, and runs give what light gives. */
#include "support/test.h"

#include "engine/engine.h"

#include <stdio.h>

static const char *model_path(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "tests/light/data/%s/model.onnx", name);
    return td_test_source(path);
}

TEST(found_by_name) {
    const td_engine *engine = td_engine_find(TD_STR("light"));
    REQUIRE(engine == &td_engine_light);
    CHECK_EQ_STR(engine->name, "light");
    CHECK(td_engine_find(TD_STR("no such engine")) == NULL);
}

TEST(signature_equals_session) {
    static const char *const names[] = {"concat_cache", "row_wise", "defaults", "old_initializers", "functions"};
    const td_engine *engine = &td_engine_light;
    treadle_error err = {0};
    for (size_t c = 0; c < TD_COUNT(names); c++) {
        td_signature *signature = NULL;
        td_session *session = NULL;
        CHECK_OK(td_signature_open(model_path(names[c]), &signature, &err), &err);
        CHECK_OK(engine->open(model_path(names[c]), &(td_engine_options){.n_threads = 1}, &session, &err), &err);
        REQUIRE(engine->n_inputs(session) == signature->n_inputs);
        REQUIRE(engine->n_outputs(session) == signature->n_outputs);
        const td_light *light = (const td_light *)(const void *)session;
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
            CHECK_EQ_INT(engine->find_input(session, a->name), i);
            CHECK_EQ_INT(td_signature_find_input(signature, a->name), i);
        }
        for (size_t i = 0; i < signature->n_outputs; i++) {
            CHECK_EQ_INT(engine->find_output(session, signature->outputs[i].name), i);
            CHECK_EQ_INT(td_signature_find_output(signature, signature->outputs[i].name), i);
        }
        CHECK_EQ_INT(engine->find_input(session, TD_STR("no such input")), -1);
        td_signature_close(signature);
        engine->close(session);
    }
}

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
    CHECK_OK(engine->pick_rows(ctx, 0, (int64_t[]){1}, 1, 1, &err), &err);
    CHECK_OK(engine->run(ctx, &in, one, (bool[]){false, true}, &err), &err);
    REQUIRE(td_shape_equal(&one[0].tensor.shape, &(td_shape){3, {1, 1, 11}}));
    for (int i = 0; i < 11; i++) CHECK_NEAR(((float *)one[0].tensor.data)[i], kept[i], 1e-6);
    td_buf text = {0};
    engine->profile(ctx, true, &text);
    CHECK_HAS_STR(text.p, "MatMul");
    td_buf_free(&text);
    engine->ctx_free(ctx);
    engine->close(session);
}

TEST(missing_file) {
    treadle_error err = {0};
    td_signature *signature = NULL;
    td_session *session = NULL;
    CHECK_STATUS(td_signature_open("/no/such/model.onnx", &signature, &err), TREADLE_NOT_FOUND, &err);
    CHECK_STATUS(td_engine_light.open("/no/such/model.onnx", NULL, &session, &err), TREADLE_NOT_FOUND, &err);
    CHECK_HAS_STR(err.file, "/no/such/model.onnx");
}
