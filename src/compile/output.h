/* compile/output.h - the text files of the folder: genai_config.json,
 * generation_config.json, tokenizer and preprocessor.
 *
 * From a GGUF file all are made of its keys (output.c). Of a Hugging Face folder (output_hf.c) the files of the
 * tokenizer are copied; generation_config.json and preprocessor_config.json too, with what they lack added. */
#ifndef TD_COMPILE_OUTPUT_H
#define TD_COMPILE_OUTPUT_H

#include "base/json.h"
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
treadle_status td_output_hf_files(const td_output *o, treadle_error *err);

/* A remark to the caller's note function, or to the log. */
void td_output_note(const td_output *o, const char *format, ...) TD_PRINTF(2, 3);

/* Writes a file of the folder, a line end added. */
treadle_status td_output_save(const td_output *o, const char *name, td_buf *bytes, treadle_error *err);

/* Pieces of genai_config.json, written alike for all sources: {"version", "pipeline" left open} and
 * "metadata" without its closing brace. */
void td_output_begin_config(const td_output *o, td_json_writer *w, const char *preset);
void td_output_begin_metadata(const td_output *o, td_json_writer *w);

#endif
