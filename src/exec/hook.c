/* exec/hook.c - rows that native code runs instead of the plan's steps (plugins). */
#include "base/alloc.h"
#include "exec/run.h"

void td_exec_hook_end(td_exec *e, size_t row) {
    td_exec_line *line = &e->lines[row];
    if (e->runtime->hook && line->hook_data) e->runtime->hook->end(e->runtime->hook->self, line->hook_data);
    line->hook_data = NULL;
    line->n_tokens = 0;
}

void td_exec_hook_truncate(td_exec *e, size_t row, int64_t length) {
    const td_exec_hook *hook = e->runtime->hook;
    td_exec_line *line = &e->lines[row];
    if (line->hook_data && length > 0 && hook->rewind(hook->self, line->hook_data, length)) line->n_tokens = length;
    else td_exec_hook_end(e, row);
}

static treadle_status take(td_exec *e, td_exec_row *row, size_t r, const float *logits, size_t n, treadle_error *err) {
    if (!logits) return td_fail(err, TREADLE_RUN, "the plugin gave no logits");
    if (n < 1 || n > INT32_MAX)
        return td_fail(err, TREADLE_RUN, "expected the plugin to give 1 to %d logits, found %zu", INT32_MAX, n);
    if (e->vocab && (size_t)e->vocab != n)
        return td_fail(err, TREADLE_RUN, "expected the plugin to give %lld logits as before, found %zu",
                       (long long)e->vocab, n);
    if (!e->logits) {
        e->logits = td_alloc_array(e->n_rows * n, sizeof *e->logits);
        if (!e->logits) return td_fail_memory(err, "logits", e->n_rows * n * sizeof *e->logits);
        e->vocab = (int64_t)n;
    }
    memcpy(e->logits + r * n, logits, n * sizeof *logits);
    row->logits = e->logits + r * n;
    if (!e->keep_all) return TREADLE_OK;
    if (!td_vec_reserve(&e->all[r], e->all[r].n + n)) return td_fail_memory(err, "logits of a prompt", 0);
    memcpy(e->all[r].items + e->all[r].n, logits, n * sizeof *logits);
    e->all[r].n += n;
    return TREADLE_OK;
}

treadle_status td_exec_hook_forward(td_exec *e, td_exec_row *rows, treadle_error *err) {
    const td_exec_hook *hook = e->runtime->hook;
    for (size_t r = 0; r < e->n_rows; r++) {
        td_exec_line *line = &e->lines[r];
        const float *logits = NULL;
        size_t n = 0;
        if (!rows[r].live) continue;
        if (e->interrupt && td_interrupted(e->interrupt)) return td_fail(err, TREADLE_CANCELLED, "cancelled");
        rows[r].logits = NULL;
        if (!line->hook_data) TD_TRY(hook->begin(hook->self, e, r, &line->hook_data, err));
        TD_TRY(hook->forward(hook->self, line->hook_data, e, r, &rows[r], line->n_tokens, &logits, &n, err));
        line->n_tokens = rows[r].n_ids;
        TD_TRY(take(e, &rows[r], r, logits, n, err));
    }
    return TREADLE_OK;
}
