/* names/words.h - the words that a config may use: one X-macro list per family, one row per word.
 *
 * Each list becomes an enum and a table of texts ending with NULL; the error for an unknown word prints the table. A
 * new word is a row here plus what it does, where its enum value is switched on. */
#ifndef TD_NAMES_WORDS_H
#define TD_NAMES_WORDS_H

/* When a flow step runs. X(NAME, text) */
#define TD_WHEN_LIST(X)                                                                                                \
    X(ONCE, "once")     /* when a request starts */                                                                    \
    X(PROMPT, "prompt") /* at prefill */                                                                               \
    X(ALWAYS, "always") /* at every step */                                                                            \
    X(DECODE, "decode") /* at every step but the prefill */

#define TD_LOOP_LIST(X)                                                                                                \
    X(BATCHED, "batched")                                                                                              \
    X(PER_IMAGE, "per_image")

#define TD_POSITION_LIST(X)                                                                                            \
    X(AUTO, "auto")                                                                                                    \
    X(DEFAULT, "default")                                                                                              \
    X(MROPE_3D, "mrope_3d")                                                                                            \
    X(WINDOWED, "windowed")

#define TD_KV_FORMAT_LIST(X)                                                                                           \
    X(AUTO, "auto")                                                                                                    \
    X(SEPARATE, "separate")                                                                                            \
    X(COMBINED, "combined")                                                                                            \
    X(STATIC, "static")

/* What the present of a growing cache holds. */
#define TD_PRESENT_LIST(X)                                                                                             \
    X(AUTO, "auto")                                                                                                    \
    X(ALL, "all") /* the past and the new columns */                                                                   \
    X(NEW, "new")

#define TD_ENGINE_LIST(X)                                                                                              \
    X(LIGHT, "light")                                                                                                  \
    X(ORT, "ort")

#define TD_MODALITY_LIST(X)                                                                                            \
    X(IMAGE, "image")                                                                                                  \
    X(AUDIO, "audio")                                                                                                  \
    X(VIDEO, "video")

/* On which side of a window of ids its padding goes so that the ids stand to the other one. */
#define TD_ALIGNMENT_LIST(X)                                                                                           \
    X(RIGHT, "right") /* padding before the first id */                                                                \
    X(LEFT, "left")   /* padding after the last */

#define TD_POOLING_LIST(X)                                                                                             \
    X(MEAN, "mean")                                                                                                    \
    X(CLS, "cls")                                                                                                      \
    X(LAST, "last")                                                                                                    \
    X(NONE, "none")

#define TD_PREPROCESS_FORMAT_LIST(X)                                                                                   \
    X(ORT_EXTENSIONS, "ort-extensions")                                                                                \
    X(HF, "hf")                                                                                                        \
    X(FLAT, "flat")                                                                                                    \
    X(ONNX, "onnx")

/* Files src/config/presets/<text>.json. */
#define TD_PRESET_LIST(X)                                                                                              \
    X(AUTOREGRESSIVE_DECODER, "autoregressive-decoder")                                                                \
    X(VISION_LANGUAGE, "vision-language")                                                                              \
    X(ENCODER_DECODER, "encoder-decoder")                                                                              \
    X(SPEECH_LANGUAGE, "speech-language")                                                                              \
    X(MULTIMODAL, "multimodal")                                                                                        \
    X(TRANSDUCER, "transducer")                                                                                        \
    X(FEATURE_EXTRACTION, "feature-extraction")

