/* light/ops/rnn.c - RNN, GRU, LSTM. Source: ONNX op texts of RNN-1 to -22, GRU-1 to -22, LSTM-1 to -22.
 *
 * float32 runs on the product kernels with W and R packed; float16 and bfloat16 keep their weights and pass everything
 * else through float32; float64 is plain loops. */
#include "light/ops/rnn.h"

#include "light/ops/product.h"
#include "tensor/half.h"

#include <string.h>

typedef struct rnn_state {
    td_rnn rnn; /* first: shared with infer */
    const td_gemm_f32_kernels *kernels;
    td_dtype dtype;
    const uint8_t *w, *r; /* packed for all directions, if constants; else NULL */
} rnn_state;

/* --- packed weights: for each direction the panels of each part --- */

static bool packed_bytes(td_dtype dtype, int64_t k, int64_t columns, size_t *out) {
    if (columns == 0) {
        *out = 0;
        return true;
    }
    if (!td_gemm_f32_pack_bytes(dtype, k, columns, out) || *out > SIZE_MAX / 8) return false;
    *out = TD_ROUND_UP(*out, (size_t)64);
    return true;
}

/* Sizes of the packs of one direction; parts[1] is 0 but for R of a GRU. */
static bool parts_of(const td_rnn *rnn, td_dtype dtype, const td_shape *m, bool is_r, int64_t columns[TD_RNN_PARTS],
                     size_t bytes[TD_RNN_PARTS]) {
    int64_t hidden = m->dims[1] / td_rnn_gates(rnn->kind);
    for (int i = 0; i < TD_RNN_PARTS; i++) {
        columns[i] = is_r ? td_rnn_columns(rnn->kind, i, hidden) : i == 0 ? m->dims[1] : 0;
        if (!packed_bytes(dtype, m->dims[2], columns[i], &bytes[i])) return false;
    }
    return true;
}

/* m: [directions, columns, k] */
static void pack_matrix(const td_rnn *rnn, const td_tensor *m, bool is_r, uint8_t *out) {
    int64_t columns[TD_RNN_PARTS], k = m->shape.dims[2], element = td_dtype_bits(m->dtype) / 8;
    size_t bytes[TD_RNN_PARTS];

    parts_of(rnn, m->dtype, &m->shape, is_r, columns, bytes);
    for (int64_t d = 0; d < m->shape.dims[0]; d++) {
        const uint8_t *from = (const uint8_t *)m->data + d * m->shape.dims[1] * k * element;
        for (int i = 0; i < TD_RNN_PARTS; i++) {
            td_gemm_b b = {.form = TD_GEMM_TRANSPOSED, .dtype = m->dtype, .data = from, .ld = k};
            if (columns[i]) td_gemm_f32_pack(&b, k, columns[i], 0, columns[i], out);
            out += bytes[i];
            from += columns[i] * k * element;
        }
    }
}

static treadle_status pack_constant(td_prepare *p, rnn_state *s, size_t input, const uint8_t **out) {
    const td_tensor *m = td_input_const(p, input);
    int64_t columns[TD_RNN_PARTS];
    size_t bytes[TD_RNN_PARTS];
    void *packed;
    bool ready, is_r = input == 2;

    if (!m || s->dtype == TD_DOUBLE || m->shape.rank != 3 || td_tensor_count(m) == 0) return TREADLE_OK;
    if (!parts_of(&s->rnn, m->dtype, &m->shape, is_r, columns, bytes))
        return td_unsupported(p, "weights of 2^63 bytes");
    TD_TRY(td_prepare_packed(p, is_r ? "rnn hidden 1" : "rnn input 1", (bytes[0] + bytes[1]) * (size_t)m->shape.dims[0],
                             &packed, &ready));
    if (!ready) {
        pack_matrix(&s->rnn, m, is_r, packed);
        td_prepare_done_with(p, input);
    }
    *out = packed;
    return TREADLE_OK;
}

static treadle_status prepare_kind(td_prepare *p, td_rnn_kind kind) {
    rnn_state *s = p->state;

    s->dtype = td_input_dtype(p, 0);
    s->kernels = td_gemm_f32_pick();
    TD_TRY(td_rnn_prepare(p, kind, &s->rnn));
    TD_TRY(pack_constant(p, s, 1, &s->w));
    return pack_constant(p, s, 2, &s->r);
}

static treadle_status rnn_infer(td_infer *in) {
    const rnn_state *s = in->state;
    return td_rnn_infer(in, &s->rnn, false);
}

/* --- products --- */

typedef struct products {
    const td_gemm_f32_kernels *kernels;
    td_pool *pool;
    void *scratch;
    td_gemm_b b[TD_RNN_PARTS];
    int64_t columns[TD_RNN_PARTS], k;
    const double *wide; /* float64: [columns, k] */
} products;

