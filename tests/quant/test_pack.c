/* Packing of quantised matrices: rows come back as defined, forms are the narrowest exact
 * ones, wrong sizes are refused. */
#include "support/test.h"

#include "base/alloc.h"
#include "quant/pack.h"
#include "tensor/half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 21, MAX_K = 300, MAX_BLOCKS = 19 };

typedef struct data {
    uint8_t codes[N * MAX_BLOCKS * 16 * 2], zeros[N * MAX_BLOCKS];
    float scales[N * MAX_BLOCKS], floats[N * MAX_BLOCKS];
    uint16_t halves[N * MAX_BLOCKS];
} data;

static td_qsource random_source(data *d, int bits, int64_t block, int64_t k, uint64_t *seed) {
    int64_t blocks = (k + block - 1) / block;
    for (size_t i = 0; i < sizeof d->codes; i++) d->codes[i] = (uint8_t)td_test_random(seed);
    for (int64_t i = 0; i < N * blocks; i++) {
        uint16_t half = td_f32_to_f16(td_test_random_f32(seed, -0.02f, 0.02f));
        d->scales[i] = td_f16_to_f32(half);
        d->zeros[i] = (uint8_t)(td_test_random(seed) & ((1u << bits) - 1));
        d->halves[i] = td_f32_to_f16(td_test_random_f32(seed, -1, 1));
        d->floats[i] = td_test_random_f32(seed, 0, (float)(1 << bits));
    }
    return (td_qsource){
        .bits = bits, .block = block, .n = N, .k = k, .codes = d->codes, .scale_type = TD_FLOAT, .scales = d->scales};
}

/* Packs and gives rows back; frees what it made. */
static td_qlayout pack_and_compare(const td_qsource *source, float (*expected)[MAX_K]) {
    td_qlayout layout = {0};
    treadle_error err = {0};
    CHECK_OK(td_qlayout_choose(source, &layout, &err), &err);
    CHECK(td_qlayout_valid(&layout));
    uint8_t *packed = td_alloc_aligned(td_qlayout_bytes(&layout));
    REQUIRE(packed);
    for (int64_t c = 0; c < td_qlayout_tiles_n(&layout); c++) /* column by column: ranges are independent */
        td_qweights_pack(source, &layout, c, c + 1, packed + (size_t)c * td_qlayout_column_bytes(&layout));
    td_qweights weights = {layout, packed};
    for (int64_t row = 0; row < source->n; row++) {
        float got[MAX_K], direct[MAX_K];
        td_qweights_row(&weights, row, got);
        td_qsource_row(source, row, direct);
        for (int64_t j = 0; j < source->k; j++) {
            CHECK_NEAR(got[j], expected[row][j], 1e-6f * (1 + fabsf(expected[row][j])));
            CHECK_NEAR(direct[j], expected[row][j], 1e-6f * (1 + fabsf(expected[row][j])));
        }
    }
    td_free_aligned(packed);
    return layout;
}

static int code_of(const td_qsource *s, int64_t row, int64_t j) {
    size_t row_bytes =
        s->row_bytes ? s->row_bytes : (size_t)((s->k + s->block - 1) / s->block * s->block * s->bits / 8);
    const uint8_t *codes = (const uint8_t *)s->codes + (size_t)row * row_bytes;
    int code = codes[j * s->bits / 8] >> (j * s->bits % 8) & ((1 << s->bits) - 1), half = 1 << (s->bits - 1);
    return s->is_signed && code >= half ? code - 2 * half : code;
}

TEST(rows_come_back) {
    static data d;
    static float want[N][MAX_K];
    uint64_t seed = 1;
    for (int i = 0; i < 3 * 5 * 6; i++) {
        int bits = 2 << (i % 3);
        int64_t block = 16 << (i / 3 % 5), k = 1 + (int64_t)(td_test_random(&seed) % (MAX_K - 1)),
                blocks = (k + block - 1) / block;
        if (block > 64 && bits == 8) k = TD_MIN(k, 256), blocks = (k + block - 1) / block;
        td_qsource s = random_source(&d, bits, block, k, &seed);
        int form = i / 15;
        s.is_signed = form == 5;
        if (form == 5) s.row_bytes = (size_t)(k * bits + 7) / 8; /* as GatherBlockQuantized holds it */
        if (form == 1) s.zero_form = TD_QZERO_BYTES, s.zeros = d.zeros;
        if (form == 2) s.zero_form = TD_QZERO_FLOAT, s.zero_type = TD_FLOAT, s.zeros = d.floats;
        if (form == 3) s.zero_form = TD_QZERO_MINIMA, s.zero_type = TD_FLOAT16, s.zeros = d.halves;
        if (form == 4) s.zero_form = TD_QZERO_PACKED, s.zeros = d.zeros;
        for (int64_t row = 0; row < N; row++)
            for (int64_t j = 0; j < k; j++) {
                int64_t b = j / block, at = row * blocks + b, per_byte = 8 / bits;
                double zero = form == 5 ? 0 : 1 << (bits - 1), scale = d.scales[at];
                if (form == 1) zero = d.zeros[at];
                if (form == 2) zero = d.floats[at];
                if (form == 4)
                    zero =
                        d.zeros[row * ((blocks + per_byte - 1) / per_byte) + b / per_byte] >> (bits * (b % per_byte)) &
                        ((1 << bits) - 1);
                int code = code_of(&s, row, j);
                want[row][j] = (float)(form == 3 ? code * scale + td_f16_to_f32(d.halves[at]) : (code - zero) * scale);
            }
        td_qlayout l = pack_and_compare(&s, want);
        CHECK_EQ_INT(l.scale, TD_QPARAM_F16);
        CHECK_EQ_INT(l.sub, block == 16 ? 16 : 32);
        if (form == 0 || form == 5) CHECK_EQ_INT(l.minimum, TD_QPARAM_NONE);
        if (form == 3) CHECK_EQ_INT(l.minimum, TD_QPARAM_F16);
    }
}

