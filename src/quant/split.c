/* quant/split.c - blocks of the formats with plain integer codes; layouts are noted as [bytes] name. */
#include "quant/split.h"

/* Low nibbles are elements 0..15, high nibbles 16..31. */
static void split_nibbles(const uint8_t *qs, uint8_t *codes) {
    for (int i = 0; i < 16; i++) {
        codes[i] = qs[i] & 15;
        codes[i + 16] = qs[i] >> 4;
    }
}

/* Bit i of the 32 is the fifth bit of element i. */
static void add_fifth_bits(const uint8_t *high, uint8_t *codes) {
    uint32_t bits = td_quant_u32(high);
    for (int i = 0; i < 32; i++) codes[i] = (uint8_t)(codes[i] | (bits >> i & 1) << 4);
}

/* [2] d, [16] nibbles */
void td_quant_split_q4_0(const uint8_t *block, uint8_t *codes, float *scales, float *minima) {
    (void)minima;
    scales[0] = td_quant_f16(block);
    split_nibbles(block + 2, codes);
}

/* [2] d, [2] m, [16] nibbles */
void td_quant_split_q4_1(const uint8_t *block, uint8_t *codes, float *scales, float *minima) {
    scales[0] = td_quant_f16(block);
    minima[0] = td_quant_f16(block + 2);
    split_nibbles(block + 4, codes);
}

/* [2] d, [4] fifth bits, [16] nibbles */
void td_quant_split_q5_0(const uint8_t *block, uint8_t *codes, float *scales, float *minima) {
    (void)minima;
    scales[0] = td_quant_f16(block);
    split_nibbles(block + 6, codes);
    add_fifth_bits(block + 2, codes);
}

/* [2] d, [2] m, [4] fifth bits, [16] nibbles */
void td_quant_split_q5_1(const uint8_t *block, uint8_t *codes, float *scales, float *minima) {
    scales[0] = td_quant_f16(block);
    minima[0] = td_quant_f16(block + 2);
    split_nibbles(block + 8, codes);
    add_fifth_bits(block + 4, codes);
}

/* [2] d, [32] signed bytes */
void td_quant_split_q8_0(const uint8_t *block, uint8_t *codes, float *scales, float *minima) {
    (void)minima;
    scales[0] = td_quant_f16(block);
    for (int i = 0; i < 32; i++) codes[i] = block[2 + i] ^ 128;
}

/* Two bits each: 128 elements in 32 bytes, the shift growing every 32 elements. */
static uint8_t two_bits(const uint8_t *qs, int i) { return qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3; }

/* [16] scale | minimum << 4 of 16 elements, [64] codes, [2] d, [2] dmin */
void td_quant_split_q2_k(const uint8_t *block, uint8_t *codes, float *scales, float *minima) {
    float d = td_quant_f16(block + 80), dmin = td_quant_f16(block + 82);
    for (int g = 0; g < 16; g++) {
        scales[g] = d * (float)(block[g] & 15);
        minima[g] = -(dmin * (float)(block[g] >> 4));
    }
    for (int i = 0; i < 256; i++) codes[i] = two_bits(block + 16, i);
}

/* [32] third bits, [64] codes, [12] scales of six bits, [2] d. Scale g: low four bits are nibbles of bytes 0..7, high
 * two bits lie in bytes 8..11. */
void td_quant_split_q3_k(const uint8_t *block, uint8_t *codes, float *scales, float *minima) {
    (void)minima;
    const uint8_t *packed = block + 96;
    float d = td_quant_f16(block + 108);
    for (int g = 0; g < 16; g++) {
        int low = g < 8 ? packed[g] & 15 : packed[g - 8] >> 4;
        int high = packed[8 + g % 4] >> (g / 4 * 2) & 3;
        scales[g] = d * (float)((low | high << 4) - 32);
    }
    for (int i = 0; i < 256; i++) codes[i] = (uint8_t)(two_bits(block + 32, i) | (block[i % 32] >> (i / 32) & 1) << 2);
}

