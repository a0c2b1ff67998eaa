/* light/resolve.h - giving every node its op: schema checks, prepare, type inference, and one report of all that is
 * missing. Private to light. */
#ifndef TD_LIGHT_RESOLVE_H
#define TD_LIGHT_RESOLVE_H

#include "light/ir.h"

typedef struct td_packs td_packs;

/* ANALYSE prepares nodes for inference only: their states are thrown away when the passes are done. FINAL prepares them
 * for running. */
typedef enum td_resolve_mode { TD_RESOLVE_ANALYSE, TD_RESOLVE_FINAL } td_resolve_mode;

/* One thing that is missing, met at n nodes. */
typedef struct td_complaint {
    td_str op_type, text, first_node;
    size_t n;
} td_complaint;

typedef struct td_resolver {
    td_graph *graph;
    td_arena *arena; /* of states */
    td_resolve_mode mode;
    td_activations activations;
    td_packs *packs;            /* FINAL only */
    const td_onnx_model *model; /* FINAL only: whose files constants may lie in */
    struct td_resolver *outer;  /* of a body: the resolver of the graph around it, which keeps the complaints */
    const td_node *outer_node;  /* and the node in that graph */
    uint64_t round;             /* outermost: counts the calls of td_pass_resolve (body.c) */
    TD_VEC(td_complaint) complaints;
    size_t n_more;                   /* complaints past the limit */
    size_t n_complaints;             /* with those that are alike */
    bool complained;                 /* since it was last cleared */
    bool no_memory;                  /* an accessor of prepare, which cannot fail, had none */
    TD_VEC(const td_value *) inputs; /* scratch of infer */
    TD_VEC(td_value) outputs, relaxed;
    TD_VEC(td_value *) output_pointers;
} td_resolver;

static inline td_resolver *td_resolve_outermost(td_resolver *r) {
    while (r->outer) r = r->outer;
    return r;
}

/* All nodes in order. Complaints are only collected. */
treadle_status td_resolve_graph(td_resolver *r, treadle_error *err);
treadle_status td_resolve_node(td_resolver *r, td_node *node, treadle_error *err);
/* TREADLE_UNSUPPORTED with everything collected, or OK. */
treadle_status td_resolve_report(const td_resolver *r, treadle_error *err);
void td_resolver_free(td_resolver *r);       /* not the states */
void td_resolve_release_node(td_node *node); /* its state */
void td_resolve_release(td_graph *graph);    /* all states */

/* Collects; fills err with this complaint alone and returns TREADLE_UNSUPPORTED. */
treadle_status td_resolve_complain(td_resolver *r, const td_node *node, const char *text, treadle_error *err);
/* Against the schema: malformed nodes fail, what this version of the op does not know is a complaint. */
treadle_status td_resolve_check(td_resolver *r, td_node *node, treadle_error *err);
/* The schema's default of an attribute. false: there is none. */
bool td_resolve_default(td_resolver *r, const td_node *node, const char *name, td_onnx_attr *out);

#endif
