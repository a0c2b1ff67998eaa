/* base/json.h - JSON (RFC 8259) reader and writer.
 *
 * The reader makes a tree in an arena over the caller's bytes, which must outlive it: strings without escapes
 * point into them. Every value knows its byte offset, so that messages can point at it. Strict: duplicate keys,
 * trailing text, comments, trailing commas, NaN and Infinity, numbers too large for a double, bad UTF-8, lone
 * surrogates, and more than max_depth levels are refused, with line and column of the offending token. A byte
 * order mark at the start is skipped. Integers that fit int64 are exact; others and all with a point or exponent
 * are doubles. At most 4 GiB of text. */
#ifndef TD_BASE_JSON_H
#define TD_BASE_JSON_H

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"

typedef enum td_json_kind {
    TD_JSON_NULL,
    TD_JSON_BOOL,
    TD_JSON_INT,    /* as_int and as_double are both valid */
    TD_JSON_DOUBLE, /* as_double; as_int is 0 */
    TD_JSON_STRING,
    TD_JSON_ARRAY,
    TD_JSON_OBJECT,
} td_json_kind;

typedef struct td_json td_json;
struct td_json {
    td_json_kind kind;
    bool as_bool;
    uint32_t n;          /* array items or object members */
    uint32_t offset;     /* byte offset of the value's first character */
    uint32_t end;        /* byte offset after its last */
    uint32_t key_offset; /* byte offset of the key's opening quote, if the parent is an object */
    int64_t as_int;
    double as_double;
    td_str string;   /* unescaped UTF-8, may hold NULs; not NUL-terminated */
    td_json *first;  /* first child of an array or object, in file order */
    td_json *next;   /* next sibling */
    td_str key;      /* the member's name, if the parent is an object; like string */
    td_json *parent; /* NULL: the root */
};

typedef struct td_json_options {
    uint32_t max_depth;        /* 0: 256 */
    bool allow_duplicate_keys; /* all stay in the tree, td_json_get finds the last; for files of others */
    bool allow_nonfinite;      /* NaN, Infinity, -Infinity, as Python writes them */
} td_json_options;

/* Parses `text`. On failure err has line, column, pointer (innermost open value; the key's for a duplicate key) and
 * message; the caller adds the file. Errors: TREADLE_FORMAT, TREADLE_LIMIT (depth, size), TREADLE_OUT_OF_MEMORY.
 * options NULL: strict. */
treadle_status td_json_parse(td_str text, const td_json_options *options, td_arena *arena, td_json **out,
                             treadle_error *err);

/* Object member by name or array item by index; NULL if absent or not that kind (object NULL is fine). Linear: who
 * looks up much in a large object walks first..next once and fills a td_map. */
td_json *td_json_get(const td_json *object, const char *key);
td_json *td_json_get_str(const td_json *object, td_str key);
td_json *td_json_at(const td_json *array, size_t index); /* O(index) */
const char *td_json_kind_name(td_json_kind kind);        /* "an object", "a string", ... */

/* Convenience: the member's value, or the fallback if absent or of another kind. */
bool td_json_bool_or(const td_json *object, const char *key, bool fallback);
int64_t td_json_int_or(const td_json *object, const char *key, int64_t fallback);
double td_json_double_or(const td_json *object, const char *key, double fallback);
td_str td_json_string_or(const td_json *object, const char *key, const char *fallback);

/* Line and column (from 1, in bytes) of a byte offset. */
void td_text_place(td_str text, size_t offset, uint32_t *line, uint32_t *column);

/* Appends the JSON pointer (RFC 6901) of a value to buf. */
void td_json_pointer(const td_json *value, td_buf *buf);

/* --- writer: appends to a td_buf; commas and indentation are its business. Check buf.failed at the end. */
typedef struct td_json_writer {
    td_buf *out;
    int indent; /* spaces per level; 0: one line */
    int depth;
    bool first, after_key;
} td_json_writer;

void td_json_writer_init(td_json_writer *w, td_buf *out, int indent);
void td_json_begin_object(td_json_writer *w);
void td_json_end_object(td_json_writer *w);
void td_json_begin_array(td_json_writer *w);
void td_json_end_array(td_json_writer *w);
void td_json_key(td_json_writer *w, const char *key);
void td_json_key_str(td_json_writer *w, td_str key);
void td_json_write_string(td_json_writer *w, td_str text); /* bad UTF-8 becomes U+FFFD */
void td_json_write_text(td_json_writer *w, const char *text);
void td_json_write_int(td_json_writer *w, int64_t value);
void td_json_write_double(td_json_writer *w, double value); /* shortest that reads back; not finite: null */
void td_json_write_bool(td_json_writer *w, bool value);
void td_json_write_null(td_json_writer *w);
void td_json_write_value(td_json_writer *w, const td_json *value); /* a parsed tree again */

#endif
