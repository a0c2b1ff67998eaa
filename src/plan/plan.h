/* plan/plan.h - the config with every name resolved to an integer against the graphs' signatures.
 *
 *   td_config + signatures --plan_build--> td_plan
 *
 * Built once at load; immutable afterwards; running looks nothing up. A plan holds any number of sessions, steps, wires and
 * state tensors. What this build cannot run yet is said by td_plan.cannot_run, so that check and explain still work.
 * Source: the contract of the config, sections 2 to 4. */
#ifndef TD_PLAN_PLAN_H
#define TD_PLAN_PLAN_H

#include "config/config.h"
#include "engine/engine.h"

typedef enum td_feed_kind {
    TD_FEED_NONE,    /* an optional input that nothing feeds */
    TD_FEED_ROLE,    /* made by the runtime: index is a td_role */
    TD_FEED_STATE,   /* index is a state tensor */
    TD_FEED_WIRE,    /* index is a wire */
    TD_FEED_REQUEST, /* a tensor of the request under the graph's name */
} td_feed_kind;

typedef struct td_feed {
    td_feed_kind kind;
    int32_t index;
} td_feed;

/* X(NAME, text) */
#define TD_STATE_KIND_LIST(X)                                                                                          \
    X(SEPARATE, "separate")   /* keys or values that grow along one dimension */                                       \
    X(COMBINED, "combined")   /* both in one, [2, batch, heads, seq, dim] */                                           \
    X(STATIC, "static")       /* keys or values of a fixed number of positions */                                      \
    X(CROSS, "cross")         /* made once, then only read */                                                          \
    X(RECURRENT, "recurrent") /* no growing dimension */

typedef enum td_state_kind {
#define TD_STATE_KIND_ENUM(name, text) TD_STATE_##name,
    TD_STATE_KIND_LIST(TD_STATE_KIND_ENUM)
#undef TD_STATE_KIND_ENUM
} td_state_kind;
extern const char *const td_state_kind_words[];

/* What a name says about a state tensor. */
typedef enum td_state_part { TD_PART_OTHER, TD_PART_KEY, TD_PART_VALUE, TD_PART_BOTH } td_state_part;

typedef struct td_state_tensor { /* one input and the output that becomes it */
    td_state_kind kind;
    td_state_part part;
    int32_t layer; /* -1: the name has no number */
    int32_t session, input, output;
    td_dtype dtype;
    td_shape shape;          /* of the input; dims < 0 are free: batch_axis and, for caches, seq_axis among them */
    int batch_axis;          /* -1: none */
    int seq_axis;            /* the dimension that grows; -1: none */
    int64_t heads, head_dim; /* 0: not known */
} td_state_tensor;

typedef struct td_plan_wire {
    int32_t from_session, from_output, to_session, to_input;
    bool hold;
    const char *why; /* "declared", "equal names", "the only one that fits" */
} td_plan_wire;

typedef struct td_plan_session {
    td_str name;
    const char *c_name; /* the same, NUL-terminated */
    const td_config_session *config;
    td_signature *signature; /* owned by the plan */
    td_role *roles;          /* [n_inputs]: by name, rename, or the op that takes it */
    td_feed *feeds;          /* [n_inputs] */
    int32_t *out_state;      /* [n_outputs]: state tensor, or -1 */
    bool takes_tokens;       /* ids or embeddings: roles apply */
    int32_t logits;          /* output, or -1 */
} td_plan_session;

typedef struct td_plan_step {
    int32_t session;
    td_when when, declared;
    bool promoted;
    td_loop loop;
} td_plan_step;

/* How rows of unequal length share one run. Each gives every row what it would get alone. */
typedef enum td_batching {
    TD_BATCH_APART,   /* they do not: one run per row */
    TD_BATCH_LENGTHS, /* the graph takes a length per row (GroupQueryAttention): caches are dense per row */
    TD_BATCH_MASK,    /* mask and positions say which columns of the common cache are a row's */
} td_batching;

typedef struct td_plan {
    td_arena arena;
    td_plan_session *sessions;
    size_t n_sessions;
    td_plan_step *steps; /* in order of the flow */
    size_t n_steps;
    td_plan_wire *wires;
    size_t n_wires;
    td_state_tensor *states;
    size_t n_states;

    int32_t decoder; /* the session with logits; -1: none */
    td_dtype logits_dtype;
    int logits_rank;       /* 2: [batch, vocab], 3: [batch, positions, vocab] */
    bool logits_last_only; /* the graph gives the last position alone */
    int64_t vocab;         /* 0: not declared */
    td_batching batching;
    td_position position; /* TD_POSITION_AUTO: the graph takes none */
    bool has_positions;
    int64_t context_length; /* most tokens of a row */
    int64_t max_length;     /* default limit */
    int64_t prefill_chunk;  /* tokens of one prompt run; 0: the runtime's choice */
    const char *cannot_run; /* why generation is refused; NULL: it is not */
} td_plan;

/* Opens signatures and builds the plan. Problems go to messages; *out may be incomplete if there are errors. The plan keeps
 * pointers into the config. Fails only for memory. */
treadle_status td_plan_build(const td_config *config, td_messages *messages, td_plan **out, treadle_error *err);
void td_plan_free(td_plan *plan);

/* --- stages (build.c calls them in this order) */
typedef struct td_plan_build_ctx {
    const td_config *config;
    td_plan *plan;
    td_messages *messages;
    bool out_of_memory;
} td_plan_build_ctx;

void td_plan_find_states(td_plan_build_ctx *b);  /* pair.c */
void td_plan_find_steps(td_plan_build_ctx *b);   /* flow.c */
void td_plan_find_wires(td_plan_build_ctx *b);   /* wire.c */
void td_plan_promote(td_plan_build_ctx *b);      /* flow.c */
void td_plan_check_tokens(td_plan_build_ctx *b); /* build.c */

int32_t td_plan_find_session(const td_plan *plan, td_str name); /* -1: none */
/* A name in a config for an input of a session: the graph's name, else a role or wire name renamed by io. -1: none. */
int32_t td_plan_input_index(const td_plan_session *session, td_str name);
int32_t td_plan_output_index(const td_plan_session *session, td_str name);
void td_plan_find_roles(td_plan_session *session); /* roles.c */
/* The role of an input; TD_ROLE_NONE. */
static inline td_role td_plan_role(const td_plan_session *session, size_t input) { return session->roles[input]; }
int32_t td_plan_input_of_role(const td_plan_session *session, td_role role); /* -1: none */
/* True if every node that takes one of these inputs directly is a GroupQueryAttention. */
bool td_plan_all_gqa(const td_plan *plan, int32_t session);
/* The longest timeline that a fixed table of positions in the graph allows; 0: no such table. */
int64_t td_plan_position_table(const td_plan_session *session);
/* Places for messages: the value of the session, or nothing. */
td_place td_plan_session_place(const td_plan_build_ctx *b, const td_plan_session *session);
/* Text of all names of a port list, for "available" lists, in the message arena. */
const char *td_plan_port_names(td_arena *arena, const td_light_port *ports, size_t n);

/* Writes "steps", "wires", "roles", "state", "positions", "feeds" as one object. */
void td_plan_write_json(const td_plan *plan, td_json_writer *w);
void td_plan_write_text(const td_plan *plan, td_buf *out);

/* Bytes of state for one row of `tokens` tokens. */
int64_t td_plan_state_bytes(const td_plan *plan, int64_t tokens);

#endif
