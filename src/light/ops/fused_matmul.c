/* light/ops/fused_matmul.c - com.microsoft FusedMatMul and its older name TransposeMatMul: MatMul of operands that are
 * first transposed, times alpha. Source: onnxruntime docs/ContribOperators.md, release 1.31.
 *
 * transBatch moves the first dimension behind the others but the last; trans then swaps the last two. Both are
 * views. */
#include "light/ops/matrices.h"
#include "tensor/half.h"

typedef struct fused_state {
    td_product product;
    float alpha;
    bool trans[2], batch[2];
} fused_state;

static treadle_status fused_prepare(td_prepare *p) {
    fused_state *s = p->state;
    s->alpha = td_attr_float(p, "alpha");
    s->trans[0] = td_attr_int(p, "transA") != 0;
    s->trans[1] = td_attr_int(p, "transB") != 0;
    s->batch[0] = td_attr_int(p, "transBatchA") != 0;
    s->batch[1] = td_attr_int(p, "transBatchB") != 0;
    TD_TRY(td_product_prepare(p, s->trans[1], &s->product));
    s->product.wide_y = td_product_is_half(&s->product);
    return TREADLE_OK;
}

/* Operand i as MatMul wants it; a vector stays as it is. */
static td_tensor turned(const fused_state *s, const td_tensor *t, int i) {
    td_tensor out = *t;
    int rank = t->shape.rank;
    if (rank < 2) return out;
    for (int d = 0; s->batch[i] && d < rank - 1; d++) {
        int from = d == rank - 2 ? 0 : d + 1;
        out.shape.dims[d] = t->shape.dims[from];
        out.strides[d] = t->strides[from];
    }
    if (s->trans[i]) {
        td_tensor before = out;
        for (int d = 0; d < 2; d++) {
            out.shape.dims[rank - 2 + d] = before.shape.dims[rank - 1 - d];
            out.strides[rank - 2 + d] = before.strides[rank - 1 - d];
        }
    }
    return out;
}

static treadle_status fused_infer(td_infer *in) {
    const fused_state *s = in->state;
    td_tensor a = turned(s, &in->inputs[0]->tensor, 0), b = turned(s, &in->inputs[1]->tensor, 1);
    return td_matrices_infer(in, &a.shape, &b.shape, a.dtype);
}

typedef struct scale_job {
    td_dtype dtype;
    float alpha;
    const float *from; /* of a half type: what is to be rounded */
    void *to;
} scale_job;

static void scale(void *arg, int64_t begin, int64_t end, int thread) {
    enum { CHUNK = 256 };
    const scale_job *j = arg;
    float *y = j->to;
    double *y64 = j->to;
    (void)thread;
    if (j->dtype == TD_FLOAT) {
        for (int64_t i = begin; i < end; i++) y[i] *= j->alpha;
        return;
    }
    if (j->dtype == TD_DOUBLE) {
        for (int64_t i = begin; i < end; i++) y64[i] *= (double)j->alpha;
        return;
    }
    for (int64_t at = begin; at < end; at += CHUNK) {
        float part[CHUNK];
        int64_t n = TD_MIN((int64_t)CHUNK, end - at);
        for (int64_t i = 0; i < n; i++) part[i] = j->from[at + i] * j->alpha;
        td_from_f32(j->dtype, part, n, (uint16_t *)j->to + at);
    }
}

static treadle_status fused_run(td_run *r) {
    const fused_state *s = r->state;
    td_tensor a = turned(s, r->in[0], 0), b = turned(s, r->in[1], 1), y = *r->out[0];
    int64_t count = td_tensor_count(&y), n_jobs;
    td_product_job *jobs;

    if (s->product.wide_y) {
        y.dtype = TD_FLOAT;
        y.data = td_run_scratch(r, (size_t)count * sizeof(float));
        if (!y.data) return TREADLE_OUT_OF_MEMORY;
    }
    TD_TRY(td_matrices_jobs(r, &a, &b, &y, true, &jobs, &n_jobs));
    TD_TRY(td_product_run(r, &s->product, jobs, n_jobs, NULL));
    scale_job job = {s->product.dtype, s->alpha, y.data, r->out[0]->data};
    if (s->alpha != 1 || s->product.wide_y) td_pool_range(r->pool, count, 16384, 64, scale, &job);
    return TREADLE_OK;
}

const td_op_impl td_op_fused_matmul = {.state_bytes = sizeof(fused_state),
                                       .prepare = fused_prepare,
                                       .infer = fused_infer,
                                       .run = fused_run,
                                       .strided_inputs = 3};
