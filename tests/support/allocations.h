/* support/allocations.h - the library's heap allocations, counted, and chosen ones made to fail (base/alloc.h).
 *
 *     td_test_allocations = 0;
 *     td_test_fail_at = n;
 *     ... what is tested ...
 *     bool reached = td_test_allocations >= n;
 *     td_test_fail_at = INT_MAX;
 *
 * A test that includes this is linked with the hook that base/alloc.c asks before every allocation. */
#ifndef TD_TESTS_SUPPORT_ALLOCATIONS_H
#define TD_TESTS_SUPPORT_ALLOCATIONS_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>

extern atomic_int td_test_allocations; /* asked for so far, by any thread; set it to 0 to count */
extern int td_test_fail_at;            /* this one fails, counted from 1. INT_MAX: none, as at first */
extern bool td_test_fail_after;        /* and so do all that follow */

#endif
