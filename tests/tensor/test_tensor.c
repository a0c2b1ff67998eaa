/* Element types, small floats, shapes, strided copies, .npy files. */
#include "support/test.h"

#include "base/cpu.h"
#include "tensor/half.h"
#include "tensor/tensor.h"
#include "tensor/value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

TEST(dtype_names_and_sizes) {
    size_t n = 0;
    for (int i = 1; i < TD_DTYPE_END; i++) CHECK_EQ_INT(td_dtype_from_name(td_str_from(td_dtype_name((td_dtype)i))), i);
    CHECK_EQ_INT(td_dtype_from_name(TD_STR("half")), TD_FLOAT16);
    CHECK_EQ_INT(td_dtype_from_name(TD_STR("float31")), TD_UNDEFINED);
    CHECK_EQ_INT(td_dtype_bits((td_dtype)99), 0);
    CHECK(td_dtype_bytes(TD_INT4, 5, &n) && n == 3);
    CHECK(td_dtype_bytes(TD_UINT2, 5, &n) && n == 2);
    CHECK(td_dtype_bytes(TD_UINT2, 0, &n) && n == 0);
    CHECK(!td_dtype_bytes(TD_DOUBLE, INT64_MAX, &n));
    CHECK(!td_dtype_bytes(TD_DOUBLE, -1, &n));
    CHECK(!td_dtype_bytes(TD_UNDEFINED, 1, &n));
}

TEST(float16_all_codes) {
    for (uint32_t code = 0; code < 65536; code++) {
        float value = td_f16_to_f32((uint16_t)code);
        uint32_t e = code >> 10 & 31, m = code & 1023;
        double want = e == 31 ? (m ? (double)NAN : (double)INFINITY) : ldexp(e ? 1024 + m : m, (int)(e ? e : 1) - 25);
        if (isnan(want)) CHECK(isnan(value));
        else if ((double)fabsf(value) != want || !!signbit(value) != (int)(code >> 15))
            FAIL("code %x is %g", code, (double)value);
        if (!isnan(want) && td_f32_to_f16(value) != code) FAIL("code %x does not come back", code);
    }
}

TEST(float16_rounds_to_nearest_even) {
    CHECK_EQ_INT(td_f32_to_f16(65519.0f), 0x7bff);
    CHECK_EQ_INT(td_f32_to_f16(65520.0f), 0x7c00);
    CHECK_EQ_INT(td_f32_to_f16(2049.0f), td_f32_to_f16(2048.0f));
    CHECK_EQ_INT(td_f32_to_f16(2051.0f), td_f32_to_f16(2052.0f));
    CHECK_EQ_INT(td_f32_to_f16(0x1p-25f), 0);
    CHECK_EQ_INT(td_f32_to_f16(0x1.8p-25f), 1);
    CHECK_EQ_INT(td_f32_to_f16(-0.0f), 0x8000);
    CHECK_EQ_INT(td_f32_to_bf16(0x1.01p0f), 0x3f80);
    CHECK_EQ_INT(td_f32_to_bf16(0x1.03p0f), 0x3f82);
    uint16_t half = 0;
    td_store_f64(TD_FLOAT16, &half, 0, 0x1.002p0 + 0x1p-40); /* through float32 it would round twice, to 1 */
    CHECK_EQ_INT(half, 0x3c01);
}

TEST(runs_equal_single_elements) {
    enum { N = 1003 };
    static uint16_t codes[N], back[N];
    static float fast[N];
    uint64_t state = 1;
    for (int i = 0; i < N; i++) codes[i] = (uint16_t)td_test_random(&state);
    td_to_f32(TD_FLOAT16, codes, N, fast);
    for (int i = 0; i < N; i++) {
        float one = td_f16_to_f32(codes[i]);
        CHECK_EQ_MEM(&one, &fast[i], sizeof one);
    }
    for (int i = 0; i < N; i++) fast[i] = td_test_random_f32(&state, -70000, 70000) * (i % 3 ? 1 : 1e-6f);
    td_from_f32(TD_FLOAT16, fast, N, back);
    for (int i = 0; i < N; i++) CHECK_EQ_INT(back[i], td_f32_to_f16(fast[i]));
}

