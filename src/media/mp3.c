/* media/mp3.c - MPEG audio through libmpg123, kept quiet, with the settings that libsndfile gives it.
 *
 * Source of the frame header: ISO/IEC 11172-3 section 2.4.1.3, ISO/IEC 13818-3. */
#include "media/mp3.h"

#include "base/alloc.h"

#include <mpg123.h>
#include <stdio.h>

struct td_mp3 {
    mpg123_handle *handle;
    const uint8_t *bytes;
    size_t n, at;
    int channels;
};

/* --- frame headers */

/* Bytes of the frame that begins here; 0: none does. */
static size_t frame_bytes(const uint8_t *p, size_t n) {
    /* kbit/s by row and index: MPEG 1 layers I, II, III; MPEG 2 layer I, layers II and III */
    static const uint16_t rates[5][15] = {
        {0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448},
        {0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384},
        {0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320},
        {0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256},
        {0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160},
    };
    static const uint32_t hz[3] = {44100, 48000, 32000};
    if (n < 4 || p[0] != 0xff || (p[1] & 0xe0) != 0xe0) return 0;
    unsigned version = p[1] >> 3 & 3, layer = 4 - (p[1] >> 1 & 3u), rate = p[2] >> 4, frequency = p[2] >> 2 & 3;
    if (version == 1 || layer == 4 || rate == 15 || rate == 0 || frequency == 3) return 0;
    bool first = version == 3;
    size_t bits = rates[first ? layer - 1 : layer == 1 ? 3 : 4][rate] * 1000u, padding = p[2] >> 1 & 1;
    size_t samples_hz = hz[frequency] >> (first ? 0 : version == 2 ? 1 : 2);
    if (layer == 1) return (12 * bits / samples_hz + padding) * 4;
    return (first || layer == 2 ? 144 : 72) * bits / samples_hz + padding;
}

/* Where the bytes go on after ID3 tags. */
static size_t skip_tags(const uint8_t *p, size_t n) {
    size_t at = 0;
    while (n - at >= 10 && memcmp(p + at, "ID3", 3) == 0) {
        size_t size = 10;
        for (int i = 0, shift = 21; i < 4; i++, shift -= 7) size += (size_t)(p[at + 6 + (size_t)i] & 0x7f) << shift;
        if (size > n - at) return n;
        at += size;
    }
    return at;
}

bool td_mp3_is(const uint8_t *bytes, size_t n) {
    size_t at = skip_tags(bytes, n);
    return frame_bytes(bytes + at, n - at) > 0;
}

bool td_mp3_is_cut(const uint8_t *bytes, size_t n) {
    for (size_t at = skip_tags(bytes, n), frame = 1; frame && at < n; at += frame) {
        frame = frame_bytes(bytes + at, n - at);
        if (frame > n - at) return true;
    }
    return false;
}

/* The first frame of many files is a tag that counts the others. */
static bool has_tag(const uint8_t *bytes, size_t n) {
    size_t at = skip_tags(bytes, n), end = TD_MIN(n, at + 200);
    for (; at + 4 <= end; at++)
        if (memcmp(bytes + at, "Xing", 4) == 0 || memcmp(bytes + at, "Info", 4) == 0 ||
            memcmp(bytes + at, "VBRI", 4) == 0)
            return true;
    return false;
}

/* --- the decoder */

static ssize_t read_bytes(void *ctx, void *out, size_t n) {
    td_mp3 *m = ctx;
    n = TD_MIN(n, m->n - m->at);
    if (n) memcpy(out, m->bytes + m->at, n);
    m->at += n;
    return (ssize_t)n;
}

static off_t seek_bytes(void *ctx, off_t offset, int whence) {
    td_mp3 *m = ctx;
    off_t base = whence == SEEK_SET ? 0 : (off_t)(whence == SEEK_CUR ? m->at : m->n), to;
    if (TD_ADD_OVERFLOWS(base, offset, &to) || to < 0 || (size_t)to > m->n) return -1;
    m->at = (size_t)to;
    return to;
}

static bool start(td_mp3 *m, long *rate, int *channels) {
    int encoding;
    m->handle = mpg123_new(NULL, NULL);
    if (!m->handle) return false;
    mpg123_param(m->handle, MPG123_REMOVE_FLAGS, MPG123_AUTO_RESAMPLE, 0);
    mpg123_param(m->handle, MPG123_ADD_FLAGS,
                 MPG123_QUIET | MPG123_FORCE_FLOAT | MPG123_GAPLESS | MPG123_NO_FRANKENSTEIN, 0);
    return mpg123_replace_reader_handle(m->handle, read_bytes, seek_bytes, NULL) == MPG123_OK &&
           mpg123_open_handle(m->handle, m) == MPG123_OK &&
           mpg123_getformat(m->handle, rate, channels, &encoding) == MPG123_OK && encoding == MPG123_ENC_FLOAT_32;
}

treadle_status td_mp3_open(const uint8_t *bytes, size_t n, td_mp3 **out, int *out_channels, int *out_rate_hz,
                           int64_t *out_frames, treadle_error *err) {
    long rate = 0;
    td_mp3 *m = td_alloc_zero(1, sizeof *m);
    if (!m) return td_fail_memory(err, "a decoder", sizeof *m);
    m->bytes = bytes;
    m->n = n;
    if (!start(m, &rate, &m->channels)) {
        treadle_status status =
            td_fail(err, TREADLE_FORMAT, "expected MPEG audio, found %zu bytes that cannot be decoded: %s", n,
                    m->handle ? mpg123_strerror(m->handle) : "out of memory");
        td_mp3_close(m);
        return status;
    }
    *out_channels = m->channels;
    *out_rate_hz = (int)rate;
    off_t frames = has_tag(bytes, n) ? mpg123_length(m->handle) : -1;
    *out_frames = frames < 0 ? -1 : frames;
    *out = m;
    return TREADLE_OK;
}

int64_t td_mp3_read(td_mp3 *m, float *out, int64_t room, bool *out_damaged) {
    size_t frame = (size_t)m->channels * sizeof *out, done = 0, want = (size_t)TD_MIN(room, (int64_t)1 << 20) * frame;
    int status = mpg123_read(m->handle, (void *)out, want, &done);
    *out_damaged |= status != MPG123_OK && status != MPG123_DONE && status != MPG123_NEW_FORMAT;
    if (status == MPG123_NEW_FORMAT &&
        !done) { /* told once, before the first samples; later ones are of another kind */
        long rate;
        int channels, encoding;
        if (mpg123_getformat(m->handle, &rate, &channels, &encoding) != MPG123_OK || channels != m->channels) return 0;
        status = mpg123_read(m->handle, (void *)out, want, &done);
        *out_damaged |= status != MPG123_OK && status != MPG123_DONE;
    }
    return (int64_t)(done / frame);
}

void td_mp3_close(td_mp3 *m) {
    if (!m) return;
    if (m->handle) mpg123_delete(m->handle);
    td_free(m);
}
