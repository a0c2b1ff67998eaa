/* compile/folder.c - see folder.h. */
#include "compile/folder.h"

#include "base/file.h"
#include "onnx/model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const td_tokenizer_files[] = {"tokenizer.json",
                                          "tokenizer_config.json",
                                          "special_tokens_map.json",
                                          "added_tokens.json",
                                          "chat_template.json",
                                          "chat_template.jinja",
                                          "tokenizer.model",
                                          "vocab.json",
                                          "merges.txt",
                                          "vocab.txt",
                                          "normalizer.json",
                                          NULL};

/* What else the compiler writes, and graphs. */
static const char *const own_files[] = {"genai_config.json", "generation_config.json", "preprocessor_config.json"};
/* Stems of its graphs: STEM.onnx and STEM.onnx.data. */
static const char *const own_graphs[] = {"model", "encoder", "decoder"};

static bool is_own(const char *name) {
    for (size_t i = 0; i < TD_COUNT(own_files); i++)
        if (strcmp(name, own_files[i]) == 0) return true;
    for (size_t i = 0; td_tokenizer_files[i]; i++)
        if (strcmp(name, td_tokenizer_files[i]) == 0) return true;
    for (size_t i = 0; i < TD_COUNT(own_graphs); i++) {
        size_t n = strlen(own_graphs[i]);
        if (strncmp(name, own_graphs[i], n) != 0) continue;
        if (strcmp(name + n, ".onnx") == 0 || strcmp(name + n, ".onnx.data") == 0) return true;
    }
    return false;
}

static bool is_our_graph(td_arena *arena, const char *dir, const char *stem, bool *exists) {
    const td_onnx_read_options options = {.data = TD_ONNX_DATA_SMALL};
    td_onnx_model *model;
    char *path = td_arena_printf(arena, "%s/%s.onnx", dir, stem);
    if (!path || !td_path_is_file(path)) return false;
    *exists = true;
    if (td_onnx_open(path, &options, &model, NULL) != TREADLE_OK) return false;
    bool ours = td_str_is(model->producer_name, TD_PRODUCER);
    td_onnx_close(model);
    return ours;
}

/* There are graphs, and all are ours. */
static bool made_by_treadle(td_arena *arena, const char *dir) {
    bool any = false;
    for (size_t i = 0; i < TD_COUNT(own_graphs); i++) {
        bool exists = false;
        if (is_our_graph(arena, dir, own_graphs[i], &exists)) any = true;
        else if (exists) return false;
    }
    return any;
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

/* Through a link the folder that it leads to is written; the link stays. */
static treadle_status follow_link(td_arena *arena, const char *path, char **out, treadle_error *err) {
    struct stat info;
    if (lstat(path, &info) != 0 || !S_ISLNK(info.st_mode)) return TREADLE_OK;
    char *real = realpath(path, NULL);
    if (!real)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "the output '%s' is a link that cannot be followed: %s", path,
                       strerror(errno));
    *out = td_arena_strdup(arena, real);
    free(real);
    return *out ? TREADLE_OK : td_fail_memory(err, "a path", 0);
}

/* A folder of a name that was free, beside the final one; two compilers may be at it. */
static treadle_status make_aside(td_folder *f, treadle_error *err) {
    for (int i = 0; i < 10000; i++) {
        f->temp_path = td_arena_printf(f->arena, "%s.tmp-%ld-%d", f->final_path, (long)getpid(), i);
        f->old_path = td_arena_printf(f->arena, "%s-old", f->temp_path ? f->temp_path : "");
        if (!f->temp_path || !f->old_path) {
            f->temp_path = NULL;
            return td_fail_memory(err, "a path", 0);
        }
        if (mkdir(f->temp_path, 0777) == 0) return TREADLE_OK;
        if (errno != EEXIST) break;
    }
    td_fail(err, TREADLE_IO, "cannot make the folder '%s': %s", f->temp_path, strerror(errno));
    f->temp_path = NULL; /* not ours: not to be removed */
    return TREADLE_IO;
}

treadle_status td_folder_begin(td_arena *arena, const char *path, bool keep_existing, td_folder *out,
                               treadle_error *err) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    *out = (td_folder){.arena = arena, .final_path = td_arena_strndup(arena, path, n)};
    if (!out->final_path) return td_fail_memory(err, "a path", n);
    if (n == 0 || strcmp(td_path_base(out->final_path), "..") == 0 || strcmp(td_path_base(out->final_path), ".") == 0)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "'%s' cannot be the output folder; give it a name", path);
    TD_TRY(follow_link(arena, out->final_path, &out->final_path, err));
    TD_TRY(check_replaceable(arena, out->final_path, keep_existing, err));
    char *parent = td_path_dir(arena, out->final_path);
    if (!parent) return td_fail_memory(err, "a path", n);
    TD_TRY(td_make_dirs(parent, err));
    return make_aside(out, err);
}

char *td_folder_file(const td_folder *f, const char *name) { return td_path_join(f->arena, f->temp_path, name); }

treadle_status td_folder_commit(td_folder *f, treadle_error *err) {
    int cause = 0;
    for (int tries = 0; tries < 100; tries++) { /* another compiler may put its folder there at any moment */
        if (rename(f->temp_path, f->final_path) == 0) return TREADLE_OK; /* new, or over an empty folder */
        cause = errno;
        if (cause != ENOTEMPTY && cause != EEXIST) break;
        if (rename(f->final_path, f->old_path) != 0) {
            cause = errno;
            if (cause == ENOENT) continue;
            break;
        }
        if (rename(f->temp_path, f->final_path) == 0) {
            (void)td_remove_tree(f->old_path, NULL); /* what is left of it can only be rubbish */
            return TREADLE_OK;
        }
        cause = errno;
        if (rename(f->old_path, f->final_path) != 0) (void)td_remove_tree(f->old_path, NULL); /* there is a newer one */
    }
    return td_fail(err, TREADLE_IO, "cannot put the folder '%s' in place: %s", f->final_path, strerror(cause));
}

void td_folder_abandon(td_folder *f) {
    if (f->temp_path) (void)td_remove_tree(f->temp_path, NULL);
}
