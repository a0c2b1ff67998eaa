/* state/state.h - the memory of a generation: caches that grow in place, static and cross caches, recurrent state.
 *
 * One td_state serves all rows of a generator. A growing cache is allocated once with room for `capacity` columns along
 * its growing dimension; the past that a graph sees is a view of the first columns, and its present is bound to the
 * same memory, so a step copies nothing. A static cache has its fixed columns from the start and is bound likewise
 * where the graph writes in place. Where the engine makes a new tensor each run instead, a state of one row takes that
 * tensor over as it is (td_state_give). A recurrent tensor has two buffers that change places. A cross cache is a value
 * per row that a step gives once.
 * Row r owns columns [start, start + length). Rows that run together under a mask end at the same
 * column; aligning moves a row's columns once, when lengths change, never in a step.
 * Caches that slide keep their last columns alone (slide.c); then no row has a start.
 * Invariant: start + length <= capacity for every row. Owns the buffers. One thread at a time. */
#ifndef TD_STATE_STATE_H
#define TD_STATE_STATE_H

#include "plan/plan.h"

typedef struct td_state_row {
    int64_t start, length; /* columns */
    int64_t dropped;       /* columns before the first one that caches which slide still have */
} td_state_row;

typedef struct td_state {
    const td_plan *plan;
    size_t n_rows;
    int64_t capacity;                /* columns of every growing tensor that does not slide */
    int64_t slid_capacity;           /* of those that do: as many, but no more than a run needs */
    int64_t slide_keep, slide_limit; /* columns that stay when others are dropped; when that is. 0: none slides */
    bool *slides;                    /* [n_states] */
    td_buffer **buffers;             /* [n_states]; NULL for cross caches */
    td_buffer **nexts; /* [n_states]: what a tensor becomes in the step under way; NULL where that is the same memory */
    td_tensor *tensors; /* [n_states]: all rows, all columns */
    bool *given;     /* [n_states]: a growing cache that runs give; its buffer is immutable and may be the engine's */
    td_value *cross; /* [n_states, n_rows]: cross caches, and what recurrent tensors start from; NONE: not given */
    td_state_row *rows;
} td_state;

treadle_status td_state_new(const td_plan *plan, size_t n_rows, td_state **out, treadle_error *err);
void td_state_free(td_state *state); /* NULL is fine */

/* Before the first run of a state of one row: runs will give growing cache k (td_state_give) instead
 * of writing into its memory. */
void td_state_expect(td_state *state, size_t tensor);
/* After a run: the cache is this tensor now, whose buffer is retained. It has the shape of the
 * cache, any number of columns. */
treadle_status td_state_give(td_state *state, size_t tensor, const td_tensor *value, treadle_error *err);

/* Before the first run: of this cache the last columns need be kept alone (td_state_tensor.slides), and the engines of
 * all that take it take it so. chunk: tokens of most runs. */
void td_state_slide(td_state *state, size_t tensor, int64_t chunk);
/* Before a run of rows that adds n columns: room for them in caches that slide, and rows that
 * agree about what was dropped. */
treadle_status td_state_slide_rows(td_state *state, size_t first_row, size_t n_rows, int64_t n, treadle_error *err);
/* Columns that a run of these rows sees of a cache that slides. */
int64_t td_state_slid_columns(const td_state *state, size_t first_row, size_t n_rows);
/* Whether a row that is cut to that length still has what its windows reach. */
bool td_state_reaches(const td_state *state, size_t row, int64_t length);

/* Room for `columns`; grows at least by half, so that n appended tokens cost O(n) copies. What is there stays. */
treadle_status td_state_reserve(td_state *state, int64_t columns, treadle_error *err);

/* Cuts a row back. Recurrent state can only be cut to 0, where it is what a new row has. */
void td_state_truncate(td_state *state, size_t row, int64_t length);
bool td_state_can_truncate(const td_plan *plan); /* to any length */
/* Takes n columns out of a row, from column `at` of the row's own on (padding); those after them move up. */
void td_state_drop(td_state *state, size_t row, int64_t at, int64_t n);

/* Moves rows so that row r, once it has lengths[r] columns, ends where all others end. Columns before a row's first are
 * zeroed. There must be room (td_state_reserve of the largest length). */
void td_state_align(td_state *state, const int64_t *lengths);

/* Fills the cross cache of a row; takes over what the value owns. */
void td_state_set_cross(td_state *state, size_t tensor, size_t row, td_value *value);
bool td_state_has_cross(const td_state *state, size_t tensor, size_t row);

/* Gives the recurrent tensor of a row another value of the same type and shape, now and whenever the row is cut to
 * 0. */
treadle_status td_state_set_recurrent(td_state *state, size_t tensor, size_t row, const td_tensor *value,
                                      treadle_error *err);

/* Row r becomes what row from[r] was, for all rows at once (beams, copies of a prompt). */
treadle_status td_state_gather(td_state *state, const size_t *from, treadle_error *err);
/* A state of its own with the same rows and contents. */
treadle_status td_state_clone(const td_state *state, td_state **out, treadle_error *err);

/* Views for a run of n_rows rows from first_row on. past: `length` columns from column `start`; present: all room from
 * `start` on, same memory (a tensor that is not written in place: other memory, until td_state_commit). A cross cache
 * that is not filled has no columns; it has no present. */
void td_state_past(const td_state *state, size_t tensor, size_t first_row, size_t n_rows, int64_t start, int64_t length,
                   td_tensor *out);
void td_state_present(const td_state *state, size_t tensor, size_t first_row, size_t n_rows, int64_t start,
                      td_tensor *out);
/* After a run of these rows: tensors that are not written in place take their new values; `written` [n_states] says
 * which of them the run gave. */
void td_state_commit(td_state *state, size_t first_row, size_t n_rows, const bool *written);

/* Before such a commit: the row keeps what it had. */
void td_state_hold(td_state *state, size_t row, const bool *written);

int64_t td_state_bytes(const td_state *state);

/* --- inside */

/* [outer, columns, inner] of a growing tensor: outer count, and the bytes of one column. */
void td_state_layout(const td_state_tensor *s, const td_tensor *t, size_t *outer, size_t *column_bytes);
/* Which row the o-th outer block belongs to. */
size_t td_state_row_of(const td_state_tensor *s, const td_tensor *t, size_t o);
/* Where column `dropped + i` lies in the tensor is i for all that slide: the row's first column there, and how many. */
static inline td_state_row td_state_row_in(const td_state *state, size_t tensor, size_t row) {
    td_state_row r = state->rows[row];
    return state->slides[tensor] ? (td_state_row){.start = 0, .length = r.length - r.dropped} : r;
}
treadle_status td_state_reserve_slid(td_state *state, int64_t columns, treadle_error *err);

#endif
