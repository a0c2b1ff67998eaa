/* plan/names.c - what the names of inputs and outputs say: state, layer, key or value, cross attention, modality.
 *
 * Source: the contract of the config, section 4 "Names". */
#include "plan/build.h"

#include <ctype.h>

enum { MAX_WORDS = 20, NAME_BYTES = 256 };

typedef struct words {
    char lower[NAME_BYTES];
    td_str list[MAX_WORDS];
    size_t n;
} words;

static bool is_word(td_str w, const char *const *list) {
    for (; *list; list++)
        if (td_str_is(w, *list)) return true;
    return false;
}

/* Cuts a name into lower-case words at signs, before capitals, and between letters and
 * digits; false if it does not fit. */
static bool cut(td_str name, words *out) {
    out->n = 0;
    if (name.n >= sizeof out->lower) return false;
    size_t begin = 0;
    for (size_t i = 0; i <= name.n; i++) {
        unsigned char c = i < name.n ? (unsigned char)name.p[i] : 0;
        bool part = i < name.n && isalnum(c);
        bool edge = part && i > begin &&
                    ((isdigit(c) != 0) != (isdigit((unsigned char)name.p[i - 1]) != 0) ||
                     (isupper(c) && islower((unsigned char)name.p[i - 1])));
        if ((!part || edge) && i > begin) {
            if (out->n == MAX_WORDS) return false;
            out->list[out->n++] = (td_str){out->lower + begin, i - begin};
        }
        if (i < name.n) out->lower[i] = (char)tolower(c);
        if (!part) begin = i + 1;
        else if (edge) begin = i;
    }
    return true;
}

static const char *const sides[] = {"in", "out", "input", "output", NULL};
static const char *const times[] = {"past",   "present", "presents", "cache", "new",     "old",   "next",    "updated",
                                    "update", "prev",    "previous", "prior", "initial", "final", "current", NULL};
static const char *const state_words[] = {"state", "states", "caches", "mems", "recurrent", NULL};
static const char *const keys[] = {"key", "keys", "k", NULL}, *const values[] = {"value", "values", "v", NULL};
static const char *const crosses[] = {"cross", "encoder", NULL}, *const selves[] = {"self", "decoder", NULL};

/* Digits to a layer number; false: too long to be one. */
static bool read_layer(td_str w, int32_t *layer) {
    if (w.n > 5) return false;
    *layer = 0;
    for (size_t i = 0; i < w.n; i++) *layer = *layer * 10 + (w.p[i] - '0');
    return true;
}

static bool append(td_name_parts *out, size_t *at, td_str w) {
    if (*at + w.n + 2 > sizeof out->stem) return false;
    if (*at) out->stem[(*at)++] = '.';
    memcpy(out->stem + *at, w.p, w.n);
    *at += w.n;
    out->stem[*at] = 0;
    return true;
}

void td_name_take_apart(td_str name, td_name_parts *out) {
    words ws;
    size_t at = 0;
    int parts = 0, both = 0, numbers = 0;
    bool after_time = false;
    *out = (td_name_parts){.layer = -1};
    if (!cut(name, &ws)) return;
    for (size_t i = 0; i < ws.n; i++) {
        td_str w = ws.list[i];
        bool time = is_word(w, times) || (td_str_is(w, "key") && i + 1 < ws.n && td_str_is(ws.list[i + 1], "values"));
        if (time || is_word(w, sides) || (after_time && td_str_is(w, "states"))) {
            out->says_side = true;
            out->says_time |= time;
            out->says_state |= time;
            i += td_str_is(w, "key");
            after_time = time;
            continue;
        }
        after_time = false;
        out->says_state |= is_word(w, state_words);
        if (is_word(w, keys)) out->part = TD_PART_KEY, parts++, w = TD_STR("key");
        else if (is_word(w, values)) out->part = TD_PART_VALUE, parts++, w = TD_STR("value");
        else if (td_str_is(w, "kv")) both++; /* "kv_cache.0.key" is a key */
        else if (is_word(w, crosses)) out->cross = true, w = TD_STR("cross");
        else if (is_word(w, selves)) continue;
        else if (isdigit((unsigned char)w.p[0]) && (numbers++, !read_layer(w, &out->layer))) return;
        if (!append(out, &at, w)) return;
    }
    if (parts != 1) out->part = parts == 0 && both == 1 ? TD_PART_BOTH : TD_PART_OTHER;
    if (numbers != 1) out->layer = -1;
    if (out->part != TD_PART_OTHER && out->layer >= 0) out->says_state = true;
}

/* xN and hn are what x and h0 become: names of recurrences that count their steps. */
bool td_name_same_stem(const td_name_parts *in, const td_name_parts *out) {
    if (!in->stem[0]) return false;
    if (strcmp(in->stem, out->stem) == 0) return true;
    size_t n = strlen(in->stem), m = strlen(out->stem);
    if (n > 2 && strcmp(in->stem + n - 2, ".0") == 0) n -= 2;
    if (m <= n || memcmp(in->stem, out->stem, n) != 0) return false;
    return strcmp(out->stem + n, "n") == 0 || strcmp(out->stem + n, ".n") == 0;
}

bool td_name_has_word(td_str name, const char *word) {
    words ws;
    if (!cut(name, &ws)) return false;
    for (size_t i = 0; i < ws.n; i++)
        if (td_str_is(ws.list[i], word)) return true;
    return false;
}

bool td_name_is_numbered(td_str symbol) { return td_str_starts(symbol, TD_STR("unk__")); }

td_modality td_name_modality(td_str name) {
    static const char *const images[] = {"image", "images", "pixel", "pixels", "vision", "visual", "patches", NULL};
    static const char *const audios[] = {"audio", "speech", "mel", "mels", "waveform", "wav", "sound", NULL};
    static const char *const videos[] = {"video", "videos", NULL};
    if (td_str_is(name, "input_features") || td_str_is(name, "input_values") ||
        td_str_is(name, "input_features_mask") || td_str_is(name, "feature_attention_mask"))
        return TD_MODALITY_AUDIO; /* what feature extractors of speech call their tensors */
    if (td_str_is(name, "grid_thw")) return TD_MODALITY_IMAGE;
    words ws;
    if (!cut(name, &ws)) return TD_MODALITY_NONE;
    td_modality found = TD_MODALITY_NONE;
    for (size_t i = 0; i < ws.n; i++) {
        if (is_word(ws.list[i], videos)) return TD_MODALITY_VIDEO; /* "pixel_values_videos" */
        if (is_word(ws.list[i], audios)) found = TD_MODALITY_AUDIO;
        else if (found == TD_MODALITY_NONE && is_word(ws.list[i], images)) found = TD_MODALITY_IMAGE;
    }
    return found;
}

bool td_name_is_features(td_str name) {
    static const char *const made[] = {"features", "feature", "embeds",  "embeddings", "embedding",
                                       "embed",    "states",  "tokens",  "hidden",     "encoded",
                                       "latents",  "encoder", "outputs", "deepstack",  NULL};
    if (td_str_is(name, "input_features")) return false;
    words ws;
    if (!cut(name, &ws)) return false;
    for (size_t i = 0; i < ws.n; i++)
        if (is_word(ws.list[i], made)) return true;
    return false;
}
