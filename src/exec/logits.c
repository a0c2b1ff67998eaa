/* exec/logits.c - logits of a run: which positions are computed, and where the rows find theirs. */
#include "base/alloc.h"
#include "exec/run.h"
#include "tensor/half.h"

#include <stdio.h>

/* The position of a row's last token among those of a run. */
static int64_t last_position(const td_exec_run *run) { return run->n - 1 - run->pad_after; }

/* Computes logits of the last position only, where the engine can. */
treadle_status td_exec_pick(td_exec *e, const td_exec_run *run, int32_t session, treadle_error *err) {
    if (!e->runtime->pick_rows[session] || e->copies[session]) return TREADLE_OK;
    int64_t wanted = run->n > 1 && !e->keep_all && run->wants_logits ? last_position(run) : -1;
    bool same = wanted < 0 || (run->n_rows == e->picked_rows[session] && run->n == e->picked_of[session]);
    if (wanted == e->picked_n[session] && same) return TREADLE_OK;
    for (size_t r = 0; r < run->n_rows; r++) e->picked[r] = wanted;
    e->picked_n[session] = wanted;
    e->picked_rows[session] = run->n_rows;
    e->picked_of[session] = run->n;
    return e->runtime->engines[session]->pick_rows(e->ctx[session], (size_t)e->plan->sessions[session].logits,
                                                   wanted < 0 ? NULL : e->picked, run->n_rows, 1, run->n, err);
}

static treadle_status take_vocab(td_exec *e, const td_tensor *logits, treadle_error *err) {
    int rank = logits->shape.rank;
    int64_t vocab = rank > 0 ? logits->shape.dims[rank - 1] : 0;
    if ((rank != 2 && rank != 3) || vocab <= 0 || vocab > INT32_MAX || (e->vocab && vocab != e->vocab)) {
        char text[128], size[48] = "";
        if (e->vocab) snprintf(size, sizeof size, " with a vocabulary of %lld", (long long)e->vocab);
        return td_fail(err, TREADLE_RUN, "expected logits of two or three dimensions%s, the graph gave %s", size,
                       td_shape_text(&logits->shape, text));
    }
    if (e->logits) return TREADLE_OK;
    e->logits = td_alloc_array(e->n_rows * (size_t)vocab, sizeof *e->logits);
    if (!e->logits) return td_fail_memory(err, "logits", e->n_rows * (size_t)vocab * sizeof *e->logits);
    e->vocab = vocab;
    return TREADLE_OK;
}

/* Logits of row b of the run at a position, as float32 in `to`. */
static void copy_position(const td_tensor *t, size_t b, int64_t position, int64_t vocab, float *to) {
    int64_t offset = (int64_t)b * t->strides[0] + (t->shape.rank == 3 ? position * t->strides[1] : 0);
    int64_t step = t->strides[t->shape.rank - 1];
    if (step == 1) {
        td_to_f32(t->dtype, (const char *)t->data + offset * (td_dtype_bits(t->dtype) / 8), vocab, to);
        return;
    }
    for (int64_t i = 0; i < vocab; i++) to[i] = (float)td_load_f64(t->dtype, t->data, offset + i * step);
}

/* Padding has no logits that anybody wants. */
static treadle_status keep_positions(td_exec *e, const td_exec_run *run, const td_tensor *t, int64_t n,
                                     treadle_error *err) {
    int64_t first = n == run->n ? run->pad_before : 0, end = n == run->n ? n - run->pad_after : n;
    for (size_t b = 0; b < run->n_rows; b++) {
        td_floats *all = &e->all[run->first_row + b];
        if (!td_vec_reserve(all, all->n + (size_t)((end - first) * e->vocab)))
            return td_fail_memory(err, "logits of a prompt", 0);
        for (int64_t i = first; i < end; i++, all->n += (size_t)e->vocab)
            copy_position(t, b, i, e->vocab, all->items + all->n);
    }
    return TREADLE_OK;
}

treadle_status td_exec_take_logits(td_exec *e, const td_exec_run *run, int32_t session, td_exec_row *rows,
                                   treadle_error *err) {
    const td_value *value = &e->outputs[session][e->plan->sessions[session].logits];
    if (value->kind != TD_VALUE_TENSOR) return td_fail(err, TREADLE_RUN, "the graph gave no logits");
    const td_tensor *t = &value->tensor;
    TD_TRY(take_vocab(e, t, err));
    int64_t positions = t->shape.rank == 3 ? t->shape.dims[1] : 1;
    if (t->shape.dims[0] != (int64_t)run->n_rows || positions < 1 || positions > run->n) {
        char text[128];
        return td_fail(err, TREADLE_RUN, "expected logits of %zu rows and 1 to %lld positions, the graph gave %s",
                       run->n_rows, (long long)run->n, td_shape_text(&t->shape, text));
    }
    if (e->keep_all) TD_TRY(keep_positions(e, run, t, positions, err));
    if (!run->wants_logits) return TREADLE_OK; /* the row has tokens to go: should they fail, these are not its last */
    int64_t at = positions == run->n ? last_position(run) : positions - 1;
    for (size_t b = 0; b < run->n_rows; b++) {
        td_exec_row *row = &rows[run->first_row + b];
        if (!row->live) continue;
        float *to = e->logits + (run->first_row + b) * (size_t)e->vocab;
        if (e->n_rows == 1 && t->dtype == TD_FLOAT && t->strides[t->shape.rank - 1] == 1) {
            row->logits = (const float *)t->data + (t->shape.rank == 3 ? at * t->strides[1] : 0);
            continue; /* the context's own memory: no copy */
        }
        copy_position(t, b, at, e->vocab, to);
        row->logits = to;
    }
    return TREADLE_OK;
}
