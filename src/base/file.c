/* base/file.c - reading, writing, mapping, listing and removing files.
 *
 * Invariant: only regular files are read or mapped (a fifo would block, a device never ends); what is opened is
 * checked, not the name before. Every error carries the path and the operating system's words. */
#include "base/file.h"

#include "base/alloc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Turns errno (as `code`) into an error about a path. */
static treadle_status fail_os(treadle_error *err, int code, const char *what, const char *path) {
    char buffer[128];
    const char *text = strerror_r(code, buffer, sizeof buffer); /* the GNU form returns the text */
    treadle_status status = code == ENOENT || code == ENOTDIR ? TREADLE_NOT_FOUND
                            : code == ENOMEM                  ? TREADLE_OUT_OF_MEMORY
                                                              : TREADLE_IO;
    td_fail(err, status, "could not %s '%s': %s", what, path, text);
    td_error_file(err, path);
    return status;
}

/* The same where something was to be made: a path that cannot be is no missing input. */
static treadle_status fail_make(treadle_error *err, int code, const char *what, const char *path) {
    treadle_error made = {0};
    treadle_status status = fail_os(&made, code, what, path);
    if (status == TREADLE_NOT_FOUND) made.code = status = TREADLE_IO;
    if (err) *err = made;
    return status;
}

static treadle_status fail_memory(treadle_error *err, const char *what, size_t bytes, const char *path) {
    td_fail_memory(err, what, bytes);
    td_error_file(err, path);
    return TREADLE_OUT_OF_MEMORY;
}

/* Opens a regular file for reading. */
static treadle_status open_regular(const char *path, int *out, size_t *out_bytes, treadle_error *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* not blocking: a fifo opens, to be refused below */
    if (fd < 0) return fail_os(err, errno, "open", path);
    struct stat info;
    if (fstat(fd, &info) != 0) {
        int code = errno;
        close(fd);
        return fail_os(err, code, "read", path);
    }
    if (!S_ISREG(info.st_mode)) {
        close(fd);
        td_fail(err, TREADLE_FORMAT, "expected a regular file, found %s at '%s'",
                S_ISDIR(info.st_mode) ? "a folder" : "a device, pipe or socket", path);
        td_error_file(err, path);
        return TREADLE_FORMAT;
    }
    *out = fd;
    *out_bytes = (size_t)info.st_size;
    return TREADLE_OK;
}

treadle_status td_mmap_open(const char *path, td_mmap *out, treadle_error *err) {
    int fd;
    size_t n;
    TD_TRY(open_regular(path, &fd, &n, err));
    void *data = n ? mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    int code = errno;
    close(fd); /* the map keeps the file */
    if (data == MAP_FAILED) return fail_os(err, code, "map", path);
    *out = (td_mmap){.data = data ? data : (const void *)"", .n = n};
    return TREADLE_OK;
}

void td_mmap_close(td_mmap *map) {
    if (map->n) munmap((void *)(uintptr_t)map->data, map->n);
    *map = (td_mmap){0};
}

void td_mmap_drop(const void *from, size_t n) {
    /* Only whole pages inside the range: the edges may be shared with what is still in use. */
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = TD_ROUND_UP((uintptr_t)from, page), end = ((uintptr_t)from + n) / page * page;
    if (end > begin) madvise((void *)begin, end - begin, MADV_DONTNEED);
}

treadle_status td_file_read(const char *path, size_t limit_bytes, char **out, size_t *out_bytes, treadle_error *err) {
    int fd;
    size_t size;
    TD_TRY(open_regular(path, &fd, &size, err));

    treadle_status status = TREADLE_OK;
    td_buf text = {0};
    for (;;) {
        /* The size is a hint: files of /proc say 0, and others may grow meanwhile. One byte more shows the end. */
        size_t want = (size > text.n ? size - text.n : text.n / 2 + 4095) + 1;
        if (limit_bytes && (text.n > limit_bytes || size > limit_bytes)) {
            status = td_fail(err, TREADLE_LIMIT, "'%s' has more than the %zu bytes allowed here", path, limit_bytes);
            td_error_file(err, path);
            break;
        }
        if (!td_buf_reserve(&text, want)) {
            status = fail_memory(err, "a file's contents", text.n + want, path);
            break;
        }
        ssize_t got = read(fd, text.p + text.n, want);
        if (got > 0) text.n += (size_t)got;
        if (got < 0 && errno != EINTR) {
            status = fail_os(err, errno, "read", path);
            break;
        }
        if (got == 0) break;
    }
    close(fd);
    if (status != TREADLE_OK) {
        td_buf_free(&text);
        return status;
    }
    text.p[text.n] = '\0';
    *out = text.p;
    *out_bytes = text.n;
    return TREADLE_OK;
}

