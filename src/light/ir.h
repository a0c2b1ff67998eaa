/* light/ir.h - the graph between the file and the run: values and nodes with integer names. Private to light.
 *
 * Invariants: nodes are in execution order; a value is made once (by a node, as a graph input, or as a constant); node
 * inputs and outputs are value ids, TD_NO_VALUE for an absent optional. Everything lives in the session's arena; only
 * the growing arrays are heap memory, which td_graph_free gives back. Passes change the graph, then it is frozen.
 *
 * A subgraph (a body, body.h) is a graph of its own. What it reads of the graphs around it are inputs of
 * its node, behind those of the op, and graph inputs of the body: so no list of uses, no order and no life
 * span has to know of bodies. */
#ifndef TD_LIGHT_IR_H
#define TD_LIGHT_IR_H

#include "base/map.h"
#include "light/known.h"
#include "light/op.h"
#include "onnx/schema.h"

enum { TD_NO_VALUE = -1, TD_NO_NODE = -1, TD_NO_PORT = -1 };

typedef struct td_body td_body;

/* What is known of a value before a run. type.tensor.data is set for constants only. A sequence has kind SEQUENCE and
 * the element's dtype in type.tensor. */
typedef struct td_ir_value {
    td_str name;
    td_value type;
    int32_t producer;          /* node that makes it, or TD_NO_NODE */
    int32_t port;              /* graph input that it is, or TD_NO_PORT */
    int32_t n_uses;            /* node inputs and graph outputs that read it (td_graph_recount) */
    bool is_output;            /* of the graph */
    bool may_be_absent;        /* an optional that can be empty at run time */
    bool failed;               /* its producer could not be resolved: nothing is known, complaints about it are noise */
    const td_known *known;     /* of a list of integers that a node makes; NULL: nothing */
    const td_tensor *fallback; /* a graph input's default */
    const td_onnx_type *declared; /* value_info of the model: a hint */
} td_ir_value;

struct td_node {
    td_str name, domain, op_type;
    int64_t opset;             /* imported version of the domain, in the scope the node comes from */
    const td_op *op;           /* NULL until resolved */
    const td_schema *schema;   /* NULL: not looked up, or an op of light's own */
    const td_onnx_attr *attrs; /* references to a function's attributes are substituted */
    size_t n_attrs;
    int32_t *in, *out;
    size_t n_in, n_out;
    size_t n_captured; /* the last inputs, read by the bodies: no inputs of the op */
    td_body **bodies;  /* the graphs among the attributes, in their order */
    size_t n_bodies;
    struct td_node **parts; /* nodes that a pass has fused into this one: they hold the attributes and constants */
    size_t n_parts;
    void *state;   /* after prepare */
    bool prepared; /* state is live: release it */
    bool removed;  /* by a pass; swept by td_graph_compact */
};

typedef struct td_graph {
    td_arena *arena;
    td_arena own; /* where `arena` points unless the owner says otherwise */
    TD_VEC(td_ir_value) values;
    TD_VEC(td_node *) nodes;
    int32_t *inputs, *outputs; /* value ids */
    size_t n_inputs, n_outputs;
    td_map symbols; /* dim_param -> id; bodies use those of the outermost graph */
    TD_VEC(td_str) symbol_names;
    uint32_t n_unnamed;       /* symbols of dimensions that the model does not name; of the outermost graph */
    TD_VEC(td_body *) bodies; /* owned: of all nodes that ever were */
} td_graph;

/* --- building and changing (ir.c). Failing ones return TD_NO_VALUE or NULL when memory is out. */
void td_graph_free(td_graph *graph);
int32_t td_graph_add_value(td_graph *graph, td_str name);
int32_t td_graph_add_constant(td_graph *graph, td_str name, const td_tensor *tensor);
/* Inputs and outputs absent; not yet in `nodes`. */
td_node *td_graph_new_node(td_graph *graph, size_t n_in, size_t n_out);
int64_t td_graph_symbol(td_graph *graph, td_str name); /* the dimension of that name; 0: out of memory */
/* A dimension like no other: where a size is made that nothing tells, it still is the same in all that follows. */
int64_t td_graph_unnamed_symbol(td_graph *graph);
td_str td_graph_symbol_name(const td_graph *graph, int64_t dim); /* empty: it has none */

static inline td_ir_value *td_graph_value(const td_graph *graph, int32_t id) { return &graph->values.items[id]; }
static inline td_node *td_graph_producer(const td_graph *graph, int32_t id) {
    int32_t at = graph->values.items[id].producer;
    return at == TD_NO_NODE ? NULL : graph->nodes.items[at];
}
/* A constant: known at open, not to be overridden. */
static inline bool td_graph_is_constant(const td_graph *graph, int32_t id) {
    const td_ir_value *v = &graph->values.items[id];
    return v->port == TD_NO_PORT && v->type.kind == TD_VALUE_TENSOR && v->type.tensor.data != NULL;
}

/* The produced value that `id` may be a view of, or TD_NO_VALUE if that is a graph input or a
 * constant. Of resolved nodes. */
int32_t td_graph_root(const td_graph *graph, int32_t id);

void td_graph_recount(td_graph *graph);                                      /* producers and n_uses, after changes */
void td_graph_replace_uses(td_graph *graph, int32_t old, int32_t new_value); /* in node inputs and graph outputs */
void td_graph_compact(td_graph *graph);                                      /* drops removed nodes, then recounts */
/* Stable topological order. TREADLE_FORMAT names a node on a cycle. */
treadle_status td_graph_sort(td_graph *graph, treadle_error *err);

/* --- from a model (build.c): functions inlined, Constant nodes and initializers as constants. */
treadle_status td_graph_build(td_graph *graph, const td_onnx_model *model, treadle_error *err);
bool td_graph_has_native(td_str domain, td_str name); /* any row of ops.inc of that name */

/* A tensor of a model as a constant; copies what is not aligned to its element size (constant.c). */
treadle_status td_constant_from_onnx(td_arena *arena, const td_onnx_tensor *from, td_tensor *out, treadle_error *err);
treadle_status td_constant_from_sparse(td_arena *arena, const td_onnx_sparse_tensor *from, td_tensor *out,
                                       treadle_error *err); /* as a dense one */
/* The value of a Constant node's attribute. */
treadle_status td_constant_from_node(td_arena *arena, const td_onnx_node *node, td_tensor *out, treadle_error *err);

/* The inputs that are the op's: what its schema speaks of. */
static inline size_t td_node_n_op_inputs(const td_node *node) { return node->n_in - node->n_captured; }

/* Op, version and attributes: equal bytes mean equal behaviour. false: an attribute that is not compared
 * (graphs, types, sparse tensors). */
bool td_node_append_key(const td_node *node, td_buf *key);

/* Messages. */
void td_node_describe(const td_node *node, char *out, size_t out_bytes); /* node "x" (Op) */

extern const td_value td_value_none; /* what absent inputs point to */

#endif
