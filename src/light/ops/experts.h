/* light/ops/experts.h - the weight matrices of a mixture of experts, one [n, k] for each expert,
 * in float or block-quantised. */
#ifndef TD_LIGHT_OPS_EXPERTS_H
#define TD_LIGHT_OPS_EXPERTS_H

#include "kernels/gemm_f32.h"
#include "light/ops/quant_linear.h"

typedef struct td_experts {
    size_t input, bias; /* of the node; bias may be absent */
    int64_t count, n, k;
    td_dtype dtype; /* of float weights */
    const td_gemm_f32_kernels *gemm;
    const uint8_t *panels; /* float constants, packed: panel_bytes for each expert; else NULL */
    size_t panel_bytes;
    bool quantised;
    td_qlinear linear; /* all experts' rows as one matrix [count * n, k] */
} td_experts;

/* Weights [experts, n, k] of a float type; constants are packed under the key `what`. */
treadle_status td_experts_prepare(td_prepare *p, size_t input, size_t bias, const char *what, td_experts *out);

/* A quantised matrix as QMoE has it; the inputs are constants. block 0: one scale for a whole row. */
typedef struct td_experts_source {
    size_t codes, scales, zeros, bias; /* inputs; zeros and bias may be absent */
    int bits;
    int64_t block;
    td_qmode mode;
} td_experts_source;
treadle_status td_experts_prepare_quantised(td_prepare *p, const td_experts_source *source, const char *what,
                                            td_experts *out);

/* Memory for products of up to `rows` rows, from the run's scratch. */
typedef struct td_experts_memory {
    void *gemm, *act, *scratch; /* scratch: of the quantised kernel, per thread */
    size_t scratch_bytes;
    float *y; /* [rows, stride] */
    int64_t stride;
    float *biases; /* [count, n] where the node's are not float32 */
} td_experts_memory;
treadle_status td_experts_reserve(td_run *r, const td_experts *e, int64_t rows, td_experts_memory *out);

/* memory->y: [m, stride], of which the n columns from *first on are x . W[expert]^T + bias. x: [m, k], dense. */
void td_experts_run(td_run *r, const td_experts *e, int64_t expert, const float *x, int64_t m,
                    const td_experts_memory *memory, int64_t *first);

#endif
