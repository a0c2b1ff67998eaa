/* light/ops/moe.c - com.microsoft MoE and QMoE: for every token the k best of several experts, each a feed-forward of
 * its own, their results added by weight. Sources: onnxruntime docs/ContribOperators.md, release 1.31; for
 * use_sparse_mixer the routing of Liu et al., "GRIN: GRadient-INformed MoE", at inference.
 *
 *     y = sum over chosen e of weight_e * (act(x W1_e^T + b1_e) [* (x W3_e^T + b3_e)] W2_e^T + b2_e)
 *
 * in float32, experts in ascending order, whatever the other tokens: so a prefill gives the bits
 * of token-by-token decoding. */
#include "kernels/vmath.h"
#include "light/ops/experts.h"
#include "tensor/half.h"

#include <math.h>
#include <string.h>

enum { FC1, FC2, FC3, N_FC };
enum { IN_X, IN_ROUTER, MOE_IN_FC1 = 2, QMOE_IN_ZEROS = 11, QMOE_IN_ROUTER_WEIGHTS = 14 };
enum { MOE_ROWS = 256 }; /* tokens of an expert that run at once */

typedef enum moe_activation { MOE_RELU, MOE_GELU, MOE_SILU, MOE_IDENTITY, MOE_SWIGLU } moe_activation;

typedef struct moe_state {
    const td_vmath_kernels *vmath;
    td_experts fc[N_FC];
    size_t in_weights; /* input of the mixing weights; 0: the router's own */
    int64_t k;
    int fusion; /* of swiglu: 0 two matrices, 1 columns in turn, 2 one half after the other */
    moe_activation activation;
    float alpha, beta, limit; /* limit: infinite where there is none */
    bool normalise, sparse, third;
} moe_state;

/* --- prepare */

static treadle_status read_attributes(td_prepare *p, moe_state *s) {
    static const char *const names[] = {"relu", "gelu", "silu", "identity", "swiglu"};
    td_str name = td_attr_string(p, "activation_type");
    size_t which = 0;

    while (which < TD_COUNT(names) && !td_str_is(name, names[which])) which++;
    if (which == TD_COUNT(names))
        return td_bad_node(p, "activation_type is \"%.*s\"; expected relu, gelu, silu, swiglu or identity",
                           TD_STR_ARGS(name));
    s->activation = (moe_activation)which;
    s->fusion = (int)td_attr_int(p, "swiglu_fusion");
    if (s->fusion < 0 || s->fusion > 2) return td_bad_node(p, "swiglu_fusion is %d; expected 0 to 2", s->fusion);
    if (s->activation != MOE_SWIGLU) s->fusion = 0;
    s->k = td_attr_int(p, "k");
    if (s->k < 1) return td_bad_node(p, "k is %lld; expected at least 1", (long long)s->k);
    s->normalise = td_attr_int(p, "normalize_routing_weights") != 0;
    s->sparse = td_attr_int(p, "use_sparse_mixer") != 0;
    if (s->sparse && s->k > 2) return td_unsupported(p, "use_sparse_mixer with k = %lld", (long long)s->k);
    s->alpha = td_attr_float(p, "activation_alpha");
    s->beta = td_attr_float(p, "activation_beta");
    s->limit = td_attr_has(p, "swiglu_limit") ? td_attr_float(p, "swiglu_limit") : INFINITY;
    s->vmath = td_vmath_pick();
    return TREADLE_OK;
}

static treadle_status check_third(td_prepare *p, moe_state *s, size_t input) {
    s->third = td_has_input(p, input);
    if (s->fusion && s->third) return td_bad_node(p, "fc3_experts_weights next to a fused SwiGLU");
    if (s->activation == MOE_SWIGLU && !s->fusion && !s->third)
        return td_bad_node(p, "SwiGLU without fusion needs fc3_experts_weights");
    return TREADLE_OK;
}

static treadle_status moe_prepare(td_prepare *p) {
    static const char *const keys[] = {"MoE 1 fc1", "MoE 1 fc2", "MoE 1 fc3"};
    moe_state *s = p->state;

    TD_TRY(read_attributes(p, s));
    TD_TRY(check_third(p, s, MOE_IN_FC1 + 2 * FC3));
    for (size_t i = 0; i < (s->third ? N_FC : FC3); i++)
        TD_TRY(td_experts_prepare(p, MOE_IN_FC1 + 2 * i, MOE_IN_FC1 + 2 * i + 1, keys[i], &s->fc[i]));
    return TREADLE_OK;
}

