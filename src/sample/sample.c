/* sample/sample.c - processors and the draw.
 *
 * Filters keep a set of candidates. top_k and top_p take the best ones off a heap, which costs no full sort of the
 * vocabulary. Sums are in double, so that the result does not depend on the order of candidates by more than the last
 * bit. Source: transformers 5, generation/logits_process.py (RepetitionPenalty, NoRepeatNGram, MinLength, Temperature,
 * TopK, TopP, MinP LogitsWarper). */
#include "sample/sample.h"

#include "base/alloc.h"

#include <float.h>
#include <math.h>
#include <string.h>

treadle_status td_sampler_init(td_sampler *sampler, size_t vocab, treadle_error *err) {
    *sampler = (td_sampler){.vocab = vocab};
    sampler->scores = td_alloc_array(vocab, sizeof *sampler->scores);
    sampler->candidates = td_alloc_array(vocab, sizeof *sampler->candidates);
    sampler->seen = td_alloc_zero(vocab, sizeof *sampler->seen);
    if (sampler->scores && sampler->candidates && sampler->seen) return TREADLE_OK;
    td_sampler_free(sampler);
    return td_fail_memory(err, "a sampler", vocab * 16);
}

void td_sampler_free(td_sampler *sampler) {
    td_free(sampler->scores);
    td_free(sampler->candidates);
    td_free(sampler->seen);
    *sampler = (td_sampler){0};
}

static treadle_status fail_range(treadle_error *err, const char *name, const char *range, double found) {
    return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected a %s %s, found %g", name, range, found);
}

treadle_status td_sample_params_check(const td_sample_params *p, treadle_error *err) {
    if (!(p->temperature >= 0 && p->temperature <= 1e6))
        return fail_range(err, "temperature", "from 0 to 1e6", p->temperature);
    if (p->top_k < 0) return fail_range(err, "top_k", "of at least 0", (double)p->top_k);
    if (!(p->top_p >= 0 && p->top_p <= 1)) return fail_range(err, "top_p", "from 0 to 1", p->top_p);
    if (!(p->min_p >= 0 && p->min_p <= 1)) return fail_range(err, "min_p", "from 0 to 1", p->min_p);
    if (!(p->repetition_penalty >= 1e-30 && p->repetition_penalty <= 1e30))
        return fail_range(err, "repetition_penalty", "above 0 (1e-30 to 1e30)", p->repetition_penalty);
    if (p->no_repeat_ngram_size < 0)
        return fail_range(err, "no_repeat_ngram_size", "of at least 0", (double)p->no_repeat_ngram_size);
    if (p->min_length < 0) return fail_range(err, "min_length", "of at least 0", (double)p->min_length);
    return TREADLE_OK;
}

int64_t td_argmax(const float *values, size_t n) {
    /* Sixteen running maxima let the compiler use vectors; a comparison with NaN is false, so NaN never gets in. */
    enum { LANES = 16 };
    float best[LANES];
    for (size_t k = 0; k < LANES; k++) best[k] = -INFINITY;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t k = 0; k < LANES; k++) best[k] = values[i + k] > best[k] ? values[i + k] : best[k];
    for (; i < n; i++) best[0] = values[i] > best[0] ? values[i] : best[0];
    float max = best[0];
    for (size_t k = 1; k < LANES; k++) max = best[k] > max ? best[k] : max;
    if (max == -INFINITY) return -1;
    for (i = 0; i < n; i++)
        if (values[i] == max) return (int64_t)i;
    return -1;
}

/* --- processors over scores[vocab] */

static void penalise_repetition(td_sampler *s, float penalty, const int32_t *sequence, size_t n) {
    if (++s->stamp == 0) { /* wrapped: old stamps would look new */
        memset(s->seen, 0, s->vocab * sizeof *s->seen);
        s->stamp = 1;
    }
    for (size_t i = 0; i < n; i++) {
        size_t id = (size_t)sequence[i];
        if (sequence[i] < 0 || id >= s->vocab || s->seen[id] == s->stamp) continue;
        s->seen[id] = s->stamp;
        s->scores[id] = s->scores[id] < 0 ? s->scores[id] * penalty : s->scores[id] / penalty;
    }
}

static void forbid(td_sampler *s, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= 0 && (size_t)ids[i] < s->vocab) s->scores[ids[i]] = -INFINITY;
}

static bool ends_in(td_sequence_so_far q, const int32_t *ids, size_t n) {
    return n == 0 || memcmp(q.ids + (q.n - n), ids, n * sizeof *ids) == 0; /* an empty sequence may be NULL */
}

/* What would end the sequence in an n-gram of a text. */
static void ban_ngrams(td_sampler *s, int64_t ngram, const int32_t *text, size_t n_text, td_sequence_so_far q) {
    if (ngram <= 0 || (uint64_t)ngram > q.n + 1) return;
    size_t before = (size_t)ngram - 1;
    for (size_t i = 0; i + before < n_text; i++)
        if (ends_in(q, text + i, before)) forbid(s, text + i + before, 1);
}

static bool is_end(const td_sample_params *p, int32_t id) {
    for (size_t i = 0; i < p->n_eos; i++)
        if (p->eos[i] == id) return true;
    return false;
}

