/* model/files.c - see files.h. */
#include "model/files.h"

#include "base/file.h"
#include "onnx/model.h"

/* Metadata whose key is the name of a text file. */
static bool names_a_file(td_str key) {
    static const char *const endings[] = {".json", ".jinja", ".txt"};
    for (size_t i = 0; i < TD_COUNT(endings); i++)
        if (key.n > strlen(endings[i]) && td_str_ends(key, td_str_from(endings[i]))) return !memchr(key.p, '\0', key.n);
    return false;
}

static bool copy_carried(const td_onnx_model *model, td_arena *arena, td_model_files *out) {
    td_carried_file *list = TD_ARENA_ARRAY(arena, td_carried_file, model->n_props);
    size_t n = 0;
    for (size_t i = 0; list && i < model->n_props; i++) {
        td_str key = model->props[i].key, value = model->props[i].value;
        if (!names_a_file(key)) continue;
        list[n].name = td_arena_strndup(arena, key.p, key.n);
        list[n].text = (td_str){td_arena_strndup(arena, value.p ? value.p : "", value.n), value.n};
        if (!list[n].name || !list[n].text.p) return false;
        n++;
    }
    out->carried = list;
    out->n_carried = n;
    return list != NULL;
}

static treadle_status read_carried(const char *path, td_arena *arena, td_model_files *out, treadle_error *err) {
    const td_onnx_read_options options = {.data = TD_ONNX_DATA_SMALL};
    td_onnx_model *model = NULL;
    treadle_status status = td_onnx_open(path, &options, &model, NULL);
    if (status == TREADLE_OUT_OF_MEMORY) return td_fail_memory(err, "the metadata of a model", 0);
    if (status != TREADLE_OK) return TREADLE_OK;
    out->carrier = td_arena_strdup(arena, path);
    bool ok = out->carrier && copy_carried(model, arena, out);
    td_onnx_close(model);
    return ok ? TREADLE_OK : td_fail_memory(err, "the metadata of a model", 0);
}

/* The only .onnx file of a folder that has no config; NULL: there is a config, none, or several. */
static treadle_status find_carrier(const char *dir, td_arena *arena, char **out, treadle_error *err) {
    char **names = NULL;
    size_t n = 0, n_found = 0;
    *out = NULL;
    treadle_status status = td_list_dir(arena, dir, &names, &n, NULL);
    if (status == TREADLE_OUT_OF_MEMORY) return td_fail_memory(err, "the names in a folder", 0);
    for (size_t i = 0; status == TREADLE_OK && i < n; i++) {
        td_str name = td_str_from(names[i]);
        if (td_str_is(name, "genai_config.json")) {
            *out = NULL;
            return TREADLE_OK;
        }
        if (!td_str_ends(name, TD_STR(".onnx")) || name.n < 6 || n_found++) continue;
        TD_TRY(td_path_find_inside(arena, dir, names[i], out, NULL) == TREADLE_OUT_OF_MEMORY
                   ? td_fail_memory(err, "a path", 0)
                   : TREADLE_OK);
    }
    if (n_found != 1) *out = NULL;
    return TREADLE_OK;
}

treadle_status td_model_files_open(const char *path, td_arena *arena, td_model_files *out, treadle_error *err) {
    bool is_dir = td_path_is_dir(path);
    *out = (td_model_files){0};
    if (!is_dir && !td_path_is_file(path)) {
        td_fail(err, TREADLE_NOT_FOUND, "expected a model folder or an .onnx file, found %s",
                td_path_exists(path) ? "a device, pipe or socket" : "nothing of that name");
        td_error_file(err, path);
        return TREADLE_NOT_FOUND;
    }
    char *carrier = td_arena_strdup(arena, path);
    out->dir = is_dir ? carrier : td_path_dir(arena, path);
    if (!carrier || !out->dir) return td_fail_memory(err, "a path", strlen(path));
    if (!is_dir) out->only = td_path_base(carrier);
    else TD_TRY(find_carrier(out->dir, arena, &carrier, err));
    return carrier ? read_carried(carrier, arena, out, err) : TREADLE_OK;
}
