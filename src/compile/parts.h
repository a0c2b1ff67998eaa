/* compile/parts.h - the parts that graphs are built of: linear maps, embeddings, norms, attention, feed-forward, head.
 *
 * A part takes value names and returns one. Weights are written as a part is built. */
#ifndef TD_COMPILE_PARTS_H
#define TD_COMPILE_PARTS_H

#include "compile/arch.h"
#include "compile/weights.h"

enum { TD_FUNCTION_OPSET = 21 }; /* of the bodies of functions; no graph has an older one */

typedef struct td_builder {
    td_graph graph;
    td_weights weights;
    td_model model;
    const td_compile_options *options;
    treadle_error *err;
    bool fused;                    /* GroupQueryAttention; else the same in standard operators (parts_attention.c) */
    td_str cos, sin;               /* tables [context, rotary_dim / 2] */
    td_str seqlens, total;         /* fused: int32 [batch] and scalar */
    td_str bias, window_bias;      /* unfused: attention bias [batch, 1, 1, seq, total]; that of windowed layers */
    td_str cos_rows, sin_rows;     /* unfused: the rows of this step's positions, [batch, 1, seq, rotary_dim / 2] */
    bool uses_matmul, uses_gather; /* of the treadle functions */
} td_builder;

/* The linear map of a weight and a bias (or NULL) of the checkpoint, as they are there. */
treadle_status td_part_projection(td_builder *b, td_str name, const td_source_tensor *weight,
                                  const td_source_tensor *bias, td_str x, td_str *out);

/* y = x . W^T + bias; bias may be empty. */
td_str td_part_linear(td_builder *b, td_str name, td_str x, const td_matrix *w, td_str bias);
/* Rows of W by id, float32. */
td_str td_part_embedding(td_builder *b, td_str name, td_str ids, const td_matrix *w);

/* The residual stream: `sum` is what the next branch is added to, `branch` what is yet to be added (empty: nothing). */
typedef struct td_stream {
    td_str sum, branch;
} td_stream;

typedef enum td_norm_kind { TD_NORM_RMS, TD_NORM_LAYER } td_norm_kind;

/* Adds the branch to the sum and normalises, in one node. keep: the new sum is needed later. bias (may be NULL) is for
 * TD_NORM_LAYER only. */
treadle_status td_part_norm(td_builder *b, td_str name, td_stream *stream, td_norm_kind kind,
                            const td_source_tensor *weight, const td_source_tensor *bias, bool keep, td_str *out);

/* y = activation(x). */
td_str td_part_activation(td_builder *b, td_str name, td_activation activation, td_str x);

treadle_status td_part_attention_setup(td_builder *b); /* inputs, tables, masks */
treadle_status td_part_attention(td_builder *b, int64_t layer, td_str x, td_str *out);

/* Whole graphs with their inputs and outputs: a decoder on its own (parts.c); the two halves of a speech recogniser, of
 * which the encoder makes the keys and values that the decoder's cross-attention reads (parts_speech.c). */
treadle_status td_part_decoder(td_builder *b);
treadle_status td_part_speech_encoder(td_builder *b);
treadle_status td_part_speech_decoder(td_builder *b);

/* The functions of compile.h that the graph uses, added to the graph. */
void td_part_functions(td_builder *b);

/* The cos and sin tables of the model's rotary embedding (rope.c). */
treadle_status td_part_rope_tables(td_builder *b);

#endif
