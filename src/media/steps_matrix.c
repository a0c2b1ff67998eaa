/* media/steps_matrix.c - steps over all frames at once: ranges, normalisation, padding, stacking. */
#include "base/alloc.h"
#include "media/steps.h"

#include <math.h>

/* --- limit_range: values below the maximum less `below` are raised to that */
typedef struct limit_params {
    double below, maximum;
    bool given; /* maximum; else it is the clip's */
} limit_params;

void *td_read_limit_range(td_step_reader *r) {
    limit_params *p = td_step_alloc(r, 1, sizeof *p);
    if (!p) return NULL;
    p->below = td_step_number(r, "below", 8, 0, 1e9);
    p->maximum = td_step_number(r, "maximum", NAN, -1e9, 1e9);
    p->given = !isnan(p->maximum);
    return p;
}

treadle_status td_matrix_limit_range(const void *params, td_frames *frames, treadle_error *err) {
    const limit_params *p = params;
    size_t n = (size_t)frames->n * (size_t)frames->width;
    (void)err;
    if (n == 0) return TREADLE_OK;
    float top = frames->x[0];
    if (p->given) top = (float)p->maximum;
    else
        for (size_t i = 1; i < n; i++) top = TD_MAX(top, frames->x[i]);
    float least = top - (float)p->below;
    for (size_t i = 0; i < n; i++) frames->x[i] = TD_MAX(frames->x[i], least);
    return TREADLE_OK;
}

/* --- affine: (x + add) * multiply / divide */
typedef struct affine_params {
    float add, multiply, divide;
} affine_params;

void *td_read_affine(td_step_reader *r) {
    affine_params *p = td_step_alloc(r, 1, sizeof *p);
    if (!p) return NULL;
    p->add = (float)(td_step_number(r, "add", 0, -1e9, 1e9) - td_step_number(r, "subtract", 0, -1e9, 1e9));
    p->multiply = (float)td_step_number(r, "multiply", 1, -1e9, 1e9);
    p->divide = (float)td_step_number(r, "divide", 1, -1e9, 1e9);
    if (r->status == TREADLE_OK && p->divide == 0)
        td_step_fail(r, "divide", TREADLE_CONFIG, "expected a divisor, found 0");
    return p;
}

treadle_status td_matrix_affine(const void *params, td_frames *frames, treadle_error *err) {
    const affine_params *p = params;
    size_t n = (size_t)frames->n * (size_t)frames->width;
    (void)err;
    for (size_t i = 0; i < n; i++) frames->x[i] = (frames->x[i] + p->add) * p->multiply / p->divide;
    return TREADLE_OK;
}

/* --- normalize: each bin to zero mean and unit variance over the real frames */
static const char *const epsilon_words[] = {"deviation", "variance", NULL};

typedef struct normalize_params {
    bool means, variances, unbiased, in_variance, zero_single;
    double epsilon;
} normalize_params;

void *td_read_normalize(td_step_reader *r) {
    normalize_params *p = td_step_alloc(r, 1, sizeof *p);
    if (!p) return NULL;
    p->means = td_step_bool(r, "means", true);
    p->variances = td_step_bool(r, "variances", true);
    p->unbiased = td_step_bool(r, "unbiased", false);
    p->zero_single = td_step_bool(r, "zero_single", false);
    p->epsilon = td_step_number(r, "epsilon", 0, 0, 1e9);
    p->in_variance = td_step_word(r, "epsilon_in", epsilon_words, 0) == 1;
    return p;
}

