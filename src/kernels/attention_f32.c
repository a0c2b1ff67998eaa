/* kernels/attention_f32.c - the table of variants, the split into parts, and the merge of what the parts found. */
#include "kernels/attention_f32.h"

#include <math.h>
#include <string.h>

#define TD_KERNEL(isa, needs) {#isa, (needs), &td_attention_f32_##isa},
const td_kernel_variant td_attention_f32_variants[] = {
#include "kernels/attention_f32.inc"
};
#undef TD_KERNEL
const size_t td_attention_f32_n_variants = TD_COUNT(td_attention_f32_variants);

const td_attention_f32_kernels *td_attention_f32_pick(void) {
    return td_kernel_pick(td_attention_f32_variants, td_attention_f32_n_variants);
}

/* Up to this many query rows a job is split by keys. */
enum { FEW_ROWS = 64 };

/* How a set of jobs is cut. Parts of a job follow each other; jobs with fewer keys leave some of theirs empty. */
typedef struct cut {
    bool by_keys;
    int64_t parts;        /* of a job */
    int64_t rows;         /* of a part */
    int64_t row_items;    /* floats of an unfinished row */
    size_t thread_bytes;  /* scratch of the kernel */
    size_t partial_bytes; /* of a part by keys, or of a thread else */
} cut;

static bool make_cut(const td_attention_f32_kernels *kernels, const td_attention_f32 *job, int64_t n_keys, cut *c) {
    int64_t block = td_attention_block(job);
    c->by_keys = job->n_q <= block && job->n_q * job->group <= FEW_ROWS;
    c->parts = c->by_keys ? (n_keys + TD_ATTENTION_KEYS - 1) / TD_ATTENTION_KEYS : (job->n_q + block - 1) / block;
    c->parts = TD_MAX(1, c->parts);
    c->rows = TD_MIN(job->n_q, block) * job->group;
    c->row_items = job->v_head_size + 2;
    c->thread_bytes = TD_ROUND_UP(kernels->scratch_bytes(job), 64);
    size_t items;
    if (TD_MUL_OVERFLOWS((size_t)c->rows, (size_t)c->row_items, &items)) return false;
    if (TD_MUL_OVERFLOWS(items, sizeof(float), &c->partial_bytes) || c->partial_bytes > SIZE_MAX / 2) return false;
    c->partial_bytes = TD_ROUND_UP(c->partial_bytes, 64);
    return true;
}

bool td_attention_f32_scratch(const td_attention_f32_kernels *kernels, const td_attention_f32 *job, int64_t n_jobs,
                              const td_pool *pool, size_t *out) {
    cut c;
    size_t threads = (size_t)td_pool_threads(pool), parts, partials, scratch;
    if (!make_cut(kernels, job, job->n_keys, &c)) return false;
    if (TD_MUL_OVERFLOWS((size_t)c.parts, (size_t)n_jobs, &parts)) return false;
    if (parts > INT32_MAX) return false;
    if (!c.by_keys) parts = threads;
    return !TD_MUL_OVERFLOWS(parts, c.partial_bytes, &partials) &&
           !TD_MUL_OVERFLOWS(threads, c.thread_bytes, &scratch) && !TD_ADD_OVERFLOWS(partials, scratch, out);
}

typedef struct work {
    const td_attention_f32_kernels *kernels;
    const td_attention_f32 *jobs;
    cut cut;
    uint8_t *scratch, *partials;
} work;

