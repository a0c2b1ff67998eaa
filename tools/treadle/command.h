/* tools/treadle/command.h - what the commands of `treadle` share: their table, options, messages, exit codes.
 *
 * A command is one file with one td_command: name, help, a table of options, and a function. Each option is also an
 * environment variable: TREADLE_ and its name in capitals, '-' as '_'. The command line wins. Models are reached
 * through the public headers only; base/ lends strings, JSON and files. */
#ifndef TREADLE_COMMAND_H
#define TREADLE_COMMAND_H

#include "base/json.h"
#include "base/str.h"
#include "treadle/compile.h"
#include "treadle/treadle.h"

#include <stdio.h>

/* Exit codes. */
enum {
    EXIT_OK = 0,
    EXIT_RUN = 1,          /* it ran and failed */
    EXIT_USAGE = 2,        /* wrong command line */
    EXIT_MODEL = 3,        /* the model or its config is at fault */
    EXIT_INTERRUPTED = 130 /* Ctrl-C */
};

typedef enum td_option_kind {
    OPTION_FLAG,   /* *(bool *) = true */
    OPTION_TEXT,   /* *(const char **) */
    OPTION_INT,    /* *(int64_t *) */
    OPTION_DOUBLE, /* *(double *) */
    OPTION_LIST,   /* *(td_texts *), repeatable */
} td_option_kind;

typedef TD_VEC(const char *) td_texts;

typedef struct td_option {
    const char *name; /* "max-new-tokens", without dashes */
    char letter;      /* 'n', or 0 */
    td_option_kind kind;
    const char *argument; /* "N" in the help; NULL for flags */
    const char *help;     /* one line, or several separated by \n */
    size_t offset;        /* of the target in the command's struct */
} td_option;

typedef struct td_command {
    const char *name;
    const char *arguments; /* "DIR|FILE [-p TEXT]" */
    const char *summary;   /* one line, for the list */
    const char *help;      /* paragraphs below the usage line; may be "" */
    const td_option *options;
    size_t n_options;
    size_t args_bytes; /* of the struct that holds the options; zeroed, then `defaults` */
    void (*defaults)(void *args);
    size_t min_positional, max_positional;
    int (*run)(void *args, char **positional); /* as many as given, then NULL */
} td_command;

extern const td_command *const td_commands[];
extern const size_t td_n_commands;

extern const td_command td_command_run, td_command_chat, td_command_build, td_command_check, td_command_inspect,
    td_command_explain, td_command_convert_config, td_command_bench, td_command_drive, td_command_conformance,
    td_command_cache, td_command_tokenize, td_command_detokenize, td_command_template, td_command_ops,
    td_command_devices, td_command_infer, td_command_verify, td_command_features, td_command_transcribe,
    td_command_embed;

/* Parses argv after the command's name and runs it. Prints usage errors and help. */
int td_run_command(const td_command *command, int argc, char **argv);
void td_print_help(const td_command *command);

/* "treadle: file:line:column /pointer: message. hint" on standard error; returns the exit code that fits the status. */
int td_report(const treadle_error *error);
/* The same for what only the model, or a file beside it, can be the fault of: EXIT_MODEL, or EXIT_RUN. */
int td_report_model(const treadle_error *error);
int td_usage(const td_command *command, const char *format, ...) TD_PRINTF(2, 3); /* EXIT_USAGE */

/* Flushes standard output, last of all; returns code, or EXIT_RUN after a message if something was not written. */
int td_finish_output(int code);

/* Writes all of it to standard output; false: it could not (closed pipe, full disk). */
bool td_out(td_str text);
/* The same with a line end, if the text has none; frees the text (treadle_free). EXIT_OK or EXIT_RUN. */
int td_out_and_free(char *text);

/* "file:line:column /pointer: level: text", one line, of a message of a report. */
void td_print_message(FILE *to, const treadle_message *message);

/* --- model arguments (model_arg.c) */

/* Options that all commands with a model have; put MODEL_OPTIONS(struct) into the table and
 * `td_model_args model` into the struct. */
