/* base/file.h - files, paths and memory maps. Paths are UTF-8, '/'-separated, NUL-terminated. */
#ifndef TD_BASE_FILE_H
#define TD_BASE_FILE_H

#include "base/arena.h"
#include "base/error.h"

/* A read-only memory map of a whole file. Empty files map to data = "" and n = 0. Errors here and below name the file:
 * NOT_FOUND, IO, FORMAT (for what is no regular file), LIMIT, OUT_OF_MEMORY. */
typedef struct td_mmap {
    const uint8_t *data;
    size_t n;
} td_mmap;

/* Refuses anything but regular files. */
treadle_status td_mmap_open(const char *path, td_mmap *out, treadle_error *err);
void td_mmap_close(td_mmap *map);
void td_mmap_drop(const void *from, size_t n); /* pages no longer needed; they come back from the file when touched */

/* Reads a whole regular file into heap memory (td_free), NUL-terminated after n bytes. limit_bytes 0: no limit. */
treadle_status td_file_read(const char *path, size_t limit_bytes, char **out, size_t *out_bytes, treadle_error *err);

/* Writes aside ("path.tmp-PID-N") and renames, so that readers see the old file or the whole new one. What
 * exists and is a device, a pipe or a link is written through instead. Errors: IO (also for folders that
 * are missing), OUT_OF_MEMORY. */
treadle_status td_file_write(const char *path, const void *bytes, size_t n, treadle_error *err);

bool td_path_exists(const char *path);
bool td_path_is_dir(const char *path);
bool td_path_is_file(const char *path);
int64_t td_file_size(const char *path);                              /* -1: none */
treadle_status td_make_dirs(const char *path, treadle_error *err);   /* like mkdir -p; IO, OUT_OF_MEMORY */
treadle_status td_remove_tree(const char *path, treadle_error *err); /* follows no links; absent is fine */

/* "dir/name" in the arena; a name that is absolute is returned alone. NULL: out of memory. */
char *td_path_join(td_arena *arena, const char *dir, const char *name);
const char *td_path_base(const char *path);           /* after the last '/' */
char *td_path_dir(td_arena *arena, const char *path); /* "." if there is none */

/* Resolves `relative` inside `root` for reading: refuses absolute paths, "..", NULs, control characters, and links that
 * lead out of root, except into the blobs folder of a Hugging Face cache (root is .../snapshots/REV or a folder in it,
 * target .../blobs/...). On success *out is a path in the arena that may be opened; all links in it are resolved, so
 * what lies beside `relative` is found from root, not from *out.
 * Errors: CONFIG (not a path inside), NOT_FOUND, IO. */
treadle_status td_path_resolve_inside(td_arena *arena, const char *root, td_str relative, char **out,
                                      treadle_error *err);

/* The same for a file that need not be there: *out is NULL then. A link that leads nowhere is an error (CONFIG). */
treadle_status td_path_find_inside(td_arena *arena, const char *root, const char *name, char **out, treadle_error *err);

/* Names in a folder, sorted bytewise, without "." and "..". Heap-free: all in the arena. */
treadle_status td_list_dir(td_arena *arena, const char *path, char ***out_names, size_t *out_n, treadle_error *err);

/* $XDG_CACHE_HOME/treadle, else $HOME/.cache/treadle; TREADLE_CACHE wins over both. NULL: no such variable is set. */
char *td_cache_dir(td_arena *arena);

#endif
