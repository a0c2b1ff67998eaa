/* media/steps.h - one step of a recipe: how its JSON is read, and what it does to the
 * samples, to a frame, or to all frames.
 *
 *   wave steps     the whole waveform, float32
 *   frames         cuts the waveform into overlapping frames; at most once, after all wave steps
 *   frame steps    one frame at a time, in double precision, in place; its length may change
 *   matrix steps   all frames [n_frames, width], float32
 *
 * A step is read once, with everything that can be computed beforehand (windows, filters,
 * transforms), and is immutable then. */
#ifndef TD_MEDIA_STEPS_H
#define TD_MEDIA_STEPS_H

#include "media/audio.h"
#include "media/fft.h"

typedef enum td_step_kind { TD_STEP_WAVE, TD_STEP_FRAMES, TD_STEP_FRAME, TD_STEP_MATRIX } td_step_kind;

/* A text and what messages call it. */
typedef struct td_doc {
    const char *label; /* NULL: part of the library */
    td_str text;
} td_doc;

typedef struct td_wave {
    float *x; /* [n] */
    int64_t n, n_valid;
    int64_t start; /* padding before the first real sample */
} td_wave;

typedef struct td_frame {
    double *x;     /* [n], room for the recipe's widest frame */
    double *spare; /* scratch of the Fourier transform */
    int n;
    double log_energy; /* as the energy step found it */
} td_frame;

typedef struct td_frames {
    float *x; /* [n, width] */
    int64_t n, n_valid;
    int width;
} td_frames;

typedef struct td_framing {
    int length, hop; /* samples */
    int span;        /* samples that a frame needs; at least length */
    int pad;         /* words in steps_wave.c */
    int pad_mode;
    int valid;
    bool drop_last;
    int64_t minimum; /* fewer frames are an error */
} td_framing;

int64_t td_framing_count(const td_framing *framing, int64_t n); /* frames of n samples */
int64_t td_framing_valid(const td_framing *framing, const td_wave *wave, int64_t n_frames);
void td_framing_cut(const td_framing *framing, const td_wave *wave, int64_t index, double *out); /* [span] */

/* --- reading: values come from the step itself, or, written "$name", from the fields of the config. The first failure
 * stays in `status`; after it every reader gives the fallback. */
typedef struct td_step_reader {
    td_arena *arena;
    const td_json *step;
    const td_doc *step_doc;
    const td_json *overrides, *config, *defaults; /* where fields are looked up, in this order; each may be NULL */
    const td_doc *overrides_doc, *config_doc;
    int rate_hz;
    int64_t width; /* values of a frame before the step; a frame or matrix step that changes it says so here */
    int span;      /* samples that stand in a frame's memory at first: its own, and one more where asked for */
    int n_fft;     /* of the latest spectrum; 0: none yet */
    size_t room;   /* scratch that the step needs, doubles */
    treadle_error *err;
    treadle_status status;
} td_step_reader;

typedef struct td_step td_step;
typedef struct td_step_row {
    const char *name;
    td_step_kind kind;
    const char *keys;                 /* that the step may have, separated by spaces, with a space at either end */
    void *(*read)(td_step_reader *r); /* parameters in the arena; NULL where there are none or reading failed */
    /* Exactly one, as kind says; none for frames. */
    treadle_status (*wave)(const void *params, td_wave *wave, treadle_error *err);
    void (*frame)(const void *params, td_frame *frame);
    treadle_status (*matrix)(const void *params, td_frames *frames, treadle_error *err);
    unsigned flags;
} td_step_row;
enum {
    TD_STEP_CLIPS = 1, /* makes clips of one length: left out where the whole waveform is wanted */
    TD_STEP_MOVES = 2, /* changes how many samples or frames there are */
};

struct td_step {
    const td_step_row *row;
    void *params;
};

/* media/recipe.c: the compiled form. Steps stand in the order of their kinds. */
typedef struct td_output {
    int layout;
    int64_t divide[2]; /* of a count: rounded up after each */
} td_output;

struct td_recipe {
    td_arena arena;
    int rate_hz;
    int64_t clip; /* samples; 0: any */
    const td_step *steps;
    size_t n_steps;
    const td_framing *framing;     /* NULL: the waveform itself is the result */
    size_t frame_room, spare_room; /* doubles */
    int64_t width;                 /* values of a frame after all steps */
    int64_t raw_width;             /* after the frame steps */
    td_feature_spec *specs;        /* [n_outputs] */
    td_output *outputs;
    size_t n_outputs;
};
enum { TD_LAYOUT_BINS_FIRST, TD_LAYOUT_FRAMES_FIRST };

