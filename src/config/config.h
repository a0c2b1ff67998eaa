/* config/config.h - a model folder's config: bytes in, one expanded, immutable, printable tree out.
 *
 *   genai_config.json --parse--> (version 1 --translate-->) tree --settings, check, preset--> + generation_config.json,
 *   tokenizer files --> td_config
 *
 * Without a genai_config.json (or without a pipeline in it) the sessions are the .onnx files of the folder. The flow
 * may stay empty: the plan then finds it from the graphs. Every value of the tree knows its source (config/tree.h). All
 * problems are collected as messages; a config with errors is still returned as far as it could be read, so that the
 * plan can check more. Source: the contract of the config, sections 1, 5 and 6. */
#ifndef TD_CONFIG_CONFIG_H
#define TD_CONFIG_CONFIG_H

#include "config/files.h"
#include "config/tree.h"
#include "names/words.h"

typedef struct td_rename { /* one row of io: role or wire name to graph name */
    td_str from, to;
    const td_json *json;
} td_rename;

typedef struct td_config_session {
    td_str name;
    const char *path; /* the graph, ready to open; NULL: it has an error */
    td_engine_kind engine;
    td_str provider; /* as the engine's list spells it; empty: CPU */
    const td_rename *inputs, *outputs;
    size_t n_inputs, n_outputs;
    const td_str *optional; /* inputs that get zero rows when nothing feeds them */
    size_t n_optional;
    /* For the engine, not looked into here; NULL: none. */
    const td_json *provider_options, *session_options, *run_options;
    const td_json *json; /* for places; never NULL */
    const td_json *file; /* likewise; may be NULL */
} td_config_session;

/* How many rows of a per_image loop's tensor belong to an image. */
typedef enum td_loop_rows {
    TD_LOOP_ROWS_ONE,    /* one each: dimension 0 counts images */
    TD_LOOP_ROWS_GRID,   /* t * h * w of the session's own integer input [images, 3] */
    TD_LOOP_ROWS_SOURCE, /* the same of the tensor named by loop_rows_source */
} td_loop_rows;

typedef struct td_config_step {
    td_str run;
    td_when when;
    td_loop loop;
    td_str loop_over; /* the input whose dimension 0 is sliced; empty: the session's first fed one */
    td_loop_rows loop_rows;
    td_str loop_rows_source;
    td_str crop_source; /* dynamic_shape: row i of this tensor has the sizes that slice i is cropped to; empty: none */
    const int32_t *crop_dims; /* which dimensions (that of the slice counted in), in the order of the row's columns */
    size_t n_crop_dims;
    td_str cross_attention_from; /* the session whose outputs are the cross cache; empty: found from the graphs */
    td_modality if_present;
    const td_str *release; /* sessions whose weights are dropped once this step has run, to save memory */
    size_t n_release;
    const td_json *json, *run_json, *loop_over_json; /* places; the last may be NULL */
    bool from_preset;
} td_config_step;

typedef struct td_config_wire {
    td_str from, to; /* "session.tensor" */
    bool hold;
    const td_json *json, *from_json, *to_json;
} td_config_wire;

/* --- state: what is declared goes over what the graph shows */

typedef struct td_config_window {
    int64_t size; /* columns that a cache keeps; 0: no window declared */
    const int32_t *layers;
    size_t n_layers;   /* 0: every layer */
    bool slide_inputs; /* the prompt goes in as windows of `size` ids */
    bool slide_cache;  /* false: the graph slides the cache itself. Default: true */
    int32_t pad_value; /* id of a window's padding. Default: 0 */
    td_alignment alignment;
    const td_json *json; /* NULL: none */
} td_config_window;

/* One declared pair; names are "session.tensor", or "tensor" of the only session with it. */
typedef struct td_config_recurrent {
    td_str input, output;
    double init;      /* every element at the start. Default: 0 */
    td_str init_from; /* an output "session.tensor" that gives the start instead; empty: none */
    const td_json *json, *input_json, *output_json;
} td_config_recurrent;

