/* light/ops/flex_attention.c - ai.onnx.preview FlexAttention: attention whose scores and probabilities pass through
 * bodies of the model's own. Source: ONNX op text.
 *
 * Scores [batch, heads, queries, keys] are computed whole in softmax_precision, which the bodies see. Query
 * heads share key heads in groups. */
#include "light/body.h"
#include "tensor/half.h"

#include <math.h>

enum { IN_Q, IN_K, IN_V };

typedef struct flex_state {
    float scale; /* 0: 1 / sqrt(head size) */
    td_dtype dtype, precision;
    bool has_score_mod, has_prob_mod;
    size_t score_mod, prob_mod;
} flex_state;

static treadle_status find_body(const td_prepare *p, const char *name, size_t *index, bool *found) {
    size_t n_formals, n_outputs;
    *found = td_body_find(p, name, index, &n_formals, &n_outputs);
    if (*found && (n_formals != 1 || n_outputs != 1))
        return td_bad_node(p, "expected %s to have one input and one output", name);
    return TREADLE_OK;
}

static treadle_status flex_prepare(td_prepare *p) {
    flex_state *s = p->state;
    s->dtype = td_input_dtype(p, IN_Q);
    s->scale = td_attr_has(p, "scale") ? td_attr_float(p, "scale") : 0;
    s->precision = td_attr_has(p, "softmax_precision") ? (td_dtype)td_attr_int(p, "softmax_precision")
                   : s->dtype == TD_DOUBLE             ? TD_DOUBLE
                                                       : TD_FLOAT;
    if (s->precision != TD_FLOAT && s->precision != TD_DOUBLE && s->precision != TD_FLOAT16 &&
        s->precision != TD_BFLOAT16)
        return td_bad_node(p, "softmax_precision %s", td_dtype_name(s->precision));
    TD_TRY(find_body(p, "score_mod", &s->score_mod, &s->has_score_mod));
    return find_body(p, "prob_mod", &s->prob_mod, &s->has_prob_mod);
}

static treadle_status check_body(td_infer *in, size_t index, const td_value *scores, const char *name) {
    td_value out = {0};
    TD_TRY(td_infer_body(in, index, scores, NULL, &out));
    if (out.kind != TD_VALUE_TENSOR || out.tensor.dtype != scores->tensor.dtype)
        return td_infer_fail(in, "expected %s to give what it gets", name);
    return TREADLE_OK;
}

static treadle_status flex_infer(td_infer *in) {
    const flex_state *s = in->state;
    const td_shape *q = &in->inputs[IN_Q]->tensor.shape, *k = &in->inputs[IN_K]->tensor.shape,
                   *v = &in->inputs[IN_V]->tensor.shape;
    td_value scores = {.kind = TD_VALUE_TENSOR, .tensor = {.dtype = s->precision, .shape = {4, {-1, -1, -1, -1}}}};
    td_shape y = {4, {-1, -1, -1, -1}};

    if ((q->rank >= 0 && q->rank != 4) || (k->rank >= 0 && k->rank != 4) || (v->rank >= 0 && v->rank != 4))
        return td_infer_fail(in, "expected Q, K and V to have 4 dimensions");
    if (q->rank == 4)
        for (int d = 0; d < 3; d++) scores.tensor.shape.dims[d] = y.dims[d] = q->dims[d];
    if (k->rank == 4) scores.tensor.shape.dims[3] = k->dims[2];
    if (v->rank == 4) y.dims[3] = v->dims[3];
    if (td_shape_known(q) && td_shape_known(k) && td_shape_known(v)) {
        bool fits = k->dims[0] == q->dims[0] && v->dims[0] == q->dims[0] && v->dims[1] == k->dims[1] &&
                    k->dims[2] == v->dims[2] && k->dims[3] == q->dims[3];
        if (!fits || k->dims[1] == 0 || q->dims[1] % k->dims[1] != 0)
            return td_infer_fail(in, "Q, K and V do not fit one another");
    }
    if (in->at_open && s->has_score_mod) TD_TRY(check_body(in, s->score_mod, &scores, "score_mod"));
    if (in->at_open && s->has_prob_mod) TD_TRY(check_body(in, s->prob_mod, &scores, "prob_mod"));
    return td_infer_set(in, 0, s->dtype, &y);
}

typedef struct flex_run {
    const flex_state *s;
    const td_tensor *q, *k, *v;
    td_tensor scores, *y;
    double scale, *room; /* room: per thread, a row of values */
} flex_run;

static int64_t key_head(const flex_run *w, int64_t row) {
    int64_t heads = w->q->shape.dims[1], group = heads / w->k->shape.dims[1], b = row / heads;
    return b * w->k->shape.dims[1] + row % heads / group;
}

