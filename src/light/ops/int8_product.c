/* light/ops/int8_product.c - see int8_product.h. */
#include "light/ops/int8_product.h"

#include "light/ops/matrices.h"

#include <string.h>

treadle_status td_int8_prepare(td_prepare *p, size_t b, td_int8_product *out) {
    const td_tensor *t = td_input_const(p, b);
    size_t bytes;
    void *packed;
    bool ready;

    out->kernels = td_gemm_i8_pick();
    if (!t || t->shape.rank != 2 || td_tensor_count(t) == 0) return TREADLE_OK;
    int64_t k = t->shape.dims[0], n = t->shape.dims[1];
    if (!td_gemm_i8_pack_bytes(k, n, &bytes)) return td_unsupported(p, "a weight of more than 2^63 bytes");
    TD_TRY(td_prepare_packed(p, "gemm_i8 1", bytes, &packed, &ready));
    if (!ready) {
        td_gemm_i8_pack(t->data, n, 1, t->dtype == TD_INT8, k, n, packed);
        td_prepare_done_with(p, b);
    }
    out->packed = packed;
    return TREADLE_OK;
}

treadle_status td_int8_check_side(td_infer *in, size_t input, const td_shape *matrix, bool rows) {
    if (input >= in->n_inputs || in->inputs[input]->kind != TD_VALUE_TENSOR) return TREADLE_OK;
    const td_shape *s = &in->inputs[input]->tensor.shape;
    if (!td_shape_known(s) || !td_shape_known(matrix)) return TREADLE_OK;
    int64_t count = 1, n = matrix->dims[matrix->rank - (rows && matrix->rank > 1 ? 2 : 1)];
    for (int d = 0; d < s->rank; d++) count *= s->dims[d];
    if (rows && matrix->rank == 1) n = 1;
    if (count == 1 || (s->rank == 1 && count == n)) return TREADLE_OK;
    bool fits = s->rank == matrix->rank && s->rank >= 2;
    for (int d = 0; fits && d < s->rank; d++)
        fits = s->dims[d] == (d == s->rank - (rows ? 1 : 2) ? 1 : matrix->dims[d]);
    return fits ? TREADLE_OK
                : td_infer_fail(in, "expected input %zu to be one number or one for each %s", input,
                                rows ? "row" : "column");
}

/* Zero points as the kernel wants them: of matrix number q those from values + q * stride on. */
typedef struct zeros {
    const int32_t *values;
    int64_t step, stride;
} zeros;

static treadle_status make_zeros(td_run *r, const td_tensor *t, int64_t n, int32_t moved, zeros *out) {
    int64_t count = t ? td_tensor_count(t) : 1;
    int32_t *values = td_run_scratch(r, (size_t)count * sizeof *values);

    if (!values) return TREADLE_OUT_OF_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        int32_t code = !t ? 0 : t->dtype == TD_INT8 ? ((const int8_t *)t->data)[i] : ((const uint8_t *)t->data)[i];
        values[i] = code + moved;
    }
    *out = (zeros){values, count > 1, count > n ? n : 0};
    return TREADLE_OK;
}

typedef struct fill_job {
    const td_gemm_i8_kernels *kernels;
    const td_matrix *a;
    bool is_signed;
    int8_t *out;
    int32_t *sums;
} fill_job;

static void fill_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const fill_job *j = arg;
    (void)thread;
    td_gemm_i8_fill(j->kernels, j->a->data, j->a->row_stride, j->is_signed, j->a->cols, begin, end, j->out, j->sums);
}

/* Everything that all products of a run need. */
typedef struct work {
    td_run *r;
    const td_int8_product *p;
    const td_int8_run *run;
    zeros a_zeros, b_zeros;
    int8_t *rows;
    int32_t *sums;
    void *packed, *scratch;
} work;

