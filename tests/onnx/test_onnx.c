/* The ONNX reader and writer: all storage forms, attributes, functions, external data, values; damaged files. */
#include "support/test.h"

#include "onnx/model.h"
#include "onnx/wire.h"

#include <stdlib.h>
#include <string.h>

/* --- small messages by hand */
static void put(td_buf *out, uint32_t number, td_str bytes) {
    td_wire_sink s = {.out = out};
    td_wire_put_str(&s, number, bytes);
}

static void put_int(td_buf *out, uint32_t number, int64_t value) {
    td_wire_sink s = {.out = out};
    td_wire_put_int(&s, number, value);
}

static td_onnx_tensor parse(const td_buf *bytes, td_arena *arena, treadle_status wanted, const char *part) {
    td_onnx_value value;
    treadle_error err = {0};
    treadle_status status = td_onnx_parse_value(bytes->p, bytes->n, TD_ONNX_VALUE_TENSOR, arena, &value, &err);
    CHECK_STATUS(status, wanted, &err);
    if (part) CHECK_HAS_STR(err.message, part);
    return value.tensor;
}

TEST(typed_data_of_each_kind) {
    td_arena arena = {0};
    td_buf b = {0};
    put_int(&b, 1, 3); /* dims */
    put_int(&b, 2, TD_INT4);
    put_int(&b, 5, 0x21), put_int(&b, 5, 0x0f); /* int32_data, unpacked, a byte each */
    td_onnx_tensor t = parse(&b, &arena, TREADLE_OK, NULL);
    CHECK_EQ_INT(t.data_bytes, 2);
    CHECK_EQ_MEM(t.data, "\x21\x0f", 2);
    td_buf_clear(&b);
    put(&b, 1, TD_STR("\x01\x02")); /* packed dims */
    put_int(&b, 2, TD_INT16);
    put(&b, 5, TD_STR("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x07")); /* -1 and 7, packed */
    t = parse(&b, &arena, TREADLE_OK, NULL);
    CHECK_EQ_INT(t.rank, 2);
    CHECK_EQ_MEM(t.data, "\xff\xff\x07\x00", 4);
    td_buf_clear(&b);
    put_int(&b, 1, 1);
    put_int(&b, 2, TD_COMPLEX64);
    put(&b, 4, TD_STR("\0\0\x80\x3f")), put(&b, 4, TD_STR("\0\0\0\x40")); /* float_data in two pieces */
    t = parse(&b, &arena, TREADLE_OK, NULL);
    CHECK_EQ_MEM(t.data, "\0\0\x80\x3f\0\0\0\x40", 8);
    td_buf_clear(&b);
    put_int(&b, 1, 2);
    put_int(&b, 2, TD_STRING);
    put(&b, 6, TD_STR("a\0b")), put(&b, 6, TD_STR(""));
    t = parse(&b, &arena, TREADLE_OK, NULL);
    CHECK(((const td_str *)t.data)[0].n == 3 && ((const td_str *)t.data)[1].n == 0);
    td_buf_free(&b);
    td_arena_free(&arena);
}

TEST(tensor_faults_are_named) {
    td_arena arena = {0};
    td_buf b = {0};
    put_int(&b, 1, -1);
    put_int(&b, 2, TD_FLOAT);
    parse(&b, &arena, TREADLE_FORMAT, "dims[0] is -1");
    td_buf_clear(&b);
    put_int(&b, 1, INT64_MAX), put_int(&b, 1, 3);
    put_int(&b, 2, TD_FLOAT);
    parse(&b, &arena, TREADLE_FORMAT, "overflows");
    td_buf_clear(&b);
    put_int(&b, 1, (int64_t)1 << 40);
    put_int(&b, 2, TD_FLOAT);
    put(&b, 9, TD_STR("abcd"));
    parse(&b, &arena, TREADLE_FORMAT, "4 bytes of raw_data");
    td_buf_clear(&b);
    put_int(&b, 1, 1);
    put_int(&b, 2, TD_FLOAT);
    put_int(&b, 7, 1);
    parse(&b, &arena, TREADLE_FORMAT, "int64_data, expected float_data");
    td_buf_clear(&b);
    put_int(&b, 2, 77);
    parse(&b, &arena, TREADLE_UNSUPPORTED, "element type 77");
    td_buf_clear(&b);
    parse(&b, &arena, TREADLE_FORMAT, "data_type");
    put_int(&b, 9, 1);
    parse(&b, &arena, TREADLE_FORMAT, "length-delimited");
    CHECK(arena.used_bytes < 4096); /* nothing was allocated for the sizes they claim */
    td_buf_free(&b);
    td_arena_free(&arena);
}

