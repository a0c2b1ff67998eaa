/* exec/exec.h - runs the plan's steps over fixed bindings: tokens in, logits out.
 *
 * A td_runtime is the opened sessions of a model, shared and immutable. A td_exec is one generator's side: a context per session, the
 * state, and the buffers of the roles (ids, mask, positions ...). td_exec_forward brings every row up to date with its
 * timeline: rows with more than one new token run alone over their part of the caches, so nothing is ever padded; rows with one new
 * token each run together where the plan allows it. Long prompts go in chunks, between which a cancel is seen.
 * Invariant: nothing is allocated when the buffers are large enough (td_exec_reserve), and no name is looked up. */
#ifndef TD_EXEC_EXEC_H
#define TD_EXEC_EXEC_H

#include <stdatomic.h>

#include "state/state.h"

typedef struct td_runtime {
    const td_plan *plan;
    const td_engine **engines; /* [n_sessions] */
    td_session **sessions;     /* [n_sessions]; owned */
    bool *pick_rows;           /* [n_sessions]: logits can be computed for few positions */
} td_runtime;

/* Opens the sessions of a plan, each on the engine that options and config say. */
treadle_status td_runtime_open(const td_plan *plan, const td_engine_options *options, td_runtime **out,
                               treadle_error *err);
void td_runtime_close(td_runtime *runtime); /* NULL is fine */

typedef TD_VEC(float) td_floats;

typedef struct td_exec_row {
    const int32_t *ids; /* the whole timeline, borrowed */
    int64_t n_ids;
    bool live;           /* false: the row is left as it is */
    const float *logits; /* out: [vocab] after the last token that was run; valid until the next forward. NULL: none */
} td_exec_row;

typedef struct td_exec {
    const td_runtime *runtime;
    const td_plan *plan;
    td_state *state;
    size_t n_rows;
    int64_t vocab;                     /* 0: not known yet */
    int64_t chunk;                     /* tokens per run in a prefill */
    td_session_ctx **ctx;              /* [n_sessions] */
    td_value **inputs;                 /* [n_sessions][n_inputs] */
    td_value **outputs;                /* [n_sessions][n_outputs] */
    bool **skip;                       /* [n_sessions][n_outputs] */
    int64_t *runs;                     /* [n_sessions] */
    char **role_data;                  /* [roles]: one buffer per role input of the plan; see roles.c */
    int64_t role_tokens, role_columns; /* what they have room for */
    float *logits;                     /* [n_rows, vocab] */
    int64_t *picked;                   /* [n_rows] */
    int64_t picked_n;                  /* position that is picked now; -1: all */
    size_t picked_rows;
    int64_t *lengths;   /* [n_rows], scratch */
    bool mask_is_valid; /* the mask buffers hold what the last run of rows together left there */
    int64_t mask_ones;  /* else: how many columns of their first row are 1 */
    td_floats *all;     /* [n_rows]: logits of all positions, appended when keep_all */
    bool keep_all;
} td_exec;

treadle_status td_exec_new(const td_runtime *runtime, size_t n_rows, td_exec **out, treadle_error *err);
void td_exec_free(td_exec *exec); /* NULL is fine */

/* Room for rows of `tokens` tokens, so that steps up to there allocate nothing. */
treadle_status td_exec_reserve(td_exec *exec, int64_t tokens, treadle_error *err);

/* Runs what each live row has beyond what was run, one token at least. cancel may be NULL; when it becomes true the call ends
 * between chunks with TREADLE_CANCELLED. After a failure rows are where they were before the chunk that failed. */
treadle_status td_exec_forward(td_exec *exec, td_exec_row *rows, const atomic_bool *cancel, treadle_error *err);

/* Forgets tokens of a row beyond `length`. Where the state cannot be cut, everything is forgotten and will be run again. */
void td_exec_truncate(td_exec *exec, size_t row, int64_t length);
int64_t td_exec_length(const td_exec *exec, size_t row); /* tokens run */

/* --- inside */

/* One run of the steps. */
typedef struct td_exec_run {
    size_t first_row, n_rows;
    int64_t n;           /* new tokens per row */
    int64_t start, past; /* columns: first one of the past, how many */
    int64_t total;       /* columns of the mask: past and new ones */
    bool batched;        /* several rows with a length each */
    bool wants_logits;
    const td_exec_row *rows;
} td_exec_run;

/* roles.c: fills the buffer of a role input and points value at it. */
treadle_status td_exec_roles_init(td_exec *exec, treadle_error *err);
treadle_status td_exec_roles_reserve(td_exec *exec, int64_t tokens, int64_t columns, treadle_error *err);
void td_exec_fill_role(td_exec *exec, const td_exec_run *run, int32_t session, size_t input, td_value *value);
void td_exec_roles_free(td_exec *exec);

#endif
