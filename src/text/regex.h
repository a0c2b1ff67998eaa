/* text/regex.h - the regular expressions of tokenizer.json: Oniguruma's Ruby dialect, run by PCRE2.
 *
 * td_regex_translate rewrites a pattern from the one dialect to the other; what has no counterpart is refused with its
 * position. A compiled expression is immutable and may be used from several threads; each brings a td_regex_scratch.
 * What a pattern of a model file may cost is limited, so that it cannot hang: TREADLE_LIMIT beyond. */
#ifndef TD_TEXT_REGEX_H
#define TD_TEXT_REGEX_H

#include "base/error.h"
#include "base/str.h"

typedef struct td_regex td_regex;

typedef struct td_match {
    uint32_t begin, end; /* bytes */
} td_match;

typedef struct td_match_vec {
    td_match *items;
    size_t n, capacity;
} td_match_vec;

/* Zero it; free at the end. The time of all searches with one scratch is limited together, by the bytes searched;
 * before a pause td_regex_scratch_restart begins anew. */
typedef struct td_regex_scratch {
    void *match_data, *match_context; /* of PCRE2 */
    td_buf stand_in;
    uint64_t n_calls, n_bytes, deadline_ns; /* see regex.c */
} td_regex_scratch;

treadle_status td_regex_compile(td_str pattern, td_regex **out, treadle_error *err); /* in Oniguruma's dialect */
treadle_status td_regex_literal(td_str text, td_regex **out, treadle_error *err);    /* matches text itself */
void td_regex_free(td_regex *regex);
bool td_regex_is_char(const td_regex *regex); /* a literal of one character */

/* Appends all matches from left to right, none overlapping; an empty one right behind another match is none.
 * text: valid UTF-8 below 2 GiB. */
treadle_status td_regex_find_all(const td_regex *regex, td_regex_scratch *scratch, td_str text, td_match_vec *matches,
                                 treadle_error *err);
static inline void td_regex_scratch_restart(td_regex_scratch *scratch) { scratch->n_calls = scratch->n_bytes = 0; }
void td_regex_scratch_free(td_regex_scratch *scratch);

/* Appends the pattern in PCRE2's dialect (options UTF, UCP, MULTILINE). */
treadle_status td_regex_translate(td_str pattern, td_buf *out, treadle_error *err);

#endif
