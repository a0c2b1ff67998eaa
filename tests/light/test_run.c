/* Whole small models against ONNX Runtime: every case, passes on, off and each left out, sizes changing between runs,
 * outputs in the ctx's memory and in the caller's. */
#include "light/cases.h"

#include "base/alloc.h"
#include "light/pass.h"

#include <stdlib.h>

static void run_set(const char *name, td_light_ctx *ctx, const td_light *light, int set, const char *mode) {
    data_set data;
    td_value outputs[MAX_PORTS] = {0};
    treadle_error err = {0};
    char what[160];
    if (!read_set(name, set, light, &data)) return;
    CHECK_OK(td_light_run(ctx, data.inputs, outputs, NULL, &err), &err);
    for (size_t i = 0; i < td_light_n_outputs(light); i++) {
        snprintf(what, sizeof what, "%s (%s), set %d, output %zu", name, mode, set, i);
        check_tensor(what, &outputs[i].tensor, &data.wanted[i]);
    }
    free_set(&data);
}

static void run_case(const char *name, const td_light_options *options, const char *mode) {
    treadle_error err = {0};
    td_light *light = open_case(name, options);
    td_light_ctx *ctx = NULL;
    CHECK_OK(td_light_ctx_new(light, &ctx, &err), &err);
    for (int round = 0; round < 3; round++)
        for (int set = 0; set < 6; set++) run_set(name, ctx, light, set, mode);
    for (int set = 6; set-- > 0;) run_set(name, ctx, light, set, mode);
    td_light_ctx_free(ctx);
    td_light_close(light);
}

TEST(all_passes) {
    for (size_t i = 0; i < TD_COUNT(case_names); i++)
        run_case(case_names[i], &(td_light_options){.n_threads = 1}, "all passes");
}

TEST(no_passes) {
    for (size_t i = 0; i < TD_COUNT(case_names); i++)
        run_case(case_names[i], &(td_light_options){.n_threads = 2, .no_passes = true}, "no passes");
}

TEST(without_each_pass) {
    for (size_t p = 0; p < td_pass_count(); p++) {
        td_light_options options = {.n_threads = 1, .skip_passes = td_pass_at(p)->name};
        for (size_t i = 0; i < TD_COUNT(case_names); i++) run_case(case_names[i], &options, td_pass_at(p)->name);
    }
}

/* Every output into strided memory of the caller that has room for more. */
TEST(bound_outputs) {
    for (size_t i = 0; i < TD_COUNT(case_names); i++) {
        treadle_error err = {0};
        td_light *light = open_case(case_names[i], &(td_light_options){.n_threads = 1});
        td_light_ctx *ctx = NULL;
        data_set data;
        CHECK_OK(td_light_ctx_new(light, &ctx, &err), &err);
        for (int n = 0; n < 12; n++) {
            if (!read_set(case_names[i], n % 6, light, &data)) continue;
            td_value outputs[MAX_PORTS] = {0};
            size_t n_out = td_light_n_outputs(light);
            for (size_t k = 0; k < n_out; k++) {
                td_tensor *t = &outputs[k].tensor;
                td_shape capacity = data.wanted[k].shape;
                size_t bytes;
                for (int d = 0; d < capacity.rank; d++) capacity.dims[d] += n < 6 ? d + 1 : 0;
                outputs[k].kind = TD_VALUE_TENSOR;
                td_tensor_view(t, data.wanted[k].dtype, &capacity, NULL);
                REQUIRE(td_tensor_bytes(t, &bytes));
                t->buffer = td_buffer_new(bytes);
                t->data = t->buffer->data;
                memset(t->data, 0x55, bytes);
            }
            CHECK_OK(td_light_run(ctx, data.inputs, outputs, NULL, &err), &err);
            for (size_t k = 0; k < n_out; k++) {
                char what[128];
                snprintf(what, sizeof what, "%s, set %d, bound output %zu", case_names[i], n % 6, k);
                check_tensor(what, &outputs[k].tensor, &data.wanted[k]);
                CHECK_EQ_PTR(outputs[k].tensor.data, outputs[k].tensor.buffer->data);
                td_buffer_release(outputs[k].tensor.buffer);
            }
            free_set(&data);
        }
        td_light_ctx_free(ctx);
        td_light_close(light);
    }
}

