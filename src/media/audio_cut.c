/* media/audio_cut.c - whether a sound file ends before its own headers say, for formats whose decoders do not tell.
 *
 * RIFF, RF64, W64, AIFF, CAF and AU: the chunk of samples says its size. Ogg: the last page of a stream is marked. MPEG
 * audio: a frame says its size. Sources: the formats' own specifications; RFC 3533 for Ogg. */
#include "media/audio.h"
#include "media/mp3.h"

typedef struct container {
    const char *magic;
    size_t first;    /* offset of the first chunk */
    size_t id, size; /* bytes of a chunk's name and of its size */
    size_t align;
    bool big_endian, inclusive; /* the size counts the chunk's own header */
    const char *samples;        /* the chunk that holds them */
} container;

static const container containers[] = {
    {"RIFF", 12, 4, 4, 2, false, false, "data"}, {"RF64", 12, 4, 4, 2, false, false, "data"},
    {"riff", 40, 16, 8, 8, false, true, "data"}, {"FORM", 12, 4, 4, 2, true, false, "SSND"},
    {"caff", 8, 4, 8, 1, true, false, "data"},
};

static uint64_t number(const uint8_t *p, size_t n, bool big_endian) {
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) v = v << 8 | p[big_endian ? i : n - 1 - i];
    return v;
}

/* A recorder that did not know the length in advance, or writes to a pipe, says as much as the field holds. */
static bool is_unknown(uint64_t size, size_t bytes) {
    return bytes == 4 ? size >= 0x7fff0000u : size >= (uint64_t)1 << 62;
}

static bool chunks_are_cut(const container *c, const uint8_t *p, size_t n) {
    size_t header = c->id + c->size, at = c->first;
    uint64_t large = 0; /* RF64: the size of the samples, where four bytes do not hold it */
    while (at <= n && n - at >= header) {
        uint64_t size = number(p + at + c->id, c->size, c->big_endian);
        if (memcmp(p + at, "ds64", 4) == 0 && n - at >= header + 16) large = number(p + at + header + 8, 8, false);
        if (memcmp(p + at, c->samples, 4) == 0 && is_unknown(size, c->size) && large) return large > n - at - header;
        if (memcmp(p + at, c->samples, 4) == 0)
            return !is_unknown(size, c->size) && size - (c->inclusive ? TD_MIN(size, header) : 0) > n - at - header;
        if (c->inclusive) size = size < header ? 0 : size - header;
        if (size > n - at - header) return false; /* another chunk is longer than the file: no samples at all */
        at += header + (size_t)size;
        at = (at + c->align - 1) / c->align * c->align;
    }
    return false;
}

/* The last page is whole and ends a stream. */
static bool ogg_is_cut(const uint8_t *p, size_t n) {
    size_t at = n >= 27 ? n - 27 : 0;
    while (at > 0 && memcmp(p + at, "OggS", 4) != 0) at--;
    size_t segments = p[at + 26], bytes = 27 + segments;
    if (n - at < bytes) return true;
    for (size_t i = 0; i < segments; i++) bytes += p[at + 27 + i];
    return bytes > n - at || !(p[at + 5] & 4);
}

bool td_audio_bytes_are_cut(const uint8_t *p, size_t n) {
    for (size_t i = 0; i < TD_COUNT(containers); i++)
        if (n >= 12 && memcmp(p, containers[i].magic, 4) == 0) return chunks_are_cut(&containers[i], p, n);
    if (n >= 12 && memcmp(p, ".snd", 4) == 0) {
        uint64_t first = number(p + 4, 4, true), size = number(p + 8, 4, true);
        return !is_unknown(size, 4) && (first > n || size > n - first);
    }
    if (n >= 27 && memcmp(p, "OggS", 4) == 0) return ogg_is_cut(p, n);
    return td_mp3_is(p, n) && td_mp3_is_cut(p, n);
}
