/* kernels/gemm_i8_tmpl.h - the 8-bit matrix product for any SIMD instruction set, included by one .c file per set.
 *
 * The including file includes its simd_*.h (vf: 16 fp32) and defines
 *     vi            16 int32: vi_load, vi_store, vi_set1, vi_add, vi_sub, vi_mul (low 32 bits), vi_to_f (vf)
 *     vb, vb_load   64 uint8 codes of B: 16 columns of 4
 *     va, va_set    4 int8 codes of A, repeated
 *     acc           16 sums: acc_zero, acc_add(acc, vb, va), acc_end (vi)
 *     bytes_of(vf)  16 whole floats within -128..255 to their low bytes, __m128i
 *     row_codes     32 codes at a time: see row
 *     ROWS, PANELS  of the largest tile
 *     VARIANT, VARIANT_NAME */
#include "kernels/gemm_i8.h"

#include <math.h>
#include <string.h>

enum { P = TD_GEMM_I8_PANEL, STEP = TD_GEMM_I8_STEP };

TD_SIMD void tile(const int rows, const int panels, const int8_t *a, int64_t a_row, const uint8_t *b,
                  int64_t panel_bytes, int64_t steps, int32_t *raw, int64_t raw_row) {
    acc sum[ROWS][PANELS];

    TD_UNROLL
    for (int i = 0; i < rows; i++) {
        TD_UNROLL
        for (int p = 0; p < panels; p++) sum[i][p] = acc_zero();
    }
    for (int64_t s = 0; s < steps; s++) {
        vb codes[PANELS];
        TD_UNROLL
        for (int p = 0; p < panels; p++) codes[p] = vb_load(b + p * panel_bytes + s * P * STEP);
        TD_UNROLL
        for (int i = 0; i < rows; i++) {
            va four = va_set(a + i * a_row + s * STEP);
            TD_UNROLL
            for (int p = 0; p < panels; p++) sum[i][p] = acc_add(sum[i][p], codes[p], four);
        }
    }
    TD_UNROLL
    for (int i = 0; i < rows; i++) {
        TD_UNROLL
        for (int p = 0; p < panels; p++) vi_store(raw + i * raw_row + p * P, acc_end(sum[i][p]));
    }
}

#define TILE(rows)                                                                                                     \
    static void tile_##rows(int64_t panels, const int8_t *a, int64_t a_row, const uint8_t *b, int64_t panel_bytes,     \
                            int64_t steps, int32_t *raw, int64_t raw_row) {                                            \
        if (PANELS == 1 || panels == PANELS) tile(rows, PANELS, a, a_row, b, panel_bytes, steps, raw, raw_row);        \
        else                                                                                                           \
            for (int64_t p = 0; p < panels; p++)                                                                       \
                tile(rows, 1, a, a_row, b + p * panel_bytes, panel_bytes, steps, raw + p * P, raw_row);                \
    }
/* clang-format off */
#define UP_TO_2(M) M(1) M(2)
#define UP_TO_6(M) UP_TO_2(M) M(3) M(4) M(5) M(6)
#define UP_TO_8(M) UP_TO_6(M) M(7) M(8)
#if ROWS == 2
#define UP_TO_ROWS UP_TO_2
#elif ROWS == 6
#define UP_TO_ROWS UP_TO_6
#else
#define UP_TO_ROWS UP_TO_8
#endif
/* clang-format on */
UP_TO_ROWS(TILE)

typedef void tile_fn(int64_t panels, const int8_t *a, int64_t a_row, const uint8_t *b, int64_t panel_bytes,
                     int64_t steps, int32_t *raw, int64_t raw_row);
#define TILE_ROW(rows) tile_##rows,
static tile_fn *const tiles[] = {UP_TO_ROWS(TILE_ROW)};

/* Panels outside, so that a group of B stays in the first cache while the rows pass. */
static void sums(const int8_t *a, int64_t a_row, int64_t m, const uint8_t *panels, int64_t panel_bytes,
                 int64_t n_panels, int64_t steps, int32_t *raw, int64_t raw_row) {
    for (int64_t p = 0; p < n_panels; p += PANELS) {
        int64_t count = TD_MIN((int64_t)PANELS, n_panels - p);
        for (int64_t i = 0; i < m; i += ROWS) {
            int64_t rows = TD_MIN((int64_t)ROWS, m - i);
            tiles[rows - 1](count, a + i * a_row, a_row, panels + p * panel_bytes, panel_bytes, steps,
                            raw + i * raw_row + p * P, raw_row);
        }
    }
}

