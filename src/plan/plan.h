/* plan/plan.h - the config with every name resolved to an integer against the graphs' signatures.
 *
 *   td_config + signatures --plan_build--> td_plan
 *
 * Built once at load; immutable afterwards; running looks nothing up. A plan holds any number of sessions, steps, wires
 * and state tensors. What this build cannot run yet is said by td_plan.cannot_run, so that check and explain still
 * work. Source: the contract of the config, sections 2 to 4. */
#ifndef TD_PLAN_PLAN_H
#define TD_PLAN_PLAN_H

#include "config/config.h"
#include "engine/engine.h"

typedef enum td_feed_kind {
    TD_FEED_NONE,    /* an optional input that nothing feeds, or one that always gets zero rows */
    TD_FEED_ROLE,    /* made by the runtime: index is a td_role */
    TD_FEED_STATE,   /* index is a state tensor */
    TD_FEED_WIRE,    /* index is a wire, the first of its alternatives */
    TD_FEED_REQUEST, /* index is a request tensor of the plan */
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

/* One input and the output that becomes it. Sessions that never run in the same step and have state of
 * equal names, types and shapes share it: their feeds and out_state hold the same index; session, input and
 * output are those of the first.
 * A cross cache has no output of its own session: (from_session, from_output) fills it once per request, or, when
 * from_session is the session itself, the first run does (until then it is empty). from_session -1: nothing can
 * fill it, it stays empty. A recurrent tensor with a from_session starts each request as that output's value, and
 * is then carried on as usual. */
typedef struct td_state_tensor {
    td_state_kind kind;
    td_state_part part;
    int32_t layer; /* -1: the name has no number */
    int32_t session, input, output;
    int32_t from_session, from_output; /* what fills a cross cache, or starts a recurrent tensor; else -1 */
    td_dtype dtype;
    td_shape shape;          /* of the input; dims < 0 are free: batch_axis and, for caches, seq_axis among them */
    int batch_axis;          /* -1: none */
    int seq_axis;            /* the dimension that counts positions; -1: none */
    int64_t heads, head_dim; /* 0: not known */
    int64_t window;          /* positions that its layer looks back, itself included; 0: all */
    bool slides; /* its ops read no more than the last `window` columns, whatever lies before: those need not be kept */
    /* static: the op that writes it leaves the rest as it is (TensorScatter, Scatter*, GroupQueryAttention ...), so
     * past and present may be one memory */
    bool in_place;
    double init; /* recurrent: the value before the first token; 0 unless declared */
} td_state_tensor;

/* An explicit or found wire. Several wires may end at one input if their source steps never run in the same step: the
 * one that ran last feeds it; `next` chains them (-1: the last). A source that does not run in a step (a modality that
 * is absent, a prompt step while decoding) gives zero rows, unless it is a once step or the wire holds. */
typedef struct td_plan_wire {
    int32_t from_session, from_output, to_session, to_input;
    int32_t next;
    bool hold;                    /* the value of the last prompt run is kept for later steps */
    bool once;                    /* the source is a once step: kept for the whole request */
    const char *why;              /* "explicit", "same name", ... */
    const td_config_wire *config; /* NULL: found */
} td_plan_wire;

/* Features of a modality that take the places of its placeholders' embeddings, in their order. */
typedef struct td_plan_splice {
    int32_t session, input;            /* takes embeddings */
    int32_t from_session, from_output; /* makes features, in a prompt */
    int32_t modality;                  /* td_modality: whose placeholder */
} td_plan_splice;

/* A tensor that the caller gives under a graph's input name. */
typedef struct td_plan_request {
    td_str name;
    int32_t session, input; /* the first that takes it; -1: no graph does, the runtime itself needs it (crops, grids) */
    bool optional;          /* every input that takes it is optional */
    bool mask; /* 1 where there is something: all ones where the caller gives none and its sizes are known */
} td_plan_request;

typedef struct td_plan_session {
    td_str name;
    const char *c_name; /* the same, NUL-terminated */
    const td_config_session *config;
    td_signature *signature; /* owned by the plan */
    td_role *roles;          /* [n_inputs]: by name, rename, or the op that takes it */
    td_feed *feeds;          /* [n_inputs] */
    int32_t *given;          /* [n_inputs]: the request tensor that wins over the input's role in a prompt, or -1 */
    int32_t *out_state;      /* [n_outputs]: state tensor that it becomes, or cross cache that it fills, or -1 */
    bool *gives_new;      /* [n_outputs]: of a growing cache: the columns of the run alone, not the past before them */
    int32_t source_mask;  /* the request tensor that is its mask over the source, as the encoder takes it; -1: none */
    bool takes_tokens;    /* ids or embeddings: roles apply */
    bool takes_source;    /* its ids are the source's (once step of an encoder-decoder), not the timeline's */
    int32_t logits;       /* output, or -1 */
    int64_t fixed_tokens; /* its ids or embeddings have exactly this many positions; 0: any number */
    int64_t fixed_rows;   /* a run has exactly this many rows; 0: any number */
    bool last_token_only; /* of several ids the graph looks at the last one alone */
    bool starts_afresh;   /* it makes caches but takes no past: each of its runs needs the whole timeline */
} td_plan_session;

/* What a per_image loop gives an input in the run of image i. */
typedef enum td_slice {
    TD_SLICE_WHOLE, /* the whole value */
    TD_SLICE_IMAGE, /* row i of dimension 0 */
    /* the rows of dimension 0 that grid row i counts: t * h * w of them, after those of the images before */
    TD_SLICE_ROWS,
} td_slice;

typedef struct td_plan_step {
    int32_t session;
    td_when when, declared;
    bool promoted;
    td_loop loop;
    const td_config_step *config; /* NULL: found */
    /* per_image, or batched with a grid that says whose patches are whose: */
    int32_t loop_input;     /* input of the session that is sliced on dimension 0; -1: none */
    const td_slice *slices; /* [n_inputs of the session]; NULL: dimension 0 counts images or rows */
    int32_t grid_request;   /* some input has TD_SLICE_ROWS: request tensor [images, 3]; else -1 */
    int32_t crop_request;   /* dynamic_shape: request tensor [images, n_crop_dims] of sizes; -1: none */
    int n_crop_dims;
    int crop_dims[TD_MAX_RANK]; /* dimensions of loop_input that are cropped */
    int32_t modality;           /* td_modality without which it is skipped; -1: none known */
    const int32_t *release;     /* sessions whose weights may go once it has run */
    size_t n_release;
    bool held;        /* what it makes of a modality is kept, since later tokens run the whole timeline again */
    bool only_logits; /* all that it makes serves logits alone: not needed where no logits are wanted */
} td_plan_step;

/* How rows of unequal length share one run. Each gives every row what it would get alone. */
typedef enum td_batching {
    TD_BATCH_APART,   /* they do not: one run per row */
    TD_BATCH_LENGTHS, /* the graph takes a length per row (GroupQueryAttention): caches are dense per row */
    TD_BATCH_MASK,    /* mask and positions say which columns of the common cache are a row's */
    TD_BATCH_EQUAL,   /* only rows of equal length, which need no padding */
} td_batching;

/* A prompt that goes in as windows of fixed length. */
typedef struct td_plan_window {
    int64_t size; /* 0: none */
    int32_t pad_value;
    bool pad_first; /* alignment right: padding stands before the first token; else after the last */
    bool has_mask;  /* its graph takes a mask, which tells padding apart wherever it stands, */
    bool masked;    /* or lengths, which tell it apart behind the tokens */
} td_plan_window;

/* Positions of three (or four) dimensions, from the grids of images and videos. */
typedef struct td_plan_mrope {
    int axis;                         /* the dimension of position_ids that holds the kinds: 0, or the last */
    int64_t n_axes;                   /* 3: time, height, width; 4: the plain position before these */
    int32_t image_token, video_token; /* -1: none */
    int32_t image_grid, video_grid;   /* request tensors [n, 3] (t, h, w in patches); -1: none */
    int32_t second_per_grid;          /* request tensor [n videos]; -1: none */
    int64_t merge_size;
    double tokens_per_second; /* 0: a frame is one position */
} td_plan_mrope;

/* Encoder, predictor, joiner: tokens come from a walk over the encoder's frames. Predictor and joiner may be one
 * session: then joiner_predicted and predicted are -1, and its state moves on only where a token comes out. */
typedef struct td_plan_transducer {
    bool present;
    int32_t encoder, predictor, joiner; /* sessions */
    int32_t frames_output;              /* of the encoder: [batch, frames, dim] or [batch, dim, frames] */
    int32_t length_output;              /* likewise; -1: none */
    int frames_axis;
    int32_t joiner_frame, joiner_predicted; /* inputs of the joiner */
    int32_t targets, targets_length;        /* inputs of the predictor; length -1: none */
    int32_t features_length;                /* of the encoder, where the request may leave it out; -1: none */
    int64_t context;   /* tokens that a run of the predictor takes: 1, or the last ones where it has no state */
    int32_t predicted; /* output of the predictor that the joiner takes */
    int32_t logits;    /* output of the joiner */
    int32_t blank;
    float blank_penalty;      /* taken off the blank's logit before tokens are compared */
    int64_t max_symbols;      /* per frame; 0: no limit */
    const int64_t *durations; /* TDT: the last n_durations logits choose the step; n 0: RNN-T */
    size_t n_durations;
} td_plan_transducer;

typedef struct td_plan_pooling {
    bool present; /* the model gives vectors, not tokens */
    int32_t session, output;
    int32_t mode; /* td_pooling */
    bool pooled;  /* the output has rank 2: a vector per row already */
    bool normalize;
} td_plan_pooling;

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
    td_plan_request *requests;
    size_t n_requests;
    td_plan_splice *splices;
    size_t n_splices;

    /* the first session with logits; -1: none. A step that runs later may have logits
     * too (prompt and decode graphs) */
    int32_t decoder;
    td_dtype logits_dtype;
    int logits_rank;       /* 2: [batch, vocab], 3: [batch, positions, vocab], -1: not declared, a run will tell */
    bool logits_last_only; /* the graph gives the last position alone */
    int64_t vocab;         /* 0: not declared */
    td_batching batching;
    int64_t rows_per_run; /* graphs that decode take exactly this many rows; 0: any number */
    td_position position; /* TD_POSITION_AUTO: the graph takes none */
    bool has_positions;
    td_plan_mrope mrope; /* position MROPE_3D */
    td_plan_window window;
    td_plan_transducer transducer;
    td_plan_pooling pooling;
    /* the prompt feeds the once sessions (encoder-decoder); the timeline starts from decoder_start */
    bool source_prompt;
    /* by td_modality: the token that stands for one feature in a prompt; -1: none */
    int32_t placeholders[TD_MODALITY_NONE];
    int64_t context_length;  /* most tokens of a row */
    int64_t max_length;      /* default limit */
    int64_t slide_window;    /* the longest window of the caches that slide; 0: none does */
    int64_t static_capacity; /* positions of the static caches; 0: there are none */
    /* tokens of one prompt run; 0: the runtime's choice; 1: graphs that take one token at a time */
    int64_t prefill_chunk;
    int64_t reprefill_at;           /* a timeline that crosses this length is run again from its start; 0: none */
    const td_config_plugin *plugin; /* native code that runs the sessions; NULL: steps do */
    const char *cannot_run;         /* why tokens cannot be generated; NULL: they can */
} td_plan;

