/* light/ops/quant_linear.c - see quant_linear.h. Kernels and packed layout: kernels/qmatmul.h, quant/pack.h. */
#include "light/ops/quant_linear.h"

#include "tensor/half.h"

enum {
    LINEAR_GROUP = 4,    /* products that may share their activations */
    LINEAR_ROWS = 512,   /* rows prepared at a time: their codes stay in the L2 cache */
    LINEAR_COLUMNS = 16, /* columns come in tiles of this many */
    LINEAR_GRAIN = 64,   /* columns a thread should have at least */
    LINEAR_PART = 12,    /* tiles of a part when there are many rows: a multiple of the kernels' panels of 2 and 3 */
    LINEAR_MANY = 16, /* rows from which on parts are handed out one by one, so that a delayed thread holds up none */
};

treadle_status td_qlinear_prepare(td_prepare *p, const td_qsource *source, td_qmode mode, const char *what,
                                  td_qlinear *out) {
    td_qlayout *layout = &out->weights.layout;
    const void *found;
    void *memory;
    size_t bytes;

    *out = (td_qlinear){.kernels = td_qmatmul_pick(), .mode = mode};
    if (p->analysis) { /* infer needs no more; the scales are not read twice */
        layout->n = source->n;
        layout->k = source->k;
        return TREADLE_OK;
    }
    if (td_prepare_find_packed(p, what, layout, sizeof *layout, &found, &bytes) && td_qlayout_valid(layout) &&
        layout->n == source->n && layout->k == source->k && layout->bits == source->bits &&
        td_qlayout_bytes(layout) == bytes) {
        out->weights.data = found;
        return TREADLE_OK;
    }
    TD_TRY(td_qlayout_choose(source, layout, p->err));
    TD_TRY(td_prepare_add_packed(p, what, layout, sizeof *layout, td_qlayout_bytes(layout), &memory));
    td_qweights_pack(source, layout, 0, td_qlayout_tiles_n(layout), memory);
    for (size_t i = 1; i < p->n_inputs; i++) td_prepare_done_with(p, i);
    out->weights.data = memory;
    return TREADLE_OK;
}

td_qmode td_qlinear_mode(const td_prepare *p, int64_t accuracy_level) {
    if (p->activations == TD_ACTIVATIONS_AUTO) return accuracy_level == 4 ? TD_QMODE_INT8 : TD_QMODE_FLOAT;
    return p->activations == TD_ACTIVATIONS_INT8 ? TD_QMODE_INT8 : TD_QMODE_FLOAT;
}

treadle_status td_qlinear_widen(td_prepare *p, const td_tensor *t, const void **data, td_dtype *dtype) {
    *data = t->data;
    *dtype = t->dtype;
    if (t->dtype != TD_BFLOAT16) return TREADLE_OK;
    int64_t count = td_tensor_count(t);
    float *wide = TD_ARENA_ARRAY(p->arena, float, (size_t)count);
    if (!wide) return td_fail_memory(p->err, "scales", (size_t)count * sizeof *wide);
    td_to_f32(t->dtype, t->data, count, wide);
    *data = wide;
    *dtype = TD_FLOAT;
    return TREADLE_OK;
}

treadle_status td_qlinear_bias(td_prepare *p, size_t input, int64_t n, const float **out) {
    *out = NULL;
    if (!td_has_input(p, input)) return TREADLE_OK;
    const td_tensor *bias = td_input_const(p, input);
    if (!bias) return td_unsupported(p, "a bias that is no constant");
    if (td_tensor_count(bias) != n)
        return td_bad_node(p, "the bias has %lld elements, expected %lld", (long long)td_tensor_count(bias),
                           (long long)n);
    float *values = TD_ARENA_ARRAY(p->arena, float, (size_t)n);
    if (!values) return td_fail_memory(p->err, "a bias", (size_t)n * sizeof *values);
    td_to_f32(bias->dtype, bias->data, n, values);
    *out = values;
    return TREADLE_OK;
}

treadle_status td_qlinear_infer(td_infer *in, size_t output, int64_t k, int64_t n) {
    const td_tensor *a = &in->inputs[0]->tensor;
    td_shape out = a->shape;

    if (out.rank < 0) return td_infer_unknown(in, output, a->dtype, -1);
    if (out.rank == 0) return td_infer_fail(in, "A is a scalar");
    if (out.dims[out.rank - 1] >= 0 && out.dims[out.rank - 1] != k)
        return td_infer_fail(in, "expected the last dimension of A to be %lld", (long long)k);
    out.dims[out.rank - 1] = n;
    return td_infer_set(in, output, a->dtype, &out);
}

/* --- run */
typedef struct linear_job {
    const td_qmatmul_kernels *kernels;
    const td_qact *act;
    td_qmatmul products[LINEAR_GROUP];
    int64_t first[LINEAR_GROUP + 1]; /* column of the joined range at which product i begins, in tiles of 16 */
    size_t n_products;
    char *scratch; /* one per thread */
    size_t scratch_bytes;
} linear_job;

