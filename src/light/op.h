/* light/op.h - the op interface: what one file in light/ops/ implements.
 *
 * An op is a row in ops.inc (domain, name, since-version, implementation) plus a td_op_impl. The schema
 * (onnx/schema.h) has already checked attribute names, types and required ones, the number of inputs and outputs and
 * their dtypes; defaults come from it.
 *
 * Life of a node:
 *   prepare  once at open: read attributes into the node's state, look at constant inputs (prepack), refuse by
 *            td_unsupported what is not implemented (all refusals of a model are collected and reported together);
 *   infer    at open with symbolic shapes, and before each run with exact ones: set dtype and shape of every output;
 *   run      compute; outputs have their memory already, unless infer left a dimension unknown (data-dependent) or
 *            the op is a view;
 *   release  at close.
 * The state is immutable after prepare: runs of several contexts share it. Nothing is allocated in run:
 * scratch comes from the context. */
#ifndef TD_LIGHT_OP_H
#define TD_LIGHT_OP_H

#include "base/arena.h"
#include "base/error.h"
#include "base/pool.h"
#include "light/light.h"

typedef struct td_node td_node;       /* a resolved node of a session */
typedef struct td_prepare td_prepare; /* see below */
typedef struct td_infer td_infer;
typedef struct td_run td_run;

enum {
    /* Output 0 may share input 0's memory: run calls td_run_view or td_run_alloc. */
    TD_OP_VIEW = 1 << 0,
    /* Output 0 may be computed over any input that dies here and has as many elements of the same size. */
    TD_OP_INPLACE = 1 << 1,
    /* All inputs may be strided, and output 0 too; else see strided_inputs. */
    TD_OP_ANY_STRIDE = 1 << 2,
    /* Random, or otherwise not to be folded or merged. */
    TD_OP_IMPURE = 1 << 3,
    /* Takes or gives sequences or optionals: uses the td_value form of inputs and outputs. Its run makes all its
     * outputs: tensors by td_run_alloc or td_run_view (input 0 only, with TD_OP_VIEW too) or as values that own what
     * they hold (buffer, sequence): the engine releases these. */
    TD_OP_VALUES = 1 << 4,
    /* With TD_OP_VALUES: outputs may be absent though all inputs are there. */
    TD_OP_ABSENT = 1 << 7,
    /* Outputs may lie in the memory of an input with equal data and strides (a KV cache that grows): run recognises
     * that and leaves the input's part as it is. */
    TD_OP_EXTENDS = 1 << 5,
    /* One output (overwriting_output) may lie in the memory of one input (overwritten_input) with equal data and
     * strides, and change its elements: granted only where neither another operand nor a later step reads them. */
    TD_OP_OVERWRITES = 1 << 6,
};

typedef struct td_op_impl {
    size_t state_bytes;                       /* zeroed memory per node, td_..._state() */
    treadle_status (*prepare)(td_prepare *p); /* may be NULL */
    treadle_status (*infer)(td_infer *in);
    treadle_status (*run)(td_run *r);
    void (*release)(void *state); /* may be NULL: state is in the session's arena. Called after a failed prepare too */
    uint32_t flags;
    uint32_t strided_inputs;  /* bit i: input i may be strided; all others are made dense before run */
    uint32_t strided_outputs; /* bit i: output i may be strided (bound KV caches) */
    uint8_t overwritten_input, overwriting_output; /* with TD_OP_OVERWRITES */
} td_op_impl;

typedef struct td_op { /* a row of ops.inc */
    const char *domain, *name;
    int since;
    const td_op_impl *impl;
} td_op;

/* The implementation for an op of this domain and opset version (largest since <= version), or NULL. */
const td_op *td_op_find(td_str domain, td_str name, int64_t version);
size_t td_op_count(void);
const td_op *td_op_at(size_t index);

/* --- prepare */
struct td_prepare {
    void *state;
    int since; /* of the chosen row */
    int opset; /* imported version of the node's domain */
    size_t n_inputs, n_outputs;
    td_activations activations;
    td_arena *arena;    /* the session's: lives as long as the node */
    treadle_error *err; /* pass it to td_fail */
    const td_node *node;
    void *build;   /* private to light/prepare.c */
    bool analysis; /* only infer will be called on this state: work that is for run (packing, tables) may be left out */
};

bool td_has_input(const td_prepare *p, size_t i); /* present and not the empty name */
bool td_has_output(const td_prepare *p, size_t i);
td_dtype td_input_dtype(const td_prepare *p, size_t i);         /* TD_UNDEFINED if absent */
const td_tensor *td_input_const(const td_prepare *p, size_t i); /* dense, if known at open; else NULL */
const td_shape *td_input_shape(const td_prepare *p, size_t i);  /* as far as known at open; NULL if absent */

/* Attributes, typed; absent optional ones without default: has = false, 0, empty or NULL. */
bool td_attr_has(const td_prepare *p, const char *name); /* given in the model (not by default) */
int64_t td_attr_int(const td_prepare *p, const char *name);
float td_attr_float(const td_prepare *p, const char *name);
td_str td_attr_string(const td_prepare *p, const char *name);
const int64_t *td_attr_ints(const td_prepare *p, const char *name, size_t *n);
const float *td_attr_floats(const td_prepare *p, const char *name, size_t *n);
const td_str *td_attr_strings(const td_prepare *p, const char *name, size_t *n);
const td_onnx_tensor *td_attr_tensor(const td_prepare *p, const char *name);
const td_onnx_type *td_attr_type(const td_prepare *p, const char *name);

