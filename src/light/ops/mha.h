/* light/ops/mha.h - attention with a key and value head for each query head, as the com.microsoft ops have it: what
 * MultiHeadAttention, DecoderMaskedMultiHeadAttention and Attention share.
 *
 * A caller describes where queries, new keys and values, past and present lie; the rest is here: biases of the
 * projections, the cache, masks of all forms, the scores. */
#ifndef TD_LIGHT_OPS_MHA_H
#define TD_LIGHT_OPS_MHA_H

#include "kernels/attention_f32.h"
#include "light/ops/heads.h"

/* What prepare knows. */
typedef struct td_mha_attrs {
    const td_attention_f32_kernels *kernels;
    int64_t n_heads;
    float scale;  /* 0: 1 / sqrt(head size) */
    float filter; /* added to the scores of masked keys */
    bool causal;
    td_dtype dtype; /* of the node's tensors */
} td_mha_attrs;

treadle_status td_mha_prepare(td_prepare *p, td_mha_attrs *out);

typedef struct td_mha {
    const td_mha_attrs *attrs;
    td_run *r;
    int64_t n_batch, n_q, n_new, n_past, size, v_size; /* keys: n_past + n_new */
    td_heads q, new_k, new_v;
    const td_tensor *projection_bias; /* [heads * (2 size + v_size)] added to q, k and v, or NULL */
    bool has_past;
    td_heads past_k, past_v, present_k, present_v; /* data NULL: there is none */
    int64_t n_room;                                /* rows of present: n_past + n_new, or a buffer's capacity */
    const td_tensor *mask;                         /* int32, see td_mha_check_mask; NULL: none */
    const td_tensor *bias; /* [1 or batch, 1 or heads, n_q, keys] added to the scores; NULL: none */
    /* int32 [batch / beams, beams, capacity]: whose row of the past each key is; NULL: one's own */
    const td_tensor *beams;
    td_tensor *y;      /* [batch, n_q, heads * v_size], dense; NULL: not wanted */
    td_tensor *scores; /* [batch, heads, n_q, keys] before the softmax; NULL: not wanted */
} td_mha;

treadle_status td_mha_run(td_mha *w);

#endif
