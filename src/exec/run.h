/* exec/run.h - one run of the plan's steps, and what the files of this module share.
 *
 * exec.c decides what a row runs next, batch.c what rows run together; run.c walks the steps; bind.c, roles.c,
 * positions.c, stack.c and given.c say what goes into a session, logits.c what comes out; images.c and copies.c
 * run a session in other ways. */
#ifndef TD_EXEC_RUN_H
#define TD_EXEC_RUN_H

#include "exec/exec.h"

/* One run of the steps. */
typedef struct td_exec_run {
    size_t first_row, n_rows;
    int64_t n;           /* positions of this run per row, padding included */
    int64_t pad_before;  /* of which padding: before the tokens, */
    int64_t pad_after;   /* and after them */
    int64_t start, past; /* columns: first one of the past, how many */
    int64_t total;       /* columns of the mask: past and new ones */
    bool batched;        /* several rows with a length each */
    bool equal;          /* batched: live rows have the length `past`, idle ones are not longer */
    bool prompt;
    bool wants_logits;
    bool source; /* ids and mask are the source's */
    const td_exec_row *rows;
} td_exec_run;

/* run.c: all steps of a run, and their outputs. */
treadle_status td_exec_run_steps(td_exec *exec, const td_exec_run *run, td_exec_row *rows, treadle_error *err);

/* batch.c: rows with one token to go each, in one run where the plan and their lengths allow it. */
void td_exec_align(td_exec *exec, const td_exec_row *rows); /* once there is room for what live rows are about to run */
treadle_status td_exec_run_together(td_exec *exec, td_exec_row *rows, bool *out_done, treadle_error *err);
/* Tokens of each row in such a run, at most. */
int64_t td_exec_tokens_together(const td_exec *exec);

void td_exec_line_free(td_exec_line *line); /* rows.c: what it owns, but hook_data */

/* stack.c: brings the stacks up to date. *out_agree: false: the rows' values differ in shape, or some have none. */
treadle_status td_exec_stack_rows(td_exec *exec, bool *out_agree, treadle_error *err);
bool td_exec_stacks_init(td_exec *exec);
void td_exec_stacks_free(td_exec *exec);
void td_exec_stacks_forget(td_exec *exec); /* some row got another value */

/* hook.c: the same as forward, truncate and free by native code. */
treadle_status td_exec_hook_forward(td_exec *exec, td_exec_row *rows, treadle_error *err);
void td_exec_hook_truncate(td_exec *exec, size_t row, int64_t length);
void td_exec_hook_end(td_exec *exec, size_t row);

/* bind.c: inputs and outputs of a session for a run. */
treadle_status td_exec_bind(td_exec *exec, const td_exec_run *run, int32_t session, treadle_error *err);
/* The value a wire carries in this run; NULL: its source gave nothing. */
const td_value *td_exec_wire_value(const td_exec *exec, const td_exec_run *run, int32_t wire);
/* splice.c: *value, the embeddings that an input takes, becomes a copy with the features of this run in their
 * places. */
treadle_status td_exec_splice(td_exec *exec, const td_exec_run *run, int32_t session, size_t input,
                              const td_value **value, treadle_error *err);
/* After a session's run: wires that hold, cross caches. */
treadle_status td_exec_keep(td_exec *exec, const td_exec_run *run, int32_t session, treadle_error *err);
void td_exec_choose_given(td_exec *exec);   /* given.c: once, when contexts and state are there */
void td_exec_choose_sliding(td_exec *exec); /* the same; after the one above */
bool td_exec_alloc_nothing(td_exec *exec);

/* images.c: the session once per image, outputs concatenated. */
treadle_status td_exec_run_images(td_exec *exec, const td_exec_run *run, const td_plan_step *step, treadle_error *err);

/* copies.c: the same for a graph of a fixed number of rows, bound for one row or for all of them. */
treadle_status td_exec_call_copies(td_exec *exec, int32_t session, treadle_error *err);
bool td_exec_copies_init(td_exec *exec);
void td_exec_copies_free(td_exec *exec);

/* logits.c */
treadle_status td_exec_pick(td_exec *exec, const td_exec_run *run, int32_t session, treadle_error *err);
treadle_status td_exec_take_logits(td_exec *exec, const td_exec_run *run, int32_t session, td_exec_row *rows,
                                   treadle_error *err);

/* positions.c: positions of tokens from `line->positions.n` to the end of the row. */
treadle_status td_exec_place_tokens(td_exec *exec, size_t row, const td_exec_row *data, treadle_error *err);

/* roles.c: fills the buffer of a role input and points value at it. */
treadle_status td_exec_roles_init(td_exec *exec, treadle_error *err);
treadle_status td_exec_roles_reserve(td_exec *exec, int64_t tokens, int64_t columns, treadle_error *err);
/* Before a session is bound: room for what only the run tells, the length of a source that is no prompt. */
treadle_status td_exec_roles_prepare(td_exec *exec, const td_exec_run *run, int32_t session, treadle_error *err);
int64_t td_exec_idle_token(const td_exec *exec, size_t row); /* in a run of rows of unequal length */
void td_exec_fill_role(td_exec *exec, const td_exec_run *run, int32_t session, size_t input, td_value *value);
void td_exec_roles_free(td_exec *exec);
void td_exec_roles_forget(td_exec *exec); /* the mask buffers no longer hold what the last run left there */

#endif
