/* config/v1_fields.c - the keys of version 1, for "unknown key". Values are checked once they are translated, against
 * the table of version 2; what is not translated is not looked into. */
#include "config/fields.h"
#include "config/v1.h"

#define KEY(name)                                                                                                      \
    { .key = name, .kind = TD_FIELD_ANY }
#define OBJECT(name, table)                                                                                            \
    { .key = name, .kind = TD_FIELD_OBJECT, .members = table }
#define END                                                                                                            \
    { .key = NULL }

static const td_field window_fields[] = {
    KEY("window_size"),  KEY("pad_value"), KEY("alignment"),   KEY("slide_key_value_cache"),
    KEY("slide_inputs"), KEY("layers"),    KEY("cache_slack"), END,
};

static const td_field stage_fields[] = {
    KEY("filename"),
    KEY("inputs"),
    KEY("outputs"),
    KEY("output_names_forwarder"),
    KEY("run_on_prompt"),
    KEY("run_on_token_gen"),
    KEY("is_lm_head"),
    KEY("inherit_session_options"),
    KEY("reset_session_idx"),
    KEY("run_on_cpu"),
    KEY("session_options"),
    KEY("run_options"),
    END,
};
static const td_field stage_value[] = {{.key = "", .kind = TD_FIELD_OBJECT, .members = stage_fields}, END};

#define STAGES                                                                                                         \
    { .key = "pipeline", .kind = TD_FIELD_MAP, .flags = TD_FIELD_LIST, .members = stage_value, .what = "stages" }
#define FILE_KEYS KEY("filename"), KEY("session_options"), KEY("run_options")
#define SIZE_KEYS                                                                                                      \
    KEY("hidden_size"), KEY("num_attention_heads"), KEY("num_hidden_layers"), KEY("num_key_value_heads"),              \
        KEY("head_size")

static const td_field encoder_inputs[] = {
    KEY("input_ids"),
    KEY("inputs_embeds"),
    KEY("attention_mask"),
    KEY("position_ids"),
    KEY("audio_features"),
    KEY("input_lengths"),
    KEY("cache_last_channel"),
    KEY("cache_last_time"),
    KEY("cache_last_channel_len"),
    KEY("lang_id"),
    END,
};
static const td_field encoder_outputs[] = {
    KEY("encoder_hidden_states"),   KEY("encoder_outputs"),           KEY("output_lengths"),
    KEY("cache_last_channel_next"), KEY("cache_last_time_next"),      KEY("cache_last_channel_len_next"),
    KEY("cross_present_key_names"), KEY("cross_present_value_names"), END,
};
static const td_field encoder_fields[] = {
    FILE_KEYS, SIZE_KEYS, OBJECT("inputs", encoder_inputs), OBJECT("outputs", encoder_outputs), END,
};

static const td_field decoder_inputs[] = {
    KEY("input_ids"),
    KEY("inputs_embeds"),
    KEY("attention_mask"),
    KEY("position_ids"),
    KEY("past_key_names"),
    KEY("past_value_names"),
    KEY("past_names"),
    KEY("cross_past_key_names"),
    KEY("cross_past_value_names"),
    KEY("past_key_values_length"),
    KEY("past_sequence_length"),
    KEY("current_sequence_length"),
    KEY("total_sequence_length"),
    KEY("cache_indirection"),
    KEY("encoder_hidden_states"),
    KEY("encoder_attention_mask"),
    KEY("rnn_states_prev"),
    KEY("cumulative_sequence_lengths"),
    KEY("past_sequence_lengths"),
    KEY("block_table"),
    KEY("block_table_windowed"),
    KEY("attention_metadata"),
    KEY("past_conv_names"),
    KEY("past_recurrent_names"),
    KEY("past_key_scale_names"),
    KEY("past_value_scale_names"),
    KEY("logits_indices"),
    KEY("hidden_states"),
    KEY("targets"),
    KEY("lstm_hidden_state"),
    KEY("lstm_cell_state"),
    KEY("targets_length"),
    KEY("per_layer_inputs"),
    END,
};
static const td_field decoder_outputs[] = {
    KEY("logits"),
    KEY("present_key_names"),
    KEY("present_value_names"),
    KEY("present_names"),
    KEY("output_cross_qk_names"),
    KEY("rnn_states"),
    KEY("present_conv_names"),
    KEY("present_recurrent_names"),
    KEY("present_key_scale_names"),
    KEY("present_value_scale_names"),
    KEY("aux_hidden_states"),
    KEY("hidden_states"),
    KEY("outputs"),
    KEY("lstm_hidden_state"),
    KEY("lstm_cell_state"),
    KEY("outputs_length"),
    END,
};
static const td_field decoder_fields[] = {
    FILE_KEYS,
    SIZE_KEYS,
    KEY("conv_cache_size"),
    KEY("layer_types"),
    KEY("shared_initializers"),
    KEY("state_groups"),
    KEY("state_update_capacity"),
    OBJECT("sliding_window", window_fields),
    STAGES,
    OBJECT("inputs", decoder_inputs),
    OBJECT("outputs", decoder_outputs),
    END,
};

