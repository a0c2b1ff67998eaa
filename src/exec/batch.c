/* exec/batch.c - rows that have equally many tokens to go, in one run: where their columns lie, and whether they may
 * share it.
 *
 * One token each while decoding; a prompt where that makes a difference: short prompts, for a run costs as much as some
 * tokens, and graphs that take exactly so many rows, which would compute each row for all of them. Idle rows take part
 * in runs of one token too, since a run is of all rows, but are left as they are. */
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

int64_t td_exec_tokens_together(const td_exec *e) {
    return e->plan->rows_per_run > 1 ? e->chunk : TD_MAX(e->chunk / (int64_t)e->n_rows, (int64_t)1);
}

static bool has_tensors(const td_exec *e, const td_exec_row *row) {
    for (size_t k = 0; row->requests && k < e->plan->n_requests; k++)
        if (row->requests[k].kind != TD_VALUE_NONE) return true;
    return false;
}

/* A prompt step that is left out where nothing comes with the prompt. */
static bool waits_for_tensors(const td_plan_session *s) {
    for (size_t i = 0; i < s->signature->n_inputs && !s->takes_tokens; i++)
        if (s->feeds[i].kind == TD_FEED_WIRE ||
            (s->feeds[i].kind == TD_FEED_REQUEST && !s->signature->inputs[i].optional))
            return true;
    return false;
}

/* What runs with this prompt runs in every step: the plan's word on batches holds. Others run row by row. */
static bool shares_steps(const td_exec *e) {
    for (size_t k = 0; k < e->plan->n_steps; k++) {
        const td_plan_step *step = &e->plan->steps[k];
        bool waits = waits_for_tensors(&e->plan->sessions[step->session]);
        if (step->when == TD_WHEN_PROMPT && !waits) return false;
        for (size_t r = 0; r < e->n_rows && step->when == TD_WHEN_ONCE; r++)
            if (!e->lines[r].once_done) return false;
    }
    for (size_t w = 0; w < e->plan->n_wires; w++)
        if (e->plan->wires[w].hold) return false; /* a prompt leaves a value for each row */
    for (size_t k = 0; k < e->plan->n_states; k++)
        for (size_t r = 0; r < e->n_rows && e->plan->states[k].kind == TD_STATE_CROSS; r++)
            if (!td_state_has_cross(e->state, k, r)) return false; /* so does the run that fills a cross cache */
    return true;
}

/* Tokens that each live row has to go; 0: they differ, or the rows are not to share a run.
 * *prompt: some are a prompt's. */
static int64_t missing_together(const td_exec *e, const td_exec_row *rows, bool *prompt) {
    int64_t missing = 0, most = td_exec_tokens_together(e);
    size_t n_live = 0, n_prompt = 0, n_empty = 0;
    bool with_tensors = false;
    for (size_t r = 0; r < e->n_rows; r++) {
        const td_state_row *row = &e->state->rows[r];
        n_empty += row->length == 0;
        if (!rows[r].live) {
            if (td_exec_idle_token(e, r) >= e->plan->context_length) return 0; /* there is no such position */
            continue;
        }
        if (n_live++ == 0) missing = rows[r].n_ids - row->length;
        else if (rows[r].n_ids - row->length != missing) return 0;
        n_prompt += rows[r].prompt;
        with_tensors |= has_tensors(e, &rows[r]);
    }
    bool all = n_live == e->n_rows, empty = n_empty == e->n_rows;
    *prompt = missing > 1 || n_prompt > 0;
    if (n_live < 2 || (n_empty && !(empty && all))) return 0; /* a row without tokens has nothing to give again */
    if (*prompt && e->plan->n_steps > 1 && missing == 1 && n_prompt < n_live) return 0;
    if (*prompt && (with_tensors || !shares_steps(e))) return 0;
    if (missing == 1) return 1;
    /* GroupQueryAttention of ONNX Runtime takes several tokens of several rows in a first prompt alone */
    if (!all || (e->plan->batching == TD_BATCH_LENGTHS && !empty)) return 0;
    return missing <= most || most == 1 || e->plan->rows_per_run > 1 ? missing : 0;
}

static bool can_run_together(const td_exec *e, const td_exec_row *rows) {
    if (e->n_rows < 2 || e->plan->batching == TD_BATCH_APART) return false;
    if (e->plan->rows_per_run > 1 && (int64_t)e->n_rows != e->plan->rows_per_run) return false;
    return e->plan->batching != TD_BATCH_EQUAL || are_equal(e, rows);
}

/* The next n tokens of all live rows. */
static treadle_status run_next(td_exec *e, td_exec_row *rows, int64_t n, bool last, bool prompt, treadle_error *err) {
    bool lengths = e->plan->batching == TD_BATCH_LENGTHS;
    td_exec_run run = {
        .n_rows = e->n_rows, .n = n, .batched = true, .prompt = prompt, .wants_logits = last, .rows = rows};
    run.equal = e->plan->batching == TD_BATCH_EQUAL;
    for (size_t r = 0; r < e->n_rows; r++) {
        const td_state_row *row = &e->state->rows[r];
        int64_t past = lengths && !rows[r].live ? td_exec_idle_token(e, r) : row->start + row->length;
        run.past = TD_MAX(run.past, lengths || rows[r].live ? past : 0);
    }
    run.total = run.past + n;
    TD_TRY(td_state_slide_rows(e->state, 0, e->n_rows, n, err));
    return td_exec_run_steps(e, &run, rows, err);
}

treadle_status td_exec_run_together(td_exec *e, td_exec_row *rows, bool *out_done, treadle_error *err) {
    bool agree = true, prompt;
    *out_done = false;
    if (!can_run_together(e, rows)) return TREADLE_OK;
    int64_t missing = missing_together(e, rows, &prompt), most = td_exec_tokens_together(e);
    if (missing == 0) return TREADLE_OK;
    TD_TRY(td_exec_stack_rows(e, &agree, err));
    if (!agree) return TREADLE_OK;
    for (size_t r = 0; r < e->n_rows && e->plan->position == TD_POSITION_MROPE_3D; r++)
        if (rows[r].live) TD_TRY(td_exec_place_tokens(e, r, &rows[r], err));
    *out_done = true;
    for (int64_t n; missing > 0; missing -= n) {
        n = TD_MIN(missing, most);
        TD_TRY(run_next(e, rows, n, n == missing, prompt, err));
    }
    return TREADLE_OK;
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
