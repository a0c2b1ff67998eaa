/* model/files.h - finds the text files of a model by its path. */
#ifndef TD_MODEL_FILES_H
#define TD_MODEL_FILES_H

#include "config/files.h"

/* path: a folder, or an .onnx file. All texts are copied into the arena. A file that is no ONNX model carries nothing:
 * who opens it says what is wrong. Errors: TREADLE_NOT_FOUND (nothing there), TREADLE_OUT_OF_MEMORY. */
treadle_status td_model_files_open(const char *path, td_arena *arena, td_model_files *out, treadle_error *err);

#endif
