/* exec/exec.c - one generator's side of a plan: its buffers, and which rows run when. */
#include "exec/run.h"

#include "base/alloc.h"

/* --- making and freeing */

/* Outputs that the walk over a transducer's frames looks at itself. */
static bool is_walked(const td_plan_transducer *t, int32_t session, int32_t output) {
    if (!t->present) return false;
    return (session == t->encoder && (output == t->frames_output || output == t->length_output)) ||
           (session == t->predictor && output == t->predicted) || (session == t->joiner && output == t->logits);
}

/* Outputs that nobody reads need not be made. */
static void find_skipped(const td_plan *plan, int32_t session, bool *skip) {
    const td_plan_session *s = &plan->sessions[session];
    for (size_t o = 0; o < s->signature->n_outputs; o++)
        skip[o] = s->out_state[o] < 0 && s->logits != (int32_t)o && !is_walked(&plan->transducer, session, (int32_t)o);
    for (size_t i = 0; i < plan->n_wires; i++)
        if (plan->wires[i].from_session == session) skip[plan->wires[i].from_output] = false;
    for (size_t k = 0; k < plan->n_states; k++)
        if (plan->states[k].from_session == session) skip[plan->states[k].from_output] = false;
    for (size_t k = 0; k < plan->n_splices; k++)
        if (plan->splices[k].from_session == session) skip[plan->splices[k].from_output] = false;
}

static treadle_status bind_session(td_exec *e, size_t i, treadle_error *err) {
    const td_plan_session *s = &e->plan->sessions[i];
    e->inputs[i] = td_alloc_zero(s->signature->n_inputs, sizeof **e->inputs);
    e->outputs[i] = td_alloc_zero(s->signature->n_outputs, sizeof **e->outputs);
    e->joined[i] = td_alloc_zero(s->signature->n_outputs, sizeof **e->joined);
    e->skip[i] = td_alloc_zero(s->signature->n_outputs, sizeof **e->skip);
    if (!e->inputs[i] || !e->outputs[i] || !e->joined[i] || !e->skip[i]) return td_fail_memory(err, "bindings", 0);
    find_skipped(e->plan, (int32_t)i, e->skip[i]);
    e->picked_n[i] = -1;
    return e->runtime->engines[i]->ctx_new(e->runtime->sessions[i], &e->ctx[i], err);
}

/* The most tokens that one run may take: the config's, one where a prompt's graph takes one, or the default. */
static int64_t chunk_of(const td_plan *plan) {
    for (size_t k = 0; k < plan->n_steps; k++)
        if (plan->steps[k].when != TD_WHEN_DECODE && plan->sessions[plan->steps[k].session].fixed_tokens == 1) return 1;
    return plan->prefill_chunk > 0 ? plan->prefill_chunk : TD_PREFILL_CHUNK;
}

/* A state tensor without a dimension for rows holds one row. */
static treadle_status check_rows(const td_plan *plan, size_t n_rows, treadle_error *err) {
    for (size_t k = 0; n_rows > 1 && k < plan->n_states; k++)
        if (plan->states[k].batch_axis < 0)
            return td_fail(
                err, TREADLE_UNSUPPORTED, "state \"%.*s\" has no dimension for rows: expected one row, found %zu",
                TD_STR_ARGS(plan->sessions[plan->states[k].session].signature->inputs[plan->states[k].input].name),
                n_rows);
    return TREADLE_OK;
}

