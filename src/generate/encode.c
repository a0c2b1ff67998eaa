/* generate/encode.c - models without logits: one pass over what a row was given, its outputs,
 * and one vector made of them. */
#include "base/alloc.h"
#include "generate/timeline.h"
#include "tensor/half.h"

#include <math.h>

/* --- outputs of a row, kept until its next pass */

static void free_outputs(td_generation *g, size_t r) {
    for (size_t i = 0; i < g->n_outputs; i++) td_value_release(&g->outputs[r * g->n_outputs + i]);
}

void td_generation_free_outputs(td_generation *g) {
    for (size_t r = 0; g->outputs && r < g->n_rows; r++) free_outputs(g, r);
    td_free(g->outputs);
}

/* Outputs are numbered over all sessions. */
static treadle_status keep_outputs(td_generation *g, size_t r, treadle_error *err) {
    const td_plan *plan = g->runtime->plan;
    size_t at = r * g->n_outputs;
    for (size_t i = 0; i < plan->n_sessions; i++)
        for (size_t o = 0; o < plan->sessions[i].signature->n_outputs; o++, at++) {
            const td_value *value = td_exec_output(g->exec, (int32_t)i, (int32_t)o);
            if (value && !td_value_copy(&g->outputs[at], value)) return td_fail_memory(err, "outputs", 0);
        }
    return TREADLE_OK;
}

treadle_status td_generation_encode(td_generation *g, treadle_error *err) {
    const td_plan *plan = g->runtime->plan;
    if (!g->n_rows) return td_fail(err, TREADLE_INVALID_ARGUMENT, "expected an append before a pass");
    if (!g->outputs) {
        g->n_outputs = 0;
        for (size_t i = 0; i < plan->n_sessions; i++) g->n_outputs += plan->sessions[i].signature->n_outputs;
        g->outputs = td_alloc_zero(g->n_rows * g->n_outputs, sizeof *g->outputs);
        if (!g->outputs) return td_fail_memory(err, "outputs", 0);
    }
    td_exec_keep_outputs(g->exec);
    treadle_status status = TREADLE_OK;
    td_interrupt_begin_run(&g->interrupt);
    for (size_t r = 0; status == TREADLE_OK && r < g->n_rows; r++) {
        td_timeline *t = &g->timelines[r];
        if (!t->fresh) continue;
        td_generation_fill_row(g, r);
        g->rows[r].ids = t->ids;
        g->rows[r].n_ids = t->n;
        free_outputs(g, r);
        status = td_exec_encode(g->exec, g->rows, r, err);
        bool made = status == TREADLE_OK;
        if (made) status = keep_outputs(g, r, err);
        /* Where state has gone on, a pass is not made twice, whatever became of its outputs. */
        if (status == TREADLE_OK || (made && g->exec->has_past)) t->fresh = t->fresh_requests = false;
    }
    td_interrupt_end_run(&g->interrupt);
    return status;
}

static const td_value *kept_output(const td_generation *g, size_t row, int32_t session, int32_t output) {
    size_t at = row * g->n_outputs + (size_t)output;
    for (int32_t i = 0; i < session; i++) at += g->runtime->plan->sessions[i].signature->n_outputs;
    return g->outputs && g->outputs[at].kind == TD_VALUE_TENSOR ? &g->outputs[at] : NULL;
}

treadle_status td_generation_output(const td_generation *g, size_t row, const char *name, const td_tensor **out,
                                    treadle_error *err) {
    const td_plan *plan = g->runtime->plan;
    td_str wanted = td_str_from(name);
    td_buf names = {0};
    for (size_t i = 0; i < plan->n_sessions; i++) {
        const td_plan_session *s = &plan->sessions[i];
        td_str bare = wanted;
        if (td_str_starts(wanted, s->name) && wanted.n > s->name.n && wanted.p[s->name.n] == '.')
            bare = (td_str){wanted.p + s->name.n + 1, wanted.n - s->name.n - 1};
        ptrdiff_t o = td_signature_find_output(s->signature, wanted);
        if (o < 0) o = td_signature_find_output(s->signature, bare);
        const td_value *value = o < 0 ? NULL : kept_output(g, row, (int32_t)i, (int32_t)o);
        if (value) {
            *out = &value->tensor;
            td_buf_free(&names);
            return TREADLE_OK;
        }
        for (size_t k = 0; k < s->signature->n_outputs; k++)
            td_buf_printf(&names, "%s%.*s", names.n ? ", " : "", TD_STR_ARGS(s->signature->outputs[k].name));
    }
    treadle_status status = td_fail(err, TREADLE_INVALID_ARGUMENT,
                                    "expected an output that the latest pass gave, found \"%.200s\" (outputs: %.*s)",
                                    name, (int)TD_MIN(names.n, (size_t)400), names.p ? names.p : "");
    td_buf_free(&names);
    return status;
}