static void score_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const flex_run *w = arg;
    int64_t n_q = w->q->shape.dims[2], n_k = w->k->shape.dims[2], size = w->q->shape.dims[3];
    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        int64_t head = key_head(w, row / n_q);
        for (int64_t j = 0; j < n_k; j++) {
            double sum = 0;
            for (int64_t d = 0; d < size; d++)
                sum += td_load_f64(w->q->dtype, w->q->data, row * size + d) *
                       td_load_f64(w->k->dtype, w->k->data, (head * n_k + j) * size + d);
            td_store_f64(w->scores.dtype, w->scores.data, row * n_k + j, sum * w->scale);
        }
    }
}

/* In place. A row without a finite score becomes zeros. */
static void softmax_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const flex_run *w = arg;
    int64_t n = w->k->shape.dims[2];
    double *values = w->room + thread * n;
    for (int64_t row = begin; row < end; row++) {
        double largest = (double)-INFINITY, sum = 0;
        for (int64_t j = 0; j < n; j++) {
            values[j] = td_load_f64(w->scores.dtype, w->scores.data, row * n + j);
            largest = values[j] <= largest ? largest : values[j];
        }
        for (int64_t j = 0; j < n; j++) {
            values[j] = isinf(largest) && largest < 0 ? 0 : exp(values[j] - largest);
            sum += values[j];
        }
        for (int64_t j = 0; j < n; j++)
            td_store_f64(w->scores.dtype, w->scores.data, row * n + j, sum > 0 ? values[j] / sum : values[j]);
    }
}

static void value_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const flex_run *w = arg;
    int64_t n_q = w->q->shape.dims[2], n_k = w->k->shape.dims[2], size = w->v->shape.dims[3];
    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        int64_t head = key_head(w, row / n_q);
        for (int64_t d = 0; d < size; d++) {
            double sum = 0;
            for (int64_t j = 0; j < n_k; j++)
                sum += td_load_f64(w->scores.dtype, w->scores.data, row * n_k + j) *
                       td_load_f64(w->v->dtype, w->v->data, (head * n_k + j) * size + d);
            td_store_f64(w->y->dtype, w->y->data, row * size + d, sum);
        }
    }
}

/* scores = body(scores), copied back, so that each stage works in the op's own memory. */
static treadle_status modify(td_run *r, size_t index, td_tensor *scores) {
    td_value value = {.kind = TD_VALUE_TENSOR, .tensor = *scores};
    td_body_run *body;
    TD_TRY(td_body_begin(r, index, NULL, &body));
    td_body_set(body, 0, &value);
    TD_TRY(td_body_step(body));
    const td_tensor *result = &td_body_result(body, 0)->tensor;
    if (result->dtype != scores->dtype || !td_shape_equal(&result->shape, &scores->shape))
        return td_run_fail(r, "a body changed the shape of the scores");
    if (result->data != scores->data) td_tensor_copy(scores, result);
    return TREADLE_OK;
}

static treadle_status flex_run_op(td_run *r) {
    const flex_state *s = r->state;
    flex_run w = {.s = s, .q = r->in[IN_Q], .k = r->in[IN_K], .v = r->in[IN_V], .y = r->out[0]};
    const int64_t *q = w.q->shape.dims;
    td_shape shape = {4, {q[0], q[1], q[2], w.k->shape.dims[2]}};
    int64_t rows = q[0] * q[1] * q[2];
    size_t bytes, room;

    if (td_tensor_count(w.y) == 0) return TREADLE_OK;
    td_tensor_view(&w.scores, s->precision, &shape, NULL);
    if (!td_tensor_bytes(&w.scores, &bytes) ||
        TD_MUL_OVERFLOWS((size_t)shape.dims[3] * sizeof(double), (size_t)td_pool_threads(r->pool), &room))
        return td_run_fail(r, "sizes overflow");
    w.scores.data = td_run_scratch(r, bytes);
    w.room = td_run_scratch(r, room);
    if (!w.scores.data || !w.room) return TREADLE_OUT_OF_MEMORY;
    w.scale = s->scale != 0 ? (double)s->scale : 1 / sqrt((double)q[3]);
    td_pool_range(r->pool, rows, 1, 1, score_rows, &w);
    if (s->has_score_mod) TD_TRY(modify(r, s->score_mod, &w.scores));
    td_pool_range(r->pool, rows, 1, 1, softmax_rows, &w);
    if (s->has_prob_mod) TD_TRY(modify(r, s->prob_mod, &w.scores));
    td_pool_range(r->pool, rows, 1, 1, value_rows, &w);
    return TREADLE_OK;
}

const td_op_impl td_op_flex_attention = {
    .state_bytes = sizeof(flex_state), .prepare = flex_prepare, .infer = flex_infer, .run = flex_run_op};
