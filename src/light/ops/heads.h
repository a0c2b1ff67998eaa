/* light/ops/heads.h - strided views of attention heads: what the attention ops share. */
#ifndef TD_LIGHT_OPS_HEADS_H
#define TD_LIGHT_OPS_HEADS_H

#include "light/op.h"

/* Element d of head h of token t of sequence b. Heads themselves are dense. */
typedef struct td_heads {
    char *data;
    td_dtype dtype;
    int64_t batch, token, head; /* strides in elements */
} td_heads;

static inline char *td_heads_at(const td_heads *x, int64_t b, int64_t t, int64_t h) {
    int64_t offset = (b * x->batch + t * x->token + h * x->head) * (td_dtype_bits(x->dtype) / 8);
    return offset ? x->data + offset : x->data; /* data is NULL where nothing is */
}

/* Views of [batch, token, heads * size], from head `first` on, and of [batch, head, token, size]. A tensor whose last
 * dimension is strided is copied into scratch. */
treadle_status td_heads_of_tokens(td_run *r, const td_tensor *t, int64_t first, int64_t size, td_heads *out);
treadle_status td_heads_of_cache(td_run *r, const td_tensor *t, td_heads *out);
/* The cache that an op writes: output i, or scratch of that shape where nobody wants the output. */
treadle_status td_heads_of_output(td_run *r, size_t i, td_dtype dtype, const td_shape *shape, td_heads *out);

/* n elements of one float type to another; buffer: n floats, needed where neither is float32. */
void td_heads_convert(td_dtype from, const void *source, td_dtype to, void *target, int64_t n, float *buffer);

/* A dense input as float32: in place if it is that already, else in scratch. */
treadle_status td_heads_f32(td_run *r, const td_tensor *t, const float **out);

/* Makes cache `present` of n_present rows of `size` from `before` rows of past, leaving place for n_new,
 * with zeros behind. Past's rows are not touched where both are the same memory; nor is what lies
 * behind. past->data may be NULL. */
void td_heads_extend(const td_heads *past, const td_heads *present, int64_t b, int64_t h, int64_t size, int64_t before,
                     int64_t n_new, int64_t n_present);

#endif
