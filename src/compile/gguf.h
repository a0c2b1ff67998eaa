/* compile/gguf.h - reader of GGUF files, versions 2 and 3, little-endian.
 *
 * The file is mapped; strings, arrays and tensor bytes are views into it. Everything is checked when opened: a reader
 * of an open file cannot step outside. Source: ggml's docs/gguf.md. */
#ifndef TD_COMPILE_GGUF_H
#define TD_COMPILE_GGUF_H

#include "base/arena.h"
#include "base/error.h"
#include "base/file.h"
#include "compile/tensor_set.h"

typedef enum td_gguf_type {
    TD_GGUF_UINT8,
    TD_GGUF_INT8,
    TD_GGUF_UINT16,
    TD_GGUF_INT16,
    TD_GGUF_UINT32,
    TD_GGUF_INT32,
    TD_GGUF_FLOAT32,
    TD_GGUF_BOOL,
    TD_GGUF_STRING,
    TD_GGUF_ARRAY,
    TD_GGUF_UINT64,
    TD_GGUF_INT64,
    TD_GGUF_FLOAT64,
    TD_GGUF_TYPES,
} td_gguf_type;

typedef struct td_gguf_value {
    td_str key;
    td_gguf_type type;
    const uint8_t *at;    /* the value's bytes; of an array: its first element */
    td_str text;          /* STRING */
    td_gguf_type element; /* ARRAY */
    uint64_t n;           /* ARRAY: elements */
    const td_str *texts;  /* ARRAY of STRING: n of them */
} td_gguf_value;

typedef struct td_gguf {
    uint32_t version;
    const td_gguf_value *values;
    size_t n_values;
    td_tensor_set source;
    size_t alignment;
    td_arena arena;
    td_mmap map;
    td_map value_index;
} td_gguf;

treadle_status td_gguf_open(const char *path, td_gguf **out, treadle_error *err);
/* From memory that outlives it. */
treadle_status td_gguf_parse(const void *bytes, size_t n, td_gguf **out, treadle_error *err);
void td_gguf_close(td_gguf *gguf);

const td_gguf_value *td_gguf_find(const td_gguf *gguf, const char *key); /* NULL: absent */

/* Element `index` of a value as a number (a scalar is its own element 0); false: no number, or an integer that does not
 * fit. Booleans are 0 and 1. */
bool td_gguf_int_at(const td_gguf_value *value, uint64_t index, int64_t *out);
bool td_gguf_double_at(const td_gguf_value *value, uint64_t index, double *out);

/* Values by key: absent gives the fallback; another type, or outside [low, high], is an error that names the key. */
treadle_status td_gguf_get_int(const td_gguf *gguf, const char *key, int64_t low, int64_t high, int64_t fallback,
                               int64_t *out, treadle_error *err);
treadle_status td_gguf_get_double(const td_gguf *gguf, const char *key, double fallback, double *out,
                                  treadle_error *err);
treadle_status td_gguf_get_bool(const td_gguf *gguf, const char *key, bool fallback, bool *out, treadle_error *err);
treadle_status td_gguf_get_text(const td_gguf *gguf, const char *key, td_str fallback, td_str *out, treadle_error *err);

#endif
