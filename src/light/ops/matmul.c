/* light/ops/matmul.c - MatMul: NumPy's matmul over stacks of matrices. Source: ONNX op text of MatMul-1, -9, -13.
 * Inputs may be strided. */
#include "light/ops/matrices.h"

static treadle_status matmul_prepare(td_prepare *p) { return td_product_prepare(p, false, p->state); }

treadle_status td_matmul_infer(td_infer *in, const td_tensor *ta, const td_tensor *tb) {
    return td_matrices_infer(in, &ta->shape, &tb->shape, ta->dtype);
}

treadle_status td_matmul_run(td_run *r, const td_product *p, const td_tensor *ta, const td_tensor *tb,
                             const float *bias) {
    td_product_job *jobs;
    int64_t n_jobs;
    TD_TRY(td_matrices_jobs(r, ta, tb, r->out[0], true, &jobs, &n_jobs));
    return td_product_run(r, p, jobs, n_jobs, bias);
}

static treadle_status matmul_infer(td_infer *in) {
    return td_matmul_infer(in, &in->inputs[0]->tensor, &in->inputs[1]->tensor);
}

static treadle_status matmul_run(td_run *r) { return td_matmul_run(r, r->state, r->in[0], r->in[1], NULL); }

const td_op_impl td_op_matmul = {.state_bytes = sizeof(td_product),
                                 .prepare = matmul_prepare,
                                 .infer = matmul_infer,
                                 .run = matmul_run,
                                 .strided_inputs = 3};
