/* config/config.h - a model folder's config: bytes in, one expanded, immutable, printable tree out.
 *
 *   genai_config.json --parse--> tree --settings, check, preset--> + generation_config.json, tokenizer files --> td_config
 *
 * Without a genai_config.json (or without a pipeline in it) the sessions are the .onnx files of the folder. The flow may stay
 * empty: the plan then finds it from the graphs. Every value of the tree knows its source (config/tree.h). All problems are
 * collected as messages; a config with errors is still returned as far as it could be read, so that the plan can check more.
 * Source: the contract of the config, sections 1, 5 and 6. */
#ifndef TD_CONFIG_CONFIG_H
#define TD_CONFIG_CONFIG_H

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
    td_str provider; /* empty: CPU */
    const td_rename *inputs, *outputs;
    size_t n_inputs, n_outputs;
    const td_str *optional; /* inputs that get zero rows when nothing feeds them */
    size_t n_optional;
    const td_json *json; /* for places; never NULL */
    const td_json *file; /* likewise; may be NULL */
} td_config_session;

typedef struct td_config_step {
    td_str run;
    td_when when;
    td_loop loop;
    td_str loop_over;
    const td_json *json, *run_json, *loop_over_json;
    bool from_preset;
} td_config_step;

typedef struct td_config_wire {
    td_str from, to; /* "session.tensor" */
    bool hold;
    const td_json *json, *from_json, *to_json;
} td_config_wire;

typedef struct td_token_list {
    const int32_t *ids;
    size_t n;
} td_token_list;

typedef struct td_sampling { /* values in effect; see treadle_generate_options for the meaning */
    bool do_sample;
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k, no_repeat_ngram_size;
    int64_t seed; /* -1: none */
} td_sampling;

typedef struct td_config {
    td_arena arena;
    const char *dir;  /* the model folder */
    const char *file; /* the config file; NULL: none */
    td_json *root;    /* the expanded tree, an object; never NULL */
    bool has_pipeline;

    td_config_session *sessions;
    size_t n_sessions;
    td_config_step *steps;
    size_t n_steps; /* 0: found by the plan */
    td_config_wire *wires;
    size_t n_wires;

    td_kv_format kv_format;
    td_str past_key, past_value, present_key, present_value, past, present; /* patterns; empty: found by name */
    int64_t window_size;                                                    /* 0: none */
    bool slide_inputs;
    td_position position;
    td_str position_input;
    const td_json *state_json; /* may be NULL */

    bool has_eos; /* something says what ends a text, maybe nothing */
    td_token_list eos;
    int32_t bos, pad; /* -1: none */
    td_token_list decoder_start;

    int64_t max_length, max_new_tokens, min_length, context_length, prefill_chunk; /* -1: not said */
    const td_json *max_length_json, *context_length_json;
    td_sampling sampling;
    const td_str *stop;
    size_t n_stop;
} td_config;

typedef struct td_config_options {
    bool strict;
    const treadle_setting *settings;
    size_t n_settings;
} td_config_options;

/* Reads the config of a model folder, or of one .onnx file. Problems go to messages (whose arena must outlive their use); the
 * status is not OK only if nothing could be read: no such folder, out of memory. options NULL: defaults. */
treadle_status td_config_load(const char *path, const td_config_options *options, td_messages *messages,
                              td_config **out, treadle_error *err);
void td_config_free(td_config *config);

/* The same from text, for a folder that holds the graphs; label and path as messages show them. */
treadle_status td_config_parse(td_str text, const char *path, const char *dir, const td_config_options *options,
                               td_messages *messages, td_config **out, treadle_error *err);

/* --- the stages, in order; each returns false when out of memory */
bool td_config_apply_settings(td_config *c, const td_config_options *options, td_messages *messages);
bool td_config_apply_preset(td_config *c, td_messages *messages);
bool td_config_apply_generation_file(td_config *c, td_messages *messages);
bool td_config_apply_tokenizer_files(td_config *c, td_messages *messages);
bool td_config_find_sessions(td_config *c, const char *only_file, td_messages *messages);
bool td_config_read(td_config *c, td_messages *messages);

/* A source for values that come from `label`; NULL: out of memory. */
const td_source *td_config_source(td_config *c, const char *label, const char *path, td_str text);

#endif
