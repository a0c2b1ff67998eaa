/* exec/exec.h - runs the plan's steps over fixed bindings: tokens and tensors in, logits and outputs out.
 *
 * A td_runtime is the opened sessions of a model, shared and immutable. A td_exec is one generator's side: a context
 * per session, the state, the buffers of the roles (ids, mask, positions ...), and the values that outlive a step
 * (outputs of once steps, held wires, cross caches). td_exec_forward brings every row up to date with its timeline:
 * rows with unequally many new tokens run alone over their part of the caches, so nothing is ever padded; rows with one
 * new token each, or a short prompt of one length, run together where the plan allows it. Long prompts go in chunks.
 * Invariant: nothing is allocated when the buffers are large enough (td_exec_reserve), and no name is looked up. */
#ifndef TD_EXEC_EXEC_H
#define TD_EXEC_EXEC_H

#include <pthread.h>
#include <stdatomic.h>

#include "state/state.h"

struct td_exec;
struct td_exec_row;

/* Native code in place of the plan's steps: what a row runs, and with what. Immutable; each
 * row's own data is made by begin. */
typedef struct td_exec_hook {
    void *self;
    treadle_status (*begin)(void *self, struct td_exec *exec, size_t row, void **out, treadle_error *err);
    void (*end)(void *self, void *data);
    /* Runs tokens from n_done on; *out_logits [*out_n] stays valid until the row's next call. */
    treadle_status (*forward)(void *self, void *data, struct td_exec *exec, size_t row,
                              const struct td_exec_row *tokens, int64_t n_done, const float **out_logits, size_t *out_n,
                              treadle_error *err);
    /* false: it cannot; the row is then begun again. */
    bool (*rewind)(void *self, void *data, int64_t length);
} td_exec_hook;

typedef struct td_runtime {
    const td_plan *plan;
    const td_engine **engines; /* [n_sessions] */
    td_session **sessions;     /* [n_sessions]; owned */
    bool *pick_rows;           /* [n_sessions]: logits can be computed for few positions */
    const td_exec_hook *hook;  /* NULL: the plan's steps; not owned */
} td_runtime;

/* Opens the sessions of a plan, each on the engine that options and config say. */
treadle_status td_runtime_open(const td_plan *plan, const td_engine_options *options, td_runtime **out,
                               treadle_error *err);
void td_runtime_close(td_runtime *runtime); /* NULL is fine */

typedef TD_VEC(float) td_floats;

typedef struct td_exec_row {
    const int32_t *ids; /* the whole timeline, borrowed */
    int64_t n_ids;
    const int32_t *source; /* plan.source_prompt: what the once steps read, borrowed */
    int64_t n_source;
    const td_value *requests; /* [plan.n_requests]: tensors given for this row, borrowed; NULL: none */
    bool fresh_requests;      /* they came with what has not been run yet: prompt steps take them */
    bool live;                /* false: the row is left as it is */
    bool prompt;              /* what it has not run yet was appended: prompt steps run */
    const float *logits; /* out: [vocab] after the last token that was run; valid until the next forward. NULL: none */
} td_exec_row;

/* Positions of one row in several dimensions (positions.c). */
typedef struct td_exec_position {
    int32_t at[3]; /* time, height, width */
    int32_t next;  /* where text would go on after this token */
} td_exec_position;

/* What a row has beyond its state. */
typedef struct td_exec_line {
    bool once_done;   /* its once steps have run */
    bool again;       /* what it is about to run has been run: a graph without a past needs the whole timeline */
    int64_t n_tokens; /* hooks: tokens run */
    void *hook_data;  /* hooks: the row's own; NULL: not begun */
    TD_VEC(td_exec_position) positions;
    /* transducers: the encoder's length, what goes into predictor and joiner; owned */
    td_value length, targets, targets_length, predicted, frame;
    td_value frames;    /* of the latest chunk; owned */
    bool joint_pending; /* a graph that predicts and joins has run, and what came of its state is not settled */
} td_exec_line;

/* One value of all rows, made from theirs (stack.c). */
typedef struct td_exec_stack {
    td_value whole; /* owned; NONE: there is none */
    /* [n_rows]: the memory of the rows' values that it was made from; NULL where it is out of date. */
    const void **parts;
} td_exec_stack;

/* Ends a run from another thread: that of every executor that has joined (interrupt.c).
 * Owned by who owns the executors. */
typedef struct td_interrupt {
    atomic_bool running, on; /* on only while running */
    pthread_mutex_t lock;
    bool valid;
    struct td_exec *execs;
} td_interrupt;