TEST(groups_and_unknown_fields_are_skipped) {
    td_arena arena = {0};
    td_buf b = {0};
    td_buf_append(&b, "\xa3\x06\x08\x01\xb3\x06\xb4\x06\xa4\x06", 10); /* group 100 { 1: 1, group 102 {} } */
    put_int(&b, 2, TD_UINT8);
    put_int(&b, 999, 5);
    put(&b, 9, TD_STR("x"));
    td_onnx_tensor t = parse(&b, &arena, TREADLE_OK, NULL);
    CHECK(t.rank == 0 && t.count == 1);
    td_buf_append(&b, "\xa3\x06\x08\x01", 4);
    parse(&b, &arena, TREADLE_FORMAT, "group is not closed");
    td_buf_free(&b);
    td_arena_free(&arena);
}

/* --- whole models */
static const int64_t two[] = {2};
static const float floats[] = {1.5f, -2};
static const td_str names[] = {{"x", 1}, {"", 0}, {"y", 1}};

static void build(td_buf *out, bool external) {
    td_onnx_tensor w = {
        .name = TD_STR("w"), .dtype = TD_FLOAT, .rank = 1, .dims = two, .count = 2, .data = floats, .data_bytes = 8};
    if (external) w.is_external = true, w.location = TD_STR("w.bin"), w.offset = 4, w.length = 8;
    const int64_t ints[] = {-1, 3};
    const td_onnx_attr attrs[] = {
        {.name = TD_STR("axis"), .type = TD_ONNX_ATTR_INT, .i = 0},
        {.name = TD_STR("eps"), .type = TD_ONNX_ATTR_FLOAT, .f = 0.5f},
        {.name = TD_STR("ints"), .type = TD_ONNX_ATTR_INTS, .ints = ints, .n = 2},
        {.name = TD_STR("text"), .type = TD_ONNX_ATTR_STRINGS, .strings = names, .n = 3},
        {.name = TD_STR("alpha"), .type = TD_ONNX_ATTR_FLOAT, .ref_attr_name = TD_STR("a")},
    };
    const td_onnx_dim dims[] = {{-1, TD_STR("batch")}, {4, {NULL, 0}}, {-1, {NULL, 0}}};
    const td_onnx_type elem = {.kind = TD_ONNX_TYPE_TENSOR, .dtype = TD_INT64, .has_shape = true};
    const td_onnx_value_info inputs[] = {
        {.name = TD_STR("x"),
         .type = {.kind = TD_ONNX_TYPE_TENSOR, .dtype = TD_FLOAT, .has_shape = true, .rank = 3, .dims = dims}},
        {.name = TD_STR("m"), .type = {.kind = TD_ONNX_TYPE_MAP, .dtype = TD_STRING, .elem = &elem}}};
    const td_onnx_node node = {.op_type = TD_STR("Op"),
                               .domain = TD_STR("d"),
                               .inputs = names,
                               .n_inputs = 3,
                               .outputs = names + 2,
                               .n_outputs = 1,
                               .attrs = attrs,
                               .n_attrs = TD_COUNT(attrs)};
    const td_onnx_opset opsets[] = {{{NULL, 0}, 21}, {TD_STR("d"), 1}};
    const td_onnx_function f = {.name = TD_STR("Op"),
                                .domain = TD_STR("d"),
                                .inputs = names,
                                .n_inputs = 1,
                                .outputs = names + 2,
                                .n_outputs = 1,
                                .attr_defaults = attrs,
                                .n_attr_defaults = 1,
                                .nodes = &node,
                                .n_nodes = 1,
                                .opsets = opsets,
                                .n_opsets = 1};
    const td_onnx_model m = {.ir_version = 10,
                             .opsets = opsets,
                             .n_opsets = 2,
                             .functions = &f,
                             .n_functions = 1,
                             .graph = {.name = TD_STR("g"),
                                       .nodes = &node,
                                       .n_nodes = 1,
                                       .initializers = &w,
                                       .n_initializers = 1,
                                       .inputs = inputs,
                                       .n_inputs = 2}};
    treadle_error err = {0};
    CHECK_OK(td_onnx_write(&m, out, &err), &err);
}

