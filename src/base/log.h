/* base/log.h - messages for people. Levels: error, warning, info, debug; off by default below warning.
 * The sink defaults to stderr and can be replaced by the host (treadle_log_set). Thread-safe. */
#ifndef TD_BASE_LOG_H
#define TD_BASE_LOG_H

#include "base/compiler.h"

typedef enum td_log_level { TD_LOG_ERROR, TD_LOG_WARNING, TD_LOG_INFO, TD_LOG_DEBUG } td_log_level;
typedef void td_log_fn(void *ctx, td_log_level level, const char *text);

void td_log_set(td_log_level max_level, td_log_fn *fn, void *ctx); /* fn NULL: stderr */
void td_log(td_log_level level, const char *format, ...) TD_PRINTF(2, 3);

#endif
