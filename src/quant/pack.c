/* quant/pack.c - from ONNX's quantised matrices to tiles of 16 outputs x 64 inputs, and rows back out of them.
 *
 * Invariant: nothing is requantised. Codes are carried over, scales and minima are stored in a form that holds them
 * exactly; where -zero * scale has to be rounded, it is rounded once, to fp32.
 * Layout: see the header. Byte order: little-endian, as everywhere in treadle.
 */
#include "quant/pack.h"

#include "tensor/half.h"

#include <string.h>

/* --- reading the source --- */

static int64_t block_count(const td_qsource *s) { return (s->k + s->block - 1) / s->block; }

static float load_param(const void *data, td_dtype dtype, int64_t index) {
    if (dtype == TD_FLOAT16) {
        uint16_t bits;
        memcpy(&bits, (const uint8_t *)data + 2 * (size_t)index, sizeof bits);
        return td_f16_to_f32(bits);
    }
    float value;
    memcpy(&value, (const uint8_t *)data + 4 * (size_t)index, sizeof value);
    return value;
}

static size_t source_row_bytes(const td_qsource *s) {
    return s->row_bytes ? s->row_bytes : (size_t)block_count(s) * (size_t)s->block * (size_t)s->bits / 8;
}

/* Integer zero point of a block, counted from code 0 of the unsigned codes. */
static int integer_zero(const td_qsource *s, int64_t row, int64_t block) {
    int half = 1 << (s->bits - 1);
    const uint8_t *zeros = s->zeros;
    if (s->zero_form == TD_QZERO_DEFAULT) return half;
    if (s->zero_form == TD_QZERO_BYTES) {
        uint8_t byte = zeros[row * block_count(s) + block];
        return s->is_signed ? (int8_t)byte + half : byte;
    }
    int64_t per_byte = 8 / s->bits;
    int64_t row_bytes = (block_count(s) + per_byte - 1) / per_byte;
    int zero = zeros[row * row_bytes + block / per_byte] >> (s->bits * (int)(block % per_byte));
    zero &= (1 << s->bits) - 1;
    return s->is_signed ? (zero ^ half) : zero; /* two's complement of `bits` bits, plus half, is the flipped top bit */
}

/* The minimum of a block as exactly as a double holds it, and as fp32. */
static double block_minimum(const td_qsource *s, int64_t row, int64_t block, float scale) {
    int64_t index = row * block_count(s) + block;
    if (s->zero_form == TD_QZERO_MINIMA) return load_param(s->zeros, s->zero_type, index);
    if (s->zero_form != TD_QZERO_FLOAT) return -(double)integer_zero(s, row, block) * scale;
    double zero = load_param(s->zeros, s->zero_type, index);
    if (s->is_signed) zero += 1 << (s->bits - 1);
    return -zero * scale;
}

/* The codes of one row, k0..k0+64, unsigned; those past k are 0. */
static void unpack_codes(const td_qsource *s, const uint8_t *row, int64_t k0, uint8_t out[TD_QTILE_K]) {
    int64_t n = TD_MIN(s->k - k0, TD_QTILE_K);
    const uint8_t *p = row + k0 * s->bits / 8;
    if (s->bits == 8) {
        memcpy(out, p, (size_t)n);
    } else if (s->bits == 4) {
        for (int64_t i = 0; i + 2 <= n; i += 2) {
            out[i] = p[i / 2] & 15;
            out[i + 1] = p[i / 2] >> 4;
        }
        if (n & 1) out[n - 1] = p[n / 2] & 15;
    } else {
        for (int64_t i = 0; i < n; i++) out[i] = (uint8_t)(p[i / 4] >> (2 * (i & 3))) & 3;
    }
    if (s->is_signed) {
        uint8_t half = (uint8_t)(1 << (s->bits - 1));
        for (int64_t i = 0; i < n; i++) out[i] ^= half;
    }
    if (n < TD_QTILE_K) memset(out + n, 0, (size_t)(TD_QTILE_K - n));
}

/* --- checks and sizes --- */

