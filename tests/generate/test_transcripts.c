/* Segments and token times against another computation of them (make_transcript_goldens.py). */
#include "support/test.h"

#include "base/alloc.h"
#include "base/json.h"
#include "generate/segments.h"

#include <stdlib.h>

static td_json *goldens(td_arena *arena) {
    size_t n;
    treadle_error err = {0};
    td_json *root;
    char *text = td_test_read(td_test_source("tests/generate/data/transcripts.json"), &n);
    td_str copy = td_arena_str(arena, (td_str){text, n});
    free(text);
    CHECK_OK(td_json_parse(copy, NULL, arena, &root, &err), &err);
    return root;
}

static double number(const td_json *array, size_t index) { return td_json_at(array, index)->as_double; }

TEST(segments) {
    td_arena arena = {0};
    td_json *root = goldens(&arena);
    td_time_tokens times = {(int32_t)td_json_int_or(root, "begin", 0), td_json_double_or(root, "step", 0), 0};
    size_t number_of_case = 0;
    for (const td_json *c = td_json_get(root, "cut")->first; c; c = c->next, number_of_case++) {
        const td_json *given = td_json_get(c, "ids"), *want = td_json_get(c, "segments");
        int32_t ids[32];
        td_segment segments[33];
        double next_s = -1, frame_s = times.step_s / 2;
        for (size_t i = 0; i < given->n; i++) ids[i] = (int32_t)td_json_at(given, i)->as_int;
        times.clip_s = (double)td_json_int_or(c, "frames", 0) * frame_s;
        size_t n = td_segments_cut(&times, ids, given->n, segments, &next_s);
        bool good = CHECK_EQ_INT(n, want->n);
        good = CHECK_NEAR(next_s, (double)td_json_int_or(c, "move", 0) * frame_s, 1e-9) && good;
        for (size_t i = 0; good && i < n; i++) {
            const td_json *w = td_json_at(want, i);
            /* A window's end is not rounded to a step here. */
            good = CHECK_NEAR(segments[i].start_s, number(w, 0), 1e-9) &&
                   CHECK_NEAR(segments[i].end_s, number(w, 1), frame_s + 1e-9) &&
                   CHECK_EQ_INT(segments[i].first, number(w, 2)) && CHECK_EQ_INT(segments[i].n, number(w, 3));
        }
        if (!good) FAIL("case %zu", number_of_case);
    }
    CHECK(number_of_case > 50);
    td_arena_free(&arena);
}

TEST(token_times) {
    td_arena arena = {0};
    td_json *root = goldens(&arena);
    size_t number_of_case = 0;
    for (const td_json *c = td_json_get(root, "align")->first; c; c = c->next, number_of_case++) {
        size_t n_heads = (size_t)td_json_int_or(c, "heads", 0), n = (size_t)td_json_int_or(c, "tokens", 0);
        size_t n_frames = (size_t)td_json_int_or(c, "frames", 0), at = 0;
        const td_json *first = td_json_get(c, "first");
        float *weights = malloc(n_heads * n * n_frames * sizeof *weights);
        int64_t *frames = malloc(n * sizeof *frames);
        treadle_error err = {0};
        for (const td_json *w = td_json_get(c, "weights")->first; w; w = w->next)
            weights[at++] = (float)w->as_int / 1024.0f;
        CHECK_EQ_UINT(at, n_heads * n * n_frames);
        CHECK_OK(td_align_tokens(weights, n_heads, n, n_frames, frames, &err), &err);
        for (size_t i = 0; i < n; i++)
            if (!CHECK_EQ_INT(frames[i], number(first, i))) FAIL("case %zu, token %zu", number_of_case, i);
        free(weights);
        free(frames);
    }
    CHECK(number_of_case >= 8);
    treadle_error err = {0};
    CHECK_STATUS(td_align_tokens(NULL, 0, 1, 1, NULL, &err), TREADLE_INVALID_ARGUMENT, &err);
    td_arena_free(&arena);
}
