/* sample/sample.h - from logits to a token: processors and the draw.
 *
 * The processors work in this order, each as transformers defines it: repetition penalty, no-repeat n-gram, min_length,
 * temperature, top_k, top_p, min_p. Nothing is allocated while choosing: the scratch belongs to the sampler, which
 * serves any number of rows in turn. One thread at a time. */
#ifndef TD_SAMPLE_SAMPLE_H
#define TD_SAMPLE_SAMPLE_H

#include "base/error.h"
#include "base/rng.h"

typedef struct td_sample_params {
    bool do_sample;
    double temperature;                        /* 0: greedy */
    int64_t top_k;                             /* 0: off, 1: greedy */
    double top_p, min_p;                       /* 1, 0: off */
    double repetition_penalty;                 /* 1: off */
    int64_t no_repeat_ngram_size, min_length;  /* 0: off */
    int64_t source_ngram_size, min_new_tokens; /* 0: off. No n-gram of the encoder's ids; no end before so many */
    const int32_t *eos;                        /* borrowed, as the other lists */
    size_t n_eos;
    const int32_t *suppress, *begin_suppress; /* never chosen; not chosen as the first new token */
    size_t n_suppress, n_begin_suppress;
    const int32_t *bad_words;       /* never complete: the ids of each, then -1 */
    size_t n_bad_words;             /* numbers in it */
    bool forces_first, forces_last; /* the first new token, and the one that fills a sequence's limit, are given */
    int32_t forced_first, forced_last;
    const struct td_timestamp_rules *timestamps; /* NULL: none */
} td_sample_params;

/* How a transcript's timestamps may stand (timestamps.c). Ids from `begin` on are times. */
typedef struct td_timestamp_rules {
    int32_t begin, no_timestamps, eos; /* -1: none */
    int64_t max_initial;               /* steps after begin that the first time may be at most; -1: no limit */
} td_timestamp_rules;

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

/* What has been chosen so far. */
typedef struct td_sequence_so_far {
    const int32_t *ids; /* prompt and new tokens */
    size_t n, n_prompt;
    size_t limit;          /* tokens that it ends at; 0: not known, as of a run that goes on later */
    const int32_t *source; /* [n_source]: what the encoder got, for source_ngram_size */
    size_t n_source;
} td_sequence_so_far;

/* The next token after a sequence, from logits[vocab]. TREADLE_RUN: no token has a probability.
 * rng is used only when drawing. */
treadle_status td_sampler_choose(td_sampler *sampler, const td_sample_params *params, const float *logits,
                                 td_sequence_so_far sequence, td_rng *rng, int32_t *out, treadle_error *err);

/* The distribution that would be drawn from, whether or not params ask to draw. *out_kept: how many are not zero. */
treadle_status td_sampler_distribution(td_sampler *sampler, const td_sample_params *params, const float *logits,
                                       td_sequence_so_far sequence, float *probabilities, int64_t *out_kept,
                                       treadle_error *err);

/* The processors that also bind greedy choice, over the log probabilities of logits: scores[vocab] for beam search. */
void td_sampler_log_scores(td_sampler *sampler, const td_sample_params *params, const float *logits,
                           td_sequence_so_far sequence, float *scores);

/* timestamps.c: forbids what the rules forbid, in scores[vocab]. */
void td_sample_apply_timestamps(const td_timestamp_rules *rules, float *scores, size_t vocab,
                                td_sequence_so_far sequence);

#endif
