/* config/fields.c - the table of a version 2 config. Source: the contract of the config, sections 1 to 5. */
#include "config/fields.h"

#include "names/words.h"

#define ID_MAX 2147483647.0
#define ID_LIST_MAX 1048576
#define COUNT_MAX 9007199254740992.0
#define END                                                                                                            \
    { .key = NULL }
#define INT_FIELD(name, low, high)                                                                                     \
    { .key = name, .kind = TD_FIELD_INT, .min = low, .max = high }
#define INTS_FIELD(name, low, high)                                                                                    \
    { .key = name, .kind = TD_FIELD_INT, .min = low, .max = high, .flags = TD_FIELD_LIST }
#define ID_FIELD(name) INT_FIELD(name, 0, ID_MAX)
#define IDS_FIELD(name) INTS_FIELD(name, 0, ID_MAX)
/* An id, or the token's text. */
#define TOKEN_FIELD(name)                                                                                              \
    { .key = name, .kind = TD_FIELD_INT, .min = 0, .max = ID_MAX, .flags = TD_FIELD_OR_STRING }
#define NUMBER_FIELD(name, low, high)                                                                                  \
    { .key = name, .kind = TD_FIELD_NUMBER, .min = low, .max = high }
#define POSITIVE_FIELD(name)                                                                                           \
    { .key = name, .kind = TD_FIELD_NUMBER, .min = 0, .max = 1e30, .flags = TD_FIELD_OPEN }
#define BOOL_FIELD(name)                                                                                               \
    { .key = name, .kind = TD_FIELD_BOOL }
#define STRING_FIELD(name)                                                                                             \
    { .key = name, .kind = TD_FIELD_STRING }
#define STRINGS_FIELD(name)                                                                                            \
    { .key = name, .kind = TD_FIELD_STRING, .flags = TD_FIELD_LIST }
#define ANY_FIELD(name)                                                                                                \
    { .key = name, .kind = TD_FIELD_ANY }
#define OBJECT_FIELD(name, table)                                                                                      \
    { .key = name, .kind = TD_FIELD_OBJECT, .members = table }
#define WORD_FIELD(name, table, text)                                                                                  \
    { .key = name, .kind = TD_FIELD_WORD, .words = table, .unknown = text }

static const td_field string_value[] = {STRING_FIELD(""), END};

static const td_field io_fields[] = {
    {.key = "inputs", .kind = TD_FIELD_MAP, .members = string_value},
    {.key = "outputs", .kind = TD_FIELD_MAP, .members = string_value},
    STRINGS_FIELD("optional"),
    END,
};

static const td_field session_fields[] = {
    {.key = "file", .kind = TD_FIELD_STRING, .flags = TD_FIELD_REQUIRED},
    STRING_FIELD("execution_provider"),
    ANY_FIELD("provider_options"),
    WORD_FIELD("engine", td_engine_words, "Unknown engine \"%.*s\". Valid options: "),
    ANY_FIELD("session_options"),
    ANY_FIELD("run_options"),
    OBJECT_FIELD("io", io_fields),
    END,
};
static const td_field session_value[] = {{.key = "", .kind = TD_FIELD_OBJECT, .members = session_fields}, END};

static const td_field dynamic_shape_fields[] = {
    {.key = "source", .kind = TD_FIELD_STRING, .flags = TD_FIELD_REQUIRED},
    INTS_FIELD("apply_to_dims", 0, 7),
    END,
};

static const td_field step_fields[] = {
    {.key = "run", .kind = TD_FIELD_STRING, .flags = TD_FIELD_REQUIRED},
    WORD_FIELD("when", td_when_words, "Unknown when \"%.*s\" of a flow step. Valid options: "),
    WORD_FIELD("loop", td_loop_words, "Unknown loop \"%.*s\" of a flow step. Valid options: "),
    STRING_FIELD("loop_over"),
    {.key = "loop_rows", .kind = TD_FIELD_STRING, .flags = TD_FIELD_OR_OBJECT},
    OBJECT_FIELD("dynamic_shape", dynamic_shape_fields),
    STRING_FIELD("cross_attention_from"),
    WORD_FIELD("if_present", td_modality_words, "Unknown modality \"%.*s\". Valid options: "),
    STRINGS_FIELD("release"),
    END,
};

static const td_field wire_fields[] = {
    {.key = "from", .kind = TD_FIELD_STRING, .flags = TD_FIELD_REQUIRED},
    {.key = "to", .kind = TD_FIELD_STRING, .flags = TD_FIELD_REQUIRED},
    BOOL_FIELD("hold"),
    END,
};

static const td_field window_fields[] = {
    {.key = "window_size", .kind = TD_FIELD_INT, .min = 1, .max = COUNT_MAX, .flags = TD_FIELD_REQUIRED},
    INTS_FIELD("layers", 0, 65535),
    BOOL_FIELD("slide_inputs"),
    INT_FIELD("pad_value", 0, ID_MAX),
    WORD_FIELD("alignment", td_alignment_words, "Unknown alignment \"%.*s\" of a window. Valid options: "),
    BOOL_FIELD("slide_key_value_cache"),
    END,
};

