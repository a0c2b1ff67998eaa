/* generate/beam.c - beam search: every row becomes num_beams rows of an executor of its own, which
 * change places after each step.
 *
 * A prompt is run once, in its first beam, and copied to the others. A step takes the best continuations over
 * all beams of a row; end tokens among the num_beams best close a sequence, whose score is the sum of its log
 * probabilities divided by its new tokens to the power of length_penalty. Source: transformers,
 * BeamSearchScorer and BeamHypotheses. */
#include "base/alloc.h"
#include "base/time.h"
#include "generate/timeline.h"

#include <math.h>
#include <stdlib.h>

typedef struct candidate {
    float score;
    int32_t id;
    size_t beam; /* of its row */
} candidate;

typedef struct row_beams {
    td_sequence_found *found; /* [num_beams + 1]: closed sequences, in any order */
    size_t n_found;
    bool done;
    bool closed; /* the row had ended before this run: it stays as it is */
} row_beams;

typedef struct search {
    td_generation *g;
    td_exec *exec;
    size_t n_rows, n_beams, n_all, n_candidates;
    int64_t limit;               /* most new tokens of a row */
    int64_t room;                /* new tokens that ids and next have room for */
    td_exec_row *rows;           /* [n_all] */
    int32_t **ids;               /* [n_all]: prompt and new tokens */
    int32_t **next;              /* [n_all]: those of the step under way */
    float *scores, *next_scores; /* [n_all] */
    size_t *from;                /* [n_all] */
    row_beams *beams;            /* [n_rows] */
    candidate *candidates;       /* [n_candidates], best first */
    size_t n_taken;
    float *processed; /* [vocab] */
} search;

/* --- memory */

static void free_found(td_sequence_found *found, size_t n) {
    for (size_t i = 0; found && i < n; i++) td_free(found[i].ids);
    td_free(found);
}

void td_timeline_drop_sequences(td_timeline *t) {
    free_found(t->sequences, t->n_sequences);
    t->sequences = NULL;
    t->n_sequences = 0;
}

static void free_search(search *s) {
    for (size_t i = 0; i < s->n_all; i++) {
        if (s->ids) td_free(s->ids[i]);
        if (s->next) td_free(s->next[i]);
    }
    for (size_t r = 0; s->beams && r < s->n_rows; r++) free_found(s->beams[r].found, s->beams[r].n_found);
    td_exec_free(s->exec);
    void *const memory[] = {s->rows, s->ids,   s->next,       s->scores,   s->next_scores,
                            s->from, s->beams, s->candidates, s->processed};
    for (size_t i = 0; i < TD_COUNT(memory); i++) td_free(memory[i]);
}

/* Room for one more token than the n_new that every beam has. */
static bool make_room(search *s, int64_t n_new) {
    if (n_new < s->room) return true;
    s->room = TD_MIN(s->limit, TD_MAX((int64_t)64, 2 * s->room));
    for (size_t i = 0; i < s->n_all; i++) {
        size_t n = (size_t)(s->g->timelines[i / s->n_beams].n + s->room);
        int32_t *ids = td_realloc_array(s->ids[i], n, sizeof *ids);
        if (ids) s->ids[i] = ids;
        int32_t *next = td_realloc_array(s->next[i], n, sizeof *next);
        if (next) s->next[i] = next;
        if (!ids || !next) return false;
    }
    return true;
}

static bool alloc_beams(search *s) {
    s->rows = td_alloc_zero(s->n_all, sizeof *s->rows);
    s->ids = td_alloc_zero(s->n_all, sizeof *s->ids);
    s->next = td_alloc_zero(s->n_all, sizeof *s->next);
    s->scores = td_alloc_zero(s->n_all, sizeof *s->scores);
    s->next_scores = td_alloc_zero(s->n_all, sizeof *s->next_scores);
    s->from = td_alloc_zero(s->n_all, sizeof *s->from);
    s->beams = td_alloc_zero(s->n_rows, sizeof *s->beams);
    s->candidates = td_alloc_zero(s->n_candidates, sizeof *s->candidates);
    if (!s->rows || !s->ids || !s->next || !s->scores || !s->next_scores || !s->from || !s->beams || !s->candidates)
        return false;
    if (!make_room(s, 0)) return false;
    for (size_t i = 0; i < s->n_all; i++) {
        const td_timeline *t = &s->g->timelines[i / s->n_beams];
        if (t->n) memcpy(s->ids[i], t->ids, (size_t)t->n * sizeof **s->ids);
    }
    for (size_t r = 0; r < s->n_rows; r++)
        if (!(s->beams[r].found = td_alloc_zero(s->n_beams + 1, sizeof *s->beams[r].found))) return false;
    return true;
}

/* --- closed sequences of a row */

