/* light/ops/linear_attention.c - LinearAttention: attention as a recurrence over a state of [key size, value
 * size] per head. Sources: ONNX op text (27); onnxruntime docs/ContribOperators.md, release 1.31 (more key-value
 * than query heads, state_window).
 *
 *     S = exp(g) S;  u = v, or beta (v - k S) with a delta rule;  S = S + k u;  o = scale q S
 *
 * token by token, in float32. Heads are independent and shared out to the threads. A float32 state is computed where
 * the output lies, which may be where the past state lies. */
#include "kernels/recurrence_f32.h"
#include "kernels/vmath.h"
#include "light/ops/heads.h"
#include "tensor/half.h"

#include <math.h>
#include <string.h>

enum { IN_Q, IN_K, IN_V, IN_PAST, IN_DECAY, IN_BETA };
enum { OUT_Y, OUT_PRESENT };

typedef struct linear_state {
    const td_recurrence_f32_kernels *kernels;
    int64_t n_heads, n_kv_heads;
    int64_t window; /* 0: the state has no axis for it */
    float scale;    /* 0: 1 / sqrt(key size) */
    bool gated, delta;
    td_dtype dtype, state;
} linear_state;

static treadle_status linear_prepare(td_prepare *p) {
    static const char *const rules[] = {"linear", "gated", "delta", "gated_delta"};
    linear_state *s = p->state;
    td_str rule = td_attr_string(p, "update_rule");
    size_t which = 0;

    while (which < TD_COUNT(rules) && !td_str_is(rule, rules[which])) which++;
    if (which == TD_COUNT(rules))
        return td_bad_node(p, "update_rule \"%.*s\", expected linear, gated, delta or gated_delta", TD_STR_ARGS(rule));
    s->kernels = td_recurrence_f32_pick();
    s->gated = which & 1;
    s->delta = which & 2;
    if (s->gated && !td_has_input(p, IN_DECAY)) return td_bad_node(p, "update_rule %s needs decay", rules[which]);
    if (s->delta && !td_has_input(p, IN_BETA)) return td_bad_node(p, "update_rule %s needs beta", rules[which]);
    s->n_heads = td_attr_int(p, "q_num_heads");
    s->n_kv_heads = td_attr_int(p, "kv_num_heads");
    int64_t more = TD_MAX(s->n_heads, s->n_kv_heads), fewer = TD_MIN(s->n_heads, s->n_kv_heads);
    if (fewer < 1 || more % fewer != 0)
        return td_bad_node(p,
                           "expected q_num_heads and kv_num_heads of which one divides the other, found %lld and %lld",
                           (long long)s->n_heads, (long long)s->n_kv_heads);
    s->window = td_attr_int(p, "state_window");
    if (s->window < 0 || s->window > 8)
        return td_bad_node(p, "state_window = %lld, expected 0..8", (long long)s->window);
    s->scale = td_attr_float(p, "scale");
    s->dtype = td_input_dtype(p, IN_Q);
    s->state = td_has_input(p, IN_PAST) ? td_input_dtype(p, IN_PAST) : s->dtype;
    return TREADLE_OK;
}

static const td_shape *shape_of(const td_infer *in, size_t i) {
    return i < in->n_inputs && in->inputs[i]->kind == TD_VALUE_TENSOR ? &in->inputs[i]->tensor.shape : NULL;
}

static bool differ(int64_t a, int64_t b) { return a >= 0 && b >= 0 && a != b; }

/* Size of one of n heads that the last dimension of a [batch, token, n * size] input holds; 0: none fits. */
static int64_t head_size(const td_shape *x, int64_t n) {
    if (x->rank < 0 || x->dims[2] < 0) return TD_DIM_UNKNOWN;
    return x->dims[2] % n == 0 ? x->dims[2] / n : 0;
}

/* A gate is [batch, token, one of the given widths]. */
static treadle_status check_gate(td_infer *in, size_t input, const char *name, const td_shape *q, int64_t wide,
                                 int64_t narrow) {
    const td_shape *x = shape_of(in, input);
    if (!x || x->rank < 0) return TREADLE_OK;
    if (x->rank != 3 || differ(x->dims[0], q->dims[0]) || differ(x->dims[1], q->dims[1]) ||
        (differ(x->dims[2], wide) && differ(x->dims[2], narrow)))
        return td_infer_fail(in, "expected %s to be [batch, token, %lld or %lld]", name, (long long)wide,
                             (long long)narrow);
    return TREADLE_OK;
}

