/* text/decoding.c - ids through the decoders: a list at once, and the stream behind td_detok. */
#include "text/parts.h"

#include "base/alloc.h"

static treadle_status open_decoding(td_decoding *decoding, const td_tokenizer *tokenizer, bool eager,
                                    treadle_error *err) {
    *decoding = (td_decoding){.tokenizer = tokenizer, .eager = eager, .err = err};
    /* One more state than decoders: for a tokenizer without any, whose tokens are joined by spaces. */
    decoding->states = td_alloc_zero(tokenizer->decoders.n + 1, sizeof *decoding->states);
    return decoding->states ? TREADLE_OK : td_fail_memory(err, "a decoder", 0);
}

static void close_decoding(td_decoding *decoding) {
    for (size_t i = 0; decoding->states && i <= decoding->tokenizer->decoders.n; i++) {
        td_buf_free(&decoding->states[i].held);
        td_buf_free(&decoding->states[i].scratch);
        td_regex_scratch_free(&decoding->states[i].regex);
        td_vec_free(&decoding->states[i].matches);
    }
    td_free(decoding->states);
    decoding->states = NULL;
}

static void reset_decoding(td_decoding *decoding) {
    for (size_t i = 0; i <= decoding->tokenizer->decoders.n; i++) {
        td_decoder_state *state = &decoding->states[i];
        state->n = state->m = 0;
        state->open = false;
        td_regex_scratch_restart(&state->regex);
        td_buf_clear(&state->held);
        td_buf_clear(&state->scratch);
    }
}

static treadle_status decode_token(td_decoding *decoding, int32_t id, bool skip_special) {
    const td_tokenizer *tokenizer = decoding->tokenizer;
    const td_added_token *added = td_added_by_id(&tokenizer->added, id);
    td_str token = added ? added->pattern : tokenizer->model_kind->token(tokenizer->model, id);
    /* Between the tokens of a stream the thread does other things. */
    for (size_t i = 0; decoding->eager && i < tokenizer->decoders.n; i++)
        td_regex_scratch_restart(&decoding->states[i].regex);
    if (!token.p || (skip_special && added && added->skipped)) return TREADLE_OK;
    if (tokenizer->decoders.n > 0) return td_decoding_send(decoding, 0, token, true, true);
    if (decoding->states[0].open) TD_TRY(td_decoding_send(decoding, 0, TD_STR(" "), true, true));
    decoding->states[0].open = true;
    return td_decoding_send(decoding, 0, token, true, true);
}

static treadle_status finish_decoding(td_decoding *decoding) {
    const td_steps *steps = &decoding->tokenizer->decoders;
    for (size_t i = 0; i < steps->n; i++) TD_TRY(steps->items[i].kind->decode(steps->items[i].data, decoding, i, NULL));
    return TREADLE_OK;
}

treadle_status td_tokenizer_decode(const td_tokenizer *tokenizer, const int32_t *ids, size_t n, bool skip_special,
                                   td_buf *out, treadle_error *err) {
    td_decoding decoding;
    TD_TRY(open_decoding(&decoding, tokenizer, false, err));
    decoding.out = out;
    treadle_status status = TREADLE_OK;
    for (size_t i = 0; i < n && status == TREADLE_OK; i++) status = decode_token(&decoding, ids[i], skip_special);
    if (status == TREADLE_OK) status = finish_decoding(&decoding);
    close_decoding(&decoding);
    return status;
}

/* --- the stream */

static bool can_stream(const td_tokenizer *tokenizer) {
    bool joined = false;
    for (size_t i = 0; i < tokenizer->decoders.n; i++) {
        const td_step *step = &tokenizer->decoders.items[i];
        bool (*takes)(const void *) = step->kind->takes_fragments;
        if (step->kind->looks_ahead || (joined && !(takes && takes(step->data)))) return false;
        joined |= step->kind->joins;
    }
    return true;
}

