/* base/path.c - path text, and the rule that a model folder's files stay inside it. */
#include "base/alloc.h"
#include "base/file.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

char *td_path_join(td_arena *arena, const char *dir, const char *name) {
    size_t n = strlen(dir);
    if (name[0] == '/' || n == 0) return td_arena_strdup(arena, name);
    return td_arena_printf(arena, "%s%s%s", dir, dir[n - 1] == '/' ? "" : "/", name);
}

const char *td_path_base(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char *td_path_dir(td_arena *arena, const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return td_arena_strdup(arena, ".");
    while (slash > path && slash[-1] == '/') slash--;
    return td_arena_strndup(arena, path, slash == path ? 1 : (size_t)(slash - path));
}

/* Why `relative` is not acceptable as text, or NULL. */
static const char *fault_of(td_str relative) {
    if (relative.n == 0) return "is empty";
    if (relative.p[0] == '/') return "is absolute; it must be relative to the model folder";
    for (size_t i = 0; i < relative.n; i++) {
        if ((uint8_t)relative.p[i] < 0x20 || relative.p[i] == 0x7F) return "holds a control character";
    }
    for (size_t begin = 0; begin <= relative.n;) {
        const char *slash = memchr(relative.p + begin, '/', relative.n - begin);
        size_t end = slash ? (size_t)(slash - relative.p) : relative.n;
        if (td_str_is((td_str){relative.p + begin, end - begin}, "..")) return "leaves the model folder by \"..\"";
        begin = end + 1;
    }
    return NULL;
}

/* True if the resolved path lies below the first n bytes of the resolved folder plus `suffix`. */
static bool lies_below(const char *path, const char *folder, size_t n, td_str suffix) {
    td_str rest = {path, strlen(path)};
    if (!td_str_starts(rest, (td_str){folder, n})) return false;
    rest = (td_str){path + n, rest.n - n};
    if (!td_str_starts(rest, suffix)) return false;
    return rest.n > suffix.n && rest.p[suffix.n] == '/';
}

/* A Hugging Face cache keeps REPO/blobs/HASH and links to it from REPO/snapshots/REV/...; both paths are resolved, so a
 * blobs folder that is itself a link does not count. */
static bool lies_in_blobs(const char *path, const char *root) {
    const char *found = root;
    while ((found = strstr(found, "/snapshots/")) != NULL) {
        if (lies_below(path, root, (size_t)(found - root), TD_STR("/blobs"))) return true;
        found++;
    }
    return false;
}

static treadle_status fail_unresolved(treadle_error *err, int code, const char *name, const char *root) {
    if (code == ENOENT || code == ENOTDIR) {
        return td_fail(err, TREADLE_NOT_FOUND, "\"%s\" does not exist in folder '%s'", name, root);
    }
    if (code == ENOMEM) return td_fail_memory(err, "a path", strlen(name));
    char buffer[128];
    return td_fail(err, TREADLE_IO, "could not open \"%s\" in folder '%s': %s", name, root,
                   strerror_r(code, buffer, sizeof buffer));
}

treadle_status td_path_resolve_inside(td_arena *arena, const char *root, td_str relative, char **out,
                                      treadle_error *err) {
    const char *fault = fault_of(relative);
    if (fault) {
        return td_fail(err, TREADLE_CONFIG, "expected a path inside the model folder, but \"%.*s\" %s",
                       (int)TD_MIN(relative.n, 512), relative.n ? relative.p : "", fault);
    }
    treadle_status status = TREADLE_OK;
    char *real_root = realpath(root[0] ? root : ".", NULL), *real = NULL;
    char *name = td_arena_strndup(arena, relative.p, relative.n);
    char *path = name ? td_path_join(arena, root, name) : NULL;
    if (!path) {
        status = td_fail_memory(err, "a path", relative.n);
        goto cleanup;
    }
    if (real_root) real = realpath(path, NULL);
    if (!real) {
        status = fail_unresolved(err, errno, name, root);
        goto cleanup;
    }
    bool inside = strcmp(real, real_root) == 0 || strcmp(real_root, "/") == 0 ||
                  lies_below(real, real_root, strlen(real_root), (td_str){0}) || lies_in_blobs(real, real_root);
    if (!inside) {
        status =
            td_fail(err, TREADLE_CONFIG,
                    "expected a path inside the model folder, but the link \"%s\" leads out of it to '%s'", name, real);
        goto cleanup;
    }
    *out = td_arena_strdup(arena, real);
    if (!*out) status = td_fail_memory(err, "a path", strlen(real) + 1);
cleanup:
    free(real);
    free(real_root);
    return status;
}

treadle_status td_path_find_inside(td_arena *arena, const char *root, const char *name, char **out,
                                   treadle_error *err) {
    struct stat info;
    *out = NULL;
    char *path = td_path_join(arena, root, name);
    if (!path) return td_fail_memory(err, "a path", strlen(name));
    if (lstat(path, &info) != 0 && (errno == ENOENT || errno == ENOTDIR)) return TREADLE_OK;
    treadle_status status = td_path_resolve_inside(arena, root, td_str_from(name), out, err);
    if (status != TREADLE_NOT_FOUND) return status;
    return td_fail(err, TREADLE_CONFIG, "the link \"%s\" in folder '%s' leads to nothing", name, root);
}

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

char *td_cache_dir(td_arena *arena) {
    const char *own = variable("TREADLE_CACHE"), *xdg = variable("XDG_CACHE_HOME"), *home = variable("HOME");
    if (own) return td_arena_strdup(arena, own);
    if (xdg && xdg[0] == '/') return td_path_join(arena, xdg, "treadle"); /* its standard: relative ones are ignored */
    return home ? td_arena_printf(arena, "%s/.cache/treadle", home) : NULL;
}