/* Eight scales and eight minima of six bits in 12 bytes, as Q4_K and Q5_K have them. */
static void split_k_scales(const uint8_t *block, float *scales, float *minima) {
    float d = td_quant_f16(block), dmin = td_quant_f16(block + 2);
    const uint8_t *q = block + 4;
    for (int g = 0; g < 8; g++) {
        int scale = g < 4 ? q[g] & 63 : (q[g + 4] & 15) | q[g - 4] >> 6 << 4;
        int minimum = g < 4 ? q[g + 4] & 63 : q[g + 4] >> 4 | q[g] >> 6 << 4;
        scales[g] = d * (float)scale;
        minima[g] = -(dmin * (float)minimum);
    }
}

/* 64 elements in 32 bytes: low nibbles first, then high ones. */
static uint8_t k_nibble(const uint8_t *qs, int i) { return qs[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15; }

/* [2] d, [2] dmin, [12] scales and minima, [128] nibbles */
void td_quant_split_q4_k(const uint8_t *block, uint8_t *codes, float *scales, float *minima) {
    split_k_scales(block, scales, minima);
    for (int i = 0; i < 256; i++) codes[i] = k_nibble(block + 16, i);
}

/* [2] d, [2] dmin, [12] scales and minima, [32] fifth bits, [128] nibbles */
void td_quant_split_q5_k(const uint8_t *block, uint8_t *codes, float *scales, float *minima) {
    split_k_scales(block, scales, minima);
    for (int i = 0; i < 256; i++)
        codes[i] = (uint8_t)(k_nibble(block + 48, i) | (block[16 + i % 32] >> (i / 32) & 1) << 4);
}

/* [128] low nibbles, [64] high two bits, [16] signed scales, [2] d */
void td_quant_split_q6_k(const uint8_t *block, uint8_t *codes, float *scales, float *minima) {
    (void)minima;
    float d = td_quant_f16(block + 208);
    for (int g = 0; g < 16; g++) scales[g] = d * (float)(int8_t)block[192 + g];
    for (int i = 0; i < 256; i++) {
        int half = i / 128, quarter = i % 128 / 32, l = i % 32;
        int low = block[half * 64 + quarter % 2 * 32 + l] >> (quarter / 2 * 4) & 15;
        codes[i] = (uint8_t)(low | (block[128 + half * 32 + l] >> (quarter * 2) & 3) << 4);
    }
}

static void repeat_scale(float d, int groups, float *scales) {
    for (int g = 0; g < groups; g++) scales[g] = d;
}

/* [2] d, [16] bits: 1 is d, 0 is -d */
void td_quant_split_q1_0(const uint8_t *block, uint8_t *codes, float *scales, float *minima) {
    (void)minima;
    repeat_scale(td_quant_f16(block), 4, scales);
    for (int i = 0; i < 128; i++) codes[i] = (uint8_t)((block[2 + i / 8] >> (i % 8) & 1) * 2);
}

/* [64] two bits each, [2] d */
void td_quant_split_tq2_0(const uint8_t *block, uint8_t *codes, float *scales, float *minima) {
    (void)minima;
    repeat_scale(td_quant_f16(block + 64), 8, scales);
    for (int i = 0; i < 256; i++) codes[i] = two_bits(block, i);
}

/* Ternary digit n of a byte: the byte is a fraction of 256 in base 3. */
static uint8_t ternary(uint8_t byte, int n) {
    static const uint8_t power[] = {1, 3, 9, 27, 81};
    uint8_t rest = (uint8_t)(byte * power[n]);
    return (uint8_t)(rest * 3 >> 8);
}

/* [48] five digits each (32 bytes make 160 elements, 16 make 80), [4] four digits each, [2] d */
void td_quant_split_tq1_0(const uint8_t *block, uint8_t *codes, float *scales, float *minima) {
    (void)minima;
    repeat_scale(td_quant_f16(block + 52), 8, scales);
    for (int i = 0; i < 160; i++) codes[i] = ternary(block[i % 32], i / 32);
    for (int i = 0; i < 80; i++) codes[160 + i] = ternary(block[32 + i % 16], i / 16);
    for (int i = 0; i < 16; i++) codes[240 + i] = ternary(block[48 + i % 4], i / 4);
}