/* Positions p0..p0+count of a job from the unfinished rows of `parts` parts, `step` floats apart. */
static void finish(const td_attention_f32 *job, int64_t p0, int64_t count, float *partial, int64_t parts,
                   int64_t step) {
    int64_t v = job->v_head_size;
    for (int64_t r = 0; r < count * job->group; r++) {
        int64_t g = r % job->group;
        const float *row = partial + r * (v + 2);
        float *out = job->out + (p0 + r / job->group) * job->out_row + g * job->out_head;
        float max = job->sink ? job->sink[g] : -INFINITY, sum = 0;
        for (int64_t p = 0; p < parts; p++) max = row[p * step + v] <= max ? max : row[p * step + v];
        if (max == -INFINITY) { /* nothing to see */
            memset(out, 0, (size_t)v * sizeof(float));
            continue;
        }
        if (job->sink) sum = expf(job->sink[g] - max);
        for (int64_t p = 0; p < parts; p++) sum += row[p * step + v + 1] * expf(row[p * step + v] - max);
        for (int64_t p = 0; p < parts; p++) {
            float share = expf(row[p * step + v] - max) / sum;
            const float *from = row + p * step;
            if (p == 0)
                for (int64_t i = 0; i < v; i++) out[i] = from[i] * share;
            else
                for (int64_t i = 0; i < v; i++) out[i] += from[i] * share;
        }
    }
}

static void run_part(void *arg, int part, int thread) {
    const work *w = arg;
    const cut *c = &w->cut;
    const td_attention_f32 *job = &w->jobs[part / c->parts];
    int64_t at = part % c->parts;
    void *scratch = w->scratch + c->thread_bytes * (size_t)thread;

    if (c->by_keys) {
        float *partial = (float *)(void *)(w->partials + c->partial_bytes * (size_t)part);
        int64_t k0 = at * TD_ATTENTION_KEYS, k1 = TD_MIN(k0 + TD_ATTENTION_KEYS, job->n_keys);
        w->kernels->run(job, 0, job->n_q, k0, TD_MAX(k0, k1), partial, scratch);
        return;
    }
    float *partial = (float *)(void *)(w->partials + c->partial_bytes * (size_t)thread);
    int64_t block = td_attention_block(job), p0 = (c->parts - 1 - at) * block; /* longest first */
    int64_t p1 = TD_MIN(p0 + block, job->n_q);
    w->kernels->run(job, p0, p1, 0, job->n_keys, partial, scratch);
    finish(job, p0, p1 - p0, partial, 1, 0);
}

static void merge_jobs(void *arg, int64_t begin, int64_t end, int thread) {
    const work *w = arg;
    int64_t step = (int64_t)(w->cut.partial_bytes / sizeof(float));
    (void)thread;
    for (int64_t j = begin; j < end; j++) {
        float *partial = (float *)(void *)(w->partials + w->cut.partial_bytes * (size_t)(j * w->cut.parts));
        finish(&w->jobs[j], 0, w->jobs[j].n_q, partial, w->cut.parts, step);
    }
}

void td_attention_f32_parallel(const td_attention_f32_kernels *kernels, const td_attention_f32 *jobs, int64_t n_jobs,
                               td_pool *pool, void *scratch) {
    enum { MERGE_GRAIN = 1 << 16, WORK_GRAIN = 1 << 16 };
    int64_t n_keys = 0;
    work w = {.kernels = kernels, .jobs = jobs, .scratch = scratch};

    if (n_jobs == 0 || jobs->n_q == 0) return;
    for (int64_t i = 0; i < n_jobs; i++) n_keys = TD_MAX(n_keys, jobs[i].n_keys);
    if (!make_cut(kernels, jobs, n_keys, &w.cut)) return; /* td_attention_f32_scratch has said no */
    w.partials = w.scratch + w.cut.thread_bytes * (size_t)td_pool_threads(pool);
    bool small = n_keys * jobs->n_q * jobs->group * n_jobs * (jobs->head_size + jobs->v_head_size) < WORK_GRAIN;
    td_pool_run(small ? NULL : pool, (int)(n_jobs * w.cut.parts), run_part, &w);
    if (!w.cut.by_keys) return;
    int64_t each = TD_MAX(1, w.cut.parts * w.cut.rows * w.cut.row_items);
    td_pool_range(pool, n_jobs, TD_MAX(1, MERGE_GRAIN / each), 1, merge_jobs, &w);
}
