/* plan/build.h - what the stages of td_plan_build share: names taken apart, who takes an input, helpers for messages.
 *
 * The stages run once, in the order of build.c. Everything they leave is in the plan; what only they need dies with the
 * context's scratch arena. */
#ifndef TD_PLAN_BUILD_H
#define TD_PLAN_BUILD_H

#include "base/map.h"
#include "plan/plan.h"

/* --- names.c: a name is cut into words (letters and digits apart, case ignored) */

enum { TD_STEM_BYTES = 160 };

typedef struct td_name_parts {
    char stem[TD_STEM_BYTES]; /* words joined by '.', those that only say in or out dropped; empty: nothing is left */
    bool says_side;           /* some word said in or out */
    bool says_time;           /* past, cache, new ... */
    bool says_state;          /* the same, or state ..., or a layer's key or value */
    bool cross;               /* cross or encoder */
    td_state_part part;
    int32_t layer; /* -1: none, or more than one number */
} td_name_parts;

void td_name_take_apart(td_str name, td_name_parts *out);
/* Whether an input's stem and an output's are one: equal, or x and xN, h0 and hn. */
bool td_name_same_stem(const td_name_parts *in, const td_name_parts *out);
/* Keys or values of the cross attention of some layer. */
static inline bool td_name_is_cross_cache(const td_name_parts *p) {
    return p->cross && p->part != TD_PART_OTHER && p->layer >= 0;
}
bool td_name_has_word(td_str name, const char *word);
td_modality td_name_modality(td_str name); /* the kind of input that a name speaks of; TD_MODALITY_NONE */
/* What a session made of a modality (features, embeddings), not the modality's own tensor. */
bool td_name_is_features(td_str name);

/* --- uses.c: the nodes that take a graph input, subgraphs included */

typedef struct td_use {
    const td_onnx_node *node;
    uint32_t slot;
    int32_t next; /* -1: the last */
} td_use;

typedef struct td_uses {
    const td_use *items;
    int32_t *first; /* [n_inputs]: -1: none */
} td_uses;

bool td_uses_find(const td_signature *signature, td_arena *arena, td_uses *out); /* false: out of memory */
bool td_use_is(const td_use *use, const char *domain, const char *op_type);

/* --- the context */

typedef struct td_plan_build_ctx {
    const td_config *config;
    td_plan *plan;
    td_messages *messages;
    td_arena *scratch;
    td_uses *uses;               /* [n_sessions] */
    td_name_parts **ins, **outs; /* [n_sessions][n_inputs], [n_sessions][n_outputs]: of the names in wires */
    bool **handed;               /* [n_sessions][n_inputs]: set by handed.c */
    /* tensors in, tensors out: no tokens are generated, no vectors pooled; the caller gives every input */
    bool generic;
    int32_t source_encoder, source_embedding; /* source.c; -1: none */
    bool *follows;                  /* [n_sessions]: a wire brings it what a session made of tokens; set by feed.c */
    size_t max_wires, max_requests; /* what the plan has room for */
    bool out_of_memory;
} td_plan_build_ctx;

/* The level of a message that something the config says of the graphs does not hold: what a
 * version 1 file says is a hint. */
static inline treadle_message_level td_plan_misfit(const td_plan_build_ctx *b) {
    return b->config->version == 1 ? TREADLE_MESSAGE_NOTE : TREADLE_MESSAGE_ERROR;
}

typedef struct td_plan_end { /* an input or output; session -1: none */
    int32_t session, port;
} td_plan_end;

static inline const td_light_port *td_plan_in(const td_plan *plan, td_plan_end end) {
    return &plan->sessions[end.session].signature->inputs[end.port];
}
static inline const td_light_port *td_plan_out(const td_plan *plan, td_plan_end end) {
    return &plan->sessions[end.session].signature->outputs[end.port];
}

