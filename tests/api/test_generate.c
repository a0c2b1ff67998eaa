/* Tokens of every kind of folder against ONNX Runtime's (goldens found without any cache), and the ways that must not
 * change them: batches, appends, rewinds, chunks, threads. */
/* labels: threads */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "support/pipelines.h"
#include "support/test.h"

static treadle_generator *start(treadle_model *model, void (*change)(treadle_generate_options *)) {
    treadle_generate_options options;
    treadle_generator *g = NULL;
    treadle_error err = {0};
    treadle_generate_options_init(&options);
    if (change) change(&options);
    CHECK_OK(treadle_generator_new(model, &options, &g, &err), &err);
    return g;
}

static void append(treadle_generator *g, const int32_t *ids, size_t n) {
    treadle_error err = {0};
    treadle_ids row = {ids, n};
    CHECK_OK(treadle_generator_append(g, &row, 1, &err), &err);
}

static void run(treadle_generator *g, int64_t n) {
    treadle_error err = {0};
    CHECK_OK(treadle_generator_run(g, n, NULL, NULL, &err), &err);
}

static void check_new(treadle_generator *g, size_t row, const int32_t *want, size_t n) {
    treadle_ids got = treadle_generator_new_ids(g, row);
    CHECK_EQ_UINT(got.n, n);
    if (got.n == n) CHECK_EQ_MEM(got.ids, want, n * sizeof *want);
}

TEST(each_prompt_alone_gives_the_golden_tokens) {
    for (int f = 0; td_test_folders[f]; f++) {
        td_test_golden golden;
        td_test_read_golden(td_test_folders[f], &golden);
        treadle_model *model = td_test_open(td_test_folders[f], 1);
        for (size_t i = 0; i < TD_TEST_PROMPTS; i++) {
            treadle_generator *g = start(model, NULL);
            append(g, golden.prompt[i], golden.n_prompt[i]);
            run(g, (int64_t)golden.n_new[i]);
            check_new(g, 0, golden.fresh[i], golden.n_new[i]);
            CHECK_EQ_INT(treadle_generator_finish(g, 0), TREADLE_FINISH_LENGTH);
            treadle_generator_free(g);
        }
        treadle_model_close(model);
    }
}

TEST(rows_of_a_batch_equal_their_own_runs) {
    for (int f = 0; td_test_folders[f]; f++) {
        td_test_golden golden;
        treadle_error err = {0};
        td_test_read_golden(td_test_folders[f], &golden);
        treadle_model *model = td_test_open(td_test_folders[f], 2);
        treadle_generator *g = start(model, NULL);
        treadle_ids rows[TD_TEST_PROMPTS];
        for (size_t i = 0; i < TD_TEST_PROMPTS; i++) rows[i] = (treadle_ids){golden.prompt[i], golden.n_prompt[i]};
        CHECK_OK(treadle_generator_append(g, rows, TD_TEST_PROMPTS, &err), &err);
        run(g, (int64_t)golden.n_new[0]);
        for (size_t i = 0; i < TD_TEST_PROMPTS; i++) check_new(g, i, golden.fresh[i], golden.n_new[i]);
        treadle_generator_free(g);
        treadle_model_close(model);
    }
}

