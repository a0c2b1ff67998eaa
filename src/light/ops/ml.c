/* light/ops/ml.c - of ai.onnx.ml: LabelEncoder, Binarizer, ArrayFeatureExtractor. Sources: ONNX op texts. */
#include "light/ops/index.h"
#include "light/ops/keys.h"
#include "light/ops/move.h"
#include "tensor/half.h"

#include <string.h>

/* --- LabelEncoder: each element looked up in a list of keys */

/* A list of elements of one type, in memory that lasts. */
typedef struct list {
    td_dtype dtype; /* TD_UNDEFINED: not given */
    int64_t n;
    const void *data;
} list;

typedef struct encoder_state {
    list keys, values, other; /* other: the value of what is no key */
    const uint64_t *orders;   /* of keys that are numbers */
} encoder_state;

static treadle_status tensor_list(td_prepare *p, const char *name, list *out) {
    const td_onnx_tensor *t = td_attr_tensor(p, name);
    size_t bytes;
    if (!t) return TREADLE_OK;
    if ((!t->data && t->count > 0) || !td_dtype_bytes(t->dtype, t->count, &bytes) || td_dtype_bits(t->dtype) < 8 ||
        (t->dtype != TD_STRING && bytes > t->data_bytes))
        return td_bad_node(p, "%s has not the data of its shape", name);
    void *copy = td_arena_alloc(p->arena, bytes, 64); /* in the file it may lie at any address */
    if (!copy) return td_fail_memory(p->err, name, bytes);
    if (bytes) memcpy(copy, t->data, bytes);
    *out = (list){t->dtype, t->count, copy};
    return TREADLE_OK;
}

/* keys_* or values_*, whichever is given. */
static treadle_status find_list(td_prepare *p, const char *const names[4], list *out) {
    size_t n;
    TD_TRY(tensor_list(p, names[0], out));
    const void *data = td_attr_ints(p, names[1], &n);
    if (td_attr_has(p, names[1])) *out = (list){TD_INT64, (int64_t)n, data};
    data = td_attr_floats(p, names[2], &n);
    if (td_attr_has(p, names[2])) *out = (list){TD_FLOAT, (int64_t)n, data};
    data = td_attr_strings(p, names[3], &n);
    if (td_attr_has(p, names[3])) *out = (list){TD_STRING, (int64_t)n, data};
    return TREADLE_OK;
}

/* The default of the values' type: default_tensor, or the attribute of that type. */
static treadle_status find_default(td_prepare *p, encoder_state *s) {
    TD_TRY(tensor_list(p, "default_tensor", &s->other));
    if (s->other.dtype == s->values.dtype && s->other.n == 1) return TREADLE_OK;
    td_str *text = TD_ARENA_ARRAY(p->arena, td_str, 1);
    if (!text) return td_fail_memory(p->err, "the default", sizeof *text);
    if (s->values.dtype == TD_STRING) *text = td_attr_string(p, "default_string");
    else if (td_dtype_kind(s->values.dtype) == TD_KIND_FLOAT)
        td_store_f64(s->values.dtype, text, 0, (double)td_attr_float(p, "default_float"));
    else td_store_i64(s->values.dtype, text, 0, td_attr_int(p, "default_int64"));
    s->other = (list){s->values.dtype, 1, text};
    return TREADLE_OK;
}

/* LabelEncoder-1: strings to their place among the classes, or back. */
static treadle_status old_lists(td_prepare *p, encoder_state *s) {
    size_t n;
    const td_str *classes = td_attr_strings(p, "classes_strings", &n);
    int64_t *places = TD_ARENA_ARRAY(p->arena, int64_t, n);
    if (!places) return td_fail_memory(p->err, "the classes", n * sizeof *places);
    for (size_t i = 0; i < n; i++) places[i] = (int64_t)i;
    list names = {TD_STRING, (int64_t)n, classes}, numbers = {TD_INT64, (int64_t)n, places};
    bool from_names = td_input_dtype(p, 0) == TD_STRING;
    s->keys = from_names ? names : numbers;
    s->values = from_names ? numbers : names;
    return TREADLE_OK;
}

static treadle_status encoder_prepare(td_prepare *p) {
    static const char *const keys[] = {"keys_tensor", "keys_int64s", "keys_floats", "keys_strings"},
                             *const values[] = {"values_tensor", "values_int64s", "values_floats", "values_strings"};
    encoder_state *s = p->state;

    if (p->opset < 2) TD_TRY(old_lists(p, s));
    else {
        TD_TRY(find_list(p, keys, &s->keys));
        TD_TRY(find_list(p, values, &s->values));
    }
    if (s->keys.dtype != td_input_dtype(p, 0) || s->values.dtype == TD_UNDEFINED || s->keys.n != s->values.n)
        return td_bad_node(p, "expected keys to be of the input's type, as many as values");
    if (s->keys.dtype != TD_STRING && !td_keys_can(s->keys.dtype))
        return td_unsupported(p, "keys of %s", td_dtype_name(s->keys.dtype));
    TD_TRY(find_default(p, s));
    if (s->keys.dtype == TD_STRING) return TREADLE_OK;
    uint64_t *orders = TD_ARENA_ARRAY(p->arena, uint64_t, (size_t)s->keys.n);
    if (!orders) return td_fail_memory(p->err, "the keys", (size_t)s->keys.n * sizeof *orders);
    td_keys_load(s->keys.dtype, s->keys.data, 0, 1, s->keys.n, false, orders);
    s->orders = orders;
    return TREADLE_OK;
}

