/* engine/ort.h - the inside of the ONNX Runtime engine: library, options, providers, values, sessions.
 *
 *   ort_library.c   finds libonnxruntime at run time, reads its table, turns its statuses into errors
 *   ort_options.c   session and run options from a config's objects
 *   ort_provider.c  execution providers by name; devices
 *   ort_value.c     td_value <-> OrtValue without copies where memory allows it
 *   engine_ort.c    the vtable: sessions and contexts */
#ifndef TD_ENGINE_ORT_H
#define TD_ENGINE_ORT_H

#include "engine/engine.h"
#include "engine/ort_api.h"

/* A loaded library and its environment. Shared by what was made with it: sessions, contexts and buffers hold a
 * reference each, so that a value may outlive its session. The library itself stays loaded until the process ends. */
typedef struct td_ort {
    td_ort_api api;
    int refs;                /* atomic */
    unsigned level;          /* API level in use */
    const void *table;       /* values go from session to session of one table only */
    char version[32];        /* "1.31.1" */
    char *path;              /* as it was found */
    OrtEnv *env;             /* one per process and library; ONNX Runtime counts references */
    OrtMemoryInfo *cpu;      /* describes host memory */
    OrtAllocator *allocator; /* ONNX Runtime's default one; borrowed */
} td_ort;

/* Finds, checks and opens the library that options say. TREADLE_NOT_FOUND lists what was tried, TREADLE_UNSUPPORTED
 * says what is wrong with it. */
treadle_status td_ort_open(const td_engine_options *options, td_ort **out, treadle_error *err);
td_ort *td_ort_retain(td_ort *ort);
void td_ort_release(td_ort *ort); /* NULL is fine */

/* Takes a status that is not NULL: fills err with its text, maps its code, `otherwise` for those that say little. */
treadle_status td_ort_fail(const td_ort *ort, OrtStatus *status, treadle_status otherwise, treadle_error *err);

/* Returns from the enclosing function unless the call gave NULL; ort and err are the function's own. */
#define TD_ORT_TRY(call, otherwise)                                                                                    \
    do {                                                                                                               \
        OrtStatus *td_ort_status_ = (call);                                                                            \
        if (td_ort_status_) return td_ort_fail(ort, td_ort_status_, (otherwise), err);                                 \
    } while (0)

/* --- options */

/* A JSON object as texts: booleans are 1 and 0, what nests is JSON text, null is left out. */
typedef struct td_ort_pairs {
    const char **keys, **values;
    size_t n;
} td_ort_pairs;
treadle_status td_ort_pairs_read(const td_json *object, const char *what, td_arena *arena, td_ort_pairs *out,
                                 treadle_error *err);

/* Session options made from everything but the provider. */
treadle_status td_ort_session_options(const td_ort *ort, const td_engine_options *options, OrtSessionOptions **out,
                                      treadle_error *err);
treadle_status td_ort_run_options(const td_ort *ort, const td_json *given, OrtRunOptions **out, treadle_error *err);

/* --- providers */

/* Appends the provider to session options; the CPU's is always there. TREADLE_CONFIG: there is no
 * such provider, or it refuses. */
treadle_status td_ort_append_provider(const td_ort *ort, const td_engine_options *options, OrtSessionOptions *session,
                                      treadle_error *err);
/* Built-in providers and those of plugin libraries, NULL-terminated. */
treadle_status td_ort_provider_names(const td_ort *ort, td_arena *arena, const char *const **out, treadle_error *err);
treadle_status td_ort_register_libraries(const td_ort *ort, const td_engine_options *options, treadle_error *err);
treadle_status td_ort_list_devices(const td_ort *ort, td_json_writer *w, treadle_error *err);

/* --- values */

/* The buffer of a tensor that ONNX Runtime owns. Inputs that are a whole such buffer are passed on as they are. */
typedef struct td_ort_buffer {
    td_buffer base; /* first: this is what others see */
    td_ort *ort;    /* a reference */
    OrtValue *value;
    td_tensor whole; /* what value is: dense */
    bool device;     /* base.data is not for the CPU */
} td_ort_buffer;
const td_ort_buffer *td_ort_buffer_of(const td_ort *ort, const td_tensor *tensor); /* NULL: not one of this library */

/* A scratch buffer for inputs that must be made dense; grows, is reused from run to run. */
typedef struct td_ort_scratch {
    void *data; /* td_free_aligned */
    size_t bytes;
} td_ort_scratch;

/* A value for a run. *out_owned: the caller releases it; else it is borrowed from the tensor's buffer. */
treadle_status td_ort_value_of(const td_ort *ort, const td_value *from, td_ort_scratch *scratch, OrtValue **out,
                               bool *out_owned, treadle_error *err);
/* A dense tensor over the caller's memory. */
treadle_status td_ort_wrap(const td_ort *ort, const td_tensor *dense, const OrtMemoryInfo *memory, OrtValue **out,
                           treadle_error *err);
/* Takes an OrtValue, also on failure. *out owns what it holds (td_value_release). */
treadle_status td_ort_value_take(td_ort *ort, OrtValue *from, td_value *out, treadle_error *err);

#endif
