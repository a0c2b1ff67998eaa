/* compile/weights.h - from a source's tensors to initializers in the external data file.
 *
 * The data file is written in pieces of about a megabyte; only names, shapes and offsets stay in memory. Offsets are
 * multiples of 64, of large tensors multiples of 4096, so that readers can map and drop them by pages. */
#ifndef TD_COMPILE_WEIGHTS_H
#define TD_COMPILE_WEIGHTS_H

#include "compile/compile.h"
#include "compile/graph.h"
#include "compile/tensor_set.h"

typedef struct td_weights {
    td_graph *graph;
    const td_compile_options *options;
    int fd;
    uint64_t end;         /* of the data file so far */
    uint64_t done, total; /* source bytes, for progress */
    td_str location;      /* "model.onnx.data", the name of the data file */
    treadle_error *err;
} td_weights;

/* Rows of one tensor, perhaps in another order. rotary > 0: in every head of head_dim rows the first `rotary` rows hold
 * pairs (2i, 2i+1) of an interleaved rotary embedding and are moved to (i, i + rotary / 2), the order of
 * rotate-half. */
typedef struct td_rows {
    const td_source_tensor *tensor;
    int64_t head_dim, rotary;
} td_rows;

/* What a matrix will be used for, decides which arrays are written. */
enum { TD_USE_LINEAR = 1, TD_USE_GATHER = 2 };

/* A weight matrix [n, k] in the data file; names are of initializers. */
typedef struct td_matrix {
    td_str name;
    int64_t n, k;
    const td_quant_format *format;
    td_dtype plain; /* not TD_UNDEFINED: `codes` is [n, k] of that type */
    int bits;       /* 2, 4, 8 */
    int64_t group;
    td_str codes;  /* uint8 [n, k / group, group * bits / 8] */
    td_str scales; /* float32 [n, k / group] */
    td_str zeros;  /* float32, float zero points; empty: default zero point */
    td_str minima; /* float32; empty: none written */
    uint64_t codes_offset;
} td_matrix;

/* Stacks the rows of n_parts tensors of equal format and row length into one matrix. */
treadle_status td_weights_matrix(td_weights *w, td_str name, const td_rows *parts, int n_parts, unsigned uses,
                                 td_matrix *out);

/* Vectors, joined, as a float32 initializer [n]. */
treadle_status td_weights_vector(td_weights *w, td_str name, const td_rows *parts, int n_parts, td_str *out);

/* A tensor of any rank in its own shape, as float32. */
treadle_status td_weights_floats(td_weights *w, const td_source_tensor *tensor, td_str *out);

/* Takes room in the data file for an initializer that the caller writes, and declares it. */
treadle_status td_weights_declare(td_weights *w, td_str name, td_dtype dtype, int rank, const int64_t *dims,
                                  uint64_t *offset);
treadle_status td_weights_write(td_weights *w, uint64_t offset, const void *bytes, size_t n);

/* Another initializer over the bytes of a matrix's codes. */
td_str td_weights_alias(td_weights *w, td_str name, const td_matrix *m, td_dtype dtype, int rank, const int64_t *dims);

#endif
