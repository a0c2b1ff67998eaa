/* engine/external.c - external data of a graph lies inside its folder: checked for engines that read it by
 * themselves. */
#include "base/file.h"
#include "engine/engine.h"

typedef struct checker {
    const char *dir;
    td_str last; /* the location that was checked latest: most tensors share one */
    td_arena *arena;
    treadle_error *err;
    treadle_status status;
} checker;

static bool check_tensor(void *ctx, const td_onnx_tensor *t) {
    checker *c = ctx;
    char *path;
    if (!t->is_external || td_str_equal(t->location, c->last)) return true;
    c->status = td_path_resolve_inside(c->arena, c->dir, t->location, &path, c->err);
    c->last = t->location;
    if (c->status == TREADLE_OK) return true;
    td_error_context(c->err, "external data of tensor \"%.*s\"", TD_STR_ARGS(t->name));
    return false;
}

treadle_status td_signature_check_external(const td_signature *signature, treadle_error *err) {
    const td_onnx_model *m = signature->model;
    td_arena arena = {0};
    checker c = {.dir = td_path_dir(&arena, m->path), .arena = &arena, .err = err};
    if (c.dir) td_onnx_each_tensor(m, check_tensor, &c);
    else c.status = td_fail_memory(err, "a path", strlen(m->path));
    td_arena_free(&arena);
    return c.status;
}
