/* treadle/text.h - tokenizer, streaming detokenizer and chat template of a model.
 *
 * A treadle_text comes with a model (treadle_model_text) or is opened alone, which loads no weights. When a part is
 * missing or not understood, calls that need it return TREADLE_NOT_FOUND or TREADLE_UNSUPPORTED and name that part;
 * everything else works. Immutable, any number of threads.
 */
#ifndef TREADLE_TEXT_H
#define TREADLE_TEXT_H

#include "treadle/status.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct treadle_text treadle_text;
typedef struct treadle_detokenizer treadle_detokenizer;

/* Opens the text part of a model folder. Fails only if the folder does not exist or memory is short. */
TREADLE_API treadle_status treadle_text_open(const char *path, treadle_text **out, treadle_error *error);
TREADLE_API void treadle_text_close(treadle_text *text); /* not for those of treadle_model_text; NULL is fine */

/* Text to ids. add_special: the tokens that the tokenizer puts around a text (bos ...). Special tokens written in the
 * text are recognised. *out_ids: treadle_free. */
TREADLE_API treadle_status treadle_text_encode(const treadle_text *text, const char *utf8, size_t n_bytes,
                                               bool add_special, int32_t **out_ids, size_t *out_n,
                                               treadle_error *error);

/* Ids to text. skip_special: special tokens are left out. *out_utf8 is NUL-terminated after *out_bytes:
 * treadle_free. */
TREADLE_API treadle_status treadle_text_decode(const treadle_text *text, const int32_t *ids, size_t n,
                                               bool skip_special, char **out_utf8, size_t *out_bytes,
                                               treadle_error *error);

/* The token of an id as the vocabulary has it (treadle_free); TREADLE_NOT_FOUND: no such id. */
TREADLE_API treadle_status treadle_text_token(const treadle_text *text, int32_t id, char **out_utf8,
                                              treadle_error *error);
/* The id of a token, or -1. */
TREADLE_API int32_t treadle_text_token_id(const treadle_text *text, const char *token);

/* Ids one after the other to text that can be shown at once: a character is never split, the pieces joined are what
 * treadle_text_decode gives. One thread at a time. */
TREADLE_API treadle_status treadle_detokenizer_new(const treadle_text *text, bool skip_special,
                                                   treadle_detokenizer **out, treadle_error *error);
TREADLE_API void treadle_detokenizer_free(treadle_detokenizer *detokenizer);
/* *piece lives until the next call on this detokenizer; it may be empty. NUL-terminated. */
TREADLE_API treadle_status treadle_detokenizer_push(treadle_detokenizer *detokenizer, int32_t id, const char **piece,
                                                    size_t *piece_bytes, treadle_error *error);
/* What is still held back (an unfinished character becomes U+FFFD). The detokenizer then starts afresh. */
TREADLE_API treadle_status treadle_detokenizer_finish(treadle_detokenizer *detokenizer, const char **piece,
                                                      size_t *piece_bytes, treadle_error *error);

typedef struct treadle_chat_options {
    size_t struct_size;
    bool add_generation_prompt; /* end with the start of the assistant's turn. Default: true */
    const char *tools_json;     /* JSON array of tools, or NULL (default) */
    const char *variables_json; /* JSON object of further template variables, or NULL (default) */
    const char *template_name;  /* one of several templates; NULL (default): the default one */
    const char *template_text;  /* a template to use instead of the model's; NULL (default): the model's */
} treadle_chat_options;
TREADLE_API void treadle_chat_options_init(treadle_chat_options *options);

/* Renders messages, a JSON array of {"role", "content", ...}, with the chat template. Encode the result
 * with add_special false: a template writes its own special tokens. Errors of the template have line and
 * column in it. treadle_free. */
TREADLE_API treadle_status treadle_text_render_chat(const treadle_text *text, const char *messages_json,
                                                    const treadle_chat_options *options, char **out_utf8,
                                                    size_t *out_bytes, treadle_error *error);

#ifdef __cplusplus
}
#endif
#endif
