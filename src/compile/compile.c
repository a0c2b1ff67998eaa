/* compile/compile.c - from a checkpoint to a folder: read, resolve, build, write, put in place. */
#include "compile/compile.h"

#include "base/alloc.h"
#include "base/log.h"
#include "compile/folder.h"
#include "compile/output.h"
#include "compile/parts.h"
#include "compile/single.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static treadle_status check_options(const td_compile_options *o, treadle_error *err) {
    if (!o->source || !o->out_dir)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "a source and an output folder are needed");
    if (o->accuracy_level != 0 && o->accuracy_level != 4)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "accuracy level %d, expected 0 or 4", o->accuracy_level);
    if (o->quantize && strcmp(o->quantize, "none") != 0)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "quantize '%s', expected none", o->quantize);
    return TREADLE_OK;
}

static treadle_status write_model(td_builder *b, const td_arch_graph *row, const td_folder *folder) {
    const td_onnx_opset opsets[] = {{{NULL, 0}, row->opset}, {{"com.microsoft", 13}, 1}, {{"treadle", 7}, 1}};
    td_graph *g = &b->graph;
    td_buf bytes = {0};
    bool functions = g->functions.n > 0;
    td_onnx_model model = {
        .ir_version = row->ir_version,
        .producer_name = TD_STR(TD_PRODUCER),
        .opsets = opsets,
        .n_opsets = functions ? 3 : 2,
        .functions = g->functions.items,
        .n_functions = g->functions.n,
        .graph = {.name = td_str_from(row->file),
                  .nodes = td_graph_nodes(g),
                  .n_nodes = g->nodes.n,
                  .initializers = g->initializers.items,
                  .n_initializers = g->initializers.n,
                  .inputs = g->inputs.items,
                  .n_inputs = g->inputs.n,
                  .outputs = g->outputs.items,
                  .n_outputs = g->outputs.n},
    };
    td_str name = td_graph_name(g, "%s.onnx", row->file);
    char *path = name.p ? td_folder_file(folder, name.p) : NULL;
    if (!model.graph.nodes || !path) return td_fail_memory(b->err, "the model", 0);
    treadle_status status = td_onnx_write(&model, &bytes, b->err);
    if (status == TREADLE_OK) status = td_file_write(path, bytes.p, bytes.n, b->err);
    td_buf_free(&bytes);
    return status;
}

static treadle_status build_graph(td_builder *b, const td_arch_graph *row, const td_folder *folder) {
    td_weights *w = &b->weights;
    w->location = td_graph_name(&b->graph, "%s.onnx.data", row->file);
    char *path = w->location.p ? td_folder_file(folder, w->location.p) : NULL;
    if (!path) return td_fail_memory(b->err, "a path", 0);
    w->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (w->fd < 0) return td_fail(b->err, TREADLE_IO, "cannot make '%s': %s", path, strerror(errno));
    treadle_status status = row->build(b);
    if (close(w->fd) != 0 && status == TREADLE_OK)
        status = td_fail(b->err, TREADLE_IO, "cannot write '%s': %s", path, strerror(errno));
    return status == TREADLE_OK ? write_model(b, row, folder) : status;
}

static treadle_status build_folder(const td_compile_options *options, td_arena *arena, const td_folder *folder,
                                   const td_model *model, treadle_error *err) {
    const td_output output = {options, model, arena, folder};
    uint64_t done = 0;
    for (size_t i = 0; i < model->arch->n_graphs; i++) {
        td_builder b = {.model = *model, .options = options, .err = err};
        td_graph_init(&b.graph, arena);
        b.weights = (td_weights){.graph = &b.graph, .options = options, .fd = -1, .done = done, .err = err};
        b.weights.total = td_tensor_set_bytes(model->checkpoint->source);
        treadle_status status = build_graph(&b, &model->arch->graphs[i], folder);
        done = b.weights.done;
        td_graph_discard(&b.graph);
        if (status != TREADLE_OK) return status;
    }
    if (options->progress && !options->progress(options->ctx, 1, 1, "files")) /* some tensors may be of no use */
        return td_fail(err, TREADLE_CANCELLED, "the build was stopped");
    return td_output_text_files(&output, err);
}

static treadle_status compile_checkpoint(const td_compile_options *options, const td_checkpoint *checkpoint,
                                         td_arena *arena, treadle_error *err) {
    td_model model;
    td_folder folder = {0};
    TD_TRY(td_model_resolve(checkpoint, arena, &model, err));
    treadle_status status = td_folder_begin(arena, options->out_dir, options->keep_existing, &folder, err);
    if (status == TREADLE_OK) status = build_folder(options, arena, &folder, &model, err);
    if (status == TREADLE_OK && options->single_file) status = td_single_file(&folder, err);
    if (status == TREADLE_OK) status = td_folder_commit(&folder, err);
    if (status != TREADLE_OK) td_folder_abandon(&folder);
    return status;
}

treadle_status td_compile(const td_compile_options *options, treadle_error *err) {
    td_checkpoint checkpoint;
    td_arena arena;
    TD_TRY(check_options(options, err));
    TD_TRY(td_checkpoint_open(options->source, &checkpoint, err));
    td_arena_init(&arena);
    treadle_status status = compile_checkpoint(options, &checkpoint, &arena, err);
    if (status != TREADLE_OK && (status == TREADLE_FORMAT || status == TREADLE_UNSUPPORTED))
        td_error_file(err, options->source);
    td_arena_free(&arena);
    td_checkpoint_close(&checkpoint);
    return status;
}
