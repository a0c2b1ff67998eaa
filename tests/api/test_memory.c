/* Memory: no allocation per token, and every allocation failing in turn over open, generate and close. */
#include <stdio.h>

#include "support/allocations.h"
#include "support/pipelines.h"
#include "support/test.h"

static int counts[40];
static int n_counts;

static bool count(void *ctx, const treadle_token *token) {
    (void)ctx;
    if (token->row == 0 && n_counts < 40) counts[n_counts++] = td_test_allocations;
    return true;
}

/* Graphs whose tensors grow only in the caches. Elsewhere the engine's memory grows with them, now and then. */
static const char *const in_place[] = {"concat", "nomask", "gqa", "last", NULL};

TEST(steps_allocate_nothing) {
    for (int f = 0; in_place[f]; f++) {
        for (size_t n_rows = 1; n_rows <= 3; n_rows++) {
            td_test_golden golden;
            td_test_read_golden(in_place[f], &golden);
            treadle_model *model = td_test_open(in_place[f], 1);
            treadle_generate_options options;
            treadle_generator *g = NULL;
            treadle_error err = {0};
            treadle_ids rows[3];
            treadle_generate_options_init(&options);
            options.do_sample = 1;
            options.top_p = 0.9;
            options.repetition_penalty = 1.1;
            options.seed = 3;
            CHECK_OK(treadle_generator_new(model, &options, &g, &err), &err);
            for (size_t i = 0; i < n_rows; i++) rows[i] = (treadle_ids){golden.prompt[i], golden.n_prompt[i]};
            CHECK_OK(treadle_generator_append(g, rows, n_rows, &err), &err);
            n_counts = 0;
            CHECK_OK(treadle_generator_run(g, 30, count, NULL, &err), &err);
            CHECK_EQ_INT(n_counts, 30);
            /* the first steps may still size buffers: text, logits, the engine's memory for this shape */
            for (int i = 8; i + 1 < n_counts; i++)
                if (!CHECK_EQ_INT(counts[i + 1] - counts[i], 0)) {
                    FAIL("%s, %zu rows, step %d", in_place[f], n_rows, i);
                    break;
                }
            treadle_generator_free(g);
            treadle_model_close(model);
        }
    }
}

/* --- several sessions: images, a source beside the tokens */

enum { N_MEDIA = 2 };
static const char *const media[N_MEDIA] = {"2-vision-language", "3-encoder-decoder"};

static const char *media_folder(int f) {
    char path[256];
    snprintf(path, sizeof path, "examples/pipelines/%s", media[f]);
    return td_test_source(path);
}

/* What the prompts below need: an image of 4 features; a source of 12 frames for each row. */
static treadle_status give_media(treadle_generator *g, int f, size_t n_rows, treadle_error *err) {
    static float data[3 * 8 * 12];
    static const int64_t grid[1][3] = {{1, 4, 4}};
    int64_t rows = (int64_t)n_rows;
    for (size_t i = 0; i < sizeof data / sizeof *data; i++) data[i] = (float)((i * 37 + 3) % 19) / 10 - 0.9f;
    treadle_tensor source = {.dtype = TREADLE_DTYPE_FLOAT, .rank = 3, .dims = {rows, 8, 12}, .data = data};
    treadle_tensor patches = {.dtype = TREADLE_DTYPE_FLOAT, .rank = 2, .dims = {16, 12}, .data = data};
    treadle_tensor grids = {.dtype = TREADLE_DTYPE_INT64, .rank = 2, .dims = {1, 3}, .data = (void *)grid};
    if (f == 1) return treadle_generator_set_tensor(g, "input_features", &source, err);
    treadle_status status = treadle_generator_set_tensor(g, "pixel_values", &patches, err);
    return status != TREADLE_OK ? status : treadle_generator_set_tensor(g, "image_grid_thw", &grids, err);
}

/* A token that stands for a feature of an image would be one without an image. */
static treadle_status open_media(int f, treadle_model **out, treadle_error *err) {
    static const treadle_setting never = {"/generation/suppress", "[5]"};
    treadle_model_options options;
    treadle_model_options_init(&options);
    options.settings = &never;
    options.n_settings = 1;
    options.n_threads = 1;
    return treadle_model_open(media_folder(f), &options, out, err);
}