/* Outputs of a case bound to the memory of its first inputs, which the ops may write to in place
 * where nobody else reads them. */
TEST(caches_overwritten) {
    treadle_error err = {0};
    td_light *light = open_case("scatter_cache", &(td_light_options){.n_threads = 1});
    td_light_ctx *ctx = NULL;
    CHECK_OK(td_light_ctx_new(light, &ctx, &err), &err);
    for (int n = 0; n < 6; n++) {
        data_set data;
        td_value outputs[MAX_PORTS] = {0};
        size_t n_out = td_light_n_outputs(light);
        REQUIRE(read_set("scatter_cache", n % 3, light, &data));
        for (size_t i = 0; i + 1 < n_out; i++) outputs[i] = data.inputs[i];
        CHECK_OK(td_light_run(ctx, data.inputs, outputs, NULL, &err), &err);
        for (size_t i = 0; i < n_out; i++) {
            char what[96];
            snprintf(what, sizeof what, "scatter_cache over its inputs, set %d, output %zu", n % 3, i);
            check_tensor(what, &outputs[i].tensor, &data.wanted[i]);
        }
        free_set(&data);
    }
    td_light_ctx_free(ctx);
    td_light_close(light);
}

/* past and present in one memory: [batch, heads, capacity, 4], steps of the case's own chain of sizes. */
static void run_in_place(const char *name) {
    treadle_error err = {0};
    td_light *light = open_case(name, &(td_light_options){.n_threads = 1});
    td_light_ctx *ctx = NULL, *plain = NULL;
    CHECK_OK(td_light_ctx_new(light, &ctx, &err), &err);
    CHECK_OK(td_light_ctx_new(light, &plain, &err), &err);
    enum { HEADS = 2, CAPACITY = 16, D = 4 };
    float cache[2][HEADS * CAPACITY * D], past[2][HEADS * CAPACITY * D], x[HEADS * 4 * D];
    uint64_t seed = 1;
    memset(cache, 0x55, sizeof cache);
    int64_t length = 0;
    for (int step = 0; step < 6; step++) {
        int64_t n_new = step == 0 ? 3 : 1;
        for (size_t i = 0; i < TD_COUNT(x); i++) x[i] = td_test_random_f32(&seed, -1, 1);
        td_value in[4] = {0}, out[3] = {0}, in_plain[4] = {0}, out_plain[3] = {0};
        bool use_past = length > 0; /* what control_cache has a branch for */
        in[3].kind = TD_VALUE_TENSOR;
        td_tensor_view(&in[3].tensor, TD_BOOL, &(td_shape){.rank = 0}, &use_past);
        in_plain[3] = in[3];
        in[0].kind = TD_VALUE_TENSOR;
        td_tensor_view(&in[0].tensor, TD_FLOAT, &(td_shape){4, {1, HEADS, n_new, D}}, x);
        in_plain[0] = in[0];
        for (int layer = 0; layer < 2; layer++) {
            td_value *to = &out[1 + layer], *from = &in[1 + layer];
            to->kind = from->kind = TD_VALUE_TENSOR;
            td_tensor_view(&to->tensor, TD_FLOAT, &(td_shape){4, {1, HEADS, CAPACITY, D}}, cache[layer]);
            from->tensor = to->tensor;
            from->tensor.shape.dims[2] = length;
            in_plain[1 + layer].kind = TD_VALUE_TENSOR;
            td_tensor_view(&in_plain[1 + layer].tensor, TD_FLOAT, &(td_shape){4, {1, HEADS, length, D}}, past[layer]);
            td_tensor_copy(&in_plain[1 + layer].tensor, &from->tensor);
        }
        CHECK_OK(td_light_run(plain, in_plain, out_plain, NULL, &err), &err);
        CHECK_OK(td_light_run(ctx, in, out, NULL, &err), &err);
        length += n_new;
        for (int k = 0; k < 3; k++) check_tensor(name, &out[k].tensor, &out_plain[k].tensor);
        CHECK_EQ_INT(out[1].tensor.shape.dims[2], length);
    }
    td_light_ctx_free(ctx);
    td_light_ctx_free(plain);
    td_light_close(light);
}