static treadle_status encoder_infer(td_infer *in) {
    const encoder_state *s = in->state;
    return td_infer_set(in, 0, s->values.dtype, &in->inputs[0]->tensor.shape);
}

/* The place of element i among the keys; -1: it is none. */
static int64_t find_key(const encoder_state *s, const td_tensor *x, int64_t i) {
    uint64_t order = 0;
    if (s->orders) td_keys_load(x->dtype, x->data, i, 1, 1, false, &order);
    for (int64_t k = 0; k < s->keys.n; k++)
        if (s->orders ? s->orders[k] == order
                      : td_str_equal(((const td_str *)x->data)[i], ((const td_str *)s->keys.data)[k]))
            return k;
    return -1;
}

static treadle_status encoder_run(td_run *r) {
    const encoder_state *s = r->state;
    const td_tensor *x = r->in[0];
    size_t width = (size_t)td_dtype_bits(s->values.dtype) / 8;
    for (int64_t i = 0, n = td_tensor_count(x); i < n; i++) {
        int64_t k = find_key(s, x, i);
        const char *from = k < 0 ? s->other.data : (const char *)s->values.data + (size_t)k * width;
        memcpy((char *)r->out[0]->data + (size_t)i * width, from, width);
    }
    return TREADLE_OK;
}

const td_op_impl td_op_label_encoder = {
    .state_bytes = sizeof(encoder_state), .prepare = encoder_prepare, .infer = encoder_infer, .run = encoder_run};

/* --- Binarizer */

typedef struct binarizer_state {
    float threshold;
} binarizer_state;

static treadle_status binarizer_prepare(td_prepare *p) {
    binarizer_state *s = p->state;
    s->threshold = td_attr_float(p, "threshold");
    return TREADLE_OK;
}

static treadle_status binarizer_infer(td_infer *in) { return td_infer_same(in, 0, 0); }

static treadle_status binarizer_run(td_run *r) {
    const binarizer_state *s = r->state;
    const td_tensor *x = r->in[0];
    for (int64_t i = 0, n = td_tensor_count(x); i < n; i++)
        td_store_f64(x->dtype, r->out[0]->data, i, td_load_f64(x->dtype, x->data, i) > (double)s->threshold);
    return TREADLE_OK;
}

const td_op_impl td_op_binarizer = {.state_bytes = sizeof(binarizer_state),
                                    .prepare = binarizer_prepare,
                                    .infer = binarizer_infer,
                                    .run = binarizer_run};

/* --- ArrayFeatureExtractor: elements of the last dimension by index; a list counts as one row */

static treadle_status extractor_infer(td_infer *in) {
    const td_tensor *x = &in->inputs[0]->tensor;
    const td_shape *index = &in->inputs[1]->tensor.shape;
    td_shape out = x->shape;
    int64_t n = 1;
    if (out.rank < 0) return td_infer_unknown(in, 0, x->dtype, -1);
    if (out.rank == 0) return td_infer_fail(in, "a scalar has no features");
    for (int d = 0; d < index->rank; d++) n = n < 0 || index->dims[d] < 0 ? TD_DIM_UNKNOWN : n * index->dims[d];
    if (index->rank < 0) n = TD_DIM_UNKNOWN;
    if (out.rank == 1) out = (td_shape){2, {1, n}};
    else out.dims[out.rank - 1] = n;
    return td_infer_set(in, 0, x->dtype, &out);
}

static treadle_status extractor_run(td_run *r) {
    const td_tensor *x = r->in[0], *index = r->in[1];
    int64_t dim = x->shape.dims[x->shape.rank - 1], n = td_tensor_count(index),
            rows = td_tensor_count(x) / TD_MAX(1, dim);
    size_t width = (size_t)td_dtype_bits(x->dtype) / 8;
    char *to = r->out[0]->data;
    for (int64_t i = 0; i < n; i++)
        if (td_index_at(index, i) < 0 || td_index_at(index, i) >= dim)
            return td_index_fail(r, td_index_at(index, i), x->shape.rank - 1, dim);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < n; i++, to += width)
            memcpy(to, td_move_at(x, row * dim + td_index_at(index, i)), width);
    return TREADLE_OK;
}

const td_op_impl td_op_array_feature_extractor = {.infer = extractor_infer, .run = extractor_run};
