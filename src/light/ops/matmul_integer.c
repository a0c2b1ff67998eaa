/* light/ops/matmul_integer.c - MatMulInteger, QLinearMatMul; com.microsoft DynamicQuantizeMatMul and
 * MatMulIntegerToFloat. Sources: ONNX op texts; onnxruntime docs/ContribOperators.md, release 1.31. */
#include "light/ops/dynamic_quantize.h"
#include "light/ops/heads.h"
#include "light/ops/int8_product.h"
#include "light/ops/matrices.h"
#include "tensor/half.h"

#include <string.h>

static const td_tensor *input(const td_run *r, size_t i) { return i < r->n_inputs ? r->in[i] : NULL; }

static treadle_status integer_prepare(td_prepare *p) { return td_int8_prepare(p, 1, p->state); }

/* --- MatMulInteger: A, B, a zero point, b zero point */

static treadle_status integer_infer(td_infer *in) {
    const td_shape *a = &in->inputs[0]->tensor.shape, *b = &in->inputs[1]->tensor.shape;
    TD_TRY(td_matrices_infer(in, a, b, TD_INT32));
    TD_TRY(td_int8_check_side(in, 2, a, true));
    return td_int8_check_side(in, 3, b, false);
}

static treadle_status integer_run(td_run *r) {
    td_int8_run run = {.a = *r->in[0], .b = *r->in[1], .a_zero = input(r, 2), .b_zero = input(r, 3), .y = *r->out[0]};
    return td_int8_run_all(r, r->state, &run);
}

const td_op_impl td_op_matmul_integer = {.state_bytes = sizeof(td_int8_product),
                                         .prepare = integer_prepare,
                                         .infer = integer_infer,
                                         .run = integer_run,
                                         .strided_inputs = 1u << 1};

/* --- MatMulIntegerToFloat: A, B, a scale, b scale, a zero point, b zero point, bias */

static treadle_status check_bias(td_infer *in, size_t input, const td_shape *b) {
    if (input >= in->n_inputs || in->inputs[input]->kind != TD_VALUE_TENSOR) return TREADLE_OK;
    const td_shape *bias = &in->inputs[input]->tensor.shape;
    if (bias->rank < 0 || b->rank < 1) return TREADLE_OK;
    int64_t n = b->dims[b->rank - 1];
    if (bias->rank != 1 || (bias->dims[0] >= 0 && n >= 0 && bias->dims[0] != n))
        return td_infer_fail(in, "expected bias to be [%lld]", (long long)n);
    return TREADLE_OK;
}

static treadle_status to_float_infer(td_infer *in) {
    const td_shape *a = &in->inputs[0]->tensor.shape, *b = &in->inputs[1]->tensor.shape;
    TD_TRY(td_matrices_infer(in, a, b, in->inputs[2]->tensor.dtype));
    TD_TRY(td_int8_check_side(in, 2, a, true));
    TD_TRY(td_int8_check_side(in, 3, b, false));
    TD_TRY(td_int8_check_side(in, 4, a, true));
    TD_TRY(td_int8_check_side(in, 5, b, false));
    return check_bias(in, 6, b);
}

/* Scales for each column of B: those of several matrices are not told apart. */
static treadle_status column_scales(td_run *r, const td_tensor *scale, const td_tensor *b, td_int8_run *run) {
    int64_t count = td_tensor_count(scale), n = b->shape.dims[b->shape.rank - 1];
    if (count != 1 && count != n) return td_run_fail(r, "scales of B for each of several matrices");
    run->b_scale_step = count > 1;
    return td_heads_f32(r, scale, &run->b_scale);
}

static treadle_status row_scales(td_run *r, const td_tensor *scale, const td_tensor *a, td_int8_run *run) {
    int64_t count = td_tensor_count(scale), k = a->shape.dims[a->shape.rank - 1];
    if (count != 1 && count != td_tensor_count(a) / TD_MAX(1, k))
        return td_run_fail(r, "expected scales of A to be one number or one for each row");
    run->a_scale_step = count > 1;
    return td_heads_f32(r, scale, &run->a_scale);
}

/* Y as float32: itself, or scratch that `finish` rounds. */
static treadle_status float_y(td_run *r, td_tensor *y) {
    *y = *r->out[0];
    if (y->dtype == TD_FLOAT) return TREADLE_OK;
    y->data = td_run_scratch(r, (size_t)td_tensor_count(y) * sizeof(float));
    y->dtype = TD_FLOAT;
    return y->data ? TREADLE_OK : TREADLE_OUT_OF_MEMORY;
}

static treadle_status to_float_run(td_run *r) {
    const td_tensor *bias = input(r, 6);
    td_int8_run run = {.a = *r->in[0], .b = *r->in[1], .a_zero = input(r, 4), .b_zero = input(r, 5)};

    TD_TRY(row_scales(r, r->in[2], r->in[0], &run));
    TD_TRY(column_scales(r, r->in[3], r->in[1], &run));
    if (bias) TD_TRY(td_heads_f32(r, bias, &run.bias));
    TD_TRY(float_y(r, &run.y));
    TD_TRY(td_int8_run_all(r, r->state, &run));
    if (run.y.data != r->out[0]->data)
        td_from_f32(r->out[0]->dtype, run.y.data, td_tensor_count(&run.y), r->out[0]->data);
    return TREADLE_OK;
}

const td_op_impl td_op_matmul_integer_to_float = {.state_bytes = sizeof(td_int8_product),
                                                  .prepare = integer_prepare,
                                                  .infer = to_float_infer,
                                                  .run = to_float_run,
                                                  .strided_inputs = 1u << 1};

/* --- DynamicQuantizeMatMul: A (float32), B, b scale, b zero point, bias */

