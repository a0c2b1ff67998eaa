/* kernels/recurrence_f32.h - linear attention as a recurrence over a state of [keys, values] per head, in fp32.
 *
 * For each token in turn, g = gate (NULL: 1):
 *     t = g_i S_ij;  u_j = v_j, or with beta: beta (v_j - sum over i of k_i t_ij);  S_ij = t_ij + k_i u_j;
 *     y_j = scale * sum over i of q_i S_ij, for each query head
 * Sums over i run over even and odd i apart, in order, and are then added. Columns j are independent of one another, so
 * the state of a few of them stays in the first cache for all tokens. The SIMD variants fuse multiply and add. */
#ifndef TD_KERNELS_RECURRENCE_F32_H
#define TD_KERNELS_RECURRENCE_F32_H

#include "kernels/kernel.h"

/* One head; all memory borrowed. Steps in elements, from one token to the next. */
typedef struct td_recurrence_f32 {
    int64_t n_tokens, n_keys, n_values;
    int64_t n_queries; /* query heads that read this state; 0: y is not wanted */
    const float *k, *v, *q;
    int64_t k_step, v_step, q_step, q_head; /* q_head: from one query head to the next */
    const float *gate;                      /* NULL: none */
    int64_t gate_step;
    bool one_gate;     /* for all keys; else one for each */
    const float *beta; /* one a token, or NULL: no delta rule */
    int64_t beta_step;
    float scale;
    float *state; /* [n_keys, n_values] */
    float *y;
    int64_t y_step, y_head;
} td_recurrence_f32;

typedef struct td_recurrence_f32_kernels {
    const char *name;
    void (*run)(const td_recurrence_f32 *job);
} td_recurrence_f32_kernels;

#define TD_KERNEL(isa, needs) extern const td_recurrence_f32_kernels td_recurrence_f32_##isa;
#include "kernels/recurrence_f32.inc"
#undef TD_KERNEL

extern const td_kernel_variant td_recurrence_f32_variants[];
extern const size_t td_recurrence_f32_n_variants;
const td_recurrence_f32_kernels *td_recurrence_f32_pick(void);

#endif
