/* config/files.h - the text files of a model: those of its folder, and those that a single .onnx file carries as
 * metadata, where the key is the file's name. Immutable once filled. */
#ifndef TD_CONFIG_FILES_H
#define TD_CONFIG_FILES_H

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"

typedef struct td_carried_file {
    const char *name;
    td_str text;
} td_carried_file;

typedef struct td_model_files {
    const char *dir;
    const char *only; /* the name of the .onnx file that was asked for; NULL: a folder was */
    /* What the .onnx file carries: the one asked for, or the only one of a folder without a config. */
    const char *carrier; /* its path; NULL: none */
    const td_carried_file *carried;
    size_t n_carried;
} td_model_files;

/* Reads a text of that name into the arena: out->p is NULL where there is none. A file that was asked for by itself
 * does not look at what lies beside it if it carries anything; else the folder's own file wins. out_path (may be NULL):
 * as messages show it. Errors: the file leads out of the folder, is too large, or cannot be read. */
treadle_status td_model_files_read(const td_model_files *files, const char *name, size_t max_bytes, td_arena *arena,
                                   td_str *out, const char **out_path, treadle_error *err);
bool td_model_files_has(const td_model_files *files, const char *name);

#endif