typedef struct td_model_args {
    int64_t threads;
    const char *activations;
    const char *cpu, *engine, *ort_lib;
    td_texts ep_library, allow_plugins;
    bool strict, no_passes, no_cache, verbose, quiet;
    td_texts set;
} td_model_args;
/* clang-format off */
#define MODEL_OPTIONS(type) \
    {"threads", 't', OPTION_INT, "N", "use exactly N threads (default: all CPUs of this process)", \
     offsetof(type, model.threads)}, \
    {"activations", 0, OPTION_TEXT, "HOW", "auto, float (never quantise activations) or int8 (default: auto)", \
     offsetof(type, model.activations)}, \
    {"engine", 0, OPTION_TEXT, "NAME", "run all graphs on light or ort (default: as the config says, else light)", \
     offsetof(type, model.engine)}, \
    {"ort-lib", 0, OPTION_TEXT, "PATH", "ONNX Runtime's libonnxruntime.so (default: the system's)", \
     offsetof(type, model.ort_lib)}, \
    {"ep-library", 0, OPTION_LIST, "NAME=PATH", "load a plugin execution provider into ONNX Runtime; repeatable", \
     offsetof(type, model.ep_library)}, \
    {"allow-plugins", 0, OPTION_LIST, "DIR", "let a config load pipelines (native code) from DIR; repeatable", \
     offsetof(type, model.allow_plugins)}, \
    {"set", 0, OPTION_LIST, "/POINTER=JSON", "change one value of the config; repeatable", offsetof(type, model.set)}, \
    {"strict", 0, OPTION_FLAG, NULL, "unknown config keys are errors", offsetof(type, model.strict)}, \
    {"no-passes", 0, OPTION_FLAG, NULL, "run graphs as written, without rewrites", offsetof(type, model.no_passes)}, \
    {"no-cache", 0, OPTION_FLAG, NULL, "do not keep packed weights on disk", offsetof(type, model.no_cache)}, \
    {"cpu", 0, OPTION_TEXT, "SET", "instruction sets to use: all, none, or some, as avx2,avxvnni (default: all)", \
     offsetof(type, model.cpu)}, \
    {"verbose", 'v', OPTION_FLAG, NULL, "print timings on standard error", offsetof(type, model.verbose)}, \
    {"quiet", 'q', OPTION_FLAG, NULL, "no progress and no notes", offsetof(type, model.quiet)}
/* clang-format on */

/* That the options above are within their ranges; reports and returns EXIT_USAGE if not. */
int td_model_args_check(const td_model_args *args);

/* A model path ready to open: a folder or .onnx file as it is; a GGUF file is compiled into the cache first (and said
 * so on standard error). Everything lives in the arena. Returns EXIT_OK or reports and returns the code. */
typedef struct td_model_source {
    char *path;
    treadle_model_options options;
    treadle_setting *settings;
} td_model_source;
int td_model_source_get(const td_model_args *args, const char *given, td_arena *arena, td_model_source *out);

/* td_model_source_get, then treadle_model_open. *out_load_ms may be NULL. */
int td_model_get(const td_model_args *args, const char *given, td_arena *arena, treadle_model **out,
                 double *out_load_ms);

/* Compiles a GGUF file into out_dir with a progress bar. */
int td_compile_with_progress(const char *source, const char *out_dir, const treadle_compile_options *options,
                             bool quiet);

/* --- what comes with a prompt (media_args.c) */
typedef struct td_media_args {
    td_texts input, image;
    const char *audio;
} td_media_args;
/* clang-format off */
#define MEDIA_OPTIONS(type) \
    {"input", 'i', OPTION_LIST, "NAME=FILE.npy", "a tensor for an input of the graphs; repeatable", \
     offsetof(type, media.input)}, \
    {"audio", 0, OPTION_TEXT, "FILE", "a sound file, through the model's preprocessing; -: standard input", \
     offsetof(type, media.audio)}, \
    {"image", 0, OPTION_LIST, "FILE", "not yet: give images as --input", offsetof(type, media.image)}
/* clang-format on */
/* A sound file; "-": what comes on standard input. */
treadle_status td_open_audio(const char *path, treadle_audio **out, treadle_error *error);
/* Gives them to the next append. EXIT_OK, or reports and returns the code. */
int td_give_media(const td_command *command, const td_media_args *args, treadle_generator *generator);

/* --- tensors out */
/* "float32 [1, 2], -1 to 1, mean 0" on standard output; the same as members of the JSON object that is open. */
void td_tensor_print(const treadle_tensor *tensor);
void td_tensor_json(td_json_writer *w, const treadle_tensor *tensor);

