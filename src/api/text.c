/* api/text.c - tokenizer, detokenizer, chat template. */
#include "api/api.h"

#include "base/alloc.h"

struct treadle_detokenizer {
    td_detok *detok;
    td_buf piece;
    bool ended; /* by finish: the next push starts afresh */
};

treadle_status treadle_text_open(const char *path, treadle_text **out, treadle_error *error) {
    TD_NEED(path);
    TD_NEED(out);
    return td_text_part_open_path(path, out, error);
}

void treadle_text_close(treadle_text *text) { td_text_part_close(text); }

treadle_status treadle_text_encode(const treadle_text *text, const char *utf8, size_t n_bytes, bool add_special,
                                   int32_t **out_ids, size_t *out_n, treadle_error *error) {
    const td_tokenizer *tokenizer = NULL;
    td_ids ids = {0};
    TD_NEED(text);
    TD_NEED(out_ids);
    TD_NEED(out_n);
    if (n_bytes) TD_NEED(utf8);
    TD_TRY(td_text_part_tokenizer(text, &tokenizer, error));
    treadle_status status =
        td_tokenizer_encode(tokenizer, (td_str){utf8 ? utf8 : "", n_bytes}, add_special, true, &ids, error);
    if (status == TREADLE_OK && !ids.items && !td_vec_reserve(&ids, 1)) status = td_fail_memory(error, "token ids", 0);
    if (status != TREADLE_OK) {
        td_vec_free(&ids);
        return status;
    }
    *out_ids = ids.items;
    *out_n = ids.n;
    return TREADLE_OK;
}

treadle_status treadle_text_decode(const treadle_text *text, const int32_t *ids, size_t n, bool skip_special,
                                   char **out_utf8, size_t *out_bytes, treadle_error *error) {
    const td_tokenizer *tokenizer = NULL;
    td_buf out = {0};
    TD_NEED(text);
    TD_NEED(out_utf8);
    if (n) TD_NEED(ids);
    TD_TRY(td_text_part_tokenizer(text, &tokenizer, error));
    treadle_status status = td_tokenizer_decode(tokenizer, ids, n, skip_special, &out, error);
    if (status == TREADLE_OK) return td_api_take_text(&out, out_utf8, out_bytes, error);
    td_buf_free(&out);
    return status;
}

treadle_status treadle_text_token(const treadle_text *text, int32_t id, char **out_utf8, treadle_error *error) {
    const td_tokenizer *tokenizer = NULL;
    td_buf out = {0};
    TD_NEED(text);
    TD_NEED(out_utf8);
    TD_TRY(td_text_part_tokenizer(text, &tokenizer, error));
    td_str token = td_tokenizer_token(tokenizer, id);
    if (!token.p)
        return td_fail(error, TREADLE_NOT_FOUND, "the vocabulary has no token %d (ids 0 to %d)", id,
                       td_tokenizer_vocab_size(tokenizer) - 1);
    td_buf_str(&out, token);
    return td_api_take_text(&out, out_utf8, NULL, error);
}

int32_t treadle_text_token_id(const treadle_text *text, const char *token) {
    const td_tokenizer *tokenizer = NULL;
    if (!text || !token || td_text_part_tokenizer(text, &tokenizer, NULL) != TREADLE_OK) return -1;
    return td_tokenizer_id(tokenizer, td_str_from(token));
}

treadle_status treadle_detokenizer_new(const treadle_text *text, bool skip_special, treadle_detokenizer **out,
                                       treadle_error *error) {
    const td_tokenizer *tokenizer = NULL;
    TD_NEED(text);
    TD_NEED(out);
    TD_TRY(td_text_part_tokenizer(text, &tokenizer, error));
    treadle_detokenizer *d = td_alloc_zero(1, sizeof *d);
    if (!d) return td_fail_memory(error, "a detokenizer", sizeof *d);
    treadle_status status = td_detok_open(tokenizer, skip_special, &d->detok, error);
    if (status != TREADLE_OK) {
        td_free(d);
        return status;
    }
    *out = d;
    return TREADLE_OK;
}

void treadle_detokenizer_free(treadle_detokenizer *d) {
    if (!d) return;
    td_detok_free(d->detok);
    td_buf_free(&d->piece);
    td_free(d);
}

static treadle_status give_piece(treadle_detokenizer *d, treadle_status status, const char **piece, size_t *piece_bytes,
                                 treadle_error *error) {
    if (status == TREADLE_OK && d->piece.failed) status = td_fail_memory(error, "a piece of text", 0);
    if (status != TREADLE_OK) return status;
    *piece = d->piece.p ? d->piece.p : "";
    if (piece_bytes) *piece_bytes = d->piece.n;
    return TREADLE_OK;
}

treadle_status treadle_detokenizer_push(treadle_detokenizer *d, int32_t id, const char **piece, size_t *piece_bytes,
                                        treadle_error *error) {
    TD_NEED(d);
    TD_NEED(piece);
    if (d->ended) td_detok_reset(d->detok);
    d->ended = false;
    td_buf_clear(&d->piece);
    return give_piece(d, td_detok_push(d->detok, id, &d->piece, error), piece, piece_bytes, error);
}

treadle_status treadle_detokenizer_finish(treadle_detokenizer *d, const char **piece, size_t *piece_bytes,
                                          treadle_error *error) {
    TD_NEED(d);
    TD_NEED(piece);
    td_buf_clear(&d->piece);
    treadle_status status = d->ended ? TREADLE_OK : td_detok_flush(d->detok, &d->piece, error);
    d->ended = true;
    return give_piece(d, status, piece, piece_bytes, error);
}

void treadle_chat_options_init(treadle_chat_options *options) {
    *options = (treadle_chat_options){.struct_size = sizeof *options, .add_generation_prompt = true};
}

treadle_status treadle_text_render_chat(const treadle_text *text, const char *messages_json,
                                        const treadle_chat_options *options, char **out_utf8, size_t *out_bytes,
                                        treadle_error *error) {
    TD_NEED(text);
    TD_NEED(messages_json);
    TD_NEED(out_utf8);
    treadle_chat_options o;
    td_buf out = {0};
    treadle_chat_options_init(&o);
    TD_TRY(td_api_options(options, &o, sizeof o, "treadle_chat_options_init", error));
    treadle_status status = td_text_part_render(text, messages_json, &o, &out, error);
    if (status == TREADLE_OK) return td_api_take_text(&out, out_utf8, out_bytes, error);
    td_buf_free(&out);
    return status;
}
