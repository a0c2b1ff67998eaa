/* text/sink.h - the text end of a generation: detokenised text, cut at stop strings.
 *
 * The text ends before the earliest match of any stop string; of those that start at one place the longest is reported.
 * A match counts at the token that completes it. Text that may still become a match is held back, so nothing emitted is
 * ever taken back. A closing end-of-sequence token is not part of the text: it is not pushed. One owner.
 */
#ifndef TD_TEXT_SINK_H
#define TD_TEXT_SINK_H

#include "text/tokenizer.h"

/* The stop strings alone, over text that comes in pieces. */
typedef struct td_stopper td_stopper;

/* stops are copied. An empty one and one that is not UTF-8 are refused; n_stops 0 is fine. */
treadle_status td_stopper_open(const td_str *stops, size_t n_stops, td_stopper **out, treadle_error *err);
void td_stopper_free(td_stopper *stopper);
/* Takes whole characters, appends to out what is certain. After a match: *stopped is true, out has all text before the
 * match, and further pushes add nothing. */
treadle_status td_stopper_push(td_stopper *stopper, td_str text, td_buf *out, bool *stopped, treadle_error *err);
treadle_status td_stopper_flush(td_stopper *stopper, td_buf *out, treadle_error *err); /* no more text: what was held */
int td_stopper_match(const td_stopper *stopper); /* index of the stop string that matched; -1: none yet */

/* Detokenizer and stop strings together. */
typedef struct td_text_sink {
    td_detok *detok;
    td_stopper *stopper;
    td_buf piece; /* text of the token in hand */
} td_text_sink;

treadle_status td_text_sink_open(td_text_sink *sink, const td_tokenizer *tokenizer, bool skip_special,
                                 const td_str *stops, size_t n_stops, treadle_error *err);
void td_text_sink_close(td_text_sink *sink); /* a zeroed or closed sink is fine */
void td_text_sink_reset(td_text_sink *sink);
treadle_status td_text_sink_push(td_text_sink *sink, int32_t id, td_buf *out, bool *stopped, treadle_error *err);
/* The end for another reason than a stop string. The unfinished rest may still complete one: *stopped says so. */
treadle_status td_text_sink_flush(td_text_sink *sink, td_buf *out, bool *stopped, treadle_error *err);

#endif
