/* text/decoding.c - ids through the decoders: a list at once, and the stream behind td_detok. */
#include "text/parts.h"

#include "base/alloc.h"

treadle_status td_decoding_open(td_decoding *decoding, const td_tokenizer *tokenizer, bool eager, treadle_error *err)
{
    *decoding = (td_decoding){.tokenizer = tokenizer, .eager = eager, .err = err};
    /* One more state than decoders: for a tokenizer without any, whose tokens are joined by spaces. */
    decoding->states = td_alloc_zero(tokenizer->decoders.n + 1, sizeof *decoding->states);
    return decoding->states ? TREADLE_OK : td_fail_memory(err, "a decoder", 0);
}

void td_decoding_close(td_decoding *decoding)
{
    for (size_t i = 0; decoding->states && i <= decoding->tokenizer->decoders.n; i++) {
        td_buf_free(&decoding->states[i].held);
        td_buf_free(&decoding->states[i].scratch);
        td_regex_scratch_free(&decoding->states[i].regex);
    }
    td_free(decoding->states);
    decoding->states = NULL;
}

void td_decoding_reset(td_decoding *decoding)
{
    for (size_t i = 0; i <= decoding->tokenizer->decoders.n; i++) {
        td_decoder_state *state = &decoding->states[i];
        state->n = state->m = 0;
        state->open = false;
        state->regex.spent_steps = 0;
        td_buf_clear(&state->held);
        td_buf_clear(&state->scratch);
    }
}

treadle_status td_decoding_token(td_decoding *decoding, int32_t id, bool skip_special)
{
    const td_tokenizer *tokenizer = decoding->tokenizer;
    const td_added_token *added = td_added_by_id(&tokenizer->added, id);
    td_str token = added ? added->pattern : tokenizer->model_kind->token(tokenizer->model, id);
    if (!token.p || (skip_special && added && added->skipped)) return TREADLE_OK;
    if (tokenizer->decoders.n > 0) return td_decoding_send(decoding, 0, token, true, true);
    if (decoding->states[0].open) TD_TRY(td_decoding_send(decoding, 0, TD_STR(" "), true, true));
    decoding->states[0].open = true;
    return td_decoding_send(decoding, 0, token, true, true);
}

treadle_status td_decoding_finish(td_decoding *decoding)
{
    const td_steps *steps = &decoding->tokenizer->decoders;
    for (size_t i = 0; i < steps->n; i++) TD_TRY(steps->items[i].kind->decode(steps->items[i].data, decoding, i, NULL));
    return TREADLE_OK;
}

treadle_status td_tokenizer_decode(const td_tokenizer *tokenizer, const int32_t *ids, size_t n, bool skip_special,
                                   td_buf *out, treadle_error *err)
{
    td_decoding decoding;
    TD_TRY(td_decoding_open(&decoding, tokenizer, false, err));
    decoding.out = out;
    treadle_status status = TREADLE_OK;
    for (size_t i = 0; i < n && status == TREADLE_OK; i++) status = td_decoding_token(&decoding, ids[i], skip_special);
    if (status == TREADLE_OK) status = td_decoding_finish(&decoding);
    td_decoding_close(&decoding);
    return status;
}

/* --- the stream */

struct td_detok {
    td_decoding decoding;
    bool skip_special;
    td_buf text;       /* of the token in hand */
    size_t n_withheld; /* U+FFFD at the end of all text so far: shown once other text follows, or at the end */
};

treadle_status td_detok_open(const td_tokenizer *tokenizer, bool skip_special, td_detok **out, treadle_error *err)
{
    td_detok *detok = td_alloc_zero(1, sizeof *detok);
    if (!detok) return td_fail_memory(err, "a detokenizer", sizeof *detok);
    treadle_status status = td_decoding_open(&detok->decoding, tokenizer, true, err);
    if (status != TREADLE_OK) {
        td_free(detok);
        return status;
    }
    detok->decoding.out = &detok->text;
    detok->skip_special = skip_special;
    *out = detok;
    return TREADLE_OK;
}

void td_detok_free(td_detok *detok)
{
    if (!detok) return;
    td_decoding_close(&detok->decoding);
    td_buf_free(&detok->text);
    td_free(detok);
}

void td_detok_reset(td_detok *detok)
{
    td_decoding_reset(&detok->decoding);
    td_buf_clear(&detok->text);
    detok->n_withheld = 0;
}

/* Appends what detok->text adds to the text; end: all of it. */
static treadle_status show(td_detok *detok, td_buf *out, bool end, treadle_error *err)
{
    static const td_str bad = {"\xEF\xBF\xBD", 3};
    td_str text = td_buf_view(&detok->text);
    size_t n_bad = 0;
    while (!end && text.n >= 3 && memcmp(text.p + text.n - 3, bad.p, 3) == 0) {
        text.n -= 3;
        n_bad++;
    }
    if (text.n > 0 || end) {
        for (; detok->n_withheld > 0; detok->n_withheld--) td_buf_str(out, bad);
        td_buf_str(out, text);
    }
    detok->n_withheld += n_bad;
    return out->failed || detok->text.failed ? td_fail_memory(err, "a decoded text", text.n) : TREADLE_OK;
}

treadle_status td_detok_push(td_detok *detok, int32_t id, td_buf *out, treadle_error *err)
{
    detok->decoding.err = err;
    td_buf_clear(&detok->text);
    TD_TRY(td_decoding_token(&detok->decoding, id, detok->skip_special));
    return show(detok, out, false, err);
}

treadle_status td_detok_flush(td_detok *detok, td_buf *out, treadle_error *err)
{
    detok->decoding.err = err;
    td_buf_clear(&detok->text);
    TD_TRY(td_decoding_finish(&detok->decoding));
    return show(detok, out, true, err);
}