treadle_status td_qsource_sizes(const td_qsource *s, size_t *codes_bytes, size_t *scales_bytes, size_t *zeros_bytes,
                                treadle_error *err) {
    if (s->bits != 2 && s->bits != 4 && s->bits != 8)
        return td_fail(err, TREADLE_UNSUPPORTED, "quantised weights: bits is %d; 2, 4 and 8 are known", s->bits);
    if (s->block < 16 || (s->block & (s->block - 1)) != 0)
        return td_fail(err, TREADLE_UNSUPPORTED,
                       "quantised weights: block size is %lld; a power of two from 16 is expected",
                       (long long)s->block);
    if (s->n < 1 || s->k < 1 || s->n > INT32_MAX || s->k > INT32_MAX || s->block > INT32_MAX)
        return td_fail(err, TREADLE_INVALID_ARGUMENT,
                       "quantised weights: %lld x %lld in blocks of %lld is out of range", (long long)s->n,
                       (long long)s->k, (long long)s->block);
    if (s->scale_type != TD_FLOAT && s->scale_type != TD_FLOAT16)
        return td_fail(err, TREADLE_UNSUPPORTED, "quantised weights: scales are %s; float32 and float16 are known",
                       td_dtype_name(s->scale_type));
    bool zeros_are_float = s->zero_form == TD_QZERO_FLOAT || s->zero_form == TD_QZERO_MINIMA;
    if (zeros_are_float && s->zero_type != TD_FLOAT && s->zero_type != TD_FLOAT16)
        return td_fail(err, TREADLE_UNSUPPORTED, "quantised weights: zero points are %s; float32 and float16 are known",
                       td_dtype_name(s->zero_type));
    size_t least_row = ((size_t)s->k * (size_t)s->bits + 7) / 8;
    if (s->row_bytes != 0 && s->row_bytes < least_row)
        return td_fail(err, TREADLE_INVALID_ARGUMENT,
                       "quantised weights: rows have %zu bytes, %lld codes of %d bits need %zu", s->row_bytes,
                       (long long)s->k, s->bits, least_row);
    size_t n = (size_t)s->n, blocks = (size_t)block_count(s), zero_row = 0;
    if (zeros_are_float) zero_row = blocks * (s->zero_type == TD_FLOAT ? 4 : 2);
    if (s->zero_form == TD_QZERO_BYTES) zero_row = blocks;
    if (s->zero_form == TD_QZERO_PACKED) zero_row = (blocks * (size_t)s->bits + 7) / 8;
    size_t codes, scales, zeros;
    if (TD_MUL_OVERFLOWS(n, source_row_bytes(s), &codes) || TD_MUL_OVERFLOWS(n, zero_row, &zeros) ||
        TD_MUL_OVERFLOWS(n, blocks * (s->scale_type == TD_FLOAT ? 4 : 2), &scales))
        return td_fail(err, TREADLE_LIMIT, "quantised weights: %lld x %lld is too large", (long long)s->n,
                       (long long)s->k);
    if (codes_bytes) *codes_bytes = codes;
    if (scales_bytes) *scales_bytes = scales;
    if (zeros_bytes) *zeros_bytes = zeros;
    return TREADLE_OK;
}

static uint32_t param_bytes(int sub, int form) {
    uint32_t count = (uint32_t)(TD_QTILE_K / sub * TD_QTILE_N);
    return form == TD_QPARAM_NONE ? 0 : form == TD_QPARAM_F16 ? 2 * count : 4 * count;
}

treadle_status td_qlayout_make(int bits, int sub, td_qparam scale, td_qparam minimum, int64_t n, int64_t k,
                               td_qlayout *out, treadle_error *err) {
    td_qlayout l = {.n = n,
                    .k = k,
                    .bits = (uint8_t)bits,
                    .sub = (uint8_t)sub,
                    .scale = (uint8_t)scale,
                    .minimum = (uint8_t)minimum};
    if (sub == 16 || sub == 32) {
        l.minima_offset = param_bytes(sub, scale);
        l.codes_offset = l.minima_offset + param_bytes(sub, minimum);
        l.tile_bytes = l.codes_offset + TD_QTILE_N * TD_QTILE_K / 8 * (uint32_t)bits;
    }
    if (!td_qlayout_valid(&l))
        return td_fail(err, TREADLE_LIMIT, "packed weights: %lld x %lld with %d bits is out of range", (long long)n,
                       (long long)k, bits);
    *out = l;
    return TREADLE_OK;
}

