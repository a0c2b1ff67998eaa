/* light/ops/gemm.c - Gemm: Y = alpha * A' . B' + beta * C. Source: ONNX op text of Gemm-1, -6, -7, -9, -11, -13.
 * float16 and bfloat16 are computed in float32, integers with alpha and beta in float64. */
#include "light/ops/product.h"

#include "tensor/half.h"

typedef struct gemm_state {
    td_product product; /* first: shared with prepare */
    bool trans_a, trans_b, has_c;
    float alpha, beta;
} gemm_state;

static treadle_status gemm_prepare(td_prepare *p) {
    gemm_state *s = p->state;

    s->trans_a = td_attr_int(p, "transA") != 0;
    s->trans_b = td_attr_int(p, "transB") != 0;
    s->alpha = td_attr_float(p, "alpha");
    s->beta = td_attr_float(p, "beta");
    s->has_c = td_has_input(p, 2) && s->beta != 0;
    s->product.wide_y = true;
    return td_product_prepare(p, s->trans_b, &s->product);
}

static treadle_status gemm_infer(td_infer *in) {
    const gemm_state *s = in->state;
    const td_tensor *a = &in->inputs[0]->tensor, *b = &in->inputs[1]->tensor;
    td_shape out = {.rank = 2, .dims = {TD_DIM_UNKNOWN, TD_DIM_UNKNOWN}}, sum;
    int64_t k_a = TD_DIM_UNKNOWN, k_b = TD_DIM_UNKNOWN;

    if ((a->shape.rank >= 0 && a->shape.rank != 2) || (b->shape.rank >= 0 && b->shape.rank != 2))
        return td_infer_fail(in, "expected A and B to be matrices");
    if (a->shape.rank == 2) {
        out.dims[0] = a->shape.dims[s->trans_a ? 1 : 0];
        k_a = a->shape.dims[s->trans_a ? 0 : 1];
    }
    if (b->shape.rank == 2) {
        out.dims[1] = b->shape.dims[s->trans_b ? 0 : 1];
        k_b = b->shape.dims[s->trans_b ? 1 : 0];
    }
    if (k_a >= 0 && k_b >= 0 && k_a != k_b)
        return td_infer_fail(in, "inner dimensions %lld and %lld differ", (long long)k_a, (long long)k_b);
    if (s->has_c && td_shape_known(&out) && td_shape_known(&in->inputs[2]->tensor.shape)) {
        if (!td_shape_broadcast(&out, &in->inputs[2]->tensor.shape, &sum) || !td_shape_equal(&sum, &out))
            return td_infer_fail(in, "C does not broadcast to the product");
    }
    return td_infer_set(in, 0, a->dtype, &out);
}

static td_matrix matrix_of(const td_tensor *t, bool transposed) {
    td_matrix m = {t->shape.dims[0], t->shape.dims[1], t->strides[0], t->strides[1], t->data};
    if (!transposed) return m;
    return (td_matrix){m.cols, m.rows, m.col_stride, m.row_stride, m.data};
}

/* How C walks Y: its strides, 0 where it broadcasts. */
typedef struct addend {
    const td_tensor *c; /* NULL: none */
    int64_t row, col;
} addend;

static addend addend_of(const td_tensor *c) {
    addend a = {.c = c};
    if (c && c->shape.rank > 0 && c->shape.dims[c->shape.rank - 1] != 1) a.col = c->strides[c->shape.rank - 1];
    if (c && c->shape.rank > 1 && c->shape.dims[c->shape.rank - 2] != 1) a.row = c->strides[c->shape.rank - 2];
    return a;
}

/* Y = alpha * Y + beta * C; U is the unsigned type of integers, which wrap while alpha and beta are 1. */
#define FINISH_FLOAT(T, name)                                                                                          \
    static void name(const td_tensor *y, const addend *a, T alpha, T beta) {                                           \
        T *to = y->data;                                                                                               \
        const T *from = a->c ? a->c->data : NULL;                                                                      \
        for (int64_t i = 0; i < y->shape.dims[0]; i++)                                                                 \
            for (int64_t j = 0; j < y->shape.dims[1]; j++, to++)                                                       \
                *to = from ? alpha * *to + beta * from[i * a->row + j * a->col] : alpha * *to;                         \
    }
