/* compile/single.c - see single.h. */
#include "compile/single.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "onnx/model.h"

enum { TEXT_MAX_BYTES = 512 << 20 };

static const char graph_name[] = "model.onnx";

static bool is_graph(td_str name) { return td_str_ends(name, TD_STR(".onnx")); }
static bool is_data(td_str name) { return td_str_ends(name, TD_STR(".onnx.data")); }

/* Text files of the folder as metadata after what the model has already. The texts are in the arena. */
static treadle_status read_texts(const td_folder *folder, char **names, size_t n, td_onnx_model *model,
                                 treadle_error *err) {
    td_onnx_prop *props = TD_ARENA_ARRAY(folder->arena, td_onnx_prop, model->n_props + n);
    size_t k = model->n_props;
    if (!props) return td_fail_memory(err, "metadata", n);
    if (k) memcpy(props, model->props, k * sizeof *props);
    for (size_t i = 0; i < n; i++) {
        td_str name = td_str_from(names[i]);
        char *bytes = NULL, *path = td_folder_file(folder, names[i]);
        size_t size = 0;
        if (is_graph(name) || is_data(name)) continue;
        if (!path) return td_fail_memory(err, "a path", 0);
        TD_TRY(td_file_read(path, TEXT_MAX_BYTES, &bytes, &size, err));
        char *text = td_arena_strndup(folder->arena, bytes, size);
        td_free(bytes);
        if (!text) return td_fail_memory(err, names[i], size);
        props[k++] = (td_onnx_prop){name, {text, size}};
    }
    model->props = props;
    model->n_props = k;
    return TREADLE_OK;
}

/* All weights into the file; if that is too much for it, they stay where they are. */
static treadle_status write_graph(const td_folder *folder, td_onnx_model *model, const char *path, bool *inlined,
                                  treadle_error *err) {
    td_onnx_graph *g = &model->graph;
    const td_onnx_tensor *outside = g->initializers;
    td_onnx_tensor *inside = TD_ARENA_ARRAY(folder->arena, td_onnx_tensor, g->n_initializers);
    treadle_error too_large = {0};
    if (!inside) return td_fail_memory(err, "initializers", g->n_initializers);
    for (size_t i = 0; i < g->n_initializers; i++) {
        inside[i] = outside[i];
        inside[i].is_external = false;
    }
    g->initializers = inside;
    treadle_status status = td_onnx_write_file(model, path, &too_large);
    *inlined = status == TREADLE_OK;
    g->initializers = outside;
    if (status == TREADLE_LIMIT) return td_onnx_write_file(model, path, err);
    if (status != TREADLE_OK && err) *err = too_large;
    return status;
}

static treadle_status remove_file(const td_folder *folder, const char *name, treadle_error *err) {
    char *path = td_folder_file(folder, name);
    if (!path) return td_fail_memory(err, "a path", 0);
    return unlink(path) == 0 ? TREADLE_OK : td_fail(err, TREADLE_IO, "cannot remove '%s': %s", path, strerror(errno));
}

/* The new graph takes the old one's place, and what it carries goes. */
static treadle_status put_in_place(const td_folder *folder, const char *made, char **names, size_t n, bool inlined,
                                   treadle_error *err) {
    char *path = td_folder_file(folder, graph_name);
    if (!path) return td_fail_memory(err, "a path", 0);
    if (rename(made, path) != 0) return td_fail(err, TREADLE_IO, "cannot write '%s': %s", path, strerror(errno));
    for (size_t i = 0; i < n; i++) {
        td_str name = td_str_from(names[i]);
        if (is_graph(name) || (is_data(name) && !inlined)) continue;
        TD_TRY(remove_file(folder, names[i], err));
    }
    return TREADLE_OK;
}

treadle_status td_single_file(const td_folder *folder, treadle_error *err) {
    char **names, *path = td_folder_file(folder, graph_name), *made = td_folder_file(folder, "model.onnx.new");
    size_t n, n_graphs = 0;
    td_onnx_model *model;
    bool inlined = false;
    if (!path || !made) return td_fail_memory(err, "a path", 0);
    TD_TRY(td_list_dir(folder->arena, folder->temp_path, &names, &n, err));
    for (size_t i = 0; i < n; i++) n_graphs += is_graph(td_str_from(names[i]));
    if (n_graphs != 1)
        return td_fail(err, TREADLE_UNSUPPORTED, "a single file holds one graph, this checkpoint becomes %zu",
                       n_graphs);
    TD_TRY(td_onnx_open(path, NULL, &model, err));
    treadle_status status = read_texts(folder, names, n, model, err);
    if (status == TREADLE_OK) status = write_graph(folder, model, made, &inlined, err);
    td_onnx_close(model);
    return status == TREADLE_OK ? put_in_place(folder, made, names, n, inlined, err) : status;
}
