/* light/ops/rotary.c - RotaryEmbedding of ai.onnx (opset 23) and of com.microsoft, MRotaryEmbedding. Source: the ONNX
 * op text; onnxruntime docs/ContribOperators.md, release 1.31.
 *
 * X is [batch, heads, sequence, head] or [batch, sequence, heads * head]. The first rotary_embedding_dim values of a
 * head (0: all) are turned in pairs, the rest is copied. float16 and bfloat16 pass through float32. MRotaryEmbedding
 * has three positions a token (time, height, width), and each pair of values turns by the angle of one of them. */
#include "kernels/rows_f32.h"
#include "light/op.h"
#include "tensor/half.h"

#include <string.h>

typedef struct rotary_state {
    const td_rows_f32_kernels *kernels;
    int64_t n_heads, rotary_dim;
    size_t in_cos, in_sin, in_positions;
    bool interleaved;
    bool microsoft;      /* its head size may follow from the cache, and one position may stand for all that follow */
    int64_t sections[3]; /* MRotaryEmbedding: pairs of each stream of positions */
    bool three, mixed;   /* mixed: pairs of the three take turns, instead of one stream after another */
} rotary_state;

static treadle_status prepare_rotary(td_prepare *p, bool microsoft) {
    rotary_state *s = p->state;

    s->kernels = td_rows_f32_pick();
    s->microsoft = microsoft;
    s->in_cos = microsoft ? 2 : 1;
    s->in_sin = s->in_cos + 1;
    s->in_positions = microsoft ? 1 : 3;
    s->n_heads = td_attr_int(p, "num_heads");
    s->rotary_dim = td_attr_int(p, "rotary_embedding_dim");
    s->interleaved = td_attr_int(p, "interleaved") != 0;
    if (s->n_heads < 0 || s->rotary_dim < 0 || s->rotary_dim % 2 != 0)
        return td_bad_node(p, "num_heads is %lld and rotary_embedding_dim %lld", (long long)s->n_heads,
                           (long long)s->rotary_dim);
    if (microsoft && s->rotary_dim > 0 && s->n_heads == 0)
        return td_bad_node(p, "rotary_embedding_dim needs num_heads");
    if (microsoft && td_attr_float(p, "scale") != 1)
        return td_unsupported(p, "scale = %g", (double)td_attr_float(p, "scale"));
    return TREADLE_OK;
}

static treadle_status prepare_three(td_prepare *p) {
    rotary_state *s = p->state;
    size_t n;
    const int64_t *sections = td_attr_ints(p, "mrope_section", &n);
    int64_t layout = td_attr_int(p, "mrope_layout");

    TD_TRY(prepare_rotary(p, true));
    if (n != 3 || sections[0] < 0 || sections[1] < 0 || sections[2] < 0)
        return td_bad_node(p, "expected mrope_section to be 3 counts");
    if (layout != 0 && layout != 1) return td_bad_node(p, "mrope_layout is %lld; expected 0 or 1", (long long)layout);
    memcpy(s->sections, sections, sizeof s->sections);
    s->three = true;
    s->mixed = layout == 1;
    return TREADLE_OK;
}

/* Which of the three positions pair i turns by. */
static int stream_of(const rotary_state *s, int64_t i) {
    if (!s->mixed) return i < s->sections[0] ? 0 : i - s->sections[0] < s->sections[1] ? 1 : 2;
    int stream = (int)(i % 3);
    return stream > 0 && i / 3 < s->sections[stream] ? stream : 0;
}

static treadle_status rotary_infer(td_infer *in) {
    int rank = in->inputs[0]->tensor.shape.rank;
    if (rank >= 0 && rank != 3 && rank != 4) return td_infer_fail(in, "expected the input to have 3 or 4 dimensions");
    return td_infer_same(in, 0, 0);
}

