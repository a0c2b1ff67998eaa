/* Processors on small vectors whose results can be worked out by hand, ties, and vectors without any choice. The
 * goldens of transformers are run through the command (processors fixture). */
#include <math.h>
#include <string.h>

#include "sample/sample.h"
#include "support/test.h"

static td_sample_params plain(void) {
    return (td_sample_params){.do_sample = true, .temperature = 1, .top_p = 1, .repetition_penalty = 1};
}

static int64_t kept(const td_sample_params *params, const float *logits, size_t vocab, const int32_t *sequence,
                    size_t n, float *out) {
    td_sampler sampler;
    treadle_error err = {0};
    int64_t count = -1;
    CHECK_OK(td_sampler_init(&sampler, vocab, &err), &err);
    treadle_status status = td_sampler_distribution(
        &sampler, params, logits, (td_sequence_so_far){.ids = sequence, .n = n, .n_prompt = n}, out, &count, &err);
    td_sampler_free(&sampler);
    return status == TREADLE_OK ? count : -1;
}

TEST(ties_with_the_kth_stay) {
    const float logits[] = {1, 3, 2, 2, 2, 0};
    float p[6];
    td_sample_params params = plain();
    params.top_k = 2;
    CHECK_EQ_INT(kept(&params, logits, 6, NULL, 0, p), 4);
    CHECK(p[0] == 0 && p[5] == 0 && p[2] == p[3] && p[3] == p[4]);
}

TEST(small_temperatures_are_greedy) {
    const float logits[] = {1, 30, -INFINITY, 30, 29};
    float p[5];
    td_sample_params params = plain();
    for (double t = 1e-4; t > 1e-320; t *= 1e-3) {
        params.temperature = t;
        CHECK_EQ_INT(kept(&params, logits, 5, NULL, 0, p), 2);
        CHECK(p[1] == 0.5f && p[3] == 0.5f);
    }
    const float infinite[] = {1, INFINITY};
    CHECK_EQ_INT(kept(&params, infinite, 2, NULL, 0, p), -1);
}

TEST(ranges) {
    treadle_error err;
    td_sample_params params = plain();
    CHECK_OK(td_sample_params_check(&params, &err), &err);
    params.repetition_penalty = 1e38;
    CHECK_STATUS(td_sample_params_check(&params, &err), TREADLE_INVALID_ARGUMENT, &err);
    CHECK_EQ_STR(err.message, "expected a repetition_penalty above 0 (1e-30 to 1e30), found 1e+38");
}

TEST(top_p_keeps_the_token_that_crosses) {
    float logits[4], p[4];
    const double probabilities[] = {0.5, 0.3, 0.15, 0.05};
    for (int i = 0; i < 4; i++) logits[i] = (float)log(probabilities[i]);
    td_sample_params params = plain();
    params.top_p = 0.6;
    CHECK_EQ_INT(kept(&params, logits, 4, NULL, 0, p), 2);
    CHECK_NEAR(p[0], 0.625, 1e-6);
    params.top_p = 0.0;
    CHECK_EQ_INT(kept(&params, logits, 4, NULL, 0, p), 1);
    params.top_p = 0.96;
    CHECK_EQ_INT(kept(&params, logits, 4, NULL, 0, p), 4);
    params.top_k = 3;
    params.top_p = 0.9;
    CHECK_EQ_INT(kept(&params, logits, 4, NULL, 0, p), 3);
    params = plain();
    params.min_p = 0.31;
    CHECK_EQ_INT(kept(&params, logits, 4, NULL, 0, p), 2);
}

/* The prefilter of top_p against sorting everything. */
TEST(top_p_over_many_random_vectors_equals_a_full_sort) {
    enum { N = 300 };
    uint64_t state = 5;
    for (int round = 0; round < 50; round++) {
        float logits[N], p[N];
        double sorted[N], sum = 0, above = 0;
        for (int i = 0; i < N; i++) logits[i] = td_test_random_f32(&state, -6, 6);
        for (int i = 0; i < N; i++) sum += sorted[i] = exp(logits[i]);
        for (int i = 1; i < N; i++)
            for (int k = i; k > 0 && sorted[k] > sorted[k - 1]; k--) {
                double t = sorted[k];
                sorted[k] = sorted[k - 1];
                sorted[k - 1] = t;
            }
        td_sample_params params = plain();
        params.top_p = 0.3 + 0.01 * round;
        int64_t want = 0;
        while (want < N && (want == 0 || above < params.top_p)) above += sorted[want++] / sum;
        CHECK_EQ_INT(kept(&params, logits, N, NULL, 0, p), want);
    }
}

