/* Attention: every variant and both ways of splitting against a float64 reference; threads; prefill against decode. */
#include "kernels/attention_f32.h"
#include "kernels/checker.h"
#include "tensor/half.h"

typedef struct setup {
    int64_t n_q, n_keys, group, head, v_head;
    bool causal;
    int64_t window;
    float softcap;
    bool bias;
    bool sink;
    td_dtype kv;
} setup;

static const setup setups[] = {
    {1, 1, 1, 64, 64, true, 0, 0, false, false, TD_FLOAT},
    {1, 300, 3, 64, 64, true, 0, 0, false, false, TD_FLOAT},
    {1, 513, 4, 128, 128, true, 0, 0, false, false, TD_FLOAT},
    {1, 700, 8, 80, 80, true, 0, 0, false, true, TD_FLOAT},
    {3, 40, 2, 8, 24, true, 0, 0, false, false, TD_FLOAT},
    {20, 20, 3, 64, 64, true, 0, 0, false, false, TD_FLOAT},
    {130, 130, 3, 64, 64, true, 0, 0, false, false, TD_FLOAT},
    {70, 300, 1, 96, 96, true, 0, 2, false, true, TD_FLOAT},
    {33, 290, 2, 40, 72, false, 0, 0, true, false, TD_FLOAT},
    {150, 200, 1, 256, 256, true, 7, 0, false, false, TD_FLOAT},
    {1, 600, 2, 64, 64, true, 130, 1.5f, true, true, TD_FLOAT},
    {65, 260, 5, 20, 12, true, 100, 3, true, true, TD_FLOAT},
    {1, 300, 3, 64, 64, true, 0, 0, false, false, TD_FLOAT16},
    {100, 100, 3, 80, 80, true, 0, 0, false, false, TD_FLOAT16},
    {1, 900, 4, 64, 64, true, 200, 0, false, false, TD_FLOAT16},
    {40, 700, 2, 64, 64, true, 90, 0, false, false, TD_BFLOAT16},
    {1, 300, 9, 33, 17, true, 0, 0, false, false, TD_BFLOAT16},
    {90, 100, 2, 64, 64, true, 0, 0, true, false, TD_BFLOAT16},
    {200, 200, 12, 16, 16, true, 0, 0, false, false, TD_FLOAT},
    {2, 20, 200, 16, 16, true, 0, 0, false, false, TD_FLOAT},
    {5, 3, 2, 16, 16, true, 2, 0, false, false, TD_FLOAT}, /* n_keys below n_q: the first rows see nothing */
};

typedef struct problem {
    td_attention_f32 job;
    float *q, *k32, *v32, *bias, *sink;
    void *k, *v;
    double *exact;
    size_t n_out;
} problem;

static void *get(size_t n, size_t bytes) {
    void *p = td_alloc_aligned((n + 64) * bytes);
    REQUIRE(p != NULL);
    return p;
}

static void exact_row(problem *p, int64_t i, int64_t g) {
    td_attention_f32 *job = &p->job;
    double *out = p->exact + (i * job->group + g) * job->v_head_size, sum = 0,
           max = job->sink ? (double)job->sink[g] : -INFINITY;
    double *scores = get((size_t)job->n_keys, sizeof(double));
    int64_t lo, hi;
    td_attention_range(job, i, &lo, &hi);
    for (int64_t j = lo; j < hi; j++) {
        double s = 0, b = job->bias ? (double)job->bias[i * job->bias_row + g * job->bias_head + j] : 0;
        for (int64_t d = 0; d < job->head_size; d++)
            s += (double)job->q[i * job->q_row + g * job->q_head + d] * (double)p->k32[j * job->k_row + d];
        s *= (double)job->scale;
        if (job->softcap > 0) s = (double)job->softcap * tanh(s / (double)job->softcap);
        s += b;
        scores[j] = s;
        max = fmax(max, s);
    }
    if (job->sink) sum = exp((double)job->sink[g] - max);
    for (int64_t j = lo; j < hi; j++) sum += exp(scores[j] - max);
    for (int64_t d = 0; d < job->v_head_size; d++) out[d] = 0;
    for (int64_t j = lo; j < hi; j++)
        for (int64_t d = 0; d < job->v_head_size; d++)
            out[d] += exp(scores[j] - max) / sum * (double)p->v32[j * job->v_row + d];
    td_free_aligned(scores);
}