/* What belongs to 16 columns; beyond the last column zeros. */
typedef struct columns16 {
    vi sums, zeros, terms; /* terms: k * zero - sum */
    vf scales, bias;
} columns16;

static void load_columns(const td_gemm_i8 *job, int64_t n0, int64_t count, columns16 *out) {
    int32_t zeros[P] = {0}, sums_of[P];
    float scales[P] = {0}, bias[P] = {0};

    memcpy(sums_of, (const int32_t *)job->b + n0, sizeof sums_of); /* padded to whole panels */
    for (int64_t j = 0; j < count; j++) {
        zeros[j] = job->b_zero[(n0 + j) * job->b_zero_step];
        if (job->y) scales[j] = job->b_scale[(n0 + j) * job->b_scale_step];
        if (job->y && job->bias) bias[j] = job->bias[n0 + j];
    }
    out->sums = vi_load(sums_of);
    out->zeros = vi_load(zeros);
    out->terms = vi_sub(vi_mul(vi_set1((int32_t)job->k), out->zeros), out->sums);
    out->scales = vf_load(scales);
    out->bias = vf_load(bias);
}

static void store_part(void *to, const void *from, int64_t count) { memcpy(to, from, (size_t)count * 4); }

static void finish(const td_gemm_i8 *job, int64_t m0, int64_t m, int64_t n0, int64_t n, const int32_t *raw,
                   int64_t raw_row) {
    for (int64_t j = 0; j < n; j += P) {
        int64_t count = TD_MIN((int64_t)P, n - j);
        columns16 columns;
        load_columns(job, n0 + j, count, &columns);
        for (int64_t i = 0; i < m; i++) {
            vi za = vi_set1(job->a_zero[(m0 + i) * job->a_zero_step]), sum = vi_set1(job->a_sums[m0 + i]);
            vi c = vi_add(vi_load(raw + i * raw_row + j), vi_mul(za, columns.terms));
            c = vi_sub(c, vi_mul(columns.zeros, sum));
            if (job->c) {
                int32_t part[P], *to = job->c + (m0 + i) * job->c_row + n0 + j;
                vi_store(count < P ? part : to, c);
                if (count < P) store_part(to, part, count);
                continue;
            }
            vf scale = vf_mul(vf_set1(job->a_scale[(m0 + i) * job->a_scale_step]), columns.scales);
            vf y = vf_mul(vi_to_f(c), scale);
            if (job->bias) y = vf_add(y, columns.bias);
            float *to = job->y + (m0 + i) * job->y_row + n0 + j;
            if (count < P) vf_store_n(to, y, (int)count);
            else vf_store(to, y);
        }
    }
}

static int32_t row(const uint8_t *codes, int64_t n, bool flip, int8_t *out) {
    int64_t i = 0;
    uint32_t sum = row_codes(codes, n, flip, out, &i);
    for (; i < n; i++) {
        out[i] = (int8_t)(flip ? codes[i] ^ 0x80 : codes[i]);
        sum += (uint32_t)out[i];
    }
    return (int32_t)sum;
}

static void range(const float *x, int64_t n, float *least, float *largest) {
    vf low = vf_zero(), high = vf_zero();
    int64_t i = 0;
    for (; i + P <= n; i += P) { /* of a NaN and a number the operations give the second */
        vf v = vf_load(x + i);
        low = vf_min(v, low);
        high = vf_max(v, high);
    }
    if (i < n) {
        vf v = vf_load_n(x + i, (int)(n - i));
        low = vf_min(v, low);
        high = vf_max(v, high);
    }
    *least = 0 - vf_max_lane(vf_sub(vf_zero(), low));
    *largest = vf_max_lane(high);
}

static void quantize(const float *x, int64_t n, float scale, float zero, float low, float high, uint8_t *out) {
    vf s = vf_set1(scale), z = vf_set1(zero), l = vf_set1(low), h = vf_set1(high);
    for (int64_t i = 0; i < n; i += P) {
        vf v = i + P <= n ? vf_load(x + i) : vf_load_n(x + i, (int)(n - i));
        v = vf_add(vf_round(vf_div(v, s)), z);
        v = vf_min(vf_max(v, l), h);
        __m128i bytes = bytes_of(v);
        if (i + P <= n) {
            _mm_storeu_si128((__m128i *)(void *)(out + i), bytes);
        } else {
            uint8_t part[P];
            _mm_storeu_si128((__m128i *)(void *)part, bytes);
            memcpy(out + i, part, (size_t)(n - i));
        }
    }
}

const td_gemm_i8_kernels VARIANT = {
    .name = VARIANT_NAME, .sums = sums, .finish = finish, .row = row, .range = range, .quantize = quantize};
