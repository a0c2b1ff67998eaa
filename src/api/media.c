/* api/media.c - audio files, extractors, features. */
#include "api/api.h"

#include "base/alloc.h"
#include "media/audio.h"
#include "model/audio_part.h"
#include "request/transcribe.h"
#include "treadle/media.h"

struct treadle_audio {
    td_audio audio;
};
struct treadle_audio_extractor {
    td_recipe *recipe;
};
struct treadle_features {
    td_features features;
    char **names; /* [features.n], their own */
};

/* treadle_audio is a td_audio under a name of its own. */
static treadle_audio *as_public(td_audio *audio) { return (treadle_audio *)audio; }

treadle_status treadle_audio_open_file(const char *path, treadle_audio **out, treadle_error *error) {
    td_audio *audio;
    TD_NEED(path);
    TD_NEED(out);
    TD_TRY(td_audio_open_file(path, &audio, error));
    *out = as_public(audio);
    return TREADLE_OK;
}

treadle_status treadle_audio_open_memory(const void *bytes, size_t n_bytes, treadle_audio **out, treadle_error *error) {
    td_audio *audio;
    TD_NEED(out);
    if (n_bytes) TD_NEED(bytes);
    TD_TRY(td_audio_open_memory(bytes, n_bytes, &audio, error));
    *out = as_public(audio);
    return TREADLE_OK;
}

treadle_status treadle_audio_new(const float *samples, int64_t n_frames, int32_t n_channels, int32_t sample_rate,
                                 treadle_audio **out, treadle_error *error) {
    td_audio *audio;
    TD_NEED(out);
    if (n_frames > 0) TD_NEED(samples);
    TD_TRY(td_audio_from_samples(samples, n_frames, n_channels, sample_rate, &audio, error));
    *out = as_public(audio);
    return TREADLE_OK;
}

void treadle_audio_free(treadle_audio *audio) { td_audio_free((td_audio *)audio); }

void treadle_audio_get_info(const treadle_audio *audio, treadle_audio_info *out) {
    if (!audio || !out) return;
    size_t size = out->struct_size;
    treadle_audio_info info = {.struct_size = size,
                               .sample_rate = audio->audio.rate_hz,
                               .n_channels = audio->audio.n_channels,
                               .n_frames = audio->audio.n_frames,
                               .samples = audio->audio.samples};
    memcpy(out, &info, TD_MIN(size, sizeof info));
}

treadle_status treadle_audio_to_mono(const treadle_audio *audio, int32_t sample_rate, treadle_audio **out,
                                     treadle_error *error) {
    td_audio *mono;
    TD_NEED(audio);
    TD_NEED(out);
    TD_TRY(td_audio_to_mono(&audio->audio, sample_rate, &mono, error));
    *out = as_public(mono);
    return TREADLE_OK;
}

/* --- extractors */
static treadle_status wrap(td_recipe *recipe, treadle_audio_extractor **out, treadle_error *error) {
    treadle_audio_extractor *extractor = td_alloc_zero(1, sizeof *extractor);
    if (!extractor) {
        td_recipe_free(recipe);
        return td_fail_memory(error, "an extractor", sizeof *extractor);
    }
    extractor->recipe = recipe;
    *out = extractor;
    return TREADLE_OK;
}

treadle_status treadle_audio_extractor_open(const char *path, const char *overrides_json, treadle_audio_extractor **out,
                                            treadle_error *error) {
    td_recipe *recipe = NULL;
    TD_NEED(path);
    TD_NEED(out);
    TD_TRY(td_audio_part_open(path, td_str_from(overrides_json), &recipe, error));
    return wrap(recipe, out, error);
}

treadle_status treadle_audio_extractor_parse(const char *json, size_t n_bytes, treadle_audio_extractor **out,
                                             treadle_error *error) {
    td_recipe *recipe = NULL;
    TD_NEED(json);
    TD_NEED(out);
    TD_TRY(td_recipe_parse((td_str){json, n_bytes}, "config", (td_str){0}, &recipe, error));
    return wrap(recipe, out, error);
}

treadle_status treadle_audio_extractor_of_model(const treadle_model *model, treadle_audio_extractor **out,
                                                treadle_error *error) {
    td_recipe *recipe = NULL;
    TD_NEED(model);
    TD_NEED(out);
    TD_TRY(td_audio_part_recipe(model->config, (td_str){0}, &recipe, error));
    return wrap(recipe, out, error);
}

void treadle_audio_extractor_free(treadle_audio_extractor *extractor) {
    if (!extractor) return;
    td_recipe_free(extractor->recipe);
    td_free(extractor);
}

