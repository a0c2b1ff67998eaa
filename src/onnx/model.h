/* onnx/model.h - a ModelProto in memory: what the reader makes and the writer takes.
 *
 * A faithful image of the file with string names; light resolves it into integers. Everything lives in the
 * model's arena or points into the mapped file (zero copy: strings and raw tensor bytes). Immutable once
 * read. Names follow onnx.proto. */
#ifndef TD_ONNX_MODEL_H
#define TD_ONNX_MODEL_H

#include "base/arena.h"
#include "base/file.h"
#include "tensor/dtype.h"

typedef struct td_onnx_graph td_onnx_graph;
typedef struct td_onnx_type td_onnx_type;

typedef struct td_onnx_prop {
    td_str key, value;
} td_onnx_prop;

/* A TensorProto. After reading, numeric data of every storage form (raw_data, float_data, int32_data, ...) is `data`:
 * dense, little endian, packed for sub-byte types. */
typedef struct td_onnx_tensor {
    td_str name;
    td_dtype dtype;
    int rank;
    const int64_t *dims;
    int64_t count;    /* product of dims, checked */
    const void *data; /* numeric: bytes; string: const td_str[count]; NULL: external and not loaded */
    size_t data_bytes;
    bool is_external;
    td_str location;         /* external: path relative to the model's folder */
    uint64_t offset, length; /* external: place in that file (length resolved by the reader) */
} td_onnx_tensor;

typedef struct td_onnx_sparse_tensor {
    td_onnx_tensor values, indices;
    int rank;
    const int64_t *dims;
} td_onnx_sparse_tensor;

typedef enum td_onnx_type_kind {
    TD_ONNX_TYPE_NONE,
    TD_ONNX_TYPE_TENSOR,
    TD_ONNX_TYPE_SPARSE,
    TD_ONNX_TYPE_SEQUENCE, /* elem */
    TD_ONNX_TYPE_OPTIONAL, /* elem */
    TD_ONNX_TYPE_MAP,      /* dtype = key type, elem = value type */
} td_onnx_type_kind;

typedef struct td_onnx_dim {
    int64_t value; /* >= 0, or -1: symbolic or unknown */
    td_str param;  /* symbolic name, or empty */
} td_onnx_dim;

struct td_onnx_type {
    td_onnx_type_kind kind;
    td_dtype dtype;
    bool has_shape;
    int rank;
    const td_onnx_dim *dims;
    const td_onnx_type *elem;
};

typedef struct td_onnx_value_info {
    td_str name;
    td_onnx_type type;
    const td_onnx_prop *props; /* metadata_props */
    size_t n_props;
} td_onnx_value_info;

/* AttributeProto.AttributeType */
typedef enum td_onnx_attr_type {
    TD_ONNX_ATTR_UNDEFINED = 0,
    TD_ONNX_ATTR_FLOAT = 1,
    TD_ONNX_ATTR_INT = 2,
    TD_ONNX_ATTR_STRING = 3,
    TD_ONNX_ATTR_TENSOR = 4,
    TD_ONNX_ATTR_GRAPH = 5,
    TD_ONNX_ATTR_FLOATS = 6,
    TD_ONNX_ATTR_INTS = 7,
    TD_ONNX_ATTR_STRINGS = 8,
    TD_ONNX_ATTR_TENSORS = 9,
    TD_ONNX_ATTR_GRAPHS = 10,
    TD_ONNX_ATTR_SPARSE_TENSOR = 11,
    TD_ONNX_ATTR_SPARSE_TENSORS = 12,
    TD_ONNX_ATTR_TYPE_PROTO = 13,
    TD_ONNX_ATTR_TYPE_PROTOS = 14,
} td_onnx_attr_type;

typedef struct td_onnx_attr {
    td_str name;
    td_str ref_attr_name; /* inside a function: the function's attribute that this one takes its value from */
    td_onnx_attr_type type;
    float f;
    int64_t i;
    td_str s;
    const td_onnx_tensor *t;
    const td_onnx_graph *g;
    const td_onnx_sparse_tensor *sparse;
    const td_onnx_type *tp;
    size_t n; /* of the list that `type` names */
    const float *floats;
    const int64_t *ints;
    const td_str *strings;
    const td_onnx_tensor *tensors;
    const td_onnx_graph *graphs; /* array of n */
    const td_onnx_type *type_protos;
} td_onnx_attr;

typedef struct td_onnx_node {
    td_str name, op_type, domain, overload; /* domain "ai.onnx" is read as "" */
    const td_str *inputs;                   /* an empty name: an absent optional */
    size_t n_inputs;
    const td_str *outputs;
    size_t n_outputs;
    const td_onnx_attr *attrs;
    size_t n_attrs;
    const td_onnx_prop *props;
    size_t n_props;
} td_onnx_node;

struct td_onnx_graph {
    td_str name;
    const td_onnx_node *nodes;
    size_t n_nodes;
    const td_onnx_tensor *initializers;
    size_t n_initializers;
    const td_onnx_sparse_tensor *sparse_initializers;
    size_t n_sparse_initializers;
    const td_onnx_value_info *inputs; /* may list initializers too (IR < 4 always does) */
    size_t n_inputs;
    const td_onnx_value_info *outputs;
    size_t n_outputs;
    const td_onnx_value_info *value_infos;
    size_t n_value_infos;
    const td_onnx_prop *props;
    size_t n_props;
};

typedef struct td_onnx_opset {
    td_str domain; /* "ai.onnx" is read as "" */
    int64_t version;
} td_onnx_opset;

