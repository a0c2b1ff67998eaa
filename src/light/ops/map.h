/* light/ops/map.h - elementwise loops over broadcast, strided operands.
 *
 * An elementwise op is a typed inner loop over a run of elements with constant byte steps; td_map_run finds the longest
 * such runs by collapsing dimensions and hands them out to the pool. Operand 0 is the output. */
#ifndef TD_LIGHT_OPS_MAP_H
#define TD_LIGHT_OPS_MAP_H

#include "light/op.h"

enum { TD_MAP_OPERANDS = 4 };

/* n elements; operand i starts at p[i] and advances by s[i] bytes (0: the same element again). */
typedef void td_map_inner(int64_t n, char *const p[TD_MAP_OPERANDS], const int64_t s[TD_MAP_OPERANDS], const void *ctx);

/* Runs fn over out and in[0..n_in), which broadcast to out's shape; in entries may be strided, as may out. */
void td_map_run(td_pool *pool, const td_tensor *out, const td_tensor *const *in, int n_in, td_map_inner *fn,
                const void *ctx);

/* Inner loops for float16 and bfloat16 (and the float8 and float4 types as inputs): operands pass through float32 in
 * chunks, `fn` works on those. Give this context to td_map_run with td_map_through_f32. */
typedef struct td_map_half {
    td_dtype out_type; /* TD_FLOAT16, TD_BFLOAT16, or any other type: the output of fn is stored as it comes */
    td_dtype in_type;
    int n_in;
    size_t out_bytes; /* element size of fn's output */
    td_map_inner *fn;
    const void *ctx; /* fn's own */
} td_map_half;
void td_map_through_f32(int64_t n, char *const p[TD_MAP_OPERANDS], const int64_t s[TD_MAP_OPERANDS], const void *ctx);

/* A typed loop of an op: the row that its table holds for a dtype. */
typedef struct td_map_row {
    td_dtype dtype; /* of the inputs */
    td_map_inner *fn;
} td_map_row;

/* The loop for a dtype: the row itself; for float16 and bfloat16 without a row, the float32 row with *half filled (n_in
 * inputs; the output has the input's type unless out_type says otherwise). NULL: no such dtype. */
td_map_inner *td_map_choose(const td_map_row *rows, size_t n_rows, td_dtype dtype, td_dtype out_type, int n_in,
                            td_map_half *half);

#endif
