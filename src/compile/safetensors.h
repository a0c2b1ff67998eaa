/* compile/safetensors.h - reader of safetensors files.
 *
 *     u64 little-endian n | n bytes of JSON, an object | the tensors' bytes
 *     {"__metadata__": {text: text}, NAME: {"dtype": "F16", "shape": [...], "data_offsets": [begin, end]}, ...}
 *
 * Offsets count from the end of the JSON. Everything is checked: sizes agree with shapes, and the tensors cover the
 * rest of the file without gap or overlap, as the format asks. Names and bytes become views; nothing is copied.
 * Source: the format's description in the README of huggingface/safetensors. */
#ifndef TD_COMPILE_SAFETENSORS_H
#define TD_COMPILE_SAFETENSORS_H

#include "base/arena.h"
#include "compile/tensor_set.h"

/* Adds the tensors of a whole file in memory, which must outlive `out`; what the header needs lives in the arena.
 * FORMAT, LIMIT (more dimensions than TD_SOURCE_RANK, a header above 100 MB), OUT_OF_MEMORY. */
treadle_status td_safetensors_read(const void *bytes, size_t n, td_arena *arena, td_tensor_set *out,
                                   treadle_error *err);

#endif
