/* kernels/checker.h - what the tests of the kernel families share: every variant against the plain C reference.
 *
 * A family's test makes inputs (random and worst-case), lets the reference fill one guarded buffer and each variant
 * that this CPU and TREADLE_CPU allow fill another, and compares. Guards around each buffer catch writes outside of it,
 * odd offsets catch kernels that expect alignment they were not promised.
 *
 *     for (td_variant v = td_variant_first(td_fam_variants, td_fam_n_variants); v.name; v = td_variant_next(v)) {
 *         const td_fam_kernels *kernels = v.table;
 *         ...
 *     }
 *
 * Timing: with TREADLE_TIME=1 the same programs also print medians (td_time_median); never a pass or fail.
 */
#ifndef TD_TESTS_KERNELS_CHECKER_H
#define TD_TESTS_KERNELS_CHECKER_H

#include "base/alloc.h"
#include "base/time.h"
#include "kernels/kernel.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- variants that may run here --- */

typedef struct td_variant {
    const char *name; /* NULL: no more */
    const void *table;
    const td_kernel_variant *list;
    size_t n, i;
} td_variant;

static inline td_variant td_variant_from(const td_kernel_variant *list, size_t n, size_t i) {
    while (i < n && (list[i].needs & td_cpu_flags()) != list[i].needs) i++;
    if (i == n) return (td_variant){0};
    return (td_variant){list[i].name, list[i].table, list, n, i};
}
static inline td_variant td_variant_first(const td_kernel_variant *list, size_t n) {
    return td_variant_from(list, n, 0);
}
static inline td_variant td_variant_next(td_variant v) { return td_variant_from(v.list, v.n, v.i + 1); }

/* --- guarded memory --- */

enum { TD_GUARD_BYTES = 256, TD_GUARD_FILL = 0xA5 };

typedef struct td_guarded {
    uint8_t *memory; /* guard, data, guard */
    void *data;
    size_t bytes, lead;
} td_guarded;

/* `offset` bytes (0..64) past a 64-byte boundary. The data are filled like the guards, so that what a kernel fails to
 * write differs from the reference's. Leaves the test when out of memory. */
static inline td_guarded td_guarded_new(size_t bytes, size_t offset) {
    td_guarded g = {.bytes = bytes, .lead = TD_GUARD_BYTES + offset};
    g.memory = td_alloc_aligned(bytes + offset + 2 * TD_GUARD_BYTES);
    REQUIRE(g.memory != NULL);
    memset(g.memory, TD_GUARD_FILL, bytes + offset + 2 * TD_GUARD_BYTES);
    g.data = g.memory + g.lead;
    return g;
}

static inline bool td_guarded_intact(const td_guarded *g) {
    const uint8_t *after = g->memory + g->lead + g->bytes;
    bool intact = true;
    for (size_t i = 0; i < g->lead; i++) intact &= g->memory[i] == TD_GUARD_FILL;
    for (size_t i = 0; i < TD_GUARD_BYTES; i++) intact &= after[i] == TD_GUARD_FILL;
    return intact;
}

static inline void td_guarded_free(td_guarded *g) {
    td_free_aligned(g->memory);
    *g = (td_guarded){0};
}

/* --- inputs --- */

/* Kinds of fp32 input; a test runs over all of them or those that make sense. */
typedef enum td_fill {
    TD_FILL_NORMAL,  /* about -4..4, heavier near 0 */
    TD_FILL_WIDE,    /* magnitudes from 1e-6 to 1e4, both signs */
    TD_FILL_EXTREME, /* all at +max or -max of a block: saturates what can saturate */
    TD_FILL_ZERO,
    TD_FILL_TINY, /* subnormals and zeros */
    TD_N_FILLS,
} td_fill;

static inline void td_fill_f32(float *out, int64_t n, td_fill kind, uint64_t *seed) {
    for (int64_t i = 0; i < n; i++) {
        float u = td_test_random_f32(seed, -1, 1);
        switch (kind) {
        case TD_FILL_NORMAL: out[i] = 4 * u * u * u; break;
        case TD_FILL_WIDE: out[i] = (u < 0 ? -1.0f : 1.0f) * powf(10, 10 * fabsf(u) - 6); break;
        case TD_FILL_EXTREME:
            out[i] = td_test_random(seed) & 1 ? 3.0f : (td_test_random(seed) & 7 ? 3.0f : -3.0f);
            break;
        case TD_FILL_TINY: out[i] = td_test_random(seed) & 1 ? u * 0x1p-130f : 0; break;
        default: out[i] = 0;
        }
    }
}

/* --- comparison; both report the first difference and return whether there was none --- */

/* Bit for bit; any NaN equals any NaN. */
static inline bool td_same_bits_f32(const char *what, const float *got, const float *want, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (memcmp(&got[i], &want[i], sizeof(float)) == 0 || (isnan(got[i]) && isnan(want[i]))) continue;
        FAIL("%s: [%lld] is %.9g (%a), expected %.9g (%a)", what, (long long)i, (double)got[i], (double)got[i],
             (double)want[i], (double)want[i]);
        return false;
    }
    return true;
}

/* |got - want| <= tolerance[i] (an array, or one number when stride is 0); equal infinities
 * and NaN against NaN are fine. */
static inline bool td_near_f32(const char *what, const float *got, const float *want, int64_t n, const float *tolerance,
                               int64_t stride) {
    for (int64_t i = 0; i < n; i++) {
        if (got[i] == want[i] || (isnan(got[i]) && isnan(want[i]))) continue;
        if (fabsf(got[i] - want[i]) <= tolerance[i * stride]) continue;
        FAIL("%s: [%lld] is %.9g, expected %.9g +- %.3g", what, (long long)i, (double)got[i], (double)want[i],
             (double)tolerance[i * stride]);
        return false;
    }
    return true;
}

/* --- timing --- */

static inline bool td_time_wanted(void) {
    const char *text = getenv("TREADLE_TIME");
    return text && text[0] && strcmp(text, "0") != 0;
}

static inline int td_time_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median of n values, which are sorted. */
static inline double td_median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, td_time_compare);
    return values[n / 2];
}

/* Median nanoseconds of one call over `repeats` (at most 64) calls, after one that does not count. */
static inline double td_time_median(void (*call)(void *), void *arg, int repeats) {
    double ns[64];
    repeats = repeats > 64 ? 64 : repeats;
    call(arg);
    for (int i = 0; i < repeats; i++) {
        uint64_t start = td_time_ns();
        call(arg);
        ns[i] = (double)(td_time_ns() - start);
    }
    return td_median(ns, repeats);
}

#endif
