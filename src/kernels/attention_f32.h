/* kernels/attention_f32.h - softmax(scale * Q . K^T + bias) . V in fp32, keys and values in fp32, fp16 or bf16.
 *
 * A job is one kv head of one sequence with all query heads that share it: K and V are read once for the group. K and V
 * are strided rows, so a cache of any capacity is read in place. Two ways of splitting the work, chosen by the job's
 * shape alone, never by the number of threads, so that results do not depend on it:
 *   few query rows (decode)   ranges of TD_ATTENTION_KEYS keys, each with a softmax of its own, merged in key order;
 *   many (prefill)            blocks of query positions, each with a running softmax over chunks of keys.
 * Both compute each row by itself, and agree within fp32 rounding. A row that may see no key at all gives zeros.
 * Source: Dao et al. 2022 (FlashAttention), Dao et al. 2023 (flash-decoding). */
#ifndef TD_KERNELS_ATTENTION_F32_H
#define TD_KERNELS_ATTENTION_F32_H

#include "base/pool.h"
#include "kernels/kernel.h"
#include "tensor/dtype.h"

enum {
    TD_ATTENTION_KEYS = 256, /* keys of one part in decode */
    TD_ATTENTION_ROWS =
        192, /* query rows (positions times group) of one part in prefill; more if the group is larger */
};

/* All memory borrowed; strides in elements; the innermost dimension is dense. */
typedef struct td_attention_f32 {
    int64_t n_q, n_keys;
    int64_t group; /* query heads that share this kv head */
    int64_t head_size, v_head_size;
    const float *q; /* position i, head g at q[i * q_row + g * q_head] */
    int64_t q_row, q_head;
    td_dtype kv;       /* TD_FLOAT, TD_FLOAT16 or TD_BFLOAT16 */
    const void *k, *v; /* key j at k[(j - base) * k_row], v[(j - base) * v_row] */
    int64_t k_row, v_row;
    int64_t base; /* keys before this one are not there; no query sees them */
    float *out;   /* out[i * out_row + g * out_head], v_head_size values */
    int64_t out_row, out_head;
    bool causal;    /* query i sees keys up to first + i */
    int64_t first;  /* the position of query 0 among the keys */
    int64_t window; /* > 0: query i sees keys after first + i - window only */
    float scale;
    float softcap;     /* > 0: scores become softcap * tanh(score / softcap) */
    const float *bias; /* added to the scores after the softcap: bias[i * bias_row + g * bias_head + j], or NULL */
    int64_t bias_row, bias_head;
    const float *sink; /* [group] further scores in the softmax that carry no value, or NULL */
} td_attention_f32;

/* The keys lo..hi that query i sees. */
static inline void td_attention_range(const td_attention_f32 *job, int64_t i, int64_t *lo, int64_t *hi) {
    int64_t at = job->first + i;
    *hi = job->causal ? TD_MAX(0, TD_MIN(job->n_keys, at + 1)) : job->n_keys;
    *lo = job->window > 0 ? TD_MIN(*hi, TD_MAX(0, at + 1 - job->window)) : 0;
}

/* Query positions of one part in prefill. */
static inline int64_t td_attention_block(const td_attention_f32 *job) {
    return TD_MAX(1, TD_ATTENTION_ROWS / job->group);
}

/* What a variant provides. */
typedef struct td_attention_f32_kernels {
    const char *name;
    /* Positions p0..p1 (at most td_attention_block of them) over keys k0..k1. Unfinished rows go to
     * partial[(i - p0) * group + g][v_head_size + 2]: sums of exp(score - max) * value, then max, then the sum of
     * exp(score - max); max is -infinity where no key was seen. */
    void (*run)(const td_attention_f32 *job, int64_t p0, int64_t p1, int64_t k0, int64_t k1, float *partial,
                void *scratch);
    size_t (*scratch_bytes)(const td_attention_f32 *job); /* of one thread */
} td_attention_f32_kernels;

#define TD_KERNEL(isa, needs) extern const td_attention_f32_kernels td_attention_f32_##isa;
#include "kernels/attention_f32.inc"
#undef TD_KERNEL

extern const td_kernel_variant td_attention_f32_variants[];
extern const size_t td_attention_f32_n_variants;
const td_attention_f32_kernels *td_attention_f32_pick(void);

/* Scratch for td_attention_f32_parallel over jobs that have the shape of `job` and at most
 * its n_keys; false: too large. */
bool td_attention_f32_scratch(const td_attention_f32_kernels *kernels, const td_attention_f32 *job, int64_t n_jobs,
                              const td_pool *pool, size_t *out);
/* All jobs, which agree in n_q, group, sizes and types. scratch: 64-byte aligned. */
void td_attention_f32_parallel(const td_attention_f32_kernels *kernels, const td_attention_f32 *jobs, int64_t n_jobs,
                               td_pool *pool, void *scratch);

#endif
