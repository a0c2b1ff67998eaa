/* The table of weight formats: sizes, ids, and that each format's codes fit its ONNX form. Values are compared with
 * PyPI gguf in tests/compile/test_compile_blocks.py. */
#include "support/test.h"

#include "quant/formats.h"

#include <string.h>

TEST(ids_and_sizes) {
    const td_quant_format *f;
    size_t bytes;
    for (size_t i = 0; (f = td_quant_format_at(i)); i++) {
        CHECK(td_quant_format_by_id(f->ggml_id) == f);
        CHECK(td_quant_unsupported_name(f->ggml_id) == NULL);
        CHECK(f->block <= TD_QUANT_MAX_BLOCK && f->block / f->group <= TD_QUANT_MAX_GROUPS && f->block % f->group == 0);
        CHECK(td_quant_row_bytes(f, f->block * 3, &bytes) && bytes == (size_t)f->block_bytes * 3);
        if (f->block > 1) CHECK(!td_quant_row_bytes(f, f->block + 1, &bytes));
    }
    CHECK(td_quant_format_by_id(9) == NULL);
    CHECK_EQ_STR(td_quant_unsupported_name(9), "Q8_1");
}

TEST(onnx_bits) {
    static const struct {
        const char *name;
        int bits;
    } rows[] = {{"Q4_0", 4}, {"Q4_1", 4}, {"Q5_0", 8}, {"Q5_1", 8},  {"Q8_0", 8}, {"Q2_K", 2},
                {"Q3_K", 4}, {"Q4_K", 4}, {"Q6_K", 8}, {"TQ2_0", 4}, {"F16", 0}};
    const td_quant_format *f;
    for (size_t i = 0; (f = td_quant_format_at(i)); i++)
        for (size_t k = 0; k < TD_COUNT(rows); k++)
            if (strcmp(f->name, rows[k].name) == 0) CHECK_EQ_INT(td_quant_onnx_bits(f), rows[k].bits);
}

/* Codes of random blocks are within the bits, and move into the ONNX form without wrapping. */
TEST(codes_fit) {
    const td_quant_format *f;
    uint64_t state = 7;
    for (size_t i = 0; (f = td_quant_format_at(i)); i++) {
        if (f->plain != TD_UNDEFINED) continue;
        int bits = td_quant_onnx_bits(f), shift = f->has_minima ? 0 : (1 << (bits - 1)) - f->zero;
        for (int round = 0; round < 200; round++) {
            uint8_t block[512], codes[TD_QUANT_MAX_BLOCK];
            float scales[TD_QUANT_MAX_GROUPS], minima[TD_QUANT_MAX_GROUPS];
            for (int k = 0; k < f->block_bytes; k++) block[k] = (uint8_t)td_test_random(&state);
            f->split(block, codes, scales, minima);
            for (int k = 0; k < f->block; k++)
                if (codes[k] >> f->bits || codes[k] + shift < 0 || (codes[k] + shift) >> bits)
                    FAIL("%s: code %d", f->name, codes[k]);
        }
    }
}

TEST(q4_0_by_hand) {
    uint8_t block[18] = {0x00, 0x38}; /* 0.5 */
    float values[32];
    for (int i = 0; i < 16; i++) block[2 + i] = (uint8_t)(i | (15 - i) << 4);
    td_quant_decode(td_quant_format_by_id(2), block, 32, values);
    for (int i = 0; i < 16; i++) CHECK(values[i] == 0.5f * (float)(i - 8) && values[16 + i] == 0.5f * (float)(7 - i));
}
