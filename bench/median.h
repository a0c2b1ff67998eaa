/* bench/median.h - what all benches do with their times. */
#ifndef TD_BENCH_MEDIAN_H
#define TD_BENCH_MEDIAN_H

#include <stdlib.h>

static inline int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the values, n > 0 of them: the first is then the fastest. */
static inline double median(double *values, size_t n) {
    qsort(values, n, sizeof *values, by_size);
    return values[n / 2];
}

#endif
