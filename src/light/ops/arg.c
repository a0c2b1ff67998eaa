/* light/ops/arg.c - ArgMax, ArgMin and Hardmax: where along an axis the largest or smallest element is.
 * Sources: ONNX op texts. Of equal ones the first, or with select_last_index (12) the last; a NaN counts
 * as largest and as smallest. */
#include "light/ops/keys.h"
#include "tensor/half.h"

#include <string.h>

typedef struct arg_state {
    int64_t axis;
    bool keep, falling, last;
    bool flat; /* Hardmax up to 12: all dimensions from axis on are one */
} arg_state;

static treadle_status check_type(td_prepare *p) {
    td_dtype dtype = td_input_dtype(p, 0);
    return td_keys_can(dtype) ? TREADLE_OK : td_unsupported(p, "element type %s", td_dtype_name(dtype));
}

static treadle_status arg_prepare(td_prepare *p, bool falling) {
    arg_state *s = p->state;
    s->axis = td_attr_int(p, "axis");
    s->keep = td_attr_int(p, "keepdims") != 0;
    s->last = td_attr_int(p, "select_last_index") != 0;
    s->falling = falling;
    return check_type(p);
}
static treadle_status argmax_prepare(td_prepare *p) { return arg_prepare(p, false); }
static treadle_status argmin_prepare(td_prepare *p) { return arg_prepare(p, true); }

static treadle_status arg_infer(td_infer *in) {
    const arg_state *s = in->state;
    td_shape out = in->inputs[0]->tensor.shape;
    int axis;

    if (out.rank < 0) return td_infer_unknown(in, 0, TD_INT64, -1);
    TD_TRY(td_infer_axis(in, s->axis, out.rank, &axis));
    if (out.dims[axis] == 0) return td_infer_fail(in, "an axis without elements");
    out.dims[axis] = 1;
    if (!s->keep) {
        memmove(out.dims + axis, out.dims + axis + 1, (size_t)(out.rank - axis - 1) * sizeof *out.dims);
        out.rank--;
    }
    return td_infer_set(in, 0, TD_INT64, &out);
}

typedef struct arg_job {
    const arg_state *s;
    const td_tensor *x;
    int64_t n, inner;
    int64_t *out;   /* ArgMax, ArgMin */
    td_tensor *one; /* Hardmax */
} arg_job;

/* `first`: element at which the line starts. */
static int64_t best_of(const arg_job *j, int64_t first) {
    enum { CHUNK = 512 };
    uint64_t keys[CHUNK], best = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < j->n; i += CHUNK) {
        int64_t n = TD_MIN((int64_t)CHUNK, j->n - i);
        td_keys_load(j->x->dtype, j->x->data, first + i * j->inner, j->inner, n, j->s->falling, keys);
        if (i == 0) best = keys[0];
        for (int64_t k = 0; k < n; k++) {
            if (keys[k] < best || (keys[k] == best && !j->s->last)) continue;
            best = keys[k];
            at = i + k;
        }
    }
    return at;
}

static void lines(void *arg, int64_t begin, int64_t end, int thread) {
    const arg_job *j = arg;
    (void)thread;
    for (int64_t line = begin; line < end; line++) {
        int64_t first = line / j->inner * j->n * j->inner + line % j->inner, at = best_of(j, first);
        if (j->out) j->out[line] = at;
        else td_store_f64(j->one->dtype, j->one->data, first + at * j->inner, 1);
    }
}

static void run_lines(td_run *r, arg_job *job, int axis) {
    const td_shape *x = &job->x->shape;
    int64_t outer = 1;
    job->n = job->inner = 1;
    for (int d = 0; d < x->rank; d++)
        *(d < axis ? &outer : d == axis || job->s->flat ? &job->n : &job->inner) *= x->dims[d];
    td_pool_range(r->pool, outer * job->inner, TD_MAX(1, 8192 / TD_MAX(1, job->n)), 1, lines, job);
}

static treadle_status arg_run(td_run *r) {
    const arg_state *s = r->state;
    arg_job job = {.s = s, .x = r->in[0], .out = r->out[0]->data};
    if (td_tensor_count(r->out[0]) == 0) return TREADLE_OK;
    run_lines(r, &job, (int)(s->axis < 0 ? s->axis + r->in[0]->shape.rank : s->axis));
    return TREADLE_OK;
}

const td_op_impl td_op_argmax = {
    .state_bytes = sizeof(arg_state), .prepare = argmax_prepare, .infer = arg_infer, .run = arg_run};
const td_op_impl td_op_argmin = {
    .state_bytes = sizeof(arg_state), .prepare = argmin_prepare, .infer = arg_infer, .run = arg_run};

static treadle_status hardmax_prepare(td_prepare *p) {
    arg_state *s = p->state;
    s->axis = td_attr_int(p, "axis");
    s->flat = p->opset < 13;
    return check_type(p);
}

static treadle_status hardmax_infer(td_infer *in) {
    const arg_state *s = in->state;
    const td_shape *x = &in->inputs[0]->tensor.shape;
    int axis;
    if (x->rank >= 0 && !(s->flat && s->axis == x->rank)) TD_TRY(td_infer_axis(in, s->axis, x->rank, &axis));
    return td_infer_same(in, 0, 0);
}

static treadle_status hardmax_run(td_run *r) {
    const arg_state *s = r->state;
    arg_job job = {.s = s, .x = r->in[0], .one = r->out[0]};
    size_t bytes;

    if (td_tensor_count(r->in[0]) == 0) return TREADLE_OK;
    if (td_tensor_bytes(r->out[0], &bytes)) memset(r->out[0]->data, 0, bytes);
    run_lines(r, &job, (int)(s->axis < 0 ? s->axis + r->in[0]->shape.rank : s->axis));
    return TREADLE_OK;
}

const td_op_impl td_op_hardmax = {
    .state_bytes = sizeof(arg_state), .prepare = hardmax_prepare, .infer = hardmax_infer, .run = hardmax_run};