/* The image belongs to the first row. */
static void media_rows(int f, treadle_ids rows[3]) {
    static const int32_t with_patches[] = {1, 14, 8, 5, 5, 5, 5, 9, 21, 30}, source[] = {3, 11}, text[] = {1, 21, 30};
    rows[1] = rows[2] = (treadle_ids){text, 3};
    if (f == 0) rows[0] = (treadle_ids){with_patches, 10};
    else rows[0] = rows[1] = rows[2] = (treadle_ids){source, 2};
}

TEST(steps_of_several_sessions_allocate_nothing) {
    for (int f = 0; f < N_MEDIA; f++) {
        for (size_t n_rows = 1; n_rows <= 3; n_rows++) {
            treadle_model *model = NULL;
            treadle_generator *g = NULL;
            treadle_generate_options options;
            treadle_error err = {0};
            treadle_ids rows[3];
            media_rows(f, rows);
            treadle_generate_options_init(&options);
            options.ignore_eos = true;
            CHECK_OK(open_media(f, &model, &err), &err);
            CHECK_OK(treadle_generator_new(model, &options, &g, &err), &err);
            CHECK_OK(give_media(g, f, n_rows, &err), &err);
            CHECK_OK(treadle_generator_append(g, rows, n_rows, &err), &err);
            n_counts = 0;
            CHECK_OK(treadle_generator_run(g, 30, count, NULL, &err), &err);
            CHECK_EQ_INT(n_counts, 30);
            for (int i = 8; i + 1 < n_counts; i++)
                if (!CHECK_EQ_INT(counts[i + 1] - counts[i], 0)) {
                    FAIL("%s, %zu rows, step %d", media[f], n_rows, i);
                    break;
                }
            treadle_generator_free(g);
            treadle_model_close(model);
        }
    }
}

/* false: something failed for memory. */
static bool media_life(int f) {
    treadle_model *model = NULL;
    treadle_generator *g = NULL;
    treadle_ids rows[3];
    treadle_generate_options options;
    treadle_error err = {0};
    treadle_status status;
    media_rows(f, rows);
    treadle_generate_options_init(&options);
    options.ignore_eos = true;
    if (f == 1) options.num_beams = 2;
    status = open_media(f, &model, &err);
    if (status == TREADLE_OK) status = treadle_generator_new(model, &options, &g, &err);
    if (status == TREADLE_OK) status = give_media(g, f, 2, &err);
    if (status == TREADLE_OK) status = treadle_generator_append(g, rows, 2, &err);
    if (status == TREADLE_OK) status = treadle_generator_run(g, 3, NULL, NULL, &err);
    if (status != TREADLE_OK && status != TREADLE_OUT_OF_MEMORY) FAIL("status %d: %s", (int)status, err.message);
    treadle_generator_free(g);
    treadle_model_close(model);
    return status == TREADLE_OK;
}

TEST(every_allocation_of_several_sessions_may_fail) {
    for (int f = 0; f < N_MEDIA; f++) {
        int n = 1;
        for (;; n += n > 400 ? 7 : 1) {
            td_test_allocations = 0;
            td_test_fail_at = n;
            bool done = media_life(f);
            int made = td_test_allocations;
            td_test_fail_at = INT_MAX;
            if ((done && made < n) || !CHECK(n < 100000)) break;
        }
        CHECK(n > 100);
    }
}

/* --- after a failure */

/* Again while memory is short. */
#define INSIST(call)                                                                                                   \
    do {                                                                                                               \
        treadle_error why = {0};                                                                                       \
        treadle_status result;                                                                                         \
        while ((result = (call)) == TREADLE_OUT_OF_MEMORY) {}                                                          \
        CHECK_OK(result, &why);                                                                                        \
    } while (0)

