/* light/ops/product.c - see product.h. */
#include "light/ops/product.h"

#include "tensor/half.h"

#include <string.h>

/* --- weights --- */

static treadle_status pack(td_prepare *p, const td_tensor *b, bool transposed, td_product *out) {
    int64_t k = b->shape.dims[transposed ? 1 : 0], n = b->shape.dims[transposed ? 0 : 1];
    td_gemm_b from = {.form = transposed ? TD_GEMM_TRANSPOSED : TD_GEMM_NORMAL,
                      .dtype = b->dtype,
                      .data = b->data,
                      .ld = b->shape.dims[1]};
    size_t bytes;
    void *packed;
    bool ready;

    if (k == 0 || n == 0) return TREADLE_OK;
    if (!td_gemm_f32_pack_bytes(b->dtype, k, n, &bytes)) return td_unsupported(p, "a weight of more than 2^63 bytes");
    TD_TRY(td_prepare_packed(p, transposed ? "gemm_f32 transposed 1" : "gemm_f32 1", bytes, &packed, &ready));
    if (!ready) {
        td_gemm_f32_pack(&from, k, n, 0, n, packed);
        td_prepare_done_with(p, 1);
    }
    out->packed = packed;
    out->b_dtype = b->dtype;
    return TREADLE_OK;
}

treadle_status td_product_prepare(td_prepare *p, bool transposed_b, td_product *out) {
    const td_tensor *b = td_input_const(p, 1);

    out->dtype = td_input_dtype(p, 0);
    switch (out->dtype) {
    case TD_FLOAT:
    case TD_FLOAT16:
    case TD_BFLOAT16:
    case TD_DOUBLE:
    case TD_INT32:
    case TD_INT64:
    case TD_UINT32:
    case TD_UINT64: break;
    default: return td_unsupported(p, "element type %s", td_dtype_name(out->dtype));
    }
    out->kernels = td_gemm_f32_pick();
    if (b && b->shape.rank == 2 && (out->dtype == TD_FLOAT || td_product_is_half(out)))
        TD_TRY(pack(p, b, transposed_b, out));
    return TREADLE_OK;
}

/* --- float32 and the halves --- */

static void dense_copy(td_dtype dtype, const td_matrix *from, void *to) {
    td_tensor source = {.dtype = dtype,
                        .shape = {2, {from->rows, from->cols}},
                        .data = from->data,
                        .strides = {from->row_stride, from->col_stride}};
    td_tensor dense;
    td_tensor_view(&dense, dtype, &source.shape, to);
    td_tensor_copy(&dense, &source);
}

static size_t matrix_bytes(td_dtype dtype, const td_matrix *m) {
    return (size_t)m->rows * (size_t)m->cols * ((size_t)td_dtype_bits(dtype) / 8); /* of a tensor that exists */
}

/* B as the kernel reads it; one whose strides it cannot read is copied first (the same for all jobs with this B). */
static treadle_status kernel_b(td_run *r, const td_product *p, const td_matrix *b, td_gemm_b *out) {
    out->dtype = p->packed ? p->b_dtype : p->dtype;
    out->data = p->packed ? p->packed : b->data;
    if (p->packed) {
        out->form = TD_GEMM_PANELS;
    } else if (b->col_stride == 1 || b->cols == 1) {
        out->form = TD_GEMM_NORMAL;
        out->ld = b->row_stride;
    } else if (b->row_stride == 1 || b->rows == 1) {
        out->form = TD_GEMM_TRANSPOSED;
        out->ld = b->col_stride;
    } else {
        void *copy = td_run_scratch(r, matrix_bytes(p->dtype, b));
        if (!copy) return TREADLE_OUT_OF_MEMORY;
        dense_copy(p->dtype, b, copy);
        *out = (td_gemm_b){.form = TD_GEMM_NORMAL, .dtype = p->dtype, .data = copy, .ld = b->cols};
    }
    return TREADLE_OK;
}

typedef struct batch {
    const td_gemm_f32_kernels *kernels;
    const td_gemm_f32 *gemms;
    uint8_t *scratch;
} batch;

static void run_whole(void *arg, int64_t begin, int64_t end, int thread) {
    const batch *b = arg;
    void *scratch = b->scratch + TD_ROUND_UP(b->kernels->scratch_bytes, 64) * (size_t)thread;
    for (int64_t i = begin; i < end; i++) b->kernels->run(&b->gemms[i], 0, b->gemms[i].m, 0, b->gemms[i].n, scratch);
}

treadle_status td_product_run_gemms(td_run *r, const td_gemm_f32_kernels *kernels, const td_gemm_f32 *gemms,
                                    int64_t n_gemms) {
    enum { GRAIN = 65536 };
    uint8_t *scratch = td_run_scratch(r, td_gemm_f32_scratch(kernels, r->pool));

    if (!scratch) return TREADLE_OUT_OF_MEMORY;
    if (n_gemms >= 2 * td_pool_threads(r->pool) && td_pool_threads(r->pool) > 1) {
        batch b = {kernels, gemms, scratch};
        int64_t each = TD_MAX(1, gemms->m * gemms->n * TD_MAX(1, gemms->k));
        td_pool_range(r->pool, n_gemms, TD_MAX(1, GRAIN / each), 1, run_whole, &b);
        return TREADLE_OK;
    }
    for (int64_t i = 0; i < n_gemms; i++) td_gemm_f32_parallel(kernels, &gemms[i], r->pool, scratch);
    return TREADLE_OK;
}

