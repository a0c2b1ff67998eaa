/* light/ops/pad.c - Pad: constant, reflect, edge and wrap; pads may be below zero and then cut. Source: ONNX op texts
 * of Pad-1 to -25; how reflect and wrap go on beyond one period: numpy.pad.
 *
 * Each dimension has a map from output to input positions, -1 for the constant; what is cut is cut before the rest is
 * reflected or repeated. */
#include "light/ops/move.h"
#include "tensor/half.h"

#include <string.h>

typedef enum pad_mode { PAD_CONSTANT, PAD_REFLECT, PAD_EDGE, PAD_WRAP } pad_mode;

typedef struct pad_state {
    pad_mode mode;
    bool has_list; /* opset 1 and 2: pads and value are attributes */
    size_t n;
    const int64_t *pads;
    float value;
} pad_state;

static treadle_status pad_prepare(td_prepare *p) {
    static const char *const words[] = {"constant", "reflect", "edge", "wrap"};
    pad_state *s = p->state;
    td_str mode = td_attr_string(p, "mode");
    size_t i = 0;

    while (i < TD_COUNT(words) && !td_str_is(mode, words[i])) i++;
    if (i == TD_COUNT(words))
        return td_bad_node(p, "mode is \"%.*s\"; expected constant, reflect, edge or wrap", TD_STR_ARGS(mode));
    s->mode = (pad_mode)i;
    if (p->opset >= 11) return TREADLE_OK;
    s->has_list = true;
    s->pads = td_attr_ints(p, p->opset == 1 ? "paddings" : "pads", &s->n);
    s->value = td_attr_float(p, "value");
    if (s->n > 2 * TD_MAX_RANK) return td_bad_node(p, "%zu pads; at most %d are supported", s->n, 2 * TD_MAX_RANK);
    return TREADLE_OK;
}

/* Pads of every dimension of a tensor of this rank; *known false: not known at open. */
static treadle_status read_pads(td_infer *in, int rank, int64_t begin[TD_MAX_RANK], int64_t end[TD_MAX_RANK],
                                bool *known) {
    const pad_state *s = in->state;
    int64_t pads[2 * TD_MAX_RANK], axes[TD_MAX_RANK];
    int n = (int)s->n, n_axes = rank;
    uint32_t seen = 0;

    *known = true;
    if (s->has_list) memcpy(pads, s->pads, s->n * sizeof *pads);
    else TD_TRY(td_infer_list(in, 1, pads, 2 * TD_MAX_RANK, &n, known));
    if (!*known) return TREADLE_OK;
    for (int d = 0; d < rank; d++) {
        axes[d] = d;
        begin[d] = end[d] = 0;
    }
    if (in->n_inputs > 3 && in->inputs[3]->kind == TD_VALUE_TENSOR) TD_TRY(td_infer_ints(in, 3, axes, &n_axes, known));
    if (!*known) return TREADLE_OK;
    if (n != 2 * n_axes) return td_infer_fail(in, "%d pads for %d axes; expected two each", n, n_axes);
    for (int i = 0; i < n_axes; i++) {
        int axis;
        TD_TRY(td_infer_axis(in, axes[i], rank, &axis));
        if (seen >> axis & 1) return td_infer_fail(in, "axis %d twice", axis);
        seen |= 1u << axis;
        begin[axis] = pads[i];
        end[axis] = pads[n_axes + i];
    }
    return TREADLE_OK;
}

static treadle_status padded_dim(td_infer *in, const pad_state *s, int64_t dim, int64_t begin, int64_t end,
                                 int64_t *out) {
    enum { FAR = 1 << 30 };
    const int64_t most = (int64_t)FAR * FAR;

    if (begin > most || begin < -most || end > most || end < -most)
        return td_infer_fail(in, "pads of %lld and %lld", (long long)begin, (long long)end);
    *out = dim + begin + end;
    if (*out < 0)
        return td_infer_fail(in, "pads of %lld and %lld leave nothing of %lld", (long long)begin, (long long)end,
                             (long long)dim);
    int64_t kept = dim + TD_MIN(begin, 0) + TD_MIN(end, 0);
    if (s->mode != PAD_CONSTANT && kept <= 0 && *out > 0)
        return td_infer_fail(in, "there is nothing to repeat in a dimension of %lld with pads of %lld and %lld",
                             (long long)dim, (long long)begin, (long long)end);
    return TREADLE_OK;
}

