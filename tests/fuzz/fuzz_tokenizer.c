/* Fuzzes tokenizer.json and what a tokenizer does with texts and ids. The input is the file, a byte 0xFF, and a
 * text. */
#include "text/sink.h"
#include "text/tokenizer.h"

#include <stdlib.h>

#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) abort();
}

static void decode_all(const td_tokenizer *tokenizer, const td_ids *ids) {
    treadle_error err;
    td_buf whole = {0}, streamed = {0};
    td_text_sink sink;
    bool stopped = false;
    td_str stop = TD_STR("ab");
    if (td_tokenizer_decode(tokenizer, ids->items, ids->n, false, &whole, &err) == TREADLE_OK)
        check(td_utf8_valid(td_buf_view(&whole)));
    check(td_text_sink_open(&sink, tokenizer, true, &stop, 1, &err) == TREADLE_OK);
    treadle_status status = TREADLE_OK;
    for (size_t i = 0; i < ids->n && !stopped && status == TREADLE_OK; i++)
        status = td_text_sink_push(&sink, ids->items[i], &streamed, &stopped, &err);
    if (!stopped && status == TREADLE_OK) status = td_text_sink_flush(&sink, &streamed, &stopped, &err);
    if (status == TREADLE_OK) {
        check(td_utf8_valid(td_buf_view(&streamed)));
        check(td_str_find(td_buf_view(&streamed), stop) < 0);
    }
    td_text_sink_close(&sink);
    td_buf_free(&whole);
    td_buf_free(&streamed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *cut = size ? memchr(data, 0xFF, size) : NULL;
    td_str file = {(const char *)data, cut ? (size_t)(cut - data) : size};
    td_str text = cut ? (td_str){(const char *)cut + 1, size - file.n - 1} : file;
    treadle_error err;
    td_tokenizer *tokenizer = NULL;
    if (td_tokenizer_load(file, (td_str){0}, &tokenizer, &err) != TREADLE_OK) {
        check(td_utf8_valid(td_str_from(err.message)));
        return 0;
    }
    td_ids ids = {0};
    (void)td_tokenizer_encode(tokenizer, text, true, true, &ids, &err);
    for (size_t i = 0; i < ids.n; i++) check(ids.items[i] >= 0);
    (void)td_tokenizer_encode(tokenizer, text, false, false, &ids, &err);
    for (size_t i = 0; i < text.n && ids.n < 300; i++) { /* ids that no text gives */
        int32_t *grown = td_vec_push(&ids, (int8_t)text.p[i]) ? ids.items : NULL;
        check(grown != NULL);
    }
    decode_all(tokenizer, &ids);
    td_vec_free(&ids);
    td_tokenizer_free(tokenizer);
    return 0;
}
