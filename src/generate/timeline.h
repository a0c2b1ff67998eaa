/* generate/timeline.h - what the files of this module share. */
#ifndef TD_GENERATE_TIMELINE_H
#define TD_GENERATE_TIMELINE_H

#include "generate/generate.h"

/* --- timeline.c */
treadle_status td_timeline_grow(td_timeline *t, int64_t n, treadle_error *err); /* room for n tokens */
/* Room so that a run of `more` tokens need not allocate. */
treadle_status td_generation_reserve(td_generation *g, int64_t more, treadle_error *err);

/* --- generate.c */
/* Drops what row r has run if the graph treats positions otherwise at `wanted` tokens (td_plan.reprefill_at). */
void td_generation_reprefill(td_generation *g, size_t r, int64_t wanted);

/* --- requests.c */
/* Deals the staged tensors out to the rows of an append. *out_fresh: there were some. */
treadle_status td_generation_take_tensors(td_generation *g, const treadle_ids *rows, size_t n_rows, bool *out_fresh,
                                          treadle_error *err);
void td_generation_free_tensors(td_generation *g);

/* --- encode.c */
void td_generation_free_outputs(td_generation *g);

/* --- other token loops, as td_generation_run */
/* beam.c: the timeline of each row that has not ended goes on with its best sequence. limit: new tokens, negative: no
 * limit but max_length. */
treadle_status td_generation_beam(td_generation *g, int64_t limit, td_sink_fn *sink, void *ctx, treadle_error *err);
void td_timeline_drop_sequences(td_timeline *t);
/* transduce.c: tokens of the features that were appended. */
treadle_status td_generation_transduce(td_generation *g, int64_t max_new_tokens, td_sink_fn *sink, void *ctx,
                                       treadle_error *err);

#endif
