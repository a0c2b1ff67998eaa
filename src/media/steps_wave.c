/* media/steps_wave.c - steps over the whole waveform, and how it is cut into frames. */
#include "base/alloc.h"
#include "media/steps.h"

#include <math.h>

enum { MAX_FRAME = TD_FFT_MAX_N };

static treadle_status resize(td_wave *wave, int64_t left, int64_t n, float value, treadle_error *err) {
    if (n > TD_AUDIO_MAX_SAMPLES)
        return td_fail(err, TREADLE_LIMIT, "padding makes %lld samples of the audio (at most %d)", (long long)n,
                       TD_AUDIO_MAX_SAMPLES);
    if (left + wave->n > n) wave->n = n - left;
    float *x = td_realloc_array(wave->x, (size_t)n, sizeof(float));
    if (!x) return td_fail_memory(err, "samples", (size_t)n * sizeof(float));
    wave->x = x;
    if (left && wave->n) memmove(x + left, x, (size_t)wave->n * sizeof(float));
    for (int64_t i = 0; i < left; i++) x[i] = value;
    for (int64_t i = left + wave->n; i < n; i++) x[i] = value;
    wave->n = n;
    wave->start += left;
    wave->n_valid = TD_MIN(wave->n_valid, n - wave->start);
    return TREADLE_OK;
}

/* --- scale: x * by */
typedef struct scale_params {
    float by;
} scale_params;

void *td_read_scale(td_step_reader *r) {
    scale_params *p = td_step_alloc(r, 1, sizeof *p);
    if (p) p->by = (float)td_step_number(r, "by", 1, -1e9, 1e9);
    return p;
}

treadle_status td_wave_scale(const void *params, td_wave *wave, treadle_error *err) {
    const scale_params *p = params;
    (void)err;
    if (p->by == 1.0f) return TREADLE_OK;
    for (int64_t i = 0; i < wave->n; i++) wave->x[i] *= p->by;
    return TREADLE_OK;
}

/* --- clip: cut to a length, padded to it on the right */
typedef struct clip_params {
    int64_t samples;
    bool cut, pad;
    float value;
} clip_params;

void *td_read_clip(td_step_reader *r) {
    clip_params *p = td_step_alloc(r, 1, sizeof *p);
    if (!p) return NULL;
    p->samples = td_step_samples(r, "samples", "seconds");
    if (p->samples < 0) td_step_fail(r, NULL, TREADLE_CONFIG, "expected a length in \"samples\" or \"seconds\"");
    p->cut = td_step_bool(r, "cut", true);
    p->pad = td_step_bool(r, "pad", true);
    p->value = (float)td_step_number(r, "value", 0, -1e9, 1e9);
    return p;
}

int64_t td_clip_samples(const void *params, bool *fixed) {
    const clip_params *p = params;
    *fixed = p->cut && p->pad;
    return p->samples;
}

treadle_status td_wave_clip(const void *params, td_wave *wave, treadle_error *err) {
    const clip_params *p = params;
    if ((wave->n > p->samples && p->cut) || (wave->n < p->samples && p->pad))
        return resize(wave, 0, p->samples, p->value, err);
    return TREADLE_OK;
}

/* --- pad: samples on the left and right, a least length, a multiple */
typedef struct pad_params {
    int64_t left, right, minimum, multiple;
    bool real; /* what is added counts as sound */
    float value;
} pad_params;

void *td_read_pad(td_step_reader *r) {
    pad_params *p = td_step_alloc(r, 1, sizeof *p);
    if (!p) return NULL;
    p->left = TD_MAX(td_step_samples(r, "left", "left_seconds"), 0);
    p->right = TD_MAX(td_step_samples(r, "right", "right_seconds"), 0);
    p->minimum = TD_MAX(td_step_samples(r, "minimum", NULL), 0);
    p->multiple = TD_MAX(td_step_samples(r, "multiple", NULL), 1);
    p->real = td_step_bool(r, "real", false);
    p->value = (float)td_step_number(r, "value", 0, -1e9, 1e9);
    return p;
}

