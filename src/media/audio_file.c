/* media/audio_file.c - sound files to float samples through libsndfile, MPEG audio through mp3.h, from a memory
 * map or from the caller's bytes.
 *
 * What a header claims is never believed: memory grows with the samples that were in fact decoded. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "media/mp3.h"

#include <math.h>
#include <sndfile.h>

static const char formats[] = "WAV, FLAC, OGG (Vorbis, Opus), MP3, AIFF, CAF or W64";

/* --- libsndfile's view of a run of bytes */
typedef struct byte_source {
    const uint8_t *bytes;
    sf_count_t n, at;
} byte_source;

static sf_count_t source_length(void *ctx) { return ((byte_source *)ctx)->n; }
static sf_count_t source_tell(void *ctx) { return ((byte_source *)ctx)->at; }

static sf_count_t source_seek(sf_count_t offset, int whence, void *ctx) {
    byte_source *s = ctx;
    sf_count_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? s->at : s->n, to;
    if (TD_ADD_OVERFLOWS(base, offset, &to) || to < 0) return -1;
    return s->at = TD_MIN(to, s->n);
}

static sf_count_t source_read(void *out, sf_count_t n, void *ctx) {
    byte_source *s = ctx;
    n = TD_MAX(TD_MIN(n, s->n - s->at), 0);
    if (n) memcpy(out, s->bytes + s->at, (size_t)n);
    s->at += n;
    return n;
}

static sf_count_t source_write(const void *from, sf_count_t n, void *ctx) {
    (void)from, (void)n, (void)ctx;
    return 0;
}

/* --- checks that every way in shares */
static treadle_status check_form(int64_t n_channels, int64_t rate_hz, treadle_error *err) {
    if (n_channels < 1 || n_channels > TD_AUDIO_MAX_CHANNELS)
        return td_fail(err, TREADLE_LIMIT, "expected 1 to %d channels, found %lld", TD_AUDIO_MAX_CHANNELS,
                       (long long)n_channels);
    if (rate_hz < TD_AUDIO_MIN_RATE_HZ || rate_hz > TD_AUDIO_MAX_RATE_HZ)
        return td_fail(err, TREADLE_LIMIT, "expected a sample rate of %d to %d Hz, found %lld", TD_AUDIO_MIN_RATE_HZ,
                       TD_AUDIO_MAX_RATE_HZ, (long long)rate_hz);
    return TREADLE_OK;
}

static treadle_status too_long(int64_t n_channels, int64_t rate_hz, treadle_error *err) {
    return td_fail(
        err, TREADLE_LIMIT,
        "the audio is too long: expected at most %d samples in all channels (%lld s of %lld channels at %lld "
        "Hz)",
        TD_AUDIO_MAX_SAMPLES, (long long)(TD_AUDIO_MAX_SAMPLES / n_channels / rate_hz), (long long)n_channels,
        (long long)rate_hz);
}

/* Filters and spectra of anything larger would overflow. */
static treadle_status check_samples(const td_audio *audio, treadle_error *err) {
    int64_t n = audio->n_frames * audio->n_channels;
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(audio->samples[i]) <= TD_AUDIO_MAX_SAMPLE))
            return td_fail(err, TREADLE_FORMAT,
                           "expected finite samples of at most %.0f (full scale is 1), found %g in frame %lld of %lld",
                           (double)TD_AUDIO_MAX_SAMPLE, (double)audio->samples[i], (long long)(i / audio->n_channels),
                           (long long)audio->n_frames);
    return TREADLE_OK;
}

static treadle_status new_audio(int n_channels, int rate_hz, td_audio **out, treadle_error *err) {
    td_audio *audio = td_alloc_zero(1, sizeof *audio);
    if (!audio) return td_fail_memory(err, "audio", sizeof *audio);
    audio->n_channels = n_channels;
    audio->rate_hz = rate_hz;
    audio->n_said = -1;
    *out = audio;
    return TREADLE_OK;
}

void td_audio_free(td_audio *audio) {
    if (!audio) return;
    td_free(audio->samples);
    td_free(audio);
}

treadle_status td_audio_from_samples(const float *samples, int64_t n_frames, int n_channels, int rate_hz,
                                     td_audio **out, treadle_error *err) {
    td_audio *audio = NULL;
    TD_TRY(check_form(n_channels, rate_hz, err));
    if (n_frames < 0) return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected a count of frames, found a negative one");
    if (n_frames > TD_AUDIO_MAX_SAMPLES / n_channels) return too_long(n_channels, rate_hz, err);
    TD_TRY(new_audio(n_channels, rate_hz, &audio, err));
    size_t n = (size_t)n_frames * (size_t)n_channels;
    audio->samples = td_alloc_array(n, sizeof(float));
    audio->n_frames = n_frames;
    treadle_status status = TREADLE_OK;
    if (!audio->samples) status = td_fail_memory(err, "samples", n * sizeof(float));
    else {
        if (n) memcpy(audio->samples, samples, n * sizeof(float));
        status = check_samples(audio, err);
    }
    if (status == TREADLE_OK) *out = audio;
    else td_audio_free(audio);
    return status;
}