/* Opens signatures and builds the plan. Problems go to messages; *out may be incomplete if there are errors. The plan
 * keeps pointers into the config. Fails only for memory. */
treadle_status td_plan_build(const td_config *config, td_messages *messages, td_plan **out, treadle_error *err);
void td_plan_free(td_plan *plan);

/* The request tensor of that name: the graph's, else the one that io gives it. -1: none. */
int32_t td_plan_find_request(const td_plan *plan, td_str name);
int32_t td_plan_find_session(const td_plan *plan, td_str name); /* -1: none */
/* Exporters that number the symbols of dimensions say of two of them nothing but that both are free. */
bool td_name_is_numbered(td_str symbol);
/* A name in a config for an input of a session: the graph's name, else a role or wire name renamed by io. -1: none. */
int32_t td_plan_input_index(const td_plan_session *session, td_str name);
int32_t td_plan_output_index(const td_plan_session *session, td_str name);
/* The role of an input; TD_ROLE_NONE. */
static inline td_role td_plan_role(const td_plan_session *session, size_t input) { return session->roles[input]; }
int32_t td_plan_input_of_role(const td_plan_session *session, td_role role); /* -1: none */

/* What is known of an output, though its file may not declare it, against what the plan needs of it: logits and
 * state. */
treadle_status td_plan_check_output(const td_plan *plan, int32_t session, size_t output, const td_light_port *port,
                                    treadle_error *err);