/* Rows are cut, extended and left idle in turn; each always goes on as if it had been alone. */
TEST(rewound_and_extended_rows_of_a_batch_equal_fresh_runs) {
    for (int f = 0; td_test_folders[f]; f++) {
        td_test_golden golden;
        treadle_error err = {0};
        td_test_read_golden(td_test_folders[f], &golden);
        treadle_model *model = td_test_open(td_test_folders[f], 1);
        treadle_generator *g = start(model, NULL);
        treadle_ids rows[3];
        for (size_t i = 0; i < 3; i++) rows[i] = (treadle_ids){golden.prompt[i], golden.n_prompt[i]};
        CHECK_OK(treadle_generator_append(g, rows, 3, &err), &err);
        run(g, 5);
        /* row 0 back into its prompt, row 2 to its first three new tokens; row 1 stays */
        CHECK_OK(treadle_generator_rewind(g, 0, 2, &err), &err);
        CHECK_OK(treadle_generator_rewind(g, 2, golden.n_prompt[2] + 3, &err), &err);
        treadle_ids more[3] = {{golden.prompt[0] + 2, golden.n_prompt[0] - 2}, {NULL, 0}, {golden.fresh[2] + 3, 1}};
        CHECK_OK(treadle_generator_append(g, more, 3, &err), &err);
        run(g, 4);
        check_new(g, 0, golden.fresh[0], 4);
        check_new(g, 1, golden.fresh[1], 9);
        check_new(g, 2, golden.fresh[2] + 4, 4);
        for (size_t i = 0; i < 3; i++) CHECK_OK(treadle_generator_rewind(g, i, 0, &err), &err);
        for (size_t i = 0; i < 3; i++) rows[i] = (treadle_ids){golden.prompt[i + 1], golden.n_prompt[i + 1]};
        CHECK_OK(treadle_generator_append(g, rows, 3, &err), &err);
        run(g, 6);
        for (size_t i = 0; i < 3; i++) check_new(g, i, golden.fresh[i + 1], 6);
        treadle_generator_free(g);
        treadle_model_close(model);
    }
}

TEST(append_equals_a_fresh_run) {
    for (int f = 0; td_test_folders[f]; f++) {
        td_test_golden golden;
        td_test_read_golden(td_test_folders[f], &golden);
        treadle_model *model = td_test_open(td_test_folders[f], 1);
        treadle_generator *turns = start(model, NULL), *fresh = start(model, NULL);
        append(turns, golden.prompt[0], golden.n_prompt[0]);
        run(turns, 4);
        append(turns, golden.prompt[2], golden.n_prompt[2]);
        treadle_ids all = treadle_generator_ids(turns, 0);
        append(fresh, all.ids, all.n);
        run(turns, 8);
        run(fresh, 8);
        treadle_ids want = treadle_generator_new_ids(fresh, 0);
        check_new(turns, 0, want.ids, want.n);
        treadle_generator_free(turns);
        treadle_generator_free(fresh);
        treadle_model_close(model);
    }
}

static void want_prompt_logits(treadle_generate_options *options) { options->prompt_logits = true; }

TEST(a_prefill_gives_the_logits_of_single_steps) {
    for (int f = 0; td_test_folders[f]; f++) {
        td_test_golden golden;
        treadle_error err = {0};
        td_test_read_golden(td_test_folders[f], &golden);
        treadle_model *model = td_test_open(td_test_folders[f], 1);
        double tolerance = strstr(td_test_folders[f], "f16") ? 0.03 : 1e-4;
        treadle_generator *whole = start(model, want_prompt_logits), *steps = start(model, NULL);
        treadle_tensor all, last;
        append(whole, golden.prompt[2], golden.n_prompt[2]);
        CHECK_OK(treadle_generator_prefill(whole, &err), &err);
        CHECK_OK(treadle_generator_prompt_logits(whole, 0, &all, &err), &err);
        bool last_only = all.dims[0] == 1;
        CHECK_EQ_INT(all.dims[0], last_only ? 1 : (int64_t)golden.n_prompt[2]);
        for (size_t i = 0; i < golden.n_prompt[2]; i++) {
            append(steps, golden.prompt[2] + i, 1);
            CHECK_OK(treadle_generator_prefill(steps, &err), &err);
            CHECK_OK(treadle_generator_last_logits(steps, 0, &last, &err), &err);
            if (last_only && i + 1 < golden.n_prompt[2]) continue;
            int64_t row = last_only ? 0 : (int64_t)i;
            for (int64_t v = 0; v < last.dims[0]; v++)
                if (!CHECK_NEAR(treadle_tensor_get(&all, row * last.dims[0] + v), treadle_tensor_get(&last, v),
                                tolerance))
                    break;
        }
        treadle_generator_free(whole);
        treadle_generator_free(steps);
        treadle_model_close(model);
    }
}

