/* light/ops/rnn_layer.c - attributes, shapes and the frame of recurrent layers, see rnn.h. */
#include "light/ops/rnn.h"

#include <string.h>

/* --- attributes --- */

static const struct {
    const char *name;
    td_rnn_fn fn;
    bool takes_alpha, takes_beta;
    float alpha, beta; /* defaults */
} functions[] = {
    {"Sigmoid", TD_RNN_SIGMOID, false, false, 0, 0},
    {"Tanh", TD_RNN_TANH, false, false, 0, 0},
    {"Relu", TD_RNN_RELU, false, false, 0, 0},
    {"LeakyRelu", TD_RNN_LEAKY_RELU, true, false, 0.01f, 0},
    {"ThresholdedRelu", TD_RNN_THRESHOLDED_RELU, true, false, 1, 0},
    {"Elu", TD_RNN_ELU, true, false, 1, 0},
    {"Affine", TD_RNN_AFFINE, true, true, 1, 0},
    {"ScaledTanh", TD_RNN_SCALED_TANH, true, true, 1, 1},
    {"HardSigmoid", TD_RNN_HARD_SIGMOID, true, true, 0.2f, 0.5f},
    {"Softsign", TD_RNN_SOFTSIGN, false, false, 0, 0},
    {"Softplus", TD_RNN_SOFTPLUS, false, false, 0, 0},
};

static bool same_letters(td_str a, const char *b) {
    if (a.n != strlen(b)) return false;
    for (size_t i = 0; i < a.n; i++)
        if ((a.p[i] | 32) != (b[i] | 32)) return false; /* the names are letters only */
    return true;
}

/* alpha and beta come in lists, from which each function that has one takes the next. */
typedef struct scales {
    const float *list;
    size_t n, used;
} scales;

static float take(scales *s, bool takes, float otherwise) {
    return takes && s->used < s->n ? s->list[s->used++] : otherwise;
}

static treadle_status read_activations(td_prepare *p, td_rnn *rnn) {
    static const char *const usual[3][3] = {
        {"Tanh", NULL, NULL}, {"Sigmoid", "Tanh", NULL}, {"Sigmoid", "Tanh", "Tanh"}};
    size_t each = rnn->kind == TD_RNN_PLAIN ? 1 : rnn->kind == TD_RNN_GRU ? 2 : 3, n;
    size_t wanted = each * (size_t)rnn->directions;
    const td_str *names = td_attr_has(p, "activations") ? td_attr_strings(p, "activations", &n) : NULL;
    scales alpha = {0}, beta = {0};

    alpha.list = td_attr_floats(p, "activation_alpha", &alpha.n);
    beta.list = td_attr_floats(p, "activation_beta", &beta.n);
    if (names && n != wanted) return td_bad_node(p, "%zu activations; expected %zu", n, wanted);
    for (size_t i = 0; i < wanted; i++) {
        td_str name = names ? names[i] : td_str_from(usual[rnn->kind][i % each]);
        size_t f = 0;
        while (f < TD_COUNT(functions) && !same_letters(name, functions[f].name)) f++;
        if (f == TD_COUNT(functions)) return td_unsupported(p, "activation \"%.*s\"", TD_STR_ARGS(name));
        td_rnn_activation *a = &rnn->activations[i / each][i % each];
        a->fn = functions[f].fn;
        a->alpha = take(&alpha, functions[f].takes_alpha, functions[f].alpha);
        a->beta = take(&beta, functions[f].takes_beta, functions[f].beta);
    }
    return TREADLE_OK;
}

treadle_status td_rnn_prepare(td_prepare *p, td_rnn_kind kind, td_rnn *rnn) {
    td_str direction = td_attr_string(p, "direction");

    rnn->kind = kind;
    rnn->directions = 1;
    if (td_str_is(direction, "bidirectional")) {
        rnn->directions = 2;
        rnn->reverse[1] = true;
    } else if (td_str_is(direction, "reverse")) {
        rnn->reverse[0] = true;
    } else if (direction.n && !td_str_is(direction, "forward")) {
        return td_bad_node(p, "direction is \"%.*s\"; expected forward, reverse or bidirectional",
                           TD_STR_ARGS(direction));
    }
    rnn->hidden = td_attr_int(p, "hidden_size");
    if (rnn->hidden < 0 || rnn->hidden > (int64_t)1 << 31 || (rnn->hidden == 0 && td_attr_has(p, "hidden_size")))
        return td_bad_node(p, "hidden_size is %lld; expected 1 to 2^31", (long long)rnn->hidden);
    int64_t layout = td_attr_int(p, "layout");
    if (layout != 0 && layout != 1) return td_bad_node(p, "layout is %lld; expected 0 or 1", (long long)layout);
    rnn->batch_first = layout == 1;
    rnn->input_forget = td_attr_int(p, "input_forget") != 0;
    rnn->linear_before_reset = td_attr_int(p, "linear_before_reset") != 0;
    rnn->has_clip = td_attr_has(p, "clip");
    rnn->clip = td_attr_float(p, "clip");
    if (rnn->has_clip && rnn->clip < 0) return td_bad_node(p, "clip is %g", (double)rnn->clip);
    return read_activations(p, rnn);
}

