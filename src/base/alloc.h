/* base/alloc.h - heap memory with checked sizes. All of treadle's heap memory passes through here.
 *
 * A failed allocation is NULL, never an abort; the caller turns it into TREADLE_OUT_OF_MEMORY. A test
 * executable may define `bool td_alloc_test_fails(size_t bytes)`, asked before each allocation, to make some
 * fail (tests/base/test_oom.c). */
#ifndef TD_BASE_ALLOC_H
#define TD_BASE_ALLOC_H

#include "base/compiler.h"

void *td_alloc(size_t bytes);                                       /* not zeroed; bytes 0 gives a valid pointer */
void *td_alloc_zero(size_t count, size_t item_bytes);               /* zeroed; NULL on overflow */
void *td_alloc_array(size_t count, size_t item_bytes);              /* not zeroed; NULL on overflow */
void *td_realloc_array(void *old, size_t count, size_t item_bytes); /* old stays valid on failure */
void td_free(void *memory);                                         /* NULL is fine */

/* 64-byte aligned (cache line, AVX-512); freed by td_free_aligned. */
void *td_alloc_aligned(size_t bytes);
void td_free_aligned(void *memory);

char *td_strdup(const char *text);
char *td_strndup(const char *text, size_t n);

#endif