/* "node \"x\" (MatMulNBits): ..." collected for the report of everything missing; returns TREADLE_UNSUPPORTED. */
treadle_status td_unsupported(const td_prepare *p, const char *format, ...) TD_PRINTF(2, 3);
/* A malformed node: wrong attribute value and the like; returns TREADLE_FORMAT. */
treadle_status td_bad_node(const td_prepare *p, const char *format, ...) TD_PRINTF(2, 3);

/* Memory for packed weights: from the session's packed-weights cache, in execution order. If *out_ready is true the
 * bytes are already there (cache hit; or p->analysis, then nobody will read them), else the op fills them. 64-byte
 * aligned. `what`: content key parts (op, layout version). */
treadle_status td_prepare_packed(td_prepare *p, const char *what, size_t bytes, void **out, bool *out_ready);
/* The same in two steps, for packs whose form depends on the weights: a description (meta, at most 40 bytes) is stored
 * with them, and on a hit (true) the weights need not be looked at. The op checks what it finds against its attributes.
 * Not to be called with p->analysis. */
bool td_prepare_find_packed(td_prepare *p, const char *what, void *meta, size_t meta_bytes, const void **out,
                            size_t *bytes);
treadle_status td_prepare_add_packed(td_prepare *p, const char *what, const void *meta, size_t meta_bytes, size_t bytes,
                                     void **out); /* zeroed */

/* The op has its own form of constant input i and reads it no more: the pages of its file need not stay in memory. */
void td_prepare_done_with(const td_prepare *p, size_t i);

/* For messages: "float32[2, 3]". */
void td_value_describe(const td_value *value, char *out, size_t out_bytes);

/* --- infer */
struct td_infer {
    const void *state;
    size_t n_inputs, n_outputs;
    const td_value *const *inputs; /* dtype and shape always; data NULL when not known (open) or absent (kind NONE) */
    td_value *const *outputs;      /* set kind, tensor.dtype, tensor.shape; an output that nobody wants is NULL */
    bool at_open;                  /* dimensions may be unknown or symbolic */
    treadle_error *err;
    const td_node *node;
    void *build; /* at open; private to light/body.c */
};

/* Usual answers. All tolerate unknown ranks and dimensions at open. */
treadle_status td_infer_same(td_infer *in, size_t output, size_t input); /* dtype and shape of an input */
/* NULL output: nothing. */
treadle_status td_infer_set(td_infer *in, size_t output, td_dtype dtype, const td_shape *shape);
treadle_status td_infer_unknown(td_infer *in, size_t output, td_dtype dtype, int rank); /* rank -1, or dims unknown */
treadle_status td_infer_broadcast(td_infer *in, size_t output, td_dtype dtype, size_t n_inputs_from_0);
treadle_status td_infer_axis(td_infer *in, int64_t axis, int rank, int *out); /* -r..r-1 -> 0..r-1, or an error */
/* Integer list input (shape, axes, ...) if its data are known: int32 or int64, at most TD_MAX_RANK entries.
 * *known false: the data are not there at open. */
treadle_status td_infer_ints(td_infer *in, size_t input, int64_t out[TD_MAX_RANK], int *n, bool *known);
/* At open: sizes of such a list of which at least some are known: numbers from -1, symbols (TD_DIM_SYMBOL), and
 * TD_KNOWN_NOT (known.h). false: none are. */
bool td_infer_sizes(const td_infer *in, size_t input, int64_t out[TD_MAX_RANK], int *n);
/* At most `most`. */
treadle_status td_infer_list(td_infer *in, size_t input, int64_t *out, int most, int *n, bool *known);
/* Names node, op and input shapes. */
treadle_status td_infer_fail(td_infer *in, const char *format, ...) TD_PRINTF(2, 3);

/* --- run */
struct td_run {
    const void *state;
    size_t n_inputs, n_outputs;
    const td_tensor *const *in;       /* NULL: absent */
    td_tensor *const *out;            /* NULL: not wanted */
    const td_value *const *in_values; /* TD_OP_VALUES */
    td_value *const *out_values;
    td_pool *pool;
    treadle_error *err;
    const td_node *node;
    td_light_ctx *ctx;
};

/* Memory for output i of this shape (data-dependent outputs, views that must copy). */
treadle_status td_run_alloc(td_run *r, size_t i, td_dtype dtype, const td_shape *shape);
/* Output i is a view of input j's memory (same buffer, new shape and strides). Copies where sharing is not possible:
 * without TD_OP_VIEW, or when j is not 0. */
treadle_status td_run_view(td_run *r, size_t i, size_t j, const td_tensor *view);
/* 64-byte aligned scratch until the end of this node's run; several calls give disjoint memory; NULL
 * and err set: out of memory. */
void *td_run_scratch(td_run *r, size_t bytes);
/* A dense tensor's numbers as kernels take them: float16 and bfloat16 as float32 in scratch, other types as they are.
 * *out NULL: t is NULL. */
treadle_status td_run_widen(td_run *r, const td_tensor *t, const void **out);
/* Memory until the next run of the context, for what outputs point to (the bytes of strings). NULL and err set:
 * none. */
void *td_run_keep(td_run *r, size_t bytes);
treadle_status td_run_fail(td_run *r, const char *format, ...) TD_PRINTF(2, 3); /* TREADLE_RUN, names the node */

#endif