/* A new file beside `path`, for renaming over it. The name goes into `name`. */
static int create_aside(const char *path, char *name, size_t name_bytes) {
    for (int i = 0; i < 10000; i++) { /* several threads of this process may be at it */
        snprintf(name, name_bytes, "%s.tmp-%ld-%d", path, (long)getpid(), i);
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

/* 0 or an errno. */
static int write_all(int fd, const char *bytes, size_t n) {
    while (n > 0) {
        ssize_t done = write(fd, bytes, n);
        if (done < 0 && errno != EINTR) return errno;
        if (done > 0) {
            bytes += done;
            n -= (size_t)done;
        }
    }
    return 0;
}

/* Devices, pipes and links are written through, never replaced by a file. */
static bool is_written_in_place(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

static treadle_status write_in_place(const char *path, const void *bytes, size_t n, treadle_error *err) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return fail_make(err, errno, "open for writing", path);
    int code = write_all(fd, bytes, n);
    if (close(fd) != 0 && code == 0) code = errno;
    return code == 0 ? TREADLE_OK : fail_make(err, code, "write", path);
}

treadle_status td_file_write(const char *path, const void *bytes, size_t n, treadle_error *err) {
    if (is_written_in_place(path)) return write_in_place(path, bytes, n, err);
    size_t name_bytes = strlen(path) + 48;
    char *name = td_alloc(name_bytes);
    if (!name) return fail_memory(err, "a file name", name_bytes, path);
    treadle_status status = TREADLE_OK;
    int fd = create_aside(path, name, name_bytes);
    if (fd < 0) {
        status = fail_make(err, errno, "create", path);
        td_free(name);
        return status;
    }
    int code = write_all(fd, bytes, n);
    if (code == 0 && fsync(fd) != 0) code = errno; /* else a power cut after the rename could leave an empty file */
    if (close(fd) != 0 && code == 0) code = errno;
    if (code == 0 && rename(name, path) != 0) code = errno;
    if (code != 0) {
        unlink(name);
        status = fail_make(err, code, "write", path);
    }
    td_free(name);
    return status;
}

static bool has_mode(const char *path, mode_t mode) {
    struct stat info;
    return stat(path, &info) == 0 && (mode == 0 || (info.st_mode & S_IFMT) == mode);
}

bool td_path_exists(const char *path) { return has_mode(path, 0); }

bool td_path_is_dir(const char *path) { return has_mode(path, S_IFDIR); }

bool td_path_is_file(const char *path) { return has_mode(path, S_IFREG); }

int64_t td_file_size(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) ? (int64_t)info.st_size : -1;
}

treadle_status td_make_dirs(const char *path, treadle_error *err) {
    char *part = td_strdup(path);
    if (!part) return fail_memory(err, "a path", strlen(path) + 1, path);
    treadle_status status = TREADLE_OK;
    for (char *p = part;; p++) {
        if (*p != '/' && *p != '\0') continue;
        char saved = *p;
        *p = '\0';
        /* What exists already may well be unwritable for us; only a folder that is still missing is an error. */
        if (part[0] && mkdir(part, 0777) != 0) {
            int code = errno;
            if (!td_path_is_dir(part)) {
                status = fail_make(err, code == EEXIST ? ENOTDIR : code, "make folder", part);
                break;
            }
        }
        *p = saved;
        if (saved == '\0') break;
    }
    td_free(part);
    return status;
}

enum { MAX_TREE_DEPTH = 256 }; /* each level holds a file descriptor open */

/* Empties the folder `name` in folder `at` and closes it. 0 or an errno. */
static int empty_dir(int at, const char *name, int depth) {
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return errno;
    DIR *dir = fdopendir(fd);
    if (!dir) {
        int code = errno;
        close(fd);
        return code;
    }
    int code = 0;
    for (const struct dirent *entry; code == 0 && (errno = 0, entry = readdir(dir)) != NULL;) {
        const char *inner = entry->d_name;
        if (strcmp(inner, ".") == 0 || strcmp(inner, "..") == 0) continue;
        if (unlinkat(fd, inner, 0) == 0 || errno == ENOENT) continue;
        if (errno != EISDIR && errno != EPERM) {
            code = errno;
        } else if (depth == MAX_TREE_DEPTH) {
            code = ELOOP;
        } else {
            code = empty_dir(fd, inner, depth + 1);
            if (code == 0 && unlinkat(fd, inner, AT_REMOVEDIR) != 0) code = errno;
        }
    }
    if (code == 0) code = errno; /* of readdir */
    closedir(dir);
    return code;
}

treadle_status td_remove_tree(const char *path, treadle_error *err) {
    struct stat info;
    int code = 0;
    if (lstat(path, &info) != 0) {
        code = errno;
    } else if (!S_ISDIR(info.st_mode)) {
        code = unlink(path) == 0 ? 0 : errno;
    } else {
        code = empty_dir(AT_FDCWD, path, 0);
        if (code == 0 && rmdir(path) != 0) code = errno;
    }
    return code == 0 || code == ENOENT ? TREADLE_OK : fail_os(err, code, "remove", path);
}

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

treadle_status td_list_dir(td_arena *arena, const char *path, char ***out_names, size_t *out_n, treadle_error *err) {
    DIR *dir = opendir(path);
    if (!dir) return fail_os(err, errno, "list", path);

    treadle_status status = TREADLE_OK;
    TD_VEC(char *) names = {0};
    for (const struct dirent *entry; (errno = 0, entry = readdir(dir)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char *name = td_arena_strdup(arena, entry->d_name);
        if (!name || !td_vec_push(&names, name)) {
            status = fail_memory(err, "a folder's names", strlen(entry->d_name) + 1, path);
            goto cleanup;
        }
    }
    if (errno != 0) {
        status = fail_os(err, errno, "list", path);
        goto cleanup;
    }
    char **copy = TD_ARENA_ARRAY(arena, char *, names.n);
    if (!copy) {
        status = fail_memory(err, "a folder's names", names.n * sizeof *copy, path);
        goto cleanup;
    }
    if (names.n) {
        memcpy(copy, names.items, names.n * sizeof *copy);
        qsort(copy, names.n, sizeof *copy, compare_names);
    }
    *out_names = copy;
    *out_n = names.n;
cleanup:
    td_vec_free(&names);
    closedir(dir);
    return status;
}
