/* light/ops/attention_microsoft.c - com.microsoft Attention and QAttention: self attention that makes its queries, keys
 * and values itself, by one product with merged weights. Source: onnxruntime docs/ContribOperators.md, release 1.31.
 *
 * Weights are [input size, queries + keys + values]; past and present [2, batch, heads, tokens, size], keys first. With
 * past_present_share_buffer past is a buffer of fixed capacity. The product is float32; the rest is light/ops/mha.h. */
#include "light/ops/int8_product.h"
#include "light/ops/mha.h"
#include "light/ops/product.h"
#include "tensor/half.h"

/* The inputs of each op. */
typedef struct attention_form {
    size_t bias, mask, past, score_bias, past_length; /* SIZE_MAX: no such */
} attention_form;
static const attention_form plain_form = {.bias = 2, .mask = 3, .past = 4, .score_bias = 5, .past_length = 6},
                            quantised_form = {
                                .bias = 2, .mask = 5, .past = 8, .score_bias = SIZE_MAX, .past_length = SIZE_MAX};
enum { IN_X, IN_WEIGHTS, IN_X_SCALE = 3, IN_W_SCALE = 4, IN_X_ZERO = 6, IN_W_ZERO = 7 };
enum { OUT_Y, OUT_PRESENT };

typedef struct attention_state {
    const attention_form *form;
    td_mha_attrs attrs;
    bool shared;               /* past is a buffer */
    int64_t hidden, v_hidden;  /* 0: a third of the weights' columns each */
    td_product product;        /* Attention */
    td_int8_product quantised; /* QAttention */
} attention_state;

static treadle_status prepare(td_prepare *p, const attention_form *form) {
    attention_state *s = p->state;
    size_t n;
    const int64_t *sizes = td_attr_ints(p, "qkv_hidden_sizes", &n);

    TD_TRY(td_mha_prepare(p, &s->attrs));
    s->form = form;
    s->attrs.dtype = td_input_dtype(p, form->bias < SIZE_MAX && td_has_input(p, form->bias) ? form->bias : IN_X);
    if (td_attr_int(p, "do_rotary")) return td_unsupported(p, "do_rotary = 1");
    s->shared = td_attr_int(p, "past_present_share_buffer") != 0 && td_has_input(p, form->past);
    if (s->shared && (form->past_length == SIZE_MAX || !td_has_input(p, form->past_length)))
        return td_unsupported(p, "past_present_share_buffer without past_sequence_length");
    if (n == 0) return TREADLE_OK;
    if (n != 3 || sizes[0] != sizes[1]) return td_bad_node(p, "expected three qkv_hidden_sizes, two of them equal");
    s->hidden = sizes[0];
    s->v_hidden = sizes[2];
    if (s->hidden < 1 || s->v_hidden < 1 || s->hidden % s->attrs.n_heads || s->v_hidden % s->attrs.n_heads)
        return td_bad_node(p, "expected qkv_hidden_sizes to be multiples of num_heads (%lld)",
                           (long long)s->attrs.n_heads);
    return TREADLE_OK;
}

static treadle_status plain_prepare(td_prepare *p) {
    attention_state *s = p->state;
    TD_TRY(prepare(p, &plain_form));
    TD_TRY(td_product_prepare(p, false, &s->product));
    s->product.wide_y = td_product_is_half(&s->product);
    return TREADLE_OK;
}

static treadle_status quantised_prepare(td_prepare *p) {
    attention_state *s = p->state;
    TD_TRY(prepare(p, &quantised_form));
    return td_int8_prepare(p, IN_WEIGHTS, &s->quantised);
}

static const td_tensor *given(const td_infer *in, size_t i) {
    return i < in->n_inputs && in->inputs[i]->kind == TD_VALUE_TENSOR ? &in->inputs[i]->tensor : NULL;
}

/* Columns of queries (and keys) and of values; TD_DIM_UNKNOWN. */
static void widths(const attention_state *s, const td_shape *weights, int64_t *hidden, int64_t *v_hidden) {
    int64_t columns = weights->rank == 2 ? weights->dims[1] : TD_DIM_UNKNOWN;
    *hidden = s->hidden ? s->hidden : columns < 0 ? TD_DIM_UNKNOWN : columns / 3;
    *v_hidden = s->hidden ? s->v_hidden : *hidden;
}

static treadle_status check_weights(td_infer *in, const attention_state *s, const td_shape *x, const td_shape *w) {
    int64_t hidden, v_hidden;
    if (x->rank >= 0 && x->rank != 3) return td_infer_fail(in, "expected input to be [batch, tokens, size]");
    if (w->rank >= 0 && w->rank != 2) return td_infer_fail(in, "expected weights to be a matrix");
    if (!td_shape_known(w)) return TREADLE_OK;
    widths(s, w, &hidden, &v_hidden);
    if (2 * hidden + v_hidden != w->dims[1] || hidden % s->attrs.n_heads || v_hidden % s->attrs.n_heads || hidden == 0)
        return td_infer_fail(in, "weights do not fit %lld heads", (long long)s->attrs.n_heads);
    if (x->rank == 3 && x->dims[2] >= 0 && x->dims[2] != w->dims[0])
        return td_infer_fail(in, "input has %lld values where weights have %lld", (long long)x->dims[2],
                             (long long)w->dims[0]);
    return TREADLE_OK;
}

