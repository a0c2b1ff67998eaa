/* plan/graphs.h - model folders of graphs that have inputs and outputs and no nodes, written from one line each; and their plans.
 *
 * A port is "name:type[dim,dim]": type f (float32), h (float16), i (int64), j (int32), b (bool); a dim is a number, a symbol or "?".
 * {4} in "past.{4}.key:f[...]" stands for four ports, numbered from 0. */
#ifndef TD_TESTS_PLAN_GRAPHS_H
#define TD_TESTS_PLAN_GRAPHS_H

#include "model/files.h"
#include "plan/plan.h"

typedef struct td_graph_file {
    const char *file, *inputs, *outputs; /* ports between spaces */
} td_graph_file;

typedef struct planned {
    td_arena arena;
    td_model_files files;
    td_messages messages;
    td_config *config;
    td_plan *plan;
    td_buf json; /* as td_plan_write_json writes it, on one line */
} planned;

/* Writes the files (until one without a name) into a folder of their own, and plans it. config NULL: none. */
void td_plan_graphs(planned *p, const char *folder, const td_graph_file *files, const char *config);
void td_plan_done(planned *p);
const char *td_plan_first_message(const planned *p, treadle_message_level level); /* "": none */

#endif