TEST(chunks_of_a_prompt_change_nothing) {
    static const treadle_setting setting = {"/generation/prefill_chunk", "3"};
    for (int f = 0; td_test_folders[f]; f++) {
        td_test_golden golden;
        treadle_model_options options;
        treadle_model *model = NULL;
        treadle_error err = {0};
        td_test_read_golden(td_test_folders[f], &golden);
        treadle_model_options_init(&options);
        options.settings = &setting;
        options.n_settings = 1;
        CHECK_OK(treadle_model_open(td_test_folder(td_test_folders[f]), &options, &model, &err), &err);
        treadle_generator *g = start(model, NULL);
        append(g, golden.prompt[2], golden.n_prompt[2]);
        run(g, 5);
        check_new(g, 0, golden.fresh[2], 5);
        CHECK_EQ_INT(treadle_generator_runs(g, 0, NULL),
                     3 + 4); /* seven tokens in three chunks, the last gives a token */
        treadle_generator_free(g);
        treadle_model_close(model);
    }
}

/* --- ends */

static void end_at_third(treadle_generate_options *options) {
    static const int32_t eos[] = {39, 28};
    options->eos = eos; /* 28 is the fourth new token of prompt 2 */
    options->n_eos = 2;
}

static void end_but_ignore(treadle_generate_options *options) {
    end_at_third(options);
    options->ignore_eos = true;
}

static void long_enough(treadle_generate_options *options) {
    end_at_third(options);
    options->min_length = 64;
}

static void short_rows(treadle_generate_options *options) { options->max_length = 10; }

TEST(rows_end_by_eos_and_by_length) {
    td_test_golden golden;
    td_test_read_golden("gqa", &golden);
    treadle_model *model = td_test_open("gqa", 1);
    size_t at = 0;
    while (golden.fresh[2][at] != 28) at++;
    treadle_generator *g = start(model, end_at_third);
    append(g, golden.prompt[2], golden.n_prompt[2]);
    run(g, 12);
    check_new(g, 0, golden.fresh[2], at + 1);
    CHECK_EQ_INT(treadle_generator_finish(g, 0), TREADLE_FINISH_EOS);
    run(g, 12); /* an ended row stays ended */
    check_new(g, 0, golden.fresh[2], at + 1);
    treadle_generator_free(g);

    g = start(model, end_but_ignore);
    append(g, golden.prompt[2], golden.n_prompt[2]);
    run(g, 12);
    check_new(g, 0, golden.fresh[2], 12);
    treadle_generator_free(g);

    g = start(model, long_enough);
    append(g, golden.prompt[2], golden.n_prompt[2]);
    run(g, 12);
    treadle_ids got = treadle_generator_new_ids(g, 0);
    for (size_t i = 0; i < got.n; i++) CHECK(got.ids[i] != 28 && got.ids[i] != 39);
    treadle_generator_free(g);

    g = start(model, short_rows);
    append(g, golden.prompt[2], golden.n_prompt[2]);
    run(g, 12);
    check_new(g, 0, golden.fresh[2], 10 - golden.n_prompt[2]);
    CHECK_EQ_INT(treadle_generator_finish(g, 0), TREADLE_FINISH_LENGTH);
    treadle_generator_free(g);
    treadle_model_close(model);
}

