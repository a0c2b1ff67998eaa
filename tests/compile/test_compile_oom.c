/* Each allocation of a build fails in turn, alone and with all that follow: the answer is TREADLE_OUT_OF_MEMORY,
 * nothing is leaked (the sanitizers look) and nothing is left on disk. The same for reading the model that comes out.
 * timeout: 300 */
#include "support/allocations.h"
#include "support/test.h"

#include "base/alloc.h"
#include "base/file.h"
#include "compile/compile.h"
#include "onnx/model.h"

#include <stdio.h>

static const char *source, *out_dir;

static void ignore_note(void *ctx, const char *text) { (void)ctx, (void)text; }

static treadle_status build(treadle_error *err) {
    const td_compile_options options = {.source = source, .out_dir = out_dir, .note = ignore_note};
    return td_compile(&options, err);
}

static treadle_status read_back(treadle_error *err) {
    td_arena arena = {0};
    td_onnx_model *model;
    char *path = td_path_join(&arena, out_dir, "model.onnx");
    treadle_status status = path ? td_onnx_open(path, NULL, &model, err) : td_fail_memory(err, "a path", 0);
    if (status == TREADLE_OK) {
        td_buf bytes = {0};
        status = td_onnx_write(model, &bytes, err);
        td_buf_free(&bytes);
        td_onnx_close(model);
    }
    td_arena_free(&arena);
    return status;
}

static void sweep(treadle_status (*work)(treadle_error *), bool leaves_folder) {
    for (int all = 0; all < 2; all++) {
        td_test_fail_after = all != 0;
        for (int n = 1;; n++) {
            treadle_error err = {0};
            td_test_allocations = 0;
            td_test_fail_at = n;
            treadle_status status = work(&err);
            bool reached = td_test_allocations >= n;
            td_test_fail_at = INT_MAX;
            if (status == TREADLE_OK && !reached) {
                CHECK(n > (leaves_folder ? 3 : 50)); /* the hook is in place */
                break;
            }
            if (status != TREADLE_OK && status != TREADLE_OUT_OF_MEMORY)
                FAIL("allocation %d: status %d, %s", n, status, err.message);
            if (status == TREADLE_OUT_OF_MEMORY && !leaves_folder) CHECK(!td_path_exists(out_dir));
            if (status == TREADLE_OK && !leaves_folder) CHECK_OK(td_remove_tree(out_dir, &err), &err);
            if (n > 20000) FAIL("no end after %d allocations", n);
            if (n > 20000) return;
        }
        treadle_error err = {0};
        if (!leaves_folder) CHECK_OK(td_remove_tree(out_dir, &err), &err);
    }
}

static void build_sweep(const char *seed) {
    treadle_error err = {0};
    source = td_test_source(seed);
    out_dir = td_test_temp("out");
    CHECK_OK(td_remove_tree(out_dir, &err), &err);
    sweep(build, false);
    CHECK_OK(build(&err), &err);
    sweep(read_back, true);
}

TEST(byte_level_vocabulary) { build_sweep("tests/fuzz/seeds/gguf/llama_bpe"); }

TEST(scored_vocabulary) { build_sweep("tests/fuzz/seeds/gguf/llama_spm"); }

static bool stop(void *ctx, uint64_t done, uint64_t total, const char *what) {
    (void)what;
    CHECK(done <= total);
    return ++*(int *)ctx < 3;
}

TEST(progress_can_cancel) {
    int count = 0;
    treadle_error err = {0};
    out_dir = td_test_temp("cancelled");
    const td_compile_options options = {.source = td_test_source("tests/fuzz/seeds/gguf/llama_bpe"),
                                        .out_dir = out_dir,
                                        .progress = stop,
                                        .note = ignore_note,
                                        .ctx = &count};
    CHECK_STATUS(td_compile(&options, &err), TREADLE_CANCELLED, &err);
    CHECK_EQ_INT(count, 3);
    CHECK(!td_path_exists(out_dir));
}

/* The fuzz target's seed taken apart: the length of config.json in two bytes, config.json, model.safetensors. */
static void make_folder(const char *seed, const char *folder) {
    treadle_error err = {0};
    td_arena arena = {0};
    char *bytes;
    size_t n;
    CHECK_OK(td_file_read(td_test_source(seed), 0, &bytes, &n, &err), &err);
    REQUIRE(n > 2);
    size_t config = (size_t)((uint8_t)bytes[0] | (uint8_t)bytes[1] << 8);
    REQUIRE(config < n - 2);
    CHECK_OK(td_make_dirs(folder, &err), &err);
    const struct {
        const char *name;
        td_str text;
    } files[] = {{"config.json", {bytes + 2, config}},
                 {"model.safetensors", {bytes + 2 + config, n - 2 - config}},
                 {"tokenizer.json", TD_STR("{\"added_tokens\":[{\"id\":1,\"content\":\"<|en|>\"}]}")},
                 {"generation_config.json", TD_STR("{\"max_length\":4}")}};
    for (size_t i = 0; i < TD_COUNT(files); i++) {
        char *path = td_path_join(&arena, folder, files[i].name);
        CHECK_OK(td_file_write(path, files[i].text.p, files[i].text.n, &err), &err);
    }
    td_arena_free(&arena);
    td_free(bytes);
}

static void folder_sweep(const char *seed, const char *name) {
    static char folder[512];
    treadle_error err = {0};
    snprintf(folder, sizeof folder, "%s", td_test_temp(name));
    make_folder(seed, folder);
    source = folder;
    out_dir = td_test_temp("out");
    CHECK_OK(td_remove_tree(out_dir, &err), &err);
    sweep(build, false);
}

TEST(speech_folder) { folder_sweep("tests/fuzz/seeds/safetensors/whisper", "whisper"); }

TEST(decoder_folder) { folder_sweep("tests/fuzz/seeds/safetensors/llama", "llama"); }
