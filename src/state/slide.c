/* state/slide.c - caches that keep their last columns alone.
 *
 * Row r's first `dropped` columns are not there: its column c lies at c - dropped. A run sees P columns of such a
 * cache, and an op takes them for the last P before the new ones of each row (for all, where a row has no more), so
 * rows that run together are moved until that is so. Columns are dropped when the room is used up, all but the window
 * and some more: with room for a quarter beyond that, or a chunk, a token moves O(1) columns on average.
 * Invariant: of each row the last `slide_keep` columns are there, or all of them. */
#include "state/state.h"

void td_state_slide(td_state *state, size_t k, int64_t chunk) {
    state->slides[k] = true;
    state->slid_capacity = state->capacity;
    state->slide_keep = td_plan_slide_keep(state->plan);
    state->slide_limit = td_plan_slide_limit(state->plan, chunk);
}

bool td_state_reaches(const td_state *state, size_t row, int64_t length) {
    int64_t dropped = state->rows[row].dropped;
    return dropped == 0 || dropped <= length + 1 - state->plan->slide_window;
}

/* The columns of a row that are there. */
static int64_t kept(const td_state_row *row) { return row->length - row->dropped; }

int64_t td_state_slid_columns(const td_state *state, size_t first_row, size_t n_rows) {
    int64_t most = 0;
    for (size_t r = first_row; r < first_row + n_rows; r++) most = TD_MAX(most, kept(&state->rows[r]));
    return most;
}

/* The row's columns go to where they lie when `dropped` are gone. */
static void set_dropped(td_state *state, size_t row, int64_t dropped) {
    td_state_row *r = &state->rows[row];
    int64_t from = TD_MAX(dropped - r->dropped, (int64_t)0), to = TD_MAX(r->dropped - dropped, (int64_t)0);
    int64_t n = r->length - TD_MAX(dropped, r->dropped);
    for (size_t k = 0; k < state->plan->n_states && dropped != r->dropped; k++) {
        if (!state->slides[k]) continue;
        const td_state_tensor *s = &state->plan->states[k];
        const td_tensor *t = &state->tensors[k];
        size_t outer, column, block;
        td_state_layout(s, t, &outer, &column);
        block = (size_t)t->shape.dims[s->seq_axis] * column;
        for (size_t o = 0; o < outer; o++) {
            char *base = (char *)t->data + o * block;
            if (td_state_row_of(s, t, o) == row)
                memmove(base + (size_t)to * column, base + (size_t)from * column, (size_t)n * column);
        }
    }
    r->dropped = dropped;
}

treadle_status td_state_slide_rows(td_state *state, size_t first_row, size_t n_rows, int64_t n, treadle_error *err) {
    if (!state->slide_limit) return TREADLE_OK;
    int64_t columns = td_state_slid_columns(state, first_row, n_rows);
    if (columns + n > state->slide_limit || state->slid_capacity > state->slide_limit) {
        for (size_t r = 0; r < state->n_rows; r++)
            if (kept(&state->rows[r]) > state->slide_keep)
                set_dropped(state, r, state->rows[r].length - state->slide_keep);
        columns = td_state_slid_columns(state, first_row, n_rows);
    }
    TD_TRY(td_state_reserve_slid(state, columns + n, err)); /* or less, where a whole prompt had wanted more */
    for (size_t r = first_row; r < first_row + n_rows && n_rows > 1; r++)
        if (state->rows[r].dropped > 0) set_dropped(state, r, TD_MAX(state->rows[r].length - columns, (int64_t)0));
    return TREADLE_OK;
}
