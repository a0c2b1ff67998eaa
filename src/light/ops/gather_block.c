/* light/ops/gather_block.c - Gather on a block-quantised table, then dequantisation: com.microsoft
 * GatherBlockQuantized, and treadle's BlockAffineGather for source types with minima. Sources: onnxruntime
 * docs/ContribOperators.md; compile/compile.h. uint8 data hold 8 / bits codes a byte along the last axis. An index out
 * of range gives zeros, as there. */
#include "light/ops/move.h"
#include "quant/pack.h"
#include "tensor/half.h"

#include <string.h>

typedef struct gather_block_state {
    int bits;
    int64_t block, gather_axis, quantize_axis;
    bool packed;  /* uint8 data with several codes a byte */
    int64_t zero; /* without zero points */
} gather_block_state;

static treadle_status block_prepare(td_prepare *p) {
    gather_block_state *s = p->state;
    td_dtype dtype = td_input_dtype(p, 0);

    if (dtype != TD_UINT8 && dtype != TD_UINT4 && dtype != TD_INT4)
        return td_unsupported(p, "data of type %s", td_dtype_name(dtype));
    s->bits = dtype == TD_UINT8 ? (int)td_attr_int(p, "bits") : 4;
    if (s->bits != 2 && s->bits != 4 && s->bits != 8)
        return td_unsupported(p, "bits = %d (2, 4 and 8 are supported)", s->bits);
    s->block = td_attr_int(p, "block_size");
    s->gather_axis = td_attr_int(p, "gather_axis");
    s->quantize_axis = td_attr_int(p, "quantize_axis");
    s->packed = dtype == TD_UINT8 && s->bits < 8;
    s->zero = dtype == TD_UINT8 ? 1 << (s->bits - 1) : 0;
    if (s->block < 16 || (s->block & (s->block - 1)))
        return td_bad_node(p, "block_size = %lld, expected a power of two from 16 on", (long long)s->block);
    return TREADLE_OK;
}

/* The table's shape in codes. */
static td_shape code_shape(const gather_block_state *s, const td_shape *data) {
    td_shape out = *data;

    if (s->packed && out.rank > 0 && out.dims[out.rank - 1] >= 0) out.dims[out.rank - 1] *= 8 / s->bits;
    return out;
}

static treadle_status check_table(td_infer *in, const gather_block_state *s, const td_shape *codes, int g, int q) {
    const td_shape *scales = &in->inputs[2]->tensor.shape;

    if (s->packed && (q != codes->rank - 1 || g == codes->rank - 1))
        return td_infer_fail(in, "uint8 data need quantize_axis last and another gather_axis");
    if (scales->rank != codes->rank) return td_infer_fail(in, "scales and data of different ranks");
    for (int d = 0; d < codes->rank; d++) {
        int64_t want = d == q ? (codes->dims[d] + s->block - 1) / s->block : codes->dims[d];
        if (scales->dims[d] != want)
            return td_infer_fail(in, "dimension %d of scales is %lld, expected %lld", d, (long long)scales->dims[d],
                                 (long long)want);
    }
    if (in->n_inputs > 3 && in->inputs[3]->kind == TD_VALUE_TENSOR) {
        const td_shape *zeros = &in->inputs[3]->tensor.shape;
        td_shape want = *scales;
        int per_byte = s->packed ? 8 / s->bits : 1;
        want.dims[want.rank - 1] = (want.dims[want.rank - 1] + per_byte - 1) / per_byte;
        if (td_shape_known(zeros) && !td_shape_equal(zeros, &want))
            return td_infer_fail(in, "zero_points do not fit scales");
    }
    return TREADLE_OK;
}

