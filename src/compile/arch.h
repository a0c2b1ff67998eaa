/* compile/arch.h - architectures as data: which tensors a model has, of which shapes, and how its parts are put together.
 *
 * A row of the table (arch.c) says all that differs between architectures; the graph builder (parts.h) has one function
 * per part and reads the row. Resolving a file checks that every tensor which the row needs is there in its shape, and
 * that the file holds no tensor that the row does not know: such a model would be computed wrongly. */
#ifndef TD_COMPILE_ARCH_H
#define TD_COMPILE_ARCH_H

#include "compile/gguf.h"

/* How rotary pairs lie in the rows of q and k in the file. */
typedef enum td_rope_order { TD_ROPE_PAIRS, TD_ROPE_HALVES } td_rope_order;

typedef enum td_model_tensor { TD_MT_EMBED, TD_MT_NORM, TD_MT_HEAD, TD_MT_ROPE_FREQS, TD_MT_COUNT } td_model_tensor;

typedef enum td_layer_tensor {
    TD_LT_ATTN_NORM,
    TD_LT_Q,
    TD_LT_K,
    TD_LT_V,
    TD_LT_O,
    TD_LT_Q_BIAS,
    TD_LT_K_BIAS,
    TD_LT_V_BIAS,
    TD_LT_O_BIAS,
    TD_LT_FFN_NORM,
    TD_LT_GATE,
    TD_LT_UP,
    TD_LT_DOWN,
    TD_LT_GATE_BIAS,
    TD_LT_UP_BIAS,
    TD_LT_DOWN_BIAS,
    TD_LT_COUNT,
} td_layer_tensor;

/* Sizes that shapes are given in. */
typedef enum td_size {
    TD_SIZE_NONE,
    TD_SIZE_HIDDEN,
    TD_SIZE_QUERY,
    TD_SIZE_KV,
    TD_SIZE_FFN,
    TD_SIZE_VOCAB,
    TD_SIZE_ROTARY_HALF,
    TD_SIZE_COUNT
} td_size;

typedef struct td_slot {
    int tensor;       /* td_model_tensor or td_layer_tensor */
    const char *name; /* in the file; of a layer: behind "blk.N." */
    bool required;
    td_size in, out; /* ggml's dims[0] and dims[1]; out NONE: a vector */
} td_slot;

typedef struct td_arch {
    const char *name; /* general.architecture, and prefix of its keys */
    td_rope_order rope;
    const td_slot *model_slots, *layer_slots;
    size_t n_model_slots, n_layer_slots;
    const char *const *ignored; /* names, '*' for anything, NULL-terminated: tensors without effect */
} td_arch;

typedef enum td_rope_scaling { TD_SCALING_NONE, TD_SCALING_LINEAR, TD_SCALING_YARN } td_rope_scaling;

typedef struct td_model {
    const td_arch *arch;
    const td_gguf *gguf;
    int64_t n_layers, n_heads, n_kv_heads, head_dim, rotary_dim, context;
    int64_t sizes[TD_SIZE_COUNT];
    float norm_epsilon, attention_scale; /* scale 0: 1 / sqrt(head_dim) */
    td_rope_scaling scaling;
    double rope_base, rope_factor, original_context, attn_factor, beta_fast, beta_slow;
    const td_gguf_tensor *tensors[TD_MT_COUNT];
    const td_gguf_tensor *(*layers)[TD_LT_COUNT];
} td_model;

const td_arch *td_arch_at(size_t index); /* NULL past the end */

/* Reads hyperparameters and finds all tensors. Arrays live in the arena. */
treadle_status td_model_resolve(const td_gguf *gguf, td_arena *arena, td_model *out, treadle_error *err);

#endif