TEST(wrong_requests_name_both_numbers_and_leave_the_model_usable) {
    treadle_model *model = td_test_open("concat", 1);
    treadle_generator *g = start(model, NULL);
    treadle_error err = {0};
    int32_t many[65] = {0}, bad[2] = {1, 40};
    treadle_ids rows[2] = {{many, 65}, {many, 1}};
    CHECK_STATUS(treadle_generator_append(g, rows, 1, &err), TREADLE_LIMIT, &err);
    CHECK_HAS_STR(err.message, "65");
    CHECK_HAS_STR(err.message, "64");
    rows[0] = (treadle_ids){bad, 2};
    CHECK_STATUS(treadle_generator_append(g, rows, 1, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_HAS_STR(err.message, "40");
    CHECK_HAS_STR(err.message, "39");
    CHECK_STATUS(treadle_generator_run(g, 3, NULL, NULL, &err), TREADLE_INVALID_ARGUMENT, &err);
    append(g, many, 4);
    CHECK_STATUS(treadle_generator_append(g, rows, 2, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_STATUS(treadle_generator_rewind(g, 0, 5, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_STATUS(treadle_generator_rewind(g, 1, 0, &err), TREADLE_INVALID_ARGUMENT, &err);
    run(g, 3);
    CHECK_EQ_UINT(treadle_generator_new_ids(g, 0).n, 3);
    treadle_generator_free(g);

    treadle_generate_options options;
    treadle_generate_options_init(&options);
    options.top_p = 1.5;
    CHECK_STATUS(treadle_generator_new(model, &options, &g, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_HAS_STR(err.message, "top_p");
    treadle_generate_options_init(&options);
    options.temperature = (double)NAN;
    CHECK_STATUS(treadle_generator_new(model, &options, &g, &err), TREADLE_INVALID_ARGUMENT, &err);
    treadle_model_close(model);
}

/* --- drawing */

static void draw(treadle_generate_options *options) {
    options->do_sample = 1;
    options->temperature = 1.3;
    options->top_p = 0.95;
    options->seed = 7;
}

static void draw_otherwise(treadle_generate_options *options) {
    draw(options);
    options->seed = 8;
}

TEST(a_seed_fixes_the_tokens_whatever_the_threads) {
    td_test_golden golden;
    td_test_read_golden("concat", &golden);
    int32_t ids[3][20];
    for (int i = 0; i < 3; i++) {
        treadle_model *model = td_test_open("concat", i == 1 ? 2 : 1);
        treadle_generator *g = start(model, i == 2 ? draw_otherwise : draw);
        append(g, golden.prompt[0], golden.n_prompt[0]);
        run(g, 20);
        memcpy(ids[i], treadle_generator_new_ids(g, 0).ids, sizeof ids[i]);
        treadle_generator_free(g);
        treadle_model_close(model);
    }
    CHECK_EQ_MEM(ids[0], ids[1], sizeof ids[0]);
    CHECK(memcmp(ids[0], ids[2], sizeof ids[0]) != 0);
}

/* --- text */

typedef struct heard {
    char text[256];
    size_t n, tokens, stop_after;
    treadle_finish finish;
    treadle_generator *cancels;
} heard;

static bool hear(void *ctx, const treadle_token *token) {
    heard *h = ctx;
    if (token->piece && h->n + token->piece_bytes < sizeof h->text) {
        memcpy(h->text + h->n, token->piece, token->piece_bytes + 1);
        h->n += token->piece_bytes;
    }
    h->tokens += token->id >= 0;
    h->finish = token->finish;
    if (h->cancels && h->tokens == h->stop_after) treadle_generator_cancel(h->cancels);
    return h->cancels || h->tokens != h->stop_after;
}

static const char *stop_text[1];

static void with_stop(treadle_generate_options *options) {
    options->stop = stop_text;
    options->n_stop = 1;
}

TEST(text_ends_before_a_stop_string_and_nothing_of_it_is_streamed) {
    td_test_golden golden;
    td_test_read_golden("gqa", &golden);
    treadle_model *model = td_test_open("gqa", 1);
    char whole[64] = {0}, stop[3] = {0};
    for (size_t i = 0; i < golden.n_new[2]; i++) whole[i] = (char)(33 + golden.fresh[2][i]);
    memcpy(stop, whole + 2, 2);
    stop_text[0] = stop;
    treadle_generator *g = start(model, with_stop);
    treadle_error err = {0};
    heard h = {0};
    append(g, golden.prompt[2], golden.n_prompt[2]);
    CHECK_OK(treadle_generator_run(g, 12, hear, &h, &err), &err);
    CHECK_EQ_INT(treadle_generator_finish(g, 0), TREADLE_FINISH_STOP);
    check_new(g, 0, golden.fresh[2], 4);
    whole[2] = 0;
    CHECK_EQ_STR(h.text, whole);
    CHECK_EQ_STR(treadle_generator_text(g, 0).p, whole);
    CHECK_EQ_UINT(h.tokens, 4);
    CHECK_EQ_INT(h.finish, TREADLE_FINISH_STOP);
    treadle_generator_free(g);
    treadle_model_close(model);
}

TEST(pieces_joined_over_two_runs_are_the_text) {
    td_test_golden golden;
    td_test_read_golden("concat", &golden);
    treadle_model *model = td_test_open("concat", 1);
    treadle_generator *g = start(model, NULL), *quiet = start(model, NULL);
    treadle_error err = {0};
    heard h = {0};
    append(g, golden.prompt[0], golden.n_prompt[0]);
    CHECK_OK(treadle_generator_run(g, 5, hear, &h, &err), &err);
    CHECK_OK(treadle_generator_run(g, 7, hear, &h, &err), &err);
    append(quiet, golden.prompt[0], golden.n_prompt[0]);
    run(quiet, 12);
    check_new(g, 0, golden.fresh[0], 12);
    CHECK_EQ_STR(h.text, treadle_generator_text(g, 0).p);
    CHECK_EQ_STR(h.text, treadle_generator_text(quiet, 0).p);
    CHECK_EQ_UINT(h.n, 12);
    treadle_generator_free(g);
    treadle_generator_free(quiet);
    treadle_model_close(model);
}

/* --- cancel */

TEST(a_cancelled_run_keeps_its_tokens_and_goes_on_as_if_nothing_had_been) {
    td_test_golden golden;
    td_test_read_golden("concat", &golden);
    treadle_model *model = td_test_open("concat", 1);
    for (int from_callback = 0; from_callback < 2; from_callback++) {
        treadle_generator *g = start(model, NULL);
        treadle_error err = {0};
        heard h = {.stop_after = 4};
        if (!from_callback) h.cancels = g;
        append(g, golden.prompt[0], golden.n_prompt[0]);
        treadle_generator_cancel(g); /* no run under way: nothing happens later */
        CHECK_OK(treadle_generator_run(g, 12, hear, &h, &err), &err);
        CHECK_EQ_INT(treadle_generator_finish(g, 0), TREADLE_FINISH_CANCELLED);
        check_new(g, 0, golden.fresh[0], 4);
        run(g, 8);
        check_new(g, 0, golden.fresh[0], 12);
        treadle_generator_free(g);
    }
    treadle_model_close(model);
}

/* --- misuse */

static bool call_back_in(void *ctx, const treadle_token *token) {
    const int32_t id = 1;
    const treadle_ids row = {&id, 1};
    treadle_error err = {0};
    (void)token;
    CHECK_STATUS(treadle_generator_append(ctx, &row, 1, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_STATUS(treadle_generator_rewind(ctx, 0, 1, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_STATUS(treadle_generator_prefill(ctx, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_STATUS(treadle_generator_run(ctx, 1, NULL, NULL, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_HAS_STR(err.message, "running");
    return true;
}

TEST(misuse_is_an_error_or_empty) {
    td_test_golden golden;
    td_test_read_golden("concat", &golden);
    treadle_model *model = td_test_open("concat", 1);
    treadle_generator *g = start(model, NULL);
    treadle_error err = {0};
    CHECK(treadle_generator_n_rows(g) == 0 && treadle_generator_ids(g, 0).n == 0); /* nothing was appended */
    CHECK(treadle_generator_new_ids(g, 3).n == 0 && !treadle_generator_text(g, 0).p);
    append(g, golden.prompt[0], golden.n_prompt[0]);
    CHECK_OK(treadle_generator_run(g, 12, call_back_in, g, &err), &err);
    check_new(g, 0, golden.fresh[0], 12);
    CHECK(treadle_generator_finish(g, 1) == TREADLE_FINISH_NONE && treadle_generator_finish(NULL, 0) == 0);
    treadle_generator_free(g);

    treadle_generate_options options;
    const char *stop = "";
    treadle_generate_options_init(&options);
    options.stop = &stop;
    options.n_stop = 1;
    CHECK_STATUS(treadle_generator_new(model, &options, &g, &err), TREADLE_INVALID_ARGUMENT, &err);
    stop = "\xff";
    CHECK_STATUS(treadle_generator_new(model, &options, &g, &err), TREADLE_INVALID_ARGUMENT, &err);
    const int32_t eos = -1;
    treadle_generate_options_init(&options);
    options.eos = &eos;
    options.n_eos = 1;
    CHECK_STATUS(treadle_generator_new(model, &options, &g, &err), TREADLE_INVALID_ARGUMENT, &err);
    treadle_generate_options_init(&options);
    options.n_eos = 5;
    CHECK_STATUS(treadle_generator_new(model, &options, &g, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_HAS_STR(err.message, "eos is NULL");
    treadle_generate_options_init(&options);
    options.n_stop = 3;
    CHECK_STATUS(treadle_generator_new(model, &options, &g, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_HAS_STR(err.message, "stop is NULL");
    treadle_generate_options_init(&options);
    options.n_decoder_start = 2;
    CHECK_STATUS(treadle_generator_new(model, &options, &g, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_HAS_STR(err.message, "decoder_start is NULL");
    treadle_generate_options_init(&options);
    options.do_sample = 7;
    CHECK_STATUS(treadle_generator_new(model, &options, &g, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_HAS_STR(err.message, "found 7");
    g = start(model, NULL);
    CHECK_STATUS(treadle_generator_rewind(g, 0, 0, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_HAS_STR(err.message, "an append before");
    treadle_generator_free(g);
    treadle_model_close(model);

    treadle_model_options open_options;
    treadle_model_options_init(&open_options);
    open_options.activations = (treadle_activations)7;
    CHECK_STATUS(treadle_model_open("nowhere", &open_options, &model, &err), TREADLE_INVALID_ARGUMENT, &err);
}

/* Two rows need two images; the refusal says so, and the next append decides anew how many rows there are. */
TEST(a_refused_first_append_leaves_no_rows) {
    static const float pixels[16 * 12];
    static const int64_t sizes[3] = {1, 4, 4};
    static const int32_t ids[] = {1, 14, 8, 5, 5, 5, 5, 9, 21, 30};
    treadle_tensor patches = {.dtype = TREADLE_DTYPE_FLOAT, .rank = 2, .dims = {16, 12}, .data = pixels};
    treadle_tensor grid = {.dtype = TREADLE_DTYPE_INT64, .rank = 2, .dims = {1, 3}, .data = sizes};
    treadle_ids rows[2] = {{ids, 10}, {ids, 10}};
    treadle_model *model = NULL;
    treadle_error err = {0};
    CHECK_OK(treadle_model_open(td_test_source("examples/pipelines/2-vision-language"), NULL, &model, &err), &err);
    treadle_generator *g = start(model, NULL);
    CHECK_OK(treadle_generator_set_tensor(g, "pixel_values", &patches, &err), &err);
    CHECK_OK(treadle_generator_set_tensor(g, "image_grid_thw", &grid, &err), &err);
    CHECK_STATUS(treadle_generator_append(g, rows, 2, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_HAS_STR(err.message, "expected 2 images");
    CHECK_EQ_UINT(treadle_generator_n_rows(g), 0);
    CHECK(!treadle_generator_text(g, 0).p);
    CHECK_STATUS(treadle_generator_rewind(g, 1, 0, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_OK(treadle_generator_append(g, rows, 1, &err), &err); /* the tensors are still there */
    run(g, 2);
    CHECK_EQ_UINT(treadle_generator_new_ids(g, 0).n, 2);
    treadle_generator_free(g);
    treadle_model_close(model);
}

/* --- beams */

static void beams_that_end(treadle_generate_options *options) {
    static const int32_t all[40] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19,
                                    20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39};
    options->num_beams = 2;
    options->eos = all;
    options->n_eos = 40;
}

/* As rows of the token loop: in the generator, in a fork, beside a row that was cut to nothing. */
TEST(rows_that_beams_have_ended_stay_ended) {
    static const int32_t ids[] = {1, 2, 3};
    treadle_model *model = td_test_open("concat", 1);
    treadle_generator *g = start(model, beams_that_end), *fork = NULL;
    treadle_ids rows[2] = {{ids, 3}, {ids, 2}}, more[2] = {{NULL, 0}, {ids, 1}};
    treadle_error err = {0};
    heard h = {0};
    CHECK_OK(treadle_generator_append(g, rows, 2, &err), &err);
    run(g, 5);
    CHECK_EQ_UINT(treadle_generator_new_ids(g, 0).n, 1);
    CHECK_EQ_INT(treadle_generator_finish(g, 0), TREADLE_FINISH_EOS);
    CHECK_OK(treadle_generator_fork(g, &fork, &err), &err);
    CHECK_OK(treadle_generator_run(fork, 5, hear, &h, &err), &err);
    CHECK_OK(treadle_generator_run(g, 5, hear, &h, &err), &err);
    CHECK_EQ_UINT(h.tokens, 0);
    CHECK_EQ_UINT(treadle_generator_ids(fork, 0).n, 4);
    CHECK_EQ_UINT(treadle_generator_new_ids(g, 0).n, 1);
    CHECK_EQ_UINT(treadle_generator_n_sequences(g, 0), 1);
    CHECK_OK(treadle_generator_append(g, more, 2, &err), &err); /* row 1 goes on, row 0 does not */
    CHECK_OK(treadle_generator_run(g, 5, hear, &h, &err), &err);
    CHECK_EQ_UINT(h.tokens, 1);
    CHECK_EQ_UINT(treadle_generator_new_ids(g, 0).n, 1);
    CHECK_OK(treadle_generator_rewind(g, 1, 0, &err), &err); /* nothing to search from */
    run(g, 5);
    CHECK_EQ_INT(treadle_generator_finish(g, 1), TREADLE_FINISH_LENGTH);
    CHECK_OK(treadle_generator_rewind(g, 0, 0, &err), &err);
    CHECK_STATUS(treadle_generator_run(g, 5, NULL, NULL, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_HAS_STR(err.message, "no row has a token");
    treadle_generator_free(fork);
    treadle_generator_free(g);
    treadle_model_close(model);
}

typedef struct shared_model {
    treadle_model *model;
    td_test_golden golden;
} shared_model;

static void *generate_often(void *arg) {
    const shared_model *shared = arg;
    const td_test_golden *golden = &shared->golden;
    size_t wrong = 0;
    for (int i = 0; i < 20; i++) {
        treadle_generator *g = NULL;
        size_t p = (size_t)i % TD_TEST_PROMPTS;
        treadle_ids row = {golden->prompt[p], golden->n_prompt[p]};
        if (treadle_generator_new(shared->model, NULL, &g, NULL) != TREADLE_OK) return (void *)1;
        if (treadle_generator_append(g, &row, 1, NULL) != TREADLE_OK) wrong++;
        if (treadle_generator_run(g, 12, NULL, NULL, NULL) != TREADLE_OK) wrong++;
        treadle_ids got = treadle_generator_new_ids(g, 0);
        wrong += got.n != golden->n_new[p] || memcmp(got.ids, golden->fresh[p], got.n * sizeof *got.ids) != 0;
        treadle_generator_free(g);
    }
    return (void *)wrong;
}

TEST(threads_share_a_model) {
    shared_model shared = {.model = td_test_open("concat", 2)};
    td_test_read_golden("concat", &shared.golden);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) REQUIRE(pthread_create(&threads[i], NULL, generate_often, &shared) == 0);
    for (int i = 0; i < 3; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        CHECK(wrong == NULL);
    }
    treadle_model_close(shared.model);
}
