/* tensor/shape.c - see shape.h. */
#include "tensor/shape.h"

#include <stdio.h>

bool td_shape_equal(const td_shape *a, const td_shape *b) {
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}

bool td_shape_count(const td_shape *s, int64_t *out) {
    int64_t count = 1;
    bool empty = false;
    if (!td_shape_known(s)) return false;
    for (int i = 0; i < s->rank; i++) {
        empty |= s->dims[i] == 0;
        if (TD_MUL_OVERFLOWS(count, TD_MAX(s->dims[i], (int64_t)1), &count) || count > TD_MAX_COUNT) return false;
    }
    *out = empty ? 0 : count;
    return true;
}

/* One dimension; a known size above 1 decides against an unknown one, since the other must be 1 or equal. */
static bool broadcast_dim(int64_t a, int64_t b, int64_t *out) {
    if (a == b || b == 1) *out = a;
    else if (a == 1) *out = b;
    else if (a < 0 && b < 0) *out = TD_DIM_UNKNOWN;
    else if (a < 0) *out = b;
    else if (b < 0) *out = a;
    else return false;
    return true;
}

bool td_shape_broadcast(const td_shape *a, const td_shape *b, td_shape *out) {
    td_shape result = {.rank = TD_MAX(a->rank, b->rank)};
    if (a->rank < 0 || b->rank < 0) {
        *out = (td_shape){.rank = -1};
        return true;
    }
    for (int i = 0; i < result.rank; i++) {
        int ai = i - (result.rank - a->rank), bi = i - (result.rank - b->rank);
        if (!broadcast_dim(ai < 0 ? 1 : a->dims[ai], bi < 0 ? 1 : b->dims[bi], &result.dims[i])) return false;
    }
    *out = result;
    return true;
}

const char *td_shape_text(const td_shape *s, char out[128]) {
    size_t at = 0;
    if (s->rank < 0) {
        snprintf(out, 128, "[...]");
        return out;
    }
    out[at++] = '[';
    for (int i = 0; i < s->rank && at < 100; i++) { /* 8 dimensions of 20 digits do not fit: cut */
        int n;
        if (s->dims[i] >= 0) n = snprintf(out + at, 128 - at, "%s%lld", i ? ", " : "", (long long)s->dims[i]);
        else if (s->dims[i] == TD_DIM_UNKNOWN) n = snprintf(out + at, 128 - at, "%s?", i ? ", " : "");
        else n = snprintf(out + at, 128 - at, "%ss%u", i ? ", " : "", (unsigned)TD_DIM_SYMBOL_ID(s->dims[i]));
        at += (size_t)TD_MAX(n, 0);
    }
    snprintf(out + at, 128 - at, "]");
    return out;
}
