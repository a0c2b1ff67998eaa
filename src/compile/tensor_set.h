/* compile/tensor_set.h - the tensors of a checkpoint, whatever kind of file they lie in.
 *
 * Bytes are views into mapped files, which their reader owns and has checked: [data, data + bytes) is inside.
 * Nothing is said of alignment. */
#ifndef TD_COMPILE_TENSOR_SET_H
#define TD_COMPILE_TENSOR_SET_H

#include "base/error.h"
#include "base/map.h"
#include "quant/formats.h"

enum { TD_SOURCE_RANK = 8 };

typedef struct td_source_tensor {
    td_str name;
    int rank;
    int64_t dims[TD_SOURCE_RANK];  /* innermost first: dims[0] is the row length; 1 beyond rank */
    const td_quant_format *format; /* NULL: no float type, of use to no part */
    const char *type;              /* what the file calls its type */
    const uint8_t *data;
    size_t row_bytes, bytes; /* row_bytes 0 without a format */
} td_source_tensor;

typedef struct td_tensor_set {
    TD_VEC(td_source_tensor) tensors;
    td_map index;
} td_tensor_set;

/* Copies the tensor; its name is borrowed. FORMAT if there is one of that name. */
treadle_status td_tensor_set_add(td_tensor_set *set, const td_source_tensor *tensor, treadle_error *err);
const td_source_tensor *td_tensor_set_find(const td_tensor_set *set, td_str name); /* NULL: absent */
uint64_t td_tensor_set_bytes(const td_tensor_set *set);                            /* of all tensors */
void td_tensor_set_discard(td_tensor_set *set);

/* Rows of a tensor seen as a matrix: all dimensions but the innermost. */
int64_t td_source_tensor_rows(const td_source_tensor *tensor);

/* The shape as people write it, outermost first, "[512, 80, 3]", cut to fit. */
enum { TD_SOURCE_SHAPE_TEXT = 192 };
const char *td_source_shape_text(int rank, const int64_t *dims, char text[TD_SOURCE_SHAPE_TEXT]);

#endif