bool td_qlayout_valid(const td_qlayout *l) {
    if ((l->bits != 2 && l->bits != 4 && l->bits != 8) || (l->sub != 16 && l->sub != 32)) return false;
    if (l->scale != TD_QPARAM_F16 && l->scale != TD_QPARAM_F32) return false;
    if (l->minimum > TD_QPARAM_F32) return false;
    if (l->n < 1 || l->k < 1 || l->n > INT32_MAX || l->k > INT32_MAX) return false;
    if (l->minima_offset != param_bytes(l->sub, l->scale)) return false;
    if (l->codes_offset != l->minima_offset + param_bytes(l->sub, l->minimum)) return false;
    if (l->tile_bytes != l->codes_offset + TD_QTILE_N * TD_QTILE_K / 8 * (uint32_t)l->bits) return false;
    size_t bytes;
    return !TD_MUL_OVERFLOWS((size_t)td_qlayout_tiles_n(l) * (size_t)td_qlayout_tiles_k(l), (size_t)l->tile_bytes,
                             &bytes);
}

/* --- the narrowest exact form --- */

static bool is_f16(double value) { return (double)td_f16_to_f32(td_f32_to_f16((float)value)) == value; }

/* Whether the fp16 number nearest to the block's minimum stands for it without loss (see the header). */
static bool minimum_is_f16(const td_qsource *s, int64_t row, int64_t block, float scale) {
    double minimum = block_minimum(s, row, block, scale);
    if (s->zero_form != TD_QZERO_FLOAT || s->is_signed) return is_f16(minimum);
    if (scale == 0) return minimum == 0;
    float nearest = td_f16_to_f32(td_f32_to_f16((float)minimum));
    return -nearest / scale == load_param(s->zeros, s->zero_type, row * block_count(s) + block);
}

static bool zero_is_default(const td_qsource *s, int64_t row, int64_t block) {
    int half = 1 << (s->bits - 1);
    if (s->zero_form == TD_QZERO_MINIMA) return false;
    if (s->zero_form != TD_QZERO_FLOAT) return integer_zero(s, row, block) == half;
    return load_param(s->zeros, s->zero_type, row * block_count(s) + block) == (s->is_signed ? 0 : (float)half);
}

treadle_status td_qlayout_choose(const td_qsource *s, td_qlayout *out, treadle_error *err) {
    TD_TRY(td_qsource_sizes(s, NULL, NULL, NULL, err));
    bool scales_f16 = true, minima_f16 = true, centred = true;
    int64_t blocks = block_count(s);
    bool look_at_scales = s->scale_type == TD_FLOAT, look_at_zeros = s->zero_form != TD_QZERO_DEFAULT;
    for (int64_t row = 0; row < s->n && (look_at_scales || look_at_zeros); row++)
        for (int64_t b = 0; b < blocks; b++) {
            float scale = load_param(s->scales, s->scale_type, row * blocks + b);
            if (look_at_scales) scales_f16 &= is_f16(scale);
            if (!look_at_zeros) continue;
            centred &= zero_is_default(s, row, b);
            if (minima_f16) minima_f16 = minimum_is_f16(s, row, b, scale);
        }
    td_qparam minimum = centred ? TD_QPARAM_NONE : minima_f16 ? TD_QPARAM_F16 : TD_QPARAM_F32;
    return td_qlayout_make(s->bits, s->block == 16 ? 16 : 32, scales_f16 ? TD_QPARAM_F16 : TD_QPARAM_F32, minimum, s->n,
                           s->k, out, err);
}

/* --- packing --- */

static void store_param(void *data, int form, size_t index, float value) {
    if (form == TD_QPARAM_F16) {
        uint16_t bits = td_f32_to_f16(value);
        memcpy((uint8_t *)data + 2 * index, &bits, sizeof bits);
    } else if (form == TD_QPARAM_F32) {
        memcpy((uint8_t *)data + 4 * index, &value, sizeof value);
    }
}

