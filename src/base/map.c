/* base/map.c - open addressing with linear probing, at most three quarters full, nothing ever deleted.
 *
 * The full hash is kept beside each key, so that growing never touches the keys and a probe rarely does.
 * Hash: XXH3 (Collet, xxhash.com), compiled in. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/alloc.h"
#include "base/map.h"

uint64_t td_hash(const void *bytes, size_t n, uint64_t seed) { return XXH3_64bits_withSeed(n ? bytes : "", n, seed); }

/* The place of the key, or the free place where it belongs. The map is not empty and never full. */
static td_map_entry *locate(const td_map *map, td_str key, uint64_t hash) {
    size_t mask = map->capacity - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        td_map_entry *entry = &map->entries[i];
        if (!entry->key.p || (entry->hash == hash && td_str_equal(entry->key, key))) return entry;
    }
}

static bool grow(td_map *map, size_t capacity) {
    td_map grown = {.entries = td_alloc_zero(capacity, sizeof(td_map_entry)), .n = map->n, .capacity = capacity};
    if (!grown.entries) return false;
    for (size_t i = 0; i < map->capacity; i++) {
        const td_map_entry *old = &map->entries[i];
        if (!old->key.p) continue;
        size_t place = old->hash & (capacity - 1);
        while (grown.entries[place].key.p) place = (place + 1) & (capacity - 1);
        grown.entries[place] = *old;
    }
    td_free(map->entries);
    *map = grown;
    return true;
}

bool td_map_reserve(td_map *map, size_t n) {
    size_t capacity = map->capacity ? map->capacity : 16;
    while (capacity / 4 * 3 < n) {
        if (TD_MUL_OVERFLOWS(capacity, (size_t)2, &capacity)) return false;
    }
    return capacity == map->capacity || grow(map, capacity);
}

bool td_map_set(td_map *map, td_str key, uint64_t value) {
    if (map->n >= map->capacity / 4 * 3 && !td_map_reserve(map, map->n + 1)) return false;
    if (!key.p) key.p = ""; /* NULL marks a free place */
    uint64_t hash = td_hash(key.p, key.n, 0);
    td_map_entry *entry = locate(map, key, hash);
    if (!entry->key.p) {
        *entry = (td_map_entry){.key = key, .hash = hash};
        map->n++;
    }
    entry->value = value;
    return true;
}

bool td_map_get(const td_map *map, td_str key, uint64_t *out) {
    if (map->n == 0) return false;
    const td_map_entry *entry = locate(map, key, td_hash(key.p, key.n, 0));
    if (!entry->key.p) return false;
    if (out) *out = entry->value;
    return true;
}

void td_map_free(td_map *map) {
    td_free(map->entries);
    *map = (td_map){0};
}
