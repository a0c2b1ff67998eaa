/* base/log.c - the one message sink of the process.
 *
 * Invariant: after td_log_set returns the old sink is not called any more: a message holds the lock while it is handed
 * over. A sink that logs itself would wait for its own lock, so its messages are dropped. */
#include "base/log.h"

#include "base/utf8.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_int max_level = TD_LOG_WARNING;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of sink and sink_ctx */
static td_log_fn *sink;
static void *sink_ctx;
static _Thread_local bool in_sink;

void td_log_set(td_log_level level, td_log_fn *fn, void *ctx) {
    atomic_store_explicit(&max_level, (int)level, memory_order_relaxed);
    if (in_sink) return; /* a sink may change the level, not itself */
    pthread_mutex_lock(&lock);
    sink = fn;
    sink_ctx = ctx;
    pthread_mutex_unlock(&lock);
}

static void write_stderr(td_log_level level, const char *text) {
    static const char *const names[] = {"error", "warning", "info", "debug"};
    char line[2200];
    snprintf(line, sizeof line, "treadle: %s: %s\n", names[level], text);
    fputs(line, stderr);
}

void td_log(td_log_level level, const char *format, ...) {
    if ((int)level > atomic_load_explicit(&max_level, memory_order_relaxed) || in_sink) return;
    char text[2052];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0) return;
    if ((size_t)n >= sizeof text) text[td_utf8_complete_prefix((td_str){text, sizeof text - 1})] = '\0';

    pthread_mutex_lock(&lock);
    in_sink = true;
    if (sink) {
        sink(sink_ctx, level, text);
    } else {
        write_stderr(level, text);
    }
    in_sink = false;
    pthread_mutex_unlock(&lock);
}
