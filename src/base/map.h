/* base/map.h - hash map from byte strings to 64-bit values. Keys are borrowed: they must outlive the map. */
#ifndef TD_BASE_MAP_H
#define TD_BASE_MAP_H

#include "base/str.h"

typedef struct td_map_entry {
    td_str key; /* key.p NULL: free place */
    uint64_t value;
    uint64_t hash;
} td_map_entry;

typedef struct td_map {
    td_map_entry *entries;
    size_t n, capacity; /* capacity: a power of two, or 0 */
} td_map;

bool td_map_reserve(td_map *map, size_t n);                    /* room for n keys without growing */
bool td_map_set(td_map *map, td_str key, uint64_t value);      /* replaces; false: out of memory */
bool td_map_get(const td_map *map, td_str key, uint64_t *out); /* false: no such key, out untouched (may be NULL) */
void td_map_free(td_map *map);
uint64_t td_hash(const void *bytes, size_t n, uint64_t seed); /* XXH3, 64 bit */

#endif