static treadle_status linear_infer(td_infer *in) {
    const linear_state *s = in->state;
    const td_shape *q = shape_of(in, IN_Q), *k = shape_of(in, IN_K), *v = shape_of(in, IN_V),
                   *past = shape_of(in, IN_PAST);
    const td_shape *all[] = {q, k, v};
    td_shape out = {3, {TD_DIM_UNKNOWN, TD_DIM_UNKNOWN, TD_DIM_UNKNOWN}};

    for (size_t i = 0; i < TD_COUNT(all); i++) {
        if (all[i]->rank < 0) continue;
        if (all[i]->rank != 3) return td_infer_fail(in, "expected query, key and value to have 3 dimensions");
        for (int d = 0; d < 2; d++) {
            if (differ(out.dims[d], all[i]->dims[d])) return td_infer_fail(in, "query, key and value differ in length");
            if (all[i]->dims[d] >= 0 || out.dims[d] == TD_DIM_UNKNOWN) out.dims[d] = all[i]->dims[d];
        }
    }
    int64_t size = head_size(q, s->n_heads), v_size = head_size(v, s->n_kv_heads);
    if (size == 0 || v_size == 0) return td_infer_fail(in, "query or value is not a multiple of its heads");
    if (size > 0 && k->rank == 3 && k->dims[2] >= 0) {
        int64_t n = k->dims[2] / size;
        if (k->dims[2] % size != 0 || n < 1 || s->n_kv_heads % n != 0)
            return td_infer_fail(in, "key does not have heads of query's size %lld", (long long)size);
    }
    int64_t keys = size < 0 ? TD_DIM_UNKNOWN : size * s->n_kv_heads;
    TD_TRY(check_gate(in, IN_DECAY, "decay", &out, keys, s->n_kv_heads));
    TD_TRY(check_gate(in, IN_BETA, "beta", &out, s->n_kv_heads, 1));
    td_shape state = {4, {out.dims[0], s->n_kv_heads, size, v_size}};
    if (s->window) state = (td_shape){5, {s->window, out.dims[0], s->n_kv_heads, size, v_size}};
    if (past && past->rank >= 0) {
        bool fits = past->rank == state.rank;
        char text[128];
        for (int d = 0; fits && d < past->rank; d++) fits = !differ(past->dims[d], state.dims[d]);
        if (!fits) return td_infer_fail(in, "expected past_state to be %s", td_shape_text(&state, text));
    }
    out.dims[2] = v_size < 0 ? TD_DIM_UNKNOWN : v_size * TD_MAX(s->n_heads, s->n_kv_heads);
    TD_TRY(td_infer_set(in, OUT_Y, s->dtype, &out));
    return td_infer_set(in, OUT_PRESENT, s->state, &state);
}

/* --- run */

typedef struct linear_run {
    const linear_state *s;
    int64_t n_batch, n_tokens, size, v_size, n_key_heads;
    int64_t decay_size, beta_heads; /* of a head: key size or 1; 0: none. Heads of beta: all or 1; 0: none */
    float scale;
    td_heads q, k, v, decay, beta, y;
    const char *past; /* NULL: zeros */
    char *present;    /* NULL: nobody wants it */
    const td_vmath_kernels *vmath;
    float *room; /* per thread: own_floats for the state, then what job_of needs */
    int64_t per_thread, own_floats;
} linear_run;

/* Where the state of head h of sequence b starts, in elements; slots of a window are whole states of all. */
static int64_t state_at(const linear_run *w, int64_t slot, int64_t b, int64_t h) {
    return ((slot * w->n_batch + b) * w->s->n_kv_heads + h) * w->size * w->v_size;
}

static void keep_state(const linear_run *w, const float *state, int64_t slot, int64_t b, int64_t h) {
    char *to = w->present + state_at(w, slot, b, h) * (td_dtype_bits(w->s->state) / 8);
    if ((void *)to != (const void *)state) td_from_f32(w->s->state, state, w->size * w->v_size, to);
}

/* The state to compute in: the last slot of the output if it is float32, else `own`; holding the past state. */
static float *start_state(const linear_run *w, int64_t b, int64_t h, float *own) {
    int64_t at = state_at(w, TD_MAX(0, w->s->window - 1), b, h), n = w->size * w->v_size;
    const char *from = w->past ? w->past + at * (td_dtype_bits(w->s->state) / 8) : NULL;
    float *state = w->present && w->s->state == TD_FLOAT ? (float *)(void *)w->present + at : own;

    if (!from) memset(state, 0, (size_t)n * sizeof *state);
    else if ((const void *)from != (void *)state) td_to_f32(w->s->state, from, n, state);
    return state;
}

/* Where there are many tokens a head is copied side by side first: it is read several times, and what lies a power of
 * two apart is in one set of a cache. */
static bool copies(const linear_run *w) { return w->n_tokens > 8; }

/* float32 of n heads from h on, of all tokens of sequence b: where they lie, with *step from one token to the next and
 * *head from one head to the next, or copied to `room` ([token, n, size]). */
