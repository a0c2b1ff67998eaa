/* light/ops/nms.c - NonMaxSuppression and Det. Sources: ONNX op texts. */
#include "light/op.h"
#include "tensor/half.h"

#include <math.h>
#include <string.h>

/* --- NonMaxSuppression: boxes, scores, most boxes a class, overlap threshold, score threshold */

typedef struct nms_state {
    bool by_centre;
} nms_state;

static treadle_status nms_prepare(td_prepare *p) {
    nms_state *s = p->state;
    s->by_centre = td_attr_int(p, "center_point_box") != 0;
    return TREADLE_OK;
}

static treadle_status nms_infer(td_infer *in) {
    const td_shape *boxes = &in->inputs[0]->tensor.shape, *scores = &in->inputs[1]->tensor.shape;
    td_shape out = {2, {TD_DIM_UNKNOWN, 3}};
    if (td_shape_known(boxes) && td_shape_known(scores) &&
        (boxes->rank != 3 || scores->rank != 3 || boxes->dims[2] != 4 || boxes->dims[0] != scores->dims[0] ||
         boxes->dims[1] != scores->dims[2]))
        return td_infer_fail(in, "expected boxes to be [batch, boxes, 4], scores [batch, classes, boxes]");
    return td_infer_set(in, 0, TD_INT64, &out);
}

typedef struct box {
    float x0, y0, x1, y1;
} box;

static box box_of(const nms_state *s, const float *p) {
    if (s->by_centre) return (box){p[0] - p[2] / 2, p[1] - p[3] / 2, p[0] + p[2] / 2, p[1] + p[3] / 2};
    return (box){TD_MIN(p[1], p[3]), TD_MIN(p[0], p[2]), TD_MAX(p[1], p[3]), TD_MAX(p[0], p[2])};
}

static bool overlaps(const box *a, const box *b, float threshold) {
    float width = TD_MIN(a->x1, b->x1) - TD_MAX(a->x0, b->x0), height = TD_MIN(a->y1, b->y1) - TD_MAX(a->y0, b->y0);
    if (!(width > 0) || !(height > 0)) return false;
    float area_a = (a->x1 - a->x0) * (a->y1 - a->y0), area_b = (b->x1 - b->x0) * (b->y1 - b->y0);
    float both = width * height, all = area_a + area_b - both;
    return area_a > 0 && area_b > 0 && all > 0 && both / all > threshold;
}

/* Indices by falling score, equal ones by rising index: a merge sort, which keeps their order. */
static void sort_by_score(const float *scores, int64_t *order, int64_t *room, int64_t n) {
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t at = 0; at < n; at += 2 * width) {
            int64_t a = at, a_end = TD_MIN(at + width, n), b = a_end, b_end = TD_MIN(at + 2 * width, n), to = at;
            while (a < a_end && b < b_end) room[to++] = scores[order[b]] > scores[order[a]] ? order[b++] : order[a++];
            while (a < a_end) room[to++] = order[a++];
            while (b < b_end) room[to++] = order[b++];
        }
        memcpy(order, room, (size_t)n * sizeof *order);
    }
}

typedef struct nms_run {
    const nms_state *s;
    int64_t n, most;
    float overlap, least; /* least: scores must be above it */
    bool has_least;
    int64_t *order, *room;
    box *taken;
} nms_run;

/* Boxes of one class, best first, to chosen[...]: how many. */
static int64_t choose(const nms_run *w, const float *boxes, const float *scores, int64_t *chosen) {
    int64_t n = 0, n_chosen = 0;
    for (int64_t i = 0; i < w->n; i++)
        if (!isnan(scores[i]) && (!w->has_least || scores[i] > w->least)) w->order[n++] = i;
    sort_by_score(scores, w->order, w->room, n);
    for (int64_t i = 0; i < n && n_chosen < w->most; i++) {
        box b = box_of(w->s, boxes + 4 * w->order[i]);
        bool free = true;
        for (int64_t k = 0; k < n_chosen && free; k++) free = !overlaps(&b, &w->taken[k], w->overlap);
        if (!free) continue;
        w->taken[n_chosen] = b;
        chosen[n_chosen++] = w->order[i];
    }
    return n_chosen;
}

static const td_tensor *input(const td_run *r, size_t i) {
    const td_tensor *t = i < r->n_inputs ? r->in[i] : NULL;
    return t && td_tensor_count(t) == 1 ? t : NULL;
}

