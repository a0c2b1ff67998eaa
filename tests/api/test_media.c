/* The public calls for sound: ownership, options, threads' rules are those of the header; results
 * are checked in tests/media. */
#include "support/test.h"

#include "treadle/treadle.h"

#include <math.h>
#include <string.h>

static const char config[] =
    "{\"feature_extractor_type\": \"WhisperFeatureExtractor\", \"feature_size\": 20, \"chunk_length\": 1}";

static void make_tone(float *x, int n, int channels) {
    for (int i = 0; i < n * channels; i++) x[i] = (float)(0.5 * sin(i / channels * 0.2) / (1 + i % channels));
}

TEST(audio_from_samples) {
    float x[600 * 2];
    treadle_error error = {0};
    treadle_audio *audio, *mono;
    make_tone(x, 600, 2);
    CHECK_OK(treadle_audio_new(x, 600, 2, 8000, &audio, &error), &error);
    treadle_audio_info info = {.struct_size = sizeof info};
    treadle_audio_get_info(audio, &info);
    CHECK_EQ_INT(info.sample_rate, 8000);
    CHECK_EQ_INT(info.n_channels, 2);
    CHECK_EQ_INT(info.n_frames, 600);
    CHECK(info.samples != x && memcmp(info.samples, x, sizeof x) == 0);
    CHECK_OK(treadle_audio_to_mono(audio, 16000, &mono, &error), &error);
    treadle_audio_free(audio);
    treadle_audio_get_info(mono, &info);
    CHECK_EQ_INT(info.sample_rate, 16000);
    CHECK_EQ_INT(info.n_channels, 1);
    CHECK_EQ_INT(info.n_frames, 1200);
    CHECK_NEAR(info.samples[600], (x[600] + x[601]) / 2, 0.01);
    treadle_audio_free(mono);
    treadle_audio_free(NULL);

    x[5] = NAN;
    CHECK_STATUS(treadle_audio_new(x, 600, 2, 8000, &audio, &error), TREADLE_FORMAT, &error);
    CHECK_HAS_STR(error.message, "frame 2 of 600");
    CHECK_STATUS(treadle_audio_new(x, 600, 65, 8000, &audio, &error), TREADLE_LIMIT, &error);
    CHECK_STATUS(treadle_audio_new(x, INT64_MAX, 2, 8000, &audio, &error), TREADLE_LIMIT, &error);
    CHECK_STATUS(treadle_audio_new(x, -1, 2, 8000, &audio, &error), TREADLE_INVALID_ARGUMENT, &error);
    CHECK_STATUS(treadle_audio_new(NULL, 1, 1, 8000, &audio, &error), TREADLE_INVALID_ARGUMENT, &error);
    CHECK_STATUS(treadle_audio_open_file("nosuch.wav", &audio, &error), TREADLE_NOT_FOUND, &error);
    CHECK_STATUS(treadle_audio_open_memory("no sound", 8, &audio, &error), TREADLE_FORMAT, &error);
    CHECK_STATUS(treadle_audio_open_memory(NULL, 0, &audio, NULL), TREADLE_FORMAT, NULL);
}

TEST(features) {
    float x[9000];
    treadle_error error = {0};
    treadle_audio *audio;
    treadle_audio_extractor *extractor;
    treadle_features *features;
    treadle_audio_features_options options;
    treadle_tensor t;
    make_tone(x, 9000, 1);
    CHECK_OK(treadle_audio_new(x, 9000, 1, 16000, &audio, &error), &error);
    CHECK_OK(treadle_audio_extractor_parse(config, sizeof config - 1, &extractor, &error), &error);
    CHECK_EQ_INT(treadle_audio_extractor_rate(extractor), 16000);
    CHECK_EQ_INT(treadle_audio_extractor_clip(extractor), 16000);
    CHECK_OK(treadle_audio_features(extractor, audio, NULL, &features, &error), &error);

    treadle_audio_features_options_init(&options);
    options.offset = 1000;
    options.length = 3200;
    options.whole = true;
    treadle_features *part;
    CHECK_OK(treadle_audio_features(extractor, audio, &options, &part, &error), &error);
    options.offset = 9000;
    treadle_features *none = NULL;
    CHECK_STATUS(treadle_audio_features(extractor, audio, &options, &none, &error), TREADLE_INVALID_ARGUMENT, &error);
    options.offset = -1;
    CHECK_STATUS(treadle_audio_features(extractor, audio, &options, &none, &error), TREADLE_INVALID_ARGUMENT, &error);
    options.struct_size = 3;
    CHECK_STATUS(treadle_audio_features(extractor, audio, &options, &none, &error), TREADLE_INVALID_ARGUMENT, &error);
    CHECK(none == NULL);
    /* Features outlive audio and extractor. */
    treadle_audio_free(audio);
    treadle_audio_extractor_free(extractor);

    CHECK_EQ_INT(treadle_features_count(features), 2);
    CHECK_EQ_STR(treadle_features_name(features, 0), "input_features");
    CHECK_EQ_STR(treadle_features_name(features, 1), "attention_mask");
    treadle_features_tensor(features, 0, &t);
    CHECK_EQ_INT(t.dtype, TREADLE_DTYPE_FLOAT);
    CHECK(t.rank == 3 && t.dims[0] == 1 && t.dims[1] == 20 && t.dims[2] == 100);
    treadle_features_tensor(features, 1, &t);
    double real = 0;
    for (int i = 0; i < 100; i++) real += treadle_tensor_get(&t, i);
    CHECK_EQ_INT(real, 57); /* ceil(9000 / 160) */
    treadle_features_tensor(part, 0, &t);
    CHECK_EQ_INT(t.dims[2], 20);
    treadle_features_free(part);
    treadle_features_free(features);
    treadle_features_free(NULL);
}

TEST(extractors_that_are_none) {
    treadle_error error = {0};
    treadle_audio_extractor *extractor;
    CHECK_STATUS(treadle_audio_extractor_parse("{}", 2, &extractor, &error), TREADLE_CONFIG, &error);
    CHECK_STATUS(treadle_audio_extractor_parse("{", 1, &extractor, &error), TREADLE_FORMAT, &error);
    CHECK_STATUS(treadle_audio_extractor_open("nosuch", NULL, &extractor, &error), TREADLE_NOT_FOUND, &error);
    CHECK_STATUS(treadle_audio_extractor_open(td_test_source("docs"), NULL, &extractor, &error), TREADLE_NOT_FOUND,
                 &error);
    CHECK_HAS_STR(error.message, "preprocessor_config.json");
    CHECK_STATUS(treadle_audio_extractor_parse(NULL, 0, &extractor, &error), TREADLE_INVALID_ARGUMENT, &error);
    CHECK_EQ_INT(treadle_audio_extractor_rate(NULL), 0);
}
