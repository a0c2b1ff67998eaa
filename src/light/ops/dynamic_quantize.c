/* light/ops/dynamic_quantize.c - DynamicQuantizeLinear. Source: ONNX op text. All zeros get
 * scale 1, as ONNX Runtime has it. */
#include "light/ops/dynamic_quantize.h"

#include <math.h>

enum { GRAIN = 32768, APART = 16 }; /* floats between what two threads write */

typedef struct range_job {
    const td_gemm_i8_kernels *kernels;
    const float *x;
    float *found; /* per thread: least, largest */
} range_job;

static void find_range(void *arg, int64_t begin, int64_t end, int thread) {
    const range_job *j = arg;
    float least, largest, *found = j->found + thread * APART;
    j->kernels->range(j->x + begin, end - begin, &least, &largest);
    found[0] = TD_MIN(found[0], least);
    found[1] = TD_MAX(found[1], largest);
}

void td_dynamic_scale(float least, float largest, float *scale, uint8_t *zero) {
    *scale = largest == least ? 1 : (largest - least) / 255;
    float at = 0 - least / *scale; /* of an infinite range perhaps no number */
    *zero = (uint8_t)(!(at > 0) ? 0 : at < 255 ? nearbyintf(at) : 255);
}

treadle_status td_dynamic_range(td_run *r, const td_gemm_i8_kernels *kernels, const float *x, int64_t n, float *scale,
                                uint8_t *zero) {
    int threads = td_pool_threads(r->pool);
    range_job job = {kernels, x, td_run_scratch(r, (size_t)threads * APART * sizeof(float))};
    float least = 0, largest = 0;

    if (!job.found) return TREADLE_OUT_OF_MEMORY;
    for (int i = 0; i < threads; i++) job.found[i * APART] = job.found[i * APART + 1] = 0;
    td_pool_range(r->pool, n, GRAIN, 64, find_range, &job);
    for (int i = 0; i < threads; i++) {
        least = TD_MIN(least, job.found[i * APART]);
        largest = TD_MAX(largest, job.found[i * APART + 1]);
    }
    td_dynamic_scale(least, largest, scale, zero);
    return TREADLE_OK;
}

typedef struct codes_job {
    const td_gemm_i8_kernels *kernels;
    const float *x;
    uint8_t *out;
    float scale, zero;
} codes_job;

static void make_codes(void *arg, int64_t begin, int64_t end, int thread) {
    const codes_job *j = arg;
    (void)thread;
    j->kernels->quantize(j->x + begin, end - begin, j->scale, j->zero, 0, 255, j->out + begin);
}

void td_dynamic_codes(td_run *r, const td_gemm_i8_kernels *kernels, const float *x, int64_t n, float scale,
                      uint8_t zero, uint8_t *out) {
    codes_job job = {kernels, x, out, scale, (float)zero};
    td_pool_range(r->pool, n, GRAIN, 64, make_codes, &job);
}

/* --- the op */

typedef struct dynamic_state {
    const td_gemm_i8_kernels *kernels;
} dynamic_state;

static treadle_status dynamic_prepare(td_prepare *p) {
    dynamic_state *s = p->state;
    s->kernels = td_gemm_i8_pick();
    return TREADLE_OK;
}

static treadle_status dynamic_infer(td_infer *in) {
    td_shape scalar = {0};
    TD_TRY(td_infer_set(in, 0, TD_UINT8, &in->inputs[0]->tensor.shape));
    TD_TRY(td_infer_set(in, 1, TD_FLOAT, &scalar));
    return td_infer_set(in, 2, TD_UINT8, &scalar);
}

static treadle_status dynamic_run(td_run *r) {
    const dynamic_state *s = r->state;
    const float *x = r->in[0]->data;
    int64_t n = td_tensor_count(r->in[0]);
    uint8_t zero;
    float scale;

    TD_TRY(td_dynamic_range(r, s->kernels, x, n, &scale, &zero));
    if (r->out[1]) *(float *)r->out[1]->data = scale;
    if (r->out[2]) *(uint8_t *)r->out[2]->data = zero;
    if (r->out[0]) td_dynamic_codes(r, s->kernels, x, n, scale, zero, r->out[0]->data);
    return TREADLE_OK;
}

const td_op_impl td_op_dynamic_quantize_linear = {
    .state_bytes = sizeof(dynamic_state), .prepare = dynamic_prepare, .infer = dynamic_infer, .run = dynamic_run};
