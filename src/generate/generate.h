/* generate/generate.h - the token loop, and the timelines it grows.
 *
 * A td_generation holds the tokens of every row, decides from logits what comes next and when a row ends. It knows no
 * text: each new token goes to a sink, which says whether the row goes on. append and rewind only change timelines; the
 * next forward runs what is missing, so that an appended or rewound row equals a fresh one.
 * Owns its executor, sampler and tokens. One thread at a time; only td_generation_cancel is for others. */
#ifndef TD_GENERATE_GENERATE_H
#define TD_GENERATE_GENERATE_H

#include "exec/exec.h"
#include "sample/sample.h"
#include "treadle/generate.h"

typedef enum td_verdict {
    TD_VERDICT_CONTINUE,
    TD_VERDICT_STOP,   /* this row ends here: a stop string */
    TD_VERDICT_CANCEL, /* all rows end */
    TD_VERDICT_FAIL,   /* err is filled */
} td_verdict;

/* A new token of a row. finish is what the loop itself has decided (eos, length) or NONE. */
typedef td_verdict td_sink_fn(void *ctx, size_t row, int32_t id, treadle_finish finish, treadle_error *err);

typedef struct td_beam_params {
    int64_t num_beams; /* 1: no beam search */
    double length_penalty;
    td_early_stopping early_stopping;
    int64_t num_return_sequences; /* 1..num_beams */
} td_beam_params;

typedef struct td_generation_options {
    td_beam_params beam;
    td_sample_params sample; /* eos borrowed: must outlive the generation */
    int64_t max_new_tokens;  /* of one run; -1: no limit */
    int64_t max_length;      /* of a row */
    bool ignore_eos;
    bool has_seed;
    uint64_t seed;
    bool keep_logits, prompt_logits;
    const int32_t *decoder_start; /* what an encoder-decoder's timeline begins with; borrowed */
    size_t n_decoder_start;
    int64_t max_symbols; /* transducers: tokens per frame; 0: no limit, -1: the model's */
    int32_t image_token; /* a placeholder in prompts; -1: none */
} td_generation_options;

typedef struct td_sequence_found { /* by beam search: new tokens, with a closing end token */
    int32_t *ids;
    size_t n;
    double score;
    bool ended; /* by an end token */
} td_sequence_found;

typedef struct td_timeline {
    int32_t *ids; /* prompt and new tokens */
    int64_t n, capacity;
    int64_t first_new; /* new tokens since the last append or rewind begin here */
    int64_t run_first; /* those of the run under way, or of the last one */
    int64_t ends_at;   /* tokens with which the answer is whole, if no end token comes first */
    int32_t *source;   /* the prompt of an encoder-decoder, which its once steps read */
    int64_t n_source;
    bool fresh;          /* something was appended that has not been run yet */
    bool fresh_requests; /* and tensors came with it */
    bool had_requests;   /* tensors came with something that is still part of the row */
    /* transducers */
    TD_VEC(int64_t) frames; /* of each token: the frame that it was emitted at */
    int64_t frames_before;  /* of earlier chunks */
    int64_t n_frames;       /* of the chunk at hand; 0: it has been walked to its end */
    int64_t frame;          /* of the chunk at hand, or of the next one: the frame to ask now */
    int64_t symbols;        /* tokens that it has given */
    bool predicted;         /* the predictor has been started */
    td_rng rng;
    treadle_finish finish;
    td_sequence_found *sequences; /* best first; NULL: no beam search */
    size_t n_sequences;
    td_floats steps; /* with keep_logits: what each token of the last run was chosen from */
} td_timeline;

typedef struct td_generation {
    const td_runtime *runtime;
    td_generation_options options;
    td_exec *exec; /* made by the first append */
    td_sampler sampler;
    td_timeline *timelines;
    td_exec_row *rows;
    size_t n_rows;
    td_value *staged;        /* [plan.n_requests]: tensors for the next append; owned */
    td_value *requests;      /* [plan.n_requests]: those given last; owned */
    td_value *row_requests;  /* [n_rows, plan.n_requests]: each row's part of them */
    int64_t *images_per_row; /* for the next append; NULL: by placeholders */
    size_t n_images_per_row;
    td_value *outputs; /* [n_rows, n_outputs]: of the latest pass of a model without logits */
    size_t n_outputs;
    td_floats vector;
    td_interrupt interrupt; /* of its executors; runs are inside its begin and end */
    bool fresh;             /* appended or rewound since the last forward: the next one is a prompt */
    int64_t prompt_tokens, new_tokens, decode_steps;
    uint64_t prefill_ns, decode_ns, first_token_ns;
} td_generation;

treadle_status td_generation_new(const td_runtime *runtime, const td_generation_options *options, td_generation **out,
                                 treadle_error *err);
void td_generation_free(td_generation *g); /* NULL is fine */

treadle_status td_generation_append(td_generation *g, const treadle_ids *rows, size_t n_rows, treadle_error *err);
treadle_status td_generation_rewind(td_generation *g, size_t row, size_t length, treadle_error *err);

/* Another generation that goes on from where this one is: same rows, tokens and state; nothing is shared but the
 * model. */
treadle_status td_generation_fork(const td_generation *g, td_generation **out, treadle_error *err);

/* --- requests.c: tensors by the names of the graphs' inputs, for the next append. INVALID_ARGUMENT: no such
 * name, another type or shape. */
treadle_status td_generation_set_tensor(td_generation *g, const char *name, const td_tensor *tensor,
                                        treadle_error *err);
/* How many images belong to each row of the next append; without it placeholders are counted. */
treadle_status td_generation_set_images(td_generation *g, const int64_t *images_per_row, size_t n_rows,
                                        treadle_error *err);
void td_generation_clear_tensors(td_generation *g); /* forgets what is staged */

/* --- encode.c: models without logits. */
/* One pass for every row with something appended; outputs are then kept. */
treadle_status td_generation_encode(td_generation *g, treadle_error *err);
/* An output of a row, by its name or "session.name". */
treadle_status td_generation_output(const td_generation *g, size_t row, const char *name, const td_tensor **out,
                                    treadle_error *err);
/* The outputs that the row's latest pass gave, one after the other: false from their number on. */
bool td_generation_output_at(const td_generation *g, size_t row, size_t index, td_str *session, td_str *name,
                             const td_tensor **out);
/* The row's vector, pooled as the plan says; valid until the next call. */
treadle_status td_generation_embedding(td_generation *g, size_t row, const float **out, int64_t *out_dim,
                                       treadle_error *err);

/* Runs what is not run yet; afterwards every row that has tokens has logits. */
treadle_status td_generation_prefill(td_generation *g, treadle_error *err);
/* Fills rows[row] for the executor: tokens, source, tensors, and what is new about them. */
void td_generation_fill_row(td_generation *g, size_t row);

/* The token loop: greedy, sampled or by beams as the options say; a transducer walks over the frames of its features.
 * max_new_tokens < 0: the option's. sink may be NULL. */
treadle_status td_generation_run(td_generation *g, int64_t max_new_tokens, td_sink_fn *sink, void *ctx,
                                 treadle_error *err);
/* Any thread. Ends the run under way; without one it does nothing. */
void td_generation_cancel(td_generation *g);

#endif