static size_t worst(const row_beams *b) {
    size_t at = 0;
    for (size_t i = 1; i < b->n_found; i++)
        if (b->found[i].score < b->found[at].score) at = i;
    return at;
}

static double normalised(const search *s, float sum, int64_t n_new) {
    return (double)sum / pow((double)n_new, s->g->options.beam.length_penalty);
}

/* Closes a beam of n_new new tokens; of more than num_beams the worst goes. */
static treadle_status close_beam(search *s, size_t row, const int32_t *ids, int64_t n_new, float sum, bool ended,
                                 treadle_error *err) {
    row_beams *b = &s->beams[row];
    double score = normalised(s, sum, n_new);
    if (b->n_found >= s->n_beams && !(score > b->found[worst(b)].score)) return TREADLE_OK;
    int32_t *copy = td_alloc_array((size_t)n_new, sizeof *copy);
    if (!copy) return td_fail_memory(err, "a sequence", (size_t)n_new * sizeof *copy);
    memcpy(copy, ids + s->g->timelines[row].n, (size_t)n_new * sizeof *copy);
    b->found[b->n_found++] = (td_sequence_found){copy, (size_t)n_new, score, ended};
    if (b->n_found <= s->n_beams) return TREADLE_OK;
    size_t out = worst(b);
    td_free(b->found[out].ids);
    b->found[out] = b->found[--b->n_found];
    return TREADLE_OK;
}

/* Whether no open beam, the best of which has this sum, can still get better than what is closed. */
static bool is_done(const search *s, const row_beams *b, float best, int64_t n_new) {
    const td_beam_params *p = &s->g->options.beam;
    if (b->n_found < s->n_beams) return false;
    if (p->early_stopping == TD_EARLY_STOPPING_YES) return true;
    bool longest = p->early_stopping == TD_EARLY_STOPPING_NEVER && p->length_penalty > 0;
    return b->found[worst(b)].score >= normalised(s, best, longest ? s->limit : n_new);
}

/* --- a step */

static bool is_better(candidate a, candidate b, size_t vocab) {
    if (a.score != b.score) return a.score > b.score;
    return a.beam * vocab + (size_t)a.id < b.beam * vocab + (size_t)b.id;
}

static void offer(search *s, candidate c, size_t vocab) {
    if (!(c.score > -INFINITY)) return;
    if (s->n_taken == s->n_candidates && !is_better(c, s->candidates[s->n_taken - 1], vocab)) return;
    size_t at = s->n_taken < s->n_candidates ? s->n_taken++ : s->n_taken - 1;
    for (; at > 0 && is_better(c, s->candidates[at - 1], vocab); at--) s->candidates[at] = s->candidates[at - 1];
    s->candidates[at] = c;
}

/* The best continuations of a row's beams; at first only one of them is different from the others. */
static void find_candidates(search *s, size_t row, int64_t n_new) {
    td_generation *g = s->g;
    const td_timeline *t = &g->timelines[row];
    size_t vocab = g->sampler.vocab;
    s->n_taken = 0;
    for (size_t b = 0; b < (n_new ? s->n_beams : 1); b++) {
        size_t i = row * s->n_beams + b;
        if (!s->rows[i].logits || !(s->scores[i] > -INFINITY)) continue;
        td_sequence_so_far so_far = {.ids = s->ids[i],
                                     .n = (size_t)(t->n + n_new),
                                     .n_prompt = (size_t)t->n,
                                     .limit = (size_t)(t->n + s->limit),
                                     .source = t->source,
                                     .n_source = (size_t)t->n_source};
        td_sampler_log_scores(&g->sampler, &g->options.sample, s->rows[i].logits, so_far, s->processed);
        for (size_t v = 0; v < vocab; v++) offer(s, (candidate){s->scores[i] + s->processed[v], (int32_t)v, b}, vocab);
    }
}

static bool is_end(const td_generation *g, int32_t id) {
    for (size_t i = 0; i < g->options.sample.n_eos; i++)
        if (g->options.sample.eos[i] == id) return !g->options.ignore_eos;
    return false;
}

/* After the last step every one of the num_beams best is closed, and nothing goes on. */
static treadle_status close_last(search *s, size_t row, int64_t n_new, treadle_error *err) {
    int64_t n = s->g->timelines[row].n + n_new;
    for (size_t k = 0; k < TD_MIN(s->n_taken, s->n_beams); k++) {
        candidate c = s->candidates[k];
        int32_t *ids = s->ids[row * s->n_beams + c.beam];
        ids[n] = c.id;
        TD_TRY(close_beam(s, row, ids, n_new + 1, c.score, is_end(s->g, c.id), err));
    }
    s->beams[row].done = true;
    return TREADLE_OK;
}

