/* config/v1_sessions.c - the sections of a version 1 model that name a file: sessions, their providers and options, and
 * the names of their inputs and outputs where they differ from the roles'. */
#include "config/v1.h"

typedef struct io_row {
    const char *section, *key, *role;
} io_row;

/* Inputs whose name a section may change, and what they are to the runtime. */
static const io_row input_rows[] = {
    {"encoder", "input_ids", "input_ids"},
    {"encoder", "inputs_embeds", "inputs_embeds"},
    {"encoder", "attention_mask", "attention_mask"},
    {"encoder", "position_ids", "position_ids"},
    {"encoder", "audio_features", "audio_features"},
    {"decoder", "input_ids", "input_ids"},
    {"decoder", "targets", "input_ids"},
    {"decoder", "inputs_embeds", "inputs_embeds"},
    {"decoder", "attention_mask", "attention_mask"},
    {"decoder", "position_ids", "position_ids"},
    {"decoder", "past_key_values_length", "past_sequence_length"},
    {"decoder", "past_sequence_length", "past_sequence_length"},
    {"decoder", "current_sequence_length", "total_sequence_length"},
    {"decoder", "total_sequence_length", "total_sequence_length"},
    {"decoder", "cache_indirection", "cache_indirection"},
    {"decoder", "encoder_attention_mask", "encoder_attention_mask"},
    {"decoder", "cumulative_sequence_lengths", "cumulative_sequence_length"},
    {"decoder", "block_table", "block_table"},
    {"embedding", "input_ids", "input_ids"},
    {"vision", "pixel_values", "pixel_values"},
    {"vision", "image_sizes", "image_sizes"},
    {"vision", "image_grid_thw", "image_grid_thw"},
    {"vision", "attention_mask", "image_attention_mask"},
    {"vision", "pixel_position_ids", "pixel_position_ids"},
    {"speech", "audio_embeds", "audio_embeds"},
    {"speech", "attention_mask", "audio_attention_mask"},
    {"speech", "audio_sizes", "audio_sizes"},
    {"speech", "audio_projection_mode", "audio_projection_mode"},
};
static const io_row output_rows[] = {{"decoder", "logits", "logits"}, {"joiner", "logits", "logits"}};

static void add_renames(td_v1 *v, td_json *session, const char *section_name, const td_json *section) {
    const td_json *inputs = td_json_get(section, "inputs"), *outputs = td_json_get(section, "outputs");
    for (size_t i = 0; i < TD_COUNT(input_rows) + TD_COUNT(output_rows); i++) {
        bool in = i < TD_COUNT(input_rows);
        const io_row *row = in ? &input_rows[i] : &output_rows[i - TD_COUNT(input_rows)];
        const td_json *name = td_json_get(in ? inputs : outputs, row->key);
        if (strcmp(row->section, section_name) != 0 || !name || name->kind != TD_JSON_STRING) continue;
        if (name->string.n == 0 || td_str_is(name->string, row->role)) continue;
        td_json *io = td_v1_object(v, session, "io", section);
        td_v1_copy(v, td_v1_object(v, io, in ? "inputs" : "outputs", section), row->role, name);
    }
}

/* The first provider of the list that is not the CPU's becomes the session's. */
static void add_provider(td_v1 *v, td_json *session, const td_json *options) {
    const td_json *list = td_json_get(options, "provider_options");
    for (const td_json *entry = list && list->kind == TD_JSON_ARRAY ? list->first : NULL; entry; entry = entry->next) {
        const td_json *provider = entry->kind == TD_JSON_OBJECT ? entry->first : NULL;
        if (!provider || td_str_is(provider->key, "cpu") || td_str_is(provider->key, "CPUExecutionProvider")) continue;
        td_v1_string(v, session, "execution_provider", provider->key, provider);
        if (provider->n) td_v1_copy(v, session, "provider_options", provider);
        return;
    }
}

static void add_options(td_v1 *v, td_json *session, const td_json *section, const td_json *fallback) {
    const td_json *options = td_json_get(section, "session_options"), *run = td_json_get(section, "run_options");
    if (!options) options = fallback;
    for (const td_json *o = options && options->kind == TD_JSON_OBJECT ? options->first : NULL; o; o = o->next) {
        if (td_str_is(o->key, "provider_options") || td_str_is(o->key, "log_id")) continue;
        char *key = td_arena_strndup(&v->c->arena, o->key.p, o->key.n);
        if (!key) v->failed = true;
        else td_v1_copy(v, td_v1_object(v, session, "session_options", options), key, o);
    }
    add_provider(v, session, options);
    if (run && run->n) td_v1_copy(v, session, "run_options", run);
}

void td_v1_add_session(td_v1 *v, td_str name, const td_json *section, const td_json *fallback) {
    td_json *sessions = td_v1_object(v, td_v1_object(v, v->out, "pipeline", v->model), "sessions", v->model);
    char *key = td_arena_strndup(&v->c->arena, name.p, name.n);
    td_json *session = key ? td_v1_object(v, sessions, key, section) : NULL;
    if (!key) v->failed = true;
    td_v1_copy(v, session, "file", td_json_get(section, "filename"));
    add_options(v, session, section, fallback);
}

/* As without a config: what lies in a folder as model.onnx has the folder's name. A section called decoder without a
 * decoder in it is just a model. */
td_str td_v1_session_name(const td_v1 *v, const char *section_name) {
    const td_json *section = td_json_get(v->model, section_name);
    td_str file = td_json_string_or(section, "filename", "");
    if (file.n == 0) return file;
    if (td_str_ends(file, TD_STR("/model.onnx"))) {
        td_str folder = {file.p, file.n - strlen("/model.onnx")};
        size_t start = folder.n;
        while (start > 0 && folder.p[start - 1] != '/') start--;
        if (start < folder.n) return (td_str){folder.p + start, folder.n - start};
    }
    bool encodes = v->type && v->type->encodes;
    bool no_end = !td_json_get(v->model, "eos_token_id") && !td_json_get(v->model, "bos_token_id");
    const td_json *inputs = td_json_get(section, "inputs");
    bool segments = td_json_get(inputs, "token_type_ids") && !td_json_get(inputs, "position_ids");
    if (strcmp(section_name, "decoder") == 0 && (encodes || (no_end && segments))) return TD_STR("model");
    return td_str_from(section_name);
}

void td_v1_sessions(td_v1 *v) {
    static const char *const sections[] = {"vision", "speech", "embedding", "encoder", "decoder", "joiner"};
    const td_json *decoder_options = td_json_get(td_json_get(v->model, "decoder"), "session_options");
    for (size_t i = 0; i < TD_COUNT(sections); i++) {
        td_str name = td_v1_session_name(v, sections[i]);
        const td_json *section = td_json_get(v->model, sections[i]);
        if (name.n == 0) continue;
        td_v1_add_session(v, name, section, decoder_options);
        const td_json *made = td_json_get(td_json_get(v->out, "pipeline"), "sessions");
        add_renames(v, td_json_get_str(made, name), sections[i], section);
        if (td_json_string_or(section, "adapter_filename", "").n)
            td_v1_note(v, td_json_get(section, "adapter_filename"), "the adapter is not used");
    }
}