static bool alloc_all(td_exec *e) {
    size_t n = e->plan->n_sessions;
    e->ctx = td_alloc_zero(n, sizeof *e->ctx);
    e->inputs = td_alloc_zero(n, sizeof *e->inputs);
    e->outputs = td_alloc_zero(n, sizeof *e->outputs);
    e->joined = td_alloc_zero(n, sizeof *e->joined);
    e->skip = td_alloc_zero(n, sizeof *e->skip);
    e->spliced = td_alloc_zero(n, sizeof *e->spliced);
    e->ran = td_alloc_zero(n, sizeof *e->ran);
    e->released = td_alloc_zero(n, sizeof *e->released);
    e->is_joined = td_alloc_zero(n, sizeof *e->is_joined);
    e->runs = td_alloc_zero(n, sizeof *e->runs);
    e->picked_n = td_alloc_zero(n, sizeof *e->picked_n);
    e->picked_rows = td_alloc_zero(n, sizeof *e->picked_rows);
    e->picked_of = td_alloc_zero(n, sizeof *e->picked_of);
    e->written = td_alloc_zero(e->plan->n_states, sizeof *e->written);
    e->kept = td_alloc_zero(e->n_rows * e->plan->n_wires, sizeof *e->kept);
    e->lines = td_alloc_zero(e->n_rows, sizeof *e->lines);
    e->picked = td_alloc_zero(e->n_rows, sizeof *e->picked);
    e->lengths = td_alloc_zero(e->n_rows, sizeof *e->lengths);
    e->all = td_alloc_zero(e->n_rows, sizeof *e->all);
    return e->spliced && e->ctx && e->inputs && e->outputs && e->joined && e->skip && e->ran && e->released &&
           e->is_joined && e->runs && e->picked_n && e->picked_rows && e->picked_of && e->written && e->kept &&
           e->lines && e->picked && e->lengths && e->all && td_exec_alloc_nothing(e) && td_exec_stacks_init(e) &&
           td_exec_copies_init(e);
}

treadle_status td_exec_new(const td_runtime *runtime, size_t n_rows, td_exec **out, treadle_error *err) {
    const td_plan *plan = runtime->plan;
    TD_TRY(check_rows(plan, n_rows, err));
    td_exec *e = td_alloc_zero(1, sizeof *e);
    if (!e) return td_fail_memory(err, "an executor", sizeof *e);
    e->runtime = runtime;
    e->plan = plan;
    e->n_rows = n_rows;
    e->chunk = chunk_of(plan);
    for (size_t k = 0; k < plan->n_states; k++) e->has_past |= plan->states[k].kind != TD_STATE_CROSS;
    treadle_status status = alloc_all(e) ? td_exec_roles_init(e, err) : td_fail_memory(err, "an executor", 0);
    for (size_t i = 0; status == TREADLE_OK && i < plan->n_sessions; i++) status = bind_session(e, i, err);
    if (status == TREADLE_OK) status = td_state_new(plan, n_rows, &e->state, err);
    if (status != TREADLE_OK) {
        td_exec_free(e);
        return status;
    }
    td_exec_choose_given(e);
    td_exec_choose_sliding(e);
    *out = e;
    return TREADLE_OK;
}

static void free_session(td_exec *e, size_t i) {
    if (e->ctx && e->ctx[i]) e->runtime->engines[i]->ctx_free(e->ctx[i]);
    for (size_t o = 0; e->joined && e->joined[i] && o < e->plan->sessions[i].signature->n_outputs; o++)
        td_value_release(&e->joined[i][o]);
    if (e->inputs) td_free(e->inputs[i]);
    if (e->outputs) td_free(e->outputs[i]);
    if (e->joined) td_free(e->joined[i]);
    if (e->skip) td_free(e->skip[i]);
}

void td_exec_free(td_exec *e) {
    if (!e) return;
    td_interrupt_leave(e);
    for (size_t i = 0; i < e->plan->n_sessions; i++) free_session(e, i);
    for (size_t r = 0; e->all && r < e->n_rows; r++) td_vec_free(&e->all[r]);
    for (size_t r = 0; e->lines && r < e->n_rows; r++) {
        td_exec_hook_end(e, r);
        td_exec_line_free(&e->lines[r]);
    }
    for (size_t i = 0; e->kept && i < e->n_rows * e->plan->n_wires; i++) td_value_release(&e->kept[i]);
    for (size_t i = 0; e->spliced && i < e->plan->n_sessions; i++) td_value_release(&e->spliced[i]);
    td_exec_stacks_free(e);
    td_exec_copies_free(e);
    td_state_free(e->state);
    td_exec_roles_free(e);
    void *const memory[] = {e->ctx,       e->inputs, e->outputs,  e->joined,      e->skip,      e->ran,     e->released,
                            e->is_joined, e->runs,   e->picked_n, e->picked_rows, e->picked_of, e->written, e->kept,
                            e->lines,     e->picked, e->lengths,  e->all,         e->nothing,   e->logits,  e->spliced};
    for (size_t i = 0; i < TD_COUNT(memory); i++) td_free(memory[i]);
    td_free(e);
}

