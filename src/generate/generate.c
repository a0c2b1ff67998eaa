/* generate/generate.c - the token loop. */
#include "base/time.h"
#include "generate/timeline.h"

enum { RESERVE_TOKENS = 512 }; /* per run at most; longer runs grow geometrically */

void td_generation_cancel(td_generation *g) { td_interrupt_run(&g->interrupt); }

void td_generation_fill_row(td_generation *g, size_t r) {
    td_timeline *t = &g->timelines[r];
    td_exec_row *row = &g->rows[r];
    row->ids = t->ids;
    row->n_ids = t->n;
    row->source = t->source;
    row->n_source = t->n_source;
    row->prompt = t->fresh;
    row->fresh_requests = t->fresh_requests;
    row->requests = g->row_requests ? g->row_requests + r * g->runtime->plan->n_requests : NULL;
}

void td_generation_reprefill(td_generation *g, size_t r, int64_t wanted) {
    int64_t at = g->runtime->plan->reprefill_at, run = td_exec_length(g->exec, r);
    if (at > 0 && run > 0 && (run >= at) != (wanted >= at)) td_exec_truncate(g->exec, r, 0);
}

static bool is_placeholder(const td_generation *g, int32_t id) {
    const td_plan *plan = g->runtime->plan;
    for (int m = 0; m < TD_MODALITY_NONE; m++)
        if (plan->placeholders[m] >= 0 && plan->placeholders[m] == id) return true;
    return false;
}

/* A rewind may leave the last token to be run again. What stood for a feature of an image cannot be: its
 * tensors were of the prompt. */
static treadle_status check_again(const td_generation *g, size_t r, int64_t from, treadle_error *err) {
    const td_timeline *t = &g->timelines[r];
    if (t->fresh || !t->had_requests) return TREADLE_OK;
    for (int64_t i = from; i < t->first_new; i++)
        if (is_placeholder(g, t->ids[i]))
            return td_fail(err, TREADLE_UNSUPPORTED,
                           "token %lld of row %zu (id %d) would have to be run again, but what it stands for came with "
                           "its prompt and is gone. Rewind to before such tokens and append them with their tensors",
                           (long long)i, r, t->ids[i]);
    return TREADLE_OK;
}

static treadle_status open_sampler(td_generation *g, treadle_error *err) {
    if (g->sampler.vocab || !g->exec->vocab) return TREADLE_OK;
    return td_sampler_init(&g->sampler, (size_t)g->exec->vocab, err);
}

/* Runs what rows lack: those that have no logits and go on, or all. Counts and times it as prompt or step. */
static treadle_status forward(td_generation *g, bool ended_too, treadle_error *err) {
    int64_t tokens = 0, most = 0;
    for (size_t r = 0; r < g->n_rows; r++) {
        td_timeline *t = &g->timelines[r];
        td_generation_fill_row(g, r);
        g->rows[r].live = !g->rows[r].logits && t->n > 0 && (ended_too || t->finish == TREADLE_FINISH_NONE);
        if (!g->rows[r].live) continue;
        td_generation_reprefill(g, r, t->n);
        if (td_exec_length(g->exec, r) >= t->n) td_exec_truncate(g->exec, r, t->n - 1);
        TD_TRY(check_again(g, r, td_exec_length(g->exec, r), err));
        int64_t missing = t->n - td_exec_length(g->exec, r);
        tokens += missing;
        most = TD_MAX(most, missing);
    }
    if (!tokens) return open_sampler(g, err); /* which may have failed after the last run */
    bool prompt = most > 1 || g->fresh;
    g->fresh = false;
    if (prompt)
        for (size_t r = 0; r < g->n_rows; r++) g->exec->all[r].n = 0;
    g->exec->keep_all = g->options.prompt_logits && prompt;
    uint64_t begin = td_time_ns();
    treadle_status status = td_exec_forward(g->exec, g->rows, err);
    *(prompt ? &g->prefill_ns : &g->decode_ns) += td_time_ns() - begin;
    if (status != TREADLE_OK) return status;
    for (size_t r = 0; r < g->n_rows; r++)
        if (g->rows[r].live) g->timelines[r].fresh = g->timelines[r].fresh_requests = false;
    if (prompt) g->prompt_tokens += tokens;
    else g->decode_steps++;
    return open_sampler(g, err);
}

treadle_status td_generation_prefill(td_generation *g, treadle_error *err) {
    if (g->runtime->plan->transducer.present) return TREADLE_OK; /* the run goes over the features */
    if (g->runtime->plan->cannot_run) return td_generation_encode(g, err);
    if (!g->n_rows) return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected an append before a run");
    td_interrupt_begin_run(&g->interrupt);
    treadle_status status = forward(g, true, err);
    td_interrupt_end_run(&g->interrupt);
    return status;
}

static bool is_end(const td_generation *g, int32_t id) {
    for (size_t i = 0; i < g->options.sample.n_eos; i++)
        if (g->options.sample.eos[i] == id) return !g->options.ignore_eos;
    return false;
}

/* Chooses the next token of a row and puts it on its timeline. */
static treadle_status choose(td_generation *g, size_t r, int32_t *id, treadle_error *err) {
    td_timeline *t = &g->timelines[r];
    const float *logits = g->rows[r].logits;
    size_t vocab = g->sampler.vocab;
    td_sequence_so_far so_far = {.ids = t->ids,
                                 .n = (size_t)t->n,
                                 .n_prompt = (size_t)t->first_new,
                                 .limit = (size_t)t->ends_at,
                                 .source = t->source,
                                 .n_source = (size_t)t->n_source};
    TD_TRY(td_sampler_choose(&g->sampler, &g->options.sample, logits, so_far, &t->rng, id, err));
    if (t->n == t->capacity) TD_TRY(td_generation_reserve(g, RESERVE_TOKENS, err));
    if (g->options.keep_logits) {
        if (!td_vec_reserve(&t->steps, t->steps.n + vocab))
            return td_fail_memory(err, "logits of steps", vocab * sizeof(float));
        memcpy(t->steps.items + t->steps.n, logits, vocab * sizeof(float));
        t->steps.n += vocab;
    }
    t->ids[t->n++] = *id;
    g->rows[r].logits = NULL;
    g->new_tokens++;
    return TREADLE_OK;
}