/* --- decoding */

/* An open decoder: one of the two. */
typedef struct decoder {
    byte_source source;
    SNDFILE *file;
    td_mp3 *mp3;
    int n_channels, rate_hz;
    int64_t n_said; /* frames that the headers say; -1: they do not */
    bool damaged;
} decoder;

static treadle_status decoder_open(decoder *d, const void *bytes, size_t n, treadle_error *err) {
    SF_VIRTUAL_IO io = {source_length, source_seek, source_read, source_write, source_tell};
    SF_INFO info = {0};
    if (n == 0) return td_fail(err, TREADLE_FORMAT, "expected %s, found no bytes at all", formats);
    if (td_mp3_is(bytes, n)) return td_mp3_open(bytes, n, &d->mp3, &d->n_channels, &d->rate_hz, &d->n_said, err);
    d->source = (byte_source){bytes, (sf_count_t)TD_MIN(n, (size_t)INT64_MAX), 0};
    d->file = sf_open_virtual(&io, SFM_READ, &info, &d->source);
    if (!d->file)
        return td_fail(err, TREADLE_FORMAT, "expected %s, found %zu bytes that cannot be decoded: %s", formats, n,
                       sf_strerror(NULL));
    d->n_channels = info.channels;
    d->rate_hz = info.samplerate;
    d->n_said = info.frames < SF_COUNT_MAX ? info.frames : -1;
    return TREADLE_OK;
}

static int64_t decoder_read(decoder *d, float *out, int64_t room) {
    if (d->mp3) return td_mp3_read(d->mp3, out, room, &d->damaged);
    int64_t got = sf_readf_float(d->file, out, room);
    d->damaged |= sf_error(d->file) != SF_ERR_NO_ERROR;
    return TD_MIN(got, room);
}

static void decoder_close(decoder *d) {
    if (d->file) sf_close(d->file);
    td_mp3_close(d->mp3);
}

/* Reads until the decoder has no more. */
static treadle_status read_all(decoder *d, td_audio *audio, treadle_error *err) {
    enum { FIRST_FRAMES = 1 << 15 };
    int64_t capacity = 0, most = TD_AUDIO_MAX_SAMPLES / audio->n_channels;
    for (;;) {
        if (audio->n_frames == capacity) {
            if (capacity >= most) return too_long(audio->n_channels, audio->rate_hz, err);
            int64_t more = TD_MIN(capacity ? capacity * 2 : FIRST_FRAMES, most);
            size_t bytes = (size_t)audio->n_channels * sizeof(float);
            float *samples = td_realloc_array(audio->samples, (size_t)more, bytes);
            if (!samples) return td_fail_memory(err, "samples", (size_t)more * bytes);
            audio->samples = samples;
            capacity = more;
        }
        int64_t got = decoder_read(d, audio->samples + audio->n_frames * audio->n_channels, capacity - audio->n_frames);
        if (got <= 0) return TREADLE_OK;
        audio->n_frames += got;
    }
}

treadle_status td_audio_open_memory(const void *bytes, size_t n, td_audio **out, treadle_error *err) {
    decoder d = {.n_said = -1};
    td_audio *audio = NULL;

    treadle_status status = decoder_open(&d, bytes, n, err);
    if (status == TREADLE_OK) status = check_form(d.n_channels, d.rate_hz, err);
    if (status == TREADLE_OK) status = new_audio(d.n_channels, d.rate_hz, &audio, err);
    if (status == TREADLE_OK) status = read_all(&d, audio, err);
    if (status == TREADLE_OK && audio->n_frames == 0 && (d.n_said > 0 || d.mp3))
        status = td_fail(err, TREADLE_FORMAT, "the audio's header promises samples, but none can be decoded");
    if (status == TREADLE_OK) status = check_samples(audio, err);
    decoder_close(&d);
    if (status == TREADLE_OK) {
        audio->n_said = d.n_said;
        audio->is_cut = d.damaged || d.n_said > audio->n_frames || td_audio_bytes_are_cut(bytes, n);
        *out = audio;
    } else {
        td_audio_free(audio);
    }
    return status;
}

/* What is transcribed of half a recording would else pass for all of it. */
static void note_cut(const char *path, const td_audio *audio) {
    double seconds = (double)audio->n_frames / audio->rate_hz;
    if (!audio->is_cut) return;
    if (audio->n_said > audio->n_frames)
        td_log(TD_LOG_WARNING, "%s: the file is cut short or damaged: %.2f s of %.2f s can be decoded", path, seconds,
               (double)audio->n_said / audio->rate_hz);
    else td_log(TD_LOG_WARNING, "%s: the file is cut short or damaged: %.2f s can be decoded", path, seconds);
}

treadle_status td_audio_open_file(const char *path, td_audio **out, treadle_error *err) {
    td_mmap map;
    TD_TRY(td_mmap_open(path, &map, err));
    treadle_status status = td_audio_open_memory(map.data, map.n, out, err);
    td_mmap_close(&map);
    if (status != TREADLE_OK) td_error_file(err, path);
    else note_cut(path, *out);
    return status;
}
