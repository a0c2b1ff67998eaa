/* support/graphs.h - model folders of graphs that have inputs and outputs and mostly no nodes, written from
 * one line each; and their plans.
 *
 * A port is "name:type[dim,dim]": type f (float32), h (float16), i (int64), j (int32), b (bool); a dim is a number, a
 * symbol or "?". {4} in "past.{4}.key:f[...]" stands for four ports, numbered from 0. */
#ifndef TD_TESTS_SUPPORT_GRAPHS_H
#define TD_TESTS_SUPPORT_GRAPHS_H

#include "model/files.h"
#include "plan/plan.h"

typedef struct td_test_graph {
    const char *file, *inputs, *outputs; /* ports between spaces */
} td_test_graph;

typedef struct td_planned {
    td_arena arena;
    td_model_files files;
    td_messages messages;
    td_config *config;
    td_plan *plan;
    td_buf json; /* as td_plan_write_json writes it, on one line */
} td_planned;

/* dir is made if need be; body NULL: no nodes. */
void td_test_write_graph(const char *dir, const td_test_graph *file, const td_onnx_graph *body);
/* Writes the files (until one without a name) into that folder of the process's own, and plans it. config NULL:
 * none. */
void td_test_plan(td_planned *p, const char *folder, const td_test_graph *files, const char *config);
void td_test_plan_done(td_planned *p);
const char *td_test_first_message(const td_planned *p, treadle_message_level level); /* "": none */

#endif
