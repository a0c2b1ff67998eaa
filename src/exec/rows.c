/* exec/rows.c - rows that change places (beams), and executors that go on from another's state (forks). */
#include "base/alloc.h"
#include "exec/run.h"

void td_exec_line_free(td_exec_line *line) {
    td_vec_free(&line->positions);
    td_value_release(&line->targets);
    td_value_release(&line->targets_length);
    td_value_release(&line->length);
    td_value_release(&line->predicted);
    td_value_release(&line->frame);
    td_value_release(&line->frames);
}

static treadle_status copy_line(td_exec_line *to, const td_exec_line *from, treadle_error *err) {
    if (!td_vec_reserve(&to->positions, from->positions.n)) return td_fail_memory(err, "a row", 0);
    to->once_done = from->once_done;
    to->n_tokens = from->n_tokens;
    to->positions.n = from->positions.n;
    if (from->positions.n)
        memcpy(to->positions.items, from->positions.items, from->positions.n * sizeof *from->positions.items);
    const struct {
        td_value *to;
        const td_value *from;
    } owned[] = {{&to->targets, &from->targets},
                 {&to->targets_length, &from->targets_length},
                 {&to->predicted, &from->predicted},
                 {&to->frames, &from->frames}};
    for (size_t i = 0; i < TD_COUNT(owned); i++)
        if (owned[i].from->kind == TD_VALUE_TENSOR && !td_value_copy(owned[i].to, owned[i].from))
            return td_fail_memory(err, "a row", 0);
    return TREADLE_OK;
}

treadle_status td_exec_gather(td_exec *e, const size_t *from, treadle_error *err) {
    size_t n = e->n_rows, n_wires = e->plan->n_wires;
    if (e->runtime->hook) { /* what a plugin keeps of a row cannot be moved: rows that change are run again */
        for (size_t r = 0; r < n; r++)
            if (from[r] != r) td_exec_hook_end(e, r);
        return TREADLE_OK;
    }
    td_exec_line *lines = td_alloc_zero(n, sizeof *lines);
    td_value *kept = td_alloc_zero(n * n_wires, sizeof *kept);
    treadle_status status = lines && kept ? TREADLE_OK : td_fail_memory(err, "rows", 0);
    for (size_t r = 0; status == TREADLE_OK && r < n; r++) status = copy_line(&lines[r], &e->lines[from[r]], err);
    if (status == TREADLE_OK) status = td_state_gather(e->state, from, err);
    if (status == TREADLE_OK) {
        td_exec_line *old_lines = e->lines;
        td_value *old_kept = e->kept;
        for (size_t r = 0; r < n; r++)
            for (size_t w = 0; w < n_wires; w++)
                kept[r * n_wires + w] = td_value_share(&e->kept[from[r] * n_wires + w]);
        e->lines = lines;
        e->kept = kept;
        lines = old_lines;
        kept = old_kept;
        td_exec_roles_forget(e);
    }
    for (size_t r = 0; lines && r < n; r++) td_exec_line_free(&lines[r]);
    for (size_t i = 0; kept && i < n * n_wires; i++) td_value_release(&kept[i]);
    td_free(lines);
    td_free(kept);
    return status;
}

treadle_status td_exec_clone(const td_exec *from, td_exec **out, treadle_error *err) {
    td_exec *e = NULL;
    td_state *state = NULL;
    if (from->runtime->hook)
        return td_exec_new(from->runtime, from->n_rows, out, err); /* a plugin's rows are run again */
    TD_TRY(td_exec_new(from->runtime, from->n_rows, &e, err));
    treadle_status status = td_state_clone(from->state, &state, err);
    for (size_t r = 0; status == TREADLE_OK && r < e->n_rows; r++)
        status = copy_line(&e->lines[r], &from->lines[r], err);
    if (status != TREADLE_OK) {
        td_state_free(state);
        td_exec_free(e);
        return status;
    }
    td_state_free(e->state);
    e->state = state;
    for (size_t i = 0; i < e->n_rows * e->plan->n_wires; i++) e->kept[i] = td_value_share(&from->kept[i]);
    e->keep_all = from->keep_all;
    e->keep_outputs = from->keep_outputs;
    *out = e;
    return TREADLE_OK;
}