void td_plan_find_roles(td_plan_build_ctx *b, int32_t session); /* roles.c */
int32_t td_plan_token_input(const td_plan_session *session);    /* ids, else embeddings; -1: none */
const td_onnx_tensor *td_plan_initializer(const td_onnx_graph *graph, td_str name);
/* Of the table that its ids choose from; 0: not found. */
int64_t td_plan_embedding_rows(const td_plan_session *session);
/* True if every node that takes one of the session's caches directly is a GroupQueryAttention. */
bool td_plan_all_gqa(const td_plan_build_ctx *b, int32_t session);
/* The longest timeline that a fixed table of positions in the graph allows; 0: no such table. */
int64_t td_plan_position_table(const td_plan_build_ctx *b, int32_t session);
/* outputs.c: ids of one dimension that counts the tokens of one row, and not one token of each row. */
bool td_plan_has_flat_ids(const td_plan_session *session);
void td_plan_find_handed(td_plan_build_ctx *b); /* handed.c: inputs that other sessions make in the same run */
void td_plan_find_states(td_plan_build_ctx *b); /* pair.c: within a session */
void td_plan_find_steps(td_plan_build_ctx *b);  /* flow.c */
void td_plan_find_source(td_plan_build_ctx *b); /* which once sessions take the source's ids */
void td_plan_add_step(td_plan_build_ctx *b, int32_t session, td_when when);
void td_plan_classify(td_plan_build_ctx *b);        /* classify.c: adds the steps of several sessions */
void td_plan_find_transducer(td_plan_build_ctx *b); /* transducer.c */
void td_plan_wire_transducer(td_plan_build_ctx *b); /* transducer.c */
void td_plan_fill_cross(td_plan_build_ctx *b);      /* cross.c */
void td_plan_share_states(td_plan_build_ctx *b);    /* share.c */
/* True if the config says that this is a transducer; its declared wires are checked when the joiner is known. */
bool td_plan_may_be_transducer(const td_plan_build_ctx *b);
/* Reports declared wires whose ends do not fit, but those to the session `except` (-1: none). */
void td_plan_check_ends(td_plan_build_ctx *b, int32_t except);
void td_plan_declared_wires(td_plan_build_ctx *b); /* wire.c */
void td_plan_check_wires(td_plan_build_ctx *b);    /* wire.c: once the steps are known */
void td_plan_find_wires(td_plan_build_ctx *b);     /* feed.c */
void td_plan_hold_features(td_plan_build_ctx *b);  /* flow.c: once the steps are final */
void td_plan_promote(td_plan_build_ctx *b);        /* flow.c */
void td_plan_find_loops(td_plan_build_ctx *b);     /* loop.c */
void td_plan_find_splices(td_plan_build_ctx *b);   /* splice.c */
void td_plan_find_only_logits(td_plan *plan);      /* loop.c */
void td_plan_find_logits(td_plan_build_ctx *b);    /* outputs.c: by name, before there are steps */
void td_plan_find_outputs(td_plan_build_ctx *b);   /* outputs.c: the rest: logits by elimination, pooling */
void td_plan_find_lengths(td_plan_build_ctx *b);   /* lengths.c */
void td_plan_find_positions(td_plan_build_ctx *b); /* positions.c */
void td_plan_find_batching(td_plan_build_ctx *b);  /* batching.c */
void td_plan_check_outputs(td_plan_build_ctx *b);  /* fault.c: once logits and state are known */
void td_plan_find_sliding(td_plan_build_ctx *b);   /* slide.c: once rows are known to share runs */

void td_plan_compact_states(td_plan_build_ctx *b, const bool *dropped); /* share.c */

/* state_kind.c: the symbol or number of the dimension that counts rows, from the input that tokens come in by, else
 * the first input that has one. */
void td_plan_find_rows(const td_plan_build_ctx *b, int32_t session, td_str *symbol, int64_t *number);
/* What kind of state a pair is. out NULL: it has no output of its own. */
void td_plan_describe_state(td_plan_build_ctx *b, int32_t session, size_t input, const td_light_port *out,
                            const td_name_parts *parts, td_state_tensor *s);