/* Graph inputs whose values the runtime makes. */
#define TD_ROLE_LIST(X)                                                                                                \
    X(INPUT_IDS, "input_ids")                 /* [batch, n] */                                                         \
    X(INPUTS_EMBEDS, "inputs_embeds")         /* [batch, n, hidden], from a wire */                                    \
    X(DECODER_INPUT_IDS, "decoder_input_ids") /* [batch, n] */                                                         \
    X(SOURCE_IDS, "source_ids")               /* [batch, source]: the encoder's, in one graph with its decoder */      \
    X(ATTENTION_MASK, "attention_mask")       /* [batch, columns so far] */                                            \
    X(PADDING_MASK, "padding_mask")           /* [batch, columns so far], zeros: true would be padding */              \
    X(ENCODER_ATTENTION_MASK, "encoder_attention_mask")                                                                \
    X(POSITION_IDS, "position_ids")                   /* [batch, n] */                                                 \
    X(TOKEN_TYPE_IDS, "token_type_ids")               /* [batch, n], zeros */                                          \
    X(CACHE_POSITION, "cache_position")               /* [n] */                                                        \
    X(PAST_SEQUENCE_LENGTH, "past_sequence_length")   /* one number */                                                 \
    X(TOTAL_SEQUENCE_LENGTH, "total_sequence_length") /* one number */                                                 \
    X(SEQLENS_K, "seqlens_k")                         /* [batch]: keys of a row, less one */                           \
    X(NUM_LOGITS_TO_KEEP, "num_logits_to_keep")       /* one number */                                                 \
    X(LOGITS_TO_KEEP, "logits_to_keep")               /* the same */                                                   \
    X(USE_CACHE_BRANCH, "use_cache_branch")           /* one bool: is there a past? */                                 \
    X(CUMULATIVE_SEQUENCE_LENGTH, "cumulative_sequence_length")                                                        \
    X(BLOCK_TABLE, "block_table")                                                                                      \
    X(CACHE_INDIRECTION, "cache_indirection")                                                                          \
    X(WRITE_INDICES, "write_indices")                     /* [batch]: where the new tokens go in a static cache */     \
    X(NONPAD_KV_SEQLEN, "nonpad_kv_seqlen")               /* [batch]: keys of a row, new ones included */              \
    X(DECODER_ATTENTION_MASK, "decoder_attention_mask")   /* [batch, columns so far] */                                \
    X(CURRENT_SEQUENCE_LENGTH, "current_sequence_length") /* one number: new tokens */

typedef enum td_when {
#define TD_WORD_ROW(name, text) TD_WHEN_##name,
    TD_WHEN_LIST(TD_WORD_ROW)
#undef TD_WORD_ROW
} td_when;
typedef enum td_loop {
#define TD_WORD_ROW(name, text) TD_LOOP_##name,
    TD_LOOP_LIST(TD_WORD_ROW)
#undef TD_WORD_ROW
} td_loop;
typedef enum td_position {
#define TD_WORD_ROW(name, text) TD_POSITION_##name,
    TD_POSITION_LIST(TD_WORD_ROW)
#undef TD_WORD_ROW
} td_position;
typedef enum td_kv_format {
#define TD_WORD_ROW(name, text) TD_KV_FORMAT_##name,
    TD_KV_FORMAT_LIST(TD_WORD_ROW)
#undef TD_WORD_ROW
} td_kv_format;
typedef enum td_present {
#define TD_WORD_ROW(name, text) TD_PRESENT_##name,
    TD_PRESENT_LIST(TD_WORD_ROW)
#undef TD_WORD_ROW
} td_present;
typedef enum td_modality {
#define TD_WORD_ROW(name, text) TD_MODALITY_##name,
    TD_MODALITY_LIST(TD_WORD_ROW)
#undef TD_WORD_ROW
        TD_MODALITY_NONE
} td_modality;
typedef enum td_alignment {
#define TD_WORD_ROW(name, text) TD_ALIGNMENT_##name,
    TD_ALIGNMENT_LIST(TD_WORD_ROW)
#undef TD_WORD_ROW
} td_alignment;
typedef enum td_pooling {
#define TD_WORD_ROW(name, text) TD_POOLING_##name,
    TD_POOLING_LIST(TD_WORD_ROW)
#undef TD_WORD_ROW
} td_pooling;
typedef enum td_preprocess_format {
#define TD_WORD_ROW(name, text) TD_PREPROCESS_FORMAT_##name,
    TD_PREPROCESS_FORMAT_LIST(TD_WORD_ROW)
#undef TD_WORD_ROW
        TD_PREPROCESS_FORMAT_AUTO /* not said: recognised by the shape of the file */
} td_preprocess_format;
typedef enum td_engine_kind {
#define TD_WORD_ROW(name, text) TD_ENGINE_##name,
    TD_ENGINE_LIST(TD_WORD_ROW)
#undef TD_WORD_ROW
} td_engine_kind;
typedef enum td_role {
#define TD_WORD_ROW(name, text) TD_ROLE_##name,
    TD_ROLE_LIST(TD_WORD_ROW)
#undef TD_WORD_ROW
        TD_ROLE_NONE
} td_role;

/* Texts by enum value, then NULL. */
extern const char *const td_when_words[];
extern const char *const td_loop_words[];
extern const char *const td_position_words[];
extern const char *const td_kv_format_words[];
extern const char *const td_present_words[];
extern const char *const td_engine_words[];
extern const char *const td_modality_words[];
extern const char *const td_alignment_words[];
extern const char *const td_pooling_words[];
extern const char *const td_preprocess_format_words[];
extern const char *const td_preset_words[];
extern const char *const td_role_words[];

#endif
