/* light/body.h - subgraphs ("bodies") of nodes: If, Loop, Scan, SequenceMap. Private to light; the
 * second half is what these ops use.
 *
 * A body is a td_light of its own: graph, memory plan, rewrites. Its graph inputs are its formals, as the model lists
 * them, then the values that it captures from the graphs around it. Captured values are inputs of the node too (behind
 * the op's own), so the outer graph needs no special rule for them; captured constants are constants inside.
 *
 * The op says at open what the formals are (td_infer_body), which resolves the body and tells what comes out.
 * At run it begins the body, sets formals, and steps: once for If, once an iteration for Loop and Scan. A ctx
 * owns one run state per body; results lie in the body's own memory and last until the node runs again, so
 * handing them out copies nothing. */
#ifndef TD_LIGHT_BODY_H
#define TD_LIGHT_BODY_H

#include "light/op.h"

typedef struct td_body td_body;
typedef struct td_body_run td_body_run;
typedef struct td_graph td_graph;
typedef struct td_resolver td_resolver;

/* --- for the engine */

/* Made into the list of bodies that `graph` owns. NULL: out of memory. */
td_body *td_body_new(td_graph *graph, td_str attr, const td_onnx_graph *source);
void td_body_free(td_body *body);
/* Options and pool of the session to all bodies of its graph. */
void td_bodies_inherit(const td_light *light);
/* Collects complaints about the nodes of a node's bodies whose formals nobody can tell. */
treadle_status td_bodies_survey(td_resolver *r, const td_node *node, treadle_error *err);
/* Some result of the node may be (a view of) one of its inputs. Of resolved nodes. */
bool td_node_may_pass(const td_node *node);

/* Run states of all bodies of a ctx's graph (run_body.c). */
treadle_status td_body_runs_new(td_light_ctx *ctx, treadle_error *err);
void td_body_runs_free(td_light_ctx *ctx);

/* --- for ops: prepare */

/* The body of attribute `attr` and how many formals and outputs it has. false: there is none. */
bool td_body_find(const td_prepare *p, const char *attr, size_t *index, size_t *n_formals, size_t *n_outputs);
/* The rank that the model declares for a formal; -1: it does not say. */
int td_body_declared_rank(const td_prepare *p, size_t index, size_t formal);

/* --- for ops: infer, at open only */

/* Types of the body's outputs for these of its formals. feeds[k]: the formal that output k becomes in the next
 * iteration, or -1; NULL: none do. Types of such formals are widened until they hold for every iteration. */
treadle_status td_infer_body(td_infer *in, size_t index, const td_value *formals, const int32_t *feeds,
                             td_value *outputs);

/* What holds of either: dimensions that differ become unknown. false: these cannot be one value. */
bool td_type_join(td_value *to, const td_value *with);

/* --- for ops: run */

/* Ends the results of the node's last run of this body. skip[k]: nobody reads output k; NULL: all are read. */
treadle_status td_body_begin(td_run *r, size_t index, const bool *skip, td_body_run **out);
/* A formal for the steps to come; its memory is the caller's, unchanged until the node has run. */
void td_body_set(td_body_run *b, size_t formal, const td_value *value);
/* A scalar, or a list of one (rank 1), of int64 or bool; it may change from step to step. */
void td_body_set_scalar(td_body_run *b, size_t formal, td_dtype dtype, int rank, int64_t value);
/* The next step is to leave output k here. Its shape must then be that of `to`. */
void td_body_bind(td_body_run *b, size_t k, const td_tensor *to);
/* The next step is the last one, and output k will be given as output i of the node: if that is bound to memory of the
 * session's caller, the body may write there at once. */
void td_body_bind_through(td_body_run *b, size_t k, size_t i);
treadle_status td_body_step(td_body_run *b);
const td_value *td_body_result(const td_body_run *b, size_t k); /* of the last step; until the next one */
/* Outputs first_output + i become formals first_formal + i, moved where that is possible. */
treadle_status td_body_carry(td_body_run *b, size_t first_output, size_t first_formal, size_t n);
/* What output k, or formal k, now is becomes output i of the node. */
treadle_status td_body_give_output(td_body_run *b, size_t k, size_t i);
treadle_status td_body_give_formal(td_body_run *b, size_t k, size_t i);

#endif