typedef struct td_config_state {
    td_kv_format kv_format;
    td_str past_key, past_value, present_key, present_value, past, present; /* patterns; empty: found by name */
    td_present kv_present;
    int64_t heads, head_dim; /* of keys and values, where the graph leaves them free; 0: not said */
    td_config_window window;
    td_str cross_source; /* the session that makes the cross cache; empty: found */
    const td_config_recurrent *recurrent;
    size_t n_recurrent;
    td_position position;
    td_str position_input;    /* empty: found by name */
    td_str grid_source;       /* mRoPE: "session.tensor" or a request tensor with the image grids; empty: found */
    int64_t merge_size;       /* patches that make one token, per side; 0: not said */
    double tokens_per_second; /* of a video; 0: not said */
    const td_json *json, *position_json; /* may be NULL */
} td_config_state;

/* --- tokens */

typedef struct td_token_list {
    const int32_t *ids;
    size_t n;
} td_token_list;

/* Those that the runtime asks for; single ids: -1 is none. */
typedef struct td_config_tokens {
    td_token_list eos;
    int32_t bos, pad, blank;
    td_token_list decoder_start;
    int32_t image, video, audio; /* placeholders in a prompt, one per feature row */
    const td_json *json;         /* may be NULL */
} td_config_tokens;

/* --- generation */

typedef struct td_sampling { /* values in effect; see treadle_generate_options for the meaning */
    bool do_sample;
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k, no_repeat_ngram_size;
    int64_t seed; /* -1: none */
} td_sampling;

typedef enum td_early_stopping {
    TD_EARLY_STOPPING_NO,
    TD_EARLY_STOPPING_YES,
    TD_EARLY_STOPPING_NEVER
} td_early_stopping;

typedef struct td_config_beam {
    int64_t num_beams;     /* 1: no beam search */
    double length_penalty; /* default 1 */
    td_early_stopping early_stopping;
    int64_t num_return_sequences; /* at most num_beams; default 1 */
} td_config_beam;

typedef struct td_named_token {
    td_str name;
    int32_t id;
} td_named_token;

typedef struct td_alignment_head {
    int32_t layer, head;
} td_alignment_head;

/* generation.transcription: how a speech recogniser's decoder is prompted and how its timestamps read. Our addition to
 * the format; what is not declared comes from the generation_config.json that such models ship. Ids: -1 is none. */
typedef struct td_config_transcription {
    bool declared;     /* there is such a section */
    bool multilingual; /* the prompt holds a language and a task. Default: whether there are languages */
    const td_named_token *languages, *tasks; /* "en", "transcribe", ... without brackets */
    size_t n_languages, n_tasks;
    td_str language, task; /* defaults; empty: detected, "transcribe" */
    int32_t no_timestamps, previous_text;
    int32_t timestamp_begin;                  /* the id of 0.00 seconds. Default: no_timestamps + 1 */
    bool timestamps;                          /* default of a request */
    int64_t max_initial_timestamp;            /* steps after timestamp_begin; -1: no limit */
    double timestamp_seconds;                 /* of one step. Default: 0.02 */
    const td_alignment_head *alignment_heads; /* cross-attention heads that follow the audio */
    size_t n_alignment_heads;
    const td_json *json; /* NULL: none */
} td_config_transcription;

typedef struct td_config_generation {
    int64_t max_length, max_new_tokens, min_length, context_length, prefill_chunk; /* -1: not said */
    int64_t min_new_tokens, source_ngram_size;                                     /* 0: off */
    const td_json *max_length_json, *context_length_json;
    td_sampling sampling;
    td_config_beam beam;
    const td_str *stop;
    size_t n_stop;
    td_token_list suppress;            /* never chosen */
    td_token_list begin_suppress;      /* not chosen as the first new token */
    td_token_list bad_words;           /* never completed: the ids of each, then -1 */
    int32_t forced_first, forced_last; /* the first new token, and the one at the limit; -1: free */
    int64_t reprefill_at;              /* a timeline that reaches this length is run again from its start; -1: never */
    /* transducers */
    double blank_penalty;         /* taken off the blank's logit. Default: 0 */
    int64_t max_symbols_per_step; /* tokens per encoder frame; -1: not said */
    const int32_t *durations;     /* frames that each entry of the duration logits skips */
    size_t n_durations;
    td_config_transcription transcription;
} td_config_generation;

/* --- the rest */

typedef struct td_config_pooling {
    bool declared;   /* by the config, or by the files of sentence-transformers */
    td_pooling mode; /* default: mean */
    bool normalize;
    const td_json *json; /* NULL: none */
} td_config_pooling;

