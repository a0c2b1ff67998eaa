/* plugin/plugin.h - a pipeline in a shared library, loaded from an allowed folder: the host's
 * side of include/treadle/plugin.h.
 *
 * The config has resolved the library's real path and checked that an allowed folder holds it. Immutable once open;
 * shared by generators. Owns the library's handle. */
#ifndef TD_PLUGIN_PLUGIN_H
#define TD_PLUGIN_PLUGIN_H

#include "generate/generate.h"

typedef struct td_plugin td_plugin;

/* Loads path, calls its entry function and opens it for a model. NOT_FOUND, FORMAT (no such function,
 * no table), UNSUPPORTED (a newer version), or what the plugin said. runtime and config_text are
 * borrowed for the plugin's life. */
treadle_status td_plugin_open(const char *path, const char *entry_point, const td_runtime *runtime,
                              const char *config_text, td_plugin **out, treadle_error *err);
void td_plugin_close(td_plugin *plugin); /* NULL is fine */
const td_exec_hook *td_plugin_hook(const td_plugin *plugin);

#endif