bool td_generation_output_at(const td_generation *g, size_t row, size_t index, td_str *session, td_str *name,
                             const td_tensor **out) {
    const td_plan *plan = g->runtime->plan;
    for (size_t i = 0; i < plan->n_sessions; i++) {
        const td_plan_session *s = &plan->sessions[i];
        for (size_t o = 0; o < s->signature->n_outputs; o++) {
            const td_value *value = kept_output(g, row, (int32_t)i, (int32_t)o);
            if (!value || index-- > 0) continue;
            *session = s->name;
            *name = s->signature->outputs[o].name;
            *out = &value->tensor;
            return true;
        }
    }
    return false;
}

/* --- pooling */

/* Element [position, d] of a row's output: [1, positions, dim], or [1, dim] where the graph has pooled. */
static double at(const td_tensor *t, int64_t position, int64_t d) {
    int last = t->shape.rank - 1;
    int64_t offset = d * t->strides[last] + (t->shape.rank == 3 ? position * t->strides[1] : 0);
    return td_load_f64(t->dtype, t->data, offset);
}

static void pool(const td_tensor *t, td_pooling mode, int64_t positions, float *out) {
    int64_t dim = t->shape.dims[t->shape.rank - 1];
    for (int64_t d = 0; d < dim; d++) {
        double sum = 0;
        if (t->shape.rank == 2 || mode == TD_POOLING_CLS) sum = at(t, 0, d);
        else if (mode == TD_POOLING_LAST) sum = at(t, positions - 1, d);
        else
            for (int64_t i = 0; i < positions; i++) sum += at(t, i, d) / (double)positions;
        out[d] = (float)sum;
    }
}

/* transformers and sentence-transformers divide by the norm, but by no less than 1e-12. */
static void normalize(float *v, int64_t n) {
    double square = 0;
    for (int64_t i = 0; i < n; i++) square += (double)v[i] * v[i];
    double norm = fmax(sqrt(square), 1e-12);
    for (int64_t i = 0; i < n; i++) v[i] = (float)(v[i] / norm);
}

treadle_status td_generation_embedding(td_generation *g, size_t row, const float **out, int64_t *out_dim,
                                       treadle_error *err) {
    const td_plan_pooling *p = &g->runtime->plan->pooling;
    if (!p->present)
        return td_fail(err, TREADLE_UNSUPPORTED, "this model gives no vectors: it has no hidden states to pool");
    const td_value *value = kept_output(g, row, p->session, p->output);
    if (!value) return td_fail(err, TREADLE_INVALID_ARGUMENT, "row %zu has no vector yet: run it first", row);
    const td_tensor *t = &value->tensor;
    int64_t dim = t->shape.rank > 0 ? t->shape.dims[t->shape.rank - 1] : 0;
    if ((t->shape.rank != 2 && t->shape.rank != 3) || t->shape.dims[0] != 1 || dim < 1 ||
        (t->shape.rank == 3 && t->shape.dims[1] < 1)) {
        char text[128];
        return td_fail(err, TREADLE_RUN, "expected hidden states [1, positions, dim], the graph gave %s",
                       td_shape_text(&t->shape, text));
    }
    g->vector.n = 0;
    if (!td_vec_reserve(&g->vector, (size_t)dim)) return td_fail_memory(err, "a vector", (size_t)dim * sizeof(float));
    g->vector.n = (size_t)dim;
    pool(t, (td_pooling)p->mode, t->shape.rank == 3 ? t->shape.dims[1] : 1, g->vector.items);
    if (p->normalize) normalize(g->vector.items, dim);
    *out = g->vector.items;
    *out_dim = dim;
    return TREADLE_OK;
}