static treadle_status nms_run_op(td_run *r) {
    const td_tensor *boxes = r->in[0], *scores = r->in[1], *most = input(r, 2), *overlap = input(r, 3),
                    *least = input(r, 4);
    int64_t n_batch = scores->shape.dims[0], n_classes = scores->shape.dims[1], n_found = 0, room;
    nms_run w = {.s = r->state, .n = scores->shape.dims[2]};

    w.most = most ? TD_MAX(0, TD_MIN(w.n, *(const int64_t *)most->data)) : 0;
    w.overlap = overlap ? *(const float *)overlap->data : 0;
    w.has_least = least != NULL;
    w.least = least ? *(const float *)least->data : 0;
    if (TD_MUL_OVERFLOWS(n_batch * n_classes, w.most, &room) || room > INT64_MAX / 64)
        return td_run_fail(r, "sizes overflow");
    int64_t *found = td_run_scratch(r, (size_t)room * sizeof *found);
    int64_t *counts = td_run_scratch(r, (size_t)(n_batch * n_classes) * sizeof *counts);
    w.order = td_run_scratch(r, (size_t)w.n * sizeof *w.order);
    w.room = td_run_scratch(r, (size_t)w.n * sizeof *w.room);
    w.taken = td_run_scratch(r, (size_t)w.most * sizeof *w.taken);
    if (!found || !counts || !w.order || !w.room || !w.taken) return TREADLE_OUT_OF_MEMORY;
    for (int64_t i = 0; i < n_batch * n_classes; i++) {
        const float *of_batch = (const float *)boxes->data + i / n_classes * w.n * 4;
        counts[i] = choose(&w, of_batch, (const float *)scores->data + i * w.n, found + n_found);
        n_found += counts[i];
    }
    td_shape shape = {2, {n_found, 3}};
    TD_TRY(td_run_alloc(r, 0, TD_INT64, &shape));
    int64_t *to = r->out[0]->data;
    for (int64_t i = 0; i < n_batch * n_classes; i++)
        for (int64_t k = 0; k < counts[i]; k++, to += 3) {
            to[0] = i / n_classes;
            to[1] = i % n_classes;
            to[2] = *found++;
        }
    return TREADLE_OK;
}

const td_op_impl td_op_non_max_suppression = {
    .state_bytes = sizeof(nms_state), .prepare = nms_prepare, .infer = nms_infer, .run = nms_run_op};

/* --- Det: by elimination with row pivots, in float64 */

static treadle_status det_infer(td_infer *in) {
    const td_tensor *x = &in->inputs[0]->tensor;
    td_shape out = x->shape;
    if (out.rank < 0) return td_infer_unknown(in, 0, x->dtype, -1);
    int64_t rows = out.rank < 2 ? 0 : out.dims[out.rank - 2], columns = out.rank < 2 ? 1 : out.dims[out.rank - 1];
    if (rows >= 0 && columns >= 0 && rows != columns) return td_infer_fail(in, "expected input to be square matrices");
    out.rank -= 2;
    return td_infer_set(in, 0, x->dtype, &out);
}

static double determinant(double *a, int64_t n) {
    double product = 1;
    for (int64_t k = 0; k < n; k++) {
        int64_t pivot = k;
        for (int64_t i = k + 1; i < n; i++)
            if (fabs(a[i * n + k]) > fabs(a[pivot * n + k])) pivot = i;
        double value = a[pivot * n + k];
        if (value == 0) return 0;
        product *= pivot == k ? value : -value;
        for (int64_t j = k; j < n && pivot != k; j++) {
            double swap = a[k * n + j];
            a[k * n + j] = a[pivot * n + j];
            a[pivot * n + j] = swap;
        }
        for (int64_t i = k + 1; i < n; i++) {
            double factor = a[i * n + k] / value;
            for (int64_t j = k + 1; j < n; j++) a[i * n + j] -= factor * a[k * n + j];
        }
    }
    return product;
}

static treadle_status det_run(td_run *r) {
    const td_tensor *x = r->in[0];
    int64_t n = x->shape.dims[x->shape.rank - 1], count = td_tensor_count(r->out[0]);
    double *a = td_run_scratch(r, (size_t)(n * n) * sizeof *a);
    if (!a) return TREADLE_OUT_OF_MEMORY;
    for (int64_t b = 0; b < count; b++) {
        for (int64_t i = 0; i < n * n; i++) a[i] = td_load_f64(x->dtype, x->data, b * n * n + i);
        td_store_f64(x->dtype, r->out[0]->data, b, determinant(a, n));
    }
    return TREADLE_OK;
}

const td_op_impl td_op_det = {.infer = det_infer, .run = det_run};
