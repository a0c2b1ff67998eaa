/* Fuzzes sound files and audio configs. The first byte chooses: even, a sound file through decoder, resampler and
 * log-mel; odd, a config that is translated and run on a little noise. */
#include "media/audio.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* The runtime looks for it by name. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);

/* libsndfile 1.2 loses the state of its Vorbis decoder when a stream's headers are damaged. */
const char *__lsan_default_suppressions(void) { return "leak:libsndfile\nleak:libvorbis\nleak:libogg\n"; }

static void check(bool holds) {
    if (!holds) abort();
}

static const char log_mel[] =
    "{\"feature_extractor_type\": \"WhisperFeatureExtractor\", \"chunk_length\": 1, \"feature_size\": 20}";

static void check_features(const td_recipe *recipe, td_features *features) {
    size_t n;
    const td_feature_spec *specs = td_recipe_outputs(recipe, &n);
    check(features->n == n && n > 0);
    for (size_t i = 0; i < n; i++) {
        const td_tensor *t = &features->tensors[i];
        check(t->dtype == specs[i].dtype && t->shape.rank == specs[i].shape.rank && t->data != NULL);
        for (int d = 0; d < t->shape.rank; d++)
            check(specs[i].shape.dims[d] < 0 || specs[i].shape.dims[d] == t->shape.dims[d]);
    }
    td_features_free(features);
}

static void run(const td_recipe *recipe, const float *samples, int64_t n) {
    td_features features;
    treadle_error err = {0};
    for (int whole = 0; whole < 2; whole++) {
        td_feature_options options = {.whole = whole};
        if (td_recipe_run(recipe, samples, n, &options, &features, &err) != TREADLE_OK) check(err.message[0] != 0);
        else if (!whole) check_features(recipe, &features);
        else td_features_free(&features);
    }
}

static void try_sound(const uint8_t *data, size_t size) {
    td_audio *audio, *mono;
    td_recipe *recipe;
    treadle_error err = {0};
    if (td_audio_open_memory(data, size, &audio, &err) != TREADLE_OK) {
        check(err.code != TREADLE_OK && err.message[0]);
        return;
    }
    check(audio->n_channels > 0 && audio->n_channels <= TD_AUDIO_MAX_CHANNELS && audio->n_frames >= 0);
    for (int64_t i = 0; i < audio->n_frames * audio->n_channels; i++) check(isfinite(audio->samples[i]));
    if (audio->n_frames < 100000 && td_audio_to_mono(audio, 16000, &mono, &err) == TREADLE_OK) {
        check(td_recipe_parse(TD_STR(log_mel), "log-mel", (td_str){0}, &recipe, &err) == TREADLE_OK);
        run(recipe, mono->samples, mono->n_frames);
        td_recipe_free(recipe);
        td_audio_free(mono);
    }
    td_audio_free(audio);
}

/* Large numbers may ask for much time and memory, rightly so: such a config is read, not run. */
static bool is_modest(td_str text) {
    int digits = 0;
    for (size_t i = 0; i < text.n; i++) {
        digits = isdigit((unsigned char)text.p[i]) ? digits + 1 : 0;
        if (digits > 4 || (i && text.p[i] == 'e' && isdigit((unsigned char)text.p[i - 1]))) return false;
    }
    return true;
}

static void try_config(td_str text) {
    td_recipe *recipe;
    treadle_error err = {0};
    float samples[900];
    uint32_t state = 1;
    for (size_t i = 0; i < TD_COUNT(samples); i++) {
        state = state * 1664525u + 1013904223u;
        samples[i] = (float)(state >> 8) / 16777216.0f - 0.5f;
    }
    if (td_recipe_parse(text, "config", (td_str){0}, &recipe, &err) != TREADLE_OK) {
        check(err.code != TREADLE_OK && err.message[0]);
        return;
    }
    if (is_modest(text)) run(recipe, samples, TD_COUNT(samples));
    td_recipe_free(recipe);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    if (data[0] % 2 == 0) try_sound(data + 1, size - 1);
    else try_config((td_str){(const char *)data + 1, size - 1});
    return 0;
}
