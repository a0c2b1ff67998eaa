/* treadle/session.h - one ONNX file on named tensors: no config, no tokens, no state.
 *
 * For graphs that are no generative model, for conformance tests and for looking into files. A session is immutable;
 * any number of threads may run it at once.
 */
#ifndef TREADLE_SESSION_H
#define TREADLE_SESSION_H

#include "treadle/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct treadle_session treadle_session;

/* How matrix products with 4 and 8 bit weights treat their activations. */
typedef enum treadle_activations {
    TREADLE_ACTIVATIONS_AUTO,  /* as each node's accuracy_level allows */
    TREADLE_ACTIVATIONS_FLOAT, /* never quantised */
    TREADLE_ACTIVATIONS_INT8   /* int8 wherever a kernel exists: fastest, least exact */
} treadle_activations;

typedef struct treadle_session_options {
    size_t struct_size;
    int32_t n_threads;               /* 0 (default): all CPUs of this process; N means N, the caller included */
    treadle_activations activations; /* default: AUTO */
    bool no_passes;                  /* run the graph as written, without rewrites. Default: false */
    bool profile;                    /* time every node. Default: false */
    const char *skip_passes;         /* comma-separated names of rewrites to leave out, or NULL (default) */
    const char *pack_dir;            /* folder of the packed-weights cache; NULL (default): pack in memory */
    const char *engine;              /* "light" (default, also NULL) or "ort", ONNX Runtime */
    /* For ort only, each NULL by default. */
    const char *ort_library;      /* libonnxruntime.so; NULL: $TREADLE_ORT_LIB, else the standard names */
    const char *provider;         /* execution provider, "CUDA" or "CUDAExecutionProvider"; NULL: the CPU's */
    const char *provider_options; /* JSON object of names and values */
    const char *session_options;  /* likewise: graph_optimization_level, ..., and ONNX Runtime's config entries */
    const char *run_options;      /* likewise */
    /* Plugin execution providers, "NAME=PATH" each, relative ones to the working folder. */
    const char *const *provider_libraries;
    size_t n_provider_libraries;
} treadle_session_options;
TREADLE_API void treadle_session_options_init(treadle_session_options *options);

/* A graph input or output. Strings live as long as the session. */
typedef struct treadle_port {
    const char *name;
    treadle_value_kind kind;        /* TENSOR or SEQUENCE; NONE: a kind that this build does not know (map, sparse) */
    treadle_dtype dtype;            /* of the tensor, or of a sequence's tensors */
    int32_t rank;                   /* -1: not declared */
    int64_t dims[TREADLE_MAX_RANK]; /* -1: symbolic or unknown */
    const char *dim_names[TREADLE_MAX_RANK]; /* of symbolic dimensions; "" if anonymous */
    bool optional;                           /* may be left out of a run */
} treadle_port;

/* Reads the file and its weights. TREADLE_NOT_FOUND: no such file, or no ONNX Runtime (the message lists what was
 * tried); TREADLE_IO; TREADLE_FORMAT: no ONNX file, or damaged; TREADLE_CONFIG: no such engine or provider;
 * TREADLE_UNSUPPORTED: ops, attributes or dtypes are missing (the message lists all of them). */
TREADLE_API treadle_status treadle_session_open(const char *path, const treadle_session_options *options,
                                                treadle_session **out, treadle_error *error);
TREADLE_API void treadle_session_close(treadle_session *session); /* NULL is fine */
TREADLE_API size_t treadle_session_n_inputs(const treadle_session *session);
TREADLE_API size_t treadle_session_n_outputs(const treadle_session *session);
/* index < n; the filled struct is the caller's. */
TREADLE_API void treadle_session_input(const treadle_session *session, size_t index, treadle_port *out);
TREADLE_API void treadle_session_output(const treadle_session *session, size_t index, treadle_port *out);

/* Runs the graph. inputs[n_inputs]: NULL where an optional input is not given. outputs[n_outputs]: filled with
 * new values on success (release each; an empty optional is a value of kind NONE), untouched on failure. Runs of
 * one session that happen at once have memory of their own. TREADLE_INVALID_ARGUMENT: an input's type or shape,
 * or a needed one is missing; TREADLE_RUN: the values (an index out of range, say); TREADLE_OUT_OF_MEMORY. The
 * session stays usable after each. */
TREADLE_API treadle_status treadle_session_run(treadle_session *session, const treadle_value *const *inputs,
                                               treadle_value **outputs, treadle_error *error);

/* Reads a file of ONNX backend test data (input_0.pb, output_0.pb ...) as a value for input or output `index`: what the
 * file holds (TensorProto, SequenceProto, OptionalProto) depends on the type that the graph declares. An empty optional
 * is a value of kind NONE. TREADLE_UNSUPPORTED: maps and sparse tensors. */
TREADLE_API treadle_status treadle_session_read_pb(const treadle_session *session, bool is_input, size_t index,
                                                   const char *path, treadle_value **out, treadle_error *error);

/* Node times of the session's latest finished run, a line a node or totals by op. Needs
 * options.profile. Free with treadle_free. */
TREADLE_API treadle_status treadle_session_profile(treadle_session *session, bool by_op, char **out,
                                                   treadle_error *error);

/* What a file holds, without loading weights, as JSON (treadle_free):
 * {"file", "ir_version", "producer", "opsets": [{"domain", "version"}],
 *  "inputs"/"outputs": [{"name", "kind", "dtype", "shape": [int or "symbol" or null] or null, "optional"}],
 *  "ops": [{"domain", "op", "since_version", "count", "supported"}], "missing": ["domain::Op-N", ...],
 *  "weights": [{"dtype", "tensors", "bytes"}], "metadata": {...}} */
TREADLE_API treadle_status treadle_file_inspect(const char *path, char **out_json, treadle_error *error);

/* Every op that the native engine has, as JSON (treadle_free): [{"domain", "op", "since_version"}, ...], sorted. */
TREADLE_API treadle_status treadle_ops_list(char **out_json, treadle_error *error);

#ifdef __cplusplus
}
#endif
#endif
