/* treadle/generate.h - a generator: one mutable timeline of tokens per row over a model.
 *
 *     treadle_generator_new -> append -> run -> read results -> (append or rewind -> run ...) -> free
 *
 * What an append takes and a run gives depends on the model, never on its name:
 *   decoder                 ids in, tokens out; images, sound and other tensors by treadle_generator_set_tensor
 *                           before the append
 *   encoder-decoder         the first append's ids go to the encoder, if it takes ids (the timeline then begins with
 *                           decoder_start); else its tensors do, and the ids are the decoder's prompt
 *   transducer              a chunk of features in, the tokens recognised in it out
 *   anything without tokens ids or tensors in, a pass by treadle_generator_prefill, outputs or a vector out
 *
 * Rows of a batch are independent: each gives what it would give alone. Threads: a generator is used by one thread at a
 * time; treadle_generator_cancel may be called from any. Any number of generators work over one model at once. A call
 * that fails leaves model and generator usable; unless said otherwise it has changed nothing.
 */
#ifndef TREADLE_GENERATE_H
#define TREADLE_GENERATE_H

#include "treadle/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct treadle_generator treadle_generator;

/* How tokens are chosen and when generation ends. After treadle_generate_options_init every field says "as the model
 * has it": its config, else its generation_config.json, else the default in brackets. Processors work in this order:
 * repetition penalty, no-repeat n-gram, min_length, temperature, top_k, top_p, min_p, each as in transformers. Tokens
 * that the config suppresses or forces (docs/config.md) are so whatever the options say. */
typedef struct treadle_generate_options {
    size_t struct_size;
    int64_t max_new_tokens; /* of one run; -1: the model's [no limit but max_length] */
    int64_t max_length;     /* prompt and new tokens of a row; -1: the model's. Above the context length: an error */
    int64_t min_length;     /* no end token before the row has this many tokens, prompt included; -1: the model's [0] */
    int32_t do_sample;      /* 1: draw, 0: greedy, -1: the model's [0] */
    double temperature;     /* > 0; 0: greedy; negative: the model's [1] */
    int64_t top_k;          /* keep the k best and their ties; 0: off, 1: greedy; -1: the model's [0] */
    double top_p;           /* (0, 1]; 1: off; negative: the model's [1] */
    double min_p;           /* [0, 1]; 0: off; negative: the model's [0] */
    double repetition_penalty;    /* > 0; 1: off; negative: the model's [1]; sees prompt and new tokens */
    int64_t no_repeat_ngram_size; /* 0: off; -1: the model's [0] */
    int64_t seed;                 /* >= 0: reproducible, whatever the thread count; -1: another one each time */
    const int32_t *eos;           /* replaces the model's end tokens if n_eos >= 0; 0: none ends */
    int64_t n_eos;                /* -1: the model's */
    bool ignore_eos;              /* end tokens do not end; default false */
    const char *const *stop;      /* stop strings, if n_stop >= 0; need a tokenizer; copied */
    int64_t n_stop;               /* -1: the model's */
    /* Beam search, as transformers defines it: num_beams above 1. Greedy only; stop strings and kept logits do not go
     * with it. Transducers are searched greedily: beams or sampling are refused. */
    int64_t num_beams;       /* -1: the model's [1] */
    bool has_length_penalty; /* else the model's [1] */
    double length_penalty;   /* a sequence's score is divided by its new tokens to this power */
    int32_t early_stopping;  /* 0: end when no better sequence is likely, 1: when num_beams have ended, 2: when none is
                              * possible; -1: the model's [0] */
    int64_t num_return_sequences; /* at most num_beams; -1: 1 if num_beams is given, else the model's [1] */
    int64_t max_symbols_per_step; /* transducers: most tokens per frame of the encoder; 0: no limit; -1: the model's */
    const int32_t *decoder_start; /* what an encoder-decoder's answer begins with, if n_decoder_start >= 0; copied */
    int64_t n_decoder_start;      /* -1: the model's (tokens.decoder_start, else tokens.bos) */
    bool keep_logits;   /* keep what each new token was chosen from (treadle_generator_step_logits); default false */
    bool prompt_logits; /* compute logits of all prompt positions (treadle_generator_prompt_logits); default false */
} treadle_generate_options;
TREADLE_API void treadle_generate_options_init(treadle_generate_options *options);