/* A constant bin has no variance: without an epsilon it becomes NaN, as in the reference implementations. */
treadle_status td_matrix_normalize(const void *params, td_frames *frames, treadle_error *err) {
    const normalize_params *p = params;
    int width = frames->width;
    double count = (double)frames->n_valid;
    double *sums = td_alloc_zero((size_t)width * 2, sizeof *sums);
    if (!sums) return td_fail_memory(err, "statistics of the features", (size_t)width * 2 * sizeof *sums);
    double *squares = sums + width;
    for (int64_t t = 0; t < frames->n_valid; t++)
        for (int i = 0; i < width; i++) sums[i] += frames->x[t * width + i];
    for (int i = 0; i < width; i++) sums[i] /= count;
    for (int64_t t = 0; t < frames->n_valid; t++)
        for (int i = 0; i < width; i++) {
            double off = frames->x[t * width + i] - sums[i];
            squares[i] += off * off;
        }
    bool single = p->zero_single && frames->n_valid < 2;
    for (int i = 0; i < width; i++) {
        double variance = squares[i] / (p->unbiased ? count - 1 : count);
        double deviation = p->in_variance ? sqrt(variance + p->epsilon) : sqrt(variance) + p->epsilon;
        double mean = p->means ? sums[i] : 0, scale = p->variances ? 1 / deviation : 1;
        if (single) scale = 0;
        for (int64_t t = 0; t < frames->n; t++)
            frames->x[t * width + i] = (float)((frames->x[t * width + i] - mean) * scale);
    }
    td_free(sums);
    return TREADLE_OK;
}

/* --- bins: given values of each bin subtracted, then divided by */
typedef struct bins_params {
    const double *subtract, *divide; /* [width] or NULL */
} bins_params;

void *td_read_bins(td_step_reader *r) {
    bins_params *p = td_step_alloc(r, 1, sizeof *p);
    if (!p) return NULL;
    p->subtract = td_step_numbers(r, "subtract", r->width);
    p->divide = td_step_numbers(r, "divide", r->width);
    for (int64_t i = 0; p->divide && i < r->width; i++)
        if (p->divide[i] == 0)
            td_step_fail(r, "divide", TREADLE_CONFIG, "expected divisors, found 0 for bin %lld", (long long)i);
    return p;
}

treadle_status td_matrix_bins(const void *params, td_frames *frames, treadle_error *err) {
    const bins_params *p = params;
    int width = frames->width;
    (void)err;
    for (int64_t t = 0; t < frames->n; t++)
        for (int i = 0; i < width; i++) {
            double x = frames->x[t * width + i];
            if (p->subtract) x -= p->subtract[i];
            if (p->divide) x /= p->divide[i];
            frames->x[t * width + i] = (float)x;
        }
    return TREADLE_OK;
}

/* --- clear_invalid: frames of padding become 0 */
treadle_status td_matrix_clear_invalid(const void *params, td_frames *frames, treadle_error *err) {
    size_t width = (size_t)frames->width, valid = (size_t)frames->n_valid;
    (void)params, (void)err;
    if ((size_t)frames->n > valid)
        memset(frames->x + valid * width, 0, ((size_t)frames->n - valid) * width * sizeof(float));
    return TREADLE_OK;
}

/* --- drop_frames: so many at the end */
typedef struct drop_params {
    int64_t last;
} drop_params;

void *td_read_drop_frames(td_step_reader *r) {
    drop_params *p = td_step_alloc(r, 1, sizeof *p);
    if (p) p->last = td_step_int(r, "last", 1, 0, 1 << 20);
    return p;
}

treadle_status td_matrix_drop_frames(const void *params, td_frames *frames, treadle_error *err) {
    const drop_params *p = params;
    (void)err;
    frames->n -= TD_MIN(p->last, frames->n);
    frames->n_valid = TD_MIN(frames->n_valid, frames->n);
    return TREADLE_OK;
}

/* --- clip_frames: cut and padded to the frames of a clip; pad_frames: padded to a multiple */
typedef struct pad_params {
    int64_t to, multiple;
    bool minimum; /* filled with the least value there is */
    float value;
} pad_params;

void *td_read_clip_frames(td_step_reader *r) {
    pad_params *p = td_step_alloc(r, 1, sizeof *p);
    if (!p) return NULL;
    int64_t samples = td_step_samples(r, NULL, "seconds");
    p->to = td_step_int(r, "frames", 0, 1, TD_FRAMES_MAX_VALUES);
    if (p->to == 0) p->to = TD_MAX(samples, 0) / td_step_int(r, "hop", 1, 1, TD_AUDIO_MAX_SAMPLES);
    if (p->to == 0)
        td_step_fail(r, NULL, TREADLE_CONFIG, "expected a length in \"frames\", or in \"seconds\" and a \"hop\"");
    p->multiple = 1;
    p->minimum = td_step_bool(r, "with_minimum", false);
    p->value = (float)td_step_number(r, "value", 0, -1e9, 1e9);
    return p;
}

