/* generate/timeline.c - making and changing timelines; the loop itself is in generate.c. */
#include "base/alloc.h"
#include "base/time.h"
#include "generate/generate.h"

treadle_status td_generation_new(const td_runtime *runtime, const td_generation_options *options, td_generation **out,
                                 treadle_error *err) {
    const td_plan *plan = runtime->plan;
    if (plan->cannot_run) return td_fail(err, TREADLE_UNSUPPORTED, "this model cannot generate: %s", plan->cannot_run);
    if (options->max_length > plan->context_length)
        return td_fail(err, TREADLE_INVALID_ARGUMENT,
                       "expected a max_length of at most the context length %lld, found %lld",
                       (long long)plan->context_length, (long long)options->max_length);
    TD_TRY(td_sample_params_check(&options->sample, err));
    td_generation *g = td_alloc_zero(1, sizeof *g);
    if (!g) return td_fail_memory(err, "a generator", sizeof *g);
    g->runtime = runtime;
    g->options = *options;
    if (!options->has_seed) g->options.seed = td_time_ns() ^ ((uint64_t)(uintptr_t)g << 16);
    atomic_init(&g->cancel, false);
    atomic_init(&g->running, false);
    *out = g;
    return TREADLE_OK;
}

void td_generation_free(td_generation *g) {
    if (!g) return;
    for (size_t r = 0; g->timelines && r < g->n_rows; r++) {
        td_free(g->timelines[r].ids);
        td_vec_free(&g->timelines[r].steps);
    }
    td_free(g->timelines);
    td_free(g->rows);
    td_sampler_free(&g->sampler);
    td_exec_free(g->exec);
    td_free(g);
}

static treadle_status make_rows(td_generation *g, size_t n_rows, treadle_error *err) {
    td_timeline *timelines = td_alloc_zero(n_rows, sizeof *timelines);
    td_exec_row *rows = td_alloc_zero(n_rows, sizeof *rows);
    treadle_status status = timelines && rows ? TREADLE_OK : td_fail_memory(err, "rows of a generator", 0);
    if (status == TREADLE_OK) status = td_exec_new(g->runtime, n_rows, &g->exec, err);
    if (status != TREADLE_OK) {
        td_free(timelines);
        td_free(rows);
        return status;
    }
    for (size_t r = 0; r < n_rows; r++) td_rng_seed(&timelines[r].rng, g->options.seed, r);
    g->exec->keep_all = g->options.prompt_logits;
    g->timelines = timelines;
    g->rows = rows;
    g->n_rows = n_rows;
    return TREADLE_OK;
}

/* Room for n tokens in a row. */
static treadle_status grow(td_timeline *t, int64_t n, treadle_error *err) {
    if (n <= t->capacity) return TREADLE_OK;
    int64_t capacity = TD_MAX(n, t->capacity + t->capacity / 2);
    int32_t *ids = td_realloc_array(t->ids, (size_t)capacity, sizeof *ids);
    if (!ids) return td_fail_memory(err, "tokens of a row", (size_t)capacity * sizeof *ids);
    t->ids = ids;
    t->capacity = capacity;
    return TREADLE_OK;
}

/* Everything that can be wrong with an append, before anything changes. */
static treadle_status check_append(const td_generation *g, const treadle_ids *rows, size_t n_rows, treadle_error *err) {
    int64_t vocab = g->runtime->plan->vocab;
    if (n_rows == 0) return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected at least one row, found none");
    if (n_rows > 65536) return td_fail(err, TREADLE_LIMIT, "expected at most 65536 rows, found %zu", n_rows);
    if (g->n_rows && n_rows != g->n_rows)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected %zu rows as in the first append, found %zu", g->n_rows,
                       n_rows);
    for (size_t r = 0; r < n_rows; r++) {
        int64_t before = g->n_rows ? g->timelines[r].n : 0;
        if (!before && !rows[r].n)
            return td_fail(err, TREADLE_INVALID_ARGUMENT, "row %zu is empty: expected at least one token", r);
        if (rows[r].n > (size_t)(g->options.max_length - before))
            return td_fail(
                err, TREADLE_LIMIT, "row %zu would have %lld tokens; the limit is %lld (%s)", r,
                (long long)(before + (int64_t)TD_MIN(rows[r].n, (size_t)INT32_MAX)), (long long)g->options.max_length,
                g->options.max_length == g->runtime->plan->context_length ? "the context length" : "max_length");
        for (size_t i = 0; i < rows[r].n; i++)
            if (rows[r].ids[i] < 0 || (vocab > 0 && rows[r].ids[i] >= vocab))
                return td_fail(err, TREADLE_INVALID_ARGUMENT,
                               "token %zu of row %zu is %d: expected an id from 0 to %lld", i, r, rows[r].ids[i],
                               (long long)(vocab > 0 ? vocab - 1 : INT32_MAX));
    }
    return TREADLE_OK;
}

treadle_status td_generation_append(td_generation *g, const treadle_ids *rows, size_t n_rows, treadle_error *err) {
    TD_TRY(check_append(g, rows, n_rows, err));
    if (!g->n_rows) TD_TRY(make_rows(g, n_rows, err));
    for (size_t r = 0; r < n_rows; r++) TD_TRY(grow(&g->timelines[r], g->timelines[r].n + (int64_t)rows[r].n, err));
    for (size_t r = 0; r < n_rows; r++) {
        td_timeline *t = &g->timelines[r];
        if (!rows[r].n) continue;
        memcpy(t->ids + t->n, rows[r].ids, rows[r].n * sizeof *t->ids);
        t->n += (int64_t)rows[r].n;
        t->first_new = t->run_first = t->n;
        t->finish = TREADLE_FINISH_NONE;
        g->rows[r].logits = NULL;
    }
    g->fresh = true;
    return TREADLE_OK;
}

treadle_status td_generation_rewind(td_generation *g, size_t row, size_t length, treadle_error *err) {
    if (row >= g->n_rows)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected a row below %zu, found %zu", g->n_rows, row);
    td_timeline *t = &g->timelines[row];
    if (length > (size_t)t->n)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "cannot rewind row %zu to %zu tokens: it has %lld", row, length,
                       (long long)t->n);
    t->n = t->first_new = t->run_first = (int64_t)length;
    t->finish = TREADLE_FINISH_NONE;
    g->rows[row].logits = NULL;
    g->fresh = true;
    /* The last token that stays is run again: its logits are what the next token is chosen from. */
    td_exec_truncate(g->exec, row, TD_MAX(t->n - 1, (int64_t)0));
    return TREADLE_OK;
}

treadle_status td_generation_reserve(td_generation *g, int64_t more, treadle_error *err) {
    int64_t most = 0;
    for (size_t r = 0; r < g->n_rows; r++) {
        td_timeline *t = &g->timelines[r];
        int64_t n = TD_MIN(t->n + more, g->options.max_length);
        TD_TRY(grow(t, n, err));
        if (g->options.keep_logits && g->exec->vocab > 0 &&
            !td_vec_reserve(&t->steps, (size_t)((n - t->n) * g->exec->vocab)))
            return td_fail_memory(err, "logits of steps", 0);
        most = TD_MAX(most, n);
    }
    return td_exec_reserve(g->exec, most, err);
}
