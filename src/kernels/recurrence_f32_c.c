/* kernels/recurrence_f32_c.c - the recurrence of linear attention in plain C: the reference of the other variants. */
#include "kernels/recurrence_f32.h"

static float gate_of(const td_recurrence_f32 *j, int64_t t, int64_t i) {
    return j->gate ? j->gate[t * j->gate_step + (j->one_gate ? 0 : i)] : 1;
}

static void token(const td_recurrence_f32 *j, int64_t t, int64_t c) {
    const float *k = j->k + t * j->k_step;
    float u = j->v[t * j->v_step + c], *state = j->state + c;

    if (j->beta) {
        float even = 0, odd = 0;
        for (int64_t i = 0; i < j->n_keys; i++) {
            float *sum = i % 2 ? &odd : &even;
            *sum += k[i] * (gate_of(j, t, i) * state[i * j->n_values]);
        }
        u = j->beta[t * j->beta_step] * (u - (even + odd));
    }
    for (int64_t i = 0; i < j->n_keys; i++)
        state[i * j->n_values] = gate_of(j, t, i) * state[i * j->n_values] + k[i] * u;
    for (int64_t h = 0; h < j->n_queries; h++) {
        const float *q = j->q + t * j->q_step + h * j->q_head;
        float even = 0, odd = 0;
        for (int64_t i = 0; i < j->n_keys; i++) {
            float *sum = i % 2 ? &odd : &even;
            *sum += q[i] * state[i * j->n_values];
        }
        j->y[t * j->y_step + h * j->y_head + c] = (even + odd) * j->scale;
    }
}

static void run(const td_recurrence_f32 *job) {
    for (int64_t c = 0; c < job->n_values; c++)
        for (int64_t t = 0; t < job->n_tokens; t++) token(job, t, c);
}

const td_recurrence_f32_kernels td_recurrence_f32_c = {.name = "c", .run = run};
