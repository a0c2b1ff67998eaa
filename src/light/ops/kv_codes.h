/* light/ops/kv_codes.h - keys and values that a cache holds as codes: value = code * scale, one scale for all or one
 * for each channel of each head. Codes of 8 bits are int8 or float8; of 4 bits two in a byte of uint8, the even
 * channel low, 8 standing for 0. */
#ifndef TD_LIGHT_OPS_KV_CODES_H
#define TD_LIGHT_OPS_KV_CODES_H

#include "light/op.h"

typedef struct td_kv_codes {
    bool on; /* else the cache holds floats */
    bool per_channel;
    int bits;
    td_dtype dtype;
} td_kv_codes;

/* Reads one of k_quant_type and v_quant_type, with kv_cache_bit_width; cache: the type of the past, or TD_UNDEFINED. */
treadle_status td_kv_codes_prepare(td_prepare *p, const char *type, size_t scale_input, td_dtype cache,
                                   td_kv_codes *out);

/* Elements of the cache that a head of `size` values takes. */
static inline int64_t td_kv_codes_row(const td_kv_codes *c, int64_t size) {
    return c->on && c->bits == 4 ? (size + 1) / 2 : size;
}

/* One head; scales: of its channels [size], or the one of all. Nearest, halves to even, what
 * is out of range to its end. */
void td_kv_codes_store(const td_kv_codes *c, const float *x, const float *scales, int64_t size, void *to);
void td_kv_codes_load(const td_kv_codes *c, const void *from, const float *scales, int64_t size, float *y);

#endif
