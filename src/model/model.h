/* model/model.h - a loaded folder: config, plan, sessions, text. Immutable after open; shared by threads. */
#ifndef TD_MODEL_MODEL_H
#define TD_MODEL_MODEL_H

#include "generate/generate.h"
#include "model/files.h"
#include "model/text_part.h"
#include "plugin/plugin.h"

struct treadle_model {
    td_arena arena; /* messages */
    td_messages messages;
    td_model_files files;
    td_config *config;
    td_plan *plan;
    td_runtime *runtime; /* NULL: only looked at */
    td_plugin *plugin;   /* NULL: the plan's steps run */
    treadle_text *text;
};

/* Config and plan without weights. Problems are in (*out)->messages. */
treadle_status td_model_examine(const char *path, const treadle_model_options *options, treadle_model **out,
                                treadle_error *err);
/* The same and the sessions; an error of the config fails it. */
treadle_status td_model_open(const char *path, const treadle_model_options *options, treadle_model **out,
                             treadle_error *err);
void td_model_close(treadle_model *model);
/* What would keep the graphs of an examined model from being opened, into m->messages (graphs.c). */
treadle_status td_model_check_graphs(treadle_model *m, treadle_error *err);

/* The config as a version 2 file (convert.c): appends to out, and says in m->messages what is left out. */
treadle_status td_model_convert(treadle_model *m, td_buf *out, treadle_error *err);

/* explain.c and inspect.c: append to out; check out->failed. */
void td_model_explain(const treadle_model *model, bool json, td_buf *out);
treadle_status td_model_inspect(const treadle_model *model, int64_t context_length, bool json, td_buf *out,
                                treadle_error *err);
/* One file's members as treadle_file_inspect says, into an open object. */
treadle_status td_inspect_file(const td_signature *signature, td_json_writer *w, treadle_error *err);

#endif
