/* generate/transduce.c - greedy search of a transducer: from frame to frame, a token at a time.
 *
 * At a frame the joiner scores what may come next. Blank moves on to the next frame; a token is emitted and predicted
 * from, and the frame is asked again, at most max_symbols times. With durations (TDT) the last logits say how many
 * frames to move on, also after a token; blank moves on by one at least. A chunk continues the row: what was predicted
 * last and frames still to be skipped are kept. So does a run that was cancelled, has failed or has reached its limit:
 * a token counts, and its frame is left, when it has been predicted from, before it is told. Source: Graves 2012
 * (RNN-T), Xu et al. 2023 (TDT). */
#include "base/alloc.h"
#include "base/time.h"
#include "generate/timeline.h"

typedef struct walk {
    td_generation *g;
    size_t row;
    int64_t limit; /* most new tokens; -1: none */
    td_sink_fn *sink;
    void *ctx;
} walk;

/* The last tokens of a row, blanks before its first one. */
static treadle_status predict(const walk *w, treadle_error *err) {
    td_generation *g = w->g;
    const td_plan_transducer *p = &g->runtime->plan->transducer;
    const td_timeline *t = &g->timelines[w->row];
    int32_t ids[64];
    int64_t n = TD_MAX(p->context, (int64_t)1);
    if (n > (int64_t)TD_COUNT(ids))
        return td_fail(err, TREADLE_LIMIT, "expected a predictor of at most %zu tokens of context, found %lld",
                       TD_COUNT(ids), (long long)n);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = t->n - n + i;
        ids[i] = at >= 0 ? t->ids[at] : p->blank;
    }
    return td_exec_transduce_predict(g->exec, g->rows, w->row, ids, n, err);
}

/* A token of the frame at hand; if it fails there is none. */
static treadle_status add_token(const walk *w, int32_t id, treadle_error *err) {
    td_generation *g = w->g;
    td_timeline *t = &g->timelines[w->row];
    if (t->n == t->capacity) TD_TRY(td_timeline_grow(t, t->n + TD_MAX(t->n / 2, (int64_t)64), err));
    if (!td_vec_push(&t->frames, t->frames_before + t->frame)) return td_fail_memory(err, "frames of tokens", 0);
    t->ids[t->n++] = id;
    treadle_status status = predict(w, err);
    if (status == TREADLE_OK) {
        g->new_tokens++;
    } else {
        t->n--;
        t->frames.n--;
    }
    return status;
}

static treadle_status tell(const walk *w, int32_t id, bool *going, treadle_error *err) {
    td_generation *g = w->g;
    td_timeline *t = &g->timelines[w->row];
    bool full = t->n >= g->options.max_length || (w->limit >= 0 && t->n - t->run_first >= w->limit);
    treadle_finish finish = full ? TREADLE_FINISH_LENGTH : TREADLE_FINISH_NONE;
    td_verdict verdict = w->sink ? w->sink(w->ctx, w->row, id, finish, err) : TD_VERDICT_CONTINUE;
    if (verdict == TD_VERDICT_FAIL) return err && err->code ? err->code : TREADLE_RUN;
    if (verdict == TD_VERDICT_CANCEL) return td_fail(err, TREADLE_CANCELLED, "cancelled");
    if (verdict == TD_VERDICT_STOP) finish = TREADLE_FINISH_STOP;
    t->finish = finish;
    *going = finish == TREADLE_FINISH_NONE;
    return TREADLE_OK;
}

/* The token that a frame gives; -1: every logit is NaN or -infinity. */
static int64_t best_token(const td_plan_transducer *p, const float *logits, size_t n) {
    int64_t best = td_argmax(logits, n);
    if (p->blank_penalty == 0 || best < 0) return best;
    size_t blank = (size_t)p->blank;
    int64_t before = td_argmax(logits, blank), after = td_argmax(logits + blank + 1, n - blank - 1);
    best = before;
    if (after >= 0 && (best < 0 || logits[blank + 1 + (size_t)after] > logits[best])) best = (int64_t)blank + 1 + after;
    bool silent = best < 0 || logits[blank] - p->blank_penalty > logits[best];
    return silent || (logits[blank] - p->blank_penalty == logits[best] && (int64_t)blank < best) ? p->blank : best;
}