/* Strings and lists in options are copied. TREADLE_INVALID_ARGUMENT names the option, its range and what was given. */
TREADLE_API treadle_status treadle_generator_new(treadle_model *model, const treadle_generate_options *options,
                                                 treadle_generator **out, treadle_error *error);
TREADLE_API void treadle_generator_free(treadle_generator *generator); /* NULL is fine */

typedef struct treadle_ids {
    const int32_t *ids;
    size_t n;
} treadle_ids;

/* Adds tokens to every row; the first call says how many rows there are, later ones must give as many (a row may then
 * be empty: it stays as it is). Nothing is run yet: the next prefill or run does it, together with the last token that
 * was generated. Ends the finished state of rows. On failure rows are unchanged. TREADLE_INVALID_ARGUMENT: an id that
 * the vocabulary does not have, another number of rows, tensors that do not fit the rows; TREADLE_LIMIT: longer than
 * max_length, or more than 65536 rows. */
TREADLE_API treadle_status treadle_generator_append(treadle_generator *generator, const treadle_ids *rows,
                                                    size_t n_rows, treadle_error *error);

/* A tensor for the next append, by the name of the graph's input: images, audio features, anything that no token stands
 * for. Copied; numbers are converted to the input's type within floating-point types and within integers. With several
 * rows dimension 0 is cut: images go to rows in the order of their placeholders, anything else has one row per prompt.
 * The tensors given before an append belong to it; those given again later replace them. A name that no session takes,
 * another rank or another fixed dimension: TREADLE_INVALID_ARGUMENT. */
TREADLE_API treadle_status treadle_generator_set_tensor(treadle_generator *generator, const char *name,
                                                        const treadle_tensor *tensor, treadle_error *error);
/* How many images belong to each row of the next append. Not needed for one row, nor where placeholders tell. */
TREADLE_API treadle_status treadle_generator_set_images_per_row(treadle_generator *generator,
                                                                const int64_t *images_per_row, size_t n_rows,
                                                                treadle_error *error);
/* Forgets tensors and images per row that were given for an append that did not come about. */
TREADLE_API void treadle_generator_clear_tensors(treadle_generator *generator);

/* Another generator that goes on from here: same tokens, state and options, nothing shared but the
 * model. The caller frees it. Its new tokens are counted from here; beams' sequences and logits that
 * were kept stay with the first one. */
TREADLE_API treadle_status treadle_generator_fork(const treadle_generator *generator, treadle_generator **out,
                                                  treadle_error *error);

/* Keeps the first `length` tokens of a row (prompt and new ones; a last token that was not run yet counts). Where the
 * state cannot be cut (recurrent), what stays is run again. At 0 a new request starts: once steps run again, with
 * tensors given anew. TREADLE_INVALID_ARGUMENT: longer than the row is; TREADLE_UNSUPPORTED: a transducer, or recurrent
 * state after tensors of a prompt, which can be rewound to 0 alone. */
TREADLE_API treadle_status treadle_generator_rewind(treadle_generator *generator, size_t row, size_t length,
                                                    treadle_error *error);

typedef enum treadle_finish {
    TREADLE_FINISH_NONE, /* not finished */
    TREADLE_FINISH_EOS,  /* an end token was generated; it is part of the ids, not of the text */
    /* a stop string; the token that completed it is part of the ids, the text ends before the match */
    TREADLE_FINISH_STOP,
    TREADLE_FINISH_LENGTH,    /* max_new_tokens, max_length or the context */
    TREADLE_FINISH_CANCELLED, /* treadle_generator_cancel or the callback */
    TREADLE_FINISH_ERROR
} treadle_finish;
TREADLE_API const char *treadle_finish_text(treadle_finish finish); /* "eos", ...; "" for NONE. Static string. */

