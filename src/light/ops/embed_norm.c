/* light/ops/embed_norm.c - com.microsoft EmbedLayerNormalization: word, position and segment embeddings looked up,
 * added and normalised. Source: onnxruntime docs/ContribOperators.md, release 1.31. */
#include "kernels/rows_f32.h"
#include "light/op.h"
#include "tensor/half.h"

#include <string.h>

enum { IN_IDS, IN_SEGMENTS, IN_WORDS, IN_POSITIONS, IN_SEGMENT_TABLE, IN_GAMMA, IN_BETA, IN_MASK, IN_POSITION_IDS };
enum { OUT_Y, OUT_MASK_INDEX, OUT_SUM };

typedef struct embed_state {
    const td_rows_f32_kernels *kernels;
    float epsilon;
} embed_state;

static treadle_status embed_prepare(td_prepare *p) {
    embed_state *s = p->state;
    s->kernels = td_rows_f32_pick();
    s->epsilon = td_attr_float(p, "epsilon");
    if (td_has_input(p, IN_SEGMENTS) && !td_has_input(p, IN_SEGMENT_TABLE))
        return td_bad_node(p, "segment_ids need segment_embedding");
    return TREADLE_OK;
}

static const td_shape *shape_of(const td_infer *in, size_t i) {
    return i < in->n_inputs && in->inputs[i]->kind == TD_VALUE_TENSOR ? &in->inputs[i]->tensor.shape : NULL;
}

static treadle_status check_table(td_infer *in, size_t i, const char *name, int64_t n) {
    const td_shape *s = shape_of(in, i);
    bool is_vector = i == IN_GAMMA || i == IN_BETA;
    if (!s || !td_shape_known(s) || n < 0) return TREADLE_OK;
    if (s->rank != (is_vector ? 1 : 2) || s->dims[s->rank - 1] != n)
        return td_infer_fail(in, "expected %s to have rows of %lld", name, (long long)n);
    return TREADLE_OK;
}

static treadle_status embed_infer(td_infer *in) {
    const td_shape *ids = shape_of(in, IN_IDS), *words = shape_of(in, IN_WORDS), *where = shape_of(in, IN_POSITION_IDS);
    td_shape y = {3, {TD_DIM_UNKNOWN, TD_DIM_UNKNOWN, TD_DIM_UNKNOWN}};

    if (ids->rank >= 0 && ids->rank != 2) return td_infer_fail(in, "expected input_ids to be [batch, tokens]");
    if (words->rank >= 0 && words->rank != 2) return td_infer_fail(in, "expected word_embedding to be a matrix");
    if (ids->rank == 2) memcpy(y.dims, ids->dims, 2 * sizeof *y.dims);
    if (words->rank == 2) y.dims[2] = words->dims[1];
    TD_TRY(check_table(in, IN_POSITIONS, "position_embedding", y.dims[2]));
    TD_TRY(check_table(in, IN_SEGMENT_TABLE, "segment_embedding", y.dims[2]));
    TD_TRY(check_table(in, IN_GAMMA, "gamma", y.dims[2]));
    TD_TRY(check_table(in, IN_BETA, "beta", y.dims[2]));
    for (size_t i = IN_SEGMENTS; i <= IN_MASK; i += IN_MASK - IN_SEGMENTS) {
        const td_shape *s = shape_of(in, i);
        if (s && td_shape_known(s) && td_shape_known(ids) && !td_shape_equal(s, ids))
            return td_infer_fail(in, "expected input %zu to be as input_ids", i);
    }
    if (where && td_shape_known(where) && td_shape_known(ids) &&
        (where->rank != 2 || (where->dims[0] != 1 && where->dims[0] != ids->dims[0]) || where->dims[1] != ids->dims[1]))
        return td_infer_fail(in, "expected position_ids to be [1 or batch, tokens]");
    td_shape batch = {1, {y.dims[0]}};
    td_dtype dtype = in->inputs[IN_WORDS]->tensor.dtype;
    TD_TRY(td_infer_set(in, OUT_Y, dtype, &y));
    TD_TRY(td_infer_set(in, OUT_MASK_INDEX, TD_INT32, &batch));
    return td_infer_set(in, OUT_SUM, dtype, &y);
}

typedef struct embed_job {
    const embed_state *s;
    td_run *r;
    int64_t n_tokens, n;
    const int32_t *ids, *segments, *positions; /* NULL: none, or in order */
    int64_t positions_batch;                   /* step from one sequence to the next */
    const td_tensor *words, *places, *segment_table;
    const float *gamma, *beta;
    td_tensor *y, *sum;
    float *room; /* per thread: 2 rows */
} embed_job;

static const float *table_row(const td_tensor *t, int64_t row, int64_t n, float *room) {
    const char *from = (const char *)t->data + row * n * (td_dtype_bits(t->dtype) / 8);
    if (t->dtype == TD_FLOAT) return (const float *)(const void *)from;
    td_to_f32(t->dtype, from, n, room);
    return room;
}

