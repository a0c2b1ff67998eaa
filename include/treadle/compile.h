/* treadle/compile.h - the pipeline compiler: a checkpoint becomes a model folder. It is in libtreadle-compile.a, and
 * that goes with libtreadle.a, not with the shared library: `pkg-config --libs treadle-compile` names all it needs.
 * Any number of threads may compile at once, also into one folder: the last one to finish wins. */
#ifndef TREADLE_COMPILE_H
#define TREADLE_COMPILE_H

#include "treadle/status.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Progress of long work: done of total units (bytes); stage is a short word for people. Return false to cancel. */
typedef bool treadle_progress_fn(void *ctx, const char *stage, uint64_t done, uint64_t total);

typedef struct treadle_compile_options {
    size_t struct_size;
    int32_t accuracy_level;        /* of MatMulNBits: 0 float activations, 4 (default) int8 allowed */
    bool dequantize;               /* --quantize none: weights as float32. Default: false */
    bool single_file;              /* weights, config and tokenizer inside model.onnx, data beside it only over 2 GiB.
                                    * Default: false */
    bool overwrite;                /* replace files of an earlier build in the folder. Default: true */
    treadle_progress_fn *progress; /* NULL (default): none */
    void *progress_ctx;
} treadle_compile_options;
TREADLE_API void treadle_compile_options_init(treadle_compile_options *options);

/* Reads source, a GGUF file or a Hugging Face folder (config.json with model.safetensors or
 * model.safetensors.index.json), and writes the model folder out_dir: ONNX graphs and their data, genai_config.json,
 * tokenizer files, for speech generation_config.json and preprocessor_config.json. Everything is written aside and
 * renamed. Nothing is left behind on failure. TREADLE_NOT_FOUND, TREADLE_IO; TREADLE_FORMAT: damaged;
 * TREADLE_UNSUPPORTED: an architecture, tensor or option that is not known (those that are known are listed);
 * TREADLE_INVALID_ARGUMENT: out_dir holds other files than a build's; TREADLE_CANCELLED. */
TREADLE_API treadle_status treadle_compile(const char *source, const char *out_dir,
                                           const treadle_compile_options *options, treadle_error *error);

/* True if the path is a checkpoint that treadle_compile reads, by a first look: a file that starts as GGUF does, or a
 * folder with a config.json and safetensors (or one of these files itself). */
TREADLE_API bool treadle_compile_knows(const char *path);

#ifdef __cplusplus
}
#endif
#endif