/* infer_folder.c: one pass over a folder on named tensors. */
typedef struct td_infer_args {
    td_texts inputs, outputs;
    const char *ids, *audio;
    bool json;
} td_infer_args;
int td_infer_folder(const td_model_source *source, const td_infer_args *args, td_arena *arena);

/* cmd_transcribe.c: prints what a sound file says, as `transcribe` does; -1: as the model's config has it. */
int td_transcribe_file(treadle_model *model, const char *path, int64_t beams, int64_t max_new_tokens, bool json);

/* --- sampling options (sampling.c), shared by run and chat */
typedef struct td_sampling_args {
    int64_t max_new_tokens, top_k, seed, min_length, no_repeat_ngram_size, max_length;
    double temperature, top_p, min_p, repetition_penalty;
    bool greedy, sample, ignore_eos;
    td_texts stop;
} td_sampling_args;
void td_sampling_defaults(td_sampling_args *args);
/* clang-format off */
#define SAMPLING_OPTIONS(type) \
    {"max-new-tokens", 'n', OPTION_INT, "N", "at most N new tokens", offsetof(type, sampling.max_new_tokens)}, \
    {"max-length", 0, OPTION_INT, "N", "at most N tokens with the prompt", offsetof(type, sampling.max_length)}, \
    {"min-length", 0, OPTION_INT, "N", "no end before N tokens with the prompt", offsetof(type, sampling.min_length)}, \
    {"temperature", 0, OPTION_DOUBLE, "T", "sample at temperature T; 0: greedy", \
     offsetof(type, sampling.temperature)}, \
    {"top-k", 0, OPTION_INT, "K", "sample from the K best tokens; 0: all", offsetof(type, sampling.top_k)}, \
    {"top-p", 0, OPTION_DOUBLE, "P", "sample from the best tokens of total probability P", \
     offsetof(type, sampling.top_p)}, \
    {"min-p", 0, OPTION_DOUBLE, "P", "drop tokens below P times the best one's probability", \
     offsetof(type, sampling.min_p)}, \
    {"repetition-penalty", 0, OPTION_DOUBLE, "R", "make tokens that occurred less likely; 1: off", \
     offsetof(type, sampling.repetition_penalty)}, \
    {"no-repeat-ngram-size", 0, OPTION_INT, "N", "no N-gram of tokens twice; 0: off", \
     offsetof(type, sampling.no_repeat_ngram_size)}, \
    {"seed", 's', OPTION_INT, "S", "sample with seed S: the same seed gives the same answer", \
     offsetof(type, sampling.seed)}, \
    {"greedy", 0, OPTION_FLAG, NULL, "always the best token", offsetof(type, sampling.greedy)}, \
    {"sample", 0, OPTION_FLAG, NULL, "draw tokens even if the model's default is greedy", \
     offsetof(type, sampling.sample)}, \
    {"ignore-eos", 0, OPTION_FLAG, NULL, "end tokens do not end the answer", offsetof(type, sampling.ignore_eos)}, \
    {"stop", 0, OPTION_LIST, "S", "end the answer before the text S; repeatable", offsetof(type, sampling.stop)}
/* clang-format on */
/* An option that was given, other than --max-new-tokens and --greedy; NULL: none. */
const char *td_sampling_given(const td_sampling_args *args);
/* Fills an initialised treadle_generate_options; pointers go into args. EXIT_OK, or a usage error that was printed. */
int td_sampling_apply(const td_command *command, const td_sampling_args *args, treadle_generate_options *out);

/* --- interruption (main.c). Ctrl-C ends the process at once, unless a generator is watched or somebody asks
 * td_interrupted now and then (td_interrupt_defer); a second Ctrl-C always does. */
bool td_interrupted(void);
void td_interrupt_clear(void);
void td_interrupt_defer(bool on);
void td_interrupt_watch(treadle_generator *generator); /* cancelled at Ctrl-C; NULL: none */

/* --- text arguments */
/* The prompt: -p TEXT, or the file named by -f ("-": standard input). *out: heap memory (td_free). */
int td_read_prompt(const td_command *command, const char *text, const char *file, bool quiet, char **out,
                   size_t *out_bytes);
/* Comma-separated ids. false: not that. */
bool td_parse_ids(const char *text, td_arena *arena, int32_t **out, size_t *out_n);

#endif
