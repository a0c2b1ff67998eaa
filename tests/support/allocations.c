/* support/allocations.c - see allocations.h. */
#include "support/allocations.h"

#include <stddef.h>

atomic_int td_test_allocations;
int td_test_fail_at = INT_MAX;
bool td_test_fail_after;

bool td_alloc_test_fails(size_t bytes);

/* Called by base/alloc.c before every allocation. */
bool td_alloc_test_fails(size_t bytes) {
    (void)bytes;
    int n = atomic_fetch_add(&td_test_allocations, 1) + 1;
    return n == td_test_fail_at || (td_test_fail_after && n > td_test_fail_at);
}