typedef struct rotary_run {
    const rotary_state *s;
    const td_tensor *x, *y, *cos, *sin, *positions;
    int64_t n_batch, n_heads, n_tokens, size, half;
    int64_t batch, head, token; /* strides, of x and y */
    float *buffer;              /* per thread: [size + 3 * half] */
    int64_t per_thread;
} rotary_run;

/* The row of cos and sin for a token; of several streams of positions by that one. */
static int64_t row_of(const rotary_run *w, int stream, int64_t b, int64_t t) {
    if (!w->positions) return b * w->n_tokens + t;
    const int64_t *list = (const int64_t *)w->positions->data + stream * w->n_batch * w->n_tokens;
    return td_tensor_count(w->positions) == 1 && w->s->microsoft && !w->s->three ? list[0] + t
                                                                                 : list[b * w->n_tokens + t];
}

static const float *angles(const td_tensor *t, int64_t row, int64_t n, float *copy) {
    if (t->dtype == TD_FLOAT) return (const float *)t->data + row * n;
    td_to_f32(t->dtype, (const uint16_t *)t->data + row * n, n, copy);
    return copy;
}

/* Angles of a token that takes them from three rows. */
static void mix_angles(const rotary_run *w, const td_tensor *table, int64_t b, int64_t t, float *copy, float *out) {
    for (int stream = 0; stream < 3; stream++) {
        const float *row = angles(table, row_of(w, stream, b, t), w->half, copy);
        for (int64_t i = 0; i < w->half; i++)
            if (stream_of(w->s, i) == stream) out[i] = row[i];
    }
}

static void rotate_tokens(void *arg, int64_t begin, int64_t end, int thread) {
    const rotary_run *w = arg;
    float *buffer = w->buffer + thread * w->per_thread;
    td_dtype dtype = w->x->dtype;
    int64_t bytes = td_dtype_bits(dtype) / 8, rest = w->size - 2 * w->half;

    for (int64_t i = begin; i < end; i++) {
        int64_t b = i / w->n_tokens, t = i % w->n_tokens, row = row_of(w, 0, b, t);
        float *own_cos = buffer + w->size, *own_sin = own_cos + w->half;
        const float *cos = own_cos, *sin = own_sin;
        if (w->s->three) {
            mix_angles(w, w->cos, b, t, own_sin + w->half, own_cos);
            mix_angles(w, w->sin, b, t, own_sin + w->half, own_sin);
        } else {
            cos = angles(w->cos, row, w->half, own_cos);
            sin = angles(w->sin, row, w->half, own_sin);
        }
        for (int64_t h = 0; h < w->n_heads; h++) {
            int64_t at = (b * w->batch + h * w->head + t * w->token) * bytes;
            const char *from = (const char *)w->x->data + at;
            char *to = (char *)w->y->data + at;
            if (dtype == TD_FLOAT) {
                w->s->kernels->rotate((const float *)(const void *)from, cos, sin, w->half, w->s->interleaved,
                                      (float *)(void *)to);
            } else {
                td_to_f32(dtype, from, 2 * w->half, buffer);
                w->s->kernels->rotate(buffer, cos, sin, w->half, w->s->interleaved, buffer);
                td_from_f32(dtype, buffer, 2 * w->half, to);
            }
            if (from != to) memcpy(to + 2 * w->half * bytes, from + 2 * w->half * bytes, (size_t)(rest * bytes));
        }
    }
}

