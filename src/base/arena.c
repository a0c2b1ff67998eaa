/* base/arena.c - a bump allocator over a list of zeroed chunks.
 *
 * Invariant: everything past `used` in a chunk is still zero, so handing it out needs no clearing. Chunks double from
 * 4 KB to 4 MB; a request that would waste most of a chunk gets one of its own behind the current one. */
#include "base/arena.h"

#include "base/alloc.h"

#include <stdio.h>

enum { FIRST_CHUNK_BYTES = 4 << 10, LAST_CHUNK_BYTES = 4 << 20 };

struct td_arena_chunk {
    td_arena_chunk *next; /* older */
    size_t used, capacity;
    TD_ALIGNED(16) char bytes[];
};

void td_arena_init(td_arena *arena) { *arena = (td_arena){0}; }

void td_arena_free(td_arena *arena) {
    td_arena_chunk *chunk = arena->head;
    while (chunk) {
        td_arena_chunk *next = chunk->next;
        td_free(chunk);
        chunk = next;
    }
    *arena = (td_arena){0};
}

/* Carves out of a chunk; NULL if it has no room. */
static void *carve(td_arena *arena, td_arena_chunk *chunk, size_t bytes, size_t align) {
    size_t padding = (size_t)(-(uintptr_t)(chunk->bytes + chunk->used)) & (align - 1);
    size_t room = chunk->capacity - chunk->used;
    if (padding > room || bytes > room - padding) return NULL;
    void *result = chunk->bytes + chunk->used + padding;
    chunk->used += padding + bytes;
    arena->used_bytes += padding + bytes;
    return result;
}

static td_arena_chunk *new_chunk(size_t capacity) {
    size_t total;
    if (TD_ADD_OVERFLOWS(capacity, sizeof(td_arena_chunk), &total)) return NULL;
    td_arena_chunk *chunk = td_alloc_zero(1, total);
    if (chunk) chunk->capacity = capacity;
    return chunk;
}

TD_NOINLINE static void *alloc_in_new_chunk(td_arena *arena, size_t bytes, size_t align) {
    td_arena_chunk *head = arena->head;
    size_t grown = FIRST_CHUNK_BYTES - sizeof(td_arena_chunk);
    if (head) grown = TD_MIN(head->capacity * 2 + sizeof(td_arena_chunk), LAST_CHUNK_BYTES - sizeof(td_arena_chunk));
    size_t need;
    if (TD_ADD_OVERFLOWS(bytes, align, &need)) return NULL;

    bool alone = head && need > grown / 4;
    td_arena_chunk *chunk = new_chunk(alone ? need : TD_MAX(need, grown));
    if (!chunk) return NULL;
    if (alone) { /* the current chunk keeps serving the small requests */
        chunk->next = head->next;
        head->next = chunk;
    } else {
        chunk->next = head;
        arena->head = chunk;
    }
    return carve(arena, chunk, bytes, align);
}

void *td_arena_alloc(td_arena *arena, size_t bytes, size_t align) {
    if (bytes == 0) bytes = 1; /* distinct pointers, and none past a chunk's end */
    if (TD_LIKELY(arena->head != NULL)) {
        void *result = carve(arena, arena->head, bytes, align);
        if (TD_LIKELY(result != NULL)) return result;
    }
    return alloc_in_new_chunk(arena, bytes, align);
}

void *td_arena_array(td_arena *arena, size_t count, size_t item_bytes, size_t align) {
    size_t bytes;
    return TD_MUL_OVERFLOWS(count, item_bytes, &bytes) ? NULL : td_arena_alloc(arena, bytes, align);
}

char *td_arena_strndup(td_arena *arena, const char *text, size_t n) {
    size_t bytes;
    char *copy = TD_ADD_OVERFLOWS(n, (size_t)1, &bytes) ? NULL : td_arena_alloc(arena, bytes, 1);
    if (copy && n) memcpy(copy, text, n); /* the NUL is there already */
    return copy;
}

char *td_arena_strdup(td_arena *arena, const char *text) { return td_arena_strndup(arena, text, strlen(text)); }

char *td_arena_printf(td_arena *arena, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    char *text = n < 0 ? NULL : td_arena_alloc(arena, (size_t)n + 1, 1);
    if (text) vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    va_end(args);
    return text;
}

td_str td_arena_str(td_arena *arena, td_str text) {
    char *copy = td_arena_strndup(arena, text.p, text.n);
    return (td_str){copy, copy ? text.n : 0};
}