/* A member of the step, fields resolved; NULL: absent or null. doc: whose text it stands in. */
const td_json *td_step_value(td_step_reader *r, const char *key, const td_doc **doc);
const td_json *td_step_field(const td_step_reader *r, const char *name, const td_doc **doc); /* may be a null */
/* A value of the step or the fallback; a value of another kind or outside [low, high] fails. */
double td_step_number(td_step_reader *r, const char *key, double fallback, double low, double high);
int64_t td_step_int(td_step_reader *r, const char *key, int64_t fallback, int64_t low, int64_t high);
bool td_step_bool(td_step_reader *r, const char *key, bool fallback);
int td_step_word(td_step_reader *r, const char *key, const char *const *words, int fallback);
/* An array of n numbers (it may stand in arrays of one: Hugging Face writes shapes like [1, 1, n]), or NULL if
 * absent. */
const double *td_step_numbers(td_step_reader *r, const char *key, int64_t n);
/* Samples, given as such under `key` or in seconds under `seconds_key`; -1: neither. */
int64_t td_step_samples(td_step_reader *r, const char *key, const char *seconds_key);
/* Fails at a member's value (key NULL: at the step) with place. */
void td_step_fail(td_step_reader *r, const char *key, treadle_status status, const char *format, ...) TD_PRINTF(4, 5);
void *td_step_alloc(td_step_reader *r, size_t count, size_t item_bytes); /* zeroed; NULL: failed */

/* Fills err's file, line, column, pointer from a value of a document. */
void td_doc_place(const td_doc *doc, const td_json *value, treadle_error *err);

/* steps_wave.c */
void *td_read_scale(td_step_reader *r);
void *td_read_clip(td_step_reader *r);
void *td_read_pad(td_step_reader *r);
void *td_read_standardize(td_step_reader *r);
void *td_read_preemphasis(td_step_reader *r);
void *td_read_frames(td_step_reader *r);
treadle_status td_wave_scale(const void *params, td_wave *wave, treadle_error *err);
treadle_status td_wave_clip(const void *params, td_wave *wave, treadle_error *err);
treadle_status td_wave_pad(const void *params, td_wave *wave, treadle_error *err);
treadle_status td_wave_standardize(const void *params, td_wave *wave, treadle_error *err);
treadle_status td_wave_preemphasis(const void *params, td_wave *wave, treadle_error *err);
/* Samples of a clip; *fixed: shorter clips are padded to it and longer ones cut. */
int64_t td_clip_samples(const void *params, bool *fixed);

/* dither.c */
void *td_read_dither(td_step_reader *r);
treadle_status td_wave_dither(const void *params, td_wave *wave, treadle_error *err);

/* steps_frame.c */
void *td_read_nothing(td_step_reader *r);
void *td_read_frame_preemphasis(td_step_reader *r);
void *td_read_window(td_step_reader *r);
void *td_read_spectrum(td_step_reader *r);
void *td_read_log(td_step_reader *r);
void *td_read_cepstrum(td_step_reader *r);
void td_frame_remove_mean(const void *params, td_frame *frame);
void td_frame_energy(const void *params, td_frame *frame);
void td_frame_preemphasis(const void *params, td_frame *frame);
void td_frame_window(const void *params, td_frame *frame);
void td_frame_spectrum(const void *params, td_frame *frame);
void td_frame_log(const void *params, td_frame *frame);
void td_frame_cepstrum(const void *params, td_frame *frame);
double td_round_to(int word, double value); /* to the precision of td_round_words */
extern const char *const td_round_words[];

/* mel.c */
void *td_read_mel(td_step_reader *r);
void td_frame_mel(const void *params, td_frame *frame);

/* steps_matrix.c */
void *td_read_limit_range(td_step_reader *r);
void *td_read_affine(td_step_reader *r);
void *td_read_normalize(td_step_reader *r);
void *td_read_bins(td_step_reader *r);
void *td_read_drop_frames(td_step_reader *r);
void *td_read_clip_frames(td_step_reader *r);
void *td_read_pad_frames(td_step_reader *r);
void *td_read_stack(td_step_reader *r);
treadle_status td_matrix_limit_range(const void *params, td_frames *frames, treadle_error *err);
treadle_status td_matrix_affine(const void *params, td_frames *frames, treadle_error *err);
treadle_status td_matrix_normalize(const void *params, td_frames *frames, treadle_error *err);
treadle_status td_matrix_bins(const void *params, td_frames *frames, treadle_error *err);
treadle_status td_matrix_clear_invalid(const void *params, td_frames *frames, treadle_error *err);
treadle_status td_matrix_drop_frames(const void *params, td_frames *frames, treadle_error *err);
treadle_status td_matrix_pad_frames(const void *params, td_frames *frames, treadle_error *err);
treadle_status td_matrix_stack(const void *params, td_frames *frames, treadle_error *err);

enum {
    TD_STEP_MAX_SAMPLES = 1 << 26,  /* that a config may ask for, as padding or a clip: over an hour at 16 kHz */
    TD_FRAMES_MAX_VALUES = 1 << 28, /* of a matrix: 1 GiB */
};

#endif
