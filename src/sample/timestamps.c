/* sample/timestamps.c - which tokens may follow in a transcript with times.
 *
 * Times come in pairs around a text and never run back: after text and one time another time or the end follows; after
 * two times, text; a time is at least the last one (later, where it closes a text that it opened). The first token is a
 * time, and not too late. When the times together are likelier than any text, a time is chosen.
 * Source: Radford et al. 2022, the authors' decoding rules; transformers states them as a logits processor. */
#include "sample/sample.h"

#include <math.h>

static void forbid(float *scores, int64_t first, int64_t end) {
    for (int64_t i = first; i < end; i++) scores[i] = -INFINITY;
}

/* log(sum(exp(scores))) of a range; -inf for an empty one. */
static double log_sum(const float *scores, int64_t first, int64_t end) {
    double max = -INFINITY, total = 0;
    for (int64_t i = first; i < end; i++) max = fmax(max, scores[i]);
    if (!(max > -INFINITY)) return -INFINITY;
    for (int64_t i = first; i < end; i++) total += exp((double)scores[i] - max);
    return max + log(total);
}

void td_sample_apply_timestamps(const td_timestamp_rules *rules, float *scores, size_t vocab, td_sequence_so_far q) {
    const int32_t *new = q.ids + q.n_prompt;
    int64_t n = (int64_t)(q.n - q.n_prompt), n_ids = (int64_t)vocab, begin = rules->begin;
    if (begin < 0 || begin >= n_ids) return;
    if (rules->no_timestamps >= 0 && rules->no_timestamps < n_ids) scores[rules->no_timestamps] = -INFINITY;
    bool last = n >= 1 && new[n - 1] >= begin, before = n < 2 || new[n - 2] >= begin;
    if (last && before) forbid(scores, begin, n_ids);
    else if (last) forbid(scores, 0, TD_MIN(rules->eos < 0 ? begin : (int64_t)rules->eos, begin));
    for (int64_t i = n; i-- > 0;) {
        if (new[i] < begin) continue;
        /* a time that closed its text may be repeated to open the next one */
        forbid(scores, begin, TD_MIN((int64_t) new[i] + (last && !before ? 0 : 1), n_ids));
        break;
    }
    if (n == 0) {
        forbid(scores, 0, begin);
        if (rules->max_initial >= 0) forbid(scores, TD_MIN(begin + rules->max_initial + 1, n_ids), n_ids);
    }
    double text = -INFINITY;
    for (int64_t i = 0; i < begin; i++) text = fmax(text, scores[i]);
    if (log_sum(scores, begin, n_ids) > text) forbid(scores, 0, begin);
}