static treadle_status check_past(td_infer *in, const attention_state *s, const td_shape *past, int64_t n_batch,
                                 int64_t size, int64_t v_size) {
    char text[128];
    if (past->rank >= 0 && past->rank != 5) return td_infer_fail(in, "expected past to have 5 dimensions");
    if (!td_shape_known(past) || n_batch < 0 || size < 0) return TREADLE_OK;
    td_shape want = {5, {2, n_batch, s->attrs.n_heads, past->dims[3], size}};
    if (!td_shape_equal(past, &want) || size != v_size)
        return td_infer_fail(in, "expected past to be %s", td_shape_text(&want, text));
    return TREADLE_OK;
}

static treadle_status check_room(td_infer *in, const attention_state *s, int64_t capacity, int64_t n_new) {
    const td_tensor *length = given(in, s->form->past_length);
    if (!length->data || !td_shape_known(&length->shape)) return TREADLE_OK;
    int64_t n_past = td_tensor_count(length) == 1 ? ((const int32_t *)length->data)[0] : -1;
    if (n_past < 0 || (capacity >= 0 && n_new >= 0 && n_past > capacity - n_new))
        return td_infer_fail(in, "past_sequence_length is %lld, with %lld new tokens and room for %lld",
                             (long long)n_past, (long long)n_new, (long long)capacity);
    return TREADLE_OK;
}

static treadle_status attention_infer(td_infer *in) {
    const attention_state *s = in->state;
    const td_shape *x = &in->inputs[IN_X]->tensor.shape, *w = &in->inputs[IN_WEIGHTS]->tensor.shape;
    const td_tensor *past = given(in, s->form->past);
    int64_t hidden, v_hidden, heads = s->attrs.n_heads, n_batch = TD_DIM_UNKNOWN, n_q = TD_DIM_UNKNOWN;

    TD_TRY(check_weights(in, s, x, w));
    widths(s, w, &hidden, &v_hidden);
    if (x->rank == 3) {
        n_batch = x->dims[0];
        n_q = x->dims[1];
    }
    td_shape y = {3, {n_batch, n_q, v_hidden}};
    td_shape present = {5, {2, n_batch, heads, n_q, hidden < 0 ? TD_DIM_UNKNOWN : hidden / heads}};
    if (past) {
        TD_TRY(check_past(in, s, &past->shape, n_batch, present.dims[4], v_hidden < 0 ? v_hidden : v_hidden / heads));
        int64_t kept = past->shape.rank == 5 ? past->shape.dims[3] : TD_DIM_UNKNOWN;
        if (s->shared) TD_TRY(check_room(in, s, kept, n_q));
        present.dims[3] = s->shared ? kept : kept < 0 || n_q < 0 ? TD_DIM_UNKNOWN : kept + n_q;
    }
    TD_TRY(td_infer_set(in, OUT_Y, s->attrs.dtype, &y));
    return td_infer_set(in, OUT_PRESENT, s->attrs.dtype, &present);
}

/* --- run */

static const td_tensor *input(const td_run *r, size_t i) { return i < r->n_inputs ? r->in[i] : NULL; }

/* Keys (part 0) or values (1) of [2, batch, heads, tokens, size]. */
static treadle_status half_of(td_run *r, const td_tensor *t, int64_t part, td_heads *out) {
    const int64_t *d = t->shape.dims, *s = t->strides;
    td_tensor view = {.dtype = t->dtype, .shape = {4, {d[1], d[2], d[3], d[4]}}, .strides = {s[1], s[2], s[3], s[4]}};
    view.data = (char *)t->data + part * s[0] * (td_dtype_bits(t->dtype) / 8);
    return td_heads_of_cache(r, &view, out);
}

