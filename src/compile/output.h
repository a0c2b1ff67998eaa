/* compile/output.h - the text files of the folder: genai_config.json, tokenizer.json, tokenizer_config.json. */
#ifndef TD_COMPILE_OUTPUT_H
#define TD_COMPILE_OUTPUT_H

#include "compile/arch.h"
#include "compile/compile.h"
#include "compile/folder.h"

typedef struct td_output {
    const td_compile_options *options;
    const td_model *model;
    td_arena *arena;
    const td_folder *folder;
} td_output;

treadle_status td_output_text_files(const td_output *o, treadle_error *err);

/* A remark to the caller's note function, or to the log. */
void td_output_note(const td_output *o, const char *format, ...) TD_PRINTF(2, 3);

#endif