/* value, code: from the tables of OCP OFP8 and MX, and of the FNUZ paper. */
TEST(small_floats) {
    static const struct {
        td_dtype dtype;
        double value;
        int code;
    } rows[] = {
        {TD_FLOAT8E4M3FN, 448, 0x7e},
        {TD_FLOAT8E4M3FN, 0x1p-9, 0x01},
        {TD_FLOAT8E4M3FN, -1, 0xb8},
        {TD_FLOAT8E4M3FN, 1e9, 0x7e},
        {TD_FLOAT8E5M2, 57344, 0x7b},
        {TD_FLOAT8E5M2, 0x1p-16, 0x01},
        {TD_FLOAT8E4M3FNUZ, 240, 0x7f},
        {TD_FLOAT8E4M3FNUZ, 0x1p-10, 0x01},
        {TD_FLOAT8E5M2FNUZ, 57344, 0x7f},
        {TD_FLOAT8E5M2FNUZ, 0x1p-17, 0x01},
        {TD_FLOAT8E8M0, 1, 127},
        {TD_FLOAT8E8M0, 0x1p-127, 0},
        {TD_FLOAT4E2M1, 6, 7},
        {TD_FLOAT4E2M1, 2.5, 4},
        {TD_FLOAT4E2M1, 3.5, 6},
        {TD_FLOAT4E2M1, -0.5, 9},
        {TD_FLOAT4E2M1, 100, 7},
        {TD_FLOAT8E4M3FNUZ, -0.0, 0},
    };
    for (size_t i = 0; i < TD_COUNT(rows); i++) {
        uint8_t code = 0;
        td_store_f64(rows[i].dtype, &code, 0, rows[i].value);
        CHECK_EQ_INT(code, rows[i].code);
    }
    for (int i = 17; i <= 20; i++)
        for (int code = 0; code < 256; code++) {
            uint8_t byte = (uint8_t)code, back = 0;
            double value = td_load_f64((td_dtype)i, &byte, 0);
            if (isnan(value) || isinf(value)) continue;
            td_store_f64((td_dtype)i, &back, 0, value);
            CHECK_EQ_INT(back, code);
        }
}

TEST(packed_and_saturating) {
    uint8_t bytes[2] = {0, 0};
    td_store_i64(TD_INT4, bytes, 2, -3);
    td_store_i64(TD_INT4, bytes, 1, 7);
    CHECK_EQ_INT(bytes[0], 0x70);
    CHECK_EQ_INT(bytes[1], 0x0d);
    CHECK_EQ_INT(td_load_i64(TD_INT4, bytes, 2), -3);
    CHECK_EQ_INT(td_load_i64(TD_UINT2, bytes, 3), 1);
    td_store_f64(TD_INT4, bytes, 0, 100);
    CHECK_EQ_INT(td_load_i64(TD_INT4, bytes, 0), 7);
    int8_t small;
    td_store_f64(TD_INT8, &small, 0, -1e9);
    CHECK_EQ_INT(small, -128);
    td_store_f64(TD_INT8, &small, 0, (double)NAN);
    CHECK_EQ_INT(small, 0);
    uint64_t big;
    td_store_f64(TD_UINT64, &big, 0, 1e30);
    CHECK_EQ_UINT(big, UINT64_MAX);
    int64_t whole = INT64_MIN;
    CHECK_EQ_INT(td_load_i64(TD_INT64, &whole, 0), INT64_MIN);
}

TEST(shapes) {
    td_shape a = {3, {2, 1, 4}}, b = {2, {3, 1}}, c, unknown = {1, {TD_DIM_SYMBOL(5)}}, one = {1, {1}},
             huge = {3, {INT64_MAX, 2, 0}};
    char text[128];
    int64_t n;
    CHECK(td_shape_broadcast(&a, &b, &c));
    CHECK_EQ_STR(td_shape_text(&c, text), "[2, 3, 4]");
    CHECK(td_shape_broadcast(&unknown, &one, &c) && c.dims[0] == TD_DIM_SYMBOL(5));
    b.dims[1] = 3;
    CHECK(!td_shape_broadcast(&a, &b, &c));
    CHECK(!td_shape_count(&huge, &n)); /* empty, but walking its other dimensions would overflow */
    huge.dims[1] = 0;
    huge.dims[0] = TD_MAX_COUNT;
    CHECK(td_shape_count(&huge, &n) && n == 0);
    huge.dims[1] = 2;
    CHECK(!td_shape_count(&huge, &n));
    CHECK(!td_shape_count(&unknown, &n));
    CHECK_EQ_STR(td_shape_text(&(td_shape){.rank = 2, .dims = {-1, 7}}, text), "[?, 7]");
    td_shape long_one = {.rank = 8};
    for (int i = 0; i < 8; i++) long_one.dims[i] = INT64_MAX;
    CHECK(strlen(td_shape_text(&long_one, text)) < 128);
}