static treadle_status block_infer(td_infer *in) {
    const gather_block_state *s = in->state;
    td_dtype dtype = in->inputs[2]->tensor.dtype;
    const td_shape *index = &in->inputs[1]->tensor.shape;
    td_shape codes = code_shape(s, &in->inputs[0]->tensor.shape), out = {0};
    int g, q;

    if (codes.rank < 0 || index->rank < 0) return td_infer_unknown(in, 0, dtype, -1);
    TD_TRY(td_infer_axis(in, s->gather_axis, codes.rank, &g));
    TD_TRY(td_infer_axis(in, s->quantize_axis, codes.rank, &q));
    if (td_shape_known(&codes) && td_shape_known(&in->inputs[2]->tensor.shape))
        TD_TRY(check_table(in, s, &codes, g, q));
    out.rank = codes.rank - 1 + index->rank;
    if (out.rank > TD_MAX_RANK) return td_infer_fail(in, "rank %d, at most %d is supported", out.rank, TD_MAX_RANK);
    int at = 0;
    for (int d = 0; d < g; d++) out.dims[at++] = codes.dims[d];
    for (int d = 0; d < index->rank; d++) out.dims[at++] = index->dims[d];
    for (int d = g + 1; d < codes.rank; d++) out.dims[at++] = codes.dims[d];
    return td_infer_set(in, 0, dtype, &out);
}

typedef struct gather_block_job {
    const gather_block_state *s;
    const td_tensor *data, *scales, *zeros; /* zeros NULL: none */
    td_shape codes;
    int g, q;
    int64_t inner;          /* codes after the gather axis */
    int64_t q_inner, q_dim; /* codes after the quantised axis, and along it */
    int64_t n_blocks;
} gather_block_job;

/* Dequantises `inner` codes from flat position `start` of the table. */
static void dequantise(const gather_block_job *j, int64_t start, float *out) {
    const gather_block_state *s = j->s;
    td_dtype as = s->bits == 2 ? TD_UINT2 : s->bits == 8 ? TD_UINT8 : j->data->dtype == TD_INT4 ? TD_INT4 : TD_UINT4;
    float scale = 0;
    int64_t zero = s->zero, last = -1;

    for (int64_t i = 0; i < j->inner; i++) {
        int64_t flat = start + i, along = flat / j->q_inner % j->q_dim;
        int64_t at = (flat / j->q_inner / j->q_dim * j->n_blocks + along / s->block) * j->q_inner + flat % j->q_inner;
        if (at != last) {
            td_to_f32(j->scales->dtype, (const char *)j->scales->data + at * (td_dtype_bits(j->scales->dtype) / 8), 1,
                      &scale);
            if (j->zeros && s->packed) { /* packed along the last axis, each row padded to a byte */
                int per_byte = 8 / s->bits;
                int64_t row_codes = (j->n_blocks + per_byte - 1) / per_byte * per_byte;
                zero = td_load_i64(as, j->zeros->data, at / j->n_blocks * row_codes + at % j->n_blocks);
            } else if (j->zeros) {
                zero = td_load_i64(as, j->zeros->data, at);
            }
            last = at;
        }
        out[i] = (float)(td_load_i64(as, j->data->data, flat) - zero) * scale;
    }
}

static int64_t index_at(const td_tensor *index, int64_t i, int64_t dim) {
    int64_t at = index->dtype == TD_INT64 ? ((const int64_t *)index->data)[i] : ((const int32_t *)index->data)[i];
    return at < 0 ? at + dim : at;
}

static treadle_status block_run(td_run *r) {
    const gather_block_state *s = r->state;
    gather_block_job j = {.s = s,
                          .data = r->in[0],
                          .scales = r->in[2],
                          .zeros = r->n_inputs > 3 ? r->in[3] : NULL,
                          .codes = code_shape(s, &r->in[0]->shape),
                          .inner = 1,
                          .q_inner = 1};
    int64_t outer = 1, n_index = td_tensor_count(r->in[1]);
    td_tensor *out = r->out[0];

    j.g = (int)(s->gather_axis < 0 ? s->gather_axis + j.codes.rank : s->gather_axis);
    j.q = (int)(s->quantize_axis < 0 ? s->quantize_axis + j.codes.rank : s->quantize_axis);
    for (int d = 0; d < j.g; d++) outer *= j.codes.dims[d];
    for (int d = j.g + 1; d < j.codes.rank; d++) j.inner *= j.codes.dims[d];
    for (int d = j.q + 1; d < j.codes.rank; d++) j.q_inner *= j.codes.dims[d];
    j.q_dim = j.codes.dims[j.q];
    j.n_blocks = r->in[2]->shape.dims[j.q];
    if (outer * n_index * j.inner == 0) return TREADLE_OK;
    float *row = td_run_scratch(r, (size_t)j.inner * sizeof *row);
    if (!row) return TREADLE_OUT_OF_MEMORY;
    for (int64_t i = 0; i < outer * n_index; i++) {
        int64_t dim = j.codes.dims[j.g], at = index_at(r->in[1], i % n_index, dim);
        if (at < 0 || at >= dim) memset(row, 0, (size_t)j.inner * sizeof *row);
        else dequantise(&j, (i / n_index * dim + at) * j.inner, row);
        td_from_f32(out->dtype, row, j.inner, td_move_at(out, i * j.inner));
    }
    return TREADLE_OK;
}

