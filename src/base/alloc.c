/* base/alloc.c - the one place that calls the C library's allocator.
 *
 * Invariant: a size that does not fit size_t is refused before anything is allocated; size 0 gives a valid pointer. */
#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

/* A test executable may define this function to make chosen allocations fail (the out-of-memory sweeps). Nothing else
 * does; where it is not defined its address is NULL. */
bool td_alloc_test_fails(size_t bytes) TD_WEAK;

static bool fails(size_t bytes) { return td_alloc_test_fails != NULL && td_alloc_test_fails(bytes); }

void *td_alloc(size_t bytes) { return fails(bytes) ? NULL : malloc(bytes ? bytes : 1); }

void *td_alloc_zero(size_t count, size_t item_bytes) {
    size_t bytes;
    if (TD_MUL_OVERFLOWS(count, item_bytes, &bytes) || fails(bytes)) return NULL;
    return calloc(1, bytes ? bytes : 1);
}

void *td_alloc_array(size_t count, size_t item_bytes) {
    size_t bytes;
    return TD_MUL_OVERFLOWS(count, item_bytes, &bytes) ? NULL : td_alloc(bytes);
}

void *td_realloc_array(void *old, size_t count, size_t item_bytes) {
    size_t bytes;
    if (TD_MUL_OVERFLOWS(count, item_bytes, &bytes) || fails(bytes)) return NULL;
    return realloc(old, bytes ? bytes : 1);
}

void td_free(void *memory) { free(memory); }

void *td_alloc_aligned(size_t bytes) {
    size_t rounded;
    if (TD_ADD_OVERFLOWS(bytes ? bytes : 1, (size_t)63, &rounded) || fails(bytes)) return NULL;
    return aligned_alloc(64, rounded / 64 * 64);
}

void td_free_aligned(void *memory) { free(memory); }

char *td_strndup(const char *text, size_t n) {
    size_t bytes;
    char *copy = TD_ADD_OVERFLOWS(n, (size_t)1, &bytes) ? NULL : td_alloc(bytes);
    if (!copy) return NULL;
    if (n) memcpy(copy, text, n);
    copy[n] = '\0';
    return copy;
}

char *td_strdup(const char *text) { return td_strndup(text, strlen(text)); }
