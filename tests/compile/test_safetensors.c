/* The safetensors reader: what the format allows is read, everything else is an error that names the tensor. */
#include "compile/safetensors.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct sample {
    td_arena arena;
    td_tensor_set set;
    uint8_t *bytes;
    treadle_error err;
} sample;

/* A file of this header and n bytes of data: 0, 1, 2 ... */
static treadle_status read_text(sample *s, const char *header, size_t n_data) {
    size_t n = strlen(header);
    *s = (sample){0};
    s->bytes = malloc(8 + n + n_data);
    REQUIRE(s->bytes != NULL);
    for (int i = 0; i < 8; i++) s->bytes[i] = (uint8_t)((uint64_t)n >> (8 * i));
    memcpy(s->bytes + 8, header, n);
    for (size_t i = 0; i < n_data; i++) s->bytes[8 + n + i] = (uint8_t)i;
    return td_safetensors_read(s->bytes, 8 + n + n_data, &s->arena, &s->set, &s->err);
}

static void done(sample *s) {
    td_tensor_set_discard(&s->set);
    td_arena_free(&s->arena);
    free(s->bytes);
}

static void refused(const char *header, size_t n_data, treadle_status code, const char *part) {
    sample s;
    CHECK_EQ_INT(read_text(&s, header, n_data), code);
    CHECK_HAS_STR(s.err.message, part);
    done(&s);
}

TEST(reads) {
    sample s;
    /* Order in the file is not the order in the header; the data starts at an odd address. */
    CHECK_OK(read_text(&s,
                       "{\"__metadata__\":{\"format\":\"pt\"},"
                       "\"b\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[12,20]},"
                       "\"a\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[0,12]},"
                       "\"none\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[12,12]},"
                       "\"c\":{\"dtype\":\"BF16\",\"shape\":[1,1,1,1,2],\"data_offsets\":[20,24]}}   ",
                       24),
             &s.err);
    CHECK_EQ_UINT(s.set.tensors.n, 4);
    const td_source_tensor *a = td_tensor_set_find(&s.set, TD_STR("a")), *b = td_tensor_set_find(&s.set, TD_STR("b"));
    const td_source_tensor *c = td_tensor_set_find(&s.set, TD_STR("c"));
    REQUIRE(a && b && c && !td_tensor_set_find(&s.set, TD_STR("__metadata__")));
    CHECK_EQ_INT(a->rank, 2);
    CHECK_EQ_INT(a->dims[0], 3); /* innermost first */
    CHECK_EQ_INT(a->dims[1], 2);
    CHECK_EQ_UINT(a->row_bytes, 6);
    CHECK_EQ_STR(a->format->name, "F16");
    CHECK_EQ_INT(*a->data, 0);
    CHECK(b->format == NULL);
    CHECK_EQ_STR(b->type, "I64");
    CHECK_EQ_INT(*b->data, 12);
    CHECK_EQ_UINT(b->bytes, 8);
    CHECK_EQ_INT(td_source_tensor_rows(c), 1);
    done(&s);
}

TEST(empty) {
    sample s;
    CHECK_OK(read_text(&s, "{}", 0), &s.err);
    CHECK_EQ_UINT(s.set.tensors.n, 0);
    done(&s);
}

TEST(bad_header) {
    sample s = {0};
    uint8_t large[16] = {255, 255, 255, 255, 255, 255, 255, 255, '{', '}'};
    CHECK_EQ_INT(td_safetensors_read(large, 7, &s.arena, &s.set, &s.err), TREADLE_FORMAT);
    CHECK_HAS_STR(s.err.message, "7 bytes");
    CHECK_EQ_INT(td_safetensors_read(large, 16, &s.arena, &s.set, &s.err), TREADLE_FORMAT);
    CHECK_HAS_STR(s.err.message, "18446744073709551615");
    refused("", 0, TREADLE_FORMAT, "'{'");
    refused(" {}", 0, TREADLE_FORMAT, "'{'");
    refused("{\"a\":", 0, TREADLE_FORMAT, "");
    refused("{\"a\":{}, \"a\":{}}", 0, TREADLE_FORMAT, "a");
    refused("{\"a\":{\"dtype\":{\"b\":{\"c\":{\"d\":1}}}}}", 0, TREADLE_LIMIT, "");
}

