/* tools/treadle/cmd_build.c - `treadle build`: a checkpoint becomes a model folder. */
#include "command.h"

#include <stdio.h>
#include <string.h>

typedef struct build_args {
    const char *out, *quantize;
    int64_t accuracy_level;
    bool single_file, quiet;
} build_args;

static void build_defaults(void *args) { ((build_args *)args)->accuracy_level = 4; }

static const td_option build_options[] = {
    {"output", 'o', OPTION_TEXT, "DIR", "the folder to write (made, or replaced if treadle made it)",
     offsetof(build_args, out)},
    {"accuracy-level", 0, OPTION_INT, "0|4", "of matrix products: 0 float activations, 4 int8 allowed (default: 4)",
     offsetof(build_args, accuracy_level)},
    {"quantize", 0, OPTION_TEXT, "none", "decode all weights to float32 (default: as they are)",
     offsetof(build_args, quantize)},
    {"single-file", 0, OPTION_FLAG, NULL,
     "weights, config and tokenizer inside model.onnx; data beside it only over 2 GiB",
     offsetof(build_args, single_file)},
    {"quiet", 'q', OPTION_FLAG, NULL, "no progress bar", offsetof(build_args, quiet)},
};

static int build_run(void *given, char **positional) {
    build_args *args = given;
    treadle_compile_options options;

    if (!args->out) return td_usage(&td_command_build, "-o DIR is missing");
    if (args->accuracy_level != 0 && args->accuracy_level != 4)
        return td_usage(&td_command_build, "--accuracy-level: expected 0 or 4, found %lld",
                        (long long)args->accuracy_level);
    if (args->quantize && strcmp(args->quantize, "none") != 0)
        return td_usage(&td_command_build, "--quantize: expected none, found \"%s\"", args->quantize);
    treadle_compile_options_init(&options);
    options.accuracy_level = (int32_t)args->accuracy_level;
    options.single_file = args->single_file;
    options.dequantize = args->quantize != NULL;
    return td_compile_with_progress(positional[0], args->out, &options, args->quiet);
}

const td_command td_command_build = {
    .name = "build",
    .arguments = "SRC -o DIR",
    .summary = "compile a checkpoint into a model folder",
    .help =
        "SRC is a GGUF file (version 2 and 3; llama, qwen2) or a Hugging Face folder with config.json and safetensors (llama, mistral,\n"
        "qwen2, whisper). Values are carried over as they are. The folder holds ONNX graphs and their data, genai_config.json\n"
        "and the tokenizer's files, and runs in ONNX Runtime too.",
    .options = build_options,
    .n_options = TD_COUNT(build_options),
    .args_bytes = sizeof(build_args),
    .defaults = build_defaults,
    .min_positional = 1,
    .max_positional = 1,
    .run = build_run,
};
