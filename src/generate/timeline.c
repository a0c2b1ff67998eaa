/* generate/timeline.c - making and changing timelines; the loop itself is in generate.c. */
#include "generate/timeline.h"
#include "base/alloc.h"
#include "base/time.h"

treadle_status td_generation_new(const td_runtime *runtime, const td_generation_options *options, td_generation **out,
                                 treadle_error *err) {
    const td_plan *plan = runtime->plan;
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
    g->staged = td_alloc_zero(plan->n_requests, sizeof *g->staged);
    g->requests = td_alloc_zero(plan->n_requests, sizeof *g->requests);
    treadle_status status =
        g->staged && g->requests ? td_interrupt_init(&g->interrupt, err) : td_fail_memory(err, "a generator", 0);
    if (status != TREADLE_OK) {
        td_generation_free(g);
        return status;
    }
    *out = g;
    return TREADLE_OK;
}

static void free_rows(td_generation *g) {
    for (size_t r = 0; r < g->n_rows; r++) {
        td_free(g->timelines[r].ids);
        td_free(g->timelines[r].source);
        td_timeline_drop_sequences(&g->timelines[r]);
        td_vec_free(&g->timelines[r].steps);
        td_vec_free(&g->timelines[r].frames);
    }
    td_free(g->timelines);
    td_free(g->rows);
    td_free(g->row_requests);
    td_exec_free(g->exec);
    g->timelines = NULL;
    g->rows = NULL;
    g->row_requests = NULL;
    g->exec = NULL;
    g->n_rows = 0;
}

void td_generation_free(td_generation *g) {
    if (!g) return;
    td_generation_free_outputs(g);
    free_rows(g);
    td_generation_free_tensors(g);
    td_vec_free(&g->vector);
    td_sampler_free(&g->sampler);
    td_interrupt_end(&g->interrupt);
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
    td_interrupt_join(&g->interrupt, g->exec);
    g->exec->keep_all = g->options.prompt_logits;
    g->timelines = timelines;
    g->rows = rows;
    g->n_rows = n_rows;
    return TREADLE_OK;
}

treadle_status td_timeline_grow(td_timeline *t, int64_t n, treadle_error *err) {
    if (n <= t->capacity) return TREADLE_OK;
    int64_t capacity = TD_MAX(n, t->capacity + t->capacity / 2);
    int32_t *ids = td_realloc_array(t->ids, (size_t)capacity, sizeof *ids);
    if (!ids) return td_fail_memory(err, "tokens of a row", (size_t)capacity * sizeof *ids);
    t->ids = ids;
    t->capacity = capacity;
    return TREADLE_OK;
}

/* Nothing but tensors may come with an append: no tokens go in. */
static bool takes_no_tokens(const td_plan *plan) { return plan->cannot_run || plan->transducer.present; }

/* A step that runs once per request stands before the decoder: an encoder; or it is in the decoder's graph. */
static bool has_encoder(const td_plan *plan) {
    bool found = false;
    for (size_t k = 0; k < plan->n_steps; k++)
        found |= plan->steps[k].when == TD_WHEN_ONCE ||
                 td_plan_input_of_role(&plan->sessions[plan->steps[k].session], TD_ROLE_DECODER_INPUT_IDS) >= 0;
    return found;
}

/* Tokens that an append adds to a row's timeline, which an encoder-decoder starts itself: its prompt is the
 * source's. */
static bool is_source(const td_generation *g, size_t r) {
    return g->runtime->plan->source_prompt && (!g->n_rows || g->timelines[r].n == 0);
}

static treadle_ids timeline_part(const td_generation *g, const treadle_ids *rows, size_t r) {
    const td_plan *plan = g->runtime->plan;
    bool starts = (!g->n_rows || g->timelines[r].n == 0) && !takes_no_tokens(plan) && has_encoder(plan);
    if (is_source(g, r) || (starts && rows[r].n == 0))
        return (treadle_ids){g->options.decoder_start, g->options.n_decoder_start};
    return rows[r];
}

static treadle_status check_ids(const td_generation *g, treadle_ids ids, size_t r, treadle_error *err) {
    int64_t vocab = g->runtime->plan->vocab;
    for (size_t i = 0; i < ids.n; i++)
        if (ids.ids[i] < 0 || (vocab > 0 && ids.ids[i] >= vocab))
            return td_fail(err, TREADLE_INVALID_ARGUMENT, "token %zu of row %zu is %d: expected an id from 0 to %lld",
                           i, r, ids.ids[i], (long long)(vocab > 0 ? vocab - 1 : INT32_MAX));
    return TREADLE_OK;
}

