/* kernels/qmatmul_c.c - the quantised matmul in plain C: the definition that the other variants are checked against.
 *
 * Written for clarity. FLOAT mode multiplies and adds with two roundings where the SIMD variants fuse,
 * since fma in software would cost some 50 ns for each weight; INT8 mode needs one fma for 16 or 32
 * weights and is bit for bit theirs.
 */
#include "kernels/qmatmul.h"

#include "tensor/half.h"

#include <math.h>
#include <string.h>

enum { N = TD_QTILE_N, K = TD_QTILE_K };

/* --- activations --- */

/* The order of these additions is that of the SIMD variants. */
static float tree_sum(const float *values, int sub) {
    float v[16];
    for (int i = 0; i < 16; i++) v[i] = sub == 32 ? values[i] + values[i + 16] : values[i];
    for (int width = 8; width > 0; width /= 2)
        for (int i = 0; i < width; i++) v[i] += v[i + width];
    return v[0];
}

static void fill_block_int8(const td_qact *act, int64_t row, int64_t block, const float *values) {
    int8_t *codes = act->codes + row * act->k_padded + block * act->sub;
    int64_t at = row * act->n_sub + block;
    uint32_t max_bits = 0;
    for (int i = 0; i < act->sub; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        max_bits = TD_MAX(max_bits, bits & 0x7fffffff);
    }
    float max, scale = 0, inverse = 0;
    memcpy(&max, &max_bits, sizeof max);
    if (max_bits >= 0x7f800000) {
        scale = NAN;
    } else if (max >= TD_QACT_LEAST) {
        scale = max / 127;
        inverse = 127 / max;
    }
    int32_t sum = 0;
    for (int i = 0; i < act->sub; i++) {
        codes[i] = inverse > 0 ? (int8_t)lrintf(values[i] * inverse) : 0;
        sum += codes[i];
    }
    act->scales[at] = scale;
    act->neg_sums[at] = -sum;
    act->sums[at] = scale * (float)sum;
}

static void fill(const td_qact *act, int64_t m0, int64_t m1) {
    for (int64_t row = m0; row < m1; row++) {
        const float *source = act->source + row * act->source_stride;
        for (int64_t block = 0; block < act->n_sub; block++) {
            float values[32] = {0};
            int64_t k0 = block * act->sub, n = TD_MIN(act->sub, act->k - k0);
            if (n > 0) memcpy(values, source + k0, (size_t)n * sizeof(float));
            if (act->mode == TD_QMODE_INT8) fill_block_int8(act, row, block, values);
            else act->sums[row * act->n_sub + block] = tree_sum(values, act->sub);
            if (act->value_copy)
                memcpy(act->value_copy + row * act->k_padded + k0, values, (size_t)act->sub * sizeof(float));
        }
    }
}

/* --- product --- */

static float param(const uint8_t *data, int form, int index) {
    uint16_t half;
    float value;
    if (form == TD_QPARAM_F16) {
        memcpy(&half, data + 2 * index, sizeof half);
        return td_f16_to_f32(half);
    }
    memcpy(&value, data + 4 * index, sizeof value);
    return value;
}

/* Code of input j of the tile for one output, minus `centre`. */
static int code_at(const uint8_t *codes, int bits, int lane, int j, int centre) {
    int t = j / 16, z = j / 4 % 4;
    const uint8_t *p = codes + 4 * lane + j % 4;
    int code = bits == 8   ? p[64 * (4 * t + z)]
               : bits == 4 ? p[64 * (4 * (t / 2) + z)] >> (4 * (t & 1)) & 15
                           : p[64 * z] >> (2 * t) & 3;
    return code - centre;
}

static float dot(const td_qweights *weights, const td_qact *act, int64_t row, int64_t output) {
    const td_qlayout *l = &weights->layout;
    int lane = (int)(output % N), per_tile = K / l->sub, centre = l->minimum == TD_QPARAM_NONE ? 1 << (l->bits - 1) : 0;
    const uint8_t *column = weights->data + (size_t)(output / N) * td_qlayout_column_bytes(l);
    float f = 0;
    for (int64_t b = 0; b < act->n_sub; b++) {
        const uint8_t *tile = column + (size_t)(b / per_tile) * l->tile_bytes, *codes = tile + l->codes_offset;
        int index = (int)(b % per_tile) * N + lane, j0 = (int)(b % per_tile) * l->sub;
        float scale = param(tile, l->scale, index);
        if (act->mode == TD_QMODE_INT8) {
            int64_t at = row * act->n_sub + b, from = row * act->k_padded + b * l->sub;
            for (int second = 0; second <= act->refined[at]; second++) {
                const int8_t *a = (second ? act->codes2 : act->codes) + from;
                int32_t sum = 0;
                for (int j = 0; j < l->sub; j++) sum += a[j] * code_at(codes, l->bits, lane, j0 + j, centre);
                f = fmaf((float)sum, (second ? act->scales2 : act->scales)[at] * scale, f);
            }
        } else {
            const float *a = act->values + row * act->value_stride + b * l->sub;
            float p = 0;
            for (int j = 0; j < l->sub; j++) p += a[j] * (float)code_at(codes, l->bits, lane, j0 + j, centre);
            f += p * scale;
        }
        if (l->minimum != TD_QPARAM_NONE)
            f = fmaf(param(tile + l->minima_offset, l->minimum, index), act->sums[row * act->n_sub + b], f);
    }
    return f;
}

static void run(const td_qmatmul *job, int64_t m0, int64_t m1, int64_t n0, int64_t n1, void *scratch) {
    (void)scratch;
    for (int64_t row = m0; row < m1; row++)
        for (int64_t n = n0; n < n1; n++) {
            /* -0 is what changes nothing when added, not even -0 */
            float value = dot(job->weights, job->act, row, n) + (job->bias ? job->bias[n] : -0.0f);
            if (job->epilogue == TD_QEPILOGUE_SWIGLU) {
                float up = dot(job->weights_up, job->act, row, n) + (job->bias_up ? job->bias_up[n] : -0.0f);
                value = value / (1 + expf(-value)) * up;
            }
            job->y[row * job->y_stride + n] = value + (job->add ? job->add[row * job->add_stride + n] : -0.0f);
        }
}

static size_t scratch_bytes(int64_t k) {
    (void)k;
    return 64;
}

const td_qmatmul_kernels td_qmatmul_c = {"c", fill, run, scratch_bytes};
