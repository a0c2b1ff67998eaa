/* exec/batch.c - rows that have one token to go each, in one run: where their columns lie,
 * and whether they may share it.
 *
 * Idle rows take part too, since a run is of all rows, but are left as they are. */
#include "exec/run.h"

/* Live rows have one length, no idle row is longer, and nobody's columns were moved. */
static bool are_equal(const td_exec *e, const td_exec_row *rows) {
    int64_t length = -1, longest = 0;
    for (size_t r = 0; r < e->n_rows; r++) {
        const td_state_row *row = &e->state->rows[r];
        longest = TD_MAX(longest, row->length);
        if (row->start != 0) return false;
        if (!rows[r].live) continue;
        if (length >= 0 && row->length != length) return false;
        length = row->length;
    }
    return longest == length;
}

/* All rows have run all but one of their tokens, or are idle, and the plan lets them share a run. */
static bool can_run_together(const td_exec *e, const td_exec_row *rows) {
    if (e->n_rows < 2 || e->plan->batching == TD_BATCH_APART) return false;
    if (e->plan->rows_per_run > 1 && (int64_t)e->n_rows != e->plan->rows_per_run) return false;
    size_t n_live = 0;
    for (size_t r = 0; r < e->n_rows; r++) {
        const td_state_row *row = &e->state->rows[r];
        if (row->length == 0) return false; /* a row without tokens has nothing to give again */
        if (!rows[r].live) {
            if (td_exec_idle_token(e, r) >= e->plan->context_length) return false; /* there is no such position */
            continue;
        }
        if (rows[r].n_ids - row->length != 1) return false;
        if (rows[r].prompt && e->plan->n_steps > 1) return false; /* prompt steps run row by row */
        n_live++;
    }
    return n_live > 1 && (e->plan->batching != TD_BATCH_EQUAL || are_equal(e, rows));
}

treadle_status td_exec_run_together(td_exec *e, td_exec_row *rows, bool *out_done, treadle_error *err) {
    bool lengths = e->plan->batching == TD_BATCH_LENGTHS, agree = true;
    *out_done = false;
    if (!can_run_together(e, rows)) return TREADLE_OK;
    TD_TRY(td_exec_stack_rows(e, &agree, err));
    if (!agree) return TREADLE_OK;
    td_exec_run run = {.n_rows = e->n_rows, .n = 1, .batched = true, .wants_logits = true, .rows = rows};
    run.equal = e->plan->batching == TD_BATCH_EQUAL;
    for (size_t r = 0; r < e->n_rows; r++) {
        const td_state_row *row = &e->state->rows[r];
        int64_t past = lengths && !rows[r].live ? td_exec_idle_token(e, r) : row->start + row->length;
        run.past = TD_MAX(run.past, lengths || rows[r].live ? past : 0);
        if (rows[r].live && e->plan->position == TD_POSITION_MROPE_3D)
            TD_TRY(td_exec_place_tokens(e, r, &rows[r], err));
    }
    run.total = run.past + 1;
    TD_TRY(td_state_slide_rows(e->state, 0, e->n_rows, 1, err));
    *out_done = true;
    return td_exec_run_steps(e, &run, rows, err);
}

/* Live rows end at one column once their tokens are run; idle rows keep their columns. */
void td_exec_align(td_exec *e, const td_exec_row *rows) {
    if (e->plan->batching != TD_BATCH_MASK || e->n_rows < 2) return;
    bool aligned = true;
    int64_t end = -1;
    for (size_t r = 0; r < e->n_rows; r++) {
        /* an idle row keeps one column free: a run together writes something there */
        e->lengths[r] = rows[r].live ? rows[r].n_ids : e->state->rows[r].length + 1;
        if (!rows[r].live) continue;
        int64_t mine = e->state->rows[r].start + rows[r].n_ids;
        if (end < 0) end = mine;
        aligned &= mine == end;
    }
    for (size_t r = 0; r < e->n_rows; r++)
        if (!rows[r].live) aligned &= e->state->rows[r].start + e->state->rows[r].length < end;
    if (aligned || end < 0) return;
    td_state_align(e->state, e->lengths);
    td_exec_roles_forget(e);
}
