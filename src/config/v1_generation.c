/* config/v1_generation.c - ids, search options and preprocessing of version 1. */
#include "config/v1.h"

/* --- tokens */

/* Single ids below zero are unset. */
static void add_id(td_v1 *v, td_json *tokens, const char *theirs, const char *ours) {
    const td_json *id = td_json_get(v->model, theirs);
    if (id && !(id->kind == TD_JSON_INT && id->as_int < 0)) td_v1_copy(v, tokens, ours, id);
}

/* What the type's row says, where the file says nothing and the vocabulary holds it. */
static void add_marker(td_v1 *v, td_json *tokens, const char *ours, int32_t id) {
    int64_t vocab = td_json_int_or(v->model, "vocab_size", 0);
    if (id > 0 && (vocab <= 0 || id < vocab) && !td_json_get(tokens, ours))
        td_v1_int(v, tokens, ours, id, td_json_get(v->model, "type"));
}

static void add_tokens(td_v1 *v) {
    static const struct {
        const char *theirs, *ours;
    } rows[] = {
        {"bos_token_id", "bos"},
        {"pad_token_id", "pad"},
        {"decoder_start_token_id", "decoder_start"},
        {"blank_id", "blank"},
        {"image_token_id", "image_token"},
        {"video_token_id", "video_token"},
        {"audio_token_id", "audio_token"},
        {"boa_token_id", "audio_start"},
        {"audio_start_token_id", "audio_start"},
        {"vision_start_token_id", "vision_start"},
        {"bot_token_id", "tool_call_start"},
        {"eot_token_id", "tool_call_end"},
        {"bor_token_id", "reasoning_start"},
        {"eor_token_id", "reasoning_end"},
    };
    td_json *tokens = td_v1_object(v, v->out, "tokens", v->model);
    for (size_t i = 0; i < TD_COUNT(rows); i++) add_id(v, tokens, rows[i].theirs, rows[i].ours);
    const td_json *eos = td_json_get(v->model, "eos_token_id");
    if (eos && !(eos->kind == TD_JSON_ARRAY && eos->n == 0)) td_v1_copy(v, tokens, "eos", eos);
    else add_id(v, tokens, "pad_token_id", "eos");
    if (!v->type) return;
    const td_json *start = v->type->decoder_start ? td_json_get(v->model, v->type->decoder_start) : NULL;
    if (start && start->kind == TD_JSON_ARRAY) start = start->first;
    if (start && !td_json_get(tokens, "decoder_start")) td_v1_copy(v, tokens, "decoder_start", start);
    add_marker(v, tokens, "tool_call_start", v->type->tool_call_start);
    add_marker(v, tokens, "tool_call_end", v->type->tool_call_end);
    add_marker(v, tokens, "reasoning_start", v->type->reasoning_start);
    add_marker(v, tokens, "reasoning_end", v->type->reasoning_end);
}

/* --- search */

/* Zero and less mean that nothing was said. */
static void add_positive(td_v1 *v, td_json *to, const char *ours, const td_json *from, const char *theirs) {
    const td_json *value = td_json_get(from, theirs);
    if (value && !(value->kind == TD_JSON_INT && value->as_int <= 0) &&
        !(value->kind == TD_JSON_DOUBLE && value->as_double <= 0))
        td_v1_copy(v, to, ours, value);
}

static void add_sampling(td_v1 *v, td_json *generation, const td_json *search) {
    static const char *const keys[] = {"do_sample", "temperature", "repetition_penalty", "no_repeat_ngram_size"};
    td_json *sampling = td_v1_object(v, generation, "sampling", search);
    for (size_t i = 0; i < TD_COUNT(keys); i++) td_v1_copy(v, sampling, keys[i], td_json_get(search, keys[i]));
    add_positive(v, sampling, "top_p", search, "top_p");
    const td_json *seed = td_json_get(search, "random_seed"), *top_k = td_json_get(search, "top_k");
    if (seed && !(seed->kind == TD_JSON_INT && seed->as_int < 0)) td_v1_copy(v, sampling, "seed", seed);
    if (top_k) td_v1_copy(v, sampling, "top_k", top_k);
    else if (td_json_bool_or(search, "do_sample", false))
        td_v1_int(v, sampling, "top_k", 50,
                  td_json_get(search, "do_sample")); /* what version 1 means by saying nothing */
}

static void add_beam(td_v1 *v, td_json *generation, const td_json *search) {
    static const char *const keys[] = {"length_penalty", "num_beams", "num_return_sequences"};
    size_t n = td_json_int_or(search, "num_beams", 1) > 1 ? TD_COUNT(keys) : 1; /* a request may ask for beams itself */
    if (!search) return;
    td_json *beam = td_v1_object(v, generation, "beam", search);
    for (size_t i = 0; i < n; i++) td_v1_copy(v, beam, keys[i], td_json_get(search, keys[i]));
    const td_json *stop = td_json_get(search, "early_stopping");
    if (stop) td_v1_copy(v, beam, "early_stopping", stop);
    else td_v1_bool(v, beam, "early_stopping", true, search);
}