/* --- lengths */

int64_t td_exec_length(const td_exec *e, size_t row) {
    return e->runtime->hook ? e->lines[row].n_tokens : e->state->rows[row].length;
}

bool td_exec_can_truncate(const td_exec *e, size_t row, int64_t length) {
    return e->runtime->hook || (td_state_can_truncate(e->plan) && td_state_reaches(e->state, row, length));
}

void td_exec_truncate(td_exec *e, size_t row, int64_t length) {
    td_exec_line *line = &e->lines[row];
    if (length >= td_exec_length(e, row)) return;
    if (e->runtime->hook) {
        td_exec_hook_truncate(e, row, length);
        return;
    }
    if (!td_exec_can_truncate(e, row, length)) length = 0;
    td_state_truncate(e->state, row, length);
    line->positions.n = TD_MIN(line->positions.n, (size_t)length);
    td_exec_roles_forget(e);
}

void td_exec_restart(td_exec *e, size_t row) {
    td_exec_truncate(e, row, 0);
    e->lines[row].once_done = false;
    for (size_t w = 0; w < e->plan->n_wires; w++) { /* of the request before */
        td_value *kept = &e->kept[row * e->plan->n_wires + w];
        if (!e->plan->wires[w].hold) continue;
        td_value_release(kept);
        *kept = (td_value){0};
    }
    td_exec_stacks_forget(e);
}

/* What windows may add to n tokens. */
static int64_t with_padding(const td_plan *plan, int64_t n) {
    int64_t w = plan->window.size;
    return w ? n + w : n;
}

treadle_status td_exec_reserve(td_exec *e, int64_t tokens, treadle_error *err) {
    int64_t columns = with_padding(e->plan, tokens);
    for (size_t r = 0; r < e->n_rows; r++)
        columns = TD_MAX(columns, e->state->rows[r].start + with_padding(e->plan, tokens));
    TD_TRY(td_state_reserve(e->state, columns, err));
    for (size_t r = 0; r < e->n_rows; r++) {
        bool placed = e->plan->position != TD_POSITION_MROPE_3D ||
                      td_vec_reserve(&e->lines[r].positions, (size_t)TD_MAX(tokens, (int64_t)0));
        if (!placed) return td_fail_memory(err, "positions of a row", 0);
    }
    return td_exec_roles_reserve(e, TD_MAX(TD_MIN(tokens, e->chunk), e->plan->window.size), e->state->capacity, err);
}

/* --- forward */

/* Tensors of the request that a prompt step reads, or that stand beside its tokens, belong to the
 * prompt as a whole: it is not cut. */
static bool has_features(const td_exec *e, const td_exec_row *row) {
    if (!row->requests || !row->fresh_requests) return false;
    for (size_t k = 0; k < e->plan->n_steps; k++) {
        const td_plan_session *s = &e->plan->sessions[e->plan->steps[k].session];
        bool prompt = e->plan->steps[k].when == TD_WHEN_PROMPT;
        for (size_t i = 0; i < s->signature->n_inputs; i++) {
            if (s->given[i] >= 0 && row->requests[s->given[i]].kind != TD_VALUE_NONE) return true;
            if (prompt && s->feeds[i].kind == TD_FEED_REQUEST && row->requests[s->feeds[i].index].kind != TD_VALUE_NONE)
                return true;
        }
    }
    return false;
}

