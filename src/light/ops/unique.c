/* light/ops/unique.c - Unique: the different elements, or slices along an axis, of a tensor. Source: ONNX op text.
 *
 * The items are sorted by index (merge sort, which keeps the order of equal ones); runs of equal ones are
 * the unique items, in that order or, if sorted is 0, in the order of their first occurrence. Slices are
 * compared element by element. */
#include "light/ops/keys.h"
#include "light/ops/move.h"

#include <string.h>

enum { OUT_Y, OUT_FIRST, OUT_INVERSE, OUT_COUNTS };

typedef struct unique_state {
    bool has_axis, sorted;
    int64_t axis;
} unique_state;

static treadle_status unique_prepare(td_prepare *p) {
    unique_state *s = p->state;
    td_dtype dtype = td_input_dtype(p, 0);
    s->has_axis = td_attr_has(p, "axis");
    s->axis = td_attr_int(p, "axis");
    s->sorted = td_attr_int(p, "sorted") != 0;
    return td_keys_can(dtype) || dtype == TD_STRING ? TREADLE_OK
                                                    : td_unsupported(p, "element type %s", td_dtype_name(dtype));
}

static treadle_status unique_infer(td_infer *in) {
    const unique_state *s = in->state;
    const td_tensor *x = &in->inputs[0]->tensor;
    td_shape out = {1, {TD_DIM_UNKNOWN}};
    int axis;

    for (size_t i = OUT_FIRST; i <= OUT_COUNTS; i++) TD_TRY(td_infer_unknown(in, i, TD_INT64, 1));
    if (s->has_axis && x->shape.rank < 0) return td_infer_unknown(in, OUT_Y, x->dtype, -1);
    if (s->has_axis) {
        TD_TRY(td_infer_axis(in, s->axis, x->shape.rank, &axis));
        out = x->shape;
        out.dims[axis] = TD_DIM_UNKNOWN;
    }
    return td_infer_set(in, OUT_Y, x->dtype, &out);
}

/* Item i is the elements (o * n + i) * inner + k for all o < outer, k < inner. */
typedef struct items {
    const td_tensor *x;
    const uint64_t *keys; /* of all elements; NULL: strings */
    int64_t n, outer, inner;
} items;

static int compare(const items *it, int64_t a, int64_t b) {
    for (int64_t o = 0; o < it->outer; o++)
        for (int64_t k = 0; k < it->inner; k++) {
            int64_t x = (o * it->n + a) * it->inner + k, y = (o * it->n + b) * it->inner + k;
            if (it->keys) {
                if (it->keys[x] != it->keys[y]) return it->keys[x] < it->keys[y] ? -1 : 1;
                continue;
            }
            const td_str *text = it->x->data;
            int order = td_str_compare(text[x], text[y]);
            if (order) return order;
        }
    return 0;
}

static void sort(const items *it, int64_t *order, int64_t *room) {
    for (int64_t width = 1; width < it->n; width *= 2) {
        for (int64_t at = 0; at < it->n; at += 2 * width) {
            int64_t a = at, a_end = TD_MIN(at + width, it->n), b = a_end, b_end = TD_MIN(at + 2 * width, it->n),
                    to = at;
            while (a < a_end && b < b_end) room[to++] = compare(it, order[b], order[a]) < 0 ? order[b++] : order[a++];
            while (a < a_end) room[to++] = order[a++];
            while (b < b_end) room[to++] = order[b++];
        }
        memcpy(order, room, (size_t)it->n * sizeof *order);
    }
}

/* What is found: first[u] and counts[u] of each unique item u, in the order asked for; inverse[i] of each item. */
typedef struct found {
    int64_t n;
    int64_t *first, *counts, *inverse;
} found;

