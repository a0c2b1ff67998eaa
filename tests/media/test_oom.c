/* Each allocation in turn fails while sound is decoded, resampled, a config is read and features are made:
 * TREADLE_OUT_OF_MEMORY and no leak (the sanitizers look). */
#include "support/allocations.h"
#include "support/test.h"

#include "media/audio.h"

#include <math.h>
#include <string.h>

static const char config[] =
    "{\"sampling_rate\": 16000, \"steps\": [{\"step\": \"clip\", \"seconds\": 0.1}, {\"step\": \"pad\", \"left\": 100}, "
    "{\"step\": \"frames\", \"length\": 40, \"hop\": 16, \"pad\": \"center\", \"pad_mode\": \"reflect\"}, {\"step\": \"window\"}, "
    "{\"step\": \"spectrum\"}, {\"step\": \"mel\", \"bins\": 9}, {\"step\": \"log\", \"floor\": 0.1}, {\"step\": \"cepstrum\", \"count\": 4}, "
    "{\"step\": \"normalize\", \"epsilon\": 1}, {\"step\": \"bins\", \"subtract\": [1, 2, 3, 4]}, {\"step\": \"clip_frames\", \"frames\": 200}, "
    "{\"step\": \"pad_frames\", \"multiple\": 7}, {\"step\": \"stack\", \"frames\": 2}], "
    "\"outputs\": [{\"name\": \"a\"}, {\"name\": \"b\", \"kind\": \"mask\"}, {\"name\": \"c\", \"kind\": \"count\"}]}";

/* A mono WAV file of 16-bit samples at 8 kHz. */
static size_t make_wav(uint8_t *out, int n) {
    static const uint8_t head[44] = {'R',  'I',  'F', 'F', 0, 0, 0,  0, 'W', 'A', 'V',  'E',  'f', 'm',
                                     't',  ' ',  16,  0,   0, 0, 1,  0, 1,   0,   0x40, 0x1f, 0,   0,
                                     0x80, 0x3e, 0,   0,   2, 0, 16, 0, 'd', 'a', 't',  'a'};
    memcpy(out, head, sizeof head);
    uint32_t bytes = (uint32_t)n * 2, riff = bytes + 36;
    memcpy(out + 4, &riff, 4);
    memcpy(out + 40, &bytes, 4);
    for (int i = 0; i < n; i++) {
        int16_t sample = (int16_t)(9000 * sin(i * 0.3));
        memcpy(out + 44 + 2 * i, &sample, 2);
    }
    return 44 + bytes;
}

static treadle_status everything(const uint8_t *wav, size_t n_bytes) {
    td_audio *audio = NULL, *mono = NULL;
    td_recipe *recipe = NULL;
    td_features features = {0};
    treadle_error err = {0};
    treadle_status status = td_audio_open_memory(wav, n_bytes, &audio, &err);
    if (status == TREADLE_OK) status = td_audio_to_mono(audio, 16000, &mono, &err);
    if (status == TREADLE_OK)
        status = td_recipe_parse(td_str_from(config), "config", td_str_from("{\"x\": 1}"), &recipe, &err);
    if (status == TREADLE_OK) status = td_recipe_run(recipe, mono->samples, mono->n_frames, NULL, &features, &err);
    if (status == TREADLE_OK) {
        CHECK_EQ_INT(features.n, 3);
        td_features_free(&features);
    }
    td_recipe_free(recipe);
    td_audio_free(mono);
    td_audio_free(audio);
    return status;
}

TEST(every_allocation) {
    uint8_t wav[44 + 2 * 1000];
    size_t n = make_wav(wav, 1000);
    td_test_allocations = 0;
    CHECK_EQ_INT(everything(wav, n), TREADLE_OK);
    int all = td_test_allocations;
    CHECK(all > 20);
    for (int i = 1; i <= all; i++) {
        td_test_allocations = 0;
        td_test_fail_at = i;
        treadle_status status = everything(wav, n);
        td_test_fail_at = INT_MAX;
        if (!CHECK_EQ_INT(status, TREADLE_OUT_OF_MEMORY)) {
            FAIL("allocation %d of %d", i, all);
            return;
        }
    }
}