FINISH_FLOAT(float, finish_f32)
FINISH_FLOAT(double, finish_f64)

#define FINISH_INT(T, U, name)                                                                                         \
    static void name(const td_tensor *y, const addend *a, double alpha, double beta) {                                 \
        T *to = y->data;                                                                                               \
        const T *from = a->c ? a->c->data : NULL;                                                                      \
        bool exact = alpha == 1 && beta == 1;                                                                          \
        for (int64_t i = 0; i < y->shape.dims[0]; i++)                                                                 \
            for (int64_t j = 0; j < y->shape.dims[1]; j++, to++) {                                                     \
                T c = from ? from[i * a->row + j * a->col] : 0;                                                        \
                if (exact) *to = (T)((U)*to + (U)c);                                                                   \
                else td_store_f64(y->dtype, to, 0, alpha *(double)*to + beta * (double)c);                             \
            }                                                                                                          \
    }
FINISH_INT(int32_t, uint32_t, finish_i32)
FINISH_INT(uint32_t, uint32_t, finish_u32)
FINISH_INT(int64_t, uint64_t, finish_i64)
FINISH_INT(uint64_t, uint64_t, finish_u64)

static void finish(const gemm_state *s, const td_tensor *y, const td_tensor *c) {
    addend a = addend_of(c);
    double alpha = (double)s->alpha, beta = (double)s->beta;
    switch (y->dtype) {
    case TD_FLOAT: finish_f32(y, &a, s->alpha, s->beta); break;
    case TD_INT32: finish_i32(y, &a, alpha, beta); break;
    case TD_UINT32: finish_u32(y, &a, alpha, beta); break;
    case TD_INT64: finish_i64(y, &a, alpha, beta); break;
    case TD_UINT64: finish_u64(y, &a, alpha, beta); break;
    default: finish_f64(y, &a, alpha, beta); break;
    }
}

/* float16 and bfloat16: product and sum in float32, rounded once. */
static treadle_status run_half(td_run *r, const gemm_state *s, td_product_job *job, const td_tensor *c) {
    const td_tensor *y = r->out[0];
    int64_t count = td_tensor_count(y), c_count = c ? td_tensor_count(c) : 0;
    td_tensor wide_y = *y, wide_c, dense;
    float *memory = td_run_scratch(r, (size_t)(count + c_count) * sizeof(float));
    uint16_t *copy = td_run_scratch(r, (size_t)c_count * sizeof(uint16_t));

    if (!memory || !copy) return TREADLE_OUT_OF_MEMORY;
    wide_y.dtype = TD_FLOAT;
    wide_y.data = job->y.data = memory;
    TD_TRY(td_product_run(r, &s->product, job, 1, NULL));
    if (c) {
        td_tensor_view(&dense, c->dtype, &c->shape, copy);
        td_tensor_copy(&dense, c);
        td_tensor_view(&wide_c, TD_FLOAT, &c->shape, memory + count);
        td_to_f32(c->dtype, copy, c_count, wide_c.data);
    }
    finish(s, &wide_y, c ? &wide_c : NULL);
    td_from_f32(y->dtype, memory, count, y->data);
    return TREADLE_OK;
}

static treadle_status gemm_run(td_run *r) {
    const gemm_state *s = r->state;
    const td_tensor *c = s->has_c ? r->in[2] : NULL, *y = r->out[0];
    td_product_job job = {matrix_of(r->in[0], s->trans_a), matrix_of(r->in[1], s->trans_b), matrix_of(y, false)};

    if (td_product_is_half(&s->product)) return run_half(r, s, &job, c);
    bool is_bias = c && s->alpha == 1 && s->beta == 1 && td_product_takes_bias(&s->product) && td_tensor_is_dense(c) &&
                   c->shape.rank > 0 && c->shape.dims[c->shape.rank - 1] == job.y.cols &&
                   td_tensor_count(c) == job.y.cols;
    TD_TRY(td_product_run(r, &s->product, &job, 1, is_bias ? c->data : NULL));
    if (!is_bias && (c || s->alpha != 1)) finish(s, y, c);
    return TREADLE_OK;
}

const td_op_impl td_op_gemm = {.state_bytes = sizeof(gemm_state),
                               .prepare = gemm_prepare,
                               .infer = gemm_infer,
                               .run = gemm_run,
                               .strided_inputs = 7};
