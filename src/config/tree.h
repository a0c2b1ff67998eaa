/* config/tree.h - the config as one JSON tree whose every value knows the text it came from.
 *
 * A td_json_parse tree belongs to one text. The expanded config is made of several (the file, a preset, the caller's
 * settings, files of Hugging Face), so each value is copied into a td_config_value that carries its source. All
 * functions return values of this kind as td_json *, which is their first member. Values live in an arena. */
#ifndef TD_CONFIG_TREE_H
#define TD_CONFIG_TREE_H

#include "base/json.h"
#include "config/messages.h"

typedef struct td_source {
    const char *label; /* "genai_config.json", "preset vision-language", "setting", ...: as explain prints it */
    const char *path;  /* of the file, as messages print it; NULL: no file */
    td_str text;       /* what offsets count in */
} td_source;

typedef struct td_config_value {
    td_json json;
    const td_source *source;
    const td_json *origin; /* what a translated value was made from: messages point there. NULL: the value itself */
} td_config_value;

/* A deep copy. null members of objects are left out: null means unset. NULL: out of memory. */
td_json *td_tree_copy(td_arena *arena, const td_json *value, const td_source *source);

/* Values that no text has (defaults, what the graph says). */
td_json *td_tree_new(td_arena *arena, td_json_kind kind, const td_source *source);
td_json *td_tree_int(td_arena *arena, int64_t value, const td_source *source);
td_json *td_tree_string(td_arena *arena, td_str value, const td_source *source);

/* Values of a translation: they stand where `origin`, a value of another tree of this kind, does. */
td_json *td_tree_derive(td_arena *arena, td_json_kind kind, const td_json *origin);
td_json *td_tree_derive_copy(td_arena *arena, const td_json *origin); /* deep; null members are left out */

/* Appends to an object or array, or replaces the member of that key. The child is taken over. false: out of memory. */
bool td_tree_put(td_arena *arena, td_json *object, td_str key, td_json *child);
void td_tree_push(td_json *array, td_json *child);
void td_tree_remove(td_json *object, td_str key); /* absent is fine */

/* Adds what `over` has beneath `base`: objects merge by key, all else stays as base has it. false: out of memory. */
bool td_tree_underlay(td_arena *arena, td_json *base, const td_json *under);

const td_source *td_tree_source(const td_json *value);
/* Where a value stands, for a message; the pointer is written into the arena. key: the position of its key instead. */
td_place td_tree_place(td_arena *arena, const td_json *value, bool key);

/* Writes {"/pointer": "label", ...} for every leaf; a translated value's label holds the pointer it came from. */
void td_tree_write_origins(const td_json *root, td_json_writer *w);

#endif
