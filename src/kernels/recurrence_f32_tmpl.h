/* kernels/recurrence_f32_tmpl.h - the recurrence of linear attention for any SIMD instruction set, included by one .c
 * file per set after its simd_*.h. It defines VARIANT, the td_recurrence_f32_kernels to define, and VARIANT_NAME.
 *
 * Columns go in blocks of up to 32, each through all tokens. The gated state is not stored before the update: it is
 * made twice, from the same numbers. */
#include "kernels/recurrence_f32.h"

enum { LANES = 16, WIDEST = 2 };

/* A block of columns: `vectors` of 16, the last one with `last` columns if part. */
TD_INLINE vf load_at(const float *p, const bool part, int last) { return part ? vf_load_n(p, last) : vf_load(p); }
TD_INLINE void store_at(float *p, vf v, const bool part, int last) {
    if (part) vf_store_n(p, v, last);
    else vf_store(p, v);
}

TD_INLINE vf gated(const float *state, const float *gate, int64_t gate_at, const bool has_gate, const bool part,
                   int last) {
    vf s = load_at(state, part, last);
    return has_gate ? vf_mul(vf_set1(gate[gate_at]), s) : s;
}

/* sum over i of x_i times row i of the (gated) state. */
TD_INLINE void weighted(const td_recurrence_f32 *j, const float *x, const float *state, const float *gate,
                        int64_t gate_by, const int vectors, const bool has_gate, const bool part, int last,
                        vf out[WIDEST]) {
    vf even[WIDEST], odd[WIDEST];
    int64_t i = 0;
    TD_UNROLL
    for (int n = 0; n < vectors; n++) even[n] = odd[n] = vf_zero();
    for (; i + 2 <= j->n_keys; i += 2) {
        const float *row = state + i * j->n_values;
        TD_UNROLL
        for (int n = 0; n < vectors; n++) {
            vf a = gated(row + n * LANES, gate, i * gate_by, has_gate, part, last);
            vf b = gated(row + j->n_values + n * LANES, gate, (i + 1) * gate_by, has_gate, part, last);
            even[n] = vf_fma(vf_set1(x[i]), a, even[n]);
            odd[n] = vf_fma(vf_set1(x[i + 1]), b, odd[n]);
        }
    }
    if (i < j->n_keys) {
        TD_UNROLL
        for (int n = 0; n < vectors; n++) {
            vf a = gated(state + i * j->n_values + n * LANES, gate, i * gate_by, has_gate, part, last);
            even[n] = vf_fma(vf_set1(x[i]), a, even[n]);
        }
    }
    TD_UNROLL
    for (int n = 0; n < vectors; n++) out[n] = vf_add(even[n], odd[n]);
}

/* The state's update, with the first query's sum on the way if there is one. */
TD_INLINE void update(const td_recurrence_f32 *j, const float *k, const float *q, float *state, const float *gate,
                      int64_t gate_by, const int vectors, const bool has_gate, const bool has_query, const bool part,
                      int last, const vf u[WIDEST], vf out[WIDEST]) {
    vf even[WIDEST], odd[WIDEST];
    TD_UNROLL
    for (int n = 0; n < vectors; n++) even[n] = odd[n] = vf_zero();
    for (int64_t i = 0; i < j->n_keys; i += 2) {
        float *row = state + i * j->n_values;
        bool two = i + 1 < j->n_keys;
        TD_UNROLL
        for (int n = 0; n < vectors; n++) {
            vf a = vf_fma(vf_set1(k[i]), u[n], gated(row + n * LANES, gate, i * gate_by, has_gate, part, last));
            store_at(row + n * LANES, a, part, last);
            if (has_query) even[n] = vf_fma(vf_set1(q[i]), a, even[n]);
            if (!two) continue;
            float *next = row + j->n_values;
            vf b =
                vf_fma(vf_set1(k[i + 1]), u[n], gated(next + n * LANES, gate, (i + 1) * gate_by, has_gate, part, last));
            store_at(next + n * LANES, b, part, last);
            if (has_query) odd[n] = vf_fma(vf_set1(q[i + 1]), b, odd[n]);
        }
    }
    TD_UNROLL
    for (int n = 0; n < vectors; n++) out[n] = vf_add(even[n], odd[n]);
}

TD_INLINE void store_y(const td_recurrence_f32 *j, float *y, const int vectors, const bool part, int last,
                       const vf sums[WIDEST]) {
    vf scale = vf_set1(j->scale);
    TD_UNROLL
    for (int n = 0; n < vectors; n++) store_at(y + n * LANES, vf_mul(sums[n], scale), part, last);
}

TD_INLINE void block(const td_recurrence_f32 *j, int64_t c, const int vectors, const bool has_gate, const bool part,
                     int last) {
    int64_t gate_by = j->one_gate ? 0 : 1;
    float *state = j->state + c;

    for (int64_t t = 0; t < j->n_tokens; t++) {
        const float *k = j->k + t * j->k_step, *q = j->q + t * j->q_step, *v = j->v + t * j->v_step + c;
        const float *gate = has_gate ? j->gate + t * j->gate_step : NULL;
        vf u[WIDEST], sums[WIDEST];
        TD_UNROLL
        for (int n = 0; n < vectors; n++) u[n] = load_at(v + n * LANES, part, last);
        if (j->beta) {
            vf beta = vf_set1(j->beta[t * j->beta_step]);
            weighted(j, k, state, gate, gate_by, vectors, has_gate, part, last, sums);
            TD_UNROLL
            for (int n = 0; n < vectors; n++) u[n] = vf_mul(beta, vf_sub(u[n], sums[n]));
        }
        if (!j->n_queries) {
            update(j, k, NULL, state, gate, gate_by, vectors, has_gate, false, part, last, u, sums);
            continue;
        }
        update(j, k, q, state, gate, gate_by, vectors, has_gate, true, part, last, u, sums);
        float *y = j->y + t * j->y_step + c;
        store_y(j, y, vectors, part, last, sums);
        for (int64_t h = 1; h < j->n_queries; h++) {
            weighted(j, q + h * j->q_head, state, NULL, 0, vectors, false, part, last, sums);
            store_y(j, y + h * j->y_head, vectors, part, last, sums);
        }
    }
}

static void wide_plain(const td_recurrence_f32 *j, int64_t c) { block(j, c, WIDEST, false, false, 0); }
static void wide_gated(const td_recurrence_f32 *j, int64_t c) { block(j, c, WIDEST, true, false, 0); }
static void part_plain(const td_recurrence_f32 *j, int64_t c, int last) { block(j, c, 1, false, true, last); }
static void part_gated(const td_recurrence_f32 *j, int64_t c, int last) { block(j, c, 1, true, true, last); }

static void run(const td_recurrence_f32 *job) {
    int64_t c = 0, n = job->n_values;
    for (; c + WIDEST * LANES <= n; c += WIDEST * LANES) (job->gate ? wide_gated : wide_plain)(job, c);
    for (; c < n; c += LANES) {
        int last = (int)TD_MIN((int64_t)LANES, n - c);
        (job->gate ? part_gated : part_plain)(job, c, last);
    }
}

const td_recurrence_f32_kernels VARIANT = {.name = VARIANT_NAME, .run = run};