TEST(model_comes_back) {
    td_buf first = {0}, second = {0};
    td_onnx_model *m;
    treadle_error err = {0};
    build(&first, false);
    CHECK_OK(td_onnx_parse(first.p, first.n, NULL, NULL, &m, &err), &err);
    CHECK_EQ_MEM(m->graph.initializers[0].data, floats, sizeof floats);
    const td_onnx_node *node = &m->graph.nodes[0];
    CHECK(node->n_inputs == 3 && node->inputs[1].n == 0);
    CHECK_EQ_INT(td_onnx_find_attr(node, "ints")->ints[0], -1);
    CHECK(td_str_is(td_onnx_find_attr(node, "alpha")->ref_attr_name, "a"));
    CHECK(td_onnx_find_attr(node, "none") == NULL);
    CHECK_EQ_INT(m->graph.inputs[0].type.dims[1].value, 4);
    CHECK_EQ_INT(m->graph.inputs[1].type.elem->dtype, TD_INT64);
    CHECK_EQ_INT(td_onnx_opset_version(m->opsets, m->n_opsets, TD_STR("ai.onnx")), 21);
    CHECK(td_onnx_find_function(m, TD_STR("d"), TD_STR("Op"), (td_str){NULL, 0}) != NULL);
    CHECK_OK(td_onnx_write(m, &second, &err), &err);
    CHECK(first.n == second.n && memcmp(first.p, second.p, first.n) == 0);
    td_onnx_close(m);
    td_buf_free(&first);
    td_buf_free(&second);
}

TEST(damage_never_crashes) {
    td_buf bytes = {0};
    td_onnx_model *m;
    build(&bytes, false);
    for (size_t n = 0; n < bytes.n; n++)
        if (td_onnx_parse(bytes.p, n, NULL, NULL, &m, NULL) == TREADLE_OK) td_onnx_close(m);
    for (size_t bit = 0; bit < bytes.n * 8; bit++) {
        bytes.p[bit / 8] = (char)(bytes.p[bit / 8] ^ 1 << bit % 8);
        if (td_onnx_parse(bytes.p, bytes.n, NULL, NULL, &m, NULL) == TREADLE_OK) td_onnx_close(m);
        bytes.p[bit / 8] = (char)(bytes.p[bit / 8] ^ 1 << bit % 8);
    }
    td_buf_free(&bytes);
}

TEST(errors_name_file_path_and_offset) {
    td_buf bytes = {0};
    td_onnx_model *m;
    treadle_error err = {0};
    build(&bytes, false);
    char *name = memmem(bytes.p, bytes.n, "axis", 4);
    REQUIRE(name != NULL);
    name[-1] = 100; /* the attribute's name now reaches past its message */
    const char *path = td_test_temp("bad.onnx");
    td_test_write(path, bytes.p, bytes.n);
    CHECK_STATUS(td_onnx_open(path, NULL, &m, &err), TREADLE_FORMAT, &err);
    CHECK_EQ_STR(err.file, path);
    CHECK_EQ_STR(err.pointer, "graph.node[0].attribute[0]");
    CHECK_HAS_STR(err.message, "byte offset");
    td_buf_free(&bytes);
}

TEST(depth_is_limited) {
    td_buf inner = {0}, outer = {0};
    treadle_error err = {0};
    td_onnx_model *m;
    for (int i = 0; i < 300; i++) { /* graph in attribute in node in graph ... */
        static const uint32_t numbers[] = {6, 5, 1};
        for (int k = 0; k < 3; k++) {
            td_buf_clear(&outer);
            if (k == 0) put(&outer, 1, TD_STR("g"));
            if (k == 1) put(&outer, 4, TD_STR("If"));
            put(&outer, numbers[k], td_buf_view(&inner));
            td_buf swap = inner;
            inner = outer;
            outer = swap;
        }
    }
    td_buf_clear(&outer);
    put(&outer, 7, td_buf_view(&inner));
    CHECK_STATUS(td_onnx_parse(outer.p, outer.n, NULL, NULL, &m, &err), TREADLE_LIMIT, &err);
    td_buf_free(&inner);
    td_buf_free(&outer);
}

