/* onnx/proto.h - the messages of onnx.proto as tables; one table drives the reader (read.c) and the writer (write.c).
 *
 * A message is a C struct plus a list of fields in ascending order. Repeated fields are an array pointer and a size_t
 * count. TensorProto and TypeProto do not fit that form and bring their own functions. Internal to src/onnx.
 * Source: onnx/onnx.proto, release 1.22.0. */
#ifndef TD_ONNX_PROTO_H
#define TD_ONNX_PROTO_H

#include "base/error.h"
#include "onnx/model.h"
#include "onnx/wire.h"

typedef enum td_proto_kind {
    TD_PROTO_INT,     /* int64_t */
    TD_PROTO_INT32,   /* int */
    TD_PROTO_FLOAT,   /* float */
    TD_PROTO_STR,     /* td_str */
    TD_PROTO_MSG,     /* the struct itself */
    TD_PROTO_MSG_PTR, /* pointer to the struct, NULL: absent */
    TD_PROTO_INTS,    /* const int64_t * and count, from here on all lists */
    TD_PROTO_FLOATS,
    TD_PROTO_STRS,
    TD_PROTO_MSGS,
} td_proto_kind;

typedef struct td_proto_message td_proto_message;
typedef struct td_proto_reader td_proto_reader;

typedef struct td_proto_field {
    uint32_t number;
    td_proto_kind kind;
    const char *name;
    size_t offset, count_offset;
    const td_proto_message *message; /* of MSG, MSG_PTR, MSGS */
} td_proto_field;

enum { TD_PROTO_MAX_FIELDS = 24, TD_PROTO_MAX_DEPTH = 200 };

struct td_proto_message {
    const char *name; /* "NodeProto" */
    size_t bytes, align;
    const td_proto_field *fields; /* ascending numbers */
    size_t n_fields;
    size_t seen_offset; /* of a uint64_t that gets bit i for fields[i] present; 0: none */
    treadle_status (*read)(td_proto_reader *r, td_wire w, void *out);   /* instead of the table */
    treadle_status (*finish)(td_proto_reader *r, td_wire w, void *out); /* after the table */
    void (*write)(td_wire_sink *s, const void *in);                     /* instead of the table */
};

extern const td_proto_message td_proto_model, td_proto_graph, td_proto_node, td_proto_attr, td_proto_function,
    td_proto_opset, td_proto_prop, td_proto_value_info, td_proto_type, td_proto_tensor, td_proto_sparse;

/* Where the reader is, for messages: a chain of fields on the C stack. */
typedef struct td_proto_frame td_proto_frame;
struct td_proto_frame {
    const td_proto_frame *parent;
    const char *name;
    int64_t index; /* -1: not a list */
};

struct td_proto_reader {
    td_arena *arena;
    const uint8_t *base; /* offsets in messages count from here */
    const td_proto_frame *top;
    int depth;
    td_onnx_model *model; /* owner of external files; NULL: none may be opened */
    const char *base_dir; /* where external data may lie; NULL: nowhere */
    td_onnx_data data;
    treadle_error *err;
};

/* Reads the message in w into *out (zeroed by the caller). */
treadle_status td_proto_read(td_proto_reader *r, const td_proto_message *m, td_wire w, void *out);

/* Fails with the path of fields as pointer and the byte offset in the text. */
treadle_status td_proto_fail(td_proto_reader *r, treadle_status code, const uint8_t *at, const char *format, ...)
    TD_PRINTF(4, 5);
treadle_status td_proto_no_memory(td_proto_reader *r, const char *what, size_t bytes);

/* The next field, failing on malformed bytes: *more tells whether *out is filled. */
treadle_status td_proto_next(td_proto_reader *r, td_wire *w, td_wire_field *out, bool *more);
treadle_status td_proto_expect(td_proto_reader *r, const td_wire_field *f, td_wire_type type, const char *name);

/* The bytes of a length-delimited field; empty for others. */
static inline td_wire td_proto_inner(const td_wire_field *f) {
    return f->data ? (td_wire){f->data, f->data + f->n} : (td_wire){NULL, NULL};
}
static inline td_str td_proto_text(const td_wire_field *f) { return (td_str){(const char *)f->data, f->n}; }

/* A repeated int64 field: counts and appends the values of one wire field, packed or not. */
treadle_status td_proto_count_ints(td_proto_reader *r, const td_wire_field *f, const char *name, size_t *n);
void td_proto_append_ints(const td_wire_field *f, int64_t *out, size_t *n);

void td_proto_write(td_wire_sink *s, const td_proto_message *m, const void *in);
void td_proto_write_nested(td_wire_sink *s, uint32_t number, const td_proto_message *m, const void *in);

/* The two messages with code of their own (read_tensor.c, read_type.c, write.c). */
treadle_status td_proto_read_tensor(td_proto_reader *r, td_wire w, void *out);
treadle_status td_proto_read_type(td_proto_reader *r, td_wire w, void *out);
treadle_status td_proto_read_attr(td_proto_reader *r, td_wire w, void *out);
void td_proto_write_tensor(td_wire_sink *s, const void *in);
void td_proto_write_type(td_wire_sink *s, const void *in);
void td_proto_write_attr(td_wire_sink *s, const void *in);

td_str td_proto_domain(td_str domain); /* "ai.onnx" becomes "" */

void td_onnx_files_close(td_onnx_file *files); /* unmaps; the list itself lies in the arena */

#endif
