/* light/alias.c - which input of a run, if any, lies in the memory of a bound output: caches that grow in place.
 *
 * The spans of the inputs are kept sorted by address from run to run, so thousands of caches
 * cost a search each, not a scan. */
#include "light/session.h"

#include <stdlib.h>

static int by_begin(const void *a, const void *b) {
    const td_span *x = a, *y = b;
    return (x->at.begin > y->at.begin) - (x->at.begin < y->at.begin);
}

void td_alias_begin(td_light_ctx *ctx) {
    size_t n = ctx->light->graph.n_inputs;
    td_span *spans = ctx->spans;
    bool sorted = true;
    for (size_t i = 0; i < n; i++) {
        td_extent e = ctx->input_extents[spans[i].input];
        spans[i].at = e.begin == e.end ? (td_extent){UINTPTR_MAX, UINTPTR_MAX} : e; /* empty ones are last */
        sorted &= i == 0 || spans[i - 1].at.begin <= spans[i].at.begin;
    }
    if (!sorted) qsort(spans, n, sizeof *spans, by_begin);
    for (size_t i = 0; i < n; i++)
        spans[i].most_end = i ? TD_MAX(spans[i - 1].most_end, spans[i].at.end) : spans[i].at.end;
}

bool td_same_strides(const td_tensor *a, const td_tensor *b) {
    if (a->dtype != b->dtype || a->shape.rank != b->shape.rank) return false;
    for (int d = 0; d < a->shape.rank; d++)
        if (a->strides[d] != b->strides[d]) return false;
    return true;
}

int32_t td_alias_find(const td_light_ctx *ctx, const td_value *inputs, const td_tensor *to, td_extent own) {
    const td_span *spans = ctx->spans;
    size_t low = 0, high = ctx->light->graph.n_inputs;
    int32_t found = TD_ALIAS_NONE;
    while (low < high) { /* the first span that begins behind this memory */
        size_t middle = low + (high - low) / 2;
        if (spans[middle].at.begin < own.end) low = middle + 1;
        else high = middle;
    }
    for (size_t k = low; k-- > 0 && spans[k].most_end > own.begin;) {
        if (spans[k].at.end <= own.begin) continue;
        const td_tensor *in = &inputs[spans[k].input].tensor;
        if (found != TD_ALIAS_NONE || in->data != to->data || !td_same_strides(in, to)) return TD_ALIAS_OVERLAPS;
        found = spans[k].input;
    }
    return found;
}
