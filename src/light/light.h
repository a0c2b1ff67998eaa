/* light/light.h - the native ONNX engine, as its users (engine adapters, bridges, tests) see it.
 *
 * A td_light is an opened graph: immutable, shared by any number of threads. A td_light_ctx is one mutable run
 * state over it (values, arena, profile): one thread at a time. Opening does all thinking: every node is
 * resolved to an implementation, types are inferred, passes have run, weights are packed, memory is planned; a
 * run walks a flat array of nodes. */
#ifndef TD_LIGHT_LIGHT_H
#define TD_LIGHT_LIGHT_H

#include "onnx/model.h"
#include "tensor/value.h"

typedef struct td_light td_light;
typedef struct td_light_ctx td_light_ctx;

typedef enum td_activations {
    TD_ACTIVATIONS_AUTO,  /* as each node's accuracy_level allows */
    TD_ACTIVATIONS_FLOAT, /* never quantise activations */
    TD_ACTIVATIONS_INT8,  /* int8 activations for int4 and int8 weights wherever a kernel exists */
} td_activations;

typedef struct td_light_options {
    int n_threads;           /* 0: all CPUs of this process */
    bool no_passes;          /* run the graph as written; functions are still inlined */
    const char *skip_passes; /* comma-separated names of passes to leave out, or NULL */
    td_activations activations;
    const char *pack_dir; /* folder of the packed-weights cache; NULL: pack in memory only */
    bool profile;         /* time every node (td_light_profile) */
    uint64_t max_steps;   /* runs of subgraphs (iterations of loops) in one run, then TREADLE_LIMIT; 0: no limit */
} td_light_options;

/* A graph input or output. dims < 0 are symbolic; their names are in dim_names (empty: anonymous). */
typedef struct td_light_port {
    td_str name;
    td_onnx_type_kind kind;
    td_dtype dtype; /* of the tensor, or of a sequence's or optional's element tensors */
    td_shape shape; /* rank -1: not declared */
    td_str dim_names[TD_MAX_RANK];
    bool optional; /* an input that has an initializer as default, or whose type is optional */
    const td_onnx_prop *props;
    size_t n_props;
} td_light_port;

/* Opens a file; options NULL: defaults. A graph with ops, attributes or dtypes that light lacks fails with
 * TREADLE_UNSUPPORTED and a message that lists all of them by name. */
treadle_status td_light_open(const char *path, const td_light_options *options, td_light **out, treadle_error *err);
/* Takes the model: closes it on failure too. */
treadle_status td_light_open_take(td_onnx_model *model, const td_light_options *options, td_light **out,
                                  treadle_error *err);
/* What td_light_open would refuse a file for, told without packing weights; of these only constants that shapes
 * hang on are read. (*out_outputs)[i], in the arena: kind, type and shape of graph output i as far as they are
 * declared or can be inferred. */
treadle_status td_light_check(const char *path, td_arena *arena, td_light_port **out_outputs, treadle_error *err);
/* Lets the weights' pages go, as far as they lie in files; they come back when a run touches
 * them. Runs may be going on. */
void td_light_drop(const td_light *light);
void td_light_close(td_light *light); /* after all its contexts; NULL is fine */

size_t td_light_n_inputs(const td_light *light);
size_t td_light_n_outputs(const td_light *light);
const td_light_port *td_light_input(const td_light *light, size_t index);
const td_light_port *td_light_output(const td_light *light, size_t index);

treadle_status td_light_ctx_new(const td_light *light, td_light_ctx **out, treadle_error *err);
void td_light_ctx_free(td_light_ctx *ctx);

/* Runs the graph. inputs[n_inputs]: kind NONE = not given (allowed for optional ports). Input memory must stay
 * unchanged during the run and may be strided.
 * outputs[n_outputs], in and out: on entry kind NONE asks for the output in memory of the context, valid until its next
 * run or end; kind TENSOR with data binds the output to the caller's memory: dtype must match, tensor.shape is the
 * capacity per dimension, strides are kept; on return shape is what was produced (an error if it exceeds the capacity).
 * A bound output may be the same memory with the same strides as an input (KV caches): ops that extend in place
 * (Concat, GroupQueryAttention, Attention, ...) then copy nothing. skip[i] (skip may be NULL): the caller does not want
 * output i; nodes that only serve skipped outputs need not run. */
treadle_status td_light_run(td_light_ctx *ctx, const td_value *inputs, td_value *outputs, const bool *skip,
                            treadle_error *err);

/* While on, a run ends after the node it is at, with TREADLE_CANCELLED, and so does every later one. The one call that
 * any thread may make while another runs the context. */
void td_light_interrupt(td_light_ctx *ctx, bool on);

/* Logits of few positions: if output `index` [batch, seq, ...] is made by row-wise ops (norm, matmul with
 * constant weights, ...), td_light_can_pick_rows says so, and a run after td_light_pick_rows(ctx,
 * positions[batch][n], n, seq) computes only these positions of each batch row: the output then is [batch, n, ...].
 * If it would not have `batch` rows of `seq` positions (graphs that keep the last one alone), all of it is computed.
 * positions NULL: all again. Positions, 0..seq-1, are copied. */
bool td_light_can_pick_rows(const td_light *light, size_t output);
treadle_status td_light_pick_rows(td_light_ctx *ctx, size_t output, const int64_t *positions, size_t batch, size_t n,
                                  int64_t seq, treadle_error *err);

/* Node times of the last run with options.profile: one line a node, or totals by op when by_op. */
void td_light_profile(const td_light_ctx *ctx, bool by_op, td_buf *out);

/* What inspect prints: op counts (with those that light lacks), weights by dtype; does not load weights. */
typedef struct td_light_op_count {
    td_str domain, op_type;
    int64_t since_version; /* 0: unknown to the schema */
    size_t n;
    bool supported;
} td_light_op_count;
treadle_status td_light_count_ops(const td_onnx_model *model, td_arena *arena, td_light_op_count **out, size_t *n,
                                  treadle_error *err);

#endif
