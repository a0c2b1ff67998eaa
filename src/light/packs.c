/* light/packs.c - see packs.h. */
#include "light/packs.h"

#include "base/alloc.h"

/* The model's identity: its file, the files of its weights. false: it has none that outlives this process. */
static bool model_key(const td_onnx_model *model, td_pack_key *key) {
    if (!model->path) return false;
    td_arena arena;
    td_map seen = {0};
    td_arena_init(&arena);
    *key = td_pack_key_start();
    bool ok = td_pack_key_add_file(key, model->path, NULL) == TREADLE_OK;
    char *folder = ok ? td_path_dir(&arena, model->path) : NULL;
    for (size_t i = 0; folder && ok && i < model->graph.n_initializers; i++) {
        const td_onnx_tensor *t = &model->graph.initializers[i];
        if (!t->is_external || td_map_get(&seen, t->location, NULL)) continue;
        char *name = td_arena_strndup(&arena, t->location.p, t->location.n);
        char *path = name ? td_path_join(&arena, folder, name) : NULL;
        ok = path && td_map_set(&seen, t->location, 1) && td_pack_key_add_file(key, path, NULL) == TREADLE_OK;
    }
    td_map_free(&seen);
    td_arena_free(&arena);
    return ok && folder;
}

/* Address space for all that may be packed: some layouts pad, none doubles. */
static size_t reserve_for(const td_onnx_model *model) {
    size_t sum = (size_t)64 << 20;
    for (size_t i = 0; i < model->graph.n_initializers; i++) {
        size_t bytes = model->graph.initializers[i].data_bytes;
        if (TD_ADD_OVERFLOWS(sum, bytes, &sum) || TD_ADD_OVERFLOWS(sum, bytes + 65536, &sum)) return 0;
    }
    return sum;
}

void td_packs_begin(td_packs *packs, const td_onnx_model *model) {
    td_pack_key key;
    size_t reserve = reserve_for(model);
    if (!model_key(model, &key)) return;
    if (td_pack_cache_open(&key, &packs->file)) packs->mode = TD_PACKS_READING;
    else if (reserve && td_pack_writer_begin(&packs->writer, &key, reserve, NULL) == TREADLE_OK)
        packs->mode = TD_PACKS_WRITING;
}

/* "what\nconstant\nconstant\noutput" */
static bool pack_name(const td_graph *g, const td_node *node, const char *what, td_buf *out) {
    td_buf_text(out, what);
    for (size_t i = 0; i < node->n_in; i++) {
        if (node->in[i] == TD_NO_VALUE || !td_graph_is_constant(g, node->in[i])) continue;
        td_buf_char(out, '\n');
        td_buf_str(out, td_graph_value(g, node->in[i])->name);
    }
    td_buf_char(out, '\n');
    if (node->n_out && node->out[0] != TD_NO_VALUE) td_buf_str(out, td_graph_value(g, node->out[0])->name);
    return !out->failed;
}

const void *td_packs_find(td_packs *packs, const td_graph *graph, const td_node *node, const char *what, void *meta,
                          size_t meta_bytes, size_t *bytes) {
    td_buf name = {0};
    const td_pack_entry *entry = NULL;
    if (packs->mode != TD_PACKS_READING || meta_bytes > TD_PACK_META_BYTES) return NULL;
    if (pack_name(graph, node, what, &name)) entry = td_pack_file_find(&packs->file, td_buf_view(&name));
    td_buf_free(&name);
    if (!entry) return NULL;
    if (meta_bytes) memcpy(meta, entry->meta, meta_bytes);
    *bytes = (size_t)entry->bytes;
    return td_pack_file_data(&packs->file, entry);
}

treadle_status td_packs_add(td_packs *packs, const td_graph *graph, const td_node *node, const char *what,
                            const void *meta, size_t meta_bytes, size_t bytes, void **out, treadle_error *err) {
    if (packs->mode == TD_PACKS_WRITING) {
        td_buf name = {0};
        treadle_status status =
            pack_name(graph, node, what, &name)
                ? td_pack_writer_add(&packs->writer, td_buf_view(&name), meta, meta_bytes, bytes, out, NULL)
                : TREADLE_OUT_OF_MEMORY;
        td_buf_free(&name);
        if (status == TREADLE_OK) return status;
    }
    void *block = td_alloc_aligned(bytes);
    if (!block || !td_vec_push(&packs->blocks, block)) {
        td_free_aligned(block);
        return td_fail_memory(err, "packed weights", bytes);
    }
    memset(block, 0, bytes);
    packs->bytes += bytes;
    *out = block;
    return TREADLE_OK;
}

void td_packs_commit(td_packs *packs) {
    if (packs->mode != TD_PACKS_WRITING) return;
    td_pack_writer_commit(&packs->writer, &packs->file, NULL);
    packs->mode = TD_PACKS_READING;
}

void td_packs_free(td_packs *packs) {
    for (size_t i = 0; i < packs->blocks.n; i++) td_free_aligned(packs->blocks.items[i]);
    td_vec_free(&packs->blocks);
    if (packs->mode == TD_PACKS_WRITING) td_pack_writer_abort(&packs->writer);
    if (packs->mode == TD_PACKS_READING) td_pack_file_close(&packs->file);
    *packs = (td_packs){0};
}