/* The last ids of words whose other ids the sequence ends in; an end token is no word. */
static void ban_words(td_sampler *s, const td_sample_params *p, td_sequence_so_far q) {
    for (size_t i = 0, next; i < p->n_bad_words; i = next) {
        const int32_t *word = p->bad_words + i;
        size_t n = 0;
        while (word[n] >= 0) n++;
        next = i + n + 1;
        if (!n || n > q.n + 1 || (n == 1 && is_end(p, word[0]))) continue;
        if (ends_in(q, word, n - 1)) forbid(s, word + n - 1, 1);
    }
}

static bool is_early(const td_sample_params *p, td_sequence_so_far q) {
    return (p->min_length > 0 && (uint64_t)p->min_length > q.n) ||
           (p->min_new_tokens > 0 && (uint64_t)p->min_new_tokens > q.n - q.n_prompt);
}

/* Returns false if no processor that also binds greedy choice does anything here. */
static bool has_penalties(const td_sample_params *p, td_sequence_so_far q) {
    return p->repetition_penalty != 1 || p->no_repeat_ngram_size > 0 || (p->source_ngram_size > 0 && q.n_source) ||
           p->n_bad_words || is_early(p, q) || p->n_suppress || p->timestamps ||
           (p->n_begin_suppress && q.n == q.n_prompt) || (p->forces_first && q.n == q.n_prompt) || p->forces_last;
}

static void force(td_sampler *s, int32_t id) {
    if (id < 0 || (size_t)id >= s->vocab) return;
    for (size_t i = 0; i < s->vocab; i++) s->scores[i] = -INFINITY;
    s->scores[id] = 0;
}

/* Over scores[vocab], which hold logits or log probabilities. */
static void penalise(td_sampler *s, const td_sample_params *p, td_sequence_so_far q) {
    if (p->repetition_penalty != 1) penalise_repetition(s, (float)p->repetition_penalty, q.ids, q.n);
    ban_ngrams(s, p->no_repeat_ngram_size, q.ids, q.n, q);
    ban_ngrams(s, p->source_ngram_size, q.source, q.n_source, q);
    ban_words(s, p, q);
    if (is_early(p, q)) forbid(s, p->eos, p->n_eos);
    forbid(s, p->suppress, p->n_suppress);
    if (q.n == q.n_prompt) forbid(s, p->begin_suppress, p->n_begin_suppress);
    if (p->timestamps) td_sample_apply_timestamps(p->timestamps, s->scores, s->vocab, q);
    if (p->forces_first && q.n == q.n_prompt) force(s, p->forced_first);
    if (p->forces_last && q.limit == q.n + 1) force(s, p->forced_last);
}

/* --- candidates: a heap with the best at 0; what was taken off stands behind it, the best last */

static bool better(td_candidate a, td_candidate b) { return a.score > b.score || (a.score == b.score && a.id < b.id); }

static void sift_down(td_candidate *heap, size_t n, size_t i) {
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n) return;
        if (child + 1 < n && better(heap[child + 1], heap[child])) child++;
        if (!better(heap[child], heap[i])) return;
        td_candidate t = heap[i];
        heap[i] = heap[child];
        heap[child] = t;
        i = child;
    }
}

static void make_heap(td_candidate *heap, size_t n) {
    for (size_t i = n / 2; i-- > 0;) sift_down(heap, n, i);
}

static void take_best(td_candidate *heap, size_t *n) {
    td_candidate best = heap[0];
    heap[0] = heap[--*n];
    heap[*n] = best;
    sift_down(heap, *n, 0);
}

static double weight(float score, float max) { return exp((double)score - (double)max); }

/* The candidates that stay: *first[*n], in any order. max is the best score. */
typedef struct kept_set {
    td_candidate *first;
    size_t n;
    float max;
} kept_set;

/* Takes the k best and those equal to the k-th off the heap. */
static kept_set keep_top_k(td_candidate *heap, size_t n, size_t k, float max) {
    size_t left = n;
    make_heap(heap, left);
    for (size_t i = 0; i < k && left > 0; i++) take_best(heap, &left);
    while (left > 0 && heap[0].score == heap[left].score) take_best(heap, &left);
    return (kept_set){heap + left, n - left, max};
}

/* The smallest set of best ones whose mass reaches p; one at least. `sorted`: the best is last, as after keep_top_k. */
static kept_set keep_top_p(kept_set set, double p, bool sorted, size_t vocab) {
    double total = 0, above = 0;
    for (size_t i = 0; i < set.n; i++) total += weight(set.first[i].score, set.max);
    if (sorted) {
        size_t n = 0;
        do above += weight(set.first[set.n - 1 - n++].score, set.max) / total;
        while (n < set.n && above < p);
        return (kept_set){set.first + (set.n - n), n, set.max};
    }
    /* Tokens below (1 - p) / vocab together weigh less than 1 - p, so none of them can stay: the heap is small. */
    double floor_weight = (1 - p) / (double)vocab * total;
    size_t n = 0;
    for (size_t i = 0; i < set.n; i++)
        if (weight(set.first[i].score, set.max) >= floor_weight) set.first[n++] = set.first[i];
    size_t left = n;
    make_heap(set.first, left);
    do {
        take_best(set.first, &left);
        above += weight(set.first[left].score, set.max) / total;
    } while (left > 0 && above < p);
    return (kept_set){set.first + left, n - left, set.max};
}

