/* light/known.h - lists of integers that are made of shapes: what is known of them before a run. Private to light.
 *
 * Exporters compute shapes in the graph (Shape, Gather, Concat, then Reshape or Expand). Followed from op to op, an
 * entry is a number, or a dimension by its symbol, and so is then the shape that it makes. */
#ifndef TD_LIGHT_KNOWN_H
#define TD_LIGHT_KNOWN_H

#include "light/op.h"

typedef struct td_graph td_graph;

/* Entries: TD_KNOWN_NOT; a symbol's dimension (TD_DIM_SYMBOL: -2 and less); a number from -1. Truths are 0 and 1. */
#define TD_KNOWN_NOT INT64_MIN

typedef struct td_known {
    int n;
    int64_t v[TD_MAX_RANK];
} td_known;

/* Of a value of at most one dimension and TD_MAX_RANK entries. false: nothing is known. */
bool td_known_of(const td_graph *graph, int32_t value, td_known *out);

/* Keeps what is known of a node's result, whose type is inferred already. */
treadle_status td_known_follow(td_graph *graph, const td_node *node, treadle_error *err);

#endif
