/* light/memplan.c - liveness to offsets: where in the ctx's one slab each value and each step's scratch lies.
 *
 * Sizes are those that earlier runs asked for (td_demand); the first run of a ctx lives on blocks and teaches them.
 * Values that were computed over one another share an item. Items are placed largest first, each into the tightest gap
 * that is free during its whole life (greedy by size; Pisarchyk and Lee, arXiv:2001.03288). */
#include "light/session.h"

#include "base/alloc.h"

#include <stdlib.h>

typedef struct item {
    int32_t value; /* the group's first value, or TD_NO_VALUE: the scratch of step `first` */
    int32_t first, last;
    size_t bytes, offset;
} item;

static int larger_first(const void *a, const void *b) {
    const item *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return (x->first > y->first) - (x->first < y->first);
}

static int by_offset(const void *a, const void *b) {
    const item *x = *(item *const *)a, *y = *(item *const *)b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Placed items that live at the same time are visited by rising offset; the smallest gap that is enough wins. */
static void place(item *items, size_t n, item **overlapping, size_t *slab_bytes) {
    qsort(items, n, sizeof *items, larger_first);
    for (size_t i = 0; i < n; i++) {
        item *it = &items[i];
        size_t n_over = 0, end = 0, best = SIZE_MAX, best_gap = SIZE_MAX;
        for (size_t k = 0; k < i; k++)
            if (items[k].first <= it->last && it->first <= items[k].last) overlapping[n_over++] = &items[k];
        qsort(overlapping, n_over, sizeof *overlapping, by_offset);
        for (size_t k = 0; k < n_over; k++) {
            if (overlapping[k]->offset > end) {
                size_t gap = overlapping[k]->offset - end;
                if (gap >= it->bytes && gap < best_gap) {
                    best = end;
                    best_gap = gap;
                }
            }
            end = TD_MAX(end, overlapping[k]->offset + overlapping[k]->bytes);
        }
        it->offset = best == SIZE_MAX ? end : best;
        *slab_bytes = TD_MAX(*slab_bytes, it->offset + it->bytes);
    }
}

/* The value at the bottom of a stack of in-place results. What was learned with other outputs skipped may not hold
 * here: the value below must die where the one above is made. */
static int32_t group_of(const td_light_ctx *ctx, const td_program *p, int32_t id) {
    for (;;) {
        int32_t below = ctx->demands[id].over;
        if (ctx->demands[id].never_over || below == TD_NO_VALUE || p->defined[below] < 0 ||
            p->last[below] != p->defined[id])
            return id;
        id = below;
    }
}

static size_t collect(td_light_ctx *ctx, td_program *p, item *items, int32_t *item_of) {
    size_t n_values = ctx->light->graph.values.n, n = 0;
    for (size_t i = 0; i < n_values; i++) item_of[i] = -1;
    for (size_t i = 0; i < n_values; i++) {
        if (p->defined[i] < 0 || (!ctx->demands[i].bytes && ctx->demands[i].over == TD_NO_VALUE)) continue;
        int32_t group = group_of(ctx, p, (int32_t)i);
        size_t bytes = TD_ROUND_UP(TD_MAX(ctx->demands[i].bytes, ctx->demands[group].bytes), (size_t)64);
        if (!bytes) continue;
        if (item_of[group] < 0) {
            item_of[group] = (int32_t)n;
            items[n++] = (item){group, p->defined[group], p->last[group], bytes, 0};
        }
        item *it = &items[item_of[group]];
        it->bytes = TD_MAX(it->bytes, bytes);
        it->last = TD_MAX(it->last, p->last[i]);
    }
    for (size_t s = 0; s < p->n_steps; s++)
        if (p->scratch_demand[s])
            items[n++] = (item){TD_NO_VALUE, (int32_t)s, (int32_t)s, TD_ROUND_UP(p->scratch_demand[s], (size_t)64), 0};
    return n;
}

static void write_slots(td_light_ctx *ctx, td_program *p, const item *items, size_t n, int32_t *item_of) {
    size_t n_values = ctx->light->graph.values.n;
    for (size_t i = 0; i < n_values; i++) item_of[i] = -1; /* the sort has moved them */
    for (size_t k = 0; k < n; k++) {
        if (items[k].value == TD_NO_VALUE)
            p->scratch[items[k].first] = (td_slot){items[k].offset, items[k].bytes, TD_NO_VALUE, false};
        else item_of[items[k].value] = (int32_t)k;
    }
    for (size_t i = 0; i < n_values; i++) {
        p->slots[i].group = TD_NO_VALUE;
        if (p->defined[i] < 0) continue;
        int32_t group = group_of(ctx, p, (int32_t)i);
        if (item_of[group] < 0 || (!ctx->demands[i].bytes && ctx->demands[i].over == TD_NO_VALUE)) continue;
        const item *it = &items[item_of[group]];
        p->slots[i] = (td_slot){it->offset, it->bytes, group, group != (int32_t)i};
    }
}

treadle_status td_program_plan(td_light_ctx *ctx, td_program *p, treadle_error *err) {
    size_t n_values = ctx->light->graph.values.n, most = n_values + p->n_steps;
    td_arena_free(&p->plan_arena);
    p->slots = TD_ARENA_ARRAY(&p->plan_arena, td_slot, n_values);
    p->scratch = TD_ARENA_ARRAY(&p->plan_arena, td_slot, p->n_steps);
    item *items = td_alloc_array(most, sizeof *items);
    item **overlapping = td_alloc_array(most, sizeof *overlapping);
    int32_t *item_of = td_alloc_array(n_values, sizeof *item_of);
    bool ok = p->slots && p->scratch && items && overlapping && item_of;
    if (ok) {
        size_t n = collect(ctx, p, items, item_of);
        p->slab_bytes = 0;
        place(items, n, overlapping, &p->slab_bytes);
        write_slots(ctx, p, items, n, item_of);
        p->planned_for = ctx->demand_version;
    } else {
        p->slots = p->scratch = NULL;
    }
    td_free(items);
    td_free(overlapping);
    td_free(item_of);
    return ok ? TREADLE_OK : td_fail_memory(err, "the memory plan", most * sizeof *items);
}