TEST(cache_in_place) {
    run_in_place("concat_cache");
    run_in_place("control_cache");
}

/* Bindings that no op could honour directly: an output in the memory of an input that others still read, and two inputs
 * swapped into each other's memory. */
TEST(overlapping_bindings) {
    treadle_error err = {0};
    td_light *light = open_case("outputs", &(td_light_options){.n_threads = 1});
    td_light_ctx *ctx = NULL;
    data_set data;
    CHECK_OK(td_light_ctx_new(light, &ctx, &err), &err);
    REQUIRE(read_set("outputs", 0, light, &data));
    td_value outputs[MAX_PORTS] = {0};
    size_t bytes;
    REQUIRE(td_tensor_bytes(&data.inputs[0].tensor, &bytes));
    outputs[1] = data.inputs[0]; /* neg over x */
    CHECK_OK(td_light_run(ctx, data.inputs, outputs, NULL, &err), &err);
    for (size_t k = 1; k < td_light_n_outputs(light); k++)
        check_tensor("neg over x", &outputs[k].tensor, &data.wanted[k]);
    free_set(&data);
    td_light_ctx_free(ctx);
    td_light_close(light);
}

TEST(skipped_outputs) {
    treadle_error err = {0};
    td_light *light = open_case("skips", &(td_light_options){.n_threads = 1, .profile = true});
    td_light_ctx *ctx = NULL;
    data_set data;
    CHECK_OK(td_light_ctx_new(light, &ctx, &err), &err);
    for (int round = 0; round < 3; round++) {
        for (unsigned mask = 0; mask < 8; mask++) {
            bool skip[3] = {mask & 1, mask & 2, mask & 4};
            td_value outputs[3] = {0};
            REQUIRE(read_set("skips", (int)(mask & 1), light, &data));
            CHECK_OK(td_light_run(ctx, data.inputs, outputs, skip, &err), &err);
            for (size_t k = 0; k < 3; k++)
                if (!skip[k]) check_tensor("skips", &outputs[k].tensor, &data.wanted[k]);
            td_buf text = {0};
            td_light_profile(ctx, false, &text);
            td_buf_char(&text, '\n');
            CHECK_EQ_INT(strstr(text.p, "Exp") != NULL, !skip[1]);
            CHECK_EQ_INT(strstr(text.p, "Sqrt") != NULL, !skip[2]);
            CHECK_EQ_INT(strstr(text.p, "Neg") != NULL, mask != 7);
            td_buf_free(&text);
            free_set(&data);
        }
    }
    td_light_ctx_free(ctx);
    td_light_close(light);
}

