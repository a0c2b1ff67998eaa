/* engine/ort_api.h - the part of ONNX Runtime's C ABI that treadle uses, declared from its published slot numbers.
 *
 * ONNX Runtime exports one symbol, OrtGetApiBase; all else is a table of function pointers that only ever
 * grows at its end. ort_api.inc has one row per function: its slot and the API level that brought it. Names
 * and types are those of the ABI, so that tests/engine/test_ort_abi.py can hold every row against a real
 * header. Nothing here needs a header of ONNX Runtime. Invariant: a function is called only if the library's
 * level has it; its pointer is NULL otherwise. */
#ifndef TD_ENGINE_ORT_API_H
#define TD_ENGINE_ORT_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct OrtAllocator OrtAllocator;
typedef struct OrtCANNProviderOptions OrtCANNProviderOptions;
typedef struct OrtCUDAProviderOptionsV2 OrtCUDAProviderOptionsV2;
typedef struct OrtDnnlProviderOptions OrtDnnlProviderOptions;
typedef struct OrtEnv OrtEnv;
typedef struct OrtEpDevice OrtEpDevice;
typedef struct OrtHardwareDevice OrtHardwareDevice;
typedef struct OrtIoBinding OrtIoBinding;
typedef struct OrtKeyValuePairs OrtKeyValuePairs;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtROCMProviderOptions OrtROCMProviderOptions;
typedef struct OrtRunOptions OrtRunOptions;
typedef struct OrtSession OrtSession;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtStatus OrtStatus;
typedef struct OrtSyncStream OrtSyncStream;
typedef struct OrtTensorRTProviderOptionsV2 OrtTensorRTProviderOptionsV2;
typedef struct OrtTensorTypeAndShapeInfo OrtTensorTypeAndShapeInfo;
typedef struct OrtValue OrtValue;

/* X(enum, constant, value): those that are used, by enum. */
#define TD_ORT_CONST_LIST(X)                                                                                           \
    X(OrtErrorCode, ORT_INVALID_ARGUMENT, 2)                                                                           \
    X(OrtErrorCode, ORT_NO_SUCHFILE, 3)                                                                                \
    X(OrtErrorCode, ORT_INVALID_PROTOBUF, 7)                                                                           \
    X(OrtErrorCode, ORT_NOT_IMPLEMENTED, 9)                                                                            \
    X(OrtErrorCode, ORT_INVALID_GRAPH, 10)                                                                             \
    X(OrtLoggingLevel, ORT_LOGGING_LEVEL_INFO, 1)                                                                      \
    X(OrtLoggingLevel, ORT_LOGGING_LEVEL_WARNING, 2)                                                                   \
    X(OrtLoggingLevel, ORT_LOGGING_LEVEL_ERROR, 3)                                                                     \
    X(GraphOptimizationLevel, ORT_DISABLE_ALL, 0)                                                                      \
    X(GraphOptimizationLevel, ORT_ENABLE_BASIC, 1)                                                                     \
    X(GraphOptimizationLevel, ORT_ENABLE_EXTENDED, 2)                                                                  \
    X(GraphOptimizationLevel, ORT_ENABLE_LAYOUT, 3)                                                                    \
    X(GraphOptimizationLevel, ORT_ENABLE_ALL, 99)                                                                      \
    X(ExecutionMode, ORT_SEQUENTIAL, 0)                                                                                \
    X(ExecutionMode, ORT_PARALLEL, 1)                                                                                  \
    X(OrtAllocatorType, OrtDeviceAllocator, 0)                                                                         \
    X(OrtMemType, OrtMemTypeDefault, 0)                                                                                \
    X(OrtMemoryInfoDeviceType, OrtMemoryInfoDeviceType_CPU, 0)                                                         \
    X(OrtHardwareDeviceType, OrtHardwareDeviceType_CPU, 0)                                                             \
    X(OrtHardwareDeviceType, OrtHardwareDeviceType_GPU, 1)                                                             \
    X(OrtHardwareDeviceType, OrtHardwareDeviceType_NPU, 2)                                                             \
    X(ONNXType, ONNX_TYPE_TENSOR, 1)                                                                                   \
    X(ONNXType, ONNX_TYPE_SEQUENCE, 2)                                                                                 \
    X(ONNXTensorElementDataType, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT4E2M1, 23)                                         \
    X(ONNXTensorElementDataType, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT2, 24)                                              \
    X(ONNXTensorElementDataType, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT2, 25)                                               \
    X(ONNXTensorElementDataType, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E8M0, 26)

enum {
#define TD_ORT_CONST(type, name, value) name = value,
    TD_ORT_CONST_LIST(TD_ORT_CONST)
#undef TD_ORT_CONST
};

/* The type of an enum in the ABI: int where it has a negative value, else unsigned int. */
typedef unsigned OrtErrorCode, OrtLoggingLevel, GraphOptimizationLevel, ExecutionMode, OrtMemoryInfoDeviceType,
    OrtHardwareDeviceType, ONNXType, ONNXTensorElementDataType;
typedef int OrtAllocatorType, OrtMemType;

typedef void (*OrtLoggingFunction)(void *param, OrtLoggingLevel severity, const char *category, const char *logid,
                                   const char *code_location, const char *message);

typedef struct OrtApiBase {
    const void *(*GetApi)(uint32_t version); /* the table, a pointer per slot; NULL: no such level */
    const char *(*GetVersionString)(void);
} OrtApiBase;

enum {
    TD_ORT_API_MIN = 18, /* the oldest level that treadle works with */
    TD_ORT_API_MAX = 23, /* the newest level that any row needs */
};

typedef struct td_ort_api {
#define TD_ORT_FN(slot, since, name, result, parameters) result(*name) parameters;
#include "engine/ort_api.inc"
#undef TD_ORT_FN
} td_ort_api;

#endif