typedef struct td_onnx_function {
    td_str name, domain, overload;
    const td_str *inputs;
    size_t n_inputs;
    const td_str *outputs;
    size_t n_outputs;
    const td_str *attr_names; /* attributes without default */
    size_t n_attr_names;
    const td_onnx_attr *attr_defaults; /* attributes with one */
    size_t n_attr_defaults;
    const td_onnx_node *nodes;
    size_t n_nodes;
    const td_onnx_opset *opsets;
    size_t n_opsets;
    const td_onnx_value_info *value_infos;
    size_t n_value_infos;
} td_onnx_function;

typedef struct td_onnx_file td_onnx_file; /* a mapped external data file */

typedef struct td_onnx_model {
    int64_t ir_version;
    td_str producer_name, producer_version, domain, doc_string;
    int64_t model_version;
    const td_onnx_opset *opsets;
    size_t n_opsets;
    td_onnx_graph graph;
    const td_onnx_function *functions;
    size_t n_functions;
    const td_onnx_prop *props; /* metadata_props */
    size_t n_props;

    /* owned by the model */
    td_arena arena;
    td_mmap map;         /* the file itself; n = 0 when read from memory */
    char *path;          /* of the file, in the arena; NULL when read from memory */
    td_onnx_file *files; /* external data, mapped once each */
} td_onnx_model;

/* Which tensors get their data; the others' is NULL. */
typedef enum td_onnx_data {
    TD_ONNX_DATA_ALL,
    TD_ONNX_DATA_INSIDE, /* what lies in the file itself */
    TD_ONNX_DATA_SMALL,  /* the same up to TD_ONNX_SMALL_BYTES: signatures, whose reading costs no weights then. Data
                          * that is not aligned has to be copied, so without this a plan would cost a copy of it */
} td_onnx_data;

enum { TD_ONNX_SMALL_BYTES = 1024 };

typedef struct td_onnx_read_options {
    td_onnx_data data; /* a model without all of its data can be looked at, not written or run */
} td_onnx_read_options;

/* Reads a model; external data is confined to the model's folder (td_path_resolve_inside). *out is closed by
 * td_onnx_close. On failure err names the file and the place: the path of fields ("graph.node[3].attribute[1]") and the
 * byte offset. options NULL: all defaults. */
treadle_status td_onnx_open(const char *path, const td_onnx_read_options *options, td_onnx_model **out,
                            treadle_error *err);

/* The same from memory that outlives the model; base_dir: where external data may lie, NULL: none allowed. */
treadle_status td_onnx_parse(const void *bytes, size_t n, const char *base_dir, const td_onnx_read_options *options,
                             td_onnx_model **out, treadle_error *err);
void td_onnx_close(td_onnx_model *model);

/* Lets the pages of all mapped files go; they come back when they are touched. Any number of threads may be reading. */
void td_onnx_drop(const td_onnx_model *model);

/* Whether these bytes lie in a file that the model has mapped: then td_mmap_drop may let their pages go. */
bool td_onnx_in_file(const td_onnx_model *model, const void *bytes, size_t n);

/* Any value as the backend test data hold it (input_0.pb). The file does not say what it is: the graph's type does. */
typedef enum td_onnx_value_kind {
    TD_ONNX_VALUE_TENSOR,   /* TensorProto: tensor */
    TD_ONNX_VALUE_SPARSE,   /* SparseTensorProto: sparse */
    TD_ONNX_VALUE_SEQUENCE, /* SequenceProto: items */
    TD_ONNX_VALUE_OPTIONAL, /* OptionalProto: items, n is 0 (none) or 1 */
    TD_ONNX_VALUE_MAP,      /* MapProto: dtype = key type, keys and items */
} td_onnx_value_kind;

typedef struct td_onnx_value td_onnx_value;
struct td_onnx_value {
    td_onnx_value_kind kind;
    td_str name;
    td_dtype dtype;
    td_onnx_tensor tensor;
    const td_onnx_sparse_tensor *sparse;
    const td_onnx_value *items;
    size_t n;
    const int64_t *int_keys; /* map: n keys, one of the two */
    const td_str *string_keys;
};

/* Data is used in place where aligned for its type: `bytes` must outlive the value. */
treadle_status td_onnx_parse_value(const void *bytes, size_t n, td_onnx_value_kind kind, td_arena *arena,
                                   td_onnx_value *out, treadle_error *err);

/* --- writer. Tensors whose is_external is set are written as references; nothing here writes the data file. */
treadle_status td_onnx_write(const td_onnx_model *model, td_buf *out, treadle_error *err);
/* The same into a new file, in pieces. Errors: TREADLE_LIMIT (a message of protobuf ends at 2 GiB), TREADLE_IO. */
treadle_status td_onnx_write_file(const td_onnx_model *model, const char *path, treadle_error *err);

/* Lookups; NULL or -1 when absent. */
const td_onnx_attr *td_onnx_find_attr(const td_onnx_node *node, const char *name);
int64_t td_onnx_opset_version(const td_onnx_opset *opsets, size_t n_opsets, td_str domain); /* -1: not imported */
const td_onnx_function *td_onnx_find_function(const td_onnx_model *model, td_str domain, td_str name, td_str overload);
/* Every tensor of the model: initializers and attributes of its graph, of the graphs inside of that, and of its
 * functions. false: `visit` said so, and was not called again. */
bool td_onnx_each_tensor(const td_onnx_model *model, bool (*visit)(void *ctx, const td_onnx_tensor *tensor), void *ctx);

#endif
