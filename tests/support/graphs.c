/* support/graphs.c - see graphs.h. */
#include "support/graphs.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "onnx/wire.h"
#include "support/test.h"

/* --- graphs from text */

static td_dtype dtype_of(char c) {
    switch (c) {
    case 'f': return TD_FLOAT;
    case 'h': return TD_FLOAT16;
    case 'i': return TD_INT64;
    case 'j': return TD_INT32;
    default: return TD_BOOL;
    }
}

static void read_port(td_arena *arena, td_str text, td_onnx_value_info *out) {
    const char *open = memchr(text.p, '[', text.n);
    REQUIRE(open != NULL && open - text.p > 2);
    size_t n_name = (size_t)(open - text.p) - 2;
    td_onnx_dim *dims = TD_ARENA_ARRAY(arena, td_onnx_dim, TD_MAX_RANK);
    int rank = 0;
    for (const char *p = open + 1; *p != ']';) {
        const char *end = p;
        while (*end != ',' && *end != ']') end++;
        td_str dim = {p, (size_t)(end - p)};
        bool number = dim.n && dim.p[0] >= '0' && dim.p[0] <= '9';
        dims[rank++] = (td_onnx_dim){number ? atoll(dim.p) : -1, number || td_str_is(dim, "?") ? (td_str){0} : dim};
        p = *end == ',' ? end + 1 : end;
    }
    *out = (td_onnx_value_info){
        .name = {text.p, n_name},
        .type = {
            .kind = TD_ONNX_TYPE_TENSOR, .dtype = dtype_of(open[-1]), .has_shape = true, .rank = rank, .dims = dims}};
}

/* Ports of a line; one with {n} in it n times, runs of such ports layer by layer. */
static const td_onnx_value_info *read_ports(td_arena *arena, const char *line, size_t *n) {
    enum { MOST = 64 };
    td_onnx_value_info *ports = TD_ARENA_ARRAY(arena, td_onnx_value_info, MOST);
    *n = 0;
    for (const char *p = line; *p;) {
        const char *end = p + strcspn(p, " "), *hole = memchr(p, '{', (size_t)(end - p));
        int count = hole ? atoi(hole + 1) : 1;
        for (int i = 0; i < count; i++) {
            const char *after = hole ? strchr(hole, '}') + 1 : p;
            const char *text =
                hole ? td_arena_printf(arena, "%.*s%d%.*s", (int)(hole - p), p, i, (int)(end - after), after)
                     : td_arena_strndup(arena, p, (size_t)(end - p));
            REQUIRE(*n < MOST);
            read_port(arena, td_str_from(text), &ports[(*n)++]);
        }
        p = *end ? end + 1 : end;
    }
    return ports;
}

void td_test_write_graph(const char *dir, const td_test_graph *file, const td_onnx_graph *body) {
    td_onnx_model model = {.ir_version = 8};
    td_onnx_opset opset = {.version = 17};
    td_buf bytes = {0};
    treadle_error err = {0};
    model.opsets = &opset;
    model.n_opsets = 1;
    if (body) model.graph = *body;
    model.graph.name = TD_STR("g");
    model.graph.inputs = read_ports(&model.arena, file->inputs, &model.graph.n_inputs);
    model.graph.outputs = read_ports(&model.arena, file->outputs, &model.graph.n_outputs);
    CHECK_OK(td_onnx_write(&model, &bytes, &err), &err);
    char *path = td_path_join(&model.arena, dir, file->file);
    CHECK_OK(td_make_dirs(td_path_dir(&model.arena, path), &err), &err);
    td_test_write(path, bytes.p, bytes.n);
    td_buf_free(&bytes);
    td_arena_free(&model.arena);
}

void td_test_plan(td_planned *p, const char *folder, const td_test_graph *files, const char *config) {
    treadle_error err = {0};
    const char *dir = td_test_temp(folder);
    memset(p, 0, sizeof *p);
    td_arena_init(&p->arena);
    td_messages_init(&p->messages, &p->arena);
    CHECK_OK(td_make_dirs(dir, &err), &err);
    for (; files->file; files++) td_test_write_graph(dir, files, NULL);
    if (config)
        CHECK_OK(td_config_parse(td_str_from(config), "c.json", dir, NULL, &p->messages, &p->config, &err), &err);
    else {
        CHECK_OK(td_model_files_open(dir, &p->arena, &p->files, &err), &err);
        CHECK_OK(td_config_load(&p->files, NULL, &p->messages, &p->config, &err), &err);
    }
    CHECK_OK(td_plan_build(p->config, &p->messages, &p->plan, &err), &err);
    td_json_writer w;
    td_json_writer_init(&w, &p->json, 0);
    td_plan_write_json(p->plan, &w);
    REQUIRE(!p->json.failed);
}

void td_test_plan_done(td_planned *p) {
    td_plan_free(p->plan);
    td_config_free(p->config);
    td_messages_free(&p->messages);
    td_buf_free(&p->json);
    td_arena_free(&p->arena);
}

const char *td_test_first_message(const td_planned *p, treadle_message_level level) {
    for (size_t i = 0; i < p->messages.list.n; i++)
        if (p->messages.list.items[i].level == level) return p->messages.list.items[i].text;
    return "";
}
