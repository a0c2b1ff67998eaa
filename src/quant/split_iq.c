/* quant/split_iq.c - blocks of the codebook formats. Codes are the codebook's integers plus 128.
 *
 * grids.inc holds the codebooks (generated). Signs of eight elements are a byte; in some formats only seven bits are
 * stored and the eighth makes their number even. */
#include "quant/split.h"

#include "quant/grids.inc"

typedef struct codebook {
    const uint16_t *grid;
    const int8_t *levels;
    int bits; /* of a level's index */
} codebook;

static const codebook iq2xxs = {iq2xxs_grid, iq2xxs_levels, 2}, iq2xs = {iq2xs_grid, iq2xs_levels, 2},
                      iq2s = {iq2s_grid, iq2s_levels, 2}, iq3xxs = {iq3xxs_grid, iq3xxs_levels, 3},
                      iq3s = {iq3s_grid, iq3s_levels, 3}, iq1s = {iq1s_grid, iq1s_levels, 2};

static int level(const codebook *book, unsigned row, int i) {
    return book->levels[book->grid[row] >> (i * book->bits) & ((1 << book->bits) - 1)];
}

/* n elements of a row, negated where the sign byte has a bit. */
static void put_row(const codebook *book, unsigned row, unsigned signs, int n, uint8_t *codes) {
    for (int i = 0; i < n; i++) {
        int value = level(book, row, i);
        codes[i] = (uint8_t)(128 + (signs >> i & 1 ? -value : value));
    }
}

static unsigned even_signs(unsigned seven) {
    unsigned parity = seven ^ seven >> 4;
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return seven | (parity & 1) << 7;
}

/* [2] d, then per 32 elements: [4] rows, [4] four sign sevens and a scale of four bits */
void td_quant_split_iq2_xxs(const uint8_t *block, uint8_t *codes, float *scales, float *minima) {
    (void)minima;
    float d = td_quant_f16(block);
    for (int g = 0; g < 8; g++) {
        const uint8_t *rows = block + 2 + g * 8;
        uint32_t word = td_quant_u32(rows + 4);
        scales[g] = d * (0.5f + (float)(word >> 28)) * 0.25f;
        for (int l = 0; l < 4; l++)
            put_row(&iq2xxs, rows[l], even_signs(word >> (7 * l) & 127), 8, codes + g * 32 + l * 8);
    }
}

/* [2] d, [64] row (9 bits) and sign seven of 8 elements, [8] two scales of 16 elements */
void td_quant_split_iq2_xs(const uint8_t *block, uint8_t *codes, float *scales, float *minima) {
    (void)minima;
    float d = td_quant_f16(block);
    for (int g = 0; g < 16; g++) scales[g] = d * (0.5f + (float)(block[66 + g / 2] >> (g % 2 * 4) & 15)) * 0.25f;
    for (int l = 0; l < 32; l++) {
        unsigned word = td_quant_u16(block + 2 + l * 2);
        put_row(&iq2xs, word & 511, even_signs(word >> 9), 8, codes + l * 8);
    }
}

/* [2] d, [32] low bits of rows, [32] signs, [8] high two bits, [8] two scales of 16 elements */
void td_quant_split_iq2_s(const uint8_t *block, uint8_t *codes, float *scales, float *minima) {
    (void)minima;
    float d = td_quant_f16(block);
    for (int g = 0; g < 16; g++) scales[g] = d * (0.5f + (float)(block[74 + g / 2] >> (g % 2 * 4) & 15)) * 0.25f;
    for (int l = 0; l < 32; l++) {
        unsigned row = block[2 + l] | (unsigned)(block[66 + l / 4] >> (l % 4 * 2) & 3) << 8;
        put_row(&iq2s, row, block[34 + l], 8, codes + l * 8);
    }
}

/* [2] d, [64] rows of 4 elements, then per 32 elements: [4] four sign sevens and a scale */
void td_quant_split_iq3_xxs(const uint8_t *block, uint8_t *codes, float *scales, float *minima) {
    (void)minima;
    float d = td_quant_f16(block);
    for (int g = 0; g < 8; g++) {
        uint32_t word = td_quant_u32(block + 66 + g * 4);
        scales[g] = d * (0.5f + (float)(word >> 28)) * 0.5f;
        for (int l = 0; l < 8; l++) {
            unsigned signs = even_signs(word >> (l / 2 * 7) & 127);
            put_row(&iq3xxs, block[2 + g * 8 + l], signs >> (l % 2 * 4), 4, codes + g * 32 + l * 4);
        }
    }
}

/* [2] d, [64] low bits of rows of 4, [8] ninth bits, [32] signs, [4] two scales of 32 elements */
void td_quant_split_iq3_s(const uint8_t *block, uint8_t *codes, float *scales, float *minima) {
    (void)minima;
    float d = td_quant_f16(block);
    for (int g = 0; g < 8; g++) scales[g] = d * (float)(1 + 2 * (block[106 + g / 2] >> (g % 2 * 4) & 15));
    for (int l = 0; l < 64; l++) {
        unsigned row = block[2 + l] | (unsigned)(block[66 + l / 8] >> (l % 8) & 1) << 8;
        put_row(&iq3s, row, (unsigned)block[74 + l / 2] >> (l % 2 * 4), 4, codes + l * 4);
    }
}