static const float *as_f32(const linear_run *w, const td_heads *x, int64_t b, int64_t h, int64_t n, int64_t size,
                           float *room, int64_t *step, int64_t *head) {
    *step = x->token;
    *head = x->head;
    if (x->dtype == TD_FLOAT && !copies(w)) return (const float *)(const void *)td_heads_at(x, b, 0, h);
    *step = n * size;
    *head = size;
    for (int64_t t = 0; t < w->n_tokens; t++)
        for (int64_t i = 0; i < n; i++)
            td_to_f32(x->dtype, td_heads_at(x, b, t, h + i), size, room + (t * n + i) * size);
    return room;
}

/* exp of the decays of a head: [token, decay_size]. */
static void make_gates(const linear_run *w, int64_t b, int64_t h, float *gates) {
    int64_t n = w->decay_size;
    for (int64_t t = 0; t < w->n_tokens; t++)
        td_to_f32(w->decay.dtype, td_heads_at(&w->decay, b, t, h), n, gates + t * n);
    w->vmath->exp(gates, w->n_tokens * n, gates);
}

/* The recurrence of a head, all but its state, over memory `room` of room_floats floats. */
static td_recurrence_f32 job_of(const linear_run *w, int64_t b, int64_t h, float *room) {
    const linear_state *s = w->s;
    int64_t group = TD_MAX(1, s->n_heads / s->n_kv_heads), shared = TD_MAX(1, s->n_kv_heads / s->n_heads), unused;
    td_recurrence_f32 j = {.n_tokens = w->n_tokens,
                           .n_keys = w->size,
                           .n_values = w->v_size,
                           .n_queries = w->y.data ? group : 0,
                           .scale = w->scale};
    j.k = as_f32(w, &w->k, b, h * w->n_key_heads / s->n_kv_heads, 1, w->size, room, &j.k_step, &unused);
    room += w->n_tokens * w->size;
    j.v = as_f32(w, &w->v, b, h, 1, w->v_size, room, &j.v_step, &unused);
    room += w->n_tokens * w->v_size;
    j.q = as_f32(w, &w->q, b, h * group / shared, group, w->size, room, &j.q_step, &j.q_head);
    room += w->n_tokens * group * w->size;
    if (s->gated) {
        make_gates(w, b, h, room);
        j.gate = room;
        j.gate_step = w->decay_size;
        j.one_gate = w->decay_size == 1;
        room += w->n_tokens * w->decay_size;
    }
    if (s->delta) {
        j.beta = as_f32(w, &w->beta, b, w->beta_heads > 1 ? h : 0, 1, 1, room, &j.beta_step, &unused);
        room += w->n_tokens;
    }
    j.y = (float *)(void *)td_heads_at(&w->y, b, 0, h * group);
    j.y_step = w->y.token;
    j.y_head = w->v_size;
    if (s->dtype != TD_FLOAT || copies(w)) {
        j.y = room;
        j.y_step = group * w->v_size;
    }
    return j;
}

/* What job_of and the state need. */
static int64_t room_floats(const linear_run *w) {
    int64_t group = TD_MAX(1, w->s->n_heads / w->s->n_kv_heads);
    return w->n_tokens * ((group + 2) * (w->size + w->v_size) + 1);
}

/* Tokens first..end; their outputs are rounded where they are of a half type. */
static void run_tokens(const linear_run *w, const td_recurrence_f32 *all, int64_t first, int64_t end) {
    td_recurrence_f32 j = *all;
    j.n_tokens = end - first;
    j.k += first * j.k_step;
    j.v += first * j.v_step;
    j.q += first * j.q_step;
    if (j.gate) j.gate += first * j.gate_step;
    if (j.beta) j.beta += first * j.beta_step;
    if (j.n_queries) j.y += first * j.y_step;
    w->s->kernels->run(&j);
}

static void store_y(const linear_run *w, const td_recurrence_f32 *j, int64_t b, int64_t h) {
    for (int64_t t = 0; t < w->n_tokens; t++)
        for (int64_t i = 0; i < j->n_queries; i++)
            td_from_f32(w->s->dtype, j->y + t * j->y_step + i * j->y_head, w->v_size,
                        td_heads_at(&w->y, b, t, h * j->n_queries + i));
}

