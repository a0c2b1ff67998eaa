/* tensor/value.h - what a graph value can be: a tensor, a sequence, an optional, or nothing.
 *
 * An optional is represented by what it holds, or by TD_VALUE_NONE when empty; its static type says that it is one. */
#ifndef TD_TENSOR_VALUE_H
#define TD_TENSOR_VALUE_H

#include "tensor/tensor.h"

typedef enum td_value_kind { TD_VALUE_NONE, TD_VALUE_TENSOR, TD_VALUE_SEQUENCE } td_value_kind;

typedef struct td_sequence td_sequence;

typedef struct td_value {
    td_value_kind kind;
    td_tensor tensor;      /* TD_VALUE_TENSOR */
    td_sequence *sequence; /* TD_VALUE_SEQUENCE */
} td_value;

/* Immutable once shared; items of sequences own their memory through tensor.buffer or their own sequence. */
struct td_sequence {
    int refs; /* atomic */
    size_t n;
    td_value items[];
};

td_sequence *td_sequence_new(size_t n); /* all items NONE; NULL: out of memory */
td_sequence *td_sequence_retain(td_sequence *sequence);
void td_sequence_release(td_sequence *sequence); /* releases items and their buffers */
td_value td_value_share(const td_value *value);  /* another owner of the same memory */
/* A dense tensor, contents not set, in the memory that only this value holds if that is large enough, else in new
 * memory. false: out of memory, or too large; the value is as before. */
bool td_value_resize(td_value *value, td_dtype dtype, const td_shape *shape);
/* The same with n more places in dimension 0: what a dense tensor holds stays, memory doubles where it is not
 * enough. */
bool td_value_extend(td_value *value, int64_t n);
bool td_value_copy(td_value *to, const td_value *from); /* deep: *to owns everything; false: out of memory */
void td_value_release(td_value *value);                 /* releases buffer or sequence, becomes NONE */

#endif
