/* tools/treadle/cmd_cache.c - `treadle cache`: what is kept on disk, and removing it. */
#include "command.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/file.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

typedef struct cache_args {
    bool json;
} cache_args;

static const td_option cache_options[] = {
    {"json", 0, OPTION_FLAG, NULL, "print a JSON object", offsetof(cache_args, json)},
};

/* Bytes of a file, or of all files below a folder. Links count as nothing. */
static int64_t disk_bytes(td_arena *arena, const char *path) {
    treadle_error error;
    struct stat st;
    char **names;
    size_t n;
    int64_t sum = 0;

    if (lstat(path, &st) != 0 || S_ISLNK(st.st_mode)) return 0;
    if (!S_ISDIR(st.st_mode)) return st.st_size;
    if (td_list_dir(arena, path, &names, &n, &error) != TREADLE_OK) return 0;
    for (size_t i = 0; i < n; i++) {
        char *below = td_path_join(arena, path, names[i]);
        if (below) sum += disk_bytes(arena, below);
    }
    return sum;
}

/* The parts of the cache: compiled models, packed weights. Nothing else is ever listed or removed. */
static const char *const parts[] = {"models", "packed"};

static void list_part(td_arena *arena, const char *root, const char *part, td_json_writer *w, int64_t *total) {
    treadle_error error;
    char *folder = td_path_join(arena, root, part), **names;
    size_t n;

    if (!folder || !td_path_is_dir(folder) || td_list_dir(arena, folder, &names, &n, &error) != TREADLE_OK) return;
    for (size_t i = 0; i < n; i++) {
        char *path = td_path_join(arena, folder, names[i]);
        int64_t bytes = path ? disk_bytes(arena, path) : 0;
        *total += bytes;
        if (w) {
            td_json_begin_object(w);
            td_json_key(w, "kind");
            td_json_write_text(w, part);
            td_json_key(w, "path");
            td_json_write_text(w, path ? path : "");
            td_json_key(w, "bytes");
            td_json_write_int(w, bytes);
            td_json_end_object(w);
        } else {
            printf("%9.1f MB  %-7s %s\n", (double)bytes / 1048576.0, part, path ? path : names[i]);
        }
    }
}

static int cache_list(td_arena *arena, const char *root, bool json) {
    td_json_writer w;
    td_buf out = {0};
    int64_t total = 0;

    td_json_writer_init(&w, &out, 0);
    td_json_begin_object(&w);
    td_json_key(&w, "folder");
    td_json_write_text(&w, root);
    td_json_key(&w, "entries");
    td_json_begin_array(&w);
    for (size_t i = 0; i < TD_COUNT(parts); i++) list_part(arena, root, parts[i], json ? &w : NULL, &total);
    td_json_end_array(&w);
    td_json_key(&w, "bytes");
    td_json_write_int(&w, total);
    td_json_end_object(&w);
    if (json) printf("%.*s\n", (int)out.n, out.p);
    else printf("%9.1f MB  in all, in %s\n", (double)total / 1048576.0, root);
    td_buf_free(&out);
    return EXIT_OK;
}

static int cache_clear(td_arena *arena, const char *root) {
    treadle_error error = {0};
    int64_t total = 0;

    for (size_t i = 0; i < TD_COUNT(parts); i++) {
        char *folder = td_path_join(arena, root, parts[i]);
        if (!folder) return EXIT_RUN;
        if (!td_path_is_dir(folder)) continue;
        total += disk_bytes(arena, folder);
        if (td_remove_tree(folder, &error) != TREADLE_OK) return td_report(&error);
    }
    printf("removed %.1f MB from %s\n", (double)total / 1048576.0, root);
    return EXIT_OK;
}

static int cache_run(void *given, char **positional) {
    const cache_args *args = given;
    td_arena arena = {0};
    const char *root = td_cache_dir(&arena), *what = positional[0] ? positional[0] : "list";
    int code;

    if (!root) {
        fprintf(stderr, "treadle: no cache folder: set HOME, XDG_CACHE_HOME or TREADLE_CACHE\n");
        code = EXIT_RUN;
    } else if (strcmp(what, "list") == 0) {
        code = cache_list(&arena, root, args->json);
    } else if (strcmp(what, "clear") == 0) {
        code = cache_clear(&arena, root);
    } else {
        code = td_usage(&td_command_cache, "expected list or clear, found \"%s\"", what);
    }
    td_arena_free(&arena);
    return code;
}

const td_command td_command_cache = {
    .name = "cache",
    .arguments = "[list | clear] [--json]",
    .summary = "list or clear compiled models and packed weights",
    .help =
        "The folder is $TREADLE_CACHE, else $XDG_CACHE_HOME/treadle, else ~/.cache/treadle. All of it can be made again.",
    .options = cache_options,
    .n_options = TD_COUNT(cache_options),
    .args_bytes = sizeof(cache_args),
    .max_positional = 1,
    .run = cache_run,
};
