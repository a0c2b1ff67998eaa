/* treadle/status.h - status codes and the error record that every call can fill.
 *
 * A function that can fail returns a treadle_status and takes an optional, caller-owned treadle_error as its last
 * parameter (NULL: no text wanted). Nothing is allocated to report an error; there is no hidden per-thread state.
 */
#ifndef TREADLE_STATUS_H
#define TREADLE_STATUS_H

#include <stdint.h>

#if defined(__GNUC__)
#define TREADLE_API __attribute__((visibility("default")))
#else
#define TREADLE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* X(NAME, value, text): the only list of status codes. Values are stable; new ones are appended. */
#define TREADLE_STATUS_LIST(X)                                                                                         \
    X(OK, 0, "ok")                                                                                                     \
    X(INVALID_ARGUMENT, 1, "invalid argument") /* the caller's request is wrong: range, shape, type, order */          \
    X(NOT_FOUND, 2, "not found")               /* a file, name or entry does not exist */                              \
    X(IO, 3, "input/output error")             /* the operating system refused */                                      \
    X(FORMAT, 4, "malformed data")             /* a file's bytes are not what its format says */                       \
    X(CONFIG, 5, "configuration error")        /* config or model folder does not fit together */                      \
    X(UNSUPPORTED, 6, "not supported")         /* well-formed, but not something this build can do */                  \
    X(OUT_OF_MEMORY, 7, "out of memory")                                                                               \
    X(LIMIT, 8, "limit exceeded")     /* a stated limit (length, depth, steps) was reached */                          \
    X(CANCELLED, 9, "cancelled")      /* treadle_generator_cancel or a callback asked to stop */                       \
    X(RUN, 10, "run failed")          /* a graph failed while running, e.g. an index out of range */                   \
    X(INTERNAL, 11, "internal error") /* a fault of ours; please report it */

typedef enum treadle_status {
#define TREADLE_STATUS_ENUM(name, value, text) TREADLE_##name = value,
    TREADLE_STATUS_LIST(TREADLE_STATUS_ENUM)
#undef TREADLE_STATUS_ENUM
} treadle_status;

/* Filled on failure, untouched on success. All strings are NUL-terminated UTF-8, cut at a character if too long.
 * `message` already holds the whole sentence (what was expected, what was found, the choices); the place is kept apart
 * so that programs need not parse it. treadle_error_format joins both. */
typedef struct treadle_error {
    treadle_status code;
    uint32_t line;     /* from 1; 0: no line */
    uint32_t column;   /* from 1, in bytes; 0: none */
    char file[512];    /* path as the caller gave it; "" if no file is involved */
    char pointer[512]; /* JSON pointer, or the path to a part (graph/node) inside the file; "" if none */
    char message[2048];
    char hint[512]; /* did-you-mean or what to do; "" if none */
} treadle_error;

/* "ok", "invalid argument", ...; "unknown status" for other numbers. Static string. */
TREADLE_API const char *treadle_status_text(treadle_status status);

/* Writes "file:line:column /pointer: message. hint" into out (always NUL-terminated when out_bytes > 0).
 * Returns the length that the whole text has, as snprintf does. NULL for both is fine: no error, the length alone. */
TREADLE_API int treadle_error_format(const treadle_error *error, char *out, uint64_t out_bytes);

#ifdef __cplusplus
}
#endif
#endif