static treadle_status pad_infer(td_infer *in) {
    const pad_state *s = in->state;
    const td_tensor *x = &in->inputs[0]->tensor;
    int64_t begin[TD_MAX_RANK], end[TD_MAX_RANK];
    td_shape out = x->shape;
    bool known;

    if (out.rank < 0) return td_infer_unknown(in, 0, x->dtype, -1);
    TD_TRY(read_pads(in, out.rank, begin, end, &known));
    for (int d = 0; d < out.rank; d++) {
        if (!known) out.dims[d] = TD_DIM_UNKNOWN;
        else if (out.dims[d] >= 0) TD_TRY(padded_dim(in, s, out.dims[d], begin[d], end[d], &out.dims[d]));
        else if (begin[d] || end[d]) out.dims[d] = TD_DIM_UNKNOWN;
    }
    if (in->n_inputs > 2 && in->inputs[2]->kind == TD_VALUE_TENSOR) {
        const td_shape *value = &in->inputs[2]->tensor.shape;
        int64_t count;
        if (td_shape_known(value) && (!td_shape_count(value, &count) || count != 1))
            return td_infer_fail(in, "constant_value has not one element");
    }
    return td_infer_set(in, 0, x->dtype, &out);
}

/* --- run --- */

static int64_t remainder_of(int64_t a, int64_t n) {
    int64_t r = a % n;
    return r < 0 ? r + n : r;
}

/* Input position of output position `at` along a dimension; -1: the constant. */
static int64_t source_of(pad_mode mode, int64_t at, int64_t dim, int64_t begin, int64_t end) {
    int64_t i = at - begin, low = TD_MAX(0, -begin), n = dim - low - TD_MAX(0, -end);

    if (mode == PAD_CONSTANT) return i >= 0 && i < dim ? i : -1;
    i -= low;
    if (i >= 0 && i < n) return low + i;
    switch (mode) {
    case PAD_EDGE: return low + (i < 0 ? 0 : n - 1);
    case PAD_WRAP: return low + remainder_of(i, n);
    default: break;
    }
    if (n == 1) return low;
    i = remainder_of(i, 2 * n - 2);
    return low + (i < n ? i : 2 * n - 2 - i);
}

typedef struct pad_run {
    const td_tensor *x, *y;
    const int64_t *maps[TD_MAX_RANK];
    int64_t steps[TD_MAX_RANK]; /* of x */
    int64_t lo, hi;             /* the part of a row that is as in x */
    size_t bytes;               /* of an element */
    const uint8_t *value;       /* [bytes] */
} pad_run;

TD_INLINE void put(uint8_t *to, const uint8_t *from, const size_t bytes) {
    memcpy(to, from, bytes); /* bytes is a constant */
}

/* Positions begin..end of a row, one by one. */
static void pad_part(const pad_run *r, const uint8_t *row, int64_t begin, int64_t end, uint8_t *to) {
    const int64_t *map = r->maps[r->x->shape.rank - 1];
    int64_t step = r->steps[r->x->shape.rank - 1] * (int64_t)r->bytes;
    for (int64_t i = begin; i < end; i++) {
        const uint8_t *from = map[i] < 0 ? r->value : row + map[i] * step;
        uint8_t *at = to + i * (int64_t)r->bytes;
        switch (r->bytes) {
        case 1: put(at, from, 1); break;
        case 2: put(at, from, 2); break;
        case 4: put(at, from, 4); break;
        case 8: put(at, from, 8); break;
        default: put(at, from, 16); break;
        }
    }
}