static treadle_status run_f32(td_run *r, const td_product *p, const td_product_job *jobs, int64_t n_jobs,
                              const float *bias) {
    td_gemm_f32 *gemms = td_run_scratch(r, (size_t)n_jobs * sizeof *gemms);

    if (!gemms) return TREADLE_OUT_OF_MEMORY;
    for (int64_t i = 0; i < n_jobs; i++) {
        const td_product_job *j = &jobs[i];
        gemms[i] = (td_gemm_f32){.m = j->y.rows,
                                 .n = j->y.cols,
                                 .k = j->a.cols,
                                 .a = j->a.data,
                                 .a_row = j->a.row_stride,
                                 .a_col = j->a.col_stride,
                                 .bias = bias,
                                 .c = j->y.data,
                                 .c_row = j->y.row_stride};
        if (i > 0 && j->b.data == jobs[i - 1].b.data) gemms[i].b = gemms[i - 1].b;
        else TD_TRY(kernel_b(r, p, &j->b, &gemms[i].b));
    }
    return td_product_run_gemms(r, p->kernels, gemms, n_jobs);
}

/* A is widened into scratch, the product made there, and rounded once. */
static treadle_status run_half(td_run *r, const td_product *p, const td_product_job *jobs, int64_t n_jobs) {
    const td_matrix *a0 = &jobs->a, *y0 = &jobs->y;
    size_t a_count = (size_t)(a0->rows * a0->cols), y_count = p->wide_y ? 0 : (size_t)(y0->rows * y0->cols);
    uint16_t *dense = td_run_scratch(r, matrix_bytes(p->dtype, a0));
    float *a = td_run_scratch(r, a_count * sizeof(float)), *y = td_run_scratch(r, y_count * sizeof(float));
    void *scratch = td_run_scratch(r, td_gemm_f32_scratch(p->kernels, r->pool));
    td_gemm_f32 gemm = {
        .m = y0->rows, .n = y0->cols, .k = a0->cols, .a = a, .a_row = a0->cols, .a_col = 1, .c = y, .c_row = y0->cols};

    if (!dense || !a || !y || !scratch) return TREADLE_OUT_OF_MEMORY;
    for (int64_t i = 0; i < n_jobs; i++) {
        const td_product_job *j = &jobs[i];
        bool is_dense = j->a.col_stride == 1 && j->a.row_stride == j->a.cols;
        if (!is_dense) dense_copy(p->dtype, &j->a, dense);
        td_to_f32(p->dtype, is_dense ? j->a.data : dense, (int64_t)a_count, a);
        if (i == 0 || j->b.data != jobs[i - 1].b.data) TD_TRY(kernel_b(r, p, &j->b, &gemm.b));
        if (p->wide_y) {
            gemm.c = j->y.data;
            gemm.c_row = j->y.row_stride;
        }
        td_gemm_f32_parallel(p->kernels, &gemm, r->pool, scratch);
        for (int64_t row = 0; !p->wide_y && row < j->y.rows; row++)
            td_from_f32(p->dtype, y + row * j->y.cols, j->y.cols, (uint16_t *)j->y.data + row * j->y.row_stride);
    }
    return TREADLE_OK;
}

/* --- float64 and the integers --- */

#define PLAIN_ROWS(T, name)                                                                                            \
    static void name(const td_product_job *job, int64_t m0, int64_t m1) {                                              \
        for (int64_t i = m0; i < m1; i++) {                                                                            \
            const T *a = (const T *)job->a.data + i * job->a.row_stride;                                               \
            T *y = (T *)job->y.data + i * job->y.row_stride;                                                           \
            memset(y, 0, (size_t)job->y.cols * sizeof(T));                                                             \
            for (int64_t k = 0; k < job->a.cols; k++) {                                                                \
                const T *b = (const T *)job->b.data + k * job->b.row_stride;                                           \
                T x = a[k * job->a.col_stride];                                                                        \
                for (int64_t j = 0; j < job->y.cols; j++) y[j] += x * b[j * job->b.col_stride];                        \
            }                                                                                                          \
        }                                                                                                              \
    }
PLAIN_ROWS(double, rows_f64)
PLAIN_ROWS(uint32_t, rows_u32)
PLAIN_ROWS(uint64_t, rows_u64)

typedef struct plain {
    td_dtype dtype;
    const td_product_job *jobs;
} plain;

static void plain_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const plain *p = arg;
    int64_t rows = p->jobs->y.rows;
    (void)thread;
    while (begin < end) {
        const td_product_job *job = &p->jobs[begin / rows];
        int64_t m0 = begin % rows, m1 = TD_MIN(rows, m0 + end - begin);
        if (p->dtype == TD_DOUBLE) rows_f64(job, m0, m1);
        else if (td_dtype_bits(p->dtype) == 32) rows_u32(job, m0, m1);
        else rows_u64(job, m0, m1);
        begin += m1 - m0;
    }
}

treadle_status td_product_run(td_run *r, const td_product *p, const td_product_job *jobs, int64_t n_jobs,
                              const float *bias) {
    enum { GRAIN = 16384 };
    if (n_jobs == 0 || jobs->y.rows == 0 || jobs->y.cols == 0) return TREADLE_OK;
    if (p->dtype == TD_FLOAT) return run_f32(r, p, jobs, n_jobs, bias);
    if (td_product_is_half(p)) return run_half(r, p, jobs, n_jobs);
    plain all = {p->dtype, jobs};
    int64_t each = TD_MAX(1, jobs->y.cols * TD_MAX(1, jobs->a.cols));
    td_pool_range(r->pool, n_jobs * jobs->y.rows, TD_MAX(1, GRAIN / each), 1, plain_rows, &all);
    return TREADLE_OK;
}
