/* text/vocab.c - see vocab.h. Open addressing over ids; the strings themselves are the keys. */
#include "text/vocab.h"

#include "base/alloc.h"
#include "base/map.h"

void td_vocab_init(td_vocab *vocab, td_arena *arena, int32_t id_limit)
{
    *vocab = (td_vocab){.arena = arena, .id_limit = id_limit};
}

void td_vocab_free(td_vocab *vocab)
{
    td_free(vocab->tokens);
    td_free(vocab->slots);
    *vocab = (td_vocab){0};
}

/* The slot that holds token, or the free one where it belongs. */
static uint32_t *find_slot(const td_vocab *vocab, td_str token)
{
    uint32_t mask = vocab->n_slots - 1;
    for (uint32_t i = (uint32_t)td_hash(token.p, token.n, 0) & mask;; i = (i + 1) & mask) {
        uint32_t *slot = &vocab->slots[i];
        if (*slot == 0 || td_str_equal(vocab->tokens[*slot - 1], token)) return slot;
    }
}

static bool grow_slots(td_vocab *vocab)
{
    uint32_t *old = vocab->slots, n_old = vocab->n_slots;
    uint32_t n_slots = n_old ? n_old * 2 : 256;
    uint32_t *slots = td_alloc_zero(n_slots, sizeof *slots);
    if (!slots) return false;
    vocab->slots = slots;
    vocab->n_slots = n_slots;
    for (uint32_t i = 0; i < n_old; i++)
        if (old[i]) *find_slot(vocab, vocab->tokens[old[i] - 1]) = old[i];
    td_free(old);
    return true;
}

static bool grow_ids(td_vocab *vocab, int32_t id)
{
    int32_t capacity = TD_MAX(vocab->capacity + vocab->capacity / 2, TD_MAX(id + 1, 256));
    td_str *tokens = td_realloc_array(vocab->tokens, (size_t)capacity, sizeof *tokens);
    if (!tokens) return false;
    memset(tokens + vocab->capacity, 0, (size_t)(capacity - vocab->capacity) * sizeof *tokens);
    vocab->tokens = tokens;
    vocab->capacity = capacity;
    return true;
}

treadle_status td_vocab_add(td_vocab *vocab, td_str token, int64_t id, treadle_error *err)
{
    if (id < 0 || id >= vocab->id_limit)
        return td_fail(err, TREADLE_LIMIT, "token ids must lie in 0..%d, found %lld", vocab->id_limit - 1, (long long)id);
    if ((id >= vocab->capacity && !grow_ids(vocab, (int32_t)id)) || (vocab->n * 2 >= vocab->n_slots && !grow_slots(vocab)))
        return td_fail_memory(err, "a vocabulary", (size_t)id * sizeof(td_str));
    td_str copy = td_arena_str(vocab->arena, token);
    if (!copy.p) return td_fail_memory(err, "a token", token.n);
    uint32_t *slot = find_slot(vocab, token);
    vocab->n += *slot == 0;
    vocab->tokens[id] = copy;
    *slot = (uint32_t)id + 1;
    vocab->n_ids = TD_MAX(vocab->n_ids, (int32_t)id + 1);
    return TREADLE_OK;
}

int32_t td_vocab_id(const td_vocab *vocab, td_str token)
{
    return vocab->n == 0 ? -1 : (int32_t)*find_slot(vocab, token) - 1;
}

td_str td_vocab_token(const td_vocab *vocab, int64_t id)
{
    return id >= 0 && id < vocab->n_ids ? vocab->tokens[id] : (td_str){0};
}