int32_t treadle_audio_extractor_rate(const treadle_audio_extractor *extractor) {
    return extractor ? td_recipe_rate_hz(extractor->recipe) : 0;
}

int64_t treadle_audio_extractor_clip(const treadle_audio_extractor *extractor) {
    return extractor ? td_recipe_clip(extractor->recipe) : 0;
}

/* --- features */
void treadle_audio_features_options_init(treadle_audio_features_options *options) {
    *options = (treadle_audio_features_options){.struct_size = sizeof *options};
}

void treadle_features_free(treadle_features *features) {
    if (!features) return;
    for (size_t i = 0; features->names && i < features->features.n; i++) td_free(features->names[i]);
    td_free(features->names);
    td_features_free(&features->features);
    td_free(features);
}

/* The names outlive the extractor. */
static treadle_status copy_names(treadle_features *f, treadle_error *error) {
    f->names = td_alloc_zero(f->features.n, sizeof *f->names);
    if (!f->names) return td_fail_memory(error, "features", 0);
    for (size_t i = 0; i < f->features.n; i++)
        if (!(f->names[i] = td_strdup(f->features.specs[i].name))) return td_fail_memory(error, "features", 0);
    return TREADLE_OK;
}

static treadle_status run(const td_recipe *recipe, const td_audio *mono, const treadle_audio_features_options *o,
                          treadle_features **out, treadle_error *error) {
    td_feature_options options = {.whole = o->whole};
    if (o->offset >= mono->n_frames && mono->n_frames > 0)
        return td_fail(error, TREADLE_INVALID_ARGUMENT,
                       "expected an offset below the audio's %lld samples at %d Hz, found %lld",
                       (long long)mono->n_frames, mono->rate_hz, (long long)o->offset);
    int64_t rest = mono->n_frames - TD_MIN(o->offset, mono->n_frames);
    int64_t n = o->length > 0 ? TD_MIN(o->length, rest) : rest;
    treadle_features *f = td_alloc_zero(1, sizeof *f);
    if (!f) return td_fail_memory(error, "features", sizeof *f);
    treadle_status status =
        td_recipe_run(recipe, mono->samples + (mono->n_frames - rest), n, &options, &f->features, error);
    if (status == TREADLE_OK) status = copy_names(f, error);
    if (status == TREADLE_OK) *out = f;
    else treadle_features_free(f);
    return status;
}

treadle_status treadle_audio_features(const treadle_audio_extractor *extractor, const treadle_audio *audio,
                                      const treadle_audio_features_options *options, treadle_features **out,
                                      treadle_error *error) {
    treadle_audio_features_options o;
    td_audio *made = NULL;
    TD_NEED(extractor);
    TD_NEED(audio);
    TD_NEED(out);
    treadle_audio_features_options_init(&o);
    TD_TRY(td_api_options(options, &o, sizeof o, "treadle_audio_features_options_init", error));
    if (o.offset < 0 || o.length < 0)
        return td_fail(error, TREADLE_INVALID_ARGUMENT,
                       "expected an offset and a length of at least 0, found %lld and %lld", (long long)o.offset,
                       (long long)o.length);
    const td_audio *mono = &audio->audio;
    int rate_hz = td_recipe_rate_hz(extractor->recipe);
    if (mono->n_channels != 1 || mono->rate_hz != rate_hz) {
        TD_TRY(td_audio_to_mono(mono, rate_hz, &made, error));
        mono = made;
    }
    treadle_status status = run(extractor->recipe, mono, &o, out, error);
    td_audio_free(made);
    return status;
}

size_t treadle_features_count(const treadle_features *features) { return features ? features->features.n : 0; }

const char *treadle_features_name(const treadle_features *features, size_t index) {
    return index < treadle_features_count(features) ? features->names[index] : "";
}

void treadle_features_tensor(const treadle_features *features, size_t index, treadle_tensor *out) {
    if (!out) return;
    *out = (treadle_tensor){0};
    if (index >= treadle_features_count(features)) return;
    td_tensor_to_public(&features->features.tensors[index], out);
}

/* --- transcripts */
treadle_status treadle_transcribe(treadle_model *model, const treadle_audio *audio,
                                  const treadle_transcribe_options *options, treadle_transcript **out,
                                  treadle_error *error) {
    treadle_transcribe_options own;
    TD_NEED(model);
    TD_NEED(audio);
    TD_NEED(out);
    treadle_transcribe_options_init(&own);
    if (options) TD_TRY(td_api_options(options, &own, sizeof own, "treadle_transcribe_options_init", error));
    return td_transcribe(model, &audio->audio, &own, out, error);
}
