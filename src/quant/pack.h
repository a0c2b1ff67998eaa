/* quant/pack.h - quantised weight matrices in the one layout that all kernels read.
 *
 * A weight matrix W [n, k] is given per block of `block` inputs as codes with a scale and a zero point or minimum:
 *
 *     W[i, j] = code * scale + minimum = (code - zero) * scale
 *
 * The packed form is a sequence of tiles of 16 outputs x 64 inputs, tile column by tile column (all tiles of outputs
 * 0..15 in order of their inputs, then outputs 16..31 ...), so that a matrix-vector product reads one sequential
 * stream. One tile, every part 64-byte aligned:
 *
 *     scales   [64 / sub][16]   fp16 or fp32
 *     minima   [64 / sub][16]   fp16 or fp32, or absent
 *     codes    bits * 2 vectors of 64 bytes; in each vector dword i belongs to output i, its 4 bytes to 4
 *              successive inputs
 *
 *     inputs are numbered 16 * t + 4 * z + j (t, z, j = 0..3), j being the byte in the dword
 *     8 bits:  vector 4 * t + z        4 bits: vector 4 * (t / 2) + z, low nibble for even t, high nibble for odd t
 *     2 bits:  vector z, bits 2 * t and 2 * t + 1
 *
 * `sub` is 16 for blocks of 16 and 32 for all others: scales of larger blocks are repeated, which costs a few per cent
 * of bandwidth and keeps the kernels to two shapes. Outputs past n and inputs past k have scale 0 (and minimum 0).
 * Without minima a code stands for code - 2^(bits-1). The layout depends on no instruction set.
 *
 * Scales are fp16 if every one is exactly an fp16 number, else fp32. Minima are absent if all zero points are the
 * default; fp16 if that loses nothing (see td_qlayout_choose), else fp32.
 */
#ifndef TD_QUANT_PACK_H
#define TD_QUANT_PACK_H

#include "base/error.h"
#include "tensor/dtype.h"

#include <stdbool.h>

enum { TD_QTILE_N = 16, TD_QTILE_K = 64 }; /* outputs and inputs of a tile */

/* How the source says where zero is. */
typedef enum td_qzero {
    TD_QZERO_DEFAULT, /* 2^(bits-1), or 0 for signed codes; `zeros` is unused */
    TD_QZERO_PACKED,  /* unsigned integers of `bits` bits, low bits first, [n, ceil(n_blocks * bits / 8)] bytes */
    TD_QZERO_BYTES,   /* one byte per block, [n, n_blocks]; int8 if the codes are signed, else uint8 */
    TD_QZERO_FLOAT,   /* zero points as zero_type, [n, n_blocks] */
    TD_QZERO_MINIMA,  /* minima as zero_type, [n, n_blocks]; they count from code 0 of the unsigned codes */
} td_qzero;

/* A quantised matrix as ONNX holds it (com.microsoft MatMulNBits, GatherBlockQuantized). All memory is borrowed and may
 * be unaligned. n_blocks = ceil(k / block). */
typedef struct td_qsource {
    int bits;            /* 2, 4 or 8 */
    int64_t block;       /* a power of two, at least 16 */
    int64_t n, k;        /* outputs, inputs */
    const void *codes;   /* [n, row_bytes]; within a byte low bits first */
    size_t row_bytes;    /* 0: n_blocks * block * bits / 8, as MatMulNBits has it; else at least ceil(k * bits / 8) */
    bool is_signed;      /* codes are two's complement */
    td_dtype scale_type; /* TD_FLOAT or TD_FLOAT16 */
    const void *scales;  /* [n, n_blocks] */
    td_qzero zero_form;
    td_dtype zero_type; /* for FLOAT and MINIMA: TD_FLOAT or TD_FLOAT16 */
    const void *zeros;
} td_qsource;

typedef enum td_qparam {
    TD_QPARAM_NONE,
    TD_QPARAM_F16,
    TD_QPARAM_F32
} td_qparam; /* how a tile holds scales or minima */

/* What one needs to know to read packed bytes; fixed width, stored in the packed-weights cache as it is. */
typedef struct td_qlayout {
    int64_t n, k;
    uint32_t tile_bytes;
    uint32_t minima_offset, codes_offset; /* bytes from the tile's start; scales are at 0 */
    uint8_t bits, sub;                    /* 2, 4, 8; 16, 32 */
    uint8_t scale, minimum;               /* td_qparam */
} td_qlayout;

/* A packed matrix; borrows its bytes, which are 64-byte aligned. */
typedef struct td_qweights {
    td_qlayout layout;
    const uint8_t *data;
} td_qweights;

static inline int64_t td_qlayout_tiles_n(const td_qlayout *l) { return (l->n + TD_QTILE_N - 1) / TD_QTILE_N; }
static inline int64_t td_qlayout_tiles_k(const td_qlayout *l) { return (l->k + TD_QTILE_K - 1) / TD_QTILE_K; }
static inline size_t td_qlayout_column_bytes(const td_qlayout *l) {
    return (size_t)td_qlayout_tiles_k(l) * l->tile_bytes; /* the tiles of 16 outputs */
}
static inline size_t td_qlayout_bytes(const td_qlayout *l) {
    return (size_t)td_qlayout_tiles_n(l) * td_qlayout_column_bytes(l);
}

/* Checks the source's numbers (not its pointers' extents: the caller knows those from td_qsource_sizes) and reads all
 * its scales and zero points to choose the narrowest exact form.
 * Float zero points come from sources that held minima in fp16 (minimum = -zero * scale). The fp16 number nearest to
 * that product is taken for the source's minimum if for every block it leads back to the same zero point, bit for bit:
 * fl32(-minimum / scale) == zero. */
treadle_status td_qlayout_choose(const td_qsource *source, td_qlayout *out, treadle_error *err);

/* The layout that a matrix with these properties has; for readers of stored layouts and for tests. */
treadle_status td_qlayout_make(int bits, int sub, td_qparam scale, td_qparam minimum, int64_t n, int64_t k,
                               td_qlayout *out, treadle_error *err);
bool td_qlayout_valid(const td_qlayout *layout); /* of a layout read from a file: consistent, no overflow */

/* Bytes that the source's arrays must have. Any out pointer may be NULL. Checks the source's numbers. */
treadle_status td_qsource_sizes(const td_qsource *source, size_t *codes_bytes, size_t *scales_bytes,
                                size_t *zeros_bytes, treadle_error *err);

/* Packs tile columns [column0, column1) to dest, which holds (column1 - column0) * td_qlayout_column_bytes bytes.
 * layout is td_qlayout_choose's for this source. Columns are independent: ranges may run on several threads. */
void td_qweights_pack(const td_qsource *source, const td_qlayout *layout, int64_t column0, int64_t column1, void *dest);

/* Row i of W as fp32, k values: code * scale + minimum, or (code - 2^(bits-1)) * scale. For embedding lookup. */
void td_qweights_row(const td_qweights *weights, int64_t row, float *out);

/* The same from the source's own bytes, without packing. */
void td_qsource_row(const td_qsource *source, int64_t row, float *out);

#endif