/* True if what runs for these tokens takes windows of fixed length. */
static bool runs_windows(const td_exec *e, bool prompt) {
    if (!e->plan->window.size) return false;
    for (size_t k = 0; k < e->plan->n_steps; k++) {
        td_when when = e->plan->steps[k].when;
        bool runs = when == TD_WHEN_ALWAYS || when == (prompt ? TD_WHEN_PROMPT : TD_WHEN_DECODE);
        if (runs && e->plan->sessions[e->plan->steps[k].session].fixed_tokens == e->plan->window.size) return true;
    }
    return prompt && e->plan->window.size > 0;
}

/* The next run of a row with `missing` tokens to go. */
static td_exec_run next_run(const td_exec *e, const td_exec_row *rows, size_t r, int64_t missing, int64_t limit) {
    const td_state_row *row = &e->state->rows[r];
    td_exec_run run = {.first_row = r, .n_rows = 1, .start = row->start, .past = row->length, .rows = rows};
    int64_t w = e->plan->window.size, tokens = TD_MIN(missing, limit);
    run.prompt = rows[r].prompt || missing > 1;
    run.n = tokens;
    if (runs_windows(e, run.prompt)) {
        /* Of all windows: before the first token, or after the last. Where something stands before the first token,
         * padding between the two would lengthen the way that a windowed attention looks back. */
        int64_t pad = (w - missing % w) % w;
        run.n = w;
        tokens = TD_MIN(missing, w);
        bool last_only = e->plan->logits_last_only && e->plan->window.has_mask;
        if (pad && (last_only || (e->plan->window.pad_first && !row->length)))
            tokens = missing > w ? w - pad : missing, run.pad_before = w - tokens;
        else run.pad_after = w - tokens;
    }
    run.total = run.past + run.n;
    run.wants_logits = tokens == missing;
    return run;
}

/* A graph without a past (stateless, or one that starts its caches afresh) needs the whole
 * timeline in each of its runs. */
static bool needs_all(const td_exec *e, bool prompt) {
    bool any = false;
    for (size_t k = 0; k < e->plan->n_steps; k++) {
        td_when when = e->plan->steps[k].when;
        const td_plan_session *s = &e->plan->sessions[e->plan->steps[k].session];
        if (when != TD_WHEN_ALWAYS && when != (prompt ? TD_WHEN_PROMPT : TD_WHEN_DECODE)) continue;
        if (s->starts_afresh) return true;
        any |= s->takes_tokens && !s->takes_source;
    }
    return any && !e->has_past;
}

static treadle_status run_alone(td_exec *e, td_exec_row *rows, size_t r, treadle_error *err) {
    bool prompt = rows[r].prompt;
    treadle_status status = TREADLE_OK;
    int64_t missing = rows[r].n_ids - td_exec_length(e, r), limit = has_features(e, &rows[r]) ? missing : e->chunk;
    if (needs_all(e, prompt || missing > 1)) {
        td_exec_truncate(e, r, 0);
        missing = limit = rows[r].n_ids;
    }
    if (e->plan->position == TD_POSITION_MROPE_3D) TD_TRY(td_exec_place_tokens(e, r, &rows[r], err));
    rows[r].prompt = prompt || missing > 1; /* the last chunk of a prompt is a prompt too */
    while (status == TREADLE_OK && missing > 0) {
        td_exec_run run = next_run(e, rows, r, missing, limit);
        status = td_state_slide_rows(e->state, r, 1, run.n, err);
        if (status != TREADLE_OK) break;
        bool hides_logits = run.pad_after && e->plan->logits_last_only;
        if (((run.pad_before || run.pad_after) && !e->plan->window.masked) || hides_logits) {
            status = td_fail(err, TREADLE_UNSUPPORTED,
                             "the prompt goes in as windows of %lld ids, %lld are left over, and %s", (long long)run.n,
                             (long long)(missing % run.n),
                             hides_logits ? "the graph gives logits of the last position alone, which would be padding"
                                          : "the graph takes no mask that would tell padding apart");
            break;
        }
        status = td_exec_run_steps(e, &run, rows, err);
        missing = rows[r].n_ids - td_exec_length(e, r);
    }
    rows[r].prompt = prompt;
    return status;
}

