/* compile/parts.h - the parts that graphs are built of: linear maps, embeddings, norms, attention, feed-forward, head.
 *
 * A part takes value names and returns one. Weights are written as a part is built. */
#ifndef TD_COMPILE_PARTS_H
#define TD_COMPILE_PARTS_H

#include "compile/arch.h"
#include "compile/weights.h"

enum { TD_COMPILE_OPSET = 21, TD_COMPILE_IR = 10 };

typedef struct td_builder {
    td_graph graph;
    td_weights weights;
    td_model model;
    const td_compile_options *options;
    treadle_error *err;
    bool fused;                    /* GroupQueryAttention; else the same in standard operators (parts_attention.c) */
    td_str cos, sin;               /* tables [context, rotary_dim / 2] */
    td_str seqlens, total;         /* fused: int32 [batch] and scalar */
    td_str bias;                   /* unfused: attention bias [batch, 1, 1, seq, total] */
    td_str cos_rows, sin_rows;     /* unfused: the rows of this step's positions, [batch, 1, seq, rotary_dim / 2] */
    bool uses_matmul, uses_gather; /* of the treadle functions */
} td_builder;

/* y = x . W^T + bias; bias may be empty. */
td_str td_part_linear(td_builder *b, td_str name, td_str x, const td_matrix *w, td_str bias);
/* Rows of W by id, float32. */
td_str td_part_embedding(td_builder *b, td_str name, td_str ids, const td_matrix *w);

/* The residual stream: `sum` is what the next branch is added to, `branch` what is yet to be added (empty: nothing). */
typedef struct td_stream {
    td_str sum, branch;
} td_stream;

/* Adds the branch to the sum and normalises: one SkipSimplifiedLayerNormalization. keep: the new sum is needed later. */
td_str td_part_norm(td_builder *b, td_str name, td_stream *stream, td_str weight, bool keep);

treadle_status td_part_attention_setup(td_builder *b); /* inputs, tables, masks */
treadle_status td_part_attention(td_builder *b, int64_t layer, td_str x, td_str *out);
treadle_status td_part_mlp(td_builder *b, int64_t layer, td_str x, td_str *out);

/* The whole decoder with its inputs and outputs. */
treadle_status td_part_decoder(td_builder *b);

/* The functions of compile.h that the graph uses, added to the graph. */
void td_part_functions(td_builder *b);

/* The cos and sin tables of the model's rotary embedding (rope.c). */
treadle_status td_part_rope_tables(td_builder *b);

#endif
