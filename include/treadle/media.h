/* treadle/media.h - sound: decoding and resampling, and the features that models take.
 *
 *   treadle_audio_open_file        a file becomes float samples
 *   treadle_audio_extractor_open   the audio part of a model's preprocessing config
 *   treadle_audio_features         samples become named tensors (log-mel frames, masks, counts), ready for a generator
 *
 *   treadle_generator_set_audio    both at once, for the next append
 *
 * Images are not decoded yet: give them as named tensors (generate.h). docs/media.md lists formats, configs and limits.
 * Audio, extractors and features are immutable: any number of threads.
 */
#ifndef TREADLE_MEDIA_H
#define TREADLE_MEDIA_H

#include "treadle/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct treadle_model treadle_model;         /* model.h */
typedef struct treadle_generator treadle_generator; /* generate.h */
typedef struct treadle_audio treadle_audio;
typedef struct treadle_audio_extractor treadle_audio_extractor;
typedef struct treadle_features treadle_features;

/* --- samples */

/* WAV, FLAC, OGG (Vorbis, Opus), MP3, AIFF, CAF, W64; 1 to 64 channels, 1000 to 768000 Hz, at most 2^29 samples in all
 * channels. A file that was cut short gives what is there where its format allows that, and a warning in the log; no
 * samples at all is no error. TREADLE_NOT_FOUND, TREADLE_IO; TREADLE_FORMAT: no such format, damaged, or samples that
 * are NaN or beyond 2^32; TREADLE_LIMIT. */
TREADLE_API treadle_status treadle_audio_open_file(const char *path, treadle_audio **out, treadle_error *error);
/* The bytes of such a file. They are not needed afterwards. */
TREADLE_API treadle_status treadle_audio_open_memory(const void *bytes, size_t n_bytes, treadle_audio **out,
                                                     treadle_error *error);
/* Copies samples [n_frames, n_channels], full scale -1..1; the same checks. */
TREADLE_API treadle_status treadle_audio_new(const float *samples, int64_t n_frames, int32_t n_channels,
                                             int32_t sample_rate, treadle_audio **out, treadle_error *error);
TREADLE_API void treadle_audio_free(treadle_audio *audio); /* NULL is fine */

typedef struct treadle_audio_info {
    size_t struct_size;  /* set by the caller to sizeof */
    int32_t sample_rate; /* Hz */
    int32_t n_channels;
    int64_t n_frames; /* samples of each channel */
    /* [n_frames, n_channels], full scale -1..1 (float files may go beyond); lives as long as the audio. */
    const float *samples;
} treadle_audio_info;
/* out->struct_size must be set; fields beyond it are not written. */
TREADLE_API void treadle_audio_get_info(const treadle_audio *audio, treadle_audio_info *out);

/* The mean of the channels, resampled (soxr, high quality) to a new audio of round(n_frames *
 * sample_rate / rate) frames. */
TREADLE_API treadle_status treadle_audio_to_mono(const treadle_audio *audio, int32_t sample_rate, treadle_audio **out,
                                                 treadle_error *error);

/* --- features */

/* What turns samples into a model's inputs. path: a model folder, or a config alone (preprocessor_config.json,
 * audio_processor_config.json, ...). overrides_json: a JSON object whose members replace those of the config, or
 * NULL. No weights are read. TREADLE_NOT_FOUND: there is no such config; TREADLE_FORMAT, TREADLE_CONFIG,
 * TREADLE_UNSUPPORTED with place. */
TREADLE_API treadle_status treadle_audio_extractor_open(const char *path, const char *overrides_json,
                                                        treadle_audio_extractor **out, treadle_error *error);
/* From a config's JSON text. */
TREADLE_API treadle_status treadle_audio_extractor_parse(const char *json, size_t n_bytes,
                                                         treadle_audio_extractor **out, treadle_error *error);
/* From an open model, whose settings count; it may be closed before the extractor is freed. */
TREADLE_API treadle_status treadle_audio_extractor_of_model(const treadle_model *model, treadle_audio_extractor **out,
                                                            treadle_error *error);
TREADLE_API void treadle_audio_extractor_free(treadle_audio_extractor *extractor); /* NULL is fine */

/* Hz, of the samples it takes. */
TREADLE_API int32_t treadle_audio_extractor_rate(const treadle_audio_extractor *extractor);
/* Samples at that rate that a clip is cut and padded to (30 s, say); 0: clips of any length. */
TREADLE_API int64_t treadle_audio_extractor_clip(const treadle_audio_extractor *extractor);

typedef struct treadle_audio_features_options {
    size_t struct_size;
    int64_t offset; /* first sample, at the extractor's rate. Default: 0 */
    int64_t length; /* samples from there, fewer at the audio's end; 0 (default): all */
    bool whole;     /* one clip of any length: neither cut nor padded to the extractor's clip. Default: false */
} treadle_audio_features_options;
TREADLE_API void treadle_audio_features_options_init(treadle_audio_features_options *options);

/* Features of one clip. Audio of several channels or another rate goes through treadle_audio_to_mono first: who takes
 * many windows of one recording does that once. TREADLE_INVALID_ARGUMENT: no samples there, or too few for a frame. */
TREADLE_API treadle_status treadle_audio_features(const treadle_audio_extractor *extractor, const treadle_audio *audio,
                                                  const treadle_audio_features_options *options, treadle_features **out,
                                                  treadle_error *error);
TREADLE_API void treadle_features_free(treadle_features *features); /* NULL is fine */

/* Tensors by name: "input_features" float32 [1, bins, frames] or [1, frames, bins] (whichever the extractor's
 * models take) or "input_values" [1, samples]; masks [1, frames], 1 = real; counts int64 [1]. Names and tensors
 * live as long as the features. */
TREADLE_API size_t treadle_features_count(const treadle_features *features);
TREADLE_API const char *treadle_features_name(const treadle_features *features, size_t index); /* index < count */
TREADLE_API void treadle_features_tensor(const treadle_features *features, size_t index, treadle_tensor *out);

/* Sound for the next append, one clip: the model's own preprocessing makes its tensors, as if each had been given to
 * treadle_generator_set_tensor. A tensor goes to the input of its name, else to the only one of its kind and shape.
 * Placeholders in the prompt are the caller's. TREADLE_NOT_FOUND: the model has no audio preprocessing;
 * TREADLE_UNSUPPORTED: no input takes what it makes. */
TREADLE_API treadle_status treadle_generator_set_audio(treadle_generator *generator, const treadle_audio *audio,
                                                       treadle_error *error);

#ifdef __cplusplus
}
#endif
#endif