/* Closes what ends and lets the best others go on. */
static treadle_status advance_row(search *s, size_t row, int64_t n_new, treadle_error *err) {
    int64_t n = s->g->timelines[row].n + n_new; /* tokens of a beam before this step */
    size_t n_next = 0, first = row * s->n_beams;
    if (!s->n_taken)
        return td_fail(err, TREADLE_RUN, "no token can be chosen: every logit is NaN, infinite or forbidden");
    if (n_new + 1 >= s->limit) return close_last(s, row, n_new, err);
    for (size_t k = 0; k < s->n_taken && n_next < s->n_beams; k++) {
        candidate c = s->candidates[k];
        int32_t *ids = s->ids[first + c.beam];
        if (is_end(s->g, c.id)) {
            ids[n] = c.id;
            if (k < s->n_beams) TD_TRY(close_beam(s, row, ids, n_new + 1, c.score, true, err));
            continue;
        }
        size_t to = first + n_next++;
        memcpy(s->next[to], ids, (size_t)n * sizeof *ids);
        s->next[to][n] = c.id;
        s->next_scores[to] = c.score;
        s->from[to] = first + c.beam;
    }
    bool alive = n_next > 0;
    for (; n_next < s->n_beams; n_next++) { /* fewer tokens than beams: the others are dead */
        memcpy(s->next[first + n_next], s->ids[first], (size_t)n * sizeof **s->ids);
        s->next[first + n_next][n] = s->candidates[0].id;
        s->next_scores[first + n_next] = -INFINITY;
        s->from[first + n_next] = first;
    }
    s->beams[row].done = !alive || is_done(s, &s->beams[row], s->next_scores[first], n_new + 1);
    return TREADLE_OK;
}

static void swap_beams(search *s) {
    int32_t **ids = s->ids;
    float *scores = s->scores;
    s->ids = s->next;
    s->next = ids;
    s->scores = s->next_scores;
    s->next_scores = scores;
}

/* One token for every row that is not done. */
static treadle_status step(search *s, int64_t n_new, bool *going, treadle_error *err) {
    td_generation *g = s->g;
    if (!make_room(s, n_new)) return td_fail_memory(err, "tokens of beams", 0);
    for (size_t i = 0; i < s->n_all; i++) {
        size_t row = i / s->n_beams;
        s->rows[i].live = !s->beams[row].done && (n_new > 0 || i % s->n_beams == 0);
        s->rows[i].ids = s->ids[i];
        s->rows[i].n_ids = g->timelines[row].n + n_new;
    }
    TD_TRY(td_exec_forward(s->exec, s->rows, err));
    if (!g->sampler.vocab) TD_TRY(td_sampler_init(&g->sampler, (size_t)s->exec->vocab, err));
    if (!s->processed && !(s->processed = td_alloc_array(g->sampler.vocab, sizeof *s->processed)))
        return td_fail_memory(err, "scores", g->sampler.vocab * sizeof *s->processed);
    *going = false;
    for (size_t row = 0; row < s->n_rows; row++) {
        size_t first = row * s->n_beams;
        bool done = s->beams[row].done;
        for (size_t i = first; i < first + s->n_beams; i++) {
            s->rows[i].prompt = s->rows[i].fresh_requests = false;
            if (!done) continue;
            s->from[i] = i; /* stays as it is; its ids are not read again */
            s->next_scores[i] = s->scores[i];
        }
        if (done) continue;
        find_candidates(s, row, n_new);
        TD_TRY(advance_row(s, row, n_new, err));
        *going |= !s->beams[row].done;
    }
    swap_beams(s);
    return *going ? td_exec_gather(s->exec, s->from, err) : TREADLE_OK;
}

/* --- the end */