/* One new token. `piece` is text that can be shown now: whole characters, nothing that may still become a stop string;
 * often empty while something is held back. NULL without a tokenizer. Valid during the call. */
typedef struct treadle_token {
    size_t row;
    int32_t id;        /* -1: no token, only text that is let go at the end */
    size_t index;      /* among the new tokens of this row since the last append */
    const char *piece; /* NUL-terminated */
    size_t piece_bytes;
    treadle_finish finish; /* of the row, when this was its last token */
} treadle_token;

/* Return true to go on; false ends the run, and all rows, as cancelled. Must not call into the
 * same generator, but cancel. */
typedef bool treadle_token_fn(void *ctx, const treadle_token *token);

/* Runs what was appended, so that logits can be read and the first token costs one step. Optional where tokens are
 * generated; a model without logits makes its pass here. Errors are those of treadle_generator_run; TREADLE_CANCELLED:
 * treadle_generator_cancel was called meanwhile. */
TREADLE_API treadle_status treadle_generator_prefill(treadle_generator *generator, treadle_error *error);

/* Generates until every row has finished. max_new_tokens >= 0 replaces the option for this run; a row that finished by
 * length may go on in another run. fn may be NULL. TREADLE_OK also if cancelled (see the rows' finish). On failure rows
 * keep the tokens they have, with finish ERROR. TREADLE_INVALID_ARGUMENT: nothing was appended, or a tensor is missing
 * or does not fit the prompt (both numbers named); TREADLE_UNSUPPORTED: the model gives no tokens; TREADLE_RUN: a graph
 * failed, or no logit is a number. */
TREADLE_API treadle_status treadle_generator_run(treadle_generator *generator, int64_t max_new_tokens,
                                                 treadle_token_fn *fn, void *ctx, treadle_error *error);

/* Asks a run to end; returns at once. The run ends before its next token, or inside a long prefill. Any thread. Works
 * once: the next run starts afresh; without a run under way it does nothing later. */
TREADLE_API void treadle_generator_cancel(treadle_generator *generator);

/* --- models without logits (feature extraction, reranking, speech synthesis, anything that runs once). An append takes
 * ids, if the model takes ids (else rows of no tokens), and tensors; treadle_generator_prefill then makes one pass for
 * each row. Recurrent state goes on from pass to pass; rewinding to 0 starts it afresh. */

/* An output of a row's latest pass by its name, or "session.name": [1, ...], valid until the next call
 * that changes the generator. */
TREADLE_API treadle_status treadle_generator_output(const treadle_generator *generator, size_t row, const char *name,
                                                    treadle_tensor *out, treadle_error *error);
/* The same one by one: index < treadle_generator_n_outputs, which counts the tensors that the row's latest pass gave (0
 * before the first). *out_session and *out_name (either may be NULL) live as long as the model. */
TREADLE_API size_t treadle_generator_n_outputs(const treadle_generator *generator, size_t row);
TREADLE_API treadle_status treadle_generator_output_at(const treadle_generator *generator, size_t row, size_t index,
                                                       treadle_string *out_session, treadle_string *out_name,
                                                       treadle_tensor *out, treadle_error *error);
/* The vector of a row, float32 [dim]: its hidden states pooled and normalised as the model's config
 * says. Valid until the next call. */
TREADLE_API treadle_status treadle_generator_embedding(treadle_generator *generator, size_t row, treadle_tensor *out,
                                                       treadle_error *error);

