/* engine/engine.h - what runs a graph, seen from the pipeline: a vtable per engine, and the registry of engines.
 *
 * A session is an opened graph, immutable and shared by threads; a context is one mutable run state over it, used by one thread
 * at a time. Runs bind values by index; the rules for outputs, aliasing and picked rows are those of td_light_run and
 * td_light_pick_rows. A signature is what a file says of itself without its weights. */
#ifndef TD_ENGINE_ENGINE_H
#define TD_ENGINE_ENGINE_H

#include "light/light.h"

/* Inputs (without those that are only initializers) and outputs of a file, its graph, and its metadata. */
typedef struct td_signature {
    td_onnx_model *model; /* owned; external weights not loaded */
    const td_light_port *inputs, *outputs;
    size_t n_inputs, n_outputs;
    td_arena arena; /* owned */
} td_signature;

treadle_status td_signature_open(const char *path, td_signature **out, treadle_error *err);
void td_signature_close(td_signature *signature);                              /* NULL is fine */
ptrdiff_t td_signature_find_input(const td_signature *signature, td_str name); /* -1: none */
ptrdiff_t td_signature_find_output(const td_signature *signature, td_str name);

typedef struct td_session td_session;         /* the engine's own */
typedef struct td_session_ctx td_session_ctx; /* likewise */

/* What callers may rely on. */
enum {
    TD_ENGINE_ALIASES = 1 << 0,    /* a past and its present may be bound to one memory */
    TD_ENGINE_CONCURRENT = 1 << 1, /* contexts of one session run on several threads at once */
    TD_ENGINE_DEVICE = 1 << 2,     /* values may lie in memory that the CPU cannot read */
};

typedef struct td_engine {
    const char *name;
    unsigned capabilities;
    treadle_status (*open)(const char *path, const td_light_options *options, td_session **out, treadle_error *err);
    void (*close)(td_session *session);
    size_t (*n_inputs)(const td_session *session);
    size_t (*n_outputs)(const td_session *session);
    ptrdiff_t (*find_input)(const td_session *session, td_str name);
    ptrdiff_t (*find_output)(const td_session *session, td_str name);
    treadle_status (*ctx_new)(const td_session *session, td_session_ctx **out, treadle_error *err);
    void (*ctx_free)(td_session_ctx *ctx);
    treadle_status (*run)(td_session_ctx *ctx, const td_value *inputs, td_value *outputs, const bool *skip,
                          treadle_error *err);
    bool (*can_pick_rows)(const td_session *session, size_t output);
    treadle_status (*pick_rows)(td_session_ctx *ctx, size_t output, const int64_t *positions, size_t batch, size_t n,
                                treadle_error *err);
    void (*profile)(const td_session_ctx *ctx, bool by_op, td_buf *out);
} td_engine;

const td_engine *td_engine_find(td_str name); /* NULL: not in this build */
extern const td_engine td_engine_light;

#endif