static void multiply_f32(const void *ctx, int part, const void *a, int64_t rows, void *c) {
    const products *p = ctx;
    td_gemm_f32 job = {.m = rows,
                       .n = p->columns[part],
                       .k = p->k,
                       .a = a,
                       .a_row = p->k,
                       .a_col = 1,
                       .b = p->b[part],
                       .c = c,
                       .c_row = p->columns[part]};
    td_gemm_f32_parallel(p->kernels, &job, p->pool, p->scratch);
}

static void dot_rows(const double *a, int64_t rows, const double *m, int64_t columns, int64_t k, double *c) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            double sum = 0;
            for (int64_t x = 0; x < k; x++) sum += a[i * k + x] * m[j * k + x];
            c[i * columns + j] = sum;
        }
}

static void multiply_f64(const void *ctx, int part, const void *a, int64_t rows, void *c) {
    const products *p = ctx;
    dot_rows(a, rows, p->wide + (part ? p->columns[0] * p->k : 0), p->columns[part], p->k, c);
}

/* --- run --- */

static treadle_status working_output(td_run *r, const rnn_state *s, size_t i, void **out) {
    const td_tensor *t = i < r->n_outputs ? r->out[i] : NULL;
    *out = t ? t->data : NULL;
    if (!t || s->dtype == TD_FLOAT || s->dtype == TD_DOUBLE) return TREADLE_OK;
    *out = td_run_scratch(r, (size_t)td_tensor_count(t) * sizeof(float));
    return *out ? TREADLE_OK : TREADLE_OUT_OF_MEMORY;
}

static void *offset(const void *base, int64_t elements, size_t bytes) {
    return base ? (uint8_t *)(uintptr_t)base + elements * (int64_t)bytes : NULL;
}

/* Packs W or R in scratch if it is not packed already. */
static treadle_status packed_matrix(td_run *r, const rnn_state *s, size_t input, const uint8_t **out) {
    const td_tensor *m = r->in[input];
    int64_t columns[TD_RNN_PARTS];
    size_t bytes[TD_RNN_PARTS];

    *out = input == 1 ? s->w : s->r;
    if (*out || s->dtype == TD_DOUBLE) return TREADLE_OK;
    if (!parts_of(&s->rnn, m->dtype, &m->shape, input == 2, columns, bytes))
        return td_run_fail(r, "the weights are too large");
    uint8_t *packed = td_run_scratch(r, (bytes[0] + bytes[1]) * (size_t)m->shape.dims[0]);
    if (!packed) return TREADLE_OUT_OF_MEMORY;
    pack_matrix(&s->rnn, m, input == 2, packed);
    *out = packed;
    return TREADLE_OK;
}

/* B's two halves added, [gates]; for a GRU that is linear before the reset, R's bias of the hidden gate stays apart. */
static treadle_status bias_of(td_run *r, const rnn_state *s, const td_rnn_sizes *sizes, const void *b, int direction,
                              void **out, const void **hidden_bias) {
    int64_t n = sizes->gates, joined = n;
    size_t bytes = s->dtype == TD_DOUBLE ? 8 : 4;

    *out = td_run_scratch(r, (size_t)n * bytes);
    if (!*out) return TREADLE_OUT_OF_MEMORY;
    memset(*out, 0, (size_t)n * bytes);
    if (!b) return TREADLE_OK;
    const void *w = offset(b, direction * 2 * n, bytes);
    if (s->rnn.kind == TD_RNN_GRU && s->rnn.linear_before_reset) {
        joined = 2 * sizes->hidden;
        *hidden_bias = offset(w, n + joined, bytes);
    }
    memcpy(*out, w, (size_t)n * bytes);
    for (int64_t i = 0; i < joined; i++) {
        if (s->dtype == TD_DOUBLE) ((double *)*out)[i] += ((const double *)w)[n + i];
        else ((float *)*out)[i] += ((const float *)w)[n + i];
    }
    return TREADLE_OK;
}

/* Gates from the inputs of one direction: X W' + bias. */
static treadle_status run_inputs(td_run *r, const rnn_state *s, const td_rnn_sizes *sizes, int direction, const void *x,
                                 const uint8_t *w, const void *bias, void *out) {
    int64_t rows = sizes->steps * sizes->batch, columns[TD_RNN_PARTS];
    size_t bytes[TD_RNN_PARTS];

    if (s->dtype == TD_DOUBLE) {
        const double *m = (const double *)r->in[1]->data + direction * sizes->gates * sizes->input;
        dot_rows(x, rows, m, sizes->gates, sizes->input, out);
        for (int64_t i = 0; i < rows * sizes->gates; i++)
            ((double *)out)[i] += ((const double *)bias)[i % sizes->gates];
        return TREADLE_OK;
    }
    parts_of(&s->rnn, s->dtype, &r->in[1]->shape, false, columns, bytes);
    td_gemm_f32 job = {.m = rows,
                       .n = sizes->gates,
                       .k = sizes->input,
                       .a = x,
                       .a_row = sizes->input,
                       .a_col = 1,
                       .b = {.form = TD_GEMM_PANELS, .dtype = s->dtype, .data = w + (size_t)direction * bytes[0]},
                       .bias = bias,
                       .c = out,
                       .c_row = sizes->gates};
    return td_product_run_gemms(r, s->kernels, &job, 1);
}

