/* Fuzzes the GGUF reader and what follows it without a graph: every tensor is decoded, the model is matched against the
 * table of architectures, the tokenizer is written. */
#include "base/alloc.h"
#include "compile/arch.h"
#include "compile/tokenizer.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) abort();
}

static void decode(const td_source_tensor *t) {
    enum { MOST = 4096 };
    float values[MOST];
    int64_t n = TD_MIN(t->dims[0], (int64_t)MOST) / t->format->block * t->format->block;
    td_quant_decode(t->format, t->data, n, values);
    td_quant_decode(t->format, t->data + t->bytes - t->row_bytes, n, values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    td_gguf *gguf;
    td_arena arena;
    td_model m;
    td_vocab vocab;
    if (td_gguf_parse(data, size, &gguf, NULL) != TREADLE_OK) return 0;
    check(gguf->arena.used_bytes <= 65536 + size * 64);
    for (size_t i = 0; i < gguf->source.tensors.n; i++) decode(&gguf->source.tensors.items[i]);
    td_arena_init(&arena);
    const td_checkpoint checkpoint = {.gguf = gguf, .source = &gguf->source};
    (void)td_model_resolve(&checkpoint, &arena, &m, NULL);
    if (td_vocab_read(gguf, &arena, &vocab, NULL) == TREADLE_OK) {
        td_buf out = {0};
        if (vocab.kind == TD_VOCAB_BPE || vocab.kind == TD_VOCAB_SPM)
            check(td_tokenizer_write(&vocab, &out, NULL) == TREADLE_OK);
        td_buf_free(&out);
        td_vocab_discard(&vocab);
    }
    td_arena_free(&arena);
    td_gguf_close(gguf);
    return 0;
}