/* --- shapes --- */

static const td_shape *shape_of(const td_infer *in, size_t i) {
    bool there = i < in->n_inputs && in->inputs[i]->kind == TD_VALUE_TENSOR && in->inputs[i]->tensor.shape.rank >= 0;
    return there ? &in->inputs[i]->tensor.shape : NULL;
}

/* An input must have this shape, where both are known. */
static treadle_status expect(td_infer *in, size_t i, const char *what, int rank, int64_t d0, int64_t d1, int64_t d2) {
    const td_shape *s = shape_of(in, i);
    const int64_t want[] = {d0, d1, d2};

    if (!s) return TREADLE_OK;
    bool fits = s->rank == rank;
    for (int d = 0; fits && d < rank; d++) fits = want[d] < 0 || s->dims[d] < 0 || s->dims[d] == want[d];
    if (fits) return TREADLE_OK;
    char text[128];
    td_shape wanted = {.rank = rank, .dims = {d0, d1, d2}};
    return td_infer_fail(in, "expected %s to be %s", what, td_shape_text(&wanted, text));
}

static int64_t dim_of(const td_shape *s, int d) { return s && d < s->rank ? s->dims[d] : TD_DIM_UNKNOWN; }

treadle_status td_rnn_infer(td_infer *in, const td_rnn *rnn, bool transposed) {
    const td_shape *x = shape_of(in, 0), *r = shape_of(in, 2);
    int64_t hidden = rnn->hidden, gates = td_rnn_gates(rnn->kind), directions = rnn->directions;
    td_dtype dtype = in->inputs[0]->tensor.dtype;

    if (x && x->rank != 3) return td_infer_fail(in, "X has rank %d; expected 3", x->rank);
    if (!hidden) hidden = TD_MAX(dim_of(r, transposed ? 1 : 2), TD_DIM_UNKNOWN);
    if (hidden > (int64_t)1 << 31) return td_infer_fail(in, "a hidden size of %lld", (long long)hidden);
    int64_t width = hidden >= 0 ? gates * hidden : TD_DIM_UNKNOWN;
    int64_t batch = dim_of(x, rnn->batch_first ? 0 : 1), steps = dim_of(x, rnn->batch_first ? 1 : 0),
            input = dim_of(x, 2);
    int64_t first = rnn->batch_first ? batch : directions, second = rnn->batch_first ? directions : batch;
    if (transposed) {
        TD_TRY(expect(in, 1, "W", 3, directions, input, width));
        TD_TRY(expect(in, 2, "R", 3, directions, hidden, width));
    } else {
        TD_TRY(expect(in, 1, "W", 3, directions, width, input));
        TD_TRY(expect(in, 2, "R", 3, directions, width, hidden));
    }
    TD_TRY(expect(in, 3, "B", 2, directions, width >= 0 ? 2 * width : width, 0));
    TD_TRY(expect(in, 4, "sequence_lens", 1, batch, 0, 0));
    TD_TRY(expect(in, 5, "initial_h", 3, first, second, hidden));
    if (rnn->kind == TD_RNN_LSTM) {
        TD_TRY(expect(in, 6, "initial_c", 3, first, second, hidden));
        TD_TRY(expect(in, 7, "P", 2, directions, hidden >= 0 ? 3 * hidden : hidden, 0));
    }
    td_shape y = {4, {steps, directions, batch, hidden}}, last = {3, {first, second, hidden}};
    if (rnn->batch_first) y = (td_shape){4, {batch, steps, directions, hidden}};
    TD_TRY(td_infer_set(in, 0, dtype, &y));
    TD_TRY(td_infer_set(in, 1, dtype, &last));
    return td_infer_set(in, 2, dtype, &last);
}

treadle_status td_rnn_lengths(td_run *r, int64_t batch, int64_t steps, const int32_t **out) {
    const td_tensor *t = td_rnn_input(r, 4);

    *out = t ? t->data : NULL;
    for (int64_t b = 0; t && b < batch; b++)
        if ((*out)[b] < 0 || (*out)[b] > steps)
            return td_run_fail(r, "sequence_lens[%lld] is %d of %lld steps", (long long)b, (int)(*out)[b],
                               (long long)steps);
    return TREADLE_OK;
}

