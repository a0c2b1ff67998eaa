/* quant/formats.c - the table of formats.inc and what follows from a row alone. */
#include "quant/formats.h"

#include "quant/split.h"
#include "tensor/half.h"

static const td_quant_format formats[] = {
#define PLAIN(name, id, dtype, bytes) {#name, id, dtype, 1, bytes, 1, 0, 0, false, NULL},
#define BLOCKS(name, id, block, bytes, group, bits, zero, minima, split)                                               \
    {#name, id, TD_UNDEFINED, block, bytes, group, bits, zero, minima, td_quant_##split},
#include "quant/formats.inc"
#undef PLAIN
#undef BLOCKS
};

const td_quant_format *td_quant_format_by_id(uint32_t ggml_id) {
    for (size_t i = 0; i < TD_COUNT(formats); i++)
        if (formats[i].ggml_id == ggml_id) return &formats[i];
    return NULL;
}

const td_quant_format *td_quant_format_at(size_t index) { return index < TD_COUNT(formats) ? &formats[index] : NULL; }

const char *td_quant_unsupported_name(uint32_t ggml_id) {
    switch (ggml_id) {
    case 4: return "Q4_2";
    case 5: return "Q4_3";
    case 9: return "Q8_1";
    case 15: return "Q8_K";
    case 24: return "I8";
    case 25: return "I16";
    case 26: return "I32";
    case 27: return "I64";
    case 31: return "Q4_0_4_4";
    case 32: return "Q4_0_4_8";
    case 33: return "Q4_0_8_8";
    case 36: return "IQ4_NL_4_4";
    case 37: return "IQ4_NL_4_8";
    case 38: return "IQ4_NL_8_8";
    default: return NULL;
    }
}

bool td_quant_row_bytes(const td_quant_format *format, int64_t n, size_t *out) {
    return n >= 0 && n % format->block == 0 &&
           !TD_MUL_OVERFLOWS((size_t)(n / format->block), (size_t)format->block_bytes, out);
}

void td_quant_decode(const td_quant_format *format, const uint8_t *data, int64_t n, float *out) {
    uint8_t codes[TD_QUANT_MAX_BLOCK];
    float scales[TD_QUANT_MAX_GROUPS], minima[TD_QUANT_MAX_GROUPS];
    if (format->plain != TD_UNDEFINED) {
        for (int64_t i = 0; i < n; i++) { /* one by one: the data may be unaligned */
            uint64_t element = 0;
            memcpy(&element, data + i * format->block_bytes, (size_t)format->block_bytes);
            td_to_f32(format->plain, &element, 1, out + i);
        }
        return;
    }
    for (int64_t at = 0; at < n; at += format->block, data += format->block_bytes) {
        format->split(data, codes, scales, minima);
        for (int i = 0; i < format->block; i++) {
            int g = i / format->group;
            float value = scales[g] * (float)(codes[i] - (format->has_minima ? 0 : format->zero));
            out[at + i] = format->has_minima ? value + minima[g] : value;
        }
    }
}

int td_quant_onnx_bits(const td_quant_format *format) {
    if (format->plain != TD_UNDEFINED) return 0;
    for (int bits = 2; bits < 8; bits *= 2) {
        int half = format->has_minima ? 0 : 1 << (bits - 1), zero = format->has_minima ? 0 : format->zero;
        int low = -zero, high = (1 << format->bits) - 1 - zero;
        if (low >= -half && high <= (1 << bits) - 1 - half) return bits;
    }
    return 8;
}
