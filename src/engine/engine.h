/* engine/engine.h - what runs a graph, seen from the pipeline: a vtable per engine, and the registry of engines.
 *
 * A session is an opened graph, immutable and shared by threads; a context is one mutable run state over it, used by
 * one thread at a time. Runs bind values by index; the rules for outputs, aliasing and picked rows are those of
 * td_light_run and td_light_pick_rows. A signature is what a file says of itself without its weights. */
#ifndef TD_ENGINE_ENGINE_H
#define TD_ENGINE_ENGINE_H

#include "base/json.h"
#include "light/light.h"

/* Inputs (without those that are only initializers) and outputs of a file, its graph, and its metadata. */
typedef struct td_signature {
    td_onnx_model *model; /* owned; external weights not loaded */
    const td_light_port *inputs, *outputs;
    size_t n_inputs, n_outputs;
    td_arena arena; /* owned */
} td_signature;

treadle_status td_signature_open(const char *path, td_signature **out, treadle_error *err);
/* That all external data of the file lies inside its folder and is there. NOT_FOUND, CONFIG. */
treadle_status td_signature_check_external(const td_signature *signature, treadle_error *err);
void td_signature_close(td_signature *signature);                              /* NULL is fine */
ptrdiff_t td_signature_find_input(const td_signature *signature, td_str name); /* -1: none */
ptrdiff_t td_signature_find_output(const td_signature *signature, td_str name);

typedef struct td_session td_session;         /* the engine's own */
typedef struct td_session_ctx td_session_ctx; /* likewise */

/* What callers may rely on. */
enum {
    TD_ENGINE_ALIASES = 1 << 0,    /* any past and its present may be bound to one memory; else see td_engine.aliases */
    TD_ENGINE_CONCURRENT = 1 << 1, /* contexts of one session run on several threads at once */
    TD_ENGINE_DEVICE = 1 << 2,     /* values may lie in memory that the CPU cannot read (td_engine.keep) */
    TD_ENGINE_GIVES = 1 << 3,      /* outputs in memory of a context have a buffer, so that they can be kept */
    TD_ENGINE_WINDOWS =
        1 << 4, /* GroupQueryAttention with a local window takes the last columns of a past as the past */
};

/* How a session is opened, for every engine; what an engine has no use for it ignores. Borrowed, also by open
 * sessions. */
typedef struct td_engine_options {
    const char *engine; /* the host's choice for every session; NULL: as the config says, light where it says nothing */
    int n_threads;      /* 0: all CPUs of this process */
    bool no_passes;     /* run the graph as written */
    bool profile;       /* time every node */
    /* light */
    const char *skip_passes;
    td_activations activations;
    const char *pack_dir;
    /* ort */
    const char *library; /* libonnxruntime; NULL: $TREADLE_ORT_LIB, else the standard names */
    /* "NAME=PATH" of plugin execution providers to register; from the host only */
    const char *const *provider_libraries;
    size_t n_provider_libraries;
    td_str provider;                 /* empty: CPU */
    const td_json *provider_options; /* objects of names and plain values; NULL: none */
    const td_json *session_options;
    const td_json *run_options;
} td_engine_options;

/* An output that was asked for in memory of the context may outlive the context's next run: if its
 * tensor.buffer is set, whoever retains that keeps the value, and as an input of a session of the same engine
 * it is taken as it is, without a copy. */
typedef struct td_engine {
    const char *name;
    unsigned capabilities;
    /* The execution providers that sessions can name on this machine, NULL-terminated, in the arena. Fails where the
     * engine itself is not there. Only what options say of libraries counts. */
    treadle_status (*providers)(const td_engine_options *options, td_arena *arena, const char *const **out,
                                treadle_error *err);
    treadle_status (*open)(const char *path, const td_engine_options *options, td_session **out, treadle_error *err);
    void (*close)(td_session *session);
    /* Lets memory go that comes back when the session runs again; NULL: there is none. Runs may be going on. */
    void (*drop)(const td_session *session);
    size_t (*n_inputs)(const td_session *session);
    size_t (*n_outputs)(const td_session *session);
    /* What is known of an output, by inference too; NULL: the engine does not say. */
    const td_light_port *(*output)(const td_session *session, size_t index);
    /* Whether this input and this output may be bound to one memory (with the same strides) so that nothing is
     * copied. */
    bool (*aliases)(const td_session *session, size_t input, size_t output);
    treadle_status (*ctx_new)(const td_session *session, td_session_ctx **out, treadle_error *err);
    void (*ctx_free)(td_session_ctx *ctx);
    treadle_status (*run)(td_session_ctx *ctx, const td_value *inputs, td_value *outputs, const bool *skip,
                          treadle_error *err);
    /* While on, a run ends soon, with TREADLE_CANCELLED, and so does every later one. The one function that any thread
     * may call while another runs the context. */
    void (*interrupt)(td_session_ctx *ctx, bool on);
    bool (*can_pick_rows)(const td_session *session, size_t output);
    treadle_status (*pick_rows)(td_session_ctx *ctx, size_t output, const int64_t *positions, size_t batch, size_t n,
                                int64_t seq, treadle_error *err);
    /* Says that values of this output only ever become inputs of sessions of this engine (state, wires): they may then
     * stay on the device, and their data must not be read. Off at first. */
    void (*keep)(td_session_ctx *ctx, size_t output, bool on);
    void (*profile)(const td_session_ctx *ctx, bool by_op, td_buf *out);
    /* Appends members to an open object: what the engine is, and the devices and providers it can use here. */
    treadle_status (*describe)(const td_engine_options *options, td_json_writer *w, treadle_error *err);
} td_engine;

const td_engine *td_engine_find(td_str name); /* NULL: not in this build */
size_t td_engine_count(void);
const td_engine *td_engine_at(size_t index);
extern const td_engine td_engine_light, td_engine_ort;

/* What a config says of one session; empty parts: nothing. */
typedef struct td_engine_wish {
    td_str engine, provider;
    const td_json *provider_options, *session_options, *run_options;
} td_engine_wish;

/* The engine of one session and the options to open it with: the host's choice (base->engine) wins over the
 * config's; a provider other than the CPU's implies ort. A host that forces light drops the provider.
 * out_options borrows from base and wish. TREADLE_CONFIG: no engine of that name. Does not say whether the
 * engine works here: td_engine.providers does. */
treadle_status td_engine_for_session(const td_engine_options *base, const td_engine_wish *wish,
                                     const td_engine **out_engine, td_engine_options *out_options, treadle_error *err);

/* Empty, or a name of the CPU provider in any of its spellings. */
bool td_engine_is_cpu_provider(td_str provider);

#endif
