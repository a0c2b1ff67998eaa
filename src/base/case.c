/* base/case.c - upper and lower case of single characters, whatever the locale. Source: Unicode's simple case
 * mappings. */
#include "base/utf8.h"

typedef struct case_range {
    uint32_t first, last, step;
    int32_t delta;
} case_range;

#define TD_UPPER(first, last, step, delta)
static const case_range lower[] = {
#define TD_LOWER(first, last, step, delta) {first, last, step, delta},
#include "base/case.inc"
};
#undef TD_LOWER
#undef TD_UPPER

#define TD_LOWER(first, last, step, delta)
static const case_range upper[] = {
#define TD_UPPER(first, last, step, delta) {first, last, step, delta},
#include "base/case.inc"
};
#undef TD_LOWER
#undef TD_UPPER

static uint32_t map(const case_range *ranges, size_t n, uint32_t c) {
    size_t low = 0, high = n; /* the first range that does not end before c */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges[middle].last < c) low = middle + 1;
        else high = middle;
    }
    if (low == n || c < ranges[low].first || (c - ranges[low].first) % ranges[low].step) return c;
    return (uint32_t)((int64_t)c + ranges[low].delta);
}

uint32_t td_utf8_lower(uint32_t c) {
    if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
    return map(lower, TD_COUNT(lower), c);
}

uint32_t td_utf8_upper(uint32_t c) {
    if (c < 0x80) return c >= 'a' && c <= 'z' ? c - 32 : c;
    return map(upper, TD_COUNT(upper), c);
}
