/* Each allocation in turn fails while a tokenizer is loaded, encodes, decodes and streams: TREADLE_OUT_OF_MEMORY, a
 * result as it was before, and no leak (the sanitizers look). */
#include "support/allocations.h"
#include "support/test.h"

#include "text/sink.h"

static const char *const files[] = {
    ("{\"added_tokens\":[{\"id\":9,\"content\":\"<S>\",\"special\":true,\"normalized\":true},{\"id\":10,\"content\":\"<e>\"}],"
     "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKD\"},{\"type\":\"Lowercase\"},{\"type\":\"Prepend\","
     "\"prepend\":\" \"},{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x+\"},\"content\":\"b\"}]},"
     "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\"},{\"type\":\"ByteLevel\"}]},"
     "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"s\"}},{\"Sequence\":{\"id\":\"A\"}}],"
     "\"special_tokens\":{\"s\":{\"ids\":[0,1]}}},\"decoder\":{\"type\":\"ByteLevel\"},"
     "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"\\u0120\":3,\"\\u0120ab\":4},\"merges\":[\"a b\",\"\\u0120 ab\"]}}"),
    ("{\"normalizer\":{\"type\":\"BertNormalizer\"},\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\"},"
     "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\\u2581\"},\"content\":\" \"},"
     "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},"
     "\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"<0x41>\":1,\"<0x7A>\":2,\"\\u2581\":3,"
     "\"<0xC3>\":4,\"<0xA9>\":5},\"merges\":[]}}"),
    ("{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"WordPiece\"},{\"type\":\"BPEDecoder\"},{\"type\":\"CTC\"}]},"
     "\"model\":{\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\",\"vocab\":{\"a\":0,\"b</w>\":1,\"ab</w>\":2},\"merges\":[[\"a\",\"b</w>\"]]}}"),
};

static bool stream(const td_tokenizer *tokenizer, const td_ids *ids) {
    treadle_error err;
    td_text_sink sink;
    td_buf out = {0};
    bool stopped = false;
    td_str stop = TD_STR("never");
    if (td_text_sink_open(&sink, tokenizer, false, &stop, 1, &err) != TREADLE_OK) return false;
    treadle_status status = TREADLE_OK;
    for (size_t i = 0; i < ids->n && status == TREADLE_OK; i++)
        status = td_text_sink_push(&sink, ids->items[i], &out, &stopped, &err);
    if (status == TREADLE_OK) status = td_text_sink_flush(&sink, &out, &stopped, &err);
    td_text_sink_close(&sink);
    td_buf_free(&out);
    return status == TREADLE_OK;
}

static treadle_status encode_and_decode(const td_tokenizer *tokenizer, td_ids *ids) {
    treadle_error err;
    td_buf out = {0};
    treadle_status status =
        td_tokenizer_encode(tokenizer, TD_STR("ab \xC3\xA9xx 12\xFFz <s>\xE1\xB8\x80 AB"), true, true, ids, &err);
    if (status != TREADLE_OK) {
        CHECK_EQ_UINT(ids->n, 0);
        return status;
    }
    status = td_tokenizer_decode(tokenizer, ids->items, ids->n, false, &out, &err);
    td_buf_free(&out);
    return status;
}

/* False: an allocation failed. */
static bool work(const char *file) {
    treadle_error err;
    td_tokenizer *tokenizer = NULL;
    td_ids ids = {0};
    treadle_status status =
        td_tokenizer_load(td_str_from(file), TD_STR("{\"added_tokens_decoder\":{}}"), &tokenizer, &err);
    if (status == TREADLE_OK) {
        status = encode_and_decode(tokenizer, &ids);
        if (status == TREADLE_OK && !stream(tokenizer, &ids)) status = TREADLE_OUT_OF_MEMORY;
        td_vec_free(&ids);
        td_tokenizer_free(tokenizer);
    }
    if (status != TREADLE_OK && status != TREADLE_OUT_OF_MEMORY)
        FAIL("allocation %d: status %d, %s", td_test_fail_at, status, err.message);
    return status == TREADLE_OK;
}

TEST(sweep) {
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        int n = 0, n_unnoticed = 0;
        for (bool reached = true; reached && n < 20000;) {
            td_test_allocations = 0;
            td_test_fail_at = ++n;
            bool done = work(files[i]);
            reached = td_test_allocations >= n;
            if (!done && !reached) FAIL("file %zu: failed without a reason at %d", i, n);
            n_unnoticed += done && reached;
        }
        td_test_fail_at = INT_MAX;
        CHECK(n > 50);
        /* PCRE2 does without what it cannot have for its faster code; nothing else may. */
        if (n_unnoticed > (i == 0 ? 20 : 0))
            FAIL("file %zu: %d failures of allocations went unnoticed", i, n_unnoticed);
    }
}

/* Once its buffers have grown, a stream allocates nothing per token. */
TEST(stream_allocates_nothing) {
    for (size_t i = 0; i < 2; i++) {
        treadle_error err = {0};
        td_tokenizer *tokenizer = NULL;
        td_text_sink sink;
        td_buf out = {0};
        bool stopped = false;
        td_str stop = TD_STR("never");
        CHECK_OK(td_tokenizer_load(td_str_from(files[i]), (td_str){0}, &tokenizer, &err), &err);
        CHECK_OK(td_text_sink_open(&sink, tokenizer, false, &stop, 1, &err), &err);
        for (int n = 0; n < 3000; n++) {
            if (n == 100) td_test_allocations = 0;
            td_buf_clear(&out);
            CHECK_OK(td_text_sink_push(&sink, n % 6, &out, &stopped, &err), &err);
        }
        CHECK_EQ_INT(td_test_allocations, 0);
        td_text_sink_close(&sink);
        td_buf_free(&out);
        td_tokenizer_free(tokenizer);
    }
}
