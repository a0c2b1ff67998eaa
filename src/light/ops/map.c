/* light/ops/map.c - see map.h. Dimensions that are walked alike by all operands are joined, so that dense tensors of
 * one shape are a single run, and a bias row is one run per row. */
#include "light/ops/map.h"

#include "tensor/half.h"

#include <string.h>

enum {
    MAP_GRAIN = 16384, /* elements a thread should have at least: about the price of waking one */
    HALF_CHUNK = 256,
};

typedef struct map_walk {
    int n_operands;
    int rank; /* outer dimensions, the innermost excluded */
    int64_t dims[TD_MAX_RANK];
    int64_t steps[TD_MAX_RANK][TD_MAP_OPERANDS]; /* bytes */
    int64_t inner;
    int64_t inner_steps[TD_MAP_OPERANDS];
    char *base[TD_MAP_OPERANDS];
    int64_t outer; /* product of dims */
    td_map_inner *fn;
    const void *ctx;
} map_walk;

static void operand_steps(const td_tensor *t, const td_shape *out, int operand, map_walk *w) {
    int64_t bytes = td_dtype_bits(t->dtype) / 8;
    int lead = out->rank - t->shape.rank;

    for (int d = 0; d < out->rank; d++) {
        bool walks = d >= lead && t->shape.dims[d - lead] != 1;
        w->steps[d][operand] = walks ? t->strides[d - lead] * bytes : 0;
    }
    w->base[operand] = t->data;
}

/* Joins dimension d with d + 1 wherever every operand walks them as one. */
static void collapse(map_walk *w) {
    int kept = 0;

    for (int d = 0; d < w->rank; d++) {
        if (w->dims[d] == 1) continue;
        bool joins = kept > 0;
        for (int i = 0; joins && i < w->n_operands; i++) joins = w->steps[kept - 1][i] == w->steps[d][i] * w->dims[d];
        if (joins) {
            w->dims[kept - 1] *= w->dims[d];
        } else {
            w->dims[kept++] = w->dims[d];
        }
        memmove(w->steps[kept - 1], w->steps[d], sizeof w->steps[d]);
    }
    w->rank = kept;
}

static void walk_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const map_walk *w = arg;
    int64_t at[TD_MAX_RANK];
    char *p[TD_MAP_OPERANDS];
    int64_t rest = begin;

    (void)thread;
    memcpy(p, w->base, sizeof p);
    for (int d = w->rank - 1; d >= 0; d--) {
        at[d] = rest % w->dims[d];
        rest /= w->dims[d];
        for (int i = 0; i < w->n_operands; i++) p[i] += at[d] * w->steps[d][i];
    }
    for (int64_t row = begin; row < end; row++) {
        w->fn(w->inner, p, w->inner_steps, w->ctx);
        for (int d = w->rank - 1; d >= 0; d--) {
            for (int i = 0; i < w->n_operands; i++) p[i] += w->steps[d][i];
            if (++at[d] < w->dims[d]) break;
            for (int i = 0; i < w->n_operands; i++) p[i] -= w->dims[d] * w->steps[d][i];
            at[d] = 0;
        }
    }
}

static void walk_run(void *arg, int64_t begin, int64_t end, int thread) {
    const map_walk *w = arg;
    char *p[TD_MAP_OPERANDS];

    (void)thread;
    memcpy(p, w->base, sizeof p);
    for (int i = 0; i < w->n_operands; i++) p[i] += begin * w->inner_steps[i];
    w->fn(end - begin, p, w->inner_steps, w->ctx);
}

void td_map_run(td_pool *pool, const td_tensor *out, const td_tensor *const *in, int n_in, td_map_inner *fn,
                const void *ctx) {
    map_walk w = {.n_operands = n_in + 1, .rank = out->shape.rank, .fn = fn, .ctx = ctx, .outer = 1, .inner = 1};

    for (int d = 0; d < w.rank; d++) {
        w.dims[d] = out->shape.dims[d];
        if (w.dims[d] == 0) return;
    }
    operand_steps(out, &out->shape, 0, &w);
    for (int i = 0; i < n_in; i++) operand_steps(in[i], &out->shape, i + 1, &w);
    collapse(&w);
    if (w.rank > 0) {
        w.rank--;
        w.inner = w.dims[w.rank];
        memcpy(w.inner_steps, w.steps[w.rank], sizeof w.inner_steps);
    }
    for (int d = 0; d < w.rank; d++) w.outer *= w.dims[d];
    if (w.outer == 1) td_pool_range(pool, w.inner, MAP_GRAIN, 64, walk_run, &w);
    else td_pool_range(pool, w.outer, TD_MAX(1, MAP_GRAIN / TD_MAX(w.inner, 1)), 1, walk_rows, &w);
}

static void gather(td_dtype type, const char *p, int64_t step, int64_t n, float *out) {
    int64_t bytes = td_dtype_bits(type) / 8;

    if (step == bytes) {
        td_to_f32(type, p, n, out);
        return;
    }
    for (int64_t i = 0; i < n; i++) td_to_f32(type, p + i * step, 1, out + i);
}

void td_map_through_f32(int64_t n, char *const p[TD_MAP_OPERANDS], const int64_t s[TD_MAP_OPERANDS], const void *ctx) {
    const td_map_half *h = ctx;
    float in[TD_MAP_OPERANDS - 1][HALF_CHUNK];
    union {
        float f[HALF_CHUNK];
        double widest[HALF_CHUNK];
    } out;
    bool converts = h->out_type == TD_FLOAT16 || h->out_type == TD_BFLOAT16;
    int64_t out_bytes = converts ? 2 : (int64_t)h->out_bytes;

    for (int64_t at = 0; at < n; at += HALF_CHUNK) {
        int64_t m = TD_MIN(n - at, (int64_t)HALF_CHUNK);
        char *q[TD_MAP_OPERANDS] = {(char *)&out};
        int64_t steps[TD_MAP_OPERANDS] = {converts ? (int64_t)sizeof(float) : out_bytes};
        char *to = p[0] + at * s[0];

        for (int i = 0; i < h->n_in; i++) {
            bool constant = s[i + 1] == 0;
            gather(h->in_type, p[i + 1] + at * s[i + 1], s[i + 1], constant ? 1 : m, in[i]);
            q[i + 1] = (char *)in[i];
            steps[i + 1] = constant ? 0 : (int64_t)sizeof(float);
        }
        h->fn(m, q, steps, h->ctx);
        if (converts && s[0] == 2) {
            td_from_f32(h->out_type, out.f, m, to);
        } else {
            for (int64_t i = 0; i < m; i++) {
                if (converts) td_from_f32(h->out_type, out.f + i, 1, to + i * s[0]);
                else memcpy(to + i * s[0], (char *)&out + i * out_bytes, (size_t)out_bytes);
            }
        }
    }
}

td_map_inner *td_map_choose(const td_map_row *rows, size_t n_rows, td_dtype dtype, td_dtype out_type, int n_in,
                            td_map_half *half) {
    td_map_inner *f32 = NULL;

    for (size_t i = 0; i < n_rows; i++) {
        if (rows[i].dtype == dtype) return rows[i].fn;
        if (rows[i].dtype == TD_FLOAT) f32 = rows[i].fn;
    }
    if (!f32 || (dtype != TD_FLOAT16 && dtype != TD_BFLOAT16)) return NULL;
    *half = (td_map_half){.out_type = out_type,
                          .in_type = dtype,
                          .n_in = n_in,
                          .fn = f32,
                          .out_bytes = (size_t)td_dtype_bits(out_type) / 8};
    return td_map_through_f32;
}
