/* light/ops/experts.c - see experts.h. Source: onnxruntime docs/ContribOperators.md, release 1.31 (MoE, QMoE). */
#include "light/ops/experts.h"

#include "tensor/half.h"

/* --- prepare */

treadle_status td_experts_prepare(td_prepare *p, size_t input, size_t bias, const char *what, td_experts *out) {
    const td_tensor *w = td_input_const(p, input);
    uint8_t *packed;
    bool ready;
    size_t bytes;

    *out = (td_experts){.input = input, .bias = bias, .dtype = td_input_dtype(p, input), .gemm = td_gemm_f32_pick()};
    if (!w) return TREADLE_OK;
    if (w->shape.rank != 3) return td_bad_node(p, "expected weights of experts to have 3 dimensions");
    out->count = w->shape.dims[0];
    out->n = w->shape.dims[1];
    out->k = w->shape.dims[2];
    if (td_tensor_count(w) == 0) return td_bad_node(p, "weights of experts are empty");
    if (!td_gemm_f32_pack_bytes(w->dtype, out->k, out->n, &bytes) ||
        TD_MUL_OVERFLOWS(TD_ROUND_UP(bytes, (size_t)64), (size_t)out->count, &bytes))
        return td_unsupported(p, "weights of more than 2^63 bytes");
    out->panel_bytes = bytes / (size_t)out->count;
    TD_TRY(td_prepare_packed(p, what, bytes, (void **)&packed, &ready));
    if (!ready) {
        size_t each = (size_t)(out->n * out->k) * ((size_t)td_dtype_bits(w->dtype) / 8);
        for (int64_t i = 0; i < out->count; i++) {
            td_gemm_b from = {.form = TD_GEMM_TRANSPOSED,
                              .dtype = w->dtype,
                              .data = (const uint8_t *)w->data + (size_t)i * each,
                              .ld = out->k};
            td_gemm_f32_pack(&from, out->k, out->n, 0, out->n, packed + (size_t)i * out->panel_bytes);
        }
        td_prepare_done_with(p, input);
    }
    out->panels = packed;
    return TREADLE_OK;
}

/* Zero points of whole rows are packed along the rows of an expert: to a byte each. */
static treadle_status row_zeros(td_prepare *p, const td_experts *e, int bits, const td_tensor *packed,
                                td_qsource *source) {
    int64_t row_bytes = (e->n * bits + 7) / 8, mask = (1 << bits) - 1;
    uint8_t *zeros = TD_ARENA_ARRAY(p->arena, uint8_t, (size_t)(e->count * e->n));

    if (td_tensor_count(packed) != e->count * row_bytes) return td_bad_node(p, "zero points of another size");
    if (!zeros) return td_fail_memory(p->err, "zero points", (size_t)(e->count * e->n));
    for (int64_t i = 0; i < e->count * e->n; i++) {
        int64_t at = i % e->n * bits;
        zeros[i] = (uint8_t)(((const uint8_t *)packed->data)[i / e->n * row_bytes + at / 8] >> at % 8 & mask);
    }
    source->zero_form = TD_QZERO_BYTES;
    source->zeros = zeros;
    return TREADLE_OK;
}

static treadle_status check_size(td_prepare *p, const td_tensor *t, size_t bytes, const char *name) {
    size_t have;
    if (!td_tensor_bytes(t, &have) || have != bytes)
        return td_bad_node(p, "%s of experts have %zu bytes, expected %zu", name, have, bytes);
    return TREADLE_OK;
}