static void run_heads(void *arg, int64_t begin, int64_t end, int thread) {
    const linear_run *w = arg;
    const linear_state *s = w->s;
    float *room = w->room + thread * w->per_thread;

    for (int64_t i = begin; i < end; i++) {
        int64_t b = i / s->n_kv_heads, h = i % s->n_kv_heads, before = w->n_tokens - s->window; /* of the window */
        td_recurrence_f32 job = job_of(w, b, h, room + w->own_floats);
        job.state = start_state(w, b, h, room);
        int64_t plain = w->present && s->window ? TD_MAX(0, before) : w->n_tokens;
        if (plain > 0) run_tokens(w, &job, 0, plain);
        for (int64_t t = plain; t < w->n_tokens; t++) {
            run_tokens(w, &job, t, t + 1);
            keep_state(w, job.state, t - before, b, h);
        }
        if (job.n_queries && (s->dtype != TD_FLOAT || copies(w))) store_y(w, &job, b, h);
        if (!w->present) continue;
        keep_state(w, job.state, TD_MAX(0, s->window - 1), b, h);
        int64_t bytes = w->size * w->v_size * (td_dtype_bits(s->state) / 8);
        for (int64_t slot = 0; slot + 1 < s->window && slot < -before; slot++)
            memset(w->present + state_at(w, slot, b, h) * (td_dtype_bits(s->state) / 8), 0, (size_t)bytes);
    }
}

static const td_tensor *input(const td_run *r, size_t i) { return i < r->n_inputs ? r->in[i] : NULL; }
static const td_tensor *output(const td_run *r, size_t i) { return i < r->n_outputs ? r->out[i] : NULL; }

static treadle_status set_up(linear_run *w, td_run *r) {
    const linear_state *s = w->s;
    const td_tensor *q = r->in[IN_Q], *decay = input(r, IN_DECAY), *beta = input(r, IN_BETA), *y = output(r, OUT_Y),
                    *past = input(r, IN_PAST), *present = output(r, OUT_PRESENT);

    w->n_batch = q->shape.dims[0];
    w->n_tokens = q->shape.dims[1];
    w->size = q->shape.dims[2] / s->n_heads;
    w->v_size = r->in[IN_V]->shape.dims[2] / s->n_kv_heads;
    w->n_key_heads = r->in[IN_K]->shape.dims[2] / w->size;
    w->scale = s->scale != 0 ? s->scale : 1 / sqrtf((float)w->size);
    w->past = past ? past->data : NULL;
    w->present = present ? present->data : NULL;
    TD_TRY(td_heads_of_tokens(r, q, 0, w->size, &w->q));
    TD_TRY(td_heads_of_tokens(r, r->in[IN_K], 0, w->size, &w->k));
    TD_TRY(td_heads_of_tokens(r, r->in[IN_V], 0, w->v_size, &w->v));
    if (y) TD_TRY(td_heads_of_tokens(r, y, 0, w->v_size, &w->y));
    if (s->gated) {
        w->decay_size = decay->shape.dims[2] / s->n_kv_heads;
        TD_TRY(td_heads_of_tokens(r, decay, 0, w->decay_size, &w->decay));
    }
    if (s->delta) {
        w->beta_heads = beta->shape.dims[2];
        TD_TRY(td_heads_of_tokens(r, beta, 0, 1, &w->beta));
    }
    return TREADLE_OK;
}

static treadle_status linear_run_op(td_run *r) {
    linear_run w = {.s = r->state, .vmath = td_vmath_pick()};
    size_t bytes;

    if (td_tensor_count(r->in[IN_Q]) == 0 && !output(r, OUT_PRESENT)) return TREADLE_OK;
    TD_TRY(set_up(&w, r));
    if (TD_MUL_OVERFLOWS(w.size, w.v_size, &w.own_floats) || w.own_floats > INT64_MAX / 64)
        return td_run_fail(r, "sizes overflow");
    if (w.present && w.s->state == TD_FLOAT) w.own_floats = 0;
    w.own_floats = TD_ROUND_UP(w.own_floats, 16);
    w.per_thread = TD_ROUND_UP(w.own_floats + room_floats(&w), 16);
    if (TD_MUL_OVERFLOWS((size_t)w.per_thread * sizeof(float), (size_t)td_pool_threads(r->pool), &bytes))
        return td_run_fail(r, "sizes overflow");
    w.room = td_run_scratch(r, bytes);
    if (!w.room) return TREADLE_OUT_OF_MEMORY;
    td_pool_range(r->pool, w.n_batch * w.s->n_kv_heads, 1, 1, run_heads, &w);
    return TREADLE_OK;
}

const td_op_impl td_op_linear_attention = {.state_bytes = sizeof(linear_state),
                                           .prepare = linear_prepare,
                                           .infer = linear_infer,
                                           .run = linear_run_op,
                                           .flags = TD_OP_OVERWRITES,
                                           .strided_inputs =
                                               1u << IN_Q | 1u << IN_K | 1u << IN_V | 1u << IN_DECAY | 1u << IN_BETA,
                                           .overwritten_input = IN_PAST,
                                           .overwriting_output = OUT_PRESENT};