static kept_set keep_min_p(kept_set set, double min_p) {
    size_t n = 0;
    for (size_t i = 0; i < set.n; i++) /* the best one has weight 1 */
        if (weight(set.first[i].score, set.max) >= min_p) set.first[n++] = set.first[i];
    set.n = n;
    return set;
}

/* Every token that has a score: (score - base) / scale. */
static kept_set candidates_of(td_sampler *s, float base, float scale) {
    kept_set set = {s->candidates, 0, -INFINITY};
    for (size_t i = 0; i < s->vocab; i++) {
        float score = (s->scores[i] - base) / scale;
        if (!(score > -INFINITY)) continue; /* banned, or NaN */
        if (score > set.max) set.max = score;
        s->candidates[set.n++] = (td_candidate){score, (int32_t)i};
    }
    return set;
}

/* Runs all processors. n = 0: nothing has a probability. */
static kept_set process(td_sampler *s, const td_sample_params *p, const float *logits, td_sequence_so_far q) {
    memcpy(s->scores, logits, s->vocab * sizeof *s->scores);
    penalise(s, p, q);
    float scale = p->temperature > 0 ? TD_MAX((float)p->temperature, FLT_MIN) : 1.0f;
    kept_set set = candidates_of(s, 0, scale);
    if (set.max == INFINITY) { /* a small temperature: from the best one down nothing grows */
        int64_t best = td_argmax(s->scores, s->vocab);
        if (s->scores[best] < INFINITY) set = candidates_of(s, s->scores[best], scale);
    }
    if (!set.n || set.max == INFINITY) return (kept_set){s->candidates, 0, set.max};
    bool cut = p->top_k > 0 && (uint64_t)p->top_k < set.n;
    if (cut) set = keep_top_k(set.first, set.n, (size_t)p->top_k, set.max);
    if (p->top_p < 1) set = keep_top_p(set, p->top_p, cut, s->vocab);
    if (p->min_p > 0) set = keep_min_p(set, p->min_p);
    return set;
}

static treadle_status no_candidate(treadle_error *err) {
    return td_fail(err, TREADLE_RUN, "no token can be chosen: every logit is NaN, infinite or forbidden");
}

treadle_status td_sampler_choose(td_sampler *s, const td_sample_params *p, const float *logits, td_sequence_so_far q,
                                 td_rng *rng, int32_t *out, treadle_error *err) {
    if (!p->do_sample || p->temperature == 0 || p->top_k == 1) {
        const float *scores = logits;
        if (has_penalties(p, q)) {
            memcpy(s->scores, logits, s->vocab * sizeof *s->scores);
            penalise(s, p, q);
            scores = s->scores;
        }
        int64_t best = td_argmax(scores, s->vocab);
        if (best < 0) return no_candidate(err);
        *out = (int32_t)best;
        return TREADLE_OK;
    }
    kept_set set = process(s, p, logits, q);
    if (!set.n) return no_candidate(err);
    double total = 0;
    for (size_t i = 0; i < set.n; i++) total += weight(set.first[i].score, set.max);
    double left = td_rng_double(rng) * total;
    size_t i = 0;
    for (; i + 1 < set.n; i++) {
        left -= weight(set.first[i].score, set.max);
        if (left < 0) break;
    }
    *out = set.first[i].id;
    return TREADLE_OK;
}

treadle_status td_sampler_distribution(td_sampler *s, const td_sample_params *p, const float *logits,
                                       td_sequence_so_far q, float *probabilities, int64_t *out_kept,
                                       treadle_error *err) {
    kept_set set = process(s, p, logits, q);
    if (!set.n) return no_candidate(err);
    double total = 0;
    for (size_t i = 0; i < set.n; i++) total += weight(set.first[i].score, set.max);
    for (size_t i = 0; i < s->vocab; i++) probabilities[i] = 0;
    int64_t kept = 0;
    for (size_t i = 0; i < set.n; i++) {
        float probability = (float)(weight(set.first[i].score, set.max) / total);
        probabilities[set.first[i].id] = probability;
        if (probability > 0) kept++;
    }
    *out_kept = kept;
    return TREADLE_OK;
}

void td_sampler_log_scores(td_sampler *s, const td_sample_params *p, const float *logits, td_sequence_so_far q,
                           float *scores) {
    int64_t best = td_argmax(logits, s->vocab);
    float max = best < 0 ? 0 : logits[best];
    double total = 0;
    for (size_t i = 0; i < s->vocab; i++) total += exp((double)logits[i] - max);
    double log_total = log(total) + max;
    for (size_t i = 0; i < s->vocab; i++) s->scores[i] = (float)((double)logits[i] - log_total);
    penalise(s, p, q);
    memcpy(scores, s->scores, s->vocab * sizeof *scores);
}
