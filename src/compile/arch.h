/* compile/arch.h - architectures as data: which tensors a model has, of which shapes, and
 * how its parts are put together.
 *
 * A row of the table (arch.c) says all that differs between architectures; the graph builder (parts.h) has one function
 * per part and reads the row. Resolving a checkpoint checks that every tensor which the row needs is there in its
 * shape, and that the checkpoint holds no tensor that the row does not know: such a model would be computed wrongly.
 * Hyperparameters come from the keys of a GGUF file (arch_gguf.c) or from config.json (arch_hf.c); past that, a model
 * is the same whatever it came from. */
#ifndef TD_COMPILE_ARCH_H
#define TD_COMPILE_ARCH_H

#include "compile/checkpoint.h"

/* How rotary pairs lie in the rows of q and k in the file. */
typedef enum td_rope_order { TD_ROPE_PAIRS, TD_ROPE_HALVES } td_rope_order;

typedef enum td_activation {
    TD_ACT_SILU,
    TD_ACT_GELU,
    TD_ACT_GELU_TANH,
    TD_ACT_QUICK_GELU,
    TD_ACT_RELU,
} td_activation;

typedef enum td_model_tensor {
    TD_MT_EMBED,
    TD_MT_POSITIONS,
    TD_MT_NORM,
    TD_MT_NORM_BIAS,
    TD_MT_HEAD,
    TD_MT_ROPE_FREQS,
    TD_MT_CONV1,
    TD_MT_CONV1_BIAS,
    TD_MT_CONV2,
    TD_MT_CONV2_BIAS,
    TD_MT_ENCODER_POSITIONS,
    TD_MT_ENCODER_NORM,
    TD_MT_ENCODER_NORM_BIAS,
    TD_MT_COUNT
} td_model_tensor;

typedef enum td_layer_tensor {
    TD_LT_ATTN_NORM,
    TD_LT_ATTN_NORM_BIAS,
    TD_LT_Q,
    TD_LT_K,
    TD_LT_V,
    TD_LT_O,
    TD_LT_Q_BIAS,
    TD_LT_K_BIAS,
    TD_LT_V_BIAS,
    TD_LT_O_BIAS,
    TD_LT_CROSS_NORM,
    TD_LT_CROSS_NORM_BIAS,
    TD_LT_CROSS_Q,
    TD_LT_CROSS_K,
    TD_LT_CROSS_V,
    TD_LT_CROSS_O,
    TD_LT_CROSS_Q_BIAS,
    TD_LT_CROSS_K_BIAS,
    TD_LT_CROSS_V_BIAS,
    TD_LT_CROSS_O_BIAS,
    TD_LT_FFN_NORM,
    TD_LT_FFN_NORM_BIAS,
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
    TD_SIZE_ENCODER_FFN,
    TD_SIZE_VOCAB,
    TD_SIZE_ROTARY_HALF,
    TD_SIZE_CONTEXT,         /* positions of the decoder */
    TD_SIZE_ENCODER_CONTEXT, /* positions of the encoder */
    TD_SIZE_MELS,
    TD_SIZE_CONV_KERNEL,
    TD_SIZE_COUNT
} td_size;

typedef struct td_slot {
    int tensor;            /* td_model_tensor or td_layer_tensor */
    const char *gguf, *hf; /* names in either source, NULL: not there; of a layer: behind the list's prefix */
    bool required;
    td_size dims[3]; /* innermost first; NONE: 1 */
} td_slot;

typedef struct td_slot_list {
    const td_slot *items;
    size_t n;
    const char *gguf_prefix, *hf_prefix; /* of layers: in front of the layer's number, which a '.' follows */
} td_slot_list;

struct td_builder;

/* A graph of the folder: FILE.onnx and FILE.onnx.data. */
typedef struct td_arch_graph {
    const char *file;
    treadle_status (*build)(struct td_builder *b);
    int opset, ir_version;
} td_arch_graph;

typedef struct td_model td_model;

typedef struct td_arch {
    const char *name;            /* general.architecture in GGUF, and the prefix of its keys */
    bool in_gguf;                /* read from GGUF files */
    td_rope_order gguf_rope;     /* the order in GGUF files; Hugging Face files have halves */
    const char *const *hf_types; /* model_type in config.json, NULL-terminated; NULL: not read from there */
    treadle_status (*read_hf)(td_model *m, td_arena *arena, treadle_error *err);
    td_slot_list model, layer, encoder_layer;
    const char *const *ignored; /* names, '*' for anything, NULL-terminated: tensors without effect */
    const td_arch_graph *graphs;
    size_t n_graphs;
} td_arch;

typedef enum td_rope_scaling { TD_SCALING_NONE, TD_SCALING_LINEAR, TD_SCALING_YARN, TD_SCALING_LLAMA3 } td_rope_scaling;

struct td_model {
    const td_arch *arch;
    const td_checkpoint *checkpoint;
    td_rope_order rope;
    int64_t n_layers, n_heads, n_kv_heads, head_dim, rotary_dim, context;
    int64_t n_encoder_layers, n_encoder_heads; /* 0: no encoder */
    int64_t sizes[TD_SIZE_COUNT];
    float norm_epsilon, attention_scale; /* scale 0: 1 / sqrt(head_dim) */
    td_activation activation;
    bool tied; /* the head is the embedding table, whatever else the file holds */
    td_rope_scaling scaling;
    double rope_base, rope_factor, original_context, attn_factor, beta_fast, beta_slow;
    double low_frequency, high_frequency; /* LLAMA3: turns over the original context */
    int64_t window;                       /* keys that a query of a windowed layer sees, itself among them; 0: none */
    const bool *windowed;                 /* [n_layers] where there is a window; NULL: all layers */
    const td_source_tensor *tensors[TD_MT_COUNT];
    const td_source_tensor *(*layers)[TD_LT_COUNT], *(*encoder_layers)[TD_LT_COUNT];
};

/* More positions than this get no place in the cos and sin tables: two tables of this length
 * with 64 columns are 512 MB. */
enum { TD_MAX_CONTEXT = 1 << 20 };

/* Reads hyperparameters and finds all tensors. Arrays live in the arena. */
treadle_status td_model_resolve(const td_checkpoint *checkpoint, td_arena *arena, td_model *out, treadle_error *err);

/* Hyperparameters of a model whose row is known. */
treadle_status td_arch_read_gguf(td_model *m, treadle_error *err);
treadle_status td_arch_read_hf_decoder(td_model *m, td_arena *arena, treadle_error *err);
treadle_status td_arch_read_hf_speech(td_model *m, td_arena *arena, treadle_error *err);

/* The window of a layer, 0: it sees all keys. */
static inline int64_t td_model_window(const td_model *m, int64_t layer) {
    return m->windowed && !m->windowed[layer] ? 0 : m->window;
}

#endif