treadle_status td_wave_pad(const void *params, td_wave *wave, treadle_error *err) {
    const pad_params *p = params;
    int64_t n = TD_MAX(wave->n, p->minimum);
    n = TD_ROUND_UP(n, p->multiple) + p->left + p->right;
    if (n == wave->n) return TREADLE_OK;
    TD_TRY(resize(wave, p->left, n, p->value, err));
    if (p->real) {
        wave->start = 0;
        wave->n_valid = n;
    }
    return TREADLE_OK;
}

/* --- standardize: zero mean and unit variance over the real samples; padding gets a value of its own */
typedef struct standardize_params {
    double epsilon;
    float value;
} standardize_params;

void *td_read_standardize(td_step_reader *r) {
    standardize_params *p = td_step_alloc(r, 1, sizeof *p);
    if (!p) return NULL;
    p->epsilon = td_step_number(r, "epsilon", 1e-7, 0, 1);
    p->value = (float)td_step_number(r, "value", 0, -1e9, 1e9);
    return p;
}

treadle_status td_wave_standardize(const void *params, td_wave *wave, treadle_error *err) {
    const standardize_params *p = params;
    double sum = 0, squares = 0;
    int64_t first = wave->start, end = wave->start + wave->n_valid;
    (void)err;
    for (int64_t i = first; i < end; i++) sum += wave->x[i];
    double mean = wave->n_valid ? sum / (double)wave->n_valid : 0;
    for (int64_t i = first; i < end; i++) squares += (wave->x[i] - mean) * (wave->x[i] - mean);
    double scale = 1 / sqrt((wave->n_valid ? squares / (double)wave->n_valid : 0) + p->epsilon);
    for (int64_t i = 0; i < wave->n; i++)
        wave->x[i] = i >= first && i < end ? (float)((wave->x[i] - mean) * scale) : p->value;
    return TREADLE_OK;
}

/* --- preemphasis: x[i] - c x[i-1]; the first sample is kept, padding is left alone */
typedef struct preemphasis_params {
    float coefficient;
} preemphasis_params;

void *td_read_preemphasis(td_step_reader *r) {
    preemphasis_params *p = td_step_alloc(r, 1, sizeof *p);
    if (p) p->coefficient = (float)td_step_number(r, "coefficient", 0, -1, 1);
    return p;
}

treadle_status td_wave_preemphasis(const void *params, td_wave *wave, treadle_error *err) {
    const preemphasis_params *p = params;
    (void)err;
    for (int64_t i = wave->start + wave->n_valid - 1; i > wave->start; i--)
        wave->x[i] -= p->coefficient * wave->x[i - 1];
    return TREADLE_OK;
}

/* --- frames */

/* Where frame 0 begins: at the first sample; half a frame before it, with padding on both sides or on the left alone;
 * or so that each frame's middle lies in the middle of its hop. */
enum { PAD_NONE, PAD_CENTER, PAD_LEFT, PAD_MIDDLE };
static const char *const pad_words[] = {"none", "center", "left", "middle", NULL};
/* What lies beyond the ends: zeros; the samples mirrored about the last one, or about the edge behind it; mirrored
 * about the first one at the start and zeros at the end. */
enum { MODE_ZEROS, MODE_REFLECT, MODE_MIRROR, MODE_REFLECT_START };
static const char *const mode_words[] = {"zeros", "reflect", "mirror", "reflect_start", NULL};
/* Which frames count as real: those whose first sample, last sample of the hop, last sample of the window, or the one
 * behind the window is real; or all. */
enum { VALID_START, VALID_HOP, VALID_WINDOW, VALID_NEXT, VALID_ALL };
static const char *const valid_words[] = {"start", "hop", "window", "next", "all", NULL};

