/* config/files.c - see files.h. */
#include "config/files.h"

#include "base/alloc.h"
#include "base/file.h"

static const td_carried_file *find_carried(const td_model_files *files, const char *name) {
    for (size_t i = 0; i < files->n_carried; i++)
        if (strcmp(files->carried[i].name, name) == 0) return &files->carried[i];
    return NULL;
}

static bool looks_beside(const td_model_files *files) { return !files->only || files->n_carried == 0; }

static treadle_status read_beside(const td_model_files *files, const char *name, size_t max_bytes, td_arena *arena,
                                  td_str *out, const char **out_path, treadle_error *err) {
    char *inside = NULL, *bytes = NULL, *shown = td_path_join(arena, files->dir, name);
    size_t n = 0;
    if (!shown) return td_fail_memory(err, "a path", 0);
    TD_TRY(td_path_find_inside(arena, files->dir, name, &inside, err));
    if (!inside) return TREADLE_OK;
    if (out_path) *out_path = shown;
    TD_TRY(td_file_read(inside, max_bytes, &bytes, &n, err));
    out->p = td_arena_strndup(arena, bytes, n);
    out->n = n;
    td_free(bytes);
    return out->p ? TREADLE_OK : td_fail_memory(err, name, n);
}

treadle_status td_model_files_read(const td_model_files *files, const char *name, size_t max_bytes, td_arena *arena,
                                   td_str *out, const char **out_path, treadle_error *err) {
    *out = (td_str){0};
    if (out_path) *out_path = NULL;
    if (looks_beside(files)) TD_TRY(read_beside(files, name, max_bytes, arena, out, out_path, err));
    const td_carried_file *carried = out->p ? NULL : find_carried(files, name);
    if (!carried) return TREADLE_OK;
    if (out_path) *out_path = td_arena_printf(arena, "%s(%s)", files->carrier, name);
    if (out_path && !*out_path) return td_fail_memory(err, "a path", 0);
    if (carried->text.n > max_bytes)
        return td_fail(err, TREADLE_LIMIT, "expected at most %zu bytes, found %zu", max_bytes, carried->text.n);
    *out = carried->text;
    return TREADLE_OK;
}

bool td_model_files_has(const td_model_files *files, const char *name) {
    if (looks_beside(files)) {
        td_arena scratch;
        td_arena_init(&scratch);
        char *path = NULL;
        treadle_status status = td_path_find_inside(&scratch, files->dir, name, &path, NULL);
        bool found = status == TREADLE_OK && path && td_path_is_file(path);
        td_arena_free(&scratch);
        if (found) return true;
    }
    return find_carried(files, name) != NULL;
}