static const td_field kv_fields[] = {
    WORD_FIELD("format", td_kv_format_words, "Unknown kv_cache format \"%.*s\". Valid options: "),
    WORD_FIELD("present", td_present_words, "Unknown present \"%.*s\" of kv_cache. Valid options: "),
    STRING_FIELD("past_key_pattern"),
    STRING_FIELD("past_value_pattern"),
    STRING_FIELD("present_key_pattern"),
    STRING_FIELD("present_value_pattern"),
    STRING_FIELD("past_pattern"),
    STRING_FIELD("present_pattern"),
    {.key = "share_buffer", .kind = TD_FIELD_BOOL, .flags = TD_FIELD_OR_STRING},
    INT_FIELD("heads", 1, COUNT_MAX),
    INT_FIELD("head_dim", 1, COUNT_MAX),
    OBJECT_FIELD("sliding_window", window_fields),
    END,
};

static const td_field cross_fields[] = {STRING_FIELD("source"), BOOL_FIELD("frozen"), END};

static const td_field recurrent_fields[] = {
    {.key = "input", .kind = TD_FIELD_STRING, .flags = TD_FIELD_REQUIRED},
    {.key = "output", .kind = TD_FIELD_STRING, .flags = TD_FIELD_REQUIRED},
    {.key = "init", .kind = TD_FIELD_NUMBER, .min = -1e30, .max = 1e30, .flags = TD_FIELD_OR_STRING},
    END,
};

static const td_field position_fields[] = {
    WORD_FIELD("strategy", td_position_words, "Unknown position_ids strategy \"%.*s\". Valid options: "),
    STRING_FIELD("input_name"),
    STRING_FIELD("grid_source"),
    INT_FIELD("merge_size", 1, 1024),
    POSITIVE_FIELD("tokens_per_second"),
    END,
};

static const td_field state_fields[] = {
    OBJECT_FIELD("kv_cache", kv_fields),
    OBJECT_FIELD("cross_cache", cross_fields),
    {.key = "recurrent",
     .kind = TD_FIELD_OBJECT,
     .flags = TD_FIELD_LIST,
     .members = recurrent_fields,
     .what = "state pairs"},
    OBJECT_FIELD("position_ids", position_fields),
    END,
};

static const td_field pooling_fields[] = {
    WORD_FIELD("mode", td_pooling_words, "Unknown pooling mode \"%.*s\". Valid options: "),
    BOOL_FIELD("normalize"),
    END,
};

static const td_field plugin_fields[] = {
    {.key = "library", .kind = TD_FIELD_STRING, .flags = TD_FIELD_REQUIRED},
    STRING_FIELD("entry_point"),
    END,
};

static const td_field expand_fields[] = {
    {.key = "count", .kind = TD_FIELD_INT, .min = 0, .max = COUNT_MAX, .flags = TD_FIELD_OR_STRING},
    TOKEN_FIELD("row_break"),
    TOKEN_FIELD("end"),
    TOKEN_FIELD("start"),
    TOKEN_FIELD("token"),
    END,
};
static const td_field prompt_fields[] = {TOKEN_FIELD("placeholder"), OBJECT_FIELD("expand", expand_fields), END};

static const td_field expected_fields[] = {INT_FIELD("rank", 0, 8), STRING_FIELD("dtype"), END};
static const td_field expected_value[] = {{.key = "", .kind = TD_FIELD_OBJECT, .members = expected_fields}, END};

static const td_field preprocess_fields[] = {
    {.key = "config", .kind = TD_FIELD_STRING, .flags = TD_FIELD_OR_OBJECT},
    WORD_FIELD("format", td_preprocess_format_words, "Unknown preprocessing format \"%.*s\". Valid options: "),
    {.key = "expected_outputs", .kind = TD_FIELD_MAP, .members = expected_value},
    OBJECT_FIELD("prompt", prompt_fields),
    END,
};
static const td_field preprocessing_fields[] = {
    OBJECT_FIELD("image", preprocess_fields),
    OBJECT_FIELD("audio", preprocess_fields),
    OBJECT_FIELD("text", preprocess_fields),
    END,
};

static const td_field pipeline_fields[] = {
    WORD_FIELD("extends", td_preset_words, "Unknown pipeline preset \"%.*s\". Built-in presets: "),
    {.key = "sessions",
     .kind = TD_FIELD_MAP,
     .members = session_value,
     .what = "sessions",
     .max_items = TD_SESSIONS_MAX},
    {.key = "flow",
     .kind = TD_FIELD_OBJECT,
     .flags = TD_FIELD_LIST,
     .members = step_fields,
     .what = "steps",
     .max_items = 10},
    {.key = "dataflow", .kind = TD_FIELD_OBJECT, .flags = TD_FIELD_LIST, .members = wire_fields, .what = "wires"},
    OBJECT_FIELD("state", state_fields),
    OBJECT_FIELD("pooling", pooling_fields),
    OBJECT_FIELD("plugin", plugin_fields),
    OBJECT_FIELD("preprocessing", preprocessing_fields),
    END,
};