const td_op_impl td_op_gather_block_quantized = {
    .state_bytes = sizeof(gather_block_state), .prepare = block_prepare, .infer = block_infer, .run = block_run};

/* --- treadle::BlockAffineGather: rows of W[n, k] = code * scale + minimum, codes [N, blocks, block * bits / 8]. */
typedef struct affine_state {
    int bits;
} affine_state;

static treadle_status affine_prepare(td_prepare *p) {
    affine_state *s = p->state;

    s->bits = (int)td_attr_int(p, "bits");
    if (s->bits != 2 && s->bits != 4 && s->bits != 8)
        return td_unsupported(p, "bits = %d (2, 4 and 8 are supported)", s->bits);
    return TREADLE_OK;
}

static treadle_status affine_source(td_infer *in, const affine_state *s, td_qsource *out) {
    const td_shape *codes = &in->inputs[0]->tensor.shape;
    td_shape per_block = {.rank = 2, .dims = {codes->dims[0], codes->dims[1]}};

    *out = (td_qsource){.bits = s->bits,
                        .block = codes->dims[2] * 8 / s->bits,
                        .n = codes->dims[0],
                        .k = codes->dims[1] * (codes->dims[2] * 8 / s->bits),
                        .scale_type = TD_FLOAT,
                        .zero_form = TD_QZERO_MINIMA,
                        .zero_type = TD_FLOAT};
    if (!td_shape_equal(&in->inputs[2]->tensor.shape, &per_block) ||
        !td_shape_equal(&in->inputs[3]->tensor.shape, &per_block))
        return td_infer_fail(in, "expected scales and minima to be [N, blocks] as codes are");
    return td_qsource_sizes(out, NULL, NULL, NULL, in->err);
}

static treadle_status affine_infer(td_infer *in) {
    const td_shape *codes = &in->inputs[0]->tensor.shape, *index = &in->inputs[1]->tensor.shape;
    td_shape out = *index;
    td_qsource source;

    if (index->rank < 0 || !td_shape_known(codes))
        return td_infer_unknown(in, 0, TD_FLOAT, index->rank < 0 ? -1 : index->rank + 1);
    if (codes->rank != 3) return td_infer_fail(in, "codes of rank %d, expected [N, blocks, block]", codes->rank);
    if (out.rank + 1 > TD_MAX_RANK)
        return td_infer_fail(in, "rank %d, at most %d is supported", out.rank + 1, TD_MAX_RANK);
    TD_TRY(affine_source(in, in->state, &source));
    out.dims[out.rank++] = source.k;
    return td_infer_set(in, 0, TD_FLOAT, &out);
}

static treadle_status affine_run(td_run *r) {
    td_infer in = {.inputs = r->in_values, .n_inputs = r->n_inputs, .err = r->err, .node = r->node};
    td_qsource source;

    TD_TRY(affine_source(&in, r->state, &source));
    source.codes = r->in[0]->data;
    source.scales = r->in[2]->data;
    source.zeros = r->in[3]->data;
    for (int64_t i = 0; i < td_tensor_count(r->in[1]); i++) {
        int64_t at = index_at(r->in[1], i, source.n);
        if (at < 0 || at >= source.n)
            return td_run_fail(r, "index %lld is out of range for %lld rows", (long long)(at < 0 ? at - source.n : at),
                               (long long)source.n);
        td_qsource_row(&source, at, td_move_at(r->out[0], i * source.k));
    }
    return TREADLE_OK;
}

const td_op_impl td_op_block_affine_gather = {
    .state_bytes = sizeof(affine_state), .prepare = affine_prepare, .infer = affine_infer, .run = affine_run};