static void pick_rows_of(const char *name, int set) {
    treadle_error err = {0};
    td_light *light = open_case(name, &(td_light_options){.n_threads = 1});
    td_light_ctx *ctx = NULL;
    data_set data;
    REQUIRE(td_str_is(td_light_output(light, 0)->name, "logits"));
    CHECK(td_light_can_pick_rows(light, 0));
    CHECK(!td_light_can_pick_rows(light, 1)); /* made by Transpose, which moves rows */
    CHECK(!td_light_can_pick_rows(light, 7));
    CHECK_OK(td_light_ctx_new(light, &ctx, &err), &err);
    REQUIRE(read_set(name, set, light, &data));
    for (int round = 0; round < 3; round++) {
        const int64_t at[2][2] = {{6, 0}, {3, 3}};
        td_value outputs[2] = {0};
        CHECK_OK(td_light_pick_rows(ctx, 0, at[0], 2, 2, 7, &err), &err);
        CHECK_OK(td_light_run(ctx, data.inputs, outputs, NULL, &err), &err);
        REQUIRE(td_shape_equal(&outputs[0].tensor.shape, &(td_shape){3, {2, 2, 11}}));
        for (int b = 0; b < 2; b++)
            for (int i = 0; i < 2; i++)
                for (int v = 0; v < 11; v++)
                    CHECK_NEAR(((float *)outputs[0].tensor.data)[(b * 2 + i) * 11 + v],
                               ((float *)data.wanted[0].data)[(b * 7 + at[b][i]) * 11 + v], 1e-5);
        check_tensor("the other output", &outputs[1].tensor, &data.wanted[1]);
        CHECK_OK(td_light_pick_rows(ctx, 0, NULL, 0, 0, 0, &err), &err);
        outputs[0] = outputs[1] = (td_value){0};
        CHECK_OK(td_light_run(ctx, data.inputs, outputs, NULL, &err), &err);
        check_tensor("all rows", &outputs[0].tensor, &data.wanted[0]);
    }
    td_value outputs[2] = {0};
    CHECK_OK(td_light_pick_rows(ctx, 0, (int64_t[]){8, 0}, 2, 1, 9, &err), &err); /* of another length: all */
    CHECK_OK(td_light_run(ctx, data.inputs, outputs, NULL, &err), &err);
    check_tensor("another length", &outputs[0].tensor, &data.wanted[0]);
    outputs[0] = outputs[1] = (td_value){0};
    CHECK_OK(td_light_pick_rows(ctx, 0, (int64_t[]){1}, 1, 1, 7, &err), &err); /* of another batch */
    CHECK_OK(td_light_run(ctx, data.inputs, outputs, NULL, &err), &err);
    check_tensor("another batch", &outputs[0].tensor, &data.wanted[0]);
    CHECK_STATUS(td_light_pick_rows(ctx, 0, (int64_t[]){7, 0}, 2, 1, 7, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_HAS_STR(err.message, "position 7");
    CHECK_STATUS(td_light_pick_rows(ctx, 1, (int64_t[]){1}, 1, 1, 7, &err), TREADLE_INVALID_ARGUMENT, &err);
    free_set(&data);
    td_light_ctx_free(ctx);
    td_light_close(light);
}

TEST(picked_rows) { pick_rows_of("row_wise", 1); }

TEST(picked_rows_of_branches) {
    for (int set = 1; set < 4; set++) pick_rows_of("row_wise_if", set);
}

/* Lists made of shapes are followed; a graph that keeps the last position alone gives it, whatever was picked. */
TEST(picked_rows_behind_views) {
    treadle_error err = {0};
    td_light *light = open_case("row_wise_shapes", &(td_light_options){.n_threads = 1});
    td_light_ctx *ctx = NULL;
    data_set data;
    CHECK_OK(td_light_ctx_new(light, &ctx, &err), &err);
    REQUIRE(read_set("row_wise_shapes", 1, light, &data));
    REQUIRE(td_light_can_pick_rows(light, 0));
    CHECK_OK(td_light_pick_rows(ctx, 0, (int64_t[]){6, 2}, 2, 1, 7, &err), &err);
    if (td_light_can_pick_rows(light, 1)) CHECK_OK(td_light_pick_rows(ctx, 1, (int64_t[]){6, 2}, 2, 1, 7, &err), &err);
    td_value outputs[3] = {0};
    CHECK_OK(td_light_run(ctx, data.inputs, outputs, NULL, &err), &err);
    REQUIRE(td_shape_equal(&outputs[0].tensor.shape, &(td_shape){3, {2, 1, 11}}));
    for (int b = 0; b < 2; b++)
        for (int v = 0; v < 11; v++)
            CHECK_NEAR(((float *)outputs[0].tensor.data)[b * 11 + v],
                       ((float *)data.wanted[0].data)[(b * 7 + (b ? 2 : 6)) * 11 + v], 1e-5);
    check_tensor("the last position", &outputs[1].tensor, &data.wanted[1]);
    check_tensor("the other output", &outputs[2].tensor, &data.wanted[2]);
    free_set(&data);
    td_light_ctx_free(ctx);
    td_light_close(light);
}

/* Through a dynamically quantised product, whose scales are made in the run and are the same for all rows. */
TEST(picked_rows_of_int8) {
    for (int with_passes = 0; with_passes < 2; with_passes++) {
        treadle_error err = {0};
        td_light_options options = {.n_threads = 1, .skip_passes = with_passes ? "" : "fuse_int8"};
        td_light *light = open_case("int8_linear", &options);
        td_light_ctx *ctx = NULL;
        data_set data;
        td_value outputs[4] = {0};
        CHECK_OK(td_light_ctx_new(light, &ctx, &err), &err);
        REQUIRE(read_set("int8_linear", 0, light, &data));
        const td_tensor *wanted = &data.wanted[0];
        REQUIRE(wanted->shape.rank == 3 && wanted->shape.dims[0] == 2 && wanted->shape.dims[2] == 5);
        CHECK(td_light_can_pick_rows(light, 0));
        CHECK(!td_light_can_pick_rows(light, 3)); /* its bias is one for each row */
        CHECK_OK(td_light_pick_rows(ctx, 0, (int64_t[]){1, 0}, 2, 1, 2, &err), &err);
        CHECK_OK(td_light_run(ctx, data.inputs, outputs, NULL, &err), &err);
        REQUIRE(td_shape_equal(&outputs[0].tensor.shape, &(td_shape){3, {2, 1, 5}}));
        for (int b = 0; b < 2; b++)
            for (int v = 0; v < 5; v++)
                CHECK_NEAR(((float *)outputs[0].tensor.data)[b * 5 + v],
                           ((float *)wanted->data)[(b * 2 + 1 - b) * 5 + v], 1e-5);
        free_set(&data);
        td_light_ctx_free(ctx);
        td_light_close(light);
    }
}

TEST(bad_inputs) {
    treadle_error err = {0};
    td_light *light = open_case("row_wise", NULL);
    td_light_ctx *ctx = NULL;
    float x[12] = {0};
    td_value in[1] = {0}, out[2] = {0};
    CHECK_OK(td_light_ctx_new(light, &ctx, &err), &err);
    CHECK_STATUS(td_light_run(ctx, in, out, NULL, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_HAS_STR(err.message, "\"x\"");
    in[0].kind = TD_VALUE_TENSOR;
    td_tensor_view(&in[0].tensor, TD_FLOAT, &(td_shape){3, {1, 2, 5}}, x);
    CHECK_STATUS(td_light_run(ctx, in, out, NULL, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_HAS_STR(err.message, "float32[1, 2, 5]");
    td_tensor_view(&in[0].tensor, TD_INT32, &(td_shape){3, {1, 2, 6}}, x);
    CHECK_STATUS(td_light_run(ctx, in, out, NULL, &err), TREADLE_INVALID_ARGUMENT, &err);
    td_tensor_view(&in[0].tensor, TD_FLOAT, &(td_shape){3, {1, 2, 6}}, x);
    float small[4];
    out[1].kind = TD_VALUE_TENSOR;
    td_tensor_view(&out[1].tensor, TD_FLOAT, &(td_shape){3, {1, 1, 4}}, small); /* [2, 1, 6] comes */
    CHECK_STATUS(td_light_run(ctx, in, out, NULL, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_HAS_STR(err.message, "to fit into");
    out[1].kind = TD_VALUE_NONE;
    CHECK_OK(td_light_run(ctx, in, out, NULL, &err), &err); /* the ctx has survived all that */
    td_light_ctx_free(ctx);
    td_light_close(light);
}

/* Six products of one input become two nodes (gate and up with their SwiGLU, and a group); one of other block size, and
 * a gate whose sigmoid is read elsewhere, do not take part. A part of a group can be skipped. */
TEST(fused_products) {
    treadle_error err = {0};
    td_light *light = open_case("quant_block", &(td_light_options){.n_threads = 1, .profile = true});
    td_light_ctx *ctx = NULL;
    data_set data;
    CHECK_OK(td_light_ctx_new(light, &ctx, &err), &err);
    REQUIRE(read_set("quant_block", 1, light, &data));
    for (int round = 0; round < 3; round++) {
        td_value outputs[5] = {0};
        td_buf text = {0};
        CHECK_OK(td_light_run(ctx, data.inputs, outputs, (bool[]){false, false, round > 0, false, false}, &err), &err);
        for (size_t k = 0; k < 5; k++)
            if (k != 2 || round == 0) check_tensor("fused products", &outputs[k].tensor, &data.wanted[k]);
        td_light_profile(ctx, true, &text);
        CHECK_HAS_STR(text.p, "QuantSwiGLU x 1\n");
        CHECK_HAS_STR(text.p, "QuantProducts x 2\n"); /* q, k, v; gate2, up2 */
        CHECK_HAS_STR(text.p, "MatMulNBits x 2\n");   /* other, down */
        td_buf_free(&text);
    }
    free_set(&data);
    td_light_ctx_free(ctx);
    td_light_close(light);
}
