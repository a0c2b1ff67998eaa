/* media/resample.c - many channels at any rate to one channel at the wanted rate.
 *
 * The channels are averaged first, as Hugging Face's loaders do; then soxr's high quality resamples, as librosa does by
 * default. */
#include "base/alloc.h"
#include "media/audio.h"

#include <soxr.h>

static void downmix(const td_audio *audio, float *mono) {
    int n = audio->n_channels;
    for (int64_t t = 0; t < audio->n_frames; t++) {
        const float *frame = audio->samples + t * n;
        float sum = frame[0];
        for (int c = 1; c < n; c++) sum += frame[c];
        mono[t] = sum / (float)n;
    }
}

static treadle_status resample(const float *from, int64_t n_from, int from_hz, float *to, int64_t n_to, int to_hz,
                               treadle_error *err) {
    size_t consumed = 0, made = 0;
    soxr_io_spec_t io = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
    soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
    soxr_runtime_spec_t runtime = soxr_runtime_spec(1);
    soxr_error_t wrong = soxr_oneshot(from_hz, to_hz, 1, from, (size_t)n_from, &consumed, to, (size_t)n_to, &made, &io,
                                      &quality, &runtime);
    if (wrong)
        return td_fail(err, TREADLE_RUN, "resampling from %d to %d Hz failed: %s", from_hz, to_hz,
                       soxr_strerror(wrong));
    /* The filter's tail may end a sample early. */
    memset(to + made, 0, ((size_t)n_to - made) * sizeof *to);
    return TREADLE_OK;
}

treadle_status td_audio_to_mono(const td_audio *audio, int rate_hz, td_audio **out, treadle_error *err) {
    if (rate_hz < TD_AUDIO_MIN_RATE_HZ || rate_hz > TD_AUDIO_MAX_RATE_HZ)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected a sample rate of %d to %d Hz, found %d",
                       TD_AUDIO_MIN_RATE_HZ, TD_AUDIO_MAX_RATE_HZ, rate_hz);
    bool same = rate_hz == audio->rate_hz;
    int64_t n = (audio->n_frames * rate_hz + audio->rate_hz / 2) / audio->rate_hz;
    if (n > TD_AUDIO_MAX_SAMPLES)
        return td_fail(err, TREADLE_LIMIT, "the audio is too long: expected at most %d samples at %d Hz, found %lld",
                       TD_AUDIO_MAX_SAMPLES, rate_hz, (long long)n);
    td_audio *mono = td_alloc_zero(1, sizeof *mono);
    float *mixed = td_alloc_array((size_t)audio->n_frames, sizeof(float));
    float *samples = same ? mixed : td_alloc_array((size_t)n, sizeof(float));
    if (!mono || !mixed || !samples) {
        td_free(mono);
        td_free(mixed);
        if (!same) td_free(samples);
        return td_fail_memory(err, "samples", (size_t)n * sizeof(float));
    }
    downmix(audio, mixed);
    treadle_status status = TREADLE_OK;
    if (!same) {
        if (n > 0) status = resample(mixed, audio->n_frames, audio->rate_hz, samples, n, rate_hz, err);
        td_free(mixed);
    }
    *mono = (td_audio){.rate_hz = rate_hz, .n_channels = 1, .n_frames = n, .samples = samples};
    if (status == TREADLE_OK) *out = mono;
    else td_audio_free(mono);
    return status;
}