/* Values of td_feed.index while a TD_FEED_NONE is not settled; afterwards it is -1. */
enum {
    TD_FEED_UNFED = -1, /* something must feed it */
    TD_FEED_FREE = -2,  /* nothing need feed it */
    TD_FEED_SAID = -3,  /* its fault is reported */
};
static inline bool td_plan_is_unfed(const td_plan_session *s, size_t input) {
    return s->feeds[input].kind == TD_FEED_NONE && s->feeds[input].index == TD_FEED_UNFED;
}
/* pair.c: an input that is a cache by its name and has no partner: an error is added. false: it is no cache. */
bool td_plan_report_lonely(td_plan_build_ctx *b, int32_t session, size_t input);

/* present.c: which outputs give new columns alone, of the session's states from `first` on. */
void td_plan_find_presents(td_plan_build_ctx *b, int32_t session, size_t first);
void td_plan_find_heads(td_state_tensor *s);
/* sizes.c: sizes that are still free, of the states from `first` on. */
void td_plan_find_sizes(td_plan_build_ctx *b, size_t first);

/* wire.c */
void td_plan_add_wire(td_plan_build_ctx *b, td_plan_end from, td_plan_end to, bool hold, const char *why);
/* "session.tensor" in a config; what it names must exist, else a message and session or port -1. what: "Dataflow
 * wire". */
td_plan_end td_plan_resolve_end(td_plan_build_ctx *b, td_str text, const td_json *json, bool from);
/* Types, ranks and fixed dimensions agree (a free one fits anything). */
bool td_plan_ports_fit(const td_light_port *out, const td_light_port *in);
/* feed.c: by a wire to a session that may run in one step with `beside` (-1: any), or by state. */
bool td_plan_output_is_used(const td_plan *plan, int32_t session, int32_t output, int32_t beside);

/* flow.c */
int32_t td_plan_first_step(const td_plan *plan, int32_t session); /* -1: none */
bool td_plan_runs_only(const td_plan *plan, int32_t session, td_when when);
/* True if a step of one and a step of the other may run in the same round. */
bool td_plan_run_together(const td_plan *plan, int32_t a, int32_t b);

void td_plan_for_plugin(td_plan_build_ctx *b); /* plugin.c: native code decides what runs */
const char *td_plan_find_fault(td_plan *plan); /* fault.c */

/* request.c: the request tensor of that name, added if there is none. -1: out of memory. */
int32_t td_plan_request_of(td_plan_build_ctx *b, td_str name, bool optional);
int32_t td_plan_named_request(td_plan_build_ctx *b, td_str name); /* loop.c: "session.input" or a name by itself */

/* The name that a port has in wires: as io renames it, else the graph's. */
td_str td_plan_wire_name(const td_plan_session *session, bool input, size_t port);
static inline td_modality td_plan_input_modality(const td_plan_session *session, size_t input) {
    return td_name_modality(td_plan_wire_name(session, true, input));
}
/* request.c: the td_modality without which a graph need not run, as its metadata may say; -1: it does not. */
int32_t td_plan_metadata_modality(const td_signature *sig);
bool td_plan_is_optional(const td_plan_session *session, size_t input); /* by type, default, config or metadata */

/* Places for messages: the value of the session, or nothing. */
td_place td_plan_session_place(const td_plan_build_ctx *b, const td_plan_session *session);
/* Text of all names of a port list, for "available" lists, in the message arena. */
const char *td_plan_port_names(td_arena *arena, const td_light_port *ports, size_t n);
void td_plan_note(td_plan_build_ctx *b, int32_t session, const char *format, ...) TD_PRINTF(3, 4);

bool td_plan_says_decode(td_str name); /* classify.c: the name of a graph for later tokens */

/* source.c: an encoder and a decoder that share a graph of embeddings. true: *out_embedding is to be opened once more,
 * as the session after the last one, for the encoder alone. */
bool td_plan_find_source_encoder(td_plan_build_ctx *b, int32_t *out_embedding);
void td_plan_wire_source(td_plan_build_ctx *b); /* from that encoder to its decoders */

/* editions.c: a graph's other editions, and the parts of a whole, are no sessions */
void td_plan_drop_editions(td_plan_build_ctx *b);

/* --- check.c: values of the config that the graphs bound: ids, preprocessed tensors */
void td_plan_check_values(td_plan_build_ctx *b);

#endif