static treadle_status dynamic_infer(td_infer *in) {
    const td_shape *a = &in->inputs[0]->tensor.shape, *b = &in->inputs[1]->tensor.shape;
    TD_TRY(td_matrices_infer(in, a, b, TD_FLOAT));
    TD_TRY(td_int8_check_side(in, 2, b, false));
    TD_TRY(td_int8_check_side(in, 3, b, false));
    return check_bias(in, 4, b);
}

static treadle_status dynamic_run(td_run *r) {
    const td_int8_product *p = r->state;
    const td_tensor *a = r->in[0], *bias = input(r, 4);
    int64_t n = td_tensor_count(a);
    uint8_t *codes = td_run_scratch(r, (size_t)n), zero;
    float scale;
    td_int8_run run = {
        .b = *r->in[1], .b_zero = input(r, 3), .y = *r->out[0], .a_scale = &scale, .bias = bias ? bias->data : NULL};
    td_tensor zero_point = {.dtype = TD_UINT8, .data = &zero};

    if (!codes) return TREADLE_OUT_OF_MEMORY;
    TD_TRY(column_scales(r, r->in[2], r->in[1], &run));
    TD_TRY(td_dynamic_range(r, p->kernels, a->data, n, &scale, &zero));
    td_dynamic_codes(r, p->kernels, a->data, n, scale, zero, codes);
    td_tensor_view(&run.a, TD_UINT8, &a->shape, codes);
    run.a_zero = &zero_point;
    return td_int8_run_all(r, p, &run);
}

const td_op_impl td_op_dynamic_quantize_matmul = {.state_bytes = sizeof(td_int8_product),
                                                  .prepare = integer_prepare,
                                                  .infer = dynamic_infer,
                                                  .run = dynamic_run,
                                                  .strided_inputs = 1u << 1};

/* --- QLinearMatMul: a, a scale, a zero point, b, b scale, b zero point, y scale, y zero point */

static treadle_status linear_prepare(td_prepare *p) { return td_int8_prepare(p, 3, p->state); }

static treadle_status linear_infer(td_infer *in) {
    const td_shape *a = &in->inputs[0]->tensor.shape, *b = &in->inputs[3]->tensor.shape;
    TD_TRY(td_matrices_infer(in, a, b, in->inputs[7]->tensor.dtype));
    for (size_t i = 1; i < 3; i++) TD_TRY(td_int8_check_side(in, i, a, true));
    for (size_t i = 4; i < 6; i++) TD_TRY(td_int8_check_side(in, i, b, false));
    return TREADLE_OK;
}

/* One float and one code. */
static treadle_status y_scale_of(td_run *r, float *scale, float *zero) {
    if (td_tensor_count(r->in[6]) != 1 || td_tensor_count(r->in[7]) != 1)
        return td_run_fail(r, "expected the output's scale and zero point to be one number each");
    *scale = (float)td_load_f64(r->in[6]->dtype, r->in[6]->data, 0);
    *zero = (float)td_load_i64(r->in[7]->dtype, r->in[7]->data, 0);
    return TREADLE_OK;
}

typedef struct requantize_job {
    const td_gemm_i8_kernels *kernels;
    const float *x;
    uint8_t *out;
    float zero, low, high;
} requantize_job;

static void requantize(void *arg, int64_t begin, int64_t end, int thread) {
    const requantize_job *j = arg;
    (void)thread;
    j->kernels->quantize(j->x + begin, end - begin, 1, j->zero, j->low, j->high, j->out + begin);
}

/* y = sums * (a scale * b scale / y scale) + zero: the factor as a scale of B, as far as A has but one. */
static treadle_status scale_down(td_run *r, float y_scale, td_int8_run *run) {
    static const float one = 1;
    int64_t n = run->b_scale_step ? td_tensor_count(r->in[4]) : 1;
    float *scales = td_run_scratch(r, (size_t)n * sizeof *scales), a = run->a_scale_step ? 1 : *run->a_scale;

    if (!scales) return TREADLE_OUT_OF_MEMORY;
    for (int64_t i = 0; i < n; i++) scales[i] = a * run->b_scale[i] / y_scale;
    run->b_scale = scales;
    if (!run->a_scale_step) run->a_scale = &one;
    return TREADLE_OK;
}

static treadle_status linear_run(td_run *r) {
    const td_int8_product *p = r->state;
    td_int8_run run = {.a = *r->in[0], .b = *r->in[3], .a_zero = r->in[2], .b_zero = r->in[5], .y = *r->out[0]};
    bool is_signed = run.y.dtype == TD_INT8;
    int64_t count = td_tensor_count(&run.y);
    float y_scale = 1;
    requantize_job job = {
        .kernels = p->kernels, .out = run.y.data, .low = is_signed ? -128 : 0, .high = is_signed ? 127 : 255};

    TD_TRY(row_scales(r, r->in[1], r->in[0], &run));
    TD_TRY(column_scales(r, r->in[4], r->in[3], &run));
    TD_TRY(y_scale_of(r, &y_scale, &job.zero));
    TD_TRY(scale_down(r, y_scale, &run));
    run.y.data = td_run_scratch(r, (size_t)count * sizeof(float));
    if (!run.y.data) return TREADLE_OUT_OF_MEMORY;
    run.y.dtype = TD_FLOAT;
    job.x = run.y.data;
    TD_TRY(td_int8_run_all(r, p, &run));
    td_pool_range(r->pool, count, 32768, 64, requantize, &job);
    return TREADLE_OK;
}

const td_op_impl td_op_qlinear_matmul = {.state_bytes = sizeof(td_int8_product),
                                         .prepare = linear_prepare,
                                         .infer = linear_infer,
                                         .run = linear_run,
                                         .strided_inputs = 1u << 3};