void *td_read_frames(td_step_reader *r) {
    td_framing *p = td_step_alloc(r, 1, sizeof *p);
    if (!p) return NULL;
    int64_t length = td_step_samples(r, "length", "length_seconds");
    int64_t milliseconds = td_step_samples(r, NULL, "length_ms");
    if (length < 0) length = milliseconds;
    int64_t hop = td_step_samples(r, "hop", "hop_seconds");
    milliseconds = td_step_samples(r, NULL, "hop_ms");
    if (hop < 0) hop = milliseconds;
    if (r->status == TREADLE_OK && (length < 1 || length > MAX_FRAME))
        td_step_fail(r, length < 0 ? NULL : "length", TREADLE_CONFIG,
                     length < 0 ? "expected a \"length\" of the frames in samples, found none"
                                : "expected frames of 1 to %d samples, found %lld",
                     MAX_FRAME, (long long)length);
    if (r->status == TREADLE_OK && (hop < 1 || hop > TD_AUDIO_MAX_RATE_HZ * 60LL))
        td_step_fail(r, hop < 0 ? NULL : "hop", TREADLE_CONFIG,
                     "expected a \"hop\" of at least 1 sample between frames, found %s", hop < 0 ? "none" : "0");
    p->length = (int)length;
    p->hop = (int)hop;
    p->span = p->length + (int)td_step_int(r, "more", 0, 0, 1);
    p->pad = td_step_word(r, "pad", pad_words, PAD_NONE);
    p->pad_mode = td_step_word(r, "pad_mode", mode_words, MODE_ZEROS);
    p->valid = td_step_word(r, "valid", valid_words, VALID_START);
    p->drop_last = td_step_bool(r, "drop_last", false);
    p->minimum = td_step_int(r, "minimum", 0, 0, 1);
    r->width = p->length;
    r->span = p->span;
    return p;
}

static int64_t lead(const td_framing *f) {
    switch (f->pad) {
    case PAD_CENTER:
    case PAD_LEFT: return f->length / 2;
    case PAD_MIDDLE: return f->length / 2 - f->hop / 2;
    default: return 0;
    }
}

int64_t td_framing_count(const td_framing *f, int64_t n) {
    int64_t all = n, count;
    if (f->pad == PAD_CENTER) all += 2 * (f->length / 2);
    if (f->pad == PAD_LEFT) all += f->length / 2;
    if (f->pad == PAD_MIDDLE) count = (n + f->hop / 2) / f->hop;
    else count = all < f->span ? 0 : (all - f->span) / f->hop + 1;
    return f->drop_last && count > 0 ? count - 1 : count;
}

int64_t td_framing_valid(const td_framing *f, const td_wave *wave, int64_t n_frames) {
    int64_t offset = 0;
    if (f->valid == VALID_ALL) return n_frames;
    if (f->valid == VALID_HOP) offset = f->hop - 1;
    if (f->valid == VALID_WINDOW) offset = f->length - 1;
    if (f->valid == VALID_NEXT) offset = f->length - (f->pad == PAD_LEFT ? lead(f) : 0);
    int64_t rest = wave->n_valid - offset; /* frames t with t * hop < rest */
    return rest <= 0 ? 0 : TD_MIN((rest + f->hop - 1) / f->hop, n_frames);
}

/* The sample that stands at index i outside [0, n); n > 0. */
static int64_t mirrored(int64_t i, int64_t n, int mode) {
    int64_t period = mode == MODE_MIRROR ? 2 * n : 2 * (n - 1);
    if (period == 0) return 0;
    i %= period;
    if (i < 0) i += period;
    if (i < n) return i;
    return mode == MODE_MIRROR ? period - 1 - i : period - i;
}

void td_framing_cut(const td_framing *f, const td_wave *wave, int64_t index, double *out) {
    int64_t first = index * f->hop - lead(f);
    const float *x = wave->x;
    if (first >= 0 && first + f->span <= wave->n) {
        for (int i = 0; i < f->span; i++) out[i] = x[first + i];
        return;
    }
    for (int i = 0; i < f->span; i++) {
        int64_t at = first + i;
        bool inside = at >= 0 && at < wave->n;
        bool zero = f->pad_mode == MODE_ZEROS || (f->pad_mode == MODE_REFLECT_START && at >= 0) || wave->n == 0;
        if (!inside && zero) out[i] = 0;
        else out[i] = x[inside ? at : mirrored(at, wave->n, f->pad_mode)];
    }
}