/* Eight elements of IQ1: (level +- 1/8) * scale, kept as integers 8 * level +- 1 with an eighth of the scale. */
static void put_ternary(unsigned row, bool minus, uint8_t *codes) {
    for (int i = 0; i < 8; i++) codes[i] = (uint8_t)(128 + 8 * level(&iq1s, row, i) + (minus ? -1 : 1));
}

/* [2] d, [32] low bits of rows, [16] per 32 elements: high bits 3 x 4, a scale of three bits, the sign of the shift */
void td_quant_split_iq1_s(const uint8_t *block, uint8_t *codes, float *scales, float *minima) {
    (void)minima;
    float d = td_quant_f16(block);
    for (int g = 0; g < 8; g++) {
        unsigned word = td_quant_u16(block + 34 + g * 2);
        scales[g] = d * (float)(2 * (word >> 12 & 7) + 1) * 0.125f;
        for (int l = 0; l < 4; l++)
            put_ternary(block[2 + g * 4 + l] | (word >> (3 * l) & 7) << 8, word >> 15, codes + g * 32 + l * 8);
    }
}

/* [32] low bits of rows, [16] per 8 elements: high bits and sign of the shift in a nibble, [8] scales of three bits for
 * 16 elements; the top nibbles of the four scale words are the float16 d */
void td_quant_split_iq1_m(const uint8_t *block, uint8_t *codes, float *scales, float *minima) {
    (void)minima;
    unsigned bits = 0;
    for (int i = 0; i < 4; i++) bits |= (unsigned)(td_quant_u16(block + 48 + i * 2) >> 12) << (4 * i);
    float d = td_f16_to_f32((uint16_t)bits);
    for (int g = 0; g < 16; g++) {
        unsigned word = td_quant_u16(block + 48 + g / 4 * 2);
        scales[g] = d * (float)(2 * (word >> (g % 4 * 3) & 7) + 1) * 0.125f;
    }
    for (int l = 0; l < 32; l++) {
        unsigned nibble = block[32 + l / 2] >> (l % 2 * 4) & 15;
        put_ternary(block[l] | (nibble & 7) << 8, nibble >> 3, codes + l * 8);
    }
}

/* The sixteen levels of IQ4, and of the four-bit floats (doubled, so that they are integers). */
static const int8_t iq4_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const int8_t fp4_levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* Low nibbles are the first half of the 2 * n elements, high nibbles the second. */
static void put_nibbles(const int8_t *levels, const uint8_t *qs, int n, uint8_t *codes) {
    for (int i = 0; i < n; i++) {
        codes[i] = (uint8_t)(128 + levels[qs[i] & 15]);
        codes[i + n] = (uint8_t)(128 + levels[qs[i] >> 4]);
    }
}

/* [2] d, [16] nibbles */
void td_quant_split_iq4_nl(const uint8_t *block, uint8_t *codes, float *scales, float *minima) {
    (void)minima;
    scales[0] = td_quant_f16(block);
    put_nibbles(iq4_levels, block + 2, 16, codes);
}

/* [2] d, [2] high bits of scales, [4] low bits, [128] nibbles */
void td_quant_split_iq4_xs(const uint8_t *block, uint8_t *codes, float *scales, float *minima) {
    (void)minima;
    float d = td_quant_f16(block);
    unsigned high = td_quant_u16(block + 2);
    for (int g = 0; g < 8; g++) {
        int scale = (block[4 + g / 2] >> (g % 2 * 4) & 15) | (int)(high >> (2 * g) & 3) << 4;
        scales[g] = d * (float)(scale - 32);
        put_nibbles(iq4_levels, block + 8 + g * 16, 16, codes + g * 32);
    }
}

/* [1] power of two, [16] nibbles. Half the power, since the levels are doubled. */
void td_quant_split_mxfp4(const uint8_t *block, uint8_t *codes, float *scales, float *minima) {
    (void)minima;
    uint32_t bits = block[0] < 2 ? 0x00200000u << block[0] : (uint32_t)(block[0] - 1) << 23;
    memcpy(scales, &bits, sizeof bits);
    put_nibbles(fp4_levels, block + 1, 16, codes);
}

/* [4] scales, unsigned e4m3 (bit 7 is ignored; 0x7f counts as 0, but 0xff as 480), [32]
 * nibbles, 8 bytes per 16 elements */
void td_quant_split_nvfp4(const uint8_t *block, uint8_t *codes, float *scales, float *minima) {
    (void)minima;
    for (int g = 0; g < 4; g++) {
        uint8_t code = block[g] & 0x7f;
        if (code == 0x7f) scales[g] = block[g] == 0x7f ? 0.0f : 240.0f;
        else scales[g] = (float)(td_load_f64(TD_FLOAT8E4M3FN, &code, 0) * 0.5);
        put_nibbles(fp4_levels, block + 4 + g * 8, 8, codes + g * 16);
    }
}
