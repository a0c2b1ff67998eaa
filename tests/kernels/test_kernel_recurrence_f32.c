/* The recurrence of linear attention: every variant against the plain C reference, for all rules,
 * sizes and numbers of queries. */
#include "kernels/checker.h"
#include "kernels/recurrence_f32.h"

enum { MOST = 4096 };

typedef struct numbers {
    float q[MOST * 3], k[MOST], v[MOST], gate[MOST], beta[64], state[MOST * 2];
} numbers;

static td_recurrence_f32 job_of(const numbers *x, int64_t tokens, int64_t keys, int64_t values, int64_t queries,
                                int rule) {
    return (td_recurrence_f32){.n_tokens = tokens,
                               .n_keys = keys,
                               .n_values = values,
                               .n_queries = queries,
                               .k = x->k,
                               .v = x->v,
                               .q = x->q,
                               .k_step = keys + 1,
                               .v_step = values + 2,
                               .q_step = 3 * keys,
                               .q_head = keys,
                               .gate = rule & 1 ? x->gate : NULL,
                               .gate_step = keys,
                               .one_gate = rule & 4,
                               .beta = rule & 2 ? x->beta : NULL,
                               .beta_step = 1,
                               .scale = 0.3f,
                               .y_step = 3 * values + 1,
                               .y_head = values};
}

static void check(const td_recurrence_f32_kernels *kernels, const numbers *x, td_recurrence_f32 job) {
    size_t n_state = (size_t)(job.n_keys * job.n_values), n_y = (size_t)(job.n_tokens * job.y_step);
    td_guarded state[2], y[2];
    const float tolerance = 2e-5f;
    char what[128];

    for (int i = 0; i < 2; i++) {
        state[i] = td_guarded_new(n_state * 4, 4);
        y[i] = td_guarded_new(n_y * 4, 8);
        memcpy(state[i].data, x->state, n_state * 4);
        memset(y[i].data, 0, n_y * 4);
        job.state = state[i].data;
        job.y = y[i].data;
        (i ? kernels : &td_recurrence_f32_c)->run(&job);
        CHECK(td_guarded_intact(&state[i]));
        CHECK(td_guarded_intact(&y[i]));
    }
    snprintf(what, sizeof what, "%s %lld x %lld, %lld tokens, %lld queries, gate %d, beta %d", kernels->name,
             (long long)job.n_keys, (long long)job.n_values, (long long)job.n_tokens, (long long)job.n_queries,
             job.gate != NULL, job.beta != NULL);
    td_near_f32(what, state[1].data, state[0].data, (int64_t)n_state, &tolerance, 0);
    td_near_f32(what, y[1].data, y[0].data, (int64_t)n_y, &tolerance, 0);
    for (int i = 0; i < 2; i++) {
        td_guarded_free(&state[i]);
        td_guarded_free(&y[i]);
    }
}

TEST(variants_agree) {
    static const int64_t sizes[][2] = {{1, 1}, {2, 16}, {3, 17}, {16, 32}, {7, 33}, {64, 64}, {32, 95}, {5, 48}};
    static numbers x;
    uint64_t seed = 11;
    for (int64_t i = 0; i < MOST; i++) {
        x.k[i] = td_test_random_f32(&seed, -0.2f, 0.2f);
        x.v[i] = td_test_random_f32(&seed, -1, 1);
        x.gate[i] = td_test_random_f32(&seed, 0.5f, 1);
    }
    for (int64_t i = 0; i < 3 * MOST; i++) x.q[i] = td_test_random_f32(&seed, -1, 1);
    for (int64_t i = 0; i < 2 * MOST; i++) x.state[i] = td_test_random_f32(&seed, -1, 1);
    for (int64_t i = 0; i < 64; i++) x.beta[i] = td_test_random_f32(&seed, 0, 1);
    for (td_variant v = td_variant_first(td_recurrence_f32_variants, td_recurrence_f32_n_variants); v.name;
         v = td_variant_next(v))
        for (size_t i = 0; i < TD_COUNT(sizes); i++)
            for (int rule = 0; rule < 8; rule++)
                for (int64_t queries = 0; queries <= 3; queries++)
                    check(v.table, &x, job_of(&x, 1 + (int64_t)i, sizes[i][0], sizes[i][1], queries, rule));
}
