/* tensor/dtype.h - element types. Numbers are those of ONNX TensorProto.DataType. */
#ifndef TD_TENSOR_DTYPE_H
#define TD_TENSOR_DTYPE_H

#include "base/str.h"

/* X(NAME, ONNX number, bits, kind, text) */
#define TD_DTYPE_LIST(X)                                                                                               \
    X(FLOAT, 1, 32, FLOAT, "float32")                                                                                  \
    X(UINT8, 2, 8, UINT, "uint8")                                                                                      \
    X(INT8, 3, 8, INT, "int8")                                                                                         \
    X(UINT16, 4, 16, UINT, "uint16")                                                                                   \
    X(INT16, 5, 16, INT, "int16")                                                                                      \
    X(INT32, 6, 32, INT, "int32")                                                                                      \
    X(INT64, 7, 64, INT, "int64")                                                                                      \
    X(STRING, 8, 128, STRING, "string") /* a td_str each */                                                            \
    X(BOOL, 9, 8, BOOL, "bool")                                                                                        \
    X(FLOAT16, 10, 16, FLOAT, "float16")                                                                               \
    X(DOUBLE, 11, 64, FLOAT, "float64")                                                                                \
    X(UINT32, 12, 32, UINT, "uint32")                                                                                  \
    X(UINT64, 13, 64, UINT, "uint64")                                                                                  \
    X(COMPLEX64, 14, 64, COMPLEX, "complex64")                                                                         \
    X(COMPLEX128, 15, 128, COMPLEX, "complex128")                                                                      \
    X(BFLOAT16, 16, 16, FLOAT, "bfloat16")                                                                             \
    X(FLOAT8E4M3FN, 17, 8, FLOAT, "float8e4m3fn")                                                                      \
    X(FLOAT8E4M3FNUZ, 18, 8, FLOAT, "float8e4m3fnuz")                                                                  \
    X(FLOAT8E5M2, 19, 8, FLOAT, "float8e5m2")                                                                          \
    X(FLOAT8E5M2FNUZ, 20, 8, FLOAT, "float8e5m2fnuz")                                                                  \
    X(UINT4, 21, 4, UINT, "uint4") /* two a byte, low nibble first */                                                  \
    X(INT4, 22, 4, INT, "int4")                                                                                        \
    X(FLOAT4E2M1, 23, 4, FLOAT, "float4e2m1")                                                                          \
    X(FLOAT8E8M0, 24, 8, FLOAT, "float8e8m0")                                                                          \
    X(UINT2, 25, 2, UINT, "uint2") /* four a byte, lowest bits first */                                                \
    X(INT2, 26, 2, INT, "int2")

typedef enum td_dtype {
    TD_UNDEFINED = 0,
#define TD_DTYPE_ENUM(name, number, bits, kind, text) TD_##name = number,
    TD_DTYPE_LIST(TD_DTYPE_ENUM)
#undef TD_DTYPE_ENUM
        TD_DTYPE_END = 27
} td_dtype;

typedef enum td_kind {
    TD_KIND_NONE,
    TD_KIND_FLOAT,
    TD_KIND_INT,
    TD_KIND_UINT,
    TD_KIND_BOOL,
    TD_KIND_STRING,
    TD_KIND_COMPLEX
} td_kind;

int td_dtype_bits(td_dtype dtype); /* 0 for unknown numbers */
td_kind td_dtype_kind(td_dtype dtype);
const char *td_dtype_name(td_dtype dtype); /* "float32"; "undefined" */
td_dtype td_dtype_from_name(td_str name);  /* TD_UNDEFINED if unknown; also takes "float", "double", "half" */

/* Bytes that `count` elements take, packed for sub-byte types (rounded up). false on overflow or unknown type. */
bool td_dtype_bytes(td_dtype dtype, int64_t count, size_t *out);

#endif
