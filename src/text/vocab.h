/* text/vocab.h - token strings by id and ids by string: 24 to 32 bytes a token and its text. */
#ifndef TD_TEXT_VOCAB_H
#define TD_TEXT_VOCAB_H

#include "base/arena.h"
#include "base/error.h"

typedef struct td_vocab {
    td_arena *arena; /* token text; not owned */
    td_str *tokens;  /* [capacity]; .p NULL: no such id */
    int32_t n_ids;   /* highest id + 1 */
    int32_t capacity;
    int32_t id_limit; /* ids must be below: a small file cannot ask for a large table */
    uint32_t n;       /* distinct strings */
    struct td_vocab_slot {
        uint32_t tag; /* upper half of the string's hash */
        uint32_t id;  /* plus 1; 0: free */
    } * slots;        /* [n_slots], open addressing by the lower half */
    uint32_t n_slots; /* a power of two */
} td_vocab;

void td_vocab_init(td_vocab *vocab, td_arena *arena, int32_t id_limit);
bool td_vocab_reserve(td_vocab *vocab, size_t n); /* room for n tokens with ids below n; false: out of memory */
void td_vocab_free(td_vocab *vocab);
/* A string that is there already gets the new id (the last one wins, as in a JSON object). */
treadle_status td_vocab_add(td_vocab *vocab, td_str token, int64_t id, treadle_error *err);
int32_t td_vocab_id(const td_vocab *vocab, td_str token); /* -1: none */
td_str td_vocab_token(const td_vocab *vocab, int64_t id); /* .p NULL: none */

#endif
