/* compile/hf.c - see hf.h. */
#include "compile/hf.h"

#include "base/alloc.h"
#include "compile/safetensors.h"

#include <stdio.h>

enum { MAX_TEXT_BYTES = 256 << 20, MAX_FILES = 4096 };

static const char single_file[] = "model.safetensors", index_file[] = "model.safetensors.index.json";

static bool holds(const char *dir, const char *name) {
    char path[4096]; /* PATH_MAX: a longer one cannot be opened */
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    return n > 0 && (size_t)n < sizeof path && td_path_is_file(path);
}

bool td_hf_is_checkpoint(const char *dir) {
    return holds(dir, "config.json") && (holds(dir, single_file) || holds(dir, index_file));
}

/* --- JSON files */

treadle_status td_hf_json(td_hf *hf, const char *name, td_json **out, treadle_error *err) {
    static const td_json_options options = {.allow_duplicate_keys = true, .allow_nonfinite = true};
    char *path, *text;
    size_t n;
    *out = NULL;
    TD_TRY(td_path_find_inside(&hf->arena, hf->dir, name, &path, err));
    if (!path) return TREADLE_OK;
    TD_TRY(td_file_read(path, MAX_TEXT_BYTES, &text, &n, err));
    if (!td_vec_push(&hf->texts, text)) {
        td_free(text);
        return td_fail_memory(err, name, n);
    }
    treadle_status status = td_json_parse((td_str){text, n}, &options, &hf->arena, out, err);
    if (status == TREADLE_OK && (*out)->kind != TD_JSON_OBJECT)
        status = td_fail(err, TREADLE_FORMAT, "expected an object, found %s", td_json_kind_name((*out)->kind));
    if (status != TREADLE_OK) td_error_file(err, path);
    return status;
}

/* --- weights */

static treadle_status read_weights(td_hf *hf, td_str name, treadle_error *err) {
    char *path;
    td_mmap *map = &hf->maps[hf->n_maps];
    TD_TRY(td_path_resolve_inside(&hf->arena, hf->dir, name, &path, err));
    TD_TRY(td_mmap_open(path, map, err));
    hf->n_maps++;
    treadle_status status = td_safetensors_read(map->data, map->n, &hf->arena, &hf->source, err);
    if (status != TREADLE_OK) td_error_file(err, path);
    return status;
}

/* The distinct files of {"weight_map": {tensor: file}}. */
static treadle_status list_files(const td_json *weight_map, td_str *files, size_t *n_files, treadle_error *err) {
    td_map seen = {0};
    treadle_status status = TREADLE_OK;
    for (const td_json *v = weight_map->first; v && status == TREADLE_OK; v = v->next) {
        if (v->kind != TD_JSON_STRING)
            status = td_fail(err, TREADLE_FORMAT, "tensor '%.*s' in 'weight_map': expected a file name, found %s",
                             (int)TD_MIN(v->key.n, (size_t)200), v->key.p, td_json_kind_name(v->kind));
        else if (td_map_get(&seen, v->string, NULL)) continue;
        else if (*n_files == MAX_FILES)
            status = td_fail(err, TREADLE_LIMIT, "'weight_map' names more than %d files", MAX_FILES);
        else if (!td_map_set(&seen, v->string, 1)) status = td_fail_memory(err, "file names", seen.n);
        else files[(*n_files)++] = v->string;
    }
    td_map_free(&seen);
    return status;
}

static treadle_status read_sharded(td_hf *hf, const td_json *index, treadle_error *err) {
    const td_json *weight_map = td_json_get(index, "weight_map");
    if (!weight_map || weight_map->kind != TD_JSON_OBJECT)
        return td_fail(err, TREADLE_FORMAT, "%s: expected an object 'weight_map'", index_file);
    size_t n = TD_MIN((size_t)weight_map->n, (size_t)MAX_FILES), n_files = 0;
    td_str *files = TD_ARENA_ARRAY(&hf->arena, td_str, n);
    hf->maps = TD_ARENA_ARRAY(&hf->arena, td_mmap, n);
    if (!files || !hf->maps) return td_fail_memory(err, "file names", n * sizeof *files);
    TD_TRY(list_files(weight_map, files, &n_files, err));
    for (size_t i = 0; i < n_files; i++) TD_TRY(read_weights(hf, files[i], err));
    for (const td_json *v = weight_map->first; v; v = v->next)
        if (!td_tensor_set_find(&hf->source, v->key))
            return td_fail(err, TREADLE_FORMAT, "%s: tensor '%.*s' is in none of the files", index_file,
                           (int)TD_MIN(v->key.n, (size_t)200), v->key.p);
    return TREADLE_OK;
}

static treadle_status read_all(td_hf *hf, treadle_error *err) {
    td_json *index;
    char *single;
    TD_TRY(td_hf_json(hf, "config.json", &hf->config, err));
    if (!hf->config) return td_fail(err, TREADLE_NOT_FOUND, "the folder '%s' holds no config.json", hf->dir);
    TD_TRY(td_path_find_inside(&hf->arena, hf->dir, single_file, &single, err));
    if (!single) {
        TD_TRY(td_hf_json(hf, index_file, &index, err));
        if (index) return read_sharded(hf, index, err);
        return td_fail(err, TREADLE_NOT_FOUND, "the folder '%s' holds neither %s nor %s", hf->dir, single_file,
                       index_file);
    }
    hf->maps = TD_ARENA_NEW(&hf->arena, td_mmap);
    if (!hf->maps) return td_fail_memory(err, "a file", sizeof *hf->maps);
    return read_weights(hf, td_str_from(single_file), err);
}

treadle_status td_hf_open(const char *dir, td_hf **out, treadle_error *err) {
    td_hf *hf = td_alloc_zero(1, sizeof *hf);
    if (!hf) return td_fail_memory(err, "a checkpoint", sizeof *hf);
    hf->dir = td_arena_strdup(&hf->arena, dir);
    treadle_status status = hf->dir ? read_all(hf, err) : td_fail_memory(err, "a path", strlen(dir));
    if (status == TREADLE_OK) *out = hf;
    else td_hf_close(hf);
    return status;
}

void td_hf_close(td_hf *hf) {
    if (!hf) return;
    for (size_t i = 0; i < hf->n_maps; i++) td_mmap_close(&hf->maps[i]);
    for (size_t i = 0; i < hf->texts.n; i++) td_free(hf->texts.items[i]);
    td_vec_free(&hf->texts);
    td_tensor_set_discard(&hf->source);
    td_arena_free(&hf->arena);
    td_free(hf);
}
