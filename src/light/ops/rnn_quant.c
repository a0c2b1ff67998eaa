/* light/ops/rnn_quant.c - com.microsoft DynamicQuantizeLSTM: an LSTM with 8-bit weights, whose inputs are quantised
 * as they come, X as a whole and the hidden states of a step as a whole. Source: onnxruntime
 * docs/ContribOperators.md, release 1.31.
 *
 * W is [directions, input, 4 * hidden] and R alike: already the right side of a product. */
#include "light/ops/dynamic_quantize.h"
#include "light/ops/rnn.h"

#include <string.h>

typedef struct quant_state {
    td_rnn rnn;
    const td_gemm_i8_kernels *kernels;
    const uint8_t *w, *r; /* packed for all directions, if constants; else NULL */
} quant_state;

enum { W = 1, R = 2, W_SCALE = 8, W_ZERO = 9, R_SCALE = 10, R_ZERO = 11 };

static bool pack_bytes(const td_shape *m, size_t *each) {
    if (!td_gemm_i8_pack_bytes(m->dims[1], m->dims[2], each) || *each > SIZE_MAX / 4) return false;
    *each = TD_ROUND_UP(*each, (size_t)64);
    return true;
}

static void pack_matrix(const td_tensor *m, size_t each, uint8_t *out) {
    int64_t k = m->shape.dims[1], n = m->shape.dims[2];
    for (int64_t d = 0; d < m->shape.dims[0]; d++)
        td_gemm_i8_pack((const uint8_t *)m->data + d * k * n, n, 1, m->dtype == TD_INT8, k, n, out + (size_t)d * each);
}

static treadle_status pack_constant(td_prepare *p, size_t input, const uint8_t **out) {
    const td_tensor *m = td_input_const(p, input);
    size_t each;
    void *packed;
    bool ready;

    if (!m || m->shape.rank != 3 || td_tensor_count(m) == 0) return TREADLE_OK;
    if (!pack_bytes(&m->shape, &each)) return td_unsupported(p, "weights of 2^63 bytes");
    TD_TRY(td_prepare_packed(p, input == W ? "rnn i8 input 1" : "rnn i8 hidden 1", each * (size_t)m->shape.dims[0],
                             &packed, &ready));
    if (!ready) {
        pack_matrix(m, each, packed);
        td_prepare_done_with(p, input);
    }
    *out = packed;
    return TREADLE_OK;
}

static treadle_status quant_prepare(td_prepare *p) {
    quant_state *s = p->state;

    s->kernels = td_gemm_i8_pick();
    TD_TRY(td_rnn_prepare(p, TD_RNN_LSTM, &s->rnn));
    TD_TRY(pack_constant(p, W, &s->w));
    return pack_constant(p, R, &s->r);
}

/* Scales and zero points: one a direction, or one for each column of it. */
static treadle_status check_parameter(td_infer *in, size_t i, size_t matrix, const char *what) {
    const td_shape *m = &in->inputs[matrix]->tensor.shape, *s = &in->inputs[i]->tensor.shape;
    int64_t count;

    if (!td_shape_known(m) || !td_shape_count(s, &count)) return TREADLE_OK;
    if (count == m->dims[0] || count == m->dims[0] * m->dims[2]) return TREADLE_OK;
    return td_infer_fail(in, "%s has %lld entries; expected one a direction or one a column", what, (long long)count);
}

static treadle_status quant_infer(td_infer *in) {
    const quant_state *s = in->state;

    TD_TRY(td_rnn_infer(in, &s->rnn, true));
    TD_TRY(check_parameter(in, W_SCALE, W, "W_scale"));
    TD_TRY(check_parameter(in, W_ZERO, W, "W_zero_point"));
    TD_TRY(check_parameter(in, R_SCALE, R, "R_scale"));
    return check_parameter(in, R_ZERO, R, "R_zero_point");
}

/* --- run --- */

/* A matrix of one direction and memory for the rows that it is multiplied with. */
typedef struct factor {
    const td_gemm_i8_kernels *kernels;
    int64_t k, n;
    const void *packed;
    const float *scales;
    int64_t scale_step;
    const int32_t *zeros;
    int64_t zero_step;
    const float *bias; /* or NULL */
    uint8_t *codes;
    int8_t *rows;
    int32_t *sums;
    void *scratch;
    td_pool *pool;
} factor;

static treadle_status make_factor(td_run *r, const quant_state *s, size_t matrix, int direction, int64_t rows,
                                  const uint8_t *packed, td_pool *pool, factor *f) {
    const td_tensor *m = r->in[matrix], *scale = r->in[matrix == W ? W_SCALE : R_SCALE],
                    *zero = r->in[matrix == W ? W_ZERO : R_ZERO];
    int64_t n_zeros = td_tensor_count(zero) / m->shape.dims[0], n_scales = td_tensor_count(scale) / m->shape.dims[0];
    int32_t *zeros = td_run_scratch(r, (size_t)n_zeros * sizeof *zeros);
    size_t each;

    if (!pack_bytes(&m->shape, &each)) return td_run_fail(r, "the weights are too large");
    *f = (factor){.kernels = s->kernels,
                  .k = m->shape.dims[1],
                  .n = m->shape.dims[2],
                  .packed = packed + (size_t)direction * each,
                  .scales = (const float *)scale->data + direction * n_scales,
                  .scale_step = n_scales > 1,
                  .zeros = zeros,
                  .zero_step = n_zeros > 1,
                  .codes = td_run_scratch(r, (size_t)(rows * m->shape.dims[1])),
                  .rows = td_run_scratch(r, (size_t)(rows * td_gemm_i8_row(m->shape.dims[1]))),
                  .sums = td_run_scratch(r, (size_t)rows * sizeof(int32_t)),
                  .scratch = td_run_scratch(r, td_gemm_i8_scratch(pool)),
                  .pool = pool};
    if (!zeros || !f->codes || !f->rows || !f->sums || !f->scratch) return TREADLE_OUT_OF_MEMORY;
    for (int64_t i = 0; i < n_zeros; i++) {
        int64_t at = direction * n_zeros + i;
        zeros[i] = zero->dtype == TD_INT8 ? ((const int8_t *)zero->data)[at] : ((const uint8_t *)zero->data)[at];
        if (m->dtype == TD_INT8) zeros[i] += 128;
    }
    return TREADLE_OK;
}

