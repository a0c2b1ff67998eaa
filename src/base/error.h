/* base/error.h - filling a treadle_error and passing statuses up.
 *
 * Wording rule: what was expected, what was found, the choices. Each layer adds its context once. */
#ifndef TD_BASE_ERROR_H
#define TD_BASE_ERROR_H

#include "base/compiler.h"
#include "treadle/status.h"

/* Fills err (may be NULL) with code and text and returns code, so that `return td_fail(...)` reads well.
 * Clears file, pointer, line, column and hint. */
treadle_status td_fail(treadle_error *err, treadle_status code, const char *format, ...) TD_PRINTF(3, 4);

/* The usual answer to a failed allocation; names what could not be had. */
treadle_status td_fail_memory(treadle_error *err, const char *what, size_t bytes);

/* Each sets one part of an already filled error, only if that part is still empty; NULL err is fine. */
void td_error_file(treadle_error *err, const char *file);
void td_error_place(treadle_error *err, uint32_t line, uint32_t column);
void td_error_pointer(treadle_error *err, const char *format, ...) TD_PRINTF(2, 3);
void td_error_hint(treadle_error *err, const char *format, ...) TD_PRINTF(2, 3);

/* Puts "context: " before the message. */
void td_error_context(treadle_error *err, const char *format, ...) TD_PRINTF(2, 3);

/* The candidate nearest to `word` by edit distance, or NULL if none is near enough for "did you mean". */
const char *td_nearest(const char *word, const char *const *candidates, size_t n_candidates);

/* Returns the status of expr from the enclosing function unless it is TREADLE_OK. */
#define TD_TRY(expr)                                                                                                   \
    do {                                                                                                               \
        treadle_status td_status_ = (expr);                                                                            \
        if (td_status_ != TREADLE_OK) return td_status_;                                                               \
    } while (0)

/* The same for functions that clean up: assigns to the local `status` and jumps to the label. */
#define TD_TRY_GOTO(expr, label)                                                                                       \
    do {                                                                                                               \
        status = (expr);                                                                                               \
        if (status != TREADLE_OK) goto label;                                                                          \
    } while (0)

#endif