/* What runs a timeline from its begin needs again what came with it. */
static void renew_requests(const td_exec *e, td_exec_row *rows) {
    for (size_t r = 0; r < e->n_rows; r++) {
        int64_t length = td_exec_length(e, r), missing = rows[r].n_ids - length;
        bool all = needs_all(e, rows[r].prompt || missing > 1);
        if (!rows[r].live) continue;
        e->lines[r].again = all && length > 0 && !rows[r].fresh_requests;
        if (rows[r].requests) rows[r].fresh_requests |= length == 0 || all;
    }
}

/* Room for what live rows are about to run. */
static treadle_status make_room(td_exec *e, td_exec_row *rows, treadle_error *err) {
    int64_t columns = 1, tokens = TD_MAX(e->plan->window.size, (int64_t)1), source = 0;
    for (size_t r = 0; r < e->n_rows; r++) {
        const td_state_row *row = &e->state->rows[r];
        columns = TD_MAX(columns, row->start + row->length + 1);
        if (!rows[r].live) continue;
        int64_t missing = rows[r].n_ids - td_exec_length(e, r);
        rows[r].logits = NULL;
        columns = TD_MAX(columns, row->start + row->length + with_padding(e->plan, missing));
        bool whole = has_features(e, &rows[r]), all = needs_all(e, rows[r].prompt || missing > 1);
        tokens = TD_MAX(tokens, all ? rows[r].n_ids : whole ? missing : TD_MIN(missing, e->chunk));
        source = TD_MAX(source, rows[r].n_source);
        if (!all && !whole) tokens = TD_MAX(tokens, (int64_t)e->n_rows * TD_MIN(missing, td_exec_tokens_together(e)));
    }
    TD_TRY(td_state_reserve(e->state, columns, err));
    return td_exec_roles_reserve(e, TD_MAX(tokens, source), TD_MAX(e->state->capacity, source), err);
}

treadle_status td_exec_forward(td_exec *e, td_exec_row *rows, treadle_error *err) {
    if (e->runtime->hook) return td_exec_hook_forward(e, rows, err);
    renew_requests(e, rows);
    TD_TRY(make_room(e, rows, err));
    bool done = false;
    td_exec_align(e, rows);
    TD_TRY(td_exec_run_together(e, rows, &done, err));
    for (size_t r = 0; !done && r < e->n_rows; r++)
        if (rows[r].live) TD_TRY(run_alone(e, rows, r, err));
    return TREADLE_OK;
}

void td_exec_keep_outputs(td_exec *e) {
    e->keep_outputs = true;
    for (size_t i = 0; i < e->plan->n_sessions; i++)
        for (size_t o = 0; o < e->plan->sessions[i].signature->n_outputs; o++) e->skip[i][o] = false;
}

treadle_status td_exec_encode(td_exec *e, td_exec_row *rows, size_t r, treadle_error *err) {
    td_exec_run run = {.first_row = r, .n_rows = 1, .prompt = true, .rows = rows};
    if (!e->has_past) td_exec_truncate(e, r, 0); /* nothing remembers what was run: a pass sees the whole row */
    run.past = e->state->rows[r].length;
    run.n = rows[r].n_ids - run.past;
    run.start = e->state->rows[r].start;
    run.total = run.past + run.n;
    TD_TRY(td_state_reserve(e->state, TD_MAX(run.start + run.total, (int64_t)1), err));
    TD_TRY(
        td_exec_roles_reserve(e, TD_MAX(run.n, rows[r].n_source), TD_MAX(e->state->capacity, rows[r].n_source), err));
    TD_TRY(td_state_slide_rows(e->state, r, 1, run.n, err));
    e->lines[r].once_done = false;
    return td_exec_run_steps(e, &run, rows, err);
}