static void store(td_tensor *t, int64_t row, int64_t n, const float *values) {
    if (t) td_from_f32(t->dtype, values, n, (char *)t->data + row * n * (td_dtype_bits(t->dtype) / 8));
}

static int64_t place_of(const embed_job *j, int64_t i) {
    int64_t t = i % j->n_tokens;
    return j->positions ? j->positions[i / j->n_tokens * j->positions_batch + t] : t;
}

static void embed_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const embed_job *j = arg;
    float *x = j->room + thread * 2 * j->n, *row = x + j->n, mean;
    for (int64_t i = begin; i < end; i++) {
        td_to_f32(j->words->dtype,
                  (const char *)j->words->data + j->ids[i] * j->n * (td_dtype_bits(j->words->dtype) / 8), j->n, x);
        const float *segment =
            j->segment_table ? table_row(j->segment_table, j->segments ? j->segments[i] : 0, j->n, row) : NULL;
        if (segment) j->s->kernels->add(x, segment, NULL, j->n, x);
        j->s->kernels->add(x, table_row(j->places, place_of(j, i), j->n, row), NULL, j->n, x);
        store(j->sum, i, j->n, x);
        j->s->kernels->layer_norm(x, j->gamma, j->beta, j->n, j->s->epsilon, x, &mean);
        store(j->y, i, j->n, x);
    }
}

static treadle_status check_ids(td_run *r, const char *name, const int32_t *ids, int64_t n, const td_tensor *table) {
    for (int64_t i = 0; ids && i < n; i++)
        if (ids[i] < 0 || ids[i] >= table->shape.dims[0])
            return td_run_fail(r, "%s %d is out of range for %lld", name, ids[i], (long long)table->shape.dims[0]);
    return TREADLE_OK;
}

/* Words of each sequence: ones of the mask; without a mask 0. */
static void count_words(const td_run *r, const td_tensor *mask, int64_t n_batch, int64_t n_tokens) {
    td_tensor *out = r->n_outputs > OUT_MASK_INDEX ? r->out[OUT_MASK_INDEX] : NULL;
    for (int64_t b = 0; out && b < n_batch; b++) {
        int32_t n = 0;
        for (int64_t t = 0; mask && t < n_tokens; t++) n += ((const int32_t *)mask->data)[b * n_tokens + t] == 1;
        ((int32_t *)out->data)[b] = n;
    }
}

static const td_tensor *input(const td_run *r, size_t i) { return i < r->n_inputs ? r->in[i] : NULL; }
static const int32_t *ints_of(const td_tensor *t) { return t ? t->data : NULL; }

static treadle_status embed_run(td_run *r) {
    enum { GRAIN = 8192 };
    const td_tensor *ids = r->in[IN_IDS], *where = input(r, IN_POSITION_IDS);
    int64_t n_batch = ids->shape.dims[0], n_tokens = ids->shape.dims[1], count = n_batch * n_tokens;
    embed_job j = {.s = r->state,
                   .r = r,
                   .n_tokens = n_tokens,
                   .n = r->in[IN_WORDS]->shape.dims[1],
                   .ids = ids->data,
                   .segments = ints_of(input(r, IN_SEGMENTS)),
                   .positions = ints_of(where),
                   .positions_batch = where && where->shape.dims[0] > 1 ? n_tokens : 0,
                   .words = r->in[IN_WORDS],
                   .places = r->in[IN_POSITIONS],
                   .segment_table = input(r, IN_SEGMENT_TABLE),
                   .y = r->out[OUT_Y],
                   .sum = r->n_outputs > OUT_SUM ? r->out[OUT_SUM] : NULL};

    count_words(r, input(r, IN_MASK), n_batch, n_tokens);
    if (count == 0 || j.n == 0) return TREADLE_OK;
    TD_TRY(check_ids(r, "input id", j.ids, count, j.words));
    TD_TRY(check_ids(r, "position", j.positions, where ? td_tensor_count(where) : 0, j.places));
    if (j.segment_table) TD_TRY(check_ids(r, "segment", j.segments, count, j.segment_table));
    if (!where && n_tokens > j.places->shape.dims[0])
        return td_run_fail(r, "%lld tokens, position_embedding has %lld rows", (long long)n_tokens,
                           (long long)j.places->shape.dims[0]);
    const void *gamma, *beta;
    TD_TRY(td_run_widen(r, r->in[IN_GAMMA], &gamma));
    TD_TRY(td_run_widen(r, r->in[IN_BETA], &beta));
    j.gamma = gamma;
    j.beta = beta;
    j.room = td_run_scratch(r, (size_t)td_pool_threads(r->pool) * 2 * (size_t)j.n * sizeof *j.room);
    if (!j.room) return TREADLE_OUT_OF_MEMORY;
    td_pool_range(r->pool, count, TD_MAX(1, GRAIN / j.n), 1, embed_rows, &j);
    return TREADLE_OK;
}

const td_op_impl td_op_embed_layer_normalization = {
    .state_bytes = sizeof(embed_state), .prepare = embed_prepare, .infer = embed_infer, .run = embed_run};
