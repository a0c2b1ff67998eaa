/* light/ops/stack.h - the scan outputs of Loop and Scan: slices of equal shape, one an iteration, along a new axis. */
#ifndef TD_LIGHT_OPS_STACK_H
#define TD_LIGHT_OPS_STACK_H

#include "light/body.h"

typedef struct td_stack {
    size_t k, i;     /* output of the body, output of the node */
    int axis;        /* of the node's output */
    td_tensor all;   /* data NULL: not begun */
    int64_t room, n; /* slices there is memory for; slices there are */
    bool in_scratch; /* it has outgrown the node's output */
} td_stack;

/* Before an iteration: where slice `at` is to lie, if that can be told to the body. at < room. */
void td_stack_bind(const td_stack *s, td_body_run *b, int64_t at);
/* After an iteration: slice `at` is what the body left. The first one gets `room` slices of memory; later ones
 * beyond it grow it (axis 0 only). */
treadle_status td_stack_put(td_stack *s, td_run *r, td_body_run *b, int64_t at, int64_t room);
/* The node's output is as long as what was put. `type`: of the output as known at open, for no slices at all. */
treadle_status td_stack_end(td_stack *s, td_run *r, const td_value *type);

/* A shape with one more dimension at `axis`, counted from behind if negative. false: no such axis, or too many. */
bool td_stack_shape(const td_shape *slice, int64_t axis, int64_t n, td_shape *out);

#endif