struct td_detok {
    td_decoding decoding;
    bool skip_special, streams;
    td_buf text;       /* streams: of the token in hand; otherwise of all ids */
    size_t n_withheld; /* streams: U+FFFD at the end of all text so far, shown once other text follows, or at the end */
    td_ids ids;        /* otherwise: all ids so far, decoded anew for every token, and the text shown */
    td_buf shown;
};

treadle_status td_detok_open(const td_tokenizer *tokenizer, bool skip_special, td_detok **out, treadle_error *err) {
    td_detok *detok = td_alloc_zero(1, sizeof *detok);
    if (!detok) return td_fail_memory(err, "a detokenizer", sizeof *detok);
    treadle_status status = open_decoding(&detok->decoding, tokenizer, true, err);
    if (status != TREADLE_OK) {
        td_free(detok);
        return status;
    }
    detok->decoding.out = &detok->text;
    detok->skip_special = skip_special;
    detok->streams = can_stream(tokenizer);
    *out = detok;
    return TREADLE_OK;
}

void td_detok_free(td_detok *detok) {
    if (!detok) return;
    close_decoding(&detok->decoding);
    td_buf_free(&detok->text);
    td_buf_free(&detok->shown);
    td_vec_free(&detok->ids);
    td_free(detok);
}

void td_detok_reset(td_detok *detok) {
    reset_decoding(&detok->decoding);
    td_buf_clear(&detok->text);
    td_buf_clear(&detok->shown);
    detok->ids.n = 0;
    detok->n_withheld = 0;
}

static const td_str bad_char = {"\xEF\xBF\xBD", 3};

/* Appends what detok->text, the text of one token, adds; end: all of it. */
static void show_piece(td_detok *detok, td_buf *out, bool end) {
    td_str text = td_buf_view(&detok->text);
    size_t n_bad = 0;
    while (!end && td_str_ends(text, bad_char)) {
        text.n -= bad_char.n;
        n_bad++;
    }
    if (text.n > 0 || end) {
        for (; detok->n_withheld > 0; detok->n_withheld--) td_buf_str(out, bad_char);
        td_buf_str(out, text);
    }
    detok->n_withheld += n_bad;
}

/* The same where detok->text is that of all ids. */
static void show_rest(td_detok *detok, td_buf *out, bool end) {
    td_str text = td_buf_view(&detok->text), shown = td_buf_view(&detok->shown);
    while (!end && td_str_ends(text, bad_char)) text.n -= bad_char.n;
    if (text.n <= shown.n || !td_str_starts(text, shown)) return;
    td_str rest = {text.p + shown.n, text.n - shown.n};
    td_buf_str(out, rest);
    td_buf_str(&detok->shown, rest);
}

static treadle_status show(td_detok *detok, td_buf *out, bool end, treadle_error *err) {
    (detok->streams ? show_piece : show_rest)(detok, out, end);
    bool failed = out->failed || detok->text.failed || detok->shown.failed;
    return failed ? td_fail_memory(err, "a decoded text", out->n) : TREADLE_OK;
}

static treadle_status decode_all(td_detok *detok, treadle_error *err) {
    return td_tokenizer_decode(detok->decoding.tokenizer, detok->ids.items, detok->ids.n, detok->skip_special,
                               &detok->text, err);
}

treadle_status td_detok_push(td_detok *detok, int32_t id, td_buf *out, treadle_error *err) {
    detok->decoding.err = err;
    td_buf_clear(&detok->text);
    if (!detok->streams) {
        if (!td_vec_push(&detok->ids, id)) return td_fail_memory(err, "token ids", detok->ids.n);
        TD_TRY(decode_all(detok, err));
    } else {
        TD_TRY(decode_token(&detok->decoding, id, detok->skip_special));
    }
    return show(detok, out, false, err);
}

treadle_status td_detok_flush(td_detok *detok, td_buf *out, treadle_error *err) {
    detok->decoding.err = err;
    td_buf_clear(&detok->text);
    TD_TRY(detok->streams ? finish_decoding(&detok->decoding) : decode_all(detok, err));
    return show(detok, out, true, err);
}
