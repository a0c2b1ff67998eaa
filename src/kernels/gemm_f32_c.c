/* kernels/gemm_f32_c.c - the fp32 matrix product in plain C: the definition the other variants are checked against, and
 * what runs on CPUs without a variant of their own. B passes through fp32 panels; a panel serves all rows. */
#include "kernels/gemm_f32.h"

enum { P = TD_GEMM_PANEL, K_BLOCK = 256 };

static void panel_rows(const td_gemm_f32 *job, int64_t m0, int64_t m1, int64_t n0, int64_t k0, int64_t kc,
                       const float *panel) {
    int64_t count = TD_MIN(P, job->n - n0);
    for (int64_t i = m0; i < m1; i++) {
        const float *a = job->a + i * job->a_row + k0 * job->a_col;
        float *c = job->c + i * job->c_row + n0;
        float sum[P] = {0};
        for (int64_t j = 0; k0 > 0 && j < count; j++) sum[j] = c[j];
        for (int64_t x = 0; x < kc; x++)
            for (int j = 0; j < P; j++) sum[j] += a[x * job->a_col] * panel[x * P + j];
        bool last = k0 + kc == job->k;
        for (int64_t j = 0; j < count; j++) {
            c[j] = last && job->bias ? sum[j] + job->bias[n0 + j] : sum[j];
            if (last && job->row_bias) c[j] += job->row_bias[i];
        }
    }
}

static void run(const td_gemm_f32 *job, int64_t m0, int64_t m1, int64_t n0, int64_t n1, void *scratch) {
    float *panel = scratch;
    for (int64_t n = n0; n < n1; n += P) {
        int64_t k0 = 0;
        do { /* once for k = 0 too: the result is then the bias */
            int64_t kc = TD_MIN((int64_t)K_BLOCK, job->k - k0);
            td_gemm_f32_panel(&job->b, job->k, job->n, k0, kc, n, panel);
            panel_rows(job, m0, m1, n, k0, kc, panel);
            k0 += kc;
        } while (k0 < job->k);
    }
}

const td_gemm_f32_kernels td_gemm_f32_c = {
    .name = "c", .run = run, .scratch_bytes = (size_t)K_BLOCK * P * sizeof(float)};