void *td_read_pad_frames(td_step_reader *r) {
    pad_params *p = td_step_alloc(r, 1, sizeof *p);
    if (!p) return NULL;
    p->multiple = td_step_int(r, "multiple", 1, 1, 1 << 20) * td_step_int(r, "times", 1, 1, 1 << 10);
    p->value = (float)td_step_number(r, "value", 0, -1e9, 1e9);
    return p;
}

static treadle_status set_frames(td_frames *frames, int64_t n, treadle_error *err) {
    if (n > TD_FRAMES_MAX_VALUES / TD_MAX(frames->width, 1))
        return td_fail(err, TREADLE_LIMIT, "the features have %lld frames of %d values (at most %d values in all)",
                       (long long)n, frames->width, TD_FRAMES_MAX_VALUES);
    float *x = td_realloc_array(frames->x, (size_t)n * (size_t)frames->width, sizeof(float));
    if (!x) return td_fail_memory(err, "features", (size_t)n * (size_t)frames->width * sizeof(float));
    frames->x = x;
    frames->n = n;
    frames->n_valid = TD_MIN(frames->n_valid, n);
    return TREADLE_OK;
}

treadle_status td_matrix_pad_frames(const void *params, td_frames *frames, treadle_error *err) {
    const pad_params *p = params;
    size_t before = (size_t)frames->n * (size_t)frames->width;
    int64_t n = p->to ? p->to : TD_ROUND_UP(frames->n, p->multiple);
    if (n == frames->n) return TREADLE_OK;
    float value = p->value;
    if (p->minimum && before) {
        value = frames->x[0];
        for (size_t i = 1; i < before; i++) value = TD_MIN(value, frames->x[i]);
    }
    TD_TRY(set_frames(frames, n, err));
    for (size_t i = before; i < (size_t)n * (size_t)frames->width; i++) frames->x[i] = value;
    return TREADLE_OK;
}

/* --- stack: `frames` neighbours become one frame, `hop` apart */
typedef struct stack_params {
    int64_t frames, hop;
    bool edges; /* as many outputs as hops begin, the first and last frame repeated around; else whole stacks only */
} stack_params;

void *td_read_stack(td_step_reader *r) {
    stack_params *p = td_step_alloc(r, 1, sizeof *p);
    if (!p) return NULL;
    p->frames = td_step_int(r, "frames", 1, 1, 64);
    p->hop = td_step_int(r, "hop", p->frames, 1, 64);
    p->edges = td_step_bool(r, "edges", false);
    r->width *= p->frames;
    return p;
}

treadle_status td_matrix_stack(const void *params, td_frames *frames, treadle_error *err) {
    const stack_params *p = params;
    size_t width = (size_t)frames->width;
    int64_t n = p->edges ? (frames->n + p->hop - 1) / p->hop
                         : (frames->n < p->frames ? 0 : (frames->n - p->frames) / p->hop + 1);
    int64_t lead = p->edges ? (p->frames - 1) / 2 : 0;
    if (n > TD_FRAMES_MAX_VALUES / (frames->width * p->frames))
        return td_fail(err, TREADLE_LIMIT, "the features have too many values (at most %d)", TD_FRAMES_MAX_VALUES);
    float *x = td_alloc_array((size_t)n * (size_t)p->frames * width, sizeof *x);
    if (!x) return td_fail_memory(err, "features", (size_t)n * (size_t)p->frames * width * sizeof *x);
    for (int64_t t = 0; t < n; t++)
        for (int64_t j = 0; j < p->frames; j++) {
            int64_t from = TD_MIN(TD_MAX(t * p->hop + j - lead, 0), frames->n - 1);
            memcpy(x + (size_t)(t * p->frames + j) * width, frames->x + (size_t)from * width, width * sizeof *x);
        }
    /* A stack is real if its second frame is; with edges, or alone, if its first is. */
    int64_t second = p->edges || p->frames < 2 ? 0 : 1, rest = frames->n_valid - second;
    int64_t valid = rest <= 0 ? 0 : (rest + p->hop - 1) / p->hop;
    td_free(frames->x);
    *frames = (td_frames){x, n, TD_MIN(valid, n), (int)(width * (size_t)p->frames)};
    return TREADLE_OK;
}