static void run_one(const work *w, const td_product_job *job, const void *b) {
    const td_int8_run *run = w->run;
    const td_matrix *a = &job->a;
    int64_t row = ((const char *)a->data - (const char *)run->a.data) / TD_MAX(1, a->cols); /* of all A */
    int64_t a_at = a->rows ? row / a->rows * w->a_zeros.stride : 0, b_at = 0;
    if (w->b_zeros.stride) /* B is dense then */
        b_at = ((const char *)job->b.data - (const char *)run->b.data) / TD_MAX(1, job->b.rows * job->b.cols) *
               w->b_zeros.stride;
    td_gemm_i8 gemm = {.m = a->rows,
                       .n = job->b.cols,
                       .k = a->cols,
                       .a = w->rows,
                       .a_sums = w->sums,
                       .b = b,
                       .a_zero = w->a_zeros.values + a_at,
                       .b_zero = w->b_zeros.values + b_at,
                       .a_zero_step = w->a_zeros.step,
                       .b_zero_step = w->b_zeros.step};
    if (run->y.dtype == TD_INT32) {
        gemm.c = job->y.data;
        gemm.c_row = job->y.row_stride;
    } else {
        gemm.y = job->y.data;
        gemm.y_row = job->y.row_stride;
        gemm.a_scale = run->a_scale + row * run->a_scale_step;
        gemm.a_scale_step = run->a_scale_step;
        gemm.b_scale = run->b_scale;
        gemm.b_scale_step = run->b_scale_step;
        gemm.bias = run->bias;
    }
    td_gemm_i8_parallel(w->p->kernels, &gemm, w->r->pool, w->scratch);
}

static treadle_status get_memory(work *w, const td_product_job *job) {
    size_t bytes = 0;
    w->rows = td_run_scratch(w->r, (size_t)job->a.rows * (size_t)td_gemm_i8_row(job->a.cols));
    w->sums = td_run_scratch(w->r, (size_t)job->a.rows * sizeof *w->sums);
    w->scratch = td_run_scratch(w->r, td_gemm_i8_scratch(w->r->pool));
    if (!w->p->packed && !td_gemm_i8_pack_bytes(job->b.rows, job->b.cols, &bytes))
        return td_run_fail(w->r, "sizes overflow");
    w->packed = td_run_scratch(w->r, bytes);
    return w->rows && w->sums && w->scratch && w->packed ? TREADLE_OK : TREADLE_OUT_OF_MEMORY;
}

treadle_status td_int8_run_all(td_run *r, const td_int8_product *p, const td_int8_run *run) {
    enum { GRAIN = 65536 };
    work w = {.r = r, .p = p, .run = run};
    bool a_signed = run->a.dtype == TD_INT8, b_signed = run->b.dtype == TD_INT8;
    int64_t n_jobs, per_row = run->a_zero && td_tensor_count(run->a_zero) > 1;
    td_product_job *jobs;

    TD_TRY(td_matrices_jobs(r, &run->a, &run->b, &run->y, !per_row, &jobs, &n_jobs));
    if (n_jobs == 0 || jobs->y.rows * jobs->y.cols == 0) return TREADLE_OK;
    TD_TRY(make_zeros(r, run->a_zero, jobs->a.rows, a_signed ? 0 : -128, &w.a_zeros));
    TD_TRY(make_zeros(r, run->b_zero, jobs->b.cols, b_signed ? 128 : 0, &w.b_zeros));
    TD_TRY(get_memory(&w, jobs));
    for (int64_t i = 0; i < n_jobs; i++) {
        const td_product_job *job = &jobs[i];
        bool new_b = i == 0 || job->b.data != job[-1].b.data;
        if (!p->packed && new_b)
            td_gemm_i8_pack(job->b.data, job->b.row_stride, job->b.col_stride, b_signed, job->b.rows, job->b.cols,
                            w.packed);
        fill_job fill = {p->kernels, &job->a, a_signed, w.rows, w.sums};
        if (i == 0 || job->a.data != job[-1].a.data)
            td_pool_range(r->pool, job->a.rows, TD_MAX(1, GRAIN / TD_MAX(1, job->a.cols)), 1, fill_rows, &fill);
        run_one(&w, job, p->packed ? p->packed : w.packed);
    }
    return TREADLE_OK;
}