typedef struct td_config_plugin {
    const char *library;     /* as written; NULL: no plugin */
    const char *path;        /* its real path, which an allowed folder holds; NULL: not allowed (an error) */
    const char *entry_point; /* NULL: the usual one */
    const td_json *json;
} td_config_plugin;

typedef enum td_preprocess_kind {
    TD_PREPROCESS_IMAGE,
    TD_PREPROCESS_AUDIO,
    TD_PREPROCESS_TEXT,
    TD_PREPROCESS_KINDS
} td_preprocess_kind;

typedef struct td_config_preprocess { /* checked for its form here; the media module gives it meaning */
    td_preprocess_format format;
    const char *path; /* the config file, inside the folder, ready to open; NULL: config is inline or has an error */
    const td_json *config;           /* a string (path is set) or an object */
    const td_json *expected_outputs; /* object of name to {rank, dtype}, or NULL */
    const td_json *prompt;           /* object or NULL */
    const td_json *json;             /* NULL: no such entry */
} td_config_preprocess;

typedef struct td_config {
    td_arena arena;
    const td_model_files *files; /* never NULL */
    const char *dir;             /* the model folder */
    const char *file;            /* the config file; NULL: none */
    td_json *root;               /* the expanded tree, an object; never NULL */
    /* 2, 1, or 0 without a config. What a version 1 file says about a graph is a hint: names, wires, pairs
     * and patterns that the graph does not have, and dtypes or kinds that differ, give a note where a
     * version 2 file gives an error. */
    int version;

    td_config_session *sessions;
    size_t n_sessions;
    td_config_step *steps;
    size_t n_steps; /* 0: found by the plan, as where a preset's flow names sessions that are not declared */
    td_config_wire *wires;
    size_t n_wires;

    td_config_state state;
    td_config_tokens tokens;
    td_config_generation generation;
    td_config_pooling pooling;
    td_config_plugin plugin;
    td_config_preprocess preprocess[TD_PREPROCESS_KINDS];
} td_config;

typedef struct td_config_options {
    bool strict;
    const treadle_setting *settings;
    size_t n_settings;
    const char *const *plugin_dirs; /* folders whose libraries may be loaded. None: no plugins */
    size_t n_plugin_dirs;
    /* The host's engine for all sessions, whatever they say. NULL: none */
    const char *engine;
    /* The execution providers of an engine, NULL-terminated; NULL: the engine itself is missing, *why (in memory
     * that outlives the messages) says why. Asked only if a session wants more than light on the CPU. No
     * function: there is no other engine. */
    const char *const *(*list_providers)(td_engine_kind engine, void *context, const char **why);
    void *context;
} td_config_options;

/* Reads the config of a model folder, or of one .onnx file; the files must outlive it. Problems go to
 * messages (whose arena must outlive their use); the status is not OK only if nothing could be read: out of
 * memory. options NULL: defaults. */
treadle_status td_config_load(const td_model_files *files, const td_config_options *options, td_messages *messages,
                              td_config **out, treadle_error *err);
void td_config_free(td_config *config);

/* The same from text, for a folder that holds the graphs; label and path as messages show them. */
treadle_status td_config_parse(td_str text, const char *path, const char *dir, const td_config_options *options,
                               td_messages *messages, td_config **out, treadle_error *err);

/* --- the stages, in order; each returns false when out of memory */
/* v1: only the settings that point into a version 1 file, which is then the tree; else only the others. */
bool td_config_apply_settings(td_config *c, const td_config_options *options, bool v1, td_messages *messages);
bool td_config_apply_preset(td_config *c, td_messages *messages);
bool td_config_apply_generation_file(td_config *c, td_messages *messages);
bool td_config_apply_tokenizer_files(td_config *c, td_messages *messages);
bool td_config_apply_model_file(td_config *c, td_messages *messages);
bool td_config_apply_transcription(td_config *c, td_messages *messages);
bool td_config_apply_pooling_files(td_config *c, td_messages *messages);
bool td_config_find_sessions(td_config *c, td_messages *messages);
bool td_config_read(td_config *c, const td_config_options *options, td_messages *messages);

/* A source for values that come from `label`; NULL: out of memory. */
const td_source *td_config_source(td_config *c, const char *label, const char *path, td_str text);

#endif
