/* compile/graph.h - building an ONNX graph: nodes, constants, inputs, outputs, by names.
 *
 * Everything lives in the caller's arena. A failed allocation is remembered in `failed`; all calls are then harmless
 * and return empty names or NULL, so that a builder needs one check at its end. Node and value names are one: a node
 * called "layers.0.attn" makes the value "layers.0.attn" (further outputs are given names of their own). */
#ifndef TD_COMPILE_GRAPH_H
#define TD_COMPILE_GRAPH_H

#include "base/map.h"
#include "onnx/model.h"

enum { TD_GNODE_INPUTS = 16, TD_GNODE_OUTPUTS = 4, TD_GNODE_ATTRS = 8 };

typedef struct td_gnode {
    td_onnx_node node; /* its arrays are those below */
    td_str inputs[TD_GNODE_INPUTS], outputs[TD_GNODE_OUTPUTS];
    td_onnx_attr attrs[TD_GNODE_ATTRS];
} td_gnode;

typedef struct td_graph {
    td_arena *arena;
    TD_VEC(td_gnode *) nodes;
    TD_VEC(td_onnx_tensor) initializers;
    TD_VEC(td_onnx_value_info) inputs, outputs;
    TD_VEC(td_onnx_function) functions;
    td_map names; /* of initializers, to make constants once */
    bool failed;
    td_onnx_attr spare; /* takes what has no place after a failure; never read */
} td_graph;

void td_graph_init(td_graph *g, td_arena *arena);
void td_graph_discard(td_graph *g); /* what is not in the arena */

td_str td_graph_name(td_graph *g, const char *format, ...) TD_PRINTF(2, 3);

/* Adds a node with one output of the node's name. domain "" is ai.onnx. */
td_gnode *td_graph_add(td_graph *g, const char *domain, const char *op, td_str name);
void td_gnode_input(td_graph *g, td_gnode *n, td_str value);  /* in order; an empty name: absent */
void td_gnode_output(td_graph *g, td_gnode *n, td_str value); /* after the first */
void td_gnode_int(td_graph *g, td_gnode *n, const char *name, int64_t value);
void td_gnode_float(td_graph *g, td_gnode *n, const char *name, float value);
void td_gnode_ints(td_graph *g, td_gnode *n, const char *name, const int64_t *values, size_t count);
void td_gnode_text(td_graph *g, td_gnode *n, const char *name, const char *value);
void td_gnode_ref(td_graph *g, td_gnode *n, const char *name, td_onnx_attr_type type, const char *function_attr);

/* Nodes of ai.onnx with one to three inputs (empty ones at the end are left out); returns the output. */
td_str td_graph_op(td_graph *g, const char *op, td_str name, td_str a, td_str b, td_str c);
td_str td_graph_cast(td_graph *g, td_str name, td_str value, td_dtype to);

/* Small constants as initializers inside the model; one of the same name is made once. */
td_str td_graph_ints(td_graph *g, const char *name, const int64_t *values, int64_t n); /* int64 [n] */
td_str td_graph_int(td_graph *g, int64_t value);                                       /* int64 scalar "int.VALUE" */
td_str td_graph_float(td_graph *g, const char *name, float value);                     /* float32 scalar */

/* A shape of fixed sizes and names for messages and symbols: dims[i] >= 0, or names[i]. */
void td_graph_input(td_graph *g, td_str name, td_dtype dtype, int rank, const int64_t *dims, const char *const *names);
void td_graph_output(td_graph *g, td_str name, td_dtype dtype, int rank, const int64_t *dims, const char *const *names);

void td_graph_initializer(td_graph *g, const td_onnx_tensor *tensor);

/* The nodes as an array in the arena. */
const td_onnx_node *td_graph_nodes(td_graph *g);

#endif