static void finish_all(td_generation *g, treadle_finish finish) {
    for (size_t r = 0; r < g->n_rows; r++)
        if (g->timelines[r].finish == TREADLE_FINISH_NONE) g->timelines[r].finish = finish;
}

/* Opens a run: rows that ended by length or were cancelled go on; the others stay ended until something is appended.
 * limit: new tokens, negative: no limit. budget: tokens of a whole answer; -1: max_length alone ends it. */
static bool open_rows(td_generation *g, int64_t limit, int64_t budget) {
    bool any = false;
    for (size_t r = 0; r < g->n_rows; r++) {
        td_timeline *t = &g->timelines[r];
        t->run_first = t->n;
        t->ends_at = g->options.max_length;
        if (budget >= 0 && budget < t->ends_at - t->n) t->ends_at = t->n + budget;
        t->steps.n = 0;
        if (t->finish != TREADLE_FINISH_EOS && t->finish != TREADLE_FINISH_STOP) t->finish = TREADLE_FINISH_NONE;
        if (t->finish == TREADLE_FINISH_NONE && (t->n == 0 || t->n >= g->options.max_length || limit == 0))
            t->finish = TREADLE_FINISH_LENGTH;
        any |= t->finish == TREADLE_FINISH_NONE;
    }
    return any;
}

/* One token for every row that has not ended. *going: some row goes on. */
static treadle_status step(td_generation *g, int64_t limit, td_sink_fn *sink, void *ctx, bool *going,
                           treadle_error *err) {
    *going = false;
    TD_TRY(forward(g, false, err));
    for (size_t r = 0; r < g->n_rows; r++) {
        td_timeline *t = &g->timelines[r];
        if (t->finish != TREADLE_FINISH_NONE) continue;
        if (td_interrupted(&g->interrupt)) return td_fail(err, TREADLE_CANCELLED, "cancelled");
        int32_t id;
        TD_TRY(choose(g, r, &id, err));
        bool full = t->n >= g->options.max_length || (limit >= 0 && t->n - t->run_first >= limit);
        t->finish = is_end(g, id) ? TREADLE_FINISH_EOS : full ? TREADLE_FINISH_LENGTH : TREADLE_FINISH_NONE;
        switch (sink ? sink(ctx, r, id, t->finish, err) : TD_VERDICT_CONTINUE) {
        case TD_VERDICT_CONTINUE: break;
        case TD_VERDICT_STOP: t->finish = TREADLE_FINISH_STOP; break;
        case TD_VERDICT_CANCEL: return td_fail(err, TREADLE_CANCELLED, "cancelled");
        case TD_VERDICT_FAIL: return err && err->code ? err->code : TREADLE_RUN;
        }
        *going |= t->finish == TREADLE_FINISH_NONE;
    }
    return TREADLE_OK;
}

/* After a rewind to 0. */
static bool all_empty(const td_generation *g) {
    for (size_t r = 0; r < g->n_rows; r++)
        if (g->timelines[r].n) return false;
    return true;
}

treadle_status td_generation_run(td_generation *g, int64_t max_new_tokens, td_sink_fn *sink, void *ctx,
                                 treadle_error *err) {
    const char *cannot = g->runtime->plan->cannot_run;
    if (g->runtime->plan->transducer.present && g->n_rows)
        return td_generation_transduce(g, max_new_tokens, sink, ctx, err);
    if (cannot) return td_fail(err, TREADLE_UNSUPPORTED, "this model cannot generate: %s", cannot);
    if (!g->n_rows) return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected an append before a run");
    int64_t limit = max_new_tokens >= 0 ? max_new_tokens : g->options.max_new_tokens;
    if (all_empty(g))
        return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected an append before a run: no row has a token");
    bool going = open_rows(g, limit, max_new_tokens >= 0 ? -1 : limit); /* may be a part of an answer */
    if (!going) return TREADLE_OK;
    if (g->options.beam.num_beams > 1) return td_generation_beam(g, limit, sink, ctx, err);
    uint64_t begin = td_time_ns(), prefill = g->prefill_ns, decode = g->decode_ns;
    treadle_error problem = {0};
    td_interrupt_begin_run(&g->interrupt);
    treadle_status status =
        td_generation_reserve(g, limit >= 0 ? TD_MIN(limit, (int64_t)RESERVE_TOKENS) : RESERVE_TOKENS, &problem);
    for (bool first = true; going && status == TREADLE_OK; first = false) {
        status = step(g, limit, sink, ctx, &going, &problem);
        if (first) g->first_token_ns = td_time_ns() - begin;
    }
    td_interrupt_end_run(&g->interrupt);
    g->decode_ns =
        decode + (td_time_ns() - begin) - (g->prefill_ns - prefill); /* sampling and sinks are part of a step */
    if (status == TREADLE_OK) return TREADLE_OK;
    finish_all(g, status == TREADLE_CANCELLED ? TREADLE_FINISH_CANCELLED : TREADLE_FINISH_ERROR);
    if (status == TREADLE_CANCELLED) return TREADLE_OK;
    if (err) *err = problem;
    return status;
}