/* --- results. Pointers live until the next call that changes the generator. A row from n_rows on is empty. */
TREADLE_API size_t treadle_generator_n_rows(const treadle_generator *generator);
/* The whole timeline. */
TREADLE_API treadle_ids treadle_generator_ids(const treadle_generator *generator, size_t row);
/* Since the last append or rewind. */
TREADLE_API treadle_ids treadle_generator_new_ids(const treadle_generator *generator, size_t row);
/* Of the new ids; p NULL: no tokenizer. */
TREADLE_API treadle_string treadle_generator_text(const treadle_generator *generator, size_t row);
/* Transducers (an append gives features, a run the tokens recognised in them; the next append is the next chunk
 * of the same stream): the encoder frame of each of the row's new ids, counted from the begin of the
 * stream. *out_n 0: no transducer. */
TREADLE_API const int64_t *treadle_generator_new_frames(const treadle_generator *generator, size_t row, size_t *out_n);
/* Beam search: the best sequences of a row, best first (rank 0 is also what the other results give). A row's sequence
 * holds its new tokens with a closing end token; *out_score (may be NULL) is its log probability, divided as
 * length_penalty says. Without beams there is one sequence, of score 0. */
TREADLE_API size_t treadle_generator_n_sequences(const treadle_generator *generator, size_t row);
TREADLE_API treadle_ids treadle_generator_sequence(const treadle_generator *generator, size_t row, size_t rank,
                                                   double *out_score);
TREADLE_API treadle_finish treadle_generator_finish(const treadle_generator *generator, size_t row);

/* Logits as the model gave them (no processor applied), converted to float32.
 * last: [vocab], those the next token will be chosen from; needs a prefill after the row's last change (a run leaves
 * its last token to be run by the next one). TREADLE_INVALID_ARGUMENT before.
 * step: [new tokens, vocab] of the row's new ids of the latest run; needs options.keep_logits.
 * prompt: [positions, vocab] of the tokens run by the latest prefill (or first step), the last position alone where the
 * graph gives no others (treadle_model_info.prompt_logits); needs options.prompt_logits. */
TREADLE_API treadle_status treadle_generator_last_logits(const treadle_generator *generator, size_t row,
                                                         treadle_tensor *out, treadle_error *error);
TREADLE_API treadle_status treadle_generator_step_logits(const treadle_generator *generator, size_t row,
                                                         treadle_tensor *out, treadle_error *error);
TREADLE_API treadle_status treadle_generator_prompt_logits(const treadle_generator *generator, size_t row,
                                                           treadle_tensor *out, treadle_error *error);

typedef struct treadle_stats {
    size_t struct_size;    /* set by the caller to sizeof */
    int64_t prompt_tokens; /* run in prefills, all rows, since the generator was made */
    int64_t new_tokens;    /* generated */
    double prefill_ms;     /* in prefill steps */
    double decode_ms;      /* in later steps, sampling and callbacks included */
    double first_token_ms; /* start of the latest run to its first token */
    int64_t decode_steps;
    int64_t state_bytes; /* memory of the state now */
} treadle_stats;
TREADLE_API void treadle_generator_get_stats(const treadle_generator *generator, treadle_stats *out);

/* How often each session of the model has run for this generator: index <
 * treadle_model_info.n_sessions; *out_name may be NULL. */
TREADLE_API int64_t treadle_generator_runs(const treadle_generator *generator, size_t index, const char **out_name);

/* Node times of the latest step (options.profile of the model), a line a node or totals by op. treadle_free. */
TREADLE_API treadle_status treadle_generator_profile(const treadle_generator *generator, bool by_op, char **out,
                                                     treadle_error *error);

/* The processors alone: what a sampler would draw from. logits [vocab]; sequence: prompt and new tokens so far (the
 * prompt's length decides nothing but is checked); options: as above, "the model's" meaning the default in brackets.
 * probabilities [vocab] receives the distribution, *out_kept how many are not zero. No model is needed. */
TREADLE_API treadle_status treadle_process_logits(const treadle_generate_options *options, const float *logits,
                                                  size_t vocab, const int32_t *sequence, size_t n_sequence,
                                                  size_t prompt_length, float *probabilities, int64_t *out_kept,
                                                  treadle_error *error);

#ifdef __cplusplus
}
#endif
#endif
