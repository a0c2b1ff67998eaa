/* light/packs.c - see packs.h. */
#include "light/packs.h"

#include "base/alloc.h"

typedef struct external_files {
    td_pack_key *key;
    const char *folder;
    td_arena arena;
    td_map seen;
} external_files;

static bool add_external(void *ctx, const td_onnx_tensor *t) {
    external_files *f = ctx;
    if (!t->is_external || td_map_get(&f->seen, t->location, NULL)) return true;
    char *name = td_arena_strndup(&f->arena, t->location.p, t->location.n);
    char *path = name ? td_path_join(&f->arena, f->folder, name) : NULL;
    return path && td_map_set(&f->seen, t->location, 1) && td_pack_key_add_file(f->key, path, NULL) == TREADLE_OK;
}

/* The model's identity: its file, the files of its weights. false: it has none that outlives this process. */
static bool model_key(const td_onnx_model *model, td_pack_key *key) {
    external_files files = {.key = key};
    if (!model->path) return false;
    *key = td_pack_key_start();
    files.folder = td_path_dir(&files.arena, model->path);
    bool ok = files.folder && td_pack_key_add_file(key, model->path, NULL) == TREADLE_OK &&
              td_onnx_each_tensor(model, add_external, &files);
    td_map_free(&files.seen);
    td_arena_free(&files.arena);
    return ok;
}

static bool add_bytes(void *ctx, const td_onnx_tensor *t) {
    size_t *sum = ctx;
    return !TD_ADD_OVERFLOWS(*sum, t->data_bytes, sum) && !TD_ADD_OVERFLOWS(*sum, (size_t)65536, sum);
}

/* Address space for all that may be packed: some layouts pad, none doubles. */
static size_t reserve_for(const td_onnx_model *model) {
    size_t sum = (size_t)64 << 20;
    return td_onnx_each_tensor(model, add_bytes, &sum) ? sum : 0;
}

void td_packs_begin(td_packs *packs, const td_onnx_model *model) {
    td_pack_key key;
    size_t reserve = reserve_for(model);
    if (!model_key(model, &key)) return;
    packs->on_disk = td_pack_cache_open(&key, &packs->file);
    if (packs->on_disk) packs->mode = TD_PACKS_READING;
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

/* What makes packs equal: what they are called, what the node does, and which constants it reads. false: nothing to
 * compare by, or no memory (out->failed). */
static bool sharing_key(const td_graph *g, const td_node *node, const char *what, td_buf *out) {
    td_buf_text(out, what);
    td_buf_char(out, '\n');
    for (size_t i = 0; i < node->n_in; i++) {
        bool constant = node->in[i] != TD_NO_VALUE && td_graph_is_constant(g, node->in[i]);
        td_buf_char(out, constant ? 'c' : '-');
        if (!constant) continue;
        const td_tensor *t = &td_graph_value(g, node->in[i])->type.tensor;
        td_buf_append(out, &t->data, sizeof t->data);
        td_buf_append(out, &t->dtype, sizeof t->dtype);
        td_buf_append(out, &t->shape.rank, sizeof t->shape.rank);
        td_buf_append(out, t->shape.dims, (size_t)t->shape.rank * sizeof t->shape.dims[0]);
    }
    return td_node_append_key(node, out) && !out->failed;
}

/* For nodes to come. false: out of memory. */
static bool share(td_packs *packs, const td_graph *graph, const td_node *node, const char *what, const void *meta,
                  size_t meta_bytes, const void *data, size_t bytes) {
    td_buf key = {0};
    td_shared_pack pack = {.data = data, .bytes = bytes};
    if (meta_bytes) memcpy(pack.meta, meta, meta_bytes);
    bool comparable = sharing_key(graph, node, what, &key), ok = !key.failed;
    if (comparable) {
        td_str kept = td_arena_str(&packs->keys, td_buf_view(&key));
        ok = kept.p && td_vec_push(&packs->all, pack) && td_map_set(&packs->shared, kept, packs->all.n - 1);
    }
    td_buf_free(&key);
    return ok;
}

static const td_shared_pack *find_shared(const td_packs *packs, const td_graph *graph, const td_node *node,
                                         const char *what, bool *no_memory) {
    td_buf key = {0};
    uint64_t at;
    bool found =
        packs->all.n && sharing_key(graph, node, what, &key) && td_map_get(&packs->shared, td_buf_view(&key), &at);
    *no_memory = key.failed;
    td_buf_free(&key);
    return found ? &packs->all.items[at] : NULL;
}

const void *td_packs_find(td_packs *packs, const td_graph *graph, const td_node *node, const char *what, void *meta,
                          size_t meta_bytes, size_t *bytes, bool *no_memory) {
    td_buf name = {0};
    const td_pack_entry *entry = NULL;
    *no_memory = false;
    if (meta_bytes > TD_PACK_META_BYTES) return NULL;
    const td_shared_pack *known = find_shared(packs, graph, node, what, no_memory);
    if (known) {
        if (meta_bytes) memcpy(meta, known->meta, meta_bytes);
        *bytes = known->bytes;
        return known->data;
    }
    if (packs->mode != TD_PACKS_READING || *no_memory) return NULL;
    if (pack_name(graph, node, what, &name)) entry = td_pack_file_find(&packs->file, td_buf_view(&name));
    else *no_memory = true;
    td_buf_free(&name);
    if (!entry) return NULL;
    if (meta_bytes) memcpy(meta, entry->meta, meta_bytes);
    *bytes = (size_t)entry->bytes;
    const void *data = td_pack_file_data(&packs->file, entry);
    *no_memory = !share(packs, graph, node, what, entry->meta, meta_bytes, data, *bytes);
    return data;
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
        if (status == TREADLE_OK)
            return share(packs, graph, node, what, meta, meta_bytes, *out, bytes)
                       ? status
                       : td_fail_memory(err, "packed weights", 0);
    }
    void *block = td_alloc_aligned(bytes);
    if (!block || !td_vec_push(&packs->blocks, block)) {
        td_free_aligned(block);
        return td_fail_memory(err, "packed weights", bytes);
    }
    memset(block, 0, bytes);
    packs->bytes += bytes;
    *out = block;
    return share(packs, graph, node, what, meta, meta_bytes, block, bytes) ? TREADLE_OK
                                                                           : td_fail_memory(err, "packed weights", 0);
}

void td_packs_commit(td_packs *packs) {
    if (packs->mode != TD_PACKS_WRITING) return;
    td_pack_writer_commit(&packs->writer, &packs->file, &packs->on_disk);
    packs->mode = TD_PACKS_READING;
}

void td_packs_drop(const td_packs *packs) {
    if (packs->mode == TD_PACKS_READING && packs->on_disk) td_mmap_drop(packs->file.map.data, packs->file.map.n);
}

void td_packs_free(td_packs *packs) {
    for (size_t i = 0; i < packs->blocks.n; i++) td_free_aligned(packs->blocks.items[i]);
    td_vec_free(&packs->blocks);
    td_vec_free(&packs->all);
    td_map_free(&packs->shared);
    td_arena_free(&packs->keys);
    if (packs->mode == TD_PACKS_WRITING) td_pack_writer_abort(&packs->writer);
    if (packs->mode == TD_PACKS_READING) td_pack_file_close(&packs->file);
    *packs = (td_packs){0};
}