/* c = a, quantised as a whole, times the matrix; part 0 is all there is of an LSTM. */
static void multiply(const void *ctx, int part, const void *a, int64_t rows, void *c) {
    const factor *f = ctx;
    float least, largest, scale;
    uint8_t zero;

    (void)part;
    f->kernels->range(a, rows * f->k, &least, &largest);
    td_dynamic_scale(least, largest, &scale, &zero);
    f->kernels->quantize(a, rows * f->k, scale, (float)zero, 0, 255, f->codes);
    td_gemm_i8_fill(f->kernels, f->codes, f->k, false, f->k, 0, rows, f->rows, f->sums);
    int32_t moved = (int32_t)zero - 128;
    td_gemm_i8 gemm = {.m = rows,
                       .n = f->n,
                       .k = f->k,
                       .a = f->rows,
                       .a_sums = f->sums,
                       .b = f->packed,
                       .a_zero = &moved,
                       .b_zero = f->zeros,
                       .b_zero_step = f->zero_step,
                       .y = c,
                       .y_row = f->n,
                       .a_scale = &scale,
                       .b_scale = f->scales,
                       .b_scale_step = f->scale_step,
                       .bias = f->bias};
    td_gemm_i8_parallel(f->kernels, &gemm, f->pool, f->scratch);
}

static treadle_status packed_matrix(td_run *r, size_t input, const uint8_t **packed) {
    const td_tensor *m = r->in[input];
    size_t each;

    if (*packed) return TREADLE_OK;
    if (!pack_bytes(&m->shape, &each)) return td_run_fail(r, "the weights are too large");
    uint8_t *made = td_run_scratch(r, each * (size_t)m->shape.dims[0]);
    if (!made) return TREADLE_OUT_OF_MEMORY;
    pack_matrix(m, each, made);
    *packed = made;
    return TREADLE_OK;
}

/* W's and R's bias added. */
static treadle_status join_bias(td_run *r, const float *both, int64_t n, const float **out) {
    float *bias = td_run_scratch(r, (size_t)n * sizeof *bias);
    if (!bias) return TREADLE_OUT_OF_MEMORY;
    for (int64_t i = 0; i < n; i++) bias[i] = both[i] + both[n + i];
    *out = bias;
    return TREADLE_OK;
}

static treadle_status quant_run(td_run *r) {
    const quant_state *s = r->state;
    const td_tensor *b = td_rnn_input(r, 3), *h = td_rnn_input(r, 5), *c = td_rnn_input(r, 6), *p = td_rnn_input(r, 7);
    const uint8_t *w = s->w, *hidden = s->r;
    factor inputs, states[2];
    td_rnn_layer layer = {.rnn = &s->rnn,
                          .sizes = td_rnn_sizes_of(&s->rnn, &r->in[0]->shape, r->in[R]->shape.dims[1]),
                          .dtype = TD_FLOAT,
                          .initial_h = h ? h->data : NULL,
                          .initial_c = c ? c->data : NULL,
                          .peepholes = p ? p->data : NULL,
                          .multiply = multiply};
    const td_rnn_sizes *sizes = &layer.sizes;
    int64_t rows = sizes->steps * sizes->batch, n = sizes->gates;
    void **outputs[] = {&layer.y, &layer.y_h, &layer.y_c};

    TD_TRY(td_rnn_lengths(r, sizes->batch, sizes->steps, &layer.lengths));
    TD_TRY(packed_matrix(r, W, &w));
    TD_TRY(packed_matrix(r, R, &hidden));
    for (size_t i = 0; i < r->n_outputs && i < 3; i++) *outputs[i] = r->out[i] ? r->out[i]->data : NULL;
    for (int d = 0; d < sizes->directions; d++) {
        float *gates = td_run_scratch(r, (size_t)(rows * n) * sizeof *gates);
        if (!gates) return TREADLE_OUT_OF_MEMORY;
        TD_TRY(make_factor(r, s, W, d, rows, w, r->pool, &inputs));
        TD_TRY(make_factor(r, s, R, d, sizes->batch, hidden, NULL, &states[d]));
        if (b) TD_TRY(join_bias(r, (const float *)b->data + d * 2 * n, n, &inputs.bias));
        multiply(&inputs, 0, r->in[0]->data, rows, gates);
        layer.x[d] = gates;
        layer.ctx[d] = &states[d];
    }
    return td_rnn_run_layer(r, &layer);
}

const td_op_impl td_op_dynamic_quantize_lstm = {
    .state_bytes = sizeof(quant_state), .prepare = quant_prepare, .infer = quant_infer, .run = quant_run};
