/* base/str.c - string views, byte buffers and the growth of typed arrays.
 *
 * Invariant of td_buf: p is NULL (capacity 0) or holds n bytes and a NUL, n < capacity. Growth is by half at least, so
 * that a chain of appends is linear. */
#include "base/str.h"

#include "base/alloc.h"

#include <stdio.h>

bool td_str_starts(td_str text, td_str prefix) {
    return text.n >= prefix.n && (prefix.n == 0 || memcmp(text.p, prefix.p, prefix.n) == 0);
}

bool td_str_ends(td_str text, td_str suffix) {
    return text.n >= suffix.n && (suffix.n == 0 || memcmp(text.p + text.n - suffix.n, suffix.p, suffix.n) == 0);
}

ptrdiff_t td_str_find(td_str text, td_str part) {
    if (part.n == 0) return 0;
    if (text.n < part.n) return -1;
    const char *found = memmem(text.p, text.n, part.p, part.n);
    return found ? found - text.p : -1;
}

int td_str_compare(td_str a, td_str b) {
    size_t n = TD_MIN(a.n, b.n);
    int order = n ? memcmp(a.p, b.p, n) : 0;
    return order ? order : (a.n > b.n) - (a.n < b.n);
}

bool td_glob(const char *pattern, const char *text) {
    /* Only the latest '*' ever needs to take one byte more, so the time is at most the product of both lengths. */
    const char *star = NULL, *star_text = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = ++pattern;
            star_text = text;
        } else if (*pattern == '?' || *pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star;
            text = ++star_text;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return *pattern == '\0';
}

void *td_vec_grow_(void *items, size_t *capacity, size_t need, size_t item_bytes) {
    size_t grown = *capacity + *capacity / 2;
    if (grown < 8) grown = 8;
    if (grown < need) grown = need;
    void *moved = td_realloc_array(items, grown, item_bytes);
    if (!moved) return items;
    *capacity = grown;
    return moved;
}

void td_vec_free_(void *items) { td_free(items); }

bool td_buf_reserve(td_buf *buf, size_t more) {
    size_t need;
    if (!TD_ADD_OVERFLOWS(buf->n, more, &need) && !TD_ADD_OVERFLOWS(need, (size_t)1, &need)) {
        if (need <= buf->capacity) return true;
        buf->p = td_vec_grow_(buf->p, &buf->capacity, TD_MAX(need, 32), 1);
        if (need <= buf->capacity) {
            buf->p[buf->n] = '\0';
            return true;
        }
    }
    buf->failed = true;
    return false;
}

void td_buf_append(td_buf *buf, const void *bytes, size_t n) {
    if (!td_buf_reserve(buf, n)) return;
    if (n) memcpy(buf->p + buf->n, bytes, n);
    buf->n += n;
    buf->p[buf->n] = '\0';
}

void td_buf_str(td_buf *buf, td_str text) { td_buf_append(buf, text.p, text.n); }

void td_buf_text(td_buf *buf, const char *text) { td_buf_append(buf, text, strlen(text)); }

void td_buf_char(td_buf *buf, char c) {
    if (!td_buf_reserve(buf, 1)) return;
    buf->p[buf->n++] = c;
    buf->p[buf->n] = '\0';
}

void td_buf_vprintf(td_buf *buf, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    size_t room = buf->capacity - buf->n;
    int n = vsnprintf(buf->p ? buf->p + buf->n : NULL, room, format, args);
    if (n < 0) {
        if (buf->p) buf->p[buf->n] = '\0';
        buf->failed = true;
    } else if ((size_t)n < room) {
        buf->n += (size_t)n;
    } else {
        if (buf->p) buf->p[buf->n] = '\0'; /* take the cut text back in case there is no memory for the whole */
        if (td_buf_reserve(buf, (size_t)n)) {
            vsnprintf(buf->p + buf->n, (size_t)n + 1, format, again);
            buf->n += (size_t)n;
        }
    }
    va_end(again);
}

void td_buf_printf(td_buf *buf, const char *format, ...) {
    va_list args;
    va_start(args, format);
    td_buf_vprintf(buf, format, args);
    va_end(args);
}

void td_buf_clear(td_buf *buf) {
    buf->n = 0;
    buf->failed = false;
    if (buf->p) buf->p[0] = '\0';
}

void td_buf_free(td_buf *buf) {
    td_free(buf->p);
    *buf = (td_buf){0};
}
