/* light/session.h - the opened graph (td_light) and its run state (td_light_ctx), inside. Private to light.
 *
 * td_light is immutable once open. A ctx holds one td_program per set of skipped outputs: the steps that are run for
 * it, their operands as pointers into the ctx, who dies where, and the memory plan. */
#ifndef TD_LIGHT_SESSION_H
#define TD_LIGHT_SESSION_H

#include "light/blocks.h"
#include "light/body.h"
#include "light/ir.h"
#include "light/packs.h"

#include <stdatomic.h>

/* Whether positions of an output may be asked for, and then: whether they can be picked by PickRows nodes of the same
 * graph, which read what the ctx was told (pass/pick_rows.c). An If's branches are asked for what the If is asked. */
typedef enum { TD_PICK_NEVER, TD_PICK_ASKED, TD_PICK_HERE } td_pick_mark;

struct td_light {
    td_onnx_model *model; /* NULL: a body */
    td_light_options options;
    td_arena arena; /* graph, states */
    td_graph graph;
    td_packs packs;
    td_pool *pool;
    td_light_port *inputs, *outputs;
    td_pick_mark *pick_marks; /* per output; NULL: a body that nobody asks */
};

struct td_body {
    td_light light; /* its graph, states and options; ports and packs are the session's */
    td_str attr;
    const td_onnx_graph *source;
    size_t n_formals;
    size_t first_captured; /* the node's input that graph input n_formals is */
    int32_t *feeds; /* per output: the formal that it becomes in the next iteration, or TD_NO_PORT; NULL: none do */
    bool may_pass;  /* some output may be (a view of) a graph input */
    uint64_t round; /* of the resolver, when its formals were last set afresh */
};

enum { TD_STEP_VIEW = 1, TD_STEP_VALUES = 2, TD_STEP_ABSENT = 4, TD_STEP_INPLACE = 8, TD_STEP_DENSE = 16 };
enum { TD_INPUT_DENSE = 1, TD_INPUT_DIES = 2 }; /* to be made dense; its memory may become the output's */

typedef struct td_step {
    const td_op_impl *impl;
    const int32_t *out; /* value ids; TD_NO_VALUE: not wanted */
    uint32_t n_out, n_in;
    uint32_t flags, index;
    td_infer infer;
    td_run run;
    const td_tensor **in_tensors;  /* = run.in, writable */
    const td_tensor **own_tensors; /* what in_tensors holds unless a dense copy stands in */
    const int32_t *in;
    const uint8_t *in_flags;
    const int32_t *deaths; /* values whose own memory is free after this step */
    uint32_t n_deaths;
    uint32_t node;    /* index in the graph */
    td_tensor *dense; /* [n_in] with TD_STEP_DENSE: room for the copies' descriptions */
} td_step;

/* Planned memory. capacity 0: none. Values that were computed in place share the slot of the value they were computed
 * over: `group` is the same. */
typedef struct td_slot {
    size_t offset, capacity;
    int32_t group;
    bool in_place; /* may be used only if the value is computed over another of its group */
} td_slot;

typedef struct td_program {
    struct td_program *next;
    td_arena arena;
    bool *skip; /* [n_outputs] */
    td_step *steps;
    size_t n_steps;
    int32_t *survivors; /* values that hold memory when a run is over */
    size_t n_survivors;
    bool *lent;              /* per value: a body may hand it out, so nothing is computed over it */
    int32_t *defined, *last; /* per value: step that makes it (-1: none) and after which its memory is free */
    td_slot *slots;          /* per value */
    td_slot *scratch;        /* per step */
    size_t *scratch_demand;  /* per step: bytes */
    size_t slab_bytes;
    uint64_t planned_for; /* ctx->demand_version */
    td_arena plan_arena;
} td_program;

enum { TD_BOUND = TD_NO_VALUE - 1 };

/* Where a value's memory comes from in this run. */
typedef struct td_place {
    /* value whose slot or block its data lie in; a graph input or a constant owns its own, whoever's that is;
     * TD_NO_VALUE: memory of a buffer or of a body; TD_BOUND: what an output is bound to */
    int32_t owner;
    void *block; /* that it owns */
} td_place;

/* What earlier runs taught about a value. */
typedef struct td_demand {
    size_t bytes;
    int32_t over;    /* value that it was computed over in place, or TD_NO_VALUE */
    bool never_over; /* that did not last */
    bool moves;      /* always in a block of its own, which outlives the run: the next iteration reads it */
} td_demand;

