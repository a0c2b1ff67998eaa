/* media/audio.h - sound: decoding, downmixing, resampling, and the features that models take.
 *
 *   file or bytes --td_audio_open--> td_audio [frames, channels] --td_audio_to_mono--> samples at one rate
 *   preprocessing config --td_recipe_parse--> td_recipe --td_recipe_run (samples)--> named tensors
 *
 * A recipe is a list of steps (steps.inc); each dialect of config is translated into it and nothing else computes
 * features. td_audio and td_recipe are immutable once made: any number of threads. */
#ifndef TD_MEDIA_AUDIO_H
#define TD_MEDIA_AUDIO_H

#include "base/json.h"
#include "tensor/tensor.h"

enum {
    TD_AUDIO_MAX_CHANNELS = 64,
    TD_AUDIO_MIN_RATE_HZ = 1000,
    TD_AUDIO_MAX_RATE_HZ = 768000,
    TD_AUDIO_MAX_SAMPLES = 1 << 29, /* frames x channels, 2 GiB: 9 hours at 16 kHz mono */
    TD_AUDIO_MAX_CONFIG_BYTES = 16 << 20,
};
#define TD_AUDIO_MAX_SAMPLE 4294967296.0f /* beyond what 32-bit integers, unscaled, can be */

typedef struct td_audio {
    int rate_hz, n_channels;
    int64_t n_frames;
    float *samples; /* [n_frames, n_channels], full scale is -1..1; never NULL, finite */
    bool is_cut;    /* the file ends before its headers say, or cannot be decoded to its end */
    int64_t n_said; /* frames that they say; -1: not said */
} td_audio;

/* WAV (PCM, float, u-law, A-law, ADPCM), W64, RF64, AIFF, CAF, FLAC, OGG (Vorbis, Opus) (what libsndfile
 * decodes), MP3. A file cut short gives what is there, where its format allows that, and a warning in the log.
 * No samples at all is no error.
 * Errors: NOT_FOUND, IO, FORMAT (no such format, damaged, samples that are NaN or too large), LIMIT (the limits
 * above). */
treadle_status td_audio_open_file(const char *path, td_audio **out, treadle_error *err);
treadle_status td_audio_open_memory(const void *bytes, size_t n, td_audio **out, treadle_error *err);
/* Copies samples [n_frames, n_channels]; the same checks. */
treadle_status td_audio_from_samples(const float *samples, int64_t n_frames, int n_channels, int rate_hz,
                                     td_audio **out, treadle_error *err);
void td_audio_free(td_audio *audio);
/* audio_cut.c: whether the bytes of a sound file end before its headers say, as far as they tell without being
 * decoded. */
bool td_audio_bytes_are_cut(const uint8_t *bytes, size_t n);

/* Mean of the channels, then resampled (soxr, high quality: 20 bits, pass band to 0.91 of the lower Nyquist frequency).
 * The result has round(n_frames * rate / rate_hz) frames, one channel. */
treadle_status td_audio_to_mono(const td_audio *audio, int rate_hz, td_audio **out, treadle_error *err);

/* --- features */

typedef struct td_recipe td_recipe;

/* What a recipe makes. The dimensions are those of one clip: [1, bins, frames] and the like; -1: depends on the
 * clip. */
typedef enum td_feature_kind { TD_FEATURE_VALUES, TD_FEATURE_MASK, TD_FEATURE_COUNT } td_feature_kind;

typedef struct td_feature_spec {
    const char *name;
    td_feature_kind kind;
    td_dtype dtype;
    td_shape shape;
} td_feature_spec;

typedef struct td_features {
    size_t n;
    const td_feature_spec *specs; /* [n], the recipe's */
    td_tensor *tensors;           /* [n], dense, each with its own buffer */
} td_features;

/* A config in any of the dialects (docs/media.md), from text that is `label` in messages. `overrides`: a JSON object
 * whose members replace those of the config; empty: none. Nothing of the texts is kept.
 * Errors: FORMAT, CONFIG, UNSUPPORTED, LIMIT, with place. */
treadle_status td_recipe_parse(td_str text, const char *label, td_str overrides, td_recipe **out, treadle_error *err);
/* The same from a value that was parsed out of text. */
treadle_status td_recipe_from_json(const td_json *config, td_str text, const char *label, td_str overrides,
                                   td_recipe **out, treadle_error *err);
/* The same from a file of at most TD_AUDIO_MAX_CONFIG_BYTES. */
treadle_status td_recipe_open(const char *path, td_str overrides, td_recipe **out, treadle_error *err);
void td_recipe_free(td_recipe *recipe);

int td_recipe_rate_hz(const td_recipe *recipe); /* of the samples that it takes */
/* Samples of the clip that the recipe cuts and pads to (30 s, say); 0: clips of any length. */
int64_t td_recipe_clip(const td_recipe *recipe);
const td_feature_spec *td_recipe_outputs(const td_recipe *recipe, size_t *n);

typedef struct td_feature_options {
    /* The whole waveform as one clip: neither cut nor padded to the recipe's clip. Frames of a long recording can then
     * be taken window by window, with one normalisation over all of it, as transformers does. */
    bool whole;
} td_feature_options;

/* Features of samples[n] at the recipe's rate. Frames are made in order on the caller's thread. options NULL: defaults.
 * Errors: INVALID_ARGUMENT (no samples, or too few for a frame where the recipe needs one), LIMIT, OUT_OF_MEMORY. */
treadle_status td_recipe_run(const td_recipe *recipe, const float *samples, int64_t n,
                             const td_feature_options *options, td_features *out, treadle_error *err);
void td_features_free(td_features *features);

#endif