static problem make(const setup *s, uint64_t *seed) {
    int64_t k_row = s->head + 3, v_row = s->v_head + 5, heads = s->group;
    problem p = {.n_out = (size_t)(s->n_q * heads * s->v_head)};
    size_t n_k = (size_t)(s->n_keys * k_row), n_v = (size_t)(s->n_keys * v_row),
           n_q = (size_t)(s->n_q * heads * s->head);
    p.q = get(n_q, 4);
    p.k32 = get(n_k, 4);
    p.v32 = get(n_v, 4);
    p.k = p.k32;
    p.v = p.v32;
    p.bias = get((size_t)(s->n_q * heads * s->n_keys), 4);
    p.sink = get((size_t)heads, 4);
    p.exact = get(p.n_out, 8);
    td_fill_f32(p.q, (int64_t)n_q, TD_FILL_NORMAL, seed);
    td_fill_f32(p.k32, (int64_t)n_k, TD_FILL_NORMAL, seed);
    td_fill_f32(p.v32, (int64_t)n_v, TD_FILL_NORMAL, seed);
    td_fill_f32(p.bias, s->n_q * heads * s->n_keys, TD_FILL_NORMAL, seed);
    td_fill_f32(p.sink, heads, TD_FILL_NORMAL, seed);
    if (s->kv != TD_FLOAT) {
        p.k = get(n_k, 2);
        p.v = get(n_v, 2);
        td_from_f32(s->kv, p.k32, (int64_t)n_k, p.k);
        td_from_f32(s->kv, p.v32, (int64_t)n_v, p.v);
        td_to_f32(s->kv, p.k, (int64_t)n_k, p.k32);
        td_to_f32(s->kv, p.v, (int64_t)n_v, p.v32);
    }
    p.job = (td_attention_f32){.n_q = s->n_q,
                               .n_keys = s->n_keys,
                               .group = heads,
                               .head_size = s->head,
                               .v_head_size = s->v_head,
                               .q = p.q,
                               .q_row = heads * s->head,
                               .q_head = s->head,
                               .kv = s->kv,
                               .k = p.k,
                               .v = p.v,
                               .k_row = k_row,
                               .v_row = v_row,
                               .out_row = heads * s->v_head,
                               .out_head = s->v_head,
                               .causal = s->causal,
                               .first = s->n_keys - s->n_q,
                               .window = s->window,
                               .scale = 1 / sqrtf((float)s->head),
                               .softcap = s->softcap,
                               .bias = s->bias ? p.bias : NULL,
                               .bias_row = heads * s->n_keys,
                               .bias_head = s->n_keys,
                               .sink = s->sink ? p.sink : NULL};
    for (int64_t i = 0; i < s->n_q; i++)
        for (int64_t g = 0; g < heads; g++) exact_row(&p, i, g);
    return p;
}

static void drop(problem *p) {
    if (p->k != p->k32) {
        td_free_aligned(p->k);
        td_free_aligned(p->v);
    }
    void *all[] = {p->q, p->k32, p->v32, p->bias, p->sink, p->exact};
    for (size_t i = 0; i < TD_COUNT(all); i++) td_free_aligned(all[i]);
}

static void run_job(const td_attention_f32_kernels *kernels, const td_attention_f32 *job, int threads) {
    size_t bytes;
    td_pool *pool = td_pool_acquire(threads);
    REQUIRE(td_attention_f32_scratch(kernels, job, 1, pool, &bytes));
    void *scratch = get(bytes, 1);
    td_attention_f32_parallel(kernels, job, 1, pool, scratch);
    td_free_aligned(scratch);
    td_pool_release(pool);
}

