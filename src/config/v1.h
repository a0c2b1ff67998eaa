/* config/v1.h - what the files share that translate a version 1 config (a root with "model", no "version")
 * into the tree of a version 2 one.
 *
 * Every translated value remembers the one it came from, so messages and origins show where it stands in the file. What
 * version 1 says about a graph is a hint: the plan lets the graph win. What depends on model.type is in one table
 * (v1_types.c) and nowhere else; an unknown type has no row and is run by its structure.
 * Source: the schema of version 1 as ONNX Runtime GenAI reads it; the contract of the config, section 7. */
#ifndef TD_CONFIG_V1_H
#define TD_CONFIG_V1_H

#include "config/config.h"

typedef enum td_v1_loop {                   /* how a type's vision graph takes several images */
                          TD_V1_LOOP_FOUND, /* the plan finds out */
                          TD_V1_LOOP_BATCHED,
                          TD_V1_LOOP_IMAGES, /* one run per image */
                          TD_V1_LOOP_GRID,   /* one run per image, rows counted by the grid */
                          TD_V1_LOOP_CROP,   /* one run per image, cropped to image_sizes */
} td_v1_loop;

typedef struct td_v1_prompt { /* preprocessing.*.prompt; NULL: absent */
    const char *placeholder, *token, *count, *row_break, *end;
} td_v1_prompt;

typedef struct td_v1_type {
    const char *name; /* model.type */
    td_v1_loop loop;
    const td_v1_prompt *image, *audio;
    int32_t tool_call_start, tool_call_end, reasoning_start, reasoning_end; /* 0: none */
    int32_t reprefill_at;                                                   /* 0: never */
    const char *decoder_start; /* the file's id that a decoder starts from; NULL: bos */
    int32_t transcribes_from;  /* a speech recogniser; multilingual from this size of vocabulary on. 0: none */
    bool encodes;              /* no decoder: an encoder of text alone */
} td_v1_type;

/* NULL: the type has no row. */
const td_v1_type *td_v1_find_type(td_str name);

typedef struct td_v1 {
    td_config *c;
    td_messages *messages;
    const td_json *root, *model; /* of the file */
    const td_v1_type *type;      /* may be NULL */
    td_json *out, *pipeline;     /* of the translation */
    size_t n_wires;
    bool failed; /* out of memory: nothing more is done */
} td_v1;

/* The object under that key, made where it is missing; it stands where origin does. NULL: v->failed. */
td_json *td_v1_object(td_v1 *v, td_json *parent, const char *key, const td_json *origin);
/* Each puts one value; nothing where `from` is NULL, or after a failure. */
void td_v1_copy(td_v1 *v, td_json *parent, const char *key, const td_json *from);
void td_v1_string(td_v1 *v, td_json *parent, const char *key, td_str value, const td_json *origin);
void td_v1_int(td_v1 *v, td_json *parent, const char *key, int64_t value, const td_json *origin);
void td_v1_bool(td_v1 *v, td_json *parent, const char *key, bool value, const td_json *origin);
/* Appends to the array under that key, made where it is missing. */
void td_v1_push(td_v1 *v, td_json *parent, const char *key, td_json *value, const td_json *origin);
td_json *td_v1_new_object(td_v1 *v, const td_json *origin);
void td_v1_note(td_v1 *v, const td_json *at, const char *text);
bool td_v1_file_exists(td_v1 *v, td_str name);

/* --- the parts */
void td_v1_check_keys(const td_json *root, bool strict, td_messages *messages); /* v1_fields.c */
void td_v1_sessions(td_v1 *v);                                                  /* v1_sessions.c */
td_str td_v1_session_name(const td_v1 *v, const char *section);                 /* empty: the section has no file */
void td_v1_add_session(td_v1 *v, td_str name, const td_json *section, const td_json *fallback_options);
void td_v1_stages(td_v1 *v); /* v1_stages.c: decoder.pipeline and vision.pipeline */
td_json *td_v1_step(td_v1 *v, td_str session, const char *when, const td_json *origin);
void td_v1_wire(td_v1 *v, td_str from, td_str output, td_str to, td_str input, const td_json *origin);
void td_v1_flow(td_v1 *v);       /* v1_flow.c: flow, wires, state */
void td_v1_generation(td_v1 *v); /* v1_generation.c: tokens and search */
void td_v1_preprocessing(td_v1 *v);

/* Whether a parsed root is of version 1. */
bool td_config_is_v1(const td_json *root);
/* Translates c->root in place; false: out of memory. */
bool td_config_translate_v1(td_config *c, bool strict, td_messages *messages);

#endif
