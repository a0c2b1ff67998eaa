/* treadle/transcribe.h - speech to text with encoder-decoders whose prompt names language and task
 * and whose tokens may tell times.
 *
 * Whether a model can is said by its config (generation.transcription, filled from generation_config.json;
 * treadle_model_info.transcribes). Long recordings go window by window; where the next one begins follows from the
 * times of the one before. Always greedy or by beams, as transformers' long-form generation without its temperatures.
 * Threads: a call uses a generator of its own, so any number of calls work over one model at once.
 */
#ifndef TREADLE_TRANSCRIBE_H
#define TREADLE_TRANSCRIBE_H

#include "treadle/generate.h"
#include "treadle/media.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct treadle_transcript treadle_transcript;

typedef struct treadle_word {
    double start_s, end_s; /* in the recording */
    treadle_string text;   /* with the space before it */
} treadle_word;

typedef struct treadle_segment {
    double start_s, end_s; /* in the recording; without times, those of the window */
    treadle_ids ids;       /* times among them, without prompt and end token */
    treadle_string text;   /* without times */
    const treadle_word *words;
    size_t n_words; /* 0 unless asked for */
} treadle_segment;

/* Called with each segment when its window is done, in the calling thread; the segment is valid during the call. Return
 * true to go on; false ends the transcription after this window: TREADLE_OK, with what came before. */
typedef bool treadle_segment_fn(void *ctx, const treadle_segment *segment);

typedef struct treadle_transcribe_options {
    size_t struct_size;
    /* as the model names it ("en"); NULL (default): the config's, else detected from the first window */
    const char *language;
    const char *task; /* "transcribe" or "translate"; NULL (default): the config's, else "transcribe" */
    /* 1: tokens tell times; 0: none; -1 (default): the model's. More than a window always has times */
    int32_t timestamps;
    bool word_times;        /* when each word was spoken; the graph must give its cross attention. Default: false */
    bool previous_text;     /* each window sees the text of the one before. Default: false */
    int64_t max_new_tokens; /* of a window; -1 (default): what the context leaves */
    int64_t num_beams;      /* -1 (default): the model's; 1: greedy */
    treadle_segment_fn *on_segment; /* NULL (default): none */
    void *ctx;
} treadle_transcribe_options;
TREADLE_API void treadle_transcribe_options_init(treadle_transcribe_options *options);

/* Transcribes a recording of any length, rate and number of channels. TREADLE_UNSUPPORTED: the model is no transcriber,
 * or gives no cross attention for word times; TREADLE_INVALID_ARGUMENT: a language or task it does not have (those it
 * has are listed), or no samples. On failure there is no transcript, but on_segment has had the segments before it. */
TREADLE_API treadle_status treadle_transcribe(treadle_model *model, const treadle_audio *audio,
                                              const treadle_transcribe_options *options, treadle_transcript **out,
                                              treadle_error *error);
TREADLE_API void treadle_transcript_free(treadle_transcript *transcript); /* NULL is fine */

/* Pointers live as long as the transcript. */
TREADLE_API treadle_string treadle_transcript_text(const treadle_transcript *transcript);  /* all segments */
TREADLE_API const char *treadle_transcript_language(const treadle_transcript *transcript); /* "" where there is none */
/* Its probability among all languages, where it was detected; else 1. */
TREADLE_API double treadle_transcript_language_probability(const treadle_transcript *transcript);
TREADLE_API size_t treadle_transcript_n_segments(const treadle_transcript *transcript);
TREADLE_API void treadle_transcript_segment(const treadle_transcript *transcript, size_t index, treadle_segment *out);
/* Ids of all windows one after the other, each with its closing end token, without prompts. */
TREADLE_API treadle_ids treadle_transcript_ids(const treadle_transcript *transcript);

#ifdef __cplusplus
}
#endif
#endif
