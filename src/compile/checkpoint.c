/* compile/checkpoint.c - see checkpoint.h. */
#include "compile/checkpoint.h"

#include <stdio.h>

/* The folder that a path means; *out NULL: none. false: out of memory. */
static bool folder_of(const char *path, td_arena *arena, const char **out) {
    const char *base = td_path_base(path);
    *out = td_path_is_dir(path) ? path : NULL;
    if (*out || !td_path_is_file(path)) return true;
    if (strcmp(base, "config.json") != 0 && !td_str_ends(td_str_from(base), TD_STR(".safetensors")) &&
        !td_str_ends(td_str_from(base), TD_STR(".safetensors.index.json")))
        return true;
    *out = td_path_dir(arena, path);
    return *out != NULL;
}

static bool is_gguf(const char *path) {
    char magic[4];
    FILE *f = td_path_is_file(path) ? fopen(path, "rb") : NULL;
    if (!f) return false;
    bool is = fread(magic, 1, sizeof magic, f) == sizeof magic && memcmp(magic, "GGUF", sizeof magic) == 0;
    fclose(f);
    return is;
}

bool td_checkpoint_knows(const char *path) {
    td_arena arena = {0};
    const char *dir;
    bool knows = folder_of(path, &arena, &dir) && (dir ? td_hf_is_checkpoint(dir) : is_gguf(path));
    td_arena_free(&arena);
    return knows;
}

/* Why a folder cannot be compiled, by what lies in it. */
static treadle_status refuse_folder(const char *dir, td_arena *arena, treadle_error *err) {
    static const struct {
        const char *end, *hint;
    } others[] = {
        {".gguf", "it holds a GGUF file: name the file itself"},
        {".onnx", "it holds ONNX graphs: run it as it is"},
        {".bin", "weights as .bin are not read: save them as safetensors"},
        {".pt", "weights as .pt are not read: save them as safetensors"},
        {".pth", "weights as .pth are not read: save them as safetensors"},
        {".h5", "weights as .h5 are not read: save them as safetensors"},
        {".msgpack", "weights as .msgpack are not read: save them as safetensors"},
    };
    char **names;
    size_t n;
    TD_TRY(td_list_dir(arena, dir, &names, &n, err));
    td_fail(err, TREADLE_FORMAT,
            "the folder '%s' is no checkpoint: expected config.json with model.safetensors or "
            "model.safetensors.index.json",
            dir);
    for (size_t k = 0; k < TD_COUNT(others); k++)
        for (size_t i = 0; i < n; i++)
            if (td_str_ends(td_str_from(names[i]), td_str_from(others[k].end))) {
                td_error_hint(err, "%s", others[k].hint);
                return TREADLE_FORMAT;
            }
    return TREADLE_FORMAT;
}

treadle_status td_checkpoint_open(const char *path, td_checkpoint *out, treadle_error *err) {
    td_arena arena = {0};
    const char *dir;
    treadle_status status;
    *out = (td_checkpoint){0};
    if (!folder_of(path, &arena, &dir)) return td_fail_memory(err, "a path", strlen(path));
    if (!dir) { /* of whatever it is the GGUF reader says what it expected */
        status = td_gguf_open(path, &out->gguf, err);
        if (status == TREADLE_OK) out->source = &out->gguf->source;
    } else if (!td_hf_is_checkpoint(dir)) {
        status = refuse_folder(dir, &arena, err);
    } else {
        status = td_hf_open(dir, &out->hf, err);
        if (status == TREADLE_OK) out->source = &out->hf->source;
    }
    td_arena_free(&arena);
    return status;
}

void td_checkpoint_close(td_checkpoint *checkpoint) {
    td_gguf_close(checkpoint->gguf);
    td_hf_close(checkpoint->hf);
    *checkpoint = (td_checkpoint){0};
}