/* Frames to move on after this joint. */
static int64_t duration_of(const td_plan_transducer *p, const float *logits, int64_t n, bool blank) {
    if (!p->n_durations) return blank;
    int64_t best = td_argmax(logits + n - (int64_t)p->n_durations, p->n_durations);
    int64_t frames = p->durations[TD_MAX(best, (int64_t)0)];
    return blank ? TD_MAX(frames, (int64_t)1) : TD_MAX(frames, (int64_t)0);
}

static void move_on(td_timeline *t, int64_t frames, int64_t symbols) {
    t->frame += frames;
    t->symbols = frames ? 0 : symbols;
}

/* From where the row stands in its chunk to the end of it, or of the run. */
static treadle_status walk_frames(const walk *w, bool *going, treadle_error *err) {
    td_generation *g = w->g;
    const td_plan_transducer *p = &g->runtime->plan->transducer;
    td_timeline *t = &g->timelines[w->row];
    int64_t most = g->options.max_symbols >= 0 ? g->options.max_symbols : p->max_symbols;
    while (*going && t->frame < t->n_frames) {
        const float *logits;
        int64_t n;
        if (td_interrupted(&g->interrupt)) return td_fail(err, TREADLE_CANCELLED, "cancelled");
        TD_TRY(td_exec_transduce_join(g->exec, g->rows, w->row, t->frame, &logits, &n, err));
        if (n <= (int64_t)p->n_durations + 1 || p->blank >= n - (int64_t)p->n_durations)
            return td_fail(err, TREADLE_RUN, "expected logits for blank (%d) and %zu durations, the joiner gave %lld",
                           p->blank, p->n_durations, (long long)n);
        int64_t best = best_token(p, logits, (size_t)n - p->n_durations);
        if (best < 0) return td_fail(err, TREADLE_RUN, "no token can be chosen: every logit is NaN or -infinity");
        int64_t moves = duration_of(p, logits, n, best == p->blank);
        if (best == p->blank) {
            move_on(t, moves, 0);
            continue;
        }
        TD_TRY(add_token(w, (int32_t)best, err));
        bool enough = moves == 0 && most > 0 && t->symbols + 1 >= most;
        move_on(t, enough ? 1 : moves, t->symbols + 1);
        TD_TRY(tell(w, (int32_t)best, going, err));
    }
    if (t->frame < t->n_frames) return TREADLE_OK;
    t->frame -= t->n_frames;
    t->frames_before += t->n_frames;
    t->n_frames = 0;
    return TREADLE_OK;
}

static treadle_status transduce_row(const walk *w, treadle_error *err) {
    td_generation *g = w->g;
    td_timeline *t = &g->timelines[w->row];
    bool going = true;
    t->run_first = t->n;
    if (!t->fresh && !t->n_frames) return TREADLE_OK; /* no new features, and none that are left */
    t->finish = TREADLE_FINISH_NONE;
    if (!t->predicted) {
        TD_TRY(predict(w, err));
        t->predicted = true;
    }
    if (t->n_frames) TD_TRY(walk_frames(w, &going, err));
    if (t->fresh && going) {
        td_generation_fill_row(g, w->row);
        TD_TRY(td_exec_transduce_encode(g->exec, g->rows, w->row, &t->n_frames, err));
        t->fresh = t->fresh_requests = false;
        TD_TRY(walk_frames(w, &going, err));
    }
    if (t->finish == TREADLE_FINISH_NONE) t->finish = TREADLE_FINISH_EOS; /* the audio has ended */
    return TREADLE_OK;
}

treadle_status td_generation_transduce(td_generation *g, int64_t max_new_tokens, td_sink_fn *sink, void *ctx,
                                       treadle_error *err) {
    int64_t limit = max_new_tokens >= 0 ? max_new_tokens : g->options.max_new_tokens;
    treadle_error problem = {0};
    treadle_status status = TREADLE_OK;
    uint64_t begin = td_time_ns();
    td_interrupt_begin_run(&g->interrupt);
    for (size_t r = 0; status == TREADLE_OK && r < g->n_rows; r++) {
        walk w = {g, r, limit, sink, ctx};
        status = transduce_row(&w, &problem);
        if (status == TREADLE_OK) continue;
        g->timelines[r].finish = status == TREADLE_CANCELLED ? TREADLE_FINISH_CANCELLED : TREADLE_FINISH_ERROR;
    }
    g->decode_ns += td_time_ns() - begin;
    td_interrupt_end_run(&g->interrupt);
    if (status == TREADLE_OK || status == TREADLE_CANCELLED) return TREADLE_OK;
    if (err) *err = problem;
    return status;
}
