/* config/read.h - what the files share that turn the expanded tree into the typed struct. What has a wrong type
 * was reported by the table check and reads as absent; relations between fields are reported here. Functions
 * return false when out of memory. */
#ifndef TD_CONFIG_READ_H
#define TD_CONFIG_READ_H

#include "config/config.h"

td_place td_read_at(td_messages *m, const td_json *value);

enum { TD_LIST_MAX = 4096 }; /* longer lists of objects and maps were reported and are not read */

/* One value alone is a list of one; NULL is an empty list, and so is one of objects that is too long. */
size_t td_list_count(const td_json *value);
const td_json *td_list_first(const td_json *value);
const td_json *td_list_next(const td_json *list, const td_json *item);

/* Token ids and other numbers from 0 to INT32_MAX. */
bool td_read_numbers(td_config *c, const td_json *value, const int32_t **out, size_t *n);
bool td_read_ids(td_config *c, const td_json *value, td_token_list *out);
bool td_read_strings(td_config *c, const td_json *value, const td_str **out, size_t *n);
int32_t td_read_id(const td_json *object, const char *key); /* -1: absent */
int td_read_word(const td_json *object, const char *key, const char *const *words, int fallback);

bool td_read_sessions(td_config *c, const td_json *pipeline, const td_config_options *options, td_messages *m);
bool td_read_flow(td_config *c, const td_json *pipeline, td_messages *m);
bool td_read_state(td_config *c, const td_json *state, td_messages *m);
bool td_read_tokens(td_config *c, const td_json *tokens);
bool td_read_generation(td_config *c, const td_json *generation, td_messages *m);
bool td_read_preprocessing(td_config *c, const td_json *preprocessing, td_messages *m);
void td_read_pooling(td_config *c, const td_json *pipeline);
bool td_read_plugin(td_config *c, const td_json *plugin, const td_config_options *options, td_messages *m);

#endif
