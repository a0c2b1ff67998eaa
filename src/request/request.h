/* request/request.h - a generator as the public API has it: a generation plus the text of its rows.
 *
 * Turns options into what the loop understands (the caller's value, else the model's), and gives the loop a sink that
 * detokenises, holds what may become a stop string, and calls the caller back. Without a callback and without stop
 * strings no text is made until it is asked for. One thread at a time. */
#ifndef TD_REQUEST_REQUEST_H
#define TD_REQUEST_REQUEST_H

#include "media/audio.h"
#include "model/model.h"

typedef struct td_row_text {
    td_text_sink sink; /* zeroed: not open */
    bool open;
    td_buf text;    /* of the new tokens so far */
    size_t given;   /* bytes of it that the caller has received */
    int64_t pushed; /* timeline length that the sink has seen; -1: text is out of date */
} td_row_text;

struct treadle_generator {
    const treadle_model *model;
    td_arena arena; /* copies of options */
    td_generation *generation;
    const td_str *stops;
    size_t n_stops;
    td_row_text *texts;         /* [n_rows]; NULL: nobody has asked for text yet */
    treadle_token_fn *callback; /* of the run under way */
    void *callback_ctx;
    bool makes_text; /* the run under way feeds the sinks */
};

/* Effective sampling parameters: NULL model: the defaults of the header. eos is kept in the arena. */
treadle_status td_request_params(const treadle_generate_options *options, const td_config *config, td_arena *arena,
                                 td_sample_params *out, treadle_error *err);
/* What the loop wants, from the caller's options and the model; stops and eos are kept by the generator. */
treadle_status td_request_fill(treadle_generator *generator, const treadle_generate_options *options,
                               td_generation_options *out, treadle_error *err);
/* What a fork borrows from its own arena instead of from where it came. */
treadle_status td_request_copy_options(treadle_generator *to, const treadle_generator *from, treadle_error *err);
/* The options with unset fields where the caller's struct is older or NULL. */
treadle_status td_request_options(const treadle_generate_options *options, treadle_generate_options *out,
                                  treadle_error *err);

treadle_status td_request_new(const treadle_model *model, const treadle_generate_options *options,
                              treadle_generator **out, treadle_error *err);
void td_request_free(treadle_generator *generator);
/* Goes on from where a generator is; the text of rows begins afresh with the next token. */
treadle_status td_request_fork(const treadle_generator *generator, treadle_generator **out, treadle_error *err);
treadle_status td_request_append(treadle_generator *generator, const treadle_ids *rows, size_t n_rows,
                                 treadle_error *err);
/* Sound for the next append, through the model's own preprocessing. */
treadle_status td_request_set_audio(treadle_generator *generator, const td_audio *audio, treadle_error *err);
treadle_status td_request_rewind(treadle_generator *generator, size_t row, size_t length, treadle_error *err);
treadle_status td_request_run(treadle_generator *generator, int64_t max_new_tokens, treadle_token_fn *fn, void *ctx,
                              treadle_error *err);
/* The text of a row's new tokens; p NULL: there is no tokenizer. */
treadle_string td_request_text(treadle_generator *generator, size_t row);

#endif
