/* light/ops/grain.c - see grain.h. */
#include "light/ops/grain.h"

enum { PART = 8192 }; /* elements of a run where nothing else limits it */

treadle_status td_grain_prepare(td_prepare *p, td_grain_attrs *out) {
    out->axis = td_attr_has(p, "axis") ? td_attr_int(p, "axis") : 1;
    out->block = td_attr_int(p, "block_size");
    if (out->block < 0) return td_bad_node(p, "block_size = %lld", (long long)out->block);
    return TREADLE_OK;
}

static bool is_one(const td_shape *s) {
    for (int d = 0; d < s->rank; d++)
        if (s->dims[d] != 1) return false;
    return true;
}

treadle_status td_grain_infer(td_infer *in, const td_grain_attrs *attrs) {
    const td_shape *x = &in->inputs[0]->tensor.shape, *scale = &in->inputs[1]->tensor.shape;
    bool has_zero = in->n_inputs > 2 && in->inputs[2]->kind == TD_VALUE_TENSOR;
    const td_shape *zero = has_zero ? &in->inputs[2]->tensor.shape : scale;
    char text[128];
    int axis;

    if (!td_shape_known(x) || !td_shape_known(scale) || !td_shape_known(zero)) return TREADLE_OK;
    if (!td_shape_equal(scale, zero) && !(is_one(scale) && is_one(zero)))
        return td_infer_fail(in, "expected scale and zero point to have one shape");
    if (is_one(scale) && attrs->block == 0) return TREADLE_OK;
    TD_TRY(td_infer_axis(in, attrs->axis, x->rank, &axis));
    if (attrs->block == 0) {
        if (scale->rank != 1 || scale->dims[0] != x->dims[axis])
            return td_infer_fail(in, "expected scale to be one number or [%lld]", (long long)x->dims[axis]);
        return TREADLE_OK;
    }
    td_shape want = *x;
    want.dims[axis] = x->dims[axis] / attrs->block + (x->dims[axis] % attrs->block != 0);
    if (!td_shape_equal(scale, &want)) return td_infer_fail(in, "expected scale to be %s", td_shape_text(&want, text));
    return TREADLE_OK;
}

td_grain td_grain_of(const td_grain_attrs *attrs, const td_shape *x, const td_shape *scale) {
    td_grain g = {.total = 1, .dim = 1, .inner = 1, .block = attrs->block};
    int axis = (int)(attrs->axis < 0 ? attrs->axis + x->rank : attrs->axis);
    int64_t outer = 1;

    for (int d = 0; d < x->rank; d++) g.total *= x->dims[d];
    if (is_one(scale) && attrs->block == 0) {
        g.n_runs = (g.total + PART - 1) / PART;
        return g;
    }
    for (int d = 0; d < x->rank; d++) *(d < axis ? &outer : d == axis ? &g.dim : &g.inner) *= x->dims[d];
    g.kind = attrs->block ? TD_GRAIN_BLOCK : TD_GRAIN_AXIS;
    g.n_blocks = attrs->block ? g.dim / attrs->block + (g.dim % attrs->block != 0) : g.dim;
    if (g.total == 0) return g;
    g.n_runs = g.inner > 1 ? outer * g.dim : g.kind == TD_GRAIN_BLOCK ? outer * g.n_blocks : outer;
    return g;
}

td_grain_run td_grain_at(const td_grain *g, int64_t run) {
    if (g->kind == TD_GRAIN_TENSOR)
        return (td_grain_run){run * PART, TD_MIN((int64_t)PART, g->total - run * PART), 0, 0};
    if (g->kind == TD_GRAIN_AXIS)
        return g->inner > 1 ? (td_grain_run){run * g->inner, g->inner, run % g->dim, 0}
                            : (td_grain_run){run * g->dim, g->dim, 0, 1};
    if (g->inner > 1) {
        int64_t block = run / g->dim * g->n_blocks + run % g->dim / g->block;
        return (td_grain_run){run * g->inner, g->inner, block * g->inner, 1};
    }
    int64_t at = run % g->n_blocks * g->block;
    return (td_grain_run){run / g->n_blocks * g->dim + at, TD_MIN(g->block, g->dim - at), run, 0};
}