TEST(every_variant_against_float64) {
    uint64_t seed = 1;
    char what[128];
    for (size_t i = 0; i < TD_COUNT(setups); i++) {
        problem p = make(&setups[i], &seed);
        for (td_variant v = td_variant_first(td_attention_f32_variants, td_attention_f32_n_variants); v.name;
             v = td_variant_next(v)) {
            td_guarded out = td_guarded_new(p.n_out * 4, 4), again = td_guarded_new(p.n_out * 4, 8);
            snprintf(what, sizeof what, "%s setup %zu", v.name, i);
            p.job.out = out.data;
            run_job(v.table, &p.job, 1);
            for (size_t j = 0; j < p.n_out; j++)
                if (!(fabs((double)p.job.out[j] - p.exact[j]) <= 6e-6 * (fabs(p.exact[j]) + 1))) {
                    FAIL("%s: [%zu] is %.9g, expected %.9g", what, j, (double)p.job.out[j], p.exact[j]);
                    break;
                }
            p.job.out = again.data;
            run_job(v.table, &p.job, 3);
            td_same_bits_f32(what, again.data, out.data, (int64_t)p.n_out);
            CHECK(td_guarded_intact(&out) && td_guarded_intact(&again));
            td_guarded_free(&out);
            td_guarded_free(&again);
        }
        drop(&p);
    }
}

/* Keys that no query sees need not be there: with those before a bound left out, the same; from a bound of
 * TD_ATTENTION_KEYS on, to the bit. */
TEST(keys_before_a_window_are_not_read) {
    uint64_t seed = 3;
    char what[128];
    for (size_t i = 0; i < TD_COUNT(setups); i++) {
        if (setups[i].window == 0) continue;
        problem p = make(&setups[i], &seed);
        size_t item = setups[i].kv == TD_FLOAT ? 4 : 2;
        int64_t lo, hi, n_keys = p.job.n_keys;
        float *whole = get(p.n_out, 4), *cut = get(p.n_out, 4);
        td_attention_range(&p.job, 0, &lo, &hi);
        for (td_variant v = td_variant_first(td_attention_f32_variants, td_attention_f32_n_variants); v.name;
             v = td_variant_next(v)) {
            p.job.out = whole;
            run_job(v.table, &p.job, 2);
            for (int64_t base = lo; base >= 0; base = base ? base / TD_ATTENTION_KEYS * TD_ATTENTION_KEYS : -1) {
                td_guarded k = td_guarded_new((size_t)((n_keys - base) * p.job.k_row) * item, item);
                td_guarded val = td_guarded_new((size_t)((n_keys - base) * p.job.v_row) * item, item);
                memcpy(k.data, (const char *)p.k + (size_t)(base * p.job.k_row) * item, k.bytes);
                memcpy(val.data, (const char *)p.v + (size_t)(base * p.job.v_row) * item, val.bytes);
                td_attention_f32 job = p.job;
                job.k = k.data, job.v = val.data, job.base = base, job.out = cut;
                run_job(v.table, &job, 2);
                snprintf(what, sizeof what, "%s setup %zu from key %lld on", v.name, i, (long long)base);
                float tolerance = 4e-6f;
                if (base % TD_ATTENTION_KEYS == 0) td_same_bits_f32(what, cut, whole, (int64_t)p.n_out);
                else td_near_f32(what, cut, whole, (int64_t)p.n_out, &tolerance, 0);
                td_guarded_free(&k);
                td_guarded_free(&val);
                if (base % TD_ATTENTION_KEYS == 0) break;
            }
        }
        td_free_aligned(whole);
        td_free_aligned(cut);
        drop(&p);
    }
}

TEST(prefill_agrees_with_decode) {
    uint64_t seed = 5;
    setup s = {300, 300, 3, 64, 64, true, 0, 0, 0, false, TD_FLOAT};
    problem p = make(&s, &seed);
    float *all = get(p.n_out, 4), *one = get(192, 4);
    for (td_variant v = td_variant_first(td_attention_f32_variants, td_attention_f32_n_variants); v.name;
         v = td_variant_next(v)) {
        p.job.out = all;
        run_job(v.table, &p.job, 2);
        for (int64_t i = 0; i < s.n_q; i += 37) {
            td_attention_f32 job = p.job;
            job.n_q = 1;
            job.q += i * job.q_row;
            job.first = i;
            job.n_keys = i + 1;
            job.out = one;
            run_job(v.table, &job, 2);
            float tolerance = 4e-6f;
            td_near_f32(v.name, one, all + i * 192, 192, &tolerance, 0);
        }
    }
    td_free_aligned(all);
    td_free_aligned(one);
    drop(&p);
}