typedef struct td_binding { /* of a graph output */
    td_tensor to;           /* the caller's memory; data NULL: unbound. shape: capacity */
    int32_t aliases;        /* graph input that it extends; NO_ALIAS, OVERLAPS */
    bool direct;            /* written by its producer in this run */
    td_tensor from;         /* else: what is copied to it at the end */
} td_binding;
enum { TD_ALIAS_NONE = -1, TD_ALIAS_OVERLAPS = -2 };

typedef struct td_extent {
    uintptr_t begin, end;
} td_extent;

/* One input's bytes; most_end: the largest end of the spans up to this one, in order of their begin. */
typedef struct td_span {
    td_extent at;
    uintptr_t most_end;
    int32_t input;
} td_span;

typedef struct td_pick {
    int64_t *positions; /* [batch, n] */
    size_t batch, n;
    int64_t seq;
    bool on;
} td_pick;

/* What keeps the memory of a formal alive. */
typedef struct td_hold {
    void *block; /* of the body's ctx */
    bool owns;   /* the value has a reference to its buffer or sequence */
    bool moved;  /* the block has become another formal's */
    bool scalar; /* in `scalars`, which change */
} td_hold;

struct td_body_run {
    const td_body *body;
    td_light_ctx *ctx;
    td_run *caller;
    td_hold *holds, *next_holds; /* per formal */
    td_value *next;              /* per formal */
    int64_t *scalars;            /* per formal */
    bool *through;               /* per output: bound through (td_body_bind_through) */
};

struct td_light_ctx {
    const td_light *light;
    td_light_ctx *outermost; /* of a body's ctx; else itself */
    uint64_t n_steps;        /* outermost: of bodies, in this run */
    td_arena arena;
    td_value *values; /* by id */
    td_place *places;
    td_demand *demands;
    uint64_t demand_version;
    int32_t *binding_of;      /* value id -> first output bound to it in this run, or -1 */
    td_binding *bindings;     /* per output */
    td_extent *input_extents; /* per input: bytes that it spans in this run */
    td_span *spans;           /* [n_inputs], by address: alias.c */
    td_pick *picks;           /* per output: what this ctx was told */
    const td_pick **picked;   /* per output: what PickRows follows, `picks` or what the ctx around was told */
    uint64_t *node_ns;        /* profile of the last run, per node */
    td_body_run **bodies;     /* per node: run states of its bodies, or NULL */
    td_program *programs;
    td_program *program; /* of the current run, or the last one */
    td_step *step;
    char *slab;
    size_t slab_bytes;
    td_blocks blocks;
    size_t n_held;                 /* blocks and references that values hold */
    atomic_bool interrupted;       /* outermost: runs end; set by any thread */
    bool broken;                   /* the last run failed: any value may hold something */
    size_t scratch_used;           /* of the current step */
    TD_VEC(void *) scratch_blocks; /* of the current step */
    TD_VEC(void *) kept;           /* until the next run */
};

/* The If whose output *k is this output of the graph, read by nobody else; or NULL. */
const td_node *td_pick_branches(const td_graph *graph, size_t output, size_t *k);

td_program *td_program_find(td_light_ctx *ctx, const bool *skip, treadle_error *err); /* NULL: err is set */
void td_program_free(td_program *program);
treadle_status td_program_plan(td_light_ctx *ctx, td_program *program, treadle_error *err); /* memplan.c */

/* A run in parts (run.c): ends the results of the last one; plans memory for ctx->program; walks its steps. */
void td_ctx_release(td_light_ctx *ctx);
treadle_status td_ctx_plan(td_light_ctx *ctx, treadle_error *err);
treadle_status td_ctx_steps(td_light_ctx *ctx, treadle_error *err);
bool td_ctx_interrupted(const td_light_ctx *ctx);

/* Gives output `k` of the current step memory for its dtype and shape (run_memory.c). */
treadle_status td_run_place(td_light_ctx *ctx, td_step *step, size_t k, treadle_error *err);
void td_run_release_value(td_light_ctx *ctx, int32_t id); /* block, buffer, sequence */
void *td_run_scratch_in(td_light_ctx *ctx, td_step *step, size_t bytes);
void td_run_scratch_end(td_light_ctx *ctx, td_step *step);

/* alias.c: once the extents of a run's inputs are known; then, for each bound output, the
 * input in whose memory it lies. */
void td_alias_begin(td_light_ctx *ctx);
int32_t td_alias_find(const td_light_ctx *ctx, const td_value *inputs, const td_tensor *to, td_extent own);
bool td_same_strides(const td_tensor *a, const td_tensor *b); /* type, rank and strides */

#endif