static td_qlayout layout_of(const td_qsource *s) {
    td_qlayout l = {0};
    treadle_error err = {0};
    CHECK_OK(td_qlayout_choose(s, &l, &err), &err);
    return l;
}

/* Float zero points made from fp16 minima, -m / d in fp32, give the same fp16 minima back, bit for bit. */
TEST(fp16_minima_are_recovered) {
    static data d;
    uint64_t seed = 2;
    td_qsource s = random_source(&d, 4, 32, 288, &seed);
    s.zero_form = TD_QZERO_FLOAT;
    s.zero_type = TD_FLOAT;
    s.zeros = d.floats;
    int64_t blocks = 9;
    for (int64_t i = 0; i < N * blocks; i++) {
        if (i % 11 == 0) d.scales[i] = 1, d.halves[i] = 0x3c01; /* a constant block: d was 0, its minimum is kept */
        if (d.scales[i] == 0) d.scales[i] = 0x1p-14f;
        d.floats[i] = -td_f16_to_f32(d.halves[i]) / d.scales[i];
    }
    td_qlayout l = layout_of(&s);
    CHECK_EQ_INT(l.minimum, TD_QPARAM_F16);
    uint8_t *packed = td_alloc_aligned(td_qlayout_bytes(&l));
    REQUIRE(packed);
    td_qweights_pack(&s, &l, 0, td_qlayout_tiles_n(&l), packed);
    for (int64_t row = 0; row < N; row++)
        for (int64_t b = 0; b < blocks; b++) {
            const uint8_t *tile =
                packed + (size_t)(row / 16) * td_qlayout_column_bytes(&l) + (size_t)(b / 2) * l.tile_bytes;
            size_t at = 2 * (size_t)(b % 2 * 16 + row % 16);
            CHECK_EQ_MEM(tile + l.minima_offset + at, &d.halves[row * blocks + b], 2);
            uint16_t scale = td_f32_to_f16(d.scales[row * blocks + b]);
            CHECK_EQ_MEM(tile + at, &scale, 2);
        }
    td_free_aligned(packed);
    d.floats[17] = nextafterf(d.floats[17], 100); /* one that no fp16 minimum explains */
    CHECK_EQ_INT(layout_of(&s).minimum, TD_QPARAM_F32);
    for (int64_t i = 0; i < N * blocks; i++) d.floats[i] = 8;
    CHECK_EQ_INT(layout_of(&s).minimum, TD_QPARAM_NONE);
    d.scales[3] = 0.1f; /* no fp16 number */
    CHECK_EQ_INT(layout_of(&s).scale, TD_QPARAM_F32);
}

TEST(wrong_numbers_are_refused) {
    static data d;
    uint64_t seed = 3;
    treadle_error err = {0};
    td_qlayout l;
    td_qsource good = random_source(&d, 4, 32, 64, &seed), s;
    s = good, s.bits = 3;
    CHECK_STATUS(td_qlayout_choose(&s, &l, &err), TREADLE_UNSUPPORTED, &err);
    CHECK_HAS_STR(err.message, "bits is 3");
    s = good, s.block = 48;
    CHECK_STATUS(td_qlayout_choose(&s, &l, &err), TREADLE_UNSUPPORTED, &err);
    s = good, s.block = 8;
    CHECK_STATUS(td_qlayout_choose(&s, &l, &err), TREADLE_UNSUPPORTED, &err);
    s = good, s.k = 0;
    CHECK_STATUS(td_qlayout_choose(&s, &l, &err), TREADLE_INVALID_ARGUMENT, &err);
    s = good, s.n = (int64_t)1 << 40;
    CHECK_STATUS(td_qlayout_choose(&s, &l, &err), TREADLE_INVALID_ARGUMENT, &err);
    s = good, s.row_bytes = 31;
    CHECK_STATUS(td_qlayout_choose(&s, &l, &err), TREADLE_INVALID_ARGUMENT, &err);
    s = good, s.scale_type = TD_DOUBLE;
    CHECK_STATUS(td_qlayout_choose(&s, &l, &err), TREADLE_UNSUPPORTED, &err);
    size_t codes, scales, zeros;
    s = good, s.zero_form = TD_QZERO_PACKED, s.k = 96;
    CHECK_OK(td_qsource_sizes(&s, &codes, &scales, &zeros, &err), &err);
    CHECK_EQ_UINT(codes, N * 48);
    CHECK_EQ_UINT(scales, N * 12);
    CHECK_EQ_UINT(zeros, N * 2);
    td_qlayout broken = layout_of(&good);
    broken.codes_offset += 64;
    CHECK(!td_qlayout_valid(&broken));
    broken = layout_of(&good);
    broken.scale = 9;
    CHECK(!td_qlayout_valid(&broken));
}
