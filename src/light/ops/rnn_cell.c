/* light/ops/rnn_cell.c - activations and the recurrence of recurrent layers, see rnn.h. */
#include "kernels/vmath.h"
#include "light/ops/rnn.h"

#include <math.h>
#include <string.h>

static double activation(const td_rnn_activation *a, double x) {
    double alpha = (double)a->alpha, beta = (double)a->beta;
    switch (a->fn) {
    case TD_RNN_SIGMOID: return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
    case TD_RNN_TANH: return tanh(x);
    case TD_RNN_RELU: return x > 0 ? x : 0;
    case TD_RNN_LEAKY_RELU: return x < 0 ? alpha * x : x;
    case TD_RNN_THRESHOLDED_RELU: return x > alpha ? x : 0;
    case TD_RNN_ELU: return x < 0 ? alpha * expm1(x) : x;
    case TD_RNN_AFFINE: return alpha * x + beta;
    case TD_RNN_SCALED_TANH: return alpha * tanh(beta * x);
    case TD_RNN_HARD_SIGMOID: return fmax(0, fmin(1, alpha * x + beta));
    case TD_RNN_SOFTSIGN: return x / (1 + fabs(x));
    case TD_RNN_SOFTPLUS: return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
    }
    return x;
}

static void activate_f64(const td_rnn_activation *a, double *v, int64_t n) {
    for (int64_t i = 0; i < n; i++) v[i] = activation(a, v[i]);
}

static void activate_f32(const td_rnn_activation *a, float *v, int64_t n) {
    const td_vmath_kernels *kernels = td_vmath_pick();
    if (a->fn == TD_RNN_SIGMOID) kernels->sigmoid(v, n, v);
    else if (a->fn == TD_RNN_TANH) kernels->tanh(v, n, v);
    else
        for (int64_t i = 0; i < n; i++) v[i] = (float)activation(a, (double)v[i]);
}

#define REAL float
#define NAME(x) x##_f32
#define ACTIVATE activate_f32
#include "light/ops/rnn_cell_tmpl.h"

#define REAL double
#define NAME(x) x##_f64
#define ACTIVATE activate_f64
#include "light/ops/rnn_cell_tmpl.h"