static const td_field embedding_inputs[] = {KEY("input_ids"), KEY("image_features"), KEY("audio_features"), END};
static const td_field embedding_outputs[] = {KEY("inputs_embeds"), KEY("per_layer_inputs"), END};
static const td_field embedding_fields[] = {FILE_KEYS, OBJECT("inputs", embedding_inputs),
                                            OBJECT("outputs", embedding_outputs), END};

static const td_field vision_inputs[] = {KEY("pixel_values"),   KEY("pixel_position_ids"), KEY("image_sizes"),
                                         KEY("image_grid_thw"), KEY("attention_mask"),     END};
static const td_field vision_outputs[] = {KEY("image_features"), END};
static const td_field vision_fields[] = {
    FILE_KEYS,
    KEY("config_filename"),
    KEY("adapter_filename"),
    KEY("spatial_merge_size"),
    KEY("tokens_per_second"),
    KEY("patch_size"),
    KEY("num_visual_tokens"),
    KEY("window_size"),
    STAGES,
    OBJECT("inputs", vision_inputs),
    OBJECT("outputs", vision_outputs),
    END,
};

static const td_field speech_inputs[] = {KEY("audio_embeds"), KEY("attention_mask"), KEY("audio_sizes"),
                                         KEY("audio_projection_mode"), END};
static const td_field speech_outputs[] = {KEY("audio_features"), END};
static const td_field speech_fields[] = {FILE_KEYS,
                                         KEY("config_filename"),
                                         KEY("adapter_filename"),
                                         OBJECT("inputs", speech_inputs),
                                         OBJECT("outputs", speech_outputs),
                                         END};

static const td_field joiner_inputs[] = {KEY("encoder_outputs"), KEY("decoder_outputs"), END};
static const td_field joiner_outputs[] = {KEY("logits"), END};
static const td_field joiner_fields[] = {FILE_KEYS, OBJECT("inputs", joiner_inputs), OBJECT("outputs", joiner_outputs),
                                         END};

static const td_field model_fields[] = {
    KEY("type"),
    KEY("tokenizer_dir"),
    KEY("vocab_size"),
    KEY("context_length"),
    KEY("pad_token_id"),
    KEY("bos_token_id"),
    KEY("eos_token_id"),
    KEY("sep_token_id"),
    KEY("decoder_start_token_id"),
    KEY("image_token_id"),
    KEY("audio_token_id"),
    KEY("boa_token_id"),
    KEY("audio_start_token_id"),
    KEY("video_token_id"),
    KEY("vision_start_token_id"),
    KEY("bot_token_id"),
    KEY("eot_token_id"),
    KEY("bor_token_id"),
    KEY("eor_token_id"),
    KEY("num_mels"),
    KEY("fft_size"),
    KEY("hop_length"),
    KEY("win_length"),
    KEY("sample_rate"),
    KEY("chunk_samples"),
    KEY("preemph"),
    KEY("log_eps"),
    KEY("norm_eps"),
    KEY("subsampling_factor"),
    KEY("left_context"),
    KEY("conv_context"),
    KEY("pre_encode_cache_size"),
    KEY("blank_id"),
    KEY("max_symbols_per_step"),
    KEY("left_context_samples"),
    KEY("right_context_samples"),
    KEY("tdt_durations"),
    OBJECT("encoder", encoder_fields),
    OBJECT("decoder", decoder_fields),
    OBJECT("draft", decoder_fields),
    OBJECT("embedding", embedding_fields),
    OBJECT("vision", vision_fields),
    OBJECT("speech", speech_fields),
    OBJECT("joiner", joiner_fields),
    KEY("vad"),
    KEY("mtp"),
    KEY("dflash2"),
    KEY("dspark"),
    END,
};

static const td_field search_fields[] = {
    KEY("max_length"),
    KEY("min_length"),
    KEY("batch_size"),
    KEY("num_beams"),
    KEY("num_return_sequences"),
    KEY("do_sample"),
    KEY("top_k"),
    KEY("top_p"),
    KEY("temperature"),
    KEY("repetition_penalty"),
    KEY("no_repeat_ngram_size"),
    KEY("length_penalty"),
    KEY("early_stopping"),
    KEY("diversity_penalty"),
    KEY("random_seed"),
    KEY("past_present_share_buffer"),
    KEY("chunk_size"),
    KEY("blank_penalty"),
    END,
};

static const td_field root_fields[] = {
    OBJECT("model", model_fields),
    OBJECT("search", search_fields),
    KEY("speculative"),
    KEY("engine"),
    KEY("version"),
    END,
};

void td_v1_check_keys(const td_json *root, bool strict, td_messages *messages) {
    td_fields_check(root, root_fields, strict, messages);
}