static uint32_t load_u32(const uint8_t *p) {
    uint32_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

/* The 64 codes of output `lane` into a tile's code vectors. */
static void pack_codes(const uint8_t codes[TD_QTILE_K], int bits, int lane, uint8_t *to) {
    uint8_t *out = to + 4 * lane;
    for (int z = 0; z < 4; z++) {
        uint32_t four[4]; /* inputs 16 t + 4 z + 0..3 */
        for (int t = 0; t < 4; t++) four[t] = load_u32(codes + 16 * t + 4 * z);
        uint32_t quad = four[0] | four[1] << 2 | four[2] << 4 | four[3] << 6;
        uint32_t pairs[2] = {four[0] | four[1] << 4, four[2] | four[3] << 4};
        if (bits == 2) memcpy(out + 64 * z, &quad, 4);
        for (int h = 0; h < 2 && bits == 4; h++) memcpy(out + 64 * (4 * h + z), &pairs[h], 4);
        for (int t = 0; t < 4 && bits == 8; t++) memcpy(out + 64 * (4 * t + z), &four[t], 4);
    }
}

static void pack_row(const td_qsource *s, const td_qlayout *l, int64_t row, uint8_t *column) {
    int lane = (int)(row % TD_QTILE_N), n_sub = TD_QTILE_K / l->sub;
    const uint8_t *codes = (const uint8_t *)s->codes + (size_t)row * source_row_bytes(s);
    for (int64_t k0 = 0; k0 < s->k; k0 += TD_QTILE_K, column += l->tile_bytes) {
        uint8_t unpacked[TD_QTILE_K];
        unpack_codes(s, codes, k0, unpacked);
        pack_codes(unpacked, l->bits, lane, column + l->codes_offset);
        for (int b = 0; b < n_sub && k0 + b * l->sub < s->k; b++) {
            int64_t block = (k0 + b * l->sub) / s->block;
            size_t index = (size_t)(b * TD_QTILE_N + lane);
            float scale = load_param(s->scales, s->scale_type, row * block_count(s) + block);
            store_param(column, l->scale, index, scale);
            if (l->minimum != TD_QPARAM_NONE)
                store_param(column + l->minima_offset, l->minimum, index, (float)block_minimum(s, row, block, scale));
        }
    }
}

void td_qweights_pack(const td_qsource *source, const td_qlayout *l, int64_t column0, int64_t column1, void *dest) {
    uint8_t *to = dest;
    size_t column_bytes = td_qlayout_column_bytes(l);
    memset(to, 0, (size_t)(column1 - column0) * column_bytes);
    for (int64_t column = column0; column < column1; column++, to += column_bytes) {
        int64_t end = TD_MIN((column + 1) * TD_QTILE_N, l->n);
        for (int64_t row = column * TD_QTILE_N; row < end; row++) pack_row(source, l, row, to);
    }
}

/* --- rows back --- */

static float packed_param(const uint8_t *data, int form, size_t index) {
    return load_param(data, form == TD_QPARAM_F16 ? TD_FLOAT16 : TD_FLOAT, (int64_t)index);
}

static int packed_code(const uint8_t *codes, int bits, int lane, int j) {
    int t = j / 16, z = j / 4 % 4;
    const uint8_t *p = codes + 4 * lane + j % 4;
    if (bits == 8) return p[64 * (4 * t + z)];
    if (bits == 4) return p[64 * (4 * (t / 2) + z)] >> (4 * (t & 1)) & 15;
    return p[64 * z] >> (2 * t) & 3;
}

void td_qweights_row(const td_qweights *weights, int64_t row, float *out) {
    const td_qlayout *l = &weights->layout;
    int lane = (int)(row % TD_QTILE_N), half = 1 << (l->bits - 1);
    const uint8_t *tile = weights->data + (size_t)(row / TD_QTILE_N) * td_qlayout_column_bytes(l);
    for (int64_t k0 = 0; k0 < l->k; k0 += TD_QTILE_K, tile += l->tile_bytes) {
        int n = (int)TD_MIN(l->k - k0, TD_QTILE_K);
        for (int j = 0; j < n; j++) {
            size_t index = (size_t)(j / l->sub * TD_QTILE_N + lane);
            int code = packed_code(tile + l->codes_offset, l->bits, lane, j);
            float scale = packed_param(tile, l->scale, index);
            out[k0 + j] = l->minimum == TD_QPARAM_NONE
                              ? (float)(code - half) * scale
                              : (float)code * scale + packed_param(tile + l->minima_offset, l->minimum, index);
        }
    }
}

void td_qsource_row(const td_qsource *s, int64_t row, float *out) {
    const uint8_t *codes = (const uint8_t *)s->codes + (size_t)row * source_row_bytes(s);
    int64_t blocks = block_count(s);
    for (int64_t k0 = 0; k0 < s->k; k0 += TD_QTILE_K) {
        uint8_t unpacked[TD_QTILE_K];
        unpack_codes(s, codes, k0, unpacked);
        int64_t n = TD_MIN(s->k - k0, TD_QTILE_K);
        for (int64_t j = 0; j < n; j++) {
            int64_t block = (k0 + j) / s->block;
            float scale = load_param(s->scales, s->scale_type, row * blocks + block);
            if (s->zero_form == TD_QZERO_MINIMA || s->zero_form == TD_QZERO_FLOAT)
                out[k0 + j] = (float)unpacked[j] * scale + (float)block_minimum(s, row, block, scale);
            else out[k0 + j] = (float)(unpacked[j] - integer_zero(s, row, block)) * scale;
        }
    }
}
