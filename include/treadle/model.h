/* treadle/model.h - a model folder: open it, check it, look into it.
 *
 * A folder holds ONNX graphs and, optionally, genai_config.json (version 1 or 2: docs/config.md),
 * generation_config.json, the tokenizer's files, a chat template and a preprocessor config. The path may also be that
 * of a single .onnx file, which may carry these as metadata. Everything here may be called from any thread.
 */
#ifndef TREADLE_MODEL_H
#define TREADLE_MODEL_H

#include "treadle/session.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct treadle_model treadle_model;
typedef struct treadle_text treadle_text; /* text.h */

/* One change to the config, applied after the file and before presets are merged. */
typedef struct treadle_setting {
    /* JSON pointer, e.g. "/generation/max_length", "/tokens/eos/0", "/generation/stop/-" (the end of a list); objects
     * and lists that are missing on the way are made. */
    const char *pointer;
    const char *value; /* JSON text, e.g. "128" or "\"mean\""; null unsets */
} treadle_setting;

typedef struct treadle_model_options {
    size_t struct_size;
    int32_t n_threads;               /* 0 (default): all CPUs of this process; N means N */
    treadle_activations activations; /* default: AUTO */
    bool strict;                     /* unknown config keys are errors. Default: false */
    bool no_passes;                  /* graphs as written, without rewrites. Default: false */
    bool profile;                    /* time every node of every session. Default: false */
    const char *pack_dir;            /* folder of the packed-weights cache; NULL (default): pack in memory */
    const treadle_setting *settings; /* config overlay; NULL (default): none */
    size_t n_settings;
    const char *engine;      /* "light" or "ort" for every session; NULL (default): as the config says, else light */
    const char *ort_library; /* libonnxruntime.so; NULL (default): $TREADLE_ORT_LIB, else the standard names */
    /* Plugin execution providers to load into ONNX Runtime, "NAME=PATH" each; default: none. */
    const char *const *provider_libraries;
    size_t n_provider_libraries;
    /* Folders whose libraries a config may load as plugins (treadle/plugin.h): native code. NULL (default): none. */
    const char *const *plugin_dirs;
    size_t n_plugin_dirs;
} treadle_model_options;
TREADLE_API void treadle_model_options_init(treadle_model_options *options);

/* Opens a folder: config, plan, engines, weights, tokenizer. All errors of the config are found before weights are
 * read; the error holds the first one, treadle_model_check gives all. A tokenizer or template that is not understood
 * does not fail the open: text calls then return an error that names the part. TREADLE_NOT_FOUND: no such folder, or no
 * ONNX Runtime; TREADLE_IO; TREADLE_CONFIG, TREADLE_FORMAT: the folder's fault, with file, line, column and JSON
 * pointer where there are any; TREADLE_UNSUPPORTED: ops that an engine lacks, all of them listed. */
TREADLE_API treadle_status treadle_model_open(const char *path, const treadle_model_options *options,
                                              treadle_model **out, treadle_error *error);
/* After all its generators are freed; NULL is fine. */
TREADLE_API void treadle_model_close(treadle_model *model);

typedef struct treadle_model_info {
    size_t struct_size;     /* set by the caller to sizeof */
    int64_t vocab_size;     /* last dimension of the logits; 0: not known before a run */
    int64_t context_length; /* most positions that the config or a static cache allows */
    int64_t max_length;     /* default limit of a timeline, prompt included */
    int32_t n_sessions;
    bool has_tokenizer; /* text can be encoded and decoded */
    bool has_chat_template;
    bool has_logits;  /* tokens can be generated; else a generator makes passes (treadle_generator_output) */
    bool rewinds;     /* rows can be cut back to any length (treadle_generator_rewind); else to 0 alone (transducers) */
    bool transcribes; /* speech to text (treadle_transcribe) */
    bool prompt_logits; /* logits of every prompt position can be had */
    const int32_t *eos; /* effective end tokens; lives as long as the model */
    size_t n_eos;
    int32_t bos;     /* -1: none */
    bool do_sample;  /* the model's default way of choosing tokens */
    bool transduces; /* a transducer: tokens come from a walk over the frames of its tensors, not from a prompt */
} treadle_model_info;
/* out->struct_size must be set; fields beyond it are not written. */
TREADLE_API void treadle_model_get_info(const treadle_model *model, treadle_model_info *out);

