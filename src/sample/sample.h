/* sample/sample.h - from logits to a token: processors and the draw.
 *
 * The processors work in the order of TD_PROCESSOR_LIST, each as transformers defines it. Nothing is allocated while
 * choosing: the scratch belongs to the sampler, which serves any number of rows in turn. One thread at a time. */
#ifndef TD_SAMPLE_SAMPLE_H
#define TD_SAMPLE_SAMPLE_H

#include "base/error.h"
#include "base/rng.h"

typedef struct td_sample_params {
    bool do_sample;
    double temperature;                       /* 0: greedy */
    int64_t top_k;                            /* 0: off, 1: greedy */
    double top_p, min_p;                      /* 1, 0: off */
    double repetition_penalty;                /* 1: off */
    int64_t no_repeat_ngram_size, min_length; /* 0: off */
    const int32_t *eos;                       /* borrowed */
    size_t n_eos;
} td_sample_params;

typedef struct td_candidate {
    float score;
    int32_t id;
} td_candidate;

typedef struct td_sampler {
    size_t vocab;
    float *scores;            /* [vocab] */
    td_candidate *candidates; /* [vocab] */
    uint32_t *seen;           /* [vocab]: stamp of the last call that met the token */
    uint32_t stamp;
} td_sampler;

treadle_status td_sampler_init(td_sampler *sampler, size_t vocab, treadle_error *err);
void td_sampler_free(td_sampler *sampler); /* zeroed is fine */

/* INVALID_ARGUMENT names the value that is out of its range. */
treadle_status td_sample_params_check(const td_sample_params *params, treadle_error *err);

/* Index of the largest value, the first of equals; NaN never wins. -1: there is none above -inf. */
int64_t td_argmax(const float *values, size_t n);

/* The next token after sequence[n], from logits[vocab]. TREADLE_RUN: no token has a probability. rng is used only when drawing. */
treadle_status td_sampler_choose(td_sampler *sampler, const td_sample_params *params, const float *logits,
                                 const int32_t *sequence, size_t n, td_rng *rng, int32_t *out, treadle_error *err);

/* The distribution that would be drawn from, whether or not params ask to draw. *out_kept: how many are not zero. */
treadle_status td_sampler_distribution(td_sampler *sampler, const td_sample_params *params, const float *logits,
                                       const int32_t *sequence, size_t n, float *probabilities, int64_t *out_kept,
                                       treadle_error *err);

#endif
