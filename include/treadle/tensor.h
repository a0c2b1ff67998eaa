/* treadle/tensor.h - element types, tensor views, and owned values.
 *
 * A treadle_tensor is a plain struct that describes somebody's memory: dense, row-major, never owned. A
 * treadle_value owns what it holds (a tensor, or a sequence of values) and is immutable and reference counted; the
 * count may be changed by any thread.
 */
#ifndef TREADLE_TENSOR_H
#define TREADLE_TENSOR_H

#include "treadle/status.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element types; the numbers are ONNX's (TensorProto.DataType). X(NAME, number, text) */
#define TREADLE_DTYPE_LIST(X)                                                                                          \
    X(FLOAT, 1, "float32")                                                                                             \
    X(UINT8, 2, "uint8")                                                                                               \
    X(INT8, 3, "int8")                                                                                                 \
    X(UINT16, 4, "uint16")                                                                                             \
    X(INT16, 5, "int16")                                                                                               \
    X(INT32, 6, "int32")                                                                                               \
    X(INT64, 7, "int64")                                                                                               \
    X(STRING, 8, "string") /* a treadle_string each */                                                                 \
    X(BOOL, 9, "bool")                                                                                                 \
    X(FLOAT16, 10, "float16")                                                                                          \
    X(DOUBLE, 11, "float64")                                                                                           \
    X(UINT32, 12, "uint32")                                                                                            \
    X(UINT64, 13, "uint64")                                                                                            \
    X(COMPLEX64, 14, "complex64")                                                                                      \
    X(COMPLEX128, 15, "complex128")                                                                                    \
    X(BFLOAT16, 16, "bfloat16")                                                                                        \
    X(FLOAT8E4M3FN, 17, "float8e4m3fn")                                                                                \
    X(FLOAT8E4M3FNUZ, 18, "float8e4m3fnuz")                                                                            \
    X(FLOAT8E5M2, 19, "float8e5m2")                                                                                    \
    X(FLOAT8E5M2FNUZ, 20, "float8e5m2fnuz")                                                                            \
    X(UINT4, 21, "uint4") /* two a byte, low nibble first */                                                           \
    X(INT4, 22, "int4")                                                                                                \
    X(FLOAT4E2M1, 23, "float4e2m1")                                                                                    \
    X(FLOAT8E8M0, 24, "float8e8m0")                                                                                    \
    X(UINT2, 25, "uint2") /* four a byte, lowest bits first */                                                         \
    X(INT2, 26, "int2")

typedef enum treadle_dtype {
    TREADLE_DTYPE_UNDEFINED = 0,
#define TREADLE_DTYPE_ENUM(name, number, text) TREADLE_DTYPE_##name = number,
    TREADLE_DTYPE_LIST(TREADLE_DTYPE_ENUM)
#undef TREADLE_DTYPE_ENUM
} treadle_dtype;

#define TREADLE_MAX_RANK 8

typedef struct treadle_string {
    const char *p; /* UTF-8, not NUL-terminated */
    size_t n;      /* bytes */
} treadle_string;

/* A dense row-major tensor in memory that somebody else owns. rank 0 is a scalar. */
typedef struct treadle_tensor {
    treadle_dtype dtype;
    int32_t rank; /* 0..TREADLE_MAX_RANK */
    int64_t dims[TREADLE_MAX_RANK];
    const void *data;
} treadle_tensor;

TREADLE_API const char *treadle_dtype_name(treadle_dtype dtype); /* "float32"; "undefined". Static string. */
TREADLE_API int32_t treadle_dtype_bits(treadle_dtype dtype);     /* 0 for unknown numbers */
/* Elements and bytes that a tensor takes. TREADLE_INVALID_ARGUMENT: rank or dims out of range, overflow, unknown
 * dtype. */
TREADLE_API treadle_status treadle_tensor_size(const treadle_tensor *tensor, int64_t *out_count, size_t *out_bytes,
                                               treadle_error *error);
/* One element of a numeric or bool tensor as a double (small floats and sub-byte types decoded); index: row-major, in
 * range, which is not checked. */
TREADLE_API double treadle_tensor_get(const treadle_tensor *tensor, int64_t index);
/* Memory from the library (texts, id lists) goes back here. NULL is fine. */
TREADLE_API void treadle_free(void *memory);

typedef enum treadle_value_kind {
    TREADLE_VALUE_NONE, /* an empty optional */
    TREADLE_VALUE_TENSOR,
    TREADLE_VALUE_SEQUENCE
} treadle_value_kind;

typedef struct treadle_value treadle_value;

/* Copies the tensor's memory, strings included. TREADLE_INVALID_ARGUMENT: see treadle_tensor_size, or no data. */
TREADLE_API treadle_status treadle_value_new(const treadle_tensor *tensor, treadle_value **out, treadle_error *error);
TREADLE_API treadle_value *treadle_value_retain(treadle_value *value); /* returns value */
TREADLE_API void treadle_value_release(treadle_value *value);          /* NULL is fine; the last one frees */
TREADLE_API treadle_value_kind treadle_value_get_kind(const treadle_value *value);
/* The view of a tensor value, valid while the value lives. TREADLE_INVALID_ARGUMENT: it is no tensor. */
TREADLE_API treadle_status treadle_value_tensor(const treadle_value *value, treadle_tensor *out, treadle_error *error);
/* A sequence's length (0 for other kinds) and items; an item is a new reference that the caller releases. */
TREADLE_API size_t treadle_value_count(const treadle_value *value);
TREADLE_API treadle_status treadle_value_item(const treadle_value *value, size_t index, treadle_value **out,
                                              treadle_error *error);

/* .npy files, format 1.0 to 3.0, little-endian: bool, numbers of a byte or more, bfloat16 as ml_dtypes
 * writes it; other types are TREADLE_UNSUPPORTED. Either order of axes is read. TREADLE_NOT_FOUND,
 * TREADLE_IO; TREADLE_FORMAT: damaged. */
TREADLE_API treadle_status treadle_value_read_npy(const char *path, treadle_value **out, treadle_error *error);
TREADLE_API treadle_status treadle_tensor_write_npy(const char *path, const treadle_tensor *tensor,
                                                    treadle_error *error);

#ifdef __cplusplus
}
#endif
#endif