static treadle_status check_kind(td_prepare *p) {
    td_str kind = td_attr_string(p, "quant_type");
    if (!td_str_is(kind, "int")) return td_unsupported(p, "quant_type = \"%.*s\"", TD_STR_ARGS(kind));
    if (td_attr_int(p, "weights_prepacked") == 1) return td_unsupported(p, "weights_prepacked = 1");
    for (size_t i = QMOE_IN_ROUTER_WEIGHTS + 1; i < p->n_inputs; i++)
        if (td_has_input(p, i)) return td_unsupported(p, "global or activation scales");
    return TREADLE_OK;
}

static treadle_status qmoe_prepare(td_prepare *p) {
    static const char *const keys[] = {"QMoE 1 fc1", "QMoE 1 fc2", "QMoE 1 fc3"};
    static const char *const bits[] = {"fc1_expert_weight_bits", "fc2_expert_weight_bits", "fc3_expert_weight_bits"};
    moe_state *s = p->state;
    int64_t block = td_attr_has(p, "block_size") ? td_attr_int(p, "block_size") : 0;

    TD_TRY(read_attributes(p, s));
    TD_TRY(check_kind(p));
    TD_TRY(check_third(p, s, MOE_IN_FC1 + 3 * FC3));
    if (td_has_input(p, QMOE_IN_ROUTER_WEIGHTS)) s->in_weights = QMOE_IN_ROUTER_WEIGHTS;
    for (size_t i = 0; i < (s->third ? N_FC : FC3); i++) {
        td_experts_source source = {.codes = MOE_IN_FC1 + 3 * i,
                                    .scales = MOE_IN_FC1 + 3 * i + 1,
                                    .bias = MOE_IN_FC1 + 3 * i + 2,
                                    .zeros = QMOE_IN_ZEROS + i,
                                    .block = TD_MAX(block, (int64_t)0),
                                    .mode = td_qlinear_mode(p, td_attr_int(p, "accuracy_level"))};
        int64_t wide = td_attr_has(p, bits[i]) ? td_attr_int(p, bits[i]) : td_attr_int(p, "expert_weight_bits");
        if (wide != 2 && wide != 4 && wide != 8)
            return td_unsupported(p, "weights of %lld bits (2, 4 and 8 are supported)", (long long)wide);
        source.bits = (int)wide;
        TD_TRY(td_experts_prepare_quantised(p, &source, keys[i], &s->fc[i]));
    }
    return TREADLE_OK;
}

static treadle_status moe_infer(td_infer *in) {
    int rank = in->inputs[IN_X]->tensor.shape.rank;
    if (rank >= 0 && rank != 2 && rank != 3) return td_infer_fail(in, "expected the input to have 2 or 3 dimensions");
    return td_infer_same(in, 0, 0);
}

/* --- routing */

typedef struct moe_run {
    const moe_state *s;
    td_run *r;
    int64_t n_tokens, hidden, inner, n_experts, k;
    const float *x; /* [tokens, hidden] */
    float *y;
    int32_t *chosen; /* [tokens, k] */
    float *weights;  /* [tokens, k] */
    float *rows, *gate;
    td_experts_memory memory[N_FC];
} moe_run;

static int64_t best_of(const float *scores, int64_t n, const int32_t *taken, int64_t n_taken) {
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++) {
        bool free = true;
        for (int64_t t = 0; t < n_taken; t++) free &= taken[t] != i;
        if (free && (best < 0 || scores[i] > scores[best])) best = i;
    }
    return best;
}

/* The share of the best of those that are not taken, among those near it. */
static float sparse_share(const float *scores, int64_t n, int64_t best, int64_t taken) {
    static const float jitter = 0.01f;
    float sum = 0, max = scores[best];
    for (int64_t i = 0; i < n; i++) {
        float factor = fmaxf(fabsf(scores[i]), max);
        if (i != taken && !((max - scores[i]) / factor > 2 * jitter)) sum += expf(scores[i] - max);
    }
    return 1 / sum;
}

static void route(const moe_run *w, const float *scores, const float *mixing, int32_t *chosen, float *weights) {
    const moe_state *s = w->s;
    float sum = 0;

    for (int64_t j = 0; j < w->k; j++) chosen[j] = (int32_t)best_of(scores, w->n_experts, chosen, j);
    if (s->sparse) {
        for (int64_t j = 0; j < w->k; j++)
            weights[j] = sparse_share(scores, w->n_experts, chosen[j], j ? chosen[0] : -1);
        return;
    }
    if (mixing) {
        for (int64_t j = 0; j < w->k; j++) sum += weights[j] = mixing[chosen[j]];
    } else {
        float all = 0, max = scores[chosen[0]];
        for (int64_t i = 0; i < w->n_experts; i++) all += expf(scores[i] - max);
        for (int64_t j = 0; j < w->k; j++) sum += weights[j] = expf(scores[chosen[j]] - max) / all;
    }
    for (int64_t j = 0; s->normalise && j < w->k; j++) weights[j] /= sum;
}

