/* kernels/qmatmul.c - the table of variants, and the memory of prepared activations. */
#include "kernels/qmatmul.h"

#include <math.h>
#include <string.h>

#define TD_KERNEL(isa, needs) {#isa, (needs), &td_qmatmul_##isa},
const td_kernel_variant td_qmatmul_variants[] = {
#include "kernels/qmatmul.inc"
};
#undef TD_KERNEL
const size_t td_qmatmul_n_variants = TD_COUNT(td_qmatmul_variants);

const td_qmatmul_kernels *td_qmatmul_pick(void) { return td_kernel_pick(td_qmatmul_variants, td_qmatmul_n_variants); }

/* Where the parts of a td_qact lie in its memory. */
typedef struct act_plan {
    size_t values, codes, codes2, scales, scales2, sums, neg_sums, neg_sums2, refined, total; /* offsets, then bytes */
} act_plan;

static bool add_part(size_t *total, size_t rows, size_t row_items, size_t item_bytes, size_t *offset) {
    size_t items, bytes;
    *offset = *total;
    if (TD_MUL_OVERFLOWS(rows, row_items, &items) || TD_MUL_OVERFLOWS(items, item_bytes, &bytes)) return false;
    if (bytes > SIZE_MAX / 2 - 64 - *total) return false;
    *total += TD_ROUND_UP(bytes, 64);
    return true;
}

static bool plan_act(td_qmode mode, int sub, int64_t m, int64_t k, act_plan *plan) {
    if (m < 0 || k < 0 || k > INT64_MAX - TD_QTILE_K) return false;
    size_t rows = (size_t)m, k_padded = TD_ROUND_UP((size_t)k, TD_QTILE_K), n_sub = k_padded / (size_t)sub;
    bool copy = mode == TD_QMODE_FLOAT && k_padded != (size_t)k, codes = mode == TD_QMODE_INT8;
    *plan = (act_plan){0};
    return add_part(&plan->total, rows, copy ? k_padded : 0, sizeof(float), &plan->values) &&
           add_part(&plan->total, rows, codes ? k_padded : 0, sizeof(int8_t), &plan->codes) &&
           add_part(&plan->total, rows, codes ? k_padded : 0, sizeof(int8_t), &plan->codes2) &&
           add_part(&plan->total, rows, codes ? n_sub : 0, sizeof(float), &plan->scales2) &&
           add_part(&plan->total, rows, codes ? n_sub : 0, sizeof(int32_t), &plan->neg_sums2) &&
           add_part(&plan->total, rows, codes ? n_sub : 0, sizeof(uint8_t), &plan->refined) &&
           add_part(&plan->total, rows, codes ? n_sub : 0, sizeof(float), &plan->scales) &&
           add_part(&plan->total, rows, n_sub, sizeof(float), &plan->sums) &&
           add_part(&plan->total, rows, codes ? n_sub : 0, sizeof(int32_t), &plan->neg_sums);
}

bool td_qact_bytes(td_qmode mode, int sub, int64_t m, int64_t k, size_t *out) {
    act_plan plan;
    if (!plan_act(mode, sub, m, k, &plan)) return false;
    *out = plan.total;
    return true;
}

void td_qact_init(td_qact *act, td_qmode mode, int sub, const float *source, int64_t source_stride, int64_t m,
                  int64_t k, void *memory) {
    act_plan plan;
    uint8_t *base = memory;
    int64_t k_padded = TD_ROUND_UP(k, TD_QTILE_K);
    *act = (td_qact){.mode = mode,
                     .sub = sub,
                     .m = m,
                     .k = k,
                     .k_padded = k_padded,
                     .n_sub = k_padded / sub,
                     .values = source,
                     .value_stride = source_stride,
                     .source = source,
                     .source_stride = source_stride};
    if (!plan_act(mode, sub, m, k, &plan)) return; /* td_qact_bytes has said no: there is no memory to fill */
    act->sums = (float *)(void *)(base + plan.sums);
    if (mode == TD_QMODE_INT8) {
        act->codes = (int8_t *)(base + plan.codes);
        act->scales = (float *)(void *)(base + plan.scales);
        act->neg_sums = (int32_t *)(void *)(base + plan.neg_sums);
        act->refined = base + plan.refined;
        act->codes2 = (int8_t *)(base + plan.codes2);
        act->scales2 = (float *)(void *)(base + plan.scales2);
        act->neg_sums2 = (int32_t *)(void *)(base + plan.neg_sums2);
    } else if (k_padded != k) {
        act->value_copy = (float *)(void *)(base + plan.values);
        act->values = act->value_copy;
        act->value_stride = k_padded;
    }
}

#define ROUNDER 0x1.8p+23f /* added and taken away again: what is below 2^22 loses its fraction */

/* Second codes of one block: what the first leave over. */
static void refine_block(const td_qact *act, int64_t row, int64_t block) {
    int64_t k0 = block * act->sub, n = TD_MIN(act->sub, act->k - k0), at = row * act->n_sub + block;
    const float *values = act->source + row * act->source_stride + k0;
    const int8_t *codes = act->codes + row * act->k_padded + k0;
    int8_t *codes2 = act->codes2 + row * act->k_padded + k0;
    float scale = act->scales[at], scale2 = scale / 254, inverse2 = 254 / scale;
    int32_t sum = 0;
    memset(codes2, 0, (size_t)act->sub);
    for (int64_t i = 0; i < n; i++) {
        float rest = values[i] - scale * (float)codes[i]; /* within half a step, as near as rounding lets it be */
        float code =
            rest * inverse2 + ROUNDER - ROUNDER; /* to the nearest even: compilers vectorise this, not lrintf */
        code = code > 127 ? 127 : code < -127 ? -127 : code;
        codes2[i] = (int8_t)(int32_t)code;
        sum += (int32_t)code;
    }
    act->refined[at] = 1;
    act->scales2[at] = scale2;
    act->neg_sums2[at] = -sum;
    act->sums[at] += scale2 * (float)sum;
}

static void refine_row(const td_qact *act, int64_t row) {
    const float *scales = act->scales + row * act->n_sub;
    int64_t n = (act->k + act->sub - 1) / act->sub;
    double sum = 0;
    memset(act->refined + row * act->n_sub, 0, (size_t)act->n_sub);
    memset(act->scales2 + row * act->n_sub, 0, (size_t)act->n_sub * sizeof(float));
    memset(act->neg_sums2 + row * act->n_sub, 0, (size_t)act->n_sub * sizeof(int32_t));
    for (int64_t b = 0; b < n; b++) sum += (double)scales[b] * (double)scales[b];
    if (!(sum > 0)) return; /* zeros, or a NaN somewhere */
    for (int64_t b = 0; b < n; b++)
        if ((double)scales[b] * (double)scales[b] * (double)n > TD_QACT_REFINE * sum) refine_block(act, row, b);
}

void td_qact_fill(const td_qmatmul_kernels *kernels, const td_qact *act, int64_t m0, int64_t m1) {
    kernels->fill(act, m0, m1);
    for (int64_t row = m0; act->mode == TD_QMODE_INT8 && row < m1; row++) refine_row(act, row);
}