TEST(external_data_stays_in_its_folder) {
    td_buf bytes = {0};
    td_onnx_model *m;
    treadle_error err = {0};
    const char *path = td_test_temp("ext.onnx"), *data = td_test_temp("w.bin");
    build(&bytes, true);
    td_test_write(path, bytes.p, bytes.n);
    CHECK_STATUS(td_onnx_open(path, NULL, &m, &err), TREADLE_NOT_FOUND, &err);
    CHECK_HAS_STR(err.message, "w.bin");
    td_test_write(data, "....\0\0\x80\x3f", 8);
    CHECK_STATUS(td_onnx_open(path, NULL, &m, &err), TREADLE_FORMAT, &err);
    CHECK_HAS_STR(err.message, "has only 8");
    td_test_write(data, "....\0\0\x80\x3f\0\0\0\x40", 12);
    CHECK_OK(td_onnx_open(path, NULL, &m, &err), &err);
    CHECK_EQ_MEM(m->graph.initializers[0].data, "\0\0\x80\x3f\0\0\0\x40", 8);
    td_onnx_close(m);
    CHECK_STATUS(td_onnx_parse(bytes.p, bytes.n, NULL, NULL, &m, &err), TREADLE_INVALID_ARGUMENT, &err);
    const td_onnx_read_options skip = {.data = TD_ONNX_DATA_INSIDE};
    CHECK_OK(td_onnx_parse(bytes.p, bytes.n, NULL, &skip, &m, &err), &err);
    CHECK(m->graph.initializers[0].data == NULL && m->graph.initializers[0].offset == 4);
    td_onnx_close(m);
    char *at = memmem(bytes.p, bytes.n, "w.bin", 5);
    memcpy(at, "../wb", 5);
    td_test_write(path, bytes.p, bytes.n);
    CHECK(td_onnx_open(path, NULL, &m, &err) != TREADLE_OK);
    CHECK_HAS_STR(err.message, "../wb");
    td_buf_free(&bytes);
}

/* Bytes that are not aligned have to be copied: reading a signature must not cost a copy of the weights. */
TEST(small_data_leaves_weights_alone) {
    enum { LARGE = 1 << 20 };
    static float weights[LARGE];
    static const int64_t large_dims[] = {LARGE};
    const td_onnx_tensor tensors[] = {
        {.name = TD_STR("w"),
         .dtype = TD_FLOAT,
         .rank = 1,
         .dims = large_dims,
         .count = LARGE,
         .data = weights,
         .data_bytes = sizeof weights},
        {.name = TD_STR("s"), .dtype = TD_FLOAT, .rank = 1, .dims = two, .count = 2, .data = floats, .data_bytes = 8}};
    const td_onnx_model m = {.ir_version = 10, .graph = {.initializers = tensors, .n_initializers = TD_COUNT(tensors)}};
    const td_onnx_read_options small = {.data = TD_ONNX_DATA_SMALL};
    td_onnx_model *read = NULL;
    td_buf written = {0};
    treadle_error err = {0};
    CHECK_OK(td_onnx_write(&m, &written, &err), &err);
    char *bytes = malloc(written.n + sizeof(float));
    REQUIRE(bytes != NULL);
    for (size_t shift = 0; shift < sizeof(float); shift++) { /* one of them aligned at most */
        memcpy(bytes + shift, written.p, written.n);
        CHECK_OK(td_onnx_parse(bytes + shift, written.n, NULL, &small, &read, &err), &err);
        CHECK(read->graph.initializers[0].data == NULL && read->graph.initializers[0].data_bytes == sizeof weights);
        CHECK_EQ_MEM(read->graph.initializers[1].data, floats, 8);
        CHECK(read->arena.used_bytes < 65536);
        td_onnx_close(read);
    }
    free(bytes);
    td_buf_free(&written);
}

TEST(sequences_and_optionals) {
    td_buf tensor = {0}, sequence = {0}, optional = {0};
    td_arena arena = {0};
    td_onnx_value v;
    treadle_error err = {0};
    put_int(&tensor, 2, TD_UINT8);
    put(&tensor, 9, TD_STR("x"));
    put_int(&sequence, 2, 1);
    put(&sequence, 3, td_buf_view(&tensor)), put(&sequence, 3, td_buf_view(&tensor));
    put_int(&optional, 2, 3);
    put(&optional, 5, td_buf_view(&sequence));
    CHECK_OK(td_onnx_parse_value(optional.p, optional.n, TD_ONNX_VALUE_OPTIONAL, &arena, &v, &err), &err);
    REQUIRE(v.n == 1 && v.items[0].kind == TD_ONNX_VALUE_SEQUENCE && v.items[0].n == 2);
    CHECK_EQ_MEM(v.items[0].items[1].tensor.data, "x", 1);
    CHECK_OK(td_onnx_parse_value("", 0, TD_ONNX_VALUE_OPTIONAL, &arena, &v, &err), &err);
    CHECK_EQ_INT(v.n, 0);
    put(&optional, 5, td_buf_view(&sequence));
    CHECK_STATUS(td_onnx_parse_value(optional.p, optional.n, TD_ONNX_VALUE_OPTIONAL, &arena, &v, &err), TREADLE_FORMAT,
                 &err);
    td_buf_free(&tensor);
    td_buf_free(&sequence);
    td_buf_free(&optional);
    td_arena_free(&arena);
}
