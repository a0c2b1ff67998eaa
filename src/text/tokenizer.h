/* text/tokenizer.h - text to token ids and back, from a Hugging Face tokenizer.json.
 *
 * A tokenizer is a pipeline: added tokens are cut out, then normalizers -> pre-tokenizers -> model -> post-processors
 * for text in, decoders for text out (parts.h). Everything is resolved at load; afterwards a tokenizer never changes
 * and may be used from several threads at once. The results are those of Hugging Face tokenizers 0.23, byte for byte,
 * where that library has one; texts that are not UTF-8 are read as if every bad run were U+FFFD.
 */
#ifndef TD_TEXT_TOKENIZER_H
#define TD_TEXT_TOKENIZER_H

#include "base/error.h"
#include "base/str.h"

typedef struct td_tokenizer td_tokenizer;

/* A growable list of token ids; start with {0}, end with td_vec_free. */
typedef struct td_ids {
    int32_t *items;
    size_t n, capacity;
} td_ids;

/* Reads tokenizer.json and, if not empty, tokenizer_config.json. Neither is needed afterwards. A part of a kind that
 * is not known is TREADLE_UNSUPPORTED and named with its JSON pointer, line and column; err->file is "tokenizer.json"
 * or "tokenizer_config.json". */
treadle_status td_tokenizer_load(td_str tokenizer_json, td_str config_json, td_tokenizer **out, treadle_error *err);
void td_tokenizer_free(td_tokenizer *tokenizer); /* NULL is fine */

/* Appends the ids of text. add_special: what the post-processor puts around it (BOS, EOS ...).
 * parse_special: special tokens written out in the text become their ids; otherwise their text is tokenised
 * as any other. On failure ids is as before. */
treadle_status td_tokenizer_encode(const td_tokenizer *tokenizer, td_str text, bool add_special, bool parse_special,
                                   td_ids *ids, treadle_error *err);

/* Appends the text of ids; ids that the tokenizer does not know vanish. */
treadle_status td_tokenizer_decode(const td_tokenizer *tokenizer, const int32_t *ids, size_t n, bool skip_special,
                                   td_buf *out, treadle_error *err);

/* The token as the vocabulary spells it (byte-level tokens: in that alphabet); .p NULL: no such id. */
td_str td_tokenizer_token(const td_tokenizer *tokenizer, int64_t id);
int32_t td_tokenizer_id(const td_tokenizer *tokenizer, td_str token); /* -1: no such token */
bool td_tokenizer_is_special(const td_tokenizer *tokenizer, int64_t id);
int32_t td_tokenizer_vocab_size(const td_tokenizer *tokenizer); /* the highest id + 1; there may be gaps */

/* --- ids to text, one at a time. One owner; reads the tokenizer only, which must outlive it.
 *
 * What is emitted at a token is the text that the ids so far decode to, without a tail of U+FFFD (unfinished
 * characters), less what was emitted before. The cost of a token does not depend on how many came before, but
 * for tokenizers whose decoders cannot be run token by token (BPEDecoder; CTC or BPE behind a Fuse), where
 * all ids are decoded each time. */
typedef struct td_detok td_detok;

treadle_status td_detok_open(const td_tokenizer *tokenizer, bool skip_special, td_detok **out, treadle_error *err);
void td_detok_free(td_detok *detok);
void td_detok_reset(td_detok *detok); /* as just opened; keeps the memory */
/* Appends the text that has become certain, always whole characters, maybe nothing. */
treadle_status td_detok_push(td_detok *detok, int32_t id, td_buf *out, treadle_error *err);
/* Ends the text: appends what is left, bytes of an unfinished character as U+FFFD. Then only reset and free. */
treadle_status td_detok_flush(td_detok *detok, td_buf *out, treadle_error *err);

#endif