/* A prompt in three chunks, its logits kept, then single tokens, a fork and a text. */
static void insist(treadle_model *model, const td_test_golden *golden) {
    treadle_generate_options options;
    treadle_generator *g = NULL, *fork = NULL;
    treadle_ids row = {golden->prompt[2], golden->n_prompt[2]};
    treadle_generate_options_init(&options);
    options.prompt_logits = true;
    INSIST(treadle_generator_new(model, &options, &g, &why));
    INSIST(treadle_generator_append(g, &row, 1, &why));
    for (int i = 0; i < 3; i++) INSIST(treadle_generator_run(g, 1, NULL, NULL, &why));
    INSIST(treadle_generator_fork(g, &fork, &why));
    for (int i = 0; i < 2; i++) INSIST(treadle_generator_run(fork, 1, NULL, NULL, &why));
    treadle_generator_text(fork, 0);
    treadle_ids ids = treadle_generator_ids(fork, 0);
    if (CHECK_EQ_UINT(ids.n, row.n + 5)) CHECK_EQ_MEM(ids.ids + row.n, golden->fresh[2], 5 * sizeof *ids.ids);
    treadle_generator_free(fork);
    treadle_generator_free(g);
}

TEST(what_failed_for_memory_may_be_asked_again) {
    static const treadle_setting chunks = {"/generation/prefill_chunk", "3"};
    static const char *const folders[] = {"concat", "gqa", "nomask"};
    for (int f = 0; f < 3; f++) {
        td_test_golden golden;
        treadle_model_options options;
        treadle_model *model = NULL;
        treadle_error err = {0};
        int n = 1, made;
        td_test_read_golden(folders[f], &golden);
        treadle_model_options_init(&options);
        options.settings = &chunks;
        options.n_settings = options.n_threads = 1;
        CHECK_OK(treadle_model_open(td_test_folder(folders[f]), &options, &model, &err), &err);
        do {
            td_test_allocations = 0;
            td_test_fail_at = n;
            insist(model, &golden);
            made = td_test_allocations;
            td_test_fail_at = INT_MAX;
        } while (made >= n++ && CHECK(n < 10000));
        CHECK(n > 50);
        treadle_model_close(model);
    }
}

/* --- one session */

/* false: something failed for memory. */
static bool whole_life(const char *folder) {
    treadle_model *model = NULL;
    treadle_generator *g = NULL;
    treadle_report *report = NULL;
    char *text = NULL;
    const char *stops[] = {"zzz"};
    int32_t ids[] = {1, 7, 20, 13};
    treadle_ids rows[2] = {{ids, 4}, {ids, 2}};
    treadle_generate_options options;
    treadle_generate_options_init(&options);
    options.stop = stops;
    options.n_stop = 1;
    options.keep_logits = options.prompt_logits = true;
    treadle_error err = {0};
    treadle_status status;
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        status = (call);                                                                                               \
        if (status != TREADLE_OK) goto cleanup;                                                                        \
    } while (0)
    TRY(treadle_model_check(folder, NULL, &report, &err));
    TRY(treadle_report_json(report, &text, &err));
    treadle_free(text);
    text = NULL;
    TRY(treadle_model_explain(folder, NULL, true, &text, &err));
    treadle_free(text);
    text = NULL;
    TRY(treadle_model_open(folder, NULL, &model, &err));
    TRY(treadle_generator_new(model, &options, &g, &err));
    TRY(treadle_generator_append(g, rows, 2, &err));
    TRY(treadle_generator_run(g, 3, NULL, NULL, &err));
    TRY(treadle_generator_append(g, rows, 2, &err));
    TRY(treadle_generator_run(g, 2, NULL, NULL, &err));
#undef TRY
cleanup:
    if (status != TREADLE_OK && status != TREADLE_OUT_OF_MEMORY) FAIL("status %d: %s", (int)status, err.message);
    treadle_free(text);
    treadle_report_free(report);
    treadle_generator_free(g);
    treadle_model_close(model);
    return status == TREADLE_OK;
}

TEST(every_allocation_may_fail) {
    const char *folder = td_test_folder("gqa");
    int n = 1, step = 1;
    for (;; n += step) {
        td_test_allocations = 0;
        td_test_fail_at = n;
        bool done = whole_life(folder);
        int made = td_test_allocations;
        td_test_fail_at = INT_MAX;
        if (done && made < n) break;
        if (n > 4000) step = 7; /* the tail repeats */
        if (n > 100000) {
            FAIL("no end");
            break;
        }
    }
    CHECK(n > 100);
}