static void add_search(td_v1 *v) {
    const td_json *search = td_json_get(v->root, "search");
    td_json *generation = td_v1_object(v, v->out, "generation", search ? search : v->model);
    add_positive(v, generation, "context_length", v->model, "context_length");
    add_positive(v, generation, "max_length", search, "max_length");
    if (!td_json_get(generation, "max_length")) add_positive(v, generation, "max_length", v->model, "context_length");
    add_positive(v, generation, "min_length", search, "min_length");
    add_positive(v, generation, "prefill_chunk", search, "chunk_size");
    add_positive(v, generation, "max_symbols_per_step", v->model, "max_symbols_per_step");
    const td_json *durations = td_json_get(v->model, "tdt_durations");
    if (durations && durations->n) td_v1_copy(v, generation, "durations", durations);
    td_v1_copy(v, generation, "blank_penalty", td_json_get(search, "blank_penalty"));
    if (v->type && v->type->reprefill_at)
        td_v1_int(v, generation, "reprefill_at", v->type->reprefill_at, td_json_get(v->model, "type"));
    if (v->type && v->type->transcribes_from) {
        const td_json *type = td_json_get(v->model, "type");
        bool multilingual = td_json_int_or(v->model, "vocab_size", 0) >= v->type->transcribes_from;
        td_v1_bool(v, td_v1_object(v, generation, "transcription", type), "multilingual", multilingual, type);
    }
    if (!search) return;
    add_sampling(v, generation, search);
    add_beam(v, generation, search);
}

void td_v1_generation(td_v1 *v) {
    add_tokens(v);
    add_search(v);
}

/* --- preprocessing */

static void add_prompt(td_v1 *v, td_json *entry, const td_v1_prompt *p, const td_json *origin) {
    if (!p || !entry) return;
    td_json *prompt = td_v1_object(v, entry, "prompt", origin);
    td_v1_string(v, prompt, "placeholder", td_str_from(p->placeholder), origin);
    td_json *expand = td_v1_object(v, prompt, "expand", origin);
    td_v1_string(v, expand, "count", td_str_from(p->count), origin);
    if (p->token) td_v1_string(v, expand, "token", td_str_from(p->token), origin);
    if (p->row_break) td_v1_string(v, expand, "row_break", td_str_from(p->row_break), origin);
    if (p->end) td_v1_string(v, expand, "end", td_str_from(p->end), origin);
}

/* The file that a section names, or that it means by naming none, if the folder has it. */
static td_json *add_file(td_v1 *v, const char *kind, const td_json *section, const char *usual) {
    const td_json *said = td_json_get(section, "config_filename");
    td_str name = said ? td_json_string_or(section, "config_filename", "") : td_str_from(usual);
    if (name.n == 0) return NULL;
    if (!td_v1_file_exists(v, name)) {
        if (said) td_v1_note(v, said, "the folder has no such file: what it would preprocess has to come as tensors");
        return NULL;
    }
    td_json *all =
        td_v1_object(v, td_v1_object(v, v->out, "pipeline", v->model), "preprocessing", section ? section : v->model);
    td_json *entry = td_v1_object(v, all, kind, section ? section : v->model);
    td_v1_string(v, entry, "config", name, said ? said : section ? section : v->model);
    td_v1_string(v, entry, "format", TD_STR("ort-extensions"), said ? said : section ? section : v->model);
    return entry;
}

/* The mel options that stand in the model itself, as an inline config of the flat form. */
static void add_mel(td_v1 *v) {
    static const struct {
        const char *theirs, *ours;
    } rows[] = {
        {"num_mels", "feature_size"},
        {"sample_rate", "sampling_rate"},
        {"fft_size", "n_fft"},
        {"win_length", "win_length"},
        {"hop_length", "hop_length"},
        {"preemph", "preemphasis"},
        {"log_eps", "log_eps"},
        {"norm_eps", "norm_eps"},
        {"chunk_samples", "chunk_samples"},
        {"left_context_samples", "left_context_samples"},
        {"right_context_samples", "right_context_samples"},
    };
    const td_json *mels = td_json_get(v->model, "num_mels");
    if (td_json_int_or(v->model, "num_mels", 0) <= 0) return;
    td_json *all = td_v1_object(v, td_v1_object(v, v->out, "pipeline", v->model), "preprocessing", mels);
    td_json *entry = td_v1_object(v, all, "audio", mels);
    if (!entry || td_json_get(entry, "config")) return;
    td_json *config = td_v1_object(v, entry, "config", mels);
    for (size_t i = 0; i < TD_COUNT(rows); i++)
        td_v1_copy(v, config, rows[i].ours, td_json_get(v->model, rows[i].theirs));
    td_v1_string(v, entry, "format", TD_STR("flat"), mels);
}

void td_v1_preprocessing(td_v1 *v) {
    const td_json *vision = td_json_get(v->model, "vision"), *speech = td_json_get(v->model, "speech");
    const td_json *encoder = td_json_get(v->model, "encoder"), *type = td_json_get(v->model, "type");
    bool hears = speech || td_json_get(td_json_get(encoder, "inputs"), "audio_features");
    td_json *image = vision ? add_file(v, "image", vision, "processor_config.json") : NULL;
    td_json *audio = hears ? add_file(v, "audio", speech, "audio_processor_config.json") : NULL;
    add_prompt(v, image, v->type ? v->type->image : NULL, type);
    add_prompt(v, audio, v->type ? v->type->audio : NULL, type);
    add_mel(v);
}
