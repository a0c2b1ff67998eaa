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

/* words.c: words of a segment, from one more pass of the decoder over the window's ids with its cross attention. ids:
 * the window's new ids without the end token, first: where they stand in the row; the row's prompt is still there. */
treadle_status td_transcribe_words(td_transcriber *t, const int32_t *ids, size_t n, const td_segment *segments,
                                   size_t n_segments, size_t first_segment, double offset_s, double clip_s,
                                   treadle_error *err);

#endif
