/* quant/split.h - the split functions of formats.inc (split.c: integer formats, split_iq.c: codebooks). */
#ifndef TD_QUANT_SPLIT_H
#define TD_QUANT_SPLIT_H

#include "quant/formats.h"
#include "tensor/half.h"

#define PLAIN(name, id, dtype, bytes)
#define BLOCKS(name, id, block, bytes, group, bits, zero, minima, split) td_quant_split_fn td_quant_##split;
#include "quant/formats.inc"
#undef PLAIN
#undef BLOCKS

static inline uint16_t td_quant_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static inline uint32_t td_quant_u32(const uint8_t *p) {
    return (uint32_t)td_quant_u16(p) | (uint32_t)td_quant_u16(p + 2) << 16;
}
static inline float td_quant_f16(const uint8_t *p) { return td_f16_to_f32(td_quant_u16(p)); }

#endif
