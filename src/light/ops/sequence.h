/* light/ops/sequence.h - what ops on sequences share. */
#ifndef TD_LIGHT_OPS_SEQUENCE_H
#define TD_LIGHT_OPS_SEQUENCE_H

#include "light/op.h"

/* Output is a sequence of tensors of this element type. */
treadle_status td_sequence_type(td_infer *in, size_t output, td_dtype dtype);

#endif
