/* media/steps_frame.c - steps over one frame: from samples to a spectrum to its logarithm. */
#include "media/steps.h"
#include "tensor/half.h"

#include <math.h>

void *td_read_nothing(td_step_reader *r) { return (void)r, NULL; }

/* --- rounding: the log of a quiet bin shows how the reference implementation rounded its window, so what was computed
 * in float32 there has to be here */
enum { ROUND_NONE, ROUND_F32, ROUND_BF16, ROUND_F16 };
const char *const td_round_words[] = {"none", "float32", "bfloat16", "float16", NULL};

double td_round_to(int word, double value) {
    float f = (float)value;
    switch (word) {
    case ROUND_F32: return f;
    case ROUND_BF16: return td_bf16_to_f32(td_f32_to_bf16(f));
    case ROUND_F16: return td_f16_to_f32(td_f32_to_f16(f));
    default: return value;
    }
}

/* --- remove_mean */
void td_frame_remove_mean(const void *params, td_frame *frame) {
    double sum = 0;
    (void)params;
    for (int i = 0; i < frame->n; i++) sum += frame->x[i];
    for (int i = 0; i < frame->n; i++) frame->x[i] -= sum / frame->n;
}

/* --- energy: the logarithm of the frame's energy, for a cepstrum's first value */
void td_frame_energy(const void *params, td_frame *frame) {
    double sum = 0;
    (void)params;
    for (int i = 0; i < frame->n; i++) sum += frame->x[i] * frame->x[i];
    frame->log_energy = log(TD_MAX(sum, 1.192092955078125e-07)); /* FLT_EPSILON, as Kaldi floors it */
}

/* --- frame_preemphasis: x[i] - c x[i-1] inside the frame, where before the first sample stands that sample itself; or
 * x[i+1] - c x[i], which needs the sample behind the frame */
typedef struct preemphasis_params {
    double coefficient;
    bool ahead, round;
} preemphasis_params;

void *td_read_frame_preemphasis(td_step_reader *r) {
    preemphasis_params *p = td_step_alloc(r, 1, sizeof *p);
    if (!p) return NULL;
    p->coefficient = td_step_number(r, "coefficient", 0, -1, 1);
    p->round = td_step_word(r, "round", td_round_words, ROUND_NONE) != ROUND_NONE;
    p->ahead = td_step_bool(r, "ahead", false);
    if (p->ahead && r->width >= r->span)
        td_step_fail(r, "ahead", TREADLE_CONFIG, "expected frames with one sample \"more\"");
    return p;
}

static inline double emphasised(const preemphasis_params *p, double x, double before) {
    if (!p->round) return x - p->coefficient * before;
    float product = (float)p->coefficient * (float)before;
    return (float)x - product;
}

void td_frame_preemphasis(const void *params, td_frame *frame) {
    const preemphasis_params *p = params;
    if (p->ahead) {
        for (int i = 0; i < frame->n; i++) frame->x[i] = emphasised(p, frame->x[i + 1], frame->x[i]);
        return;
    }
    for (int i = frame->n - 1; i > 0; i--) frame->x[i] = emphasised(p, frame->x[i], frame->x[i - 1]);
    frame->x[0] = emphasised(p, frame->x[0], frame->x[0]);
}

/* --- window: multiplied with the frame; a shorter one stands in the middle, zeros around it */
enum { WINDOW_HANN, WINDOW_HAMMING, WINDOW_POVEY, WINDOW_ONES };
static const char *const window_words[] = {"hann", "hamming", "povey", "ones", NULL};

typedef struct window_params {
    const double *weights; /* [n] */
    int n;
    bool round; /* the product, to float32 */
} window_params;

/* How the angle of the cosine is computed. A window made in float32 carries the rounding of its angle: index times a
 * rounded step, as torch has it; or index times 2 pi, divided, as written with NumPy arrays. */
enum { ANGLE_F64, ANGLE_F32, ANGLE_F32_DIVIDED };
static const char *const angle_words[] = {"float64", "float32", "float32_divided", NULL};

/* NumPy's cosine of float32 arrays, off by one unit in the last place now and then: Cody and Waite's reduction
 * in three steps and minimax polynomials. 37 of the 512 values of a Hann window come out other than rounded,
 * which a bin without energy shows. */
