/* media/mel.c - triangular filters evenly spaced on a mel scale.
 *
 * Scales: HTK, 2595 log10(1 + f/700); Kaldi, 1127 ln(1 + f/700); Slaney, linear below 1 kHz (3 mels per 200 Hz) and
 * logarithmic above (27 mels per factor 6.4), as Slaney's Auditory Toolbox has it. A triangle rises and falls linearly
 * over hertz, or over mels ("triangles"). Slaney's normalisation gives every filter the same area over hertz. */
#include "media/steps.h"

#include <math.h>

enum { SCALE_SLANEY, SCALE_HTK, SCALE_KALDI };
static const char *const scale_words[] = {"slaney", "htk", "kaldi", NULL};
static const char *const norm_words[] = {"none", "slaney", NULL};
static const char *const triangle_words[] = {"hz", "mel", NULL};

enum { MAX_BINS = 4096 };

typedef struct mel_filter {
    int first, n; /* spectrum bins [first, first + n) */
    const double *weights;
} mel_filter;

typedef struct mel_params {
    int n;
    mel_filter *filters; /* [n] */
} mel_params;

static double to_mel(int scale, double hz) {
    if (scale == SCALE_HTK) return 2595 * log10(1 + hz / 700);
    if (scale == SCALE_KALDI) return 1127 * log(1 + hz / 700);
    return hz < 1000 ? 3 * hz / 200 : 15 + log(hz / 1000) * 27 / log(6.4);
}

static double to_hz(int scale, double mel) {
    if (scale == SCALE_HTK) return 700 * (pow(10, mel / 2595) - 1);
    if (scale == SCALE_KALDI) return 700 * (exp(mel / 1127) - 1);
    return mel < 15 ? 200 * mel / 3 : 1000 * exp(log(6.4) / 27 * (mel - 15));
}

/* The weights of one filter from its three corners; x: where each spectrum bin lies. Only the
 * run of bins above 0 is kept. */
static bool make_filter(td_step_reader *r, mel_filter *filter, const double corner[3], const double *x, int n_x,
                        double scale, int round) {
    int first = n_x, end = 0;
    for (int k = 0; k < n_x; k++)
        if (x[k] > corner[0] && x[k] < corner[2]) {
            first = TD_MIN(first, k);
            end = k + 1;
        }
    filter->first = TD_MIN(first, end);
    filter->n = end - filter->first;
    double *weights = td_step_alloc(r, (size_t)TD_MAX(filter->n, 1), sizeof *weights);
    if (!weights) return false;
    for (int i = 0; i < filter->n; i++) {
        double at = x[filter->first + i];
        double up = (at - corner[0]) / (corner[1] - corner[0]), down = (corner[2] - at) / (corner[2] - corner[1]);
        weights[i] = td_round_to(round, TD_MAX(TD_MIN(up, down), 0) * scale);
    }
    filter->weights = weights;
    return true;
}

void *td_read_mel(td_step_reader *r) {
    double nyquist = r->rate_hz / 2.0;
    int64_t n = td_step_int(r, "bins", -1, 1, MAX_BINS);
    int scale = td_step_word(r, "scale", scale_words, SCALE_SLANEY), norm = td_step_word(r, "norm", norm_words, 0);
    bool over_mel = td_step_word(r, "triangles", triangle_words, 0) == 1;
    int round = td_step_word(r, "round", td_round_words, 0);
    double low = td_step_number(r, "minimum_hz", 0, 0, 1e6), high = td_step_number(r, "maximum_hz", 0, -1e6, 1e6);
    if (high <= 0) high += nyquist;                   /* so far below the Nyquist frequency */
    bool between = td_step_bool(r, "between", false); /* only bins between those nearest to the two frequencies */
    if (r->status != TREADLE_OK) return NULL;
    if (n < 0) td_step_fail(r, NULL, TREADLE_CONFIG, "expected the number of mel filters in \"bins\", found none");
    else if (r->n_fft == 0 || r->width != r->n_fft / 2 + 1)
        td_step_fail(r, NULL, TREADLE_CONFIG, "expected a spectrum step before the mel filters");
    else if (low >= high)
        td_step_fail(r, "minimum_hz", TREADLE_CONFIG,
                     "expected mel filters from a lower to a higher frequency, found %g to %g Hz", low, high);
    mel_params *p = td_step_alloc(r, 1, sizeof *p);
    mel_filter *filters = td_step_alloc(r, (size_t)TD_MAX(n, 1), sizeof *filters);
    double *x = td_step_alloc(r, (size_t)TD_MAX(r->width, 1), sizeof *x);
    if (!p || !filters || !x) return NULL;
    for (int64_t k = 0; k < r->width; k++) {
        double hz = (double)k * r->rate_hz / r->n_fft;
        x[k] = over_mel ? to_mel(scale, hz) : hz;
        double per_bin = (double)r->rate_hz / r->n_fft,
               nearest[2] = {floor(low / per_bin + 0.5), floor(high / per_bin + 0.5)};
        if (between && ((double)k <= nearest[0] || (double)k >= nearest[1])) x[k] = INFINITY; /* in no triangle */
    }
    double from = to_mel(scale, low), step = (to_mel(scale, high) - from) / (double)(n + 1);
    for (int64_t i = 0; i < n; i++) {
        double corner[3], hz[3];
        for (int j = 0; j < 3; j++) {
            double mel = from + step * (double)(i + j);
            hz[j] = to_hz(scale, mel);
            corner[j] = over_mel ? mel : hz[j];
        }
        if (!make_filter(r, &filters[i], corner, x, (int)r->width, norm ? 2 / (hz[2] - hz[0]) : 1, round)) return NULL;
    }
    *p = (mel_params){(int)n, filters};
    r->room = TD_MAX(r->room, (size_t)n);
    r->width = n;
    return p;
}

void td_frame_mel(const void *params, td_frame *frame) {
    const mel_params *p = params;
    for (int i = 0; i < p->n; i++) {
        const mel_filter *filter = &p->filters[i];
        const double *x = frame->x + filter->first;
        double sum = 0;
        for (int k = 0; k < filter->n; k++) sum += filter->weights[k] * x[k];
        frame->spare[i] = sum;
    }
    memcpy(frame->x, frame->spare, (size_t)p->n * sizeof(double));
    frame->n = p->n;
}