treadle_status td_experts_prepare_quantised(td_prepare *p, const td_experts_source *from, const char *what,
                                            td_experts *out) {
    const td_tensor *codes = td_input_const(p, from->codes), *scales = td_input_const(p, from->scales);
    const td_tensor *zeros = td_has_input(p, from->zeros) ? td_input_const(p, from->zeros) : NULL;
    td_qsource source = {.bits = from->bits, .block = from->block};
    size_t codes_bytes, scales_bytes, zeros_bytes;

    *out = (td_experts){.input = from->codes, .bias = from->bias, .quantised = true};
    if (!codes || !scales || (td_has_input(p, from->zeros) && !zeros))
        return td_unsupported(p, "weights, scales or zero points of experts that are no constants");
    if (codes->shape.rank != 3 || td_tensor_count(codes) == 0)
        return td_bad_node(p, "expected weights of experts to have 3 dimensions");
    out->count = codes->shape.dims[0];
    out->n = codes->shape.dims[1];
    if (TD_MUL_OVERFLOWS(codes->shape.dims[2], 8 / (int64_t)from->bits, &out->k) ||
        TD_MUL_OVERFLOWS(out->count, out->n, &source.n))
        return td_bad_node(p, "weights of experts are too large");
    source.k = out->k;
    source.row_bytes = (size_t)codes->shape.dims[2];
    source.codes = codes->data;
    for (source.block = from->block ? from->block : 16; !from->block && source.block < source.k;) source.block *= 2;
    if (source.block < 16 || (source.block & (source.block - 1)) || (from->block && source.k % source.block != 0))
        return td_bad_node(p, "block_size = %lld, expected a power of two from 16 on that divides %lld",
                           (long long)source.block, (long long)source.k);
    TD_TRY(td_qlinear_widen(p, scales, &source.scales, &source.scale_type));
    if (zeros && from->block) {
        source.zero_form = TD_QZERO_PACKED;
        source.zeros = zeros->data;
    } else if (zeros) TD_TRY(row_zeros(p, out, from->bits, zeros, &source));
    TD_TRY(td_qsource_sizes(&source, &codes_bytes, &scales_bytes, &zeros_bytes, p->err));
    TD_TRY(check_size(p, codes, codes_bytes, "weights"));
    if (scales->dtype == TD_BFLOAT16) scales_bytes /= 2;
    TD_TRY(check_size(p, scales, scales_bytes, "scales"));
    if (source.zero_form == TD_QZERO_PACKED) TD_TRY(check_size(p, zeros, zeros_bytes, "zero points"));
    return td_qlinear_prepare(p, &source, from->mode, what, &out->linear);
}

/* --- run */

treadle_status td_experts_reserve(td_run *r, const td_experts *e, int64_t rows, td_experts_memory *out) {
    const td_tensor *w = r->in[e->input], *bias = e->bias < r->n_inputs ? r->in[e->bias] : NULL;
    int64_t n = e->quantised ? e->n : w->shape.dims[1], count = e->quantised ? e->count : w->shape.dims[0];
    size_t bytes;

    *out = (td_experts_memory){.stride = n};
    if (e->quantised) { /* tiles of columns that an expert shares with its neighbours are computed too */
        out->stride = TD_MIN(TD_ROUND_UP(n, TD_QTILE_N) + TD_QTILE_N, TD_ROUND_UP(n * count, TD_QTILE_N));
        if (!td_qact_bytes(e->linear.mode, e->linear.weights.layout.sub, rows, e->k, &bytes))
            return td_run_fail(r, "too many rows");
        out->scratch_bytes = TD_ROUND_UP(td_qmatmul_scratch_bytes(e->linear.kernels, e->k), (size_t)64);
        out->act = td_run_scratch(r, bytes);
        out->scratch = td_run_scratch(r, out->scratch_bytes * (size_t)td_pool_threads(r->pool));
        if (!out->act || !out->scratch) return TREADLE_OUT_OF_MEMORY;
    } else {
        out->gemm = td_run_scratch(r, td_gemm_f32_scratch(e->gemm, r->pool));
        if (!out->gemm) return TREADLE_OUT_OF_MEMORY;
    }
    if (bias && td_tensor_count(bias) != count * n)
        return td_run_fail(r, "expected the bias of experts to be [%lld, %lld]", (long long)count, (long long)n);
    if (bias && bias->dtype != TD_FLOAT) {
        out->biases = td_run_scratch(r, (size_t)(count * n) * sizeof *out->biases);
        if (!out->biases) return TREADLE_OUT_OF_MEMORY;
        td_to_f32(bias->dtype, bias->data, count * n, out->biases);
    } else if (bias) out->biases = bias->data;
    out->y = td_run_scratch(r, (size_t)(rows * out->stride) * sizeof *out->y);
    return out->y ? TREADLE_OK : TREADLE_OUT_OF_MEMORY;
}