static float numpy_cosine(float x) {
    float q = rintf(x * 0x1.45f306p-1f); /* quarter turns */
    float r = fmaf(q, -0x1.921fb0p+00f, x);
    r = fmaf(q, -0x1.5110b4p-22f, r);
    r = fmaf(q, -0x1.846988p-48f, r);
    float r2 = r * r;
    float cosine = fmaf(fmaf(0x1.98e616p-16f, r2, -0x1.6c06dcp-10f), r2, 0x1.55553cp-05f);
    cosine = fmaf(fmaf(cosine, r2, -0.5f), r2, 1);
    float sine = fmaf(fmaf(0x1.7d3bbcp-19f, r2, -0x1.a06bbap-13f), r2, 0x1.11119ap-07f);
    sine = fmaf(fmaf(sine, r2, -0x1.555556p-03f) * r2, r, r);
    int quarter = (int)q + 1;
    float value = quarter & 1 ? cosine : sine;
    return quarter & 2 ? -value : value;
}

/* Value i of a window of so many steps. */
static double window_value(int word, int angle, int64_t i, int64_t steps) {
    double alpha = word == WINDOW_HAMMING ? 0.54 : 0.5, beta = 1 - alpha;
    if (word == WINDOW_ONES || steps == 0) return 1;
    if (angle != ANGLE_F64) {
        float step = (float)(2 * M_PI / (double)steps), turned = (float)(2 * M_PI) * (float)i, exact = (float)i * step;
        float cosine = angle == ANGLE_F32 ? (float)cos((double)exact) : numpy_cosine(turned / (float)steps);
        float product = (float)beta * cosine;
        return (float)alpha - product;
    }
    double value = alpha - beta * cos(2 * M_PI * (double)i / (double)steps);
    return word == WINDOW_POVEY ? pow(value, 0.85) : value;
}

void *td_read_window(td_step_reader *r) {
    window_params *p = td_step_alloc(r, 1, sizeof *p);
    double *weights = td_step_alloc(r, (size_t)TD_MAX(r->width, 1), sizeof *weights);
    if (!p || !weights) return NULL;
    int name = td_step_word(r, "name", window_words, WINDOW_HANN);
    int64_t length = td_step_int(r, "length", r->width, 1, TD_FFT_MAX_N);
    bool periodic = td_step_bool(r, "periodic", true);
    int round = td_step_word(r, "round", td_round_words, ROUND_NONE);
    int angle = td_step_word(r, "angle", angle_words, ANGLE_F64);
    if (r->status != TREADLE_OK) return NULL;
    if (length > r->width) {
        td_step_fail(r, "length", TREADLE_CONFIG,
                     "expected a window no longer than the frame's %lld samples, found %lld", (long long)r->width,
                     (long long)length);
        return NULL;
    }
    const double *given = td_step_numbers(r, "weights", length);
    int64_t first = (r->width - length) / 2, steps = periodic ? length : length - 1;
    for (int64_t i = 0; i < length; i++) {
        weights[first + i] = td_round_to(round, given ? given[i] : window_value(name, angle, i, steps));
    }
    *p = (window_params){weights, (int)r->width, round != ROUND_NONE};
    return p;
}

void td_frame_window(const void *params, td_frame *frame) {
    const window_params *p = params;
    for (int i = 0; i < p->n; i++) {
        double product = frame->x[i] * p->weights[i];
        frame->x[i] = p->round ? (double)(float)product : product;
    }
}

/* --- spectrum: power or magnitude of the Fourier transform of the frame, zeros behind it */
typedef struct spectrum_params {
    const td_fft *fft;
    int n, bins;
    bool magnitude;
    double floor; /* of the power */
} spectrum_params;

void *td_read_spectrum(td_step_reader *r) {
    spectrum_params *p = td_step_alloc(r, 1, sizeof *p);
    if (!p) return NULL;
    int64_t n = td_step_int(r, "n", 0, 0, INT64_MAX);
    if (n == 0) { /* the next power of two, or the one after it */
        for (n = 2; n < r->width; n *= 2) {}
        if (td_step_bool(r, "twice", false)) n *= 2;
    }
    int power = td_step_int(r, "power", 2, 1, 2) == 2 ? 2 : 1;
    p->floor = td_step_number(r, "floor", 0, 0, 1);
    if (r->status != TREADLE_OK) return NULL;
    if (n < r->width) {
        td_step_fail(r, "n", TREADLE_CONFIG,
                     "expected a Fourier transform at least as long as the frame's %lld samples, found %lld",
                     (long long)r->width, (long long)n);
        return NULL;
    }
    treadle_error wrong;
    treadle_status status = td_fft_new(r->arena, n, &p->fft, &wrong);
    if (status != TREADLE_OK) {
        td_step_fail(r, "n", status == TREADLE_INVALID_ARGUMENT ? TREADLE_CONFIG : status, "%s", wrong.message);
        return NULL;
    }
    p->n = (int)n;
    p->bins = (int)n / 2 + 1;
    p->magnitude = power == 1;
    r->n_fft = (int)n;
    r->width = p->bins;
    r->room = TD_MAX(r->room, td_fft_room(p->fft));
    return p;
}