TEST(repetition_and_ngrams_see_the_whole_sequence) {
    const float logits[] = {2, -2, 1, 0};
    const int32_t sequence[] = {0, 1, 0, 1, 2, 0, 1};
    float p[4];
    td_sampler sampler;
    td_sample_params params = plain();
    params.repetition_penalty = 2;
    CHECK_EQ_INT(kept(&params, logits, 4, sequence, 7, p), 4);
    CHECK_NEAR(p[0] / p[3], exp(1), 1e-5);  /* 2 / 2 */
    CHECK_NEAR(p[1] / p[3], exp(-4), 1e-5); /* -2 * 2 */
    CHECK_NEAR(p[2] / p[3], exp(0.5), 1e-5);
    params = plain();
    params.no_repeat_ngram_size = 3;
    CHECK_EQ_INT(kept(&params, logits, 4, sequence, 7, p), 2); /* 0 1 0 and 0 1 2 were there */
    CHECK(p[0] == 0 && p[2] == 0);
    params.no_repeat_ngram_size = 1;
    CHECK_EQ_INT(kept(&params, logits, 4, sequence, 7, p), 1);
    CHECK_EQ_INT(kept(&params, logits, 4, NULL, 0, p), 4); /* nothing before: nothing repeats */
    params.no_repeat_ngram_size = 9;
    CHECK_EQ_INT(kept(&params, logits, 4, sequence, 7, p), 4);
    int32_t id = -1;
    treadle_error err = {0};
    CHECK_OK(td_sampler_init(&sampler, 4, &err), &err);
    params = plain();
    params.do_sample = false;
    params.no_repeat_ngram_size = 1;
    CHECK_OK(td_sampler_choose(&sampler, &params, logits, (td_sequence_so_far){.ids = sequence, .n = 7, .n_prompt = 7},
                               NULL, &id, &err),
             &err);
    CHECK_EQ_INT(id, 3);
    td_sampler_free(&sampler);
}

TEST(nothing_to_choose_is_an_error) {
    const float none[] = {-INFINITY, NAN, -INFINITY}, nan_first[] = {NAN, 1, 3};
    float p[3];
    td_sample_params params = plain();
    CHECK_EQ_INT(kept(&params, none, 3, NULL, 0, p), -1);
    CHECK_EQ_INT(td_argmax(none, 3), -1);
    CHECK_EQ_INT(td_argmax(nan_first, 3), 2);
    CHECK_EQ_INT(kept(&params, nan_first, 3, NULL, 0, p), 2);
}

TEST(argmax_is_the_first_of_equals_at_any_length) {
    float values[70];
    for (size_t n = 1; n <= 70; n++)
        for (size_t at = 0; at < n; at++) {
            for (size_t i = 0; i < n; i++) values[i] = i >= at && (i - at) % 3 == 0 ? 5.0f : -1.0f;
            if (!CHECK_EQ_INT(td_argmax(values, n), (int64_t)at)) return;
        }
}

TEST(draws_follow_the_distribution) {
    enum { DRAWS = 20000 };
    float logits[3];
    const double want[] = {0.2, 0.5, 0.3};
    int counts[3] = {0};
    td_sampler sampler;
    td_rng rng;
    treadle_error err = {0};
    for (int i = 0; i < 3; i++) logits[i] = (float)log(want[i]);
    CHECK_OK(td_sampler_init(&sampler, 3, &err), &err);
    td_rng_seed(&rng, 1, 0);
    td_sample_params params = plain();
    for (int i = 0; i < DRAWS; i++) {
        int32_t id = 0;
        CHECK_OK(td_sampler_choose(&sampler, &params, logits, (td_sequence_so_far){0}, &rng, &id, &err), &err);
        counts[id]++;
    }
    for (int i = 0; i < 3; i++) CHECK_NEAR((double)counts[i] / DRAWS, want[i], 0.015);
    td_sampler_free(&sampler);
}
