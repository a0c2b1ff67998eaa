/* compile/folder.c - see folder.h. */
#include "compile/folder.h"

#include "base/file.h"
#include "onnx/model.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* All that the compiler writes. */
static const char *const own_files[] = {"model.onnx", "model.onnx.data", "genai_config.json", "tokenizer.json",
                                        "tokenizer_config.json"};

static bool is_own(const char *name) {
    for (size_t i = 0; i < TD_COUNT(own_files); i++)
        if (strcmp(name, own_files[i]) == 0) return true;
    return false;
}

static bool made_by_treadle(td_arena *arena, const char *dir) {
    const td_onnx_read_options options = {.skip_external = true};
    td_onnx_model *model;
    char *path = td_path_join(arena, dir, "model.onnx");
    if (!path || !td_path_is_file(path) || td_onnx_open(path, &options, &model, NULL) != TREADLE_OK) return false;
    bool ours = td_str_is(model->producer_name, TD_PRODUCER);
    td_onnx_close(model);
    return ours;
}

static treadle_status check_replaceable(td_arena *arena, const char *dir, bool keep_existing, treadle_error *err) {
    char **names;
    size_t n;
    if (!td_path_exists(dir)) return TREADLE_OK;
    if (!td_path_is_dir(dir))
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "the output '%s' exists and is no folder", dir);
    TD_TRY(td_list_dir(arena, dir, &names, &n, err));
    if (n > 0 && keep_existing)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "the output folder '%s' is not empty", dir);
    for (size_t i = 0; i < n; i++)
        if (!is_own(names[i]))
            return td_fail(
                err, TREADLE_INVALID_ARGUMENT,
                "the output folder '%s' holds '%s', which treadle did not make; choose an empty or new folder", dir,
                names[i]);
    if (n > 0 && !made_by_treadle(arena, dir))
        return td_fail(
            err, TREADLE_INVALID_ARGUMENT,
            "the output folder '%s' is not empty and treadle did not make what it holds; choose an empty or new folder",
            dir);
    return TREADLE_OK;
}

treadle_status td_folder_begin(td_arena *arena, const char *path, bool keep_existing, td_folder *out,
                               treadle_error *err) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    long pid = (long)getpid();
    *out = (td_folder){.arena = arena, .final_path = td_arena_strndup(arena, path, n)};
    out->temp_path = td_arena_printf(arena, "%.*s.tmp-%ld", (int)n, path, pid);
    out->old_path = td_arena_printf(arena, "%.*s.tmp-%ld-old", (int)n, path, pid);
    if (!out->final_path || !out->temp_path || !out->old_path) return td_fail_memory(err, "a path", n);
    if (n == 0 || strcmp(td_path_base(out->final_path), "..") == 0 || strcmp(td_path_base(out->final_path), ".") == 0)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "'%s' cannot be the output folder; give it a name", path);
    TD_TRY(check_replaceable(arena, out->final_path, keep_existing, err));
    char *parent = td_path_dir(arena, out->final_path);
    if (!parent) return td_fail_memory(err, "a path", n);
    TD_TRY(td_make_dirs(parent, err));
    TD_TRY(td_remove_tree(out->temp_path, err));
    if (mkdir(out->temp_path, 0777) != 0)
        return td_fail(err, TREADLE_IO, "cannot make the folder '%s': %s", out->temp_path, strerror(errno));
    return TREADLE_OK;
}

char *td_folder_file(const td_folder *f, const char *name) { return td_path_join(f->arena, f->temp_path, name); }

treadle_status td_folder_commit(td_folder *f, treadle_error *err) {
    if (rename(f->temp_path, f->final_path) == 0) return TREADLE_OK; /* new, or over an empty folder */
    bool moved = (errno == ENOTEMPTY || errno == EEXIST) && rename(f->final_path, f->old_path) == 0;
    if (moved && rename(f->temp_path, f->final_path) == 0) {
        (void)td_remove_tree(f->old_path, NULL); /* what is left of it can only be rubbish */
        return TREADLE_OK;
    }
    int cause = errno;
    if (moved) (void)rename(f->old_path, f->final_path);
    return td_fail(err, TREADLE_IO, "cannot put the folder '%s' in place: %s", f->final_path, strerror(cause));
}

void td_folder_abandon(td_folder *f) {
    if (f->temp_path) (void)td_remove_tree(f->temp_path, NULL);
}