static void pad_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const pad_run *r = arg;
    const td_shape *shape = &r->y->shape;
    int last = shape->rank - 1;
    int64_t width = shape->dims[last], bytes = (int64_t)r->bytes;

    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        int64_t rest = row, from = 0;
        bool constant = false;
        uint8_t *to = (uint8_t *)r->y->data + row * width * bytes;
        for (int d = last - 1; d >= 0; d--) {
            int64_t at = r->maps[d][rest % shape->dims[d]];
            rest /= shape->dims[d];
            constant |= at < 0;
            from += at * r->steps[d];
        }
        if (constant) {
            for (int64_t i = 0; i < width; i++) memcpy(to + i * bytes, r->value, r->bytes);
            continue;
        }
        const uint8_t *x = (const uint8_t *)r->x->data + from * bytes;
        bool dense = r->steps[last] == 1 && r->hi > r->lo;
        pad_part(r, x, 0, dense ? r->lo : width, to);
        if (!dense) continue;
        memcpy(to + r->lo * bytes, x + r->maps[last][r->lo] * bytes, (size_t)((r->hi - r->lo) * bytes));
        pad_part(r, x, r->hi, width, to);
    }
}

/* Elements of less than a byte, dense, one by one. */
static void pad_packed(const pad_run *r, const td_tensor *value) {
    int64_t count = td_tensor_count(r->y);
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i, from = 0;
        bool constant = false;
        for (int d = r->y->shape.rank - 1; d >= 0; d--) {
            int64_t at = r->maps[d][rest % r->y->shape.dims[d]];
            rest /= r->y->shape.dims[d];
            constant |= at < 0;
            from += at * r->steps[d];
        }
        td_move_packed_one(r->y, i, constant ? value : r->x, constant ? 0 : from);
    }
}

static treadle_status make_maps(td_run *r, pad_run *p, const int64_t *begin, const int64_t *end) {
    const pad_state *s = r->state;
    for (int d = 0; d < p->y->shape.rank; d++) {
        int64_t n = p->y->shape.dims[d], dim = p->x->shape.dims[d];
        int64_t *map = td_run_scratch(r, (size_t)n * sizeof *map);
        if (!map) return TREADLE_OUT_OF_MEMORY;
        for (int64_t i = 0; i < n; i++) map[i] = source_of(s->mode, i, dim, begin[d], end[d]);
        p->maps[d] = map;
        p->steps[d] = p->x->strides[d];
        p->lo = TD_MAX(0, begin[d]);
        p->hi = n - TD_MAX(0, end[d]);
    }
    return TREADLE_OK;
}

static treadle_status pad_run_op(td_run *r) {
    const pad_state *s = r->state;
    td_infer in = {.state = s, .n_inputs = r->n_inputs, .inputs = r->in_values, .err = r->err, .node = r->node};
    td_tensor *y = r->out[0], value = {.dtype = r->in[0]->dtype};
    int64_t begin[TD_MAX_RANK], end[TD_MAX_RANK];
    uint64_t bits[2] = {0};
    pad_run p = {.x = r->in[0], .y = y, .bytes = (size_t)td_dtype_bits(value.dtype) / 8};
    bool known;

    if (!y || td_tensor_count(y) == 0) return TREADLE_OK;
    value.data = bits;
    if (s->has_list && s->value != 0) td_store_f64(value.dtype, bits, 0, (double)s->value);
    if (r->n_inputs > 2 && r->in[2]) value.data = r->in[2]->data;
    else if (value.dtype == TD_STRING) *(td_str *)(void *)bits = (td_str){"", 0};
    p.value = value.data;
    TD_TRY(read_pads(&in, y->shape.rank, begin, end, &known));
    if (y->shape.rank == 0) {
        td_tensor_copy(y, p.x);
        return TREADLE_OK;
    }
    TD_TRY(make_maps(r, &p, begin, end));
    if (td_move_is_packed(value.dtype)) {
        pad_packed(&p, &value);
        return TREADLE_OK;
    }
    int64_t width = y->shape.dims[y->shape.rank - 1];
    td_pool_range(r->pool, td_tensor_count(y) / width, TD_MAX(1, 16384 / width), 1, pad_rows, &p);
    return TREADLE_OK;
}

const td_op_impl td_op_pad = {.state_bytes = sizeof(pad_state),
                              .prepare = pad_prepare,
                              .infer = pad_infer,
                              .run = pad_run_op,
                              .strided_inputs = 1};
