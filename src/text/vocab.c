/* text/vocab.c - see vocab.h. Open addressing over ids; the strings themselves are the keys. */
#include "text/vocab.h"

#include "base/alloc.h"
#include "base/map.h"

void td_vocab_init(td_vocab *vocab, td_arena *arena, int32_t id_limit) {
    *vocab = (td_vocab){.arena = arena, .id_limit = id_limit};
}

void td_vocab_free(td_vocab *vocab) {
    td_free(vocab->tokens);
    td_free(vocab->slots);
    *vocab = (td_vocab){0};
}

/* The slot that holds token, or the free one where it belongs. */
static struct td_vocab_slot *find_slot(const td_vocab *vocab, td_str token, uint64_t hash) {
    uint32_t mask = vocab->n_slots - 1, tag = (uint32_t)(hash >> 32);
    for (uint32_t i = (uint32_t)hash & mask;; i = (i + 1) & mask) {
        struct td_vocab_slot *slot = &vocab->slots[i];
        if (slot->id == 0 || (slot->tag == tag && td_str_equal(vocab->tokens[slot->id - 1], token))) return slot;
    }
}

static bool set_slots(td_vocab *vocab, uint32_t n_slots) {
    struct td_vocab_slot *old = vocab->slots, *slots = td_alloc_zero(n_slots, sizeof *slots);
    uint32_t n_old = vocab->n_slots;
    if (!slots) return false;
    vocab->slots = slots;
    vocab->n_slots = n_slots;
    for (uint32_t i = 0; i < n_old; i++) {
        if (old[i].id == 0) continue;
        td_str token = vocab->tokens[old[i].id - 1];
        uint64_t hash = td_hash(token.p, token.n, 0);
        *find_slot(vocab, token, hash) = old[i];
    }
    td_free(old);
    return true;
}

static bool set_capacity(td_vocab *vocab, int32_t capacity) {
    td_str *tokens = td_realloc_array(vocab->tokens, (size_t)capacity, sizeof *tokens);
    if (!tokens) return false;
    memset(tokens + vocab->capacity, 0, (size_t)(capacity - vocab->capacity) * sizeof *tokens);
    vocab->tokens = tokens;
    vocab->capacity = capacity;
    return true;
}

bool td_vocab_reserve(td_vocab *vocab, size_t n) {
    n = TD_MIN(n, (size_t)vocab->id_limit);
    uint32_t n_slots = 256;
    while (n_slots < n * 2) n_slots *= 2;
    return ((int32_t)n <= vocab->capacity || set_capacity(vocab, (int32_t)n)) &&
           (n_slots <= vocab->n_slots || set_slots(vocab, n_slots));
}

/* Room for one more token of this id. */
static bool make_room(td_vocab *vocab, int32_t id) {
    if (id >= vocab->capacity &&
        !set_capacity(vocab, TD_MAX(vocab->capacity + vocab->capacity / 2, TD_MAX(id + 1, 256))))
        return false;
    return vocab->n * 2 < vocab->n_slots || set_slots(vocab, TD_MAX(vocab->n_slots * 2, 256u));
}

treadle_status td_vocab_add(td_vocab *vocab, td_str token, int64_t id, treadle_error *err) {
    if (id < 0 || id >= vocab->id_limit)
        return td_fail(err, TREADLE_LIMIT, "expected a token id from 0 to %d, found %lld", vocab->id_limit - 1,
                       (long long)id);
    if (!make_room(vocab, (int32_t)id)) return td_fail_memory(err, "a vocabulary", (size_t)id * sizeof(td_str));
    td_str copy = td_arena_str(vocab->arena, token);
    if (!copy.p) return td_fail_memory(err, "a token", token.n);
    uint64_t hash = td_hash(token.p, token.n, 0);
    struct td_vocab_slot *slot = find_slot(vocab, token, hash);
    vocab->n += slot->id == 0;
    vocab->tokens[id] = copy;
    *slot = (struct td_vocab_slot){(uint32_t)(hash >> 32), (uint32_t)id + 1};
    vocab->n_ids = TD_MAX(vocab->n_ids, (int32_t)id + 1);
    return TREADLE_OK;
}

int32_t td_vocab_id(const td_vocab *vocab, td_str token) {
    return vocab->n == 0 ? -1 : (int32_t)find_slot(vocab, token, td_hash(token.p, token.n, 0))->id - 1;
}

td_str td_vocab_token(const td_vocab *vocab, int64_t id) {
    return id >= 0 && id < vocab->n_ids ? vocab->tokens[id] : (td_str){0};
}