static treadle_status products_of(td_run *r, const rnn_state *s, const td_rnn_sizes *sizes, int direction,
                                  const uint8_t *packed, void *scratch, products *out) {
    size_t bytes[TD_RNN_PARTS];

    *out = (products){.kernels = s->kernels, .pool = r->pool, .scratch = scratch, .k = sizes->hidden};
    parts_of(&s->rnn, s->dtype, &r->in[2]->shape, true, out->columns, bytes);
    if (s->dtype == TD_DOUBLE) {
        out->wide = (const double *)r->in[2]->data + direction * sizes->gates * sizes->hidden;
        return TREADLE_OK;
    }
    packed += (size_t)direction * (bytes[0] + bytes[1]);
    for (int i = 0; i < TD_RNN_PARTS; i++) {
        out->b[i] = (td_gemm_b){.form = TD_GEMM_PANELS, .dtype = s->dtype, .data = packed};
        packed += bytes[i];
    }
    return TREADLE_OK;
}

static treadle_status run_layer(td_run *r, const rnn_state *s, td_rnn_layer *layer) {
    const td_rnn_sizes *sizes = &layer->sizes;
    size_t bytes = s->dtype == TD_DOUBLE ? 8 : 4;
    const uint8_t *w, *packed;
    const void *x, *b;
    products p[2];
    void *scratch = td_run_scratch(r, td_gemm_f32_scratch(s->kernels, r->pool));

    if (!scratch) return TREADLE_OUT_OF_MEMORY;
    TD_TRY(td_run_widen(r, td_rnn_input(r, 0), &x));
    TD_TRY(td_run_widen(r, td_rnn_input(r, 3), &b));
    TD_TRY(packed_matrix(r, s, 1, &w));
    TD_TRY(packed_matrix(r, s, 2, &packed));
    for (int d = 0; d < sizes->directions; d++) {
        void *bias, *gates = td_run_scratch(r, (size_t)(sizes->steps * sizes->batch * sizes->gates) * bytes);
        if (!gates) return TREADLE_OUT_OF_MEMORY;
        TD_TRY(bias_of(r, s, sizes, b, d, &bias, &layer->hidden_bias[d]));
        TD_TRY(run_inputs(r, s, sizes, d, x, w, bias, gates));
        TD_TRY(products_of(r, s, sizes, d, packed, scratch, &p[d]));
        layer->x[d] = gates;
        layer->ctx[d] = &p[d];
    }
    return td_rnn_run_layer(r, layer);
}

static treadle_status rnn_run(td_run *r) {
    const rnn_state *s = r->state;
    bool is_lstm = s->rnn.kind == TD_RNN_LSTM;
    td_rnn_layer layer = {.rnn = &s->rnn,
                          .sizes = td_rnn_sizes_of(&s->rnn, &r->in[0]->shape, r->in[2]->shape.dims[2]),
                          .dtype = s->dtype == TD_DOUBLE ? TD_DOUBLE : TD_FLOAT,
                          .multiply = s->dtype == TD_DOUBLE ? multiply_f64 : multiply_f32};
    void *outputs[3] = {NULL};

    TD_TRY(td_rnn_lengths(r, layer.sizes.batch, layer.sizes.steps, &layer.lengths));
    TD_TRY(td_run_widen(r, td_rnn_input(r, 5), &layer.initial_h));
    if (is_lstm) TD_TRY(td_run_widen(r, td_rnn_input(r, 6), &layer.initial_c));
    if (is_lstm) TD_TRY(td_run_widen(r, td_rnn_input(r, 7), &layer.peepholes));
    for (size_t i = 0; i < 3; i++) TD_TRY(working_output(r, s, i, &outputs[i]));
    layer.y = outputs[0];
    layer.y_h = outputs[1];
    layer.y_c = outputs[2];
    TD_TRY(run_layer(r, s, &layer));
    for (size_t i = 0; i < r->n_outputs && i < 3; i++)
        if (r->out[i] && outputs[i] != r->out[i]->data)
            td_from_f32(r->out[i]->dtype, outputs[i], td_tensor_count(r->out[i]), r->out[i]->data);
    return TREADLE_OK;
}

#define RNN_OP(name, kind)                                                                                             \
    static treadle_status name##_prepare(td_prepare *p) { return prepare_kind(p, kind); }                              \
    const td_op_impl td_op_##name = {                                                                                  \
        .state_bytes = sizeof(rnn_state), .prepare = name##_prepare, .infer = rnn_infer, .run = rnn_run};
RNN_OP(rnn, TD_RNN_PLAIN)
RNN_OP(gru, TD_RNN_GRU)
RNN_OP(lstm, TD_RNN_LSTM)
