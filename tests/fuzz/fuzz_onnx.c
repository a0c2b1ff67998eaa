/* Fuzzes the ONNX reader and writer: what is accepted must be written, read again, and written to the same bytes. The
 * first byte chooses what the rest is: a model, or a value of each kind. */
#include "base/alloc.h"
#include "onnx/model.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) abort();
}

/* Touches every byte of a tensor, so that a wrong size is seen. */
static void touch(const td_onnx_tensor *t) {
    volatile uint8_t sum = 0;
    if (t->dtype == TD_STRING)
        for (int64_t i = 0; i < t->count; i++) {
            td_str text = ((const td_str *)t->data)[i];
            if (text.n) sum = (uint8_t)(sum + text.p[0] + text.p[text.n - 1]);
        }
    else if (t->data)
        for (size_t i = 0; i < t->data_bytes; i++) sum = (uint8_t)(sum + ((const uint8_t *)t->data)[i]);
}

static void model(const uint8_t *data, size_t size) {
    const td_onnx_read_options options = {.data = TD_ONNX_DATA_INSIDE};
    td_onnx_model *first, *second;
    td_buf once = {0}, twice = {0};
    if (td_onnx_parse(data, size, NULL, &options, &first, NULL) != TREADLE_OK) return;
    check(first->arena.used_bytes <= 65536 + size * 512); /* no giant allocation for a tiny file */
    for (size_t i = 0; i < first->graph.n_initializers; i++) touch(&first->graph.initializers[i]);
    check(td_onnx_write(first, &once, NULL) == TREADLE_OK);
    check(td_onnx_parse(once.p, once.n, NULL, &options, &second, NULL) == TREADLE_OK);
    check(td_onnx_write(second, &twice, NULL) == TREADLE_OK);
    check(once.n == twice.n && memcmp(once.p, twice.p, once.n) == 0);
    td_buf_free(&once);
    td_buf_free(&twice);
    td_onnx_close(second);
    td_onnx_close(first);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    uint8_t *copy = td_alloc_aligned(size); /* aligned after the first byte or not, as the choice says */
    check(copy != NULL);
    size_t n = size - 1;
    if (n) memcpy(copy, data + 1, n);
    if (data[0] % 8 < 2) {
        model(copy, n);
    } else {
        td_arena arena;
        td_onnx_value value;
        td_arena_init(&arena);
        td_onnx_value_kind kind = (td_onnx_value_kind)(data[0] % 8 - 2);
        if (data[0] % 8 == 7) kind = TD_ONNX_VALUE_TENSOR;
        if (td_onnx_parse_value(copy, n, kind, &arena, &value, NULL) == TREADLE_OK && kind == TD_ONNX_VALUE_TENSOR)
            touch(&value.tensor);
        check(arena.used_bytes <= 65536 + size * 512);
        td_arena_free(&arena);
    }
    td_free_aligned(copy);
    return 0;
}
