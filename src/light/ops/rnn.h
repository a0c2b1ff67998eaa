/* light/ops/rnn.h - recurrent layers: what RNN, GRU, LSTM and the quantised LSTM share. Source: ONNX op texts.
 *
 * A layer is two steps. The inputs of all times are multiplied by W at once, which gives a row of gates
 * per time and batch item; then time runs, and each step adds the hidden state times R to its row and
 * turns that into a new state. */
#ifndef TD_LIGHT_OPS_RNN_H
#define TD_LIGHT_OPS_RNN_H

#include "kernels/gemm_f32.h"
#include "light/op.h"

typedef enum td_rnn_kind { TD_RNN_PLAIN, TD_RNN_GRU, TD_RNN_LSTM } td_rnn_kind;

typedef enum td_rnn_fn {
    TD_RNN_SIGMOID,
    TD_RNN_TANH,
    TD_RNN_RELU,
    TD_RNN_LEAKY_RELU,
    TD_RNN_THRESHOLDED_RELU,
    TD_RNN_ELU,
    TD_RNN_AFFINE,
    TD_RNN_SCALED_TANH,
    TD_RNN_HARD_SIGMOID,
    TD_RNN_SOFTSIGN,
    TD_RNN_SOFTPLUS
} td_rnn_fn;

typedef struct td_rnn_activation {
    td_rnn_fn fn;
    float alpha, beta;
} td_rnn_activation;

/* The attributes. */
typedef struct td_rnn {
    td_rnn_kind kind;
    int directions; /* 1 or 2 */
    bool reverse[2];
    int64_t hidden; /* 0: not given */
    bool batch_first, input_forget, linear_before_reset, has_clip;
    float clip;
    td_rnn_activation activations[2][3]; /* of a direction: f, g, h */
} td_rnn;

treadle_status td_rnn_prepare(td_prepare *p, td_rnn_kind kind, td_rnn *out);
static inline int td_rnn_gates(td_rnn_kind kind) { return kind == TD_RNN_PLAIN ? 1 : kind == TD_RNN_GRU ? 3 : 4; }

/* Columns of R's products: a GRU's hidden gate is a product of its own, since the reset gate comes before it. */
enum { TD_RNN_PARTS = 2 };
static inline int64_t td_rnn_columns(td_rnn_kind kind, int part, int64_t hidden) {
    if (kind == TD_RNN_GRU) return part == 0 ? 2 * hidden : hidden;
    return part == 0 ? td_rnn_gates(kind) * hidden : 0;
}

/* One direction through time; all memory is the caller's, all elements are of one type. */
typedef struct td_rnn_job {
    const td_rnn *rnn;
    int direction;
    int64_t steps, batch, hidden;
    const int32_t *lengths; /* [batch] of steps, or NULL: all */
    const void *x;          /* rows of gates from the inputs, with the bias */
    int64_t x_step, x_batch;
    const void *peepholes;   /* LSTM: [3, hidden] or NULL */
    const void *hidden_bias; /* GRU, linear before reset: R's bias of the hidden gate; else NULL */
    void *h, *c;             /* [batch, hidden], initial and then final states; c of an LSTM */
    void *y;                 /* or NULL */
    int64_t y_step, y_batch;
    void *gates, *work; /* [batch, gates * hidden], [batch, hidden] */
    /* c [rows, columns of the part] = a [rows, hidden] times R' */
    void (*multiply)(const void *ctx, int part, const void *a, int64_t rows, void *c);
    const void *ctx;
} td_rnn_job;

void td_rnn_run_f32(const td_rnn_job *job);
void td_rnn_run_f64(const td_rnn_job *job);

/* A tensor that is given, else NULL. */
static inline const td_tensor *td_rnn_input(const td_run *r, size_t i) { return i < r->n_inputs ? r->in[i] : NULL; }

/* What is common to the shapes of all forms. transposed: W is [directions, input, gates * hidden], R alike. */
treadle_status td_rnn_infer(td_infer *in, const td_rnn *rnn, bool transposed);

/* sequence_lens, checked; NULL if absent. */
treadle_status td_rnn_lengths(td_run *r, int64_t batch, int64_t steps, const int32_t **out);

/* Sizes at run time. */
typedef struct td_rnn_sizes {
    int64_t steps, batch, input, hidden, gates; /* gates: columns of a row */
    bool batch_first;
    int directions;
} td_rnn_sizes;
td_rnn_sizes td_rnn_sizes_of(const td_rnn *rnn, const td_shape *x, int64_t hidden);

/* Everything around the recurrence, in type float or double: states in and out, places in Y, both directions at once if
 * there are threads. `x`, `r` belong to direction d. */
typedef struct td_rnn_layer {
    const td_rnn *rnn;
    td_rnn_sizes sizes;
    td_dtype dtype;         /* TD_FLOAT or TD_DOUBLE */
    const int32_t *lengths; /* or NULL */
    const void *x[2];       /* gates from the inputs: rows as X has them */
    const void *initial_h, *initial_c, *peepholes, *hidden_bias[2];
    void *y, *y_h, *y_c; /* of the type, or NULL */
    void (*multiply)(const void *ctx, int part, const void *a, int64_t rows, void *c);
    const void *ctx[2];
} td_rnn_layer;
treadle_status td_rnn_run_layer(td_run *r, const td_rnn_layer *layer);

#endif
