/* light/ops/cumulative.c - CumSum and CumProd along an axis given as an input. Source: ONNX op texts.
 * The halves are accumulated in float32; integers wrap. */
#include "light/ops/index.h"
#include "tensor/half.h"

typedef struct cumulative_job cumulative_job;
typedef void line_fn(const cumulative_job *j, const void *from, void *to);

typedef struct cumulative_state {
    bool exclusive, reverse;
    line_fn *line;
} cumulative_state;

struct cumulative_job {
    const cumulative_state *s;
    const char *from;
    char *to;
    int64_t n, inner; /* elements of a line; elements from one to the next */
    int64_t width;
};

/* A line of n elements, `inner` apart, from the end in reverse. `sum` starts as the neutral element. */
#define LINE(name, T, A, neutral, read, write, expr)                                                                   \
    static void name(const cumulative_job *j, const void *from, void *to) {                                            \
        const T *x = from;                                                                                             \
        T *y = to;                                                                                                     \
        A sum = neutral;                                                                                               \
        for (int64_t i = 0; i < j->n; i++) {                                                                           \
            int64_t at = (j->s->reverse ? j->n - 1 - i : i) * j->inner;                                                \
            const A value = read(x[at]), before = sum;                                                                 \
            sum = expr;                                                                                                \
            y[at] = write(j->s->exclusive ? before : sum);                                                             \
        }                                                                                                              \
    }
#define BOTH(sfx, T, A, read, write)                                                                                   \
    LINE(sum_##sfx, T, A, 0, read, write, before + value)                                                              \
    LINE(product_##sfx, T, A, 1, read, write, before *value)

BOTH(f32, float, float, , )
BOTH(f64, double, double, , )
BOTH(u32, uint32_t, uint32_t, , )
BOTH(u64, uint64_t, uint64_t, , )
BOTH(f16, uint16_t, float, td_f16_to_f32, td_f32_to_f16)
BOTH(bf16, uint16_t, float, td_bf16_to_f32, td_f32_to_bf16)

static const struct {
    td_dtype dtype;
    line_fn *sum, *product;
} rows[] = {
    {TD_FLOAT, sum_f32, product_f32},   {TD_DOUBLE, sum_f64, product_f64},     {TD_INT32, sum_u32, product_u32},
    {TD_UINT32, sum_u32, product_u32},  {TD_INT64, sum_u64, product_u64},      {TD_UINT64, sum_u64, product_u64},
    {TD_FLOAT16, sum_f16, product_f16}, {TD_BFLOAT16, sum_bf16, product_bf16},
};

static treadle_status prepare(td_prepare *p, bool product) {
    cumulative_state *s = p->state;
    td_dtype dtype = td_input_dtype(p, 0);

    s->exclusive = td_attr_int(p, "exclusive") != 0;
    s->reverse = td_attr_int(p, "reverse") != 0;
    for (size_t i = 0; i < TD_COUNT(rows); i++)
        if (rows[i].dtype == dtype) s->line = product ? rows[i].product : rows[i].sum;
    return s->line ? TREADLE_OK : td_unsupported(p, "element type %s", td_dtype_name(dtype));
}

static treadle_status cumsum_prepare(td_prepare *p) { return prepare(p, false); }
static treadle_status cumprod_prepare(td_prepare *p) { return prepare(p, true); }

static treadle_status cumulative_infer(td_infer *in) { return td_infer_same(in, 0, 0); }

static void lines(void *arg, int64_t begin, int64_t end, int thread) {
    const cumulative_job *j = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t start = (i / j->inner * j->n * j->inner + i % j->inner) * j->width;
        j->s->line(j, j->from + start, j->to + start);
    }
}

static treadle_status cumulative_run(td_run *r) {
    enum { GRAIN = 16384 };
    const td_tensor *x = r->in[0];
    int rank = x->shape.rank;
    int64_t outer = 1, axis;
    cumulative_job job = {r->state, x->data, r->out[0]->data, 1, 1, td_dtype_bits(x->dtype) / 8};

    if (td_tensor_count(r->in[1]) != 1) return td_run_fail(r, "expected axis to be one number");
    int64_t given = td_index_at(r->in[1], 0);
    if (!td_index_wrap(given, rank, &axis))
        return td_run_fail(r, "axis %lld is out of range; expected -%d..%d", (long long)given, rank, rank - 1);
    if (td_tensor_count(x) == 0) return TREADLE_OK;
    for (int d = 0; d < rank; d++) *(d < axis ? &outer : d == axis ? &job.n : &job.inner) *= x->shape.dims[d];
    td_pool_range(r->pool, outer * job.inner, TD_MAX(1, GRAIN / job.n), 1, lines, &job);
    return TREADLE_OK;
}

const td_op_impl td_op_cumsum = {.state_bytes = sizeof(cumulative_state),
                                 .prepare = cumsum_prepare,
                                 .infer = cumulative_infer,
                                 .run = cumulative_run};
const td_op_impl td_op_cumprod = {.state_bytes = sizeof(cumulative_state),
                                  .prepare = cumprod_prepare,
                                  .infer = cumulative_infer,
                                  .run = cumulative_run};
