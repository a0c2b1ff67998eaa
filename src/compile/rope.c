/* compile/rope.c - the tables of the rotary embedding.
 *
 * Angles are position * frequency in float32, as transformers has them. Frequencies: base^(-2i/d), divided per
 * frequency by rope_freqs (the llama 3 scaling in a GGUF), linearly scaled, by YaRN (Peng et al., arXiv 2309.00071), or
 * as Llama 3 does it (the low frequencies divided, the high ones kept, a ramp between). */
#include "compile/parts.h"

#include "base/alloc.h"

#include <math.h>

static const double two_pi = 6.283185307179586;

/* The pair index at which a frequency turns `turns` times over the original context. */
static double correction(const td_model *m, double turns) {
    return (double)m->rotary_dim * log(m->original_context / (turns * two_pi)) / (2 * log(m->rope_base));
}

/* Frequencies of the pairs into out, and the factor on cos and sin. */
static void fill_frequencies(const td_model *m, const float *divisors, float *out, float *magnitude) {
    double low = fmax(0, floor(correction(m, m->beta_fast)));
    double high = fmin((double)m->rotary_dim - 1, ceil(correction(m, m->beta_slow)));
    double factor = m->scaling == TD_SCALING_NONE ? 1 : m->rope_factor;
    *magnitude = (float)m->attn_factor;
    if (m->scaling == TD_SCALING_YARN) *magnitude *= (float)(1 + 0.1 * log(factor));
    for (int64_t i = 0; i < m->rotary_dim / 2; i++) {
        double frequency =
            pow(m->rope_base, -2.0 * (double)i / (double)m->rotary_dim) / (divisors ? (double)divisors[i] : 1.0);
        if (m->scaling == TD_SCALING_LINEAR) frequency /= factor;
        if (m->scaling == TD_SCALING_LLAMA3) {
            double turns = m->original_context * frequency / two_pi; /* over the original context */
            double smooth = (turns - m->low_frequency) / (m->high_frequency - m->low_frequency);
            smooth = fmin(1, fmax(0, smooth));
            frequency = frequency / factor * (1 - smooth) + frequency * smooth;
        }
        if (m->scaling == TD_SCALING_YARN) {
            double ramp = fmin(1, fmax(0, ((double)i - low) / fmax(0.001, high - low)));
            frequency = frequency / factor * ramp + frequency * (1 - ramp);
        }
        out[i] = (float)frequency;
    }
}

static treadle_status write_table(td_builder *b, td_str name, const float *frequencies, float magnitude, bool sine,
                                  float *row) {
    const td_model *m = &b->model;
    const int64_t half = m->rotary_dim / 2, dims[2] = {m->context, half};
    uint64_t at = 0;
    int64_t rows = TD_MAX((1 << 16) / half, 1); /* positions per piece; `row` has room for them */
    TD_TRY(td_weights_declare(&b->weights, name, TD_FLOAT, 2, dims, &at));
    for (int64_t first = 0; first < m->context; first += rows) {
        int64_t n = TD_MIN(rows, m->context - first);
        for (int64_t i = 0; i < n * half; i++) {
            float angle = (float)(first + i / half) * frequencies[i % half];
            row[i] = (float)(sine ? sin((double)angle) : cos((double)angle)) * magnitude;
        }
        TD_TRY(td_weights_write(&b->weights, at, row, (size_t)(n * half) * sizeof *row));
        at += (uint64_t)(n * half) * sizeof *row;
    }
    return TREADLE_OK;
}

treadle_status td_part_rope_tables(td_builder *b) {
    const td_model *m = &b->model;
    const td_source_tensor *freqs = m->tensors[TD_MT_ROPE_FREQS];
    size_t half = (size_t)m->rotary_dim / 2, piece = TD_MAX((size_t)1 << 16, half);
    float *scratch = td_alloc_array(2 * half + piece, sizeof *scratch);
    if (!scratch) return td_fail_memory(b->err, "a rotary embedding", (2 * half + piece) * sizeof *scratch);
    float *divisors = scratch + half, magnitude;
    if (freqs) td_quant_decode(freqs->format, freqs->data, (int64_t)half, divisors);
    fill_frequencies(m, freqs ? divisors : NULL, scratch, &magnitude);
    b->cos = td_graph_name(&b->graph, "rope.cos");
    b->sin = td_graph_name(&b->graph, "rope.sin");
    treadle_status status = write_table(b, b->cos, scratch, magnitude, false, divisors + half);
    if (status == TREADLE_OK) status = write_table(b, b->sin, scratch, magnitude, true, divisors + half);
    td_free(scratch);
    return status;
}