typedef struct quant_job {
    const td_experts *e;
    const td_experts_memory *memory;
    td_qmatmul product;
    td_qact act;
} quant_job;

static void fill_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const quant_job *j = arg;
    (void)thread;
    td_qact_fill(j->e->linear.kernels, &j->act, begin, end);
}

static void run_tiles(void *arg, int64_t begin, int64_t end, int thread) {
    const quant_job *j = arg;
    char *scratch = (char *)j->memory->scratch + (size_t)thread * j->memory->scratch_bytes;
    td_qmatmul_run(j->e->linear.kernels, &j->product, 0, j->act.m, begin * TD_QTILE_N,
                   TD_MIN(end * TD_QTILE_N, j->product.weights->layout.n), scratch);
}

static void run_quantised(td_run *r, const td_experts *e, int64_t expert, const float *x, int64_t m,
                          const td_experts_memory *memory, int64_t *first) {
    enum { GRAIN = 4 };
    int64_t from = expert * e->n / TD_QTILE_N, to = TD_ROUND_UP((expert + 1) * e->n, TD_QTILE_N) / TD_QTILE_N;
    td_qweights own = e->linear.weights;
    quant_job job = {.e = e, .memory = memory};

    own.layout.n = TD_MIN(own.layout.n, to * TD_QTILE_N) - from * TD_QTILE_N;
    own.data += (size_t)from * td_qlayout_column_bytes(&own.layout);
    td_qact_init(&job.act, e->linear.mode, own.layout.sub, x, e->k, m, e->k, memory->act);
    job.product = (td_qmatmul){.weights = &own, .act = &job.act, .y = memory->y, .y_stride = memory->stride};
    td_pool_range(r->pool, m, 16, 1, fill_rows, &job);
    td_pool_range(r->pool, to - from, GRAIN, 1, run_tiles, &job);
    *first = expert * e->n - from * TD_QTILE_N;
    for (int64_t i = 0; memory->biases && i < m; i++)
        for (int64_t c = 0; c < e->n; c++)
            memory->y[i * memory->stride + *first + c] += memory->biases[expert * e->n + c];
}

void td_experts_run(td_run *r, const td_experts *e, int64_t expert, const float *x, int64_t m,
                    const td_experts_memory *memory, int64_t *first) {
    const td_tensor *w = r->in[e->input];
    if (e->quantised) {
        run_quantised(r, e, expert, x, m, memory, first);
        return;
    }
    int64_t n = w->shape.dims[1], k = w->shape.dims[2];
    td_gemm_f32 gemm = {.m = m,
                        .n = n,
                        .k = k,
                        .a = x,
                        .a_row = k,
                        .a_col = 1,
                        .bias = memory->biases ? memory->biases + expert * n : NULL,
                        .c = memory->y,
                        .c_row = memory->stride};
    size_t each = (size_t)(n * k) * ((size_t)td_dtype_bits(w->dtype) / 8);
    if (e->panels) gemm.b = (td_gemm_b){.form = TD_GEMM_PANELS, .data = e->panels + (size_t)expert * e->panel_bytes};
    else
        gemm.b =
            (td_gemm_b){.form = TD_GEMM_TRANSPOSED, .data = (const uint8_t *)w->data + (size_t)expert * each, .ld = k};
    gemm.b.dtype = w->dtype;
    td_gemm_f32_parallel(e->gemm, &gemm, r->pool, memory->gemm);
    *first = 0;
}