#define TENSOR(dtype, shape, offsets) "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

TEST(bad_tensor) {
    refused("{\"t\":3}", 0, TREADLE_FORMAT, "'t': expected an object, found a number");
    refused("{\"\":{}}", 0, TREADLE_FORMAT, "name");
    refused("{\"t\":{}}", 0, TREADLE_FORMAT, "dtype");
    refused(TENSOR("7", "[2]", "[0,8]"), 8, TREADLE_FORMAT, "dtype");
    refused(TENSOR("\"F33\"", "[2]", "[0,8]"), 8, TREADLE_UNSUPPORTED, "F33");
    refused("{\"t\":{\"dtype\":\"F32\"}}", 0, TREADLE_FORMAT, "shape");
    refused("{\"t\":{\"dtype\":\"F32\",\"shape\":[2]}}", 0, TREADLE_FORMAT, "data_offsets");
    refused(TENSOR("\"F32\"", "2", "[0,8]"), 8, TREADLE_FORMAT, "shape");
    refused(TENSOR("\"F32\"", "[-2]", "[0,8]"), 8, TREADLE_FORMAT, "negative");
    refused(TENSOR("\"F32\"", "[2.5]", "[0,8]"), 8, TREADLE_FORMAT, "integer");
    refused(TENSOR("\"F32\"", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), 8, TREADLE_LIMIT, "9");
    refused(TENSOR("\"F32\"", "[4611686018427387904,2]", "[0,8]"), 8, TREADLE_FORMAT, "2^63");
    refused(TENSOR("\"F32\"", "[4611686018427387904]", "[0,8]"), 8, TREADLE_FORMAT, "2^63");
    refused(TENSOR("\"F4\"", "[3]", "[0,1]"), 1, TREADLE_FORMAT, "whole bytes");
    refused(TENSOR("\"F32\"", "[2]", "[0]"), 8, TREADLE_FORMAT, "two data_offsets, found 1");
    refused(TENSOR("\"F32\"", "[2]", "[0,8,9]"), 8, TREADLE_FORMAT, "two data_offsets, found 3");
    refused(TENSOR("\"F32\"", "[2]", "[0,\"8\"]"), 8, TREADLE_FORMAT, "integer");
    refused(TENSOR("\"F32\"", "[2]", "[8,0]"), 8, TREADLE_FORMAT, "8 to 0");
    refused(TENSOR("\"F32\"", "[2]", "[0,7]"), 8, TREADLE_FORMAT, "expected 8 bytes inside 8 bytes of data");
    refused(TENSOR("\"F32\"", "[2]", "[0,8]"), 7, TREADLE_FORMAT, "inside 7 bytes");
    refused(TENSOR("\"F32\"", "[2]", "[9223372036854775799,9223372036854775807]"), 8, TREADLE_FORMAT, "inside 8");
}

/* Tensors lie one behind the other and end with the file. */
TEST(bad_cover) {
    refused(TENSOR("\"F32\"", "[2]", "[0,8]"), 9, TREADLE_FORMAT, "take 8 bytes, the file has 9");
    refused(TENSOR("\"F32\"", "[2]", "[4,12]"), 12, TREADLE_FORMAT, "starts at 4 of the data, expected 0");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},"
            "\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[4,12]}}",
            12, TREADLE_FORMAT, "'b' starts at 4 of the data, expected 8");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},"
            "\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}",
            8, TREADLE_FORMAT, "starts at 0 of the data, expected 8");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
            "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[6,10]}}",
            10, TREADLE_FORMAT, "'b' starts at 6 of the data, expected 4");
}

/* The place of a fault in the header. */
TEST(places) {
    sample s;
    CHECK_EQ_INT(read_text(&s, "{\n \"x/y\": {\"dtype\": \"F32\", \"shape\": [\"2\"],\n\"data_offsets\": [0, 8]}}", 8),
                 TREADLE_FORMAT);
    CHECK_EQ_STR(s.err.pointer, "/x~1y/shape/0");
    CHECK_EQ_UINT(s.err.line, 2);
    done(&s);
}
