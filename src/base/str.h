/* base/str.h - string views, growable byte buffers, and typed growable arrays. */
#ifndef TD_BASE_STR_H
#define TD_BASE_STR_H

#include "base/compiler.h"

#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

/* A borrowed run of bytes, usually UTF-8; not NUL-terminated. {NULL, 0} is the empty or absent string. */
typedef struct td_str {
    const char *p;
    size_t n;
} td_str;

#define TD_STR(literal) ((td_str){(literal), sizeof(literal) - 1})
#define TD_STR_ARGS(s) (int)(s).n, (s).p /* for "%.*s" */

static inline td_str td_str_from(const char *text) { return (td_str){text, text ? strlen(text) : 0}; }
static inline bool td_str_equal(td_str a, td_str b) { return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0); }
static inline bool td_str_is(td_str a, const char *text) { return td_str_equal(a, td_str_from(text)); }
bool td_str_starts(td_str text, td_str prefix);
bool td_str_ends(td_str text, td_str suffix);
ptrdiff_t td_str_find(td_str text, td_str part);     /* byte offset, or -1 */
int td_str_compare(td_str a, td_str b);              /* bytewise, like strcmp */
bool td_glob(const char *pattern, const char *text); /* '*' and '?' over the whole text */

/* A growable byte buffer that its owner frees. An append that fails for memory leaves the contents as they were and
 * sets `failed`, which stays set, so that a chain of appends needs one check at its end. `p` is NUL-terminated once
 * anything was appended; n does not count the NUL. */
typedef struct td_buf {
    char *p;
    size_t n;
    size_t capacity;
    bool failed;
} td_buf;

void td_buf_append(td_buf *buf, const void *bytes, size_t n);
void td_buf_str(td_buf *buf, td_str text);
void td_buf_text(td_buf *buf, const char *text);
void td_buf_char(td_buf *buf, char c);
void td_buf_printf(td_buf *buf, const char *format, ...) TD_PRINTF(2, 3);
void td_buf_vprintf(td_buf *buf, const char *format, va_list args);
bool td_buf_reserve(td_buf *buf, size_t more); /* room for `more` bytes plus a NUL; false: failed is set */
void td_buf_clear(td_buf *buf);                /* keeps the memory */
void td_buf_free(td_buf *buf);
static inline td_str td_buf_view(const td_buf *buf) { return (td_str){buf->p, buf->n}; }

/* Typed growable arrays: TD_VEC(int) v = {0}; if (!td_vec_push(&v, 3)) ...; v.items[0]; td_vec_free(&v). */
#define TD_VEC(type)                                                                                                   \
    struct {                                                                                                           \
        type *items;                                                                                                   \
        size_t n, capacity;                                                                                            \
    }
/* Returns the items, moved and with *capacity raised, or as they were if there is no memory. */
void *td_vec_grow_(void *items, size_t *capacity, size_t need, size_t item_bytes);
#define td_vec_reserve(v, need)                                                                                        \
    ((need) <= (v)->capacity ||                                                                                        \
     ((v)->items = td_vec_grow_((v)->items, &(v)->capacity, (need), sizeof *(v)->items), (need) <= (v)->capacity))
#define td_vec_push(v, ...) (td_vec_reserve((v), (v)->n + 1) ? ((v)->items[(v)->n++] = (__VA_ARGS__), true) : false)
void td_vec_free_(void *items);
#define td_vec_free(v) (td_vec_free_((v)->items), (v)->items = NULL, (v)->n = (v)->capacity = 0)

#endif