/* A float32 form of a tensor, [tokens, experts]. */
static treadle_status scores_of(td_run *r, const td_tensor *t, const float **out) {
    float *wide = NULL;
    *out = t->data;
    if (t->dtype == TD_FLOAT) return TREADLE_OK;
    wide = td_run_scratch(r, (size_t)td_tensor_count(t) * sizeof *wide);
    if (!wide) return TREADLE_OUT_OF_MEMORY;
    td_to_f32(t->dtype, t->data, td_tensor_count(t), wide);
    *out = wide;
    return TREADLE_OK;
}

static treadle_status route_all(moe_run *w) {
    td_run *r = w->r;
    const td_tensor *router = r->in[IN_ROUTER], *own = w->s->in_weights ? r->in[w->s->in_weights] : NULL;
    const float *scores, *mixing = NULL;
    size_t n = (size_t)(w->n_tokens * w->k);

    if (td_tensor_count(router) != w->n_tokens * w->n_experts ||
        (own && td_tensor_count(own) != w->n_tokens * w->n_experts))
        return td_run_fail(r, "expected router_probs and router_weights to be [%lld, %lld]", (long long)w->n_tokens,
                           (long long)w->n_experts);
    TD_TRY(scores_of(r, router, &scores));
    if (own) TD_TRY(scores_of(r, own, &mixing));
    w->chosen = td_run_scratch(r, n * sizeof *w->chosen);
    w->weights = td_run_scratch(r, n * sizeof *w->weights);
    if (!w->chosen || !w->weights) return TREADLE_OUT_OF_MEMORY;
    for (int64_t t = 0; t < w->n_tokens; t++)
        route(w, scores + t * w->n_experts, mixing ? mixing + t * w->n_experts : NULL, w->chosen + t * w->k,
              w->weights + t * w->k);
    return TREADLE_OK;
}

/* --- one expert */

static void activate(const moe_state *s, const float *x, int64_t n, float *y) {
    switch (s->activation) {
    case MOE_RELU:
        for (int64_t i = 0; i < n; i++) y[i] = x[i] > 0 ? x[i] : 0;
        break;
    case MOE_GELU: s->vmath->gelu_tanh(x, n, y); break;
    case MOE_SILU: s->vmath->silu(x, n, y); break;
    case MOE_SWIGLU: s->vmath->swish(x, n, s->alpha, y); break;
    case MOE_IDENTITY: memcpy(y, x, (size_t)n * sizeof *y);
    }
}