static treadle_status set_sizes(td_run *r, rotary_run *w) {
    const rotary_state *s = w->s;
    const td_shape *x = &w->x->shape;
    int64_t hidden = x->dims[x->rank - 1],
            cached = w->cos->shape.rank > 0 ? w->cos->shape.dims[w->cos->shape.rank - 1] : 0;

    w->n_batch = x->dims[0];
    w->n_tokens = x->dims[x->rank - 2];
    if (x->rank == 4) {
        w->n_heads = x->dims[1];
        w->size = hidden;
    } else {
        w->size = s->microsoft && s->rotary_dim == 0 ? cached * 2 : s->n_heads > 0 ? hidden / s->n_heads : 0;
        if (w->size < 1 || hidden % w->size != 0 || (!s->microsoft && hidden % s->n_heads != 0))
            return td_run_fail(r, "%lld hidden values cannot be split into heads", (long long)hidden);
        w->n_heads = hidden / w->size;
    }
    w->half = (s->rotary_dim ? s->rotary_dim : w->size) / 2;
    if (2 * w->half > w->size || cached != w->half || !td_shape_equal(&w->cos->shape, &w->sin->shape))
        return td_run_fail(r, "expected cos_cache and sin_cache to end in a dimension of %lld", (long long)w->half);
    w->token = x->rank == 4 ? w->size : hidden;
    w->head = x->rank == 4 ? w->n_tokens * w->size : w->size;
    w->batch = w->n_heads * w->n_tokens * w->size;
    return TREADLE_OK;
}

static treadle_status check_positions(td_run *r, const rotary_run *w) {
    int64_t rows = w->half ? td_tensor_count(w->cos) / w->half : 0, n_tokens = w->n_batch * w->n_tokens;
    const rotary_state *s = w->s;
    int streams = s->three ? 3 : 1;

    if (s->three && s->sections[0] + s->sections[1] + s->sections[2] != w->half)
        return td_run_fail(r, "expected mrope_section to add up to %lld", (long long)w->half);
    if (w->positions) {
        int64_t n = td_tensor_count(w->positions);
        if (n != streams * n_tokens && !(n == 1 && s->microsoft && !s->three))
            return td_run_fail(r, "expected position_ids to be [%sbatch, sequence]", s->three ? "3, " : "");
    } else if (rows != n_tokens) {
        return td_run_fail(r, "expected cos_cache to be [batch, sequence, half], as there are no position_ids");
    }
    for (int64_t i = 0; i < streams * n_tokens; i++) {
        int64_t row = row_of(w, (int)(i / n_tokens), i % n_tokens / w->n_tokens, i % w->n_tokens);
        if (row < 0 || row >= rows)
            return td_run_fail(r, "position %lld; the caches have %lld", (long long)row, (long long)rows);
    }
    return TREADLE_OK;
}

static treadle_status rotary_run_op(td_run *r) {
    enum { GRAIN = 16384 };
    const rotary_state *s = r->state;
    rotary_run w = {.s = s,
                    .x = r->in[0],
                    .y = r->out[0],
                    .cos = r->in[s->in_cos],
                    .sin = r->in[s->in_sin],
                    .positions = s->in_positions < r->n_inputs ? r->in[s->in_positions] : NULL};

    if (td_tensor_count(w.x) == 0) return TREADLE_OK;
    TD_TRY(set_sizes(r, &w));
    TD_TRY(check_positions(r, &w));
    w.per_thread = TD_ROUND_UP(w.size + 3 * w.half, 16);
    w.buffer = td_run_scratch(r, (size_t)w.per_thread * (size_t)td_pool_threads(r->pool) * sizeof(float));
    if (!w.buffer) return TREADLE_OUT_OF_MEMORY;
    td_pool_range(r->pool, w.n_batch * w.n_tokens, TD_MAX(1, GRAIN / (w.n_heads * w.size)), 1, rotate_tokens, &w);
    return TREADLE_OK;
}

static treadle_status prepare_plain(td_prepare *p) { return prepare_rotary(p, false); }
static treadle_status prepare_microsoft(td_prepare *p) { return prepare_rotary(p, true); }

#define ROTARY_OP(name, how)                                                                                           \
    const td_op_impl td_op_##name = {.state_bytes = sizeof(rotary_state),                                              \
                                     .prepare = how,                                                                   \
                                     .infer = rotary_infer,                                                            \
                                     .run = rotary_run_op,                                                             \
                                     .flags = TD_OP_INPLACE};
ROTARY_OP(rotary_embedding, prepare_plain)
ROTARY_OP(rotary_embedding_microsoft, prepare_microsoft)
ROTARY_OP(mrotary_embedding, prepare_three)