static void find(const items *it, const int64_t *order, bool sorted, int64_t *room, found *f) {
    f->n = 0;
    for (int64_t i = 0; i < it->n; i++) {
        if (i == 0 || compare(it, order[i - 1], order[i]) != 0) {
            f->first[f->n] = order[i];
            f->counts[f->n++] = 0;
        }
        f->counts[f->n - 1]++;
        f->inverse[order[i]] = f->n - 1;
    }
    if (sorted) return;
    int64_t *rank = room, n = 0; /* rank[u]: place of sorted item u among first occurrences */
    for (int64_t i = 0; i < it->n; i++)
        if (f->first[f->inverse[i]] == i) rank[f->inverse[i]] = n++;
    for (int64_t i = 0; i < it->n; i++) f->inverse[i] = rank[f->inverse[i]];
    memset(f->counts, 0, (size_t)f->n * sizeof *f->counts);
    for (int64_t i = it->n; i-- > 0;) {
        f->first[f->inverse[i]] = i;
        f->counts[f->inverse[i]]++;
    }
}

static treadle_status give(td_run *r, size_t i, const int64_t *values, int64_t n) {
    td_shape shape = {1, {n}};
    if (i >= r->n_outputs || !r->out[i]) return TREADLE_OK;
    TD_TRY(td_run_alloc(r, i, TD_INT64, &shape));
    if (n > 0) memcpy(r->out[i]->data, values, (size_t)n * sizeof *values);
    return TREADLE_OK;
}

static treadle_status give_items(td_run *r, const unique_state *s, const items *it, const found *f, int axis) {
    td_shape shape = s->has_axis ? it->x->shape : (td_shape){1, {f->n}};
    if (s->has_axis) shape.dims[axis] = f->n;
    if (!r->out[OUT_Y]) return TREADLE_OK;
    TD_TRY(td_run_alloc(r, OUT_Y, it->x->dtype, &shape));
    size_t bytes = (size_t)it->inner * ((size_t)td_dtype_bits(it->x->dtype) / 8);
    char *to = r->out[OUT_Y]->data;
    for (int64_t o = 0; o < it->outer && bytes > 0; o++)
        for (int64_t u = 0; u < f->n; u++, to += bytes)
            memcpy(to, (const char *)it->x->data + (size_t)(o * it->n + f->first[u]) * bytes, bytes);
    return TREADLE_OK;
}

static treadle_status unique_run(td_run *r) {
    const unique_state *s = r->state;
    const td_tensor *x = r->in[0];
    int axis = (int)(s->axis < 0 ? s->axis + x->shape.rank : s->axis);
    int64_t count = td_tensor_count(x);
    items it = {.x = x, .n = 1, .outer = 1, .inner = 1};

    for (int d = 0; d < x->shape.rank; d++)
        *(!s->has_axis || d == axis ? &it.n : d < axis ? &it.outer : &it.inner) *= x->shape.dims[d];
    int64_t *memory[5];
    for (size_t i = 0; i < TD_COUNT(memory); i++) {
        memory[i] = td_run_scratch(r, (size_t)it.n * sizeof(int64_t));
        if (!memory[i]) return TREADLE_OUT_OF_MEMORY;
    }
    int64_t *order = memory[0], *room = memory[1];
    found f = {0, memory[2], memory[3], memory[4]};
    if (x->dtype != TD_STRING) {
        uint64_t *keys = td_run_scratch(r, (size_t)count * sizeof *keys);
        if (!keys) return TREADLE_OUT_OF_MEMORY;
        td_keys_load(x->dtype, x->data, 0, 1, count, false, keys);
        it.keys = keys;
    }
    for (int64_t i = 0; i < it.n; i++) order[i] = i;
    sort(&it, order, room);
    find(&it, order, s->sorted, room, &f);
    TD_TRY(give_items(r, s, &it, &f, axis));
    TD_TRY(give(r, OUT_FIRST, f.first, f.n));
    TD_TRY(give(r, OUT_INVERSE, f.inverse, it.n));
    return give(r, OUT_COUNTS, f.counts, f.n);
}

const td_op_impl td_op_unique = {
    .state_bytes = sizeof(unique_state), .prepare = unique_prepare, .infer = unique_infer, .run = unique_run};