td_rnn_sizes td_rnn_sizes_of(const td_rnn *rnn, const td_shape *x, int64_t hidden) {
    return (td_rnn_sizes){.steps = x->dims[rnn->batch_first ? 1 : 0],
                          .batch = x->dims[rnn->batch_first ? 0 : 1],
                          .input = x->dims[2],
                          .hidden = hidden,
                          .gates = td_rnn_gates(rnn->kind) * hidden,
                          .batch_first = rnn->batch_first,
                          .directions = rnn->directions};
}

/* --- the frame --- */

typedef struct frame {
    const td_rnn_layer *layer;
    td_rnn_job jobs[2];
} frame;

/* [directions, batch, hidden], or batch first, from or to one direction's [batch, hidden]; the
 * whole tensor may be NULL: 0. */
static void move_state(const td_rnn_sizes *s, size_t bytes, int direction, void *whole, void *part, bool out) {
    size_t row = (size_t)s->hidden * bytes;
    for (int64_t b = 0; b < s->batch; b++) {
        int64_t at = s->batch_first ? b * s->directions + direction : direction * s->batch + b;
        uint8_t *one = (uint8_t *)part + (size_t)b * row, *all = whole ? (uint8_t *)whole + (size_t)at * row : NULL;
        if (out && all) memcpy(all, one, row);
        else if (!out && all) memcpy(one, all, row);
        else if (!out) memset(one, 0, row);
    }
}

static void run_direction(void *arg, int direction, int thread) {
    frame *f = arg;
    const td_rnn_layer *layer = f->layer;
    td_rnn_job *job = &f->jobs[direction];
    size_t bytes = layer->dtype == TD_DOUBLE ? sizeof(double) : sizeof(float);

    (void)thread;
    move_state(&layer->sizes, bytes, direction, (void *)(uintptr_t)layer->initial_h, job->h, false);
    if (job->c) move_state(&layer->sizes, bytes, direction, (void *)(uintptr_t)layer->initial_c, job->c, false);
    if (layer->dtype == TD_DOUBLE) td_rnn_run_f64(job);
    else td_rnn_run_f32(job);
    for (int64_t b = 0; job->lengths && b < job->batch; b++) { /* a sequence without steps has no last state */
        size_t row = (size_t)job->hidden * bytes;
        if (job->lengths[b]) continue;
        memset((uint8_t *)job->h + (size_t)b * row, 0, row);
        if (job->c) memset((uint8_t *)job->c + (size_t)b * row, 0, row);
    }
    move_state(&layer->sizes, bytes, direction, layer->y_h, job->h, true);
    if (job->c) move_state(&layer->sizes, bytes, direction, layer->y_c, job->c, true);
}

treadle_status td_rnn_run_layer(td_run *r, const td_rnn_layer *layer) {
    const td_rnn_sizes *s = &layer->sizes;
    int64_t bytes = layer->dtype == TD_DOUBLE ? 8 : 4, states = s->batch * s->hidden;
    frame f = {.layer = layer};

    for (int d = 0; d < s->directions; d++) {
        uint8_t *memory = td_run_scratch(r, (size_t)(3 * states + s->batch * s->gates) * (size_t)bytes);
        if (!memory) return TREADLE_OUT_OF_MEMORY;
        int64_t y_at = (s->batch_first ? d * s->hidden : d * states) * bytes;
        f.jobs[d] = (td_rnn_job){
            .rnn = layer->rnn,
            .direction = d,
            .steps = s->steps,
            .batch = s->batch,
            .hidden = s->hidden,
            .lengths = layer->lengths,
            .x = layer->x[d],
            .x_step = s->batch_first ? s->gates : s->batch * s->gates,
            .x_batch = s->batch_first ? s->steps * s->gates : s->gates,
            .peepholes = layer->peepholes ? (const uint8_t *)layer->peepholes + d * 3 * s->hidden * bytes : NULL,
            .hidden_bias = layer->hidden_bias[d],
            .h = memory,
            .c = layer->rnn->kind == TD_RNN_LSTM ? memory + states * bytes : NULL,
            .y = layer->y ? (uint8_t *)layer->y + y_at : NULL,
            .y_step = s->batch_first ? s->directions * s->hidden : s->directions * states,
            .y_batch = s->batch_first ? s->steps * s->directions * s->hidden : s->hidden,
            .work = memory + 2 * states * bytes,
            .gates = memory + 3 * states * bytes,
            .multiply = layer->multiply,
            .ctx = layer->ctx[d]};
    }
    td_pool_run(s->directions > 1 ? r->pool : NULL, s->directions, run_direction, &f);
    return TREADLE_OK;
}