/* Everything that can be wrong with an append, before anything changes. */
static treadle_status check_append(const td_generation *g, const treadle_ids *rows, size_t n_rows, treadle_error *err) {
    const td_plan *plan = g->runtime->plan;
    if (n_rows == 0) return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected at least one row, found none");
    if (n_rows > 65536) return td_fail(err, TREADLE_LIMIT, "expected at most 65536 rows, found %zu", n_rows);
    if (g->n_rows && n_rows != g->n_rows)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected %zu rows as in the first append, found %zu", g->n_rows,
                       n_rows);
    for (size_t r = 0; r < n_rows; r++) {
        int64_t before = g->n_rows ? g->timelines[r].n : 0;
        treadle_ids part = timeline_part(g, rows, r);
        if (is_source(g, r) && !rows[r].n)
            return td_fail(err, TREADLE_INVALID_ARGUMENT, "row %zu is empty: expected at least one token", r);
        if (!before && !part.n && !takes_no_tokens(plan)) {
            if (!plan->source_prompt)
                return td_fail(err, TREADLE_INVALID_ARGUMENT, "row %zu is empty: expected at least one token", r);
            return td_fail(
                err, TREADLE_INVALID_ARGUMENT,
                "expected a token that the decoder starts from (tokens.decoder_start or tokens.bos), found none");
        }
        if (part.n > (size_t)(g->options.max_length - before))
            return td_fail(err, TREADLE_LIMIT, "row %zu would have %lld tokens; the limit is %lld (%s)", r,
                           (long long)(before + (int64_t)TD_MIN(part.n, (size_t)INT32_MAX)),
                           (long long)g->options.max_length,
                           g->options.max_length == plan->context_length ? "the context length" : "max_length");
        TD_TRY(check_ids(g, part, r, err));
        if (is_source(g, r)) TD_TRY(check_ids(g, rows[r], r, err));
    }
    return TREADLE_OK;
}

/* The prompt of an encoder-decoder. */
static treadle_status set_source(td_timeline *t, treadle_ids ids, treadle_error *err) {
    int32_t *copy = td_alloc_array(ids.n, sizeof *copy);
    if (!copy) return td_fail_memory(err, "a prompt", ids.n * sizeof *copy);
    memcpy(copy, ids.ids, ids.n * sizeof *copy);
    td_free(t->source);
    t->source = copy;
    t->n_source = (int64_t)ids.n;
    return TREADLE_OK;
}

static void extend(td_generation *g, size_t r, treadle_ids part, bool fresh_requests) {
    td_timeline *t = &g->timelines[r];
    td_timeline_drop_sequences(t);
    if (part.n) memcpy(t->ids + t->n, part.ids, part.n * sizeof *t->ids);
    t->n += (int64_t)part.n;
    t->first_new = t->run_first = t->n;
    t->finish = TREADLE_FINISH_NONE;
    t->fresh = true;
    t->fresh_requests = fresh_requests;
    t->had_requests |= fresh_requests;
    g->rows[r].logits = NULL;
}

/* What may fail once the rows are there. Until a row has a token, nothing reads its source. */
static treadle_status prepare_append(td_generation *g, const treadle_ids *rows, size_t n_rows, bool *out_fresh,
                                     treadle_error *err) {
    for (size_t r = 0; r < n_rows; r++)
        TD_TRY(td_timeline_grow(&g->timelines[r], g->timelines[r].n + (int64_t)timeline_part(g, rows, r).n, err));
    for (size_t r = 0; r < n_rows; r++)
        if (is_source(g, r)) TD_TRY(set_source(&g->timelines[r], rows[r], err));
    return td_generation_take_tensors(g, rows, n_rows, out_fresh, err);
}

treadle_status td_generation_append(td_generation *g, const treadle_ids *rows, size_t n_rows, treadle_error *err) {
    bool fresh = false, first = !g->n_rows;
    TD_TRY(check_append(g, rows, n_rows, err));
    if (first) TD_TRY(make_rows(g, n_rows, err));
    treadle_status status = prepare_append(g, rows, n_rows, &fresh, err);
    if (status != TREADLE_OK) {
        if (first) free_rows(g);
        return status;
    }
    for (size_t r = 0; r < n_rows; r++) {
        treadle_ids part = timeline_part(g, rows, r);
        if (part.n || takes_no_tokens(g->runtime->plan)) extend(g, r, part, fresh);
    }
    td_free(g->images_per_row); /* was of this append */
    g->images_per_row = NULL;
    g->n_images_per_row = 0;
    g->fresh = true;
    return TREADLE_OK;
}