static float clamp(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

/* gate[inner] from a row of fc1 and one of fc3 (NULL: none). */
static void gate_row(const moe_run *w, const float *one, const float *three, float *gate) {
    const moe_state *s = w->s;
    if (s->activation != MOE_SWIGLU) {
        activate(s, one, w->inner, gate);
        for (int64_t i = 0; three && i < w->inner; i++) gate[i] *= three[i];
        return;
    }
    int64_t step = s->fusion == 1 ? 2 : 1;
    const float *linear = s->fusion == 1 ? one + 1 : s->fusion == 2 ? one + w->inner : three;
    for (int64_t i = 0; i < w->inner; i++) gate[i] = clamp(one[i * step], -INFINITY, s->limit);
    activate(s, gate, w->inner, gate);
    for (int64_t i = 0; i < w->inner; i++) gate[i] *= clamp(linear[i * step], -s->limit, s->limit) + s->beta;
}

static void run_rows(const moe_run *w, int64_t expert, const int64_t *entries, int64_t m) {
    const moe_state *s = w->s;
    int64_t first[N_FC] = {0};

    for (int64_t i = 0; i < m; i++)
        memcpy(w->rows + i * w->hidden, w->x + entries[i] / w->k * w->hidden, (size_t)w->hidden * sizeof *w->rows);
    td_experts_run(w->r, &s->fc[FC1], expert, w->rows, m, &w->memory[FC1], &first[FC1]);
    if (s->third) td_experts_run(w->r, &s->fc[FC3], expert, w->rows, m, &w->memory[FC3], &first[FC3]);
    for (int64_t i = 0; i < m; i++)
        gate_row(w, w->memory[FC1].y + i * w->memory[FC1].stride + first[FC1],
                 s->third ? w->memory[FC3].y + i * w->memory[FC3].stride + first[FC3] : NULL, w->gate + i * w->inner);
    td_experts_run(w->r, &s->fc[FC2], expert, w->gate, m, &w->memory[FC2], &first[FC2]);
    for (int64_t i = 0; i < m; i++) {
        const float *from = w->memory[FC2].y + i * w->memory[FC2].stride + first[FC2];
        float *to = w->y + entries[i] / w->k * w->hidden, weight = w->weights[entries[i]];
        for (int64_t c = 0; c < w->hidden; c++) to[c] += weight * from[c];
    }
}

static treadle_status run_experts(moe_run *w) {
    int64_t n = w->n_tokens * w->k, rows = TD_MIN(w->n_tokens, (int64_t)MOE_ROWS);
    int64_t *entries = td_run_scratch(w->r, (size_t)rows * sizeof *entries);

    w->rows = td_run_scratch(w->r, (size_t)(rows * w->hidden) * sizeof *w->rows);
    w->gate = td_run_scratch(w->r, (size_t)(rows * w->inner) * sizeof *w->gate);
    if (!entries || !w->rows || !w->gate) return TREADLE_OUT_OF_MEMORY;
    for (size_t i = 0; i < (w->s->third ? N_FC : FC3); i++)
        TD_TRY(td_experts_reserve(w->r, &w->s->fc[i], rows, &w->memory[i]));
    for (int64_t e = 0; e < w->n_experts; e++) {
        int64_t m = 0;
        for (int64_t i = 0; i < n; i++) {
            if (w->chosen[i] == e) entries[m++] = i;
            if (m == 0 || (m < rows && i + 1 < n)) continue;
            run_rows(w, e, entries, m);
            m = 0;
        }
    }
    return TREADLE_OK;
}

/* --- run */

static int64_t dim(const moe_run *w, size_t fc, int d) {
    const td_experts *e = &w->s->fc[fc];
    if (e->quantised) return d == 0 ? e->count : d == 1 ? e->n : e->k;
    const td_shape *shape = &w->r->in[e->input]->shape;
    return shape->rank == 3 ? shape->dims[d] : -1;
}

static treadle_status check_shapes(moe_run *w) {
    const td_tensor *x = w->r->in[IN_X];
    int64_t fused = w->s->fusion ? 2 : 1;

    w->hidden = x->shape.dims[x->shape.rank - 1];
    w->n_experts = dim(w, FC1, 0);
    w->inner = dim(w, FC2, 2);
    w->k = w->s->k;
    bool fits = dim(w, FC1, 1) == fused * w->inner && dim(w, FC1, 2) == w->hidden && dim(w, FC2, 1) == w->hidden &&
                dim(w, FC2, 0) == w->n_experts;
    if (w->s->third)
        fits &= dim(w, FC3, 0) == w->n_experts && dim(w, FC3, 1) == w->inner && dim(w, FC3, 2) == w->hidden;
    if (!fits || w->n_experts < 1)
        return td_run_fail(w->r, "the weights of the experts do not fit each other and an input of %lld values",
                           (long long)w->hidden);
    if (w->k > w->n_experts)
        return td_run_fail(w->r, "k is %lld; there are %lld experts", (long long)w->k, (long long)w->n_experts);
    w->n_tokens = td_tensor_count(x) / w->hidden;
    return TREADLE_OK;
}

static treadle_status moe_run_op(td_run *r) {
    moe_run w = {.s = r->state, .r = r};
    const td_tensor *x = r->in[IN_X], *y = r->out[0];
    int64_t count = td_tensor_count(x);

    if (!y || count == 0) return TREADLE_OK;
    TD_TRY(check_shapes(&w));
    TD_TRY(route_all(&w));
    w.x = x->data;
    w.y = y->data;
    if (x->dtype != TD_FLOAT) {
        float *wide = td_run_scratch(r, (size_t)count * sizeof *wide);
        w.y = td_run_scratch(r, (size_t)count * sizeof *w.y);
        if (!wide || !w.y) return TREADLE_OUT_OF_MEMORY;
        td_to_f32(x->dtype, x->data, count, wide);
        w.x = wide;
    }
    memset(w.y, 0, (size_t)count * sizeof *w.y);
    TD_TRY(run_experts(&w));
    if (x->dtype != TD_FLOAT) td_from_f32(x->dtype, w.y, count, y->data);
    return TREADLE_OK;
}

const td_op_impl td_op_moe = {
    .state_bytes = sizeof(moe_state), .prepare = moe_prepare, .infer = moe_infer, .run = moe_run_op};
const td_op_impl td_op_qmoe = {
    .state_bytes = sizeof(moe_state), .prepare = qmoe_prepare, .infer = moe_infer, .run = moe_run_op};
