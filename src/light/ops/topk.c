/* light/ops/topk.c - TopK: the k largest or smallest elements along an axis, in order, equal ones by rising index.
 * Source: ONNX op text. TopK-1 has k as an attribute, TopK-10 as an input; largest and sorted came with 11.
 *
 * Elements become unsigned keys that rise with them (falling for the smallest); a NaN comes after all numbers in both
 * orders' sense of "largest". A heap of the best k so far, the worst on top, is then taken apart from behind. */
#include "light/ops/keys.h"

#include <string.h>

typedef struct topk_state {
    int64_t axis, k;
    bool k_is_input, smallest;
} topk_state;

static treadle_status topk_prepare(td_prepare *p) {
    topk_state *s = p->state;

    s->axis = td_attr_int(p, "axis");
    s->k_is_input = p->opset >= 10;
    s->k = td_attr_int(p, "k");
    s->smallest = p->opset >= 11 && td_attr_int(p, "largest") == 0;
    if (!s->k_is_input && s->k < 0) return td_bad_node(p, "k = %lld", (long long)s->k);
    return td_keys_can(td_input_dtype(p, 0))
               ? TREADLE_OK
               : td_unsupported(p, "element type %s", td_dtype_name(td_input_dtype(p, 0)));
}

static treadle_status topk_infer(td_infer *in) {
    const topk_state *s = in->state;
    const td_tensor *x = &in->inputs[0]->tensor;
    td_shape out = x->shape;
    int64_t k = s->k;
    int axis;

    if (s->k_is_input) {
        const td_tensor *given = &in->inputs[1]->tensor;
        bool known = given->data && td_shape_known(&given->shape);
        if (known && td_tensor_count(given) != 1) return td_infer_fail(in, "expected K to be one number");
        k = known ? ((const int64_t *)given->data)[0] : TD_DIM_UNKNOWN;
        if (known && k < 0) return td_infer_fail(in, "K is %lld", (long long)k);
    }
    if (out.rank >= 0) {
        TD_TRY(td_infer_axis(in, s->axis, out.rank, &axis));
        if (k >= 0 && out.dims[axis] >= 0 && k > out.dims[axis])
            return td_infer_fail(in, "%lld elements asked for, there are %lld", (long long)k,
                                 (long long)out.dims[axis]);
        out.dims[axis] = k;
    }
    TD_TRY(td_infer_set(in, 0, x->dtype, &out));
    return td_infer_set(in, 1, TD_INT64, &out);
}

typedef struct entry {
    uint64_t key;
    int64_t index;
} entry;

static bool worse(const entry *a, const entry *b) {
    return a->key < b->key || (a->key == b->key && a->index > b->index);
}

static void sift_down(entry *heap, int64_t n, int64_t at) {
    entry moving = heap[at];
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && worse(&heap[child + 1], &heap[child])) child++;
        if (!worse(&heap[child], &moving)) break;
        heap[at] = heap[child];
    }
    heap[at] = moving;
}

/* The best k of n keys, best first. */
static void select_best(const uint64_t *keys, int64_t n, entry *heap, int64_t k) {
    if (k == 0) return;
    for (int64_t i = 0; i < k; i++) heap[i] = (entry){keys[i], i};
    for (int64_t i = k / 2; i-- > 0;) sift_down(heap, k, i);
    for (int64_t i = k; i < n; i++) {
        if (keys[i] <= heap->key) continue; /* a later equal one is worse */
        *heap = (entry){keys[i], i};
        sift_down(heap, k, 0);
    }
    for (int64_t i = k; i-- > 1;) {
        entry worst = *heap;
        *heap = heap[i];
        heap[i] = worst;
        sift_down(heap, i, 0);
    }
}

typedef struct topk_job {
    const td_tensor *x;
    char *values;     /* NULL: not wanted */
    int64_t *indices; /* the same */
    int64_t n, k, inner;
    uint64_t *keys; /* per thread: n */
    entry *heaps;   /* per thread: k */
    bool smallest;
} topk_job;

static void lines(void *arg, int64_t begin, int64_t end, int thread) {
    const topk_job *j = arg;
    uint64_t *keys = j->keys + thread * j->n;
    entry *heap = j->heaps + thread * j->k;
    int64_t width = td_dtype_bits(j->x->dtype) / 8;

    for (int64_t line = begin; line < end; line++) {
        int64_t outer = line / j->inner, at = line % j->inner, from = outer * j->n * j->inner + at;
        td_keys_load(j->x->dtype, j->x->data, from, j->inner, j->n, j->smallest, keys);
        select_best(keys, j->n, heap, j->k);
        for (int64_t i = 0; i < j->k; i++) {
            int64_t to = (outer * j->k + i) * j->inner + at;
            if (j->indices) j->indices[to] = heap[i].index;
            if (j->values)
                memcpy(j->values + to * width, (char *)j->x->data + (from + heap[i].index * j->inner) * width,
                       (size_t)width);
        }
    }
}

static treadle_status topk_run(td_run *r) {
    const topk_state *s = r->state;
    const td_tensor *x = r->in[0], *y = r->out[0] ? r->out[0] : r->out[1];
    int axis = (int)(s->axis < 0 ? s->axis + x->shape.rank : s->axis);
    size_t threads = (size_t)td_pool_threads(r->pool), bytes;
    int64_t outer = 1;
    topk_job job = {.x = x, .inner = 1, .smallest = s->smallest};

    job.n = x->shape.dims[axis];
    job.k = y->shape.dims[axis];
    job.values = r->out[0] ? r->out[0]->data : NULL;
    job.indices = r->n_outputs > 1 && r->out[1] ? r->out[1]->data : NULL;
    for (int d = 0; d < axis; d++) outer *= x->shape.dims[d];
    for (int d = axis + 1; d < x->shape.rank; d++) job.inner *= x->shape.dims[d];
    if (td_tensor_count(y) == 0) return TREADLE_OK;
    if (TD_MUL_OVERFLOWS((size_t)job.n * sizeof(entry), threads, &bytes)) return td_run_fail(r, "sizes overflow");
    job.keys = td_run_scratch(r, (size_t)job.n * sizeof *job.keys * threads);
    job.heaps = td_run_scratch(r, (size_t)job.k * sizeof(entry) * threads);
    if (!job.keys || !job.heaps) return TREADLE_OUT_OF_MEMORY;
    td_pool_range(r->pool, outer * job.inner, TD_MAX(1, 4096 / job.n), 1, lines, &job);
    return TREADLE_OK;
}

const td_op_impl td_op_topk = {
    .state_bytes = sizeof(topk_state), .prepare = topk_prepare, .infer = topk_infer, .run = topk_run};
