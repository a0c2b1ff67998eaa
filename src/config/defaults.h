/* config/defaults.h - what the files share that take defaults from files of Hugging Face. Functions return false (or
 * NULL with *ok false) when out of memory. */
#ifndef TD_CONFIG_DEFAULTS_H
#define TD_CONFIG_DEFAULTS_H

#include "config/config.h"

/* A JSON file of others beside the config: NULL in *out if it is not there or not readable (a warning). */
bool td_config_read_side_file(td_config *c, const char *name, td_messages *messages, td_json **out,
                              const td_source **source);
/* The object group[.subgroup] of the config, made where it is missing; NULL with *ok true where
 * something else stands there. */
td_json *td_config_group(td_config *c, const char *group, const char *subgroup, const td_source *source, bool *ok);

#endif
