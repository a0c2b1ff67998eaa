/* light/ops/matmul_nbits.c - com.microsoft MatMulNBits, and treadle's BlockAffineMatMul for source types whose minima
 * MatMulNBits cannot hold. Sources: onnxruntime docs/ContribOperators.md; compile/compile.h.
 * Activations may become int8 where accuracy_level is 4, or where the session says so. */
#include "light/ops/quant_linear.h"

#include "tensor/half.h"

typedef struct nbits_state {
    td_qlinear linear;
} nbits_state;

/* An input of the product that has to be a constant of a known number of bytes. */
static treadle_status constant_input(td_prepare *p, size_t input, const char *name, size_t bytes,
                                     const td_tensor **out) {
    size_t have;

    *out = td_input_const(p, input);
    if (!*out) return td_unsupported(p, "%s that is no constant", name);
    if (!td_tensor_bytes(*out, &have) || have != bytes)
        return td_bad_node(p, "%s has %zu bytes, expected %zu", name, have, bytes);
    return TREADLE_OK;
}

/* Without an effect if every input column belongs to the group at its place. */
static treadle_status check_groups(td_prepare *p, const td_qsource *source) {
    if (!td_has_input(p, 4)) return TREADLE_OK;
    const td_tensor *groups = td_input_const(p, 4);
    if (!groups) return td_unsupported(p, "g_idx that is no constant");
    const int32_t *g = groups->data;
    for (int64_t i = 0; i < td_tensor_count(groups) && i < source->k; i++)
        if (g[i] != i / source->block) return td_unsupported(p, "g_idx with groups out of order");
    return TREADLE_OK;
}

static treadle_status zero_points(td_prepare *p, td_qsource *source) {
    const td_tensor *zeros;
    size_t bytes;

    if (!td_has_input(p, 3)) return TREADLE_OK;
    bool packed = td_input_dtype(p, 3) == TD_UINT8;
    source->zero_form = packed ? TD_QZERO_PACKED : TD_QZERO_FLOAT;
    source->zero_type = td_input_dtype(p, 3) == TD_FLOAT16 ? TD_FLOAT16 : TD_FLOAT;
    TD_TRY(td_qsource_sizes(source, NULL, NULL, &bytes, p->err));
    if (td_input_dtype(p, 3) == TD_BFLOAT16) bytes /= 2;
    TD_TRY(constant_input(p, 3, "zero_points", bytes, &zeros));
    return packed ? (source->zeros = zeros->data, TREADLE_OK)
                  : td_qlinear_widen(p, zeros, &source->zeros, &source->zero_type);
}

static treadle_status nbits_prepare(td_prepare *p) {
    nbits_state *s = p->state;
    const td_tensor *codes, *scales;
    size_t codes_bytes, scales_bytes;
    td_qsource source = {.bits = (int)td_attr_int(p, "bits"),
                         .block = td_attr_int(p, "block_size"),
                         .n = td_attr_int(p, "N"),
                         .k = td_attr_int(p, "K"),
                         .scale_type = td_input_dtype(p, 2) == TD_FLOAT16 ? TD_FLOAT16 : TD_FLOAT};

    if (td_attr_int(p, "weight_prepacked"))
        return td_unsupported(p, "weight_prepacked = %lld", (long long)td_attr_int(p, "weight_prepacked"));
    if (source.bits != 2 && source.bits != 4 && source.bits != 8)
        return td_unsupported(p, "bits = %d (2, 4 and 8 are supported)", source.bits);
    if (source.block < 16 || (source.block & (source.block - 1)))
        return td_bad_node(p, "block_size = %lld, expected a power of two from 16 on", (long long)source.block);
    if (source.n <= 0 || source.k <= 0)
        return td_bad_node(p, "N = %lld, K = %lld", (long long)source.n, (long long)source.k);
    TD_TRY(td_qsource_sizes(&source, &codes_bytes, &scales_bytes, NULL, p->err));
    if (td_input_dtype(p, 2) == TD_BFLOAT16) scales_bytes /= 2;
    TD_TRY(constant_input(p, 1, "B", codes_bytes, &codes));
    TD_TRY(constant_input(p, 2, "scales", scales_bytes, &scales));
    source.codes = codes->data;
    TD_TRY(td_qlinear_widen(p, scales, &source.scales, &source.scale_type));
    TD_TRY(zero_points(p, &source));
    TD_TRY(check_groups(p, &source));
    TD_TRY(td_qlinear_prepare(p, &source, td_qlinear_mode(p, td_attr_int(p, "accuracy_level")), "MatMulNBits",
                              &s->linear));
    return td_qlinear_bias(p, 5, source.n, &s->linear.bias);
}

static treadle_status nbits_infer(td_infer *in) {
    const nbits_state *s = in->state;
    return td_qlinear_infer(in, 0, s->linear.weights.layout.k, s->linear.weights.layout.n);
}

static treadle_status nbits_run(td_run *r) {
    const nbits_state *s = r->state;
    return td_qlinear_run(r, &s->linear, 1, false, r->in[0], r->out);
}

const td_op_impl td_op_matmul_nbits = {
    .state_bytes = sizeof(nbits_state), .prepare = nbits_prepare, .infer = nbits_infer, .run = nbits_run};

/* --- treadle::BlockAffineMatMul: W[n, k] = code * scale + minimum, codes [N, blocks, block * bits / 8]. */
static treadle_status affine_prepare(td_prepare *p) {
    nbits_state *s = p->state;
    const td_tensor *codes = td_input_const(p, 1), *scales, *minima;
    td_qsource source = {.bits = (int)td_attr_int(p, "bits"),
                         .scale_type = TD_FLOAT,
                         .zero_form = TD_QZERO_MINIMA,
                         .zero_type = TD_FLOAT};
    size_t scales_bytes, minima_bytes;

    if (source.bits != 2 && source.bits != 4 && source.bits != 8)
        return td_unsupported(p, "bits = %d (2, 4 and 8 are supported)", source.bits);
    if (!codes) return td_unsupported(p, "codes that are no constant");
    if (codes->shape.rank != 3)
        return td_bad_node(p, "codes of rank %d, expected [N, blocks, block]", codes->shape.rank);
    source.n = codes->shape.dims[0];
    source.block = codes->shape.dims[2] * 8 / source.bits;
    if (TD_MUL_OVERFLOWS(codes->shape.dims[1], source.block, &source.k)) return td_bad_node(p, "codes are too large");
    TD_TRY(td_qsource_sizes(&source, NULL, &scales_bytes, &minima_bytes, p->err));
    TD_TRY(constant_input(p, 2, "scales", scales_bytes, &scales));
    TD_TRY(constant_input(p, 3, "minima", minima_bytes, &minima));
    source.codes = codes->data;
    source.scales = scales->data;
    source.zeros = minima->data;
    return td_qlinear_prepare(p, &source, td_qlinear_mode(p, 0), "BlockAffineMatMul", &s->linear);
}

const td_op_impl td_op_block_affine_matmul = {
    .state_bytes = sizeof(nbits_state), .prepare = affine_prepare, .infer = nbits_infer, .run = nbits_run};
