/* template/sort.c - stable sorting by any key, as Python's sorted(). */
#include "text/template/value.h"

typedef struct entry {
    td_val key, value;
} entry;

typedef struct sorter {
    td_tpl *r;
    entry *from, *to;
    bool reverse;
} sorter;

/* Merges from[a..b) and from[b..c) into to; the right side goes first only if it must. */
static bool merge(sorter *s, uint32_t a, uint32_t b, uint32_t c) {
    uint32_t left = a, right = b;
    for (uint32_t i = a; i < c; i++) {
        bool take_right = left == b;
        if (left < b && right < c) {
            int order;
            td_val x = s->from[left].key, y = s->from[right].key;
            if (s->reverse ? td_v_compare(s->r, x, y, "<", &order) < 0 : td_v_compare(s->r, y, x, "<", &order) < 0)
                return false;
            take_right = order < 0;
        }
        s->to[i] = s->from[take_right ? right++ : left++];
    }
    return true;
}

bool td_v_sort(td_tpl *r, td_tpl_list *l, td_tpl_key_fn *key, void *ctx, bool reverse) {
    if (!td_tpl_steps(r, l->n)) return false;
    sorter s = {.r = r, .reverse = reverse};
    s.from = td_tpl_alloc_array(r, l->n, sizeof *s.from);
    s.to = td_tpl_alloc_array(r, l->n, sizeof *s.to);
    if (!s.from || !s.to) return false;
    for (uint32_t i = 0; i < l->n; i++) {
        s.from[i] = (entry){key ? key(r, l->items[i], ctx) : l->items[i], l->items[i]};
        if (TD_V_FAILED(s.from[i].key)) return false;
    }
    for (uint64_t width = 1; width < l->n; width *= 2) {
        for (uint64_t a = 0; a < l->n; a += 2 * width) {
            uint32_t b = (uint32_t)TD_MIN(a + width, l->n), c = (uint32_t)TD_MIN(a + 2 * width, l->n);
            if (!merge(&s, (uint32_t)a, b, c)) return false;
        }
        entry *swap = s.from;
        s.from = s.to;
        s.to = swap;
    }
    for (uint32_t i = 0; i < l->n; i++) l->items[i] = s.from[i].value;
    return true;
}
