/* light/ops/det.c - Det: determinants of the last two dimensions, by elimination with row pivots in float64. Source: ONNX op text of
 * Det-11 and -22. */
#include "light/op.h"
#include "tensor/half.h"

#include <math.h>

static treadle_status det_infer(td_infer *in) {
    const td_tensor *x = &in->inputs[0]->tensor;
    td_shape out = x->shape;

    if (out.rank < 0) return td_infer_unknown(in, 0, x->dtype, -1);
    if (out.rank < 2) return td_infer_fail(in, "rank %d; expected matrices", out.rank);
    int64_t rows = out.dims[out.rank - 2], columns = out.dims[out.rank - 1];
    if (rows >= 0 && columns >= 0 && rows != columns)
        return td_infer_fail(in, "matrices of %lld by %lld are not square", (long long)rows, (long long)columns);
    out.rank -= 2;
    return td_infer_set(in, 0, x->dtype, &out);
}

static double determinant(double *m, int64_t n) {
    double det = 1;

    for (int64_t k = 0; k < n; k++) {
        int64_t pivot = k;
        for (int64_t i = k + 1; i < n; i++)
            if (fabs(m[i * n + k]) > fabs(m[pivot * n + k])) pivot = i;
        if (m[pivot * n + k] == 0) return 0;
        for (int64_t j = k; j < n && pivot != k; j++) {
            double swap = m[k * n + j];
            m[k * n + j] = m[pivot * n + j];
            m[pivot * n + j] = swap;
        }
        det *= pivot == k ? m[k * n + k] : -m[k * n + k];
        for (int64_t i = k + 1; i < n; i++) {
            double factor = m[i * n + k] / m[k * n + k];
            for (int64_t j = k + 1; j < n; j++) m[i * n + j] -= factor * m[k * n + j];
        }
    }
    return det;
}

static treadle_status det_run(td_run *r) {
    const td_tensor *x = r->in[0], *y = r->out[0];
    int64_t n = x->shape.dims[x->shape.rank - 1], count = y ? td_tensor_count(y) : 0;
    double *m = td_run_scratch(r, (size_t)(n * n) * sizeof *m);

    if (!m) return TREADLE_OUT_OF_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t k = 0; k < n * n; k++) m[k] = td_load_f64(x->dtype, x->data, i * n * n + k);
        td_store_f64(y->dtype, y->data, i, determinant(m, n));
    }
    return TREADLE_OK;
}

const td_op_impl td_op_det = {.infer = det_infer, .run = det_run};
