/* compile/vocab.h - the vocabulary of a GGUF file: tokens, their kinds, special ids, end-of-generation ids.
 *
 * Follows llama.cpp (src/llama-vocab.cpp): defaults, token texts that end a generation whatever the file says, and
 * texts that are special whatever their type says. */
#ifndef TD_COMPILE_VOCAB_H
#define TD_COMPILE_VOCAB_H

#include "compile/gguf.h"

typedef enum td_vocab_kind {
    TD_VOCAB_NONE,  /* no vocabulary in the file */
    TD_VOCAB_OTHER, /* one that is not understood: ids only */
    TD_VOCAB_BPE,   /* byte-level BPE with merges */
    TD_VOCAB_SPM,   /* SentencePiece BPE by scores, bytes as fallback */
} td_vocab_kind;

typedef enum td_token_type {
    TD_TOKEN_NORMAL = 1,
    TD_TOKEN_UNKNOWN,
    TD_TOKEN_CONTROL,
    TD_TOKEN_USER,
    TD_TOKEN_UNUSED,
    TD_TOKEN_BYTE
} td_token_type;

typedef struct td_pretokenizer {
    const char *name;
    const char *const *patterns; /* NULL-terminated */
    bool ignore_merges, add_bos;
    bool nfc; /* text is normalised first */
} td_pretokenizer;

typedef struct td_vocab {
    td_vocab_kind kind;
    td_str model, pre; /* tokenizer.ggml.model and .pre */
    const td_str *tokens;
    uint8_t *types; /* td_token_type */
    size_t n;
    const td_gguf_value *scores; /* SPM; n numbers */
    const td_str *merges;        /* BPE: "left right" */
    size_t n_merges;
    const td_pretokenizer *pretokenizer; /* BPE */
    bool pre_known;
    int64_t bos, eos, eot, eom, unk, pad; /* -1: none */
    bool add_bos, add_eos, add_space_prefix;
    const int64_t *eog; /* ascending */
    size_t n_eog;
    td_map ids; /* text to id, the last of equal texts; td_vocab_discard */
} td_vocab;

treadle_status td_vocab_read(const td_gguf *gguf, td_arena *arena, td_vocab *out, treadle_error *err);
void td_vocab_discard(td_vocab *v);

/* The text of an id; {NULL, 0} for -1. */
td_str td_vocab_text(const td_vocab *v, int64_t id);

#endif
