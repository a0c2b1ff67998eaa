/* base/error.c - the error record: filling, adding to, and printing it.
 *
 * Invariant: every text in the record is NUL-terminated and, if it had to be cut, cut between characters. Arguments of
 * a format may point into the record that is being written: texts are made aside first. */
#include "base/error.h"

#include "base/str.h"
#include "base/utf8.h"

#include <stdio.h>

/* Copies text into out, cut at a character if it is too long. */
static void copy_cut(char *out, size_t out_bytes, const char *text) {
    size_t n = strlen(text);
    if (n >= out_bytes) n = td_utf8_complete_prefix((td_str){text, out_bytes - 1});
    memmove(out, text, n);
    out[n] = '\0';
}

static void format_cut(char *out, size_t out_bytes, const char *format, va_list args) {
    char text[sizeof((treadle_error *)0)->message + 4]; /* longer than any field, so the cut is seen and made well */
    if (vsnprintf(text, sizeof text, format, args) < 0) text[0] = '\0';
    copy_cut(out, out_bytes, text);
}

treadle_status td_fail(treadle_error *err, treadle_status code, const char *format, ...) {
    if (!err) return code;
    va_list args;
    va_start(args, format);
    format_cut(err->message, sizeof err->message, format, args);
    va_end(args);
    err->code = code;
    err->line = err->column = 0;
    err->file[0] = err->pointer[0] = err->hint[0] = '\0';
    return code;
}

treadle_status td_fail_memory(treadle_error *err, const char *what, size_t bytes) {
    return td_fail(err, TREADLE_OUT_OF_MEMORY, "out of memory: could not get %zu bytes for %s", bytes, what);
}

void td_error_file(treadle_error *err, const char *file) {
    if (err && !err->file[0]) copy_cut(err->file, sizeof err->file, file);
}

void td_error_place(treadle_error *err, uint32_t line, uint32_t column) {
    if (!err || err->line) return;
    err->line = line;
    err->column = column;
}

void td_error_pointer(treadle_error *err, const char *format, ...) {
    if (!err || err->pointer[0]) return;
    va_list args;
    va_start(args, format);
    format_cut(err->pointer, sizeof err->pointer, format, args);
    va_end(args);
}

void td_error_hint(treadle_error *err, const char *format, ...) {
    if (!err || err->hint[0]) return;
    va_list args;
    va_start(args, format);
    format_cut(err->hint, sizeof err->hint, format, args);
    va_end(args);
}

void td_error_context(treadle_error *err, const char *format, ...) {
    if (!err) return;
    char context[512];
    char joined[sizeof err->message + sizeof context + 2];
    va_list args;
    va_start(args, format);
    format_cut(context, sizeof context, format, args);
    va_end(args);
    snprintf(joined, sizeof joined, "%s: %s", context, err->message);
    copy_cut(err->message, sizeof err->message, joined);
}

const char *treadle_status_text(treadle_status status) {
    switch (status) {
#define STATUS_TEXT(name, value, text)                                                                                 \
    case TREADLE_##name: return text;
        TREADLE_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}

int treadle_error_format(const treadle_error *error, char *out, uint64_t out_bytes) {
    static const treadle_error none;
    if (!error) error = &none;
    if (!out) out_bytes = 0;
    char place[32] = "", pointer[sizeof error->pointer + 2] = "";
    if (error->line && error->column) {
        snprintf(place, sizeof place, "%s%u:%u", error->file[0] ? ":" : "", error->line, error->column);
    } else if (error->line) {
        snprintf(place, sizeof place, "%s%u", error->file[0] ? ":" : "", error->line);
    }
    /* A file that the message names already, "could not open 'FILE': ...", is not said twice. */
    bool said = error->file[0] && !place[0] && !error->pointer[0] && strstr(error->message, error->file);
    const char *file = said ? "" : error->file;
    bool placed = file[0] || place[0];
    if (error->pointer[0]) snprintf(pointer, sizeof pointer, "%s%s", placed ? " " : "", error->pointer);

    const char *message = error->message[0] ? error->message : treadle_status_text(error->code);
    char last = message[strlen(message) - 1];
    const char *stop = error->hint[0] == '\0' ? "" : last == '.' || last == '!' || last == '?' ? " " : ". ";
    return snprintf(out_bytes ? out : NULL, (size_t)out_bytes, "%s%s%s%s%s%s%s", file, place, pointer,
                    placed || error->pointer[0] ? ": " : "", message, stop, error->hint);
}

enum { MAX_WORD = 64 };

static int lower(char c) { return c >= 'A' && c <= 'Z' ? c + 32 : (unsigned char)c; }

/* Edit distance with swaps of neighbours counted once (optimal string alignment), ASCII case ignored. */
static size_t distance(const char *a, size_t n_a, const char *b, size_t n_b) {
    size_t rows[3][MAX_WORD + 1];
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= n_b; j++) above[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t best = above[j - 1] + (lower(a[i - 1]) != lower(b[j - 1]));
            best = TD_MIN(best, above[j] + 1);
            best = TD_MIN(best, row[j - 1] + 1);
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1])) {
                best = TD_MIN(best, before[j - 2] + 1);
            }
            row[j] = best;
        }
        size_t *spare = before;
        before = above;
        above = row;
        row = spare;
    }
    return above[n_b];
}

const char *td_nearest(const char *word, const char *const *candidates, size_t n_candidates) {
    const char *nearest = NULL;
    size_t n_word = strlen(word), nearest_distance = SIZE_MAX;
    if (n_word == 0 || n_word > MAX_WORD) return NULL;
    for (size_t i = 0; i < n_candidates; i++) {
        size_t n = candidates[i] ? strlen(candidates[i]) : 0;
        if (n == 0 || n > MAX_WORD) continue;
        size_t d = distance(word, n_word, candidates[i], n);
        if (d <= TD_MAX(1, TD_MAX(n, n_word) / 3) && d < TD_MAX(n, n_word) && d < nearest_distance) {
            nearest = candidates[i];
            nearest_distance = d;
        }
    }
    return nearest;
}