static void fill_range(void *arg, int64_t begin, int64_t end, int thread) {
    const linear_job *j = arg;

    (void)thread;
    td_qact_fill(j->kernels, j->act, begin, end);
}

static void column_range(void *arg, int64_t begin, int64_t end, int thread) {
    const linear_job *j = arg;
    void *scratch = j->scratch + (size_t)thread * j->scratch_bytes;

    for (size_t i = 0; i < j->n_products; i++) {
        int64_t from = TD_MAX(begin, j->first[i]), to = TD_MIN(end, j->first[i + 1]);
        if (from >= to) continue;
        int64_t n = j->products[i].weights->layout.n;
        td_qmatmul_run(j->kernels, &j->products[i], 0, j->act->m, (from - j->first[i]) * LINEAR_COLUMNS,
                       TD_MIN(n, (to - j->first[i]) * LINEAR_COLUMNS), scratch);
    }
}

static void column_part(void *arg, int part, int thread) {
    const linear_job *j = arg;
    int64_t begin = (int64_t)part * LINEAR_PART;

    column_range(arg, begin, TD_MIN(begin + LINEAR_PART, j->first[j->n_products]), thread);
}

/* All columns of all products. The split changes no result: columns are independent. */
static void run_columns(td_pool *pool, linear_job *j) {
    int64_t tiles = j->first[j->n_products];

    if (j->act->m >= LINEAR_MANY) {
        td_pool_run(pool, (int)((tiles + LINEAR_PART - 1) / LINEAR_PART), column_part, j);
    } else {
        td_pool_range(pool, tiles, LINEAR_GRAIN / LINEAR_COLUMNS, 1, column_range, j);
    }
}

/* Float32 rows of a tensor: itself, or converted. */
static const float *rows_of(td_run *r, const td_tensor *t, int64_t count) {
    if (t->dtype == TD_FLOAT) return t->data;
    float *rows = td_run_scratch(r, (size_t)count * sizeof *rows);
    if (rows) td_to_f32(t->dtype, t->data, count, rows);
    return rows;
}

treadle_status td_qlinear_run(td_run *r, const td_qlinear *linears, size_t n, bool swiglu, const td_tensor *a,
                              td_tensor *const *y) {
    const td_qlinear *first = &linears[0];
    float *out[LINEAR_GROUP];
    linear_job job = {.kernels = first->kernels, .n_products = swiglu ? 1 : n};
    int64_t k = first->weights.layout.k, m = k ? td_tensor_count(a) / k : 0;
    int64_t step = TD_MIN(m, (int64_t)LINEAR_ROWS);
    size_t act_bytes;
    td_qact act;

    if (m == 0) return TREADLE_OK;
    const float *rows = rows_of(r, a, m * k);
    int sub = first->weights.layout.sub;
    if (!td_qact_bytes(first->mode, sub, step, k, &act_bytes)) return td_run_fail(r, "too many rows");
    void *act_memory = td_run_scratch(r, act_bytes);
    job.scratch_bytes = TD_ROUND_UP(td_qmatmul_scratch_bytes(job.kernels, k), (size_t)64);
    job.scratch = td_run_scratch(r, job.scratch_bytes * (size_t)td_pool_threads(r->pool));
    if (!rows || !act_memory || !job.scratch) return TREADLE_OUT_OF_MEMORY;
    job.act = &act;
    for (size_t i = 0; i < job.n_products; i++) {
        int64_t columns = linears[i].weights.layout.n;
        out[i] = y[i]->dtype == TD_FLOAT ? y[i]->data : td_run_scratch(r, (size_t)(m * columns) * sizeof(float));
        if (!out[i]) return TREADLE_OUT_OF_MEMORY;
        job.first[i + 1] = job.first[i] + td_qlayout_tiles_n(&linears[i].weights.layout);
        job.products[i] = (td_qmatmul){.weights = &linears[i].weights,
                                       .weights_up = swiglu ? &linears[1].weights : NULL,
                                       .act = &act,
                                       .bias = linears[i].bias,
                                       .bias_up = swiglu ? linears[1].bias : NULL,
                                       .epilogue = swiglu ? TD_QEPILOGUE_SWIGLU : TD_QEPILOGUE_NONE,
                                       .y_stride = columns};
    }
    for (int64_t row = 0; row < m; row += step) {
        int64_t now = TD_MIN(step, m - row);
        td_qact_init(&act, first->mode, sub, rows + row * k, k, now, k, act_memory);
        td_pool_range(r->pool, now, 16, 1, fill_range, &job);
        for (size_t i = 0; i < job.n_products; i++) job.products[i].y = out[i] + row * job.products[i].y_stride;
        run_columns(r->pool, &job);
    }
    for (size_t i = 0; i < job.n_products; i++)
        if (y[i]->dtype != TD_FLOAT) td_from_f32(y[i]->dtype, out[i], m * job.products[i].y_stride, y[i]->data);
    return TREADLE_OK;
}