/* Tokenizer and template of the model, never NULL; lives as long as the model. */
TREADLE_API const treadle_text *treadle_model_text(const treadle_model *model);

/* The engines of this build as JSON (treadle_free): [{"engine", "error"} or {"engine", "library", "version",
 * "providers": [names], "devices": [{"provider", "type": "cpu|gpu|npu", "name", "vendor_id", "device_id"}]}, ...].
 * Options NULL: defaults; they say where ONNX Runtime and its plugin providers are. An engine that is not there on this
 * machine has "error" with the reason. */
TREADLE_API treadle_status treadle_engines_list(const treadle_model_options *options, char **out_json,
                                                treadle_error *error);

/* --- looking at a folder without loading weights. A report holds the messages of one check. */

typedef enum treadle_message_level {
    TREADLE_MESSAGE_ERROR,
    TREADLE_MESSAGE_WARNING,
    TREADLE_MESSAGE_NOTE
} treadle_message_level;

typedef struct treadle_message {
    treadle_message_level level;
    const char *file;      /* path as given; "" if none */
    const char *pointer;   /* JSON pointer; "" is the whole document or no place */
    uint32_t line, column; /* from 1, in bytes; 0: none */
    const char *message;   /* without the location; strings live as long as the report */
} treadle_message;

typedef struct treadle_report treadle_report;

/* Checks config and graphs against each other, and that the graphs' ops and files of weights are there. Problems of the
 * folder are messages, not a failed status: TREADLE_OK comes with any report; other statuses mean that no check could
 * be made (no such folder, out of memory). */
TREADLE_API treadle_status treadle_model_check(const char *path, const treadle_model_options *options,
                                               treadle_report **out, treadle_error *error);
TREADLE_API void treadle_report_free(treadle_report *report);
TREADLE_API size_t treadle_report_count(const treadle_report *report);
TREADLE_API size_t treadle_report_errors(const treadle_report *report); /* how many of them are errors */
/* index < treadle_report_count. */
TREADLE_API void treadle_report_get(const treadle_report *report, size_t index, treadle_message *out);
/* {"messages": [{"level": "error|warning|note", "file", "pointer", "line", "column", "message"}]}; treadle_free. */
TREADLE_API treadle_status treadle_report_json(const treadle_report *report, char **out_json, treadle_error *error);

/* The expanded config with the origin of every value, and the plan. json: {"config": {...}, "origins": {pointer:
 * source}, "plan": {"steps", "wires", "roles", "state", "positions", "feeds"}, "notes": [...]}; else the same as
 * text for people. treadle_free. */
TREADLE_API treadle_status treadle_model_explain(const char *path, const treadle_model_options *options, bool json,
                                                 char **out, treadle_error *error);

/* The folder's config as text of a version 2 file that plans the same. A version 1 file is translated; what it
 * says that the graphs do not have is left out. report (may be NULL): the messages of a check of the old
 * config, and what was left out, as warnings; treadle_report_free. treadle_free for the text. Errors: the
 * config cannot be read at all. */
TREADLE_API treadle_status treadle_model_convert_config(const char *path, const treadle_model_options *options,
                                                        char **out_json, treadle_report **report, treadle_error *error);

/* Sessions, inputs and outputs, state, ops, weights, and the memory that a timeline of context_length tokens takes
 * (0: the model's max_length). json: {"sessions": [{"name", "file", then as treadle_file_inspect}], "plan": as
 * treadle_model_explain, "memory": {"context_length", "weights_bytes", "state_bytes"}, "metadata": the config's, if it
 * has one}; else text for people. treadle_free. */
TREADLE_API treadle_status treadle_model_inspect(const char *path, const treadle_model_options *options,
                                                 int64_t context_length, bool json, char **out, treadle_error *error);

#ifdef __cplusplus
}
#endif
#endif
