/* config/messages.h - what a check has to say: errors, warnings and notes with their places, all in one list.
 *
 * Independent problems are all collected; a message keeps the text apart from the place. Everything lives in an
 * arena. */
#ifndef TD_CONFIG_MESSAGES_H
#define TD_CONFIG_MESSAGES_H

#include "base/arena.h"
#include "base/error.h"
#include "treadle/model.h"

typedef struct td_place {
    const char *file, *pointer; /* NULL: none */
    uint32_t line, column;      /* 0: none */
} td_place;

typedef struct td_message {
    treadle_message_level level;
    td_place place;
    const char *text;
} td_message;

enum { TD_MESSAGES_MAX = 500 }; /* kept; of more only the errors are counted */

typedef struct td_messages {
    td_arena *arena; /* texts and places */
    TD_VEC(td_message) list;
    size_t n_errors;
    bool failed; /* out of memory: the list is incomplete */
} td_messages;

void td_messages_init(td_messages *messages, td_arena *arena);
void td_messages_free(td_messages *messages);       /* the list; texts die with the arena */
bool td_messages_full(const td_messages *messages); /* nothing more would be kept: who finds faults in loops may end */
void td_messages_add(td_messages *messages, treadle_message_level level, td_place place, const char *format, ...)
    TD_PRINTF(4, 5);
/* An error as a message; its own place wins over the given one where it has one. */
void td_messages_add_error(td_messages *messages, td_place place, const treadle_error *error);
/* The first error in err; TREADLE_OK if there is none. */
treadle_status td_messages_status(const td_messages *messages, treadle_error *err);

/* "a, b, c" of a table that ends with NULL, in the arena; NULL: out of memory. */
const char *td_words_join(td_arena *arena, const char *const *words);
size_t td_words_count(const char *const *words);
int td_words_find(const char *const *words, td_str word); /* -1: none */
/* ". Did you mean \"x\"?" for the nearest word, "" if none is near. */
const char *td_did_you_mean(td_arena *arena, td_str word, const char *const *words, size_t n_words);

#endif
