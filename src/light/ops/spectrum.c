/* light/ops/spectrum.c - HannWindow, HammingWindow, BlackmanWindow, MelWeightMatrix: tables for spectra, made from a
 * few numbers. Source: ONNX op texts, and for the mel edges ONNX's reference implementation. */
#include "light/op.h"
#include "tensor/half.h"

#include <math.h>

#define PI 3.14159265358979323846

enum { MOST = 1 << 30 };

static treadle_status read_dtype(td_prepare *p, td_dtype *out) {
    int64_t number = td_attr_int(p, "output_datatype");
    td_kind kind = number > 0 && number < TD_DTYPE_END ? td_dtype_kind((td_dtype)number) : TD_KIND_NONE;
    if ((kind != TD_KIND_FLOAT && kind != TD_KIND_INT && kind != TD_KIND_UINT) || td_dtype_bits((td_dtype)number) < 8)
        return td_unsupported(p, "output_datatype %lld", (long long)number);
    *out = (td_dtype)number;
    return TREADLE_OK;
}

/* One number, of any type. *known false: not known at open. */
static treadle_status read_number(td_infer *in, size_t i, double *out, bool *known) {
    const td_tensor *t = &in->inputs[i]->tensor;
    int64_t count;

    *known = false;
    if (!td_shape_count(&t->shape, &count)) return TREADLE_OK;
    if (count != 1) return td_infer_fail(in, "input %zu has %lld elements; expected one", i, (long long)count);
    *known = t->data != NULL;
    if (*known) *out = td_load_f64(t->dtype, t->data, 0);
    return TREADLE_OK;
}

/* The same of a count. */
static treadle_status read_count(td_infer *in, size_t i, const char *what, int64_t least, int64_t *out, bool *known) {
    double number = 0;
    TD_TRY(read_number(in, i, &number, known));
    if (*known && !(number >= (double)least && number <= MOST))
        return td_infer_fail(in, "%s is %g; expected %lld to 2^30", what, number, (long long)least);
    *out = *known ? (int64_t)number : TD_DIM_UNKNOWN;
    return TREADLE_OK;
}

/* --- windows: sums of cosines --- */

typedef struct window_state {
    double factors[3]; /* of cos(0), cos(a), cos(2 a) */
    bool periodic;
    td_dtype dtype;
} window_state;

static treadle_status window_prepare(td_prepare *p, double a, double b, double c) {
    window_state *s = p->state;

    s->factors[0] = a;
    s->factors[1] = b;
    s->factors[2] = c;
    s->periodic = td_attr_int(p, "periodic") != 0;
    return read_dtype(p, &s->dtype);
}

static treadle_status window_infer(td_infer *in) {
    const window_state *s = in->state;
    td_shape out = {.rank = 1};
    bool known;

    TD_TRY(read_count(in, 0, "size", 0, &out.dims[0], &known));
    return td_infer_set(in, 0, s->dtype, &out);
}

static treadle_status window_run(td_run *r) {
    const window_state *s = r->state;
    const td_tensor *y = r->out[0];
    int64_t n = y ? y->shape.dims[0] : 0;
    double period = (double)(s->periodic ? n : n - 1);

    for (int64_t i = 0; i < n; i++) {
        double a = period > 0 ? 2 * PI * (double)i / period : PI; /* of one point: the middle */
        td_store_f64(y->dtype, y->data, i, s->factors[0] + s->factors[1] * cos(a) + s->factors[2] * cos(2 * a));
    }
    return TREADLE_OK;
}

#define WINDOW_OP(name, a, b, c)                                                                                       \
    static treadle_status name##_prepare(td_prepare *p) { return window_prepare(p, a, b, c); }                         \
    const td_op_impl td_op_##name##_window = {                                                                         \
        .state_bytes = sizeof(window_state), .prepare = name##_prepare, .infer = window_infer, .run = window_run};
WINDOW_OP(hann, 0.5, -0.5, 0)
WINDOW_OP(hamming, 25.0 / 46, -21.0 / 46, 0)
WINDOW_OP(blackman, 0.42, -0.5, 0.08)

/* --- MelWeightMatrix: num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz --- */

typedef struct mel_state {
    td_dtype dtype;
} mel_state;

static treadle_status mel_prepare(td_prepare *p) {
    mel_state *s = p->state;
    return read_dtype(p, &s->dtype);
}

static treadle_status mel_infer(td_infer *in) {
    const mel_state *s = in->state;
    td_shape out = {.rank = 2};
    int64_t length, rate;
    bool known;

    TD_TRY(read_count(in, 0, "num_mel_bins", 0, &out.dims[1], &known));
    TD_TRY(read_count(in, 2, "sample_rate", 1, &rate, &known));
    TD_TRY(read_count(in, 1, "dft_length", 0, &length, &known));
    out.dims[0] = known ? length / 2 + 1 : TD_DIM_UNKNOWN;
    return td_infer_set(in, 0, s->dtype, &out);
}

static double mel_of(double hertz) { return 2595 * log10(1 + hertz / 700); }

static double number(const td_run *r, size_t i) { return td_load_f64(r->in[i]->dtype, r->in[i]->data, 0); }

/* The spectrum's bin where an edge lies; beyond the spectrum: an error. */
static treadle_status edge_bin(td_run *r, int64_t edge, int64_t *out) {
    double n_edges = number(r, 0) + 2, low = mel_of(number(r, 3)), step = (mel_of(number(r, 4)) - low) / n_edges;
    double hertz = 700 * (pow(10, ((double)edge * step + low) / 2595) - 1);
    double bin = floor((number(r, 1) + 1) * hertz / number(r, 2));

    if (!(bin >= 0 && bin < (double)r->out[0]->shape.dims[0]))
        return td_run_fail(r, "edges of %g and %g hertz do not lie in the spectrum", number(r, 3), number(r, 4));
    *out = (int64_t)bin;
    return TREADLE_OK;
}

static treadle_status mel_run(td_run *r) {
    const td_tensor *y = r->out[0];
    int64_t count = y ? td_tensor_count(y) : 0, n = count ? y->shape.dims[1] : 0, low, middle, high;

    for (int64_t i = 0; i < count; i++) td_store_f64(y->dtype, y->data, i, 0);
    for (int64_t i = 0; i < n; i++) {
        TD_TRY(edge_bin(r, i, &low));
        TD_TRY(edge_bin(r, i + 1, &middle));
        TD_TRY(edge_bin(r, i + 2, &high));
        if (middle == low) td_store_f64(y->dtype, y->data, middle * n + i, 1);
        for (int64_t j = low; j <= middle && middle > low; j++)
            td_store_f64(y->dtype, y->data, j * n + i, (double)(j - low) / (double)(middle - low));
        for (int64_t j = middle; j < high; j++)
            td_store_f64(y->dtype, y->data, j * n + i, (double)(high - j) / (double)(high - middle));
    }
    return TREADLE_OK;
}

const td_op_impl td_op_mel_weight_matrix = {
    .state_bytes = sizeof(mel_state), .prepare = mel_prepare, .infer = mel_infer, .run = mel_run};
