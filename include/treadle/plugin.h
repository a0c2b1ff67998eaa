/* treadle/plugin.h - pipelines in native code: what a shared library must export to run a
 * model that no config can describe.
 *
 * A config names it: {"pipeline": {"plugin": {"library": "libmine.so", "entry_point": "mine_init"},
 * "sessions": {...}}}. The host loads it only from a folder that it was told to allow
 * (treadle_model_options.plugin_dirs, --allow-plugins DIR).
 *
 * The entry function gets the host's table and fills the plugin's. Both begin with their size and version and only ever
 * grow: use a member only if `size` covers it. The plugin decides which sessions run with what for each new token;
 * sampling, stop strings, text, limits, rows and cancelling stay the host's.
 *
 * Threads: open and close are called from the thread that opens the model; one row's functions from one
 * thread at a time, rows of different generators at once. A plugin keeps what belongs to a row in the
 * row, and nothing else mutable.
 * Errors: return a status other than TREADLE_OK and say why with host->fail. A plugin never aborts the process.
 * This header is plain C and needs no library of treadle to link against. */
#ifndef TREADLE_PLUGIN_H
#define TREADLE_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "treadle/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TREADLE_PLUGIN_VERSION 1
#define TREADLE_PLUGIN_ENTRY "treadle_plugin_init" /* where the config names no entry_point */

typedef struct treadle_plugin_model treadle_plugin_model; /* the host's: an opened model */
typedef struct treadle_plugin_run treadle_plugin_run; /* the host's: one row, while one of its functions is called */

/* What the host does for a plugin. */
typedef struct treadle_plugin_host {
    size_t size;      /* bytes of this table as the host has it */
    uint32_t version; /* TREADLE_PLUGIN_VERSION of the host */

    /* Fills error (which may be NULL) and returns code. */
    treadle_status (*fail)(treadle_error *error, treadle_status code, const char *message);

    /* Sessions and their inputs and outputs by name; -1: none. Names are resolved once, at open. */
    int32_t (*find_session)(const treadle_plugin_model *model, const char *name);
    int32_t (*find_input)(const treadle_plugin_model *model, int32_t session, const char *name);
    int32_t (*find_output)(const treadle_plugin_model *model, int32_t session, const char *name);
    int32_t (*n_inputs)(const treadle_plugin_model *model, int32_t session);
    int32_t (*n_outputs)(const treadle_plugin_model *model, int32_t session);
    /* The effective config as JSON, NUL-terminated; lives as long as the model. */
    const char *(*config)(const treadle_plugin_model *model);

    /* Runs a session. inputs [n_inputs]: dense, borrowed; dtype UNDEFINED: not given. outputs [n_outputs] are
     * filled with views that live until the session's next run for this generator. skip [n_outputs] or NULL:
     * outputs that are not wanted. */
    treadle_status (*run)(treadle_plugin_run *run, int32_t session, const treadle_tensor *inputs,
                          treadle_tensor *outputs, const bool *skip, treadle_error *error);
    /* A tensor that came with the request (treadle_generator_set_tensor); false: none of that name. */
    bool (*request)(const treadle_plugin_run *run, const char *name, treadle_tensor *out);
} treadle_plugin_host;

/* What a plugin does. Members that are NULL: see each. */
typedef struct treadle_plugin {
    size_t size;      /* set by the plugin: sizeof(treadle_plugin) as it was compiled */
    uint32_t version; /* set by the plugin: TREADLE_PLUGIN_VERSION as it was compiled */
    const char *name; /* for messages; lives as long as the library */

    /* Once per model: resolve names, look at the config. *out goes to begin and close. May be NULL. */
    treadle_status (*open)(const treadle_plugin_host *host, const treadle_plugin_model *model, void **out,
                           treadle_error *error);
    void (*close)(void *model); /* may be NULL; not called if open failed */

    /* Once per row of a generator, before its first forward. *out, which must not be NULL, goes to the
     * other functions. Both needed. */
    treadle_status (*begin)(void *model, treadle_plugin_run *run, void **out, treadle_error *error);
    void (*end)(void *row);

    /* Runs the row's tokens ids[n_done..n_ids) and gives the logits [n_logits] of what may follow the last one,
     * float32, valid until the row's next call. n_done is how many tokens earlier calls have run. Needed. */
    treadle_status (*forward)(void *row, treadle_plugin_run *run, const int32_t *ids, size_t n_ids, size_t n_done,
                              const float **out_logits, size_t *out_n_logits, treadle_error *error);

    /* Forgets all but the first `length` tokens. NULL, or a failure: the row is ended and begun again. */
    treadle_status (*rewind)(void *row, size_t length, treadle_error *error);
} treadle_plugin;

/* The entry function. `out` is zeroed. */
typedef treadle_status treadle_plugin_init_fn(const treadle_plugin_host *host, treadle_plugin *out,
                                              treadle_error *error);

#ifdef __cplusplus
}
#endif
#endif
