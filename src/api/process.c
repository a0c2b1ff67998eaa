/* api/process.c - version, log, CPU, memory. */
#include "api/api.h"

#include "base/alloc.h"
#include "base/cpu.h"
#include "base/log.h"
#include "base/pool.h"

#include <stdio.h>

#ifndef TREADLE_VERSION_TEXT
#define TREADLE_VERSION_TEXT "0.1.0"
#endif

const char *treadle_version(void) { return TREADLE_VERSION_TEXT; }

void treadle_free(void *memory) { td_free(memory); }

/* The host's sink, behind one of the library's own type. Set before other threads use the library, like the log
 * itself. */
static struct {
    treadle_log_fn *fn;
    void *ctx;
} log_sink;

static void forward_log(void *ctx, td_log_level level, const char *text) {
    (void)ctx;
    log_sink.fn(log_sink.ctx, (treadle_log_level)level, text);
}

void treadle_log_set(treadle_log_level max_level, treadle_log_fn *fn, void *ctx) {
    log_sink.fn = fn;
    log_sink.ctx = ctx;
    td_log_set((td_log_level)max_level, fn ? forward_log : NULL, NULL);
}

treadle_status treadle_cpu_set_mask(const char *mask, treadle_error *error) {
    TD_NEED(mask);
    return td_cpu_set_mask(mask, error);
}

const char *treadle_cpu_name(void) { return td_cpu_name(); }

int32_t treadle_cpu_count(void) { return td_cpu_count(); }

treadle_status td_api_options(const void *options, void *out, size_t size, const char *init, treadle_error *error) {
    size_t given;
    if (!options) return TREADLE_OK;
    memcpy(&given, options, sizeof given); /* struct_size is the first member of every options struct */
    if (given < sizeof given || given > size)
        return td_fail(error, TREADLE_INVALID_ARGUMENT,
                       "expected options of %zu bytes at most, made by %s; found struct_size %zu", size, init, given);
    memcpy(out, options, given);
    return TREADLE_OK;
}

treadle_status td_api_engine_options(const char *engine, int32_t n_threads, treadle_activations activations,
                                     treadle_error *error) {
    if (engine && !td_engine_find(td_str_from(engine)))
        return td_fail(error, TREADLE_INVALID_ARGUMENT, "expected the engine light or ort, found \"%.200s\"", engine);
    if (n_threads < 0 || n_threads > 1024)
        return td_fail(error, TREADLE_INVALID_ARGUMENT, "expected n_threads from 0 to 1024, found %d", (int)n_threads);
    if ((int)activations < TREADLE_ACTIVATIONS_AUTO || (int)activations > TREADLE_ACTIVATIONS_INT8)
        return td_fail(error, TREADLE_INVALID_ARGUMENT, "expected activations auto, float or int8, found %d",
                       (int)activations);
    return TREADLE_OK;
}

treadle_status td_api_names(const char *const *names, size_t n, const char *what, treadle_error *error) {
    for (size_t i = 0; i < n; i++)
        if (!names || !names[i]) return td_fail(error, TREADLE_INVALID_ARGUMENT, "%s: entry %zu is NULL", what, i);
    return TREADLE_OK;
}

treadle_status td_api_take_text(td_buf *buf, char **out, size_t *n_bytes, treadle_error *error) {
    if (!buf->p && !buf->failed) td_buf_append(buf, "", 0);
    if (buf->failed || !buf->p) {
        size_t n = buf->n;
        td_buf_free(buf);
        return td_fail_memory(error, "a text", n);
    }
    *out = buf->p;
    if (n_bytes) *n_bytes = buf->n;
    return TREADLE_OK;
}

const char *treadle_cpu_features(void) {
    static const char *const names[] = {
#define TD_CPU_TEXT(name, bit, text) text,
        TD_CPU_LIST(TD_CPU_TEXT)
#undef TD_CPU_TEXT
    };
    static _Thread_local char text[96];
    unsigned flags = td_cpu_flags();
    size_t at = 0;
    text[0] = 0;
    for (size_t i = 0; i < TD_COUNT(names) && at < sizeof text; i++)
        if (flags >> i & 1) at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", at ? "," : "", names[i]);
    return text;
}
