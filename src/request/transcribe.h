/* request/transcribe.h - a transcript in the making. transcribe.c walks over the windows of a recording, words.c says
 * when each word of a segment was spoken. */
#ifndef TD_REQUEST_TRANSCRIBE_H
#define TD_REQUEST_TRANSCRIBE_H

#include "generate/segments.h"
#include "media/audio.h"
#include "request/request.h"
#include "treadle/transcribe.h"

typedef struct td_transcript_segment {
    double start_s, end_s;
    size_t first_id, n_ids;     /* of the transcript's ids */
    size_t first_byte, n_bytes; /* of its text */
    treadle_word *words;        /* in the arena */
    size_t n_words;
} td_transcript_segment;

struct treadle_transcript {
    td_arena arena;
    TD_VEC(int32_t) ids;
    td_buf text;
    TD_VEC(td_transcript_segment) segments;
    const char *language;
    double language_probability;
};

/* The graph's input that takes the features, and the decoder's outputs with its cross attention by layer. */
typedef struct td_transcriber {
    const treadle_model *model;
    const td_config_transcription *config;
    treadle_transcribe_options options;
    const td_tokenizer *tokenizer;
    td_recipe *recipe;
    td_generation *generation;
    td_timestamp_rules rules;
    int32_t language, task; /* ids; -1: none */
    bool timestamps;        /* tokens tell times in this call */
    double clip_s;          /* of a window */
    int64_t clip_frames;
    const char *features_name;
    td_value whole; /* features of the whole recording [1, bins, frames]; NONE: it fits one window */
    double duration_s;
    treadle_transcript *out;
} td_transcriber;

treadle_status td_transcribe(const treadle_model *model, const td_audio *audio,
                             const treadle_transcribe_options *options, treadle_transcript **out, treadle_error *err);

/* What the decoder made of one window. */
typedef struct td_decoded_window {
    const int32_t *ids; /* new ids without the end token */
    size_t n;
    const td_segment *segments;
    size_t n_segments;
    size_t first_segment; /* in the transcript, of those with text */
    double offset_s;      /* of the window in the recording */
    double clip_s;        /* how much of the window is recording */
} td_decoded_window;

/* words.c: words of the window's segments, from one more pass of the decoder over its ids with its cross attention. The
 * row still holds them behind its prompt. */
treadle_status td_transcribe_words(td_transcriber *t, const td_decoded_window *window, treadle_error *err);

#endif