static const td_field token_fields[] = {
    IDS_FIELD("eos"),
    ID_FIELD("pad"),
    ID_FIELD("bos"),
    IDS_FIELD("decoder_start"),
    ID_FIELD("blank"),
    ID_FIELD("image_token"),
    ID_FIELD("video_token"),
    ID_FIELD("audio_token"),
    ID_FIELD("vision_start"),
    ID_FIELD("vision_end"),
    ID_FIELD("audio_start"),
    ID_FIELD("audio_end"),
    IDS_FIELD("tool_call_start"),
    IDS_FIELD("tool_call_end"),
    IDS_FIELD("reasoning_start"),
    IDS_FIELD("reasoning_end"),
    END,
};

static const td_field sampling_fields[] = {
    BOOL_FIELD("do_sample"),
    NUMBER_FIELD("temperature", 0, 1e6),
    INT_FIELD("top_k", 0, ID_MAX),
    NUMBER_FIELD("top_p", 0, 1),
    NUMBER_FIELD("min_p", 0, 1),
    POSITIVE_FIELD("repetition_penalty"),
    INT_FIELD("no_repeat_ngram_size", 0, ID_MAX),
    INT_FIELD("seed", 0, COUNT_MAX),
    END,
};

static const td_field beam_fields[] = {
    INT_FIELD("num_beams", 1, 4096),
    NUMBER_FIELD("length_penalty", -1e6, 1e6),
    {.key = "early_stopping", .kind = TD_FIELD_BOOL, .flags = TD_FIELD_OR_STRING},
    INT_FIELD("num_return_sequences", 1, 4096),
    END,
};

static const td_field id_value[] = {ID_FIELD(""), END};

static const td_field transcription_fields[] = {
    {.key = "languages", .kind = TD_FIELD_MAP, .members = id_value},
    {.key = "tasks", .kind = TD_FIELD_MAP, .members = id_value},
    BOOL_FIELD("multilingual"),
    STRING_FIELD("language"),
    STRING_FIELD("task"),
    BOOL_FIELD("timestamps"),
    ID_FIELD("no_timestamps"),
    ID_FIELD("timestamp_begin"),
    ID_FIELD("previous_text"),
    ID_FIELD("no_speech"),
    INT_FIELD("max_initial_timestamp", 0, ID_MAX),
    POSITIVE_FIELD("timestamp_seconds"),
    POSITIVE_FIELD("chunk_seconds"),
    ANY_FIELD("alignment_heads"),
    END,
};

static const td_field generation_fields[] = {
    INT_FIELD("max_length", 1, COUNT_MAX),
    INT_FIELD("max_new_tokens", 0, COUNT_MAX),
    INT_FIELD("min_length", 0, COUNT_MAX),
    INT_FIELD("min_new_tokens", 0, COUNT_MAX),
    INT_FIELD("context_length", 1, COUNT_MAX),
    INT_FIELD("prefill_chunk", 1, COUNT_MAX),
    OBJECT_FIELD("sampling", sampling_fields),
    OBJECT_FIELD("beam", beam_fields),
    STRINGS_FIELD("stop"),
    {.key = "suppress", .kind = TD_FIELD_INT, .max = ID_MAX, .flags = TD_FIELD_LIST, .max_items = ID_LIST_MAX},
    {.key = "begin_suppress", .kind = TD_FIELD_INT, .max = ID_MAX, .flags = TD_FIELD_LIST, .max_items = ID_LIST_MAX},
    ANY_FIELD("bad_words"),
    INT_FIELD("source_no_repeat_ngram_size", 0, COUNT_MAX),
    ID_FIELD("forced_first"),
    ID_FIELD("forced_last"),
    INT_FIELD("reprefill_at", 1, COUNT_MAX),
    NUMBER_FIELD("blank_penalty", -1e30, 1e30),
    INT_FIELD("max_symbols_per_step", 1, 65535),
    INTS_FIELD("durations", 0, 65535),
    OBJECT_FIELD("transcription", transcription_fields),
    END,
};

const td_field td_config_fields[] = {
    {.key = "version", .kind = TD_FIELD_INT, .min = 2, .max = 2},
    OBJECT_FIELD("pipeline", pipeline_fields),
    OBJECT_FIELD("tokens", token_fields),
    OBJECT_FIELD("generation", generation_fields),
    OBJECT_FIELD("pooling", pooling_fields), /* here or in the pipeline */
    ANY_FIELD("metadata"),
    END,
};

const td_field td_config_root = {.key = "", .kind = TD_FIELD_OBJECT, .members = td_config_fields};
