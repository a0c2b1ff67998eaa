/* base/arena.h - memory that lives and dies together. Not thread-safe; one owner.
 *
 * Pointers stay valid until td_arena_free. Everything is zeroed. */
#ifndef TD_BASE_ARENA_H
#define TD_BASE_ARENA_H

#include "base/compiler.h"
#include "base/str.h"

typedef struct td_arena_chunk td_arena_chunk;

typedef struct td_arena {
    td_arena_chunk *head; /* newest first */
    size_t used_bytes;    /* handed out so far, padding included */
} td_arena;

void td_arena_init(td_arena *arena); /* = {0}: cannot fail, allocates nothing */
void td_arena_free(td_arena *arena); /* gives everything back; the arena may be used again */

/* Zeroed memory, or NULL. align: a power of two up to 64. bytes 0 gives a valid pointer. */
void *td_arena_alloc(td_arena *arena, size_t bytes, size_t align);
void *td_arena_array(td_arena *arena, size_t count, size_t item_bytes, size_t align); /* NULL on overflow too */

#define TD_ARENA_NEW(arena, type) ((type *)td_arena_alloc((arena), sizeof(type), _Alignof(type)))
#define TD_ARENA_ARRAY(arena, type, count) ((type *)td_arena_array((arena), (count), sizeof(type), _Alignof(type)))

/* NUL-terminated copies; NULL when out of memory. */
char *td_arena_strndup(td_arena *arena, const char *text, size_t n);
char *td_arena_strdup(td_arena *arena, const char *text);
char *td_arena_printf(td_arena *arena, const char *format, ...) TD_PRINTF(2, 3);
td_str td_arena_str(td_arena *arena, td_str text); /* a copy as a view; .p NULL when out of memory */

#endif