static int by_score(const void *a, const void *b) {
    double x = ((const td_sequence_found *)a)->score, y = ((const td_sequence_found *)b)->score;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The closed sequences of a row, best first, become the timeline's. */
static void close_row(search *s, size_t row) {
    td_generation *g = s->g;
    td_timeline *t = &g->timelines[row];
    row_beams *b = &s->beams[row];
    if (b->closed) return;
    qsort(b->found, b->n_found, sizeof *b->found, by_score);
    size_t wanted = TD_MIN(b->n_found, (size_t)g->options.beam.num_return_sequences);
    while (b->n_found > wanted) td_free(b->found[--b->n_found].ids);
    td_timeline_drop_sequences(t);
    t->sequences = b->found;
    t->n_sequences = b->n_found;
    b->found = NULL;
    b->n_found = 0;
}

/* The best sequence becomes the timeline's; the caller hears of it token by token. */
static treadle_status take_best(const search *s, size_t row, td_sink_fn *sink, void *ctx, treadle_error *err) {
    td_generation *g = s->g;
    td_timeline *t = &g->timelines[row];
    if (s->beams[row].closed || !t->n_sequences) return TREADLE_OK;
    const td_sequence_found *best = &t->sequences[0];
    TD_TRY(td_timeline_grow(t, t->n + (int64_t)best->n, err));
    for (size_t i = 0; i < best->n; i++) {
        treadle_finish finish = i + 1 < best->n ? TREADLE_FINISH_NONE
                                : best->ended   ? TREADLE_FINISH_EOS
                                                : TREADLE_FINISH_LENGTH;
        t->ids[t->n++] = best->ids[i];
        t->finish = finish;
        g->new_tokens++;
        td_verdict verdict = sink ? sink(ctx, row, best->ids[i], finish, err) : TD_VERDICT_CONTINUE;
        if (verdict == TD_VERDICT_FAIL) return err && err->code ? err->code : TREADLE_RUN;
        if (verdict == TD_VERDICT_CANCEL) return td_fail(err, TREADLE_CANCELLED, "cancelled");
    }
    g->rows[row].logits = NULL;
    return TREADLE_OK;
}

static treadle_status open_search(search *s, treadle_error *err) {
    td_generation *g = s->g;
    if (!alloc_beams(s)) return td_fail_memory(err, "beams", 0);
    TD_TRY(td_exec_new(g->runtime, s->n_all, &s->exec, err));
    td_interrupt_join(&g->interrupt, s->exec);
    for (size_t i = 0; i < s->n_all; i++) {
        td_generation_fill_row(g, i / s->n_beams);
        s->rows[i] = g->rows[i / s->n_beams];
        s->rows[i].prompt = true;
        s->rows[i].fresh_requests = g->timelines[i / s->n_beams].had_requests;
    }
    for (size_t r = 0; r < s->n_rows; r++)
        s->beams[r].done = s->beams[r].closed = g->timelines[r].finish != TREADLE_FINISH_NONE;
    return TREADLE_OK;
}

static treadle_status run_search(search *s, int64_t *n_new, treadle_error *err) {
    td_generation *g = s->g;
    bool going = true;
    for (*n_new = 0; going && *n_new < s->limit; ++*n_new) {
        if (td_interrupted(&g->interrupt)) return td_fail(err, TREADLE_CANCELLED, "cancelled");
        uint64_t begin = td_time_ns();
        treadle_status status = step(s, *n_new, &going, err);
        *(*n_new ? &g->decode_ns : &g->prefill_ns) += td_time_ns() - begin;
        if (status != TREADLE_OK) return status;
        if (*n_new) g->decode_steps++;
    }
    return TREADLE_OK;
}

/* The most new tokens that every row that goes on has room for. */
static int64_t room(const td_generation *g, int64_t limit) {
    for (size_t r = 0; r < g->n_rows; r++) {
        int64_t left = g->options.max_length - g->timelines[r].n;
        if (g->timelines[r].finish == TREADLE_FINISH_NONE) limit = limit < 0 ? left : TD_MIN(limit, left);
    }
    return limit;
}

static void end_rows(td_generation *g, treadle_finish finish) {
    for (size_t r = 0; r < g->n_rows; r++)
        if (g->timelines[r].finish == TREADLE_FINISH_NONE) g->timelines[r].finish = finish;
}

treadle_status td_generation_beam(td_generation *g, int64_t limit, td_sink_fn *sink, void *ctx, treadle_error *err) {
    size_t n_beams = (size_t)g->options.beam.num_beams, n_eos = TD_MIN(g->options.sample.n_eos, (size_t)64);
    search s = {.g = g, .n_rows = g->n_rows, .n_beams = n_beams, .n_all = g->n_rows * n_beams, .limit = room(g, limit)};
    treadle_error problem = {0};
    int64_t n_new = 0;
    s.n_candidates = TD_MAX((size_t)2, 1 + n_eos) * n_beams;
    for (size_t r = 0; r < g->n_rows; r++)
        if (g->timelines[r].finish == TREADLE_FINISH_NONE) td_timeline_drop_sequences(&g->timelines[r]);
    td_interrupt_begin_run(&g->interrupt);
    treadle_status status = open_search(&s, &problem);
    if (status == TREADLE_OK) status = run_search(&s, &n_new, &problem);
    for (size_t r = 0; status == TREADLE_OK && r < g->n_rows; r++) close_row(&s, r);
    for (size_t r = 0; status == TREADLE_OK && r < g->n_rows; r++) status = take_best(&s, r, sink, ctx, &problem);
    for (size_t i = 0; s.exec && i < g->runtime->plan->n_sessions; i++) g->exec->runs[i] += s.exec->runs[i];
    free_search(&s);
    td_interrupt_end_run(&g->interrupt);
    if (status == TREADLE_OK) return TREADLE_OK;
    end_rows(g, status == TREADLE_CANCELLED ? TREADLE_FINISH_CANCELLED : TREADLE_FINISH_ERROR);
    if (status == TREADLE_CANCELLED) return TREADLE_OK;
    if (err) *err = problem;
    return status;
}
