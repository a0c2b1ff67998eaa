/* Fuzzes the safetensors reader and what follows it without a graph: every tensor is decoded, config.json is matched
 * with the tensors against the table of architectures.
 *
 * An input is the length of a config.json in two bytes (little-endian), the config, a safetensors file. */
#include "base/alloc.h"
#include "compile/arch.h"
#include "compile/safetensors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) abort();
}

static void decode(const td_source_tensor *t) {
    enum { MOST = 4096 };
    static float values[MOST];
    if (!t->format || t->bytes == 0) return;
    int64_t n = TD_MIN(t->dims[0], (int64_t)MOST);
    td_quant_decode(t->format, t->data, n, values);
    td_quant_decode(t->format, t->data + t->bytes - (size_t)n * (size_t)t->format->block_bytes, n, values);
}

static void resolve(td_hf *hf, td_str config) {
    static const td_json_options options = {.allow_duplicate_keys = true, .allow_nonfinite = true};
    const td_checkpoint checkpoint = {.hf = hf, .source = &hf->source};
    td_model m;
    if (td_json_parse(config, &options, &hf->arena, &hf->config, NULL) != TREADLE_OK) return;
    if (hf->config->kind != TD_JSON_OBJECT) return;
    if (td_model_resolve(&checkpoint, &hf->arena, &m, NULL) == TREADLE_OK)
        check(m.n_layers > 0 && m.sizes[TD_SIZE_VOCAB] > 0 && m.tensors[TD_MT_EMBED]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    td_hf hf = {0};
    if (size < 2) return 0;
    size_t n = TD_MIN((size_t)(data[0] | data[1] << 8), size - 2);
    const uint8_t *file = data + 2 + n;
    if (td_safetensors_read(file, size - 2 - n, &hf.arena, &hf.source, NULL) == TREADLE_OK) {
        check(hf.arena.used_bytes <= 65536 + size * 256);
        for (size_t i = 0; i < hf.source.tensors.n; i++) {
            const td_source_tensor *t = &hf.source.tensors.items[i];
            check(t->data >= file && t->data + t->bytes <= data + size);
            decode(t);
        }
        resolve(&hf, (td_str){(const char *)data + 2, n});
    }
    td_tensor_set_discard(&hf.source);
    td_arena_free(&hf.arena);
    return 0;
}