bool td_plan_runs_in_decode(const td_plan *plan, int32_t session); /* in some step of a later token */

/* Writes "steps", "wires", "roles", "state", "positions", "feeds" as one object. */
void td_plan_write_json(const td_plan *plan, td_json_writer *w);
void td_plan_write_text(const td_plan *plan, td_buf *out);

enum {
    TD_PREFILL_CHUNK = 512, /* a prompt pass of this many tokens is where larger ones gain nothing more */
    /* Attention takes keys in parts that begin at multiples of this: with so many more columns it adds the same numbers
     * in the same order, whatever was dropped. */
    TD_SLIDE_MORE = 256,
};

/* Of caches that slide: columns that stay when others are dropped, and with how many that happens. chunk: tokens of
 * most runs. With room for a quarter more, or a chunk, a token moves O(1) columns on average. */
static inline int64_t td_plan_slide_keep(const td_plan *plan) { return plan->slide_window + TD_SLIDE_MORE; }
static inline int64_t td_plan_slide_limit(const td_plan *plan, int64_t chunk) {
    return td_plan_slide_keep(plan) + TD_MAX(chunk, td_plan_slide_keep(plan) / 4);
}

/* Bytes of state for one row of `tokens` tokens, where caches that may slide do. */
int64_t td_plan_state_bytes(const td_plan *plan, int64_t tokens);

#endif