typedef struct td_exec {
    const td_runtime *runtime;
    const td_plan *plan;
    td_state *state;
    size_t n_rows;
    int64_t vocab; /* 0: not known yet */
    int64_t chunk; /* tokens per run in a prefill */
    bool has_past; /* some state carries the past; else every run needs the whole timeline */

    /* Sessions: contexts, and what is bound to them. */
    td_session_ctx **ctx; /* [n_sessions] */
    td_value **inputs;    /* [n_sessions][n_inputs] */
    td_value **outputs;   /* [n_sessions][n_outputs]: of the session's latest run */
    td_value **joined;    /* [n_sessions][n_outputs]: of a loop over images, concatenated; owned */
    td_value *spliced;    /* [n_sessions]: embeddings of a prompt with features in them; owned */
    bool *is_joined;      /* [n_sessions]: `joined` holds its latest outputs, not `outputs` */
    bool **skip;          /* [n_sessions][n_outputs]: nobody reads it */
    bool keep_outputs;    /* no output is skipped */
    td_value **copies; /* [n_sessions][n_inputs]: of graphs of a fixed number of rows (copies.c); NULL: others; owned */
    td_tensor *bound;  /* [most outputs of such a graph]: scratch */
    void *nothing;     /* zeros, for inputs that get zero rows */

    /* The run under way. */
    uint64_t run_number;
    size_t row;         /* its first row */
    bool *written;      /* [n_states]: what it has given */
    uint64_t *ran;      /* [n_sessions]: number of the run it last took part in */
    uint64_t *released; /* [n_sessions]: `ran` when its weights were let go */
    int64_t *runs;      /* [n_sessions]: how many there were */
    int64_t *lengths;   /* [n_rows], scratch */

    /* Rows: what outlives a run beside the state. */
    td_exec_line *lines;      /* [n_rows] */
    td_value *kept;           /* [n_rows, n_wires]: of wires that hold and of once steps; owned */
    td_exec_stack *stacks;    /* [n_states + n_wires]: cross caches, then kept values, of rows that run together */
    const void **stack_parts; /* [n_states + n_wires, n_rows]: what the stacks hold */

    /* Inputs that the runtime makes (roles.c). */
    struct td_exec_role *role_slots;   /* one per input of every session */
    size_t *first_slot;                /* [n_sessions] */
    int64_t role_tokens, role_columns; /* what they have room for */

    /* Logits (logits.c). */
    float *logits;       /* [n_rows, vocab] */
    int64_t *picked;     /* [n_rows], scratch */
    int64_t *picked_n;   /* [n_sessions]: position that is picked now; -1: all, -2: not known */
    size_t *picked_rows; /* [n_sessions]: of how many rows */
    int64_t *picked_of;  /* [n_sessions]: of how many positions */
    bool keep_all;       /* keep those of all positions */
    td_floats *all;      /* [n_rows]: appended */

    td_interrupt *interrupt; /* borrowed; NULL: never ended by others */
    struct td_exec *next;    /* of that interrupt */
} td_exec;

treadle_status td_interrupt_init(td_interrupt *interrupt, treadle_error *err);
void td_interrupt_end(td_interrupt *interrupt); /* no executor is left in it; one of zeros is fine */
/* Around what td_interrupt_run may end; the latter does nothing outside, and may be called by any thread. */
void td_interrupt_begin_run(td_interrupt *interrupt);
void td_interrupt_end_run(td_interrupt *interrupt);
void td_interrupt_run(td_interrupt *interrupt);
void td_interrupt_join(td_interrupt *interrupt, td_exec *exec); /* td_exec_free leaves */
void td_interrupt_leave(td_exec *exec);

static inline bool td_interrupted(const td_interrupt *interrupt) {
    return atomic_load_explicit(&interrupt->on, memory_order_relaxed);
}

treadle_status td_exec_new(const td_runtime *runtime, size_t n_rows, td_exec **out, treadle_error *err);
void td_exec_free(td_exec *exec); /* NULL is fine */
/* An executor of its own that goes on from where this one is. */
treadle_status td_exec_clone(const td_exec *exec, td_exec **out, treadle_error *err);

/* Room for rows of `tokens` tokens, so that steps up to there allocate nothing. */
treadle_status td_exec_reserve(td_exec *exec, int64_t tokens, treadle_error *err);

/* Runs what each live row has beyond what was run, one token at least. Ends with TREADLE_CANCELLED when interrupted.
 * After a failure rows are where they were before the chunk that failed. */
treadle_status td_exec_forward(td_exec *exec, td_exec_row *rows, treadle_error *err);

/* A plan without logits: runs its steps for one row, over its tensors and all its tokens; where state goes on from the
 * row's last run, over the tokens since. Outputs are then in td_exec_output until the next call. */
treadle_status td_exec_encode(td_exec *exec, td_exec_row *rows, size_t row, treadle_error *err);
void td_exec_keep_outputs(td_exec *exec); /* from now on no output is skipped */
/* An output of the latest run; NULL: it did not run, or the output is skipped (keep_outputs). */
const td_value *td_exec_output(const td_exec *exec, int32_t session, int32_t output);

/* Forgets tokens of a row beyond `length`. Where the state cannot be cut, everything is
 * forgotten and will be run again. */
void td_exec_truncate(td_exec *exec, size_t row, int64_t length);
/* Whether the state is there for that length; a hook says so itself when it is cut. */
bool td_exec_can_truncate(const td_exec *exec, size_t row, int64_t length);
/* A new request begins in this row: once steps will run again. */
void td_exec_restart(td_exec *exec, size_t row);
/* Row r becomes what row from[r] was. */
treadle_status td_exec_gather(td_exec *exec, const size_t *from, treadle_error *err);
int64_t td_exec_length(const td_exec *exec, size_t row); /* tokens run */

/* transduce.c: the sessions of a transducer for one row. Encodes the row's tensors;
 * *out_frames: how many frames came out. */
treadle_status td_exec_transduce_encode(td_exec *exec, td_exec_row *rows, size_t row, int64_t *out_frames,
                                        treadle_error *err);
/* Predicts from the last n tokens; the row's predictor state moves on. */
treadle_status td_exec_transduce_predict(td_exec *exec, td_exec_row *rows, size_t row, const int32_t *ids, int64_t n,
                                         treadle_error *err);
/* Logits of a frame (of the row's latest chunk) joined with what was predicted last; valid until the next call. */
treadle_status td_exec_transduce_join(td_exec *exec, td_exec_row *rows, size_t row, int64_t frame, const float **out,
                                      int64_t *out_n, treadle_error *err);

/* One run of a session over exec->inputs; what comes out is in exec->outputs. For native code (td_exec_hook);
 * everything else runs by the functions above. */
treadle_status td_exec_call(td_exec *exec, int32_t session, treadle_error *err);

#endif
