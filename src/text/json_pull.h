/* text/json_pull.h - reading one large JSON value (a vocabulary, a merge list) without a tree.
 *
 * A pull reader over a span of JSON text: the caller asks for what it expects. Offsets are bytes in the whole text, so
 * that errors name the line and column. A string without escapes is a view into the text, others are in the scratch
 * buffer until the next call. */
#ifndef TD_TEXT_JSON_PULL_H
#define TD_TEXT_JSON_PULL_H

#include "base/error.h"
#include "base/str.h"

typedef struct td_pull {
    td_str text;    /* the whole file: for places */
    size_t at, end; /* the next byte; the end of the span */
    td_buf scratch; /* unescaped string */
    treadle_error *err;
} td_pull;

void td_pull_init(td_pull *pull, td_str text, size_t begin, size_t end, treadle_error *err);
void td_pull_free(td_pull *pull);
char td_pull_peek(td_pull *pull);     /* the next byte that is not white space; 0 at the end */
size_t td_pull_offset(td_pull *pull); /* of that byte */
treadle_status td_pull_expect(td_pull *pull, char c);
treadle_status td_pull_string(td_pull *pull, td_str *out);
treadle_status td_pull_int(td_pull *pull, int64_t *out);
/* One value of any kind, brackets matched, contents not checked further. *n_items (may be
 * NULL): items or members of it. */
treadle_status td_pull_skip(td_pull *pull, size_t *n_items);
/* After '[' or '{' and after each item: true if another item follows, false at the closing bracket, which is taken. */
treadle_status td_pull_more(td_pull *pull, char close, bool first, bool *more);

#endif
