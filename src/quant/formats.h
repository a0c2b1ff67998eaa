/* quant/formats.h - the weight formats of GGUF files, one table (formats.inc).
 *
 * Every block format is an integer code per element with a scale, and in some formats a minimum, per group of elements:
 *
 *     value = scale * (code - zero)           formats without minima
 *     value = scale * code + minimum          formats with minima
 *
 * computed in float32, product rounded, then sum rounded. That is ggml's own result bit for bit, because all these
 * scales and minima are exact in float32. So the one function a format brings is `split`, and decoding follows from it.
 * Codebook formats (IQ...) have the codebook's integers as codes. Plain formats (F32, F16 ...) have no blocks. Source:
 * the layouts of ggml (ggml-common.h) as PyPI gguf documents them; checked against both. */
#ifndef TD_QUANT_FORMATS_H
#define TD_QUANT_FORMATS_H

#include "tensor/dtype.h"

enum { TD_QUANT_MAX_BLOCK = 256, TD_QUANT_MAX_GROUPS = 32 };

/* codes [block], scales and minima [block / group]; minima is not touched by formats without. */
typedef void td_quant_split_fn(const uint8_t *block, uint8_t *codes, float *scales, float *minima);

typedef struct td_quant_format {
    const char *name; /* "Q4_K" */
    uint32_t ggml_id;
    td_dtype plain; /* not TD_UNDEFINED: elements of that type, block 1, nothing below applies */
    int block;      /* elements */
    int block_bytes;
    int group; /* elements that share a scale */
    int bits;  /* codes are 0 .. 2^bits - 1 */
    int zero;  /* the code of 0, without minima */
    bool has_minima;
    td_quant_split_fn *split;
} td_quant_format;

const td_quant_format *td_quant_format_by_id(uint32_t ggml_id); /* NULL: unknown */
const td_quant_format *td_quant_format_at(size_t index);        /* all rows; NULL past the end */

/* The name of a ggml type id that exists but has no row, or NULL. For messages. */
const char *td_quant_unsupported_name(uint32_t ggml_id);

/* Bytes of a row of n elements; false: n is no multiple of the block, or overflow. */
bool td_quant_row_bytes(const td_quant_format *format, int64_t n, size_t *out);

/* Reference decoder: n elements (a multiple of the block) to float32. Plain formats too. */
void td_quant_decode(const td_quant_format *format, const uint8_t *data, int64_t n, float *out);

/* The bits of the ONNX forms (2, 4, 8: MatMulNBits, GatherBlockQuantized) that hold the codes when `zero` is moved to
 * 2^(bits-1); with minima the codes stay and only have to fit. 0 for plain formats. */
int td_quant_onnx_bits(const td_quant_format *format);

#endif