TEST(copies_any_strides) {
    int32_t source[24], dense[24] = {0};
    for (int i = 0; i < 24; i++) source[i] = i;
    td_tensor from, to;
    const td_shape turned = {3, {4, 2, 3}};
    td_tensor_view(&from, TD_INT32, &turned, source);
    td_tensor_view(&to, TD_INT32, &turned, dense);
    from.strides[0] = 1, from.strides[1] = 12, from.strides[2] = 4; /* [2, 3, 4] seen as [4, 2, 3] */
    CHECK(!td_tensor_is_dense(&from));
    td_tensor_copy(&to, &from);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 6; j++) CHECK_EQ_INT(dense[i * 6 + j], j * 4 + i);
}

TEST(a_value_that_grows) {
    int32_t first[4] = {1, 2, 3, 4}, *data = first;
    td_shape shape = {.rank = 2, .dims = {2, 2}};
    td_value value = {.kind = TD_VALUE_TENSOR};
    size_t moves = 0;
    td_tensor_view(&value.tensor, TD_INT32, &shape, first); /* somebody else's memory at first */
    for (int n = 2; n < 1000; n++) {
        CHECK(td_value_extend(&value, 1));
        moves += value.tensor.data != (void *)data;
        data = value.tensor.data;
        CHECK_EQ_INT(value.tensor.shape.dims[0], n + 1);
        data[2 * n] = 2 * n + 1;
        data[2 * n + 1] = 2 * n + 2;
    }
    for (int i = 0; i < 2000; i++) CHECK_EQ_INT(data[i], i + 1);
    CHECK(moves < 12); /* by doubling, not each time */
    CHECK_EQ_INT(first[3], 4);
    CHECK(!td_value_extend(&value, INT64_MAX));
    CHECK(td_value_extend(&value, 0));
    td_value_release(&value);
}

TEST(npy_files) {
    float values[6] = {1, -2, 3.5f, 0, 1e30f, -0.0f};
    const char *path = td_test_temp("a.npy");
    treadle_error err = {0};
    td_tensor t, back;
    td_tensor_view(&t, TD_FLOAT, &(td_shape){2, {2, 3}}, values);
    CHECK_OK(td_npy_write(path, &t, &err), &err);
    CHECK_OK(td_npy_read(path, &back, &err), &err);
    CHECK(back.dtype == TD_FLOAT && td_shape_equal(&back.shape, &t.shape));
    CHECK_EQ_MEM(back.data, values, sizeof values);
    td_buffer_release(back.buffer);
    size_t n;
    char *bytes = td_test_read(path, &n);
    CHECK_EQ_INT((n - sizeof values) % 64, 0);
    for (size_t cut = 0; cut < n; cut++) { /* every truncation is refused */
        td_test_write(path, bytes, cut);
        if (td_npy_read(path, &back, &err) == TREADLE_OK) FAIL("%zu of %zu bytes were taken", cut, n);
    }
    static const char *const bad[] = {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 2), }",
                                      "{'descr': '|O', 'fortran_order': False, 'shape': (), }",
                                      "{'descr': '<f4', 'shape': (), }", "{", "{'x': 1}"};
    for (size_t i = 0; i < TD_COUNT(bad); i++) {
        td_buf file = {0};
        td_buf_append(&file, "\x93NUMPY\1\0", 8);
        td_buf_char(&file, (char)strlen(bad[i]));
        td_buf_char(&file, 0);
        td_buf_text(&file, bad[i]);
        td_test_write(path, file.p, file.n);
        CHECK(td_npy_read(path, &back, &err) != TREADLE_OK);
        td_buf_free(&file);
    }
    free(bytes);
}