/* Attention over the product qkv: float32 [batch, tokens, columns]. bias: still to be added, or NULL. */
static treadle_status attend(td_run *r, const attention_state *s, float *qkv, const td_tensor *bias) {
    const td_tensor *x = r->in[IN_X], *weights = r->in[IN_WEIGHTS], *past = input(r, s->form->past);
    td_tensor *present = r->n_outputs > OUT_PRESENT ? r->out[OUT_PRESENT] : NULL;
    int64_t hidden, v_hidden, heads = s->attrs.n_heads;

    widths(s, &weights->shape, &hidden, &v_hidden);
    td_tensor all;
    td_shape shape = {3, {x->shape.dims[0], x->shape.dims[1], 2 * hidden + v_hidden}};
    td_tensor_view(&all, TD_FLOAT, &shape, qkv);
    td_mha w = {.attrs = &s->attrs,
                .r = r,
                .n_batch = x->shape.dims[0],
                .n_q = x->shape.dims[1],
                .n_new = x->shape.dims[1],
                .size = hidden / heads,
                .v_size = v_hidden / heads,
                .projection_bias = bias,
                .has_past = past != NULL,
                .mask = input(r, s->form->mask),
                .bias = input(r, s->form->score_bias),
                .y = r->out[OUT_Y]};
    TD_TRY(td_heads_of_tokens(r, &all, 0, w.size, &w.q));
    TD_TRY(td_heads_of_tokens(r, &all, heads, w.size, &w.new_k));
    w.new_v = w.new_k;
    w.new_v.data = (char *)(qkv + 2 * hidden);
    w.new_v.head = w.v_size;
    if (past) {
        w.n_past = s->shared ? ((const int32_t *)input(r, s->form->past_length)->data)[0] : past->shape.dims[3];
        TD_TRY(half_of(r, past, 0, &w.past_k));
        TD_TRY(half_of(r, past, 1, &w.past_v));
    }
    w.n_room = s->shared ? past->shape.dims[3] : w.n_past + w.n_new;
    if (present) {
        TD_TRY(half_of(r, present, 0, &w.present_k));
        TD_TRY(half_of(r, present, 1, &w.present_v));
    }
    return td_mha_run(&w);
}

static treadle_status plain_run(td_run *r) {
    const attention_state *s = r->state;
    const td_tensor *x = r->in[IN_X], *weights = r->in[IN_WEIGHTS], *bias = input(r, s->form->bias);
    int64_t rows = x->shape.dims[0] * x->shape.dims[1], k = x->shape.dims[2], n = weights->shape.dims[1];
    float *qkv = td_run_scratch(r, (size_t)(rows * n) * sizeof *qkv);
    bool takes_bias = bias && td_product_takes_bias(&s->product);

    if (!qkv) return TREADLE_OUT_OF_MEMORY;
    if (bias && td_tensor_count(bias) != n) return td_run_fail(r, "expected bias to have %lld values", (long long)n);
    td_product_job job = {.a = {rows, k, k, 1, x->data}, .b = {k, n, n, 1, weights->data}, .y = {rows, n, n, 1, qkv}};
    TD_TRY(td_product_run(r, &s->product, &job, 1, takes_bias ? bias->data : NULL));
    return attend(r, s, qkv, takes_bias ? NULL : bias);
}

const td_op_impl td_op_attention_microsoft = {.state_bytes = sizeof(attention_state),
                                              .prepare = plain_prepare,
                                              .infer = attention_infer,
                                              .run = plain_run,
                                              .flags = TD_OP_EXTENDS,
                                              .strided_inputs = 1u << 4,
                                              .strided_outputs = 1u << OUT_PRESENT};

static treadle_status quantised_run(td_run *r) {
    const attention_state *s = r->state;
    const td_tensor *x = r->in[IN_X], *weights = r->in[IN_WEIGHTS], *bias = r->in[s->form->bias];
    int64_t n = weights->shape.dims[1], n_scales = td_tensor_count(r->in[IN_W_SCALE]);
    td_int8_run run = {.a = *x,
                       .b = *weights,
                       .a_zero = input(r, IN_X_ZERO),
                       .b_zero = input(r, IN_W_ZERO),
                       .b_scale_step = n_scales > 1};
    td_shape shape = {3, {x->shape.dims[0], x->shape.dims[1], n}};
    float *qkv = td_run_scratch(r, (size_t)(shape.dims[0] * shape.dims[1] * n) * sizeof *qkv);

    if (!qkv) return TREADLE_OUT_OF_MEMORY;
    if (td_tensor_count(r->in[IN_X_SCALE]) != 1 || (run.a_zero && td_tensor_count(run.a_zero) != 1))
        return td_run_fail(r, "expected the input's scale and zero point to be one number each");
    if ((n_scales != 1 && n_scales != n) || td_tensor_count(bias) != n)
        return td_run_fail(r, "expected scales and bias to have %lld values", (long long)n);
    if (run.b_zero && td_tensor_count(run.b_zero) != 1 && td_tensor_count(run.b_zero) != n)
        return td_run_fail(r, "expected zero points of the weights to be one or %lld", (long long)n);
    TD_TRY(td_heads_f32(r, r->in[IN_X_SCALE], &run.a_scale));
    TD_TRY(td_heads_f32(r, r->in[IN_W_SCALE], &run.b_scale));
    TD_TRY(td_heads_f32(r, bias, &run.bias));
    td_tensor_view(&run.y, TD_FLOAT, &shape, qkv);
    TD_TRY(td_int8_run_all(r, &s->quantised, &run));
    return attend(r, s, qkv, NULL);
}

const td_op_impl td_op_qattention = {.state_bytes = sizeof(attention_state),
                                     .prepare = quantised_prepare,
                                     .infer = attention_infer,
                                     .run = quantised_run,
                                     .flags = TD_OP_EXTENDS,
                                     .strided_inputs = 1u << 8,
                                     .strided_outputs = 1u << OUT_PRESENT};