void td_frame_spectrum(const void *params, td_frame *frame) {
    const spectrum_params *p = params;
    for (int i = frame->n; i < p->n; i++) frame->x[i] = 0;
    td_fft_power(p->fft, frame->x, frame->x, frame->spare);
    frame->n = p->bins;
    if (p->floor > 0)
        for (int i = 0; i < frame->n; i++) frame->x[i] = TD_MAX(frame->x[i], p->floor);
    if (p->magnitude)
        for (int i = 0; i < frame->n; i++) frame->x[i] = sqrt(frame->x[i]);
}

/* --- log: of max(x, floor) + offset */
static const char *const base_words[] = {"e", "10", NULL};

typedef struct log_params {
    bool decimal;
    double floor, offset;
} log_params;

void *td_read_log(td_step_reader *r) {
    log_params *p = td_step_alloc(r, 1, sizeof *p);
    if (!p) return NULL;
    p->decimal = td_step_word(r, "base", base_words, 0) == 1;
    p->floor = td_step_number(r, "floor", 0, 0, 1e9);
    p->offset = td_step_number(r, "offset", 0, 0, 1e9);
    if (r->status == TREADLE_OK && p->floor <= 0 && p->offset <= 0)
        td_step_fail(r, NULL, TREADLE_CONFIG,
                     "expected a \"floor\" or an \"offset\" above 0: silence has no logarithm");
    return p;
}

void td_frame_log(const void *params, td_frame *frame) {
    const log_params *p = params;
    for (int i = 0; i < frame->n; i++) {
        double x = TD_MAX(frame->x[i], p->floor) + p->offset;
        frame->x[i] = p->decimal ? log10(x) : log(x);
    }
}

/* --- cepstrum: orthonormal cosine transform of the frame, its first `count` values, liftered as Kaldi does */
enum { MAX_CEPSTRA = 512 };

typedef struct cepstrum_params {
    const double *matrix; /* [count, n], lifter included */
    int n, count;
    bool energy; /* the first value is the frame's energy instead */
} cepstrum_params;

void *td_read_cepstrum(td_step_reader *r) {
    cepstrum_params *p = td_step_alloc(r, 1, sizeof *p);
    int64_t count = td_step_int(r, "count", 13, 1, TD_MIN(TD_MAX(r->width, 1), MAX_CEPSTRA));
    double lifter = td_step_number(r, "lifter", 0, 0, 1000);
    if (!p || r->status != TREADLE_OK) return NULL;
    double *matrix = td_step_alloc(r, (size_t)count * (size_t)r->width, sizeof *matrix);
    if (!matrix) return NULL;
    double width = (double)r->width;
    for (int64_t k = 0; k < count; k++) {
        double lift = lifter > 0 ? 1 + 0.5 * lifter * sin(M_PI * (double)k / lifter) : 1;
        double scale = sqrt((k ? 2 : 1) / width) * lift;
        for (int64_t i = 0; i < r->width; i++)
            matrix[k * r->width + i] = scale * cos(M_PI / width * ((double)i + 0.5) * (double)k);
    }
    *p = (cepstrum_params){matrix, (int)r->width, (int)count, td_step_bool(r, "energy", false)};
    r->room = TD_MAX(r->room, (size_t)count);
    r->width = count;
    return p;
}

void td_frame_cepstrum(const void *params, td_frame *frame) {
    const cepstrum_params *p = params;
    for (int k = 0; k < p->count; k++) {
        double sum = 0;
        for (int i = 0; i < p->n; i++) sum += p->matrix[k * p->n + i] * frame->x[i];
        frame->spare[k] = sum;
    }
    memcpy(frame->x, frame->spare, (size_t)p->count * sizeof(double));
    if (p->energy) frame->x[0] = frame->log_energy;
    frame->n = p->count;
}
