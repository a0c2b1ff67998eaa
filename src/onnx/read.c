/* onnx/read.c - opening and closing models. The arena, the file map and the maps of external files belong to the
 * model. */
#include "base/alloc.h"
#include "onnx/proto.h"

/* IR versions before 3 have no opset imports: they mean version 1 of the default domain. */
static treadle_status finish_model(td_proto_reader *r, td_onnx_model *m) {
    if (m->n_opsets || m->ir_version >= 3) return TREADLE_OK;
    td_onnx_opset *opset = TD_ARENA_NEW(r->arena, td_onnx_opset);
    if (!opset) return td_proto_no_memory(r, "opsets", sizeof *opset);
    opset->version = 1;
    m->opsets = opset;
    m->n_opsets = 1;
    return TREADLE_OK;
}

static treadle_status read_model(td_onnx_model *m, const void *bytes, size_t n, const char *base_dir,
                                 const td_onnx_read_options *options, treadle_error *err) {
    td_proto_reader r = {.arena = &m->arena,
                         .base = bytes,
                         .model = m,
                         .base_dir = base_dir,
                         .data = options ? options->data : TD_ONNX_DATA_ALL,
                         .err = err};
    td_wire w = {bytes, (const uint8_t *)bytes + n};
    td_wire walk = w;
    bool more, has_graph = false;
    td_wire_field f;
    if (n == 0) return td_fail(err, TREADLE_FORMAT, "the file is empty, expected an ONNX model");
    do {
        TD_TRY(td_proto_next(&r, &walk, &f, &more));
        has_graph |= more && f.number == 7 && f.type == TD_WIRE_LEN;
    } while (more);
    if (!has_graph) return td_fail(err, TREADLE_FORMAT, "no graph found: this is not an ONNX model");
    TD_TRY(td_proto_read(&r, &td_proto_model, w, m));
    return finish_model(&r, m);
}

treadle_status td_onnx_parse(const void *bytes, size_t n, const char *base_dir, const td_onnx_read_options *options,
                             td_onnx_model **out, treadle_error *err) {
    td_onnx_model *m = td_alloc_zero(1, sizeof *m);
    if (!m) return td_fail_memory(err, "an ONNX model", sizeof *m);
    td_arena_init(&m->arena);
    treadle_status status = read_model(m, bytes, n, base_dir, options, err);
    if (status == TREADLE_OK) *out = m;
    else td_onnx_close(m);
    return status;
}

static treadle_status open_model(td_onnx_model *m, const char *path, const td_onnx_read_options *options,
                                 treadle_error *err) {
    TD_TRY(td_mmap_open(path, &m->map, err));
    m->path = td_arena_strdup(&m->arena, path);
    char *dir = td_path_dir(&m->arena, path);
    if (!m->path || !dir) return td_fail_memory(err, "a path", strlen(path));
    return read_model(m, m->map.data, m->map.n, dir, options, err);
}

treadle_status td_onnx_open(const char *path, const td_onnx_read_options *options, td_onnx_model **out,
                            treadle_error *err) {
    td_onnx_model *m = td_alloc_zero(1, sizeof *m);
    if (!m) return td_fail_memory(err, "an ONNX model", sizeof *m);
    td_arena_init(&m->arena);
    treadle_status status = open_model(m, path, options, err);
    if (status == TREADLE_OK) {
        *out = m;
        return status;
    }
    td_onnx_close(m);
    td_error_file(err, path);
    return status;
}

void td_onnx_close(td_onnx_model *model) {
    if (!model) return;
    td_onnx_files_close(model->files);
    td_mmap_close(&model->map);
    td_arena_free(&model->arena);
    td_free(model);
}

/* --- lookups */

const td_onnx_attr *td_onnx_find_attr(const td_onnx_node *node, const char *name) {
    for (size_t i = 0; i < node->n_attrs; i++)
        if (td_str_is(node->attrs[i].name, name)) return &node->attrs[i];
    return NULL;
}

int64_t td_onnx_opset_version(const td_onnx_opset *opsets, size_t n_opsets, td_str domain) {
    domain = td_proto_domain(domain);
    for (size_t i = 0; i < n_opsets; i++)
        if (td_str_equal(opsets[i].domain, domain)) return opsets[i].version;
    return -1;
}

const td_onnx_function *td_onnx_find_function(const td_onnx_model *model, td_str domain, td_str name, td_str overload) {
    domain = td_proto_domain(domain);
    for (size_t i = 0; i < model->n_functions; i++) {
        const td_onnx_function *f = &model->functions[i];
        if (td_str_equal(f->name, name) && td_str_equal(f->domain, domain) && td_str_equal(f->overload, overload))
            return f;
    }
    return NULL;
}