treadle_status td_generation_rewind(td_generation *g, size_t row, size_t length, treadle_error *err) {
    if (!g->n_rows) return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected an append before a row is asked for");
    if (row >= g->n_rows)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected a row below %zu, found %zu", g->n_rows, row);
    td_timeline *t = &g->timelines[row];
    if (length > (size_t)t->n)
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "cannot rewind row %zu to %zu tokens: it has %lld", row, length,
                       (long long)t->n);
    if (length && length < (size_t)t->n && g->runtime->plan->transducer.present)
        return td_fail(err, TREADLE_UNSUPPORTED, "a transducer's row can only be rewound to 0, found %zu", length);
    if (length && length < (size_t)t->n && t->had_requests && !td_exec_can_truncate(g->exec, row, (int64_t)length))
        return td_fail(err, TREADLE_UNSUPPORTED,
                       "cannot rewind row %zu to %zu tokens: %s is made anew from the first token, and the tensors of "
                       "its prompt are gone. Rewind to 0 and append again",
                       row, length,
                       td_state_can_truncate(g->runtime->plan) ? "what its windows look back at" : "recurrent state");
    td_timeline_drop_sequences(t);
    t->n = t->first_new = t->run_first = (int64_t)length;
    t->finish = TREADLE_FINISH_NONE;
    t->fresh &= length > 0;
    g->rows[row].logits = NULL;
    g->fresh = true;
    if (length) {
        td_generation_reprefill(g, row, t->n);
        td_exec_truncate(g->exec, row, t->n);
        return TREADLE_OK;
    }
    size_t n_requests = g->runtime->plan->n_requests;
    if (g->row_requests) memset(g->row_requests + row * n_requests, 0, n_requests * sizeof *g->row_requests);
    t->had_requests = t->predicted = false;
    t->frames.n = 0;
    t->frames_before = t->n_frames = t->frame = t->symbols = 0;
    td_exec_restart(g->exec, row); /* a new request: what belongs to the request as a whole is run again */
    return TREADLE_OK;
}

treadle_status td_generation_reserve(td_generation *g, int64_t more, treadle_error *err) {
    int64_t most = 0;
    for (size_t r = 0; r < g->n_rows; r++) {
        td_timeline *t = &g->timelines[r];
        int64_t n = TD_MIN(t->n + more, g->options.max_length);
        TD_TRY(td_timeline_grow(t, n, err));
        if (g->options.keep_logits && g->exec->vocab > 0 &&
            !td_vec_reserve(&t->steps, (size_t)((n - t->n) * g->exec->vocab)))
            return td_fail_memory(err, "logits of steps", 0);
        most = TD_MAX(most, n);
    }
    return td_exec_reserve(g->exec, most, err);
}

/* --- forks */

static treadle_status copy_timeline(td_timeline *to, const td_timeline *from, treadle_error *err) {
    TD_TRY(td_timeline_grow(to, TD_MAX(from->n, (int64_t)1), err));
    int32_t *ids = to->ids;
    int64_t capacity = to->capacity;
    if (from->n) memcpy(ids, from->ids, (size_t)from->n * sizeof *ids);
    *to = *from;
    to->ids = ids;
    to->capacity = capacity;
    to->source = NULL;
    to->sequences = NULL;
    to->n_sequences = 0;
    memset(&to->steps, 0, sizeof to->steps);
    memset(&to->frames, 0, sizeof to->frames);
    if (!td_vec_reserve(&to->frames, from->frames.n)) return td_fail_memory(err, "frames of tokens", 0);
    to->frames.n = from->frames.n;
    if (from->frames.n) memcpy(to->frames.items, from->frames.items, from->frames.n * sizeof *from->frames.items);
    to->first_new = to->run_first = to->n;
    if (!from->source) return TREADLE_OK;
    return set_source(to, (treadle_ids){from->source, (size_t)from->n_source}, err);
}

treadle_status td_generation_fork(const td_generation *from, td_generation **out, treadle_error *err) {
    const td_plan *plan = from->runtime->plan;
    td_generation *g = NULL;
    treadle_status status = td_generation_new(from->runtime, &from->options, &g, err);
    if (status == TREADLE_OK && from->n_rows) status = make_rows(g, from->n_rows, err);
    for (size_t r = 0; status == TREADLE_OK && r < g->n_rows; r++)
        status = copy_timeline(&g->timelines[r], &from->timelines[r], err);
    if (status == TREADLE_OK && from->exec) {
        td_exec *exec = NULL;
        status = td_exec_clone(from->exec, &exec, err);
        if (status == TREADLE_OK) {
            td_exec_free(g->exec);
            g->exec = exec;
            td_interrupt_join(&g->interrupt, exec);
        }
    }
    if (status == TREADLE_OK && from->row_requests) {
        g->row_requests = td_alloc_zero(g->n_rows * plan->n_requests, sizeof *g->row_requests);
        if (!g->row_requests) status = td_fail_memory(err, "a fork", 0);
        else memcpy(g->row_requests, from->row_requests, g->n_rows * plan->n_requests * sizeof *g->row_requests);
    }
    for (size_t i = 0; status == TREADLE_OK && i < plan->n_requests; i++)
        g->requests[i] = td_value_share(&from->requests[i]);
    if (status != TREADLE_OK) {
        td_generation_free(g);
        return status;
    }
    g->fresh = from->fresh;
    *out = g;
    return TREADLE_OK;
}
